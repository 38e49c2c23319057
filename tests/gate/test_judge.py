"""Verdicts: pass, fail, too few rows to tell; never a pass where a number is missing."""

import math
from dataclasses import replace

import numpy as np
import pytest

import uqeval as uq
from uqeval.gate import judge
from uqeval.gate.judge import Number, decide, fail_level
from uqeval.gate.policy import Rule

PASS, FAIL, UNCLEAR = "pass", "fail", "too few rows to tell"


@pytest.fixture(scope="module")
def example():
    return uq.datasets.example()


@pytest.fixture(scope="module")
def ev(example):
    return uq.evaluate(example, scores=["entropy"], metrics=["uq_auc", "aurc", "accuracy"])


def status(ev, *rules, **how):
    return judge(ev, {"rule": list(rules)}, **how).status


def test_pass_where_the_end_keeps_the_limit_fail_where_the_whole_interval_misses_it(ev):
    e = ev["entropy", "uq_auc"]
    for limit, expected in ((e.low, PASS), (e.low + 1e-6, UNCLEAR), (e.high, UNCLEAR), (e.high + 1e-6, FAIL)):
        assert status(ev, {"metric": "uq_auc", "at_least": limit}) == expected
    e = ev["entropy", "aurc"]
    for limit, expected in ((e.high, PASS), (e.high - 1e-6, UNCLEAR), (e.low, UNCLEAR), (e.low - 1e-6, FAIL)):
        assert status(ev, {"metric": "aurc", "at_most": limit}) == expected


def test_on_value_nothing_but_the_value_decides(ev):
    value = ev["entropy", "uq_auc"].value
    assert status(ev, {"metric": "uq_auc", "at_least": value, "on": "value"}) == PASS
    assert status(ev, {"metric": "uq_auc", "at_least": value + 1e-9, "on": "value"}) == FAIL


def test_one_rule_that_fails_fails_the_policy_and_one_that_cannot_be_told_stops_a_pass(ev):
    good, bad, unclear = ({"metric": "uq_auc", "at_least": limit} for limit in (0.7, 0.99, 0.9))
    for rules, expected, code in (([good], PASS, 0), ([good, unclear], UNCLEAR, 3), ([unclear, good, bad], FAIL, 1)):
        result = judge(ev, {"rule": rules})
        assert (result.status, result.exit_code, result.passed) == (expected, code, code == 0)


def test_what_is_undefined_or_has_too_few_rows_never_passes():
    with pytest.warns(uq.UQWarning, match="undefined"):
        alone = uq.evaluate(score=[0.1, 0.4, 0.2], error=[0, 0, 0], metrics=["uq_auc", "accuracy"])
    for rule in ({"at_least": 0.0}, {"at_least": 0.0, "on": "value"}, {"at_most": 1.0, "on": "low"}):
        assert status(alone, {"metric": "uq_auc", **rule}) == UNCLEAR
    assert status(alone, {"metric": "accuracy", "at_least": 0.0, "min_rows": 4}) == UNCLEAR
    assert status(alone, {"metric": "accuracy", "at_least": 0.0, "min_rows": 3}) == PASS
    for end in ("low", "value", "high"):
        numbers = {"value": 0.5, "low": 0.4, "high": 0.6} | {end: math.nan}
        assert decide(Rule(metric="uq_auc", at_least=0.1, on=end), Number(**numbers, n=9), 0.95, 1)[0] == UNCLEAR


def test_all_groups_must_pass_and_one_that_was_left_out_cannot_be_told(example):
    names = np.array(["north", "south", "west"])[np.arange(example.n) % 3]
    fields = {"probs": example.probs}
    pred = uq.Predictions(example.labels, **fields, groups=names)
    ev = uq.evaluate(pred, scores=["entropy"], metrics=["uq_auc"])
    lows = {group: ev["entropy", "uq_auc", group].low for group in ev.groups}
    worst = min(lows, key=lambda group: ev["entropy", "uq_auc", group].value)
    rule = {"metric": "uq_auc", "group": "worst"}
    result = judge(ev, {"rule": [{**rule, "at_least": min(lows.values())}]})
    assert (result.status, result.tests, result.verdicts[0].group) == (PASS, 3, worst)
    assert status(ev, {**rule, "at_least": min(lows.values()) + 1e-6}) == UNCLEAR
    assert status(ev, {"metric": "uq_auc", "group": "west", "at_least": lows["west"]}) == PASS
    names[0] = "alone"
    with pytest.warns(uq.UQWarning, match="left out"):
        ev = uq.evaluate(uq.Predictions(example.labels, **fields, groups=names), scores=["entropy"], metrics=["uq_auc"])
    assert judge(ev, {"rule": [{**rule, "at_least": 0.0}]}).verdicts[0].group == "alone"
    assert status(ev, {**rule, "at_least": 0.0}) == UNCLEAR


def test_the_chance_of_a_false_fail_is_shared_by_all_rules_and_groups():
    assert [fail_level(0.95, tests) for tests in (1, 2, 10)] == [0.95, 0.95, pytest.approx(0.99)]
    number, rule = Number(0.7, 0.6, 0.8, 100), Rule(metric="uq_auc", at_least=0.81)
    assert decide(rule, number, 0.95, 1)[0] == FAIL
    assert decide(rule, number, 0.95, 50)[0] == UNCLEAR


