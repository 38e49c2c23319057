"""Paired differences: DeLong, jackknife and influence values written out here from definitions."""

from __future__ import annotations

import itertools
import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_reference import augrc, aurc, c_index, h_auc, hull, kish, numeric_influence, tau_b, unseen_gap
from scipy import stats

import oracle
import uqeval
from cases import each, noted, on_both_kernels
from strategies import each_backend
from uqeval import InputError, Predictions, UQWarning, kernels
from uqeval.inference.multiplicity import adjust, cliques, heterogeneity
from uqeval.inference.paired import contrast
from uqeval.inference.tally import JointPart, JointTally
from uqeval.metrics.registry import REGISTRY

AREAS = ("aurc", "augrc", "g_auc", "h_auc", "auarc", "e_aurc", "naurc", "prr")
BY_SCORE = ("uq_auc", "uq_c_index", *AREAS)
COLUMNS = ("difference", "low", "high", "se", "df", "p", "p_adjusted")


def compare(candidates, **options):
    """`uqeval.compare` without its UQWarnings; NumPy may neither divide by zero nor make NaN unguarded."""
    with warnings.catch_warnings(), np.errstate(divide="raise", invalid="raise"):
        warnings.simplefilter("ignore", UQWarning)
        return uqeval.compare(candidates, **options)


def one(candidates, **options):
    found = compare(candidates, **options)
    (row,) = found.rows or [found[tuple(found.values)]]  # of two that are one ranking there is no row
    return row


def case(seed, n=60, ties=True, error=0.35, clusters=None):
    """Two scores, error, loss, weights, clusters; both kinds of row at least twice."""
    rng = np.random.default_rng(seed)
    v = (rng.random(n) < error).astype(int)
    v[:4] = 0, 1, 0, 1
    base = rng.normal(size=n)
    s1, s2 = base + 0.9 * v + rng.normal(size=n), base + 0.6 * v + rng.normal(size=n)
    d = np.clip(0.5 * v + 0.25 + 0.1 * s1 + 0.1 * rng.normal(size=n), 0, 1)
    if ties:
        s1, s2, d = np.round(2 * s1) / 2, np.round(s2), np.round(5 * d) / 5
    w = rng.uniform(0.3, 3.0, size=n)
    g = None if clusters is None else rng.integers(0, clusters, size=n)
    return s1, s2, v, d, w, g


def second_model(seed, v, ties=True):
    """Score, error and loss of another model on the same rows."""
    rng = np.random.default_rng(seed + 1000)
    n = len(v)
    u = np.where(rng.random(n) < 0.25, 1 - v, v)
    u[:4] = 1, 0, 0, 1
    s = rng.normal(size=n) + u
    d = np.clip(0.4 * u + 0.1 * s + 0.3, 0, 1)
    return (np.round(2 * s) / 2, u, np.round(5 * d) / 5) if ties else (s, u, d)


def models(*rows, weights=None, clusters=None, groups=None):
    """name → Predictions with one score "s"; rows are (score, error, loss)."""
    return {
        f"m{k}": Predictions(scores={"s": s}, error=v, loss=d, weights=weights, clusters=clusters, groups=groups)
        for k, (s, v, d) in enumerate(rows)
    }


def check(row, difference, se, df, level=0.95, unseen=None, each=None):
    """Difference, se, df, and p and interval that follow from them by Student's t.

    With `unseen` (a metric, the errors of the candidates, weights and clusters) there is room for what was not seen;
    areas need the value and the standard error of `each` candidate for it.
    """
    assert row.difference == pytest.approx(difference, rel=1e-9, abs=1e-12)
    assert row.se == pytest.approx(se, rel=1e-7)
    assert row.df == pytest.approx(df, rel=1e-7)
    assert row.p == pytest.approx(2 * stats.t.sf(abs(difference / se), df), rel=1e-6)
    half = stats.t.ppf((1 + level) / 2, df) * se
    low, high = difference - half, difference + half
    if unseen is not None:
        metric, errors, *more = unseen
        span = REGISTRY[row_metric(metric)].span
        low, high = hull((low, high), unseen_gap(metric, difference, se, errors, *more, level=level, each=each))
        low, high = max(-span, low), min(span, high)
    assert row.low == pytest.approx(low, rel=1e-6, abs=1e-9)
    assert row.high == pytest.approx(high, rel=1e-6, abs=1e-9)
    assert row.p_adjusted == row.p


def row_metric(name):
    return {"kendall": "kendall_phi", "somers": "somers_phi"}.get(name, name)


# ---- references -----------------------------------------------------------------------------------------------


def delong_difference(s1, s2, v):
    """DeLong et al. (1988): covariance of the two AUCs from placement values, and Welch's df of the difference."""
    wrong, right = v == 1, v == 0
    placements = []
    for s in (s1, s2):
        credit = (s[right][None, :] < s[wrong][:, None]) + 0.5 * (s[right][None, :] == s[wrong][:, None])
        placements.append((credit.mean(axis=1), credit.mean(axis=0)))
    of_wrong = np.cov(np.stack([p[0] for p in placements]), ddof=1) / wrong.sum()
    of_right = np.cov(np.stack([p[1] for p in placements]), ddof=1) / right.sum()
    side = np.array([1.0, -1.0])
    b, a = side @ of_wrong @ side, side @ of_right @ side
    df = (a + b) ** 2 / (a**2 / (right.sum() - 1) + b**2 / (wrong.sum() - 1))
    return placements[0][0].mean() - placements[1][0].mean(), math.sqrt(a + b), df


def jackknife_difference(metric, one_row, other_row, w=None, g=None):
    """Delete-one (row or cluster) jackknife of metric(one) − metric(other) by recomputation."""
    n = len(one_row[0])
    w = np.ones(n) if w is None else w
    unit = np.arange(n) if g is None else np.asarray(g)
    left = []
    for u in np.unique(unit):
        keep = unit != u
        left.append(
            metric(one_row[0][keep], one_row[1][keep], w[keep])
            - metric(other_row[0][keep], other_row[1][keep], w[keep])
        )
    left, m = np.array(left), len(left)
    return metric(*one_row, w) - metric(*other_row, w), math.sqrt((m - 1) / m * ((left - left.mean()) ** 2).sum())


def value_and_influence(name, s, v, w=None):
    """A selective area and its influence values: numeric derivatives; the oracle's part in closed form."""
    n = len(s)
    w = np.ones(n) if w is None else w
    if name in ("augrc", "g_auc"):
        k = 2 if name == "g_auc" else 1
        return k * augrc(s, v, w), k * numeric_influence(augrc, s, v, w)
    if name == "h_auc":
        return h_auc(s, v, w), numeric_influence(h_auc, s, v, w)
    area, f = aurc(s, v, w), numeric_influence(aurc, s, v, w)
    if name in ("aurc", "auarc"):
        return (area, f) if name == "aurc" else (1 - area, -f)
    rate = (w * v).sum() / w.sum()
    best, of_best = aurc(v, v, w), -math.log(1 - rate) * (v - rate)
    if name == "e_aurc":
        return area - best, f - of_best
    ratio = (area - best) / (rate - best)
    of_ratio = (f - of_best - ratio * (v - rate - of_best)) / (rate - best)
    return (ratio, of_ratio) if name == "naurc" else (1 - ratio, -of_ratio)


# ---- two scores of one model ----------------------------------------------------------------------------------


