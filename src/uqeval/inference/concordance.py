"""Intervals of UQ-AUC, UQ-C-index, Kendall's tau-b and Somers' D.

Independent rows: DeLong with Welch–Satterthwaite degrees of freedom (UQ-AUC), the delete-one jackknife (the others),
on the logit scale. Weights: jackknife with Kish sizes. Clusters: delete-one-cluster jackknife, t with G − 1.
Where those break down (a single error, a perfect ranking): Wilson with the effective number of pairs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.intervals import NAN, UNKNOWN, Interval, logit_t, settled, wilson
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample, cluster_sums, kish
from uqeval.metrics.correlation import pair_rows, tau_b

__all__ = [
    "estimate_auc",
    "estimate_c_index",
    "estimate_somers",
    "estimate_tau",
    "leave_out",
    "row_warnings",
    "tau_inside",
    "tau_left",
]


def row_warnings(sample: Sample, *, errors: bool) -> tuple[str, ...]:
    """What limits an estimate from these rows."""
    notes = []
    if errors:
        wrong, right = sample.n_errors, sample.n - sample.n_errors
        if wrong < 10:
            notes.append(f"few errors ({wrong}): the interval is wide and conservative")
        if right < 10:
            notes.append(f"few right rows ({right}): the interval is wide and conservative")
        if sample.weights is not None and wrong >= 10:
            size = kish(sample.weights[sample.target.astype(bool)])
            if size < 20:
                notes.append(f"the errors weigh as few as {size:.0f} rows: the interval may be too narrow")
    groups = sample.n_clusters
    if groups == 1:
        notes.append("a single cluster: no standard error or interval")
    elif groups is not None and groups < 10:
        notes.append(f"few clusters ({groups}): the interval is unreliable")
    return tuple(notes)


def _result(
    sample: Sample,
    value: float,
    se: float,
    interval: Interval,
    level: float,
    method: str,
    n_eff: float,
    errors: bool,
) -> Estimate:
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        se=se,
        level=level,
        method=method,
        n=sample.n,
        n_errors=sample.n_errors if errors else None,
        n_clusters=sample.n_clusters,
        n_eff=n_eff,
        warnings=row_warnings(sample, errors=errors),
    )


def _undefined(sample: Sample, level: float, reason: str, errors: bool) -> Estimate:
    result = _result(sample, NAN, NAN, UNKNOWN, level, "undefined", 0.0, errors)
    notes = (note for note in result.warnings if not note.startswith("few "))  # the reason says it all
    return replace(result, degenerate=True, warnings=(reason, *notes))


def _constant(sample: Sample, level: float, n_eff: float, errors: bool) -> Estimate:
    single = sample.n_clusters == 1
    interval = UNKNOWN if single else Interval(0.5, 0.5)
    result = _result(sample, 0.5, NAN if single else 0.0, interval, level, "constant score", n_eff, errors)
    return replace(result, degenerate=True, warnings=("the score is constant", *result.warnings))


def estimate_auc(sample: Sample, level: float) -> Estimate:
    """UQ-AUC from 0/1 errors."""
    wrong, right = sample.n_errors, sample.n - sample.n_errors
    if not wrong or not right:
        missing = "right" if wrong else "wrong"
        return _undefined(sample, level, f"UQ-AUC is undefined: the test set has no {missing} prediction", True)
    if sample.plain:
        sizes: tuple[float, float] = (right, wrong)
    elif sample.clusters is None:
        is_wrong = sample.target.astype(bool)
        sizes = (kish(sample.w[~is_wrong]), kish(sample.w[is_wrong]))
    else:  # clusters that hold a right row, and a wrong row
        is_wrong = sample.target.astype(bool)
        sizes = (len(np.unique(sample.clusters[~is_wrong])), len(np.unique(sample.clusters[is_wrong])))
    n_eff = sizes[0] * sizes[1] / (sizes[0] + sizes[1])
    if sample.constant_score:
        return _constant(sample, level, n_eff, True)
    if not sample.plain:
        return _jackknifed(sample, level, n_eff, min(sizes) - 1, True)
    sums = sample.auc[1]
    total = sums.credit2
    value = total / (2 * right * wrong)
    if wrong == 1 or right == 1:
        return _result(sample, value, NAN, wilson(value, n_eff, level), level, "Wilson", n_eff, True)
    # DeLong's two terms, exact integers up to the last division.
    of_right = (right * sums.right_squares - total**2) / (4 * wrong**2 * right**2 * (right - 1))
    of_wrong = (wrong * sums.wrong_squares - total**2) / (4 * right**2 * wrong**2 * (wrong - 1))
    variance = of_right + of_wrong
    se = math.sqrt(variance)
    if value in (0.0, 1.0) or se == 0:
        return _result(sample, value, se, wilson(value, n_eff, level), level, "Wilson", n_eff, True)
    df = variance**2 / (of_right**2 / (right - 1) + of_wrong**2 / (wrong - 1))
    interval = logit_t(value, se, level, df)
    return _result(sample, value, se, interval, level, "logit DeLong, Welch t", n_eff, True)


def estimate_c_index(sample: Sample, level: float) -> Estimate:
    """UQ-C-index from any loss."""
    if sample.binary:  # the same metric, but its own interval: treat 0/1 as a loss
        sample = replace(sample, target=sample.loss)
    if sample.plain:
        credit2, comparable = sample.pair_counts
        sums = kernels.concordance_sums(credit2, comparable)
        if sums.comparable == 0:
            return _undefined(sample, level, "UQ-C-index is undefined: all losses are equal", False)
        n = sample.n
        n_eff = sums.comparable / (2 * n)
        if sample.constant_score:
            return _constant(sample, level, n_eff, False)
        value = sums.credit2 / (2 * sums.comparable)
        se = math.sqrt(max(0.0, (n - 1) / n * (sums.shift2 - sums.shift**2 / n))) if sums.shift == sums.shift else NAN
        return _finish(sample, value, se, level, "logit jackknife t", n_eff, n - 1, False)
    total = kernels.order_free_sum(sample.w * sample.pairs[1])
    if total == 0:
        return _undefined(sample, level, "UQ-C-index is undefined: all losses are equal", False)
    units = sample.n_clusters if sample.n_clusters is not None else kish(sample.w)
    n_eff = units * total / sample.total_weight**2 / 2
    if sample.constant_score:
        return _constant(sample, level, n_eff, False)
    return _jackknifed(sample, level, n_eff, units - 1, False)


def _finish(
    sample: Sample, value: float, se: float, level: float, method: str, n_eff: float, df: float, errors: bool
) -> Estimate:
    """The regular interval, or Wilson where there is no standard error to speak of."""
    se = settled(se)
    if sample.n_clusters == 1:
        return _result(sample, value, NAN, UNKNOWN, level, method, n_eff, errors)
    if value in (0.0, 1.0) or se == 0 or (math.isnan(se) and sample.clusters is None):
        return _result(sample, value, se, wilson(value, n_eff, level), level, "Wilson", n_eff, errors)
    if math.isnan(se):
        result = _result(sample, value, se, UNKNOWN, level, method, n_eff, errors)
        note = "without one cluster the metric is undefined: no interval"
        return replace(result, warnings=(note, *result.warnings))
    return _result(sample, value, se, logit_t(value, se, level, df), level, method, n_eff, errors)


def _jackknifed(sample: Sample, level: float, n_eff: float, df: float, errors: bool) -> Estimate:
    """Weighted or clustered concordance."""
    credit, comparable = sample.pairs
    rows = [credit, comparable]
    inside = None if sample.clusters is None else list(sample.within())
    totals, without = leave_out(sample, rows, inside)
    value = totals[0] / totals[1]
    se = jackknife_se(
        [part[0] / part[1] if part[1] > 1e-12 * totals[1] else NAN for part in zip(*without, strict=True)]
    )
    method = "logit jackknife t" if sample.clusters is None else "logit cluster jackknife t"
    if sample.n_clusters is not None:
        df = sample.n_clusters - 1
    return _finish(sample, value, se, level, method, n_eff, df, errors)


def leave_out(sample: Sample, rows: list[Float], inside: list[Float] | None) -> tuple[list[float], list[Float]]:
    """Totals of pair sums (each pair twice), and the same without each row or cluster.

    `rows[k][i]` is the sum over the other rows j of something symmetric in (i, j), weighted by w_j;
    `inside[k][i]` the same over the rows of i's own cluster.
    """
    totals, without = [], []
    for k, part in enumerate(rows):
        own = part if sample.weights is None else part * sample.weights
        total = kernels.order_free_sum(own)
        totals.append(total)
        if sample.clusters is None or inside is None:
            without.append(total - 2.0 * own)
            continue
        within = inside[k] if sample.weights is None else inside[k] * sample.weights
        without.append(total - 2.0 * cluster_sums(own, sample.clusters) + cluster_sums(within, sample.clusters))
    return totals, without


def jackknife_se(values: Float | list[float]) -> float:
    """√((m − 1)/m Σ(θ₍₋ᵢ₎ − mean)²); NaN if a value is undefined."""
    x = np.asarray(values, dtype=np.float64)
    m = len(x)
    if m < 2 or np.isnan(x).any():
        return NAN
    shift = x - kernels.order_free_sum(x) / m
    return math.sqrt((m - 1) / m * kernels.order_free_sum(shift * shift))


def estimate_somers(sample: Sample, level: float) -> Estimate:
    """Somers' D = 2C − 1, with the interval of C."""
    base = estimate_c_index(sample, level)
    if not math.isnan(base.value):
        credit, comparable = replace(sample, target=sample.loss).pairs if sample.binary else sample.pairs
        sign, total = (kernels.order_free_sum(part * sample.w) for part in (2 * credit - comparable, comparable))
        value = sign / total
    else:
        value = NAN
    wording = {"UQ-C-index": "Somers' D", "all losses are equal": "the truth is constant"}
    notes = base.warnings
    for old, new in wording.items():
        notes = tuple(note.replace(old, new) for note in notes)
    return replace(base, value=value, low=2 * base.low - 1, high=2 * base.high - 1, se=2 * base.se, warnings=notes)


