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

NAN = float("nan")


def load_beside() -> None:
    """Loads SciPy's special functions, which takes a fifth of a second, while rows are counted."""
    if "scipy.special" not in sys.modules:
        threading.Thread(target=import_module, args=("scipy.special",)).start()


class Interval(NamedTuple):
    low: float
    high: float


UNKNOWN = Interval(NAN, NAN)


def settled(se: float, scale: float = 1.0) -> float:
    """The standard error, or exactly 0 where it is nothing but rounding."""
    return 0.0 if se <= 1e-12 * scale else se


@lru_cache
def z_quantile(level: float) -> float:
    """Half-width of a two-sided normal interval in standard errors."""
    from scipy.special import ndtri

    return float(-ndtri((1 - level) / 2))


@lru_cache(maxsize=4096)  # groups of like size ask for the same again and again
def t_quantile(level: float, df: float) -> float:
    """Half-width of a two-sided t interval; infinite for df ≤ 0."""
    from scipy.special import stdtrit

    if not df > 0:
        return math.inf
    if df > 1e9:  # stdtrit loses digits long after t and normal agree
        return z_quantile(level)
    quantile = float(-stdtrit(df, (1 - level) / 2))
    return quantile if quantile == quantile else math.inf


def t_interval(value: float, se: float, level: float, df: float) -> Interval:
    """value ± t·se."""
    if not math.isfinite(value) or math.isnan(se):
        return UNKNOWN
    half = t_quantile(level, df) * se if se > 0 else 0.0
    return Interval(value - half, value + half)


def logit_t(value: float, se: float, level: float, df: float) -> Interval:
    """t interval on the logit scale, for a value strictly inside (0, 1)."""
    centre = math.log(value / (1 - value))
    half = t_quantile(level, df) * se / (value * (1 - value))
    return Interval(_expit(centre - half), _expit(centre + half))


def log_t(value: float, se: float, level: float, df: float, cap: float = math.inf) -> Interval:
    """t interval on the log scale, for a positive value."""
    half = t_quantile(level, df) * se / value
    if half > 700:
        return Interval(0.0, cap)
    return Interval(value * math.exp(-half), min(cap, value * math.exp(half)))


def wilson(share: float, size: float, level: float) -> Interval:
    """Score interval of a share from `size` (effective) trials; informative at 0 and 1 too."""
    z2 = z_quantile(level) ** 2
    centre = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = math.sqrt(share * (1 - share) / size * z2 + (z2 / (2 * size)) ** 2) / (1 + z2 / size)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Interval(0.0 if share == 0 else low, 1.0 if share == 1 else high)


@lru_cache(maxsize=4096)
def clopper_pearson(hits: float, trials: float, level: float) -> Interval:
    """Exact interval of a binomial share."""
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


def fay_feuer(value: float, variance: float, largest: float, level: float, cap: float) -> Interval:
    """Gamma interval (Fay & Feuer 1997) of Σ weight·count for few events; works at no event.

    `largest` is the weight that one more event could have had.
    """
    from scipy.special import gammaincinv

    alpha = 1 - level
    low = 0.0
    if value > 0 and variance > 0:
        low = variance / value * float(gammaincinv(value**2 / variance, alpha / 2))
    up_value, up_variance = value + largest, variance + largest**2
    high = up_variance / up_value * float(gammaincinv(up_value**2 / up_variance, 1 - alpha / 2))
    return Interval(low, min(cap, high))


def risk_band(
    accepted: NDArray[np.int64], errors: NDArray[np.float64], level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pointwise Clopper–Pearson band of the error rate inside sub-level sets (`mce_curve`, `mbc_curve`)."""
    return _clopper_pearson(errors.astype(np.float64), accepted.astype(np.float64), level)


def _expit(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-min(x, 745.0)))
    return math.exp(max(x, -745.0)) / (1.0 + math.exp(max(x, -745.0)))
