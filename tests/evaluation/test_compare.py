"""`compare`: the same differences whatever form the input has, honest about what it cannot tell."""

from __future__ import annotations

import json
import math
import time
import warnings
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy.stats import norm

import uqeval as uq
from cases import each, noted
from optional import optional
from uqeval import InputError, UQWarning
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.metrics import REGISTRY

pd = optional("pandas")
pl = optional("polars")

CLASSES = 3
OF_SCORES = [m.name for m in REGISTRY.values() if m.uses_score]
OF_MODELS = [m.name for m in REGISTRY.values() if not m.uses_score and "score_in" not in m.needs]
OOD = [m.name for m in REGISTRY.values() if "score_in" in m.needs]
COLUMNS = ["a", "b", "metric", "difference", "low", "high", "se", "p", "p_adjusted"]
NUMBERS = ("difference", "low", "high", "se", "p", "p_adjusted")
NASTY = "</script><img src=x onerror=alert(1)>"
ADJUST = ("max-t", "holm", "none")
METHODS = ("influence", "bootstrap")


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def make(n=240, seed=0, noise=0.7):
    """Arguments of a model that is right about two times in three; the labels do not depend on the noise."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, CLASSES))
    soft = softmax(logits + 0.7 * rng.normal(size=(n, CLASSES)))
    labels = np.array([rng.choice(CLASSES, p=row) for row in soft])
    own = logits + noise * np.random.default_rng(seed + 1000 * round(10 * noise)).normal(size=(n, CLASSES))
    return {
        "labels": labels,
        "logits": own,
        "member_logits": own + rng.normal(size=(4, n, CLASSES)),
        "soft_labels": soft,
        "scores": {"mine": rng.random(n).round(1), "noisy": rng.normal(size=n)},
    }


def model(noise=0.7, n=240, seed=0, **more):
    return uq.Predictions(**{**make(n, seed, noise), **more})


def arrays(n=300, seed=0, strengths=(1.0, 0.9, 0.2)):
    """Errors, losses, and scores that know of the errors more or less."""
    rng = np.random.default_rng(seed)
    error = (rng.random(n) < 0.3).astype(float)
    scores = {name: error * s + rng.normal(size=n) for name, s in zip("abcdefgh", strengths, strict=False)}
    return scores, error, error + rng.random(n)


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def compare(*args, **kwargs):
    return quiet(uq.compare, *args, **kwargs)


def notes_of(*args, **kwargs):
    """The comparison and the texts of its warnings, which are also in the result."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = uq.compare(*args, **kwargs)
    assert all(issubclass(w.category, UQWarning) for w in raised)
    notes = [str(w.message) for w in raised]
    assert list(result.warnings) == notes
    return result, notes


def table(cmp):
    return {(r.a, r.b, r.group): tuple(getattr(r, name) for name in NUMBERS) for r in cmp}


def assert_same(x, y, rtol=0.0, atol=0.0):
    x, y = table(x), table(y)
    assert x.keys() == y.keys()
    for key in x:
        np.testing.assert_allclose(x[key], y[key], rtol=rtol, atol=atol, err_msg=str(key))


def assert_sane(cmp):
    """What holds for every comparison."""
    for r in cmp:
        if math.isnan(r.se):
            assert math.isnan(r.p)
            assert math.isnan(r.p_adjusted)
            continue
        assert r.se >= 0
        assert r.low <= r.difference <= r.high
        assert 0 <= r.p <= r.p_adjusted <= 1
    json.loads(cmp.to_json(), parse_constant=pytest.fail)
    assert str(cmp)
    assert cmp._repr_html_().count("<tr>") == 1 + len(cmp)


# ---- input ------------------------------------------------------------------------------------------------------


def test_arrays_frames_files_and_predictions_give_the_same_comparison(tmp_path):
    # Predictions frame and file give the same comparison.
    scores, error, loss = arrays()
    plain = compare(scores, error=error, loss=loss)
    pred = uq.Predictions(scores=scores, error=error, loss=loss)
    data = {"error": error, "loss": loss, **{f"score_{name}": value for name, value in scores.items()}}
    pa.csv.write_csv(pa.table(data), tmp_path / "preds.csv")
    path = tmp_path / "preds.csv"
    for given in (pred, pd.DataFrame(data), pl.DataFrame(data), pa.table(data), path, str(path)):
        assert_same(compare(given), plain)

    # Lists series and arrays give the same comparison.
    scores, error, _ = arrays()
    expected = compare(scores, error=error)
    lists = {name: value.tolist() for name, value in scores.items()}
    assert_same(compare(lists, error=error.astype(bool).tolist()), expected)
    series = {name: pd.Series(value) for name, value in scores.items()}
    assert_same(compare(series, error=pl.Series(error)), expected)


def test_scores_are_chosen_by_name_and_models_share_the_first_common_one():
    # Scores of predictions are chosen by name.
    pred = model()
    cmp = compare(pred, scores=["entropy", "margin", "entropy"])
    assert list(cmp.values) == ["entropy", "margin"]
    assert len(compare(pred)) == math.comb(len(uq.scores.available(pred)), 2)

    # Models by default share the first common score.
    a = uq.Predictions(**{**make(), "scores": {"only_a": np.arange(240.0)}})
    b = uq.Predictions(**{**make(noise=2.0), "scores": {"only_b": np.arange(240.0)}})
    assert compare({"A": a, "B": b}).values == compare({"A": a, "B": b}, scores="entropy").values

    # Models without a common score are an error.
    error = [0, 1, 0, 1]
    a, b = (uq.Predictions(scores={name: [1, 2, 3, 4]}, error=error) for name in ("x", "y"))
    with pytest.raises(InputError, match="no score in common"):
        uq.compare({"A": a, "B": b})

    # Several scores of several models are all compared.
    cmp = compare({"A": model(0.3), "B": model(2.0)}, scores=["entropy", "margin"])
    assert list(cmp.values) == ["A / entropy", "A / margin", "B / entropy", "B / margin"]
    assert len(cmp) == 6


