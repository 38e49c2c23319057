"""`uqeval reproduce`: the paper's experiments, one command each; a stopped run goes on where it was."""

from __future__ import annotations

import json as codec
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from uqeval._errors import InputError, MissingExtra
from uqeval._result import strict
from uqeval.cli import options as o
from uqeval.cli import reproduce_real as real
from uqeval.cli.output import stdout, write_json
from uqeval.cli.reproduce_parts import (
    Clock,
    Jobs,
    Out,
    make_folder,
    print_end,
    print_table,
    print_verdicts,
    resumable,
)

__all__ = ["reproduce"]

reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's experiments again: tables, figures, a page.")


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
    make_folder(out)
    from uqeval import reproduce as library
    from uqeval.reproduce import page, panels
    from uqeval.reproduce.synthetic import figures

    clock = Clock(quiet or json == "-")
    with resumable():
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
    print_table(console, "Pearson correlations: median and range over draws", head, rows)
    good, bad = page.verdicts(study)
    print_verdicts(console, good, bad)
    print_end(console, clock, {"page": path, "tables": out / "table.csv", "figures": out / "figures"})


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
    make_folder(out)
    from uqeval import reproduce as library
    from uqeval.reproduce import page, panels
    from uqeval.reproduce.synthetic import scene_figures

    clock = Clock(quiet or json == "-")
    with resumable():
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
    print_table(console, "Lowest and highest value over all temperatures", head, [(row, "") for row in result.lines()])
    for note in result.notes:
        console.print(Text(f"- {note}"))
    print_end(console, clock, {"page": path, "tables": out / "table.csv", "figures": out / "figures"})


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
    make_folder(out)
    from uqeval import reproduce as library

    clock = Clock(quiet or json == "-")
    with resumable():
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
    print_table(console, result.headline(), ["in the paper", "claim", ""], rows, last=True)
    print_end(console, clock, {"numbers and corrected statements": out / "theorems.md"})


reproduce.command()(real.cifar10h)
reproduce.command("imagenet-real")(real.imagenet_real)
reproduce.command()(real.oasst2)


# ---- parts -----------------------------------------------------------------------------------------------------


def _needs_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtra("uqeval reproduce", "torch", "torch")


def _ends(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--d-range must be two numbers, as 0.75,2.4; it is {text!r}.") from None
    if not 0 <= low < high:
        raise InputError(f"--d-range must run from a smaller to a larger distance; it is {text!r}.")
    return low, high
