"""Files that are read whole or refused, in one line that names the file and says what it lacks."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def lacking(wanted: Iterable[str], there: Iterable[str]) -> str:
    """The names that are not there, for a message; "" where none is missing."""
    have = set(there)
    return ", ".join(name for name in wanted if name not in have)


def table_of(path: Path, kind: str, columns: Sequence[str], stream: IO[bytes] | None = None) -> pa.Table:
    """A "parquet" or "CSV" table with these columns among others, of the file or of a stream out of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    try:
        table = (csv.read_csv if kind == "CSV" else pq.read_table)(path if stream is None else stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{str(path)!r} is not a whole {kind} file: {error}. Remove it and get it again.") from None
    if missing := lacking(columns, table.column_names):
        raise InputError(f"{str(path)!r} lacks the columns {missing}; it has {table.column_names}.")
    return table


def arrays_of(path: Path, *names: str) -> list[NDArray[Any]]:
    """These arrays of an .npz archive; whatever the readers raise for a broken one is one line that names it."""
    try:
        # Opened here, because np.load leaves its own file open where the archive is broken.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise InputError(f"{str(path)!r} must be an archive of the arrays {', '.join(names)}.")
            if missing := lacking(names, arrays.files):
                held = f"it lacks {missing} and has {sorted(arrays.files)}"
                raise InputError(f"{str(path)!r} must hold {', '.join(names)}; {held}.")
            return [arrays[name] for name in names]
    except InputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{str(path)!r} is not a whole .npz file: {error}. Remove it and get it again.") from None
