"""One more column for every row: of a frame, the same kind out; of a file, read and written piece by piece.

What the column holds is told by a function of tables. A text file keeps its texts: no number is written anew. pyarrow
and narwhals are imported on use.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError, a_type
from uqeval._files import check_target, whole_file
from uqeval.inputs.columns import Columns, repeated
from uqeval.inputs.paths import format_of, is_packed, named, reading, sound
from uqeval.inputs.splicing import (
    Block,
    Text,
    after_cells,
    arrow_bits,
    before_braces,
    blocks,
    has_key,
    has_old_ends,
    opening,
    read_cells,
    read_records,
    spliced,
)
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


Piece = tuple["pa.Table", Any]  # the columns that are needed, and what is written
MakeMarker = Callable[[Sequence[str]], Marker]  # from the names of the columns


class Marked(NamedTuple):
    """Rows that were written, and how many of them are True."""

    rows: int
    true: int


def refuse_column(column: str, names: Sequence[str]) -> None:
    """The new column has a name of its own."""
    if twice := repeated(names):
        raise InputError(f"Duplicated column names: {', '.join(map(repr, twice))}. Rename or drop one of each.")
    if not column:
        raise InputError("The new column has no name. Give it one: column= (--column NAME).")
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
            f"`frame` is {a_type(frame)}. Pass a pandas, Polars or Arrow frame, or a lazy one of those that "
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
            for table, piece in stack.enter_context(closing(_ahead(path, source.pieces(marker.needed)))):
                try:
                    marks = marker(table) if len(table) else np.empty(0, np.bool_)
                except InputError as error:
                    raise InputError(f"in the rows from {rows} on: {error}") from None
                write(piece, marks)
                rows, true = rows + len(marks), true + int(np.count_nonzero(marks))
    return Marked(rows, true)


def _ahead(path: str, pieces: Iterator[Piece]) -> Generator[Piece, None, None]:
    """While one piece is marked and written, the next one is read: most of the time is Arrow's, which needs no lock.

    An OSError of Arrow's, of a damaged file, must not pass for one of the file that is written.
    """

    def read() -> Piece | None:
        with reading(path):
            return next(pieces, None)

    with ThreadPoolExecutor(1, "uqeval-read") as reader:
        coming = reader.submit(read)
        while (piece := coming.result()) is not None:
            coming = reader.submit(read)
            yield piece


class _Source(NamedTuple):
    """An open file: its columns; pieces of it, as the columns that are needed and as what is written; the writer."""

    names: list[str]
    pieces: Callable[[Sequence[str]], Iterator[Piece]]
    writer: Callable[[Path, str, str | None], Any]


def _parquet(path: str, options: Columns, stack: ExitStack) -> _Source:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = stack.enter_context(pq.ParquetFile(path))
    codec = "SNAPPY"
    if file.metadata.num_row_groups:
        # Of a damaged file, Arrow's metadata of a column would end the process; reading one raises an error before.
        next(file.iter_batches(batch_size=1, row_groups=[0], columns=[file.schema.column(0).path]), None)
        codec = file.metadata.row_group(0).column(0).compression

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
        for batch in file.iter_batches(batch_size=_ROWS):
            table = pa.Table.from_batches([sound(batch)])
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
            table = pa.Table.from_batches([sound(batch)])
            yield table.select(list(needed)), table

    @contextmanager
    def writer(part: Path, column: str, _: str | None) -> Iterator[Any]:
        longer = schema.append(pa.field(column, pa.bool_()))
        with pa.OSFile(str(part), "wb") as sink, new(sink, longer) as out:
            yield lambda table, marks: out.write_table(_with(table, column, marks, longer))

    return _Source(list(schema.names), pieces, writer)


def _with(table: pa.Table, column: str, marks: NDArray[np.bool_], schema: pa.Schema) -> pa.Table:
    return table.append_column(column, arrow_bits(marks)).replace_schema_metadata(schema.metadata)


def _csv(path: str, options: Columns, stack: ExitStack) -> _Source:
    """Each record stays as it is, but for one more cell: 007 and 1.50 are no numbers to write anew."""
    dialect = csv_dialect(path, options, "\t" if format_of(path) == "tsv" else ",")
    comma = dialect.delimiter.encode()
    text = _text(path, dialect.encoding, stack)
    found = blocks(text, after_cells, _BYTES, quoted=True)
    head = opening(found)
    if has_old_ends(head.text[: head.places[0]]):
        raise InputError("its lines end in carriage returns alone (\\r). Write it with usual line ends.")
    first = io.StringIO(head.text[: head.places[0]].decode(), newline="")
    if list(filter(None, csv.reader(first, delimiter=dialect.delimiter))) != [dialect.names]:
        raise InputError("quotes in the header do not pair up, so that rows cannot be told apart. Mend the file.")

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, Block]]:
        end = head.places[0]
        for block in chain([Block(head.text[end:], head.places[1:] - end)], found):
            yield read_cells(block, dialect.names, list(needed), dialect.delimiter, dialect.decimal), block

    @contextmanager
    def writer(part: Path, column: str, codec: str | None) -> Iterator[Any]:
        title = io.StringIO()
        csv.writer(title, delimiter=dialect.delimiter, lineterminator="").writerow([column])
        with _splicer(text, part, codec, comma + b"false", comma + b"true") as write:
            write(Block(head.text[: head.places[0]], head.places[:0]))
            write(Block(comma + title.getvalue().encode(), head.places[:0]))
            yield write

    return _Source(dialect.names, pieces, writer)


def _jsonl(path: str, options: Columns, stack: ExitStack) -> _Source:
    """Each line stays as it is, but for one more entry."""
    text = _text(path, "utf-8", stack)
    found = blocks(text, before_braces, _BYTES, quoted=False)
    start = opening(found)
    first = json.loads(start.text.lstrip().split(b"\n", 1)[0] or "{}")
    if not isinstance(first, dict):
        raise InputError('the first line is no record, as {"score_mine": 0.3}.')

    def pieces(needed: Sequence[str]) -> Iterator[tuple[pa.Table, Block]]:
        before = 0
        for block in chain([start], found):
            yield read_records(block, list(needed), before), block
            before += len(block.places)

    @contextmanager
    def writer(part: Path, column: str, codec: str | None) -> Iterator[Any]:
        key = json.dumps(column)
        no, yes = (f", {key}: {json.dumps(mark)}".encode() for mark in (False, True))
        with _splicer(text, part, codec, no, yes) as splice:

            def write(block: Block, marks: NDArray[np.bool_]) -> None:
                if has_key(block, key) and any(
                    column in json.loads(line) for line in block.text.splitlines() if line.strip()
                ):
                    refuse_column(column, [column])
                splice(block, marks)

            yield write

    return _Source(list(first), pieces, writer)


def _text(path: str, letters: str, stack: ExitStack) -> Text:
    """A text file, which may be compressed."""
    import pyarrow as pa

    return Text(stack.enter_context(pa.input_stream(path, compression="detect")), letters)


@contextmanager
def _splicer(text: Text, part: Path, codec: str | None, no: bytes, yes: bytes) -> Iterator[Any]:
    """Writes blocks with one or the other at each place, after the byte order mark of the text."""
    import pyarrow as pa

    with pa.output_stream(str(part), compression=codec) as sink:
        sink.write(text.mark)

        def write(block: Block, marks: NDArray[np.bool_] = np.empty(0, np.bool_)) -> None:  # noqa: B008
            for piece in spliced(block, marks, no, yes):
                sink.write(text.encoded(piece))

        yield write


_SOURCES: dict[str, Callable[[str, Columns, ExitStack], _Source]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "csv": _csv,
    "tsv": _csv,
    "jsonl": _jsonl,
}
