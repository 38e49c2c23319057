"""Groups: the rows of a group come together and are finished in memory; too large a group gets a plan of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uqeval._errors import collected, notify
from uqeval.distributed.engines.protocol import Finished, Input, Routed, State
from uqeval.distributed.plan.by_cluster import clusters_of
from uqeval.distributed.plan.columns import (
    CLUSTER,
    ERROR,
    GROUP,
    LOSS,
    Prepare,
    Rows,
    columns_of,
    group_names,
    score_of,
    table_of,
    take,
)
from uqeval.distributed.plan.edges import changed
from uqeval.distributed.plan.run import Run
from uqeval.evaluation.candidates import Candidate
from uqeval.evaluation.compare import Differences, differences_of_rows
from uqeval.evaluation.evaluate import How, estimates
from uqeval.evaluation.result import Row
from uqeval.evaluation.row_data import RowData
from uqeval.inference.paired import Contrast
from uqeval.inference.result import Estimate
from uqeval.inference.tally import JointPart, JointTally
from uqeval.metrics.registry import REGISTRY

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["differences_by_group", "estimates_by_group", "group_order"]

_MOST_NAMED = 20  # groups of a single row


@dataclass(frozen=True)
class RouteGroups:
    """By the bucket of the group."""

    prepare: Prepare
    bucket: dict[str, int]
    code: dict[str, int]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.prepare.columns

    def __call__(self, table: pa.Table) -> Routed:
        rows = self.prepare(table)
        names, index = group_names(table.column(str(self.prepare.group)))
        rows[GROUP] = np.array([self.code[name] for name in names], dtype=np.int32)[index]
        bucket = np.array([self.bucket.get(name, -1) for name in names], dtype=np.int64)[index]
        if (bucket < 0).any():  # groups too large for a task stay where they are
            moving = np.flatnonzero(bucket >= 0)
            rows, bucket = take(rows, moving), bucket[moving]
        return Routed(table_of(rows), bucket)


@dataclass(frozen=True)
class FinishGroups:
    """Whole groups: what `work` makes of the rows of each; nothing of those with a single row."""

    work: Callable[[RowData], Any]
    scores: tuple[str, ...]
    sizes: tuple[int, ...]

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        order = np.argsort(rows[GROUP], kind="stable")
        first = np.flatnonzero(np.diff(rows[GROUP][order], prepend=-1))
        state: State = {"bucket": bucket, "rows": len(table), "groups": []}
        for start, stop in zip(first, [*first[1:], len(order)], strict=True):
            inside = order[start:stop]
            code = int(rows[GROUP][inside[0]])
            if len(inside) != self.sizes[code]:
                raise changed(f"Group {code}", len(inside), self.sizes[code])
            with collected():
                made = None if len(inside) < 2 else self.work(row_data(take(rows, inside), self.scores))
            state["groups"].append([code, len(inside), made])
        return Finished(state)


def row_data(rows: Rows, scores: tuple[str, ...]) -> RowData:
    """Columns of the wire as the metrics see them."""
    columns = {f"score {name}": rows[score_of(k)].astype(np.float64) for k, name in enumerate(scores)}
    columns |= {what: rows[what] for what in ("confidence", "brier", "log_loss") if what in rows}
    columns |= {"error": rows[ERROR]} if ERROR in rows else {}
    columns |= {"loss": rows[LOSS].astype(np.float64)} if LOSS in rows else {}
    clusters = clusters_of(rows) if CLUSTER[0] in rows else None
    return RowData(len(rows[GROUP]), columns.get, clusters=clusters)


def group_order(run: Run) -> list[str]:
    """Numbers sort as numbers, also whole ones that are written as texts, as in memory."""
    import pyarrow as pa

    names: dict[str, int] = run.state["groups"]
    if pa.types.is_floating(run.engine.schema().field(str(run.prepare.group)).type):
        return sorted(names, key=float)
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)


def _shuffled(run: Run, names: list[str], work: Callable[[RowData], Any]) -> dict[str, Any]:
    """What `work` makes of each group that a task can hold, by name."""
    counts: dict[str, int] = run.state["groups"]
    fit = {name: counts[name] for name in names if counts[name] <= run.task_rows}
    if not fit:
        return {}
    bucket = _buckets(fit, run.task_rows)
    code = {name: k for k, name in enumerate(names)}
    finish = FinishGroups(work, tuple(run.names), tuple(counts[name] for name in names))
    done = run.shuffle("groups", [Input(RouteGroups(run.prepare, bucket, code))], max(bucket.values()) + 1, finish)
    run.release(done.carried)
    found: dict[str, Any] = {}
    for state in done.states:
        for k, size, made in state["groups"]:
            name = names[k]
            if name in found or size != counts[name]:
                raise changed(f"Group {name!r}", size, counts[name])
            found[name] = made
    if len(found) != len(fit):
        raise changed("The groups", len(found), len(fit))
    return found


def _buckets(counts: dict[str, int], most: int) -> dict[str, int]:
    """Groups in buckets of at most `most` rows, largest first into the emptiest."""
    fill = [0] * min(256, max(1, len(counts)))
    found = {}
    for name in sorted(counts, key=lambda name: -counts[name]):
        place = int(np.argmin(fill))
        if fill[place] and fill[place] + counts[name] > most:
            place = len(fill)
            fill.append(0)
        fill[place] += counts[name]
        found[name] = place
    return found


# ---- estimates ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EstimatesOfGroup:
    """The rows of a group → every estimate, as in memory."""

    scores: tuple[str, ...]
    metrics: tuple[str, ...]
    level: float
    seed: int

    def __call__(self, data: RowData) -> list[Any]:
        metrics, how = [REGISTRY[name] for name in self.metrics], How(self.level, seed=self.seed)
        return [[r.score, r.metric, r.estimate.to_dict()] for r in estimates(data, self.scores, metrics, how)]


def estimates_by_group(
    run: Run, level: float, seed: int, of_run: Callable[[Run], Iterable[Row]]
) -> tuple[dict[str, list[Row]], list[str]]:
    """The estimates of each group, and the groups with too few rows; `of_run` does groups that no task can hold."""
    names = group_order(run)
    work = EstimatesOfGroup(tuple(run.names), tuple(metric.name for metric in run.metrics), level, seed)
    states = _shuffled(run, names, work)
    found, small = {}, []
    for name in names:
        if name not in states:
            found[name] = list(of_run(run.narrowed(name)))
        elif states[name] is None:
            small.append(name)
        else:
            found[name] = [
                Row(score, metric, None, Estimate(**{**one, "warnings": tuple(one["warnings"])}))
                for score, metric, one in states[name]
            ]
    return found, small


# ---- differences --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DifferencesOfGroup:
    """The rows of a group → values, covariance, contrasts and clusters, as in memory."""

    metric: str
    scores: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]

    def __call__(self, data: RowData) -> list[Any]:
        if REGISTRY[self.metric].target == "loss":
            data.count_pairs(self.scores)
        candidates = [Candidate(name, data, name) for name in self.scores]
        joint, contrasts, _ = differences_of_rows(candidates, list(self.pairs), REGISTRY[self.metric])
        clusters = 0 if data.rows.clusters is None else int(data.rows.clusters.max()) + 1
        moved = [[*map(float, c[:5]), bool(c.close)] for c in contrasts]
        return [joint.values.tolist(), joint.covariance().tolist(), moved, clusters]


def differences_by_group(
    run: Run, metric: str, pairs: list[tuple[int, int]], of_run: Callable[[Run], tuple[Differences, int]]
) -> tuple[dict[str, Differences], int]:
    """Differences inside each group of two rows or more, and the clusters of all groups, each counted by itself."""
    names = group_order(run)
    states = _shuffled(run, names, DifferencesOfGroup(metric, tuple(run.names), tuple(pairs)))
    found: dict[str, Differences] = {}
    clusters, single = 0, []
    for name in names:
        if name not in states:
            found[name], count = of_run(run.narrowed(name))
        elif states[name] is None:
            single.append(name)
            count = 1 if run.prepare.cluster is not None else 0
        else:
            values, covariance, moved, count = states[name]
            part = JointPart(np.array(covariance), np.empty(0), 0.0)
            found[name] = Differences(JointTally(np.array(values), (part,)), [Contrast(*c) for c in moved])
        clusters += count
    for name in single[:_MOST_NAMED]:
        notify(f"group {name!r} has a single row and is left out")
    if len(single) > _MOST_NAMED:
        notify(f"{len(single) - _MOST_NAMED} more groups have a single row and are left out")
    return found, clusters
