"""Counts in cells of known intervals: how little of the data is enough for certain bounds?

A float64 is read as an integer of the same order. At level L a cell is either a multiple of 2^L (a single value) or
the open stretch between two multiples. L is the smallest at which the values seen fill no more cells than allowed: it
depends on what was seen, not on the order or on how it was cut, so counts merge to the same integers in any order.
A `Ruler` stretches the axis where a sample has many rows and gives heavy values a multiple of their own.
Bounds are made from these counts in `bounds`, states in `state`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int

_TOP = 62  # at this level all doubles share 8 cells
_TABLE = 1 << 22  # entries of a lookup table at most; beyond, cells are searched
_ALIGN = 8  # a heavy value stays alone until 2^8 cells beside it are one


def keys_of(x: Float) -> Int:
    """Integers in the order of x, 0 for both zeros, symmetric about it."""
    bits = np.ascontiguousarray(x).view(np.int64)
    size = bits & np.int64(2**63 - 1)
    return np.where(bits < 0, -size, size)


def cell_of(r: Int, level: int) -> Int:
    """The cell of each coordinate, named by its lowest coordinate."""
    low = r & np.int64(-(1 << level))
    return low + (r != low)


def _distinct(x: Int) -> Int:
    """The distinct entries of a sorted array; np.unique made counting 15 times as long."""
    return x[np.append(True, x[1:] != x[:-1])[: len(x)]]


def is_single(cells: Int, level: int) -> NDArray[np.bool_]:
    """Whether all rows of a cell hold the same value."""
    # At level 1 the stretch between two multiples holds one value, too.
    return (cells & np.int64((1 << level) - 1)) == 0 if level > 1 else np.ones(len(cells), dtype=np.bool_)


# ---- the axis -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ruler:
    """Where cells should lie, from a sample; states can be merged if they use the same ruler.

    Any ruler gives certain bounds. One from a sample that looks like the data gives narrow ones.
    """

    edges: Int  # keys, ascending
    codes: Int  # the coordinate of each edge, multiples of 2^level
    level: int  # up to it, edges have cells of their own

    @classmethod
    def from_sample(cls, values: Float, cells: int) -> Ruler | None:
        """A ruler of about `cells` stretches with equal shares of the sample; None where it would not help."""
        keys, counts = np.unique(keys_of(values), return_counts=True)
        n = len(values)
        if len(keys) < 64:
            return None  # few values have cells of their own anyway
        heavy = (counts >= 3) & (counts * cells >= n)
        if len(keys) <= cells // 2:
            heavy = np.ones(len(keys), dtype=bool)
        # Between values, so that the edges themselves stay empty; a heavy value is an edge.
        share = np.cumsum(counts) * cells // n
        cut = np.flatnonzero(share[1:] != share[:-1])
        a, b = keys[cut], keys[cut + 1]
        middle = (a | b) - ((a ^ b) >> 1)  # the mean, rounded up, where a + b would overflow
        ends = keys[[0, -1]]
        edges = np.unique(np.concatenate([ends, middle, keys[heavy]]))
        alone = np.isin(edges, keys[heavy & (counts * 64 >= n)])
        room = int(ends[1]) - int(ends[0])
        level = (room // (len(edges) + (int(alone.sum()) + 2) * 2**_ALIGN)).bit_length() - 1
        if level < 3:
            return None  # neighbours in the last bits: the plain axis is as good
        # Codes lie between the end keys, so that values outside of the sample keep their own keys as coordinates.
        step, wide = 1 << level, 1 << (level + _ALIGN)
        codes, at = np.empty(len(edges), dtype=np.int64), -(-int(ends[0]) // wide) * wide
        for k, apart in enumerate(alone.tolist()):
            at = -(-at // wide) * wide if apart else at
            codes[k] = at
            at += step
        return cls(edges, codes, level)

    @property
    def sound(self) -> bool:
        """Whether the order of values is that of their coordinates, and edges have multiples of their own."""
        edges, codes, level = self.edges, self.codes, self.level
        if len(edges) < 2 or len(codes) != len(edges) or not 3 <= level <= _TOP:
            return False
        rising = (edges[1:] > edges[:-1]).all() and (codes[1:] > codes[:-1]).all()
        return bool(rising and edges[0] <= codes[0] and codes[-1] < edges[-1] and is_single(codes, level).all())

    @cached_property
    def _shifts(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """By how many bits the keys of each stretch shrink or grow, so that they fill its odd coordinates."""
        gaps = np.diff(self.edges, append=self.edges[-1]).view(np.uint64)
        excess = np.frexp(gaps.astype(np.float64))[1] - (self.level - 1)
        return np.maximum(0, excess).astype(np.uint64), np.maximum(0, -excess).astype(np.uint64)

    @cached_property
    def _search(self) -> tuple[int, Int, Int, int]:
        """Bits of a bucket, edges below each bucket, padded edges, and steps that find a key inside any bucket."""
        low, room = int(self.edges[0]), int(self.edges[-1]) - int(self.edges[0])
        bits = max(0, room.bit_length() - 16)
        starts = low + (np.arange((room >> bits) + 2, dtype=np.int64) << bits)
        below = np.searchsorted(self.edges, starts)
        steps = int(np.diff(below).max()).bit_length()
        return bits, below, np.append(self.edges, np.full(1 << steps, 2**63 - 1)), steps

    def coordinates(self, keys: Int) -> Int:
        """Order-preserving; an edge has a multiple of 2^level, the values between two edges share odd numbers."""
        bits, below, edges, steps = self._search
        inside = np.clip(keys, self.edges[0], self.edges[-1])
        # Unsigned: from −3 to 3 there are more than 2⁶³ doubles.
        offset = (inside - self.edges[0]).view(np.uint64) >> np.uint64(bits)
        place = below[offset.view(np.int64)]
        for step in range(steps - 1, -1, -1):
            place += (edges[place + ((1 << step) - 1)] <= inside).astype(np.int64) << step
        place -= 1
        past = (inside - self.edges[place]).view(np.uint64)
        shrink, grow = self._shifts
        steps_past = (((past - np.uint64(1)) >> shrink[place]) << grow[place]).view(np.int64)
        codes = self.codes[place] + np.where(past == 0, 0, 2 * steps_past + 1)
        return np.where(inside == keys, codes, keys)


def coordinates(x: Float, ruler: Ruler | None) -> Int:
    """Where each value stands on the axis."""
    keys = keys_of(x)
    return keys if ruler is None else ruler.coordinates(keys)


class CellAxis:
    """The cells of one axis that are in use, at most `most`, in the order in which they came."""

    def __init__(self, most: int, level: int = 0, cells: Int | None = None) -> None:
        self.most, self.level = most, level
        self._set(np.empty(0, dtype=np.int64) if cells is None else cells)

    def __len__(self) -> int:
        return len(self.cells)

    def _set(self, cells: Int) -> None:
        """The cells, and how to find one: by a table where they lie close together, else by search."""
        self.cells = cells
        self._lookup: NDArray[np.int32] | None = None
        self._order = self._sorted = cells[:0]
        if len(cells) == 0:
            return
        low, high = self._codes(np.array([cells.min(), cells.max()]))
        if (size := int(high) - int(low) + 1) <= min(_TABLE, max(_TABLE >> 4, 32 * self.most)):
            self._base = low
            self._lookup = np.full(size, -1, dtype=np.int32)
            self._lookup[self._codes(cells) - low] = np.arange(len(cells))
        else:
            self._order = np.argsort(cells)
            self._sorted = cells[self._order]

    def _append(self, new: Int) -> None:
        """More cells, none of them in use."""
        cells, lookup = np.concatenate([self.cells, new]), self._lookup
        if lookup is not None and len(new):
            place = self._codes(new) - self._base
            if (place.view(np.uint64) < len(lookup)).all():
                lookup[place] = np.arange(len(self.cells), len(cells))
                self.cells = cells
                return
        self._set(cells)

    def _codes(self, r: Int) -> Int:
        """Small neighbouring integers for neighbouring cells."""
        if self.level == 0:
            return r
        codes = r >> np.int64(self.level)
        codes <<= 1
        codes |= (r & np.int64((1 << self.level) - 1)) != 0
        return codes

    def find(self, r: Int) -> Int:
        """The place of each coordinate's cell; −1 where the cell is not in use."""
        if len(self.cells) == 0:
            return np.full(len(r), -1, dtype=np.int64)
        if self._lookup is not None:
            # Unsigned: what lies below the base is far above the end.
            offset = self._codes(r) - self._base
            inside = offset.view(np.uint64) < len(self._lookup)
            if inside.all():
                return self._lookup.take(offset).astype(np.int64)
            return np.where(inside, self._lookup.take(np.where(inside, offset, 0)), -1).astype(np.int64)
        cells = cell_of(r, self.level)
        place = np.minimum(np.searchsorted(self._sorted, cells), len(self.cells) - 1)
        return np.where(self._sorted[place] == cells, self._order[place], -1)

    def in_order(self) -> tuple[Int, NDArray[np.bool_]]:
        """The places in order of the values, and which of them hold a single value."""
        order = np.argsort(self.cells)
        return order, is_single(self.cells[order], self.level)

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        used = (self.cells, self._lookup, self._order, self._sorted)
        return sum(array.nbytes for array in used if array is not None)

    def place(self, r: Int) -> tuple[Int, Int | None]:
        """The place of each coordinate, and where the former places went if the cells had to become coarser."""
        places = self.find(r)
        if len(r) == 0 or int(places.min()) >= 0:
            return places, None
        moved = self.take_in(_distinct(np.sort(cell_of(r[places < 0], self.level))))
        return self.find(r), moved

    def take_in(self, new: Int, level: int = 0) -> Int | None:
        """Adds distinct cells of this level, no finer than the own; what `place` says of the former ones."""
        if (level := max(level, self.level)) == self.level:
            new = new[self.find(new) < 0]
            if len(self.cells) + len(new) <= self.most:
                self._append(new)
                return None
        # The cells of sorted cells are sorted, whatever the level: to count them needs no second sort.
        together = np.sort(np.concatenate([self.cells, new]))
        while len(coarse := _distinct(cell_of(together, level))) > self.most:
            level += 1
        former, self.level = self.cells, level
        self._set(coarse)
        return self.find(former)


