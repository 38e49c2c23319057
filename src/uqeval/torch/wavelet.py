"""How many earlier rows have a lower rank: a wavelet tree over a permutation, level by level, without a table of nodes.

A node of a level is the set of rows that agree in all higher bits of their rank. Ranks are a permutation, so that its
rows lie at the places from `rank >> (b + 1) << (b + 1)` on, and of all rows before exactly half have a zero in bit b:
one prefix sum of zeros serves all nodes. A row with a one has that many earlier rows with a zero, all of lower rank.
Then zeros move to the front of the node and ones behind them, both in order. At the end each row lies at its rank.
"""

import torch
from torch import Tensor

from uqeval.torch.order import fused


def add_below(rank: Tensor, start: Tensor) -> Tensor:
    """start + 4 · the earlier rows of lower rank, at the place of each row's rank; both int32, sums modulo 2³²."""
    if fused(rank):
        from uqeval.torch.wavelet_triton import add_below as fast

        return fast(rank, start)
    return add_below_plain(rank, start)


def add_below_plain(rank: Tensor, start: Tensor) -> Tensor:
    """The same on any device, in torch alone."""
    place = torch.arange(len(rank), dtype=torch.int32, device=rank.device)
    for bit in reversed(range(max(0, len(rank) - 1).bit_length())):
        one = rank >> bit & 1
        node = rank >> (bit + 1) << (bit + 1)
        zeros = torch.cumsum(1 - one, 0, dtype=torch.int32) - (1 - one) - (node >> 1)  # before it, in its node
        start = start + 4 * one * zeros
        ones = place - node - zeros
        to = (node + torch.where(one == 1, (1 << bit) + ones, zeros)).to(torch.int64)
        rank, start = (torch.empty_like(x).scatter_(0, to, x) for x in (rank, start))
    return start
