"""Identities between metrics, and the counter-examples of docs/theory/corrections.md, by section."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

import oracle
from cases import each
from strategies import each_backend, rows
from uqeval import metrics

pytestmark = [
    pytest.mark.filterwarnings("ignore::uqeval._errors.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning"),
]
close = {"rel": 1e-12, "abs": 1e-12}


@settings(max_examples=150)
@given(rows(target="error"))
def test_areas_are_functions_of_uq_auc_and_the_error_rate(case):
    s, e, w = case
    err = oracle.mean(e, w)
    for _ in each_backend():
        augrc, h_auc = metrics.augrc(s, e, weights=w), metrics.h_auc(s, e, weights=w)
        assert metrics.g_auc(s, e, weights=w) == 2 * augrc
        if 0 < err < 1:
            auc = metrics.uq_auc(s, e, weights=w)
            assert augrc == pytest.approx((1 - auc) * err * (1 - err) + err**2 / 2, **close)
            assert 2 * augrc == pytest.approx(err**2 + 2 * (1 - auc) * err * (1 - err), **close)
            assert h_auc == pytest.approx(auc * err * (1 - err), **close)


@settings(max_examples=150)
@given(rows(target="loss01"))
def test_auarc_and_prr_are_mirrors_of_aurc_and_naurc(case):
    s, d, w = case
    for _ in each_backend():
        assert metrics.auarc(s, d, weights=w) == 1 - metrics.aurc(s, d, weights=w)
        assert metrics.prr(s, d, weights=w) == pytest.approx(1 - metrics.naurc(s, d, weights=w), nan_ok=True, abs=1e-15)


@settings(max_examples=150)
@given(rows(target="error"))
def test_c_index_of_errors_is_uq_auc(case):
    s, e, w = case
    for _ in each_backend():
        auc, c = metrics.uq_auc(s, e, weights=w), metrics.uq_c_index(s, e, weights=w)
        assert c == pytest.approx(auc, rel=0 if w is None else 1e-13, abs=0, nan_ok=True)


@settings(max_examples=150)
@given(rows(target="loss"))
def test_somers_d_is_twice_the_c_index_less_one(case):
    s, d, w = case
    for _ in each_backend():
        expected = 2 * metrics.uq_c_index(s, d, weights=w) - 1
        assert metrics.somers_d(s, d, weights=w) == pytest.approx(expected, nan_ok=True, **close)


@settings(max_examples=100)
@given(rows(target="loss"))
def test_kendall_is_symmetric(case):
    s, d, w = case
    one, other = metrics.kendall_tau(s, d, weights=w), metrics.kendall_tau(d, s, weights=w)
    assert one == pytest.approx(other, nan_ok=True, **close)


@settings(max_examples=100)
@given(rows(target="loss01"))
def test_e_aurc_and_naurc_agree(case):
    s, d, w = case
    e = (d > 0.5).astype(float)
    err, best = oracle.mean(e, w), metrics.aurc(e, e, weights=w)
    if 0 < err < 1:
        assert metrics.e_aurc(s, e, weights=w) == pytest.approx(
            metrics.naurc(s, e, weights=w) * (err - best), rel=1e-10, abs=1e-12
        )


@settings(max_examples=100)
@given(rows(target="error", weighted=False))
def test_ood_auroc_is_uq_auc_with_the_foreign_rows_as_errors(case):
    s, e, _ = case
    if 0 < e.sum() < len(e):
        assert metrics.ood_auroc(s[e == 0], s[e == 1]) == metrics.uq_auc(s, e)


@settings(max_examples=100)
@given(rows(target="error"))
def test_curves_end_at_the_error_rate_and_carry_the_areas(case):
    s, e, w = case
    curve = metrics.mce_curve(s, e, weights=w)
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(oracle.mean(e, w), **close)
    x = np.concatenate([[0.0], curve.coverage])
    y = np.concatenate([[0.0], curve.coverage * curve.risk])
    assert metrics.augrc(s, e, weights=w) == pytest.approx(float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum()), **close)


@each("n", range(2, 10))
def test_oracle_aurc_is_the_exact_optimum_and_the_least_of_all_rankings(n):
    for wrong in range(1, n):
        best = float(oracle.aurc_opt_of_errors(n, wrong))
        values = []
        for places in combinations(range(n), wrong):
            error = np.zeros(n)
            error[list(places)] = 1
            values.append(metrics.aurc(np.arange(n), error))
            assert metrics.e_aurc(np.arange(n), error) == pytest.approx(values[-1] - best, abs=1e-15)
            assert metrics.e_aurc(np.arange(n), error) >= 0
        assert min(values) == pytest.approx(best, abs=1e-15)


# ---- docs/theory/corrections.md -------------------------------------------------------------------------------


def ranked(n, places):
    """Score 1..n and errors at the given ranks."""
    return np.arange(1, n + 1), np.isin(np.arange(1, n + 1), places).astype(int)


def test_g_auc_is_twice_augrc_and_not_aurc_in_every_ranking_up_to_nine_rows():
    """Section 1: equality in all enumerated rankings."""
    checked = 0
    for n in range(2, 10):
        for wrong in range(1, n):
            for places in combinations(range(1, n + 1), wrong):
                s, e = ranked(n, places)
                err, auc = Fraction(wrong, n), Fraction(metrics.uq_auc(s, e)).limit_denominator(1000)
                lemma = err**2 + 2 * (1 - auc) * err * (1 - err)
                assert metrics.g_auc(s, e) == pytest.approx(float(lemma), abs=1e-15)
                checked += 1
    assert checked == 1004


def test_uq_auc_and_aurc_can_disagree_about_two_scores():
    # Equal UQ-AUC with different AURC.
    # Section 1, n = 4: errors at ranks {1, 4} and {2, 3}.
    a, b = ranked(4, [1, 4]), ranked(4, [2, 3])
    assert metrics.uq_auc(*a) == metrics.uq_auc(*b) == 0.5
    assert metrics.g_auc(*a) == metrics.g_auc(*b)
    assert metrics.aurc(*a) == pytest.approx(7 / 12, abs=1e-15)
    assert metrics.aurc(*b) == pytest.approx(5 / 12, abs=1e-15)

    # UQ-AUC and AURC can order two scores the other way round.
    # Section 1, n = 5: errors at ranks {1, 5} and {2, 3}.
    a, b = ranked(5, [1, 5]), ranked(5, [2, 3])
    assert metrics.uq_auc(*a) == 0.5
    assert metrics.uq_auc(*b) == pytest.approx(1 / 3, abs=1e-16)
    assert metrics.aurc(*a) == pytest.approx(149 / 300, abs=1e-15)
    assert metrics.aurc(*b) == pytest.approx(31 / 75, abs=1e-15)
    assert metrics.uq_auc(*a) > metrics.uq_auc(*b)
    assert metrics.aurc(*a) > metrics.aurc(*b)  # and lower is better

    # Population inversion of UQ-AUC and AURC.
    # Section 1: 7% errors both. A: 30% in the 5% most certain, 55% in the last 10%. B: 10% above the 30% quantile.
    n = 20_000
    rank = np.arange(n)
    rng = np.random.default_rng(0)

    def spread(first, last, share):  # evenly spaced errors, shifted at random
        rows = np.arange(round(first * n), round(last * n))
        return rng.choice(rows, round(share * len(rows)), replace=False)

    a, b = np.zeros(n), np.zeros(n)
    a[np.concatenate([spread(0, 0.05, 0.3), spread(0.9, 1, 0.55)])] = 1
    b[spread(0.3, 1, 0.1)] = 1
    assert a.mean() == b.mean() == 0.07
    assert metrics.uq_auc(rank, a) == pytest.approx(0.771, abs=0.01)
    assert metrics.aurc(rank, a) == pytest.approx(0.0628, abs=0.003)
    assert metrics.uq_auc(rank, b) == pytest.approx(0.661, abs=0.01)
    assert metrics.aurc(rank, b) == pytest.approx(0.0339, abs=0.002)


def test_h_auc_prefers_the_worse_model():
    """Section 2: accuracy .95 and UQ-AUC .95 → .045; accuracy .6 and UQ-AUC .6 → .144. So never across models."""

    def model(right, wrong, auc):
        """Right scores 0, 1, 2 …; each wrong row above a share `auc` of them."""
        score = np.concatenate([np.arange(right), np.full(wrong, auc * right - 0.5)])
        return score, np.concatenate([np.zeros(right), np.ones(wrong)])

    good, bad = model(380, 20, 0.95), model(240, 160, 0.6)
    assert metrics.uq_auc(*good) == pytest.approx(0.95)
    assert metrics.uq_auc(*bad) == pytest.approx(0.6)
    assert metrics.h_auc(*good) == pytest.approx(0.95 * 0.05 * 0.95, abs=1e-12)
    assert metrics.h_auc(*bad) == pytest.approx(0.144, abs=1e-12)
    assert metrics.h_auc(*bad) > metrics.h_auc(*good)


def test_ties_earn_half_so_that_a_constant_is_not_the_best_score():
    """Section 4: "≤" on both sides would give a constant 1 and a perfect score .549 at accuracy .9."""
    error = np.array([0] * 90 + [1] * 10)
    assert metrics.uq_auc(np.zeros(100), error) == 0.5
    assert metrics.uq_auc(error, error) == 1
    assert metrics.uq_c_index(np.zeros(100), np.arange(100)) == 0.5


def test_refinements_of_a_tied_truth_are_optimal_too():
    """Section 5: a score may tell apart what the truth ties."""
    assert metrics.uq_auc([0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1]) == 1


def test_with_three_classes_varphi_and_the_mbc_curve_lose_their_guarantees():
    # Varphi is not optimal for the C-index with three classes.
    # Section 6: C(varphi) = .368, the reversed order .632.
    nu = np.array([[0.55, 0, 0.45], [0.55, 0.45, 0]])
    probs = np.array([[0.50, 0.48, 0.02], [0.45, 0.55, 0]])
    x, y = np.nonzero(nu)
    weights, loss = nu[x, y], -probs[x, y]
    varphi = 1 - probs[np.arange(2), nu.argmax(axis=1)]
    assert metrics.uq_c_index(varphi[x], loss, weights=weights) == pytest.approx(0.368, abs=5e-4)
    assert metrics.uq_c_index(-varphi[x], loss, weights=weights) == pytest.approx(0.632, abs=5e-4)

    # Mbc need not rise with three classes.
    # Section 7: 0, .286, .200.
    curve = metrics.mbc_curve([0.1, 0.55, 0.6], [0, 1, 0], weights=[0.5, 0.2, 0.3])
    assert curve.risk == pytest.approx([0, 2 / 7, 0.2], abs=1e-15)
    assert curve.coverage == pytest.approx([0.5, 0.7, 1.0], abs=1e-15)


def test_c_index_rewards_the_models_own_noise():
    """Section 8: confidence is pure noise, the label is Bayes': UQ-AUC about ½, UQ-C-index about .9."""
    rng = np.random.default_rng(0)
    n = 20_000
    phi = rng.uniform(0, 0.2, n)
    error = rng.random(n) < phi
    confidence = rng.uniform(0.5, 1, n)
    loss = np.where(error, confidence, 1 - confidence)
    own = 1 - confidence
    assert metrics.uq_auc(own, error) == pytest.approx(0.5, abs=0.02)
    assert metrics.uq_c_index(own, loss) > 0.75
    assert metrics.uq_auc(phi, error) > 0.6
    assert metrics.uq_c_index(phi, loss) < 0.6


def test_distinct_saturated_gaps_are_ties_only_when_written_as_one_minus_p():
    """Rank −p, not 1 − p."""
    p = np.array([1e-17, 1e-30, 0.5])
    score = [1, 2, 0]
    assert metrics.uq_c_index(score, -p) == 1
    assert len(np.unique(1 - p)) == 2
