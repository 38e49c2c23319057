"""A Dask cluster: the plan's three verbs as graphs of pure tasks.

Dask itself moves rows, spills them to the workers' disks and runs lost tasks again; tasks have no side effects, so that
a second run gives the same rows. Workers run what is in `pieces` and `moving`.

In a shuffle every bundle takes something from every route task, so that tasks grow as the square of rows over rows in a
task. A scheduler is well with 200,000: about 450 route tasks and as many bundles, or 2 billion rows where a thread has
1 GB. A shuffle that needs more is refused; more memory for each thread makes tasks larger, hence fewer.
"""

import math
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import dask
import pyarrow as pa

from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.distributed.engines import limits, pieces
from uqeval.distributed.engines.base import BaseEngine
from uqeval.distributed.engines.dask import moving
from uqeval.distributed.engines.dask import workers as cluster
from uqeval.distributed.engines.dask.source import Lot, Partitions, on_pieces, open_source, schema_of
from uqeval.distributed.engines.protocol import Finish, Folded, FoldFunction, Input, Merge, Shuffled, State
from uqeval.distributed.engines.source import Chunk

_TASKS = 200_000  # of a shuffle, at most
_ALONE = 60.0  # seconds without news after which to ask whether there are workers


class _Graph(dict[Any, Any]):
    """Tasks by names that no other task has, so that no old result is taken for a new one."""

    def __init__(self, stage: str) -> None:
        self._key = f"uqeval-{stage.replace(' ', '-')}-{uuid.uuid4().hex}"

    def add(self, role: str, *task: Any) -> Any:
        """Adds a function with its arguments, or a value for several tasks; its name."""
        name = (f"{self._key}-{role}", len(self))
        self[name] = task if len(task) > 1 else task[0]
        return name


@dataclass
class _Carried:
    """Rows that wait on the workers for a later shuffle."""

    futures: list[Any]
    nbytes: int


