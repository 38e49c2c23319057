"""Evidence about a risk: p-values that it is below a target, e-values that it has risen above one.

Every p-value here is for the hypothesis "the risk is above `max_risk`": small means that it may be relied on.
Pure functions of counts and sums; which sets are tested, and in what order, is for `walks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float

__all__ = [
    "FEW_CLUSTERS",
    "betting_p",
    "betting_scale",
    "binomial_p",
    "cluster_p",
    "fewest_bets",
    "fewest_clusters",
    "fewest_rows",
    "hoeffding_bentkus_p",
    "log_mean_exp",
    "rise_log_e",
]

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


def fewest_rows(max_risk: float, delta: float) -> int:
    """The fewest accepted rows that can be certified at all: with no error among them (1 − max_risk)^k ≤ delta."""
    return max(1, int(np.ceil(np.log(delta) / np.log1p(-max_risk) - 1e-9)))


def fewest_bets(max_risk: float, delta: float) -> int:
    """The same for `betting_p`: the fewest rows without any loss."""
    gain = np.log1p(betting_scale(max_risk) * max_risk)
    return _fewest(lambda k: float(betting_p(k * gain)), delta, fewest_rows(max_risk, delta))


def fewest_clusters(max_risk: float, delta: float) -> int:
    """The same for `cluster_p`: the fewest clusters of equal size without an error."""
    from scipy.special import stdtr

    return _fewest(lambda k: float(stdtr(k - 1, 1 - max_risk * (k + 1))), delta, FEW_CLUSTERS)


def _fewest(p: Callable[[int], float], delta: float, low: int) -> int:
    """The smallest count ≥ low whose p-value is at most delta; p falls with the count."""
    high = low
    while p(high) > delta:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if p(middle) <= delta else (middle + 1, high)
    return high


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
    return np.log1p(scale[:, None] * (np.sort(losses) - max_risk)).sum(axis=1)


def cluster_p(total: Float, rows: Float, max_risk: float, *, copies: float = 1.0) -> float:
    """One-sided t-test on the clusters' excess loss, with one made-up cluster of average size that is all wrong.

    `total` and `rows` are the loss and the number of the rows that count of each cluster; clusters without such
    rows are left out. Without the made-up cluster the test is far too bold where errors are rare. Asymptotic, not
    exact. `copies` answers for a sample that many times as large.
    """
    from scipy.special import stdtr

    some = rows > 0
    total, rows = total[some], rows[some]
    count = copies * len(rows)
    if count < FEW_CLUSTERS:
        return 1.0
    excess = total - max_risk * rows
    made_up = (1 - max_risk) * rows.mean()
    mean = (copies * excess.sum() + made_up) / (count + 1)
    spread = np.sqrt((copies * ((excess - mean) ** 2).sum() + (made_up - mean) ** 2) / count)
    if spread == 0:
        return 1.0
    return float(stdtr(count - 1, mean / (spread / np.sqrt(count + 1))))
