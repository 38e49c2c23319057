"""`uqeval threshold` and `uqeval check`: what they print and write, how they leave, what they say of bad files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import binomtest

import commands
import uqeval as uq
from cases import each
from commands import loaded
from uqeval import _files
from uqeval.decide.threshold import shown

N = 1200
call, spawn, succeed, fail, misuse = (
    partial(function, "threshold")
    for function in (commands.call, commands.spawn, commands.succeed, commands.fail, commands.misuse)
)
check, spawn_check, succeed_check, fail_check = (
    partial(function, "check") for function in (commands.call, commands.spawn, commands.succeed, commands.fail)
)


def data(*args):
    return loaded(succeed(*args, "--json", "-"))


def checked(*args):
    result = check(*args, "--json", "-")
    assert result.err == ""
    return result.code, loaded(result.out)


def words(text):
    return " ".join(text.split())


def columns(seed=1, n=N):
    """A model that knows what it does not know: errors are rare where it is sure."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 0.4, n)
    label = rng.random(n) < p
    soft = np.round(4 * np.clip(p + rng.normal(0, 0.1, n), 0, 1)) / 4
    return {
        "label": np.where(label, "dog", "cat"),
        "prob_cat": 1 - p,
        "prob_dog": p,
        "soft_cat": 1 - soft,
        "soft_dog": soft,
        "loss": np.where(label, 1 - p, p) ** 2,
        "score_mine": rng.random(n) + 2 * (np.abs(p - 0.5) < 0.3),
        "patient": [f"p{k // 4}" for k in range(n)],
    }


def one_score(seed=1, n=N, slope=0.3, name="mine"):
    """Error rate `slope` times the square of the score."""
    rng = np.random.default_rng(seed)
    s = rng.random(n)
    return {"error": (rng.random(n) < slope * s**2).astype(int), f"score_{name}": s}


def write(path, table, rows=slice(None)):
    frame = pa.table({name: np.asarray(column)[rows].tolist() for name, column in table.items()})
    if path.suffix == ".parquet":
        pq.write_table(frame, path)
    else:
        pa.csv.write_csv(frame, path)
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "cal.csv", columns())


@pytest.fixture
def plain(tmp_path):
    return write(tmp_path / "plain.csv", one_score())


@pytest.fixture
def promise(plain, tmp_path):
    """A threshold file."""
    target = tmp_path / "threshold.json"
    succeed(plain, "--max-risk", "0.05", "--json", target, "--quiet")
    return target


@pytest.fixture
def promises(plain, tmp_path):
    """A file of three thresholds."""
    target = tmp_path / "thresholds.json"
    succeed(plain, "--max-risk", "0.02,0.05,0.1", "--json", target, "--quiet")
    return target


@pytest.fixture
def fresh(tmp_path):
    """New rows that are like the old ones."""
    return write(tmp_path / "fresh.csv", one_score(2))


@pytest.fixture
def worse(tmp_path):
    """New rows with three times the errors."""
    return write(tmp_path / "worse.csv", one_score(3, slope=0.9))


# ---- threshold: what it finds ---------------------------------------------------------------------------------------


@each("suffix", [".csv", ".parquet"])
def test_the_numbers_are_those_of_the_library(tmp_path, suffix):
    path = write(tmp_path / f"cal{suffix}", columns())
    found = data(path, "--score", "entropy", "--max-risk", "0.05")
    expected = uq.choose_threshold("entropy", predictions=uq.read_predictions(path), max_risk=0.05)
    assert found == loaded(expected.to_json())
    assert found["feasible"] is True


def test_the_statement_says_what_to_do_and_how_sure_that_is(file):
    out = words(succeed(file, "--score", "entropy", "--max-risk", "0.05"))
    expected = uq.choose_threshold("entropy", predictions=uq.read_predictions(file), max_risk=0.05)
    assert out.startswith(f"Act where entropy ≤ {shown(expected.value)}: ")
    assert "With 95% confidence, at most 5% of the accepted inputs are wrong." in out
    assert f"{expected.n_accepted:,} of 1,200 calibration rows accepted" in out


def test_the_only_score_needs_no_name(plain):
    assert data(plain, "--max-risk", "0.05")["score"] == "mine"


def test_several_scores_must_be_named_and_are_listed(file):
    message = fail(file, "--max-risk", "0.05")
    assert "--score" in message
    for name in uq.scores.available(uq.read_predictions(file)):
        assert name in message


def test_of_several_scores_the_best_is_chosen_at_its_share(file):
    found = data(file, "--score", "entropy,mine", "--max-risk", "0.05")
    assert found["score"] == "entropy"
    assert found["n_scores"] == 2
    assert data(file, "--score", "mine", "--score", " entropy,", "--max-risk", "0.05") == found
    assert any("chose among 2 scores" in note for note in found["warnings"])
    out = words(succeed(file, "--score", "entropy,mine", "--max-risk", "0.05"))
    assert "! The same rows chose among 2 scores" in out
    assert "pass --split 0.5." in out


def test_several_targets_give_a_table_and_hold_jointly(file):
    asked = (file, "--score", "entropy", "--max-risk", "0.05,0.1,0.2")
    found = data(*asked)
    assert [t["max_risk"] for t in found["thresholds"]] == [0.05, 0.1, 0.2]
    assert {t["n_targets"] for t in found["thresholds"]} == {3}
    assert data(*asked[:-1], "0.05", "--max-risk", " 0.1,0.2,") == found
    out = succeed(*asked)
    for part in ("coverage", "(interval)", "accepted", "observed", "│ 0.05", "│ 0.2"):
        assert part in out
    assert out.count("Act where entropy ≤") == 3
    assert max(map(len, out.splitlines())) <= 80


