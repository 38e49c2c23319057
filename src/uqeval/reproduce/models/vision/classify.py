"""Image classifiers over the ImageNet validation set: logits of many models, written as they come.

The images are the user's own: 50,000 files, `ILSVRC2012_val_00000001.JPEG` and so on, in one folder or in one folder
per class.
Row i of the logits is the image with number i + 1, whatever the folder looks like.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from uqeval import datasets
from uqeval._check import Progress, check_count
from uqeval._errors import InputError, MissingExtra
from uqeval.reproduce.logits.file import hash_labels, save_array
from uqeval.reproduce.logits.folder import LABELS
from uqeval.reproduce.logits.writer import LogitsWriter, Making
from uqeval.reproduce.models.device import pick_device
from uqeval.reproduce.models.vision.backbones import Backbone, Preprocess, usable
from uqeval.reproduce.store import cell_key

IMAGES, CLASSES = 50_000, 1000
_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.jpe?g", re.IGNORECASE)
_SYNSET = re.compile(r"n\d{8}")
_LISTS = ("val.txt", "LOC_val_solution.csv")
_TOGETHER = 4  # models that share the decoding of images


@dataclass(frozen=True)
class ValidationImages:
    """Files of validation images, in the order of their numbers."""

    paths: tuple[Path, ...]
    rows: NDArray[np.int64]  # number − 1
    labels: NDArray[np.int64] | None  # ImageNet's own, of all 50,000 images, where the folder tells them

    @property
    def complete(self) -> bool:
        """Whether all 50,000 are there."""
        return len(self.rows) == IMAGES


def find_images(folder: str | Path) -> ValidationImages:
    """The validation images in a folder.

    Parameters
    ----------
    folder : path
        ``ILSVRC2012_val_00000001.JPEG`` and so on, flat or in class folders (``n01440764``). ImageNet's labels come
        from a list in the folder or beside it, ``val.txt`` (file name and class index per line) or
        ``LOC_val_solution.csv`` (image and synset), or else from the class folders, if all 50,000 images are there:
        the sorted names of the 1,000 folders are the classes 0..999. The development kit's ground-truth file numbers
        classes in another order and is not used.

    Returns
    -------
    ValidationImages
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"`images_folder` is {str(root)!r}, which is no folder. Pass the folder of validation images.")
    found: dict[int, Path] = {}
    for place, _, names in os.walk(root):
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            number, path = int(match.group(1)), Path(place) / name
            if not 1 <= number <= IMAGES:
                raise InputError(f"{path}: there are {IMAGES:,} validation images; this one has number {number}.")
            if number in found:
                raise InputError(f"{path} and {found[number]} are the same image. Leave one of them.")
            found[number] = path
    if not found:
        raise InputError(
            f"{root} has no file such as ILSVRC2012_val_00000001.JPEG. Pass the folder of validation images."
        )
    numbers = sorted(found)
    paths = tuple(found[number] for number in numbers)
    labels = _labels_of_lists(root)
    return ValidationImages(paths, np.array(numbers) - 1, _labels_of_folders(paths) if labels is None else labels)


def _labels_of_folders(paths: Sequence[Path]) -> NDArray[np.int64] | None:
    synsets = sorted({path.parent.name for path in paths})
    # With fewer folders the sorted position is not the class.
    if len(paths) != IMAGES or len(synsets) != CLASSES or not all(map(_SYNSET.fullmatch, synsets)):
        return None
    place = {name: k for k, name in enumerate(synsets)}
    return np.array([place[path.parent.name] for path in paths], dtype=np.int64)


