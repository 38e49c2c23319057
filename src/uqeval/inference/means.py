"""Intervals of the metrics of the model itself: accuracy, Brier score, log-loss, ECE."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from uqeval._check import Float, Int
from uqeval.inference.influence import influence_variance
from uqeval.inference.intervals import (
    NAN,
    UNKNOWN,
    Interval,
    clopper_pearson,
    logit_t,
    settled,
    t_interval,
    t_quantile,
    z_quantile,
)
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample, kish
from uqeval.metrics.calibration import Bins, bin_rows, debiased_l1, l1, squared_l2
from uqeval.metrics.proper import weighted_mean

__all__ = ["ece_influence", "estimate_accuracy", "estimate_ece", "estimate_mean"]

_CELLS = 4096  # rows of the calibration test are pooled into that many cells of almost equal confidence
_REPETITIONS = 999
_CELLS_AT_ONCE = 1 << 22


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
    if se == 0 and groups != 1 and interval.low == interval.high:
        notes = (*notes, "all rows are alike: an interval without width")
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
    se = settled(math.sqrt(variance), abs(value))
    low, high = t_interval(value, se, level, _df(sample))
    return _pack(sample, value, se, Interval(max(bounds[0], low), min(bounds[1], high)), level, "t")


def estimate_accuracy(error: Float, weights: Float | None, clusters: Int | None, level: float) -> Estimate:
    """Clopper–Pearson for independent rows, logit with influence values otherwise."""
    right = 1.0 - error
    sample = _rows(right, weights, clusters)
    value = weighted_mean(right, weights)
    se = settled(math.sqrt(influence_variance(sample, right - value)))
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
    variance = influence_variance(sample, ece_influence(bins, confidence, correct))
    if math.isnan(variance):
        return {name: _pack(sample, value, NAN, UNKNOWN, level, "none") for name, value in values.items()}
    se, centre = settled(math.sqrt(variance)), values["ece_debiased"]
    half = (z_quantile(level) if clusters is None else t_quantile(level, _df(sample))) * se
    low = max(0.0, centre - half)
    if low > 0 and (clusters is not None or not _miscalibrated(confidence, weights, bins, 1 - level, rng)):
        low = 0.0
    interval = Interval(low, min(1.0, centre + half))
    method = "debiased L1, influence"
    return {name: _pack(sample, value, se, interval, level, method) for name, value in values.items()}


def ece_influence(bins: Bins, confidence: Float, correct: Float) -> Float:
    """Influence on the plug-in ECE with its bins held fixed."""
    return np.sign(bins.gap)[bins.row_bin] * (correct - confidence) - l1(bins)


def _miscalibrated(
    confidence: Float, weights: Float | None, bins: Bins, alpha: float, rng: np.random.Generator
) -> bool:
    """Consistency resampling: labels drawn from the confidences; does the debiased L2² exceed what they give?"""
    observed = squared_l2(bins.share, bins.gap, bins.variance)
    cells = _cells(confidence, weights, bins.row_bin)
    exceeded = done = 0
    chunk = max(1, _CELLS_AT_ONCE // len(cells.mean))
    while done < _REPETITIONS:
        count = min(chunk, _REPETITIONS - done)
        gap, variance = _drawn(cells, count, rng)
        exceeded += int((((gap * gap - variance) * bins.share).sum(axis=1) >= observed).sum())
        done += count
        if (1 + exceeded) / (1 + _REPETITIONS) > alpha:
            return False  # no further draw can bring it below alpha
    return True


class _Cells(NamedTuple):
    """Rows to draw labels for: neighbouring confidences of a bin pooled where rows are many and weigh the same."""

    size: Int
    mean: Float
    weight: Float  # of each row of the cell
    of_bin: Int


def _cells(confidence: Float, weights: Float | None, row_bin: Int) -> _Cells:
    """The spread of confidences inside a pooled cell is far below the noise of a draw. Does not depend on row order."""
    w = np.ones(len(confidence)) if weights is None else weights
    order = np.lexsort((w, confidence, row_bin))
    c, b = confidence[order], row_bin[order]
    if weights is not None or len(c) <= _CELLS:
        return _Cells(np.ones(len(c), dtype=np.int64), c, w[order], b)
    cut = np.arange(len(c)) * _CELLS // len(c)
    first = np.flatnonzero(np.concatenate([[True], (cut[1:] != cut[:-1]) | (b[1:] != b[:-1])]))
    size = np.diff(first, append=len(c))
    return _Cells(size, np.add.reduceat(c, first) / size, np.ones(len(first)), b[first])


def _drawn(cells: _Cells, count: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """(count, bins) gaps and variances of the gaps when labels follow the confidences."""
    if (cells.size == 1).all():
        hits = (rng.random((count, len(cells.mean))) < cells.mean).astype(np.float64)
    else:
        hits = rng.binomial(cells.size, cells.mean, size=(count, len(cells.mean))).astype(np.float64)
    first = np.flatnonzero(np.diff(cells.of_bin, prepend=-1))  # cells come bin by bin

    def by_bin(x: Float) -> Float:
        result: Float = np.add.reduceat(x, first, axis=-1)
        return result

    w, w2 = cells.weight, cells.weight**2
    diff = hits - cells.size * cells.mean
    squares = hits * (1 - cells.mean) ** 2 + (cells.size - hits) * cells.mean**2
    total, total2 = by_bin(cells.size * w), by_bin(cells.size * w2)
    gap = by_bin(diff * w) / total
    spread = by_bin(squares * w2) - 2 * gap * by_bin(diff * w2) + gap**2 * total2
    size = total**2 / total2
    rows = by_bin(cells.size.astype(np.float64))
    factor = np.where(rows > 1, size / np.maximum(size - 1, 1e-12), 0.0)
    return gap, np.maximum(spread, 0.0) / total**2 * factor
