// Bootstrap resamples, for Python.
#include "bindings.hpp"
#include "bootstrap.hpp"

namespace uq {
namespace {

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

void define_resamples(nb::module_ &m) {
    m.def("bootstrap", &bootstrap, nb::arg("score").noconvert(), nb::arg("loss").noconvert(),
          nb::arg("unit").noconvert(), nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("totals").noconvert(),
          nb::arg("threads"));
    m.def("precisions", &precisions, nb::arg("marks").noconvert(), nb::arg("seeds").noconvert(),
          nb::arg("values").noconvert(), nb::arg("threads"));
    m.def("areas", &areas, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("unit").noconvert(),
          nb::arg("units"), nb::arg("seeds").noconvert(), nb::arg("with_aurc"), nb::arg("sums").noconvert(),
          nb::arg("threads"));
}

}  // namespace uq
