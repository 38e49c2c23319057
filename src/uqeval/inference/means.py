"""Intervals of the metrics of the model itself: accuracy, Brier score, log-loss, ECE."""

from __future__ import annotations

import math

import numpy as np

from uqeval._check import Float, Int
from uqeval.inference.influence import influence_variance
from uqeval.inference.intervals import (
    NAN,
    UNKNOWN,
    Interval,
    clopper_pearson,
    logit_t,
    t_interval,
    t_quantile,
    z_quantile,
)
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample, kish
from uqeval.metrics.calibration import Bins, bin_rows, debiased_l1, l1, squared_l2
from uqeval.metrics.proper import weighted_mean

__all__ = ["estimate_accuracy", "estimate_ece", "estimate_mean"]

_CELLS = 4096  # rows of the calibration test are pooled into that many cells of almost equal confidence
_REPETITIONS = 999


def _rows(x: Float, weights: Float | None, clusters: Int | None) -> Sample:
    return Sample(np.zeros(len(x)), x, weights, clusters)


def _df(sample: Sample) -> float:
    if sample.n_clusters is not None:
        return sample.n_clusters - 1
    return (sample.n if sample.weights is None else kish(sample.weights)) - 1


def _pack(
    sample: Sample,
    value: float,
    se: float,
    interval: Interval,
    level: float,
    method: str,
    notes: tuple[str, ...] = (),
) -> Estimate:
    groups = sample.n_clusters
    if groups == 1:
        notes = (*notes, "a single cluster: no standard error or interval")
    elif groups is not None and groups < 10:
        notes = (*notes, f"few clusters ({groups}): the interval is unreliable")
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        se=se,
        level=level,
        method=method,
        n=sample.n,
        n_clusters=groups,
        n_eff=_df(sample) + 1,
        degenerate=math.isnan(value),
        warnings=notes,
    )


def estimate_mean(
    rows: Float, weights: Float | None, clusters: Int | None, level: float, bounds: tuple[float, float]
) -> Estimate:
    """A mean of per-row losses: t interval, kept inside the metric's range."""
    sample = _rows(rows, weights, clusters)
    value = weighted_mean(rows, weights)
    if not math.isfinite(value):
        count = int(np.isinf(rows).sum())
        notes = (f"{count} labels have probability 0: the log-loss is infinite",)
        return _pack(sample, value, NAN, UNKNOWN, level, "none", notes)
    variance = influence_variance(sample, rows - value)
    if math.isnan(variance):
        return _pack(sample, value, NAN, UNKNOWN, level, "none")
    se = math.sqrt(variance)
    low, high = t_interval(value, se, level, _df(sample))
    return _pack(sample, value, se, Interval(max(bounds[0], low), min(bounds[1], high)), level, "t")


def estimate_accuracy(error: Float, weights: Float | None, clusters: Int | None, level: float) -> Estimate:
    """Clopper–Pearson for independent rows, logit with influence values otherwise."""
    right = 1.0 - error
    sample = _rows(right, weights, clusters)
    value = weighted_mean(right, weights)
    se = math.sqrt(influence_variance(sample, right - value))
    if sample.plain:
        interval = clopper_pearson(right.sum(), len(right), level)
        return _pack(sample, value, se, interval, level, "Clopper–Pearson")
    if math.isnan(se):
        return _pack(sample, value, NAN, UNKNOWN, level, "none")
    if se == 0 or not 0 < value < 1:
        units = _df(sample) + 1
        return _pack(sample, value, se, clopper_pearson(value * units, units, level), level, "Clopper–Pearson")
    return _pack(sample, value, se, logit_t(value, se, level, _df(sample)), level, "logit influence t")


