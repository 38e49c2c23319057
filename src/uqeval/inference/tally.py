"""The seam: sums of counts, from which every value, standard error, interval and test is made.

Rows in memory (`count`), rows on an engine (`distributed.plan`), rows that stream by and rows on a GPU differ only in
how they are counted. What they hand over is one of these records; `intervals` and `paired` do the rest. Clusters and
weights are part of a record. Parts that were counted against one and the same ranking merge into the whole. Numbers of
many groups of plain rows may stand side by side in one record, as arrays with a lane for each (`_lanes`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval._lanes import Number, choose
from uqeval.inference.sizes import Sizes
from uqeval.metrics.calibration import Bins
from uqeval.metrics.correlation import tau_b

NAN = float("nan")
_TINY = 1e-9  # of the variances: below that the covariance route has lost its digits


# ---- moments ----------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """Numbers: how many, their mean, and Σ (x − mean)²."""

    units: Number
    mean: Number
    squares: Number

    @classmethod
    def of(cls, x: Float) -> Spread:
        """Does not depend on the order of x."""
        if len(x) == 0:
            return cls(0, 0.0, 0.0)
        mean = kernels.order_free_sum(x) / len(x)
        gap = x - mean
        return cls(len(x), mean, kernels.order_free_sum(gap * gap))

    def about(self, centre: float) -> float:
        """Σ (x − centre)²."""
        return self.squares + self.units * (self.mean - centre) ** 2

    def merge(self, other: Spread) -> Spread:
        """Chan's update: no digits are lost where means are far from 0."""
        count = self.units + other.units
        if not count:
            return self
        gap, share = other.mean - self.mean, other.units / count
        return Spread(count, self.mean + gap * share, self.squares + other.squares + gap * gap * self.units * share)


class Moments(NamedTuple):
    """The same of K numbers at a time, with the squares of their pairwise differences."""

    units: int
    mean: Float
    products: Float  # (K, K): Σ (x − mean)(x − mean)ᵀ
    gaps: Float  # (K, K): Σ ((x_a − x_b) − mean)²; keeps the digits where two candidates move alike

    @classmethod
    def of(cls, x: Float) -> Moments:
        """Of the columns of a (K, n) array."""
        size = len(x)
        products, gaps = np.zeros((2, size, size))
        if x.shape[1] == 0:
            return cls(0, np.zeros(size), products, gaps)
        mean = x.mean(axis=1)
        y = x - mean[:, None]
        for a in range(size):  # no BLAS: its threads would change the last digits
            for b in range(a + 1):
                products[a, b] = products[b, a] = (y[a] * y[b]).sum()
                gaps[a, b] = gaps[b, a] = ((y[a] - y[b]) ** 2).sum()
        return cls(x.shape[1], mean, products, gaps)

    def merge(self, other: Moments) -> Moments:
        count = self.units + other.units
        if not count:
            return self
        shift = other.mean - self.mean
        weight = self.units * other.units / count
        return Moments(
            count,
            self.mean + shift * (other.units / count),
            self.products + other.products + weight * np.outer(shift, shift),
            self.gaps + other.gaps + weight * (shift[:, None] - shift[None, :]) ** 2,
        )

    def about_zero(self) -> Moments:
        """Σ x xᵀ and Σ (x_a − x_b)²."""
        apart = self.mean[:, None] - self.mean[None, :]
        products = self.products + self.units * np.outer(self.mean, self.mean)
        return Moments(self.units, 0.0 * self.mean, products, self.gaps + self.units * apart**2)


# ---- one score, or the model itself -----------------------------------------------------------------------------


class _Sums:
    """Parts of one ranking become the whole: what is summed is added, what all parts share stays."""

    _shared: tuple[str, ...] = ()

    def mapped(self, affine: tuple[float, float]) -> Number:
        """a + b · the value."""
        return affine[0] + affine[1] * self.value  # type: ignore[attr-defined]

    def merge(self, other: Self) -> Self:
        return type(self)(**{f.name: self._merged(other, f.name) for f in fields(self)})  # type: ignore[arg-type]

    def _merged(self, other: Self, name: str) -> Any:
        mine, theirs = getattr(self, name), getattr(other, name)
        if name in self._shared:
            return mine
        if mine is None or isinstance(mine, bool):
            return mine if mine is None else mine and theirs
        return mine.merge(theirs) if hasattr(mine, "merge") else mine + theirs


@dataclass(frozen=True)
class AucTally(_Sums):
    """UQ-AUC: credits of the wrong rows, and what its standard error is made of."""

    sizes: Sizes
    constant: Number  # all scores are equal
    credit2: Number  # over the wrong rows, doubled: an integer where rows weigh the same
    pairs: Number  # weight of the pairs of a wrong and a right row
    wrong_squares: Number = 0  # Σ credit2² over the wrong rows, where they weigh the same …
    right_squares: Number = 0  # … and over the right rows
    left: Spread | None = None  # of the values without each row or cluster, where rows weigh or belong together
    places: tuple[float, float] = (0.25, 0.75)  # where an error that was not seen may rank: `count.places`
    _shared = ("constant", "places")

    @property
    def value(self) -> Number:
        return choose(self.pairs > 0, lambda: self.credit2 / (2 * self.pairs), lambda: NAN)


