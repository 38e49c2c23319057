"""Orders, sweeps and sums of all pairs: what they are by definition, on both kernels, at every size and any shape."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings

import oracle
from cases import each, noted, on_both_kernels
from strategies import BACKENDS, TINY, Case, each_backend, make_scores, rows, seeds
from uqeval import InputError, kernels

needs_native = pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")
thorough = settings(max_examples=200)
approx = {"rel": 1e-12, "abs": 1e-12}
INF = math.inf

# Score and error of a few rows.
FEW = [
    ([1.0], [0]),
    ([1.0], [1]),
    ([-INF], [1]),
    ([2.0, 2.0], [0, 1]),
    ([2.0, 1.0], [0, 1]),
    ([-0.0, 0.0], [1, 0]),
    ([0.0, -0.0, -TINY, TINY], [1, 0, 0, 1]),
    ([TINY, 2 * TINY, 3 * TINY, 2 * TINY], [1, 0, 1, 1]),
    ([INF, -INF, INF, 0.0, -INF], [0, 1, 1, 0, 0]),
    ([3.0, 1.0, 2.0], [0, 0, 0]),
    ([3.0, 1.0, 2.0], [1, 1, 1]),
    ([5.0] * 7, [0, 1, 0, 0, 1, 1, 0]),
]


def with_few(test):
    """The test of a case runs on the few rows, too."""
    for score, error in FEW:
        test = example(Case(np.array(score), np.array(error, dtype=np.float64), None))(test)
    return test


def many(n, kind, seed=0):
    """(n,) scores of a shape that is hard to cut into even buckets."""
    rng = np.random.default_rng(seed)
    ulps = 1 + rng.permutation(n) * 2.0**-52
    if kind == "crowd":  # most rows have one value
        return np.where(rng.random(n) < 0.9, 0.25, rng.normal(size=n))
    if kind == "ulps":  # all differ, in the last bits only
        return ulps
    if kind == "outliers":  # the same, and a few rows that are far away
        return np.where(rng.random(n) < 0.001, rng.choice([-INF, INF, -1e300, 1e300, 0.0, TINY], n), ulps)
    if kind == "nested":  # the same, and more rows that are less far
        far = np.where(rng.random(n) < 0.1, 1 + rng.random(n), ulps)
        return np.where(rng.random(n) < 0.001, rng.choice([-INF, INF, 1e300, 1e-300], n), far)
    if kind == "powers":  # all magnitudes, both signs, with ties
        return rng.choice([-1.0, 1.0], n) * 2.0 ** rng.integers(-1074, 1023, n)
    return make_scores(rng, n, kind)


MANY = ("crowd", "ulps", "outliers", "nested", "powers", "magnitudes", "neighbours", "mixture")


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.skipif("UQEVAL_PURE" in os.environ, reason="built without them on purpose")
def test_native_kernels_are_there_where_a_compiler_is():
    assert "native" in kernels.available()  # a build that fails falls back to NumPy in silence


# ---- by definition --------------------------------------------------------------------------------------------


def counted(score, error):
    """The integers of `Sweep`, from all pairs."""
    s, wrong = score, error == 1
    credit2 = oracle.pair_counts(s, error)[0].tolist()
    above, tied = (s[None, :] > s[:, None]).sum(axis=1), (s[None, :] == s[:, None]).sum(axis=1)
    return {
        "rows": len(s),
        "wrong": int(wrong.sum()),
        "credit2": sum(c for c, bad in zip(credit2, wrong, strict=True) if bad),
        "wrong_squares": sum(c * c for c, bad in zip(credit2, wrong, strict=True) if bad),
        "right_squares": sum(c * c for c, bad in zip(credit2, wrong, strict=True) if not bad),
        "later2": int(((2 * above + tied)[wrong] ** 2).sum()),
        "tied_pairs": int((tied - 1).sum()),
        "blocks": len(set(s.tolist())),
    }


def by_place(score, error):
    """g, e, L and the oracle's numbers: each row lies at each place of its ties with the same chance."""
    n, v = len(score), error.astype(np.float64)
    start, end = (score[None, :] < score[:, None]).sum(axis=1), (score[None, :] <= score[:, None]).sum(axis=1)
    k = np.arange(1, n + 1)
    at = ((start < k[:, None]) & (k[:, None] <= end)) / (end - start)  # [place, row]
    until = np.clip((k[:, None] - start) / (end - start), 0, 1)
    risk = np.array([math.fsum(row) for row in until * v]) / k
    later, later_risk = (to_the_end(x) for x in (1 / k, risk / k))
    share = later @ at
    g = v * share + (risk - later_risk) @ at
    rate = int(v.sum()) / n
    best, slope = float(oracle.aurc_opt_of_errors(n, int(v.sum()))), -math.log1p(-rate) if rate < 1 else 0.0
    return g, g - best - slope * (v - rate), share, best, slope, rate


