"""The Triton kernels give what plain torch does: run by Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

# In a process of its own: Triton reads the variable when it is loaded.
CODE = """
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


def test_triton_counts_what_plain_torch_counts():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stdout.strip() == "same", done.stderr


@pytest.mark.slow  # it compiles for some seconds
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(monkeypatch, tmp_path):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from uqeval.torch import runs_triton as runs
    from uqeval.torch import wavelet_triton as wavelet

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    ints, tables = {"bound": "*i32", "before": "*i32"}, {"table": "*fp64", "table2": "*fp64"}
    walked = {"FINE": runs.FINE, "SERIES": runs.SERIES, "BLOCK": 512}
    for kernel, arguments, constants in (
        (wavelet._count_zeros, {"rank": "*i32", "zeros": "*i32", "n": "i32", "bit": "i32"}, {"BLOCK": 2048}),
        (
            wavelet._partition,
            dict.fromkeys(("rank", "start", "new_rank", "new_start", "before"), "*i32") | {"n": "i32", "bit": "i32"},
            {"BLOCK": 2048},
        ),
        (wavelet._finish, dict.fromkeys(("rank", "start", "found"), "*i32") | {"n": "i32"}, {"NODE": 64}),
        (runs._count, ints | {"sums": "*i64", "n": "i32"}, {"BLOCK": 512, "INTS": 11}),
        (runs._walk, ints | tables | {"whole": "*i64", "n": "i32"}, walked),
        (runs._areas, ints | tables | {"done": "*i64", "sums": "*fp64", "n": "i32"}, walked | {"FLOATS": 6}),
    ):
        signature = arguments | dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        built = compile(source, target=GPUTarget("cuda", 90, 32), options=wavelet.AS_WRITTEN)
        assert built.asm["cubin"]
