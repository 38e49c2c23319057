"""Runs cells and keeps what they give: a killed run goes on where it stopped, in any order, with any number of jobs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import uqeval
from uqeval._errors import collected
from uqeval.reproduce.store import Store, cell_key, run_cells
from validation import files
from validation.designs import DESIGNS
from validation.grid import Cell
from validation.promises import PROMISES, Case, Outcome

# Folders of the package whose code is under test, and the modules here that decide what a cell gives.
TESTED = ("inference", "decide", "metrics", "kernels", "evaluation", "distributed")
OWN = ("laws", "files", "designs", "promises")
_SUFFIXES = {".py", ".cpp", ".hpp"}


@cache
def code_version() -> dict[str, str]:
    """Hashes of the code under test and of the code that tests it."""
    package, here = Path(uqeval.__file__).parent, Path(__file__).parent
    tested = [path for name in TESTED for path in sorted((package / name).rglob("*")) if path.suffix in _SUFFIXES]
    return {"uqeval": _hash(tested, package), "validation": _hash([here / f"{name}.py" for name in OWN], here)}


def _hash(paths: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


@dataclass
class Tally:
    """Counts over the samples of a cell."""

    reps: int = 0
    held: int = 0
    unknown: int = 0  # the sample has no such number
    missing: int = 0  # a number without an interval or p-value
    below: int = 0
    above: int = 0
    vacuous: int = 0
    sizes: list[float] = field(default_factory=list)
    reason: str = ""

    def add(self, outcome: Outcome) -> None:
        self.reps += 1
        self.held += outcome.held and outcome.known
        self.unknown += not outcome.known
        self.missing += outcome.known and not outcome.given
        self.below += outcome.side < 0
        self.above += outcome.side > 0
        self.vacuous += outcome.vacuous
        if not math.isnan(outcome.size):
            self.sizes.append(outcome.size)
        self.reason = self.reason or outcome.reason

    def result(self) -> dict[str, Any]:
        found = {name: int(getattr(self, name)) for name in COUNTS}
        size = float(np.median(self.sizes)) if self.sizes else None
        return found | {"size": None if size is None else float(f"{size:.4g}"), "reason": self.reason}


COUNTS = ("reps", "held", "unknown", "missing", "below", "above", "vacuous")


def seed_of(cell: Cell) -> int:
    """The same for a cell whatever else is run."""
    return int(cell_key(cell.key())[:16], 16)


def simulate(cell: Cell) -> dict[str, Any]:
    """All samples of a cell: counts by output, and a file's own accuracy and AUC."""
    start = time.process_time()  # of this core, whoever else is on it
    law, promise = cell.population, PROMISES[cell.promise]
    case = Case(cell.law, law, DESIGNS[cell.design], cell.n, cell.variant, np.random.default_rng(seed_of(cell)))
    tallies: dict[str, Tally] = {}
    for _ in range(cell.reps):
        with collected():  # notes go to a list, which costs nothing, and not through the warnings module
            outcomes = promise.trial(case)
        for name, outcome in outcomes.items():
            tallies.setdefault(name, Tally()).add(outcome)
    own = None if cell.auc is not None else {"accuracy": law.accuracy, "auc": law.truth["uq_auc"]}
    return {
        "truth": own,
        "outputs": {name: tally.result() for name, tally in tallies.items()},
        "seconds": round(time.process_time() - start, 3),
    }


def store_key(cell: Cell) -> str:
    """Configuration, number of samples and code."""
    return cell_key({"cell": vars(cell), "code": code_version()})


_COST = {"calibration": 1.5, "ood": 7.0, "groups": 2.5, "compare": 3.0, "family": 12.0, "threshold": 4.0}
_COST |= {"monitor": 5.0, "bands": 2.0, "dominance": 14.0}


def cost_of(cell: Cell) -> float:
    """About how long it takes, for the time that is left."""
    weigh = 2.0 if DESIGNS[cell.design].kind in ("weights", "both") else 1.0
    return cell.reps * (1 + cell.n / 1500) * weigh * _COST.get(cell.promise, 1.0)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and lets cells that run finish


def _pool(jobs: int) -> Executor:
    # A fresh interpreter: a fork would copy the locks of threads.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker)


Tell = Callable[[int, int, float], object]  # cells done, of so many, and the share of the work


def run(cells: list[Cell], out: str | Path | None, *, jobs: int = 1, tell: Tell = lambda *_: None) -> dict[Cell, Any]:
    """The results of all cells, in their order; those that an earlier run finished cost nothing."""
    os.environ.setdefault("UQEVAL_THREADS", "1")  # cells share the cores, not the rows of one
    known = [cell for cell in cells if not (cell.law.startswith(files.PREFIX) and files.missing())]
    by_cost = sorted(known, key=cost_of, reverse=True)  # the longest first: no core waits for the last one
    total, spent = sum(map(cost_of, by_cost)) or 1.0, 0.0
    found: dict[Cell, Any] = {}
    with Store(out) as store:
        for cell, value in run_cells(
            store, {cell: store_key(cell) for cell in by_cost}, simulate, _pool, jobs, lambda *_: None
        ):
            found[cell] = value
            spent += cost_of(cell)
            tell(len(found), len(by_cost), spent / total)
    return {cell: found[cell] for cell in known}


# ---- results ----------------------------------------------------------------------------------------------------

COLUMNS = ("promise", "output", "law", "design", "accuracy", "auc", "n", "variant", *COUNTS, "size")


def as_rows(found: dict[Cell, Any]) -> list[dict[str, Any]]:
    """A row for each output of each cell. Accuracy and AUC are those of the grid; of a file its own."""
    rows = []
    for cell, value in found.items():
        own = vars(cell) | {
            "accuracy": cell.accuracy if cell.accuracy is not None else round(value["truth"]["accuracy"], 4),
            "auc": cell.auc if cell.auc is not None else round(value["truth"]["auc"], 4),
        }
        for output, counts in value["outputs"].items():
            row = own | counts | {"output": output}
            rows.append({name: row[name] for name in COLUMNS})
    return rows


def refusals(found: dict[Cell, Any]) -> list[str]:
    """What a method would not do at all, and why."""
    designs: dict[tuple[str, str, str], dict[str, None]] = {}
    for cell, value in found.items():
        for output, counts in value["outputs"].items():
            if counts["reason"] and counts["unknown"] == counts["reps"]:
                designs.setdefault((cell.promise, output, counts["reason"]), {})[cell.design] = None
    return [f"{promise}, {output} ({', '.join(own)}): {why}" for (promise, output, why), own in designs.items()]


def to_text(results: dict[str, Any]) -> str:
    """JSON with a line for each row, so that two runs can be compared line by line."""
    head = {name: value for name, value in results.items() if name != "rows"}
    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    lines = ",\n".join(json.dumps([row[name] for name in COLUMNS], ensure_ascii=False) for row in results["rows"])
    return f'{text},\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n{lines}\n ]\n}}\n'


def from_text(text: str) -> dict[str, Any]:
    """What `to_text` wrote."""
    results = json.loads(text)
    rows = [dict(zip(results["columns"], row, strict=True)) for row in results["rows"]]
    return {name: value for name, value in results.items() if name != "columns"} | {"rows": rows}
