"""What all bins of a score add up to; then tallies.

From here on the numbers are those of rows in memory: `inference.intervals` and `inference.paired` make the rest.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from uqeval._check import Float, Int, check_largest
from uqeval.distributed.engines.protocol import State
from uqeval.distributed.plan.by_score import Area, BinRanks, area_of_point
from uqeval.distributed.plan.count import ECE_BINS
from uqeval.distributed.plan.edges import Grid
from uqeval.distributed.plan.late import Block, Cut, LateSums, LateTerms, cut_of
from uqeval.inference import tally
from uqeval.inference.count import count_share
from uqeval.inference.influence import best_slope
from uqeval.inference.sizes import Held, Loads, Mass, Sizes
from uqeval.inference.tally import NAN, Spread
from uqeval.inference.unseen import adds
from uqeval.kernels import ConcordanceSums, alike_sums
from uqeval.metrics.areas import Accepted, Areas, Formula
from uqeval.metrics.calibration import Bins, l1
from uqeval.metrics.harmonic import harmonic
from uqeval.metrics.registry import Metric

Ranking = tally.AucTally | tally.PairTally | tally.AreaTally


@dataclass
class ScoreSums:
    """Everything that the metrics of one score need; integers are exact, whatever their size."""

    n: int
    wrong: int
    constant: bool
    ties2: int = 0  # Σ t² over groups of tied scores
    credit2: int = 0  # of UQ-AUC, over the wrong rows …
    wrong_squares: int = 0  # … and its squares over the wrong rows and over the right rows
    right_squares: int = 0
    above2: int = 0  # Σ over wrong rows of (2·rows above)², ties half
    bins: dict[int, Area] = field(default_factory=dict)  # by score code
    sizes: dict[int, list[int]] = field(default_factory=dict)  # rows tied in the loss → rows, Σ credit2, Σ credit2²
    shares: dict[Accepted, Float] = field(default_factory=dict)  # `accepted_sums` of each share
    cuts: dict[int, tuple[int, Cut]] = field(default_factory=dict)  # by place: the bin that it goes through

    def add(self, code: int, ties2: int, ranks: BinRanks | None) -> None:
        """A bin of the score."""
        self.ties2 += ties2
        if ranks is not None:
            for name in ("credit2", "wrong_squares", "right_squares", "above2"):
                setattr(self, name, getattr(self, name) + getattr(ranks, name))
            self.bins[code] = ranks.area
            for share, found in zip(self.shares.values(), ranks.shares, strict=True):
                share += found
            self.cuts |= {place: (code, cut) for place, cut in ranks.cuts.items()}

    @property
    def right(self) -> int:
        return self.n - self.wrong

    @property
    def tie_rate(self) -> float:
        return (self.ties2 - self.n) / (self.n * (self.n - 1))

    def accepted(self, coverage: float) -> tuple[float, float]:
        """Risk of the surest share, and risk of the rows next to the cut."""
        sums = self.shares[Accepted(coverage)]
        return min(1.0, float(sums[2]) / (coverage * self.n)), float(sums[5] / sums[4])

    @cached_property
    def areas(self) -> Areas:
        """Of 0/1 errors; the excess is exactly 0 where every wrong row lies above every right one."""
        n, wrong, right = self.n, self.wrong, self.right
        aurc = math.fsum(area.risk for area in self.bins.values()) / n
        best = (wrong - right * harmonic(right, n)) / n if right else 1.0  # the oracle accepts all right rows first
        excess = 0.0 if self.credit2 == 2 * wrong * right else aurc - best
        span = wrong / n - best if wrong and right else 0.0
        augrc = (2 * wrong * right - self.credit2 + wrong * wrong) / (2 * n * n)
        return Areas(aurc, excess, span, augrc, self.credit2 / (2 * n * n))

    @cached_property
    def _late(self) -> dict[float, LateSums]:
        return {}

    def late(self, rejected: float) -> LateSums:
        """Of the steps while at most that share is rejected."""
        if rejected not in self._late:
            cut = cut_of(rejected, self.n)
            own, found = self.cuts[cut]
            behind = [(code, area) for code, area in self.bins.items() if code > own]
            later = math.fsum(area.risk for _, area in behind), math.fsum(area.risk_per_row for _, area in behind)
            sides = ((own, found.right, found.wrong), *((code, area.right, area.wrong) for code, area in behind))
            self._late[rejected] = LateSums.of(cut, self.n, self.wrong, found, later, sides)
        return self._late[rejected]

    def areas_of(self, formula: Formula) -> Areas:
        """As the formula takes them."""
        return self.areas if formula.rejected == 1.0 else self.late(formula.rejected).areas

    def late_terms(self, formula: Formula) -> LateTerms:
        """As `row_terms`."""
        return self.late(formula.rejected).terms(formula, self.areas.aurc)

    @cached_property
    def centres(self) -> dict[int, float]:
        """For each code what `own` exceeds the influence on AURC by: AURC plus the risks that later bins add."""
        found, later = {}, 0.0
        for code in sorted(self.bins, reverse=True):
            found[code] = later + self.areas.aurc
            later += self.bins[code].risk_per_row
        return found

    @cached_property
    def comparable(self) -> int:
        """Comparable pairs, each twice."""
        return sum(rows * (self.n - size) for size, (rows, _, _) in self.sizes.items())

    @cached_property
    def concordance(self) -> ConcordanceSums:
        """As `kernels.concordance_sums`, but from integers up to the last division."""
        n, total2, total = self.n, sum(one for _, one, _ in self.sizes.values()), self.comparable
        if total == 0 or total <= 2 * (n - min(self.sizes)):
            return ConcordanceSums(total2, total, NAN, NAN)
        if len(self.sizes) == 1:
            return alike_sums(n, total2, total, next(iter(self.sizes.values()))[2])
        once, twice = [], []
        for size, (rows, one, two) in self.sizes.items():
            m = n - size
            left = total * (total - 2 * m)
            once.append((total2 * m * rows - total * one) / left)
            twice.append(((total2 * m) ** 2 * rows - 2 * total2 * m * total * one + total**2 * two) / left**2)
        return ConcordanceSums(total2, total, math.fsum(once), math.fsum(twice))


# ---- bins → sums ------------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A score point bin with rows, all tied: twice the credit of a right and of a wrong row, and what it adds."""

    code: int
    rows: int
    credits: tuple[int, int]
    ranks: BinRanks


