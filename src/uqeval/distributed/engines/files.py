"""Tables on disk, chunk by chunk: Parquet by row group, Arrow by batches, the others from front to back.

Any thread or process can read any chunk, as long as the files stay as they were. pyarrow takes 0.3 s to load, so it is
imported on use.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from uqeval._errors import InputError
from uqeval.distributed.engines import pieces
from uqeval.distributed.engines.protocol import Part, Place
from uqeval.distributed.engines.source import Chunk, Source
from uqeval.inputs.columns import listed, repeated
from uqeval.inputs.files import is_number
from uqeval.inputs.paths import expand, format_of, reading, sound
from uqeval.inputs.texts import Watched, json_rows

if TYPE_CHECKING:
    import pyarrow as pa


_FIRST = 10_000  # lines that tell the types of JSON
_TOGETHER = 1 << 17  # rows of small batches that are read in one go


class Stamp(NamedTuple):
    """What changes when a file does. Another machine may number the same file in its own way."""

    size: int
    time: int  # ns
    inode: int
    host: str


def _stamp(path: str) -> Stamp:
    now = os.stat(path)
    return Stamp(now.st_size, now.st_mtime_ns, now.st_ino, socket.gethostname())


@lru_cache(maxsize=8)
def _footer(path: str, stamp: Stamp) -> Any:
    """What Parquet says of a file: long where there are many row groups, so it is not read for each of them."""
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


def _open_batches(path: str, fields: Sequence[int] | None = None) -> Any:
    """An Arrow file that has an index of its batches; None where it is a stream."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else sorted(fields), use_threads=False)
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_file(source, options=options)
    except pa.ArrowInvalid:
        source.close()
        return None


