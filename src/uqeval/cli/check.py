"""`uqeval check`: does a threshold's promise still hold on new labelled rows?"""

from __future__ import annotations

import json as codec
import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import uqeval
from uqeval._errors import InputError, collected
from uqeval._files import whole_file
from uqeval.cli import options as o
from uqeval.cli.output import stdout, write_json
from uqeval.cli.progress import status_console

if TYPE_CHECKING:
    from uqeval.decide.rows import Target


@o.with_columns
def check(
    threshold: Annotated[str, typer.Argument(help="What `uqeval threshold --json FILE` wrote.")],
    predictions: o.Files,
    state: Annotated[
        str | None, o.option("Remembers the looks so far: read if it is there, then written.", metavar="FILE")
    ] = None,
    score: Annotated[str | None, o.option("Score to use; that of the threshold by default.", metavar="NAME")] = None,
    max_risk: Annotated[float | None, o.option("Which threshold, where the file holds several.")] = None,
    cluster: o.Cluster = None,
    largest_cluster: Annotated[
        int | None, o.option("The most accepted rows that a cluster can have; as in calibration by default.")
    ] = None,
    level: Annotated[float | None, o.option("Confidence of an alarm; that of the threshold by default.")] = None,
    run_length: Annotated[
        int | None,
        o.option("Promise so many accepted rows (or clusters) between false alarms on average, and notice sooner."),
    ] = None,
    tie: o.Tie = "drop",
    json: o.Json = None,
    quiet: o.Quiet = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Whether the promised risk still holds on new labelled rows, asked as often as you like.

    With --state, give each row once, in the order of time: small looks notice a change soonest. Leaves with 1 where
    the promise does not hold.

    Example:  uqeval check threshold.json monday.parquet --state monitor.json
    """
    from uqeval.decide.rows import UNWEIGHTED  # NumPy, which --help need not wait for

    promise = _load(threshold, max_risk)
    previous = None if state is None else _previous(state)
    with status_console(quiet).status("Reading…") as progress, collected() as notes:
        found = o.read(predictions, cluster=cluster, columns=columns)
        progress.update(f"Checking {found.n:,} rows…")
        if found.weights is not None and promise.largest_weight is not None:
            raise InputError(f"The file has a column of weights. {UNWEIGHTED}")
        if found.weights is not None:
            raise InputError("The file has a column of weights, but the test is for unweighted rows. Leave it out.")
        target = _target(threshold, promise, found, tie)
        values = uqeval.scores.compute(_name(threshold, promise, score, found), found)
        try:
            result = promise.check(
                values if target.kept is None else values[target.kept],
                target.rows,
                clusters=target.clusters,
                previous=previous,
                largest_cluster=largest_cluster,
                level=level,
                run_length=run_length,
            )
        except InputError as problem:
            raise InputError(str(problem).replace("`previous`", f"--state {state}")) from None
    if not promise.feasible:
        notes.append("The threshold accepts nothing, so that there is nothing to check.")
    with nullcontext() if state is None else whole_file(state, "--state") as part:  # last: when all else went well
        if part is not None:
            part.write_text(result.to_json() + "\n", encoding="utf-8")
        if json is not None:
            write_json(result.to_json(), json)
    if json != "-" and not quiet:
        print_check(promise, result, previous, notes)
    if not result.holds:
        raise typer.Exit(1)


def _load(path: str, max_risk: float | None) -> uqeval.Threshold:
    """The threshold of the file, or the one that --max-risk picks."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        data = codec.loads(text)
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}).") from None
    except ValueError as problem:
        raise InputError(f"{path}: not JSON ({problem}). Pass what `uqeval threshold --json FILE` wrote.") from None
    try:
        several = isinstance(data, dict) and "thresholds" in data
        found = (
            uqeval.Thresholds.from_json(text)
            if several
            else uqeval.Thresholds([uqeval.Threshold.from_json(Path(path))])
        )
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from None
    there = ", ".join(f"{t.max_risk:g}" for t in found) or "none"
    if max_risk is None and len(found) == 1:
        return found[0]
    if max_risk is None:
        raise InputError(f"{path}: holds several thresholds. Pick one with --max-risk: {there}.")
    for t in found:
        if math.isclose(t.max_risk, max_risk):
            return t
    raise InputError(f"{path}: holds no threshold for --max-risk {max_risk:g}. There is: {there}.")


def _previous(state: str) -> uqeval.Check | None:
    """The check that the file remembers; None on the first call."""
    try:
        return uqeval.Check.from_json(Path(state).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"--state {state}: cannot be read ({problem.strerror}).") from None
    except ValueError as problem:  # an InputError, or not UTF-8
        raise InputError(f"--state {state}: {problem}") from None


def _target(path: str, promise: uqeval.Threshold, pred: uqeval.Predictions, tie: str) -> Target:
    from uqeval.decide.rows import find_target  # NumPy, which --help need not wait for

    try:
        return find_target(None, pred, promise.what, None, tie)
    except InputError as problem:
        # The rest of the message is for those who choose a threshold: what this one promises is fixed.
        reason = str(problem).split(". ")[0].removesuffix(".")
        raise InputError(f'{path} is about "{promise.what}". {reason}.') from None


def _name(path: str, promise: uqeval.Threshold, score: str | None, pred: uqeval.Predictions) -> str:
    name = score or promise.score
    if name is None:
        there = ", ".join(uqeval.scores.available(pred))
        raise InputError(f"{path} does not name its score. Pass --score, one of: {there}.")
    return name


def print_check(
    promise: uqeval.Threshold,
    result: uqeval.Check,
    previous: uqeval.Check | None,
    notes: list[str],
    console: Console | None = None,
) -> None:
    """The answer over all looks, the numbers of this batch, what to beware of."""
    from uqeval._result import number  # NumPy, which --help need not wait for

    out = console or stdout()
    out.print(Text(str(result), style="green" if result.holds else "bold red"))
    before = (0, 0, 0.0) if previous is None else (previous.n, previous.n_accepted, previous.errors_accepted)
    n, accepted, bad = result.n - before[0], result.n_accepted - before[1], result.errors_accepted - before[2]
    counted = n if promise.joint else accepted
    low, high = result.risk_interval
    line = f"look {result.looks}, this batch: {accepted:,} of {n:,} rows accepted"
    if counted:
        what = "loss" if promise.what == "loss" else "errors"
        line += f", {what} {bad:,.6g}, risk {number(bad / counted)} ({number(low)}–{number(high)})"
        line += f", p = {number(result.p_value)} (for a single look)"
    out.print(Text(line))
    if result.alarm_after is not None:
        out.print(Text(f"The alarm came after {result.alarm_after:,} rows."))
    for note in dict.fromkeys(notes):
        out.print(Text(f"! {note}", style="yellow"))
