"""Influence values: how much each row moves a metric, as n numbers of (weighted) mean 0.

Their mean square gives the variance, their sums over clusters the cluster-robust one, their differences that of a
difference. One mechanism for every metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uqeval._check import Float
from uqeval._lanes import Number, choose, larger
from uqeval.inference.sample import Sample
from uqeval.metrics.areas import Accepted, Blocks, Formula, Ranked
from uqeval.metrics.calibration import Bins, l1
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import Swept, SweptSums


def concordance_influence(sample: Sample) -> Float:
    """UQ-AUC and UQ-C-index: 2W(c_i − C·m_i)/M."""
    credit, comparable = sample.pairs
    total = float((sample.rows.w * comparable).sum())
    value = float((sample.rows.w * credit).sum()) / total
    return 2.0 * sample.rows.total_weight * (credit - value * comparable) / total


class Linear(NamedTuple):
    """Influences of 0/1 errors on an area: (slope·x + right or wrong)/per, x being e or credit2 of the sweep."""

    of_credit: bool
    slope: Number
    right: Number
    wrong: Number
    per: Number

    def squares(self, swept: SweptSums) -> tuple[Number, Number]:
        """Σ of squares over the right and over the wrong rows; integers up to the last division where x is credit2."""
        sums, found = swept.sums, []
        credits = ((sums.credit2, sums.right_squares), (sums.credit2, sums.wrong_squares))
        moments = credits if self.of_credit else ((sums.right_sum, sums.right_sum2), (sums.wrong_sum, sums.wrong_sum2))
        for (first, second), own, rows in zip(
            moments, (self.right, self.wrong), (swept.right, sums.wrong), strict=True
        ):
            found.append(larger(0.0, self._total(first, second, own, rows, sums.blocks) / self.per**2))
        return found[0], found[1]

    def _total(self, first: Number, second: Number, own: Number, rows: Number, blocks: Number) -> Number:
        return choose(
            (blocks <= 1) & (rows > 0),  # all rows of a class are alike: nothing to lose digits in
            lambda: rows * (self.slope * (first / rows) + own) ** 2,
            lambda: self.slope * self.slope * second + 2 * self.slope * own * first + rows * own * own,
        )

    def at_places(self, swept: Swept) -> Float:
        """In order of the score."""
        x = swept.by_place[self.of_credit].astype(np.float64, copy=False)
        own = np.where(swept.row_marks & 1, float(self.wrong), float(self.right))
        found: Float = (float(self.slope) * x + own) / self.per
        return found


def linear(swept: SweptSums, formula: Formula) -> Linear:
    """On any area but that of the surest share."""
    slopes, sums = formula.slopes(swept), swept.sums
    n = sums.rows
    if slopes.augrc:  # v_i P(S > s_i) + E[V; S < s_i] − 2T, half of the ties
        twice = 2 * swept.accepted2
        return Linear(True, -n, 2 * n * sums.wrong - twice, 2 * n * n - twice, 2 * n * n)
    if slopes.h_auc:  # (1 − v_i) P(V=1, S > s_i) + v_i P(V=0, S < s_i) − 2T
        return Linear(True, n, -2 * sums.credit2, -2 * sums.credit2, 2 * n * n)
    # On AURC: e + best − T + slope·(v − rate); on the oracle's: slope·(v − rate); on the rate: v − rate.
    own = []
    for v in (0.0, 1.0):
        apart = v - sums.rate
        both = slopes.aurc + slopes.excess
        own.append(
            both * (sums.best - sums.aurc) + slopes.aurc * sums.slope * apart + slopes.span * apart * (1 - sums.slope)
        )
    return Linear(False, slopes.aurc + slopes.excess, own[0], own[1], formula.per(swept))


class CutSums(NamedTuple):
    """The surest share of 0/1 errors: influences are a·(v − near)/coverage − (risk − near), a how much is accepted."""

    coverage: float
    risk: Number
    near: Number
    cut: tuple[Number, Number]  # the block of tied rows that the cut goes through
    share: Number  # how much of it is accepted

    @classmethod
    def of(cls, swept: SweptSums, rule: Accepted) -> CutSums:
        place = rule.coverage * swept.sums.rows
        start, end = swept.block_at(place)
        return cls(rule.coverage, *swept.accepted(rule.coverage), (start, end), (place - start) / (end - start))

    def value(self, wrong: float, share: Number) -> Number:
        return share * (wrong - self.near) / self.coverage - (self.risk - self.near)

    def squares(self, swept: SweptSums) -> tuple[Number, Number]:
        """Σ over the right and over the wrong rows."""
        start, end = self.cut
        bounds = [0, swept.wrong_before(start), swept.wrong_before(end), swept.sums.wrong]
        places = [0, start, end, swept.sums.rows]
        right2: Number = 0.0
        wrong2: Number = 0.0
        for k, share in enumerate((1.0, self.share, 0.0)):
            wrong = bounds[k + 1] - bounds[k]
            right2 += (places[k + 1] - places[k] - wrong) * self.value(0.0, share) ** 2
            wrong2 += wrong * self.value(1.0, share) ** 2
        return right2, wrong2

    def at_places(self, swept: Swept) -> Float:
        """In order of the score."""
        start, end = self.cut
        share = np.zeros(swept.sums.rows)
        share[:start], share[start:end] = 1.0, self.share
        return share * ((swept.row_marks & 1) - self.near) / self.coverage - (self.risk - self.near)


def swept_influence(swept: SweptSums, metric: Metric) -> Linear | CutSums:
    """How each row with a 0/1 error moves an area."""
    assert metric.formula is not None
    accepted = isinstance(metric.formula, Accepted)
    return CutSums.of(swept, metric.formula) if accepted else linear(swept, metric.formula)  # type: ignore[arg-type]


def area_influence(sample: Sample, metric: Metric) -> Float:
    """What the metric's formula makes of the influences on the areas (before its affine map), row by row."""
    assert metric.formula is not None
    order, ranked = sample.ranking.order, sample.areas(metric)  # sorted before it is swept
    if isinstance(ranked, Swept):
        result = np.empty(sample.n)
        result[order.row] = swept_influence(ranked, metric).at_places(ranked)
        return result
    if isinstance(metric.formula, Accepted):
        return _accepted_influence(ranked, sample.loss, metric.formula)
    slopes = metric.formula.slopes(ranked)
    total = np.zeros(sample.n)
    aurc = _kept(sample, ranked, "aurc", aurc_influence) if slopes.aurc or slopes.excess else total
    best = _kept(sample, ranked, "best", _best_influence) if slopes.excess or slopes.span else total
    if slopes.aurc:
        total = total + slopes.aurc * aurc
    if slopes.excess:
        total = total + slopes.excess * (aurc - best)
    if slopes.span:
        total = total + slopes.span * (sample.loss - ranked.rate - best)
    if slopes.augrc:
        total = total + slopes.augrc * _augrc_influence(ranked, sample.loss)
    if slopes.h_auc:
        total = total + slopes.h_auc * _h_auc_influence(ranked, sample.loss)
    return total / metric.formula.per(ranked)


