"""What is certain about the rows seen: lower and upper bounds, which are no confidence interval.

First the results, then the bounds from the counts of `cells`. Rows of different cells compare as their cells do,
rows of one value tie, and rows of one stretch may compare in any way.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from uqeval._result import Result, number
from uqeval.distributed.bounds.cells import CellCounts
from uqeval.metrics.bounds import Bounds, dot

SCHEMA_VERSION = 1
_METRICS = {"uq_auc": "UQ-AUC", "uq_c_index": "UQ-C-index", "aurc": "AURC", "augrc": "AUGRC"}


@dataclass(frozen=True)
class StreamResult(Result):
    """What is certain about all rows seen; a metric is None where its column did not come."""

    n: int
    n_errors: int | None
    accuracy: float | None  # exact
    mean_loss: float | None  # exact, rounded once
    uq_auc: Bounds | None
    uq_c_index: Bounds | None
    aurc: Bounds | None
    augrc: Bounds | None
    approx: float  # the width that was asked for
    cells: tuple[int, int, int]  # in use: of the score for UQ-AUC; of score and loss for UQ-C-index
    bytes: int  # of the tables of counts

    @property
    def reached(self) -> bool:
        """Whether UQ-AUC and UQ-C-index, where there, are as narrow as was asked for."""
        return not self._wide()

    def _metrics(self) -> dict[str, Bounds]:
        there = {name: getattr(self, name) for name in _METRICS}
        return {name: bounds for name, bounds in there.items() if bounds is not None}

    def _wide(self) -> dict[str, Bounds]:
        """Of the metrics that were asked to be narrow, those that are not."""
        asked = {name: bounds for name, bounds in self._metrics().items() if name in ("uq_auc", "uq_c_index")}
        return {name: bounds for name, bounds in asked.items() if bounds.width > self.approx}

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name; bounds as lower, upper, value (their middle) and width."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {name: bounds.to_dict() for name, bounds in self._metrics().items()}
        kind = "certain bounds for the rows seen, not a confidence interval"
        head = {"schema_version": SCHEMA_VERSION, "kind": kind}
        return head | plain | {"cells": list(self.cells), "reached": self.reached}

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row per metric."""
        return [{"metric": name, "n": self.n} | bounds.to_dict() for name, bounds in self._metrics().items()]

    def __str__(self) -> str:
        lines = [f"{self.n:,} rows" + (f", {self.n_errors:,} errors" if self.n_errors is not None else "")]
        for name, value in (("accuracy", self.accuracy), ("mean loss", self.mean_loss)):
            lines += [] if value is None else [f"{name:11} {number(value, 5)} (exact)"]
        lines += [f"{_METRICS[name]:11} {bounds}" for name, bounds in self._metrics().items()]
        lines.append("Bounds for the rows seen, not a confidence interval.")
        if wide := [f"{_METRICS[name]} is {bounds.width:.2g} wide" for name, bounds in self._wide().items()]:
            lines.append(f"The width asked for, {self.approx:g}, was not reached: {' and '.join(wide)}.")
        return "\n".join(lines)


# ---- bounds ---------------------------------------------------------------------------------------------------


def pair_bounds(table: CellCounts) -> tuple[float, float]:
    """UQ-C-index from rows by (score, loss); NaN where all losses are certainly equal."""
    (first, single_s), (second, single_d) = (axis.in_order() for axis in table.axes)
    by_loss = table.counts.sum(axis=0)[second]
    n, below = 0, np.zeros(len(second), dtype=np.int64)  # rows in lower cells of the score, by loss
    agree = apart = tied = unknown = maybe_half = 0
    for place, single in zip(first.tolist(), single_s.tolist(), strict=True):
        row = table.counts[place][second]
        size, both = int(row.sum()), dot(row, row)
        agree += dot(row, np.cumsum(below) - below)
        apart += size * n - dot(row, below)
        # The same cell of the score, another one of the loss.
        same = (size * size - both) // 2
        tied, unknown = (tied + same, unknown) if single else (tied, unknown + same)
        if single:
            inside = row[~single_d]
            maybe_half += (dot(inside, inside) - int(inside.sum())) // 2
        below += row
        n += size
    # The same stretch of the loss: such pairs may or may not be comparable.
    inside = by_loss[~single_d]
    maybe = (dot(inside, inside) - int(inside.sum())) // 2 - maybe_half
    low, high = [], []
    for halves in (0, maybe_half):
        if pairs := 2 * (apart + tied + unknown + maybe + halves):
            low.append((2 * agree + tied + halves) / pairs)
            high.append((2 * (agree + unknown + maybe) + tied + halves) / pairs)
    return (min(low), max(high)) if low else (np.nan, np.nan)