def _points(grid: Grid, accepted: tuple[Accepted, ...] = (), cuts: tuple[int, ...] = ()) -> Iterable[_Point]:
    n = grid.n
    for code in range(1, len(grid.by_score), 2):
        right, wrong = (int(x) for x in grid.by_score[code])
        if not (rows := right + wrong):
            continue
        right_before, wrong_before = (int(x) for x in grid.before[code])
        before = right_before + wrong_before
        of_right, of_wrong = 2 * (grid.wrong - wrong_before - wrong) + wrong, 2 * right_before + right
        block, shares = Block(before, before + rows, wrong, wrong_before), []
        for rule in accepted:
            share, near = float(rule.share(before, before + rows, n)), float(rule.near(before, before + rows, n, n))
            sides = [count * x for count in (right, wrong) for x in (share, share**2)]
            shares.append(np.array([*sides, rows * near, wrong * near]))
        ranks = BinRanks(
            wrong * of_wrong,
            wrong * of_wrong**2,
            right * of_right**2,
            wrong * (2 * (n - before) - rows) ** 2,
            area_of_point(right, wrong, before, wrong_before, n),
            tuple(shares),
            {cut: Cut(block) for cut in cuts if block.start <= cut < block.stop},
        )
        yield _Point(code, rows, (of_right, of_wrong), ranks)


def point_values(grid: Grid) -> tuple[Int, Float]:
    """For rows of score point bins: twice the credit of UQ-AUC and `own` of AURC, of a right and of a wrong row."""
    credit, own = np.zeros(grid.by_score.shape, dtype=np.int64), np.zeros(grid.by_score.shape)
    for point in _points(grid):
        credit[point.code] = point.credits
        own[point.code] = point.ranks.area.right.mean, point.ranks.area.wrong.mean
    return credit, own


def sum_score(
    grid: Grid,
    states: list[State],
    constant: bool,
    ranks: bool,
    accepted: tuple[Accepted, ...] = (),
    cuts: tuple[int, ...] = (),
) -> ScoreSums:
    """Point bins from the grid, intervals from what shuffle 1 gave (already checked)."""
    sums = ScoreSums(grid.n, grid.wrong, constant, shares={rule: np.zeros(6) for rule in accepted})
    for point in _points(grid, accepted, cuts):
        sums.add(point.code, point.rows**2, point.ranks if ranks else None)
    for state in states:
        if state["rows"]:
            sums.add(2 * int(state["bucket"]), state["ties2"], state.get("ranks"))
            add_sizes(sums.sizes, state.get("sizes", []))
    return sums


def add_sizes(sizes: dict[int, list[int]], found: Iterable[Iterable[int]]) -> None:
    """Adds (rows tied in the loss, rows, Σ credit2, Σ credit2²)."""
    for size, rows, one, two in found:
        entry = sizes.setdefault(int(size), [0, 0, 0])
        entry[0], entry[1], entry[2] = entry[0] + rows, entry[1] + one, entry[2] + two


