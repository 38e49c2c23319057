"""The top-label C-index of predictions: of two classes the UQ-C-index, of more beside it; no row ties by rounding."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uqeval as uq
from cases import each, noted
from uqeval._errors import UQWarning

BOTH = ["top_label_c_index", "uq_c_index"]
FIELDS = ("value", "low", "high", "se")


def quiet(function, *given, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*given, **more)


def model(classes, n=300, seed=0, scale=3.0):
    """Logits and labels, a few rows saturated and a few at p = 1/K."""
    rng = np.random.default_rng(seed)
    z = scale * rng.normal(size=(n, classes))
    z[:5] = 0.0
    z[5:60] *= 30
    shifted = z + rng.gumbel(size=z.shape) * rng.choice([1.0, 20.0], (n, 1))
    return z, shifted.argmax(axis=1)


def softmax(z):
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def numbers(ev, score, metric, group=None):
    e = ev[score, metric, group] if group else ev[score, metric]
    return [getattr(e, name) for name in FIELDS]


@each("kind", ["probs", "logits"])
def test_for_two_classes_it_is_the_uq_c_index_with_ties_at_one_half_and_saturated_rows(kind):
    z, y = model(2)
    rng = np.random.default_rng(1)
    given = {"logits": z} if kind == "logits" else {"probs": softmax(z)}
    more = ({}, {"weights": rng.random(300)}, {"clusters": np.arange(300) // 3}, {"groups": np.arange(300) % 2})
    for extra in more:
        ev = quiet(uq.evaluate, uq.Predictions(y, **given, **extra), scores=["entropy", "margin"], metrics=BOTH)
        for row in ev:
            assert numbers(ev, row.score, BOTH[0], row.group) == numbers(ev, row.score, BOTH[1], row.group)
    p = softmax(z)
    c, e = p.max(axis=1), (p.argmax(axis=1) != y).astype(int)
    sure = (c != 0.5) & (c != 1.0)
    score = uq.scores.entropy(p)[sure]
    gap = uq.truth.rank_loss(p, y)[sure]
    assert uq.metrics.top_label_c_index(score, c[sure], e[sure]) == uq.metrics.uq_c_index(score, gap)


def test_it_is_shown_for_three_classes_and_more_and_for_two_when_it_is_asked_for():
    for classes in (2, 3, 10):
        z, y = model(classes)
        ev = quiet(uq.evaluate, uq.Predictions(y, logits=z), scores="entropy")
        assert ("top_label_c_index" in ev.metrics) == (classes > 2)
        assert "uq_c_index" in ev.metrics
        assert ("top-label C-index" in str(ev)) == (classes > 2)
        assert ("top-label C-index" in uq.report(ev)) == (classes > 2)


def test_a_confidence_that_is_rounded_to_one_ties_no_rows():
    z, y = model(5, n=400)
    p = softmax(z)
    assert (p.max(axis=1) == 1).sum() >= 30
    top = p.argmax(axis=1)
    e = top != y
    others = np.where(np.arange(5) == top[:, None], -np.inf, z)
    odds = z[np.arange(400), top] - others.max(axis=1)  # of saturated rows the order of the confidence
    odds -= np.log(np.exp(others - others.max(axis=1, keepdims=True)).sum(axis=1))
    assert len(np.unique(odds.round(9))) > 395
    signed = np.where(e, odds + 100, -odds - 100)
    for given in ({"logits": z}, {"probs": p}):
        ev = quiet(uq.evaluate, uq.Predictions(y, **given), scores=["entropy", "margin"], metrics=BOTH)
        for name in ev.scores:
            score = uq.scores.compute(name, uq.Predictions(y, **given))
            expected = uq.metrics.uq_c_index(score, signed)
            assert ev[name, BOTH[0]].value == pytest.approx(expected, abs=1e-4 if "probs" in given else 1e-12)

    # Predictions and errors of the user's own: the confidence is that of their class.
    pred = (top + (np.arange(400) % 7 == 0)) % 5
    c = p[np.arange(400), pred]
    keep = np.arange(60, 400)
    for own in ({"labels": y[keep], "pred": pred[keep]}, {"error": (pred != y)[keep].astype(int), "pred": pred[keep]}):
        ev = quiet(uq.evaluate, uq.Predictions(probs=p[keep], **own), scores="entropy", metrics=BOTH[0])
        found = uq.metrics.top_label_c_index(uq.scores.entropy(p[keep]), c[keep], (pred != y)[keep])
        assert ev["entropy", BOTH[0]].value == pytest.approx(found, abs=1e-12)

    # A loss of the user's own changes nothing.
    plain = quiet(uq.evaluate, uq.Predictions(y, probs=p), scores="entropy", metrics=BOTH[0])
    own = quiet(uq.evaluate, uq.Predictions(y, probs=p, loss=np.arange(400.0)), scores="entropy", metrics=BOTH[0])
    assert numbers(plain, "entropy", BOTH[0]) == numbers(own, "entropy", BOTH[0])


def test_out_of_core_it_is_the_same_with_clusters_and_groups_and_in_a_comparison(tmp_path):
    for classes in (2, 4):
        z, y = model(classes, n=600)
        p = softmax(z)
        columns = {f"prob_{k}": p[:, k] for k in range(classes)} | {"label": y}
        columns |= {"patient": np.arange(600) // 4, "site": np.arange(600) // 4 % 2}
        path = tmp_path / f"{classes}.parquet"
        pq.write_table(pa.table(columns), path)
        for extra in ({}, {"cluster": "patient"}, {"by": "site"}):
            for metrics in (BOTH, BOTH[:1], ["uq_auc", *BOTH, "accuracy"]):
                asked = {"scores": ["entropy", "margin"], "metrics": metrics, **extra}
                memory, found = (quiet(uq.evaluate, path, **asked, **engine) for engine in ({}, {"engine": "local"}))
                assert [(r.score, r.metric, r.group) for r in memory] == [(r.score, r.metric, r.group) for r in found]
                assert memory.n_errors == found.n_errors or "uq_auc" not in metrics
                for a, b in zip(memory, found, strict=True):
                    with noted(classes=classes, row=a, extra=extra, other=b):
                        assert a.estimate.value == b.estimate.value
                        for name in (*FIELDS, "n_eff"):
                            assert getattr(a.estimate, name) == pytest.approx(getattr(b.estimate, name), rel=1e-9)
            asked = {"scores": ["entropy", "margin"], "metric": BOTH[0], **extra}
            a, b = (quiet(uq.compare, path, **asked, **engine) for engine in ({}, {"engine": "local"}))
            for x, y_ in zip(a.rows, b.rows, strict=True):
                assert (x.difference, x.low, x.p) == pytest.approx((y_.difference, y_.low, y_.p), abs=1e-9)


def test_tables_and_report_say_which_columns_are_the_same_number_in_other_clothes():
    for classes, whose in ((2, "UQ-C-index of every score"), (4, "top-label C-index of gap_to_certain")):
        z, y = model(classes)
        ev = quiet(uq.evaluate, uq.Predictions(y[60:], probs=softmax(z[60:])), scores=["entropy", "gap_to_certain"])
        lines = " ".join(ev.same_numbers())
        assert "G-AUC = 2·AUGRC; AUARC = 1 − AURC; PRR = 1 − nAURC; AUGRC and H-AUC follow from UQ-AUC" in lines
        assert f"{whose} = 1 − 2·AUGRC" in lines
        assert all(line in str(ev) for line in ev.same_numbers())
        assert "G-AUC = 2·AUGRC" in uq.report(ev)
        for name in ("entropy", "gap_to_certain"):  # it is so where it is said, and only there
            metric = "top_label_c_index" if classes > 2 else "uq_c_index"
            score, error = ev.source.score(name), ev.source.error
            same = 1 - 2 * uq.metrics.augrc(score, error, unbiased=True)
            told = any(name in line or "every score" in line for line in ev.same_numbers() if " falls " in line)
            assert told == (abs(ev[name, metric].value - same) < 1e-12)
    ev = quiet(uq.evaluate, uq.Predictions(y, logits=z), scores="entropy", metrics=["uq_auc", "top_label_c_index"])
    assert ev.same_numbers() == []


@pytest.mark.slow
@each("size", [1, 5])
@each("n", [100, 1000])
def test_its_interval_holds_as_often_as_it_says(size, n):
    """Shared parts of rows of a cluster; the truth from a million rows."""

    def draw(rows, rng):
        u, v, w = (np.repeat(rng.normal(size=rows // size), size) * 0.6 + 0.8 * rng.normal(size=rows) for _ in range(3))
        c = 0.25 + 0.75 / (1 + np.exp(-1 - u))
        error = v > 1.2 * (c - 0.4) / 0.4  # surer rows err less
        return w - 3 * c - 0.5 * v, c, error

    rng = np.random.default_rng(8)
    truth = uq.metrics.top_label_c_index(*draw(1_000_000, rng))
    held = []
    for _ in range(400):
        clusters = np.arange(n) // size if size > 1 else None
        e = quiet(uq.estimate, "top_label_c_index", *draw(n, rng), clusters=clusters)
        held.append(e.low <= truth <= e.high)
    assert np.mean(held) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)