def estimate_tau(sample: Sample, level: float) -> Estimate:
    """Kendall's tau-b: delete-one jackknife on the atanh scale (the logit of (τ + 1)/2, halved)."""
    rows = list(pair_rows(sample.score, sample.loss, sample.weights))
    inside = tau_inside(sample) if sample.clusters is not None else None
    totals, without = leave_out(sample, rows, inside)
    value = tau_b(*totals, rounded=sample.weights is not None)
    if math.isnan(value):
        return _undefined(sample, level, "Kendall's tau is undefined: score or truth is constant", False)
    left = tau_left(totals, without)
    se = jackknife_se(left)
    units = sample.n_clusters if sample.n_clusters is not None else kish(sample.w)
    n_eff = units * totals[2] / sample.total_weight**2 / 2
    method = "atanh jackknife t" if sample.clusters is None else "atanh cluster jackknife t"
    base = _finish(sample, (min(1.0, max(-1.0, value)) + 1) / 2, se / 2, level, method, n_eff, units - 1, False)
    return replace(base, value=value, low=2 * base.low - 1, high=2 * base.high - 1, se=se)


def tau_left(totals: list[float], without: list[Float]) -> Float:
    """tau-b without each unit; NaN where no pair is left that differs in score, or in truth (but for rounding)."""
    some = (without[1] > 1e-12 * totals[1]) & (without[2] > 1e-12 * totals[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(some, without[0] / np.sqrt(without[1] * without[2]), NAN)


def tau_inside(sample: Sample) -> list[Float]:
    credit, in_truth = sample.within()
    _, in_score = replace(sample, score=sample.loss, target=sample.score, counts=None).within()
    return [2 * credit - in_truth, in_score, in_truth]
