"""A metric with its standard error and confidence interval.

The interval of each metric was chosen by simulation of how often it holds; `Estimate.method` names it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import (
    Float,
    Nan,
    Progress,
    check_bits_and_weights,
    check_choice,
    check_codes,
    check_labels,
    check_largest,
    check_lengths,
    check_level,
    check_probs,
    check_rows,
    check_seed,
    check_seed_kind,
    check_weights,
    drop_rows,
    recode,
)
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning, notify
from uqeval.inference import ood
from uqeval.inference.bootstrap import check_resamples, percentile, refuse_largest
from uqeval.inference.measure import Measurement, resample
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.metrics.areas import Ranking
from uqeval.metrics.calibration import check_confidence
from uqeval.metrics.ood import check_in_out, nearest_distances
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

# Of two sets of features, which no other metric takes: so it is not in the registry.
_DISTANCE = replace(
    REGISTRY["uq_c_index"], name="distance_c_index", title="distance C-index", undefined="all rows are equally far"
)


def estimate(
    metric: str,
    *data: ArrayLike,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    largest_cluster: int | None = None,
    level: float = 0.95,
    method: str = "default",
    resamples: int = 2000,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
    **named: ArrayLike,
) -> Estimate:
    """One metric with its standard error and confidence interval.

    Parameters
    ----------
    metric : str
        A name of `uqeval.metrics.REGISTRY`.
    *data, **named : array-like
        What the metric needs, in order or by name, as in ``estimate("uq_auc", score, error)``.
    weights : array-like of shape (n,), optional
        Sampling weights ≥ 0.
    clusters : array-like of shape (n,), optional
        Independent units, as patients with several rows each.
    largest_cluster : int, optional
        The most rows that any cluster can have, seen or not: intervals leave room for one so large that was not seen.
        Without it they take clusters that were not seen for much like those that were.
    level : float
        Confidence level.
    method : "default" or "bootstrap"
        The interval chosen by simulation for this metric, or percentiles of `resamples` bootstrap values.
    nan : "raise" or "omit"
        What to do with rows that hold NaN (ranking metrics).
    seed : int or numpy Generator
        For the intervals that draw random numbers (ECE, FPR, AUPR, bootstrap).
    progress : callable(stage, done, total), optional
        Called while the bootstrap runs.

    Returns
    -------
    Estimate
        With `value`, `low`, `high`, `se`, `method`, `warnings`.

    Examples
    --------
    >>> result = estimate("uq_c_index", score=[3, 1, 2, 5, 4, 6, 2, 7], loss=[1, 0, 2, 4, 5, 3, 6, 7])
    >>> print(result, result.method)
    0.696 (0.223–0.958) logit jackknife t; an unseen row
    """
    chosen = get_metric(metric)
    level, seed = check_level(level), check_seed_kind(seed)
    check_choice("method", method, ("default", "bootstrap"))
    values = arguments(chosen, data, named)
    if "score_in" in chosen.needs:
        if method == "bootstrap" and metric == "ood_auroc":
            raise InputError("ood_auroc has no bootstrap interval; its default is that of UQ-AUC.")
        check_largest(largest_cluster, None)
        result = _of_two_sets(chosen, values, weights, clusters, level, check_seed(seed), check_resamples(resamples))
    else:
        refuse_largest(largest_cluster, method)
        measured = _clean(chosen, values, weights, clusters, nan, largest_cluster)
        if method == "bootstrap":
            seed = check_seed(seed)
        result = measured.estimate(level, seed)
        if method == "bootstrap":
            result = bootstrapped(
                result, resample([measured], check_resamples(resamples), check_seed(seed), progress)[0]
            )
    announce(result, stacklevel=3)
    return result


def bootstrap(
    metric: str,
    *data: ArrayLike,
    resamples: int = 2000,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
    **named: ArrayLike,
) -> Float:
    """Values of a metric on resampled rows (or clusters); NaN where a resample leaves it undefined.

    Rows are sorted once and never copied. Prefer the intervals of `estimate`: percentiles of these values cover too
    little when errors are few. Arguments as in `estimate`.

    Examples
    --------
    >>> values = bootstrap("uq_c_index", score=range(50), loss=range(50), resamples=200)
    >>> values.min(), values.max()
    (np.float64(1.0), np.float64(1.0))
    """
    chosen = get_metric(metric)
    if "score_in" in chosen.needs:
        raise InputError(f"{metric} draws from two sets of rows; use estimate(), which does.")
    measured = _clean(chosen, arguments(chosen, data, named), weights, clusters, nan)
    return resample([measured], check_resamples(resamples), check_seed(seed), progress)[0]


def estimate_distance_c_index(
    score: ArrayLike,
    features: ArrayLike,
    *,
    reference: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """`uqeval.metrics.distance_c_index` with its standard error and confidence interval, that of the UQ-C-index.

    The reference is taken as given: the interval is about other rows to judge, not about another training set. Without
    one, the distances of the rows depend on each other, which it leaves aside; in simulations it held all the same.

    Parameters
    ----------
    score, features, reference, weights
        As in `uqeval.metrics.distance_c_index`.
    clusters : array-like of shape (n,), optional
        Independent units, as patients with several rows each.
    level : float
        Confidence level.

    Returns
    -------
    Estimate
        With `value`, `low`, `high`, `se`, `method`, `warnings`.

    Examples
    --------
    >>> x = [[1.0], [2.0], [4.0], [7.0], [11.0], [16.0], [22.0], [29.0]]
    >>> print(estimate_distance_c_index([1, 2, 3, 5, 4, 6, 8, 7], x, reference=[[0.0]]))
    0.929 (0.579–0.992)
    """
    level, distance = check_level(level), nearest_distances(score, features, reference)
    s, d, w, g = check_rows(score, distance, weights, kind="loss", clusters=clusters)
    rows = Rows(len(d), w, g)
    result = Measurement(_DISTANCE, Sample(Ranking(s), d, rows), rows).estimate(level, 0)
    announce(result, stacklevel=3)
    return result


def bootstrapped(result: Estimate, drawn: Float) -> Estimate:
    """The estimate with the percentile interval of its bootstrap values in place of the default one."""
    low, high, dropped = percentile(drawn, result.level)
    notes = (f"{dropped} of {len(drawn)} resamples left the metric undefined",) if dropped else ()
    finite = drawn[np.isfinite(drawn)]
    se = float(finite.std(ddof=1)) if len(finite) > 1 else float("nan")
    how = f"percentile bootstrap, {len(drawn)} resamples"
    return replace(result, low=low, high=high, se=se, method=how, warnings=(*result.warnings, *notes))


def announce(result: Estimate, stacklevel: int = 2) -> None:
    """Python warnings for what limits an estimate."""
    for note in result.warnings:
        kind = UndefinedMetricWarning if "undefined:" in note else UQWarning
        notify(note, kind, stacklevel=stacklevel)


def arguments(metric: Metric, data: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """What the metric needs, in order."""
    if len(data) > len(metric.needs):
        raise InputError(f"{metric.name} takes {', '.join(metric.needs)}; {len(data)} arrays were given.")
    values = dict(zip(metric.needs, data, strict=False))
    for name, value in named.items():
        if name not in metric.needs or name in values:
            twice = " twice" if name in values else ""
            raise InputError(f"{metric.name} takes {', '.join(metric.needs)}; `{name}` was given{twice}.")
        values[name] = value
    missing = [name for name in metric.needs if name not in values]
    if missing:
        raise InputError(f"{metric.name} needs {', '.join(metric.needs)}; pass {', '.join(missing)}.")
    return [values[name] for name in metric.needs]


def _clean(
    metric: Metric,
    values: list[Any],
    weights: ArrayLike | None,
    clusters: ArrayLike | None,
    nan: Nan,
    largest_cluster: int | None = None,
) -> Measurement:
    if metric.uses_score:
        kind, name = metric.target_kind, metric.needs[1]
        target = values[1] if metric.made is None else metric.made[1](*values[1:], nan)
        s, t, w, g = check_rows(values[0], target, weights, kind=kind, name=name, clusters=clusters, nan=nan)
        rows = Rows.checked(len(t), w, g, largest_cluster)
        return Measurement(metric, Sample(Ranking(s), t, rows), rows)
    if check_choice("nan", nan, ("raise", "omit")) == "omit":
        raise InputError(f'nan="omit" is for the metrics that rank rows; drop the rows with NaN before {metric.name}.')
    first: Any
    second: Any = None
    if len(metric.needs) == 1:
        first = check_bits_and_weights("error", values[0], None)[0]
    elif metric.tally == "ece":
        first, second, _ = check_confidence(*values)
    else:
        first = check_probs(values[0])
        second = check_labels(values[1], first.shape[1])
    g = None if clusters is None else check_codes("clusters", clusters)[0]
    check_lengths(**dict(zip(metric.needs, (first, second), strict=False)), clusters=g)
    w = None
    if weights is not None:
        w, keep = check_weights(weights, len(first))
        if keep is not None:
            first, second, g = drop_rows(keep, first, second, g)
            g = recode(g)
    rows = Rows.checked(len(first), w, g, largest_cluster)
    if metric.by_row is None:
        return Measurement(metric, Confidences(first, second, rows), rows)
    return Measurement(metric, metric.by_row(*(part for part in (first, second) if part is not None)), rows)


def _of_two_sets(
    metric: Metric,
    values: list[Any],
    weights: ArrayLike | None,
    clusters: ArrayLike | None,
    level: float,
    rng: np.random.Generator,
    resamples: int,
) -> Estimate:
    """Out-of-distribution detection."""
    if weights is not None or clusters is not None:
        raise InputError(f"{metric.name} takes no `weights` or `clusters`. Leave them out.")
    inside, outside = check_in_out(*values)
    if metric.name == "ood_auroc":
        return ood.estimate_auroc(inside, outside, level)
    chosen = {"fpr_at_tpr": ood.estimate_fpr, "ood_aupr": ood.estimate_aupr}[metric.name]
    return chosen(inside, outside, level, rng, resamples)
