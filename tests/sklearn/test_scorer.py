"""Scorers: what they give is what `evaluate` gives on the fold, wherever scikit-learn takes them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import uqeval as uq
from uqeval.metrics import REGISTRY

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from joblib import parallel_backend
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqeval.sklearn import UQScorer, make_uq_scorer

CV = KFold(3)
NEEDS = {"error", "loss", "correct", "confidence", "probs", "labels", "score"}
JUDGED = [metric for metric in REGISTRY.values() if NEEDS.issuperset(metric.needs)]


@pytest.fixture(scope="module")
def data():
    x, y = make_classification(300, 6, n_informative=3, n_classes=3, flip_y=0.2, random_state=0)
    weights = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    return x, np.array(["a", "b", "c"])[y], weights


def by_hand(estimator, metric, score, x, y, weights=None, fit=None):
    """The scorer's value on each fold, from `evaluate`."""
    found, sign = [], 1 if REGISTRY[metric].direction == "higher" else -1
    for train, test in CV.split(x):
        fitted = clone(estimator).fit(x[train], y[train], **({} if fit is None else {"sample_weight": fit[train]}))
        w = None if weights is None else weights[test]
        pred = uq.Predictions.from_estimator(fitted, x[test], y[test], weights=w)
        ev = uq.evaluate(pred, scores=[score], metrics=[metric])
        found.append(sign * ev[score, metric].value)
    return np.array(found)


def test_a_scorer_gives_the_value_of_evaluate_for_every_metric_higher_is_better(data):
    x, y, w = data
    fitted = GaussianNB().fit(x[:150], y[:150])
    assert len(JUDGED) >= 18
    for weights in (None, w[150:]):
        pred = uq.Predictions.from_estimator(fitted, x[150:], y[150:], weights=weights)
        ev = uq.evaluate(pred, scores=["margin"], metrics=[metric.name for metric in JUDGED])
        for metric in JUDGED:
            scorer, sign = make_uq_scorer(metric.name, "margin"), 1 if metric.direction == "higher" else -1
            value = scorer(fitted, x[150:], y[150:], sample_weight=weights)
            assert value == pytest.approx(sign * ev["margin", metric.name].value, rel=1e-12), metric.name
            assert scorer.name == ("" if sign > 0 else "neg_") + metric.name


def test_cross_val_score_gives_the_value_of_evaluate_on_every_fold(data):
    x, y, _ = data
    for metric, score in (("uq_auc", "entropy"), ("aurc", "gap_to_certain")):
        found = cross_val_score(GaussianNB(), x, y, scoring=make_uq_scorer(metric, score), cv=CV)
        np.testing.assert_allclose(found, by_hand(GaussianNB(), metric, score, x, y), rtol=1e-12)


def test_a_search_takes_the_candidate_with_the_lowest_aurc_on_several_threads(data):
    x, y, _ = data
    scorer = make_uq_scorer("aurc")
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-2, 1.0]}, scoring=scorer, cv=CV, n_jobs=2)
    with parallel_backend("threading"):
        search.fit(x, y)
    of_each = [by_hand(GaussianNB(var_smoothing=v), "aurc", "entropy", x, y).mean() for v in (1e-9, 1e-2, 1.0)]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], of_each, rtol=1e-12)
    assert search.best_score_ == max(of_each) < 0
    assert len(set(of_each)) == 3


def test_with_routing_weights_reach_the_scorers_that_ask_for_them(data):
    x, y, w = data
    with config_context(enable_metadata_routing=True):
        estimator = GaussianNB().set_fit_request(sample_weight=False)
        asks = make_uq_scorer("aurc").set_score_request(sample_weight=True)
        not_asking = make_uq_scorer("aurc").set_score_request(sample_weight=False)
        scoring = {"weighted": asks, "plain": not_asking}
        found = cross_validate(estimator, x, y, scoring=scoring, cv=CV, params={"sample_weight": w})
        one = cross_val_score(estimator, x, y, scoring=asks, cv=CV, params={"sample_weight": w})
        search = GridSearchCV(estimator, {"var_smoothing": [1e-9]}, scoring=asks, cv=CV).fit(x, y, sample_weight=w)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(estimator, x, y, scoring=make_uq_scorer("aurc"), cv=CV, params={"sample_weight": w})
    weighted, plain = (by_hand(GaussianNB(), "aurc", "entropy", x, y, given) for given in (w, None))
    np.testing.assert_allclose(found["test_weighted"], weighted, rtol=1e-12)
    np.testing.assert_allclose(one, weighted, rtol=1e-12)
    assert search.best_score_ == pytest.approx(weighted.mean(), rel=1e-12)
    np.testing.assert_allclose(found["test_plain"], plain, rtol=1e-12)
    assert (weighted != plain).all()


