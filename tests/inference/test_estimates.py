"""`estimate`: the value is the metric's, the standard error its definition's, the interval its formula's."""

from __future__ import annotations

import json
import math
import warnings
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inference_reference import (
    augrc,
    aurc,
    beside,
    beta_quantile,
    c_index,
    delong,
    flat_rate,
    gamma_ends,
    h_auc,
    heavy,
    hull,
    influence,
    jackknife_se,
    kish,
    make_case,
    numeric_influence,
    quiet,
    tau_b,
    unit_weights,
    unseen_error,
    unseen_row,
    unseen_unit,
    unseen_wrong,
    without_each,
)
from scipy import stats

from cases import each, noted
from optional import optional
from uqeval import InputError, UQWarning, kernels
from uqeval.inference import Estimate, bootstrap, estimate
from uqeval.inference.sample import Sample
from uqeval.metrics import REGISTRY

pl = optional("polars")

RANKING = [name for name, metric in REGISTRY.items() if metric.needs[0] == "score"]
AREAS = ["aurc", "augrc", "g_auc", "auarc"]
EXCESS = ["e_aurc", "naurc", "h_auc", "prr"]
OOD = ["ood_auroc", "fpr_at_tpr", "ood_aupr"]
MODEL = ["accuracy", "ece", "ece_debiased", "brier", "log_loss"]
PAIRWISE = {"uq_auc": c_index, "uq_c_index": c_index, "kendall_phi": tau_b, "kendall_varphi": tau_b}
SQUARED = {"augrc": augrc, "aurc": aurc, "h_auc": h_auc}
LOSS_TARGETS = ("loss", "phi", "varphi")


def arguments(name, seed=0, n=80, ties=True):
    """Data for any metric of the registry, with weights and clusters that fit them."""
    s, v, d, w, g = make_case(seed, n=n, ties=ties, clusters=12)
    rng = np.random.default_rng(1000 + seed)
    needs = REGISTRY[name].needs
    if needs[0] == "score":
        data = (s, d if needs[1] in LOSS_TARGETS else v)
        if REGISTRY[name].made is not None:
            data = (s, np.round(rng.uniform(0.3, 1.0, n), 2 if ties else 9), v)
    elif needs == ("error",):
        data = (v,)
    elif needs == ("confidence", "correct"):
        c = rng.uniform(0.3, 1.0, n)
        data = (np.round(c, 2) if ties else c, (rng.random(n) < c**2).astype(int))
    elif needs == ("probs", "labels"):
        data = (rng.dirichlet(np.ones(4), size=n), rng.integers(0, 4, n))
    else:
        data = (s[: n // 2], s[n // 2 :] + 0.7)
    return data, w, g


def between(name, target):
    """What a metric takes beside the score."""
    return (target,) if REGISTRY[name].made is None else (np.arange(len(target)) % 3 / 3 + 0.2, target)


def ends(result):
    return result.value, result.se, result.low, result.high


def logit_interval(value, se, df, level=0.95):
    half = stats.t.ppf((1 + level) / 2, df) * se / (value * (1 - value))
    return tuple(stats.logistic.cdf(stats.logistic.ppf(value) + np.array([-half, half])))


def log_interval(value, se, df, cap=math.inf, level=0.95):
    half = stats.t.ppf((1 + level) / 2, df) * se / value
    return value * math.exp(-half), min(cap, value * math.exp(half))


def wilson_interval(share, size, level=0.95):
    z = stats.norm.ppf((1 + level) / 2)
    middle = (share + z * z / (2 * size)) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    return max(0.0, middle - half), min(1.0, middle + half)


def gamma_interval(y, v, k, cap, level=0.95):
    a = 1 - level
    low = v / (2 * y) * stats.chi2.ppf(a / 2, 2 * y * y / v) if y > 0 else 0.0
    high = (v + k * k) / (2 * (y + k)) * stats.chi2.ppf(1 - a / 2, 2 * (y + k) ** 2 / (v + k * k))
    return low, min(cap, high)


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


# ---- the value --------------------------------------------------------------------------------------------------


def test_value_is_exactly_that_of_the_metric_function():
    for name, seed in product(REGISTRY, range(3)):
        with noted(name=name, seed=seed):
            data, _, _ = arguments(name, seed)
            assert quiet(name, *data).value == REGISTRY[name].function(*data)

    # Weighted value is that of the metric function.
    for name, seed in product([*RANKING, *MODEL], range(3)):
        with noted(name=name, seed=seed):
            data, w, _ = arguments(name, seed)
            assert quiet(name, *data, weights=w).value == pytest.approx(
                REGISTRY[name].function(*data, weights=w), rel=1e-14
            )

    # Clusters do not change the value.
    for name, weighted in product([*RANKING, *MODEL], [False, True]):
        with noted(name=name, weighted=weighted):
            data, w, g = arguments(name)
            w = w if weighted else None
            clustered = quiet(name, *data, weights=w, clusters=g).value
            assert clustered == pytest.approx(quiet(name, *data, weights=w).value, rel=1e-14)

    # Level does not change value or SE.
    for name in REGISTRY:
        with noted(name=name):
            data, _, _ = arguments(name)
            a, b = quiet(name, *data, level=0.8), quiet(name, *data, level=0.99)
            assert (a.value, a.se) == (b.value, b.se)


@each("name", REGISTRY)
@each("options", ["plain", "weights", "clusters", "both"])
def test_interval_is_finite_ordered_inside_the_range_and_nested_in_the_level(name, options):
    if name in OOD and options != "plain":
        return  # takes neither
    for seed in range(4):
        data, w, g = arguments(name, seed)
        given_options = {
            "weights": w if options in ("weights", "both") else None,
            "clusters": g if options in ("clusters", "both") else None,
        }
        found = [quiet(name, *data, level=level, **given_options) for level in (0.9, 0.95, 0.99)]
        low, high = REGISTRY[name].range
        for result in found:
            assert all(map(math.isfinite, ends(result)))
            assert low <= result.low <= result.high <= high
            if name != "ece":  # the interval is about the debiased value
                assert result.low <= result.value <= result.high
            assert result.se > 0
            assert not result.degenerate
        assert found[2].low <= found[1].low <= found[0].low
        assert found[0].high <= found[1].high <= found[2].high


# ---- concordance ------------------------------------------------------------------------------------------------


def test_uq_auc_is_delong_and_uq_c_index_the_delete_one_jackknife():
    # UQ-AUC SE and interval are DeLong with Welch degrees of freedom.
    for seed, ties in product(range(10), [False, True]):
        with noted(seed=seed, ties=ties):
            s, v, _, _, _ = make_case(seed, n=30 + 7 * seed, ties=ties)
            value, a, b, df = delong(s, v)
            result = quiet("uq_auc", s, v)
            assert result.value == pytest.approx(value, rel=1e-13)
            assert result.se == pytest.approx(math.sqrt(a + b), rel=1e-12)
            se = math.sqrt(a + b)
            expected = hull(logit_interval(value, se, df), unseen_error(value, se, s, v))
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)
            n0, n1 = (v == 0).sum(), (v == 1).sum()
            assert result.n_eff == pytest.approx(n0 * n1 / (n0 + n1))
            assert (result.n, result.n_errors) == (len(s), n1)

    # UQ-C-index SE is the delete-one jackknife recomputed.
    for seed, ties in product(range(6), [False, True]):
        with noted(seed=seed, ties=ties):
            s, _, d, _, _ = make_case(seed, n=40, ties=ties)
            result = quiet("uq_c_index", s, d)
            se = jackknife_se(without_each(c_index, s, d))
            assert result.value == pytest.approx(c_index(s, d), rel=1e-13)
            assert result.se == pytest.approx(se, rel=1e-11)
            expected = hull(logit_interval(result.value, se, len(s) - 1), unseen_row(result.value, se, len(s)))
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)
            pairs = (d[:, None] != d[None, :]).sum()
            assert result.n_eff == pytest.approx(pairs / (2 * len(s)))

    # The C-index of a 0/1 loss has the value of UQ-AUC and its own jackknife.
    s, v, _, _, _ = make_case(5)
    auc, c = quiet("uq_auc", s, v), quiet("uq_c_index", s, v)
    assert auc.value == c.value
    assert c.se == pytest.approx(jackknife_se(without_each(c_index, s, v)), rel=1e-11)

    # OOD auroc is UQ-AUC with foreign rows as errors.
    s, v, _, _, _ = make_case(3)
    ood, auc = quiet("ood_auroc", s[v == 0], s[v == 1]), quiet("uq_auc", s, v)
    assert ends(ood) == ends(auc)
    assert ood.method == auc.method


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=4, max_size=40))
def test_uq_auc_is_delong_on_heavily_tied_rows(rows):
    s, v = np.array(rows, dtype=float).T
    if min(v.sum(), len(v) - v.sum()) < 2 or len(set(s.tolist())) == 1:
        return
    value, a, b, df = delong(s, v)
    result = quiet("uq_auc", s, v)
    assert result.value == pytest.approx(value, abs=1e-14)
    assert result.se == pytest.approx(math.sqrt(a + b), abs=1e-12)
    if 0 < value < 1 and a + b > 1e-12:
        base = logit_interval(value, math.sqrt(a + b), df)
    else:
        base = wilson_interval(value, v.sum() * (len(v) - v.sum()) / len(v))
    expected = hull(base, unseen_error(value, math.sqrt(a + b), s, v))
    assert (result.low, result.high) == pytest.approx(expected, abs=1e-8)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=4, max_size=25))
