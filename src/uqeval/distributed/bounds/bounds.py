"""What is certain about the rows seen: lower and upper bounds, which are no confidence interval.

First the results, then the bounds from the counts of `cells`. Rows of different cells compare as their cells do,
rows of one value tie, and rows of one stretch may compare in any way.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from uqeval._check import Int
from uqeval._result import Result, number
from uqeval.distributed.bounds.cells import CellCounts, is_single
from uqeval.metrics.harmonic import harmonics

SCHEMA_VERSION = 1
_METRICS = {"uq_auc": "UQ-AUC", "uq_c_index": "UQ-C-index", "aurc": "AURC", "augrc": "AUGRC"}


@dataclass(frozen=True)
class Bounds:
    """The value lies between `lower` and `upper`, for certain; not a confidence interval."""

    lower: float
    upper: float

    @property
    def value(self) -> float:
        """The middle, at most half of `width` away from the value."""
        return self.lower + (self.upper - self.lower) / 2

    @property
    def width(self) -> float:
        """How much is left open: upper − lower."""
        return self.upper - self.lower

    @property
    def exact(self) -> bool:
        """Whether nothing is left open."""
        return self.lower == self.upper

    def to_dict(self) -> dict[str, float]:
        """Plain values by name."""
        return {"lower": self.lower, "upper": self.upper, "value": self.value, "width": self.width}

    def __str__(self) -> str:
        if self.exact or math.isnan(self.lower):
            return f"{number(self.lower, 5)} (exact)" if self.exact else "–"
        digits = min(9, max(3, 1 - math.floor(math.log10(self.width)))) if self.width > 0 else 9
        low, high = math.floor(10**digits * self.lower), math.ceil(10**digits * self.upper)  # outward
        return f"{low / 10**digits:.{digits}f} to {high / 10**digits:.{digits}f}, for certain"


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


def dot(a: Int, b: Int) -> int:
    """Σab of counts, exact at any size."""
    a, b = a.ravel(), b.ravel()
    if int(a.sum()) * int(b.max(initial=0)) < 2**63:
        return int(a @ b)
    total, mask = 0, (1 << 20) - 1
    for i in range(0, 63, 20):
        for j in range(0, 63, 20):
            total += int(((a >> i) & mask) @ ((b >> j) & mask)) << (i + j)
    return total


def auc_bounds(cells: Int, level: int, right: Int, wrong: Int) -> tuple[int, int]:
    """Twice the credit of all pairs (wrong, right): at least, at most. Tied pairs have half a credit."""
    before = np.cumsum(right) - right
    single = is_single(cells, level)
    low = 2 * dot(before, wrong) + dot(np.where(single, right, 0), wrong)
    return low, low + 2 * dot(np.where(single, 0, right), wrong)


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


def aurc_bounds(cells: Int, level: int, right: Int, wrong: Int) -> tuple[float, float]:
    """AURC: least where the right rows of each stretch come first, most where the wrong ones do."""
    single = is_single(cells, level)
    areas = []
    for early in (right, wrong):
        # A single value is one tied block; a stretch is a block of right and one of wrong rows, in this order.
        late = right + wrong - early
        size = np.stack([np.where(single, right + wrong, early), np.where(single, 0, late)], axis=1).ravel()
        first_bad, last_bad = (0 * right, wrong) if early is right else (wrong, 0 * wrong)
        bad = np.stack([np.where(single, wrong, first_bad), np.where(single, 0, last_bad)], axis=1).ravel()
        areas.append(_aurc(size[size > 0], bad[size > 0]))
    slack = 0.0 if single.all() else 1e-12
    return areas[0] * (1 - slack), min(1.0, areas[1] * (1 + slack))


def _aurc(size: Int, bad: Int) -> float:
    """Σ of the risks over n: in a tied block with error rate q after b rows, risk = q + (bad before − bq)/k."""
    end = np.cumsum(size)
    before, rate = end - size, bad / size
    excess = (np.cumsum(bad) - bad) - before * rate
    return float((bad + excess * harmonics(before, end)).sum() / end[-1])
