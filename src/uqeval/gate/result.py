"""What a gate found: a verdict on each rule, and the three answers it can give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from uqeval._result import SCHEMA_VERSION, Grid, Result, as_text, number, versions

PASS, FAIL, UNCLEAR = "pass", "fail", "too few rows to tell"
CODES = {PASS: 0, FAIL: 1, UNCLEAR: 3}


@dataclass(frozen=True)
class Verdict(Result):
    """One rule: whether it holds, the number that decided, and why."""

    rule: str
    status: str  # "pass", "fail" or "too few rows to tell"
    metric: str | None
    score: str | None
    group: str | None  # of a rule for the worst group: which one it is
    value: float
    low: float
    high: float
    limit: float
    on: str
    n: int
    why: str

    @property
    def cell(self) -> str:
        """The number with its interval."""
        if math.isnan(self.value):
            return "undefined"
        return f"{number(self.value)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class GateResult(Result):
    """Whether all rules hold; `exit_code` is 0 (pass), 1 (fail) or 3 (too few rows to tell)."""

    verdicts: tuple[Verdict, ...]
    level: float
    tests: int  # rules, one in every group where a rule is for the worst: they share the chance of a false fail
    n: int
    baseline: str | None = None  # "paired", "unpaired" or "the same rows and predictions"
    warnings: tuple[str, ...] = ()
    provenance: dict[str, Any] | None = None

    @property
    def status(self) -> str:
        """Fail where a rule fails; pass only where all do."""
        found = {verdict.status for verdict in self.verdicts}
        return FAIL if FAIL in found else UNCLEAR if UNCLEAR in found else PASS

    @property
    def passed(self) -> bool:
        """Whether every rule is shown to hold."""
        return self.status == PASS

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return CODES[self.status]

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "exit_code": self.exit_code,
            "level": self.level,
            "tests": self.tests,
            "n": self.n,
            "baseline": self.baseline,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
            "warnings": list(self.warnings),
            "versions": versions(),
            **({} if self.provenance is None else {"provenance": self.provenance}),
        }

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per rule."""
        return [verdict.to_dict() for verdict in self.verdicts]

    def headline(self) -> str:
        """The answer in one line."""
        counts = [sum(v.status == status for v in self.verdicts) for status in CODES]
        of = f"{len(self.verdicts)} rule{'s' * (len(self.verdicts) != 1)} on {self.n:,} rows"
        told = f"{self.status}: {of}: {counts[0]} passed, {counts[1]} failed, {counts[2]} cannot be told"
        return told if self.baseline is None else f"{told}; the baseline: {self.baseline}"

    def table(self) -> Grid:
        """A row per rule."""
        rows = [(v.rule, v.cell, v.status, v.why) for v in self.verdicts]
        return Grid(("rule", "value (interval)", "verdict", "why"), rows)

    def view(self) -> Iterator[str | Grid]:
        """The answer, the rules, what to beware of."""
        yield self.headline()
        yield self.table()
        yield from (f"! {note}" for note in self.warnings)

    def __str__(self) -> str:
        return as_text(self.view())
