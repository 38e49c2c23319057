// Pair counts: the C++ twin of kernels/plain/pairs.py (same integers, see there for the algebra).
#pragma once

#include "order.hpp"

#include <array>

namespace uq {

// Once scores are in order, counting takes over the memory that ordering has left.
struct PairSpace {
    OrderSpace order;
    Buffer row, start, end, slot, marks, loss_marks, slot_of_rank, by_loss, by_slot, cursor, cells;
    Buffer &items = by_loss, &spare = order.rows;
    std::vector<Buffer> halves;
    Buffer *of_threads(int threads) {
        const std::size_t count = static_cast<std::size_t>(std::max(threads, 1));
        if (halves.size() < count) halves = std::vector<Buffer>(count);
        return halves.data();
    }
    void trim() {
        halves.resize(std::min<std::size_t>(halves.size(), 1));
        for (Buffer &half : halves) half.trim();
        order.trim();
        for (Buffer *buffer : {&row, &start, &end, &slot, &marks, &loss_marks, &slot_of_rank, &by_loss, &by_slot, &cursor,
                               &cells}) {
            buffer->trim();
        }
    }
};

// ---- the loss side ------------------------------------------------------------------------------------------------

// Sorted once for any number of scores.
struct LossOrder {
    std::size_t n = 0;
    bool ties = false;
    const u32 *row = nullptr;    // row at each slot of the loss order; null where nobody asks for rows
    const u32 *start = nullptr;  // with ties: first and past-the-end slot of the slot's tie group
    const u32 *end = nullptr;
    u32 first_of(u32 slot) const { return ties ? start[slot] : slot; }
    u32 past(u32 slot) const { return ties ? end[slot] : slot + 1; }
};

inline LossOrder bound_losses(const u32 *row, const u8 *marks, std::size_t n, PairSpace &space) {
    LossOrder order;
    order.n = n;
    order.row = row;
    for (std::size_t i = 0; i < n && !order.ties; ++i) order.ties = !(marks[i] & kNew);
    if (!order.ties) return order;
    u32 *start = space.start.get<u32>(n), *end = space.end.get<u32>(n);
    for (std::size_t i = 0; i < n;) {
        std::size_t j = i + 1;
        while (j < n && !(marks[j] & kNew)) ++j;
        std::fill(start + i, start + j, static_cast<u32>(i));
        std::fill(end + i, end + j, static_cast<u32>(j));
        i = j;
    }
    order.start = start;
    order.end = end;
    return order;
}

inline LossOrder order_losses(const double *loss, std::size_t n, PairSpace &space, int threads = 1) {
    u32 *row = space.row.get<u32>(n);
    u8 *marks = space.loss_marks.get<u8>(n);
    order_rows<u32>(loss, nullptr, nullptr, n, marks, row, space.order, threads);
    return bound_losses(row, marks, n, space);
}

// ---- the score side -----------------------------------------------------------------------------------------------

inline std::size_t count_values(const u8 *marks, std::size_t n) {
    std::size_t values = 0;
    for (std::size_t i = 0; i < n; ++i) values += marks[i] >> 1;
    return values;
}

// Slots of the loss order in order of the score, tied ones in order of the loss; and where a new score starts.
struct ScoreOrder {
    u32 *slot;
    const u8 *marks;
};

// `score` in order of the loss.
inline ScoreOrder order_slots(const double *score, std::size_t n, PairSpace &space, int threads) {
    ScoreOrder order{space.slot.get<u32>(n), nullptr};
    u8 *marks = space.marks.get<u8>(n);
    order_rows<u32>(score, nullptr, nullptr, n, marks, order.slot, space.order, threads);
    order.marks = marks;
    return order;
}

inline ScoreOrder order_score(const double *score, const LossOrder &losses, PairSpace &space, int threads) {
    double *by_loss = space.by_loss.get<double>(losses.n);
    for (std::size_t q = 0; q < losses.n; ++q) by_loss[q] = score[losses.row[q]];
    return order_slots(by_loss, losses.n, space, threads);
}

// The same from an order of rows that is there already: no sort.
inline ScoreOrder reorder(const u32 *row, const u8 *marks, const LossOrder &losses, PairSpace &space, int threads) {
    const std::size_t n = losses.n;
    if (n < 65536) threads = 1;
    ScoreOrder order{space.slot.get<u32>(n), marks};
    u32 *UQ_RESTRICT slot = order.slot;
    bool ties = false;
    for (std::size_t p = 0; p < n && !ties; ++p) ties = !(marks[p] & kNew);
    if (!ties) {
        const u32 *UQ_RESTRICT by_loss = losses.row;
        u32 *UQ_RESTRICT of_row = space.spare.get<u32>(n);
        over_rows(n, threads, [=](std::size_t, std::size_t from, std::size_t to) {
            for (std::size_t stop; from < to; from = stop) {
                stop = std::min(to, from + kChunk);
                for (std::size_t q = from; q < stop; ++q) fetch(of_row + by_loss[q]);
                for (std::size_t q = from; q < stop; ++q) of_row[by_loss[q]] = static_cast<u32>(q);
            }
        });
        over_rows(n, threads, [=](std::size_t, std::size_t from, std::size_t to) {
            for (std::size_t p = from; p < to; ++p) slot[p] = of_row[row[p]];
        });
        return order;
    }
    // Rows go to their group of tied scores one by one in order of the loss.
    u32 *UQ_RESTRICT next = space.spare.get<u32>(n), *UQ_RESTRICT of_row = space.cursor.get<u32>(n);
    u32 group = 0;
    for (std::size_t p = 0; p < n; ++p) {
        if (marks[p] & kNew) group = static_cast<u32>(p);
        next[p] = static_cast<u32>(p);
        of_row[row[p]] = group;
    }
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        u32 at[kChunk];
        for (std::size_t i = 0; i < size; ++i) at[i] = of_row[losses.row[from + i]];
        for (std::size_t i = 0; i < size; ++i) fetch(next + at[i]);
        for (std::size_t i = 0; i < size; ++i) at[i] = next[at[i]]++;
        for (std::size_t i = 0; i < size; ++i) fetch(slot + at[i]);
        for (std::size_t i = 0; i < size; ++i) slot[at[i]] = static_cast<u32>(from + i);
    }
    return order;
}

