"""Tally → estimate, the only place: value, standard error and interval of every metric, one function for each kind.

The interval of each metric was chosen by simulation of how often it holds (`docs/theory/intervals.md`).
UQ-AUC of independent rows: DeLong with Welch–Satterthwaite degrees of freedom on the logit scale. Other pairs, weights
and clusters: the delete-one jackknife of rows or clusters. Where those break down (a single error, a perfect ranking):
Wilson with the effective number of pairs. Areas: the number of errors rules; with 10 or more, t with (errors − 1)
degrees of freedom on the logit or log scale; with fewer, the gamma interval, which works down to no error at all.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval.inference.forms import (
    NAN,
    UNKNOWN,
    Interval,
    clopper_pearson,
    fay_feuer,
    log_t,
    logit_t,
    settled,
    t_interval,
    t_quantile,
    wilson,
    z_quantile,
)
from uqeval.inference.result import Estimate
from uqeval.inference.tally import AreaTally, AucTally, Cells, EceTally, MeanTally, PairTally, Sizes
from uqeval.metrics.areas import Accepted
from uqeval.metrics.calibration import debiased_l1, squared_l2
from uqeval.metrics.registry import Metric

_FEW = 10
_REPETITIONS = 999
_CELLS_AT_ONCE = 1 << 22


def estimate_ranking(metric: Metric, tally: AucTally | PairTally | AreaTally, level: float) -> Estimate:
    """A metric that ranks rows."""
    if isinstance(tally, AucTally):
        found = _auc(metric, tally, level)
    elif isinstance(tally, PairTally):
        found = _pairs(metric, tally, level)
    else:
        found = {"gamma": _area, "log": _excess, "binomial": _accepted}[metric.interval](metric, tally, level)
    if metric.affine == (0.0, 1.0):
        return found
    a, b = metric.affine
    low, high = (a + b * found.low, a + b * found.high)[:: 1 if b > 0 else -1]
    return replace(found, value=tally.mapped(metric.affine), low=low, high=high, se=abs(b) * found.se)


# ---- what all share ---------------------------------------------------------------------------------------------


def _limits(sizes: Sizes) -> tuple[str, ...]:
    """What limits an estimate from these rows."""
    notes = []
    if sizes.binary:
        for rows, what in ((sizes.wrong.rows, "errors"), (sizes.right.rows, "right rows")):
            if rows < _FEW:
                notes.append(f"few {what} ({rows}): the interval is wide and conservative")
        if sizes.weighted and sizes.wrong.rows >= _FEW and (size := sizes.wrong.size) < 20:
            notes.append(f"the errors weigh as few as {size:.0f} rows: the interval may be too narrow")
    if sizes.clusters is not None and sizes.clusters.all == 1:
        notes.append("a single cluster: no standard error or interval")
    elif sizes.clusters is not None and sizes.clusters.all < _FEW:
        notes.append(f"few clusters ({sizes.clusters.all}): the interval is unreliable")
    return tuple(notes)


def _estimate(sizes: Sizes, level: float, n_eff: float, value: float, **found: Any) -> Estimate:
    interval = found.pop("interval", UNKNOWN)
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        level=level,
        n=sizes.rows,
        n_errors=sizes.wrong.rows if sizes.binary else None,
        n_clusters=None if sizes.clusters is None else sizes.clusters.all,
        n_eff=n_eff,
        degenerate=math.isnan(value) or found.pop("degenerate", False),
        warnings=(*found.pop("first", ()), *_limits(sizes), *found.pop("notes", ())),
        **found,
    )


def _undefined(metric: Metric, sizes: Sizes, level: float, n_eff: float, reason: str) -> Estimate:
    result = _estimate(sizes, level, n_eff, NAN, se=NAN, method="undefined")
    notes = (note for note in result.warnings if not note.startswith("few "))  # the reason says it all
    return replace(result, warnings=(f"{metric.title} is undefined: {reason}", *notes))


def _single(sizes: Sizes) -> bool:
    return sizes.clusters is not None and sizes.clusters.all == 1


def _constant(sizes: Sizes, level: float, n_eff: float) -> Estimate:
    se, interval = (NAN, UNKNOWN) if _single(sizes) else (0.0, Interval(0.5, 0.5))
    first = ("the score is constant",)
    return _estimate(
        sizes, level, n_eff, 0.5, se=se, interval=interval, method="constant score", degenerate=True, first=first
    )


# ---- pairs ------------------------------------------------------------------------------------------------------


def _auc(metric: Metric, tally: AucTally, level: float) -> Estimate:
    sizes = tally.sizes
    wrong, right = sizes.wrong.rows, sizes.right.rows
    if not wrong or not right:
        return _undefined(metric, sizes, level, 0.0, f"the test set has no {'right' if wrong else 'wrong'} prediction")
    of_right, of_wrong = sizes.sides
    n_eff = of_right * of_wrong / (of_right + of_wrong)
    if tally.constant:
        return _constant(sizes, level, n_eff)
    if tally.left is not None:
        df = sizes.units - 1 if sizes.clusters is not None else min(of_right, of_wrong) - 1
        return _jackknifed(metric, tally, level, n_eff, df)
    value, total = tally.value, int(tally.credit2)
    if wrong == 1 or right == 1:
        return _estimate(sizes, level, n_eff, value, se=NAN, interval=wilson(value, n_eff, level), method="Wilson")
    # DeLong's two terms, exact integers up to the last division.
    right_part = (right * tally.right_squares - total**2) / (4 * wrong**2 * right**2 * (right - 1))
    wrong_part = (wrong * tally.wrong_squares - total**2) / (4 * right**2 * wrong**2 * (wrong - 1))
    variance = right_part + wrong_part
    se = math.sqrt(variance)
    if value in (0.0, 1.0) or se == 0:
        return _estimate(sizes, level, n_eff, value, se=se, interval=wilson(value, n_eff, level), method="Wilson")
    df = variance**2 / (right_part**2 / (right - 1) + wrong_part**2 / (wrong - 1))
    interval = logit_t(value, se, level, df)
    return _estimate(sizes, level, n_eff, value, se=se, interval=interval, method="logit DeLong, Welch t")


def _pairs(metric: Metric, tally: PairTally, level: float) -> Estimate:
    sizes = tally.sizes
    if tally.comparable == 0 or math.isnan(tally.value):
        return _undefined(metric, sizes, level, 0.0, metric.undefined)
    n_eff = sizes.units * tally.comparable / sizes.total.weight**2 / 2
    if tally.constant:
        return _constant(sizes, level, n_eff)
    return _jackknifed(metric, tally, level, n_eff, sizes.units - 1)


def _jackknifed(metric: Metric, tally: AucTally | PairTally, level: float, n_eff: float, df: float) -> Estimate:
    """The regular interval, or Wilson where there is no standard error to speak of."""
    sizes, value, left = tally.sizes, tally.value, tally.left
    assert left is not None
    method = f"{metric.interval} {'cluster ' if sizes.clusters is not None else ''}jackknife t"
    if _single(sizes):
        return _estimate(sizes, level, n_eff, value, se=NAN, method=method)
    se = settled(math.sqrt((left.units - 1) / left.units * left.squares))
    if value in (0.0, 1.0) or se == 0 or (math.isnan(se) and sizes.clusters is None):
        return _estimate(sizes, level, n_eff, value, se=se, interval=wilson(value, n_eff, level), method="Wilson")
    if math.isnan(se):
        first = ("without one cluster the metric is undefined: no interval",)
        return _estimate(sizes, level, n_eff, value, se=se, method=method, first=first)
    return _estimate(sizes, level, n_eff, value, se=se, interval=logit_t(value, se, level, df), method=method)


# ---- areas ------------------------------------------------------------------------------------------------------


def _area_se(tally: AreaTally) -> float:
    """From squared influences, those of wrong rows inflated by errors/(errors − 1)."""
    sizes = tally.sizes
    if tally.clusters2 is not None:
        return _cluster_se(tally.clusters2, sizes)
    if sizes.rows < 2:
        return NAN
    factor = sizes.rows / (sizes.rows - 1)
    inflate = sizes.errors / (sizes.errors - 1) if sizes.errors > 1 else factor
    return settled(math.sqrt(tally.right2 * factor + tally.wrong2 * inflate))


def _cluster_se(squares: float, sizes: Sizes, scale: float = 1.0) -> float:
    count = 0 if sizes.clusters is None else sizes.clusters.all
    return settled(math.sqrt(squares * count / (count - 1)), scale) if count > 1 else NAN


def _area_estimate(tally: AreaTally, level: float, **found: Any) -> Estimate:
    sizes, notes = tally.sizes, tuple[str, ...]()
    if sizes.clusters is not None and sizes.wrong.rows and sizes.clusters.wrong < 20 and sizes.clusters.all >= _FEW:
        notes = (f"the errors sit in {sizes.clusters.wrong} clusters: the interval may be too narrow",)
    return _estimate(sizes, level, sizes.errors, tally.value, notes=notes, **found)


def _cap(metric: Metric) -> float:
    """The largest value of what the tally estimates."""
    a, b = metric.affine
    return (metric.range[1 if b > 0 else 0] - a) / b


def _area(metric: Metric, tally: AreaTally, level: float) -> Estimate:
    """AURC and AUGRC."""
    sizes, value, cap = tally.sizes, tally.value, _cap(metric)
    se = _area_se(tally) if sizes.wrong.rows else 0.0
    if _single(sizes):
        return _area_estimate(tally, level, se=NAN, method="none")
    if sizes.errors < _FEW if sizes.clusters is None else sizes.wrong.rows == 0:
        interval = fay_feuer(value, tally.contributions2, tally.largest, level, cap)
        return _area_estimate(tally, level, se=se, interval=interval, method="gamma (Fay & Feuer)")
    if value >= cap or not se > 0:  # every row wrong
        return _area_estimate(tally, level, se=se, method="none")
    df = (sizes.errors if sizes.clusters is None else sizes.units) - 1
    low, high = logit_t(value, se, level, df)
    return _area_estimate(tally, level, se=se, interval=Interval(low, min(cap, high)), method="logit influence t")


def _excess(metric: Metric, tally: AreaTally, level: float) -> Estimate:
    """E-AURC, H-AUC and nAURC: log scale."""
    sizes, value = tally.sizes, tally.value
    if math.isnan(value):
        return _undefined(metric, sizes, level, sizes.errors, metric.undefined)
    if not sizes.wrong.rows or (sizes.binary and not sizes.right.rows):
        return _area_estimate(tally, level, se=NAN, method="none")
    se = _area_se(tally)
    if sizes.errors < 2 or value <= 0 or _single(sizes) or not se > 0:
        return _area_estimate(tally, level, se=NAN if sizes.errors < 2 else se, method="none")
    df = (sizes.errors if sizes.clusters is None else sizes.units) - 1
    interval = log_t(value, se, level, df, _cap(metric))
    return _area_estimate(tally, level, se=se, interval=interval, method="log influence t")


def _accepted(metric: Metric, tally: AreaTally, level: float) -> Estimate:
    """Risk of the surest share: Clopper–Pearson with as many rows as would have this variance (Korn & Graubard 1998).

    The variance has a part of the cut, which moves with the rows. That of the accepted rows is taken half an error
    higher, so that it does not vanish where none is wrong.
    """
    assert isinstance(metric.formula, Accepted)
    sizes, value = tally.sizes, tally.value
    if _single(sizes):
        return _area_estimate(tally, level, se=NAN, method="none")
    if tally.clusters2 is not None:
        se = _cluster_se(tally.clusters2, sizes)
    else:
        se = settled(math.sqrt((tally.right2 + tally.wrong2) * sizes.rows / (sizes.rows - 1)))
    trials = metric.formula.coverage * sizes.units
    smooth = (value * trials + 0.5) / (trials + 1)
    variance = se * se + (smooth * (1 - smooth) - value * (1 - value)) / trials
    size = smooth * (1 - smooth) / max(variance, 1e-12)  # 0 where all losses are ½
    if not sizes.plain:
        size *= (z_quantile(level) / t_quantile(level, sizes.units - 1)) ** 2
    interval = clopper_pearson(value * size, size, level)
    return _area_estimate(tally, level, se=se, interval=interval, method="Clopper–Pearson, effective rows")


# ---- the model itself -------------------------------------------------------------------------------------------


def _mean_estimate(sizes: Sizes, level: float, value: float, **found: Any) -> Estimate:
    notes = list(found.pop("notes", ()))
    interval: Interval = found.get("interval", UNKNOWN)
    if found["se"] == 0 and not _single(sizes) and interval.low == interval.high:
        notes.append("all rows are alike: an interval without width")
    return _estimate(sizes, level, sizes.units, value, first=tuple(notes), **found)


def _mean_se(tally: MeanTally | EceTally, scale: float = 1.0) -> float:
    if tally.clusters2 is not None:
        return _cluster_se(tally.clusters2, tally.sizes, scale)
    rows = tally.sizes.rows
    return settled(math.sqrt(tally.squares * rows / (rows - 1)), scale)


def estimate_mean(metric: Metric, tally: MeanTally, level: float) -> Estimate:
    """A mean over rows: t inside the metric's range; for a share Clopper–Pearson, or logit where rows are not plain."""
    sizes, value = tally.sizes, tally.value
    if tally.infinite:
        notes = (f"{tally.infinite} labels have probability 0: the log-loss is infinite",)
        return _mean_estimate(sizes, level, value, se=NAN, method="none", notes=notes)
    share = metric.interval == "binomial"
    se = _mean_se(tally, 1.0 if share else abs(value))
    if share and sizes.plain:
        interval = clopper_pearson(round(value * sizes.rows), sizes.rows, level)
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="Clopper–Pearson")
    if math.isnan(se):
        return _mean_estimate(sizes, level, value, se=NAN, method="none")
    if not share:
        low, high = t_interval(value, se, level, sizes.units - 1)
        interval = Interval(max(metric.range[0], low), min(metric.range[1], high))
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="t")
    if se == 0 or not 0 < value < 1:
        interval = clopper_pearson(value * sizes.units, sizes.units, level)
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="Clopper–Pearson")
    interval = logit_t(value, se, level, sizes.units - 1)
    return _mean_estimate(sizes, level, value, se=se, interval=interval, method="logit influence t")


