"""Sums → estimates: the same values, standard errors and intervals as `uqeval.inference` gives from rows in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from uqeval._check import Int
from uqeval.distributed.engines.protocol import State
from uqeval.distributed.plan.areas import harmonic
from uqeval.distributed.plan.count import ECE_BINS
from uqeval.distributed.plan.tallies import ScoreSums
from uqeval.inference import concordance, means
from uqeval.inference.intervals import (
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
    z_quantile,
)
from uqeval.inference.result import Estimate
from uqeval.metrics.calibration import Bins, debiased_l1, l1, squared_l2
from uqeval.metrics.registry import REGISTRY

__all__ = [
    "AREAS",
    "Clustered",
    "Totals",
    "area_value",
    "best_aurc",
    "class_shifts",
    "estimate_model",
    "estimate_score",
]

AREAS = ("aurc", "e_aurc", "naurc", "augrc", "g_auc", "h_auc", "auarc", "prr")
_CAPS = {"aurc": 1.0, "augrc": 0.5, "e_aurc": 1.0, "h_auc": 0.25, "naurc": math.inf}


@dataclass(frozen=True)
class Clustered:
    """What the cluster shuffle gives: clusters, those with a right and a wrong row, and standard errors by metric."""

    count: int
    with_right: int
    with_wrong: int
    largest: int  # rows of the largest cluster
    se: dict[str, float]


@dataclass(frozen=True)
class Totals:
    """What the interval formulas ask a `Sample`, without its rows."""

    n: int
    n_errors: int
    n_clusters: int | None = None
    auc: Any = None
    constant_score: bool = False
    weights: None = None

    @property
    def clusters(self) -> int | None:
        return self.n_clusters

    @property
    def plain(self) -> bool:
        return self.n_clusters is None


def _totals(sums: ScoreSums, clustered: Clustered | None) -> Any:
    return cast(
        Any,
        Totals(
            sums.n,
            sums.wrong,
            None if clustered is None else clustered.count,
            (None, sums.auc),
            sums.constant,
        ),
    )


def estimate_score(metric: str, sums: ScoreSums, level: float, clustered: Clustered | None = None) -> Estimate:
    """One metric of one score."""
    if metric == "uq_auc":
        return _auc(sums, level, clustered)
    if metric == "uq_c_index":
        return _c_index(sums, level, clustered)
    if metric == "g_auc":
        half = _area("augrc", sums, level, clustered)
        return replace(half, value=2 * half.value, low=2 * half.low, high=2 * half.high, se=2 * half.se)
    if metric in ("aurc", "augrc"):
        return _area(metric, sums, level, clustered)
    if metric in ("auarc", "prr"):
        base = _area("aurc", sums, level, clustered) if metric == "auarc" else _excess("naurc", sums, level, clustered)
        notes = tuple(note.replace("nAURC", "PRR") for note in base.warnings)
        return replace(base, value=1 - base.value, low=1 - base.high, high=1 - base.low, warnings=notes)
    return _excess(metric, sums, level, clustered)


def _auc(sums: ScoreSums, level: float, clustered: Clustered | None) -> Estimate:
    totals = _totals(sums, clustered)
    if clustered is None or not sums.wrong or not sums.right:
        return concordance.estimate_auc(totals, level)
    sizes = clustered.with_right, clustered.with_wrong
    n_eff = sizes[0] * sizes[1] / (sizes[0] + sizes[1])
    if sums.constant:
        return concordance._constant(totals, level, n_eff, True)
    assert sums.auc is not None
    value = sums.auc.credit2 / (2 * sums.wrong * sums.right)
    how = "logit cluster jackknife t"
    return concordance._finish(totals, value, clustered.se["uq_auc"], level, how, n_eff, clustered.count - 1, True)


def _c_index(sums: ScoreSums, level: float, clustered: Clustered | None) -> Estimate:
    totals = _totals(sums, clustered)
    found = sums.concordance
    if found.comparable == 0:
        return concordance._undefined(totals, level, "UQ-C-index is undefined: all losses are equal", False)
    n = sums.n
    units = n if clustered is None else clustered.count
    n_eff = units * (found.comparable / n**2) / 2
    if sums.constant:
        return concordance._constant(totals, level, n_eff, False)
    value = found.credit2 / (2 * found.comparable)
    if clustered is not None:
        how = "logit cluster jackknife t"
        return concordance._finish(totals, value, clustered.se["uq_c_index"], level, how, n_eff, units - 1, False)
    se = NAN
    if found.shift == found.shift:
        se = math.sqrt(max(0.0, (n - 1) / n * (found.shift2 - found.shift**2 / n)))
    return concordance._finish(totals, value, se, level, "logit jackknife t", n_eff, n - 1, False)


# ---- selective prediction ---------------------------------------------------------------------------------------


def best_aurc(n: int, wrong: int) -> float:
    """AURC of the oracle, which accepts all right rows first."""
    return (wrong - (n - wrong) * harmonic(n - wrong, n)) / n if wrong < n else 1.0


def _excess_aurc(sums: ScoreSums) -> float:
    """AURC above the oracle's; exactly 0 where every wrong row lies above every right one."""
    assert sums.auc is not None
    if sums.auc.credit2 == 2 * sums.wrong * sums.right:
        return 0.0
    return sums.aurc - best_aurc(sums.n, sums.wrong)


