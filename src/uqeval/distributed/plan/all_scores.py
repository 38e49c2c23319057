"""All scores in one chain of shuffles: every row visits its bin of each score and of the loss, then its unit.

For cluster-robust errors (one score at a time) and for the covariance of K scores, which needs all of their numbers
beside each other in one row: K + 2 shuffles.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from uqeval._check import Int
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Input, State
from uqeval.distributed.plan import tallies, wire
from uqeval.distributed.plan.by_cluster import BIN_GAPS, BIN_SHARES, FinishModel, FinishUnits, Ranked, RouteUnits
from uqeval.distributed.plan.by_loss import FinishLoss, RouteLoss
from uqeval.distributed.plan.edges import changed
from uqeval.distributed.plan.run import Run
from uqeval.inference.sizes import Held, Loads
from uqeval.inference.tally import NAN, JointPart, JointTally, Moments, Spread
from uqeval.inference.unseen import room_beside
from uqeval.metrics.areas import Formula
from uqeval.metrics.calibration import l1
from uqeval.metrics.registry import Metric


def _chain(run: Run, scores: list[int]) -> tuple[list[tallies.ScoreSums], Any, tuple[str, ...]]:
    """Sums of the scores, and every row with its counts: a handle on carried rows and their columns."""
    prepare = run.prepare
    ranks, pairs = prepare.wants_error, prepare.wants_loss
    base = [wire.score(k) for k in scores]
    base += [wire.ERROR] * ranks + [wire.LOSS, wire.LOSS_BIN] * pairs + [*wire.CLUSTER] * (prepare.cluster is not None)
    handle, made = None, list[str]()
    found = []
    for k in scores:
        moved = (*base, *made, wire.bin_code(k))
        made += [wire.bin_code(k)] + [wire.pairs(k)] * pairs + [wire.credit(k), wire.own(k)] * ranks
        made += [*wire.places(k)] * (ranks and bool(run.accepted or run.cuts))
        sums, handle = run.score_bins(k, moved, (*base, *made), handle, every=True)
        found.append(sums)
    columns = (*base, *made)
    if not pairs:
        return found, handle, columns
    grid = run.grids[scores[0]]
    route = RouteLoss(None, scores[0], grid.loss, columns, ride=True)
    finish = FinishLoss(tuple(scores), grid.by_loss, ride=True, carry=(*columns, wire.TIED))
    return found, run.loss_bins("loss", [Input(route, handle)], finish, found), finish.carry


def _ranked(run: Run, k: int, sums: tallies.ScoreSums, metrics: list[Metric]) -> Ranked:
    wrong, right, ranks = sums.wrong, sums.right, bool(sums.bins)
    centres = np.zeros(run.grids[k].score.n_codes)
    terms: dict[str, Any] = {}
    if ranks:
        for code, centre in sums.centres.items():
            centres[code] = centre
        for metric in metrics:
            if metric.formula is not None and not math.isnan(tallies.area_value(metric, sums)):
                if isinstance(metric.formula, Formula) and metric.tally == "late area":
                    terms[metric.name] = sums.late_terms(metric.formula)
                    continue
                own, credit, by_error, share = tallies.row_terms(metric, sums)
                terms[metric.name] = (own, float(credit), (float(by_error[0]), float(by_error[1])), share)
    pairs = sums.concordance if sums.sizes else None
    return Ranked(
        k,
        credit=float(sums.credit2),
        pairs_credit=0.0 if pairs is None else pairs.credit2 / 2,
        comparable=0.0 if pairs is None else float(pairs.comparable),
        mean_shift=0.0 if pairs is None else pairs.shift / sums.n,
        value=sums.credit2 / (2 * wrong * right) if wrong and right else NAN,
        centres=centres,
        terms=terms,
    )


class Together(NamedTuple):
    """All clusters: how many, the rows of the largest, how unevenly rows and errors lie on them."""

    held: Held
    largest: int
    loads: Loads | None

    def merge(self, state: State) -> Self:
        if "held" not in state:
            return self
        loads = state["loads"] if self.loads is None else self.loads.merge(state["loads"])
        return type(self)(self.held.merge(state["held"]), max(self.largest, state["largest"]), loads)


def _units(
    run: Run, scores: list[int], metrics: list[Metric], inflate: tuple[float, float] = (1.0, 1.0)
) -> tuple[list[tallies.ScoreSums], dict[str, Moments], Together]:
    """Sums of the scores, moments of their units by metric, and the clusters."""
    sums, handle, columns = _chain(run, scores)
    clustered = run.prepare.cluster is not None
    ranked = tuple(_ranked(run, k, found, metrics) for k, found in zip(scores, sums, strict=True))
    wanted = tuple(metric.name for metric in metrics if _defined(metric, sums[0], ranked, clustered))
    sizes = cluster_sizes(run) if clustered else None
    buckets = max(1, -(-run.n // min(run.task_rows, 1_000_000))) if sizes is None else len(sizes)
    finish = FinishUnits(run.n, sums[0].wrong, ranked, wanted, inflate, sizes)
    done = run.shuffle("units", [Input(RouteUnits(None, columns, buckets, clustered), handle)], buckets, finish)
    run.release(handle)
    run.release(done.carried)
    return sums, *_merged(done.states, sizes, run.n)


def _merged(states: list[State], sizes: Int | None, n: int) -> tuple[dict[str, Moments], Together]:
    """What all buckets give, each of which must be there once, with all rows."""
    seen = [int(state["bucket"]) for state in states]
    rows = sum(int(state["rows"]) for state in states)
    if len(set(seen)) < len(seen) or rows != n or (sizes is not None and len(seen) != int((sizes > 0).sum())):
        raise changed("The last shuffle", rows, n)
    found: dict[str, Moments] = {}
    together = Together(Held(0, 0, 0), 0, None)
    for state in sorted(states, key=lambda s: int(s["bucket"])):
        together = together.merge(state)
        for name, value in state.items():
            if isinstance(value, Moments):
                found[name] = found[name].merge(value) if name in found else value
    return found, together


def cluster_sizes(run: Run) -> Int:
    """Rows of the buckets of clusters: as few buckets as a task each can hold.

    The rows of a cluster must come together, so a bucket may take all that memory allows, alone.
    """
    fine: Int = run.state["clusters"]
    alone = run.engine.bucket_rows
    for buckets in (len(fine) // 4, len(fine) // 2, len(fine)):
        sizes: Int = fine.reshape(buckets, -1).sum(axis=1)
        if int(sizes.max()) <= run.task_rows:
            break
    if int(sizes.max()) > alone:
        raise InputError(
            f"A cluster, or a few that share a bucket, hold {int(sizes.max()):,} rows, but a task holds {alone:,}. "
            f"Raise memory_limit to {math.ceil(10.1 * int(sizes.max()) / alone) / 10} times what it is, or name a "
            f"finer column of clusters."
        )
    return sizes


def _defined(metric: Metric, sums: tallies.ScoreSums, ranked: tuple[Ranked, ...], clustered: bool) -> bool:
    if metric.tally == "auc":
        return 0 < sums.wrong < sums.n
    if metric.tally == "pairs":
        return sums.comparable > 0 and (clustered or not math.isnan(sums.concordance.shift))
    return all(metric.name in (one.terms or {}) for one in ranked)


# ---- what it is for ---------------------------------------------------------------------------------------------


def _clustered(run: Run, found: dict[str, Moments], together: Together) -> tallies.Clustered:
    spreads = {name: Spread(m.units, float(m.mean[0]), float(m.products[0, 0])) for name, m in found.items()}
    return tallies.Clustered(*together, spreads, declared=run.request.wanted.largest_cluster)


def score_clusters(run: Run, k: int, metrics: list[Metric]) -> tuple[tallies.ScoreSums, tallies.Clustered]:
    """Sums of one score, and what its clusters say of the metrics."""
    (sums,), found, together = _units(run, [k], metrics)
    return sums, _clustered(run, found, together)


def model_clusters(run: Run, metrics: list[Metric]) -> tallies.Clustered:
    """What the clusters say of the model's own metrics."""
    state, n = run.state, run.n
    values: dict[str, float] = {}
    gaps = None
    for metric in metrics:
        what = metric.quantities[0]
        if metric.tally == "ece":
            bins, some = tallies.ece_bins(state)
            values[what] = l1(bins)
            gaps = np.full(len(state["ece"]), np.nan)
            gaps[some] = bins.gap
        elif what == "accuracy":
            values[what] = (n - state["wrong"]) / n
        elif not state[f"{what}_infinite"]:
            values[what] = float(state[what][0, 1])
    keep = (*wire.CLUSTER, *([wire.ERROR] * run.prepare.wants_error), *run.prepare.model)
    sizes = cluster_sizes(run)
    finish = FinishModel(n, values, gaps, sizes)
    done = run.shuffle("clusters", [Input(RouteUnits(run.prepare, keep, len(sizes)))], len(sizes), finish)
    run.release(done.carried)
    found, together = _merged(done.states, sizes, n)
    of_bins = [found.pop(name).about_zero().products for name in (BIN_GAPS, BIN_SHARES) if name in found]
    return replace(_clustered(run, found, together), bins=(of_bins[0], np.diag(of_bins[1])) if of_bins else None)


