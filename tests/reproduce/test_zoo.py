"""The zoo: every kind of network trains, finished models stay, and a seed decides everything."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from uqeval._errors import InputError, MissingExtra
from uqeval.reproduce.logits.folder import find_predictions
from uqeval.reproduce.models.vision.zoo import Recipe, _Field, _recipes, _training_set, default_zoo, tiny_zoo, train_zoo
from uqeval.reproduce.models.vision.zoo_nets import NETS, make_net


def data(n=256, seed=0, side=8):
    """Three classes that differ in colour."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    images = rng.integers(0, 120, (n, side, side, 3))
    images[np.arange(n), :, :, labels] += 90
    return images.astype(np.uint8), labels


@pytest.mark.slow
def test_every_kind_of_network_learns(tmp_path):
    place = tmp_path
    for k, kind in enumerate(NETS):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        train_zoo(data(512), data(100, 1), tmp_path, models=[Recipe("m", kind, 16, epochs=8)], device="cpu")
        assert json.loads((tmp_path / "m.json").read_text())["accuracy"] > 0.9


def test_dropout_reaches_every_kind_of_network():
    for kind in NETS:
        layers = [m for m in make_net(kind, 8, 3, dropout=0.3).modules() if isinstance(m, torch.nn.Dropout)]
        assert layers or kind == "linear"


def test_members_and_passes_are_written_as_such(tmp_path):
    calls = []
    names = train_zoo(data(), data(50, 1), tmp_path, models="tiny", device="cpu", progress=lambda *at: calls.append(at))
    assert names == [recipe.name for recipe in tiny_zoo()]
    assert calls == [("training", k, 9) for k in range(1, 10)]
    found = {p.name: p for p in find_predictions(tmp_path)}
    kinds = {name: (p.kind, p.shape) for name, p in found.items()}
    assert kinds == {
        "linear-e1": ("single", (50, 3)),
        "resnet-w4-e1": ("single", (50, 3)),
        "noise-mlp-0.5": ("single", (50, 3)),
        "ensemble-mlp": ("members", (2, 50, 3)),
        "dropout-mlp-0.3": ("passes", (3, 50, 3)),
    }
    for name in ("ensemble-mlp", "dropout-mlp-0.3"):
        logits = found[name].open()
        assert not np.array_equal(logits[0], logits[1])
    assert "2 seeds" in found["ensemble-mlp"].source
    assert "dropout 0.3, 3 stochastic passes" in found["dropout-mlp-0.3"].source


def test_a_model_depends_on_the_seed_and_not_on_the_others(tmp_path):
    mine, other = Recipe("mine", "mlp", 8, 1), Recipe("other", "linear", 0, 1)
    for place, models, seed in (("a", [mine], 0), ("b", [other, mine], 0), ("c", [mine], 1)):
        train_zoo(data(), data(50, 1), tmp_path / place, models=models, seed=seed, device="cpu")
    a, b, c = (np.load(tmp_path / place / "mine.npy") for place in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_finished_models_stay_and_a_stopped_one_starts_anew(tmp_path):
    first, second = Recipe("first", "linear", 0, 1), Recipe("second", "mlp", 8, 2)

    def stop(_, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_zoo(data(), data(50, 1), tmp_path, models=[first, second], device="cpu", progress=stop)
    assert [p.name for p in find_predictions(tmp_path)] == ["first"]
    calls = []
    asked = {"device": "cpu", "progress": lambda *at: calls.append(at)}
    train_zoo(data(), data(50, 1), tmp_path, models=[first, second], **asked)
    assert calls == [("training", 1, 2), ("training", 2, 2)]
    train_zoo(data(), data(50, 1), tmp_path, models=[first, second], **asked)
    assert len(calls) == 2
    train_zoo(data(), data(50, 1), tmp_path, models=[replace(first, epochs=2)], **asked)
    assert len(calls) == 4


def test_noise_and_share_change_the_training_set_as_they_say():
    images, labels = data(1000)
    field = _Field((images, labels), (images[:5], labels[:5]), torch.device("cpu"))
    rows, y = _training_set(Recipe("m", "mlp", noise=0.4), field, np.random.default_rng(0))
    assert len(rows) == 1000
    wrong = np.mean(y.numpy() != labels)
    assert abs(wrong - 0.4) < 4 * np.sqrt(0.24 / 1000)
    rows, y = _training_set(Recipe("m", "mlp", share=0.1), field, np.random.default_rng(0))
    assert len(set(rows.tolist())) == 100
    np.testing.assert_array_equal(y.numpy(), labels[rows.numpy()])


def test_augmented_images_are_shifted_and_mirrored_copies():
    images, labels = data(2)
    field = _Field((images, labels), (images, labels), torch.device("cpu"))
    padded = np.pad(images[0], ((4, 4), (4, 4), (0, 0)), mode="reflect")
    views = [padded[i : i + 8, j : j + 8] for i in range(9) for j in range(9)]
    views = torch.from_numpy(np.stack(views + [view[:, ::-1] for view in views]))
    possible = {bytes(v.numpy().tobytes()) for v in field.scaled(views).contiguous()}
    stream = torch.Generator().manual_seed(0)
    seen = {bytes(field.augmented(torch.tensor([0]), stream)[0].contiguous().numpy().tobytes()) for _ in range(300)}
    assert seen <= possible
    assert len(seen) > 100


def test_the_default_zoo_spreads_over_kinds_and_has_unique_names():
    zoo = default_zoo()
    assert len({recipe.name for recipe in zoo}) == len(zoo)
    assert {recipe.net for recipe in zoo} == set(NETS)
    assert _recipes("vgg-w16-e1")[0].epochs == 1
    assert _recipes(["torchvision:resnet18-e4"])[0] == Recipe("resnet18-e4", "torchvision:resnet18", 0, 4)


def test_bad_input_to_the_zoo_is_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="'nothing'"):
        train_zoo(data(), data(), tmp_path, models=["nothing"])
    with pytest.raises(InputError, match="torchvision:NAME-eEPOCHS"):
        train_zoo(data(), data(), tmp_path, models=["torchvision:resnet18-ex"])
    with pytest.raises(InputError, match="linear-e2 more than once"):
        train_zoo(data(), data(), tmp_path, models=["linear-e2", "linear-e2"])
    with pytest.raises(InputError, match="Pass square ones alike"):
        train_zoo(data(), data(side=16), tmp_path)
    with pytest.raises(InputError, match="multiple of 8"):
        make_net("vit", 8, 3, side=30)
    with pytest.raises(InputError, match="`kind` is 'gan'"):
        make_net("gan", 8, 3)
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)
    with pytest.raises(MissingExtra, match="torchvision"):
        make_net("torchvision:resnet18", 0, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_every_kind_of_network_learns_on_cuda(tmp_path):
    place = tmp_path
    for k, kind in enumerate(NETS):
        tmp_path = place / str(k)
        tmp_path.mkdir()
        dropout, passes = (0.0, 0) if kind == "linear" else (0.1, 3)
        recipe = Recipe("m", kind, 16, epochs=16, dropout=dropout, passes=passes)
        train_zoo(data(512, side=32), data(100, 1, side=32), tmp_path, models=[recipe], device="cuda")
        assert json.loads((tmp_path / "m.json").read_text())["accuracy"] > 0.9