def test_values_are_those_of_evaluate_with_each_models_own_errors():
    # Values are those of evaluate.
    for metric in ["uq_auc", "uq_c_index", "aurc", "kendall_phi"]:
        with noted(metric=metric):
            pred, names = model(), ["entropy", "margin", "mutual_information", "mine"]
            ev = quiet(uq.evaluate, pred, scores=names, metrics=[metric])
            cmp = compare(pred, scores=names, metric=metric)
            for name in names:
                assert cmp.values[name] == pytest.approx(ev[name, metric].value, rel=1e-12)
            for r in cmp:
                assert r.difference == pytest.approx(cmp.values[r.a] - cmp.values[r.b], abs=1e-15)

    # Models are judged by their own errors and losses.
    a, b = model(0.3), model(2.0)
    for metric in ("uq_auc", "uq_c_index", "aurc", "brier", "accuracy", "ece", "log_loss"):
        cmp = compare({"A": a, "B": b}, scores="entropy", metric=metric)
        for name, pred in (("A", a), ("B", b)):
            expected = quiet(uq.evaluate, pred, scores=["entropy"], metrics=[metric])["entropy", metric].value
            assert cmp.values[name] == pytest.approx(expected, rel=1e-12), metric
    assert compare({"A": a, "B": b}, metric="accuracy").values["A"] != compare({"A": b, "B": a}).values["A"]


def test_what_cannot_be_compared_is_an_input_error():
    for given in [
        None,
        {},
        {"a": model(), "b": [1.0] * 240},
        {"a": "x.csv", "b": "y.csv"},
        {"a": pd.DataFrame({"error": [0, 1], "score_u": [1, 2]})},
        [[1, 2, 3], [3, 2, 1]],
        "no_such_file.csv",
    ]:
        with noted(given=given), pytest.raises(InputError):
            uq.compare(given)

    # One candidate is an error.
    for scores in [["entropy"], "entropy", ["margin", "margin"]]:
        with noted(scores=scores):
            with pytest.raises(InputError, match="at least two"):
                uq.compare(model(), scores=scores)
            with pytest.raises(InputError, match=r"Only one candidate \(A\)"):
                uq.compare({"A": model()})

    # No candidate is an error.
    with pytest.raises(InputError, match="`scores` is empty"):
        uq.compare(model(), scores=[])
    with pytest.raises(InputError, match="`scores` is empty"):
        uq.compare({"A": model(), "B": model(2.0)}, scores=[])

    # Arrays beside models are an error.
    with pytest.raises(InputError, match="`error` inside"):
        uq.compare({"A": model(), "B": model(2.0)}, error=[0] * 240)
    with pytest.raises(InputError, match="not both"):
        uq.compare(model(), error=[0] * 240)

    # Unknown names suggest the nearest.
    pred = model()
    with pytest.raises(InputError, match='Did you mean "entropy"'):
        uq.compare(pred, baseline="entrop")
    with pytest.raises(InputError, match='Did you mean "entropy"'):
        uq.compare(pred, scores=["entrop", "margin"])
    with pytest.raises(InputError, match='Did you mean "uq_auc"'):
        uq.compare(pred, metric="uqauc")

    # Bad options are input errors.
    for bad in [
        {"adjust": "bonferroni"},
        {"method": "exact"},
        {"level": 95},
        {"level": 0.0},
        {"resamples": 0},
        {"resamples": 2.5},
        {"seed": -1},
        {"metric": ["uq_auc", "aurc"]},
        {"metric": None},
        {"nan": "drop"},
    ]:
        with noted(bad=bad):
            scores, error, _ = arrays()
            with pytest.raises(InputError):
                uq.compare(scores, error=error, **bad)

    # Names may be numbers but must not read alike.
    scores, error, _ = arrays()
    cmp = compare({1: scores["a"], 2: scores["b"]}, error=error, baseline=2)
    assert [(r.a, r.b) for r in cmp] == [("1", "2")]
    with pytest.raises(InputError, match="read alike"):
        uq.compare({1: model(), "1": model(2.0), "B": model(1.0)})
    with pytest.raises(InputError, match="read alike"):
        uq.compare({1: scores["a"], "1": scores["b"], "c": scores["c"]}, error=error)


def test_rows_with_nan_are_refused_or_left_out():
    scores, error, _ = arrays()
    holed = {**scores, "a": np.where(np.arange(300) == 7, np.nan, scores["a"])}
    with pytest.raises(InputError, match="NaN"):
        uq.compare(holed, error=error)
    result, notes = notes_of(holed, error=error, nan="omit")
    assert notes == ["1 rows with NaN left out"]
    keep = np.arange(300) != 7
    assert_same(result, compare({name: s[keep] for name, s in scores.items()}, error=error[keep]))
    assert result.n == 299


# ---- models on the same rows --------------------------------------------------------------------------------------


