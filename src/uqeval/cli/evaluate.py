"""`uqeval evaluate`: how good is each score in this file, and how sure is that?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from uqeval.gate.policy import Policy


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
    csv: o.Csv = None,
    fail_under: Annotated[
        list[str] | None,
        o.option(
            "Leave with 1 under this value, with 3 where there are too few rows to tell.",
            "--fail-under",
            metavar="[SCORE:]METRIC=VALUE",
        ),
    ] = None,
    fail_over: Annotated[
        list[str] | None,
        o.option(
            "The same over this value, for metrics that are better low.", "--fail-over", metavar="[SCORE:]METRIC=VALUE"
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        o.option("What must keep the limit: value, low or high end of the interval; the harder end by default."),
    ] = None,
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
    check_outputs({"--json": json, "--html": html, "--pdf": pdf, "--csv": csv}, predictions)
    check_pdf(pdf)
    if beside and html is None and pdf is None:
        raise InputError("--columns belong to the report. Add --html FILE.")
    if approx is not None:
        given = {"by": by, "cluster": cluster, "html": html, "pdf": pdf, "metrics": metrics, "risk": risk, **where}
        given |= {"strict": strict or None, "csv": csv, "fail-under": fail_under, "fail-over": fail_over}
        given |= {"fail-on": fail_on, "largest-cluster": largest_cluster}
        given |= {"method": None if method == "default" else method}
        _bounds(predictions, approx, o.listed(scores), given, columns, json, quiet)
        return
    answers = o.read_log(predictions, {**columns, "by": by, "cluster": cluster}, logs)
    files = predictions
    if answers is not None:
        columns, files = {}, list(answers.files)
    limits = _limits(fail_under, fail_over, fail_on, level)
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
        from uqeval.cli.told import provenance  # few store what they see

        pred = None if ev.source is None else ev.source.pred
        origin = provenance(predictions, pred, columns=columns, by=by, cluster=cluster, seed=seed)
        ev = replace(ev, provenance=origin)
        write_json(ev.to_json(), json)
    if csv is not None:
        from uqeval.cli.told import write_csv  # see above

        write_csv(ev.frame_rows(), csv)
    shown = json != "-" and not quiet
    if answers is not None and not quiet:
        print_read_as(answers, json)
    if shown:
        print_evaluation(ev)
    for path in written if shown else ():
        stdout().print(f"report: {path}", style="bold", markup=False)
    if shown and ev.run is not None:
        stdout().print(str(ev.run), style="dim", markup=False)
    if limits is not None:
        _judge(ev, limits, json, shown)
    refuse_undefined(ev.undefined_lines() if strict else [])


def _limits(under: list[str] | None, over: list[str] | None, on: str | None, level: float) -> Policy | None:
    """What --fail-under and --fail-over demand; a wrong word is said before the work."""
    if not under and not over:
        if on is not None:
            raise InputError("--fail-on belongs to --fail-under and --fail-over. Name a limit.")
        return None
    from uqeval.gate.policy import policy_of_limits  # NumPy, which --help need not wait for

    return policy_of_limits(o.listed(under) or [], o.listed(over) or [], on=on, level=level)


def _judge(ev: uqeval.Evaluation, limits: Policy, json: str | None, shown: bool) -> None:
    """Leaves with 1 or 3 where a limit is not kept, or cannot be told to be."""
    from uqeval.cli.told import print_gate, tell_github  # see above
    from uqeval.gate.judge import judge  # few evaluations have limits

    result = judge(ev, limits)
    tell_github(result, json)
    if shown:
        print_gate(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


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
