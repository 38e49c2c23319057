"""The public functions for a long time, in several threads: right numbers, and no growth of memory or open files.

Linux only: memory and open files are read from /proc.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import uqeval as uq

THREADS = 3
_SAMPLE, _SAY = 1.0, 30.0  # seconds
_WARM = 0.3  # of the time: caches and the heap have their size then
_GROWTH = 0.05, 24 * 2**20  # the larger: a share, and bytes that fragments of the heap come and go by


def resident() -> int:
    """Bytes of this process in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) - 1  # but the one that lists them


def rows(rng: np.random.Generator) -> dict[str, Any]:
    """Random data, with ties as often as not."""
    n = int(
        rng.choice([rng.integers(20, 300), rng.integers(300, 3_000), rng.integers(3_000, 30_000)], p=[0.5, 0.35, 0.15])
    )
    hard = rng.random(n)
    error = (rng.random(n) < hard / 2).astype(np.int64)
    error[:2] = 0, 1
    steps = float(rng.choice([10, 1000, 2**40]))
    score = {name: np.round((hard + rng.random(n)) * steps) / steps for name in ("a", "b", "c")}
    return {"score": score, "error": error, "loss": np.round(hard * steps) / steps}


def pairs_auc(score: Any, error: Any) -> Fraction:
    """Each wrong row placed among the right ones."""
    right, wrong = np.sort(score[error == 0]), score[error == 1]
    credit2 = sum(int(np.searchsorted(right, wrong, side).sum()) for side in ("left", "right"))
    return Fraction(credit2, 2 * len(right) * len(wrong))


def pairs_c_index(score: Any, loss: Any) -> Fraction:
    below = loss[:, None] < loss[None, :]
    credit2 = 2 * (score[:, None] < score[None, :]) + (score[:, None] == score[None, :])
    return Fraction(int((below * credit2).sum()), 2 * int(below.sum()))


def same(what: str, found: Any, right: Any) -> None:
    if found != right:
        raise AssertionError(f"{what} is {found!r}, not {right!r}")


def evaluated(data: dict[str, Any], rng: np.random.Generator, folder: Path) -> None:
    result = uq.evaluate(**data)
    same("n_errors", result.n_errors, int(data["error"].sum()))
    for name, score in data["score"].items():
        same(f"UQ-AUC of {name}", result[name, "uq_auc"].value, float(pairs_auc(score, data["error"])))
        if len(score) <= 600:
            same(f"UQ-C-index of {name}", result[name, "uq_c_index"].value, float(pairs_c_index(score, data["loss"])))


def compared(data: dict[str, Any], rng: np.random.Generator, folder: Path) -> None:
    adjust = str(rng.choice(["holm", "none"]))
    result = uq.compare(data["score"], error=data["error"], adjust=adjust)
    for name, value in result.values.items():
        same(f"UQ-AUC of {name}", value, float(pairs_auc(data["score"][name], data["error"])))


def chosen(data: dict[str, Any], rng: np.random.Generator, folder: Path) -> None:
    score, error = data["score"]["a"], data["error"]
    result = uq.choose_threshold(score, error, max_risk=float(rng.uniform(0.1, 0.4)))
    inside = score <= result.value
    same("rows accepted", (result.n_accepted, result.errors_accepted), (int(inside.sum()), int(error[inside].sum())))


def reported(data: dict[str, Any], rng: np.random.Generator, folder: Path) -> None:
    few = {name: x[:300] for name, x in data.items() if name != "score"}
    result = uq.evaluate(score={name: x[:300] for name, x in data["score"].items()}, **few)
    page = str(uq.report(result))
    same("the end of the page", page.rstrip()[-7:], "</html>")


def distributed(data: dict[str, Any], rng: np.random.Generator, folder: Path) -> None:
    file = folder / f"{threading.get_ident()}.parquet"
    pq.write_table(
        pa.table({**data["score"], "error": data["error"], "loss": data["loss"]}), file, row_group_size=1_000
    )
    given: dict[str, Any] = {"score": ["a"], "error": "error", "loss": "loss", "metrics": ["uq_auc", "uq_c_index"]}
    found = uq.evaluate(str(file), **given, engine="local")
    score = data["score"]["a"]
    same("UQ-AUC from a file", found["a", "uq_auc"].value, float(pairs_auc(score, data["error"])))
    same("UQ-C-index from a file", found["a", "uq_c_index"].value, uq.metrics.uq_c_index(score, data["loss"]))


WORK: tuple[Callable[..., None], ...] = (evaluated, compared, chosen, reported, distributed)


def main(seconds: float, seed: int) -> int:
    """0 if all numbers are right and nothing grows."""
    warnings.simplefilter("ignore", uq.UQWarning)  # small sets, degenerate intervals: not what is looked for
    done, problems, stop = [0] * THREADS, [], threading.Event()

    def work(thread: int, folder: Path) -> None:
        rng, pick = np.random.default_rng([seed, thread]), random.Random(seed + thread)
        while not stop.is_set():
            try:
                pick.choice(WORK)(rows(rng), rng, folder)
            except BaseException:
                problems.append(f"thread {thread}, round {done[thread]}:\n{traceback.format_exc()}")
                stop.set()
            done[thread] += 1

    samples: list[tuple[float, int, int]] = []  # when, bytes, open files
    start = said = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=work, args=(k, Path(folder))) for k in range(THREADS)]
        for thread in threads:
            thread.start()
        while not stop.wait(_SAMPLE):
            now = time.monotonic()
            samples.append((now - start, resident(), open_files()))
            if now - start > seconds:
                stop.set()
            if now - said > _SAY or stop.is_set():
                said = now
                _, size, files = samples[-1]
                print(
                    f"soak: {now - start:.0f} s, {sum(done):,} rounds, {size / 2**20:.0f} MB, {files} files", flush=True
                )
        for thread in threads:
            thread.join()
    gc.collect()
    problems += grown([sample[1:] for sample in samples if sample[0] > _WARM * seconds])
    for problem in problems:
        print(f"soak: seed {seed}: {problem}", file=sys.stderr)
    return int(bool(problems))


def grown(samples: list[tuple[int, int]]) -> list[str]:
    """What grew between the first and the last third of the samples (bytes, open files)."""
    third = len(samples) // 3
    if not third:
        return ["too short to see whether anything grows: give it more seconds"]
    sizes, files = zip(*samples, strict=True)
    before, after = statistics.median(sizes[:third]), statistics.median(sizes[-third:])
    found = []
    if after - before > max(_GROWTH[0] * before, _GROWTH[1]):
        found.append(f"memory grew from {before / 2**20:.0f} to {after / 2**20:.0f} MB")
    if min(files[-third:]) > max(files[:third]):
        found.append(f"open files grew from {max(files[:third])} to {min(files[-third:])}")
    return found
