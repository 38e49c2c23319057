"""Rows accepted in the order of a score: blocks of ties, running sums, and the areas under them.

One tie rule: a block of tied scores is accepted in random order, and every number is the expectation over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int


class Blocks(NamedTuple):
    """Rows in order of the score, in blocks of tied scores."""

    row: Int  # the rows in order
    first: Int  # where each block starts
    size: Int  # rows in each block
    weight: Float  # their weight
    bad: Float  # their weighted loss


def tie_blocks(score: Float, loss: NDArray[Any], weights: Float | None) -> Blocks:
    """Blocks of tied scores with their weight and loss; sums do not depend on the order of rows."""
    if weights is None and loss.dtype == np.uint8:
        order = kernels.order_by(score)
        row, start = order.row, order.start
    else:  # float sums: fix the order inside a block too
        keys = (loss,) if weights is None else (weights, loss)
        row = np.lexsort((*keys, score + 0.0))
        s = score[row]
        new = np.concatenate([[True], s[1:] != s[:-1]])
        start = np.maximum.accumulate(np.where(new, np.arange(len(s)), 0))
    first = np.flatnonzero(start == np.arange(len(start)))
    size = np.diff(first, append=len(row))
    bad = loss[row].astype(np.float64)
    if weights is None:
        return Blocks(row, first, size, size.astype(np.float64), np.add.reduceat(bad, first))
    w = weights[row]
    return Blocks(row, first, size, np.add.reduceat(w, first), np.add.reduceat(bad * w, first))


class Steps(NamedTuple):
    """The tie-averaged walk: every row of a block weighs and errs as the block does on average."""

    step: Float  # weight of each step
    weight: Float  # weight accepted after it
    risk: Float  # loss accepted after it, per weight accepted


def walk(blocks: Blocks) -> Steps:
    """Rows one by one from the most certain."""
    size = blocks.size
    inside = np.arange(1, len(blocks.row) + 1) - np.repeat(blocks.first, size)
    before_weight = np.cumsum(blocks.weight) - blocks.weight
    before_bad = np.cumsum(blocks.bad) - blocks.bad
    step = np.repeat(blocks.weight / size, size)
    weight = np.repeat(before_weight, size) + inside * step
    bad = np.repeat(before_bad, size) + inside * np.repeat(blocks.bad / size, size)
    return Steps(step, weight, bad / weight)


def mean_risk(steps: Steps) -> float:
    """AURC of a walk."""
    if steps.risk.min() == steps.risk.max():
        return float(steps.risk[0])
    return float((steps.step * steps.risk).sum() / steps.step.sum())


class Areas(NamedTuple):
    """What every metric of this module is computed from: numbers, or arrays of them (resamples)."""

    aurc: Any
    excess: Any  # AURC less that of the oracle, which orders rows by their loss
    span: Any  # the excess of a useless score: error rate less the oracle's AURC; 0 where all losses are equal
    augrc: Any
    h_auc: Any


@dataclass(frozen=True)
class Formula:
    """A metric as a function of the areas, and its slope in each of them, to be divided by `per`."""

    value: Callable[[Any], Any]
    slopes: Callable[[Any], Areas]
    per: Callable[[Any], float] = lambda areas: 1.0


def _ratio(areas: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(areas.span > 0, np.divide(areas.excess, areas.span), np.nan)[()]


AURC = Formula(lambda areas: areas.aurc, lambda areas: Areas(1.0, 0.0, 0.0, 0.0, 0.0))
EXCESS = Formula(lambda areas: areas.excess, lambda areas: Areas(0.0, 1.0, 0.0, 0.0, 0.0))
RATIO = Formula(_ratio, lambda areas: Areas(0.0, 1.0, -areas.excess / areas.span, 0.0, 0.0), lambda areas: areas.span)
AUGRC = Formula(lambda areas: areas.augrc, lambda areas: Areas(0.0, 0.0, 0.0, 1.0, 0.0))
H_AUC = Formula(lambda areas: areas.h_auc, lambda areas: Areas(0.0, 0.0, 0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Accepted:
    """The risk of the surest share of the rows. Places run from 0 to the total weight; a tied block takes a stretch."""

    coverage: float

    def value(self, areas: Any) -> Any:
        return areas.accepted(self.coverage)[0]

    def share(self, start: Any, stop: Any, total: float) -> Any:
        """How much of a stretch is accepted: of tied rows, the expectation over their order."""
        return np.clip((self.coverage * total - start) / (stop - start), 0.0, 1.0)

    def near(self, start: Any, stop: Any, total: float, rows: int) -> Any:
        """How much of a stretch lies next to the cut: as many rows as tell the risk there, n^(2/3) of them."""
        cut, half = self.coverage * total, total / rows ** (1 / 3) / 2
        inside = np.minimum(stop, cut + half) - np.maximum(start, cut - half)
        return np.maximum(inside, 0.0) / (stop - start)


@dataclass(frozen=True)
class Ranked:
    """Clean rows in order of a score: the areas, each computed when it is asked for."""

    score: Float
    loss: NDArray[Any]  # 0/1 errors as uint8, or a loss in [0, 1]
    weights: Float | None = None

    @cached_property
    def blocks(self) -> Blocks:
        return tie_blocks(self.score, self.loss, self.weights)

    @cached_property
    def steps(self) -> Steps:
        return walk(self.blocks)

    @cached_property
    def oracle(self) -> Ranked:
        """The same rows in order of their loss."""
        return Ranked(self.loss.astype(np.float64), self.loss, self.weights)

    @cached_property
    def rate(self) -> float:
        return float(self.blocks.bad.sum() / self.blocks.weight.sum())

    @cached_property
    def aurc(self) -> float:
        return mean_risk(self.steps)

    @cached_property
    def excess(self) -> float:
        return self.aurc - self.oracle.aurc

    @cached_property
    def span(self) -> float:
        return 0.0 if self.loss.min() == self.loss.max() else self.rate - self.oracle.aurc

    @cached_property
    def augrc(self) -> float:
        """Trapezoid of accepted loss against coverage, one vertex per distinct score; exact for 0/1 errors."""
        blocks = self.blocks
        before = np.cumsum(blocks.bad) - blocks.bad
        total = blocks.weight.sum()
        if (blocks.bad == blocks.weight).all():
            return 0.5  # every row wrong: exactly, whatever the weights round to
        return min(0.5, float((blocks.weight * (2 * before + blocks.bad)).sum() / (2 * total * total)))

    def accepted(self, coverage: float) -> tuple[float, float]:
        """Risk of the surest share, and risk of the rows next to the cut."""
        rule, blocks = Accepted(coverage), self.blocks
        stop = np.cumsum(blocks.weight)
        start, total = stop - blocks.weight, float(stop[-1])
        near = rule.near(start, stop, total, len(blocks.row))
        risk = float((blocks.bad * rule.share(start, stop, total)).sum()) / (coverage * total)
        return min(1.0, risk), float((blocks.bad * near).sum() / (blocks.weight * near).sum())

    @cached_property
    def h_auc(self) -> float:
        blocks = self.blocks
        right = blocks.weight - blocks.bad
        before = np.cumsum(right) - right
        total = blocks.weight.sum()
        return float((blocks.bad * (2 * before + right)).sum() / (2 * total * total))
