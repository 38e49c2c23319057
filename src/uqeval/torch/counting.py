"""Tensors → the sums that tallies are made of: counted on the device, read once, judged by `inference`.

Sums of integers are those of the kernels, to the last digit. A backend counts: `plain` in torch alone, `triton` on a
CUDA device where Triton is there. What it must do stands in `Ranked` and `PairSums`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isinf, isnan
from typing import NamedTuple, Protocol

from torch import Tensor

from uqeval.inference.influence import best_slope
from uqeval.kernels import AucSums, ConcordanceSums, Sweep, alike_sums
from uqeval.metrics.areas import Accepted
from uqeval.metrics.harmonic import harmonic
from uqeval.metrics.swept import SweptSums
from uqeval.torch.plain.areas import AreaSums
from uqeval.torch.plain.pairs import PairSums
from uqeval.torch.plain.pairs import pair_sums as plain_pair_sums
from uqeval.torch.plain.runs import Runs as PlainRuns
from uqeval.torch.reading import joined, read

_NO_AREAS = AreaSums(*[float("nan")] * 6)


def fused(x: Tensor) -> bool:
    """Whether Triton's kernels count: on a CUDA device, where it is installed."""
    return x.is_cuda and find_spec("triton") is not None


# ---- 0/1 errors -------------------------------------------------------------------------------------------------


class Ranked(Protocol):
    """Rows with 0/1 errors in the order of a score: nothing of it has been read."""

    n: int
    ends: Tensor  # the least and the largest score, NaN where there is one

    def sums(self, walks: bool) -> tuple[Tensor, Tensor | None]:
        """Runs of equal scores, wrong rows, credit of the wrong rows, tied pairs; squares, as halves.

        Of the credits of both classes and of what lies behind the wrong rows; last, not 0 where an error is neither 0
        nor 1. And `AreaSums`, if somebody walks.
        """

    def around(self, places: Sequence[int]) -> list[Tensor]:
        """Of each place: start and end of its run, and the wrong rows before both."""


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


def cut_places(n: int, coverages: Sequence[float]) -> list[int]:
    """The row numbers around which `SweptSums.accepted` asks for blocks."""
    places = (place for c in coverages for place in (*Accepted(c).next_to(n, n), c * n))
    return sorted({min(int(place), n - 1) for place in places})


class Odd(NamedTuple):
    """What a look at the rows has found."""

    refused: bool  # NaN, or an error other than 0 and 1
    infinite: bool  # scores
    target: bool = False  # infinite losses


def ranked(score: Tensor, error: Tensor) -> Ranked:
    """By what counts fastest there."""
    if fused(score):
        from uqeval.torch.triton.runs import Runs

        return Runs(score, error)
    return PlainRuns(score, error)


def sweep(rows: Ranked, coverages: Sequence[float], walks: bool) -> tuple[SweptTensor, Odd]:
    """The sums of 0/1 errors in order of a score. Those of AURC and its relatives are NaN unless somebody `walks`."""
    n, places = rows.n, cut_places(rows.n, coverages)
    totals, areas = rows.sums(walks)
    ints = [totals, *(rows.around(places) if places else ())]
    whole, floats = read(ints, [rows.ends, *(() if areas is None else (areas,))])
    blocks, wrong, credit2, tied = whole[:4]
    auc = AucSums(wrong, credit2, joined(whole[4:7]), joined(whole[7:10]))
    found = _as_sweep(n, blocks, auc, (joined(whole[10:13]), tied), AreaSums(*floats[2:]) if walks else _NO_AREAS)
    k, rest = len(places), whole[14:]
    start, end, before, until = (rest[j * k : (j + 1) * k] for j in range(4))
    counted = dict(zip((*start, *end), (*before, *until), strict=True)) | {0: 0}
    of_place = dict(zip(places, zip(start, end, strict=True), strict=True))
    return SweptTensor(found, of_place, counted), Odd(bool(whole[13]) or _nan(floats[:2]), _infinite(floats[:2]))


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


def concordance(score: Tensor, loss: Tensor, odd: Tensor | None = None) -> tuple[ConcordanceSums, bool, Odd]:
    """Totals and delete-one moments, and whether all scores are equal; `odd` is a flag that travels with them."""
    sums = pair_sums(score, loss)
    ints, floats = read([sums.ints, sums.constant, *(() if odd is None else (odd,))], [sums.ends, sums.floats])
    whole, of_pairs, least, most = ints[:4]
    if of_pairs == 0 or of_pairs <= 2 * most:
        found = ConcordanceSums(whole, of_pairs, float("nan"), float("nan"))
    elif least == most:
        found = alike_sums(len(score), whole, of_pairs, joined(ints[4:7]))
    else:
        found = ConcordanceSums(whole, of_pairs, *floats[4:])
    refused = any(ints[8:]) or _nan(floats[:4])
    return found, bool(ints[7]), Odd(refused, _infinite(floats[:2]), _infinite(floats[2:4]))


def pair_sums(score: Tensor, loss: Tensor) -> PairSums:
    """By what counts fastest there."""
    if fused(score):
        from uqeval.torch.triton.pairs import pair_sums as fast

        return fast(score, loss)
    return plain_pair_sums(score, loss)


def _nan(ends: Sequence[float]) -> bool:
    return any(isnan(end) for end in ends)


def _infinite(ends: Sequence[float]) -> bool:
    return any(isinf(end) for end in ends)
