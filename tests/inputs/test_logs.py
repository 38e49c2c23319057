"""Logs of language models: each of six formats is read as it is, and nothing is read upside down."""

from __future__ import annotations

import gzip
import json
import pickle
import warnings
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import llm_logs as logs
import uqeval as uq
from uqeval._errors import InputError

TINY = Path(__file__).with_name("tiny.eval")  # written by inspect_ai 0.3.285: 6 questions, 2 epochs, zstd members


def refused(path, **options):
    with pytest.raises(InputError) as raised:
        uq.read_logs(path, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def auc(right, confidence):
    return uq.metrics.uq_auc(-confidence, 1 - right)


# ---- each format ----------------------------------------------------------------------------------------------------


def test_multiple_choice_of_the_harness_becomes_labels_and_logits(tmp_path):
    right, confidence = logs.answers()
    pred = uq.read_logs(logs.lm_eval(tmp_path, right, confidence))
    assert pred.logits.shape == (60, 3)
    assert (pred.error == 1 - right).all()
    assert (uq.truth.error_of(pred) == (pred.probs.argmax(axis=1) != pred.labels)).all()
    assert uq.scores.compute("gap_to_certain", pred) == pytest.approx(1 - confidence, abs=1e-12)
    assert pred.clusters is None
    assert "60 answers of arc_easy; quality acc (higher is better)" in pred.read_as


def test_acc_norm_comes_with_log_probabilities_per_character(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence)
    pred = uq.read_logs(path, quality="acc_norm")
    lengths = np.array([2, 8, 14])
    assert pred.logits == pytest.approx(uq.read_logs(path).logits / lengths, rel=1e-12)
    assert (uq.truth.error_of(pred) == (pred.logits.argmax(axis=1) != pred.labels)).all()
    wrong = [json.loads(line) for line in path.read_text().splitlines()]
    wrong[0]["acc_norm"] = 1 - wrong[0]["acc_norm"]
    assert "`acc_norm` cannot be had again" in refused(logs.jsonl(path, wrong), quality="acc_norm")


def test_several_tasks_are_groups_and_unequal_numbers_of_choices_probabilities(tmp_path):
    right, confidence = logs.answers(least=0.55)
    logs.lm_eval(tmp_path, right, confidence)
    logs.lm_eval(tmp_path, right, confidence, task="boolq", choices=2)
    pred = uq.read_logs(tmp_path)
    assert (pred.n, pred.group_names, pred.logits) == (120, ("arc_easy", "boolq"), None)
    assert (pred.probs[pred.groups == 1][:, 2] == 0).all()
    assert uq.scores.compute("gap_to_certain", pred) == pytest.approx(np.tile(1 - confidence, 2), abs=1e-12)


def test_mutual_information_takes_the_first_half_of_the_choices(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence)
    plain = uq.read_logs(path).logits
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        record["filtered_resps"] += [["-1.0", "False"]] * 3
        record["acc_mutual_info"] = record["acc"]
    logs.jsonl(path, records)
    assert (uq.read_logs(path).logits == plain).all()
    assert uq.read_logs(path, quality="acc_mutual_info").logits == pytest.approx(plain + 1.0, abs=1e-12)


def generated(folder, **more):
    """Answers in words, 4 to each question, through two filters."""
    records = [
        {"doc_id": k, "doc": {}, "target": "4", "arguments": {}, "resps": [list(["444", "4444", "44454"][k % 3])]}
        | {"filtered_resps": [["4"]], "filter": name, "metrics": ["exact_match"], "doc_hash": f"h{k}"}
        | {"exact_match": float((k + (name == "loose")) % 2)}
        | more
        for name in ("strict", "loose")
        for k in range(6)
    ]
    return logs.jsonl(folder / "samples_gsm8k.jsonl", records)


def test_one_filter_is_taken_and_repeats_tell_how_far_answers_differ(tmp_path):
    path = generated(tmp_path)
    pred = uq.read_logs(path)
    assert pred.n == 6
    assert "filter strict of strict, loose" in pred.read_as
    assert (uq.read_logs(path, filter="loose").error == 1 - pred.error).all()
    assert pred.scores["answer_disagreement"] == pytest.approx([0, 0, 0.2] * 2)
    assert 'has no filter "none". Its filters: strict, loose.' in refused(path, filter="none")


def test_a_lone_continuation_scores_by_its_nll(tmp_path):
    found = [["-2.5", "False"]]
    path = generated(tmp_path, filtered_resps=found, acc=1.0)
    assert uq.read_logs(path, quality="exact_match").scores["sequence_nll"].tolist() == [2.5] * 6


def test_an_eval_file_that_inspect_wrote_gives_the_accuracy_that_inspect_reports():
    pred = uq.read_logs(TINY)
    assert 1 - pred.error.mean() == pytest.approx(0.5833333333333334)  # results.scores[0].metrics.accuracy of the file
    assert len(pred.cluster_values) == 6
    assert list(pred.scores) == ["sequence_nll", "mean_token_nll", "mean_token_entropy", "answer_disagreement"]
    both = pred.scores["answer_disagreement"][pred.ids == "q0/1"]
    assert both.tolist() == [0.5]  # "no" and "yes"
    assert np.isfinite(pred.scores["mean_token_entropy"]).all()


def test_a_member_of_several_zstd_frames_and_a_sample_that_was_run_again_are_read(tmp_path):
    codec = pa.Codec("zstd")

    def member(archive, name, held, frames=1):
        text = json.dumps(held).encode()
        cuts = [len(text) * k // frames for k in range(frames + 1)]
        packed = b"".join(codec.compress(text[a:b], asbytes=True) for a, b in pairwise(cuts))
        info = zipfile.ZipInfo(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same name twice
            archive.writestr(info, packed)
        info.compress_type, info.file_size = 93, len(text)  # what the directory says of it

    right, confidence = logs.answers(6)
    log = json.loads(logs.inspect_json(tmp_path / "log.json", right, confidence).read_text())
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        member(archive, "header.json", {key: log[key] for key in ("version", "status", "eval")})
        broken = log["samples"][0] | {"scores": {}}
        for sample in (broken, *log["samples"]):
            member(archive, f"samples/{sample['id']}_epoch_1.json", sample, frames=3)
    pred = uq.read_logs(tmp_path / "log.eval")
    assert (pred.error == 1 - right).all()


def test_inspect_takes_letters_parts_and_stated_confidences_and_skips_what_was_not_scored(tmp_path):
    right, confidence = logs.answers()
    path = logs.inspect_json(tmp_path / "log.json", right, confidence)
    log = json.loads(path.read_text())
    log["samples"][0]["scores"]["judge"]["value"] = float("nan")
    log["samples"][1] |= {"scores": None, "error": {"message": "crashed"}}
    log["samples"][2]["scores"]["judge"]["value"] = "P"
    path.write_text(json.dumps(log))
    pred = uq.read_logs(tmp_path)
    assert pred.n == 58
    assert "2 without a judgement left out" in pred.read_as
    assert pred.loss[0] == 0.5
    assert pred.scores["judge.confidence"] == pytest.approx(-confidence[2:])
    for sample in log["samples"][2:]:
        sample["scores"]["judge"]["value"] = {"facts": 0.25, "style": 1}
    path.write_text(json.dumps(log))
    assert (uq.read_logs(path, quality="judge.facts").loss == 0.75).all()


def test_helm_reads_originals_only_and_its_display_file_where_that_is_all(tmp_path):
    right, confidence = logs.answers()
    run = logs.helm(tmp_path, right, confidence)
    pred = uq.read_logs(tmp_path)
    assert (pred.n, pred.error.tolist()) == (60, (1 - right).tolist())
    assert pred.scores["max_prob"] == pytest.approx(-confidence)
    assert pred.scores["sequence_nll"][7] == 8.0
    assert "60 perturbed instances are left out" in pred.read_as
    assert "model=" not in pred.read_as
    (run / "per_instance_stats.json").unlink()
    shown = uq.read_logs(run)
    assert (shown.scores["max_prob"] == pred.scores["max_prob"]).all()


def test_log_probabilities_that_are_all_zero_are_none(tmp_path):
    run = logs.helm(tmp_path, *logs.answers())
    path = run / "per_instance_stats.json"
    records = json.loads(path.read_text())
    for record in records:
        record["stats"][2] |= {"sum": 0.0, "mean": 0.0}
    path.write_text(json.dumps(records))
    assert "all log-probabilities are 0" in refused(run)


def test_every_eval_ever_has_samples_and_confidences_that_state_it(tmp_path):
    right, confidence = logs.answers()
    pred = uq.read_logs(logs.every_eval_ever(tmp_path, right, confidence))
    assert set(pred.scores) == {"confidence", "answer_disagreement"}
    assert uq.metrics.uq_auc(pred.scores["confidence"], pred.error) == pytest.approx(auc(right, confidence))
    assert (pred.scores["answer_disagreement"] == np.where(confidence > 0.6, 0, 0.5)).all()


def test_scorers_of_uqlm_are_confidences_but_for_the_entropies(tmp_path):
    right, confidence = logs.answers()
    (tmp_path / "result.json").write_text(json.dumps({"data": logs.uqlm_data(right, confidence), "metadata": {}}))
    for path in (logs.uqlm_csv(tmp_path / "result.csv", right, confidence), tmp_path / "result.json"):
        pred = uq.read_logs(path)
        assert set(pred.scores) == {"semantic_negentropy", "discrete_entropy_value"}
        for name in pred.scores:
            assert uq.metrics.uq_auc(pred.scores[name], pred.error) == pytest.approx(auc(right, confidence)), name
    taken = uq.read_logs(path, score="num_semantic_sets".removesuffix("s"))
    assert taken.scores["num_semantic_set"].tolist()[:4] == [1, 2, 3, 1]
    data = logs.uqlm_data(right, confidence) | {"max": confidence.tolist()}
    path.write_text(json.dumps(data))
    assert "max" not in uq.read_logs(path).scores  # of what?
    path.write_text(json.dumps(data | {"judge_1": confidence.tolist()}))
    assert {"max", "judge_1"} < set(uq.read_logs(path).scores)
    del data["correct"]
    path.write_text(json.dumps(data))
    assert "says of no answer whether it is good" in refused(path)


def test_a_manager_of_lm_polygraph_is_read_without_running_what_it_holds(tmp_path):
    pytest.importorskip("torch")
    right, confidence = logs.answers()
    pred = uq.read_logs(logs.lm_polygraph(tmp_path / "ue_manager_seed1", right, confidence))
    assert list(pred.scores) == ["MaximumSequenceProbability"]
    assert (pred.error == 1 - right).all()
    assert uq.metrics.uq_auc(pred.scores["MaximumSequenceProbability"], pred.error) == pytest.approx(
        auc(right, confidence)
    )


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (Path(self.path), "gone off")


def test_a_manager_that_holds_code_is_refused_and_does_not_run_it(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"estimations": Trap(str(tmp_path / "fired"))}, tmp_path / "ue_manager_seed1")
    message = refused(tmp_path / "ue_manager_seed1")
    assert "a pickle that can run code is not loaded" in message
    assert not (tmp_path / "fired").exists()
    pickle.loads(pickle.dumps(Trap(str(tmp_path / "fired"))))
    assert (tmp_path / "fired").exists()  # the trap does go off


def test_the_export_that_the_refusal_names_is_read(tmp_path):
    right, confidence = logs.answers()
    export = {"estimations": {"sequence|MSP": (1 - confidence).tolist()}}
    export["gen_metrics"] = {"sequence|Acc": right.tolist()}
    (tmp_path / "ue_manager.json").write_text(json.dumps(export))
    assert (uq.read_logs(tmp_path / "ue_manager.json").error == 1 - right).all()


# ---- directions, partial and wrong logs -----------------------------------------------------------------------------


def test_repeated_records_count_once_and_say_so(tmp_path):
    right, confidence = logs.answers()
    lines = [logs.lm_eval(tmp_path / "a", right, confidence), logs.every_eval_ever(tmp_path / "b", right, confidence)]
    for path in lines:
        path.write_text(path.read_text() * 2)
    path = logs.inspect_json(tmp_path / "log.json", right, confidence)
    log = json.loads(path.read_text())
    path.write_text(json.dumps(log | {"samples": log["samples"] * 2}))
    for log_file in (*lines, path):
        pred = uq.read_logs(log_file)
        assert pred.n == 60
        assert pred.clusters is None
        assert "records that come again count once (60 left out)" in pred.read_as


def test_lines_packed_by_gzip_are_read_and_other_packed_logs_refused_with_what_to_do(tmp_path):
    right, confidence = logs.answers()
    for folder, path in [
        (tmp_path / "a", logs.lm_eval(tmp_path / "a", right, confidence)),
        (tmp_path / "b", logs.every_eval_ever(tmp_path / "b", right, confidence)),
    ]:
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        assert (uq.read_logs(folder).error == 1 - right).all()
        packed.write_bytes(packed.read_bytes()[:200])
        assert "cannot be read" in refused(packed, format="lm-eval" if folder.name == "a" else "every-eval-ever")
    (tmp_path / "log.json.gz").write_bytes(gzip.compress(b"{}"))
    assert "Unpack it first." in refused(tmp_path / "log.json.gz")


def test_a_row_without_log_probabilities_or_judgement_is_left_out_and_labels_stay(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0]["filtered_resps"] = [["nan", "False"]] * 3
    records[1]["acc"] = None
    least = int(np.argmin([float(value) for value, _ in records[2]["filtered_resps"]]))
    records[2]["filtered_resps"][least][0] = "-inf"
    pred = uq.read_logs(logs.jsonl(path, records))
    assert (pred.n, pred.labels is not None) == (58, True)
    assert (uq.truth.error_of(pred) == 1 - right[2:]).all()
    assert pred.probs[0, least] == 0
    assert "1 without a judgement left out; 1 without a score left out" in pred.read_as


def test_whole_numbers_beyond_any_float_do_not_stop_a_log(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence)
    records = [json.loads(line) | {"seed": 10**400} for line in path.read_text().splitlines()]
    assert uq.read_logs(logs.jsonl(path, records)).n == 60


def test_numbers_of_the_dataset_are_never_taken_for_the_models_own(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        record["doc"]["confidence"] = 0.5 + record["doc_id"] / 200  # of whoever wrote the label
    pred = uq.read_logs(logs.jsonl(path, records))
    assert not pred.scores
    assert set(uq.read_logs(path, confidence="doc.confidence").scores) == {"doc.confidence"}


def test_a_verdict_comes_before_a_number_that_measures_who_knows_what(tmp_path):
    right, confidence = logs.answers()
    path = logs.inspect_json(tmp_path / "log.json", right, confidence)
    log = json.loads(path.read_text())
    for sample, hit in zip(log["samples"], right, strict=True):
        sample["scores"] = {"toxicity": {"value": 1.0 - hit}} | sample["scores"]
    path.write_text(json.dumps(log))
    pred = uq.read_logs(path)
    assert (pred.error == 1 - right).all()
    assert "quality judge (higher is better)" in pred.read_as
    assert pred.read_as.endswith("other judgements: toxicity")


def test_a_confidence_of_the_schema_may_be_named_as_one(tmp_path):
    right, confidence = logs.answers()
    run = logs.helm(tmp_path, right, confidence)
    pred = uq.read_logs(run, confidence="max_prob")
    assert (list(pred.scores), pred.log.turned_round) == (["max_prob"], ("max_prob",))
    assert pred.scores["max_prob"] == pytest.approx(-confidence)


def test_a_run_of_helm_with_all_its_files_is_one_log(tmp_path):
    right, confidence = logs.answers()
    run = logs.helm(tmp_path, right, confidence)
    state = {"request_states": [{"request": {"prompt": "?"}, "result": {"response": "a"}}]}
    for name, held in (("scenario_state", state), ("run_spec", {"name": "x"}), ("stats", []), ("scenario", {})):
        (run / f"{name}.json").write_text(json.dumps(held))
    assert uq.read_logs(tmp_path).n == 60


def test_a_run_that_ended_badly_says_so_where_nothing_was_judged(tmp_path):
    path = logs.inspect_json(tmp_path / "log.json", *logs.answers(), scores={})
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "error"}))
    assert 'says of no answer whether it is good (the status of the run is "error")' in refused(path)
    data = logs.uqlm_data(*logs.answers(4)) | {"correct": ["yes", "no", "yes", "no"]}
    (tmp_path / "result.json").write_text(json.dumps(data))
    assert "`correct` holds texts, as 'yes'. Write 1 or true" in refused(tmp_path / "result.json")


