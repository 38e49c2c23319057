"""Files: do they fit in memory, and what if not?

An estimate from what Parquet says of itself, or from the size and the first rows of other files. Where the rows would
not fit, they are read piece by piece.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqeval._errors import InputError, UQWarning, notify
from uqeval.distributed.compare import DistributedComparison, compare
from uqeval.distributed.engines.files import Files
from uqeval.distributed.evaluate import DistributedEvaluation, evaluate
from uqeval.inputs.columns import Columns, plan_columns
from uqeval.inputs.files import expand, format_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "compare_files",
    "evaluate_files",
    "memory_available",
    "memory_needed",
    "roles",
    "score_columns",
    "too_large",
    "usual_memory",
]

# Bytes for a row of `uqeval.evaluate`, all metrics: measured with 1 to 10 scores, 2 to 100 classes.
_ROW, _PER_COLUMN, _PER_SCORE = 60, 42, 150
# Scores that the model's output gives.
_SCORES = {"prob": 4, "logit": 2, "member": 7, "member_logit": 1}
_ZIPPED = 5  # how much longer a text is than its .gz
_TEXT = 16  # bytes of a text in Arrow
_HEAD = 1 << 16
_SHARE = 0.8  # of the free memory


def memory_needed(paths: Sequence[str], scores: Sequence[str] | str | None = None, **columns: Any) -> int:
    """About how many bytes it takes to read and evaluate files in memory; 0 where that cannot be told."""
    options = Columns(**columns)
    return sum(_needed(path, scores, options) for path in paths)


def _needed(path: str, scores: Sequence[str] | str | None, options: Columns) -> int:
    import pyarrow as pa

    kind = format_of(path)
    if kind == "npz":
        return 0
    try:
        files = Files(path)
        plan = plan_columns(files.schema.names, options)
        rows = (
            files.rows if files.rows is not None else os.path.getsize(path) * _zipped(path) // _row(path, files.schema)
        )
    except (InputError, pa.ArrowException, OSError, EOFError, zlib.error):
        return 0  # reading says what is wrong
    known = len(plan.scores) + sum(_SCORES.get(role, 0) for role in (*plan.tables, *plan.members))
    asked = known if scores is None else 1 if isinstance(scores, str) else len(scores)
    return rows * (_ROW + _PER_COLUMN * len(plan.needed) + _PER_SCORE * asked)


def _zipped(path: str) -> int:
    return _ZIPPED if path.endswith(".gz") else 1


def _row(path: str, schema: pa.Schema) -> int:
    """About how many bytes a row of a file takes: its columns, or the length of the first lines."""
    import gzip

    if format_of(path) == "arrow":
        widths = [getattr(field.type, "bit_width", None) if _is_flat(field.type) else None for field in schema]
        return max(1, sum(_TEXT if width is None else width // 8 for width in widths))
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        head = file.read(_HEAD)
    return max(1, len(head) // max(1, head.count(b"\n")))


def _is_flat(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_primitive(kind))


def memory_available() -> int | None:
    """Free bytes of this machine or container; None where nobody tells."""
    found = [_of_machine(), *_of_container()]
    known = [size for size in found if size is not None]
    return min(known) if known else None


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _of_container() -> list[int | None]:
    """What control groups leave, of both versions."""
    found: list[int | None] = []
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            texts = [(Path(folder) / name).read_text(encoding="ascii").strip() for name in (limit, used)]
            found.append(max(0, int(texts[0]) - int(texts[1])))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return found


def usual_memory() -> int:
    """2 GB, or half of what is free where that is less."""
    free = memory_available()
    return 2 * 10**9 if free is None else max(256 * 10**6, min(2 * 10**9, free // 2))


def too_large(source: Any, scores: Sequence[str] | str | None = None, **columns: Any) -> str | None:
    """Why files should not be read whole, as a clause; None where they fit or nobody can tell."""
    free = memory_available()
    needed = memory_needed(expand(source), scores, **columns)
    if free is None or needed <= _SHARE * free:
        return None
    return f"the rows would need about {_size(needed)} of memory and {_size(free)} are free"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.0f} MB"


def roles(names: Sequence[str], by: str | None, cluster: str | None) -> tuple[str | None, str | None]:
    """Columns of groups and of clusters: those that are asked for, else `group` and `cluster` where they exist."""
    return by or ("group" if "group" in names else None), cluster or ("cluster" if "cluster" in names else None)


def _names(source: Any) -> list[str]:
    """Columns of files; none of addresses that only a cluster can read."""
    asked = [source] if isinstance(source, str | os.PathLike) else list(source)
    return [] if any("://" in str(path) for path in asked) else list(Files(source).schema.names)


def score_columns(source: Any, pattern: str, **columns: Any) -> dict[str, str]:
    """Score name → column, for a pattern such as "unc_*"."""
    options = Columns(**columns | {"score": pattern, "cluster": None, "group": None, "id": None})
    return plan_columns(Files(source).schema.names, options).scores


def evaluate_files(
    source: Any,
    *,
    by: str | None = None,
    cluster: str | None = None,
    memory_limit: str | int | None = None,
    names: Mapping[str, str] | None = None,
    reason: str | None = None,
    **options: Any,
) -> DistributedEvaluation:
    """`distributed.evaluate` with the columns `group` and `cluster` in use, as `uqeval.evaluate` has them.

    `names` are what to call score columns; `reason` says why files are not read whole, where nobody asked for it.
    """
    by, cluster = roles(_names(source), by, cluster)
    limit = usual_memory() if memory_limit is None else memory_limit
    with _because(reason):
        found = evaluate(source, by=by, cluster=cluster, memory_limit=limit, **options)
    if names:
        rows = tuple(replace(row, score=names.get(str(row.score), row.score)) for row in found.rows)
        found = replace(found, rows=rows, tie_rate={names.get(k, k): v for k, v in found.tie_rate.items()})
    return found if reason is None else replace(found, warnings=(*found.warnings, _told(reason)))


def compare_files(
    source: Any,
    *,
    score: Sequence[str] | str | None = None,
    by: str | None = None,
    cluster: str | None = None,
    memory_limit: str | int | None = None,
    names: Mapping[str, str] | None = None,
    reason: str | None = None,
    **options: Any,
) -> DistributedComparison:
    """`distributed.compare` with the columns `group` and `cluster` in use, as `uqeval.compare` has them."""
    by, cluster = roles(_names(source), by, cluster)
    limit = usual_memory() if memory_limit is None else memory_limit
    asked = [score] if isinstance(score, str) else score
    with _because(reason):
        found = compare(source, score=asked, by=by, cluster=cluster, memory_limit=limit, **options)
    if names:
        rows = tuple(replace(pair, a=names.get(pair.a, pair.a), b=names.get(pair.b, pair.b)) for pair in found.rows)
        mixed = {(names.get(a, a), names.get(b, b)): p for (a, b), p in found.heterogeneity.items()}
        values = {names.get(k, k): v for k, v in found.values.items()}
        found = replace(found, rows=rows, values=values, heterogeneity=mixed)
    return found if reason is None else replace(found, warnings=(*found.warnings, _told(reason)))


def _told(reason: str) -> str:
    note = f"read piece by piece: {reason}"
    notify(note, UQWarning, stacklevel=4)
    return note


@contextmanager
def _because(reason: str | None) -> Iterator[None]:
    """Says what else can be done where pieces do not do."""
    try:
        yield
    except InputError as error:
        if reason is None:
            raise
        raise InputError(
            f"{error} (The files are read piece by piece: {reason}. uqeval.read_predictions reads them whole.)"
        ) from None
