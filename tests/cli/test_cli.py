"""The command line: what it prints, what it writes, and what it says when the input is bad."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import uqeval as uq
from cases import each
from commands import call, fail, loaded, misuse, spawn, succeed
from uqeval.cli.main import make_app
from uqeval.inputs.files import PredictionFiles

COMMANDS = ("demo", "evaluate", "compare", "threshold", "check", "power", "doctor")


N = 60


def columns(n=N, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), n)
    return {
        "label": rng.integers(0, 3, n),
        **{f"prob_{k}": probs[:, k] for k in range(3)},
        "score_mine": rng.random(n),
        "hospital": np.array(["north", "south"])[rng.integers(0, 2, n)],
        "patient": [f"p{k}" for k in rng.integers(0, 25, n)],
    }


def write_csv(path, data):
    pa.csv.write_csv(pa.table({name: np.asarray(column).tolist() for name, column in data.items()}), path)
    return path


@pytest.fixture
def csv(tmp_path):
    return write_csv(tmp_path / "preds.csv", columns())


def estimates(text):
    return {(row["score"], row["metric"], row["group"]): row for row in loaded(text)["estimates"]}


# ---- demo, doctor, help -------------------------------------------------------------------------------------------


def test_demo_prints_the_table_and_what_to_do_next():
    out = succeed("demo")
    for part in ("1,547 rows", "UQ-AUC", "entropy", "mutual_information", "vote_ratio", "thin", "uqeval evaluate"):
        assert part in out


def test_demo_json_on_stdout_is_json_and_nothing_else():
    done = spawn("demo", "--json", "-")
    assert done.returncode == 0
    assert done.stderr == b""
    data = loaded(done.stdout.decode())
    assert data["n"] == 1547
    ev = uq.evaluate(uq.datasets.example(), scores="entropy", metrics="uq_auc")
    row = next(r for r in data["estimates"] if (r["score"], r["metric"], r["group"]) == ("entropy", "uq_auc", None))
    assert row["value"] == ev["entropy", "uq_auc"].value


def test_demo_writes_json_to_a_file_beside_the_table(tmp_path):
    out = succeed("demo", "--json", tmp_path / "demo.json")
    assert "UQ-AUC" in out
    assert loaded((tmp_path / "demo.json").read_text(encoding="utf-8"))["n"] == 1547


def test_demo_all_shows_every_metric():
    out = succeed("demo", "--all")
    for title in ("PRR", "AUGRC", "log-loss", "ECE (debiased)"):
        assert title in out


def test_doctor_shows_versions_and_kernels():
    out = succeed("doctor")
    for part in ("uqeval", uq.__version__, "numpy", np.__version__, "kernels", uq.kernels.backend(), "torch"):
        assert part in out


def test_doctor_json_is_json_and_nothing_else():
    facts = loaded(succeed("doctor", "--json", "-"))
    assert facts["uqeval"] == uq.__version__
    assert facts["kernels"] in ("numpy", "native")


def test_version_is_printed_alone():
    assert succeed("--version") == f"uqeval {uq.__version__}\n"


@each("command", COMMANDS)
def test_help_shows_an_example_to_copy(command):
    result = CliRunner().invoke(make_app(), [command, "--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "Example:" in result.output
    assert f"uqeval {command}" in result.output


def test_help_breaks_lines_where_the_terminal_does_and_not_where_the_source_does():
    for command, sentence in {
        "check": "The same rows twice are refused; others who use the state wait.",
        "monitor": "with 3 where no labelled row counted yet.",
        "reproduce": "does the distance C-index, which needs none, tell?",
    }.items():
        assert sentence in CliRunner().invoke(make_app(), [command, "--help"], env={"COLUMNS": "1000"}).output


def test_without_arguments_the_commands_are_listed():
    result = call()
    assert result.code in (0, 2)
    for command in COMMANDS:
        assert command in result.out + result.err


# ---- what a command loads -----------------------------------------------------------------------------------------


def modules_of(*args):
    """What a command has loaded when it leaves, and whether Python still looks for garbage."""
    code = (
        "import atexit, gc, sys; from uqeval.cli.main import main; "
        "atexit.register(lambda: print('', gc.isenabled(), *sys.modules, sep=chr(10))); main()"
    )
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    *_, looks, names = done.stdout.rpartition("\nTrue\n")
    assert looks
    return set(names.split())


# The versions of constraints.txt load less than newer ones, and people may have these.
lean = pytest.mark.skipif(
    np.lib.NumpyVersion(version("typer")) >= "0.29.0", reason="from 0.29 on Typer loads pydantic with every command"
)


@lean
@each("name", ["preds.parquet", "preds.csv"])
def test_evaluate_loads_nothing_that_only_others_need(tmp_path, name):
    data = {key: column for key, column in columns().items() if key.startswith(("label", "prob"))}
    write = write_csv if name.endswith("csv") else lambda path, rows: pq.write_table(pa.table(rows), path)
    write(tmp_path / name, data)
    found = modules_of("evaluate", tmp_path / name)
    others = {
        "pydantic",
        "pandas",
        "polars",
        "narwhals",
        "altair",
        "jinja2",
        "markdown_it",
        "pygments",
        "rich.progress",
    }
    others |= {"uqeval.evaluation.comparison", "uqeval.inference.correlations", "uqeval.decide", "uqeval.pages"}
    assert not found & others
    if np.lib.NumpyVersion(scipy.__version__) >= "1.17.0":  # older ones load 24 more
        assert len(found) < 640


def test_a_gate_loads_ten_modules_beside_those_of_the_evaluation(csv, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nmetric = "uq_auc"\nscore = "mine"\nat_least = 0.01\non = "high"\n')
    asked = ("--scores", "mine", "--metrics", "uq_auc")
    alone = modules_of("evaluate", csv, *asked)
    for args in (("evaluate", csv, *asked, "--fail-under", "uq_auc=0.01", "--fail-on", "high"), ("gate", policy, csv)):
        added = modules_of(*args) - alone
        assert "uqeval.gate.judge" in added
        assert len({name for name in added if not name.startswith("tomllib.")}) <= 10, added


@lean
@each("command", [None, *COMMANDS])
def test_help_loads_no_numpy_and_none_of_the_library(command):
    found = modules_of(*filter(None, [command]), "--help")
    assert not found & {"numpy", "scipy", "pyarrow", "pandas", "pydantic"}
    ours = {name.split(".")[1] for name in found if name.startswith("uqeval.")}
    assert ours <= {"_errors", "_files", "_lazy", "_signs", "_version", "cli", "pages"}
    assert len(found) < 420


# ---- evaluate: formats --------------------------------------------------------------------------------------------


@each("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.feather", "a.npz"])
def test_every_format_gives_the_numbers_of_the_library(tmp_path, name):
    data = columns()
    table = pa.table({key: np.asarray(column).tolist() for key, column in data.items()})
    path = tmp_path / name
    if name.endswith("csv"):
        pa.csv.write_csv(table, path)
    elif name.endswith("tsv"):
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t"))
    elif name.endswith("parquet"):
        pq.write_table(table, path)
    elif name.endswith("jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif name.endswith("feather"):
        pa.feather.write_feather(table, path)
    else:
        probs = np.stack([data[f"prob_{k}"] for k in range(3)], axis=1)
        np.savez(path, labels=data["label"], probs=probs, score_mine=data["score_mine"])
    probs = np.stack([data[f"prob_{k}"] for k in range(3)], axis=1)
    ev = uq.evaluate(uq.Predictions(data["label"], probs=probs, scores={"mine": data["score_mine"]}))
    found = estimates(succeed("evaluate", path, "--json", "-"))
    assert len(found) == len(ev)
    for row in ev:
        if not np.isnan(row.estimate.low):
            assert found[row.score, row.metric, None]["low"] == row.estimate.low


def test_a_glob_and_several_files_are_joined(tmp_path):
    whole = columns()
    for k, rows in enumerate([slice(0, 25), slice(25, 60)]):
        write_csv(tmp_path / f"part{k}.csv", {name: column[rows] for name, column in whole.items()})
    one = write_csv(tmp_path / "whole.csv", whole)
    expected = loaded(succeed("evaluate", one, "--json", "-"))
    assert loaded(succeed("evaluate", tmp_path / "part*.csv", "--json", "-")) == expected
    assert loaded(succeed("evaluate", tmp_path / "part0.csv", tmp_path / "part1.csv", "--json", "-")) == expected


def test_scores_and_errors_without_a_model_do(tmp_path):
    data = columns()
    path = write_csv(tmp_path / "a.csv", {"score_a": data["score_mine"], "error": np.arange(N) % 2})
    out = succeed("evaluate", path)
    assert "UQ-AUC" in out
    assert "UQ-C-index" not in out


# ---- evaluate: options --------------------------------------------------------------------------------------------


def test_the_table_shows_scores_and_metrics(csv):
    out = succeed("evaluate", csv)
    for part in ("60 rows", "mine", "entropy", "UQ-AUC", "AURC", "Brier score", "accuracy", "95% intervals"):
        assert part in out
    assert "\x1b" not in out


def test_json_to_a_file_leaves_the_table_on_stdout(csv, tmp_path):
    out = succeed("evaluate", csv, "--json", tmp_path / "out.json")
    assert "UQ-AUC" in out
    data = loaded((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert list(data) == [
        "schema_version",
        "n",
        "n_errors",
        "accuracy",
        "mean_loss",
        "tie_rate",
        "same_ranking",
        "estimates",
        "wrong_way_round",
        "heterogeneity",
        "detectable_difference",
        "warnings",
        "versions",
        "classes",
        "level",
        "two_targets",
    ]


def test_quiet_prints_nothing_but_writes_the_json(csv, tmp_path):
    assert succeed("evaluate", csv, "--quiet", "--json", tmp_path / "out.json") == ""
    assert loaded((tmp_path / "out.json").read_text(encoding="utf-8"))["n"] == N
    assert loaded(succeed("evaluate", csv, "-q", "--json", "-"))["n"] == N


def test_by_reports_each_group(csv):
    out = succeed("evaluate", csv, "--by", "hospital", "--scores", "mine", "--metrics", "uq_auc")
    assert "north" in out
    assert "south" in out
    found = estimates(
        succeed("evaluate", csv, "--by", "hospital", "--scores", "mine", "--metrics", "uq_auc", "--json", "-")
    )
    assert set(found) == {("mine", "uq_auc", group) for group in (None, "north", "south")}
    data = columns()
    assert found["mine", "uq_auc", "north"]["n"] == (data["hospital"] == "north").sum()


def test_cluster_widens_the_unit(csv):
    plain = estimates(succeed("evaluate", csv, "--json", "-"))
    found = estimates(succeed("evaluate", csv, "--cluster", "patient", "--json", "-"))
    key = ("mine", "uq_auc", None)
    assert "cluster" in found[key]["method"]
    assert found[key]["value"] == pytest.approx(plain[key]["value"], abs=1e-12)
    assert found[key]["se"] != plain[key]["se"]


@each(
    "options",
    [
        ["--scores", "margin,mine"],
        ["--scores", " margin , mine "],
        ["--scores", "margin", "--scores", "mine"],
        ["--scores=margin,mine"],
    ],
)
def test_scores_come_by_comma_or_one_by_one(csv, options):
    found = estimates(succeed("evaluate", csv, *options, "--metrics", "uq_auc,aurc", "--json", "-"))
    assert set(found) == {(s, m, None) for s in ("margin", "mine") for m in ("uq_auc", "aurc")}


def test_level_widens_the_interval(csv):
    wide = estimates(succeed("evaluate", csv, "--level", "0.999", "--json", "-"))["mine", "uq_auc", None]
    usual = estimates(succeed("evaluate", csv, "--json", "-"))["mine", "uq_auc", None]
    assert wide["level"] == 0.999
    assert wide["low"] < usual["low"] < usual["high"] < wide["high"]
    assert "99.9% intervals" in succeed("evaluate", csv, "--level", "0.999")


def test_columns_of_other_names_can_be_given(tmp_path):
    data = columns()
    expected = estimates(
        succeed("evaluate", write_csv(tmp_path / "a.csv", {k: data[k] for k in list(data)[:5]}), "--json", "-")
    )
    renamed = {"y_true": data["label"], **{f"p{k}": data[f"prob_{k}"] for k in range(3)}, "unc": data["score_mine"]}
    path = write_csv(tmp_path / "b.csv", renamed)
    found = estimates(
        succeed("evaluate", path, "--label", "y_true", "--prob", "p*", "--score-columns", "unc", "--json", "-")
    )
    assert {(("mine" if s == "unc" else s), m, g): row["value"] for (s, m, g), row in found.items()} == {
        key: row["value"] for key, row in expected.items()
    }


def test_columns_can_be_listed_by_comma_where_a_pattern_would_take_too_much(tmp_path):
    data = columns()
    renamed = {"label": data["label"], "patient": range(len(data["label"]))}
    path = write_csv(tmp_path / "a.csv", renamed | {f"p{k}": data[f"prob_{k}"] for k in range(3)})
    expected = write_csv(tmp_path / "b.csv", {k: data[k] for k in ("label", "prob_0", "prob_1", "prob_2")})
    refused = fail("evaluate", path)
    assert f"Try: uqeval evaluate {path} --prob p0,p1,p2" in refused
    found, known = (estimates(succeed(*args, "--json", "-")) for args in (refused.split()[-4:], ("evaluate", expected)))
    assert found == known
    assert "(--prob p0,p1,p2)" in fail("evaluate", path, "--prob", "p*")


def test_classes_give_integer_labels_an_order(tmp_path):
    data = columns()
    named = {"label": data["label"]} | {f"prob_{c}": data[f"prob_{k}"] for k, c in enumerate(["cat", "dog", "eel"])}
    path = write_csv(tmp_path / "a.csv", named)
    assert "classes" in fail("evaluate", path)
    found = loaded(succeed("evaluate", path, "--classes", "cat,dog,eel", "--json", "-"))
    probs = np.stack([data[f"prob_{k}"] for k in range(3)], axis=1)
    assert found["accuracy"] == pytest.approx((probs.argmax(1) == data["label"]).mean())
    other = loaded(succeed("evaluate", path, "--classes", "eel", "--classes", "dog,cat", "--json", "-"))
    assert other["accuracy"] == pytest.approx((probs[:, ::-1].argmax(1) == data["label"]).mean())


def test_normalize_divides_votes_by_their_sum(tmp_path):
    data = columns()
    scaled = data | {f"prob_{k}": 7 * data[f"prob_{k}"] for k in range(3)}
    path = write_csv(tmp_path / "a.csv", scaled)
    fail("evaluate", path)
    found = estimates(succeed("evaluate", path, "--normalize", "--scores", "entropy", "--json", "-"))
    expected = estimates(succeed("evaluate", write_csv(tmp_path / "b.csv", data), "--scores", "entropy", "--json", "-"))
    assert found["entropy", "uq_auc", None]["value"] == expected["entropy", "uq_auc", None]["value"]


def test_the_weight_column_is_used(tmp_path):
    data = columns() | {"w": np.arange(N) % 3}
    path = write_csv(tmp_path / "a.csv", data)
    assert loaded(succeed("evaluate", path, "--weight", "w", "--json", "-"))["n"] == 40
    assert loaded(succeed("evaluate", path, "--json", "-"))["n"] == 60


def test_warnings_reach_the_table_and_the_json(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(40)
    data = {"label": rng.integers(0, 2, 40), "prob_0": 1 - p, "prob_1": p, "logit_0": 0 * p, "logit_1": 9 * p}
    path = write_csv(tmp_path / "a.csv", data)
    assert "softmax(logits)" in " ".join(succeed("evaluate", path).split())
    notes = loaded(succeed("evaluate", path, "--json", "-"))["warnings"]
    assert sum("softmax(logits)" in note for note in notes) == 1


def test_few_errors_are_said_before_the_table(tmp_path):
    s = np.linspace(0, 1, 50)
    path = write_csv(tmp_path / "a.csv", {"score_a": s, "error": (s > 0.95).astype(int)})
    out = " ".join(succeed("evaluate", path).split())
    assert "Too few errors (3)" in out
    assert out.index("Too few errors") < out.index("UQ-AUC")
    assert "few errors (3)" in out


def test_no_errors_at_all_still_answer(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"score_a": np.linspace(0, 1, 50), "error": [0] * 50})
    out = succeed("evaluate", path)
    assert "undefined" in out
    assert "nan" not in out.lower()
    found = estimates(succeed("evaluate", path, "--json", "-"))
    assert found["a", "uq_auc", None]["value"] is None


# ---- the terminal -------------------------------------------------------------------------------------------------


@each("width", ["1", "10", "40", "80", "200", "1000"])
def test_any_width_of_the_terminal_works(csv, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    out = succeed("evaluate", csv, "--by", "hospital")
    if int(width) >= 40:
        assert max(map(len, out.splitlines())) <= int(width)
        assert "…" not in out


def test_numbers_stay_whole_beside_long_names(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    data = columns()
    path = write_csv(
        tmp_path / "a.csv",
        {
            "score_" + "long" * 25: data["score_mine"],
            "error": np.arange(N) // 2 % 2,
            "group": [("first hospital of a very long name indeed " * 2)[:70] + str(k % 2) for k in range(N)],
        },
    )
    out = succeed("evaluate", path, "--metrics", "uq_auc")
    error, groups = np.arange(N) // 2 % 2, np.arange(N) % 2
    ev = uq.evaluate(score=data["score_mine"], error=error, groups=groups, metrics="uq_auc")
    for group in (None, 0, 1):
        assert str(ev["score", "uq_auc", group]) in out
    assert "…" not in out


def test_no_color_is_obeyed(csv):
    asked = call("evaluate", csv, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"}).out
    refused = call("evaluate", csv, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out
    assert "\x1b[36m" in asked
    assert "\x1b[3" not in refused.replace("\x1b[3m", "")


def test_a_console_that_knows_ascii_only_gets_the_table_and_right_json(tmp_path):
    data = columns()
    path = write_csv(tmp_path / "a.csv", {"score_é": data["score_mine"], "error": np.arange(N) % 2})
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = spawn("evaluate", path, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"UQ-AUC" in done.stdout
    done = spawn("evaluate", path, "--json", "-", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(loaded(done.stdout.decode("ascii"))["tie_rate"]) == ["é"]


@each("name", ["[bold]x[/bold]", "[/red]", "[link=file:///etc]y", ":smile:", "back\\", "[", "\\[b]", "a:x:b", "%s {0}"])
def test_markup_in_names_is_printed_as_it_is(tmp_path, name):
    data = columns()
    half = np.where(data["score_mine"] > 0.5, name, "rest")
    frame = {f"score_{name}": data["score_mine"], "error": np.arange(N) % 2, f"g{name}": half}
    path = write_csv(tmp_path / "a.csv", frame)
    out = succeed("evaluate", path, "--by", f"g{name}", "--metrics", "uq_auc")
    rows = [line for line in out.splitlines() if f"│ {name} " in line]
    heads = [line for line in out.splitlines() if f"┃ {name} " in line]
    assert len(rows) == 3  # a score, and the group twice: its metrics, its rows
    assert len(heads) == 1
    assert set(loaded(succeed("evaluate", path, "--json", "-"))["tie_rate"]) == {name}


@each("name", ["[bold]x[/bold]", "[/red]", ":smile:", "back\\", "[", "\\[b]"])
def test_markup_in_messages_is_printed_as_it_is(csv, name):
    assert name in fail("evaluate", csv, "--scores", name)
    assert name in fail("evaluate", csv, "--by", name)
    assert name in fail("evaluate", f"{name}.csv")


def test_codes_of_emoji_in_the_name_of_a_report_are_printed_as_they_are(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"score_s": columns()["score_mine"], "error": np.arange(N) % 2})
    out = succeed("evaluate", path, "--metrics", "uq_auc", "--html", tmp_path / ":key:.html")
    assert ":key:.html" in out.replace("\n", "")


# ---- bad input ----------------------------------------------------------------------------------------------------

BASE = "label,prob_0,prob_1\n0,0.7,0.3\n1,0.2,0.8\n0,0.4,0.6\n"
BAD = {
    "empty file": ("", [], ["empty"]),
    "header only": ("label,prob_0,prob_1\n", [], ["rows"]),
    "blank lines only": ("\n\n\n", [], ["header"]),
    "one row": ("label,prob_0,prob_1\n0,0.7,0.3\n", [], ["1 row", "2"]),
    "missing label column": (BASE.replace("label", "lable"), [], ["label", "lable"]),
    "remapped column that is not there": (BASE, ["--label", "lebel"], ["lebel", 'Did you mean "label"']),
    "remapped pattern that matches nothing": (BASE, ["--prob", "q*"], ["q*", "prob_0"]),
    "label outside the classes": (BASE.replace("\n1,", "\n7,"), [], ["label", "7", "row 1"]),
    "text label outside the classes": (BASE.replace("\n1,", "\ncat,"), [], ["cat", "row 1"]),
    "probabilities that do not sum to 1": (BASE.replace("0.8", "0.78"), [], ["sum", "row 1", "0.98"]),
    "logits in place of probabilities": (BASE.replace("0.7,0.3", "7,-3").replace("0.2,0.8", "-2,8"), [], ["logits"]),
    "probability above 1": (BASE.replace("0.2,0.8", "-0.8,1.8"), [], ["prob"]),
    "NaN": (BASE.replace("0.8", "nan"), [], ["prob_1", "row 1"]),
    "missing value": (BASE.replace("0.8", ""), [], ["prob_1", "row 1"]),
    "infinity": (BASE.replace("0.8", "inf"), [], ["row 1"]),
    "text among numbers": (BASE.replace("0.8", "high"), [], ["prob_1", "high"]),
    "duplicated columns": (BASE.replace("prob_1", "prob_0"), [], ["prob_0", "uplicate"]),
    "too many cells": (BASE + "1,0.5,0.5,0.5\n", [], [".csv"]),
    "unknown score": (BASE, ["--scores", "entrpy"], ["entrpy", 'Did you mean "entropy"']),
    "score that needs members": (BASE, ["--scores", "mutual_information"], ["mutual_information", "members"]),
    "empty list of scores": (BASE, ["--scores", ","], ["score"]),
    "unknown metric": (BASE, ["--metrics", "uqauc"], ["uqauc", 'Did you mean "uq_auc"']),
    "the usual name of a metric": (BASE, ["--metrics", "auroc"], ["auroc", 'Did you mean "uq_auc"']),
    "no such group column": (BASE, ["--by", "ward"], ["`ward` (--by)", "Leave --by out"]),
    "HTML named as a PDF": (BASE, ["--html", "page.pdf"], ["--html page.pdf is named as a PDF", "That is --pdf"]),
    "metric that needs soft labels": (BASE, ["--metrics", "kendall_phi"], ["kendall_phi", "soft_labels"]),
    "metric for two data sets": (BASE, ["--metrics", "ood_auroc"], ["ood_auroc"]),
    "empty list of metrics": (BASE, ["--metrics", ","], ["metrics"]),
    "level in percent": (BASE, ["--level", "95"], ["level", "0.95"]),
    "level 0": (BASE, ["--level", "0"], ["level"]),
    "level NaN": (BASE, ["--level", "nan"], ["level"]),
    "negative seed": (BASE, ["--seed", "-1"], ["seed"]),
    "unknown --by column": (BASE, ["--by", "hospital"], ["hospital"]),
    "--by group without such a column": (BASE, ["--by", "group"], ["group"]),
    "unknown --cluster column": (BASE, ["--cluster", "patient"], ["patient"]),
    "classes of another number": (BASE, ["--classes", "0,1,2"], ["classes"]),
    "class named twice": (BASE, ["--classes", "0,0"], ["classes"]),
    "pattern with two stars": (BASE, ["--prob", "p*b_*"], ["star"]),
    "neither model nor score": ("label,x\n0,1\n1,2\n", [], ["label", "x"]),
    "score without a target": ("score_a,x\n0,1\n1,2\n", [], ["error"]),
    "errors that are not 0 or 1": ("score_a,error\n0,0\n1,2\n", [], ["error", "2"]),
    "negative weight": (BASE.replace("prob_1\n", "prob_1,weight\n").replace("3\n", "3,-1\n"), [], []),
    "binary file": ("\x00\x01\x02", [], [".csv"]),
}


@each("case", BAD)
def test_bad_input_gives_one_message_and_no_number(case, tmp_path):
    text, options, parts = BAD[case]
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    message = fail("evaluate", path, *options)
    for part in parts:
        assert part in message
    assert fail("evaluate", path, *options, "--json", "-") == message


def test_demo_writes_files_to_try_commands_on_and_none_over_another(tmp_path):
    folder = tmp_path / "to try"
    assert "made up" in succeed("demo", "--files", folder)
    assert "1,547 rows" in succeed("evaluate", folder / "preds.parquet", "--metrics", "uq_auc", "--scores", "entropy")
    assert "there already" in fail("demo", "--files", folder)
    (tmp_path / "a file").touch()
    assert "cannot be made" in fail("demo", "--files", tmp_path / "a file")


def test_a_file_without_a_command_gets_the_command(csv):
    done = spawn(csv)
    assert done.returncode == 2
    assert f"Try: uqeval evaluate {csv}" in done.stderr.decode()


@each("name", ["a.parquet", "a.feather", "a.npz", "a.jsonl", "a.csv.gz"])
def test_a_truncated_file_is_named(tmp_path, name):
    path = tmp_path / name
    data = columns()
    table = pa.table({key: np.asarray(column).tolist() for key, column in data.items()})
    if name == "a.parquet":
        pq.write_table(table, path)
    elif name == "a.feather":
        pa.feather.write_feather(table, path)
    elif name == "a.npz":
        np.savez(path, labels=data["label"], score_a=data["score_mine"])
    elif name == "a.jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.CompressedOutputStream(str(path), "gzip") as sink:
            pa.csv.write_csv(table, sink)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    assert name in fail("evaluate", path)


def test_a_missing_file_suggests_the_nearest(csv):
    message = fail("evaluate", csv.with_name("pred.csv"))
    assert "pred.csv" in message
    assert 'Did you mean "preds.csv"' in message
    assert "no_such_folder" in fail("evaluate", csv.parent / "no_such_folder" / "a.csv")


def test_a_folder_is_not_a_file(tmp_path):
    assert "folder" in fail("evaluate", tmp_path)


def test_an_unknown_extension_lists_the_known_ones(tmp_path):
    for name in ("a.xlsx", "noextension"):
        path = tmp_path / name
        path.write_text(BASE)
        assert ".parquet" in fail("evaluate", path)


def test_a_glob_without_a_match_says_so(tmp_path):
    assert "no file matches" in fail("evaluate", tmp_path / "*.csv")


def test_a_file_named_twice_is_refused(csv):
    assert "twice" in fail("evaluate", csv, csv)


def test_files_of_different_columns_are_not_joined(csv, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(BASE)
    message = fail("evaluate", csv, other)
    assert "other.csv" in message
    assert "preds.csv" in message


@each("target", ["no_such_folder/out.json", "."])
def test_json_that_cannot_be_written_is_an_error(csv, tmp_path, target):
    for command in (["evaluate", csv], ["demo"], ["doctor"]):
        message = fail(*command, "--json", tmp_path / target)
        assert "--json" in message
    assert not (tmp_path / "no_such_folder").exists()


def test_an_existing_result_is_left_alone_when_the_input_is_bad(csv, tmp_path):
    (tmp_path / "out.json").write_text("old")
    fail("evaluate", csv, "--scores", "nonsense", "--json", tmp_path / "out.json")
    assert (tmp_path / "out.json").read_text() == "old"


@each("kind", ["list", "struct"])
@each("role", ["label", "pred", "group", "cluster", "id", "error", "weight", "score_a", "prob_0"])
def test_nested_values_in_a_column_are_an_error_that_names_it(tmp_path, role, kind):
    rows = [{"label": k % 2, "prob_0": 0.4, "prob_1": 0.6, "score_a": k, "error": k % 2} for k in range(6)]
    value = [1, 2] if kind == "list" else {"a": 1}
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row | {role: value}) + "\n" for row in rows))
    assert role in fail("evaluate", path)


@each(
    "args",
    [
        ["evaluate"],
        ["evaluate", "a.csv", "--level", "high"],
        ["evaluate", "a.csv", "--seed", "1.5"],
        ["evaluate", "a.csv", "--no-such-option"],
        ["evaluate", "a.csv", "--json"],
        ["no-such-command"],
        ["demo", "extra"],
        ["--no-such-option"],
    ],
)
def test_wrong_usage_is_told_with_the_usage(args):
    assert "rror" in misuse(*args)


@each("command", [["doctor"], ["demo"]])
def test_a_wrong_choice_of_kernels_is_one_message(command):
    done = spawn(*command, env={"UQEVAL_KERNELS": "fortran"})
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert b"fortran" in done.stderr


def test_a_file_name_that_is_not_utf8_is_one_message(tmp_path):
    done = spawn("evaluate", os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv"))
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"Error: ")
    assert b"Traceback" not in done.stderr


def test_bad_input_exits_with_2_from_a_shell_too(tmp_path):
    done = spawn("evaluate", tmp_path / "none.csv")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"Error: ")
    assert done.stderr.count(b"\n") == 1


# ---- interruptions ------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_without_a_traceback(csv, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    for where, name in ((uq, "evaluate"), (PredictionFiles, "read")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, interrupted, raising=False)
            result = call("evaluate", csv)
        assert result.code not in (0, 2)
        assert "Traceback" not in result.err
        assert result.out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_real_sigint_leaves_without_a_traceback(tmp_path):
    code = (
        "import sys, time, uqeval\n"
        "def slow(*a, **k):\n    print('started', flush=True)\n    time.sleep(60)\n"
        "uqeval.evaluate = slow\n"
        "from uqeval.cli.main import main\n"
        "sys.argv = ['uqeval', 'demo']\n"
        "main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, 2)
    assert b"Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
@each("options", [[], ["--json", "-"]])
def test_a_reader_that_leaves_early_causes_no_traceback(options):
    command = [sys.executable, "-m", "uqeval.cli.main", "demo", "--all", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
        process.wait(timeout=60)
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


def test_memory_that_runs_out_is_one_message(csv, monkeypatch):
    def exhausted(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(uq, "evaluate", exhausted)
    assert "memory" in fail("evaluate", csv)


# ---- any file at all ----------------------------------------------------------------------------------------------

NAMES = [
    *("label", "prob_0", "prob_1", "prob_2", "prob", "pred", "error", "loss", "score_a", "score_b", "score"),
    *("weight", "cluster", "group", "id", "logit_0", "logit_1", "soft_0", "soft_1", "member0_prob_0"),
    *("member1_prob_0", "", "x", "prob_[bold]", "score_:x:"),
]
CELLS = [
    *("0", "1", "2", "0.5", "0.25", "0.75", "-1", "1e-320", "1e400", "nan", "inf", "-inf", "", "cat", "true"),
    *("2024-01-01", "007", '"a,b"', '"', "'", "[/red]", "é", "\t", "9007199254740993", "0x10", "1_0"),
]


def check_survival(name, content, *options):
    """Exit 0 with a table, or 2 with one message; never anything else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        result = call("evaluate", path, *options)
    assert "Traceback" not in result.err
    assert result.code in (0, 2)
    if result.code:
        assert result.out == ""
        assert result.err.startswith("Error: ")
    else:
        assert result.err == ""


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=200), st.sampled_from(["csv", "tsv", "jsonl", "npz", "parquet", "feather"]))
def test_any_bytes_are_survived(content, extension):
    check_survival(f"a.{extension}", content)


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=200))
def test_any_text_is_survived(content):
    check_survival("a.csv", content.encode("utf-8", "surrogatepass"))


