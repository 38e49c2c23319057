"""Wrong labels: what is undone at random, and how few of the worst ones overturn a verdict."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import norm

import uqeval as uq
from cases import each, noted
from uqeval import InputError, metrics
from uqeval.decide import corrected_auc
from uqeval.decide.label_noise import fewest_flips


def noisy(error, rate, classes):
    """Errors against labels that are wrong at this rate, as (error, share) of each row."""
    flip = np.where(error == 1, rate / (classes - 1), rate)
    return np.concatenate([error, 1 - error]), np.concatenate([1 - flip, flip])


def test_corrected_auc_undoes_wrong_labels_of_one_rate_exactly():
    rng = np.random.default_rng(0)
    for classes, rate in itertools.product((2, 3, 10), (0.0, 0.05, 0.3)):
        for n in (4, 30):
            s, e = rng.integers(0, 6, n), np.arange(n) % 3 == 0
            w = rng.random(n)
            observed, share = noisy(e.astype(int), rate, classes)
            twice = np.concatenate([w, w]) * share
            auc = metrics.uq_auc(np.concatenate([s, s]), observed, weights=twice)
            found = corrected_auc(auc, (twice * observed).sum() / w.sum(), rate, classes=classes)
            with noted(classes=classes, rate=rate, n=n):
                assert found == pytest.approx(metrics.uq_auc(s, e, weights=w), abs=1e-12)
    assert math.isnan(corrected_auc(0.8, 0.1, rate=0.11))  # fewer errors than none
    assert math.isnan(corrected_auc(0.95, 0.1, rate=0.09))  # better than perfect


def test_the_counts_are_the_fewest_wrong_labels_that_overturn_the_verdict():
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(3, 9))
        columns = {"a": rng.integers(0, 5, n).astype(float), "b": rng.integers(0, 5, n).astype(float)}
        e = (rng.random(n) < 0.4).astype(int)
        e[:2] = 0, 1
        found = uq.label_noise(columns, e, rates=[0.0])
        auc = {name: metrics.uq_auc(s, e) for name, s in columns.items()}
        best = max(auc, key=auc.get)
        (other,) = set(columns) - {best}

        def overturned(flipped, best=best, other=other, columns=columns, against=None):
            if flipped.min() == flipped.max():
                return True  # nothing to rank
            bar = 0.5 if against is None else metrics.uq_auc(columns[other], flipped)
            return metrics.uq_auc(columns[best], flipped) <= bar

        for verdict, against in zip(found.overturns, (None, other), strict=True):
            counts = [
                sum(flips) for flips in itertools.product((0, 1), repeat=n) if overturned(e ^ flips, against=against)
            ]
            with noted(e=e, columns=columns, verdict=str(verdict)):
                assert verdict.holds == (min(counts) > 0)
                assert verdict.labels == (min(counts) or None)
    assert fewest_flips(np.array([3, -1, -2]), np.array([0, 1, 1], np.uint8)) is None


def test_a_certificate_is_overturned_by_no_fewer_hidden_errors_than_it_says():
    rng = np.random.default_rng(2)
    s = rng.random(400)
    e = (rng.random(400) < 0.3 * s**2).astype(int)
    clusters = np.arange(400) // 2
    for more in ({}, {"clusters": clusters}):
        found = uq.label_noise(s, e, max_risk=0.1, rates=[0.0], **more).overturns[-1]
        assert found.holds
        surest = np.argsort(np.where(e == 1, 2.0, s))
        for hidden, feasible in ((found.labels - 1, True), (found.labels, False)):
            worse = e.copy()
            worse[surest[:hidden]] = 1
            assert uq.choose_threshold(s, worse, max_risk=0.1, **more).feasible == feasible
    assert not uq.label_noise(s, e, max_risk=0.001, rates=[0.0]).overturns[-1].holds


def test_a_certificate_of_independent_rows_is_overturned_by_no_fewer_labels_and_of_clusters_it_may_be():
    def feasible(s, e, hidden, **more):
        worse = e.copy()
        worse[list(hidden)] = 1
        return uq.choose_threshold(s, worse, max_risk=0.6, level=0.8, **more).feasible

    rng, counts = np.random.default_rng(4), []
    while len(counts) < 25:
        n = int(rng.integers(9, 13))
        s, e = rng.integers(0, 6, n).astype(float), (rng.random(n) < 0.2).astype(int)
        if not e.any():
            continue
        found = uq.label_noise(s, e, max_risk=0.6, level=0.8, rates=[0.0]).overturns[-1]
        if not found.holds:
            continue
        fewer = itertools.combinations(np.flatnonzero(e == 0), found.labels - 1)
        with noted(s=s, e=e):
            assert all(feasible(s, e, hidden) for hidden in fewer)
        counts.append(found.labels)
    assert max(counts) > 2

    s, pairs = np.array([int(digit) for digit in "245020443544425055053243352152"], float), np.arange(30) // 2
    e = np.isin(np.arange(30), [5, 10]).astype(int)
    found = uq.label_noise(s, e, max_risk=0.4, level=0.9, rates=[0.0], clusters=pairs).overturns[-1]
    e[4] = 1
    assert found.labels == 2
    assert not uq.choose_threshold(s, e, max_risk=0.4, level=0.9, clusters=pairs).feasible


def test_predictions_dicts_and_arrays_give_the_same_curve_as_plain_data():
    pytest.importorskip("polars")
    pred = uq.datasets.example()
    names = ["entropy", "mutual_information"]
    found = uq.label_noise(names, predictions=pred, max_risk=0.05)
    scores = {name: uq.scores.compute(name, pred) for name in names}
    error = uq.truth.error_of(pred)
    plain = uq.label_noise(scores, error, classes=pred.n_classes, max_risk=0.05)
    assert found.to_json() == plain.to_json()
    assert found.scores == tuple(names)
    assert (found.classes, len(found.points)) == (10, 40)
    first = {p.score: p for p in found.points if p.rate == 0}
    for name in names:  # without wrong labels it is what `estimate` says
        e = uq.estimate("uq_auc", scores[name], error)
        assert first[name][3:] == pytest.approx((e.value, e.low, e.high), abs=1e-12)
    value = [p.value for p in found.points if p.score == "entropy"]
    assert np.all(np.diff(value) > 0)
    best = max(names, key=lambda name: first[name].value)
    assert corrected_auc(first[best].value, 90 / 1547, found.limit, classes=10) == pytest.approx(1, abs=1e-9)
    json.loads(found.to_json())
    assert list(found.to_frame("polars").columns) == ["score", "rate", "error_rate", "value", "low", "high"]
    assert "could overturn it" in str(found)
    assert "<table>" in found._repr_html_()
    chart = uq.plot.label_noise(found).to_dict()
    assert chart["title"]["text"] == "What wrong labels hide: 1,547 rows"


def test_impossible_rates_and_rows_without_errors_are_refused():
    s, e = np.arange(8.0), np.array([0, 0, 1, 0, 0, 1, 0, 1])
    for rates in ([0.9], [-0.1], []):
        with pytest.raises(InputError, match="`rates` must lie between 0 and"):
            uq.label_noise(s, e, rates=rates)
    with pytest.raises(InputError, match="`error` has 0 ones in 8 rows"):
        uq.label_noise(s, np.zeros(8))
    with pytest.raises(InputError, match="`classes` must be an int ≥ 2"):
        uq.label_noise(s, e, classes=1)
    with pytest.raises(InputError, match="`weights` cannot be used here"):
        uq.label_noise("s", predictions=uq.Predictions(scores={"s": s}, error=e, weights=s + 1))
    with pytest.raises(InputError, match="`found` is a dict"):
        uq.plot.label_noise({})


@pytest.mark.slow
@each(
    ("auc", "rate", "noise", "n", "classes", "size"),
    [
        (0.85, 0.2, 0.05, 500, 2, 1),
        (0.9, 0.1, 0.03, 300, 10, 1),
        (0.85, 0.2, 0.05, 1000, 2, 5),
        (0.7, 0.4, 0.2, 500, 2, 1),
    ],
)
def test_corrected_intervals_hold_the_uq_auc_without_wrong_labels(auc, rate, noise, n, classes, size):
    rng, held = np.random.default_rng(3), []
    for _ in range(400):
        shared = [np.repeat(rng.normal(size=n // size), size) for _ in range(2)]
        u, v = (0.7 * x + math.sqrt(0.51) * rng.normal(size=n) for x in shared)
        e = (norm.cdf(u) < rate).astype(int)
        s = v + math.sqrt(2) * norm.ppf(auc) * e
        observed = e ^ (rng.random(n) < np.where(e == 1, noise / (classes - 1), noise))
        clusters = np.arange(n) // size if size > 1 else None
        try:
            (point,) = uq.label_noise(s, observed, rates=[noise], classes=classes, clusters=clusters).points
        except InputError:  # with this sample the rate is impossible
            continue
        held.append(point.low <= auc <= point.high)
    assert len(held) > 300
    assert np.mean(held) > 0.95 - 3 * math.sqrt(0.95 * 0.05 / len(held))