def estimate_ece(metric: Metric, tally: EceTally, level: float, rejected: Callable[[], bool]) -> Estimate:
    """ECE, plug-in or debiased; the interval of both is about the latter.

    The lower end is 0 unless a test of perfect calibration rejects (`miscalibrated`, asked where it is needed); with
    clusters no such test is at hand.
    """
    assert metric.by_bin is not None
    sizes, value = tally.sizes, metric.by_bin(tally.bins)
    se = _mean_se(tally)
    if math.isnan(se):
        return _mean_estimate(sizes, level, value, se=NAN, method="none")
    clustered, centre = sizes.clusters is not None, debiased_l1(tally.bins)
    half = (t_quantile(level, sizes.units - 1) if clustered else z_quantile(level)) * se
    low = max(0.0, centre - half)
    if low > 0 and (clustered or not rejected()):
        low = 0.0
    interval = Interval(low, min(1.0, centre + half))
    return _mean_estimate(sizes, level, value, se=se, interval=interval, method="debiased L1, influence")


def miscalibrated(tally: EceTally, cells: Cells, alpha: float, rng: np.random.Generator) -> bool:
    """Consistency resampling: labels drawn from the confidences; does the debiased L2² exceed what they give?"""
    bins = tally.bins
    observed = squared_l2(bins.share, bins.gap, bins.variance)
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


