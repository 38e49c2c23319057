"""How much at a time, and where: a limit on memory in bytes, how many rows fit into them, folders on disk."""

import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from uqeval._errors import InputError, reason_of

PIECE_ROWS = 1 << 19  # that a function gets at a time, at most
_ROW_BYTES = 200  # that finishing a bucket needs for each of its rows
_LEAST = 256 * 10**6
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_UNITS |= {"tib": 2**40, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_memory(limit: str | int) -> int:
    """Bytes from "2GB", "2G", "512MiB" or a number."""
    if isinstance(limit, int) and not isinstance(limit, bool):
        size = limit
    else:
        parsed = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(limit))
        if parsed is None or parsed[2].lower() not in _UNITS:
            raise InputError(f'`memory_limit` is {limit!r}. Write it as "2GB" or "512MB", or as a number of bytes.')
        size = int(float(parsed[1]) * _UNITS[parsed[2].lower()])
    if size < _LEAST:
        raise InputError(f"`memory_limit` is {limit!r}. Python and Arrow alone need {_LEAST // 10**6}MB; give more.")
    return size


def rows_in(size: int) -> int:
    """Rows of a bucket that these bytes are enough for."""
    return max(1000, size // _ROW_BYTES)


def piece_rows(size: int, columns: Sequence[str]) -> int:
    """Rows of these columns that a task with so many bytes should get at a time."""
    return max(1024, min(PIECE_ROWS, size // 16 // (8 * max(1, len(columns)))))


def temporary_folder(own: ExitStack, prefix: str, spill: str | None) -> Path:
    """A folder that goes with `own`."""
    try:
        folder = tempfile.mkdtemp(prefix=prefix, dir=spill)
    except OSError as error:
        text = f"`spill` is {spill!r}, where no folder can be made ({reason_of(error)}). Name another."
        raise InputError(text) from None
    own.callback(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