def area_value(metric: str, sums: ScoreSums) -> float:
    """NaN where undefined."""
    n, wrong, right = sums.n, sums.wrong, sums.right
    assert sums.auc is not None
    if metric in ("naurc", "prr"):
        if not wrong or not right:
            return NAN
        ratio = _excess_aurc(sums) / (wrong / n - best_aurc(n, wrong))
        return ratio if metric == "naurc" else 1 - ratio
    if metric in ("aurc", "auarc"):
        return sums.aurc if metric == "aurc" else 1 - sums.aurc
    if metric == "e_aurc":
        return _excess_aurc(sums)
    if metric == "h_auc":
        return sums.auc.credit2 / (2 * n * n)
    half = (2 * wrong * right - sums.auc.credit2 + wrong * wrong) / (2 * n * n)
    return 2 * half if metric == "g_auc" else half


def class_shifts(metric: str, sums: ScoreSums) -> tuple[float, float, float]:
    """For a right and a wrong row what to add to the influence on AURC, and then by what to divide."""
    n, wrong = sums.n, sums.wrong
    if metric not in ("e_aurc", "naurc", "prr"):
        return 0.0, 0.0, -1.0 if metric == "auarc" else 1.0
    rate = wrong / n
    slope = -math.log1p(-rate) if rate < 1 else 0.0
    best = [slope * (v - rate) for v in (0, 1)]
    if metric == "e_aurc":
        return -best[0], -best[1], 1.0
    ratio, span = area_value("naurc", sums), rate - best_aurc(n, wrong)
    shift = [-best[v] - ratio * (v - rate - best[v]) for v in (0, 1)]
    return shift[0], shift[1], -span if metric == "prr" else span


def _area_se(metric: str, sums: ScoreSums, clustered: Clustered | None) -> float:
    """Influence-value standard error, error rows inflated by n1/(n1 − 1)."""
    if clustered is not None:
        se = clustered.se[metric]
        return settled(se) if se == se else NAN
    n, wrong = sums.n, sums.wrong
    if n < 2:
        return NAN
    assert sums.auc is not None
    if metric in ("augrc", "h_auc"):
        # Both influences are linear in the credit of UQ-AUC, so that integers do.
        if metric == "augrc":
            value = 2 * wrong * sums.right - sums.auc.credit2 + wrong * wrong  # 2n²·AUGRC
            tops = (2 * wrong, 2 * n)
            right, wrongs = (
                _squares_about(n * top - 2 * value, -n, count, sums.auc.credit2, squares)
                for top, count, squares in zip(
                    tops, (sums.right, wrong), (sums.auc.right_squares, sums.auc.wrong_squares), strict=True
                )
            )
        else:
            right, wrongs = (
                _squares_about(-2 * sums.auc.credit2, n, count, sums.auc.credit2, squares)
                for count, squares in (
                    (sums.right, sums.auc.right_squares),
                    (wrong, sums.auc.wrong_squares),
                )
            )
        of_right, of_wrong = right / (4 * n**4), wrongs / (4 * n**4)
    else:
        shift_right, shift_wrong, scale = class_shifts(metric, sums)
        of_right, of_wrong = (x / scale**2 for x in sums.aurc_squares(shift_right, shift_wrong))
    factor = n / (n - 1)
    inflate = wrong / (wrong - 1) if wrong > 1 else factor
    variance = (of_right * factor + of_wrong * inflate) / n**2
    return settled(math.sqrt(max(0.0, variance)))


