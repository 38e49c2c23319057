// Sums of pair counts: what a concordance and its delete-one jackknife are made of, without a count for each row.
#pragma once

#include "pairs.hpp"
#include "sums.hpp"

namespace uq {

// ---- few values ---------------------------------------------------------------------------------------------------

// Rows of one score and one loss.
struct TiedCell {
    u32 credit2, comparable, rows;
};

// Where the table of all scores and losses is about as large as the rows, it says it all: score by score, with the rows
// of lower scores added up by loss.
inline ConcordanceSums concordance_of_cells(const ScoreOrder &order, const LossOrder &losses, std::size_t values,
                                            PairSpace &space) {
    const std::size_t n = losses.n;
    u32 *UQ_RESTRICT group = space.cursor.get<u32>(n);
    std::vector<u32> size(values), lower(values, 0), here(values, 0);
    std::size_t groups = 0;
    for (std::size_t q = 0; q < n; ++groups) {
        size[groups] = losses.end[q] - static_cast<u32>(q);
        for (const std::size_t stop = losses.end[q]; q < stop; ++q) group[q] = static_cast<u32>(groups);
    }
    TiedCell *UQ_RESTRICT cells = space.cells.get<TiedCell>(n + 1);
    std::size_t found = 0;
    for (std::size_t from = 0, to; from < n; from = to) {
        to = from;
        do ++here[group[order.slot[to++]]];
        while (to < n && !(order.marks[to] & kNew));
        const u32 rows = static_cast<u32>(to - from), above = static_cast<u32>(n - to);
        u32 below = 0, not_above = 0, losses_so_far = 0;  // rows of lower loss and score, of neither higher, of no higher loss
        for (std::size_t g = 0; g < values; ++g) {
            const u32 in = here[g];
            not_above += lower[g] + in;
            losses_so_far += size[g];
            const u32 agree = below + above + not_above - losses_so_far;
            cells[found] = TiedCell{2 * agree + rows - in, static_cast<u32>(n) - size[g], in};
            found += in > 0;
            below += lower[g];
            lower[g] += in;
            here[g] = 0;
        }
    }
    return concordance_sums(
        n, found, [&](std::size_t i) { return static_cast<i64>(cells[i].credit2); },
        [&](std::size_t i) { return static_cast<i64>(cells[i].comparable); },
        [&](std::size_t i) { return static_cast<i64>(cells[i].rows); });
}

// Totals, and moments of the delete-one shifts of C (`ConcordanceSums`).
inline ConcordanceSums concordance(const ScoreOrder &order, const LossOrder &losses, PairSpace &space, int threads) {
    const std::size_t n = losses.n;
    if (losses.ties) {
        std::size_t values = 0;
        for (std::size_t q = 0; q < n; q = losses.end[q]) ++values;
        if (values * count_values(order.marks, n) <= 2 * n) return concordance_of_cells(order, losses, values, space);
    }
    u32 *by_slot = losses.ties ? space.by_slot.get<u32>(n) : nullptr;
    const CreditSums found = count_credit(order, losses, by_slot, space, threads, true);
    const auto comparable = [&](std::size_t q) {
        return static_cast<i64>(n) - (losses.ties ? losses.end[q] - losses.start[q] : 1);
    };
    if (losses.ties) {
        return concordance_sums(n, [&](std::size_t q) { return static_cast<i64>(by_slot[q]); }, comparable);
    }
    ConcordanceSums sums;
    sums.credit2 = static_cast<i64>(found.total);
    sums.comparable = static_cast<i64>(n) * (static_cast<i64>(n) - 1);
    sums.squares = found.squares;
    sums.alike = n > 2;  // without a row nothing is left of two
    if (!sums.alike) sums.shift = sums.shift2 = std::nan("");
    return sums;
}

inline ConcordanceSums concordance(const double *score, const double *loss, std::size_t n, PairSpace &space, int threads) {
    double *by_loss = space.by_loss.get<double>(n);
    u8 *marks = space.loss_marks.get<u8>(n);
    order_rows<double>(loss, nullptr, score, n, marks, by_loss, space.order, threads);
    const LossOrder losses = bound_losses(nullptr, marks, n, space);
    return concordance(order_slots(by_loss, n, space, threads), losses, space, threads);
}

}  // namespace uq
