"""Which columns of a pattern cannot be probabilities: what to say where `p*` takes the column `patient` for a class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uqeval._errors import InputError
from uqeval.inputs.columns import DEFAULTS, ClassColumns, Columns, Plan, listed
from uqeval.inputs.frame import is_text, numpy_values, plain_column
from uqeval.inputs.guess import Guess, as_arguments, as_options, narrower

if TYPE_CHECKING:
    import pyarrow as pa

_ROUNDING = 1e-3
_FEW = 12  # columns that a message can list


def explain(error: InputError, columns: Mapping[str, pa.ChunkedArray], plan: Plan, options: Columns) -> InputError:
    """The error, or one that names the columns of a pattern that hold no probabilities."""
    for role in ("prob", "soft", "member"):
        parts = plan.members.get(role, []) if role == "member" else [plan.tables[role]] if role in plan.tables else []
        pattern = getattr(options, role)
        for part in parts:
            if part.names is None or not isinstance(pattern, str) or pattern == DEFAULTS[role]:
                continue
            if role == "soft" and options.normalize:
                continue
            odd = {name: why for name in part.columns if (why := _stranger(name, columns[name]))}
            if 0 < len(odd) < len(part.columns):
                return _named(role, pattern, part, odd)
            if role == "prob" and "sum to 1" in str(error):
                return InputError(f"{error} The columns of {role}={pattern!r} are: {listed(part.columns)}.")
    return error


def refuse_strangers(columns: Mapping[str, pa.ChunkedArray], plan: Plan, options: Columns) -> None:
    """Where rows are normalised nothing fails: columns outside [0, 1] beside others that sum to 1 without them."""
    for role in ("prob", "soft"):
        part, pattern = plan.tables.get(role), getattr(options, role)
        if part is None or part.names is None or not isinstance(pattern, str) or pattern == DEFAULTS[role]:
            continue
        odd = {name: why for name in part.columns if (why := _stranger(name, columns[name]))}
        kept = [numpy_values(plain_column(name, columns[name])) for name in part.columns if name not in odd]
        if len(kept) < 2 or not odd or any(column.dtype.kind not in "iuf" for column in kept):
            continue
        if np.abs(np.sum(kept, axis=0, dtype=np.float64) - 1).max(initial=0.0) <= _ROUNDING:
            raise _named(role, pattern, part, odd)


def _stranger(name: str, column: pa.ChunkedArray) -> str | None:
    """Why a column holds no probabilities; None where it may."""
    import pyarrow as pa

    column = plain_column(name, column).drop_null()
    if is_text(column.type):  # a number first: one cell that is none, of which another message tells
        text = column[0].as_py() if len(column) else "0"
        return None if re.fullmatch(r"\s*[+-]?[\d.,]+([eE][+-]?\d+)?\s*", text) else f"text ({text!r} first)"
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or not len(column):
        return None
    values: Any = numpy_values(column)
    low, high = float(values.min()), float(values.max())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        return f"{low if low < -_ROUNDING else high:g}, which is outside [0, 1]"
    return None


def _named(role: str, pattern: str, part: ClassColumns, odd: Mapping[str, str]) -> InputError:
    by_column = dict(zip(part.columns, part.names or (), strict=True))
    name, why = next(iter(odd.items()))
    more = f" So are {len(odd) - 1} more: {listed(list(odd)[1:], 4)}." if len(odd) > 1 else ""
    kept = [column for column in part.columns if column not in odd]
    better = narrower(pattern, kept, list(odd))
    what = f'a narrower pattern, as {role}="{better}"' if better else f"the columns one by one ({listed(kept, 4)})"
    if better is None and len(kept) <= _FEW:
        given: dict[str, Guess] = {role: kept}
        what = f"the columns one by one: {as_arguments(given)} ({as_options(given)})"
    return InputError(
        f'Column `{name}` holds {why}, no probabilities, but the pattern {role}="{pattern}" takes it for '
        f'class "{by_column[name]}".{more} Pass {what}.'
    )
