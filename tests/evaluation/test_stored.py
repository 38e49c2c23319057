"""Evaluations and comparisons from their JSON, and what can be compared when no rows are left."""

import json

import numpy as np
import pytest

import uqeval as uq
from uqeval.evaluation.unpaired import difference
from uqeval.inference.result import Estimate


@pytest.fixture(scope="module")
def example():
    return uq.datasets.example()


def test_an_evaluation_comes_back_as_it_was_groups_and_notes_included(example):
    for how in ({}, {"metrics": ["uq_auc"], "scores": ["entropy"], "level": 0.9}):
        ev = uq.evaluate(example, **how)
        back = uq.Evaluation.from_json(ev.to_json())
        assert back == ev
        assert back.to_json() == ev.to_json()
        assert str(back) == str(ev)


def test_a_value_that_is_not_there_and_one_that_is_infinite_come_back():
    with pytest.warns(uq.UQWarning):
        ev = uq.evaluate(uq.Predictions([0, 0, 0], probs=[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
    back = uq.Evaluation.from_json(ev.to_json())
    assert back.to_json() == ev.to_json()
    assert back["log_loss"].value == ev["log_loss"].value == float("inf")


def test_the_versions_of_a_stored_result_stay_those_that_made_it(example):
    ev = uq.evaluate(example, scores=["entropy"], metrics=["uq_auc"])
    data = json.loads(ev.to_json()) | {"provenance": {"files": []}}
    data["versions"]["uqeval"] = "0.0.9"
    back = uq.Evaluation.from_json(json.dumps(data))
    assert back.to_dict()["versions"]["uqeval"] == "0.0.9"
    assert back.provenance == {"files": []}
    assert uq.Evaluation.from_json(json.dumps(data | {"versions": {}})).to_dict()["versions"] == {}


def test_a_comparison_comes_back_as_it_was(example, few_draws):
    for how in ({}, {"baseline": "entropy"}, {"method": "permutation", "resamples": 20}):
        cmp = uq.compare(example, scores=["entropy", "vote_entropy", "mutual_information"], **how)
        back = uq.Comparison.from_json(cmp.to_json())
        assert back == cmp
        assert back.to_json() == cmp.to_json()
        assert str(back) == str(cmp)


def test_what_needs_the_rows_is_refused_in_a_sentence(example):
    back = uq.Evaluation.from_json(uq.evaluate(example, scores=["entropy"]).to_json())
    for use in (uq.plot.risk_coverage, uq.plot.score_histogram):
        with pytest.raises(uq.InputError, match="rows"):
            use(back)


def test_other_json_is_refused_in_a_sentence(example, tmp_path):
    ev = uq.evaluate(example, scores=["entropy"], metrics=["uq_auc"])
    data = json.loads(ev.to_json())
    del data["level"]
    renamed = json.loads(ev.to_json())
    renamed["estimates"][0]["metric"] = "uq_acu"
    for text, said in (
        ("{", "broken JSON"),
        (json.dumps({**data, "schema_version": 2}), "schema_version 2"),
        (json.dumps(data), "it lacks 'level'"),
        (json.dumps(renamed), "'uq_acu' is not known"),
        (json.dumps(json.loads(ev.to_json()) | {"estimates": 3}), "'estimates' is 3"),
        (json.dumps(json.loads(ev.to_json()) | {"same_ranking": [[]]}), "'same_ranking' has an empty group"),
        (tmp_path / "none.json", "cannot be read"),
    ):
        with pytest.raises(uq.InputError, match=said):
            uq.Evaluation.from_json(text)


def test_the_unpaired_interval_is_that_of_newcombe_where_both_are_shares():
    # Newcombe 1998, Statistics in Medicine 17:873, method 10, 56/70 against 48/80: 0.0524 to 0.3339.
    a = Estimate(56 / 70, 0.6918, 0.8773, 0.05, 0.95, "Wilson", 10**9)  # Wilson's limits of each share
    b = Estimate(48 / 80, 0.4905, 0.7005, 0.05, 0.95, "Wilson", 10**9)
    found = difference(a, b)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=2e-3), pytest.approx(0.3339, abs=2e-3))


def test_the_p_value_is_below_one_minus_level_where_zero_is_outside():
    b = Estimate(0.6, 0.5, 0.68, 0.05, 0.95, "t", 500)
    for value in np.linspace(0.6, 0.9, 61).tolist():
        found = difference(Estimate(value, value - 0.06, value + 0.04, 0.03, 0.95, "t", 500), b)
        assert (found.p < 0.05) == (found.low > 0), value
        back = difference(b, Estimate(value, value - 0.06, value + 0.04, 0.03, 0.95, "t", 500))
        assert (back.low, back.high, back.p) == (-found.high, -found.low, pytest.approx(found.p))


def test_stored_evaluations_of_other_rows_compare_score_by_score(example):
    half = np.arange(example.n) % 2 == 0
    scores = ["entropy", "vote_entropy"]
    evs = {
        name: uq.evaluate(example.take(rows), scores=scores, metrics=["uq_auc"])
        for name, rows in (("new", half), ("old", ~half))
    }
    with pytest.warns(uq.UQWarning, match="unpaired"):
        cmp = uq.compare(evs)
    pair = cmp["new", "old"]
    assert cmp.method == "unpaired"
    assert pair.difference == evs["new"]["entropy", "uq_auc"].value - evs["old"]["entropy", "uq_auc"].value
    assert "independent test sets (unpaired)" in cmp.headline()
    with pytest.warns(uq.UQWarning, match="unpaired"):
        both = uq.compare(evs, scores=scores, metric="uq_auc")
    assert [(row.a, row.b) for row in both if row.group is None] == [
        ("new / entropy", "old / entropy"),
        ("new / vote_entropy", "old / vote_entropy"),
    ]
    first = both["new / entropy", "old / entropy"]
    assert first.low < pair.low  # two at once
    assert first.p_adjusted >= first.p
    assert uq.Comparison.from_json(both.to_json()) == both


def test_unpaired_comparisons_refuse_what_they_cannot_answer(example):
    ev = uq.evaluate(example, scores=["entropy"], metrics=["uq_auc"])
    same = json.loads(ev.to_json()) | {"provenance": {"files": [{"path": "a", "bytes": 1, "sha256": "ab"}]}}
    labels = json.loads(ev.to_json()) | {"provenance": {"files": [], "labels_sha256": "cd"}}
    for given, how, text in (
        ({"a": same, "b": same}, {}, "the same files"),
        ({"a": labels, "b": labels}, {}, "the same labels"),
        ({"a": same}, {}, "at least two"),
        ({"a": same, "b": labels}, {"level": 0.9}, "95% intervals, but 90% are asked for"),
        ({"a": same, "b": labels}, {"method": "bootstrap"}, "no rows"),
        ({"a": same, "b": labels}, {"scores": "margin"}, "Not all evaluations"),
        ({"a": same, "b": labels}, {"metric": "aurc"}, "There is no estimate"),
    ):
        evs = {name: uq.Evaluation.from_json(json.dumps(data)) for name, data in given.items()}
        with pytest.raises(uq.InputError, match=text):
            uq.compare(evs, **how)
