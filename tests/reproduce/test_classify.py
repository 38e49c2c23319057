"""Classifiers over validation images: rows follow the file numbers, broken files are named, finished models stay."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from uqeval._errors import InputError
from uqeval.reproduce.logits.folder import find_predictions
from uqeval.reproduce.models.vision import classify
from uqeval.reproduce.models.vision.backbones import Backbone, Preprocess
from uqeval.reproduce.models.vision.classify import classify_folder, find_images

image = pytest.importorskip("PIL.Image")
NUMBERS = (7, 12, 49_999, 1, 345, 30_000)


def photo(number):
    """Grey of its number, so that a row tells which image it is of."""
    rng = np.random.default_rng(number)
    pixels = np.full((int(rng.integers(20, 60)), int(rng.integers(20, 60)), 3), number % 251, dtype=np.uint8)
    return image.fromarray(pixels)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "val"
    place.mkdir()
    for number in NUMBERS:
        photo(number).save(place / f"ILSVRC2012_val_{number:08d}.JPEG", quality=95)
    return place


class Grey(nn.Module):
    """1,000 logits of which one is the mean of the image."""

    def __init__(self, at=0, scale=1.0):
        super().__init__()
        self.at = at
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        out = torch.zeros(len(x), 1000)
        out[:, self.at] = self.scale * x.mean(dim=(1, 2, 3)) * 255
        return out


def grey(name, **options):
    plain = Preprocess(16, 16, (0.0,) * 3, (1.0,) * 3)
    return Backbone(name, f"{name} net", lambda: (Grey(**options), plain))


LABELS = np.arange(50_000) % 1000


def test_rows_follow_the_numbers_of_the_files(folder, tmp_path):
    calls = []
    names = classify_folder(
        [grey("a"), grey("b", at=3, scale=2.0)],
        folder,
        tmp_path / "out",
        batch_size=4,
        labels=LABELS,
        device="cpu",
        progress=lambda *at: calls.append(at),
    )
    assert names == ["a", "b"]
    assert calls[-1] == ("classification", 12, 12)
    rows = np.array(sorted(NUMBERS)) - 1
    for prediction in find_predictions(tmp_path / "out"):
        logits = prediction.open()
        assert logits.shape == (6, 1000)
        np.testing.assert_array_equal(prediction.covered(), rows)
        at, scale = {"a": (0, 1.0), "b": (3, 2.0)}[prediction.name]
        np.testing.assert_allclose(logits[:, at] / scale, (rows + 1) % 251, atol=1.5)  # JPEG
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "labels.npy"), LABELS)


def test_class_folders_and_flat_files_give_the_same_rows(folder, tmp_path):
    nested = tmp_path / "nested"
    for k, path in enumerate(sorted(folder.iterdir())):
        (nested / f"n0{k % 2:07d}").mkdir(parents=True, exist_ok=True)
        (nested / f"n0{k % 2:07d}" / path.name).write_bytes(path.read_bytes())
    flat, deep = find_images(folder), find_images(nested)
    np.testing.assert_array_equal(flat.rows, deep.rows)
    assert [p.name for p in flat.paths] == [p.name for p in deep.paths]
    assert deep.labels is None  # two of a thousand folders do not tell the class
    assert not deep.complete


def test_all_class_folders_give_the_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(classify, "IMAGES", 8)
    monkeypatch.setattr(classify, "CLASSES", 4)
    for number in range(1, 9):
        place = tmp_path / "val" / f"n{(number * 3) % 4:08d}"
        place.mkdir(parents=True, exist_ok=True)
        photo(number).save(place / f"ILSVRC2012_val_{number:08d}.JPEG")
    found = find_images(tmp_path / "val")
    assert found.complete
    assert found.labels.tolist() == [(number * 3) % 4 for number in range(1, 9)]


def test_labels_come_from_a_list_beside_the_images(folder):
    for kind in ("val.txt", "LOC_val_solution.csv"):
        lines = ["ImageId,PredictionString"] if kind.endswith("csv") else []
        for number, label in enumerate(LABELS, start=1):
            name = f"ILSVRC2012_val_{number:08d}"
            lines.append(f"{name},n{label:08d} 1 2 3 4" if kind.endswith("csv") else f"val/{name}.JPEG {label}")
        (folder.parent / kind).write_text("\n".join(lines))
        np.testing.assert_array_equal(find_images(folder).labels, LABELS)
        (folder.parent / kind).write_text("\n".join(lines[:-1]))
        with pytest.raises(InputError, match=r"49,999 were found"):
            find_images(folder)
        (folder.parent / kind).unlink()


def test_without_labels_those_of_people_are_taken(folder, tmp_path, monkeypatch):
    class Real:
        labels = LABELS

    monkeypatch.setattr(classify.datasets, "imagenet_real", lambda data: Real())
    classify_folder(grey("a", at=6), folder, tmp_path / "out", device="cpu")
    about = json.loads((tmp_path / "out" / "a.json").read_text())
    assert about["accuracy"] == pytest.approx(1 / 6)  # only image 7 has class 6
    assert not (tmp_path / "out" / "labels.npy").exists()


def test_a_broken_image_is_named_and_nothing_is_left(folder, tmp_path):
    broken = folder / "ILSVRC2012_val_00000345.JPEG"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(InputError, match=r"ILSVRC2012_val_00000345.JPEG cannot be read as an image"):
        classify_folder(grey("a"), folder, tmp_path / "out", labels=LABELS, device="cpu")
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.filterwarnings("default")  # torch's notes on forks and threads
def test_workers_decode_in_the_same_order_and_report_a_broken_image(folder, tmp_path):
    for workers in (0, 2):
        classify_folder(
            grey("a"), folder, tmp_path / str(workers), batch_size=2, labels=LABELS, workers=workers, device="cpu"
        )
    one, two = (np.load(tmp_path / str(workers) / "a.npy") for workers in (0, 2))
    np.testing.assert_array_equal(one, two)
    (folder / "ILSVRC2012_val_00000012.JPEG").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"^\S+ILSVRC2012_val_00000012.JPEG cannot be read"):
        classify_folder(grey("a"), folder, tmp_path / "c", batch_size=2, labels=LABELS, workers=2, device="cpu")


def test_finished_models_are_left_alone(folder, tmp_path):
    asked = {"labels": LABELS, "device": "cpu"}
    classify_folder([grey("a")], folder, tmp_path / "out", **asked)
    before = (tmp_path / "out" / "a.npy").stat().st_mtime_ns
    calls = []
    classify_folder([grey("a"), grey("b")], folder, tmp_path / "out", progress=lambda *at: calls.append(at), **asked)
    assert calls == [("classification", 6, 6)]
    assert (tmp_path / "out" / "a.npy").stat().st_mtime_ns == before


def test_models_that_fail_are_left_out_and_told(folder, tmp_path):
    plain = Preprocess(16, 16, (0.0,) * 3, (1.0,) * 3)
    ten = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))
    models = [
        grey("a"),
        Backbone("ten", "ten net", lambda: (ten, plain)),
        grey("nan", scale=float("nan")),
        Backbone("broken", "broken", lambda: 1 / 0, known="broken"),
        grey("b", at=1),
    ]
    failures = []
    asked = {"labels": LABELS, "device": "cpu", "batch_size": 4}
    found = classify_folder(models, folder, tmp_path / "out", **asked, keep_going=True, failures=failures)
    assert found == ["a", "b"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("a.json", "a.npy", "a.rows.npy", "b.json", "b.npy", "b.rows.npy", "labels.npy")
    ]
    reasons = {failure["model"]: failure["reason"] for failure in failures}
    assert set(reasons) == {"ten", "nan", "broken"}
    assert "shape (4, 10)" in reasons["ten"]
    assert "NaN or infinite logits" in reasons["nan"]
    classify_folder(grey("a"), folder, tmp_path / "alone", **asked)
    np.testing.assert_array_equal(np.load(tmp_path / "alone" / "a.npy"), np.load(tmp_path / "out" / "a.npy"))


def test_models_that_prepare_images_in_other_ways_each_get_their_own(folder, tmp_path):
    bright = Backbone("bright", "bright net", lambda: (Grey(), Preprocess(8, 16, (-1.0,) * 3, (1.0,) * 3)))
    classify_folder([grey("a"), bright], folder, tmp_path / "out", labels=LABELS, device="cpu")
    a, b = (np.load(tmp_path / "out" / f"{name}.npy")[:, 0] for name in ("a", "bright"))
    np.testing.assert_allclose(b - a, 255, atol=0.5)


def test_bad_folders_and_outputs_are_named(folder, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no folder"):
        find_images(tmp_path / "absent")
    with pytest.raises(InputError, match=r"has no file such as ILSVRC2012_val_00000001\.JPEG"):
        find_images(_empty(tmp_path))
    ten = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10))
    with pytest.raises(InputError, match=r"shape \(6, 10\)"):
        classify_folder(ten, folder, out, labels=LABELS, device="cpu")
    with pytest.raises(InputError, match="more than once"):
        classify_folder([grey("a"), grey("a")], folder, out, labels=LABELS)
    with pytest.raises(InputError, match=r"`labels` has shape \(3,\)"):
        classify_folder(grey("a"), folder, out, labels=[0, 1, 2])
    with pytest.raises(InputError, match="`dtype` is 'int8'"):
        classify_folder(grey("a"), folder, out, labels=LABELS, dtype="int8")
    photo(3).save(folder / "ILSVRC2012_val_00050001.JPEG")
    with pytest.raises(InputError, match="number 50001"):
        find_images(folder)
    (folder / "ILSVRC2012_val_00050001.JPEG").unlink()
    (folder / "more").mkdir()
    photo(7).save(folder / "more" / "ILSVRC2012_val_00000007.JPEG")
    with pytest.raises(InputError, match="are the same image"):
        find_images(folder)


def _empty(tmp_path):
    place = tmp_path / "empty"
    place.mkdir()
    return place
