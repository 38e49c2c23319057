"""Batches that can be had once, kept in a temporary file without a name and read as the local engine reads files."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from uqeval._check import Progress
from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.engines.local.engine import LocalEngine, parse_memory
from uqeval.distributed.engines.local.files import Chunk
from uqeval.distributed.engines.protocol import Part, Place

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH", "FrameEngine", "querying"]

BATCH = 1 << 17  # rows that a query gives at a time


@contextmanager
def querying() -> Iterator[None]:
    """One line for whatever the engine of a query says."""
    try:
        yield
    except (InputError, MissingExtra, MemoryError):
        raise
    except Exception as error:  # every engine has kinds of its own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")
        raise InputError(f"The query of `frame` failed ({reason}).") from error


class FrameEngine(LocalEngine):
    """The local engine on batches that can be had once."""

    def __init__(
        self,
        batches: Iterable[pa.Table],
        *,
        name: str = "local",
        memory_limit: str | int = "2GB",
        spill: str | None = None,
        progress: Progress | None = None,
        workers: int | None = None,
    ) -> None:
        memory = parse_memory(memory_limit)  # before the query runs
        self._kept = Kept(batches, name, spill, progress)
        super().__init__(self._kept, memory_limit=memory, spill=spill, progress=progress, workers=workers)

    def close(self) -> None:
        super().close()
        self._kept.close()


class Kept:
    """Batches written once, to be read in pieces, by several threads, as `Files` are."""

    def __init__(self, batches: Iterable[pa.Table], name: str, folder: str | None, progress: Progress | None) -> None:
        self.chunks: list[Chunk] = []
        self._folder = folder or tempfile.gettempdir()
        with self._writing():
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        try:
            self.schema = self._write(batches, progress)
        except BaseException:
            self.close()
            raise
        self.rows: int | None = sum(chunk.rows or 0 for chunk in self.chunks)
        self.parts = [Part(f"the {name} query", self.rows)]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"Temporary rows could not be written to {self._folder} ({error.strerror or error}). "
                f"Free some space, or name a folder on a larger disk with spill=."
            ) from None

    def _write(self, batches: Iterable[pa.Table], progress: Progress | None) -> pa.Schema:
        import pyarrow as pa

        writer, row = None, 0
        schema: pa.Schema = None
        for table in _joined(batches):
            plain = pa.table({name: _plain(table.column(name)) for name in table.column_names})
            if writer is None:
                schema = plain.schema
                writer = pa.ipc.new_file(self._file, schema)
            with self._writing():
                for batch in plain.cast(schema).combine_chunks().to_batches():
                    writer.write_batch(batch)
                    self.chunks.append(Chunk(0, len(self.chunks), row, len(batch)))
                    row += len(batch)
            if progress is not None:
                progress("query", row, row)
        if writer is None:
            raise InputError("The query of `frame` gives no rows. Ranking needs at least 2.")
        with self._writing():
            writer.close()
            self._file.flush()
        return schema

    def _reader(self, columns: Sequence[str] | None) -> pa.ipc.RecordBatchFileReader:
        import pyarrow as pa

        fields = None if columns is None else sorted(self.schema.get_field_index(name) for name in columns)
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(pa.PythonFile(_At(self._file.fileno()), mode="r"), options=options)

    def read(self, chunk: Chunk, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, pa.Table]]:
        """The rows of a chunk, at most `most` at a time."""
        import pyarrow as pa

        table = pa.Table.from_batches([self._reader(columns).get_batch(chunk.group)])
        if columns is not None:
            table = table.select(list(columns))
        for at in range(0, len(table), most):
            yield Place(0, chunk.row + at), table.slice(at, most)

    def close(self) -> None:
        """Frees the disk."""
        self._file.close()


class _At(io.RawIOBase):
    """Reads an open file from a place of its own, so that threads do not disturb each other."""

    def __init__(self, handle: int) -> None:
        self._handle, self._at = handle, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self._at, os.fstat(self._handle).st_size)[whence]
        self._at = start + offset
        return self._at

    def readinto(self, into: Any) -> int:
        done = os.preadv(self._handle, [into], self._at)
        self._at += done
        return done


def _joined(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Batches that are not too small: each costs a little to find again."""
    import pyarrow as pa

    given, kept, rows = iter(batches), [], 0
    while True:
        with querying():
            table = next(given, None)
        if table is not None and len(table):
            kept.append(table)
            rows += len(table)
        if kept and (table is None or rows >= BATCH // 2):
            with querying():
                yield pa.concat_tables(kept, promote_options="permissive")
            kept, rows = [], 0
        if table is None:
            return


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values behind a dictionary, which may differ from batch to batch, and behind views."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if str(kind) in ("string_view", "utf8_view"):
        return column.cast(pa.large_string())
    return column
