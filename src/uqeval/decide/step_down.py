"""The default walk for 0/1 errors of independent rows: what the shares of "fallback" leave of delta goes to all.

Regions {score ≤ t} hold each other, so their error counts rise and fall together, and a union bound gives away much of
delta. Where the risk is exactly `max_risk` everywhere, the counts of growing regions are a random walk with binomial
steps; there the chance that any region passes is worked out exactly, and made equal to delta. A risk above `max_risk`
in every region not yet certified makes it smaller: exact where the risk crosses `max_risk` once, simulated elsewhere.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from uqeval._check import Float, Int
from uqeval.decide.bounds import binomial_p

MOST = 200  # regions that are worked out
_MOST_VARIANCE = 600.0  # of the largest count; beyond it a smaller walk of the same shape stands for the real one
_REACH = 9.0  # standard deviations: counts farther out are left alone
_ROUNDING = 1 + 1e-9
_FINEST = 1.01  # the common share is found to 1%
_SMALLEST = 1e-3  # a common share below that much of delta is not worth having


def largest(p: Float, accepted: Int, max_risk: float, delta: float, floor: Float) -> int:
    """The last certified of growing regions, or −1: `p` their p-values, `accepted` their rows.

    Every region has a share of delta: the larger of its `floor` and of one common share, as large as can be. Where
    some pass, the regions behind the last of them are tested one by one at all of delta that those which failed or
    are still to come do not use, until one fails.
    """
    walk = _Walk.of(accepted, max_risk)
    levels = np.maximum(floor, _common_share(accepted.tobytes(), max_risk, delta, floor.tobytes()))
    passed = p <= levels
    if not passed.any():
        return -1
    best = len(p) - 1 - int(passed[::-1].argmax())
    ends = walk.ends(levels)
    before = walk.survival(ends)
    skipped = _Ends(np.where(passed, -1, ends.last), np.where(passed, 0.0, ends.part))
    skipped.last[best:], skipped.part[best:] = -1, 0.0
    own = walk.ends(np.minimum(p, 1 - 1e-9))
    for k, (crossed, low, chance) in enumerate(walk.counts(skipped)):
        if best < k < len(p):
            counts = low + np.arange(len(chance))
            stays = np.where(counts > own.last[k], 1.0, 0.0)
            stays[counts == own.last[k] + 1] -= own.part[k]
            start, later = before[k]
            stays *= later[np.clip(counts - start, 0, len(later) - 1)]
            if p[k] > delta or crossed + float((chance * (1 - stays)).sum()) > delta * _ROUNDING:
                break
            best = k
    return best


@lru_cache(maxsize=512)
def _common_share(accepted: bytes, max_risk: float, delta: float, floor: bytes) -> float:
    """The largest common share at which some region passes with a chance of at most delta, by bisection; else 0."""
    walk, floors = _Walk.of(np.frombuffer(accepted, dtype=np.int64), max_risk), np.frombuffer(floor)
    low, high = _SMALLEST * delta, delta

    def holds(share: float) -> bool:
        return walk.crossing(walk.ends(np.maximum(floors, share))) <= delta * _ROUNDING

    if holds(high):
        return high
    if not holds(low):
        return 0.0
    while high > _FINEST * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class _Ends(NamedTuple):
    """Where a walk ends: at counts up to `last`, and in a share `part` of the cases at the next one."""

    last: Int
    part: Float


class _Walk:
    """Error counts of growing regions whose risk is exactly `max_risk`."""

    def __init__(self, sizes: Int, max_risk: float, *, smooth: bool) -> None:
        self.sizes, self.max_risk, self.smooth = sizes, max_risk, smooth
        reach = _REACH * np.sqrt(np.maximum(sizes * max_risk * (1 - max_risk), 1.0)) + _REACH
        self.lowest = np.maximum(np.floor(sizes * max_risk - reach), 0).astype(np.int64)
        self.highest = np.minimum(np.ceil(sizes * max_risk + reach), sizes).astype(np.int64)
        steps: dict[int, tuple[int, Float]] = {}
        for size in np.unique(np.diff(sizes, prepend=0)).tolist():
            spread = _REACH * np.sqrt(max(size * max_risk * (1 - max_risk), 1.0)) + _REACH
            first, end = max(0, int(size * max_risk - spread)), min(size, int(size * max_risk + spread) + 1)
            below = binomial_p(np.arange(first - 1, end + 1), np.full(end - first + 2, size), max_risk)
            below[0] = below[0] if first else 0.0
            steps[size] = first, np.diff(below)
        self.steps = [steps[size] for size in np.diff(sizes, prepend=0).tolist()]

    @classmethod
    def of(cls, accepted: Int, max_risk: float) -> "_Walk":
        """That of the accepted rows, or of fewer in the same places where there are very many.

        In the smaller walk a p-value passes a level exactly as often as the level says, so that nothing is gained from
        its coarser counts.
        """
        scale = accepted[-1] * max_risk * (1 - max_risk) / _MOST_VARIANCE
        if scale <= 1:
            return cls(accepted, max_risk, smooth=False)
        return cls(np.maximum(np.rint(accepted / scale), 1).astype(np.int64), max_risk, smooth=True)

    def ends(self, levels: Float) -> _Ends:
        """Counts whose p-value is at most the level of their region."""
        from scipy.special import bdtrik

        sizes, risk = self.sizes, self.max_risk
        possible = binomial_p(np.zeros(len(sizes)), sizes, risk) <= levels * _ROUNDING
        safe = np.where(possible, levels, 0.5)
        last = np.maximum(np.floor(np.nan_to_num(bdtrik(safe, sizes.astype(np.float64), risk))), 0.0)
        last = np.where(binomial_p(last, sizes, risk) > safe * _ROUNDING, last - 1, last)
        last = np.where(binomial_p(last + 1, sizes, risk) <= safe * _ROUNDING, last + 1, last)
        last = np.where(possible, last, -1).astype(np.int64)
        if not self.smooth:
            return _Ends(last, np.zeros(len(sizes)))
        at = np.where(last >= 0, binomial_p(np.maximum(last, 0), sizes, risk), 0.0)
        more = binomial_p(last + 1, sizes, risk) - at
        return _Ends(last, np.clip((levels - at) / np.where(more > 0, more, 1.0), 0.0, 1.0))

    def counts(self, ends: _Ends) -> Iterator[tuple[float, int, Float]]:
        """At each size: the chance that the walk has ended before, the lowest count, the chances of it and of those
        above; after the last size, the chance that it has ended at all."""
        crossed, low, chance = 0.0, 0, np.ones(1)
        for k, (first, step) in enumerate(self.steps):
            chance, low = np.convolve(chance, step), low + first
            yield crossed, low, chance
            cut = max(int(ends.last[k]) + 1, int(self.lowest[k])) - low
            if cut > 0:
                crossed, chance, low = crossed + float(chance[:cut].sum()), chance[cut:], low + cut
            chance = chance[: int(self.highest[k]) - low + 1]
            if ends.part[k] > 0 and low == ends.last[k] + 1:
                crossed += float(ends.part[k] * chance[0])
                chance[0] *= 1 - ends.part[k]
        yield crossed, low, chance

    def crossing(self, ends: _Ends) -> float:
        """The chance that the walk ends."""
        return [crossed for crossed, _, _ in self.counts(ends)][-1]

    def survival(self, ends: _Ends) -> list[tuple[int, Float]]:
        """At each size: a count, and for it and those above the chance that the walk does not end at a later size."""
        last = len(self.sizes) - 1
        after = np.ones(int(self.highest[last] - self.lowest[last]) + 1)
        found = [(int(self.lowest[last]), after)]
        for k in range(last, 0, -1):
            first, step = self.steps[k]
            low, high = int(self.lowest[k - 1]), int(self.highest[k - 1])
            counts = np.arange(low + first, high + first + len(step))
            stays = after[np.clip(counts - int(self.lowest[k]), 0, len(after) - 1)]
            stays[counts <= ends.last[k]] = 0.0
            stays[counts == ends.last[k] + 1] *= 1 - ends.part[k]
            after = np.convolve(stays, step[::-1], "valid")
            found.append((low, after))
        return found[::-1]
