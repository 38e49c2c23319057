"""Scores from features: distances equal their definitions, ties stay ties, memory stays bounded, bad input is told."""

from __future__ import annotations

import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pytest

from cases import each, noted
from uqeval import metrics
from uqeval._errors import InputError, UQWarning
from uqeval.scores import KNNDistance, Mahalanobis, knn_distance, mahalanobis
from uqeval.scores.neighbours import neighbour_distances

LOW, HIGH = 3, 40  # features: neighbours come from a tree, or from blocks


def kth_by_loop(points, reference, k, own=False):
    """Exact squared distances as fractions; their roots."""
    found = []
    for i, x in enumerate(points):
        squares = sorted(
            sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, r, strict=True))
            for j, r in enumerate(reference)
            if not (own and i == j)
        )
        found.append(float(squares[k - 1]) ** 0.5)
    return np.array(found)


def mahalanobis_by_loop(train, codes, test, shrinkage=0.0):
    means = [train[codes == c].mean(axis=0) for c in range(codes.max() + 1)]
    rest = np.concatenate([train[codes == c] - mean for c, mean in enumerate(means)])
    covariance = rest.T @ rest / len(rest)
    d = len(covariance)
    covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return np.array([min((x - m) @ np.linalg.solve(covariance, x - m) for m in means) for x in test])


def scene(d, n=200, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(classes, size=n)
    means, mix = 3 * rng.normal(size=(classes, d)), rng.normal(size=(d, d))
    return means[codes] + rng.normal(size=(n, d)) @ mix, codes, 4 * rng.normal(size=(50, d)) @ mix


# ---- neighbours --------------------------------------------------------------------------------------------------


@each("d", [1, 2, LOW, HIGH])
def test_the_kth_distance_equals_exact_arithmetic_with_offsets_copies_and_any_scale(d):
    rng = np.random.default_rng(d)
    for offset, unit, kind in (
        (0.0, 1.0, "normal"),
        (1e9, 1.0, "normal"),
        (0.0, 1e-170, "normal"),
        (5e200, 1e200, "grid"),
    ):
        draw = (lambda n: rng.integers(3, size=(n, d))) if kind == "grid" else (lambda n: rng.normal(size=(n, d)))
        reference = offset + unit * draw(30)
        reference[10:13] = reference[9]
        points = np.concatenate([offset + unit * draw(5), reference[8:11]])
        for k in (1, 3, 4, 30):
            with noted(offset=offset, unit=unit, k=k):
                found = neighbour_distances(points, reference, k)
                scale = max(abs(offset), unit)
                expected = kth_by_loop(points / scale, reference / scale, k) * scale
                # 4 ulp of each difference squared and added; dividing by the scale costs the loop one ulp of x.
                assert np.allclose(found, expected, rtol=1e-14, atol=4e-16 * scale * d**0.5)
                assert (found[-2:] == 0).all() == (k <= 4)


@each("d", [LOW, HIGH])
def test_nobody_is_its_own_neighbour_but_a_copy_is(d):
    x = np.random.default_rng(0).normal(size=(15, d))
    x[10:12] = x[3]
    for k in (1, 2, 3):
        assert np.allclose(neighbour_distances(x, x, k, own=True), kth_by_loop(x, x, k, own=True), rtol=1e-14)
    assert (neighbour_distances(x, x, 2, own=True) == 0).nonzero()[0].tolist() == [3, 10, 11]


@each("d", [LOW, HIGH])
def test_a_distance_has_the_same_bits_whatever_the_rows_around_it(d):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, d)), rng.normal(size=(500, d))
    whole = neighbour_distances(x, y, 7)
    assert (neighbour_distances(x[100:101], y, 7) == whole[100]).all()
    order = rng.permutation(500)
    assert (neighbour_distances(x[::-1], y[order], 7) == whole[::-1]).all()


