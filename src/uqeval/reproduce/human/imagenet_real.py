"""The paper's study on ReaL-ImageNet: 1,000 classes, human judgements of the 50,000 validation images."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from uqeval import datasets
from uqeval._check import Int, check_labels
from uqeval._errors import InputError
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.human.run import Options, Paths, required, run_study
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.logits.file import open_array
from uqeval.reproduce.logits.folder import LABELS
from uqeval.reproduce.packaged import read_table

PAPER = read_table("human/paper.toml")["imagenet_real"]


def reference(data: Any = None, labels: str | Path | ArrayLike | None = None, predictions: Paths = ()) -> Reference:
    """Soft labels of the images that have one, and the labels that errors are counted against."""
    found = data if hasattr(data, "soft_labels") else datasets.imagenet_real(data)
    n = len(found.images)
    rated = np.zeros(n, dtype=bool)
    rated[found.kept] = True
    notes = [*PAPER["notes"]]
    own = labels if labels is not None else labels_beside(predictions)
    if own is None:
        y = np.asarray(found.labels, dtype=np.int64)
        notes.append(
            "Errors are counted against the label that people find most probable, because the original ImageNet labels "
            "were not given (`labels`, --labels). The misalignment is then the gap itself, "
            "and the correlation of UQ-C-index with κ(s; φ) is near 100% by construction; the paper's is not."
        )
    else:
        y = read_labels(own, n, found.n_classes)
        notes.append("Errors are counted against the original ImageNet labels.")
    notes.append(
        f"{n - int(rated.sum()):,} of {n:,} images, for which raters accepted no label, are left out; "
        f"{int(found.rated[found.kept].sum()):,} of the others were rated."
    )
    return Reference(
        study="imagenet_real",
        title="ReaL-ImageNet",
        labels=y,
        classes=found.n_classes,
        soft=found.soft_labels,
        rated=rated,
        paper=PAPER,
        facts={"labels": "human majority" if own is None else "original"},
        notes=notes,
    )


def labels_beside(predictions: Paths) -> Path | None:
    """`labels.npy` in a folder of the predictions."""
    asked = [predictions] if isinstance(predictions, str | Path) else list(predictions)
    places = [Path(item) / LABELS for item in asked if Path(item).is_dir()]
    return next((place for place in places if place.is_file()), None)


def read_labels(given: str | Path | ArrayLike, n: int = 50_000, classes: int = 1000) -> Int:
    """One class per image from an array, a `.npy` file, or a text file with a class index per line."""
    values: ArrayLike = given  # type: ignore[assignment]
    if isinstance(given, str | Path):
        path = Path(given)
        if not path.is_file():
            raise InputError(f"`labels`: there is no file {str(path)!r}.")
        try:
            values = open_array(path) if path.suffix == ".npy" else np.loadtxt(path, dtype=np.int64, ndmin=1)
        except ValueError as error:
            raise InputError(f"{path}: must hold one class index per line ({error}).") from None
    y = check_labels(values, classes)
    if len(y) != n:
        raise InputError(f"`labels` has {len(y):,} entries; there are {n:,} images.")
    return y


def imagenet_real(
    predictions: Paths | None = None,
    *,
    data: Any = None,
    labels: str | Path | ArrayLike | None = None,
    **options: Unpack[Options],
) -> RealStudy:
    """Do UQ-AUC and UQ-C-index rank ImageNet classifiers as people's judgements do?

    Logits are memory-mapped and read in pieces, by default one such model at a time (50,000 × 1,000 take seconds).

    Parameters
    ----------
    predictions : path or list of paths
        Folders and files of logits for the 50,000 validation images, in the order of their file names.
    labels : path or array-like of shape (50000,), optional
        The original label of each image: an array, a `.npy` file, or a text file with a class index per line. By
        default `labels.npy` in a folder of the predictions, else the label that people find most probable.
    data : path or ImageNetReal, optional
        Folder that holds the dataset, or what `uqeval.datasets.imagenet_real` gives.
    out, scores, level, min_accuracy, keep_going, allow_chance, jobs, progress, failures, before
        As in `uqeval.reproduce.cifar10h`.

    Returns
    -------
    RealStudy
        As in `uqeval.reproduce.cifar10h`.

    Examples
    --------
    >>> study = imagenet_real("predictions", data="data", out="study")  # doctest: +SKIP
    """
    wanted = required(predictions)
    return run_study(reference(data, labels, wanted), wanted, **options)