@on_both_kernels
def test_auc_difference_of_two_scores_is_delongs_with_welch_df():
    for ties, seed in product([True, False], range(4)):
        with noted(ties=ties, seed=seed):
            s1, s2, v, d, _, _ = case(seed, ties=ties)
            check(one({"a": s1, "b": s2}, error=v, loss=d), *delong_difference(s1, s2, v), unseen=("uq_auc", [v]))

    # Hanley–McNeil example by hand.
    # n0 = n1 = 2: a ranks perfectly, b has one of four pairs wrong.
    v = np.array([0, 0, 1, 1])
    row = one({"a": [1, 2, 3, 4], "b": [1, 3, 2, 4]}, error=v)
    # a: all placements 1. b: wrong rows (2 → 1/2, 4 → 1), right rows (1 → 1, 3 → 1/2).
    # Differences 0 and 1/2 in both classes: variance 1/8, over 2 rows 1/16 each. Welch df = (1/8)²/(2/16²) = 2.
    check(row, 0.25, math.sqrt(1 / 8), 2.0, unseen=("uq_auc", [v]))


@on_both_kernels
def test_c_index_difference_is_the_exact_delete_one_jackknife():
    for ties, seed in product([True, False], range(3)):
        with noted(ties=ties, seed=seed):
            s1, s2, v, d, _, _ = case(seed, ties=ties)
            expected = jackknife_difference(c_index, (s1, d), (s2, d))
            row = one({"a": s1, "b": s2}, error=v, loss=d, metric="uq_c_index")
            check(row, *expected, len(s1) - 1, unseen=("uq_c_index", [v]))

    # The C-index of a 0/1 loss keeps its own jackknife.
    s1, s2, v, _, _, _ = case(7)
    row = one({"a": s1, "b": s2}, loss=v, metric="uq_c_index")
    expected = jackknife_difference(c_index, (s1, v), (s2, v))
    check(row, *expected, len(s1) - 1, unseen=("uq_c_index", [v]))

    # The C-index difference of two models is jackknifed.
    for seed in range(3):
        with noted(seed=seed):
            s1, _, v, d, _, _ = case(seed)
            s2, u, e = second_model(seed, v)
            row = one(models((s1, v, d), (s2, u, e)), scores="s", metric="uq_c_index")
            expected = jackknife_difference(c_index, (s1, d), (s2, e))
            check(row, *expected, len(v) - 1, unseen=("uq_c_index", [v]))


def test_area_differences_come_from_the_difference_of_influences():
    # Area difference of two scores is the influence difference.
    for metric, ties in product(AREAS, [True, False]):
        with noted(metric=metric, ties=ties):
            s1, s2, v, d, _, _ = case(11, ties=ties)
            (t1, f1), (t2, f2) = (value_and_influence(metric, s, v) for s in (s1, s2))
            n, m = len(v), v.sum()
            inflate = np.where(v == 1, m / (m - 1), n / (n - 1))
            ses = [math.sqrt(((f / n) ** 2 * inflate).sum()) for f in (f1 - f2, f1, f2)]
            each = ((t1, ses[1]), (t2, ses[2]))
            for _ in each_backend():
                row = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric)
                check(row, t1 - t2, ses[0], m - 1, unseen=(metric, [v]), each=each)

    # Area difference of two models inflates rows where either errs.
    for metric in AREAS:
        with noted(metric=metric):
            s1, _, v, d, _, _ = case(5)
            s2, u, e = second_model(5, v)
            (t1, f1), (t2, f2) = value_and_influence(metric, s1, v), value_and_influence(metric, s2, u)
            n, either = len(v), (v + u) > 0
            m = either.sum()
            inflate = np.where(either, m / (m - 1), n / (n - 1))
            ses = [math.sqrt(((f / n) ** 2 * inflate).sum()) for f in (f1 - f2, f1, f2)]
            each, df = ((t1, ses[1]), (t2, ses[2])), min(v.sum(), u.sum()) - 1
            for _ in each_backend():
                row = one(models((s1, v, d), (s2, u, e)), scores="s", metric=metric)
                check(row, t1 - t2, ses[0], df, unseen=(metric, [v, u]), each=each)


def soft_case(seed, n=45, classes=3):
    rng = np.random.default_rng(seed)
    soft = rng.multinomial(5, rng.dirichlet(np.ones(classes)), n) / 5
    probs = rng.dirichlet(np.ones(classes), n)
    labels = rng.integers(0, classes, n)
    s1, s2 = np.round(rng.normal(size=n), 1), np.round(rng.normal(size=n))
    return soft, probs, labels, s1, s2, rng.integers(0, 9, n)


@on_both_kernels
@each("metric", ["kendall_phi", "kendall_varphi", "somers_phi", "somers_varphi"])
@each("clustered", [False, True])
def test_kendall_and_somers_differences_are_jackknifed(metric, clustered):
    soft, probs, labels, s1, s2, g = soft_case(3)
    n = len(labels)
    rows = np.arange(n)
    truth = 1 - soft[rows, probs.argmax(axis=1)] if metric.endswith("_phi") else 1 - probs[rows, soft.argmax(axis=1)]
    truth = np.round(truth, 12)
    clusters = g if clustered else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        pred = Predictions(labels, probs=probs, soft_labels=soft, scores={"a": s1, "b": s2}, clusters=clusters)
    row = one(pred, scores=["a", "b"], metric=metric)
    slow = tau_b if metric.startswith("kendall") else lambda s, t, w: 2 * c_index(s, t, w) - 1
    expected = jackknife_difference(slow, (s1, truth), (s2, truth), g=clusters)
    kind = ("kendall" if metric.startswith("kendall") else "somers", [labels], None, clusters)
    check(row, *expected, (len(np.unique(g)) if clustered else n) - 1, unseen=kind)


# ---- two models -----------------------------------------------------------------------------------------------


@on_both_kernels
def test_auc_difference_of_two_models_uses_each_ones_own_errors():
    for ties, seed in product([True, False], range(3)):
        with noted(ties=ties, seed=seed):
            s1, _, v, d, _, _ = case(seed, ties=ties)
            s2, u, e = second_model(seed, v, ties=ties)
            f1, f2 = (numeric_influence(c_index, s, t, np.ones(len(s))) for s, t in ((s1, v), (s2, u)))
            n = len(v)
            se = math.sqrt((((f1 - f2) / n) ** 2).sum() * n / (n - 1))
            df = min(v.sum(), n - v.sum(), u.sum(), n - u.sum()) - 1
            row = one(models((s1, v, d), (s2, u, e)), scores="s", metric="uq_auc")
            check(row, c_index(s1, v) - c_index(s2, u), se, df, unseen=("uq_auc", [v, u]))

    # AUC difference of two models differs from the common label formula.
    s1, _, v, d, _, _ = case(1)
    s2, u, e = second_model(1, v)
    row = one(models((s1, v, d), (s2, u, e)), scores="s")
    assert row.se != pytest.approx(delong_difference(s1, s2, v)[1], rel=1e-3)


def two_classifiers(seed, n=80, classes=3, **more):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    found = {}
    for name in ("a", "b"):
        logits = rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[labels] * (rng.random((n, 1)) < 0.8)
        probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        found[name] = Predictions(labels, probs=probs, **more)
    return labels, found


def losses(metric, labels, probs):
    if metric == "accuracy":
        return (probs.argmax(axis=1) == labels).astype(float)
    if metric == "brier":
        return ((probs - np.eye(probs.shape[1])[labels]) ** 2).sum(axis=1)
    return -np.log(probs[np.arange(len(labels)), labels])


