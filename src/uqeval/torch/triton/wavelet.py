"""The levels of `plain.wavelet` in two Triton kernels each; nodes of 32 rows are finished in registers.

A level moves 20 bytes a row: ranks are read twice, ranks and counts written once to their new place, counts read once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from uqeval.torch.triton.scans import AS_WRITTEN

_BLOCK = 2048
_NODE = 32  # rows that are compared with each other directly, in place of the last five levels
_NODES = 16  # so many at once


@triton.jit(do_not_specialize=["bit"])
def _count_zeros(rank, zeros, n, bit, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(rank + place, mask=place < n, other=-1)  # all bits of -1 are ones
    tl.store(zeros + block, tl.sum(1 - (x >> bit & 1), 0))


@triton.jit(do_not_specialize=["bit"])
def _partition(rank, start, new_rank, new_start, before, n, bit, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    x = tl.load(rank + place, mask=there, other=-1)
    y = tl.load(start + place, mask=there, other=0)
    one = x >> bit & 1
    zero = 1 - one
    node = x >> (bit + 1) << (bit + 1)
    zeros = tl.cumsum(zero, 0) - zero + tl.load(before + block) - (node >> 1)
    y += 4 * one * zeros
    to = node + tl.where(one == 1, (1 << bit) + place - node - zeros, zeros)
    tl.store(new_rank + to, x, mask=there)
    tl.store(new_start + to, y, mask=there)


@triton.jit
def _finish(rank, start, found, n, NODE: tl.constexpr, NODES: tl.constexpr):
    order = tl.arange(0, NODE)
    place = (tl.program_id(0) * NODES + tl.arange(0, NODES))[:, None] * NODE + order[None, :]
    there = place < n
    x = tl.load(rank + place, mask=there, other=2147483647)
    y = tl.load(start + place, mask=there, other=0)
    below = (x[:, None, :] < x[:, :, None]) & (order[None, None, :] < order[None, :, None])
    tl.store(found + x, y + 4 * tl.sum(below.to(tl.int32), 2), mask=there)


def add_below(rank: Tensor, start: Tensor) -> Tensor:
    """As `plain.wavelet.add_below`."""
    n = len(rank)
    blocks = triton.cdiv(n, _BLOCK)
    zeros = torch.empty(blocks, dtype=torch.int32, device=rank.device)
    new_rank, new_start = torch.empty_like(rank), torch.empty_like(start)
    given = True  # what the caller gave is read, and not written to
    for bit in reversed(range(_NODE.bit_length() - 1, max(0, n - 1).bit_length())):
        _count_zeros[(blocks,)](rank, zeros, n, bit, BLOCK=_BLOCK, **AS_WRITTEN)
        before = torch.cumsum(zeros, 0, dtype=torch.int32) - zeros
        _partition[(blocks,)](rank, start, new_rank, new_start, before, n, bit, BLOCK=_BLOCK, **AS_WRITTEN)
        free = (torch.empty_like(rank), torch.empty_like(start)) if given else (rank, start)
        rank, start, (new_rank, new_start), given = new_rank, new_start, free, False
    _finish[(triton.cdiv(n, _NODE * _NODES),)](rank, start, new_start, n, NODE=_NODE, NODES=_NODES, **AS_WRITTEN)
    return new_start