def test_models_whose_rows_differ_are_refused_with_the_number_of_rows():
    # Models with different numbers of rows are refused with both counts.
    with pytest.raises(InputError, match=r"'B' has 200 rows but 'A' has 240"):
        uq.compare({"A": model(), "B": model(n=200)})

    for field in ["labels", "weights", "clusters", "groups", "ids"]:
        with noted(field=field):
            values = {
                "labels": make()["labels"],
                "weights": np.linspace(1, 2, 240),
                "clusters": np.repeat([f"p{k}" for k in range(24)], 10),
                "groups": np.repeat(["x", "y"], 120),
                "ids": np.array([f"r{k}" for k in range(240)]),
            }
            first = values[field]
            other = first.copy()
            taken = [200, 3, 50] if field == "ids" else [200, 190, 3]  # no id comes twice
            other[[3, 50, 200]] = (first[[3, 50, 200]] + 1) % 3 if field == "labels" else first[taken]
            with pytest.raises(InputError, match=f"`{field}` of 'A' and 'B' differ in 3 rows"):
                uq.compare({"A": model(**{field: first}), "B": model(2.0, **{field: other})})

    # What only one model gives is refused.
    for field in ["weights", "clusters", "groups"]:
        with noted(field=field), pytest.raises(InputError, match=f"Only one of 'A' and 'B' has `{field}`"):
            uq.compare({"A": model(**{field: np.arange(240) % 7 + 1}), "B": model(2.0)})

    # Groups that differ in name only are refused.
    groups = np.repeat(["x", "y"], 120)
    renamed = np.where(groups == "x", "u", "v")
    with pytest.raises(InputError, match="`groups` of 'A' and 'B' differ in 240 rows"):
        uq.compare({"A": model(groups=groups), "B": model(2.0, groups=renamed)})


def test_models_may_order_their_classes_differently():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet([1, 1], 100), rng.dirichlet([1, 1], 100)
    labels = rng.integers(0, 2, 100)
    a = uq.Predictions(labels, probs=p, classes=["cat", "dog"])
    b = uq.Predictions(labels, probs=q, classes=["cat", "dog"])
    turned = uq.Predictions(1 - labels, probs=q[:, ::-1], classes=["dog", "cat"])
    assert_same(compare({"A": a, "B": turned}), compare({"A": a, "B": b}))
    wrong = uq.Predictions(labels, probs=q, classes=["dog", "cat"])
    with pytest.raises(InputError, match="`labels` of 'A' and 'B' differ in 100 rows"):
        uq.compare({"A": a, "B": wrong})


# ---- every metric of the registry -----------------------------------------------------------------------------------


def test_every_metric_compares_scores_and_models():
    # Every ranking metric compares scores.
    for method, metric in product(METHODS, OF_SCORES):
        with noted(method=method, metric=metric):
            cmp = compare(
                model(), scores=["entropy", "mutual_information", "mine"], metric=metric, method=method, resamples=60
            )
            assert len(cmp) == 3
            assert_sane(cmp)
            assert all(r.se > 0 for r in cmp)

    # Every metric compares models.
    for method, metric in product(METHODS, OF_SCORES + OF_MODELS):
        with noted(method=method, metric=metric):
            models = {"A": model(0.3), "B": model(2.0)}
            cmp = compare(models, scores="entropy", metric=metric, method=method, resamples=60)
            assert list(cmp.values) == ["A", "B"]
            assert_sane(cmp)
            assert cmp["A", "B"].se > 0

    # A model without errors does not spoil the comparison of the others.
    for metric in ["uq_auc", "naurc", "prr", "aurc"]:
        with noted(metric=metric):
            scores, error, _ = arrays()
            other = np.roll(error, 1)
            models = {
                "A": uq.Predictions(scores={"u": scores["a"]}, error=error),
                "B": uq.Predictions(scores={"u": scores["b"]}, error=other),
            }
            perfect = uq.Predictions(scores={"u": scores["c"]}, error=np.zeros(300))
            two = compare(models, metric=metric, adjust="none")
            three = compare({**models, "C": perfect}, metric=metric, adjust="none")
            assert three.values["A"] == pytest.approx(two.values["A"])
            assert three["A", "B"].difference == pytest.approx(two["A", "B"].difference)
            assert not math.isnan(three["A", "B"].p)

    # Three models give three pairs and two against a baseline.
    three = {"A": model(0.3), "B": model(1.0), "C": model(2.0)}
    assert [(r.a, r.b) for r in compare(three)] == [("A", "B"), ("A", "C"), ("B", "C")]
    assert [(r.a, r.b) for r in compare(three, baseline="B")] == [("A", "B"), ("C", "B")]


def test_what_ranks_alike_does_not_differ():
    # A model does not differ from itself.
    for metric in OF_SCORES + OF_MODELS:
        with noted(metric=metric):
            for method in METHODS:
                row = compare({"A": model(), "B": model()}, metric=metric, method=method, resamples=50)["A", "B"]
                assert (row.difference, row.low, row.high, row.se, row.p, row.p_adjusted) == (0, 0, 0, 0, 1, 1)

    # Scores of the same order do not differ.
    for metric, extra in product(OF_SCORES, ["plain", "weights", "clusters", "both"]):
        with noted(metric=metric, extra=extra):
            data = make()
            s = data["scores"]["noisy"]
            data["scores"] = {
                "s": s,
                "again": s.copy(),
                "grown": np.exp(s),
                "shrunk": 3 * s - 7,
                "other": data["scores"]["mine"],
            }
            if extra in ("weights", "both"):
                data["weights"] = np.random.default_rng(1).uniform(0.5, 3, 240)
            if extra in ("clusters", "both"):
                data["clusters"] = np.arange(240) % 60
            for adjust in ADJUST if extra == "plain" else ADJUST[:1]:
                cmp = compare(uq.Predictions(**data), scores=list(data["scores"]), metric=metric, adjust=adjust)
                for other in ("again", "grown", "shrunk"):
                    row = cmp["s", other]
                    assert (row.difference, row.low, row.high, row.se, row.p, row.p_adjusted) == (0, 0, 0, 0, 1, 1)
                assert cmp["s", "other"].se > 0

    # Equal scores do not differ however few the errors.
    for metric, errors in product(["uq_auc", "uq_c_index", "aurc", "augrc", "prr"], [0, 1, 2, 299, 300]):
        with noted(metric=metric, errors=errors):
            scores, _, _ = arrays()
            error = (np.arange(300) < errors).astype(float)
            value = quiet(uq.estimate, metric, scores["a"], error).value
            row = compare({"a": scores["a"], "b": np.exp(scores["a"])}, error=error, loss=error, metric=metric)[
                "a", "b"
            ]
            if math.isnan(value):
                assert math.isnan(row.p)  # a test of an undefined metric has no answer
            else:
                assert (row.difference, row.se, row.p) == (0, 0, 1)

    # Constant scores compare as half.
    for method in METHODS:
        with noted(method=method):
            scores, error, _ = arrays()
            cmp = compare(
                {"flat": np.ones(300), "one": np.zeros(300), **scores}, error=error, method=method, resamples=100
            )
            assert cmp.values["flat"] == 0.5
            assert cmp["flat", "one"].p == 1
            assert cmp["a", "flat"].difference == pytest.approx(cmp.values["a"] - 0.5)


