// What the Python bindings share. Arrays come checked and contiguous from kernels/__init__.py; results go into arrays made
// there.
#pragma once

#include "auc.hpp"
#include "concordance.hpp"
#include "sums.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace uq {

namespace nb = nanobind;

template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void define_scores(nb::module_ &m);
void define_units(nb::module_ &m);
void define_sums(nb::module_ &m);
void define_resamples(nb::module_ &m);

// Memory that a thread keeps between calls; large blocks go back after each, unless somebody holds them for more calls:
// memory that is new to the process is slow to touch, on a virtual machine very much so.
struct Kept {
    PairSpace pairs;
    AucSpace auc;
};

inline Kept &kept() {
    static thread_local Kept own;
    return own;
}

inline std::atomic<int> holders{0};

struct Use {
    PairSpace &space = kept().pairs;
    AucSpace &auc = kept().auc;
    ~Use() {
        if (holders > 0) return;
        space.trim();
        auc.trim();
    }
};

inline void hold(bool begin) {
    holders += begin ? 1 : -1;
    if (begin) return;
    kept().pairs.trim();
    kept().auc.trim();
}

inline void need(bool ok, const char *message) {
    if (!ok) throw nb::value_error(message);
}

template <class... Array> void same_length(std::size_t n, const Array &...arrays) {
    need(n <= kMostRows, "more than 2^31 - 1 rows");
    need(((arrays.shape(0) == n) && ...), "lengths differ");
}

inline nb::int_ whole(const Wide &x) {
    return nb::steal<nb::int_>(PyNumber_Or(nb::int_(x.high).attr("__lshift__")(64).ptr(), nb::int_(x.low).ptr()));
}

inline void need_start(const In<u8> &marks) {
    need(marks.shape(0) == 0 || (marks.data()[0] & kNew), "the first row starts a value");
}

// Part k holds the places start[k] to start[k + 1] - 1 of n.
inline void need_parts(const In<i64> &start, std::size_t n) {
    const std::size_t parts = start.shape(0);
    need(parts > 0 && start.data()[0] == 0 && start.data()[parts - 1] == static_cast<i64>(n), "parts do not hold all rows");
    for (std::size_t k = 1; k < parts; ++k) {
        const i64 size = start.data()[k] - start.data()[k - 1];
        need(size > 0 && size <= static_cast<i64>(kMostInPart), "a part is empty or too large");
    }
}

// Of each kind of rows that there is: rows of another loss, rows, sums of credit2 and of its squares.
inline nb::list listed(const std::vector<Kind> &kinds, std::size_t n) {
    nb::list found;
    for (const Kind &kind : kinds) {
        if (kind.rows) found.append(nb::make_tuple(n - kind.alike, kind.rows, kind.total, whole(kind.squares)));
    }
    return found;
}

inline nb::tuple listed(const ConcordanceSums &sums) {
    return nb::make_tuple(sums.credit2, sums.comparable, sums.alike, whole(sums.squares), sums.shift, sums.shift2);
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

}  // namespace uq
