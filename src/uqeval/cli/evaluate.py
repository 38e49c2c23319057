"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated

import typer

import uqeval
from uqeval._errors import InputError, UQWarning
from uqeval.cli.output import print_evaluation, stderr, write_json

__all__ = ["evaluate", "listed"]

_COLUMNS = "Columns"


def listed(values: list[str] | None) -> list[str] | None:
    """Names given as `--scores a,b --scores c`."""
    if not values:
        return None
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def evaluate(
    predictions: Annotated[
        list[str], typer.Argument(help="CSV, Parquet, Arrow/Feather, JSON lines or NPZ; or a glob.")
    ],
    scores: Annotated[
        list[str] | None, typer.Option(help="Scores to judge, by comma; all that the file allows by default.")
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option(help="Metrics, by comma; all that the file allows by default.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Column of groups to report apart, as a hospital.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column of independent units, as a patient id.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
    json: Annotated[
        str | None, typer.Option(help="Write JSON to this file, or '-' for stdout.", metavar="FILE|-")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table and no progress.")] = False,
    label: Annotated[str, typer.Option(help="Column of the true class.", rich_help_panel=_COLUMNS)] = "label",
    prob: Annotated[
        str, typer.Option(help="Columns of probabilities; * is the class.", rich_help_panel=_COLUMNS)
    ] = "prob_*",
    logit: Annotated[str, typer.Option(help="Columns of logits.", rich_help_panel=_COLUMNS)] = "logit_*",
    member: Annotated[
        str, typer.Option(help="Columns of member probabilities.", rich_help_panel=_COLUMNS)
    ] = "member*_prob_*",
    soft: Annotated[str, typer.Option(help="Columns of soft labels.", rich_help_panel=_COLUMNS)] = "soft_*",
    score: Annotated[str, typer.Option(help="Columns of your own scores.", rich_help_panel=_COLUMNS)] = "score_*",
    pred: Annotated[str, typer.Option(help="Column of the predicted class.", rich_help_panel=_COLUMNS)] = "pred",
    error: Annotated[str, typer.Option(help="Column of 0/1 errors.", rich_help_panel=_COLUMNS)] = "error",
    loss: Annotated[str, typer.Option(help="Column of losses.", rich_help_panel=_COLUMNS)] = "loss",
    weight: Annotated[str, typer.Option(help="Column of row weights.", rich_help_panel=_COLUMNS)] = "weight",
    classes: Annotated[
        list[str] | None, typer.Option(help="Class names in order, by comma.", rich_help_panel=_COLUMNS)
    ] = None,
    normalize: Annotated[
        bool, typer.Option(help="Divide probabilities and votes by their row sums.", rich_help_panel=_COLUMNS)
    ] = False,
    seed: Annotated[int, typer.Option(help="For intervals that draw random numbers.")] = 0,
) -> None:
    """How well each score ranks errors, with intervals.

    Example:  uqeval evaluate preds.parquet --scores entropy,margin --by hospital --cluster patient --json out.json
    """
    columns = {
        "label": label,
        "prob": prob,
        "logit": logit,
        "member": member,
        "soft": soft,
        "score": score,
        "pred": pred,
        "error": error,
        "loss": loss,
        "weight": weight,
        "group": by or "group",
        "cluster": cluster or "cluster",
    }
    # What is not chosen on the command line keeps the library's default, which also matches other spellings.
    chosen = {name: value for name, value in columns.items() if value != _DEFAULTS[name]}
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    with status.status("Reading…") as progress:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", UQWarning)
            found = uqeval.read_predictions(
                predictions if len(predictions) > 1 else predictions[0],
                classes=listed(classes),
                normalize=normalize,
                **chosen,
            )
        if by is not None and found.groups is None:
            raise InputError(f"--by {by}: the file has no such column.")
        if cluster is not None and found.clusters is None:
            raise InputError(f"--cluster {cluster}: the file has no such column.")
        progress.update(f"Evaluating {found.n:,} rows…")
        ev = uqeval.evaluate(found, scores=listed(scores), metrics=listed(metrics), level=level, seed=seed)
    notes = tuple(str(w.message) for w in raised if issubclass(w.category, UQWarning))
    ev = replace(ev, warnings=(*notes, *ev.warnings))
    if json is not None:
        write_json(ev.to_json(), json)
    if json != "-" and not quiet:
        print_evaluation(ev)


_DEFAULTS = {
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
}