def _labels_of_lists(root: Path) -> NDArray[np.int64] | None:
    """From a list of all images with a class index or a synset each."""
    path = next((p for name in _LISTS for p in (root / name, root.parent / name) if p.is_file()), None)
    if path is None:
        return None
    found: dict[int, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(?:.*/)?ILSVRC2012_val_(\d{8})(?:\.jpe?g)?[,\s]+(n\d{8}|\d+)\b", line, re.IGNORECASE)
        if match is not None:
            found[int(match.group(1))] = match.group(2)
    synsets = sorted({value for value in found.values() if value[0] == "n"})
    classes = {name: k for k, name in enumerate(synsets)} or {str(k): k for k in range(CLASSES)}
    if (
        sorted(found) != list(range(1, IMAGES + 1))
        or len(classes) != CLASSES
        or not set(found.values()) <= set(classes)
    ):
        raise InputError(
            f"{path}: it must name all {IMAGES:,} images with a class index 0..{CLASSES - 1}, or with one of "
            f"{CLASSES:,} synsets; {len(found):,} were found. Mend it or take it away."
        )
    return np.array([classes[found[number]] for number in range(1, IMAGES + 1)], dtype=np.int64)


def classify_folder(
    models: str | nn.Module | Backbone | Iterable[Any],
    images_folder: str | Path,
    folder: str | Path,
    *,
    batch_size: int = 64,
    labels: ArrayLike | None = None,
    data: Any = None,
    weights: str | Path | None = "DEFAULT",
    dtype: str = "float32",
    workers: int | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    keep_going: bool = False,
    failures: list[dict[str, str]] | None = None,
) -> list[str]:
    """Logits of ImageNet classifiers on the validation images, one file per model.

    Images are decoded once for up to four models that prepare them alike, and nothing is kept in memory: logits go to
    disk batch by batch. Models that are there whole are left alone.

    Parameters
    ----------
    models : str or list
        Names, modules, "paper" or "all": see `uqeval.reproduce.models.vision.backbones`. Each prepares images as its
        weights ask.
    images_folder : path
        See `find_images`. Where images are missing, the logits cover the others, and the manifest says which.
    folder : path
        Gets ``NAME.npy`` of shape (images, 1000), ``NAME.json``, and ``labels.npy`` where ImageNet's labels are known.
    batch_size : int
        Images at once.
    labels : array-like of shape (50000,), optional
        ImageNet's labels. By default those that the folder tells, else the label that people find most probable
        (`uqeval.datasets.imagenet_real`); the accuracy in the manifest is with respect to them.
    data : path, optional
        Where ReaL-ImageNet's files are, if they are needed.
    weights : str, path or None
        As for `uqeval.reproduce.models.vision.backbones.backbone`.
    dtype : {"float32", "float16"}
        Of the file: 200 or 100 MB per model. float16 rounds logits to about 3 digits and makes ties.
    workers : int, optional
        Processes that decode images. By default as many as cores, up to 8; none for a few images.
    device : str or torch.device, optional
        Default: CUDA where there is any.
    progress : callable(stage, done, total), optional
        Counts images over all models.
    keep_going : bool
        Goes on without a model that cannot be used, with a warning; an error only if none is left. A broken image is
        an error in any case.
    failures : list, optional
        With `keep_going`, gets "model", "file" and "reason" of each model that was left out, instead of warnings and
        of the error if none is left.

    Returns
    -------
    list of str
        Names of the models in `folder`.
    """
    check_count("batch_size", batch_size)
    if dtype not in ("float32", "float16"):
        raise InputError(f'`dtype` is {dtype!r}. Pass "float32" or "float16".')
    where = pick_device(device)
    images = find_images(images_folder)
    own = images.labels if labels is None else np.asarray(labels, dtype=np.int64)
    reference = datasets.imagenet_real(data).labels if own is None else own
    if reference.shape != (IMAGES,):
        raise InputError(f"`labels` has shape {reference.shape}. Pass the classes of all {IMAGES:,} images.")
    making = Making(folder, keep_going, failures)
    networks = usable("models", models, weights, making)
    about = {"files": _hash_files(images), "labels": hash_labels(reference), "dtype": dtype, "revision": 1}
    todo: list[tuple[Backbone, str]] = []
    for network in networks:
        with making.guard(network.name):
            key = cell_key(about | {"network": network.identity()})
            if making.open(network.name, key):
                todo.append((network, key))
    total, done = len(todo) * len(images.paths), 0
    shape, rows = (len(images.paths), CLASSES), None if images.complete else images.rows
    for group, preprocess in _groups(todo, where, making):
        with contextlib.ExitStack() as stack:
            writers: dict[str, LogitsWriter] = {}
            for _, network, key in group:
                source = f"{network.source} on {len(images.paths):,} validation images of ImageNet"
                with making.guard(network.name):
                    writer = LogitsWriter(
                        folder, network.name, shape, dtype, labels=reference, source=source, key=key, rows=rows
                    )
                    writers[network.name] = stack.enter_context(writer)
            start = 0
            for batch in _loader(images.paths, preprocess, batch_size, workers, where) if writers else ():
                if isinstance(batch, str):
                    raise InputError(batch)
                x = batch.to(where, non_blocking=True, memory_format=torch.channels_last)
                for module, network, _ in group:
                    done += len(x)
                    if network.name in writers:
                        try:
                            writers[network.name][start : start + len(x)] = _logits(module, network.name, x)
                        except (InputError, RuntimeError) as error:  # a model that fails has no writer any more
                            writers.pop(network.name).close(keep=False)
                            making.leave(network.name, error)
                    if progress is not None:
                        progress("classification", done, total)
                start += len(x)
            for name, writer in writers.items():
                with making.guard(name):
                    writer.close()
                    making.there.add(name)
    if own is not None and making.there:
        save_array(making.folder / LABELS, own)
    return making.done(network.name for network in networks)


def _groups(
    todo: Iterable[tuple[Backbone, str]], device: torch.device, making: Making
) -> Iterator[tuple[list[tuple[nn.Module, Backbone, str]], Preprocess]]:
    """Models on the device, those together that come one after the other and prepare images alike."""
    group: list[tuple[nn.Module, Backbone, str]] = []
    alike: Preprocess | None = None
    for network, key in todo:
        try:
            module, preprocess = network.load()
        except (InputError, MissingExtra) as error:
            making.leave(network.name, error)
            continue
        if alike is not None and (preprocess != alike or len(group) == _TOGETHER):
            yield group, alike
            group = []
        group.append((module.to(device), network, key))
        alike = preprocess
    if alike is not None:
        yield group, alike


class _Photos(Dataset[Any]):
    """Prepared images; a message in the place of one that cannot be read."""

    def __init__(self, paths: Sequence[Path], preprocess: Preprocess) -> None:
        self.paths, self.preprocess = paths, preprocess

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, at: int) -> Tensor | str:
        from PIL import Image  # an extra

        try:
            with Image.open(self.paths[at]) as image:
                return self.preprocess.photo(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises for broken files
            return f"{self.paths[at]} cannot be read as an image ({error}). Replace it or take it away."


def _together(items: list[Tensor | str]) -> Tensor | str:
    tensors = [item for item in items if isinstance(item, Tensor)]
    return torch.stack(tensors) if len(tensors) == len(items) else next(i for i in items if isinstance(i, str))


def _loader(
    paths: Sequence[Path], preprocess: Preprocess, batch_size: int, workers: int | None, device: torch.device
) -> Iterable[Tensor | str]:
    if workers is None:
        workers = min(8, os.cpu_count() or 1) if len(paths) > 1000 else 0
    photos = _Photos(paths, preprocess)
    return DataLoader(photos, batch_size, num_workers=workers, collate_fn=_together, pin_memory=device.type == "cuda")


@torch.inference_mode()
def _logits(module: nn.Module, name: str, x: Tensor) -> NDArray[np.float32]:
    out = module(x)
    if not isinstance(out, Tensor) or tuple(out.shape) != (len(x), CLASSES):
        what = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"type {type(out).__name__}"
        raise InputError(
            f"{name}: its output has {what}. It must return logits ({len(x)}, {CLASSES}) for {len(x)} images."
        )
    return out.float().cpu().numpy()


def _hash_files(images: ValidationImages) -> str:
    """Names and sizes: reading 6 GB to see whether anything changed would cost more than it is worth."""
    return cell_key({"files": [[path.name, path.stat().st_size] for path in images.paths]})
