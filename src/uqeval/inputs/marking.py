"""One more column for every row: of a frame, the same kind out; of a file, read and written piece by piece.

What the column holds is told by a function of tables. A text file keeps its texts: no number is written anew. pyarrow
and narwhals are imported on use.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval._files import check_target, whole_file
from uqeval.inputs.columns import Columns, repeated
from uqeval.inputs.paths import format_of, is_packed, named, reading
from uqeval.inputs.texts import csv_dialect

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 17  # at a time
_BYTES = 1 << 23  # of a text file
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


class Marker(Protocol):
    """What tells the column: the columns that it needs, and a function of them."""

    @property
    def needed(self) -> Sequence[str]:
        """Their names."""
        ...

    def __call__(self, table: pa.Table) -> NDArray[np.bool_]:
        """True or False for each row."""
        ...


MakeMarker = Callable[[Sequence[str]], Marker]  # from the names of the columns


class Marked(NamedTuple):
    """Rows that were written, and how many of them are True."""

    rows: int
    true: int


def refuse_column(column: str, names: Sequence[str]) -> None:
    """The new column has a name of its own."""
    if twice := repeated(names):
        raise InputError(f"Duplicated column names: {', '.join(map(repr, twice))}. Rename or drop one of each.")
    if column in names:
        raise InputError(f"There is a column `{column}` already. Name the new one: column= (--column NAME).")


# ---- frames -----------------------------------------------------------------------------------------------------


def mark_frame(frame: Any, column: str, make: MakeMarker) -> Any:
    """The frame in memory with the column, of the same kind."""
    import narwhals as nw

    rows = frame if isinstance(frame, nw.DataFrame) else nw.from_native(frame, eager_only=True)
    refuse_column(column, rows.columns)
    marker = make(rows.columns)
    values = marker(rows.select(*marker.needed).to_arrow())
    marks = nw.new_series(column, values.tolist(), nw.Boolean, backend=rows.implementation)
    return rows.with_columns(marks).to_native()


def lazy_frame(frame: Any) -> Any:
    """The frame in narwhals' words where it is lazy, else None; another thing is refused."""
    import narwhals as nw

    try:
        found = nw.from_native(frame)
    except TypeError:
        raise InputError(
            f"`frame` is a {type(frame).__name__}. Pass a pandas, Polars or Arrow frame, or a lazy one of those that "
            f"narwhals knows."
        ) from None
    return found if isinstance(found, nw.LazyFrame) else None


def mark_lazy(query: Any, column: str, score: str, value: float | None) -> Any:
    """The query with score ≤ value; what is missing, or all where there is no value, is False."""
    import narwhals as nw

    refuse_column(column, query.collect_schema().names())
    inside = nw.lit(False) if value is None else (nw.col(score) <= value).fill_null(False)
    if value is not None and query.collect_schema()[score].is_float():
        inside = inside & ~nw.col(score).is_nan().fill_null(True)
    return query.with_columns(inside.alias(column)).to_native()


# ---- files ------------------------------------------------------------------------------------------------------


def mark_file(path: str, out: str | os.PathLike[str], column: str, make: MakeMarker, options: Columns) -> Marked:
    """The file with the column, in the same format, whole or not at all."""
    check_target(out, "`out`")
    kind = format_of(path)
    if kind == "npz":
        raise InputError(f"{path}: an NPZ file holds arrays and no rows. Use Threshold.accept on them.")
    if (other := format_of(os.fspath(out))) != kind:
        raise InputError(f"`out` is {os.fspath(out)!r}, which is {other}, but {path} is {kind}. Keep the format.")
    with named(path), reading(path), ExitStack() as stack:
        source = _SOURCES[kind](path, options, stack)
        refuse_column(column, source.names)
        marker = make(source.names)
        part = stack.enter_context(whole_file(out, "`out`"))
        with source.writer(
            part, column, _CODECS.get(Path(out).suffix.lower()) if is_packed(os.fspath(out)) else None
        ) as write:
            rows = true = 0
            for table, piece in source.pieces(marker.needed):
                try:
                    marks = marker(table)
                except InputError as error:
                    raise InputError(f"in the rows from {rows} on: {error}") from None
                write(piece, marks)
                rows, true = rows + len(marks), true + int(np.count_nonzero(marks))
    return Marked(rows, true)


