// Pairs of rows of the same cluster.
#pragma once

#include "pairs.hpp"

namespace uq {

struct ClusterSpace {  // of one thread
    PairSpace pairs;
    std::vector<double> score, loss;
    std::vector<i64> credit2, comparable;
};

// Up to this many rows are compared with each other directly: sorting them would take as long.
constexpr std::size_t kDirectly = 64;

inline void compare_all(const double *score, const double *loss, std::size_t n, i64 *credit2, i64 *comparable) {
    for (std::size_t i = 0; i < n; ++i) {
        int credit = 0, differ = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const int higher = loss[i] > loss[j], lower = loss[i] < loss[j];
            const int above = score[i] >= score[j], below = score[i] <= score[j];
            // twice a concordant pair: 2 where score and loss agree, 1 where the scores tie
            credit += higher * (1 + above - below) + lower * (1 + below - above);
            differ += higher + lower;
        }
        credit2[i] = credit;
        comparable[i] = differ;
    }
}

// The rows of one cluster; results go to their places among all rows.
inline void within_cluster(const double *score, const double *loss, const u32 *row, std::size_t n, i64 *credit2,
                           i64 *comparable, ClusterSpace &space) {
    if (n == 1) {
        credit2[row[0]] = comparable[row[0]] = 0;
        return;
    }
    space.score.resize(n);
    space.loss.resize(n);
    space.credit2.resize(n);
    space.comparable.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
        space.score[i] = score[row[i]];
        space.loss[i] = loss[row[i]];
    }
    if (n <= kDirectly) {
        compare_all(space.score.data(), space.loss.data(), n, space.credit2.data(), space.comparable.data());
    } else {
        const LossOrder losses = order_losses(space.loss.data(), n, space.pairs);
        comparable_counts(losses, space.comparable.data());
        pair_counts(order_score(space.score.data(), losses, space.pairs, 1), losses, space.credit2.data(), space.pairs, 1);
    }
    for (std::size_t i = 0; i < n; ++i) {
        credit2[row[i]] = space.credit2[i];
        comparable[row[i]] = space.comparable[i];
    }
}

}  // namespace uq
