// Pair counts: the C++ twin of kernels/plain/pairs.py (same integers, see there for the algebra).
#pragma once

#include "ties.hpp"

namespace uq {

// Once scores are in order, counting takes over the memory that ordering has left.
struct PairSpace {
    OrderSpace order;
    TieSpace loss_ties, ties;
    Buffer score_ranks, row, slot, marks, loss_marks, by_loss, cells;
    Buffer &items = by_loss, &spare = order.rows, &by_slot = order.carried;
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
        loss_ties.trim();
        ties.trim();
        for (Buffer *buffer : {&score_ranks, &row, &slot, &marks, &loss_marks, &by_loss, &cells}) buffer->trim();
    }
};

inline LossOrder order_losses(const double *loss, std::size_t n, PairSpace &space, int threads = 1) {
    u32 *row = space.row.get<u32>(n);
    u8 *marks = space.loss_marks.get<u8>(n);
    order_rows<u32>(loss, nullptr, nullptr, n, marks, row, space.order, threads);
    return bound_losses(row, marks, n, space.loss_ties);
}

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
    const std::size_t n = losses.n, values = count_values(marks, n);
    u32 *slots = space.slot.get<u32>(n);
    if (values < n / 8) return fill_groups(row, marks, losses, slots, space.spare.get<u32>(2 * n));
    return join_orders(row, marks, losses, slots, space.spare.get<u32>(n), n < 65536 ? 1 : threads);
}

// ---- credit2 ------------------------------------------------------------------------------------------------------

// An item is (rank q, accumulator). The accumulator works modulo 2^32, which is exact: 0 <= credit2 <= 2n < 2^32.
struct RowItem {
    u32 q, acc;
};

// Rows that have the same number of rows of another loss: how many, and sums of credit2.
struct Kind {
    u64 alike = 1;  // rows of one loss
    u64 rows = 0, total = 0;
    Wide squares;
    void add(u64 credit2) {
        ++rows;
        total += credit2;
        squares.add(credit2 * credit2);
    }
    void add(const Kind &other) {
        rows += other.rows;
        total += other.total;
        squares.add(other.squares);
    }
};

// Kinds of rows: those that tie with none in the loss, and those of groups by their size.
inline std::vector<Kind> kinds_of(const LossOrder &losses) {
    std::vector<Kind> kinds(1 + losses.sizes.size());
    for (std::size_t k = 0; k < losses.sizes.size(); ++k) kinds[k + 1].alike = losses.sizes[k];
    return kinds;
}

enum class Ties { kNone, kFew, kMany };  // in the loss

// Sums go up on the fly; credit2 of each slot of the loss order is written where somebody asks for it.
template <Ties How> struct CreditSink {
    const LossOrder &losses;
    u32 *by_slot;             // or null
    const u32 *slot_of;       // of each rank that ties (few), or of each (many)
    u64 rows = 0, total = 0;  // of rows that tie with none
    Wide squares;
    std::vector<Kind> kinds;
    u32 rank(const RowItem &item) const { return item.q; }
    void add(RowItem &item, u32 count) const { item.acc += 4 * count; }
    void finish(const RowItem &item) {
        const u32 n = static_cast<u32>(losses.n), q = item.q;
        if (How == Ties::kMany) {
            const u32 group = losses.of_slot[q];
            if (group != kAlone) return finish_tied(item, group, q);
        } else if (How == Ties::kFew && losses.tied_at(q)) {
            const u32 index = losses.index(q);
            return finish_tied(item, losses.group[index], index);
        }
        const u32 credit2 = item.acc + 2 * (n - q - 1);
        ++rows;
        total += credit2;
        squares.add(u64(credit2) * credit2);
        if (by_slot) by_slot[q] = credit2;
    }
    void finish_tied(const RowItem &item, u32 group, u32 index) {
        const u32 start = losses.start[group];
        const u32 credit2 = item.acc + 2 * (static_cast<u32>(losses.n) - start - losses.size[group]) - 2 * (item.q - start);
        kinds[1 + losses.kind[group]].add(credit2);
        if (by_slot) by_slot[slot_of[index]] = credit2;
    }
};

// An item of a row that ties with none is its slot and its place: nothing to walk, nothing to store before.
struct Untied {
    const u32 *slot;
    RowItem operator()(std::size_t p) const { return RowItem{slot[p], u32(0) - 2 * static_cast<u32>(p)}; }
};

// Items of rows that tie lie ready, in the order of their places, in which they are asked for.
struct SomeTied {
    const u32 *slot;
    const RowItem *next;
    RowItem operator()(std::size_t p) { return slot[p] & kTied ? *next++ : Untied{slot}(p); }
};

