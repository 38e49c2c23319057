"""AURC piece by piece: what a bin of scores adds, from the rows before it.

The influence of a row on AURC is a part that its bin knows (`own`), less the same number for all rows of the bin,
known when all bins are done. So sums, means and spreads of `own` are enough for every variance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from uqeval._check import Bit, Float, Int
from uqeval.kernels import Order

__all__ = ["Area", "Spread", "area_of_point", "area_of_rows", "harmonic", "harmonics", "spread"]

_SERIES = 64  # from here on the asymptotic series are good to the last bit


class Spread(NamedTuple):
    """Rows, mean and sum of squared distances to the mean."""

    rows: int
    mean: float
    squares: float

    def about(self, centre: float) -> float:
        """Sum of squared distances to another centre."""
        return self.squares + self.rows * (self.mean - centre) ** 2


class Area(NamedTuple):
    """What a bin adds to AURC."""

    risk: float  # Σ risk after each of its rows
    risk_per_row: float  # Σ risk/rows accepted
    right: Spread  # of `own`
    wrong: Spread
    later2: float  # Σ over wrong rows of (mean of 1/k over the coverages k that accept the row)²


def spread(x: Float) -> Spread:
    if len(x) == 0:
        return Spread(0, 0.0, 0.0)
    mean = float(x.mean())
    gap = x - mean
    # No BLAS: its threads would change the last digits, and fight with ours.
    return Spread(len(x), mean, float((gap * gap).sum()))


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
    result: Float = short + np.log1p((b - a) / a) + (_tail(b) - _tail(a))
    return result


def _tail(k: Any) -> Any:
    """Σ 1/j to k is log k + a constant + this; log1p of both ends keeps the digits of a short stretch."""
    return 1 / (2 * k) - 1 / (12 * k**2) + 1 / (120 * k**4)


def area_of_rows(order: Order, error: Bit, before: int, wrong_before: int, total: int) -> tuple[Area, Float]:
    """What a bin adds, and `own` of its rows in sorted order.

    `order` sorts the bin by score, `error` is already in that order.
    """
    m = len(error)
    accepted = np.arange(before + 1, before + m + 1, dtype=np.float64)
    bad = np.cumsum(error, dtype=np.float64)
    first = size = None
    if order.ties:
        first = np.flatnonzero(order.start == np.arange(m))
        size = np.diff(first, append=m)
        ends = bad[first + size - 1]
        of_block = np.diff(ends, prepend=0.0)
        inside = np.arange(1, m + 1) - np.repeat(first, size)
        bad = np.repeat(ends - of_block, size) + inside * np.repeat(of_block / size, size)
    bad += wrong_before
    risk = bad / accepted
    per_row = 1.0 / accepted
    risk_per_row = risk * per_row
    later = np.cumsum(per_row[::-1])[::-1] + harmonic(before + m, total)
    own = risk - np.cumsum(risk_per_row[::-1])[::-1]
    if first is not None and size is not None:
        later, own = (np.repeat(np.add.reduceat(x, first) / size, size) for x in (later, own))
    wrong = error.view(np.bool_)
    of_wrong = later[wrong]
    own[wrong] += of_wrong
    area = Area(
        float(risk.sum()),
        float(risk_per_row.sum()),
        spread(own[~wrong]),
        spread(own[wrong]),
        float((of_wrong * of_wrong).sum()),
    )
    return area, own


def area_of_point(right: int, wrong: int, before: int, wrong_before: int, total: int) -> Area:
    """The same for rows that are all tied: each stands at every place of the block, on average."""
    m = right + wrong
    rate = wrong / m
    once, twice = harmonic(before, before + m), harmonic(before, before + m, 2)
    excess = wrong_before - before * rate  # risk after k rows of the block = rate + excess/(before + k)
    risk = wrong + excess * once
    risk_per_row = rate * once + excess * twice
    # Averages over the places of the block; what lies k places after the start counts k of m times.
    later = harmonic(before + m, total) + (m - before * once) / m
    own = risk / m - (risk - before * risk_per_row) / m
    return Area(risk, risk_per_row, Spread(right, own, 0.0), Spread(wrong, own + later, 0.0), wrong * later * later)
