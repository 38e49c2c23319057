// Pairs of rows of the same cluster.
#pragma once

#include "concordance.hpp"

namespace uq {

struct ClusterSpace {  // of one thread
    PairSpace pairs;
    Buffer score, loss;
};

// Up to this many rows are compared with each other directly: sorting them would take as long.
constexpr std::size_t kDirectly = 64;

struct ClusterPairs {
    i64 credit2 = 0, comparable = 0;
};

inline ClusterPairs compare_all(const double *score, const double *loss, std::size_t n) {
    int credit = 0, differ = 0;
    for (std::size_t i = 1; i < n; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const int higher = loss[i] > loss[j], lower = loss[i] < loss[j];
            const int above = score[i] >= score[j], below = score[i] <= score[j];
            // twice a concordant pair: 2 where score and loss agree, 1 where the scores tie
            credit += higher * (1 + above - below) + lower * (1 + below - above);
            differ += higher + lower;
        }
    }
    return {2 * credit, 2 * differ};
}

// Over the n rows of one cluster, each pair twice.
inline ClusterPairs within_cluster(const double *scores, const double *losses, const u32 *row, std::size_t n,
                                   ClusterSpace &space) {
    double *UQ_RESTRICT score = space.score.get<double>(n), *UQ_RESTRICT loss = space.loss.get<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
        score[i] = scores[row[i]];
        loss[i] = losses[row[i]];
    }
    if (n <= kDirectly) return compare_all(score, loss, n);
    const ConcordanceSums sums = concordance(score, loss, n, space.pairs, 1);
    return {sums.credit2, sums.comparable};
}

// What clusters are made of after a sweep, rows in order of the score: sums of e (wrong and right rows apart, since tied
// rows of a class are alike and the order of addition then does not depend on that of the rows), of credit2, and the
// wrong rows.
inline void unit_sums(const u32 *row, const u8 *marks, const double *e, const u32 *credit2, const i64 *cluster,
                      std::size_t n, double *right_e, double *wrong_e, i64 *credit, i64 *wrong) {
    for (std::size_t p = 0; p < n; ++p) {
        const i64 k = cluster[row[p]];
        const i64 bad = marks[p] & kWrong;
        (bad ? wrong_e : right_e)[k] += e[p];
        credit[k] += credit2[p];
        wrong[k] += bad;
    }
}

// What the tests need of the clusters of the first 0, 1, …, n rows: `running_moments` of the NumPy twin.
inline void running_moments(const i64 *cluster, const double *loss, std::size_t n, std::size_t clusters, double *out) {
    struct Held {
        double rows = 0, loss = 0;
    };
    std::vector<Held> held(clusters);
    double sums[6] = {};
    for (std::size_t k = 0; k < 6; ++k) out[k * (n + 1)] = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        Held &own = held[static_cast<std::size_t>(cluster[i])];
        const double x = loss[i];
        const double added[6] = {own.rows == 0 ? 1.0 : 0.0, x, 1.0, x * (2 * own.loss + x), own.loss + x * (own.rows + 1),
                                 2 * own.rows + 1};
        own.rows += 1;
        own.loss += x;
        for (std::size_t k = 0; k < 6; ++k) out[k * (n + 1) + i + 1] = sums[k] += added[k];
    }
}

}  // namespace uq
