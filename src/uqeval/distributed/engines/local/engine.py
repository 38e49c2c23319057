"""One machine: files bigger than memory, a few threads, rows between stages in a temporary file."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from uqeval import kernels
from uqeval._check import Progress
from uqeval.distributed.engines import limits, pieces
from uqeval.distributed.engines.base import BaseEngine
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.local.moving import Spill
from uqeval.distributed.engines.local.source import KeptBatches
from uqeval.distributed.engines.local.workers import Room, on_threads
from uqeval.distributed.engines.protocol import Finish, Folded, FoldFunction, Input, Merge, Place, Shuffled, Table
from uqeval.distributed.engines.source import Chunk

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine(BaseEngine):
    """The plan's three verbs on files of this machine, or on the batches of a query that were kept."""

    name = "local"
    source: Files | KeptBatches

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
        super().__init__(progress)
        memory = limits.parse_memory(memory_limit)
        self.source = source if isinstance(source, KeptBatches) else Files(source, texts)
        self.workers = max(1, workers or kernels.cores())
        self.folder = spill
        self._spills: list[Spill] = []
        self._limit(memory // self.workers)
        self.bucket_rows = limits.rows_in(memory // 2)  # of all tasks: the others wait
        self.grid_bytes = memory // 8 // (self.workers + 1)  # every thread holds some, and they are merged

    # ---- verbs ----

    def _draw(self, chunks: Sequence[Chunk], function: Any, share: pieces.Share) -> Iterator[Any]:
        return self._each(lambda chunk: pieces.sample(self._read(chunk, function.columns), function, share), chunks)

    def fold(self, stage: str, function: FoldFunction, merge: Merge) -> Folded:
        def one(chunk: Chunk) -> pieces.Fold:
            return pieces.fold(self._read(chunk, function.columns), function, merge)

        folds = self._each(one, self.source.chunks)
        reported = self._reported(stage, folds, self.source.rows, lambda fold: fold[1].total())
        return self._folded(function, pieces.merge(reported, merge))

    def shuffle(self, stage: str, inputs: Sequence[Input], buckets: int, finish: Finish) -> Shuffled:
        spill, carried, room = self._new(buckets), self._new(1), Room(self.bucket_rows)
        known = [self.source.rows if given.rows is None else given.rows.rows for given in inputs]
        moving = chain.from_iterable(self._route(given, spill) for given in inputs)
        total = None if None in known else sum(filter(None, known))
        read = sum(self._reported(f"{stage}: moving rows", moving, total, Counter.total), Counter())

        def one(bucket: int) -> pieces.Bucket:
            with room(int(spill.sizes[bucket])):
                table = spill.bucket(bucket)
                state, rows = finish(bucket, table)
                if rows is not None:
                    carried.append(rows)
                return state, len(table), table.nbytes

        # Large buckets first, so that no thread is left with one at the end.
        filled = sorted(np.flatnonzero(spill.sizes).tolist(), key=lambda bucket: -spill.sizes[bucket])
        done = list(self._reported(stage, self._each(one, filled), spill.rows, itemgetter(1)))
        self.release(spill)
        return self._shuffled(inputs, read, done, carried)

    def release(self, carried: Any) -> None:
        carried.close()
        if carried in self._spills:
            self._spills.remove(carried)

    def close(self) -> None:
        for spill in list(self._spills):
            self.release(spill)
        self.source.close()

    # ---- parts of the verbs ----

    def _new(self, buckets: int) -> Spill:
        spill = Spill(self.folder, buckets)
        self._spills.append(spill)
        return spill

    def _read(
        self, chunk: Any, columns: Sequence[str] | None, rows: Spill | None = None
    ) -> Iterator[tuple[Place, Table]]:
        """A chunk of the source, or of carried rows; stops where the run is cancelled or has failed."""
        for place, piece in (rows or self.source).read(chunk, columns, self._piece_rows(columns)):
            self._check_cancelled()
            yield place, piece

    def _route(self, given: Input, spill: Spill) -> Iterator[Counter[int]]:
        """Moves the rows of an input to their buckets; the rows read of each part, chunk by chunk."""

        def one(chunk: Any) -> Counter[int]:
            read: Counter[int] = Counter()
            for moved in pieces.route(self._read(chunk, given.route.columns, given.rows), given.route, read):
                spill.append(*moved)
            return read

        return self._each(one, (self.source if given.rows is None else given.rows).chunks)

    def _each(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return on_threads(function, items, self.workers, self._stop)
