"""The answer to "which is better, and could it be chance?"."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from uqeval._errors import InputError
from uqeval._result import SCHEMA_VERSION, Grid, Result, as_text, number, p_text, versions
from uqeval.evaluation.stored import stored_comparison
from uqeval.inference.multiplicity import cliques
from uqeval.metrics.copies import Groups, copies_notes
from uqeval.metrics.registry import REGISTRY


@dataclass(frozen=True)
class Pair:
    """`a` minus `b`; group None means all rows."""

    a: str
    b: str
    group: str | None
    difference: float
    low: float
    high: float
    se: float
    df: float
    p: float
    p_adjusted: float


@dataclass(frozen=True)
class Comparison(Result):
    """Paired differences of one metric on the same rows."""

    metric: str
    adjust: str
    level: float
    method: str
    n: int
    baseline: str | None
    values: dict[str, float]
    rows: tuple[Pair, ...] = field(repr=False)
    heterogeneity: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    same_ranking: Groups = ()  # candidates that are one ranking: the first of them is compared, for all
    target: str | None = None  # what the metric ranks the scores against: "error", "loss", "gap", …
    two_targets: bool = False  # whether there are both errors and a loss of the user's own
    run: Result | None = field(default=None, repr=False, compare=False)  # what it cost, from an engine
    provenance: dict[str, Any] | None = field(default=None, repr=False, compare=False)  # files, columns, command, seed
    created_with: dict[str, str] | None = field(
        default=None, repr=False, compare=False
    )  # versions, where it was stored

    def __getitem__(self, key: tuple[str, ...]) -> Pair:
        """``cmp["a", "b"]`` (turned round where only b − a was computed), or ``cmp["a", "b", "group"]``.

        Of candidates that are one ranking, each has the differences of the one that was compared.
        """
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise InputError(f'{key!r} is no pair. Ask for cmp["a", "b"] or cmp["a", "b", "group"].')
        a, b, group = str(key[0]), str(key[1]), key[2] if len(key) == 3 else None
        group = None if group is None else str(group)
        first, second = (self._copies.get(name, name) for name in (a, b))
        if first == second and a != b:
            return self._alike(a, b, first, group)
        for row in self.rows:
            if row.group == group and (row.a, row.b) == (first, second):
                return replace(row, a=a, b=b)
            if row.group == group and (row.a, row.b) == (second, first):
                rest = (row.se, row.df, row.p, row.p_adjusted)
                return Pair(a, b, row.group, -row.difference, -row.high, -row.low, *rest)
        raise InputError(f"There is no comparison {key!r}. Candidates: {', '.join(self.values)}.")

    def _alike(self, a: str, b: str, first: str, group: str | None) -> Pair:
        """Of two that are one ranking: no difference, unless the metric has no value."""
        inside = [row.difference for row in self.rows if row.group == group and first in (row.a, row.b)]
        if math.isnan(self.values[first]) or (inside and all(map(math.isnan, inside))):
            return Pair(a, b, group, *[math.nan] * 7)
        return Pair(a, b, group, 0.0, 0.0, 0.0, 0.0, math.inf, 1.0, 1.0)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def distinct(self) -> tuple[str, ...]:
        """Names of the candidates, one of each ranking: those that were compared."""
        return tuple(name for name in self.values if name not in self._copies)

    @property
    def _copies(self) -> dict[str, str]:
        """Of each candidate that was not compared: the one that was."""
        return {name: group[0] for group in self.same_ranking for name in group[1:]}

    def sd(self, a: str, b: str) -> float:
        """Standard deviation of the influence difference, se·√n: what `sample_size(sd=…)` takes from a pilot."""
        return self[a, b].se * math.sqrt(self.n)

    def ranking(self) -> list[str]:
        """Candidates from best to worst; undefined ones last."""
        higher = REGISTRY[self.metric].direction == "higher"
        return sorted(self.values, key=lambda name: _key(self.values[name], higher))

    def groups(self) -> list[list[str]]:
        """Candidates in runs, best first, inside which no pair was shown to differ; runs may overlap."""
        if self.baseline is not None:
            # Only differences from the baseline were tested: it stands with all that were not shown to differ.
            alike = [row.a for row in self.rows if row.group is None and not row.p_adjusted <= 1 - self.level]
            alike = [*alike, self.baseline]
            return [[name for name in self.ranking() if self._copies.get(name, name) in alike]]
        differ = {
            frozenset((row.a, row.b)) for row in self.rows if row.group is None and row.p_adjusted <= 1 - self.level
        }
        higher = REGISTRY[self.metric].direction == "higher"
        runs = cliques(list(self.distinct), np.array([self.values[name] for name in self.distinct]), higher, differ)
        beside = {group[0]: group for group in self.same_ranking}
        return [[name for own in run for name in beside.get(own, (own,))] for run in runs]

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return {
            "schema_version": SCHEMA_VERSION,
            "metric": self.metric,
            "target": self.target,
            "two_targets": self.two_targets,
            "adjust": self.adjust,
            "level": self.level,
            "method": self.method,
            "n": self.n,
            "baseline": self.baseline,
            "values": dict(self.values),
            "same_ranking": [list(group) for group in self.same_ranking],
            "pairs": [{name: getattr(row, name) for name in Pair.__dataclass_fields__} for row in self.rows],
            "groups": self.groups(),
            "heterogeneity": [{"a": a, "b": b, "p": p} for (a, b), p in self.heterogeneity.items()],
            "warnings": list(self.warnings),
            "versions": versions() if self.created_with is None else self.created_with,
            **({} if self.run is None else {"run": self.run.to_dict()}),
            **({} if self.provenance is None else {"provenance": self.provenance}),
        }

    @classmethod
    def from_json(cls, text: str | Path) -> Comparison:
        """What `to_json` wrote: its text, or a path.

        Examples
        --------
        >>> import uqeval as uq
        >>> cmp = uq.compare(uq.datasets.example(), scores=["entropy", "vote_entropy"])
        >>> Comparison.from_json(cmp.to_json())["entropy", "vote_entropy"] == cmp["entropy", "vote_entropy"]
        True
        """
        return cls(**stored_comparison(text, Pair))

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per pair: a, b, metric, difference, low, high, se, p, p_adjusted (and group, where there are any)."""
        names = ("difference", "low", "high", "se", "p", "p_adjusted")
        grouped = any(row.group is not None for row in self.rows)
        return [
            {"a": row.a, "b": row.b, "metric": self.metric}
            | {name: getattr(row, name) for name in names}
            | ({"group": row.group} if grouped else {})
            for row in self.rows
        ]

    # ---- print ----

    def headline(self) -> str:
        """What was compared, and how."""
        known = REGISTRY[self.metric]
        better = "higher" if known.direction == "higher" else "lower"
        scope = "simultaneous " if self.adjust != "none" and sum(row.group is None for row in self.rows) > 1 else ""
        how = "" if self.adjust == "none" else f", p adjusted by {self.adjust}"
        if self.method == "permutation":
            how = f", p from swapping the two within rows at random{how}"
        if self.method == "unpaired":
            how = f", of independent test sets (unpaired){how}"
        of = f" of the {self.target}" if self.two_targets else ""
        return f"{known.title}{of} ({better} is better), {self.n:,} rows; {100 * self.level:.6g}% {scope}intervals{how}"

    def verdict(self) -> list[str]:
        """Plain words: who is best, and who cannot be told apart."""
        order = [name for name in self.ranking() if name in self.distinct]
        lines = []
        if self.baseline is not None:
            clear = [r for r in self.rows if r.group is None and r.p_adjusted <= 1 - self.level]
            higher = REGISTRY[self.metric].direction == "higher"
            better = [r.a for r in clear if (r.difference > 0) == higher]
            worse = [r.a for r in clear if (r.difference > 0) != higher]
            lines.append(f"Better than {self.baseline}: {', '.join(better) or 'none shown'}.")
            lines.append(f"Worse than {self.baseline}: {', '.join(worse) or 'none shown'}.")
            return lines
        shown = [r for r in self.rows if r.group is None and r.p_adjusted <= 1 - self.level]
        # Not the first run of `groups()`: the best may differ from the second and not from a noisier third.
        beaten = {name for r in shown for name in (r.a, r.b) if order[0] in (r.a, r.b)}
        tied = [name for name in order[1:] if name not in beaten]
        if len(order) == 1:
            lines.append("All candidates are one ranking: there is nothing to compare.")
        elif math.isnan(self.values[order[0]]):
            lines.append("The metric is undefined here: nothing can be compared.")
        elif all(math.isnan(r.p) for r in self.rows if r.group is None):
            lines.append("The differences cannot be tested here.")
        elif not tied:
            lines.append(f"{order[0]} is best: its lead over every other is more than chance.")
        elif not shown:
            lines.append("No difference is shown: all could be equal.")
        else:
            lines.append(f"{order[0]} is ahead, but {', '.join(tied)} cannot be told from it.")
        return lines

    def undefined_lines(self) -> list[str]:
        """Which differences have no value or no test, and where."""
        gaps = [row for row in self.rows if math.isnan(row.difference) or math.isnan(row.p)]
        named = [f"{row.a} − {row.b}" + ("" if row.group is None else f" in group {row.group}") for row in gaps]
        more = f", … ({len(named) - 3} more)" if len(named) > 3 else ""
        title = REGISTRY[self.metric].title
        return [f"the difference in {title} cannot be tested: {', '.join(named[:3])}{more}"] if named else []

    def copies_notes(self) -> list[str]:
        """Who is one ranking, and that it was compared once."""
        return copies_notes(self.same_ranking)

    def lines(self) -> list[tuple[str, ...]]:
        """Cells of the printed table."""
        table: list[tuple[str, ...]] = []
        for row in self.rows:
            difference = f"{number(row.difference)} ({number(row.low)} to {number(row.high)})"
            shown = f"{row.a} − {row.b}" if row.group is None else f"{row.a} − {row.b} [{row.group}]"
            table.append((shown, difference, p_text(row.p), p_text(row.p_adjusted)))
        return table

    def view(self) -> Iterator[str | Grid]:
        """Headline, verdict, values, differences, who cannot be told apart, what to beware of."""
        yield self.headline()
        yield from self.verdict()
        width = max(map(len, self.values))
        yield "\n".join(["", *(f"  {name:<{width}}  {number(self.values[name])}" for name in self.ranking()), ""])
        if self.rows:
            yield Grid(("difference", "value (interval)", "p", "adjusted p"), self.lines())
        if runs := [" · ".join(group) for group in self.groups()]:
            yield "\n".join(["", "not shown to differ (each line):", *(f"  {run}" for run in runs)])
        yield from (f"! {note}" for note in (*self.copies_notes(), *self.warnings))

    def __str__(self) -> str:
        return as_text(self.view())


def _key(value: float, higher: bool) -> tuple[bool, float]:
    return (math.isnan(value), -value if higher else value)
