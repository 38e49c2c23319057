"""CIFAR10-H: about 50 human votes for each image of the CIFAR-10 test set (Peterson et al. 2019)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, Int
from uqeval._errors import InputError, notify
from uqeval.datasets.cifar10_images import CLASSES, cifar10_test_labels
from uqeval.datasets.fetch import Source, fetch, lookup, published
from uqeval.datasets.reading import table_of

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("annotator_id", "is_attn_check", "chosen_label", "cifar10_test_test_idx")


@dataclass(frozen=True)
class CIFAR10H:
    """Votes of people for the 10,000 images of the CIFAR-10 test set, in its order."""

    counts: Int  # (10000, 10)
    probs: Float  # (10000, 10)
    labels: Int  # (10000,), those of CIFAR-10
    classes: tuple[str, ...] = CLASSES
    data: Source | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        votes = self.counts.sum(axis=1)
        return f"CIFAR10H({len(votes)} images, {votes.sum()} votes, {votes.min()} to {votes.max()} per image)"

    def annotations(self) -> pa.Table:
        """The single votes, a row for each: annotator, image, answer, time; attention checks are left out.

        Columns as published (`annotator_id`, `chosen_label`, `cifar10_test_test_idx`, `reaction_time`, …). The file
        is accepted when its tallies are the counts, but for 2% of the votes; any difference is a warning.
        """
        return _annotations(self.counts, self.data)


def cifar10h(data: Source | None = None, *, labels: ArrayLike | None = None) -> CIFAR10H:
    """CIFAR10-H, with the labels of CIFAR-10.

    Parameters
    ----------
    data : path, optional
        Folder with the files (`cifar10h-counts.npy`, `cifar10h-probs.npy`, and for the labels
        `cifar10_test_jpeg.npz` or `cifar-10-binary.tar.gz`), there or under `cifar10h/`. By default the folder of
        the environment variable UQEVAL_DATA, then the cache, then a download, checked by its hash.
    labels : array-like of shape (10000,), optional
        The labels of the test images, as `uqeval.datasets.cifar10_images` gives them, where the images lie elsewhere.

    Returns
    -------
    CIFAR10H

    Examples
    --------
    >>> cifar10h("no such folder")
    Traceback (most recent call last):
        ...
    uqeval._errors.InputError: `data` must be a folder with the files; 'no such folder' is none.
    """
    paths = (fetch(published(f"cifar10h/cifar10h-{part}.npy"), data) for part in ("counts", "probs"))
    counts, probs = (np.load(path, allow_pickle=False) for path in paths)
    y = cifar10_test_labels(data, labels)
    # The hashes fix the order of both; this would catch a mistake in them.
    agree = float((counts.argmax(axis=1) == y).mean())
    if agree <= 0.95:
        raise InputError(f"The labels agree with the human majority on {agree:.1%} of the images: rows are mixed up.")
    return CIFAR10H(counts.astype(np.int64), probs.astype(np.float64), y, CLASSES, data)


def _annotations(counts: Int, data: Source | None) -> pa.Table:
    path = lookup("cifar10h/cifar10h-raw.csv", data) or fetch(published("cifar10h/cifar10h-raw.zip"), data)
    if path.suffix == ".csv":
        with path.open("rb") as stream:
            table = _votes(stream, path)
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if Path(name).name == "cifar10h-raw.csv"]
                if not names:
                    raise InputError(f"{str(path)!r} has no cifar10h-raw.csv; it has {archive.namelist()[:5]}.")
                with archive.open(names[0]) as stream:
                    table = _votes(stream, path)
        except zipfile.BadZipFile as error:
            raise InputError(f"{str(path)!r} is not a whole zip file: {error}. Remove it and get it again.") from None
    _compare(table, counts, path)
    return table


def _votes(stream: IO[bytes], path: Path) -> pa.Table:
    import pyarrow.compute as pc

    table = table_of(path, "CSV", _COLUMNS, stream)
    return table.filter(pc.equal(table["is_attn_check"], 0))


def _compare(table: pa.Table, counts: Int, path: Path) -> None:
    """The file is the right one when it tallies to the counts; its hash is not known to us."""
    image = table["cifar10_test_test_idx"].to_numpy()
    answer = table["chosen_label"].to_numpy()
    n, classes = counts.shape
    if len(image) == 0 or image.min() < 0 or image.max() >= n or answer.min() < 0 or answer.max() >= classes:
        raise InputError(f"{str(path)!r} has votes for images beyond 0..{n - 1} or labels beyond 0..{classes - 1}.")
    tallies = np.bincount(image * classes + answer, minlength=n * classes).reshape(n, classes)
    apart = int(np.abs(tallies - counts).sum())
    if apart > 0.02 * counts.sum():
        raise InputError(
            f"{str(path)!r} does not belong to the counts: its tallies differ from them by {apart} votes of "
            f"{int(counts.sum())}. Remove it and get it again."
        )
    if apart:
        notify(
            f"The {len(image)} raw votes differ from the {int(counts.sum())} of the counts file by {apart}; counts and "
            "probabilities stay as published.",
            stacklevel=4,
        )
