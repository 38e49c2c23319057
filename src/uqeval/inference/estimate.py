"""A metric with its standard error and confidence interval.

The interval of each metric was chosen by simulation of how often it holds; `Estimate.method` names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import (
    Nan,
    check_bits_and_weights,
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
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning
from uqeval.inference import concordance, means, ood, selective
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.metrics.calibration import check_confidence
from uqeval.metrics.ood import check_in_out
from uqeval.metrics.proper import brier_rows, log_loss_rows
from uqeval.metrics.registry import Metric, get_metric

__all__ = ["LOSS_TOO", "RANKING", "announce", "estimate", "target_kind"]

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


def estimate(
    metric: str,
    *data: ArrayLike,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
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
    nan : "raise" or "omit"
        What to do with rows that hold NaN (ranking metrics).
    seed : int or numpy Generator
        For the intervals that draw random numbers (ECE, FPR, AUPR).

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
    level = check_level(level)
    values = _arguments(chosen, data, named)
    if metric in RANKING:
        s, t, w, g = check_rows(
            values[0],
            values[1],
            weights,
            kind=target_kind(chosen),  # type: ignore[arg-type]
            name=chosen.needs[1],
            clusters=clusters,
            nan=nan,
        )
        result = RANKING[metric](Sample(s, t, w, g), level)
    else:
        result = _of_model(chosen, values, weights, clusters, level, check_seed(seed))
    announce(result, stacklevel=3)
    return result


def announce(result: Estimate, stacklevel: int = 2) -> None:
    """Python warnings for what limits an estimate."""
    for note in result.warnings:
        kind = UndefinedMetricWarning if "undefined:" in note else UQWarning
        warnings.warn(note, kind, stacklevel=stacklevel)


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


def _of_model(
    metric: Metric,
    values: list[Any],
    weights: ArrayLike | None,
    clusters: ArrayLike | None,
    level: float,
    rng: np.random.Generator,
) -> Estimate:
    """Metrics that need no score, and those of out-of-distribution detection."""
    if "score_in" in metric.needs:
        if weights is not None or clusters is not None:
            raise InputError(f"{metric.name} takes no `weights` or `clusters`.")
        inside, outside = check_in_out(*values)
        if metric.name == "ood_auroc":
            return ood.estimate_auroc(inside, outside, level)
        return {"fpr_at_tpr": ood.estimate_fpr, "ood_aupr": ood.estimate_aupr}[metric.name](inside, outside, level, rng)
    if metric.name == "accuracy":
        e, w, keep = check_bits_and_weights("error", values[0], weights)
        g = None if clusters is None else check_codes("clusters", clusters)[0]
        check_lengths(error=e if keep is None else keep, clusters=g)
        g = g if keep is None or g is None else recode(g[keep])
        return means.estimate_accuracy(e.astype(np.float64), w, g, level)
    g = None if clusters is None else check_codes("clusters", clusters)[0]
    first: Any
    second: Any
    if metric.needs == ("confidence", "correct"):
        first, second, _ = check_confidence(*values)
    else:
        first = check_probs(values[0])
        second = check_labels(values[1], first.shape[1])
    check_lengths(**dict(zip(metric.needs, (first, second), strict=True)), clusters=g)
    w = None
    if weights is not None:
        w, keep = check_weights(weights, len(first))
        if keep is not None:
            first, second, g = drop_rows(keep, first, second, g)
            g = recode(g)
    if metric.needs == ("confidence", "correct"):
        return means.estimate_ece(first, second, w, g, level, rng)[metric.name]
    rows = brier_rows(first, second) if metric.name == "brier" else log_loss_rows(first, second)
    return means.estimate_mean(rows, w, g, level, metric.range)