def to_the_end(x):
    """The sum from each place on."""
    return np.cumsum(x[::-1].astype(np.longdouble))[::-1].astype(np.float64)


def floats(score, error):
    """The floats of `Sweep`."""
    _, e, share, best, slope, rate = by_place(score, error)
    wrong, right = e[error == 1], e[error == 0]
    return {
        "aurc": oracle.aurc(score, error),
        "best": best,
        "slope": slope,
        "rate": rate,
        "wrong_sum": math.fsum(wrong),
        "wrong_sum2": math.fsum(wrong**2),
        "right_sum": math.fsum(right),
        "right_sum2": math.fsum(right**2),
        "shares2": math.fsum(share[error == 1] ** 2),
        "harmonic": math.fsum(1 / k for k in range(1, len(score) + 1)),
    }


def sweeps(score, error):
    """From the order, and from marks whose order nobody knows."""
    return kernels.sweep(kernels.mark_ordered(kernels.order_by(score), error)), kernels.sweep(
        kernels.mark(score, error)
    )


def bits(*found):
    """What is the same only if all bits are."""
    return [x.tobytes() if isinstance(x, np.ndarray) else repr(x) for x in found]


def coarse(rng, n):
    """Scores with ties of all sizes, and rows that tie with none between them."""
    return np.where(rng.random(n) < 0.3, np.round(rng.normal(size=n), 1), rng.normal(size=n))


@thorough
@given(rows(target="error", most=80, least=1, weighted=False))
@with_few
def test_integers_are_counts_over_all_pairs(case):
    error = case.target.astype(np.uint8)
    expected = counted(case.score, error)
    for backend in each_backend():
        with noted(kernels=backend):
            for found in sweeps(case.score, error):
                assert {name: getattr(found, name) for name in expected} == expected
            assert found.auc == kernels.auc_sums(case.score, error)


@thorough
@given(rows(target="error", most=50, least=1, weighted=False))
@with_few
def test_floats_are_their_definition_and_areas_have_the_same_bits_on_both_kernels(case):
    error = case.target.astype(np.uint8)
    expected = floats(case.score, error)
    areas = set()
    for backend in each_backend():
        with noted(kernels=backend):
            for found in sweeps(case.score, error):
                assert {name: getattr(found, name) for name in expected} == pytest.approx(expected, **approx)
                areas.add((found.aurc.hex(), found.best.hex(), found.rate.hex()))
    assert len(areas) == 1


@each("n", [256, 257, 264, 700])
@each("share", [0.0, 0.02, 0.5, 1.0])
def test_sweeps_of_more_rows_than_a_chunk_are_their_definition(n, share):
    rng = np.random.default_rng(n)
    for score in (rng.normal(size=n), coarse(rng, n)):
        error = (rng.random(n) < share).astype(np.uint8)
        expected, of_floats = counted(score, error), floats(score, error)
        areas = set()
        for backend in each_backend():
            with noted(kernels=backend):
                for found in sweeps(score, error):
                    assert {name: getattr(found, name) for name in expected} == expected
                    assert {name: getattr(found, name) for name in of_floats} == pytest.approx(of_floats, **approx)
                    areas.add((found.aurc.hex(), found.best.hex(), found.rate.hex()))
        assert len(areas) == 1