@dataclass(frozen=True)
class PairTally(_Sums):
    """UQ-C-index, Somers' D and Kendall's tau-b: pairs that differ in the target, each counted twice."""

    sizes: Sizes
    constant: Number
    credit2: Number  # doubled credit of all rows
    comparable: Number
    left: Spread  # of the values without each row or cluster, less any number; NaN where one is undefined
    in_score: float | None = None  # pairs that differ in the score: for tau-b
    _shared = ("constant",)

    @property
    def value(self) -> Number:
        """C, or for tau-b (τ + 1)/2."""
        if self.in_score is not None:
            return (self._tau + 1) / 2
        return choose(self.comparable > 0, lambda: self.credit2 / (2 * self.comparable), lambda: NAN)

    @property
    def _tau(self) -> float:
        sign, in_score = self.credit2 - self.comparable, self.in_score or 0.0
        return tau_b(sign, in_score, self.comparable, rounded=self.sizes.weighted)

    def mapped(self, affine: tuple[float, float]) -> Number:
        """Without the rounding of 2·C − 1 where that is asked for: D, or tau-b."""
        if affine != (-1.0, 2.0):
            return super().mapped(affine)
        if self.in_score is not None:
            return self._tau
        excess = self.credit2 - self.comparable
        return choose(self.comparable > 0, lambda: excess / self.comparable, lambda: NAN)


@dataclass(frozen=True)
class AreaTally(_Sums):
    """A metric of the areas: its value, and Σ of squared influences (times weight over Σ weight)."""

    sizes: Sizes
    value: Number
    right2: Number  # over rows without loss
    wrong2: Number  # over rows with a loss
    clusters2: float | None = None  # over clusters, influences summed first
    contributions2: Number = 0.0  # Σ over wrong rows of their squared part of the value
    largest: Number = 0.0  # the most that one more wrong unit could add to the value
    adds: Number = 0.0  # what an error that was not seen may add, were its weight 1: `unseen.adds`
    _shared = ("value", "largest", "adds")


@dataclass(frozen=True)
class MeanTally(_Sums):
    """A mean over rows: Σ of squared deviations (times weight over Σ weight)."""

    sizes: Sizes
    value: Number
    squares: Number
    clusters2: float | None = None
    infinite: Number = 0
    _shared = ("value",)


class Cells(NamedTuple):
    """Rows to draw labels for: neighbouring confidences of a bin, pooled."""

    size: Int
    mean: Float
    weight: Float  # of each row of the cell, or their mean
    of_bin: Int
    powers: Float | None = None  # (3, cells): Σ w², w³, w⁴, where rows of different weight are pooled


class BinClusters(NamedTuple):
    """What clusters do to the bins of confidence: Σ over clusters of products of their parts."""

    products: Float  # (bins, bins), of Σ w·(correct − confidence − gap of the bin)/Σ w
    shares2: Float  # (bins,): of squares of the share of all weight that a cluster has in the bin
    confidence: Float  # (bins,): the mean

    def merge(self, other: BinClusters) -> BinClusters:
        """Of parts without a common cluster."""
        return BinClusters(self.products + other.products, self.shares2 + other.shares2, self.confidence)


@dataclass(frozen=True)
class EceTally(_Sums):
    """Bins of confidence, and Σ of squared influences on the plug-in ECE with its bins held fixed."""

    sizes: Sizes
    bins: Bins
    squares: Number
    clusters2: float | None = None
    by_cluster: BinClusters | None = None
    _shared = ("bins",)


# ---- K candidates at once ---------------------------------------------------------------------------------------


class JointPart(NamedTuple):
    """An independent part of the covariance of K values, the variances of differences, and its degrees of freedom."""

    covariance: Float
    gaps: Float
    df: float

    @classmethod
    def of_units(cls, units: Float, df: float) -> JointPart:
        """From (K, units) numbers with covariance U Uᵀ."""
        covariance = units @ units.T
        variances = np.diag(covariance)
        both = variances[:, None] + variances[None, :]
        gaps: Float = both - 2 * covariance
        for a, b in zip(*np.nonzero(np.triu(gaps <= _TINY * both, 1)), strict=True):
            apart = units[a] - units[b]
            gaps[a, b] = gaps[b, a] = apart @ apart
        return cls(covariance, gaps, df)

    @classmethod
    def of_moments(cls, moments: Moments, scale: float, df: float) -> JointPart:
        return cls(scale * moments.products, scale * moments.gaps, df)

    def close(self, a: int, b: int) -> bool:
        """Whether the two move so alike that their covariance has lost its digits."""
        total = float(self.covariance[a, a] + self.covariance[b, b])
        return total - 2 * float(self.covariance[a, b]) <= _TINY * total


class Room(NamedTuple):
    """What a difference leaves room for: part of a unit that was not seen, which one candidate ranks far better."""

    share: float  # of that part in the weight of the rows that it joins; infinite: all of the range is possible
    units: float  # effective number of those
    adds: float | None = None  # what it adds to a difference of areas; None where a unit counts by its share
    inflate: float = 1.0  # the variance
    affine: tuple[float, float] = (0.0, 1.0)  # the values are a + b times what the unit adds to: (−1, 2) for D = 2C − 1


@dataclass(frozen=True)
class JointTally:
    """Values of K candidates on the same rows and the parts of their covariance."""

    values: Float
    parts: tuple[JointPart, ...]
    room: Room | None = None

    def covariance(self) -> Float:
        """(K, K)."""
        return np.sum([part.covariance for part in self.parts], axis=0)

    def mapped(self, affine: tuple[float, float]) -> JointTally:
        """Of a + b · the values."""
        a, b = affine
        if affine == (0.0, 1.0):
            return self
        parts = tuple(JointPart(b * b * p.covariance, b * b * p.gaps, p.df) for p in self.parts)
        room = None if self.room is None else self.room._replace(affine=affine)
        return JointTally(a + b * self.values, parts, room)