def _kept(sample: Sample, ranked: Ranked, what: str, influence: Callable[[Ranked, Sample], Float]) -> Float:
    """Several metrics share it."""
    key = what, ranked.rejected
    if key not in sample.tallies:
        sample.tallies[key] = influence(ranked, sample)
    found: Float = sample.tallies[key]
    return found


def _by_row(blocks: Blocks, per_block: Float) -> Float:
    result = np.empty(len(blocks.row))
    result[blocks.row] = per_block if len(per_block) == len(result) else np.repeat(per_block, blocks.size)
    return result


def later_shares(ranked: Ranked) -> Float:
    """Σ step/weight over the coverages that accept a row: what a wrong row adds to W·AURC; by row."""
    per_weight = ranked.steps.step / ranked.steps.weight
    later = np.cumsum(per_weight[::-1])[::-1]
    blocks = ranked.blocks
    return _by_row(blocks, np.add.reduceat(later, blocks.first) / blocks.size)


def aurc_influence(ranked: Ranked, sample: Sample) -> Float:
    """R_i − T + Σ_{k ≥ r_i} step_k (v_i − R_k)/W_k, averaged over the places of the row's tie block.

    Where only the last share p of the steps counts, R the risk where they start: R_i is R for the rows before; less
    (1 − p)·R, as a row moves that place; and all but T divided by p.
    """
    blocks, steps = ranked.blocks, ranked.late_steps
    per_weight = steps.step / steps.weight
    later = np.cumsum(per_weight[::-1])[::-1]
    later_risk = np.cumsum((per_weight * steps.risk)[::-1])[::-1]
    rest = steps.risk - later_risk - ranked.aurc
    if ranked.rejected < 1.0:
        first, late = ranked.first_late, ranked.late
        risk = np.concatenate([np.full(first, ranked.risk_before_late), steps.risk[first:]])
        later, rest = later / late, (risk - (1 - late) * ranked.risk_before_late - later_risk) / late - ranked.aurc
    if len(blocks.size) < len(blocks.row):
        later, rest = (np.add.reduceat(x, blocks.first) / blocks.size for x in (later, rest))
    return sample.loss * _by_row(blocks, later) + _by_row(blocks, rest)


