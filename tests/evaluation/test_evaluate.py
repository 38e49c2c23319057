"""`evaluate`: every number is the one that `estimate` gives on the arrays, whatever form the input has."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uqeval as uq
from cases import each, noted, on_both_kernels
from optional import optional
from strategies import each_backend
from uqeval import InputError, UQWarning, kernels, truth
from uqeval.metrics import REGISTRY

pd = optional("pandas")
pl = optional("polars")

CLASSES = 3
NUMBERS = ("value", "low", "high", "se")
NASTY = "</script><img src=x onerror=alert(1)>"
LOSS_METRICS = {name for name, metric in REGISTRY.items() if metric.losses and metric.usual}


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def make(n=180, seed=0):
    """Arrays of a model that is right about two times in three."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, CLASSES))
    soft = softmax(logits + 0.7 * rng.normal(size=(n, CLASSES)))
    return {
        "labels": np.array([rng.choice(CLASSES, p=row) for row in soft]),
        "logits": logits,
        "member_logits": logits + rng.normal(size=(4, n, CLASSES)),
        "soft_labels": soft,
        "scores": {"mine": rng.random(n).round(1)},
    }


def quiet(function, *args, **kwargs):
    """The result, without its UQWarnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def notes_of(function, *args, **kwargs):
    """The result and the texts of its UQWarnings."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UQWarning)
        result = function(*args, **kwargs)
    assert all(issubclass(w.category, UQWarning) for w in raised)
    return result, [str(w.message) for w in raised]


def numbers(ev):
    """Every estimate's numbers by (score, metric, group)."""
    return {
        (row.score, row.metric, row.group): tuple(getattr(row.estimate, name) for name in NUMBERS) for row in ev.rows
    }


def assert_same(a, b, rtol=0.0):
    a, b = numbers(a), numbers(b)
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_allclose(a[key], b[key], rtol=rtol, atol=rtol, err_msg=str(key))


def assert_equal_estimates(found, expected, rtol, where):
    for field in fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(b, float):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-15, err_msg=f"{where} {field.name}")
        else:
            assert a == b, (where, field.name)


# ---- every number is that of `estimate` ------------------------------------------------------------------------


SOME = ["mine", "entropy", "vote_ratio"]  # of the user, of the probabilities and of the members


def sampling(kind, n):
    rng = np.random.default_rng(7)
    found = {}
    if "weights" in kind:
        found["weights"] = rng.integers(0, 4, n) * rng.random(n)
    if "clusters" in kind:
        found["clusters"] = np.array([f"patient {k}" for k in rng.integers(0, 45, n)])
    return found


@each("kind", ["rows", "weights", "clusters", "weights and clusters"])
def test_every_estimate_equals_that_of_the_arrays_by_hand(kind):
    data = make()
    n = len(data["labels"])
    extra = sampling(kind, n)
    groups = np.array(["b", "a", "c"])[np.arange(n) % 3]
    chosen = None if kind == "rows" else SOME  # all scores once
    ev = quiet(uq.evaluate, uq.Predictions(**data, **extra, groups=groups), scores=chosen)

    y, z, members = data["labels"], data["logits"], softmax(data["member_logits"])
    probs = softmax(z)
    error = (probs.argmax(1) != y).astype(int)
    target = {
        "error": error,
        "loss": truth.gap_from_logits(z, y),
        "phi": 1 - data["soft_labels"][np.arange(n), probs.argmax(1)],
        "varphi": 1 - probs[np.arange(n), data["soft_labels"].argmax(1)],
        "confidence": probs.max(1),
        "correct": 1 - error,
        "probs": probs,
        "labels": y,
    }
    by_name = {"mine": data["scores"]["mine"]}
    by_name |= {name: getattr(uq.scores, name)(probs) for name, (need,) in needs().items() if need == "probs"}
    by_name |= {name: getattr(uq.scores, name)(z) for name, (need,) in needs().items() if need == "logits"}
    by_name |= {name: getattr(uq.scores, name)(members) for name, (need,) in needs().items() if need == "members"}
    by_name["expected_free_energy"] = uq.scores.expected_free_energy(data["member_logits"])
    by_name = {name: by_name[name] for name in chosen or by_name}
    assert set(ev.scores) == set(by_name)

    ranking = [name for name, m in REGISTRY.items() if m.uses_score and m.usual]
    of_model = [name for name, m in REGISTRY.items() if not m.uses_score and "score_in" not in m.needs]
    expected = {(s, m, g) for s in by_name for m in ranking for g in (None, "a", "b", "c")}
    expected |= {(None, m, g) for m in of_model for g in (None, "a", "b", "c")}
    assert {(row.score, row.metric, row.group) for row in ev.rows} == expected
    assert len(ev) == len(expected)

    for row in ev.rows:
        keep = np.ones(n, bool) if row.group is None else groups == row.group
        keep &= extra.get("weights", np.ones(n)) > 0
        arrays = [by_name[row.score] if need == "score" else target[need] for need in REGISTRY[row.metric].needs]
        hand = quiet(
            uq.estimate, row.metric, *(a[keep] for a in arrays), **{name: array[keep] for name, array in extra.items()}
        )
        # The log-loss comes from the logits here and from the probabilities by hand: the last bits differ.
        assert_equal_estimates(row.estimate, hand, 1e-9 if row.metric == "log_loss" else 1e-12, row)