def test_near_rows_far_from_the_origin_do_not_cancel():
    rng = np.random.default_rng(2)
    y = 1e8 + 1e-6 * rng.integers(-50, 50, size=(80, HIGH))
    x = y[:15] + 1e-6
    naive = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    exact = kth_by_loop(x, y, 1)
    assert np.abs(np.sqrt(np.maximum(naive.min(1), 0)) - exact).max() > 1e-6  # as large as what is measured
    assert np.allclose(neighbour_distances(x, y, 1), exact, rtol=1e-13)


@each("d", [LOW, HIGH])
def test_memory_does_not_grow_with_the_product_of_the_rows(d):
    x = np.random.default_rng(3).integers(2, size=(12_000, d)).astype(float)  # many copies and ties
    tracemalloc.start()
    neighbour_distances(x[:6000], x, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6  # the distances alone of all pairs are 576 MB


# ---- k nearest neighbours ----------------------------------------------------------------------------------------


def test_rows_are_divided_by_their_length_unless_told_otherwise():
    train, other = [[3.0, 4.0], [0.0, 1e-180], [0.0, 0.0]], [[30.0, 40.0], [0.0, 1e300], [0.0, 0.0], [-1.0, 0.0]]
    assert knn_distance(train, k=1).score(other).tolist() == pytest.approx([0, 0, 0, 1])  # 1 from the origin
    assert knn_distance(train, k=2, normalize=False).score([[3.0, 0.0]]).tolist() == [3.0]


def test_the_score_of_neighbours_is_their_kth_distance():
    train, _, test = scene(LOW, n=60)
    for k in (1, 10, 60):
        found = KNNDistance(k, normalize=False).fit(train).score(test[:20])
        assert np.allclose(found, kth_by_loop(test[:20], train, k), rtol=1e-13)


# ---- Mahalanobis -------------------------------------------------------------------------------------------------


@each("d", [1, LOW, HIGH])
def test_the_mahalanobis_distance_equals_its_definition(d):
    train, codes, test = scene(d)
    for shrinkage in (0.0, 0.3, 1.0):
        expected = mahalanobis_by_loop(train, codes, test, shrinkage)
        found = mahalanobis(train, codes, shrinkage=shrinkage).score(test)
        assert np.allclose(found, expected, rtol=1e-9), shrinkage
    one = np.zeros(len(train), dtype=int)
    background = mahalanobis_by_loop(train, one, test)
    assert np.allclose(mahalanobis(train).score(test), background, rtol=1e-9)
    relative = mahalanobis(train, codes, relative=True).score(test)
    expected = mahalanobis_by_loop(train, codes, test) - background
    assert np.allclose(relative, expected, rtol=1e-9, atol=1e-9 * background.max())


def test_units_offsets_and_names_of_classes_do_not_change_the_mahalanobis_distance():
    train, codes, test = scene(LOW)
    plain = mahalanobis(train, codes).score(test)
    for unit, offset in ((np.array([1e-9, 1.0, 1e9]), 0.0), (np.ones(3), 1e6), (np.full(3, 1e200), 0.0)):
        moved = mahalanobis(train * unit + offset, codes).score(test * unit + offset)
        assert np.allclose(moved, plain, rtol=1e-8), (unit, offset)
    assert (mahalanobis(train, np.array(["c", "a", "b"])[codes]).score(test) == plain).all()


def test_equal_rows_tie_and_a_row_scores_alike_in_any_batch():
    train, codes, test = scene(HIGH)
    fitted = mahalanobis(train, codes, shrinkage=0.01)
    whole = fitted.score(np.concatenate([test, test[::-1]]))
    assert (whole[:50] == whole[50:][::-1]).all()
    assert all(fitted.score(test[k : k + 1])[0] == whole[k] for k in range(50))


def test_directions_without_spread_are_left_out_aloud_or_seen_through_shrinkage():
    train, codes, _ = scene(2)
    one = np.full((len(train), 1), 0.1)
    there, away = np.hstack([train, train[:, :1], one])[:1], np.hstack([train, train[:, :1] + 5, one + 5])[:1]
    with pytest.warns(UQWarning, match="2 of 4 directions"):
        fitted = mahalanobis(np.hstack([train, train[:, :1], one]), codes)
    plain = mahalanobis(train, codes).score(train[:1])
    assert np.allclose(fitted.score(there), plain, rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = mahalanobis(np.hstack([train, train[:, :1], one]), codes, shrinkage=0.01)
    assert seen.score(away)[0] > seen.score(there)[0] + 10
    few, labels, other = scene(HIGH, n=20)
    with pytest.warns(UQWarning, match=r"1\d of 40 directions"):  # fewer rows than features
        assert np.isfinite(mahalanobis(few, labels).score(other)).all()


def test_a_feature_that_is_constant_in_each_class_counts_as_constant_whatever_the_rounding_of_its_mean():
    train, codes, test = scene(2, n=999)
    level = np.array([0.1, 0.7, 1e8 / 3])[codes][:, None]
    with pytest.warns(UQWarning, match="2 of 3 directions"):
        found = mahalanobis(np.hstack([train, level]), codes).score(np.hstack([test, np.ones((50, 1))]))
    assert np.allclose(found, mahalanobis(train, codes).score(test), rtol=1e-6)


# ---- what they are for -------------------------------------------------------------------------------------------


def test_each_tells_far_rows_from_known_ones():
    rows, labels, _ = scene(8, n=600)
    train, codes, known = rows[:400], labels[:400], rows[400:]
    far = known + 25 * np.random.default_rng(5).normal(size=known.shape)
    for fitted in (
        mahalanobis(train, codes),
        mahalanobis(train, codes, relative=True),
        knn_distance(train, k=5, normalize=False),
    ):
        assert metrics.ood_auroc(fitted.score(known), fitted.score(far)) > 0.9


# ---- bad input ---------------------------------------------------------------------------------------------------

GOOD = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [5.0, 1.0]]


@each(
    "call,words",
    [
        (lambda: knn_distance(GOOD, k=5), r"`k` is 5 but `features` has 4 rows"),
        (lambda: knn_distance(GOOD, k=0), "`k` must be an int ≥ 1"),
        (lambda: knn_distance([[0.0, np.nan]], k=1), "`features` has NaN or infinity in 1 row"),
        (lambda: knn_distance(GOOD, k=1).score([[np.inf, 0.0]]), "`features` has NaN or infinity in 1 row"),
        (lambda: knn_distance(GOOD, k=1).score([[1.0]]), "`features` has 1 columns but .* have 2"),
        (lambda: knn_distance([1.0, 2.0], k=1), r"shape \(2,\).*reshape\(-1, 1\)"),
        (lambda: knn_distance(np.zeros((0, 3)), k=1), r"shape \(0, 3\)"),
        (lambda: knn_distance([["a", "b"]], k=1), "`features` holds text"),
        (lambda: KNNDistance().score(GOOD), "has not been fitted"),
        (lambda: Mahalanobis().score(GOOD), "has not been fitted"),
        (lambda: mahalanobis(GOOD[:1]), "at least 2"),
        (lambda: mahalanobis(GOOD, [0, 1]), "`labels` has 2 rows but `features` has 4"),
        (lambda: mahalanobis(GOOD, relative=True), "`labels` is missing"),
        (lambda: mahalanobis(GOOD, [0, 1, 2, 3]), "do not vary inside the classes"),
        (lambda: mahalanobis(GOOD, [0, 1, None, 3]), "`labels`"),
        (lambda: mahalanobis(GOOD, shrinkage=1.5), r"`shrinkage` must lie in \[0, 1\]"),
        (lambda: mahalanobis(GOOD, shrinkage=True), r"`shrinkage` must lie in \[0, 1\]"),
        (lambda: mahalanobis(GOOD).score([[1e300, 0.0]]), "row 0 is too far"),
    ],
)
def test_what_cannot_be_used_is_named(call, words):
    with pytest.raises(InputError, match=words):
        call()
