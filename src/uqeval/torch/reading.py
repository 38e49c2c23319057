"""The one wait for the device, and sums of squares that pass 2⁶³: they travel as three sums of halves."""

from collections.abc import Sequence

import torch
from torch import Tensor


def read(ints: Sequence[Tensor], floats: Sequence[Tensor] = ()) -> tuple[list[int], list[float]]:
    """All of them, by one copy. Floats travel as their bits."""
    whole = [x.reshape(-1).to(torch.int64) for x in ints]
    real = [x.reshape(-1).to(torch.float64).view(torch.int64) for x in floats]
    both, cut = torch.cat([*whole, *real]).cpu(), sum(map(len, whole))
    return both[:cut].tolist(), both[cut:].view(torch.float64).tolist()


def ends_of(values: Tensor) -> Tensor:
    """The least and the largest of two or more sorted values; NaN where there is one."""
    return values[:: len(values) - 1].to(torch.float64)


def squares(x: Tensor, times: Tensor | int = 1) -> Tensor:
    """Σ times·x² of int64 below 2³²: high·high, high·low and low·low halves."""
    high, low = x >> 16, x & 0xFFFF
    return torch.stack([(times * a * b).sum() for a, b in ((high, high), (high, low), (low, low))])


def joined(halves: Sequence[int]) -> int:
    """The sum of squares of such halves."""
    return (halves[0] << 32) + (halves[1] << 17) + halves[2]
