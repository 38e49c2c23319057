"""Thresholds for several targets whose promises hold together: as a table, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval._result import SCHEMA_VERSION, Grid, Result, as_text, number, read_json, to_json
from uqeval.decide.results import shown
from uqeval.decide.threshold import Threshold


class Thresholds(tuple[Threshold, ...], Result):
    """Thresholds for several targets, in the order asked for, whose promises hold together."""

    __slots__ = ()

    @property
    def feasible(self) -> bool:
        """Whether any of them accepts anything."""
        return any(t.feasible for t in self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"schema_version": SCHEMA_VERSION, "thresholds": [t.to_dict() for t in self]}

    def to_json(self) -> str:
        """JSON that `from_json` reads."""
        items = [json.loads(t.to_json()) for t in self]
        return to_json({"schema_version": SCHEMA_VERSION, "thresholds": items})

    @classmethod
    def from_json(cls, text: str | Path) -> Thresholds:
        """The thresholds that `to_json` wrote: their text, or a path."""
        items = read_json(text, "Thresholds").get("thresholds")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise InputError("This is not the JSON of Thresholds: there is no list of thresholds in it.")
        return cls(Threshold.from_json(json.dumps(item)) for item in items)

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per target."""
        return [row for t in self for row in t.frame_rows()]

    def table(self) -> Grid:
        """What each promises."""
        head = ["max risk", "act below", "coverage (interval)", "accepted", "errors", "observed risk"]
        if self and self[0].what == "loss":
            head[4:] = ["loss", "observed loss"]
        rows = []
        for t in self:
            low, high = t.coverage_interval
            cells = [f"{t.max_risk:g}", shown(t.value) if t.feasible else "nothing"]
            cells += [f"{t.coverage:.1%} ({low:.1%}–{high:.1%})" if t.feasible else "0%"]
            cells += [f"{t.n_accepted:,}", f"{t.errors_accepted:,.6g}", number(t.risk)]
            rows.append(tuple(cells))
        return Grid(tuple(head), rows)

    def view(self) -> Iterator[str | Grid]:
        """The table, and what to beware of."""
        yield self.table()
        yield from (f"! {note}" for note in dict.fromkeys(note for t in self for note in t.warnings))

    def __str__(self) -> str:
        return as_text(self.view())