def test_a_number_of_no_known_direction_is_never_used_unless_it_is_named(tmp_path):
    right, confidence = logs.answers()
    path = logs.lm_eval(tmp_path, right, confidence, filtered_resps=["yes"], resps=[["yes"]])
    message = refused(path)
    assert "confidence= (--confidence) where higher is more sure. Numbers in it: doc.difficulty." in message
    assert uq.read_logs(path, score="doc.difficulty").scores["doc.difficulty"][:3].tolist() == [0, 1, 2]
    assert uq.read_logs(path, confidence="doc.difficulty").scores["doc.difficulty"][:3].tolist() == [0, -1, -2]
    assert "has no number `doc.difficult` (score). Did you mean" in refused(path, score="doc.difficult")


def test_samples_df_of_inspect_is_not_read_upside_down(tmp_path):
    names = ("sample_id", "eval_id", "log", "id", "epoch", "input", "target", "score_match", "total_time", "error")
    table = pa.table({name: ["C", "I", "C"] for name in names})
    with pytest.raises(InputError, match="`score_match` says how good an answer is"):
        uq.Predictions.from_frame(table)
    pa.csv.write_csv(table, tmp_path / "samples.csv")
    with pytest.raises(InputError, match=r"uqeval\.read_logs"):
        uq.read_predictions(tmp_path / "samples.csv")
    numbers = table.set_column(7, "score_match", pa.array([1.0, 0.0, 1.0]))
    numbers = numbers.append_column("doubt", pa.array([0.1, 0.9, 0.2]))
    pred = uq.Predictions.from_frame(numbers, quality="score_match", score="doubt", error=None, id=None)
    assert pred.loss.tolist() == [0, 1, 0]


