"""CSV and JSON lines with something added to each record, every other byte as it was: line ends, quotes, blanks, marks.

A text is read as blocks of whole records; Arrow parses the columns that are needed, and joins the bytes between the
places of two additions with what is added. pyarrow is imported on use.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Int
from uqeval._errors import InputError
from uqeval.inputs.texts import Depth, check_records

if TYPE_CHECKING:
    import pyarrow as pa

_PART = 1 << 20  # bytes that one thread parses at a time
_NEWLINE, _RETURN, _QUOTE, _CLOSE = b'\n\r"}'
_UNPAIRED = "quotes do not pair up, so that rows cannot be told apart. Mend the file."
_MARKS = {  # the byte order mark that a text may begin with, and what it says of its letters
    "utf-8": {codecs.BOM_UTF8: "utf-8"},
    "utf-16": {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"},
    "utf-32": {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"},
}


class Text:
    """A text file as UTF-8, and back: `mark` is what it begins with."""

    def __init__(self, source: Any, letters: str) -> None:
        self._source, self._kept = source, source.read(4)
        known = _MARKS.get(letters := letters.removesuffix("-sig"), {})
        self.mark = next((mark for mark in known if self._kept.startswith(mark)), b"")
        if known and letters != "utf-8":  # what Python takes without a mark is this machine's order
            letters = known.get(self.mark, f"{letters}-{sys.byteorder[0]}e")
        self._kept = self._kept[len(self.mark) :]
        self._plain = letters == "utf-8"
        self._decoder = codecs.getincrementaldecoder(letters)()
        self._encoder = codecs.getincrementalencoder(letters)()

    def read(self, size: int) -> bytes:
        """About so many bytes in UTF-8; none at the end."""
        while True:
            raw, self._kept = self._kept + self._source.read(size), b""
            if self._plain:
                return raw
            if (text := self._decoder.decode(raw, final=not raw)) or not raw:
                return text.encode()

    def encoded(self, part: Any) -> Any:
        """Bytes for the file from UTF-8."""
        return part if self._plain else self._encoder.encode(bytes(part).decode())


class Block(NamedTuple):
    """Whole records, and where in each of them something is added; blank lines have no place."""

    text: bytes
    places: Int

    @property
    def part(self) -> int:
        """Bytes to parse at a time: no record is longer."""
        gaps = np.diff(self.places, prepend=0, append=len(self.text))
        return max(_PART, int(gaps.max()) + 2)


def blocks(text: Text, places: Callable[[bytes, Int], Int], size: int, *, quoted: bool) -> Iterator[Block]:
    """A text piece by piece; `places` tells from the ends of records. A `quoted` text may hold line breaks."""
    rest = b""
    while True:
        new = text.read(max(size, len(rest)))
        rest += new
        ends = _ends(rest, quoted)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        if not new:
            if quoted and rest.count(_QUOTE) % 2:
                raise InputError(_UNPAIRED)
            if cut < len(rest):  # a last line without an end
                ends = np.append(ends, len(rest))
            if len(ends):
                yield _block(rest, ends, places)
            return
        if cut:
            yield _block(rest[:cut], ends, places)
            rest = rest[cut:]


def opening(found: Iterator[Block]) -> Block:
    """The first block with a record, with the blank ones before it."""
    blank = b""
    for block in found:
        if len(block.places):
            return Block(blank + block.text, block.places + len(blank))
        blank += block.text
    return Block(blank, np.empty(0, np.int64))


def _block(text: bytes, ends: Int, places: Callable[[bytes, Int], Int]) -> Block:
    if not text.isascii():
        text.decode()  # other letters than those that were named
    return Block(text, places(text, ends))


def _ends(text: bytes, quoted: bool) -> Int:
    """The line breaks that end a record: outside of quotes, which then pair up."""
    data = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(data == _NEWLINE)
    if not quoted or b'"' not in text:
        return breaks
    return breaks[np.searchsorted(np.flatnonzero(data == _QUOTE), breaks) % 2 == 0]


def _lines(text: bytes, ends: Int) -> tuple[Int, Int]:
    """Where each line begins, and where its text ends."""
    starts = np.concatenate([[0], ends[:-1] + 1])
    return starts, ends - (np.frombuffer(text, np.uint8)[ends - 1] == _RETURN)


def after_cells(text: bytes, ends: Int) -> Int:
    """Behind the last cell of each row of a CSV, and before all the returns that end it: some programs write two."""
    starts, stops = _lines(text, ends)
    for line in np.flatnonzero((stops > starts) & (np.frombuffer(text, np.uint8)[stops - 1] == _RETURN)):
        start = int(starts[line])
        stops[line] = start + len(text[start : int(stops[line])].rstrip(b"\r"))
    return stops[stops > starts]


def has_old_ends(head: bytes) -> bool:
    """Whether what should be a header has line breaks of another kind: Arrow would take its lines for rows."""
    return re.search(rb"\r(?!\n)", re.sub(rb'"[^"]*"', b"", head)) is not None


def before_braces(text: bytes, ends: Int) -> Int:
    """At the last letter of each line: the brace that closes its record."""
    starts, stops = _lines(text, ends)
    blank = np.isin(np.frombuffer(text, np.uint8)[stops - 1], list(b" \t\r\n"))
    for line in np.flatnonzero(blank | (stops <= starts)):
        start = int(starts[line])
        stops[line] = start + len(text[start : int(ends[line])].rstrip())
    return stops[stops > starts] - 1


def read_cells(block: Block, names: list[str], needed: list[str], delimiter: str, decimal: str) -> pa.Table:
    """Columns of numbers, from rows of a CSV without its header."""
    import pyarrow as pa
    from pyarrow import csv

    if not len(block.places):
        return _no_rows(needed)
    kinds = dict.fromkeys(needed, pa.float64())
    try:
        table = csv.read_csv(
            pa.BufferReader(block.text),
            csv.ReadOptions(column_names=names, block_size=block.part),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in block.text),
            csv.ConvertOptions(include_columns=needed, column_types=kinds, decimal_point=decimal),
        )
    except pa.ArrowInvalid as error:
        if (wrong := re.search(r"In CSV column #(\d+): CSV conversion error.*invalid value (.*)", str(error))) is None:
            raise
        raise InputError(
            f"Column `{names[int(wrong[1])]}` holds {wrong[2]}, which is no number. Mend that cell."
        ) from None
    if len(table) != len(block.places):
        raise InputError(_UNPAIRED)
    return table


def read_records(block: Block, needed: list[str], before: int) -> pa.Table:
    """Columns of numbers, from records in lines; `before` is how many the file has before these."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if not len(block.places):
        return _no_rows(needed)
    parse = arrow_json.ParseOptions(
        explicit_schema=pa.schema([(name, pa.float64()) for name in needed]), unexpected_field_behavior="ignore"
    )
    Depth().check(block.text)
    check_records(block.text)
    try:
        table = arrow_json.read_json(pa.BufferReader(block.text), arrow_json.ReadOptions(block_size=block.part), parse)
    except pa.ArrowInvalid:  # which tells a row of a part of the block
        _refuse_records(block.text, needed, before)
        raise
    data = np.frombuffer(block.text, np.uint8)
    if len(table) != len(block.places) or not np.all(data[block.places] == _CLOSE):
        raise InputError("a line holds no record, or several. JSON lines have one in each.")
    return table.select(needed)


