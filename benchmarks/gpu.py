"""Metrics on tensors: time, memory and integers, on the GPU where there is one. `python -m benchmarks.gpu > gpu.json`.

Every time stands beside the floor, the bytes that must move over the bandwidth of a device-to-device copy, and beside
torchmetrics' value-only AUROC of the same rows in the same run. `--check` rows are counted by the CPU kernels as well.
`--publish gpu.json` makes docs/benchmarks_gpu.md of it and of nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
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
PEER, AUC, ALL = "torchmetrics binary_auroc", "UQ-AUC with interval", "UQ-AUC, AURC, AUGRC, E-AURC with intervals"
PAIRS, PLAIN = "UQ-C-index with interval, Triton", "UQ-C-index with interval, plain torch"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks_gpu.md"


def rows(n: int, device: str, decimals: int | None, kind: str = "float32") -> dict[str, Tensor]:
    """Scores and losses, and 0/1 errors, a tenth of them wrong."""
    draw = torch.Generator(device).manual_seed(0)
    given = [torch.randn(n, device=device, generator=draw), torch.rand(n, device=device, generator=draw)]
    if decimals is not None:
        given = [x.round(decimals=decimals) for x in given]
    score, loss = (x.to(getattr(torch, kind)) for x in given)
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

    made = {
        "torch.sort": (lambda: torch.sort(score), SORT),
        PEER: (lambda: binary_auroc(score, error.long(), validate_args=False), SORT + 5),
        AUC: (lambda: functional.estimate("uq_auc", score, error), SORT + 5),
        ALL: (lambda: evaluate_tensors({"score": score}, error, None, FOUR, How(0.95)), SORT + 5),
        PLAIN: (plain, pairs),
    }
    if score.is_cuda and find_spec("triton"):
        made[PAIRS] = (lambda: functional.estimate("uq_c_index", score, loss), pairs)
    return made


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


def times(n: int, device: str, decimals: int | None, kind: str, repeats: int) -> list[dict[str, Any]]:
    """All jobs on rows of one kind."""
    given, found = rows(n, device, decimals, kind), []
    own = sum(x.element_size() for x in given.values())
    for name, (job, floor) in jobs(given).items():
        row = {"n": n, "kind": kind, "decimals": decimals, "job": name} | measured(job, repeats, device)
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


def promises(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """What must hold of float32 rows on one H200: claim, measured, at most. The worse of rows with and without ties."""

    def worst(job: str, n: int, name: str = "ms") -> float:
        return max(row[name] for row in _float32(found) if (row["job"], row["n"]) == (job, n))

    def over(job: str, other: str, n: int) -> float:
        by_ties = [
            [row["ms"] for row in _float32(found) if (row["job"], row["n"]) == (name, n)] for name in (job, other)
        ]
        return max(one / two for one, two in zip(*by_ties, strict=True))

    made = [(f"{AUC}, {n:,} rows: ms", worst(AUC, n), most) for n, most in ((10**8, 10.0), (10**7, 1.5))]
    for job, limits in ((PAIRS, (45.0, 5.0)), (PLAIN, (200.0, 20.0))):
        made += [
            (f"{job}, {n:,} rows: ms", worst(job, n), most) for n, most in zip((10**8, 10**7), limits, strict=True)
        ]
    for n, most in ((10**3, 2.0), (10**6, 1.0), (10**7, 1.0), (10**8, 1.0)):
        made.append((f"{AUC}: times torchmetrics' value alone, {n:,} rows", over(AUC, PEER, n), most))
    made.append((f"{ALL}: times UQ-AUC alone, {10**8:,} rows", over(ALL, AUC, 10**8), 1.6))
    peaks = [worst(job, n, "bytes_per_row_with_inputs") for job in (AUC, ALL, PAIRS, PLAIN) for n in (10**7, 10**8)]
    return [*made, ("peak with the inputs, 10⁷ and 10⁸ rows: bytes a row", max(peaks), 70.0)]


def _float32(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in found["times"] if row["kind"] == "float32"]


def page(found: dict[str, Any]) -> str:
    """docs/benchmarks_gpu.md."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    checks = ", ".join(f"{one['kind']} {'✓' if one['same'] else '✗'}" for one in found["integers"])
    lines = [
        *("# Benchmarks on a GPU", ""),
        f"Made by `python -m benchmarks.gpu`; do not edit. {found['device']}, {found['date']}; {versions}.",
        "uqeval computes the value **and** the 95% interval, input checks included; torchmetrics the value alone.",
        "From a still device to a still device, minimum of the calls of one run; a tenth of the rows wrong. The floor",
        f"is what the bytes that must move take at {found['bandwidth'] / 1e12:.1f} TB/s; bytes are the peak with the",
        "inputs, per row. Below some 10⁷ rows the host's Python is a good part of the time.",
        *("", f"Integers of {found['integers'][0]['n']:,} rows equal those of the CPU kernels: {checks}."),
    ]
    groups = dict.fromkeys((row["kind"], row["decimals"]) for row in found["times"])
    for kind, decimals in groups:
        rows = [row for row in found["times"] if (row["kind"], row["decimals"]) == (kind, decimals)]
        sizes, jobs = dict.fromkeys(row["n"] for row in rows), dict.fromkeys(row["job"] for row in rows)
        cells = {(row["job"], row["n"]): row for row in rows}
        ties = "as drawn" if decimals is None else f"{decimals} decimals"
        lines += ["", f"## {kind}, {ties}", "", "| ms (floor; bytes) | " + " | ".join(f"{n:,}" for n in sizes) + " |"]
        lines.append("|---" * (1 + len(sizes)) + "|")
        lines += [f"| {job} | " + " | ".join(_cell(cells[job, n]) for n in sizes) + " |" for job in jobs]
    lines += ["", "## Promises", "", "| promise | measured | bound | |", "|---|---|---|---|"]
    for claim, value, most in promises(found):
        lines.append(f"| {claim} | {value:.3g} | {most:g} | {'✓' if value <= most else '✗'} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any]) -> str:
    return f"{row['ms']:.3g} ({row['floor_ms']:.2g}; {row.get('bytes_per_row_with_inputs', float('nan')):.0f})"


def measure(sizes: Sequence[int], check: int, repeats: int, device: str) -> dict[str, Any]:
    """All that the page says."""
    name = "CPU" if device == "cpu" else torch.cuda.get_device_name(device)
    names = ("torch", "torchmetrics", "triton")
    kinds = [(n, decimals, "float32") for n in sizes for decimals in (None, 3)]
    kinds += [(n, None, "float64") for n in sizes if n >= 10**7]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return {
            "device": name,
            "date": date.today().isoformat(),
            "versions": {package: version(package) for package in names if find_spec(package)},
            "bandwidth": BANDWIDTH,
            "integers": same_integers(check, device),
            "times": [row for n, decimals, kind in kinds for row in times(n, device, decimals, kind, repeats)],
        }


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints JSON; or makes the page of such JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**3, 10**6, 10**7, 10**8])
    parser.add_argument("--check", type=int, default=10**7, help="rows whose integers are compared with the CPU's")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--publish", type=Path, metavar="JSON", help="no run: the page of this one")
    given = parser.parse_args(arguments)
    if given.publish is not None:
        PAGE.write_text(page(json.loads(given.publish.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    print(json.dumps(measure(given.sizes, given.check, given.repeats, given.device), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
