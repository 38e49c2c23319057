"""Linear probes: how well a straight line separates the classes in what a pretrained network sees.

The paper's protocol for CIFAR10-H: a softmax regression on the penultimate layer of each network, trained by SGD with
learning rate 0.002 and momentum 0.9 for 10 epochs in batches of 32, and metrics on validation folds. All folds of all
networks are trained side by side in batched matrix products.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from uqeval._check import Progress, check_count
from uqeval._errors import InputError
from uqeval.reproduce.logits.file import hash_labels
from uqeval.reproduce.logits.writer import Making
from uqeval.reproduce.models.device import pick_device
from uqeval.reproduce.models.vision.backbones import Backbone, usable
from uqeval.reproduce.models.vision.features import check_images, compute_features, features_key, hash_images
from uqeval.reproduce.store import cell_key

_CPU_BYTES = 2 << 30  # features held at once


@dataclass(frozen=True)
class Training:
    """How probes are trained; the defaults are the paper's."""

    folds: int = 5  # parts of the cross-validation, stratified by class
    epochs: int = 10
    lr: float = 0.002
    momentum: float = 0.9
    batch_size: int = 32
    seed: int = 0  # of folds, initial weights and the order of rows

    def __str__(self) -> str:
        return (
            f"SGD, learning rate {self.lr}, momentum {self.momentum}, {self.epochs} epochs, batches of "
            f"{self.batch_size}, no scaling; out-of-fold logits of {self.folds} stratified folds; seed {self.seed}"
        )


def stratified_folds(labels: ArrayLike, folds: int = 5, seed: int = 0) -> NDArray[np.int64]:
    """The fold of each row: every class is spread evenly, and sizes differ by one at most.

    Parameters
    ----------
    labels : array-like of shape (n,)
        Classes.
    folds : int
        How many, at least 2.
    seed : int
        Which rows go where within a class.

    Returns
    -------
    ndarray of shape (n,)
        0..folds-1.

    Examples
    --------
    >>> fold = stratified_folds([0, 0, 1, 1, 1, 1], folds=2)
    >>> np.bincount(fold), np.bincount(fold[2:])
    (array([3, 3]), array([2, 2]))
    """
    y = np.asarray(labels)
    if check_count("folds", folds) < 2 or folds > len(y):
        raise InputError(f"`folds` is {folds} for {len(y)} rows. Pass at least 2 and at most as many as rows.")
    shuffled = np.random.default_rng(np.random.SeedSequence([seed, 0])).permutation(len(y))
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[by_class] = np.arange(len(y)) % folds  # dealt like cards, on from class to class
    return fold


