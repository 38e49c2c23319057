"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

import uqeval
from uqeval._errors import InputError, UQWarning
from uqeval.cli import engines as e
from uqeval.cli import options as o
from uqeval.cli.output import print_bounds, print_evaluation, stderr, stdout, write_json
from uqeval.distributed.memory import evaluate_files, usual_memory
from uqeval.inputs.further import read_columns

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
    engine: e.Engine = None,
    memory: e.Memory = None,
    scheduler: e.Scheduler = None,
    spill: e.Spill = None,
    approx: e.Approx = None,
) -> None:
    """How well each score ranks errors, with intervals.

    Example:  uqeval evaluate preds.parquet --scores entropy,margin --by hospital --cluster patient --html report.html

    Example:  uqeval evaluate "preds/*.parquet" --scores entropy --engine local --memory 2GB
    """
    names = {"label": label, "prob": prob, "logit": logit, "member": member, "soft": soft, "score": score}
    names |= {"pred": pred, "error": error, "loss": loss, "weight": weight}
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    chosen: dict[str, Any] = {
        "memory": memory,
        "scheduler": scheduler,
        "spill": spill,
        "classes": classes,
        "normalize": normalize,
        **names,
    }
    if columns and html is None:
        raise InputError("--columns belong to the report. Add --html FILE.")
    if approx is not None:
        given = {"by": by, "cluster": cluster, "html": html, "scheduler": scheduler, "spill": spill}
        given |= {"method": None if method == "default" else method}
        _bounds(predictions, approx, o.listed(scores), metrics, engine, given, chosen, json, quiet)
        return
    way = e.choose(engine, predictions, scores=o.listed(scores), **chosen)
    if way is not None:
        if method != "default" or columns:
            raise InputError("--method and --columns need all rows in memory. Leave them out, or pass --engine memory.")
        with e.running(status, way, quiet) as told:
            made = evaluate_files(
                predictions,
                metrics=o.listed(metrics),
                by=by,
                cluster=cluster,
                level=level,
                seed=seed,
                engine=way.engine,
                progress=told,
                **way.options,
            )
        _show(made, status, json, quiet, html, max_risk, None)
        if json != "-" and not quiet:
            stdout().print(str(made.run), style="dim", markup=False)
        return
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
    further = _further(predictions, o.listed(columns), found) if html is not None else None
    _show(ev, status, json, quiet, html, max_risk, further)


def _show(
    ev: uqeval.Evaluation,
    status: Console,
    json: str | None,
    quiet: bool,
    html: str | None,
    max_risk: float,
    further: Any,
) -> None:
    """The table, the JSON, the report."""
    if json is not None:
        write_json(ev.to_json(), json)
    if json != "-" and not quiet:
        print_evaluation(ev)
    if html is not None:
        with status.status("Writing the report…"):
            uqeval.report(ev, html, max_risk=max_risk, columns=further)
        if json != "-" and not quiet:
            stdout().print(f"report: {html}", style="bold", markup=False)


def _bounds(
    paths: list[str],
    approx: float,
    scores: list[str] | None,
    metrics: list[str] | None,
    engine: str | None,
    given: dict[str, str | None],
    chosen: dict[str, Any],
    json: str | None,
    quiet: bool,
) -> None:
    """One pass: bounds that are certain for these rows."""
    from uqeval.distributed.bounds.files import approx_scores

    if engine not in (None, "local") or metrics:
        raise InputError(
            "--approx reads files of this machine and knows its metrics. Leave --engine and --metrics out."
        )
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--approx gives bounds of all rows in one pass: leave --{name} out.")
    way = e.choose("local", paths, scores=scores, **chosen)
    assert way is not None
    names = way.options.pop("names", {})
    limit = way.options.pop("memory_limit") or usual_memory()
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    with e.running(status) as told:
        found = approx_scores(paths, approx=approx, memory_limit=limit, progress=told, **way.options)
    found = replace(found, scores={names.get(f"{k}", k): v for k, v in found.scores.items()})
    if json is not None:
        write_json(found.to_json(), json)
    if json != "-" and not quiet:
        print_bounds(found)


def _further(paths: list[str], names: list[str] | None, pred: uqeval.Predictions) -> dict[str, list[Any]] | None:
    """Columns beside the confident mistakes, of the rows that were evaluated."""
    if not names:
        return None
    table = read_columns(paths if len(paths) > 1 else paths[0], names)
    if pred.weights is None:
        return table
    return {name: [v for v, w in zip(values, pred.weights, strict=True) if w > 0] for name, values in table.items()}
