"""Exact values where there is nothing to rank; undefined is NaN with a warning, never a number."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest

import oracle
from cases import each, noted, on_both_kernels
from uqeval import metrics
from uqeval._errors import UndefinedMetricWarning, UQWarning

WEIGHTS = [None, [1.0, 2.0, 0.5, 0.25, 3.0, 1.0, 1.0, 0.1, 0.2, 0.3]]
SCORE = np.array([0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2, 0.6, 0.5, 0.3])
SELECTIVE = ("aurc", "e_aurc", "augrc", "g_auc", "h_auc", "auarc")


plain_and_weighted = each("weights", WEIGHTS, ids=["plain", "weighted"])


@on_both_kernels
@each(
    ("error", "expected"),
    [
        (0, {"aurc": 0, "e_aurc": 0, "augrc": 0, "g_auc": 0, "h_auc": 0, "auarc": 1}),
        (1, {"aurc": 1, "e_aurc": 0, "augrc": 0.5, "g_auc": 1, "h_auc": 0, "auarc": 0}),
    ],
    ids=["no errors", "all errors"],
)
@plain_and_weighted
def test_rows_that_are_all_right_or_all_wrong_have_exact_values(error, expected, weights):
    target = np.full(10, error)
    for name in SELECTIVE:
        assert getattr(metrics, name)(SCORE, target, weights=weights) == expected[name], name
    for name in ("uq_auc", "naurc", "prr", "uq_c_index"):
        with pytest.warns(UndefinedMetricWarning):
            assert math.isnan(getattr(metrics, name)(SCORE, target, weights=weights)), name
    assert metrics.accuracy(target, weights=weights) == 1 - error


@pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning")
@on_both_kernels
def test_constant_and_perfect_scores_have_exact_values():
    # A constant score is worth nothing.
    for constant, weights in product([0.0, -0.0, 0.7, -math.inf, math.inf, 5e-324], WEIGHTS):
        with noted(constant=constant, weights=weights):
            score, error = np.full(10, constant), np.array([1, 0, 0, 1, 0, 0, 1, 0, 0, 0])
            err = oracle.mean(error, weights)
            best = oracle.aurc_opt(error, weights)
            expected = {
                "uq_auc": 0.5,
                "uq_c_index": 0.5,
                "aurc": err,
                "e_aurc": err - best,
                "naurc": 1.0,
                "prr": 0.0,
                "auarc": 1 - err,
                "augrc": err / 2,
                "g_auc": err,
                "h_auc": err * (1 - err) / 2,
            }
            for name, value in expected.items():
                assert getattr(metrics, name)(score, error, weights=weights) == pytest.approx(value, abs=1e-14), name
            if weights is None:
                assert metrics.uq_auc(score, error) == metrics.uq_c_index(score, error) == 0.5
                assert metrics.somers_d(score, SCORE) == 0

    # A perfect score reaches the optimum.
    error = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    err, best = 0.3, float(oracle.aurc_opt_of_errors(10, 3))
    for score in (error, np.arange(10), np.array([0, 0, 1, 1, 2, 3, 3, 4, 4, 5])):
        assert metrics.uq_auc(score, error) == 1
        assert metrics.aurc(score, error) == pytest.approx(best, abs=1e-15)
        assert metrics.e_aurc(score, error) == pytest.approx(0, abs=1e-16)
        assert metrics.naurc(score, error) == pytest.approx(0, abs=1e-15)
        assert metrics.prr(score, error) == pytest.approx(1, abs=1e-15)
        assert metrics.augrc(score, error) == pytest.approx(err**2 / 2, abs=1e-16)
        assert metrics.g_auc(score, error) == pytest.approx(err**2, abs=1e-16)
        assert metrics.h_auc(score, error) == pytest.approx(err * (1 - err), abs=1e-16)


@on_both_kernels
def test_one_error_and_two_rows_are_enough():
    # One error is enough for every metric.
    score, error = np.arange(10), np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.uq_auc(score, error) == 8 / 9
        for name in (*SELECTIVE, "naurc", "prr", "uq_c_index"):
            assert math.isfinite(getattr(metrics, name)(score, error)), name

    # Two rows are enough.
    assert metrics.uq_auc([0, 1], [0, 1]) == 1
    assert metrics.uq_auc([1, 0], [0, 1]) == 0
    assert metrics.uq_auc([1, 1], [0, 1]) == 0.5
    assert metrics.aurc([0, 1], [0, 1]) == 0.25
    assert metrics.aurc([0, 1], [1, 0]) == 0.75
    assert metrics.aurc([0, 0], [1, 0]) == 0.5
    assert metrics.augrc([0, 1], [0, 1], unbiased=True) == 0
    assert metrics.augrc([0, 1], [1, 0], unbiased=True) == 0.5

    # OOD metrics of one row each.
    assert metrics.ood_auroc([0.0], [1.0]) == metrics.ood_aupr([0.0], [1.0]) == 1
    assert metrics.fpr_at_tpr([0.0], [1.0]) == 0
    assert metrics.fpr_at_tpr([1.0], [1.0]) == 1
    assert metrics.ood_auroc([1.0], [1.0]) == 0.5
    assert metrics.ood_aupr([1.0], [1.0]) == 0.5


@on_both_kernels
def test_nothing_to_rank_is_undefined():
    # Equal losses leave the C-index undefined.
    for weights in WEIGHTS:
        with noted(weights=weights):
            for loss in (np.zeros(10), np.full(10, 0.3), np.full(10, math.inf)):
                with pytest.warns(UndefinedMetricWarning):
                    assert math.isnan(metrics.uq_c_index(SCORE, loss, weights=weights))

    # Kendall is undefined where either side is constant.
    for weights in WEIGHTS:
        with noted(weights=weights):
            for score, truth in ((SCORE, np.ones(10)), (np.ones(10), SCORE)):
                with pytest.warns(UndefinedMetricWarning):
                    assert math.isnan(metrics.kendall_tau(score, truth, weights=weights))
            with pytest.warns(UndefinedMetricWarning):
                assert math.isnan(metrics.somers_d(SCORE, np.ones(10), weights=weights))
            assert metrics.somers_d(np.ones(10), SCORE, weights=weights) == pytest.approx(0, abs=1e-15)

    # Undefined after dropping rows of weight zero.
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.uq_auc([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]))
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.uq_c_index([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]))
    assert metrics.aurc([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]) == 0

    # The C-index is defined without errors and with errors only.
    loss = np.linspace(0.1, 0.4, 10)
    assert metrics.uq_c_index(loss, loss) == 1
    assert metrics.uq_c_index(-loss, loss) == 0


def test_undefined_warnings_are_uq_warnings_and_point_at_the_caller():
    assert issubclass(UndefinedMetricWarning, UQWarning)
    for call in (
        lambda: metrics.uq_auc([1, 2], [0, 0]),
        lambda: metrics.uq_c_index([1, 2], [0, 0]),
        lambda: metrics.naurc([1, 2], [0, 0]),
        lambda: metrics.prr([1, 2], [0, 0]),
        lambda: metrics.kendall_tau([1, 2], [0, 0]),
        lambda: metrics.somers_d([1, 2], [0, 0]),
        lambda: metrics.one_vs_rest("uq_auc", [1, 2], [0, 1], probs=np.eye(2)),
        lambda: metrics.one_vs_rest("uq_auc", [1, 2], [0, 1], probs=np.eye(2), average="micro"),
    ):
        with pytest.warns(UndefinedMetricWarning) as caught:
            call()
        assert [item.filename for item in caught] == [__file__]


def test_brier_ece_and_log_loss_reach_both_ends():
    # Brier reaches both ends.
    assert metrics.brier(np.eye(3), [0, 1, 2]) == 0
    assert metrics.brier(np.eye(3), [1, 2, 0]) == 2

    # ECE reaches both ends.
    for scheme in ("width", "mass"):
        for debias in (False, True):
            assert metrics.ece(np.ones(5), np.ones(5), scheme=scheme, debias=debias) == 0
            assert metrics.ece(np.ones(5), np.zeros(5), scheme=scheme, debias=debias) == 1
            assert metrics.ece(np.zeros(5), np.zeros(5), scheme=scheme, debias=debias) == 0

    # Probability zero of the label makes the log-loss infinite with the count.
    probs = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    with pytest.warns(UQWarning, match="2"):
        assert metrics.log_loss(probs, [1, 0, 0]) == math.inf
    assert metrics.log_loss(probs, [1, 0, 0], eps=1e-3) == pytest.approx((-2 * math.log(1e-3) + math.log(2)) / 3)
    assert metrics.log_loss(np.eye(3), [0, 1, 2]) == 0
    assert math.copysign(1, metrics.log_loss(np.eye(3), [0, 1, 2])) == 1
