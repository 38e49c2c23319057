"""`uqeval reproduce`: the paper's experiments, one command each; a stopped run goes on where it was.

Parses, calls, prints: the studies write their folders themselves. Those on real data are in `reproduce_human`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._errors import InputError, MissingExtra
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, stderr, stdout, write_json
from uqeval.cli.progress import bars

if TYPE_CHECKING:
    from uqeval._result import Grid

__all__ = ["Out", "needs", "reproduce", "running", "show"]

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments again: tables, figures, a page.")

Out = Annotated[Path, o.option("Folder for everything that is written.", metavar="DIR")]
_STYLES = {"holds": "green", "holds in part": "yellow", "fails": "red", "What reproduces": "bold green"}


@reproduce.command()
def synthetic(
    out: Out = Path("uqeval-synthetic"),
    seeds: Annotated[int, o.option("Draws of the data.", min=1)] = 20,
    d_range: Annotated[str, o.option("Only draws whose means lie this far apart.", metavar="LOW,HIGH")] = "0.75,2.4",
    any_d: Annotated[bool, o.option("Draws as they come.", "--any-d")] = False,
    methods: Annotated[str, o.option("Names by comma; paper: those of the grid; all: these and others.")] = "paper",
    jobs: Annotated[int | None, o.option("Processes; all cores by default.", min=1)] = None,
    grid: Annotated[Path | None, o.option("Another grid of models (TOML).", metavar="FILE")] = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the truth does? Needs torch.

    Writes table.json, .csv and .md, figures and index.html. Run the same command again to go on after a stop.

    Methods: softmax, ensemble, dropout, temperature, tta, evidential, bayesian, sngp, swag, meta.

    Example:  uqeval reproduce synthetic --seeds 20 --methods all --out study
    """
    ends = None if any_d else _ends(d_range)
    needs("uqeval reproduce", "torch", "torch")
    how: dict[str, Any] = {"seeds": seeds, "d_range": ends, "methods": methods, "grid": grid, "jobs": jobs}
    with running(out, quiet, json) as progress:
        study = uqeval.reproduce.synthetic(out, **how, progress=progress)
    show(study, out, quiet, json, *study.method_grids())


@reproduce.command()
def temperature(
    out: Out = Path("uqeval-temperature"),
    seed: Annotated[int, o.option("Draw of the data and of the networks.", min=0)] = 1,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """Temperature scaling: UQ-AUC and UQ-C-index stay, ECE moves; and where that fails. Needs torch.

    Writes table.json, .csv and .md, a figure and index.html.

    Example:  uqeval reproduce temperature --out temperature
    """
    needs("uqeval reproduce", "torch", "torch")
    with running(out, quiet, json) as progress:
        study = uqeval.reproduce.temperature(out, seed=seed, progress=progress)
    show(study, out, quiet, json)


@reproduce.command()
def theorems(
    out: Out = Path("uqeval-theorems"),
    seed: Annotated[int, o.option("For the random populations.", min=0)] = 0,
    populations: Annotated[int, o.option("Random populations that each claim is tried on.", min=1)] = 200,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """The paper's theorems on random populations: which hold, which fail, what is true instead.

    Writes table.json, .csv and .md, a figure and index.html, with the numbers and the corrected statements.

    Example:  uqeval reproduce theorems --out theorems
    """
    with running(out, quiet, json) as progress:
        study = uqeval.reproduce.theorems(out, seed=seed, populations=populations, progress=progress)
    show(study, out, quiet, json)


@reproduce.command()
def ood(
    out: Out = Path("uqeval-ood"),
    seeds: Annotated[int, o.option("Draws of the data.", min=1)] = 20,
    jobs: Annotated[int | None, o.option("Processes; all cores by default.", min=1)] = None,
    grid: Annotated[Path | None, o.option("Another grid of models (TOML).", metavar="FILE")] = None,
    quiet: o.Quiet = False,
    json: o.Json = None,
) -> None:
    """The paper's appendix on out-of-distribution inputs: which scores find foreign inputs, and does the distance
    C-index, which needs none, tell? Needs torch.

    Writes table.json, .csv and .md, models.csv, figures and index.html. Run it again to go on after a stop.

    Example:  uqeval reproduce ood --seeds 20 --out ood
    """
    needs("uqeval reproduce", "torch", "torch")
    with running(out, quiet, json) as progress:
        study = uqeval.reproduce.ood(out, seeds=seeds, grid=grid, jobs=jobs, progress=progress)
    show(study, out, quiet, json)


# ---- what all studies share --------------------------------------------------------------------------------------


def needs(what: str, package: str, extra: str) -> None:
    """An error where a package is not installed, before anything is made."""
    if find_spec(package) is None:
        raise MissingExtra(what, package, extra)


@contextmanager
def running(out: Path, quiet: bool, json: str | None = None) -> Iterator[Any]:
    """The folder, a progress bar as a callable(stage, done, total); Ctrl-C ends with one line and exit code 130."""
    check_outputs({"--json": json})
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: that is a file. Name a folder.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {out}: the folder cannot be made ({error.strerror}).") from None
    try:
        with bars(quiet or json == "-") as progress:
            yield progress
    except KeyboardInterrupt:
        stderr().print("Stopped. What is finished is kept: run the same command again to go on.")
        raise typer.Exit(130) from None


def show(study: Any, out: Path, quiet: bool, json: str | None, *more: Grid | str) -> None:
    """The table and what comes after it, what does and does not reproduce, times, and the files."""
    if json is not None:
        write_json(study.to_json(), json)
    if json == "-" or quiet:
        return
    console = stdout()
    for part in (study.grid(), *more):
        console.print(
            Text(part, style="dim") if isinstance(part, str) else _table(part), soft_wrap=isinstance(part, str)
        )
    for title, lines in study.page().short:
        if lines:
            console.print(Text(title, style=_STYLES.get(title, "bold yellow")))
            console.print(*(Text(f"- {line}") for line in lines), sep="\n")
    for line in (f"time: {study.timing}", *study.timing.remarks()):
        console.print(Text(line, style="dim"))
    paths = {"page": "index.html", "tables": "table.csv", "models": "models.csv", "figures": "figures"}
    for name, path in paths.items():
        if (out / path).exists():
            console.print(Text.assemble((f"{name}: ", "bold"), str(out / path)), soft_wrap=True)


def _table(grid: Grid) -> Table:
    """Rows that are not ours are dim, verdicts have their colour."""
    caption = Text(grid.caption or "")
    table = Table(title=caption, title_justify="left", title_style="bold", header_style="bold", padding=(0, 1))
    for name in grid.head:
        table.add_column(Text(name), overflow="fold")
    for row in grid.rows:
        style = "dim italic" if row[0] in grid.marked else ""
        table.add_row(*(Text(cell, style=_STYLES.get(cell, style)) for cell in row))
    return table


def _ends(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--d-range must be two numbers, as 0.75,2.4; it is {text!r}.") from None
    if not 0 <= low < high:
        raise InputError(f"--d-range must run from a smaller to a larger distance; it is {text!r}.")
    return low, high
