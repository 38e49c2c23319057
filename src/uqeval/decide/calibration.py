"""Calibration rows, sorted once: how many rows and losses lie below any value of the score, and what that proves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int, recode
from uqeval.decide import bounds
from uqeval.metrics.areas import Ranking

_AT_ONCE = 1 << 16  # rows whose bets are placed at once


@dataclass
class Calibration:
    """A score against 0/1 errors (uint8) or losses in [0, 1], with clusters; all clean."""

    score: Float
    loss: NDArray[Any]
    clusters: Int | None = None
    bound: str = "betting"  # for losses that are not 0/1: "betting" or "hoeffding-bentkus"
    what: str = "error"  # "error", "loss" or "misaligned"
    ranking: Ranking | None = None  # the score in order, where somebody has it

    @property
    def n(self) -> int:
        return len(self.score)

    @property
    def binary(self) -> bool:
        return self.loss.dtype == np.uint8

    @cached_property
    def cluster_rows(self) -> Float | None:
        """Rows of each cluster."""
        return None if self.clusters is None else np.bincount(self.clusters).astype(np.float64)

    @cached_property
    def n_units(self) -> int:
        """Independent units: rows, or clusters."""
        return self.n if self.cluster_rows is None else len(self.cluster_rows)

    @cached_property
    def ordered(self) -> kernels.Order:
        """Rows by score."""
        return kernels.order_by(self.score) if self.ranking is None else self.ranking.order

    @property
    def _by_score(self) -> NDArray[Any]:
        return self.ordered.row

    @cached_property
    def sorted(self) -> Float:
        """Scores in order; −0.0 is 0.0."""
        if self.ranking is None and self.clusters is None:  # nobody needs the rows
            return np.sort(self.score + 0.0)
        return self.score[self._by_score] + 0.0

    @cached_property
    def _wrong(self) -> Float:
        """Scores of the wrong rows in order."""
        if self.ranking is None and self.clusters is None:
            return np.sort(self.score[self.loss != 0] + 0.0)
        return self.sorted[self.loss[self._by_score] != 0]

    @cached_property
    def _order(self) -> Int:
        """Rows by score, then loss, then cluster: neither sums of floats nor the hash depend on the order of rows."""
        order = self.ordered
        rows = order.row.astype(np.int64)
        if order.ties:  # only those have to be sorted further
            tied = np.flatnonzero(np.repeat(order.size > 1, order.size))
            block = np.repeat(np.arange(len(order.size)), order.size)[tied]
            inside = rows[tied]
            keys = (self.loss[inside],) if self.clusters is None else (self.clusters[inside], self.loss[inside])
            rows[tied] = inside[np.lexsort((*keys, block))]
        return rows

    @cached_property
    def _running(self) -> Float:
        """Loss of the k first rows, k = 0..n."""
        return np.concatenate([[0.0], np.cumsum(self.loss[self._order], dtype=np.float64)])

    def data_hash(self) -> str:
        """SHA-256 of the rows, whatever their order."""
        parts: list[NDArray[Any]] = [self.sorted, self._wrong]
        if not self.binary or self.clusters is not None:
            parts = [self.score[self._order] + 0.0, self.loss[self._order].astype(np.float64)]
            parts += [] if self.clusters is None else [self.clusters[self._order]]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    # ---- what lies below a value of the score ----

    def at_size(self, sizes: Int) -> Float:
        """The values t that accept at least so many rows, {score ≤ t}; each once, ascending."""
        return np.unique(self.sorted[sizes - 1])

    def grid(self, cells: int | None = None) -> Float:
        """Values at equally spaced numbers of rows: they depend on the scores only, never on the losses."""
        m = int(np.clip(self.n // 10, 20, 100)) if cells is None else cells
        return self.at_size(np.unique(np.ceil(self.n * np.arange(1, m + 1) / m - 1e-9).astype(np.int64)))

    def accepted(self, thresholds: Float) -> Int:
        """Rows with score ≤ t: tied rows stay together."""
        return np.searchsorted(self.sorted, thresholds, side="right").astype(np.int64)

    def bad(self, thresholds: Float) -> Float:
        """Their loss (number of errors)."""
        if self.binary:
            return np.searchsorted(self._wrong, thresholds, side="right").astype(np.float64)
        return self._running[self.accepted(thresholds)]

    def votes(self, threshold: float) -> float:
        """Loss of the accepted rows where every unit has one vote: a row of a cluster of m has 1/m of one."""
        if self.clusters is None or self.cluster_rows is None:
            return float(self.bad(np.array([threshold]))[0])
        inside = self._order[: int(self.accepted(np.array([threshold]))[0])]
        return float((self.loss[inside] / self.cluster_rows[self.clusters[inside]]).sum())

    def units(self, thresholds: Float) -> Int:
        """Independent units below t: rows, or clusters with such a row."""
        if self.clusters is None:
            return self.accepted(thresholds)
        return np.searchsorted(self._lowest, thresholds, side="right").astype(np.int64)

    @cached_property
    def _lowest(self) -> Float:
        """The lowest score of each cluster, in order."""
        assert self.clusters is not None
        lowest = np.full(self.n_units, np.inf)
        np.minimum.at(lowest, self.clusters, self.score)
        return np.sort(lowest)

    # ---- what that proves ----

    @property
    def _bets(self) -> bool:
        """Whether losses are bet on one by one; else their number and total will do."""
        return not self.binary and self.bound == "betting"

    def _count_p(self, bad: Float, rows: NDArray[Any], max_risk: float) -> Float:
        p = bounds.binomial_p if self.binary else bounds.hoeffding_bentkus_p
        return p(bad, rows, max_risk)

    def best_p(self, thresholds: Float, max_risk: float, *, copies: float = 1.0) -> Float:
        """The p-values if no row had any loss: what a region can hope for. No loss is looked at."""
        none = np.zeros(len(thresholds))
        if self.clusters is not None:
            lossless = self.moments(thresholds)._replace(loss=none, loss2=none, both=none)
            return bounds.cluster_p(lossless, max_risk, copies=copies)
        rows = (copies * self.accepted(thresholds)).astype(np.float64)
        if self._bets:
            return bounds.betting_p(rows[:, None] * np.log1p(bounds.betting_scale(max_risk) * max_risk))
        return self._count_p(none, rows, max_risk)

    def p_values(self, thresholds: Float, max_risk: float, *, joint: bool = False, copies: float = 1.0) -> Float:
        """Of "the mean loss of the rows with score ≤ t is above max_risk"; `joint`: a rejected row counts as loss 0.

        `copies` answers for a sample of the same shape that many times as large.
        """
        if len(thresholds) == 0:
            return np.empty(0)
        if self.clusters is not None:
            assert not joint, "for clusters there is no test of the joint risk that held"
            return bounds.cluster_p(self.moments(thresholds), max_risk, copies=copies)
        accepted = self.accepted(thresholds)
        rejected = self.n - accepted if joint else np.zeros_like(accepted)
        if self._bets:
            right = np.log1p(bounds.betting_scale(max_risk) * max_risk)
            return bounds.betting_p(copies * (self._wealth(accepted, max_risk) + rejected[:, None] * right))
        return self._count_p(copies * self.bad(thresholds), copies * (accepted + rejected), max_risk)

    def _wealth(self, accepted: Int, max_risk: float) -> Float:
        """(thresholds, stakes) log wealth after the accepted rows; kept, for other sizes."""
        key = (max_risk, accepted.tobytes())
        if key not in self._kept:
            self._kept.clear()  # one target at a time
            losses, scale, done = self.loss[self._order], bounds.betting_scale(max_risk), 0
            wealth, reached = np.zeros(len(scale)), []
            with np.errstate(divide="ignore"):
                for size in accepted:
                    while done < size:
                        part = losses[done : min(size, done + _AT_ONCE)]
                        wealth = wealth + np.log1p(scale[:, None] * (max_risk - part)).sum(axis=1)
                        done += len(part)
                    reached.append(wealth)
            self._kept[key] = np.array(reached)
        return self._kept[key]

    def moments(self, thresholds: Float) -> bounds.Moments:
        """Of the clusters below each of the thresholds."""
        return self.moments_at(self.accepted(thresholds))

    def moments_at(self, accepted: Int) -> bounds.Moments:
        """Of the clusters of so many accepted rows."""
        return bounds.Moments(*(part[accepted] for part in self._running_moments))

    @cached_property
    def _running_moments(self) -> bounds.Moments:
        """Of the clusters of the k first rows, k = 0..n: one pass for all thresholds."""
        assert self.clusters is not None
        order = self._by_score if self.binary else self._order
        loss, codes = self.loss[order].astype(np.float64), self.clusters[order]
        return bounds.Moments(*kernels.running_moments(codes, loss))

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    # ---- parts of it ----

    def take(self, rows: Int) -> Calibration:
        """Some of the rows."""
        codes = None if self.clusters is None else recode(self.clusters[rows])
        return replace(self, score=self.score[rows], loss=self.loss[rows], clusters=codes, ranking=None)

    def one_row_per_cluster(self, rng: np.random.Generator) -> Calibration:
        """A random row of each cluster: independent rows again. Does not depend on the order of rows."""
        assert self.clusters is not None
        order = np.lexsort((self.loss, self.score + 0.0, self.clusters))
        first = np.flatnonzero(np.diff(self.clusters[order], prepend=-1))
        size = np.diff(first, append=len(order))
        chosen = order[first + np.minimum((rng.random(len(first)) * size).astype(np.int64), size - 1)]
        return replace(self, score=self.score[chosen], loss=self.loss[chosen], clusters=None, ranking=None)


def split_rows(cals: list[Calibration], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """True for a random share of the rows (of the clusters); does not depend on the order of rows."""
    clusters = cals[0].clusters
    if clusters is None:
        order = np.lexsort((cals[0].loss, *(cal.score + 0.0 for cal in reversed(cals))))
    else:
        order = np.arange(int(clusters.max()) + 1)
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[rng.permutation(len(order))[: round(share * len(order))]]] = True
    return chosen if clusters is None else chosen[clusters]
