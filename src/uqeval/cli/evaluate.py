"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from typing import Annotated, Any

import uqeval
from uqeval._errors import InputError
from uqeval.cli import options as o
from uqeval.cli.output import (
    check_outputs,
    print_bounds,
    print_evaluation,
    print_read_as,
    refuse_undefined,
    stdout,
    write_json,
)
from uqeval.cli.pages import check_pdf, write_pages
from uqeval.cli.progress import bars, status_console


@o.with_columns
@o.with_engine
@o.with_logs
def evaluate(
    predictions: o.Files,
    scores: o.Scores = None,
    metrics: o.Metrics = None,
    by: o.By = None,
    cluster: o.Cluster = None,
    largest_cluster: o.LargestCluster = None,
    level: o.Level = 0.95,
    risk: o.Risk = None,
    method: Annotated[str, o.option("default, or bootstrap for percentile intervals.")] = "default",
    resamples: Annotated[int, o.option("For the bootstrap.")] = 2000,
    html: o.Html = None,
    pdf: o.Pdf = None,
    max_risk: Annotated[float, o.option("The risk that the report's verdict speaks of.")] = 0.05,
    beside: Annotated[
        list[str] | None, o.option("Further columns beside the report's confident mistakes, by comma.", "--columns")
    ] = None,
    json: o.Json = None,
    strict: o.Strict = False,
    quiet: o.Quiet = False,
    seed: o.Seed = 0,
    approx: o.Approx = None,
    *,
    columns: dict[str, Any],
    where: dict[str, Any],
    logs: dict[str, Any],
) -> None:
    """How well each score ranks errors, with intervals.

    Example:  uqeval evaluate preds.parquet --scores entropy,margin --by hospital --cluster patient --html report.html

    Example:  uqeval evaluate "preds/*.parquet" --scores entropy --engine local --memory 2GB

    Example:  uqeval evaluate logs/   (of lm-eval, Inspect, HELM, Every Eval Ever, uqlm or lm-polygraph)
    """
    check_outputs({"--json": json, "--html": html, "--pdf": pdf}, predictions)
    check_pdf(pdf)
    if beside and html is None and pdf is None:
        raise InputError("--columns belong to the report. Add --html FILE.")
    if approx is not None:
        given = {"by": by, "cluster": cluster, "html": html, "pdf": pdf, "metrics": metrics, "risk": risk, **where}
        given |= {"strict": strict or None}
        given |= {"method": None if method == "default" else method}
        _bounds(predictions, approx, o.listed(scores), given, columns, json, quiet)
        return
    answers = o.read_log(predictions, {**columns, "by": by, "cluster": cluster}, logs)
    files = predictions
    if answers is not None:
        columns, files = {}, list(answers.files)
    with bars(quiet) as progress:
        ev = uqeval.evaluate(
            answers or (predictions if len(predictions) > 1 else predictions[0]),
            scores=o.listed(scores),
            metrics=o.listed(metrics),
            by=by,
            cluster=cluster,
            largest_cluster=largest_cluster,
            level=level,
            risk=risk,
            method=method,
            resamples=resamples,
            seed=seed,
            progress=progress,
            **where,
            **columns,
        )
    # Files first: whoever reads the terminal may leave early.
    written: list[str] = []
    if html is not None or pdf is not None:
        with status_console(quiet).status("Writing the report…"):
            further = _further(predictions, o.listed(beside), columns)
            written = write_pages(ev, html, pdf, max_risk=max_risk, columns=further, files=files)
    if json is not None:
        write_json(ev.to_json(), json)
    shown = json != "-" and not quiet
    if answers is not None and not quiet:
        print_read_as(answers, json)
    if shown:
        print_evaluation(ev)
    for path in written if shown else ():
        stdout().print(f"report: {path}", style="bold", markup=False)
    if shown and ev.run is not None:
        stdout().print(str(ev.run), style="dim", markup=False)
    refuse_undefined(ev.undefined_lines() if strict else [])


def _bounds(
    paths: list[str],
    approx: float,
    scores: list[str] | None,
    given: dict[str, Any],
    columns: dict[str, Any],
    json: str | None,
    quiet: bool,
) -> None:
    """One pass: bounds that are certain for these rows."""
    from uqeval.distributed.bounds.files import approx_scores
    from uqeval.distributed.memory import usual_memory

    options = {"client": "scheduler", "memory_limit": "memory"}
    limit = given.pop("memory_limit", None) or usual_memory()
    for name, value in given.items():
        if value is not None and (name, value) != ("engine", "local"):
            raise InputError(
                f"--approx gives bounds of all rows of files of this machine in one pass: leave "
                f"--{options.get(name, name)} out."
            )
    with bars(quiet) as progress:
        found = approx_scores(paths, scores=scores, approx=approx, memory_limit=limit, progress=progress, **columns)
    if json is not None:
        write_json(found.to_json(), json)
    if json != "-" and not quiet:
        print_bounds(found)


def _further(paths: list[str], names: list[str] | None, columns: dict[str, Any]) -> dict[str, list[Any]] | None:
    """Columns beside the confident mistakes, of the rows that were evaluated: those of positive weight."""
    if not names:
        return None
    from uqeval.inputs.columns import Columns  # few ask for further columns
    from uqeval.inputs.files import PredictionFiles

    files = PredictionFiles(paths, Columns(**columns))
    weight = None if "npz" in files.kinds else files.plan.single.get("weight")
    if weight is None:
        return files.further(names)
    table = files.further([*names, weight])
    keep = [w > 0 for w in table[weight]]
    return {name: [v for v, kept in zip(table[name], keep, strict=True) if kept] for name in names}
