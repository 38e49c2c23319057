"""The number that a user reads: value, interval, and what limits them."""

from dataclasses import dataclass
from typing import Any

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
    degenerate: bool = False
    warnings: tuple[str, ...] = ()

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict() | {"warnings": "; ".join(self.warnings)}]

    def __str__(self) -> str:
        return f"{number(self.value)} ({number(self.low)}–{number(self.high)})"
