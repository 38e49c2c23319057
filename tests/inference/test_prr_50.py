"""PRR at 50%: its standard error is the jackknife's, its interval holds, and wherever a metric is named it can be."""

from __future__ import annotations

import math
import warnings
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inference_reference import jackknife_se, quiet, without_each
from scipy import stats

import uqeval as uq
from cases import noted
from uqeval import metrics
from uqeval._errors import InputError
from uqeval.evaluation.across import _span
from uqeval.inference.influence import area_influence
from uqeval.inference.sample import Sample
from uqeval.metrics import REGISTRY

RECORD = REGISTRY["prr_50"]


def rows(seed, n, ties=False, graded=False):
    rng = np.random.default_rng(seed)
    hard = rng.beta(1.5, 3, n)
    score = hard + 0.2 * rng.normal(size=n)
    loss = np.clip(hard + 0.1 * rng.normal(size=n), 0, 1) if graded else (rng.random(n) < hard).astype(float)
    return (np.round(score, 1) if ties else score), (np.round(loss, 1) if ties else loss)


def value(score, loss, weights=None):
    return RECORD.function(score, loss, weights=weights)


def test_the_standard_error_is_that_of_leaving_out_each_row_or_cluster():
    n = 360
    for graded in (False, True):
        for ties in (False, True):
            with noted(graded=graded, ties=ties):
                score, loss = rows(3, n, ties, graded)
                w, g = np.random.default_rng(4).uniform(0.5, 2, n), np.arange(n) // 3
                for weights in (None, w):
                    for clusters in (None, g):
                        found = quiet("prr_50", score, loss, weights=weights, clusters=clusters)
                        left = without_each(value, score, loss, weights, clusters)
                        # Few errors ask for an inflated variance: 5% more with 200 of them is far too much.
                        assert found.se == pytest.approx(jackknife_se(left), rel=0.05)
                        assert found.value == value(score, loss, weights)
                        assert found.low < found.value < found.high


def test_the_covariance_of_two_scores_is_that_of_their_influence_values():
    score, loss = rows(5, 500)
    other = score + np.random.default_rng(6).normal(size=500) / 3
    cmp = uq.compare({"a": score, "b": other}, error=loss, metric="prr_50")
    influence = [-area_influence(Sample.of(s, loss.astype(np.uint8)), RECORD) for s in (score, other)]
    pair = cmp.rows[0]
    assert pair.difference == pytest.approx(value(score, loss) - value(other, loss), abs=1e-14)
    left = np.subtract(*(without_each(value, s, loss) for s in (score, other)))
    assert pair.se == pytest.approx(jackknife_se(left), rel=0.03)
    assert pair.se == pytest.approx(np.std(influence[0] - influence[1]) / math.sqrt(500), rel=0.03)


def test_it_is_named_in_groups_clusters_bootstraps_and_comparisons_and_asked_for_by_name():
    score, loss = rows(7, 400)
    again = np.random.default_rng(8).random(400)
    given = {"error": loss, "clusters": np.arange(400) // 2, "groups": np.arange(400) // 2 % 2}
    ev = uq.evaluate(score={"a": score, "b": again}, metrics=["prr", "prr_50"], **given)
    assert ev["a", "prr_50", "1"].value == value(score[given["groups"] == 1], loss[given["groups"] == 1])
    assert ev["a", "prr_50"].n_clusters == 200
    assert "PRR at 50%" in str(ev)
    assert "prr_50" not in uq.evaluate(score=score, error=loss).metrics
    drawn = uq.evaluate(score=score, error=loss, metrics="prr_50", method="bootstrap", resamples=300)["score", "prr_50"]
    plain = uq.evaluate(score=score, error=loss, metrics="prr_50")["score", "prr_50"]
    assert drawn.se == pytest.approx(plain.se, rel=0.2)
    swapped = uq.compare({"a": score, "b": again}, error=loss, metric="prr_50", method="permutation", resamples=199)
    assert swapped.rows[0].p == pytest.approx(1 / 200)


def test_groups_of_any_size_get_the_estimate_of_their_rows_alone():
    score, loss = rows(9, 300)
    groups = np.repeat(["tiny", "small", "large"], [3, 47, 250])
    with pytest.warns(uq.UQWarning):
        ev = uq.evaluate(score=score, error=loss, groups=groups, metrics="prr_50")
    for name in ("tiny", "small", "large"):
        alone, found = quiet("prr_50", score[groups == name], loss[groups == name]), ev["score", "prr_50", name]
        assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high), nan_ok=True)
    assert math.isnan(ev["score", "prr_50", "tiny"].value)


def test_the_span_that_groups_are_joined_by_is_that_of_the_oracle():
    rng = np.random.default_rng(10)
    for rate in (0.05, 0.3, 0.5, 0.8):
        loss = (rng.permutation(200_000) < rate * 200_000).astype(float)
        for share in (1.0, 0.5):
            oracle = 1 - metrics.prr(np.zeros(len(loss)), loss)  # 1: nothing known
            assert oracle == pytest.approx(1.0)
            ranked = Sample.of(loss, loss.astype(np.uint8)).areas(RECORD if share == 0.5 else REGISTRY["prr"])
            assert ranked.span == pytest.approx(float(_span(np.array(rate), share)), rel=1e-4)