def test_means_are_compared_by_the_paired_t_test_of_their_sampling():
    # Means are compared by the paired t test.
    for metric in ["accuracy", "brier", "log_loss"]:
        with noted(metric=metric):
            labels, found = two_classifiers(2)
            x, y = (losses(metric, labels, found[name].probs) for name in "ab")
            row = one(found, metric=metric)
            expected = stats.ttest_rel(x, y)
            assert row.p == pytest.approx(expected.pvalue, rel=1e-9)
            interval = expected.confidence_interval(0.95)
            assert (row.low, row.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
            check(row, (x - y).mean(), stats.sem(x - y), len(x) - 1)

    # Weighted means use the influence variance and Kish df.
    for metric in ["accuracy", "brier", "log_loss"]:
        with noted(metric=metric):
            rng = np.random.default_rng(0)
            w = rng.uniform(0.2, 3, 80)
            labels, found = two_classifiers(2, weights=w)
            x, y = (losses(metric, labels, found[name].probs) for name in "ab")
            gap = np.average(x - y, weights=w)
            se = math.sqrt(((w * (x - y - gap) / w.sum()) ** 2).sum() * 80 / 79)
            check(one(found, metric=metric), gap, se, kish(w) - 1)

    # Clustered means use the cluster sandwich.
    for metric in ["accuracy", "brier", "log_loss"]:
        with noted(metric=metric):
            g = np.random.default_rng(1).integers(0, 13, 80)
            labels, found = two_classifiers(2, clusters=g)
            x, y = (losses(metric, labels, found[name].probs) for name in "ab")
            gap = (x - y).mean()
            sums = np.bincount(g, weights=(x - y - gap) / 80)
            groups = len(np.unique(g))
            se = math.sqrt((sums**2).sum() * groups / (groups - 1))
            check(one(found, metric=metric), gap, se, groups - 1)

    # ECE differences use sign of the gap influence.
    for metric in ["ece", "ece_debiased"]:
        with noted(metric=metric):
            labels, found = two_classifiers(4, n=200)
            values, influence = [], []
            for pred in found.values():
                c, a = pred.probs.max(axis=1), (pred.probs.argmax(axis=1) == labels).astype(float)
                values.append(oracle.ece(c, a, debias=metric == "ece_debiased"))
                bins = np.ceil(c * 15).astype(int)
                sign = np.array([np.sign((a - c)[bins == b].mean()) for b in bins])
                influence.append(sign * (a - c) - oracle.ece(c, a))
            f = influence[0] - influence[1]
            se = math.sqrt((f**2).sum() / 200**2 * 200 / 199)
            check(one(found, metric=metric), values[0] - values[1], se, 199)

    # Infinite log-loss has no p-value.
    labels = np.array([0, 1, 0, 1, 1])
    bad = Predictions(labels, probs=[0.2, 0.0, 0.3, 0.8, 0.7])
    good = Predictions(labels, probs=[0.2, 0.6, 0.3, 0.8, 0.7])
    assert math.isnan(one({"a": bad, "b": good}, metric="log_loss").p)
    assert math.isnan(one({"a": bad, "b": bad.take(range(5))}, metric="log_loss").p)


# ---- clusters, weights ----------------------------------------------------------------------------------------


def clusters_of(g, w, v):
    """Effective number of clusters that hold the errors, or the right rows: the smaller one."""
    w = np.ones(len(v)) if w is None else w
    return min(kish([(w * side)[g == c].sum() for c in np.unique(g)]) for side in (v, 1 - v))


@on_both_kernels
def test_clusters_are_deleted_one_by_one():
    # Clusters delete one cluster.
    for metric, weighted, seed in product(["uq_auc", "uq_c_index"], [False, True], range(2)):
        with noted(metric=metric, weighted=weighted, seed=seed):
            s1, s2, v, d, w, g = case(seed, clusters=14)
            w = w if weighted else None
            t = v if metric == "uq_auc" else d
            row = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, clusters=g, weights=w)
            df = clusters_of(g, w, v) if metric == "uq_auc" else len(np.unique(g))
            expected = jackknife_difference(c_index, (s1, t), (s2, t), w=w, g=g)
            check(row, *expected, df - 1, unseen=(metric, [v], w, g))

    # Clusters delete one cluster of two models.
    for metric in ["uq_auc", "uq_c_index"]:
        with noted(metric=metric):
            s1, _, v, d, _, g = case(3, clusters=14)
            s2, u, e = second_model(3, v)
            t1, t2 = (v, u) if metric == "uq_auc" else (d, e)
            row = one(models((s1, v, d), (s2, u, e), clusters=g), scores="s", metric=metric)
            df = min(clusters_of(g, None, t) for t in (v, u)) if metric == "uq_auc" else len(np.unique(g))
            expected = jackknife_difference(c_index, (s1, t1), (s2, t2), g=g)
            check(row, *expected, df - 1, unseen=(metric, [v, u], None, g))

    # Clustered areas use the sandwich.
    for metric, weighted in product(AREAS, [False, True]):
        with noted(metric=metric, weighted=weighted):
            s1, s2, v, d, w, g = case(2, clusters=14)
            w = w if weighted else None
            row = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, clusters=g, weights=w)
            (t1, f1), (t2, f2) = (value_and_influence(metric, s, v, w) for s in (s1, s2))
            w = np.ones(len(v)) if w is None else w
            groups = len(np.unique(g))
            sums = [[(w * f)[g == c].sum() / w.sum() for c in np.unique(g)] for f in (f1 - f2, f1, f2)]
            df = kish([(w * v)[g == c].sum() for c in np.unique(g)]) - 1
            ses = [math.sqrt((np.array(x) ** 2).sum() * groups / (groups - 1)) for x in sums]
            each = ((t1, ses[1]), (t2, ses[2]))
            check(row, t1 - t2, ses[0], df, unseen=(metric, [v], w if weighted else None, g), each=each)


@on_both_kernels
def test_weighted_differences_use_kish_sizes():
    # Weighted concordance is jackknifed with Kish df.
    for metric, seed in product(["uq_auc", "uq_c_index"], range(2)):
        with noted(metric=metric, seed=seed):
            s1, s2, v, d, w, _ = case(seed)
            t = v if metric == "uq_auc" else d
            row = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, weights=w)
            size = kish(w) if metric == "uq_c_index" else min(kish(w[v == 1]), kish(w[v == 0]))
            expected = jackknife_difference(c_index, (s1, t), (s2, t), w=w)
            check(row, *expected, size - 1, unseen=(metric, [v], w))

    # Weighted areas use Kish sizes of the errors.
    for metric in AREAS:
        with noted(metric=metric):
            s1, s2, v, d, w, _ = case(4)
            row = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, weights=w)
            (t1, f1), (t2, f2) = (value_and_influence(metric, s, v, w) for s in (s1, s2))
            n, m = len(v), kish(w[v == 1])
            inflate = np.where(v == 1, m / (m - 1), n / (n - 1))
            ses = [math.sqrt(((w * f / w.sum()) ** 2 * inflate).sum()) for f in (f1 - f2, f1, f2)]
            each = ((t1, ses[1]), (t2, ses[2]))
            check(row, t1 - t2, ses[0], m - 1, unseen=(metric, [v], w), each=each)


def test_singleton_clusters_equal_weights_and_zero_weights_change_nothing():
    # Singleton clusters are independent rows.
    for metric in [m for m in BY_SCORE if m != "uq_auc"]:
        with noted(metric=metric):
            s1, s2, v, d, _, _ = case(6)
            n = len(v)
            plain = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric)
            single = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, clusters=np.arange(n)[::-1])
            assert single.difference == pytest.approx(plain.difference, abs=1e-14)
            assert single.df == pytest.approx(n - 1 if metric == "uq_c_index" else v.sum() - 1)
            if metric == "uq_c_index":
                assert single.se == pytest.approx(plain.se, rel=1e-12)
            else:  # plain areas inflate the error rows more
                assert single.se < plain.se < 1.05 * single.se

    # Zero weights and their clusters do not exist.
    for metric in BY_SCORE:
        with noted(metric=metric):
            s1, s2, v, d, w, g = case(8, n=80, clusters=16)
            w[np.isin(g, [0, 5, 15])] = 0
            w[20:30] = 0
            keep = w > 0
            full = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, weights=w, clusters=g)
            part = {"error": v[keep], "loss": d[keep], "weights": w[keep], "clusters": g[keep]}
            assert full == one({"a": s1[keep], "b": s2[keep]}, metric=metric, **part)

    # Equal weights give the unweighted difference.
    for metric in BY_SCORE:
        with noted(metric=metric):
            s1, s2, v, d, _, _ = case(9)
            plain = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric)
            equal = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, weights=np.full(len(v), 2.5))
            assert equal.difference == pytest.approx(plain.difference, abs=1e-12)
            if metric != "uq_auc":  # weighted UQ-AUC is jackknifed, plain UQ-AUC is DeLong's
                assert equal.se == pytest.approx(plain.se, rel=1e-9)
                assert equal.p == pytest.approx(plain.p, rel=1e-8)