class Files(Source):
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
        self.lacking: dict[str, tuple[str, str]] = {}  # column: a file that lacks it, and one that does not
        self.chunks, self.parts = [], []
        self.schemas = [self._open(k) for k in range(len(self.paths))]
        self.schema = self.schemas[0]
        for k in range(1, len(self.paths)):
            self.schema = self._joined(k)

    def _joined(self, k: int) -> pa.Schema:
        """Columns of all files so far: numbers of several kinds become float64, anything else text."""
        import pyarrow as pa

        fields, other = [], self.schemas[k]
        for field in self.schema:
            if field.name not in other.names:
                self.lacking.setdefault(field.name, (self.paths[k], self.paths[0]))
            elif (kind := other.field(field.name).type) != field.type:
                kinds = [one for one in (field.type, kind) if not pa.types.is_null(one)]  # a file without rows
                common = pa.float64() if all(map(is_number, kinds)) else pa.large_string()
                field = field.with_type(common if len(kinds) > 1 else kinds[0])
            fields.append(field)
        for field in other:
            if field.name not in self.schema.names:
                self.lacking.setdefault(field.name, (self.paths[0], self.paths[k]))
                fields.append(field)
        return pa.schema(fields)

    # ---- what there is ----

    def _open(self, k: int) -> pa.Schema:
        """The columns of a file; notes its chunks and rows."""
        path, kind = self.paths[k], self.kinds[k]
        with reading(path):
            if kind == "parquet":
                footer = _footer(path, self.stamps[k])
                schema = footer.schema.to_arrow_schema()
                sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
                self._add_part(k, [(group, None, rows) for group, rows in enumerate(sizes)])
            elif kind == "arrow" and (file := _open_batches(path)) is not None:
                with file:
                    schema = file.schema
                self._add_part(k, _batch_runs(path, schema))
            else:
                schema = self._schema_of_first(k)
                self.chunks.append(Chunk(k))
                self.parts.append(Part(path))
            names = schema.names  # Arrow may hold what is no text
        if twice := repeated(names):
            raise InputError(f"{path}: duplicated columns: {listed(map(repr, twice))}. Rename or drop one of each.")
        return schema

    def _schema_of_first(self, k: int) -> pa.Schema:
        """The columns that the first lines or batches show."""
        import pyarrow as pa

        kind = self.kinds[k]
        try:
            with self._stream(k, None) as reader:
                return reader.schema if kind == "arrow" else self._loose(reader.schema)
        except pa.ArrowInvalid:
            if kind != "jsonl":
                raise
        return self._loose(_json_schema(self.paths[k]))

    def _add_part(self, k: int, chunks: list[tuple[int, int | None, int]]) -> None:
        """Notes the (group, stop, rows) of a file."""
        row = 0
        for group, stop, rows in chunks:
            self.chunks.append(Chunk(k, group, row, rows, stop))
            row += rows
        self.parts.append(Part(self.paths[k], row))

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
            parse = None
            if columns is not None:  # nothing is parsed that is not needed
                needed = pa.schema([self.schema.field(name) for name in columns])
                parse = arrow_json.ParseOptions(explicit_schema=needed, unexpected_field_behavior="ignore")
            return arrow_json.open_json(Watched(path, json=True), read_options=options, parse_options=parse)
        parse = arrow_csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
        block = arrow_csv.ReadOptions(block_size=max(1 << 22, len(columns or ()) << 12))  # many rows of many columns
        types = {name: self.schema.field(name).type for name in columns or ()} | dict.fromkeys(self.texts, pa.string())
        convert = arrow_csv.ConvertOptions(include_columns=list(columns or []), column_types=types)
        return arrow_csv.open_csv(path, read_options=block, parse_options=parse, convert_options=convert)

    # ---- rows ----

    def read(self, chunk: Chunk, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, pa.Table]]:
        """The rows of a chunk, at most `most` at a time."""
        import pyarrow as pa

        path, row = self.paths[chunk.part], chunk.row
        if columns is None:
            columns = [name for name in self.schema.names if name not in self.lacking]
        for name in columns:
            if name in self.lacking:
                here, there = self.lacking[name]
                raise InputError(f"{here}: lacks {name}, unlike {there}. Files are joined by column.")
        batches = self._batches(chunk, list(columns), most)
        while True:
            with reading(path):
                try:
                    batch = next(batches, None)
                finally:
                    self._check(chunk.part)  # comes first, where the file is another one by now and cannot be read
                if batch is None:
                    return
                table = self._cast(pa.Table.from_batches([sound(batch)]))
            yield from pieces.cut(table, chunk.part, most, row)
            row += len(table)

    def _cast(self, table: pa.Table) -> pa.Table:
        """With the types that all files share."""
        for k, field in enumerate(table.schema):
            kind = self.schema.field(field.name).type
            if field.type != kind:
                table = table.set_column(k, field.name, table.column(k).cast(kind))
        return table

    def _check(self, k: int) -> None:
        """The file is as it was when it was opened."""
        now, then = _stamp(self.paths[k]), self.stamps[k]
        same = now[:2] == then[:2] if now.host != then.host else now == then
        if not same:
            raise InputError(f"{self.paths[k]}: changed while it was read. No result is given.")

    def _batches(self, chunk: Chunk, names: list[str], most: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        path = self.paths[chunk.part]
        if chunk.stop is not None:
            schema = self.schemas[chunk.part]
            with _open_batches(path, [schema.get_field_index(name) for name in names]) as file:
                for k in range(chunk.group or 0, chunk.stop):
                    yield file.get_batch(k).select(names)
        elif chunk.group is not None:
            footer, groups = _footer(path, self.stamps[chunk.part]), [chunk.group]
            with pq.ParquetFile(path, metadata=footer, pre_buffer=False, buffer_size=1 << 20) as file:
                yield from file.iter_batches(batch_size=most, row_groups=groups, columns=names, use_threads=False)
        else:
            with self._stream(chunk.part, names) as reader:
                yield from (batch.select(names) for batch in reader)


def _json_schema(path: str) -> pa.Schema:
    """Column by column: one of several types, a text here, is an error only where it is needed."""
    import pyarrow as pa

    rows = list(islice(json_rows(path), _FIRST))
    fields = []
    for name in dict.fromkeys(key for row in rows for key in row):
        try:
            kind = pa.array([row.get(name) for row in rows]).type
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            kind = pa.string()
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _batch_runs(path: str, schema: pa.Schema) -> list[tuple[int, int | None, int]]:
    """(First batch, the one behind the last, rows) of an Arrow file, small batches together."""
    import pyarrow as pa

    runs: list[tuple[int, int | None, int]] = []
    start = rows = 0
    # Counting rows needs a column; one of numbers is the cheapest to open.
    narrow = [k for k, field in enumerate(schema) if pa.types.is_primitive(field.type)] or [0]
    with _open_batches(path, narrow[:1]) as file:
        for k in range(file.num_record_batches):
            rows += file.get_batch(k).num_rows
            if rows >= _TOGETHER or k == file.num_record_batches - 1:
                runs.append((start, k + 1, rows))
                start, rows = k + 1, 0
    return runs
