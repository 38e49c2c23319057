"""What all bins of a score add up to, and the checks that no bin is missing, doubled or of another size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from uqeval._check import Float, Int
from uqeval.distributed.engines.protocol import State
from uqeval.distributed.plan.areas import Area, area_of_point
from uqeval.distributed.plan.edges import Grid
from uqeval.distributed.plan.stages import RowsChanged, area_from, changed
from uqeval.kernels import AucSums, ConcordanceSums
from uqeval.kernels._types import alike_sums

__all__ = ["ScoreSums", "check_buckets", "point_values", "sum_score"]


@dataclass
class ScoreSums:
    """Everything that the metrics of one score need; integers are exact, whatever their size."""

    n: int
    wrong: int
    constant: bool
    ties2: int = 0  # Σ t² over groups of tied scores
    auc: AucSums | None = None
    above2: int = 0  # Σ over wrong rows of (2·rows above)², ties half
    areas: dict[int, Area] = field(default_factory=dict)  # by score code
    sizes: dict[int, list[int]] = field(default_factory=dict)  # rows tied in the loss → rows, Σ credit2, Σ credit2²

    @property
    def right(self) -> int:
        return self.n - self.wrong

    @property
    def tie_rate(self) -> float:
        return (self.ties2 - self.n) / (self.n * (self.n - 1))

    @cached_property
    def aurc(self) -> float:
        return math.fsum(area.risk for area in self.areas.values()) / self.n

    @cached_property
    def centres(self) -> dict[int, float]:
        """For each code what `own` exceeds the influence on AURC by: AURC plus the risks that later bins add."""
        found, later = {}, 0.0
        for code in sorted(self.areas, reverse=True):
            found[code] = later + self.aurc
            later += self.areas[code].risk_per_row
        return found

    def aurc_squares(self, shift_right: float, shift_wrong: float) -> tuple[float, float]:
        """Σ (influence on AURC + shift)² over the right rows, and over the wrong rows."""
        right = math.fsum(a.right.about(self.centres[code] - shift_right) for code, a in self.areas.items())
        wrong = math.fsum(a.wrong.about(self.centres[code] - shift_wrong) for code, a in self.areas.items())
        return right, wrong

    @cached_property
    def comparable(self) -> int:
        """Comparable pairs, each twice."""
        return sum(rows * (self.n - size) for size, (rows, _, _) in self.sizes.items())

    @cached_property
    def credit2(self) -> int:
        return sum(one for _, one, _ in self.sizes.values())

    @cached_property
    def concordance(self) -> ConcordanceSums:
        """As `kernels.concordance_sums`, but from integers up to the last division."""
        n, total2, total = self.n, self.credit2, self.comparable
        if total == 0 or total <= 2 * (n - min(self.sizes)):
            return ConcordanceSums(total2, total, float("nan"), float("nan"))
        if len(self.sizes) == 1:
            return alike_sums(n, total2, total, next(iter(self.sizes.values()))[2])
        once, twice = [], []
        for size, (rows, one, two) in self.sizes.items():
            m = n - size
            left = total * (total - 2 * m)
            once.append((total2 * m * rows - total * one) / left)
            twice.append(((total2 * m) ** 2 * rows - 2 * total2 * m * total * one + total**2 * two) / left**2)
        return ConcordanceSums(total2, total, math.fsum(once), math.fsum(twice))


def check_buckets(what: str, states: Iterable[State], counts: Int, riders: int = 0) -> None:
    """Each non-empty interval exactly once, with exactly its rows, and all riders."""
    seen: dict[int, int] = {}
    rode = 0
    for state in states:
        bucket = int(state["bucket"])
        if bucket in seen:
            raise RowsChanged(f"{what} {bucket} came back twice. The engine doubled work; no result is given.")
        seen[bucket] = int(state["rows"])
        rode += int(state.get("riders", 0))
    for bucket, expected in enumerate(counts[::2].tolist()):
        if seen.get(bucket, 0) != expected:
            raise changed(f"{what} {bucket}", seen.get(bucket, 0), expected)
    if rode != riders:
        raise changed(f"The point bins beside {what.lower()}", rode, riders)


def point_values(grid: Grid) -> tuple[Int, Float]:
    """For rows of score point bins: twice the credit of UQ-AUC and `own` of AURC, of a right and of a wrong row."""
    credit, own = np.zeros(grid.by_score.shape, dtype=np.int64), np.zeros(grid.by_score.shape)
    for code, right, wrong, before, wrong_before in _points(grid):
        credit[code] = 2 * (grid.wrong - wrong_before - wrong) + wrong, 2 * (before - wrong_before) + right
        area = area_of_point(right, wrong, before, wrong_before, grid.n)
        own[code] = area.right.mean, area.wrong.mean
    return credit, own


def _points(grid: Grid) -> Iterable[tuple[int, int, int, int, int]]:
    """Code, right and wrong rows, rows before, wrong rows before, of each score point bin with rows."""
    for code in range(1, len(grid.by_score), 2):
        right, wrong = (int(x) for x in grid.by_score[code])
        if right + wrong:
            right_before, wrong_before = (int(x) for x in grid.before[code])
            yield code, right, wrong, right_before + wrong_before, wrong_before


def sum_score(grid: Grid, states: list[State], constant: bool, ranks: bool) -> ScoreSums:
    """Point bins from the grid, intervals from what shuffle 1 gave (already checked)."""
    sums = ScoreSums(grid.n, grid.wrong, constant)
    credit2 = wrong2 = right2 = 0
    for code, right, wrong, before, wrong_before in _points(grid):
        sums.ties2 += (right + wrong) ** 2
        if ranks:
            of_right = 2 * (grid.wrong - wrong_before - wrong) + wrong
            of_wrong = 2 * (before - wrong_before) + right
            credit2 += wrong * of_wrong
            wrong2, right2 = wrong2 + wrong * of_wrong**2, right2 + right * of_right**2
            sums.above2 += wrong * (2 * (grid.n - before) - right - wrong) ** 2
            sums.areas[code] = area_of_point(right, wrong, before, wrong_before, grid.n)
    for state in states:
        if not state["rows"]:
            continue
        sums.ties2 += state["ties2"]
        if ranks:
            parts = state["auc"]
            credit2, wrong2, right2 = credit2 + parts[0], wrong2 + parts[1], right2 + parts[2]
            sums.above2 += state["above2"]
            sums.areas[2 * int(state["bucket"])] = area_from(state)
        add_sizes(sums.sizes, state.get("sizes", []))
    if ranks:
        sums.auc = AucSums(grid.wrong, credit2, wrong2, right2)
    return sums


def add_sizes(sizes: dict[int, list[int]], found: Iterable[Iterable[int]]) -> None:
    for size, rows, one, two in found:
        entry = sizes.setdefault(int(size), [0, 0, 0])
        entry[0], entry[1], entry[2] = entry[0] + rows, entry[1] + one, entry[2] + two


def add_point_pairs(sums: ScoreSums, grid: Grid) -> None:
    """Pair counts of the rows in point bins of both score and loss: all from the grid."""
    counts = grid.at_point
    for i, j in zip(*(2 * place + 1 for place in np.nonzero(grid.rows[1::2, 1::2])), strict=True):
        rows, x = int(grid.rows[i, j]), int(counts[i, j])
        add_sizes(sums.sizes, [(int(grid.by_loss[j]), rows, rows * x, rows * x * x)])
