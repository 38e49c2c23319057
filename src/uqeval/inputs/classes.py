"""Class names: their order, and which class a label means, in arrays and in columns."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Int, check_codes, check_labels, to_array
from uqeval._errors import InputError
from uqeval.inputs.columns import ClassColumns, Plan, listed, repeated

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_BITS = {"true": "1", "false": "0"}


class Encoded(NamedTuple):
    """A column of labels: row i holds values[codes[i]]."""

    column: str
    codes: Int
    values: list[Any]


class Coded(NamedTuple):
    """Clusters or groups, encoded: row i holds values[codes[i]]."""

    codes: NDArray[Any]
    values: NDArray[Any]


class Classes(NamedTuple):
    """Names in the order of the arrays' columns; `indexed` where the user fixed that order."""

    names: tuple[str, ...]
    indexed: bool


def _spellings(value: Any) -> list[str]:
    """How a label may be written as a class name, as it came first and as a plain integer last."""
    text = str(value)
    if text.lower() in _BITS:
        return [text, text.lower(), _BITS[text.lower()]]
    if _NUMBER.fullmatch(text) and float(text).is_integer():
        return [text, str(int(float(text)) if "." in text else int(text))]
    return [text]


def _numeric(names: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(name) for name in names)


def _ordered(names: Sequence[str]) -> tuple[str, ...]:
    """Numeric names in numeric order, others as they come."""
    return tuple(sorted(names, key=float)) if _numeric(names) else tuple(names)


def settle_classes(plan: Plan, given: Sequence[str] | None, labels: Sequence[Encoded]) -> Classes:
    """The class order that every array shares."""
    names = None if given is None else tuple(str(name) for name in given)
    parts = [*plan.tables.values(), *(group[0] for group in plan.members.values())]
    full = [part for part in parts if len(part.columns) > 1]
    named = [part for part in full if part.names is not None]
    for part in named[1:]:
        _same_classes(named[0], part)
    if named:
        own = named[0].names or ()
        order = _ordered(own)
        if names is not None:
            if sorted(names) != sorted(own):
                raise InputError(
                    f"`classes` names {listed(names)}, but the {named[0].role} columns hold {listed(order)}. "
                    f"Pass the same names, in the order you want."
                )
            order = names
    elif full:
        order = names or full[0].columns
    elif parts:
        order = names or _binary_names(parts, labels)
    else:
        order = names or _distinct_names(labels)
    for part in parts:
        _fits(part, order)
    return Classes(order, names is not None or bool(full and not named))


def _same_classes(first: ClassColumns, other: ClassColumns) -> None:
    a, b = set(first.names or ()), set(other.names or ())
    if a != b:
        lacking = [f"{other.role} lacks {listed(sorted(a - b))}"] * bool(a - b)
        lacking += [f"{first.role} lacks {listed(sorted(b - a))}"] * bool(b - a)
        raise InputError(f"The {first.role} and {other.role} columns are for different classes: {'; '.join(lacking)}.")


def _fits(part: ClassColumns, order: tuple[str, ...]) -> None:
    if len(part.columns) > 1 and len(part.columns) != len(order):
        raise InputError(
            f"There are {len(part.columns)} {part.role} columns ({listed(part.columns)}) "
            f"but {len(order)} classes ({listed(order)})."
        )
    if len(part.columns) == 1:
        if len(order) != 2:
            raise InputError(
                f"`{part.columns[0]}` is the only {part.role} column, which does for 2 classes, "
                f"but there are {len(order)} ({listed(order)}). Give one column per class."
            )
        if part.names is not None and part.names[0] not in order:
            raise InputError(f"`{part.columns[0]}` is for class {part.names[0]}; the classes are {listed(order)}.")