class DaskEngine(BaseEngine):
    """The plan's three verbs on a Dask cluster.

    Parameters
    ----------
    source : path, pattern or list of them; Dask dataframe; list of delayed tables
        Files must be readable under these names by this process and by every worker.
    client : Client or str, optional
        A client, which stays open, or the address of a scheduler. Without it, a dataframe takes the client that is
        active; else worker processes of this machine are started, and ended by `close`.
    memory_limit : str or int
        For this process and the workers that it starts. Workers of a `client` have limits of their own.
    progress : callable(stage, rows done, rows in all), optional
        Called from the thread that runs the plan.
    workers : int, optional
        How many processes to start; one a core by default.
    timeout : float
        Seconds without any finished task after which the run ends with an error.
    spill : str, optional
        Folder for temporary rows of the workers that are started; nothing is left there.
    texts : list of str
        Columns that CSV must not read as numbers.
    """

    name = "dask"

    def __init__(
        self,
        source: Any,
        *,
        client: Any = None,
        memory_limit: str | int = "2GB",
        progress: Progress | None = None,
        workers: int | None = None,
        timeout: float = 600.0,
        spill: str | None = None,
        texts: Sequence[str] = (),
    ) -> None:
        super().__init__(progress)
        memory = limits.parse_memory(memory_limit)
        self.source = open_source(source, texts)
        self.timeout = float(timeout)
        self._held: list[list[Any]] = []  # futures to be cancelled by `close`
        self._rows: int | None = self.source.rows  # of the source, once known
        self._own = ExitStack()
        if client is None and isinstance(self.source, Partitions):
            client = cluster.active_client()
        try:
            self._client = cluster.connect(client, self._own, memory, workers, spill, self.timeout)
            self.threads, size = cluster.measure(self._client, memory, self.timeout)
        except BaseException:
            self.close()
            raise
        self._limit(size)
        self._lot_bytes = size // 8  # of rows that go into a task or come out of it: up to four lots at a time

    def schema(self) -> pa.Schema:
        if self.source.schema is None:
            assert isinstance(self.source, Partitions)
            graph, (partitions, names) = _Graph("schema"), self.source.graph(None)
            graph |= partitions
            self.source.schema = self._computed("schema", graph, [graph.add("first", schema_of, names[0])])[0]
        return self.source.schema

    # ---- verbs ----

    def _draw(self, chunks: Sequence[Chunk], function: Any, share: pieces.Share) -> list[Any]:
        graph = _Graph("sample")
        task = graph.add("task", partial(pieces.sample, function=function, share=share))
        lots = self._given(graph, function.columns, [[chunk] for chunk in chunks])
        return self._computed("sample", graph, [graph.add("sampled", on_pieces, task, *lot) for lot in lots])

    def fold(self, stage: str, function: FoldFunction, merge: Merge) -> Folded:
        graph = _Graph(stage)
        task = graph.add("task", partial(pieces.fold, function=function, merger=merge))
        lots = self._given(graph, function.columns, self._lots())
        folds = [graph.add("folded", on_pieces, task, *lot) for lot in lots]
        notes = [graph.add("read", itemgetter(1), one) for one in folds]
        merger = graph.add("merge", merge)
        while len(folds) > 1:
            groups = [folds[k : k + pieces.FAN] for k in range(0, len(folds), pieces.FAN)]
            folds = [graph.add("merged", pieces.merge, group, merger) for group in groups]
        state: State | None = None
        read: Counter[int] = Counter()
        with self._running(stage, graph, [*notes, *folds]) as futures:
            for k, result in self._results(stage, futures):
                if k == len(notes):
                    state = result[0]
                    continue
                read.update(result)
                self._report(stage, read.total(), self._rows)
        self._rows = read.total()
        return self._folded(function, (state, read))

    def shuffle(self, stage: str, inputs: Sequence[Input], buckets: int, finish: Finish) -> Shuffled:
        graph = _Graph(stage)
        todo: list[tuple[Input, list[Any]]] = []
        for given in sorted(inputs, key=lambda one: one.rows is not None):  # those that read the source come first
            if given.rows is None:
                todo.append((given, self._given(graph, given.route.columns, self._lots(self._width(given)))))
            else:
                todo.append((given, [(future, Lot()) for future in given.rows.futures]))
        own = sum(len(lots) for given, lots in todo if given.rows is None)
        count = self._bundles(stage, inputs, buckets, sum(len(lots) for _, lots in todo))
        bundles, finisher, routes = moving.Bundles(buckets, count), graph.add("finish", finish), []
        for given, lots in todo:
            route = graph.add("route", partial(moving.route_block, given.route, bundles))
            routes += [graph.add("routed", on_pieces, route, *lot) for lot in lots]
        notes = [graph.add("read", itemgetter(0), one) for one in routes]
        ends, kept = [], []
        for g in range(count):
            picks = [graph.add("pick", moving.pick_bundle, one, bundles, g) for one in routes]
            bundle = graph.add("bundle", moving.finish_bundle, finisher, picks, bundles, g)
            ends.append(graph.add("states", itemgetter(0), bundle))
            kept.append(graph.add("carried", itemgetter(1), bundle))
        read: Counter[int] = Counter()
        finished: list[pieces.Bucket] = []
        carried = _Carried([], 0)
        moved = 0
        with self._running(stage, graph, [*notes, *ends, *kept]) as futures:
            for k, result in self._results(stage, futures[: len(notes) + count]):
                if k < len(notes):
                    read.update(result[0])
                    moved += result[1]
                    if k < own:
                        self._report(f"{stage}: moving rows", sum(self._by_part(read)), self._rows)
                    continue
                finished += result[0]
                if result[1]:
                    carried.futures.append(futures[k + count])
                    carried.nbytes += result[1]
                done = sum(rows for _, rows, _ in finished)
                self._report(stage, done, max(moved, done))
            self._held.append(carried.futures)
        return self._shuffled(inputs, read, finished, carried)

    def release(self, carried: Any) -> None:
        for future in carried.futures:
            future.release()
        carried.futures.clear()

    def close(self) -> None:
        while self._held:
            self._drop(self._held.pop())
        with cluster.unhurried():
            self._own.close()

    # ---- parts of the verbs ----

    def _lots(self, width: int = 0) -> list[list[Chunk]]:
        """The source in lots of a few chunks: enough for all threads, none too large for one at that many bytes a row.

        A chunk of which only reading tells the rows is a lot by itself.
        """
        most = max(1, (self._rows or 0) // min(4 * self.threads, math.isqrt(_TASKS)))
        if width:
            most = min(most, max(1, self._lot_bytes // width))
        lots: list[list[Chunk]] = []
        size = 0
        for chunk in self.source.chunks:
            if not lots or chunk.rows is None or size + chunk.rows > most:
                lots.append([])
                size = 0
            lots[-1].append(chunk)
            size += most if chunk.rows is None else chunk.rows
        return lots

    def _given(self, graph: _Graph, columns: tuple[str, ...] | None, lots: list[list[Chunk]]) -> list[Any]:
        """What each lot is read from, and how; adds tasks to start from."""
        most = self._piece_rows(columns)
        if isinstance(self.source, Partitions):
            partitions, names = self.source.graph(columns)
            graph |= partitions
            keys = [names[lot[0].part] for lot in lots]
        else:
            keys = [graph.add("files", self.source)] * len(lots)
        return [(key, Lot(columns, most, tuple(lot))) for key, lot in zip(keys, lots, strict=True)]

    def _width(self, given: Input) -> int:
        """Bytes of a routed row of the source."""
        kinds = given.route(self._no_rows(given.route.columns)).table.schema.types
        return sum(kind.bit_width for kind in kinds) // 8

    def _bundles(self, stage: str, inputs: Sequence[Input], buckets: int, routes: int) -> int:
        """How many tasks share the buckets: enough for all threads, none too large for one."""
        size = 0
        for given in inputs:
            size += given.rows.nbytes if given.rows is not None else (self._rows or 0) * self._width(given)
        least = min(buckets, -(-size // self._lot_bytes))
        if least * routes > _TASKS:
            raise InputError(
                f"Stage {stage!r}: moving these rows takes {least:,} × {routes:,} tasks, and a Dask scheduler is "
                f"well with {_TASKS:,}. Give workers more memory or fewer threads, cut a dataframe into fewer "
                f'partitions, or use engine="spark".'
            )
        return min(buckets, max(1, least, min(4 * self.threads, _TASKS // max(1, routes))))

    @contextmanager
    def _running(self, stage: str, graph: _Graph, keys: list[Any]) -> Iterator[list[Any]]:
        """Futures of the keys; cancelled when something goes wrong inside."""
        # Tables of counts travel inside the graph, once, so that a worker that comes later can have them too.
        with cluster.plain(stage), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            futures = self._client.get(graph, keys, sync=False) if keys else []
        self._held.append(futures)
        try:
            yield futures
        except BaseException:
            self._drop(futures)
            raise
        finally:
            self._held = [held for held in self._held if held is not futures]

    def _drop(self, futures: list[Any]) -> None:
        with suppress(Exception):  # the cluster may be gone, and then there is nothing to drop
            self._client.cancel(futures)

    def _computed(self, stage: str, graph: _Graph, keys: list[Any]) -> list[Any]:
        """Results in the order of the keys."""
        with self._running(stage, graph, keys) as futures:
            return [result for _, result in sorted(self._results(stage, futures), key=itemgetter(0))]

    def _results(self, stage: str, futures: list[Any]) -> Iterator[tuple[int, Any]]:
        """Numbers and results of futures, as they come."""
        number = {future.key: k for k, future in enumerate(futures)}
        waiting = cluster.lib.as_completed(futures, loop=self._client.loop)
        last = asked = time.monotonic()
        with cluster.plain(stage):
            while not waiting.is_empty():
                self._check_cancelled()
                ready = waiting.next_batch(block=False)
                for future in ready:
                    yield number[future.key], future.result(timeout=self.timeout)
                now = time.monotonic()
                if ready:
                    last = asked = now
                    continue
                if now - asked > min(_ALONE, self.timeout / 2):
                    if not self._client.nthreads():
                        raise InputError("All workers of the Dask cluster are gone. Start some, then run again.")
                    asked = now
                if now - last > self.timeout:
                    raise TimeoutError
                time.sleep(0.005)
