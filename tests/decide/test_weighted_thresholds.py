"""Bets on weighted rows and on clusters: the p-values equal their definition, and the numbers reported are weighted."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uqeval as uq
from strategies import seeds
from uqeval import InputError, Threshold, choose_threshold
from uqeval.decide import bounds
from uqeval.decide.calibration import Calibration

SELECTIVE = ("step-down", "fallback", "fst", "sgr", "bonferroni", "holm")
METHODS = (*SELECTIVE, "rcps", "crc")


def make_rows(seed, n, *, binary=True, ties=True):
    rng = np.random.default_rng(seed)
    score = np.round(rng.random(n), 1 if ties else 9)
    loss = rng.random(n) < 0.3 * score if binary else rng.random(n) * score
    weights = rng.choice([0.5, 1.0, 2.5, 7.0], n)
    weights[:2] = 1.0, 7.0
    groups = np.unique(rng.integers(0, max(2, n // 3), n), return_inverse=True)[1]
    return score, loss.astype(np.uint8 if binary else np.float64), weights, groups


def slow_betting_p(score, loss, weights, groups, t, gamma, largest, *, joint=False):
    """1 / mean over λ of Π over clusters (1 − λ Σ w(loss·accepted − γ·counted)), λ a share of 1 / ((1 − γ)·largest)."""
    accepted = score <= t
    counted = np.ones(len(score)) if joint else accepted
    excess = weights * (loss * accepted - gamma * counted)
    wealth = []
    for share in bounds.SHARES:
        parts = [math.fsum(excess[groups == g]) for g in np.unique(groups)]
        wealth.append(math.prod(1 - share * x / ((1 - gamma) * largest) for x in parts))
    return min(1.0, len(wealth) / math.fsum(wealth)) if any(w > 0 for w in wealth) else 1.0


risks = st.sampled_from([0.05, 0.2, 0.5])


@settings(max_examples=20)
@given(seeds, st.integers(4, 60), risks, st.booleans(), st.booleans(), st.sampled_from([None, 40.0]))
def test_p_values_of_weighted_rows_and_of_clusters_are_bets_on_their_excess(seed, n, gamma, binary, joint, most):
    score, loss, weights, groups = make_rows(seed, n, binary=binary)
    at = np.unique(score)
    for w, g in ((weights, None), (weights, groups), (None, groups)):
        cal = Calibration(score, loss, g, weights=w, exact=g is not None, largest=most)
        each, units = np.ones(n) if w is None else w, np.arange(n) if g is None else g
        largest = max(np.bincount(units, weights=each).max(), most or 0.0)
        assert cal.largest_unit == pytest.approx(largest)
        expected = [slow_betting_p(score, loss, each, units, t, gamma, largest, joint=joint) for t in at]
        np.testing.assert_allclose(cal.p_values(at, gamma, joint=joint), expected, rtol=1e-6)
        if not joint:
            lossless = [slow_betting_p(score, 0 * loss, each, units, t, gamma, largest) for t in at]
            np.testing.assert_allclose(cal.best_p(at, gamma), lossless, rtol=1e-6)


@settings(max_examples=20)
@given(seeds, st.integers(30, 200), risks, st.sampled_from(METHODS), st.booleans(), st.sampled_from([None, 0.5]))
def test_the_order_and_the_unit_of_weighted_rows_do_not_matter(seed, n, max_risk, method, clustered, split):
    score, loss, weights, groups = make_rows(seed, n)
    clustered = clustered and method != "crc"
    options = {"method": method, "split": split, "cluster_method": "exact" if clustered else "t"}

    def found(order, unit=1.0):
        g = groups[order] if clustered else None
        return choose_threshold(
            score[order], loss[order], max_risk, 0.8, weights=unit * weights[order], clusters=g, **options
        )

    here, order = found(np.arange(n)), np.random.default_rng(seed).permutation(n)
    assert here == found(order)
    other = found(np.arange(n), 4.0)
    assert (other.value, other.coverage, other.n_accepted) == (here.value, here.coverage, here.n_accepted)


def test_the_cut_into_parts_does_not_change_a_bet_on_clusters(monkeypatch):
    score, loss, weights, groups = make_rows(3, 500, ties=False)
    whole = Calibration(score, loss, groups, weights=weights, exact=True).p_values(np.array([0.3, 0.9]), 0.3)
    monkeypatch.setattr("uqeval.decide.calibration._AT_ONCE", 7)
    parts = Calibration(score, loss, groups, weights=weights, exact=True).p_values(np.array([0.3, 0.9]), 0.3)
    np.testing.assert_allclose(parts, whole, rtol=1e-9)
    assert whole[0] < 0.5


def test_coverage_and_risk_are_weighted():
    score, loss, weights, _ = make_rows(1, 2000, ties=False)
    for method in METHODS:
        t = choose_threshold(score, loss, 0.2, 0.9, method, weights=weights, split=0.5)
        assert t.feasible, method
        inside = t.accept(score)
        counted = np.ones(len(score), dtype=bool) if method in ("rcps", "crc") else inside
        whole = weights[inside].sum() / weights.sum(), (weights * loss * inside).sum() / weights[counted].sum()
        parts = [(t.coverage, t.risk), (t.holdout.coverage.value, t.holdout.risk.value)]
        assert parts[0] != parts[1]
        for k in range(2):
            low, high = sorted((parts[0][k], parts[1][k]))
            assert low <= whole[k] <= high
        assert t.n_accepted + t.holdout.n_accepted == inside.sum()
        assert t.holdout.coverage.n_clusters is None
        assert t.holdout.coverage.low < t.holdout.coverage.value <= t.holdout.coverage.high


def test_equal_weights_are_no_weights_and_rows_of_weight_zero_are_left_out():
    score, loss, weights, _ = make_rows(2, 800, ties=False)
    plain = choose_threshold(score, loss, 0.2)
    assert choose_threshold(score, loss, 0.2, weights=np.full(800, 3.0)) == plain
    none = np.where(np.arange(800) % 4 == 0, 0.0, weights)
    kept = none > 0
    assert choose_threshold(score, loss, 0.2, weights=none) == choose_threshold(
        score[kept], loss[kept], 0.2, weights=weights[kept]
    )


def test_a_larger_bound_of_the_weights_never_accepts_more():
    score, loss, weights, groups = make_rows(4, 3000, ties=False)
    for options in ({}, {"clusters": groups, "cluster_method": "exact"}):
        seen = choose_threshold(score, loss, 0.25, weights=weights, **options)
        assert seen.feasible
        values = [seen.value]
        for times in (1, 3, 30):
            most = times * seen.largest_weight
            values.append(choose_threshold(score, loss, 0.25, weights=weights, largest_weight=most, **options).value)
        assert values[0] == values[1]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]


def test_conformal_risk_control_leaves_room_for_one_more_row_of_the_largest_weight():
    # (2·wrong + 5) / (2·wrong + 1·right + 5) is the risk with one more wrong row of weight 5.
    score, error, weights = np.zeros(101), np.arange(101) == 0, np.where(np.arange(101) == 0, 2.0, 1.0)
    room = (2 + 5) / (2 + 100 + 5)
    options = {"method": "crc", "weights": weights, "largest_weight": 5.0}
    assert choose_threshold(score, error, room + 1e-9, **options).feasible
    assert not choose_threshold(score, error, room - 1e-6, **options).feasible


def test_predictions_bring_their_own_weights():
    score, loss, weights, _ = make_rows(5, 1500, ties=False)
    predictions = uq.Predictions(scores={"mine": score}, error=loss, weights=weights)
    t = choose_threshold("mine", predictions=predictions, max_risk=0.2)
    assert t == replace(choose_threshold(score, loss, 0.2, weights=weights), score="mine")
    assert t.feasible
    assert t.largest_weight == 7.0
    for function in (uq.risk_map, lambda s, **options: uq.dominance(s, s, **options)):
        with pytest.raises(InputError, match="`weights` cannot be used here"):
            function("mine", predictions=predictions)


def test_ten_rows_count_as_one_of_ten_times_the_weight_within_a_cluster():
    # Copies of a row in its cluster are one bet, as a row of that weight is.
    score, loss, _, _ = make_rows(6, 1200, ties=False)
    copies = np.where(np.arange(1200) % 5 == 0, 10, 1)
    many = [np.repeat(x, copies) for x in (score, loss, np.arange(1200))]
    grown = choose_threshold(
        many[0], many[1], 0.2, clusters=many[2], cluster_method="exact", thresholds=[0.2, 0.4, 0.6]
    )
    rows = choose_threshold(score, loss, 0.2, weights=copies.astype(float), thresholds=[0.2, 0.4, 0.6])
    assert grown.feasible
    assert (grown.value, grown.coverage, grown.risk) == (rows.value, rows.coverage, pytest.approx(rows.risk))


def test_exact_clusters_need_many_and_say_how_many():
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(200), 5)
    score = rng.random(1000)
    error = rng.random(1000) < 0.1 * score**2
    few = choose_threshold(score, error, 0.05, clusters=groups, cluster_method="exact")
    assert not few.feasible
    assert few.rows_needed > 1000
    assert f"{few.rows_needed:,} rows" in few.statement()


def test_json_brings_back_a_weighted_threshold():
    score, loss, weights, groups = make_rows(8, 1500, ties=False)
    for options in ({}, {"largest_weight": 9.0}, {"clusters": groups, "cluster_method": "exact"}):
        t = choose_threshold(score, loss, 0.2, weights=weights, **options)
        assert Threshold.from_json(t.to_json()) == t
        assert t.declared is ("largest_weight" in options)


@pytest.mark.parametrize("unit", [1e10, 1e-11, 1e200])
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("clustered", [True, False])
def test_very_large_and_very_small_weights_keep_their_unit(unit, declared, clustered):
    score, loss, weights, groups = make_rows(9, 3000, ties=False)
    options = {"clusters": groups, "cluster_method": "exact"} if clustered else {}
    most = 100.0 if declared else None
    here = choose_threshold(score, loss, 0.3, weights=weights, largest_weight=most, **options)
    assert here.feasible
    bound = unit * here.largest_weight
    there = choose_threshold(
        score, loss, 0.3, weights=unit * weights, largest_weight=unit * most if declared else None, **options
    )
    assert (there.value, there.n_accepted) == (here.value, here.n_accepted)
    assert there.largest_weight == pytest.approx(bound, rel=1e-12)
    assert f"can weigh more than {bound:g} (" in there.promise
    with pytest.raises(InputError, match="`largest_weight` must be a number ≥"):
        choose_threshold(score, loss, 0.3, weights=unit * weights, largest_weight=3 * unit, **options)


def test_the_unit_of_weights_is_that_of_the_rows_without_nan():
    score, loss, weights, _ = make_rows(9, 3000, ties=False)
    gaps = np.append(score, np.nan), np.append(loss.astype(float), 0.0), np.append(1e10 * weights, 1e30)
    with pytest.warns(uq.UQWarning, match="1 rows with NaN left out"):
        found = choose_threshold(*gaps[:2], 0.3, weights=gaps[2], largest_weight=1e11, nan="omit")
    assert found.largest_weight == 1e11
    assert found.value == choose_threshold(score, loss, 0.3, weights=weights, largest_weight=10).value


def test_the_first_check_of_a_weighted_threshold_asks_for_rows_drawn_as_inputs_come():
    score, loss, weights, _ = make_rows(9, 3000, ties=False)
    t = choose_threshold(score, loss, 0.3, weights=weights)
    with pytest.warns(uq.UQWarning, match="rows drawn as inputs come, not the weighted sample"):
        first = t.check(score[:100], loss[:100])
    assert t.check(score[100:200], loss[100:200], previous=first).looks == 2  # and is said once
    assert "labelled accepted rows drawn as inputs come, even after" in str(t)
    assert "drawn as inputs come" not in str(choose_threshold(score, loss, 0.3))


def test_the_heaviest_row_may_be_wrong_whatever_the_last_bits_are():
    """The whole stake on a loss of the heaviest row leaves nothing; rounded, it may leave even less."""
    rng = np.random.default_rng(0)
    for max_risk in rng.uniform(0.02, 0.4, size=60):
        weights = rng.lognormal(0.0, 0.5, size=300)
        heaviest = int(weights.argmax())
        score, error = rng.random(300), np.zeros(300, dtype=int)
        score[heaviest], error[heaviest] = 0.0, 1
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            found = choose_threshold(score, error, max_risk=max_risk, weights=weights)
        assert found.feasible == (found.coverage > 0)
        if max_risk > 0.2:
            assert found.feasible
