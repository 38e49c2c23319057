"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated, Any

import typer

import uqeval
from uqeval._errors import InputError, UQWarning
from uqeval.cli import options as o
from uqeval.cli.output import print_evaluation, stderr, stdout, write_json
from uqeval.inputs.extra import read_columns

__all__ = ["evaluate"]


def evaluate(
    predictions: o.Files,
    scores: o.Scores = None,
    metrics: Annotated[
        list[str] | None, typer.Option(help="Metrics, by comma; all that the file allows by default.")
    ] = None,
    by: o.By = None,
    cluster: o.Cluster = None,
    level: o.Level = 0.95,
    method: Annotated[str, typer.Option(help="default, or bootstrap for percentile intervals.")] = "default",
    resamples: Annotated[int, typer.Option(help="For the bootstrap.")] = 2000,
    html: o.Html = None,
    max_risk: Annotated[float, typer.Option(help="The risk that the report's verdict speaks of.")] = 0.05,
    columns: Annotated[
        list[str] | None, typer.Option(help="Further columns beside the report's confident mistakes, by comma.")
    ] = None,
    json: o.Json = None,
    quiet: o.Quiet = False,
    seed: o.Seed = 0,
    label: o.Label = "label",
    prob: o.Prob = "prob_*",
    logit: o.Logit = "logit_*",
    member: o.Member = "member*_prob_*",
    soft: o.Soft = "soft_*",
    score: o.Score = "score_*",
    pred: o.Pred = "pred",
    error: o.Error = "error",
    loss: o.Loss = "loss",
    weight: o.Weight = "weight",
    classes: o.Classes = None,
    normalize: o.Normalize = False,
) -> None:
    """How well each score ranks errors, with intervals.

    Example:  uqeval evaluate preds.parquet --scores entropy,margin --by hospital --cluster patient --html report.html
    """
    names = {"label": label, "prob": prob, "logit": logit, "member": member, "soft": soft, "score": score}
    names |= {"pred": pred, "error": error, "loss": loss, "weight": weight}
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    with warnings.catch_warnings(record=True) as raised, status.status("Reading…"):
        warnings.simplefilter("always", UQWarning)
        found = o.read(predictions, by=by, cluster=cluster, classes=classes, normalize=normalize, **names)
    with o.bar(status, f"Evaluating {found.n:,} rows") as progress:
        ev = uqeval.evaluate(
            found,
            scores=o.listed(scores),
            metrics=o.listed(metrics),
            level=level,
            method=method,
            resamples=resamples,
            seed=seed,
            progress=progress,
        )
    notes = tuple(str(w.message) for w in raised if issubclass(w.category, UQWarning))
    ev = replace(ev, warnings=(*notes, *ev.warnings))
    if json is not None:
        write_json(ev.to_json(), json)
    if json != "-" and not quiet:
        print_evaluation(ev)
    if html is not None:
        with status.status("Writing the report…"):
            further = _further(predictions, o.listed(columns), found)
            uqeval.report(ev, html, max_risk=max_risk, columns=further)
        if json != "-" and not quiet:
            stdout().print(f"report: {html}", style="bold", markup=False)
    elif columns:
        raise InputError("--columns belong to the report. Add --html FILE.")


def _further(paths: list[str], names: list[str] | None, pred: uqeval.Predictions) -> dict[str, list[Any]] | None:
    """Columns beside the confident mistakes, of the rows that were evaluated."""
    if not names:
        return None
    table = read_columns(paths if len(paths) > 1 else paths[0], names)
    if pred.weights is None:
        return table
    return {name: [v for v, w in zip(values, pred.weights, strict=True) if w > 0] for name, values in table.items()}
