// Python bindings. Arrays come checked and contiguous from kernels/__init__.py; results go into arrays made there.
#include "auc.hpp"
#include "bootstrap.hpp"
#include "clusters.hpp"
#include "concordance.hpp"
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

// Memory that a thread keeps between calls; large blocks go back after each, unless somebody holds them for more calls:
// memory that is new to the process is slow to touch, on a virtual machine very much so.
struct Kept {
    PairSpace pairs;
    AucSpace auc;
};

Kept &kept() {
    static thread_local Kept own;
    return own;
}

std::atomic<int> holders{0};

struct Use {
    PairSpace &space = kept().pairs;
    AucSpace &auc = kept().auc;
    ~Use() {
        if (holders > 0) return;
        space.trim();
        auc.trim();
    }
};

void hold(bool begin) {
    holders += begin ? 1 : -1;
    if (begin) return;
    kept().pairs.trim();
    kept().auc.trim();
}

void need(bool ok, const char *message) {
    if (!ok) throw nb::value_error(message);
}

template <class... Array> void same_length(std::size_t n, const Array &...arrays) {
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    need(((arrays.shape(0) == n) && ...), "lengths differ");
}

nb::int_ whole(const Wide &x) {
    return nb::steal<nb::int_>(PyNumber_Or(nb::int_(x.high).attr("__lshift__")(64).ptr(), nb::int_(x.low).ptr()));
}

nb::tuple auc(In<double> score, In<u8> error, int threads) {
    const std::size_t n = score.shape(0);
    same_length(n, error);
    AucSums sums;
    {
        nb::gil_scoped_release release;
        Use use;
        sums = auc_sums(score.data(), error.data(), n, use.auc, use.space.order, threads);
    }
    return nb::make_tuple(sums.wrong, sums.credit2, whole(sums.wrong_squares), whole(sums.right_squares));
}

// Rows in stable order of x, and 1 where a new value starts.
void order(In<double> x, Out<u32> row, Out<u8> fresh, int threads) {
    const std::size_t n = x.shape(0);
    same_length(n, row, fresh);
    nb::gil_scoped_release release;
    Use use;
    order_rows<u32>(x.data(), nullptr, nullptr, n, fresh.data(), row.data(), use.space.order, threads);
    for (std::size_t i = 0; i < n; ++i) fresh.data()[i] >>= 1;
}

// In order of the score: 1 if wrong, and 2 where a new value starts.
void mark(In<double> score, In<u8> error, Out<u8> marks, int threads) {
    const std::size_t n = score.shape(0);
    same_length(n, error, marks);
    nb::gil_scoped_release release;
    Use use;
    order_rows<u32>(score.data(), error.data(), nullptr, n, marks.data(), nullptr, use.space.order, threads);
}

// The same from an order that is there already, whose tied rows stay as they are.
void mark_ordered(In<u32> row, In<u8> fresh, In<u8> error, Out<u8> marks, int threads) {
    const std::size_t n = row.shape(0);
    same_length(n, fresh, error, marks);
    nb::gil_scoped_release release;
    const u32 *UQ_RESTRICT of = row.data();
    const u8 *UQ_RESTRICT wrong = error.data(), *UQ_RESTRICT first = fresh.data();
    u8 *UQ_RESTRICT out = marks.data();
    over_rows(n, threads, [=](std::size_t, std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            if (of[i] >= n) throw std::out_of_range("a row is outside the rows");
            out[i] = static_cast<u8>(wrong[of[i]] | first[i] << 1);
        }
    });
}

void need_start(const In<u8> &marks) {
    need(marks.shape(0) == 0 || (marks.data()[0] & kNew), "the first row starts a value");
}

nb::tuple sweep(In<u8> marks) {
    Sweep found;
    same_length(marks.shape(0));
    need_start(marks);
    {
        nb::gil_scoped_release release;
        found = sweep_marks<true>(marks.data(), marks.shape(0));
    }
    return nb::make_tuple(found.n, found.wrong, found.credit2, whole(found.wrong_squares), whole(found.right_squares),
                          whole(found.later2), found.tied_pairs, found.blocks, found.aurc, found.best, found.slope,
                          found.rate, found.of_wrong.sum, found.of_wrong.squares, found.of_right.sum,
                          found.of_right.squares, found.shares2, found.harmonic);
}

// e and credit2 of every row, in order of the score (`SweptRows`).
void sweep_rows(In<u8> marks, Out<double> e, Out<u32> credit2) {
    same_length(marks.shape(0), e, credit2);
    need_start(marks);
    nb::gil_scoped_release release;
    sweep_marks<true>(marks.data(), marks.shape(0), SweptRows{e.data(), credit2.data()});
}

// credit2 alone.
void credits(In<u8> marks, Out<u32> credit2) {
    same_length(marks.shape(0), credit2);
    need_start(marks);
    nb::gil_scoped_release release;
    sweep_marks<false>(marks.data(), marks.shape(0), SweptRows{nullptr, credit2.data()});
}

