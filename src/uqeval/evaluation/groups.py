"""Rows by group: columns are gathered once for all groups, and the order of a group is cut out of that of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Int, recode
from uqeval.evaluation.row_data import Column, RowData
from uqeval.inference.parts import (
    MOST,
    PartConfidences,
    PartRanking,
    PartRows,
    Parts,
    PartSample,
    can_stack,
    estimate_means,
    estimate_sample,
)
from uqeval.inference.result import Estimates
from uqeval.metrics.areas import Ranking
from uqeval.metrics.registry import Metric


class Groups:
    """The rows of each group (0, 1, …) of `whole`, with what is computed already.

    Small groups of plain rows come first and are counted all at once: they have a lane each.
    """

    def __init__(self, whole: RowData, codes: Int, groups: int) -> None:
        self.whole, size = whole, np.bincount(codes, minlength=groups)
        small = (size >= 2) & (size <= MOST) & whole.rows.plain
        self.order: Int = np.argsort(~small, kind="stable")  # groups, those with a lane first
        self.lanes = int(small.sum())
        place = np.empty(groups, dtype=np.int64)
        place[self.order] = np.arange(groups)
        self._code = place[codes].astype(np.uint32)
        self._start = np.concatenate([[0], np.cumsum(size[self.order])])
        self._columns: dict[str, Column] = {}
        self._orders: dict[str, kernels.Order] = {}
        self._samples: dict[tuple[str, str], PartSample] = {}
        self._confidences: PartConfidences | None = None

    def __iter__(self) -> Iterator[RowData]:
        """Group after group."""
        place = np.argsort(self.order)
        return (self.part(k) for k in place.tolist())

    def part(self, k: int) -> RowData:
        """The rows of group order[k]."""
        members = self._row[self._start[k] : self._start[k + 1]]
        rows, weights = self.whole.rows, self.whole.given_weights
        clusters = None if rows.clusters is None else recode(rows.clusters[members])
        weights = None if weights is None else weights[members]
        find, ranked = partial(self._of_part, k), partial(self._ranking, k)
        part = RowData(len(members), find, weights, clusters, None, ranked, rows.largest)
        part.copies = self.whole.copies  # what is one ranking of all rows is one of these
        part.risk = self.whole.risk
        return part

    @cached_property
    def _row(self) -> NDArray[np.uint32]:
        """Rows group by group …"""
        return kernels.group(self._code).row

    @cached_property
    def _place(self) -> NDArray[np.uint32]:
        """… and the place of each row among them."""
        place = np.empty(len(self._row), dtype=np.uint32)
        place[self._row] = np.arange(len(self._row), dtype=np.uint32)
        return place

    def _column(self, what: str) -> Column:
        """Group by group."""
        if what not in self._columns:
            column = self.whole[what]
            self._columns[what] = None if column is None else column[self._row]
        return self._columns[what]

    def _cut(self, what: str) -> kernels.Order:
        """Group after group, each in its own order; rows are numbered by their place."""
        if what not in self._orders:
            cut = kernels.cut_order(self.whole.ranking(what).order, self._code, self._start[:-1])
            self._orders[what] = kernels.Order(self._place[cut.row], cut.new)
        return self._orders[what]

    # ---- one by one ----

    def _of_part(self, k: int, what: str) -> Column:
        column = self._column(what)
        return None if column is None else column[self._start[k] : self._start[k + 1]]

    def _ranking(self, k: int, what: str) -> Ranking:
        order, start, end = self._cut(what), self._start[k], self._start[k + 1]
        values = self._of_part(k, what)
        assert values is not None
        local = order.row[start:end] - np.uint32(start)
        return Ranking(values.astype(np.float64, copy=False), kernels.Order(local, order.new[start:end]))

    # ---- all at once ----

    def has_lanes(self, metric: Metric) -> bool:
        """Whether the metric of all small groups is estimated at once."""
        return self.lanes > 0 and can_stack(metric, self.whole[metric.target] if metric.uses_score else None)

    def prepare(self, targets: set[str]) -> None:
        """What all scores share, before they share the cores."""
        for what in {self.whole.same_target(target) for target in targets}:
            if self._head(what).dtype != np.uint8:
                self._cut(what)
        self._place  # noqa: B018

    def estimated(self, metric: Metric, score: str | None, level: float, seed: int) -> Estimates:
        """A metric of all groups with a lane."""
        if metric.uses_score:
            return estimate_sample(metric, self._sample(str(score), metric.target), level)
        if metric.tally != "ece":
            return estimate_means(metric, self._head(metric.name), self._parts, level)
        if self._confidences is None:
            self._confidences = PartConfidences(self._head("confidence"), self._head("accuracy"), self._parts)
        return self._confidences.estimate(metric, level, seed)

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self._start[: self.lanes + 1])

    def _head(self, what: str) -> NDArray[Any]:
        """A column of the groups with a lane."""
        column = self._column(what)
        assert column is not None
        return column[: self._start[self.lanes]]

    def _ranked(self, what: str) -> PartRanking:
        order, end = self._cut(what), int(self._start[self.lanes])
        return PartRanking(self._head(what), kernels.Order(order.row[:end], order.new[:end]), self._parts)

    def _sample(self, name: str, what: str) -> PartSample:
        what = self.whole.same_target(what)
        if (name, what) not in self._samples:
            target = self._head(what)
            losses = None if target.dtype == np.uint8 else self._ranked(what)
            ranking = self._ranked(f"score {name}")
            self._samples[name, what] = PartSample(ranking, target, PartRows.of(self._parts), losses)
        return self._samples[name, what]
