"""Bins that never split a value: edges are values of the data, and each edge is a bin of its own.

Any edges give the exact answer; they decide only how evenly the work is spread. Even codes are the open intervals
between edges, odd codes the edges themselves ("point bins", which need no kernel: all of their rows are tied).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import State

Codes = NDArray[np.uint16]
_CELLS = 1 << 16


@dataclass(frozen=True)
class Axis:
    """Edges of one column, in ascending order."""

    edges: Float

    @property
    def n_codes(self) -> int:
        return 2 * len(self.edges) + 1

    def codes(self, x: NDArray[Any]) -> Codes:
        """2·(edges below x) + [x is an edge]."""
        x = x.astype(np.float64, copy=False)
        place = np.searchsorted(self.edges, x, side="left") if self._cells is None else self._below(x, self._cells)
        on_edge = self._padded[place] == x
        place <<= 1
        place += on_edge
        return place.astype(np.uint16)

    @cached_property
    def _padded(self) -> Float:
        """NaN at the end equals nothing, so that values above the last edge are no edge."""
        return np.append(self.edges, np.nan)

    @cached_property
    def _cells(self) -> tuple[float, float, Int, NDArray[np.bool_]] | None:
        """Where a value lies among the edges, from even cells: origin, cells per unit, edges before each cell, crowded.

        Rounding keeps the order, so that edges of other cells compare as their cells do. Five times as fast as a
        search; None where the edges do not span a range that can be cut.
        """
        finite = self.edges[np.isfinite(self.edges)]
        if len(finite) < 2:
            return None
        low = float(finite[0])
        with np.errstate(over="ignore"):
            scale = float(_CELLS / (finite[-1] - finite[0]))
        if not 0 < scale < np.inf:
            return None
        of_edge = _cell(self.edges, low, scale)
        before = np.searchsorted(of_edge, np.arange(_CELLS + 1), side="left")
        return low, scale, before[:-1], np.diff(before) > 1

    def _below(self, x: Float, cells: tuple[float, float, Int, NDArray[np.bool_]]) -> Int:
        """Edges below each value."""
        low, scale, before, crowded = cells
        cell = _cell(x, low, scale)
        place = before[cell]
        place += self._padded[place] < x  # the edge of its own cell, if there is one; false for those of later cells
        many = crowded[cell]
        if many.any():
            place[many] = np.searchsorted(self.edges, x[many], side="left")
        return place


def _cell(x: Float, low: float, scale: float) -> Int:
    with np.errstate(over="ignore"):
        place = (x - low) * scale
    return np.clip(place, 0, _CELLS - 1, out=place).astype(np.int64)


def choose_edges(sample: NDArray[Any], bins: int) -> Axis:
    """About `bins` quantiles of a sample, each a value of it; a value that holds more than 1/bins is among them."""
    x = np.sort(sample.astype(np.float64) + 0.0)
    if len(x) == 0 or bins < 2:
        return Axis(np.empty(0))
    ranks = np.arange(1, bins) * len(x) // bins
    return Axis(np.unique(x[ranks]))


def split_edges(axis: Axis, sample: NDArray[Any], code: int, pieces: int) -> Axis:
    """The axis with the interval `code` cut into about `pieces`, by a sample of its rows."""
    inside = sample[axis.codes(sample) == code]
    return Axis(np.unique(np.concatenate([axis.edges, choose_edges(inside, pieces + 1).edges])))


@dataclass(frozen=True)
class Grid:
    """Rows of each pair of codes: right rows and wrong rows, by score code and loss code."""

    score: Axis
    loss: Axis
    cells: Int  # (score codes, loss codes, 2)

    def __reduce__(self) -> Any:  # without what is cached: it is made again where it is needed
        return Grid, (self.score, self.loss, self.cells)

    @cached_property
    def n(self) -> int:
        return int(self.cells.sum())

    @cached_property
    def wrong(self) -> int:
        return int(self.cells[:, :, 1].sum())

    @cached_property
    def by_score(self) -> Int:
        """(score codes, 2): right and wrong rows."""
        return self.cells.sum(axis=1)

    @cached_property
    def by_loss(self) -> Int:
        return self.cells.sum(axis=(0, 2))

    @cached_property
    def rows(self) -> Int:
        """(score codes, loss codes)."""
        return self.cells.sum(axis=2)

    @cached_property
    def before(self) -> Int:
        """(score codes, 2): right and wrong rows in lower score bins."""
        return np.cumsum(self.by_score, axis=0) - self.by_score

    @cached_property
    def across(self) -> Int:
        """Twice the rows that lie on the same side in another score bin and another loss bin, for each cell."""
        table = np.zeros((self.rows.shape[0] + 1, self.rows.shape[1] + 1), dtype=np.int64)
        np.cumsum(np.cumsum(self.rows, axis=0), axis=1, out=table[1:, 1:])
        below = table[:-1, :-1]
        above = table[-1, -1] - table[1:, -1:] - table[-1:, 1:] + table[1:, 1:]
        return 2 * (below + above)

    @cached_property
    def at_point(self) -> Int:
        """`across` plus, in the rows of score point bins, the tied pairs with other losses: once each."""
        result = self.across.copy()
        result[1::2] += self.by_score.sum(axis=1)[1::2, None] - self.rows[1::2]
        return result

    @cached_property
    def small(self) -> NDArray[np.bool_]:
        """(score codes,): point bins of few rows, which ride along with the others rather than cost a pass."""
        counts = self.by_score.sum(axis=1)
        found: NDArray[np.bool_] = 16 * counts * (len(self.score.edges) + 1) <= self.n
        found[::2] = False
        return found


class RowsChanged(InputError):
    """A bin came back with other rows than were counted: the data changed, or rows were lost or doubled."""


def changed(what: str, found: int, expected: int) -> RowsChanged:
    """The error that says so."""
    return RowsChanged(
        f"{what} came back with {found:,} rows, but {expected:,} were counted. The data changed while it was read, or "
        f"the engine lost or doubled rows. No result is given; run it again on data that stays as it is."
    )


def check_buckets(what: str, states: Iterable[State], counts: Int, riders: int = 0) -> None:
    """Each non-empty interval exactly once, with exactly its rows, and all riders."""
    seen: dict[int, int] = {}
    rode = 0
    for state in states:
        bucket = int(state["bucket"])
        if bucket in seen:
            raise RowsChanged(f"{what} {bucket} came back twice. The engine doubled work; no result is given.")
        seen[bucket] = int(state["rows"])
        rode += int(state.get("riders", 0))
    for bucket, expected in enumerate(counts[::2].tolist()):
        if seen.get(bucket, 0) != expected:
            raise changed(f"{what} {bucket}", seen.get(bucket, 0), expected)
    if rode != riders:
        raise changed(f"The point bins beside {what.lower()}", rode, riders)


# ---- exact sums -------------------------------------------------------------------------------------------------


def total_and_squares(x: Int) -> tuple[int, int]:
    """Σx and Σx², exact."""
    return (int(x.sum()), _squares(x)) if len(x) else (0, 0)


def shares_sizes(x: Int, sizes: Int) -> list[tuple[int, int, int, int]]:
    """(size, rows, Σx, Σx²) of the rows of each tie size: exact integers of any length."""
    if len(x) == 0:
        return []
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        return [(low, len(x), int(x.sum()), _squares(x))]
    order = np.argsort(sizes, kind="stable")
    x, sizes = x[order], sizes[order]
    first = np.flatnonzero(np.diff(sizes, prepend=-1))
    counts = np.diff(first, append=len(x))
    bits = max(1, (int(x.max()).bit_length() + 1) // 2)
    top, rest = x >> bits, x & ((1 << bits) - 1)
    sums = [np.add.reduceat(part, first) for part in (x, top * top, top * rest, rest * rest)]
    return [
        (int(size), int(count), int(one), (int(a) << 2 * bits) + (int(b) << bits + 1) + int(c))
        for size, count, one, a, b, c in zip(sizes[first], counts, *sums, strict=True)
    ]


def _squares(x: Int) -> int:
    """Σx², exact: both halves of x are squared as integers that cannot overflow below 2²³ rows and 2⁴⁰."""
    bits = max(1, (int(x.max()).bit_length() + 1) // 2)
    top, rest = x >> bits, x & ((1 << bits) - 1)
    return (int(top @ top) << 2 * bits) + (int(top @ rest) << bits + 1) + int(rest @ rest)
