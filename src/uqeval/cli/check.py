"""`uqeval check`: does a threshold's promise still hold on new labelled rows?"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import uqeval
from uqeval._errors import InputError, collected
from uqeval._files import json_value, locked, whole_file
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, in_options, stderr, stdout, write_json
from uqeval.cli.progress import status_console
from uqeval.cli.told import provenance, with_provenance

if TYPE_CHECKING:
    from uqeval.decide.rows import Target


@o.with_columns
def check(
    threshold: Annotated[str, typer.Argument(help="What `uqeval threshold --json FILE` wrote.")],
    predictions: o.Files,
    state: Annotated[
        str | None, o.option("Remembers the looks so far: read if it is there, then written.", metavar="FILE")
    ] = None,
    score: o.OwnScore = None,
    max_risk: o.WhichRisk = None,
    cluster: o.Cluster = None,
    largest_cluster: o.LargestAccepted = None,
    level: o.AlarmLevel = None,
    run_length: Annotated[
        int | None,
        o.option("Promise so many accepted rows (or clusters) between false alarms on average, and notice sooner."),
    ] = None,
    tie: o.Tie = "drop",
    again: Annotated[
        bool, o.option("Count rows that were checked before, or that the threshold was chosen on.", "--again")
    ] = False,
    json: o.Json = None,
    quiet: o.Quiet = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Whether the promised risk still holds on new labelled rows, asked as often as you like.

    With --state, give each row once, in the order of time: small looks notice a change soonest. The same rows twice are
    refused; others who use the state wait. Leaves with 1 where the promise does not hold, with 3 where no row counted
    yet.

    Example:  uqeval check threshold.json monday.parquet --state monitor.json
    """
    from uqeval.decide.rows import UNWEIGHTED  # NumPy, which --help need not wait for

    check_outputs({"--json": json, "--state": state}, [threshold, *predictions])
    promise = load_threshold(threshold, max_risk)
    if state is not None:
        _previous(state)  # a wrong file is said before the work
    with status_console(quiet).status("Reading…") as progress, collected() as notes:
        found = o.read(predictions, cluster=cluster, columns=columns)
        progress.update(f"Checking {found.n:,} rows…")
        if found.weights is not None and promise.largest_weight is not None:
            raise InputError(f"The file has a column of weights. {UNWEIGHTED}")
        if found.weights is not None:
            raise InputError("The file has a column of weights, but the test is for unweighted rows. Leave it out.")
        target = _target(threshold, promise, found, tie)
        name = _name(threshold, promise, _only(score), found)
        values = uqeval.scores.compute(name, found)
        with nullcontext() if state is None else locked(state, "--state", _waiting(quiet)):
            previous = None if state is None else _previous(state)
            try:
                result = promise.check(
                    values if target.kept is None else values[target.kept],
                    target.rows,
                    clusters=target.clusters,
                    previous=previous,
                    largest_cluster=largest_cluster,
                    level=level,
                    run_length=run_length,
                    again=again,
                )
            except InputError as problem:
                raise InputError(str(problem).replace("`previous`", f"--state {state}")) from None
            with nullcontext() if state is None else whole_file(state, "--state") as part:  # last: when all went well
                if part is not None:
                    _write_surely(part, result.to_json() + "\n")
                told = ""
                if json is not None:
                    beside = provenance(predictions, found, columns=columns, cluster=cluster)
                    told = with_provenance(result.to_json(), beside)
                if json not in (None, "-"):
                    write_json(told, json)
    if not promise.feasible:
        notes.append("The threshold accepts nothing, so that there is nothing to check.")
    if previous is not None and not again and result.batches[-1:] and result.batches[-1] in previous.batches:
        notes.append("These may be rows of an earlier look: they are too few, or too alike, to tell.")
    if json == "-":
        write_json(told, json)
    elif not quiet:
        print_check(promise, result, notes)
    if not result.holds:
        raise typer.Exit(1)
    if not result.units:
        raise typer.Exit(3)


def _only(scores: list[str] | None) -> str | None:
    """The score asked for: a threshold is one value of one score."""
    names = o.listed(scores)
    if names is not None and len(names) != 1:
        raise InputError(f"--score takes one score, that of the threshold; it is {','.join(scores or ())!r}.")
    return None if names is None else names[0]


