"""Certain bounds for every score of some files, in one pass: what `uqeval evaluate --approx` prints.

`onepass` takes one score as it is; here all scores share the pass, also those that are computed from probabilities.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from uqeval import kernels
from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval._result import Result
from uqeval.distributed.bounds.bounds import SCHEMA_VERSION, StreamResult
from uqeval.distributed.bounds.state import StreamState
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.protocol import Place, State
from uqeval.distributed.evaluate import column_options
from uqeval.distributed.plan.columns import Prepare, find_rows, shifted
from uqeval.distributed.plan.count import Draw
from uqeval.distributed.plan.first_look import Look
from uqeval.distributed.plan.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Certain", "approx_scores"]

_STATE_BYTES = 80 * 10**6  # of one score in one thread, at most, at 1e-4


@dataclass(frozen=True)
class Certain(Result):
    """Bounds that are certain for exactly these rows, by score; not a confidence interval."""

    scores: dict[str, StreamResult]
    rows: int
    parts: int
    passes: int
    sampled_rows: int  # read before the pass, to choose where to cut
    bytes: int  # of the tables of counts
    seconds: float

    def __getitem__(self, score: str) -> StreamResult:
        if score not in self.scores:
            raise InputError(f'There is no score "{score}". Scores: {", ".join(self.scores)}.')
        return self.scores[score]

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name; the cost under "run"."""
        run = {name: getattr(self, name) for name in ("rows", "parts", "passes", "sampled_rows", "bytes", "seconds")}
        first = next(iter(self.scores.values())).to_dict()
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": first["kind"],
            "n": self.rows,
            "scores": {name: found.to_dict() for name, found in self.scores.items()},
            "run": run,
        }

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per score and metric."""
        rows = []
        for name, found in self.scores.items():
            plain = found.to_dict()
            metrics = [metric for metric, value in plain.items() if isinstance(value, dict)]
            rows += [{"score": name, "metric": metric, "n": found.n} | plain[metric] for metric in metrics]
        return rows

    def summary(self) -> str:
        """What it cost."""
        return (
            f"{self.rows:,} rows in {self.parts:,} parts: {self.passes} pass and {self.sampled_rows:,} rows "
            f"sampled before, {self.bytes / 1e6:,.0f} MB of counts, "
            f"{self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        return "\n\n".join(f"{name}: {found}" for name, found in self.scores.items()) + f"\n\n{self.summary()}"


def approx_scores(
    source: Any,
    *,
    score: Sequence[str] | str | None = None,
    approx: float = 1e-4,
    memory_limit: str | int = "2GB",
    progress: Progress | None = None,
    **columns: Any,
) -> Certain:
    """Certain lower and upper bounds of UQ-AUC, UQ-C-index, AURC and AUGRC of every score, in one pass over files.

    A sample says where to cut. It takes some row groups or batches of Parquet and Arrow files; CSV and JSON lines are
    read once more for it, and `sampled_rows` counts that.

    Parameters
    ----------
    source : str, path or list of them
        Parquet, Arrow, CSV or JSON-lines files, or a pattern.
    score : str or list of str, optional
        Score columns, or names of scores that are computed from probabilities. All by default.
    approx : float
        The width (upper − lower) to aim at; each result says what was reached.
    memory_limit : str or int
        Fewer threads are used where their counts would take more than half of it.
    progress : callable(stage, done, total), optional
        Called with the rows done.
    **columns
        Other names of columns, as in `uqeval.distributed.evaluate`.

    Returns
    -------
    Certain
        ``found["entropy"].uq_auc.lower``

    Examples
    --------
    >>> from uqeval import distributed
    >>> found = distributed.approx_scores("preds/*.parquet", approx=1e-3)  # doctest: +SKIP
    """
    start = time.perf_counter()
    blank = StreamState(approx=approx)  # says what is wrong with `approx` before anything is read
    options, texts = column_options(columns, None)
    engine = LocalEngine(source, memory_limit=memory_limit, progress=progress, texts=texts)
    try:
        names = list(engine.schema().names)
        asked = score if score is None or isinstance(score, str) else list(score)
        prepare = _prepare(engine, names, asked, options)
        count = len(prepare.scores)
        engine.workers = max(1, min(kernels.cores(), parse_memory(memory_limit) // 2 // (_STATE_BYTES * count)))
        sample = engine.sample(Draw(prepare), int(8 / blank.approx))
        laid = [_laid_out(sample, k, prepare.wants_loss, blank) for k in range(count)]
        counting = _Counting(prepare, laid, [part.name for part in engine.parts()])
        folded = engine.fold("bounds", counting, _add)
        if int(folded.state["rows"]) < 2:
            raise InputError("There are fewer than 2 rows. Ranking needs at least 2.")
        states = counting.merged()
    finally:
        engine.close()
    found = {name: state.compute() for (name, _), state in zip(prepare.scores, states, strict=True)}
    return Certain(
        scores=found,
        rows=states[0].n,
        parts=len(folded.rows),
        passes=1,
        sampled_rows=engine.sampled_rows,
        bytes=sum(one.bytes for one in found.values()),
        seconds=time.perf_counter() - start,
    )


def _prepare(engine: LocalEngine, names: list[str], score: str | list[str] | None, options: Any) -> Prepare:
    if options.weight is not None and options.weight in names:
        raise InputError(f"There is a column of weights (`{options.weight}`), which bounds do not know.")
    look = Look(engine, names, options, score)
    first = look.rows()
    try:
        found = find_rows(names, options, score, [], None, None, first)
        if not found.scores:
            raise InputError("No score to evaluate. Name score columns, or give probabilities or logits.")
        can = Run._can(found, first)
    except InputError as error:
        raise look.located(error) from None
    return replace(found, wants_error=can["uq_auc"], wants_loss=can["uq_c_index"])


def _laid_out(sample: pa.Table, k: int, with_loss: bool, blank: StreamState) -> StreamState:
    losses = sample.column("d").to_numpy() if with_loss else None
    return StreamState.from_sample(sample.column(f"s{k}").to_numpy(), losses, approx=blank.approx)


class _Counting:
    """Counts pieces into states of the thread's own, so that they are merged once, at the end."""

    def __init__(self, prepare: Prepare, laid: list[StreamState], parts: list[str]) -> None:
        self.prepare, self.columns, self._laid, self._parts = prepare, prepare.columns, laid, parts
        self._mine, self._lock = threading.local(), threading.Lock()
        self._all: list[list[StreamState]] = []

    def __call__(self, table: pa.Table, place: Place) -> State:
        try:
            rows = self.prepare(table)
        except InputError as error:
            raise InputError(f"{self._parts[place.part]}: {shifted(error, place.row)}") from None
        if bad := self.prepare.bad(rows):
            where = f"{self._parts[place.part]}, row {place.row + bad[0].row}"
            raise InputError(f"{bad[0].what} (first in {where}). Drop or mend those rows.")
        for k, state in enumerate(self._states()):
            state.update(rows[f"s{k}"], error=rows.get("e"), loss=rows.get("d"))
        return {"rows": len(table)}

    def _states(self) -> list[StreamState]:
        found: list[StreamState] | None = getattr(self._mine, "states", None)
        if found is None:
            found = self._mine.states = [state.empty() for state in self._laid]
            with self._lock:
                self._all.append(found)
        return found

    def merged(self) -> list[StreamState]:
        states, *rest = self._all
        for other in rest:
            for mine, theirs in zip(states, other, strict=True):
                mine.merge(theirs)
        return states


def _add(a: State, b: State) -> State:
    return {"rows": a["rows"] + b["rows"]}
