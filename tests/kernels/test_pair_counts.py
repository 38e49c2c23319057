"""Pair counts: both twins give the same integers, and they are the ones that counting all pairs gives."""

from __future__ import annotations

import math
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from cases import each, on_both_kernels
from strategies import BACKENDS, SCORES, TINY, each_backend, make_errors, make_scores, rows, seeds
from uqeval import kernels

needs_native = pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")
thorough = settings(max_examples=200)

# (rows, distinct scores, distinct losses); None: no ties. The sizes cross the digit changes of both kernels.
LARGE = [
    (5_000, None, None),
    (5_000, 7, 3),
    (70_000, None, None),
    (70_000, 1000, None),
    (70_000, None, 1000),
    (300_000, None, None),
    (300_000, 1000, 50),
    (300_000, 2, 2),
]


def make_large(n, scores, losses, seed=0):
    rng = np.random.default_rng(seed)
    loss = rng.random(n) if losses is None else rng.integers(0, losses, n) / losses
    noise = rng.normal(size=n)
    score = loss + noise if scores is None else np.round(scores * (loss / 2 + rng.random(n) / 2)) / scores
    return score, loss


def auc_credit2(score, error):
    """credit2 of every row."""
    order = kernels.order_by(score)
    credit2 = np.empty(len(score), dtype=np.int64)
    credit2[order.row] = kernels.sweep_rows(kernels.mark_ordered(order, error))[1]
    return credit2


def weighted(score, loss, weights, clusters=None):
    """Credit and comparable weight of every row, of all rows or inside clusters."""
    parts = None if clusters is None else kernels.group(clusters)
    return kernels.weighted_pair_counts(kernels.order_by(score), kernels.order_by(loss), weights, parts)


# ---- order ----------------------------------------------------------------------------------------------------


@thorough
@given(rows(target="loss", most=120, least=0, weighted=False))
def test_order_is_stable_and_knows_its_ties(case):
    x = case.score
    expected = sorted(range(len(x)), key=lambda i: x[i])  # Python's sort is stable; −0.0 equals 0.0
    for _ in each_backend():
        order = kernels.order_by(x)
        assert order.row.tolist() == expected
        ordered = x[order.row]
        assert order.start.tolist() == [int((ordered < v).sum()) for v in ordered]
        assert order.end.tolist() == [int((ordered <= v).sum()) for v in ordered]
        assert order.ties == (len(set(x.tolist())) < len(x))


@on_both_kernels
@each("n", [255, 256, 257, 4095, 4097, 6_001, 65_535, 65_537, 200_001])
@each("kind", SCORES)
def test_order_is_numpys_stable_argsort_at_any_size(n, kind):
    x = make_scores(np.random.default_rng(n), n, kind)
    order = kernels.order_by(x)
    np.testing.assert_array_equal(order.row, np.argsort(x + 0.0, kind="stable"))
    ordered = x[order.row]
    np.testing.assert_array_equal(order.start, np.searchsorted(ordered, ordered, side="left"))
    np.testing.assert_array_equal(order.end, np.searchsorted(ordered, ordered, side="right"))


# ---- counts ---------------------------------------------------------------------------------------------------


@thorough
@given(rows(target="loss", most=120, least=0, weighted=False))
def test_pair_counts_equal_counting_all_pairs(case):
    credit2, comparable = oracle.pair_counts(case.score, case.target)
    for backend in each_backend():
        found = kernels.pair_counts(case.score[None], case.target)
        assert found[0].dtype == found[1].dtype == np.int64
        assert found[0].shape == (1, len(case.score))
        np.testing.assert_array_equal(found[0][0], credit2, err_msg=backend)
        np.testing.assert_array_equal(found[1], comparable, err_msg=backend)


@thorough
@given(rows(target="error", most=120, least=0, weighted=False))
def test_auc_credits_equal_counting_all_pairs_and_their_sums_are_exact(case):
    error = case.target.astype(np.uint8)
    expected = oracle.pair_counts(case.score, case.target)[0]
    wrong, right = expected[error == 1].tolist(), expected[error == 0].tolist()
    for backend in each_backend():
        sums = kernels.auc_sums(case.score, error)
        np.testing.assert_array_equal(auc_credit2(case.score, error), expected, err_msg=backend)
        assert sums.wrong == len(wrong)
        assert sums.credit2 == sum(wrong) == sum(right)
        assert sums.wrong_squares == sum(c * c for c in wrong)
        assert sums.right_squares == sum(c * c for c in right)