// Calls at(p, q, slot, a, group_end, joint_end) for each place p of the (score, loss) order: q is the rank in (loss, score)
// order, `slot` the place in the loss order, `a` the score's part of credit2, the ends those of the groups tied in the
// score and in both.
template <class At> void walk_score(const ScoreOrder &order, const LossOrder &losses, PairSpace &space, At at) {
    const std::size_t n = losses.n;
    u32 *cursor = nullptr;
    if (losses.ties) {
        cursor = space.cursor.get<u32>(n);
        for (std::size_t q = 0; q < n; ++q) cursor[q] = static_cast<u32>(q);  // only group starts are read
    }
    for (std::size_t p = 0; p < n;) {
        const std::size_t group_start = p;
        std::size_t group_end = p + 1;
        while (group_end < n && !(order.marks[group_end] & kNew)) ++group_end;
        const u32 past = static_cast<u32>(group_end);
        if (group_end == p + 1) {
            const u32 slot = order.slot[p], q = cursor ? cursor[losses.start[slot]]++ : slot;
            at(p, q, slot, u32(0) - 2 * static_cast<u32>(p), past, past);
            ++p;
            continue;
        }
        const u32 size = static_cast<u32>(group_end - group_start);
        while (p < group_end) {
            const std::size_t joint_start = p;
            std::size_t joint_end = p + 1;
            if (losses.ties) {
                const u32 tie = losses.start[order.slot[p]];
                while (joint_end < group_end && losses.start[order.slot[joint_end]] == tie) ++joint_end;
            }
            const u32 joint = static_cast<u32>(joint_end - joint_start);
            for (; p < joint_end; ++p) {
                const u32 slot = order.slot[p], q = cursor ? cursor[losses.start[slot]]++ : slot;
                const u32 a = size - 2 * past - 2 * static_cast<u32>(joint_start - group_start) + joint -
                              2 * static_cast<u32>(p - joint_start);
                at(p, q, slot, a, past, static_cast<u32>(joint_end));
            }
        }
    }
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

inline u32 popcount16(u32 x) {
    x -= (x >> 1) & 0x5555u;
    x = (x & 0x3333u) + ((x >> 2) & 0x3333u);
    x = (x + (x >> 4)) & 0x0f0fu;
    return (x + (x >> 8)) & 31;
}

constexpr int kLeafBits = 8;
constexpr std::size_t kLeaf = std::size_t(1) << kLeafBits;

inline int top_shift(std::size_t n) {
    int shift = kLeafBits;
    while (((n - 1) >> shift) >= 16) shift += 4;
    return shift;
}

// An item is (rank q, accumulator). The accumulator works modulo 2^32, which is exact: 0 <= credit2 <= 2n < 2^32.
struct RowItem {
    u32 q, acc;
};

// Ranks of a block are the range [low, low + n). One step: count against smaller digits, scatter by digit. item_at(i) is
// the i-th item.
template <class Item, class At, class Sink>
void count_step(At item_at, Item *out, std::size_t n, u32 low, int shift, Sink &sink) {
    u32 below[16] = {}, place[16];
    for (u32 k = 0; k < 16; ++k) place[k] = k << shift;
    for (std::size_t i = 0; i < n;) {
        u64 low_lanes = 0, high_lanes = 0;  // apart and picked by a select: indexing them would force them to memory
        const std::size_t stop = std::min(n, i + 255);
        for (; i < stop; ++i) {
            Item item = item_at(i);
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

// Up to 256 ranks: by the upper digit with lanes again (255 rows at most lie before one), by the lower one with bits.
template <class Item, class Sink> void count_leaf(const Item *in, std::size_t n, u32 low, Sink &sink) {
    u64 low_lanes = 0, high_lanes = 0;
    u16 seen[16] = {};
    for (std::size_t i = 0; i < n; ++i) {
        Item item = in[i];
        const u32 rank = sink.rank(item) - low, x = rank >> 4;
        const u32 bit = 1u << (rank & 15);
        const u64 lanes = x & 8 ? high_lanes : low_lanes;
        sink.add(item, static_cast<u32>((lanes >> (8 * (x & 7))) & 255) + popcount16(seen[x] & (bit - 1)));
        seen[x] = static_cast<u16>(seen[x] | bit);
        low_lanes += kLanes.of[x][0];
        high_lanes += kLanes.of[x][1];
        sink.finish(item);
    }
}

template <class Item, class Sink>
void count_below(Item *in, Item *spare, std::size_t n, u32 low, int shift, Sink &sink) {
    if (n <= kLeaf) return count_leaf(in, n, low, sink);
    count_step<Item>([in](std::size_t i) { return in[i]; }, spare, n, low, shift, sink);
    for (std::size_t start = 0; start < n; start += std::size_t(1) << shift) {
        const std::size_t size = std::min(n - start, std::size_t(1) << shift);
        count_below(spare + start, in + start, size, low + static_cast<u32>(start), shift - 4, sink);
    }
}

// ---- credit2 ------------------------------------------------------------------------------------------------------

// Sums go up on the fly; credit2 of each slot of the loss order is written where somebody asks for it.
struct CreditSink {
    const LossOrder &losses;
    u32 *by_slot;              // or null
    const u32 *slot_of_rank;   // null: the same
    u64 total = 0;
    Wide squares;
    u32 rank(const RowItem &item) const { return item.q; }
    void add(RowItem &item, u32 count) const { item.acc += 4 * count; }
    void finish(const RowItem &item) {
        const u32 n = static_cast<u32>(losses.n), q = item.q;
        const u32 credit2 = item.acc + 2 * (n - losses.past(q)) - 2 * (q - losses.first_of(q));
        total += credit2;
        squares.add(u64(credit2) * credit2);
        if (by_slot) by_slot[slot_of_rank ? slot_of_rank[q] : q] = credit2;
    }
};

struct CreditSums {
    u64 total = 0;
    Wide squares;
};

// by_slot: credit2 at each place of the loss order; with `ranked` at each rank instead, where tied losses change places.
inline CreditSums count_credit(const ScoreOrder &order, const LossOrder &losses, u32 *by_slot, PairSpace &space,
                               int threads, bool ranked = false) {
    CreditSums sums;
    const std::size_t n = losses.n;
    if (n == 0) return sums;
    u32 *slot_of_rank = losses.ties && by_slot && !ranked ? space.slot_of_rank.get<u32>(n) : nullptr;
    const bool plain = !losses.ties && count_values(order.marks, n) == n;
    RowItem *items = plain && n > kLeaf ? nullptr : space.items.get<RowItem>(n), *spare = space.spare.get<RowItem>(n);
    if (slot_of_rank) {
        walk_score(order, losses, space, [&](std::size_t p, u32 q, u32 slot, u32 a, u32, u32) {
            items[p] = RowItem{q, a};
            slot_of_rank[q] = slot;
        });
    } else if (!plain || n <= kLeaf) {
        walk_score(order, losses, space, [&](std::size_t p, u32 q, u32, u32 a, u32, u32) { items[p] = RowItem{q, a}; });
    }
    CreditSink sink{losses, by_slot, slot_of_rank, 0, {}};
    if (n <= kLeaf) {
        count_leaf(items, n, 0, sink);
        return {sink.total, sink.squares};
    }
    const int shift = top_shift(n);
    if (plain) {  // without ties an item is its slot and its place: nothing to walk, nothing to store before
        const u32 *slot = order.slot;
        const auto item_at = [slot](std::size_t p) { return RowItem{slot[p], u32(0) - 2 * static_cast<u32>(p)}; };
        count_step<RowItem>(item_at, spare, n, 0, shift, sink);
    } else {
        count_step<RowItem>([items](std::size_t p) { return items[p]; }, spare, n, 0, shift, sink);
    }
    const std::size_t width = std::size_t(1) << shift, parts = (n + width - 1) / width;
    std::vector<CreditSink> sinks(parts, sink);
    if (n < 65536) threads = 1;
    Buffer *halves = space.of_threads(threads);
    over_rows(parts, threads, [&](std::size_t t, std::size_t from_part, std::size_t to_part) {
        RowItem *half = halves[t].get<RowItem>(width);
        for (std::size_t k = from_part; k < to_part; ++k) {
            const std::size_t from = k * width, size = std::min(n - from, width);
            count_below(spare + from, half, size, static_cast<u32>(from), shift - 4, sinks[k]);
        }
    });
    for (const CreditSink &part : sinks) {
        sums.total += part.total;
        sums.squares.add(part.squares);
    }
    return sums;
}

// credit2 of every row.
inline void pair_counts(const ScoreOrder &order, const LossOrder &losses, i64 *credit2, PairSpace &space, int threads) {
    u32 *by_slot = space.by_slot.get<u32>(losses.n);
    count_credit(order, losses, by_slot, space, threads);
    for (std::size_t q = 0; q < losses.n; ++q) credit2[losses.row[q]] = by_slot[q];
}

inline void comparable_counts(const LossOrder &losses, i64 *comparable) {
    const i64 n = static_cast<i64>(losses.n);
    for (std::size_t q = 0; q < losses.n; ++q) {
        comparable[losses.row[q]] = n - (losses.ties ? losses.end[q] - losses.start[q] : 1);
    }
}

}  // namespace uq
