"""ReaL-ImageNet: which labels people find right for the images of the ImageNet validation set (Beyer et al. 2020).

Half of the images were shown to raters, five for each (image, label) pair; the published score of a pair is its
probability to be right by Dawid and Skene's model. Soft labels are those scores, normalised for each image.
"""

import json
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int
from uqeval._errors import InputError
from uqeval.datasets.dawid_skene import long_form
from uqeval.datasets.fetch import Source, fetch, published
from uqeval.datasets.reading import arrays_of

Mask = NDArray[np.bool_]
Names = NDArray[np.str_]

_IMAGES = 50_000


@dataclass(frozen=True)
class ImageNetReal:
    """Human labels of the 50,000 validation images, in the order of their file names.

    Rows are images 0 to 49,999. `kept` are those with a soft label; the others, `excluded`, are images for which the
    raters accepted no label (an empty list in real.json). An image that was not rated has one label for certain: the
    models and the original label agreed on it, so nobody was asked.
    """

    valid: tuple[tuple[int, ...], ...] = field(repr=False)  # real.json: the labels accepted for each image
    rated: Mask = field(repr=False)  # (50000,)
    pairs: Int = field(repr=False)  # (questions, 2): image, label of each rated pair
    scores: Float = field(repr=False)  # (questions,): as published
    starts: Int = field(repr=False)  # of each image in `columns` and `weights`
    columns: Int = field(repr=False)
    weights: Float = field(repr=False)
    data: Source | None = field(default=None, repr=False)

    n_classes = 1000

    def __repr__(self) -> str:
        return (
            f"ImageNetReal({len(self.kept)} images with a soft label, {int(self.rated[self.kept].sum())} of them "
            f"rated; {len(self.excluded)} left out: no valid label)"
        )

    @cached_property
    def images(self) -> Names:
        """File names."""
        return np.array([f"ILSVRC2012_val_{k:08d}.JPEG" for k in range(1, len(self.valid) + 1)])

    @cached_property
    def kept(self) -> Int:
        """Rows with a soft label."""
        return np.flatnonzero(np.diff(self.starts) > 0)

    @cached_property
    def excluded(self) -> Int:
        """Rows without a valid label."""
        return np.flatnonzero(np.diff(self.starts) == 0)

    @cached_property
    def labels(self) -> Int:
        """The most probable label of each image (the smaller class with a tie); −1 where it is excluded."""
        order = np.lexsort((self.columns, -self.weights, np.repeat(np.arange(len(self.valid)), np.diff(self.starts))))
        result = np.full(len(self.valid), -1, dtype=np.int64)
        result[self.kept] = self.columns[order[self.starts[self.kept]]]
        return result

    def soft_labels(self, rows: ArrayLike) -> Float:
        """The distribution over the 1,000 classes for some rows, (rows, 1000): 8 kB for each."""
        wanted = self._rows(rows)
        sizes = self.starts[wanted + 1] - self.starts[wanted]
        at = np.repeat(self.starts[wanted] - np.r_[0, np.cumsum(sizes)[:-1]], sizes) + np.arange(sizes.sum())
        dense = np.zeros((len(wanted), self.n_classes))
        dense[np.repeat(np.arange(len(wanted)), sizes), self.columns[at]] = self.weights[at]
        return dense

    def prob_of(self, rows: ArrayLike, classes: ArrayLike) -> Float:
        """The probability of one class for each row; the error probability ϕ is 1 minus that of the predicted class."""
        wanted, asked = self._rows(rows), np.asarray(classes, dtype=np.int64)
        if asked.shape != wanted.shape:
            raise InputError(f"`classes` must have one class for each of the {len(wanted)} rows; it is {asked.shape}.")
        keys = np.repeat(np.arange(len(self.valid)), np.diff(self.starts)) * self.n_classes + self.columns
        found = np.searchsorted(keys, wanted * self.n_classes + asked)
        found = np.minimum(found, len(keys) - 1)
        return np.where(keys[found] == wanted * self.n_classes + asked, self.weights[found], 0.0)

    def votes(self) -> Int:
        """All votes as rows of (rater, question, answer), for `dawid_skene`.

        A question is a row of `pairs`; answers are 0 no, 1 maybe, 2 yes. Read from raters.npz rater by rater.
        """
        return _votes(fetch(published("imagenet_real/raters.npz"), self.data), len(self.scores))

    def _rows(self, rows: ArrayLike) -> Int:
        wanted = np.atleast_1d(np.asarray(rows))
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise InputError(f"`rows` must be image numbers from 0; it has shape {wanted.shape} of {wanted.dtype}.")
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self.valid)):
            raise InputError(f"`rows` must lie in 0..{len(self.valid) - 1}; they go to {wanted.max()}.")
        empty = self.starts[wanted] == self.starts[wanted + 1]
        if empty.any():
            raise InputError(
                f"`rows` has {int(empty.sum())} images without a valid label (first {int(wanted[empty][0])}). "
                "Take rows from `kept`."
            )
        return wanted.astype(np.int64)