def joint_of_run(run: Run, metric: Metric) -> tuple[JointTally, int]:
    """Values and covariance of all scores of a run, and the number of clusters (0 without any)."""
    if metric.made is not None:
        run = run.against([metric])
    n, wrong = run.n, int(run.state["wrong"])
    inflate = (n / (n - 1), wrong / (wrong - 1) if wrong > 1 else NAN)
    sums, found, together = _units(run, list(range(len(run.names))), [metric], inflate)
    held, _, loads = together
    alone = [tallies.ranking_tally(metric, one, None) for one in sums]
    values = np.array([one.value for one in alone])
    formula = metric.formula
    pers = [formula.per(one.areas_of(formula)) for one in sums] if isinstance(formula, Formula) else []
    sizes = [one.sizes for one in alone]
    if run.prepare.cluster is not None:
        sizes = [_clustered(run, {}, together).joined(one) for one in sizes]
    room = room_beside(metric, sizes, pers)
    parts = _parts(metric, found, sums[0], None if run.prepare.cluster is None else held.all, loads, len(values))
    return JointTally(values, parts, room).mapped(metric.affine), held.all


def _parts(
    metric: Metric,
    found: dict[str, Moments],
    sums: tallies.ScoreSums,
    clusters: int | None,
    loads: Loads | None,
    size: int,
) -> tuple[JointPart, ...]:
    """As `inference.joint.joint_of_samples` has them."""
    if not found or (clusters is not None and clusters < 2):
        nothing = np.full((size, size), NAN)
        return (JointPart(nothing, nothing, 1.0),)
    units = sums.n if clusters is None else clusters
    if metric.tally == "auc" and clusters is None:
        parts = []
        for side in ("right", "wrong"):
            part = found[f"{metric.name} {side}"]
            scale = 1 / (part.units * (part.units - 1)) if part.units > 1 else NAN
            parts.append(JointPart.of_moments(part.about_zero(), scale, part.units - 1))
        return tuple(parts)
    moments = found[metric.name]
    if metric.formula is None:
        df = units - 1 if metric.tally != "auc" or loads is None else min(loads.right.number, loads.wrong.number) - 1
        return (JointPart.of_moments(moments, (units - 1) / units, df),)
    if clusters is not None:
        df = units - 1 if loads is None else loads.wrong.number - 1
        return (JointPart.of_moments(moments.about_zero(), units / (units - 1), df),)
    return (JointPart.of_moments(moments.about_zero(), 1.0, sums.wrong - 1),)
