"""SPEC section 7: exact values where there is nothing to rank; undefined is NaN with a warning, never a number."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import oracle
from uqeval import metrics
from uqeval._errors import UndefinedMetricWarning, UQWarning

WEIGHTS = [None, [1.0, 2.0, 0.5, 0.25, 3.0, 1.0, 1.0, 0.1, 0.2, 0.3]]
SCORE = np.array([0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2, 0.6, 0.5, 0.3])
SELECTIVE = ("aurc", "e_aurc", "augrc", "g_auc", "h_auc", "auarc")


@pytest.fixture(params=WEIGHTS, ids=["plain", "weighted"])
def weights(request):
    return request.param


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (0, {"aurc": 0, "e_aurc": 0, "augrc": 0, "g_auc": 0, "h_auc": 0, "auarc": 1}),
        (1, {"aurc": 1, "e_aurc": 0, "augrc": 0.5, "g_auc": 1, "h_auc": 0, "auarc": 0}),
    ],
    ids=["no errors", "all errors"],
)
def test_one_kind_of_row_gives_the_exact_values_of_the_spec(error, expected, weights, backend):
    target = np.full(10, error)
    for name in SELECTIVE:
        assert getattr(metrics, name)(SCORE, target, weights=weights) == expected[name], name
    for name in ("uq_auc", "naurc", "prr", "uq_c_index"):
        with pytest.warns(UndefinedMetricWarning):
            assert math.isnan(getattr(metrics, name)(SCORE, target, weights=weights)), name
    assert metrics.accuracy(target, weights=weights) == 1 - error


def test_c_index_is_defined_without_errors_and_with_errors_only(backend):
    loss = np.linspace(0.1, 0.4, 10)
    assert metrics.uq_c_index(loss, loss) == 1
    assert metrics.uq_c_index(-loss, loss) == 0


@pytest.mark.parametrize("constant", [0.0, -0.0, 0.7, -math.inf, math.inf, 5e-324])
@pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning")
def test_constant_score_gives_the_values_of_the_spec(constant, weights, backend):
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


def test_perfect_score_gives_the_values_of_the_spec(backend):
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


def test_one_error_is_enough_for_every_metric(backend):
    score, error = np.arange(10), np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.uq_auc(score, error) == 8 / 9
        for name in (*SELECTIVE, "naurc", "prr", "uq_c_index"):
            assert math.isfinite(getattr(metrics, name)(score, error)), name


def test_equal_losses_leave_the_c_index_undefined(weights, backend):
    for loss in (np.zeros(10), np.full(10, 0.3), np.full(10, math.inf)):
        with pytest.warns(UndefinedMetricWarning):
            assert math.isnan(metrics.uq_c_index(SCORE, loss, weights=weights))


def test_kendall_is_undefined_where_either_side_is_constant(weights, backend):
    for score, truth in ((SCORE, np.ones(10)), (np.ones(10), SCORE)):
        with pytest.warns(UndefinedMetricWarning):
            assert math.isnan(metrics.kendall_tau(score, truth, weights=weights))
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.somers_d(SCORE, np.ones(10), weights=weights))
    assert metrics.somers_d(np.ones(10), SCORE, weights=weights) == pytest.approx(0, abs=1e-15)


def test_undefined_after_dropping_rows_of_weight_zero(backend):
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.uq_auc([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]))
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(metrics.uq_c_index([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]))
    assert metrics.aurc([1, 2, 3], [0, 1, 0], weights=[1, 0, 2]) == 0


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


def test_two_rows_are_enough(backend):
    assert metrics.uq_auc([0, 1], [0, 1]) == 1
    assert metrics.uq_auc([1, 0], [0, 1]) == 0
    assert metrics.uq_auc([1, 1], [0, 1]) == 0.5
    assert metrics.aurc([0, 1], [0, 1]) == 0.25
    assert metrics.aurc([0, 1], [1, 0]) == 0.75
    assert metrics.aurc([0, 0], [1, 0]) == 0.5
    assert metrics.augrc([0, 1], [0, 1], unbiased=True) == 0
    assert metrics.augrc([0, 1], [1, 0], unbiased=True) == 0.5


def test_probability_zero_of_the_label_makes_the_log_loss_infinite_with_the_count():
    probs = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    with pytest.warns(UQWarning, match="2"):
        assert metrics.log_loss(probs, [1, 0, 0]) == math.inf
    assert metrics.log_loss(probs, [1, 0, 0], eps=1e-3) == pytest.approx((-2 * math.log(1e-3) + math.log(2)) / 3)
    assert metrics.log_loss(np.eye(3), [0, 1, 2]) == 0
    assert math.copysign(1, metrics.log_loss(np.eye(3), [0, 1, 2])) == 1


def test_brier_reaches_both_ends():
    assert metrics.brier(np.eye(3), [0, 1, 2]) == 0
    assert metrics.brier(np.eye(3), [1, 2, 0]) == 2


def test_ece_reaches_both_ends():
    for scheme in ("width", "mass"):
        for debias in (False, True):
            assert metrics.ece(np.ones(5), np.ones(5), scheme=scheme, debias=debias) == 0
            assert metrics.ece(np.ones(5), np.zeros(5), scheme=scheme, debias=debias) == 1
            assert metrics.ece(np.zeros(5), np.zeros(5), scheme=scheme, debias=debias) == 0


def test_ood_metrics_of_one_row_each():
    assert metrics.ood_auroc([0.0], [1.0]) == metrics.ood_aupr([0.0], [1.0]) == 1
    assert metrics.fpr_at_tpr([0.0], [1.0]) == 0
    assert metrics.fpr_at_tpr([1.0], [1.0]) == 1
    assert metrics.ood_auroc([1.0], [1.0]) == 0.5
    assert metrics.ood_aupr([1.0], [1.0]) == 0.5