def test_the_scores_and_losses_of_every_kind_of_model_are_evaluated():
    # The scores of an evidential model are evaluated.
    rng = np.random.default_rng(0)
    alpha = 1 + 5 * rng.dirichlet(np.ones(CLASSES), 150) * rng.random((150, 1))
    labels = rng.integers(0, CLASSES, 150)
    ev = uq.evaluate(uq.Predictions(labels, alpha=alpha))
    error = (alpha.argmax(1) != labels).astype(int)
    wanted = [name for name, (need,) in needs().items() if need == "alpha"]
    assert len(wanted) >= 3
    for name in wanted:
        assert ev[name, "uq_auc"] == uq.estimate("uq_auc", getattr(uq.scores, name)(alpha), error)

    # A loss of zeros and ones is treated as estimate treats it.
    rng = np.random.default_rng(0)
    s = rng.random(200)
    loss = (rng.random(200) < s).astype(float)
    ev = uq.evaluate(score=s, loss=loss)
    for metric in LOSS_METRICS:
        assert ev["score", metric] == uq.estimate(metric, s, loss), metric

    # A cluster of weight zero is no cluster for evaluate and estimate.
    rng = np.random.default_rng(0)
    s = rng.random(60)
    e = (rng.random(60) < s).astype(int)
    clusters = np.arange(60) // 4
    w = np.where(clusters < 3, 0.0, 1 + rng.random(60))
    keep = w > 0
    dropped = quiet(uq.estimate, "uq_auc", s[keep], e[keep], weights=w[keep], clusters=clusters[keep])
    assert dropped.n_clusters == 12
    ev = quiet(uq.evaluate, score=s, error=e, weights=w, clusters=clusters)
    assert_equal_estimates(ev["score", "uq_auc"], dropped, 1e-12, "evaluate")
    whole = quiet(uq.estimate, "uq_auc", s, e, weights=w, clusters=clusters)
    assert_equal_estimates(whole, dropped, 1e-12, "estimate")

    # The level reaches every estimate.
    for level in [0.5, 0.9, 0.999]:
        with noted(level=level):
            data = make()
            ev = uq.evaluate(uq.Predictions(**data), level=level, scores="mine")
            assert {row.estimate.level for row in ev} == {level}
            error = truth.misclassified(softmax(data["logits"]), data["labels"])
            hand = uq.estimate("uq_auc", data["scores"]["mine"], error, level=level)
            assert ev["mine", "uq_auc"] == hand


def needs():
    return uq.scores.available()


def test_the_ece_interval_depends_on_nothing_but_the_rows_and_the_seed():
    for case in [71, 125, 149]:
        with noted(case=case):
            # p ≈ 0.05 in the calibration test: other draws give another interval.
            rng = np.random.default_rng(case)
            probs = rng.uniform(0.5, 1, 300)
            labels = (rng.random(300) < probs - 0.06).astype(int)
            pred = uq.Predictions(labels, probs=probs)
            ev = uq.evaluate(pred, scores="entropy")
            assert (ev["ece"].low, ev["ece"].high) == (ev["ece_debiased"].low, ev["ece_debiased"].high)
            for metric in ("ece", "ece_debiased"):
                assert uq.evaluate(pred, scores="entropy", metrics=metric)[metric] == ev[metric]
                assert uq.estimate(metric, probs, labels, seed=0) == ev[metric]

    # The ECE interval does not depend on the order of rows.
    for case in [71, 140, 376]:
        with noted(case=case):
            rng = np.random.default_rng(case)
            probs = rng.uniform(0.5, 1, 300)
            labels = (rng.random(300) < probs - 0.06).astype(int)
            order = rng.permutation(300)
            ev = uq.evaluate(uq.Predictions(labels, probs=probs), metrics="ece")
            moved = uq.evaluate(uq.Predictions(labels[order], probs=probs[order]), metrics="ece")
            np.testing.assert_allclose(ev["ece"].low, moved["ece"].low, atol=1e-12)


# ---- every form of input gives the same --------------------------------------------------------------------------


def table_of(n=60):
    data = make(n)
    rng = np.random.default_rng(3)
    names = ["cat", "dog", "tree frog"]
    probs = softmax(data["logits"])
    members = softmax(data["member_logits"])
    columns = {"label": [names[k] for k in data["labels"]], "score_mine": data["scores"]["mine"]}
    for k, name in enumerate(names):
        columns[f"prob_{name}"] = probs[:, k]
        columns[f"logit_{name}"] = data["logits"][:, k]
        columns[f"soft_{name}"] = data["soft_labels"][:, k]
        columns |= {f"member{m}_prob_{name}": members[m, :, k] for m in range(4)}
    columns |= {
        "weight": rng.integers(0, 3, n).astype(float),
        "cluster": [f"p{k}" for k in rng.integers(0, 20, n)],
        "group": [("x", "y")[k % 2] for k in range(n)],
    }
    arrays = {
        "labels": data["labels"],
        "probs": probs,
        "logits": data["logits"],
        "members": members,
        "soft_labels": data["soft_labels"],
        "scores": data["scores"],
        "weights": columns["weight"],
        "clusters": columns["cluster"],
        "groups": columns["group"],
    }
    return pa.table(columns), arrays


def test_arrays_frames_and_files_give_the_same_evaluation(tmp_path):
    pytest.importorskip("pandas")
    table, arrays = table_of()
    expected = quiet(uq.evaluate, uq.Predictions(**arrays), scores=SOME)
    pa.csv.write_csv(table, tmp_path / "a.csv")
    pq.write_table(table, tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **{k: v for k, v in arrays.items() if k != "scores"}, score_mine=table["score_mine"])
    forms = [table, table.to_pandas(), pl.from_arrow(table), str(tmp_path / "a.csv"), tmp_path / "a.parquet"]
    for form in [*forms, tmp_path / "a.npz", str(tmp_path / "*.csv")]:
        found = quiet(uq.evaluate, form, scores=SOME)
        assert_same(found, expected)
        assert found.warnings == expected.warnings
        assert found.tie_rate == expected.tie_rate
        assert (found.n, found.n_errors, found.accuracy) == (expected.n, expected.n_errors, expected.accuracy)


