"""Influence values against their definition, W · ∂T/∂w_i, by numeric differentiation of the weighted metric."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from inference_reference import aurc, influence, make_case, numeric_influence

from cases import noted
from uqeval.inference.count import count_mean
from uqeval.inference.means import estimate_mean
from uqeval.inference.sample import Rows, Sample
from uqeval.metrics import REGISTRY
from uqeval.metrics.areas import Accepted

RANKED = [
    metric for metric in REGISTRY.values() if metric.uses_score and "phi" not in metric.needs[1] and not metric.made
]
# The risk of a share moves with the cut, whose own risk is taken from its neighbourhood: see the last tests.
SHARES = [metric.name for metric in RANKED if isinstance(metric.formula, Accepted)]
NAMES = [metric.name for metric in RANKED if metric.name not in SHARES]
LOSS_TOO = [metric.name for metric in RANKED if metric.losses and metric.name not in SHARES]
# The oracle's AURC of 0/1 errors is differentiated in its large-sample form err + (1 − err) ln(1 − err).
EXACT = [name for name in NAMES if name not in ("e_aurc", "naurc", "prr")]


def sample_for(name, s, v, d, w, g=None):
    target = d if name == "uq_c_index" else v.astype(np.uint8)
    return Sample.of(s, target, w, g)


def weighted_metric(name):
    function = REGISTRY[name].function
    return lambda s, t, w: function(s, t, weights=w)


def test_influence_has_weighted_mean_zero_and_no_scale_of_weights():
    # Influence values have weighted mean zero.
    for name, weighted, ties in product(NAMES, [False, True], [False, True]):
        with noted(name=name, weighted=weighted, ties=ties):
            for seed in range(20):
                s, v, d, w, _ = make_case(seed, ties=ties)
                values = influence(name, sample_for(name, s, v, d, w if weighted else None))
                w = w if weighted else np.ones(len(s))
                assert abs((w * values).sum()) < 1e-10 * np.abs(w * values).sum()

    # Influence does not depend on the scale of the weights.
    for name in NAMES:
        with noted(name=name):
            s, v, d, w, _ = make_case(6)
            one = influence(name, sample_for(name, s, v, d, w))
            np.testing.assert_allclose(
                influence(name, sample_for(name, s, v, d, 37.5 * w)), one, rtol=1e-10, atol=1e-12
            )


def test_influence_is_the_derivative_in_the_weight():
    for name, weighted, ties in product(EXACT, [False, True], [False, True]):
        with noted(name=name, weighted=weighted, ties=ties):
            for seed in range(2):
                s, v, d, w, _ = make_case(seed, n=30, ties=ties)
                w = w if weighted else np.ones(len(s))
                sample = sample_for(name, s, v, d, w if weighted else None)
                target = d if name == "uq_c_index" else v
                expected = numeric_influence(weighted_metric(name), s, target, w)
                # Where rows weigh the same, PRR at 50% has a kink: a difference quotient errs in the first order.
                kink = name == "prr_50" and not weighted
                rtol, atol = (1e-5, 1e-5) if kink else (1e-7, 1e-9)
                np.testing.assert_allclose(influence(name, sample), expected, rtol=rtol, atol=atol)

    # Influence on a loss in [0, 1] is the derivative in the weight.
    for name, weighted, ties in product(LOSS_TOO, [False, True], [False, True]):
        with noted(name=name, weighted=weighted, ties=ties):
            rng = np.random.default_rng(5)
            s, _, d, w, _ = make_case(8, n=40, ties=ties)
            loss = np.clip(d, 0, 1) if ties else rng.random(40)
            w = w if weighted else np.ones(40)
            expected = numeric_influence(weighted_metric(name), s, loss, w)
            found = influence(name, Sample.of(s, loss, w if weighted else None))
            rtol, atol = (1e-5, 1e-5) if name == "prr_50" and not weighted else (1e-6, 1e-8)
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)

    # Influence of the AURC family is close to the derivative in large samples.
    for name in ["aurc", "e_aurc", "naurc", "auarc", "prr"]:
        with noted(name=name):
            n = 2000
            s, v, d, w, _ = make_case(3, n=n, ties=False, error=0.2)
            metric, rows = weighted_metric(name), np.random.default_rng(0).choice(n, 20, replace=False)
            found = influence(name, sample_for(name, s, v, d, w))
            for i in rows:
                up, down = w.copy(), w.copy()
                up[i] += 0.02
                down[i] -= 0.02
                slope = w.sum() * (metric(s, v, up) - metric(s, v, down)) / 0.04
                assert slope == pytest.approx(found[i], abs=0.02 * found.std())


def test_influence_matches_the_written_formula():
    for name in ["uq_auc", "augrc", "h_auc"]:
        with noted(name=name):
            s, v, _, w, _ = make_case(1, n=50)
            W, T = w.sum(), REGISTRY[name].function(s, v, weights=w)
            above = (s[None, :] > s[:, None]) + 0.5 * (s[None, :] == s[:, None])  # [i, j] = 1{s_j > s_i}
            below = 1 - above
            if name == "augrc":
                expected = v * (above @ w) / W + below @ (w * v) / W - 2 * T
            elif name == "h_auc":
                expected = (1 - v) * (above @ (w * v)) / W + v * (below @ (w * (1 - v))) / W - 2 * T
            else:
                credit = np.where(v == 1, below @ (w * (1 - v)), above @ (w * v))
                comparable = np.where(v == 1, (w * (1 - v)).sum(), (w * v).sum())
                expected = 2 * W * (credit - T * comparable) / (w * comparable).sum()
            found = influence(name, Sample.of(s, v.astype(np.uint8), w))
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)

    # AURC influence matches the written formula without ties.
    s, v, _, w, _ = make_case(2, n=50, ties=False)
    order = np.argsort(s)
    so, vo, wo = s[order], v[order], w[order]
    W, E = np.cumsum(wo), np.cumsum(wo * vo)
    R, T = E / W, aurc(so, vo, wo)
    expected = [R[i] - T + sum(wo[k] * (vo[i] - R[k]) / W[k] for k in range(i, 50)) for i in range(50)]
    found = influence("aurc", Sample.of(so, vo.astype(np.uint8), wo))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)

    # E-AURC influence adds the oracle term.
    s, v, _, w, _ = make_case(2, n=50)
    sample = Sample.of(s, v.astype(np.uint8), w)
    err = (w * v).sum() / w.sum()
    expected = influence("aurc", sample) + math.log(1 - err) * (v - err)
    np.testing.assert_allclose(influence("e_aurc", sample), expected, rtol=1e-11, atol=1e-13)

    # Related metrics have related influence.
    s, v, _, w, _ = make_case(4)
    sample = Sample.of(s, v.astype(np.uint8), w)
    np.testing.assert_array_equal(influence("g_auc", sample), 2 * influence("augrc", sample))
    np.testing.assert_array_equal(influence("auarc", sample), -influence("aurc", sample))
    np.testing.assert_array_equal(influence("prr", sample), -influence("naurc", sample))


def test_influence_predicts_the_effect_of_leaving_out_one_row():
    n = 2000
    s, v, d, _, _ = make_case(9, n=n, ties=False)
    for name in NAMES:
        if name == "prr_50":  # of one row less another share is half: `test_partial_prr`
            continue
        target = d if name == "uq_c_index" else v
        function = REGISTRY[name].function
        values = influence(name, sample_for(name, s, v, d, None))
        for i in range(20):
            keep = np.arange(n) != i
            effect = (n - 1) * (function(s, target) - function(s[keep], target[keep]))
            assert effect == pytest.approx(values[i], abs=0.03 * values.std()), name


def test_variance_is_the_sum_of_squares_over_rows_or_clusters():
    _, _, _, w, g = make_case(7, clusters=9)
    values = np.random.default_rng(0).normal(size=len(w))
    n = len(w)

    def variance(weights=None, clusters=None):
        rows = Rows(n, weights, clusters)
        return estimate_mean(REGISTRY["brier"], count_mean(values, rows), 0.95).se ** 2

    gap = values - values.mean()
    assert variance() == pytest.approx((gap**2).sum() / (n * (n - 1)))
    part = w * (values - np.average(values, weights=w)) / w.sum()
    assert variance(w) == pytest.approx(n / (n - 1) * (part**2).sum())
    sums = np.array([part[g == k].sum() for k in np.unique(g)])
    assert variance(w, g) == pytest.approx(len(sums) / (len(sums) - 1) * (sums**2).sum())
    assert math.isnan(variance(w, np.zeros(n, dtype=np.int64)))


def test_influence_on_the_risk_of_a_share_is_the_derivative_and_has_mean_zero():
    # Influence on the risk of a share is the derivative where the cut lies inside a tied block.
    rng = np.random.default_rng(3)
    for name in SHARES:
        s = np.where(np.arange(60) < 25, rng.random(60), 2.0)  # the neighbourhood of the cut is one block
        v, w = (rng.random(60) < 0.3).astype(np.uint8), np.ones(60)
        expected = numeric_influence(weighted_metric(name), s, v, w)
        np.testing.assert_allclose(influence(name, Sample.of(s, v)), expected, rtol=1e-6, atol=1e-8)

    # Influence on the risk of a share has mean zero and takes weights.
    for name in SHARES:
        for seed in range(20):
            s, v, _, w, _ = make_case(seed, ties=seed % 2 == 0)
            for weights in (None, w):
                values = influence(name, Sample.of(s, v.astype(np.uint8), weights))
                total = (values if weights is None else weights * values).sum()
                assert abs(total) < 1e-10 * np.abs(values).sum()
