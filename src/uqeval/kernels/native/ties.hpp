// Two orders of the same rows, and their ties: slots of the loss order in order of the score.
//
// Most rows tie with none, even where scores come from float32; so rows that do are kept apart. A slot that ties with
// another in the loss is found by a bit, its group by the number of bits before it. In order of the score, rows that tie in
// either have the highest bit of their slot set. Where many rows tie in the loss, each slot has its group beside it.
#pragma once

#include "digits.hpp"
#include "order.hpp"

namespace uq {

constexpr u32 kTied = u32(1) << 31, kAlone = 0xffffffffu;

struct TieSpace {
    Buffer words, group, of_slot, start, size, kind, next, items, slot_of;
    void trim() {
        for (Buffer *buffer : {&words, &group, &of_slot, &start, &size, &kind, &next, &items, &slot_of}) buffer->trim();
    }
};

inline std::size_t count_values(const u8 *marks, std::size_t n) {
    std::size_t values = 0;
    for (std::size_t i = 0; i < n; ++i) values += marks[i] >> 1;
    return values;
}

// Calls group(from, to) for each group of two or more places that hold one value.
template <class Group> void each_tie(const u8 *marks, std::size_t n, Group group) {
    for (std::size_t i = 1; i < n; ++i) {
        while (i + 8 <= n && all_new(marks + i)) i += 8;
        if (i >= n || (marks[i] & kNew)) continue;
        const std::size_t from = i - 1;
        while (i < n && !(marks[i] & kNew)) ++i;
        group(from, i);
    }
}

// ---- the loss side ------------------------------------------------------------------------------------------------

// Sorted once for any number of scores.
struct LossOrder {
    std::size_t n = 0;
    const u32 *row = nullptr;  // row at each slot of the loss order; null where nobody asks for rows
    const u8 *marks = nullptr;
    // Where there are ties:
    const u64 *words = nullptr;  // of 32 slots: which tie with another, and how many did before
    const u32 *group = nullptr;  // of each slot that ties
    const u32 *of_slot = nullptr;  // many ties: the group of each slot, or kAlone, in place of the two
    const u32 *start = nullptr, *size = nullptr, *kind = nullptr;  // of each group: its slots, and the rank of its size
    std::size_t tied = 0, groups = 0;
    std::vector<u32> sizes;      // of groups, each once