def test_plain_arrays_of_any_kind_equal_predictions():
    for label, wrap in zip(
        ["list", "tuple", "numpy", "pandas", "polars", "arrow", "pandas with another index"],
        [
            list,
            tuple,
            np.asarray,
            pd.Series,
            pl.Series,
            pa.array,
            lambda x: pd.Series(x, index=np.arange(len(x))[::-1]),
        ],
        strict=True,
    ):
        with noted(case=label):
            rng = np.random.default_rng(2)
            s, d = rng.random(80), rng.random(80)
            e = (rng.random(80) < 0.4).astype(int)
            g = np.array(["left", "right"])[rng.integers(0, 2, 80)]
            c = np.arange(80) // 2
            expected = quiet(uq.evaluate, uq.Predictions(scores={"score": s}, error=e, loss=d, groups=g, clusters=c))
            found = quiet(uq.evaluate, score=wrap(s), error=wrap(e), loss=wrap(d), groups=wrap(g), clusters=wrap(c))
            assert found.scores == ("score",)
            assert_same(found, expected)

    # A dict of scores keeps their names and order.
    rng = np.random.default_rng(2)
    e = (rng.random(80) < 0.4).astype(int)
    scores = {"b": rng.random(80), "a": rng.random(80)}
    ev = uq.evaluate(score=scores, error=e)
    assert ev.scores == ("b", "a")
    for name, score in scores.items():
        assert ev[name, "uq_auc"] == uq.estimate("uq_auc", score, e)

    # Booleans do for errors.
    rng = np.random.default_rng(2)
    s, e = rng.random(80), rng.random(80) < 0.4
    assert_same(uq.evaluate(score=s, error=e), uq.evaluate(score=s, error=e.astype(float)))


def test_nan_omit_drops_the_rows_from_every_array():
    rng = np.random.default_rng(4)
    n = 90
    s, d, w = rng.random(n), rng.random(n), rng.random(n) + 0.1
    e = (rng.random(n) < 0.4).astype(float)
    names = {"clusters": rng.integers(0, 30, n), "groups": np.array(["x", "y"])[rng.integers(0, 2, n)]}
    s2, d2, w2, e2 = s.copy(), d.copy(), w.copy(), e.copy()
    s2[3] = d2[10] = w2[11] = e2[12] = np.nan
    keep = ~np.isin(np.arange(n), [3, 10, 11, 12])
    found, notes = notes_of(uq.evaluate, score=s2, error=e2, loss=d2, weights=w2, **names, nan="omit")
    cut = {name: array[keep] for name, array in names.items()}
    expected = quiet(uq.evaluate, score=s[keep], error=e[keep], loss=d[keep], weights=w[keep], **cut)
    assert_same(found, expected)
    assert sum("4 rows with NaN" in note for note in notes) == 1
    assert any("4 rows with NaN" in note for note in found.warnings)

    # NaN omit still names arrays of another length.
    s = np.array([0.1, np.nan, 0.3, 0.4])
    for name in ("error", "loss", "weights", "clusters", "groups"):
        arrays = {"error": [0, 1, 0, 1]} | {name: [0, 1, 0]}
        with pytest.raises(InputError, match=rf"`{name}` has 3 rows|`{name}` has 3"):
            uq.evaluate(score=s, **arrays, nan="omit")


# ---- look-up -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grouped():
    data = make()
    return uq.evaluate(uq.Predictions(**data, groups=np.arange(180) % 2), scores=["entropy", "margin"])


def test_look_up_by_score_metric_and_group(grouped):
    assert grouped["entropy", "uq_auc"].low < grouped["entropy", "uq_auc"].value
    assert grouped["accuracy"] == grouped[None, "accuracy"] == grouped["entropy", "accuracy"]
    assert grouped["accuracy"].value == pytest.approx(grouped.accuracy, abs=1e-15)
    assert grouped["entropy", "uq_auc", "1"].n == 90
    assert grouped["entropy", "uq_auc", "1"] != grouped["entropy", "uq_auc"]
    assert grouped[None, "accuracy", "0"].n == 90

    # A group is found by the value that the user gave.
    assert grouped["entropy", "uq_auc", 1] == grouped["entropy", "uq_auc", "1"]

    # A bad key lists what exists.
    for key in [
        "entropy",
        "uq_auc",
        ("entropy", "uq_acu"),
        ("entropi", "uq_auc"),
        ("entropi", "accuracy"),
        ("entropy", "uq_auc", "2"),
        ("entropy", "uq_auc", "1", "x"),
        ("entropy",),
        (),
        5,
        None,
    ]:
        with noted(key=key):
            with pytest.raises(InputError) as caught:
                grouped[key]
            for part in ("entropy", "margin", "uq_auc", "accuracy", "Groups: 0, 1"):
                assert part in str(caught.value)

    # Properties list what was asked.
    assert grouped.scores == ("entropy", "margin")
    assert grouped.groups == ("0", "1")
    assert [row.metric for row in grouped][:3] == ["uq_auc", "top_label_c_index", "uq_c_index"]
    assert len(list(grouped)) == len(grouped) == len(grouped.rows)
    assert pickle.loads(pickle.dumps(grouped)) == grouped


# ---- what the user says is never recomputed --------------------------------------------------------------------


def test_errors_classes_and_losses_of_the_user_are_never_recomputed():
    # Errors of the user are never recomputed.
    data = make()
    rng = np.random.default_rng(1)
    mine = (rng.random(180) < 0.5).astype(int)
    ev = uq.evaluate(uq.Predictions(**data, error=mine), scores="entropy")
    assert ev.n_errors == mine.sum()
    assert ev["entropy", "uq_auc"] == uq.estimate("uq_auc", uq.scores.entropy(softmax(data["logits"])), mine)
    assert ev["accuracy"].value == pytest.approx(1 - mine.mean(), abs=1e-15)

    # The predicted class of the user is never recomputed.
    data = make()
    rng = np.random.default_rng(1)
    pred = rng.integers(0, CLASSES, 180)
    ev = uq.evaluate(uq.Predictions(**data, pred=pred), scores="entropy")
    probs = softmax(data["logits"])
    error = (pred != data["labels"]).astype(int)
    assert ev.n_errors == error.sum()
    s = uq.scores.entropy(probs)
    assert ev["entropy", "uq_auc"] == uq.estimate("uq_auc", s, error)
    phi = 1 - data["soft_labels"][np.arange(180), pred]
    assert ev["entropy", "kendall_phi"].value == pytest.approx(uq.metrics.kendall_tau(s, phi), abs=1e-14)
    assert ev["ece"].value == pytest.approx(uq.metrics.ece(probs[np.arange(180), pred], 1 - error), abs=1e-14)

    # The loss of the user replaces the gap.
    data = make()
    mine = np.random.default_rng(1).normal(size=180)
    ev = uq.evaluate(uq.Predictions(**data, loss=mine), scores="entropy")
    assert ev["entropy", "uq_c_index"] == uq.estimate("uq_c_index", uq.scores.entropy(softmax(data["logits"])), mine)