class CellCounts:
    """Rows counted by the cells of two axes, which grow coarser as they must."""

    def __init__(self, first: CellAxis, second: CellAxis) -> None:
        self.axes = (first, second)
        self._counts = np.zeros((0, 0), dtype=np.int64)
        self._fit()

    def _fit(self) -> None:
        """Room for all cells, by doubling."""
        shape = [min(axis.most, 1 << max(1, len(axis) - 1).bit_length()) for axis in self.axes]
        old = self._counts
        if shape[0] > old.shape[0] or shape[1] > old.shape[1]:
            self._counts = np.zeros([max(pair) for pair in zip(shape, old.shape, strict=True)], dtype=np.int64)
            self._counts[: old.shape[0], : old.shape[1]] = old

    @property
    def counts(self) -> Int:
        """(cells of the first, cells of the second), a view."""
        return self._counts[: len(self.axes[0]), : len(self.axes[1])]

    @property
    def nbytes(self) -> int:
        """Memory in use, that of the axes included."""
        return self._counts.nbytes + sum(axis.nbytes for axis in self.axes)

    def add(self, first: Int, second: Int) -> None:
        """Counts rows by their coordinates."""
        places = []
        for side, (axis, r) in enumerate(zip(self.axes, (first, second), strict=True)):
            place, moved = axis.place(r)
            self._move(side, moved)
            places.append(place)
        self._fit()
        places[0] *= self._counts.shape[1]
        places[0] += places[1]
        np.add.at(self._counts.reshape(-1), places[0], 1)

    def _move(self, side: int, moved: Int | None) -> None:
        if moved is not None:
            old = self._counts[: len(moved)] if side == 0 else self._counts[:, : len(moved)].T
            new = _sum_rows(len(self.axes[side]), moved, old)
            self._counts = np.ascontiguousarray(new if side == 0 else new.T)

    def merge(self, other: CellCounts) -> None:
        """Adds other counts; their axes stay as they are."""
        rows = other.counts
        for side, (axis, theirs) in enumerate(zip(self.axes, other.axes, strict=True)):
            level = max(axis.level, theirs.level)
            self._move(side, axis.take_in(_distinct(np.sort(cell_of(theirs.cells, level))), level))
        self._fit()
        for axis, theirs in zip(self.axes, other.axes, strict=True):
            rows = _sum_rows(len(axis), axis.find(theirs.cells), rows).T
        self._counts[: rows.shape[0], : rows.shape[1]] += rows

    def in_order(self) -> tuple[Int, Int, Int]:
        """(cells of the first axis, of the second, counts), ascending: equal for equal data."""
        first, second = (axis.in_order()[0] for axis in self.axes)
        return self.axes[0].cells[first], self.axes[1].cells[second], self.counts[np.ix_(first, second)]

    def to_arrays(self) -> list[Int]:
        """Cells of both axes, which pairs of them have rows, and how many."""
        first, second, counts = self.in_order()
        filled = np.flatnonzero(counts)
        return [first, second, filled, counts.ravel()[filled]]

    def from_arrays(self, levels: Sequence[int], arrays: Sequence[Int], rows: int) -> CellCounts:
        """Counts with axes like these from `to_arrays`; ValueError where the arrays contradict themselves."""
        axes = []
        for axis, level, cells in zip(self.axes, levels, arrays, strict=False):
            if not axis.level <= level <= _TOP:
                raise ValueError("its levels do not exist")
            if len(cells) > axis.most or (cells[1:] <= cells[:-1]).any():
                raise ValueError("its cells are not in order")
            if not np.array_equal(cell_of(cells, level), cells):
                raise ValueError("its cells are not of its level")
            axes.append(CellAxis(axis.most, level, cells))
        made = CellCounts(*axes)
        counts = np.zeros(made.counts.size, dtype=np.int64)
        counts[arrays[2]] = arrays[3]
        if (counts < 0).any() or int(counts.sum()) != rows:
            raise ValueError("its counts do not add up")
        made.counts[...] = counts.reshape(made.counts.shape)
        return made


def _sum_rows(size: int, place: Int, rows: Int) -> Int:
    """(size, …): the rows that go to each place, summed."""
    out = np.zeros((size, rows.shape[1]), dtype=np.int64)
    if len(place):
        order = np.argsort(place, kind="stable")
        first = np.flatnonzero(np.diff(place[order], prepend=-1))
        out[place[order[first]]] = np.add.reduceat(rows[order], first, axis=0)
    return out
