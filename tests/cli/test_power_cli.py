"""`uqeval power`: rows for a goal, or what rows can show; from numbers alone or from a pilot file."""

from __future__ import annotations

import json
import warnings
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import commands
import uqeval as uq
from cases import each
from uqeval import UQWarning

N = 400
KNOWN = ("--auc", 0.8, "--accuracy", 0.9)


call, fail = partial(commands.call, "power"), partial(commands.fail, "power")


def succeed(*args):
    """What is printed, line breaks of the terminal taken out."""
    return " ".join(commands.succeed("power", *args).split())


def data(*args):
    return json.loads(succeed(*args, "--json", "-"), parse_constant=pytest.fail)


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def write(path, table):
    pa.csv.write_csv(pa.table({name: np.asarray(column).tolist() for name, column in table.items()}), path)
    return path


@pytest.fixture
def pilot(tmp_path):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(N, 3))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    label = [rng.choice(3, p=row) for row in probs]
    table = {"label": label, **{f"prob_{k}": probs[:, k] for k in range(3)}, "score_mine": rng.random(N)}
    return write(tmp_path / "pilot.csv", {**table, "patient": np.arange(N) // 4})


# ---- numbers alone --------------------------------------------------------------------------------------------------


@each(("accuracy", "rows"), [(0.6, 302), (0.9, 806), (0.99, 7319)])
def test_rows_for_an_interval_are_those_of_the_theory(accuracy, rows):
    found = data("--auc", 0.8, "--accuracy", accuracy, "--half-width", 0.05)
    assert found["n"] == pytest.approx(rows, rel=0.003)
    assert found["errors"] == round(found["n"] * (1 - accuracy))
    assert found["power"] is None


@each(
    ("accuracy", "correlation", "rows"),
    [(0.6, 0.5, 3855), (0.9, 0.5, 10280), (0.99, 0.5, 93455), (0.6, 0.9, 771), (0.9, 0.9, 2056), (0.99, 0.9, 18691)],
)
def test_rows_for_a_difference_are_those_of_the_theory(accuracy, correlation, rows):
    asked = ("--auc", 0.8, "--accuracy", accuracy, "--difference", 0.02, "--correlation", correlation)
    assert data(*asked)["n"] == pytest.approx(rows, rel=0.003)


def test_the_example_of_the_help_runs():
    out = succeed(*KNOWN, "--difference", 0.02, "--correlation", 0.9)
    assert "2,056 rows, about 206 of them wrong: 80% power to detect a difference of 0.020 at level 0.95" in out


def test_the_auc_of_both_scores_says_what_the_difference_is():
    found = data("--auc", "0.9,0.8", "--accuracy", 0.9)
    assert found["n"] == uq.sample_size(auc=(0.9, 0.8), accuracy=0.9).n
    assert data("--auc", "0.9,0.8", "--accuracy", 0.9, "--difference", 0.1) == found
    rows = data("--auc", "0.9,0.8", "--accuracy", 0.9, "--rows", 400)
    assert rows["detectable_difference"] == uq.detectable_difference(400, auc=(0.9, 0.8), accuracy=0.9)
    assert "--auc must be a number, or two by comma" in fail("--auc", "0.9;0.8", "--accuracy", 0.9)
    assert "for a difference" in fail("--auc", "0.9,0.8", "--accuracy", 0.9, "--half-width", 0.1)


def test_rows_turn_the_question_round():
    needed = data(*KNOWN, "--difference", 0.02)["n"]
    found = data(*KNOWN, "--rows", needed)
    assert found.keys() >= {"rows", "detectable_difference", "power", "level"}
    assert found["detectable_difference"] == pytest.approx(0.02, rel=1e-3)
    assert f"{needed:,} rows can show a difference of 0.0200 or more (80% power" in succeed(*KNOWN, "--rows", needed)


def test_power_and_level_are_used():
    base = data(*KNOWN, "--difference", 0.02)["n"]
    assert data(*KNOWN, "--difference", 0.02, "--power", 0.9)["n"] > base
    assert data(*KNOWN, "--difference", 0.02, "--level", 0.99)["n"] > base
    assert data(*KNOWN, "--rows", 1000, "--power", 0.9)["power"] == 0.9


def test_few_expected_errors_are_said():
    out = succeed("--auc", 0.8, "--accuracy", 0.999, "--half-width", 0.3)
    assert "! only 2 errors expected" in out


# ---- a pilot file -------------------------------------------------------------------------------------------------


def test_a_pilot_alone_tells_what_its_rows_can_show(pilot):
    estimate = quiet(uq.evaluate, pilot, scores=["entropy"], metrics=["uq_auc"])["entropy", "uq_auc"]
    found = data(pilot)
    assert found["rows"] == N
    assert found["detectable_difference"] == pytest.approx(uq.detectable_difference(N, pilot=estimate))


def test_a_pilot_gives_the_rows_for_an_interval(pilot):
    for metric in ("uq_auc", "uq_c_index", "aurc", "accuracy"):
        estimate = quiet(uq.evaluate, pilot, scores=["mine"], metrics=[metric])["mine", metric]
        found = data(pilot, "--score", "mine", "--metric", metric, "--half-width", 0.03)
        assert found["n"] == quiet(uq.sample_size, half_width=0.03, pilot=estimate).n


def test_a_pilot_of_two_scores_gives_the_spread_of_their_difference(pilot):
    sd = quiet(uq.compare, pilot, scores=["entropy", "mine"]).sd("entropy", "mine")
    found = data(pilot, "--score", "entropy", "--versus", "mine", "--difference", 0.02)
    assert found["sd"] == pytest.approx(sd)
    assert found["n"] == uq.sample_size(difference=0.02, sd=sd).n
    shown = data(pilot, "--versus", "mine", "--rows", 1000)
    assert shown["detectable_difference"] == pytest.approx(uq.detectable_difference(1000, sd=sd))
    assert data(pilot, "--versus", "mine")["rows"] == N


def test_a_pilot_of_two_scores_tells_the_errors_to_expect(pilot):
    rate = 1 - quiet(uq.evaluate, pilot, scores=["entropy"], metrics=["uq_auc"]).accuracy
    found = data(pilot, "--versus", "mine", "--difference", 0.02)
    assert found["errors"] == pytest.approx(found["n"] * rate, abs=1)
    assert "of them wrong" in succeed(pilot, "--versus", "mine", "--difference", 0.02)


def test_the_order_of_the_two_scores_does_not_matter(pilot):
    a = data(pilot, "--score", "entropy", "--versus", "mine", "--difference", 0.02)
    b = data(pilot, "--score", "mine", "--versus", "entropy", "--difference", 0.02)
    assert a == pytest.approx(b)


def test_clusters_of_the_pilot_count(pilot):
    plain = data(pilot, "--versus", "mine", "--difference", 0.02)["n"]
    assert data(pilot, "--versus", "mine", "--difference", 0.02, "--cluster", "patient")["n"] != plain


def test_a_pilot_with_scores_of_its_own_only(tmp_path):
    rng = np.random.default_rng(0)
    error = (rng.random(200) < 0.3).astype(int)
    path = write(tmp_path / "own.csv", {"error": error, "score_a": error + rng.normal(size=200), "score_b": error})
    assert data(path, "--score", "a", "--half-width", 0.05)["n"] > 100
    assert 'score "entropy"' in fail(path, "--half-width", 0.05)


# ---- output -------------------------------------------------------------------------------------------------------


def test_json_can_go_to_a_file_beside_the_text(tmp_path):
    target = tmp_path / "power.json"
    assert "806 rows" in succeed(*KNOWN, "--half-width", 0.05, "--json", target)
    assert json.loads(target.read_text())["n"] == 806
    assert "--json: there is no folder" in fail(*KNOWN, "--half-width", 0.05, "--json", tmp_path / "no" / "x.json")


def test_help_shows_examples_and_all_forms():
    out = succeed("--help").replace("│", " ")
    assert "Example: uqeval power --auc 0.8 --accuracy 0.9 --difference 0.02" in out
    assert "Example: uqeval power pilot.csv --score entropy --versus margin" in out
    for option in ("--half-width", "--difference", "--rows", "--auc", "--correlation", "--power", "--versus", "--json"):
        assert option in out


# ---- bad input ----------------------------------------------------------------------------------------------------


@each(
    ("args", "text"),
    [
        ([], "--auc and --accuracy"),
        (["--rows", 100], "--auc and --accuracy"),
        (["--auc", 0.8, "--half-width", 0.05], "--accuracy"),
        (["--accuracy", 0.8, "--half-width", 0.05], "--auc"),
        ([*KNOWN], "--half-width, --difference"),
        ([*KNOWN, "--half-width", 0.05, "--difference", 0.02], "--half-width, --difference"),
        ([*KNOWN, "--rows", 100, "--difference", 0.02], "--rows"),
        ([*KNOWN, "--rows", 100, "--half-width", 0.02], "--rows"),
        ([*KNOWN, "--half-width", 0.05, "--metric", "aurc"], "--metric"),
        ([*KNOWN, "--half-width", 0.05, "--versus", "mine"], "--versus"),
        ([*KNOWN, "--half-width", 0.05, "--cluster", "patient"], "--cluster"),
        ([*KNOWN, "--rows", 1], "rows"),
        ([*KNOWN, "--rows", -5], "rows"),
        ([*KNOWN, "--half-width", 0], "half_width"),
        ([*KNOWN, "--half-width", "nan"], "half_width"),
        ([*KNOWN, "--half-width", "inf"], "half_width"),
        ([*KNOWN, "--difference", -0.02], "difference"),
        ([*KNOWN, "--difference", 0.02, "--power", 80], "power"),
        ([*KNOWN, "--difference", 0.02, "--power", 1], "power"),
        ([*KNOWN, "--difference", 0.02, "--level", 95], "0.95"),
        ([*KNOWN, "--difference", 0.02, "--correlation", 2], "correlation"),
        ([*KNOWN, "--difference", 0.02, "--correlation", 1], "correlation"),
        ([*KNOWN, "--rows", 100, "--correlation", 1], "correlation"),
        ([*KNOWN, "--difference", 0.02, "--correlation", "nan"], "correlation"),
        (["--auc", 80, "--accuracy", 0.9, "--difference", 0.02], "auc"),
        (["--auc", 1, "--accuracy", 0.9, "--difference", 0.02], "auc"),
        (["--auc", 0.8, "--accuracy", 1, "--difference", 0.02], "accuracy"),
    ],
    ids=lambda value: "_".join(map(str, value)) or "nothing" if isinstance(value, list) else None,
)
def test_bad_numbers_are_one_message(args, text):
    assert text in fail(*args)


@each(
    ("args", "text"),
    [
        (["--auc", 0.8], "not both"),
        (["--accuracy", 0.8, "--half-width", 0.05], "not both"),
        (["--half-width", 0.05, "--difference", 0.02], "--half-width, --difference"),
        (["--rows", 100, "--difference", 0.02], "--rows"),
        (["--metric", "uqauc"], 'Did you mean "uq_auc"'),
        (["--metric", "ood_auroc"], "score_in"),
        (["--score", "entrop"], 'Did you mean "entropy"'),
        (["--versus", "margn"], 'Did you mean "margin"'),
        (["--versus", "entropy"], "Only one candidate"),
        (["--metric", "accuracy", "--versus", "margin"], "same for all scores"),
        (["--cluster", "nope"], "nope"),
        (["--rows", 0], "rows"),
    ],
    ids=lambda value: "_".join(map(str, value)) if isinstance(value, list) else None,
)
def test_bad_options_beside_a_pilot_are_one_message(pilot, args, text):
    assert text in fail(pilot, *args)


def test_scores_of_the_same_order_have_no_difference_to_detect(tmp_path):
    rng = np.random.default_rng(0)
    s = rng.random(50)
    table = {"error": s + rng.random(50) > 1, "score_a": s, "score_b": s**3}
    path = write(tmp_path / "alike.csv", table)
    assert "rank all rows alike" in fail(path, "--score", "a", "--versus", "b", "--difference", 0.02)


def test_a_pilot_too_small_for_a_standard_error_says_so(tmp_path):
    rng = np.random.default_rng(0)
    table = {"error": np.arange(50) == 7, "score_a": rng.random(50), "score_b": rng.random(50)}
    path = write(tmp_path / "small.csv", table)
    assert "larger pilot" in fail(path, "--score", "a", "--versus", "b", "--difference", 0.02)
    assert "larger pilot" in fail(path, "--score", "a", "--half-width", 0.02)


def test_a_missing_pilot_is_one_message(tmp_path):
    assert "no such file" in fail(tmp_path / "none.csv")


@each("args", [["--nope"], ["--rows", "many"], ["--rows", "1.5"], ["--accuracy", "high"]])
def test_misuse_leaves_with_2(args):
    result = call(*args)
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    assert "Usage:" in result.err
