"""What looks like a mistake and cannot be known: copies of rows, logits that are probabilities. Notes, never errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval._errors import UQWarning, notify

_ROUNDED = 0.02  # how far rows of two decimals may be from 1
_LEAST = 10  # copies, below which chance is not told apart
_FIRST, _ENOUGH = 1 << 11, 1 << 13  # rows that are looked at, and again if some are alike
_AMONG = 32  # times as many rows, among which those are sought
_AT_ONCE = 1 << 16
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_SIGMAS = 4.0


def doubt_logits(name: str, logits: Float) -> None:
    """Probabilities passed as logits, or a model that ends in softmax."""
    first = logits.reshape(-1, logits.shape[-1])[0]
    if abs(first.sum() - 1) > _ROUNDED or first.min() < 0:  # enough for nearly all
        return
    if logits.min() >= 0 and logits.max() <= 1 and (np.abs(logits.sum(axis=-1) - 1) <= _ROUNDED).all():
        notify(
            f"`{name}` look like probabilities: all rows lie in [0, 1] and sum to 1, so that softmax is taken twice. "
            f"Pass them as `{'members' if name == 'member_logits' else 'probs'}`, or the outputs before softmax.",
            UQWarning,
            stacklevel=3,
        )


def doubt_ids(ids: NDArray[np.str_]) -> None:
    """Ids that come more than once."""
    texts = ids.tolist()
    if (repeats := len(texts) - len(set(texts))) == 0:
        return
    seen: set[str] = set()
    row = next(k for k, text in enumerate(texts) if text in seen or seen.add(text))  # type: ignore[func-returns-value]
    notify(
        f"{repeats} rows repeat an id (first: {texts[row]!r} in row {row}). Copies of a row narrow the intervals: drop "
        f"them, or say with clusters which rows belong together.",
        UQWarning,
        stacklevel=3,
    )


def doubt_rows(columns: Sequence[NDArray[Any]]) -> None:
    """Rows that are the same in all columns, where chance does not explain it."""
    for enough in (_FIRST, _ENOUGH):  # few rows say that there is nothing to look for
        rows = _some(columns, enough)
        if len(rows) < 2 * _LEAST:
            return
        key = np.zeros(len(rows), dtype=np.uint64)
        for column in columns:
            key = (key ^ _bits(column[rows])) * _MIXER
            key ^= key >> np.uint64(29)
        order = np.argsort(key, kind="stable")
        start = np.flatnonzero(np.r_[True, key[order][1:] != key[order][:-1]])
        if len(start) == len(rows):
            return
    times = np.diff(start, append=len(order))
    pairs = start[times == 2]
    first, second = rows[order[pairs]], rows[order[pairs + 1]]
    if not (_too_even(times) or _one_distance(second - first, len(rows))):
        return
    place = start[int((times > 1).argmax())]
    share = len(columns[0]) / len(rows)
    notify(
        f"{'about ' * (share > 1)}{round(share * int((times - 1).sum())):,} rows are exact copies of others, more than "
        f"chance would give (rows {rows[order[place]]} and {rows[order[place + 1]]}, for one). Copies narrow the "
        f"intervals: drop them, or say with clusters which rows belong together.",
        UQWarning,
        stacklevel=3,
    )


def _some(columns: Sequence[NDArray[Any]], enough: int) -> NDArray[np.int64]:
    """Rows by what the first column holds, so that a copy is taken with its original.

    Of very many rows those where a second, third or fourth copy of a file would begin: all cost as much as a metric.
    """
    n, most = len(columns[0]), _AMONG * enough
    if n <= 2 * enough:
        return np.arange(n)
    starts, size = ([0], n) if n <= most else ([n * k // 12 for k in (0, 3, 4, 6, 8, 9)], most // 6)
    limit, found = np.uint64((enough << 64) // (len(starts) * size)), []
    for first in starts:
        for start in range(first, first + size, _AT_ONCE):
            stop = min(start + _AT_ONCE, first + size)
            found.append(np.flatnonzero(_bits(columns[0][start:stop]) * _MIXER < limit) + start)
    rows = np.concatenate(found)
    return rows if len(rows) <= 4 * enough else rows[:0]  # of few values: chance gives copies without end


def _bits(column: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(column, dtype=np.float64).view(np.uint64)


def _too_even(times: NDArray[np.int64]) -> bool:
    """More rows that come twice than any law gives with so few that come once and three times.

    Of independent rows, the numbers N_k of values that come k times are means of Poisson chances: by Cauchy and Schwarz
    (2 N2)² ≤ N1 · 6 N3, but for noise.
    """
    if len(times) >= _LEAST and times.min() == times.max() > 1:
        return True
    once, twice, thrice = (int((times == k).sum()) for k in (1, 2, 3))
    if twice < _LEAST:
        return False
    expected = 2 / 3 * max(twice - _SIGMAS * twice**0.5, 0) ** 2 / (once + _SIGMAS * once**0.5 + 1)
    return expected - _SIGMAS * expected**0.5 > thrice


def _one_distance(distance: NDArray[np.int64], n: int) -> bool:
    """Many copies as far behind their original: one file after the other. Sorted rows have small distances."""
    far = distance[distance > _LEAST]
    if len(far) < _LEAST:
        return False
    most = int(np.unique(far, return_counts=True)[1].max())
    return most >= _LEAST + 20 * len(far) / n**0.5
