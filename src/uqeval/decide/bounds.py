"""Evidence about a risk: p-values that it is below a target, e-values that it has risen above one.

Every p-value here is for the hypothesis "the risk is above `max_risk`": small means that it may be relied on.
Pure functions of counts and sums; which sets are tested, and in what order, is for `walks`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float

FEW_CLUSTERS = 10  # below that many clusters nothing is certified
# Mixtures of stakes, so that nothing is tuned to the data. Shares of the largest stake that cannot ruin, for bets that
# a risk is lower; the excess of the risk that a stake is best for, for bets that it has risen (1.1 to 19 times).
SHARES: Float = np.concatenate([2.0 ** np.arange(-9.0, -3.0), np.arange(2.0, 17.0) / 16])
EXCESSES: Float = 0.1 * 1.6 ** np.arange(12.0)


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
    bentkus = np.e * binomial_p(np.minimum(np.ceil(np.asarray(total) - 1e-9), k), np.asarray(k), max_risk)
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


def rise_log_e(losses: Float, max_risk: float) -> Float:
    """log wealth per stake of bets that losses average more than `max_risk`; add them up over batches."""
    scale = np.minimum(EXCESSES / (1 - max_risk), 0.95 / max_risk)
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


def cluster_p(of: Moments, max_risk: float, *, copies: float = 1.0) -> Float:
    """For losses in clusters: the larger of two p-values, so that both must be small.

    One is a t-test on the clusters' excess loss with one made-up cluster of average size that is all wrong: without it
    the test is far too bold where errors are rare. The t-test alone is too bold for small levels and uneven clusters,
    hence the other: the exact binomial at the effective number of rows (Korn & Graubard 1998). Asymptotic, not exact.
    Where clusters are so uneven that a random row lives in one more than twice the average size, the variance is not
    trusted (a large wrong cluster is too easily missing by luck): the rows of a cluster then count as one.
    `copies` answers for a sample that many times as large.
    """
    from scipy.special import stdtr

    enough = copies * of.clusters >= FEW_CLUSTERS
    clusters, rows = np.where(enough, of.clusters, 1.0), np.where(of.rows > 0, of.rows, 1.0)
    count, made_up = copies * clusters, (1 - max_risk) * rows / clusters
    excess = of.loss - max_risk * of.rows
    squares = of.loss2 - 2 * max_risk * of.both + max_risk**2 * of.rows2
    mean = (copies * excess + made_up) / (count + 1)
    around = np.maximum(0.0, squares - 2 * mean * excess + clusters * mean**2)
    error = np.sqrt((copies * around + (made_up - mean) ** 2) / count / (count + 1))
    t_test = np.where(error > 0, stdtr(np.maximum(count - 1, 1), mean / np.where(error > 0, error, 1.0)), 1.0)
    size = effective_rows(of, copies=copies)
    uneven = of.rows2 * of.clusters > 2 * of.rows**2
    size = np.where(uneven, np.minimum(size, copies * of.rows**2 / np.where(uneven, of.rows2, 1.0)), size)
    return np.where(enough, np.maximum(t_test, binomial_p(size * of.loss / rows, size, max_risk)), 1.0)


def effective_rows(of: Moments, *, copies: float = 1.0) -> Float:
    """How many independent 0/1 rows would tell the mean loss as well: risk·(1 − risk) / variance of the mean.

    Risk and variance are taken with one more cluster, all wrong, of the size in which a random row lives, so that
    few errors do not look like none.
    """
    rows = np.where(of.rows > 0, of.rows, 1.0)
    size, count = of.rows2 / rows, copies * np.maximum(of.clusters, 1.0)
    weight = copies * rows + size
    risk = (copies * of.loss + size) / weight
    around = np.maximum(0.0, of.loss2 - 2 * risk * of.both + risk**2 * of.rows2)
    variance = (copies * around + (size * (1 - risk)) ** 2) / weight**2 * (count + 1) / count
    return np.where(variance > 0, risk * (1 - risk) / np.where(variance > 0, variance, 1.0), count)
