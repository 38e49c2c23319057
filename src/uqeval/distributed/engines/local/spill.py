"""Rows on disk between two stages: one file without a name, which the system frees whatever happens to the process."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spill"]


@dataclass(frozen=True)
class _Chunk:
    """Rows that were written together, bucket after bucket, column after column."""

    offsets: tuple[int, ...]  # of each column in the file
    bounds: NDArray[np.int64]  # (buckets + 1,) first row of each bucket


class Spill:
    """Appends rows in chunks, reads them back by bucket or by chunk; safe between threads."""

    def __init__(self, folder: str | None, buckets: int = 1) -> None:
        self.buckets = buckets
        self._chunks: list[_Chunk] = []
        self._names: tuple[str, ...] = ()
        self._kinds: tuple[np.dtype[Any], ...] = ()
        self._lock = threading.Lock()
        self._end = 0
        self.rows = np.zeros(buckets, dtype=np.int64)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="uqeval-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed(folder, error) from None
        self._folder = folder

    @property
    def nbytes(self) -> int:
        return self._end

    def append(self, table: pa.Table, bucket: NDArray[Any] | None = None) -> None:
        """Adds rows; sorted by bucket where there are several."""
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        if not len(table):
            return
        if bucket is None:
            counts = np.array([len(table)], dtype=np.int64)
        else:
            small = bucket.astype(np.uint16)
            counts = np.bincount(small, minlength=self.buckets)
            order = np.argsort(small, kind="stable")  # a radix sort for 16 bits
            columns = {name: column[order] for name, column in columns.items()}
        sizes = [column.nbytes for column in columns.values()]
        with self._lock:
            if not self._names:
                self._names = tuple(columns)
                self._kinds = tuple(column.dtype for column in columns.values())
            start = self._end
            self._end += sum(sizes)
            offsets = tuple(int(x) for x in start + np.cumsum([0, *sizes[:-1]]))
            self._chunks.append(_Chunk(offsets, np.concatenate([[0], np.cumsum(counts)])))
            self.rows += counts if bucket is not None else len(table)
        if tuple(column.dtype for column in columns.values()) != self._kinds:
            raise InputError("A column has different types in different files. Give it one type.")
        for offset, column in zip(offsets, columns.values(), strict=True):
            self._write(np.ascontiguousarray(column).view(np.uint8).data, offset)

    def _write(self, data: memoryview, offset: int) -> None:
        try:
            while len(data):
                done = self._write_at(data, offset)
                data, offset = data[done:], offset + done
        except OSError as error:
            raise self._failed(self._folder, error) from None

    def _write_at(self, data: memoryview, offset: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self._file.fileno(), data, offset)
        with self._lock:  # Windows
            self._file.seek(offset)
            return int(self._file.write(data) or 0)

    def _read_at(self, into: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], offset)
        with self._lock:
            self._file.seek(offset)
            return int(self._file.readinto(into) or 0)

    @staticmethod
    def _failed(folder: str | None, error: OSError) -> InputError:
        where = folder or tempfile.gettempdir()
        return InputError(
            f"Temporary rows could not be written to {where} ({error.strerror or error}). "
            f"Free some space, or name a folder on a larger disk with spill=."
        )

    def bucket(self, bucket: int) -> pa.Table:
        """All rows of a bucket."""
        return self._read([(chunk, int(chunk.bounds[bucket]), int(chunk.bounds[bucket + 1])) for chunk in self._chunks])

    def chunks(self) -> int:
        return len(self._chunks)

    def chunk(self, k: int) -> pa.Table:
        """The rows of one `append`."""
        return self._read([(self._chunks[k], 0, int(self._chunks[k].bounds[-1]))])

    def _read(self, pieces: list[tuple[_Chunk, int, int]]) -> pa.Table:
        import pyarrow as pa

        total = sum(stop - start for _, start, stop in pieces)
        columns = {}
        for j, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True)):
            column = np.empty(total, dtype=kind)
            into, at = column.view(np.uint8).data, 0
            for chunk, start, stop in pieces:
                size = (stop - start) * kind.itemsize
                offset = chunk.offsets[j] + start * kind.itemsize
                while size:
                    done = self._read_at(into[at : at + size], offset)
                    if not done:
                        raise InputError("Temporary rows are gone. Was the folder emptied while uqeval ran?")
                    at, size, offset = at + done, size - done, offset + done
            columns[name] = column
        return pa.table(columns)

    def close(self) -> None:
        """Frees the disk."""
        self._file.close()
        self._chunks.clear()
