// Sums of pair counts: what a concordance and its delete-one jackknife are made of, without a count for each row.
#pragma once

#include "pairs.hpp"

namespace uq {

// ---- few values ---------------------------------------------------------------------------------------------------

// Where the table of all scores and losses is about as large as the rows, it says it all: score by score, with the rows
// of lower scores added up by loss. `of_loss` has the rows of each loss; next_score(rows) gives those of the next score by
// loss, or false.
template <class Next> std::vector<Kind> concordance_of_cells(std::size_t n, const std::vector<u32> &of_loss, Next next_score) {
    const std::size_t values = of_loss.size();
    std::vector<Kind> kinds(values);
    for (std::size_t g = 0; g < values; ++g) kinds[g].alike = of_loss[g];
    std::vector<u32> lower(values, 0), here(values, 0);
    std::vector<Squares> squares(values);
    for (u32 seen = 0; next_score(here.data());) {
        u32 rows = 0;
        for (std::size_t g = 0; g < values; ++g) rows += here[g];
        seen += rows;
        const u32 above = static_cast<u32>(n) - seen;
        u32 below = 0, not_above = 0, losses_so_far = 0;  // rows of lower loss and score, of neither higher, of no higher loss
        for (std::size_t g = 0; g < values; ++g) {
            const u32 in = here[g];
            not_above += lower[g] + in;
            losses_so_far += of_loss[g];
            const u64 credit2 = 2 * (below + above + not_above - losses_so_far) + rows - in;
            kinds[g].rows += in;
            kinds[g].total += credit2 * in;
            squares[g].add(credit2, in);
            below += lower[g];
            lower[g] += in;
        }
    }
    for (std::size_t g = 0; g < values; ++g) squares[g].add_to(kinds[g].squares);
    return kinds;
}

// From orders that are there.
inline std::vector<Kind> concordance_of_groups(const ScoreOrder &order, const LossOrder &losses, PairSpace &space) {
    const std::size_t n = losses.n, values = losses.values();
    u32 *UQ_RESTRICT group = space.by_slot.get<u32>(n);
    std::vector<u32> of_loss(values, 0);
    u32 now = 0;
    for (std::size_t q = 0; q < n; ++q) {
        now += q && (losses.marks[q] & kNew);
        group[q] = now;
        ++of_loss[now];
    }
    std::size_t at = 0;
    return concordance_of_cells(n, of_loss, [&](u32 *here) {
        if (at == n) return false;
        std::fill_n(here, values, 0);
        do ++here[group[order.slot[at++]]];
        while (at < n && !(order.marks[at] & kNew));
        return true;
    });
}

// From the ranks of values.
inline std::vector<Kind> concordance_of_values(const Values &scores, const Values &losses, std::size_t n, PairSpace &space) {
    const std::size_t values = losses.count();
    u32 *UQ_RESTRICT table = space.cells.get<u32>(scores.count() * values);
    std::fill_n(table, scores.count() * values, 0);
    const u16 *UQ_RESTRICT score = scores.rank, *UQ_RESTRICT loss = losses.rank;
    for (std::size_t i = 0; i < n; ++i) ++table[score[i] * values + loss[i]];
    std::vector<u32> of_loss(values, 0);
    for (std::size_t s = 0; s < scores.count(); ++s) {
        for (std::size_t d = 0; d < values; ++d) of_loss[d] += table[s * values + d];
    }
    std::size_t next = 0;
    return concordance_of_cells(n, of_loss, [&](u32 *here) {
        if (next == scores.count()) return false;
        std::copy_n(table + next++ * values, values, here);
        return true;
    });
}

// ---- any values ---------------------------------------------------------------------------------------------------

inline std::vector<Kind> concordance(const ScoreOrder &order, const LossOrder &losses, PairSpace &space, int threads) {
    const std::size_t n = losses.n;
    if (losses.groups && losses.values() * count_values(order.marks, n) <= 2 * n) {
        return concordance_of_groups(order, losses, space);
    }
    return count_credit(order, losses, nullptr, space, threads);
}

inline std::vector<Kind> concordance(const double *score, const double *loss, std::size_t n, PairSpace &space, int threads) {
    const std::size_t guess = guess_values(score, n) * guess_values(loss, n);
    Values scores, losses;
    if (guess && guess <= 2 * n && find_values(loss, n, threads, space.order.ranks, losses) &&
        find_values(score, n, threads, space.score_ranks, scores) && losses.count() * scores.count() <= 4 * n) {
        return concordance_of_values(scores, losses, n, space);
    }
    double *by_loss = space.by_loss.get<double>(n);
    u8 *marks = space.loss_marks.get<u8>(n);
    order_rows<double>(loss, nullptr, score, n, marks, by_loss, space.order, threads);
    const LossOrder order = bound_losses(nullptr, marks, n, space.loss_ties);
    return concordance(order_slots(by_loss, n, space, threads), order, space, threads);
}

}  // namespace uq
