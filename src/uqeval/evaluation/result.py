"""The table that a user reads: scores × metrics × groups with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uqeval._errors import InputError
from uqeval._result import Grid, Result, as_text, number, versions
from uqeval.evaluation.table import Row, Table
from uqeval.inference.power import detectable_difference
from uqeval.inference.result import Estimate
from uqeval.metrics.registry import REGISTRY

if TYPE_CHECKING:
    from uqeval.evaluation.row_data import RowData

SCHEMA_VERSION = 1
_MOST_GROUPS = 20  # printed; all are in the data
_LEAST_ERRORS = 10


@dataclass(frozen=True)
class Mixed:
    """Test that a metric has the same true value in all groups."""

    score: str | None
    metric: str
    statistic: float
    df: int
    df2: float
    p: float
    left_out: int = 0  # groups without what the test needs of each: two errors, a value inside the range


@dataclass(frozen=True)
class Panel:
    """A printable table: a row per score, a column per metric (of all rows) or per group (of one metric)."""

    title: str | None
    columns: tuple[tuple[str, str, str | None], ...]  # heading, metric, group


@dataclass(frozen=True)
class Evaluation(Result):
    """All estimates of one test set."""

    n: int
    n_errors: int | None
    accuracy: float | None
    level: float
    tie_rate: dict[str, float]
    rows: Table = field(repr=False)
    warnings: tuple[str, ...] = ()
    heterogeneity: tuple[Mixed, ...] = field(default=(), repr=False)
    # The rows themselves, for plots and reports; None where they never were in one place.
    source: RowData | None = field(default=None, repr=False, compare=False)
    run: Result | None = field(default=None, repr=False, compare=False)  # what it cost, from an engine

    # ---- look-up ----

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(self.tie_rate)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return self.rows.metrics

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.rows.groups

    def __getitem__(self, key: str | tuple[str | None, ...]) -> Estimate:
        """``ev["entropy", "uq_auc"]``, ``ev["entropy", "uq_auc", "group"]``, or ``ev["accuracy"]`` of the model."""
        parts = key if isinstance(key, tuple) else (None, key)
        score, metric, group = (*parts, None)[:3] if 2 <= len(parts) <= 3 else (None, None, None)
        group = None if group is None else str(group)
        if score is None or score in self.scores:
            for name in (score, None):  # a metric of the model is the same whatever the score
                if (found := self.rows.find(name, metric, group)) is not None:
                    return found
        raise InputError(
            f"There is no estimate {key!r}. Scores: {', '.join(self.scores)}. Metrics: {', '.join(self.metrics)}."
            + (f" Groups: {', '.join(self.groups)}." if self.groups else "")
        )

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def best(self, metric: str, group: str | None = None) -> tuple[str, ...]:
        """The scores with the best value of a metric (several where they tie; none where all are undefined)."""
        found = {name: self.rows.find(name, metric, group) for name in self.scores}
        values = {name: e.value for name, e in found.items() if e is not None and not math.isnan(e.value)}
        if not values:
            return ()
        top = max(values.values()) if REGISTRY[metric].direction == "higher" else min(values.values())
        return tuple(name for name, value in values.items() if value == top)

    # ---- data ----

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape (`schema_version` inside)."""
        fields = ("value", "low", "high", "se", "level", "method", "n")
        return {
            "schema_version": SCHEMA_VERSION,
            "n": self.n,
            "n_errors": self.n_errors,
            "accuracy": self.accuracy,
            "tie_rate": dict(self.tie_rate),
            "estimates": [
                {"score": row.score, "metric": row.metric, "group": row.group}
                | {name: getattr(row.estimate, name) for name in fields}
                for row in self.rows
            ],
            "heterogeneity": [dict(vars(test)) for test in self.heterogeneity],
            "detectable_difference": self.detectable(),
            "warnings": list(self.warnings),
            "versions": versions(),
            **({} if self.run is None else {"run": self.run.to_dict()}),
        }

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per estimate."""
        return self.to_dict()["estimates"]

    # ---- print ----

    def panels(self, width: int = 3) -> list[Panel]:
        """Tables of at most `width` columns: metrics of all rows, then the first metric by group (at most 20)."""
        ranking = [name for name in self.metrics if REGISTRY[name].uses_score]
        whole = [(heading(name), name, None) for name in ranking]
        found = [Panel(None, tuple(whole[at : at + width])) for at in range(0, len(whole), width)]
        groups = [(group, ranking[0], group) for group in self.groups[:_MOST_GROUPS]] if ranking else []
        for at in range(0, len(groups), width):
            found.append(Panel(f"{heading(ranking[0])} by group", tuple(groups[at : at + width])))
        return found

    def cells(self, panel: Panel) -> Iterator[tuple[str, list[tuple[str, bool]]]]:
        """Score by score: its name, and for each column the text and whether it is the best of the column."""
        several = len(self.scores) > 1
        best = {column: self.best(*column[1:]) if several else () for column in panel.columns}
        for name in self.scores:
            yield name, [(str(self.rows.find(name, *column[1:])), name in best[column]) for column in panel.columns]

    def headline(self) -> str:
        """Rows, errors, accuracy."""
        text = f"{self.n:,} rows"
        if self.n_errors is not None and self.accuracy is not None:
            text += f", {self.n_errors:,} errors, accuracy {self.accuracy:.3f}"
        return f"{text}; {100 * self.level:.6g}% intervals"

    def too_few(self) -> str | None:
        """The row that says that nothing can be ranked, where that is so."""
        if self.n_errors is None:
            return None
        right = self.n - self.n_errors
        if min(self.n_errors, right) >= _LEAST_ERRORS:
            return None
        which, count = ("errors", self.n_errors) if self.n_errors <= right else ("right rows", right)
        return (
            f"Too few {which} ({count}) to rank scores by them: an interval that wide tells little. "
            f"Collect at least {_LEAST_ERRORS}, better 50 or more."
        )

    def verdict(self) -> list[str]:
        """Plain words: how far to trust which score."""
        known = {
            row.score: row.estimate
            for row in self.rows.whole
            if row.metric == "uq_auc" and not math.isnan(row.estimate.value)
        }
        lines = []
        for name in self.best("uq_auc")[:1]:
            e = known[name]
            if e.low > 0.5:
                lines.append(
                    f"{name} ranks errors best: UQ-AUC {e}. Of a wrong and a right prediction it puts the "
                    f"wrong one higher {e.value:.0%} of the time."
                )
        useless = [str(name) for name, e in known.items() if e.low <= 0.5 <= e.high]
        reversed_ = [str(name) for name, e in known.items() if e.high < 0.5]
        if useless:
            lines.append(f"Not shown to rank errors better than chance (interval holds 0.5): {', '.join(useless)}.")
        if reversed_:
            lines.append(f"Ranks errors the wrong way round (higher must mean less sure): {', '.join(reversed_)}.")
        return lines

    def detectable(self, power: float = 0.8) -> float | None:
        """The smallest difference in UQ-AUC between two scores that this test set can show, with that power.

        For scores whose influence values correlate 0.5, the best score's standard error taken for both; None
        without UQ-AUC. `compare` gives the standard error of an actual pair.
        """
        for name in self.best("uq_auc")[:1]:
            best = self[name, "uq_auc"]
            if best.se > 0:
                return detectable_difference(best.n, sd=best.se * math.sqrt(best.n), power=power, level=self.level)
        return None

    def detectable_line(self) -> str | None:
        """The same in words."""
        least = self.detectable()
        if least is None:
            return None
        return f"Scores closer than about {number(least)} in UQ-AUC cannot be told apart on this test set (80% power)."

    def mixed_lines(self) -> list[str]:
        """Scores whose first metric differs between groups."""
        first = next((name for name in self.metrics if REGISTRY[name].uses_score), None)
        return [
            f"{test.score}: {REGISTRY[test.metric].title} differs between groups (p = {test.p:.4f}"
            + (f"; {test.left_out} of {test.left_out + test.df + 1} groups left out)" if test.left_out else ")")
            for test in self.heterogeneity
            if test.metric == first and test.p <= 1 - self.level
        ]

    def model_lines(self, group: str | None = None) -> list[tuple[str, Estimate]]:
        """The metrics of the model itself, which are the same for every score."""
        return [(REGISTRY[row.metric].title, row.estimate) for row in self.rows.of_group(group) if row.score is None]

    def tie_notes(self) -> list[str]:
        """Tie rates above 1%."""
        return [
            f"{name}: {rate:.1%} of the pairs of rows have the same score"
            for name, rate in self.tie_rate.items()
            if rate > 0.01
        ]

    def view(self) -> Iterator[str | Grid]:
        """Headline, verdict, tables, the model itself, what to beware of."""
        yield self.headline()
        if few := self.too_few():
            yield f"! {few}"
        yield from self.verdict()
        for panel in self.panels():
            cells = [(name, *(f"{text} *" if top else text for text, top in row)) for name, row in self.cells(panel)]
            yield ""
            yield Grid(("score", *(title for title, _, _ in panel.columns)), cells, panel.title)
        if (hidden := len(self.groups) - _MOST_GROUPS) > 0:
            yield f"… and {hidden} more groups (see to_frame())"
        if model := self.model_lines():
            yield "\nthe model itself:"
            yield from (f"  {title:<16}{estimate}" for title, estimate in model)
        if detectable := self.detectable_line():
            yield f"\n{detectable}"
        yield "\n* best score of the column; higher ↑ or lower ↓ is better"
        yield from (f"! {note}" for note in (*self.mixed_lines(), *self.tie_notes(), *self.warnings))

    def __str__(self) -> str:
        return as_text(self.view())


def heading(metric: str) -> str:
    """Title with the direction that is better."""
    known = REGISTRY[metric]
    return f"{known.title} {'↑' if known.direction == 'higher' else '↓'}"
