"""Sums of 1/k over stretches of places: what AURC of a tied block is made of, without going through its rows."""

import math
from typing import Any

import numpy as np

from uqeval._check import Float, Int

_SERIES = 64  # from here on the asymptotic series are good to the last bit


def harmonic(start: int, stop: int, power: int = 1) -> float:
    """Σ 1/k^power for start < k ≤ stop, power 1 or 2."""
    if stop - start <= 4096:
        return float((1.0 / np.arange(start + 1, stop + 1, dtype=np.float64) ** power).sum())
    if start < _SERIES:
        return harmonic(start, _SERIES, power) + harmonic(_SERIES, stop, power)
    if power == 1:
        return math.log1p((stop - start) / start) + (_tail(stop) - _tail(start))
    # 1/k − 1/2k² + 1/6k³ − 1/30k⁵ is what is left after k.
    tail = [-1 / (2 * k**2) + 1 / (6 * k**3) - 1 / (30 * k**5) for k in (start, stop)]
    return (stop - start) / (start * stop) + (tail[0] - tail[1])


def harmonics(start: Int, stop: Int) -> Float:
    """`harmonic` of arrays, power 1."""
    table = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _SERIES + 1))])
    short = table[np.minimum(stop, _SERIES)] - table[np.minimum(start, _SERIES)]
    a, b = (np.maximum(x, _SERIES).astype(np.float64) for x in (start, stop))
    return short + np.log1p((b - a) / a) + (_tail(b) - _tail(a))


def _tail(k: Any) -> Any:
    """Σ 1/j to k is log k + a constant + this; log1p of both ends keeps the digits of a short stretch."""
    return 1 / (2 * k) - 1 / (12 * k**2) + 1 / (120 * k**4)
