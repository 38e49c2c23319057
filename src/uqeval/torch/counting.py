"""Tensors → the sums that tallies are made of: counted on the device, read once, judged by `inference`.

Sums of integers are those of the kernels, to the last digit. Squares pass 2⁶³: they travel as three sums of halves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from uqeval.inference.influence import best_slope
from uqeval.kernels import AucSums, ConcordanceSums, Sweep, alike_sums
from uqeval.metrics.areas import Accepted
from uqeval.metrics.harmonic import harmonic
from uqeval.metrics.swept import SweptSums
from uqeval.torch.areas import AreaSums, area_sums
from uqeval.torch.order import Runs, fused, run_ends, run_numbers, run_sizes, value_ends
from uqeval.torch.wavelet import add_below


def read(ints: Sequence[Tensor], floats: Sequence[Tensor] = ()) -> tuple[list[int], list[float]]:
    """The one wait for the device. Floats travel as their bits."""
    whole = torch.cat([x.reshape(-1).to(torch.int64) for x in ints])
    if not floats:
        return whole.tolist(), []
    real = torch.stack([x.to(torch.float64) for x in floats])
    both = torch.cat([whole, real.view(torch.int64)]).cpu()
    return both[: len(whole)].tolist(), both[len(whole) :].view(torch.float64).tolist()


def squares(x: Tensor, times: Tensor | int = 1) -> Tensor:
    """Σ times·x² of int64 below 2³²: high·high, high·low and low·low halves."""
    high, low = x >> 16, x & 0xFFFF
    return torch.stack([(times * a * b).sum() for a, b in ((high, high), (high, low), (low, low))])


def joined(halves: Sequence[int]) -> int:
    """The sum of squares of such halves."""
    return (halves[0] << 32) + (halves[1] << 17) + halves[2]


_NO_AREAS = AreaSums(*[float("nan")] * 6)


# ---- 0/1 errors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweptTensor(SweptSums):
    """What one sort of a tensor gave: sums, and the blocks of tied rows around the cuts that were asked for."""

    found: Sweep
    blocks: dict[int, tuple[int, int]]  # by row number of a place: the block that it lies in
    counted: dict[int, int]  # wrong rows before the ends of those blocks

    @property
    def sums(self) -> Sweep:
        return self.found

    def block_at(self, place: float) -> tuple[int, int]:
        return self.blocks[min(int(place), self.found.rows - 1)]

    def wrong_before(self, place: int) -> int:
        return self.counted[place]


def run_ints(runs: Runs) -> Tensor:
    """Credit of the wrong rows, tied pairs, squares of both classes, squares of what lies behind the wrong rows."""
    all_wrong, found = runs.before[-1].to(torch.int64), []
    for _, bound, before in runs.parts():
        place, bad = bound.to(torch.int64), before.to(torch.int64)
        wrong, size = bad.diff(), place.diff()
        behind = 2 * runs.n - place[1:] - place[:-1]  # twice
        of_right = 2 * all_wrong - bad[1:] - bad[:-1]  # twice the credit of a right row
        of_wrong = place[1:] + place[:-1] - bad[1:] - bad[:-1]
        sums = torch.stack([(wrong * of_wrong).sum(), (size * (size - 1)).sum()])
        some = (squares(of_wrong, wrong), squares(of_right, size - wrong), squares(behind, wrong))
        found.append(torch.cat([sums, *some]))
    return torch.stack(found).sum(0)


def cut_places(n: int, coverages: Sequence[float]) -> list[int]:
    """The row numbers around which `SweptSums.accepted` asks for blocks."""
    places = (place for c in coverages for place in (*Accepted(c).next_to(n, n), c * n))
    return sorted({min(int(place), n - 1) for place in places})


def cut_ints(runs: Runs, places: Sequence[int]) -> list[Tensor]:
    """Of each place: start and end of its block, and the wrong rows before both."""
    if not places:
        return []
    run = torch.cat([runs.run[k : k + 1] for k in places])
    ends = [runs.bound.index_select(0, run + side) for side in (0, 1)]
    return [*ends, *(runs.before.index_select(0, end) for end in ends)]


def sweep(
    runs: Runs, coverages: Sequence[float], walks: bool, flags: Sequence[Tensor]
) -> tuple[SweptTensor, list[int]]:
    """The sums of 0/1 errors in order of a score; and the flags, which travel with them.

    Those of AURC and its relatives are NaN unless somebody `walks` from place to place.
    """
    n, places = runs.n, cut_places(runs.n, coverages)
    of_runs, of_areas = _summers(runs)
    areas = of_areas(runs) if walks else ()
    ints, floats = read([runs.blocks, runs.before[-1], of_runs(runs), *cut_ints(runs, places), *flags], areas)
    blocks, wrong, credit2, tied = ints[:4]
    auc = AucSums(wrong, credit2, joined(ints[4:7]), joined(ints[7:10]))
    found = _as_sweep(n, blocks, auc, (joined(ints[10:13]), tied), AreaSums(*floats) if walks else _NO_AREAS)
    k, rest = len(places), ints[13:]
    start, end, before, until = (rest[j * k : (j + 1) * k] for j in range(4))
    counted = dict(zip((*start, *end), (*before, *until), strict=True)) | {0: 0}
    of_place = dict(zip(places, zip(start, end, strict=True), strict=True))
    return SweptTensor(found, of_place, counted), rest[4 * k :]


def _summers(runs: Runs) -> tuple[Callable[[Runs], Tensor], Callable[[Runs], AreaSums]]:
    """What sums over runs: Triton, or torch alone."""
    if fused(runs.bound):
        from uqeval.torch import runs_triton

        return runs_triton.run_ints, runs_triton.area_sums
    return run_ints, area_sums


def _as_sweep(n: int, blocks: int, auc: AucSums, behind: tuple[int, int], areas: AreaSums) -> Sweep:
    """With the oracle's part, which is known from the number of errors; `behind` are later2 and tied pairs."""
    wrong, right, rate = auc.wrong, n - auc.wrong, auc.wrong / n
    best = (wrong - right * harmonic(right, n)) / n if right else 1.0
    slope = best_slope(rate)
    constant = blocks <= 1 or wrong in (0, n)
    both = []
    for rows, one, two, apart in (
        (wrong, areas.wrong, areas.wrong2, best + slope * (1 - rate)),
        (right, areas.right, areas.right2, best - slope * rate),
    ):
        both.append((one - rows * apart, two - 2 * apart * one + rows * apart * apart))
    aurc = rate if constant else areas.risk / n
    known = (best, slope, rate, *both[0], *both[1], areas.shares2, harmonic(0, n))
    return Sweep(n, *auc, *behind, blocks, aurc, *known)


