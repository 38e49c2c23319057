"""What blocks of places know of each other: which run is open where a block starts, and where the next run starts."""

import torch
import triton
import triton.language as tl
from torch import Tensor

AS_WRITTEN = {"enable_fp_fusion": False}  # no products fused with sums; left open, Triton 3.9 warns
BLOCK = 2048  # places
CHUNK = 1024  # blocks that are joined at once
FAR = tl.constexpr(2147483647)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def wide(x):
    """Numbers that compare as they should everywhere: those of 16 bits as float32."""
    if tl.constexpr(x.dtype.is_floating()) and tl.constexpr(x.dtype.primitive_bitwidth == 16):
        x = x.to(tl.float32)
    return x


@triton.jit
def _edges(first, last_start, first_start, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    flag = tl.load(first + place, mask=place < n, other=0) != 0
    tl.store(last_start + block, tl.max(tl.where(flag, place, -1), 0))
    tl.store(first_start + block, tl.min(tl.where(flag, place, FAR), 0))


@triton.jit(do_not_specialize=["blocks"])  # 1 would be no tensor
def _join(last_start, first_start, open_start, next_start, blocks, n, CHUNK: tl.constexpr):
    known = blocks * 0
    for some in range(0, blocks, CHUNK):
        block = some + tl.arange(0, CHUNK)
        start = tl.load(last_start + block, mask=block < blocks, other=-1)
        known_here = tl.maximum(tl.associative_scan(start, 0, larger), known)
        tl.store(open_start + block + 1, known_here, mask=block + 1 < blocks)
        known = tl.max(known_here, 0)
    tl.store(open_start, 0)
    coming = blocks * 0 + n
    for some in range(0, blocks, CHUNK):
        block = blocks - 1 - some - tl.arange(0, CHUNK)  # from behind
        start = tl.load(first_start + block, mask=block >= 0, other=FAR)
        coming_here = tl.minimum(tl.associative_scan(start, 0, smaller), coming)
        tl.store(next_start + block - 1, coming_here, mask=block >= 1)
        coming = tl.min(coming_here, 0)
    tl.store(next_start + blocks - 1, n)


@triton.jit
def run_sizes(first, place, open_start, next_start, n, BLOCK: tl.constexpr):
    """Of each place of a block: how many places its run takes. `first` flags where runs start."""
    block = tl.program_id(0)
    flag = tl.load(first + place, mask=place < n, other=1) != 0
    after = tl.load(first + place + 1, mask=place + 1 < n, other=1) != 0
    start, stop = place, place + 1
    if tl.min((flag & after).to(tl.int32), 0) == 0:
        start = tl.maximum(tl.associative_scan(tl.where(flag, place, -1), 0, larger), tl.load(open_start + block))
        coming = tl.associative_scan(tl.where(after, place + 1, FAR), 0, smaller, reverse=True)
        stop = tl.minimum(coming, tl.load(next_start + block))
    return stop - start


def joined_runs(first: Tensor) -> tuple[Tensor, Tensor]:
    """Of each block: where the run starts that is open before it, and where the next one starts behind it."""
    n = len(first)
    blocks = triton.cdiv(n, BLOCK)
    edges = torch.empty((4, blocks), dtype=torch.int32, device=first.device)
    _edges[(blocks,)](first, edges[0], edges[1], n, BLOCK=BLOCK, **AS_WRITTEN)
    _join[(1,)](*edges, blocks, n, CHUNK=CHUNK, **AS_WRITTEN)
    return edges[2], edges[3]
