"""Class names: their order, and which class a label means, in arrays and in columns.

A label is the name of a class or, where the caller gave the order of the classes, its position. Where both readings
are possible and differ, nothing is guessed: `labels_by` chooses.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import MEND, Int, check_choice, check_codes, check_labels, to_array
from uqeval._errors import InputError
from uqeval.inputs.columns import ClassColumns, Plan, listed, repeated

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_BITS = {"true": "1", "false": "0"}
LABELS_BY = ("name", "position")


class Encoded(NamedTuple):
    """A column of labels: row i holds values[codes[i]]."""

    column: str
    codes: Int
    values: list[Any]


class Indices(NamedTuple):
    """Labels that a reader has made class indices."""

    values: Int


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
        order = names or _listed_names(full[0].columns, labels)
    elif parts:
        order = names or _binary_names(parts, labels)
    else:
        order = names or _distinct_names(labels)
    for part in parts:
        _fits(part, order)
    return Classes(order, names is not None or bool(full and not named))


def _listed_names(columns: tuple[str, ...], labels: Sequence[Encoded]) -> tuple[str, ...]:
    """Columns given in class order, without a common beginning where labels name the rest: `1` and `2` of `p1`, `p2`.

    As positions the labels 1 and 2 would be other classes: both readings must be known to be told apart.
    """
    shared = takewhile(lambda letters: len(set(letters)) == 1, zip(*columns, strict=False))
    for cut in range(len(list(shared)) + 1):
        names = tuple(column[cut:] for column in columns)
        inside = any(column[cut - 1 : cut].isdigit() and column[cut : cut + 1].isdigit() for column in columns)
        if labels and not inside and all(_named(column, names) for column in labels):
            return names
    return columns


def _named(column: Encoded, names: Sequence[str]) -> bool:
    """Whether every value is a name, or a number that several are."""
    shared = _shared_numbers(names)
    found = zip(column.values, _by_name(column, names), strict=True)
    return all(code >= 0 or _number(_spellings(value)[-1]) in shared for value, code in found)


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
    for encoded in labels:
        alike = [value for value in encoded.values if positive in _spellings(value)]
        if len(alike) > 1:
            raise InputError(
                f"`{encoded.column}` holds {listed(map(repr, alike))}, all of which could be class {positive}. Give a "
                f"column of probabilities per class, or write the class in one way."
            )
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
    said = any(positive in _spellings(value) for column in labels for value in column.values)
    if values and not said and number == 0 and _numeric([_spellings(value)[-1] for value in values]):
        column = next(part.columns[0] for part in parts if part.names is not None)
        raise InputError(
            f"`{column}` is the only probability column, and the labels hold {listed(values)} alone, which may stand "
            f"for {positive} or not. Pass classes=[...], the names in the order of the numbers."
        )
    flipped = {"0": "1", "1": "0"}.get(positive, f"not {positive}")
    return _ordered([*(values or {flipped}), positive])


def _distinct_names(labels: Sequence[Encoded]) -> tuple[str, ...]:
    spelled = [_spellings(value) for column in labels for value in column.values]
    number = -1 if _numeric([spelling[-1] for spelling in spelled]) else 0
    return _ordered(sorted({spelling[number] for spelling in spelled}))


def class_indices(columns: Mapping[str, Encoded], classes: Classes, labels_by: str | None) -> dict[str, Int]:
    """The class index of each row, of labels and predictions alike: all are names, or all are positions."""
    if labels_by is not None:
        check_choice("labels_by", labels_by, LABELS_BY)
    readings = {
        "name": {role: _by_name(column, classes.names) for role, column in columns.items()},
        "position": {role: _by_position(column, classes.names) for role, column in columns.items()},
    }
    if labels_by is None and not classes.indexed:
        labels_by = "name"  # the names came with the columns
    if labels_by is not None:
        found = readings[labels_by]
    else:
        whole = [by for by in LABELS_BY if all((codes >= 0).all() for codes in readings[by].values())]
        if len(whole) == 2:
            for role, column in columns.items():
                _reject_two_readings(column, readings["name"][role], readings["position"][role], classes.names)
        found = readings[whole[0] if whole else _nearest_reading(readings)]
    for role, column in columns.items():
        if (found[role] < 0).any():
            raise _unknown_label(column, found[role], classes, labels_by)
    return {role: found[role][column.codes] for role, column in columns.items()}


def _nearest_reading(readings: Mapping[str, Mapping[str, Int]]) -> str:
    """The one that fits most values: what a message should speak of."""
    return max(LABELS_BY, key=lambda by: sum(int((codes >= 0).sum()) for codes in readings[by].values()))


def _by_name(column: Encoded, names: Sequence[str]) -> Int:
    """The class that each distinct value names, -1 where none."""
    position = {name: k for k, name in enumerate(names)}
    by_number = {float(name): k for k, name in enumerate(names)} if _numeric(names) else {}
    shared = _shared_numbers(names)
    found = np.full(len(column.values), -1, dtype=np.int64)
    for code, value in enumerate(column.values):
        spelling = _spellings(value)
        if spelling[0] not in position and _number(spelling[-1]) in shared:
            continue
        hits = [position[text] for text in spelling if text in position]
        if hits:
            found[code] = hits[0]
        elif by_number and _NUMBER.fullmatch(spelling[-1]):
            found[code] = by_number.get(float(spelling[-1]), -1)
    return found


def _shared_numbers(names: Sequence[str]) -> set[float | None]:
    """Numbers that are several classes, as "1" and "01": "1.0" is neither of them."""
    numbers = [number for name in names if (number := _number(name)) is not None]
    return {number for number in numbers if numbers.count(number) > 1} if len(set(numbers)) < len(numbers) else set()


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _by_position(column: Encoded, names: Sequence[str]) -> Int:
    """The class at the position that each distinct value is, -1 where it is none."""
    count, shared = len(names), _shared_numbers(names)
    found = np.full(len(column.values), -1, dtype=np.int64)
    for code, value in enumerate(column.values):
        last = _spellings(value)[-1]
        number = _number(last)
        if number is not None and number.is_integer() and 0 <= number < count and number not in shared:
            found[code] = int(number)
    return found


def _reject_two_readings(column: Encoded, by_name: Int, by_position: Int, names: Sequence[str]) -> None:
    if (differ := np.flatnonzero(by_name != by_position)).size:
        value, place = column.values[differ[0]], int(by_position[differ[0]])
        raise InputError(
            f"`{column.column}` can be read in two ways: {value!r} names a class ({listed(names)}), and as a position "
            f'from 0 on it is class {names[place]}. Say which is meant: labels_by="name" or labels_by="position".'
        )


def _unknown_label(column: Encoded, found: Int, classes: Classes, labels_by: str | None) -> InputError:
    bad = found[column.codes] < 0
    row, count = int(bad.argmax()), int(bad.sum())
    value, rows = column.values[column.codes[row]], f"{count} such row{'s' * (count != 1)}"
    hint = f"`{column.column}` holds {value!r} in row {row} ({rows}), "
    if labels_by == "position":
        return InputError(f"{hint}which is no position 0..{len(classes.names) - 1} of the classes. {MEND}")
    if classes.indexed:
        places = f"nor among their positions 0..{len(classes.names) - 1}"
        return InputError(f"{hint}which is neither among the classes ({listed(classes.names)}) {places}. {MEND}")
    hint += f"which is not among the classes ({listed(classes.names)})"
    lead = classes.names[0][:1]
    if not lead.isalnum() and all(name.startswith(lead) for name in classes.names):
        return InputError(f"{hint}. All of these begin with {lead!r}, which should be a part of the pattern.")
    integers = all(_NUMBER.fullmatch(_spellings(value)[-1]) for value in column.values)
    if integers and not _numeric(classes.names):
        return InputError(f"{hint}. Integers need an order: pass classes=[...], and they index into it.")
    return InputError(f"{hint}. Drop or mend those rows, or name the columns of the model's output after the labels.")


def check_class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Names as strings, each once."""
    if isinstance(classes, str):
        raise InputError(f"`classes` is {classes!r}. Pass a list of names, one per class.")
    names = tuple(str(name) for name in classes)
    if twice := repeated(names):
        raise InputError(f"`classes` names {twice[0]!r} more than once. Every class needs its own name.")
    return names


