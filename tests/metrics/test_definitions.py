"""Every metric equals its O(n²) definition to 1e-12, on both kernels, with ties and weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import oracle
from cases import each
from strategies import confidences, each_backend, in_out, rows, tables
from uqeval import metrics

pytestmark = [
    pytest.mark.filterwarnings("ignore::uqeval._errors.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning"),
    pytest.mark.filterwarnings("ignore:.*log-loss is infinite:uqeval._errors.UQWarning"),
]
# Each claim on some dozens of cases always, and on thousands with the slow tests.
often = pytest.mark.parametrize("examples", [60, pytest.param(500, marks=pytest.mark.slow)])


def assert_close(value, expected, tolerance=1e-12, what=""):
    assert isinstance(value, float), what
    if math.isnan(expected):
        assert math.isnan(value), f"{what}: {value} should be NaN"
    else:
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance), what


def on(examples, strategy):
    """Runs a claim on so many cases."""
    return lambda claim: settings(max_examples=examples)(given(strategy)(claim))()


def twin(metric):
    """The same by brute force: the function of that name in `oracle`."""
    function = getattr(metric.function, "func", metric.function)
    options = getattr(metric.function, "keywords", {})
    return lambda *data: getattr(oracle, function.__name__)(*data, **options)


@often
@each("kind", ["error", "loss01", "loss"])
def test_every_metric_that_ranks_rows_equals_its_definition(kind, examples):
    names = [m for m in metrics.REGISTRY.values() if m.uses_score and not m.made and _takes(m, kind)]
    assert len(names) >= 5

    @on(examples, rows(target=kind))
    def holds(case):
        s, t, w = case
        expected = {metric.name: twin(metric)(s, t, w) for metric in names}
        # A ratio of differences: rounding of AURC is magnified by 1/(err − AURC_opt), for any implementation.
        condition = oracle.naurc_condition(t, w) if kind != "loss" else 1.0
        for backend in each_backend():
            for metric in names:
                ratio = metric.name in ("naurc", "prr", "prr_50")
                tolerance = max(1e-12, 1e-14 * condition) if ratio else 1e-12
                value = metric.function(s, t, weights=w)
                assert_close(value, expected[metric.name], tolerance, f"{metric.name} on {backend}")
            if kind != "loss":
                unbiased = metrics.augrc(s, t, weights=w, unbiased=True)
                assert_close(unbiased, oracle.augrc_unbiased(s, t, w), what=f"unbiased augrc on {backend}")
            if kind == "error":
                assert_close(metrics.uq_c_index(s, t, weights=w), expected["uq_auc"], what=f"0/1 loss on {backend}")
                assert_close(metrics.accuracy(t, weights=w), oracle.accuracy(t, w), what=f"accuracy on {backend}")


@often
def test_the_top_label_c_index_equals_its_definition(examples):
    @on(examples, rows(target="error"))
    def holds(case):
        s, e, w = case
        rng = np.random.default_rng(len(s))
        for c in (rng.random(len(s)), rng.integers(1, 4, len(s)) / 4, np.full(len(s), 0.5), np.ones(len(s))):
            expected = oracle.top_label_c_index(s, c, e, w)
            for backend in each_backend():
                assert_close(metrics.top_label_c_index(s, c, e, weights=w), expected, what=backend)


def _takes(metric, kind):
    return kind == metric.target_kind or (kind == "error" and metric.target_kind == "loss01")


@settings(max_examples=100)
@given(rows(target="loss01", most=6, weighted=False))
def test_aurc_is_the_mean_over_all_tie_breaks(case):
    expected = float(oracle.aurc_over_tie_breaks(case.score, case.target))
    assert_close(oracle.aurc(case.score, case.target), expected, what="the oracle itself")
    for backend in each_backend():
        assert_close(metrics.aurc(case.score, case.target), expected, what=backend)


@settings(max_examples=100)
@given(rows(target="error"))
def test_curves_equal_the_risk_inside_sub_level_sets(case):
    s, e, w = case
    expected = np.array(oracle.risk_curve(s, e, w))
    for _ in each_backend():
        for curve in (
            metrics.risk_coverage_curve(s, e, weights=w),
            metrics.mce_curve(s, e, weights=w),
            metrics.mbc_curve(s, e, weights=w),
        ):
            assert len(curve) == len(expected)
            np.testing.assert_array_equal(curve.threshold, expected[:, 0])
            np.testing.assert_allclose(curve.coverage, expected[:, 1], rtol=1e-12, atol=0)
            np.testing.assert_allclose(curve.risk, expected[:, 2], rtol=1e-12, atol=1e-15)
            np.testing.assert_array_equal(curve.accepted, expected[:, 3])
            assert curve.coverage[-1] == 1


@settings(max_examples=100)
@given(rows(target="loss01"))
def test_risk_coverage_curve_takes_a_loss(case):
    s, d, w = case
    expected = np.array(oracle.risk_curve(s, d, w))
    curve = metrics.risk_coverage_curve(s, d, weights=w)
    np.testing.assert_allclose(curve.risk, expected[:, 2], rtol=1e-12, atol=1e-15)


@settings(max_examples=100)
@given(confidences())
def test_ece_equals_its_definition(case):
    c, a, w = case
    for scheme in ("width", "mass"):
        for bins in (1, 4, 15):
            plain = oracle.ece(c, a, w, bins=bins, scheme=scheme)
            assert_close(metrics.ece(c, a, bins=bins, scheme=scheme, weights=w), plain, what=f"l1 {scheme} {bins}")
            square = oracle.ece(c, a, w, bins=bins, scheme=scheme, norm="l2") ** 2  # squares: √ magnifies rounding at 0
            assert_close(metrics.ece(c, a, bins=bins, scheme=scheme, weights=w, norm="l2") ** 2, square, what="l2")


@settings(max_examples=100)
@given(confidences())
def test_debiased_ece_equals_its_definition(case):
    c, a, _ = case
    assert_close(metrics.ece_debiased(c, a), oracle.ece(c, a, debias=True))
    for scheme in ("width", "mass"):
        for bins in (4, 15):
            options = {"bins": bins, "scheme": scheme, "debias": True}
            assert_close(metrics.ece(c, a, **options), oracle.ece(c, a, **options), what=f"l1 {scheme} {bins}")
            square = oracle.ece(c, a, norm="l2", **options) ** 2
            assert_close(metrics.ece(c, a, norm="l2", **options) ** 2, square, what=f"l2 {scheme} {bins}")


@settings(max_examples=100)
@given(tables(most=30))
def test_brier_and_log_loss_equal_their_definitions(case):
    probs, labels, w, _ = case
    expected = oracle.brier(probs, labels, w), oracle.log_loss(probs, labels, w)
    for _ in each_backend():
        assert_close(metrics.brier(probs, labels, weights=w), expected[0], what="brier")
        assert_close(metrics.log_loss(probs, labels, weights=w), expected[1], what="log_loss")


@settings(max_examples=100)
@given(in_out())
def test_ood_metrics_equal_their_definitions(case):
    inside, outside = case
    auroc = oracle.ood_auroc(inside, outside)
    fpr = {tpr: oracle.fpr_at_tpr(inside, outside, tpr) for tpr in (0.95, 0.55, 1.0, 0.07)}
    aupr = {side: oracle.ood_aupr(inside, outside, side) for side in ("out", "in")}
    for _ in each_backend():
        assert_close(metrics.ood_auroc(inside, outside), auroc, what="auroc")
        for tpr, value in fpr.items():
            assert_close(metrics.fpr_at_tpr(inside, outside, tpr=tpr), value, what=f"fpr at {tpr}")
        assert metrics.fpr_at_tpr(inside, outside) == fpr[0.95]
        for side, value in aupr.items():
            assert_close(metrics.ood_aupr(inside, outside, positive=side), value, what=f"aupr {side}")
