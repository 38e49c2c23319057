"""Slow definitions that the inference tests compare with: pairs are enumerated, nothing is shared with the package."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
from scipy import stats

from uqeval import UQWarning
from uqeval.inference import Estimate, estimate
from uqeval.inference.influence import area_influence, concordance_influence
from uqeval.inference.measure import Measurement
from uqeval.inference.sample import Sample
from uqeval.metrics import REGISTRY


def quiet(metric, *data, **options) -> Estimate:
    """`estimate` without its warnings (they are also in the result)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return estimate(metric, *data, **options)


def estimates(names, score, target, weights=None, clusters=None):
    """Several metrics of one sample, as `evaluate` estimates them: sorted once."""
    sample = Sample.of(score, target, weights, clusters)
    return {name: Measurement(REGISTRY[name], sample, sample.rows).estimate(0.95, None) for name in names}


def influence(name, sample):
    """Influence values of a metric that ranks rows, as the package computes them."""
    metric = REGISTRY[name]
    values = concordance_influence(sample) if metric.formula is None else area_influence(sample, metric)
    return metric.affine[1] * values


def ones_like(weights, n):
    return np.ones(n) if weights is None else np.asarray(weights, dtype=float)


def c_index(s, d, w=None):
    """Σ w_i w_j credit over pairs d_i < d_j."""
    s, d = np.asarray(s, float), np.asarray(d, float)
    w = ones_like(w, len(s))
    pair = w[:, None] * w[None, :] * (d[:, None] < d[None, :])
    credit = (s[:, None] < s[None, :]) + 0.5 * (s[:, None] == s[None, :])
    total = pair.sum()
    return (pair * credit).sum() / total if total > 0 else math.nan


def tau_b(s, d, w=None):
    s, d = np.asarray(s, float), np.asarray(d, float)
    w = ones_like(w, len(s))
    pair = w[:, None] * w[None, :]
    a, b = np.sign(s[:, None] - s[None, :]), np.sign(d[:, None] - d[None, :])
    product = (pair * a * a).sum() * (pair * b * b).sum()
    return (pair * a * b).sum() / math.sqrt(product) if product > 0 else math.nan


def aurc(s, v, w=None):
    """Every row of a tie block weighs and errs as the block does on average; then the mean of running risks."""
    s, v = np.asarray(s, float), np.asarray(v, float)
    w = ones_like(w, len(s))
    step, bad = [], []
    for value in sorted(set(s.tolist())):
        block = s == value
        size = int(block.sum())
        step += [w[block].sum() / size] * size
        bad += [(w * v)[block].sum() / size] * size
    step, bad = np.array(step), np.array(bad)
    return (step * np.cumsum(bad) / np.cumsum(step)).sum() / step.sum()


def augrc(s, v, w=None):
    """Mean over ordered pairs (i, j), a row with itself included, of v_i · 1{i is accepted before j}, ties half."""
    s, v = np.asarray(s, float), np.asarray(v, float)
    w = ones_like(w, len(s))
    credit = (s[:, None] < s[None, :]) + 0.5 * (s[:, None] == s[None, :])
    return ((w * v)[:, None] * w[None, :] * credit).sum() / w.sum() ** 2


def h_auc(s, v, w=None):
    s, v = np.asarray(s, float), np.asarray(v, float)
    w = ones_like(w, len(s))
    credit = (s[:, None] < s[None, :]) + 0.5 * (s[:, None] == s[None, :])
    return ((w * (1 - v))[:, None] * (w * v)[None, :] * credit).sum() / w.sum() ** 2


def jackknife_se(leave_out_values):
    x = np.asarray(leave_out_values)
    m = len(x)
    return math.sqrt((m - 1) / m * ((x - x.mean()) ** 2).sum())


def without_each(metric, s, d, w=None, g=None):
    """The metric recomputed without each row, or each cluster."""
    s, d = np.asarray(s, float), np.asarray(d, float)
    w = ones_like(w, len(s))
    unit = np.arange(len(s)) if g is None else np.asarray(g)
    return [metric(s[unit != u], d[unit != u], w[unit != u]) for u in np.unique(unit)]


