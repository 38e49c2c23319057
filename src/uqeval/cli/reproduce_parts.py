"""What the commands of `uqeval reproduce` share: stages with their times, going on after a stop, tables."""

from __future__ import annotations

import json as codec
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uqeval._errors import InputError
from uqeval.cli.output import stderr
from uqeval.cli.progress import bars

__all__ = ["Clock", "Jobs", "Out", "make_folder", "print_end", "print_table", "print_verdicts", "resumable"]

Out = Annotated[Path, typer.Option(help="Folder for everything that is written.", metavar="DIR")]
Jobs = Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)]


class Clock:
    """Times of stages, each with its progress bar."""

    def __init__(self, quiet: bool) -> None:
        self.spent: dict[str, float] = {}
        self.found: tuple[int, int] | None = None  # parts from an earlier run, and all
        self.console = stderr()
        self.console.quiet = quiet or not self.console.is_terminal

    @contextmanager
    def stage(self, name: str, resumes: bool = False) -> Iterator[Callable[[int, int], None]]:
        start = time.perf_counter()
        with bars(self.console.quiet) as progress:

            def noted(done: int, total: int) -> None:
                if resumes and self.found is None:
                    self.found = (done, total)
                progress(name, done, total)

            yield noted
        self.spent[name] = time.perf_counter() - start

    def remark(self) -> str | None:
        """What an earlier run had finished."""
        if not self.found or not self.found[0]:
            return None
        return f"{self.found[0]} of {self.found[1]} parts were there from an earlier run and cost no time in this one."

    def write(self, out: Path) -> None:
        """Beside the tables, never in them: they must not differ from run to run."""
        stages = {name: round(spent, 3) for name, spent in self.spent.items()}
        found, parts = self.found or (0, 0)
        whole = {"seconds": stages, "total": round(sum(self.spent.values()), 3), "parts": parts, "found": found}
        text = codec.dumps(whole, indent=1)
        (out / "timing.json").write_text(text + "\n", encoding="utf-8")

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.spent.items())
        return f"{stages}; {sum(self.spent.values()):.1f} s in all"


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends with one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        stderr().print("Stopped. What is finished is kept: run the same command again to go on.")
        raise typer.Exit(130) from None


def make_folder(out: Path) -> None:
    """Made where it is missing; an error names --out."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: that is a file. Name a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder cannot be made ({error.strerror}).") from None


def print_table(
    console: Console, title: str, head: list[str], rows: list[tuple[list[str], str]], last: bool = False
) -> None:
    """Lines with their style; with `last`, only their last cell is styled."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", header_style="bold", padding=(0, 1))
    for name in head:
        table.add_column(name, overflow="fold")
    for cells, style in rows:
        styles: list[Any] = [""] * (len(cells) - 1) + [style] if last else [style] * len(cells)
        table.add_row(*(Text(cell, style=own) for cell, own in zip(cells, styles, strict=True)))
    console.print(table)


def print_verdicts(console: Console, good: list[str], bad: list[str], **between: list[str]) -> None:
    """What reproduces and what does not; `between` are lines under titles of their own."""
    middle = [(title, lines, "yellow") for title, lines in between.items()]
    for title, lines, style in [("What reproduces", good, "green"), *middle, ("What does not", bad, "yellow")]:
        if not lines:
            continue
        console.print(Text(title, style=f"bold {style}"))
        for line in lines:
            console.print(Text(f"- {line}"))


def print_end(console: Console, clock: Clock, paths: dict[str, Path]) -> None:
    """Times, and where things are."""
    console.print(Text(f"time: {clock}", style="dim"))
    if remark := clock.remark():
        console.print(Text(remark, style="dim"))
    for name, path in paths.items():
        console.print(Text.assemble((f"{name}: ", "bold"), str(path)), soft_wrap=True)
