"""Rows that do not come into memory: their engine is opened, and told what is wanted of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from uqeval._check import Progress, check_largest
from uqeval.distributed.engines.frames import names_of, open_frame
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.given import Where
from uqeval.distributed.memory import usual_memory
from uqeval.distributed.plan.columns import PLAIN_CSV, Wanted
from uqeval.inputs.columns import Columns, refuse_csv_options
from uqeval.metrics.registry import REGISTRY


def open_rows(
    given: Any,
    lazy: bool,
    asked: tuple[str, ...] | None,
    metrics: Sequence[str] | None,
    options: Columns,
    where: Where,
    progress: Progress | None,
) -> tuple[Engine, Wanted]:
    """An engine that is there already, one on a lazy frame, or one on files."""
    if where.engine is not None and not isinstance(where.engine, str):
        return where.engine, _wanted(where.engine.schema().names, asked, options, where)
    limit = usual_memory() if where.memory_limit is None else where.memory_limit
    how: dict[str, Any] = {"memory_limit": limit, "progress": progress, "spill": where.spill, "client": where.client}
    if lazy:
        names = names_of(given)
        wanted = _wanted(names, asked, options, where)
        chosen = None if metrics is None else [REGISTRY[name] for name in metrics if name in REGISTRY]
        return open_frame(given, columns=wanted.columns(names, chosen), **how), wanted
    refuse_csv_options(options, PLAIN_CSV)  # before a file is misread
    texts = [name for name in (options.label, options.pred, where.cluster, where.by) if name is not None]
    engine = open_engine(where.engine or "local", given, texts=texts, **how)
    try:
        return engine, _wanted(engine.schema().names, asked, options, where)
    except BaseException:
        engine.close()
        raise


def _wanted(names: Sequence[str], asked: tuple[str, ...] | None, options: Columns, where: Where) -> Wanted:
    """Columns of groups and clusters: those that are asked for, else `group` and `cluster` where they exist."""
    by = where.by or ("group" if "group" in names else None)
    cluster = where.cluster or ("cluster" if "cluster" in names else None)
    if where.largest_cluster is not None and cluster is None:
        check_largest(where.largest_cluster, None)
    return Wanted(asked, replace(options, group=None, cluster=None), cluster, by, where.largest_cluster)