def test_the_last_run_of_a_task_is_taken_and_two_that_cannot_be_ordered_are_refused(tmp_path):
    right, confidence = logs.answers()
    logs.inspect_json(tmp_path / "a.json", right, confidence)
    later = logs.inspect_json(tmp_path / "b.json", 1 - right, confidence)
    assert "nothing tells which is later" in refused(tmp_path)
    log = json.loads(later.read_text())
    log["eval"]["created"] = "2026-08-02T10:00:00+00:00"
    later.write_text(json.dumps(log))
    pred = uq.read_logs(tmp_path)
    assert (pred.error == right).all()
    assert "an earlier run of quiz left out" in pred.read_as
    later.write_text(json.dumps(log | {"status": "error"}))  # did not end well
    assert (uq.read_logs(tmp_path).error == 1 - right).all()


def test_two_models_or_two_kinds_in_one_folder_are_refused(tmp_path):
    right, confidence = logs.answers()
    logs.lm_eval(tmp_path, right, confidence)
    logs.lm_eval(tmp_path, right, confidence, model="org__other")
    assert "the logs are of 2 models: org__other, org__tiny" in refused(tmp_path)
    logs.inspect_json(tmp_path / "log.json", right, confidence)
    assert "of another kind" in refused(tmp_path)
    assert uq.read_logs(tmp_path, format="inspect").n == 60


