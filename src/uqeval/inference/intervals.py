"""Tally → estimate of every metric that ranks rows: value, standard error and interval, one function for each kind.

The interval of each metric was chosen by simulation of how often it holds (`docs/theory/intervals.md`).
UQ-AUC of independent rows: DeLong with Welch–Satterthwaite degrees of freedom on the logit scale. Other pairs, weights
and clusters: the delete-one jackknife of rows or clusters. Where those break down (a single error, a perfect ranking):
Wilson with the effective number of pairs. Areas: the number of errors rules; with 10 or more, t with (errors − 1)
degrees of freedom on the logit or log scale; with fewer, the gamma interval, which works down to no error at all.
All leave room for what was not seen (`unseen`). The model's own metrics are in `means`.

A tally with a lane for each of many groups gives `Estimates`, by the same lines (`_lanes`).
"""

from dataclasses import replace
from typing import Any

from uqeval._lanes import Number, choose, has_lanes, isnan, larger, smaller, sqrt
from uqeval.inference.forms import (
    NAN,
    UNKNOWN,
    Interval,
    clopper_pearson,
    fay_feuer,
    hull,
    log_t,
    logit_t,
    settled,
    t_quantile,
    wilson,
    z_quantile,
)
from uqeval.inference.outcome import FEW, Found, as_estimate, cluster_se, single_cluster
from uqeval.inference.result import noted
from uqeval.inference.sizes import Sizes
from uqeval.inference.tally import AreaTally, AucTally, PairTally
from uqeval.inference.unseen import accepted_high, area_ends, auc_ends, pair_ends, rate_bend
from uqeval.metrics.areas import H_AUC, Accepted
from uqeval.metrics.registry import Metric


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


def _undefined(metric: Metric, sizes: Sizes, level: float, n_eff: Number, reason: str) -> Found:
    result = as_estimate(sizes, level, n_eff, NAN, se=NAN, method="undefined")
    notes = [note for note in result.warnings if not str(getattr(note, "text", note)).startswith("few ")]
    said = noted(isnan(result.value), f"{metric.title} is undefined: {reason}")
    return replace(result, warnings=(*said, *notes))  # the reason says it all


