"""Is it chance which of two candidates is better? Their rows (or clusters) are swapped at random.

Exact for the sharp null that the two are exchangeable within each row: whoever is called a might as well be called b.
That is more than an equal metric, for which `paired` tests; with few errors it has far more power. Scores with values
in common are swapped as they are. Others are put on a common scale first, as ranks, since a score that counts in other
units could not be exchanged; that the ranks are those of these rows makes it an approximation.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int, Progress
from uqeval.inference.bootstrap import row_units
from uqeval.inference.count import count_sample
from uqeval.inference.measure import Measurement
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.metrics.areas import Ranking
from uqeval.metrics.calibration import bin_rows
from uqeval.metrics.registry import Metric

_CELLS = 1 << 22  # draws held at a time
_SHARED = 0.5  # of the rows: so many values in common mean a common scale
_ROUNDING = 1e-12  # a swap that changes nothing gives the same difference, but for that


def swap_test(
    a: Measurement, b: Measurement, resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> float:
    """p-value (1 + swaps with as large a difference)/(1 + swaps), two-sided; NaN where the metric is undefined."""
    first, second = a.given, b.given
    if isinstance(first, Sample) and isinstance(second, Sample):
        scales, blocks = _on_common_scale(first, second)
        columns = [scales[0], first.target, scales[1], second.target]
        gap = _of_pairs(a.metric, columns, a.rows, blocks, rng)
    elif isinstance(first, Confidences) and isinstance(second, Confidences):
        columns = [first.confidence, first.correct, second.confidence, second.correct]
        gap = _of_bins(a.metric, columns, a.rows)
    else:
        assert isinstance(first, np.ndarray)
        assert isinstance(second, np.ndarray)
        columns = [first, second]
        gap = _of_means(columns, a.rows)
    weights = [] if a.rows.weights is None else [a.rows.weights]
    unit, units = row_units(a.rows, [*columns, *weights])
    observed = abs(gap(np.zeros((1, a.rows.n), dtype=np.bool_))[0])
    if math.isnan(observed):
        return math.nan
    exceeded = done = 0
    for swapped in _swaps(unit, units, resamples, rng):
        drawn = np.abs(gap(swapped))
        exceeded += int(np.count_nonzero(~(drawn < observed - _ROUNDING)))  # an undefined one counts against it
        done += len(swapped)
        if progress is not None:
            progress("swapping", done, resamples)
    return (1 + exceeded) / (1 + resamples)


def _swaps(unit: Int, units: int, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """(some, n): whether each row is swapped, all rows of a unit alike."""
    chunk = max(1, min(resamples, _CELLS // max(len(unit), units)))
    for at in range(0, resamples, chunk):
        yield (rng.random((min(chunk, resamples - at), units)) < 0.5)[:, unit]


def _on_common_scale(a: Sample, b: Sample) -> tuple[list[Float], list[Int] | None]:
    """The scores themselves where most values occur in both; else mid-ranks, and the tied block of each row."""
    both = np.intersect1d(a.score, b.score)
    if len(both) and min(np.isin(s.score, both).mean() for s in (a, b)) >= _SHARED:
        return [a.score, b.score], None
    ranks, blocks = [], []
    for order in (a.ranking.order, b.ranking.order):
        rank, block = np.empty(a.n), np.empty(a.n, dtype=np.int64)
        rank[order.row] = np.repeat(order.first + (order.size - 1) / 2, order.size)
        block[order.row] = np.repeat(np.arange(len(order.size)), order.size)
        ranks.append(rank)
        blocks.append(block)
    return ranks, blocks


Gap = Callable[[NDArray[np.bool_]], Float]


def _of_pairs(
    metric: Metric, columns: list[NDArray[Any]], rows: Rows, blocks: list[Int] | None, rng: np.random.Generator
) -> Gap:
    """A score against a target: the errors of a model go with its score."""
    s1, t1, s2, t2 = columns
    alone = replace(rows, clusters=None)  # the value knows none
    same = np.array_equal(t1, t2)
    wrong = int(np.count_nonzero(t1))
    quick = metric.tally == "auc" and alone.plain and same and 0 < wrong < rows.n

    def value(score: Float, target: NDArray[np.generic]) -> float:
        if quick:
            return kernels.auc_sums(score, target).credit2 / (2 * wrong * (rows.n - wrong))  # type: ignore[arg-type]
        return float(count_sample(metric, Sample(Ranking(score), target, alone)).value)

    def gap(swapped: NDArray[np.bool_]) -> Float:
        found = np.empty(len(swapped))
        for k, swap in enumerate(swapped):
            x, y = s1, s2
            if blocks is not None:
                # A rank of one meets the same rank of the other: ties that neither has, which would make every swap
                # look less different. They are broken at random; blocks stay tied, and in order.
                x, y = (s + rng.random(int(of.max()) + 1)[of] for s, of in zip((s1, s2), blocks, strict=True))
            one, two = np.where(swap, y, x), np.where(swap, x, y)
            targets = (t1, t1) if same else (np.where(swap, t2, t1), np.where(swap, t1, t2))
            found[k] = value(one, targets[0]) - value(two, targets[1])
        return found

    return gap


def _of_bins(metric: Metric, columns: list[Float], rows: Rows) -> Gap:
    c1, a1, c2, a2 = columns

    def gap(swapped: NDArray[np.bool_]) -> Float:
        assert metric.by_bin is not None
        found = np.empty(len(swapped))
        for k, swap in enumerate(swapped):
            one = bin_rows(np.where(swap, c2, c1), np.where(swap, a2, a1), rows.weights)
            two = bin_rows(np.where(swap, c1, c2), np.where(swap, a1, a2), rows.weights)
            found[k] = metric.by_bin(one) - metric.by_bin(two)
        return found

    return gap


def _of_means(columns: list[Float], rows: Rows) -> Gap:
    first, second = columns
    with np.errstate(invalid="ignore"):  # an infinite log-loss
        apart = rows.w * (first - second) / rows.total_weight
    apart = np.where(np.isfinite(apart), apart, np.nan)

    def gap(swapped: NDArray[np.bool_]) -> Float:
        found: Float = np.where(swapped, -apart, apart).sum(axis=1)
        return found

    return gap
