"""Differences between scores of all rows of a run, from sums: values, covariance, and who ranks all rows alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from uqeval._check import Float
from uqeval.distributed.engines.protocol import State
from uqeval.distributed.plan.all_scores import unit_moments
from uqeval.distributed.plan.by_cluster import Moments
from uqeval.distributed.plan.estimates import area_value
from uqeval.distributed.plan.run import Run
from uqeval.distributed.plan.same_ranks import rank_alike_with
from uqeval.distributed.plan.tallies import ScoreSums
from uqeval.inference.paired import _TINY, Contrast, Joint, two_sided

__all__ = ["ALIKE", "Found", "Summed", "pairs_of_run"]

NAN = float("nan")
ALIKE = Contrast(0.0, 0.0, math.inf, 0.0, 1.0)  # of two scores that rank all rows alike
_ROUNDING = 1e-12  # of the values: two scores that rank alike may have bins of their own


@dataclass(frozen=True)
class Summed(Joint):
    """A `Joint` of which only the covariance is left."""

    total: Float

    def covariance(self) -> Float:
        """(K, K)."""
        return self.total


class Found(NamedTuple):
    """Values and covariance of K scores, the contrast of each pair, and the number of clusters (0 without any)."""

    joint: Summed
    contrasts: list[Contrast]
    clusters: int


def pairs_of_run(run: Run, metric: str, pairs: list[tuple[int, int]]) -> Found:
    """All scores of a run in one chain of shuffles."""
    n, wrong = run.n, int(run.state["wrong"])
    inflate = (n / (n - 1), wrong / (wrong - 1) if wrong > 1 else NAN)
    sums, found, totals = unit_moments(run, list(range(len(run.names))), [metric], inflate)
    values = np.array([_value(metric, one) for one in sums])
    parts = _parts(metric, found, sums[0], _clusters(run, totals), len(values))
    contrasts = [_contrast(values, parts, a, b) for a, b in pairs]
    _find_alike(run, values, pairs, contrasts)
    total: Float = np.sum([part.covariance for part in parts], axis=0)
    return Found(Summed(values, (), total), contrasts, int(totals["clusters"]))


def _clusters(run: Run, totals: State) -> int | None:
    return None if run.prepare.cluster is None else int(totals["clusters"])


def _value(metric: str, sums: ScoreSums) -> float:
    if metric == "uq_c_index":
        return sums.credit2 / (2 * sums.comparable) if sums.comparable else NAN
    if metric == "uq_auc":
        assert sums.auc is not None
        return sums.auc.credit2 / (2 * sums.wrong * sums.right) if sums.wrong and sums.right else NAN
    return area_value(metric, sums)


class _Cov(NamedTuple):
    """An independent part of the covariance, the variances of differences, and the degrees of freedom."""

    covariance: Float
    gaps: Float
    df: float


def _parts(metric: str, found: dict[str, Moments], sums: ScoreSums, clusters: int | None, size: int) -> list[_Cov]:
    if not found or (clusters is not None and clusters < 2):
        nothing = np.full((size, size), NAN)
        return [_Cov(nothing, nothing, 1.0)]
    if clusters is not None:
        if metric in ("uq_auc", "uq_c_index"):
            scale = (clusters - 1) / clusters
            return [_Cov(scale * found[metric].products, scale * found[metric].gaps, clusters - 1)]
        products, gaps = found[metric].about_zero()
        scale = clusters / (clusters - 1)
        return [_Cov(scale * products, scale * gaps, clusters - 1)]
    if metric == "uq_auc":
        parts = []
        for side in ("right", "wrong"):
            part = found[f"uq_auc {side}"]
            scale = 1 / (part.count * (part.count - 1)) if part.count > 1 else NAN
            products, gaps = part.about_zero()
            parts.append(_Cov(scale * products, scale * gaps, part.count - 1))
        return parts
    if metric == "uq_c_index":
        scale = (sums.n - 1) / sums.n
        return [_Cov(scale * found[metric].products, scale * found[metric].gaps, sums.n - 1)]
    products, gaps = found[metric].about_zero()
    return [_Cov(products, gaps, sums.wrong - 1)]


def _contrast(values: Float, parts: list[_Cov], a: int, b: int) -> Contrast:
    """As `inference.paired.contrast`, from sums."""
    difference = float(values[a]) - float(values[b])
    if math.isnan(difference):
        return Contrast(NAN, NAN, NAN, NAN, NAN)
    variances, close = [], False
    for part in parts:
        cov = part.covariance
        total = float(cov[a, a] + cov[b, b])
        variance = total - 2 * float(cov[a, b])
        if variance <= _TINY * total:
            variance, close = float(part.gaps[a, b]), True
        variances.append(variance)
    variance = sum(variances)
    if math.isnan(variance):
        return Contrast(difference, NAN, NAN, NAN, NAN)
    if variance <= 0 or math.sqrt(variance) < 1e-15:
        return Contrast(difference, 0.0, math.inf, 0.0, 1.0)
    spread = sum(v * v / part.df for v, part in zip(variances, parts, strict=True) if v > 0 and part.df > 0)
    df = variance**2 / spread if spread > 0 else 0.0
    se = math.sqrt(variance)
    return Contrast(difference, se, df, difference / se, two_sided(difference / se, df), close)


def _find_alike(run: Run, values: Float, pairs: list[tuple[int, int]], contrasts: list[Contrast]) -> None:
    """Where there is no standard error and no difference: do the two rank all rows alike? Then there is none."""
    unknown: dict[int, list[int]] = {}
    for k, ((a, _), c) in enumerate(zip(pairs, contrasts, strict=True)):
        exact = c.difference == 0 and c.se == 0
        if abs(c.difference) <= _ROUNDING * abs(float(values[a])) and not c.se > 0 and not exact:
            unknown.setdefault(a, []).append(k)
    for a, places in unknown.items():
        others = [pairs[k][1] for k in places]
        for k, same in zip(places, rank_alike_with(run, a, others), strict=True):
            if same:
                contrasts[k] = ALIKE