# ---- degenerate pairs -----------------------------------------------------------------------------------------


def check_no_difference(row):
    """Difference 0, se 0, p = 1, interval [0, 0]."""
    assert (row.difference, row.low, row.high, row.se, row.p, row.p_adjusted) == (0, 0, 0, 0, 1, 1)


OPTIONS = ["plain", "weights", "clusters", "both"]


def options_of(kind, w, g):
    return {"plain": {}, "weights": {"weights": w}, "clusters": {"clusters": g}, "both": {"weights": w, "clusters": g}}[
        kind
    ]


@on_both_kernels
def test_what_ranks_alike_does_not_differ():
    # Rank identical scores do not differ.
    ways = [*((kind, "max-t") for kind in OPTIONS), ("plain", "holm"), ("both", "none")]
    for metric, (kind, how) in product(BY_SCORE, ways):
        with noted(metric=metric, kind=kind, how=how):
            s1, s2, v, d, w, g = case(10, clusters=15)
            same = {"a": s1, "again": s1.copy(), "cubed": s1**3 + s1, "other": s2}
            cmp = compare(same, error=v, loss=d, metric=metric, adjust=how, **options_of(kind, w, g))
            for a, b in itertools.combinations(("a", "again", "cubed"), 2):
                check_no_difference(cmp[a, b])
            values = [getattr(row, c) for row in cmp.rows for c in COLUMNS]
            assert not np.isnan(values).any()
            assert cmp["a", "other"].se == pytest.approx(cmp["cubed", "other"].se, rel=1e-12)
            assert cmp["a", "other"].p == pytest.approx(cmp["cubed", "other"].p, rel=1e-12)

    # Constant scores do not differ.
    for metric, kind in product(BY_SCORE, OPTIONS):
        with noted(metric=metric, kind=kind):
            s1, _, v, d, w, g = case(10, clusters=15)
            n = len(v)
            cmp = compare(
                {"one": np.ones(n), "two": np.full(n, -3.5), "real": s1},
                error=v,
                loss=d,
                metric=metric,
                **options_of(kind, w, g),
            )
            check_no_difference(cmp["one", "two"])
            assert 0 <= cmp["one", "real"].p <= 1
            assert cmp["one", "real"].se > 0

    # Two identical models do not differ.
    for metric in BY_SCORE:
        with noted(metric=metric):
            s1, _, v, d, _, _ = case(12)
            check_no_difference(one(models((s1, v, d), (2 * s1, v, d)), scores="s", metric=metric))

    # Two identical classifiers do not differ.
    for metric in ["accuracy", "brier", "log_loss", "ece", "ece_debiased"]:
        with noted(metric=metric):
            _, found = two_classifiers(1)
            check_no_difference(one({"a": found["a"], "b": found["a"].take(range(80))}, metric=metric))

    # Two perfect scores do not differ.
    v = np.array([0, 0, 0, 1, 1, 0])
    for metric in ("uq_auc", "h_auc", "augrc", "g_auc", "aurc", "e_aurc", "naurc", "prr", "auarc"):
        row = one({"a": [1, 2, 3, 8, 9, 0], "b": [3, 2, 1, 9, 8, 0]}, error=v, metric=metric)
        assert row.difference == pytest.approx(0, abs=1e-15)
        assert row.p == 1

    # Rank identical scores do not differ where the variance is undefined.
    # Rank-identical scores have difference 0, se 0, p = 1, whatever the number of errors.
    for metric, kind in product(BY_SCORE, ["one error", "one right", "errors in one cluster"]):
        with noted(metric=metric, kind=kind):
            rng = np.random.default_rng(0)
            s, d = rng.normal(size=12), rng.random(12)
            v = np.zeros(12, dtype=int)
            v[3] = 1
            if kind == "one right":
                v = 1 - v
            g = None
            if kind == "errors in one cluster":
                v[4] = 1
                g = np.repeat(np.arange(6), 2)
                g[3] = g[4]
            check_no_difference(one({"a": s, "b": np.exp(s)}, error=v, loss=d, metric=metric, clusters=g))

    # Areas without an error do not differ, but may once there is one.
    for metric in ["aurc", "augrc", "g_auc", "h_auc", "auarc", "e_aurc"]:
        with noted(metric=metric):
            row = one({"a": [1, 2, 3, 4], "b": [4, 2, 3, 1]}, error=[0, 0, 0, 0], metric=metric)
            assert (row.difference, row.se, row.p, row.p_adjusted) == (0, 0, 1, 1)
            assert row.low == -row.high < 0


def test_what_is_undefined_or_without_variance_has_no_p_value():
    # A difference without variance claims no certainty.
    # Perfect against constant: all placements are constant. p = 1, so no interval may exclude 0.
    for method in ["influence", "bootstrap"]:
        with noted(method=method):
            row = one({"perfect": [1, 2, 3, 4, 5, 6], "constant": [0] * 6}, error=[0, 0, 0, 1, 1, 1], method=method)
            assert row.difference == 0.5
            assert row.p == 1 or math.isnan(row.p)
            assert not row.low > 0

    # One error leaves a real AUC difference without a p-value.
    row = one({"a": [1, 2, 3, 4], "b": [4, 1, 3, 2]}, error=[0, 0, 0, 1])
    assert row.difference == pytest.approx(1 - 1 / 3)
    assert math.isnan(row.p)
    assert math.isnan(row.se)

    # Undefined metrics have no p-value.
    for value, metric in product([0, 1], ["uq_auc", "naurc", "prr"]):
        with noted(value=value, metric=metric):
            s1, s2, v, _, _, _ = case(0)
            cmp = compare({"a": s1, "b": s2, "c": s1}, error=np.full(len(v), value), metric=metric)
            for row in cmp:
                assert math.isnan(row.difference)
                assert math.isnan(row.p)
                assert math.isnan(row.p_adjusted)
                assert math.isnan(row.low)
                assert math.isnan(row.high)
            assert str(cmp)
            assert cmp.to_json()

    # Equal losses leave the C-index without a p-value.
    row = one({"a": [1, 2, 3], "b": [3, 2, 1]}, loss=[0.5, 0.5, 0.5], metric="uq_c_index")
    assert math.isnan(row.difference)
    assert math.isnan(row.p)

    # A single cluster has no p-value.
    for metric in BY_SCORE:
        with noted(metric=metric):
            s1, s2, v, d, _, _ = case(0)
            with pytest.warns(UQWarning, match="cluster"):
                cmp = uqeval.compare(
                    {"a": s1, "b": s2}, error=v, loss=d, metric=metric, clusters=np.zeros(len(v), dtype=int)
                )
            (row,) = cmp.rows
            assert not math.isnan(row.difference)
            assert math.isnan(row.p)
            assert math.isnan(row.se)
            assert math.isnan(row.low)

    # A model without errors does not spoil the other pairs.
    s1, _, v, d, _, _ = case(3)
    s2, u, e = second_model(3, v)
    perfect = (s1, np.zeros(len(v), dtype=int), d)
    for metric in ("uq_auc", "naurc"):
        cmp = compare(models((s1, v, d), (s2, u, e), perfect), scores="s", metric=metric, adjust="none")
        assert not math.isnan(cmp.values["m0"])
        assert not math.isnan(cmp["m0", "m1"].difference)
        assert not math.isnan(cmp["m0", "m1"].p)
        assert math.isnan(cmp["m0", "m2"].p)