@each("n", [3_000, 70_000, 300_000])
@each("kind", ["continuous", "crowd", "mixture", "grid"])
def test_areas_of_many_rows_have_the_same_bits_on_both_kernels(n, kind):
    score = many(n, kind)
    error = (np.random.default_rng(n).random(n) < 0.2).astype(np.uint8)
    found = [kernels.sweep(kernels.mark(score, error)) for _ in each_backend()]
    for other in found[1:]:
        assert other[:8] == found[0][:8]
        assert (other.aurc, other.best, other.rate) == (found[0].aurc, found[0].best, found[0].rate)
        assert other[8:] == pytest.approx(found[0][8:], rel=1e-10)


@given(rows(target="error", most=60, least=1, weighted=False))
@with_few
def test_what_rows_add_to_aurc_sums_to_it(case):
    score, error = case.score, case.target.astype(np.uint8)
    n, g = len(score), by_place(score, error)[0]
    for backend in each_backend():
        with noted(kernels=backend):
            found = kernels.sweep(kernels.mark(score, error))
            assert n * found.aurc == pytest.approx(math.fsum(g), **approx)
            assert n * (found.aurc - found.best) == pytest.approx(found.wrong_sum + found.right_sum, **approx)


@on_both_kernels
def test_no_rows_are_swept():
    score, error = np.empty(0), np.empty(0, dtype=np.uint8)
    for found in sweeps(score, error):
        assert found == (0,) * 18
    e, credit2 = kernels.sweep_rows(kernels.mark(score, error))
    assert len(e) == len(credit2) == 0
    assert kernels.auc_sums(score, error) == (0, 0, 0, 0)


# ---- row by row -----------------------------------------------------------------------------------------------


def check_rows(score, error):
    order = kernels.order_by(score)
    marks = kernels.mark_ordered(order, error)
    found, (e, credit2) = kernels.sweep(marks), kernels.sweep_rows(marks)
    assert (e.dtype, credit2.dtype) == (np.float64, np.uint32)
    np.testing.assert_array_equal(credit2, oracle.pair_counts(score, error)[0][order.row])
    np.testing.assert_allclose(e, by_place(score, error)[1][order.row], rtol=1e-12, atol=1e-12)
    wrong = marks & 1 == 1
    for side, total, square in (
        (wrong, found.wrong_sum, found.wrong_sum2),
        (~wrong, found.right_sum, found.right_sum2),
    ):
        assert math.fsum(e[side]) == pytest.approx(total, **approx)
        assert math.fsum(e[side] ** 2) == pytest.approx(square, **approx)
    assert sum(credit2[wrong].tolist()) == sum(credit2[~wrong].tolist()) == found.credit2
    assert sum(c * c for c in credit2[wrong].tolist()) == found.wrong_squares
    assert sum(c * c for c in credit2[~wrong].tolist()) == found.right_squares


@given(rows(target="error", most=60, least=1, weighted=False))
@with_few
def test_rows_are_their_definition_and_sum_to_the_sweep(case):
    for backend in each_backend():
        with noted(kernels=backend):
            check_rows(case.score, case.target.astype(np.uint8))


@on_both_kernels
@each("n", [256, 257, 264, 700])
def test_rows_of_more_than_a_chunk_are_their_definition_and_sum_to_the_sweep(n):
    rng = np.random.default_rng(n)
    for score in (rng.normal(size=n), coarse(rng, n)):
        check_rows(score, (rng.random(n) < 0.3).astype(np.uint8))


# ---- all pairs ------------------------------------------------------------------------------------------------


def close(found, expected):
    assert found[:2] == expected[:2]
    assert found[2:] == pytest.approx(expected[2:], rel=1e-12, abs=1e-15, nan_ok=True)


def check_concordance(score, loss):
    """The same sums on every way to them; on all kernels."""
    first = None
    for backend in each_backend():
        with noted(kernels=backend):
            order, losses = kernels.order_by(score), kernels.order_by(loss)
            credit2, comparable = kernels.pair_counts(score[None], loss)
            np.testing.assert_array_equal(kernels.ordered_counts(order, losses), credit2[0])
            found = kernels.concordance_sums(credit2[0], comparable)
            assert (found.credit2, found.comparable) == (int(credit2.sum()), int(comparable.sum()))
            first = first or found
            close(found, first)
            close(kernels.concordance(score, loss), first)
            close(kernels.ordered_concordance(order, losses), first)
    return first


