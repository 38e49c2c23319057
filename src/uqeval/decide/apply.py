"""Which rows a threshold accepts, as one more column: of frames in memory, of lazy ones, of files of any size.

A score of its own column is read; another one is computed from the model's output, as `scores` does it, for which no
label is needed. How frames and files are read and written is in `inputs.marking`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uqeval import scores as score_functions
from uqeval._check import nearest
from uqeval._errors import InputError, collected
from uqeval._result import Result
from uqeval.inputs.columns import Columns, Plan, column_options, listed, plan_columns, score_columns
from uqeval.inputs.frame import numpy_values, plain_column
from uqeval.inputs.marking import Marker, lazy_frame, mark_file, mark_frame, mark_lazy
from uqeval.inputs.paths import expand
from uqeval.inputs.predictions import predictions_from_arrow

_MADE_UP = "\0error"  # no column of a user's: predictions want a target, which scores do not look at
# The columns that a score may be made from, first of all its own.
_TABLES = {
    "probs": ("prob", "logit", "member", "member_logit"),
    "logits": ("logit",),
    "members": ("member", "member_logit"),
    "member_logits": ("member_logit",),
}


class Promise(Protocol):
    """What a `Threshold` gives: its score, and which values of it one may act on."""

    @property
    def score(self) -> str | None:
        """Its name."""
        ...

    @property
    def value(self) -> float:
        """Accept what is at most this …"""
        ...

    @property
    def feasible(self) -> bool:
        """… or nothing."""
        ...

    def accept(self, score: Any, /) -> NDArray[np.bool_]:
        """True where one may act."""
        ...


@dataclass(frozen=True)
class Applied(Result):
    """What `apply_file` wrote."""

    out: str
    rows: int
    accepted: int
    score: str
    value: float

    @property
    def coverage(self) -> float:
        """Share of the rows that are accepted."""
        return self.accepted / self.rows if self.rows else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"schema_version": 1} | super().to_dict() | {"coverage": self.coverage}

    def __str__(self) -> str:
        return f"{self.out}: {self.accepted:,} of {self.rows:,} rows accepted ({self.score} ≤ {self.value:.10g})"


def apply_frame(promise: Promise, frame: Any, *, score: str | None, column: str, columns: Mapping[str, Any]) -> Any:
    """The frame with the column, of the same kind."""
    options = column_options(columns)
    if (query := lazy_frame(frame)) is None:
        return mark_frame(frame, column, partial(_marker, promise, options, score))
    names = query.collect_schema().names()
    marker = _marker(promise, options, score, names)
    if not isinstance(marker, _Plain):
        name = score_name(promise, score)
        raise InputError(
            f"The lazy frame has no column of {name} (score_{name}); what must be computed from the model's output "
            f"needs rows in memory. Collect it, or write it to a file and use uqeval apply."
        )
    return mark_lazy(query, column, marker.column, promise.value if promise.feasible else None)


def apply_file(
    promise: Promise,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    score: str | None = None,
    column: str = "accept",
    **columns: Any,
) -> Applied:
    """A file with one more column that says which rows the threshold accepts; it streams, and needs no labels.

    Parameters
    ----------
    promise : Threshold
        From `choose_threshold`, or `Threshold.from_json`.
    path, out : str or path
        The file, and the one to write, of the same format (not NPZ); it is written whole or not at all. CSV and JSON
        lines keep every byte: without what was added, the new file is the old one.
    score : str, optional
        Which score, where the threshold does not know its name; another one than its own is refused.
    column : str
        The new column: true where one may act.
    **columns
        Other names of columns, as in `uqeval.read_predictions`.

    Returns
    -------
    Applied
        ``rows``, ``accepted``, ``coverage``.

    Examples
    --------
    >>> import tempfile, pathlib, uqeval as uq
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "new.csv").write_text("id,score_mine\\n007,0.2\\n008,0.9\\n")
    >>> promise = uq.Threshold.from_value(0.5, max_risk=0.05)
    >>> done = apply_file(promise, folder / "new.csv", folder / "out.csv", score="mine")
    >>> print((folder / "out.csv").read_text().strip())
    id,score_mine,accept
    007,0.2,true
    008,0.9,false
    """
    options = column_options(columns)
    found = expand(path)
    if len(found) > 1:
        raise InputError(
            f"`path` {os.fspath(path)!r} stands for {len(found)} files. Apply the threshold to one at a time."
        )
    done = mark_file(found[0], out, column, partial(_marker, promise, options, score), options)
    return Applied(os.fspath(out), done.rows, done.true, score_name(promise, score), promise.value)


def score_name(promise: Promise, score: str | None) -> str:
    """The threshold's own score, or the one that is told where it has no name."""
    if promise.score is not None and score is not None and score != promise.score:
        raise InputError(
            f'The threshold was chosen for the score "{promise.score}"; "{score}" is another one. Leave it out, or '
            f"choose a threshold for it."
        )
    if (name := promise.score or score) is None:
        raise InputError("The threshold does not know its score's name. Pass score= (--score NAME).")
    return name


