"""`uqeval compare`: which score (or model) is better, and could it be chance?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._errors import InputError, UQWarning
from uqeval.cli import engines as e
from uqeval.cli import options as o
from uqeval.cli.output import stderr, stdout, write_json
from uqeval.distributed.memory import compare_files
from uqeval.evaluation.comparison import Comparison

__all__ = ["compare", "print_comparison"]


def compare(
    predictions: Annotated[
        list[str],
        typer.Argument(help="One file: its scores are compared. Several files: a model each, on the same rows."),
    ],
    metric: Annotated[str, typer.Option(help="What to compare, by comma.")] = "uq_auc",
    scores: o.Scores = None,
    baseline: Annotated[str | None, typer.Option(help="Compare all others with this one only.")] = None,
    adjust: Annotated[str, typer.Option(help="For several pairs: max-t, holm or none.")] = "max-t",
    key: Annotated[str | None, typer.Option(help="Column that says which rows of the files belong together.")] = None,
    by: o.By = None,
    cluster: o.Cluster = None,
    level: o.Level = 0.95,
    method: Annotated[str, typer.Option(help="influence (default) or bootstrap.")] = "influence",
    resamples: Annotated[int, typer.Option(help="For the bootstrap.")] = 2000,
    html: o.Html = None,
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
) -> None:
    """Paired differences with intervals and p-values.

    Example:  uqeval compare preds.parquet --scores entropy,margin,mutual_information --baseline entropy

    Example:  uqeval compare a.csv b.csv --key id --scores entropy --metric uq_auc,aurc
    """
    columns = {"label": label, "prob": prob, "logit": logit, "member": member, "soft": soft, "score": score}
    columns |= {"pred": pred, "error": error, "loss": loss, "weight": weight, "id": key or "id"}
    status = stderr()
    status.quiet = quiet or not status.is_terminal
    asked, chosen = o.listed(scores), o.listed([metric]) or []
    if not chosen:
        raise InputError("--metric names no metric.")
    if html is not None and len(chosen) > 1:
        raise InputError("--html shows one metric. Name one with --metric.")
    how: dict[str, Any] = {
        "memory": memory,
        "scheduler": scheduler,
        "spill": spill,
        "classes": classes,
        "normalize": normalize,
        **columns,
    }
    several = len(predictions) > 1 and engine is None  # models are compared in memory
    way = None if several else e.choose(engine, predictions, scores=asked, **how)
    if way is not None:
        if len(predictions) > 1 or method != "influence":
            raise InputError(
                "Models and --method bootstrap are compared in memory only. An engine compares scores of one source "
                "(several files: one pattern in quotes)."
            )
        with e.running(status, way, quiet) as told:
            made = [
                compare_files(
                    predictions[0],
                    metric=name,
                    baseline=baseline,
                    adjust=adjust,
                    by=by,
                    cluster=cluster,
                    level=level,
                    seed=seed,
                    engine=way.engine,
                    progress=told,
                    **way.options,
                )
                for name in chosen
            ]
        _show(made, json, quiet, html)
        if json != "-" and not quiet:
            for one in made:
                stdout().print(str(one.run), style="dim", markup=False)
        return
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UQWarning)
        found = {
            path: o.read([path], by=by, cluster=cluster, classes=classes, normalize=normalize, **columns)
            for path in predictions
        }
    notes = tuple(dict.fromkeys(str(w.message) for w in raised if issubclass(w.category, UQWarning)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)  # the results hold them
        if len(found) < len(predictions):
            raise InputError("A file is named twice. Name each model once.")
        candidates: object = found[predictions[0]]
        if len(found) > 1:
            candidates = _joined(found, key)
        with o.bar(status, "Comparing") as progress:
            results = [
                uqeval.compare(
                    candidates,
                    scores=asked,
                    metric=name,
                    baseline=baseline,
                    adjust=adjust,
                    level=level,
                    method=method,
                    resamples=resamples,
                    seed=seed,
                    progress=progress if method == "bootstrap" else None,
                )
                for name in chosen
            ]
    _show([replace(result, warnings=(*notes, *result.warnings)) for result in results], json, quiet, html)


def _show(results: Sequence[Comparison], json: str | None, quiet: bool, html: str | None) -> None:
    """The table, the JSON, the report."""
    if json is not None:
        text = results[0].to_json() if len(results) == 1 else "[" + ",\n".join(r.to_json() for r in results) + "]"
        write_json(text, json)
    if json != "-" and not quiet:
        for result in results:
            print_comparison(result)
    if html is not None:
        uqeval.report(results[0], html)
        if json != "-" and not quiet:
            stdout().print(f"report: {html}", style="bold", markup=False)


def _joined(found: dict[str, uqeval.Predictions], key: str | None) -> dict[str, uqeval.Predictions]:
    """Models by short name, their rows in the same order."""
    stems = {path: Path(path).stem for path in found}
    names = {path: stem if list(stems.values()).count(stem) == 1 else path for path, stem in stems.items()}
    if key is None:
        return {names[path]: pred for path, pred in found.items()}
    (first, reference), *rest = found.items()
    joined = {names[first]: reference}
    places = _places(first, reference, key)
    for path, pred in rest:
        other = _places(path, pred, key)
        missing, extra = places.keys() - other.keys(), other.keys() - places.keys()
        if missing or extra:
            example = sorted(missing or extra)[0]
            raise InputError(
                f"--key {key}: {len(missing)} rows of {first} are not in {path}, and {len(extra)} the other way round "
                f"(first: {example}). Give every model the same rows."
            )
        joined[names[path]] = pred.take(np.array([other[name] for name in places]))
    return joined


def _places(path: str, pred: uqeval.Predictions, key: str) -> dict[str, int]:
    if pred.ids is None:
        raise InputError(f"{path}: --key {key}: the file has no such column.")
    places = {str(name): k for k, name in enumerate(pred.ids)}
    if len(places) < pred.n:
        raise InputError(f"{path}: --key {key}: {pred.n - len(places)} rows repeat a key. Keys must be unique.")
    return places


def print_comparison(result: Comparison, console: Console | None = None) -> None:
    """Headline, verdict, values, pairs, who cannot be told apart."""
    out = console or stdout()
    out.print(Text(result.headline(), style="bold"))
    for line in result.verdict():
        out.print(Text(line, style="cyan"))
    table = Table(header_style="bold", padding=(0, 1))
    table.add_column("difference", overflow="fold")
    for head in ("value (interval)", "p", "adjusted p"):
        table.add_column(head, no_wrap=True)
    for row, cells in zip(result.rows, result.lines(), strict=True):
        style = "bold green" if row.p_adjusted <= 1 - result.level else ""
        table.add_row(*(Text(cell, style=style) for cell in cells))
    out.print(table)
    if result.baseline is None and result.groups():
        out.print("not shown to differ (each line), best first:", style="bold")
        for group in result.groups():
            out.print(Text("  " + " · ".join(f"{name} {result.values[name]:.3f}" for name in group)))
    for (a, b), p in result.heterogeneity.items():
        if p <= 1 - result.level:
            out.print(Text(f"! {a} − {b} differs between groups (p = {p:.4f})", style="yellow"))
    for note in result.warnings:
        out.print(Text(f"! {note}", style="yellow"))
