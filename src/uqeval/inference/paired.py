"""Differences between scores or models on the same rows, from their joint tally: standard errors, p-values."""

import math
from typing import NamedTuple

import numpy as np

from uqeval.inference.forms import UNKNOWN, Interval
from uqeval.inference.sample import Sample
from uqeval.inference.tally import NAN, JointTally, Room
from uqeval.inference.unseen import Two, difference_ends


class Contrast(NamedTuple):
    """values[a] − values[b]; `close` where the two move so alike that their covariance has lost its digits."""

    difference: float
    se: float
    df: float
    t: float
    p: float
    close: bool = False
    room: Room | None = None
    two: Two | None = None
    span: float = math.inf  # of the metric: no difference is larger
    alike: bool = False  # the two rank all rows alike: every metric is the same

    def interval(self, width: float, level: float) -> Interval:
        """So many standard errors to each side, joined with the room for what was not seen at that level.

        A difference without variance cannot be tested, and an interval of no width would say the opposite: where
        there is no room for more, its ends are NaN.
        """
        if self.alike or math.isnan(self.difference):
            return Interval(self.difference, self.difference)
        ends = []
        if self.se > 0:
            ends.append(Interval(self.difference - width * self.se, self.difference + width * self.se))
        elif self.se == 0 and self.difference == 0 and self.room is None:
            ends.append(Interval(0.0, 0.0))
        if self.room is not None and self.two is not None:
            at = 1 - _two_sided(width, self.df) if self.se > 0 and self.df > 0 else level
            ends.append(difference_ends(self.room, self.two, at))
        if not ends:
            return UNKNOWN
        return Interval(max(-self.span, min(low for low, _ in ends)), min(self.span, max(high for _, high in ends)))


ALIKE = Contrast(0.0, 0.0, math.inf, 0.0, 1.0, alike=True)


def contrast(joint: JointTally, a: int, b: int, span: float = math.inf) -> Contrast:
    """One difference, of a metric whose values lie within that span."""
    found = _contrast(joint, a, b)
    covariance = joint.covariance()
    two = Two(
        (float(joint.values[a]), float(joint.values[b])),
        (float(covariance[a, a]), float(covariance[b, b])),
        found.se**2,
    )
    return found._replace(room=joint.room, two=two, span=span)


def _contrast(joint: JointTally, a: int, b: int) -> Contrast:
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
