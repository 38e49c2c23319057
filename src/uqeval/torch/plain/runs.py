"""Rows in the order of a score, as runs of equal scores, in torch alone: with the integers of the kernels.

Nothing here waits for the device: how many runs there are is not known on the host, so that there is room for n; those
behind the last are empty and add nothing to any sum.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from uqeval.torch.checks import as_bits
from uqeval.torch.plain.areas import area_sums
from uqeval.torch.plain.order import run_bounds, run_ends, run_numbers
from uqeval.torch.reading import ends_of, squares

_AT_ONCE = 1 << 22  # runs: what they need is some hundred bytes each


class Runs:
    """Run k takes the places from bound[k] to bound[k + 1]; before[p] are the wrong rows of the first p."""

    def __init__(self, score: Tensor, error: Tensor) -> None:
        bits, self._odd = as_bits(error)
        values, row = torch.sort(score + 0)  # −0.0 becomes 0.0: a radix sort would tell them apart
        wrong = bits.index_select(0, row)
        self.n, self.ends = len(row), ends_of(values)
        self.before = torch.zeros(self.n + 1, dtype=torch.int32, device=score.device)
        torch.cumsum(wrong, 0, dtype=torch.int32, out=self.before[1:])
        del row, wrong
        last = run_ends(values)
        self.run = run_numbers(last)
        self.bound = run_bounds(last, self.run)

    def sums(self, walks: bool) -> tuple[Tensor, Tensor | None]:
        """As `counting.Ranked`."""
        known = torch.stack([self.run[-1] + 1, self.before[-1]]).to(torch.int64)
        of_parts = torch.stack([self._sums(bound, before) for _, bound, before in self._parts()])
        areas = area_sums(self.n, self.bound.device, self._parts) if walks else None
        return torch.cat([known, of_parts.sum(0), self._odd[None]]), areas

    def around(self, places: Sequence[int]) -> list[Tensor]:
        """As `counting.Ranked`."""
        run = torch.cat([self.run[k : k + 1] for k in places])
        edges = [self.bound.index_select(0, run + side) for side in (0, 1)]
        return [*edges, *(self.before.index_select(0, edge) for edge in edges)]

    def _parts(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some runs at a time: which, their bounds, and the wrong rows before each bound."""
        for first in range(0, self.n, _AT_ONCE):
            some = slice(first, min(first + _AT_ONCE, self.n))
            bound = self.bound[first : some.stop + 1]
            yield some, bound, self.before.index_select(0, bound)

    def _sums(self, bound: Tensor, before: Tensor) -> Tensor:
        all_wrong = self.before[-1].to(torch.int64)
        place, bad = bound.to(torch.int64), before.to(torch.int64)
        wrong, size = bad.diff(), place.diff()
        behind = 2 * self.n - place[1:] - place[:-1]  # twice
        of_right = 2 * all_wrong - bad[1:] - bad[:-1]  # twice the credit of a right row
        of_wrong = place[1:] + place[:-1] - bad[1:] - bad[:-1]
        sums = torch.stack([(wrong * of_wrong).sum(), (size * (size - 1)).sum()])
        some = (squares(of_wrong, wrong), squares(of_right, size - wrong), squares(behind, wrong))
        return torch.cat([sums, *some])
