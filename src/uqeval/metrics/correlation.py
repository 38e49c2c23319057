"""Rank correlation of a score with a ground truth that is known, as the error probability or the misalignment."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, Nan, check_rows
from uqeval._errors import UndefinedMetricWarning, notify
from uqeval.metrics.areas import Ranking


class PairRows(NamedTuple):
    """Row sums over the other rows: concordant − discordant, pairs that differ in score, in truth."""

    sign: Float
    score: Float
    truth: Float


def kendall_tau(score: ArrayLike, truth: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Kendall's tau-b: concordant minus discordant pairs over √(pairs untied in score · pairs untied in truth).

    Human soft labels tie massively, which pulls tau-b towards 0: look at `somers_d` beside it, and never compare
    data sets with different numbers of annotators.

    Returns
    -------
    float
        In [−1, 1]; NaN (with a warning) if score or truth is constant.

    Examples
    --------
    >>> kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == 4 / 6
    True
    """
    s, t, w, _ = check_rows(score, truth, weights, kind="loss", name="truth", nan=nan)
    rows = pair_rows(Ranking(s), Ranking(t), w)
    value = tau_b(*(_total(part, w) for part in rows), rounded=w is not None)
    if math.isnan(value):
        notify("Kendall's tau is undefined: score or truth is constant.", UndefinedMetricWarning, stacklevel=2)
    return value


def somers_d(score: ArrayLike, truth: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Somers' D of the score given the truth, 2·C − 1: only pairs that differ in the truth count.

    Examples
    --------
    >>> somers_d([1, 2, 3, 4], [0, 0, 1, 1])
    1.0
    """
    s, t, w, _ = check_rows(score, truth, weights, kind="loss", name="truth", nan=nan)
    rows = pair_rows(Ranking(s), Ranking(t), w)
    total = _total(rows.truth, w)
    if total == 0:
        notify("Somers' D is undefined: the truth is constant.", UndefinedMetricWarning, stacklevel=2)
        return float("nan")
    return _total(rows.sign, w) / total


def pair_rows(score: Ranking, truth: Ranking, weights: Float | None) -> PairRows:
    """Row sums for tau-b and D; integers (as float64) without weights."""
    if weights is None:
        credit2, comparable = kernels.ordered_counts(score.order, truth.order), _untied(truth)
        return PairRows(credit2 - comparable, _untied(score), comparable)
    credit, in_truth = kernels.weighted_pair_counts(score.order, truth.order, weights)
    _, in_score = kernels.weighted_pair_counts(truth.order, score.order, weights)
    return PairRows(2 * credit - in_truth, in_score, in_truth)


def tau_b(sign: float, in_score: float, in_truth: float, *, rounded: bool = False) -> float:
    """tau-b from pair totals; `rounded` sums of weights are taken as ±1 where only rounding keeps them from it."""
    product = float(in_score) * float(in_truth)
    if not product > 0:
        return float("nan")
    value = max(-1.0, min(1.0, float(sign) / math.sqrt(product)))
    return math.copysign(1.0, value) if rounded and 1 - abs(value) < 1e-14 else value


def _total(rows: Float, weights: Float | None) -> float:
    return kernels.order_free_sum(rows if weights is None else rows * weights)


def _untied(ranking: Ranking) -> Float:
    """How many rows differ from each."""
    order = ranking.order
    result = np.empty(len(order.row))
    result[order.row] = len(order.row) - np.repeat(order.size, order.size)
    return result
