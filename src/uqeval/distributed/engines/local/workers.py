"""Threads of this process: enough, because reading, sorting and the native kernels let go of the interpreter."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from uqeval.distributed.engines.protocol import Cancelled

T = TypeVar("T")
R = TypeVar("R")


class Room:
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


def on_threads(function: Callable[[T], R], items: Iterable[T], workers: int, stop: threading.Event) -> Iterator[R]:
    """`function` of each item, in any order. After an error nothing more is started, and `stop` is set."""
    pending: set[Future[R]] = set()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="uqeval")

    def unless_stopped(item: T) -> R:
        if stop.is_set():
            raise Cancelled
        return function(item)

    try:
        for item in items:
            pending.add(pool.submit(unless_stopped, item))
            if len(pending) >= 2 * workers:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    except BaseException:
        stop.set()  # before the threads are waited for: they look at it between pieces
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