def test_identical_inputs_pass_any_margin(example):
    ev = uq.evaluate(example, scores=["entropy"])
    rules = [{"metric": name, "margin": 0.0} for name in ev.metrics]
    again = example.take(np.arange(example.n))
    result = judge(ev, {"rule": rules}, baseline=again)
    assert (result.status, result.baseline) == (PASS, "the same rows and predictions")
    assert {(v.value, v.low, v.high) for v in result.verdicts} == {(0.0, 0.0, 0.0)}


def without_groups(example, probs):
    return uq.Predictions(example.labels, probs=probs)


def test_a_margin_on_the_same_rows_is_judged_on_the_paired_difference(example):
    new, old = (without_groups(example, probs) for probs in (example.probs, example.members[0]))
    ev = uq.evaluate(new, scores=["entropy"], metrics=["uq_auc", "accuracy", "aurc"])
    for metric, sign in (("uq_auc", 1), ("accuracy", 1), ("aurc", -1)):
        pair = uq.compare({"new": new, "old": old}, scores=["entropy"], metric=metric)["new", "old"]
        end = pair.low if sign > 0 else pair.high
        (verdict,) = judge(ev, {"rule": [{"metric": metric, "margin": 0.5}]}, baseline=old).verdicts
        assert (verdict.value, verdict.low, verdict.high) == (pair.difference, pair.low, pair.high)
        enough = max(0.0, -sign * end)
        assert status(ev, {"metric": metric, "margin": enough}, baseline=old) == PASS
        if enough > 1e-6:
            assert status(ev, {"metric": metric, "margin": enough - 1e-6}, baseline=old) == UNCLEAR


def test_a_margin_is_judged_on_what_was_evaluated_rows_of_no_weight_and_a_loss_included():
    rng = np.random.default_rng(0)
    n = 200
    error, weights = rng.integers(0, 2, n), np.where(np.arange(n) % 5 == 0, 0.0, 1.0)
    given = {"error": error, "loss": np.clip(error + rng.normal(0, 0.2, n), 0, 1), "weights": weights}
    new, old = (uq.Predictions(scores={"s": error + rng.normal(0, 1, n)}, **given) for _ in range(2))
    ev = uq.evaluate(new, metrics=["aurc"], risk="loss")
    before = uq.evaluate(old, metrics=["aurc"], risk="loss")
    (verdict,) = judge(ev, {"rule": [{"metric": "aurc", "margin": 0.5}]}, baseline=old).verdicts
    assert verdict.value == pytest.approx(ev["s", "aurc"].value - before["s", "aurc"].value, abs=1e-12)


def test_a_stored_baseline_is_an_independent_sample_with_a_longer_interval(example):
    half = np.arange(example.n) % 2 == 0
    new, old = (without_groups(example, example.probs).take(rows) for rows in (half, ~half))
    ev, before = (uq.evaluate(pred, scores=["entropy"], metrics=["uq_auc"]) for pred in (new, old))
    result = judge(
        ev, {"rule": [{"metric": "uq_auc", "margin": 0.2}]}, baseline=uq.Evaluation.from_json(before.to_json())
    )
    (verdict,) = result.verdicts
    a, b = ev["entropy", "uq_auc"], before["entropy", "uq_auc"]
    assert result.baseline == "unpaired"
    assert verdict.value == a.value - b.value
    assert verdict.high - verdict.low > max(a.high - a.low, b.high - b.low)


def test_certified_coverage_is_that_of_choose_threshold(example):
    ev = uq.evaluate(example, scores=["entropy"], metrics=["accuracy"])
    chosen = uq.choose_threshold("entropy", predictions=ev.source.pred, max_risk=0.05)
    low = chosen.coverage_interval[0]
    rule = {"score": "entropy", "coverage_at_risk": 0.05}
    assert status(ev, {**rule, "at_least": low}) == PASS
    assert status(ev, {**rule, "at_least": low + 1e-6}) == UNCLEAR
    assert status(ev, {**rule, "at_least": 0.9, "coverage_at_risk": 0.001}) == FAIL
    assert status(ev, {**rule, "at_least": 0.5, "min_rows": 10**6}) == UNCLEAR


def test_what_cannot_be_judged_is_said(ev, example):
    stored = uq.Evaluation.from_json(ev.to_json())
    rule = {"metric": "uq_auc", "at_least": 0.5}
    both = uq.evaluate(example, scores=["entropy", "mutual_information"], metrics=["uq_auc"])
    for found, rules, how, text in (
        (ev, [{"metric": "uq_auc", "margin": 0.1}], {}, "needs a baseline"),
        (stored, [{"coverage_at_risk": 0.1, "at_least": 0.5}], {}, "needs the rows"),
        (stored, [{"metric": "uq_auc", "margin": 0.1}], {"baseline": example}, "needs the rows"),
        (both, [rule], {}, "names no score, and there are several"),
        (replace(ev, level=0.9), [rule], {}, "0.9 intervals but the policy asks for 0.95"),
        (example, [rule], {}, "Pass what uqeval.evaluate returns"),
        (ev, [{"metric": "uq_auc", "margin": 0.1}], {"baseline": "old.csv"}, "`baseline` is a str. Pass Predictions"),
        (ev, [{**rule, "metric": "ece", "at_least": 0.1}], {}, "There is no estimate"),
    ):
        with pytest.raises(uq.InputError, match=text):
            judge(found, {"rule": rules}, **how)
