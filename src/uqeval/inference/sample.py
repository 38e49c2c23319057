"""Clean rows that metrics are measured on, with what several metrics share computed once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.inference.tally import Held, Mass, Sizes
from uqeval.kernels import AucSums
from uqeval.metrics.areas import Ranked
from uqeval.metrics.calibration import Bins, bin_rows


def mass(weights: Float) -> Mass:
    """Rows, weight and squared weight; does not depend on the order of rows."""
    return Mass(len(weights), kernels.order_free_sum(weights), kernels.order_free_sum(weights * weights))


def kish(weights: Float) -> float:
    """Effective number of rows of unequal weight, (Σw)²/Σw²; 0 for none."""
    return mass(weights).size


@dataclass(frozen=True)
class Rows:
    """So many rows, with weights and clusters (codes 0..G-1); all clean."""

    n: int
    weights: Float | None = None
    clusters: Int | None = None

    @cached_property
    def w(self) -> Float:
        return np.ones(self.n) if self.weights is None else self.weights

    @cached_property
    def total_weight(self) -> float:
        return float(self.n) if self.weights is None else kernels.order_free_sum(self.weights)

    @cached_property
    def plain(self) -> bool:
        """Independent rows of equal weight."""
        return self.weights is None and self.clusters is None

    def sizes(self, target: NDArray[Any] | None = None) -> Sizes:
        """Whom the sums are of: right and wrong rows by the target, all right without one."""
        wrong = np.zeros(self.n, dtype=np.bool_) if target is None else target > 0
        bad = int(np.count_nonzero(wrong))
        binary = target is not None and target.dtype == np.uint8
        clusters, largest = None, 1.0 if self.weights is None else float(self.weights.max())
        if self.clusters is not None:
            held = np.bincount(self.clusters, weights=self.weights)
            sides = (np.bincount(self.clusters[side], minlength=1) for side in (~wrong, wrong))
            clusters = Held(len(held), *(int(np.count_nonzero(side)) for side in sides))
            largest = float(held.max())
        if self.weights is None:
            right, of_wrong = (Mass(rows, float(rows), float(rows)) for rows in (self.n - bad, bad))
        else:
            right, of_wrong = (mass(self.weights[side]) for side in (~wrong, wrong))
        loss = of_wrong if target is None or binary else mass(self.w * target)
        return Sizes(right, of_wrong, loss, clusters, largest, self.weights is not None, binary)


@dataclass(frozen=True)
class Sample:
    """A score against a target (0/1 errors as uint8, or a loss)."""

    score: Float
    target: NDArray[Any]
    rows: Rows
    counts: tuple[Int, Int] | None = field(default=None, repr=False)  # credit2, comparable, where known already

    @classmethod
    def of(
        cls, score: Float, target: NDArray[Any], weights: Float | None = None, clusters: Int | None = None
    ) -> Sample:
        return cls(score, target, Rows(len(target), weights, clusters))

    @cached_property
    def n(self) -> int:
        return self.rows.n

    @cached_property
    def binary(self) -> bool:
        return self.target.dtype == np.uint8

    @cached_property
    def sizes(self) -> Sizes:
        return self.rows.sizes(self.target)

    @cached_property
    def constant_score(self) -> bool:
        return bool((self.score == self.score[0]).all())

    @cached_property
    def loss(self) -> Float:
        return self.target.astype(np.float64)

    @cached_property
    def as_loss(self) -> Sample:
        """The same with 0/1 errors as a loss like any other."""
        return replace(self, target=self.loss) if self.binary else self

    @cached_property
    def ranked(self) -> Ranked:
        return Ranked(self.score, self.target, self.rows.weights)

    @cached_property
    def auc(self) -> tuple[Int, AucSums]:
        """Per-row counts of a 0/1 target, rows of equal weight."""
        return kernels.auc_counts(self.score, self.target)

    @cached_property
    def pairs(self) -> tuple[Float, Float]:
        """Credit and weight of the comparable rows, of each row (weights included, not doubled)."""
        if self.rows.weights is not None:
            if self.binary:
                return kernels.weighted_auc_counts(self.score, self.target, self.rows.weights)
            return kernels.weighted_pair_counts(self.score, self.loss, self.rows.weights)
        if self.binary:
            credit2, sums = self.auc
            wrong = self.target.astype(bool)
            comparable = np.where(wrong, self.n - sums.wrong, sums.wrong)
        else:
            credit2, comparable = self.pair_counts
        return credit2 / 2.0, comparable.astype(np.float64)

    @cached_property
    def pair_counts(self) -> tuple[Int, Int]:
        """Integer counts of a loss, rows of equal weight."""
        if self.counts is not None:
            return self.counts
        credit2, comparable = kernels.pair_counts(self.score[None], self.loss)
        return credit2[0], comparable

    def within(self) -> tuple[Float, Float]:
        """`pairs` over the rows of the row's own cluster."""
        assert self.rows.clusters is not None
        credit, comparable = kernels.within_counts(self.score, self.loss, self.rows.clusters, self.rows.weights)
        if self.rows.weights is None:
            credit = credit / 2.0
        return credit.astype(np.float64), comparable.astype(np.float64)


@dataclass(frozen=True)
class Confidences:
    """The confidence of each prediction, and whether it is right."""

    confidence: Float
    correct: Float
    rows: Rows

    @cached_property
    def bins(self) -> Bins:
        """15 of equal width."""
        return bin_rows(self.confidence, self.correct, self.rows.weights)

    @cached_property
    def tested(self) -> dict[float, bool]:
        """Whether perfect calibration was rejected, by level: drawn once for plug-in and debiased ECE."""
        return {}