def test_metrics_that_do_not_fit_the_question_are_refused_or_warn():
    # A metric of the model is refused for its scores.
    for metric in OF_MODELS:
        with noted(metric=metric), pytest.raises(InputError, match="same for all scores of one model"):
            uq.compare(model(), scores=["entropy", "margin"], metric=metric)

    # Out of distribution metrics are refused.
    for metric in OOD:
        with noted(metric=metric), pytest.raises(InputError, match="two sets of rows"):
            uq.compare(model(), metric=metric)

    # A metric without its data says what is missing.
    scores, error, _ = arrays()
    with pytest.raises(InputError, match="kendall_phi needs soft_labels"):
        uq.compare(scores, error=error, metric="kendall_phi")
    with pytest.raises(InputError, match="uq_c_index needs loss"):
        uq.compare(scores, error=error, metric="uq_c_index")
    with pytest.raises(InputError, match="uq_auc needs error"):
        uq.compare(scores, loss=error, metric="uq_auc")
    pair = {name: uq.Predictions(scores={"u": scores[name]}, error=error) for name in "ab"}
    with pytest.raises(InputError, match="brier needs probs, labels"):
        uq.compare(pair, metric="brier")

    # Metrics that must not rank models warn between models only.
    for metric, text in [("h_auc", "H-AUC depends"), ("uq_c_index", "do not rank models")]:
        with noted(metric=metric, text=text):
            _, notes = notes_of({"A": model(0.3), "B": model(2.0)}, scores="entropy", metric=metric)
            assert any(text in note for note in notes)
            _, notes = notes_of(model(), scores=["entropy", "mine"], metric=metric)
            assert notes == []


# ---- cautions -----------------------------------------------------------------------------------------------------


def test_few_errors_right_rows_and_clusters_warn_and_enough_do_not():
    # Few errors and few right rows warn.
    for errors, text in [(4, "few errors (4)"), (296, "few right rows (4)")]:
        with noted(errors=errors, text=text):
            scores, _, _ = arrays()
            cmp, notes = notes_of(scores, error=np.arange(300) < errors)
            assert any(text in note for note in notes)
            assert_sane(cmp)

    # Few errors of one model warn.
    scores, error, _ = arrays()
    few = (np.arange(300) < 3).astype(float)
    models = {name: uq.Predictions(scores={"u": scores["a"]}, error=e) for name, e in (("A", error), ("B", few))}
    _, notes = notes_of(models)
    assert any("few errors (3)" in note for note in notes)

    # Enough rows do not warn.
    scores, error, _ = arrays()
    assert notes_of(scores, error=error)[1] == []

    # Few clusters warn and one gives no test.
    scores, error, _ = arrays()
    _, notes = notes_of(scores, error=error, clusters=np.arange(300) % 5)
    assert any("few clusters (5)" in note for note in notes)
    cmp, notes = notes_of(scores, error=error, clusters=np.zeros(300))
    assert any("single cluster" in note for note in notes)
    assert all(math.isnan(r.p) and math.isnan(r.se) for r in cmp)
    assert_sane(cmp)

    # Infinite scores warn and rank last.
    scores, error, _ = arrays()
    scores["a"] = np.where(error > 0, np.inf, scores["a"])
    cmp, notes = notes_of(scores, error=error)
    assert any("a: " in note and "infinite" in note for note in notes)
    assert cmp.values["a"] == 1


def test_what_cannot_be_tested_is_called_neither_best_nor_equal():
    # Without errors nothing is called best.
    scores, _, _ = arrays()
    cmp = compare(scores, error=np.zeros(300))
    assert all(math.isnan(value) for value in cmp.values.values())
    assert "best" not in " ".join(cmp.verdict())
    assert_sane(cmp)

    # What cannot be tested is not called equal.
    scores, error, _ = arrays()
    for cmp in (
        compare(scores, error=error, clusters=np.zeros(300)),
        compare(scores, error=np.arange(300) == 0),
        compare(scores, error=error, method="bootstrap", resamples=1),
    ):
        assert cmp.verdict() == ["The differences cannot be tested here."]

    # An infinite log-loss is not called equal.
    for method in METHODS:
        with noted(method=method):
            rng = np.random.default_rng(0)
            probs = rng.dirichlet([1, 1], 100)
            labels = rng.integers(0, 2, 100)
            sure = probs.copy()
            sure[0] = 1 - np.eye(2)[labels[0]]
            models = {"A": uq.Predictions(labels, probs=probs), "B": uq.Predictions(labels, probs=sure)}
            cmp, notes = notes_of(models, metric="log_loss", method=method, resamples=50)
            assert cmp.values["B"] == math.inf
            assert "equal" not in " ".join(cmp.verdict())
            assert any("infinite" in note or "probability 0" in note for note in notes)
            json.loads(cmp.to_json(), parse_constant=pytest.fail)

    # Two rows can be compared.
    assert_sane(compare({"a": [1, 2], "b": [2, 1]}, error=[0, 1]))