@thorough
@given(rows(target="loss", most=80, least=0, weighted=False))
def test_concordance_is_the_sum_of_pair_counts(case):
    credit2, comparable = oracle.pair_counts(case.score, case.target)
    found = check_concordance(case.score, case.target)
    assert (found.credit2, found.comparable) == (credit2.sum(), comparable.sum())


@each("n", [257, 5_000, 70_000])
@each(("scores", "losses"), [(40, 40), (2, 2), (40, 2), (3, None), (None, 3), (400, 400), (40, None), (None, None)])
def test_concordance_of_few_and_of_many_values_is_the_sum_of_pair_counts(n, scores, losses):
    rng = np.random.default_rng(n)
    loss = rng.random(n) if losses is None else rng.integers(0, losses, n) / losses
    score = loss + rng.normal(size=n)
    check_concordance(score if scores is None else np.floor(scores * rng.random(n) ** (1 + loss)), loss)


def tied_share(rng, n, share, size):
    """Numbers of which that share lies in groups of so many equal ones, the others alone."""
    x = rng.permutation(n) + 0.0
    groups = max(1, round(share * n / size)) if share else 0
    x[: groups * size] = np.repeat(n + rng.permutation(groups), size)[:n]
    return rng.permutation(x)


@each("n", [1_500, 20_000, 70_000])
@each("size", [2, 30, 1_100])
def test_concordance_is_the_sum_of_pair_counts_whatever_share_of_rows_ties(n, size, monkeypatch):
    # Few and many ties in the loss are kept in different ways, and so are few and many in the score.
    rng = np.random.default_rng(size)
    for shares in ((0, 0.001), (0.001, 0), (0.05, 0.05), (0.9, 0.05), (0.05, 0.9), (0.9, 0.9), (0, 0.2), (1.0, 0.01)):
        score, loss = (tied_share(rng, n, share, size) for share in shares)
        score = np.where(rng.random(n) < 0.5, score, loss)
        for threads in ("1", "3"):
            monkeypatch.setenv("UQEVAL_THREADS", threads)
            with noted(shares=shares, threads=threads):
                check_concordance(score, loss)


@each("n", [9_000, 70_000])
@each("values", [1, 2, 240, 2_040, 2_060, 5_000])
def test_few_values_are_ordered_and_counted_like_many(n, values, monkeypatch):
    rng = np.random.default_rng(values)
    kinds = np.concatenate([rng.normal(size=values) if values > 4 else np.arange(values) - 0.0, [-0.0, INF, -INF]])
    score = np.where(rng.random(n) < 0.01, rng.choice(kinds, n), kinds[rng.integers(0, values, n)])
    loss, error = rng.integers(0, 40, n) / 8, (rng.random(n) < 0.3).astype(np.uint8)
    for threads in ("1", "2"):
        monkeypatch.setenv("UQEVAL_THREADS", threads)
        expected, marks = located(score, error), None
        for backend in each_backend():
            with noted(kernels=backend, threads=threads):
                order = check_order(score)
                assert kernels.auc_sums(score, error) == expected
                found = kernels.sweep(kernels.mark(score, error))
                assert found.auc == expected
                assert marks is None or found[:8] == marks[:8]
                assert kernels.sweep(kernels.mark_ordered(order, error))[:8] == found[:8]
                marks = found
        check_concordance(score, loss)
        check_concordance(loss, score)


# ---- order ----------------------------------------------------------------------------------------------------


def check_order(x):
    order = kernels.order_by(x)
    expected = np.argsort(x + 0.0, kind="stable")
    assert (order.row.dtype, order.new.dtype) == (np.uint32, np.bool_)
    np.testing.assert_array_equal(order.row, expected)
    ordered = x[expected]
    np.testing.assert_array_equal(order.new, np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(x)])
    return order


@on_both_kernels
@each("n", [1, 2, 31, 32, 33, 34, 255, 256, 257, 8191, 8192, 8193, 65_535, 65_536, 65_537, 150_000])
@each("kind", MANY)
def test_order_is_the_stable_argsort_of_any_shape_and_new_says_where_values_start(n, kind):
    check_order(many(n, kind))


