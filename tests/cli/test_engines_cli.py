"""Many rows from the command line: engines, files that would not fit, certain bounds, and how a run is broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from cases import each
from commands import call, fail, loaded, succeed
from uqeval.distributed import memory as bigger
from uqeval.distributed.engines.local import moving


def table(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    risk = rng.random(n)
    return pa.table(
        {
            "score_a": np.round(risk, 2),
            "score_b": risk + rng.normal(size=n),
            "error": (rng.random(n) < risk / 3).astype(np.int64),
            "loss": np.round(risk * rng.random(n), 3),
            "hospital": np.array(["north", "south"])[rng.integers(0, 2, n)],
            "patient": [f"p{k}" for k in rng.integers(0, 300, n)],
        }
    )


@pytest.fixture
def rows(tmp_path):
    pq.write_table(table(), tmp_path / "rows.parquet", row_group_size=300)
    return tmp_path / "rows.parquet"


def estimates(text):
    return {(row["score"], row["metric"], row["group"]): row for row in json.loads(text)["estimates"]}


def assert_same_json(memory, found):
    """The same estimates; beside them only what the run cost."""
    assert json.loads(found).keys() == json.loads(memory).keys() | {"run"}
    a, b = estimates(memory), estimates(found)
    assert a.keys() == b.keys()
    for key, row in a.items():
        for name in ("value", "low", "high", "se"):
            assert b[key][name] == pytest.approx(row[name], rel=1e-9), key
        assert (b[key]["n"], b[key]["method"]) == (row["n"], row["method"])


SOME = ("--metrics", "uq_auc,uq_c_index,aurc,accuracy", "--json", "-")


@each("options", [[], ["--by", "hospital"], ["--cluster", "patient"], ["--scores", "b", "--level", "0.9"]])
def test_the_local_engine_gives_the_json_of_the_rows_in_memory(rows, options):
    memory = succeed("evaluate", rows, *SOME, *options)
    found = succeed("evaluate", rows, *SOME, *options, "--engine", "local", "--memory", "300MB")
    assert_same_json(memory, found)
    run = json.loads(found)["run"]
    assert (run["engine"], run["rows"]) == ("local", 2000)
    assert run["passes"] >= 2
    assert run["moved_bytes"] > 0
    assert run["seconds"]["total"] > 0


def test_csv_and_columns_of_other_names_do(tmp_path):
    other = table().rename_columns(["unc_a", "unc_b", "wrong", "nll", "group", "cluster"])
    pa.csv.write_csv(other, tmp_path / "rows.csv")
    names = ("--score-columns", "unc_*", "--error", "wrong", "--loss", "nll")
    memory = succeed("evaluate", tmp_path / "rows.csv", *SOME, *names)
    assert_same_json(memory, succeed("evaluate", tmp_path / "rows.csv", *SOME, *names, "--engine", "local"))
    assert {key[2] for key in estimates(memory)} == {None, "north", "south"}


def test_probabilities_do(tmp_path):
    pred = uq.datasets.example()
    columns = {"label": pred.labels} | {f"prob_{k}": pred.probs[:, k] for k in range(pred.n_classes)}
    pq.write_table(pa.table(columns), tmp_path / "preds.parquet")
    some = ("--scores", "entropy,margin", "--metrics", "uq_auc,uq_c_index,aurc,brier,ece", "--json", "-")
    memory = succeed("evaluate", tmp_path / "preds.parquet", *some)
    assert_same_json(memory, succeed("evaluate", tmp_path / "preds.parquet", *some, "--engine", "local"))


def test_the_table_ends_with_what_the_run_cost(rows, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    out = succeed("evaluate", rows, "--engine", "local", "--scores", "a")
    assert "UQ-AUC" in out
    last = out.strip().splitlines()[-1]
    assert last.startswith("2,000 rows in 1 parts, local engine: ")
    assert all(word in last for word in ("passes", "shuffles", "moved", " s"))


def test_a_report_can_be_written_without_the_rows(rows, tmp_path):
    succeed("evaluate", rows, "--engine", "local", "--html", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_files_that_would_not_fit_are_read_piece_by_piece_and_that_is_said(rows, monkeypatch):
    memory = succeed("evaluate", rows, *SOME)
    monkeypatch.setattr(bigger, "memory_available", lambda: 300_000)
    done = call("evaluate", rows, *SOME)
    assert done.code == 0
    assert "the rows would need about" in done.err
    assert "piece by piece" in done.err
    assert_same_json(memory, done.out)
    assert loaded(succeed("evaluate", rows, *SOME, "--engine", "memory")) == loaded(memory)
    assert call("evaluate", rows, "--quiet", "--json", "x.json").err == ""


def test_compare_goes_the_same_way(rows):
    asked = ("compare", rows, "--scores", "a,b", "--metric", "uq_c_index", "--cluster", "patient")
    memory = json.loads(succeed(*asked, "--json", "-"))
    found = json.loads(succeed(*asked, "--engine", "local", "--json", "-"))
    assert found["pairs"][0]["difference"] == pytest.approx(memory["pairs"][0]["difference"], rel=1e-9)
    assert found["pairs"][0]["se"] == pytest.approx(memory["pairs"][0]["se"], rel=1e-9)
    assert "a − b" in succeed(*asked, "--engine", "local")


@each("options", [["--by", "hospital"], ["--by", "hospital", "--cluster", "patient"]])
def test_compare_by_group_goes_the_same_way(rows, options):
    asked = ("compare", rows, "--scores", "a,b", "--metric", "uq_auc", *options, "--json", "-")
    memory, found = json.loads(succeed(*asked)), json.loads(succeed(*asked, "--engine", "local"))
    assert [pair["group"] for pair in found["pairs"]] == [None, "north", "south"]
    for a, b in zip(memory["pairs"], found["pairs"], strict=True):
        assert [b.pop(name) for name in ("a", "b", "group")] == [a.pop(name) for name in ("a", "b", "group")]
        assert b == pytest.approx(a, rel=1e-9)
    assert [test["p"] for test in found["heterogeneity"]] == pytest.approx([t["p"] for t in memory["heterogeneity"]])
    assert found["warnings"] == memory["warnings"]
    assert found.keys() == memory.keys() | {"run"}


def test_compare_ends_with_what_the_runs_cost(rows, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    out = succeed("compare", rows, "--metric", "uq_auc,aurc", "--engine", "local")
    assert [line[:35] for line in out.strip().splitlines()[-2:]] == ["2,000 rows in 1 parts, local engine"] * 2
    assert "engine" not in succeed("compare", rows)


@each("command", ["evaluate", "compare"])
def test_spill_names_the_folder_of_temporary_rows(rows, tmp_path, command, monkeypatch):
    (tmp_path / "spill").mkdir(exist_ok=True)
    used = []
    real = moving.Spill.__init__
    monkeypatch.setattr(moving.Spill, "__init__", lambda self, folder, n: used.append(folder) or real(self, folder, n))
    succeed(command, rows, "--engine", "local", "--spill", tmp_path / "spill")
    assert set(used) == {str(tmp_path / "spill")}
    assert os.listdir(tmp_path / "spill") == []


# ---- certain bounds ---------------------------------------------------------------------------------------------


def test_approx_prints_bounds_that_hold_the_value_and_says_what_they_are_not(rows):
    exact = estimates(succeed("evaluate", rows, "--metrics", "uq_auc,uq_c_index,aurc,augrc", "--json", "-"))
    found = json.loads(succeed("evaluate", rows, "--approx", "0.01", "--json", "-"))
    assert "not a confidence interval" in found["kind"]
    assert found["run"]["passes"] == 1
    for name in ("a", "b"):
        for metric in ("uq_auc", "uq_c_index", "augrc"):
            bounds = found["scores"][name][metric]
            assert bounds["lower"] - 1e-12 <= exact[name, metric, None]["value"] <= bounds["upper"] + 1e-12
            assert bounds["width"] < 0.05
    out = succeed("evaluate", rows, "--approx", "0.01")
    assert "not a confidence interval" in out
    assert "1 pass" in out
    assert "UQ-C-index" in out


def test_approx_computes_scores_from_probabilities(tmp_path):
    pred = uq.datasets.example()
    columns = {"label": pred.labels} | {f"prob_{k}": pred.probs[:, k] for k in range(pred.n_classes)}
    pq.write_table(pa.table(columns), tmp_path / "preds.parquet", row_group_size=200)
    found = json.loads(
        succeed("evaluate", tmp_path / "preds.parquet", "--scores", "entropy", "--approx", "1e-3", "--json", "-")
    )
    value = uq.evaluate(pred, scores="entropy", metrics="uq_auc")["entropy", "uq_auc"].value
    bounds = found["scores"]["entropy"]["uq_auc"]
    assert bounds["lower"] <= value <= bounds["upper"]


def test_approx_rejects_missing_values_with_their_row(tmp_path):
    pq.write_table(pa.table({"score": [0.5, 0.2, None, 0.1], "error": [0, 1, 1, 0]}), tmp_path / "x.parquet")
    assert "row 2" in fail("evaluate", tmp_path / "x.parquet", "--approx", "0.01")


# ---- wrong usage ------------------------------------------------------------------------------------------------


@each(
    ("options", "said"),
    [
        (["--engine", "sparc"], "memory, local, dask, spark"),
        (["--scheduler", "tcp://here:1"], "--engine dask or spark"),
        (["--engine", "memory", "--memory", "2GB"], "--engine local"),
        (["--engine", "local", "--memory", "lots"], "2GB"),
        (["--engine", "local", "--method", "bootstrap"], "--engine memory"),
        (["--engine", "local", "--by", "hopsital"], "hospital"),
        (["--approx", "0.01", "--by", "hospital"], "--by"),
        (["--approx", "0.01", "--largest-cluster", "9"], "--largest-cluster"),
        (["--approx", "0.01", "--fail-on", "value"], "--fail-on"),
        (["--approx", "0.01", "--engine", "dask"], "--engine"),
        (["--approx", "0.01", "--method", "bootstrap"], "--method"),
        (["--approx", "0.01", "--spill", "."], "--spill"),
        (["--engine", "memory", "--spill", "."], "--engine local"),
        (["--engine", "local", "--spill", "no/such/folder"], "no/such/folder"),
        (["--approx", "7"], "1e-6"),
    ],
)
def test_what_cannot_go_together_is_one_message(rows, options, said):
    assert said in fail("evaluate", rows, *options)


def test_compare_of_models_stays_in_memory(rows, tmp_path):
    pq.write_table(table(), tmp_path / "other.parquet")
    assert "in memory only" in fail("compare", rows, tmp_path / "other.parquet", "--engine", "local")
    assert "--engine memory" in fail("compare", rows, "--engine", "local", "--method", "bootstrap")


def test_doctor_tells_which_engines_there_are():
    facts = json.loads(succeed("doctor", "--json", "-"))
    assert facts["engine local"] == "ready"
    assert {"engine dask", "engine spark", "duckdb"} <= facts.keys()


# ---- broken off -------------------------------------------------------------------------------------------------

SLOW = """
import sys, time
from uqeval.distributed.engines.local.moving import Spill
append = Spill.append
def slow(self, *args):
    append(self, *args)
    print("moving", flush=True)
    time.sleep(0.3)
Spill.append = slow
from uqeval.cli.main import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@each(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_broken_off_leaves_no_temporary_files(rows, tmp_path, number, code):
    (tmp_path / "temporary").mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    env |= {"TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", SLOW, "evaluate", str(rows), "--engine", "local"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout.readline().startswith(b"moving")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert os.listdir(tmp_path / "temporary") == []


# ---- clusters of workers ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dask_gives_the_json_of_the_rows_in_memory(rows):
    pytest.importorskip("distributed")
    memory = succeed("evaluate", rows, *SOME)
    from commands import spawn

    done = spawn("evaluate", rows, *SOME, "--engine", "dask", "--memory", "1GB")
    assert done.returncode == 0, done.stderr
    assert_same_json(memory, done.stdout.decode())


@pytest.mark.slow
def test_spark_gives_the_json_of_the_rows_in_memory(rows):
    import shutil

    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    memory = succeed("evaluate", rows, *SOME)
    from commands import spawn

    done = spawn("evaluate", rows, *SOME, "--engine", "spark", "--memory", "1GB")
    assert done.returncode == 0, done.stderr
    assert_same_json(memory, done.stdout.decode())
