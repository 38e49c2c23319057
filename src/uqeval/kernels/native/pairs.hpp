// Per-row pair counts: the C++ twin of kernels/pairs.py (same integers, see there for the algebra).
#pragma once

#include "sort.hpp"

#include <array>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

namespace uq {

struct AucSums {
    i64 wrong = 0;     // number of rows with error = 1
    i64 credit2 = 0;   // over the wrong rows; the right rows have the same total
    Wide wrong_squares, right_squares;
};

// credit2[i] over comparable rows: a wrong row earns 2 per right row below and 1 per right row tied,
// a right row 2 per wrong row above and 1 per wrong row tied.
inline AucSums auc_counts(const double *score, const u8 *error, std::size_t n, i64 *credit2, Workspace &space) {
    AucSums sums;
    if (n == 0) return sums;
    u64 *words = space.words.get<u64>(n), *spare = space.spare.get<u64>(n);
    const KeyRange range = key_range(score, n);
    for (std::size_t i = 0; i < n; ++i) {
        const u64 key = (key_of(score[i]) - range.least) >> range.shift;
        const u32 wrong = error[i] != 0;
        words[i] = key << 32 | static_cast<u32>(i << 1 | wrong);
        sums.wrong += wrong;
    }
    std::size_t groups = 0;
    const u64 *sorted =
        sort_into_groups(words, spare, n, range, groups, [&](u32 payload) { return key_of(score[payload >> 1]); });
    i64 right_below = 0, wrong_above = sums.wrong;
    for (std::size_t i = 0; i < n;) {
        std::size_t end = i + 1;
        i64 wrong = sorted[i] & 1;
        if (groups < n) {
            while (end < n && (sorted[end] >> 32) == (sorted[i] >> 32)) wrong += sorted[end++] & 1;
        }
        const i64 right = static_cast<i64>(end - i) - wrong;
        wrong_above -= wrong;
        const i64 of_wrong = 2 * right_below + right, of_right = 2 * wrong_above + wrong;
        for (; i < end; ++i) {
            const u32 payload = static_cast<u32>(sorted[i]);
            credit2[payload >> 1] = payload & 1 ? of_wrong : of_right;
        }
        sums.credit2 += wrong * of_wrong;
        sums.wrong_squares.add_times(static_cast<u64>(of_wrong), static_cast<u64>(wrong));
        sums.right_squares.add_times(static_cast<u64>(of_right), static_cast<u64>(right));
        right_below += right;
    }
    return sums;
}

// The loss side, sorted once for any number of scores.
struct LossOrder {
    std::size_t n = 0;
    bool ties = false;
    const u32 *row = nullptr;    // row at each slot of the loss order
    const u32 *start = nullptr;  // with ties: first and past-the-end slot of the slot's tie group
    const u32 *end = nullptr;
};

// Rows sorted by x: words (tie group << 32 | row).
inline const u64 *sort_rows(const double *x, std::size_t n, Workspace &space, std::size_t &groups) {
    u64 *words = space.words.get<u64>(n), *spare = space.spare.get<u64>(n);
    const KeyRange range = key_range(x, n);
    for (std::size_t i = 0; i < n; ++i) {
        words[i] = ((key_of(x[i]) - range.least) >> range.shift) << 32 | static_cast<u32>(i);
    }
    return sort_into_groups(words, spare, n, range, groups, [&](u32 payload) { return key_of(x[payload]); });
}

// First and past-the-end slot of each slot's tie group.
template <class Slot>
void group_bounds(const u64 *sorted, std::size_t n, std::size_t groups, Slot *start, Slot *end) {
    if (groups == n) {
        for (std::size_t k = 0; k < n; ++k) {
            start[k] = static_cast<Slot>(k);
            end[k] = static_cast<Slot>(k + 1);
        }
        return;
    }
    for (std::size_t first = 0; first < n;) {
        std::size_t past = first + 1;
        while (past < n && (sorted[past] >> 32) == (sorted[first] >> 32)) ++past;
        std::fill(start + first, start + past, static_cast<Slot>(first));
        std::fill(end + first, end + past, static_cast<Slot>(past));
        first = past;
    }
}

inline bool sorted_rows(const double *x, std::size_t n, i64 *row, i64 *start, i64 *end, Workspace &space) {
    std::size_t groups = 0;
    const u64 *sorted = sort_rows(x, n, space, groups);
    for (std::size_t k = 0; k < n; ++k) row[k] = static_cast<u32>(sorted[k]);
    group_bounds(sorted, n, groups, start, end);
    return groups < n;
}

inline LossOrder order_losses(const double *loss, std::size_t n, Workspace &space) {
    std::size_t groups = 0;
    const u64 *sorted = sort_rows(loss, n, space, groups);
    u32 *row = space.order.get<u32>(n);
    for (std::size_t k = 0; k < n; ++k) row[k] = static_cast<u32>(sorted[k]);
    LossOrder order;
    order.n = n;
    order.row = row;
    order.ties = groups < n;
    if (order.ties) {
        u32 *start = space.tie_start.get<u32>(n), *end = space.tie_end.get<u32>(n);
        group_bounds(sorted, n, groups, start, end);
        order.start = start;
        order.end = end;
    }
    return order;
}

// ---- counting C = #{p' < p, q' < q} ------------------------------------------------------------------------

// Sixteen 8-bit lanes in two words: lane x counts the rows so far whose digit is below x.
struct LaneMasks {
    std::array<std::array<u64, 2>, 16> of{};
    constexpr LaneMasks() {
        for (int x = 0; x < 16; ++x) {
            for (int lane = x + 1; lane < 16; ++lane) of[x][lane >> 3] |= u64(1) << (8 * (lane & 7));
        }
    }
};
inline constexpr LaneMasks kLanes{};

inline u32 popcount(u64 x) {
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return static_cast<u32>((x * 0x0101010101010101u) >> 56);
}

constexpr int kLeafBits = 6;

inline int top_shift(std::size_t n) {
    int shift = kLeafBits;
    while (((n - 1) >> shift) >= 16) shift += 4;
    return shift;
}

// An item is (rank q, accumulator). The accumulator works modulo 2^32, which is exact: 0 <= credit2 <= 2n < 2^32.
struct RowItem {
    u32 q, acc;
};

// Ranks of a block are the range [low, low + n). One step: count against smaller digits, scatter by digit.
template <class Item, class Sink>
void count_step(const Item *in, Item *out, std::size_t n, u32 low, int shift, Sink &sink) {
    u32 below[16] = {}, place[16];
    for (u32 k = 0; k < 16; ++k) place[k] = k << shift;
    for (std::size_t i = 0; i < n;) {
        u64 low_lanes = 0, high_lanes = 0;  // apart and picked by a select: indexing them would force them to memory
        const std::size_t stop = std::min(n, i + 255);
        for (; i < stop; ++i) {
            Item item = in[i];
            const u32 x = (sink.rank(item) - low) >> shift;
            const u64 lanes = x & 8 ? high_lanes : low_lanes;
            const u32 count = below[x] + static_cast<u32>((lanes >> (8 * (x & 7))) & 255);
            sink.add(item, count);
            low_lanes += kLanes.of[x][0];
            high_lanes += kLanes.of[x][1];
            out[place[x]++] = item;
        }
        for (int k = 0; k < 8; ++k) {
            below[k] += static_cast<u32>((low_lanes >> (8 * k)) & 255);
            below[k + 8] += static_cast<u32>((high_lanes >> (8 * k)) & 255);
        }
    }
}

template <class Item, class Sink>
void count_below(Item *in, Item *spare, std::size_t n, u32 low, int shift, Sink &sink) {
    if (n <= (std::size_t(1) << kLeafBits)) {
        u64 seen = 0;
        for (std::size_t i = 0; i < n; ++i) {
            Item item = in[i];
            const u64 bit = u64(1) << (sink.rank(item) - low);
            sink.add(item, popcount(seen & (bit - 1)));
            seen |= bit;
            sink.finish(item);
        }
        return;
    }
    count_step(in, spare, n, low, shift, sink);
    for (std::size_t start = 0; start < n; start += std::size_t(1) << shift) {
        const std::size_t size = std::min(n - start, std::size_t(1) << shift);
        count_below(spare + start, in + start, size, low + static_cast<u32>(start), shift - 4, sink);
    }
}

// Runs job(0..jobs-1) on up to `threads` threads; the first exception is thrown again here.
template <class Job> void in_parallel(std::size_t jobs, int threads, Job job) {
    if (threads <= 1 || jobs <= 1) {
        for (std::size_t j = 0; j < jobs; ++j) job(j);
        return;
    }
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr problem;
    auto work = [&] {
        for (std::size_t j; !failed && (j = next++) < jobs;) {
            try {
                job(j);
            } catch (...) {
                if (!failed.exchange(true)) problem = std::current_exception();
            }
        }
    };
    std::vector<std::thread> pool;
    for (std::size_t t = 1; t < std::min<std::size_t>(jobs, static_cast<std::size_t>(threads)); ++t) {
        try {
            pool.emplace_back(work);
        } catch (const std::system_error &) {
            break;  // no further thread to be had: the ones there are do the work
        }
    }
    work();
    for (auto &thread : pool) thread.join();
    if (problem) std::rethrow_exception(problem);
}

// Sorts one score against the loss order, says which word buffer is free and which holds the sorted words, then
// calls at(p, q, slot, a, group_end, joint_end) for each slot p of the (score, loss) order: q is the rank in
// (loss, score) order, `slot` the place in the loss order, `a` the score's part of credit2, the ends those of the
// groups tied in the score and in both.
template <class Buffers, class At>
void walk_score(const double *score, const LossOrder &order, Workspace &space, Buffers buffers, At at) {
    const std::size_t n = order.n;
    u64 *words = space.words.get<u64>(n), *spare = space.spare.get<u64>(n);
    const KeyRange range = key_range(score, n);
    for (std::size_t q = 0; q < n; ++q) {
        const u64 key = (key_of(score[order.row[q]]) - range.least) >> range.shift;
        words[q] = key << 32 | static_cast<u32>(q);
    }
    std::size_t groups = 0;
    u64 *sorted = sort_into_groups(words, spare, n, range, groups,
                                   [&](u32 payload) { return key_of(score[order.row[payload]]); });
    buffers(sorted == words ? spare : words, sorted);
    u32 *cursor = nullptr;
    if (order.ties) {
        cursor = space.cursor.get<u32>(n);
        for (std::size_t q = 0; q < n; ++q) cursor[q] = static_cast<u32>(q);  // only group starts are read
    }
    if (groups == n && !order.ties) {
        for (std::size_t p = 0; p < n; ++p) {
            const u32 slot = static_cast<u32>(sorted[p]);
            at(p, slot, slot, u32(0) - 2 * static_cast<u32>(p), static_cast<u32>(p + 1), static_cast<u32>(p + 1));
        }
        return;
    }
    for (std::size_t p = 0; p < n;) {
        const std::size_t group_start = p;
        std::size_t group_end = p + 1;
        if (groups < n) {
            while (group_end < n && (sorted[group_end] >> 32) == (sorted[p] >> 32)) ++group_end;
        }
        const u32 size = static_cast<u32>(group_end - group_start);
        while (p < group_end) {
            const std::size_t joint_start = p;
            std::size_t joint_end = p + 1;
            if (order.ties) {
                const u32 tie = order.start[static_cast<u32>(sorted[p])];
                while (joint_end < group_end && order.start[static_cast<u32>(sorted[joint_end])] == tie) ++joint_end;
            }
            const u32 joint = static_cast<u32>(joint_end - joint_start);
            for (; p < joint_end; ++p) {
                const u32 slot = static_cast<u32>(sorted[p]);
                const u32 q = order.ties ? cursor[order.start[slot]]++ : slot;
                const u32 a = size - 2 * static_cast<u32>(group_end) - 2 * static_cast<u32>(joint_start - group_start) +
                              joint - 2 * static_cast<u32>(p - joint_start);
                at(p, q, slot, a, static_cast<u32>(group_end), static_cast<u32>(joint_end));
            }
        }
    }
}

struct RowSink {
    i64 *credit2;
    const LossOrder &order;
    const u32 *row_of_rank;
    u32 rank(const RowItem &item) const { return item.q; }
    void add(RowItem &item, u32 count) const { item.acc += 4 * count; }
    void finish(const RowItem &item) const {
        const u32 n = static_cast<u32>(order.n), q = item.q;
        const u32 start = order.ties ? order.start[q] : q, end = order.ties ? order.end[q] : q + 1;
        credit2[row_of_rank[q]] = static_cast<u32>(item.acc + 2 * (n - end) - 2 * (q - start));
    }
};

// credit2 of every row for one score; `order` comes from the same workspace or an outer one.
inline void pair_counts(const double *score, const LossOrder &order, i64 *credit2, Workspace &space, int threads) {
    const std::size_t n = order.n;
    if (n == 0) return;
    u32 *moved = order.ties ? space.row_of_rank.get<u32>(n) : nullptr;
    // The score walk reads one word buffer and leaves the other free: its items go there.
    RowItem *items = nullptr, *other = nullptr;
    walk_score(
        score, order, space,
        [&](u64 *free_words, u64 *sorted_words) {
            items = reinterpret_cast<RowItem *>(free_words);
            other = reinterpret_cast<RowItem *>(sorted_words);
        },
        [&](std::size_t p, u32 q, u32 slot, u32 a, u32, u32) {
            items[p] = RowItem{q, a};
            if (moved) moved[q] = order.row[slot];
        });
    RowSink sink{credit2, order, moved ? moved : order.row};
    const int shift = n > (std::size_t(1) << kLeafBits) ? top_shift(n) : 0;
    if (threads <= 1 || n < 65536) {
        count_below(items, other, n, 0, shift, sink);
        return;
    }
    count_step(items, other, n, 0, shift, sink);
    const std::size_t width = std::size_t(1) << shift;
    in_parallel((n + width - 1) / width, threads, [&](std::size_t k) {
        const std::size_t start = k * width, size = std::min(n - start, width);
        count_below(other + start, items + start, size, static_cast<u32>(start), shift - 4, sink);
    });
}

inline void comparable_counts(const LossOrder &order, i64 *comparable) {
    const i64 n = static_cast<i64>(order.n);
    if (!order.ties) {
        std::fill(comparable, comparable + n, n - 1);
        return;
    }
    for (std::size_t q = 0; q < order.n; ++q) comparable[order.row[q]] = n - (order.end[q] - order.start[q]);
}

}  // namespace uq
