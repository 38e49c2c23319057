"""What engines share: progress, cancelling, sizes of pieces, samples.

pyarrow takes 0.3 s to load, so it is imported on use.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from uqeval._check import Progress
from uqeval.distributed.engines import limits, pieces, protocol
from uqeval.distributed.engines.source import Chunk, Source

if TYPE_CHECKING:
    import pyarrow as pa


R = TypeVar("R")


class BaseEngine(ABC):
    """An engine on a `Source`, less what moves rows."""

    name: str
    source: Source
    grid_bytes = 1 << 28

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.sampled_rows = 0
        self._stop = threading.Event()

    def _limit(self, task_bytes: int, share: int = 2) -> None:
        """Tasks get so much memory; a share of it, one half or less, is for the bucket that is being finished."""
        self.task_bytes = task_bytes
        # Tasks of a cluster do not wait for each other: none gets the memory of others.
        self.task_rows = self.bucket_rows = limits.rows_in(task_bytes // share)

    def schema(self) -> pa.Schema:
        return self.source.schema

    def parts(self) -> list[protocol.Part]:
        return self.source.parts

    def cancel(self) -> None:
        """Ends a run from another thread: its call raises `Cancelled` soon."""
        self._stop.set()

    def _check_cancelled(self) -> None:
        if self._stop.is_set():
            raise protocol.Cancelled

    def _report(self, stage: str, done: int, total: int | None) -> None:
        if self.progress is not None:
            self.progress(stage, done, done if total is None else total)

    def _reported(self, stage: str, results: Iterable[R], total: int | None, rows: Callable[[R], int]) -> Iterator[R]:
        """Passes results on and reports the rows behind them."""
        done = 0
        for result in results:
            done += rows(result)
            self._report(stage, done, total)
            yield result

    def _piece_rows(self, columns: Sequence[str] | None) -> int:
        return limits.piece_rows(self.task_bytes, self.schema().names if columns is None else columns)

    def _no_rows(self, columns: Sequence[str] | None) -> pa.Table:
        empty = self.schema().empty_table()
        return empty if columns is None else empty.select(list(columns))

    def sample(self, function: protocol.SampleFunction, rows: int) -> pa.Table:
        import pyarrow as pa

        chunks = self.source.chunks
        tables: list[pa.Table] = []
        for chosen in (pieces.spread(chunks, rows), chunks):
            share = pieces.Share.of(chosen, rows)
            drawn = list(self._draw(chosen, function, share))
            self.sampled_rows += sum(read for _, read in drawn)
            tables = [table for table, _ in drawn if table is not None]
            # Where only reading tells, the chosen chunks may have held too few.
            if share.rows is None or len(chosen) == len(chunks) or sum(map(len, tables)) >= rows:
                break
        return pieces.thin(pa.concat_tables(tables), rows) if tables else function(self._no_rows(function.columns))

    @abstractmethod
    def _draw(self, chunks: Sequence[Chunk], function: Any, share: pieces.Share) -> Iterable[tuple[Any, int]]:
        """The share of each chunk after `function` (None: it has no rows), and the rows read."""

    def _folded(self, function: protocol.FoldFunction, fold: pieces.Fold) -> protocol.Folded:
        state, read = fold
        if state is None:  # there are no rows
            state = function(self._no_rows(function.columns), protocol.Place(0, 0))
        return protocol.Folded(state, self._by_part(read))

    def _shuffled(
        self, inputs: Sequence[protocol.Input], read: Counter[int], finished: list[pieces.Bucket], carried: Any
    ) -> protocol.Shuffled:
        """The result of a shuffle from its buckets."""
        own = self._by_part(read) if any(given.rows is None for given in inputs) else None
        states = [state for state, _, _ in finished]
        rows, sizes = [rows for _, rows, _ in finished], [size for _, _, size in finished]
        return protocol.Shuffled(states, carried, own, sum(rows), sum(sizes), max(rows, default=0))

    def _by_part(self, read: Counter[int]) -> list[int]:
        return [read[k] for k in range(len(self.parts()))]