# ---- invariances ----------------------------------------------------------------------------------------------------


def test_the_order_of_rows_and_candidates_does_not_matter():
    # The order of rows does not matter.
    for method, metric, extra in product(
        METHODS, ["uq_auc", "uq_c_index", "aurc", "h_auc"], ["plain", "weights", "clusters"]
    ):
        with noted(method=method, metric=metric, extra=extra):
            scores, error, loss = arrays()
            more = {
                "plain": {},
                "weights": {"weights": np.random.default_rng(3).uniform(0.2, 2, 300)},
                "clusters": {"clusters": np.arange(300) // 3},
            }[extra]
            order = np.random.default_rng(4).permutation(300)
            asked = {"metric": metric, "method": method, "resamples": 60, "adjust": "none"}
            a = compare(scores, error=error, loss=loss, **more, **asked)
            turned = {name: value[order] for name, value in more.items()}
            shuffled = {name: s[order] for name, s in scores.items()}
            b = compare(shuffled, error=error[order], loss=loss[order], **turned, **asked)
            assert_same(a, b, rtol=1e-9, atol=1e-12)

    # The order of rows moves max t by less than its noise.
    scores, error, _ = arrays()
    order = np.random.default_rng(4).permutation(300)
    a = compare(scores, error=error)
    b = compare({name: s[order] for name, s in scores.items()}, error=error[order])
    assert_same(a, b, rtol=0.03, atol=0.01)

    # The order of candidates turns the sign only.
    for adjust in ADJUST:
        with noted(adjust=adjust):
            scores, error, _ = arrays()
            a = compare(scores, error=error, adjust=adjust)
            b = compare(dict(reversed(scores.items())), error=error, adjust=adjust)
            for r in a:
                other = b[r.a, r.b]
                assert other.difference == pytest.approx(r.difference, abs=1e-15)
                assert other.se == pytest.approx(r.se)
                assert other.p == pytest.approx(r.p)
                assert other.low == pytest.approx(r.low, rel=0.03, abs=1e-3)
                assert other.p_adjusted == pytest.approx(r.p_adjusted, rel=0.05, abs=0.01)


def test_a_seed_gives_the_same_numbers_and_both_methods_agree():
    # A seed gives the same numbers again.
    for method, adjust in product(METHODS, ADJUST):
        with noted(method=method, adjust=adjust):
            scores, error, _ = arrays()
            asked = {"error": error, "method": method, "adjust": adjust, "resamples": 100, "groups": np.arange(300) % 2}
            assert_same(compare(scores, seed=5, **asked), compare(scores, seed=5, **asked))
            generators = [compare(scores, seed=np.random.default_rng(5), **asked) for _ in range(2)]
            assert_same(*generators)
            if method == "bootstrap":
                assert table(compare(scores, seed=6, **asked)) != table(compare(scores, seed=5, **asked))

    # Both methods agree on large samples.
    scores, error, loss = arrays(n=3000)
    for metric in ("uq_auc", "uq_c_index", "aurc"):
        a = compare(scores, error=error, loss=loss, metric=metric, adjust="none")
        b = compare(scores, error=error, loss=loss, metric=metric, adjust="none", method="bootstrap", resamples=1000)
        for r in a:
            assert b[r.a, r.b].se == pytest.approx(r.se, rel=0.12)
            assert b[r.a, r.b].low == pytest.approx(r.low, abs=0.4 * r.se)

    # The bootstrap tells its progress.
    scores, error, _ = arrays()
    seen = []
    compare(scores, error=error, method="bootstrap", resamples=100, progress=lambda *done: seen.append(done))
    assert seen[-1] == ("resampling", 100, 100)
    assert seen == sorted(seen)


def test_equal_weights_are_none_and_rows_of_weight_zero_do_not_count():
    # Equal weights are no weights for the difference.
    scores, error, loss = arrays()
    for metric in ("uq_auc", "uq_c_index", "aurc", "augrc"):
        a = compare(scores, error=error, loss=loss, metric=metric, adjust="none")
        b = compare(scores, error=error, loss=loss, metric=metric, adjust="none", weights=np.full(300, 2.5))
        for r in a:
            assert b[r.a, r.b].difference == pytest.approx(r.difference, abs=1e-12)
            assert b[r.a, r.b].se == pytest.approx(r.se, rel=0.02)

    # Rows of weight zero do not count.
    scores, error, _ = arrays()
    keep = np.arange(300) % 4 > 0
    weights = np.where(keep, 1.5, 0.0)
    a = compare(scores, error=error, weights=weights)
    b = compare({name: s[keep] for name, s in scores.items()}, error=error[keep], weights=weights[keep])
    assert_same(a, b)
    assert a.n == keep.sum()


def test_adjusting_widens_intervals_raises_p_and_leaves_a_single_pair_alone():
    # A single pair needs no adjustment.
    for adjust in ADJUST:
        with noted(adjust=adjust):
            scores, error, _ = arrays(strengths=(1.0, 0.2))
            row = compare(scores, error=error, adjust=adjust)["a", "b"]
            assert row.p_adjusted == row.p
            assert (row.low, row.high) == (
                (plain := compare(scores, error=error, adjust="none")["a", "b"]).low,
                plain.high,
            )

    # Adjusting widens intervals and raises p.
    for method in METHODS:
        with noted(method=method):
            scores, error, _ = arrays(strengths=(1.0, 0.9, 0.8, 0.7, 0.3))
            none, holm, max_t = (
                compare(scores, error=error, adjust=adjust, method=method, resamples=400)
                for adjust in ("none", "holm", "max-t")
            )
            for r in none:
                for adjusted in (holm[r.a, r.b], max_t[r.a, r.b]):
                    assert adjusted.p == r.p
                    assert adjusted.p_adjusted >= r.p
                    if method == "influence":
                        assert adjusted.high - adjusted.low >= r.high - r.low

    # An interval holds zero just where p is above the level.
    for method, adjust in product(METHODS, ["max-t", "none"]):
        with noted(method=method, adjust=adjust):
            for seed in range(6):
                scores, error, _ = arrays(seed=seed, strengths=(1.0, 0.8, 0.6, 0.4, 0.2))
                for r in compare(scores, error=error, adjust=adjust, method=method, resamples=500):
                    if abs(r.p_adjusted - 0.05) > 0.01:  # the bootstrap counts resamples in steps
                        assert (r.low <= 0 <= r.high) == (r.p_adjusted > 0.05), (seed, r)


# ---- groups -------------------------------------------------------------------------------------------------------


def grouped(shift, n=1200, seed=0):
    """Scores whose difference is `shift` larger in group y than in group x."""
    rng = np.random.default_rng(seed)
    error = (rng.random(n) < 0.3).astype(float)
    groups = np.where(np.arange(n) < n // 2, "x", "y")
    a = error * (0.5 + shift * (groups == "y")) + rng.normal(size=n)
    return {"a": a, "b": 0.5 * error + rng.normal(size=n)}, error, groups


def test_groups_give_the_pairs_of_each_group_and_do_not_change_the_whole():
    # Groups give the pairs of each group.
    for method in METHODS:
        with noted(method=method):
            scores, error, groups = grouped(0.5)
            cmp = compare(scores, error=error, groups=groups, method=method, resamples=100, adjust="none")
            assert [r.group for r in cmp] == [None, "x", "y"]
            assert_sane(cmp)
            for name in "xy":
                keep = groups == name
                alone = compare({k: s[keep] for k, s in scores.items()}, error=error[keep], adjust="none")["a", "b"]
                assert cmp["a", "b", name].difference == pytest.approx(alone.difference)
                if method == "influence":
                    assert cmp["a", "b", name].p == alone.p
                    assert cmp["a", "b", name].se == alone.se

    # Models are compared by group.
    groups = np.repeat(["x", "y"], 120)
    cmp = compare({"A": model(0.3, groups=groups), "B": model(2.0, groups=groups)}, metric="brier")
    assert [r.group for r in cmp] == [None, "x", "y"]
    assert ("A", "B") in cmp.heterogeneity

    # Groups do not change the whole.
    scores, error, groups = grouped(0.5)
    with_groups, without = compare(scores, error=error, groups=groups), compare(scores, error=error)
    assert with_groups["a", "b"] == without["a", "b"]
    assert with_groups.groups() == without.groups()

    # Weights clusters and groups together.
    for method, metric in product(METHODS, ["uq_auc", "uq_c_index", "aurc", "augrc"]):
        with noted(method=method, metric=metric):
            scores, error, groups = grouped(2.0)
            cmp = compare(
                scores,
                error=error,
                loss=error + np.random.default_rng(1).random(1200),
                groups=groups,
                clusters=np.arange(1200) // 6,
                weights=np.random.default_rng(2).uniform(0.5, 2, 1200),
                metric=metric,
                method=method,
                resamples=50,
            )
            assert_sane(cmp)
            assert len(cmp) == 3
            assert all(r.se > 0 for r in cmp)
            assert 0 <= cmp.heterogeneity["a", "b"] <= 1


def test_heterogeneity_of_the_difference_is_found_where_it_is():
    for method in METHODS:
        with noted(method=method):
            for shift, differs in ((0.0, False), (2.0, True)):
                scores, error, groups = grouped(shift)
                p = compare(scores, error=error, groups=groups, method=method, resamples=300).heterogeneity["a", "b"]
                assert (p < 0.01) == differs
                assert 0 <= p <= 1

    # Heterogeneity of two groups is a z test of their difference.
    scores, error, groups = grouped(0.4, n=6000)
    cmp = compare(scores, error=error, groups=groups)
    x, y = cmp["a", "b", "x"], cmp["a", "b", "y"]
    z = (x.difference - y.difference) / math.hypot(x.se, y.se)
    assert cmp.heterogeneity["a", "b"] == pytest.approx(2 * norm.sf(abs(z)), rel=0.05, abs=1e-6)

    # Heterogeneity is in the JSON.
    scores, error, groups = grouped(2.0)
    data = json.loads(compare(scores, error=error, groups=groups).to_json())
    (entry,) = data["heterogeneity"]
    assert entry.keys() == {"a", "b", "p"}
    assert entry["p"] < 0.01
    assert [pair["group"] for pair in data["pairs"]] == [None, "x", "y"]

    # Clusters that span groups warn and are not tested.
    for function in ["compare", "evaluate"]:
        with noted(function=function):
            scores, error, groups = grouped(2.0)
            clusters = np.arange(1200) % 100
            given = {"error": error, "groups": groups, "clusters": clusters}
            run = partial(uq.compare, scores) if function == "compare" else partial(uq.evaluate, score=scores)
            with pytest.warns(UQWarning, match="clusters span several groups"):
                found = run(**given)
            assert len(found.heterogeneity) == 0


def test_groups_too_small_or_without_errors_give_no_numbers():
    # A group of one row is left out with a warning.
    scores, error, _ = arrays()
    groups = np.where(np.arange(300) == 0, "lone", np.where(np.arange(300) % 2, "x", "y"))
    cmp, notes = notes_of(scores, error=error, groups=groups)
    assert "group 'lone' has a single row and is left out" in notes
    assert {r.group for r in cmp} == {None, "x", "y"}

    # A group without errors has no numbers and raises nothing.
    scores, error, _ = arrays()
    error[:100] = 0
    groups = np.repeat(["clean", "x", "y"], 100)
    cmp = compare(scores, error=error, groups=groups)
    assert math.isnan(cmp["a", "b", "clean"].difference)
    assert cmp["a", "b", "x"].se > 0
    assert_sane(cmp)


# ---- the result ---------------------------------------------------------------------------------------------------


def test_frame_dict_and_json_have_the_columns_and_keys_of_the_api():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    # To frame has the columns of the API.
    for kind in ["pandas", "polars", "pyarrow", None]:
        with noted(kind=kind):
            scores, error, _ = arrays()
            frame = compare(scores, error=error).to_frame(kind)
            names = frame.column_names if kind == "pyarrow" else list(frame.columns)
            assert names == COLUMNS
            assert len(frame) == 3
            grouped_frame = compare(scores, error=error, groups=np.arange(300) % 2).to_frame(kind)
            names = grouped_frame.column_names if kind == "pyarrow" else list(grouped_frame.columns)
            assert names == [*COLUMNS, "group"]
            assert len(grouped_frame) == 9

    # To dict has the keys of the API.
    scores, error, _ = arrays()
    data = compare(scores, error=error, baseline="c").to_dict()
    assert {"schema_version", "metric", "adjust", "pairs", "groups"} <= data.keys()
    assert (data["metric"], data["adjust"], data["baseline"]) == ("uq_auc", "max-t", "c")
    for pair in data["pairs"]:
        assert {"a", "b", "difference", "low", "high", "se", "p", "p_adjusted"} <= pair.keys()

    # To JSON is strict where numbers are undefined.
    scores, _, _ = arrays()
    data = json.loads(compare(scores, error=np.zeros(300)).to_json(), parse_constant=pytest.fail)
    assert data["pairs"][0]["p"] is None
    assert data["values"]["a"] is None


def test_a_pair_can_be_asked_for_either_way_round_and_only_if_there():
    # A pair can be asked for either way round.
    scores, error, _ = arrays()
    cmp = compare(scores, error=error, groups=np.arange(300) % 2)
    for group in (None, "0", "1"):
        key = () if group is None else (group,)
        ab, ba = cmp[("a", "b", *key)], cmp[("b", "a", *key)]
        assert (ba.a, ba.b, ba.difference) == ("b", "a", -ab.difference)
        assert (ba.low, ba.high) == (-ab.high, -ab.low)
        assert (ba.se, ba.p, ba.p_adjusted) == (ab.se, ab.p, ab.p_adjusted)
    assert cmp["a", "b", 1] == cmp["a", "b", "1"]
    assert cmp.sd("a", "b") == pytest.approx(cmp["a", "b"].se * math.sqrt(300))

    # A pair that is not there is an input error.
    for key in ["a", "ab", 0, ("a",), ("a", "z"), ("a", "a"), ("a", "b", None, "x"), ("a", "b", "g")]:
        with noted(key=key):
            scores, error, _ = arrays()
            with pytest.raises(InputError):
                compare(scores, error=error)[key]


def test_ranking_is_best_first_and_groups_are_runs_without_a_shown_difference():
    # Ranking is best first.
    for metric in ["uq_auc", "aurc"]:
        with noted(metric=metric):
            scores, error, _ = arrays()
            cmp = compare(scores, error=error, metric=metric)
            values = [cmp.values[name] for name in cmp.ranking()]
            assert values == sorted(values, reverse=metric == "uq_auc")
            assert cmp.ranking()[-1] == "c"

    # Groups are runs without a shown difference.
    scores, error, _ = arrays(n=2000, strengths=(1.0, 1.0, 0.1, 0.1))
    cmp = compare(scores, error=error)
    assert [set(run) for run in cmp.groups()] == [{"a", "b"}, {"c", "d"}]
    for run in cmp.groups():
        assert all(cmp[x, y].p_adjusted > 0.05 for x in run for y in run if x < y)

    # Groups with a baseline hold it and what it is not told from.
    scores, error, _ = arrays(n=2000, strengths=(1.0, 1.0, 0.1, 0.1))
    (run,) = compare(scores, error=error, baseline="c").groups()
    assert set(run) == {"c", "d"}
    words = " ".join(compare(scores, error=error, baseline="c").verdict())
    assert "Better than c: a, b." in words
    assert "Worse than c: none shown." in words


def pair_of(a, b, difference, p):
    return Pair(a, b, None, difference, difference - 1, difference + 1, 0.5, 10.0, p, p)


def test_the_words_follow_the_tests():
    scores, error, _ = arrays(n=2000)
    assert compare(scores, error=error).verdict() == ["a is ahead, but b cannot be told from it."]
    only = {name: scores[name] for name in "ac"}
    assert compare(only, error=error).verdict() == ["a is best: its lead over every other is more than chance."]
    rng = np.random.default_rng(0)
    same = {name: rng.normal(size=2000) for name in "ab"}
    assert compare(same, error=error).verdict() == ["No difference is shown: all could be equal."]

    # Lower is better turns the words round.
    scores, error, _ = arrays(n=2000, strengths=(1.0, 1.0, 0.1))
    words = " ".join(compare(scores, error=error, metric="aurc", baseline="c").verdict())
    assert "Better than c: a, b." in words

    # The best is not said to lead over a noisy third.
    rows = (pair_of("a", "b", 0.1, 0.001), pair_of("a", "c", 0.2, 0.4), pair_of("b", "c", 0.1, 0.5))
    cmp = Comparison("uq_auc", "none", 0.95, "influence", 100, None, {"a": 0.9, "b": 0.8, "c": 0.7}, rows)
    assert cmp.groups() == [["a"], ["b", "c"]]
    assert cmp.verdict() == ["a is ahead, but c cannot be told from it."]

    # The headline says the level as evaluate does.
    scores, error, _ = arrays()
    assert "90% simultaneous intervals, p adjusted by max-t" in compare(scores, error=error, level=0.9).headline()
    two = {name: scores[name] for name in "ab"}
    head = compare(two, error=error, adjust="none", groups=np.arange(300) % 2).headline()
    assert "95% intervals" in head
    assert "adjusted" not in head

    # A single pair per group is not called simultaneous.
    scores, error, groups = grouped(0.5)
    assert "simultaneous" not in compare(scores, error=error, groups=groups).headline()


def test_print_shows_names_as_they_are_and_the_warnings():
    # Print shows names as they are and HTML escapes them.
    _, error, _ = arrays()
    rng = np.random.default_rng(0)
    cmp = compare(
        {NASTY: rng.random(300), "[red]b[/]": rng.random(300)}, error=error, groups=np.repeat(["<b>", "y"], 150)
    )
    assert NASTY in str(cmp)
    assert "[red]b[/]" in str(cmp)
    page = cmp._repr_html_()
    assert "<img" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;" in page

    # The warnings are printed.
    text = str(compare({"A": model(0.3), "B": model(2.0)}, scores="entropy", metric="h_auc"))
    assert "! H-AUC depends" in text


def test_a_comparison_is_frozen():
    scores, error, _ = arrays()
    with pytest.raises(AttributeError):
        compare(scores, error=error).metric = "aurc"


# ---- evaluate: heterogeneity and what the rows can show -------------------------------------------------------------


def test_evaluate_tests_each_score_and_metric_for_heterogeneity():
    scores, error, groups = grouped(2.0)
    ev = quiet(uq.evaluate, score=scores, error=error, groups=groups)
    found = {(test.score, test.metric): test.p for test in ev.heterogeneity}
    assert found["a", "uq_auc"] < 0.01
    assert found["b", "uq_auc"] > 0.01
    ranked = {(row.score, row.metric) for row in ev if row.group == "x"}
    assert found.keys() == ranked
    assert all(0 <= p <= 1 for p in found.values())
    assert ev.mixed_lines() == [f"a: UQ-AUC differs between groups (p = {found['a', 'uq_auc']:.4f})"]
    assert ev.mixed_lines()[0] in str(ev)
    entries = json.loads(ev.to_json())["heterogeneity"]
    assert {(e["score"], e["metric"]) for e in entries} == ranked

    # Evaluate without groups has no heterogeneity.
    scores, error, _ = grouped(2.0)
    ev = quiet(uq.evaluate, score=scores, error=error)
    assert ev.heterogeneity == ()
    assert ev.mixed_lines() == []


def test_the_smallest_detectable_difference_is_told_with_uq_auc():
    # Evaluate tells the smallest detectable difference.
    scores, error, _ = arrays()
    ev = quiet(uq.evaluate, score=scores, error=error)
    best = ev["a", "uq_auc"]
    expected = (norm.ppf(0.975) + norm.ppf(0.8)) * best.se  # correlation 0.5: SD of the difference is that of one
    assert ev.detectable() == pytest.approx(expected, rel=1e-9)
    assert ev.detectable(power=0.9) > ev.detectable()
    assert f"{expected:.3f}" in ev.detectable_line()
    assert ev.detectable_line() in str(ev)
    assert json.loads(ev.to_json())["detectable_difference"] == pytest.approx(expected)

    # Nothing is detectable without UQ-AUC.
    scores, error, loss = arrays()
    for ev in (
        quiet(uq.evaluate, score=scores, loss=loss),
        quiet(uq.evaluate, score=scores, error=np.zeros(300)),
        quiet(uq.evaluate, score=np.ones(300), error=error),
    ):
        assert ev.detectable() is None
        assert ev.detectable_line() is None


# ---- cost ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.alone
@each("metric", ["uq_auc", "uq_c_index"])
def test_comparing_20_scores_of_a_million_rows_costs_at_most_twice_their_estimates(metric):
    scores, error, loss = arrays(n=10**6, strengths=(0.8,) * 8)
    rng = np.random.default_rng(1)
    scores |= {f"s{k}": 0.8 * error + rng.normal(size=10**6) for k in range(12)}
    target = {"error": error} if metric == "uq_auc" else {"loss": loss}

    def cost(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    singles, together = [], []
    for _ in range(20):  # in turns and the shortest of each: other work on the machine only lengthens a run
        together.append(cost(lambda: uq.compare(scores, metric=metric, **target)))
        singles.append(cost(lambda: [uq.estimate(metric, score, **target) for score in scores.values()]))
        a, b = min(singles), min(together)
        if b <= 2 * a:
            break
    print(f"{metric}: 20 estimates {a:.2f} s, compare {b:.2f} s, ratio {b / a:.2f}")
    assert b <= 2 * 1.15 * a  # 15% for noise
