// Python bindings. Arrays come checked and contiguous from kernels/__init__.py; results go into arrays made there.
#include "bootstrap.hpp"
#include "pairs.hpp"
#include "sums.hpp"
#include "weighted.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;
using namespace uq;

template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

namespace {

Workspace &workspace() {
    static thread_local Workspace space;
    return space;
}

struct Trim {  // gives large blocks back even when a call throws
    Workspace &space;
    ~Trim() { space.trim(); }
};

void need(bool ok, const char *message) {
    if (!ok) throw nb::value_error(message);
}

constexpr std::size_t kMostRows = (std::size_t(1) << 31) - 1;

nb::tuple auc(In<double> score, In<u8> error, Out<i64> credit2) {
    const std::size_t n = score.shape(0);
    need(error.shape(0) == n && credit2.shape(0) == n, "lengths differ");
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    AucSums sums;
    {
        nb::gil_scoped_release release;
        Trim trim{workspace()};
        sums = auc_counts(score.data(), error.data(), n, credit2.data(), trim.space);
    }
    return nb::make_tuple(sums.wrong, sums.credit2, sums.wrong_squares.high, sums.wrong_squares.low,
                          sums.right_squares.high, sums.right_squares.low);
}

void pairs(In2<double> scores, In<double> loss, Out2<i64> credit2, Out<i64> comparable, int threads) {
    const std::size_t k = scores.shape(0), n = loss.shape(0);
    need(scores.shape(1) == n && credit2.shape(0) == k && credit2.shape(1) == n && comparable.shape(0) == n,
         "lengths differ");
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    nb::gil_scoped_release release;
    Trim trim{workspace()};
    const LossOrder order = order_losses(loss.data(), n, trim.space);
    comparable_counts(order, comparable.data());
    if (k == 1 || threads <= 1) {
        for (std::size_t j = 0; j < k; ++j) {
            pair_counts(scores.data() + j * n, order, credit2.data() + j * n, trim.space, threads);
        }
        return;
    }
    in_parallel(k, threads, [&](std::size_t j) {
        Workspace own;  // the loss order lives in the caller's
        pair_counts(scores.data() + j * n, order, credit2.data() + j * n, own, 1);
    });
}

// Rows in stable order of x, with the bounds of each slot's tie group; true if any value repeats.
bool order(In<double> x, Out<i64> row, Out<i64> start, Out<i64> end) {
    const std::size_t n = x.shape(0);
    need(row.shape(0) == n && start.shape(0) == n && end.shape(0) == n, "lengths differ");
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    nb::gil_scoped_release release;
    Trim trim{workspace()};
    return sorted_rows(x.data(), n, row.data(), start.data(), end.data(), trim.space);
}

nb::tuple concordance(In<i64> credit2, In<i64> comparable) {
    need(credit2.shape(0) == comparable.shape(0), "lengths differ");
    ConcordanceSums sums;
    {
        nb::gil_scoped_release release;
        sums = concordance_sums(credit2.data(), comparable.data(), credit2.shape(0));
    }
    return nb::make_tuple(sums.credit2, sums.comparable, sums.alike, sums.squares.high, sums.squares.low, sums.shift,
                          sums.shift2);
}

double sum(In<double> x) {
    nb::gil_scoped_release release;
    return order_free_sum(x.data(), x.shape(0));
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

// Resample b draws as many units as there are, with replacement, from its own stream seeds[b]; unit[i] is the unit (row
// or cluster) of row i. Calls job(b, times of each row, their sum, state of the thread).
template <class State, class Job>
void for_each_resample(In<i64> unit, std::size_t units, In<u64> seeds, int threads, Job job) {
    const std::size_t n = unit.shape(0), resamples = seeds.shape(0);
    bool rows_are_units = units == n;
    for (std::size_t i = 0; i < n; ++i) {
        const i64 u = unit.data()[i];
        if (u < 0 || static_cast<std::size_t>(u) >= units) throw std::out_of_range("a unit is outside the units");
        rows_are_units = rows_are_units && u == static_cast<i64>(i);
    }
    const std::size_t blocks = std::max<std::size_t>(1, std::min<std::size_t>(resamples, 8 * std::max(threads, 1)));
    in_parallel(blocks, threads, [&](std::size_t block) {
        State state;
        std::vector<u32> of_unit(units), of_row(rows_are_units ? 0 : n);
        for (std::size_t b = block; b < resamples; b += blocks) {
            draw_units(seeds.data()[b], units, of_unit.data());
            const u32 *times = of_unit.data();
            u64 size = units;
            if (!rows_are_units) {
                size = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    of_row[i] = of_unit[static_cast<std::size_t>(unit.data()[i])];
                    size += of_row[i];
                }
                times = of_row.data();
            }
            if (size > kMostRows) throw std::out_of_range("a resample has more than 2^31 - 1 rows");
            job(b, times, size, state);
        }
    });
}

void bootstrap(In<double> score, In<double> loss, In<i64> unit, std::size_t units, In<u64> seeds, Out2<i64> totals,
               int threads) {
    const std::size_t n = score.shape(0);
    need(loss.shape(0) == n && unit.shape(0) == n && totals.shape(0) == seeds.shape(0) && totals.shape(1) == 4,
         "lengths differ");
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    nb::gil_scoped_release release;
    Trim trim{workspace()};
    const Resampler plan = make_resampler(score.data(), loss.data(), n, trim.space);
    for_each_resample<Buffer>(unit, units, seeds, threads, [&](std::size_t b, const u32 *times, u64 size, Buffer &memory) {
        const auto count = size <= 65536 ? &resample_totals<std::uint16_t> : &resample_totals<u32>;
        count(plan, times, size, memory, totals.data() + 4 * b);
    });
}

void areas(In<double> score, In<double> loss, In<i64> unit, std::size_t units, In<u64> seeds, bool with_aurc,
           Out2<double> sums, int threads) {
    const std::size_t n = score.shape(0);
    need(loss.shape(0) == n && unit.shape(0) == n && sums.shape(0) == seeds.shape(0) && sums.shape(1) == 5,
         "lengths differ");
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    nb::gil_scoped_release release;
    Trim trim{workspace()};
    const AreaPlan plan = make_area_plan(score.data(), loss.data(), n, trim.space);
    using Harmonic = std::vector<double>;
    for_each_resample<Harmonic>(unit, units, seeds, threads,
                                [&](std::size_t b, const u32 *times, u64 size, Harmonic &harmonic) {
                                    const Areas found = resample_areas(plan, times, size, with_aurc, harmonic);
                                    double *out = sums.data() + 5 * b;
                                    out[0] = found.size;
                                    out[1] = found.bad;
                                    out[2] = found.pairs2;
                                    out[3] = found.accepted2;
                                    out[4] = found.aurc;
                                });
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("auc", &auc, nb::arg("score").noconvert(), nb::arg("error").noconvert(), nb::arg("credit2").noconvert());
    m.def("pairs", &pairs, nb::arg("scores").noconvert(), nb::arg("loss").noconvert(), nb::arg("credit2").noconvert(),
          nb::arg("comparable").noconvert(), nb::arg("threads"));
    m.def("order", &order, nb::arg("x").noconvert(), nb::arg("row").noconvert(), nb::arg("start").noconvert(),
          nb::arg("end").noconvert());
    m.def("concordance", &concordance, nb::arg("credit2").noconvert(), nb::arg("comparable").noconvert());
    m.def("order_free_sum", &sum, nb::arg("x").noconvert());
    m.def("weighted", &weighted, nb::arg("rank").noconvert(), nb::arg("group").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("first").noconvert(), nb::arg("credit").noconvert(),
          nb::arg("against").noconvert());
    m.def("bootstrap", &bootstrap, nb::arg("score").noconvert(), nb::arg("loss").noconvert(),
          nb::arg("unit").noconvert(), nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("totals").noconvert(),
          nb::arg("threads"));
    m.def("areas", &areas, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("unit").noconvert(),
          nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("with_aurc"), nb::arg("sums").noconvert(),
          nb::arg("threads"));
}
