"""Dominance: the share accepted and right under each risk, by definition; a band that depends on the rows only."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import uqeval as uq
from strategies import FINITE_SCORES, make_scores, seeds
from uqeval import InputError, Predictions, UQWarning, truth
from uqeval._result import strict
from uqeval.decide import Dominance

COLUMNS = ["max_risk", "right_a", "right_b", "difference", "low", "high"]
dominance = partial(uq.dominance, resamples=40)  # as few as it takes


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def unless_refused(words, function, *args, **kwargs):
    """The result, or None where the input was refused with those words: both will do."""
    try:
        return function(*args, **kwargs)
    except InputError as refused:
        if words not in str(refused):
            raise
        return None


@st.composite
def pairs(draw, most=60, kinds=FINITE_SCORES):
    """Two scores and errors, one of them wrong at least."""
    n = draw(st.integers(2, most))
    one, two = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(seeds))
    error = (rng.random(n) < rng.choice([0.1, 0.3, 0.6])).astype(float)
    error[rng.integers(n)] = 1
    return make_scores(rng, n, one), make_scores(rng, n, two), error


def right_by_definition(score, error, risks):
    """Right rows below the largest value of the score whose risk is within γ, as a share of all; γ are rationals."""
    found = []
    for gamma in risks:
        best = 0
        for beta in sorted(set(score.tolist())):
            inside = score <= beta
            if Fraction(int(error[inside].sum()), int(inside.sum())) <= gamma:
                best = int((1 - error[inside]).sum())
        found.append(best / len(score))
    return found


def check_equal(one, other, *names, tolerance=0.0):
    for name in names or COLUMNS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=tolerance, atol=tolerance)


def simulated(n=400, seed=0, noise=0.5):
    """ϕ, a noisy copy of it, and errors that come with probability ϕ."""
    rng = np.random.default_rng(seed)
    phi = rng.beta(1, 4, n)
    return phi, phi + noise * rng.normal(size=n), (rng.random(n) < phi).astype(float)


# ---- the curves -----------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(pairs())
def test_curves_are_the_accepted_right_rows_by_definition(case):
    a, b, error = case
    found = dominance(a, b, error)
    n, wrong = len(error), int(error.sum())
    # By default: a 40th of the error rate, two 40ths, … up to it.
    risks = [Fraction(wrong * k, n * 40) for k in range(1, 41) if wrong * k < n * 40]
    np.testing.assert_allclose(found.max_risk, [float(r) for r in risks], rtol=1e-12)
    np.testing.assert_allclose(found.right_a, right_by_definition(a, error, risks), rtol=1e-12)
    np.testing.assert_allclose(found.right_b, right_by_definition(b, error, risks), rtol=1e-12)
    np.testing.assert_array_equal(found.difference, found.right_a - found.right_b)
    assert (found.n, len(found)) == (n, len(risks))


@settings(max_examples=10)
@given(pairs(most=200), st.sampled_from([("0.05",), ("0.1", "0.2", "0.25"), ("0.5", "0.01"), ("0.999",)]))
def test_curves_at_given_risks_are_those_of_the_definition(case, texts):
    a, b, error = case
    found = dominance(a, b, error, max_risks=[float(x) for x in texts])
    risks = sorted(Fraction(x) for x in texts)
    np.testing.assert_array_equal(found.max_risk, [float(r) for r in risks])
    np.testing.assert_allclose(found.right_a, right_by_definition(a, error, risks), rtol=1e-12)
    np.testing.assert_allclose(found.right_b, right_by_definition(b, error, risks), rtol=1e-12)


def test_a_risk_met_exactly_counts_as_met():
    # 1 of 10, 3 of 30: neither 0.1 nor 0.3 is a binary fraction.
    error = np.zeros(30)
    error[[9, 12, 15]] = 1
    found = dominance(np.arange(30), -np.arange(30), error, max_risks=[0.1])
    assert found.right_a.tolist() == found.right_b.tolist() == [27 / 30]


def test_tied_rows_are_accepted_whole_or_not_at_all():
    error = [0, 0, 1, 0, 0, 0, 1, 1]
    tied, apart = [1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 6, 3, 4, 5, 7, 8]
    found = dominance(tied, apart, error, max_risks=[0.1, 0.2, 0.35])
    assert found.right_a.tolist() == [0, 5 / 8, 5 / 8]
    assert found.right_b.tolist() == [5 / 8, 5 / 8, 5 / 8]


def test_a_confident_error_costs_the_small_risks_only():
    error = np.zeros(100)
    error[0] = error[99] = 1
    cautious = np.where(np.arange(100) == 0, 98.5, np.arange(100))
    found = dominance(np.arange(100), cautious, error, max_risks=[0.001, 0.005, 0.0102])
    # Its 99 first rows have a risk of 1/99.
    assert found.right_a.tolist() == [0, 0, 0.98]
    assert found.right_b.tolist() == [0.98, 0.98, 0.98]


def test_curves_rise_with_the_risk_and_end_at_the_right_share():
    a, b, error = simulated()
    found = dominance(a, b, error)
    assert (np.diff(found.right_a) >= 0).all()
    assert (np.diff(found.right_b) >= 0).all()
    assert found.right_a[-1] == found.right_b[-1] == pytest.approx(1 - error.mean())
    assert found.max_risk[-1] == pytest.approx(error.mean())


def test_many_rows_are_looked_at_200_thresholds_each():
    rng = np.random.default_rng(4)
    n = 1000
    a, b = rng.permutation(n), rng.permutation(n)
    error = (rng.random(n) < 0.2 + 0.3 * a / n).astype(float)
    found = dominance(a, b, error, max_risks=[0.25, 0.3])
    for gamma, right in zip([0.25, 0.3], found.right_a, strict=True):
        sizes = [k for k in range(5, n + 1, 5) if error[a < k].sum() <= gamma * k]
        assert right == pytest.approx((1 - error)[a < sizes[-1]].sum() / n if sizes else 0)


def test_all_wrong_accepts_nothing():
    found = dominance([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [1, 1, 1])
    assert (found.right_a == 0).all()
    assert (found.right_b == 0).all()
    assert (found.max_risk < 1).all()
    assert found.verdict == "neither"


# ---- what changes nothing -------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(pairs())
def test_a_score_against_itself_differs_nowhere(case):
    a, _, error = case
    found = dominance(a, a.copy(), error)
    for name in ("difference", "low", "high"):
        assert (getattr(found, name) == 0).all()
    assert found.verdict == "neither"
    assert "Neither" in found.statement()


@settings(max_examples=6)
@given(pairs(kinds=("grid", "continuous", "mixture", "constant")))
def test_increasing_transforms_of_the_scores_change_nothing(case):
    a, b, error = case

    def ranks(x):
        return np.unique(x, return_inverse=True)[1]

    one = dominance(a, b, error)
    for change in (ranks, lambda x: 3 * ranks(x) - 1e6, lambda x: np.exp(ranks(x) / 7.0), lambda x: 2.0 * x):
        check_equal(one, dominance(change(a), b, error))
        check_equal(one, dominance(a, change(b), error))


@settings(max_examples=15)
@given(pairs(), seeds)
def test_row_order_changes_neither_curves_nor_band(case, seed):
    a, b, error = case
    order = np.random.default_rng(seed).permutation(len(error))
    check_equal(dominance(a, b, error), dominance(a[order], b[order], error[order]))


def test_row_order_changes_no_band_of_many_rows():
    a, b, error = simulated(3000)
    order = np.random.default_rng(1).permutation(3000)
    check_equal(dominance(a, b, error), dominance(a[order], b[order], error[order]))


@settings(max_examples=6)
@given(pairs(), seeds)
def test_row_order_changes_no_band_of_clusters(case, seed):
    a, b, error = case
    rng = np.random.default_rng(seed)
    clusters, order = rng.integers(0, 15, len(error)), rng.permutation(len(error))
    assume(len(np.unique(clusters)) > 1)
    one = quiet(dominance, a, b, error, clusters=clusters)
    check_equal(one, quiet(dominance, a[order], b[order], error[order], clusters=clusters[order]))


@settings(max_examples=15)
@given(pairs())
def test_swapped_scores_swap_the_curves(case):
    a, b, error = case
    one, other = dominance(a, b, error), dominance(b, a, error)
    np.testing.assert_array_equal(one.right_a, other.right_b)
    np.testing.assert_array_equal(one.difference, -other.difference)


def test_dtypes_change_nothing():
    rng = np.random.default_rng(2)
    a, b, error = rng.integers(0, 9, 100), rng.integers(0, 9, 100), rng.integers(0, 2, 100)
    one = dominance(a, b, error)
    check_equal(one, dominance(a.astype("float16"), b.tolist(), error.astype(bool)))
    check_equal(one, dominance(a - 0.0, -(-b * 1.0), error.astype("float32")))


# ---- the band -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_band():
    a, b, error = simulated()
    one = dominance(a, b, error, seed=3)
    check_equal(one, dominance(a, b, error, seed=3))
    check_equal(one, dominance(a, b, error, seed=np.random.default_rng(3)))
    other = dominance(a, b, error, seed=4)
    check_equal(one, other, "max_risk", "right_a", "right_b", "difference")
    assert not np.array_equal(one.low, other.low)


@settings(max_examples=15)
@given(pairs())
def test_band_holds_the_difference(case):
    found = dominance(*case)
    assert (found.low <= found.difference).all()
    assert (found.difference <= found.high).all()
    assert (found.low >= -1).all()  # both are shares of the rows
    assert (found.high <= 1).all()


def test_band_widens_with_the_level_and_narrows_with_the_rows():
    a, b, error = simulated(4000)
    wide = dominance(a, b, error, level=0.99, resamples=200)
    narrow = dominance(a, b, error, level=0.5, resamples=200)
    few = dominance(a[:200], b[:200], error[:200], level=0.99, resamples=200, max_risks=wide.max_risk)
    assert ((wide.high - wide.low) >= (narrow.high - narrow.low)).all()
    assert (few.high - few.low).mean() > 2 * (wide.high - wide.low).mean()
    assert (wide.level, wide.resamples) == (0.99, 200)


def test_band_is_that_of_a_plain_bootstrap_of_rows():
    a, b, error = simulated(150, seed=5)
    risks, rng = [Fraction(1, 10), Fraction(1, 5)], np.random.default_rng(0)
    found = dominance(a, b, error, max_risks=[float(r) for r in risks], resamples=1000)
    draws = np.empty((200, 2))
    for k in range(len(draws)):
        rows = rng.integers(len(error), size=len(error))
        ends = [right_by_definition(x[rows], error[rows], risks) for x in (a, b)]
        draws[k] = np.subtract(*ends)
    # The half-width is one factor times the spread: the quantile of the largest standardised deviation.
    spread = draws.std(axis=0, ddof=1)
    factor = np.quantile((np.abs(draws - found.difference) / spread).max(axis=1), 0.95)
    np.testing.assert_allclose((found.high - found.low) / 2, factor * spread, rtol=0.2)


def test_very_few_resamples_are_refused_or_give_a_band():
    for resamples in [1, 2]:
        a, b, error = simulated()
        found = unless_refused("resamples", dominance, a, b, error, resamples=resamples)
        assert found is None or np.isfinite([found.low, found.high]).all()


def test_true_phi_accepts_more_right_rows_than_a_noisy_copy():
    # {ϕ ≤ t} has the largest coverage among all sets of its risk.
    phi, noisy, error = simulated(5000, noise=0.3)
    assert dominance(phi, noisy, error, resamples=200).verdict == "a"
    found = dominance(noisy, phi, error, resamples=200)
    assert found.verdict == "b"
    assert "b accepts more right predictions than a" in found.statement()


@settings(max_examples=15)
@given(seeds, st.integers(2, 9))
def test_no_order_of_equal_groups_accepts_more_than_phi(seed, groups):
    rng = np.random.default_rng(seed)
    wrong = rng.integers(0, 11, groups)
    assume(wrong.sum() > 0)
    error = np.concatenate([np.arange(10) < w for w in wrong]).astype(float)
    phi, other = np.repeat(wrong / 10, 10), np.repeat(rng.permutation(groups), 10)
    # Groups of one ϕ share a fate under ϕ, not under the other score: keep them apart there too.
    found = dominance(phi + np.repeat(np.arange(groups), 10) * 1e-6, other, error)
    assert (found.difference >= 0).all()


def test_crossing_scores_are_called_so():
    # a is sure of half of the rows and random on the others; b puts a few wrong rows first and is right elsewhere.
    rng = np.random.default_rng(6)
    n = 4000
    error = np.zeros(n)
    error[3000:] = 1
    a = np.where(np.arange(n) < 1500, 0, 1) + rng.random(n)
    b = np.where(np.arange(n) >= 3900, -1.0, error + 0.001 * rng.random(n))
    found = dominance(a, b, error, max_risks=[0.005, 0.1], resamples=200)
    assert found.difference[0] > 0 > found.difference[1]
    assert found.verdict == "neither"
    assert "cross" in found.statement()


# ---- clusters -------------------------------------------------------------------------------------------------


def test_clusters_widen_the_band_of_copied_rows():
    a, b, error = simulated(200, noise=0.2)
    ten = [np.repeat(x, 10) for x in (a, b, error)]
    options = {"resamples": 400, "max_risks": [0.05, 0.1, 0.15]}
    once, copied = dominance(a, b, error, **options), dominance(*ten, **options)
    honest = dominance(*ten, clusters=np.repeat(np.arange(200), 10), **options)
    check_equal(once, copied, "right_a", "right_b", "difference")
    check_equal(once, honest, "right_a", "right_b", "difference")
    width = [(found.high - found.low).mean() for found in (once, copied, honest)]
    assert width[1] < 0.7 * width[0]
    assert width[2] == pytest.approx(width[0], rel=0.15)


def test_a_single_cluster_shows_nothing():
    a, _, error = simulated()
    found = quiet(dominance, a, -a, error, clusters=np.zeros(len(error)))
    assert (found.difference > 0).any()
    assert found.verdict == "neither"


def test_few_clusters_are_warned_of():
    for count in [1, 9]:
        # Fewer than 10 clusters are computed, with a UQWarning.
        a, b, error = simulated()
        with pytest.warns(UQWarning, match="cluster"):
            dominance(a, b, error, clusters=np.arange(len(error)) % count)


# ---- predictions ----------------------------------------------------------------------------------------------


def predictions(seed=0, n=100, **more):
    rng = np.random.default_rng(seed)
    soft, probs = rng.dirichlet(np.ones(3), n), rng.dirichlet(np.ones(3), n)
    scores = {"mine": rng.random(n), "yours": rng.random(n)}
    return Predictions(rng.integers(0, 3, n), probs=probs, soft_labels=soft, scores=scores, **more)


def test_scores_of_predictions_are_compared_by_name():
    p = predictions()
    error = truth.misclassified(p.probs, p.labels)
    found = dominance("mine", "yours", predictions=p)
    check_equal(found, dominance(p.scores["mine"], p.scores["yours"], error))
    assert (found.a, found.b) == ("mine", "yours")
    assert "mine" in str(found)
    mixed = dominance("mine", p.scores["yours"], predictions=p)
    check_equal(found, mixed)
    assert (mixed.a, mixed.b) == ("mine", "b")
    named = dominance({"x": p.scores["mine"]}, {"y": p.scores["yours"]}, error)
    assert (named.a, named.b) == ("x", "y")


def test_clusters_of_predictions_are_used():
    clusters = np.arange(100) // 5
    p = predictions(clusters=clusters)
    error = truth.misclassified(p.probs, p.labels)
    check_equal(
        dominance("mine", "yours", predictions=p),
        dominance(p.scores["mine"], p.scores["yours"], error, clusters=clusters),
    )


def test_misalignment_takes_the_place_of_the_error():
    p = predictions()
    with pytest.warns(UQWarning, match="annotators"):
        found = dominance("mine", "yours", predictions=p, risk="misaligned")
    apart = truth.misaligned(p.soft_labels, p.probs)
    check_equal(found, dominance(p.scores["mine"], p.scores["yours"], apart))
    assert any("annotators" in note for note in found.warnings)


def test_rows_with_a_tied_majority_are_left_out():
    soft = np.tile([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]], (10, 1))
    rng = np.random.default_rng(3)
    probs, a, b = rng.dirichlet(np.ones(2), 30), rng.random(30), rng.random(30)
    p = Predictions(probs=probs, soft_labels=soft, labels=rng.integers(0, 2, 30), scores={"mine": a})
    kept = np.arange(30) % 3 != 0
    found = quiet(dominance, "mine", b, predictions=p, risk="misaligned")
    check_equal(found, dominance(a[kept], b[kept], (soft.argmax(axis=1) != probs.argmax(axis=1))[kept]))
    assert found.n == 20


def test_weighted_predictions_are_refused_as_for_choose_threshold():
    # Weighted rows are refused; to ignore the weights would be to answer for another population.
    with pytest.raises(InputError, match="weights"):
        dominance("mine", "yours", predictions=predictions(weights=np.arange(1.0, 101.0)))


# ---- inputs ---------------------------------------------------------------------------------------------------

A, B, ERROR = [0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.2, 0.3], [0, 1, 0, 1]


def test_input_that_cannot_be_used_is_refused():
    for call, words in [
        (lambda: dominance(A, B), "error"),
        (lambda: dominance(A, B[:3], ERROR), "rows"),
        (lambda: dominance(A, B, ERROR[:3]), "rows"),
        (lambda: dominance(A, B, [0, 0.5, 0, 1]), "error"),
        (lambda: dominance(A, B, [0, 2, 0, 1]), "error"),
        (lambda: dominance(A, B, [0, 0, 0, 0]), "no 1"),
        (lambda: dominance([0.1, math.nan, 0.3, 0.4], B, ERROR), "score"),
        (lambda: dominance(A, [0.1, -math.inf, 0.3, 0.4], ERROR), "row 1"),
        (lambda: dominance(A, B, [0, math.nan, 0, 1]), "error"),
        (lambda: dominance("entropy", B, ERROR), "predictions"),
        (lambda: dominance({"x": A, "y": B}, B, ERROR), "score_a"),
        (lambda: dominance(A, {"x": A, "y": B}, ERROR), "score_b"),
        (lambda: dominance(A, B, ERROR, level=95), "level"),
        (lambda: dominance(A, B, ERROR, resamples=0), "resamples"),
        (lambda: dominance(A, B, ERROR, resamples=10.5), "resamples"),
        (lambda: dominance(A, B, ERROR, seed=-1), "seed"),
        (lambda: dominance(A, B, ERROR, seed="x"), "seed"),
        (lambda: dominance(A, B, ERROR, max_risks=[]), "max_risk"),
        (lambda: dominance(A, B, ERROR, max_risks=[0.1, 1.0]), "max_risk"),
        (lambda: dominance(A, B, ERROR, max_risks=[0, 0.1]), "max_risk"),
        (lambda: dominance(A, B, ERROR, max_risks=["0.1"]), "max_risk"),
        (lambda: dominance(A, B, ERROR, clusters=[1, 2]), "clusters"),
        (lambda: dominance(A, B, ERROR, risk="wrong"), "risk"),
        (lambda: dominance(A, B, ERROR, nan="drop"), "nan"),
        (lambda: dominance("mine", "yours", ERROR, predictions=predictions()), "not both"),
        (lambda: dominance("mine", "yours", predictions=Predictions(error=ERROR, scores={"mine": A})), "yours"),
        (lambda: dominance(A, B, ERROR).to_frame("excel"), "kind"),
    ]:
        with pytest.raises(InputError, match=words):
            call()


def test_rows_with_nan_in_the_error_are_left_out_on_request():
    a, b, error = simulated(50)
    error[7] = math.nan
    kept = ~np.isnan(error)
    with pytest.warns(UQWarning, match="1 rows with NaN"):
        found = dominance(a, b, error, nan="omit")
    check_equal(found, dominance(a[kept], b[kept], error[kept]))
    assert found.n == 49


def test_nan_in_either_score_never_pairs_different_rows():
    for rows in [(7, 7), (7, 8), (7, None), (0, 49)]:
        a, b, error = simulated(50, seed=1)
        error[[7, 8, 0, 49]] = 0  # the errors alone do not tell which row is gone
        for score, row in zip((a, b), rows, strict=True):
            if row is not None:
                score[row] = math.nan
        kept = ~(np.isnan(a) | np.isnan(b))
        found = unless_refused("rows", quiet, dominance, a, b, error, nan="omit")
        if found is not None:
            check_equal(found, dominance(a[kept], b[kept], error[kept]))


def test_infinite_scores_are_accepted_last_with_a_warning():
    with pytest.warns(UQWarning, match="infinite"):
        found = dominance([0.1, 0.2, 0.3, math.inf], B, ERROR)
    check_equal(found, dominance(A, B, ERROR))
    assert len(found.warnings) == 1


# ---- print ----------------------------------------------------------------------------------------------------


def test_frame_has_a_row_per_risk_ready_to_plot():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for kind in ["pandas", "polars", "pyarrow", None]:
        found = dominance(*simulated())
        frame = found.to_frame(kind)
        assert list(frame.column_names if kind == "pyarrow" else frame.columns) == COLUMNS
        assert len(frame) == len(found) == 40
        for name in COLUMNS:
            column = frame[name].to_pylist() if kind == "pyarrow" else list(frame[name])
            assert column == getattr(found, name).tolist()


def test_dict_holds_plain_values():
    found = dominance({"mine": A}, {"yours": B}, ERROR, level=0.9)
    data = found.to_dict()
    assert json.loads(json.dumps(strict(data), allow_nan=False)) == data
    assert (data["a"], data["b"], data["n"], data["level"], data["resamples"]) == ("mine", "yours", 4, 0.9, 40)
    assert data["verdict"] == found.verdict
    assert set(COLUMNS) <= set(data)


def test_text_gives_the_verdict_and_a_few_lines():
    found = dominance({"<mine>": simulated()[0]}, {"yours": simulated()[1]}, simulated()[2])
    lines = str(found).splitlines()
    assert lines[0] == found.statement()
    assert "95% band" in lines[1]
    assert len(lines) <= 2 + 40
    assert "&lt;mine&gt;" in found._repr_html_()
    assert isinstance(found, Dominance)
    assert len(repr(found)) < 200
