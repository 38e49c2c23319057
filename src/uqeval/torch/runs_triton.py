"""The sums of `counting` and `areas` over runs of equal scores in Triton: what a run adds stays in registers.

A block of runs leaves its sums, which torch adds up in one order. Bounds and prefix counts are read once a kernel.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from uqeval.torch.areas import FINE, SERIES, AreaSums, table_of
from uqeval.torch.order import Runs
from uqeval.torch.wavelet_triton import AS_WRITTEN

_BLOCK = 512
_INTS, _FLOATS = 11, 6


@triton.jit
def _bounds(bound, before, run, n):
    """Start and end of runs, and the wrong rows before both."""
    start = tl.load(bound + run, mask=run < n, other=n)
    end = tl.load(bound + run + 1, mask=run < n, other=n)
    first, last = tl.load(before + start), tl.load(before + end)
    return start.to(tl.int64), end.to(tl.int64), first.to(tl.int64), last.to(tl.int64)


@triton.jit
def _add_squares(sums, x, times):
    """As `counting.squares`."""
    high, low = x >> 16, x & 0xFFFF
    tl.store(sums, tl.sum(times * high * high, 0))
    tl.store(sums + 1, tl.sum(times * high * low, 0))
    tl.store(sums + 2, tl.sum(times * low * low, 0))


@triton.jit
def _count(bound, before, sums, n, BLOCK: tl.constexpr, INTS: tl.constexpr):
    block = tl.program_id(0)
    start, end, first, last = _bounds(bound, before, block * BLOCK + tl.arange(0, BLOCK), n)
    all_wrong = tl.load(before + n).to(tl.int64)
    wrong, size = last - first, end - start
    x = start + end - first - last  # twice the credit of a wrong row
    own = sums + block * INTS
    tl.store(own, tl.sum(wrong * x, 0))
    tl.store(own + 1, tl.sum(size * (size - 1), 0))
    _add_squares(own + 2, x, wrong)
    _add_squares(own + 5, 2 * all_wrong - first - last, size - wrong)
    _add_squares(own + 8, (n - start) + (n - end), wrong)  # 2n may pass 2³¹


@triton.jit
def _harmonic(start, stop, table, SERIES: tl.constexpr):
    short = tl.load(table + tl.minimum(start, SERIES)) - tl.load(table + tl.minimum(stop, SERIES))
    a, b = tl.maximum(start, SERIES).to(tl.float64), tl.maximum(stop, SERIES).to(tl.float64)
    y = (b - a) / a
    u = 1.0 + y  # log1p as Kahan has it: what 1 + y rounds away goes into both factors
    log = tl.where(u == 1.0, y, tl.log(u) * y / (u - 1.0))
    i, j = 1.0 / a, 1.0 / b
    tail = (j - i) / 2 - (j * j - i * i) / 12 + (j * j * j * j - i * i * i * i) / 120
    return short + log + tail


@triton.jit
def _harmonic2(start, stop, table, SERIES: tl.constexpr):
    short = tl.load(table + tl.minimum(start, SERIES)) - tl.load(table + tl.minimum(stop, SERIES))
    a, b = tl.maximum(start, SERIES).to(tl.float64), tl.maximum(stop, SERIES).to(tl.float64)
    i, j = 1.0 / a, 1.0 / b
    i3, j3 = i * i * i, j * j * j
    return short + (b - a) * i * j + (j * j - i * i) / 2 - (j3 - i3) / 6 + (j3 * j * j - i3 * i * i) / 30


@triton.jit
def _means(start, end, first, last, table, table2, SERIES: tl.constexpr):
    """As in `areas.area_sums`: rows, wrong rows, mean of j/k, Σ risk, Σ risk/k, and the mean of what is inside."""
    b, stop, v = start.to(tl.float64), end.to(tl.float64), first.to(tl.float64)
    w = last.to(tl.float64) - v
    m = tl.maximum(stop - b, 1.0)
    one, per = m == 1.0, 1.0 / stop
    once = tl.where(one, per, _harmonic(start, end, table, SERIES))
    twice = tl.where(one, per * per, _harmonic2(start, end, table2, SERIES))
    mean = tl.where(one, per, 1.0 - b * once / m)
    second = tl.where(one, per * per, once - b * twice)
    of_row = v * twice + w * second / m
    inside = (v * second + w * (mean - b * second / m)) / m
    there = end > start
    return m, w, mean, tl.where(there, v * once + w * mean, 0.0), tl.where(there, of_row, 0.0), inside


@triton.jit
def _walk(bound, before, table, table2, whole, n, FINE: tl.constexpr, SERIES: tl.constexpr, BLOCK: tl.constexpr):
    run = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start, end, first, last = _bounds(bound, before, run, n)
    _m, _w, _mean, _risk, of_row, _inside = _means(start, end, first, last, table, table2, SERIES)
    tl.store(whole + run, (of_row * FINE + 0.5).to(tl.int64), mask=run < n)


@triton.jit
def _areas(
    bound, before, table, table2, done, sums, n,
    FINE: tl.constexpr, SERIES: tl.constexpr, BLOCK: tl.constexpr, FLOATS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    run = block * BLOCK + tl.arange(0, BLOCK)
    start, end, first, last = _bounds(bound, before, run, n)
    m, w, mean, risk, _of_row, inside = _means(start, end, first, last, table, table2, SERIES)
    total, until = tl.load(done + n - 1), tl.load(done + run, mask=run < n, other=0)
    behind = tl.where(run < n, total - until, 0).to(tl.float64) / FINE
    later = _harmonic(end, tl.zeros_like(end) + n, table, SERIES) + mean
    rest = risk / m - behind - inside
    both, right = rest + later, (end - start).to(tl.float64) - w
    own = sums + block * FLOATS
    tl.store(own, tl.sum(risk, 0))
    tl.store(own + 1, tl.sum(w * both, 0))
    tl.store(own + 2, tl.sum(w * both * both, 0))
    tl.store(own + 3, tl.sum(right * rest, 0))
    tl.store(own + 4, tl.sum(right * rest * rest, 0))
    tl.store(own + 5, tl.sum(w * later * later, 0))


def run_ints(runs: Runs) -> Tensor:
    """As `counting.run_ints`."""
    blocks = triton.cdiv(runs.n, _BLOCK)
    sums = torch.empty((blocks, _INTS), dtype=torch.int64, device=runs.bound.device)
    with torch.cuda.device_of(sums):  # where kernels are launched
        _count[(blocks,)](runs.bound, runs.before, sums, runs.n, BLOCK=_BLOCK, INTS=_INTS, **AS_WRITTEN)
    return sums.sum(0)


def area_sums(runs: Runs) -> AreaSums:
    """As `areas.area_sums`."""
    blocks, device = triton.cdiv(runs.n, _BLOCK), runs.bound.device
    tables = table_of(device, 1), table_of(device, 2)
    whole = torch.empty(runs.n, dtype=torch.int64, device=device)
    sums = torch.empty((blocks, _FLOATS), dtype=torch.float64, device=device)
    with torch.cuda.device_of(sums):
        options = {"FINE": FINE, "SERIES": SERIES, "BLOCK": _BLOCK} | AS_WRITTEN
        _walk[(blocks,)](runs.bound, runs.before, *tables, whole, runs.n, **options)
        done = torch.cumsum(whole, 0)
        _areas[(blocks,)](runs.bound, runs.before, *tables, done, sums, runs.n, **options, FLOATS=_FLOATS)
    return AreaSums(*sums.sum(0).unbind())
