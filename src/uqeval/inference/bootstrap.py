"""Bootstrap: rows (or clusters) stay in place and only their multiplicities change, so nothing is sorted twice.

Not the default anywhere: percentile intervals of ranking metrics cover too little when errors are few (see the
simulations behind `estimate`). Resampling is unstratified; resamples that leave a metric undefined are NaN.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int, Progress
from uqeval._errors import InputError
from uqeval.inference.joint import joint_of_samples
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.kernels import draw_units
from uqeval.metrics.areas import Accepted, Areas
from uqeval.metrics.calibration import bin_rows
from uqeval.metrics.registry import Metric

_CELLS = 1 << 22  # draws held at a time


def check_resamples(resamples: Any) -> int:
    """A whole number ≥ 1."""
    if not isinstance(resamples, int | np.integer) or isinstance(resamples, bool) or resamples < 1:
        raise InputError(f"`resamples` must be a whole number ≥ 1; it is {resamples!r}.")
    return int(resamples)


def refuse_largest(largest_cluster: Any, method: str) -> None:
    """A bootstrap draws the clusters that there are."""
    if largest_cluster is not None and method == "bootstrap":
        raise InputError('method="bootstrap" draws the clusters that there are: leave `largest_cluster` out.')


def percentile(values: Float, level: float) -> tuple[float, float, int]:
    """Low, high, and how many resamples were undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0:
        return float("nan"), float("nan"), len(values)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high), len(values) - len(defined)


def _streams(
    units: int, resamples: int, rng: np.random.Generator, progress: Progress | None
) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """A seed for each resample, some resamples at a time."""
    seeds = rng.integers(0, 2**64, size=resamples, dtype=np.uint64)
    chunk = max(1, min(_CELLS // max(units, 1), -(-resamples // 20) if progress else resamples))
    for at in range(0, resamples, chunk):
        part = slice(at, min(at + chunk, resamples))
        yield part, seeds[part]
        if progress is not None:
            progress("resampling", part.stop, resamples)


def row_units(rows: Rows, keys: list[NDArray[Any]]) -> tuple[Int, int]:
    """Unit of each row. Rows are numbered by their content, so that the draws do not depend on the order of rows."""
    if rows.clusters is not None:
        return rows.clusters, int(rows.clusters.max()) + 1
    unit = np.empty(rows.n, dtype=np.int64)
    unit[np.lexsort(keys[::-1])] = np.arange(rows.n)  # by the first key first: the kernel then reads in order
    return unit, rows.n


def resample_samples(
    metric: Metric, samples: list[Sample], resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) values of a ranking metric; the same draws for every sample."""
    first = samples[0].rows
    keys = [key for s in samples for key in (s.score, s.loss)] + ([] if first.weights is None else [first.weights])
    unit, units = row_units(first, keys)
    values = np.full((len(samples), resamples), np.nan)
    threads = kernels.threads()
    repeated = first.weights is not None or metric.tally == "late area" or isinstance(metric.formula, Accepted)
    if first.plain:
        # Put rows in the order of their numbers: then a draw is a row.
        order = np.argsort(unit)
        samples = [Sample.of(s.score[order], s.target[order]) for s in samples]
        unit = np.arange(units)
    for part, seeds in _streams(units, resamples, rng, progress):
        for k, sample in enumerate(samples):
            if repeated:
                values[k, part] = [_repeated(metric, sample, unit, units, seed) for seed in seeds]
            elif metric.tally in ("pairs", "tau"):
                totals = kernels.bootstrap_totals(sample.score, sample.loss, unit, units, seeds, threads)
                values[k, part] = _from_pairs(metric, totals)
            else:
                values[k, part] = _from_areas(metric, sample, unit, units, seeds, threads)
    a, b = metric.affine
    return values if repeated else a + b * values


def _from_pairs(metric: Metric, totals: Int) -> Float:
    credit2, in_loss, in_score = (totals[:, k].astype(np.float64) for k in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric.tally == "pairs":
            return credit2 / (2 * in_loss)
        return ((credit2 - in_loss) / np.sqrt(in_loss * in_score) + 1) / 2


def _from_areas(
    metric: Metric, sample: Sample, unit: Int, units: int, seeds: NDArray[np.uint64], threads: int
) -> Float:
    def sums(score: Float, with_aurc: bool) -> Float:
        return kernels.bootstrap_areas(score, sample.loss, unit, units, seeds, with_aurc, threads).T

    assert not isinstance(metric.formula, Accepted)
    slopes = None if metric.formula is None else metric.formula.slopes(Areas(0.0, 0.0, 1.0, 0.0, 0.0))
    walked = slopes is not None and bool(slopes.aurc or slopes.excess)
    size, bad, pairs2, accepted2, aurc = sums(sample.score, walked)
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric.formula is None:
            return pairs2 / (2 * bad * (size - bad))
        excess = span = aurc
        if slopes is not None and slopes.excess:
            best, rate = sums(sample.loss, True)[4], bad / size
            excess = aurc - best
            span = np.where(rate - best <= 1e-9 * rate, 0.0, rate - best)  # all losses are equal, but for rounding
        areas = Areas(aurc, excess, span, accepted2 / (2 * size * size), pairs2 / (2 * size * size))
        return metric.formula.value(areas)


def _repeated(metric: Metric, sample: Sample, unit: Int, units: int, seed: np.uint64) -> float:
    """One resample of rows that are really repeated, since for AURC two copies are not a weight of 2."""
    rows = np.repeat(np.arange(sample.n), draw_units(seed, units)[unit])
    weights = None if sample.rows.weights is None else sample.rows.weights[rows]
    part = Sample.of(sample.score[rows], sample.target[rows], weights)
    return float(joint_of_samples(metric, [part]).values[0]) if len(rows) > 1 else float("nan")


def _times(seeds: NDArray[np.uint64], unit: Int, units: int, weights: Float | None) -> Float:
    """(resamples, n) weight of each row in each resample."""
    times = np.stack([draw_units(seed, units)[unit] for seed in seeds]).astype(np.float64)
    return times if weights is None else times * weights


def resample_means(
    values: Float, rows: Rows, resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) means of K rows of per-row numbers."""
    unit, units = row_units(rows, [*values, *([] if rows.weights is None else [rows.weights])])
    drawn = np.empty((len(values), resamples))
    infinite = np.isinf(values)
    finite = np.where(infinite, 0.0, values)
    for part, seeds in _streams(units, resamples, rng, progress):
        times = _times(seeds, unit, units, rows.weights)
        drawn[:, part] = (times @ finite.T / times.sum(axis=1, keepdims=True)).T
        if infinite.any():
            drawn[:, part][(times @ infinite.T.astype(np.float64)).T > 0] = np.inf
    return drawn


def resample_ece(
    metric: Metric, given: list[Confidences], resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) of ECE with 15 bins of equal width."""
    assert metric.by_bin is not None
    rows, sides = given[0].rows, [x for side in ("confidence", "correct") for x in (getattr(g, side) for g in given)]
    unit, units = row_units(rows, [*sides, *([] if rows.weights is None else [rows.weights])])
    drawn = np.empty((len(given), resamples))
    for part, seeds in _streams(units, resamples, rng, progress):
        for at, seed in enumerate(seeds, start=part.start):
            taken = np.repeat(np.arange(rows.n), draw_units(seed, units)[unit])
            w = None if rows.weights is None else rows.weights[taken]
            for k, one in enumerate(given):
                drawn[k, at] = metric.by_bin(bin_rows(one.confidence[taken], one.correct[taken], w))
    return drawn
