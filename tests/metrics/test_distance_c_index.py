"""The distance C-index: the C-index of the distance to what is known, by brute force; where it is blind."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracle
from cases import each, noted
from uqeval._errors import InputError, UndefinedMetricWarning
from uqeval.inference import estimate, estimate_distance_c_index
from uqeval.metrics import distance_c_index


def cases(count=40):
    rng = np.random.default_rng(0)
    for k in range(count):
        n, m, d = rng.integers(2, 40), rng.integers(1, 20), (1, 2, 20)[k % 3]
        whole = k % 2 == 0  # a grid: copies, and equal distances
        x, y = ((rng.integers(3, size=(size, d)) * 1.0 if whole else rng.normal(size=(size, d))) for size in (n, m))
        s = rng.integers(4, size=n) / 3 if k % 4 < 2 else rng.normal(size=n)
        yield s, x, (None, y)[k % 5 > 1], rng.choice([0.5, 1.0, 3.0], size=n) if k % 7 == 0 else None


@pytest.mark.filterwarnings("ignore::uqeval._errors.UQWarning")  # constant scores, few rows, nothing to compare
def test_it_equals_all_pairs_of_all_distances():
    undefined = 0
    for s, x, y, w in cases():
        with noted(n=len(s), d=x.shape[1], reference=y is not None):
            expected = oracle.distance_c_index(s, x, y, w)
            found = distance_c_index(s, x, reference=y, weights=w)
            undefined += math.isnan(expected)
            assert (math.isnan(found) and math.isnan(expected)) or found == pytest.approx(expected, rel=1e-12)
            assert math.isnan(found) or estimate_distance_c_index(s, x, reference=y, weights=w).value == pytest.approx(
                found, rel=1e-14
            )
    assert undefined < 10


def test_its_interval_is_that_of_the_c_index_with_the_distance_as_loss():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(80, 2)), rng.normal(size=(60, 2))
    distance = np.array([min(math.dist(a, b) for b in y) for a in x])
    s, w, g = distance + rng.normal(size=80), rng.uniform(0.5, 2, 80), np.arange(80) // 4
    for extra in ({}, {"weights": w}, {"clusters": g}, {"level": 0.8}):
        ours, plain = (
            estimate_distance_c_index(s, x, reference=y, **extra),
            estimate("uq_c_index", s, distance, **extra),
        )
        assert (ours.value, ours.low, ours.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-12)


def test_it_knows_nothing_of_the_labels_so_the_error_probability_may_score_worse_than_chance():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 2)) * [6.0, 1.0]  # sure far out, unsure between two classes
    error_probability = 1 / (1 + np.exp(np.abs(x[:, 0])))
    train = rng.normal(size=(300, 2))
    assert distance_c_index(error_probability, x, reference=train) < 0.2
    assert distance_c_index(np.abs(x[:, 0]), x, reference=train) > 0.8


def test_rows_that_are_all_equally_far_have_no_value():
    for reference in (None, [[0.0]]):
        with pytest.warns(UndefinedMetricWarning, match="distance C-index is undefined: all rows are equally far"):
            assert math.isnan(distance_c_index([1, 2, 3], [[1.0], [1.0], [1.0]], reference=reference))
        with pytest.warns(UndefinedMetricWarning, match="distance C-index is undefined: all rows are equally far"):
            assert math.isnan(estimate_distance_c_index([1, 2, 3], [[1.0]] * 3, reference=reference).value)


@each(
    "given,words",
    [
        (([1, 2], [[1.0], [2.0], [3.0]]), "`features` has 3 rows but `score` has 2"),
        (([1], [[1.0]]), "`score` has 1 row"),
        (([1, np.nan], [[1.0], [2.0]]), "`score` has 1 NaN"),
        (([1, 2], [[1.0], [np.inf]]), "`features` has NaN or infinity"),
        (([1, 2], [1.0, 2.0]), "`features` has shape"),
        (([1, 2], [[1.0], [2.0]], [[1.0, 2.0]]), "`reference` has 2 columns"),
        (([1, 2], [[1.0], [2.0]], np.zeros((0, 1))), "`reference` has shape"),
        (([1, 2], [[1.0], [2.0]], [[1.0]], [1.0, -1.0]), "`weights` must be ≥ 0"),
    ],
)
def test_what_cannot_be_used_is_named(given, words):
    score, features, *more = given
    options = dict(zip(("reference", "weights"), more, strict=False))
    for function in (distance_c_index, estimate_distance_c_index):
        with pytest.raises(InputError, match=words):
            function(score, features, **options)


def test_estimate_says_where_its_interval_is():
    with pytest.raises(InputError, match=r"use uqeval\.inference\.estimate_distance_c_index"):
        estimate("distance_c_index", [1, 2], [[1.0], [2.0]])


@pytest.mark.slow
def test_its_interval_holds_with_and_without_a_reference():
    """Of 400 draws each, 95% intervals hold the mean over 2,000 other draws in 91.7% to 98.3% (3 standard errors)."""
    for d, own in ((2, False), (2, True), (10, False), (10, True)):

        def draw(rng, d=d, own=own):
            x, y = rng.normal(size=(200, d)), rng.normal(size=(300, d))
            s = np.linalg.norm(x, axis=1) + 0.7 * rng.normal(size=200)
            return s, x, {"reference": None if own else y}

        truth = np.mean([_value(draw(np.random.default_rng([d, own, 1, k]))) for k in range(2000)])
        held = 0
        for k in range(400):
            s, x, reference = draw(np.random.default_rng([d, own, 2, k]))
            found = estimate_distance_c_index(s, x, **reference)
            held += found.low <= truth <= found.high
        with noted(d=d, own=own, held=held / 400):
            assert 0.917 <= held / 400 <= 0.983


def _value(drawn):
    s, x, reference = drawn
    return distance_c_index(s, x, **reference)
