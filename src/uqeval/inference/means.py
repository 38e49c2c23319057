"""Tally → estimate of the model's own metrics: accuracy, Brier score, log-loss and ECE."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from uqeval._lanes import Number, choose, isnan, larger, nearest_whole, smaller, sqrt
from uqeval.inference.calibrated import cluster_bins, miscalibrated_clusters, upper_se
from uqeval.inference.forms import (
    NAN,
    UNKNOWN,
    Interval,
    clopper_pearson,
    hull,
    logit_t,
    settled,
    t_interval,
    t_quantile,
    z_quantile,
)
from uqeval.inference.outcome import Found, as_estimate, cluster_se, single_cluster
from uqeval.inference.result import noted
from uqeval.inference.sizes import Sizes
from uqeval.inference.tally import EceTally, MeanTally
from uqeval.inference.unseen import ece_high, mean_high, share_ends
from uqeval.metrics.calibration import debiased_l1
from uqeval.metrics.registry import Metric


def _mean_estimate(sizes: Sizes, level: float, value: Number, **found: Any) -> Found:
    notes, interval = found.pop("notes", ()), found.get("interval", UNKNOWN)
    if not single_cluster(sizes):
        alike = (found["se"] == 0) & (interval.low == interval.high)
        notes += noted(alike & (sizes.rows > 0), "all rows are alike: an interval without width")
    return as_estimate(sizes, level, sizes.units, value, first=notes, **found)


def _mean_se(tally: MeanTally | EceTally, scale: Number = 1.0) -> Number:
    if tally.clusters2 is not None:
        return cluster_se(tally.clusters2, tally.sizes, scale)
    rows = tally.sizes.rows
    return settled(sqrt(tally.squares * rows / (rows - 1)), scale)


def estimate_mean(metric: Metric, tally: MeanTally, level: float) -> Found:
    """A mean over rows: t inside the metric's range; for a share Clopper–Pearson, or logit where rows are not plain."""
    return choose(tally.infinite > 0, lambda: _infinite(tally, level), lambda: _finite_mean(metric, tally, level))


def _infinite(tally: MeanTally, level: float) -> Found:
    notes = noted(tally.infinite > 0, "{} labels have probability 0: the log-loss is infinite", tally.infinite)
    return _mean_estimate(tally.sizes, level, tally.value, se=NAN, method="none", notes=notes)


def _finite_mean(metric: Metric, tally: MeanTally, level: float) -> Found:
    sizes, value = tally.sizes, tally.value
    share = metric.interval == "binomial"
    se = _mean_se(tally, 1.0 if share else abs(value))

    def of_share(hits: Number) -> Found:
        interval = clopper_pearson(hits, 1.0 * sizes.units, level)
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="Clopper–Pearson")

    def by_t() -> Found:
        low, high = t_interval(value, se, level, sizes.units - 1)
        high = larger(smaller(metric.range[1], high), mean_high(tally, se, metric.range[1], level))
        interval = Interval(larger(metric.range[0], low), high)
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="t; an unseen error")

    if share and sizes.plain:
        return of_share(nearest_whole(value * sizes.rows))
    if share and not isnan(se):  # weights or clusters, which have no lanes
        if se == 0 or not 0 < value < 1:
            exact = clopper_pearson(value * sizes.units, 1.0 * sizes.units, level)
            interval = hull(exact, share_ends(sizes, value, se, level))
            return _mean_estimate(
                sizes, level, value, se=se, interval=interval, method="Clopper–Pearson; an unseen unit"
            )
        interval = hull(logit_t(value, se, level, sizes.units - 1), share_ends(sizes, value, se, level))
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="logit influence t; an unseen unit")
    return choose(isnan(se), lambda: _mean_estimate(sizes, level, value, se=NAN, method="none"), by_t)


def estimate_ece(metric: Metric, tally: EceTally, level: float, rejected: Callable[[Any], Any]) -> Found:
    """ECE, plug-in or debiased; the interval of both is about the latter.

    The lower end is 0 unless perfect calibration is rejected (`calibrated`; asked with the lanes that need it).
    """
    assert metric.by_bin is not None
    sizes, value, se = tally.sizes, metric.by_bin(tally.bins), _mean_se(tally)

    def regular() -> Found:
        clustered = sizes.clusters is not None
        centre = debiased_l1(cluster_bins(tally) if clustered else tally.bins)
        if clustered:  # which have no lanes
            low, high = _cluster_ends(tally, centre, se, level)
        else:
            low, high = (centre + sign * z_quantile(level) * se for sign in (-1, 1))
            low, high = larger(0.0, low), larger(high, ece_high(sizes, centre, se, level))
        kept = low > 0
        if np.any(kept):
            kept = miscalibrated_clusters(tally, 1 - level) if clustered else rejected(kept)
        interval = Interval(choose(kept, lambda: low, lambda: 0.0), smaller(1.0, high))
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="debiased L1, influence")

    return choose(isnan(se), lambda: _mean_estimate(sizes, level, value, se=NAN, method="none"), regular)


def _cluster_ends(tally: EceTally, centre: float, se: float, level: float) -> Interval:
    """With as many clusters as weigh alike: the bins see the large ones, and each of those in few bins."""
    sizes = tally.sizes
    assert sizes.loads is not None
    number = max(2.0, sizes.loads.units.number)
    se *= math.sqrt(number / (number - 1) * (1 - 1 / sizes.units))
    width = t_quantile(level, number - 1)
    return Interval(max(0.0, centre - width * se), centre + width * upper_se(tally, se))