def test_doubtful_data_are_warned_about():
    # Few clusters and few errors are warned about.
    s1, s2, v, d, _, g = case(0, clusters=5)
    with pytest.warns(UQWarning, match="cluster"):
        uqeval.compare({"a": s1, "b": s2}, error=v, loss=d, clusters=g)
    few = np.zeros(len(v), dtype=int)
    few[:4] = 1
    with pytest.warns(UQWarning, match="few errors"):
        uqeval.compare({"a": s1, "b": s2}, error=few)
    with pytest.warns(UQWarning, match="few right"):
        uqeval.compare({"a": s1, "b": s2}, error=1 - few)

    # Heavy errors are warned about.
    # Warn when the Kish size of the errors is below 20.
    s1, s2, v, _, _, _ = case(0, n=200)
    w = np.ones(200)
    w[np.flatnonzero(v)[:3]] = 200
    with pytest.warns(UQWarning, match="errors weigh"):
        uqeval.compare({"a": s1, "b": s2}, error=v, weights=w)

    # Infinite scores are ranked with one warning.
    s1, s2, v, _, _, _ = case(0)
    s1[:3] = np.inf
    with pytest.warns(UQWarning, match="inf"):
        cmp = uqeval.compare({"a": s1, "b": s2}, error=v)
    s1[:3] = 1e9
    assert cmp.rows == compare({"a": s1, "b": s2}, error=v).rows

    # H-AUC across models warns.
    s1, _, v, d, _, _ = case(3)
    s2, u, e = second_model(3, v)
    with pytest.warns(UQWarning, match="H-AUC"):
        uqeval.compare(models((s1, v, d), (s2, u, e)), scores="s", metric="h_auc")
    with pytest.warns(UQWarning, match="C-index"):
        uqeval.compare(models((s1, v, d), (s2, u, e)), scores="s", metric="uq_c_index")


# ---- symmetries -----------------------------------------------------------------------------------------------


@on_both_kernels
def test_order_of_rows_and_of_the_pair_do_not_matter():
    # Turning a pair round turns the sign only.
    for metric, kind in product(BY_SCORE, OPTIONS):
        with noted(metric=metric, kind=kind):
            s1, s2, v, d, w, g = case(13, clusters=15)
            more = {"error": v, "loss": d, "metric": metric, **options_of(kind, w, g)}
            ab, ba = one({"a": s1, "b": s2}, **more), one({"b": s2, "a": s1}, **more)
            assert (ab.difference, ab.low, ab.high) == (-ba.difference, -ba.high, -ba.low)
            assert (ab.se, ab.df, ab.p) == (ba.se, ba.df, ba.p)
            turned = compare({"a": s1, "b": s2}, **more)["b", "a"]
            assert (turned.difference, turned.low, turned.high) == (ba.difference, ba.low, ba.high)

    # The order of rows does not matter.
    for metric, (kind, how) in product(BY_SCORE, [*((kind, "max-t") for kind in OPTIONS), ("plain", "holm")]):
        with noted(metric=metric, kind=kind, how=how):
            s1, s2, v, d, w, g = case(14, n=150, clusters=25)
            s3 = s1 + 2 * s2
            turn = np.random.default_rng(0).permutation(len(v))
            a = compare(
                {"a": s1, "b": s2, "c": s3}, error=v, loss=d, metric=metric, adjust=how, **options_of(kind, w, g)
            ).rows
            b = compare(
                {"a": s1[turn], "b": s2[turn], "c": s3[turn]},
                error=v[turn],
                loss=d[turn],
                metric=metric,
                adjust=how,
                **options_of(kind, w[turn], g[turn]),
            ).rows
            for x, y in zip(a, b, strict=True):
                for name in COLUMNS:
                    # Draws behind max-t: a p-value may move by a few of the 100,000 draws.
                    more = {"abs": 5e-5} if name == "p_adjusted" else {"abs": 1e-12}
                    assert getattr(x, name) == pytest.approx(getattr(y, name), rel=1e-10, **more), name


def test_both_kernels_agree():
    for metric, kind in product(BY_SCORE, OPTIONS):
        with noted(metric=metric, kind=kind):
            s1, s2, v, d, w, g = case(16, n=200, clusters=25)
            found = []
            former = kernels.backend()
            try:
                for name in ("numpy", "native"):
                    try:
                        kernels.use(name)
                    except InputError:
                        pytest.skip("the native kernels are not built")
                    found.append(one({"a": s1, "b": s2}, error=v, loss=d, metric=metric, **options_of(kind, w, g)))
            finally:
                kernels.use(former)
            for name in COLUMNS:
                assert getattr(found[0], name) == pytest.approx(getattr(found[1], name), rel=1e-10, abs=1e-13)


@on_both_kernels
@each("metric", ["uq_auc", "uq_c_index"])
def test_pair_counts_of_plain_rows_are_exact_in_any_order(metric):
    s1, s2, v, d, _, _ = case(15, n=300)
    turn = np.random.default_rng(0).permutation(len(v))
    a = one({"a": s1, "b": s2}, error=v, loss=d, metric=metric)
    b = one({"a": s1[turn], "b": s2[turn]}, error=v[turn], loss=d[turn], metric=metric)
    assert a.difference == b.difference
    assert a.se == pytest.approx(b.se, rel=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 25), levels=st.integers(2, 6))
@settings(max_examples=60)
def test_small_tied_samples_follow_delong(seed, n, levels):
    rng = np.random.default_rng(seed)
    v = (rng.random(n) < 0.4).astype(int)
    v[:4] = 0, 1, 0, 1
    s1, s2 = rng.integers(0, levels, n).astype(float), rng.integers(0, levels, n).astype(float)
    row = one({"a": s1, "b": s2}, error=v)
    with np.errstate(all="ignore"):
        difference, se, df = delong_difference(s1, s2, v)
    assert row.difference == pytest.approx(difference, abs=1e-14)
    if se < 1e-12:
        assert (row.se, row.p) == (0, 1)
    else:
        check(row, difference, se, df, unseen=("uq_auc", [v]))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(5, 20), weighted=st.booleans(), clustered=st.booleans())
@settings(max_examples=60)
def test_small_tied_samples_follow_the_jackknife(seed, n, weighted, clustered):
    rng = np.random.default_rng(seed)
    d = rng.integers(0, 4, n).astype(float)
    d[:4] = 0, 1, 2, 3
    s1, s2 = rng.integers(0, 4, n).astype(float), rng.integers(0, 4, n).astype(float)
    w = rng.integers(1, 5, n).astype(float) if weighted else None
    g = rng.integers(0, 6, n) if clustered else None
    if clustered:
        g[:4] = np.arange(4)
    row = one({"a": s1, "b": s2}, loss=d, metric="uq_c_index", weights=w, clusters=g)
    difference, se = jackknife_difference(c_index, (s1, d), (s2, d), w=w, g=g)
    if math.isnan(se):
        assert math.isnan(row.p) or np.array_equal(s1, s2)
        return
    df = len(np.unique(g)) - 1 if clustered else (kish(w) if weighted else n) - 1
    if se < 1e-12:
        assert row.se == pytest.approx(0, abs=1e-12)
    else:
        check(row, difference, se, df, unseen=("uq_c_index", [d], w, g))


