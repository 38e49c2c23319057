"""Every metric equals its O(n²) definition to 1e-12, on both kernels, with ties and weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import oracle
from strategies import confidences, each_backend, in_out, rows, tables
from uqeval import metrics

pytestmark = [
    pytest.mark.filterwarnings("ignore::uqeval._errors.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning"),
    pytest.mark.filterwarnings("ignore:.*log-loss is infinite:uqeval._errors.UQWarning"),
]
thorough = settings(max_examples=2000)


def assert_close(value, expected, tolerance=1e-12, what=""):
    assert isinstance(value, float), what
    if math.isnan(expected):
        assert math.isnan(value), f"{what}: {value} should be NaN"
    else:
        assert value == pytest.approx(expected, rel=tolerance, abs=tolerance), what


@thorough
@given(rows(target="error"))
def test_metrics_of_errors_equal_their_definitions(case):
    s, e, w = case
    condition = oracle.naurc_condition(e, w)
    # A ratio of differences: rounding of AURC is magnified by 1/(err − AURC_opt), for any implementation.
    expected = {
        "uq_auc": (oracle.uq_auc(s, e, w), 1e-12),
        "uq_c_index": (oracle.uq_auc(s, e, w), 1e-12),
        "aurc": (oracle.aurc(s, e, w), 1e-12),
        "e_aurc": (oracle.e_aurc(s, e, w), 1e-12),
        "naurc": (oracle.naurc(s, e, w), max(1e-12, 1e-14 * condition)),
        "prr": (oracle.prr(s, e, w), max(1e-12, 1e-14 * condition)),
        "auarc": (oracle.auarc(s, e, w), 1e-12),
        "augrc": (oracle.augrc(s, e, w), 1e-12),
        "g_auc": (oracle.g_auc(s, e, w), 1e-12),
        "h_auc": (oracle.h_auc(s, e, w), 1e-12),
    }
    unbiased, accuracy = oracle.augrc_unbiased(s, e, w), oracle.accuracy(e, w)
    for backend in each_backend():
        for name, (value, tolerance) in expected.items():
            assert_close(getattr(metrics, name)(s, e, weights=w), value, tolerance, f"{name} on {backend}")
        assert_close(metrics.augrc(s, e, weights=w, unbiased=True), unbiased, what=f"unbiased augrc on {backend}")
        assert_close(metrics.accuracy(e, weights=w), accuracy, what=f"accuracy on {backend}")


@thorough
@given(rows(target="loss01"))
def test_metrics_of_a_loss_in_0_1_equal_their_definitions(case):
    s, d, w = case
    condition = oracle.naurc_condition(d, w)
    expected = {
        "aurc": (oracle.aurc(s, d, w), 1e-12),
        "auarc": (oracle.auarc(s, d, w), 1e-12),
        "augrc": (oracle.augrc(s, d, w), 1e-12),
        "naurc": (oracle.naurc(s, d, w), max(1e-12, 1e-14 * condition)),
        "prr": (oracle.prr(s, d, w), max(1e-12, 1e-14 * condition)),
    }
    unbiased = oracle.augrc_unbiased(s, d, w)
    for backend in each_backend():
        for name, (value, tolerance) in expected.items():
            assert_close(getattr(metrics, name)(s, d, weights=w), value, tolerance, f"{name} on {backend}")
        assert_close(metrics.augrc(s, d, weights=w, unbiased=True), unbiased, what=f"unbiased augrc on {backend}")


@thorough
@given(rows(target="loss"))
def test_metrics_of_any_loss_equal_their_definitions(case):
    s, d, w = case
    expected = {
        "uq_c_index": oracle.uq_c_index(s, d, w),
        "kendall_tau": oracle.kendall_tau(s, d, w),
        "somers_d": oracle.somers_d(s, d, w),
    }
    for backend in each_backend():
        for name, value in expected.items():
            assert_close(getattr(metrics, name)(s, d, weights=w), value, what=f"{name} on {backend}")


@settings(max_examples=300)
@given(rows(target="loss01", most=6, weighted=False))
def test_aurc_is_the_mean_over_all_tie_breaks(case):
    expected = float(oracle.aurc_over_tie_breaks(case.score, case.target))
    assert_close(oracle.aurc(case.score, case.target), expected, what="the oracle itself")
    for backend in each_backend():
        assert_close(metrics.aurc(case.score, case.target), expected, what=backend)


@thorough
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


@settings(max_examples=300)
@given(rows(target="loss01"))
def test_risk_coverage_curve_takes_a_loss(case):
    s, d, w = case
    expected = np.array(oracle.risk_curve(s, d, w))
    curve = metrics.risk_coverage_curve(s, d, weights=w)
    np.testing.assert_allclose(curve.risk, expected[:, 2], rtol=1e-12, atol=1e-15)


@thorough
@given(confidences())
def test_ece_equals_its_definition(case):
    c, a, w = case
    for scheme in ("width", "mass"):
        for bins in (1, 4, 15):
            plain = oracle.ece(c, a, w, bins=bins, scheme=scheme)
            assert_close(metrics.ece(c, a, bins=bins, scheme=scheme, weights=w), plain, what=f"l1 {scheme} {bins}")
            square = oracle.ece(c, a, w, bins=bins, scheme=scheme, norm="l2") ** 2  # squares: √ magnifies rounding at 0
            assert_close(metrics.ece(c, a, bins=bins, scheme=scheme, weights=w, norm="l2") ** 2, square, what="l2")


@thorough
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


@thorough
@given(tables(most=30))
def test_brier_and_log_loss_equal_their_definitions(case):
    probs, labels, w, _ = case
    expected = oracle.brier(probs, labels, w), oracle.log_loss(probs, labels, w)
    for _ in each_backend():
        assert_close(metrics.brier(probs, labels, weights=w), expected[0], what="brier")
        assert_close(metrics.log_loss(probs, labels, weights=w), expected[1], what="log_loss")


@thorough
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
