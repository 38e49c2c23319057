"""How far it is: a bar for each stage on stderr, and a clean end when a signal comes."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from uqeval.cli.interrupt import stop_if_asked
from uqeval.cli.output import stderr

if TYPE_CHECKING:
    from uqeval._check import Progress as Reporter


def status_console(quiet: bool) -> Console:
    """Stderr, silent where nobody looks."""
    console = stderr()
    console.quiet = quiet or not console.is_terminal
    return console


@contextmanager
def bars(quiet: bool) -> Iterator[Reporter]:
    """Takes progress(stage, done, total) of the library: a bar for each stage, a line for what has no end yet."""
    console = status_console(quiet)
    with _ended_by_signal(), _drawn(console) as draw:

        def report(stage: str, done: int, total: int | None) -> None:
            stop_if_asked()  # some package may have swallowed it, and the work may be long
            if total is not None or done > 0:
                draw(stage, done, total)
            elif not quiet:
                stderr().print(Text(stage, style="yellow"), soft_wrap=True)

        yield report


@contextmanager
def _drawn(console: Console) -> Iterator[Reporter]:
    """Draws the bars, or nothing on a console that is silent."""
    if console.quiet:
        yield lambda stage, done, total: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # 10 ms, for those who look

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def draw(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[stage] = progress.add_task(stage.capitalize())
            progress.update(tasks[stage], completed=done, total=total)

        yield draw


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM leaves through `finally`, as Ctrl-C does: workers end, temporary rows go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
