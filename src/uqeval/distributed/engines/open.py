"""Engines by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uqeval._check import Progress
from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.engines.local.engine import LocalEngine, parse_memory
from uqeval.distributed.engines.protocol import Engine

__all__ = ["open_engine"]


def open_engine(
    engine: str,
    source: Any,
    *,
    memory_limit: str | int,
    client: Any = None,
    progress: Progress | None = None,
    spill: str | None = None,
    texts: Sequence[str] = (),
) -> Engine:
    """The engine of that name on that source."""
    if engine == "local":
        return LocalEngine(source, memory_limit=memory_limit, spill=spill, progress=progress, texts=texts)
    if engine not in ("dask", "spark"):
        raise InputError(f'`engine` is {engine!r}. Choose "memory", "local", "dask" or "spark".')
    options = {"client": client, "memory_limit": parse_memory(memory_limit), "progress": progress, "spill": spill}
    try:
        if engine == "dask":
            from uqeval.distributed.engines.dask.engine import DaskEngine

            return DaskEngine(source, texts=texts, **options)
        from uqeval.distributed.engines.spark.engine import SparkEngine

        return SparkEngine(source, texts=texts, **options)
    except ModuleNotFoundError:
        raise MissingExtra(f'engine="{engine}"', {"dask": "dask", "spark": "pyspark"}[engine], engine) from None
