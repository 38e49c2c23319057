"""What the results of `decide` share: JSON that a service can keep and read back, curves with a row per point."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np

from uqeval._check import check_level
from uqeval._errors import InputError
from uqeval._result import SCHEMA_VERSION, Grid, Mistyped, Result, number, read_json, typed_fields
from uqeval._signs import visible
from uqeval.inference.result import Estimate

_MARK = re.compile("[0-9a-f]{1,16}")


def with_notes(lines: Iterable[str], warnings: Iterable[str]) -> str:
    """The lines, and below them what to beware of."""
    return visible("\n".join((*lines, *(f"! {note}" for note in warnings))))


def shown(value: float, digits: int = 10) -> str:
    """So many digits of a threshold, rounded down: what is printed never accepts more than what was certified."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}g}"
    if float(text) > value:
        exact = Decimal(value)
        step = Decimal(1).scaleb(exact.adjusted() + 1 - digits)
        text = f"{float(exact.quantize(step, rounding=ROUND_FLOOR)):.{digits}g}"
    return text


@dataclass(frozen=True)
class Holdout(Result):
    """The threshold on rows that did not choose it: honest estimates of its coverage and its risk."""

    n: int
    n_accepted: int
    errors_accepted: float
    coverage: Estimate
    risk: Estimate


@dataclass(frozen=True)
class GroupRisk(Result):
    """What a threshold accepts in one group, and what went wrong there: an estimate, no promise."""

    group: str
    n: int
    n_accepted: int
    errors_accepted: float
    n_clusters: int | None
    coverage: Estimate
    risk: Estimate
    # "below" or "above" the promised risk, or "unclear", by intervals that hold for all groups at once.
    verdict: str


def groups_table(groups: Iterable[GroupRisk], each: bool, held_out: bool) -> Grid:
    """Group by group."""
    rows = []
    for g in groups:
        units = [] if g.n_clusters is None else [f"{g.n_clusters:,}"]
        counts = [f"{g.n:,}", *units, f"{g.n_accepted:,}", f"{g.errors_accepted:,.6g}"]
        rows.append((g.group, *counts, _interval(g.coverage), _interval(g.risk), g.verdict))
    clusters = ("clusters",) if any(g.n_clusters is not None for g in groups) else ()
    head = ("group", "rows", *clusters, "accepted", "errors", "coverage", "risk", "promise")
    whose = "on rows that did not choose the threshold" if held_out else "on the rows that chose it: optimistic"
    what = "The promise holds in each group." if each else "The promise is for all inputs together, not for each group."
    return Grid(head, rows, f"{what} Seen in each, {whose}:")


def _interval(estimate: Estimate) -> str:
    """Of a group of which nothing is accepted there is none."""
    return (
        "–"
        if math.isnan(estimate.value)
        else f"{number(estimate.value)} ({number(estimate.low)}–{number(estimate.high)})"
    )


class Curve(Result):
    """A row per point: the arrays among the fields are the columns."""

    def __len__(self) -> int:
        return len(self.frame_rows())

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per point."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        columns = {name: array.tolist() for name, array in values.items() if isinstance(array, np.ndarray)}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class Stored(Result):
    """Equal to what has the same JSON (NaN entries are equal too), which `from_json` reads."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name."""
        return {"schema_version": SCHEMA_VERSION} | super().to_dict()

    @classmethod
    def from_json(cls, text: str | Path) -> Self:
        """What `to_json` wrote: its text, or a path."""
        data = read_json(text, cls.__name__)
        data.pop("provenance", None)  # of the file that holds it
        return cls._from_dict(data)

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(**_fields(cls, data))


def _fields(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The values as the fields declare them; what is missing, unknown or of a wrong type is named."""
    try:
        checked = typed_fields(kind, data)
    except Mistyped as problem:
        raise _refusal(kind, str(problem)) from None
    if any(_MARK.fullmatch(mark) is None for mark in checked.get("marks", ())):
        raise _refusal(kind, "'marks' holds what is no mark")
    if "level" in checked:
        checked["level"] = check_level(checked["level"])
    if "max_risk" in checked and not 0 < checked["max_risk"] < 1:
        raise _refusal(kind, f"'max_risk' is {checked['max_risk']!r}, not between 0 and 1")
    return checked


def _refusal(kind: type, reason: str) -> InputError:
    return InputError(f"This is not the JSON of a {kind.__name__}: {reason}. Pass what to_json wrote.")
