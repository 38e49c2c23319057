// Concordance totals of bootstrap resamples: rows keep their place, only their multiplicities change.
#pragma once

#include "pairs.hpp"

namespace uq {

// How often each of n units is drawn in n draws with replacement: a counter hashed by splitmix64 (Steele et al. 2014),
// scaled from 53 bits. The twin of kernels.plain.bootstrap.draw_units, bit for bit, whatever the number of threads.
inline void draw_units(u64 seed, std::size_t units, u32 *times) {
    std::fill(times, times + units, 0);
    const double scale = static_cast<double>(units);
    for (std::size_t j = 0; j < units; ++j) {
        u64 z = seed + (j + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        ++times[static_cast<std::size_t>(static_cast<double>(static_cast<i64>(z >> 11)) * 0x1p-53 * scale)];
    }
}

struct SumSink {
    u64 total = 0;
    template <class Rank> u32 rank(Rank item) const { return item; }
    template <class Rank> void add(Rank &, u32 count) { total += count; }
    template <class Rank> void finish(Rank) const {}
};

// Everything about the sample that resampling does not change.
struct Resampler {
    std::size_t n = 0;
    bool loss_ties = false, score_ties = false;
    std::vector<u32> rank_of_slot;              // q at each slot p of the (score, loss) order
    std::vector<u32> row_of_rank;               // row at each rank q of the (loss, score) order
    std::vector<u32> group_end, joint_end;      // at each p; only with ties
    std::vector<u32> loss_end;                  // at each q; only with ties
};

inline Resampler make_resampler(const double *score, const double *loss, std::size_t n, PairSpace &space) {
    Resampler plan;
    plan.n = n;
    const LossOrder order = order_losses(loss, n, space);
    plan.loss_ties = order.groups > 0;
    plan.rank_of_slot.resize(n);
    plan.row_of_rank.assign(order.row, order.row + n);
    plan.group_end.resize(n);
    plan.joint_end.resize(n);
    const ScoreOrder slots = order_score(score, order, space, 1);
    const auto place = [&](std::size_t p, u32 q, u32 slot) {
        plan.rank_of_slot[p] = q;
        plan.row_of_rank[q] = order.row[slot];
        plan.group_end[p] = plan.joint_end[p] = static_cast<u32>(p + 1);
    };
    if (order.dense()) {
        rank_places(slots, order, space.ties, place);
    } else {
        u32 *next = space.ties.next.get<u32>(order.groups + 1);
        std::copy_n(order.start, order.groups, next);
        for (std::size_t p = 0; p < n; ++p) {
            const u32 slot = slots.slot[p], group = order.group_of(slot);
            place(p, group == kAlone ? slot : next[group]++, slot);
        }
    }
    each_tie(slots.marks, n, [&](std::size_t from, std::size_t to) {
        plan.score_ties = true;
        walk_group(slots, order, from, to, [&](std::size_t p, u32, u32 joint_end) {
            plan.group_end[p] = static_cast<u32>(to);
            plan.joint_end[p] = joint_end;
        });
    });
    if (!order.groups) return plan;
    plan.loss_end.resize(n);
    for (std::size_t q = 0; q < n; ++q) plan.loss_end[q] = static_cast<u32>(q + 1);
    for (std::size_t g = 0; g < order.groups; ++g) {
        std::fill_n(plan.loss_end.begin() + order.start[g], order.size[g], order.start[g] + order.size[g]);
    }
    return plan;
}

inline u64 pairs_of(u64 k) { return k * (k - 1) / 2; }

// Tied pairs of a resample: slots [p, end[p]) form a group; count(p) is the multiplicity of slot p.
template <class Count> u64 tied_pairs(const std::vector<u32> &end, std::size_t n, Count count) {
    u64 total = 0;
    for (std::size_t p = 0; p < n;) {
        u64 size = 0;
        for (const std::size_t stop = end[p]; p < stop; ++p) size += count(p);
        if (size) total += pairs_of(size);
    }
    return total;
}

// times[row] is how often the row was drawn, `size` their sum. totals: credit2, pairs that differ in the loss, pairs
// that differ in the score (each unordered pair once), rows.
// Rank is 16 bits wide where ranks fit: half the memory to move.
template <class Rank>
void resample_totals(const Resampler &plan, const u32 *times, u64 size, Buffer &memory, i64 *totals) {
    const std::size_t n = plan.n;
    constexpr std::size_t kAtOnce = 4;
    u32 *start = memory.get<u32>(2 * n + 2 * (size + kAtOnce)), *count = start + n;
    Rank *ranks = reinterpret_cast<Rank *>(count + n), *spare = ranks + size + kAtOnce;
    u32 next = 0;
    u64 squares = 0;
    for (std::size_t q = 0; q < n; ++q) {
        const u32 k = times[plan.row_of_rank[q]];
        start[q] = next;
        count[q] = k;
        next += k;
        squares += static_cast<u64>(k) * k;
    }
    const u64 copies = (squares - size) / 2;  // pairs of copies of one row
    std::size_t m = 0;
    for (std::size_t p = 0; p < n; ++p) {
        const u32 q = plan.rank_of_slot[p], k = count[q], first = start[q];
        // Four writes whatever k is: most rows are drawn fewer times, and no branch is mispredicted.
        for (std::size_t c = 0; c < kAtOnce; ++c) ranks[m + c] = static_cast<Rank>(first + c);
        for (u32 c = kAtOnce; c < k; ++c) ranks[m + c] = static_cast<Rank>(first + c);
        m += k;
    }
    const auto at_slot = [&](std::size_t p) { return count[plan.rank_of_slot[p]]; };
    const u64 tied_loss =
        plan.loss_ties ? tied_pairs(plan.loss_end, n, [&](std::size_t q) { return count[q]; }) : copies;
    const u64 tied_score = plan.score_ties ? tied_pairs(plan.group_end, n, at_slot) : copies;
    const u64 tied_both = plan.loss_ties && plan.score_ties ? tied_pairs(plan.joint_end, n, at_slot) : copies;
    SumSink sink;
    if (m) count_below(ranks, spare, m, 0, bit_width(m - 1), sink);
    totals[0] = static_cast<i64>(2 * sink.total - 2 * tied_loss - tied_score + tied_both);
    totals[1] = static_cast<i64>((m ? pairs_of(m) : 0) - tied_loss);
    totals[2] = static_cast<i64>((m ? pairs_of(m) : 0) - tied_score);
    totals[3] = static_cast<i64>(m);
}

// ---- areas under selective-prediction curves --------------------------------------------------------------------

struct Areas {
    double size = 0, bad = 0;  // rows and loss of the resample
    double pairs2 = 0;         // sum over blocks of bad * (2 * good below + good): 2 * UQ-AUC * bad * good
    double accepted2 = 0;      // sum over blocks of rows * (2 * bad below + bad): 2 * AUGRC * size^2
    double aurc = 0;
};

// Rows in order of the score; block_end[p] as in Resampler::group_end.
struct AreaPlan {
    bool ties = false;
    std::vector<u32> row, block_end;
    std::vector<double> loss;  // at each slot
};

inline AreaPlan make_area_plan(const double *score, const double *loss, std::size_t n, PairSpace &space) {
    AreaPlan plan;
    plan.row.resize(n);
    plan.block_end.resize(n);
    plan.loss.resize(n);
    u8 *marks = space.marks.get<u8>(n);
    order_rows<u32>(score, nullptr, nullptr, n, marks, plan.row.data(), space.order);
    for (std::size_t p = 0; p < n; ++p) plan.loss[p] = loss[plan.row[p]];
    for (std::size_t p = n, end = n; p-- > 0;) {
        plan.block_end[p] = static_cast<u32>(end);
        plan.ties = plan.ties || !(marks[p] & kNew);
        if (marks[p] & kNew) end = p;
    }
    return plan;
}

// harmonic[k] = 1 + 1/2 + ... + 1/k; grows as needed.
inline void extend_harmonic(std::vector<double> &harmonic, std::size_t size) {
    if (harmonic.empty()) harmonic.push_back(0.0);
    while (harmonic.size() <= size) harmonic.push_back(harmonic.back() + 1.0 / static_cast<double>(harmonic.size()));
}

inline Areas resample_areas(const AreaPlan &plan, const u32 *times, u64 size, bool with_aurc,
                            std::vector<double> &harmonic) {
    Areas sums;
    const std::size_t n = plan.row.size();
    if (!plan.ties && !with_aurc) {  // no branch that could be mispredicted: a row drawn 0 times adds 0
        double before = 0, bad_before = 0;
        for (std::size_t p = 0; p < n; ++p) {
            const double count = times[plan.row[p]], bad = count * plan.loss[p];
            sums.pairs2 += bad * (2 * (before - bad_before) + count - bad);
            sums.accepted2 += count * (2 * bad_before + bad);
            before += count;
            bad_before += bad;
        }
        sums.size = before;
        sums.bad = bad_before;
        return sums;
    }
    if (with_aurc) extend_harmonic(harmonic, size);
    u64 before = 0;
    double bad_before = 0;
    for (std::size_t p = 0; p < n;) {
        u64 rows = 0;
        double bad = 0;
        for (const std::size_t end = plan.block_end[p]; p < end; ++p) {
            const u32 k = times[plan.row[p]];
            rows += k;
            bad += k * plan.loss[p];
        }
        if (!rows) continue;
        const double count = static_cast<double>(rows), place = static_cast<double>(before);
        const double good = count - bad, good_before = place - bad_before;
        sums.pairs2 += bad * (2 * good_before + good);
        sums.accepted2 += count * (2 * bad_before + bad);
        if (with_aurc) sums.aurc += bad + (bad_before - bad * place / count) * (harmonic[before + rows] - harmonic[before]);
        before += rows;
        bad_before += bad;
    }
    sums.size = static_cast<double>(before);
    sums.bad = bad_before;
    sums.aurc = before ? sums.aurc / sums.size : 0;
    return sums;
}

// ---- average precision ---------------------------------------------------------------------------------------------

// Rows from the highest score down: whether each is foreign (a positive), and where a new score starts. `known` and
// `foreign` say how often each row of its kind was drawn, in that order, with a number to spare at the end.
template <bool Ties>
double precision_of(const u8 *marks, std::size_t n, const u32 *known, const u32 *foreign, std::size_t positives) {
    double sum = 0;
    u64 found = 0, seen = 0, in_block = 0, of_block = 0;
    const auto close = [&] {
        found += in_block;
        seen += of_block;
        sum += static_cast<double>(in_block) * static_cast<double>(found) / static_cast<double>(std::max<u64>(seen, 1));
        in_block = of_block = 0;
    };
    for (std::size_t i = 0; i < n; ++i) {
        if (Ties && (marks[i] & kNew)) close();
        const u32 positive = marks[i] & kWrong, times = positive ? *foreign : *known;  // both are there: no branch
        foreign += positive;
        known += 1 - positive;
        of_block += times;
        in_block += times & (0u - positive);
        if (!Ties) close();
    }
    if (Ties) close();
    return sum / static_cast<double>(positives);
}

}  // namespace uq
