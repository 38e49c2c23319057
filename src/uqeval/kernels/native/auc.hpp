// UQ-AUC and DeLong's sums, exact, without sorting all rows.
//
// The rarer class ("few", m rows) is sorted; every other row is located among it. For a row with lb of the few below it
// and ub not above it, lb + ub says everything: its credit2 is 2m - (lb + ub), or lb + ub. So one histogram of lb + ub,
// 2m + 1 counters, holds the value, both of DeLong's sums and every tie, as integers.
//
//   few in cache (m <= kDirect):  sort m; locate n - m rows; no copy of the data
//   else:                         rows are scattered once into buckets that fit the cache; each bucket is done so
//   classes of like size:         all rows in order (order.hpp), integers from its marks
//
// Locating: a table of about 8m cells. A cell without few rows (most cells) decides its rows at once: all lie in one gap.
// Rows of the other cells go to a short list and are compared, full doubles, by a search without branches.
#pragma once

#include "sweep.hpp"

namespace uq {

struct AucSums {
    u64 wrong = 0;
    u64 credit2 = 0;  // over the wrong rows; the right rows have the same total
    Wide wrong_squares, right_squares;
};

constexpr std::size_t kDirect = 30000;
constexpr int kMostSteps = 12;
constexpr std::size_t kPad = std::size_t(1) << kMostSteps;
constexpr u32 kSpare = 64;  // counters for rows of mixed cells: a single one would make each increment wait for the last

struct LocatorSpace {  // of one thread
    Buffer sorted, table, first, start, histogram;
    void trim() {
        for (Buffer *buffer : {&sorted, &table, &first, &start, &histogram}) buffer->trim();
    }
};

struct AucSpace {
    Buffer few, marks;
    std::vector<LocatorSpace> located;
    void trim() {
        few.trim();
        marks.trim();
        located.resize(std::min<std::size_t>(located.size(), 1));
        for (LocatorSpace &space : located) space.trim();
    }
};

// What the rows of a bucket earn depends on those of the buckets before it, and on all.
struct Around {
    u64 few_before, many_before, few, many;
    bool few_are_wrong;
};

struct FewSums {
    u64 credit2 = 0;  // over the few
    Wide of_few, of_many;
    void add_many(const Around &around, u64 twice, u64 count) {
        twice += 2 * around.few_before;
        of_many.add_times(around.few_are_wrong ? 2 * around.few - twice : twice, count);
    }
};

// The few, in order and in cells. Gap is 16 bits wide where that is enough.
template <class Gap> class Locator {
  public:
    static constexpr u32 kMixed = u32(1) << (8 * sizeof(Gap) - 1);

    template <class Cell> Locator(const double *few, std::size_t m, u32 cells, Cell cell_of, LocatorSpace &space) : m_(m) {
        start_ = space.start.get<u32>(cells + 2);
        first_ = space.first.get<u32>(m + 1);
        table_ = space.table.get<Gap>(cells + 1);
        sorted_ = space.sorted.get<double>(m + kPad);
        std::fill(start_, start_ + cells + 2, 0);
        for (std::size_t i = 0; i < m; ++i) ++start_[cell_of(few[i]) + 1];
        u32 most = 0, sum = 0;
        for (u32 c = 1; c <= cells; ++c) {
            const u32 count = start_[c];
            most = std::max(most, count);
            start_[c] = sum;
            table_[c - 1] = static_cast<Gap>(count ? kMixed | static_cast<u32>(2 * m + 1 + (c & (kSpare - 1))) : 2 * sum);
            sum += count;
        }
        // start[c + 1] is where cell c starts; once its rows are there, it is where cell c + 1 starts.
        for (std::size_t i = 0; i < m; ++i) sorted_[start_[cell_of(few[i]) + 1]++] = few[i];
        if (most > 16) {  // crowded cells: ties, or a shape that the map does not fit
            for (u32 c = 0; c < cells; ++c) {
                double *from = sorted_ + start_[c], *to = sorted_ + start_[c + 1];
                if (to - from > 16 && !std::all_of(from, to, [=](double x) { return x == *from; })) std::sort(from, to);
            }
        }
        bool ties = false;
        for (std::size_t i = 1; i < m; ++i) {
            const double x = sorted_[i];
            std::size_t j = i;
            while (j > 0 && x < sorted_[j - 1]) {
                sorted_[j] = sorted_[j - 1];
                --j;
            }
            sorted_[j] = x;
            ties = ties || (j && sorted_[j - 1] == x);
        }
        distinct_ = m;
        if (ties) most = keep_distinct(cells);
        steps_ = bit_width(most);
        for (std::size_t k = 0; k < kPad; ++k) sorted_[distinct_ + k] = INFINITY;
        histogram_ = space.histogram.get<u32>(2 * m + 1 + kSpare);
        std::fill_n(histogram_, 2 * m + 1 + kSpare, 0);
    }

    // Counts the rows that keep(i) marks 1; those of the few lie in mixed cells and are left out there.
    template <class Cell, class Keep> void locate(const double *rows, std::size_t n, Keep keep, Cell cell_of) {
        u32 cell[kChunk];
        double list[2 * kChunk];
        std::size_t listed = 0;
        u32 *UQ_RESTRICT histogram = histogram_;
        const Gap *UQ_RESTRICT table = table_;
        const auto flush = [&] {
            distinct_ < m_ ? compare<true>(list, listed, cell_of) : compare<false>(list, listed, cell_of);
            listed = 0;
        };
        for (std::size_t from = 0; from < n; from += kChunk) {
            const std::size_t size = std::min(kChunk, n - from);
            const double *UQ_RESTRICT x = rows + from;
            // One simple loop after another: stores to unknown places beside loads make the CPU guess wrong.
            for (std::size_t i = 0; i < size; ++i) cell[i] = cell_of(x[i]);
            for (std::size_t i = 0; i < size; ++i) cell[i] = table[cell[i]];
            for (std::size_t i = 0; i < size; ++i) ++histogram[cell[i] & (kMixed - 1)];
            for (std::size_t i = 0; i < size; ++i) {
                list[listed] = x[i];
                listed += (cell[i] >> (8 * sizeof(Gap) - 1)) & keep(from + i);
            }
            if (listed > kChunk) flush();
        }
        flush();
    }

    void add_to(FewSums &sums, const Around &around) const {
        const bool ties = distinct_ < m_;
        u64 below = around.many_before;
        for (std::size_t d = 0; d < distinct_; ++d) {
            const u64 start = ties ? first_[d] : d, end = ties ? first_[d + 1] : d + 1;
            const u64 between = histogram_[2 * start], tied = histogram_[start + end];
            sums.add_many(around, 2 * start, between);
            if (tied) sums.add_many(around, start + end, tied);
            const u64 twice = 2 * (below + between) + tied;
            const u64 credit = around.few_are_wrong ? twice : 2 * around.many - twice;
            sums.of_few.add_times(credit, end - start);
            sums.credit2 += credit * (end - start);
            below += between + tied;
        }
        sums.add_many(around, 2 * m_, histogram_[2 * m_]);
    }

  private:
    // Each value once; the fullest cell's number of them.
    u32 keep_distinct(u32 cells) {
        std::size_t d = 0;
        u32 c = 0, most = 0, cell_first = 0;
        for (std::size_t i = 0; i < m_; ++i) {
            if (i && sorted_[i] == sorted_[d - 1]) continue;
            while (i >= start_[c + 1]) {  // the row opens a later cell; start[c + 1] still counts rows, as the test needs
                most = std::max(most, static_cast<u32>(d) - cell_first);
                start_[++c] = cell_first = static_cast<u32>(d);
            }
            first_[d] = static_cast<u32>(i);
            sorted_[d++] = sorted_[i];
        }
        most = std::max(most, static_cast<u32>(d) - cell_first);
        for (++c; c <= cells; ++c) start_[c] = static_cast<u32>(d);
        first_[d] = static_cast<u32>(m_);
        distinct_ = d;
        return most;
    }

    // Rows of mixed cells: lb and ub by a search over the cell's distinct values. What follows them is greater anyway, so
    // the search may run past the cell's end.
    template <int Steps, bool Ties, class Cell> void search(const double *rows, std::size_t n, Cell cell_of) {
        for (std::size_t i = 0; i < n; ++i) {
            const double x = rows[i];
            u32 lb = start_[cell_of(x)];
            for (int k = Steps - 1; k >= 0; --k) lb += u32(sorted_[lb + (u32(1) << k) - 1] < x) << k;
            const u32 equal = lb < distinct_ && sorted_[lb] <= x;
            ++histogram_[Ties ? first_[lb] + first_[lb + equal] : 2 * lb + equal];
        }
    }

    template <bool Ties, class Cell> void compare(const double *rows, std::size_t n, Cell cell_of) {
        switch (steps_) {
        case 1: return search<1, Ties>(rows, n, cell_of);
        case 2: return search<2, Ties>(rows, n, cell_of);
        case 3: return search<3, Ties>(rows, n, cell_of);
        case 4: return search<4, Ties>(rows, n, cell_of);
        case 5: return search<5, Ties>(rows, n, cell_of);
        case 6: return search<6, Ties>(rows, n, cell_of);
        case 7: case 8: return search<8, Ties>(rows, n, cell_of);
        case 9: case 10: case 11: case kMostSteps: return search<kMostSteps, Ties>(rows, n, cell_of);
        default: break;
        }
        const double *sorted = sorted_, *end = sorted + distinct_;
        for (std::size_t i = 0; i < n; ++i) {
            const u32 lb = static_cast<u32>(std::lower_bound(sorted, end, rows[i]) - sorted);
            const u32 ub = lb + (lb < distinct_ && sorted_[lb] == rows[i]);
            ++histogram_[Ties ? first_[lb] + first_[ub] : lb + ub];
        }
    }

    std::size_t m_, distinct_ = 0;
    int steps_ = 0;          // halvings that cover the fullest cell
    double *sorted_;         // the few in order, each value once, padded with +inf
    Gap *table_;             // of each cell: its gap (twice the few below), or kMixed
    u32 *first_;             // of each distinct value: few rows below it
    u32 *start_;             // of each cell: distinct values below it
    u32 *histogram_;         // of lb + ub; then counters that nobody reads, for the rows of mixed cells
};

inline u64 count_ones(const u8 *error, std::size_t n) {
    u64 ones = 0;
    for (std::size_t i = 0; i < n;) {
        u32 part = 0;
        for (const std::size_t stop = std::min(n, i + (std::size_t(1) << 20)); i < stop; ++i) part += error[i];
        ones += part;
    }
    return ones;
}

// m few rows, and n rows of which keep(i) says whether they are of the many.
template <class Keep>
void add_rows(FewSums &sums, const Around &around, const double *few, std::size_t m, const double *rows, std::size_t n,
              Keep keep, Span span, LocatorSpace &space) {
    if (m == 0) return sums.add_many(around, 0, n);
    const std::size_t wanted = std::min(8 * m, std::max(2 * m, n / 2));
    const CellMap map = choose_map(few, m, span, std::min(20, bit_width(wanted - 1)));
    with_cells(map, [&](auto cell_of) {
        const auto work = [&](auto gap) {
            Locator<decltype(gap)> located(few, m, map.cells, cell_of, space);
            located.locate(rows, n, keep, cell_of);
            located.add_to(sums, around);
        };
        2 * m + 1 + kSpare < Locator<u16>::kMixed ? work(u16()) : work(u32());
    });
}

// Value and DeLong's sums; error[i] is 0 or 1, no NaN.
inline AucSums auc_sums(const double *score, const u8 *error, std::size_t n, AucSpace &space, OrderSpace &ordering,
                        int threads = 1) {
    AucSums sums;
    sums.wrong = count_ones(error, n);
    Around around{0, 0, std::min<u64>(sums.wrong, n - sums.wrong), 0, sums.wrong <= n - sums.wrong};
    around.many = n - around.few;
    const std::size_t m = static_cast<std::size_t>(around.few);
    const u8 mark = around.few_are_wrong;
    if (m == 0) return sums;
    if (4 * m > n && (m > kDirect || n <= kTarget)) {
        u8 *marks = space.marks.get<u8>(n);
        order_rows<u32>(score, error, nullptr, n, marks, nullptr, ordering, threads);
        const Sweep found = sweep_marks<false>(marks, n);
        sums.credit2 = found.credit2;
        sums.wrong_squares = found.wrong_squares;
        sums.right_squares = found.right_squares;
        return sums;
    }
    const std::size_t parts = static_cast<std::size_t>(std::max(threads, 1));
    if (space.located.size() < parts) space.located = std::vector<LocatorSpace>(parts);
    std::vector<FewSums> found(parts);
    if (m <= kDirect) {
        const Span span = span_of(score, n);
        double *few = space.few.get<double>(m + 1);
        for (std::size_t i = 0, k = 0; i < n; ++i) {
            few[k] = score[i];
            k += error[i] == mark;
        }
        add_rows(found[0], around, few, m, score, n, [=](std::size_t i) { return u32(error[i] != mark); }, span,
                 space.located[0]);
    } else {
        const Span span = span_of(score, n, threads);
        const CellMap map = choose_map(score, n, span, n > kMany ? 14 : 12);
        double *rows = ordering.rows.get<double>(n);
        const Partition cut = with_cells(map, [&](auto cell_of) {
            return scatter<u32>(score, error, mark, nullptr, n, map.cells, cell_of, std::max(kTarget, n / (2 * kStreams)), threads,
                                rows, nullptr);
        });
        std::vector<u64> few_before(cut.buckets() + 1, 0);
        for (std::size_t b = 0; b < cut.buckets(); ++b) few_before[b + 1] = few_before[b] + cut.first[b];
        over_rows(cut.buckets(), threads, [&](std::size_t t, std::size_t from, std::size_t to) {
            for (std::size_t b = from; b < to; ++b) {
                const double *few = rows + cut.start[b];
                const std::size_t size = cut.start[b + 1] - cut.start[b], f = cut.first[b];
                if (size == 0) continue;
                Around here = around;
                here.few_before = few_before[b];
                here.many_before = cut.start[b] - few_before[b];
                add_rows(found[t], here, few, f, few + f, size - f, [](std::size_t) { return u32(1); },
                         span_of(few, size), space.located[t]);
            }
        });
    }
    for (const FewSums &part : found) {
        sums.credit2 += part.credit2;
        sums.wrong_squares.add(around.few_are_wrong ? part.of_few : part.of_many);
        sums.right_squares.add(around.few_are_wrong ? part.of_many : part.of_few);
    }
    return sums;
}

}  // namespace uq