def test_uq_c_index_is_the_jackknife_on_heavily_tied_rows(rows):
    s, d = np.array(rows, dtype=float).T
    left_out = without_each(c_index, s, d)
    if len(set(s.tolist())) == 1 or np.isnan(left_out).any():
        return
    assert quiet("uq_c_index", s, d).se == pytest.approx(jackknife_se(left_out), abs=1e-12)


def pairwise_interval(name, value, se, df, s, d, w, g=None):
    """Logit scale joined with room for what was not seen; of tau-b on (1 + tau)/2."""
    if name == "uq_auc":
        return hull(logit_interval(value, se, df), unseen_error(value, se, s, d, w, g))
    if PAIRWISE[name] is c_index:
        return hull(logit_interval(value, se, df), unseen_row(value, se, len(s), w, g))
    half = (value + 1) / 2, se / 2
    return tuple(2 * np.array(hull(logit_interval(*half, df), unseen_row(*half, len(s), w, g))) - 1)


def test_jackknife_equals_recomputation_without_each_row_or_cluster():
    # Weighted jackknife equals recomputation without each row.
    for name, seed, ties in product(PAIRWISE, range(3), [False, True]):
        with noted(name=name, seed=seed, ties=ties):
            (s, d), w, _ = arguments(name, seed, n=40, ties=ties)
            metric = PAIRWISE[name]
            result = quiet(name, s, d, weights=w)
            se = jackknife_se(without_each(metric, s, d, w))
            assert result.value == pytest.approx(metric(s, d, w), rel=1e-12)
            assert result.se == pytest.approx(se, rel=1e-10)
            df = min(kish(w[d == 1]), kish(w[d == 0])) - 1 if name == "uq_auc" else kish(w) - 1
            expected = pairwise_interval(name, result.value, se, df, s, d, w)
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-7)

    # Cluster jackknife equals recomputation without each cluster.
    for name, seed, weighted, ties in product(PAIRWISE, range(3), [False, True], [False, True]):
        with noted(name=name, seed=seed, weighted=weighted, ties=ties):
            (s, d), w, g = arguments(name, seed, n=50, ties=ties)
            w = w if weighted else None
            metric = PAIRWISE[name]
            result = quiet(name, s, d, weights=w, clusters=g)
            se = jackknife_se(without_each(metric, s, d, w, g))
            assert result.value == pytest.approx(metric(s, d, w), rel=1e-12)
            assert result.se == pytest.approx(se, rel=1e-10)
            G = len(np.unique(g))
            assert result.n_clusters == G
            expected = pairwise_interval(name, result.value, se, G - 1, s, d, w, g)
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-7)


def test_kendall_and_somers_have_the_intervals_of_their_definitions():
    # Kendall is SciPy with a delete-one jackknife.
    for seed, ties in product(range(4), [False, True]):
        with noted(seed=seed, ties=ties):
            s, _, d, _, _ = make_case(seed, n=40, ties=ties)
            result = quiet("kendall_phi", s, d)
            se = jackknife_se([stats.kendalltau(np.delete(s, i), np.delete(d, i)).statistic for i in range(40)])
            assert result.value == pytest.approx(stats.kendalltau(s, d).statistic, rel=1e-12)
            assert result.se == pytest.approx(se, rel=1e-10)
            half = stats.t.ppf(0.975, 39) * se / (1 - result.value**2)
            room = 2 * np.array(unseen_row((result.value + 1) / 2, se / 2, 40)) - 1
            expected = hull(np.tanh(np.arctanh(result.value) + np.array([-half, half])), room)
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)

    # Somers' D is twice the C-index minus one in every respect.
    for options in ["plain", "weights", "clusters"]:
        with noted(options=options):
            s, _, d, w, g = make_case(2, clusters=14)
            extra = {"weights": w} if options == "weights" else {"clusters": g} if options == "clusters" else {}
            c, somers = quiet("uq_c_index", s, d, **extra), quiet("somers_phi", s, d, **extra)
            assert ends(somers) == pytest.approx((2 * c.value - 1, 2 * c.se, 2 * c.low - 1, 2 * c.high - 1), rel=1e-14)
            assert somers.value == pytest.approx(stats.somersd(d, s).statistic) or options == "weights"


# ---- selective prediction ---------------------------------------------------------------------------------------


def influence_se(values, v, w=None, inflate=True):
    """Σ(w IF/W)², n1/(n1 − 1) on the error rows, n/(n − 1) on the others."""
    w = np.ones(len(v)) if w is None else w
    n, n1 = len(v), kish((w * v)[v > 0])
    factor = np.where(v > 0, n1 / (n1 - 1), n / (n - 1)) if inflate else n / (n - 1)
    return math.sqrt((factor * (w * values / w.sum()) ** 2).sum())


def test_area_se_and_interval_come_from_brute_force_influence():
    for name, seed, weighted, ties in product(SQUARED, range(3), [False, True], [False, True]):
        with noted(name=name, seed=seed, weighted=weighted, ties=ties):
            s, v, _, w, _ = make_case(seed, n=60, ties=ties)
            w = w if weighted else np.ones(60)
            metric = SQUARED[name]
            result = quiet(name, s, v, weights=w if weighted else None)
            se = influence_se(numeric_influence(metric, s, v, w), v, w)
            assert result.value == pytest.approx(metric(s, v, w), rel=1e-12)
            assert result.se == pytest.approx(se, rel=1e-6)
            df = kish(w[v > 0]) - 1
            base = log_interval(result.value, se, df, 0.25) if name == "h_auc" else logit_interval(result.value, se, df)
            low, high = hull(base, unseen_wrong(name, result.value, se, s, v, w if weighted else None))
            expected = (low * (flat_rate(v, w) if name == "h_auc" else 1.0), high)
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-5)

    # Clustered area SE is the sandwich of brute force influence.
    for name, weighted in product(SQUARED, [False, True]):
        with noted(name=name, weighted=weighted):
            s, v, _, w, g = make_case(4, n=60, clusters=15)
            w = w if weighted else np.ones(60)
            values = numeric_influence(SQUARED[name], s, v, w)
            sums = np.array([(w * values)[g == k].sum() / w.sum() for k in np.unique(g)])
            G = len(sums)
            se = math.sqrt(G / (G - 1) * (sums**2).sum())
            result = quiet(name, s, v, weights=w if weighted else None, clusters=g)
            assert result.se == pytest.approx(se, rel=1e-6)
            df = G - 1
            base = log_interval(result.value, se, df, 0.25) if name == "h_auc" else logit_interval(result.value, se, df)
            low, high = hull(base, unseen_wrong(name, result.value, se, s, v, w if weighted else None, g))
            expected = (low * (flat_rate(v, w, g) if name == "h_auc" else 1.0), high)
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-5)

    # E-AURC and nAURC intervals are on the log scale.
    s, v, _, _, _ = make_case(6, n=120)
    n1 = v.sum()
    for name, cap in (("e_aurc", 1.0), ("naurc", math.inf)):
        result = quiet(name, s, v)
        per = 1.0 if name == "e_aurc" else quiet("e_aurc", s, v).value / result.value
        room = unseen_wrong(name, result.value, result.se, s, v, per=per)
        expected = hull(log_interval(result.value, result.se, n1 - 1, cap), room)
        assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)

    # Mirrored and doubled metrics carry their intervals along.
    for options in ["plain", "weights", "clusters"]:
        with noted(options=options):
            s, v, _, w, g = make_case(6, n=100, clusters=15)
            extra = {"weights": w} if options == "weights" else {"clusters": g} if options == "clusters" else {}
            found = {name: quiet(name, s, v, **extra) for name in (*AREAS, *EXCESS)}
            for name, base in (("auarc", "aurc"), ("prr", "naurc")):
                a, b = found[name], found[base]
                assert ends(a) == (1 - b.value, b.se, 1 - b.high, 1 - b.low)
            a, b = found["g_auc"], found["augrc"]
            assert ends(a) == (2 * b.value, 2 * b.se, 2 * b.low, 2 * b.high)

    # A loss in [0, 1] gets an interval too.
    for name in ["aurc", "augrc", "auarc", "naurc", "prr"]:
        with noted(name=name):
            rng = np.random.default_rng(3)
            s = rng.random(200)
            loss = np.clip(s + 0.3 * rng.normal(size=200), 0, 1)
            result = quiet(name, s, loss)
            assert result.low < result.value < result.high
            assert result.n_errors is None


def test_ten_errors_part_the_gamma_interval_from_the_t_interval():
    # Fewer than ten errors give the gamma interval.
    for errors, ties in product([1, 2, 5, 9], [False, True]):
        with noted(errors=errors, ties=ties):
            rng = np.random.default_rng(errors)
            n = 80
            v = np.zeros(n, dtype=int)
            v[:errors] = 1
            s = rng.normal(size=n) + v
            s = np.round(2 * s) / 2 if ties else s
            credit = (s[:, None] < s[None, :]) + 0.5 * (s[:, None] == s[None, :])
            # Row i's contribution to an area is its derivative in v_i.
            unit = np.eye(n)
            for name, metric, k, cap in (("aurc", aurc, harmonic(n) / n, 1.0), ("augrc", augrc, 1 / n, 0.5)):
                parts = np.array([metric(s, unit[i]) for i in np.flatnonzero(v)])
                y = parts.sum()
                if name == "augrc":
                    assert parts == pytest.approx((credit[v == 1].sum(axis=1)) / n**2)
                result = quiet(name, s, v)
                assert result.value == pytest.approx(y, rel=1e-12)
                assert (result.low, result.high) == pytest.approx(gamma_interval(y, (parts**2).sum(), k, cap), rel=1e-9)
                assert result.low <= result.value <= result.high
                assert math.isfinite(result.se)

    # Ten errors are enough for the t-interval.
    rng = np.random.default_rng(0)
    s = rng.normal(size=100)
    for errors, method in ((9, "gamma"), (10, "logit")):
        v = (np.arange(100) < errors).astype(int)
        assert method in quiet("aurc", s, v).method
        assert method in quiet("augrc", s, v).method