@settings(max_examples=40)
@given(st.data())
def test_any_table_is_survived(data):
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=data.draw(st.booleans())))
    few = data.draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.lists(st.sampled_from(few), min_size=len(names), max_size=len(names)), max_size=8))
    text = "\n".join(",".join(row) for row in [names, *rows]) + "\n"
    check_survival("a.csv", text.encode())


@settings(max_examples=40)
@given(
    st.sampled_from([["label", "prob_0", "prob_1"], ["score_a", "error"], ["score_a", "loss"], ["label", "prob"]]),
    st.lists(st.sampled_from(["weight", "cluster", "group", "pred", "score_b", "loss"]), max_size=2, unique=True),
    st.lists(st.lists(st.sampled_from(["0", "1", "0.5", "0.5", "1"]), min_size=5, max_size=5), min_size=2, max_size=9),
)
@example(["score_a", "loss"], [], [["0", "0.5", "0", "0", "0"], ["0", "0.5", "0", "0", "0"]])
@example(["score_a", "error"], ["weight"], [["1", "0", "0", "0", "0"], ["0", "1", "1", "0", "0"]])
def test_any_small_table_of_plausible_numbers_is_survived(names, more, rows):
    header = list(dict.fromkeys([*names, *more]))
    text = "\n".join(",".join(row[: len(header)]) for row in [header, *rows]) + "\n"
    check_survival("a.csv", text.encode())
    check_survival("a.csv", text.encode(), "--json", "-")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.sampled_from(["a", "", "0.5"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=40)
@given(st.data())
def test_any_json_lines_are_survived(data):
    base = {"label": st.integers(0, 1), "prob_0": st.just(0.25), "prob_1": st.just(0.75), "score_a": st.integers(0, 3)}
    odd = data.draw(
        st.sampled_from(["label", "prob_0", "score_a", "group", "cluster", "id", "weight", "error", "loss"])
    )
    value = data.draw(VALUES)
    row = st.fixed_dictionaries(base | {odd: st.just(value) | VALUES})
    rows = data.draw(st.lists(row, min_size=2, max_size=5))
    check_survival("a.jsonl", "\n".join(json.dumps(row) for row in rows).encode())