def test_the_gap_does_not_saturate():
    # The gap from logits does not saturate.
    # 1 - p is 1.0 in float64 for every wrong row, and 0.0 for every right one.
    logits = np.array([[50.0, 0], [60, 0], [70, 0], [80, 0], [90, 0], [100, 0]])
    labels = [0, 0, 0, 1, 1, 1]
    pred = uq.Predictions(labels, logits=logits, scores={"s": [3, 2, 1, 4, 5, 6]})
    ev, _ = notes_of(uq.evaluate, pred, scores="s")
    assert ev["s", "uq_c_index"].value == 1.0
    reverse = uq.Predictions(labels, logits=logits, scores={"s": [1, 2, 3, 6, 5, 4]})
    assert quiet(uq.evaluate, reverse, scores="s")["s", "uq_c_index"].value == pytest.approx(9 / 15)

    # The gap from probabilities does not saturate.
    p = 10.0 ** -np.arange(17, 23)
    pred = uq.Predictions([1] * 6, probs=p, scores={"s": np.arange(6)})
    assert quiet(uq.evaluate, pred, scores="s")["s", "uq_c_index"].value == 1.0

    # Logits of another temperature leave the gap to the probabilities.
    data = make()
    with pytest.warns(UQWarning, match="softmax"):
        pred = uq.Predictions(data["labels"], logits=data["logits"], probs=softmax(data["logits"] / 3))
    ev = uq.evaluate(pred, scores="entropy")
    probs = softmax(data["logits"] / 3)
    s = uq.scores.entropy(probs)
    hand = uq.estimate("uq_c_index", s, truth.rank_loss(probs, data["labels"]))
    assert_equal_estimates(ev["entropy", "uq_c_index"], hand, 1e-13, "")
    assert ev["log_loss"].value == pytest.approx(uq.metrics.log_loss(probs, data["labels"]))


# ---- without errors, without a model ------------------------------------------------------------------------------


def test_what_is_given_decides_which_metrics_there_are():
    # A continuous loss alone gives the metrics that take one.
    rng = np.random.default_rng(0)
    s = rng.random(120)
    loss = np.clip(s + rng.normal(0, 0.3, 120), 0, 1)
    ev = uq.evaluate(score=s, loss=loss)
    assert set(ev.metrics) == LOSS_METRICS | {"uq_c_index"}
    assert ev.n_errors is None
    assert ev.accuracy is None
    for metric in ev.metrics:
        assert ev["score", metric] == uq.estimate(metric, s, loss)
    with pytest.raises(InputError, match="uq_auc needs error"):
        uq.evaluate(score=s, loss=loss, metrics="uq_auc")

    # A loss beyond one leaves the C-index only.
    rng = np.random.default_rng(0)
    ev = uq.evaluate(score=rng.random(50), loss=5 * rng.normal(size=50))
    assert ev.metrics == ("uq_c_index",)
    with pytest.raises(InputError, match="aurc needs"):
        uq.evaluate(score=rng.random(50), loss=5 * rng.normal(size=50), metrics=["aurc"])

    # The quality of generated texts can be ranked.
    # A language model: uncertainty of each answer, and its ROUGE-L in [0, 1]; loss = 1 - quality.
    rng = np.random.default_rng(0)
    quality = rng.beta(2, 2, 300)
    good, bad = 1 - quality + 0.1 * rng.random(300), rng.random(300)
    ev = uq.evaluate(score={"good": good, "bad": bad}, loss=1 - quality)
    assert ev.best("prr") == ("good",)
    assert ev["good", "prr"].low > 0.5 > ev["bad", "prr"].high
    assert ev["good", "auarc"].value > quality.mean()
    assert ev["bad", "auarc"].value == pytest.approx(quality.mean(), abs=0.05)
    assert "good" in str(ev)

    # Scores with errors only have no metric of the probabilities.
    rng = np.random.default_rng(0)
    ev = uq.evaluate(score=rng.random(80), error=rng.random(80) < 0.4)
    assert not {"ece", "brier", "log_loss", "uq_c_index", "kendall_phi"} & set(ev.metrics)
    assert {"uq_auc", "aurc", "accuracy"} <= set(ev.metrics)


# ---- weights, groups, degenerate rows -----------------------------------------------------------------------------


def test_rows_of_weight_zero_count_for_nothing_and_equal_weights_change_nothing():
    # Rows of weight zero count for nothing.
    data = make()
    w = np.arange(180) % 3 / 2.0
    groups = np.arange(180) % 2
    full = quiet(uq.evaluate, uq.Predictions(**data, weights=w, groups=groups))
    kept = quiet(uq.evaluate, uq.Predictions(**data, weights=w, groups=groups).take(w > 0))
    assert full.n == kept.n == 120
    assert (full.n_errors, full.accuracy, full.tie_rate) == (kept.n_errors, kept.accuracy, kept.tie_rate)
    assert_same(full, kept)

    # Equal weights change nothing.
    data = make()
    assert_same(uq.evaluate(uq.Predictions(**data)), uq.evaluate(uq.Predictions(**data, weights=np.full(180, 2.5))))

    # A single row of positive weight is an error about the weights.
    with pytest.raises(InputError, match="weight"):
        uq.evaluate(score=[1, 2, 3], error=[0, 1, 0], weights=[0, 1, 0])