    bool dense() const { return of_slot != nullptr; }
    // Few ties: whether a slot ties, and how many do before it.
    bool tied_at(u32 slot) const { return (words[slot >> 5] >> (slot & 31)) & 1; }
    u32 index(u32 slot) const {
        const u64 word = words[slot >> 5];
        return static_cast<u32>(word >> 32) + bits_set(static_cast<u32>(word) & ((u32(1) << (slot & 31)) - 1));
    }
    // The group of a slot, or kAlone.
    u32 group_of(u32 slot) const {
        if (dense()) return of_slot[slot];
        return groups && tied_at(slot) ? group[index(slot)] : kAlone;
    }
    // Slots of the same loss.
    u32 alike(u32 slot) const {
        const u32 g = group_of(slot);
        return g == kAlone ? 1 : size[g];
    }
    std::size_t values() const { return n - tied + groups; }
};

inline LossOrder bound_losses(const u32 *row, const u8 *marks, std::size_t n, TieSpace &space) {
    LossOrder order;
    order.n = n;
    order.row = row;
    order.marks = marks;
    each_tie(marks, n, [&](std::size_t from, std::size_t to) {
        order.tied += to - from;
        ++order.groups;
    });
    if (!order.groups) return order;
    u32 *start = space.start.get<u32>(order.groups), *size = space.size.get<u32>(order.groups);
    u32 *kind = space.kind.get<u32>(order.groups), *of_slot = nullptr, *group = nullptr;
    u64 *words = nullptr;
    const std::size_t count = n / 32 + 1;
    if (order.tied > n / 8) {
        of_slot = space.of_slot.get<u32>(n);
        std::fill_n(of_slot, n, kAlone);
    } else {
        words = space.words.get<u64>(count);
        group = space.group.get<u32>(order.tied);
        std::fill_n(words, count, 0);
    }
    std::size_t tied = 0;
    u32 g = 0;
    constexpr u32 kSmall = 1024;
    std::vector<u32> rank(kSmall, 0), large;  // of sizes that there are
    each_tie(marks, n, [&](std::size_t from, std::size_t to) {
        start[g] = static_cast<u32>(from);
        size[g] = static_cast<u32>(to - from);
        size[g] < kSmall ? void(rank[size[g]] = 1) : large.push_back(size[g]);
        if (of_slot) {
            std::fill(of_slot + from, of_slot + to, g);
        } else {
            for (std::size_t i = from; i < to; ++i) {
                words[i >> 5] |= u64(1) << (i & 31);
                group[tied++] = g;
            }
        }
        ++g;
    });
    u32 before = 0;
    for (std::size_t w = 0; words && w < count; ++w) {
        const u32 bits = static_cast<u32>(words[w]);
        words[w] |= u64(before) << 32;
        before += bits_set(bits);
    }
    for (u32 s = 0; s < kSmall; ++s) {
        if (rank[s]) rank[s] = (order.sizes.push_back(s), static_cast<u32>(order.sizes.size() - 1));
    }
    std::sort(large.begin(), large.end());
    large.erase(std::unique(large.begin(), large.end()), large.end());
    const std::size_t small = order.sizes.size();
    order.sizes.insert(order.sizes.end(), large.begin(), large.end());
    for (std::size_t k = 0; k < order.groups; ++k) {
        kind[k] = size[k] < kSmall ? rank[size[k]]
                                   : static_cast<u32>(small + static_cast<std::size_t>(
                                         std::lower_bound(large.begin(), large.end(), size[k]) - large.begin()));
    }
    order.words = words;
    order.group = group;
    order.of_slot = of_slot;
    order.start = start;
    order.size = size;
    order.kind = kind;
    return order;
}

// ---- the score side -----------------------------------------------------------------------------------------------

// Slots of the loss order in order of the score, tied ones in order of the loss; and where a new score starts.
struct ScoreOrder {
    u32 *slot;
    const u8 *marks;
    bool sorted = true;  // whether slots of one score are in order already
};

// Rows to slots, from two orders of rows. Slots of one score are in any order.
inline ScoreOrder join_orders(const u32 *row, const u8 *marks, const LossOrder &losses, u32 *slots, u32 *spare, int threads) {
    const std::size_t n = losses.n;
    const u32 *UQ_RESTRICT by_loss = losses.row;
    u32 *UQ_RESTRICT of_row = spare, *UQ_RESTRICT slot = slots;
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
    return {slots, marks, false};
}

// The same for large groups of one score: rows go to their group one by one in order of the loss. spare has 2 n places.
inline ScoreOrder fill_groups(const u32 *row, const u8 *marks, const LossOrder &losses, u32 *slots, u32 *spare) {
    const std::size_t n = losses.n;
    u32 *UQ_RESTRICT next = spare, *UQ_RESTRICT of_row = spare + n, *UQ_RESTRICT slot = slots;
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
    return {slots, marks, true};
}

inline void sort_ties(ScoreOrder &order, std::size_t n) {
    if (order.sorted) return;
    each_tie(order.marks, n, [&](std::size_t from, std::size_t to) {
        if (to - from == 2) {
            if (order.slot[from] > order.slot[from + 1]) std::swap(order.slot[from], order.slot[from + 1]);
        } else {
            std::sort(order.slot + from, order.slot + to);
        }
    });
    order.sorted = true;
}

// Few ties in the loss: sets the highest bit of all slots that tie in the loss or in the score. How many.
inline std::size_t mark_ties(const ScoreOrder &order, const LossOrder &losses, int threads) {
    const std::size_t n = losses.n;
    if (n < 65536) threads = 1;
    u32 *UQ_RESTRICT slot = order.slot;
    std::size_t score_ties = 0;
    each_tie(order.marks, n, [&](std::size_t from, std::size_t to) { score_ties += to - from; });
    if (!losses.groups) {
        if (score_ties) {
            each_tie(order.marks, n, [=](std::size_t from, std::size_t to) {
                for (std::size_t p = from; p < to; ++p) slot[p] |= kTied;
            });
        }
        return score_ties;
    }
    std::vector<std::size_t> found(static_cast<std::size_t>(std::max(threads, 1)), 0);
    over_rows(n, threads, [&, slot](std::size_t t, std::size_t from, std::size_t to) {
        for (std::size_t p = from; p < to; ++p) slot[p] |= u32(losses.tied_at(slot[p])) << 31;
        for (std::size_t p = from; p < to; ++p) found[t] += slot[p] >> 31;
    });
    std::size_t both = 0;
    for (const std::size_t part : found) both += part;
    each_tie(order.marks, n, [&](std::size_t from, std::size_t to) {
        for (std::size_t p = from; p < to; ++p) {
            both += !(slot[p] >> 31);
            slot[p] |= kTied;
        }
    });
    return both;
}

// Of rows tied in the score, places [from, to): calls at(p, a, joint_end) with the score's part of credit2 and the end of those
// that tie in both.
template <class At>
void walk_group(const ScoreOrder &order, const LossOrder &losses, std::size_t from, std::size_t to, At at) {
    const u32 past = static_cast<u32>(to), size = static_cast<u32>(to - from);
    for (std::size_t p = from; p < to;) {
        const std::size_t joint_start = p;
        std::size_t joint_end = p + 1;
        const u32 group = losses.group_of(order.slot[p] & ~kTied);
        if (group != kAlone) {
            const u32 stop = losses.start[group] + losses.size[group];
            while (joint_end < to && (order.slot[joint_end] & ~kTied) < stop) ++joint_end;
        }
        const u32 joint = static_cast<u32>(joint_end - joint_start), before = static_cast<u32>(joint_start - from);
        for (; p < joint_end; ++p) {
            at(p, size - 2 * past - 2 * before + joint - 2 * static_cast<u32>(p - joint_start), static_cast<u32>(joint_end));
        }
    }
}

// Calls at(p, q, slot, a, group_end, joint_end) for each place p of the (score, loss) order whose slot has its highest bit
// set: q is the rank in (loss, score) order, `slot` the place in the loss order, `a` the score's part of credit2, the ends
// those of the groups tied in the score and in both. For all other places q is the slot and a = -2 p.
template <class At> void walk_ties(const ScoreOrder &order, const LossOrder &losses, TieSpace &space, At at) {
    const std::size_t n = losses.n;
    u32 *next = space.next.get<u32>(losses.groups + 1);
    std::copy_n(losses.start, losses.groups, next);
    const auto rank_of = [&](u32 slot) {
        const u32 group = losses.group_of(slot);
        return group == kAlone ? slot : next[group]++;
    };
    for (std::size_t p = 0; p < n;) {
        if (!(order.slot[p] & kTied)) {
            ++p;
            continue;
        }
        std::size_t end = p + 1;
        while (end < n && !(order.marks[end] & kNew)) ++end;
        walk_group(order, losses, p, end, [&](std::size_t at_p, u32 a, u32 joint_end) {
            const u32 slot = order.slot[at_p] & ~kTied;
            at(at_p, rank_of(slot), slot, a, static_cast<u32>(end), joint_end);
        });
        p = end;
    }
}

// Many ties in the loss: the rank of each place in (loss, score) order into rank(p, q, slot).
template <class Rank> void rank_places(const ScoreOrder &order, const LossOrder &losses, TieSpace &space, Rank rank) {
    u32 *UQ_RESTRICT next = space.next.get<u32>(losses.groups + 1);
    std::copy_n(losses.start, losses.groups, next);
    const u32 *UQ_RESTRICT of_slot = losses.of_slot;
    u32 group[kChunk];
    for (std::size_t from = 0; from < losses.n; from += kChunk) {
        const std::size_t size = std::min(kChunk, losses.n - from);
        const u32 *UQ_RESTRICT slot = order.slot + from;
        for (std::size_t i = 0; i < size; ++i) fetch(of_slot + slot[i]);
        for (std::size_t i = 0; i < size; ++i) group[i] = of_slot[slot[i]];
        for (std::size_t i = 0; i < size; ++i) fetch(next + (group[i] == kAlone ? 0 : group[i]));
        for (std::size_t i = 0; i < size; ++i) {
            rank(from + i, group[i] == kAlone ? slot[i] : next[group[i]]++, slot[i]);
        }
    }
}

}  // namespace uq
