"""A zoo of image classifiers trained from scratch: many kinds of networks, from bad to good, on any GPU.

What a study of metrics over models needs is a range: architectures of our own at several widths, stopped after few or
many epochs, with wrong labels or few images, plus ensembles that differ by seed and stochastic passes by dropout.
"""

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.methods import DeepEnsemble, MCDropout, Softmax
from uqeval.reproduce.logits.file import hash_labels
from uqeval.reproduce.logits.writer import Making, check_once
from uqeval.reproduce.models.device import pick_device
from uqeval.reproduce.models.vision.features import check_images, hash_images
from uqeval.reproduce.models.vision.zoo_nets import make_net
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.store import cell_key

Images = tuple[ArrayLike, ArrayLike]
Pixels = tuple[NDArray[np.uint8], NDArray[np.int64]]
_BATCH, _TEST_BATCH, _PAD = 128, 1000, 4
_GENTLE = {"vit", "convnext"}  # these learn with AdamW, the others with SGD


@dataclass(frozen=True)
class Recipe:
    """How one model of the zoo is made.

    Parameters
    ----------
    name : str
        Of its file.
    net : str
        Kind of network, see `uqeval.reproduce.models.vision.zoo_nets.make_net`.
    width : int
        Its width.
    epochs : int
        Passes over the training images.
    noise : float
        Share of training labels replaced by another class.
    share : float
        Share of the training images used.
    dropout : float
        In training, and in the passes.
    members : int
        Networks that differ by seed; 1 is a single model.
    passes : int
        Stochastic passes of the network with dropout on; 0 is none.
    """

    name: str
    net: str
    width: int = 32
    epochs: int = 8
    noise: float = 0.0
    share: float = 1.0
    dropout: float = 0.0
    members: int = 1
    passes: int = 0

    @property
    def kind(self) -> str:
        """ "single", "members" or "passes"."""
        return "members" if self.members > 1 else "passes" if self.passes else "single"


def default_zoo() -> list[Recipe]:
    """The models that are trained by default: 43, of accuracy .28 to .84 on 15,000 images of CIFAR-10.

    Those took eight minutes on an H200, most of it starting kernels; time grows with the number of images.

    Examples
    --------
    >>> zoo = default_zoo()
    >>> len(zoo), sorted({recipe.kind for recipe in zoo})
    (43, ['members', 'passes', 'single'])
    """
    return [Recipe(name, **how) for name, how in read_table("models/vision/models.toml")["default"].items()]


def tiny_zoo() -> list[Recipe]:
    """Five models that train in seconds on a CPU, one of each kind; for trying things out."""
    return [Recipe(name, **how) for name, how in read_table("models/vision/models.toml")["tiny"].items()]


