"""The references of the three studies: rows that count, labels, ties, and what is said about them."""

import os

import numpy as np
import pytest

from uqeval import datasets
from uqeval._errors import InputError
from uqeval.reproduce import cifar10h, imagenet_real, oasst2
from uqeval.reproduce.human.cifar10h import reference as cifar_reference
from uqeval.reproduce.human.imagenet_real import reference as imagenet_reference
from uqeval.reproduce.human.oasst2 import reference as oasst2_reference
from uqeval.reproduce.human.verdicts import OPEN
from uqeval.reproduce.logits.writer import LogitsWriter, save_logits

DATA = os.environ.get("UQEVAL_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="UQEVAL_DATA is not set")


@needs_data
def test_votes_of_cifar10h_agree_with_the_labels_but_for_a_few():
    found = cifar_reference(DATA)
    majority, tied = found.majority()
    assert (found.labels.shape, found.classes, found.rated.sum()) == ((10000,), 10, 10000)
    assert (majority == found.labels).mean() == pytest.approx(0.9921)
    assert tied == 3


@needs_data
def test_other_votes_or_labels_change_the_hash_of_the_reference():
    found = cifar_reference(DATA)
    digest = found.digest()
    assert digest == cifar_reference(DATA).digest()
    found.labels[0] = (found.labels[0] + 1) % 10
    assert found.digest() != digest


@needs_data
def test_images_without_a_valid_label_are_left_out_of_imagenet():
    found = imagenet_reference(DATA)
    assert found.rated.sum() == 50_000 - 3163
    assert (found.labels[~found.rated] == -1).all()
    assert found.facts["labels"] == "human majority"
    assert any("near 100% by construction" in note for note in found.notes)
    assert any("3,163 of 50,000 images" in note for note in found.notes)


@needs_data
def test_original_labels_come_from_a_file_or_the_folder_of_predictions(tmp_path):
    labels = np.random.default_rng(0).integers(0, 1000, 50_000)
    np.save(tmp_path / "labels.npy", labels)
    np.savetxt(tmp_path / "val.txt", labels, fmt="%d")
    for given in ({"predictions": tmp_path}, {"labels": tmp_path / "val.txt"}, {"labels": labels}):
        found = imagenet_reference(DATA, **given)
        assert np.array_equal(found.labels, labels)
        assert found.facts["labels"] == "original"
    with pytest.raises(InputError, match=r"`labels` has 49,999 entries; there are 50,000 images"):
        imagenet_reference(DATA, labels[1:])
    with pytest.raises(InputError, match=r"`labels`: there is no file"):
        imagenet_reference(DATA, tmp_path / "none.npy")
    (tmp_path / "val.txt").write_text("n01440764\n")
    with pytest.raises(InputError, match=r"val\.txt: must hold one class index per line"):
        imagenet_reference(DATA, tmp_path / "val.txt")


@needs_data
@pytest.mark.slow
def test_imagenet_study_runs_on_generated_logits_of_full_size(tmp_path):
    found = imagenet_reference(DATA)
    rng = np.random.default_rng(0)
    labels = np.where(found.rated, found.labels, 0)
    odd = rng.random(len(labels)) < 0.1
    labels[odd] = rng.integers(0, 1000, odd.sum())
    np.save(tmp_path / "labels.npy", labels)
    for k, name in enumerate(["resnet18", "vgg11", "swin_t", "alexnet"]):
        with LogitsWriter(tmp_path, name, (50_000, 1000), np.float16, labels=labels, source="generated") as out:
            for start in range(0, 50_000, 1000):
                part = slice(start, start + 1000)
                block = rng.standard_normal((1000, 1000), dtype=np.float32)
                block[np.arange(1000), found.labels[part]] += 2.5 + 0.5 * k
                out[part] = block
    study = imagenet_real(tmp_path, data=DATA, scores=["entropy"])
    assert study.settings["rated"] == 46_837
    assert study.settings["labels"] == "original"
    assert {row["n"] for row in study.models} == {46_837}
    assert all(np.isfinite(row["r"]) for row in study.correlations if row["metric"] in ("uq_auc", "uq_c_index"))


def test_oasst2_judges_each_model_on_the_rows_that_it_covers(tmp_path):
    messages = datasets.oasst2_sample(400)
    rng = np.random.default_rng(0)
    english = np.flatnonzero(messages.languages == "en")
    for k, name in enumerate(["bart-a", "roberta-b", "xlm-c", "e5-d", "minilm-e"]):
        logits = (0.5 + 0.4 * k) * np.log(messages.soft_labels + 0.05) + rng.normal(size=(400, 2))
        rows = english if name == "bart-a" else None
        logits = logits if rows is None else logits[rows]
        save_logits(tmp_path, name, logits, labels=messages.labels, source="test", rows=rows)
    study = oasst2(tmp_path, data=messages)
    sizes = {row["model"]: row["n"] for row in study.models}
    assert sizes.pop("bart-a") == len(english)
    assert set(sizes.values()) == {400}
    assert study.tables["one_vs_rest"] == []  # two classes: it would be the direct metric
    compared = {row["a"] for row in study.tables["comparisons"] if row["of"] == "models, by entropy"}
    assert "bart-a" not in compared  # other rows: not paired
    assert study.notes[0].startswith("The messages and their votes are generated")
    said = {name: lines for name, lines in study.verdicts().items() if lines}
    assert said == {OPEN: [study.notes[0]]}  # nothing is claimed of the paper
    assert oasst2_reference(messages).text


def test_study_without_predictions_says_where_they_come_from():
    for study in (cifar10h, imagenet_real, oasst2):
        with pytest.raises(InputError, match="`predictions` is missing: a folder of logits"):
            study()


def test_studies_of_the_paper_say_what_they_print():
    for function in (cifar10h, imagenet_real, oasst2):
        module = __import__(function.__module__, fromlist=["PAPER"])
        assert {(row["metric"], row["truth"]) for row in module.PAPER["printed"]} == {
            (metric, truth) for metric in ("uq_auc", "uq_c_index") for truth in ("kendall_phi", "kendall_varphi")
        }
        assert module.PAPER["models"] in (116, 70)
