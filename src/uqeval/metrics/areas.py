"""Rows accepted in the order of a score: blocks of ties, running sums, and the areas under them.

One tie rule: a block of tied scores is accepted in random order, and every number is the expectation over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Bit, Float, Int
from uqeval._lanes import Number, larger, smaller


class Ranking:
    """A number for each row, and the rows in its order: sorted when somebody first asks for it, and once."""

    def __init__(self, values: Float, order: kernels.Order | None = None) -> None:
        self.values = values
        if order is not None:
            self.order = order

    @cached_property
    def order(self) -> kernels.Order:
        return kernels.order_by(self.values)

    @property
    def ordered(self) -> bool:
        """Whether the order is there already."""
        return "order" in self.__dict__

    @cached_property
    def constant(self) -> bool:
        """Whether all rows have the same number."""
        if self.ordered:
            return self.order.values <= 1
        first, middle, last = self.values[0], self.values[len(self.values) // 2], self.values[-1]
        return bool(first == middle == last and self.values.min() == self.values.max())

    @cached_property
    def others(self) -> NDArray[np.int64]:
        """Of each row: the rows that have another number."""
        order, n = self.order, len(self.values)
        if not order.ties:
            return np.full(n, n - 1)
        others = np.empty(n, dtype=np.int64)
        others[order.row] = n - np.repeat(order.size, order.size)
        return others

    def marks(self, error: Bit) -> Bit:
        """In order: 1 if the row is wrong, plus 2 where a new number starts."""
        return kernels.mark_ordered(self.order, error) if self.ordered else kernels.mark(self.values, error)


class Blocks(NamedTuple):
    """Rows in order of the score, in blocks of tied scores."""

    row: NDArray[np.uint32]  # the rows in order
    first: Int  # where each block starts
    size: Int  # rows in each block
    weight: Float  # their weight
    bad: Float  # their weighted loss


def tie_blocks(ranking: Ranking, loss: NDArray[Any], weights: Float | None) -> Blocks:
    """Blocks of tied scores with their weight and loss; sums do not depend on the order of rows."""
    order = ranking.order
    row, first, size = order.row, order.first, order.size
    bad = loss[row].astype(np.float64)
    if weights is None:
        exact = np.add.reduceat if loss.dtype == np.uint8 else kernels.block_sums
        return Blocks(row, first, size, size.astype(np.float64), exact(bad, first))
    w = weights[row]
    return Blocks(row, first, size, kernels.block_sums(w, first), kernels.block_sums(bad * w, first))


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
    useless: Callable[[float], float]  # its value, by the mean loss, of a score that knows nothing
    per: Callable[[Any], float] = lambda areas: 1.0
    rejected: float = 1.0  # at most this share of the rows: risks count while no more are rejected


def _ratio(areas: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(areas.span > 0, np.divide(areas.excess, areas.span), np.nan)[()]


AURC = Formula(lambda areas: areas.aurc, lambda areas: Areas(1.0, 0.0, 0.0, 0.0, 0.0), lambda loss: loss)
EXCESS = Formula(
    lambda areas: areas.excess,
    lambda areas: Areas(0.0, 1.0, 0.0, 0.0, 0.0),
    lambda loss: -(1 - loss) * math.log1p(-loss) if loss < 1 else 0.0,
)
RATIO = Formula(
    _ratio,
    lambda areas: Areas(0.0, 1.0, -areas.excess / areas.span, 0.0, 0.0),
    lambda loss: 1.0,
    lambda areas: areas.span,
)
RATIO_50 = replace(RATIO, rejected=0.5)
AUGRC = Formula(lambda areas: areas.augrc, lambda areas: Areas(0.0, 0.0, 0.0, 1.0, 0.0), lambda loss: loss / 2)
H_AUC = Formula(
    lambda areas: areas.h_auc, lambda areas: Areas(0.0, 0.0, 0.0, 0.0, 1.0), lambda loss: loss * (1 - loss) / 2
)


@dataclass(frozen=True)
class Accepted:
    """The risk of the surest share of the rows. Places run from 0 to the total weight; a tied block takes a stretch."""

    coverage: float

    def useless(self, loss: float) -> float:
        """Its value of a score that knows nothing."""
        return loss

    def value(self, areas: Any) -> Any:
        return areas.accepted(self.coverage)[0]

    def share(self, start: Any, stop: Any, total: float) -> Any:
        """How much of a stretch is accepted: of tied rows, the expectation over their order."""
        return np.clip((self.coverage * total - start) / (stop - start), 0.0, 1.0)

    def next_to(self, total: Number, rows: Number) -> tuple[Number, Number]:
        """The stretch next to the cut: as many rows as tell the risk there, n^(2/3) of them."""
        cut, half = self.coverage * total, total / rows ** (1 / 3) / 2
        return larger(0.0, cut - half), smaller(1.0 * total, cut + half)

    def near(self, start: Any, stop: Any, total: float, rows: int) -> Any:
        """How much of a stretch lies next to the cut."""
        low, high = self.next_to(total, rows)
        inside = np.minimum(stop, high) - np.maximum(start, low)
        return np.maximum(inside, 0.0) / (stop - start)


@dataclass(frozen=True)
class Ranked:
    """Rows that weigh, or have a loss in [0, 1], in order of a score: the areas, each computed when it is asked for."""

    ranking: Ranking
    loss: NDArray[Any]  # 0/1 errors as uint8, or a loss in [0, 1]
    weights: Float | None = None
    losses: Ranking | None = None  # the loss as a ranking, where somebody has it
    rejected: float = 1.0  # AURC, excess and span are of the risks while at most that share of the rows is rejected

    @cached_property
    def blocks(self) -> Blocks:
        return tie_blocks(self.ranking, self.loss, self.weights)

    @cached_property
    def steps(self) -> Steps:
        return walk(self.blocks)

    @cached_property
    def late(self) -> float:
        """The share of the weight whose steps count: that of ⌊rejected·n⌋ of n rows, or of one."""
        n = len(self.loss)
        return max(1, int(self.rejected * n)) / n

    @cached_property
    def late_steps(self) -> Steps:
        """The walk, of each step the part that counts."""
        if self.rejected == 1.0:
            return self.steps
        (step, weight, _), n = self.steps, len(self.loss)
        before = weight[-1] * round((1 - self.late) * n) / n  # a whole number where rows weigh the same
        return self.steps._replace(step=np.clip(weight - before, 0.0, step))

    @cached_property
    def first_late(self) -> int:
        """The first step of which a part counts."""
        return int(np.argmax(self.late_steps.step > 1e-9 * self.steps.step))

    @cached_property
    def risk_before_late(self) -> float:
        """The risk where the steps that count start; between two steps their mean, the derivative to both sides."""
        first, risk = self.first_late, self.steps.risk
        whole = first and self.late_steps.step[first] >= (1 - 1e-9) * self.steps.step[first]
        return float((risk[first - 1] + risk[first]) / 2 if whole else risk[first])

    @cached_property
    def oracle(self) -> Ranked:
        """The same rows in order of their loss."""
        losses = Ranking(self.loss.astype(np.float64)) if self.losses is None else self.losses
        return Ranked(losses, self.loss, self.weights, losses, self.rejected)

    @cached_property
    def rate(self) -> float:
        return float(self.blocks.bad.sum() / self.blocks.weight.sum())

    @cached_property
    def aurc(self) -> float:
        if self.first_late == len(self.loss) - 1:
            return self.rate  # of all rows, in any order
        return mean_risk(self.late_steps)

    @cached_property
    def excess(self) -> float:
        apart = self.aurc - self.oracle.aurc
        if self.rejected < 1.0 and abs(apart) < 1e-13 * self.rate:
            return 0.0  # the rows that are kept all the way were added up in another order
        return apart

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