class _Source(NamedTuple):
    """An open file: its columns; pieces of it, as the columns that are needed and as what is written; the writer."""

    names: list[str]
    pieces: Callable[[Sequence[str]], Iterator[tuple[pa.Table, Any]]]
    writer: Callable[[Path, str, str | None], Any]


def _parquet(path: str, options: Columns, stack: ExitStack) -> _Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = stack.enter_context(pq.ParquetFile(path))
    groups = file.metadata.num_row_groups
    codec = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
        for batch in file.iter_batches(batch_size=_ROWS):
            table = pa.Table.from_batches([batch])
            yield table.select(list(needed)), table

    @contextmanager
    def writer(part: Path, column: str, _: str | None) -> Iterator[Any]:
        schema = file.schema_arrow.append(pa.field(column, pa.bool_()))
        codecs = {"UNCOMPRESSED": "none"}.get(codec, codec.lower())
        # Floats hardly repeat: to look for it takes half of the time.
        repeat = [field.name for field in schema if not pa.types.is_floating(field.type)]
        with pq.ParquetWriter(part, schema, compression=codecs, use_dictionary=repeat) as out:
            yield lambda table, marks: out.write_table(_with(table, column, marks, schema))

    return _Source(list(file.schema_arrow.names), pieces, writer)


def _arrow(path: str, options: Columns, stack: ExitStack) -> _Source:
    """The file form, or the stream form, as it came."""
    import pyarrow as pa

    source = stack.enter_context(pa.memory_map(path))
    try:
        file = pa.ipc.open_file(source)
        batches, new = (file.get_batch(k) for k in range(file.num_record_batches)), pa.ipc.new_file
    except pa.ArrowInvalid:
        source.seek(0)
        file = pa.ipc.open_stream(source)
        batches, new = iter(file), pa.ipc.new_stream
    schema = file.schema

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            yield table.select(list(needed)), table

    @contextmanager
    def writer(part: Path, column: str, _: str | None) -> Iterator[Any]:
        longer = schema.append(pa.field(column, pa.bool_()))
        with pa.OSFile(str(part), "wb") as sink, new(sink, longer) as out:
            yield lambda table, marks: out.write_table(_with(table, column, marks, longer))

    return _Source(list(schema.names), pieces, writer)


