"""What the last layer of an image network sees, computed once per network and kept on disk.

Features go into a memory-mapped file, batch by batch; a run that was stopped goes on at the batch where it was.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval._files import write_whole
from uqeval.reproduce.logits.writer import file_name
from uqeval.reproduce.models.device import pick_device
from uqeval.reproduce.models.vision.backbones import Backbone, fixed_size
from uqeval.reproduce.store import cell_key

_SAVE_EVERY = 20  # batches between two notes of how far it got


def check_images(images: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bytes (n, height, width, 3) and classes (n,), as they are used here."""
    x, y = np.asarray(images), np.asarray(labels)
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] != 3:
        raise InputError(
            f"`images` has type {x.dtype} and shape {x.shape}. Pass bytes (uint8) of shape (n, height, width, 3)."
        )
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(x) or not len(y):
        raise InputError(
            f"`labels` has type {y.dtype} and shape {y.shape} for {len(x)} images. Pass one class (int) per image."
        )
    if y.min() < 0 or y.max() < 1:
        raise InputError(f"`labels` go from {y.min()} to {y.max()}. Pass classes 0..K-1 of K ≥ 2 classes.")
    return np.ascontiguousarray(x), y.astype(np.int64)


def hash_images(images: NDArray[np.uint8]) -> str:
    """A hash of pixels and shape."""
    return hashlib.sha256(repr(images.shape).encode() + np.ascontiguousarray(images).tobytes()).hexdigest()


def features_key(network: Backbone, pixels: str, size: int | None) -> str:
    """A hash of what features depend on: network, images (their hash) and side."""
    return cell_key({"network": network.identity(), "images": pixels, "size": size, "revision": 1})


def compute_features(
    network: Backbone,
    images: NDArray[np.uint8],
    folder: str | Path,
    *,
    size: int | None = 224,
    batch_size: int = 256,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Features (n, d) of all images, from disk where they are there already.

    Parameters
    ----------
    network : Backbone
        See `uqeval.reproduce.models.vision.backbones.backbone`.
    images : uint8 array of shape (n, height, width, 3)
        The whole of each image is resized.
    folder : path
        Where ``NAME.npy`` and ``NAME.json`` go.
    size : int or None
        Side that the network gets; None: the one it was trained with. A network that takes one side only (a vision
        transformer with learned positions) gets that one.
    batch_size : int
        Images at once.
    device : str or torch.device, optional
        Default: CUDA where there is any.
    progress : callable(stage, done, total), optional
        Called after every batch.

    Returns
    -------
    float32 memory map of shape (n, d)
    """
    where = pick_device(device)
    stem = Path(folder) / file_name(network.name if size is None else f"{network.name}-{size}px")
    file, note = (stem.with_name(stem.name + end) for end in (".npy", ".json"))
    key = features_key(network, hash_images(images), size)
    start, out = _resumed(file, note, key)
    if start == len(images):
        return np.load(file, mmap_mode="r", allow_pickle=False)
    module, preprocess = network.load()
    module.to(where)
    side = fixed_size(module) or size or preprocess.size
    with torch.inference_mode():
        for count, first in enumerate(range(start, len(images), batch_size), start=1):
            batch = torch.from_numpy(images[first : first + batch_size]).to(where)
            x = preprocess.small(batch, side).contiguous(memory_format=torch.channels_last)  # faster, on a CPU too
            found = penultimate(module, x).float().cpu().numpy()
            _reject_not_finite(network.name, found, first)
            if out is None:
                stem.parent.mkdir(parents=True, exist_ok=True)
                note.unlink(missing_ok=True)
                out = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(len(images), found.shape[1]))
            end = first + len(found)
            out[first:end] = found
            if count % _SAVE_EVERY == 0 or end == len(images):
                out.flush()
                # Last: only rows that are noted count as there.
                write_whole(note, json.dumps({"key": key, "done": end, "network": network.source}) + "\n")
            if progress is not None:
                progress("features", end, len(images))
    return np.load(file, mmap_mode="r", allow_pickle=False)


def _resumed(file: Path, note: Path, key: str) -> tuple[int, Any]:
    """How many rows are there already, and their file; 0 and None to start anew."""
    try:
        about = json.loads(note.read_text(encoding="utf-8"))
        return (int(about["done"]), np.lib.format.open_memmap(file, mode="r+")) if about["key"] == key else (0, None)
    except (OSError, ValueError, LookupError, TypeError):  # gone, broken, or shorter than its header says
        return 0, None


def _reject_not_finite(name: str, features: NDArray[np.float32], first: int) -> None:
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise InputError(
            f"{name}: NaN or infinite features in {int(bad.sum())} images (first: image {first + int(bad.argmax())}). "
            f"Check its weights and the size of its images."
        )


def penultimate(module: nn.Module, x: Tensor) -> Tensor:
    """What the last layer of a classifier sees: the (batch, features) input of the last linear layer that runs.

    The layer is found by looking, not by its name: the last `torch.nn.Linear`, or 1 × 1 convolution (SqueezeNet), that
    a forward pass reaches. Side heads that run in training only (GoogLeNet, Inception) do not count in eval mode; of
    several heads that do run, the last counts. Positions or tokens are averaged, which for a linear layer is the same
    as averaging its outputs.

    Parameters
    ----------
    module : torch.nn.Module
        In eval mode.
    x : tensor
        A batch of inputs.

    Returns
    -------
    tensor of shape (batch, features)

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    >>> penultimate(net, torch.zeros(3, 3, 2, 2)).shape
    torch.Size([3, 5])
    """
    last: list[tuple[nn.Module, Tensor]] = []

    def catch(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        last[:] = [(layer, inputs[0] if inputs else named["input"])]

    heads = [m for m in module.modules() if isinstance(m, nn.Linear) or _pointwise(m)]
    hooks = [head.register_forward_pre_hook(catch, with_kwargs=True) for head in heads]
    try:
        module(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not last:
        raise InputError(
            f"{type(module).__name__} runs no torch.nn.Linear and no 1 × 1 convolution, so that it has no last "
            f"layer to take features from. Pass a classifier with its head."
        )
    layer, features = last[0]
    if isinstance(layer, nn.Conv2d):
        features = features.mean(dim=(-2, -1))
    elif features.ndim > 2:
        features = features.flatten(1, -2).mean(dim=1)
    if features.ndim != 2 or len(features) != len(x):
        raise InputError(
            f"The last layer of {type(module).__name__} sees {tuple(features.shape)} for {len(x)} images. "
            f"Pass a network whose last layer gets one row per image."
        )
    return features


def _pointwise(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and tuple(module.kernel_size) == (1, 1) and module.groups == 1
