"""`uqeval gate`, `evaluate --fail-under`, `apply`, `--csv`, and comparisons with what was stored."""

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from commands import call, fail, loaded, misuse, succeed


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Files of the example: all rows, another model on the same rows turned round, and two halves."""
    folder = tmp_path_factory.mktemp("rows")
    pred = uq.datasets.example()
    row = np.arange(pred.n)

    def made(probs):
        columns = {"id": row, "label": pred.labels, "site": np.array(["north", "south"])[row % 2]}
        return pa.table(columns | {f"prob_{k}": probs[:, k] for k in range(pred.n_classes)})

    whole = made(pred.probs)
    pq.write_table(whole, folder / "new.parquet")
    pa.csv.write_csv(made(pred.members[0]).take(pa.array(row[::-1])), folder / "other.csv")
    pq.write_table(whole.slice(0, 800), folder / "first.parquet")
    pq.write_table(whole.slice(800), folder / "second.parquet")
    return folder


def table(path):
    """The rows of a CSV file."""
    return list(csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()))


def policy(folder, **rule):
    path = folder / "policy.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in ({"metric": "uq_auc", "score": "entropy"} | rule).items()]
    path.write_text("\n".join(["[[rule]]", *lines, ""]))
    return path


def test_the_exit_code_is_the_verdict(rows, tmp_path):
    for limit, code, word in ((0.8, 0, "pass"), (0.9, 3, "too few rows to tell"), (0.99, 1, "fail")):
        done = call(
            "gate", policy(tmp_path, at_least=limit), rows / "new.parquet", "--junit", "g.xml", "--json", "g.json"
        )
        assert (done.code, done.err) == (code, "")
        assert done.out.startswith(f"{word}: 1 rule on 1,547 rows")
        found = loaded(Path("g.json").read_text())
        assert (found["status"], found["exit_code"]) == (word, code)
        suite = ET.parse("g.xml").getroot()[0]
        assert int(suite.attrib["failures"]) + int(suite.attrib["errors"]) == (code != 0)


def test_a_baseline_is_paired_by_its_key_and_the_file_itself_passes_any_margin(rows, tmp_path):
    rule, new = policy(tmp_path, margin=0.0), rows / "new.parquet"
    found = loaded(call("gate", rule, new, "--baseline", rows / "other.csv", "--key", "id", "--json", "-").out)
    pair = loaded(succeed("compare", new, rows / "other.csv", "--key", "id", "--scores", "entropy", "--json", "-"))
    assert found["baseline"] == "paired"
    assert found["verdicts"][0]["value"] == pair["pairs"][0]["difference"]
    for same in (new, tmp_path / "stored.json"):
        succeed("evaluate", new, "--scores", "entropy", "--metrics", "uq_auc", "--json", tmp_path / "stored.json")
        found = loaded(succeed("gate", rule, new, "--baseline", same, "--json", "-"))
        assert (found["status"], found["baseline"]) == ("pass", "the same rows and predictions")


def test_a_stored_baseline_of_other_rows_is_unpaired_in_gate_and_compare(rows, tmp_path):
    stored = tmp_path / "stored.json"
    succeed("evaluate", rows / "first.parquet", "--scores", "entropy", "--metrics", "uq_auc", "--json", stored)
    rule = policy(tmp_path, margin=0.2)
    found = loaded(succeed("gate", rule, rows / "second.parquet", "--baseline", stored, "--json", "-"))
    cmp = loaded(succeed("compare", rows / "second.parquet", stored, "--json", "-"))
    assert (found["baseline"], cmp["method"]) == ("unpaired", "unpaired")
    verdict, (pair, *_) = found["verdicts"][0], cmp["pairs"]
    assert [verdict[name] for name in ("value", "low", "high")] == [pair[x] for x in ("difference", "low", "high")]
    assert any("unpaired" in note for note in cmp["warnings"])
    assert "the same files" in fail("compare", rows / "first.parquet", stored)
    pa.csv.write_csv(pq.read_table(rows / "first.parquet"), tmp_path / "copy.csv")
    assert "the same labels" in fail("compare", tmp_path / "copy.csv", stored)
    assert "holds estimates and no rows" in fail("compare", rows / "second.parquet", stored, "--key", "id")


def test_fail_under_and_over_judge_what_was_evaluated(rows):
    asked = ("evaluate", rows / "new.parquet", "--scores", "entropy", "--metrics", "uq_auc,aurc", "-q")
    for options, code in (
        (["--fail-under", "uq_auc=0.8"], 0),
        (["--fail-under", "uq_auc=0.9"], 3),
        (["--fail-under", "uq_auc=0.9", "--fail-on", "value"], 0),
        (["--fail-under", "entropy:uq_auc=0.99"], 1),
        (["--fail-under", "uq_auc=0.8", "--fail-over", "aurc=0.001"], 1),
        (["--fail-under", "uq_auc=0.8,uq_auc=0.9"], 3),
    ):
        done = call(*asked, *options)
        assert (done.code, done.err, done.out) == (code, "", ""), options
    assert "pass: 1 rule" in succeed(*asked[:-1], "--fail-under", "uq_auc=0.8")
    assert json.loads(call(*asked[:-1], "--fail-under", "uq_auc=0.99", "--json", "-").out)["n"] == 1547
    for options, text in (
        (["--fail-under", "aurc=0.1"], "Use --fail-over"),
        (["--fail-under", "ece=0.1"], "Use --fail-over"),
        (["--fail-under", "accuracy=0.1"], "There is no estimate"),
        (["--fail-on", "value"], "belongs to --fail-under"),
        (["--approx", "0.01", "--fail-under", "uq_auc=0.8"], "leave"),
    ):
        assert text in fail(*asked, *options), options


def test_inside_a_github_job_the_commit_and_the_summary_are_told(rows, tmp_path):
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    asked = ("gate", policy(tmp_path, at_least=0.99), rows / "new.parquet")
    done = call(*asked, "-q", env=env)
    assert (done.code, done.out.count("\n")) == (1, 1)
    assert done.out.startswith("::error title=uqeval gate%3A fail::entropy: uq_auc ≥ 0.99")
    done = call(*asked, "--json", "-", env=env)
    assert loaded(done.out)["status"] == "fail"
    assert done.err.startswith("::error ")
    assert (tmp_path / "summary.md").read_text().count("### ❌ uqeval gate: fail") == 2


def test_a_summary_that_cannot_be_written_changes_no_verdict(rows, tmp_path):
    for limit, code in ((0.8, 0), (0.99, 1)):
        asked = ("gate", policy(tmp_path, at_least=limit), rows / "new.parquet", "--json", "g.json")
        done = call(*asked, env={"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "summary.md")})
        assert (done.code, loaded(Path("g.json").read_text())["exit_code"]) == (code, code)
        assert done.err.startswith("! GITHUB_STEP_SUMMARY: ")


def test_a_stored_baseline_of_the_same_rows_or_without_the_metric_is_refused(rows, tmp_path):
    asked = ("gate", policy(tmp_path, margin=0.02), rows / "new.parquet", "--baseline", "old.json")
    turned = pa.csv.read_csv(rows / "other.csv").sort_by("id")
    pq.write_table(turned, "turned.parquet")
    succeed("evaluate", "turned.parquet", "--scores", "entropy", "--metrics", "uq_auc", "--json", "old.json")
    assert "The baseline is of the same rows (the same labels)" in fail(*asked)
    succeed("evaluate", rows / "second.parquet", "--scores", "entropy", "--metrics", "aurc", "--json", "old.json")
    assert "The baseline holds no uq_auc of entropy" in fail(*asked)


def test_csv_holds_estimates_pairs_and_accepted_rows(rows):
    new = rows / "new.parquet"
    succeed("evaluate", new, "--scores", "entropy", "--metrics", "uq_auc", "--by", "site", "--csv", "e.csv")
    found = table("e.csv")
    assert [row["group"] for row in found] == ["", "north", "south"]
    assert float(found[0]["value"]) == pytest.approx(0.9067642797224129)
    succeed("compare", new, "--scores", "entropy,margin", "--metric", "uq_auc,aurc", "--csv", "c.csv")
    assert [row["metric"] for row in table("c.csv")] == ["uq_auc", "aurc"]
    succeed("threshold", new, "--score", "entropy", "--max-risk", 0.05, "--csv", "a.csv", "--json", "t.json")
    accepted = table("a.csv")
    promise = uq.Threshold.from_json(Path("t.json"))
    assert len(accepted) == promise.n_accepted
    assert all(float(row["entropy"]) <= promise.value and row["id"] == row["row"] for row in accepted)


def test_a_name_that_begins_like_a_formula_is_text_in_csv(tmp_path):
    columns = {"score_=1+1": [0.1, 0.9, 0.2, 0.8], "error": [0, 1, 1, 0], "site": ["@a", "@a", "-b", "-b"]}
    pa.csv.write_csv(pa.table(columns), tmp_path / "preds.csv")
    call("evaluate", tmp_path / "preds.csv", "--metrics", "uq_auc", "--by", "site", "--csv", "e.csv")
    found = table("e.csv")
    assert {row["score"] for row in found} == {"'=1+1"}
    assert {row["group"] for row in found} == {"", "'@a", "'-b"}


def test_apply_marks_the_rows_and_says_how_many(rows, tmp_path):
    promise = tmp_path / "t.json"
    succeed("threshold", rows / "first.parquet", "--score", "entropy", "--max-risk", "0.05,0.1", "--json", promise)
    asked = ("apply", promise, rows / "second.parquet", "--out", tmp_path / "out.parquet")
    assert "Pick one with --max-risk" in fail(*asked)
    found = loaded(succeed(*asked, "--max-risk", 0.05, "--column", "act", "--json", "-"))
    marked = pq.read_table(tmp_path / "out.parquet")["act"].to_pylist()
    assert (found["rows"], found["accepted"]) == (len(marked), sum(marked))
    assert f"{found['accepted']} of {found['rows']} rows accepted" in succeed(*asked, "--max-risk", 0.05)
    assert '"margin" is another one' in fail(*asked, "--max-risk", 0.05, "--score", "margin")
    second = rows / "second.parquet"
    assert "would overwrite" in fail("apply", promise, second, "--out", second, "--max-risk", 0.05)
    assert "Keep the format" in fail("apply", promise, second, "--out", tmp_path / "o.csv", "--max-risk", 0.05)
    assert "--out" in misuse("apply", promise, second)


def test_what_a_gate_cannot_read_is_one_message(rows, tmp_path):
    new = rows / "new.parquet"
    assert "none.toml: there is no such file. Pass a policy" in fail("gate", tmp_path / "none.toml", new)
    assert "--baseline FILE" in fail("gate", policy(tmp_path, margin=0.1), new)
    (tmp_path / "wrong.json").write_text('{\n  "schema_version": 1, "n": 3}')
    assert "wrong.json: This is not the JSON of an Evaluation" in fail(
        "gate", policy(tmp_path, margin=0.1), new, "--baseline", tmp_path / "wrong.json"
    )
    assert "would overwrite" in fail("gate", policy(tmp_path, at_least=0.1), new, "--junit", tmp_path / "policy.toml")
    assert "no groups" in fail("gate", policy(tmp_path, at_least=0.1, group="worst"), new)
