"""The risk map: the curve of the metrics, exact bands around it, and ψ read from them."""

from __future__ import annotations

import json
import math
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import beta as beta_law
from scipy.stats import binom, binomtest, t

from strategies import FINITE_SCORES, make_probs, make_scores, rows, seeds
from uqeval import InputError, Predictions, UQWarning, metrics, truth
from uqeval._result import strict
from uqeval.decide import Psi, RiskMap, risk_map
from uqeval.decide.bounds import cluster_p, effective_rows, moments

COLUMNS = ("threshold", "coverage", "risk", "low", "high", "band_low", "band_high", "accepted", "bad")
errors = partial(rows, weighted=False, kinds=FINITE_SCORES, most=80)
losses = partial(rows, target="loss01", weighted=False, kinds=FINITE_SCORES, most=80)
LEVELS = st.sampled_from([0.5, 0.8, 0.95, 0.999])


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def check_equal(one, other, tolerance=0.0):
    """Column by column."""
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=tolerance, atol=tolerance)


def check_on_curve(found, curve, n):
    """The map is the metrics' curve at its thresholds."""
    at = np.searchsorted(curve.threshold, found.threshold)
    np.testing.assert_array_equal(found.threshold, curve.threshold[at])
    np.testing.assert_array_equal(found.accepted, curve.accepted[at])
    np.testing.assert_allclose(found.bad, curve.bad[at], rtol=1e-12)
    np.testing.assert_allclose(found.risk, curve.risk[at], rtol=1e-12)
    np.testing.assert_allclose(found.coverage, curve.coverage[at], rtol=1e-12)
    assert found.n == n
    assert found.coverage[-1] == 1


def check_nested(found):
    """Simultaneous band around pointwise one around the risk; the risk itself may be off by its rounding."""
    tiny = 1e-12
    for lower, upper in zip(
        (np.zeros(len(found)), found.band_low, found.low, found.risk, found.high, found.band_high),
        (found.band_low, found.low, found.risk, found.high, found.band_high, np.ones(len(found))),
        strict=True,
    ):
        assert (lower <= upper + tiny).all()


def clopper_pearson(bad, accepted, level):
    """(m, 2) by SciPy."""
    return np.array(
        [binomtest(int(e), int(k)).proportion_ci(level, method="exact") for e, k in zip(bad, accepted, strict=True)]
    )


def psi_by_definition(found, gamma):
    """The largest threshold whose risk (upper end, lower end) is within the prescribed one, by looking at each."""
    ends = []
    for risk in (found.risk, found.band_high, found.band_low):
        best = -math.inf
        for beta, value in zip(found.threshold, risk, strict=True):
            if value <= gamma:
                best = max(best, float(beta))
        ends.append(best)
    return Psi(gamma, *ends)


# ---- the curve ------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(errors())
def test_map_is_the_mce_curve_at_its_thresholds(case):
    found = risk_map(case.score, case.target)
    check_on_curve(found, metrics.mce_curve(case.score, case.target), len(case.score))
    assert (np.diff(found.threshold) > 0).all()
    assert found.what == "error"
    assert found.warnings == ()


@settings(max_examples=20)
@given(losses())
def test_map_of_a_loss_is_the_risk_coverage_curve_at_its_thresholds(case):
    found = risk_map(case.score, case.target)
    check_on_curve(found, metrics.risk_coverage_curve(case.score, case.target), len(case.score))
    assert found.what == ("error" if set(case.target.tolist()) <= {0, 1} else "loss")


