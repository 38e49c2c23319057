"""Further columns of a file, as they are: what to show beside a row, never used for a metric."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from uqeval._errors import InputError
from uqeval.inputs.columns import nearest
from uqeval.inputs.files import _OPENERS, PathLike, _named, expand, format_of, reading

__all__ = ["read_columns"]


def read_columns(path: PathLike | Sequence[PathLike], names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of the files that `read_predictions` reads, in the same order of rows.

    Examples
    --------
    >>> read_columns("preds.csv", ["image", "age"])  # doctest: +SKIP
    {'image': ['a.png', 'b.png'], 'age': [51, 47]}
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    wanted: Any = SimpleNamespace(needed=list(found), single={})
    for file in expand(path):
        if (kind := format_of(file)) == "npz":
            raise InputError(f"{file}: an NPZ file has no further columns.")
        with _named(file), reading(file):
            there, read = _OPENERS[kind](file)
        for name in found:
            if name not in there:
                raise InputError(f'{file}: there is no column "{name}".{nearest(name, there)}')
        with reading(file):
            table = read(wanted)
        for name, values in found.items():
            values += table[name].to_pylist()
    return found
