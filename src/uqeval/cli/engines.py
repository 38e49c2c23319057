"""Files that do not fit in memory: which engine, with which columns, and how far it is."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from uqeval._check import Progress as Reporter
from uqeval._errors import InputError
from uqeval.cli.options import DEFAULTS, listed
from uqeval.cli.output import stderr

__all__ = ["Approx", "Engine", "Memory", "Scheduler", "Spill", "Way", "choose", "running"]

_PANEL = "Many rows"
_NAMES = ("memory", "local", "dask", "spark")

Engine = Annotated[
    str | None,
    typer.Option(
        help="memory, local (piece by piece), dask or spark; memory by default, local where the rows would not fit.",
        rich_help_panel=_PANEL,
    ),
]
Memory = Annotated[
    str | None, typer.Option(help="How much memory an engine may use, as 2GB.", rich_help_panel=_PANEL, metavar="SIZE")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler or Spark master; workers of this machine by default.",
        rich_help_panel=_PANEL,
        metavar="ADDRESS",
    ),
]
Spill = Annotated[
    str | None,
    typer.Option(
        help="Folder for temporary rows of an engine; the system's own by default. Nothing is left there.",
        rich_help_panel=_PANEL,
        metavar="DIR",
    ),
]
Approx = Annotated[
    float | None,
    typer.Option(
        help="One pass, certain bounds of about this width instead of intervals, as 1e-4.",
        rich_help_panel=_PANEL,
        metavar="WIDTH",
    ),
]


@dataclass(frozen=True)
class Way:
    """An engine, what it is told, and why it was chosen (None: it was asked for)."""

    engine: str
    options: dict[str, Any]
    reason: str | None


def choose(
    engine: str | None,
    paths: list[str],
    *,
    memory: str | None,
    scheduler: str | None,
    spill: str | None,
    scores: Sequence[str] | None,
    classes: list[str] | None,
    normalize: bool,
    **columns: str,
) -> Way | None:
    """How to compute; None means in memory."""
    if engine is not None and engine not in _NAMES:
        raise InputError(f"--engine {engine}: choose {', '.join(_NAMES)}.")
    if scheduler is not None and engine not in ("dask", "spark"):
        raise InputError("--scheduler belongs to --engine dask or spark. Name one of them.")
    if memory is not None and engine == "memory":
        raise InputError("--memory is for engines that read piece by piece. Leave it out, or pass --engine local.")
    if spill is not None and engine == "memory":
        raise InputError("--spill is for engines that read piece by piece. Leave it out, or pass --engine local.")
    chosen: dict[str, Any] = {name: value for name, value in columns.items() if value != DEFAULTS[name]}
    chosen |= {} if classes is None else {"classes": listed(classes)}
    chosen |= {"normalize": True} if normalize else {}
    reason = None
    if engine is None and memory is None:
        from uqeval.distributed.memory import too_large

        reason = too_large(paths, scores, **chosen)
    if engine == "memory" or (engine is None and memory is None and reason is None):
        return None
    chosen.pop("id", None)
    pattern = chosen.pop("score", None)
    options = chosen | {"memory_limit": memory} | _named_scores(paths, pattern, scores, chosen)
    options |= {} if scheduler is None else {"client": scheduler}
    options |= {} if spill is None else {"spill": spill}
    return Way(engine or "local", options, reason)


def _named_scores(
    paths: list[str], pattern: str | None, scores: Sequence[str] | None, columns: dict[str, Any]
) -> dict[str, Any]:
    """`--scores`, as columns where `--score` names those in another way."""
    if pattern is None:
        return {"score": None if scores is None else list(scores)}
    from uqeval.distributed.memory import score_columns

    found = score_columns(paths, pattern, **columns)
    asked = list(found) if scores is None else list(scores)
    return {"score": [found.get(name, name) for name in asked], "names": {found[k]: k for k in asked if k in found}}


@contextmanager
def running(status: Console, way: Way | None = None, quiet: bool = False) -> Iterator[Reporter]:
    """A bar for each stage on stderr, as a callable(stage, done, total); SIGTERM inside cleans up first."""
    if way is not None and way.reason is not None and not quiet:
        note = f"{way.reason}: reading piece by piece (--engine memory reads all)"
        stderr().print(Text(note, style="yellow"), soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows"),
        TimeRemainingColumn(),
    )
    with _ended_by_signal(), Progress(*columns, console=status, transient=True, disable=status.quiet) as progress:
        tasks: dict[str, Any] = {}

        def told(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[stage] = progress.add_task(stage)
            progress.update(tasks[stage], completed=done, total=total)

        yield told


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