def test_nearly_identical_scores_keep_the_digits_of_their_variance():
    """One swap among 4,000 rows: the variance of the difference is a tiny share of that of the values."""
    rng = np.random.default_rng(0)
    n = 4000
    v = (rng.random(n) < 0.5).astype(int)
    s1 = rng.permutation(n).astype(float) + 1000 * v
    s2 = s1.copy()
    order = np.argsort(s1, kind="stable")
    at = next(k for k in range(n - 1) if v[order[k]] != v[order[k + 1]] and s1[order[k]] != s1[order[k + 1]])
    s2[order[at]], s2[order[at + 1]] = s1[order[at + 1]], s1[order[at]]
    row = one({"a": s1, "b": s2}, error=v)
    difference, se, _ = delong_difference(s1, s2, v)
    assert row.difference == pytest.approx(difference, rel=1e-6)
    assert row.se == pytest.approx(se, rel=1e-5)


# ---- several candidates ---------------------------------------------------------------------------------------


def several(seed=0, n=300, k=5):
    rng = np.random.default_rng(seed)
    v = (rng.random(n) < 0.3).astype(int)
    base = rng.normal(size=n)
    scores = {f"s{j}": np.round(base + (0.4 + 0.12 * j) * v + rng.normal(size=n), 1) for j in range(k)}
    d = np.clip(0.5 * v + 0.3 + 0.1 * base, 0, 1)
    return scores, v, d


def test_a_pair_does_not_depend_on_other_candidates():
    # A pair does not depend on other scores.
    for metric in BY_SCORE:
        with noted(metric=metric):
            scores, v, d = several()
            whole = compare(scores, error=v, loss=d, metric=metric, adjust="none")
            assert len(whole.rows) == 10
            for row in whole:
                alone = one({row.a: scores[row.a], row.b: scores[row.b]}, error=v, loss=d, metric=metric, adjust="none")
                for name in COLUMNS:
                    assert getattr(row, name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-13), name

    # A pair does not depend on other models.
    for metric in BY_SCORE:
        with noted(metric=metric):
            s1, _, v, d, _, _ = case(3)
            s2, u, e = second_model(3, v)
            s3, x, f = second_model(4, v)
            x = np.where(np.arange(len(v)) < 6, x, 0)  # few errors
            cmp = compare(models((s1, v, d), (s2, u, e), (s3, x, f)), scores="s", metric=metric, adjust="none")
            alone = one(models((s1, v, d), (s2, u, e)), scores="s", metric=metric, adjust="none")
            for name in COLUMNS:
                assert getattr(cmp["m0", "m1"], name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-13), name

    # Two scores of one model are DeLong's beside another model.
    s1, s2, v, d, _, _ = case(3)
    _, u, e = second_model(3, v)
    both = {
        "m0": Predictions(scores={"s": s1, "t": s2}, error=v, loss=d),
        "m1": Predictions(scores={"s": s1, "t": s2}, error=u, loss=e),
    }
    row = compare(both, scores=["s", "t"], adjust="none")["m0 / s", "m0 / t"]
    check(row, *delong_difference(s1, s2, v), unseen=("uq_auc", [v]))


def holm(p):
    order = np.argsort(p, kind="stable")
    result, running = np.empty(len(p)), 0.0
    for place, k in enumerate(order):
        running = max(running, min(1.0, (len(p) - place) * p[k]))
        result[k] = running
    return result


def value_and_se(metric, s, v):
    """Of a selective area: the influences of the errors inflated."""
    value, f = value_and_influence(metric, s, v)
    n, m = len(v), v.sum()
    return value, math.sqrt(((f / n) ** 2 * np.where(v == 1, m / (m - 1), n / (n - 1))).sum())


def test_holm_steps_down_without_duplicated_scores():
    # Holm steps down with Bonferroni intervals.
    for metric in BY_SCORE:
        with noted(metric=metric):
            scores, v, d = several(n=120)
            cmp = compare(scores, error=v, loss=d, metric=metric, adjust="holm")
            p = [row.p for row in cmp]
            np.testing.assert_allclose([row.p_adjusted for row in cmp], holm(p), rtol=1e-12)
            alone = {name: value_and_se(metric, s, v) for name, s in scores.items()} if metric in AREAS else None
            for row in cmp:
                level = 1 - 0.05 / len(p)
                half = stats.t.ppf((1 + level) / 2, row.df) * row.se
                each = alone and [alone[name] for name in (row.a, row.b)]
                more = unseen_gap(metric, row.difference, row.se, [v], level=level, each=each)
                ends = hull((row.difference - half, row.difference + half), more)
                assert (row.low, row.high) == pytest.approx(ends, rel=1e-7)

    # Duplicated scores take no part in the adjustment.
    # Zero-variance contrasts: p = 1, excluded.
    for how, metric in product(["max-t", "holm"], ["uq_auc", "uq_c_index", "aurc"]):
        with noted(how=how, metric=metric):
            scores, v, d = several(k=2)
            three = compare({**scores, "copy": scores["s0"]}, error=v, loss=d, metric=metric, adjust=how)
            check_no_difference(three["s0", "copy"])
            p = three["s0", "s1"].p
            assert three["copy", "s1"].p == pytest.approx(p, rel=1e-12)
            two = compare(scores, error=v, loss=d, metric=metric, adjust=how)
            assert three.rows == two.rows  # one test, as without the copy
            assert three["copy", "s1"].p_adjusted == p

    # One pair needs no adjustment.
    for metric in ["uq_auc", "uq_c_index", "aurc", "naurc"]:
        with noted(metric=metric):
            scores, v, d = several(k=2)
            rows = {how: one(scores, error=v, loss=d, metric=metric, adjust=how) for how in ("max-t", "holm", "none")}
            assert rows["max-t"] == rows["holm"] == rows["none"]
            assert rows["none"].p_adjusted == rows["none"].p


def max_t_reference(joint, pairs, df, t, draws=200_000, seed=99):
    """P(max |T| ≥ |t|) by brute force from units, not from an eigendecomposition."""
    rng = np.random.default_rng(seed)
    largest = np.zeros(draws)
    cov = joint.covariance()
    basis = np.zeros((len(pairs), len(cov)))
    for k, (a, b) in enumerate(pairs):
        basis[k, a], basis[k, b] = 1, -1
    spread = basis @ cov @ basis.T
    z = rng.multivariate_normal(
        np.zeros(len(pairs)), spread / np.sqrt(np.outer(np.diag(spread), np.diag(spread))), draws
    )
    largest = np.abs(z).max(axis=1) / np.sqrt(rng.chisquare(df, draws) / df)
    return np.array([(largest >= abs(x)).mean() for x in t]), float(np.quantile(largest, 0.95))


