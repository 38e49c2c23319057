// Float sums that do not depend on the order of the rows, and the sums of the delete-one jackknife.
#pragma once

#include "basics.hpp"

namespace uq {

// Two fixed-point folds: the rounded part and the remainder are summed as integers, and integer sums commute.
// The twin of kernels.plain.sums.order_free_sum, bit for bit.
class FixedSum {
  public:
    FixedSum(double bound, std::size_t n) {
        int exponent = 0;
        std::frexp(bound, &exponent);
        bits_ = std::min(51, 62 - bit_width(n));
        shift_ = bits_ - exponent;
        up_ = std::ldexp(1.0, bits_);
    }
    void add(double x) { add_scaled(std::ldexp(x, shift_)); }
    void add_scaled(double y) {  // y already multiplied by scale()
        const double whole = round(y);
        whole_ += static_cast<i64>(whole);
        rest_ += static_cast<i64>(round((y - whole) * up_));
    }
    double scale() const { return std::ldexp(1.0, shift_); }
    bool scale_is_normal() const { return std::isnormal(scale()); }
    double value() const {
        return std::ldexp(static_cast<double>(whole_) + std::ldexp(static_cast<double>(rest_), -bits_), -shift_);
    }

  private:
    static double round(double x) {  // to nearest even; |x| < 2^51
        constexpr double kMagic = 6755399441055744.0;
        return (x + kMagic) - kMagic;
    }
    int bits_ = 0, shift_ = 0;
    double up_ = 1.0;
    i64 whole_ = 0, rest_ = 0;
};

// The greatest size of the numbers; 0 where one is not finite, and nothing can be folded.
inline double bound_of(const double *x, std::size_t n) {
    double bound = 0.0;
    bool finite = true;
    for (std::size_t i = 0; i < n; ++i) {
        const double size = std::fabs(x[i]);
        finite = finite && std::isfinite(size);
        bound = size > bound ? size : bound;
    }
    return finite ? bound : 0.0;
}

inline double order_free_sum(const double *x, std::size_t n) {
    const double bound = bound_of(x, n);
    if (bound == 0.0) {
        double sum = 0.0;
        for (std::size_t i = 0; i < n; ++i) sum += x[i];
        return sum;
    }
    FixedSum sum(bound, n);
    if (sum.scale_is_normal()) {
        const double scale = sum.scale();
        for (std::size_t i = 0; i < n; ++i) sum.add_scaled(x[i] * scale);
    } else {
        for (std::size_t i = 0; i < n; ++i) sum.add(x[i]);
    }
    return sum.value();
}

// The sums of each cell, with one scale for all: the twin of kernels.plain.sums.cell_sums, bit for bit.
inline void cell_sums(const double *x, const i64 *cell, std::size_t n, double *sums, std::size_t cells) {
    const double bound = bound_of(x, n);
    std::fill(sums, sums + cells, 0.0);
    if (bound == 0.0) {
        for (std::size_t i = 0; i < n; ++i) sums[cell[i]] += x[i];
        return;
    }
    std::vector<FixedSum> parts(cells, FixedSum(bound, n));
    const double scale = FixedSum(bound, n).scale();
    if (std::isnormal(scale)) {
        for (std::size_t i = 0; i < n; ++i) parts[static_cast<std::size_t>(cell[i])].add_scaled(x[i] * scale);
    } else {
        for (std::size_t i = 0; i < n; ++i) parts[static_cast<std::size_t>(cell[i])].add(x[i]);
    }
    for (std::size_t c = 0; c < cells; ++c) sums[c] = parts[c].value();
}

struct ConcordanceSums {
    i64 credit2 = 0, comparable = 0;
    bool alike = false;                // all rows have the same number of comparable rows: `squares` holds
    Wide squares;                      // sum of credit2^2
    double shift = 0.0, shift2 = 0.0;  // else: sums of d_i and d_i^2, d_i = C without row i minus C
};

// d_i = -(credit2_i - 2 C m_i) / (M - 2 m_i); NaN where leaving out a row leaves no comparable pair.
template <class Credit, class Comparable>
ConcordanceSums concordance_sums(std::size_t n, Credit credit2, Comparable comparable) {
    ConcordanceSums sums;
    i64 least = n ? comparable(0) : 0, most = least;
    for (std::size_t i = 0; i < n; ++i) {
        const i64 m = comparable(i);
        sums.credit2 += credit2(i);
        sums.comparable += m;
        least = std::min(least, m);
        most = std::max(most, m);
    }
    const i64 left = sums.comparable - 2 * most;
    if (sums.comparable == 0 || left <= 0) {
        sums.shift = sums.shift2 = std::nan("");
        return sums;
    }
    if (least == most) {
        sums.alike = true;
        for (std::size_t i = 0; i < n; ++i) sums.squares.add_times(static_cast<u64>(credit2(i)), 1);
        return sums;
    }
    const double twice = static_cast<double>(sums.credit2) / static_cast<double>(sums.comparable);
    const double total = static_cast<double>(sums.comparable);
    const double bound = 2.0 * static_cast<double>(most) / static_cast<double>(left);
    FixedSum first(bound, n), second(bound * bound, n);
    const double scale1 = first.scale(), scale2 = second.scale();
    for (std::size_t i = 0; i < n; ++i) {
        const double m = static_cast<double>(comparable(i));
        const double d = (twice * m - static_cast<double>(credit2(i))) / (total - 2.0 * m);
        first.add_scaled(d * scale1);
        second.add_scaled(d * d * scale2);
    }
    sums.shift = first.value();
    sums.shift2 = second.value();
    return sums;
}

}  // namespace uq
