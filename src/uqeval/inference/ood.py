"""Intervals for out-of-distribution detection: stratified percentile bootstrap, known and foreign rows apart."""

from dataclasses import replace

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.count import count_sample
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.metrics.areas import Ranking
from uqeval.metrics.ood import average_precision, rank_needed, stack
from uqeval.metrics.registry import REGISTRY


def estimate_auroc(score_in: Float, score_out: Float, level: float) -> Estimate:
    """The interval of UQ-AUC, with foreign rows in the place of errors."""
    score, out = stack(score_in, score_out)
    metric = REGISTRY["uq_auc"]
    found = estimate_ranking(metric, count_sample(metric, Sample.of(score, out)), level)
    notes = (
        note.replace("few errors", "few foreign rows").replace("right rows", "known rows") for note in found.warnings
    )
    return replace(found, n_errors=None, warnings=tuple(notes))


def _percentile(values: Float, value: float, level: float, n: int) -> Estimate:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    still = bool((values == values[0]).all())
    return Estimate(
        value=value,
        low=float(low),
        high=float(high),
        se=float(values.std(ddof=1)),
        level=level,
        method=f"stratified percentile bootstrap, {len(values)} resamples",
        n=n,
        degenerate=still,
        warnings=("every resample gives the same value: an interval without width",) if still else (),
    )


def estimate_fpr(
    score_in: Float, score_out: Float, level: float, rng: np.random.Generator, resamples: int = 2000, tpr: float = 0.95
) -> Estimate:
    """FPR at a TPR. Resampling is simulated exactly without touching rows: the k-th of n draws sits at place
    ⌈n·Beta(k, n − k + 1)⌉ of the sorted scores, and the accepted foreign rows of a resample are binomial."""
    inside, outside = np.sort(score_in), np.sort(score_out)
    n, m = len(inside), len(outside)
    k = rank_needed(n, tpr)
    accepted = np.searchsorted(outside, inside, side="right") / m  # at each possible threshold
    place = np.minimum(np.ceil(n * rng.beta(k, n - k + 1, size=resamples)).astype(np.int64), n) - 1
    values = rng.binomial(m, accepted[np.maximum(place, 0)]) / m
    return _percentile(values, float(accepted[k - 1]), level, n + m)


def estimate_aupr(
    score_in: Float, score_out: Float, level: float, rng: np.random.Generator, resamples: int = 2000
) -> Estimate:
    """Average precision with foreign rows as positives; resampling changes multiplicities of sorted rows only."""
    score, out = stack(score_in, score_out)
    seeds = rng.integers(0, 2**64, size=(resamples, 2), dtype=np.uint64)
    values = kernels.bootstrap_precision(Ranking(-score).marks(out), seeds)
    return _percentile(values, average_precision(-score, out), level, len(score))