def delong(s, v):
    """AUC, its two variance terms and Welch's df from placement values (DeLong, DeLong & Clarke-Pearson 1988)."""
    s, v = np.asarray(s, float), np.asarray(v)
    wrong, right = s[v == 1], s[v == 0]
    credit = (right[None, :] < wrong[:, None]) + 0.5 * (right[None, :] == wrong[:, None])
    of_wrong, of_right = credit.mean(axis=1), credit.mean(axis=0)
    a, b = of_right.var(ddof=1) / len(right), of_wrong.var(ddof=1) / len(wrong)
    df = (a + b) ** 2 / (a**2 / (len(right) - 1) + b**2 / (len(wrong) - 1)) if a + b > 0 else math.nan
    return credit.mean(), a, b, df


def hull(*intervals):
    """What covers all."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def beside(value, se, share, units, place):
    """Mean and variance of the rows and a made-up unit of that share of their weight, ranked at that place."""
    mean = (value + share * place) / (1 + share)
    variance = (0.0 if math.isnan(se) else se**2) + (value - mean) ** 2 / units + (share * (place - mean)) ** 2
    return mean, variance / (1 + share) ** 2


def beta_quantile(mean, variance, tail):
    size = mean * (1 - mean) / variance - 1
    return stats.beta.ppf(tail, mean * size, (1 - mean) * size) if size > 0 else round(tail)


def unit_weights(x, g):
    return x if g is None else np.array([x[g == k].sum() for k in np.unique(g)])


def heavy(x):
    return (x**3).sum() / (x**2).sum()


def typical(x):
    return (x**2).sum() / x.sum() if x.sum() > 0 else 0.0


def grouped(g):
    return g is not None and len(np.unique(g)) < len(g)


def unseen_weight(side, ones, g, part=1.0, largest=0):
    """Of a unit of that side that was not seen: a heavy row, part of a typical cluster, or the largest one declared."""
    own = part * typical(side) if grouped(g) else heavy(side) if side.sum() else 0.0
    return max(own, heavy(ones), largest * ones.mean())


def uneven(ones, g, most, part=1.0):
    """How many times as much room uneven weights ask for: rows over what they are worth, from 1 to `most`."""
    return 1.0 if grouped(g) else min(most, max(1.0, part * len(ones) / kish(ones)))


def whole(ones, g):
    """Half of a typical cluster where all are alike, all of it where they are uneven."""
    units = unit_weights(ones, g)
    return min(1.0, max(0.5, 4 * (typical(units) / units.mean() - 1))) if grouped(g) else 1.0


def unseen_places(s, w):
    """Weighted mid-ranks below and above which rows hold a quarter of the squared weights, or the quarters."""
    if w is None:
        return 0.25, 0.75
    rank = np.array([w[s < x].sum() + w[s == x].sum() / 2 for x in s]) / w.sum()
    low = min(r for x, r in zip(s, rank, strict=True) if (w**2)[s <= x].sum() >= (w**2).sum() / 4)
    high = min(r for x, r in zip(s, rank, strict=True) if (w**2)[s <= x].sum() >= 3 * (w**2).sum() / 4)
    return min(0.25, low), max(0.75, high)


def unseen_error(value, se, s, v, w=None, g=None, largest=0):
    """Ends of UQ-AUC with half a heavy wrong (or right) unit beside the rows, up to a whole one of uneven weights."""
    ones = ones_like(w, len(s))
    wrong, right = unit_weights(ones * v, g), unit_weights(ones * (1 - v), g)
    half = uneven(ones, g, 2.0) / 2
    share = max(half * unseen_weight(side, ones, g, largest=largest) / side.sum() for side in (wrong, right))
    units = max(1.0, kish(wrong))
    low, high = unseen_places(s, w)
    return (
        beta_quantile(*beside(value, se, share, units, low), 0.025),
        beta_quantile(*beside(value, se, share, units, high), 0.975),
    )


def unseen_row(value, se, n, w=None, g=None, largest=0):
    """Ends of UQ-C-index with three quarters of a heavy row beside the rows, or 0.4 of a typical cluster.

    Up to three times as much where weights are uneven, and all of the largest cluster that is declared.
    """
    ones = ones_like(w, n)
    units = unit_weights(ones, g)
    row = 0.75 * uneven(ones, g, 3.0) * heavy(ones)
    share = max(row, 0.4 * typical(units) if grouped(g) else 0.0, largest * ones.mean()) / units.sum()
    return tuple(
        beta_quantile(*beside(value, se, share, kish(units), place), tail)
        for place, tail in ((0.25, 0.025), (0.75, 0.975))
    )


CAPS = {"aurc": 1.0, "e_aurc": 1.0, "augrc": 0.5, "h_auc": 0.25, "naurc": math.inf}


def unseen_wrong(name, value, se, s, v, w=None, g=None, per=1.0, largest=0):
    """Gamma interval of an area with three quarters of a heavy wrong unit beside the rows (of H-AUC a whole one).

    Up to 1.5 times as much where weights are uneven.
    """
    ones = ones_like(w, len(s))
    wrong = unit_weights(ones * v, g)
    place = unseen_places(s, w)[0]
    one = {"h_auc": 1.0, "augrc": 0.75 * (1 - place)}.get(name, -0.75 * math.log(place)) / per
    more = uneven(ones, g, 1.5, 0.75)
    adds = more * unseen_weight(wrong, ones, g, whole(ones, g), largest) / ones.sum() * one
    number = kish(wrong) if wrong.sum() else 0.0
    inflate = 1.0 if g is None else min(3.0, number / (number - 1)) if number > 1 else 3.0
    return gamma_ends(value, inflate * (value**2 if math.isnan(se) else se**2), adds, CAPS[name])


def gamma_ends(value, variance, adds, cap, level=0.95):
    """Fay & Feuer (1997)."""
    tail = (1 - level) / 2
    up, up2 = value + adds, variance + adds**2
    low = stats.gamma.ppf(tail, value**2 / variance, scale=variance / value) if value > 0 and variance > 0 else 0.0
    return low, min(cap, stats.gamma.ppf(1 - tail, up**2 / up2, scale=up2 / up))


def flat_rate(v, w=None, g=None):
    """What the lower end of H-AUC keeps where the error rate may be t standard errors away."""
    ones = ones_like(w, len(v))
    rate, units = (ones * v).sum() / ones.sum(), kish(unit_weights(ones, g))
    return max(0.0, 1 - (4 if g is None else 2) * rate * (1 - rate) * stats.norm.isf(0.025) ** 2 / units)


def unseen_gap(metric, difference, se, errors, w=None, g=None, level=0.95, each=None):
    """Ends of a difference with half a heavy unit beside the rows, at ¼ of the ranks by one score, at ¾ by the other.

    `errors` are the errors of each candidate; areas need the value and the standard error of `each` as well.
    """
    ones, tail = ones_like(w, len(errors[0])), (1 - level) / 2
    scale = 2 if metric in ("g_auc", "kendall", "somers") else 1
    gap, variance = difference / scale, (se / scale) ** 2
    wrong = [unit_weights(ones * v, g) for v in errors]
    if metric in ("uq_auc", "uq_c_index", "kendall", "somers"):
        units = unit_weights(ones, g)
        share, number = unseen_weight(units, ones, g) / 2 / units.sum(), kish(units)
        if metric == "uq_auc":
            sides = [*wrong, *(unit_weights(ones * (1 - v), g) for v in errors)]
            share = max(uneven(ones, g, 2.0) * unseen_weight(side, ones, g) / 2 / side.sum() for side in sides)
            number = max(1.0, min(kish(x) for x in wrong))
        at = [((gap + 1) / 2, math.sqrt(variance) / 2, share, number, place) for place in (0.25, 0.75)]
        low, high = (beta_quantile(*beside(*x), q) for x, q in zip(at, (tail, 1 - tail), strict=True))
        return scale * (2 * low - 1), scale * (2 * high - 1)
    spans = [(ones * v).sum() / ones.sum() - aurc(v, v, ones) for v in errors]
    per = min(spans) if metric in ("naurc", "prr") else 1.0
    half_a_unit = {"augrc": 0.25, "g_auc": 0.25, "h_auc": 0.5}.get(metric, math.log(3) / 2)
    a_row = 0.9 * {"augrc": 0.75, "g_auc": 0.75, "h_auc": 1.0}.get(metric, math.log(4))
    heaviest = uneven(ones, g, 1.5, 0.75) * max(unseen_weight(x, ones, g, whole(ones, g)) for x in wrong)
    adds = max(half_a_unit * heaviest, a_row * ones.mean()) / ones.sum() / per
    numbers = [kish(x) for x in wrong]
    inflate = 1.0 if g is None else max(min(3.0, k / (k - 1)) if k > 1 else 3.0 for k in numbers)
    return recovered(metric, difference, variance, each, adds, inflate, level)


# What of the areas each metric is: a + b times it.
OF_AREAS = {"auarc": (1.0, -1.0), "prr": (1.0, -1.0), "g_auc": (0.0, 2.0)}


def recovered(metric, difference, variance, each, adds, inflate, level):
    """MOVER (Zou 2007): ends of the difference of two areas from their gamma ends and their correlation."""
    a, b = OF_AREAS.get(metric, (0.0, 1.0))
    (first, v1), (second, v2) = (((value - a) / b, (se / b) ** 2) for value, se in each)
    r = (v1 + v2 - variance) / 2 / math.sqrt(v1 * v2)
    (l1, u1), (l2, u2) = (
        gamma_ends(value, inflate * v, adds, math.inf, level) for value, v in ((first, v1), (second, v2))
    )
    down = math.sqrt((first - l1) ** 2 + (u2 - second) ** 2 - 2 * r * (first - l1) * (u2 - second))
    up = math.sqrt((u1 - first) ** 2 + (second - l2) ** 2 - 2 * r * (u1 - first) * (second - l2))
    return (difference - b * down, difference + b * up) if b > 0 else (difference + b * up, difference - b * down)


def unseen_unit(accuracy, se, v, w=None, g=None, largest=0):
    """Ends of the accuracy with one more unit, all wrong or all right."""
    ones = ones_like(w, len(v))
    units = unit_weights(ones, g)
    ends = []
    for place, side, tail in ((0.0, v, 0.025), (1.0, 1 - v, 0.975)):
        part = unit_weights(ones * side, g)
        size = max(whole(ones, g) * max(typical(units), typical(part)), typical(ones), largest * ones.mean())
        ends.append(beta_quantile(*beside(accuracy, se, size / ones.sum(), kish(units), place), tail))
    return tuple(ends)


def numeric_influence(metric, s, v, w, step=1e-4):
    """W · ∂T/∂w_i by a central difference of fourth order."""
    w = np.asarray(w, float)
    result = np.empty(len(w))
    for i in range(len(w)):

        def at(h, i=i):
            moved = w.copy()
            moved[i] += h
            return metric(s, v, moved)

        slope = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
        result[i] = w.sum() * slope
    return result


def kish(w):
    w = np.asarray(w, float)
    return w.sum() ** 2 / (w * w).sum()


def make_case(seed, n=60, ties=True, error=0.35, clusters=None):
    """(score, error, loss, weights, clusters) with or without ties."""
    rng = np.random.default_rng(seed)
    v = (rng.random(n) < error).astype(int)
    v[0], v[1], v[2], v[3] = 0, 1, 0, 1  # both kinds, twice
    s = rng.normal(size=n) + v
    d = np.clip(0.5 * v + 0.25 + 0.1 * s * rng.normal(size=n), 0, None)
    if ties:
        s, d = np.round(2 * s) / 2, np.round(5 * d) / 5
    w = rng.uniform(0.3, 3.0, size=n)
    g = None if clusters is None else rng.integers(0, clusters, size=n)
    return s, v, d, w, g


def products(**choices):
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
