// UQ-AUC and DeLong's sums, exact, without sorting all rows.
//
// The rarer class ("few", m rows) is sorted; every other row is located among it. For a row with lb of the few below it
// and ub not above it, lb + ub says everything: its credit2 is 2m - (lb + ub), or lb + ub. So one histogram of lb + ub,
// 2m + 1 counters, holds the value, both of DeLong's sums and every tie, as integers.
//
//   few in cache (m <= kDirect…): sort m; locate n - m rows; no copy of the data
//   else:                         rows are scattered once into buckets that fit the cache; each bucket is done so
//   classes of like size:         all rows in order (order.hpp), integers from its marks
//
// Locating: 4 to 16 cells for each of the few, a bit each, 32 in a word with the number of bits set before it. A cell without
// few rows (most cells) decides its rows at once: all lie in one gap, whose number is a sum of bits. Rows of the other
// cells go to a short list and are compared, full doubles, by a search without branches. Words and gaps take 6 bytes for
// each of the few: up to 8,000 of them fit the first cache.
#pragma once

#include "digits.hpp"
#include "pieces.hpp"
#include "sweep.hpp"

namespace uq {

struct AucSums {
    u64 wrong = 0;
    u64 credit2 = 0;  // over the wrong rows; the right rows have the same total
    Wide wrong_squares, right_squares;
};

constexpr std::size_t kDirect = 30000, kDirectAlone = 130000;  // of the few: on several threads, on one
constexpr std::size_t kFewInBucket = 4096;
constexpr int kMostSteps = 12;
constexpr std::size_t kPad = std::size_t(1) << kMostSteps;

struct LocatorSpace {  // of one thread
    Buffer few, sorted, words, first, start, gaps, places, cells;
    void trim() {
        for (Buffer *buffer : {&few, &sorted, &words, &first, &start, &gaps, &places, &cells}) buffer->trim();
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
    Squares of_few, of_many;
    void add_many(const Around &around, u64 twice, u64 count) {
        twice += 2 * around.few_before;
        of_many.add(around.few_are_wrong ? 2 * around.few - twice : twice, count);
    }
};

// The few, in order and in cells. Count is 16 bits wide where a bucket has no more rows.
template <class Count> class Locator {
  public:
    template <class Cell> Locator(const double *few, std::size_t m, u32 cells, Cell cell_of, LocatorSpace &space) : m_(m) {
        const std::size_t words = cells / 32 + 1;
        words_ = space.words.get<u64>(words);
        std::fill_n(words_, words, 0);
        u32 *UQ_RESTRICT cell = space.cells.get<u32>(m);
        for (std::size_t i = 0; i < m; ++i) cell[i] = cell_of(few[i]);
        for (std::size_t i = 0; i < m; ++i) words_[cell[i] >> 5] |= u32(1) << (cell[i] & 31);
        u32 taken = 0;
        for (std::size_t w = 0; w < words; ++w) {
            const u32 bits = static_cast<u32>(words_[w]);
            words_[w] |= u64(taken) << 32;
            taken += bits_set(bits);
        }
        // The few by cell; start_[k + 1] is where the k-th taken cell starts until its rows are there, then where it ends.
        start_ = space.start.get<u32>(taken + 2);
        std::fill_n(start_, taken + 2, 0);
        for (std::size_t i = 0; i < m; ++i) ++start_[(cell[i] = gap_of(cell[i])) + 2];
        u32 most = 0, sum = 0;
        for (u32 k = 1; k <= taken + 1; ++k) {
            const u32 count = start_[k];
            most = std::max(most, count);
            start_[k] = sum += count;
        }
        sorted_ = space.sorted.get<double>(m + kPad);
        for (std::size_t i = 0; i < m; ++i) sorted_[start_[cell[i] + 1]++] = few[i];
        if (most > 16) {  // crowded cells: ties, or a shape that the map does not fit
            for (u32 k = 0; k < taken; ++k) {
                double *from = sorted_ + start_[k], *to = sorted_ + start_[k + 1];
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
        taken_ = taken;
        distinct_ = m;
        first_ = space.first.get<u32>(m + 1);
        if (ties) most = keep_distinct();
        steps_ = bit_width(most);
        for (std::size_t k = 0; k < kPad; ++k) sorted_[distinct_ + k] = INFINITY;
        gaps_ = space.gaps.get<Count>(taken + 1);
        places_ = space.places.get<Count>(2 * distinct_ + 1);
        std::fill_n(gaps_, taken + 1, Count(0));
        std::fill_n(places_, 2 * distinct_ + 1, Count(0));
    }

    // Counts the rows that keep(i) marks 1; those of the few lie in taken cells and are left out there. `compare_rest` is
    // to be called in the end.
    template <class Cell, class Keep> UQ_WIDE void locate(const double *rows, std::size_t n, Keep keep, Cell cell_of) {
        u32 cell[kChunk], taken[kChunk], *UQ_RESTRICT gap = list_.gap;
        double *UQ_RESTRICT list = list_.rows;
        std::size_t listed = list_.size;
        Count *UQ_RESTRICT gaps = gaps_;
        const u64 *UQ_RESTRICT words = words_;
        for (std::size_t from = 0; from < n; from += kChunk) {
            const std::size_t size = std::min(kChunk, n - from);
            const double *UQ_RESTRICT x = rows + from;
            for (std::size_t i = 0; i < size; ++i) cell[i] = cell_of(x[i]);
            std::size_t in_taken = 0;
            for (std::size_t i = 0; i < size; ++i) {
                const u64 word = words[cell[i] >> 5];
                const u32 until = static_cast<u32>(word) << (31 - (cell[i] & 31));  // bits up to the cell's own, on top
                cell[i] = static_cast<u32>(word >> 32) + bits_set(until);
                ++gaps[cell[i]];
                taken[in_taken] = static_cast<u32>(i);
                in_taken += until >> 31;
            }
            for (std::size_t k = 0; k < in_taken; ++k) {  // in no gap after all
                const u32 i = taken[k];
                --gaps[cell[i]];
                list[listed] = x[i];
                gap[listed] = cell[i] - 1;
                listed += keep(from + i);
            }
            if (listed > kChunk) {
                compare(list, gap, listed);
                listed = 0;
            }
        }
        list_.size = listed;
    }

    void compare_rest() { compare(list_.rows, list_.gap, list_.size); }

    void add_to(FewSums &sums, const Around &around) const {
        const bool ties = distinct_ < m_;
        u64 below = around.many_before;
        std::size_t d = 0;
        for (std::size_t k = 0; k < taken_; ++k) {
            u64 gap = gaps_[k];  // before the k-th taken cell, as the rows of that cell before its first value
            for (; d < start_[k + 1]; ++d) {
                const u64 start = ties ? first_[d] : d, end = ties ? first_[d + 1] : d + 1;
                const u64 between = gap + places_[2 * d], tied = places_[2 * d + 1];
                gap = 0;
                sums.add_many(around, 2 * start, between);
                if (tied) sums.add_many(around, start + end, tied);
                const u64 twice = 2 * (below + between) + tied;
                const u64 credit = around.few_are_wrong ? twice : 2 * around.many - twice;
                sums.of_few.add(credit, end - start);
                sums.credit2 += credit * (end - start);
                below += between + tied;
            }
            // Rows behind the last value of a taken cell lie before the first of the next one.
        }
        sums.add_many(around, 2 * m_, u64(gaps_[taken_]) + places_[2 * distinct_]);
    }

  private:
    // Taken cells before a cell.
    u32 gap_of(u32 cell) const {
        const u64 word = words_[cell >> 5];
        return static_cast<u32>(word >> 32) + bits_set(static_cast<u32>(word) & ((u32(1) << (cell & 31)) - 1));
    }

    // Each value once; the fullest cell's number of them. start_ counts values from then on.
    u32 keep_distinct() {
        std::size_t d = 0, i = 0;
        u32 most = 0;
        for (u32 k = 0; k < taken_; ++k) {
            const std::size_t end = start_[k + 1], before = d;
            start_[k] = static_cast<u32>(d);
            for (; i < end; ++i) {
                if (d > before && sorted_[i] == sorted_[d - 1]) continue;
                first_[d] = static_cast<u32>(i);
                sorted_[d++] = sorted_[i];
            }
            most = std::max(most, static_cast<u32>(d - before));
        }
        start_[taken_] = static_cast<u32>(d);
        first_[d] = static_cast<u32>(m_);
        distinct_ = d;
        return most;
    }

    // Rows of taken cells: before, on or behind which of the cell's values? What follows them is greater anyway, so the
    // search may run past the cell's end. places_ counts rows before a value, then rows on it.
    template <int Steps> void search(const double *rows, const u32 *gap, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
            const double x = rows[i];
            u32 at = start_[gap[i]];
            for (int k = Steps - 1; k >= 0; --k) at += u32(sorted_[at + (u32(1) << k) - 1] < x) << k;
            ++places_[2 * at + (at < distinct_ && sorted_[at] <= x)];
        }
    }

    void compare(const double *rows, const u32 *gap, std::size_t n) {
        switch (steps_) {
        case 1: return search<1>(rows, gap, n);
        case 2: return search<2>(rows, gap, n);
        case 3: return search<3>(rows, gap, n);
        case 4: return search<4>(rows, gap, n);
        case 5: return search<5>(rows, gap, n);
        case 6: return search<6>(rows, gap, n);
        case 7: case 8: return search<8>(rows, gap, n);
        case 9: case 10: case 11: case kMostSteps: return search<kMostSteps>(rows, gap, n);
        default: break;
        }
        const double *sorted = sorted_, *end = sorted + distinct_;
        for (std::size_t i = 0; i < n; ++i) {
            const std::size_t at = static_cast<std::size_t>(std::lower_bound(sorted, end, rows[i]) - sorted);
            ++places_[2 * at + (at < distinct_ && sorted_[at] == rows[i])];
        }
    }

    struct List {  // rows of taken cells, and the taken cells before
        double rows[2 * kChunk];
        u32 gap[2 * kChunk];
        std::size_t size = 0;
    };

    List list_;
    std::size_t m_, distinct_ = 0, taken_ = 0;
    int steps_ = 0;          // halvings that cover the fullest cell
    double *sorted_;         // the few in order, each value once, padded with +inf
    u64 *words_;             // of 32 cells: which are taken, and how many were before
    u32 *first_;             // of each distinct value, where there are ties: few rows below it
    u32 *start_;             // of each taken cell: distinct values below it
    Count *gaps_;            // rows of cells that are not taken, by the taken cells before
    Count *places_;          // of each distinct value: rows of its cell before it, and on it
};

// Bits of the number of cells for m few and n other rows.
inline int cell_bits(std::size_t m, std::size_t n) {
    return std::min(22, bit_width(std::min(16 * m, std::max(4 * m, n / 2)) - 1));
}

struct KeepAll {
    u32 operator()(std::size_t) const { return 1; }
};
struct KeepOthers {
    const u8 *error;
    u8 mark;
    u32 operator()(std::size_t i) const { return error[i] != mark; }
};

// m few rows, and n others; for_rows(f) calls f(rows, how many, keep), where keep(i) says whether a row is one of the others.
template <class ForRows>
void add_rows(FewSums &sums, const Around &around, const double *few, std::size_t m, std::size_t n, const CellMap &map,
              LocatorSpace &space, ForRows for_rows) {
    with_cells(map, [&](auto cell_of) {
        const auto work = [&](auto count) {
            Locator<decltype(count)> located(few, m, map.cells, cell_of, space);
            for_rows([&](const double *rows, std::size_t size, auto keep) { located.locate(rows, size, keep, cell_of); });
            located.compare_rest();
            located.add_to(sums, around);
        };
        n < 65536 ? work(u16()) : work(u32());
    });
}

// The rows of one bucket.
inline void add_bucket(FewSums &sums, const Around &around, const Pieces &cut, std::size_t bucket, const CellMap &map,
                       LocatorSpace &space) {
    const std::size_t m = cut.size(bucket, 1), n = cut.size(bucket, 0);
    if (m == 0) return sums.add_many(around, 0, n);
    double *few = space.few.get<double>(m);
    cut.collect(cut.rows, bucket, 1, few);
    CellMap near = zoom(map, cut.cell[bucket], cut.cell[bucket + 1], cell_bits(m, n));
    if (cut.cell[bucket + 1] - cut.cell[bucket] < 3 || !exact(near)) {  // a crowd: its own span tells more
        Span span = span_of(few, m);
        cut.each(cut.rows, bucket, 0, [&](const double *rows, std::size_t size) {
            const Span here = span_of(rows, size);
            span = {std::min(span.low, here.low), std::max(span.high, here.high)};
        });
        near = choose_map(few, m, span, cell_bits(m, n));
    }
    add_rows(sums, around, few, m, n, near, space, [&](auto locate) {
        cut.each(cut.rows, bucket, 0, [&](const double *rows, std::size_t size) {
            locate(rows, size, KeepAll());
        });
    });
}

// Few values: the wrong and the right rows of each say it all.
inline void add_values(AucSums &sums, const std::vector<ValueRows> &rows) {
    u64 right_below = 0, wrong_above = sums.wrong;
    Squares of_wrong, of_right;
    for (const ValueRows &value : rows) {
        const u64 wrong = value.marked, right = value.others;
        wrong_above -= wrong;
        const u64 credit1 = 2 * right_below + right, credit0 = 2 * wrong_above + wrong;
        sums.credit2 += credit1 * wrong;
        of_wrong.add(credit1, wrong);
        of_right.add(credit0, right);
        right_below += right;
    }
    of_wrong.add_to(sums.wrong_squares);
    of_right.add_to(sums.right_squares);
}

// Value and DeLong's sums; error[i] is 0 or 1, no NaN.
inline AucSums auc_sums(const double *score, const u8 *error, std::size_t n, AucSpace &space, OrderSpace &ordering,
                        int threads = 1) {
    AucSums sums;
    sums.wrong = count_wrong(error, n);
    Around around{0, 0, std::min<u64>(sums.wrong, n - sums.wrong), 0, sums.wrong <= n - sums.wrong};
    around.many = n - around.few;
    const std::size_t m = static_cast<std::size_t>(around.few);
    const u8 mark = around.few_are_wrong;
    if (m == 0) return sums;
    Values values;
    if (find_values(score, n, threads, ordering.ranks, values)) {
        add_values(sums, rows_of_values(values, error, n));
        return sums;
    }
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
    if (m <= (threads > 1 ? kDirect : kDirectAlone)) {
        const Span span = span_of(score, n);
        double *few = space.few.get<double>(m + 1);
        for (std::size_t i = 0, k = 0; i < n; ++i) {
            few[k] = score[i];
            k += error[i] == mark;
        }
        const KeepOthers keep{error, mark};
        add_rows(found[0], around, few, m, n - m, choose_map(few, m, span, cell_bits(m, n)), space.located[0],
                 [&](auto locate) { locate(score, n, keep); });
    } else {
        const CellMap map = choose_map(score, n, span_of(score, n, threads), 12);
        const std::size_t target = std::max(n / kStreams, std::min<std::size_t>(65536, n * kFewInBucket / m));
        const Pieces cut = with_cells(map, [&](auto cell_of) {
            return send_to_buckets<u32>(score, error, mark, nullptr, n, map.cells, cell_of, target, threads, ordering.rows,
                                        nullptr);
        });
        std::vector<Around> before(cut.buckets, around);
        for (std::size_t b = 0; b + 1 < cut.buckets; ++b) {
            before[b + 1].few_before = before[b].few_before + cut.size(b, 1);
            before[b + 1].many_before = before[b].many_before + cut.size(b, 0);
        }
        over_rows(cut.buckets, threads, [&](std::size_t t, std::size_t from, std::size_t to) {
            for (std::size_t b = from; b < to; ++b) add_bucket(found[t], before[b], cut, b, map, space.located[t]);
        });
    }
    for (const FewSums &part : found) {
        sums.credit2 += part.credit2;
        part.of_few.add_to(around.few_are_wrong ? sums.wrong_squares : sums.right_squares);
        part.of_many.add_to(around.few_are_wrong ? sums.right_squares : sums.wrong_squares);
    }
    return sums;
}

}  // namespace uq
