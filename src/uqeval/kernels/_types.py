"""What the kernels take and give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._lanes import Number

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bit = NDArray[np.uint8]


def bounds_of(new: NDArray[np.bool_]) -> tuple[Int, Int]:
    """First and past-the-end slot of each slot's group, from the flags of group starts."""
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=len(new))
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


@dataclass(frozen=True, eq=False)
class Order:
    """Rows sorted by value (stable), in groups of equal values."""

    row: NDArray[np.uint32]
    new: NDArray[np.bool_]  # where a group starts

    @cached_property
    def values(self) -> int:
        """How many groups there are."""
        return int(np.count_nonzero(self.new))

    @property
    def ties(self) -> bool:
        return self.values < len(self.new)

    @cached_property
    def first(self) -> Int:
        """Where each group starts."""
        return np.flatnonzero(self.new)

    @cached_property
    def size(self) -> Int:
        """Rows of each group."""
        return np.diff(self.first, append=len(self.new))

    @cached_property
    def _bounds(self) -> tuple[Int, Int]:
        if not self.ties:
            slots = np.arange(len(self.new))
            return slots, slots + 1
        return bounds_of(self.new)

    @property
    def start(self) -> Int:
        """Where each slot's group starts …"""
        return self._bounds[0]

    @property
    def end(self) -> Int:
        """… and ends."""
        return self._bounds[1]

    @property
    def tied_pairs(self) -> int:
        """Ordered pairs of rows with equal values."""
        if not self.ties:
            return 0
        size = np.diff(np.flatnonzero(self.new), append=len(self.new))  # not kept
        return int((size * (size - 1)).sum())

    @cached_property
    def ranks(self) -> Int:
        """Of each row among the distinct values, from 0."""
        ranks = np.empty(len(self.row), dtype=np.int64)
        ranks[self.row] = np.cumsum(self.new) - 1
        return ranks


class AucSums(NamedTuple):
    """Exact sums over the rows of a 0/1 loss. Here and below: numbers, or arrays of them, part by part."""

    wrong: Number  # rows with error = 1
    credit2: Number  # over the wrong rows; the right rows have the same total
    wrong_squares: Number  # Σ credit2² over the wrong rows
    right_squares: Number


class Sweep(NamedTuple):
    """What all metrics of 0/1 errors and their variances are made of, for rows of equal weight.

    g = v·L + R − L' is what a row adds to AURC: R is the risk at its place, L and L' are the sums of 1/k and R/k from
    there to the end, averaged over the places of its ties. e = g − best − slope·(v − rate), g less the oracle's part.
    """

    rows: Number
    wrong: Number
    credit2: Number
    wrong_squares: Number
    right_squares: Number
    later2: Number  # Σ over wrong rows of (twice the rows behind, tied ones half)²
    tied_pairs: Number  # ordered
    blocks: Number  # of tied rows
    aurc: Number
    best: Number  # AURC of the oracle: right rows first
    slope: Number
    rate: Number
    wrong_sum: Number  # Σ e over wrong rows …
    wrong_sum2: Number  # … and Σ e²
    right_sum: Number
    right_sum2: Number
    shares2: Number  # Σ L² over wrong rows
    harmonic: Number  # Σ 1/k over all places

    @property
    def auc(self) -> AucSums:
        return AucSums(self.wrong, self.credit2, self.wrong_squares, self.right_squares)


class ConcordanceSums(NamedTuple):
    """Totals over rows (each pair twice), and moments of the delete-one shifts of C."""

    credit2: Number
    comparable: Number
    shift: Number  # Σ d_i, d_i = C without row i − C; NaN where a row holds all comparable pairs
    shift2: Number  # Σ d_i²


def alike_sums(n: Number, credit2: Number, comparable: Number, squares: Number) -> ConcordanceSums:
    """Where all rows have m comparable rows (no ties), d_i is linear in credit2_i and integers do, exactly."""
    left = comparable - 2 * (comparable // n)
    return ConcordanceSums(credit2, comparable, 0.0, (n * squares - credit2**2) / (n * left**2))


def kind_sums(kinds: list[tuple[int, int, int, int]]) -> ConcordanceSums:
    """From kinds of rows that have as many comparable rows m: (m, rows, Σ credit2, Σ credit2²); exact up to divisions.

    A row moves C by (T·m − c·M)/(M·(M − 2m)), T and M the totals, c its credit2: the mean of a kind is told apart from
    what its rows scatter about it.
    """
    total = sum(kind[2] for kind in kinds)
    pairs = sum(kind[0] * kind[1] for kind in kinds)
    if pairs == 0 or pairs <= 2 * max(kind[0] for kind in kinds):
        return ConcordanceSums(total, pairs, float("nan"), float("nan"))
    shift = shift2 = 0.0
    for m, rows, credit2, squares in kinds:
        left, apart = pairs - 2 * m, total * m * rows - credit2 * pairs  # rows·M times what their mean is apart
        shift += apart / (pairs * left)
        shift2 += (rows * squares - credit2**2) / (rows * left**2) + apart**2 / (rows * (pairs * left) ** 2)
    return ConcordanceSums(total, pairs, shift, shift2)
