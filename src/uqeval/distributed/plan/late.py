"""Areas while at most a share of the rows is rejected, bin by bin: PRR at 50%.

Only the steps behind the cut count. Behind it the influence of a row is that of AURC but for a number that all rows of
its bin share; before it, and in the block of tied rows that it goes through, it depends on the error alone. So of all
bins only the one of the cut says more than AURC asks for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from uqeval.inference.tally import Spread
from uqeval.metrics.areas import Areas, Formula
from uqeval.metrics.harmonic import harmonic

Pair = tuple[float, float]  # of a right and of a wrong row
NOTHING = Spread(0, 0.0, 0.0)


def cut_of(rejected: float, n: int) -> int:
    """How many steps do not count: as `areas.Ranked.late`."""
    return n - max(1, int(rejected * n))


class Block(NamedTuple):
    """Tied rows, by their places among all."""

    start: int
    stop: int
    wrong: int
    wrong_before: int

    def risk(self, place: int) -> float:
        """After so many rows, which end in the block or just before it."""
        return (self.wrong_before + (place - self.start) * self.wrong / (self.stop - self.start)) / place

    def late(self, cut: int) -> tuple[float, float]:
        """Σ risk and Σ risk/rows of its steps behind the cut."""
        first = min(max(cut, self.start), self.stop)
        rate = self.wrong / (self.stop - self.start)
        excess = self.wrong_before - self.start * rate  # risk after k rows of the block = rate + excess/k
        once, twice = (harmonic(first, self.stop, power) for power in (1, 2))
        return rate * (self.stop - first) + excess * once, rate * once + excess * twice

    def influence(self, cut: int, n: int, at_cut: float, all_per_row: float, later_per_row: float) -> Pair:
        """What its rows add to Σ risk behind the cut, on average over the places of the block.

        `at_cut` is the risk there, `all_per_row` Σ risk/rows behind it, `later_per_row` behind the block.
        """
        first = min(max(cut, self.start), self.stop)
        before, behind, size = first - self.start, self.stop - first, self.stop - self.start
        risk, per_row = self.late(cut)
        later = before * harmonic(cut, n) + behind * (1 + harmonic(self.stop, n)) - first * harmonic(first, self.stop)
        own = before * (at_cut - all_per_row) + risk - behind * later_per_row - (risk - first * per_row)
        return own / size, (own + later) / size


class Cut(NamedTuple):
    """The bin that the cut goes through: the block, and the rows of the bin behind it."""

    block: Block
    risk: float = 0.0  # Σ risk after each of them
    risk_per_row: float = 0.0  # Σ risk/rows accepted
    right: Spread = NOTHING  # of their `own` of AURC
    wrong: Spread = NOTHING


class LateTerms(NamedTuple):
    """The influence of a row: before the cut, in its block, or behind it, own·(`own` less its bin's centre) + after."""

    block: tuple[int, int]  # start and stop
    before: Pair
    inside: Pair
    after: Pair
    own: float


class LateSums(NamedTuple):
    """What all bins add up to; influences are on Σ risk behind the cut."""

    cut: int
    n: int
    wrong: int
    block: Block
    risk: float  # Σ behind the cut
    at_cut: float
    before: Pair
    inside: Pair
    best: float  # Σ risk of the oracle
    best_influence: Pair
    behind: tuple[tuple[int, Spread, Spread], ...]  # by bin, `own` of the right and of the wrong rows

    @classmethod
    def of(
        cls, cut: int, n: int, wrong: int, found: Cut, later: Pair, behind: tuple[tuple[int, Spread, Spread], ...]
    ) -> LateSums:
        """`later` are Σ risk and Σ risk/rows of the bins behind that of the cut."""
        block = found.block
        risk, per_row = block.late(cut)
        rest = found.risk_per_row + later[1]
        at_cut = (block.risk(cut) + block.risk(cut + 1)) / 2
        inside = block.influence(cut, n, at_cut, per_row + rest, rest)
        base = at_cut - per_row - rest
        best, of_best = _oracle(cut, n, wrong)
        before = base, base + harmonic(cut, n)
        total = risk + found.risk + later[0]
        return cls(cut, n, wrong, block, total, at_cut, before, inside, best, of_best, behind)

    @property
    def areas(self) -> Areas:
        """As `areas.Ranked` has them."""
        rate, steps = self.wrong / self.n, self.n - self.cut
        if steps < 2 or not 0 < self.wrong < self.n:
            return Areas(rate, 0.0, 0.0, 0.0, 0.0)
        apart = (self.risk - self.best) / steps
        return Areas(
            self.risk / steps, apart if abs(apart) >= 1e-13 * rate else 0.0, rate - self.best / steps, 0.0, 0.0
        )

    def terms(self, formula: Formula, aurc: float) -> LateTerms:
        """For a metric that is defined; `aurc` is that of all steps, which the centres of bins hold."""
        areas, rate, share = self.areas, self.wrong / self.n, 1 - self.cut / self.n
        slopes, per = formula.slopes(areas), formula.per(areas)
        shared = (self.cut * self.at_cut + self.risk) / self.n

        def whole(own: Pair) -> Pair:
            """From what rows add to Σ risk."""
            found = []
            for v in (0, 1):
                aurc, best = (own[v] - shared) / share, self.best_influence[v] / share
                found.append((slopes.excess * (aurc - best) + slopes.span * (v - rate - best)) / per)
            return found[0], found[1]

        block, own = (self.block.start, self.block.stop), slopes.excess / (share * per)
        return LateTerms(block, whole(self.before), whole(self.inside), whole((aurc, aurc)), own)

    def squares(self, terms: LateTerms, centres: Mapping[int, float]) -> list[float]:
        """Σ influence² over the right rows and over the wrong ones."""
        block, found = self.block, []
        before = block.start - block.wrong_before, block.wrong_before
        inside = block.stop - block.start - block.wrong, block.wrong
        for side in (0, 1):
            shift = terms.after[side] / terms.own
            behind = math.fsum(sides[side].about(centres[code] - shift) for code, *sides in self.behind)
            fixed = before[side] * terms.before[side] ** 2 + inside[side] * terms.inside[side] ** 2
            found.append(fixed + terms.own**2 * behind)
        return found


def _oracle(cut: int, n: int, wrong: int) -> tuple[float, Pair]:
    """Σ risk of the oracle behind the cut, and the whole influence of a row on it."""
    right = n - wrong
    if not right or not wrong:
        return (n - cut) * float(wrong > 0), (0.0, 0.0)
    good, bad = Block(0, right, 0, 0), Block(right, n, wrong, 0)
    total, per_row = bad.late(cut)
    at_cut = sum((bad if place > right else good).risk(place) for place in (cut, cut + 1)) / 2
    shared = (cut * at_cut + total) / n
    of_right = good.influence(cut, n, at_cut, per_row, per_row)[0]
    return total, (of_right - shared, bad.influence(cut, n, at_cut, per_row, 0.0)[1] - shared)
