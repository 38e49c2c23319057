"""The bootstrap by multiplicities against rows that are really copied, and what its draws are like."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import oracle
import uqeval
from cases import each, noted, on_both_kernels
from strategies import each_backend, make_errors, make_losses01, make_scores
from uqeval import InputError, UQWarning, kernels
from uqeval.kernels import draw_units
from uqeval.metrics.registry import REGISTRY

AREAS = ("aurc", "e_aurc", "naurc", "augrc", "g_auc", "h_auc", "auarc", "prr")
LOSS_TOO = ("aurc", "naurc", "augrc", "auarc", "prr")
RANKING = ("uq_auc", "uq_c_index", "kendall_phi", "somers_phi", *AREAS)
SLOW = {
    **{name: getattr(oracle, name) for name in ("uq_auc", "uq_c_index", "accuracy", "brier", "log_loss", *AREAS)},
    "kendall_phi": oracle.kendall_tau,
    "kendall_varphi": oracle.kendall_tau,
    "somers_phi": oracle.somers_d,
    "somers_varphi": oracle.somers_d,
    "ece": oracle.ece,
    "ece_debiased": lambda c, a, weights=None: oracle.ece(c, a, weights, debias=True),
}


def quiet(function, *data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*data, **options)


def seeds_of(seed, resamples):
    """One 64-bit stream per resample."""
    return np.random.default_rng(seed).integers(0, 2**64, size=resamples, dtype=np.uint64)


def copied_rows(seeds, keys, clusters=None):
    """Row numbers of each resample, rows (or clusters) numbered by their content and copied as often as drawn."""
    n = len(keys[0])
    if clusters is None:
        order = np.lexsort([np.asarray(key) + 0.0 for key in keys[::-1]])
        members = [np.array([row]) for row in order]
    else:
        members = [np.flatnonzero(clusters == name) for name in np.unique(clusters)]
    for seed in seeds:
        times = draw_units(seed, len(members))
        assert times.sum() == len(members)
        yield np.concatenate([np.repeat(m, k) for m, k in zip(members, times, strict=True)])
    assert n == sum(map(len, members))


def check_physical(metric, data, clusters=None, weights=None, seed=0, resamples=12, tolerance=1e-10, keys=None):
    """`bootstrap` = the definition of the metric on copied rows, on both kernels."""
    options = {"resamples": resamples, "seed": seed, "clusters": clusters, "weights": weights}
    found = {backend: quiet(uqeval.bootstrap, metric, *data, **options) for backend in each_backend()}
    keys = [*(data if keys is None else keys), *([] if weights is None else [weights])]
    for b, rows in enumerate(copied_rows(seeds_of(seed, resamples), keys, clusters)):
        part = [np.asarray(x)[rows] for x in data]
        w = None if weights is None else weights[rows]
        expected = pytest.approx(SLOW[metric](*part, weights=w), rel=tolerance, abs=tolerance, nan_ok=True)
        for backend, values in found.items():
            assert values.shape == (resamples,)
            assert values[b] == expected, (metric, b, backend)


# ---- equality with copied rows ----------------------------------------------------------------------------------


@given(
    metric=st.sampled_from(RANKING),
    n=st.integers(2, 18),
    kind=st.sampled_from(["grid", "continuous", "constant", "mixture"]),
    clustered=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_values_are_those_of_copied_rows(metric, n, kind, clustered, seed):
    rng = np.random.default_rng(seed)
    score = make_scores(rng, n, kind)
    if metric in ("uq_c_index", "kendall_phi", "somers_phi"):
        target = make_scores(rng, n, rng.choice(["grid", "continuous", "mixture"]))
    elif metric in LOSS_TOO and rng.random() < 0.5:
        target = make_losses01(rng, n, rng.choice(["grid", "errors", "mixture"]))
    else:
        target = make_errors(rng, n)
    clusters = rng.integers(0, max(2, n // 2), n) if clustered else None
    check_physical(metric, (score, target), clusters, seed=seed % 1000, resamples=6, tolerance=1e-9)


def test_values_are_those_of_copied_rows_at_middle_size_and_of_the_model():
    # Values are those of copied rows at middle size.
    for metric, clustered in product(RANKING, [False, True]):
        with noted(metric=metric, clustered=clustered):
            rng = np.random.default_rng(1)
            n = 60
            score = np.round(rng.normal(size=n), 1)
            error = (rng.random(n) < 0.3).astype(int)
            loss = np.round(0.5 * error + 0.3 * rng.random(n), 2)
            target = loss if metric in ("uq_c_index", "kendall_phi", "somers_phi") else error
            check_physical(metric, (score, target), rng.integers(0, 20, n) if clustered else None)

    # Model metrics are those of copied rows.
    for metric, clustered, seed in product(
        ["accuracy", "brier", "log_loss", "ece", "ece_debiased"], [False, True], range(2)
    ):
        with noted(metric=metric, clustered=clustered, seed=seed):
            rng = np.random.default_rng(seed)
            n = 40
            probs = np.round(rng.dirichlet(np.ones(3), n), 2)
            probs[:, 2] = 1 - probs[:, :2].sum(axis=1)
            probs = np.clip(probs, 0.01, None)
            probs /= probs.sum(axis=1, keepdims=True)
            labels = rng.integers(0, 3, n)
            confidence, correct = probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(int)
            at = probs[np.arange(n), labels]
            data, keys = {
                "accuracy": ((1 - correct,), (correct,)),
                "brier": ((probs, labels), (((probs - np.eye(3)[labels]) ** 2).sum(axis=1),)),
                "log_loss": ((probs, labels), (-np.log(at),)),
            }.get(metric, ((confidence, correct), (confidence, correct)))
            clusters = rng.integers(0, 9, n) if clustered else None
            check_physical(metric, data, clusters, seed=seed, tolerance=1e-7 if "ece" in metric else 1e-12, keys=keys)


def test_weighted_values_are_those_of_copied_rows_and_weights_of_one_change_nothing():
    # Weighted values are those of copied rows.
    # Copies keep their weight; AURC counts coverages row by row, so a copy is not a doubled weight.
    for metric, clustered in product(["uq_auc", "uq_c_index", "kendall_phi", "somers_phi", *AREAS], [False, True]):
        with noted(metric=metric, clustered=clustered):
            rng = np.random.default_rng(2)
            n = 30
            score = np.round(rng.normal(size=n))
            error = (rng.random(n) < 0.4).astype(int)
            loss = np.round(rng.random(n), 1)
            target = loss if metric in ("uq_c_index", "kendall_phi", "somers_phi") else error
            clusters = rng.integers(0, 8, n) if clustered else None
            check_physical(metric, (score, target), clusters, weights=rng.integers(1, 5, n) / 2)

    # Weighted model metrics are those of copied rows.
    for metric in ["accuracy", "ece", "ece_debiased"]:
        with noted(metric=metric):
            rng = np.random.default_rng(3)
            n = 40
            confidence = rng.random(n)
            correct = (rng.random(n) < confidence).astype(int)
            w = rng.integers(1, 5, n) / 2
            data = (1 - correct,) if metric == "accuracy" else (confidence, correct)
            keys = (correct,) if metric == "accuracy" else data
            found = quiet(uqeval.bootstrap, metric, *data, resamples=12, weights=w)
            function = REGISTRY[metric].function
            for b, rows in enumerate(copied_rows(seeds_of(0, 12), [*keys, w])):
                expected = function(*(x[rows] for x in data), weights=w[rows])
                assert found[b] == pytest.approx(expected, rel=1e-8, abs=1e-8)

    # Weights of one change nothing.
    for metric in RANKING:
        with noted(metric=metric):
            rng = np.random.default_rng(4)
            n = 50
            score, error = np.round(rng.normal(size=n), 1), (rng.random(n) < 0.4).astype(int)
            plain = quiet(uqeval.bootstrap, metric, score, error, resamples=20)
            ones = quiet(uqeval.bootstrap, metric, score, error, resamples=20, weights=np.ones(n))
            np.testing.assert_allclose(ones, plain, rtol=1e-10)


@pytest.mark.slow
def test_large_samples_are_counted_exactly():
    for n in [65_535, 65_536]:
        with noted(n=n):
            rng = np.random.default_rng(6)
            score, loss = rng.normal(size=n), rng.normal(size=n)
            found = uqeval.bootstrap("uq_c_index", score, loss, resamples=1)
            for b, rows in enumerate(copied_rows(seeds_of(0, 1), (score, loss))):
                assert found[b] == pytest.approx(uqeval.metrics.uq_c_index(score[rows], loss[rows]), rel=1e-13)
            error = (loss > 1).astype(int)
            for metric in ("uq_auc", "aurc", "naurc"):
                found = uqeval.bootstrap(metric, score, error, resamples=1)
                (rows,) = copied_rows(seeds_of(0, 1), (score, error))
                assert found[0] == pytest.approx(REGISTRY[metric].function(score[rows], error[rows]), rel=1e-10)

    # A cluster of 20,000 rows drawn twice makes more rows than the 60,000 that there are, and than 16 bits count.
    for backend in each_backend():
        with noted(kernels=backend):
            rng = np.random.default_rng(5)
            n = 60_000 if backend == "native" else 6000
            clusters = np.maximum(0, np.arange(n) - n // 3)
            score, loss = rng.normal(size=n), rng.integers(0, 1000, n).astype(float)
            found = uqeval.bootstrap("uq_c_index", score, loss, clusters=clusters, resamples=5)
            sizes = []
            for b, rows in enumerate(copied_rows(seeds_of(0, 5), (score, loss), clusters)):
                sizes.append(len(rows))
                assert found[b] == pytest.approx(uqeval.metrics.uq_c_index(score[rows], loss[rows]), rel=1e-12)
            assert max(sizes) > 1.1 * n


@on_both_kernels
def test_undefined_and_infinite_resamples_are_marked_and_small_losses_keep_their_area():
    # An infinite log-loss is infinite where it is drawn and only there.
    probs = np.array([0.2, 0.0, 0.3, 0.8, 0.7, 0.4])
    labels = np.array([0, 1, 0, 1, 1, 0])
    with np.errstate(invalid="raise", divide="raise"):
        found = quiet(uqeval.bootstrap, "log_loss", probs, labels, resamples=60)
    at = np.where(labels == 1, probs, 1 - probs)
    rows_loss = np.array([math.inf if x == 0 else -math.log(x) for x in at])
    for b, rows in enumerate(copied_rows(seeds_of(0, 60), (rows_loss,))):
        assert found[b] == pytest.approx(rows_loss[rows].mean())
    assert np.isinf(found).any()
    assert np.isfinite(found).any()

    # Normalised areas of equal losses are undefined.
    for value in [0.3, 0.1, 0.7]:
        with noted(value=value):
            rng = np.random.default_rng(7)
            n = 2000
            for score in (rng.normal(size=n), np.round(rng.normal(size=n), 1)):
                for metric in ("naurc", "prr"):
                    assert np.isnan(quiet(uqeval.bootstrap, metric, score, np.full(n, value), resamples=20)).all()

    # Small losses keep their normalised area.
    # Losses of 1e-15 are losses: the ratio does not depend on the unit.
    rng = np.random.default_rng(8)
    score, loss = rng.normal(size=50), rng.random(50)
    big = uqeval.bootstrap("naurc", score, loss, resamples=10)
    small = uqeval.bootstrap("naurc", score, loss * 2.0**-50, resamples=10)
    np.testing.assert_allclose(small, big, rtol=1e-9)


# ---- invariance -------------------------------------------------------------------------------------------------


@on_both_kernels
def test_draws_depend_on_neither_rows_nor_kernels_nor_threads_nor_chunks():
    # The order of rows does not matter.
    for metric, clustered, weighted in product(RANKING, [False, True], [False, True]):
        with noted(metric=metric, clustered=clustered, weighted=weighted):
            rng = np.random.default_rng(9)
            n = 120
            score, error = np.round(rng.normal(size=n), 1), (rng.random(n) < 0.4).astype(int)
            g = rng.integers(0, 30, n) if clustered else None
            w = rng.integers(1, 9, n) / 4 if weighted else None
            turn = rng.permutation(n)
            a = quiet(uqeval.bootstrap, metric, score, error, resamples=15, clusters=g, weights=w)
            g, w = (None if x is None else x[turn] for x in (g, w))
            b = quiet(uqeval.bootstrap, metric, score[turn], error[turn], resamples=15, clusters=g, weights=w)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)

    # Both kernels and any number of threads draw the same.
    rng = np.random.default_rng(10)
    n = 500
    score, loss = np.round(rng.normal(size=n), 2), np.round(rng.random(n), 2)
    unit, seeds = rng.permutation(n), seeds_of(0, 31)
    totals, areas = [], []
    for _ in each_backend():
        for threads in (1, 2, 3, 64):
            totals.append(kernels.bootstrap_totals(score, loss, unit, n, seeds, threads))
            areas.append(kernels.bootstrap_areas(score, loss, unit, n, seeds, True, threads))
    for other in totals[1:]:
        np.testing.assert_array_equal(totals[0], other)
    for other in areas[1:]:
        np.testing.assert_allclose(areas[0], other, rtol=1e-12)

    # Chunks do not change the draws.
    # A progress callback cuts the work into smaller parts.
    rng = np.random.default_rng(11)
    score, error = rng.normal(size=100), (rng.random(100) < 0.4).astype(int)
    for metric in ("uq_auc", "uq_c_index", "aurc"):
        a = uqeval.bootstrap(metric, score, error, resamples=97)
        b = uqeval.bootstrap(metric, score, error, resamples=97, progress=lambda stage, done, total: None)
        np.testing.assert_array_equal(a, b)
    long = uqeval.bootstrap("uq_auc", score, error, resamples=50)
    np.testing.assert_array_equal(long, uqeval.bootstrap("uq_auc", score, error, resamples=50, seed=0))
    assert (long != uqeval.bootstrap("uq_auc", score, error, resamples=50, seed=1)).any()


def test_progress_rises_to_the_total():
    for metric, resamples in product(["uq_auc", "accuracy", "ece"], [1, 19, 20, 21, 1000]):
        with noted(metric=metric, resamples=resamples):
            rng = np.random.default_rng(12)
            seen = []
            a, b = rng.random(60), (rng.random(60) < 0.5).astype(int)
            data = (b,) if metric == "accuracy" else (a, b)
            uqeval.bootstrap(
                metric, *data, resamples=resamples, progress=lambda *report, seen=seen: seen.append(report)
            )
            assert seen[-1][1:] == (resamples, resamples)
            assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
            assert {total for *_, total in seen} == {resamples}

    # Progress reaches the total in estimate and compare.
    rng = np.random.default_rng(13)
    s, t, v = rng.normal(size=60), rng.normal(size=60), (rng.random(60) < 0.5).astype(int)
    for run in (
        lambda show: uqeval.estimate("uq_auc", s, v, method="bootstrap", resamples=70, progress=show),
        lambda show: uqeval.compare({"a": s, "b": t}, error=v, method="bootstrap", resamples=70, progress=show),
    ):
        seen = []
        run(lambda stage, done, total, seen=seen: seen.append((done, total)))
        assert seen[-1] == (70, 70)


def test_what_cannot_be_resampled_is_refused():
    # Resamples must be a count.
    for bad in [0, -1, 2.5, "10", True, None, math.nan]:
        with noted(bad=bad):
            score, error = [1, 2, 3, 4], [0, 1, 0, 1]
            with pytest.raises(InputError, match="resamples"):
                uqeval.bootstrap("uq_auc", score, error, resamples=bad)
            with pytest.raises(InputError, match="resamples"):
                quiet(uqeval.estimate, "uq_auc", score, error, method="bootstrap", resamples=bad)
            with pytest.raises(InputError, match="resamples"):
                quiet(uqeval.compare, {"a": score, "b": score}, error=error, method="bootstrap", resamples=bad)

    # Out of distribution metrics are refused.
    with pytest.raises(InputError, match="estimate"):
        uqeval.bootstrap("ood_auroc", [1, 2], [3, 4])


# ---- estimate and compare ---------------------------------------------------------------------------------------


@pytest.mark.slow
@each("metric", [*RANKING, "accuracy", "brier", "log_loss", "ece", "ece_debiased"])
@each("clustered", [False, True])
def test_standard_error_agrees_with_the_default(metric, clustered):
    rng = np.random.default_rng(14)
    n = 1000
    g = np.arange(n) // 4 if clustered else None
    shared = np.repeat(rng.normal(size=n // 4), 4) if clustered else 0
    error = (rng.random(n) < 0.3).astype(int)
    score = rng.normal(size=n) + error + shared
    loss = 0.5 * error + 0.3 * rng.random(n) + 0.05 * score
    p1 = 1 / (1 + np.exp(-2 * rng.normal(size=n)))
    labels = (rng.random(n) < 0.15 + 0.5 * p1).astype(int)
    top = np.maximum(p1, 1 - p1)
    data = {
        "uq_c_index": (score, loss),
        "kendall_phi": (score, loss),
        "somers_phi": (score, loss),
        "accuracy": (error,),
        "brier": (p1, labels),
        "log_loss": (p1, labels),
        "ece": (top, (labels == (p1 > 0.5)).astype(int)),
        "ece_debiased": (top, (labels == (p1 > 0.5)).astype(int)),
    }.get(metric, (score, error))
    default = quiet(uqeval.estimate, metric, *data, clusters=g)
    drawn = quiet(uqeval.estimate, metric, *data, clusters=g, method="bootstrap", resamples=500)
    assert drawn.value == default.value
    assert drawn.se == pytest.approx(default.se, rel=0.15)
    assert drawn.low <= drawn.high
    if not metric.startswith("ece"):  # the default is wider: it leaves room for an error that was not seen
        assert -0.6 < (drawn.low - default.low) / default.se < 1.2
        assert -0.6 < (default.high - drawn.high) / default.se < 1.2


def test_estimate_reports_percentiles_and_the_undefined_resamples():
    score, error = np.arange(8.0), np.array([0, 0, 0, 1, 0, 0, 0, 0])
    values = uqeval.bootstrap("uq_auc", score, error, resamples=400)
    undefined = int(np.isnan(values).sum())
    assert undefined == pytest.approx(400 * (7 / 8) ** 8, abs=4 * math.sqrt(400 * 0.34 * 0.66))
    with pytest.warns(UQWarning) as raised:
        result = uqeval.estimate("uq_auc", score, error, method="bootstrap", resamples=400)
    assert any(f"{undefined} of 400 resamples" in str(w.message) for w in raised)
    defined = values[~np.isnan(values)]
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(defined, [0.025, 0.975])))
    assert result.se == pytest.approx(defined.std(ddof=1))
    assert "bootstrap" in result.method

    # All undefined is NaN and not a crash.
    result = quiet(uqeval.estimate, "uq_auc", [1, 2, 3], [0, 0, 0], method="bootstrap", resamples=10)
    assert math.isnan(result.value)
    assert math.isnan(result.low)
    assert math.isnan(result.se)
    with np.errstate(all="raise"):
        cmp = quiet(uqeval.compare, {"a": [1, 2, 3], "b": [3, 1, 2]}, error=[0, 0, 0], method="bootstrap")
    assert math.isnan(cmp["a", "b"].p)
    assert math.isnan(cmp["a", "b"].low)


def joint_case(n=80, k=3):
    rng = np.random.default_rng(15)
    v = (rng.random(n) < 0.4).astype(int)
    base = rng.normal(size=n)
    return {f"s{j}": np.round(base + 0.5 * j * v + rng.normal(size=n), 1) for j in range(k)}, v


def test_candidates_are_resampled_together():
    # Compare draws all scores together.
    for metric, clustered in product(["uq_auc", "aurc", "h_auc"], [False, True]):
        with noted(metric=metric, clustered=clustered):
            scores, v = joint_case()
            g = np.arange(80) // 3 if clustered else None
            how = {"method": "bootstrap", "resamples": 20, "adjust": "none", "clusters": g}
            found = [
                row for _ in each_backend() for row in quiet(uqeval.compare, scores, error=v, metric=metric, **how)
            ]
            keys = [key for s in scores.values() for key in (s, v)]
            drawn = {name: [] for name in scores}
            for rows in copied_rows(seeds_of(0, 20), keys, g):
                for name, s in scores.items():
                    drawn[name].append(SLOW[metric](s[rows], v[rows]))
            for row in found:
                gaps = np.array(drawn[row.a]) - np.array(drawn[row.b])
                assert row.difference == pytest.approx(SLOW[metric](scores[row.a], v) - SLOW[metric](scores[row.b], v))
                assert row.se == pytest.approx(gaps.std(ddof=1), rel=1e-9)
                assert (row.low, row.high) == pytest.approx(
                    tuple(np.quantile(gaps, [0.025, 0.975])), rel=1e-8, abs=1e-12
                )
                beyond = min((gaps <= 1e-14).sum(), (gaps >= -1e-14).sum())
                assert row.p == pytest.approx(min(1, 2 * (1 + beyond) / 21))
                assert row.p_adjusted == row.p

    # Models are resampled together.
    for metric in ["accuracy", "brier", "log_loss", "ece"]:
        with noted(metric=metric):
            rng = np.random.default_rng(17)
            n = 600
            labels = rng.integers(0, 2, n)
            p = np.clip(0.5 + 0.3 * (2 * labels - 1) * rng.normal(0.7, 1, size=n), 0.02, 0.98)
            q = np.clip(p + 0.1 * rng.normal(size=n), 0.02, 0.98)
            pair = {"a": uqeval.Predictions(labels, probs=p), "b": uqeval.Predictions(labels, probs=q)}
            plain = quiet(uqeval.compare, pair, metric=metric)["a", "b"]
            drawn = quiet(uqeval.compare, pair, metric=metric, method="bootstrap", resamples=500)["a", "b"]
            assert drawn.difference == plain.difference
            if metric != "ece":
                assert drawn.se == pytest.approx(plain.se, rel=0.12)
            assert 0 < drawn.p <= 1

    # Rank identical scores do not differ.
    for metric, how in product(["uq_auc", "uq_c_index", "aurc", "naurc"], ["max-t", "holm", "none"]):
        with noted(metric=metric, how=how):
            scores, v = joint_case()
            scores["copy"] = scores["s0"] ** 3
            cmp = quiet(
                uqeval.compare, scores, error=v, loss=v, metric=metric, method="bootstrap", resamples=60, adjust=how
            )
            row = cmp["s0", "copy"]
            assert (row.difference, row.low, row.high, row.se, row.p, row.p_adjusted) == (0, 0, 0, 0, 1, 1)
            for other in cmp:
                assert other.p <= other.p_adjusted <= 1
                assert other.low <= other.difference <= other.high


@pytest.mark.slow
@each("metric", ["uq_auc", "uq_c_index", "aurc"])
@each("kind", ["plain", "weights", "clusters"])
def test_bootstrap_and_influence_agree_on_a_difference(metric, kind):
    rng = np.random.default_rng(16)
    n = 800
    v = (rng.random(n) < 0.3).astype(int)
    base = rng.normal(size=n)
    scores = {"a": base + v, "b": base + 0.7 * v + rng.normal(size=n)}
    more = {"plain": {}, "weights": {"weights": rng.uniform(0.5, 2, n)}, "clusters": {"clusters": np.arange(n) // 5}}[
        kind
    ]
    loss = 0.5 * v + 0.2 * rng.random(n)
    plain = quiet(uqeval.compare, scores, error=v, loss=loss, metric=metric, **more)["a", "b"]
    drawn = quiet(uqeval.compare, scores, error=v, loss=loss, metric=metric, method="bootstrap", resamples=300, **more)[
        "a", "b"
    ]
    assert drawn.difference == plain.difference
    assert drawn.se == pytest.approx(plain.se, rel=0.15)  # 4% of it the draws'


# ---- the draws --------------------------------------------------------------------------------------------------


def test_draws_are_uniform_multinomial_and_independent_between_seeds():
    # Draws are uniform over units.
    for units in [1, 2, 3, 7, 64, 1000]:
        with noted(units=units):
            resamples = max(50, 6000 // units)
            total = sum(draw_units(seed, units) for seed in seeds_of(1, resamples))
            assert total.sum() == resamples * units
            if units > 1:
                assert stats.chisquare(total).pvalue > 1e-4

    # Counts are multinomial.
    for units in [2, 5, 20]:
        with noted(units=units):
            counts = np.stack([draw_units(seed, units) for seed in seeds_of(2, 4000)])
            law = stats.binom(units, 1 / units)
            top = min(units, 5)
            for j in (0, units // 2, units - 1):
                seen = np.bincount(np.minimum(counts[:, j], top), minlength=top + 1)
                expected = np.append(law.pmf(np.arange(top)), law.sf(top - 1)) * len(counts)
                keep = expected > 3
                seen = np.append(seen[keep], seen[~keep].sum()) if not keep.all() else seen
                expected = np.append(expected[keep], expected[~keep].sum()) if not keep.all() else expected
                assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4
            covariance = np.cov(counts.T)
            np.testing.assert_allclose(np.diag(covariance), 1 - 1 / units, atol=6 * math.sqrt(2 / 4000))
            off = covariance[~np.eye(units, dtype=bool)]
            np.testing.assert_allclose(off, -1 / units, atol=6 / math.sqrt(4000))

    # Neighbouring seeds draw independently.
    for step in [1, 2, 1 << 32, 1 << 63]:
        with noted(step=step):
            first = np.uint64(12345)
            with np.errstate(over="ignore"):
                seeds = first + np.arange(3000, dtype=np.uint64) * np.uint64(step) if step < 1 << 60 else None
            if seeds is None:
                seeds = np.stack(
                    [np.arange(1500, dtype=np.uint64), np.arange(1500, dtype=np.uint64) + np.uint64(step)]
                ).T.ravel()
            counts = np.array([draw_units(seed, 2)[0] for seed in seeds])
            table = np.zeros((3, 3))
            np.add.at(table, (counts[:-1], counts[1:]), 1)
            assert stats.chi2_contingency(table).pvalue > 1e-4
            expected = np.outer([0.25, 0.5, 0.25], [0.25, 0.5, 0.25]) * table.sum()
            assert stats.chisquare(table.ravel(), expected.ravel()).pvalue > 1e-4

    # Counts of neighbouring seeds are uncorrelated at larger size.
    counts = np.stack([draw_units(np.uint64(seed), 500) for seed in range(400)]).astype(float) - 1
    correlation = (counts[:-1] * counts[1:]).sum(axis=1) / 500
    assert abs(correlation.mean()) < 5 / math.sqrt(500 * 399)
    assert correlation.std() == pytest.approx(1 / math.sqrt(500), rel=0.15)


def test_draws_are_a_pinned_stream():
    """splitmix64 (Steele et al. 2014) written out with Python integers."""
    mask = 2**64 - 1
    for seed in (0, 1, 2**64 - 1, 0x123456789ABCDEF):
        for units in (1, 10, 1000):
            counts = np.zeros(units, dtype=int)
            for j in range(1, units + 1):
                z = (seed + j * 0x9E3779B97F4A7C15) & mask
                z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
                z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
                z ^= z >> 31
                counts[int((z >> 11) * 2.0**-53 * units)] += 1
            np.testing.assert_array_equal(draw_units(np.uint64(seed), units), counts)