def test_max_t_is_the_tail_of_the_largest_of_a_multivariate_t():
    rng = np.random.default_rng(3)
    units = rng.normal(size=(4, 30)) + 0.5 * rng.normal(size=30)
    joint = JointTally(0.5 * rng.normal(size=4) * np.sqrt((units**2).sum(axis=1)), (JointPart.of_units(units, 12.0),))
    pairs = list(itertools.combinations(range(4), 2))
    found = [contrast(joint, a, b) for a, b in pairs]
    result = adjust("max-t", joint, pairs, found, 0.95, np.random.default_rng(0))
    expected, bound = max_t_reference(joint, pairs, 12.0, [c.t for c in found])
    np.testing.assert_allclose(result.p, expected, atol=0.007)
    np.testing.assert_allclose(result.width, bound, rtol=0.015)

    # Max t against independent comparisons with a noiseless baseline.
    # Three independent differences: P(max |Z| ≥ z) = 1 − (1 − p)³ (Šidák).
    units = np.zeros((4, 3))
    units[1, 0], units[2, 1], units[3, 2] = 1.0, 2.0, 0.5
    joint = JointTally(np.array([0.0, 1.0, 3.0, 1.2]), (JointPart.of_units(units, 1e12),))
    pairs = [(1, 0), (2, 0), (3, 0)]
    found = [contrast(joint, a, b) for a, b in pairs]
    result = adjust("max-t", joint, pairs, found, 0.95, np.random.default_rng(0))
    raw = np.array([2 * stats.norm.sf(x) for x in (1.0, 1.5, 2.4)])
    np.testing.assert_allclose([c.p for c in found], raw, rtol=1e-10)
    np.testing.assert_allclose(result.p, 1 - (1 - raw) ** 3, atol=0.006)
    sidak = stats.norm.ppf((1 + 0.95 ** (1 / 3)) / 2)
    np.testing.assert_allclose(result.width, sidak, rtol=0.01)

    # Max t survives scores that differ in almost nothing.
    # The variance of a − b is 1e-18 of that of a: its t must not be drawn from rounding noise.
    rng = np.random.default_rng(0)
    units = rng.normal(size=(3, 50))
    units[1] = units[0]
    units[1, 7] += 1e-8
    joint = JointTally(np.array([0.5, 0.5 + 1e-9, 3.0]), (JointPart.of_units(units, 1000.0),))
    pairs = [(0, 1), (0, 2), (1, 2)]
    found = [contrast(joint, a, b) for a, b in pairs]
    assert found[0].se == pytest.approx(1e-8, rel=1e-6)
    result = adjust("max-t", joint, pairs, found, 0.95, np.random.default_rng(0))
    bonferroni = stats.t.ppf(1 - 0.025 / 3, 1000)
    assert max(result.width) <= 1.02 * bonferroni
    assert all(b <= min(1, 3 * c.p) + 0.01 for b, c in zip(result.p, found, strict=True))

    # Max t lies between the raw and the Bonferroni p.
    for metric in BY_SCORE:
        with noted(metric=metric):
            scores, v, d = several(k=6)
            cmp = compare(scores, error=v, loss=d, metric=metric)
            m, pointwise = len(cmp), compare(scores, error=v, loss=d, metric=metric, adjust="none")
            for row, alone in zip(cmp, pointwise, strict=True):
                assert (row.difference, row.se, row.df, row.p) == (alone.difference, alone.se, alone.df, alone.p)
                assert row.p_adjusted >= row.p
                noise = 4 * math.sqrt(max(1e-5, row.p_adjusted * (1 - row.p_adjusted)) / 1e5)
                # One df for all (their median) against each its own: the Bonferroni bound is approximate.
                assert row.p_adjusted <= min(1, m * row.p) * 1.25 + noise + 1e-4
                assert row.low <= alone.low <= alone.high <= row.high


@each("metric", BY_SCORE)
@each("seed", range(3))
def test_an_interval_without_0_has_a_small_adjusted_p(metric, seed):
    scores, v, d = several(seed=seed, k=6)
    cmp = compare(scores, error=v, loss=d, metric=metric)
    for row in cmp:
        if abs(row.p_adjusted - 0.05) > 0.003:
            assert row.p_adjusted <= 0.05 or row.low <= 0 <= row.high


def test_baseline_seed_and_level_do_what_they_say():
    # Baseline compares all others with it.
    scores, v, d = several()
    cmp = compare(scores, error=v, loss=d, baseline="s2")
    assert [(row.a, row.b) for row in cmp] == [("s0", "s2"), ("s1", "s2"), ("s3", "s2"), ("s4", "s2")]
    everything = compare(scores, error=v, loss=d)
    for row in cmp:
        full = everything[row.a, row.b]
        assert row.difference == full.difference
        assert row.p == pytest.approx(full.p, rel=1e-12)
        assert row.p_adjusted <= full.p_adjusted + 0.006  # fewer tests
    with pytest.raises(InputError, match="s9"):
        compare(scores, error=v, loss=d, baseline="s9")

    # Seeds are deterministic and default to zero.
    scores, v, d = several()
    first, again = (compare(scores, error=v, loss=d) for _ in range(2))
    assert first.rows == again.rows
    assert first.rows == compare(scores, error=v, loss=d, seed=0).rows
    assert first.rows != compare(scores, error=v, loss=d, seed=1).rows
    drawn = [compare(scores, error=v, loss=d, seed=np.random.default_rng(5)).rows for _ in range(2)]
    assert drawn[0] == drawn[1]

    # Level sets the width.
    for level in [0.8, 0.99]:
        with noted(level=level):
            scores, v, d = several(k=2)
            row = one(scores, error=v, loss=d, level=level)
            difference, se, df = delong_difference(*scores.values(), v)
            check(row, difference, se, df, level=level, unseen=("uq_auc", [v]))


def test_frame_has_the_promised_columns():
    pytest.importorskip("pandas")
    scores, v, d = several(k=3)
    frame = compare(scores, error=v, loss=d).to_frame("pandas")
    assert list(frame.columns) == ["a", "b", "metric", "difference", "low", "high", "se", "p", "p_adjusted"]
    assert len(frame) == 3


# ---- who cannot be told from whom -----------------------------------------------------------------------------


def pairs_of(*text):
    return {frozenset(pair) for pair in text}


def test_groups_of_candidates_are_runs_without_a_shown_difference():
    # Runs of the ranking without a shown difference.
    for values, higher, differ, expected in [
        ([3, 2, 1], True, (), [["a", "b", "c"]]),
        ([3, 2, 1], False, (), [["c", "b", "a"]]),
        ([3, 2, 1], True, ("ab", "ac", "bc"), [["a"], ["b"], ["c"]]),
        ([3, 2, 1], True, ("ac",), [["a", "b"], ["b", "c"]]),
        ([3, 2, 1], True, ("ab", "ac"), [["a"], ["b", "c"]]),
        ([3, 2, 1], True, ("bc", "ac"), [["a", "b"], ["c"]]),
        ([1, 3, 2], True, ("ab",), [["b", "c"], ["c", "a"]]),
        ([4, 3, 2, 1], True, ("ad",), [["a", "b", "c"], ["b", "c", "d"]]),
        ([4, 3, 2, 1], True, ("ad", "ac", "bd"), [["a", "b"], ["b", "c"], ["c", "d"]]),
        ([4, 3, 2, 1], True, ("bc", "ad"), [["a", "b"], ["c", "d"]]),
        ([4, math.nan, 2, 1], True, ("ad",), [["a", "c"], ["c", "d"]]),
        ([1, 1], True, (), [["a", "b"]]),
        ([5], True, (), [["a"]]),
    ]:
        with noted(values=values, higher=higher, differ=differ, expected=expected):
            names = list("abcd")[: len(values)]
            assert cliques(names, np.array(values, dtype=float), higher, pairs_of(*differ)) == expected

    # Groups follow adjusted p-values and direction.
    rng = np.random.default_rng(0)
    v = (rng.random(800) < 0.4).astype(int)
    noise = rng.normal(size=800)
    scores = {"bad": rng.normal(size=800), "good": 3 * v + noise, "twin": 3 * v + noise + 1e-3 * rng.normal(size=800)}
    for metric in ("uq_auc", "aurc"):
        cmp = compare(scores, error=v, metric=metric)
        assert [sorted(run) for run in cmp.groups()] == [["good", "twin"], ["bad"]]
        assert cmp.ranking()[-1] == "bad"
    versus = compare(scores, error=v, baseline="good")
    assert sorted(versus.groups()[0]) == ["good", "twin"]


