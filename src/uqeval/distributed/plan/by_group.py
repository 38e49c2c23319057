"""Groups: the rows of a group come together and are finished in memory; too large a group gets a plan of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from uqeval import kernels
from uqeval._check import Int
from uqeval._errors import collected, notify
from uqeval.distributed.engines.protocol import Finished, Input, Routed, State
from uqeval.distributed.plan.all_scores import cluster_errors, model_cluster_errors
from uqeval.distributed.plan.by_cluster import clusters_of
from uqeval.distributed.plan.columns import Prepare, Rows, group_names
from uqeval.distributed.plan.estimates import estimate_model, estimate_score
from uqeval.distributed.plan.run import Run
from uqeval.distributed.plan.stages import changed, columns_of, table_of
from uqeval.evaluation.evaluate import _heterogeneity
from uqeval.evaluation.result import Mixed, Row
from uqeval.inference import means
from uqeval.inference.estimate import RANKING
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.metrics.registry import REGISTRY

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MOST_TESTED",
    "EstimatesOfGroup",
    "FinishGroups",
    "RouteGroups",
    "clusters_in",
    "estimate_rows",
    "evaluate_groups",
    "group_order",
    "samples_of",
    "shuffle_groups",
]

MOST_TESTED = 1000


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
        rows["g"] = np.array([self.code[name] for name in names], dtype=np.int32)[index]
        bucket = np.array([self.bucket.get(name, -1) for name in names], dtype=np.int64)[index]
        if (bucket < 0).any():  # groups too large for a task stay where they are
            moving = np.flatnonzero(bucket >= 0)
            rows, bucket = {name: column[moving] for name, column in rows.items()}, bucket[moving]
        return Routed(table_of(rows), bucket)


@dataclass(frozen=True)
class FinishGroups:
    """Whole groups: what `work` makes of the rows of each; nothing of those with a single row."""

    work: Callable[[Rows], list[Any]]
    sizes: tuple[int, ...]

    def __call__(self, bucket: int, table: pa.Table) -> Finished:
        rows = columns_of(table)
        order = np.argsort(rows["g"], kind="stable")
        first = np.flatnonzero(np.diff(rows["g"][order], prepend=-1))
        state: State = {"bucket": bucket, "rows": len(table), "groups": []}
        for start, stop in zip(first, [*first[1:], len(order)], strict=True):
            inside = order[start:stop]
            code = int(rows["g"][inside[0]])
            if len(inside) != self.sizes[code]:
                raise changed(f"Group {code}", len(inside), self.sizes[code])
            part = {name: column[inside] for name, column in rows.items()}
            state["groups"].append([code, len(inside), [] if len(inside) < 2 else self.work(part)])
        return Finished(state)


def samples_of(rows: Rows, scores: int, metric: str, clusters: Int | None) -> list[Sample]:
    """The scores of some rows against what the metric ranks them by."""
    stacked = np.stack([rows[f"s{k}"] for k in range(scores)]).astype(np.float64)
    if metric != "uq_c_index":
        return [Sample(s, rows["e"], None, clusters) for s in stacked]
    loss = rows["d"].astype(np.float64)
    if clusters is not None:
        return [Sample(s, loss, None, clusters) for s in stacked]
    credit2, comparable = kernels.pair_counts(stacked, loss)
    return [Sample(s, loss, None, None, (credit2[k], comparable)) for k, s in enumerate(stacked)]


@dataclass(frozen=True)
class EstimatesOfGroup:
    """The rows of a group → every estimate, as in memory."""

    scores: tuple[str, ...]
    metrics: tuple[str, ...]
    level: float
    seed: int

    def __call__(self, rows: Rows) -> list[Any]:
        clusters = clusters_of(rows) if "k0" in rows else None
        ranked = [name for name in self.metrics if REGISTRY[name].uses_score]
        count = len(self.scores)
        errors = samples_of(rows, count, "uq_auc", clusters) if "e" in rows else []
        pairs = samples_of(rows, count, "uq_c_index", clusters) if "uq_c_index" in ranked else []
        found: list[tuple[str | None, str, Estimate]] = []
        with collected():
            for k, name in enumerate(self.scores):
                for metric in ranked:
                    sample = pairs[k] if metric == "uq_c_index" else errors[k]
                    found.append((name, metric, RANKING[metric](sample, self.level)))
            for metric in self.metrics:
                if not REGISTRY[metric].uses_score:
                    found.append((None, metric, self._of_model(metric, rows, clusters)))
        return [[score, metric, estimate.to_dict()] for score, metric, estimate in found]

    def _of_model(self, metric: str, rows: dict[str, Any], clusters: Any) -> Estimate:
        if metric == "accuracy":
            return means.estimate_accuracy(rows["e"].astype(np.float64), None, clusters, self.level)
        if metric in ("ece", "ece_debiased"):
            rng = np.random.default_rng(self.seed)
            correct = 1.0 - rows["e"].astype(np.float64)
            return means.estimate_ece(rows["confidence"], correct, None, clusters, self.level, rng)[metric]
        return means.estimate_mean(rows[metric], None, clusters, self.level, REGISTRY[metric].range)


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


def clusters_in(rows: Iterable[Row]) -> int:
    """Clusters of all rows, or of the groups, each counted by itself."""
    found = {row.group: row.estimate.n_clusters for row in rows if row.estimate.n_clusters is not None}
    return sum(found.values())


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


def estimate_rows(run: Run, level: float, seed: int, group: str | None = None) -> tuple[list[Row], dict[str, float]]:
    """Every estimate of all rows of a run, and the tie rates of its scores."""
    ranked = [metric.name for metric in run.metrics if metric.uses_score]
    model = [metric.name for metric in run.metrics if not metric.uses_score]
    clustered = run.prepare.cluster is not None
    rows, tie_rate = [], {}
    for k, name in enumerate(run.names):
        if group is None and (count := int(run.state["infinite"][k])):
            notify(f"{name}: {count} infinite values; they rank first or last and tie")
        sums, units = cluster_errors(run, k, ranked) if clustered else (run.score(k), None)
        tie_rate[name] = sums.tie_rate
        rows += [Row(name, metric, group, estimate_score(metric, sums, level, units)) for metric in ranked]
    errors, units_found = model_cluster_errors(run, model) if clustered and model else (None, 0)
    for metric in model:
        found = estimate_model(metric, run.state, level, seed, errors, units_found)
        rows.append(Row(None, metric, group, found))
    return rows, tie_rate


def evaluate_groups(run: Run, level: float, seed: int, clusters: int) -> tuple[list[Row], tuple[Mixed, ...]]:
    """The estimates of every group, and the tests that a metric is the same in all.

    `clusters` are those of all rows: where the groups have more, some cluster spans several.
    """
    names = group_order(run)
    work = EstimatesOfGroup(tuple(run.names), tuple(metric.name for metric in run.metrics), level, seed)
    states = shuffle_groups(run, names, work)
    rows: list[Row] = []
    small = []
    for name in names:
        if name not in states:  # too large to be finished in memory
            rows += estimate_rows(run.narrowed(name), level, seed, name)[0]
            continue
        for score, metric, one in states[name]:
            rows.append(Row(score, metric, name, Estimate(**{**one, "warnings": tuple(one["warnings"])})))
        if not states[name]:
            small.append(name)
    if small:
        shown = ", ".join(map(repr, small[:5])) + (", …" if len(small) > 5 else "")
        notify(f"{len(small)} groups have fewer than 2 rows of positive weight and are left out: {shown}")
    if run.prepare.cluster is not None and clusters_in(rows) + len(small) > clusters:
        notify("clusters span several groups: no test across groups")
        return rows, ()
    if len(names) > MOST_TESTED:  # the test solves a system of that size
        notify(f"more than {MOST_TESTED:,} groups: no test across groups")
        return rows, ()
    return rows, _heterogeneity(cast(Any, _NoClusters()), rows)


def shuffle_groups(run: Run, names: list[str], work: Callable[[Rows], list[Any]]) -> dict[str, list[Any]]:
    """What `work` makes of each group that a task can hold, by name."""
    counts: dict[str, int] = run.state["groups"]
    fit = {name: counts[name] for name in names if counts[name] <= run.task_rows}
    if not fit:
        return {}
    bucket = _buckets(fit, run.task_rows)
    code = {name: k for k, name in enumerate(names)}
    finish = FinishGroups(work, tuple(counts[name] for name in names))
    done = run.shuffle("groups", [Input(RouteGroups(run.prepare, bucket, code))], max(bucket.values()) + 1, finish)
    run.release(done.carried)
    found: dict[str, list[Any]] = {}
    for state in done.states:
        for k, size, made in state["groups"]:
            name = names[k]
            if name in found or size != counts[name]:
                raise changed(f"Group {name!r}", size, counts[name])
            found[name] = made
    if len(found) != len(fit):
        raise changed("The groups", len(found), len(fit))
    return found


class _NoClusters:
    """What the test across groups asks of predictions."""

    clusters = None
