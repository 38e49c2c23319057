"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import uqeval
from uqeval._errors import InputError

_COLUMNS = "Columns"


def _column(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=_COLUMNS)


Files = Annotated[list[str], typer.Argument(help="CSV, Parquet, Arrow/Feather, JSON lines or NPZ; or a glob.")]
Scores = Annotated[
    list[str] | None, typer.Option(help="Scores to judge, by comma; all that the file allows by default.")
]
By = Annotated[str | None, typer.Option(help="Column of groups to report apart, as a hospital.")]
Cluster = Annotated[str | None, typer.Option(help="Column of independent units, as a patient id.")]
Level = Annotated[float, typer.Option(help="Confidence level.")]
Json = Annotated[str | None, typer.Option(help="Write JSON to this file, or '-' for stdout.", metavar="FILE|-")]
Html = Annotated[str | None, typer.Option(help="Write a one-page report to this file.", metavar="FILE")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No table and no progress.")]
Tie = Annotated[str, typer.Option(help="Rows whose soft labels tie: drop, or error (count as misaligned).")]
Seed = Annotated[int, typer.Option(help="For what draws random numbers.")]
Label = Annotated[str, _column("Column of the true class.")]
Prob = Annotated[str, _column("Columns of probabilities; * is the class.")]
Logit = Annotated[str, _column("Columns of logits.")]
Member = Annotated[str, _column("Columns of member probabilities.")]
Soft = Annotated[str, _column("Columns of soft labels.")]
Score = Annotated[str, _column("Columns of your own scores.")]
Pred = Annotated[str, _column("Column of the predicted class.")]
Error = Annotated[str, _column("Column of 0/1 errors.")]
Loss = Annotated[str, _column("Column of losses.")]
Weight = Annotated[str, _column("Column of row weights.")]
Classes = Annotated[list[str] | None, _column("Class names in order, by comma.")]
Normalize = Annotated[bool, _column("Divide probabilities and votes by their row sums.")]

DEFAULTS = {
    "label": "label",
    "prob": "prob_*",
    "logit": "logit_*",
    "member": "member*_prob_*",
    "soft": "soft_*",
    "score": "score_*",
    "pred": "pred",
    "error": "error",
    "loss": "loss",
    "weight": "weight",
    "group": "group",
    "cluster": "cluster",
    "id": "id",
}


def listed(values: list[str] | None) -> list[str] | None:
    """Names given as `--scores a,b --scores c`."""
    if not values:
        return None
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def read(
    paths: list[str], *, by: str | None, cluster: str | None, classes: list[str] | None, normalize: bool, **columns: str
) -> uqeval.Predictions:
    """Predictions from files, with the columns that the command line names."""
    columns |= {"group": by or "group", "cluster": cluster or "cluster"}
    # What is not chosen on the command line keeps the library's default, which also matches other spellings.
    chosen: dict[str, Any] = {name: value for name, value in columns.items() if value != DEFAULTS[name]}
    found = uqeval.read_predictions(
        paths if len(paths) > 1 else paths[0], classes=listed(classes), normalize=normalize, **chosen
    )
    if by is not None and found.groups is None:
        raise InputError(f"--by {by}: the file has no such column.")
    if cluster is not None and found.clusters is None:
        raise InputError(f"--cluster {cluster}: the file has no such column.")
    return found


@contextmanager
def bar(console: Console, title: str | None = None) -> Iterator[Any]:
    """A progress bar as a callable(stage, done, total); without a title it shows the stage."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as progress:
        task = progress.add_task(title or "")
        yield lambda stage, done, total: progress.update(
            task, description=title or stage.capitalize(), completed=done, total=total
        )
