// How often labels that follow the confidences look less calibrated than those observed.
#pragma once

#include "basics.hpp"

namespace uq {

// Rows of one bin of confidence.
struct CalibrationBin {
    std::size_t from, to;
    double share, weight, weight2, factor;
};

// Repetition r draws the label of row i as uniform[r * n + i] < mean[i]; bin b holds rows first[b] to first[b + 1] - 1 and
// the given share of all weight. Counts repetitions whose debiased squared error is not below `observed`, and stops when
// there are more than `most`. The twin of kernels.plain.calibration.exceeding, sum by sum.
inline i64 exceeding(const double *uniform, std::size_t repetitions, const double *mean, const double *weight, std::size_t n,
                     const i64 *first, const double *share, std::size_t bins, double observed, i64 most) {
    std::vector<CalibrationBin> bin(bins);
    for (std::size_t b = 0; b < bins; ++b) {
        CalibrationBin &own = bin[b];
        own = {static_cast<std::size_t>(first[b]), b + 1 < bins ? static_cast<std::size_t>(first[b + 1]) : n, share[b], 0, 0, 0};
        for (std::size_t i = own.from; i < own.to; ++i) {
            own.weight += weight[i];
            own.weight2 += weight[i] * weight[i];
        }
        const double size = own.weight * own.weight / own.weight2;
        own.factor = own.to - own.from > 1 ? size / std::max(size - 1, 1e-12) : 0.0;
    }
    i64 found = 0;
    for (std::size_t r = 0; r < repetitions && found <= most; ++r) {
        const double *u = uniform + r * n;
        double total = 0;
        for (const CalibrationBin &own : bin) {
            double gap = 0, gap2 = 0, squares = 0;
            for (std::size_t i = own.from; i < own.to; ++i) {
                const double part = weight[i] * ((u[i] < mean[i] ? 1.0 : 0.0) - mean[i]);
                gap += part;
                gap2 += weight[i] * part;
                squares += part * part;
            }
            gap /= own.weight;
            const double spread = std::max(0.0, squares - 2 * gap * gap2 + gap * gap * own.weight2);
            total += own.share * (gap * gap - spread / (own.weight * own.weight) * own.factor);
        }
        found += total >= observed;
    }
    return found;
}

}  // namespace uq