def best_slope(rate: float) -> float:
    """How the oracle's AURC of 0/1 errors moves with their rate: −ln(1 − rate)."""
    return -math.log1p(-rate) if rate < 1 else 0.0


def _best_influence(ranked: Ranked, sample: Sample) -> Float:
    """On the oracle's AURC: in closed form for 0/1 errors and all steps, else as AURC of the loss itself."""
    if sample.binary and ranked.rejected == 1.0:
        return best_slope(ranked.rate) * (sample.loss - ranked.rate)
    return aurc_influence(ranked.oracle, sample)


def _augrc_influence(ranked: Ranked, loss: Float) -> Float:
    """v_i P(S > s_i) + E[V; S < s_i] − 2T, half of the ties."""
    blocks = ranked.blocks
    total = blocks.weight.sum()
    above = total - np.cumsum(blocks.weight) + blocks.weight / 2
    bad_below = np.cumsum(blocks.bad) - blocks.bad / 2
    return (loss * _by_row(blocks, above) + _by_row(blocks, bad_below)) / total - 2 * ranked.augrc


def _h_auc_influence(ranked: Ranked, loss: Float) -> Float:
    """(1 − v_i) P(V=1, S > s_i) + v_i P(V=0, S < s_i) − 2T, half of the ties."""
    blocks = ranked.blocks
    total = blocks.weight.sum()
    right = blocks.weight - blocks.bad
    bad_above = blocks.bad.sum() - np.cumsum(blocks.bad) + blocks.bad / 2
    right_below = np.cumsum(right) - right / 2
    return ((1 - loss) * _by_row(blocks, bad_above) + loss * _by_row(blocks, right_below)) / total - 2 * ranked.h_auc


def _accepted_influence(ranked: Ranked, loss: Float, rule: Accepted) -> Float:
    """(a_i (v_i − m) − c (R − m))/c: a row moves the risk R of the share c, and the cut, where the risk is m."""
    blocks = ranked.blocks
    stop = np.cumsum(blocks.weight)
    share = rule.share(stop - blocks.weight, stop, float(stop[-1]))
    risk, near = ranked.accepted(rule.coverage)
    return _by_row(blocks, share) * (loss - near) / rule.coverage - (risk - near)


def ece_influence(bins: Bins, confidence: Float, correct: Float) -> Float:
    """On the plug-in ECE with its bins held fixed."""
    influence: Float = np.sign(bins.gap)[bins.row_bin]
    influence *= correct - confidence
    influence -= l1(bins)
    return influence
