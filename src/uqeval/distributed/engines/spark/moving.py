"""What runs in Spark's Python workers, and how rows travel between them.

Between stages Spark sees blobs, not rows: a bucket's rows of one task as bytes. So its shuffle moves and sorts a few
thousand records instead of all rows, without a row object for each.

A record is (columns, data): rows as bytes and their columns as JSON; or, without columns, a pickled value. Values are
what tasks return, and errors that are for the user, so not worth another attempt.
"""

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.distributed.engines import pieces
from uqeval.distributed.engines.protocol import Finish, Merge, Place, RouteFunction
from uqeval.distributed.engines.spark.source import Batches, Reader, gathered

RECORD = "columns string, data binary"
MOVED = f"bucket int, {RECORD}"
_ASIDE = -1  # a bucket for what is not rows
_FLUSH = 1 << 25  # bytes of rows that wait in a task until they are cut into blobs
_BLOB = 1 << 21  # bytes

Task = Callable[[Iterable[Any]], Iterator[Any]]  # from batches of Arrow to batches of records


# ---- rows as blobs -----------------------------------------------------------------------------------------------


def to_blobs(table: pa.Table, bucket: NDArray[Any] | None = None) -> dict[str, Any]:
    """Records of rows: cut by bucket, and where a blob would be large; with their buckets, where given."""
    columns, starts = pieces.by_bucket(table, bucket)
    rows = np.empty(len(table), dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    cuts = np.union1d(starts[:-1][np.diff(starts) > 0], np.arange(0, len(rows), max(1, _BLOB // rows.itemsize)))
    offsets = (np.append(cuts, len(rows)) * rows.itemsize).astype(np.int32)
    data = [None, pa.py_buffer(offsets), pa.py_buffer(rows.view(np.uint8))]
    kind = json.dumps([[name, column.dtype.str] for name, column in columns.items()])
    blobs = {"columns": pa.array([kind] * len(cuts)), "data": pa.Array.from_buffers(pa.binary(), len(cuts), data)}
    if bucket is None:
        return blobs
    return {"bucket": (np.searchsorted(starts, cuts, side="right") - 1).astype(np.int32), **blobs}


def from_blobs(records: pa.Table) -> pa.Table:
    """The rows of such records."""
    kinds = records.column("columns").unique().to_pylist()
    if len(kinds) > 1:
        raise InputError(pieces.MIXED)
    kind = np.dtype([(name, of) for name, of in json.loads(kinds[0])])
    rows = [np.frombuffer(_content(chunk), dtype=kind) for chunk in records.column("data").chunks if len(chunk)]
    return pa.table({name: np.concatenate([some[name] for some in rows]) for name in kind.names or ()})


def _content(blobs: pa.Array) -> memoryview:
    """The bytes of all blobs of an array; they lie one after another."""
    wide = np.int64 if pa.types.is_large_binary(blobs.type) else np.int32
    _, offsets, data = blobs.buffers()
    places = np.frombuffer(offsets, dtype=wide)[blobs.offset : blobs.offset + len(blobs) + 1]
    return memoryview(data)[places[0] : places[-1]]


def read_carried(batches: Batches) -> Iterator[tuple[Place, pa.Table]]:
    """Rows that an earlier shuffle kept, as blobs."""
    for some in gathered(filter(len, batches), _FLUSH, lambda batch: batch.nbytes):
        yield Place(pieces.CARRIED, 0), from_blobs(pa.Table.from_batches(some))


# ---- tasks -------------------------------------------------------------------------------------------------------


def _record(value: Any, bucket: int | None = None) -> pa.RecordBatch:
    to = {} if bucket is None else {"bucket": pa.array([bucket], pa.int32())}
    return pa.RecordBatch.from_pydict({**to, "columns": [""], "data": [pickle.dumps(value)]})


def received(records: Iterable[tuple[str, bytes]]) -> Iterator[Any]:
    """The values that came back, one by one, because they can be large; raises what workers report."""
    for _, data in records:
        value = pickle.loads(data)
        if isinstance(value, InputError):
            raise value
        yield value


def _task(run: Task, bucket: int | None = None) -> Task:
    """Sends values, and errors for the user, as records; any other error fails the task, and Spark tries again."""

    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            for value in run(batches):
                yield value if isinstance(value, pa.RecordBatch) else _record(value, bucket)
        except InputError as error:
            yield _record(error, bucket)

    return task


def value_task(read: Reader, function: Callable[[pieces.Pieces], Any]) -> Task:
    """What `function` makes of all that a task reads."""
    return _task(lambda batches: iter([function(read(batches))]))


def merge_task(merge: Merge) -> Task:
    """One state of several."""

    def run(batches: Batches) -> Iterator[pieces.Fold]:
        records = (("", data.as_py()) for batch in batches for data in batch.column("data"))
        yield pieces.merge(received(records), merge)

    return _task(run)


def route_task(read: Reader, route: RouteFunction) -> Task:
    """Blobs of rows by bucket, and beside them the rows read of each part."""

    def run(batches: Batches) -> Iterator[Any]:
        rows: Counter[int] = Counter()
        for some in gathered(pieces.route(read(batches), route, rows), _FLUSH, lambda moved: moved.table.nbytes):
            yield pa.RecordBatch.from_pydict(to_blobs(*pieces.join(some)))
        yield rows

    return _task(run, _ASIDE)


def finish_task(finish: Finish) -> Callable[[tuple[Any, ...], Any], Any]:
    """What each bucket gives, and blobs of the rows that it carries on."""

    def run(bucket: int, records: pa.Table) -> Iterator[Any]:
        rows = from_blobs(records)
        state, carried = finish(bucket, rows)
        yield state, len(rows), rows.nbytes
        if carried is not None:
            step = max(1, _FLUSH * len(carried) // max(1, carried.nbytes))
            for at in range(0, len(carried), step):
                yield pa.RecordBatch.from_pydict(to_blobs(carried.slice(at, step)))

    def task(key: tuple[Any, ...], records: pa.Table) -> pa.Table:
        bucket = key[0].as_py()
        if bucket == _ASIDE:
            return records.select(["columns", "data"])
        return pa.Table.from_batches(_task(lambda given: run(bucket, given))(records))

    return task
