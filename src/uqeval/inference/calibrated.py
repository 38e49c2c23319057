"""Is perfect calibration rejected? Labels are drawn from the confidences, and compared with those observed.

With clusters labels are not independent, and cannot be drawn: there the gaps of the bins are compared with how much
they vary from cluster to cluster.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.inference.tally import Cells, EceTally
from uqeval.metrics.calibration import Bins, squared_l2

_REPETITIONS = 999
_CELLS_AT_ONCE = 1 << 22
_NORMAL = 400.0  # variance of the hits in a bin from which on they are normal: a skewness below 0.05
_LEAST_CLUSTERS = 1.5  # of equal weight in a bin: fewer tell nothing of how its gap varies
_ROUNDING = 1e-13  # labels that are drawn as they were observed give the same number, but for that


def miscalibrated(tally: EceTally, cells: Cells, alpha: float, rng: np.random.Generator) -> bool:
    """Consistency resampling: labels drawn from the confidences; does the debiased L2² exceed what they give?"""
    bins = tally.bins
    observed = float(squared_l2(bins.share, bins.gap, bins.variance)) - _ROUNDING
    exceeded = done = 0
    single = cells.powers is None and bool((cells.size == 1).all())
    chunk = max(1, _CELLS_AT_ONCE // len(cells.mean))
    while done < _REPETITIONS:
        count = min(chunk, _REPETITIONS - done)
        if single:
            uniform = rng.random((count, len(cells.mean)))
            exceeded += _exceeding(uniform, cells.mean, cells.weight, cells.of_bin, bins.share, observed, alpha)
        else:
            gap, variance = _drawn(cells, count, rng)
            exceeded += int((((gap * gap - variance) * bins.share).sum(axis=1) >= observed).sum())
        done += count
        if (1 + exceeded) / (1 + _REPETITIONS) > alpha:
            return False  # no further draw can bring it below alpha
    return True


def miscalibrated_clusters(tally: EceTally, alpha: float) -> bool:
    """Are the gaps of the bins, Σ p·gap², more than their covariance over clusters gives? F after Box (1954).

    Few errors in few clusters show too small a variance, most of all where wrong clusters are large: each bin gets one
    made-up cluster against its gap, all wrong (or all right) and of the size that a row's cluster has there.
    """
    from scipy.special import fdtrc

    assert tally.by_cluster is not None
    assert tally.sizes.clusters is not None
    bins, (_, shares2, confidence) = tally.bins, tally.by_cluster
    share = np.asarray(bins.share)
    made_up = shares2 / share * np.where(bins.gap > 0, confidence, 1 - confidence)
    covariance = _gap_products(tally)
    covariance[np.diag_indices_from(covariance)] += made_up**2
    covariance /= np.sqrt(np.outer(share, share))
    trace, squares = float(np.trace(covariance)), float((covariance**2).sum())
    if trace == 0:
        return False
    df = trace**2 / squares
    statistic = float((share * bins.gap**2).sum()) / trace
    return bool(fdtrc(df, (tally.sizes.clusters.all - 1) * df, statistic) <= alpha)


def cluster_bins(tally: EceTally) -> Bins:
    """The bins with the variance of their gaps between clusters, where it is the larger one."""
    variance = np.diag(_gap_products(tally)) / tally.bins.share**2
    return tally.bins._replace(variance=np.maximum(tally.bins.variance, variance))


def upper_se(tally: EceTally, se: float) -> float:
    """For the upper end: with half a made-up cluster, all wrong, of the size that a row's cluster has in its bin.

    Few clusters without an error say little of how much one would add.
    """
    assert tally.by_cluster is not None
    _, shares2, confidence = tally.by_cluster
    return math.hypot(se, float((shares2 * confidence).sum()) / 2)


def _gap_products(tally: EceTally) -> Float:
    """Covariance of share·gap; each bin by k/(k − 1), k its clusters of equal weight (by 0 where hardly two)."""
    assert tally.by_cluster is not None
    products, shares2, _ = tally.by_cluster
    size = tally.bins.share**2 / shares2
    factor = np.where(size > _LEAST_CLUSTERS, size / np.maximum(size - 1, 1e-12), 0.0)
    root = np.sqrt(factor)
    return products * np.outer(root, root)


def miscalibrated_parts(
    bins: Bins, confidence: Float, row_bin: Int, start: Int, which: Int, alpha: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """The same of some parts of the rows, which hold few rows each: part k those from start[k] to start[k + 1].

    Rows come part by part, bin by bin. All parts draw from the stream that one of them would have for itself.
    """
    found = np.zeros(len(start) - 1, dtype=np.bool_)
    observed = squared_l2(bins.share, bins.gap, bins.variance) - _ROUNDING
    size = np.diff(start)
    stream = rng.random(_REPETITIONS * int(size[which].max(initial=0)))
    ones = np.ones(int(size.max(initial=0)))

    def work(some: Int) -> None:
        for k in some.tolist():
            rows, n = slice(start[k], start[k + 1]), int(size[k])
            uniform, share = stream[: _REPETITIONS * n].reshape(_REPETITIONS, n), bins.share[k]
            exceeded = _exceeding(
                uniform, confidence[rows], ones[:n], row_bin[rows], share[share > 0], observed[k], alpha
            )
            found[k] = (1 + exceeded) / (1 + _REPETITIONS) <= alpha

    kernels.side_by_side([partial(work, some) for some in np.array_split(which, 2 * kernels.threads())])
    return found


def _exceeding(
    uniform: Float, mean: Float, weight: Float, of_bin: Int, share: Float, observed: float, alpha: float
) -> int:
    first = np.flatnonzero(np.diff(of_bin, prepend=-1))  # rows come bin by bin
    most = int(alpha * (1 + _REPETITIONS)) + 1
    return kernels.exceeding(uniform, mean, weight, first, share, observed, most)


# ---- many rows --------------------------------------------------------------------------------------------------


def _drawn(cells: Cells, count: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """(count, bins) gaps and variances of the gaps when labels follow the confidences."""
    first = np.flatnonzero(np.diff(cells.of_bin, prepend=-1))  # cells come bin by bin

    def by_bin(x: Float) -> Float:
        return np.add.reduceat(x, first, axis=-1)

    spread = cells.mean * (1 - cells.mean)
    powers = np.stack([cells.size * cells.weight**k for k in (2, 3, 4)]) if cells.powers is None else cells.powers
    sums = _drawn_bins(cells.mean, spread, powers, by_bin, count, rng)
    # Rows of equal weight have binomial hits: drawn cell by cell where they are too few for a normal one.
    if cells.powers is None and (few := by_bin(cells.size * spread) < _NORMAL).any():
        inside = np.repeat(few, np.diff(first, append=len(spread)))
        own = Cells(cells.size[inside], cells.mean[inside], cells.weight[inside], cells.of_bin[inside])
        starts = np.flatnonzero(np.diff(own.of_bin, prepend=-1))
        for total, drawn in zip(sums, _drawn_cells(own, count, rng), strict=True):
            total[:, few] = np.add.reduceat(drawn, starts, axis=-1)
    gaps, squared_gaps, squares = sums
    total, total2, rows = by_bin(cells.size * cells.weight), by_bin(powers[0]), by_bin(cells.size.astype(np.float64))
    gap = gaps / total
    size = total**2 / total2
    factor = np.where(rows > 1, size / np.maximum(size - 1, 1e-12), 0.0)
    return gap, np.maximum(squares - 2 * gap * squared_gaps + gap**2 * total2, 0.0) / total**2 * factor


def _drawn_cells(cells: Cells, count: int, rng: np.random.Generator) -> tuple[Float, Float, Float]:
    """Σ w·(hit − p), Σ w²·(hit − p) and Σ w²·(hit − p)² of each cell."""
    hits = rng.binomial(cells.size, cells.mean, size=(count, len(cells.mean))).astype(np.float64)
    w, w2 = cells.weight, cells.weight**2
    diff = hits - cells.size * cells.mean
    squares = hits * (1 - cells.mean) ** 2 + (cells.size - hits) * cells.mean**2
    return diff * w, diff * w2, squares * w2


def _drawn_bins(
    mean: Float, spread: Float, powers: Float, by_bin: Callable[[Float], Float], count: int, rng: np.random.Generator
) -> tuple[Float, Float, Float]:
    """The same of each bin, normal with their variances and covariances.

    (hit − p)² = p(1 − p) + (1 − 2p)(hit − p), so that three sums of hit − p do: with factors w, w², w²(1 − 2p).
    """
    two, three, four = powers * spread
    tilt = 1 - 2 * mean
    a, b, d = by_bin(two), by_bin(three), by_bin(four)
    c, e, f = by_bin(three * tilt), by_bin(four * tilt), by_bin(four * tilt * tilt)
    # Cholesky, where a variance may be 0.
    first, second, third = rng.standard_normal((3, count, len(a)))
    root = np.sqrt(a)
    low1, low2 = (np.divide(x, root, out=np.zeros_like(x), where=root > 0) for x in (b, c))
    rest = np.sqrt(np.maximum(d - low1 * low1, 0.0))
    low3 = np.divide(e - low1 * low2, rest, out=np.zeros_like(e), where=rest > 1e-7 * np.sqrt(d))
    last = np.sqrt(np.maximum(f - low2 * low2 - low3 * low3, 0.0))
    squares = by_bin(two) + low2 * first + low3 * second + last * third
    return root * first, low1 * first + rest * second, squares