def _refuse_records(text: bytes, needed: list[str], before: int) -> None:
    """Names the record that cannot be read."""
    for place, line in enumerate(filter(bytes.strip, text.split(b"\n")), before + 1):
        try:
            row = json.loads(line)
        except ValueError:
            raise InputError(f"record {place} is not JSON, or not whole.") from None
        if not isinstance(row, dict):
            raise InputError(f'record {place} is no JSON object, as {{"score_mine": 0.3}}.')
        for name in needed:
            value = row.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InputError(
                    f"Column `{name}` holds {json.dumps(value):.60} in record {place}, which is no number."
                )


def _no_rows(needed: list[str]) -> pa.Table:
    """Blank lines, which Arrow would take for no table."""
    import pyarrow as pa

    return pa.table({name: pa.array([], pa.float64()) for name in needed})


def has_key(block: Block, key: str) -> bool:
    """Whether a record has an entry of this name, which is JSON's text of it: nested ones count as well."""
    name = key.encode()
    return name in block.text and re.search(re.escape(name) + rb"\s*:", block.text) is not None


# Made from their memory, for pa.array and pa.scalar would load pandas where it is installed: 0.2 s.


def arrow_bits(marks: NDArray[np.bool_]) -> pa.Array:
    """True and False in Arrow."""
    import pyarrow as pa

    return _arrow_bytes(marks).cast(pa.bool_())


def _arrow_bytes(marks: NDArray[np.bool_]) -> pa.Array:
    """0 and 1."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.uint8(), len(marks), [None, pa.py_buffer(np.ascontiguousarray(marks))])


def _arrow_texts(text: bytes, places: Any) -> pa.Array:
    """The parts of a text between places, the first of which is 0."""
    import pyarrow as pa

    offsets = np.asarray(places, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def spliced(block: Block, marks: NDArray[np.bool_], no: bytes, yes: bytes) -> Iterator[Any]:
    """The bytes of the block, with one or the other at each place."""
    import pyarrow.compute as pc

    last = 0
    if len(marks):
        last = int(block.places[-1])
        between = _arrow_texts(block.text, np.concatenate([[0], block.places]))
        words = _arrow_texts(no + yes, [0, len(no), len(no) + len(yes), len(no) + len(yes)])
        joined = pc.binary_join_element_wise(between, words.take(_arrow_bytes(marks)), words[2])
        true = int(np.count_nonzero(marks))
        yield joined.buffers()[2].slice(0, last + len(yes) * true + len(no) * (len(marks) - true))
    yield memoryview(block.text)[last:]
