"""Many small groups of plain rows at once: their tallies and estimates in arrays, a lane for each group.

A group on its own costs two milliseconds of Python, whatever its size. Here whole numbers are 64 bits wide, so that a
group may have no more than `MOST` rows; larger ones are counted one by one (`count`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Bit, Float, Int, check_seed
from uqeval.inference.calibrated import miscalibrated_parts
from uqeval.inference.count import count_sample
from uqeval.inference.intervals import estimate_ranking, estimate_tally, in_units
from uqeval.inference.means import estimate_ece, estimate_mean
from uqeval.inference.result import Estimates
from uqeval.inference.sample import Rows, Sample
from uqeval.inference.sizes import Sizes
from uqeval.inference.tally import EceTally, MeanTally
from uqeval.metrics.areas import Ranking
from uqeval.metrics.calibration import Bins, bin_edges, l1
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import SweptParts

MOST = 2048  # rows of a group: n⁵ stays below 2⁶³


def can_stack(metric: Metric, target: NDArray[Any] | None) -> bool:
    """Whether a metric has lanes: those of 0/1 errors, pairs of any loss, and the model's own."""
    if metric.uses_score:
        return target is not None and metric.tally in (("auc", "area") if target.dtype == np.uint8 else ("pairs",))
    return metric.tally in ("mean", "ece")


@dataclass(frozen=True)
class Parts:
    """Rows that come group by group: group k those from start[k] to start[k + 1]."""

    start: Int

    @cached_property
    def n(self) -> Int:
        """Rows of each group."""
        return np.diff(self.start)

    @cached_property
    def code(self) -> Int:
        """The group of each row."""
        return np.repeat(np.arange(len(self.n)), self.n)

    def sums(self, x: Float) -> Float:
        """Of each group, in any order."""
        return kernels.cell_sums(x, self.code, len(self.n))

    def by_row(self, x: NDArray[Any]) -> NDArray[Any]:
        """A number of each group, for its rows."""
        return np.repeat(x, self.n)

    def sizes(self, target: Bit | None = None) -> Sizes:
        """Whom the sums are of; all right without a target."""
        wrong = np.zeros_like(self.n) if target is None else np.add.reduceat(target, self.start[:-1], dtype=np.int64)
        return Sizes.of_rows(self.n - wrong, wrong, binary=target is not None)


class PartRanking(Ranking):
    """The rows of each group in order of a number."""

    def __init__(self, values: Float, order: kernels.Order, parts: Parts) -> None:
        super().__init__(values, order)
        self._parts = parts

    @cached_property
    def constant(self) -> NDArray[np.bool_]:  # type: ignore[override]
        """Whether all rows of a group have the same number."""
        return np.add.reduceat(self.order.new, self._parts.start[:-1], dtype=np.int64) <= 1


@dataclass(frozen=True)
class PartRows(Rows):
    """The rows of each group: plain ones."""

    n: Any
    parts: Parts = field(kw_only=True)

    @classmethod
    def of(cls, parts: Parts) -> PartRows:
        return cls(parts.n, parts=parts)

    @cached_property
    def total_weight(self) -> Float:  # type: ignore[override]
        return self.n.astype(np.float64)

    def sizes(self, target: NDArray[Any] | None = None) -> Sizes:
        return self.parts.sizes(target)


@dataclass(frozen=True)
class PartSample(Sample):
    """A score against a target, group by group."""

    rows: PartRows

    @cached_property
    def ranked(self) -> SweptParts:
        return SweptParts(self.ranking, self.target, self.rows.parts.start)

    @cached_property
    def auc(self) -> kernels.AucSums:
        return self.ranked.sums.auc

    @cached_property
    def concordance(self) -> kernels.ConcordanceSums:
        return kernels.concordance_parts(self.ranking.order, self.truth.order, self.rows.parts.start)


def estimate_sample(metric: Metric, sample: PartSample, level: float) -> Estimates:
    """A metric that ranks rows; AURC and AUARC, AUGRC and G-AUC differ in the last step only."""
    with np.errstate(all="ignore"):  # a lane may divide by zero where another branch decides it
        tally = count_sample(metric, sample)
        if metric.interval != "gamma":
            return estimate_ranking(metric, tally, level)
        key = ("estimates", metric.formula, level)
        if key not in sample.tallies:
            sample.tallies[key] = estimate_tally(metric, tally, level)
        return in_units(metric, tally, sample.tallies[key])


def estimate_means(metric: Metric, values: Float, parts: Parts, level: float) -> Estimates:
    """A mean of numbers of the rows."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(values)
        infinite = parts.n - np.rint(parts.sums(finite.astype(np.float64))).astype(np.int64)
        clean = np.where(finite, values, 0.0)
        mean = parts.sums(clean) / parts.n
        part = np.square((clean - parts.by_row(mean)) / parts.by_row(parts.n))
        value = np.where(infinite > 0, np.inf, mean)
        return estimate_mean(metric, MeanTally(parts.sizes(), value, parts.sums(part), infinite=infinite), level)


@dataclass(frozen=True)
class PartConfidences:
    """The confidence of each prediction, and whether it is right, group by group."""

    confidence: Float
    correct: Float
    parts: Parts

    @cached_property
    def tally(self) -> EceTally:
        """Bins of equal width, empty ones too."""
        parts, edges = self.parts, bin_edges()
        shape = len(parts.n), len(edges) + 1
        row_bin = np.searchsorted(edges, self.confidence, side="left")
        cell = parts.code * shape[1] + row_bin

        def by_bin(x: Float) -> Float:
            return kernels.cell_sums(x, cell, shape[0] * shape[1]).reshape(shape)

        diff = self.correct - self.confidence
        rows = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
        with np.errstate(all="ignore"):
            gap = np.where(rows > 0, by_bin(diff) / rows, 0.0)
            spread = by_bin(np.square(diff - gap.reshape(-1)[cell])) / rows**2
            bins = Bins(row_bin, rows / parts.n[:, None], gap, np.where(rows > 1, spread * rows / (rows - 1), 0.0))
        influence = np.sign(gap).reshape(-1)[cell] * diff - parts.by_row(l1(bins))
        return EceTally(parts.sizes(), bins, parts.sums(np.square(influence / parts.by_row(parts.n))))

    @cached_property
    def _by_bin(self) -> tuple[Float, Int]:
        """Confidences and their bins, group by group, bin by bin."""
        order = np.lexsort((self.confidence, self.tally.bins.row_bin, self.parts.code))
        return self.confidence[order], self.tally.bins.row_bin[order]

    @cached_property
    def _tested(self) -> dict[tuple[float, int], NDArray[np.bool_]]:
        return {}

    def estimate(self, metric: Metric, level: float, seed: int) -> Estimates:
        """ECE, plug-in or debiased, which share the test of perfect calibration."""

        def rejected(asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
            if (level, seed) not in self._tested:
                given = (self.tally.bins, *self._by_bin, self.parts.start, np.flatnonzero(asked))
                self._tested[level, seed] = miscalibrated_parts(*given, 1 - level, check_seed(seed))
            return self._tested[level, seed] & asked

        with np.errstate(all="ignore"):
            return estimate_ece(metric, self.tally, level, rejected)
