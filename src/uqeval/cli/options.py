"""Options that several commands share, in the same words everywhere."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import uqeval
from uqeval._errors import InputError


def option(text: str, *names: str, **more: Any) -> Any:
    """An option with its help, and other names than the parameter's."""
    return typer.Option(*names, help=text, **more)


_column = functools.partial(option, rich_help_panel="Columns")
_engine = functools.partial(option, rich_help_panel="Many rows")
_log = functools.partial(option, rich_help_panel="Logs of language models")


Files = Annotated[
    list[str],
    typer.Argument(help="CSV, Parquet, Arrow/Feather, JSON lines or NPZ; a glob, an address, - for stdin; LLM logs."),
]
Scores = Annotated[
    list[str] | None,
    option("Scores to judge, by comma or one by one; all that the file allows by default.", "--scores", "--score"),
]
By = Annotated[str | None, option("Column of groups to report apart, as a hospital.")]
Cluster = Annotated[str | None, option("Column of independent units, as a patient id.")]
LargestCluster = Annotated[
    int | None, option("The most rows that a cluster can ever have: intervals leave room for one that was not seen.")
]
LargestAccepted = Annotated[
    int | None, option("The most accepted rows that a cluster can have; as in calibration by default.")
]
OwnScore = Annotated[
    list[str] | None, option("Score to use; that of the threshold by default.", "--score", "--scores", metavar="NAME")
]
WhichRisk = Annotated[float | None, option("Which threshold, where the file holds several.")]
AlarmLevel = Annotated[float | None, option("Confidence of an alarm; that of the threshold by default.")]
Metrics = Annotated[
    list[str] | None,
    option("Metrics, by comma or one by one; all that the file allows by default.", "--metrics", "--metric"),
]
Level = Annotated[float, option("Confidence level.")]
Json = Annotated[str | None, option("Write JSON to this file, or '-' for stdout.", metavar="FILE|-")]
Csv = Annotated[str | None, option("Write the rows of the result as CSV to this file.", metavar="FILE")]
Html = Annotated[str | None, option("Write a one-page report to this file.", metavar="FILE")]
Strict = Annotated[bool, option("Leave with 3 (cannot tell) where something asked for has no value.", "--strict")]
Pdf = Annotated[
    str | None, option("The same as PDF, printed by a Chromium, Chrome or Edge of this machine.", metavar="FILE")
]
Quiet = Annotated[bool, option("No table and no progress.", "--quiet", "-q")]
Risk = Annotated[
    str | None,
    option("Where there are both: what AURC and its relatives (and the report) take, error (default) or loss."),
]
Tie = Annotated[str, option("Rows whose soft labels tie: drop, or error (count as misaligned).")]
Seed = Annotated[int, option("For what draws random numbers.")]
Approx = Annotated[
    float | None,
    _engine("One pass, certain bounds of about this width instead of intervals, as 1e-4.", metavar="WIDTH"),
]

# Options by the name of the parameter: annotation and default.
Group = dict[str, tuple[Any, Any]]
_COLUMNS: Group = {
    "label": (Annotated[str, _column("Column of the true class.")], "label"),
    "prob": (
        Annotated[str, _column("Columns of probabilities; * is the class. Or the columns by comma, in class order.")],
        "prob_*",
    ),
    "logit": (Annotated[str, _column("Columns of logits.")], "logit_*"),
    "member": (Annotated[str, _column("Columns of member probabilities.")], "member*_prob_*"),
    "soft": (Annotated[str, _column("Columns of soft labels.")], "soft_*"),
    "score_columns": (Annotated[str, _column("Columns of your own scores.", "--score-columns")], "score_*"),
    "pred": (Annotated[str, _column("Column of the predicted class.")], "pred"),
    "error": (Annotated[str, _column("Column of 0/1 errors.")], "error"),
    "loss": (Annotated[str, _column("Column of losses.")], "loss"),
    "correct": (
        Annotated[str | None, _column("Column that is 1 where the prediction is right: error = 1 − it.")],
        None,
    ),
    "quality": (
        Annotated[str | None, _column("Column that is high where the prediction is good: loss = 1 − it.")],
        None,
    ),
    "weight": (Annotated[str, _column("Column of row weights.")], "weight"),
    "classes": (Annotated[list[str] | None, _column("Class names in order, by comma.")], None),
    "normalize": (Annotated[bool, _column("Divide probabilities and votes by their row sums.")], False),
    "labels_by": (
        Annotated[str | None, _column("What numeric labels are where classes are numbers too: name or position.")],
        None,
    ),
    "sep": (
        Annotated[str | None, _column('What separates the columns of a CSV file: ";", tab, …', metavar="CHAR")],
        None,
    ),
    "decimal": (Annotated[str | None, _column('Decimal point of a CSV file, as ",".', metavar="CHAR")], None),
    "encoding": (Annotated[str | None, _column("Encoding of a CSV file, as latin-1; UTF-8 by default.")], None),
}
_ENGINES: Group = {
    name: (Annotated[str | None, _engine(text, metavar=metavar)], None)
    for name, metavar, text in (
        ("engine", None, "memory, local (piece by piece), dask or spark; by default local where rows would not fit."),
        ("memory", "SIZE", "How much memory an engine may use, as 2GB."),
        ("scheduler", "ADDRESS", "Address of a Dask scheduler or Spark master; workers of this machine by default."),
        ("spill", "DIR", "Folder for temporary rows of an engine; the system's own by default. Nothing is left."),
    )
}


