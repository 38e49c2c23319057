"""The worker processes of Dask: those of a client that is given, or of our own; and their errors in plain words."""

import ast
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask

from uqeval import kernels
from uqeval._errors import InputError, MissingExtra, a_type, reason_of
from uqeval.distributed.engines.limits import temporary_folder

try:
    import dask.distributed
except ImportError:  # Dask without its scheduler
    raise MissingExtra('engine="dask"', "distributed", "dask") from None


lib: Any = dask.distributed  # its functions have no types
_OWN = 300 * 10**6  # bytes of this process, scheduler included
_BASE = 200 * 10**6  # bytes of a worker that has imported everything and holds nothing
_LEAST = 200 * 10**6  # bytes for the rows of a worker
_PATIENCE = 10.0  # seconds for a scheduler to answer
# What Dask raises, most special first, and what to tell the user.
_SENTENCES: list[tuple[type[Exception], str]] = [
    (
        lib.KilledWorker,
        "workers died again and again at one task (the last was {error.last_worker}), most often for lack of memory. "
        "Give workers more memory, or write files with smaller row groups.",
    ),
    (MemoryError, "a worker ran out of memory. Give workers more, or fewer threads."),
    (
        TimeoutError,
        "no task ended in time. Workers may be paused for lack of memory, or gone. "
        "Give workers more memory, or raise timeout=.",
    ),
    (CancelledError, "Dask dropped the work ({reason}). Is the cluster still there?"),
    (ImportError, "a worker lacks a package ({reason}). Install uqeval on each."),
    (OSError, "{reason}. No result is given."),
]


@contextmanager
def plain(stage: str) -> Iterator[None]:
    """Turns what Dask raises into a sentence for the user; input errors of a worker pass as they are."""
    try:
        yield
    except tuple(kind for kind, _ in _SENTENCES) as error:
        sentence = next(text for kind, text in _SENTENCES if isinstance(error, kind))
        raise InputError(f"Stage {stage!r}: {sentence.format(error=error, reason=reason_of(error))}") from None


# ---- the cluster ------------------------------------------------------------------------------------------------


def active_client() -> Any:
    """The client that is active in this process; None where there is none."""
    with suppress(ValueError):
        return lib.default_client()
    return None


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
                f"`client` is {client!r}, where no Dask scheduler answers ({reason_of(error)}). "
                f'Start one with "dask scheduler" and pass its address, as "tcp://host:8786".'
            ) from None
        return own.enter_context(made)
    if client is not None:
        raise InputError(f"`client` is {a_type(client)}. Pass a distributed.Client or the address of a scheduler.")
    if not guarded():
        raise InputError(
            'engine="dask" starts processes, which run this script again from its first line: put its calls under '
            '`if __name__ == "__main__":`. Or pass client=, or engine="local", which needs no processes.'
        )
    count = min(max(1, workers or kernels.cores()), (memory - _OWN) // (_BASE + _LEAST))
    if count < 1:
        raise InputError(
            f"`memory_limit` is {memory // 10**6}MB, but the processes of Dask need "
            f'{(_OWN + _BASE + _LEAST) // 10**6}MB. Give more, or use engine="local".'
        )
    folder = str(temporary_folder(own, "uqeval-dask-", spill))
    own.enter_context(_leaving_by_exit())
    # Until all is closed: a client that finds its cluster gone would say so on a terminal.
    own.enter_context(lib.utils.silence_logging_cmgr(logging.ERROR))
    # Spill early: a worker that is paused for lack of memory does nothing more. And a worker that died may take long to
    # start again on a busy machine; after 15 seconds Dask would give it up for good.
    shares = {
        f"distributed.worker.memory.{name}": share for name, share in (("target", 0.5), ("spill", 0.6), ("pause", 0.9))
    }
    patience = {"distributed.deploy.lost-worker-timeout": "1h", "temporary-directory": folder}
    own.enter_context(dask.config.set(shares | patience))
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
        raise InputError(f"The worker processes of Dask do not start ({reason_of(error)}).") from error
    return own.enter_context(lib.Client(cluster, set_as_default=False))


def guarded() -> bool:
    """Whether processes that import the script, as those of Dask do, will not come by this call again."""
    script = sys.modules.get("__main__")
    path, frame = getattr(script, "__file__", None), sys._getframe()
    if path is None:  # a prompt or a notebook, which nobody imports
        return True
    while frame.f_code.co_name != "<module>" or frame.f_globals is not vars(script):
        if frame.f_back is None:  # called by a thread, or by what is no script
            return True
        frame = frame.f_back
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(
        isinstance(node, ast.If)
        and node.lineno <= frame.f_lineno <= (node.end_lineno or 0)
        and "__name__" in ast.unparse(node.test)
        for node in ast.walk(tree)
    )


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
    workers = list(client.scheduler_info()["workers"].values())
    limits = [(worker["memory_limit"] or memory // len(workers)) - _BASE for worker in workers]
    least = min(limit // max(1, worker["nthreads"]) for limit, worker in zip(limits, workers, strict=True))
    return sum(client.nthreads().values()), max(_LEAST // 4, least)