def _binary_names(parts: Sequence[ClassColumns], labels: Sequence[Encoded]) -> tuple[str, ...]:
    """Two names where each array has one column: the named class, and the other value of the labels."""
    named = list(dict.fromkeys(part.names[0] for part in parts if part.names is not None))
    if not named:
        return ("0", "1")
    if len(named) > 1:
        return _ordered(named)
    positive = named[0]
    number = -1 if _numeric(named) else 0
    values = {
        spelling[number]
        for column in labels
        for value in column.values
        if positive not in (spelling := _spellings(value))
    }
    if len(values) > 1:
        column = next(part.columns[0] for part in parts if part.names is not None)
        raise InputError(
            f"`{column}` is the only probability column, which does for 2 classes, but besides {positive} "
            f"the labels hold {listed(sorted(values))}. Give one column per class."
        )
    flipped = {"0": "1", "1": "0"}.get(positive, f"not {positive}")
    return _ordered([*(values or {flipped}), positive])


def _distinct_names(labels: Sequence[Encoded]) -> tuple[str, ...]:
    spelled = [_spellings(value) for column in labels for value in column.values]
    number = -1 if _numeric([spelling[-1] for spelling in spelled]) else 0
    return _ordered(sorted({spelling[number] for spelling in spelled}))


def class_indices(column: Encoded, classes: Classes) -> Int:
    """The class index of each row."""
    position = {name: k for k, name in enumerate(classes.names)}
    numeric = _numeric(classes.names)
    by_number = {float(name): k for k, name in enumerate(classes.names)} if numeric else {}
    spelled = [_spellings(value) for value in column.values]
    integers = bool(spelled) and all(_NUMBER.fullmatch(spelling[-1]) for spelling in spelled)
    by_index = integers and classes.indexed and not any(_NUMBER.fullmatch(name) for name in classes.names)
    found = np.full(len(spelled), -1, dtype=np.int64)
    for code, spelling in enumerate(spelled):
        hits = [position[text] for text in spelling if text in position]
        if hits:
            found[code] = hits[0]
        elif numeric and _NUMBER.fullmatch(spelling[-1]):
            found[code] = by_number.get(float(spelling[-1]), -1)
        elif by_index and float(spelling[-1]).is_integer() and 0 <= float(spelling[-1]) < len(classes.names):
            found[code] = int(float(spelling[-1]))
    if (found >= 0).all():
        return found[column.codes]
    bad = found[column.codes] < 0
    row = int(bad.argmax())
    value = column.values[column.codes[row]]
    count = f"{int(bad.sum())} such rows"
    hint = f"`{column.column}` holds {value!r} in row {row} ({count}), which is not among the classes"
    hint += f" ({listed(classes.names)})."
    if integers and not classes.indexed and not numeric:
        hint += " Integers need an order: pass classes=[...], and they index into it."
    raise InputError(hint)


def check_class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Names as strings, each once."""
    if isinstance(classes, str):
        raise InputError(f"`classes` is {classes!r}. Pass a list of names, one per class.")
    names = tuple(str(name) for name in classes)
    if twice := repeated(names):
        raise InputError(f"`classes` names {twice[0]!r} more than once. Every class needs its own name.")
    return names


def check_class_indices(name: str, value: ArrayLike, names: tuple[str, ...] | None, width: int) -> Int:
    """Class indices from integers, or from strings by name; `width` is 0 where nothing tells it."""
    array = to_array(name, value)
    if array.dtype.kind not in "UTO":
        return check_labels(array, width or _highest(array), name=name)
    if names is None:
        raise InputError(
            f"`{name}` holds strings. Pass classes=[...], the names in the order of the columns of `probs`."
        )
    codes, values = check_codes(name, array)
    position = {class_name: k for k, class_name in enumerate(names)}
    found = np.array([position.get(str(text), -1) for text in values], dtype=np.int64)[codes]
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise InputError(
            f"`{name}` holds {str(array[row])!r} in row {row}, which is not among the classes ({listed(names)})."
        )
    return found


def _highest(array: NDArray[Any]) -> int:
    """A class count for labels that come alone: whatever they hold, or enough for the message."""
    top = array.max() if array.size and array.dtype.kind in "biuf" else 0
    return max(int(top) + 1, 1) if np.isfinite(top) else 1
