"""Selective prediction: how many errors are accepted when the most uncertain rows are sent to a human?

One tie rule: a block of tied scores is accepted in random order, and every number is the expectation over it.
Two different areas live here and must not be mixed up: Geifman's AURC averages the risk over coverages, while
AUGRC (Traub et al. 2024) averages the accepted errors; the G-AUC of the paper is 2·AUGRC and not AURC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import kernels
from uqeval._check import Float, Int, Nan, check_rows
from uqeval._errors import InputError, UndefinedMetricWarning, notify

__all__ = [
    "RiskCurve",
    "auarc",
    "augrc",
    "aurc",
    "e_aurc",
    "g_auc",
    "h_auc",
    "mbc_curve",
    "mce_curve",
    "naurc",
    "prr",
    "risk_coverage_curve",
    "selective_accuracy",
]


Kind = Literal["error", "loss01"]


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


def _ranked(score: ArrayLike, error: ArrayLike, weights: ArrayLike | None, nan: Nan, kind: Kind = "loss01") -> Ranked:
    return Ranked(*check_rows(score, error, weights, kind=kind, nan=nan)[:3])


def aurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Area under the risk–coverage curve (Geifman & El-Yaniv 2018): the mean risk over coverages 1/n, 2/n, …, 1.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    weights : array-like of shape (n,), optional
        Row weights ≥ 0. A weight of 2 is not the same as two copies: AURC counts coverages row by row.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1], lower is better; a constant score gets the error rate.

    Examples
    --------
    >>> aurc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0625
    """
    return _ranked(score, error, weights, nan).aurc


def e_aurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """AURC minus the AURC of the oracle on the same rows: 0 for a perfect ranking, never below 0 without weights.

    Examples
    --------
    >>> e_aurc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0
    """
    return _ranked(score, error, weights, nan, "error").excess


def naurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """AURC between the oracle (0) and a useless score (1); above 1 is worse than useless.

    `error` may be a loss in [0, 1]. NaN (with a warning) where all rows have the same loss.

    Examples
    --------
    >>> naurc(score=[0, 0, 0, 0], error=[0, 1, 0, 0])
    1.0
    """
    return _defined(_ranked(score, error, weights, nan))


def _defined(ranked: Ranked) -> float:
    if ranked.span == 0:
        notify("nAURC is undefined: all losses are equal.", UndefinedMetricWarning, stacklevel=3)
    return float(RATIO.value(ranked))