def test_wrong_and_partial_logs_get_one_sentence_with_their_place(tmp_path):
    right, confidence = logs.answers()
    cut = logs.lm_eval(tmp_path, right, confidence)
    text = cut.read_text()
    cut.write_text(text[: len(text) // 2])
    line = text[: len(text) // 2].count("\n") + 1
    assert f"line {line} is not JSON" in refused(cut)
    bad = tmp_path / "bad.eval"
    bad.write_bytes(TINY.read_bytes()[:5000])
    assert "is no zip archive, or not a whole one. Did the run end?" in refused(bad)
    with zipfile.ZipFile(bad, "w"):
        pass
    assert "has no header.json" in refused(bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "started", "eval": {"task": "quiz"}}))
    assert "holds no answers. Did the run end?" in refused(bad)
    for name, content, message in [
        ("log.json", '{"version": 2, "status": "success", "eval": {', "is not complete JSON"),
        ("per_instance_stats.json", "{}", "holds no list of instances"),
        ("x.jsonl", '{"doc_id": 0, "doc": {}, "acc": 1.0}\n', "lacks `filtered_resps`"),
        ("x.jsonl", '{"doc_id": 0, "filtered_resps": [], "filter": "a"}\n{"doc_id": 1}\n', "a record lacks 'filter'"),
        ("y.json", '{"version": 2, "status": "success", "eval": 7}', "part of a record has another type"),
        ("ue_manager.json", '{"estimations": {}, "gen_metrics": {}}', "holds no estimations"),
        ("other.json", '{"a": 1}', "is no log that is known"),
    ]:
        (tmp_path / name).write_text(content)
        assert message in refused(tmp_path / name), name
    (tmp_path / "empty").mkdir()
    assert "empty: holds no log that is known. Known are lm-eval-harness, Inspect" in refused(tmp_path / "empty")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text("label,prob\n0,0.5\n")
    assert refused(tmp_path / "tables").endswith(f'name its files: "{tmp_path / "tables" / "*.csv"}".')
    unscored = logs.inspect_json(tmp_path / "log.json", right, confidence, scores={})
    assert "says of no answer whether it is good" in refused(unscored)
    unjudged = logs.lm_eval(tmp_path / "unjudged", right, confidence)
    rows = [json.loads(row) for row in unjudged.read_text().splitlines()]
    logs.jsonl(unjudged, [{key: row[key] for key in row if not key.startswith("acc")} for row in rows])
    assert "says of no answer whether it is good" in refused(unjudged)
