"""What a task does with rows, piece by piece, whatever engine runs it: sample, fold, route, sort into buckets.

pyarrow takes 0.3 s to load, so it is imported on use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.distributed.engines import protocol
from uqeval.distributed.engines.protocol import Place, Routed, State, Table
from uqeval.distributed.engines.source import Chunk

CARRIED = -1  # the part of rows that an earlier shuffle carries
FAN = 8  # states that a task merges: they can be large, so that few should come to one place
MIXED = "A column has different types in different files. Give it one type."
_FEW = 1024  # rows for which the first of some chunks do
_PLACES = 32  # chunks that a sample reads, if they hold enough rows

Pieces = Iterable[tuple[Place, Table]]
Fold = tuple[State | None, Counter[int]]  # the state, and the rows read of each part
Bucket = tuple[State, int, int]  # what finishing gave; its rows and bytes
T = TypeVar("T")


def cut(table: Table, part: int, most: int, row: int = 0) -> Iterator[tuple[Place, Table]]:
    """A table, which begins at that row of a part, in pieces of at most that many rows."""
    for at in range(0, len(table), most):
        yield Place(part, row + at), table.slice(at, most)


# ---- sample -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """What a chunk gives to a sample: every `step`-th row, or about `rows` where only reading tells how many it has."""

    step: int = 1
    rows: int | None = None
    first: bool = False  # the first rows do

    @classmethod
    def of(cls, chunks: Sequence[Chunk], rows: int) -> Share:
        """Of each of the chunks, where so many rows are wanted in all."""
        known = [chunk.rows for chunk in chunks if chunk.rows is not None]
        if len(known) == len(chunks):
            return cls(step=max(1, sum(known) // rows))
        few = rows <= _FEW
        return cls(rows=rows if few else -(-rows // len(chunks)), first=few)


def spread(chunks: Sequence[Chunk], rows: int) -> list[Chunk]:
    """Chunks from all over the source that hold enough rows; where only reading tells, all or, for a few rows, some."""
    known = [chunk.rows for chunk in chunks if chunk.rows is not None]
    if len(known) < len(chunks):
        return _evenly(chunks, 4 if rows <= _FEW else len(chunks))
    count = 1 if rows <= _FEW else _PLACES  # the rows may be sorted
    while count < len(chunks) and sum(_evenly(known, count)) < min(rows, sum(known)):
        count *= 2
    return _evenly(chunks, count)


def _evenly(items: Sequence[T], count: int) -> list[T]:
    count = min(count, len(items))
    return [items[(2 * k + 1) * len(items) // (2 * count)] for k in range(count)]


def thin(table: Table, rows: int) -> Table:
    """About that many rows, evenly spaced."""
    return table.take(np.arange(0, len(table), max(1, len(table) // max(1, rows))))


def sample(pieces: Pieces, function: protocol.SampleFunction, share: Share) -> tuple[Table | None, int]:
    """A share of the pieces, after `function`, and the rows read for it."""
    import pyarrow as pa

    kept: list[Table] = []
    read, step, wanted = 0, share.step, share.rows
    for _, piece in pieces:
        read += len(piece)
        kept.append(function(piece.take(np.arange(0, len(piece), step))))
        count = sum(map(len, kept))
        if share.first and wanted is not None and count >= wanted:
            return thin(pa.concat_tables(kept), wanted), read
        if not share.first and wanted is not None and count > 8 * max(wanted, 1024):
            # From here on every other row only: a sample must not grow with the rows.
            kept, step = [thin(pa.concat_tables(kept), count // 2)], 2 * step
    return pa.concat_tables(kept) if kept else None, read


# ---- fold -------------------------------------------------------------------------------------------------------


def fold(pieces: Pieces, function: protocol.FoldFunction, merger: protocol.Merge) -> Fold:
    """One state of all pieces."""
    return merge(((function(piece, place), Counter({place.part: len(piece)})) for place, piece in pieces), merger)


def merge(folds: Iterable[Fold], merger: protocol.Merge) -> Fold:
    """Several states as one; None where there are none."""
    state: State | None = None
    read: Counter[int] = Counter()
    for own, rows in folds:
        state = own if state is None else state if own is None else merger(state, own)
        read.update(rows)
    return state, read


# ---- shuffle ----------------------------------------------------------------------------------------------------


def route(pieces: Pieces, function: protocol.RouteFunction, read: Counter[int]) -> Iterator[Routed]:
    """What moves of each piece; adds the rows read of each part."""
    for place, piece in pieces:
        read[place.part] += len(piece)
        moved = function(piece)
        if len(moved.table):
            yield moved


def join(routed: list[Routed]) -> Routed:
    """Moving rows of several pieces together."""
    import pyarrow as pa

    try:
        return Routed(pa.concat_tables([table for table, _ in routed]), np.concatenate([to for _, to in routed]))
    except pa.ArrowInvalid:
        raise InputError(MIXED) from None


def by_bucket(
    table: Table, bucket: NDArray[Any] | None, buckets: int = 1
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """The columns with the rows of each bucket together, and (buckets + 1,) where those of each begin."""
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    if bucket is None:  # all rows are of one
        return columns, np.array([0, len(table)])
    small = bucket.astype(np.uint16)
    order = np.argsort(small, kind="stable")  # a radix sort for 16 bits
    starts = np.concatenate([[0], np.cumsum(np.bincount(small, minlength=buckets))])
    return {name: column[order] for name, column in columns.items()}, starts