# ---- means ------------------------------------------------------------------------------------------------------


def rows_of(name, data):
    if name == "accuracy":
        return 1.0 - np.asarray(data[0])
    probs, labels = data
    if name == "brier":
        return ((probs - np.eye(probs.shape[1])[labels]) ** 2).sum(axis=1)
    return -np.log(probs[np.arange(len(labels)), labels])


def unseen_loss(name, mean, se, n, total, largest=1.0):
    """Upper end of a Brier score or log-loss with three quarters of a row that is as wrong as can be."""
    cost, cap = (2.0, 2.0) if name == "brier" else (math.log(n), math.inf)  # n: units
    return gamma_ends(mean, se**2, 0.75 * largest * cost / total, cap)[1]


def test_proper_scores_have_the_t_interval_with_room_for_an_unseen_error():
    for name in ["brier", "log_loss"]:
        with noted(name=name):
            data, w, g = arguments(name)
            rows = rows_of(name, data)
            n = len(rows)
            result = quiet(name, *data)
            assert result.se == pytest.approx(rows.std(ddof=1) / math.sqrt(n), rel=1e-12)
            low, high = stats.t.interval(0.95, n - 1, rows.mean(), result.se)
            room = unseen_loss(name, rows.mean(), result.se, n, n)
            assert (result.low, result.high) == pytest.approx((low, max(high, room)), rel=1e-8)

            mean = np.average(rows, weights=w)
            weighted = quiet(name, *data, weights=w)
            part = w * (rows - mean) / w.sum()
            assert weighted.se == pytest.approx(math.sqrt(n / (n - 1) * (part**2).sum()), rel=1e-12)
            low, high = stats.t.interval(0.95, kish(w) - 1, mean, weighted.se)
            room = unseen_loss(name, mean, weighted.se, kish(w), w.sum(), heavy(w))
            assert (weighted.low, weighted.high) == pytest.approx((low, max(high, room)), rel=1e-8)

            clustered = quiet(name, *data, weights=w, clusters=g)
            sums = np.array([part[g == k].sum() for k in np.unique(g)])
            G = len(sums)
            assert clustered.se == pytest.approx(math.sqrt(G / (G - 1) * (sums**2).sum()), rel=1e-12)
            low, high = stats.t.interval(0.95, G - 1, mean, clustered.se)
            room = unseen_loss(name, mean, clustered.se, G, w.sum(), heavy(unit_weights(w, g)))
            assert (clustered.low, clustered.high) == pytest.approx((low, max(high, room)), rel=1e-8)

    # Log-loss of an impossible label is infinite with no interval and says so.
    probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 0.8]])
    with pytest.warns(UQWarning, match="1 label"):
        result = estimate("log_loss", probs, [1, 0, 1])
    assert result.value == math.inf
    assert all(map(math.isnan, (result.se, result.low, result.high)))


def room_for(name, found, s, v, w, g, most):
    """Ends that leave room for a cluster of `most` rows."""
    if name == "uq_auc":
        return unseen_error(found.value, found.se, s, v, w, g, most)
    if name == "uq_c_index":
        return unseen_row(found.value, found.se, len(s), w, g, most)
    if name == "accuracy":
        return unseen_unit(found.value, found.se, v, w, g, most)
    return unseen_wrong(name, found.value, found.se, s, v, w, g, largest=most)


def test_intervals_leave_room_for_the_largest_cluster_that_is_declared():
    most, wider = 30, {"selective_accuracy_90", "brier", "ece"}
    for weighted in (False, True):
        s, v, d, w, g = make_case(4, n=80, clusters=20)
        ones = w if weighted else np.ones(80)
        w, df = w if weighted else None, len(np.unique(g)) - 1
        data = {"uq_c_index": (s, d), "accuracy": (v,), "brier": ([[0.4, 0.6]] * 80, v), "ece": (np.full(80, 0.6), v)}
        for name in ("uq_auc", "uq_c_index", "aurc", "augrc", "h_auc", "accuracy", *wider):
            with noted(name=name, weighted=weighted):
                rows = data.get(name, (s, v))
                without = quiet(name, *rows, weights=w, clusters=g)
                found = quiet(name, *rows, weights=w, clusters=g, largest_cluster=most)
                assert (found.value, found.se) == (without.value, without.se)
                assert found.high - found.low >= without.high - without.low
                if name in wider:
                    continue
                cap = {"h_auc": (0.25,)}.get(name, ())
                base = (log_interval if cap else logit_interval)(found.value, found.se, df, *cap)
                low, high = hull(base, room_for(name, found, s, v, w, g, most))
                low *= flat_rate(v, ones, g) if name == "h_auc" else 1.0
                assert (found.low, found.high) == pytest.approx((low, high), rel=1e-5)

    # Every cluster may have so many rows, or fewer; without clusters there is nothing to declare.
    seen = int(np.bincount(g).max())
    for wrong, words in ((seen - 1, f"≥ {seen}, the largest here; it is {seen - 1}"), (2.5, "it is 2.5")):
        with pytest.raises(InputError, match=words):
            estimate("uq_auc", s, v, clusters=g, largest_cluster=wrong)
    for name, rows in (("uq_auc", (s, v)), ("ood_auroc", (s, s))):
        with pytest.raises(InputError, match="`largest_cluster` needs `clusters`"):
            estimate(name, *rows, largest_cluster=9)
    with pytest.raises(InputError, match="draws the clusters that there are"):
        estimate("uq_auc", s, v, clusters=g, largest_cluster=seen, method="bootstrap")


def test_accuracy_has_the_exact_interval_of_its_sampling():
    # Accuracy of independent rows is Clopper–Pearson.
    for wrong, n in ((0, 20), (3, 20), (20, 20), (1, 2)):
        v = (np.arange(n) < wrong).astype(int)
        exact = stats.binomtest(n - wrong, n).proportion_ci(0.95, method="exact")
        result = quiet("accuracy", v)
        assert (result.value, result.low, result.high) == pytest.approx((1 - wrong / n, *exact), abs=1e-12)

    # Accuracy of clusters is on the logit scale, with room for one more cluster.
    (v,), w, g = arguments("accuracy", 3)
    for weights, clusters in ((w, g), (None, g), (w, None)):
        result = quiet("accuracy", v, weights=weights, clusters=clusters)
        units = len(np.unique(g)) if clusters is not None else kish(w)
        base = logit_interval(result.value, result.se, units - 1)
        expected = hull(base, unseen_unit(result.value, result.se, v, weights, clusters))
        assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)

    # Accuracy of 0 or 1 has an informative interval.
    for error, options in product([0, 1], ["weights", "clusters"]):
        with noted(error=error, options=options):
            rng = np.random.default_rng(0)
            v = np.full(60, error)
            g = np.arange(60) // 3
            w = rng.uniform(0.5, 2, 60)
            result = quiet(
                "accuracy",
                v,
                weights=w if options == "weights" else None,
                clusters=g if options == "clusters" else None,
            )
            assert result.value == 1 - error
            assert result.low <= result.value <= result.high
            assert 0.02 < result.high - result.low < 0.3


def ece_reference(c, a, w=None):
    """Plug-in and debiased L1, and the influence SE, bin by bin."""
    w = np.ones(len(c)) if w is None else w
    plain = debiased = 0.0
    values = np.empty(len(c))
    index = np.clip(np.ceil(c * 15 - 1e-12), 1, 15)
    for b in np.unique(index):
        rows = index == b
        share, diff = w[rows].sum() / w.sum(), (a - c)[rows]
        gap = np.average(diff, weights=w[rows])
        plain += share * abs(gap)
        size = rows.sum()
        sd = diff.std(ddof=1) / math.sqrt(size) if size > 1 else 0.0
        bias = 0.0
        if sd > 0:
            folded = sd * math.sqrt(2 / math.pi) * math.exp(-(gap**2) / (2 * sd**2))
            bias = folded + gap * (1 - 2 * stats.norm.cdf(-gap / sd)) - abs(gap)
        debiased += share * (abs(gap) - bias)
        values[rows] = np.sign(gap) * diff
    n = len(c)
    se = math.sqrt(n / (n - 1) * (((values - plain) / n) ** 2).sum())
    return plain, max(0.0, debiased), se


def test_ece_interval_is_the_debiased_value_and_its_influence_se_and_zero_unless_rejected():
    # ECE interval is the debiased value and its influence SE.
    for seed in range(5):
        with noted(seed=seed):
            rng = np.random.default_rng(seed)
            c = rng.uniform(0.3, 1.0, 300)
            a = (rng.random(300) < c**2).astype(float)  # overconfident: the test rejects
            plain, debiased, se = ece_reference(c, a)
            result, other = quiet("ece", c, a), quiet("ece_debiased", c, a)
            assert (result.value, other.value) == pytest.approx((plain, debiased), rel=1e-12)
            assert (result.se, other.se) == pytest.approx((se, se), rel=1e-12)
            z = stats.norm.ppf(0.975)
            high = max(debiased + z * se, gamma_ends(debiased, se**2, 0.75 / 300, 1.0)[1])
            for found in (result, other):
                assert (found.low, found.high) == pytest.approx((debiased - z * se, high), rel=1e-8)

    # ECE lower end is zero unless calibration is rejected.
    rng = np.random.default_rng(0)
    zero = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        c = rng.uniform(0.5, 1.0, 200)
        zero += quiet("ece", c, (rng.random(200) < c).astype(int)).low == 0.0
    assert zero >= 35  # 5% of a level test: 2 of 40


