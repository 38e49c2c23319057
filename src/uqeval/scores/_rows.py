"""Row-wise building blocks of the scores, on clean arrays.

Each gives a row the same bits whatever the batch around it and whatever the order of its classes,
because a difference in the last bit would break a tie that the ranking metrics must see.
"""

from collections.abc import Callable

import numpy as np

from uqeval._check import Float, Int
from uqeval._rows import others

_BLOCK = 1 << 17  # values per block: 1 MiB, so that the scratch stays in cache
_TINY = np.finfo(np.float64).tiny


def by_rows(kernel: Callable[[Float], Float], array: Float) -> Float:
    """Apply a kernel (..., rows, K) → (rows,) block by block, to bound the scratch memory."""
    n = array.shape[-2]
    step = max(1, _BLOCK * n // max(array.size, 1))
    out = np.empty(n)
    for start in range(0, n, step):
        out[start : start + step] = kernel(np.ascontiguousarray(array[..., start : start + step, :]))
    return out


def entropy_rows(probs: Float) -> Float:
    """Shannon entropy in nats, 0 log 0 = 0."""
    ordered = np.sort(probs, axis=-1)
    terms = np.maximum(ordered, _TINY)
    np.log(terms, out=terms)
    terms *= ordered
    total: Float = terms.sum(axis=-1)
    return 0.0 - total  # not -total: a certain row is 0.0, not -0.0


def mean_members(values: Float) -> Float:
    """Mean over the first axis; never outside the members' range, so exact where they agree."""
    total, low, high = values[0].copy(), values[0].copy(), values[0].copy()
    # One by one: NumPy's own sum changes its order of addition with the shape of the batch.
    for value in values[1:]:
        total += value
        np.minimum(low, value, out=low)
        np.maximum(high, value, out=high)
    return np.clip(total / len(values), low, high)


def top_gap(probs: Float) -> Float:
    """1 − max p; where max p has been rounded to 1, the sum of the others, which still tells rows apart.

    1 − p is exact for p ≥ ½, so rows with equal max p < 1 stay tied.
    """
    gap: Float = 1.0 - probs.max(axis=-1)
    full = gap == 0
    gap[full] = others(probs[full])
    return gap


def vote_counts(members: Float) -> Int:
    """Number of members (m, n, K) that vote for each class (n, K); a tie votes for the lowest index."""
    counts = np.zeros(members.shape[1:], dtype=np.int64)
    rows = np.arange(members.shape[1])
    for votes in members.argmax(axis=-1):
        counts[rows, votes] += 1
    return counts
