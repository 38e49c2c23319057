"""What runs in Spark's Python workers: read, fold, route, finish; and how rows travel between them.

Between stages Spark sees blobs, not rows: a bucket's rows of one task as bytes. So its shuffle moves and sorts a few
thousand records instead of all rows, without a row object for each.

A record is (what, data). `what` is "state", "read" (rows read of each part), "size" (rows and bytes of a bucket),
"table" (a sample), "error" (for the user, so not worth another attempt), or the columns of rows as JSON, which starts
with "[".
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.distributed.engines.local.files import Chunk, Files
from uqeval.distributed.engines.protocol import Finished, Place, Routed, State, pack, unpack
from uqeval.distributed.plan.edges import RowsChanged

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FOUND",
    "MOVED",
    "ReadCarried",
    "ReadFiles",
    "ReadFrame",
    "Reader",
    "combine",
    "finish_task",
    "fold_task",
    "merge_task",
    "route_task",
    "sample_task",
    "table_from",
]

FOUND = "what string, data binary"
MOVED = f"bucket int, {FOUND}"
_ASIDE = -1  # a bucket for what is not rows
_FLUSH = 1 << 25  # bytes of rows that wait in a task until they are cut into blobs
_BLOB = 1 << 21  # bytes
_MIXED = "A column has different types in different files. Give it one type."

Records = Iterable[tuple[str, bytes]]
Task = Callable[[Iterable[Any]], Iterator[Any]]
Reader = Callable[[Iterable[Any]], Iterator[tuple[Place, Any]]]
Merge = Callable[[State, State], State]


# ---- rows in -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadFiles:
    """Spark hands out numbers of chunks; the worker reads the files itself."""

    files: Files
    chunks: tuple[Chunk, ...]
    columns: tuple[str, ...] | None
    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Place, pa.Table]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.files.read(self.chunks[number], self.columns, self.most)


@dataclass(frozen=True)
class ReadFrame:
    """Spark hands out rows, in batches too small for the functions of the plan."""

    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Place, pa.Table]]:
        import pyarrow as pa

        row = 0
        for some in _gathered(filter(len, batches), self.most, len):
            table = pa.Table.from_batches(some)
            for at in range(0, len(table), self.most):
                piece = table.slice(at, self.most)
                yield Place(0, row), piece
                row += len(piece)


@dataclass(frozen=True)
class ReadCarried:
    """Rows that an earlier shuffle kept, as blobs."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Place, pa.Table]]:
        import pyarrow as pa

        for some in _gathered(filter(len, batches), _FLUSH, lambda batch: batch.nbytes):
            yield Place(0, 0), _from_blobs(pa.Table.from_batches(some))


def _gathered(batches: Iterable[Any], most: int, size: Callable[[Any], int]) -> Iterator[list[Any]]:
    waiting: list[Any] = []
    total = 0
    for batch in batches:
        waiting.append(batch)
        total += size(batch)
        if total >= most:
            yield waiting
            waiting, total = [], 0
    if waiting:
        yield waiting


# ---- rows as blobs -----------------------------------------------------------------------------------------------


