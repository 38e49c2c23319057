"""A Dask cluster: the plan's three verbs as graphs of pure tasks.

A shuffle is two rounds of tasks. Route tasks sort their rows by bucket; bundle tasks collect the rows of some buckets
from all of them and finish bucket by bucket. Dask itself moves rows, spills them to the workers' disks and runs lost
tasks again; tasks have no side effects, so that a second run gives the same rows. Workers run what is in `dask_tasks`.

Every bundle takes something from every route task, so that tasks grow as the square of rows over rows in a task. A
scheduler is well with 200,000: about 450 route tasks and as many bundles, or 2 billion rows where a thread has 1 GB. A
shuffle that needs more is refused; more memory for each thread makes tasks larger, hence fewer.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.distributed.engines.dask.cluster import (
    Unit,
    check_workers,
    connect,
    lib,
    measure,
    open_source,
    plain,
    unhurried,
)
from uqeval.distributed.engines.dask.tasks import (
    Cost,
    How,
    finish_bundle,
    first,
    fold_rows,
    merge_states,
    pick_bundle,
    route_rows,
    sample_rows,
    schema_of,
    second,
)
from uqeval.distributed.engines.local.engine import parse_memory
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

__all__ = ["DaskEngine"]

_ROW_BYTES = 200  # that a bucket needs for each of its rows
_BATCH = 1 << 19
_SAMPLED = 32  # row groups that a sample reads
_FAN = 8  # states merged by a task
_TASKS = 200_000  # of a shuffle, at most
_ALONE = 60.0  # seconds without news after which to ask whether there are workers


@dataclass
class _Carried:
    """Rows that wait on the workers for a later shuffle."""

    futures: list[Any]
    rows: list[int]
    nbytes: int


# ---- engine -----------------------------------------------------------------------------------------------------


class DaskEngine:
    """The plan's three verbs on a Dask cluster.

    Parameters
    ----------
    source : path, pattern or list of them; Dask dataframe; list of delayed tables
        Files must be readable under these names by this process and by every worker.
    client : Client or str, optional
        A client, which stays open, or the address of a scheduler. Without it, worker processes of this machine are
        started, and ended by `close`.
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
        memory = parse_memory(memory_limit)
        self.source = open_source(source, texts)
        self.progress, self.timeout = progress, float(timeout)
        self._stop = threading.Event()
        self._held: dict[str, list[Any]] = {}  # futures by key of the run
        self._rows: list[int] | None = None  # of each part, once counted
        self._own = ExitStack()
        try:
            self._client = connect(client, self._own, memory, workers, spill, self.timeout)
            self.threads, self.memory = measure(self._client, memory, self.timeout)
        except BaseException:
            with unhurried():
                self._own.close()
            raise

    @property
    def task_rows(self) -> int:
        """Half of a thread's memory is for the bucket that is being finished."""
        return max(1000, self.memory // 2 // _ROW_BYTES)

    @property
    def _task_bytes(self) -> int:
        """Rows that go into a task or come out of it; there are up to four such lots at a time."""
        return self.memory // 8

    def schema(self) -> pa.Schema:
        if self.source.schema is None:
            self.source.schema = self._tables("schema", schema_of, [self.source.units[0]], None, How())[0]
        return self.source.schema

    def parts(self) -> list[Part]:
        return self.source.parts

    def cancel(self) -> None:
        """Ends a run from another thread: its call raises `Cancelled` soon."""
        self._stop.set()

    # ---- verbs ----

    def sample(self, function: Callable[[pa.Table], pa.Table], rows: int) -> pa.Table:
        import pyarrow as pa

        units, columns = self.source.units, getattr(function, "columns", None)
        small = rows <= 1024
        few = min(len(units), 4 if small else _SAMPLED)
        picked = [units[(2 * k + 1) * len(units) // (2 * few)] for k in range(few)]
        known = [unit.rows for unit in units if unit.rows is not None]
        if len(known) < len(units):
            enough = small
        else:
            enough = sum(unit.rows or 0 for unit in picked) >= min(rows, sum(known))
        found: list[pa.Table] = []
        for tried in (picked, units) if enough else (units,):
            inside = [unit.rows for unit in tried if unit.rows is not None]
            step = max(1, sum(inside) // rows) if len(inside) == len(tried) else 1
            quota = -(-rows // max(1, len(tried)))
            how = How(columns, self._piece(columns), step=1 if small else step, quota=quota, small=small)
            found = self._tables("sample", function, tried, columns, how)
            if sum(map(len, found)) >= rows or len(known) == len(units):
                break
        if not found:
            return function(self.schema().empty_table())
        table = pa.concat_tables(found)
        return table.take(np.arange(0, len(table), max(1, len(table) // rows)))

    def fold(
        self, stage: str, function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State]
    ) -> Folded:
        key, columns = self._key(stage), getattr(function, "columns", None)
        graph, given = self._start(key, columns, None)
        graph |= {f"{key}-function": function, f"{key}-merge": merge}
        level: list[Any] = []
        notes: list[Any] = []
        for k, (what, how) in enumerate(given):
            level.append((f"{key}-fold", k))
            notes.append((f"{key}-read", k))
            graph[level[-1]] = (fold_rows, f"{key}-function", f"{key}-merge", what, how)
            graph[notes[-1]] = (first, level[-1])
        deep = 0
        while len(level) > 1:
            groups = [level[k : k + _FAN] for k in range(0, len(level), _FAN)]
            level = [(f"{key}-merge-{deep}", k) for k in range(len(groups))]
            graph |= {one: (merge_states, f"{key}-merge", group) for one, group in zip(level, groups, strict=True)}
            deep += 1
        counts = [0] * len(self.source.parts)
        state: State | None = None
        if level:
            total = self._total()
            with self._running(key, stage, graph, [*notes, level[0]]) as futures:
                for k, result in self._results(stage, futures):
                    if k == len(notes):
                        state = result[1]
                        continue
                    for part, rows in result.items():
                        counts[part] += rows
                    self._tell(stage, sum(counts), total)
        if state is None:
            state = function(self.schema().empty_table(), Place(0, 0))
        self._rows = counts
        return Folded(state, counts)

    def shuffle(
        self, stage: str, inputs: Sequence[Input], buckets: int, finish: Callable[[int, pa.Table], Finished]
    ) -> Shuffled:
        key = self._key(stage)
        graph: dict[Any, Any] = {f"{key}-finish": finish}
        todo: list[tuple[str, Any, How]] = []  # route tasks: those that read the source come first
        own = 0
        for j, given in enumerate(sorted(inputs, key=lambda one: one.rows is not None)):
            graph[f"{key}-route-{j}"] = given.route
            if given.rows is None:
                columns = getattr(given.route, "columns", None)
                more, found = self._start(f"{key}-{j}", columns, self._width(given))
                graph |= more
                own += len(found)
            else:
                found = [(future, How(None, _BATCH)) for future in given.rows.futures]
            todo += [(f"{key}-route-{j}", what, how) for what, how in found]
        bundles = self._bundles(stage, inputs, buckets, len(todo))
        routes = [(f"{key}-routed", k) for k in range(len(todo))]
        for one, (route, what, how) in zip(routes, todo, strict=True):
            graph[one] = (route_rows, route, what, replace(how, buckets=buckets, bundles=bundles))
        notes = [(f"{key}-read", k) for k in range(len(routes))]
        graph |= {note: (first, one) for note, one in zip(notes, routes, strict=True)}
        for g in range(bundles):
            mine = How(buckets=buckets, bundles=bundles, bundle=g)
            picks = [(f"{key}-pick", g, k) for k in range(len(routes))]
            graph |= {pick: (pick_bundle, one, mine) for pick, one in zip(picks, routes, strict=True)}
            graph[f"{key}-bundle", g] = (finish_bundle, f"{key}-finish", picks, mine)
            graph[f"{key}-states", g] = (first, (f"{key}-bundle", g))
            graph[f"{key}-carried", g] = (second, (f"{key}-bundle", g))
        ends = [(f"{key}-states", g) for g in range(bundles)]
        kept = [(f"{key}-carried", g) for g in range(bundles)]
        counts = [0] * len(self.source.parts)
        costs: dict[int, Cost] = {}
        states: list[State] = []
        with self._running(key, stage, graph, [*notes, *ends, *kept]) as futures:
            blocks = futures[len(notes) + bundles :]
            moved, total, done = 0, self._total(), 0
            for k, result in self._results(stage, futures[: len(notes) + bundles]):
                if k >= len(notes):
                    made, cost = result
                    states += made
                    costs[k - len(notes)] = cost
                    done += cost.rows
                    self._tell(stage, done, max(moved, done))
                    continue
                moved += result.pop(-1)
                for part, rows in result.items():
                    counts[part] += rows
                if k < own:
                    self._tell(f"{stage}: moving rows", sum(counts), total)
            filled = [g for g in range(bundles) if costs[g].carried]
            carried = _Carried(
                [blocks[g] for g in filled],
                [costs[g].carried for g in filled],
                sum(c.carried_bytes for c in costs.values()),
            )
            self._held[f"{key} carried"] = carried.futures
        return Shuffled(
            states=states,
            carried=carried,
            rows=counts if any(given.rows is None for given in inputs) else None,
            moved_rows=sum(cost.rows for cost in costs.values()),
            moved_bytes=sum(cost.nbytes for cost in costs.values()),
            largest=max((cost.largest for cost in costs.values()), default=0),
        )

    def release(self, carried: Any) -> None:
        for future in carried.futures:
            future.release()
        carried.futures.clear()

    def close(self) -> None:
        for futures in self._held.values():
            self._drop(futures)
        self._held.clear()
        with unhurried():
            self._own.close()

    # ---- parts of the verbs ----

    def _key(self, stage: str) -> str:
        """A name that no other task has, so that no old result is taken for a new one."""
        return f"uqeval-{stage.replace(' ', '-')}-{uuid.uuid4().hex}"

    def _piece(self, columns: Sequence[str] | None) -> int:
        width = 8 * len(columns if columns is not None else self.schema().names)
        return max(1024, min(_BATCH, self.memory // 16 // max(8, width)))

    def _total(self) -> int | None:
        """Rows of the source, where known."""
        rows = [part.rows for part in self.source.parts] if self._rows is None else self._rows
        known = [count for count in rows if count is not None]
        return sum(known) if len(known) == len(rows) else None

    def _start(self, key: str, columns: Any, width: int | None) -> tuple[dict[Any, Any], list[tuple[Any, How]]]:
        """The source in lots of a few row groups: enough lots for all threads, none too large for one."""
        most = max(1, (self._total() or 0) // min(4 * self.threads, math.isqrt(_TASKS)))
        if width is not None:
            most = min(most, max(1, self._task_bytes // max(1, width)))
        groups: list[list[Unit]] = []
        size = 0
        for unit in self.source.units:
            if not groups or unit.rows is None or size + unit.rows > most:
                groups.append([])
                size = 0
            groups[-1].append(unit)
            size += most if unit.rows is None else unit.rows
        return self.source.graph(key, columns, groups, How(columns, self._piece(columns)))

    def _width(self, given: Input) -> int:
        """Bytes of a routed row of the source."""
        return sum(kind.bit_width for kind in given.route(self.schema().empty_table()).table.schema.types) // 8

    def _bundles(self, stage: str, inputs: Sequence[Input], buckets: int, routes: int) -> int:
        """How many tasks share the buckets: enough for all threads, none too large for one."""
        size = 0
        for given in inputs:
            size += given.rows.nbytes if given.rows is not None else (self._total() or 0) * self._width(given)
        least = min(buckets, -(-size // self._task_bytes))
        if least * routes > _TASKS:
            raise InputError(
                f"Stage {stage!r}: moving these rows takes {least:,} × {routes:,} tasks, and a Dask scheduler is "
                f"well with {_TASKS:,}. Give workers more memory or fewer threads, cut a dataframe into fewer "
                f'partitions, or use engine="spark".'
            )
        return min(buckets, max(1, least, min(4 * self.threads, _TASKS // max(1, routes))))

    def _tables(self, stage: str, function: Any, units: list[Unit], columns: Any, how: How) -> list[Any]:
        """`function` of some rows of each unit, in their order."""
        key = self._key(stage)
        graph, given = self.source.graph(key, columns, [[unit] for unit in units], how)
        graph[f"{key}-function"] = function
        wanted = [(f"{key}-rows", k) for k in range(len(given))]
        for one, (what, like) in zip(wanted, given, strict=True):
            graph[one] = (function, what) if function is schema_of else (sample_rows, f"{key}-function", what, like)
        if not wanted:
            return []
        with self._running(key, stage, graph, wanted) as futures:
            return [table for _, table in sorted(self._results(stage, futures), key=lambda pair: pair[0])]

    def _tell(self, stage: str, done: int, total: int | None) -> None:
        if self.progress is not None:
            self.progress(stage, done, done if total is None else total)

    @contextmanager
    def _running(self, key: str, stage: str, graph: dict[Any, Any], keys: list[Any]) -> Iterator[list[Any]]:
        """Futures of the keys; cancelled when something goes wrong inside."""
        # Tables of counts travel inside the graph, once, so that a worker that comes later can have them too.
        with plain(stage), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            self._held[key] = self._client.get(graph, keys, sync=False)
        try:
            yield self._held[key]
        except BaseException:
            self._drop(self._held[key])
            raise
        finally:
            self._held.pop(key, None)

    def _drop(self, futures: list[Any]) -> None:
        with suppress(Exception):  # the cluster may be gone, and then there is nothing to drop
            self._client.cancel(futures)

    def _results(self, stage: str, futures: list[Any]) -> Iterator[tuple[int, Any]]:
        """Numbers and results of futures, as they come."""
        number = {future.key: k for k, future in enumerate(futures)}
        waiting = lib.as_completed(futures, loop=self._client.loop)
        last = asked = time.monotonic()
        with plain(stage):
            while not waiting.is_empty():
                if self._stop.is_set():
                    raise Cancelled
                ready = waiting.next_batch(block=False)
                for future in ready:
                    yield number[future.key], future.result(timeout=self.timeout)
                now = time.monotonic()
                if ready:
                    last = asked = now
                    continue
                if now - asked > min(_ALONE, self.timeout / 2):
                    check_workers(self._client)
                    asked = now
                if now - last > self.timeout:
                    raise TimeoutError
                time.sleep(0.005)
