"""Clean rows that metrics are measured on, with what several metrics share computed once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int, check_largest
from uqeval.inference.sizes import Held, Loads, Mass, Powers, Sizes
from uqeval.kernels import AucSums, ConcordanceSums
from uqeval.metrics.areas import Formula, Ranked, Ranking
from uqeval.metrics.calibration import Bins, bin_rows
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import Swept, ranked_by


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
    largest: int | None = None  # the most rows that any cluster can have, where a user said

    @classmethod
    def checked(cls, n: int, weights: Float | None, clusters: Int | None, largest_cluster: Any = None) -> Rows:
        """With the largest cluster that a user declares, checked."""
        seen = None if clusters is None or largest_cluster is None else int(np.bincount(clusters).max())
        return cls(n, weights, clusters, check_largest(largest_cluster, seen))

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

    @cached_property
    def by_cluster(self) -> kernels.Order:
        """The rows, cluster by cluster."""
        assert self.clusters is not None
        return kernels.group(self.clusters)

    @cached_property
    def held(self) -> Float:
        """Weight of each cluster."""
        assert self.clusters is not None
        return np.bincount(self.clusters, weights=self.weights).astype(np.float64)

    @cached_property
    def _by_target(self) -> dict[int, tuple[NDArray[Any], Sizes]]:
        return {}

    @cached_property
    def _all_right(self) -> Sizes:
        return self._sizes(None)

    def sizes(self, target: NDArray[Any] | None = None) -> Sizes:
        """Whom the sums are of: right and wrong rows by the target, all right without one."""
        if target is None:
            return self._all_right
        if id(target) not in self._by_target:  # the scores of a test set share it
            self._by_target[id(target)] = target, self._sizes(target)
        return self._by_target[id(target)][1]

    def _sizes(self, target: NDArray[Any] | None) -> Sizes:
        binary = target is not None and target.dtype == np.uint8
        bad = 0 if target is None else int(np.count_nonzero(target))
        wrong = np.zeros(self.n, dtype=np.bool_) if target is None else target > 0 if not self.plain else None
        clusters, largest = None, 1.0 if self.weights is None else float(self.weights.max())
        if self.clusters is not None and wrong is not None:
            errors = np.bincount(self.clusters[wrong], minlength=len(self.held))
            rows = np.bincount(self.clusters) if self.weights is not None else self.held
            clusters = Held(len(rows), int(np.count_nonzero(rows > errors)), int(np.count_nonzero(errors)))
            largest = float(self.held.max())
        if self.weights is None or wrong is None:
            right, of_wrong = (Mass(rows, float(rows), float(rows)) for rows in (self.n - bad, bad))
        else:
            right, of_wrong = (mass(self.weights[side]) for side in (~wrong, wrong))
        loss = of_wrong if target is None or binary else mass(self.w * target)
        loads = None
        if not self.plain and wrong is not None:
            loads = self._all_loads if target is None else self.loads(wrong, target)
        possible = 0.0 if self.largest is None else self.largest * self.total_weight / self.n
        largest = max(largest, possible)
        return Sizes(right, of_wrong, loss, clusters, largest, self.weights is not None, binary, loads, possible)

    @property
    def _all_loads(self) -> Loads:
        """Where no row is wrong."""
        units = self.w if self.clusters is None else self.held if self.weights is None else self._in_units(self.w)
        of_units = Powers.of(units)
        of_rows = Powers(*(3 * (float(self.n),))) if self.weights is None else Powers.of(self.weights)
        return Loads(of_rows, of_units, of_units, Powers(0.0, 0.0, 0.0))

    def loads(self, wrong: NDArray[np.bool_], loss: NDArray[Any]) -> Loads | None:
        """How unevenly weight lies on rows and units; None for plain rows."""
        if self.plain:
            return None
        if self.clusters is None:
            of_rows = Powers.of(self.w)
            return Loads(of_rows, of_rows, Powers.of(self.w[~wrong]), Powers.of(self.w * loss))
        if self.weights is None:
            of_rows, errors = (
                Powers(*(3 * (float(self.n),))),
                np.bincount(self.clusters[wrong], minlength=len(self.held)),
            )
            bad = errors.astype(np.float64) if loss.dtype == np.uint8 else self._in_units(loss)
            return Loads(of_rows, Powers.of(self.held), Powers.of(self.held - errors), Powers.of(bad))
        units = (self._in_units(x) for x in (self.weights, self.weights * ~wrong, self.weights * loss))
        return Loads(Powers.of(self.weights), *(Powers.of(x) for x in units))

    def _in_units(self, x: Float) -> Float:
        """Sums over the rows of each cluster, whose last bit does not depend on the order of rows."""
        assert self.clusters is not None
        return kernels.cell_sums(x, self.clusters, len(self.held))

    def by_unit(self, x: NDArray[Any]) -> Float:
        """Sums over the rows of each cluster."""
        assert self.clusters is not None
        return np.bincount(self.clusters, weights=x, minlength=len(self.held)).astype(np.float64)


@dataclass(frozen=True)
class Sample:
    """A score against a target (0/1 errors as uint8, or a loss). What is counted once is kept."""

    ranking: Ranking
    target: NDArray[Any]
    rows: Rows
    losses: Ranking | None = field(default=None, repr=False)  # the target as a ranking, where several samples share it
    tallies: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, score: Float, target: NDArray[Any], weights: Float | None = None, clusters: Int | None = None
    ) -> Sample:
        return cls(Ranking(score), target, Rows(len(target), weights, clusters))

    @property
    def score(self) -> Float:
        return self.ranking.values

    @property
    def n(self) -> int:
        return self.rows.n

    @cached_property
    def binary(self) -> bool:
        return self.target.dtype == np.uint8

    @cached_property
    def sizes(self) -> Sizes:
        return self.rows.sizes(self.target)

    @cached_property
    def loss(self) -> Float:
        return self.target.astype(np.float64, copy=False)

    @cached_property
    def truth(self) -> Ranking:
        """The target as a ranking."""
        return Ranking(self.loss) if self.losses is None else self.losses

    @cached_property
    def as_loss(self) -> Sample:
        """The same with 0/1 errors as a loss like any other."""
        return replace(self, target=self.loss, losses=self.truth, tallies={}) if self.binary else self

    @cached_property
    def ranked(self) -> Swept | Ranked:
        if self.rows.clusters is not None:
            self.ranking.order  # noqa: B018  the rows are needed too: their order, and not marks alone
        return ranked_by(self.ranking, self.target, self.rows.weights, self.losses)

    @cached_property
    def _late(self) -> dict[float, Ranked]:
        return {}

    def areas(self, metric: Metric) -> Swept | Ranked:
        """The rows in order of the score, as the formula of the metric takes them."""
        if metric.tally != "late area":
            return self.ranked
        assert isinstance(metric.formula, Formula)
        share = metric.formula.rejected
        if share not in self._late:
            self._late[share] = Ranked(self.ranking, self.target, self.rows.weights, self.losses, share)
        return self._late[share]

    @cached_property
    def auc(self) -> AucSums:
        """Sums of a 0/1 target, rows of equal weight: from the sweep where it was made, or is cheap."""
        if "ranked" in self.__dict__ or self.ranking.ordered:
            assert isinstance(self.ranked, Swept)
            return self.ranked.sums.auc
        return kernels.auc_sums(self.score, self.target)

    @cached_property
    def concordance(self) -> ConcordanceSums:
        """Sums of a loss, rows of equal weight; with orders that are there already nothing is sorted."""
        if self.ranking.ordered or self.truth.ordered:
            return kernels.ordered_concordance(self.ranking.order, self.truth.order)
        return kernels.concordance(self.score, self.loss)

    @cached_property
    def counts(self) -> tuple[Int, Int]:
        """credit2 and comparable of every row, rows of equal weight."""
        if not self.binary:
            return kernels.ordered_counts(self.ranking.order, self.truth.order), self.truth.others
        wrong = self.target.view(np.bool_)
        bad = int(np.count_nonzero(wrong))
        return self.credit2_of_rows().astype(np.int64), np.where(wrong, self.n - bad, bad)

    def credit2_of_rows(self) -> NDArray[np.uint32]:
        """credit2 of every row against 0/1 errors, rows of equal weight; not kept."""
        order = self.ranking.order  # sorted before it is swept
        assert isinstance(self.ranked, Swept)
        credit2 = np.empty(self.n, dtype=np.uint32)
        credit2[order.row] = kernels.credits(self.ranked.row_marks)
        return credit2

    @cached_property
    def pairs(self) -> tuple[Float, Float]:
        """Credit and weight of the comparable rows, of each row (weights included, not doubled)."""
        if self.rows.weights is None:
            credit2, comparable = self.counts
            return credit2 / 2.0, comparable.astype(np.float64)
        if self.binary:
            return kernels.weighted_auc_counts(self.ranking.order, self.target, self.rows.weights)
        return kernels.weighted_pair_counts(self.ranking.order, self.truth.order, self.rows.weights)

    @cached_property
    def swept_units(self) -> tuple[Float, Float, Float, Float]:
        """Of each cluster, 0/1 errors: Σ e, Σ credit2, right rows, wrong rows (`kernels.Sweep`)."""
        assert isinstance(self.ranked, Swept)
        assert self.rows.clusters is not None
        marks = self.ranked.row_marks
        by_place = kernels.sweep_rows(marks)  # not kept: 12 bytes a row
        given = self.ranking.order.row, marks, *by_place, self.rows.clusters
        e, credit2, wrong = kernels.unit_sums(*given, len(self.rows.held))
        return e, credit2.astype(np.float64), self.rows.held - wrong, wrong.astype(np.float64)

    @cached_property
    def within(self) -> tuple[Float, Float]:
        """Credit and comparable rows (weighted) over pairs inside each cluster, each pair twice."""
        rows, by = self.rows, self.rows.by_cluster
        if rows.weights is not None:
            pairs = kernels.weighted_pair_counts(self.ranking.order, self.truth.order, rows.weights, by)
            return self._by_unit(pairs)
        credit2, comparable = kernels.within_sums(self.score, self.loss, by)
        return credit2 / 2.0, comparable.astype(np.float64)

    @cached_property
    def pairs_of_units(self) -> tuple[Float, Float]:
        """Credit and comparable rows (weighted) of the rows of each cluster, over all pairs."""
        if self.rows.weights is not None:
            return self._by_unit(self.pairs)
        if not self.binary:
            counts = kernels.ordered_counts(self.ranking.order, self.truth.order)  # not kept
            return self.rows.by_unit(counts) / 2, self._others_of_units
        _, credit2, right, wrong = self.swept_units
        bad = self.sizes.wrong.rows
        return credit2 / 2, wrong * (self.n - bad) + right * bad

    @property
    def _others_of_units(self) -> Float:
        """Rows of another loss, summed over the rows of each cluster."""
        if not self.truth.order.ties:
            return self.rows.held * (self.n - 1.0)
        return self.rows.by_unit(self.truth.others)

    def _by_unit(self, pairs: tuple[Float, Float]) -> tuple[Float, Float]:
        weights = self.rows.weights
        first, second = (self.rows.by_unit(x if weights is None else x * weights) for x in pairs)
        return first, second


@dataclass(frozen=True)
class Confidences:
    """The confidence of each prediction, and whether it is right."""

    confidence: Float
    correct: Float
    rows: Rows
    tallies: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def bins(self) -> Bins:
        """15 of equal width."""
        return bin_rows(self.confidence, self.correct, self.rows.weights)

    @cached_property
    def tested(self) -> dict[float, bool]:
        """Whether perfect calibration was rejected, by level: drawn once for plug-in and debiased ECE."""
        return {}
