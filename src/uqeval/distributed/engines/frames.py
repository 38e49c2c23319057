"""Lazy frames: a query is computed by its own engine and never collected.

Polars, DuckDB and Ibis give the columns that are needed in batches, which go once to a temporary file without a name;
from there on the rows are those of the local engine. So a query runs once, whatever the number of passes, and one that
gives other rows each time cannot mix them. Dask and Spark dataframes go to the engines of those names.

narwhals and pyarrow are imported on use: they take 0.3 s to load, and files need no narwhals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uqeval._check import Progress, nearest
from uqeval._errors import InputError
from uqeval.distributed.compare import DistributedComparison, compare
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.local.source import BATCH, KeptBatches, querying
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.evaluate import DistributedEvaluation, evaluate
from uqeval.distributed.memory import roles, usual_memory
from uqeval.inputs.columns import Columns, listed, plan_columns
from uqeval.metrics.registry import REGISTRY

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["compare_frame", "evaluate_frame", "open_frame"]

_ENGINES = {"dask": "dask", "pyspark": "spark"}  # of frames that are on a cluster already


def evaluate_frame(
    frame: Any,
    *,
    score: Sequence[str] | str | None = None,
    metrics: Sequence[str] | str | None = None,
    by: str | None = None,
    cluster: str | None = None,
    memory_limit: str | int | None = None,
    client: Any = None,
    progress: Progress | None = None,
    spill: str | None = None,
    level: float = 0.95,
    seed: int = 0,
    **columns: Any,
) -> DistributedEvaluation:
    """All metrics, with intervals, of a query that is not collected; `uqeval.evaluate` calls this.

    Parameters
    ----------
    frame : polars.LazyFrame, DuckDB relation, Ibis table, Dask or PySpark dataframe
        Columns are named as in a file.
    by, cluster : str, optional
        Columns of groups and of clusters; `group` and `cluster` by default, where they exist.
    memory_limit, client, progress, spill, level, seed, score, metrics, **columns
        As in `uqeval.distributed.evaluate`; 2 GB by default, or half of the free memory where that is less.

    Returns
    -------
    Evaluation
        With `run`: rows, passes, shuffles, bytes and seconds.

    Examples
    --------
    >>> import duckdb
    >>> rows = duckdb.sql("SELECT i / 1e3 AS score_s, i % 3 = 0 AND i > 500 AS error FROM range(1000) t(i)")
    >>> round(evaluate_frame(rows)["s", "uq_auc"].value, 3)
    0.801
    """
    names = _names(frame)
    by, cluster = roles(names, by, cluster)
    wanted = [metrics] if isinstance(metrics, str) else metrics
    engine = open_frame(
        frame,
        columns=needed_columns(names, Columns(**columns), score, wanted, (by, cluster)),
        memory_limit=memory_limit,
        client=client,
        progress=progress,
        spill=spill,
    )
    try:
        return evaluate(
            None, score=score, metrics=metrics, engine=engine, by=by, cluster=cluster, level=level, seed=seed, **columns
        )
    finally:
        engine.close()


def compare_frame(
    frame: Any,
    *,
    score: Sequence[str] | str | None = None,
    metric: str = "uq_auc",
    by: str | None = None,
    cluster: str | None = None,
    memory_limit: str | int | None = None,
    client: Any = None,
    progress: Progress | None = None,
    spill: str | None = None,
    baseline: str | None = None,
    adjust: str = "max-t",
    level: float = 0.95,
    seed: int = 0,
    **columns: Any,
) -> DistributedComparison:
    """Paired differences between scores of a query that is not collected; `uqeval.compare` calls this.

    Parameters
    ----------
    frame, by, cluster, memory_limit, client, progress, spill
        As in `evaluate_frame`.
    score, metric, baseline, adjust, level, seed, **columns
        As in `uqeval.distributed.compare`.

    Returns
    -------
    DistributedComparison
        With `run`: rows, passes, shuffles, bytes and seconds.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"score_a": range(40), "score_b": [k % 7 for k in range(40)], "error": [0, 0, 0, 1] * 10})
    >>> compare_frame(rows)["a", "b"].p > 0.05
    True
    """
    names = _names(frame)
    by, cluster = roles(names, by, cluster)
    asked = [score] if isinstance(score, str) else score
    engine = open_frame(
        frame,
        columns=needed_columns(names, Columns(**columns), asked, [metric], (by, cluster)),
        memory_limit=memory_limit,
        client=client,
        progress=progress,
        spill=spill,
    )
    try:
        return compare(
            None,
            score=asked,
            metric=metric,
            baseline=baseline,
            adjust=adjust,
            engine=engine,
            by=by,
            cluster=cluster,
            level=level,
            seed=seed,
            **columns,
        )
    finally:
        engine.close()


def open_frame(
    frame: Any,
    *,
    columns: Sequence[str] | None = None,
    memory_limit: str | int | None = None,
    client: Any = None,
    progress: Progress | None = None,
    spill: str | None = None,
) -> Engine:
    """An engine on a lazy frame, for `uqeval.distributed.evaluate(None, engine=...)`, which closes it.

    Parameters
    ----------
    frame : polars.LazyFrame, DuckDB relation, Ibis table, Dask or PySpark dataframe
        The query.
    columns : list of str, optional
        Those that will be needed; all by default.
    memory_limit, client, progress, spill
        As in `evaluate_frame`.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"s": [0.1, 0.9, 0.5, 0.3], "wrong": [0, 1, 1, 0]})
    >>> from uqeval import distributed
    >>> ev = distributed.evaluate(None, score="s", metrics="accuracy", engine=open_frame(rows), error="wrong")
    >>> ev["accuracy"].value
    0.5
    """
    query = _lazy(frame)
    kind = query.implementation.name.lower().removesuffix("_connect")
    limit = parse_memory(usual_memory() if memory_limit is None else memory_limit)  # before the query runs
    if kind in _ENGINES:
        return open_engine(_ENGINES[kind], query.to_native(), limit, client, progress, spill)
    if kind not in _BATCHES:
        known = "Polars, DuckDB, Ibis, Dask and PySpark"
        raise InputError(f"`frame` is a lazy frame of {kind}, which is not known here. Known are {known}.")
    batches = _BATCHES[kind]((query if columns is None else query.select(*columns)).to_native())
    rows = KeptBatches(batches, name=kind, spill=spill, progress=progress)
    return LocalEngine(rows, memory_limit=limit, spill=spill, progress=progress)


def _lazy(frame: Any) -> Any:
    import narwhals as nw

    try:
        query = nw.from_native(frame)
    except TypeError:
        raise InputError(f"`frame` is a {type(frame).__name__}, which is no lazy frame that narwhals knows.") from None
    if not isinstance(query, nw.LazyFrame):
        raise InputError(f"`frame` is a {type(frame).__name__} in memory. Pass it to uqeval.evaluate.")
    return query


def _names(frame: Any) -> list[str]:
    with querying():
        return list(_lazy(frame).collect_schema().names())


def needed_columns(
    names: list[str],
    options: Columns,
    score: Sequence[str] | str | None,
    metrics: Sequence[str] | None,
    more: Sequence[str | None],
) -> list[str]:
    """What to ask of a query: plain columns where they are enough, else also what scores and metrics are made from."""
    asked = [score] if isinstance(score, str) else list(score or [])
    keys = [name for name in more if name is not None]
    for name in keys:
        if name not in names:
            raise InputError(f"There is no column `{name}`.{nearest(name, names)} Columns: {listed(names)}.")
    own = [name for name in asked if name in names]
    if own:
        options = replace(options, score=tuple(own))
    used = plan_columns(
        [name for name in names if name not in keys], replace(options, cluster=None, group=None, id=None)
    )
    columns = {**used.scores, **{name: name for name in own}}
    ranked = [name for name in metrics or [] if name in REGISTRY and REGISTRY[name].uses_score]
    targets = [used.single[role] for role in ("error", "loss") if role in used.single]
    enough = "error" in used.single and ("loss" in used.single or "uq_c_index" not in ranked)
    if asked and all(name in columns for name in asked) and metrics and len(ranked) == len(metrics) and enough:
        plain = [columns[name] for name in asked] + targets + [used.single[r] for r in ("weight",) if r in used.single]
        return list(dict.fromkeys([*plain, *keys]))
    return list(dict.fromkeys([*used.needed, *keys]))


# ---- batches of a query -----------------------------------------------------------------------------------------


def _polars(frame: Any) -> Iterator[pa.Table]:
    if not hasattr(frame, "collect_batches"):
        raise InputError("This Polars cannot give a query in batches. Update it, or write it with frame.sink_parquet.")
    for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=False, lazy=True):
        yield batch.to_arrow()


def _duckdb(relation: Any) -> Iterator[pa.Table]:
    import pyarrow as pa

    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    for batch in read(BATCH):
        yield pa.Table.from_batches([batch])


def _ibis(table: Any) -> Iterator[pa.Table]:
    import pyarrow as pa

    backend = table.get_backend()
    if backend.name == "polars":  # Ibis would collect it
        yield from _polars(backend.compile(table))
        return
    if backend.name == "duckdb":  # Ibis 12 asks it for batches by a name that DuckDB 2 has not
        if (registers := getattr(backend, "_run_pre_execute_hooks", None)) is not None:
            registers(table)  # rows in memory that the query uses
        yield from _duckdb(backend.con.sql(backend.compile(table)))
        return
    for batch in table.to_pyarrow_batches(chunk_size=BATCH):
        yield pa.Table.from_batches([batch])


_BATCHES = {"polars": _polars, "duckdb": _duckdb, "ibis": _ibis}
