"""Where rows come from, and who counts them: the one place that tells rows in memory from rows on an engine.

Predictions, arrays and frames in memory stay there. Files are read whole where they fit, else piece by piece by the
local engine. A lazy frame is never collected: its own engine gives batches, or is the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from uqeval._check import Progress, omits
from uqeval._errors import InputError
from uqeval.distributed.engines.frames import kind_of, names_of, open_frame
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.memory import too_large, usual_memory
from uqeval.distributed.plan.columns import Wanted
from uqeval.distributed.plan.run import Request
from uqeval.evaluation.evaluate import from_arrays
from uqeval.inputs import Predictions
from uqeval.inputs.columns import Columns, column_options
from uqeval.inputs.files import PredictionFiles
from uqeval.metrics.registry import REGISTRY

MEMORY = "memory"


@dataclass(frozen=True)
class Arrays:
    """What was given beside the source: arrays where there is none, else names of columns."""

    score: Any = None
    error: Any = None
    loss: Any = None
    weights: Any = None
    clusters: Any = None
    groups: Any = None

    def given(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def columns(self) -> dict[str, Any]:
        """As names of columns of a file or frame."""
        for name, value in self.given().items():
            texts = isinstance(value, str) or (name == "score" and isinstance(value, list | tuple))
            if name not in ("score", "error", "loss") or not texts:
                raise InputError(f"Pass `{name}` inside the predictions, or plain arrays only; not both.")
        return self.given()


@dataclass(frozen=True)
class Where:
    """Who counts the rows: an engine by name or itself, what it may use, and the columns of groups and clusters."""

    engine: str | Engine | None = None
    memory_limit: str | int | None = None
    client: Any = None
    spill: str | None = None
    by: str | None = None
    cluster: str | None = None

    def elsewhere(self) -> bool:
        """Whether something was asked for that only an engine knows."""
        given = (self.memory_limit, self.client, self.spill)
        return self.engine not in (None, MEMORY) or any(value is not None for value in given)


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
        texts = [options.label, options.pred, where.cluster, where.by]
        given_engine = {"progress": progress, "spill": where.spill, "client": where.client}
        limit = usual_memory() if where.memory_limit is None else where.memory_limit
        if where.engine is not None and not isinstance(where.engine, str):
            return cls(engine=where.engine, wanted=_wanted(where.engine.schema().names, asked, options, where))
        if (kind := kind_of(given)) is not None:
            if where.engine == MEMORY:
                raise InputError(f"The {kind} is lazy. Collect it first, or leave engine= out.")
            wanted = _wanted(names_of(given), asked, options, where)
            chosen = None if metrics is None else [REGISTRY[name] for name in metrics if name in REGISTRY]
            read = wanted.columns(names_of(given), chosen)
            return cls(engine=open_frame(given, columns=read, memory_limit=limit, **given_engine), wanted=wanted)
        if not _is_path(given):
            _refuse_engine(where, "a frame in memory needs none")
            return cls._of_columns(Predictions.from_frame(given, **_in_memory(options, where)), asked, where)
        reason = None
        if not where.elsewhere():
            files = PredictionFiles(given, Columns(**_in_memory(options, where)))
            reason = None if where.engine == MEMORY else too_large(files, scores)
            if reason is None:
                return cls._of_columns(files.read(), asked, where)
            if progress is not None:
                progress(f'{reason}: reading piece by piece (engine="memory" reads all)', 0, None)
        elif where.engine == MEMORY:
            raise InputError('engine="memory" reads all rows. Leave memory_limit=, client= and spill= out.')
        more = {"memory_limit": limit, "texts": [name for name in texts if name is not None], **given_engine}
        engine = open_engine(where.engine or "local", given, **more)
        try:
            return cls(engine=engine, wanted=_wanted(engine.schema().names, asked, options, where), reason=reason)
        except BaseException:
            engine.close()
            raise

    @classmethod
    def _of_columns(cls, pred: Predictions, asked: tuple[str, ...] | None, where: Where) -> Source:
        """Rows in memory that had columns: a score may be asked for by its column's name, as on an engine."""
        own = {f"score_{name}": name for name in pred.scores if f"score_{name}" not in pred.scores}
        names = None if asked is None else tuple(dict.fromkeys(own.get(name, name) for name in asked))
        return cls(_with_keys(pred, where), scores=names)

    def on_engine(self, metrics: list[str] | None, resamples: int) -> tuple[Engine, Request]:
        """The engine, and what is asked of it."""
        if resamples:
            raise InputError(
                'method="bootstrap" needs all rows in memory. '
                'Leave it out, collect the frame, or read files with engine="memory".'
            )
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
            raise InputError(f"There is no column `{name}` ({role}).")
    return pred


def _wanted(names: Sequence[str], asked: tuple[str, ...] | None, options: Columns, where: Where) -> Wanted:
    """Columns of groups and clusters: those that are asked for, else `group` and `cluster` where they exist."""
    by = where.by or ("group" if "group" in names else None)
    cluster = where.cluster or ("cluster" if "cluster" in names else None)
    return Wanted(asked, replace(options, group=None, cluster=None), cluster, by)


def _refuse(columns: Mapping[str, Any], reason: str) -> None:
    if columns:
        raise InputError(f"`{next(iter(columns))}` names a column, but {reason}. Leave it out.")


def _refuse_engine(where: Where, reason: str) -> None:
    for name in ("by", "cluster", "memory_limit", "client", "spill"):
        if getattr(where, name) is not None:
            raise InputError(f"`{name}` is for files and lazy frames; {reason}. Leave it out.")
    if where.engine not in (None, MEMORY):
        raise InputError(f"engine={where.engine!r} is for files and lazy frames; {reason}. Leave it out.")
