"""Thresholds and groups: one that holds in every group is one that each group certifies; the table counts rows."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import uqeval as uq
from uqeval import InputError, UQWarning, choose_threshold
from uqeval.decide.bounds import binomial_p

NAMES = np.array(["north", "south", "west"])


def rows(seed=0, n=3000, risks=(0.05, 0.1, 0.02), shares=(0.6, 0.3, 0.1)):
    rng = np.random.default_rng(seed)
    code = rng.choice(3, n, p=shares)
    score = np.round(rng.random(n), 3)  # with ties
    error = (rng.random(n) < 2 * np.array(risks)[code] * score).astype(int)
    return score, error, NAMES[code]


def test_a_candidate_is_certified_where_every_group_certifies_it_at_the_whole_level():
    score, error, group = rows()
    found = []
    for value in np.linspace(0.1, 1, 10):
        each = choose_threshold(score, error, 0.05, thresholds=[value], groups=group, each=True, method="holm")
        p = [
            binomial_p(
                error[(group == name) & (score <= value)].sum(), ((group == name) & (score <= value)).sum(), 0.05
            )
            for name in NAMES
        ]
        assert each.feasible == (max(p) <= 0.05)
        found.append(each.feasible)
    assert 0 < sum(found) < 10


def test_with_one_group_each_is_the_fallback_of_all_rows():
    score, error, _ = rows()
    one = choose_threshold(score, error, 0.05, groups=np.zeros(3000), each=True)
    assert one.value == choose_threshold(score, error, 0.05, method="fallback").value
    assert one.feasible


def test_groups_alone_change_nothing_of_the_choice():
    score, error, group = rows()
    one, other = choose_threshold(score, error, 0.05), choose_threshold(score, error, 0.05, groups=group)
    assert (one.value, one.promise, one.data_hash) == (other.value, other.promise, other.data_hash)
    assert one.groups == () == one.frame_rows()[0].get("groups", ())


def test_the_table_counts_the_rows_errors_and_clusters_of_each_group():
    score, error, group = rows()
    patient = np.char.add(group, (np.arange(3000) // 4 % 100).astype(str))
    t = choose_threshold(score, error, 0.1, groups=group, clusters=patient)
    assert [g.group for g in t.groups] == ["north", "south", "west"]
    for g in t.groups:
        own = group == g.group
        inside = own & (score <= t.value)
        assert (g.n, g.n_accepted, g.errors_accepted) == (own.sum(), inside.sum(), error[inside].sum())
        assert g.n_clusters == len(np.unique(patient[own]))
        assert g.coverage.value == pytest.approx(inside.sum() / own.sum())
        assert g.risk.value == pytest.approx(error[inside].mean())
    assert sum(g.errors_accepted for g in t.groups) == t.errors_accepted
    table = t.group_table()
    assert "clusters" in table.head
    assert "not for each group" in table.caption
    assert "not for each group" in str(t)


def test_a_group_far_above_the_promise_is_said_to_be_above_and_others_not():
    rng = np.random.default_rng(0)
    group = np.repeat(["calm", "wild"], [5000, 300])
    error = rng.random(5300) < np.where(group == "wild", 0.3, 0.01)
    t = choose_threshold(rng.random(5300), error, 0.05, groups=group)
    assert {g.group: g.verdict for g in t.groups} == {"calm": "below", "wild": "above"}
    each = choose_threshold(rng.random(5300), error, 0.05, groups=group, each=True)
    assert not each.feasible


def test_held_out_rows_tell_of_the_groups_where_there_are_some():
    score, error, group = rows()
    t = choose_threshold(score, error, 0.1, groups=group, split=0.5)
    assert sum(g.n for g in t.groups) == t.holdout.n == 1500
    assert sum(g.errors_accepted for g in t.groups) == t.holdout.errors_accepted
    assert "did not choose" in t.group_table().caption


def test_the_promise_in_each_group_says_so_and_survives_json():
    score, error, group = rows()
    t = choose_threshold(score, error, 0.1, groups=group, each=True)
    assert "in each of 3 groups at most 10% of the accepted inputs are wrong" in t.promise
    assert "inside each group, whatever its share" in t.promise
    assert uq.Threshold.from_json(t.to_json()) == t
    data = json.loads(t.to_json())
    assert (data["each"], data["groups"][1]["group"]) == (True, "south")
    for name in ("each", "groups"):  # of a file that an earlier version wrote
        del data[name]
    assert uq.Threshold.from_json(json.dumps(data)).groups == ()


def test_too_small_groups_are_named_and_nothing_is_accepted():
    score, error, group = rows(shares=(0.7, 0.29, 0.01))
    with pytest.warns(UQWarning, match=r"Too small .*: west \(\d+ rows\)\. Label more"):
        t = choose_threshold(score, error, 0.05, groups=group, each=True)
    assert not t.feasible
    assert t.rows_needed > 3000
    assert t.group_table() is None
    error[group == "west"] = 1  # so few say nothing of what more rows there would be like
    with pytest.warns(UQWarning, match=r"Too small .*: west \(\d+ rows\)\. Label more"):
        t = choose_threshold(score, error, 0.05, groups=group, each=True)
    assert "No part has so low an observed risk in every group; more rows like these would not help." in t.statement()


def test_rows_that_are_left_out_leave_their_groups():
    score, error, group = rows()
    clean = choose_threshold(score[10:], error[10:], 0.1, groups=group[10:], each=True)
    dirty, wrong = score.copy(), error.astype(float)
    dirty[:5], wrong[5:10] = math.nan, math.nan
    with pytest.warns(UQWarning, match="10 rows with NaN"):
        found = choose_threshold(dirty, wrong, 0.1, groups=group, each=True, nan="omit")
    assert (found.value, found.groups) == (clean.value, clean.groups)
    weights = np.where(np.arange(3000) < 10, 0.0, 1.0)
    assert choose_threshold(score, error, 0.1, groups=group, each=True, weights=weights).groups == clean.groups


def test_every_kind_of_row_and_method_certifies_in_each_group_no_more_than_in_the_worst_alone():
    score, error, group = rows(n=4000, risks=(0.02, 0.06, 0.01), shares=(0.5, 0.3, 0.2))
    grid = np.linspace(0.1, 1, 10)
    cases = [{"method": m} for m in ("step-down", "fst", "sgr", "bonferroni", "holm", "rcps")]
    cases += [{"clusters": np.arange(4000) // 2, "cluster_method": m} for m in ("t", "exact", "subsample")]
    cases += [{"weights": np.where(np.arange(4000) % 2, 1.0, 2.0)}]
    accepted = []
    for case in cases:
        both = choose_threshold(score, error, 0.1, thresholds=grid, groups=group, each=True, **case)
        accepted.append(both.feasible)
        assert both.value <= 1
        if both.feasible:
            assert all(g.risk.value <= 0.1 for g in both.groups)
    assert sum(accepted) >= 8


def test_groups_come_from_predictions():
    pred = uq.datasets.example()
    group = NAMES[np.arange(pred.n) % 3]
    given = choose_threshold("entropy", predictions=pred, max_risk=0.05, groups=group, each=True)
    with_groups = uq.Predictions(pred.labels, probs=pred.probs, groups=group)
    assert choose_threshold("entropy", predictions=with_groups, max_risk=0.05, each=True).groups == given.groups
    assert given.feasible


def test_each_without_groups_or_on_average_is_refused():
    score, error, group = rows()
    with pytest.raises(InputError, match="`each` is about groups, and there are none"):
        choose_threshold(score, error, 0.05, each=True)
    with pytest.raises(InputError, match='"crc" holds on average'):
        choose_threshold(score, error, 0.05, groups=group, each=True, method="crc")
    with pytest.raises(InputError, match="groups"):
        choose_threshold(score, error, 0.05, groups=group[:-1])
