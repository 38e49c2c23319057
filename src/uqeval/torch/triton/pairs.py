"""Pair counts of rows with a loss in Triton: two sorts where both numbers fit into one key, and a wavelet tree.

Scores and losses of up to 32 bits become one integer of 64 bits, so that one sort of keys gives the order of (loss,
score), and another that of (score, loss) with the rank of each row in the first: nothing is gathered or scattered.
Wider ones take the three sorts of `plain.pairs`. Few rows are compared with each other directly.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from uqeval.torch.plain.order import run_starts
from uqeval.torch.plain.pairs import PairSums, ordered
from uqeval.torch.reading import ends_of
from uqeval.torch.triton.scans import AS_WRITTEN, BLOCK, joined_runs, run_sizes, wide
from uqeval.torch.triton.wavelet import add_below

_FEW = 4096  # rows that are compared with all others
_NARROW = (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8, torch.int16, torch.int32)
_INTS = 5


@triton.jit
def _ordered(x):
    """An integer of 32 bits, in the order of the numbers; −0.0 is 0.0."""
    if tl.constexpr(x.dtype.is_floating()):
        y = x.to(tl.float32)
        bits = tl.where(y == 0, 0, y.to(tl.int32, bitcast=True))
        return bits ^ ((bits >> 31) & 0x7FFFFFFF)
    else:
        return x.to(tl.int32)


@triton.jit
def _key(score, loss, keys, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = _ordered(tl.load(score + row, mask=row < n, other=0)).to(tl.int64) + 2147483648
    d = _ordered(tl.load(loss + row, mask=row < n, other=0)).to(tl.int64)
    tl.store(keys + row, (d << 32) | s, mask=row < n)


@triton.jit
def _split(keys, score, by_loss, by_both, n, BLOCK: tl.constexpr):
    """Keys of the scores again, and where runs of equal losses, and of both, start."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    key = tl.load(keys + place, mask=there, other=0)
    before = tl.load(keys + place - 1, mask=there & (place > 0), other=0)
    tl.store(score + place, ((key & 0xFFFFFFFF) - 2147483648).to(tl.int32), mask=there)
    tl.store(by_loss + place, ((place == 0) | ((key >> 32) != (before >> 32))).to(tl.uint8), mask=there)
    tl.store(by_both + place, ((place == 0) | (key != before)).to(tl.uint8), mask=there)


@triton.jit
def _begin(first, open_start, next_start, rank, narrow, start, n, BLOCK: tl.constexpr):
    """What is known of a row from its place by score: −S − 2p."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    size = run_sizes(first, place, open_start, next_start, n, BLOCK)
    tl.store(narrow + place, tl.load(rank + place, mask=place < n, other=0).to(tl.int32), mask=place < n)
    tl.store(start + place, -size - 2 * place, mask=place < n)


@triton.jit
def _end(by_loss, open_loss, next_loss, by_both, open_both, next_both, credit, tied, n, BLOCK: tl.constexpr):
    """What is known of it from its place by loss: + J + 2(n − q − D); and D."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    alike = run_sizes(by_loss, place, open_loss, next_loss, n, BLOCK)
    both = run_sizes(by_both, place, open_both, next_both, n, BLOCK)
    found = tl.load(credit + place, mask=place < n, other=0) + both + 2 * (n - place - alike)
    tl.store(credit + place, found, mask=place < n)
    tl.store(tied + place, alike, mask=place < n)


