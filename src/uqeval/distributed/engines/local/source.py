"""Batches that can be had once, kept in a temporary file and read as files are.

pyarrow takes 0.3 s to load, so it is imported on use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from uqeval._check import Progress
from uqeval._errors import InputError, MissingExtra, reason_of
from uqeval.distributed.engines import pieces
from uqeval.distributed.engines.local.temporary import TemporaryFile
from uqeval.distributed.engines.protocol import Part, Place
from uqeval.distributed.engines.source import Chunk, Source

if TYPE_CHECKING:
    import pyarrow as pa


BATCH = 1 << 17  # rows that a query gives at a time


@contextmanager
def querying() -> Iterator[None]:
    """One line for whatever the engine of a query says."""
    try:
        yield
    except (InputError, MissingExtra, MemoryError):
        raise
    except Exception as error:  # every engine has kinds of its own
        raise InputError(f"The query of `frame` failed ({reason_of(error)}).") from error


class KeptBatches(Source):
    """The rows of a query, which runs once; `name` says whose query it is."""

    def __init__(
        self,
        batches: Iterable[pa.Table],
        *,
        name: str = "local",
        spill: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.chunks = []
        self._columns: list[dict[str, tuple[int, int]]] = []  # where each column of each chunk begins, and its bytes
        self._file = TemporaryFile(spill)
        row = 0
        try:
            for table in _joined(batches):
                row += self._append(table, row)
                if progress is not None:
                    progress("query", row, row)
            if not row:
                raise InputError("The query of `frame` gives no rows. Ranking needs at least 2.")
        except BaseException:
            self.close()
            raise
        self.parts = [Part(f"the {name} query", row)]

    def _append(self, table: pa.Table, row: int) -> int:
        """Writes rows, each column by itself, so that a pass reads only what it needs."""
        import pyarrow as pa

        plain = pa.table({name: _plain(table.column(name)) for name in table.column_names})
        if not self.chunks:
            self.schema = plain.schema
        for batch in plain.cast(self.schema).combine_chunks().to_batches():
            written = {}
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                data = pa.record_batch([column], [name]).serialize()
                written[name] = self._file.append(memoryview(data).cast("B")), data.size
            self.chunks.append(Chunk(0, len(self.chunks), row, len(batch)))
            self._columns.append(written)
            row += len(batch)
        return len(table)

    def read(self, chunk: Chunk, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, pa.Table]]:
        """The rows of a chunk, at most `most` at a time."""
        import pyarrow as pa

        where = self._columns[chunk.group or 0]
        table = {}
        for name in columns if columns is not None else where:
            start, size = where[name]
            data = bytearray(size)
            self._file.read(memoryview(data), start)
            schema = pa.schema([self.schema.field(name)])
            table[name] = pa.ipc.read_record_batch(pa.py_buffer(data), schema).column(0)
        return pieces.cut(pa.table(table), 0, most, chunk.row)

    def close(self) -> None:
        self._file.close()


def _joined(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Batches that are not too small: each costs a little to find again."""
    import pyarrow as pa

    given, waiting, rows = iter(batches), [], 0
    while True:
        with querying():
            table = next(given, None)
        if table is not None and len(table):
            waiting.append(table)
            rows += len(table)
        if waiting and (table is None or rows >= BATCH // 2):
            with querying():
                yield pa.concat_tables(waiting, promote_options="permissive")
            waiting, rows = [], 0
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
