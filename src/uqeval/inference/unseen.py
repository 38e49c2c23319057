"""The unit that was not seen: what an interval leaves room for where few rows, or heavy ones, decide.

A standard error is made of what was seen. Where a good score meets few errors, none of them may be badly placed; where
weights differ, or clusters, the heavy wrong unit may be missing by luck: then it is far too small, whatever the
formula. So a part of a made-up unit, badly placed, is put beside the rows. The interval is that of the rows joined
with the Beta or gamma law that has the mean and the variance of both. How much of a unit, how heavy and where was
chosen by simulation of how often the interval holds (`docs/theory/intervals.md`).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from uqeval._lanes import Number, choose, isnan, larger, log
from uqeval.inference.forms import Interval, beta_quantile, fay_feuer, z_quantile
from uqeval.inference.sizes import Powers, Sizes
from uqeval.inference.tally import AreaTally, AucTally, MeanTally, PairTally, Room
from uqeval.metrics.areas import AUGRC, H_AUC, Formula
from uqeval.metrics.registry import Metric

_PLACES = (0.25, 0.75)  # where a made-up row ranks, for the lower and for the upper end
_PART = 0.75  # of a made-up unit, where it is not half a one
_CLUSTER = 0.4  # of a cluster beside those of UQ-C-index: nobody knows whether its rows are copies or strangers
# Uneven weights ask for more: as many times the part as rows are more than they are worth, at most …
_MOST_AUC, _MOST_PAIRS, _MOST_AREA = 2.0, 3.0, 1.5
_OF_AREA = 0.75  # … of areas three quarters of that
_ABOVE = 0.25  # of a known row that no foreign one outranks
_MOST = 3.0  # times the variance that few wrong clusters show
_ROW = 0.9  # of a wrong row at ¼ of the ranks by one of two scores


def auc_ends(tally: AucTally, se: Number, level: float) -> Interval:
    """Of UQ-AUC, with half a wrong unit (or half a right one, where those are fewer) beside the rows."""
    sizes = tally.sizes
    return _ranked_ends(tally.value, se, _half(sizes), larger(1.0, sizes.numbers[1]), tally.places, level)


def _half(sizes: Sizes) -> Number:
    """Share of half a unit among the wrong rows, or among the right ones where it is larger."""
    if sizes.loads is None:
        return larger(0.5 / sizes.wrong.rows, 0.5 / sizes.right.rows)
    part = 0.5 * min(_MOST_AUC, sizes.unevenness)
    return max(part * _unit(sizes, side) / side.first for side in (sizes.loads.wrong, sizes.loads.right))


def _unit(sizes: Sizes, side: Powers, part: float = 1.0) -> float:
    """Weight of a unit of that side that was not seen: a heavy row, or (part of) a typical cluster.

    Or the largest cluster that there can be, where a user said how large.
    """
    assert sizes.loads is not None
    return max(part * side.typical if sizes.grouped else side.heavy, sizes.loads.rows.heavy, sizes.possible)


def _whole(sizes: Sizes) -> float:
    """The part of a typical cluster that joins a mean: half of it where all are alike, all where they are uneven.

    The more uneven clusters are, the more the one that is missing by luck would have changed.
    """
    if sizes.loads is None or sizes.clusters is None or not sizes.grouped:
        return 1.0
    units = sizes.loads.units
    return min(1.0, max(0.5, 4 * (units.typical * sizes.clusters.all / units.first - 1)))


def pair_ends(tally: PairTally, se: Number, level: float) -> Interval:
    """Of UQ-C-index, with three quarters of a row beside the rows, or a part of a cluster."""
    sizes = tally.sizes
    if sizes.loads is None:
        return _ranked_ends(tally.value, se, _PART / sizes.rows, sizes.rows, _PLACES, level)
    units, heavy = sizes.loads.units, _PART * min(_MOST_PAIRS, sizes.unevenness) * sizes.loads.rows.heavy
    if sizes.grouped:
        heavy = max(heavy, _CLUSTER * units.typical)
    heavy = max(heavy, sizes.possible)
    return _ranked_ends(tally.value, se, heavy / units.first, units.number, _PLACES, level)


def precision_ends(value: float, se: float, known: int, foreign: int, level: float) -> Interval:
    """Of an average precision, with half a row of the smaller side beside it, ranked as badly or as well as can be.

    A known row above all m foreign ones takes 1/(k + 1) off the precision at the k-th of them, about ln m/m in all.
    """
    rows, tail = min(known, foreign), (1 - level) / 2
    above = _ABOVE * float((1 / np.arange(1, foreign + 1)).sum()) / foreign
    low = _beside(value, se * se, max(0.5 / rows, above), rows, 0.0)
    high = _beside(value, se * se, 0.5 / rows, rows, 1.0)
    return Interval(beta_quantile(*low, tail), beta_quantile(*high, 1 - tail))


def _ranked_ends(
    value: Number, se: Number, share: Number, units: Number, places: tuple[float, float], level: float
) -> Interval:
    tail, variance = (1 - level) / 2, choose(isnan(se), lambda: 0.0, lambda: se * se)
    low, high = (_beside(value, variance, share, units, place) for place in places)
    return Interval(beta_quantile(*low, tail), beta_quantile(*high, 1 - tail))


def _beside(value: Number, variance: Number, share: Number, units: Number, place: float) -> tuple[Number, Number]:
    """Mean and variance of the rows and a unit of that share of their weight and that value."""
    mean = (value + share * place) / (1 + share)
    moved, apart = (
        value - mean,
        share * (place - mean),
    )  # products, not powers: those of Python raise where they overflow
    return mean, (variance + moved * moved / units + apart * apart) / ((1 + share) * (1 + share))


def adds(areas: Any, formula: Formula, total: Number, place: float = _PLACES[0]) -> Number:
    """What the made-up part of an error at that place, of weight 1 among `total`, adds to a metric of the areas.

    To H-AUC at most 1.
    """
    if formula is H_AUC:
        return 1.0 / total
    per = formula.per(areas)  # 0 where the metric is undefined
    one = _PART * _reach(formula, place) / total
    return choose(per > 0, lambda: one / per, lambda: 0.0)


def _reach(formula: Formula, place: float) -> float:
    """What n times a wrong row at that place adds: to AURC −ln of the place, to AUGRC what lies behind it."""
    if formula is H_AUC:
        return 1.0
    if formula is AUGRC:
        return 1 - place
    return -math.log(max(place, 1 - formula.rejected)) / formula.rejected


def area_ends(tally: AreaTally, se: Number, cap: float, level: float) -> Interval:
    """Of an area: gamma (Fay & Feuer), with a part of a wrong unit beside the rows."""
    sizes, value = tally.sizes, larger(0.0, tally.value)
    variance = choose(isnan(se), lambda: value * value, lambda: se * se)  # of a single error: its part is all there is
    return fay_feuer(value, variance * _inflated(sizes), _heavy(sizes) * tally.adds, level, cap)


def rate_bend(sizes: Sizes, level: float) -> Number:
    """What the lower end of H-AUC = UQ-AUC·r(1 − r) is multiplied by, r the error rate.

    Near r = ½ the product is flat, and a standard error sees no slope; yet a rate t standard errors away has t²r(1 − r)
    over the number of units less of it. Far from ½ the slope says it all: hence 4r(1 − r).
    """
    rate = sizes.wrong.weight / larger(1e-300, sizes.total.weight)
    units = larger(1.0, 1.0 * sizes.units if sizes.loads is None else sizes.loads.units.number)
    part = 4.0 if sizes.clusters is None else 2.0
    return larger(0.0, 1 - part * rate * (1 - rate) * z_quantile(level) ** 2 / units)


def _heavy(sizes: Sizes) -> float:
    """Weight of a wrong unit that was not seen."""
    if sizes.loads is None:
        return 1.0
    return min(_MOST_AREA, max(1.0, _OF_AREA * sizes.unevenness)) * _unit(sizes, sizes.loads.wrong, _whole(sizes))


def _inflated(sizes: Sizes) -> float:
    """What the variance of an area is multiplied by where few clusters hold the errors."""
    if sizes.loads is None or sizes.clusters is None:
        return 1.0
    number = sizes.loads.wrong.number
    return min(_MOST, number / (number - 1)) if number > 1 else _MOST


# ---- differences ------------------------------------------------------------------------------------------------


def room_beside(metric: Metric, sizes: Sequence[Sizes], pers: Sequence[float]) -> Room | None:
    """What a difference leaves room for: half a unit that one candidate ranks at ¼ and the other at ¾.

    `pers` are what areas are divided by. None for the model's own metrics, where nothing is wrong or right, and of a
    single cluster, which says nothing.
    """
    held = [one.clusters for one in sizes if one.clusters is not None]
    if any(one.all < 2 for one in held):
        return None
    if metric.tally == "auc":
        if min(min(one.wrong.weight, one.right.weight) for one in sizes) <= 0:
            return None
        alone = any(min(one.right, one.wrong) < 2 for one in held)
        return Room(
            math.inf if alone else max(_half(one) for one in sizes), max(1.0, min(one.numbers[1] for one in sizes))
        )
    if metric.tally in ("pairs", "tau"):
        one = sizes[0]
        if one.loads is None:
            return Room(0.5 / one.rows, one.rows)
        return Room(0.5 * _unit(one, one.loads.units) / one.loads.units.first, one.loads.units.number)
    if not isinstance(metric.formula, Formula) or not min(pers) > 0:
        return None
    heavy, total = max(_heavy(one) for one in sizes), float(sizes[0].total.weight)
    mean, (near, far) = total / sizes[0].rows, (_reach(metric.formula, place) for place in _PLACES)
    # Half a wrong unit that one score ranks at ¼ and the other at ¾, of H-AUC at any two places.
    apart = 0.5 if metric.formula is H_AUC else (near - far) / 2
    adds = max(apart * heavy, _ROW * near * mean) / total / min(pers)
    return Room(heavy / (2 * total), 1.0, adds, max(_inflated(one) for one in sizes))


class Two(NamedTuple):
    """Values of the two candidates of a difference, their variances, and that of the difference."""

    values: tuple[float, float]
    variances: tuple[float, float]
    gap: float


def difference_ends(room: Room, two: Two, level: float) -> Interval:
    """Of a difference with that room: from the gamma ends of both areas, or the Beta law over [−1, 1]."""
    a, b = room.affine
    scale, difference = abs(b), two.values[0] - two.values[1]
    gap = difference / scale
    variance = two.gap / scale**2 if two.gap > 0 else gap * gap  # no spread was seen: the difference may be chance
    if room.adds is not None:
        values = [(value - a) / b for value in two.values]
        variances = [one / scale**2 if two.gap > 0 else variance / 2 for one in two.variances]
        low, high = _recovered(room, values, variances, variance, level)
        ends = (difference + b * low, difference + b * high)
        return Interval(min(ends), max(ends))

    if math.isinf(room.share):
        return Interval(-scale, scale)

    def low_end(gap: float) -> float:
        joined = _beside((gap + 1) / 2, variance / 4, room.share, room.units, _PLACES[0])
        return scale * (2 * float(beta_quantile(*joined, (1 - level) / 2)) - 1)

    return Interval(low_end(gap), -low_end(-gap))  # turning the pair round turns the sign, to the last bit


def _recovered(
    room: Room, values: Sequence[float], variances: Sequence[float], gap: float, level: float
) -> tuple[float, float]:
    """How far a difference of areas reaches to each side, from how far each area does (MOVER, Zou 2007).

    Areas are skewed: the score whose errors lie badly has more to gain than to lose. The normal law forgets that.
    """
    assert room.adds is not None
    both = math.sqrt(variances[0] * variances[1])
    alike = max(-1.0, min(1.0, (variances[0] + variances[1] - gap) / (2 * both))) if both > 0 else 0.0
    down, up = [], []
    for value, variance in zip(values, variances, strict=True):
        low, high = fay_feuer(max(0.0, value), variance * room.inflate, room.adds, level, math.inf)
        down.append(value - low)
        up.append(high - value)

    def reach(first: float, second: float) -> float:
        return math.sqrt(max(0.0, first * first + second * second - 2 * alike * (first * second)))

    return -reach(down[0], up[1]), reach(up[0], down[1])


def accepted_high(sizes: Sizes, value: float, se: float, coverage: float, level: float) -> float:
    """Upper end of the risk of the surest share with weights or clusters: one more unit, accepted and wrong."""
    assert sizes.loads is not None
    heavy = max(sizes.loads.units.typical, sizes.loads.wrong.typical, sizes.possible)
    share = heavy / (coverage * sizes.loads.rows.first)
    found = beta_quantile(*_beside(value, se * se, share, sizes.loads.units.number, 1.0), (1 + level) / 2)
    return float(found)


def mean_high(tally: MeanTally, se: Number, cap: float, level: float) -> Number:
    """Upper end of a Brier score or log-loss: gamma, with a part of a row that is as wrong as can be.

    What was not seen in n units has a chance of about 1/n; a model that knows it loses ln n where it happens.
    """
    sizes = tally.sizes
    cost = choose(cap < math.inf, lambda: cap, lambda: log(larger(2.0, 1.0 * sizes.units)))
    heavy = 1.0 if sizes.loads is None else max(sizes.loads.units.heavy, sizes.possible)
    one_more = _PART * heavy * cost / sizes.total.weight
    return fay_feuer(tally.value, se * se, one_more, level, cap).high


def ece_high(sizes: Sizes, centre: Number, se: Number, level: float) -> Number:
    """Upper end of ECE: gamma, with a part of a sure and wrong row, which moves a gap by its share of the weight."""
    heavy = 1.0 if sizes.loads is None else max(sizes.loads.units.heavy, sizes.possible)
    one_more = _PART * heavy / sizes.total.weight
    return fay_feuer(larger(0.0, centre), se * se, one_more, level, 1.0).high


def share_ends(sizes: Sizes, value: float, se: float, level: float) -> Interval:
    """Of an accuracy with weights or clusters: one more unit, all wrong for the lower end, all right for the upper.

    Of clusters that are alike, half a one.
    """
    assert sizes.loads is not None
    loads, tail, part, ends = sizes.loads, (1 - level) / 2, _whole(sizes), []
    for place, side in ((0.0, loads.wrong), (1.0, loads.right)):
        heavy = max(part * max(loads.units.typical, side.typical), loads.rows.typical, sizes.possible)
        share = heavy / loads.rows.first
        ends.append(_beside(value, se * se, share, loads.units.number, place))
    return Interval(beta_quantile(*ends[0], tail), beta_quantile(*ends[1], 1 - tail))