def test_default_thresholds_are_equally_spaced_numbers_of_rows():
    for n, most in [(15, 15), (20, 20), (150, 20), (550, 55), (5000, 100)]:
        rng = np.random.default_rng(n)
        found = risk_map(rng.permutation(n), rng.integers(0, 2, n))
        # Sizes ⌈n j/m⌉; scores 0..n−1, so the k-th smallest one is k − 1.
        sizes = sorted({-(-n * j // max(most, 20)) for j in range(1, max(most, 20) + 1)})
        assert found.accepted.tolist() == sizes
        assert found.threshold.tolist() == [k - 1 for k in sizes]
        assert len(found) == most


@settings(max_examples=20)
@given(errors(), seeds)
def test_given_thresholds_accept_the_rows_at_or_below_them(case, seed):
    rng = np.random.default_rng(seed)
    low, high = case.score.min(), case.score.max()
    betas = np.concatenate([rng.choice(case.score, 3), rng.uniform(low / 2, high / 2, 2), [high, high, low]])
    found = risk_map(case.score, case.target, thresholds=rng.permutation(betas))
    expected = [b for b in sorted(set((betas + 0.0).tolist())) if (case.score <= b).any()]
    assert found.threshold.tolist() == expected
    assert found.accepted.tolist() == [(case.score <= b).sum() for b in expected]
    assert found.bad.tolist() == [case.target[case.score <= b].sum() for b in expected]


def test_tied_rows_are_accepted_together():
    score, error = [0.3] * 50 + [0.7] * 50, [0] * 45 + [1] * 5 + [1] * 50
    found = risk_map(score, error)
    assert found.threshold.tolist() == [0.3, 0.7]
    assert found.accepted.tolist() == [50, 100]
    assert found.risk.tolist() == [0.1, 0.55]


def test_signed_zeros_are_one_score():
    found = risk_map([-0.0, 0.0, 1.0], [1, 0, 0])
    assert found.threshold.tolist() == [0.0, 1.0]
    assert found.accepted.tolist() == [2, 3]


def test_a_constant_score_has_one_threshold():
    found = risk_map(np.full(30, 0.4), np.arange(30) % 3 == 0)
    assert (len(found), found.threshold[0], found.risk[0], found.coverage[0]) == (1, 0.4, 1 / 3, 1.0)
    np.testing.assert_array_equal([found.low, found.high], [found.band_low, found.band_high])


def test_infinite_scores_are_accepted_last_with_a_warning():
    with pytest.warns(UQWarning, match="1 infinite"):
        found = risk_map([0.1, 0.2, math.inf], [0, 0, 1])
    assert found.threshold.tolist() == [0.1, 0.2, math.inf]
    assert any("infinite" in note for note in found.warnings)
    assert "! " in str(found)


@settings(max_examples=20)
@given(losses(), seeds)
def test_row_order_changes_nothing(case, seed):
    order = np.random.default_rng(seed).permutation(len(case.score))
    check_equal(risk_map(case.score, case.target), risk_map(case.score[order], case.target[order]), tolerance=1e-13)


@settings(max_examples=20)
@given(errors(), seeds)
def test_row_order_changes_no_bit_of_0_1_errors(case, seed):
    order = np.random.default_rng(seed).permutation(len(case.score))
    check_equal(risk_map(case.score, case.target), risk_map(case.score[order], case.target[order]))


def test_dtypes_change_nothing():
    rng = np.random.default_rng(0)
    score, error = rng.integers(0, 9, 200), rng.integers(0, 2, 200)
    one = risk_map(score, error)
    check_equal(one, risk_map(score.astype("float32"), error.astype(bool)))
    check_equal(one, risk_map(score.tolist(), error.astype("float16")))


# ---- bands ----------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(errors(most=60), LEVELS)
def test_pointwise_band_is_clopper_pearson(case, level):
    found = risk_map(case.score, case.target, level=level)
    expected = clopper_pearson(found.bad, found.accepted, level)
    np.testing.assert_allclose(np.stack([found.low, found.high], axis=1), expected, rtol=1e-8, atol=1e-12)
    assert found.level == level


@settings(max_examples=12)
@given(errors(most=60), LEVELS)
def test_simultaneous_band_shares_the_error_among_the_thresholds(case, level):
    found = risk_map(case.score, case.target, level=level)
    expected = clopper_pearson(found.bad, found.accepted, 1 - (1 - level) / len(found))
    np.testing.assert_allclose(np.stack([found.band_low, found.band_high], axis=1), expected, rtol=1e-8, atol=1e-12)


@settings(max_examples=20)
@given(errors(), LEVELS)
def test_simultaneous_band_holds_the_pointwise_one_and_that_the_risk(case, level):
    found = risk_map(case.score, case.target, level=level)
    check_nested(found)
    assert (found.low[found.bad == 0] == 0).all()
    assert (found.high[found.bad == found.accepted] == 1).all()


@settings(max_examples=20)
@given(losses(), LEVELS)
def test_bands_of_losses_are_nested(case, level):
    check_nested(risk_map(case.score, case.target, level=level))


def hoeffding_bentkus(total, k, risk):
    """P-value of "mean loss ≥ risk" (Bates et al. 2021), written anew."""
    mean = min(total / k, risk)
    near = mean * math.log(mean / risk) if mean > 0 else 0.0
    far = (1 - mean) * math.log((1 - mean) / (1 - risk)) if mean < 1 else 0.0
    return min(1.0, math.exp(-k * (near + far)), math.e * binom.cdf(math.ceil(total - 1e-9), k, risk))


@settings(max_examples=12)
@given(losses(most=40), LEVELS)
def test_bounds_of_a_loss_are_where_the_hoeffding_bentkus_p_value_is_alpha(case, level):
    assume(not set(case.target.tolist()) <= {0, 1})
    found = risk_map(case.score, case.target, level=level)
    for alpha, low, high in (
        ((1 - level) / 2, found.low, found.high),
        ((1 - level) / len(found) / 2, found.band_low, found.band_high),
    ):
        for k, bad, below, above in zip(found.accepted.tolist(), found.bad.tolist(), low, high, strict=True):
            if above < 1 - 1e-9:
                assert hoeffding_bentkus(bad, k, above) == pytest.approx(alpha, rel=1e-5)
            if below > 1e-9:
                assert hoeffding_bentkus(k - bad, k, 1 - below) == pytest.approx(alpha, rel=1e-5)


def test_bounds_of_a_loss_that_is_nowhere_or_everywhere_stay_informative():
    score = np.arange(200.0)
    none = risk_map(score, np.where(score == 199, 0.5, 0.0))
    every = risk_map(score, np.where(score == 199, 0.5, 1.0))
    assert none.low[0] == none.band_low[0] == 0
    assert every.high[0] == every.band_high[0] == 1
    # Without any loss Hoeffding gives (1 − r)^k = alpha.
    np.testing.assert_allclose(none.high[:-1], 1 - 0.025 ** (1 / none.accepted[:-1]), rtol=1e-9)
    np.testing.assert_allclose(every.low[:-1], 0.025 ** (1 / every.accepted[:-1]), rtol=1e-9)


def test_bounds_of_a_loss_are_wider_than_those_of_errors_with_the_same_mean():
    rng = np.random.default_rng(1)
    score, error = rng.random(400), rng.random(400) < 0.2
    loss = np.where(error, 1 - 1e-12, 0.0)
    exact, general = risk_map(score, error), risk_map(score, loss)
    assert (general.what, exact.what) == ("loss", "error")
    np.testing.assert_allclose(exact.risk, general.risk, rtol=1e-9)
    assert (general.low <= exact.low + 1e-9).all()
    assert (general.high >= exact.high - 1e-9).all()


# ---- ψ --------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(losses(), st.sampled_from([1e-9, 0.01, 0.1, 0.25, 0.5, 0.75, 0.999]))
def test_psi_is_the_largest_threshold_within_the_prescribed_risk(case, gamma):
    found = risk_map(case.score, case.target)
    psi = found.psi(gamma)
    assert psi == psi_by_definition(found, gamma)
    assert psi.low <= psi.value <= psi.high
    if psi.value > -math.inf:
        inside = case.score <= psi.value
        assert case.target[inside].mean() <= gamma + 1e-12


@settings(max_examples=20)
@given(errors())
def test_psi_at_an_observed_risk_accepts_it(case):
    found = risk_map(case.score, case.target)
    for k, risk in enumerate(found.risk.tolist()):
        if 0 < risk < 1:
            assert found.psi(risk).value >= found.threshold[k]


def test_psi_rises_with_the_risk():
    rng = np.random.default_rng(2)
    score = rng.random(500)
    found = risk_map(score, rng.random(500) < score)
    steps = [found.psi(gamma) for gamma in np.linspace(0.01, 0.99, 50)]
    for a, b in pairwise(steps):
        assert all(x <= y for x, y in zip(a, b, strict=True))


def test_psi_is_minus_infinity_where_no_threshold_will_do():
    found = risk_map(np.arange(100), np.ones(100))
    assert found.psi(0.05) == Psi(0.05, -math.inf, -math.inf, -math.inf)
    rng = np.random.default_rng(3)
    few = risk_map(rng.random(20), np.zeros(20)).psi(0.05)
    assert few.low == -math.inf
    assert few.value == few.high > -math.inf


def test_psi_looks_past_a_bump():
    # A confident error: the risk is 1 at first, then falls.
    found = risk_map(np.arange(100), np.arange(100) == 0)
    assert found.risk[0] == 0.2  # 5 rows at the first threshold
    assert found.psi(0.01).value == 99
    assert found.psi(0.009).value == -math.inf


def test_misalignment_need_not_rise_with_the_score_where_there_are_three_classes():
    # Aligned, misaligned, aligned with mass .5, .2, .3.
    varphi = np.repeat([0.1, 0.55, 0.6], [50, 20, 30])
    found = risk_map(varphi, varphi == 0.55, risk="misaligned")
    np.testing.assert_allclose(found.risk, [0, 2 / 7, 0.2])
    assert found.what == "misaligned"
    assert found.psi(0.2).value == 0.6
    assert found.psi(0.19).value == 0.1


def test_table_holds_psi_at_every_observed_risk_or_at_those_asked_for():
    rng = np.random.default_rng(4)
    found = risk_map(rng.random(60), rng.integers(0, 2, 60))
    table = found.table()
    assert [p.max_risk for p in table] == sorted({r for r in found.risk.tolist() if 0 < r < 1})
    assert table == [found.psi(p.max_risk) for p in table]
    assert found.table([0.2, 0.1]) == [found.psi(0.2), found.psi(0.1)]
    assert found.table(np.array([])) == []
    with pytest.raises(InputError, match="max_risk"):
        found.table([0.1, 1.0])


def test_table_of_one_risk_is_its_psi():
    found = risk_map([0.1, 0.2, 0.3], [0, 0, 1])
    assert found.table(0.1) == found.table([0.1]) == [found.psi(0.1)]


def test_psi_of_what_is_no_risk_is_refused():
    for bad in [0, 1, 5, -0.1, math.nan, "0.1", None, True, [0.1, 0.2]]:
        with pytest.raises(InputError, match="max_risk"):
            risk_map([0.1, 0.2], [0, 1]).psi(bad)


# ---- predictions and misalignment -----------------------------------------------------------------------------


def with_soft_labels(seed, n=120, tied=False):
    rng = np.random.default_rng(seed)
    votes = rng.multinomial(4 if tied else 5, rng.dirichlet(np.ones(3)), n) / (4 if tied else 5)
    if not tied:
        votes = rng.dirichlet(np.ones(3), n)
    probs = rng.dirichlet(np.ones(3), n)
    return Predictions(rng.integers(0, 3, n), probs=probs, soft_labels=votes, scores={"mine": rng.random(n)})


@settings(max_examples=20)
@given(seeds)
def test_map_of_misalignment_is_the_mbc_curve(seed):
    p = with_soft_labels(seed)
    found = quiet(risk_map, "mine", predictions=p, risk="misaligned")
    apart = truth.misaligned(p.soft_labels, p.probs)
    check_on_curve(found, metrics.mbc_curve(p.scores["mine"], apart), p.n)
    assert (found.what, found.score) == ("misaligned", "mine")
    check_equal(found, risk_map(p.scores["mine"], apart, risk="misaligned"))


def test_misalignment_is_promised_for_the_majority_of_annotators_and_says_so():
    with pytest.warns(UQWarning, match="annotators"):
        found = risk_map("mine", predictions=with_soft_labels(0), risk="misaligned")
    assert any("annotators" in note for note in found.warnings)


@settings(max_examples=20)
@given(seeds)
def test_rows_with_a_tied_majority_are_left_out_or_count_as_misaligned(seed):
    p = with_soft_labels(seed, tied=True)
    tied = (p.soft_labels == p.soft_labels.max(axis=1, keepdims=True)).sum(axis=1) > 1
    assume(0 < tied.sum() < p.n - 2)
    score, apart = p.scores["mine"], p.soft_labels.argmax(axis=1) != p.probs.argmax(axis=1)
    dropped = quiet(risk_map, "mine", predictions=p, risk="misaligned")
    check_on_curve(dropped, metrics.mbc_curve(score[~tied], apart[~tied]), int((~tied).sum()))
    counted = quiet(risk_map, score, predictions=p, risk="misaligned", tie="error")
    check_on_curve(counted, metrics.mbc_curve(score, apart | tied), p.n)
    assert any("tied" in note for note in dropped.warnings)
    assert any("tied" in note for note in counted.warnings)


@settings(max_examples=10)
@given(seeds)
def test_map_of_predictions_is_that_of_their_arrays(seed):
    rng = np.random.default_rng(seed)
    probs, labels = make_probs(rng, 60, 3), rng.integers(0, 3, 60)
    clusters = rng.integers(0, 20, 60)
    score = make_scores(rng, 60, "grid")
    p = Predictions(labels, probs=probs, scores={"mine": score}, loss=rng.random(60), clusters=clusters)
    error = quiet(truth.misclassified, probs, labels)
    found = quiet(risk_map, "mine", predictions=p)
    check_equal(found, risk_map(score, error, clusters=clusters))
    assert found.score == "mine"
    check_equal(quiet(risk_map, {"x": score}, predictions=p), found)
    losses_of = quiet(risk_map, "mine", predictions=p, risk="loss")
    check_equal(losses_of, risk_map(score, p.loss, clusters=clusters), tolerance=1e-12)
    assert losses_of.what == "loss"


def test_weighted_predictions_are_refused_as_for_choose_threshold():
    # No exact bound for weighted rows; a band that ignores the weights would be for another population.
    p = Predictions(error=[0, 1, 0], scores={"mine": [0.1, 0.2, 0.3]}, weights=[1, 2, 3])
    with pytest.raises(InputError, match="weights"):
        risk_map("mine", predictions=p)


# ---- clusters -------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seeds, LEVELS, st.booleans())
def test_band_of_clusters_joins_a_logit_t_interval_and_one_at_effective_rows(seed, level, continuous):
    rng = np.random.default_rng(seed)
    n = 150
    clusters, score = rng.integers(0, 40, n), make_scores(rng, n, "mixture")
    loss = rng.random(n) if continuous else (rng.random(n) < 0.3) * 1.0
    found = risk_map(score, loss, clusters=clusters, level=level)
    check_nested(found)
    for k, value in enumerate(found.threshold):
        inside = score <= value
        risk, groups = loss[inside].mean(), np.unique(clusters[inside])
        if len(groups) < 2:
            assert (found.low[k], found.high[k]) == (0, 1)
            continue
        excess = [(loss[inside & (clusters == g)] - risk).sum() / inside.sum() for g in groups]
        se = math.sqrt(len(groups) / (len(groups) - 1) * math.fsum(x * x for x in excess))
        if not 1e-9 < risk < 1 - 1e-9 or se < 1e-9:
            continue
        for share, low, high in (
            (1 - level, found.low[k], found.high[k]),
            ((1 - level) / len(found), found.band_low[k], found.band_high[k]),
        ):
            half = t.ppf(1 - share / 2, len(groups) - 1) * se / (risk * (1 - risk))
            centre = math.log(risk / (1 - risk))
            rows = np.array([(inside & (clusters == g)).sum() for g in groups], dtype=float)
            total = np.array([loss[inside & (clusters == g)].sum() for g in groups])
            size = float(effective_rows(moments(total, rows))[0])
            errors = size * risk
            ends = (
                beta_law.ppf(share / 2, errors, size - errors + 1),
                beta_law.ppf(1 - share / 2, errors + 1, size - errors),
            )
            lower = 1 / (1 + math.exp(-min(700, max(-700, centre - half))))
            upper = 1 / (1 + math.exp(-min(700, max(-700, centre + half))))
            largest = float(np.bincount(clusters).max())
            tested = [not_ruled_out(part, rows, largest, share / 2) for part in (total, rows - total)]
            assert low == pytest.approx(min(lower, ends[0], 1 - tested[1]), rel=1e-5, abs=1e-9)
            assert high == pytest.approx(max(upper, ends[1], tested[0]), rel=1e-5)


def not_ruled_out(total, rows, largest, alpha):
    """The largest risk with a p-value above alpha."""

    def excess(risk):
        return float(cluster_p(moments(total, rows), risk, largest=largest)[0]) - alpha

    top = 1 - 1e-12
    return 1.0 if excess(top) > 0 else brentq(excess, total.sum() / rows.sum(), top, xtol=1e-13)


def test_the_safe_end_is_safe_where_wrong_clusters_are_the_large_ones():
    # Wrong patients have 20 rows, right ones one; 5.01% of the rows are wrong at every threshold.
    rng, safe = np.random.default_rng(7), []
    for _ in range(40):
        wrong = rng.random(1000) < 0.0501 / (20 * 0.9499 + 0.0501)
        patients = np.repeat(np.arange(1000), np.where(wrong, 20, 1))
        found = risk_map(rng.random(1000)[patients], wrong[patients], clusters=patients, largest_cluster=20)
        safe.append(found.psi(0.05).low == -math.inf)
    assert np.mean(safe) >= 0.9


def test_a_larger_cluster_that_may_come_widens_the_band():
    rng = np.random.default_rng(8)
    score, patients = rng.random(900), np.arange(900) // 3
    error = rng.random(900) < 0.1 * score
    seen, more = (risk_map(score, error, clusters=patients, largest_cluster=most) for most in (None, 60))
    assert (more.band_high >= seen.band_high).all()
    assert more.band_high[-1] > seen.band_high[-1] + 0.01
    with pytest.raises(InputError, match="`largest_cluster` must be an int ≥ 3, the largest here"):
        risk_map(score, error, clusters=patients, largest_cluster=2)
    with pytest.raises(InputError, match="`largest_cluster` needs `clusters`"):
        risk_map(score, error, largest_cluster=2)


def test_band_of_singleton_clusters_is_close_to_that_of_rows():
    rng = np.random.default_rng(5)
    score = rng.random(4000)
    error = rng.random(4000) < 0.1 + 0.3 * score
    plain, single = risk_map(score, error), risk_map(score, error, clusters=rng.permutation(4000))
    np.testing.assert_array_equal(plain.risk, single.risk)
    large = plain.accepted >= 400
    for name in ("low", "high", "band_low", "band_high"):
        np.testing.assert_allclose(getattr(plain, name)[large], getattr(single, name)[large], atol=0.01)


def test_copied_rows_need_clusters_to_be_honest():
    rng = np.random.default_rng(6)
    score = rng.random(300)
    error = rng.random(300) < 0.3
    once, copied = risk_map(score, error), risk_map(np.repeat(score, 10), np.repeat(error, 10))
    honest = risk_map(np.repeat(score, 10), np.repeat(error, 10), clusters=np.repeat(np.arange(300), 10))
    widths = [(found.high - found.low)[-1] for found in (once, copied, honest)]
    assert widths[1] < widths[0] / 2
    assert widths[2] == pytest.approx(widths[0], rel=0.1)


def test_clusters_without_any_error_count_as_so_many_trials():
    found = risk_map(np.arange(40), np.zeros(40), clusters=np.repeat(np.arange(20), 2))
    last = binomtest(0, 20).proportion_ci(0.95)
    assert (found.low[-1], found.high[-1]) == pytest.approx((last.low, last.high))


@settings(max_examples=20)
@given(seeds)
def test_names_of_clusters_and_order_of_rows_change_nothing(seed):
    rng = np.random.default_rng(seed)
    score, loss, clusters = rng.integers(0, 30, 90), rng.random(90), rng.integers(0, 25, 90)
    order, names = rng.permutation(90), rng.permutation(25)
    one = risk_map(score, loss, clusters=clusters)
    other = risk_map(score[order], loss[order], clusters=[f"patient {names[g]}" for g in clusters[order]])
    check_equal(one, other, tolerance=1e-9)


def test_a_single_cluster_says_nothing_about_the_risk():
    found = quiet(risk_map, np.arange(50), np.arange(50) % 5 == 0, clusters=np.zeros(50))
    assert (found.low == 0).all()
    assert (found.high == 1).all()
    assert found.risk[-1] == 0.2
    psi = found.psi(0.3)
    assert psi.low == -math.inf
    assert psi.high == 49


def test_few_clusters_are_warned_of():
    for count in [1, 9]:
        # Fewer than 10 clusters are computed, with a UQWarning.
        with pytest.warns(UQWarning, match="cluster"):
            risk_map(np.arange(90), np.arange(90) % 5 == 0, clusters=np.arange(90) % count)


# ---- inputs ---------------------------------------------------------------------------------------------------

SCORE, ERROR = [0.1, 0.2, 0.3], [0, 1, 0]
LABELLED = Predictions([0, 1, 1], probs=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])


def test_input_that_cannot_be_used_is_refused():
    for call, words in [
        (lambda: risk_map(SCORE), "error"),
        (lambda: risk_map(SCORE, [0, 1]), "rows"),
        (lambda: risk_map([0.1], [0]), "row"),
        (lambda: risk_map(SCORE, [0, 2, 0]), "error"),
        (lambda: risk_map(SCORE, [0, -0.5, 0]), "error"),
        (lambda: risk_map([0.1, -math.inf, 0.3], ERROR), "row 1"),
        (lambda: risk_map([0.1, math.nan, 0.3], ERROR), "score"),
        (lambda: risk_map(SCORE, [0, math.nan, 0]), "error"),
        (lambda: risk_map(SCORE, ERROR, level=95), "level"),
        (lambda: risk_map(SCORE, ERROR, level=1.0), "level"),
        (lambda: risk_map(SCORE, ERROR, risk="wrong"), "risk"),
        (lambda: risk_map(SCORE, ERROR, tie="keep"), "tie"),
        (lambda: risk_map(SCORE, ERROR, nan="drop"), "nan"),
        (lambda: risk_map(SCORE, ERROR, clusters=[1, 2]), "clusters"),
        (lambda: risk_map(SCORE, ERROR, thresholds=[]), "thresholds"),
        (lambda: risk_map(SCORE, ERROR, thresholds=[math.nan]), "thresholds"),
        (lambda: risk_map(SCORE, ERROR, thresholds=[[0.1]]), "thresholds"),
        (lambda: risk_map(SCORE, ERROR, thresholds=[-1.0, 0.05]), "thresholds"),
        (lambda: risk_map({"a": SCORE, "b": SCORE}, ERROR), "2 scores"),
        (lambda: risk_map({}, ERROR), "score"),
        (lambda: risk_map("entropy", ERROR), "predictions"),
        (lambda: risk_map("entropy", ERROR, predictions=LABELLED), "not both"),
        (lambda: risk_map(["entropy", "margin"], predictions=LABELLED), "2 scores"),
        (lambda: risk_map("entropy", predictions=LABELLED, risk="misaligned"), "soft_labels"),
        (lambda: risk_map("entropy", predictions=LABELLED, risk="loss"), "loss"),
        (lambda: risk_map("entrophy", predictions=LABELLED), "entropy"),
        (lambda: risk_map(SCORE, ERROR).to_frame("excel"), "kind"),
    ]:
        with pytest.raises(InputError, match=words):
            call()


def test_rows_with_nan_are_left_out_on_request():
    score, error = [0.1, math.nan, 0.3, 0.4], [0, 1, 1, math.nan]
    with pytest.warns(UQWarning, match="2 rows with NaN"):
        found = risk_map(score, error, nan="omit")
    check_equal(found, risk_map([0.1, 0.3], [0, 1]))
    assert found.n == 2


# ---- print ----------------------------------------------------------------------------------------------------


def test_frame_has_a_row_per_threshold():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for kind in ["pandas", "polars", "pyarrow", None]:
        rng = np.random.default_rng(7)
        found = risk_map(rng.random(100), rng.integers(0, 2, 100))
        frame = found.to_frame(kind)
        assert tuple(frame.column_names if kind == "pyarrow" else frame.columns) == COLUMNS
        assert len(frame) == len(found) == 20
        for name in COLUMNS:
            column = frame[name].to_pylist() if kind == "pyarrow" else list(frame[name])
            assert column == getattr(found, name).tolist()


def test_dict_holds_plain_values():
    found = risk_map({"mine": [0.1, 0.2, 0.3]}, [0, 0.5, 1], level=0.9)
    data = found.to_dict()
    assert json.loads(json.dumps(strict(data), allow_nan=False)) == data
    assert (data["n"], data["level"], data["what"], data["score"]) == (3, 0.9, "loss", "mine")
    assert data["threshold"] == [0.1, 0.2, 0.3]
    assert set(data) == {*COLUMNS, "n", "level", "what", "score", "warnings"}


def test_text_shows_at_most_a_few_lines_with_the_last_threshold():
    for n in [2, 15, 21, 400, 5000]:
        found = risk_map(np.arange(n), np.arange(n) % 2, level=0.9)
        lines = str(found).splitlines()
        assert lines[0] == f"{n:,} rows, 90% band for all thresholds at once"
        assert len(lines) <= 2 + 40
        assert lines[-1].startswith(str(n - 1))
        assert "100.0%" in lines[-1]
        assert found._repr_html_().startswith("<pre ")
        assert isinstance(found, RiskMap)
        assert len(repr(found)) < 300
