"""One machine: files bigger than memory, a few threads, rows between stages in a temporary file.

Threads are enough: reading, sorting and the native kernels let go of the interpreter. The temporary file has no name,
so that nothing stays behind however the process ends.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from uqeval import kernels
from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.distributed.engines.local.files import Chunk, Files
from uqeval.distributed.engines.local.spill import Spill
from uqeval.distributed.engines.protocol import (
    Cancelled,
    Finished,
    Folded,
    Input,
    Part,
    Place,
    Shuffled,
    State,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LocalEngine", "parse_memory"]

T = TypeVar("T")
R = TypeVar("R")
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_UNITS |= {"tib": 2**40}
_LEAST = 256 * 10**6
_ROW_BYTES = 200  # that a task needs for each of its rows
_BATCH = 1 << 19
_FEW = 1024  # rows for which the first of a file do
_SAMPLED = 32  # row groups that a sample reads


def parse_memory(limit: str | int) -> int:
    """Bytes from "2GB", "512MiB" or a number."""
    if isinstance(limit, int) and not isinstance(limit, bool):
        size = limit
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(limit))
        if found is None or found[2].lower() not in _UNITS:
            raise InputError(f'`memory_limit` is {limit!r}. Write it as "2GB" or "512MB", or as a number of bytes.')
        size = int(float(found[1]) * _UNITS[found[2].lower()])
    if size < _LEAST:
        raise InputError(f"`memory_limit` is {limit!r}. Python and Arrow alone need {_LEAST // 10**6}MB; give more.")
    return size


@runtime_checkable
class Pieces(Protocol):
    """What `Files` offers: chunks that threads read on their own."""

    chunks: list[Chunk]
    parts: list[Part]
    schema: pa.Schema

    @property
    def rows(self) -> int | None:
        """All rows, where that is known."""
        ...

    def read(self, chunk: Chunk, columns: Sequence[str] | None, most: int) -> Iterator[tuple[Place, pa.Table]]:
        """The rows of a chunk, at most `most` at a time."""
        ...


class _Room:
    """Lets threads in as long as their rows fit together; one alone always gets in."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._changed = threading.Condition()

    @contextmanager
    def __call__(self, rows: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + rows <= self._most)
            self._taken += rows
        try:
            yield
        finally:
            with self._changed:
                self._taken -= rows
                self._changed.notify_all()