// Counts the items from their first step on, the parts that it makes side by side.
template <Ties How, class At>
std::vector<Kind> count_items(At item_at, const LossOrder &losses, u32 *by_slot, const u32 *slot_of, PairSpace &space,
                              int threads) {
    const std::size_t n = losses.n;
    CreditSink<How> sink{losses, by_slot, slot_of, 0, 0, {}, kinds_of(losses)};
    const int shift = n > kLeaf ? next_shift(bit_width(n - 1)) : kLeafBits;
    const std::size_t width = std::size_t(1) << shift, parts = (n + width - 1) / width;
    std::vector<CreditSink<How>> sinks(parts, sink);
    if (n <= kLeaf) {
        RowItem items[kLeaf];
        for (std::size_t p = 0; p < n; ++p) items[p] = item_at(p);
        count_leaf(items, n, 0, sinks[0]);
    } else {
        RowItem *spare = space.spare.get<RowItem>(n);
        count_digits<RowItem>(item_at, spare, n, 0, shift, sink);
        if (n < 65536) threads = 1;
        Buffer *halves = space.of_threads(threads);
        over_rows(parts, threads, [&](std::size_t t, std::size_t from_part, std::size_t to_part) {
            RowItem *half = halves[t].get<RowItem>(width);
            for (std::size_t k = from_part; k < to_part; ++k) {
                const std::size_t from = k * width, size = std::min(n - from, width);
                count_below(spare + from, half, size, static_cast<u32>(from), shift, sinks[k]);
            }
        });
    }
    std::vector<Kind> kinds = sink.kinds;
    for (const CreditSink<How> &part : sinks) {
        kinds[0].rows += part.rows;
        kinds[0].total += part.total;
        kinds[0].squares.add(part.squares);
        for (std::size_t k = 1; k < kinds.size(); ++k) kinds[k].add(part.kinds[k]);
    }
    return kinds;
}

// by_slot: credit2 at each place of the loss order, or null.
inline std::vector<Kind> count_credit(ScoreOrder order, const LossOrder &losses, u32 *by_slot, PairSpace &space, int threads) {
    const std::size_t n = losses.n;
    if (n == 0) return std::vector<Kind>(1);
    sort_ties(order, n);
    const u32 *slot = order.slot;
    TieSpace &ties = space.ties;
    if (losses.dense()) {
        RowItem *items = space.items.get<RowItem>(n);
        u32 *slot_of = by_slot ? ties.slot_of.get<u32>(n) : nullptr;
        rank_places(order, losses, ties, [=](std::size_t p, u32 q, u32 own) {
            items[p] = RowItem{q, u32(0) - 2 * static_cast<u32>(p)};
            if (slot_of) slot_of[q] = own;
        });
        each_tie(order.marks, n, [&](std::size_t from, std::size_t to) {
            walk_group(order, losses, from, to, [=](std::size_t p, u32 a, u32) { items[p].acc = a; });
        });
        return count_items<Ties::kMany>(InOrder<RowItem>{items}, losses, by_slot, slot_of, space, threads);
    }
    const std::size_t special = mark_ties(order, losses, threads);
    if (!special) return count_items<Ties::kNone>(Untied{slot}, losses, by_slot, nullptr, space, threads);
    RowItem *items = ties.items.get<RowItem>(special), *next = items;
    u32 *slot_of = ties.slot_of.get<u32>(losses.tied + 1);
    walk_ties(order, losses, ties, [&](std::size_t, u32 q, u32 own, u32 a, u32, u32) {
        *next++ = RowItem{q, a};
        if (losses.groups && losses.tied_at(q)) slot_of[losses.index(q)] = own;
    });
    const SomeTied item_at{slot, items};
    return losses.groups ? count_items<Ties::kFew>(item_at, losses, by_slot, slot_of, space, threads)
                         : count_items<Ties::kNone>(item_at, losses, by_slot, slot_of, space, threads);
}

// credit2 of every row.
inline void pair_counts(const ScoreOrder &order, const LossOrder &losses, i64 *credit2, PairSpace &space, int threads) {
    u32 *by_slot = space.by_slot.get<u32>(losses.n);
    count_credit(order, losses, by_slot, space, threads);
    for (std::size_t q = 0; q < losses.n; ++q) credit2[losses.row[q]] = by_slot[q];
}

inline void comparable_counts(const LossOrder &losses, i64 *comparable) {
    for (std::size_t q = 0; q < losses.n; ++q) {
        comparable[losses.row[q]] = static_cast<i64>(losses.n) - losses.alike(static_cast<u32>(q));
    }
}

}  // namespace uq