def _drawn(cells: Cells, count: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """(count, bins) gaps and variances of the gaps when labels follow the confidences."""
    first = np.flatnonzero(np.diff(cells.of_bin, prepend=-1))  # cells come bin by bin

    def by_bin(x: Float) -> Float:
        return np.add.reduceat(x, first, axis=-1)

    # Of each cell: Σ w·(hit − p), Σ w²·(hit − p) and Σ w²·(hit − p)².
    if cells.powers is None:
        gaps, squared_gaps, squares = _drawn_alike(cells, count, rng)
        total2 = by_bin(cells.size * cells.weight**2)
    else:
        gaps, squared_gaps, squares = _drawn_pooled(cells.mean, cells.powers, count, rng)
        total2 = by_bin(cells.powers[0])
    total = by_bin(cells.size * cells.weight)
    gap = by_bin(gaps) / total
    spread = by_bin(squares) - 2 * gap * by_bin(squared_gaps) + gap**2 * total2
    size = total**2 / total2
    rows = by_bin(cells.size.astype(np.float64))
    factor = np.where(rows > 1, size / np.maximum(size - 1, 1e-12), 0.0)
    return gap, np.maximum(spread, 0.0) / total**2 * factor


def _drawn_alike(cells: Cells, count: int, rng: np.random.Generator) -> tuple[Float, Float, Float]:
    """Rows of a cell weigh the same: the hits are binomial."""
    if (cells.size == 1).all():
        hits = (rng.random((count, len(cells.mean))) < cells.mean).astype(np.float64)
    else:
        hits = rng.binomial(cells.size, cells.mean, size=(count, len(cells.mean))).astype(np.float64)
    w, w2 = cells.weight, cells.weight**2
    diff = hits - cells.size * cells.mean
    squares = hits * (1 - cells.mean) ** 2 + (cells.size - hits) * cells.mean**2
    return diff * w, diff * w2, squares * w2


def _drawn_pooled(mean: Float, powers: Float, count: int, rng: np.random.Generator) -> tuple[Float, Float, Float]:
    """Rows of a cell differ in weight: the first two sums are normal, with their variances and covariance.

    (hit − p)² = p(1 − p) + (1 − 2p)(hit − p) gives the third.
    """
    two, three, four = powers
    variance = mean * (1 - mean)
    first, second = rng.standard_normal((2, count, len(mean)))
    gaps = np.sqrt(variance * two) * first
    slope = three / two
    squared_gaps = slope * gaps + np.sqrt(variance * np.maximum(four - slope * three, 0.0)) * second
    return gaps, squared_gaps, variance * two + (1 - 2 * mean) * squared_gaps
