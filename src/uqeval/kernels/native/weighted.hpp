// Weighted pair counts by a Fenwick tree over the score ranks, walked in loss order, group by group.
#pragma once

#include "basics.hpp"

namespace uq {

class Fenwick {
  public:
    explicit Fenwick(std::size_t size) : tree_(size + 1, 0.0) {}
    void add(std::size_t rank, double weight) {
        for (std::size_t k = rank + 1; k < tree_.size(); k += k & (~k + 1)) tree_[k] += weight;
    }
    double below(std::size_t rank) const {  // weight at ranks < rank
        double sum = 0.0;
        for (std::size_t k = rank; k > 0; k &= k - 1) sum += tree_[k];
        return sum;
    }

  private:
    std::vector<double> tree_;
};

// Slots are sorted by loss; group[i] is the loss group, rank[i] the dense rank of the score (below `ranks`).
// credit[i] = weight of the comparable rows that agree with slot i, against[i] of those that do not; tied scores
// count half in both.
inline void weighted_credit(const i64 *rank, const i64 *group, const double *weight, std::size_t n, std::size_t ranks,
                            double *credit, double *against) {
    for (const bool rising : {true, false}) {
        // Low ranks and high ranks each get a tree: every sum is of positive terms, nothing is subtracted.
        Fenwick low(ranks), high(ranks);
        std::vector<double> at(ranks, 0.0);
        const auto slot = [&](std::size_t i) { return rising ? i : n - 1 - i; };
        for (std::size_t i = 0; i < n;) {
            std::size_t end = i;
            while (end < n && group[slot(end)] == group[slot(i)]) ++end;
            for (std::size_t k = i; k < end; ++k) {
                const std::size_t s = slot(k), r = static_cast<std::size_t>(rank[s]);
                const double half = 0.5 * at[r], below = low.below(r) + half, above = high.below(ranks - 1 - r) + half;
                credit[s] += rising ? below : above;
                against[s] += rising ? above : below;
            }
            for (; i < end; ++i) {
                const std::size_t s = slot(i), r = static_cast<std::size_t>(rank[s]);
                low.add(r, weight[s]);
                high.add(ranks - 1 - r, weight[s]);
                at[r] += weight[s];
            }
        }
    }
}

}  // namespace uq
