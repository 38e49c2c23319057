"""`uqeval gate`: may this model go on? A policy judged on its predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import uqeval
from uqeval._errors import InputError
from uqeval._files import write_whole
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, stdout, write_json
from uqeval.cli.progress import bars
from uqeval.cli.told import print_gate, provenance, tell_github

if TYPE_CHECKING:
    from uqeval.gate.judge import Baseline


@o.with_columns
@o.with_engine
def gate(
    policy: Annotated[str, typer.Argument(help="Rules, as a TOML file.")],
    predictions: o.Files,
    baseline: Annotated[
        str | None,
        o.option("For margins: a file of predictions on the same rows, or what evaluate --json wrote of other rows."),
    ] = None,
    key: Annotated[str | None, o.option("Column that says which rows of both files belong together.")] = None,
    by: o.By = None,
    cluster: o.Cluster = None,
    largest_cluster: o.LargestCluster = None,
    junit: Annotated[str | None, o.option("Write JUnit XML to this file.", metavar="FILE")] = None,
    json: o.Json = None,
    quiet: o.Quiet = False,
    seed: o.Seed = 0,
    *,
    columns: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Judge a policy: leaves with 0 (pass), 1 (fail) or 3 (too few rows to tell).

    Inside a job of GitHub Actions it also marks the commit and writes to the job's summary.

    Example:  uqeval gate policy.toml preds.parquet --by hospital --cluster patient --junit gate.xml
    """
    from uqeval.gate.judge import judge  # NumPy, which --help need not wait for
    from uqeval.gate.outputs import junit as as_junit
    from uqeval.gate.policy import read_policy

    check_outputs({"--json": json, "--junit": junit}, [policy, *predictions, *([baseline] if baseline else [])])
    rules = read_policy(policy)
    if rules.needs_baseline and baseline is None:
        raise InputError(f"{policy} has a rule with a margin. Say what it is compared with: --baseline FILE.")
    if key is not None:
        columns = columns | {"id": key}
    with bars(quiet) as progress:
        ev = uqeval.evaluate(
            predictions if len(predictions) > 1 else predictions[0],
            scores=rules.scores,
            metrics=rules.metrics,
            by=by,
            cluster=cluster,
            largest_cluster=largest_cluster,
            level=rules.level,
            seed=seed,
            progress=progress,
            **where,
            **columns,
        )
    pred = None if ev.source is None else ev.source.pred
    beside = None
    if json is not None or (baseline is not None and o.is_stored(baseline)):
        beside = provenance(predictions, pred, columns=columns, by=by, cluster=cluster, seed=seed)
    ev = replace(ev, provenance=beside)
    other = None if baseline is None else _baseline(baseline, pred, key, by, cluster, columns)
    result = judge(ev, rules, baseline=other)
    if junit is not None:
        write_whole(junit, as_junit(result), "--junit")
    tell_github(result, json)
    if json is not None:
        write_json(result.to_json(), json)
    if json != "-" and not quiet:
        print_gate(result)
        for note in result.warnings:
            stdout().print(Text(f"! {note}", style="yellow"))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _baseline(
    path: str,
    mine: uqeval.Predictions | None,
    key: str | None,
    by: str | None,
    cluster: str | None,
    columns: dict[str, Any],
) -> Baseline:
    """A stored evaluation, or predictions with their rows in the order of the others."""
    from uqeval.inputs.matching import in_same_order  # NumPy, which --help need not wait for

    if o.is_stored(path):
        return o.stored_evaluation(path)
    if mine is None:
        raise InputError(
            f"--baseline {path}: rows that are read piece by piece cannot be paired. Name a stored evaluation."
        )
    other = o.read([path], by=by, cluster=cluster, columns=columns)
    return other if key is None else in_same_order({"the file": mine, path: other}, key)[path]