def imagenet_real(data: Source | None = None) -> ImageNetReal:
    """ReaL-ImageNet: soft labels from the published scores, and the votes behind them.

    Of the 50,000 images 24,889 were rated (184,962 pairs of image and label, 924,810 votes of 85 raters). An image
    gets its scores, normalised, if real.json accepts a label for it (21,726 images); 3,163 rated images have no
    accepted label and are left out. The 25,111 images that were not rated have one label in real.json: a soft label
    of 1. real.json itself is exactly the pairs with a score above 0.8.

    `dawid_skene` on the votes, with ``meaning=[[1, 0], [0.5, 0.5], [0, 1]]`` for no, maybe and yes, correlates with
    the published scores by 0.985; 98.3% of the pairs lie on the same side of one half. The rest is no matter of
    settings: the log-odds of the published scores are exactly a sum of one weight for each vote, but those weights
    do not come from these votes alone, and pairs of three kinds have a prior each.

    Parameters
    ----------
    data : path, optional
        Folder with `real.json` and `scores.npz` (and `raters.npz` for the votes), there or under `imagenet_real/`.
        By default the folder of the environment variable UQEVAL_DATA, then the cache, then a download, checked by
        its hash.

    Examples
    --------
    >>> imagenet_real("no such folder")
    Traceback (most recent call last):
        ...
    uqeval._errors.InputError: `data` must be a folder with the files; 'no such folder' is none.
    """
    valid = _valid(fetch(published("imagenet_real/real.json"), data))
    scores, info = arrays_of(fetch(published("imagenet_real/scores.npz"), data), "tensor", "info")
    pairs = np.stack([_numbers(info[:, 0]), info[:, 1].astype(np.int64)], axis=1)
    return _assemble(valid, pairs, scores.astype(np.float64), data)


def _assemble(
    valid: tuple[tuple[int, ...], ...], pairs: Int, scores: Float, data: Source | None = None
) -> ImageNetReal:
    n = len(valid)
    rated = np.zeros(n, dtype=bool)
    rated[pairs[:, 0]] = True
    accepted = np.array([len(labels) > 0 for labels in valid])
    # One label for certain where nobody was asked (equal shares, were there several).
    sure = [(k, label) for k in np.flatnonzero(~rated & accepted) for label in sorted(valid[k])]
    asked = accepted[pairs[:, 0]]
    image, label = np.concatenate([pairs[asked], np.array(sure, dtype=np.int64).reshape(-1, 2)]).T
    weight = np.concatenate([scores[asked], np.ones(len(sure))])
    order = np.lexsort((label, image))
    image, label, weight = image[order], label[order], weight[order]
    weight /= np.bincount(image, weight, minlength=n)[image]
    starts = np.r_[0, np.cumsum(np.bincount(image, minlength=n))]
    return ImageNetReal(valid, rated, pairs, scores, starts, label, weight, data)


def _valid(path: Path) -> tuple[tuple[int, ...], ...]:
    lists: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(lists, list) or len(lists) != _IMAGES:
        raise InputError(f"{str(path)!r} must hold {_IMAGES} lists of labels.")
    return tuple(tuple(int(k) for k in labels) for labels in lists)


def _numbers(names: Names) -> Int:
    """ILSVRC2012_val_00000001.JPEG → 0."""
    return np.array([int(name[15:23]) for name in names.tolist()], dtype=np.int64) - 1


def _votes(path: Path, questions: int) -> Int:
    # The tensor is 377 MB of float64 with 2% ones: rater by rater it takes 4 MB.
    with zipfile.ZipFile(path) as archive, archive.open("tensor.npy") as stream:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise InputError(f"{str(path)!r} has an array of format {version}; expected (1, 0).")
        (raters, n, answers), by_column, dtype = np.lib.format.read_array_header_1_0(stream)
        if by_column or dtype.hasobject or n != questions or answers != 3:
            raise InputError(
                f"{str(path)!r} must hold {questions} questions with 3 answers; it is {(raters, n, answers)}."
            )
        size = n * answers * dtype.itemsize
        parts = (np.frombuffer(stream.read(size), dtype=dtype).reshape(n, answers) for _ in range(raters))
        return long_form(parts)[0]
