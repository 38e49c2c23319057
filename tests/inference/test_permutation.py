"""The permutation test of a difference: swaps within rows or clusters, by its definition and as often as it claims."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pytest
from scipy import stats

import uqeval
from cases import noted
from uqeval import InputError
from uqeval.metrics.registry import REGISTRY


def compare(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return uqeval.compare(*args, method="permutation", **kwargs)


def rows(seed, n=7, errors=3):
    rng = np.random.default_rng(seed)
    error = rng.permutation(np.arange(n) < errors).astype(int)
    scores = rng.normal(size=(2, n)).round(1) + error
    return scores[0], scores[1], error, rng


def every_swap(value, columns, units):
    """Share of all swaps whose difference is as large as the one observed."""
    (a, x), (b, y) = columns

    def gap(swap):
        return value(np.where(swap, b, a), np.where(swap, y, x)) - value(np.where(swap, a, b), np.where(swap, x, y))

    observed = abs(gap(np.zeros(len(a), dtype=bool)))
    bits = [np.array(bit)[units] for bit in product((False, True), repeat=units.max() + 1)]
    return np.mean([abs(gap(swap)) >= observed - 1e-12 for swap in bits])


def test_p_is_the_share_of_swaps_with_as_large_a_difference():
    resamples = 1500
    for seed, metric, kind in product(range(1), ("uq_auc", "aurc", "uq_c_index"), ("plain", "weights", "clusters")):
        with noted(seed=seed, metric=metric, kind=kind):
            a, b, error, rng = rows(seed)
            a, b = (np.clip(np.round(s), 0, 2) for s in (a, b))  # values in common: a common scale
            target = {"loss": rng.random(7)} if metric == "uq_c_index" else {"error": error}
            of_rows = next(iter(target.values()))
            w = rng.uniform(0.5, 2, 7) if kind == "weights" else None
            units = np.array([0, 0, 1, 2, 3, 3, 4]) if kind == "clusters" else np.arange(7)
            more = {"weights": w} if kind == "weights" else {"clusters": units} if kind == "clusters" else {}

            def value(score, target, metric=metric, w=w):
                return REGISTRY[metric].function(score, target, weights=w)

            expected = every_swap(value, [(a, of_rows), (b, of_rows)], units)
            found = compare({"a": a, "b": b}, metric=metric, resamples=resamples, **target, **more)["a", "b"]
            spread = math.sqrt(expected * (1 - expected) / resamples)
            assert found.p == pytest.approx(expected, abs=4 * spread + 2 / resamples)


def test_scores_in_other_units_are_swapped_as_ranks():
    _, _, error, rng = rows(1, n=40, errors=8)
    a, b = rng.normal(size=(2, 40)) + error
    plain = compare({"a": a, "b": b}, error=error, resamples=200)["a", "b"].p
    assert compare({"a": np.exp(a), "b": 1e3 * b - 7}, error=error, resamples=200)["a", "b"].p == plain
    ranks = {"a": stats.rankdata(a), "b": stats.rankdata(b)}  # with values in common: swapped as they are
    assert plain == pytest.approx(compare(ranks, error=error)["a", "b"].p, abs=0.15)


def test_models_are_swapped_with_their_errors_and_means_row_by_row():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 40)
    models = {}
    for name, sharp in (("a", 2.0), ("b", 0.2)):
        p = 1 / (1 + np.exp(-sharp * (2 * labels - 1) - rng.normal(size=40)))
        models[name] = uqeval.Predictions(labels, probs=np.stack([1 - p, p], axis=1))
    for metric in ("uq_auc", "accuracy", "brier", "log_loss", "ece"):
        with noted(metric=metric):
            found = compare(models, metric=metric, resamples=999)
            assert 0 < found["a", "b"].p <= 1
            assert found["a", "b"].p == compare(models, metric=metric, resamples=999)["a", "b"].p
            turned = compare(dict(reversed(models.items())), metric=metric, resamples=999)["a", "b"].p
            assert turned == pytest.approx(found["a", "b"].p, abs=0.06)
    brier = [((pred.probs - np.eye(2)[labels]) ** 2).sum(axis=1) for pred in models.values()]
    apart = brier[0] - brier[1]
    flips = rng.choice([-1, 1], (5_000, 40)) @ apart
    assert compare(models, metric="brier")["a", "b"].p == pytest.approx(
        np.mean(np.abs(flips) >= abs(apart.sum()) - 1e-12), abs=0.02
    )


def test_the_answer_does_not_hang_on_the_order_of_rows_nor_on_who_else_is_compared():
    a, b, error, rng = rows(5, n=60, errors=12)
    c, order, told = rng.normal(size=60) + error, rng.permutation(60), []
    scores = {"a": a, "b": b}
    alone = compare(scores, error=error, resamples=300, progress=lambda *now: told.append(now))
    assert told[-1] == ("swapping", 300, 300)
    assert alone.method == "permutation"
    assert "swapping the two within rows" in str(alone)
    moved = compare({name: s[order] for name, s in scores.items()}, error=error[order], resamples=300)
    assert moved["a", "b"].p == alone["a", "b"].p
    three = compare(scores | {"c": c}, error=error, resamples=300)
    assert three["a", "b"].p == alone["a", "b"].p
    assert three.adjust == "holm"
    p = sorted(row.p for row in three)
    assert sorted(row.p_adjusted for row in three)[0] == pytest.approx(min(1, 3 * p[0]))
    assert all(row.p_adjusted == row.p for row in compare(scores | {"c": c}, error=error, adjust="none", resamples=99))
    grouped = compare(scores, error=error, groups=np.arange(60) % 2, resamples=99)
    assert 0 < grouped["a", "b", "0"].p <= 1
    # Standard error and interval are those of the default, which are there for the size of the difference.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        default = uqeval.compare(scores, error=error)["a", "b"]
    assert (alone["a", "b"].low, alone["a", "b"].se) == (default.low, default.se)


def test_scores_that_rank_alike_have_p_one_and_a_metric_without_value_none():
    a, _, error, _ = rows(0)
    assert compare({"a": a, "b": np.exp(a)}, error=error, resamples=99)["a", "b"].p == 1
    assert math.isnan(compare({"a": a, "b": -a}, error=0 * error, resamples=99)["a", "b"].p)


def test_few_errors_are_met_with_the_advice_to_permute_in_memory_only():
    a, b, error, _ = rows(0, n=60, errors=12)
    advice = 'few errors (12): the tests have little power; method="permutation" has more'
    with pytest.warns(uqeval.UQWarning, match="has more"):
        assert advice in uqeval.compare({"a": a, "b": b}, error=error).warnings
    assert advice not in compare({"a": a, "b": b}, error=error, resamples=9).warnings
    many = np.tile(error, 2)
    twice = {"a": np.append(a, a + 1e-9), "b": np.append(b, b - 1e-9)}  # no row is an exact copy
    assert uqeval.compare(twice, error=many).warnings == ()
    with pytest.raises(InputError, match="method"):
        uqeval.compare({"a": a, "b": b}, error=error, method="swap")


@pytest.mark.slow
def test_the_permutation_test_keeps_its_level_and_finds_what_the_default_misses():
    # 100 rows, 5 errors, scores that correlate .95.
    rng, reps = np.random.default_rng(0), 300

    def p(metric, shift):
        error = rng.permutation(np.arange(100) < 5)
        x, y = rng.multivariate_normal([0, 0], [[1, 0.95], [0.95, 1]], 100).T
        scores = {"a": x + (1.2 + shift) * error, "b": y + 1.2 * error}
        found = compare(scores, error=error, metric=metric, resamples=199)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            default = uqeval.compare(scores, error=error, metric=metric)
        return found["a", "b"].p, default["a", "b"].p

    for metric in ("uq_auc", "aurc"):
        null = np.array([p(metric, 0.0) for _ in range(reps)])
        assert (null <= 0.05).mean(axis=0).max() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / reps)
        power = (np.array([p(metric, 1.0) for _ in range(60)]) <= 0.05).mean(axis=0)
        assert power[0] > power[1] + 0.2, (metric, power)
