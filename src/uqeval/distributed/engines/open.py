"""Engines by name: how each is opened, and what it needs. A new engine has a folder, and a line here.

Engines are imported when they are opened, because Dask and Spark are extras.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from uqeval._check import Progress
from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.protocol import Engine


def _local(source: Any, *, client: Any, **options: Any) -> Engine:
    return LocalEngine(source, **options)


def _dask(source: Any, **options: Any) -> Engine:
    from uqeval.distributed.engines.dask.engine import DaskEngine

    return DaskEngine(source, **options)


def _spark(source: Any, **options: Any) -> Engine:
    from uqeval.distributed.engines.spark.engine import SparkEngine

    return SparkEngine(source, **options)


class Known(NamedTuple):
    """How to open an engine; the package and the extra that it needs."""

    open: Callable[..., Engine]
    package: str = ""
    extra: str = ""


ENGINES = {"local": Known(_local), "dask": Known(_dask, "dask", "dask"), "spark": Known(_spark, "pyspark", "spark")}


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
    if engine not in ENGINES:
        *most, last = (f'"{name}"' for name in ("memory", *ENGINES))
        raise InputError(f"`engine` is {engine!r}. Choose {', '.join(most)} or {last}.")
    memory, known = parse_memory(memory_limit), ENGINES[engine]
    options: dict[str, Any] = {"progress": progress, "spill": spill, "texts": texts}
    try:
        return known.open(source, memory_limit=memory, client=client, **options)
    except ModuleNotFoundError:
        raise MissingExtra(f'engine="{engine}"', known.package, known.extra) from None
