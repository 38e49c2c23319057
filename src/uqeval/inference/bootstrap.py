"""Bootstrap: rows (or clusters) stay in place and only their multiplicities change, so nothing is sorted twice.

Not the default anywhere: percentile intervals of ranking metrics cover too little when errors are few (see the
simulations behind `estimate`). Resampling is unstratified; resamples that leave a metric undefined are NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int, Progress
from uqeval._errors import InputError
from uqeval.inference.paired import joint_of_samples
from uqeval.inference.sample import Sample
from uqeval.kernels.pairs import draw_units
from uqeval.metrics.calibration import bin_rows, debiased_l1, l1

__all__ = ["check_resamples", "percentile", "resample_ece", "resample_means", "resample_samples"]

_CELLS = 1 << 22  # draws held at a time
_PAIRS = ("uq_c_index", "somers_phi", "somers_varphi", "kendall_phi", "kendall_varphi")


def check_resamples(resamples: Any) -> int:
    """A whole number ≥ 1."""
    if not isinstance(resamples, int | np.integer) or isinstance(resamples, bool) or resamples < 1:
        raise InputError(f"`resamples` must be a whole number ≥ 1; it is {resamples!r}.")
    return int(resamples)


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


def _units(n: int, clusters: Int | None, keys: list[NDArray[Any]]) -> tuple[Int, int]:
    """Unit of each row. Rows are numbered by their content, so that the draws do not depend on the order of rows."""
    if clusters is not None:
        return clusters, int(clusters.max()) + 1
    unit = np.empty(n, dtype=np.int64)
    unit[np.lexsort(keys[::-1])] = np.arange(n)  # by the first key first: the kernel then reads in order
    return unit, n


def resample_samples(
    metric: str, samples: list[Sample], resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) values of a ranking metric; the same draws for every sample."""
    first = samples[0]
    keys = [key for s in samples for key in (s.score, s.loss)] + ([] if first.weights is None else [first.weights])
    unit, units = _units(first.n, first.clusters, keys)
    values = np.full((len(samples), resamples), np.nan)
    threads = kernels.cores()
    if first.clusters is None and first.weights is None:
        # Put rows in the order of their numbers: then a draw is a row.
        order = np.argsort(unit)
        samples = [Sample(s.score[order], s.target[order]) for s in samples]
        unit = np.arange(units)
    for part, seeds in _streams(units, resamples, rng, progress):
        for k, sample in enumerate(samples):
            if sample.weights is not None:
                values[k, part] = [_weighted(metric, sample, unit, units, seed) for seed in seeds]
            elif metric in _PAIRS:
                totals = kernels.bootstrap_totals(sample.score, sample.loss, unit, units, seeds, threads)
                values[k, part] = _from_pairs(metric, totals)
            else:
                values[k, part] = _from_areas(metric, sample, unit, units, seeds, threads)
    return values


def _from_pairs(metric: str, totals: Int) -> Float:
    credit2, in_loss, in_score = (totals[:, k].astype(np.float64) for k in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "uq_c_index":
            return credit2 / (2 * in_loss)
        sign = credit2 - in_loss
        return sign / in_loss if metric.startswith("somers") else sign / np.sqrt(in_loss * in_score)


def _from_areas(metric: str, sample: Sample, unit: Int, units: int, seeds: NDArray[np.uint64], threads: int) -> Float:
    loss = sample.loss
    with_aurc = metric not in ("uq_auc", "h_auc", "augrc", "g_auc")
    sums = kernels.bootstrap_areas(sample.score, loss, unit, units, seeds, with_aurc, threads)
    size, bad, pairs2, accepted2, aurc = sums.T
    good = size - bad
    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "uq_auc":
            return pairs2 / (2 * bad * good)
        if metric == "h_auc":
            return pairs2 / (2 * size * size)
        if metric in ("augrc", "g_auc"):
            return accepted2 / (size * size) * (1.0 if metric == "g_auc" else 0.5)
        if metric in ("aurc", "auarc"):
            return aurc if metric == "aurc" else 1 - aurc
        best = kernels.bootstrap_areas(loss, loss, unit, units, seeds, True, threads)[:, 4]
        if metric == "e_aurc":
            return aurc - best
        rate = bad / size
        alike = rate - best <= 1e-9 * rate  # all losses of the resample are equal, but for rounding
        ratio = np.where(alike, np.nan, (aurc - best) / (rate - best))
        return ratio if metric == "naurc" else 1 - ratio


def _weighted(metric: str, sample: Sample, unit: Int, units: int, seed: np.uint64) -> float:
    """One resample with sampling weights: rows really repeated, since for AURC two copies are not a weight of 2."""
    rows = np.repeat(np.arange(sample.n), draw_units(seed, units)[unit])
    part = Sample(sample.score[rows], sample.target[rows], sample.w[rows])
    return float(joint_of_samples(metric, [part]).values[0]) if len(rows) > 1 else float("nan")


def _times(seeds: NDArray[np.uint64], unit: Int, units: int, weights: Float | None) -> Float:
    """(resamples, n) weight of each row in each resample."""
    times = np.stack([draw_units(seed, units)[unit] for seed in seeds]).astype(np.float64)
    return times if weights is None else times * weights


def resample_means(
    rows: Float, sample: Sample, resamples: int, rng: np.random.Generator, progress: Progress | None = None
) -> Float:
    """(K, resamples) means of K rows of per-row losses."""
    unit, units = _units(sample.n, sample.clusters, [*rows, *([] if sample.weights is None else [sample.weights])])
    values = np.empty((len(rows), resamples))
    infinite = np.isinf(rows)
    finite = np.where(infinite, 0.0, rows)
    for part, seeds in _streams(units, resamples, rng, progress):
        times = _times(seeds, unit, units, sample.weights)
        values[:, part] = (times @ finite.T / times.sum(axis=1, keepdims=True)).T
        if infinite.any():
            values[:, part][(times @ infinite.T.astype(np.float64)).T > 0] = np.inf
    return values


def resample_ece(
    metric: str,
    confidence: list[Float],
    correct: list[Float],
    sample: Sample,
    resamples: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Float:
    """(K, resamples) of ECE with 15 bins of equal width."""
    keys = [*confidence, *correct, *([] if sample.weights is None else [sample.weights])]
    unit, units = _units(sample.n, sample.clusters, keys)
    values = np.empty((len(confidence), resamples))
    for part, seeds in _streams(units, resamples, rng, progress):
        for at, seed in enumerate(seeds, start=part.start):
            rows = np.repeat(np.arange(sample.n), draw_units(seed, units)[unit])
            w = None if sample.weights is None else sample.weights[rows]
            for k, (c, a) in enumerate(zip(confidence, correct, strict=True)):
                bins = bin_rows(c[rows], a[rows], w)
                values[k, at] = l1(bins) if metric == "ece" else debiased_l1(bins)
    return values
