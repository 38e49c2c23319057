"""AURC and its relatives from runs of equal scores: what `kernels.sweep` sums row by row, run by run.

The m rows of a run that starts after b rows stand at every place k = b + 1 … b + m, on average; with w wrong rows among
them and v before, the risk at place k is (v + (k − b)·w/m)/k. So all sums over places are sums over j = k − b of j/k,
j/k² and j²/k²: differences of harmonic numbers, for which no place is visited. A single row is 1/k and 1/k², exactly.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

SERIES = 256  # from here on the asymptotic series are good to the last bit
FINE = 2.0**57  # fixed point: sums of up to n risks per row accepted are below 2⁵, and integers add in any order


class AreaSums(NamedTuple):
    """As in `kernels.Sweep`, but e without the oracle's part: g = v·L + R − L'. Tensors, and numbers once read."""

    risk: Any  # Σ over all places
    wrong: Any  # Σ g over wrong rows …
    wrong2: Any  # … and Σ g²
    right: Any
    right2: Any
    shares2: Any  # Σ L² over wrong rows


def area_sums(n: int, device: torch.device, parts: Callable[[], Iterable[tuple[slice, Tensor, Tensor]]]) -> Tensor:
    """`AreaSums`, without a wait. Parts: which runs of room for n, their bounds, the wrong rows before each bound."""
    whole = torch.empty(n, dtype=torch.int64, device=device)  # Σ of risk/k over the places of each run, in fixed point
    means = torch.empty((2, n), dtype=torch.float64, device=device)  # L and R − L' of its rows, less what lies behind
    risk = []
    for some, bound, before in parts():
        of_runs, of_rows, means[0, some], means[1, some] = _walked(n, bound, before)
        whole[some] = (of_rows * FINE).round_().to(torch.int64)
        risk.append(of_runs.sum())
    done = torch.cumsum(whole, 0)
    del whole
    found = []
    for some, bound, before in parts():
        size, wrong = bound.diff().to(torch.float64), before.diff().to(torch.float64)
        later, right = means[0, some], size - wrong
        rest = means[1, some] - (done[-1] - done[some]).to(torch.float64) / FINE
        both = rest + later
        sums = (wrong * both, wrong * both * both, right * rest, right * rest * rest, wrong * later * later)
        found.append(torch.stack([x.sum() for x in sums]))
    return torch.cat([torch.stack(risk).sum()[None], torch.stack(found).sum(0)])


def _walked(n: int, bound: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each run: Σ risk, Σ risk/k, L and R − (Σ of risk/k from a row's place to the end of its run); 0 of no rows."""
    place, bad = bound.to(torch.float64), before.to(torch.float64)
    b, end, v = place[:-1], place[1:], bad[:-1]
    size, w = end - b, bad[1:] - v
    m, one, per = size.clamp(min=1.0), size == 1, 1.0 / end  # behind the last run b is n: nothing is divided by 0
    once = torch.where(one, per, harmonic(b, end))
    twice = torch.where(one, per * per, harmonic2(b, end))
    first = torch.where(one, per, 1 - b * once / m)  # mean of j/k
    second = torch.where(one, per * per, once - b * twice)  # Σ j/k²
    there = size > 0
    risk = torch.where(there, v * once + w * first, 0.0)
    of_row = torch.where(there, v * twice + w * second / m, 0.0)
    inside = (v * second + w * (first - b * second / m)) / m
    return risk, of_row, harmonic(end, torch.full_like(end, n)) + first, risk / m - inside


def harmonic(start: Tensor, stop: Tensor) -> Tensor:
    """Σ 1/k for start < k ≤ stop."""
    a, b = start.clamp(min=SERIES), stop.clamp(min=SERIES)
    return _short(start, stop, 1) + torch.log1p((b - a) / a) + (_tail(b) - _tail(a))


def harmonic2(start: Tensor, stop: Tensor) -> Tensor:
    """Σ 1/k² for start < k ≤ stop."""
    a, b = start.clamp(min=SERIES), stop.clamp(min=SERIES)
    return _short(start, stop, 2) + (b - a) / (a * b) + (_tail2(b) - _tail2(a))


def _short(start: Tensor, stop: Tensor, power: int) -> Tensor:
    """The part before the series."""
    left = table_of(start.device, power)
    first, last = (x.clamp(max=SERIES).to(torch.int32) for x in (start, stop))
    return left.index_select(0, first) - left.index_select(0, last)


@cache
def table_of(device: torch.device, power: int) -> Tensor:
    """Σ 1/j^power from each of the first places to where the series start: so small sums keep their digits."""
    k = torch.arange(1, SERIES + 1, dtype=torch.float64, device=device)
    return torch.cat([(k**-power).expand(SERIES, -1).triu().sum(1), k.new_zeros(1)])


def _tail(k: Tensor) -> Tensor:
    """Σ 1/j to k is log k + a constant + this."""
    i = 1 / k
    return i * (1 / 2 - i * (1 / 12 - i * i / 120))


def _tail2(k: Tensor) -> Tensor:
    """Σ 1/j² to k is a constant − 1/k + this."""
    i = 1 / k
    return i * i * (1 / 2 - i * (1 / 6 - i * i / 30))
