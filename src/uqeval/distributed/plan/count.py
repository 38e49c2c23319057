"""First looks: some rows to plan with; then pass 1: where rows fall, what is wrong with them, sums for the model."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uqeval._check import Float, Int
from uqeval._errors import InputError, collected
from uqeval.distributed.engines.protocol import Place, State
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.columns import Bad, Prepare, Reading, group_names, shifted
from uqeval.distributed.plan.edges import Axis
from uqeval.inputs.columns import Columns, Plan
from uqeval.inputs.predictions import predictions_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa


CLUSTER_BUCKETS = 4096  # that are counted; as few as will do are shuffled
ECE_BINS = 15
_SUB = 273  # cells inside a bin of confidence: 15 × 273 = 4,095 for the test of calibration
MOST_GROUPS = 10_000


def cluster_bucket(k0: Int, k1: Int) -> Int:
    """A bucket for each cluster, spread by multiplying with odd constants."""
    mixed = (k0.view(np.uint64) ^ (k1.view(np.uint64) >> np.uint64(7))) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(52)).astype(np.int64)  # 12 bits: CLUSTER_BUCKETS


@dataclass(frozen=True)
class FirstRows:
    """Some rows as they are."""

    columns: tuple[str, ...]

    def __call__(self, table: pa.Table) -> pa.Table:
        return table.select(list(self.columns))


@dataclass(frozen=True)
class TryRows:
    """Whether the rows can be used: an error that names the file and the row in it."""

    plan: Plan
    options: Columns
    parts: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.plan.needed)

    def __call__(self, table: pa.Table, place: Place) -> State:
        import pyarrow as pa

        if len(table) == 1:
            table = pa.concat_tables([table, table])
        if len(table):
            try:
                with collected():
                    predictions_from_arrow({name: table.column(name) for name in self.columns}, self.plan, self.options)
            except InputError as error:
                if of_a_row(error):
                    raise InputError(f"{self.parts[place.part]}: {shifted(error, place.row)}") from None
        return {}


def of_a_row(error: InputError) -> bool:
    """Whether a message speaks of a certain row."""
    return re.search(r"\brow \d", str(error)) is not None


@dataclass(frozen=True)
class Draw(Reading):
    """For the sample: the prepared numbers of some rows."""

    prepare: Prepare

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        bare = replace(self.prepare, cluster=None)
        try:
            rows = bare(table)
        except InputError:  # counting says which row of which file it is
            rows = bare(table.slice(0, 0))
        ranked = {wire.LOSS, *(wire.score(k) for k in range(len(bare.scores)))}
        return pa.table({name: x.astype(np.float64) for name, x in rows.items() if name in ranked})


@dataclass(frozen=True)
class Count(Reading):
    """Rows by score code, loss code and error; row counts by cluster bucket and group; sums for the model's metrics."""

    prepare: Prepare
    scores: tuple[Axis, ...]
    loss: Axis
    parts: tuple[str, ...]

    def __call__(self, table: pa.Table, place: Place) -> State:
        name = self.parts[place.part]
        try:
            missing = self.prepare.missing(table)
            if missing:
                return {"rows": len(table), "bad": _placed(missing, place)}
            rows = self.prepare(table)
        except InputError as error:
            raise InputError(f"{name}: {shifted(error, place.row)}") from None
        bad = _placed(self.prepare.bad(rows), place)
        n = len(next(iter(rows.values())))  # of one group only, where the rows are narrowed to it
        state: State = {"rows": n, "bad": bad}
        if bad:
            return state
        bits = rows.get(wire.ERROR)
        e = np.zeros(n, dtype=np.int64) if bits is None else bits.astype(np.int64)
        state["wrong"] = int(e.sum())
        cd = self.loss.codes(rows[wire.LOSS]).astype(np.int64) if wire.LOSS in rows else 0
        n_loss = self.loss.n_codes
        low, high, infinite = [], [], []
        for k, axis in enumerate(self.scores):
            s = rows[wire.score(k)]
            cell = axis.codes(s).astype(np.int64)
            cell *= n_loss
            cell += cd
            cell <<= 1
            cell += e
            state[f"cells{k}"] = np.bincount(cell, minlength=axis.n_codes * n_loss * 2)
            low.append(float(s.min(initial=np.inf)))
            high.append(float(s.max(initial=-np.inf)))
            infinite.append(int(np.isinf(s).sum()))
        state |= {"low": np.array(low), "high": np.array(high), "infinite": np.array(infinite, dtype=np.int64)}
        self._model(state, rows, e)
        if self.prepare.cluster is not None:
            state["clusters"] = np.bincount(
                cluster_bucket(*(rows[name] for name in wire.CLUSTER)), minlength=CLUSTER_BUCKETS
            )
        if self.prepare.group is not None:
            state["groups"] = _count_groups(table.column(self.prepare.group))
        return state

    def _model(self, state: State, rows: wire.Rows, e: Int) -> None:
        for name in ("brier", "log_loss"):
            if name in rows:
                x = rows[name]
                state[f"{name}_infinite"] = int(np.isinf(x).sum())
                state[name] = _moments(x[np.isfinite(x)], np.zeros(int(np.isfinite(x).sum()), dtype=np.int64), 1)
        if "confidence" in rows:
            c = rows["confidence"]
            bins = np.searchsorted(np.arange(1, ECE_BINS) / ECE_BINS, c, side="left")
            gap: Float = 1.0 - e.astype(np.float64) - c
            state["ece"] = _moments(gap, bins, ECE_BINS)
            sub = np.clip(((c * ECE_BINS - bins) * _SUB).astype(np.int64), 0, _SUB - 1) + bins * _SUB
            state["confidence"] = np.stack(
                [np.bincount(sub, minlength=ECE_BINS * _SUB), np.bincount(sub, weights=c, minlength=ECE_BINS * _SUB)]
            )


