"""Confidence intervals from a value, its standard error and the degrees of freedom.

Which interval belongs to which metric was chosen by simulation and is written in `estimate`.
"""

import math
import sys
import threading
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._lanes import Number, choose, exp, isnan, larger, log, smaller, sqrt

NAN = float("nan")


def load_beside() -> None:
    """Loads SciPy's special functions, which takes a fifth of a second, while rows are counted."""
    if "scipy.special" not in sys.modules:
        threading.Thread(target=import_module, args=("scipy.special",)).start()


class Interval(NamedTuple):
    """Ends, or arrays of them with a lane for each group: all forms here take both (`_lanes`)."""

    low: Number
    high: Number


UNKNOWN = Interval(NAN, NAN)


def settled(se: Number, scale: Number = 1.0) -> Number:
    """The standard error, or exactly 0 where it is nothing but rounding."""
    return choose(se <= 1e-12 * scale, lambda: 0.0, lambda: se)


@lru_cache
def z_quantile(level: float) -> float:
    """Half-width of a two-sided normal interval in standard errors."""
    from scipy.special import ndtri

    return float(-ndtri((1 - level) / 2))


def t_quantile(level: float, df: Number) -> Number:
    """Half-width of a two-sided t interval; infinite for df ≤ 0."""
    if not isinstance(df, np.ndarray):
        return _t_quantile(level, df)
    from scipy.special import stdtrit

    each, lane = np.unique(df, return_inverse=True)  # groups of like size ask for the same
    found = np.where(each > 1e9, z_quantile(level), -stdtrit(np.where(each > 0, each, 1.0), (1 - level) / 2))
    return np.where((each > 0) & ~np.isnan(found), found, math.inf)[lane]


@lru_cache(maxsize=4096)  # several metrics of a test set ask for the same
def _t_quantile(level: float, df: float) -> float:
    from scipy.special import stdtrit

    if not df > 0:
        return math.inf
    if df > 1e9:  # stdtrit loses digits long after t and normal agree
        return z_quantile(level)
    quantile = float(-stdtrit(df, (1 - level) / 2))
    return quantile if quantile == quantile else math.inf


def t_interval(value: Number, se: Number, level: float, df: Number) -> Interval:
    """value ± t·se."""

    def known() -> Interval:
        half = choose(se > 0, lambda: t_quantile(level, df) * se, lambda: 0.0)
        return Interval(value - half, value + half)

    return choose(isnan(value - value) | isnan(se), lambda: UNKNOWN, known)  # ∞ − ∞ is NaN


def logit_t(value: Number, se: Number, level: float, df: Number) -> Interval:
    """t interval on the logit scale, for a value strictly inside (0, 1)."""
    centre = log(value / (1 - value))
    half = t_quantile(level, df) * se / (value * (1 - value))
    return Interval(_expit(centre - half), _expit(centre + half))


def log_t(value: Number, se: Number, level: float, df: Number, cap: float = math.inf) -> Interval:
    """t interval on the log scale, for a positive value."""
    half = t_quantile(level, df) * se / value
    return choose(
        half > 700, lambda: Interval(0.0, cap), lambda: Interval(value * exp(-half), smaller(cap, value * exp(half)))
    )


def wilson(share: Number, size: Number, level: float) -> Interval:
    """Score interval of a share from `size` (effective) trials; informative at 0 and 1 too."""
    z2 = z_quantile(level) ** 2
    centre = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = sqrt(share * (1 - share) / size * z2 + (z2 / (2 * size)) ** 2) / (1 + z2 / size)
    low = choose(share == 0, lambda: 0.0, lambda: larger(0.0, centre - half))
    return Interval(low, choose(share == 1, lambda: 1.0, lambda: smaller(1.0, centre + half)))


def clopper_pearson(hits: Number, trials: Number, level: float) -> Interval:
    """Exact interval of a binomial share."""
    if not isinstance(hits, np.ndarray):
        return _one_share(hits, trials, level)
    pairs, lane = np.unique(hits + 1j * trials, return_inverse=True)  # groups of like size ask for the same
    low, high = _clopper_pearson(pairs.real, pairs.imag, level)
    return Interval(low[lane], high[lane])


@lru_cache(maxsize=4096)
def _one_share(hits: float, trials: float, level: float) -> Interval:
    low, high = _clopper_pearson(np.array([hits]), np.array([trials]), level)
    return Interval(float(low[0]), float(high[0]))


def _clopper_pearson(
    hits: NDArray[np.float64], trials: NDArray[np.float64], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from scipy.special import betaincinv

    alpha = 1 - level
    misses = trials - hits
    low = betaincinv(np.where(hits > 0, hits, 1.0), misses + 1, alpha / 2)
    high = betaincinv(hits + 1, np.where(misses > 0, misses, 1.0), 1 - alpha / 2)
    return np.where(hits == 0, 0.0, low), np.where(misses == 0, 1.0, high)


def beta_quantile(mean: Number, variance: Number, tail: float) -> Number:
    """Of the Beta law with that mean and variance; the end of [0, 1] where a variance is too large for any."""
    from scipy.special import betaincinv

    end = 0.0 if tail < 0.5 else 1.0

    def known() -> Number:
        size = mean * (1 - mean) / variance - 1
        return choose(size > 0, lambda: betaincinv(mean * size, (1 - mean) * size, tail) + 0.0, lambda: end)

    inside = (variance > 0) & (mean > 0) & (mean < 1)
    found = choose(inside, known, lambda: mean)
    return found if isinstance(found, np.ndarray) else float(found)


def hull(first: Interval, second: Interval) -> Interval:
    """What covers both."""
    return Interval(smaller(first.low, second.low), larger(first.high, second.high))


def fay_feuer(value: Number, variance: Number, largest: Number, level: float, cap: float) -> Interval:
    """Gamma interval (Fay & Feuer 1997) of Σ weight·count for few events; works at no event.

    `largest` is the weight that one more event could have had.
    """
    from scipy.special import gammaincinv

    alpha = 1 - level
    low = choose(
        (value > 0) & (variance > 0),
        lambda: variance / value * gammaincinv(value**2 / variance, alpha / 2),
        lambda: 0.0,
    )
    up_value, up_variance = value + largest, variance + largest * largest
    high = smaller(cap, up_variance / up_value * gammaincinv(up_value * up_value / up_variance, 1 - alpha / 2))
    return Interval(low, high) if isinstance(high, np.ndarray) else Interval(float(low), float(high))


def risk_band(
    accepted: NDArray[np.int64], errors: NDArray[np.float64], level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pointwise Clopper–Pearson band of the error rate inside sub-level sets (`mce_curve`, `mbc_curve`)."""
    return _clopper_pearson(errors.astype(np.float64), accepted.astype(np.float64), level)


def _expit(x: Number) -> Number:
    return choose(
        x >= 0,
        lambda: 1.0 / (1.0 + exp(-smaller(x, 745.0))),
        lambda: exp(larger(x, -745.0)) / (1.0 + exp(larger(x, -745.0))),
    )
