"""Intervals of the selective-prediction areas: AURC, AUGRC and what is computed from them.

The number of errors rules: with 10 or more, t with (errors − 1) degrees of freedom on the logit or log scale and an
influence-value standard error; with fewer, the gamma interval, which works down to no error at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.concordance import row_warnings
from uqeval.inference.influence import INFLUENCE, influence_variance
from uqeval.inference.intervals import NAN, UNKNOWN, Interval, fay_feuer, log_t, logit_t, settled
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample, kish
from uqeval.metrics.selective import augrc_value, h_auc_value

__all__ = ["ESTIMATORS", "area_value", "error_size"]


def error_size(sample: Sample) -> float:
    """Effective number of errors: the count, or Kish's size of weights times losses."""
    if sample.binary and sample.weights is None:
        return float(sample.n_errors)
    return kish(sample.w * sample.loss)


def _se(sample: Sample, name: str, errors: float) -> float:
    """Influence-value standard error, error rows inflated by n1/(n1 − 1)."""
    if sample.n < 2:
        return NAN
    inflate = None
    if sample.clusters is None and errors > 1:
        inflate = np.where(sample.target > 0, errors / (errors - 1), sample.n / (sample.n - 1))
    variance = influence_variance(sample, INFLUENCE[name](sample), inflate)
    return settled(math.sqrt(variance)) if variance == variance else NAN


def _result(sample: Sample, value: float, se: float, interval: Interval, level: float, method: str) -> Estimate:
    notes = row_warnings(sample, errors=sample.binary)
    if sample.clusters is not None and sample.n_errors:
        units = len(np.unique(sample.clusters[sample.target > 0]))
        if units < 20 and (sample.n_clusters or 0) >= 10:
            notes = (*notes, f"the errors sit in {units} clusters: the interval may be too narrow")
    return Estimate(
        value=value,
        low=interval.low,
        high=interval.high,
        se=se,
        level=level,
        method=method,
        n=sample.n,
        n_errors=sample.n_errors if sample.binary else None,
        n_clusters=sample.n_clusters,
        n_eff=error_size(sample),
        degenerate=math.isnan(value),
        warnings=notes,
    )


def _contributions(sample: Sample, name: str) -> tuple[Float, float]:
    """The area as Σ contributions of rows, and the most that one more error could add."""
    blocks = sample.blocks
    total = blocks.weight.sum()
    if name == "aurc":
        steps = sample.steps
        later = np.cumsum((steps.step / steps.weight)[::-1])[::-1]
        per_block = np.add.reduceat(later, blocks.first) / blocks.size
        largest = float(later[0]) / total
    else:
        per_block = (total - np.cumsum(blocks.weight) + blocks.weight / 2) / total
        largest = 1.0 / total
    by_row = np.empty(sample.n)
    by_row[blocks.row] = np.repeat(per_block, blocks.size)
    unit = sample.w.max() if sample.clusters is None else np.bincount(sample.clusters, weights=sample.w).max()
    return sample.w * sample.loss * by_row / total, largest * float(unit)


def _area(sample: Sample, level: float, name: str, cap: float) -> Estimate:
    """AURC and AUGRC."""
    value = area_value(name, sample)
    errors = error_size(sample)
    se = _se(sample, name, errors) if sample.n_errors else 0.0
    if sample.n_clusters == 1:
        return _result(sample, value, NAN, UNKNOWN, level, "none")
    clustered = sample.clusters is not None
    few = errors < 10 if not clustered else sample.n_errors == 0
    if few:
        parts, largest = _contributions(sample, name)
        interval = fay_feuer(value, kernels.order_free_sum(parts * parts), largest, level, cap)
        return _result(sample, value, se, interval, level, "gamma (Fay & Feuer)")
    if value >= cap or not se > 0:  # every row wrong
        return _result(sample, value, se, UNKNOWN, level, "none")
    df = (sample.n_clusters or 0) - 1 if clustered else errors - 1
    low, high = logit_t(value, se, level, df)
    return _result(sample, value, se, Interval(low, min(cap, high)), level, "logit influence t")


def _excess(sample: Sample, level: float, name: str, cap: float) -> Estimate:
    """E-AURC, H-AUC and nAURC: log scale."""
    value = area_value(name, sample)
    errors = error_size(sample)
    if math.isnan(value):
        result = _result(sample, NAN, NAN, UNKNOWN, level, "undefined")
        notes = (note for note in result.warnings if not note.startswith("few "))  # the reason says it all
        return replace(result, warnings=("nAURC is undefined: all losses are equal", *notes))
    if sample.n_errors == 0 or (sample.n_errors == sample.n and sample.binary):
        return _result(sample, value, NAN, UNKNOWN, level, "none")
    se = _se(sample, name, errors)
    if errors < 2 or value <= 0 or sample.n_clusters == 1 or not se > 0:
        return _result(sample, value, NAN if errors < 2 else se, UNKNOWN, level, "none")
    df = sample.n_clusters - 1 if sample.n_clusters is not None else errors - 1
    return _result(sample, value, se, log_t(value, se, level, df, cap), level, "log influence t")


def area_value(name: str, sample: Sample) -> float:
    """The value of a metric of this module; NaN where undefined."""
    if name in ("naurc", "prr"):
        if sample.target.min() == sample.target.max():
            return NAN
        ratio = (sample.aurc - sample.aurc_best) / (sample.error_rate - sample.aurc_best)
        return ratio if name == "naurc" else 1 - ratio
    if name in ("aurc", "auarc"):
        return sample.aurc if name == "aurc" else 1 - sample.aurc
    if name == "e_aurc":
        return sample.aurc - sample.aurc_best
    if name == "h_auc":
        return h_auc_value(sample.blocks)
    return augrc_value(sample.blocks) * (2 if name == "g_auc" else 1)


def _aurc(sample: Sample, level: float) -> Estimate:
    return _area(sample, level, "aurc", 1.0)


def _augrc(sample: Sample, level: float) -> Estimate:
    return _area(sample, level, "augrc", 0.5)


def _g_auc(sample: Sample, level: float) -> Estimate:
    half = _augrc(sample, level)
    return replace(half, value=2 * half.value, low=2 * half.low, high=2 * half.high, se=2 * half.se)


def _complement(base: Estimate) -> Estimate:
    return replace(
        base,
        value=1 - base.value,
        low=1 - base.high,
        high=1 - base.low,
        warnings=tuple(note.replace("nAURC", "PRR") for note in base.warnings),
    )


ESTIMATORS: dict[str, Callable[[Sample, float], Estimate]] = {
    "aurc": _aurc,
    "e_aurc": lambda sample, level: _excess(sample, level, "e_aurc", 1.0),
    "naurc": lambda sample, level: _excess(sample, level, "naurc", math.inf),
    "augrc": _augrc,
    "g_auc": _g_auc,
    "h_auc": lambda sample, level: _excess(sample, level, "h_auc", 0.25),
    "auarc": lambda sample, level: _complement(_aurc(sample, level)),
    "prr": lambda sample, level: _complement(_excess(sample, level, "naurc", math.inf)),
}
