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

// Sums of all pairs inside each part, from the cut orders of score and loss; found(k, sums of part k).
template <class Found>
void concordance_of_parts(const u32 *row, const u8 *marks, const u32 *loss_row, const u8 *loss_marks, std::size_t n,
                          const i64 *start, std::size_t parts, PairSpace &space, Found found) {
    const LossOrder all = bound_losses(loss_row, loss_marks, n, space);
    const ScoreOrder order = reorder(row, marks, all, space, 1);
    u32 *UQ_RESTRICT first = space.start.get<u32>(n), *UQ_RESTRICT past = space.end.get<u32>(n);
    for (std::size_t k = 0; k < parts; ++k) {
        const std::size_t from = static_cast<std::size_t>(start[k]), size = static_cast<std::size_t>(start[k + 1]) - from;
        const u32 shift = static_cast<u32>(from);
        LossOrder own;
        own.n = size;
        for (std::size_t i = from; i < from + size; ++i) {
            order.slot[i] -= shift;
            if (order.slot[i] >= size) throw std::out_of_range("a row is in two parts");
            own.ties = own.ties || !(loss_marks[i] & kNew);
        }
        if (own.ties) {
            for (std::size_t i = from; i < from + size; ++i) {
                first[i] -= shift;
                past[i] -= shift;
            }
            own.start = first + from;
            own.end = past + from;
        }
        found(k, concordance(ScoreOrder{order.slot + from, order.marks + from}, own, space, 1));
    }
}

}  // namespace uq
