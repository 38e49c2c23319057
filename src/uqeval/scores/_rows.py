"""Row-wise building blocks of the scores, on clean arrays.

Each gives a row the same bits whatever the batch around it and whatever the order of its classes,
because a difference in the last bit would break a tie that the ranking metrics must see.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from uqeval._check import Float, Int, on_grid
from uqeval._rows import add_classes, sorted_classes
from uqeval.kernels import side_by_side, threads

_BLOCK = 1 << 17  # values per block: 1 MiB, so that the scratch stays in cache
_NOISE = 2.0**-46
_TINY = np.finfo(np.float64).tiny


def by_rows(kernel: Callable[[Float], Float], array: Float) -> Float:
    """Apply a kernel (..., rows, K) → (rows,) block by block, to bound the scratch memory; blocks share the cores."""
    return _in_blocks(lambda block: [kernel(np.ascontiguousarray(block))], 1, array)[0]


def by_sorted(kernels: Sequence[Callable[[Float], Float]], array: Float) -> list[Float]:
    """Apply kernels (K, rows) → (rows,) to the sorted classes of (rows, K): all in one pass, sorted once."""

    def of_block(block: Float) -> list[Float]:
        ordered = sorted_classes(block)
        _make_certain(ordered)
        return [kernel(ordered) for kernel in kernels]

    return _in_blocks(of_block, len(kernels), array)


def _make_certain(ordered: Float) -> None:
    """A row of one class has probability 1, which a sum of tenths misses by its noise."""
    top, second = ordered[-1], ordered[-2]
    np.copyto(top, 1.0, where=(second == 0) & (np.abs(top - 1.0) < _NOISE))


def _in_blocks(kernel: Callable[[Float], list[Float]], results: int, array: Float) -> list[Float]:
    n = array.shape[-2]
    step = max(1, _BLOCK * n // max(array.size, 1))
    out = [np.empty(n) for _ in range(results)]

    def some(starts: range) -> None:
        for start in starts:
            for whole, part in zip(out, kernel(array[..., start : start + step, :]), strict=True):
                whole[start : start + step] = part

    count = threads() if n > 4 * step else 1
    side_by_side([partial(some, range(k * step, n, count * step)) for k in range(count)])
    return out


def entropy_rows(probs: Float) -> Float:
    """Shannon entropy in nats, 0 log 0 = 0."""
    ordered = sorted_classes(probs)
    _make_certain(ordered)
    return entropy_of(ordered)


def entropy_of(ordered: Float) -> Float:
    terms = np.maximum(ordered, _TINY)
    np.log(terms, out=terms)
    terms *= ordered
    return 0.0 - add_classes(terms)  # not -total: a certain row is 0.0, not -0.0


def mean_members(values: Float) -> Float:
    """Mean over the first axis; never outside the members' range, so exact where they agree."""
    total, low, high = values[0].copy(), values[0].copy(), values[0].copy()
    # One by one: NumPy's own sum changes its order of addition with the shape of the batch.
    for value in values[1:]:
        total += value
        np.minimum(low, value, out=low)
        np.maximum(high, value, out=high)
    return np.clip(total / len(values), low, high)


def gap_of(ordered: Float) -> Float:
    """1 − max p; where max p has been rounded to 1, the sum of the others, which still tells rows apart.

    1 − p is exact for p ≥ ½, so rows with equal max p < 1 stay tied.
    """
    gap = on_grid(1.0 - ordered[-1])
    full = gap == 0
    if full.any():
        gap[full] = add_classes(ordered[:-1][:, full])
    return gap


def margin_of(ordered: Float) -> Float:
    return 0.0 - on_grid(ordered[-1] - ordered[-2])


def variance_of(ordered: Float) -> Float:
    return ordered[-1] * gap_of(ordered)


def vote_counts(members: Float) -> Int:
    """Number of members (m, n, K) that vote for each class (n, K); a tie votes for the lowest index."""
    counts = np.zeros(members.shape[1:], dtype=np.int64)
    rows = np.arange(members.shape[1])
    for votes in members.argmax(axis=-1):
        counts[rows, votes] += 1
    return counts