def train_zoo(
    train: Images,
    test: Images,
    folder: str | Path,
    *,
    models: str | Iterable[Recipe | str] | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[str]:
    """Trains image classifiers from scratch and writes their test logits.

    Images and augmentation (shifts by up to 4 pixels, mirror images) stay on the device. On CUDA, training runs in
    bfloat16 with channels last, and predictions in float32. A model that is there whole is left alone; one that was
    interrupted starts anew.

    Parameters
    ----------
    train, test : pairs (images, labels)
        uint8 images (n, 32, 32, 3) and classes 0..K-1, such as `uqeval.datasets.cifar10_images` gives.
    folder : path
        Gets one file of logits per model.
    models : list of Recipe or str, "default" or "tiny", optional
        What to train; names are those of `default_zoo`, or ``torchvision:NAME-eEPOCHS``.
    device : str or torch.device, optional
        Default: CUDA where there is any.
    seed : int
        The same seed gives the same models on a CPU; on CUDA up to the order in which sums are rounded. A model does
        not depend on which others are trained.
    progress : callable(stage, done, total), optional
        Counts epochs over all models.

    Returns
    -------
    list of str
        Names of the models in `folder`.
    """
    x, y = check_images(*train)
    x_test, y_test = check_images(*test)
    if x.shape[1:] != x_test.shape[1:] or x.shape[1] != x.shape[2]:
        raise InputError(f"Training images are {x.shape[1:]}, test images {x_test.shape[1:]}. Pass square ones alike.")
    recipes = _recipes(models)
    where = pick_device(device)
    data = {"train": [hash_images(x), hash_labels(y)], "test": [hash_images(x_test), hash_labels(y_test)]}
    making = Making(folder)
    keys = {recipe: cell_key(asdict(recipe) | data | {"seed": seed, "revision": 1}) for recipe in recipes}
    todo = [recipe for recipe in recipes if making.open(recipe.name, keys[recipe])]
    total, done = sum(recipe.epochs * recipe.members for recipe in todo), 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress("training", done, total)

    field = _Field((x, y), (x_test, y_test), where)
    for recipe in todo:
        about = {"source": _source(recipe, len(y), seed), "kind": recipe.kind, "key": keys[recipe]}
        making.save(recipe.name, _train(recipe, field, seed, step), labels=y_test, **about)
    return making.done(recipe.name for recipe in recipes)


def _recipes(models: str | Iterable[Recipe | str] | None) -> list[Recipe]:
    if models is None or models == "default":
        return default_zoo()
    if models == "tiny":
        return tiny_zoo()
    known = {recipe.name: recipe for recipe in default_zoo()}
    wanted = [part.strip() for part in models.split(",")] if isinstance(models, str) else list(models)
    found = []
    for item in wanted:
        if isinstance(item, Recipe):
            found.append(item)
        elif item in known:
            found.append(known[item])
        elif isinstance(item, str) and item.startswith("torchvision:"):
            net, _, epochs = item.partition("-e")
            if epochs and not epochs.isdigit():
                example = "torchvision:NAME-eEPOCHS, such as torchvision:resnet18-e4"
                raise InputError(f"`models` has {item!r}. Write {example}.")
            count = int(epochs or 8)
            found.append(Recipe(f"{net.removeprefix('torchvision:')}-e{count}", net, 0, count))
        else:
            raise InputError(f"`models` has {item!r}. Pass recipes, torchvision:NAME, or of {', '.join(known)}.")
    if not found:
        raise InputError("`models` is empty. Name at least one model.")
    check_once("models", [recipe.name for recipe in found])
    return found


def _source(recipe: Recipe, images: int, seed: int) -> str:
    parts = [f"{recipe.net} of width {recipe.width}" if recipe.width else recipe.net]
    parts.append(f"trained from scratch on {round(images * recipe.share):,} images for {recipe.epochs} epochs")
    if recipe.noise:
        parts.append(f"{recipe.noise:.0%} wrong labels")
    if recipe.dropout:
        parts.append(f"dropout {recipe.dropout}")
    if recipe.kind != "single":
        parts.append(f"{recipe.members} seeds" if recipe.kind == "members" else f"{recipe.passes} stochastic passes")
    return f"uqeval zoo: {', '.join(parts)}; seed {seed}"


class _Field:
    """Training and test images on the device."""

    def __init__(self, train: Pixels, test: Pixels, device: torch.device) -> None:
        (x, y), (x_test, y_test) = train, test
        self.device, self.side, self.y = device, x.shape[1], y
        self.classes = max(int(y.max()), int(y_test.max())) + 1
        self.mean = torch.from_numpy(x.reshape(-1, 3).mean(axis=0) / 255).float().to(device)
        self.std = torch.from_numpy(x.reshape(-1, 3).std(axis=0) / 255).float().to(device).clamp(min=1e-3)
        padded = np.pad(x, ((0, 0), (_PAD, _PAD), (_PAD, _PAD), (0, 0)), mode="reflect")
        self.x = torch.from_numpy(padded).to(device)
        tested = torch.from_numpy(x_test).to(device)
        starts = range(0, len(y_test), _TEST_BATCH)
        self.test = [(self.scaled(tested[s : s + _TEST_BATCH]), y_test[s : s + _TEST_BATCH]) for s in starts]

    def scaled(self, pixels: Tensor) -> Tensor:
        """(n, 3, side, side), channels last in memory, from bytes (n, side, side, 3)."""
        return ((pixels.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)

    def augmented(self, rows: Tensor, stream: torch.Generator) -> Tensor:
        """Images shifted by up to 4 pixels, half of them mirrored."""
        n = len(rows)
        span = torch.arange(self.side, device=self.device)
        shift = torch.randint(0, 2 * _PAD + 1, (2, n, 1), generator=stream, device=self.device)
        mirror = torch.rand(n, 1, generator=stream, device=self.device) < 0.5
        across = torch.where(mirror, span.flip(0), span) + shift[1]
        return self.scaled(self.x[rows[:, None, None], (span + shift[0])[:, :, None], across[:, None, :]])


def _train(recipe: Recipe, field: _Field, seed: int, step: Callable[[], None]) -> NDArray[np.float32]:
    """Test logits (n, K), or (m, n, K) of members or passes."""
    own = np.random.default_rng([seed, zlib.crc32(recipe.name.encode())])
    rows, targets = _training_set(recipe, field, own)

    def factory(_: int) -> nn.Module:
        net: Any = make_net(recipe.net, recipe.width, field.classes, dropout=recipe.dropout, side=field.side)
        return net.to(field.device, memory_format=torch.channels_last)

    def fit(net: nn.Module, number: int) -> None:
        _fit(net, recipe, field, rows, targets, number, step)

    trained = DeepEnsemble.train(factory, fit, members=recipe.members, seed=own)
    if recipe.kind == "members":
        found = trained.predict(field.test, progress=False).member_logits
    elif recipe.kind == "passes":
        found = MCDropout(trained.models[0], recipe.passes, seed=own).predict(field.test, progress=False).member_logits
    else:
        found = Softmax(trained.models[0]).predict(field.test, progress=False).logits
    assert found is not None
    return found.astype(np.float32)


def _training_set(recipe: Recipe, field: _Field, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Which images, and their labels, some of them wrong."""
    n = len(field.y)
    rows = np.sort(rng.permutation(n)[: max(1, round(n * recipe.share))])
    y = field.y[rows].copy()
    wrong = rng.random(len(y)) < recipe.noise
    y[wrong] = (y[wrong] + rng.integers(1, field.classes, size=int(wrong.sum()))) % field.classes
    return torch.from_numpy(rows).to(field.device), torch.from_numpy(y).to(field.device)


def _fit(
    net: nn.Module, recipe: Recipe, field: _Field, rows: Tensor, targets: Tensor, seed: int, step: Callable[[], None]
) -> None:
    """SGD (or AdamW), the learning rate rising over the first fifth of the steps and then falling to 0."""
    cuda = field.device.type == "cuda"
    stream = torch.Generator(field.device).manual_seed(seed)
    batch = min(_BATCH, len(rows))
    steps = recipe.epochs * (len(rows) // batch)
    optimizer: torch.optim.Optimizer
    options: dict[str, Any] = {"fused": True} if cuda else {}
    if recipe.net in _GENTLE:
        top, optimizer = 2e-3, torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05, **options)
    else:
        top = 0.01 if recipe.net == "linear" else 0.1
        optimizer = torch.optim.SGD(net.parameters(), lr=top, momentum=0.9, nesterov=True, weight_decay=5e-4, **options)
    at = 0
    net.train()
    for _ in range(recipe.epochs):
        order = torch.randperm(len(rows), generator=stream, device=field.device)
        for start in range(0, len(rows) - batch + 1, batch):
            at += 1
            rise = at / max(1.0, 0.2 * steps)
            rate = top * min(rise, 0.5 * (1 + math.cos(math.pi * max(0.0, (at / steps - 0.2) / 0.8))))
            for group in optimizer.param_groups:
                group["lr"] = rate
            part = order[start : start + batch]
            x = field.augmented(rows[part], stream)
            with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                loss = nn.functional.cross_entropy(net(x), targets[part])
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
        step()
    net.eval()
