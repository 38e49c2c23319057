"""Logs of language models on the command line: one command, no option, and what was read as what."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest

import llm_logs as logs
import uqeval as uq
from commands import call, fail, succeed

WRITERS = {
    "lm-eval-harness": logs.lm_eval,
    "HELM": logs.helm,
    "Every Eval Ever": logs.every_eval_ever,
    "Inspect": lambda folder, *rows: logs.inspect_json(folder / "log.json", *rows),
    "uqlm": lambda folder, *rows: logs.uqlm_csv(folder / "result.csv", *rows),
    "lm-polygraph": lambda folder, *rows: logs.lm_polygraph(folder / "ue_manager_seed1", *rows),
}


def test_each_of_six_formats_is_evaluated_by_one_command_without_options(tmp_path):
    pytest.importorskip("torch")
    right, confidence = logs.answers()
    for kind, write in WRITERS.items():
        folder = tmp_path / kind.replace(" ", "-")
        folder.mkdir()
        path = write(folder, right, confidence)
        for target in (folder, path):
            out = succeed("evaluate", target)
            assert out.startswith(f"{kind}: 60 answers"), kind
            assert "quality" in out.splitlines()[0]
            assert f"{60 - right.sum()} errors, accuracy {right.mean():.3f}" in out, kind


def test_two_runs_are_paired_by_document_and_compared_in_accuracy_and_uncertainty(tmp_path):
    right, confidence = logs.answers(200)
    worse = right * (np.arange(200) % 3 > 0)
    logs.lm_eval(tmp_path / "runA", right, confidence)
    path = logs.lm_eval(tmp_path / "runB", worse, confidence, model="org__other")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:0:-1]))  # another order, and the first document is missing
    out = succeed("compare", tmp_path / "runA", tmp_path / "runB", "--scores", "gap_to_certain")
    assert "accuracy (higher is better), 199 rows" in out
    assert "UQ-AUC (higher is better), 199 rows" in out
    assert "1 of 200 answers are not in every run and are left out" in " ".join(out.split())
    done = call("compare", tmp_path / "runA", tmp_path / "runB", "--scores", "gap_to_certain", "--json", "-")
    accuracy, ranking = json.loads(done.out)
    assert accuracy["pairs"][0]["difference"] == pytest.approx(right[1:].mean() - worse[1:].mean())
    assert accuracy["pairs"][0]["p"] < 1e-6
    assert ranking["metric"] == "uq_auc"
    assert done.err.startswith("lm-eval-harness: 200 answers")


def test_graded_answers_of_two_runs_are_compared_by_what_grades_allow(tmp_path):
    right, confidence = logs.answers(100)
    for name, grade in (("a", 0.5), ("b", 0.25)):
        (tmp_path / name).mkdir()
        path = logs.inspect_json(tmp_path / name / "log.json", right, confidence)
        path.write_text(path.read_text().replace('"value": "C"', f'"value": {grade}'))
    out = succeed("compare", tmp_path / "a", tmp_path / "b")
    assert "accuracy of the surest 80% (higher is better), 100 rows" in out
    assert "PRR (higher is better), 100 rows" in out


def test_a_run_of_several_epochs_and_one_of_a_single_epoch_have_the_answers_of_that_in_common(tmp_path):
    right, confidence = logs.answers(100)
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths.append(logs.inspect_json(tmp_path / name / "log.json", right, confidence))
    more = json.loads(paths[0].read_text())
    more["samples"] += [sample | {"epoch": 2} for sample in more["samples"]]
    paths[0].write_text(json.dumps(more))
    for runs in ((tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a")):
        out = succeed("compare", *runs)
        assert "accuracy (higher is better), 100 rows" in out
        assert "100 of 200 answers are not in every run and are left out" in " ".join(out.split())


def test_runs_that_are_judged_differently_or_of_other_tasks_are_not_paired(tmp_path):
    right, confidence = logs.answers(100)
    logs.lm_eval(tmp_path / "a", right, confidence)
    path = logs.lm_eval(tmp_path / "b", right, confidence)
    path.write_text(path.read_text().replace('"acc":', '"exact_match":'))
    assert "is judged by acc and" in fail("compare", tmp_path / "a", tmp_path / "b")
    runs = [tmp_path / "c", tmp_path / "d"]
    for run in runs:
        run.mkdir()
        logs.inspect_json(run / "log.json", right, confidence)
    path = runs[1] / "log.json"
    text = path.read_text()
    path.write_text(text.replace('"task": "quiz"', '"task": "exam"'))
    assert "question 1 of one task is not that of another" in fail("compare", *runs)
    path.write_text(text.replace('"task": "quiz"', '"task": "quiz", "task_args_passed": {"cot": true}'))
    said = succeed("compare", *runs, "--metric", "accuracy")
    assert "the tasks have other arguments (quiz; quiz(cot=True)): are their questions the same?" in " ".join(
        said.split()
    )


def test_options_choose_quality_filter_and_direction(tmp_path):
    right, confidence = logs.answers()
    path = logs.inspect_json(tmp_path / "log.json", right, confidence)
    out = succeed("evaluate", path, "--confidence", "metadata.difficulty", "--log-format", "inspect")
    assert "uncertainty metadata.difficulty" in out
    assert 'no filter "loose"' in fail("evaluate", logs.lm_eval(tmp_path, right, confidence), "--filter", "loose")
    assert "`label` names a column of a table" in fail("evaluate", tmp_path, "--label", "y", "--filter", "none")
    assert "`cluster` names a column of a table" in fail("evaluate", tmp_path, "--cluster", "doc_id")
    assert "is no log that is known" in fail("evaluate", __file__, "--filter", "none")


def test_the_json_says_what_a_log_was_read_as_and_is_read_back(tmp_path):
    right, confidence = logs.answers(100)
    path = logs.inspect_json(tmp_path / "log.json", right, confidence)
    log = json.loads(path.read_text())
    del log["samples"][0]["scores"]["judge"]  # not judged
    del log["samples"][1]["scores"]["judge"]["metadata"]  # no confidence
    again = [sample | {"epoch": 2} for sample in log["samples"]]
    path.write_text(json.dumps(log | {"samples": log["samples"] + again, "status": "cancelled"}))
    text = succeed("evaluate", path, "--json", "-", "--quiet", "--metrics", "uq_auc")
    (read,) = json.loads(text)["provenance"]["logs"]
    assert read == {
        "format": "Inspect",
        "files": [str(path)],
        "model": "org/tiny",
        "tasks": ["quiz"],
        "answers": 196,
        "questions": 98,
        "cluster": "question",
        "group": None,
        "quality": [{"name": "judge", "higher_is": "better"}],
        "uncertainty": [{"name": "judge.confidence", "higher_is": "less sure", "turned_round": True}],
        "left_out": {"without_judgement": 2, "without_score": 2},
        "notes": ['the status of the run is "cancelled"'],
    }
    assert uq.Evaluation.from_json(text).to_json() + "\n" == text
    validate = jsonschema.Draft202012Validator(uq.schemas.schema("evaluation")).validate
    validate(json.loads(text))
    named = succeed("evaluate", path, "--json", "-", "--quiet", "--score-columns", "metadata.difficulty")
    (read,) = json.loads(named)["provenance"]["logs"]
    assert read["uncertainty"] == [{"name": "metadata.difficulty", "higher_is": "less sure", "turned_round": False}]
    turned = succeed("evaluate", path, "--json", "-", "--quiet", "--confidence", "metadata.difficulty")
    (read,) = json.loads(turned)["provenance"]["logs"]
    assert read["uncertainty"] == [{"name": "metadata.difficulty", "higher_is": "less sure", "turned_round": True}]


def test_the_json_of_two_runs_says_what_each_was_read_as_and_that_of_a_table_nothing(tmp_path):
    right, confidence = logs.answers(100)
    for name in ("a", "b"):
        logs.lm_eval(tmp_path / name, right, confidence, task="boolq", choices=2)
        logs.lm_eval(tmp_path / name, right, confidence)
    text = succeed("compare", tmp_path / "a", tmp_path / "b", "--json", "-", "--quiet", "--metric", "accuracy")
    found = json.loads(text)
    jsonschema.Draft202012Validator(uq.schemas.schema("comparison")).validate(found)
    first, second = found["provenance"]["logs"]
    assert len(first["files"]) == 2
    assert {**first, "files": 0} == {**second, "files": 0}
    assert (first["tasks"], first["group"], first["cluster"]) == (["arc_easy", "boolq"], "task", None)
    table = tmp_path / "table.csv"
    table.write_text("error,score_a\n0,0.1\n1,0.7\n0,0.3\n1,0.4\n")
    assert json.loads(succeed("evaluate", table, "--json", "-", "--quiet"))["provenance"]["logs"] == []


def test_a_report_names_the_files_of_the_logs(tmp_path):
    right, confidence = logs.answers(100)
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        logs.lm_eval(run, right, confidence)
    succeed("evaluate", runs[0], "--html", tmp_path / "page.html", "--quiet")
    assert "samples_arc_easy_2026-08-01" in (tmp_path / "page.html").read_text()
    succeed("compare", *runs, "--html", tmp_path / "two.html", "--quiet", "--metric", "accuracy", "--score", "entropy")
    assert (tmp_path / "two.html").read_text().count("samples_arc_easy_2026-08-01") >= 2


def test_other_commands_read_logs_too(tmp_path):
    right, confidence = logs.answers(400)
    logs.lm_eval(tmp_path, right, confidence)
    out = succeed("threshold", tmp_path, "--score", "gap_to_certain", "--max-risk", "0.25")
    assert "With 95% confidence, at most 25% of the accepted" in " ".join(out.split())


def test_a_table_with_named_columns_stays_a_table(tmp_path):
    right, confidence = logs.answers()
    path = logs.uqlm_csv(tmp_path / "result.csv", right, confidence)
    out = succeed("evaluate", path, "--score-columns", "discrete_entropy_value", "--correct", "correct")
    assert not out.startswith("uqlm")
    assert "discrete_entropy_value ranks errors best" in out