def _to_blobs(table: pa.Table, bucket: NDArray[Any] | None = None) -> tuple[str, pa.Array, NDArray[np.int32]]:
    """The columns as text, the rows as bytes (cut by bucket, and where a blob would be large), the blobs' buckets."""
    import pyarrow as pa

    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    records = np.empty(len(table), dtype=[(name, column.dtype) for name, column in columns.items()])
    buckets = np.zeros(len(table), dtype=np.uint16) if bucket is None else bucket.astype(np.uint16)
    order = slice(None) if bucket is None else np.argsort(buckets, kind="stable")  # a radix sort for 16 bits
    for name, column in columns.items():
        records[name] = column[order]
    buckets = buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=buckets[:1]))
    starts = np.unique(np.concatenate([starts, np.arange(0, len(records), max(1, _BLOB // records.itemsize))]))
    offsets = (np.append(starts, len(records)) * records.itemsize).astype(np.int32)
    blobs = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(records.view(np.uint8))]
    )
    kind = json.dumps([[name, column.dtype.str] for name, column in columns.items()])
    return kind, blobs, buckets[starts].astype(np.int32)


def _from_blobs(found: pa.Table) -> pa.Table:
    import pyarrow as pa

    kinds = found.column("what").unique().to_pylist()
    if len(kinds) > 1:
        raise InputError(_MIXED)
    kind = np.dtype([(name, of) for name, of in json.loads(kinds[0])])
    pieces = [np.frombuffer(_content(chunk), dtype=kind) for chunk in found.column("data").chunks if len(chunk)]
    return pa.table({name: np.concatenate([piece[name] for piece in pieces]) for name in kind.names or ()})


def _content(blobs: pa.Array) -> memoryview:
    """The bytes of all blobs of an array; they lie one after another."""
    import pyarrow as pa

    wide = np.int64 if pa.types.is_large_binary(blobs.type) else np.int32
    _, offsets, data = blobs.buffers()
    places = np.frombuffer(offsets, dtype=wide)[blobs.offset : blobs.offset + len(blobs) + 1]
    return memoryview(data)[places[0] : places[-1]]


# ---- what comes back ---------------------------------------------------------------------------------------------


def _batch(records: Sequence[tuple[str, bytes]], bucket: int | None = None) -> pa.RecordBatch:
    import pyarrow as pa

    found: dict[str, Any] = {} if bucket is None else {"bucket": pa.array([bucket] * len(records), pa.int32())}
    found["what"] = pa.array([what for what, _ in records], pa.string())
    found["data"] = pa.array([data for _, data in records], pa.binary())
    return pa.RecordBatch.from_pydict(found)


def _said(error: InputError) -> tuple[str, bytes]:
    return "error", json.dumps([type(error).__name__, str(error)]).encode()


def _told(found: Callable[[Iterable[Any]], Iterator[pa.RecordBatch]], bucket: int | None = None) -> Task:
    """Sends errors that are for the user back as records; anything else fails the task, and Spark tries again."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from found(batches)
        except InputError as error:
            yield _batch([_said(error)], bucket)

    return run


def combine(records: Records, merge: Merge | None = None) -> tuple[list[State], Counter[int], list[list[int]]]:
    """States (merged into one where `merge` is given), rows read of each part, sizes; raises what workers report."""
    states: list[State] = []
    read: Counter[int] = Counter()
    sizes: list[list[int]] = []
    for what, data in records:
        if what == "error":
            kind, message = json.loads(data)
            raise (RowsChanged if kind == "RowsChanged" else InputError)(message)
        if what == "read":
            read.update({int(part): rows for part, rows in json.loads(data).items()})
        elif what == "size":
            sizes.append(json.loads(data))
        elif merge is not None and states:
            states = [merge(states[0], unpack(data))]
        else:
            states.append(unpack(data))
    return states, read, sizes


def _counted(read: Counter[int]) -> tuple[str, bytes]:
    return "read", json.dumps(read).encode()


# ---- tasks -------------------------------------------------------------------------------------------------------


def sample_task(read: Reader, function: Callable[[pa.Table], pa.Table], step: int, most: int | None) -> Task:
    """Every so-many-th row, at most `most` of a task."""
    import pyarrow as pa

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = most
        for _, piece in read(batches):
            taken = piece.take(np.arange(0, len(piece), step)[:left])
            table = function(taken)
            out = io.BytesIO()
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
            yield _batch([("table", out.getvalue())])
            if left is not None and (left := left - len(taken)) <= 0:
                return

    return _told(run)


def table_from(records: Records) -> pa.Table | None:
    """The tables of `sample_task` as one."""
    import pyarrow as pa

    records = list(records)
    combine(record for record in records if record[0] == "error")
    tables = [pa.ipc.open_stream(data).read_all() for _, data in records]
    return pa.concat_tables(tables) if tables else None


def fold_task(read: Reader, function: Callable[[pa.Table, Place], State], merge: Merge) -> Task:
    """One state of all that a task reads."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        state: State | None = None
        rows: Counter[int] = Counter()
        for place, piece in read(batches):
            found = function(piece, place)
            state = found if state is None else merge(state, found)
            rows[place.part] += len(piece)
        if state is not None:
            yield _batch([("state", pack(state)), _counted(rows)])

    return _told(run)


def merge_task(merge: Merge) -> Task:
    """One state of several."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = (
            (what.as_py(), data.as_py())
            for batch in batches
            for what, data in zip(batch.column("what"), batch.column("data"), strict=True)
        )
        states, rows, _ = combine(records, merge)
        yield _batch([*(("state", pack(state)) for state in states), _counted(rows)])

    return _told(run)


def route_task(read: Reader, route: Callable[[pa.Table], Routed], count: bool) -> Task:
    """Blobs of rows by bucket; with `count`, beside them the rows read of each part."""
    import pyarrow as pa

    def blobs(some: list[Routed]) -> pa.RecordBatch:
        if any(moved.table.schema != some[0].table.schema for moved in some):
            raise InputError(_MIXED)
        table = pa.concat_tables([table for table, _ in some])
        kind, data, bucket = _to_blobs(table, np.concatenate([bucket for _, bucket in some]))
        return pa.RecordBatch.from_pydict({"bucket": bucket, "what": pa.array([kind] * len(data)), "data": data})

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: Counter[int] = Counter()

        def routed() -> Iterator[Routed]:
            for place, piece in read(batches):
                rows[place.part] += len(piece)
                moved = route(piece)
                if len(moved.table):
                    yield moved

        for some in _gathered(routed(), _FLUSH, lambda moved: moved.table.nbytes):
            yield blobs(some)
        if count:
            yield _batch([_counted(rows)], _ASIDE)

    return _told(run, _ASIDE)


def finish_task(finish: Callable[[int, pa.Table], Finished]) -> Callable[[tuple[Any, ...], Any], Any]:
    """For each bucket its state, its size and blobs of the rows that it carries on."""
    import pyarrow as pa

    def run(key: tuple[Any, ...], found: pa.Table) -> pa.Table:
        bucket = key[0].as_py()
        if bucket == _ASIDE:
            return found.select(["what", "data"])
        try:
            rows = _from_blobs(found)
            state, carried = finish(bucket, rows)
        except InputError as error:
            return pa.Table.from_batches([_batch([_said(error)])])
        size = json.dumps([len(rows), rows.nbytes]).encode()
        out = [_batch([("state", pack(state)), ("size", size)])]
        if carried is not None:
            step = max(1, _FLUSH * len(carried) // max(1, carried.nbytes))
            for at in range(0, len(carried), step):
                kind, data, _ = _to_blobs(carried.slice(at, step))
                out.append(pa.RecordBatch.from_pydict({"what": pa.array([kind] * len(data)), "data": data}))
        return pa.Table.from_batches(out)

    return run
