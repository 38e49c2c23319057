"""`Threshold.promise`: what holds, how surely, under which assumption; in the statement and in the file too."""

from __future__ import annotations

import json

import numpy as np

from uqeval import Threshold, choose_threshold

RNG = np.random.default_rng(0)
SCORE = RNG.random(3000)
ERROR = (RNG.random(3000) < 0.2 * SCORE**2).astype(int)
GROUPS = np.arange(3000) // 3
WEIGHTS = np.where(SCORE > 0.5, 1.0, 2.0)


def test_the_promise_says_what_holds_and_under_which_assumption():
    wrong = "at most 10% of the accepted inputs are wrong"
    alike = "each independently of the others"
    for options, parts in [
        ({}, (f"With 90% confidence, {wrong}. This holds if inputs to come are drawn as these rows were, {alike}.",)),
        (
            {"method": "fst"},
            (f"With 90% confidence, {wrong}.", f"inputs to come are drawn as these rows were, {alike}."),
        ),
        (
            {"clusters": GROUPS},
            (f"With 90% confidence (asymptotic), {wrong}.", "and no cluster has more than 3 rows (the largest here)."),
        ),
        ({"clusters": GROUPS, "largest_cluster": 12}, ("and no cluster has more than 12 rows (as declared).",)),
        (
            {"clusters": GROUPS, "cluster_method": "exact"},
            (f"With 90% confidence, {wrong}.", "no cluster has more than 3 rows (the largest here)."),
        ),
        (
            {"clusters": GROUPS, "cluster_method": "subsample"},
            (
                "With 90% confidence, at most 10% of the accepted inputs (one from each cluster) are wrong.",
                f"This holds if clusters to come are drawn as these were, {alike}.",
            ),
        ),
        (
            {"weights": WEIGHTS},
            (
                "With 90% confidence, at most 10% of the accepted inputs, counted by weight, are wrong.",
                "were set before the errors were known",
                "no row can weigh more than 2 (the largest here).",
            ),
        ),
        ({"weights": WEIGHTS, "largest_weight": 3}, ("no row can weigh more than 3 (as declared).",)),
        (
            {"weights": WEIGHTS, "clusters": GROUPS, "cluster_method": "exact"},
            ("no cluster can weigh more than 6 (the largest here).",),
        ),
        (
            {"method": "rcps", "weights": WEIGHTS, "risk": "loss"},
            ("the mean loss of the accepted inputs, counted by weight, spread over all, is at most 0.1.",),
        ),
        (
            {"weights": WEIGHTS, "risk": "loss"},
            ("the mean loss of the accepted inputs, counted by weight, is at most 0.1.",),
        ),
        ({"method": "rcps", "risk": "loss"}, ("mean loss of the accepted inputs, spread over all, is at most 0.1.",)),
        ({"method": "rcps"}, ("With 90% confidence, at most 10% of all inputs are accepted and wrong.",)),
        ({"method": "crc"}, ("On average over calibration sets, at most 10% of all inputs are accepted and wrong.",)),
        (
            {"method": "crc", "clusters": GROUPS},
            ("On average over calibration sets, at most 10% of all inputs (one from each cluster) are accepted",),
        ),
    ]:
        t = choose_threshold(SCORE, ERROR, 0.1, 0.9, **options)
        assert t.feasible, options
        for part in parts:
            assert part in t.promise, (part, t.promise)
        assert t.statement().endswith(t.promise)
        assert json.loads(t.to_json())["promise"] == t.promise
        assert Threshold.from_json(t.to_json()).promise == t.promise


def test_a_threshold_that_accepts_nothing_promises_nothing():
    t = choose_threshold(SCORE, ERROR, 0.0001)
    assert t.promise == "Nothing is promised: no input is accepted."
    assert json.loads(t.to_json())["promise"] == t.promise


def test_a_promise_by_hand_names_no_confidence():
    t = Threshold.from_value(0.5, max_risk=0.1)
    assert t.promise == "It was promised that at most 10% of the accepted inputs are wrong."


def without_new_fields(t):
    data = json.loads(t.to_json())
    for name in ("promise", "largest_weight", "declared"):
        del data[name]
    return json.dumps(data)


def test_files_of_the_first_version_are_still_read():
    for options in ({}, {"clusters": GROUPS, "cluster_method": "subsample"}, {"method": "crc"}):
        t = choose_threshold(SCORE, ERROR, 0.1, 0.9, **options)
        assert Threshold.from_json(without_new_fields(t)) == t


def test_a_file_of_the_first_version_with_clusters_warns_of_its_test():
    t = choose_threshold(SCORE, ERROR, 0.1, 0.9, clusters=GROUPS)
    old = Threshold.from_json(without_new_fields(t))
    assert old.value == t.value
    assert "earlier version" in old.warnings[-1]
    assert "Choose it again" in str(old)
    assert Threshold.from_json(old.to_json()) == old  # and does not warn twice