def probe_backbones(
    backbones: str | nn.Module | Backbone | Iterable[Any],
    images: ArrayLike,
    labels: ArrayLike,
    folder: str | Path,
    *,
    image_size: int | None = 224,
    weights: str | Path | None = "DEFAULT",
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    keep_going: bool = False,
    failures: list[dict[str, str]] | None = None,
    **training: Any,
) -> list[str]:
    """Linear probes on pretrained networks; each image's logits come from the probe that did not see it.

    Parameters
    ----------
    backbones : str or list
        Names, modules, "paper" or "all": see `uqeval.reproduce.models.vision.backbones`.
    images : uint8 array of shape (n, height, width, 3)
        The whole of each image is resized to `image_size`.
    labels : array-like of shape (n,)
        Classes 0..K-1, which the probes are trained on.
    folder : path
        Gets one file of logits per network, and features in ``features/``. Networks that are there are left alone.
    image_size : int or None
        Side that the networks get; None: the one each was trained with. Other than 224, it becomes part of the name.
    weights : str, path or None
        As for `uqeval.reproduce.models.vision.backbones.backbone`.
    device : str or torch.device, optional
        Default: CUDA where there is any.
    progress : callable(stage, done, total), optional
        Counts images through the networks, then through the probes.
    keep_going : bool
        Goes on without a network that cannot be used, with a warning; an error only if none is left.
    failures : list, optional
        With `keep_going`, gets "model", "file" and "reason" of each network that was left out, instead of warnings and
        of the error if none is left.
    **training
        `folds` (5) of the cross-validation, stratified by class; `epochs` (10), `lr` (0.002), `momentum` (0.9) and
        `batch_size` (32) of SGD; `seed` (0) of folds, initial weights and the order of rows. The defaults are the
        paper's.

    Returns
    -------
    list of str
        Names of the models in `folder`.

    Notes
    -----
    What the paper leaves open, and how it is read here. It takes "the same train/test split as Schmarje et al. (2022)"
    and reports "metrics computed on the validation folds". That benchmark cuts the 10,000 annotated images, which are
    CIFAR-10's test set, into five folds; so a probe is trained on four fifths of them and judged on the fifth, and the
    five fifths together cover all images once. The probes are trained on CIFAR-10's labels, not on the votes. Features
    are not scaled, the learning rate stays constant, and nothing is augmented: the paper speaks of none of these. The
    size of the images is not given either; 224 is what most of the networks were trained with.
    """
    x, y = check_images(images, labels)
    how = Training(**training)
    for name in ("epochs", "batch_size"):
        check_count(name, getattr(how, name))
    where, making = pick_device(device), Making(folder, keep_going, failures)
    networks = {_name(network, image_size): network for network in usable("backbones", backbones, weights, making)}
    pixels = hash_images(x)
    todo: dict[str, str] = {}
    for name, network in networks.items():
        with making.guard(name):
            of = {"features": features_key(network, pixels, image_size), "labels": hash_labels(y), "revision": 1}
            key = cell_key(asdict(how) | of)
            if making.open(name, key):
                todo[name] = key
    total, done = 2 * len(x) * len(todo), 0

    def step(_: str, count: int, units: int | None, worth: int = len(x)) -> None:
        if progress is not None:
            progress("linear probes", done + worth * count // (units or 1), total)

    size = 64 if where.type == "cpu" else 256
    found: dict[str, NDArray[np.float32]] = {}
    for name in todo:
        with making.guard(name):
            options: dict[str, Any] = {"size": image_size, "batch_size": size, "device": where, "progress": step}
            found[name] = compute_features(networks[name], x, making.folder / "features", **options)
        done += len(x)
    side = "the size it was trained with" if image_size is None else f"{image_size} pixels"
    for group in _groups({name: features.shape[1] for name, features in found.items()}, len(x), where):
        share = partial(step, worth=len(x) * len(group))
        logits = probe_features([found[name] for name in group], y, device=where, progress=share, **training)
        done += len(x) * len(group)
        for name, out in zip(group, logits, strict=True):
            source = (
                f"linear probe on the penultimate layer of {networks[name].source}; images resized to {side}; {how}"
            )
            with making.guard(name):
                making.save(name, out, labels=y, source=source, key=todo[name])
    return making.done(networks)


def _name(network: Backbone, size: int | None) -> str:
    return network.name if size == 224 else f"{network.name}-{'native' if size is None else f'{size}px'}"


def _groups(widths: Mapping[str, int], rows: int, device: torch.device) -> list[list[str]]:
    """Networks whose features fit into memory together, those of like width beside each other: less is padded."""
    room = _CPU_BYTES if device.type == "cpu" else torch.cuda.mem_get_info(device)[0] // 3
    groups: list[list[str]] = []
    for name in sorted(widths, key=lambda name: widths[name]):
        if groups and (len(groups[-1]) + 1) * rows * widths[name] * 4 <= room:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


@torch.no_grad()
def probe_features(
    features: Sequence[NDArray[np.float32]],
    labels: ArrayLike,
    *,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    **training: Any,
) -> NDArray[np.float32]:
    """Out-of-fold logits of softmax regressions on several sets of features of the same rows.

    Networks times folds probes are trained in the same batched products. Features of different widths are filled up
    with zeros: a weight that only ever sees zeros has no gradient and adds nothing, so that the result is exact.

    Parameters
    ----------
    features : list of float arrays of shape (n, d)
        d may differ.
    labels : array-like of shape (n,)
        Classes 0..K-1.
    device, **training
        As for `probe_backbones`.
    progress : callable(stage, done, total), optional
        Called after every epoch.

    Returns
    -------
    float32 array of shape (len(features), n, K)
        Row i of each comes from the probe whose training rows do not hold i.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(60) % 2
    >>> wide, narrow = rng.normal(size=(2, 60, 8)).astype(np.float32) + labels[None, :, None]
    >>> probe_features([wide, narrow[:, :3]], labels, lr=0.1).shape
    (2, 60, 2)
    """
    where, how = pick_device(device), Training(**training)
    y = np.asarray(labels, dtype=np.int64)
    classes, n, many = int(y.max()) + 1, len(y), len(features)
    widths = [f.shape[1] for f in features]
    x = torch.zeros((many, n, max(widths)), device=where)
    for k, part in enumerate(features):
        x[k, :, : widths[k]] = torch.from_numpy(np.array(part, dtype=np.float32)).to(where)
    folds = range(how.folds)
    fold = stratified_folds(y, how.folds, how.seed)
    drawn = [initial_probe(d, classes, how.seed, f) for d in widths for f in folds]
    probes = _Probes(x, torch.from_numpy(y).to(where), drawn, how.folds)
    orders = [epoch_order(np.flatnonzero(fold != f), how.epochs, how.seed, f) for f in folds]
    for epoch in range(how.epochs):
        rows = [order[epoch] for order in orders]
        for start in range(0, max(map(len, rows)), how.batch_size):
            probes.step([row[start : start + how.batch_size] for row in rows], how.lr, how.momentum)
        if progress is not None:
            progress("probes", epoch + 1, how.epochs)
    out = np.empty((many, n, classes), dtype=np.float32)
    for f in folds:
        held = np.flatnonzero(fold == f)
        out[:, held] = probes.logits(torch.from_numpy(held).to(where), f)
    return out


def initial_probe(width: int, classes: int, seed: int, fold: int) -> tuple[Tensor, Tensor]:
    """(d, K) weights and (K,) biases as `torch.nn.Linear` draws them, from a stream of this fold."""
    stream = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, 1, fold]).generate_state(1)[0]))
    bound = 1 / math.sqrt(width)
    return tuple((torch.rand(shape, generator=stream) * 2 - 1) * bound for shape in ((width, classes), (classes,)))  # type: ignore[return-value]