def prr(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Prediction–rejection ratio over the full range, 1 − nAURC: 1 for the oracle, 0 for a useless score.

    `error` may be a loss in [0, 1], as 1 − quality of a generated text.

    Examples
    --------
    >>> prr(score=[1, 2, 3, 4], error=[0, 0, 0.5, 1])
    1.0
    """
    return 1.0 - _defined(_ranked(score, error, weights, nan))


def auarc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Area under the accuracy–rejection curve, 1 − AURC. `error` may be a loss in [0, 1].

    Examples
    --------
    >>> auarc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.9375
    """
    return 1.0 - _ranked(score, error, weights, nan).aurc


def augrc(
    score: ArrayLike,
    error: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    unbiased: bool = False,
    nan: Nan = "raise",
) -> float:
    """Area under the generalised risk–coverage curve (Traub et al. 2024): mean share of accepted errors.

    For 0/1 errors it equals (1 − UQ-AUC)·err·(1 − err) + err²/2 exactly. It is not AURC, which averages
    the risk among accepted rows instead and can order two scores the other way round.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    unbiased : bool
        Leave out the pairs of a row with itself.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1/2], lower is better; the optimum is err²/2.

    Examples
    --------
    >>> augrc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.03125
    """
    ranked = _ranked(score, error, weights, nan)
    if not unbiased:
        return ranked.augrc
    w = np.ones(len(ranked.loss)) if ranked.weights is None else ranked.weights
    total, own = kernels.order_free_sum(w), kernels.order_free_sum(w * w)
    return (ranked.augrc * total * total - kernels.order_free_sum(w * w * ranked.loss) / 2) / (total * total - own)


def g_auc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """The paper's G-AUC, (1 − ACC)² + 2·(1 − UQ-AUC)·(1 − ACC)·ACC, which is 2·AUGRC.

    The paper calls it AURC, but its proof takes a ratio of averages where Geifman's AURC is an average of
    ratios; the two can order scores differently. Lower is better.

    Examples
    --------
    >>> g_auc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0625
    """
    return 2.0 * _ranked(score, error, weights, nan, "error").augrc


def h_auc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """The paper's H-AUC, UQ-AUC·(1 − ACC)·ACC, in [0, 1/4], higher is better.

    Only for scores of one and the same predictor: across models a less accurate one can look better.

    Examples
    --------
    >>> h_auc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.1875
    """
    return _ranked(score, error, weights, nan, "error").h_auc


def selective_accuracy(
    score: ArrayLike,
    error: ArrayLike,
    coverage: float = 0.9,
    *,
    weights: ArrayLike | None = None,
    nan: Nan = "raise",
) -> float:
    """Accuracy of the surest predictions: of the share `coverage` of the rows with the lowest scores.

    Tied rows at the cut are accepted in random order, and so is a fraction of a row: the value is the expectation.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    coverage : float
        Share of the rows (by weight) that is accepted, above 0 and at most 1.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1]; 1 less the risk at that coverage. At coverage 1 it is the accuracy.

    Examples
    --------
    >>> selective_accuracy(score=[1, 2, 3, 4, 5], error=[0, 0, 0, 1, 1], coverage=0.8)
    0.75
    """
    if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.number) or not 0 < coverage <= 1:
        raise InputError(f"`coverage` must lie in (0, 1], as 0.9; it is {coverage!r}.")
    return 1.0 - _ranked(score, error, weights, nan).accepted(float(coverage))[0]


# ---- curves ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RiskCurve:
    """Risk inside the sub-level sets {score ≤ threshold}, one entry per distinct score, most certain first."""

    threshold: Float
    coverage: Float
    risk: Float
    accepted: Int
    bad: Float  # loss (or number of errors) accepted, by weight

    def __len__(self) -> int:
        return len(self.threshold)


def _curve(score: ArrayLike, error: ArrayLike, weights: ArrayLike | None, nan: Nan, name: str, kind: Kind) -> RiskCurve:
    s, e, w, _ = check_rows(score, error, weights, kind=kind, name=name, nan=nan)
    blocks = tie_blocks(s, e, w)
    weight, bad = np.cumsum(blocks.weight), np.cumsum(blocks.bad)
    return RiskCurve(
        threshold=s[blocks.row[blocks.first]] + 0.0,
        coverage=weight / weight[-1],
        risk=bad / weight,
        accepted=np.cumsum(blocks.size),
        bad=bad,
    )


def risk_coverage_curve(
    score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> RiskCurve:
    """Risk among the accepted rows against the share accepted; `error` may be a loss in [0, 1].

    A block of tied scores is one vertex: it is accepted whole or not at all.

    Examples
    --------
    >>> curve = risk_coverage_curve(score=[0.1, 0.2, 0.2, 0.9], error=[0, 0, 1, 1])
    >>> curve.coverage.tolist(), curve.risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    return _curve(score, error, weights, nan, "error", "loss01")


def mce_curve(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> RiskCurve:
    """Misclassification error inside sub-level sets, MCE_s(β) = P(wrong | score ≤ β), at every distinct β.

    It need not rise with β in a finite sample and is not smoothed.

    Examples
    --------
    >>> mce_curve(score=[0.1, 0.2, 0.3], error=[1, 0, 0]).risk.round(3).tolist()
    [1.0, 0.5, 0.333]
    """
    return _curve(score, error, weights, nan, "error", "error")


def mbc_curve(
    score: ArrayLike, misaligned: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> RiskCurve:
    """Misalignment with the Bayes label inside sub-level sets, MBC_s(β); `misaligned` from `truth.misaligned`.

    Examples
    --------
    >>> mbc_curve(score=[0.1, 0.2], misaligned=[0, 1]).risk.tolist()
    [0.0, 0.5]
    """
    return _curve(score, misaligned, weights, nan, "misaligned", "error")
