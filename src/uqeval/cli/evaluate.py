"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated

import typer

import uqeval
from uqeval._errors import UQWarning
from uqeval.cli import options as o
from uqeval.cli.output import print_evaluation, stderr, write_json

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

    Example:  uqeval evaluate preds.parquet --scores entropy,margin --by hospital --cluster patient --json out.json
    """
    columns = {"label": label, "prob": prob, "logit": logit, "member": member, "soft": soft, "score": score}
    columns |= {"pred": pred, "error": error, "loss": loss, "weight": weight}
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    with status.status("Reading…") as progress:
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", UQWarning)
            found = o.read(predictions, by=by, cluster=cluster, classes=classes, normalize=normalize, **columns)
        progress.update(f"Evaluating {found.n:,} rows…")
        chosen = {"scores": o.listed(scores), "metrics": o.listed(metrics)}
        ev = uqeval.evaluate(found, **chosen, level=level, method=method, resamples=resamples, seed=seed)  # type: ignore[arg-type]
    notes = tuple(str(w.message) for w in raised if issubclass(w.category, UQWarning))
    ev = replace(ev, warnings=(*notes, *ev.warnings))
    if json is not None:
        write_json(ev.to_json(), json)
    if json != "-" and not quiet:
        print_evaluation(ev)