def clustered_ece(c, a, g, w, level=0.95):
    """Interval of the ECE with clusters by its definition: dictionaries of sums, cluster by cluster."""
    w = w / w.sum()
    index, clusters = np.clip(np.ceil(c * 15 - 1e-12), 1, 15).astype(int), np.unique(g)
    bins, count = np.unique(index), len(np.unique(g))
    share = np.array([w[index == b].sum() for b in bins])
    gap = np.array([(w * (a - c))[index == b].sum() for b in bins]) / share
    mean = np.array([(w * c)[index == b].sum() for b in bins]) / share
    of_row = gap[np.searchsorted(bins, index)]
    part = np.array([[(w * (a - c - of_row))[(g == k) & (index == b)].sum() for b in bins] for k in clusters])
    own = np.array([[w[(g == k) & (index == b)].sum() for b in bins] for k in clusters])
    size = share**2 / (own**2).sum(axis=0)
    part *= np.sqrt(np.where(size > 1.5, size / np.where(size > 1.5, size - 1, 1.0), 0.0))
    covariance = part.T @ part
    ece = (share * np.abs(gap)).sum()
    influence = [(w * (np.sign(of_row) * (a - c) - ece))[g == k].sum() for k in clusters]
    number = max(2.0, 1 / np.square([w[g == k].sum() for k in clusters]).sum())  # clusters of equal weight
    se = math.sqrt(number / (number - 1) * np.square(influence).sum())
    sd = np.sqrt(np.diag(covariance)) / share
    rows = np.array([(index == b).sum() for b in bins])
    kish = share**2 / np.array([(w[index == b] ** 2).sum() for b in bins])
    within = np.array([(w**2 * (a - c - of_row) ** 2)[index == b].sum() for b in bins]) / share**2
    sd = np.maximum(sd, np.sqrt(np.where(rows > 1, within * kish / np.where(rows > 1, kish - 1, 1.0), 0.0)))
    z = np.abs(gap) / np.where(sd > 0, sd, 1.0)
    folded = sd * math.sqrt(2 / math.pi) * np.exp(-(z**2) / 2) + np.abs(gap) * (1 - 2 * stats.norm.cdf(-z))
    centre = max(0.0, (share * np.where(sd > 0, 2 * np.abs(gap) - folded, np.abs(gap))).sum())
    made_up = (own**2).sum(axis=0) / share * np.where(gap > 0, mean, 1 - mean)
    scaled = (covariance + np.diag(made_up**2)) / np.sqrt(np.outer(share, share))
    df = np.trace(scaled) ** 2 / (scaled**2).sum()
    p = stats.f.sf((share * gap**2).sum() / np.trace(scaled), df, (count - 1) * df)
    t = stats.t.ppf((1 + level) / 2, number - 1)
    low = centre - t * se
    high = centre + t * math.hypot(se, ((own**2).sum(axis=0) * mean).sum() / 2)
    return low if low > 0 and p <= 1 - level else 0.0, min(1.0, high)


def test_ece_interval_with_clusters_has_a_lower_end_where_the_gaps_exceed_their_spread_over_clusters():
    informative = 0
    for seed in range(12):
        with noted(seed=seed):
            rng = np.random.default_rng(seed)
            g = rng.integers(0, 60, 300)
            c = rng.uniform(0.3, 1.0, 300)
            a = (rng.random(300) < c ** (1 + seed % 3)).astype(float)
            w = rng.uniform(0.5, 2.0, 300) if seed % 2 else np.ones(300)
            found = quiet("ece", c, a, clusters=g, **({"weights": w} if seed % 2 else {}))
            assert (found.low, found.high) == pytest.approx(clustered_ece(c, a, g, w), rel=1e-9, abs=1e-12)
            informative += found.low > 0
    assert 4 <= informative <= 10

    # Many clusters are summed some at a time.
    from uqeval.inference import count

    before = quiet("ece", c, a, clusters=g)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count, "_CLUSTERS_AT_ONCE", 7)
        after = quiet("ece", c, a, clusters=g)
    assert (after.low, after.high) == pytest.approx((before.low, before.high), rel=1e-12)


def bernoulli_statistics(c, w, bins, repetitions, rng):
    """The statistic of the calibration test for labels drawn row by row, by its definition."""
    found = np.zeros(repetitions)
    for b, share in enumerate(bins.share):
        rows = bins.row_bin == b
        total = w[rows].sum()
        diff = (rng.random((repetitions, rows.sum())) < c[rows]) - c[rows]
        gap = (w[rows] * diff).sum(axis=1) / total
        spread = ((w[rows] * (diff - gap[:, None])) ** 2).sum(axis=1) / total**2
        size = total**2 / (w[rows] ** 2).sum()
        found += share * (gap**2 - (spread * size / (size - 1) if rows.sum() > 1 else 0.0))
    return found


def test_many_rows_are_pooled_for_the_calibration_test_and_its_law_stays_the_same():
    # Above 4096 rows labels are drawn cell by cell, or as normal sums of a bin: few hits, many, and weights.
    from uqeval.inference import calibrated
    from uqeval.inference.count import calibration_cells
    from uqeval.inference.sample import Confidences, Rows

    rng = np.random.default_rng(0)
    laws = {"wide": rng.uniform(0.2, 1.0, 6000), "sure": 1 - 0.02 * rng.random(6000)}
    for law, weights in product(laws, (None, rng.gamma(2.0, 1.0, 6000))):
        with noted(law=law, weighted=weights is not None):
            c = laws[law]
            given = Confidences(c, (rng.random(6000) < c).astype(float), Rows(6000, weights))
            bins, cells = given.bins, calibration_cells(given)
            assert len(cells.mean) < 6000
            gap, variance = calibrated._drawn(cells, 1500, np.random.default_rng(1))
            w = np.ones(6000) if weights is None else weights
            expected = bernoulli_statistics(c, w, bins, 1500, np.random.default_rng(2))
            drawn = ((gap**2 - variance) * bins.share).sum(axis=1)
            assert stats.ks_2samp(drawn, expected).pvalue > 1e-3


@pytest.mark.slow
def test_ece_calibration_test_holds_its_level_and_has_power():
    from uqeval.inference.calibrated import miscalibrated
    from uqeval.inference.count import calibration_cells, count_ece
    from uqeval.inference.sample import Confidences, Rows

    rejected = {"calibrated": 0, "overconfident": 0}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        c = rng.uniform(0.5, 1.0, 150)
        for name, p in (("calibrated", c), ("overconfident", c**2)):
            a = (rng.random(150) < p).astype(float)
            given = Confidences(c, a, Rows(150))
            rejected[name] += miscalibrated(count_ece(given), calibration_cells(given), 0.1, rng)
    assert rejected["calibrated"] / 150 < 0.1 + 3 * math.sqrt(0.09 / 150)
    assert rejected["calibrated"] > 2
    assert rejected["overconfident"] > 120


# ---- invariances ------------------------------------------------------------------------------------------------


def few_errors_case(seed=0, n=200):
    rng = np.random.default_rng(seed)
    v = np.zeros(n, dtype=int)
    v[:6] = 1
    return rng.normal(size=n) + v, v


def test_row_order_changes_nothing_at_all_for_plain_rows():
    # Rows come shuffled from a data loader: the same test set must print the same digits.
    for name, ties in product([*RANKING, "accuracy", "ece_debiased", "brier", "log_loss"], [False, True]):
        with noted(name=name, ties=ties):
            for seed in range(5):
                data, _, _ = arguments(name, seed, n=300, ties=ties)
                before = quiet(name, *data)
                order = np.random.default_rng(99 + seed).permutation(300)
                after = quiet(name, *(np.asarray(x)[order] for x in data))
                assert ends(after)[:2] == ends(before)[:2]
                assert after.high == before.high
                if name != "ece_debiased":  # its lower end hangs on a test that draws labels row by row
                    assert after.low == before.low

    # Row order changes nothing at all with few errors.
    for name in AREAS:
        with noted(name=name):
            s, v = few_errors_case()
            before = quiet(name, s, v)
            for seed in range(20):
                order = np.random.default_rng(seed).permutation(len(s))
                assert ends(quiet(name, s[order], v[order])) == ends(before)

    # Row order changes nothing at all for a loss.
    for name in ["aurc", "augrc", "auarc", "naurc", "prr"]:
        with noted(name=name):
            rng = np.random.default_rng(1)
            s, loss = rng.random(300), rng.random(300)
            before = quiet(name, s, loss)
            for seed in range(20):
                order = np.random.default_rng(seed).permutation(len(s))
                assert ends(quiet(name, s[order], loss[order])) == ends(before)

    # Row order changes nothing for OOD metrics.
    for name in OOD:
        with noted(name=name):
            (inside, outside), _, _ = arguments(name)
            rng = np.random.default_rng(0)
            before, after = quiet(name, inside, outside), quiet(name, rng.permutation(inside), rng.permutation(outside))
            assert ends(after) == ends(before)

    # Row order changes at most the last digits with weights or clusters.
    for name, options in product([*RANKING, *MODEL], ["weights", "clusters", "both"]):
        with noted(name=name, options=options):
            data, w, g = arguments(name, 2, n=150)
            order = np.random.default_rng(5).permutation(150)
            a, b = (
                quiet(
                    name,
                    *(np.asarray(x)[rows] for x in data),
                    weights=None if options == "clusters" else w[rows],
                    clusters=None if options == "weights" else g[rows],
                )
                for rows in (np.arange(150), order)
            )
            if name.startswith("ece"):
                assert (a.value, a.se, a.high) == pytest.approx((b.value, b.se, b.high), rel=1e-12)
            else:
                assert ends(a) == pytest.approx(ends(b), rel=1e-12)


