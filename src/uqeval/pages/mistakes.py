"""Confident mistakes: the wrong predictions that the score is most sure of."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from uqeval import truth
from uqeval._check import Int, to_array
from uqeval._errors import InputError, a_type
from uqeval._result import Grid
from uqeval.evaluation.result import Evaluation
from uqeval.inputs import Predictions
from uqeval.pages.words import cell, clip, count

MOST_COLUMNS = 12


def check_columns(columns: Any, n: int) -> dict[str, Any]:
    """A mapping or a dataframe → name → values, each as long as the rows."""
    if columns is None:
        return {}
    named = getattr(columns, "column_names", getattr(columns, "columns", None))  # the first is Arrow's
    names = columns if isinstance(columns, Mapping) else named
    if names is None:
        raise InputError(f"`columns` is {a_type(columns)}. Pass a dict of name → values, or a dataframe.")
    given = {str(name): columns[name] for name in names}
    if len(given) > MOST_COLUMNS:
        raise InputError(f"`columns` has {len(given)} columns. Choose {MOST_COLUMNS} or fewer, to be readable.")
    for name, values in given.items():
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise InputError(f"`columns[{name!r}]` is {values!r}. Pass one value per row.")
        if len(values) != n:
            raise InputError(
                f"`columns[{name!r}]` has {len(values)} values; {n} rows were evaluated. Pass one per row."
            )
    return given


def find(ev: Evaluation, score: str, columns: Any, most: int) -> dict[str, Any] | None:
    """The wrong rows with the lowest score; None where errors are unknown or none are asked for."""
    if (table := ev.source) is None:
        return None
    pred, error = table.pred, table.error
    given = check_columns(columns, pred.n)
    if error is None or most == 0:
        return None
    rows = _lowest(table.score(score), np.flatnonzero(error), most)
    shown: dict[str, list[str]] = {"row": [str(row) for row in rows]}
    if pred.ids is not None:
        shown["id"] = [clip(pred.ids[row]) for row in rows]
    if pred.labels is not None:
        shown["label"] = [clip(_class(pred, code)) for code in pred.labels[rows]]
    if (predicted := _predicted(pred, rows)) is not None:
        shown["predicted"] = [clip(_class(pred, code)) for code in predicted]
    shown[clip(score)] = [cell(value) for value in table.score(score)[rows]]
    if (confidence := table["confidence"]) is not None:
        shown["confidence"] = [cell(value) for value in confidence[rows]]
    if pred.groups is not None:
        shown["group"] = [clip(pred.group_names[code]) for code in pred.groups[rows]]
    head, cells = list(shown), list(shown.values())
    for name, values in given.items():  # beside the others, whatever they are called
        head.append(clip(name))
        cells.append([cell(value) for value in _taken(name, values, rows)])
    note = "Rows count from 0, in the order of the rows that were evaluated."
    listed = Grid(head, list(zip(*cells, strict=True)), "Confident mistakes", [note])
    return {"score": score, "table": listed, "total": count(int(error.sum()))}


def _lowest(score: Any, wrong: Int, most: int) -> Int:
    """The rows among `wrong` with the lowest scores; of equal ones the first."""
    own = score[wrong]
    if len(wrong) > most:
        edge = np.partition(own, most - 1)[most - 1]
        wrong, own = wrong[own <= edge], own[own <= edge]
    return wrong[np.argsort(own, kind="stable")[:most]]


def _predicted(pred: Predictions, rows: Int) -> Int | None:
    if pred.pred is not None:
        return pred.pred[rows]
    return None if pred.probs is None or not len(rows) else truth.predicted_labels(pred.probs[rows])


def _class(pred: Predictions, code: Any) -> str:
    return pred.classes[int(code)] if 0 <= int(code) < len(pred.classes) else str(int(code))


def _taken(name: str, values: Any, rows: Int) -> list[Any]:
    """The values of some rows, whatever holds them; only these are converted."""
    if hasattr(values, "iloc"):  # pandas would look rows up by their labels
        values = values.iloc
    elif hasattr(values, "detach"):
        values = to_array(name, values)
    found = [values[int(row)] for row in rows]
    return [value.as_py() if hasattr(value, "as_py") else value for value in found]
