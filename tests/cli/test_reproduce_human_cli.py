"""`uqeval reproduce cifar10h|imagenet-real|oasst2`: predictions in, page out; failures listed; one line when wrong."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import commands
from uqeval import datasets
from uqeval.cli import reproduce as command
from uqeval.reproduce.logits.writer import save_logits

COUNT = 300
NAMES = ["facebook/bart-a", "roberta-b", "xlm-c", "minilm-d", "e5-e", "deberta-f"]
DATA = os.environ.get("UQEVAL_DATA")


def logits_of(messages, strength, seed):
    noise = np.random.default_rng(seed).normal(size=(len(messages), 2))
    return strength * np.log(messages.soft_labels + 0.05) + noise


@pytest.fixture(scope="module")
def messages():
    return datasets.oasst2_sample(COUNT)


@pytest.fixture
def folder(tmp_path, messages):
    place = tmp_path / "logits"
    for k, name in enumerate(NAMES):
        save_logits(place, name, logits_of(messages, 0.3 + 0.3 * k, k), labels=messages.labels, source="test")
    return place


def run(*args):
    return commands.succeed("reproduce", *args)


def test_study_writes_everything_and_goes_on_by_itself(tmp_path, folder, undrawn):
    out = tmp_path / "study"
    options = ("oasst2", "--sample", COUNT, "--predictions", folder, "--out", out)
    text = " ".join(run(*options).split())
    for words in ("over 6 single models", "paper (70", "says nothing about OASST2", "The range of", "page:"):
        assert words in text
    assert "What reproduces" not in text
    assert "The paper's order" not in text
    tables = {name: (out / name).read_bytes() for name in ("table.json", "table.csv", "table.md", "models.csv")}
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "The messages and their votes are generated" in page
    assert "a dry run on generated messages</h1>" in page
    assert "<script" not in page
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["found"] == 0
    found = json.loads(run(*options, "--json", "-"))
    assert found["study"] == "oasst2"
    assert {row["family"] for row in found["models"]} == {"BART", "RoBERTa", "XLM", "MiniLM", "E5", "DeBERTa"}
    assert {name: (out / name).read_bytes() for name in tables} == tables
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["found"] == len(NAMES)
    assert "from an earlier run" in (out / "index.html").read_text(encoding="utf-8")


def test_keep_going_lists_failures_on_stderr_and_leaves_with_0(tmp_path, folder, messages, undrawn):
    bad = logits_of(messages, 1.0, 9)
    bad[3] = np.nan
    np.save(folder / "nan.npy", bad)
    options = ("reproduce", "oasst2", "--sample", COUNT, "--predictions", folder, "--out", tmp_path / "x", "-q")
    message = commands.fail(*options)
    assert "nan.npy: NaN or infinite logits in 1 row (first at row 3)" in message
    result = commands.call(*options, "--keep-going", "--json", tmp_path / "found.json")
    assert result.code == 0
    assert result.out == ""
    assert "1 prediction could not be used:" in result.err
    assert "nan.npy" in result.err
    assert [failure["model"] for failure in json.loads((tmp_path / "found.json").read_text())["failures"]] == ["nan"]
    assert "nan.npy" in (tmp_path / "x" / "index.html").read_text(encoding="utf-8")


def test_when_everything_fails_the_exit_code_is_2(tmp_path):
    np.save(tmp_path / "a.npy", np.full((COUNT, 2), np.nan))
    options = ("--sample", COUNT, "--predictions", tmp_path / "a.npy", "--out", tmp_path / "x", "--keep-going")
    assert "a.npy: NaN" in commands.fail("reproduce", "oasst2", *options)


def test_few_models_are_shown_by_themselves(tmp_path, folder, undrawn):
    only = folder / "roberta-b.npy"
    text = run("oasst2", "--sample", COUNT, "--predictions", only, "--out", tmp_path / "x", "--scores", "entropy")
    assert "over 1 single model," in text
    assert "roberta-b" in text
    assert "What reproduces" not in text
    assert "too few single models" in text


def test_without_predictions_or_models_the_ways_are_listed(tmp_path):
    for name in ("cifar10h", "imagenet-real", "oasst2"):
        message = commands.fail("reproduce", name, "--out", tmp_path / "x")
        assert "--predictions PATH" in message
        assert ("--train" in message) == (name == "cifar10h")
        assert ("--models" in message) == (name != "cifar10h")
        assert not (tmp_path / "x").exists()


def test_models_of_imagenet_need_their_images(tmp_path):
    assert "--images DIR" in commands.fail("reproduce", "imagenet-real", "--models", "resnet18", "--out", tmp_path)


class Made:
    """Stands for a module that makes predictions: notes how it was called and writes six models."""

    def __init__(self, messages):
        self.messages, self.calls = messages, []

    def __call__(self, *args, **options):
        self.calls.append((args, options))
        place = next(arg for arg in args if isinstance(arg, Path))
        for k, name in enumerate(NAMES):
            save_logits(place, name, logits_of(self.messages, 1.0, k), labels=self.messages.labels, source="test")
        return NAMES


def test_zero_shot_models_write_into_the_folder_that_is_judged(tmp_path, messages, monkeypatch, undrawn):
    made = Made(messages)
    monkeypatch.setitem(
        sys.modules, "uqeval.reproduce.models.text.zeroshot", type("M", (), {"classify_messages": made})
    )
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    out = tmp_path / "x"
    options = ("--models", "paper", "--sample", COUNT, "--device", "cpu", "--batch-size", 8)
    found = json.loads(run("oasst2", *options, "--out", out, "--json", "-"))
    (args, called) = made.calls[0]
    assert args[0] == "paper"
    assert len(args[1]) == COUNT
    assert args[2] == out / "predictions"
    assert (called["batch_size"], called["device"]) == (8, "cpu")
    assert found["settings"]["single_models"] == 6


def test_models_left_out_are_listed_on_stderr_page_and_json(tmp_path, messages, monkeypatch, undrawn):
    class Failing(Made):
        def __call__(self, *args, **options):
            options["failures"].append({"model": "bart", "file": "bart", "reason": "bart: is not on this machine."})
            return super().__call__(*args, **options)

    made = Failing(messages)
    monkeypatch.setitem(
        sys.modules, "uqeval.reproduce.models.text.zeroshot", type("M", (), {"classify_messages": made})
    )
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    options = ("--models", "paper", "--sample", COUNT, "--keep-going", "--out", tmp_path / "x", "--json", "-")
    result = commands.call("reproduce", "oasst2", *options)
    assert result.code == 0
    assert made.calls[0][1]["keep_going"]
    assert "bart: is not on this machine." in result.err
    assert json.loads(result.out)["failures"][0]["model"] == "bart"
    assert "bart: is not on this machine." in (tmp_path / "x" / "index.html").read_text(encoding="utf-8")


def test_models_of_an_earlier_run_in_the_same_folder_are_left_alone(tmp_path, messages, monkeypatch, undrawn):
    out = tmp_path / "x"
    stale = datasets.oasst2_sample(60)
    save_logits(out / "predictions", "stale", logits_of(stale, 1.0, 0), labels=stale.labels, source="test")
    maker = type("M", (), {"classify_messages": Made(messages)})
    monkeypatch.setitem(sys.modules, "uqeval.reproduce.models.text.zeroshot", maker)
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    found = json.loads(run("oasst2", "--models", "paper", "--sample", COUNT, "--out", out, "--json", "-"))
    assert {row["model"] for row in found["models"]} == set(NAMES)
    assert not found["failures"]


def test_small_samples_ask_for_few_messages(tmp_path, monkeypatch, undrawn):
    few = datasets.oasst2_sample(20)
    made = Made(few)
    monkeypatch.setitem(
        sys.modules, "uqeval.reproduce.models.text.zeroshot", type("M", (), {"classify_messages": made})
    )
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    run("oasst2", "--models", "paper", "--sample", 20, "--out", tmp_path / "x", "-q")
    assert made.calls[0][1]["min_rows"] == 2


def test_what_is_wrong_is_said_before_a_model_runs(tmp_path, messages, monkeypatch):
    place = tmp_path
    for k, wrong in enumerate((("--scores", "entropie"), ("--level", 2), ("--predictions", "nowhere"))):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        made = Made(messages)
        monkeypatch.setitem(
            sys.modules, "uqeval.reproduce.models.text.zeroshot", type("M", (), {"classify_messages": made})
        )
        monkeypatch.setattr(command, "find_spec", lambda name: True)
        commands.fail("reproduce", "oasst2", "--models", "paper", "--sample", COUNT, "--out", tmp_path / "x", *wrong)
        assert made.calls == []


@pytest.mark.skipif(DATA is None, reason="UQEVAL_DATA is not set")
def test_images_give_the_labels_where_the_data_folder_has_none(tmp_path, monkeypatch, undrawn):
    for name in ("cifar10h-counts.npy", "cifar10h-probs.npy"):
        (tmp_path / name).symlink_to(Path(DATA) / "cifar10h" / name)
    labels = datasets.cifar10h(DATA).labels
    rng = np.random.default_rng(0)
    save_logits(
        tmp_path / "p", "a", 3 * np.eye(10)[labels] + rng.normal(size=(10000, 10)), labels=labels, source="test"
    )
    asked = ("cifar10h", "--data", tmp_path, "--predictions", tmp_path / "p", "--scores", "entropy", "-q", "--out")
    commands.fail("reproduce", *asked, tmp_path / "x")
    monkeypatch.setattr(
        datasets, "cifar10_images", lambda part, source=None, data=None: (np.zeros((4, 32, 32, 3), np.uint8), labels)
    )
    run(*asked, tmp_path / "x", "--images", tmp_path)
    assert json.loads((tmp_path / "x" / "table.json").read_text())["models"][0]["model"] == "a"


@pytest.mark.skipif(DATA is None, reason="UQEVAL_DATA is not set")
def test_probes_and_training_get_the_images_and_their_options(tmp_path, monkeypatch, undrawn):
    pytest.importorskip("torch")
    found = {}

    def probe(*args, **options):
        found["probe"] = (args, options)
        return []

    def train(*args, **options):
        found["train"] = (args, options)
        save_logits(
            args[2],
            "zoo-net",
            5 * np.eye(10)[args[1][1]] + np.random.default_rng(0).normal(size=(10000, 10)),
            labels=args[1][1],
            source="test",
        )
        return ["zoo-net"]

    monkeypatch.setitem(sys.modules, "uqeval.reproduce.models.vision.probe", type("M", (), {"probe_backbones": probe}))
    monkeypatch.setitem(sys.modules, "uqeval.reproduce.models.vision.zoo", type("M", (), {"train_zoo": train}))
    monkeypatch.setattr(
        datasets,
        "cifar10_images",
        lambda part, source=None, data=None: (np.zeros((4, 32, 32, 3), np.uint8), datasets.cifar10h(data).labels),
    )
    out = tmp_path / "x"
    run("cifar10h", "--data", DATA, "--backbones", "resnet18,vgg11", "--train", "--zoo", "tiny", "--out", out, "-q")
    assert found["probe"][0][0] == ["resnet18", "vgg11"]
    assert found["probe"][0][3] == out / "predictions"
    assert found["train"][1]["models"] == "tiny"
    assert json.loads((out / "table.json").read_text())["settings"]["single_models"] == 1


@pytest.mark.skipif(DATA is None, reason="UQEVAL_DATA is not set")
def test_classifiers_of_imagenet_get_labels_and_may_cover_some_images(tmp_path, monkeypatch, undrawn):
    rows = np.flatnonzero(datasets.imagenet_real(DATA).labels >= 0)[:300]
    labels = np.random.default_rng(0).integers(0, 1000, 50_000)
    np.save(tmp_path / "val.npy", labels)
    found = {}

    def classify(*args, **options):
        found["call"] = (args, options)
        logits = 3 * np.eye(1000)[labels[rows]] + np.random.default_rng(1).normal(size=(len(rows), 1000))
        save_logits(args[2], "resnet18", logits, labels=options["labels"], source="test", rows=rows)
        return ["resnet18"]

    stands = type("M", (), {"classify_folder": classify, "find_images": None})
    monkeypatch.setitem(sys.modules, "uqeval.reproduce.models.vision.classify", stands)
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    out = tmp_path / "x"
    options = ("--models", "resnet18", "--images", tmp_path, "--labels", tmp_path / "val.npy", "--scores", "entropy")
    run("imagenet-real", "--data", DATA, *options, "--out", out, "-q")
    assert found["call"][0][0] == ["resnet18"]
    assert np.array_equal(found["call"][1]["labels"], labels)
    written = json.loads((out / "table.json").read_text())
    assert written["models"][0]["n"] == 300
    assert written["settings"]["labels"] == "original"
