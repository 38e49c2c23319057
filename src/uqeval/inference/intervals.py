"""Tally → estimate, the only place: value, standard error and interval of every metric, one function for each kind.

The interval of each metric was chosen by simulation of how often it holds (`docs/theory/intervals.md`).
UQ-AUC of independent rows: DeLong with Welch–Satterthwaite degrees of freedom on the logit scale. Other pairs, weights
and clusters: the delete-one jackknife of rows or clusters. Where those break down (a single error, a perfect ranking):
Wilson with the effective number of pairs. Areas: the number of errors rules; with 10 or more, t with (errors − 1)
degrees of freedom on the logit or log scale; with fewer, the gamma interval, which works down to no error at all.

A tally with a lane for each of many groups gives `Estimates`, by the same lines (`_lanes`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from uqeval._lanes import Number, choose, has_lanes, isnan, larger, nearest_whole, smaller, sqrt
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
from uqeval.inference.result import Estimate, Estimates, noted
from uqeval.inference.tally import AreaTally, AucTally, EceTally, MeanTally, PairTally, Sizes
from uqeval.metrics.areas import Accepted
from uqeval.metrics.calibration import debiased_l1
from uqeval.metrics.registry import Metric

Found = Any  # Estimate, or Estimates where the tally has lanes
_FEW = 10


def estimate_ranking(metric: Metric, tally: AucTally | PairTally | AreaTally, level: float) -> Found:
    """A metric that ranks rows."""
    return in_units(metric, tally, estimate_tally(metric, tally, level))


def estimate_tally(metric: Metric, tally: AucTally | PairTally | AreaTally, level: float) -> Found:
    """What the tally gives …"""
    if isinstance(tally, AucTally):
        return _auc(metric, tally, level)
    if isinstance(tally, PairTally):
        return _pairs(metric, tally, level)
    return {"gamma": _area, "log": _excess, "binomial": _accepted}[metric.interval](metric, tally, level)


def in_units(metric: Metric, tally: AucTally | PairTally | AreaTally, found: Found) -> Found:
    """… and the metric, a + b times it."""
    if metric.affine == (0.0, 1.0):
        return found
    a, b = metric.affine
    low, high = (a + b * found.low, a + b * found.high)[:: 1 if b > 0 else -1]
    return replace(found, value=tally.mapped(metric.affine), low=low, high=high, se=abs(b) * found.se)


# ---- what all share ---------------------------------------------------------------------------------------------


def _limits(sizes: Sizes) -> tuple[Any, ...]:
    """What limits an estimate from these rows."""
    notes: tuple[Any, ...] = ()
    if sizes.binary:
        for rows, what in ((sizes.wrong.rows, "errors"), (sizes.right.rows, "right rows")):
            notes += noted(rows < _FEW, f"few {what} ({{}}): the interval is wide and conservative", rows)
        if sizes.weighted and sizes.wrong.rows >= _FEW and (size := sizes.wrong.size) < 20:
            notes += (f"the errors weigh as few as {size:.0f} rows: the interval may be too narrow",)
    if sizes.clusters is not None and sizes.clusters.all == 1:
        notes += ("a single cluster: no standard error or interval",)
    elif sizes.clusters is not None and sizes.clusters.all < _FEW:
        notes += (f"few clusters ({sizes.clusters.all}): the interval is unreliable",)
    return notes


def _estimate(
    sizes: Sizes,
    level: float,
    n_eff: Number,
    value: Number,
    *,
    se: Number,
    method: str,
    interval: Interval = UNKNOWN,
    degenerate: bool = False,
    first: tuple[Any, ...] = (),
    notes: tuple[Any, ...] = (),
) -> Found:
    given: dict[str, Any] = {
        "value": value,
        "low": interval.low,
        "high": interval.high,
        "se": se,
        "level": level,
        "method": method,
        "n": sizes.rows,
        "n_errors": sizes.wrong.rows if sizes.binary else None,
        "n_clusters": None if sizes.clusters is None else sizes.clusters.all,
        "n_eff": n_eff,
        "degenerate": degenerate or isnan(value),
        "warnings": (*first, *_limits(sizes), *notes),
    }
    return Estimates.of(**given) if has_lanes(sizes.rows) else Estimate(**given)


def _undefined(metric: Metric, sizes: Sizes, level: float, n_eff: Number, reason: str) -> Found:
    result = _estimate(sizes, level, n_eff, NAN, se=NAN, method="undefined")
    notes = [note for note in result.warnings if not str(getattr(note, "text", note)).startswith("few ")]
    said = noted(isnan(result.value), f"{metric.title} is undefined: {reason}")
    return replace(result, warnings=(*said, *notes))  # the reason says it all


def _single(sizes: Sizes) -> bool:
    return sizes.clusters is not None and sizes.clusters.all == 1


def _constant(sizes: Sizes, level: float, n_eff: Number) -> Found:
    se, interval = (NAN, UNKNOWN) if _single(sizes) else (0.0, Interval(0.5, 0.5))
    first = noted(sizes.rows > 0, "the score is constant")
    return _estimate(
        sizes, level, n_eff, 0.5, se=se, interval=interval, method="constant score", degenerate=True, first=first
    )


# ---- pairs ------------------------------------------------------------------------------------------------------


def _auc(metric: Metric, tally: AucTally, level: float) -> Found:
    sizes = tally.sizes
    wrong, right = sizes.wrong.rows, sizes.right.rows

    def without(what: str) -> Found:
        return _undefined(metric, sizes, level, 0.0, f"the test set has no {what} prediction")

    def known() -> Found:
        of_right, of_wrong = sizes.sides
        n_eff = of_right * of_wrong / (of_right + of_wrong)
        if tally.left is None:
            return choose(tally.constant, lambda: _constant(sizes, level, n_eff), lambda: _delong(tally, level, n_eff))
        if tally.constant:
            return _constant(sizes, level, n_eff)
        df = sizes.units - 1 if sizes.clusters is not None else min(of_right, of_wrong) - 1
        return _jackknifed(metric, tally, level, n_eff, df)

    return choose(
        (wrong > 0) & (right > 0), known, lambda: choose(wrong > 0, lambda: without("right"), lambda: without("wrong"))
    )


def _delong(tally: AucTally, level: float, n_eff: Number) -> Found:
    """DeLong's two terms, exact integers up to the last division."""
    sizes, value = tally.sizes, tally.value
    wrong, right = sizes.wrong.rows, sizes.right.rows
    total = tally.credit2 if has_lanes(wrong) else int(tally.credit2)

    def by_wilson(se: Number) -> Found:
        return _estimate(sizes, level, n_eff, value, se=se, interval=wilson(value, n_eff, level), method="Wilson")

    def regular() -> Found:
        right_part = (right * tally.right_squares - total**2) / (4 * wrong**2 * right**2 * (right - 1))
        wrong_part = (wrong * tally.wrong_squares - total**2) / (4 * right**2 * wrong**2 * (wrong - 1))
        variance = right_part + wrong_part
        se = sqrt(variance)

        def welch() -> Found:
            df = variance**2 / (right_part**2 / (right - 1) + wrong_part**2 / (wrong - 1))
            interval = logit_t(value, se, level, df)
            return _estimate(sizes, level, n_eff, value, se=se, interval=interval, method="logit DeLong, Welch t")

        return choose((value == 0) | (value == 1) | (se == 0), lambda: by_wilson(se), welch)

    return choose((wrong == 1) | (right == 1), lambda: by_wilson(NAN), regular)


