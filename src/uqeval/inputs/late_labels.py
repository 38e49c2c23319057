"""Files of rows whose labels come later, and files of labels that came: what `read_predictions` refuses.

Which of the three a file is, its columns say. Joining them is for `monitor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval._errors import InputError
from uqeval.inputs.columns import OPPOSITE, Columns, Plan, plan_columns
from uqeval.inputs.files import PredictionFiles
from uqeval.inputs.paths import reading
from uqeval.inputs.predictions import Predictions, predictions_from_arrow

Kind = Literal["labelled", "unlabelled", "labels"]


@dataclass(frozen=True)
class Labels:
    """What became true of rows known by their ids: a loss (0/1 for errors), or the class."""

    ids: NDArray[np.str_]
    loss: Float | None
    classes: NDArray[np.str_] | None


def kind_of_file(path: str, options: Columns) -> Kind:
    """Whether a file holds predictions with their labels, predictions alone, or labels alone."""
    files = PredictionFiles(path, options)
    if files.kinds[0] == "npz":
        return "labelled"
    names = files.open(files.paths[0]).names
    try:
        plan_columns(names, options, files.paths[0])
        return "labelled"
    except InputError as error:
        problem = error
    try:
        _plan_alone(names, options)
        return "unlabelled"
    except InputError:
        pass
    if options.id in names and _told(names, options) is not None:
        return "labels"
    raise problem


def read_unlabelled(path: str, options: Columns) -> Predictions:
    """Predictions of rows whose labels are not known: their `error` is made up, all 0, and must not be used."""
    files = PredictionFiles(path, options)
    opened = files.open(files.paths[0])
    plan, alone = _plan_alone(opened.names, options)
    made_up = plan.single["error"]
    texts = [plan.single[role] for role in ("pred", "cluster", "group", "id") if role in plan.single]
    with reading(path):
        table = opened.read([name for name in plan.needed if name != made_up], texts)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    some = next(iter(columns.values()))
    columns[made_up] = some.is_null().cast("int64")  # no value of a kept row is null: all are 0
    found = predictions_from_arrow(columns, plan, alone)
    object.__setattr__(found, "files", tuple(files.paths))
    return found


def _plan_alone(names: Sequence[str], options: Columns) -> tuple[Plan, Columns]:
    """The plan as if there were a column of errors, and the options without what names labels."""
    alone = replace(options, error="error", loss=None, correct=None, quality=None, label=None)
    return plan_columns([*names, "error"], alone), alone


def _told(names: Sequence[str], options: Columns) -> tuple[str, str] | None:
    """Which column says what became true: its role and name."""
    for role in ("error", "loss"):
        opposite = OPPOSITE[role]
        for each in (opposite, role):
            if getattr(options, each) in names:
                return each, str(getattr(options, each))
    return ("label", str(options.label)) if options.label in names else None


def read_labels(path: str, options: Columns) -> Labels:
    """Ids, and an error, a loss or a class of each."""
    files = PredictionFiles(path, options)
    opened = files.open(files.paths[0])
    found = _told(opened.names, options)
    assert found is not None, "kind_of_file said so"
    assert options.id is not None
    role, column = found
    text = [options.id, *([column] if role == "label" else [])]
    with reading(path):
        table = opened.read(list(dict.fromkeys([options.id, column])), text)
        ids, values = (table.column(name).to_pylist() for name in (options.id, column))
    for name, entries in ((options.id, ids), (column, values)):
        if (missing := [k for k, entry in enumerate(entries) if entry is None]) != []:
            raise InputError(f"{path}: column `{name}` is empty at row {missing[0]}. Leave out rows without a label.")
    names = np.array([str(one) for one in ids], dtype=np.str_)
    if role == "label":
        return Labels(names, None, np.array([str(one) for one in values], dtype=np.str_))
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{path}: column `{column}` ({role}) must hold numbers.") from None
    if (rows := np.flatnonzero(~np.isfinite(numbers))).size:
        raise InputError(f"{path}: column `{column}` ({role}) is {numbers[rows[0]]:g} at row {rows[0]}. Mend that row.")
    if role in ("error", OPPOSITE["error"]) and (rows := np.flatnonzero((numbers != 0) & (numbers != 1))).size:
        raise InputError(
            f"{path}: column `{column}` ({role}) is {numbers[rows[0]]:g} at row {rows[0]}; it must be 0 or 1."
        )
    return Labels(names, 1 - numbers if role in OPPOSITE.values() else numbers, None)
