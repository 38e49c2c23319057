"""Slow definitions that the inference tests compare with: pairs are enumerated, nothing is shared with the package."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np

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
