"""Differences between scores or models on the same rows, from their joint tally: standard errors, p-values."""

import math
from typing import NamedTuple

import numpy as np

from uqeval.inference.sample import Sample
from uqeval.inference.tally import NAN, JointTally


class Contrast(NamedTuple):
    """values[a] − values[b]; `close` where the two move so alike that their covariance has lost its digits."""

    difference: float
    se: float
    df: float
    t: float
    p: float
    close: bool = False

    def half(self, width: float) -> float:
        """Half of an interval so many standard errors wide to each side.

        A difference without variance cannot be tested: an interval of no width would say the opposite.
        """
        return width * self.se if self.se > 0 else 0.0 if self.se == 0 and self.difference == 0 else NAN


ALIKE = Contrast(0.0, 0.0, math.inf, 0.0, 1.0)  # of two candidates that rank all rows alike


def contrast(joint: JointTally, a: int, b: int) -> Contrast:
    """One difference."""
    difference = float(joint.values[a]) - float(joint.values[b])
    if math.isnan(difference):
        return Contrast(NAN, NAN, NAN, NAN, NAN)
    variances = [float(part.gaps[a, b]) for part in joint.parts]
    variance = sum(variances)
    if math.isnan(variance):
        return Contrast(difference, NAN, NAN, NAN, NAN)
    if variance <= 0 or math.sqrt(variance) < 1e-15:
        return Contrast(difference, 0.0, math.inf, 0.0, 1.0)
    # Welch–Satterthwaite; with one part it is that part's own df.
    parts = [(v, part.df) for v, part in zip(variances, joint.parts, strict=True) if v > 0 and part.df > 0]
    spread = sum(v * v / df for v, df in parts)
    df = parts[0][1] if len(joint.parts) == len(parts) == 1 else variance**2 / spread if spread > 0 else 0.0
    t = difference / math.sqrt(variance)
    close = any(part.close(a, b) for part in joint.parts)
    return Contrast(difference, math.sqrt(variance), df, t, _two_sided(t, df), close)


def _two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) with df degrees of freedom; 1 where there are none."""
    from scipy.special import ndtr, stdtr  # 30 ms to load

    if not df > 0:
        return 1.0
    return float(2 * (ndtr(-abs(t)) if df > 1e9 else stdtr(df, -abs(t))))


def rank_alike(a: Sample, b: Sample) -> bool:
    """Whether two candidates order all rows alike, against the same target: every metric is the same then."""
    if not np.array_equal(a.target, b.target):
        return False
    first, second = a.ranking.order, b.ranking.order
    ranks = np.empty((2, a.n), dtype=np.int64)
    ranks[0, first.row], ranks[1, second.row] = first.start, second.start
    return bool(np.array_equal(ranks[0], ranks[1]))
