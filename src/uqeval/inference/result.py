"""The number that a user reads: value, interval, and what limits them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval._lanes import merged
from uqeval._result import Result, number


@dataclass(frozen=True)
class Estimate(Result):
    """One metric on one test set."""

    value: float
    low: float
    high: float
    se: float
    level: float
    method: str
    n: int
    n_errors: int | None = None
    n_clusters: int | None = None
    n_eff: float | None = None
    n_clusters_eff: float | None = None  # as many of equal weight: of all, of the right or the wrong rows, the fewest
    degenerate: bool = False
    warnings: tuple[str, ...] = ()

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict() | {"warnings": "; ".join(self.warnings)}]

    @property
    def undefined(self) -> str | None:
        """Why there is no value; None where there is one."""
        if not math.isnan(self.value):
            return None
        reasons = (note.partition("undefined: ")[2] for note in self.warnings)
        return next(filter(None, reasons), "it has no value on these rows")

    @property
    def cell(self) -> str:
        """What a table shows: nothing where there is no value."""
        return "" if math.isnan(self.value) else str(self)

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "undefined"
        return f"{number(self.value)} ({number(self.low)}–{number(self.high)})"


class Note(NamedTuple):
    """What limits the estimates of some groups; {} in the text stands for a number of each."""

    text: str
    where: NDArray[np.bool_]
    numbers: Int | None = None

    @property
    def kind(self) -> str:
        """Without the number."""
        return self.text.replace(" ({})", "").replace("{} ", "")

    def at(self, lane: int) -> str:
        return self.text if self.numbers is None else self.text.format(self.numbers[lane])


def noted(test: Any, text: str, numbers: Any = None) -> tuple[Any, ...]:
    """A note where the test holds: of one estimate its text, of many groups a `Note`."""
    if isinstance(test, np.ndarray):
        return (Note(text, test, numbers),)
    return (text.format(numbers),) if test else ()


@dataclass(frozen=True, eq=False)
class Estimates:
    """One metric on each of many groups: arrays with a lane for each, and the fields of `Estimate`."""

    value: Float
    low: Float
    high: Float
    se: Float
    level: float
    method: NDArray[np.object_]
    n: Int
    n_errors: Int | None
    n_clusters: None
    n_clusters_eff: None
    n_eff: Float
    degenerate: NDArray[np.bool_]
    warnings: tuple[Note, ...]

    @classmethod
    def of(cls, n: Int, level: float, method: str, warnings: tuple[Note, ...], **numbers: Any) -> Estimates:
        """What is the same in all groups may come as one number."""
        whole: dict[str, Any] = {k: x if x is None else np.broadcast_to(x, n.shape) for k, x in numbers.items()}
        return cls(n=n, level=level, method=np.full(n.shape, method, dtype=object), warnings=warnings, **whole)

    def __len__(self) -> int:
        return len(self.n)

    def at(self, lane: int) -> Estimate:
        """The estimate of one group."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        own = {name: x[lane : lane + 1].tolist()[0] if isinstance(x, np.ndarray) else x for name, x in every.items()}
        return Estimate(**own | {"warnings": tuple(note.at(lane) for note in self.warnings if note.where[lane])})

    def merged(self, test: NDArray[np.bool_], other: Estimates) -> Estimates:
        """Where the test holds these, else the others."""
        both = {
            name: merged(test, getattr(self, name), getattr(other, name))
            for name in ("value", "low", "high", "se", "method", "n_eff", "degenerate")
        }
        sides = ((self.warnings, test), (other.warnings, ~test))
        notes = [note._replace(where=note.where & side) for own, side in sides for note in own]
        return Estimates(
            n=self.n,
            n_errors=self.n_errors,
            n_clusters=None,
            n_clusters_eff=None,
            level=self.level,
            warnings=tuple(notes),
            **both,
        )
