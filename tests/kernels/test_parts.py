"""Many parts of the rows at once: each is counted as it is by itself, on both kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import on_both_kernels
from strategies import BACKENDS, SCORES, make_scores, seeds
from uqeval import kernels

needs_native = pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")


@st.composite
def parted(draw):
    """Score, loss and error of rows, the part of each, and where parts start."""
    rng = np.random.default_rng(draw(seeds))
    n, parts = draw(st.integers(1, 120)), draw(st.integers(1, 12))
    score, loss = (make_scores(rng, n, draw(st.sampled_from(SCORES))) for _ in range(2))
    part = np.unique(rng.integers(0, parts, n), return_inverse=True)[1].astype(np.uint32)
    start = np.concatenate([[0], np.cumsum(np.bincount(part))])
    return score, loss, (rng.random(n) < rng.random()).astype(np.uint8), part, start


@on_both_kernels
@settings(max_examples=60)
@given(case=parted())
def test_a_part_has_the_order_the_sweep_and_the_pairs_that_it_has_by_itself(case):
    score, loss, error, part, start = case
    order, losses = (kernels.cut_order(kernels.order_by(x), part, start[:-1]) for x in (score, loss))
    swept = kernels.sweep_parts(kernels.mark_ordered(order, error), start)
    pairs = kernels.concordance_parts(order, losses, start)
    for k, (a, b) in enumerate(itertools.pairwise(start)):
        rows = np.flatnonzero(part == k)
        alone = kernels.order_by(score[rows])
        assert rows[alone.row].tolist() == order.row[a:b].tolist()
        assert alone.new.tolist() == order.new[a:b].tolist()
        expected = kernels.sweep(kernels.mark_ordered(alone, error[rows]))
        for name, value in expected._asdict().items():
            found = getattr(swept, name)[k]
            assert found == value if isinstance(value, int) else found == pytest.approx(value, rel=1e-12, abs=1e-12)
        expected = kernels.concordance(score[rows], loss[rows])
        assert (pairs.credit2[k], pairs.comparable[k]) == expected[:2]
        found = (pairs.shift[k], pairs.shift2[k])
        np.testing.assert_allclose(found, expected[2:], rtol=1e-12, atol=1e-14, equal_nan=True)


@needs_native
def test_parts_that_do_not_fit_are_refused_before_memory_is_touched():
    former = kernels.use("native")
    try:
        order = kernels.order_by(np.array([3.0, 1.0, 2.0, 4.0]))
        part, marks = np.array([0, 1, 0, 1], dtype=np.uint32), np.full(4, 2, dtype=np.uint8)
        with pytest.raises(IndexError, match="outside"):
            kernels.cut_order(order, part + np.uint32(1), np.array([0, 2]))
        with pytest.raises(IndexError, match="start where"):
            kernels.cut_order(order, part, np.array([0, 3]))
        for start in ([0, 2], [0, 0, 4], [1, 4], [0, 5, 4]):
            with pytest.raises(ValueError, match="part"):
                kernels.sweep_parts(marks, np.array(start))
        with pytest.raises(IndexError, match="starts a value"):
            kernels.sweep_parts(marks & np.array([2, 2, 0, 2], dtype=np.uint8), np.array([0, 2, 4]))
        crossed = kernels.order_by(np.array([1.0, 4.0, 3.0, 2.0]))  # rows of both parts in one
        with pytest.raises(IndexError, match="two parts"):
            kernels.concordance_parts(crossed, kernels.order_by(np.arange(4.0)), np.array([0, 2, 4]))
    finally:
        kernels.use(former)


@on_both_kernels
@settings(max_examples=60)
@given(seed=seeds)
def test_labels_that_look_less_calibrated_are_counted_as_defined(seed):
    rng = np.random.default_rng(seed)
    n, bins = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    of_bin = np.sort(np.unique(rng.integers(0, bins, n), return_inverse=True)[1])
    mean, weight = rng.random(n).round(2), np.where(rng.random() < 0.5, np.ones(n), rng.gamma(2.0, 1.0, n))
    uniform, share = rng.random((50, n)), rng.dirichlet(np.ones(of_bin[-1] + 1))
    first = np.flatnonzero(np.diff(of_bin, prepend=-1))
    statistics = []
    for u in uniform:
        total = 0.0
        for b, part in enumerate(share):
            rows = of_bin == b
            w, diff = weight[rows], (u[rows] < mean[rows]) - mean[rows]
            gap, size = np.average(diff, weights=w), w.sum() ** 2 / (w**2).sum()
            spread = ((w * (diff - gap)) ** 2).sum() / w.sum() ** 2
            total += part * (gap**2 - (spread * size / max(size - 1, 1e-12) if rows.sum() > 1 else 0.0))
        statistics.append(total)
    observed = float(np.quantile(statistics, 0.6)) + 1e-9  # between two of them
    expected = int((np.array(statistics) >= observed).sum())
    assert kernels.exceeding(uniform, mean, weight, first, share, observed, 50) == expected
    assert kernels.exceeding(uniform, mean, weight, first, share, observed, 3) > 3 or expected <= 3
