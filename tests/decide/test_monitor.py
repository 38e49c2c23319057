"""The monitor: its evidence is the mixture of bets by definition, however the rows of a look are ordered."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.special
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binom, binomtest

import uqeval as uq
from strategies import FINITE_SCORES, make_scores, rows, seeds
from uqeval import InputError, UQWarning
from uqeval.decide import Check, CheckedRows, Threshold, bounds, choose_threshold, expected_delay

RISKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.9)


def excesses(max_risk):
    """By how much of itself the risk has risen that each stake is best for; no bet can lose more than 95%."""
    most = min(18.0, 0.95 * (1 - max_risk) / max_risk)
    least = min(0.1, most / 8)
    return [least * (most / least) ** (k / 11) for k in range(12)]


def stakes(max_risk):
    """λ of each part of the mixture."""
    return [excess / (1 - max_risk) for excess in excesses(max_risk)]


def shares(max_risk):
    """What each stake gets of all that is staked."""
    x = excesses(max_risk)
    parts = [1 / (1 + math.log(each / min(2.0, x[-1] / 2)) ** 2) for each in x]
    return [part / math.fsum(parts) for part in parts]


def saved(max_risk, units):
    return 0.3 * (1 + max_risk * units) ** -0.15


def evidence(looks, max_risk, level=0.95, run_length=None):
    """After each look: what was staked at the start and after each look before, times all that it won since."""
    staked, units, found = [(0, 0.7 if run_length is None else 1.0)], 0, []
    for k, losses in enumerate(looks):
        total = 0.0 if run_length is not None else saved(max_risk, units)
        for since, amount in staked:
            for stake, share in zip(stakes(max_risk), shares(max_risk), strict=True):
                won = (1 + stake * (float(x) - max_risk) for look in looks[since : k + 1] for x in look)
                total += amount * share * math.prod(won)
        found.append(total if len(losses) else (found or [1.0])[-1])  # an empty look is none
        after = units + len(losses)
        amount = saved(max_risk, units) - saved(max_risk, after)
        if run_length is not None:
            amount = min(1.0, (after - units) * (1 / (1 - level) - 1) / run_length)
        staked.append((k + 1, amount))
        units = after
    return found


def e_by_definition(losses, max_risk):
    """Of a single look: seven tenths are at stake."""
    return evidence([losses], max_risk)[0]


def by_hand(value=0.5, max_risk=0.1, level=0.95, **changes):
    """A threshold; `changes` make it as if it had been chosen from rows."""
    what = changes.pop("what", "error")
    return replace(Threshold.from_value(value, max_risk=max_risk, level=level, what=what), **changes)


def clustered(max_risk=0.1, largest=4, **changes):
    return by_hand(max_risk=max_risk, n_clusters=50, largest_cluster=largest, **changes)


def chain(threshold, score, error, parts, clusters=None, **options):
    """One call per part, each with the answer to the one before."""
    found = None
    for part in parts:
        g = None if clusters is None else clusters[part]
        found = threshold.check(score[part], error[part], clusters=g, previous=found, **options)
    return found


def cut(rng, n, pieces):
    """The rows in random order, in that many parts; some of them empty."""
    return np.split(rng.permutation(n), np.sort(rng.integers(0, n + 1, pieces - 1)))


def unless_refused(words, function, *args, **kwargs):
    """The result, or None where the input was refused with those words: both will do."""
    try:
        return function(*args, **kwargs)
    except InputError as refused:
        if words not in str(refused):
            raise
        return None


def check_same(one, other, *skipped, tolerance=0.0):
    """Field by field; NaN equals NaN."""
    for f in fields(one):
        if f.name in skipped:
            continue
        a, b = getattr(one, f.name), getattr(other, f.name)
        assert type(a) is type(b), f.name
        if isinstance(a, CheckedRows):
            check_same(a, b, *skipped, tolerance=tolerance)
        elif isinstance(a, float | tuple) and f.name not in ("batches", "marks") and not isinstance(a, str):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f.name)
        else:
            assert a == b, f.name


def check_same_evidence(one, other):
    """All but what is of the last look alone."""
    np.testing.assert_allclose(one.log_wealth, other.log_wealth, rtol=1e-9, atol=1e-9)
    assert one.e_value == pytest.approx(other.e_value, rel=1e-9)
    assert (one.n, one.units, one.n_accepted) == (other.n, other.units, other.n_accepted)
    assert one.errors_accepted == pytest.approx(other.errors_accepted, rel=1e-12, abs=1e-12)
    assert one.coverage == other.coverage
    np.testing.assert_allclose(one.risk, other.risk, rtol=1e-12)


# ---- the evidence ---------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(rows(weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS), st.integers(0, 60))
def test_e_value_is_the_mixture_of_products_over_accepted_rows(case, max_risk, place):
    value = float(np.sort(case.score)[min(place, len(case.score) - 1)])
    found = by_hand(value, max_risk).check(case.score, case.target)
    inside = case.score <= value
    assert found.e_value == pytest.approx(e_by_definition(case.target[inside], max_risk), rel=1e-9)
    assert (found.n, found.n_accepted, found.looks) == (len(inside), inside.sum(), 1)
    assert found.errors_accepted == case.target[inside].sum()
    assert found.coverage == inside.mean()
    assert found.risk == pytest.approx(case.target[inside].mean())


@settings(max_examples=30)
@given(rows(target="loss01", weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS))
def test_losses_are_bet_on_as_they_are(case, max_risk):
    value = float(np.median(case.score))
    found = by_hand(value, max_risk, what="loss").check(case.score, case.target)
    inside = case.score <= value
    assert found.e_value == pytest.approx(e_by_definition(case.target[inside], max_risk), rel=1e-9)
    assert found.errors_accepted == pytest.approx(math.fsum(case.target[inside]))
    if inside.any():
        assert found.risk == pytest.approx(math.fsum(case.target[inside]) / inside.sum(), abs=1e-15)


@settings(max_examples=30)
@given(case=rows(weighted=False, kinds=FINITE_SCORES), max_risk=st.sampled_from(RISKS))
def test_joint_promise_counts_a_rejected_row_as_right(case, max_risk):
    for method in ["rcps", "crc"]:
        value = float(np.median(case.score))
        found = by_hand(value, max_risk, method=method).check(case.score, case.target)
        joint = case.target * (case.score <= value)
        assert found.e_value == pytest.approx(e_by_definition(joint, max_risk), rel=1e-9)
        assert found.risk == pytest.approx(joint.mean())
        assert found.p_value == pytest.approx(binom.sf(joint.sum() - 1, len(joint), max_risk), rel=1e-9)
        assert found.risk_interval == pytest.approx(tuple(binomtest(int(joint.sum()), len(joint)).proportion_ci(0.95)))
        assert found.n_accepted == (case.score <= value).sum()


def test_joint_promise_of_a_chosen_threshold_is_checked_as_such():
    rng = np.random.default_rng(0)
    score = rng.random(2000)
    error = rng.random(2000) < score
    t = choose_threshold(score, error, 0.1, method="rcps")
    assert t.feasible
    found = t.check(score, error, again=True)
    # Among the accepted rows the risk is well above 10%; over all rows it is not.
    assert found.holds
    assert found.risk == t.risk == t.errors_accepted / 2000
    assert t.errors_accepted / t.n_accepted > 0.15
    assert not replace(t, method="fst").check(score, error, again=True).holds


@settings(max_examples=30)
@given(seeds, st.integers(1, 12), st.sampled_from(RISKS), st.sampled_from(["", "rcps"]))
def test_clusters_bet_once_each_on_their_excess_loss(seed, count, max_risk, method):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(count), rng.integers(1, 5, count))
    n = len(clusters)
    score, error = rng.random(n), rng.integers(0, 2, n)
    found = clustered(max_risk, method=method or "fst").check(score, error, clusters=clusters)
    excess = []
    for g in range(count):
        counted = (clusters == g) & ((score <= 0.5) | (method == "rcps"))
        excess.append(((error * (score <= 0.5))[counted] - max_risk).sum() / 4 + max_risk)
    assert found.e_value == pytest.approx(e_by_definition(excess, max_risk), rel=1e-9)


def test_expected_e_value_is_one_where_the_risk_is_as_promised_and_less_where_it_is_lower():
    for max_risk in RISKS:
        for n in [1, 2, 7, 40]:
            t = by_hand(max_risk=max_risk)
            e = [t.check(np.zeros(n), np.arange(n) < wrong).e_value for wrong in range(n + 1)]
            for share in (1.0, 0.9, 0.5, 0.0):
                mean = math.fsum(binom.pmf(np.arange(n + 1), n, share * max_risk) * e)
                assert mean == pytest.approx(1.0, rel=1e-9) if share == 1 else mean < 1


def test_expected_e_value_of_clusters_is_one_where_small_clusters_err_more():
    # Half of the clusters are one wrong row, half are nine right ones: one row in ten is wrong, as promised.
    t = clustered(0.1, largest=9)
    small = t.check([0.1], [1], clusters=["p"]).e_value
    large = t.check([0.1] * 9, [0] * 9, clusters=["p"] * 9).e_value
    assert (small + large) / 2 == pytest.approx(1.0, rel=1e-12)


def test_clusters_of_unknown_size_give_no_evidence_against_a_promise_that_holds():
    # The same, where the threshold knows no largest cluster: asking for one is fine, a wrong bet is not.
    t = by_hand(max_risk=0.1)
    small = unless_refused("largest_cluster", t.check, [0.1], [1], clusters=["p"])
    large = unless_refused("largest_cluster", t.check, [0.1] * 9, [0] * 9, clusters=["p"] * 9)
    assert small is large is None or (small.e_value + large.e_value) / 2 <= 1 + 1e-12


# ---- batches --------------------------------------------------------------------------------------------------


MODES = st.sampled_from([None, 1, 100, 10_000])


def check_chain(threshold, score, error, parts, looks, run_length, clusters=None):
    """Every look of a chain has the evidence by definition, and remembers the alarm."""
    expected = evidence(looks, threshold.max_risk, run_length=run_length)
    found = None
    for k, part in enumerate(parts):
        g = None if clusters is None else clusters[part]
        found = threshold.check(score[part], error[part], clusters=g, previous=found, run_length=run_length)
        assert found.e_value == pytest.approx(expected[k], rel=1e-9)
        assert found.holds == (max(expected[: k + 1]) < 20) or min(abs(e - 20) for e in expected) < 1e-6
    assert (found.looks, found.units) == (len(parts), sum(map(len, looks)))
    assert found.mode == ("lifetime" if run_length is None else "run-length")


@settings(max_examples=40)
@given(rows(weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS), st.integers(1, 8), seeds, MODES)
def test_each_look_has_the_evidence_of_all_that_was_staked_before(case, max_risk, pieces, seed, run_length):
    t = by_hand(float(np.median(case.score)), max_risk)
    parts = cut(np.random.default_rng(seed), len(case.score), pieces)
    looks = [case.target[part][case.score[part] <= t.value] for part in parts]
    check_chain(t, case.score, case.target, parts, looks, run_length)


@settings(max_examples=30)
@given(
    rows(target="loss01", weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS), st.integers(1, 8), seeds, MODES
)
def test_each_look_at_losses_or_at_a_joint_promise_has_that_evidence(case, max_risk, pieces, seed, run_length):
    for method in ("fst", "rcps"):
        t = by_hand(float(np.median(case.score)), max_risk, what="loss", method=method)
        parts = cut(np.random.default_rng(seed), len(case.score), pieces)
        inside = case.score <= t.value
        counted = (case.target * inside, np.ones(len(inside), bool)) if method == "rcps" else (case.target, inside)
        check_chain(t, case.score, case.target, parts, [counted[0][p][counted[1][p]] for p in parts], run_length)


@settings(max_examples=30)
@given(seeds, st.integers(1, 15), st.sampled_from(RISKS), st.integers(1, 6), st.booleans(), MODES)
def test_each_look_at_clusters_has_that_evidence_and_a_cluster_is_one_unit(
    seed, count, max_risk, pieces, one_vote, run_length
):
    rng = np.random.default_rng(seed)
    clusters = rng.permutation(np.repeat(np.arange(count), rng.integers(1, 5, count)))
    score, error = rng.random(len(clusters)), rng.integers(0, 2, len(clusters))
    t = clustered(max_risk, cluster_method="subsample" if one_vote else "t")
    parts, looks = [], []
    for part in cut(rng, count, pieces):
        parts.append(rng.permutation(np.flatnonzero(np.isin(clusters, part))))
        looks.append([])
        for g in part:
            inside = (clusters == g) & (score <= 0.5)
            if inside.any():  # a cluster without accepted rows is none
                size = (clusters == g).sum() if one_vote else 4
                looks[-1].append((error[inside] - max_risk).sum() / size + max_risk)
    check_chain(t, score, error, parts, looks, run_length, clusters)


@settings(max_examples=30)
@given(rows(weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS), st.integers(2, 8), seeds, MODES)
def test_empty_batches_change_nothing(case, max_risk, pieces, seed, run_length):
    t = by_hand(float(np.median(case.score)), max_risk)
    parts = [part for part in cut(np.random.default_rng(seed), len(case.score), pieces) if len(part)]
    more = [p for part in parts for p in (part, part[:0])]
    one, other = (chain(t, case.score, case.target, p, run_length=run_length) for p in (parts, [parts[0][:0], *more]))
    check_same_evidence(one, other)


@settings(max_examples=30)
@given(rows(target="loss01", weighted=False, kinds=FINITE_SCORES), st.integers(1, 8), seeds, MODES)
def test_order_inside_a_look_changes_nothing(case, pieces, seed, run_length):
    rng = np.random.default_rng(seed)
    t = by_hand(float(np.median(case.score)), what="loss")
    parts = cut(rng, len(case.score), pieces)
    one = chain(t, case.score, case.target, parts, run_length=run_length)
    other = chain(t, case.score, case.target, [rng.permutation(part) for part in parts], run_length=run_length)
    check_same(one, other, tolerance=1e-12)


def test_what_is_staked_does_not_depend_on_how_many_looks_there_were():
    for max_risk in RISKS:
        t = by_hand(max_risk=max_risk)
        for run_length in (None, 100_000):
            # Rows that change no stake: all are as bad as promised.
            loss = np.full(600, max_risk)
            whole = replace(t, what="loss").check(np.zeros(600), loss, run_length=run_length)
            found = None
            for part in np.split(np.arange(600), [1, 2, 50, 300]):
                options = {"previous": found, "run_length": run_length}
                found = replace(t, what="loss").check(np.zeros(len(part)), loss[part], **options)
            np.testing.assert_allclose(found.log_wealth, whole.log_wealth, rtol=1e-9, atol=1e-9)
            staked = sum(math.exp(x) for x in found.log_wealth)
            assert staked == pytest.approx(1 - saved(max_risk, 600) if run_length is None else 1 + 600 * 19 / 100_000)


def test_a_call_on_all_rows_is_one_look_and_does_not_see_that_the_last_were_worse():
    t, error = by_hand(max_risk=0.05), np.concatenate([np.arange(5000) % 40 == 0, np.arange(300) % 5 == 0])
    assert t.check(np.zeros(5300), error).holds
    assert not chain(t, np.zeros(5300), error, np.split(np.arange(5300), np.arange(50, 5300, 50))).holds


def test_a_first_empty_batch_is_a_look_at_nothing():
    t = by_hand()
    found = t.check([], [])
    assert found.holds
    assert (found.n, found.n_accepted, found.errors_accepted, found.looks) == (0, 0, 0, 1)
    assert (found.e_value, found.p_value, found.alarm_after) == (1.0, 1.0, None)
    assert math.isnan(found.risk)
    check_same(Check.from_json(found.to_json()), found)
    after = t.check([0.1, 0.9], [1, 1], previous=Check.from_json(found.to_json()))
    check_same(after, t.check([0.1, 0.9], [1, 1]), "looks")


def test_a_first_empty_batch_of_clusters_is_a_look_at_nothing():
    for threshold in [clustered(), by_hand()]:
        found = unless_refused("largest_cluster", threshold.check, [], [], clusters=[])
        assert found is not None or threshold.largest_cluster is None
        assert found is None or (found.holds, found.n, found.e_value) == (True, 0, 1.0)


def test_an_empty_batch_after_others_keeps_all_but_the_looks():
    t = by_hand()
    before = t.check([0.1, 0.2, 0.9], [1, 0, 1])
    after = t.check([], [], previous=before)
    check_same(after, before, "looks", "batch")
    assert (after.batch.n, after.all.n) == (0, 3)
    assert (after.looks, after.p_value) == (2, 1.0)
    assert np.isnan(after.risk_interval).all()


def test_batches_of_one_row_are_enough():
    t, error = by_hand(max_risk=0.2), [0, 1, 0, 0, 1, 1]
    found = None
    for k, wrong in enumerate(error):
        found = t.check([0.1], [wrong], previous=found)
        expected = evidence([[x] for x in error[: k + 1]], 0.2)[-1]
        assert found.e_value == pytest.approx(expected, rel=1e-12)
    assert (found.n, found.looks, found.errors_accepted) == (6, 6, 3)


def test_a_batch_of_one_loss_has_an_interval_that_says_nothing():
    for g in [None, ["p"]]:
        t = by_hand(what="loss", largest_cluster=1)
        found = t.check([0.1], [0.3], clusters=g)
        assert found.risk == 0.3
        assert found.risk_interval == (0.0, 1.0)


def test_a_batch_with_nothing_accepted_is_no_evidence():
    found = by_hand().check([0.6, 0.7, 0.8], [1, 1, 1])
    assert (found.holds, found.e_value, found.p_value, found.n, found.n_accepted) == (True, 1.0, 1.0, 3, 0)
    assert (found.coverage, found.errors_accepted) == (0.0, 0.0)
    assert np.isnan([found.risk, *found.risk_interval]).all()
    after = by_hand().check([0.1], [1], previous=found)
    assert after.e_value == pytest.approx(e_by_definition([1], 0.1))
    assert (after.n, after.n_accepted, after.coverage, after.risk) == (4, 1, 0.25, 1.0)


def test_a_batch_of_clusters_with_nothing_accepted_is_no_evidence():
    found = clustered().check([0.6, 0.7], [1, 1], clusters=["p", "q"])
    assert (found.holds, found.e_value, found.p_value, found.n_accepted) == (True, 1.0, 1.0, 0)


@settings(max_examples=30)
@given(rows(weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS))
def test_p_value_and_interval_are_exact_and_of_the_last_batch_alone(case, max_risk):
    t = by_hand(float(np.median(case.score)), max_risk, level=0.9)
    inside = case.score <= t.value
    k, wrong = int(inside.sum()), int(case.target[inside].sum())
    for found in (t.check(case.score, case.target), t.check(case.score, case.target, previous=t.check([t.value], [1]))):
        assert found.p_value == pytest.approx(binom.sf(wrong - 1, k, max_risk), rel=1e-9)
        assert found.p_value == pytest.approx(binomtest(wrong, k, max_risk, alternative="greater").pvalue, rel=1e-9)
        assert found.risk_interval == pytest.approx(tuple(binomtest(wrong, k).proportion_ci(0.9, "exact")), rel=1e-9)


def test_p_value_of_losses_lies_above_the_binomial_one_and_falls_with_the_loss():
    t = by_hand(what="loss", max_risk=0.2)
    p = [t.check(np.zeros(100), np.full(100, loss)).p_value for loss in (0.1, 0.19, 0.25, 0.3, 0.4, 0.999)]
    assert p[0] == p[1] == 1
    assert all(a > b for a, b in pairwise(p[1:]))
    assert p[4] > binom.sf(39, 100, 0.2)


@settings(max_examples=30)
@given(seeds, st.integers(2, 80), st.booleans(), st.sampled_from([0.5, 0.9, 0.99]))
def test_interval_of_losses_joins_a_logit_t_interval_and_one_at_effective_rows(seed, n, grouped, level):
    rng = np.random.default_rng(seed)
    loss, clusters = rng.random(n) ** rng.integers(1, 20), rng.integers(0, n, n) if grouped else np.arange(n)
    assume(len(set(clusters.tolist())) > 1)
    t = clustered(largest=n, what="loss", level=level) if grouped else by_hand(what="loss", level=level)
    low, high = t.check(np.zeros(n), loss, clusters=clusters if grouped else None).risk_interval
    total = np.array([loss[clusters == g].sum() for g in np.unique(clusters)])
    size = np.array([(clusters == g).sum() for g in np.unique(clusters)], dtype=float)
    risk, count = loss.mean(), len(size)
    se = math.sqrt(count / (count - 1) * ((total - risk * size) ** 2).sum()) / n
    assume(se > 1e-9)  # less is rounding
    half = stats.t.ppf((1 + level) / 2, count - 1) * se / (risk * (1 - risk))
    ends = scipy.special.expit(scipy.special.logit(risk) + np.array([-half, half]))
    k = float(bounds.effective_rows(bounds.moments(total, size))[0])
    exact = stats.beta.ppf(
        [(1 - level) / 2, (1 + level) / 2], [k * risk, k * risk + 1], [k - k * risk + 1, k - k * risk]
    )
    assert low == pytest.approx(min(ends[0], exact[0]), rel=1e-6, abs=1e-12)
    assert high == pytest.approx(max(ends[1], exact[1]), rel=1e-6)
    assert low <= risk <= high


def test_p_value_of_clusters_needs_ten_of_them():
    t = clustered(largest=2)

    def p(count):
        return t.check(np.zeros(2 * count), np.ones(2 * count), clusters=np.repeat(np.arange(count), 2)).p_value

    assert p(9) == 1
    assert p(10) < 0.05
    assert p(40) < p(10)


# ---- the alarm ------------------------------------------------------------------------------------------------


def test_an_alarm_stays_though_the_evidence_fades():
    t = by_hand(max_risk=0.1)
    bad = t.check(np.zeros(10), np.ones(10))
    assert not bad.holds
    assert bad.e_value >= 20
    assert bad.alarm_after == 10
    good = t.check(np.zeros(5000), np.zeros(5000), previous=Check.from_json(bad.to_json()))
    assert good.e_value < 1
    assert not good.holds
    assert good.alarm_after == 10
    assert not t.check([], [], previous=good).holds
    assert "no longer" in str(good)


def test_alarm_comes_when_the_e_value_reaches_one_over_delta_and_tells_the_rows_seen():
    t, found, alarms = by_hand(max_risk=0.2, level=0.9), None, []
    error = np.array([0, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1])
    for k in range(len(error)):
        # Rejected rows count as seen.
        found = t.check([0.1, 0.9], [error[k], 1], previous=found)
        alarms.append(evidence([[x] for x in error[: k + 1]], 0.2)[-1] >= 10)
        assert found.holds == (not any(alarms))
        assert found.alarm_after == (2 * (alarms.index(True) + 1) if any(alarms) else None)
    assert any(alarms)
    assert not alarms[0]


def test_alarm_is_where_the_e_value_times_delta_is_one():
    for wrong in [1, 2, 5, 12]:
        t, error = by_hand(max_risk=0.1), np.arange(20) < wrong + 3
        e = e_by_definition(error, 0.1)
        assert t.check(np.zeros(20), error, level=1 - 1 / (e * (1 + 1e-4))).holds
        assert not t.check(np.zeros(20), error, level=1 - 1 / (e * (1 - 1e-4))).holds


def test_alarm_after_is_the_end_of_the_batch_that_raised_it():
    t, error = by_hand(max_risk=0.1), np.ones(12)
    parts = np.split(np.arange(12), [1, 9])
    assert chain(t, np.zeros(12), error, parts[:1]).holds
    assert chain(t, np.zeros(12), error, parts).alarm_after == 9
    assert t.check(np.zeros(12), error).alarm_after == 12


def test_a_look_at_many_good_rows_raises_no_alarm_between_false_ones():
    t, found = by_hand(max_risk=0.05), None
    for n in [100_000, 1, 0, 1, 20_000, 1, 1]:
        found = t.check(np.zeros(n), np.zeros(n), previous=found, run_length=1000)
        assert found.holds
        assert found.e_value <= 1


def test_a_rise_after_a_good_time_is_noticed_sooner_between_false_alarms_than_in_a_lifetime():
    t, error = by_hand(max_risk=0.05), np.concatenate([np.zeros(3000), np.arange(2000) % 5 == 4])
    parts = np.split(np.arange(5000), np.arange(5, 5000, 5))
    lifetime, short, shorter = (
        chain(t, np.zeros(5000), error, parts, run_length=length).alarm_after for length in (None, 10_000, 500)
    )
    assert 3000 < shorter < short < lifetime < 3150
    # What was all at stake from the start is lost: the wealth of a monitor that saves nothing.
    lost = 1 / np.exp(bounds.rise_log_e(error[:lifetime], 0.05)).max()
    assert lost > 20


def test_level_is_that_of_the_threshold_unless_given():
    t = by_hand(max_risk=0.1, level=0.95)
    error = np.array([1, 1, 0, 1])
    e = e_by_definition(error, 0.1)
    assert 20 < e < 1000
    assert not t.check(np.zeros(4), error).holds
    sure = t.check(np.zeros(4), error, level=0.999)
    assert sure.holds
    assert (sure.level, sure.e_value) == (0.999, pytest.approx(e))
    assert sure.risk_interval == pytest.approx(tuple(binomtest(3, 4).proportion_ci(0.999)))
    assert "alarm at 1000" in str(sure)
    assert t.check(np.zeros(4), error, previous=sure, level=0.999).level == 0.999


def test_a_level_that_is_none_is_refused():
    for bad in [0, 1, 95, -0.1, "0.95", math.nan]:
        with pytest.raises(InputError, match="level"):
            by_hand().check([0.1], [1], level=bad)


def test_an_infeasible_threshold_accepts_nothing_and_holds():
    for method in ["fallback", "rcps"]:
        rng = np.random.default_rng(1)
        t = choose_threshold(rng.random(30), rng.integers(0, 2, 30), 0.01, method=method)
        assert not t.feasible
        found = t.check(rng.random(1000), np.ones(1000))
        assert found.holds
        assert (found.n_accepted, found.errors_accepted, found.coverage, found.p_value) == (0, 0.0, 0.0, 1.0)
        assert found.e_value <= 1
        with pytest.warns(UQWarning, match="infinite"):
            assert t.check([-math.inf, 0.1], [1, 1]).n_accepted == 0
        check_same(Check.from_json(found.to_json()), found)


def test_a_threshold_that_accepts_everything_is_checked_on_all_rows():
    found = by_hand(math.inf).check([1e300, -1e300, 0.0], [1, 0, 0])
    assert (found.n_accepted, found.errors_accepted) == (3, 1)


def test_tied_rows_at_the_threshold_are_accepted():
    found = by_hand(0.0).check([0.0, -0.0, 5e-324, 0.0], [1, 1, 1, 0])
    assert (found.n_accepted, found.errors_accepted) == (3, 2)


# ---- how long it takes -------------------------------------------------------------------------------------------


def rows_until_the_alarm(max_risk, factor, after, run_length, runs=1500):
    """Mean and standard error over runs, row by row, after so many right rows; by the definition of the recursion."""
    up, down = (np.array([1 + stake * (x - max_risk) for stake in stakes(max_risk)]) for x in (1, 0))
    share, rng, units = np.array(shares(max_risk)), np.random.default_rng(5), 0
    wealth = np.tile(share * (0.7 if run_length is None else 1), (runs, 1))
    waited, left = [], runs
    while left:
        bad = units >= after
        wealth *= np.where(rng.random((left, 1)) < factor * max_risk, up, down) if bad else down
        alarm = wealth.sum(axis=1) + (saved(max_risk, units) if run_length is None else 0) >= 20
        wealth += share * (19 / run_length if run_length else saved(max_risk, units) - saved(max_risk, units + 1))
        units += 1
        waited += [units - after] * int(alarm.sum())
        wealth = wealth[~alarm]
        left = len(wealth)
    return np.mean(waited), np.std(waited) / math.sqrt(runs)


def test_expected_delay_is_that_of_a_simulation_row_by_row():
    for max_risk, factor, after, run_length in [
        (0.05, 4, 0, None),
        (0.05, 4, 1000, None),
        (0.05, 4, 1000, 1000),
        (0.2, 2, 0, None),
        (0.2, 2, 1000, None),
        (0.2, 2, 1000, 1000),
        (0.2, 1.5, 100, 10_000),
        (0.5, 2, 1000, None),
    ]:
        mean, se = rows_until_the_alarm(max_risk, factor, after, run_length)
        found = expected_delay(max_risk, factor=factor, after=after, run_length=run_length)
        assert found == pytest.approx(mean, abs=0.05 * mean + 3 * se)


def test_expected_delay_grows_with_what_came_before_and_with_what_is_asked():
    delays = [expected_delay(0.05, after=n) for n in (0, 500, 5000, 50_000, 10**9)]
    assert all(a < b for a, b in pairwise(delays))
    assert all(a > b for a, b in pairwise(expected_delay(0.05, factor=f) for f in (1.5, 2, 4, 20)))
    assert expected_delay(0.05, 0.9) < expected_delay(0.05, 0.99)
    assert expected_delay(0.05, run_length=1000) < expected_delay(0.05, run_length=100_000) < expected_delay(0.05)


def test_expected_delay_refuses_what_cannot_be():
    for bad in [1, 1.01, 20.5, "2", True, math.nan, None]:
        with pytest.raises(InputError, match=r"`factor` is .* from 1\.1 to 20"):
            expected_delay(0.05, factor=bad)
    for options, word in [({"after": -1}, "after"), ({"run_length": 0}, "run_length"), ({"level": 95}, "level")]:
        with pytest.raises(InputError, match=word):
            expected_delay(0.05, **options)
    with pytest.raises(InputError, match="max_risk"):
        expected_delay(5)


def test_a_threshold_says_how_soon_a_doubled_risk_is_noticed():
    t = by_hand(max_risk=0.05)
    assert t.expected_delay() == expected_delay(0.05) == pytest.approx(616, rel=0.01)
    assert t.expected_delay(4, level=0.9, after=0) == expected_delay(0.05, 0.9, factor=4, after=0)
    assert str(t).endswith(
        "if the risk rises to 10%, check notices after about 620 labelled accepted rows, even after 10,000 good ones"
    )
    assert "labelled rows," in str(by_hand(method="rcps"))
    assert "labelled accepted clusters," in str(clustered(cluster_method="subsample"))
    assert "if the mean loss rises to 0.2, " in str(by_hand(what="loss"))
    for silent in [clustered(cluster_method="t"), replace(t, feasible=False, value=-math.inf), by_hand(max_risk=0.6)]:
        assert "notices" not in str(silent)
    assert math.isnan(clustered(cluster_method="t").expected_delay())


# ---- what the next look needs ---------------------------------------------------------------------------------


def test_the_check_of_another_threshold_is_refused():
    for other in [by_hand(0.4), by_hand(max_risk=0.2), by_hand(method="fst"), by_hand(data_hash="other rows")]:
        with pytest.raises(InputError, match="another threshold"):
            by_hand().check([0.1], [0], previous=other.check([0.1], [0]))


def test_a_check_at_another_level_is_refused():
    t = by_hand(level=0.95)
    with pytest.raises(InputError, match="level"):
        t.check([0.1], [0], previous=t.check([0.1], [0], level=0.9))
    with pytest.raises(InputError, match="level"):
        t.check([0.1], [0], level=0.9, previous=t.check([0.1], [0]))


def test_a_check_with_another_largest_cluster_is_refused():
    t = clustered(largest=4)
    before = t.check([0.1, 0.2], [0, 1], clusters=["p", "p"])
    with pytest.raises(InputError, match="largest_cluster"):
        t.check([0.1], [0], clusters=["q"], largest_cluster=5, previous=before)
    assert t.check([0.1], [0], clusters=["q"], largest_cluster=4, previous=before).looks == 2


def test_a_check_of_the_other_mode_or_run_length_is_refused():
    t = by_hand()
    said = {None: "without run_length", 100: "with run_length = 100", 200: "with run_length = 200"}
    for first, then in [(None, 100), (100, None), (100, 200)]:
        with pytest.raises(InputError, match=f"was made {said[first]}, this look {said[then]}"):
            t.check([0.1], [0], run_length=then, previous=t.check([0.1], [0], run_length=first))
    assert t.check([0.1], [0], run_length=100, previous=t.check([0.1], [0], run_length=100)).looks == 2


def test_the_check_of_an_earlier_uqeval_is_refused_with_what_to_do():
    data = json.loads(by_hand().check([0.1, 0.2], [1, 0]).to_json())
    del data["run_length"], data["units"]
    with pytest.raises(InputError, match=r"earlier uqeval.*Start a new one; an alarm that the old one raised stands"):
        Check.from_json(json.dumps(data | {"log_wealth": [0.0] * 12}))


def test_a_run_length_that_is_no_count_is_refused():
    for bad in [0, -1, "3", 3.0, True]:
        with pytest.raises(InputError, match="`run_length` must be an int"):
            by_hand().check([0.1], [1], run_length=bad)


def test_what_is_not_a_check_is_refused_as_previous():
    for change in [Check.to_json, Check.to_dict, str]:
        with pytest.raises(InputError, match="previous"):
            by_hand().check([0.1], [0], previous=change(by_hand().check([0.1], [0])))


def test_the_same_threshold_from_json_goes_on():
    t = by_hand(1 / 3, max_risk=0.1)
    again = Threshold.from_json(t.to_json())
    first = t.check([0.1, 0.2], [1, 0])
    check_same(again.check([0.3], [1], previous=first), t.check([0.3], [1], previous=first))


@settings(max_examples=30)
@given(rows(target="loss01", weighted=False, kinds=FINITE_SCORES), st.sampled_from(RISKS), st.booleans())
def test_json_gives_back_the_same_check(case, max_risk, accepts):
    value = float(np.median(case.score)) if accepts else float(case.score.min()) - 1
    found = by_hand(value, max_risk, what="loss").check(case.score, case.target)

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    data = json.loads(found.to_json(), parse_constant=refuse)
    assert set(data) == {f.name for f in fields(Check)} | {"schema_version"}
    back = Check.from_json(found.to_json())
    check_same(back, found)
    assert back.to_json() == found.to_json()


def test_a_service_that_stops_and_goes_on_sees_what_one_that_never_stopped_sees():
    rng, t, kept, found = np.random.default_rng(2), by_hand(max_risk=0.3), None, None
    for _ in range(20):
        score, error = rng.random(7), rng.integers(0, 2, 7)
        found = t.check(score, error, previous=found)
        kept = t.check(score, error, previous=None if kept is None else Check.from_json(kept.to_json()))
    check_same(kept, found)


def test_what_is_not_the_json_of_a_check_is_refused():
    for text in ["", "{", "[]", "null", "3", "{}", '"holds"', "not json", '{"log_wealth": []}']:
        with pytest.raises(InputError, match="Check"):
            Check.from_json(text)


def test_json_without_a_field_is_refused():
    for name in [f.name for f in fields(Check) if f.name != "marks"]:  # which earlier states did not have
        data = json.loads(by_hand().check([0.1, 0.2], [1, 0]).to_json())
        del data[name]
        with pytest.raises(InputError, match="Check"):
            Check.from_json(json.dumps(data))


def test_json_with_a_broken_field_is_refused():
    for change in [
        {"log_wealth": [0.0]},
        {"log_wealth": None},
        {"log_wealth": [None] * 12},
        {"log_wealth": ["x"] * 12},
        {"batch": {"risk_interval": 3}},
        {"all": {"risk": "high"}},
        {"all": 3},
        {"moments": [0.0]},
        {"batches": [3]},
        {"marks": [3]},
        {"votes": 3},
        {"more": 1},
        {"holds": "yes"},
        {"holds": None},
        {"units": -1},
        {"units": 1.5},
        {"run_length": 0},
        {"run_length": 1e4},
        {"level": 95},
        {"max_risk": None},
        {"alarm_after": "never"},
        {"schema_version": 99},
    ]:
        data = json.loads(by_hand().check([0.1, 0.2], [1, 0]).to_json()) | change
        with pytest.raises(InputError, match=r"Check|level"):
            Check.from_json(json.dumps(data))


def test_json_is_read_from_a_path(tmp_path):
    found = by_hand().check([0.1, 0.2], [1, 0])
    (tmp_path / "check.json").write_text(found.to_json(), encoding="utf-8")
    check_same(Check.from_json(tmp_path / "check.json"), found)
    with pytest.raises(InputError, match="cannot be read"):
        Check.from_json(tmp_path / "no such file.json")


def test_a_truncated_file_is_refused():
    text = by_hand().check([0.1, 0.2], [1, 0]).to_json()
    for end in range(0, len(text) - 1, 17):
        with pytest.raises(InputError):
            Check.from_json(text[:end])


# ---- rows that came before --------------------------------------------------------------------------------------


def test_rows_count_once_in_any_order_unless_one_insists():
    t, rng = by_hand(), np.random.default_rng(0)
    score, error, order = rng.random(50), rng.random(50) < 0.05, rng.permutation(50)
    first = t.check(score, error)
    then = t.check(rng.random(50), error, previous=first)
    for before in (first, then, Check.from_json(then.to_json())):
        with pytest.raises(InputError, match=r"were checked before .*again=True"):
            t.check(score[order], error[order].astype(float), previous=before)
    assert t.check(score, error, previous=then, again=True).looks == 3
    changed = np.where(np.arange(50) == 7, score + 1e-12, score)
    with pytest.warns(UQWarning, match="were checked before are among these"):
        assert t.check(changed, error, previous=then).looks == 3


def test_a_log_that_grows_and_is_checked_as_a_whole_is_noticed():
    t, rng = by_hand(), np.random.default_rng(2)
    score = rng.random(2000)
    error = rng.random(2000) < 0.03
    for step in (40, 300):
        found = t.check(score[:step], error[:step])
        for stop in range(2 * step, 6 * step, step):
            state = Check.from_json(found.to_json())
            assert len(state.marks) <= 64
            with pytest.warns(UQWarning, match="that were checked before are among these.*Each row counts once"):
                t.check(score[:stop], error[:stop], previous=state)
            found = t.check(score[stop - step : stop], error[stop - step : stop], previous=state)  # without a warning
        assert found.looks == 5
    data = json.loads(found.to_json())
    del data["marks"]
    assert Check.from_json(json.dumps(data)).looks == 5  # a state of before


def test_rows_that_may_come_again_by_chance_are_never_refused():
    t, found = by_hand(), None
    for score, error in [([0.1], [0]), ([0.1, 0.2], [0, 1]), (np.zeros(300), np.arange(300) < 10)]:
        for _ in range(3):
            found = t.check(score, error, previous=found)
    assert found.looks == 9


def test_of_many_looks_at_coarse_rows_none_is_taken_for_another():
    t, rng, found, same = by_hand(max_risk=0.6), np.random.default_rng(0), None, 0
    for _ in range(300):
        rows = rng.integers(0, 3, 10) / 10
        found = t.check(rows, np.zeros(10), previous=found)
        same += found.batches[-1] in found.batches[:-1]
    assert (found.looks, same > 100) == (300, True)


def test_a_state_remembers_a_thousand_batches_and_no_more():
    t, found, rng = by_hand(), None, np.random.default_rng(0)
    rows = rng.random((1002, 24))
    for part in rows:
        found = t.check(part, np.zeros(24), previous=found)
    assert len(found.batches) == 1000
    assert t.check(rows[0], np.zeros(24), previous=found).looks == 1003
    with pytest.raises(InputError, match="before"):
        t.check(rows[-1], np.zeros(24), previous=found)


def test_calibration_rows_are_known_again_whole_and_in_part_where_scores_are_exact():
    rng = np.random.default_rng(1)
    score = rng.random(1000)
    error = rng.random(1000) < 0.1 * score
    for coarse in (False, True):
        s = score.round(2) if coarse else score
        for options in ({}, {"split": 0.5}):
            t = choose_threshold(s, error, 0.1, **options)
            with pytest.raises(InputError, match="the rows that the threshold was chosen on"):
                t.check(s, error)
            new, fresh = rng.random(1000).round(2 if coarse else 16), rng.random(1000) < 0.01
            assert t.check(new, fresh).looks == 1  # without a warning
            part = np.concatenate([s[:600], new[:400]]), np.concatenate([error[:600], fresh[:400]])
            if coarse:  # then the rows of a part may be others
                assert (t.marks, t.check(*part).looks) == ((), 1)
            else:
                with pytest.warns(UQWarning, match="chosen on are among these"):
                    t.check(*part)
    assert Threshold.from_json(t.to_json()).batches == t.batches


def test_a_threshold_file_from_before_the_marks_is_still_read():
    rng = np.random.default_rng(0)
    t = choose_threshold(rng.random(200), np.zeros(200), 0.1)
    data = json.loads(t.to_json())
    del data["batches"], data["marks"]
    assert Threshold.from_json(json.dumps(data)).value == t.value


def test_a_state_whose_numbers_were_of_mixed_rows_goes_on():
    t, rng = by_hand(), np.random.default_rng(0)
    score, error = rng.random((2, 40)), rng.random((2, 40)) < 0.1
    first = t.check(score[0], error[0])
    data = json.loads(first.to_json())
    every, batch = data.pop("all"), data.pop("batch")
    data |= {name: every[name] for name in ("n", "n_accepted", "errors_accepted", "coverage", "risk")}
    data |= {name: batch[name] for name in ("risk_interval", "p_value")}
    data["votes"] = [data["moments"][2], data["moments"][1]]
    del data["moments"], data["batches"]
    old, new = (t.check(score[1], error[1], previous=p) for p in (Check.from_json(json.dumps(data)), first))
    check_same(replace(new, moments=(), batches=()), replace(old, moments=(), batches=()), "risk_interval", "p_value")
    assert old.batch == new.batch
    assert np.isnan(old.all.risk_interval).all()


# ---- the name of the score --------------------------------------------------------------------------------------


def test_another_score_is_refused_where_its_name_is_told():
    pred = uq.datasets.example()
    old, new = pred.take(np.arange(800)), pred.take(np.arange(800, 1547))
    t = choose_threshold("entropy", predictions=old, max_risk=0.05)
    values = uq.scores.compute("entropy", new)
    found = t.check("entropy", predictions=new)
    assert found == t.check({"entropy": values}, uq.truth.error_of(new)) == t.check(values, uq.truth.error_of(new))
    assert (t.accept({"entropy": values}) == t.accept(values)).all()
    for wrong in (
        lambda: t.check("margin", predictions=new),
        lambda: t.check({"margin": values}, uq.truth.error_of(new)),
        lambda: t.accept({"margin": values}),
    ):
        with pytest.raises(InputError, match='is for the score "entropy", not for "margin"'):
            wrong()
    assert by_hand().accept({"margin": [0.1]}).all()


# ---- numbers of the batch, numbers of all rows ------------------------------------------------------------------


@settings(max_examples=20)
@given(st.integers(0, 100), st.sampled_from(["error", "loss", "clusters", "one vote"]))
def test_the_interval_of_all_rows_is_that_of_one_look_at_all_of_them(seed, kind):
    rng = np.random.default_rng(seed)
    t = by_hand(what="loss") if kind == "loss" else by_hand()
    if kind in ("clusters", "one vote"):
        t = replace(clustered(), cluster_method="subsample" if kind == "one vote" else "t")
    g = np.repeat(np.arange(30), 4) if t.cluster_method else None
    score, error = rng.random(120), rng.random(120) < 0.2
    error = rng.random(120) if kind == "loss" else error
    found = None
    for part in np.split(np.arange(120), [40, 40, 80]):
        found = t.check(score[part], error[part], clusters=None if g is None else g[part], previous=found)
    whole = t.check(score, error, clusters=g)
    np.testing.assert_allclose(found.all.risk_interval, whole.batch.risk_interval, rtol=1e-9)
    assert found.all.risk == pytest.approx(whole.batch.risk)
    assert (found.all.n, found.all.n_accepted) == (whole.batch.n, whole.batch.n_accepted)


# ---- clusters -------------------------------------------------------------------------------------------------


def clustered_rows(count=60, size=4, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.random(count * size)
    return score, rng.random(count * size) < 0.02, np.repeat(np.arange(count), size)


def test_clusters_are_needed_where_the_threshold_was_chosen_with_them():
    score, error, clusters = clustered_rows()
    t = choose_threshold(score, error, 0.3, clusters=clusters)
    assert (t.feasible, t.n_clusters, t.largest_cluster) == (True, 60, 4)
    with pytest.raises(InputError, match="clusters"):
        t.check(score, error)
    assert t.check(score, error, clusters=clusters, again=True).holds
    with pytest.raises(InputError, match="clusters"):
        t.check([], [])


def test_a_cluster_larger_than_any_known_one_is_refused_with_what_to_pass():
    score, error, clusters = clustered_rows()
    t = choose_threshold(score, error, 0.3, clusters=clusters)
    low = np.full(5, score.min())
    with pytest.raises(InputError, match="largest_cluster=5"):
        t.check(low, np.zeros(5), clusters=["p"] * 5)
    assert t.check(low, np.zeros(5), clusters=["p"] * 5, largest_cluster=5).holds
    assert t.check(low[:4], np.zeros(4), clusters=["p"] * 4).holds
    with pytest.raises(InputError, match="largest_cluster=4"):
        t.check(low[:4], np.zeros(4), clusters=["p"] * 4, largest_cluster=3)


def test_only_accepted_rows_make_a_cluster_large():
    found = clustered(largest=2).check([0.1, 0.2, 0.9, 0.9], [1, 0, 1, 1], clusters=["p"] * 4)
    assert found.n_accepted == 2
    with pytest.raises(InputError, match="largest_cluster"):
        clustered(largest=2, method="rcps").check([0.1, 0.2, 0.9, 0.9], [1, 0, 1, 1], clusters=["p"] * 4)


def test_a_larger_possible_cluster_makes_smaller_bets():
    t, score, error, g = clustered(largest=2), np.full(12, 0.1), np.ones(12), np.repeat(np.arange(6), 2)
    small, large = t.check(score, error, clusters=g), t.check(score, error, clusters=g, largest_cluster=20)
    assert 1 < large.e_value < small.e_value
    expected = e_by_definition([(2 - 0.2) / 20 + 0.1] * 6, 0.1)
    assert large.e_value == pytest.approx(expected, rel=1e-12)


def test_a_largest_cluster_that_is_no_count_is_refused():
    for bad in [0, -1, "3", 3.0, True]:
        with pytest.raises(InputError, match="`largest_cluster` must be an int"):
            clustered().check([0.1], [1], clusters=["p"], largest_cluster=bad)


def test_the_largest_cluster_given_when_choosing_is_that_of_every_look():
    score, error, clusters = clustered_rows()
    t = choose_threshold(score, error, 0.3, clusters=clusters, largest_cluster=9)
    plain = choose_threshold(score, error, 0.3, clusters=clusters)
    assert (t.largest_cluster, plain.largest_cluster) == (9, 4)
    assert t.value == plain.value
    low = np.full(9, score.min())
    found = t.check(low, np.zeros(9), clusters=["p"] * 9)
    assert found.largest_cluster == 9
    with pytest.raises(InputError, match="largest_cluster=9"):
        plain.check(low, np.zeros(9), clusters=["p"] * 9)
    check_same(found, plain.check(low, np.zeros(9), clusters=["p"] * 9, largest_cluster=9), "threshold_hash")


# ---- clusters that have one vote each -------------------------------------------------------------------------


@settings(max_examples=30)
@given(seeds, st.integers(1, 12), st.sampled_from(RISKS), st.sampled_from(["fallback", "rcps", "crc"]))
def test_clusters_with_one_vote_each_bet_on_the_excess_loss_per_row_of_theirs(seed, count, max_risk, method):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(count), rng.integers(1, 5, count))
    n = len(clusters)
    score, error = rng.random(n), rng.integers(0, 2, n)
    t = clustered(max_risk, method=method, cluster_method="subsample")
    found = t.check(score, error, clusters=clusters)
    losses = []
    for g in range(count):
        own = clusters == g
        counted = own & ((score <= 0.5) | (method in ("rcps", "crc")))
        losses.append(((error * (score <= 0.5))[counted] - max_risk).sum() / own.sum() + max_risk)
    assert found.e_value == pytest.approx(e_by_definition(losses, max_risk), rel=1e-9)


def test_expected_e_value_of_clusters_with_one_vote_each_is_one_where_large_clusters_err_more():
    # Half of the clusters are one right row, half are five with one wrong: a random row of each is wrong once in ten.
    t = clustered(0.1, largest=5, cluster_method="subsample")
    small = t.check([0.1], [0], clusters=["p"]).e_value
    large = t.check([0.1] * 5, [1, 0, 0, 0, 0], clusters=["p"] * 5).e_value
    assert small < 1 < large
    assert (small + large) / 2 == pytest.approx(1.0, rel=1e-12)


def uneven_rows(rng, count, rise=1.0):
    """One cluster in five has 20 rows, of which a tenth is wrong; the others a single one, wrong once in 200."""
    sizes = np.where(np.arange(count) % 5 == 0, 20, 1)
    clusters = np.repeat(np.arange(count), sizes)
    rate = rise * np.where(sizes[clusters] > 1, 0.1, 0.005)
    return rng.random(len(clusters)), (rng.random(len(clusters)) < rate).astype(int), clusters


def test_a_promise_for_one_input_of_each_cluster_raises_no_alarm_where_that_holds():
    for seed in range(5):
        # 2.4% of the random inputs of random clusters are wrong, as promised, though 8.4% of all inputs are.
        rng = np.random.default_rng(seed)
        score, error, clusters = uneven_rows(rng, 2000)
        t = choose_threshold(score, error, 0.05, clusters=clusters, cluster_method="subsample")
        assert (t.cluster_method, t.coverage > 0.9) == ("subsample", True)
        found = None
        for _ in range(5):
            score, error, clusters = uneven_rows(rng, 1000)
            found = t.check(score, error, clusters=clusters, previous=found)
            assert found.risk_interval[1] < 0.05
        assert found.holds
        assert found.e_value < 1
        score, error, clusters = uneven_rows(rng, 4000, rise=4.0)
        assert not t.check(score, error, clusters=clusters, previous=found).holds


def test_the_risk_of_a_check_lies_in_its_interval_where_clusters_have_one_vote_each():
    score, error, clusters = uneven_rows(np.random.default_rng(0), 2000)
    t = clustered(0.05, largest=20, cluster_method="subsample", value=1.0)
    found = t.check(score, error, clusters=clusters)
    assert found.risk_interval[0] <= found.risk <= found.risk_interval[1]


def test_singleton_clusters_give_the_evidence_of_rows():
    rng = np.random.default_rng(3)
    score, error = rng.random(80), rng.integers(0, 2, 80)
    one = by_hand().check(score, error)
    check_same_evidence(clustered(largest=1).check(score, error, clusters=np.arange(80)), one)


@settings(max_examples=30)
@given(seeds)
def test_names_and_order_of_clusters_change_nothing(seed):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(15), 3)
    score, error = rng.random(45), rng.integers(0, 2, 45)
    names, order = rng.permutation(15), rng.permutation(45)
    one = clustered().check(score, error, clusters=clusters)
    other = clustered().check(score[order], error[order], clusters=[f"patient {names[g]}" for g in clusters[order]])
    check_same(one, other, tolerance=1e-10)


# ---- inputs ---------------------------------------------------------------------------------------------------


def test_nan_is_refused_or_left_out_with_a_warning():
    t, score, error = by_hand(), [0.1, math.nan, 0.2, 0.3], [1.0, 1.0, math.nan, 0.0]
    with pytest.raises(InputError, match="NaN"):
        t.check(score, error)
    with pytest.raises(InputError, match="`error` has 1 NaN"):
        t.check([0.1, 0.2], [math.nan, 0.0])
    with pytest.warns(UQWarning, match="2 rows with NaN"):
        found = t.check(score, error, nan="omit")
    check_same(found, t.check([0.1, 0.3], [1, 0]))
    with pytest.raises(InputError, match="nan"):
        t.check(score, error, nan="drop")


def test_a_batch_of_nothing_but_nan_is_an_empty_one():
    t = by_hand()
    before = t.check([0.1], [1])
    with pytest.warns(UQWarning, match="2 rows with NaN"):
        found = t.check([math.nan, 0.1], [1, math.nan], nan="omit", previous=before)
    check_same(found, t.check([], [], previous=before))


def test_nan_in_a_row_of_a_cluster_leaves_the_cluster():
    t, nan = clustered(largest=2), math.nan
    with pytest.warns(UQWarning, match="1 rows with NaN"):
        found = t.check([0.1, 0.2, nan], [1, 0, 1], clusters=["p", "p", "p"], nan="omit")
    check_same(found, t.check([0.1, 0.2], [1, 0], clusters=["p", "p"]))


def test_rows_that_cannot_be_checked_are_refused():
    for score, error, words in [
        ([0.1, 0.2], [1], "rows"),
        ([0.1], [2], "error"),
        ([0.1], [0.5], "error"),
        ([[0.1]], [1], "score"),
        (["a"], [1], "score"),
        (0.1, 1, "score"),
        (None, [1], "score"),
    ]:
        with pytest.raises(InputError, match=words):
            by_hand().check(score, error)


def test_a_loss_outside_0_and_1_is_refused():
    for loss in [-0.1, 1.1, math.inf]:
        with pytest.raises(InputError, match="error"):
            by_hand(what="loss").check([0.1, 0.2], [loss, 0])


def test_a_loss_for_a_threshold_of_errors_is_refused_with_what_to_choose():
    with pytest.raises(InputError, match=r'chosen for 0/1 errors; `error` holds 0\.5 at row 1.*risk="loss"'):
        by_hand().check([0.1, 0.2], [1, 0.5])
    assert by_hand(what="loss").check([0.1, 0.2], [1, 0.5]).errors_accepted == 1.5


def test_clusters_of_another_length_are_refused():
    with pytest.raises(InputError, match="clusters"):
        clustered().check([0.1, 0.2], [1, 0], clusters=["p"])


@settings(max_examples=30)
@given(seeds, st.sampled_from(["float32", "float16", "int8", "bool"]))
def test_dtypes_of_score_and_error_change_nothing(seed, kind):
    rng = np.random.default_rng(seed)
    score, error = make_scores(rng, 30, "grid"), rng.integers(0, 2, 30)
    score = (score > 0) * 1.0 if kind == "bool" else score
    one, other = by_hand(1).check(score, error), by_hand(1).check(score.astype(kind), error.astype(bool).tolist())
    check_same(one, other)


# ---- print ----------------------------------------------------------------------------------------------------


def test_frame_has_one_row_with_the_numbers():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for kind in ["pandas", "polars", "pyarrow"]:
        found = by_hand().check([0.1, 0.2, 0.9], [1, 0, 1])
        frame = found.to_frame(kind)
        columns = list(frame.column_names if kind == "pyarrow" else frame.columns)
        assert len(frame) == 1
        skipped = {"log_wealth", "moments", "batches", "marks", "batch", "all"}
        told = {f.name for f in fields(CheckedRows)} - {"risk_interval"} | {"risk_low", "risk_high"}
        both = {f"{rows}_{name}" for rows in ("batch", "all") for name in told}
        assert set(columns) == {f.name for f in fields(Check)} - skipped | both


def test_text_says_what_was_seen():
    good, bad = by_hand().check([0.1, 0.9], [0, 0]), by_hand().check(np.zeros(20), np.ones(20))
    assert "1 of 2 rows accepted" in str(good)
    assert "promised ≤ 0.1" in str(good)
    assert "no longer holds" in str(bad)
    assert good._repr_html_() == f"<p>{str(good).replace('<', '&lt;')}</p>"
    assert "Nothing to tell yet: 0 of 1 rows" in str(by_hand().check([0.9], [0]))
    assert "95% confidence" in str(bad)
    for t, g, unit in [(by_hand(), None, "rows"), (clustered(largest=1), np.arange(20), "clusters")]:
        bad = t.check(np.zeros(20), np.ones(20), clusters=g, run_length=1000)
        assert f"(one false alarm in 1,000 {unit})" in str(bad)
        assert "evidence" in str(bad)


def test_a_promise_of_next_to_no_risk_can_be_printed():
    for risk in (1e-13, 1e-15, 1e-300, 5e-324):
        promise = uq.Threshold.from_value(0.5, max_risk=risk)
        assert str(promise).startswith("Act where")
        assert math.isnan(promise.expected_delay()) == (risk < 1e-14)
