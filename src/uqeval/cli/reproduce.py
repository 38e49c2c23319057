"""`uqeval reproduce`: the paper's experiments, one command each; a stopped run goes on where it was."""

from __future__ import annotations

import json as codec
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uqeval._errors import InputError, MissingExtra
from uqeval.cli import options as o
from uqeval.cli.output import stderr, stdout, write_json
from uqeval.inference.result import strict

__all__ = ["reproduce"]

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments again: tables, figures, a page.")
Out = Annotated[Path, typer.Option(help="Folder for everything that is written.", metavar="DIR")]
Jobs = Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)]


@reproduce.command()
def synthetic(
    out: Out = Path("uqeval-synthetic"),
    seeds: Annotated[int, typer.Option(help="Draws of the data.", min=1)] = 20,
    d_range: Annotated[
        str, typer.Option(help="Only draws whose means lie this far apart.", metavar="LOW,HIGH")
    ] = "0.75,2.4",
    any_d: Annotated[bool, typer.Option("--any-d", help="Draws as they come.")] = False,
    jobs: Jobs = None,
    grid: Annotated[Path | None, typer.Option(help="Another grid of models (TOML).", metavar="FILE")] = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the truth does? Needs torch.

    Writes table.json, .csv and .md, figures and index.html. Run the same command again to go on after a stop.

    Example:  uqeval reproduce synthetic --seeds 20 --out study
    """
    ends = None if any_d else _ends(d_range)
    _needs_torch()
    _folder(out)
    from uqeval import reproduce as library
    from uqeval.reproduce import figures, page, panels

    clock = _Clock(quiet or json == "-")
    with _resumable():
        with clock.stage("training and scoring", resumes=True) as progress:
            study = library.synthetic(out, seeds=seeds, d_range=ends, grid=grid, jobs=jobs, progress=progress)
        with clock.stage("temperature"):
            scaled = library.temperature()
        with clock.stage("figures") as progress:
            drawn = panels.save(figures.draw(study, scaled, progress), out)
        with clock.stage("page"):
            path = page.write_page(page.synthetic_page(study, drawn, clock.spent, clock.remark()), out)
        clock.write(out)
    if json is not None:
        write_json(codec.dumps(strict(study.to_dict()), indent=2), json)
    if json == "-" or quiet:
        return
    console = stdout()
    head = ["", *(f"with {title}" for title in ("κ(s; φ)", "κ(s; ϕ)"))]
    rows = [([label, *cells], "dim italic" if paper else "") for label, cells, paper in page.table_rows(study)]
    _print_table(console, "Pearson correlations: median and range over draws", head, rows)
    good, bad = page.verdicts(study)
    for title, lines, style in (("What reproduces", good, "green"), ("What does not", bad, "yellow")):
        console.print(Text(title, style=f"bold {style}"))
        for line in lines:
            console.print(Text(f"- {line}"))
    _print_end(console, clock, {"page": path, "tables": out / "table.csv", "figures": out / "figures"})


@reproduce.command()
def temperature(
    out: Out = Path("uqeval-temperature"),
    seed: Annotated[int, typer.Option(help="Draw of the data and of the networks.", min=0)] = 1,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """Temperature scaling: UQ-AUC and UQ-C-index stay, ECE moves; and where that fails. Needs torch.

    Writes table.json, .csv and .md, a figure and index.html.

    Example:  uqeval reproduce temperature --out temperature
    """
    _needs_torch()
    _folder(out)
    from uqeval import reproduce as library
    from uqeval.reproduce import page, panels, scene_figures

    clock = _Clock(quiet or json == "-")
    with _resumable():
        with clock.stage("training and scaling"):
            result = library.temperature(seed=seed)
            result.write(out)
        with clock.stage("figures"):
            drawn = panels.save({"temperature": scene_figures.temperature_chart(result)}, out)
        with clock.stage("page"):
            path = page.write_page(page.temperature_page(result, drawn, clock.spent), out)
        clock.write(out)
    if json is not None:
        write_json(codec.dumps(strict(result.to_dict()), indent=2), json)
    if json == "-" or quiet:
        return
    console = stdout()
    head = ["over all T", "UQ-AUC", "UQ-C-index", "ECE"]
    _print_table(console, "Lowest and highest value over all temperatures", head, [(row, "") for row in result.lines()])
    for note in result.notes:
        console.print(Text(f"- {note}"))
    _print_end(console, clock, {"page": path, "tables": out / "table.csv", "figures": out / "figures"})


@reproduce.command()
def theorems(
    out: Out = Path("uqeval-theorems"),
    seed: Annotated[int, typer.Option(help="For the random populations.", min=0)] = 0,
    populations: Annotated[int, typer.Option(help="Random populations that each claim is tried on.", min=1)] = 200,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """The paper's theorems on random populations: which hold, which fail, what is true instead.

    Writes theorems.md and theorems.json.

    Example:  uqeval reproduce theorems --out theorems
    """
    _folder(out)
    from uqeval import reproduce as library

    clock = _Clock(quiet or json == "-")
    with _resumable():
        with clock.stage("checks") as progress:
            result = library.theorems(out, seed=seed, populations=populations, progress=progress)
        clock.write(out)
    if json is not None:
        write_json(codec.dumps(strict(result.to_dict()), indent=2), json)
    if json == "-" or quiet:
        return
    console = stdout()
    styles = {"holds": "green", "holds in part": "yellow", "fails": "red"}
    rows = [([c.where, c.claim, c.verdict], styles[c.verdict]) for c in result.checks]
    _print_table(console, result.headline(), ["in the paper", "claim", ""], rows, last=True)
    _print_end(console, clock, {"numbers and corrected statements": out / "theorems.md"})


# ---- parts -----------------------------------------------------------------------------------------------------


class _Clock:
    """Times of stages, each with its progress bar."""

    def __init__(self, quiet: bool) -> None:
        self.spent: dict[str, float] = {}
        self.found: tuple[int, int] | None = None  # parts from an earlier run, and all
        self.console = stderr()
        self.console.quiet = quiet or not self.console.is_terminal

    @contextmanager
    def stage(self, name: str, resumes: bool = False) -> Iterator[Callable[[int, int], None]]:
        start = time.perf_counter()
        with o.bar(self.console, name.capitalize()) as progress:

            def noted(done: int, total: int) -> None:
                if resumes and self.found is None:
                    self.found = (done, total)
                progress(done, total)

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
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr().print("Stopped. What is finished is kept: run the same command again to go on.")
        raise typer.Exit(130) from None


def _needs_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtra("uqeval reproduce", "torch", "torch")


def _folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: that is a file. Name a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder cannot be made ({error.strerror}).") from None


def _ends(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--d-range must be two numbers, as 0.75,2.4; it is {text!r}.") from None
    if not 0 <= low < high:
        raise InputError(f"--d-range must run from a smaller to a larger distance; it is {text!r}.")
    return low, high


def _print_table(
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


def _print_end(console: Console, clock: _Clock, paths: dict[str, Path]) -> None:
    console.print(Text(f"time: {clock}", style="dim"))
    if remark := clock.remark():
        console.print(Text(remark, style="dim"))
    for name, path in paths.items():
        console.print(Text.assemble((f"{name}: ", "bold"), str(path)), soft_wrap=True)
