"""Groups: the rows of a group come together and are finished in memory; too large a group gets a plan of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from uqeval._errors import collected
from uqeval.distributed.engines.protocol import Finished, Input, Routed, State, Table
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.by_cluster import clusters_of
from uqeval.distributed.plan.columns import Prepare, Reading, group_names
from uqeval.distributed.plan.edges import changed
from uqeval.distributed.plan.run import Run
from uqeval.evaluation.candidates import Candidate
from uqeval.evaluation.compare import Differences, differences_of_rows
from uqeval.evaluation.evaluate import How, estimates
from uqeval.evaluation.row_data import RowData
from uqeval.evaluation.table import Row
from uqeval.metrics.registry import REGISTRY

T = TypeVar("T")


@dataclass(frozen=True)
class RouteGroups(Reading):
    """By the bucket of the group."""

    prepare: Prepare
    bucket: dict[str, int]
    code: dict[str, int]

    def __call__(self, table: Table) -> Routed:
        rows = self.prepare(table)
        names, index = group_names(table.column(str(self.prepare.group)))
        rows[wire.GROUP] = np.array([self.code[name] for name in names], dtype=np.int32)[index]
        bucket = np.array([self.bucket.get(name, -1) for name in names], dtype=np.int64)[index]
        if (bucket < 0).any():  # groups too large for a task stay where they are
            moving = np.flatnonzero(bucket >= 0)
            rows, bucket = wire.take(rows, moving), bucket[moving]
        return Routed(wire.table_of(rows), bucket)


@dataclass(frozen=True)
class FinishGroups:
    """Whole groups: what `work` makes of the rows of each; nothing of those with a single row."""

    work: Callable[[RowData], Any]
    scores: tuple[str, ...]
    sizes: tuple[int, ...]
    largest_cluster: int | None = None

    def __call__(self, bucket: int, table: Table) -> Finished:
        rows = wire.rows_of(table)
        order = np.argsort(rows[wire.GROUP], kind="stable")
        first = np.flatnonzero(np.diff(rows[wire.GROUP][order], prepend=-1))
        state: State = {"bucket": bucket, "rows": len(table), "groups": []}
        for start, stop in zip(first, [*first[1:], len(order)], strict=True):
            inside = order[start:stop]
            code = int(rows[wire.GROUP][inside[0]])
            if len(inside) != self.sizes[code]:
                raise changed(f"Group {code}", len(inside), self.sizes[code])
            with collected():
                made = None if len(inside) < 2 else self.work(self._data(wire.take(rows, inside)))
            state["groups"].append([code, len(inside), made])
        return Finished(state)

    def _data(self, rows: wire.Rows) -> RowData:
        """Columns of the wire as the metrics see them."""
        columns = {f"score {name}": rows[wire.score(k)].astype(np.float64) for k, name in enumerate(self.scores)}
        made = ("confidence", "brier", "log_loss", "signed confidence")
        columns |= {what: rows[what] for what in made if what in rows}
        columns |= {"error": rows[wire.ERROR]} if wire.ERROR in rows else {}
        columns |= {"loss": rows[wire.LOSS].astype(np.float64)} if wire.LOSS in rows else {}
        clusters = clusters_of(rows) if wire.CLUSTER[0] in rows else None
        n = len(rows[wire.GROUP])
        return RowData(n, columns.get, clusters=clusters, largest_cluster=self.largest_cluster)


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


def by_group(run: Run, work: Callable[[RowData], T], of_run: Callable[[Run], T]) -> dict[str, T | None]:
    """What `work` makes of the rows of each group, and `of_run` of those that no task can hold; None of a single row.

    `work` can be pickled.
    """
    names = group_order(run)
    counts: dict[str, int] = run.state["groups"]
    fit = {name: counts[name] for name in names if counts[name] <= run.task_rows}
    found: dict[str, T | None] = {}
    if fit:
        bucket, code = _buckets(fit, run.task_rows), {name: k for k, name in enumerate(names)}
        largest = run.request.wanted.largest_cluster
        finish = FinishGroups(work, tuple(run.names), tuple(counts[name] for name in names), largest)
        signed = tuple(dict.fromkeys(metric.target for metric in run.metrics if metric.made is not None))
        prepare = replace(run.prepare, target="loss", model=(*run.prepare.model, *signed))
        prepare = replace(prepare, wants_loss=prepare.wants_loss and run.prepare.target == "loss")
        done = run.shuffle("groups", [Input(RouteGroups(prepare, bucket, code))], max(bucket.values()) + 1, finish)
        run.release(done.carried)
        for k, size, made in (group for state in done.states for group in state["groups"]):
            if names[k] in found or size != counts[names[k]]:
                raise changed(f"Group {names[k]!r}", size, counts[names[k]])
            found[names[k]] = made
    if len(found) != len(fit):
        raise changed("The groups", len(found), len(fit))
    return {name: found[name] if name in found else of_run(run.narrowed(name)) for name in names}


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


# ---- what is made of a group, as in memory ------------------------------------------------------------------------


def estimates_of_group(scores: Sequence[str], metrics: Sequence[str], how: How, data: RowData) -> list[Row]:
    """Every estimate."""
    return list(estimates(data, scores, [REGISTRY[name] for name in metrics], how))


def differences_of_group(
    scores: Sequence[str], metric: str, pairs: list[tuple[int, int]], data: RowData
) -> tuple[Differences, int]:
    """All differences, and the number of clusters (0 without any)."""
    candidates = [Candidate(name, data, name) for name in scores]
    clusters = 0 if data.rows.clusters is None else int(data.rows.clusters.max()) + 1
    return differences_of_rows(candidates, pairs, REGISTRY[metric]), clusters