# ---- a loss -----------------------------------------------------------------------------------------------------


class Credits(NamedTuple):
    """Of every row, in order of (loss, score): credit2 and comparable rows. And the ends of scores and losses."""

    credit2: Tensor
    comparable: Tensor
    ends: Tensor
    loss_ends: Tensor


def credits_of(score: Tensor, loss: Tensor) -> Credits:
    """Pair counts of every row.

    With p and q the ranks by (score, loss) and (loss, score), C the earlier rows of lower rank and S, D and J the rows
    tied in score, loss and both: credit2 = 4C + J − S − 2p + 2(n − q − D). What p knows of it rides along to q. All of
    it in int32 and modulo 2³², which is enough: credit2 is below 2n.
    """
    n = len(score)
    places = torch.arange(n, dtype=torch.int32, device=score.device)
    values, row = torch.sort(loss + 0, stable=True)
    last, loss_ends = run_ends(values), value_ends(values)
    tied, group = run_sizes(last), run_numbers(last)
    values = (score + 0).index_select(0, row)
    del row
    values, slot = torch.sort(values, stable=True)
    last, ends = run_ends(values), value_ends(values)
    group = group.index_select(0, slot)
    del slot, values
    start = -run_sizes(last) - 2 * places
    start += run_sizes(last.logical_or_(run_ends(group)))
    order = torch.sort(group, stable=True)[1]
    rank = torch.empty_like(places).scatter_(0, order, places)
    del last, group, order
    found = add_below(rank, start) + 2 * (n - places - tied)
    return Credits(found.to(torch.int64) & 0xFFFFFFFF, (n - tied).to(torch.int64), ends, loss_ends)


def concordance(rows: Credits, flags: Sequence[Tensor] = ()) -> tuple[ConcordanceSums, bool, list[int]]:
    """Totals and delete-one moments, whether all scores are equal, and the flags, which travel with them."""
    credit2, comparable = rows.credit2, rows.comparable
    total, pairs = credit2.sum(), comparable.sum()
    ends = [rows.ends[0] == rows.ends[-1], comparable.min(), comparable.max()]
    whole2 = squares(credit2)
    m = comparable.to(torch.float64)
    shift = (m * (total.to(torch.float64) / pairs.to(torch.float64))).sub_(credit2).div_(m.mul_(-2).add_(pairs))
    ints, floats = read([total, pairs, *ends, whole2, *flags], [shift.sum(), shift.square_().sum()])
    whole, of_pairs, constant, least, most = ints[:5]
    if of_pairs == 0 or of_pairs <= 2 * most:
        sums = ConcordanceSums(whole, of_pairs, float("nan"), float("nan"))
    elif least == most:
        sums = alike_sums(len(credit2), whole, of_pairs, joined(ints[5:8]))
    else:
        sums = ConcordanceSums(whole, of_pairs, *floats)
    return sums, bool(constant), ints[8:]
