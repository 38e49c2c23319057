"""Rows in the order of a score, as runs of equal scores: the one sort that all metrics of 0/1 errors share.

Nothing here waits for the device: how many runs there are is not known on the host, so that there is room for n; those
behind the last are empty and add nothing to any sum.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

_AT_ONCE = 1 << 22  # runs: what they need is some hundred bytes each


def fused(x: Tensor) -> bool:
    """Whether Triton's kernels count: on a CUDA device, where it is installed."""
    return x.is_cuda and find_spec("triton") is not None


class Runs(NamedTuple):
    """Run k takes the places from bound[k] to bound[k + 1]; before[p] are the wrong rows of the first p."""

    bound: Tensor  # (n + 1,)
    before: Tensor  # (n + 1,)
    run: Tensor  # (n,): the run of each place
    ends: Tensor  # the least and the largest score, NaN where there is one
    blocks: Tensor  # how many runs there are

    @property
    def n(self) -> int:
        return len(self.run)

    def parts(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Some runs at a time: which, their bounds, and the wrong rows before each bound."""
        for first in range(0, self.n, _AT_ONCE):
            some = slice(first, min(first + _AT_ONCE, self.n))
            bound = self.bound[first : some.stop + 1]
            yield some, bound, self.before.index_select(0, bound)


def runs_of(score: Tensor, error: Tensor) -> Runs:
    """Of 0/1 errors as uint8."""
    values, row = torch.sort(score + 0)  # −0.0 becomes 0.0: a radix sort would tell them apart
    wrong = error.index_select(0, row)
    before = counts(wrong)
    del row, wrong
    last = run_ends(values)
    run = run_numbers(last)
    return Runs(run_bounds(last, run), before, run, value_ends(values), run[-1:] + 1)


def counts(bits: Tensor) -> Tensor:
    """How many of the first 0, 1, …, n are set."""
    found = torch.zeros(len(bits) + 1, dtype=torch.int32, device=bits.device)
    torch.cumsum(bits, 0, dtype=torch.int32, out=found[1:])
    return found


def value_ends(values: Tensor) -> Tensor:
    """The least and the largest of sorted values; NaN where there is one."""
    return torch.stack([values[0], values[-1]])


def run_ends(values: Tensor) -> Tensor:
    """Whether a run of equal values ends at each place."""
    last = torch.ones(len(values), dtype=torch.bool, device=values.device)
    torch.ne(values[1:], values[:-1], out=last[:-1])
    return last


def run_numbers(last: Tensor) -> Tensor:
    """The run of each place, from 0."""
    return torch.cumsum(last, 0, dtype=torch.int32) - last.to(torch.int32)


def run_bounds(last: Tensor, run: Tensor) -> Tensor:
    """Where runs start, n behind the last of them."""
    n = len(last)
    bound = torch.full((n + 2,), n, dtype=torch.int32, device=last.device)
    bound[0] = 0
    # Places inside a run write to a slot behind all others, which nobody reads.
    slot = torch.where(last, run + 1, n + 1).to(torch.int64)
    bound.scatter_(0, slot, torch.arange(1, n + 1, dtype=torch.int32, device=last.device))
    return bound[: n + 1]


def run_sizes(last: Tensor) -> Tensor:
    """Of each place: how many places its run takes."""
    run = run_numbers(last)
    return run_bounds(last, run).diff().index_select(0, run)
