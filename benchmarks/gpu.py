"""Metrics on tensors: time, memory and integers, on the GPU where there is one. `python -m benchmarks.gpu > gpu.json`.

Every time stands beside the floor, the bytes that must move over the bandwidth of a device-to-device copy, and beside
torchmetrics' value-only AUROC of the same rows in the same run. `--check` rows are counted by the CPU kernels as well.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from uqeval import kernels
from uqeval._errors import UQWarning
from uqeval.evaluation.evaluate import How
from uqeval.torch import counting, functional
from uqeval.torch.counting import concordance, ranked, sweep
from uqeval.torch.evaluation import evaluate_tensors

BANDWIDTH = 4.3e12  # bytes a second, a copy on one H200
SORT = 4 * 2 * (4 + 8) + 4  # bytes a row: four digits of a float32 with its row number, and one look at all keys
BOTH = 8 * 2 * (8 + 8) + 8  # the same of score and loss in one key
LEVEL = 20  # bytes a row and level of the wavelet tree (`uqeval.torch.triton.wavelet`)
FOUR = ["uq_auc", "aurc", "augrc", "e_aurc"]


def rows(n: int, device: str, decimals: int | None) -> dict[str, Tensor]:
    """float32 scores and losses and 0/1 errors, a tenth of them wrong."""
    draw = torch.Generator(device).manual_seed(0)
    given = [torch.randn(n, device=device, generator=draw), torch.rand(n, device=device, generator=draw)]
    score, loss = given if decimals is None else [x.round(decimals=decimals) for x in given]
    return {"score": score, "loss": loss, "error": torch.rand(n, device=device, generator=draw) < 0.1}


@contextmanager
def plain_torch() -> Iterator[None]:
    """Without Triton."""
    former, counting.fused = counting.fused, lambda x: False
    try:
        yield
    finally:
        counting.fused = former


def jobs(given: dict[str, Tensor]) -> dict[str, tuple[Callable[[], Any], float]]:
    """By name: what is timed, and the bytes a row that it must move."""
    score, error, loss = given["score"], given["error"], given["loss"]
    levels = max(0, (len(score) - 1).bit_length() - 5)
    pairs = BOTH + SORT + LEVEL * levels + 16

    def plain() -> Any:
        with plain_torch():
            return functional.estimate("uq_c_index", score, loss)

    found = {
        "torch.sort": (lambda: torch.sort(score), SORT),
        "torchmetrics binary_auroc": (lambda: binary_auroc(score, error.long(), validate_args=False), SORT + 5),
        "uq_auc with interval": (lambda: functional.estimate("uq_auc", score, error), SORT + 5),
        "uq_auc, aurc, augrc, e_aurc with intervals": (
            lambda: evaluate_tensors({"score": score}, error, None, FOUR, How(0.95)),
            SORT + 5,
        ),
        "uq_c_index with interval, plain torch": (plain, pairs),
    }
    if score.is_cuda and find_spec("triton"):
        found["uq_c_index with interval, Triton"] = (lambda: functional.estimate("uq_c_index", score, loss), pairs)
    return found


def measured(job: Callable[[], Any], repeats: int, device: str) -> dict[str, float]:
    """The least milliseconds, from a still device to a still device, and the peak of memory over what was there."""
    on_card, seconds = device != "cpu", []
    for k in range(repeats + 2):  # two to warm up: compilers, allocators
        if on_card:
            torch.cuda.synchronize()
        start = time.perf_counter()
        job()
        if on_card:
            torch.cuda.synchronize()
        if k > 1:
            seconds.append(time.perf_counter() - start)
    found = {"ms": 1e3 * min(seconds)}
    if on_card:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        job()
        found["bytes"] = torch.cuda.max_memory_allocated() - before
    return found


def times(n: int, device: str, decimals: int | None, repeats: int) -> list[dict[str, Any]]:
    """All jobs on rows of one kind."""
    given, found = rows(n, device, decimals), []
    own = sum(x.element_size() for x in given.values())
    for name, (job, floor) in jobs(given).items():
        row = {"n": n, "decimals": decimals, "job": name} | measured(job, repeats, device)
        row["floor_ms"] = 1e3 * floor * n / BANDWIDTH
        if "bytes" in row:
            row["bytes_per_row"] = row.pop("bytes") / n
            row["bytes_per_row_with_inputs"] = row["bytes_per_row"] + own
        found.append(row)
    return found


def same_integers(n: int, device: str) -> list[dict[str, Any]]:
    """Integers of the device against those of the CPU kernels: no ties, heavy ties, all tied."""
    found = []
    draw = np.random.default_rng(0)
    for kind, score, loss in (
        ("no ties", draw.permutation(n), draw.permutation(n)),
        ("heavy ties", draw.integers(0, 1000, n), draw.integers(0, 1000, n)),
        ("all tied", np.zeros(n), draw.integers(0, 3, n)),
    ):
        s, d, e = score.astype(np.float64), loss.astype(np.float64), (draw.random(n) < 0.1).astype(np.uint8)
        on_device = [torch.from_numpy(x).to(device) for x in (s, d, e)]
        expected = kernels.auc_sums(s, e), kernels.concordance(s, d)[:2]
        same = _integers(*on_device) == expected
        with plain_torch():
            same = same and _integers(*on_device) == expected
        narrow = [x.to(torch.float32) if x.is_floating_point() else x for x in on_device]  # n below 2²⁴: exact
        found.append({"n": n, "kind": kind, "same": same and (n > 1 << 24 or _integers(*narrow) == expected)})
    return found


def _integers(score: Tensor, loss: Tensor, error: Tensor) -> tuple[Any, Any]:
    return sweep(ranked(score, error), (), False)[0].sums.auc, concordance(score, loss)[0][:2]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measures, and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**3, 10**6, 10**7, 10**8])
    parser.add_argument("--check", type=int, default=10**7, help="rows whose integers are compared with the CPU's")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    name = "CPU" if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    packages = {package: version(package) for package in ("torch", "torchmetrics", "triton") if find_spec(package)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        found = {
            "device": name,
            "versions": packages,
            "bandwidth": BANDWIDTH,
            "integers": same_integers(given.check, given.device),
            "times": [
                row
                for n in given.sizes
                for decimals in (None, 3)
                for row in times(n, given.device, decimals, given.repeats)
            ],
        }
    print(json.dumps(found, indent=1))
    return found


if __name__ == "__main__":
    main()
