"""Do files fit in memory?

An estimate from what Parquet says of itself, or from the size and the first rows of other files.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from uqeval._errors import InputError
from uqeval.inputs.columns import plan_columns
from uqeval.inputs.files import PredictionFiles
from uqeval.inputs.paths import is_packed

# Bytes for a row of `uqeval.evaluate`, all metrics: measured with 1 to 10 scores, 2 to 100 classes.
_ROW, _PER_COLUMN, _PER_SCORE = 60, 42, 150
# Scores that the model's output gives.
_SCORES = {"prob": 4, "logit": 2, "member": 7, "member_logit": 1}
_ZIPPED = 5  # how much longer a text is than packed
_HEAD = 1 << 16
_SHARE = 0.8  # of the free memory


def memory_needed(files: PredictionFiles, scores: Sequence[str] | str | None = None) -> int:
    """About how many bytes it takes to read and evaluate files in memory; 0 where that cannot be told."""
    return sum(
        _needed(files, path, kind, scores) for path, kind in zip(files.paths, files.kinds, strict=True) if kind != "npz"
    )


def _needed(files: PredictionFiles, path: str, kind: str, scores: Sequence[str] | str | None) -> int:
    try:
        names, rows = _first_line(path) if kind == "jsonl" else (files.open(path).names, files.open(path).rows)
        plan = plan_columns(names, files.options)
        if rows is None:
            rows = os.path.getsize(path) * (_ZIPPED if is_packed(path) else 1) // _row(path, kind, len(names))
    except (InputError, OSError, EOFError, ValueError, AttributeError, TypeError, RecursionError):
        return 0  # reading says what is wrong
    known = len(plan.scores) + sum(_SCORES.get(role, 0) for role in (*plan.tables, *plan.members))
    asked = known if scores is None else 1 if isinstance(scores, str) else len(scores)
    return rows * (_ROW + _PER_COLUMN * len(plan.needed) + _PER_SCORE * asked)


def _head(path: str) -> bytes:
    if is_packed(path):
        import pyarrow as pa  # few files are

        with pa.input_stream(path, compression="detect") as packed:
            return packed.read(_HEAD)
    with open(path, "rb") as file:
        return file.read(_HEAD)


def _first_line(path: str) -> tuple[list[str], None]:
    """Keys of the first record: all would be known once the file is read."""
    return list(json.loads(_head(path).split(b"\n")[0])), None


def _row(path: str, kind: str, columns: int) -> int:
    """About how many bytes a row of a file takes: 8 a column, or the length of the first lines."""
    if kind == "arrow":
        return 8 * columns
    head = _head(path)
    return max(1, len(head) // max(1, head.count(b"\n")))


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


def too_large(files: PredictionFiles, scores: Sequence[str] | str | None = None) -> str | None:
    """Why files should not be read whole, as a clause; None where they fit or nobody can tell."""
    free = memory_available()
    needed = memory_needed(files, scores)
    if free is None or needed <= _SHARE * free:
        return None
    return f"the rows would need about {_size(needed)} of memory and {_size(free)} are free"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.0f} MB"