def test_only_ratios_of_weights_matter_and_rows_of_weight_zero_do_not_exist():
    # Equal weights are exactly no weights.
    for name, size in product([*RANKING, *MODEL], [1.0, 0.1, 37]):
        with noted(name=name, size=size):
            data, w, _ = arguments(name)
            assert quiet(name, *data, weights=np.full(len(w), size)) == quiet(name, *data)

    # Scale of the weights does not matter.
    for name, clustered in product([*RANKING, *MODEL], [False, True]):
        with noted(name=name, clustered=clustered):
            data, w, g = arguments(name)
            g = g if clustered else None
            a, b = quiet(name, *data, weights=w, clusters=g), quiet(name, *data, weights=64 * w, clusters=g)
            assert ends(a) == pytest.approx(ends(b), rel=1e-11)
            assert a.n_eff == pytest.approx(b.n_eff)

    # Rows of weight zero are as if they were not there.
    # Also from n, G and the degrees of freedom: a whole cluster may go.
    for name, clustered in product([*RANKING, *MODEL], [False, True]):
        with noted(name=name, clustered=clustered):
            data, w, g = arguments(name)
            w = np.where(g == 4, 0.0, w)
            keep = w > 0
            a = quiet(name, *data, weights=w, clusters=g if clustered else None)
            b = quiet(
                name, *(np.asarray(x)[keep] for x in data), weights=w[keep], clusters=g[keep] if clustered else None
            )
            assert a.n == b.n == keep.sum()
            assert a.n_clusters == b.n_clusters
            assert ends(a) == pytest.approx(ends(b), rel=1e-12)

    # Rows left out for NaN take their cluster with them.
    for name in RANKING:
        with noted(name=name):
            (s, *t), _, g = arguments(name)
            gone = g == 4
            s = np.where(gone, np.nan, s)
            a = quiet(name, s, *t, clusters=g, nan="omit")
            b = quiet(name, s[~gone], *(x[~gone] for x in t), clusters=g[~gone])
            assert a.n_clusters == b.n_clusters
            assert ends(a) == pytest.approx(ends(b), rel=1e-12)


