"""Rows in the order of a score in Triton: after the sort two trips through memory, for AURC and its relatives, too.

The first gathers the errors and marks where runs of equal scores start, a byte a place. A block leaves its wrong rows
and its last start, which one small kernel joins. Then a block knows of each place that ends a run where that run began
and how many wrong rows lie before: what the run adds stays in registers, and the block leaves its sums, which torch
adds up in one order. The formulas are those of `plain.runs` and `plain.areas`.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from uqeval.torch.checks import as_bits
from uqeval.torch.plain.areas import FINE, SERIES, table_of
from uqeval.torch.triton.scans import AS_WRITTEN, BLOCK, CHUNK, larger, wide

_PACKED = 1 << 22  # rows from which errors are gathered as single bits: so they stay in the cache
_INTS, _FLOATS = 14, 9
_WARPS = {"num_warps": 8}  # eight places a thread: more would not stay in registers


@triton.jit
def _pack(error, words, odd, n, WORDS: tl.constexpr):
    """32 errors to a word; how many of them are neither 0 nor 1."""
    block = tl.program_id(0)
    bit = tl.arange(0, 32)
    row = (block * WORDS + tl.arange(0, WORDS))[:, None] * 32 + bit[None, :]
    value = tl.load(error + row, mask=row < n, other=0).to(tl.int32)
    packed = tl.sum((value & 1) << bit[None, :], 1)
    tl.store(words + block * WORDS + tl.arange(0, WORDS), packed)
    tl.store(odd + block, tl.sum(tl.sum(((value >> 1) != 0).to(tl.int32), 1), 0))


@triton.jit
def _mark(values, row, error, marks, wrongs, opened, odd, ends, n, PACKED: tl.constexpr, BLOCK: tl.constexpr):
    """Of each place: 1 if its row is wrong, and 2 if a run starts there. And the least and the largest value."""
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    value = wide(tl.load(values + place, mask=there, other=0))
    before = wide(tl.load(values + place - 1, mask=there & (place > 0), other=0))
    first = there & ((place == 0) | (value != before))
    at = tl.load(row + place, mask=there, other=0)
    if PACKED:
        wrong = (tl.load(error + (at >> 5), mask=there, other=0) >> (at & 31).to(tl.int32)) & 1
    else:
        raw = tl.load(error + at, mask=there, other=0).to(tl.int32)
        wrong = raw & 1
        tl.store(odd + block, tl.sum(((raw >> 1) != 0).to(tl.int32), 0))
    tl.store(marks + place, (wrong + 2 * first.to(tl.int32)).to(tl.uint8), mask=there)
    last = tl.max(tl.where(first, place, -1), 0)
    until = tl.sum(tl.where(place < last, wrong, 0), 0)  # wrong rows of the block before its last start
    tl.store(wrongs + block, tl.sum(wrong, 0))
    tl.store(opened + block, tl.where(last < 0, -1, (last.to(tl.int64) << 32) + until))
    if block == 0:
        end = tl.arange(0, 2)
        tl.store(ends + end, wide(tl.load(values + end * (n - 1))).to(tl.float64))


@triton.jit(do_not_specialize=["blocks"])  # 1 would be no tensor
def _join(wrongs, opened, before, open_run, blocks, CHUNK: tl.constexpr):
    """Of each block: wrong rows before it; of the run that is open there the start · 2³² + the wrong rows before it."""
    count, known = blocks.to(tl.int64) * 0, blocks.to(tl.int64) * 0
    for some in range(0, blocks, CHUNK):
        block = some + tl.arange(0, CHUNK)
        wrong = tl.load(wrongs + block, mask=block < blocks, other=0).to(tl.int64)
        own = tl.load(opened + block, mask=block < blocks, other=-1)
        until = tl.cumsum(wrong, 0) + count
        start = tl.where(own < 0, -1, own + until - wrong)
        known_here = tl.maximum(tl.associative_scan(start, 0, larger), known)
        tl.store(before + block + 1, until.to(tl.int32), mask=block < blocks)
        tl.store(open_run + block + 1, known_here, mask=block < blocks)
        count += tl.sum(wrong, 0)
        known = tl.max(known_here, 0)
    tl.store(before, 0)
    tl.store(open_run, known * 0)


@triton.jit
def _runs_of(marks, before, open_run, n, BLOCK: tl.constexpr):
    """Of the places of a block: whether a run ends there, its start and end, and the wrong rows before both."""
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    mark = tl.load(marks + place, mask=there, other=2).to(tl.int32)
    after = tl.load(marks + place + 1, mask=place + 1 < n, other=2).to(tl.int32)
    wrong, first = mark & 1, mark > 1
    last = tl.cumsum(wrong, 0) + tl.load(before + block)
    start, until = place, last - wrong
    if tl.min((first & (after > 1)).to(tl.int32), 0) == 0:  # some tie
        run = tl.where(first, (place.to(tl.int64) << 32) + until, -1)
        run = tl.maximum(tl.associative_scan(run, 0, larger), tl.load(open_run + block))
        start, until = (run >> 32).to(tl.int32), (run & 0xFFFFFFFF).to(tl.int32)
    return there & (after > 1), start, place + 1, until, last


@triton.jit
def _add_squares(sums, x, times):
    """As `reading.squares`."""
    high, low = x >> 16, x & 0xFFFF
    tl.store(sums, tl.sum(times * high * high, 0))
    tl.store(sums + 1, tl.sum(times * high * low, 0))
    tl.store(sums + 2, tl.sum(times * low * low, 0))


@triton.jit
def _over(x):
    """1/x to the last bit or two, for x from 1/2 to 2³¹: no branch, and a tenth of the instructions of a division."""
    r = (1.0 / x.to(tl.float32)).to(tl.float64)
    r = r + r * (1.0 - x * r)
    return r + r * (1.0 - x * r)


@triton.jit
def _harmonic(start, stop, table, SERIES: tl.constexpr):
    short = tl.load(table + tl.minimum(start, SERIES)) - tl.load(table + tl.minimum(stop, SERIES))
    a, b = tl.maximum(start, SERIES).to(tl.float64), tl.maximum(stop, SERIES).to(tl.float64)
    i, j = _over(a), _over(b)
    y = (b - a) * i
    u = 1.0 + y  # log1p as Kahan has it: what 1 + y rounds away goes into both factors
    log = tl.where(u == 1.0, y, tl.log(u) * y / (u - 1.0))
    tail = (j - i) * 0.5 - (j * j - i * i) * (1.0 / 12.0) + (j * j * j * j - i * i * i * i) * (1.0 / 120.0)
    return short + log + tail


@triton.jit
def _harmonic2(start, stop, table, SERIES: tl.constexpr):
    short = tl.load(table + tl.minimum(start, SERIES)) - tl.load(table + tl.minimum(stop, SERIES))
    a, b = tl.maximum(start, SERIES).to(tl.float64), tl.maximum(stop, SERIES).to(tl.float64)
    i, j = _over(a), _over(b)
    i3, j3 = i * i * i, j * j * j
    return (
        short
        + (b - a) * i * j
        + (j * j - i * i) * 0.5
        - (j3 - i3) * (1.0 / 6.0)
        + (j3 * j * j - i3 * i * i) * (1.0 / 30.0)
    )


@triton.jit
def _long(start, end, first, last, table, table2, SERIES: tl.constexpr):
    """As in `plain.areas`, per row: mean of j/k, risk, and the mean of what is inside; and Σ risk/k of the run."""
    b, v = start.to(tl.float64), first.to(tl.float64)
    w, m = (last - first).to(tl.float64), (end - start).to(tl.float64)
    per = _over(m)
    once, twice = _harmonic(start, end, table, SERIES), _harmonic2(start, end, table2, SERIES)
    mean = 1.0 - b * once * per
    second = once - b * twice
    inside = (v * second + w * (mean - b * second * per)) * per
    return mean, (v * once + w * mean) * per, inside, v * twice + w * second * per


@triton.jit
def _short(start, end, first, last):
    """The same of single rows and of runs of less than k/256 rows: in powers of the distance to their middle."""
    v, w, m = first.to(tl.float64), (last - first).to(tl.float64), (end - start).to(tl.float64)
    half = (m + 1.0) * 0.5
    r = _over(start.to(tl.float64) + half)
    spread, four = (m * m - 1.0) * (r * r), (3.0 * m * m - 7.0) * (r * r)
    second, fourth = spread * (1.0 / 12.0), spread * four * (1.0 / 240.0)  # moments
    u, z = second + fourth, 3.0 * second + 5.0 * fourth  # Σ 1/k is r·m·(1 + u) and Σ 1/k² is r²·m·(1 + z)
    a = half * r
    back, share = 1.0 - a, w * _over(m)
    mean = a - back * u
    of_one = r * (a + u - back * z)  # mean of j/k²
    inside = v * of_one + share * (a * a - back * (2.0 * u - back * z))
    return mean, v * (r * (1.0 + u)) + share * mean, inside, v * (m * (r * r) * (1.0 + z)) + w * of_one


@triton.jit
def _any_long(ended, start, end):
    return tl.max((ended & (end - start - 1 > (end >> 8))).to(tl.int32), 0) > 0


@triton.jit
def _add_areas(sums, whole, blocks, ended, start, end, first, last, later, of_row, of_run, FINE: tl.constexpr):
    """Sums of what a block knows. Σ 1/k from its start and Σ risk/k behind it, alike for all rows, `_combine` adds."""
    wrong, size = tl.where(ended, last - first, 0), tl.where(ended, end - start, 0)
    w, right = wrong.to(tl.float64), (size - wrong).to(tl.float64)
    _mean, risk, inside = of_row
    here = tl.where(ended, (of_run * FINE + 0.5).to(tl.int64), 0)
    rest = risk - inside + tl.cumsum(here, 0).to(tl.float64) * (1.0 / FINE)
    both = rest + later
    tl.store(whole, tl.sum(here, 0))
    tl.store(sums, tl.sum(size.to(tl.float64) * risk, 0))
    tl.store(sums + blocks, tl.sum(wrong, 0).to(tl.float64))
    tl.store(sums + 2 * blocks, tl.sum(w * later, 0))
    tl.store(sums + 3 * blocks, tl.sum(w * later * later, 0))
    tl.store(sums + 4 * blocks, tl.sum(w * both, 0))
    tl.store(sums + 5 * blocks, tl.sum(w * both * both, 0))
    tl.store(sums + 6 * blocks, tl.sum(size - wrong, 0).to(tl.float64))
    tl.store(sums + 7 * blocks, tl.sum(right * rest, 0))
    tl.store(sums + 8 * blocks, tl.sum(right * rest * rest, 0))


@triton.jit(do_not_specialize=["blocks"])
def _count(
    marks, before, open_run, odd, ints, table, table2, floats, whole, blocks, n,
    WALKED: tl.constexpr, FINE: tl.constexpr, SERIES: tl.constexpr, BLOCK: tl.constexpr, INTS: tl.constexpr,
):  # fmt: skip
    """What the runs that end in a block add to integers and, if somebody walks, to AURC and its relatives."""
    block = tl.program_id(0)
    ended, start, end, first, last = _runs_of(marks, before, open_run, n, BLOCK)
    all_wrong = tl.load(before + blocks).to(tl.int64)
    wrong, size = tl.where(ended, last - first, 0).to(tl.int64), tl.where(ended, end - start, 0).to(tl.int64)
    x = (start - first).to(tl.int64) + (end - last)  # twice the credit of a wrong row
    own = ints + block * INTS
    tl.store(own, tl.sum(ended.to(tl.int32), 0).to(tl.int64))
    tl.store(own + 1, tl.sum(wrong.to(tl.int32), 0).to(tl.int64))
    tl.store(own + 2, tl.sum(wrong * x, 0))
    tl.store(own + 3, tl.sum(size * (size - 1), 0))
    _add_squares(own + 4, x, wrong)
    _add_squares(own + 7, (all_wrong - first) + (all_wrong - last), size - wrong)
    _add_squares(own + 10, (n - start).to(tl.int64) + (n - end), wrong)
    tl.store(own + 13, tl.load(odd + block).to(tl.int64))
    if WALKED:
        own = floats + block
        if _any_long(ended, start, end):
            mean, risk, inside, of_run = _long(start, end, first, last, table, table2, SERIES)
            later = mean - _harmonic(block * BLOCK + tl.zeros_like(end), end, table, SERIES)
            of_row = (mean, risk, inside)
            _add_areas(own, whole + block, blocks, ended, start, end, first, last, later, of_row, of_run, FINE)
        else:
            mean, risk, inside, of_run = _short(start, end, first, last)
            later = mean - tl.cumsum(_over(end.to(tl.float64)), 0)
            of_row = (mean, risk, inside)
            _add_areas(own, whole + block, blocks, ended, start, end, first, last, later, of_row, of_run, FINE)


@triton.jit
def _column(floats, which, block, blocks):
    return tl.load(floats + which * blocks + block, mask=block >= 0, other=0.0)


@triton.jit(do_not_specialize=["blocks"])
def _combine(
    floats, whole, sums, table, blocks, n,
    FINE: tl.constexpr, SERIES: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """`AreaSums` of all blocks, from behind: (x + c)² is x² + 2cx + c²."""
    after = blocks.to(tl.int64) * 0
    nothing = tl.zeros([CHUNK], tl.float64)
    risk, wrong, wrong2, right, right2, shares2 = nothing, nothing, nothing, nothing, nothing, nothing
    for some in range(0, blocks, CHUNK):
        block = blocks - 1 - some - tl.arange(0, CHUNK)
        of_block = tl.load(whole + block, mask=block >= 0, other=0)
        behind = (tl.cumsum(of_block, 0) + after).to(tl.float64) * (1.0 / FINE)
        after += tl.sum(of_block, 0)
        risk += _column(floats, 0, block, blocks)
        start = tl.maximum(block, 0) * BLOCK
        c = _harmonic(start, tl.zeros_like(start) + n, table, SERIES)
        rows, one = _column(floats, 1, block, blocks), _column(floats, 2, block, blocks)
        shares2 += _column(floats, 3, block, blocks) + c * (2.0 * one + rows * c)
        c -= behind
        one = _column(floats, 4, block, blocks)
        wrong += one + rows * c
        wrong2 += _column(floats, 5, block, blocks) + c * (2.0 * one + rows * c)
        rows, one = _column(floats, 6, block, blocks), _column(floats, 7, block, blocks)
        right += one - rows * behind
        right2 += _column(floats, 8, block, blocks) - behind * (2.0 * one - rows * behind)
    tl.store(sums, tl.sum(risk, 0))
    tl.store(sums + 1, tl.sum(wrong, 0))
    tl.store(sums + 2, tl.sum(wrong2, 0))
    tl.store(sums + 3, tl.sum(right, 0))
    tl.store(sums + 4, tl.sum(right2, 0))
    tl.store(sums + 5, tl.sum(shares2, 0))


@triton.jit
def _wrong_before(marks, before, places, found, BLOCK: tl.constexpr):
    """Wrong rows before single places."""
    place = tl.load(places + tl.program_id(0)).to(tl.int32)
    block = place // BLOCK
    at = block * BLOCK + tl.arange(0, BLOCK)
    mark = tl.load(marks + at, mask=at < place, other=0).to(tl.int32)
    tl.store(found + tl.program_id(0), tl.load(before + block) + tl.sum(mark & 1, 0))


class Runs:
    """Rows on a CUDA device."""

    def __init__(self, score: Tensor, error: Tensor) -> None:
        small = error.dtype in (torch.uint8, torch.int8)  # a look at those is on the way
        self.known_odd: Tensor | None = None
        if small:
            bits = error.contiguous()
        else:
            bits, self.known_odd = as_bits(error)
        self.n, self.device = len(score), score.device
        blocks = self.blocks = triton.cdiv(self.n, BLOCK)
        # −0.0 and 0.0 stand beside each other, as equals, whatever a radix sort makes of them.
        self.values, row = torch.sort(score)
        self.ends = torch.empty(2, dtype=torch.float64, device=self.device)
        self.marks = torch.empty(self.n, dtype=torch.uint8, device=self.device)
        self.before = torch.empty(blocks + 1, dtype=torch.int32, device=self.device)
        self.open_run = torch.empty(blocks + 1, dtype=torch.int64, device=self.device)
        self.odd = torch.empty(blocks, dtype=torch.int32, device=self.device)
        wrongs = torch.empty(blocks, dtype=torch.int32, device=self.device)
        opened = torch.empty(blocks, dtype=torch.int64, device=self.device)
        with torch.cuda.device_of(score):  # where kernels are launched
            packed = self.n >= _PACKED
            if packed:
                bits = _packed(bits, self.odd.zero_())
            arrays = (self.values, row, bits, self.marks, wrongs, opened, self.odd, self.ends)
            _mark[(blocks,)](*arrays, self.n, PACKED=packed, BLOCK=BLOCK, **_WARPS, **AS_WRITTEN)
            _join[(1,)](wrongs, opened, self.before, self.open_run, blocks, CHUNK=CHUNK, **AS_WRITTEN)

    def sums(self, walks: bool) -> tuple[Tensor, Tensor | None]:
        """As `counting.Ranked`."""
        ints = torch.empty((self.blocks, _INTS), dtype=torch.int64, device=self.device)
        floats = torch.empty((_FLOATS if walks else 0, self.blocks), dtype=torch.float64, device=self.device)
        whole = torch.empty(self.blocks, dtype=torch.int64, device=self.device) if walks else ints
        areas = torch.empty(6, dtype=torch.float64, device=self.device) if walks else None
        tables = table_of(self.device, 1), table_of(self.device, 2)
        arrays = (self.marks, self.before, self.open_run, self.odd, ints, *tables, floats, whole)
        options = {"WALKED": walks, "FINE": FINE, "SERIES": SERIES, "BLOCK": BLOCK, "INTS": _INTS}
        with torch.cuda.device_of(ints):
            _count[(self.blocks,)](*arrays, self.blocks, self.n, **options, **_WARPS, **AS_WRITTEN)
            if walks:
                known = (floats, whole, areas, tables[0], self.blocks, self.n)
                _combine[(1,)](*known, FINE=FINE, SERIES=SERIES, BLOCK=BLOCK, CHUNK=CHUNK, **AS_WRITTEN)
        totals = ints.sum(0)
        if self.known_odd is not None:
            totals[-1:] += self.known_odd
        return totals, areas

    def around(self, places: Sequence[int]) -> list[Tensor]:
        """As `counting.Ranked`."""
        values = torch.cat([self.values[k : k + 1] for k in places])
        edges = torch.cat([torch.searchsorted(self.values, values, right=right) for right in (False, True)])
        found = torch.empty(len(edges), dtype=torch.int32, device=self.device)
        with torch.cuda.device_of(found):
            _wrong_before[(len(edges),)](self.marks, self.before, edges, found, BLOCK=BLOCK, **AS_WRITTEN)
        return [edges, found]


def _packed(bits: Tensor, odd: Tensor) -> Tensor:
    """Errors as bits of int32; into the first of `odd`, in how many places of a block something else was found."""
    words, each = triton.cdiv(len(bits), 32), BLOCK // 16
    blocks = triton.cdiv(words, each)
    packed = torch.empty(blocks * each, dtype=torch.int32, device=bits.device)
    _pack[(blocks,)](bits, packed, odd, len(bits), WORDS=each, **AS_WRITTEN)
    return packed