def test_a_group_that_cannot_be_evaluated_is_left_out_with_the_reason():
    # A group of one row is left out with a warning.
    rng = np.random.default_rng(0)
    s = rng.random(60)
    e = (rng.random(60) < s).astype(int)
    groups = np.where(np.arange(60) == 5, "alone", "many")
    ev, notes = notes_of(uq.evaluate, score=s, error=e, groups=groups)
    assert ev.groups == ("many",)
    assert any("'alone'" in note and "left out" in note for note in notes)
    assert any("'alone'" in note for note in ev.warnings)
    assert "alone" in str(ev)

    # A group without weight is left out for that reason.
    rng = np.random.default_rng(0)
    groups = np.arange(60) % 3
    _, notes = notes_of(uq.evaluate, score=rng.random(60), error=np.arange(60) % 2, weights=groups, groups=groups)
    assert any("'0'" in note and "weight" in note and "single" not in note for note in notes)


def test_ties_and_infinities_are_told_once():
    # A tied top class is told once with the row of the whole set.
    data = make()
    probs = softmax(data["logits"])
    probs[[70, 100, 101]] = [0.4, 0.4, 0.2]
    pred = uq.Predictions(data["labels"], probs=probs, groups=np.arange(180) % 3)
    _, notes = notes_of(uq.evaluate, pred)
    tied = [note for note in notes if "tied" in note]
    assert len(tied) == 1
    assert "3 rows (first at row 70)" in tied[0]

    # Infinite scores rank first or last with one warning.
    rng = np.random.default_rng(0)
    s = rng.random(60)
    e = (rng.random(60) < s).astype(int)
    wild = np.where(s > 0.9, np.inf, s)
    ev, notes = notes_of(uq.evaluate, score=wild, error=e)
    assert sum("infinite" in note for note in notes) == 1
    assert ev["score", "uq_auc"].value == uq.evaluate(score=np.minimum(s, 0.9), error=e)["score", "uq_auc"].value
    json.loads(ev.to_json(), parse_constant=pytest.fail)


def test_few_errors_and_few_right_rows_are_told_as_such():
    # Few errors show in a row of their own.
    s = np.linspace(0, 1, 100)
    e = np.zeros(100)
    e[[90, 95, 99]] = 1
    ev, notes = notes_of(uq.evaluate, score=s, error=e)
    assert ev.too_few() in str(ev)
    assert "(3)" in ev.too_few()
    assert any("few errors (3)" in note for note in notes)
    assert ev.too_few() in ev._repr_html_()
    many = uq.evaluate(score=s, error=s > 0.5)
    assert many.too_few() is None
    assert "Too few" not in str(many)

    # Few right rows are told as such.
    s = np.linspace(0, 1, 100)
    ev = quiet(uq.evaluate, score=s, error=s > 0.05)
    assert "right" in ev.too_few()


def test_nothing_to_rank_gives_the_exact_values():
    # Without any error.
    data = make(50)
    pred = uq.Predictions(data["logits"].argmax(1), logits=data["logits"])
    ev, notes = notes_of(uq.evaluate, pred, scores=["entropy", "margin"])
    assert any("UQ-AUC is undefined" in note for note in notes)
    assert math.isnan(ev["entropy", "uq_auc"].value)
    assert not math.isnan(ev["entropy", "uq_c_index"].value)
    for metric in ("aurc", "e_aurc", "augrc", "g_auc", "h_auc"):
        assert ev["entropy", metric].value == 0
    assert math.isnan(ev["entropy", "naurc"].value)
    augrc = ev["entropy", "augrc"]
    assert (augrc.low, augrc.high) == pytest.approx((0, 3.689 / 50), rel=1e-3)
    assert ev.n_errors == 0
    assert ev.accuracy == 1
    assert ev.best("uq_auc") == ()
    assert ev.verdict() == []
    assert "(0)" in ev.too_few()
    for text in (str(ev), ev._repr_html_()):
        assert "nan" not in text.lower()
    loaded = json.loads(ev.to_json(), parse_constant=pytest.fail)
    assert next(row for row in loaded["estimates"] if row["metric"] == "uq_auc")["value"] is None

    # All wrong.
    ev = quiet(uq.evaluate, score=np.linspace(0, 1, 40), error=np.ones(40))
    found = {metric: ev["score", metric].value for metric in ("aurc", "e_aurc", "augrc", "g_auc", "h_auc")}
    assert found == pytest.approx({"aurc": 1, "e_aurc": 0, "augrc": 0.5, "g_auc": 1, "h_auc": 0}, abs=1e-15)
    assert math.isnan(ev["score", "uq_auc"].value)
    assert ev.accuracy == 0

    # Single cluster gives values without intervals.
    rng = np.random.default_rng(0)
    s = rng.random(60)
    ev, notes = notes_of(uq.evaluate, score=s, error=s > 0.5, clusters=np.zeros(60))
    assert not math.isnan(ev["score", "uq_auc"].value)
    for row in ev:
        assert math.isnan(row.estimate.low), row
        assert math.isnan(row.estimate.high), row
    assert sum("single cluster" in note for note in notes) == 1


def test_a_constant_and_a_reversed_score_are_called_so():
    # A constant score is worth nothing and is told.
    rng = np.random.default_rng(0)
    e = (rng.random(100) < 0.3).astype(int)
    ev, notes = notes_of(uq.evaluate, score={"flat": np.ones(100), "other": rng.random(100)}, error=e, loss=e)
    flat = ev["flat", "uq_auc"]
    assert (flat.value, flat.low, flat.high, flat.se) == (0.5, 0.5, 0.5, 0.0)
    assert ev["flat", "uq_c_index"].value == 0.5
    assert ev["flat", "aurc"].value == pytest.approx(e.mean())
    assert ev["flat", "naurc"].value == pytest.approx(1)
    assert ev.tie_rate["flat"] == 1.0
    assert any(note.startswith("flat: ") and "constant" in note for note in notes)
    assert any("flat" in line and "chance" in line for line in ev.verdict())
    assert "flat: 100.0% of the pairs" in str(ev)

    # A reversed score is called so.
    s = np.linspace(0, 1, 200)
    ev = uq.evaluate(score=-s, error=s > 0.7)
    assert any("wrong way round" in line for line in ev.verdict())


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_the_tie_rate_is_the_share_of_tied_pairs(values):
    for _ in each_backend():
        ev = quiet(uq.evaluate, score=values, loss=np.arange(len(values)), metrics="uq_c_index")
        pairs = [(i, j) for i in range(len(values)) for j in range(i)]
        assert ev.tie_rate["score"] == pytest.approx(sum(values[i] == values[j] for i, j in pairs) / len(pairs))


