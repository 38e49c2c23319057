"""Runs of equal values among sorted ones: where they start and end, and how long they are."""

import torch
from torch import Tensor


def run_ends(values: Tensor) -> Tensor:
    """Whether a run of equal values ends at each place."""
    last = torch.ones(len(values), dtype=torch.bool, device=values.device)
    torch.ne(values[1:], values[:-1], out=last[:-1])
    return last


def run_starts(values: Tensor) -> Tensor:
    """Whether a run of equal values starts at each place."""
    first = torch.ones(len(values), dtype=torch.bool, device=values.device)
    torch.ne(values[1:], values[:-1], out=first[1:])
    return first


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