@given(k=st.integers(1, 7), seed=st.integers(0, 2**32 - 1))
def test_runs_are_all_maximal_intervals(k, seed):
    rng = np.random.default_rng(seed)
    names = [f"n{j}" for j in range(k)]
    values = rng.permutation(k).astype(float)
    differ = {frozenset(p) for p in itertools.combinations(names, 2) if rng.random() < 0.4}
    order = [names[j] for j in np.argsort(-values)]
    fine = [
        (i, j)
        for i in range(k)
        for j in range(i, k)
        if all(frozenset(p) not in differ for p in itertools.combinations(order[i : j + 1], 2))
    ]
    maximal = [(i, j) for i, j in fine if not any((a <= i and j <= b) and (a, b) != (i, j) for a, b in fine)]
    assert cliques(names, values, True, differ) == [order[i : j + 1] for i, j in maximal]


# ---- groups of rows -------------------------------------------------------------------------------------------


def test_groups_are_compared_each_alone_and_tested_for_heterogeneity():
    # A group is compared as if alone.
    for kind, metric in product(OPTIONS, ["uq_auc", "uq_c_index", "aurc"]):
        with noted(kind=kind, metric=metric):
            s1, s2, v, d, w, _ = case(20, n=240)
            site = np.array(["x", "y", "z"])[np.arange(240) % 3]
            g = np.arange(240) % 60  # 60 is a multiple of 3: clusters do not span sites
            scores = {"a": s1, "b": s2}
            cmp = compare(scores, error=v, loss=d, metric=metric, groups=site, **options_of(kind, w, g))
            for name in "xyz":
                keep = site == name
                alone = one(
                    {k: s[keep] for k, s in scores.items()},
                    error=v[keep],
                    loss=d[keep],
                    metric=metric,
                    **options_of(kind, w[keep], g[keep]),
                )
                for column in COLUMNS:
                    assert getattr(cmp["a", "b", name], column) == pytest.approx(getattr(alone, column), rel=1e-12)
            assert cmp["a", "b"].difference == pytest.approx(
                one(scores, error=v, loss=d, metric=metric, **options_of(kind, w, g)).difference
            )

    # Compare tests whether the difference is the same in all groups.
    for method in ["influence", "bootstrap"]:
        with noted(method=method):
            s1, s2, v, d, _, _ = case(21, n=300)
            site = np.arange(300) % 3
            cmp = compare({"a": s1, "b": s2}, error=v, loss=d, groups=site, method=method, resamples=300)
            rows = [cmp["a", "b", name] for name in "012"]
            found = cmp.heterogeneity["a", "b"]
            if method == "influence":
                expected = welch_f([r.difference for r in rows], [r.se for r in rows], [r.df for r in rows])[2]
                assert found == pytest.approx(expected, rel=1e-8)
            assert 0 < found < 1

    # Clusters that span groups are not tested across them.
    s1, s2, v, d, _, _ = case(21, n=300)
    with pytest.warns(UQWarning, match="span"):
        cmp = uqeval.compare(
            {"a": s1, "b": s2}, error=v, loss=d, groups=np.arange(300) % 3, clusters=np.arange(300) // 10
        )
    assert cmp.heterogeneity == {}


def welch_f(values, se, df):
    """Welch (1951), as in Maxwell & Delaney: statistic, denominator degrees of freedom, p-value."""
    k, w = len(values), 1 / np.array(se) ** 2
    mean = (w * values).sum() / w.sum()
    lam = 3 * ((1 - w / w.sum()) ** 2 / np.array(df)).sum() / (k**2 - 1)
    f = (w * (values - mean) ** 2).sum() / (k - 1) / (1 + 2 * (k - 2) * lam / 3)
    return f, 1 / lam, stats.f.sf(f, k - 1, 1 / lam)


def test_heterogeneity_is_welchs_test_of_the_groups():
    values, se, df = np.array([0.1, 0.25, -0.05, 0.2]), np.array([0.05, 0.08, 0.06, 0.1]), np.array([17.0, 3, 40, 8])
    test = heterogeneity(values, se, df)
    assert test[:4] == pytest.approx((welch_f(values, se, df)[0], 3, *welch_f(values, se, df)[1:]), rel=1e-10)
    assert test.left_out == 0
    assert heterogeneity([0.1, 0.1], [0.1, 0.14], [30, 30]).p == pytest.approx(1)

    # Of two groups of rows it is Welch's t test.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=12), rng.normal(0.5, 3, size=30)
    given = [(z.mean(), z.std(ddof=1) / math.sqrt(len(z)), len(z) - 1) for z in (x, y)]
    assert heterogeneity(*zip(*given, strict=True)).p == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue)

    # Without limit of degrees of freedom it is chi-square.
    q = (3 - 1) * welch_f(values[:3], se[:3], [1e12] * 3)[0]
    assert heterogeneity(values[:3], se[:3], [math.inf] * 3).p == pytest.approx(stats.chi2.sf(q, 2), rel=1e-6)

    # A group without a spread or degrees of freedom takes no part, and is counted.
    more = heterogeneity([*values, math.inf, 0.3, 0.2], [*se, math.nan, 0.0, 0.1], [*df, 5, 5, 0])
    assert more[:4] == test[:4]
    assert more.left_out == 3
    assert math.isnan(heterogeneity([0.1, 0.2], [0.1, 0.0], [5, 5]).p)


# ---- errors ---------------------------------------------------------------------------------------------------


def test_bad_requests_are_explained():
    for options, message in [
        ({"adjust": "fdr"}, "adjust"),
        ({"method": "magic"}, "method"),
        ({"metric": "ood_auroc"}, "same rows"),
        ({"metric": "uq_aucc"}, "uq_auc"),
        ({"level": 1.5}, "level"),
        ({"metric": "accuracy"}, "models"),
        ({"resamples": 0, "method": "bootstrap"}, "resamples"),
        ({"clusters": [1, 2]}, "clusters"),
        ({"metric": "kendall_phi"}, "soft_labels"),
    ]:
        with noted(options=options, message=message):
            s1, s2, v, d, _, _ = case(0)
            with pytest.raises(InputError, match=message):
                compare({"a": s1, "b": s2}, **{"error": v, "loss": d, **options})

    # Candidates must match.
    s1, s2, v, _, _, _ = case(0)
    with pytest.raises(InputError, match="at least two"):
        compare({"a": s1}, error=v)
    with pytest.raises(InputError, match="rows"):
        compare({"a": s1, "b": s2[:-1]}, error=v)
    a = Predictions(scores={"s": s1}, error=v)
    b = Predictions(scores={"s": s2[:-1]}, error=v[:-1])
    with pytest.raises(InputError, match="same rows"):
        compare({"a": a, "b": b})
    with pytest.raises(InputError, match="weights"):
        compare({"a": a, "b": Predictions(scores={"s": s2}, error=v, weights=np.ones(len(v)))})
    with pytest.raises(InputError, match="inside"):
        compare({"a": a, "b": a}, error=v)
    with pytest.raises(InputError, match="common"):
        compare({"a": a, "b": Predictions(scores={"t": s2}, error=v)})


def test_every_metric_of_the_registry_can_be_compared():
    soft, probs, labels, s1, s2, _ = soft_case(0)
    other = np.roll(probs, 1, axis=0)
    for metric in REGISTRY.values():
        if "score_in" in metric.needs:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UQWarning)
            pair = {
                "a": Predictions(labels, probs=probs, soft_labels=soft, scores={"s": s1}),
                "b": Predictions(labels, probs=other, soft_labels=soft, scores={"s": s2}),
            }
        row = one(pair, scores="s" if metric.uses_score else None, metric=metric.name)
        assert 0 <= row.p <= 1, metric.name
        assert row.low <= row.difference <= row.high
