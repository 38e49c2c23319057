"""A metric with its standard error and confidence interval.

The interval of each metric was chosen by simulation of how often it holds; `Estimate.method` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    check_lengths,
    check_level,
    check_probs,
    check_rows,
    check_seed,
    check_weights,
    drop_rows,
    recode,
)
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning, notify
from uqeval.inference import concordance, means, ood, selective
from uqeval.inference.bootstrap import (
    check_resamples,
    percentile,
    resample_ece,
    resample_means,
    resample_samples,
)
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.metrics.calibration import check_confidence
from uqeval.metrics.ood import check_in_out
from uqeval.metrics.proper import brier_rows, log_loss_rows
from uqeval.metrics.registry import Metric, get_metric

__all__ = ["LOSS_TOO", "RANKING", "announce", "bootstrap", "bootstrapped", "estimate", "target_kind"]

# Metrics that rank rows.
RANKING: dict[str, Callable[[Sample, float], Estimate]] = {
    "uq_auc": concordance.estimate_auc,
    "uq_c_index": concordance.estimate_c_index,
    "kendall_phi": concordance.estimate_tau,
    "kendall_varphi": concordance.estimate_tau,
    "somers_phi": concordance.estimate_somers,
    "somers_varphi": concordance.estimate_somers,
    **selective.ESTIMATORS,
}
LOSS_TOO = ("aurc", "naurc", "augrc", "auarc", "prr")


def target_kind(metric: Metric) -> str:
    """What the second argument of a ranking metric may hold: see `check_rows`."""
    if metric.needs[1] != "error":
        return "loss"
    return "loss01" if metric.name in LOSS_TOO else "error"


@dataclass(frozen=True)
class _Clean:
    """Checked arguments of a metric: a sample to rank, or per-row data of the model (first, second)."""

    metric: Metric
    sample: Sample
    first: Any = None
    second: Any = None

    @property
    def rows(self) -> Float:
        """Per-row losses of the metrics that are means."""
        if self.metric.name == "accuracy":
            return 1.0 - self.first.astype(np.float64)
        return (brier_rows if self.metric.name == "brier" else log_loss_rows)(self.first, self.second)


def estimate(
    metric: str,
    *data: ArrayLike,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
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
    0.696 (0.223–0.948) logit jackknife t
    """
    chosen = get_metric(metric)
    level, rng = check_level(level), check_seed(seed)
    check_choice("method", method, ("default", "bootstrap"))
    values = _arguments(chosen, data, named)
    if "score_in" in chosen.needs:
        if method == "bootstrap" and metric == "ood_auroc":
            raise InputError("ood_auroc has no bootstrap interval; its default is that of UQ-AUC.")
        result = _of_two_sets(chosen, values, weights, clusters, level, rng, check_resamples(resamples))
    else:
        clean = _clean(chosen, values, weights, clusters, nan)
        result = _default(clean, level, rng)
        if method == "bootstrap":
            drawn = _resampled(clean, check_resamples(resamples), rng, progress)
            result = bootstrapped(result, drawn)
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
    clean = _clean(chosen, _arguments(chosen, data, named), weights, clusters, nan)
    return _resampled(clean, check_resamples(resamples), check_seed(seed), progress)


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


def _arguments(metric: Metric, data: tuple[ArrayLike, ...], named: dict[str, Any]) -> list[Any]:
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
    metric: Metric, values: list[Any], weights: ArrayLike | None, clusters: ArrayLike | None, nan: Nan
) -> _Clean:
    if metric.name in RANKING:
        kind: Any = target_kind(metric)
        s, t, w, g = check_rows(
            values[0], values[1], weights, kind=kind, name=metric.needs[1], clusters=clusters, nan=nan
        )
        return _Clean(metric, Sample(s, t, w, g))
    if check_choice("nan", nan, ("raise", "omit")) == "omit":
        raise InputError(f'nan="omit" is for the metrics that rank rows; drop the rows with NaN before {metric.name}.')
    first: Any
    second: Any = None
    if metric.name == "accuracy":
        first = check_bits_and_weights("error", values[0], None)[0]
    elif metric.needs == ("confidence", "correct"):
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
    return _Clean(metric, Sample(np.zeros(len(first)), np.zeros(len(first)), w, g), first, second)


def _default(clean: _Clean, level: float, rng: np.random.Generator) -> Estimate:
    metric, sample = clean.metric, clean.sample
    if metric.name in RANKING:
        return RANKING[metric.name](sample, level)
    w, g = sample.weights, sample.clusters
    if metric.needs == ("confidence", "correct"):
        return means.estimate_ece(clean.first, clean.second, w, g, level, rng)[metric.name]
    if metric.name == "accuracy":
        return means.estimate_accuracy(1.0 - clean.rows, w, g, level)
    return means.estimate_mean(clean.rows, w, g, level, metric.range)


def _resampled(clean: _Clean, resamples: int, rng: np.random.Generator, progress: Progress | None) -> Float:
    metric, sample = clean.metric, clean.sample
    if metric.name in RANKING:
        return resample_samples(metric.name, [sample], resamples, rng, progress)[0]
    if metric.needs == ("confidence", "correct"):
        return resample_ece(metric.name, [clean.first], [clean.second], sample, resamples, rng, progress)[0]
    return resample_means(clean.rows[None], sample, resamples, rng, progress)[0]


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
        raise InputError(f"{metric.name} takes no `weights` or `clusters`.")
    inside, outside = check_in_out(*values)
    if metric.name == "ood_auroc":
        return ood.estimate_auroc(inside, outside, level)
    chosen = {"fpr_at_tpr": ood.estimate_fpr, "ood_aupr": ood.estimate_aupr}[metric.name]
    return chosen(inside, outside, level, rng, resamples)