@dataclass(frozen=True)
class _Plain:
    """The score has a column."""

    promise: Promise
    column: str

    @property
    def needed(self) -> list[str]:
        return [self.column]

    def __call__(self, table: Any) -> NDArray[np.bool_]:
        column = plain_column(self.column, table.column(self.column))
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            many = f"{column.null_count} missing value{'s' * (column.null_count != 1)}"
            raise InputError(f"Column `{self.column}` has {many} (first at row {row}). Drop or mend those rows.")
        return self.promise.accept(numpy_values(column))


@dataclass(frozen=True)
class _Computed:
    """The score is computed from the model's output."""

    promise: Promise
    score: str
    plan: Plan
    options: Columns

    @property
    def needed(self) -> list[str]:
        return [name for name in self.plan.needed if name != _MADE_UP]

    def __call__(self, table: Any) -> NDArray[np.bool_]:
        n = len(table)
        if n == 0:
            return np.empty(0, dtype=np.bool_)
        if n == 1:  # predictions need two rows; the numbers of a row do not depend on the others
            table = table.take([0, 0])
        rows = {name: table.column(name) for name in self.needed}
        rows[_MADE_UP] = next(iter(rows.values())).is_null().cast("int8")
        with collected():  # notes on rows of a piece would not say which rows of the source
            pred = predictions_from_arrow(rows, self.plan, self.options)
        return self.promise.accept(score_functions.compute(self.score, pred))[:n]


def _marker(promise: Promise, options: Columns, score: str | None, names: Sequence[str]) -> Marker:
    """From the names of the columns."""
    name = score_name(promise, score)
    if (own := score_columns(options.score, names).get(name)) is not None:
        return _Plain(promise, own)
    needs = score_functions.available().get(name, ("",))
    without = dict.fromkeys(("label", "pred", "loss", "correct", "quality", "weight", "cluster", "group", "id"))
    for role in _TABLES.get(needs[0], ()):
        only = {other: None for other in _TABLES["probs"] if other != role}
        changes: dict[str, Any] = without | only | {"score": None, "soft": None, "error": _MADE_UP}
        chosen = replace(options, **changes)
        with suppress(InputError):  # no such columns: the next ones may do
            plan = plan_columns([*names, _MADE_UP], chosen)
            if role in plan.parts:
                return _Computed(promise, name, plan, chosen)
    if name in names:  # after what is computed, as where the threshold was chosen
        return _Plain(promise, name)
    if not needs[0]:
        raise InputError(
            f'There is no column of the score "{name}" (score_{name}).{nearest(name, names)} '
            f"The columns are: {listed(names)}."
        )
    raise InputError(
        f'The score "{name}" has no column, and needs {needs[0]} to be computed from. The columns are: {listed(names)}.'
    )