# ---- best ---------------------------------------------------------------------------------------------------------


def test_the_best_scores_by_the_direction_of_each_metric_are_marked():
    # Best follows the direction of each metric.
    data = make()
    ev = uq.evaluate(uq.Predictions(**data))
    for name in ev.metrics:
        metric = REGISTRY[name]
        if not metric.uses_score:
            assert ev.best(name) == ()
            continue
        values = {score: ev[score, name].value for score in ev.scores}
        top = (max if metric.direction == "higher" else min)(values.values())
        assert ev.best(name) == tuple(score for score, value in values.items() if value == top)
    assert REGISTRY["aurc"].direction == REGISTRY["ece"].direction == "lower"
    assert REGISTRY["uq_auc"].direction == REGISTRY["prr"].direction == "higher"

    # The mark stands beside the best score and no other.
    s = np.linspace(0, 1, 100)
    ev = uq.evaluate(score={"good": s, "bad": -s}, error=s > 0.6, metrics=["uq_auc", "aurc"])
    lines = str(ev).splitlines()
    good = next(line for line in lines if line.startswith("good  "))
    bad = next(line for line in lines if line.startswith("bad  "))
    assert good.count("*") == 2
    assert bad.count("*") == 0
    page = ev._repr_html_()
    assert page.count("<b>") == 2

    # Scores that tie for the best are all marked.
    s = np.linspace(0, 1, 100)
    ev = uq.evaluate(score={"a": s, "b": s**3, "c": -s}, error=s > 0.6)
    assert ev.best("uq_auc") == ev.best("aurc") == ("a", "b")


# ---- out ----------------------------------------------------------------------------------------------------------


def test_dict_and_json_hold_the_documented_keys_and_plain_values_only(grouped):
    # To dict has exactly the documented keys.
    data = grouped.to_dict()
    assert list(data) == [
        "schema_version",
        "n",
        "n_errors",
        "accuracy",
        "mean_loss",
        "tie_rate",
        "same_ranking",
        "estimates",
        "wrong_way_round",
        "heterogeneity",
        "detectable_difference",
        "warnings",
        "versions",
        "classes",
        "level",
        "two_targets",
    ]
    for row in data["estimates"]:
        assert list(row) == [
            "score",
            "metric",
            "group",
            "target",
            "value",
            "low",
            "high",
            "se",
            "level",
            "method",
            "n",
            "n_errors",
            "n_clusters",
            "n_eff",
            "n_clusters_eff",
            "degenerate",
            "warnings",
            "undefined",
        ]
    assert set(data["tie_rate"]) == {"entropy", "margin"}
    assert data["versions"]["uqeval"] == uq.__version__
    assert data["versions"]["kernels"] == kernels.backend()
    assert len(data["estimates"]) == len(grouped)

    # To dict holds plain python values only.
    def walk(value):
        if isinstance(value, dict):
            for key, item in value.items():
                assert type(key) is str
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        else:
            assert value is None or isinstance(value, str | int | float), (type(value), value)
            assert not isinstance(value, np.integer | np.bool_)

    walk(grouped.to_dict())

    # JSON is strict and equals to dict.
    loaded = json.loads(grouped.to_json(), parse_constant=pytest.fail)
    assert loaded == grouped.to_dict()

    # JSON writes null for what is not finite.
    pred = uq.Predictions([0, 1, 0, 1], probs=[0.0, 0.0, 0.2, 0.9])
    ev = quiet(uq.evaluate, pred)
    assert ev["log_loss"].value == math.inf
    loaded = json.loads(ev.to_json(), parse_constant=pytest.fail)
    assert next(row["value"] for row in loaded["estimates"] if row["metric"] == "log_loss") is None


def test_to_frame_has_a_row_per_estimate(grouped):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    for kind in ["pandas", "polars", "pyarrow", None]:
        with noted(kind=kind):
            frame = grouped.to_frame(kind)
            module = type(frame).__module__.split(".")[0]
            assert module == (kind or "pandas")
            records = frame.to_pylist() if kind == "pyarrow" else None
            records = frame.to_dicts() if kind == "polars" else records or frame.to_dict("records")
            expected = grouped.to_dict()["estimates"]
            assert len(records) == len(expected)
            for found, row in zip(records, expected, strict=True):
                assert list(found) == list(row)
                assert found["metric"] == row["metric"]
                assert found["value"] == row["value"]
                assert found["group"] == row["group"] or (row["group"] is None and pd.isna(found["group"]))

    # To frame without groups and with NaN works.
    for kind in ["pandas", "polars", "pyarrow"]:
        with noted(kind=kind):
            ev = quiet(uq.evaluate, score=[1, 2, 3], error=[0, 0, 0])
            assert len(ev.to_frame(kind)) == len(ev)

    # To frame of another kind is an error.
    with pytest.raises(InputError, match="pandas"):
        grouped.to_frame("spark")


def test_text_and_html_show_everything_and_escape_names(grouped):
    # Str shows all scores metrics groups and counts.
    text = str(grouped)
    for part in (*grouped.scores, *grouped.groups, "180 rows", "95% intervals", f"{grouped.n_errors} errors"):
        assert part in text
    for name in grouped.metrics:
        assert REGISTRY[name].title in text, name
    assert str(grouped["entropy", "uq_auc"]) in text
    assert str(grouped["entropy", "uq_auc", "1"]) in text

    # The headline shows the level without rounding.
    for level, shown in [(0.95, "95%"), (0.999, "99.9%"), (0.9, "90%"), (0.975, "97.5%")]:
        with noted(level=level, shown=shown):
            s = np.linspace(0, 1, 60)
            assert f"; {shown} intervals" in uq.evaluate(score=s, error=s > 0.5, level=level).headline()

    # HTML escapes names.
    rng = np.random.default_rng(0)
    s = rng.random(60)
    ev, _ = notes_of(
        uq.evaluate,
        score={NASTY: s, "flat" + NASTY: np.ones(60)},
        error=(rng.random(60) < s).astype(int),
        groups=np.where(s > 0.5, NASTY, "&amp;"),
    )
    page = ev._repr_html_()
    assert "<img" not in page
    assert "<script" not in page.lower()
    assert "</script" not in page.lower()
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page
    assert "&amp;amp;" in page

    # Metrics of the model alone still print.
    ev = uq.evaluate(uq.Predictions(**make()), metrics=["accuracy", "brier"])
    assert ev.metrics == ("accuracy", "brier")
    for text in (str(ev), ev._repr_html_()):
        assert "accuracy" in text
        assert "Brier" in text


