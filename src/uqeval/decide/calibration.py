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
    """A score against 0/1 errors (uint8) or losses in [0, 1], with clusters and weights; all clean."""

    score: Float
    loss: NDArray[Any]
    clusters: Int | None = None
    bound: str = "betting"  # for losses that are not 0/1: "betting" or "hoeffding-bentkus"
    what: str = "error"  # "error", "loss" or "misaligned"
    ranking: Ranking | None = None  # the score in order, where somebody has it
    weights: Float | None = None
    exact: bool = False  # clusters are bet on, not put to the t-test
    largest: float | None = None  # a bound of `unit_sizes` that holds beyond these rows
    made_up: float = 1.0  # clusters that the t-test adds
    exponent: int = 0  # weights came 2**exponent times as large
    groups: Int | None = None  # 0, 1, …; what each is called is for others

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
    def unit_sizes(self) -> Float:
        """What each independent unit weighs: rows of a cluster, or weight."""
        if self.weights is None:
            return np.ones(self.n) if self.cluster_rows is None else self.cluster_rows
        if self.clusters is None:
            return self.weights
        return np.bincount(self.clusters[self._order], weights=self.weights[self._order]).astype(np.float64)

    @cached_property
    def largest_unit(self) -> float:
        """The most that a unit can weigh: as declared, or as seen."""
        return max(float(self.unit_sizes.max()), self.largest or 0.0)

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
        """Rows by score, then loss, cluster, weight: neither sums nor the hash depend on the order of rows."""
        order = self.ordered
        rows = order.row.astype(np.int64)
        if order.ties:  # only those have to be sorted further
            tied = np.flatnonzero(np.repeat(order.size > 1, order.size))
            block = np.repeat(np.arange(len(order.size)), order.size)[tied]
            inside = rows[tied]
            keys = [key[inside] for key in (self.weights, self.clusters, self.loss) if key is not None]
            rows[tied] = inside[np.lexsort((*keys, block))]
        return rows

    @cached_property
    def _running(self) -> Float:
        """Loss of the k first rows, k = 0..n."""
        return np.concatenate([[0.0], np.cumsum(self.loss[self._order], dtype=np.float64)])

    def data_hash(self) -> str:
        """SHA-256 of the rows, whatever their order."""
        parts: list[NDArray[Any]] = [self.sorted, self._wrong]
        if not self.binary or self.clusters is not None or self.weights is not None:
            parts = [self.score[self._order] + 0.0, self.loss[self._order].astype(np.float64)]
            parts += [part[self._order] for part in (self.clusters, self.weights) if part is not None]
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

    def weighted(self, thresholds: Float) -> tuple[Float, Float]:
        """Their loss, and their number, in weight where rows have weights."""
        if self.weights is None:
            return self.bad(thresholds), self.accepted(thresholds).astype(np.float64)
        bad, weight = (running[self.accepted(thresholds)] for running in self._running_weights)
        return bad, weight

    @cached_property
    def _running_weights(self) -> tuple[Float, Float]:
        """Weighted loss, and weight, of the k first rows, k = 0..n."""
        assert self.weights is not None
        weights = self.weights[self._order]
        bad, weight = (np.cumsum(part) for part in (weights * self.loss[self._order], weights))
        return np.append(0.0, bad), np.append(0.0, weight)

    def votes(self, threshold: float) -> float:
        """Loss of the accepted rows where every unit has one vote: a row of a cluster of m has 1/m of one."""
        if self.clusters is None or self.cluster_rows is None:
            return float(self.weighted(np.array([threshold]))[0][0])
        inside = self._order[: int(self.accepted(np.array([threshold]))[0])]
        return float((self.loss[inside] / self.cluster_rows[self.clusters[inside]]).sum())

    @property
    def ballots(self) -> tuple[float, float]:
        """The votes of all units, and the most that one more can have: 1, or weight."""
        if self.weights is None:
            return float(self.n_units), 1.0
        return float(self._running_weights[1][-1]), self.largest_unit

    def hopeful(self, thresholds: Float, max_risk: float, joint: bool) -> NDArray[np.bool_]:
        """Whether the observed risk below each is under the target."""
        bad, accepted = self.weighted(thresholds)
        everything = self.weighted(self.sorted[-1:])[1]
        return (accepted > 0) & (bad < max_risk * (everything if joint else accepted))

    # ---- what that proves ----

    @property
    def counts(self) -> bool:
        """Whether a p-value is that of a number of errors among independent rows."""
        return self.binary and self.clusters is None and self.weights is None

    @property
    def _bets(self) -> bool:
        """Whether losses are bet on one by one; else their number and total will do."""
        if self.exact or self.weights is not None:
            return True
        return self.clusters is None and not self.binary and self.bound == "betting"

    def _count_p(self, bad: Float, rows: NDArray[Any], max_risk: float) -> Float:
        p = bounds.binomial_p if self.binary else bounds.hoeffding_bentkus_p
        return p(bad, rows, max_risk)

    def _cluster_p(self, of: bounds.Moments, max_risk: float, copies: float) -> Float:
        return bounds.cluster_p(of, max_risk, largest=self.largest_unit, copies=copies, made_up=self.made_up)

    def best_p(self, thresholds: Float, max_risk: float, *, copies: float = 1.0) -> Float:
        """The p-values if no row had any loss: what a region can hope for. No loss is looked at."""
        none = np.zeros(len(thresholds))
        if self._bets:
            return bounds.betting_p(copies * self._wealth(self.accepted(thresholds), max_risk, lossless=True))
        if self.clusters is not None:
            lossless = self.moments(thresholds)._replace(loss=none, loss2=none, both=none)
            return self._cluster_p(lossless, max_risk, copies)
        return self._count_p(none, (copies * self.accepted(thresholds)).astype(np.float64), max_risk)

    def p_values(self, thresholds: Float, max_risk: float, *, joint: bool = False, copies: float = 1.0) -> Float:
        """Of "the mean loss of the rows with score ≤ t is above max_risk"; `joint`: a rejected row counts as loss 0.

        `copies` answers for a sample of the same shape that many times as large.
        """
        if len(thresholds) == 0:
            return np.empty(0)
        accepted = self.accepted(thresholds)
        if self._bets:
            return bounds.betting_p(copies * self._wealth(accepted, max_risk, joint=joint))
        if self.clusters is not None:
            assert not joint, "for clusters there is no t-test of the joint risk that held"
            return self._cluster_p(self.moments_at(accepted), max_risk, copies)
        counted = np.full(len(accepted), self.n) if joint else accepted
        return self._count_p(copies * self.bad(thresholds), copies * counted, max_risk)

    def _wealth(self, accepted: Int, max_risk: float, *, joint: bool = False, lossless: bool = False) -> Float:
        """(thresholds, stakes) log wealth after the accepted rows, as if without loss where `lossless`; kept."""
        key = (max_risk, joint, lossless, accepted.tobytes())
        if key not in self._kept:
            if any(other[0] != max_risk for other in self._kept):
                self._kept.clear()  # one target at a time
            losses = np.zeros(self.n) if lossless else self.loss[self._order].astype(np.float64)
            bet = self._bet_rows if self.clusters is None else self._bet_clusters
            self._kept[key] = bet(losses, accepted, max_risk, joint)
        return self._kept[key]

    def _bet_rows(self, losses: Float, accepted: Int, max_risk: float, joint: bool) -> Float:
        """An accepted row of weight w multiplies the wealth by 1 + λw(max_risk − loss), a rejected one by 1 (where the
        risk is joint, by 1 + λw·max_risk); λ is a share of the largest stake that no weight can ruin."""
        if self.weights is None and not losses.any():
            right = np.log1p(bounds.betting_scale(max_risk) * max_risk)
            counted = np.full(len(accepted), self.n) if joint else accepted
            return counted.astype(np.float64)[:, None] * right
        scale, done = bounds.betting_scale(max_risk) / self.largest_unit, 0
        weights = np.ones(self.n) if self.weights is None else self.weights[self._order]
        wealth, reached = np.zeros(len(scale)), []
        with np.errstate(divide="ignore"):
            for size in accepted:
                while done < size:
                    part = slice(done, min(size, done + _AT_ONCE))
                    factor = scale[:, None] * weights[part]
                    gain = np.maximum(factor * (max_risk - losses[part]), -1.0)  # a last bit below would be no number
                    wealth = wealth + np.log1p(gain).sum(axis=1)
                    done = part.stop
                reached.append(wealth)
        if not joint:
            return np.array(reached)
        idle = self._bet_rows(np.zeros(self.n), np.append(accepted, self.n), max_risk, False)
        return np.array(reached) + idle[-1] - idle[:-1]

    def _bet_clusters(self, losses: Float, accepted: Int, max_risk: float, joint: bool) -> Float:
        """The same where a cluster's rows are one bet: on its excess Σ w(loss − max_risk), over its accepted rows (over
        all, where the risk is joint)."""
        assert self.clusters is not None
        codes = self.clusters[self._order]
        weights = np.ones(self.n) if self.weights is None else self.weights[self._order]
        # Not the whole stake: an excess that rows to come make smaller must not have ruined anybody.
        scale = -(1 - 1e-9) * bounds.betting_scale(max_risk) / self.largest_unit
        excess = -max_risk * self.unit_sizes if joint else np.zeros(self.n_units)
        steps = weights * (losses if joint else losses - max_risk)
        wealth, done, reached = np.zeros(len(scale)), 0, []
        for part in np.array_split(excess, 1 + len(excess) // _AT_ONCE):
            wealth = wealth + np.log1p(scale[:, None] * part).sum(axis=1)
        for size in accepted:
            while done < size:
                end = min(size, done + _AT_ONCE)
                touched, place = np.unique(codes[done:end], return_inverse=True)
                before = excess[touched]
                excess[touched] = after = before + np.bincount(place, weights=steps[done:end])
                change = np.log1p(scale[:, None] * after) - np.log1p(scale[:, None] * before)
                wealth, done = wealth + change.sum(axis=1), end
            reached.append(wealth)
        return np.array(reached)

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
        weights, groups = (None if part is None else part[rows] for part in (self.weights, self.groups))
        own: dict[str, Any] = {"clusters": codes, "weights": weights, "groups": groups, "ranking": None}
        return replace(self, score=self.score[rows], loss=self.loss[rows], **own)

    def one_row_per_cluster(self, rng: np.random.Generator) -> Calibration:
        """A random row of each cluster: independent rows again. Does not depend on the order of rows."""
        assert self.clusters is not None
        order = np.lexsort((self.loss, self.score + 0.0, self.clusters))
        first = np.flatnonzero(np.diff(self.clusters[order], prepend=-1))
        size = np.diff(first, append=len(order))
        chosen = order[first + np.minimum((rng.random(len(first)) * size).astype(np.int64), size - 1)]
        alone = replace(self, score=self.score[chosen], loss=self.loss[chosen], clusters=None, ranking=None)
        groups = None if self.groups is None else self.groups[chosen]
        return replace(alone, exact=False, largest=None, groups=groups)


def split_rows(cals: list[Calibration], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """True for a random share of the rows (of the clusters); does not depend on the order of rows."""
    clusters = cals[0].clusters
    if clusters is None:
        keys = [key for key in (cals[0].weights, cals[0].loss) if key is not None]
        order = np.lexsort((*keys, *(cal.score + 0.0 for cal in reversed(cals))))
    else:
        order = np.arange(int(clusters.max()) + 1)
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[rng.permutation(len(order))[: round(share * len(order))]]] = True
    return chosen if clusters is None else chosen[clusters]