def _placed(bad: list[Bad], place: Place) -> list[list[Any]]:
    return [[b.what, b.count, place.part, place.row + b.row] for b in bad]


def _count_groups(column: pa.ChunkedArray) -> dict[str, int]:
    names, index = group_names(column)
    groups = dict(zip(names, np.bincount(index, minlength=len(names)).tolist(), strict=True))
    if len(groups) > MOST_GROUPS:
        raise InputError(f"There are more than {MOST_GROUPS:,} groups in a piece of the data. Choose a coarser column.")
    return groups


def _moments(x: Float, part: Int, parts: int) -> Float:
    """(parts, 3): count, mean, sum of squared distances to the mean."""
    count = np.bincount(part, minlength=parts).astype(np.float64)
    mean = np.bincount(part, weights=x, minlength=parts) / np.maximum(count, 1)
    squares = np.bincount(part, weights=(x - mean[part]) ** 2, minlength=parts)
    return np.stack([count, mean, squares], axis=1)


def _join_moments(a: Float, b: Float) -> Float:
    """Chan's update: no digits are lost where means are far from 0."""
    count = a[:, 0] + b[:, 0]
    share = b[:, 0] / np.maximum(count, 1)
    gap = b[:, 1] - a[:, 1]
    return np.stack([count, a[:, 1] + gap * share, a[:, 2] + b[:, 2] + gap * gap * a[:, 0] * share], axis=1)


def _join_groups(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    groups = dict(Counter(a) + Counter(b))
    if len(groups) > MOST_GROUPS:
        raise InputError(f"There are more than {MOST_GROUPS:,} groups. Choose a coarser column.")
    return groups


_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "low": np.minimum,
    "high": np.maximum,
    "groups": _join_groups,
}  # the others are sums
_JOIN |= dict.fromkeys(("brier", "log_loss", "ece"), _join_moments)


def merge(a: State, b: State) -> State:
    """Two counts of different rows as one."""
    if bad := _shortest([*a["bad"], *b["bad"]]):
        return {"bad": bad, "rows": a["rows"] + b["rows"]}
    return {name: _JOIN.get(name, operator.add)(a[name], b[name]) for name in a}


def _shortest(bad: list[list[Any]]) -> list[list[Any]]:
    """One entry for each thing that is wrong: how often, and its first place."""
    found: dict[str, list[Any]] = {}
    for what, count, part, row in bad:
        if what not in found:
            found[what] = [what, count, part, row]
        else:
            first = min((part, row), tuple(found[what][2:]))
            found[what] = [what, found[what][1] + count, *first]
    return list(found.values())
