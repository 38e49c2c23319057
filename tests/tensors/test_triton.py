"""The Triton kernels give what plain torch does: run by Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytest.importorskip("torch")
# Looked for and not imported: beside other bindings in one process it lists its functions as leaks at the end.
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

# In a process of its own: Triton reads the variable when it is loaded.
SAME = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy
import torch
from uqeval.torch import counting
from uqeval.torch.plain import pairs as plain_pairs, runs as plain_runs, wavelet as plain_wavelet
from uqeval.torch.triton import pairs, runs, scans, wavelet

numpy.seterr(invalid="ignore")  # the interpreter computes lanes that no row uses
scans.BLOCK = pairs.BLOCK = runs.BLOCK = wavelet._BLOCK = 128  # so few rows fill several blocks
scans.CHUNK = runs.CHUNK = 4  # and chunks of them
torch.manual_seed(0)
for n in (1, 2, 31, 32, 33, 129, 700):
    rank, start = torch.randperm(n).int(), torch.randint(-(2**31), 2**31 - 1, (n,)).int()
    given = rank.clone(), start.clone()
    assert torch.equal(wavelet.add_below(rank, start), plain_wavelet.add_below(rank.clone(), start.clone())), n
    assert torch.equal(rank, given[0]) and torch.equal(start, given[1]), "what the caller gave has changed"
for n, decimals, rate, packed in (
    (2, None, 0.5, False), (257, None, 0.3, True), (700, 1, 0.3, False), (700, 0, 0.1, True), (600, -2, 0.0, True),
    (600, -2, 1.0, False), (500, 2, 0.3, False),
):
    runs._PACKED = 1 if packed else n + 1
    score = 10 * torch.randn(n, dtype=torch.float64)
    score = score if decimals is None else score.round(decimals=decimals)
    error = (torch.rand(n) < rate).view(torch.uint8)
    both = runs.Runs(score, error), plain_runs.Runs(score, error)
    (totals, areas), (plain_totals, plain_areas) = (one.sums(True) for one in both)
    assert torch.equal(totals, plain_totals), (n, decimals, rate)
    assert torch.equal(both[0].sums(False)[0], totals)
    assert torch.equal(both[0].ends, both[1].ends)
    assert torch.allclose(areas, plain_areas, rtol=1e-12, atol=1e-14 * n), (n, decimals, rate)
    cuts = counting.cut_places(n, (0.8, 0.95))
    edges, plain_edges = (torch.cat([x.long() for x in one.around(cuts)]) for one in both)
    assert torch.equal(edges, plain_edges), (n, decimals, rate)
    error[n // 2] = 3
    assert runs.Runs(score, error).sums(False)[0][-1] == 1 == runs.Runs(score, error.float()).sums(False)[0][-1]
for few in (0, 4096):
    pairs._FEW = few
    for n, decimals, kind in (
        (2, None, torch.float32), (700, None, torch.float32), (700, 1, torch.float16), (300, 0, torch.float64),
        (300, -2, torch.int16),
    ):
        score, loss = 10 * torch.randn(n), 10 * torch.randn(n)
        if decimals is not None:
            score, loss = score.round(decimals=decimals), loss.round(decimals=decimals)
        found, plain = (one.pair_sums(score.to(kind), loss) for one in (pairs, plain_pairs))
        assert torch.equal(found.ints, plain.ints), (n, decimals, kind, few)
        assert torch.equal(found.ends, plain.ends) and bool(found.constant) == bool(plain.constant)
        assert torch.allclose(found.floats, plain.floats, rtol=1e-10, atol=1e-13, equal_nan=True)
print("same")
"""


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from uqeval.torch.triton import pairs, runs, scans, wavelet