def test_without_routing_a_search_hands_weights_on_and_cross_validate_does_not(data):
    x, y, w = data
    weighted, plain = (by_hand(GaussianNB(), "aurc", "entropy", x, y, given, fit=w) for given in (w, None))
    for scoring in (make_uq_scorer("aurc"), {"one": make_uq_scorer("aurc"), "two": make_uq_scorer("uq_auc")}):
        search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, scoring=scoring, cv=CV, refit=False)
        results = search.fit(x, y, sample_weight=w).cv_results_
        mean = results["mean_test_score" if "mean_test_score" in results else "mean_test_one"]
        assert mean[0] == pytest.approx(weighted.mean(), rel=1e-12)
    found = cross_validate(GaussianNB(), x, y, scoring=make_uq_scorer("aurc"), cv=CV, params={"sample_weight": w})
    np.testing.assert_allclose(found["test_score"], plain, rtol=1e-12)


def test_a_score_is_a_name_or_a_function_of_probabilities_or_of_estimator_and_rows(data):
    x, y, _ = data
    fitted = make_pipeline(StandardScaler(), RandomForestClassifier(21, random_state=0, max_leaf_nodes=9)).fit(
        x[:150], y[:150]
    )

    def distance(estimator, rows):
        return abs(estimator[:-1].transform(rows)).sum(axis=1)

    plain = uq.Predictions.from_estimator(fitted, x[150:], y[150:])
    error = uq.truth.error_of(plain)
    expected = {
        "mutual_information": uq.scores.mutual_information(plain.members),
        uq.scores.margin: uq.scores.margin(plain.probs),
        distance: distance(fitted, x[150:]),
    }
    for score, values in expected.items():
        assert make_uq_scorer("uq_auc", score)(fitted, x[150:], y[150:]) == uq.metrics.uq_auc(values, error)


def test_options_are_those_of_the_metric(data):
    x, y, _ = data
    fitted = GaussianNB().fit(x[:150], y[:150])
    pred = uq.Predictions.from_estimator(fitted, x[150:], y[150:])
    right = 1 - uq.truth.error_of(pred)
    found = make_uq_scorer("ece", bins=5)(fitted, x[150:], y[150:])
    assert found == -uq.metrics.ece(pred.probs.max(axis=1), right, bins=5) != make_uq_scorer("ece")(fitted, x, y)


def test_a_fold_without_a_wrong_row_is_undefined_and_one_of_a_single_class_is_scored(data):
    x, y = np.arange(6.0)[:, None], np.array(["a"] * 6)
    constant = DummyClassifier().fit(x, y)
    with pytest.warns(uq.UndefinedMetricWarning, match="no wrong prediction"):
        assert np.isnan(make_uq_scorer("uq_auc")(constant, x, y))
    assert make_uq_scorer("aurc")(constant, x, y) == 0
    assert make_uq_scorer("accuracy")(constant, x, y) == 1


def test_classes_that_the_fold_did_not_train_on_are_mistakes(data):
    x, y, _ = data
    known = y != "b"
    fitted = GaussianNB().fit(x[known], y[known])
    assert make_uq_scorer("accuracy")(fitted, x, y) == pytest.approx((fitted.predict(x) == y).mean(), abs=1e-12)
    assert make_uq_scorer("accuracy")(fitted, x[~known], y[~known]) == 0


def test_a_scorer_is_pickled_cloned_and_printed_as_it_is_made(data):
    x, y, _ = data
    fitted = GaussianNB().fit(x, y)
    scorer = make_uq_scorer("ece", "margin", bins=7)
    assert eval(repr(scorer)).get_params() == scorer.get_params()
    for copy in (pickle.loads(pickle.dumps(scorer)), clone(scorer)):
        assert isinstance(copy, UQScorer)
        assert copy(fitted, x, y) == scorer(fitted, x, y)
    with config_context(enable_metadata_routing=True):
        asks = make_uq_scorer("aurc").set_score_request(sample_weight=True)
        assert clone(asks).get_metadata_routing().score.requests == {"sample_weight": True}


def test_what_no_scorer_can_do_is_refused_before_anything_is_fitted(data):
    x, y, _ = data
    cases = [
        (("uq_aucc",), {}, 'There is no metric "uq_aucc"'),
        (("kendall_phi",), {}, '"kendall_phi" needs phi, which a scorer never sees'),
        (("ood_auroc",), {}, "needs score_in, score_out"),
        (("uq_auc", "entropyy"), {}, "`score` is 'entropyy', which cannot be had from an estimator"),
        (("uq_auc", "free_energy"), {}, "'free_energy'.*Pass a function of the probabilities or of"),
        (("ece",), {"bin": 3}, "\"ece\" has no option 'bin'. Options: bins, scheme"),
    ]
    for names, options, message in cases:
        with pytest.raises(uq.InputError, match=message):
            make_uq_scorer(*names, **options)
    fitted = LogisticRegression(max_iter=500).fit(x, y)
    with pytest.raises(uq.InputError, match="needs the members of an ensemble, and LogisticRegression has none"):
        make_uq_scorer("uq_auc", "mutual_information")(fitted, x, y)
    with pytest.raises(uq.InputError, match="`score` gave 3 values for 300 rows"):
        make_uq_scorer("uq_auc", lambda probs: [1.0, 2.0, 3.0])(fitted, x, y)
    with pytest.raises(uq.InputError, match="`y` is None"):
        make_uq_scorer()(fitted, x, None)
