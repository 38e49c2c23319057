"""Tables on disk, piece by piece: Parquet by row group, Arrow by batches, the others from front to back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Part, Place
from uqeval.inputs.columns import listed, repeated
from uqeval.inputs.files import expand, format_of, is_number, reading

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Chunk", "Files"]

_TOGETHER = 1 << 17  # rows of small batches that are read in one go


@dataclass(frozen=True)
class Chunk:
    """What one thread reads at a time: a row group, some batches, or a whole file of another kind."""

    part: int
    group: int | None
    row: int  # the first, inside the part
    rows: int | None
    stop: int | None = None  # behind the last batch


class Stamp(NamedTuple):
    """What changes when a file does. Another machine may number the same file in its own way."""

    size: int
    time: int  # ns
    inode: int
    host: str


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino, socket.gethostname())


@lru_cache(maxsize=8)
def _footer(path: str, stamp: Stamp) -> Any:
    """What Parquet says of a file: long where there are many row groups, so it is not read for each of them."""
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


def _open_batches(path: str, fields: Sequence[int] | None = None) -> Any:
    """An Arrow file that has an index of its batches; None where it is a stream."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else list(fields), use_threads=False)
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_file(source, options=options)
    except pa.ArrowInvalid:
        source.close()
        return None


@lru_cache(maxsize=8)
def _arrow_schema(path: str, stamp: Stamp) -> Any:
    with _open_batches(path) as file:
        return file.schema