# ---- invariance ---------------------------------------------------------------------------------------------------


@on_both_kernels
@each("kind", ["rows", "weights", "clusters", "weights and clusters"])
def test_the_order_of_rows_changes_no_number(kind):
    data = make()
    pred = uq.Predictions(**data, **sampling(kind, 180), groups=np.arange(180) % 3)
    order = np.random.default_rng(9).permutation(180)
    a, b = (quiet(uq.evaluate, rows, scores=SOME) for rows in (pred, pred.take(order)))
    assert a.tie_rate == b.tie_rate
    assert a.warnings == b.warnings
    # Pair counts are integers: without weights and clusters not one bit changes.
    assert_same(a, b, rtol=0.0 if kind == "rows" else 1e-13)


def test_neither_seed_nor_kernel_changes_an_evaluation_and_the_input_stays():
    # The same seed gives the same evaluation.
    pred = uq.Predictions(**make(), groups=np.arange(180) % 3)
    for seeds in ((3, 3), (np.random.default_rng(3), np.random.default_rng(3)), (0, None)):
        a, b = (uq.evaluate(pred, scores=SOME, **({} if seed is None else {"seed": seed})) for seed in seeds)
        assert_same(a, b)
        assert None in seeds or a == b

    # Both kernels give equal evaluations.
    for kind in ("rows", "weights", "clusters", "weights and clusters"):
        pred = uq.Predictions(**make(), **sampling(kind, 180), groups=np.arange(180) % 3)
        found = [quiet(uq.evaluate, pred, scores=SOME) for _ in each_backend()]
        if len(found) < 2:
            pytest.skip("the native kernels are not built")
        assert_same(*found, rtol=1e-12)
        assert found[0].tie_rate == found[1].tie_rate

    # The input is left as it was.
    data = make()
    before = {name: np.copy(array) for name, array in data.items() if name != "scores"}
    uq.evaluate(uq.Predictions(**data, groups=np.arange(180) % 2))
    for name, array in before.items():
        np.testing.assert_array_equal(data[name], array)


# ---- selection ----------------------------------------------------------------------------------------------------


def test_selected_scores_and_metrics_equal_those_of_the_full_evaluation():
    pred = uq.Predictions(**make(), groups=np.arange(180) % 2)
    full = numbers(uq.evaluate(pred))
    part = uq.evaluate(pred, scores=["margin", "mine"], metrics=["aurc", "brier", "uq_auc"])
    assert part.scores == ("margin", "mine")
    assert set(part.metrics) == {"aurc", "brier", "uq_auc"}
    for key, value in numbers(part).items():
        assert full[key] == value

    # A single name and repeated names do for lists.
    pred = uq.Predictions(**make())
    one = uq.evaluate(pred, scores="margin", metrics="uq_auc")
    twice = uq.evaluate(pred, scores=["margin", "margin"], metrics=("uq_auc", "uq_auc"))
    assert one == twice
    assert len(one) == 1


def test_bad_options_and_arrays_are_named_and_never_give_a_number():
    # Bad options are named.
    for options, parts in [
        ({"scores": ["entrpy"]}, ["entrpy", 'Did you mean "entropy"']),
        ({"scores": "dirichlet_entropy"}, ["dirichlet_entropy", "alpha"]),
        ({"scores": []}, ["score"]),
        ({"metrics": "uqauc"}, ["uqauc", 'Did you mean "uq_auc"']),
        ({"metrics": ["uq_auc", "AURC"]}, ["AURC"]),
        ({"metrics": []}, ["metrics"]),
        ({"metrics": "ood_auroc"}, ["ood_auroc", "score_in"]),
        ({"metrics": [3]}, ["3"]),
        ({"level": 95}, ["level", "0.95"]),
        ({"level": 0}, ["level"]),
        ({"level": float("nan")}, ["level"]),
        ({"seed": -1}, ["seed"]),
        ({"nan": "drop"}, ["nan", "omit"]),
        ({"error": [0, 1]}, ["error", "both"]),
        ({"score": [0, 1]}, ["score", "both"]),
    ]:
        with noted(options=options, parts=parts):
            with pytest.raises(InputError) as caught:
                uq.evaluate(uq.Predictions(**make(20)), **options)
            for part in parts:
                assert part in str(caught.value)

    # Metrics that lack their input say what is missing.
    data = make(30)
    pred = uq.Predictions(data["labels"], logits=data["logits"])
    with pytest.raises(InputError, match="kendall_phi needs soft_labels"):
        uq.evaluate(pred, metrics="kendall_phi")
    with pytest.raises(InputError, match="uq_c_index needs loss"):
        uq.evaluate(score=[1, 2, 3], error=[0, 1, 0], metrics="uq_c_index")
    with pytest.raises(InputError, match="ece needs probs"):
        uq.evaluate(score=[1, 2, 3], error=[0, 1, 0], metrics="ece")

    # Bad plain arrays never give a number.
    for arrays in [
        {},
        {"score": [1, 2, 3]},
        {"error": [0, 1, 0]},
        {"score": {}, "error": [0, 1, 0]},
        {"score": [1, 2], "error": [0, 1, 0]},
        {"score": [1, 2, np.nan], "error": [0, 1, 0]},
        {"score": [1, 2, 3], "error": [0, 1, 0.5]},
        {"score": [1, 2, 3], "error": [0, 1, 2]},
        {"score": [1, 2, 3], "loss": [0, 1, np.inf]},
        {"score": [[1], [2], [3]], "error": [0, 1, 0]},
        {"score": ["a", "b", "c"], "error": [0, 1, 0]},
        {"score": [1], "error": [1]},
        {"score": [], "error": []},
        {"score": [1, 2, 3], "error": [0, 1, 0], "weights": [1, -1, 1]},
        {"score": [1, 2, 3], "error": [0, 1, 0], "weights": [0, 0, 0]},
        {"score": [1, 2, 3], "error": [0, 1, 0], "groups": ["a"]},
        {"score": [1, 2, 3], "error": [0, 1, 0], "clusters": [1, 2, np.nan]},
        {"score": "entropy", "error": [0, 1, 0]},
        {"score": [np.nan] * 3, "error": [0, 1, 0], "nan": "omit"},
    ]:
        with noted(arrays=arrays), pytest.raises(InputError):
            quiet(uq.evaluate, **arrays)

    # Predictions of another type are an error.
    for thing in [3, [1, 2, 3], {"label": [0, 1]}, np.zeros((3, 2)), "no_such_file.csv", ["a.csv"]]:
        with noted(thing=thing), pytest.raises(InputError):
            uq.evaluate(thing)


