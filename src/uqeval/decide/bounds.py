"""Evidence about a risk: p-values that it is below a target, e-values that it has risen above one.

Every p-value here is for the hypothesis "the risk is above `max_risk`": small means that it may be relied on.
Pure functions of counts and sums; which sets are tested, and in what order, is for `walks`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float

FEW_CLUSTERS = 10  # below that many clusters nothing is certified
# The surer one must be, the more large wrong clusters luck may have left out: so many (second column) are made up where
# the chance of a false promise is at least the first.
_MADE_UP = (0.038, 1.0), (0.0095, 1.5), (0.003, 2.0), (0.0008, 2.5), (0.0003, 3.0), (0.0001, 3.5), (0.0, 4.0)
# Mixtures of stakes, so that nothing is tuned to the data. Shares of the largest stake that cannot ruin, for bets that
# a risk is lower; steps from the smallest to the largest stake, on the log scale, for bets that it has risen.
SHARES: Float = np.concatenate([2.0 ** np.arange(-9.0, -3.0), np.arange(2.0, 17.0) / 16])
RISES: Float = np.arange(12.0) / 11


def binomial_p(errors: NDArray[Any], accepted: NDArray[Any], max_risk: float | Float) -> Float:
    """P(Bin(accepted, max_risk) ≤ errors): exact for 0/1 errors of independent rows; 1 where nothing is accepted."""
    from scipy.special import betainc

    e, k = np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64)
    right = k - e
    return np.where(right > 0, betainc(np.where(right > 0, right, 1.0), e + 1, 1 - max_risk), 1.0)


def hoeffding_bentkus_p(total: Float, accepted: NDArray[Any], max_risk: float | Float) -> Float:
    """For losses in [0, 1] (Bates, Angelopoulos, Lei, Malik & Jordan 2021): from their number and total alone."""
    k = np.maximum(np.asarray(accepted, dtype=np.float64), 1.0)
    mean = np.minimum(np.asarray(total, dtype=np.float64) / k, max_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(mean > 0, mean * np.log(mean / max_risk), 0.0)
        divergence = low + (1 - mean) * np.log((1 - mean) / (1 - max_risk))
    hoeffding = np.exp(-k * divergence)
    # A total that is an integer but for rounding must not count one more.
    bentkus = math.e * binomial_p(np.minimum(np.ceil(np.asarray(total) - 1e-9), k), np.asarray(k), max_risk)
    return np.where(np.asarray(accepted) > 0, np.minimum(1.0, np.minimum(hoeffding, bentkus)), 1.0)


def betting_scale(max_risk: float) -> Float:
    """Stakes λ: each loss L multiplies the wealth by 1 + λ(max_risk − L)."""
    return SHARES / (1 - max_risk)


def betting_p(log_wealth: Float) -> Float:
    """1 / (mean wealth over the stakes), at most 1; `log_wealth` has one entry per stake on its last axis.

    Betting against "mean loss ≥ max_risk" (Waudby-Smith & Ramdas 2024) with a fixed mixture of stakes, so that
    the result does not depend on the order of rows.
    """
    return np.exp(-np.maximum(0.0, log_mean_exp(log_wealth)))


def log_mean_exp(x: Float) -> Float:
    """log of the mean of exp over the last axis, without overflow."""
    top = x.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).mean(axis=-1)) + top[..., 0]


def rise_excesses(max_risk: float) -> Float:
    """By how much of itself a risk has risen where a stake is best (Kelly): 10% to 18 times, or what is possible."""
    most = min(18.0, 0.95 * (1 - max_risk) / max_risk)  # a bet may lose 95% of its stake, not all
    least = min(0.1, most / 8)
    return least * (most / least) ** RISES


def rise_log_e(losses: Float, max_risk: float) -> Float:
    """log wealth per stake of bets that losses average more than `max_risk`; add them up over batches."""
    scale = rise_excesses(max_risk) / (1 - max_risk)
    if ((losses == 0) | (losses == 1)).all():  # counts will do
        wrong = float(losses.sum())
        return wrong * np.log1p(scale * (1 - max_risk)) + (len(losses) - wrong) * np.log1p(-scale * max_risk)
    return np.log1p(scale[:, None] * (np.sort(losses) - max_risk)).sum(axis=1)


class Moments(NamedTuple):
    """What the tests need of clusters: how many have rows that count, and sums over them of loss and rows."""

    clusters: Float
    loss: Float
    rows: Float
    loss2: Float
    both: Float
    rows2: Float


def moments(total: Float, rows: Float) -> Moments:
    """Of one region: `total` and `rows` are the loss and the number of the rows that count of each cluster."""
    sums = (rows > 0).sum(), total.sum(), rows.sum(), (total**2).sum(), (total * rows).sum(), (rows**2).sum()
    return Moments(*(np.array([x], dtype=np.float64) for x in sums))


def made_up_clusters(delta: float) -> float:
    """How many `cluster_p` needs for a promise that may fail with probability `delta`: by simulation, down to 0.0001.

    With one for all, a single test at 0.01 (0.001) passed up to 1.5 (4.8) times as often as it may; with these, up to
    1.1 times (1.25 at 0.0001).
    """
    return next(number for least, number in _MADE_UP if delta >= least)


def cluster_p(
    of: Moments, max_risk: float | Float, *, largest: float, copies: float = 1.0, made_up: float = 1.0
) -> Float:
    """For losses in clusters: the larger of two p-values, so that both must be small.

    Both count `made_up` clusters that are all wrong and have as many rows as a cluster can have (`largest`): where
    wrong ones are large, those that luck left out would have changed the mean, and no row here knows of them. One is
    a t-test on the clusters' excess loss; alone it is too bold for small levels and uneven clusters, hence the other:
    the exact binomial at the effective number of rows (Korn & Graubard 1998). Asymptotic, not exact.
    Where clusters are so uneven that a random row lives in one more than twice the average size, the variance is not
    trusted (a large wrong cluster is too easily missing by luck): the rows of a cluster then count as one.
    `copies` answers for a sample that many times as large.
    """
    from scipy.special import stdtr

    enough = copies * of.clusters >= FEW_CLUSTERS
    clusters, rows = np.where(enough, of.clusters, 1.0), np.where(of.rows > 0, of.rows, 1.0)
    count, most = copies * clusters, (1 - max_risk) * largest
    excess = of.loss - max_risk * of.rows
    squares = of.loss2 - 2 * max_risk * of.both + max_risk**2 * of.rows2
    mean = (copies * excess + made_up * most) / (count + made_up)
    around = np.maximum(0.0, squares - 2 * mean * excess + clusters * mean**2)
    error = np.sqrt((copies * around + made_up * (most - mean) ** 2) / (count + made_up - 1) / (count + made_up))
    t_test = np.where(error > 0, stdtr(np.maximum(count - 1, 1), mean / np.where(error > 0, error, 1.0)), 1.0)
    size = effective_rows(of, largest=largest, copies=copies, made_up=made_up)
    uneven = of.rows2 * of.clusters > 2 * of.rows**2
    size = np.where(uneven, np.minimum(size, copies * of.rows**2 / np.where(uneven, of.rows2, 1.0)), size)
    return np.where(enough, np.maximum(t_test, binomial_p(size * of.loss / rows, size, max_risk)), 1.0)


def effective_rows(of: Moments, *, largest: float | None = None, copies: float = 1.0, made_up: float = 1.0) -> Float:
    """How many independent 0/1 rows would tell the mean loss as well: risk·(1 − risk) / variance of the mean.

    Risk and variance are taken with `made_up` clusters more, all wrong, so that few errors do not look like none: of
    `largest` rows, or of the size in which a random row lives.
    """
    rows = np.where(of.rows > 0, of.rows, 1.0)
    size, count = of.rows2 / rows if largest is None else largest, copies * np.maximum(of.clusters, 1.0)
    weight = copies * rows + made_up * size
    risk = (copies * of.loss + made_up * size) / weight
    around = np.maximum(0.0, of.loss2 - 2 * risk * of.both + risk**2 * of.rows2)
    squares = copies * around + made_up * (size * (1 - risk)) ** 2
    variance = squares / weight**2 * (count + made_up) / (count + made_up - 1)
    return np.where(variance > 0, risk * (1 - risk) / np.where(variance > 0, variance, 1.0), count)