def add_point_pairs(sums: ScoreSums, grid: Grid) -> None:
    """Pair counts of the rows in point bins of both score and loss: all from the grid."""
    counts = grid.at_point
    for i, j in zip(*(2 * place + 1 for place in np.nonzero(grid.rows[1::2, 1::2])), strict=True):
        rows, x = int(grid.rows[i, j]), int(counts[i, j])
        add_sizes(sums.sizes, [(int(grid.by_loss[j]), rows, rows * x, rows * x * x)])


# ---- sums → tallies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clustered:
    """What the shuffle by cluster gives: the clusters, how large they are, and by metric the spread of their sums.

    Of pairs: of the values without each cluster; of the others: of the influence values of each cluster.
    """

    held: Held
    largest: int
    loads: Loads | None
    spread: dict[str, Spread]
    bins: tuple[Float, Float] | None = None  # of confidence: Σ of products of gaps, Σ of squared shares
    declared: int | None = None  # the most rows that any can have, where a user said

    def __post_init__(self) -> None:
        check_largest(self.declared, self.largest)

    def joined(self, sizes: Sizes) -> Sizes:
        """The sizes of the rows with what is known of their clusters."""
        possible = float(self.declared or 0)
        largest = max(float(self.largest), possible)
        return replace(sizes, clusters=self.held, largest=largest, loads=self.loads, possible=possible)


def sizes_of(n: int, wrong: int, clustered: Clustered | None, binary: bool) -> Sizes:
    """Rows of equal weight."""
    right, bad = (Mass(rows, float(rows), float(rows)) for rows in (n - wrong, wrong))
    sizes = Sizes(right, bad, bad, binary=binary)
    return sizes if clustered is None else clustered.joined(sizes)


def ranking_tally(metric: Metric, sums: ScoreSums, clustered: Clustered | None) -> Ranking:
    """Of one score."""
    sizes = sizes_of(sums.n, sums.wrong, clustered, metric.tally != "pairs")
    unknown = Spread(sums.n if clustered is None else clustered.held.all, NAN, NAN)
    of_clusters = None if clustered is None else clustered.spread.get(metric.name, unknown)
    if metric.tally == "auc":
        squares = (sums.wrong_squares, sums.right_squares)
        return tally.AucTally(sizes, sums.constant, sums.credit2, sums.wrong * sums.right, *squares, left=of_clusters)
    if metric.tally == "pairs":
        found, n = sums.concordance, sums.n
        left = Spread(n, found.shift / n, max(0.0, found.shift2 - found.shift**2 / n)) if found.shift2 >= 0 else unknown
        left = left if of_clusters is None else of_clusters
        return tally.PairTally(sizes, sums.constant, found.credit2, found.comparable, left)
    return _area_tally(metric, sums, sizes, None if of_clusters is None else of_clusters.about(0.0))


class Terms(NamedTuple):
    """The influence of a row: own·(influence on AURC) + credit·(twice its credit) + share·(accepted) + a number.

    The last two differ between right and wrong rows.
    """

    own: float
    credit: Fraction
    by_error: tuple[Fraction | float, Fraction | float]
    share: tuple[float, float] = (0.0, 0.0)


def row_terms(metric: Metric, sums: ScoreSums) -> Terms:
    """As `inference.influence.area_influence`, where errors are 0/1: only two parts differ from row to row."""
    assert metric.formula is not None
    if isinstance(metric.formula, Accepted):
        (risk, near), coverage = sums.accepted(metric.formula.coverage), metric.formula.coverage
        return Terms(0.0, Fraction(0), (near - risk, near - risk), (-near / coverage, (1 - near) / coverage))
    n, wrong, slopes = sums.n, sums.wrong, metric.formula.slopes(sums.areas)
    if slopes.augrc:
        twice = Fraction(2 * wrong * sums.right - sums.credit2 + wrong * wrong, n * n)  # 2·AUGRC
        return Terms(0.0, Fraction(-1, 2 * n), (Fraction(wrong, n) - twice, 1 - twice))
    if slopes.h_auc:
        twice = Fraction(sums.credit2, n * n)
        return Terms(0.0, Fraction(1, 2 * n), (-twice, -twice))
    rate = wrong / n
    per = metric.formula.per(sums.areas)
    per_error = (slopes.span - (slopes.excess + slopes.span) * best_slope(rate)) / per
    return Terms((slopes.aurc + slopes.excess) / per, Fraction(0), (per_error * (0 - rate), per_error * (1 - rate)))


