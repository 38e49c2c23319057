"""`uqeval threshold`: below which value of a score may one act, and how sure is that?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._errors import InputError, collected
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, grid_table, in_options, stdout, write_json
from uqeval.cli.progress import status_console
from uqeval.cli.told import provenance, with_provenance, write_csv


@o.with_columns
def threshold(
    predictions: o.Files,
    max_risk: Annotated[list[str], o.option("The risk that you accept, as 0.05; several by comma.")],
    scores: Annotated[
        list[str] | None,
        o.option(
            "Score to use; of several, by comma or one by one, the one that accepts most.",
            "--score",
            "--scores",
            metavar="NAME",
        ),
    ] = None,
    level: o.Level = 0.95,
    method: Annotated[
        str, o.option("step-down (default), fallback, fst, sgr, bonferroni or holm; rcps or crc for the joint risk.")
    ] = "step-down",
    risk: Annotated[
        str, o.option("What is bad: error, loss (a column in 0 to 1), or misaligned (unlike the soft labels).")
    ] = "error",
    cluster: o.Cluster = None,
    cluster_method: Annotated[
        str, o.option("With clusters: t, exact (bets: from about 1,000 clusters), or subsample (one row of each).")
    ] = "t",
    largest_cluster: Annotated[
        int | None, o.option("The most rows that a cluster can ever have; the largest here by default.")
    ] = None,
    largest_weight: Annotated[
        float | None, o.option("The largest weight that an input can ever have; the largest here by default.")
    ] = None,
    by: o.By = None,
    each: Annotated[bool, o.option("Promise the risk in every group of --by, all at once.", "--each")] = False,
    split: Annotated[
        float | None, o.option("Share of the rows that choose, as 0.5; the others give honest estimates.")
    ] = None,
    bound: Annotated[str, o.option("For losses that are not 0/1: betting or hoeffding-bentkus.")] = "betting",
    tie: o.Tie = "drop",
    json: o.Json = None,
    csv: Annotated[
        str | None, o.option("Write the accepted calibration rows (of the first target) to this file.", metavar="FILE")
    ] = None,
    quiet: o.Quiet = False,
    seed: o.Seed = 0,
    *,
    columns: dict[str, Any],
) -> None:
    """The largest region {score ≤ value} that one may act in, with a guaranteed risk.

    Leaves with 1 where nothing can be certified.

    Example:  uqeval threshold calibration.parquet --score entropy --max-risk 0.05 --json threshold.json

    Example:  uqeval threshold calibration.csv --score entropy,margin --max-risk 0.01,0.02,0.05 --split 0.5
    """
    from uqeval._check import check_choice  # NumPy, which --help need not wait for
    from uqeval.decide.rows import CLUSTER_METHODS

    check_outputs({"--json": json, "--csv": csv}, predictions)
    targets = _targets(max_risk)
    check_choice("--cluster-method", cluster_method, CLUSTER_METHODS)
    with status_console(quiet).status("Reading…") as progress, collected() as notes:
        found = o.read(predictions, cluster=cluster, columns=columns, by=by)
        progress.update(f"Choosing among {found.n:,} rows…")
        chosen = uqeval.choose_threshold(
            _names(scores, found),
            max_risk=targets,
            level=level,
            method=method,
            predictions=found,
            risk=risk,
            cluster_method=cluster_method,
            largest_cluster=largest_cluster,
            largest_weight=largest_weight,
            groups=None if by is None or found.groups is None else [found.group_names[k] for k in found.groups],
            each=each,
            split=split,
            bound=bound,
            tie=tie,
            seed=seed,
        )
    # The notes hold what reading and choosing had to say.
    result = uqeval.Thresholds(replace(t, warnings=tuple(dict.fromkeys(notes))) for t in chosen)
    if json is not None:
        beside = provenance(predictions, found, columns=columns, by=None, cluster=cluster, seed=seed)
        write_json(with_provenance(result[0].to_json() if len(result) == 1 else result.to_json(), beside), json)
    if csv is not None:
        write_csv(_accepted(result[0], found), csv)
    if json != "-" and not quiet:
        print_thresholds(result)
    if not result.feasible:
        raise typer.Exit(1)


def _accepted(promise: uqeval.Threshold, pred: uqeval.Predictions) -> Iterator[dict[str, Any]]:
    """Which of the rows one may act on, with their score."""
    score = uqeval.scores.compute(str(promise.score), pred)
    for row in promise.accept(score).nonzero()[0].tolist():
        name = {} if pred.ids is None else {"id": str(pred.ids[row])}
        yield {"row": row} | name | {str(promise.score): float(score[row])}


def _targets(values: list[str]) -> list[float]:
    """Risks given as `--max-risk 0.01,0.05`."""
    texts = o.listed(values)
    if not texts:
        raise InputError("--max-risk names no risk. Say which one you accept, as 0.05.")
    try:
        risks = [float(text) for text in texts]
    except ValueError:
        raise InputError(f"--max-risk takes numbers by comma, as 0.01,0.05; it is {','.join(values)!r}.") from None
    if risks[0] == 0 and len(risks) > 1:  # 0,05
        raise InputError(
            f"--max-risk takes numbers by comma, as 0.01,0.05; of {','.join(values)!r} the first is 0. Write a risk "
            f"with a point, as 0.05."
        )
    return risks


def _names(score: list[str] | None, pred: uqeval.Predictions) -> list[str]:
    """The scores asked for, or the only one that there is."""
    names, there = o.listed(score), list(uqeval.scores.available(pred))
    if names is None and len(there) == 1:
        return there
    if not names:
        raise InputError(f"Name the score with --score. The file allows: {', '.join(there)}.")
    return names


def print_thresholds(found: uqeval.Thresholds, console: Console | None = None) -> None:
    """What each promises, a table where there are several, what other rows say, what to beware of."""
    out = console or stdout()
    for t in found:
        out.print(Text(t.statement(), style="cyan"))
    if len(found) > 1:
        out.print(_table(found))
    for t in found:
        if not t.feasible:
            continue
        if len(found) == 1:
            for line in _numbers(t):
                out.print(Text(line))
        elif t.holdout is not None:
            out.print(Text(f"max risk {t.max_risk:g}, {_numbers(t)[-1]}"))
        if (groups := t.group_table()) is not None:
            out.print(grid_table(groups))
    for note in dict.fromkeys(note for t in found for note in t.warnings):
        out.print(Text(f"! {in_options(note)}", style="yellow"))


def _numbers(t: uqeval.Threshold) -> list[str]:
    """What `str` says after the promise: the calibration rows, then the held-out ones."""
    return str(replace(t, warnings=(), groups=()))[len(t.statement()) :].strip("\n").splitlines()


def _table(found: uqeval.Thresholds) -> Table:
    grid = found.table()
    table = Table(header_style="bold", padding=(0, 1))
    for title in grid.head:
        table.add_column(Text(title.replace(" ", "\n")), no_wrap=True)  # six columns fit into 80 characters
    for t, cells in zip(found, grid.rows, strict=True):
        table.add_row(*(Text(cell, style="" if t.feasible else "dim") for cell in cells))
    return table
