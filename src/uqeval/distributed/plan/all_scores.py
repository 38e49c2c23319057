"""All scores in one chain of shuffles: every row visits its bin of each score and of the loss, then its unit.

For cluster-robust errors (one score at a time) and for the covariance of K scores, which needs all of their numbers
beside each other in one row: K + 2 shuffles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uqeval._check import Int
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Input, State
from uqeval.distributed.plan.by_cluster import (
    FinishModel,
    FinishUnits,
    Moments,
    Ranked,
    RouteUnits,
    merge_moments,
    unpacked,
)
from uqeval.distributed.plan.estimates import AREAS, Clustered, class_shifts, ece_bins
from uqeval.distributed.plan.run import Run
from uqeval.distributed.plan.stages import FinishLoss, RouteLoss, RouteScore, changed
from uqeval.distributed.plan.tallies import ScoreSums, add_point_pairs, add_sizes, check_buckets, sum_score
from uqeval.inference.intervals import NAN
from uqeval.metrics.calibration import l1

__all__ = ["chain", "cluster_errors", "model_cluster_errors", "unit_moments"]

_HALF = ("augrc", "g_auc", "h_auc")


def chain(run: Run, scores: list[int]) -> tuple[list[ScoreSums], Any, tuple[str, ...]]:
    """Sums of the scores, and every row with its counts: a handle on carried rows and their columns."""
    prepare = run.prepare
    ranks, pairs = prepare.wants_error, prepare.wants_loss
    base = [f"s{k}" for k in scores]
    base += ["e"] * ranks + ["d", "cd"] * pairs + ["k0", "k1"] * (prepare.cluster is not None)
    handle, made = None, list[str]()
    found = []
    for k in scores:
        grid = run.grids[k]
        rides = np.arange(grid.score.n_codes) % 2 == 1
        moved = (*base, *made, f"q{k}")
        made += [f"q{k}"] + [f"x{k}"] * pairs + [f"c{k}", f"a{k}"] * ranks
        route = RouteScore(
            prepare if handle is None else None, k, grid.score, grid.loss if pairs else None, rides, moved
        )
        finish = run.finish_score(k, (*base, *made), every=True)
        done = run.shuffle(f"score {run.names[k]}", [Input(route, handle)], len(grid.score.edges) + 1, finish)
        run.release(handle)
        handle = done.carried
        counts = grid.by_score.sum(axis=1)
        check_buckets("Bin of the score", done.states, counts, int(counts[1::2].sum()))
        found.append(sum_score(grid, done.states, run.constant(k), ranks))
    if not pairs:
        return found, handle, (*base, *made)
    grid = run.grids[scores[0]]
    columns = (*base, *made)
    route_loss = RouteLoss(None, scores[0], None, None, grid.loss, None, columns, ride=True)
    finish_loss = FinishLoss(tuple(scores), grid.by_loss, ride=True, carry=(*columns, "t"))
    done = run.shuffle("loss", [Input(route_loss, handle)], len(grid.loss.edges) + 1, finish_loss)
    run.release(handle)
    check_buckets("Bin of the loss", done.states, grid.by_loss, int(grid.by_loss[1::2].sum()))
    for k, sums in zip(scores, found, strict=True):
        for state in done.states:
            add_sizes(sums.sizes, state.get(f"sizes{k}", []))
        add_point_pairs(sums, run.grids[k])
    return found, done.carried, (*columns, "t")


def _ranked(run: Run, k: int, sums: ScoreSums, metrics: list[str]) -> Ranked:
    n, wrong, right = sums.n, sums.wrong, sums.right
    credit = 0 if sums.auc is None else sums.auc.credit2
    centres = np.zeros(run.grids[k].score.n_codes)
    half, shifts = {}, {}
    if sums.auc is not None:
        for code, centre in sums.centres.items():
            centres[code] = centre
        value2 = 2 * wrong * right - credit + wrong * wrong  # 2n²·AUGRC
        of_augrc = ((2 * wrong / (2 * n)) - value2 / n**2, 1.0 - value2 / n**2, -1 / (2 * n))
        of_h = (-credit / n**2, -credit / n**2, 1 / (2 * n))
        twice = (2 * of_augrc[0], 2 * of_augrc[1], 2 * of_augrc[2])
        half = {"augrc": of_augrc, "g_auc": twice, "h_auc": of_h}
        family = [name for name in metrics if name in AREAS and name not in _HALF]
        if not (0 < wrong < n):  # nAURC is undefined there, and the others have no variance to speak of
            family = [name for name in family if name not in ("naurc", "prr")]
        shifts = {name: class_shifts(name, sums) for name in family}
    pairs = sums.concordance if sums.sizes else None
    return Ranked(
        k,
        credit=float(credit),
        pairs_credit=0.0 if pairs is None else pairs.credit2 / 2,
        comparable=0.0 if pairs is None else float(pairs.comparable),
        mean_shift=0.0 if pairs is None else pairs.shift / n,
        value=credit / (2 * wrong * right) if wrong and right else NAN,
        centres=centres,
        shifts=shifts,
        half=half,
    )


def unit_moments(
    run: Run, scores: list[int], metrics: list[str], inflate: tuple[float, float] = (1.0, 1.0)
) -> tuple[list[ScoreSums], dict[str, Moments], State]:
    """Sums of the scores, moments of their units by metric, and counts of clusters."""
    sums, handle, columns = chain(run, scores)
    clustered = run.prepare.cluster is not None
    ranked = tuple(_ranked(run, k, found, metrics) for k, found in zip(scores, sums, strict=True))
    wanted = tuple(
        name for name in metrics if _defined(name, sums[0], clustered) and all(_known(name, one) for one in ranked)
    )
    sizes = cluster_sizes(run) if clustered else None
    buckets = max(1, -(-run.n // min(run.task_rows, 1_000_000))) if sizes is None else len(sizes)
    finish = FinishUnits(run.n, sums[0].wrong, ranked, wanted, clustered, inflate, sizes)
    route = RouteUnits(None, columns, buckets, clustered)
    done = run.shuffle("units", [Input(route, handle)], buckets, finish)
    run.release(handle)
    run.release(done.carried)
    _check_units(done.states, sizes, run.n)
    found: dict[str, Moments] = {}
    totals: State = {"clusters": 0, "with_wrong": 0, "with_right": 0, "largest": 0}
    for state in sorted(done.states, key=lambda s: int(s["bucket"])):
        for name, value in state.items():
            if name == "largest":
                totals[name] = max(totals[name], value)
            elif name in totals:
                totals[name] += value
            elif isinstance(value, list):
                part = unpacked(value)
                found[name] = merge_moments(found[name], part) if name in found else part
    return sums, found, totals


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


def _defined(metric: str, sums: ScoreSums, clustered: bool) -> bool:
    if metric == "uq_auc":
        return 0 < sums.wrong < sums.n
    if metric == "uq_c_index":
        return sums.comparable > 0 and (clustered or not math.isnan(sums.concordance.shift))
    return True


def _known(metric: str, one: Ranked) -> bool:
    return metric in ("uq_auc", "uq_c_index") or metric in (one.half or {}) or metric in (one.shifts or {})


def _check_units(states: list[State], sizes: Any, n: int) -> None:
    seen = [int(state["bucket"]) for state in states]
    rows = sum(int(state["rows"]) for state in states)
    if len(set(seen)) < len(seen) or rows != n or (sizes is not None and len(seen) != int((sizes > 0).sum())):
        raise changed("The last shuffle", rows, n)


def cluster_errors(run: Run, k: int, metrics: list[str]) -> tuple[ScoreSums, Clustered]:
    """Cluster-robust standard errors of the metrics of one score."""
    base = {"auarc": "aurc", "g_auc": "augrc", "prr": "naurc"}
    wanted = list(dict.fromkeys(base.get(name, name) for name in metrics))
    (sums,), found, totals = unit_moments(run, [k], wanted)
    groups = int(totals["clusters"])
    se = {}
    for name in wanted:
        se[name] = NAN
        if name in found and groups > 1:
            if name in ("uq_auc", "uq_c_index"):
                se[name] = math.sqrt((groups - 1) / groups * float(found[name].products[0, 0]))
            else:
                se[name] = math.sqrt(float(found[name].about_zero()[0][0, 0]) * groups / (groups - 1))
    return sums, Clustered(groups, totals["with_right"], totals["with_wrong"], totals["largest"], se)


def model_cluster_errors(run: Run, metrics: list[str]) -> tuple[dict[str, float], int]:
    """Cluster-robust standard errors of the model's own metrics, and the number of clusters."""
    state, n = run.state, run.n
    values: dict[str, float] = {}
    signs = None
    for name in metrics:
        if name == "accuracy":
            values[name] = (n - state["wrong"]) / n
        elif name in ("ece", "ece_debiased"):
            bins, some = ece_bins(state)
            values["ece"] = l1(bins)
            signs = np.full(len(state["ece"]), np.nan)
            signs[some] = np.sign(bins.gap)
        elif not state[f"{name}_infinite"]:
            values[name] = float(state[name][0, 1])
    keep = ("k0", "k1", *(["e"] * run.prepare.wants_error), *run.prepare.model)
    sizes = cluster_sizes(run)
    finish = FinishModel(n, values, signs, sizes)
    done = run.shuffle("clusters", [Input(RouteUnits(run.prepare, keep, len(sizes)))], len(sizes), finish)
    run.release(done.carried)
    _check_units(done.states, sizes, n)
    groups = sum(int(state["clusters"]) for state in done.states)
    factor = groups / (groups - 1) / n**2 if groups > 1 else NAN
    return {name: math.sqrt(math.fsum(s[name] for s in done.states) * factor) for name in values}, groups