def _pairs(metric: Metric, tally: PairTally, level: float) -> Found:
    sizes = tally.sizes

    def known() -> Found:
        n_eff = sizes.units * tally.comparable / sizes.total.weight**2 / 2
        return choose(
            tally.constant,
            lambda: _constant(sizes, level, n_eff),
            lambda: _jackknifed(metric, tally, level, n_eff, sizes.units - 1),
        )

    undefined = (tally.comparable == 0) | isnan(tally.value)
    return choose(undefined, lambda: _undefined(metric, sizes, level, 0.0, metric.undefined), known)


def _jackknifed(metric: Metric, tally: AucTally | PairTally, level: float, n_eff: Number, df: Number) -> Found:
    """The regular interval, or Wilson where there is no standard error to speak of."""
    sizes, value, left = tally.sizes, tally.value, tally.left
    assert left is not None
    method = f"{metric.interval} {'cluster ' if sizes.clusters is not None else ''}jackknife t"
    if _single(sizes):
        return _estimate(sizes, level, n_eff, value, se=NAN, method=method)
    se = settled(sqrt((left.units - 1) / left.units * left.squares))

    def regular() -> Found:
        if sizes.clusters is not None and isnan(se):
            first = ("without one cluster the metric is undefined: no interval",)
            return _estimate(sizes, level, n_eff, value, se=se, method=method, first=first)
        return _estimate(sizes, level, n_eff, value, se=se, interval=logit_t(value, se, level, df), method=method)

    return choose(
        (value == 0) | (value == 1) | (se == 0) | (isnan(se) & (sizes.clusters is None)),
        lambda: _estimate(sizes, level, n_eff, value, se=se, interval=wilson(value, n_eff, level), method="Wilson"),
        regular,
    )