class LocalEngine:
    """The plan's three verbs on files of this machine, or on anything that can be read like them (`Pieces`)."""

    name = "local"

    def __init__(
        self,
        source: Any,
        *,
        memory_limit: str | int = "2GB",
        spill: str | None = None,
        progress: Progress | None = None,
        workers: int | None = None,
        texts: Sequence[str] = (),
    ) -> None:
        self.memory = parse_memory(memory_limit)
        self.files: Pieces = source if isinstance(source, Pieces) else Files(source, texts)
        self.workers = max(1, workers or kernels.cores())
        self.folder, self.progress = spill, progress
        self.sampled_rows = 0  # read to choose some of them
        self._spills: list[Spill] = []
        self._stop = threading.Event()

    @property
    def task_rows(self) -> int:
        """Half of the memory is for the buckets that are being finished."""
        return max(1000, self.bucket_rows // self.workers)

    @property
    def bucket_rows(self) -> int:
        """A bucket that cannot be cut may take what is for all tasks, while the others wait."""
        return max(1000, self.memory // 2 // _ROW_BYTES)

    @property
    def grid_bytes(self) -> int:
        """For the counts of a pass: every thread holds some, and they are merged."""
        return self.memory // 8 // (self.workers + 1)

    def schema(self) -> pa.Schema:
        return self.files.schema

    def parts(self) -> list[Part]:
        return self.files.parts

    def cancel(self) -> None:
        """Ends a run from another thread: its call raises `Cancelled` soon."""
        self._stop.set()

    # ---- verbs ----

    def sample(self, function: Callable[[pa.Table], pa.Table], rows: int) -> pa.Table:
        import pyarrow as pa

        picked = self._spread(rows)
        inside = [chunk.rows for chunk in picked if chunk.rows is not None]
        few = rows <= _FEW
        if len(inside) == len(picked):
            step = max(1, sum(inside) // rows)
        else:  # a row of text takes some 50 to 400 bytes
            step = 1 if few else max(1, sum(getattr(self.files, "sizes", [])) // (400 * rows))
        columns = getattr(function, "columns", None)

        def some(chunk: Chunk) -> tuple[list[pa.Table], int]:
            found, count, read = [], 0, 0
            for _, piece in self._read(chunk, columns):
                read += len(piece)
                found.append(function(piece.take(np.arange(0, len(piece), step))))
                count += len(found[-1])
                if few and count >= rows:
                    break
            return found, read

        found: list[pa.Table] = []
        for tables, read in self._each(some, picked):
            found += tables
            self.sampled_rows += read
        if not found:
            return self.files.schema.empty_table()
        table = pa.concat_tables(found)
        return table.take(np.arange(0, len(table), max(1, len(table) // rows)))

    def fold(
        self, stage: str, function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State]
    ) -> Folded:
        columns = getattr(function, "columns", None)

        def one(chunk: Chunk) -> tuple[State | None, int, int]:
            state, rows = None, 0
            for place, piece in self._read(chunk, columns):
                found = function(piece, place)
                state, rows = found if state is None else merge(state, found), rows + len(piece)
            return state, chunk.part, rows

        counts = [0] * len(self.files.parts)
        total: State | None = None
        for state, part, rows in self._told(stage, self._each(one, self.files.chunks), self.files.rows, lambda x: x[2]):
            counts[part] += rows
            if state is not None:
                total = state if total is None else merge(total, state)
        if total is None:
            total = function(self.files.schema.empty_table(), Place(0, 0))
        return Folded(total, counts)

    def shuffle(
        self, stage: str, inputs: Sequence[Input], buckets: int, finish: Callable[[int, pa.Table], Finished]
    ) -> Shuffled:
        spill = self._new(buckets)
        read: list[int] | None = None
        for given in inputs:
            if given.rows is None:
                read = self._route_source(stage, given, spill)
            else:
                moving = self._each(self._routing(given, spill), range(given.rows.chunks()))
                total = int(given.rows.rows.sum())
                list(self._told(f"{stage}: moving rows", moving, total, lambda rows: rows))
        carried = self._new(1)
        room = _Room(self.bucket_rows)

        def one(bucket: int) -> tuple[State, int]:
            with room(int(spill.rows[bucket])):
                table = spill.bucket(bucket)
                state, rows = finish(bucket, table)
                if rows is not None:
                    carried.append(rows)
                return state, len(table)

        filled = [int(b) for b in np.flatnonzero(spill.rows)]
        # Large buckets first, so that no thread is left with one at the end.
        filled.sort(key=lambda b: -int(spill.rows[b]))
        moved = int(spill.rows.sum())
        states = [state for state, _ in self._told(stage, self._each(one, filled), moved, lambda x: x[1])]
        result = Shuffled(states, carried, read, moved, spill.nbytes, int(spill.rows.max(initial=0)))
        self.release(spill)
        return result

    def release(self, carried: Any) -> None:
        carried.close()
        if carried in self._spills:
            self._spills.remove(carried)

    def close(self) -> None:
        for spill in list(self._spills):
            self.release(spill)

    # ---- parts of the verbs ----

    def _spread(self, rows: int) -> list[Chunk]:
        """Chunks from all over the files that hold enough rows; all where only reading tells."""
        chunks, known = self.files.chunks, self.files.rows
        if known is None and rows <= _FEW:  # the first rows of some files
            return chunks[:: -(-len(chunks) // 4)]
        few = min(len(chunks), _SAMPLED, -(-rows // 1024))
        while known is not None and few < len(chunks):
            picked = [chunks[(2 * k + 1) * len(chunks) // (2 * few)] for k in range(few)]
            if sum(chunk.rows or 0 for chunk in picked) >= min(rows, known):
                return picked
            few *= 2
        return chunks

    def _new(self, buckets: int) -> Spill:
        spill = Spill(self.folder, buckets)
        self._spills.append(spill)
        return spill

    def _read(self, chunk: Chunk, columns: Sequence[str] | None) -> Iterator[tuple[Place, pa.Table]]:
        width = 8 * (len(columns) if columns is not None else len(self.files.schema.names))
        most = max(1024, min(_BATCH, self.memory // (16 * self.workers) // width))
        for place, piece in self.files.read(chunk, columns, most):
            if self._stop.is_set():
                raise Cancelled
            yield place, piece

    def _route_source(self, stage: str, given: Input, spill: Spill) -> list[int]:
        columns = getattr(given.route, "columns", None)

        def one(chunk: Chunk) -> tuple[int, int]:
            rows = 0
            for _, piece in self._read(chunk, columns):
                spill.append(*given.route(piece))
                rows += len(piece)
            return chunk.part, rows

        counts = [0] * len(self.files.parts)
        for part, rows in self._told(
            f"{stage}: moving rows", self._each(one, self.files.chunks), self.files.rows, lambda x: x[1]
        ):
            counts[part] += rows
        return counts

    def _routing(self, given: Input, spill: Spill) -> Callable[[int], int]:
        def one(k: int) -> int:
            table = given.rows.chunk(k)
            spill.append(*given.route(table))
            return len(table)

        return one

    def _told(self, stage: str, results: Iterable[R], total: int | None, rows: Callable[[R], int]) -> Iterator[R]:
        """Passes results on and reports the rows behind them."""
        done = 0
        for result in results:
            done += rows(result)
            if self.progress is not None:
                self.progress(stage, done, total if total is not None else done)
            yield result

    def _each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`function` of each item on the threads, in any order; after an error nothing more is started."""
        todo = iter(items)
        pending: set[Future[R]] = set()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="uqeval")

        def guarded(item: T) -> R:
            if self._stop.is_set():
                raise Cancelled
            return function(item)

        try:
            for item in todo:
                pending.add(pool.submit(guarded, item))
                if len(pending) >= 2 * self.workers:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        except BaseException:
            self._stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