class Files:
    """One or more files. `texts` are columns that CSV must not read as numbers.

    A column that some file lacks is in `schema`, but cannot be read.
    """

    def __init__(self, source: Any, texts: Sequence[str] = ()) -> None:
        if source is None:
            raise InputError("`source` is None. Pass file names, or the engine that has the rows.")
        self.paths = expand(source)
        self.kinds = [format_of(path) for path in self.paths]
        if "npz" in self.kinds:
            raise InputError(f"{self.paths[self.kinds.index('npz')]}: NPZ files are read whole. Use uqeval.evaluate.")
        self.texts = tuple(texts)
        self.stamps = [_stamp(path) for path in self.paths]
        self.sizes = [stamp.size for stamp in self.stamps]
        self.lacking: dict[str, tuple[str, str]] = {}  # column: a file that lacks it, and one that does not
        self.chunks: list[Chunk] = []
        self.parts: list[Part] = []
        self.schema = self._open(0)
        for k in range(1, len(self.paths)):
            self.schema = self._joined(k, self._open(k))

    def _joined(self, k: int, other: pa.Schema) -> pa.Schema:
        """Columns of all files so far: numbers of several kinds become float64, anything else text."""
        import pyarrow as pa

        fields = []
        for field in self.schema:
            if field.name not in other.names:
                self.lacking.setdefault(field.name, (self.paths[k], self.paths[0]))
            elif (kind := other.field(field.name).type) != field.type:
                kinds = [one for one in (field.type, kind) if not pa.types.is_null(one)]  # a file without rows
                text = pa.float64() if all(map(is_number, kinds)) else pa.large_string()
                field = field.with_type(text if len(kinds) > 1 else kinds[0])
            fields.append(field)
        for field in other:
            if field.name not in self.schema.names:
                self.lacking.setdefault(field.name, (self.paths[0], self.paths[k]))
                fields.append(field)
        return pa.schema(fields)

    @property
    def rows(self) -> int | None:
        """All rows, where the files tell."""
        known = [part.rows for part in self.parts if part.rows is not None]
        return sum(known) if len(known) == len(self.parts) else None

    def _open(self, k: int) -> pa.Schema:
        """The columns of a file; notes its rows."""
        path = self.paths[k]
        with reading(path):
            if self.kinds[k] == "parquet":
                footer = _footer(path, self.stamps[k])
                row = 0
                for group in range(footer.num_row_groups):
                    count = footer.row_group(group).num_rows
                    self.chunks.append(Chunk(k, group, row, count))
                    row += count
                self.parts.append(Part(path, row))
                schema = footer.schema.to_arrow_schema()
            elif self.kinds[k] == "arrow" and (file := _open_batches(path)) is not None:
                with file:
                    schema = file.schema
                self._index_batches(k, schema)
            else:
                self.chunks.append(Chunk(k, None, 0, None))
                self.parts.append(Part(path))
                with self._stream(k, None) as reader:
                    schema = reader.schema
                schema = self._loose(schema) if self.kinds[k] in ("csv", "tsv", "jsonl") else schema
        if twice := repeated(schema.names):
            raise InputError(f"{path}: duplicated columns: {listed(map(repr, twice))}. Rename or drop one of each.")
        return schema

    def _index_batches(self, k: int, schema: pa.Schema) -> None:
        """Notes the batches of an Arrow file, small ones together."""
        import pyarrow as pa

        path, row, rows, start = self.paths[k], 0, 0, 0
        narrow = [i for i, field in enumerate(schema) if pa.types.is_primitive(field.type)] or [0]
        file = _open_batches(path, narrow[:1])
        assert file is not None
        with file:
            last = file.num_record_batches
            for batch in range(last):
                rows += file.get_batch(batch).num_rows
                if rows >= _TOGETHER or batch == last - 1:
                    self.chunks.append(Chunk(k, start, row, rows, batch + 1))
                    row, rows, start = row + rows, 0, batch + 1
        self.parts.append(Part(path, row))

    def _loose(self, schema: pa.Schema) -> pa.Schema:
        """The first lines told the types: a column of whole numbers may have fractions further down."""
        import pyarrow as pa

        return pa.schema(
            field.with_type(pa.float64()) if pa.types.is_integer(field.type) and field.name not in self.texts else field
            for field in schema
        )

    def _stream(self, k: int, columns: Sequence[str] | None) -> Any:
        """A reader that gives batches."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
        from pyarrow import json as arrow_json

        path, kind = self.paths[k], self.kinds[k]
        if kind == "arrow":
            return pa.ipc.open_stream(pa.memory_map(path))
        if kind == "jsonl":
            options = arrow_json.ReadOptions(block_size=1 << 24)
            whole = None if columns is None else arrow_json.ParseOptions(explicit_schema=self.schema)
            return arrow_json.open_json(path, read_options=options, parse_options=whole)
        parse = arrow_csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
        block = arrow_csv.ReadOptions(block_size=1 << 22)
        types: dict[str, Any] = {name: pa.string() for name in self.texts}
        for name in columns or ():
            types.setdefault(name, self.schema.field(name).type)
        convert = arrow_csv.ConvertOptions(include_columns=list(columns or []), column_types=types)
        return arrow_csv.open_csv(path, read_options=block, parse_options=parse, convert_options=convert)

    def read(self, chunk: Chunk, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, pa.Table]]:
        """The rows of a chunk, at most `most` at a time."""
        import pyarrow as pa

        path = self.paths[chunk.part]
        if columns is None:
            columns = [name for name in self.schema.names if name not in self.lacking]
        for name in columns:
            if name in self.lacking:
                here, there = self.lacking[name]
                raise InputError(f"{here}: lacks {name}, unlike {there}. Files are joined by column.")
        row = chunk.row
        batches = self._batches(chunk, columns, most)
        while True:
            with reading(path):
                self._check(chunk.part)
                batch = self._next(batches, chunk.part)
                self._check(chunk.part)
            if batch is None:
                return
            for at in range(0, len(batch), most):
                piece = self._cast(path, pa.Table.from_batches([batch.slice(at, most)]))
                yield Place(chunk.part, row), piece
                row += len(piece)

    def _next(self, batches: Iterator[pa.RecordBatch], k: int) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except Exception:
            self._check(k)  # the reason, where the file is another one by now
            raise

    def _cast(self, path: str, piece: pa.Table) -> pa.Table:
        """With the types that all files share."""
        for k, field in enumerate(piece.schema):
            kind = self.schema.field(field.name).type
            if field.type != kind:
                with reading(path):
                    piece = piece.set_column(k, field.name, piece.column(k).cast(kind))
        return piece

    def _check(self, k: int) -> None:
        """The file is as it was when it was opened."""
        now, then = _stamp(self.paths[k]), self.stamps[k]
        same = now[:2] == then[:2] if now.host != then.host else now == then
        if not same:
            raise InputError(f"{self.paths[k]}: changed while it was read. No result is given.")

    def _batches(self, chunk: Chunk, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        path = self.paths[chunk.part]
        names = list(columns)
        if chunk.group is not None and chunk.stop is not None:
            schema = _arrow_schema(path, self.stamps[chunk.part])
            file = _open_batches(path, sorted(schema.get_field_index(name) for name in names))
            assert file is not None
            with file:
                for k in range(chunk.group, chunk.stop):
                    yield file.get_batch(k).select(names)
            return
        if chunk.group is not None:
            footer = _footer(path, self.stamps[chunk.part])
            with pq.ParquetFile(path, metadata=footer, pre_buffer=False, buffer_size=1 << 20) as file:
                groups = [chunk.group]
                yield from file.iter_batches(batch_size=most, row_groups=groups, columns=names, use_threads=False)
            return
        with self._stream(chunk.part, columns) as reader:
            for batch in reader:
                yield batch.select(names)