@on_both_kernels
@each("values", [[], [1.0], [1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [-0.0, 0.0], [0.0, TINY], [-math.inf, math.inf]])
def test_no_row_one_row_and_two_rows_are_counted(values):
    score, loss = np.array(values), np.arange(len(values), dtype=np.float64)
    credit2, comparable = kernels.pair_counts(score[None], loss)
    expected = oracle.pair_counts(score, loss)
    assert credit2.tolist() == [expected[0].tolist()]
    assert comparable.tolist() == expected[1].tolist()
    error = loss.astype(np.uint8)
    assert auc_credit2(score, error).tolist() == expected[0].tolist()
    order = kernels.order_by(score)
    assert len(order.row) == len(order.start) == len(order.end) == len(values)


@on_both_kernels
@each("scores", [0, 1, 3, 8])
@each("n", [0, 1, 2, 100, 3_000])
def test_many_scores_at_once_equal_one_by_one_for_any_number_of_threads(scores, n, monkeypatch):
    rng = np.random.default_rng(n)
    loss = rng.integers(0, 20, n) / 20
    table = rng.integers(0, 50, (scores, n)) / 50
    table[: scores // 2] += rng.normal(size=(scores // 2, n))
    one_by_one = [kernels.pair_counts(row[None].copy(), loss)[0][0] for row in table]
    for threads in (1, 2, 4):
        monkeypatch.setenv("UQEVAL_THREADS", str(threads))
        credit2, comparable = kernels.pair_counts(table, loss)
        assert credit2.shape == (scores, n)
        for got, expected in zip(credit2, one_by_one, strict=True):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(comparable, n - np.array([(loss == d).sum() for d in loss], dtype=np.int64))


@needs_native
@each(("n", "scores", "losses"), LARGE)
def test_twins_give_the_same_integers_on_large_data_for_any_number_of_threads(n, scores, losses, monkeypatch):
    score, loss = make_large(n, scores, losses)
    error = (loss > 0.5).astype(np.uint8)
    found = {}
    for backend in each_backend():
        monkeypatch.setenv("UQEVAL_THREADS", "1")
        found[backend] = (
            kernels.pair_counts(score[None], loss),
            auc_credit2(score, error),
            kernels.auc_sums(score, error),
        )
        if backend == "native":
            for threads in (2, 4):
                monkeypatch.setenv("UQEVAL_THREADS", str(threads))
                again = kernels.pair_counts(score[None], loss)
                np.testing.assert_array_equal(again[0], found[backend][0][0])
                np.testing.assert_array_equal(again[1], found[backend][0][1])
    (pairs, auc, sums), (native_pairs, native_auc, native_sums) = found["numpy"], found["native"]
    np.testing.assert_array_equal(pairs[0], native_pairs[0])
    np.testing.assert_array_equal(pairs[1], native_pairs[1])
    np.testing.assert_array_equal(auc, native_auc)
    assert sums == native_sums
    assert sums.wrong_squares == sum(c * c for c in auc[error == 1].tolist())
    assert sums.right_squares == sum(c * c for c in auc[error == 0].tolist())
    # The definition on a sample of rows.
    for i in np.random.default_rng(1).integers(0, n, 40):
        tied, below, above = score == score[i], loss < loss[i], loss > loss[i]
        credit = (
            2 * ((score < score[i]) & below).sum()
            + 2 * ((score > score[i]) & above).sum()
            + (tied & (below | above)).sum()
        )
        assert pairs[0][0, i] == credit
        assert pairs[1][i] == below.sum() + above.sum()


@on_both_kernels
def test_squares_are_exact_beyond_64_bits():
    n = 4_000_000  # all wrong rows above all right ones: credit2 = n for each, Σ credit2² = n³/2 = 3.2e19 > 2⁶⁴
    score = np.arange(n, dtype=np.float64)
    error = (score >= n // 2).astype(np.uint8)
    sums = kernels.auc_sums(score, error)
    assert sums.credit2 == 2 * (n // 2) ** 2
    assert sums.wrong_squares == sums.right_squares == (n // 2) * n**2 > 2**64


@on_both_kernels
def test_strided_read_only_and_reversed_arrays_are_counted_and_not_changed():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (50, 3)).astype(np.float64)
    before = table.copy()
    table.setflags(write=False)
    score, loss = table[:, 0], table[::-1, 1]
    expected = oracle.pair_counts(score, loss)
    credit2, comparable = kernels.pair_counts(score[None], loss)
    np.testing.assert_array_equal(credit2[0], expected[0])
    np.testing.assert_array_equal(comparable, expected[1])
    np.testing.assert_array_equal(kernels.order_by(loss).row, np.argsort(loss, kind="stable"))
    error, right = (loss > 4).astype(np.uint8), oracle.pair_counts(score, loss > 4)[0]
    np.testing.assert_array_equal(auc_credit2(score, error), right)
    two = np.stack([error, 1 - error], axis=1)
    two.setflags(write=False)
    assert kernels.auc_sums(score, two[:, 0]).credit2 == right[error == 1].sum()
    np.testing.assert_array_equal(table, before)


# ---- sums -----------------------------------------------------------------------------------------------------


@thorough
@given(
    seeds, st.integers(0, 300), st.sampled_from(["normal", "positive", "wide", "cancel", "denormal", "huge", "zeros"])
)
def test_order_free_sum_is_the_exact_sum_whatever_the_order_and_the_kernel(seed, n, kind):
    rng = np.random.default_rng(seed)
    x = {
        "normal": lambda: rng.normal(size=n),
        "positive": lambda: rng.random(n),
        "wide": lambda: rng.normal(size=n) * 10.0 ** rng.integers(-12, 12, n),
        "cancel": lambda: np.concatenate([a := rng.normal(size=n // 2) * 1e6, -a, rng.random(n % 2)]),
        "denormal": lambda: rng.integers(-9, 9, n) * TINY,
        "huge": lambda: rng.normal(size=n) * 1e300,
        "zeros": lambda: np.zeros(n),
    }[kind]()
    exact = math.fsum(x)
    size = float(np.abs(x).max(initial=0.0))
    found = {kernels.order_free_sum(order) for _ in each_backend() for order in (x, x[::-1].copy(), rng.permutation(x))}
    assert len(found) == 1
    (value,) = found
    # One unit in the last place of the sum; or, after cancellation, far below one of the largest term.
    assert abs(value - exact) <= max(math.ulp(exact), n * size * 2.0**-90)


@on_both_kernels
@each("n", [1_000, 300_000])
def test_order_free_sum_is_bitwise_the_same_for_every_order_of_many_rows(n):
    rng = np.random.default_rng(0)
    for x in (rng.random(n), rng.normal(size=n), rng.lognormal(0, 8, n), rng.normal(size=n) + 1e9):
        first = kernels.order_free_sum(x)
        assert all(kernels.order_free_sum(rng.permutation(x)) == first for _ in range(3))
        assert abs(first - math.fsum(x)) <= 2 * math.ulp(math.fsum(x)) + n * np.abs(x).max() * 2.0**-80


@on_both_kernels
def test_order_free_sum_of_infinities_is_theirs():
    assert kernels.order_free_sum(np.array([1.0, math.inf])) == math.inf
    assert kernels.order_free_sum(np.array([-math.inf, 1.0])) == -math.inf
    assert kernels.order_free_sum(np.array([])) == 0


@thorough
@given(rows(target="loss", most=25, weighted=False))
def test_concordance_sums_equal_deleting_rows_one_by_one(case):
    s, d, _ = case
    n = len(s)
    credit2, comparable = oracle.pair_counts(s, d)
    total2, total = int(credit2.sum()), int(comparable.sum())
    shifts = []
    for i in range(n):
        rest = np.arange(n) != i
        c, m = oracle.pair_counts(s[rest], d[rest])
        shifts.append(Fraction(int(c.sum()), 2 * int(m.sum())) - Fraction(total2, 2 * total) if m.sum() else None)
    for backend in each_backend():
        sums = kernels.concordance_sums(credit2, comparable)
        assert (sums.credit2, sums.comparable) == (total2, total), backend
        if None in shifts:
            assert math.isnan(sums.shift)
            assert math.isnan(sums.shift2)
        else:
            size = float(sum(abs(x) for x in shifts))
            assert sums.shift == pytest.approx(float(sum(shifts)), rel=1e-12, abs=1e-14 * max(size, 1.0))
            assert sums.shift2 == pytest.approx(float(sum(x * x for x in shifts)), rel=1e-12, abs=1e-15)


@on_both_kernels
@each(("n", "scores", "losses"), LARGE[:5])
def test_concordance_sums_do_not_depend_on_the_order_of_rows(n, scores, losses):
    (credit2,), comparable = kernels.pair_counts(
        make_large(n, scores, losses)[0][None], make_large(n, scores, losses)[1]
    )
    order = np.random.default_rng(0).permutation(n)
    assert kernels.concordance_sums(credit2, comparable) == kernels.concordance_sums(credit2[order], comparable[order])


# ---- bootstrap ------------------------------------------------------------------------------------------------


def totals(score, loss):
    """credit2 and comparable with each unordered pair once."""
    credit2, comparable = oracle.pair_counts(score, loss)
    return int(credit2.sum()) // 2, int(comparable.sum()) // 2


@settings(max_examples=80)
@given(rows(target="loss", most=40, weighted=False), seeds, st.integers(0, 4))
def test_bootstrap_of_rows_equals_counting_on_the_drawn_rows(case, seed, resamples):
    n = len(case.score)
    rng = np.random.default_rng(seed)
    seeds_ = rng.integers(0, 2**64, resamples, dtype=np.uint64)
    drawn = [np.repeat(np.arange(n), kernels.draw_units(seed, n)) for seed in seeds_]
    expected = [totals(case.score[d], case.target[d]) for d in drawn]
    for backend in each_backend():
        for threads in (1, 3):
            credit2, comparable, *_ = kernels.bootstrap_totals(
                case.score, case.target, np.arange(n), n, seeds_, threads
            ).T
            assert list(zip(credit2.tolist(), comparable.tolist(), strict=True)) == expected, backend


@settings(max_examples=80)
@given(rows(target="loss", most=40, weighted=False), seeds)
def test_bootstrap_of_clusters_equals_counting_on_the_rows_of_the_drawn_clusters(case, seed):
    n = len(case.score)
    rng = np.random.default_rng(seed)
    units = int(rng.integers(1, n + 1))
    unit = rng.integers(0, units, n)  # some clusters may be empty
    seeds_ = rng.integers(0, 2**64, 3, dtype=np.uint64)
    expected = []
    for seed_ in seeds_:
        taken = np.repeat(np.arange(n), kernels.draw_units(seed_, units)[unit])
        expected.append(totals(case.score[taken], case.target[taken]))
    for backend in each_backend():
        credit2, comparable, *_ = kernels.bootstrap_totals(case.score, case.target, unit, units, seeds_).T
        assert list(zip(credit2.tolist(), comparable.tolist(), strict=True)) == expected, backend


@settings(max_examples=40)
@given(rows(target="error", most=30, weighted=False), seeds, st.booleans())
def test_bootstrapped_areas_are_those_of_the_drawn_rows(case, seed, with_aurc):
    n, loss = len(case.score), case.target.astype(np.float64)
    seeds_ = np.random.default_rng(seed).integers(0, 2**64, 3, dtype=np.uint64)
    for backend in each_backend():
        found = kernels.bootstrap_areas(case.score, loss, np.arange(n), n, seeds_, with_aurc)
        for seed_, (m, bad, pairs2, area2, aurc) in zip(seeds_, found.tolist(), strict=True):
            drawn = np.repeat(np.arange(n), kernels.draw_units(seed_, n))
            s, e = case.score[drawn], loss[drawn]
            assert (m, bad, pairs2) == (n, e.sum(), totals(s, e)[0]), backend
            assert area2 == pytest.approx(2 * n**2 * oracle.augrc(s, e), abs=1e-9)
            assert aurc == (pytest.approx(oracle.aurc(s, e), abs=1e-12) if with_aurc else 0)


@needs_native
@each(("n", "scores", "losses"), LARGE[:4])
def test_twins_agree_on_large_bootstraps(n, scores, losses):
    score, loss = make_large(n, scores, losses)
    seeds_ = np.random.default_rng(2).integers(0, 2**64, 4, dtype=np.uint64)
    found = [kernels.bootstrap_totals(score, loss, np.arange(n), n, seeds_, 2) for _ in each_backend()]
    np.testing.assert_array_equal(found[0], found[1])
    drawn = np.repeat(np.arange(n), kernels.draw_units(seeds_[0], n))
    (credit2,), comparable = kernels.pair_counts(score[drawn][None], loss[drawn])
    assert 2 * int(found[0][0, 0]) == int(credit2.sum())
    assert 2 * int(found[0][0, 1]) == int(comparable.sum())


# ---- weights and clusters -------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(rows(target="loss", most=60, kinds=SCORES), seeds)
def test_weighted_counts_equal_their_definition_and_do_not_depend_on_row_order(case, seed):
    rng = np.random.default_rng(seed)
    s, d, _ = case
    n = len(s)
    w = rng.lognormal(size=n) if seed % 2 else rng.integers(1, 4, n).astype(np.float64)
    e = make_errors(rng, n).astype(np.uint8)
    expected, expected_auc = oracle.weighted_pair_counts(s, d, w), oracle.weighted_pair_counts(s, e, w)
    order = rng.permutation(n)
    for _ in each_backend():
        found = weighted(s, d, w)
        auc = kernels.weighted_auc_counts(kernels.order_by(s), e, w)
        for got, right in zip((*found, *auc), (*expected, *expected_auc), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-12)
        moved = weighted(s[order], d[order], w[order])
        moved_auc = kernels.weighted_auc_counts(kernels.order_by(s[order]), e[order], w[order])
        for got, first in zip((*moved, *moved_auc), (*found, *auc), strict=True):
            np.testing.assert_array_equal(got, first[order])


@settings(max_examples=80)
@given(rows(target="loss", most=40, weighted=False), seeds)
def test_weighted_counts_with_unit_weights_are_the_integers(case, seed):
    credit2, comparable = oracle.pair_counts(case.score, case.target)
    for _ in each_backend():
        credit, weight = weighted(case.score, case.target, np.ones(len(case.score)))
        np.testing.assert_array_equal(2 * credit, credit2)
        np.testing.assert_array_equal(weight, comparable)


@settings(max_examples=80)
@given(rows(target="loss", most=40, weighted=False), seeds)
def test_counts_within_clusters_equal_their_definition(case, seed):
    s, d, _ = case
    n = len(s)
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, rng.integers(1, n + 1), n)
    w = rng.lognormal(size=n)
    expected, by_weight = oracle.within_counts(s, d, clusters), oracle.within_counts(s, d, clusters, w)
    for _ in each_backend():
        by = kernels.group(clusters)
        for got, right in zip(kernels.within_sums(s, d, by), expected, strict=True):
            np.testing.assert_array_equal(got, [right[clusters == k].sum() for k in np.unique(clusters)])
        for got, right in zip(weighted(s, d, w, clusters), by_weight, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-12 * w.sum())


@on_both_kernels
@each("n", [50, 3_000])
def test_weighted_counts_within_clusters_do_not_depend_on_row_order(n):
    rng = np.random.default_rng(n)
    s, d, w = rng.integers(0, 9, n) / 9, rng.random(n).round(1), rng.lognormal(size=n)
    clusters = rng.integers(0, n // 5, n)
    first = weighted(s, d, w, clusters)
    order = rng.permutation(n)
    moved = weighted(s[order], d[order], w[order], clusters[order])
    for a, b in zip(first, moved, strict=True):
        np.testing.assert_array_equal(a[order], b)


@on_both_kernels
def test_weighted_counts_are_exactly_zero_where_a_cluster_has_no_comparable_pair():
    w = np.array([0.1, 0.2, 0.3, 0.7, 1.1])
    credit, weight = weighted(np.arange(5.0), np.zeros(5), w, np.array([0, 0, 0, 1, 1]))
    assert credit.tolist() == weight.tolist() == [0.0] * 5


# ---- threads --------------------------------------------------------------------------------------------------


@needs_native
def test_native_kernels_give_right_answers_when_called_from_several_threads():
    former = kernels.use("native")
    data = [make_large(20_000 + 1000 * k, 100 if k % 2 else None, None, seed=k) for k in range(4)]
    expected = [kernels.pair_counts(s[None], d)[0] for s, d in data]
    wrong: list[int] = []

    def work(k):
        s, d = data[k]
        for _ in range(5):
            if not np.array_equal(kernels.pair_counts(s[None], d)[0], expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kernels.use(former)
    assert not wrong


@needs_native
def test_native_kernels_release_the_interpreter_lock():
    score, loss = make_large(1_000_000, None, None)
    inside = threading.Event()
    finished = threading.Event()

    def work():
        inside.set()
        former = kernels.use("native")
        kernels.pair_counts(np.stack([score] * 3), loss)
        kernels.use(former)
        finished.set()

    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    naps = 0
    while not finished.is_set():
        time.sleep(0.001)
        naps += 1
    worker.join()
    assert naps > 20  # holding the lock through the call would leave one or two