nb::tuple listed(const ConcordanceSums &sums) {
    return nb::make_tuple(sums.credit2, sums.comparable, sums.alike, whole(sums.squares), sums.shift, sums.shift2);
}

nb::tuple concord(In<double> score, In<double> loss, int threads) {
    const std::size_t n = score.shape(0);
    same_length(n, loss);
    ConcordanceSums sums;
    {
        nb::gil_scoped_release release;
        Use use;
        sums = concordance(score.data(), loss.data(), n, use.space, threads);
    }
    return listed(sums);
}

// Rows of an order, checked, and its marks.
struct Ordered {
    const u32 *row;
    u8 *marks;
    Ordered(const In<u32> &rows, const In<u8> &fresh, Buffer &memory, int threads)
        : row(rows.data()), marks(memory.get<u8>(rows.shape(0))) {
        const std::size_t n = rows.shape(0);
        over_rows(n, n < 65536 ? 1 : threads, [&](std::size_t, std::size_t from, std::size_t to) {
            u32 most = 0;
            for (std::size_t i = from; i < to; ++i) most = std::max(most, row[i]);
            if (to > from && most >= n) throw std::out_of_range("a row is outside the rows");
            for (std::size_t i = from; i < to; ++i) marks[i] = fresh.data()[i] ? kNew : 0;
        });
        if (n) marks[0] |= kNew;
    }
};

nb::tuple concord_ordered(In<u32> row, In<u8> fresh, In<u32> loss_row, In<u8> loss_fresh, int threads) {
    const std::size_t n = row.shape(0);
    same_length(n, fresh, loss_row, loss_fresh);
    ConcordanceSums sums;
    {
        nb::gil_scoped_release release;
        Use use;
        const Ordered score(row, fresh, use.space.marks, threads);
        const Ordered loss(loss_row, loss_fresh, use.space.loss_marks, threads);
        const LossOrder losses = bound_losses(loss.row, loss.marks, n, use.space);
        sums = concordance(reorder(score.row, score.marks, losses, use.space, threads), losses, use.space, threads);
    }
    return listed(sums);
}

void pairs_ordered(In<u32> row, In<u8> fresh, In<u32> loss_row, In<u8> loss_fresh, Out<i64> credit2, int threads) {
    const std::size_t n = row.shape(0);
    same_length(n, fresh, loss_row, loss_fresh, credit2);
    nb::gil_scoped_release release;
    Use use;
    const Ordered score(row, fresh, use.space.marks, threads);
    const Ordered loss(loss_row, loss_fresh, use.space.loss_marks, threads);
    const LossOrder losses = bound_losses(loss.row, loss.marks, n, use.space);
    pair_counts(reorder(score.row, score.marks, losses, use.space, threads), losses, credit2.data(), use.space,
                threads);
}

void pairs(In2<double> scores, In<double> loss, Out2<i64> credit2, Out<i64> comparable, int threads) {
    const std::size_t k = scores.shape(0), n = loss.shape(0);
    same_length(n, comparable);
    need(scores.shape(1) == n && credit2.shape(0) == k && credit2.shape(1) == n, "lengths differ");
    nb::gil_scoped_release release;
    Use use;
    const LossOrder losses = order_losses(loss.data(), n, use.space, threads);
    comparable_counts(losses, comparable.data());
    const auto count = [&](std::size_t j, PairSpace &space, int inside) {
        pair_counts(order_score(scores.data() + j * n, losses, space, inside), losses, credit2.data() + j * n, space, inside);
    };
    if (k == 1 || threads <= 1) {
        for (std::size_t j = 0; j < k; ++j) count(j, use.space, threads);
        return;
    }
    in_parallel(k, threads, [&](std::size_t j) {
        PairSpace own;  // the loss order lives in the caller's
        count(j, own, 1);
    });
}

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
        for (std::size_t k = part * kAtOnce; k < std::min(clusters, (part + 1) * kAtOnce); ++k) {
            const std::size_t from = static_cast<std::size_t>(first.data()[k]);
            const std::size_t to = k + 1 < clusters ? static_cast<std::size_t>(first.data()[k + 1]) : n;
            const ClusterPairs found = within_cluster(score.data(), loss.data(), row.data() + from, to - from, space);
            credit2.data()[k] = found.credit2;
            comparable.data()[k] = found.comparable;
        }
    });
}

