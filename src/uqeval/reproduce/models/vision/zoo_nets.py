"""Small image networks of many kinds, for 32 × 32 pixels, to be trained from scratch in seconds to minutes."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from uqeval._errors import InputError
from uqeval.reproduce.models.vision.backbones import torchvision_models


def make_net(kind: str, width: int, classes: int, *, dropout: float = 0.0, side: int = 32) -> nn.Module:
    """An untrained network.

    Parameters
    ----------
    kind : str
        "resnet", "vgg", "mobilenet", "convnext", "vit", "mlp", "linear", or ``torchvision:NAME``.
    width : int
        Channels of the first stage (or features of a token or hidden layer); torchvision's have their own.
    classes : int
        Outputs.
    dropout : float
        Share of activations dropped in training, behind each stage and before the last layer.
    side : int
        Height and width of the images, a multiple of 8.

    Returns
    -------
    torch.nn.Module
        Logits (batch, classes) of images (batch, 3, side, side).

    Examples
    --------
    >>> import torch
    >>> make_net("resnet", 8, classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if kind.startswith("torchvision:"):
        return _of_torchvision(kind.removeprefix("torchvision:"), classes)
    if kind not in NETS:
        raise InputError(f"`kind` is {kind!r}. Choose of {', '.join(NETS)}, or torchvision:NAME.")
    if side % 8:
        raise InputError(f"`side` is {side}: images must have a multiple of 8 pixels on a side.")
    return NETS[kind](width, classes, dropout, side)


def _of_torchvision(name: str, classes: int) -> nn.Module:
    models = torchvision_models("A network")
    if name not in models.list_models(module=models):
        raise InputError(f"torchvision has no classifier {name!r}.")
    side_heads = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return models.get_model(name, num_classes=classes, **side_heads)


class _Sum(nn.Module):
    """A branch added to its input, or to a projection of it."""

    def __init__(self, branch: nn.Module, skip: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.skip = branch, skip or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.branch(x)


def _conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


def _drop(dropout: float) -> list[nn.Module]:
    return [nn.Dropout(dropout)] if dropout else []


def _head(features: int, classes: int, dropout: float) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *_drop(dropout), nn.Linear(features, classes)]


def _resnet(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    """Residual blocks of two 3 × 3 convolutions, two blocks a stage (He et al. 2016)."""
    layers: list[nn.Module] = [*_conv(3, width), nn.ReLU()]
    sizes = (width, width, 2 * width, 4 * width)
    for stage, (a, b) in enumerate(pairwise(sizes)):
        for first in (True, False):
            stride = 2 if first and stage else 1
            inputs = a if first else b
            branch = nn.Sequential(*_conv(inputs, b, stride=stride), nn.ReLU(), *_conv(b, b))
            skip = nn.Sequential(*_conv(inputs, b, kernel=1, stride=stride)) if inputs != b or stride > 1 else None
            layers += [_Sum(branch, skip), nn.ReLU()]
        layers += _drop(dropout)
    return nn.Sequential(*layers, *_head(sizes[-1], classes, dropout))


def _vgg(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    """Two 3 × 3 convolutions and a pooling, three times (Simonyan & Zisserman 2015)."""
    layers: list[nn.Module] = []
    for a, b in pairwise((3, width, 2 * width, 4 * width)):
        layers += [*_conv(a, b), nn.ReLU(), *_conv(b, b), nn.ReLU(), nn.MaxPool2d(2), *_drop(dropout)]
    return nn.Sequential(*layers, *_head(4 * width, classes, dropout))


def _mobilenet(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    """Each channel filtered by itself, then mixed (Howard et al. 2017)."""
    layers: list[nn.Module] = [*_conv(3, width), nn.ReLU()]
    for a, b in pairwise((width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width)):
        stride = 1 if a == b else 2
        layers += [*_conv(a, a, stride=stride, groups=a), nn.ReLU(), *_conv(a, b, kernel=1), nn.ReLU(), *_drop(dropout)]
    return nn.Sequential(*layers, *_head(8 * width, classes, dropout))


def _convnext(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    """Wide filters for each channel by itself, then a two-layer mix of channels (Liu et al. 2022)."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 2, 2), nn.GroupNorm(1, width)]
    sizes = (width, 2 * width, 4 * width)
    for stage, size in enumerate(sizes):
        if stage:
            layers += [nn.GroupNorm(1, size // 2), nn.Conv2d(size // 2, size, 2, 2)]
        for _ in range(2):
            filters = nn.Conv2d(size, size, 5, padding=2, groups=size)
            mix = [nn.Conv2d(size, 4 * size, 1), nn.GELU(), nn.Conv2d(4 * size, size, 1)]
            layers.append(_Sum(nn.Sequential(filters, nn.GroupNorm(1, size), *mix, *_drop(dropout))))
    return nn.Sequential(*layers, *_head(sizes[-1], classes, dropout))


class _ViT(nn.Module):
    """Patches of 4 × 4 pixels, four transformer layers, the mean of the tokens (Dosovitskiy et al. 2021)."""

    def __init__(self, width: int, classes: int, dropout: float, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(torch.randn(1, (side // 4) ** 2, width) * 0.02)
        shape = (width, max(1, width // 32), 2 * width, dropout)
        layers = (nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=True) for _ in range(4))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.LayerNorm(width), *_drop(dropout), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT + self.places
        return self.head(self.layers(tokens).mean(dim=1))


def _mlp(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in pairwise((3 * side**2, width, width)):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), *_drop(dropout)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def _linear(width: int, classes: int, dropout: float, side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * side**2, classes))


NETS: dict[str, Callable[[int, int, float, int], nn.Module]] = {
    "resnet": _resnet,
    "vgg": _vgg,
    "mobilenet": _mobilenet,
    "convnext": _convnext,
    "vit": _ViT,
    "mlp": _mlp,
    "linear": _linear,
}
