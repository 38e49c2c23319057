"""Rows on disk between two stages, column by column, read back by bucket or as they came.

pyarrow takes 0.3 s to load, so it is imported on use.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.distributed.engines.local.temporary import TemporaryFile
from uqeval.distributed.engines.pieces import CARRIED, MIXED, by_bucket
from uqeval.distributed.engines.protocol import Place, Table


@dataclass(frozen=True)
class _Written:
    """Rows that were written together, sorted by bucket."""

    offsets: tuple[int, ...]  # of each column in the file
    starts: NDArray[np.int64]  # (buckets + 1,) first row of each bucket


class Spill:
    """Rows in buckets; safe between threads."""

    def __init__(self, folder: str | None, buckets: int = 1) -> None:
        self.chunks: list[_Written] = []
        self.sizes = np.zeros(buckets, dtype=np.int64)  # rows of each bucket
        self._file = TemporaryFile(folder)
        self._lock = threading.Lock()
        self._kinds: dict[str, np.dtype[Any]] = {}

    @property
    def rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    def append(self, table: Table, bucket: NDArray[Any] | None = None) -> None:
        """Adds rows; their buckets may be left out where there is one."""
        if not len(table):
            return
        columns, starts = by_bucket(table, bucket, len(self.sizes))
        kinds = {name: column.dtype for name, column in columns.items()}
        with self._lock:
            self._kinds = self._kinds or kinds
        if kinds != self._kinds:
            raise InputError(MIXED)
        contents = [np.ascontiguousarray(column).view(np.uint8).data for column in columns.values()]
        written = _Written(tuple(map(self._file.append, contents)), starts)
        with self._lock:
            self.chunks.append(written)
            self.sizes += np.diff(starts)

    def bucket(self, bucket: int) -> Table:
        """All rows of a bucket."""
        return self._read([(one, int(one.starts[bucket]), int(one.starts[bucket + 1])) for one in self.chunks])

    def read(self, chunk: _Written, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, Table]]:
        """The rows of one `append`, all at once: they are those of a bucket, which has fitted before."""
        yield Place(CARRIED, 0), self._read([(chunk, 0, int(chunk.starts[-1]))])

    def _read(self, stretches: list[tuple[_Written, int, int]]) -> Table:
        import pyarrow as pa

        total = sum(stop - start for _, start, stop in stretches)
        columns = {}
        for j, (name, kind) in enumerate(self._kinds.items()):
            columns[name] = np.empty(total, dtype=kind)
            into, at = columns[name].view(np.uint8).data, 0
            for chunk, start, stop in stretches:
                size = (stop - start) * kind.itemsize
                self._file.read(into[at : at + size], chunk.offsets[j] + start * kind.itemsize)
                at += size
        return pa.table(columns)

    def close(self) -> None:
        """Frees the disk."""
        self._file.close()
        self.chunks.clear()
