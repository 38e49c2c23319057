// Many parts (groups of rows) at once: the orders of all rows are cut, and each part is counted on its own.
#pragma once

#include "concordance.hpp"

namespace uq {

// Rows in order, part after part, each in the order that it has; and where a new value starts inside a part.
// start[k] is where part k starts.
inline void cut_order(const u32 *row, const u8 *fresh, const u32 *part, std::size_t n, const i64 *start, std::size_t parts,
                      u32 *out, u8 *out_fresh) {
    struct Next {
        u32 place, value;
    };
    std::vector<Next> next(parts);
    for (std::size_t k = 0; k < parts; ++k) next[k] = {static_cast<u32>(start[k]), 0};
    u32 value = 0, at[kChunk], of[kChunk];
    u8 starts[kChunk];
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        for (std::size_t i = 0; i < size; ++i) of[i] = part[row[from + i]];
        for (std::size_t i = 0; i < size; ++i) {
            value += fresh[from + i] || (from + i == 0);
            Next &own = next[of[i]];
            at[i] = own.place++;
            starts[i] = own.value != value;
            own.value = value;
        }
        if (n > kNear) {
            for (std::size_t i = 0; i < size; ++i) fetch(out + at[i]);
        }
        for (std::size_t i = 0; i < size; ++i) {
            out[at[i]] = row[from + i];
            out_fresh[at[i]] = starts[i];
        }
    }
}

struct PartSums {
    u64 credit2 = 0, comparable = 0;
    double shift = 0, shift2 = 0;  // as in `ConcordanceSums`
};

// Rows of a kind move C by d = (T m - c M) / (M (M - 2 m)), T and M the totals, c and m those of a row: their mean is
// told apart from what they scatter about it, which is exact.
inline PartSums sums_of_kinds(const std::vector<Kind> &kinds, u64 n) {
    PartSums sums;
    u64 most = 0;
    for (const Kind &kind : kinds) {
        if (!kind.rows) continue;
        sums.credit2 += kind.total;
        sums.comparable += kind.rows * (n - kind.alike);
        most = std::max(most, n - kind.alike);
    }
    if (sums.comparable == 0 || sums.comparable <= 2 * most) {
        sums.shift = sums.shift2 = std::nan("");
        return sums;
    }
    const double share = static_cast<double>(sums.credit2) / static_cast<double>(sums.comparable);
    for (const Kind &kind : kinds) {
        if (!kind.rows) continue;
        const double rows = static_cast<double>(kind.rows), left = static_cast<double>(sums.comparable - 2 * (n - kind.alike));
        const double apart = share * static_cast<double>(n - kind.alike) - static_cast<double>(kind.total) / rows;
        const double scatter = static_cast<double>(kind.rows * kind.squares.low - kind.total * kind.total) / rows;
        sums.shift += rows * apart / left;
        sums.shift2 += (rows * apart * apart + scatter) / (left * left);
    }
    return sums;
}

// Sums of all pairs inside each part, from the cut orders of score and loss; found(k, sums of part k).
template <class Found>
void concordance_of_parts(const u32 *row, const u8 *marks, const u32 *loss_row, const u8 *loss_marks, std::size_t n,
                          const i64 *start, std::size_t parts, PairSpace &space, Found found) {
    LossOrder all;
    all.n = n;
    all.row = loss_row;
    const ScoreOrder order = reorder(row, marks, all, space, 1);
    for (std::size_t k = 0; k < parts; ++k) {
        const std::size_t from = static_cast<std::size_t>(start[k]), size = static_cast<std::size_t>(start[k + 1]) - from;
        for (std::size_t i = from; i < from + size; ++i) {
            order.slot[i] -= static_cast<u32>(from);
            if (order.slot[i] >= size) throw std::out_of_range("a row is in two parts");
        }
        const LossOrder losses = bound_losses(nullptr, loss_marks + from, size, space.loss_ties);
        const ScoreOrder own{order.slot + from, marks + from, false};
        found(k, sums_of_kinds(concordance(own, losses, space, 1), size));
    }
}

}  // namespace uq
