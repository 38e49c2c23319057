"""Where rows come from, and who counts them: the one place that tells rows in memory from rows on an engine.

Predictions, arrays and frames in memory stay there. Files are read whole where they fit, else piece by piece by the
local engine. A lazy frame is never collected: its own engine gives batches, or is the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from uqeval._check import Progress, omits
from uqeval._errors import InputError
from uqeval.distributed.given import MEMORY, Arrays, Where
from uqeval.distributed.memory import too_large
from uqeval.evaluation.evaluate import from_arrays
from uqeval.inputs import Predictions
from uqeval.inputs.columns import Columns, column_options
from uqeval.inputs.files import PredictionFiles

if TYPE_CHECKING:
    from uqeval.distributed.engines.protocol import Engine
    from uqeval.distributed.plan.columns import Wanted
    from uqeval.distributed.plan.run import Request

# "package.Class" of a lazy frame; the class may be a base of the frame's own.
KINDS = (
    *("polars.LazyFrame", "duckdb.DuckDBPyRelation", "ibis.Table", "dask.DataFrame", "pyspark.DataFrame"),
    *("sqlframe.BaseDataFrame", "narwhals.LazyFrame"),
)


@dataclass(frozen=True)
class Source:
    """What a call gives: predictions in memory, or an engine with what is wanted of it."""

    pred: Predictions | None = None
    engine: Engine | None = None
    wanted: Wanted | None = None
    reason: str | None = None  # why files are read piece by piece, where nobody asked for it
    scores: Sequence[str] | str | None = None  # those of `pred` that are asked for

    @classmethod
    def open(
        cls,
        given: Any,
        arrays: Arrays,
        where: Where,
        scores: Sequence[str] | str | None,
        metrics: Sequence[str] | None,
        columns: Mapping[str, Any],
        nan: str = "raise",
        progress: Progress | None = None,
    ) -> Source:
        """Finds out what it is, and opens it."""
        omits(nan)
        column_options(columns)  # says which word is not known
        if given is None and (where.engine is None or isinstance(where.engine, str)):
            _refuse(columns, "plain arrays have no columns")
            _refuse_engine(where, "plain arrays are in memory")
            pred = from_arrays(arrays.score, {k: v for k, v in vars(arrays).items() if k != "score"}, nan)
            return cls(pred, scores=scores)
        if isinstance(given, Predictions):
            if named := [*arrays.given()]:
                raise InputError(f"Pass `{named[0]}` inside the predictions, or plain arrays only; not both.")
            _refuse(columns, "predictions have no columns")
            _refuse_engine(where, "predictions are in memory")
            return cls(given, scores=scores)
        options = column_options({**columns, **arrays.columns()})
        asked = None if scores is None else (scores,) if isinstance(scores, str) else tuple(dict.fromkeys(scores))
        lazy = reason = None
        if where.engine is None or isinstance(where.engine, str):
            if (lazy := kind_of(given)) is not None:
                if where.engine == MEMORY:
                    raise InputError(f"The {lazy} is lazy. Collect it first, or leave engine= out.")
            elif not _is_path(given):
                _refuse_engine(where, "a frame in memory needs none")
                return cls._of_columns(Predictions.from_frame(given, **_in_memory(options, where)), asked, where)
            elif not where.elsewhere():
                files = PredictionFiles(given, Columns(**_in_memory(options, where)))
                reason = None if where.engine == MEMORY else too_large(files, scores)
                if reason is None:
                    return cls._of_columns(files.read(), asked, where)
                if progress is not None:
                    progress(f'{reason}: reading piece by piece (engine="memory" reads all)', 0, None)
            elif where.engine == MEMORY:
                raise InputError('engine="memory" reads all rows. Leave memory_limit=, client= and spill= out.')
        from uqeval.distributed.on_engine import open_rows

        return cls(None, *open_rows(given, lazy is not None, asked, metrics, options, where, progress), reason)

    @classmethod
    def _of_columns(cls, pred: Predictions, asked: tuple[str, ...] | None, where: Where) -> Source:
        """Rows in memory that had columns: a score may be asked for by its column's name, as on an engine."""
        own = {f"score_{name}": name for name in pred.scores if f"score_{name}" not in pred.scores}
        names = None if asked is None else tuple(dict.fromkeys(own.get(name, name) for name in asked))
        return cls(_with_keys(pred, where), scores=names)

    def on_engine(self, metrics: list[str] | None, drawn: str | None) -> tuple[Engine, Request]:
        """The engine, and what is asked of it; `drawn` names a method that draws rows, which no engine can."""
        if drawn:
            raise InputError(
                f'method="{drawn}" needs all rows in memory. '
                'Leave it out, collect the frame, or read files with engine="memory".'
            )
        from uqeval.distributed.plan.run import Request

        assert self.engine is not None
        assert self.wanted is not None
        return self.engine, Request(self.wanted, metrics)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Closes the engine, whatever happens; says what else can be done where pieces do not do."""
        try:
            yield
        except InputError as error:
            if self.reason is None:
                raise
            raise InputError(
                f"{error} (The files are read piece by piece: {self.reason}. uqeval.read_predictions reads them whole.)"
            ) from None
        finally:
            if self.engine is not None:
                self.engine.close()

    def notes(self) -> tuple[str, ...]:
        return () if self.reason is None else (f"read piece by piece: {self.reason}",)


def kind_of(given: Any) -> str | None:
    """The kind of a lazy frame; None for everything else."""
    for cls in type(given).__mro__:
        name = f"{cls.__module__.split('.')[0].lstrip('_')}.{cls.__name__}"
        if name in KINDS:
            return name
    return None


def _is_path(given: Any) -> bool:
    paths = given if isinstance(given, list | tuple) else [given]
    return bool(paths) and all(isinstance(path, str | os.PathLike) for path in paths)


def _in_memory(options: Columns, where: Where) -> dict[str, Any]:
    """The options of `read_predictions`."""
    changed = {f.name: getattr(options, f.name) for f in fields(Columns) if getattr(options, f.name) != f.default}
    return changed | {
        role: name for role, name in (("group", where.by), ("cluster", where.cluster)) if name is not None
    }


def _with_keys(pred: Predictions, where: Where) -> Predictions:
    """A column that is asked for must be there, also if it has the default name."""
    for role, name, codes in (("by", where.by, pred.groups), ("cluster", where.cluster, pred.clusters)):
        if name is not None and codes is None:
            raise InputError(f"There is no column `{name}` ({role}). Name one that is there.")
    return pred


def _refuse(columns: Mapping[str, Any], reason: str) -> None:
    if columns:
        raise InputError(f"`{next(iter(columns))}` names a column, but {reason}. Leave it out.")


def _refuse_engine(where: Where, reason: str) -> None:
    for name in ("by", "cluster", "memory_limit", "client", "spill"):
        if getattr(where, name) is not None:
            raise InputError(f"`{name}` is for files and lazy frames; {reason}. Leave it out.")
    if where.engine not in (None, MEMORY):
        raise InputError(f"engine={where.engine!r} is for files and lazy frames; {reason}. Leave it out.")