def _with(table: pa.Table, column: str, marks: NDArray[np.bool_], schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return table.append_column(column, pa.array(marks)).replace_schema_metadata(schema.metadata)


def _csv(path: str, options: Columns, stack: ExitStack) -> _Source:
    """Each record stays as it is, but for one more cell: 007 and 1.50 are no numbers to write anew."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    dialect = csv_dialect(path, options, "\t" if format_of(path) == "tsv" else ",")
    comma, letters = dialect.delimiter, dialect.encoding
    file = _lines(path, "utf-8-sig" if letters == "utf-8" else letters, stack)
    records = _records(file)
    head = next(record for record in records if record.strip())
    parse = arrow_csv.ParseOptions(delimiter=comma, newlines_in_values=True)

    def number(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        clean = pc.utf8_trim_whitespace(texts)
        if dialect.decimal != ".":
            clean = pc.replace_substring(clean, dialect.decimal, ".")
        missing = pc.or_(pc.equal(clean, ""), pc.equal(pc.utf8_lower(clean), "nan"))
        return pc.if_else(missing, pa.scalar(None, pa.string()), clean).cast(pa.float64())

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, list[str]]]:
        convert = arrow_csv.ConvertOptions(include_columns=needed, column_types=dict.fromkeys(needed, pa.string()))
        for block in _blocks(records):
            text = "".join(block).encode()
            whole = arrow_csv.ReadOptions(column_names=dialect.names, block_size=len(text) + 1)
            table = arrow_csv.read_csv(
                io.BytesIO(text), read_options=whole, parse_options=parse, convert_options=convert
            )
            if len(table) != len(block):
                raise InputError("quotes do not pair up, so that rows cannot be told apart. Mend the file.")
            yield pa.table({name: number(table.column(name)) for name in needed}), block

    @contextmanager
    def writer(part: Path, column: str, codec: str | None) -> Iterator[Any]:
        title = io.StringIO()
        csv.writer(title, delimiter=comma, lineterminator="").writerow([column])

        def write(block: list[str], marks: NDArray[np.bool_]) -> None:
            ends = {mark: f"{comma}{json.dumps(mark)}\n" for mark in (True, False)}
            sink.write(
                "".join(_bare(row) + ends[mark] for row, mark in zip(block, marks.tolist(), strict=True)).encode(
                    letters
                )
            )

        with pa.output_stream(str(part), compression=codec) as sink:
            sink.write(f"{_bare(head)}{comma}{title.getvalue()}\n".encode(letters))
            yield write

    return _Source(dialect.names, pieces, writer)


def _lines(path: str, letters: str, stack: ExitStack) -> Iterator[str]:
    """Of a text file, which may be compressed."""
    import pyarrow as pa

    source = stack.enter_context(pa.input_stream(path, compression="detect"))
    return io.TextIOWrapper(source, letters, newline="\n")


def _records(lines: Iterator[str]) -> Iterator[str]:
    """A quoted text may hold line breaks: a record ends where its quotes pair up."""
    kept = ""
    for line in lines:
        if not kept and '"' not in line:
            yield line
            continue
        kept += line
        if kept.count('"') % 2 == 0:
            yield kept
            kept = ""
    if kept:
        yield kept


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Some of them at a time, without blank ones."""
    block, size = [], 0
    for line in lines:
        if line.strip():
            block.append(line)
            size += len(line)
        if size > _BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _jsonl(path: str, options: Columns, stack: ExitStack) -> _Source:
    """Each line stays as it is, but for one more entry."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    lines = _lines(path, "utf-8-sig", stack)
    head = next((line for line in lines if line.strip()), "{}")
    first = json.loads(head)
    if not isinstance(first, dict):
        raise InputError('the first line is no record, as {"score_mine": 0.3}.')

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, list[str]]]:
        schema = pa.schema([(name, pa.float64()) for name in needed])
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        for block in _blocks(chain([head], lines)):
            text = "".join(block).encode()
            whole = arrow_json.ReadOptions(block_size=len(text) + 1)
            table = arrow_json.read_json(io.BytesIO(text), read_options=whole, parse_options=parse)
            if len(table) != len(block):
                raise InputError("a line holds no record, or several. JSON lines have one in each.")
            yield table, block

    @contextmanager
    def writer(part: Path, column: str, codec: str | None) -> Iterator[Any]:
        key = json.dumps(column)
        ends = {mark: f", {key}: {json.dumps(mark)}}}\n" for mark in (True, False)}

        def write(block: list[str], marks: NDArray[np.bool_]) -> None:
            if any(key in line and column in json.loads(line) for line in block):
                refuse_column(column, [column])
            sink.write(
                "".join(
                    line.rstrip()[:-1].rstrip() + ends[mark] for line, mark in zip(block, marks.tolist(), strict=True)
                ).encode()
            )

        with pa.output_stream(str(part), compression=codec) as sink:
            yield write

    return _Source(list(first), pieces, writer)


_SOURCES: dict[str, Callable[[str, Columns, ExitStack], _Source]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "csv": _csv,
    "tsv": _csv,
    "jsonl": _jsonl,
}
