"""Spark: the plan's three verbs through Arrow, on a cluster or in a session of this machine.

Files are read by the workers themselves, so every machine must see them under the same path; addresses such as
"s3a://…" and dataframes are read by Spark. Rows move in Spark's own shuffle (`spark_tasks` says how); what comes back
to the driver is small. A failed task is tried again as often as Spark is set to.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uqeval import kernels
from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.distributed.engines.local.engine import parse_memory
from uqeval.distributed.engines.local.files import Files
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
from uqeval.distributed.engines.spark.session import OwnSession, running_session
from uqeval.distributed.engines.spark.tasks import (
    FOUND,
    MOVED,
    ReadCarried,
    Reader,
    ReadFiles,
    ReadFrame,
    combine,
    finish_task,
    fold_task,
    merge_task,
    route_task,
    sample_task,
    table_from,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SparkEngine"]

T = TypeVar("T")
_ROW_BYTES = 200  # that a task needs for each of its rows
_PIECE = 1 << 19  # rows that a function gets at a time, at most
_FAN = 8  # states that are merged at a time
_SAMPLED = 32  # row groups that a sample reads
_WAIT = 0.1  # seconds between two looks at a job
_HINTS = {
    "No module named": "Install uqeval for the Python of every worker.",
    "exited unexpectedly": "A Python worker died, maybe for want of memory: give it more, or lower memory_limit.",
    "OutOfMemory": "Give Spark more memory (spark.driver.memory, spark.executor.memory).",
    "No space left": "Free some space, or name a folder on a larger disk (spill=, or spark.local.dir of a session).",
}


@dataclass(frozen=True)
class _Carried:
    """Rows that a shuffle keeps for a later one: `rows` is a part of `kept`, which is on disk."""

    rows: Any
    kept: Any


class SparkEngine:
    """The plan's three verbs on a Spark session.

    Parameters
    ----------
    source : path, pattern, list of them, or pyspark.sql.DataFrame
        Files as in `uqeval.distributed.evaluate`; Parquet only, where a path has a scheme ("s3a://…").
    client : SparkSession or str, optional
        The session, or the address of a master. By default the session that runs in this process, else one that is
        started on this machine and stopped at the end.
    memory_limit : str or int
        What one machine may use. A session of our own gives half of it to Java.
    progress : callable(stage, done, total), optional
        Rows done in each stage, judged by the tasks that are done.
    spill : str, optional
        Folder for temporary files of a session of our own.
    texts : sequence of str
        Columns that CSV files must not turn into numbers.
    """

    name = "spark"

    def __init__(
        self,
        source: Any,
        *,
        client: Any = None,
        memory_limit: str | int = "2GB",
        progress: Progress | None = None,
        spill: str | None = None,
        texts: Sequence[str] = (),
    ) -> None:
        self.memory = parse_memory(memory_limit)
        self.progress, self._spill = progress, spill
        self._stop = threading.Event()
        self._group = f"uqeval-{uuid.uuid4().hex[:12]}"
        self._jobs = 0
        self._kept: list[Any] = []
        self._own: OwnSession | None = None
        self._master = client if isinstance(client, str) else None
        self._files: Files | None = None
        self._frame: Any = None
        self._counts: list[int] | None = None  # rows of each partition of a dataframe
        if hasattr(source, "mapInArrow"):
            if type(source).__module__.startswith("pyspark.sql.connect"):
                raise InputError(
                    "The dataframe belongs to Spark Connect, which cannot be asked for jobs. Save it first."
                )
            self._frame = source
            client = source.sparkSession
        else:
            paths = [source] if isinstance(source, str | os.PathLike) else list(source)
            if not any("://" in str(path) for path in paths):
                self._files = Files(source, texts)
        self._session = running_session(client)
        if self._files is None and self._frame is None:
            self._frame = self._open([str(path) for path in paths])

    def _open(self, paths: list[str]) -> Any:
        try:
            return self.session.read.parquet(*paths)
        except Exception as error:
            self.close()
            raise InputError(f"{', '.join(paths[:3])}: Spark cannot read this ({_reason(error)}).") from error

    @property
    def session(self) -> Any:
        """The session; started where there is none."""
        if self._session is None:
            self._own = OwnSession(self._master, self.memory, self._spill, light=self._files is not None)
            self._session = self._own.session
        return self._session

    @property
    def cores(self) -> int:
        """Tasks that share the memory of a machine."""
        if self._session is None:
            return kernels.cores()
        context = self._session.sparkContext
        if context.master.startswith("local"):
            return max(1, int(context.defaultParallelism))
        return max(1, int(context.getConf().get("spark.executor.cores", "1")))

    @property
    def task_rows(self) -> int:
        """A quarter of the memory is for the buckets that are being finished."""
        return max(1000, self.memory // 4 // self.cores // _ROW_BYTES)

    def schema(self) -> pa.Schema:
        if self._files is not None:
            return self._files.schema
        from pyspark.sql.pandas.types import to_arrow_schema

        try:
            return to_arrow_schema(self._frame.schema)
        except Exception as error:
            raise InputError(f"The dataframe has a column that Arrow does not know: {_reason(error)}") from error

    def parts(self) -> list[Part]:
        if self._files is not None:
            return self._files.parts
        return [Part("the Spark dataframe (rows numbered within a partition)", sum(self._partitions()))]

    def cancel(self) -> None:
        """Ends a run from another thread: its call raises `Cancelled` soon."""
        self._stop.set()

    # ---- verbs ----

    def sample(self, function: Callable[[pa.Table], pa.Table], rows: int) -> pa.Table:
        columns = getattr(function, "columns", None)
        few = rows <= 1024
        if self._files is not None:
            frame, read, step = self._picked(columns, rows)
            most: int | None = rows if few else None
        else:
            counts = self._partitions()
            frame, read = self._scan(columns)
            step, most = 1, -(-rows // max(1, len(counts))) if few else None
            if not few and sum(counts) > rows:
                frame = frame.sample(fraction=rows / sum(counts), seed=0)
        found = frame.mapInArrow(sample_task(read, function, step, most), FOUND)
        table = table_from(self._run("sample", 0, found.collect))
        if table is None:
            return function(self.schema().empty_table())
        return table.take(np.arange(0, len(table), max(1, len(table) // rows)))

    def fold(
        self, stage: str, function: Callable[[pa.Table, Place], State], merge: Callable[[State, State], State]
    ) -> Folded:
        frame, read = self._scan(getattr(function, "columns", None))
        found = frame.mapInArrow(fold_task(read, function, merge), FOUND)
        tasks = self._slices() if self._files is not None else len(self._partitions())
        while tasks > _FAN:  # states can be large: few of them come to the driver
            tasks = -(-tasks // _FAN)
            found = found.repartition(tasks).mapInArrow(merge_task(merge), FOUND)
        states, rows, _ = combine(self._run(stage, self._rows(), found.collect), merge)
        state = states[0] if states else function(self.schema().empty_table(), Place(0, 0))
        return Folded(state, self._by_part(rows))

    def shuffle(
        self, stage: str, inputs: Sequence[Input], buckets: int, finish: Callable[[int, pa.Table], Finished]
    ) -> Shuffled:
        from pyspark import StorageLevel
        from pyspark.sql import functions as F  # noqa: N812

        moved: Any = None
        for given in inputs:
            if own := given.rows is None:
                frame, read = self._scan(getattr(given.route, "columns", None))
            else:
                frame, read = given.rows.rows, ReadCarried()
            routed = frame.mapInArrow(route_task(read, given.route, own), MOVED)
            moved = routed if moved is None else moved.union(routed)
        moved = moved.repartition(self._tasks(buckets), "bucket")
        done = moved.groupBy("bucket").applyInArrow(finish_task(finish), FOUND)
        # Kept on disk until `release`; where a machine is lost, Spark computes its part again.
        done = done.persist(StorageLevel.DISK_ONLY)
        self._kept.append(done)
        blobs = F.col("what").startswith("[")
        states, rows, sizes = combine(self._run(stage, self._rows(), done.where(~blobs).collect))
        return Shuffled(
            states=states,
            carried=_Carried(done.where(blobs), done),
            rows=self._by_part(rows) if any(given.rows is None for given in inputs) else None,
            moved_rows=sum(count for count, _ in sizes),
            moved_bytes=sum(size for _, size in sizes),
            largest=max((count for count, _ in sizes), default=0),
        )

    def release(self, carried: Any) -> None:
        self._kept = [frame for frame in self._kept if frame is not carried.kept]
        carried.kept.unpersist()

    def close(self) -> None:
        kept, self._kept = self._kept, []
        own, self._own = self._own, None
        if own is not None:
            self._session = None
            own.stop()
            return
        for frame in kept:
            with suppress(Exception):  # the session may be gone
                frame.unpersist()

    # ---- parts of the verbs ----

    def _rows(self) -> int:
        return (self._files.rows or 0) if self._files is not None else sum(self._partitions())

    def _by_part(self, rows: Any) -> list[int]:
        return [int(rows[k]) for k in range(1 if self._files is None else len(self._files.parts))]

    def _partitions(self) -> list[int]:
        if self._counts is None:
            from pyspark.sql import functions as F  # noqa: N812

            counted = self._frame.groupBy(F.spark_partition_id()).count()
            self._counts = [int(row["count"]) for row in self._run("count rows", 0, counted.collect)]
        return self._counts

    def _most(self, columns: Sequence[str] | None) -> int:
        width = 8 * (len(columns) if columns is not None else len(self.schema().names))
        return max(1024, min(_PIECE, self.memory // (16 * self.cores) // max(8, width)))

    def _slices(self) -> int:
        """Tasks that read files: not many more than there are cores, unless they would be large."""
        assert self._files is not None
        wanted = max(4 * self.session.sparkContext.defaultParallelism, (self._files.rows or 0) >> 20)
        return max(1, min(len(self._files.chunks), wanted))

    def _tasks(self, buckets: int) -> int:
        """Tasks that finish buckets, one after another: some millions of rows each."""
        wanted = max(2 * self.session.sparkContext.defaultParallelism, self._rows() >> 21)
        return max(1, min(buckets, wanted))

    def _scan(self, columns: tuple[str, ...] | None) -> tuple[Any, Reader]:
        """A dataframe, and how a worker gets rows of the source from it."""
        if self._files is not None:
            read = ReadFiles(self._files, tuple(self._files.chunks), columns, self._most(columns))
            return self.session.range(0, len(read.chunks), 1, self._slices()), read
        frame = self._frame
        if columns is not None:
            try:
                frame = frame.select(*("`" + name.replace("`", "``") + "`" for name in columns))
            except Exception as error:
                raise InputError(f"The dataframe does not give {', '.join(columns)}: {_reason(error)}") from error
        return frame, ReadFrame(self._most(columns))

    def _picked(self, columns: tuple[str, ...] | None, rows: int) -> tuple[Any, Reader, int]:
        """Some chunks from all over the files, and the step between rows."""
        assert self._files is not None
        chunks = self._files.chunks
        few = min(len(chunks), _SAMPLED, -(-rows // 1024))
        picked = [chunks[(2 * k + 1) * len(chunks) // (2 * few)] for k in range(few)]
        inside = [chunk.rows for chunk in picked if chunk.rows is not None]
        if self._files.rows is None or sum(inside) < min(rows, self._files.rows):
            picked = chunks
            inside = [chunk.rows for chunk in picked if chunk.rows is not None]
        step = max(1, sum(inside) // rows) if len(inside) == len(picked) else 1
        read = ReadFiles(self._files, tuple(picked), columns, self._most(columns))
        return self.session.range(0, len(picked), 1, max(1, min(len(picked), self._slices()))), read, step

    # ---- jobs ----

    def _run(self, stage: str, rows: int, action: Callable[[], list[T]]) -> list[T]:
        """Runs a job in a thread, so that this one can report, cancel and be interrupted."""
        from pyspark import InheritableThread

        if self._stop.is_set():
            raise Cancelled
        context = self.session.sparkContext
        self._jobs += 1
        group = f"{self._group}-{self._jobs}"
        found: list[list[T]] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                context.setJobGroup(group, f"uqeval: {stage}", interruptOnCancel=True)
                found.append(action())
            except BaseException as error:
                failed.append(error)

        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_WAIT)
                if self._stop.is_set():
                    raise Cancelled
                self._tell(context, stage, group, rows)
        except BaseException:
            with suppress(Exception):
                context.cancelJobGroup(group)
            thread.join(10)
            raise
        if failed:
            raise _failure(stage, failed[0]) from failed[0]
        if self.progress is not None and rows:
            self.progress(stage, rows, rows)
        return found[0]

    def _tell(self, context: Any, stage: str, group: str, rows: int) -> None:
        if self.progress is None or not rows:
            return
        tracker = context.statusTracker()
        tasks = done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                if (of_stage := tracker.getStageInfo(number)) is not None:
                    tasks, done = tasks + of_stage.numTasks, done + of_stage.numCompletedTasks
        self.progress(stage, rows * done // max(1, tasks), rows)


def _reason(error: BaseException) -> str:
    """The line of a Spark error that says what happened."""
    text = str(error).split("\n\nDriver stacktrace")[0]
    if "Traceback (most recent call last)" in text:
        said = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)]
        if said:
            return said[-1].strip()[:500]
    lines = [line.strip() for line in text.splitlines() if "Exception: " in line] or text.strip().splitlines() or [""]
    return lines[0].split("Exception: ")[-1].split(". Consider setting")[0].split(" SQLSTATE")[0].strip()[:500]


def _failure(stage: str, error: BaseException) -> BaseException:
    if re.search(r"\bcancelled\b", str(error)[:2000]):
        return Cancelled()
    reason = _reason(error).rstrip(".")
    hint = next((f" {said}" for sign, said in _HINTS.items() if sign in str(error)), "")
    return InputError(f'Spark gave up in stage "{stage}": {reason}. No result is given.{hint}')
