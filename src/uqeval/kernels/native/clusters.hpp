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
inline ClusterPairs within_cluster(const double *score, const double *loss, std::size_t n, ClusterSpace &space) {
    if (n <= kDirectly) return compare_all(score, loss, n);
    ClusterPairs found;
    for (const Kind &kind : concordance(score, loss, n, space.pairs, 1)) {
        found.credit2 += static_cast<i64>(kind.total);
        found.comparable += static_cast<i64>(kind.rows * (n - kind.alike));
    }
    return found;
}

// Clusters [from, to), of rows row[first[k]] and those that follow: their scores and losses are fetched first, all at once.
inline void within_clusters(const double *scores, const double *losses, const u32 *row, const i64 *first, std::size_t clusters,
                            std::size_t n, std::size_t from, std::size_t to, ClusterSpace &space, i64 *credit2, i64 *comparable) {
    const auto start = [=](std::size_t k) { return k < clusters ? static_cast<std::size_t>(first[k]) : n; };
    const std::size_t begin = start(from), size = start(to) - begin;
    double *UQ_RESTRICT score = space.score.get<double>(size), *UQ_RESTRICT loss = space.loss.get<double>(size);
    for (std::size_t i = 0; i < size; ++i) score[i] = scores[row[begin + i]];
    for (std::size_t i = 0; i < size; ++i) loss[i] = losses[row[begin + i]];
    for (std::size_t k = from; k < to; ++k) {
        const std::size_t at = start(k) - begin;
        const ClusterPairs found = within_cluster(score + at, loss + at, start(k + 1) - start(k), space);
        credit2[k] = found.credit2;
        comparable[k] = found.comparable;
    }
}

// What clusters are made of after a sweep: sums of e (wrong and right rows apart, since tied rows of a class are alike and
// the order of addition then does not depend on that of the rows), of credit2, and the wrong rows. Side by side: a row
// finds its cluster's in one line of the cache.
struct UnitSums {
    double right_e = 0, wrong_e = 0;
    i64 credit2 = 0, wrong = 0;
};

// Rows in order of the score.
inline std::vector<UnitSums> unit_sums(const u32 *row, const u8 *marks, const double *e, const u32 *credit2,
                                       const i64 *cluster, std::size_t n, std::size_t clusters) {
    std::vector<UnitSums> units(clusters);
    i64 of[kChunk];
    for (std::size_t from = 0; from < n; from += kChunk) {
        const std::size_t size = std::min(kChunk, n - from);
        for (std::size_t i = 0; i < size; ++i) of[i] = cluster[row[from + i]];
        for (std::size_t i = 0; i < size; ++i) fetch(&units[static_cast<std::size_t>(of[i])]);
        for (std::size_t i = 0; i < size; ++i) {
            UnitSums &unit = units[static_cast<std::size_t>(of[i])];
            const i64 bad = marks[from + i] & kWrong;
            (bad ? unit.wrong_e : unit.right_e) += e[from + i];
            unit.credit2 += credit2[from + i];
            unit.wrong += bad;
        }
    }
    return units;
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