def test_an_engine_gives_what_memory_gives_alone_by_cluster_and_for_two_scores(tmp_path):
    path, rng = tmp_path / "rows.parquet", np.random.default_rng(12)
    for n, grades in ((2, 5), (3, 5), (4, 5), (61, 3), (400, 12), (401, 10**6)):
        with noted(n=n, grades=grades):
            hard = rng.random(n)
            columns = {f"score_{k}": np.round((hard + rng.normal(size=n)) * grades) for k in "ab"}
            columns |= {"error": (rng.random(n) < hard).astype(int), "unit": rng.integers(0, 1 + n // 3, n)}
            pq.write_table(pa.table(columns), path)
            for cluster in (None, "unit"):
                given = {"metrics": "prr_50", "cluster": cluster}
                found, expected = (loud(uq.evaluate, path, engine=e, **given) for e in ("local", "memory"))
                for row, own in zip(found.rows, expected.rows, strict=True):
                    for part in ("value", "se", "low", "high"):
                        a, b = getattr(row.estimate, part), getattr(own.estimate, part)
                        assert a == pytest.approx(b, rel=1e-9, abs=1e-9, nan_ok=True)
                given = {"metric": "prr_50", "cluster": cluster, "adjust": "none"}
                found, expected = (loud(uq.compare, path, engine=e, **given) for e in ("local", "memory"))
                for part in ("difference", "low", "high", "p"):
                    a, b = getattr(found.rows[0], part), getattr(expected.rows[0], part)
                    assert a == pytest.approx(b, rel=1e-8, abs=1e-8, nan_ok=True)


def loud(function, *data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uq.UQWarning)
        return function(*data, **options)


def test_tensors_refuse_it_in_a_sentence():
    score, loss = rows(11, 50)
    torch = pytest.importorskip("torch")
    from uqeval.torch import functional

    with pytest.raises(InputError, match="prr_50"):
        functional.estimate("prr_50", torch.tensor(score), torch.tensor(loss))


# ---- coverage, laws written down before the first run --------------------------------------------------------------


def binormal(apart, rate):
    def draw(rng, n):
        v = (rng.random(n) < rate).astype(float)
        return rng.normal(size=n) + apart * v, v, None

    return draw


def levels(rng, n):
    """Ten grades of a score that says less the surer it is."""
    v = (rng.random(n) < 0.3).astype(float)
    return np.ceil(10 * rng.beta(1 + 2 * v, 2, n)), v, None


def graded(rng, n):
    hard = rng.beta(1.5, 3, n)
    return hard + 0.3 * rng.normal(size=n), np.clip(hard + 0.15 * rng.normal(size=n), 0, 1), None


def surely_wrong(rng, n):
    """A fifth of the wrong rows are among the surest of all."""
    v = (rng.random(n) < 0.15).astype(float)
    return np.where((v > 0) & (rng.random(n) < 0.2), rng.normal(-3, 0.3, n), rng.normal(size=n) + 1.5 * v), v, None


def questions(rng, n):
    """Four answers to each question, as hard as the question is."""
    hard = np.repeat(rng.beta(1, 2, n // 4), 4)
    return hard + 0.3 * rng.normal(size=n), (rng.random(n) < hard).astype(float), np.arange(n) // 4


def skewed(rng, n):
    v = (rng.random(n) < 0.4).astype(float)
    return rng.gamma(1.5 + 2 * v), v, None


def useless(rng, n):
    return rng.random(n), (rng.random(n) < 0.2).astype(float), None


def heavy_tails(rng, n):
    v = (rng.random(n) < 0.25).astype(float)
    return stats.t(2).rvs(n, random_state=rng) + 1.5 * v, v, None


LAWS = {
    "binormal, many errors": binormal(1.2, 0.3),
    "binormal, few errors": binormal(2.0, 0.08),
    "levels": levels,
    "graded": graded,
    "questions": questions,
}
KEPT_APART = {"surely wrong": surely_wrong, "skewed": skewed, "useless": useless, "heavy tails": heavy_tails}


@cache
def truth(name):
    """The value in the population, from two million rows."""
    score, loss, _ = (LAWS | KEPT_APART)[name](np.random.default_rng(99), 2_000_000)
    return value(score, loss)


@pytest.mark.slow
def test_its_interval_holds_as_often_as_it_claims():
    reps = 1000
    for name, draw in (LAWS | KEPT_APART).items():
        for n in (100, 400):
            with noted(law=name, n=n):
                rng, held = np.random.default_rng(n), 0
                for _ in range(reps):
                    score, loss, clusters = draw(rng, n)
                    found = quiet("prr_50", score, loss, clusters=clusters)
                    held += found.low <= truth(name) <= found.high or math.isnan(found.value)
                assert held / reps > 0.95 - 3 * math.sqrt(0.95 * 0.05 / reps)


@pytest.mark.slow
def test_its_test_of_two_scores_keeps_its_level_and_the_interval_of_their_difference_holds():
    reps, n = 600, 300
    rng, rejected, held = np.random.default_rng(12), 0, 0
    for _ in range(reps):
        hard = rng.beta(1.5, 3, n)
        loss = (rng.random(n) < hard).astype(float)
        both = {name: hard + 0.4 * rng.normal(size=n) for name in ("a", "b")}  # of equal worth
        pair = uq.compare(both, error=loss, metric="prr_50").rows[0]
        rejected += pair.p < 0.05
        held += pair.low <= 0 <= pair.high
    assert rejected / reps < 0.05 + 3 * math.sqrt(0.05 * 0.95 / reps)
    assert held / reps > 0.95 - 3 * math.sqrt(0.05 * 0.95 / reps)
