"""Metrics of 0/1 errors from the marks of rows in order of a score, in plain NumPy."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval.kernels._types import AucSums, Bit, Float, Int, Sweep, bounds_of
from uqeval.kernels.plain.order import mark
from uqeval.kernels.plain.sums import fixed_sum, sum_of_squares


def credits_of(marks: Bit) -> Int:
    """credit2 of every row in order of the score: of a wrong row over the right ones, of a right row over the wrong."""
    wrong = (marks & 1).view(np.bool_)
    below = np.zeros(len(marks) + 1, dtype=np.int64)  # wrong rows before each slot
    np.cumsum(wrong, out=below[1:])
    if marks.min(initial=2) > 1:  # no ties
        credit: Int = np.where(wrong, np.arange(len(marks)) - below[:-1], below[-1] - below[:-1])
        credit *= 2
        return credit
    start, end = bounds_of(marks > 1)
    # Twice the right rows below plus the tied ones, and the same for wrong rows above.
    half = below[start] + below[end]
    return np.where(wrong, start + end - half, 2 * below[-1] - half)


def auc_sums(score: Float, error: Bit, threads: int = 1) -> AucSums:
    """Credits of the wrong rows, and the squares of both classes."""
    marks = mark(score, error)
    credit, wrong = credits_of(marks), (marks & 1).view(np.bool_)
    of_wrong = credit[wrong]
    squares = sum_of_squares(of_wrong)
    return AucSums(len(of_wrong), int(of_wrong.sum()), squares, sum_of_squares(credit) - squares)


class _Places(NamedTuple):
    """Of every place: the risk there, the sums of 1/k to the end, and the risk less the sum of risk/k to the end.

    The latter two are averaged over tied places; a wrong row adds `later + rest` to n·AURC, a right one `rest`.
    """

    wrong: NDArray[np.bool_]
    start: Int
    end: Int
    risk: Float
    later: Float
    rest: Float
    best: float
    slope: float
    rate: float

    @property
    def e(self) -> Float:
        """What a row adds, less the oracle's part."""
        wrong = self.rest + self.later - self.best - self.slope * (1 - self.rate)
        return np.where(self.wrong, wrong, self.rest - self.best + self.slope * self.rate)


def _places(marks: Bit) -> _Places:
    n, wrong = len(marks), (marks & 1).view(np.bool_)
    start, end = bounds_of(marks > 1)
    first = np.flatnonzero(marks > 1)
    size = np.diff(first, append=n)
    bad = int(np.count_nonzero(wrong))
    rate = bad / n if n else 0.0
    late = np.arange(1, bad + 1)
    best = fixed_sum(late / (n - bad + late), n) / n if n else 0.0
    place = np.arange(1, n + 1)
    total = np.zeros(n + 1)
    np.cumsum(wrong, out=total[1:])
    each = (total[end] - total[start]) / (end - start)
    inverse = 1.0 / place
    risk = (total[start] + (place - start) * each) * inverse
    later = np.cumsum(inverse[::-1])[::-1]
    rest = risk - np.cumsum((risk * inverse)[::-1])[::-1]
    if len(size) < n:
        later, rest = (np.repeat(np.add.reduceat(x, first) / size, size) for x in (later, rest))
    return _Places(wrong, start, end, risk, later, rest, best, -math.log1p(-rate) if rate < 1 else 0.0, rate)


def sweep(marks: Bit) -> Sweep:
    """All sums of `Sweep`."""
    at, n, credit = _places(marks), len(marks), credits_of(marks)
    size = np.diff(np.flatnonzero(marks > 1), append=n)
    of_wrong, e = credit[at.wrong], at.e
    squares, bad = sum_of_squares(of_wrong), len(of_wrong)
    one, zero = e[at.wrong], e[~at.wrong]
    return Sweep(
        rows=n,
        wrong=bad,
        credit2=int(of_wrong.sum()),
        wrong_squares=squares,
        right_squares=sum_of_squares(credit) - squares,
        later2=sum_of_squares((2 * n - at.start - at.end)[at.wrong]),
        tied_pairs=int((size * (size - 1)).sum()),
        blocks=len(size),
        aurc=at.rate if len(size) <= 1 or bad == n else fixed_sum(at.risk, n) / n,
        best=at.best,
        slope=at.slope,
        rate=at.rate,
        wrong_sum=float(one.sum()),
        wrong_sum2=float((one * one).sum()),
        right_sum=float(zero.sum()),
        right_sum2=float((zero * zero).sum()),
        shares2=float((at.later[at.wrong] ** 2).sum()),
        harmonic=float((1.0 / np.arange(1, n + 1)).sum()),
    )


def count_wrong(marks: Bit) -> int:
    """Wrong rows among them."""
    return int(np.count_nonzero(marks & 1))


def sweep_parts(marks: Bit, start: Int) -> Sweep:
    """`sweep` part by part, as arrays."""
    found = [sweep(marks[a:b]) for a, b in itertools.pairwise(start.tolist())]
    return Sweep(*(np.array(column) for column in zip(*found, strict=True)))


def credits(marks: Bit) -> NDArray[np.uint32]:
    """credit2 of every row, in order of the score."""
    return credits_of(marks).astype(np.uint32)


def sweep_rows(marks: Bit) -> tuple[Float, NDArray[np.uint32]]:
    """e and credit2 of every row, in order of the score."""
    return _places(marks).e, credits(marks)


def unit_sums(
    row: NDArray[np.uint32], marks: Bit, e: Float, credit2: NDArray[np.uint32], clusters: Int, units: int
) -> tuple[Float, Int, Int]:
    """Of each cluster: Σ e, Σ credit2 and the wrong rows; `marks`, `e` and `credit2` are those of the rows in order.

    Class by class: tied rows of a class are alike, so that the sums do not depend on the order of rows.
    """
    code, wrong = clusters[row], (marks & 1).view(np.bool_)
    total, credit = np.zeros(units), np.zeros(units, dtype=np.int64)
    for side in (~wrong, wrong):
        total += np.bincount(code[side], weights=e[side], minlength=units)
        credit += np.bincount(code[side], weights=credit2[side], minlength=units).astype(np.int64)
    return total, credit, np.bincount(code[wrong], minlength=units)