def _squares_about(constant: int, slope: int, count: int, total: int, squares: int) -> int:
    """Σ (constant + slope·x)² from the count, Σx and Σx²."""
    return count * constant**2 + 2 * constant * slope * total + slope**2 * squares


def _area_result(sums: ScoreSums, clustered: Clustered | None, level: float, **found: Any) -> Estimate:
    notes = concordance.row_warnings(_totals(sums, clustered), errors=True)
    if clustered is not None and sums.wrong and clustered.with_wrong < 20 and clustered.count >= 10:
        notes = (*notes, f"the errors sit in {clustered.with_wrong} clusters: the interval may be too narrow")
    interval: Interval = found.pop("interval", UNKNOWN)
    return Estimate(
        low=interval.low,
        high=interval.high,
        level=level,
        n=sums.n,
        n_errors=sums.wrong,
        n_clusters=None if clustered is None else clustered.count,
        n_eff=float(sums.wrong),
        degenerate=math.isnan(found["value"]),
        warnings=notes,
        **found,
    )


def _area(metric: str, sums: ScoreSums, level: float, clustered: Clustered | None) -> Estimate:
    """AURC and AUGRC."""
    value, cap, errors, n = area_value(metric, sums), _CAPS[metric], sums.wrong, sums.n
    se = _area_se(metric, sums, clustered) if errors else 0.0
    if clustered is not None and clustered.count == 1:
        return _area_result(sums, clustered, level, value=value, se=NAN, method="none")
    if (errors < 10) if clustered is None else errors == 0:
        if metric == "aurc":
            squares = math.fsum(area.later2 for area in sums.areas.values()) / n**2
            largest = harmonic(0, n) / n
        else:
            squares, largest = sums.above2 / (4 * n**4), 1.0 / n
        unit = 1.0 if clustered is None else clustered.largest
        interval = fay_feuer(value, squares, largest * unit, level, cap)
        how = "gamma (Fay & Feuer)"
        return _area_result(sums, clustered, level, value=value, se=se, interval=interval, method=how)
    if value >= cap or not se > 0:  # every row wrong
        return _area_result(sums, clustered, level, value=value, se=se, method="none")
    df = errors - 1 if clustered is None else clustered.count - 1
    low, high = logit_t(value, se, level, df)
    interval = Interval(low, min(cap, high))
    return _area_result(sums, clustered, level, value=value, se=se, interval=interval, method="logit influence t")


def _excess(metric: str, sums: ScoreSums, level: float, clustered: Clustered | None) -> Estimate:
    """E-AURC, H-AUC and nAURC: log scale."""
    value, errors = area_value(metric, sums), sums.wrong
    if math.isnan(value):
        result = _area_result(sums, clustered, level, value=NAN, se=NAN, method="undefined")
        notes = (note for note in result.warnings if not note.startswith("few "))  # the reason says it all
        return replace(result, warnings=("nAURC is undefined: all losses are equal", *notes))
    if errors == 0 or sums.right == 0:
        return _area_result(sums, clustered, level, value=value, se=NAN, method="none")
    se = _area_se(metric, sums, clustered)
    if errors < 2 or value <= 0 or (clustered is not None and clustered.count == 1) or not se > 0:
        return _area_result(sums, clustered, level, value=value, se=NAN if errors < 2 else se, method="none")
    df = errors - 1 if clustered is None else clustered.count - 1
    interval = log_t(value, se, level, df, _CAPS[metric])
    return _area_result(sums, clustered, level, value=value, se=se, interval=interval, method="log influence t")


# ---- the model's own metrics ------------------------------------------------------------------------------------