def test_one_target_with_a_comma_is_one_target(plain):
    assert data(plain, "--max-risk", "0.05,") == data(plain, "--max-risk", "0.05")


@each("method", ["fallback", "fst", "sgr", "bonferroni", "holm", "rcps", "crc"])
def test_every_method_runs(file, method):
    found = data(file, "--score", "entropy", "--max-risk", "0.1", "--method", method)
    assert (found["method"], found["feasible"]) == (method, True)


def test_clusters_are_used_and_counted(file):
    plain, clustered = (
        data(file, "--score", "entropy", "--max-risk", "0.1", *more) for more in ([], ["--cluster", "patient"])
    )
    assert (plain["n_clusters"], clustered["n_clusters"], clustered["largest_cluster"]) == (None, N // 4, 4)
    sub = data(
        *(file, "--score", "entropy", "--max-risk", "0.2", "--cluster", "patient", "--cluster-method", "subsample")
    )
    assert sub["n_clusters"] == N // 4


def test_other_rows_give_the_estimates_of_a_split(file):
    asked = (file, "--score", "entropy", "--max-risk", "0.1", "--split", "0.5")
    found = data(*asked)
    assert (found["n"], found["holdout"]["n"]) == (N // 2, N // 2)
    assert data(*asked) == found
    assert data(*asked, "--seed", "1") != found
    out = words(succeed(*asked))
    assert "on 600 other rows: coverage 0." in out
    assert ", risk 0." in out


def test_a_split_is_told_for_each_target(file):
    out = words(succeed(file, "--score", "entropy", "--max-risk", "0.1,0.0001,0.2", "--split", "0.5"))
    assert "max risk 0.1, on 600 other rows: coverage" in out
    assert "max risk 0.2, on 600 other rows: coverage" in out
    assert "max risk 0.0001, on" not in out


@each("tie", ["drop", "error"])
def test_soft_labels_give_the_risk_of_misalignment(file, tie):
    found = data(file, "--score", "entropy", "--max-risk", "0.1", "--risk", "misaligned", "--tie", tie)
    pred = uq.read_predictions(file)
    with pytest.warns(uq.UQWarning):
        expected = uq.choose_threshold("entropy", predictions=pred, max_risk=0.1, risk="misaligned", tie=tie)
    assert found == loaded(expected.to_json())
    assert found["what"] == "misaligned"
    assert (found["n"] < N) == (tie == "drop")
    out = words(succeed(file, "--score", "entropy", "--max-risk", "0.1", "--risk", "misaligned", "--tie", tie))
    assert "unlike the majority label" in out
    assert "rows have a tied majority" in out


@each("bound", ["betting", "hoeffding-bentkus"])
def test_a_loss_column_gives_a_bound_on_the_mean_loss(file, bound):
    found = data(file, "--score", "entropy", "--max-risk", "0.1", "--risk", "loss", "--bound", bound)
    assert (found["what"], found["feasible"]) == ("loss", True)
    out = words(succeed(file, "--score", "entropy", "--max-risk", "0.1,0.2", "--risk", "loss", "--bound", bound))
    assert "the mean loss of the accepted inputs is at most 0.1" in out


def test_columns_can_be_renamed(tmp_path):
    table = columns()
    names = {"label": "truth", "prob_cat": "p.cat", "prob_dog": "p.dog", "score_mine": "u_mine"}
    path = write(tmp_path / "renamed.csv", {names.get(name, name): value for name, value in table.items()})
    asked = ("--score", "mine", "--max-risk", "0.2")
    renamed = data(path, *asked, "--label", "truth", "--prob", "p.*", "--score-columns", "u_*")
    assert renamed == data(write(tmp_path / "plain.csv", table), *asked)


def test_several_files_are_joined(tmp_path):
    whole = write(tmp_path / "whole.csv", one_score())
    for k, rows in enumerate((slice(0, 500), slice(500, N))):
        write(tmp_path / f"part{k}.csv", one_score(), rows)
    joined = data(tmp_path / "part0.csv", tmp_path / "part1.csv", "--max-risk", "0.05")
    assert joined == data(whole, "--max-risk", "0.05")
    assert data(tmp_path / "part*.csv", "--max-risk", "0.05") == joined


def test_what_reading_warns_of_is_told(tmp_path):
    table = columns() | {"logit_cat": np.zeros(N), "logit_dog": 5 * np.ones(N)}
    path = write(tmp_path / "logits.csv", table)
    asked = (path, "--score", "entropy", "--max-risk", "0.1")
    assert any("softmax" in note for note in data(*asked)["warnings"])
    assert "! probs is not softmax" in succeed(*asked)


# ---- threshold: how it leaves ---------------------------------------------------------------------------------------


def test_nothing_certified_leaves_with_1_and_says_how_many_rows_it_takes(plain):
    result = call(plain, "--max-risk", "0.0001")
    assert (result.code, result.err) == (1, "")
    assert "Nothing can be certified" in result.out
    assert "rows like these would be needed (there are 1,200)" in words(result.out)


def test_nothing_certified_is_strict_json_that_accepts_nothing(plain):
    result = call(plain, "--max-risk", "0.0001", "--json", "-")
    assert (result.code, result.err) == (1, "")
    found = loaded(result.out)
    assert (found["value"], found["feasible"]) == (None, False)
    assert found["rows_needed"] > N
    assert not uq.Threshold.from_json(result.out).accept([-1e300, 0.0]).any()


def test_nothing_certified_is_said_by_the_code_alone_when_quiet(plain):
    assert call(plain, "--max-risk", "0.0001", "--quiet") == (1, "", "")


def test_where_more_rows_would_not_help_it_says_so(tmp_path):
    path = write(tmp_path / "hopeless.csv", {"error": [1] * 50, "score_mine": np.arange(50)})
    result = call(path, "--max-risk", "0.05")
    assert result.code == 1
    assert "more rows would not help" in words(result.out)


def test_one_certified_target_of_several_is_enough(plain):
    result = call(plain, "--max-risk", "0.0001,0.05")
    assert result.code == 0
    assert "Nothing can be certified" in result.out
    assert "nothing" in result.out
    assert call(plain, "--max-risk", "0.0001,0.0002").code == 1


def test_a_column_of_weights_gives_a_weighted_promise(tmp_path):
    path, target = write(tmp_path / "w.csv", one_score() | {"weight": np.linspace(1, 2, N)}), tmp_path / "t.json"
    text = words(succeed(path, "--max-risk", "0.3", "--largest-weight", "4", "--json", target))
    assert "counted by weight" in text
    assert "no row can weigh more than 4 (as declared)" in text
    assert json.loads(target.read_text())["largest_weight"] == 4


def test_the_declared_largest_cluster_is_part_of_the_promise(tmp_path):
    path = write(tmp_path / "c.csv", one_score() | {"patient": np.arange(N) // 2})
    options = ("--max-risk", "0.4", "--cluster", "patient")
    seen = words(succeed(path, *options))
    assert "no cluster has more than 2 rows (the largest here)" in seen
    declared = words(succeed(path, *options, "--largest-cluster", "3"))
    assert "no cluster has more than 3 rows (as declared)" in declared
    assert "must be an int ≥ 2, the largest here" in fail(path, *options, "--largest-cluster", "1")


@each(
    ("options", "text"),
    [
        (["--max-risk", "5"], "Did you mean 0.05?"),
        (["--max-risk", "0.05,5%"], "numbers by comma"),
        (["--max-risk", ","], "names no risk"),
        (["--max-risk", "nan"], "strictly between 0 and 1"),
        (["--max-risk", "0.05", "--level", "95"], "Did you mean 0.95"),
        (["--max-risk", "0.05", "--method", "best"], '"step-down", "fallback"'),
        (["--max-risk", "0.05", "--risk", "cost"], '"error", "loss", "misaligned"'),
        (["--max-risk", "0.05", "--tie", "keep"], '"drop", "error"'),
        (["--max-risk", "0.05", "--bound", "clt"], '"betting", "hoeffding-bentkus"'),
        (["--max-risk", "0.05", "--cluster-method", "z"], '`--cluster-method` must be one of "t", "subsample"'),
        (["--max-risk", "0.05", "--cluster", "nope"], "nope"),
        (["--max-risk", "0.05", "--split", "1.5"], "strictly between 0 and 1"),
        (["--max-risk", "0.05", "--split", "0.0001"], "fewer than 2 rows"),
        (["--max-risk", "0.05", "--seed", "-1"], "seed"),
        (["--max-risk", "0.05", "--score", "mien"], 'Did you mean "mine"'),
        (["--max-risk", "0.05", "--score", ","], "The file allows: mine."),
        (["--max-risk", "0.05", "--score", "entropy"], "needs `probs`"),
        (["--max-risk", "0.05", "--risk", "loss"], "or --risk error"),
        (["--max-risk", "0.05", "--risk", "misaligned"], "soft_labels"),
        (["--max-risk", "0.05", "--label", "nope"], "nope"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else None,
)
def test_bad_options_are_one_message(plain, options, text):
    assert text in fail(plain, *options)


def test_a_missing_file_is_one_message(tmp_path):
    assert "no such file" in fail(tmp_path / "none.csv", "--max-risk", "0.05")


def test_labels_that_are_missing_point_to_the_option(tmp_path):
    path = write(tmp_path / "loss.csv", {"loss": np.linspace(0, 1, 50), "score_mine": np.arange(50)})
    assert "--risk loss" in fail(path, "--max-risk", "0.05")


def test_a_loss_outside_its_range_is_named(tmp_path):
    path = write(tmp_path / "loss.csv", {"loss": np.linspace(0, 3, 50), "score_mine": np.arange(50)})
    message = fail(path, "--max-risk", "0.05", "--risk", "loss")
    assert "`loss` must lie in [0, 1]" in message


@each("args", [[], ["x.csv"], ["x.csv", "--max-risk", "0.1", "--level", "high"], ["--nope"]])
def test_misuse_leaves_with_2(args):
    assert misuse(*args)


# ---- threshold: output ----------------------------------------------------------------------------------------------


@each("targets", ["0.05", "0.02,0.05"])
def test_json_on_stdout_is_json_and_nothing_else(plain, targets):
    done = spawn(plain, "--max-risk", targets, "--json", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    loaded(done.stdout.decode())


def test_json_to_a_file_leaves_the_words(plain, tmp_path):
    target = tmp_path / "out.json"
    assert "Act where mine" in succeed(plain, "--max-risk", "0.05", "--json", target)
    assert loaded(target.read_text(encoding="utf-8"))["score"] == "mine"


def test_json_to_a_folder_that_is_not_there_is_an_error(plain, tmp_path):
    assert "--json: there is no folder" in fail(plain, "--max-risk", "0.05", "--json", tmp_path / "none" / "t.json")


@each("more", [[], ["--split", "0.5"], ["--cluster", "patient"], ["--risk", "loss"]])
def test_the_file_accepts_as_many_rows_as_it_says(file, tmp_path, more):
    target = tmp_path / "t.json"
    succeed(file, "--score", "entropy", "--max-risk", "0.1", "--json", target, *more)
    t = uq.Threshold.from_json(target)
    assert loaded(t.to_json()) == loaded(target.read_text(encoding="utf-8"))
    inside = t.accept(uq.scores.compute("entropy", uq.read_predictions(file)))
    assert inside.sum() == t.n_accepted + (t.holdout.n_accepted if t.holdout else 0)


def test_a_file_of_several_loads_again(promises):
    text = promises.read_text(encoding="utf-8")
    assert loaded(uq.Thresholds.from_json(text).to_json()) == loaded(text)


def test_a_score_that_is_infinite_can_be_accepted_and_stored(tmp_path):
    table = {"error": np.zeros(200, int), "score_mine": np.r_[np.arange(199.0), np.inf]}
    path = write(tmp_path / "inf.parquet", table)
    found = data(path, "--max-risk", "0.05")
    assert (found["value"], found["n_accepted"]) == ("inf", 200)
    assert "Act where mine ≤ ∞: 100.0%" in succeed(path, "--max-risk", "0.05")


def test_quiet_prints_nothing(plain):
    assert succeed(plain, "--max-risk", "0.05", "--quiet") == ""
    assert succeed(plain, "--max-risk", "0.02,0.05", "-q") == ""


def test_markup_in_names_is_printed_as_it_is(tmp_path):
    table = one_score(name="[red]x[/]") | {"score_[/b] :smile:": np.arange(N)}
    path = write(tmp_path / "[i]m.csv", table)
    target = tmp_path / "[b]t.json"
    out = succeed(path, "--score", "[red]x[/]", "--max-risk", "0.05", "--json", target)
    assert "Act where [red]x[/] ≤ 0." in out
    message = fail(path, "--max-risk", "0.05")
    assert "[red]x[/], [/b] :smile:" in message
    assert "[bold]x[/]" in fail(path, "--score", "[bold]x[/]", "--max-risk", "0.05")
    assert "Nothing speaks against" in succeed_check(target, path, "--again")
    assert "[b]t.json" in fail_check(target, path, "--max-risk", "0.3")


@each("command", ["threshold", "check"])
def test_help_shows_an_example_and_the_options(command):
    out = words(commands.succeed(command, "--help").replace("│", " "))
    assert f"Example: uqeval {command} " in out
    for option in ("--score", "--max-risk", "--level", "--cluster", "--json", "--quiet", "--score-columns", "--tie"):
        assert option in out


def test_no_colour_where_it_is_not_wanted(plain, promise, worse):
    asked = {"NO_COLOR": "1", "FORCE_COLOR": ""}
    for args in (("threshold", plain, "--max-risk", "0.02,0.05"), ("check", promise, worse)):
        assert "\x1b[" not in commands.call(*args, env=asked).out


def test_colour_where_it_is_wanted(plain, promise, fresh, worse):
    asked = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for args, start in (
        (("threshold", plain, "--max-risk", "0.05"), "36mAct where"),
        (("check", promise, fresh), "32mNothing speaks"),
        (("check", promise, worse), "1;31mThe promise no longer"),
    ):
        assert f"\x1b[{start}" in commands.call(*args, env=asked).out


# ---- check: one look ------------------------------------------------------------------------------------------------


def test_rows_like_the_old_ones_do_not_alarm(promise, fresh):
    out = words(succeed_check(promise, fresh))
    assert out.startswith("Nothing speaks against the promise")
    assert "look 1, this batch: " in out
    assert "(for a single look)" in out


def test_the_check_is_that_of_the_library(promise, fresh):
    code, found = checked(promise, fresh)
    pred = uq.read_predictions(fresh)
    expected = uq.Threshold.from_json(promise).check(pred.scores["mine"], pred.error)
    assert code == 0
    assert found == loaded(expected.to_json())


def test_an_alarm_leaves_with_1(promise, worse):
    result = check(promise, worse)
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("The promise no longer holds")
    assert "The alarm came after 1,200 rows." in result.out
    code, found = checked(promise, worse)
    assert (code, found["holds"], found["alarm_after"]) == (1, False, N)
    assert check(promise, worse, "--quiet") == (1, "", "")


def test_an_e_value_beyond_all_doubt_is_printed_short(promise, tmp_path):
    path = write(tmp_path / "awful.csv", {"error": [1] * 500, "score_mine": [0.0] * 500})
    assert len(words(check(promise, path).out)) < 300


@each("suffix", [".csv", ".parquet"])
@each(
    "options",
    [[], ["--cluster", "patient"], ["--risk", "loss"], ["--risk", "misaligned"], ["--method", "rcps"]],
    ids=lambda options: "_".join(options) or "plain",
)
def test_what_the_threshold_promises_is_what_is_checked(tmp_path, suffix, options):
    file, target = write(tmp_path / f"cal{suffix}", columns()), tmp_path / "t.json"
    succeed(file, "--score", "entropy", "--max-risk", "0.1", "--json", target, *options)
    t = uq.Threshold.from_json(target)
    clustered = options if "--cluster" in options else []
    code, found = checked(target, file, "--again", *clustered)
    assert code == 0
    assert (found["all"]["n"], found["all"]["n_accepted"]) == (t.n, t.n_accepted)
    assert found["all"]["errors_accepted"] == pytest.approx(t.errors_accepted)
    assert "Nothing speaks against" in succeed_check(target, file, "--again", *clustered)


def test_tied_majorities_count_as_the_threshold_counted_them(file, tmp_path):
    target = tmp_path / "t.json"
    asked = ("--max-risk", "0.2", "--risk", "misaligned", "--tie", "error", "--json", target)
    succeed(file, "--score", "entropy", *asked)
    _, found = checked(target, file, "--tie", "error", "--again")
    found = found["all"]
    assert (found["n"], found["errors_accepted"]) == (N, uq.Threshold.from_json(target).errors_accepted)
    assert "rows have a tied majority" in words(succeed_check(target, file, "--tie", "error", "--again"))


def test_a_loss_column_of_zeros_and_ones_is_still_the_loss(file, tmp_path):
    table = columns()
    table["loss"] = (np.arange(N) % 50 == 0).astype(float)  # not the errors
    path, target = write(tmp_path / "binary.csv", table), tmp_path / "t.json"
    succeed(path, "--score", "entropy", "--max-risk", "0.1", "--risk", "loss", "--json", target)
    t = uq.Threshold.from_json(target)
    found = checked(target, path, "--again")[1]["batch"]
    assert (found["n_accepted"], found["errors_accepted"]) == (t.n_accepted, t.errors_accepted)


def test_a_threshold_knows_its_score_and_refuses_another(promise, tmp_path):
    table = one_score(2)
    path = write(tmp_path / "renamed.csv", {"error": table["error"], "score_new": table["score_mine"]})
    assert 'There is no score "mine"' in fail_check(promise, path)
    message = fail_check(promise, path, "--score", "new")
    assert 'is for the score "mine", not for "new"' in message
    assert "uqeval threshold --score new" in message


def test_a_threshold_without_a_name_needs_one(tmp_path, fresh):
    target = tmp_path / "hand.json"
    target.write_text(uq.Threshold.from_value(0.4, max_risk=0.05).to_json(), encoding="utf-8")
    message = fail_check(target, fresh)
    assert "does not name its score" in message
    assert "one of: mine." in message
    assert checked(target, fresh, "--score", "mine")[1]["all"]["n_accepted"] > 0


def test_the_level_decides_when_to_alarm(promise, fresh):
    assert checked(promise, fresh)[1]["level"] == 0.95
    assert checked(promise, fresh, "--level", "0.99")[1]["level"] == 0.99
    assert "Did you mean 0.95" in fail_check(promise, fresh, "--level", "95")


def test_of_several_targets_one_is_picked(promises, fresh):
    assert "Pick one with --max-risk: 0.02, 0.05, 0.1." in fail_check(promises, fresh)
    assert checked(promises, fresh, "--max-risk", "0.1")[1]["max_risk"] == 0.1
    assert "There is: 0.02, 0.05, 0.1." in fail_check(promises, fresh, "--max-risk", "0.3")


def test_of_one_target_none_other_can_be_picked(promise, fresh):
    assert checked(promise, fresh, "--max-risk", "0.05")[0] == 0
    assert "holds no threshold for --max-risk 0.1" in fail_check(promise, fresh, "--max-risk", "0.1")


def test_a_threshold_that_accepts_nothing_cannot_be_checked(plain, tmp_path, fresh):
    target = tmp_path / "none.json"
    assert call(plain, "--max-risk", "0.0001", "--json", target).code == 1
    code, out, err = check(target, fresh)
    assert (code, err) == (3, "")
    assert "Nothing to tell yet: 0 of 1,200 rows accepted" in out
    assert "this batch: 0 of 1,200 rows accepted\n" in out
    assert "! The threshold accepts nothing" in out
    assert checked(target, fresh)[1]["batch"]["risk"] is None


def test_a_check_takes_one_score_and_never_the_last_of_two(promise, fresh):
    for scores in (["--score", "entropy", "--score", "margin"], ["--score", "entropy,margin"]):
        assert "--score takes one score" in fail_check(promise, fresh, *scores)
    assert checked(promise, fresh, "--scores", "mine")[0] == 0


def test_clusters_are_needed_where_the_threshold_has_them(file, tmp_path):
    target = tmp_path / "t.json"
    succeed(file, "--score", "entropy", "--max-risk", "0.1", "--cluster", "patient", "--json", target)
    assert "chosen with `clusters`" in fail_check(target, file)


def test_a_cluster_that_is_too_large_points_to_the_option(tmp_path):
    table, target = columns(), tmp_path / "t.json"
    file = write(tmp_path / "cal.csv", table)
    succeed(file, "--score", "entropy", "--max-risk", "0.1", "--cluster", "patient", "--json", target)
    table["patient"] = [f"p{k // 40}" for k in range(N)]
    larger = write(tmp_path / "larger.csv", table)
    assert "--largest-cluster " in fail_check(target, larger, "--cluster", "patient", "--again")
    assert checked(target, larger, "--cluster", "patient", "--largest-cluster", "40", "--again")[1]["all"]["n"] == N
    assert "must be an int ≥ 1" in fail_check(target, larger, "--cluster", "patient", "--largest-cluster", "0")


def test_weights_are_refused_by_the_check_too(promise, tmp_path):
    path = write(tmp_path / "w.csv", one_score() | {"weight": np.linspace(1, 2, N)})
    assert "unweighted rows" in fail_check(promise, path)


def test_after_a_weighted_choice_the_check_asks_for_rows_drawn_as_inputs_come(plain, tmp_path):
    path, target = write(tmp_path / "w.csv", one_score() | {"weight": np.linspace(1, 2, N)}), tmp_path / "t.json"
    assert "labelled accepted rows drawn as inputs come" in words(succeed(path, "--max-risk", "0.3", "--json", target))
    advice = "Pass rows drawn as inputs come, not the weighted sample"
    message = fail_check(target, path)
    assert advice in message
    assert "Leave it out" not in message
    assert advice in words(succeed_check(target, plain, "--again"))


def test_what_clusters_need_is_said_in_options(tmp_path):
    path = write(tmp_path / "c.csv", one_score() | {"patient": np.arange(N) // 2})
    message = fail(path, "--max-risk", "0.3", "--cluster", "patient", "--method", "rcps")
    assert "--cluster-method subsample or --cluster-method exact:" in message


@each(("risk", "lacking"), [("loss", "loss"), ("misaligned", "soft_labels"), ("error", "labels")])
def test_rows_without_what_was_promised_are_one_message(file, tmp_path, risk, lacking):
    target = tmp_path / "t.json"
    succeed(file, "--score", "mine", "--max-risk", "0.3", "--risk", risk, "--json", target)
    table = {"score_mine": np.arange(50), "loss" if risk == "error" else "error": [0] * 50}
    message = fail_check(target, write(tmp_path / "new.csv", table))
    assert f'is about "{risk}"' in message
    assert lacking in message
    assert "--risk" not in message


# ---- check: many looks ----------------------------------------------------------------------------------------------


def halves(tmp_path, table):
    return [write(tmp_path / f"half{k}.csv", table, rows) for k, rows in enumerate((slice(0, 500), slice(500, N)))]


@each("slope", [0.3, 0.35, 0.9])
def test_looks_with_a_state_are_the_looks_of_python_with_previous(promise, tmp_path, slope):
    table, state, t = one_score(5, slope=slope), tmp_path / f"state{slope}.json", uq.Threshold.from_json(promise)
    for run_length in (None, 1000):
        state.unlink(missing_ok=True)
        options, last = () if run_length is None else ("--run-length", str(run_length)), None
        for path in halves(tmp_path, table):
            code, found = checked(promise, path, "--state", state, *options)
            pred = uq.read_predictions(path)
            last = t.check(pred.scores["mine"], pred.error, previous=last, run_length=run_length)
            assert code == (0 if last.holds else 1)
            assert loaded(state.read_text(encoding="utf-8")) == found == loaded(last.to_json())
        assert (found["looks"], found["all"]["n"], found["run_length"]) == (2, N, run_length)


def test_looks_at_clusters_with_a_state_are_those_of_python(file, tmp_path):
    target, table, state, last = tmp_path / "t.json", columns(7), tmp_path / "state.json", None
    succeed(file, "--score", "entropy", "--max-risk", "0.1", "--cluster", "patient", "--json", target)
    for path in halves(tmp_path, table):
        _, found = checked(target, path, "--cluster", "patient", "--state", state)
        pred = uq.read_predictions(path, cluster="patient")
        score, error = uq.scores.compute("entropy", pred), uq.truth.error_of(pred)
        last = uq.Threshold.from_json(target).check(score, error, clusters=pred.clusters, previous=last)
    assert found["e_value"] == pytest.approx(last.e_value, rel=1e-12)
    assert found["units"] == last.units


def test_the_numbers_of_a_batch_are_its_own(promise, fresh, worse, tmp_path):
    state = tmp_path / "state.json"
    alone = words(check(promise, worse).out)
    succeed_check(promise, fresh, "--state", state)
    both = words(check(promise, worse, "--state", state).out)
    assert "2,400 rows accepted" in both
    batch = alone[alone.index("this batch") : alone.index("The alarm")]
    assert batch in both
    assert "look 2, " + batch in both


def test_an_alarm_is_not_taken_back(promise, fresh, worse, tmp_path):
    state = tmp_path / "state.json"
    assert check(promise, worse, "--state", state).code == 1
    result = check(promise, fresh, "--state", state)
    assert result.code == 1
    assert "The alarm came after 1,200 rows." in result.out
    assert loaded(state.read_text(encoding="utf-8"))["looks"] == 2


def test_the_state_is_replaced_at_once_and_nothing_is_left_beside_it(promise, fresh, tmp_path):
    folder = tmp_path / "monitor"
    folder.mkdir()
    state = folder / "state.json"
    succeed_check(promise, fresh, "--state", state)
    first = os.stat(state)
    succeed_check(promise, fresh, "--state", state, "--again")
    assert os.stat(state).st_ino != first.st_ino
    assert os.stat(state).st_mode == first.st_mode
    assert [path.name for path in folder.iterdir()] == ["state.json"]


def test_a_link_to_the_state_stays_a_link(promise, fresh, tmp_path):
    state, link = tmp_path / "state.json", tmp_path / "link.json"
    link.symlink_to(state)
    succeed_check(promise, fresh, "--state", link)
    assert link.is_symlink()
    assert loaded(state.read_text(encoding="utf-8"))["looks"] == 1


def test_rows_that_were_not_checked_do_not_count(promise, fresh, tmp_path):
    state = tmp_path / "state.json"
    succeed_check(promise, fresh, "--state", state)
    before = state.read_bytes()
    fail_check(promise, fresh, "--state", state, "--json", tmp_path / "none" / "out.json")
    fail_check(promise, tmp_path / "none.csv", "--state", state)
    fail_check(promise, fresh, "--state", state, "--score", "nope")
    assert state.read_bytes() == before
    assert not list(tmp_path.glob(".state*"))


def test_a_state_that_cannot_be_written_is_said_before_any_answer(promise, fresh, tmp_path):
    assert "--state: there is no folder" in fail_check(promise, fresh, "--state", tmp_path / "none" / "s.json")
    assert "--state is the folder" in fail_check(promise, fresh, "--state", tmp_path)


def test_the_state_of_another_threshold_or_level_is_refused(promise, promises, fresh, tmp_path):
    state = tmp_path / "state.json"
    succeed_check(promise, fresh, "--state", state)
    message = fail_check(promises, fresh, "--max-risk", "0.1", "--state", state)
    assert f"--state {state} is the check of another threshold" in message
    assert "was made with level 0.95" in fail_check(promise, fresh, "--level", "0.9", "--state", state)
    message = fail_check(promise, fresh, "--run-length", "1000", "--state", state)
    assert f"--state {state} was made without --run-length, this look with --run-length 1000." in message
    assert "--run-length must be an int ≥ 1" in fail_check(promise, fresh, "--run-length", "0")


def test_the_state_of_an_earlier_uqeval_is_refused_with_what_to_do(promise, fresh, tmp_path):
    state = tmp_path / "state.json"
    succeed_check(promise, fresh, "--state", state)
    data = loaded(state.read_text(encoding="utf-8"))
    del data["units"], data["run_length"]
    state.write_text(json.dumps(data), encoding="utf-8")
    assert "Start a new one" in fail_check(promise, fresh, "--state", state)


def test_choosing_says_how_soon_a_doubled_risk_is_noticed(plain):
    assert "if the risk rises to 10%, check notices after about 620 labelled accepted rows" in words(
        succeed(plain, "--max-risk", "0.05")
    )


def test_json_of_a_check_is_json_and_nothing_else(promise, fresh, worse, tmp_path):
    for path, code in ((fresh, 0), (worse, 1)):
        done = spawn_check(promise, path, "--json", "-", "--state", tmp_path / "state.json")
        assert (done.returncode, done.stderr) == (code, b"")
        loaded(done.stdout.decode())


def test_json_of_a_check_to_a_file_leaves_the_words(promise, fresh, tmp_path):
    target = tmp_path / "out.json"
    assert "this batch" in succeed_check(promise, fresh, "--json", target)
    assert loaded(target.read_text(encoding="utf-8"))["holds"] is True
    assert succeed_check(promise, fresh, "--json", target, "--quiet") == ""


def rows_of_its_own(tmp_path, k):
    return write(tmp_path / f"new{k}.csv", one_score(20 + k, n=200))


def start_check(*args, before=""):
    """`uqeval check` in a process of its own, after some Python of ours."""
    argv = ["uqeval", "check", *map(str, args)]
    code = f"import sys\n{before}\nfrom uqeval.cli.main import main\nsys.argv = {argv}\nmain()"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_four_processes_that_share_a_state_lose_no_look(promise, tmp_path):
    state = tmp_path / "state.json"
    files = [rows_of_its_own(tmp_path, k) for k in range(4)]
    running = [start_check(promise, file, "--state", state, "--quiet") for file in files]
    ends = [(process.communicate(timeout=60), process.returncode) for process in running]
    assert ends == [((b"", b""), 0)] * 4
    found = loaded(state.read_text(encoding="utf-8"))
    assert (found["looks"], found["all"]["n"], len(set(found["batches"]))) == (4, 800, 4)
    assert not list(tmp_path.glob(".state*"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_check_that_is_killed_while_it_writes_leaves_the_old_state_and_no_lock(promise, tmp_path):
    state, first, second = tmp_path / "state.json", rows_of_its_own(tmp_path, 0), rows_of_its_own(tmp_path, 1)
    succeed_check(promise, first, "--state", state)
    before = state.read_bytes()
    hang = "import os, time\nos.replace = lambda *a: (print('writing', flush=True), time.sleep(60))"
    with start_check(promise, second, "--state", state, before=hang) as process:
        assert process.stdout.readline() == b"writing\n"
        assert state.read_bytes() == before
        with start_check(promise, rows_of_its_own(tmp_path, 2), "--state", state) as waiting:
            assert b"is in use by process %d on " % process.pid in waiting.stderr.readline()
            process.kill()
            process.wait(timeout=30)
            waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    succeed_check(promise, second, "--state", state)
    assert loaded(state.read_text(encoding="utf-8"))["looks"] == 3
    assert not list(tmp_path.glob(".state*"))


def test_whoever_waits_too_long_for_a_state_is_told_who_holds_it(promise, fresh, tmp_path, monkeypatch):
    state = tmp_path / "state.json"
    monkeypatch.setattr(_files, "_PATIENCE", 0.0)
    with _files.locked(state):
        message = fail_check(promise, fresh, "--state", state)
    assert f"--state {state} is in use by process {os.getpid()} on " in message
    assert not state.exists()
    succeed_check(promise, fresh, "--state", state)


def test_the_same_rows_in_any_order_or_format_count_once_unless_one_insists(promise, fresh, tmp_path):
    state, table = tmp_path / "state.json", one_score(2)
    succeed_check(promise, fresh, "--state", state)
    before = state.read_bytes()
    order = np.random.default_rng(0).permutation(N)
    for path in (fresh, write(tmp_path / "shuffled.parquet", table, order)):
        message = fail_check(promise, path, "--state", state)
        assert "that were checked before" in message
        assert "--again" in message
    assert state.read_bytes() == before
    succeed_check(promise, fresh, "--state", state, "--again")
    assert loaded(state.read_text(encoding="utf-8"))["looks"] == 2
    few = write(tmp_path / "few.csv", one_score(3, n=4))
    assert "may be rows" not in succeed_check(promise, few, "--state", state)
    assert "! These may be rows of an earlier look" in succeed_check(promise, few, "--state", state)


def test_the_rows_that_chose_the_threshold_are_not_new_ones(plain, tmp_path):
    for options in ([], ["--split", "0.5"]):
        target = tmp_path / "t.json"
        succeed(plain, "--max-risk", "0.1", "--json", target, *options)
        assert "the rows that the threshold was chosen on" in fail_check(target, plain)
        succeed_check(target, plain, "--again")
        part = write(tmp_path / "part.csv", one_score(), slice(0, 700))
        assert "! Rows that the threshold was chosen on are among these" in words(succeed_check(target, part))


def test_json_of_a_check_gives_all_numbers_of_the_batch_and_all_of_all_rows(promise, tmp_path):
    state, keys = tmp_path / "state.json", {"n", "n_accepted", "errors_accepted", "coverage"}
    keys |= {"risk", "risk_interval", "p_value"}
    for k in range(2):
        _, found = checked(promise, rows_of_its_own(tmp_path, k), "--state", state)
        assert found["batch"].keys() == found["all"].keys() == keys
        assert not keys & found.keys()
    parts = [uq.read_predictions(rows_of_its_own(tmp_path, k)) for k in range(2)]
    t = uq.Threshold.from_json(promise)
    for rows, pooled in ((found["batch"], parts[1:]), (found["all"], parts)):
        error = np.concatenate([p.error[t.accept(p.scores["mine"])] for p in pooled])
        assert (rows["n_accepted"], rows["errors_accepted"]) == (len(error), error.sum())
        assert rows["risk"] == pytest.approx(error.mean())
        assert rows["risk_interval"] == pytest.approx(binomtest(int(error.sum()), len(error)).proportion_ci(0.95))
        if rows is found["batch"]:
            p = binomtest(int(error.sum()), len(error), 0.05, alternative="greater").pvalue
            assert rows["p_value"] == pytest.approx(p)
    assert found["all"]["p_value"] == min(1.0, 1 / max(1.0, found["e_value"]))  # however often one looks


# ---- check: bad files -----------------------------------------------------------------------------------------------


BROKEN = ["", "hello", "[]", "5", "null", '"x"', "{}", '{"schema_version": 1}', "{", '{"thresholds": []}']


@each("text", [*BROKEN, '{"thresholds": {}}', '{"thresholds": [5]}', '{"thresholds": 5}'])
def test_what_is_no_threshold_is_one_message(tmp_path, fresh, text):
    target = tmp_path / "broken.json"
    target.write_text(text, encoding="utf-8")
    assert "broken.json" in fail_check(target, fresh)


@each("text", BROKEN)
def test_what_is_no_state_is_one_message(promise, fresh, tmp_path, text):
    state = tmp_path / "state.json"
    state.write_text(text, encoding="utf-8")
    assert "--state" in fail_check(promise, fresh, "--state", state)
    assert state.read_text(encoding="utf-8") == text


@each(
    ("name", "value", "text"),
    [
        ("schema_version", 99, "schema_version 99"),
        ("method", "magic", "magic"),
        ("value", "low", "not the JSON of a Threshold"),
        ("value", None, "not the JSON of a Threshold"),
        ("what", "cost", "cost"),
        ("surprise", 1, "surprise"),
        ("max_risk", "a lot", "max_risk"),
        ("max_risk", None, "max_risk"),
        ("max_risk", 2, "max_risk"),
        ("level", "high", "level"),
        ("level", 2, "level"),
        ("score", 5, "score"),
    ],
)
def test_a_threshold_with_a_wrong_entry_is_one_message(promise, fresh, tmp_path, name, value, text):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(loaded(promise.read_text()) | {name: value}), encoding="utf-8")
    assert text in fail_check(wrong, fresh)


@each(
    ("name", "value"),
    [
        ("log_wealth", [0.0]),
        ("log_wealth", "x"),
        ("log_wealth", None),
        ("surprise", 1),
        ("threshold_hash", "0"),
        ("level", "high"),
        ("all", {"n": "many"}),
        ("batch", {"n_accepted": None}),
        ("all", None),
        ("looks", "x"),
    ],
)
def test_a_state_with_a_wrong_entry_is_one_message(promise, fresh, tmp_path, name, value):
    state = tmp_path / "state.json"
    state.unlink(missing_ok=True)
    succeed_check(promise, fresh, "--state", state)
    state.write_text(json.dumps(loaded(state.read_text()) | {name: value}), encoding="utf-8")
    assert "--state" in fail_check(promise, fresh, "--state", state)


def test_files_that_are_no_text_or_not_there_are_one_message(promise, fresh, tmp_path):
    bits = tmp_path / "bits.json"
    bits.write_bytes(b"\xff\xfe\x00{")
    assert "bits.json" in fail_check(bits, fresh)
    assert "--state" in fail_check(promise, fresh, "--state", bits)
    assert "none.json: there is no such file. Pass what" in fail_check(tmp_path / "none.json", fresh)
    assert "cannot be read" in fail_check(tmp_path, fresh)
    assert "--state" in fail_check(promise, fresh, "--state", promise)
    assert "no such file" in fail_check(promise, tmp_path / "none.csv")


def test_a_check_without_files_leaves_with_2(promise):
    for args in ([], [promise], [promise, "x.csv", "--level", "high"], [promise, "x.csv", "--max-risk", "low"]):
        assert "Usage:" in commands.misuse("check", *args)


# ---- groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sites(tmp_path):
    return write(tmp_path / "sites.csv", one_score() | {"site": np.array(["east", "west"])[np.arange(N) % 2]})


def test_by_shows_each_group_and_each_promises_it(sites, tmp_path):
    found = data(sites, "--max-risk", "0.1", "--by", "site")
    assert [g["group"] for g in found["groups"]] == ["east", "west"]
    text = words(succeed(sites, "--max-risk", "0.1", "--by", "site"))
    assert "not for each group" in text
    each = data(sites, "--max-risk", "0.1", "--by", "site", "--each")
    pred = uq.read_predictions(sites, group="site")
    expected = uq.choose_threshold("mine", predictions=pred, max_risk=0.1, each=True)
    assert each == loaded(expected.to_json())
    assert "in each of 2 groups at most 10%" in words(succeed(sites, "--max-risk", "0.1", "--by", "site", "--each"))


def test_each_needs_by_and_names_small_groups(sites, tmp_path):
    assert "--each is about groups, and there are none. Pass --by" in fail(sites, "--max-risk", "0.1", "--each")
    table = one_score() | {"site": np.where(np.arange(N) < 9, "east", "west")}
    few = write(tmp_path / "few.csv", table)
    result = call(few, "--max-risk", "0.1", "--by", "site", "--each")
    assert result.code == 1
    assert "Too small to be certified even without an error: east (9 rows)" in words(result.out)
