"""Runs batches of random input in a process of their own: after a crash or a hang the batch that made it is known."""

from __future__ import annotations

import faulthandler
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

Batch = Callable[[np.random.Generator, "Tally"], None]
_SAY = 10.0  # seconds between lines
_HANGS = 300.0  # seconds that no batch takes, under a sanitizer neither


class Wrong(AssertionError):
    """An answer that is not the right one."""


class Tally:
    """Executions by name, counted as they are checked."""

    def __init__(self) -> None:
        self.executions: Counter[str] = Counter()

    def refuse(self, name: str, at: int, got: Any, right: Any) -> None:
        with np.printoptions(threshold=2000, floatmode="unique"):
            raise Wrong(f"{name}: case {at} of the batch is wrong.\n  found {got!r}\n  right {right!r}")

    def equal(self, name: str, got: Any, right: Any, *, seen: bool = False) -> None:
        """Answer k is right[k], exactly. `seen`: another part of answers that count already."""
        self.executions[name] += 0 if seen else len(got)
        stacked = np.asarray(got)
        if stacked.shape == right.shape and (stacked == right).all():
            return
        for k, (one, other) in enumerate(zip(got, right, strict=True)):
            if not np.array_equal(one, other):
                self.refuse(name, k, one, other)
        self.refuse(name, 0, stacked.shape, right.shape)

    def near(self, name: str, got: Any, right: Any, within: Any, *, seen: bool = False) -> None:
        """Answer k is right[k] but for `within`; NaN and infinities are what they are."""
        self.executions[name] += 0 if seen else len(got)
        stacked = np.asarray(got)
        with np.errstate(invalid="ignore"):
            fine = (np.abs(stacked - right) <= within) | (stacked == right) | (np.isnan(stacked) & np.isnan(right))
        for k in range(len(got)) if not fine.all() else ():
            if not fine[k].all():
                self.refuse(name, k, stacked[k], right[k])


def _work(run_batch: Batch, seed: int, seconds: float, shared: Any) -> None:
    """Batches until the time is over; shared: the batch at work, executions, and when it began."""
    faulthandler.enable()
    tally, end, batch = Tally(), time.monotonic() + seconds, 0
    while batch == 0 or time.monotonic() < end:
        shared[0], shared[2] = batch, time.monotonic()
        try:
            run_batch(np.random.default_rng([seed, batch]), tally)
        except Exception:  # whatever it is: the batch is named
            traceback.print_exc()
            sys.exit(1)
        shared[1] = sum(tally.executions.values())
        batch += 1
    for name, count in sorted(tally.executions.items()):
        print(f"  {name:<24}{count:>14,}")


def one_batch(run_batch: Batch, seed: int, batch: int) -> int:
    """In this process, so that a debugger can look."""
    run_batch(np.random.default_rng([seed, batch]), Tally())
    print(f"batch {batch} of seed {seed}: right")
    return 0


def run(what: str, run_batch: Batch, seconds: float, seed: int) -> int:
    """0 if all answers were right; 1 after printing how to see the one that was not."""
    context = multiprocessing.get_context("spawn")
    shared = context.Array("d", 3, lock=False)
    start = shared[2] = time.monotonic()
    child = context.Process(target=_work, args=(run_batch, seed, seconds, shared))
    child.start()
    problem = ""
    while child.is_alive():
        child.join(_SAY)
        spent, done = time.monotonic() - start, int(shared[1])
        print(f"{what}: seed {seed}, {done:,} executions, {spent:.0f} s, {done / spent:,.0f}/s", flush=True)
        if child.is_alive() and time.monotonic() - shared[2] > _HANGS:
            child.kill()
            child.join()
            problem = f"hangs for {_HANGS:.0f} s"
    if child.exitcode and not problem:
        problem = "a wrong answer, or an error" if child.exitcode == 1 else f"ended with exit status {child.exitcode}"
    if problem:
        print(f"{what}: {problem}. Reproduce: python -m fuzz {what} --seed {seed} --batch {int(shared[0])}", flush=True)
    return int(bool(problem))