@needs_native
def test_native_order_and_sums_of_millions_of_rows_are_those_of_fewer():
    n = 4_000_001
    rng = np.random.default_rng(0)
    x, error = rng.integers(0, 2**24, n) * 2.0**-24, (rng.random(n) < 0.1).astype(np.uint8)
    former = kernels.use("native")
    order = check_order(x)
    assert kernels.auc_sums(x, error) == kernels.sweep(kernels.mark_ordered(order, error)).auc
    kernels.use(former)


@needs_native
def test_native_squares_of_sweeps_are_exact_beyond_64_bits():
    n = 4_000_000  # all wrong rows above all right ones; no rows tie, or all of a class do
    half = n // 2
    error = (np.arange(n) >= half).astype(np.uint8)
    alone, in_two = error + 2, error.copy()
    in_two[[0, half]] += 2
    former = kernels.use("native")
    for marks, later2 in ((alone, sum((2 * k - 1) ** 2 for k in range(1, half + 1))), (in_two, half**3)):
        found = kernels.sweep(marks)
        assert found.credit2 == 2 * half**2
        assert found.wrong_squares == found.right_squares == half * n**2 > 2**64
        assert found.later2 == later2
    kernels.use(former)


@given(rows(target="error", most=80, least=0, weighted=False))
def test_an_order_knows_its_groups(case):
    x = case.score
    values, sizes = np.unique(x + 0.0, return_counts=True)
    for _ in each_backend():
        order = kernels.order_by(x)
        np.testing.assert_array_equal(x[order.row[order.first]], values)
        np.testing.assert_array_equal(order.size, sizes)
        np.testing.assert_array_equal(order.first, np.cumsum(sizes) - sizes)
        assert order.tied_pairs == (sizes * (sizes - 1)).sum()
        error = case.target.astype(np.uint8)
        marks, other = kernels.mark_ordered(order, error), kernels.mark(x, error)
        np.testing.assert_array_equal(marks & 1, error[order.row])
        np.testing.assert_array_equal(marks >> 1, order.new)
        np.testing.assert_array_equal(other >> 1, order.new)
        if len(x):
            np.testing.assert_array_equal(*(np.add.reduceat(m & 1, order.first) for m in (marks, other)))


# ---- the rare class -------------------------------------------------------------------------------------------


def located(score, error):
    """`auc_sums`, each row located among the sorted rows of the other class."""
    wrong, right = np.sort(score[error == 1]), np.sort(score[error == 0])
    of_wrong = sum(np.searchsorted(right, wrong, side) for side in ("left", "right"))
    of_right = 2 * len(wrong) - sum(np.searchsorted(wrong, right, side) for side in ("left", "right"))
    assert of_wrong.sum() == of_right.sum()
    squares = (int((x.astype(object) ** 2).sum()) for x in (of_wrong, of_right))
    return len(wrong), int(of_wrong.sum()), *squares


# (rows, rows of the rarer class): few, in tables of 16 and of 32 bits; buckets; like classes, few and many.
CLASSES = [
    (8_193, 3),
    (20_000, 6_000),
    (60_000, 18_000),
    (130_000, 31_000),
    (5_000, 2_000),
    (8_192, 400),
    (70_000, 34_000),
]


@each(("n", "rare"), CLASSES)
@each("kind", MANY)
def test_auc_sums_are_exact_whichever_class_is_rare(n, rare, kind):
    rng = np.random.default_rng(rare)
    score, error = many(n, kind), np.zeros(n, dtype=np.uint8)
    error[rng.permutation(n)[:rare]] = 1
    for e in (error, 1 - error):
        expected = located(score, e)
        for backend in each_backend():
            with noted(kernels=backend, wrong=int(e.sum())):
                assert kernels.auc_sums(score, e) == expected


@needs_native
@each("kind", ["continuous", "ulps", "outliers", "magnitudes", "mixture"])
def test_auc_sums_of_many_rare_rows_are_exact_on_any_number_of_threads(kind, monkeypatch):
    n = 600_000
    rng = np.random.default_rng(0)
    score, error = many(n, kind), (rng.random(n) < 0.24).astype(np.uint8)
    former = kernels.use("native")
    for e in (error, 1 - error):
        expected = located(score, e)
        for threads in ("1", "2", "5"):
            monkeypatch.setenv("UQEVAL_THREADS", threads)
            with noted(threads=threads):
                assert kernels.auc_sums(score, e) == expected
    kernels.use(former)