# ---- areas ------------------------------------------------------------------------------------------------------


def _area_se(tally: AreaTally) -> Number:
    """From squared influences, those of wrong rows inflated by errors/(errors − 1)."""
    sizes = tally.sizes
    if tally.clusters2 is not None:
        return _cluster_se(tally.clusters2, sizes)

    def of_rows() -> Number:
        factor = sizes.rows / (sizes.rows - 1)
        inflate = choose(sizes.errors > 1, lambda: sizes.errors / (sizes.errors - 1), lambda: factor)
        return settled(sqrt(tally.right2 * factor + tally.wrong2 * inflate))

    return choose(sizes.rows < 2, lambda: NAN, of_rows)


def _cluster_se(squares: float, sizes: Sizes, scale: float = 1.0) -> Number:
    count = 0 if sizes.clusters is None else sizes.clusters.all
    return settled(sqrt(squares * count / (count - 1)), scale) if count > 1 else NAN


def _area_estimate(tally: AreaTally, level: float, **found: Any) -> Found:
    sizes, notes = tally.sizes, tuple[str, ...]()
    if sizes.clusters is not None and sizes.wrong.rows and sizes.clusters.wrong < 20 and sizes.clusters.all >= _FEW:
        notes = (f"the errors sit in {sizes.clusters.wrong} clusters: the interval may be too narrow",)
    return _estimate(sizes, level, sizes.errors, tally.value, notes=notes, **found)


def _cap(metric: Metric) -> float:
    """The largest value of what the tally estimates."""
    a, b = metric.affine
    return (metric.range[1 if b > 0 else 0] - a) / b


def _df(sizes: Sizes) -> Number:
    return (sizes.errors if sizes.clusters is None else sizes.units) - 1


def _area(metric: Metric, tally: AreaTally, level: float) -> Found:
    """AURC and AUGRC."""
    sizes, value, cap = tally.sizes, tally.value, _cap(metric)
    if _single(sizes):
        return _area_estimate(tally, level, se=NAN, method="none")
    se = choose(sizes.wrong.rows > 0, lambda: _area_se(tally), lambda: 0.0)

    def gamma() -> Found:
        interval = fay_feuer(value, tally.contributions2, tally.largest, level, cap)
        return _area_estimate(tally, level, se=se, interval=interval, method="gamma (Fay & Feuer)")

    def logit() -> Found:
        low, high = logit_t(value, se, level, _df(sizes))
        return _area_estimate(
            tally, level, se=se, interval=Interval(low, smaller(cap, high)), method="logit influence t"
        )

    def none() -> Found:  # every row wrong
        return _area_estimate(tally, level, se=se, method="none")

    few = sizes.errors < _FEW if sizes.clusters is None else sizes.wrong.rows == 0
    return choose(few, gamma, lambda: choose((value < cap) & (se > 0), logit, none))


