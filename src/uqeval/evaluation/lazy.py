"""Hand-over: frames that are not collected, and files that would not fit in memory, go to a route found by name.

This room does not know who can compute such things: `ROUTES` names a module for each kind of frame, and the module
has `evaluate_frame` and `compare_frame`. Other packages may add a kind of their own:
``ROUTES["mypackage.Frame"] = "mypackage.routes"``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from uqeval._check import Progress
from uqeval._errors import InputError

__all__ = ["FILES", "ROUTES", "hand_over", "kind_of"]

# "package.Class" → module. The class may be a base of the frame's own.
ROUTES = dict.fromkeys(
    (
        "polars.LazyFrame",
        "duckdb.DuckDBPyRelation",
        "ibis.Table",
        "dask.DataFrame",
        "pyspark.DataFrame",
        "sqlframe.BaseDataFrame",
        "narwhals.LazyFrame",
    ),
    "uqeval.distributed.engines.frames",
)
# Files: the module has `too_large`, `evaluate_files` and `compare_files`.
FILES = "uqeval.distributed.memory"
_PLAIN = ("score", "error", "loss", "weights", "clusters", "groups")


def kind_of(given: Any) -> str | None:
    """The kind of a lazy frame that has a route; None for everything else."""
    for cls in type(given).__mro__:
        name = f"{cls.__module__.split('.')[0].lstrip('_')}.{cls.__name__}"
        if name in ROUTES:
            return name
    return None


def hand_over(
    what: str,
    given: Any,
    *,
    scores: Sequence[str] | str | None,
    plain: dict[str, Any],
    method: str,
    seed: int | np.random.Generator,
    progress: Progress | None,
    **options: Any,
) -> Any:
    """The result for a lazy frame or for files that would not fit in memory; None where rows fit in memory.

    `what` is "evaluate" or "compare"; `options` go on as they are.
    """
    kind = kind_of(given)
    module = None if kind is None else import_module(ROUTES[kind])
    reason = f"a {kind} is not collected" if kind is not None else None
    if kind is None and isinstance(given, str | os.PathLike):
        module = import_module(FILES)
        reason = module.too_large(given, scores)
    if module is None or reason is None:
        return None
    for name in _PLAIN:
        if plain.get(name) is not None:
            raise InputError(f"Pass `{name}` inside the predictions, or plain arrays only; not both.")
    if method == "bootstrap":
        raise InputError(
            f'method="bootstrap" needs all rows in memory, but {reason}. Leave `method` out, or read the rows first.'
        )
    function = getattr(module, f"{what}_{'files' if kind is None else 'frame'}")
    told = None if progress is None else _told(progress)
    draws = int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else int(seed)
    more = {} if kind is not None else {"reason": reason}
    return function(given, score=scores, seed=draws, progress=told, **more, **options)


def _told(progress: Progress) -> Any:
    """Rows done in each stage, for a callable(done, total)."""

    def told(stage: str, done: int, total: int) -> None:
        progress(stage, done, total)

    return told