@triton.jit
def _compare(score, loss, credit, tied, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Each of some rows with all rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    s = wide(tl.load(score + row, mask=row < n, other=0))[:, None]
    d = wide(tl.load(loss + row, mask=row < n, other=0))[:, None]
    credit2, alike = tl.zeros((ROWS,), tl.int32), tl.zeros((ROWS,), tl.int32)
    for some in range(0, n, COLUMNS):
        other = some + tl.arange(0, COLUMNS)
        t = wide(tl.load(score + other, mask=other < n, other=0))[None, :]
        e = wide(tl.load(loss + other, mask=other < n, other=0))[None, :]
        there = (other < n)[None, :]
        same = (s == t).to(tl.int32)
        up = tl.where((e < d) & there, 2 * (t < s).to(tl.int32) + same, 0)
        down = tl.where((e > d) & there, 2 * (t > s).to(tl.int32) + same, 0)
        credit2 += tl.sum(up + down, 1)
        alike += tl.sum(((e == d) & there).to(tl.int32), 1)
    tl.store(credit + row, credit2, mask=row < n)
    tl.store(tied + row, alike, mask=row < n)


@triton.jit
def _add(credit, tied, sums, least, most, n, BLOCK: tl.constexpr, INTS: tl.constexpr):
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(credit + row, mask=row < n, other=0).to(tl.int64) & 0xFFFFFFFF
    alike = tl.load(tied + row, mask=row < n, other=n)
    high, low = x >> 16, x & 0xFFFF
    own = sums + block * INTS
    tl.store(own, tl.sum(x, 0))
    tl.store(own + 1, tl.sum((n - alike).to(tl.int64), 0))
    tl.store(own + 2, tl.sum(high * high, 0))
    tl.store(own + 3, tl.sum(high * low, 0))
    tl.store(own + 4, tl.sum(low * low, 0))
    tl.store(least + block, n - tl.max(tl.where(row < n, alike, 0), 0))
    tl.store(most + block, n - tl.min(alike, 0))


@triton.jit
def _shift(credit, tied, sums, shifts, n, BLOCK: tl.constexpr):
    """What leaving each row out changes, as in `plain.pairs`."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    total, pairs = tl.load(sums).to(tl.float64), tl.load(sums + 1)
    x = (tl.load(credit + row, mask=row < n, other=0).to(tl.int64) & 0xFFFFFFFF).to(tl.float64)
    m = (n - tl.load(tied + row, mask=row < n, other=0)).to(tl.int64)
    found = tl.where(
        row < n, (m.to(tl.float64) * (total / pairs.to(tl.float64)) - x) / (pairs - 2 * m).to(tl.float64), 0.0
    )
    tl.store(shifts + 2 * block, tl.sum(found, 0))
    tl.store(shifts + 2 * block + 1, tl.sum(found * found, 0))


def pair_sums(score: Tensor, loss: Tensor) -> PairSums:
    """As `plain.pairs.pair_sums`."""
    with torch.cuda.device_of(score):  # where kernels are launched
        return _pair_sums(score.contiguous(), loss.contiguous())


def _pair_sums(score: Tensor, loss: Tensor) -> PairSums:
    n, device = len(score), score.device
    if n <= _FEW:
        credit, tied, ends = _few(score, loss)
    else:
        credit, tied, ends = _many(score, loss)
    blocks = triton.cdiv(n, BLOCK)
    sums = torch.empty((blocks, _INTS), dtype=torch.int64, device=device)
    edges = torch.empty((2, blocks), dtype=torch.int32, device=device)
    _add[(blocks,)](credit, tied, sums, *edges, n, BLOCK=BLOCK, INTS=_INTS, **AS_WRITTEN)
    whole = sums.sum(0)
    shifts = torch.empty((blocks, 2), dtype=torch.float64, device=device)
    _shift[(blocks,)](credit, tied, whole, shifts, n, BLOCK=BLOCK, **AS_WRITTEN)
    ints = torch.cat([whole[:2], edges[0].amin()[None], edges[1].amax()[None], whole[2:]])
    return PairSums(ints, shifts.sum(0), *ends)


def _few(score: Tensor, loss: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    n = len(score)
    credit, tied = torch.empty((2, n), dtype=torch.int32, device=score.device)
    rows = 16
    _compare[(triton.cdiv(n, rows),)](score, loss, credit, tied, n, ROWS=rows, COLUMNS=128, **AS_WRITTEN)
    least, most = torch.aminmax(score)  # NaN where there is one
    ends = torch.stack([x.to(torch.float64) for x in (least, most, *torch.aminmax(loss))])
    return credit, tied, (least == most, ends)


def _many(score: Tensor, loss: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    n, device = len(score), score.device
    blocks = triton.cdiv(n, BLOCK)
    by_loss, by_both = torch.empty((2, n), dtype=torch.uint8, device=device)
    if score.dtype in _NARROW and loss.dtype in _NARROW:
        keys = torch.empty(n, dtype=torch.int64, device=device)
        _key[(blocks,)](score, loss, keys, n, BLOCK=BLOCK, **AS_WRITTEN)
        keys = torch.sort(keys)[0]
        values = torch.empty(n, dtype=torch.int32, device=device)
        _split[(blocks,)](keys, values, by_loss, by_both, n, BLOCK=BLOCK, **AS_WRITTEN)
        of_loss = _numbers((keys[:: n - 1] >> 32).to(torch.int32), loss.dtype)
        del keys
        values, rank = torch.sort(values, stable=True)
        of_score = _numbers(values[:: n - 1], score.dtype)
    else:
        values, rank, of_score, of_loss = _three_sorts(score, loss, by_loss, by_both)
    constant = values[0] == values[-1]
    first = run_starts(values).view(torch.uint8)
    del values
    narrow, start = torch.empty((2, n), dtype=torch.int32, device=device)
    _begin[(blocks,)](first, *joined_runs(first), rank, narrow, start, n, BLOCK=BLOCK, **AS_WRITTEN)
    del rank, first
    credit = add_below(narrow, start)
    tied = narrow  # its memory
    runs = (by_loss, *joined_runs(by_loss), by_both, *joined_runs(by_both))
    _end[(blocks,)](*runs, credit, tied, n, BLOCK=BLOCK, **AS_WRITTEN)
    return credit, tied, (constant, torch.cat([of_score, of_loss]))


def _three_sorts(score: Tensor, loss: Tensor, by_loss: Tensor, by_both: Tensor) -> tuple[Tensor, ...]:
    """Of numbers of any width."""
    by_score, rank, of_score, losses = ordered(score, loss)
    by_loss.copy_(run_starts(losses))
    torch.bitwise_or(by_loss, run_starts(of_score), out=by_both)
    return by_score, rank, ends_of(by_score), ends_of(losses)


def _numbers(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers that such keys were made of."""
    if not dtype.is_floating_point:
        return keys.to(torch.float64)
    return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).view(torch.float32).to(torch.float64)