def estimate_model(
    metric: str, state: State, level: float, seed: int, clustered: dict[str, float] | None = None, clusters: int = 0
) -> Estimate:
    """Accuracy, ECE, Brier score or log-loss from the counts of pass 1; `clustered` holds cluster-robust se."""
    n = int(state["rows"])
    totals: Any = Totals(n, 0, clusters if clustered is not None else None)
    if metric == "accuracy":
        return _accuracy(totals, int(state["wrong"]), level, clustered)
    if metric in ("ece", "ece_debiased"):
        return _ece(metric, totals, state, level, seed, clustered)
    if infinite := int(state[f"{metric}_infinite"]):
        notes = (f"{infinite} labels have probability 0: the log-loss is infinite",)
        return means._pack(totals, math.inf, NAN, UNKNOWN, level, "none", notes)
    _, value, squares = (float(x) for x in state[metric][0])
    variance = squares / n**2 * n / (n - 1) if clustered is None else clustered[metric] ** 2
    if math.isnan(variance):
        return means._pack(totals, value, NAN, UNKNOWN, level, "none")
    se = settled(math.sqrt(variance), abs(value))
    bounds = REGISTRY[metric].range
    low, high = t_interval(value, se, level, means._df(totals))
    return means._pack(totals, value, se, Interval(max(bounds[0], low), min(bounds[1], high)), level, "t")


def _accuracy(totals: Any, wrong: int, level: float, clustered: dict[str, float] | None) -> Estimate:
    n = totals.n
    value = (n - wrong) / n
    if clustered is None:
        se = settled(math.sqrt(wrong * (n - wrong) / (n * n * (n - 1))))
        interval = clopper_pearson(n - wrong, n, level)
        return means._pack(totals, value, se, interval, level, "Clopper–Pearson")
    se = settled(clustered["accuracy"])
    if math.isnan(se):
        return means._pack(totals, value, NAN, UNKNOWN, level, "none")
    units = means._df(totals) + 1
    if se == 0 or not 0 < value < 1:
        return means._pack(totals, value, se, clopper_pearson(value * units, units, level), level, "Clopper–Pearson")
    return means._pack(totals, value, se, logit_t(value, se, level, units - 1), level, "logit influence t")


def ece_bins(state: State) -> tuple[Bins, Int]:
    """The bins of confidence that hold rows, and their numbers among all."""
    some = np.flatnonzero(state["ece"][:, 0])
    count, gap, squares = state["ece"][some].T
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(count > 1, squares / count**2 * count / (count - 1), 0.0)
    return Bins(np.empty(0, dtype=np.int64), count / count.sum(), gap, variance), some


def _ece(
    metric: str, totals: Any, state: State, level: float, seed: int, clustered: dict[str, float] | None
) -> Estimate:
    bins, some = ece_bins(state)
    value = l1(bins) if metric == "ece" else debiased_l1(bins)
    plain, n = l1(bins), totals.n
    if clustered is None:
        count, gap, squares = state["ece"][some].T
        sign = np.sign(gap)
        variance = float((sign**2 * squares + count * (sign * gap - plain) ** 2).sum()) / n**2 * n / (n - 1)
    else:
        variance = clustered["ece"] ** 2
    if math.isnan(variance):
        return means._pack(totals, value, NAN, UNKNOWN, level, "none")
    se, centre = settled(math.sqrt(variance)), debiased_l1(bins)
    half = (z_quantile(level) if clustered is None else t_quantile(level, means._df(totals))) * se
    low = max(0.0, centre - half)
    if low > 0 and (clustered is not None or not _miscalibrated(state, bins, some, 1 - level, seed)):
        low = 0.0
    return means._pack(totals, value, se, Interval(low, min(1.0, centre + half)), level, "debiased L1, influence")


def _miscalibrated(state: State, bins: Bins, some: Int, alpha: float, seed: int) -> bool:
    """The test of perfect calibration, with the confidences of a bin pooled in cells of equal width."""
    size, total = state["confidence"]
    cells = np.flatnonzero(size)
    of_bin = np.searchsorted(some, cells // (len(size) // ECE_BINS))
    pooled = means._Cells(
        size[cells].astype(np.int64), total[cells] / size[cells], np.ones(len(cells)), of_bin.astype(np.int64)
    )
    observed = squared_l2(bins.share, bins.gap, bins.variance)
    rng = np.random.default_rng(seed)
    exceeded = 0
    for _ in range(means._REPETITIONS // 37):
        gap, variance = means._drawn(pooled, 37, rng)
        exceeded += int((((gap * gap - variance) * bins.share).sum(axis=1) >= observed).sum())
        if (1 + exceeded) / (1 + means._REPETITIONS) > alpha:
            return False
    return True
