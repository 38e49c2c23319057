"""How many earlier rows have a lower rank: a wavelet tree over a permutation, level by level, without a table of nodes.

A node of a level is the set of rows that agree in all higher bits of their rank. Ranks are a permutation, so that its
rows lie at the places from `rank >> (b + 1) << (b + 1)` on, and of all rows before exactly half have a zero in bit b:
one prefix sum of zeros serves all nodes. A row with a one has that many earlier rows with a zero, all of lower rank.
Then zeros move to the front of the node and ones behind them, both in order. At the end each row lies at its rank.
"""

import torch
from torch import Tensor


def add_below(rank: Tensor, start: Tensor) -> Tensor:
    """start + 4 · the earlier rows of lower rank, at the place of each row's rank; both int32, sums modulo 2³²."""
    place = torch.arange(len(rank), dtype=torch.int32, device=rank.device)
    for bit in reversed(range(max(0, len(rank) - 1).bit_length())):
        zero = (rank & (1 << bit)) == 0
        zeros = torch.cumsum(zero, 0, dtype=torch.int32)
        half = (rank >> (bit + 1)).bitwise_left_shift_(bit)  # zeros before the node, half of all rows there
        start = torch.add(start, (zeros - half).masked_fill_(zero, 0), alpha=4)
        ones = torch.sub(place, zeros).add_((1 << bit) + 1)
        to = half.add_(torch.where(zero, zeros, ones)).sub_(1).to(torch.int64)
        del zero, zeros, half, ones
        rank = torch.empty_like(rank).scatter_(0, to, rank)
        start = torch.empty_like(start).scatter_(0, to, start)
    return start