void units(In<u32> row, In<u8> marks, In<double> e, In<u32> credit2, In<i64> cluster, Out<double> right_e,
           Out<double> wrong_e, Out<i64> credit, Out<i64> wrong) {
    const std::size_t n = row.shape(0), clusters = right_e.shape(0);
    same_length(n, marks, e, credit2, cluster);
    need(wrong_e.shape(0) == clusters && credit.shape(0) == clusters && wrong.shape(0) == clusters, "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
        if (row.data()[i] >= n) throw std::out_of_range("a row is outside the rows");
        const i64 k = cluster.data()[i];
        if (k < 0 || static_cast<std::size_t>(k) >= clusters) throw std::out_of_range("a cluster is outside the clusters");
    }
    unit_sums(row.data(), marks.data(), e.data(), credit2.data(), cluster.data(), n, right_e.data(), wrong_e.data(),
              credit.data(), wrong.data());
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
    Use use;
    const Resampler plan = make_resampler(score.data(), loss.data(), n, use.space);
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
    Use use;
    const AreaPlan plan = make_area_plan(score.data(), loss.data(), n, use.space);
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

// Average precision of resamples, known and foreign rows apart: two seeds each.
void precisions(In<u8> marks, In2<u64> seeds, Out<double> values, int threads) {
    const std::size_t n = marks.shape(0), resamples = seeds.shape(0);
    same_length(n);
    need(seeds.shape(1) == 2 && values.shape(0) == resamples, "lengths differ");
    std::size_t foreign = 0;
    for (std::size_t i = 0; i < n; ++i) foreign += marks.data()[i] & kWrong;
    const auto precision = count_values(marks.data(), n) < n ? &precision_of<true> : &precision_of<false>;
    nb::gil_scoped_release release;
    const std::size_t blocks = std::max<std::size_t>(1, std::min<std::size_t>(resamples, 4 * std::max(threads, 1)));
    in_parallel(blocks, threads, [&](std::size_t block) {
        std::vector<u32> known_times(n - foreign + 1), foreign_times(foreign + 1);
        for (std::size_t b = block; b < resamples; b += blocks) {
            draw_units(seeds.data()[2 * b], n - foreign, known_times.data());
            draw_units(seeds.data()[2 * b + 1], foreign, foreign_times.data());
            values.data()[b] = precision(marks.data(), n, known_times.data(), foreign_times.data(), foreign);
        }
    });
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("hold", &hold, nb::arg("begin"));
    m.def("auc", &auc, nb::arg("score").noconvert(), nb::arg("error").noconvert(), nb::arg("threads"));
    m.def("order", &order, nb::arg("x").noconvert(), nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("threads"));
    m.def("mark", &mark, nb::arg("score").noconvert(), nb::arg("error").noconvert(), nb::arg("marks").noconvert(),
          nb::arg("threads"));
    m.def("mark_ordered", &mark_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("error").noconvert(), nb::arg("marks").noconvert(), nb::arg("threads"));
    m.def("sweep", &sweep, nb::arg("marks").noconvert());
    m.def("sweep_rows", &sweep_rows, nb::arg("marks").noconvert(), nb::arg("e").noconvert(),
          nb::arg("credit2").noconvert());
    m.def("credits", &credits, nb::arg("marks").noconvert(), nb::arg("credit2").noconvert());
    m.def("within", &within, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("row").noconvert(),
          nb::arg("first").noconvert(), nb::arg("credit2").noconvert(), nb::arg("comparable").noconvert(), nb::arg("threads"));
    m.def("units", &units, nb::arg("row").noconvert(), nb::arg("marks").noconvert(), nb::arg("e").noconvert(),
          nb::arg("credit2").noconvert(), nb::arg("cluster").noconvert(), nb::arg("right_e").noconvert(),
          nb::arg("wrong_e").noconvert(), nb::arg("credit").noconvert(), nb::arg("wrong").noconvert());
    m.def("concord", &concord, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("threads"));
    m.def("concord_ordered", &concord_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("loss_row").noconvert(), nb::arg("loss_fresh").noconvert(), nb::arg("threads"));
    m.def("concord_counts", &concord_counts, nb::arg("credit2").noconvert(), nb::arg("comparable").noconvert());
    m.def("pairs", &pairs, nb::arg("scores").noconvert(), nb::arg("loss").noconvert(), nb::arg("credit2").noconvert(),
          nb::arg("comparable").noconvert(), nb::arg("threads"));
    m.def("pairs_ordered", &pairs_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("loss_row").noconvert(), nb::arg("loss_fresh").noconvert(), nb::arg("credit2").noconvert(),
          nb::arg("threads"));
    m.def("moments", &moments, nb::arg("cluster").noconvert(), nb::arg("loss").noconvert(), nb::arg("clusters"),
          nb::arg("out").noconvert());
    m.def("order_free_sum", &sum, nb::arg("x").noconvert());
    m.def("cell_sums", &sums_of_cells, nb::arg("x").noconvert(), nb::arg("cell").noconvert(), nb::arg("sums").noconvert());
    m.def("weighted", &weighted, nb::arg("rank").noconvert(), nb::arg("group").noconvert(),
          nb::arg("weight").noconvert(), nb::arg("first").noconvert(), nb::arg("credit").noconvert(),
          nb::arg("against").noconvert());
    m.def("bootstrap", &bootstrap, nb::arg("score").noconvert(), nb::arg("loss").noconvert(),
          nb::arg("unit").noconvert(), nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("totals").noconvert(),
          nb::arg("threads"));
    m.def("precisions", &precisions, nb::arg("marks").noconvert(), nb::arg("seeds").noconvert(),
          nb::arg("values").noconvert(), nb::arg("threads"));
    m.def("areas", &areas, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("unit").noconvert(),
          nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("with_aurc"), nb::arg("sums").noconvert(),
          nb::arg("threads"));
}