def _constant(sizes: Sizes, level: float, n_eff: Number) -> Found:
    se, interval = (NAN, UNKNOWN) if single_cluster(sizes) else (0.0, Interval(0.5, 0.5))
    first = noted(sizes.rows > 0, "the score is constant")
    return as_estimate(
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
        interval = hull(wilson(value, n_eff, level), auc_ends(tally, se, level))
        return as_estimate(sizes, level, n_eff, value, se=se, interval=interval, method="Wilson")

    def regular() -> Found:
        right_part = (right * tally.right_squares - total**2) / (4 * wrong**2 * right**2 * (right - 1))
        wrong_part = (wrong * tally.wrong_squares - total**2) / (4 * right**2 * wrong**2 * (wrong - 1))
        variance = right_part + wrong_part
        se = sqrt(variance)

        def welch() -> Found:
            df = variance**2 / (right_part**2 / (right - 1) + wrong_part**2 / (wrong - 1))
            interval = hull(logit_t(value, se, level, df), auc_ends(tally, se, level))
            method = "logit DeLong, Welch t; an unseen error"
            return as_estimate(sizes, level, n_eff, value, se=se, interval=interval, method=method)

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
    if single_cluster(sizes):
        return as_estimate(sizes, level, n_eff, value, se=NAN, method=method)
    se = settled(sqrt((left.units - 1) / left.units * left.squares))
    room = auc_ends(tally, se, level) if isinstance(tally, AucTally) else pair_ends(tally, se, level)
    unseen = "error" if isinstance(tally, AucTally) else "row"

    def regular() -> Found:
        if sizes.clusters is not None and isnan(se):
            first = ("without one cluster the metric is undefined: the interval is all there is",)
            return as_estimate(
                sizes, level, n_eff, value, se=se, interval=Interval(0.0, 1.0), method="all values", first=first
            )
        interval = hull(logit_t(value, se, level, df), room)
        return as_estimate(sizes, level, n_eff, value, se=se, interval=interval, method=f"{method}; an unseen {unseen}")

    def by_wilson() -> Found:
        interval = hull(wilson(value, n_eff, level), room)
        return as_estimate(sizes, level, n_eff, value, se=se, interval=interval, method="Wilson")

    return choose((value == 0) | (value == 1) | (se == 0) | (isnan(se) & (sizes.clusters is None)), by_wilson, regular)


# ---- areas ------------------------------------------------------------------------------------------------------


def _area_se(tally: AreaTally) -> Number:
    """From squared influences, those of wrong rows inflated by errors/(errors − 1)."""
    sizes = tally.sizes
    if tally.clusters2 is not None:
        return cluster_se(tally.clusters2, sizes)

    def of_rows() -> Number:
        factor = sizes.rows / (sizes.rows - 1)
        inflate = choose(sizes.errors > 1, lambda: sizes.errors / (sizes.errors - 1), lambda: factor)
        return settled(sqrt(tally.right2 * factor + tally.wrong2 * inflate))

    return choose(sizes.rows < 2, lambda: NAN, of_rows)


def _area_estimate(tally: AreaTally, level: float, **found: Any) -> Found:
    sizes, notes = tally.sizes, tuple[str, ...]()
    if sizes.clusters is not None and sizes.wrong.rows and sizes.clusters.wrong < 20 and sizes.clusters.all >= FEW:
        notes = (f"the errors sit in {sizes.clusters.wrong} clusters: the interval is wide",)
    return as_estimate(sizes, level, sizes.errors, tally.value, notes=notes, **found)


def _cap(metric: Metric) -> float:
    """The largest value of what the tally estimates."""
    a, b = metric.affine
    return (metric.range[1 if b > 0 else 0] - a) / b


def _df(sizes: Sizes) -> Number:
    return (sizes.errors if sizes.clusters is None else sizes.units) - 1


def _area(metric: Metric, tally: AreaTally, level: float) -> Found:
    """AURC and AUGRC."""
    sizes, value, cap = tally.sizes, tally.value, _cap(metric)
    if single_cluster(sizes):
        return _area_estimate(tally, level, se=NAN, method="none")
    se = choose(sizes.wrong.rows > 0, lambda: _area_se(tally), lambda: 0.0)

    def gamma() -> Found:
        interval = fay_feuer(value, tally.contributions2, tally.largest, level, cap)
        return _area_estimate(tally, level, se=se, interval=interval, method="gamma (Fay & Feuer)")

    def logit() -> Found:
        low, high = logit_t(value, se, level, _df(sizes))
        interval = hull(Interval(low, smaller(cap, high)), area_ends(tally, se, cap, level))
        return _area_estimate(tally, level, se=se, interval=interval, method="logit influence t; an unseen error")

    def none() -> Found:  # every row wrong
        return _area_estimate(tally, level, se=se, method="none")

    def uneven() -> Found:  # few errors by weight, or in clusters without spread; there are no lanes
        interval = area_ends(tally, se, cap, level)
        if sizes.errors < 2:  # one error weighs more than all others: it has no spread to speak of
            interval = hull(interval, fay_feuer(value, tally.contributions2, tally.largest, level, cap))
        return _area_estimate(tally, level, se=se, interval=interval, method="gamma; an unseen error")

    if sizes.plain:
        few = sizes.errors < FEW
        return choose(few, gamma, lambda: choose((value < cap) & (se > 0), logit, none))
    if not sizes.wrong.rows:
        return gamma()
    if value >= cap or isnan(se):
        return none()
    return logit() if se > 0 and (sizes.clusters is not None or sizes.errors >= FEW) else uneven()


def _excess(metric: Metric, tally: AreaTally, level: float) -> Found:
    """E-AURC, H-AUC and nAURC: log scale, and gamma where errors are too few for it."""
    sizes, value, cap = tally.sizes, tally.value, _cap(metric)
    both = (sizes.wrong.rows > 0) & ((sizes.right.rows > 0) | (not sizes.binary))
    se = choose(both & (sizes.errors >= 2), lambda: _area_se(tally), lambda: NAN)
    bent = rate_bend(sizes, level) if metric.formula is H_AUC else 1.0

    def on_log_scale() -> Found:
        low, high = hull(log_t(value, se, level, _df(sizes), cap), area_ends(tally, se, cap, level))
        interval = Interval(low * bent, high)
        return _area_estimate(tally, level, se=se, interval=interval, method="log influence t; an unseen error")

    def few() -> Found:
        low, high = area_ends(tally, se, cap, level)
        interval = Interval(choose(se > 0, lambda: low * bent, lambda: 0.0), high)
        return _area_estimate(tally, level, se=se, interval=interval, method="gamma; an unseen error")

    def known() -> Found:
        if single_cluster(sizes):
            return _area_estimate(tally, level, se=se, method="none")
        return choose(
            ((sizes.right.rows > 0) | (not sizes.binary)) & (value >= 0),  # weights may take E-AURC below 0
            lambda: choose((value > 0) & (se > 0), on_log_scale, few),
            lambda: _area_estimate(tally, level, se=se, method="none"),
        )

    return choose(isnan(value), lambda: _undefined(metric, sizes, level, sizes.errors, metric.undefined), known)


def _accepted(metric: Metric, tally: AreaTally, level: float) -> Found:
    """Risk of the surest share: Clopper–Pearson with as many rows as would have this variance (Korn & Graubard 1998).

    The variance has a part of the cut, which moves with the rows. That of the accepted rows is taken half an error
    higher, so that it does not vanish where none is wrong.
    """
    assert isinstance(metric.formula, Accepted)
    sizes, value = tally.sizes, tally.value
    if single_cluster(sizes):
        return _area_estimate(tally, level, se=NAN, method="none")
    if tally.clusters2 is not None:
        se = cluster_se(tally.clusters2, sizes)
    else:
        se = settled(sqrt((tally.right2 + tally.wrong2) * sizes.rows / (sizes.rows - 1)))
    trials = metric.formula.coverage * sizes.units
    smooth = (value * trials + 0.5) / (trials + 1)
    variance = se * se + (smooth * (1 - smooth) - value * (1 - value)) / trials
    size = smooth * (1 - smooth) / larger(variance, 1e-12)  # 0 where all losses are ½
    if not sizes.plain:
        size *= (z_quantile(level) / t_quantile(level, sizes.units - 1)) ** 2
    low, high = clopper_pearson(value * size, size, level)
    if not sizes.plain:  # there are no lanes
        high = max(high, accepted_high(sizes, value, se, metric.formula.coverage, level))
    return _area_estimate(tally, level, se=se, interval=Interval(low, high), method="Clopper–Pearson, effective rows")
