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
import torch
from uqeval.torch import areas, counting, functional, runs_triton, wavelet
from uqeval.torch.order import runs_of
from uqeval.torch.wavelet_triton import add_below

torch.manual_seed(0)
for n in (1, 2, 63, 64, 65, 129, 2047, 2049, 4097):
    rank, start = torch.randperm(n).int(), torch.randint(-(2**31), 2**31 - 1, (n,)).int()
    given = rank.clone(), start.clone()
    assert torch.equal(add_below(rank, start), wavelet.add_below_plain(rank, start)), n
    assert torch.equal(rank, given[0]) and torch.equal(start, given[1]), "what the caller gave has changed"
for n in (2, 257, 513, 1100):
    for decimals in (None, 1):
        for rate in (0.0, 0.3):
            score = torch.randn(n, dtype=torch.float64)
            score = score if decimals is None else score.round(decimals=decimals)
            runs = runs_of(score, (torch.rand(n) < rate).view(torch.uint8))
            assert torch.equal(runs_triton.run_ints(runs), counting.run_ints(runs)), (n, decimals, rate)
            found, plain = (torch.stack(tuple(one.area_sums(runs))) for one in (runs_triton, areas))
            assert torch.allclose(found, plain, rtol=1e-13, atol=1e-13), (n, decimals, rate)
score, loss = torch.randn(1000).round(decimals=1), torch.randn(1000).round(decimals=1)
plain = functional.estimate("uq_c_index", score, loss)
counting.add_below = add_below
assert functional.estimate("uq_c_index", score, loss) == plain
print("same")
"""


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from uqeval.torch import runs_triton as runs
from uqeval.torch import wavelet_triton as wavelet

ints, tables = {"bound": "*i32", "before": "*i32"}, {"table": "*fp64", "table2": "*fp64"}
moved = dict.fromkeys(("rank", "start", "new_rank", "new_start", "before"), "*i32")
walked = {"FINE": runs.FINE, "SERIES": runs.SERIES, "BLOCK": 512}
for kernel, arguments, constants in (
    (wavelet._count_zeros, {"rank": "*i32", "zeros": "*i32", "n": "i32", "bit": "i32"}, {"BLOCK": 2048}),
    (wavelet._partition, moved | {"n": "i32", "bit": "i32"}, {"BLOCK": 2048}),
    (wavelet._finish, dict.fromkeys(("rank", "start", "found"), "*i32") | {"n": "i32"}, {"NODE": 64}),
    (runs._count, ints | {"sums": "*i64", "n": "i32"}, {"BLOCK": 512, "INTS": 11}),
    (runs._walk, ints | tables | {"whole": "*i64", "n": "i32"}, walked),
    (runs._areas, ints | tables | {"done": "*i64", "sums": "*fp64", "n": "i32"}, walked | {"FLOATS": 6}),
):
    source = ASTSource(kernel, arguments | dict.fromkeys(constants, "constexpr"), constants)
    assert compile(source, target=GPUTarget("cuda", 90, 32), options=wavelet.AS_WRITTEN).asm["cubin"]
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
