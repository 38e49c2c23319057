"""The areas of 0/1 errors, rows of equal weight: all from the sums of one sweep and a few counts.

`SweptSums` is the arithmetic, whoever swept; `Swept` are rows in memory, `SweptParts` many parts of them at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Bit, Float, Int
from uqeval._lanes import Number, choose, larger, smaller
from uqeval.metrics.areas import Accepted, Ranked, Ranking


class SweptSums(ABC):
    """Rows of equal weight with 0/1 errors in order of a score: all areas from one sweep (`kernels.Sweep`)."""

    @property
    @abstractmethod
    def sums(self) -> kernels.Sweep:
        """Of the sweep."""

    @abstractmethod
    def wrong_before(self, place: Number) -> Number:
        """Wrong rows among the first."""

    @abstractmethod
    def block_at(self, place: Number) -> tuple[Number, Number]:
        """Start and end of the block of tied rows around a place."""

    @property
    def right(self) -> Number:
        return self.sums.rows - self.sums.wrong

    @property
    def rate(self) -> Number:
        return self.sums.rate

    @property
    def aurc(self) -> Number:
        return self.sums.aurc

    @cached_property
    def excess(self) -> Number:
        """Exactly 0 for a perfect ranking."""
        perfect = self.sums.credit2 == 2 * self.sums.wrong * self.right
        return choose(perfect, lambda: 0.0, lambda: larger(0.0, self.sums.aurc - self.sums.best))

    @cached_property
    def span(self) -> Number:
        both = (self.sums.wrong > 0) & (self.right > 0)
        return choose(both, lambda: self.sums.rate - self.sums.best, lambda: 0.0)

    @cached_property
    def accepted2(self) -> Number:
        """2n²·AUGRC."""
        return 2 * self.right * self.sums.wrong - self.sums.credit2 + self.sums.wrong**2

    @cached_property
    def augrc(self) -> Number:
        return self.accepted2 / (2 * self.sums.rows**2)

    @cached_property
    def h_auc(self) -> Number:
        return self.sums.credit2 / (2 * self.sums.rows**2)

    def wrong_until(self, place: Number) -> Number:
        """Wrong rows among the first, a fraction of a row included; of tied rows the expectation over their order."""
        start, end = self.block_at(place)
        before = self.wrong_before(start)
        return before + (self.wrong_before(end) - before) * (place - start) / (end - start)

    @cached_property
    def _accepted(self) -> dict[float, tuple[Number, Number]]:
        return {}

    def accepted(self, coverage: float) -> tuple[Number, Number]:
        """Risk of the surest share, and risk of the rows next to the cut."""
        if coverage not in self._accepted:
            self._accepted[coverage] = self._accept(coverage)
        return self._accepted[coverage]

    def _accept(self, coverage: float) -> tuple[Number, Number]:
        n = self.sums.rows
        cut = coverage * n
        low, high = Accepted(coverage).next_to(n, n)
        before, until, after = (self.wrong_until(place) for place in (low, cut, high))  # in order: rows count once
        return smaller(1.0, until / cut), (after - before) / (high - low)


@dataclass(frozen=True)
class Swept(SweptSums):
    """Rows in memory."""

    ranking: Ranking
    error: Bit

    @cached_property
    def marks(self) -> Bit:
        return self.ranking.marks(self.error)

    @cached_property
    def sums(self) -> kernels.Sweep:
        return kernels.sweep(self.marks)

    @cached_property
    def row_marks(self) -> Bit:
        """Marks of the very rows of the order: `marks` may have put wrong rows first among tied ones."""
        order = self.ranking.order
        return kernels.mark_ordered(order, self.error) if order.ties else self.marks

    @cached_property
    def by_place(self) -> tuple[Float, NDArray[np.uint32]]:
        """e and credit2 of the rows of the order."""
        return kernels.sweep_rows(self.row_marks)

    @cached_property
    def _counted(self) -> dict[int, int]:
        """Wrong rows before some places."""
        return {0: 0}

    def wrong_before(self, place: Number) -> Number:
        """Wrong rows among the first."""
        if place not in self._counted:
            near = max(known for known in self._counted if known < place)
            self._counted[place] = self._counted[near] + kernels.count_wrong(self.marks[near:place])
        return self._counted[place]

    def block_at(self, place: Number) -> tuple[Number, Number]:
        """Start and end of the block of tied rows around a place."""
        marks, n = self.marks, len(self.marks)
        start = end = min(int(place), n - 1)
        if marks[start] & 2 and (end + 1 == n or marks[end + 1] & 2):
            return start, end + 1
        while not marks[start] & 2:
            step = np.flatnonzero(marks[max(0, start - 4096) : start + 1] & 2)
            start = max(0, start - 4096) + int(step[-1]) if len(step) else start - 4096
        while True:
            step = np.flatnonzero(marks[end + 1 : end + 4097] & 2)
            if len(step) or end + 4097 >= n:
                return start, end + 1 + int(step[0]) if len(step) else n
            end += 4096


@dataclass(frozen=True)
class SweptParts(Swept):
    """The same of many parts of the rows, in arrays: part k takes the places from start[k] to start[k + 1]."""

    start: Int

    @cached_property
    def sums(self) -> kernels.Sweep:
        return kernels.sweep_parts(self.marks, self.start)

    @cached_property
    def _wrong(self) -> Int:
        """Wrong rows before each place, of all parts."""
        return np.concatenate([[0], np.cumsum(self.marks & 1, dtype=np.int64)])

    @cached_property
    def _blocks(self) -> tuple[Int, Int]:
        """The block of each place, and where blocks start."""
        new = self.ranking.order.new
        return np.cumsum(new) - 1, np.append(np.flatnonzero(new), len(new))

    def wrong_before(self, place: Int) -> Int:
        first = self.start[:-1]
        return self._wrong[first + place] - self._wrong[first]

    def block_at(self, place: Float) -> tuple[Int, Int]:
        first, (of_place, bounds) = self.start[:-1], self._blocks
        block = of_place[first + np.minimum(place.astype(np.int64), self.sums.rows - 1)]
        return bounds[block] - first, bounds[block + 1] - first


def ranked_by(ranking: Ranking, loss: NDArray[Any], weights: Float | None, losses: Ranking | None = None) -> Any:
    """The areas of rows in order of a score: `Swept` where one sweep gives them, else `Ranked`."""
    if weights is None and loss.dtype == np.uint8:
        return Swept(ranking, loss)
    return Ranked(ranking, loss, weights, losses)