def check_class_indices(
    given: Mapping[str, ArrayLike | Indices | None], names: tuple[str, ...] | None, width: int, labels_by: str | None
) -> dict[str, Int | None]:
    """Class indices of `labels` and `pred`, from names or positions; `width` is 0 where nothing tells it."""
    found: dict[str, Int | None] = dict.fromkeys(given)
    texts, numbers = {}, {}
    alike = names is None or not ambiguous(names)
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, Indices):
            found[name] = value.values
            continue
        array = to_array(name, value)
        if array.dtype.kind in "UTO":
            if names is None:
                raise InputError(
                    f"`{name}` holds strings. Pass classes=[...], the names in the order of the columns of `probs`."
                )
            texts[name] = _encoded(name, array)
        elif names is None or (alike and labels_by != "name"):
            found[name] = check_labels(array, width or _highest(array), name=name)
        else:
            numbers[name] = _encoded(name, array)
    if names is not None:
        found |= class_indices(texts, Classes(names, False), None)  # a text is a name
        found |= class_indices(numbers, Classes(names, True), labels_by)
    return found


def ambiguous(names: Sequence[str]) -> bool:
    """Whether a number may be the name of one class and the position of another."""
    own = tuple(names) == tuple(map(str, range(len(names))))
    return not own and any(name.lower() in _BITS or _NUMBER.fullmatch(name) for name in names)


def _encoded(name: str, array: NDArray[Any]) -> Encoded:
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.floor(array)).all():
        array = array.astype(np.int64)  # coded by a table, without sorting
    codes, values = check_codes(name, array)
    return Encoded(name, codes, values.tolist())


def _highest(array: NDArray[Any]) -> int:
    """A class count for labels that come alone: whatever they hold, or enough for the message."""
    top = array.max() if array.size and array.dtype.kind in "biuf" else 0
    return max(int(top) + 1, 1) if np.isfinite(top) else 1
