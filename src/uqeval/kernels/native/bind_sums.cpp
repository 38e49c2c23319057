// Sums that do not depend on the order of rows, for Python.
#include "bindings.hpp"
#include "calibration.hpp"
#include "sums.hpp"
#include "weighted.hpp"

namespace uq {
namespace {

nb::tuple concord_counts(In<i64> credit2, In<i64> comparable) {
    need(credit2.shape(0) == comparable.shape(0), "lengths differ");
    ConcordanceSums sums;
    {
        nb::gil_scoped_release release;
        sums = concordance_sums(
            credit2.shape(0), [&](std::size_t i) { return credit2.data()[i]; },
            [&](std::size_t i) { return comparable.data()[i]; });
    }
    return listed(sums);
}

double sum(In<double> x) {
    nb::gil_scoped_release release;
    return order_free_sum(x.data(), x.shape(0));
}

void sums_of_cells(In<double> x, In<i64> cell, Out<double> sums) {
    const std::size_t n = x.shape(0), cells = sums.shape(0);
    need(cell.shape(0) == n, "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
        if (cell.data()[i] < 0 || static_cast<std::size_t>(cell.data()[i]) >= cells) {
            throw std::out_of_range("a cell is outside the cells");
        }
    }
    cell_sums(x.data(), cell.data(), n, sums.data(), cells);
}

// Part k holds the slots first[k] .. first[k + 1] - 1; pairs are counted inside parts only.
void weighted(In<i64> rank, In<i64> group, In<double> weight, In<i64> first, Out<double> credit, Out<double> against) {
    const std::size_t n = rank.shape(0), parts = first.shape(0);
    need(group.shape(0) == n && weight.shape(0) == n && credit.shape(0) == n && against.shape(0) == n,
         "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t k = 0; k < parts; ++k) {
        const i64 from = first.data()[k], to = k + 1 < parts ? first.data()[k + 1] : static_cast<i64>(n);
        if (from < 0 || to < from || to > static_cast<i64>(n)) throw std::out_of_range("parts out of order");
        i64 most = -1;
        for (i64 i = from; i < to; ++i) {
            if (rank.data()[i] < 0) throw std::out_of_range("a negative rank");
            most = std::max(most, rank.data()[i]);
        }
        weighted_credit(rank.data() + from, group.data() + from, weight.data() + from, static_cast<std::size_t>(to - from),
                        static_cast<std::size_t>(most + 1), credit.data() + from, against.data() + from);
    }
}

i64 exceeded(In2<double> uniform, In<double> mean, In<double> weight, In<i64> first, In<double> share, double observed,
             i64 most) {
    const std::size_t n = mean.shape(0), bins = first.shape(0);
    need(uniform.shape(1) == n && weight.shape(0) == n && share.shape(0) == bins, "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t b = 0; b < bins; ++b) {
        const i64 from = first.data()[b], to = b + 1 < bins ? first.data()[b + 1] : static_cast<i64>(n);
        if (from < 0 || to <= from || to > static_cast<i64>(n)) throw std::out_of_range("bins out of order");
    }
    return exceeding(uniform.data(), uniform.shape(0), mean.data(), weight.data(), n, first.data(), share.data(), bins,
                     observed, most);
}

}  // namespace

void define_sums(nb::module_ &m) {
    m.def("concord_counts", &concord_counts, nb::arg("credit2").noconvert(), nb::arg("comparable").noconvert());
    m.def("order_free_sum", &sum, nb::arg("x").noconvert());
    m.def("exceeding", &exceeded, nb::arg("uniform").noconvert(), nb::arg("mean").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("first").noconvert(), nb::arg("share").noconvert(), nb::arg("observed"),
          nb::arg("most"));
    m.def("cell_sums", &sums_of_cells, nb::arg("x").noconvert(), nb::arg("cell").noconvert(), nb::arg("sums").noconvert());
    m.def("weighted", &weighted, nb::arg("rank").noconvert(), nb::arg("group").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("first").noconvert(), nb::arg("credit").noconvert(),
          nb::arg("against").noconvert());
}

}  // namespace uq
