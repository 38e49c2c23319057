"""Ctrl-C ends a command, wherever it is: code 130, no traceback, nothing half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODE = 130  # of a process that was interrupted, to a shell
_LATER = 0.02  # seconds

_asked = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt in the block, but not inside an import.

    There it may be swallowed, or leave a module half loaded: it comes when the import is done.
    """
    global _asked
    _asked = False
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    floor, over = sys._getframe(2), threading.Event()  # whoever entered the block may be inside an import itself

    def once_more() -> None:
        if not over.wait(_LATER):
            signal.raise_signal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        global _asked
        _asked = True
        while frame is not None and frame is not floor:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                threading.Thread(target=once_more, daemon=True).start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        over.set()
        signal.signal(signal.SIGINT, former)


def stop_if_asked() -> None:
    """Raises again what some package has swallowed: called before anything is written or shown."""
    if _asked:
        raise KeyboardInterrupt
