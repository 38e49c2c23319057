// Clusters and parts of the rows, for Python.
#include "bindings.hpp"
#include "clusters.hpp"
#include "parts.hpp"

namespace uq {
namespace {

// Pairs of rows of one cluster, which are row[first[k]] and those that follow.
void within(In<double> score, In<double> loss, In<u32> row, In<i64> first, Out<i64> credit2, Out<i64> comparable,
            int threads) {
    const std::size_t n = score.shape(0), clusters = first.shape(0);
    same_length(n, loss, row);
    for (std::size_t i = 0; i < n; ++i) {
        if (row.data()[i] >= n) throw std::out_of_range("a row is outside the rows");
    }
    need(credit2.shape(0) == clusters && comparable.shape(0) == clusters, "lengths differ");
    for (std::size_t k = 0; k < clusters; ++k) {
        const i64 from = first.data()[k], to = k + 1 < clusters ? first.data()[k + 1] : static_cast<i64>(n);
        if (from < 0 || to < from || to > static_cast<i64>(n)) throw std::out_of_range("clusters out of order");
    }
    nb::gil_scoped_release release;
    constexpr std::size_t kAtOnce = 1024;
    in_parallel((clusters + kAtOnce - 1) / kAtOnce, threads, [&](std::size_t part) {
        ClusterSpace space;
        within_clusters(score.data(), loss.data(), row.data(), first.data(), clusters, n, part * kAtOnce,
                        std::min(clusters, (part + 1) * kAtOnce), space, credit2.data(), comparable.data());
    });
}

void units(In<u32> row, In<u8> marks, In<double> e, In<u32> credit2, In<i64> cluster, Out<double> sums, Out<i64> credit,
           Out<i64> wrong) {
    const std::size_t n = row.shape(0), clusters = sums.shape(0);
    same_length(n, marks, e, credit2, cluster);
    need(credit.shape(0) == clusters && wrong.shape(0) == clusters, "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
        if (row.data()[i] >= n) throw std::out_of_range("a row is outside the rows");
        const i64 k = cluster.data()[i];
        if (k < 0 || static_cast<std::size_t>(k) >= clusters) throw std::out_of_range("a cluster is outside the clusters");
    }
    const std::vector<UnitSums> found =
        unit_sums(row.data(), marks.data(), e.data(), credit2.data(), cluster.data(), n, clusters);
    for (std::size_t k = 0; k < clusters; ++k) {
        sums.data()[k] = found[k].right_e + found[k].wrong_e;
        credit.data()[k] = found[k].credit2;
        wrong.data()[k] = found[k].wrong;
    }
}

void moments(In<i64> cluster, In<double> loss, std::size_t clusters, Out2<double> out) {
    const std::size_t n = cluster.shape(0);
    same_length(n, loss);
    need(out.shape(0) == 6 && out.shape(1) == n + 1, "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
        const i64 k = cluster.data()[i];
        if (k < 0 || static_cast<std::size_t>(k) >= clusters) throw std::out_of_range("a cluster is outside the clusters");
    }
    running_moments(cluster.data(), loss.data(), n, clusters, out.data());
}

void cut(In<u32> row, In<u8> fresh, In<u32> part, In<i64> start, Out<u32> out, Out<u8> out_fresh) {
    const std::size_t n = row.shape(0), parts = start.shape(0);
    same_length(n, fresh, part, out, out_fresh);
    nb::gil_scoped_release release;
    std::vector<i64> left(start.data(), start.data() + parts);
    for (std::size_t i = 0; i < n; ++i) {
        if (row.data()[i] >= n || part.data()[i] >= parts) throw std::out_of_range("a row or a part is outside");
        ++left[part.data()[i]];
    }
    for (std::size_t k = 0; k < parts; ++k) {
        const i64 next = k + 1 < parts ? start.data()[k + 1] : static_cast<i64>(n);
        if (start.data()[k] < 0 || left[k] != next) throw std::out_of_range("parts do not start where they should");
    }
    cut_order(row.data(), fresh.data(), part.data(), n, start.data(), parts, out.data(), out_fresh.data());
}

void concord_parts(In<u32> row, In<u8> fresh, In<u32> loss_row, In<u8> loss_fresh, In<i64> start, Out2<i64> whole,
                   Out2<double> shifts) {
    const std::size_t n = row.shape(0), parts = whole.shape(0);
    same_length(n, fresh, loss_row, loss_fresh);
    need_parts(start, n);
    need(start.shape(0) == parts + 1 && whole.shape(1) == 2 && shifts.shape(0) == parts && shifts.shape(1) == 2,
         "lengths differ");
    nb::gil_scoped_release release;
    Use use;
    const Ordered score(row, fresh, use.space.marks, 1), loss(loss_row, loss_fresh, use.space.loss_marks, 1);
    for (std::size_t k = 0; k < parts; ++k) {  // no value goes on from part to part
        score.marks[start.data()[k]] |= kNew;
        loss.marks[start.data()[k]] |= kNew;
    }
    concordance_of_parts(score.row, score.marks, loss.row, loss.marks, n, start.data(), parts, use.space,
                         [&](std::size_t k, const PartSums &sums) {
                             whole.data()[2 * k] = static_cast<i64>(sums.credit2);
                             whole.data()[2 * k + 1] = static_cast<i64>(sums.comparable);
                             shifts.data()[2 * k] = sums.shift;
                             shifts.data()[2 * k + 1] = sums.shift2;
                         });
}

}  // namespace

void define_units(nb::module_ &m) {
    m.def("within", &within, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("row").noconvert(),
          nb::arg("first").noconvert(), nb::arg("credit2").noconvert(), nb::arg("comparable").noconvert(), nb::arg("threads"));
    m.def("units", &units, nb::arg("row").noconvert(), nb::arg("marks").noconvert(), nb::arg("e").noconvert(),
          nb::arg("credit2").noconvert(), nb::arg("cluster").noconvert(), nb::arg("sums").noconvert(),
          nb::arg("credit").noconvert(), nb::arg("wrong").noconvert());
    m.def("cut", &cut, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(), nb::arg("part").noconvert(),
          nb::arg("start").noconvert(), nb::arg("out").noconvert(), nb::arg("out_fresh").noconvert());
    m.def("concord_parts", &concord_parts, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("loss_row").noconvert(), nb::arg("loss_fresh").noconvert(), nb::arg("start").noconvert(),
          nb::arg("whole").noconvert(), nb::arg("shifts").noconvert());
    m.def("moments", &moments, nb::arg("cluster").noconvert(), nb::arg("loss").noconvert(), nb::arg("clusters"),
          nb::arg("out").noconvert());
}

}  // namespace uq
