// Orders, sweeps and pairs of all rows, for Python.
#include "bindings.hpp"
#include "values.hpp"

namespace uq {
namespace {

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

void move_to_grid(Out<double> x, double parts, bool narrow, int threads) {
    nb::gil_scoped_release release;
    over_rows(x.shape(0), threads,
              [&](std::size_t, std::size_t from, std::size_t to) { to_grid(x.data() + from, to - from, parts, narrow); });
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

u64 wrong_marks(In<u8> marks) {
    nb::gil_scoped_release release;
    return count_wrong(marks.data(), marks.shape(0));
}

// The same part by part: whole numbers, and the others.
void sweep_parts(In<u8> marks, In<i64> start, Out2<i64> whole, Out2<double> real) {
    const std::size_t parts = whole.shape(0);
    same_length(marks.shape(0));
    need_parts(start, marks.shape(0));
    need(start.shape(0) == parts + 1 && whole.shape(1) == 8 && real.shape(0) == parts && real.shape(1) == 10,
         "lengths differ");
    nb::gil_scoped_release release;
    for (std::size_t k = 0; k < parts; ++k) {
        const u8 *own = marks.data() + start.data()[k];
        if (!(own[0] & kNew)) throw std::out_of_range("the first row of a part starts a value");
        const Sweep found = sweep_marks<true>(own, static_cast<std::size_t>(start.data()[k + 1] - start.data()[k]));
        const u64 counts[8] = {found.n, found.wrong, found.credit2, found.wrong_squares.low, found.right_squares.low,
                               found.later2.low, found.tied_pairs, found.blocks};
        const double sums[10] = {found.aurc, found.best, found.slope, found.rate, found.of_wrong.sum,
                                 found.of_wrong.squares, found.of_right.sum, found.of_right.squares, found.shares2,
                                 found.harmonic};
        std::copy_n(counts, 8, whole.data() + 8 * k);
        std::copy_n(sums, 10, real.data() + 10 * k);
    }
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

nb::list concord(In<double> score, In<double> loss, int threads) {
    const std::size_t n = score.shape(0);
    same_length(n, loss);
    std::vector<Kind> kinds;
    {
        nb::gil_scoped_release release;
        Use use;
        kinds = concordance(score.data(), loss.data(), n, use.space, threads);
    }
    return listed(kinds, n);
}

nb::list concord_ordered(In<u32> row, In<u8> fresh, In<u32> loss_row, In<u8> loss_fresh, int threads) {
    const std::size_t n = row.shape(0);
    same_length(n, fresh, loss_row, loss_fresh);
    std::vector<Kind> kinds;
    {
        nb::gil_scoped_release release;
        Use use;
        const Ordered score(row, fresh, use.space.marks, threads);
        const Ordered loss(loss_row, loss_fresh, use.space.loss_marks, threads);
        const LossOrder losses = bound_losses(loss.row, loss.marks, n, use.space.loss_ties);
        kinds = concordance(reorder(score.row, score.marks, losses, use.space, threads), losses, use.space, threads);
    }
    return listed(kinds, n);
}

void pairs_ordered(In<u32> row, In<u8> fresh, In<u32> loss_row, In<u8> loss_fresh, Out<i64> credit2, int threads) {
    const std::size_t n = row.shape(0);
    same_length(n, fresh, loss_row, loss_fresh, credit2);
    nb::gil_scoped_release release;
    Use use;
    const Ordered score(row, fresh, use.space.marks, threads);
    const Ordered loss(loss_row, loss_fresh, use.space.loss_marks, threads);
    const LossOrder losses = bound_losses(loss.row, loss.marks, n, use.space.loss_ties);
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

}  // namespace

void define_scores(nb::module_ &m) {
    m.def("auc", &auc, nb::arg("score").noconvert(), nb::arg("error").noconvert(), nb::arg("threads"));
    m.def("to_grid", &move_to_grid, nb::arg("x").noconvert(), nb::arg("parts"), nb::arg("narrow"), nb::arg("threads"));
    m.def("order", &order, nb::arg("x").noconvert(), nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("threads"));
    m.def("mark", &mark, nb::arg("score").noconvert(), nb::arg("error").noconvert(), nb::arg("marks").noconvert(),
          nb::arg("threads"));
    m.def("mark_ordered", &mark_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("error").noconvert(), nb::arg("marks").noconvert(), nb::arg("threads"));
    m.def("sweep", &sweep, nb::arg("marks").noconvert());
    m.def("count_wrong", &wrong_marks, nb::arg("marks").noconvert());
    m.def("sweep_parts", &sweep_parts, nb::arg("marks").noconvert(), nb::arg("start").noconvert(),
          nb::arg("whole").noconvert(), nb::arg("real").noconvert());
    m.def("sweep_rows", &sweep_rows, nb::arg("marks").noconvert(), nb::arg("e").noconvert(),
          nb::arg("credit2").noconvert());
    m.def("credits", &credits, nb::arg("marks").noconvert(), nb::arg("credit2").noconvert());
    m.def("concord", &concord, nb::arg("score").noconvert(), nb::arg("loss").noconvert(), nb::arg("threads"));
    m.def("concord_ordered", &concord_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("loss_row").noconvert(), nb::arg("loss_fresh").noconvert(), nb::arg("threads"));
    m.def("pairs", &pairs, nb::arg("scores").noconvert(), nb::arg("loss").noconvert(), nb::arg("credit2").noconvert(),
          nb::arg("comparable").noconvert(), nb::arg("threads"));
    m.def("pairs_ordered", &pairs_ordered, nb::arg("row").noconvert(), nb::arg("fresh").noconvert(),
          nb::arg("loss_row").noconvert(), nb::arg("loss_fresh").noconvert(), nb::arg("credit2").noconvert(),
          nb::arg("threads"));
}

}  // namespace uq
