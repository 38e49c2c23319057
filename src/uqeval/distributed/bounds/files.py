"""Certain bounds for every score of some files, in one pass: what `uqeval evaluate --approx` prints.

All scores share the pass, also those that are computed from probabilities. `batches` takes one score as it is.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uqeval import kernels
from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval._result import Result
from uqeval.distributed.bounds.bounds import SCHEMA_VERSION, StreamResult
from uqeval.distributed.bounds.state import StreamState
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.protocol import Folded, Place, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.columns import Prepare, Wanted, shifted
from uqeval.distributed.plan.count import Draw
from uqeval.distributed.plan.run import prepared
from uqeval.inputs.columns import column_options

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
        scores = {name: result.to_dict() for name, result in self.scores.items()}
        kind = next(iter(scores.values()))["kind"]
        return {"schema_version": SCHEMA_VERSION, "kind": kind, "n": self.rows, "scores": scores, "run": run}

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per score and metric."""
        return [{"score": name} | row for name, result in self.scores.items() for row in result.frame_rows()]

    def summary(self) -> str:
        """What it cost."""
        return (
            f"{self.rows:,} rows in {self.parts:,} parts: {self.passes} pass and {self.sampled_rows:,} rows "
            f"sampled before, {self.bytes / 1e6:,.0f} MB of counts, "
            f"{self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        return "\n\n".join([*(f"{name}: {result}" for name, result in self.scores.items()), self.summary()])


def approx_scores(
    source: Any,
    *,
    scores: Sequence[str] | str | None = None,
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
    scores : str or list of str, optional
        Which scores, by name or by column. All by default.
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
    asked = None if scores is None else (scores,) if isinstance(scores, str) else tuple(scores)
    wanted = Wanted(asked, column_options(columns))
    texts = [name for name in (wanted.options.label, wanted.options.pred) if name is not None]
    engine = LocalEngine(source, memory_limit=memory_limit, progress=progress, texts=texts)
    try:
        metrics, prepare = prepared(engine, None, wanted)
        error, loss = (any(metric.name == name for metric in metrics) for name in ("uq_auc", "uq_c_index"))
        prepare = replace(prepare, model=(), wants_error=error, wants_loss=loss)
        most = parse_memory(memory_limit) // 2 // (_STATE_BYTES * len(prepare.scores))
        engine.workers = max(1, min(kernels.cores(), most))
        states, folded = count_rows(engine, prepare, blank, int(8 / blank.approx))
    finally:
        engine.close()
    if int(folded.state["rows"]) < 2:
        raise InputError("There are fewer than 2 rows. Ranking needs at least 2.")
    results = {name: state.compute() for (name, _), state in zip(prepare.scores, states, strict=True)}
    return Certain(
        scores=results,
        rows=states[0].n,
        parts=len(folded.rows),
        passes=1,
        sampled_rows=engine.sampled_rows,
        bytes=sum(result.bytes for result in results.values()),
        seconds=time.perf_counter() - start,
    )


def count_rows(
    engine: LocalEngine, prepare: Prepare, blank: StreamState, sample: int
) -> tuple[list[StreamState], Folded]:
    """A state of all rows for each score, with cells laid out by that many sampled rows; and what the pass read."""
    laid = [blank] * len(prepare.scores)
    if sample:
        rows = engine.sample(Draw(prepare), sample)
        columns = {name: rows.column(name).to_numpy() for name in rows.column_names}
        columns = {name: x[~np.isnan(x)] for name, x in columns.items()}  # counting says where they are
        laid = [blank.laid_out(columns[wire.score(k)], columns.get(wire.LOSS)) for k in range(len(laid))]
    counting = _Counting(prepare, laid, [part.name for part in engine.parts()])
    folded = engine.fold("bounds", counting, lambda a, b: {"rows": a["rows"] + b["rows"]})
    return counting.merged(), folded


class _Counting:
    """Counts pieces into states of the thread's own, so that they are merged once, at the end."""

    def __init__(self, prepare: Prepare, laid: list[StreamState], parts: list[str]) -> None:
        self.prepare, self.columns, self._laid, self._parts = prepare, prepare.columns, laid, parts
        self._mine, self._lock = threading.local(), threading.Lock()
        self._all: list[list[StreamState]] = []

    def __call__(self, table: Table, place: Place) -> State:
        try:
            rows = self.prepare(table)
            if bad := self.prepare.bad(rows):
                raise InputError(f"{bad[0].what} (first at row {bad[0].row}). Drop or mend those rows.")
        except InputError as error:
            raise InputError(f"{self._parts[place.part]}: {shifted(error, place.row)}") from None
        for k, state in enumerate(self._states()):
            state.update(rows[wire.score(k)], error=rows.get(wire.ERROR), loss=rows.get(wire.LOSS))
        return {"rows": len(table)}

    def _states(self) -> list[StreamState]:
        if not hasattr(self._mine, "states"):
            self._mine.states = [state.empty() for state in self._laid]
            with self._lock:
                self._all.append(self._mine.states)
        return self._mine.states

    def merged(self) -> list[StreamState]:
        states, *rest = self._all
        for other in rest:
            for mine, theirs in zip(states, other, strict=True):
                mine.merge(theirs)
        return states