def _waiting(quiet: bool) -> Callable[[str], None]:
    def tell(message: str) -> None:
        if not quiet:
            stderr().print(Text(message, style="yellow"), soft_wrap=True)

    return tell


def _write_surely(path: Path, text: str) -> None:
    """On the disk before it takes the place of the old one: a state outlives a power cut."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def load_threshold(path: str, max_risk: float | None) -> uqeval.Threshold:
    """The threshold of the file, or the one that --max-risk picks."""
    from uqeval._result import kind_of_text  # NumPy, which --help need not wait for

    try:
        text = Path(path).read_text(encoding="utf-8")
        data = json_value(text)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file. Pass what `uqeval threshold --json FILE` wrote.") from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(_no_threshold(path, "no text")) from None
    except ValueError:
        raise InputError(_no_threshold(path, kind_of_text(text))) from None
    kind = kind_of_text(text)
    if kind not in ("a threshold", "thresholds") and not (isinstance(data, dict) and "method" in data):
        raise InputError(_no_threshold(path, kind))
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


def _no_threshold(path: str, kind: str) -> str:
    return f"{path}: holds {kind}, not a threshold. Pass what `uqeval threshold --json FILE` wrote."


def _previous(state: str) -> uqeval.Check | None:
    """The check that the file remembers; None on the first call."""
    try:
        text = Path(state).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"--state {state}: cannot be read ({problem.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(_no_state(state, "no text")) from None
    try:
        return uqeval.Check.from_json(text if text.lstrip().startswith("{") else "{")
    except InputError as problem:
        from uqeval._result import kind_of_text  # NumPy, which --help need not wait for

        kind = kind_of_text(text)
        raise InputError(f"--state {state}: {problem}" if kind == "a check" else _no_state(state, kind)) from None


def _no_state(state: str, kind: str) -> str:
    return f"--state {state}: holds {kind}, not a state. Name a file that `uqeval check --state` wrote, or a new one."


def _target(path: str, promise: uqeval.Threshold, pred: uqeval.Predictions, tie: str) -> Target:
    from uqeval.decide.rows import find_target  # NumPy, which --help need not wait for

    try:
        return find_target(None, pred, promise.what, None, tie)
    except InputError as problem:
        # The rest of the message is for those who choose a threshold: what this one promises is fixed.
        reason = str(problem).split(". ")[0].removesuffix(".")
        raise InputError(f'{path} is about "{promise.what}". {reason}.') from None


def _name(path: str, promise: uqeval.Threshold, score: str | None, pred: uqeval.Predictions) -> str:
    if None not in (score, promise.score) and score != promise.score:
        raise InputError(
            f'{path} is for the score "{promise.score}", not for "{score}": another score has another scale. Leave '
            f"--score out, or choose a threshold for it with `uqeval threshold --score {score}`."
        )
    name = score or promise.score
    if name is None:
        there = ", ".join(uqeval.scores.available(pred))
        raise InputError(f"{path} does not name its score. Pass --score, one of: {there}.")
    return name


def print_check(
    promise: uqeval.Threshold, result: uqeval.Check, notes: list[str], console: Console | None = None
) -> None:
    """The answer over all looks, the numbers of this batch, what to beware of."""
    from uqeval._result import number  # NumPy, which --help need not wait for

    out, batch = console or stdout(), result.batch
    style = "bold red" if not result.holds else "green" if result.units else "bold yellow"
    out.print(Text(str(result), style=style))
    counted = batch.n if promise.joint else batch.n_accepted
    low, high = batch.risk_interval
    line = f"look {result.looks}, this batch: {batch.n_accepted:,} of {batch.n:,} rows accepted"
    if counted:
        what = "loss" if promise.what == "loss" else "errors"
        line += f", {what} {batch.errors_accepted:,.6g}, risk {number(batch.risk)} ({number(low)}–{number(high)})"
        line += f", p = {number(batch.p_value)} (for a single look)"
    out.print(Text(line))
    if result.alarm_after is not None:
        out.print(Text(f"The alarm came after {result.alarm_after:,} rows."))
    for note in dict.fromkeys(notes):
        out.print(Text(f"! {in_options(note)}", style="yellow"))
