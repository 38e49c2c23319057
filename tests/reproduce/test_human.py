"""Studies on real data: every number against its definition, failures listed by name, going on after a stop."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import uqeval as uq
from uqeval import metrics
from uqeval._errors import InputError
from uqeval.reproduce.human.judging import FIRST_ORDER, SECOND_ORDER, Reference, judge, read_rows, scores_of
from uqeval.reproduce.human.run import run_study
from uqeval.reproduce.human.tables import four_of
from uqeval.reproduce.human.verdicts import OPEN
from uqeval.reproduce.logits.folder import find_predictions
from uqeval.reproduce.logits.writer import save_logits

pytestmark = pytest.mark.usefixtures("undrawn", "few_draws")
N, K = 400, 5
PRINTED = [
    {"metric": metric, "truth": truth, "r": 0.5, "low": 0.4, "high": 0.6}
    for metric in ("uq_auc", "uq_c_index")
    for truth in ("kendall_phi", "kendall_varphi")
]
PAPER = {"printed": PRINTED, "models": 116}
NAMES = ["resnet18-a", "vgg11-b", "swin_t-c", "densenet121-d", "mnasnet-e", "resnet50-f", "vit_b-g", "alexnet-h"]


@pytest.fixture
def reference():
    rng = np.random.default_rng(0)
    soft = rng.dirichlet(np.full(K, 0.25), N)
    soft = np.round(20 * soft + 0.02) + 0.5 * np.eye(K)[soft.argmax(axis=1)]
    soft /= soft.sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(K, p=row) for row in soft])
    rated = np.ones(N, dtype=bool)
    rated[7] = False
    return Reference("cifar10h", "Ten things", labels, K, lambda rows: soft[rows], rated, PAPER)


def logits_of(reference, strength, seed, members=0):
    rng = np.random.default_rng(seed)
    base = strength * np.log(reference.soft(np.arange(N)) + 0.05)
    noise = rng.normal(size=(members, N, K) if members else (N, K))
    return (base + 1.3 * noise).astype(np.float16)


@pytest.fixture
def folder(tmp_path, reference):
    place = tmp_path / "predictions"
    for k, name in enumerate(NAMES):
        save_logits(place, name, logits_of(reference, 0.5 + 0.2 * k, k), labels=reference.labels, source="test")
    for name, kind, k in (("ensemble", "members", 100), ("dropout", "passes", 101)):
        logits = logits_of(reference, 1.5, k, members=4)
        save_logits(place, name, logits, labels=reference.labels, source="test", kind=kind)
    return place


def study_of(reference, folder, **more):
    return run_study(reference, folder, **more)


# ---- one model -----------------------------------------------------------------------------------------------------


def softmax(logits):
    z = np.exp(logits.astype(np.float64) - logits.astype(np.float64).max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


def test_row_of_a_model_equals_evaluate(folder, reference):
    for name in ("resnet50-f", "ensemble"):
        (found,) = [p for p in find_predictions(folder) if p.name == name]
        rows = judge(found, read_rows(found, reference, None, scores_of(found.kind)), K)
        keep = np.flatnonzero(reference.rated)
        logits = np.asarray(found.open(), dtype=np.float64)[..., keep, :]
        given = {"logits": logits} if logits.ndim == 2 else {"member_logits": logits}
        pred = uq.Predictions(reference.labels[keep], soft_labels=reference.soft(keep), **given)
        asked = ["uq_auc", "uq_c_index", "aurc", "augrc", "ece", "brier", "log_loss", "kendall_phi", "kendall_varphi"]
        ev = uq.evaluate(pred, scores=[row["score"] for row in rows], metrics=asked)
        assert len(rows) == (len(FIRST_ORDER) if logits.ndim == 2 else len(SECOND_ORDER))
        for row in rows:
            for metric in asked:
                value = (ev[metric] if metric in ("ece", "brier", "log_loss") else ev[row["score"], metric]).value
                assert row[metric] == pytest.approx(value, abs=1e-12), (row["score"], metric)


def test_one_versus_rest_equals_the_library_function(folder, reference):
    for name in ("resnet50-f", "dropout"):
        (found,) = [p for p in find_predictions(folder) if p.name == name]
        vectors = read_rows(found, reference, None, scores_of(found.kind))
        row = judge(found, vectors, K)[1]
        probs = softmax(np.asarray(found.open()))
        probs = (probs if probs.ndim == 2 else probs.mean(axis=0))[reference.rated]
        for metric in ("uq_auc", "uq_c_index"):
            expected = metrics.one_vs_rest(metric, vectors.scores[row["score"]], vectors.labels, probs=probs)
            assert row[f"{metric}_ovr"] == pytest.approx(expected, abs=1e-12)


def test_top_label_c_index_and_its_best_order_are_their_definitions(folder, reference):
    for found in find_predictions(folder):
        vectors = read_rows(found, reference, None, scores_of(found.kind))
        disagree = 1 + vectors.phi  # the share of people who disagree: `phi` is minus the share who agree
        best = vectors.confidence * np.sign(disagree - 0.5)
        for row in judge(found, vectors, K):
            s = vectors.scores[row["score"]]
            expected = metrics.top_label_c_index(s, vectors.confidence, vectors.error)
            assert row["top_label_c_index"] == pytest.approx(expected, abs=1e-12)
            assert row["kendall_top_label"] == pytest.approx(metrics.kendall_tau(s, best), abs=1e-12)


def test_numbers_do_not_depend_on_the_size_of_the_pieces(folder, reference, monkeypatch):
    found = [p for p in find_predictions(folder) if p.name in ("resnet50-f", "ensemble", "dropout")]
    whole = [judge(p, read_rows(p, reference, None, scores_of(p.kind)), K) for p in found]
    for rows in (37, 57, 1):  # 57 leaves a last piece of one row
        monkeypatch.setattr("uqeval.reproduce.human.judging._VALUES", rows * K)
        assert [judge(p, read_rows(p, reference, None, scores_of(p.kind)), K) for p in found] == whole


def test_rows_that_a_model_covers_are_the_only_ones_it_is_judged_on(tmp_path, reference):
    rows = np.arange(0, N, 3)
    logits = logits_of(reference, 1.0, 5)
    save_logits(tmp_path, "some", logits[rows], labels=reference.labels, source="test", rows=rows)
    (found,) = find_predictions(tmp_path)
    row = judge(found, read_rows(found, reference, found.covered(), ["entropy"]), K)[0]
    kept = rows[reference.rated[rows]]
    p = softmax(logits[kept])
    error = p.argmax(axis=1) != reference.labels[kept]
    assert row["n"] == len(kept)
    assert row["uq_auc"] == metrics.uq_auc(uq.scores.entropy(p), error)


# ---- the study -----------------------------------------------------------------------------------------------------


def test_study_correlates_the_entropy_of_single_models(folder, reference):
    study = study_of(reference, folder)
    main = [row for row in study.models if row["score"] == "entropy"]
    assert [row["model"] for row in main] == sorted(NAMES)
    for row in study.correlations:
        x, y = ([model[row[key]] for model in main] for key in ("metric", "truth"))
        assert row["r"] == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    r = next(row for row in study.correlations if (row["metric"], row["truth"]) == ("uq_auc", "kendall_phi"))
    z = 1.959963984540054 / math.sqrt(len(main) - 3)
    assert [r["low"], r["high"]] == pytest.approx([math.tanh(math.atanh(r["r"]) + s * z) for s in (-1, 1)])
    assert {test["truth"] for test in study.tests} == {"kendall_phi", "kendall_varphi"}


def test_study_keeps_its_stable_shape_and_writes_whole_files(folder, reference, tmp_path):
    study = study_of(reference, folder, out=tmp_path / "out")
    data = json.loads((tmp_path / "out" / "table.json").read_text())
    assert {"study", "settings", "correlations", "summary", "models", "paper", "notes"} <= set(data)
    assert {"metric", "truth", "r", "low", "high", "n", "draw"} == set(data["correlations"][0])
    for key in ("model", "family", "accuracy", "score", "uq_auc", "uq_c_index", "kendall_phi", "kendall_varphi"):
        assert key in data["models"][0]
    assert set(data["tables"]) == {
        *("by_score", "floors", "families", "one_vs_rest", "accuracy_fixed", "comparisons", "questions", "top_label")
    }
    assert (tmp_path / "out" / "models.csv").read_text().count("\n") == 1 + len(study.models)
    assert "UQ-AUC, paper (116 models)" in (tmp_path / "out" / "table.md").read_text()


def test_every_figure_of_a_study_is_made(folder, reference):
    study = study_of(reference, folder)
    more = study.tables["floors"] + [row | {"accuracy": 0.5} for row in study.tables["floors"]]
    study = dataclasses.replace(study, tables=study.tables | {"floors": more})
    made = {name: make().to_dict() for name, make in study.figures().items()}
    assert list(made) == ["metric_vs_kendall", "accuracy_floor", "by_score", "second_order", "comparisons"]
    assert all(spec["title"]["text"] for spec in made.values())


def test_table_above_an_accuracy_leaves_the_others_out(folder, reference):
    study = study_of(reference, folder, min_accuracy=0.5)
    accuracies = [row["accuracy"] for row in study.models if row["score"] == "entropy"]
    assert min(accuracies) < 0.5
    assert study.correlations[0]["n"] == sum(a >= 0.5 for a in accuracies)


def test_comparisons_are_those_of_compare(folder, reference):
    study = study_of(reference, folder)
    found = [r for r in study.tables["comparisons"] if (r["of"], r["metric"]) == ("ensemble, 4 members", "uq_auc")]
    assert {row["b"] for row in found} == {"total_entropy"}
    (prediction,) = [p for p in find_predictions(folder) if p.name == "ensemble"]
    vectors = read_rows(prediction, reference, None, list(SECOND_ORDER))
    expected = uq.compare(vectors.scores, error=vectors.error, metric="uq_auc", baseline="total_entropy")
    assert [row["difference"] for row in found] == [pair.difference for pair in expected.rows]
    assert [row["p_adjusted"] for row in found] == [pair.p_adjusted for pair in expected.rows]
    best = [row for row in study.tables["comparisons"] if row["of"] == "models, by entropy"]
    assert len(best) == 6


def test_scores_can_be_chosen_and_unknown_ones_are_refused(folder, reference):
    study = study_of(reference, folder, scores=["entropy", "mutual_information"])
    assert {row["score"] for row in study.models} == {"entropy", "mutual_information"}
    with pytest.raises(InputError, match=r"there is no score 'entropie'.*entropy"):
        study_of(reference, folder, scores=["entropie"])


def test_few_models_give_a_study_without_correlations(tmp_path, reference):
    save_logits(tmp_path / "p", "one", logits_of(reference, 1.0, 5), labels=reference.labels, source="test")
    study = study_of(reference, tmp_path / "p", out=tmp_path / "out")
    assert all(math.isnan(row["r"]) for row in study.correlations)
    assert any("need at least 4 single models" in note for note in study.notes)
    said = "The correlations are undefined: too few single models (1; at least 4 are needed)."
    assert {name: lines for name, lines in study.verdicts().items() if lines} == {OPEN: [said]}


def test_models_without_errors_or_with_constant_scores_do_not_stop_the_study(folder, reference, tmp_path):
    perfect = 20.0 * np.eye(K)[reference.labels] + np.random.default_rng(1).normal(size=(N, K))
    save_logits(folder, "perfect", perfect, labels=reference.labels, source="test")
    flat = np.log(np.full((N, K), 0.1) + 0.5 * np.eye(K)[reference.labels])  # free energy 0 in every row
    save_logits(folder, "flat", flat, labels=reference.labels, source="test")
    save_logits(folder, "twins", np.stack([perfect] * 3), labels=reference.labels, source="test")
    study = study_of(reference, folder, out=tmp_path / "out")
    values = {(row["model"], row["score"]): row for row in study.models}
    assert values["perfect", "entropy"]["uq_auc"] is None
    assert values["twins", "mutual_information"]["kendall_phi"] is None
    assert {row["n"] for row in study.correlations} == {len(NAMES)}  # one set of models for all cells
    assert [row["model"] for row in study.settings["undefined"]] == ["flat", "perfect"]
    assert any("perfect (UQ-AUC is undefined: it makes no error)" in note for note in study.notes)
    assert "perfect" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_the_four_correlations_are_known_together_or_not_at_all():
    pairs = [(m, t) for m in ("uq_auc", "uq_c_index") for t in ("kendall_phi", "kendall_varphi")]
    rows = [{"metric": m, "truth": t, "r": r} for (m, t), r in zip(pairs, (0.9, 0.5, 0.1, 0.95), strict=True)]
    assert four_of(rows) == dict(zip(pairs, (0.9, 0.5, 0.1, 0.95), strict=True))
    assert four_of([*rows[:3], rows[3] | {"r": math.nan}]) is None
    assert four_of(rows[1:]) is None


# ---- what cannot be used ---------------------------------------------------------------------------------------------


def spoil(folder, reference):
    """One file of each kind of trouble; file → what its message says."""
    good = logits_of(reference, 1.0, 50)
    bad = good.copy()
    bad[11, 2] = np.nan
    np.save(folder / "nan.npy", bad)
    np.save(folder / "wide.npy", np.hstack([good, good]))
    np.save(folder / "short.npy", good[1:])
    np.save(folder / "shuffled.npy", good[np.random.default_rng(1).permutation(N)])
    np.save(folder / "pickled.npy", np.array([[{}, 1]], dtype=object), allow_pickle=True)
    np.save(folder / "cut.npy", good)
    (folder / "cut.npy").write_bytes((folder / "cut.npy").read_bytes()[:-7])
    save_logits(folder, "changed", good, labels=reference.labels, source="test")
    np.save(folder / "changed.npy", good[::-1])
    return {
        "nan.npy": r"NaN or infinite logits in 1 row \(first at row 11\)",
        "wide.npy": "10 classes, but the reference has 5",
        "short.npy": "399 rows, but the reference has 400",
        "shuffled.npy": "no more than shuffled rows would be",
        "pickled.npy": "pickled Python objects, which are never loaded",
        "cut.npy": "truncated or corrupt",
        "changed.npy": "hash differs",
    }


def test_keep_going_judges_the_others_and_lists_every_failure(folder, reference, tmp_path):
    whole = study_of(reference, folder)
    reasons = spoil(folder, reference)
    study = study_of(reference, folder, keep_going=True, out=tmp_path / "out")
    assert study.correlations == whole.correlations
    assert len(study.failures) == len(reasons)
    for failure in study.failures:
        name = os.path.basename(failure["file"])
        assert name in failure["reason"]
        with pytest.raises(InputError, match=reasons[name]):
            study_of(reference, failure["file"])
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    written = json.loads((tmp_path / "out" / "table.json").read_text())
    for failure in study.failures:
        assert os.path.basename(failure["file"]) in page
        assert failure in written["failures"]


def test_without_keep_going_the_first_failure_is_the_error(folder, reference):
    np.save(folder / "wide.npy", np.zeros((N, 2 * K)) + np.arange(2 * K))
    with pytest.raises(InputError, match=r"wide\.npy: 10 classes"):
        study_of(reference, folder)


def test_when_nothing_can_be_used_all_reasons_are_given(tmp_path, reference):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.full((N, K), np.nan))
    with pytest.raises(InputError, match=r"None of the 2 predictions.*a\.npy.*b\.npy"):
        study_of(reference, tmp_path, keep_going=True)


# ---- going on --------------------------------------------------------------------------------------------------------


def test_second_run_reads_nothing_again(folder, reference, tmp_path, monkeypatch):
    calls = []
    study = study_of(reference, folder, out=tmp_path / "out", progress=lambda *step: calls.append(step))
    scoring = [step for step in calls if step[0] == "scoring"]
    assert (scoring[0], scoring[-1]) == (("scoring", 0, 10), ("scoring", 10, 10))
    save_logits(folder, "new", logits_of(reference, 1.0, 60), labels=reference.labels, source="test")
    read = []
    real = read_rows

    def noted(prediction, *args, **more):
        read.append(prediction.name)
        return real(prediction, *args, **more)

    monkeypatch.setattr("uqeval.reproduce.human.run.read_rows", noted)
    again = study_of(reference, folder, out=tmp_path / "out")
    assert read == ["new"]
    assert [row for row in again.models if row["model"] != "new"] == study.models


def test_threads_do_not_change_the_numbers(folder, reference):
    assert study_of(reference, folder, jobs=1).to_dict() == study_of(reference, folder, jobs=4).to_dict()


_KILLED = """
import sys, time
import numpy as np
from uqeval.reproduce.human import run as real
from test_human import PAPER, Reference, K, N

