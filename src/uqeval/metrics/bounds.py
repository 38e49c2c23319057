"""Certain bounds of metrics of 0/1 errors from counts: right and wrong rows of each stretch of scores, in order.

Rows of different stretches compare as their stretches do, rows of one value tie, and rows of one stretch may compare in
any way.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Int
from uqeval._result import number
from uqeval.metrics.harmonic import harmonics


@dataclass(frozen=True)
class Bounds:
    """The value lies between `lower` and `upper`, for certain; not a confidence interval."""

    lower: float
    upper: float

    @property
    def value(self) -> float:
        """The middle, at most half of `width` away from the value."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def width(self) -> float:
        """How much is left open: upper − lower."""
        return self.upper - self.lower

    @property
    def exact(self) -> bool:
        """Whether nothing is left open."""
        return self.lower == self.upper

    def to_dict(self) -> dict[str, float]:
        """Plain values by name."""
        return {"lower": self.lower, "upper": self.upper, "value": self.value, "width": self.width}

    def __str__(self) -> str:
        if self.exact or math.isnan(self.lower):
            return f"{number(self.lower, 5)} (exact)" if self.exact else "–"
        digits = min(9, max(3, 1 - math.floor(math.log10(self.width)))) if self.width > 0 else 9
        low, high = math.floor(10**digits * self.lower), math.ceil(10**digits * self.upper)  # outward
        return f"{low / 10**digits:.{digits}f} to {high / 10**digits:.{digits}f}, for certain"


def error_bounds(single: NDArray[np.bool_], right: Int, wrong: Int) -> tuple[Bounds, Bounds, Bounds]:
    """UQ-AUC, AURC and AUGRC; `single` are the stretches of one value."""
    bad, good = int(wrong.sum()), int(right.sum())
    low, high = _credit_bounds(single, right, wrong)
    auc = Bounds(low / (2 * bad * good), high / (2 * bad * good)) if bad and good else Bounds(math.nan, math.nan)
    # 2n²·AUGRC = errors² + 2·errors·right − twice the credit.
    most, n2 = bad * bad + 2 * bad * good, 2 * (bad + good) ** 2
    return auc, Bounds(*_aurc_bounds(single, right, wrong)), Bounds((most - high) / n2, (most - low) / n2)


def dot(a: Int, b: Int) -> int:
    """Σab of counts, exact at any size."""
    a, b = a.ravel(), b.ravel()
    if int(a.sum()) * int(b.max(initial=0)) < 2**63:
        return int(a @ b)
    total, mask = 0, (1 << 20) - 1
    for i in range(0, 63, 20):
        for j in range(0, 63, 20):
            total += int(((a >> i) & mask) @ ((b >> j) & mask)) << (i + j)
    return total


def _credit_bounds(single: NDArray[np.bool_], right: Int, wrong: Int) -> tuple[int, int]:
    """Twice the credit of all pairs (wrong, right): at least, at most. Tied pairs have half a credit."""
    before = np.cumsum(right) - right
    low = 2 * dot(before, wrong) + dot(np.where(single, right, 0), wrong)
    return low, low + 2 * dot(np.where(single, 0, right), wrong)


def _aurc_bounds(single: NDArray[np.bool_], right: Int, wrong: Int) -> tuple[float, float]:
    """AURC: least where the right rows of each stretch come first, most where the wrong ones do."""
    areas = []
    for early in (right, wrong):
        # A single value is one tied block; a stretch is a block of right and one of wrong rows, in this order.
        late = right + wrong - early
        size = np.stack([np.where(single, right + wrong, early), np.where(single, 0, late)], axis=1).ravel()
        first_bad, last_bad = (0 * right, wrong) if early is right else (wrong, 0 * wrong)
        bad = np.stack([np.where(single, wrong, first_bad), np.where(single, 0, last_bad)], axis=1).ravel()
        areas.append(_aurc(size[size > 0], bad[size > 0]))
    slack = 0.0 if single.all() else 1e-12
    return areas[0] * (1 - slack), min(1.0, areas[1] * (1 + slack))


def _aurc(size: Int, bad: Int) -> float:
    """Σ of the risks over n: in a tied block with error rate q after b rows, risk = q + (bad before − bq)/k."""
    end = np.cumsum(size)
    before, rate = end - size, bad / size
    excess = (np.cumsum(bad) - bad) - before * rate
    return float((bad + excess * harmonics(before, end)).sum() / end[-1])
