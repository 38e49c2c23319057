"""Arguments of `Predictions` with one entry per row, checked into arrays; and which rows are taken."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import MEND, Float, Int, check_codes, check_vector, clean_vector, to_array
from uqeval._errors import InputError, a_type
from uqeval.inputs.classes import Coded


def finite_vector(name: str, value: ArrayLike, *, finite: bool = True) -> Float:
    return check_vector(name, value, finite=finite, hint=MEND)


def own_scores(scores: Mapping[str, ArrayLike] | None) -> dict[str, tuple[Float, bool]]:
    """Each score, and whether it is finite."""
    if scores is None:
        return {}
    if not isinstance(scores, Mapping):
        raise InputError(f"`scores` is {a_type(scores)}. Pass a dict: name → array of shape (n,).")
    if len({str(name) for name in scores}) < len(scores):
        raise InputError(f"`scores` has names that read alike: {', '.join(map(repr, scores))}. Rename one.")
    return {
        str(name): clean_vector(f"scores[{str(name)!r}]", score, finite=False, hint=MEND)
        for name, score in scores.items()
    }


def row_names(ids: ArrayLike) -> NDArray[np.str_]:
    array = to_array("ids", ids)
    if array.ndim != 1:
        raise InputError(f"`ids` has shape {array.shape}. Pass one entry per row: shape (n,).")
    return array.astype(np.str_)


def coded(name: str, value: ArrayLike | Coded | None) -> tuple[Int | None, NDArray[Any] | None]:
    """Codes and what they stand for, in natural order: numbers written as strings sort as numbers."""
    if value is None:
        return None, None
    codes, values = value if isinstance(value, Coded) else check_codes(name, value)
    keys = values
    if values.dtype.kind in "UTO":
        values = values.astype(np.str_)
        try:
            keys = values.astype(np.int64)
        except (ValueError, OverflowError):
            keys = values
    order = np.argsort(keys, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], values[order]


def row_numbers(rows: ArrayLike, n: int) -> Int:
    array = to_array("rows", rows)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biu"):
        raise InputError(f"`rows` has shape {array.shape} and type {array.dtype}. Pass a boolean mask or row numbers.")
    if array.dtype == np.bool_:
        if len(array) != n:
            raise InputError(f"`rows` has {len(array)} entries but there are {n} rows. Pass one entry per row.")
        index = np.flatnonzero(array)
    else:
        index = array.astype(np.int64)
        outside = np.flatnonzero((index < -n) | (index >= n))
        if len(outside):
            raise InputError(f"`rows` holds {index[outside[0]]} but there are {n} rows.")
    if len(index) < 2:
        raise InputError(f"`rows` picks {len(index)} row{'s' * (len(index) != 1)}. Ranking needs at least 2.")
    return index