def _excess(metric: Metric, tally: AreaTally, level: float) -> Found:
    """E-AURC, H-AUC and nAURC: log scale."""
    sizes, value = tally.sizes, tally.value
    both = (sizes.wrong.rows > 0) & ((sizes.right.rows > 0) | (not sizes.binary))
    se = choose(both & (sizes.errors >= 2), lambda: _area_se(tally), lambda: NAN)

    def on_log_scale() -> Found:
        interval = log_t(value, se, level, _df(sizes), _cap(metric))
        return _area_estimate(tally, level, se=se, interval=interval, method="log influence t")

    return choose(
        isnan(value),
        lambda: _undefined(metric, sizes, level, sizes.errors, metric.undefined),
        lambda: choose(
            (value > 0) & (se > 0) & (not _single(sizes)),
            on_log_scale,
            lambda: _area_estimate(tally, level, se=se, method="none"),
        ),
    )


def _accepted(metric: Metric, tally: AreaTally, level: float) -> Found:
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
        se = settled(sqrt((tally.right2 + tally.wrong2) * sizes.rows / (sizes.rows - 1)))
    trials = metric.formula.coverage * sizes.units
    smooth = (value * trials + 0.5) / (trials + 1)
    variance = se * se + (smooth * (1 - smooth) - value * (1 - value)) / trials
    size = smooth * (1 - smooth) / larger(variance, 1e-12)  # 0 where all losses are ½
    if not sizes.plain:
        size *= (z_quantile(level) / t_quantile(level, sizes.units - 1)) ** 2
    interval = clopper_pearson(value * size, size, level)
    return _area_estimate(tally, level, se=se, interval=interval, method="Clopper–Pearson, effective rows")


# ---- the model itself -------------------------------------------------------------------------------------------


def _mean_estimate(sizes: Sizes, level: float, value: Number, **found: Any) -> Found:
    notes, interval = found.pop("notes", ()), found.get("interval", UNKNOWN)
    if not _single(sizes):
        alike = (found["se"] == 0) & (interval.low == interval.high)
        notes += noted(alike & (sizes.rows > 0), "all rows are alike: an interval without width")
    return _estimate(sizes, level, sizes.units, value, first=notes, **found)


def _mean_se(tally: MeanTally | EceTally, scale: Number = 1.0) -> Number:
    if tally.clusters2 is not None:
        return _cluster_se(tally.clusters2, tally.sizes, scale)
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
        interval = Interval(larger(metric.range[0], low), smaller(metric.range[1], high))
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="t")

    if share and sizes.plain:
        return of_share(nearest_whole(value * sizes.rows))
    if share and not isnan(se):  # weights or clusters, which have no lanes
        if se == 0 or not 0 < value < 1:
            return of_share(value * sizes.units)
        interval = logit_t(value, se, level, sizes.units - 1)
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="logit influence t")
    return choose(isnan(se), lambda: _mean_estimate(sizes, level, value, se=NAN, method="none"), by_t)


def estimate_ece(metric: Metric, tally: EceTally, level: float, rejected: Callable[[Any], Any]) -> Found:
    """ECE, plug-in or debiased; the interval of both is about the latter.

    The lower end is 0 unless a test of perfect calibration rejects (`calibrated`; asked where it is needed, with the
    lanes that need it); with clusters no such test is at hand.
    """
    assert metric.by_bin is not None
    sizes, value = tally.sizes, metric.by_bin(tally.bins)
    se = _mean_se(tally)

    def regular() -> Found:
        clustered, centre = sizes.clusters is not None, debiased_l1(tally.bins)
        half = (t_quantile(level, sizes.units - 1) if clustered else z_quantile(level)) * se
        low = larger(0.0, centre - half)
        kept = (low > 0) & (not clustered)
        if np.any(kept):
            kept = rejected(kept)
        interval = Interval(choose(kept, lambda: low, lambda: 0.0), smaller(1.0, centre + half))
        return _mean_estimate(sizes, level, value, se=se, interval=interval, method="debiased L1, influence")

    return choose(isnan(se), lambda: _mean_estimate(sizes, level, value, se=NAN, method="none"), regular)