# ---- size ---------------------------------------------------------------------------------------------------------


def test_ten_thousand_rows_in_fifty_groups_work():
    rng = np.random.default_rng(0)
    n = 10_000
    s = rng.random(n)
    e = (rng.random(n) < s).astype(int)
    groups = rng.integers(0, 50, n)
    ev = quiet(uq.evaluate, score=s, error=e, loss=s, groups=groups)
    assert len(ev.groups) == 50
    assert ev.groups == tuple(str(k) for k in range(50))
    assert sum(ev["score", "uq_auc", str(k)].n for k in range(50)) == n
    mine = ev["score", "uq_auc", "7"]
    assert mine == uq.estimate("uq_auc", s[groups == 7], e[groups == 7])
    text = str(ev)
    assert "30 more groups" in text
    assert len(text.splitlines()) < 200


def test_float32_probabilities_whose_clipping_breaks_the_row_sum_are_refused_or_normalised():
    # Each value is within the tolerance of float32 and the rows sum to 1, but what is left after clipping does not.
    probs = np.array([[-0.0009] * 5 + [0.5, 0.5045]] * 4, dtype=np.float32)
    with pytest.raises(uq.InputError, match=r"worst row 0 sums to 1\.0045"):
        uq.Predictions([0, 5, 6, 6], probs=probs)
    quiet(uq.evaluate, uq.Predictions([0, 5, 6, 6], probs=probs, normalize=True))


@each("extra", ["plain", "clusters", "weights"])
def test_bootstrap_intervals_equal_those_of_estimate(extra):
    rng = np.random.default_rng(3)
    s, e, d = rng.random(150), rng.random(150) < 0.3, rng.random(150)
    options = {"clusters": np.arange(150) // 3} if extra == "clusters" else {}
    options = {"weights": rng.random(150) + 0.5} if extra == "weights" else options
    seen = []
    ev = quiet(
        uq.evaluate,
        score=s,
        error=e,
        loss=d,
        metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"],
        method="bootstrap",
        resamples=60,
        progress=lambda stage, done, total: seen.append((done, total)),
        **options,
    )
    assert seen[-1] == (60, 60)
    for name, data in {"uq_auc": (s, e), "uq_c_index": (s, d), "aurc": (s, e), "accuracy": (e,)}.items():
        expected = quiet(uq.estimate, name, *data, method="bootstrap", resamples=60, **options)
        found = ev["score", name]
        assert (found.value, found.low, found.high, found.se) == pytest.approx(
            (expected.value, expected.low, expected.high, expected.se), rel=1e-12
        )
        assert "bootstrap" in found.method
    with pytest.raises(uq.InputError, match="`method` must be one of"):
        uq.evaluate(score=s, error=e, method="jackknife")


def test_a_notebook_shows_the_verdict_first_and_tables_whose_numbers_are_aligned():
    ev = uq.evaluate(uq.datasets.example(), scores=["entropy", "margin"], metrics=["uq_auc", "aurc", "accuracy"])
    page = ev._repr_html_()
    for line in ev.verdict():
        assert f"<strong>{line}</strong>" in page
    assert page.index("<strong>") < page.index("<table>")
    tables = page.split("<table>")[1:]
    assert len(tables) == 4  # metrics, groups, how many rows each has, the model itself
    assert "accuracy" in tables[-1]
    for row in page.split("<tr>")[1:]:
        first, *numbers = row.split("</tr>")[0].replace("</th>", "</td>").split("</td>")[:-1]
        assert 'style="text-align: left"' in first
        assert all("text-align: right; padding-left: 1em; white-space: nowrap" in number for number in numbers)
    assert "<pre" not in page
    assert "*" not in page


def test_the_rows_errors_and_clusters_of_each_group_are_in_text_and_json():
    pred = uq.datasets.example()
    code, patient = np.arange(pred.n) % 3, np.arange(pred.n) % 300
    grouped = uq.Predictions(pred.labels, probs=pred.probs, groups=code, clusters=patient)
    for metrics in (["uq_auc"], ["aurc", "accuracy"]):
        ev = uq.evaluate(grouped, scores=["entropy"], metrics=metrics)
        wrong = uq.truth.error_of(pred)
        expected = [(str(k), (code == k).sum(), wrong[code == k].sum(), 100) for k in range(3)]
        counts = ev.group_counts()
        assert counts.head == ["group", "rows", "errors", "clusters"]
        assert [tuple(row) for row in counts.rows] == [tuple(map(str, row)) for row in expected]
        assert counts.text() in str(ev)
        told = {(row["group"], row["n"], row["n_clusters"]) for row in ev.to_dict()["estimates"] if row["group"]}
        assert told == {(name, n, clusters) for name, n, _, clusters in expected}
