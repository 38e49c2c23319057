"""The numbers behind the charts equal what the metrics, the bounds and plain counting give."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import binomtest

import uqeval as uq
from uqeval import InputError, UQWarning, metrics
from uqeval.inference.measure import estimate_share
from uqeval.inference.sample import Rows
from uqeval.metrics.calibration import bin_rows, ece
from uqeval.plot import data

LEVEL = 0.9
NONE = (None, None, LEVEL)


def rows(n=150, seed=0, ties=False, weighted=False):
    """Scores, errors (some of each kind) and weights."""
    rng = np.random.default_rng(seed)
    error = (rng.random(n) < 0.3).astype(np.uint8)
    error[:2] = [0, 1]
    score = 0.8 * error + rng.normal(size=n)
    score = np.round(score) if ties else score
    return score, error, rng.random(n) + 0.1 if weighted else None


def evaluation(**fields):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return uq.evaluate(**{"metrics": ["uq_auc"], **fields})


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, column in found.items():
        np.testing.assert_array_equal(column, expected[key], err_msg=key)


# ---- ROC -------------------------------------------------------------------------------------------------------


@given(st.integers(2, 150), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_the_area_under_the_roc_is_uq_auc(n, seed, ties, weighted):
    score, error, weights = rows(n, seed, ties, weighted)
    found = data.roc_points(score, error, weights, None, LEVEL)
    area = trapezoid(found["y"], found["x"])
    assert abs(area - metrics.uq_auc(score, error, weights=weights)) < 1e-9


def test_roc_vertices_are_shares_above_the_threshold_with_exact_intervals():
    for ties in [False, True]:
        score, error, _ = rows(ties=ties)
        found = data.roc_points(score, error, *NONE)
        assert len(found["x"]) == len(np.unique(score)) + 1
        for x, y, low, high, t in zip(*found.values(), strict=True):
            above = score > t
            assert x == pytest.approx(above[error == 0].mean(), abs=1e-15)
            assert y == pytest.approx(above[error == 1].mean(), abs=1e-15)
            exact = binomtest(int(above[error == 1].sum()), int(error.sum())).proportion_ci(LEVEL, "exact")
            assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_a_long_roc_is_thinned_to_vertices_of_the_whole():
    score, error, _ = rows(5000)
    found = data.roc_points(score, error, *NONE)
    assert len(found["x"]) <= data.MOST
    assert (found["x"][0], found["y"][0], found["x"][-1], found["y"][-1]) == (0, 0, 1, 1)
    above = score[:, None] > found["threshold"]
    np.testing.assert_allclose(found["y"], above[error == 1].mean(axis=0), atol=1e-12)
    assert abs(trapezoid(found["y"], found["x"]) - metrics.uq_auc(score, error)) < 1e-3
    assert max(np.diff(found["x"]).max(), np.diff(found["y"]).max()) < 0.02


def test_clusters_widen_the_roc_band_as_the_interval_of_a_mean_does():
    score, error, _ = rows(60)
    five = np.repeat(np.arange(60), 5)
    plain = data.roc_points(score[five], error[five], *NONE)
    found = data.roc_points(score[five], error[five], None, five, LEVEL)
    middle = len(found["x"]) // 2
    at = found["threshold"][middle]
    wrong = five[error[five] == 1]
    units = np.unique(wrong, return_inverse=True)[1]
    expected = estimate_share(score[wrong] > at, Rows(len(wrong), None, units), LEVEL)
    assert (found["low"][middle], found["high"][middle]) == pytest.approx((expected.low, expected.high), abs=1e-12)
    same = int(np.flatnonzero(plain["threshold"] == at)[0])
    assert found["high"][middle] - found["low"][middle] > 1.5 * (plain["high"][same] - plain["low"][same])


# ---- risk ------------------------------------------------------------------------------------------------------


@given(st.integers(2, 150), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_risk_at_the_vertices_is_the_risk_coverage_curve(n, seed, ties, weighted):
    score, error, weights = rows(n, seed, ties, weighted)
    found = data.risk_points(score, error, weights, None, LEVEL)
    curve = metrics.risk_coverage_curve(score, error, weights=weights)
    for key in ("threshold", "coverage", "risk", "accepted"):
        np.testing.assert_array_equal(found[key], getattr(curve, key))
    assert np.isnan(found["low"]).all() == weighted


def test_the_risk_band_is_clopper_pearson():
    score, error, _ = rows(ties=True)
    found = data.risk_points(score, error, *NONE)
    for risk, low, high, accepted in zip(*(found[k] for k in ("risk", "low", "high", "accepted")), strict=True):
        exact = binomtest(round(risk * accepted), int(accepted)).proportion_ci(LEVEL, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_a_long_risk_curve_is_thinned_to_vertices_of_the_whole():
    score, error, _ = rows(5000)
    found = data.risk_points(score, error, *NONE)
    curve = metrics.risk_coverage_curve(score, error)
    at = np.searchsorted(curve.threshold, found["threshold"])
    assert len(at) <= data.MOST
    assert found["coverage"][-1] == 1
    np.testing.assert_array_equal(curve.risk[at], found["risk"])


def test_clusters_and_losses_take_the_band_of_the_risk_map():
    for loss in [False, True]:
        score, error, _ = rows(300)
        target = error * 0.7 + 0.1 if loss else error
        clusters = None if loss else np.arange(300) // 3
        found = data.risk_points(score, target, None, clusters, LEVEL)
        expected = uq.risk_map(score, target, level=LEVEL, clusters=clusters, thresholds=found["threshold"])
        np.testing.assert_allclose(found["low"], expected.low, atol=1e-12)
        np.testing.assert_allclose(found["high"], expected.high, atol=1e-12)
        assert (found["low"] <= found["risk"]).all()


def test_infinite_scores_are_vertices_like_others():
    score, error, _ = rows(40, ties=True)
    score[:3], score[3:5] = -np.inf, np.inf
    found = data.risk_points(score, error, None, np.arange(40) // 2, LEVEL)
    assert found["threshold"][0] == -np.inf
    assert found["accepted"][0] == 3
    assert np.isfinite(found["high"]).all()
    roc = data.roc_points(score, error, None, np.arange(40) // 2, LEVEL)
    assert (roc["y"][-1], roc["high"][-1]) == (1, 1)


@given(st.integers(2, 150), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_no_score_lies_below_the_oracle(n, seed, ties, graded):
    score, error, _ = rows(n, seed, ties)
    loss = np.round(error * np.random.default_rng(seed).random(n), 2) if graded else error
    best = data.oracle(loss, None)
    curve = metrics.risk_coverage_curve(score, loss)
    assert (np.interp(curve.coverage, best["coverage"], best["risk"]) <= curve.risk + 1e-12).all()
    np.testing.assert_allclose(best["risk"], np.cumsum(np.sort(loss)) / np.arange(1, n + 1), atol=1e-12)


def test_a_thinned_oracle_keeps_its_bend():
    _, error, _ = rows(5000)
    best = data.oracle(error, None)
    rate = error.mean()
    assert len(best["risk"]) <= data.MOST
    assert best["coverage"][best["risk"] == 0].max() == pytest.approx(1 - rate)
    exact = np.maximum(0, 1 - (1 - rate) / best["coverage"])
    np.testing.assert_allclose(best["risk"], exact, atol=1e-12)


# ---- counts ----------------------------------------------------------------------------------------------------


def test_histogram_counts_every_row_once():
    for kind in ["smooth", "ties", "constant", "infinite", "huge"]:
        score, error, _ = rows(3000, ties=kind == "ties")
        if kind == "constant":
            score = np.full(3000, 4.0)
        elif kind == "infinite":
            score[:5], score[5:9] = np.inf, -np.inf
        elif kind == "huge":
            score = np.where(error, 1.7e308, -1.7e308)
        found = data.histogram(score, error)
        assert found["right_count"].sum() == (error == 0).sum()
        assert found["wrong_count"].sum() == error.sum()
        assert len(found["start"]) <= 50
        assert found["wrong_share"].sum() == pytest.approx(1)
        inner = zip(found["start"][1:-1], found["end"][1:-1], found["wrong_count"][1:-1], strict=True)
        assert all(((score >= a) & (score < b) & (error == 1)).sum() == count for a, b, count in inner)


def test_density_counts_every_row_once():
    score, _, _ = rows(3000)
    loss = np.random.default_rng(1).random(3000)
    found = data.density(score, loss, 40)
    assert found["count"].sum() == 3000
    assert found["count"].min() > 0
    assert len(found["count"]) <= 1600
    k = int(found["count"].argmax())
    inside = (score >= found["x"][k]) & (score < found["x2"][k]) & (loss >= found["y"][k]) & (loss < found["y2"][k])
    assert found["count"][k] == inside.sum()


def test_reliability_bins_are_those_of_the_ece():
    for weighted in [False, True]:
        rng = np.random.default_rng(0)
        probs, labels = rng.dirichlet(np.ones(3), 400), rng.integers(0, 3, 400)
        weights = rng.random(400) + 0.1 if weighted else None
        table = evaluation(source=uq.Predictions(labels, probs=probs, weights=weights)).source
        found = data.reliability_bins(table, LEVEL)
        right = 1.0 - table.error
        bins = bin_rows(table["confidence"], right, weights)
        np.testing.assert_allclose(found["share"], bins.share, atol=1e-12)
        np.testing.assert_allclose(found["accuracy"] - found["confidence"], bins.gap, atol=1e-12)
        total = (found["share"] * np.abs(found["accuracy"] - found["confidence"])).sum()
        assert total == pytest.approx(ece(table["confidence"], right, weights=weights), abs=1e-12)
        assert found["count"].sum() == 400
        assert ((found["start"] < found["confidence"]) & (found["confidence"] <= found["end"])).all()
        assert ((found["low"] <= found["accuracy"]) & (found["accuracy"] <= found["high"])).all()
        if not weighted:
            exact = binomtest(round(found["accuracy"][-1] * found["count"][-1]), int(found["count"][-1]))
            interval = exact.proportion_ci(LEVEL, "exact")
            assert (found["low"][-1], found["high"][-1]) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_reliability_intervals_take_clusters_as_units():
    rng = np.random.default_rng(0)
    probs, labels = np.repeat(rng.dirichlet(np.ones(2), 80), 5, axis=0), np.repeat(rng.integers(0, 2, 80), 5)
    wide = data.reliability_bins(
        evaluation(source=uq.Predictions(labels, probs=probs, clusters=np.repeat(np.arange(80), 5))).source, LEVEL
    )
    with pytest.warns(uq.UQWarning, match="exact copies"):
        rows = uq.Predictions(labels, probs=probs)
    narrow = data.reliability_bins(evaluation(source=rows).source, LEVEL)
    known = ~np.isnan(wide["low"])
    assert known.sum() > 4
    assert ((wide["high"] - wide["low"])[known] > (narrow["high"] - narrow["low"])[known]).all()


def test_psi_points_are_those_of_the_risk_map():
    score, error, _ = rows(400)
    found = uq.risk_map(score, error)
    points = data.psi_points(found)
    assert len(points["value"]) <= data.MOST
    for risk, *ends in list(zip(*points.values(), strict=True))[::17]:
        assert tuple(ends) == found.psi(float(risk))[1:]
    assert points["value"][-1] == score.max()


def test_group_rows_are_the_estimates_of_the_largest_groups():
    score, error, _ = rows(600)
    groups = np.repeat([f"g{k}" for k in range(6)], [50, 200, 30, 120, 150, 50])
    ev = evaluation(score={"s": score}, error=error, groups=groups)
    found, left = data.group_rows(ev, "uq_auc", ["s"], 3, "model")
    assert left == 3
    assert [row["group"] for row in found] == ["g1 (n = 200)", "g3 (n = 120)", "g4 (n = 150)"]
    assert [(row["value"], row["low"], row["whole"]) for row in found] == [
        (ev["s", "uq_auc", g].value, ev["s", "uq_auc", g].low, ev["s", "uq_auc"].value) for g in ("g1", "g3", "g4")
    ]


def test_the_order_of_rows_does_not_matter():
    for weighted in [False, True]:
        score, error, weights = rows(700, ties=True, weighted=weighted)
        clusters, loss = None if weighted else np.arange(700) // 7, np.random.default_rng(1).random(700)
        order = np.random.default_rng(2).permutation(700)
        turned = [None if a is None else a[order] for a in (score, error, weights, clusters)]
        assert_same(data.roc_points(score, error, weights, None, LEVEL), data.roc_points(*turned[:3], None, LEVEL))
        assert_same(data.risk_points(score, error, weights, clusters, LEVEL), data.risk_points(*turned, LEVEL))
        assert_same(data.oracle(loss, weights), data.oracle(loss[order], turned[2]))
        assert_same(data.histogram(score, error), data.histogram(*turned[:2]))
        assert_same(data.density(score, loss, 30), data.density(turned[0], loss[order], 30))


# ---- what is shown ---------------------------------------------------------------------------------------------


def test_the_six_best_by_uq_auc_are_shown_and_else_the_first():
    _, error, _ = rows(300)
    rng = np.random.default_rng(3)
    scores = {f"s{k}": 0.5 * k * error + rng.normal(size=300) for k in (0, 3, 1, 4, 2, 6, 5, 7)}
    assert data.shown(evaluation(score=scores, error=error), None) == ["s7", "s6", "s5", "s4", "s3", "s2"]
    assert data.shown(evaluation(score=scores, error=error, metrics=["aurc"]), None) == list(scores)[:6]
    assert data.shown(evaluation(score=scores, error=error), ["s1", "s0", "s1"]) == ["s1", "s0"]


def test_a_name_that_does_not_exist_is_answered_with_the_nearest():
    score, error, _ = rows()
    ev = evaluation(score={"energy": score}, error=error)
    with pytest.raises(InputError, match=r'no "enrgy"\. Did you mean "energy"'):
        data.shown(ev, "enrgy")
    with pytest.raises(InputError, match="`scores` is empty"):
        data.shown(ev, [])


def test_an_evaluation_without_rows_says_so():
    score, error, _ = rows()
    ev = evaluation(score=score, error=error)
    with pytest.raises(InputError, match="`ev` holds estimates only"):
        data.rows_of(dataclasses.replace(ev, source=None))
    with pytest.raises(InputError, match="`ev` is a list"):
        data.rows_of([1])
