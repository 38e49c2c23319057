"""Spark: the plan's three verbs through Arrow, on a cluster or in a session of this machine.

Files are read by the workers themselves, so every machine must see them under the same path; addresses such as
"s3a://…" and dataframes are read by Spark. Rows move in Spark's own shuffle (`moving` says how); what comes back to the
driver is small. A failed task is tried again as often as Spark is set to.
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeVar

from pyspark import InheritableThread, StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from uqeval import kernels
from uqeval._check import Progress
from uqeval._errors import InputError
from uqeval.distributed.engines import limits, pieces
from uqeval.distributed.engines.base import BaseEngine
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.protocol import Finish, Folded, FoldFunction, Input, Merge, Shuffled
from uqeval.distributed.engines.source import Chunk
from uqeval.distributed.engines.spark import moving
from uqeval.distributed.engines.spark.source import Frame, Reader, read_files, read_frame
from uqeval.distributed.engines.spark.workers import failure, reason, running_session, start_session

T = TypeVar("T")
_WAIT = 0.1  # seconds between two looks at a job


class SparkEngine(BaseEngine):
    """The plan's three verbs on a Spark session.

    Parameters
    ----------
    source : path, pattern, list of them, or pyspark.sql.DataFrame
        Files as in `uqeval.distributed.evaluate`; Parquet only, where a path has a scheme ("s3a://…").
    client : SparkSession or str, optional
        The session, or the address of a master. By default the session of the dataframe or the one that runs in this
        process, else one that is started on this machine and stopped at the end.
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
    source: Files | Frame

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
        super().__init__(progress)
        self.memory = limits.parse_memory(memory_limit)
        self._spill = spill
        self._group = f"uqeval-{uuid.uuid4().hex[:12]}"
        self._jobs = 0
        self._kept: list[Any] = []
        self._own = ExitStack()
        self._master = client if isinstance(client, str) else None
        frame = source if hasattr(source, "mapInArrow") else None
        if frame is not None and type(frame).__module__.startswith("pyspark.sql.connect"):
            raise InputError("The dataframe belongs to Spark Connect, which cannot be asked for jobs. Save it first.")
        paths = [source] if isinstance(source, str | os.PathLike) else source
        self._light = frame is None and not any("://" in str(path) for path in paths or ())  # Java reads no rows
        if self._light:
            self.source = Files(source, texts)
        self._session = running_session(client if frame is None else frame.sparkSession)
        self._share_memory()
        if not self._light:
            self.source = Frame(self._open(list(map(str, paths))) if frame is None else frame, self._run)

    def _open(self, paths: list[str]) -> Any:
        try:
            return self.session.read.parquet(*paths)
        except Exception as error:
            self.close()
            raise InputError(f"{', '.join(paths[:3])}: Spark cannot read this ({reason(error)}).") from error

    @property
    def session(self) -> Any:
        """The session; started where there is none."""
        if self._session is None:
            self._session = start_session(self._own, self._master, self.memory, self._spill, light=self._light)
            self._share_memory()
        return self._session

    def _share_memory(self) -> None:
        """Tasks share the memory of a machine, half of which is Java's."""
        tasks = kernels.cores()
        if self._session is not None:
            context = self._session.sparkContext
            own = context.master.startswith("local")
            tasks = int(context.defaultParallelism if own else context.getConf().get("spark.executor.cores", "1"))
        self._limit(self.memory // max(1, tasks), share=4)

    # ---- verbs ----

    def _draw(self, chunks: Sequence[Chunk], function: Any, share: pieces.Share) -> Iterable[Any]:
        frame, read = self._scan(function.columns, chunks, None if share.rows is None else len(chunks))
        rows = share.rows
        if isinstance(self.source, Frame) and rows is not None:  # all partitions give something
            if share.first:
                share = pieces.Share(rows=max(20, rows // len(self.source.chunks)), first=True)
            else:
                frame = frame.sample(fraction=min(1.0, rows * len(chunks) / max(1, self._rows())), seed=0)
                share = pieces.Share()
        drawn = moving.value_task(read, partial(pieces.sample, function=function, share=share))
        return self._received("sample", 0, frame.mapInArrow(drawn, moving.RECORD))

    def fold(self, stage: str, function: FoldFunction, merge: Merge) -> Folded:
        frame, read = self._scan(function.columns, self.source.chunks)
        task = moving.value_task(read, partial(pieces.fold, function=function, merger=merge))
        folds = frame.mapInArrow(task, moving.RECORD)
        tasks = len(self.source.chunks)
        tasks = self._tasks(tasks, 4) if isinstance(self.source, Files) else tasks
        while tasks > pieces.FAN:
            tasks = -(-tasks // pieces.FAN)
            folds = folds.repartition(tasks).mapInArrow(moving.merge_task(merge), moving.RECORD)
        return self._folded(function, pieces.merge(self._received(stage, self._rows(), folds), merge))

    def shuffle(self, stage: str, inputs: Sequence[Input], buckets: int, finish: Finish) -> Shuffled:
        moved: Any = None
        blobs = F.col("columns") != ""
        for given in inputs:
            if given.rows is None:
                frame, reader = self._scan(given.route.columns, self.source.chunks)
            else:
                frame, reader = given.rows.where(blobs), moving.read_carried
            routed = frame.mapInArrow(moving.route_task(reader, given.route), moving.MOVED)
            moved = routed if moved is None else moved.union(routed)
        moved = moved.repartition(self._tasks(buckets, 2), "bucket")
        done = moved.groupBy("bucket").applyInArrow(moving.finish_task(finish), moving.RECORD)
        # Kept on disk until `release`; where a machine is lost, Spark computes its part again.
        done = done.persist(StorageLevel.DISK_ONLY)
        self._kept.append(done)
        values = list(self._received(stage, self._rows(), done.where(~blobs)))
        read = sum((value for value in values if isinstance(value, Counter)), Counter())
        finished = [value for value in values if not isinstance(value, Counter)]
        return self._shuffled(inputs, read, finished, carried=done)

    def release(self, carried: Any) -> None:
        self._kept = [frame for frame in self._kept if frame is not carried]
        carried.unpersist()

    def close(self) -> None:
        for frame in self._kept:
            with suppress(Exception):  # the session may be gone
                frame.unpersist()
        self._kept = []
        self._session = None
        self._own.close()

    # ---- parts of the verbs ----

    def _rows(self) -> int:
        return self.source.rows or 0

    def _tasks(self, items: int, each: int) -> int:
        """Tasks that share chunks or buckets: so many a core, unless they would be large."""
        wanted = max(each * self.session.sparkContext.defaultParallelism, each * self._rows() >> 22)
        return max(1, min(items, wanted))

    def _scan(
        self, columns: tuple[str, ...] | None, chunks: Sequence[Chunk], tasks: int | None = None
    ) -> tuple[Any, Reader]:
        """A dataframe, and how a worker gets rows of the source from it."""
        most = self._piece_rows(columns)
        if isinstance(self.source, Frame):
            return self.source.select(columns), partial(read_frame, most)
        read = partial(read_files, self.source, chunks, columns, most)
        return self.session.range(0, len(chunks), 1, tasks or self._tasks(len(chunks), 4)), read

    # ---- jobs ----

    def _received(self, stage: str, rows: int, frame: Any) -> Iterator[Any]:
        """What the tasks of a dataframe of records return."""
        return moving.received(self._run(stage, rows, frame.collect))

    def _run(self, stage: str, rows: int, action: Callable[[], list[T]]) -> list[T]:
        """Runs a job in a thread, so that this one can report, cancel and be interrupted."""
        self._check_cancelled()
        context = self.session.sparkContext
        self._jobs += 1
        group = f"{self._group}-{self._jobs}"
        results: list[list[T]] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                context.setJobGroup(group, f"uqeval: {stage}", interruptOnCancel=True)
                results.append(action())
            except BaseException as error:
                failed.append(error)

        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_WAIT)
                self._check_cancelled()
                if self.progress is not None and rows:
                    self._report(stage, int(rows * _share_done(context, group)), rows)
        except BaseException:
            with suppress(Exception):
                context.cancelJobGroup(group)
            thread.join(10)
            raise
        if failed:
            raise failure(stage, failed[0]) from failed[0]
        if rows:
            self._report(stage, rows, rows)
        return results[0]


def _share_done(context: Any, group: str) -> float:
    """The share of the tasks of a job that are done."""
    tracker = context.statusTracker()
    tasks = done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for number in info.stageIds if info is not None else ():
            if (of_stage := tracker.getStageInfo(number)) is not None:
                tasks, done = tasks + of_stage.numTasks, done + of_stage.numCompletedTasks
    return done / max(1, tasks)
