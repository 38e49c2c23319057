"""Which columns of a pattern cannot be probabilities: what to say where `p*` takes the column `patient` for a class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uqeval._errors import InputError
from uqeval.inputs.columns import DEFAULTS, ClassColumns, Columns, Plan, listed
from uqeval.inputs.frame import is_text, numpy_values, plain_column
from uqeval.inputs.guess import narrower

if TYPE_CHECKING:
    import pyarrow as pa

_ROUNDING = 1e-3


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
    return InputError(
        f'Column `{name}` holds {why}, no probabilities, but the pattern {role}="{pattern}" takes it for '
        f'class "{by_column[name]}".{more} Pass {what}.'
    )
