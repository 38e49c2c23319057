"""`uqeval power`: how many rows, or what can the rows at hand show?"""

import math
import warnings
from dataclasses import replace
from typing import Annotated, Any

import typer

import uqeval
from uqeval._errors import InputError, UQWarning
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, stdout, write_json


def power(
    pilot: Annotated[
        str | None, typer.Argument(help="A pilot file of predictions; or give --auc and --accuracy.")
    ] = None,
    half_width: Annotated[float | None, o.option("Goal: an interval of ± this.")] = None,
    difference: Annotated[float | None, o.option("Goal: detect this difference between two scores.")] = None,
    rows: Annotated[int | None, o.option("Instead of a goal: what can this many rows show?")] = None,
    auc: Annotated[
        str | None, o.option("UQ-AUC to expect; for a difference that of both scores, as 0.82,0.80, or their mean.")
    ] = None,
    accuracy: Annotated[float | None, o.option("Accuracy to expect.")] = None,
    correlation: Annotated[float, o.option("Of the two scores' influence values.")] = 0.5,
    chance: Annotated[float, o.option("Chance to detect the difference.", "--power")] = 0.8,
    level: o.Level = 0.95,
    metric: Annotated[str, o.option("Metric of the pilot.")] = "uq_auc",
    scores: Annotated[
        list[str] | None,
        o.option(
            "Score of the pilot, entropy by default; two of them for a difference.",
            "--score",
            "--scores",
            metavar="NAME",
        ),
    ] = None,
    versus: Annotated[str | None, o.option("Second score of the pilot, for a difference.")] = None,
    cluster: o.Cluster = None,
    json: o.Json = None,
) -> None:
    """Rows needed for an interval or a difference; or the smallest difference that the rows at hand can show.

    Example:  uqeval power --auc 0.8 --accuracy 0.9 --difference 0.02 --correlation 0.9

    Example:  uqeval power --auc 0.82,0.80 --accuracy 0.9 --correlation 0.9

    Example:  uqeval power pilot.csv --score entropy --versus margin --difference 0.01
    """
    check_outputs({"--json": json}, [] if pilot is None else [pilot])
    score, versus = _two(o.listed(scores), versus)
    both = None if auc is None else _numbers(auc)
    known: dict[str, Any] = {"auc": both, "accuracy": accuracy} if pilot is None else {}
    if pilot is not None:
        if auc is not None or accuracy is not None:
            raise InputError("Give a pilot file, or --auc and --accuracy; not both.")
        known, at_hand = _pilot(pilot, metric, score, versus, cluster)
        if half_width is None and difference is None and rows is None:
            rows = at_hand
    elif auc is None or accuracy is None:
        raise InputError("Give a pilot file, or both --auc and --accuracy.")
    elif versus is not None or cluster is not None or metric != "uq_auc":
        raise InputError("--metric, --versus and --cluster belong to a pilot file; --auc and --accuracy are of UQ-AUC.")
    two = isinstance(both, tuple)  # they say what the difference is
    if rows is None and not (two and difference is None) and (half_width is None) == (difference is None):
        raise InputError("Give one of --half-width, --difference and --rows.")
    if rows is not None:
        if half_width is not None or difference is not None:
            raise InputError("--rows answers what those rows can show; leave --half-width and --difference out.")
        known.pop("error_rate", None)
        found = uqeval.detectable_difference(rows, **known, correlation=correlation, power=chance, level=level)
        answer: dict[str, Any] = {"rows": rows, "detectable_difference": found, "power": chance, "level": level}
        text = f"{rows:,} rows can show a difference of {found:.4f} or more ({100 * chance:g}% power, level {level:g})"
    else:
        rate = known.pop("error_rate", None)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", UQWarning)
            size = uqeval.sample_size(
                half_width=half_width,
                difference=difference,
                **known,
                correlation=correlation,
                power=chance,
                level=level,
            )
        if size.errors is None and rate is not None:
            size = replace(size, errors=round(size.n * rate))
        answer, text = size.to_dict(), str(size)
        text += "".join(f"\n! {warning.message}" for warning in raised)
    if json is not None:
        from uqeval._result import to_json  # NumPy, which --help need not wait for

        write_json(to_json(answer), json)
    if json != "-":
        for line in text.splitlines():
            stdout().print(line, markup=False)


def _two(scores: list[str] | None, versus: str | None) -> tuple[str, str | None]:
    """One score of the pilot, or two: both by --score, or the second by --versus."""
    names = [*dict.fromkeys(scores or ["entropy"]), *([] if versus is None else [versus])]
    if len(names) > 2:
        raise InputError(f"A pilot has one score, or two for a difference; there are {len(names)}: {', '.join(names)}.")
    return names[0], names[1] if len(names) == 2 else None


def _numbers(text: str) -> float | tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--auc must be a number, or two by comma, as 0.82,0.80; it is {text!r}.") from None
    return found[0] if len(found) == 1 else found


def _pilot(path: str, metric: str, score: str, versus: str | None, cluster: str | None) -> tuple[dict[str, Any], int]:
    """What the pilot says about the spread of the influence values, and its number of rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        pred = o.read([path], cluster=cluster, columns={})
        if versus is not None:
            result = uqeval.compare(pred, scores=[score, versus], metric=metric, adjust="none")
            pair = result[score, versus]
            if math.isnan(pair.se):
                raise InputError(f"{path}: {metric} has no standard error here. Use a larger pilot.")
            if pair.se == 0:
                raise InputError(f"{path}: {score} and {versus} rank all rows alike; there is no difference to detect.")
        found = uqeval.evaluate(pred, scores=[score], metrics=[metric])[score, metric]
        if versus is not None:
            rate = None if found.n_errors is None else found.n_errors / found.n
            return {"sd": result.sd(score, versus), "error_rate": rate}, result.n
    return {"pilot": found}, found.n