rng = np.random.default_rng(0)
soft, labels = np.load(sys.argv[1] + "/soft.npy"), np.load(sys.argv[1] + "/y.npy")
slow = real.read_rows
def waiting(*args, **more):
    print("reading", flush=True)
    time.sleep(0.15)
    return slow(*args, **more)
real.read_rows = waiting
ref = Reference("cifar10h", "Ten things", labels, K, lambda rows: soft[rows], np.ones(N, dtype=bool), PAPER)
real.run_study(ref, sys.argv[1] + "/predictions", out=sys.argv[1] + "/out", jobs=1)
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_run_goes_on_where_it_stopped(folder, reference, tmp_path):
    np.save(tmp_path / "soft.npy", reference.soft(np.arange(N)))
    np.save(tmp_path / "y.npy", reference.labels)
    env = os.environ | {"PYTHONPATH": os.path.dirname(__file__)}
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        for _ in range(4):
            assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGKILL)
    again = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert again.stdout.count("reading") == 10 - 3
    assert again.stdout.endswith("done\n")


# ---- size ------------------------------------------------------------------------------------------------------------

_LARGE = """
import sys, time
import numpy as np
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.logits.writer import LogitsWriter
from uqeval.reproduce.human.run import run_study

folder, members = sys.argv[1], int(sys.argv[2])
n, classes, step = 50_000, 1000, 1000
rng = np.random.default_rng(0)
y = rng.integers(0, classes, n)
shape = (n, classes) if members == 1 else (members, n, classes)
with LogitsWriter(folder, "model", shape, np.float16, labels=y, source="generated") as out:
    for start in range(0, n, step):
        part = slice(start, start + step)
        block = rng.standard_normal((members, step, classes), dtype=np.float32)
        block[:, np.arange(step), y[part]] += 4
        if members == 1:
            out[part] = block[0]
        else:
            out[:, part] = block

def soft(rows):
    found = np.zeros((len(rows), classes))
    found[np.arange(len(rows)), y[rows]] = 0.7
    found[np.arange(len(rows)), (y[rows] + 1 + rows % 7) % classes] += 0.3
    return found

reference = Reference("imagenet_real", "generated", y, classes, soft, np.ones(n, dtype=bool))
start = time.perf_counter()
run_study(reference, folder, scores=sys.argv[3].split(","), jobs=1)
# Not ru_maxrss: a child inherits the peak of the process that started it.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(time.perf_counter() - start, peak / 1024**2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize(("members", "scores"), [(1, ",".join(FIRST_ORDER)), (4, "total_entropy,mutual_information")])
def test_model_of_imagenets_size_is_judged_in_less_than_4_gb(tmp_path, members, scores, record_property):
    command = [sys.executable, "-c", _LARGE, str(tmp_path), str(members), scores]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, gigabytes = map(float, done.stdout.split())
    record_property("seconds", seconds)
    record_property("gigabytes", gigabytes)
    print(f"{members} members: {seconds:.1f} s, {gigabytes:.2f} GB, {time.perf_counter() - start:.1f} s in all")
    assert gigabytes < 4
