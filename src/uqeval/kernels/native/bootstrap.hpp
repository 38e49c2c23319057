// Concordance totals of bootstrap resamples: rows keep their place, only their multiplicities change.
#pragma once

#include "pairs.hpp"

namespace uq {

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

inline Resampler make_resampler(const double *score, const double *loss, std::size_t n, Workspace &space) {
    Resampler plan;
    plan.n = n;
    const LossOrder order = order_losses(loss, n, space);
    plan.loss_ties = order.ties;
    plan.rank_of_slot.resize(n);
    plan.row_of_rank.resize(n);
    plan.group_end.resize(n);
    plan.joint_end.resize(n);
    walk_score(
        score, order, space, [](u64 *, u64 *) {},
        [&](std::size_t p, u32 q, u32 slot, u32, u32 group_end, u32 joint_end) {
            plan.rank_of_slot[p] = q;
            plan.row_of_rank[q] = order.row[slot];
            plan.group_end[p] = group_end;
            plan.joint_end[p] = joint_end;
            plan.score_ties = plan.score_ties || group_end != p + 1;
        });
    if (order.ties) plan.loss_end.assign(order.end, order.end + n);
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

// times[row] is how often the row was drawn, `size` their sum; credit2 counts each unordered pair once.
// Rank is 16 bits wide where ranks fit: half the memory to move.
template <class Rank>
void resample_totals(const Resampler &plan, const u32 *times, u64 size, Buffer &memory, i64 &credit2, i64 &comparable) {
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
    count_below(ranks, spare, m, 0, m > (std::size_t(1) << kLeafBits) ? top_shift(m) : 0, sink);
    credit2 = static_cast<i64>(2 * sink.total - 2 * tied_loss - tied_score + tied_both);
    comparable = static_cast<i64>((m ? pairs_of(m) : 0) - tied_loss);
}

}  // namespace uq
