"""Lazy frames: a query is computed by its own engine and never collected.

Polars, DuckDB and Ibis give the columns that are needed in batches, which go once to a temporary file without a name;
from there on the rows are those of the local engine. So a query runs once, whatever the number of passes, and one that
gives other rows each time cannot mix them. Dask and Spark dataframes go to the engines of those names.

narwhals and pyarrow are imported on use: they take 0.3 s to load, and files need no narwhals.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from uqeval._check import Progress
from uqeval._errors import InputError, a_type
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.local.source import BATCH, KeptBatches, querying
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine, Table
from uqeval.distributed.memory import usual_memory

_ENGINES = {"dask": "dask", "pyspark": "spark"}  # of frames that are on a cluster already


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
        As in `uqeval.evaluate`.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.LazyFrame({"s": [0.1, 0.9, 0.5, 0.3], "wrong": [0, 1, 1, 0]})
    >>> from uqeval import distributed
    >>> ev = distributed.evaluate(None, scores="s", metrics="accuracy", engine=open_frame(rows), error="wrong")
    >>> ev["accuracy"].value
    0.5
    """
    query = _lazy(frame)
    kind = query.implementation.name.lower().removesuffix("_connect")
    limit = parse_memory(usual_memory() if memory_limit is None else memory_limit)  # before the query runs
    if kind in _ENGINES:
        return open_engine(
            _ENGINES[kind], query.to_native(), memory_limit=limit, client=client, progress=progress, spill=spill
        )
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
        raise InputError(f"`frame` is {a_type(frame)}, which is no lazy frame that narwhals knows.") from None
    if not isinstance(query, nw.LazyFrame):
        raise InputError(f"`frame` is {a_type(frame)} in memory. Pass it to uqeval.evaluate.")
    return query


def names_of(frame: Any) -> list[str]:
    """Its columns."""
    with querying():
        return list(_lazy(frame).collect_schema().names())


# ---- batches of a query -----------------------------------------------------------------------------------------


def _polars(frame: Any) -> Iterator[Table]:
    if not hasattr(frame, "collect_batches"):
        raise InputError("This Polars cannot give a query in batches. Update it, or write it with frame.sink_parquet.")
    for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=False, lazy=True):
        yield batch.to_arrow()


def _duckdb(relation: Any) -> Iterator[Table]:
    import pyarrow as pa

    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    for batch in read(BATCH):
        yield pa.Table.from_batches([batch])


def _ibis(table: Any) -> Iterator[Table]:
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