@needs_native
@each("base", [1.0, 2.0**52, -3e300, 5e-324])
def test_auc_sums_of_many_rows_are_exact_where_cells_are_as_narrow_as_the_numbers(base, monkeypatch):
    n, ulp = 560_000, np.spacing(abs(base))
    rng = np.random.default_rng(1)
    error = (rng.random(n) < 0.24).astype(np.uint8)
    former = kernels.use("native")
    for values in (2_100, 4_500, 5_000, 9_000, 40_000):
        score = base + rng.integers(0, values, n) * ulp
        expected = located(score, error)
        for threads in ("1", "2"):
            monkeypatch.setenv("UQEVAL_THREADS", threads)
            with noted(values=values, threads=threads):
                assert kernels.auc_sums(score, error) == expected
    kernels.use(former)


@on_both_kernels
@each("crowd", [1, 2, 5, 12, 25, 50, 100, 200, 900, 3_000, 5_000])
@each("ties", [False, True])
def test_auc_sums_are_exact_however_many_rare_rows_lie_close_together(crowd, ties):
    rng = np.random.default_rng(crowd)
    n = 9_000 + 2 * crowd
    error = np.zeros(n, dtype=np.uint8)
    error[: crowd + 50] = 1
    score = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-300, 300, n)
    near = 1 + rng.integers(0, 4 * crowd, n) * 2.0**-52  # far from each other only for the last bits
    near[:crowd] = 1 + np.arange(crowd) * 2.0**-50
    score = np.where((np.arange(n) < crowd) | (rng.random(n) < 0.5), near, score)
    if ties:
        error[crowd + 50 : crowd + 90], score[crowd + 50 : crowd + 90] = 1, score[:40]
    for e in (error, 1 - error):
        assert kernels.auc_sums(score, e) == located(score, e)


@on_both_kernels
@each("rare", [100, 9_000, 31_000])
def test_auc_sums_are_exact_where_the_classes_hardly_meet(rare):
    n = 130_000
    error = np.zeros(n, dtype=np.uint8)
    error[:rare] = 1
    score = np.where(error == 1, many(n, "ulps"), 2 * many(n, "mixture"))
    for e in (error, 1 - error):
        for s in (score, -score):
            assert kernels.auc_sums(s, e) == located(s, e)