BYTES, INT, LONG, FLOAT = "*u8", "*i32", "*i64", "*fp64"
flags = {"BLOCK": 2048}
edges = {"open_start": INT, "next_start": INT}
known = {"marks": BYTES, "before": INT, "open_run": LONG, "odd": INT, "ints": LONG, "table": FLOAT, "table2": FLOAT}
known |= {"floats": FLOAT, "whole": LONG, "blocks": "i32", "n": "i32"}
walked = {"FINE": runs.FINE, "SERIES": runs.SERIES, "BLOCK": 2048, "INTS": 14}
sorted_rows = {"values": "*fp32", "row": LONG, "error": INT, "marks": BYTES, "wrongs": INT, "opened": LONG}
sorted_rows |= {"odd": INT, "ends": FLOAT, "n": "i32"}
of_runs = {"by_loss": BYTES, "open_loss": INT, "next_loss": INT, "by_both": BYTES, "open_both": INT, "next_both": INT}
kernels = (
    (runs._pack, {"error": BYTES, "words": INT, "odd": INT, "n": "i32"}, {"WORDS": 128}),
    (runs._mark, sorted_rows, flags | {"PACKED": True}),
    (runs._mark, sorted_rows | {"values": "*bf16", "error": BYTES}, flags | {"PACKED": False}),
    (runs._join, dict.fromkeys(("wrongs", "before"), INT) | {"opened": LONG, "open_run": LONG, "blocks": "i32"},
     {"CHUNK": 1024}),
    (runs._count, known, walked | {"WALKED": False}),
    (runs._count, known, walked | {"WALKED": True}),
    (runs._combine, {"floats": FLOAT, "whole": LONG, "sums": FLOAT, "table": FLOAT, "blocks": "i32", "n": "i32"},
     {"FINE": runs.FINE, "SERIES": runs.SERIES, "BLOCK": 2048, "CHUNK": 1024}),
    (runs._wrong_before, {"marks": BYTES, "before": INT, "places": LONG, "found": INT}, flags),
    (scans._edges, {"first": BYTES, "last_start": INT, "first_start": INT, "n": "i32"}, flags),
    (scans._join, {"last_start": INT, "first_start": INT, **edges, "blocks": "i32", "n": "i32"}, {"CHUNK": 1024}),
    (pairs._key, {"score": "*fp32", "loss": "*fp16", "keys": LONG, "n": "i32"}, flags),
    (pairs._split, {"keys": LONG, "score": INT, "by_loss": BYTES, "by_both": BYTES, "n": "i32"}, flags),
    (pairs._begin, {"first": BYTES, **edges, "rank": LONG, "narrow": INT, "start": INT, "n": "i32"}, flags),
    (pairs._end, of_runs | {"credit": INT, "tied": INT, "n": "i32"}, flags),
    (pairs._compare, {"score": "*fp32", "loss": "*fp32", "credit": INT, "tied": INT, "n": "i32"},
     {"ROWS": 16, "COLUMNS": 128}),
    (pairs._add, {"credit": INT, "tied": INT, "sums": LONG, "least": INT, "most": INT, "n": "i32"},
     flags | {"INTS": 5}),
    (pairs._shift, {"credit": INT, "tied": INT, "sums": LONG, "shifts": FLOAT, "n": "i32"}, flags),
    (wavelet._count_zeros, {"rank": INT, "zeros": INT, "n": "i32", "bit": "i32"}, flags),
    (wavelet._partition, dict.fromkeys(("rank", "start", "new_rank", "new_start", "before"), INT)
     | {"n": "i32", "bit": "i32"}, flags),
    (wavelet._finish, dict.fromkeys(("rank", "start", "found"), INT) | {"n": "i32"}, {"NODE": 32, "NODES": 16}),
)
own = {name for module in (runs, scans, pairs, wavelet) for name, kernel in vars(module).items()
       if hasattr(kernel, "fn") and kernel.fn.__module__ == module.__name__}
called = {"larger", "smaller", "wide", "run_sizes", "_ordered", "_runs_of", "_add_squares", "_over", "_harmonic"}
called |= {"_harmonic2", "_column", "_long", "_short", "_any_long", "_add_areas"}
assert {kernel.fn.__name__ for kernel, *_ in kernels} == own - called, own - called
for kernel, arguments, constants in kernels:
    source = ASTSource(kernel, arguments | dict.fromkeys(constants, "constexpr"), constants)
    assert compile(source, target=GPUTarget("cuda", 90, 32), options=scans.AS_WRITTEN).asm["cubin"], kernel
print("compiled")
"""


def said(code, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables, check=False
    )
    return done.stdout.strip() or done.stderr


def test_triton_counts_what_plain_torch_counts():
    assert said(SAME) == "same"


@pytest.mark.slow  # it compiles for some seconds
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(tmp_path):
    assert said(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "compiled"
