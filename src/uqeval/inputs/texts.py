"""CSV and JSON lines: which columns there are, and reading those that are needed. pyarrow is imported on use."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from uqeval._errors import InputError, reason_of
from uqeval.inputs.columns import Columns, listed, repeated
from uqeval.inputs.paths import is_packed, refuse_bomb

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 24  # bytes; a row longer than Arrow's block (1 MiB by default) cannot be read


class Opened(NamedTuple):
    """Columns of a file, how to read some of them (texts as they are), and its rows where it says how many."""

    names: list[str]
    read: Callable[[list[str], list[str]], pa.Table]
    rows: int | None = None
    column: Callable[[str], pa.ChunkedArray] | None = None  # a single one, where that is as fast; by any thread


class Watched(io.RawIOBase):
    """The bytes of a text file, unpacked, as Arrow reads them: neither endless nor nested deeper than its stack."""

    def __init__(self, name: str, *, json: bool = False) -> None:
        import pyarrow as pa

        super().__init__()
        self._raw = pa.input_stream(name, compression="detect")
        self._packed, self._unpacked, self._limited = os.path.getsize(name), 0, is_packed(name)
        self._json, self._depth = json, 0
        self._begun: bytes | None = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data: bytes = self._raw.read(None if size < 0 else size)
        self._unpacked += len(data)
        if self._limited:
            refuse_bomb(self._unpacked, self._packed)
        if self._json:
            self._depth = check_depth(data, self._depth)
            self._begun = check_nulls(data, self._begun)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def check_depth(data: bytes, depth: int = 0) -> int:
    """Refuses lines of JSON that are nested deeper than a stack; how deep they end, where they began at `depth`."""
    signs = np.frombuffer(data.translate(None, _NO_BRACKETS), dtype=np.uint8)
    if not len(signs):
        return depth
    found = depth + np.cumsum(np.isin(signs, _OPENING).astype(np.int64) - np.isin(signs, _CLOSING))
    start = np.maximum.accumulate(np.where(signs == _LINE_END, np.arange(1, len(signs) + 1), 0))
    found = found - np.where(start > 0, found[start - 1], 0)
    if found.max() > _DEEPEST:
        raise InputError("cannot be read; it is nested too deeply.")
    return int(found[-1])


def check_nulls(data: bytes, begun: bytes | None = b"") -> bytes | None:
    """Refuses a line that begins with null: where Arrow's reader of JSON begins with one, it ends the process.

    `begun` is what the first line held before, and the answer what the last one holds: None where that is no null.
    """
    text = data if begun is None else begun + data
    if (begun is not None and _NULL.match(text)) or _NULL_LINE.search(text):
        raise InputError('a line holds null, and no record, as {"score_mine": 0.3}. Leave it out.')
    last = text.rfind(b"\n") + 1
    if begun is None and not last:
        return None
    rest = text[last:].lstrip(b" \t\r")
    return rest if b"null".startswith(rest) else None


_NULL, _NULL_LINE = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r]*null"), re.compile(rb"\n[ \t\r]*null")
_OPENING, _CLOSING, _LINE_END = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8), ord("\n")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}\n"))
_DEEPEST = 500  # Arrow has no limit, and a stack has one


class Dialect(NamedTuple):
    """How a CSV file is written, and its columns."""

    names: list[str]
    delimiter: str
    decimal: str
    encoding: str


def csv_dialect(name: str, options: Columns, delimiter: str = ",") -> Dialect:
    """From the options and the header."""

    encoding, delimiter = _known_encoding(options.encoding), _one_character("sep", options.sep) or delimiter
    letters = "utf-8-sig" if encoding == "utf-8" else encoding
    with Watched(name) as raw, io.TextIOWrapper(io.BufferedReader(raw), letters, newline="") as text:
        names = next((row for row in csv.reader(text, delimiter=delimiter) if row), [])
    if not names:
        raise InputError("holds no header line. The first line names the columns.")
    if len(names) == 1 and (other := next((sep for sep in ";\t|," if sep in names[0]), None)) is not None:
        shown = "\\t" if other == "\t" else other
        raise InputError(
            f'the header is a single column, "{names[0][:60]}". It looks separated by "{shown}": pass sep="{shown}" '
            f'(--sep "{shown}").'
        )
    return Dialect(names, delimiter, _one_character("decimal", options.decimal) or ".", encoding)


def open_csv(name: str, options: Columns, delimiter: str = ",") -> Opened:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names, delimiter, point, encoding = csv_dialect(name, options, delimiter)

    def read_all(**how: Any) -> pa.Table:
        if not is_packed(name):
            return arrow_csv.read_csv(name, **how)
        with Watched(name) as file:
            return arrow_csv.read_csv(file, **how)

    def read(columns: list[str], texts: list[str]) -> pa.Table:
        kinds = dict.fromkeys(texts, pa.string())
        convert = arrow_csv.ConvertOptions(include_columns=columns, column_types=kinds, decimal_point=point)
        parse = arrow_csv.ParseOptions(delimiter=delimiter)
        how = arrow_csv.ReadOptions(encoding=encoding)
        try:
            return read_all(read_options=how, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            # Slower, but quoted texts may hold line breaks and rows may be long.
            parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            how = arrow_csv.ReadOptions(block_size=_BLOCK, encoding=encoding)
            return read_all(read_options=how, parse_options=parse, convert_options=convert)

    return Opened(names, read)


def _one_character(name: str, text: str | None) -> str | None:
    if text in ("\\t", "tab"):
        return "\t"
    if text is not None and (len(text) != 1 or not text.isascii()):
        raise InputError(f'`{name}` (--{name}) must be a single character, as ";"; it is {text!r}.')
    return text


def _known_encoding(name: str | None) -> str:
    try:
        return codecs.lookup(name or "utf-8").name
    except LookupError:
        raise InputError(
            f"`encoding` (--encoding) is {name!r}, which is not known. Usual ones are utf-8, latin-1, cp1252, utf-16."
        ) from None


def open_json(name: str, options: Columns) -> Opened:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    next(json_rows(name), None)  # says which names are repeated, where Arrow would take the last
    # Keys may come late, so that only the whole file tells the columns.
    try:
        with Watched(name, json=True) as file:
            table = arrow_json.read_json(file, read_options=arrow_json.ReadOptions(block_size=_BLOCK))
    except pa.ArrowInvalid:  # a column of several types, which may not be needed; or lines that are no JSON
        return Opened(list(dict.fromkeys(key for row in json_rows(name) for key in row)), partial(_read_json, name))
    return Opened(list(table.column_names), lambda columns, texts: table.select(columns), len(table))


def json_rows(name: str) -> Iterator[dict[str, Any]]:
    """The records of a file, line by line."""
    with Watched(name) as raw, io.TextIOWrapper(io.BufferedReader(raw, 1 << 20), "utf-8-sig") as text:
        for number, line in enumerate(text, 1):
            if line.strip():
                try:
                    row = json.loads(line, object_pairs_hook=_record)
                except json.JSONDecodeError as error:
                    raise InputError(f"cannot be read: line {number} is not JSON ({reason_of(error)}).") from None
                except RecursionError:
                    raise InputError(f"cannot be read: line {number} is nested too deeply.") from None
                if not isinstance(row, dict):
                    raise InputError(f'cannot be read: line {number} is no record, as {{"label": 0, "prob": 0.3}}.')
                yield row


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := repeated(key for key, _ in pairs):
        raise InputError(f"Duplicated column names: {listed(map(repr, twice))}. Rename or drop one of each.")
    return dict(pairs)


def _read_json(name: str, columns: list[str], texts: list[str]) -> pa.Table:
    """Row by row: slower, and nothing is looked at but what is needed."""
    import pyarrow as pa

    values: dict[str, list[Any]] = {column: [] for column in columns}
    for row in json_rows(name):
        for column, taken in values.items():
            taken.append(row.get(column))
    found = {}
    for column, own in values.items():
        try:
            found[column] = pa.array(own)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            first = next(value for value in own if value is not None)
            place = next(k for k, value in enumerate(own) if value is not None and type(value) is not type(first))
            raise InputError(
                f"Column `{column}` mixes types: {first!r} first, then {own[place]!r} in row {place}. Give it one type."
            ) from None
    return pa.table(found)