@on_both_kernels
def test_sums_of_clusters_equal_adding_up_rows_and_do_not_depend_on_their_order():
    rng = np.random.default_rng(3)
    for n in (1, 7, 300):
        score, error = rng.integers(0, max(2, n // 4), n) / 8, (rng.random(n) < 0.4).astype(np.uint8)
        clusters = rng.integers(0, 9, n)

        def units(rows, score=score, error=error, clusters=clusters):
            order = kernels.order_by(score[rows])
            marks = kernels.mark_ordered(order, error[rows])
            return order, marks, kernels.unit_sums(order.row, marks, *kernels.sweep_rows(marks), clusters[rows], 9)

        order, marks, found = units(np.arange(n))
        e, credit2 = kernels.sweep_rows(marks)
        code = clusters[order.row]
        for k in range(9):
            assert found[0][k] == pytest.approx(e[code == k].sum(), rel=1e-12, abs=1e-13)
            assert found[1][k] == int(credit2[code == k].sum())
            assert found[2][k] == int(error[clusters == k].sum())
        moved = units(rng.permutation(n))[2]
        assert all(np.array_equal(a, b) for a, b in zip(found, moved, strict=True))


# ---- threads, and the order of rows ---------------------------------------------------------------------------


def everything(score, loss, error):
    """All that is counted with threads."""
    order, losses = kernels.order_by(score), kernels.order_by(loss)
    marks = kernels.mark(score, error)
    other = np.stack([score, -score, loss])
    cut = np.isin(np.arange(len(score)), [0, 100, *range(1000, len(score), 40)])  # by order, and directly
    clusters = kernels.Order(order.row, cut)
    return bits(
        *(order.row, order.new, losses.row, losses.new, marks, kernels.sweep(marks), kernels.auc_sums(score, error)),
        *kernels.pair_counts(score[None], loss),
        *kernels.pair_counts(other, loss),
        *(kernels.ordered_counts(order, losses), kernels.ordered_concordance(order, losses)),
        kernels.concordance(score, loss),
        *kernels.within_sums(score, loss, clusters),
    )


@needs_native
@each("kind", ["continuous", "crowd", "grid"])
def test_any_number_of_threads_gives_the_same_bits(kind, monkeypatch):
    former = kernels.use("native")
    n = 200_000
    rng = np.random.default_rng(0)
    score, loss = many(n, kind), rng.random(n) if kind == "continuous" else rng.integers(0, 50, n) / 50
    error = (rng.random(n) < (0.2 if kind == "continuous" else 0.5)).astype(np.uint8)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("UQEVAL_THREADS", str(threads))
        assert kernels.threads() == threads
        found.append(everything(score, loss, error))
    kernels.use(former)
    assert found[0] == found[1] == found[2]


@on_both_kernels
@each("given", ["0", "two", "-1", "1.5", "00"])
def test_a_bad_number_of_threads_is_refused(given, monkeypatch):
    monkeypatch.setenv("UQEVAL_THREADS", given)
    x, error = np.arange(3.0), np.array([0, 1, 0], dtype=np.uint8)
    for call in (
        lambda: kernels.order_by(x),
        lambda: kernels.auc_sums(x, error),
        lambda: kernels.concordance(x, x),
        lambda: kernels.pair_counts(x[None], x),
    ):
        with pytest.raises(InputError, match=f"UQEVAL_THREADS must be a whole number from 1 on; it is '{given}'"):
            call()


def sums(score, loss, error):
    """All that does not know rows."""
    order, losses = kernels.order_by(score), kernels.order_by(loss)
    return bits(
        *(*sweeps(score, error), kernels.auc_sums(score, error)),
        *(kernels.concordance(score, loss), kernels.ordered_concordance(order, losses)),
    )


@given(rows(target="loss", most=60, least=1, weighted=False), seeds)
def test_sums_of_few_rows_do_not_depend_on_their_order(case, seed):
    rng = np.random.default_rng(seed)
    score, loss, n = case.score, case.target, len(case.score)
    error, turn = (rng.random(n) < 0.4).astype(np.uint8), rng.permutation(n)
    for backend in each_backend():
        with noted(kernels=backend):
            assert sums(score, loss, error) == sums(score[turn], loss[turn], error[turn])


@on_both_kernels
@each("n", [300, 9_000, 130_000])
@each("kind", ["continuous", "crowd", "grid"])
def test_sums_of_many_rows_do_not_depend_on_their_order(n, kind):
    rng = np.random.default_rng(n)
    score, loss = many(n, kind), many(n, "mixture" if kind == "grid" else "grid", seed=1)
    error, turn = (rng.random(n) < 0.25).astype(np.uint8), rng.permutation(n)
    assert sums(score, loss, error) == sums(score[turn], loss[turn], error[turn])


@settings(max_examples=40)
@given(seeds)
def test_running_moments_of_clusters_equal_their_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    clusters, d = rng.integers(0, 5, n), rng.choice([0.0, 0.25, 0.5, 1.0], n)  # sums of which are exact
    expected = np.zeros((6, n + 1))
    for k in range(1, n + 1):
        held = np.bincount(clusters[:k]).astype(float)
        lost = np.bincount(clusters[:k], weights=d[:k])
        expected[:, k] = (held > 0).sum(), lost.sum(), held.sum(), lost @ lost, lost @ held, held @ held
    for _ in each_backend():
        np.testing.assert_array_equal(kernels.running_moments(clusters, d), expected)


@needs_native
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is read where Linux shows it")
def test_memory_that_is_held_changes_no_number_and_goes_back():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=n), rng.normal(size=n)) for n in (1_000, 3_000_000, 70_000, 3_000_000)]
    apart = [kernels.concordance(*part) for part in parts]
    with kernels.held():
        assert [kernels.concordance(*part) for part in parts] == apart
        most = memory()
    assert memory() < most - 40 * 2**20  # 3e6 rows take 60 MB and more


def memory():
    """Bytes that this process holds and the system cannot take."""
    lines = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return 1024 * (int(lines["Rss"].split()[0]) - int(lines["LazyFree"].split()[0]))
