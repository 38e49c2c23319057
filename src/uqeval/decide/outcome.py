"""What became of the rows that a promise counts: their mean loss, its interval, and whether it is as low as promised.

Rows are the independent units, or clusters of them; each cluster may have one vote.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval.decide import bounds
from uqeval.inference.forms import UNKNOWN, Interval, clopper_pearson, logit_t, settled
from uqeval.inference.result import Estimate


@dataclass(frozen=True)
class Outcome:
    """The rows that count."""

    losses: Float  # of each, ascending: sums must not depend on the order of rows
    # Loss and rows of each cluster; shares of its rows where it has one vote; in weight where rows have weights.
    clusters: tuple[Float, Float] | None
    alone: bool = False  # whether each weighted row is a "cluster" of its own

    @property
    def units(self) -> int:
        """How many independent ones count: rows, or clusters that have such rows."""
        return len(self.losses) if self.clusters is None else int((self.clusters[1] > 0).sum())

    @property
    def votes(self) -> float:
        """How many count: rows, or votes of clusters."""
        return float(len(self.losses)) if self.clusters is None else float(self.clusters[1].sum())

    @property
    def lost(self) -> float:
        """Their loss, in the same unit."""
        return float((self.losses if self.clusters is None else self.clusters[0]).sum())

    @property
    def moments(self) -> bounds.Moments:
        """Sums of what counts, which add up over looks."""
        return bounds.moments(*self.clusters) if self.clusters is not None else bounds.moments(self.losses, self._ones)

    @property
    def _ones(self) -> Float:
        return np.ones(len(self.losses))

    @property
    def _binary(self) -> bool:
        return bool(((self.losses == 0) | (self.losses == 1)).all())

    def interval(self, level: float) -> Interval:
        """Of the mean loss: exact for 0/1 losses of independent rows."""
        if self.clusters is not None:
            return cluster_interval(*self.clusters, level)
        if self._binary and len(self.losses):
            return clopper_pearson(self.losses.sum(), len(self.losses), level)
        return cluster_interval(self.losses, self._ones, level)

    def estimate(self, level: float) -> Estimate:
        """The mean loss with its interval."""
        n = len(self.losses)
        if n == 0:
            return Estimate(math.nan, math.nan, math.nan, math.nan, level, "none", 0)
        low, high = self.interval(level)
        method: str
        units: int | None
        if self.clusters is not None:
            se, method, units = _cluster_se(*self.clusters), "logit cluster t", len(self.clusters[1])
            method, units = ("logit t", None) if self.alone else (method, units)
        else:
            se = float(self.losses.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
            method, units = "Clopper–Pearson" if self._binary else "logit t", None
        return Estimate(self.lost / self.votes, low, high, se, level, method, n, n_clusters=units)

    def rise_p(self, max_risk: float) -> float:
        """P-value of "the mean loss is at most max_risk": exact for 0/1 losses of independent rows."""
        if len(self.losses) == 0:
            return 1.0
        if self.clusters is not None:
            total, rows = self.clusters
            right = bounds.moments(rows - total, rows)
            return float(bounds.cluster_p(right, 1 - max_risk, largest=float(rows.max()))[0])
        p = bounds.binomial_p if self._binary else bounds.hoeffding_bentkus_p
        return float(p(np.array([self.votes - self.lost]), np.array([self.votes]), 1 - max_risk)[0])


def count(
    inside: NDArray[np.bool_],
    loss: NDArray[np.generic],
    clusters: Int | None,
    *,
    joint: bool,
    one_vote: bool = False,
    weights: Float | None = None,
) -> Outcome:
    """The accepted rows (`inside`), or all of them where the promise is `joint`: a rejected one has then lost nothing.

    With `one_vote` a row of a cluster of m counts as 1/m.
    """
    counted = np.ones(len(loss), dtype=np.bool_) if joint else inside
    losses = np.where(inside, loss, 0).astype(np.float64)[counted]
    if clusters is None and weights is None:
        return Outcome(np.sort(losses), None)
    weight = np.ones(len(losses)) if weights is None else weights[counted]
    if clusters is None:
        order = np.lexsort((weight, losses))
        return Outcome(losses[order], ((weight * losses)[order], weight[order]), alone=True)
    codes, number = clusters[counted], int(clusters.max(initial=-1)) + 1
    order = np.lexsort((weight, losses, codes))
    total = np.bincount(codes[order], weights=(weight * losses)[order], minlength=number).astype(np.float64)
    rows = np.bincount(codes[order], weights=weight[order], minlength=number).astype(np.float64)
    if one_vote:
        votes = 1 / np.bincount(clusters, minlength=number)
        total, rows = votes * total, votes * rows
    return Outcome(np.sort(losses), (total, rows))


def interval_of_sums(of: bounds.Moments, independent: bool, level: float) -> Interval:
    """`Outcome.interval` of rows of which only the sums are known: of many looks."""
    rows, loss = float(of.rows[0]), float(of.loss[0])
    if not rows or math.isnan(float(of.rows2[0])):
        return UNKNOWN
    if independent and loss == float(of.loss2[0]):  # all are 0 or 1
        return clopper_pearson(loss, rows, level)
    low, high = cluster_intervals(of, level)
    return Interval(float(low[0]), float(high[0]))


def cluster_interval(total: Float, rows: Float, level: float) -> Interval:
    """Interval of Σ total / Σ rows over clusters."""
    low, high = cluster_intervals(bounds.moments(total, rows), level)
    return Interval(float(low[0]), float(high[0]))


def cluster_intervals(of: bounds.Moments, level: float) -> tuple[Float, Float]:
    """Of the mean loss over clusters: t on the logit scale, joined with Clopper–Pearson at the effective number of
    rows, which holds where errors are few or losses skewed."""
    sizes = bounds.effective_rows(of)
    ends = [
        _cluster_interval(int(number), share, se, size, level)
        for number, share, se, size in zip(of.clusters, *_cluster_shares(of), sizes, strict=True)
    ]
    return np.array([end.low for end in ends]), np.array([end.high for end in ends])


def _cluster_interval(number: int, share: float, se: float, size: float, level: float) -> Interval:
    if number < 2:  # a single cluster says nothing
        return Interval(0.0, 1.0) if number else UNKNOWN
    exact = clopper_pearson(size * share, size, level)
    if se == 0 or not 0 < share < 1:
        return exact
    t = logit_t(share, se, level, number - 1)
    return Interval(min(t.low, exact.low), max(t.high, exact.high))


def _cluster_se(total: Float, rows: Float) -> float:
    """Standard error of Σ total / Σ rows over clusters; NaN for fewer than two."""
    return float(_cluster_shares(bounds.moments(total, rows))[1][0])


def _cluster_shares(of: bounds.Moments) -> tuple[Float, Float]:
    """Mean losses and their standard errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = of.loss / of.rows
        squares = of.loss2 - 2 * share * of.both + share**2 * of.rows2
        # Where all clusters have the same share of losses nothing is left but rounding.
        squares = np.where(squares > 1e-14 * of.loss2, squares, 0.0)
        se = np.sqrt(of.clusters / (of.clusters - 1) * squares) / of.rows
    return share, np.array([settled(x) if number > 1 else math.nan for x, number in zip(se, of.clusters, strict=True)])
