"""Is a metric the same in all groups? Welch's test on the scale of the metric's interval.

A group that shows few errors, all placed well, shows next to no spread, because the badly placed error is the one that
it has not seen. So half a made-up error joins each group, as in the intervals; without it, equal groups of a high
UQ-AUC or a low AURC were told apart in up to half of the simulations.
"""

import math

import numpy as np

from uqeval._check import Float
from uqeval._errors import notify
from uqeval.evaluation.table import Across, Mixed, Table
from uqeval.inference.multiplicity import heterogeneity
from uqeval.metrics.areas import AUGRC, AURC, EXCESS, RATIO, RATIO_50
from uqeval.metrics.registry import REGISTRY, Metric

_UNITS = {"auc": 0.5, "pairs": 1.0, "tau": 1.0}  # made-up errors, or rows, by the tally of the metric …
_PLACED = 0.25  # … and the share of the others that they rank right
# What n times half an error adds that is surer than three quarters of the rows: half of −ln U, or of 1 − U, at U = ¼;
# while at most half of the rows are rejected half of 2 ln 2, which is as much.
_ADDED = {formula: math.log(4) / 2 for formula in (AURC, EXCESS, RATIO, RATIO_50)} | {AUGRC: 0.75 / 2}


def same_in_groups(table: Table) -> tuple[Mixed, ...]:
    """For each score and metric: are the groups' true values equal? The groups must not share clusters.

    Each group has the degrees of freedom of its own standard error. A group that has none (fewer than two errors, no
    spread) takes no part, and is counted.
    """
    found = []
    for (score, name), groups in table.across():
        with np.errstate(divide="ignore", invalid="ignore"):
            test = heterogeneity(*_on_scale(REGISTRY[name], groups), _df(REGISTRY[name], groups))
        if test.df >= 1:
            found.append(Mixed(score, name, *test))
    if most := max((test.left_out for test in found), default=0):
        count = len(table.groups)
        notify(f"test across groups: up to {most} of {count} groups left out (fewer than 2 errors, or no spread)")
    return tuple(found)


def _df(metric: Metric, groups: Across) -> Float:
    """Of each group's standard error; clusters lend each other half of theirs, as they do their spread."""
    own = _units(metric, groups) - 1
    return np.where(np.isnan(groups.clusters), own, np.maximum(own, np.nansum(np.maximum(own, 0.0)) / 2))


def _units(metric: Metric, groups: Across) -> Float:
    """What the standard error of each group goes by: clusters, errors (of UQ-AUC the rarer rows) or rows."""
    units = groups.effective if metric.tally in ("mean", "ece") else groups.rows
    if metric.tally in ("area", "late area"):
        units = np.fmin(groups.errors, groups.effective)
    elif metric.tally == "auc":
        wrong, right = groups.errors, groups.rows - groups.errors
        # n_eff is right·wrong/(right + wrong) of rows, or less where they weigh differently.
        units = np.minimum(wrong, right) * np.fmin(1.0, groups.effective * groups.rows / (wrong * right))
    return np.where(np.isnan(groups.clusters), units, groups.clusters_eff)


def _variance(groups: Across) -> Float:
    """Squared standard errors. With clusters, a group that lacks the large or the wrong ones by luck shows less spread
    than it has: it goes half of the way up to that of all groups."""
    variance = groups.se**2
    usual = np.where(variance > 0, (variance + _at_least_usual(variance, groups.clusters)) / 2, variance)
    return np.where(np.isnan(groups.clusters), variance, usual)


def _at_least_usual(variance: Float, units: Float) -> Float:
    usual = np.nansum(variance * units**2) / np.nansum(np.where(variance > 0, units, 0.0)) / units
    return np.maximum(variance, usual)


def _span(rate: Float, rejected: float) -> Float:
    """How far the oracle's AURC lies below that of a useless score."""
    first = np.maximum(1 - rejected, 1 - rate)  # where the oracle starts to err
    return rate - (1 - first + (1 - rate) * np.log(first)) / rejected


def _on_scale(metric: Metric, groups: Across) -> tuple[Float, Float]:
    """Values and standard errors on the scale of the metric's interval; infinite or NaN at the ends of its range."""
    shift, slope = metric.affine
    x, variance = (groups.value - shift) / slope, _variance(groups) / slope**2
    if (more := _UNITS.get(metric.tally)) is not None:
        units = _units(metric, groups)
        known = (variance > 0) | (x == 0) | (x == 1)
        x = np.where(known, (units * x + more * _PLACED) / (units + more), np.nan)
        variance = (units**2 * variance + (more * (_PLACED - x)) ** 2) / (units + more) ** 2
    elif (added := _ADDED.get(metric.formula)) is not None:  # type: ignore[arg-type]
        rate = groups.errors / groups.rows
        one = added * np.fmax(1.0, groups.errors / groups.clusters_eff) / groups.rows  # errors come by the cluster
        span = _span(rate, metric.formula.rejected) if metric.formula in (RATIO, RATIO_50) else 1.0
        x = np.where(variance > 0, x + one / span, np.nan)
        variance = variance + (one / span) ** 2
    elif metric.interval == "t":
        # A mean of skewed losses: where no large one was seen, the spread goes half of the way up to that of all.
        units = _units(metric, groups)
        variance = np.where(variance > 0, (variance + _at_least_usual(variance, units)) / 2, np.nan)
    spread = np.sqrt(variance)
    if metric.interval in ("logit", "atanh", "gamma", "binomial"):
        return np.log(x / (1 - x)), spread / (x * (1 - x))
    return (np.log(x), spread / x) if metric.interval == "log" else (x, spread)
