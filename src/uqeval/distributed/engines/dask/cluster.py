"""What a run on Dask stands on: the source as tasks, the cluster, and errors in plain words."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import dask

from uqeval import kernels
from uqeval._errors import InputError, MissingExtra
from uqeval.distributed.engines.dask.tasks import How, schema_of
from uqeval.distributed.engines.local.files import Chunk, Files
from uqeval.distributed.engines.protocol import Cancelled, Part

try:
    import dask.distributed
except ImportError:  # Dask without its scheduler
    raise MissingExtra('engine="dask"', "distributed", "dask") from None

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FileSource",
    "FrameSource",
    "Unit",
    "check_workers",
    "connect",
    "lib",
    "measure",
    "open_source",
    "plain",
    "unhurried",
]

_dask: Any = dask  # its functions have no types
lib: Any = dask.distributed
_OWN = 300 * 10**6  # bytes of this process, scheduler included
_BASE = 200 * 10**6  # bytes of a worker that has imported everything and holds nothing
_LEAST = 200 * 10**6  # bytes for the rows of a worker
_PATIENCE = 10.0  # seconds for a scheduler to answer


@dataclass(frozen=True)
class Unit:
    """The least that a task reads: a row group, a file or a partition."""

    part: int
    rows: int | None
    chunk: Chunk | None = None


class FileSource:
    """Files that this process and every worker can read under the same names."""

    def __init__(self, source: Any, texts: Sequence[str]) -> None:
        self.files = Files(source, texts)
        self.parts, self.schema = self.files.parts, self.files.schema
        self.files.paths = [os.path.abspath(path) for path in self.files.paths]  # workers run in other folders
        self.units = [Unit(chunk.part, chunk.rows, chunk) for chunk in self.files.chunks]

    def graph(self, key: str, columns: Any, groups: list[list[Unit]], how: How) -> tuple[dict[Any, Any], list[Any]]:
        """Tasks to start from, and for each group what to read and how."""
        wanted = [replace(how, chunks=tuple(u.chunk for u in group if u.chunk is not None)) for group in groups]
        return {f"{key}-files": self.files}, [(f"{key}-files", one) for one in wanted]


class FrameSource:
    """A Dask dataframe, or a list of delayed tables; each pass computes the partitions again and keeps none."""

    def __init__(self, source: Any) -> None:
        self.frame = source
        self.listed = isinstance(source, list | tuple)
        count = len(source) if self.listed else source.npartitions
        self.parts = [Part(f"partition {k}") for k in range(count)]
        self.units = [Unit(k, None) for k in range(count)]
        self.schema: pa.Schema = None if self.listed else schema_of(source._meta)

    def graph(self, key: str, columns: Any, groups: list[list[Unit]], how: How) -> tuple[dict[Any, Any], list[Any]]:
        """Tasks to start from, and for each group (of one partition) what to read and how."""
        graph: dict[Any, Any] = {}
        keys: list[Any]
        if self.listed:
            keys = [item.key for item in self.frame]
            for item in self.frame:
                graph |= dict(item.__dask_graph__()) if _dask.is_dask_collection(item) else {item.key: item}
        else:
            frame = (self.frame if columns is None else self.frame[list(columns)]).optimize()
            graph, keys = dict(frame.__dask_graph__()), list(frame.__dask_keys__())
        return graph, [(keys[group[0].part], replace(how, part=group[0].part)) for group in groups]


def open_source(source: Any, texts: Sequence[str]) -> FileSource | FrameSource:
    """What `source` is: a frame, a list of delayed tables or futures, or names of files."""
    if hasattr(source, "npartitions") and hasattr(source, "_meta"):
        return FrameSource(source)
    if isinstance(source, list | tuple) and source and all(hasattr(item, "key") for item in source):
        return FrameSource(source)
    return FileSource(source, texts)


# ---- the cluster ------------------------------------------------------------------------------------------------


def connect(client: Any, own: ExitStack, memory: int, workers: int | None, spill: str | None, timeout: float) -> Any:
    """The client that is given, or one of our own; `own` ends what was started here."""
    if isinstance(client, lib.Client):
        if client.asynchronous or client.status != "running":
            raise InputError(f"`client` is {client.status} or asynchronous. Pass a Client that is open and blocking.")
        return client
    if isinstance(client, str):
        try:
            made = lib.Client(client, timeout=min(_PATIENCE, timeout), set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"`client` is {client!r}, where no Dask scheduler answers ({_line(error)}). "
                f'Start one with "dask scheduler" and pass its address, as "tcp://host:8786".'
            ) from None
        return own.enter_context(made)
    if client is not None:
        raise InputError(
            f"`client` is a {type(client).__name__}. Pass a distributed.Client or the address of a scheduler."
        )
    count = min(max(1, workers or kernels.cores()), (memory - _OWN) // (_BASE + _LEAST))
    if count < 1:
        raise InputError(
            f"`memory_limit` is {memory // 10**6}MB, but the processes of Dask need "
            f'{(_OWN + _BASE + _LEAST) // 10**6}MB. Give more, or use engine="local".'
        )
    try:
        folder = tempfile.mkdtemp(prefix="uqeval-dask-", dir=spill)
    except OSError as error:
        raise InputError(f"`spill` is {spill!r}, where no folder can be made ({_line(error)}). Name another.") from None
    own.callback(shutil.rmtree, folder, ignore_errors=True)
    own.enter_context(_leaving_by_exit())
    # Spill early: a worker that is paused for lack of memory does nothing more. And a worker that died may take long to
    # start again on a busy machine; after 15 seconds Dask would give it up for good.
    memory_shares = {"target": 0.5, "spill": 0.6, "pause": 0.9}
    settings: dict[str, Any] = {f"distributed.worker.memory.{name}": value for name, value in memory_shares.items()}
    settings |= {"distributed.deploy.lost-worker-timeout": "1h", "temporary-directory": folder}
    own.enter_context(dask.config.set(settings))
    try:
        with unhurried(), _deaf_children():
            cluster = lib.LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                processes=True,
                memory_limit=(memory - _OWN) // count,
                dashboard_address=":0",
                worker_dashboard_address=None,
                local_directory=folder,
                silence_logs=logging.ERROR,
                # Arrow's own pools keep freed memory, which Dask counts and pauses for.
                env={"ARROW_DEFAULT_MEMORY_POOL": "system"},
            )
            own.enter_context(cluster)
    except RuntimeError as error:
        raise InputError(f"The worker processes of Dask do not start ({_line(error)}).") from error
    return own.enter_context(lib.Client(cluster, set_as_default=False))


# ---- signals ----------------------------------------------------------------------------------------------------


@contextmanager
def unhurried() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM waits for the end of the block: a cluster can be ended only once it is up."""
    came: list[int] = []
    former: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            former[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        former = {number: handler for number, handler in former.items() if callable(handler)}
    for number in former:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        if len(came) == 1:
            signal.raise_signal(came[0])


@contextmanager
def _leaving_by_exit() -> Iterator[None]:
    """SIGTERM, where it would end this process at once, leaves through `finally`: workers end and files go."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """A Ctrl-C reaches all processes of a terminal; those of threads that are started here leave it to this process."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the thread that starts it gets its signals back
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def measure(client: Any, memory: int, timeout: float) -> tuple[int, int]:
    """Threads of the cluster, and bytes that each has for rows."""
    try:
        client.wait_for_workers(1, timeout=min(3 * _PATIENCE, timeout))
    except TimeoutError:
        raise InputError("The Dask cluster has no workers. Start some, then run again.") from None
    found = list(client.scheduler_info()["workers"].values())
    each = [
        ((worker["memory_limit"] or memory // len(found)) - _BASE) // max(1, worker["nthreads"]) for worker in found
    ]
    return sum(client.nthreads().values()), max(_LEAST // 4, min(each))


def check_workers(client: Any) -> None:
    """Raises where all workers are gone."""
    if not client.nthreads():
        raise InputError("All workers of the Dask cluster are gone. Start some, then run again.")


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")


@contextmanager
def plain(stage: str) -> Iterator[None]:
    """Turns what Dask raises into a sentence for the user; input errors of a worker pass as they are."""
    try:
        yield
    except (InputError, Cancelled):
        raise
    except lib.KilledWorker as error:
        raise InputError(
            f"Stage {stage!r}: workers died again and again at one task (the last was {error.last_worker}), most often "
            f"for lack of memory. Give workers more memory, or write files with smaller row groups."
        ) from None
    except MemoryError:
        raise InputError(f"Stage {stage!r}: a worker ran out of memory. Give workers more, or fewer threads.") from None
    except TimeoutError:
        raise InputError(
            f"Stage {stage!r}: no task ended in time. Workers may be paused for lack of memory, or gone. "
            f"Give workers more memory, or raise timeout=."
        ) from None
    except CancelledError as error:
        raise InputError(
            f"Stage {stage!r}: Dask dropped the work ({_line(error)}). Is the cluster still there?"
        ) from None
    except ImportError as error:
        raise InputError(
            f"Stage {stage!r}: a worker lacks a package ({_line(error)}). Install uqeval on each."
        ) from None
    except OSError as error:
        raise InputError(f"Stage {stage!r}: {_line(error)}. No result is given.") from None
