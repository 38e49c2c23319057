"""Row-wise quantities on checked arrays: a row has the same bits whatever rows stand beside it.

A difference in the last bit would break a tie that the ranking metrics must see. Checking is the job of the callers.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval._errors import UQWarning, notify

_BIG = 30.0  # log1p(x) and log(x) agree beyond e^30, and exp() overflows only at 709
_NEARLY = 2.0**-46 - 1.0
_ONE = np.int64(np.float64(1.0).view(np.int64))


def rank_loss_rows(probs: Float, labels: Int) -> Float:
    """`truth.rank_loss`."""
    loss = 0.0 - pick(probs, labels)  # not -p: that would give -0.0
    full = loss == -1.0
    near = (loss < _NEARLY) & ~full  # nothing left to the others: 1 but for the noise of a sum
    if near.any():
        full[near] = np.count_nonzero(probs[near], axis=1) == 1
    if full.any():
        # p̂(label) rounded to 1. Mirrored in the order of floats about 1, what is left to the others (0 … 1) becomes a
        # number from 2¹⁰²³ down to 1, none twice: 1/rest would do, but rounds and overflows.
        loss[full] = -mirrored(others(probs[full]) + 0.0)  # no -0.0
    return loss


def mirrored(x: Float) -> Float:
    """Numbers from 0 up to the largest in falling order, none twice: as 1/x, which would round and overflow."""
    return (2 * _ONE - x.view(np.int64)).view(np.float64)


# ---- class by class --------------------------------------------------------------------------------------------
# Few classes: whole columns at a time, in the same order of additions whatever the layout in memory. Many classes:
# row by row, which needs rows that are contiguous.

_FEW = 32


def sorted_classes(probs: Float) -> Float:
    """(K, …): the smallest probability of each row first; no sum over it depends on the order of the classes."""
    classes = probs.shape[-1]
    if classes > _FEW:
        return np.moveaxis(np.sort(np.ascontiguousarray(probs), axis=-1), -1, 0)
    columns = np.array(np.moveaxis(probs, -1, 0), order="C")
    low = np.empty(columns.shape[1:])
    for i, j in _exchanges(classes):
        np.minimum(columns[i], columns[j], out=low)
        np.maximum(columns[i], columns[j], out=columns[j])
        columns[i] = low
    return columns


@cache
def _exchanges(classes: int) -> tuple[tuple[int, int], ...]:
    """Which columns to put in order, one pair after the other, so that all are (Batcher's odd-even merge sort)."""
    pairs = []
    step = 1
    while step < classes:
        apart = step
        while apart:
            for start in range(apart % step, classes - apart, 2 * apart):
                for k in range(start, min(start + apart, classes - apart)):
                    if k // (2 * step) == (k + apart) // (2 * step):
                        pairs.append((k, k + apart))
            apart //= 2
        step *= 2
    return tuple(pairs)


def add_classes(columns: Float) -> Float:
    """Σ over the first axis of (K, …), from the first on."""
    if len(columns) > _FEW:
        return np.moveaxis(columns, 0, -1).sum(axis=-1)
    total: Float = columns[0].copy()
    for column in columns[1:]:
        total += column
    return total


def others(probs: Float) -> Float:
    """All but the largest probability, added up in an order that does not depend on that of the classes."""
    return add_classes(sorted_classes(probs)[:-1])


def square_rows(probs: Float) -> Float:
    """Σ of squares of each row."""
    if probs.shape[-1] > _FEW:
        rows = np.ascontiguousarray(probs)
        return np.einsum("nk,nk->n", rows, rows)
    total = probs[:, 0] * probs[:, 0]
    for column in probs.T[1:]:
        total += column * column
    return total


def logit_loss_rows(z: Float, y: Int) -> Float:
    """`truth.gap_from_logits`."""
    rows = np.arange(len(z))
    own = z[rows, y]
    masked = np.isneginf(own)
    with np.errstate(over="ignore"):  # finite logits may lie further apart than the largest float
        excess = z - np.where(masked, 0.0, own)[:, None]
        excess[rows, y] = -np.inf
        np.minimum(excess, np.finfo(np.float64).max, out=excess)
        excess.sort(axis=-1)  # so that the order of the classes cannot break a tie in the last bit of the sum
        top = excess[:, -1]
        shift = np.where(top > _BIG, top, 0.0)
        excess -= shift[:, None]
    total: Float = np.exp(excess, out=excess).sum(axis=-1)
    loss: Float = np.log1p(total)
    big = shift > 0
    loss[big] = shift[big] + np.log(np.exp(-shift[big]) + total[big])
    loss[masked] = np.inf
    return loss


def pick(array: Float, classes: Int) -> Float:
    return array[np.arange(len(classes)), classes]


def _top(array: Float) -> tuple[Int, NDArray[np.bool_]]:
    """Arg-max of each row (the lowest class of tied ones), and where it is tied."""
    if array.shape[1] > _FEW:
        top: Int = array.argmax(axis=1).astype(np.int64, copy=False)
        return top, np.count_nonzero(array == pick(array, top)[:, None], axis=1) > 1
    largest = array.max(axis=1)
    at, count = np.zeros(len(array), dtype=np.int64), np.zeros(len(array), dtype=np.uint8)
    for k in range(array.shape[1] - 1, -1, -1):
        same = array[:, k] == largest
        np.copyto(at, k, where=same)
        count += same
    return at, count > 1


def top_class(name: str, array: Float) -> Int:
    """Arg-max; called straight from the public functions, so that the warning points at the user's line."""
    top, tied = _top(array)
    if tied.any():
        count = int(tied.sum())
        notify(
            f"`{name}` has a tied top class in {count} row{'s' * (count != 1)} "
            f"(first at row {int(tied.argmax())}); the lowest class index is taken.",
            UQWarning,
            stacklevel=3,
        )
    return top


# ---- generated texts: rows of different lengths, one at a time ---------------------------------------------------


def text_nll(logprobs: Sequence[float]) -> float:
    """`scores.sequence_nll` of one text."""
    return 0.0 - math.fsum(logprobs)  # not -sum: a certain text is 0.0, not -0.0


def mean_entropy(top_logprobs: Sequence[Sequence[float]]) -> float:
    """`scores.mean_token_entropy` of one text."""
    return math.fsum(map(_token_entropy, top_logprobs)) / len(top_logprobs)


def _token_entropy(logprobs: Sequence[float]) -> float:
    probs = [math.exp(value) for value in sorted(logprobs)]  # the order of the alternatives changes no bit
    probs.append(max(0.0, 1.0 - math.fsum(probs)))  # the alternatives that were not listed, as one
    return 0.0 - math.fsum(p * math.log(p) for p in probs if p > 0)


def disagreement(samples: Sequence[Hashable]) -> float:
    """`scores.answer_disagreement` of one question."""
    return 1.0 - max(Counter(samples).values()) / len(samples)


def cluster_entropy_of(samples: Sequence[Hashable]) -> float:
    """`scores.cluster_entropy` of one question."""
    shares = [count / len(samples) for count in sorted(Counter(samples).values())]
    return 0.0 - math.fsum(share * math.log(share) for share in shares)
