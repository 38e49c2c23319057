"""All estimates in rows: those of all rows of the data, then those of each group.

Estimates of many small groups are kept as arrays, and become objects when somebody looks at them: half a million would
take seconds and a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

from uqeval._check import Float
from uqeval._result import Grid
from uqeval.inference.result import Estimate, Estimates

ESTIMATE = tuple(field.name for field in fields(Estimate))  # its columns
Column = tuple[str | None, str]  # score and metric


@dataclass(frozen=True)
class Row:
    """One estimate: score None belongs to the model itself, group None to all rows."""

    score: str | None
    metric: str
    group: str | None
    estimate: Estimate


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


class Across(NamedTuple):
    """One metric of one score in all groups; a number that an estimate does not have is NaN."""

    value: Float
    se: Float
    rows: Float
    errors: Float
    clusters: Float
    effective: Float  # `n_eff`
    clusters_eff: Float

    @classmethod
    def of(cls, found: Estimate | Estimates) -> Across:
        """Of one group, or of many with a lane each."""
        counts = (found.n, found.n_errors, found.n_clusters, found.n_eff, found.n_clusters_eff)
        numbers = (found.value, found.se, *counts)
        shape = np.shape(found.n)
        return cls(*(np.broadcast_to(np.nan if x is None else x, shape).astype(np.float64) for x in numbers))


class Table(Sequence[Row]):
    """Rows in order: group after group, each with its columns.

    `rows` are estimates that are there already. Of the groups in `lanes` (name → lane) the columns in `stacked` are
    read from arrays.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        groups: Sequence[str] = (),
        lanes: Mapping[str, int] | None = None,
        stacked: Mapping[Column, Estimates] | None = None,
    ) -> None:
        self.single = {(row.score, row.metric, row.group): row.estimate for row in rows}
        self.lanes, self.stacked = dict(lanes or {}), dict(stacked or {})
        own = dict.fromkeys((score, metric) for score, metric, _ in self.single)
        self.columns: dict[Column, None] = own | dict.fromkeys(self.stacked)
        found = dict.fromkeys(group for _, _, group in self.single if group is not None)
        self.groups = tuple(groups) or tuple(found)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(dict.fromkeys(metric for _, metric in self.columns))

    @cached_property
    def whole(self) -> tuple[Row, ...]:
        """Of all rows of the data."""
        return tuple(self.of_group(None))

    def find(self, score: Any, metric: Any, group: Any = None) -> Estimate | None:
        """None where there is none."""
        if (found := self.single.get((score, metric, group))) is not None:
            return found
        if group in self.lanes and (score, metric) in self.stacked:
            return self.stacked[score, metric].at(self.lanes[group])
        return None

    def of_group(self, group: str | None) -> Iterator[Row]:
        """Column by column."""
        for score, metric in self.columns:
            if (found := self.find(score, metric, group)) is not None:
                yield Row(score, metric, group, found)

    def __iter__(self) -> Iterator[Row]:
        for group in (None, *self.groups):
            yield from self.of_group(group)

    def __len__(self) -> int:
        return len(self.single) + len(self.lanes) * len(self.stacked)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((tuple(self.columns), self.groups))

    # ---- groups ----

    def counts(self, group: str) -> tuple[int, int | None, int | None]:
        """Rows, errors and clusters of a group, as its metrics know them."""
        found = [row.estimate for row in self.of_group(group)]
        errors, clusters = (
            next((x for x in numbers if x is not None), None)
            for numbers in ([e.n_errors for e in found], [e.n_clusters for e in found])
        )
        return max((e.n for e in found), default=0), errors, clusters

    def counts_grid(self, groups: Sequence[str]) -> Grid | None:
        """The same of some groups, in a table; without what none of them knows."""
        found = [(group, *self.counts(group)) for group in groups]
        kept = [k for k in range(4) if any(row[k] is not None for row in found)]
        rows = [tuple(("–" if row[k] is None else f"{row[k]:,}") if k else row[0] for k in kept) for row in found]
        return Grid([("group", "rows", "errors", "clusters")[k] for k in kept], rows, "groups") if rows else None

    def across(self) -> Iterator[tuple[Column, Across]]:
        """Column by column, the groups that have it."""
        singles: dict[Column, list[Estimate]] = {}
        for (score, metric, group), estimate in self.single.items():
            if group is not None:
                singles.setdefault((score, metric), []).append(estimate)
        for column in self.columns:
            own = singles.get(column, [])
            parts = [Across.of(e) for e in own]
            if (many := self.stacked.get(column)) is not None:
                parts.append(Across.of(many))
            if parts:
                yield column, Across(*(np.hstack(numbers) for numbers in zip(*parts, strict=True)))