def epoch_order(rows: NDArray[np.int64], epochs: int, seed: int, fold: int) -> list[NDArray[np.int64]]:
    """The rows in the order of each epoch; the same for all networks."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 2, fold]))
    return [rng.permutation(rows) for _ in range(epochs)]


class _Probes:
    """Softmax regressions side by side, ordered network by network and, in a network, fold by fold."""

    def __init__(self, x: Tensor, targets: Tensor, drawn: Sequence[tuple[Tensor, Tensor]], folds: int) -> None:
        self.x, self.targets, self.folds = x, targets, folds
        classes = len(drawn[0][1])
        self.weight = torch.zeros((len(drawn), x.shape[2], classes), device=x.device)
        for k, (weight, _) in enumerate(drawn):
            self.weight[k, : len(weight)] = weight.to(x.device)
        self.bias = torch.stack([bias for _, bias in drawn])[:, None].to(x.device)
        self.moved = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]

    def step(self, rows: Sequence[NDArray[np.int64]], lr: float, momentum: float) -> None:
        """One step of every probe on the rows of its fold; the gradient is written out, for speed."""
        counts = [len(row) for row in rows]
        wide = max(counts)
        # Folds may differ by a row. What is missing is filled up with row 0, which counts nothing.
        index = torch.from_numpy(np.stack([np.pad(row, (0, wide - len(row))) for row in rows])).to(self.x.device)
        x = self.x[:, index].flatten(0, 1)
        delta = torch.softmax(torch.baddbmm(self.bias, x, self.weight), dim=2)
        own = self.targets[index].repeat(len(self.x), 1)[:, :, None]
        delta.scatter_add_(2, own, torch.full_like(delta[:, :, :1], -1.0))
        if min(counts) == wide:
            delta /= wide
        else:
            shares = np.stack([(np.arange(wide) < count) / max(count, 1) for count in counts]).astype(np.float32)
            delta *= torch.from_numpy(shares).to(x.device).repeat(len(self.x), 1)[:, :, None]
        gradients = (torch.bmm(x.mT, delta), delta.sum(dim=1, keepdim=True))
        idle = [k for k in range(len(delta)) if counts[k % self.folds] == 0]
        for value, gradient, moved in zip((self.weight, self.bias), gradients, self.moved, strict=True):
            kept = [(value[k].clone(), moved[k].clone()) for k in idle]
            moved.mul_(momentum).add_(gradient)
            value.sub_(moved, alpha=lr)
            for k, (a, b) in zip(idle, kept, strict=True):  # a fold that has no batch left makes no step
                value[k], moved[k] = a, b

    def logits(self, rows: Tensor, fold: int) -> NDArray[np.float32]:
        """(networks, rows, K) of the probes of one fold."""
        mine = slice(fold, None, self.folds)
        return torch.baddbmm(self.bias[mine], self.x[:, rows], self.weight[mine]).cpu().numpy()