def _area_tally(metric: Metric, sums: ScoreSums, sizes: Sizes, clusters2: float | None) -> tally.AreaTally:
    assert metric.formula is not None
    n, value = sums.n, area_value(metric, sums)
    if math.isnan(value) or not sums.wrong:
        right2 = wrong2 = 0.0
    else:
        if isinstance(metric.formula, Formula) and metric.tally == "late area":
            late = sums.late(metric.formula.rejected)
            squares = late.squares(sums.late_terms(metric.formula), sums.centres)
        else:
            terms = row_terms(metric, sums)
            squares = [_squares(metric, terms, sums, side) for side in (0, 1)]
        right2, wrong2 = (x / n**2 for x in squares)
    few: dict[str, float] = {}
    if isinstance(metric.formula, Formula) and metric.interval == "gamma" and metric.formula.slopes(sums.areas).aurc:
        few["contributions2"] = math.fsum(area.later2 for area in sums.bins.values()) / n**2
        few["largest"] = harmonic(0, n) / n * sizes.largest
    elif metric.interval == "gamma":
        few = {"contributions2": sums.above2 / (4 * n**4), "largest": sizes.largest / n}
    if isinstance(metric.formula, Formula):
        few["adds"] = adds(sums.areas_of(metric.formula), metric.formula, n)
    return tally.AreaTally(sizes, value, right2, wrong2, clusters2, **few)


def area_value(metric: Metric, sums: ScoreSums) -> float:
    """Of a metric of the areas, before its affine map."""
    assert metric.formula is not None
    return float(metric.formula.value(sums.areas_of(metric.formula) if isinstance(metric.formula, Formula) else sums))


def _squares(metric: Metric, terms: Terms, sums: ScoreSums, side: int) -> float:
    """Σ influence² over the right rows (0) or over the wrong ones (1)."""
    add = terms.by_error[side]
    if isinstance(metric.formula, Accepted):
        count, slope = (sums.right, sums.wrong)[side], terms.share[side]
        once, twice = (float(x) for x in sums.shares[metric.formula][2 * side : 2 * side + 2])
        return float(count * add**2 + 2 * add * slope * once + slope**2 * twice)
    if terms.credit:  # rationals: no digit is lost where terms cancel
        count, squares = ((sums.right, sums.right_squares), (sums.wrong, sums.wrong_squares))[side]
        return float(count * add**2 + 2 * add * terms.credit * sums.credit2 + terms.credit**2 * squares)
    shift = float(add) / terms.own
    spreads = ((sums.centres[code], (area.right, area.wrong)[side]) for code, area in sums.bins.items())
    return terms.own**2 * math.fsum(spread.about(centre - shift) for centre, spread in spreads)


# ---- the model's own metrics ------------------------------------------------------------------------------------


def model_tally(metric: Metric, state: State, clustered: Clustered | None) -> tally.MeanTally | tally.EceTally:
    """From the counts of pass 1."""
    n, wrong = int(state["rows"]), int(state["wrong"])
    sizes = sizes_of(n, 0, clustered, False)
    spread = None if clustered is None else clustered.spread.get(metric.quantities[0], Spread(0, NAN, NAN))
    clusters2 = None if spread is None else spread.about(0.0)
    if metric.tally == "ece":
        bins, some = ece_bins(state)
        count, gap, squares = state["ece"][some].T
        sign, plain = np.sign(gap), l1(bins)
        found = float((sign**2 * squares + count * (sign * gap - plain) ** 2).sum()) / n**2
        return tally.EceTally(sizes, bins, found, clusters2, _bin_clusters(state, some, clustered))
    if metric.interval == "binomial":
        return replace(count_share(n, wrong), sizes=sizes, clusters2=clusters2)
    if infinite := int(state[f"{metric.name}_infinite"]):
        return tally.MeanTally(sizes, math.inf, NAN, None if clusters2 is None else NAN, infinite)
    _, value, squares = (float(x) for x in state[metric.name][0])
    return tally.MeanTally(sizes, value, squares / n**2, clusters2)


def _bin_clusters(state: State, some: Int, clustered: Clustered | None) -> tally.BinClusters | None:
    if clustered is None or clustered.bins is None:
        return None
    products, shares2 = clustered.bins
    size, total = (x.reshape(ECE_BINS, -1).sum(axis=1)[some] for x in state["confidence"])
    return tally.BinClusters(products[np.ix_(some, some)], shares2[some], total / size)


def ece_bins(state: State) -> tuple[Bins, Int]:
    """The bins of confidence that hold rows, and their numbers among all."""
    some = np.flatnonzero(state["ece"][:, 0])
    count, gap, squares = state["ece"][some].T
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(count > 1, squares / count**2 * count / (count - 1), 0.0)
    return Bins(np.empty(0, dtype=np.int64), count / count.sum(), gap, variance), some


def calibration_cells(state: State) -> tally.Cells:
    """The confidences of a bin pooled in cells of equal width."""
    size, total = state["confidence"]
    cells, some = np.flatnonzero(size), ece_bins(state)[1]
    of_bin = np.searchsorted(some, cells // (len(size) // ECE_BINS)).astype(np.int64)
    return tally.Cells(size[cells].astype(np.int64), total[cells] / size[cells], np.ones(len(cells)), of_bin)
