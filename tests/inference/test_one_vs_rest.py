"""One-versus-rest estimates: the value is that of `metrics.one_vs_rest`, the influence its derivative."""

from __future__ import annotations

import math
import warnings
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy import stats

import uqeval
from cases import noted
from uqeval import InputError
from uqeval.inference import estimate_one_vs_rest
from uqeval.metrics import one_vs_rest

METRICS, AVERAGES = ("uq_auc", "uq_c_index"), ("macro", "weighted", "micro")


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def rows(seed, n, classes=4, spread=1.5):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * spread
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=classes - 1)
    return probs, labels, rng


def test_the_value_is_that_of_one_vs_rest_and_the_standard_error_that_of_its_derivative_by_the_weights():
    n = 40
    for metric, average, weighted, clustered in product(METRICS, AVERAGES, (False, True), (False, True)):
        with noted(metric=metric, average=average, weighted=weighted, clustered=clustered):
            probs, labels, rng = rows(1, n)
            w = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
            g = np.arange(n) // 3 if clustered else np.arange(n)
            options = {"weights": w} if weighted else {}
            options |= {"clusters": g} if clustered else {}
            found = quiet(estimate_one_vs_rest, metric, probs, labels, average=average, **options)
            value = partial(one_vs_rest, metric, probs, labels, average=average)
            assert found.value == pytest.approx(value(weights=w), rel=1e-12)
            step = 1e-4 * np.eye(n)
            slope = np.array([(value(weights=w + d) - value(weights=w - d)) / 2e-4 for d in step]) * w
            units = np.bincount(g, weights=slope)
            se = math.sqrt((units**2).sum() * len(units) / (len(units) - 1))
            assert found.se == pytest.approx(se, rel=1e-5)
            predicted = probs.argmax(axis=1)
            wrong = w[predicted != labels]
            df = len(units) if clustered else wrong.sum() ** 2 / (wrong**2).sum() if metric == "uq_auc" else None
            df = (w.sum() ** 2 / (w**2).sum() if df is None else df) - 1
            half = stats.t.ppf(0.975, df) * se / (found.value * (1 - found.value))
            ends = 1 / (1 + np.exp(-(math.log(found.value / (1 - found.value)) + np.array([-half, half]))))
            assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-4)


def test_two_classes_give_the_estimate_of_the_task_itself():
    probs, labels, _ = rows(2, 300, classes=2)
    error = (probs.argmax(axis=1) != labels).astype(int)
    direct = quiet(uqeval.estimate, "uq_auc", probs.min(axis=1), error)
    for average in AVERAGES:
        found = quiet(estimate_one_vs_rest, "uq_auc", probs, labels, average=average)
        assert found.value == pytest.approx(direct.value, rel=1e-12)
        assert found.n_errors == direct.n_errors
        if average != "weighted":  # both classes have the same value: prevalence moves nothing
            assert found.se == pytest.approx(direct.se, rel=0.02)  # DeLong has n/(n − 1) on each side


def test_the_order_of_rows_does_not_matter():
    probs, labels, rng = rows(3, 60)
    w, g, order = rng.uniform(0.5, 2.0, 60), rng.integers(0, 20, 60), rng.permutation(60)
    for metric, average in product(METRICS, AVERAGES):
        with noted(metric=metric, average=average):
            how = {"average": average}
            one = quiet(estimate_one_vs_rest, metric, probs, labels, weights=w, clusters=g, **how)
            two = quiet(
                estimate_one_vs_rest, metric, probs[order], labels[order], weights=w[order], clusters=g[order], **how
            )
            assert two.value == one.value
            assert (two.low, two.high) == pytest.approx((one.low, one.high), rel=1e-12)


def test_rows_of_weight_zero_are_as_if_they_were_not_there():
    probs, labels, rng = rows(4, 60)
    w, g = rng.uniform(0.5, 2.0, 60), rng.integers(0, 20, 60)
    w[::4] = 0
    keep = w > 0
    for average in AVERAGES:
        of_auc = partial(quiet, estimate_one_vs_rest, "uq_auc", average=average)
        one = of_auc(probs, labels, weights=w, clusters=g)
        two = of_auc(probs[keep], labels[keep], weights=w[keep], clusters=g[keep])
        assert (one.value, one.low, one.high, one.n) == pytest.approx((two.value, two.low, two.high, two.n))


def test_what_limits_an_estimate_is_said():
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])
    with pytest.warns(uqeval.UndefinedMetricWarning, match="undefined in every class"):
        none = estimate_one_vs_rest("uq_auc", probs, [0, 1, 0, 0])  # nothing is wrong
    assert math.isnan(none.value)
    assert none.degenerate
    with pytest.warns(uqeval.UndefinedMetricWarning, match="no comparable pair"):
        assert math.isnan(estimate_one_vs_rest("uq_auc", probs, [0, 1, 0, 0], average="micro").low)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        perfect = estimate_one_vs_rest("uq_auc", probs, [0, 1, 0, 1])
    assert [str(one.message) for one in said] == list(perfect.warnings)
    assert perfect.warnings[0] == "uq_auc is undefined for classes 2, which are left out."
    assert perfect.warnings[1].startswith("few errors (1)")
    assert perfect.value == 1
    assert (perfect.method, perfect.high) == ("Wilson", 1.0)
    assert 0 < perfect.low < 1
    with pytest.warns(uqeval.UQWarning, match=r"few clusters \(1\)"):
        single = estimate_one_vs_rest("uq_c_index", probs, [0, 1, 0, 1], clusters=[7] * 4)
    assert math.isnan(single.se)
    assert math.isnan(single.low)
    with pytest.raises(InputError, match="average"):
        estimate_one_vs_rest("uq_auc", probs, [0, 1, 0, 1], average="mean")
    with pytest.raises(InputError, match="clusters"):
        estimate_one_vs_rest("uq_auc", probs, [0, 1, 0, 1], clusters=[1, 2])


@pytest.mark.slow
def test_one_vs_rest_intervals_hold_as_often_as_they_claim():
    reps = 400
    for metric, average in product(METRICS, AVERAGES):
        truth = np.mean([one_vs_rest(metric, *rows(seed, 20_000)[:2], average=average) for seed in range(900, 904)])
        for n in (100, 400):
            found = [quiet(estimate_one_vs_rest, metric, *rows(seed, n)[:2], average=average) for seed in range(reps)]
            held = np.mean([e.low <= truth <= e.high for e in found])
            print(metric, average, n, held)
            assert held >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / reps), (metric, average, n)