def _grouped(name: str, group: Group, gathered: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """A decorator: the command gets the options of the group, as one dictionary under this name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            options = {option: given.pop(option) for option in group}
            command(**given, **{name: gathered(**options)})

        signature = inspect.signature(command, eval_str=True)
        kind = inspect.Parameter.KEYWORD_ONLY
        more = [
            inspect.Parameter(option, kind, default=default, annotation=annotation)
            for option, (annotation, default) in group.items()
        ]
        own = [p.replace(kind=kind) for p in signature.parameters.values() if p.name != name]
        run.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in [*own, *more]}
        return run

    return decorate


def _chosen_columns(score_columns: str, classes: list[str] | None, **columns: Any) -> dict[str, Any]:
    """What differs from the defaults: the library's own also match other spellings."""
    from uqeval.inputs.columns import DEFAULTS  # NumPy, which --help need not wait for

    columns |= {"score": score_columns, "classes": listed(classes)}
    for name in ("prob", "logit", "soft", "score"):
        if "," in columns[name] and "*" not in columns[name]:  # the columns themselves, not a pattern
            columns[name] = listed([columns[name]])
    return {name: value for name, value in columns.items() if value != DEFAULTS[name]}


def _chosen_engine(engine: str | None, memory: str | None, scheduler: str | None, spill: str | None) -> dict[str, Any]:
    names = ("memory", "local", "dask", "spark")
    if engine is not None and engine not in names:
        raise InputError(f"--engine {engine}: choose {', '.join(names)}.")
    if scheduler is not None and engine not in ("dask", "spark"):
        raise InputError("--scheduler belongs to --engine dask or spark. Name one of them.")
    for name, value in (("memory", memory), ("spill", spill)):
        if value is not None and engine == "memory":
            raise InputError(f"--{name} is for engines that read piece by piece. Leave it out, or pass --engine local.")
    found = {"engine": engine, "memory_limit": memory, "client": scheduler, "spill": spill}
    return {name: value for name, value in found.items() if value is not None}


_LOGS: Group = {
    "log_format": (
        Annotated[
            str | None,
            _log("lm-eval, inspect, helm, every-eval-ever, uqlm or lm-polygraph; found by itself.", "--log-format"),
        ],
        None,
    ),
    "confidence": (
        Annotated[list[str] | None, _log("Numbers in the log that are high where the model is sure, by comma.")],
        None,
    ),
    "filter": (Annotated[str | None, _log("Which of several judgements of one answer.", "--filter")], None),
}


def _chosen_logs(log_format: str | None, confidence: list[str] | None, filter: str | None) -> dict[str, Any]:
    found = {"format": log_format, "confidence": listed(confidence), "filter": filter}
    return {name: value for name, value in found.items() if value is not None}


with_columns = _grouped("columns", _COLUMNS, _chosen_columns)
with_engine = _grouped("where", _ENGINES, _chosen_engine)
with_logs = _grouped("logs", _LOGS, _chosen_logs)


def listed(values: list[str] | None) -> list[str] | None:
    """Names given as `--scores a,b --scores c`."""
    if not values:
        return None
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def is_stored(path: str) -> bool:
    """Whether a file is the JSON of a result of ours, rather than rows: `to_json` writes its version first."""
    if not path.endswith(".json"):
        return False
    try:
        with open(path, encoding="utf-8") as file:
            return '"schema_version"' in file.read(200)
    except (OSError, UnicodeDecodeError):
        return False


def stored_evaluation(path: str) -> uqeval.Evaluation:
    """What `evaluate --json` wrote; its file is named where it cannot be used."""
    try:
        return uqeval.Evaluation.from_json(Path(path))
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from None


def read(
    paths: list[str],
    *,
    cluster: str | None,
    columns: dict[str, Any],
    by: str | None = None,
    logs: dict[str, Any] | None = None,
) -> uqeval.Predictions:
    """Predictions from files, with the columns that the command line names; or from logs."""
    if (pred := read_log(paths, {**columns, "cluster": cluster, "group": by}, logs or {})) is not None:
        return pred
    keys = {"group": by, "cluster": cluster}
    columns = columns | {role: name for role, name in keys.items() if name is not None}
    return uqeval.read_predictions(paths if len(paths) > 1 else paths[0], **columns)


def read_log(paths: list[str], columns: dict[str, Any], logs: dict[str, Any]) -> uqeval.Predictions | None:
    """The answers in logs of language models; None where the files are tables of predictions."""
    from uqeval.inputs.files import is_log  # NumPy, which --help need not wait for

    named = {name: value for name, value in columns.items() if value is not None}
    if not logs and not is_log(paths):
        return None
    if strange := sorted(named.keys() - {"quality", "score"}):
        if not logs and all(map(os.path.isfile, paths)):
            return None  # whoever names columns reads a table
        raise InputError(
            f"`{strange[0]}` names a column of a table, but {paths[0]} is read as a log: its questions are clusters, "
            f"its tasks groups. Leave it out."
        )
    return uqeval.read_logs(paths, **named, **logs)