def test_singleton_clusters_are_independent_rows():
    for name in ["uq_c_index", "kendall_phi", "somers_phi", "brier", "log_loss"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            plain, single = quiet(name, *data), quiet(name, *data, clusters=np.arange(80))
            assert ends(single) == pytest.approx(ends(plain), rel=1e-11)

    # Singleton clusters keep the standard error.
    for name in ["accuracy", "ece", "ece_debiased"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            assert quiet(name, *data, clusters=np.arange(80)).se == pytest.approx(quiet(name, *data).se, rel=1e-12)

    # Singleton clusters give the influence SE without the small sample factor.
    for name in ["aurc", "augrc", "g_auc", "h_auc", "e_aurc", "naurc"]:
        with noted(name=name):
            s, v, _, _, _ = make_case(0)
            values = influence(name, Sample.of(s, v.astype(np.uint8)))
            n = len(s)
            expected = math.sqrt((values**2).sum() / (n * (n - 1)))
            assert quiet(name, s, v, clusters=np.arange(n)).se == pytest.approx(expected, rel=1e-11)


def test_copies_in_one_cluster_add_no_information():
    for name in ["uq_c_index", "kendall_phi", "somers_phi"]:
        with noted(name=name):
            (s, d), _, _ = arguments(name)
            twice = quiet(name, np.repeat(s, 2), np.repeat(d, 2), clusters=np.repeat(np.arange(80), 2))
            once = quiet(name, s, d)
            assert (twice.value, twice.se) == pytest.approx((once.value, once.se), rel=1e-10)
            # The room for what was not seen is another for clusters: they could hold strangers.
            assert (twice.low, twice.high) == pytest.approx((once.low, once.high), rel=0.02)

    # Copies in one cluster leave the cluster SE unchanged.
    for name in ["brier", "log_loss", "augrc", "h_auc"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            once = quiet(name, *data, clusters=np.arange(80))
            twice = quiet(name, *(np.repeat(x, 2, axis=0) for x in data), clusters=np.repeat(np.arange(80), 2))
            assert (twice.value, twice.se) == pytest.approx((once.value, once.se), rel=1e-11)

    # Copies taken for independent rows shrink the SE.
    for name in [*RANKING, "ood_auroc", "accuracy", "brier", "log_loss"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            twice = quiet(name, *(np.repeat(x, 2, axis=0) for x in data))
            assert twice.se == pytest.approx(quiet(name, *data).se / math.sqrt(2), rel=0.1)


def test_only_the_order_of_scores_and_the_partition_by_clusters_matter():
    # Increasing transform of the score changes nothing.
    for name in RANKING:
        with noted(name=name):
            (s, *t), _, _ = arguments(name)
            assert ends(quiet(name, np.exp(s) * 3 - 1, *t)) == ends(quiet(name, s, *t))

    # Negated score mirrors the interval of UQ-AUC.
    s, v, _, _, _ = make_case(0)
    a, b = quiet("uq_auc", s, v), quiet("uq_auc", -s, v)
    assert (b.value, b.se, b.low, b.high) == pytest.approx((1 - a.value, a.se, 1 - a.high, 1 - a.low), rel=1e-12)

    # Cluster names do not matter.
    for labels in ["text", "large", "float"]:
        with noted(labels=labels):
            s, v, _, _, g = make_case(0, clusters=12)
            names = {"text": np.array([f"patient {x}" for x in g]), "large": g * 10**12 - 5, "float": g / 3}[labels]
            assert quiet("uq_auc", s, v, clusters=names) == quiet("uq_auc", s, v, clusters=g)
            assert quiet("uq_auc", s, v, clusters=list(names)) == quiet("uq_auc", s, v, clusters=g)


@each("name", [*RANKING, "ood_auroc"])
@each("options", ["plain", "weights", "clusters", "both"])
def test_numpy_and_native_kernels_agree(name, options):
    try:
        former = kernels.use("native")
    except InputError:
        pytest.skip("native kernels not built")
    found = {}
    try:
        for backend in ("native", "numpy"):
            kernels.use(backend)
            found[backend] = []
            for seed in range(3):
                data, w, g = arguments(name, seed, n=150, ties=seed != 2)
                extra = {}
                if name != "ood_auroc":
                    extra["weights"] = w if options in ("weights", "both") else None
                    extra["clusters"] = g if options in ("clusters", "both") else None
                found[backend].append(quiet(name, *data, **extra))
    finally:
        kernels.use(former)
    for a, b in zip(found["native"], found["numpy"], strict=True):
        assert ends(a) == pytest.approx(ends(b), rel=1e-12)
        assert (a.method, a.n, a.n_errors, a.warnings) == (b.method, b.n, b.n_errors, b.warnings)
        if options == "plain" and name in ("uq_auc", "ood_auroc"):
            assert ends(a) == ends(b)


# ---- degenerate inputs ------------------------------------------------------------------------------------------

N = 60


@pytest.fixture
def score():
    return np.random.default_rng(0).permutation(N).astype(float)


def nan_interval(result):
    return math.isnan(result.low) and math.isnan(result.high)


def test_no_errors_leave_rankings_undefined_and_areas_bounded(score):
    # No errors leave UQ-AUC undefined with a warning.
    with pytest.warns(UQWarning, match="undefined"):
        result = estimate("uq_auc", score, np.zeros(N))
    assert math.isnan(result.value)
    assert math.isnan(result.se)
    assert nan_interval(result)
    assert result.degenerate

    # No errors give the gamma upper bounds.
    for n in [5, 60, 400]:
        with noted(n=n):
            s, v = np.arange(n, dtype=float), np.zeros(n)
            augrc_result, aurc_result, g_auc_result = (quiet(name, s, v) for name in ("augrc", "aurc", "g_auc"))
            z = -math.log(0.025)  # 3.689
            assert (augrc_result.value, aurc_result.value, g_auc_result.value) == (0, 0, 0)
            assert (augrc_result.low, augrc_result.high) == pytest.approx((0, min(0.5, z / n)), rel=1e-12)
            assert (aurc_result.low, aurc_result.high) == pytest.approx((0, min(1.0, z * harmonic(n) / n)), rel=1e-12)
            assert (g_auc_result.low, g_auc_result.high) == pytest.approx((0, min(1.0, 2 * z / n)), rel=1e-12)
            assert not aurc_result.degenerate

    # No errors bound does not depend on ties in AUGRC.
    for ties in ["none", "some", "constant"]:
        with noted(ties=ties):
            s = {"none": np.arange(40.0), "some": np.arange(40) // 8 * 1.0, "constant": np.zeros(40)}[ties]
            assert quiet("augrc", s, np.zeros(40)).high == pytest.approx(-math.log(0.025) / 40)

    # No errors leave excess areas at zero, with room for one that was not seen.
    for name in ["e_aurc", "h_auc"]:
        with noted(name=name):
            result = quiet(name, score, np.zeros(N))
            assert result.value == 0
            expected = unseen_wrong(name, 0.0, math.nan, np.arange(N), np.zeros(N))
            assert (result.low, result.high) == pytest.approx(expected, rel=1e-8)

    # No errors say so.
    # n1 < 10 carries a warning, and none is the fewest.
    for name in ["aurc", "augrc", "e_aurc", "h_auc"]:
        with noted(name=name):
            with pytest.warns(UQWarning, match="error"):
                result = estimate(name, score, np.zeros(N))
            assert result.warnings

    # No errors leave the C-index defined.
    result = quiet("uq_c_index", score, score + np.random.default_rng(1).normal(0, 20, N))
    assert 0.5 < result.low < result.value < result.high


def test_rows_that_are_all_alike_leave_normalised_areas_and_the_c_index_undefined(score):
    # Normalised areas are undefined with a warning when all rows are alike.
    for error, name in product([0, 1], ["naurc", "prr"]):
        with noted(error=error, name=name):
            with pytest.warns(UQWarning, match="undefined"):
                result = estimate(name, score, np.full(N, error))
            assert math.isnan(result.value)
            assert nan_interval(result)
            assert result.degenerate

    # All losses equal leave the C-index undefined with a warning.
    for options in ["plain", "weights", "clusters"]:
        with noted(options=options):
            w, g = np.random.default_rng(0).uniform(0.1, 9, N), np.arange(N) // 3
            extra = {"weights": w} if options == "weights" else {"clusters": g} if options == "clusters" else {}
            for name in ("uq_c_index", "somers_phi", "kendall_phi"):
                with pytest.warns(UQWarning, match="undefined"):
                    result = estimate(name, score, np.full(N, 0.3), **extra)
                assert math.isnan(result.value)
                assert math.isnan(result.se)
                assert nan_interval(result)
                assert result.degenerate


def test_all_errors_leave_rankings_undefined_and_areas_known(score):
    # All errors.
    for weighted in [False, True]:
        with noted(weighted=weighted):
            w = np.random.default_rng(3).uniform(0.2, 4, N) if weighted else None
            v = np.ones(N)
            with pytest.warns(UQWarning, match="undefined"):
                assert math.isnan(estimate("uq_auc", score, v, weights=w).value)
            for name, value in (
                ("aurc", 1.0),
                ("augrc", 0.5),
                ("g_auc", 1.0),
                ("e_aurc", 0.0),
                ("h_auc", 0.0),
                ("auarc", 0.0),
            ):
                result = quiet(name, score, v, weights=w)
                assert result.value == pytest.approx(value, abs=1e-12), name
                assert nan_interval(result), name

    # All errors but few give the gamma interval up to the cap.
    for n in [2, 5, 9]:
        with noted(n=n):
            for name, cap, k in (("aurc", 1.0, harmonic(n) / n), ("augrc", 0.5, 1 / n)):
                result = quiet(name, np.arange(n), np.ones(n))
                assert result.value == pytest.approx(cap)
                assert result.high == cap
                assert 0 < result.low < cap
                parts = [SQUARED[name](np.arange(n), np.eye(n)[i]) for i in range(n)]
                assert result.low == pytest.approx(gamma_interval(cap, sum(p * p for p in parts), k, cap)[0], rel=1e-9)


@each("options", ["plain", "weights", "clusters"])
def test_constant_score(options):
    _, v, d, w, g = make_case(0, n=N, clusters=12)
    extra = {"weights": w} if options == "weights" else {"clusters": g} if options == "clusters" else {}
    for name, target in (("uq_auc", v), ("uq_c_index", d)):
        with pytest.warns(UQWarning) as raised:
            result = estimate(name, np.full(N, 3.0), target, **extra)
        assert any("constant" in str(item.message) for item in raised)
        assert (result.value, result.se, result.low, result.high) == (0.5, 0.0, 0.5, 0.5)
        assert result.degenerate
    rate = np.average(v, weights=extra.get("weights"))
    expected = {
        "aurc": rate,
        "augrc": rate / 2,
        "g_auc": rate,
        "h_auc": rate * (1 - rate) / 2,
        "naurc": 1.0,
        "prr": 0.0,
    }
    for name, value in expected.items():
        result = quiet(name, np.full(N, 3.0), v, **extra)
        assert result.value == pytest.approx(value, abs=1e-12), name
        assert not result.degenerate
    for name in ("aurc", "augrc", "g_auc", "h_auc", "e_aurc"):
        result = quiet(name, np.full(N, 3.0), v, **extra)
        assert result.low < result.value < result.high, name
    assert math.isnan(quiet("kendall_phi", np.full(N, 3.0), d, **extra).value)


def test_perfect_and_reversed_scores_give_wilson_and_not_a_point():
    # Perfect and reversed score give Wilson and not a point.
    for sign, options in product([1, -1], ["plain", "weights", "clusters", "both"]):
        with noted(sign=sign, options=options):
            for seed in range(30):
                rng = np.random.default_rng(seed)
                v = (rng.random(N) < 0.3).astype(int)
                v[:24] = np.arange(24) % 2  # every cluster holds both kinds
                g = np.arange(N) // 2 % 12
                s = sign * (v + 0.5 * rng.random(N))
                w = rng.uniform(0.3, 3.0, N)
                result = quiet(
                    "uq_auc",
                    s,
                    v,
                    weights=w if options in ("weights", "both") else None,
                    clusters=g if options in ("clusters", "both") else None,
                )
                value = 1.0 if sign == 1 else 0.0
                assert result.value == value
                assert result.method == "Wilson"
                wilson = wilson_interval(value, result.n_eff)
                weights = w if options in ("weights", "both") else None
                clusters = g if options in ("clusters", "both") else None
                expected = hull(wilson, unseen_error(value, result.se, s, v, weights, clusters))
                assert (result.low, result.high) == pytest.approx(expected, abs=1e-8)
                if options == "plain":
                    assert result.n_eff == pytest.approx(v.sum() * (N - v.sum()) / N)
                    assert result.se == 0
                elif options == "weights":
                    a, b = kish(w[v == 0]), kish(w[v == 1])
                    assert result.n_eff == pytest.approx(a * b / (a + b))
                assert result.high - result.low > 0.05

    # Perfect concordance gives Wilson and not a point.
    for name, sign, options in product(
        ["uq_c_index", "somers_phi", "kendall_phi"], [1, -1], ["plain", "weights", "clusters", "both"]
    ):
        with noted(name=name, sign=sign, options=options):
            for seed in range(30):
                rng = np.random.default_rng(seed)
                d = rng.random(N)
                w = rng.uniform(0.3, 3.0, N)
                result = quiet(
                    name,
                    sign * d**3,
                    d,
                    weights=w if options in ("weights", "both") else None,
                    clusters=np.arange(N) // 4 if options in ("clusters", "both") else None,
                )
                worst = 0.0 if name == "uq_c_index" else -1.0
                assert result.value == (1.0 if sign == 1 else worst)
                assert result.method == "Wilson"
                assert result.low <= result.value <= result.high
                assert result.high - result.low > 0.02
                if options == "plain" and name == "uq_c_index":
                    assert result.n_eff == pytest.approx((N - 1) / 2)
                    expected = hull(wilson_interval(result.value, (N - 1) / 2), unseen_row(result.value, 0.0, N))
                    assert (result.low, result.high) == pytest.approx(expected, abs=1e-8)

    # Perfect score leaves no excess, but room for an error that was not seen.
    v = (np.arange(N) >= 45).astype(int)
    for name in ("e_aurc", "naurc"):
        result = quiet(name, np.arange(N), v)
        assert (result.value, result.low) == (0, 0)
        assert 0 < result.high < 1
    assert quiet("prr", np.arange(N), v).value == 1
    err = 0.25
    assert quiet("augrc", np.arange(N), v).value == pytest.approx(err**2 / 2)
    assert quiet("g_auc", np.arange(N), v).value == pytest.approx(err**2)
    assert quiet("h_auc", np.arange(N), v).value == pytest.approx(err * (1 - err))


def test_exactly_one_error_gives_wilson_for_uq_auc_and_a_gamma_interval_for_areas(score):
    # Exactly one error or one right row gives Wilson without SE.
    for place, flip, weighted in product([0, 17, N - 1], [False, True], [False, True]):
        with noted(place=place, flip=flip, weighted=weighted):
            v = np.zeros(N, dtype=int)
            v[place] = 1
            v = 1 - v if flip else v
            w = np.random.default_rng(0).uniform(0.5, 2, N) if weighted else None
            result = quiet("uq_auc", np.arange(N), v, weights=w)
            assert math.isnan(result.se)
            assert result.method == "Wilson"
            sizes = (
                (kish(ones[v == 0]), kish(ones[v == 1]))
                if (ones := w if weighted else np.ones(N)) is not None
                else None
            )
            n_eff = sizes[0] * sizes[1] / sum(sizes)
            room = unseen_error(result.value, result.se, np.arange(N), v, w)
            assert (result.low, result.high) == pytest.approx(
                hull(wilson_interval(result.value, n_eff), room), abs=1e-8
            )
            assert result.low <= result.value <= result.high

    # Exactly one error says little about areas, and something.
    v = (np.arange(N) == 20).astype(int)
    for name in (*AREAS, *EXCESS):
        result = quiet(name, score, v)
        assert result.low <= result.value <= result.high
        assert "gamma" in result.method


def test_an_error_that_weighs_more_than_all_others_has_an_interval_about_its_value():
    for heavy_row, light, weight in ((10, 700, 1e-3), (700, 10, 1e-3), (10, 700, 1e-9)):
        v, w = np.zeros(1000, dtype=int), np.ones(1000)
        v[[heavy_row, light]], w[light] = 1, weight
        for name in (*AREAS, "h_auc", "e_aurc"):
            result = quiet(name, np.arange(1000), v, weights=w)
            assert result.low <= result.value <= result.high, name
            assert result.high > 2 * result.value or name == "auarc", name


def test_a_single_cluster_gives_the_value_and_nothing_else():
    for name, weighted in product([*RANKING, "accuracy", "ece", "ece_debiased", "brier", "log_loss"], [False, True]):
        with noted(name=name, weighted=weighted):
            data, w, _ = arguments(name)
            with pytest.warns(UQWarning, match="single cluster"):
                result = estimate(name, *data, weights=w if weighted else None, clusters=np.zeros(80))
            assert math.isfinite(result.value)
            assert math.isnan(result.se)
            assert nan_interval(result)
            assert result.n_clusters == 1

    # All errors in one cluster say nothing about UQ-AUC, and the interval says so.
    g = np.arange(40) // 4
    v = (g == 3).astype(int) * (np.arange(40) % 2)
    s = np.random.default_rng(0).random(40)
    with pytest.warns(UQWarning) as raised:
        result = estimate("uq_auc", s, v, clusters=g)
    assert any("without one cluster" in str(item.message) for item in raised)
    assert 0 < result.value < 1
    assert math.isnan(result.se)
    assert (result.low, result.high) == (0.0, 1.0)


def test_few_clusters_and_few_errors_are_computed_with_a_warning(score):
    # Fewer than ten clusters are computed with a warning.
    for name in [*RANKING, "accuracy", "ece", "ece_debiased", "brier", "log_loss"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            with pytest.warns(UQWarning, match=r"few clusters \(9\)"):
                result = estimate(name, *data, clusters=np.arange(80) % 9)
            assert math.isfinite(result.se)
            assert not any("few clusters" in note for note in quiet(name, *data, clusters=np.arange(80) % 10).warnings)

    # Fewer than ten errors or right rows are computed with a warning.
    for name, flip in product(["uq_auc", *AREAS, *EXCESS], [False, True]):
        with noted(name=name, flip=flip):
            for count in (9, 10):
                v = (np.arange(N) < count).astype(int)
                v = 1 - v if flip else v
                notes = quiet(name, score, v).warnings
                assert bool(notes) == (count == 9)
                if count == 9:
                    with pytest.warns(UQWarning, match=r"few (errors|right rows) \(9\)"):
                        estimate(name, score, v)

    # Heavy weights on few errors carry a warning.
    for name in ["uq_auc", *AREAS, *EXCESS]:
        with noted(name=name):
            rng = np.random.default_rng(0)
            s, v = rng.random(300), (np.arange(300) < 60).astype(int)
            w = np.ones(300)
            w[:5] = 40.0  # Kish size of the errors 6.4
            assert kish(w[v == 1]) < 20
            with pytest.warns(UQWarning, match="errors weigh as few as"):
                estimate(name, s, v, weights=w)
            mild = rng.uniform(0.8, 1.2, 300)
            assert quiet(name, s, v, weights=mild).warnings == ()

    # Errors in few clusters are warned about.
    rng = np.random.default_rng(0)
    g = np.arange(300) // 5
    v = (g < 12) & (np.arange(300) % 5 < 2)
    with pytest.warns(UQWarning, match="the errors sit in 12 clusters"):
        estimate("aurc", rng.random(300), v, clusters=g)


@each("name", RANKING)
def test_two_rows_never_raise(name):
    for s in ([0, 1], [1, 0], [1, 1]):
        for t in ([0, 1], [0, 0], [1, 1]):
            t = between(name, t)
            result = quiet(name, s, *t)
            assert math.isnan(result.value) or REGISTRY[name].range[0] <= result.value <= REGISTRY[name].range[1]
            if not math.isnan(result.value) and not nan_interval(result):
                assert result.low <= result.value <= result.high
            quiet(name, s, *t, weights=[1, 2])
            quiet(name, s, *t, clusters=[0, 1])
            quiet(name, s, *t, clusters=[0, 0])


@each("name", RANKING)
@settings(max_examples=15)
@given(st.data())
def test_small_random_inputs_give_an_ordered_interval_or_none(name, data):
    n = data.draw(st.integers(2, 14))
    s = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    top = 4 if REGISTRY[name].needs[1] in LOSS_TARGETS else 1
    t = data.draw(st.lists(st.integers(0, top), min_size=n, max_size=n))
    w = data.draw(st.none() | st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0, 1e4]), min_size=n, max_size=n))
    g = data.draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n))
    result = quiet(name, s, *between(name, t), weights=w, clusters=g)
    assert math.isnan(result.low) == math.isnan(result.high)
    if math.isnan(result.value):
        assert nan_interval(result)
        assert result.degenerate
        assert result.warnings
    elif not nan_interval(result):
        low, high = REGISTRY[name].range
        assert low <= result.low <= result.value + 1e-12
        assert result.value - 1e-12 <= result.high <= high
    assert not result.se < 0


# ---- random intervals -------------------------------------------------------------------------------------------


def test_a_seed_fixes_what_is_drawn_and_matters_nowhere_else():
    # Random intervals are deterministic given the seed.
    for name in ["ece", "ece_debiased", "fpr_at_tpr", "ood_aupr"]:
        with noted(name=name):
            data, _, _ = arguments(name, n=300) if name in OOD else arguments(name)
            assert estimate(name, *data) == estimate(name, *data)
            assert estimate(name, *data, seed=5) == estimate(name, *data, seed=5)
            a, b = (estimate(name, *data, seed=np.random.default_rng(9)) for _ in range(2))
            assert a == b
            if name in OOD:
                assert ends(estimate(name, *data, seed=1)) != ends(estimate(name, *data, seed=2))

    # Seed is irrelevant where nothing is drawn.
    for name in ["uq_auc", "uq_c_index", "aurc"]:
        with noted(name=name):
            data, _, _ = arguments(name)
            assert estimate(name, *data, seed=1) == estimate(name, *data, seed=2)


def plain_bootstrap(function, inside, outside, resamples, rng):
    return np.array(
        [function(rng.choice(inside, len(inside)), rng.choice(outside, len(outside))) for _ in range(resamples)]
    )


def test_bootstraps_have_the_law_of_a_plain_resampling_loop():
    # The bootstrap of average precision has the law of a plain resampling loop; the interval is that or wider.
    for n_in, n_out, digits in [(40, 25, 1), (25, 40, 6)]:
        with noted(n_in=n_in, n_out=n_out, digits=digits):
            rng = np.random.default_rng(n_in)
            inside, outside = rng.normal(size=n_in).round(digits), (rng.normal(size=n_out) + 1.2).round(digits)
            loop = plain_bootstrap(REGISTRY["ood_aupr"].function, inside, outside, 2000, rng)
            seeds = [estimate("ood_aupr", inside, outside, seed=seed) for seed in range(2)]
            se, kurtosis = np.mean([result.se for result in seeds]), stats.kurtosis(loop) + 3
            assert se == pytest.approx(loop.std(ddof=1), rel=4 * math.sqrt((kurtosis - 1) / 4 * (1 / 2000 + 1 / 4000)))
            for level in (0.5, 0.8, 0.95):
                tail = (1 - level) / 2
                slack = 4 * math.sqrt(2 * tail * (1 - tail) / 2000)
                result = estimate("ood_aupr", inside, outside, level=level)
                low, high = np.quantile(loop, [max(0.0, tail - slack), min(1.0, tail + slack)])
                above = 0.25 * sum(1 / k for k in range(1, n_out + 1)) / n_out  # of a known row above all foreign ones
                room = [
                    beta_quantile(*beside(result.value, result.se, share, 25, place), at)
                    for share, place, at in ((max(0.5 / 25, above), 0.0, tail), (0.5 / 25, 1.0, 1 - tail))
                ]
                assert min(low, room[0]) - 1e-9 <= result.low <= min(high, room[0]) + 1e-9
                low, high = np.quantile(loop, [max(0.0, 1 - tail - slack), min(1.0, 1 - tail + slack)])
                assert max(low, room[1]) - 1e-9 <= result.high <= max(high, room[1]) + 1e-9

    # Bootstrap values have the law of a plain resampling loop.
    for metric, clustered in product(["uq_auc", "uq_c_index"], [False, True]):
        with noted(metric=metric, clustered=clustered):
            s, v, d, _, g = make_case(1, n=40, clusters=13)
            t = v if metric == "uq_auc" else d
            unit = g if clustered else np.arange(40)
            rows = [np.flatnonzero(unit == u) for u in np.unique(unit)]
            rng = np.random.default_rng(0)
            loop = []
            for _ in range(600):
                pick = np.concatenate([rows[u] for u in rng.integers(0, len(rows), len(rows))])
                loop.append(c_index(s[pick], t[pick]))
            values = bootstrap(metric, s, t, resamples=2000, clusters=g if clustered else None, seed=4)
            assert stats.ks_2samp(np.array(loop), values[~np.isnan(values)]).pvalue > 1e-3
            again = bootstrap(metric, s, t, resamples=2000, clusters=g if clustered else None, seed=4)
            np.testing.assert_array_equal(values, again)


def test_fpr_of_the_estimate_uses_whole_tie_blocks():
    inside, outside = [0, 0, 1, 1, 1], [1, 1, 2, 0]
    with pytest.warns(UQWarning, match="5 known rows cannot say where 95% of them lie: no upper bound; from 72 on"):
        found = estimate("fpr_at_tpr", inside, outside)
    assert (found.value, found.high) == (0.75, 1.0)


def test_an_fpr_has_the_ends_of_clopper_and_pearson_where_the_cut_is_known():
    # Known rows at two values, and foreign rows only between them and beyond: the cut is at the upper value for sure.
    inside, outside = np.repeat([0.0, 1.0], [2000, 2000]), np.repeat([0.5, 2.0], [30, 70])
    found = [estimate("fpr_at_tpr", inside, outside, seed=seed) for seed in range(20)]
    low, high = stats.beta.ppf(0.025, 30, 71), stats.beta.ppf(0.975, 31, 70)
    assert {one.value for one in found} == {0.3}
    assert np.mean([one.low for one in found]) == pytest.approx(low, abs=0.005)
    assert np.mean([one.high for one in found]) == pytest.approx(high, abs=0.005)


def test_bootstrap_marks_undefined_resamples():
    values = bootstrap("uq_auc", [1, 2, 3, 4], [0, 0, 0, 1], resamples=2000)
    assert np.isnan(values).mean() == pytest.approx(0.75**4, abs=0.04)


# ---- the result and the messages --------------------------------------------------------------------------------


def test_estimate_is_plain_data_and_prints_value_and_interval():
    # Estimate is plain data.
    data, _, g = arguments("uq_auc")
    result = quiet("uq_auc", *data, clusters=g % 5, level=0.9)
    plain = result.to_dict()
    assert set(plain) >= {"value", "low", "high", "se", "level", "method", "n", "n_errors", "n_clusters", "n_eff"}
    assert set(plain) >= {"degenerate", "warnings"}
    assert json.loads(json.dumps(plain)) == plain
    assert plain["value"] == result.value
    assert plain["warnings"] == list(result.warnings)
    assert plain["level"] == 0.9
    for value in (result.value, result.low, result.high, result.se, result.n_eff):
        assert type(value) is float
    for count in (result.n, result.n_errors, result.n_clusters):
        assert type(count) is int
    with pytest.raises(AttributeError):
        result.value = 0.0

    # Every result is made of Python numbers.
    for name in REGISTRY:
        with noted(name=name):
            data, w, g = arguments(name)
            options = [{}] if name in OOD else [{}, {"weights": w}, {"clusters": g}]
            for extra in options:
                result = quiet(name, *data, **extra)
                assert all(type(value) is float for value in (*ends(result), result.level))
                assert type(result.n) is int
                assert type(result.degenerate) is bool
                assert result.n_eff is None or type(result.n_eff) in (float, int)
                json.dumps(result.to_dict(), allow_nan=False)

    # Text shows value and interval.
    result = Estimate(0.81234, 0.7, 0.9, 0.05, 0.95, "method <x> & 'y'", 100)
    assert str(result) == "0.812 (0.700–0.900)"
    assert "0.812" in result._repr_html_()
    assert "<x>" not in result._repr_html_()
    assert "'y'" not in result._repr_html_()
    unknown = Estimate(math.nan, math.nan, math.nan, math.nan, 0.95, "undefined", 3)
    assert "nan" not in str(unknown)
    small = Estimate(0.00004321, 0.0, 0.0012, 1e-5, 0.95, "m", 3)
    assert "4.3e-05" in str(small)
    assert "∞" in str(Estimate(math.inf, math.nan, math.nan, math.nan, 0.95, "none", 3))


def test_estimate_becomes_a_frame_of_one_row():
    for kind, name in product(["pandas", "polars", "pyarrow"], ["uq_auc", "brier", "fpr_at_tpr"]):
        with noted(kind=kind, name=name):
            data, _, _ = arguments(name)
            result = quiet(name, *data)
            if find_spec(kind) is None:
                with pytest.raises(InputError, match=f"pip install {kind}"):
                    result.to_frame(kind)
                continue
            frame = result.to_frame(kind)
            assert type(frame).__module__.split(".")[0] == kind
            assert len(frame) == 1
            values = pl.DataFrame(frame).to_dicts()[0]
            for field in ("value", "low", "high", "se", "level", "method", "n"):
                assert values[field] == getattr(result, field)

    # Default frame is the first kind installed.
    pandas = pytest.importorskip("pandas")
    data, _, _ = arguments("uq_auc")
    assert isinstance(quiet("uq_auc", *data).to_frame(), pandas.DataFrame)

    # Unknown frame kind lists the known ones.
    data, _, _ = arguments("uq_auc")
    with pytest.raises(InputError, match="polars"):
        quiet("uq_auc", *data).to_frame("excel")


def test_bad_levels_and_unknown_metrics_say_what_to_write():
    # Bad level names the argument.
    for level in [0, 1, -0.1, 1.5, 95, math.nan, "0.95", None]:
        with noted(level=level), pytest.raises(InputError, match="`level`"):
            estimate("uq_auc", [1, 2, 3], [0, 1, 0], level=level)

    # A level in percent gets a hint.
    with pytest.raises(InputError, match=r"0\.95"):
        estimate("uq_auc", [1, 2, 3], [0, 1, 0], level=95)

    # Unknown metric suggests the nearest.
    for wrong, near in [("uq_acu", "uq_auc"), ("cindex", "uq_c_index"), ("oodauroc", "ood_auroc")]:
        with noted(wrong=wrong, near=near), pytest.raises(InputError, match=f"Did you mean ['\"]{near}['\"]"):
            estimate(wrong, [1, 2], [0, 1])


def test_arguments_may_be_named_and_missing_or_surplus_ones_are():
    # Missing and surplus arguments are named.
    with pytest.raises(InputError, match="uq_auc needs score, error; pass error"):
        estimate("uq_auc", [1, 2, 3])
    with pytest.raises(InputError, match="pass score, error"):
        estimate("uq_auc")
    with pytest.raises(InputError, match="3 arrays were given"):
        estimate("uq_auc", [1, 2], [0, 1], [1, 1])
    with pytest.raises(InputError, match="`error` was given twice"):
        estimate("uq_auc", [1, 2], [0, 1], error=[0, 1])
    with pytest.raises(InputError, match="`weight` was given"):
        estimate("uq_auc", [1, 2], [0, 1], weight=[1, 1])

    # Arguments may be named.
    s, v, _, _, _ = make_case(0)
    assert quiet("uq_auc", score=s, error=v) == quiet("uq_auc", s, error=v) == quiet("uq_auc", s, v)


def test_bad_arrays_weights_and_clusters_are_input_errors():
    # OOD metrics refuse weights and clusters.
    for name in OOD:
        with noted(name=name):
            for option in ("weights", "clusters"):
                with pytest.raises(InputError, match=name):
                    estimate(name, [1, 2], [3, 4], **{option: [1, 2]})

    # Wrong lengths and bad weights are input errors.
    for name in [*RANKING, *MODEL]:
        with noted(name=name):
            data, w, g = arguments(name)
            with pytest.raises(InputError, match="weights"):
                estimate(name, *data, weights=w[:-1])
            with pytest.raises(InputError, match="clusters"):
                estimate(name, *data, clusters=g[:-1])
            with pytest.raises(InputError, match="weights"):
                estimate(name, *data, weights=-w)
            with pytest.raises(InputError, match="weights"):
                estimate(name, *data, weights=0 * w)
            with pytest.raises(InputError, match="weights"):
                estimate(name, *data, weights=np.where(w == w[7], np.nan, w))

    # One row left after zero weights is an input error.
    for name in [*RANKING, *MODEL]:
        with noted(name=name):
            data, _, _ = arguments(name)
            with pytest.raises(InputError, match="row"):
                estimate(name, *data, weights=np.where(np.arange(80) == 3, 2.0, 0.0))

    # Anything that is no array is an input error.
    for name, bad in product(REGISTRY, [None, 3, "abc", [[1, 0], [0, 1, 1]]]):
        with noted(name=name, bad=bad):
            data, _, _ = arguments(name)
            for place in range(len(data)):
                broken = [bad if k == place else x for k, x in enumerate(data)]
                with pytest.raises(InputError):
                    estimate(name, *broken)


def test_warnings_are_raised_once_each_at_the_caller_and_only_where_due():
    # Warnings are raised once each and point at the caller.
    s, v = few_errors_case()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = estimate("uq_auc", s, v)
    assert [str(item.message) for item in raised] == list(result.warnings)
    assert all(item.filename == __file__ for item in raised)

    # Clean rows raise no warning.
    for name in REGISTRY:
        data, _, _ = arguments(name, n=200)
        assert estimate(name, *data).warnings == ()
        if name not in OOD:
            estimate(name, *data, clusters=np.arange(200) // 2)

    # Infinite scores are ranked with a warning.
    s, v, _, _, _ = make_case(0)
    s = s.copy()
    top = s.argmax()
    s[top] = s.max() + 1
    expected = quiet("uq_auc", s, v)
    s[top] = np.inf
    with pytest.warns(UQWarning, match="infinite"):
        result = estimate("uq_auc", s, v)
    assert ends(result) == ends(expected)
