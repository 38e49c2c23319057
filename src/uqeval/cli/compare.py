"""`uqeval compare`: which score (or model) is better, and could it be chance?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._errors import InputError, collected, notify
from uqeval._files import identity
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, in_options, print_read_as, refuse_undefined, stdout, write_json
from uqeval.cli.pages import check_pdf, write_pages
from uqeval.cli.progress import bars, status_console
from uqeval.cli.told import provenance, write_csv


@o.with_columns
@o.with_engine
@o.with_logs
def compare(
    predictions: Annotated[
        list[str],
        typer.Argument(help="One file: its scores are compared. Several files: a model each, on the same rows."),
    ],
    metric: Annotated[
        list[str] | None,
        o.option("What to compare, by comma or one by one; uq_auc by default.", "--metric", "--metrics"),
    ] = None,
    scores: o.Scores = None,
    baseline: Annotated[str | None, o.option("Compare all others with this one only.")] = None,
    adjust: Annotated[str, o.option("For several pairs: max-t, holm or none.")] = "max-t",
    key: Annotated[str | None, o.option("Column that says which rows of the files belong together.")] = None,
    by: o.By = None,
    cluster: o.Cluster = None,
    largest_cluster: o.LargestCluster = None,
    level: o.Level = 0.95,
    risk: o.Risk = None,
    method: Annotated[str, o.option("influence (default), bootstrap, or permutation (few errors).")] = "influence",
    resamples: Annotated[int, o.option("For the bootstrap and the permutation test.")] = 2000,
    html: o.Html = None,
    pdf: o.Pdf = None,
    json: o.Json = None,
    csv: o.Csv = None,
    strict: o.Strict = False,
    quiet: o.Quiet = False,
    seed: o.Seed = 0,
    *,
    columns: dict[str, Any],
    where: dict[str, Any],
    logs: dict[str, Any],
) -> None:
    """Paired differences with intervals and p-values.

    Example:  uqeval compare preds.parquet --scores entropy,margin,mutual_information --baseline entropy

    Example:  uqeval compare a.csv b.csv --key id --scores entropy --metric uq_auc,aurc

    Example:  uqeval compare runA/ runB/   (LLM logs: accuracy and uncertainty, paired by document)

    What `evaluate --json` wrote stands for the rows of an earlier test set: that is unpaired, and finds less.

    Example:  uqeval compare new.parquet old.json --scores entropy
    """
    check_outputs({"--json": json, "--html": html, "--pdf": pdf, "--csv": csv}, predictions)
    chosen = None if metric is None else list(dict.fromkeys(o.listed(metric) or []))
    check_pdf(pdf)
    how: dict[str, Any] = {
        "scores": o.listed(scores),
        "baseline": baseline,
        "adjust": adjust,
        "level": level,
        "risk": risk,
        "largest_cluster": largest_cluster,
    }
    how |= {"method": method, "resamples": resamples, "seed": seed}
    notes: list[str] = []
    stored = [path for path in predictions if o.is_stored(path)]
    source: Any = predictions[0]
    read: list[uqeval.Predictions] = []
    if stored:
        if key is not None or where or method != "influence" or largest_cluster is not None or risk is not None:
            raise InputError(
                f"{stored[0]} holds estimates and no rows: leave --key, --engine, --method, --risk and "
                f"--largest-cluster out, or name files of predictions."
            )
        chosen = _usual(read) if chosen is None else chosen
        asked: dict[str, Any] = {"by": by, "cluster": cluster, "seed": seed, "columns": columns}
        with status_console(quiet).status("Evaluating…"):
            source = _evaluations(predictions, chosen, how["scores"], level, asked)
        how = {name: how[name] for name in ("scores", "baseline", "adjust", "level")}
    elif len(predictions) > 1:
        if where:
            raise InputError(
                "Models are compared in memory only. An engine compares scores of one source (several files: one "
                "pattern in quotes)."
            )
        with collected() as notes:
            source = _models(predictions, key, by, cluster, columns, logs)
        read = list(source.values())
    else:
        columns |= {} if key is None else {"id": key}
        how |= {"by": by, "cluster": cluster, **where}
        if (answers := o.read_log(predictions, {**columns, "by": by, "cluster": cluster}, logs)) is not None:
            source, read = answers, [answers]
        else:
            how |= columns
    chosen = _usual(read) if chosen is None else chosen
    _check_metrics(chosen, html, pdf)
    with bars(quiet) as progress:
        results = [uqeval.compare(source, metric=name, progress=progress, **how) for name in chosen]
    results = [replace(result, warnings=tuple(dict.fromkeys((*notes, *result.warnings)))) for result in results]
    files = [file for pred in read for file in pred.files] or predictions
    # Files first: who reads the terminal may leave early.
    written = write_pages(results[0], html, pdf, files=files)
    if csv is not None:
        write_csv((row for result in results for row in result.frame_rows()), csv)
    if json is not None:
        beside = provenance(files, columns=columns, by=by, cluster=cluster, seed=seed, logs=[pred.log for pred in read])
        results = [replace(result, provenance=beside) for result in results]
        text = results[0].to_json() if len(results) == 1 else "[" + ",\n".join(r.to_json() for r in results) + "]"
        write_json(text, json)
    shown = json != "-" and not quiet
    for pred in () if quiet else read:
        print_read_as(pred, json)
    for result in results if shown else ():
        print_comparison(result)
    for path in written if shown else ():
        stdout().print(f"report: {path}", style="bold", markup=False)
    for result in results if shown else ():
        if result.run is not None:
            stdout().print(str(result.run), style="dim", markup=False)
    refuse_undefined([line for result in results for line in result.undefined_lines()] if strict else [])


def _usual(read: list[uqeval.Predictions]) -> list[str]:
    """What is compared by default: of models in logs how good they are too, for that is what logs are compared by."""
    if len(read) < 2 or not all(pred.read_as for pred in read):
        return ["uq_auc"]
    return ["accuracy", "uq_auc"] if all(pred.error is not None for pred in read) else ["selective_accuracy_80", "prr"]


def _check_metrics(chosen: list[str], html: str | None, pdf: str | None) -> None:
    if not chosen:
        raise InputError("--metric names no metric. Name one, as uq_auc.")
    for option, target in (("--html", html), ("--pdf", pdf)):
        if target is not None and len(chosen) > 1:
            raise InputError(f"{option} shows one metric. Name one with --metric.")


def _evaluations(
    paths: list[str], metrics: list[str], scores: list[str] | None, level: float, asked: dict[str, Any]
) -> dict[str, uqeval.Evaluation]:
    """Of each path: an evaluation that was stored, or one made now, with what tells whether their rows are the same."""
    found = {}
    for path in paths:
        if o.is_stored(path):
            found[path] = o.stored_evaluation(path)
            continue
        options, keys = asked["columns"], {name: asked[name] for name in ("by", "cluster", "seed")}
        ev = uqeval.evaluate(path, scores=scores, metrics=metrics, level=level, **keys, **options)
        pred = None if ev.source is None else ev.source.pred
        found[path] = replace(ev, provenance=provenance([path], pred, columns=options, **keys))
    return found


def _models(
    paths: list[str],
    key: str | None,
    by: str | None,
    cluster: str | None,
    columns: dict[str, Any],
    logs: dict[str, Any],
) -> dict[str, uqeval.Predictions]:
    """A model for each file, their rows in the same order."""
    if len(set(map(identity, paths))) < len(paths):
        raise InputError("A file is named twice. Name each model once.")
    columns = columns | ({} if key is None else {"id": key})
    read = {path: o.read([path], by=by, cluster=cluster, columns=columns, logs=logs) for path in paths}
    if all(pred.read_as for pred in read.values()):
        _check_alike(read)
        return _joined(_in_common(read), "document")
    return _joined(read, key)


def _check_alike(read: dict[str, uqeval.Predictions]) -> None:
    """Runs that are judged by the same, of the same tasks where keys are numbers of questions in them."""
    logs = {path: pred.log for path, pred in read.items() if pred.log is not None}
    first, one = next(iter(logs.items()))
    for path, other in logs.items():
        if set(other.quality) != set(one.quality):
            raise InputError(
                f"{first} is judged by {', '.join(one.quality)} and {path} by {', '.join(other.quality)}. Name a "
                f"judgement that both have: --quality."
            )
        if one.keyed_by_content or set(other.tasks) == set(one.tasks):
            continue
        both = [", ".join(log.tasks) for log in (one, other)]
        if {task.partition("(")[0] for task in other.tasks} != {task.partition("(")[0] for task in one.tasks}:
            raise InputError(
                f"{first} is of {both[0]} and {path} of {both[1]}: question 1 of one task is not that of another. "
                f"Compare runs of the same tasks."
            )
        notify(f"the tasks have other arguments ({both[0]}; {both[1]}): are their questions the same?")


def _in_common(read: dict[str, uqeval.Predictions]) -> dict[str, uqeval.Predictions]:
    """The rows that all runs have: one may have stopped early, or lack a judgement."""
    ids = {path: [] if pred.ids is None else pred.ids.tolist() for path, pred in read.items()}
    common = set.intersection(*map(set, ids.values()))
    if len(common) < 2:
        raise InputError(f"{' and '.join(read)}: {len(common)} answers in common. Compare runs of the same tasks.")
    for path, own in ids.items():
        if len(own) > len(common):
            notify(f"{path}: {len(own) - len(common):,} of {len(own):,} answers are not in every run and are left out")
    found = {path: pred.take([one in common for one in ids[path]]) for path, pred in read.items()}
    if any(pred.clusters is None for pred in found.values()):  # where one run has a single answer to each question …
        for pred in found.values():  # … all have just that in common: each is a cluster of its own
            for name in ("clusters", "cluster_values"):
                object.__setattr__(pred, name, None)
    return found


def _joined(found: dict[str, uqeval.Predictions], key: str | None) -> dict[str, uqeval.Predictions]:
    """Models by short name, their rows in the same order."""
    from uqeval.inputs.matching import in_same_order  # NumPy, which --help need not wait for

    stems = {path: Path(path).stem for path in found}
    names = {path: stem if list(stems.values()).count(stem) == 1 else path for path, stem in stems.items()}
    joined = found if key is None else in_same_order(found, key)
    return {names[path]: pred for path, pred in joined.items()}


def print_comparison(result: uqeval.Comparison, console: Console | None = None) -> None:
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
    if result.rows:
        out.print(table)
    if result.baseline is None and result.groups():
        out.print("not shown to differ (each line), best first:", style="bold")
        for group in result.groups():
            out.print(Text("  " + " · ".join(f"{name} {result.values[name]:.3f}" for name in group)))
    for (a, b), p in result.heterogeneity.items():
        if p <= 1 - result.level:
            out.print(Text(f"! {a} − {b} differs between groups (p = {p:.4f})", style="yellow"))
    for note in (*result.copies_notes(), *result.warnings):
        out.print(Text(f"! {in_options(note)}", style="yellow"))