def estimate_ece(
    confidence: Float,
    correct: Float,
    weights: Float | None,
    clusters: Int | None,
    level: float,
    rng: np.random.Generator,
) -> dict[str, Estimate]:
    """ECE with 15 bins of equal width, plug-in ("ece") and "ece_debiased"; the interval of both is about the latter.

    The lower end is 0 unless a test of perfect calibration rejects; with clusters no such test is at hand.
    """
    sample = _rows(correct - confidence, weights, clusters)
    bins = bin_rows(confidence, correct, weights)
    values = {"ece": l1(bins), "ece_debiased": debiased_l1(bins)}
    influence = np.sign(bins.gap)[bins.row_bin] * (correct - confidence) - values["ece"]
    variance = influence_variance(sample, influence)
    if math.isnan(variance):
        return {name: _pack(sample, value, NAN, UNKNOWN, level, "none") for name, value in values.items()}
    se, centre = math.sqrt(variance), values["ece_debiased"]
    half = (z_quantile(level) if clusters is None else t_quantile(level, _df(sample))) * se
    low = max(0.0, centre - half)
    if low > 0 and (clusters is not None or not _miscalibrated(confidence, weights, bins, 1 - level, rng)):
        low = 0.0
    interval = Interval(low, min(1.0, centre + half))
    method = "debiased L1, influence"
    return {name: _pack(sample, value, se, interval, level, method) for name, value in values.items()}


def _miscalibrated(
    confidence: Float, weights: Float | None, bins: Bins, alpha: float, rng: np.random.Generator
) -> bool:
    """Consistency resampling: labels drawn from the confidences; does the debiased L2² exceed what they give?"""
    w = np.ones(len(confidence)) if weights is None else weights
    observed = squared_l2(bins.share, bins.gap, bins.variance)
    if weights is None and len(confidence) > _CELLS:
        size, mean, cell_bin = _cells(confidence, bins.row_bin)
        draw = _binomial_draw(size, mean, cell_bin, len(bins.share), rng)
    else:
        draw = _bernoulli_draw(confidence, w, bins.row_bin, len(bins.share), rng)
    exceeded = 0
    for _ in range(_REPETITIONS):
        gap, variance = draw()
        exceeded += squared_l2(bins.share, gap, variance) >= observed
    return (1 + exceeded) / (1 + _REPETITIONS) <= alpha


def _cells(confidence: Float, index: Int) -> tuple[Float, Float, Int]:
    """Neighbouring confidences of a bin pooled: their spread inside a cell is far below the noise of a draw."""
    order = np.lexsort((confidence, index))
    c, b = confidence[order], index[order]
    cut = np.arange(len(c)) * _CELLS // len(c)
    new = np.concatenate([[True], (cut[1:] != cut[:-1]) | (b[1:] != b[:-1])])
    first = np.flatnonzero(new)
    size = np.diff(first, append=len(c)).astype(np.float64)
    return size, np.add.reduceat(c, first) / size, b[first]


def _binomial_draw(size: Float, mean: Float, cell_bin: Int, bins: int, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    trials = size.astype(np.int64)
    total = np.bincount(cell_bin, weights=size, minlength=bins)

    def draw() -> tuple[Float, Float]:
        hits = rng.binomial(trials, mean)
        gap = np.bincount(cell_bin, weights=hits - size * mean, minlength=bins) / total
        squares = hits * (1 - mean) ** 2 + (size - hits) * mean**2
        spread = np.maximum(np.bincount(cell_bin, weights=squares, minlength=bins) / total - gap**2, 0.0)
        return gap, np.where(total > 1, spread / np.maximum(total - 1, 1), 0.0)

    return draw


def _bernoulli_draw(confidence: Float, w: Float, index: Int, bins: int, rng: np.random.Generator):  # type: ignore[no-untyped-def]
    order = np.lexsort((w, confidence, index))  # the draws must not depend on the order of rows
    confidence, w, index = confidence[order], w[order], index[order]
    total = np.bincount(index, weights=w, minlength=bins)
    size = total**2 / np.bincount(index, weights=w * w, minlength=bins)
    count = np.bincount(index, minlength=bins)
    factor = np.where(count > 1, size / np.maximum(size - 1, 1e-12), 0.0)

    def draw() -> tuple[Float, Float]:
        diff = (rng.random(len(confidence)) < confidence) - confidence
        gap = np.bincount(index, weights=w * diff, minlength=bins) / total
        spread = np.bincount(index, weights=(w * (diff - gap[index])) ** 2, minlength=bins) / total**2
        return gap, spread * factor

    return draw
