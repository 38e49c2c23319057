"""`SelectiveClassifier`: it abstains where its threshold says so, keeps its promise, and is a classifier."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import uqeval as uq

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from uqeval.sklearn import SelectiveClassifier


@pytest.fixture(scope="module")
def digits():
    """Training rows, their labels, new rows."""
    x, y = load_digits(return_X_y=True)
    return x[:1200], y[:1200], x[1200:]


def failures(estimator):
    """Checks of scikit-learn that the estimator fails, with why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 15 rows certify nothing, and it says so
        results = check_estimator(estimator, on_fail=None)
    assert sum(result["status"] == "passed" for result in results) > 50
    return {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}


def test_it_passes_the_checks_of_scikit_learn():
    assert failures(SelectiveClassifier(GaussianNB())) == {}


@pytest.mark.slow
def test_it_passes_the_checks_of_scikit_learn_around_other_classifiers():
    forest = RandomForestClassifier(10, random_state=0)
    for inner in (LogisticRegression(), forest, make_pipeline(StandardScaler(), GaussianNB())):
        assert failures(SelectiveClassifier(inner)) == {}
    assert failures(SelectiveClassifier(forest, "mutual_information", method="fallback")) == {}


def test_the_threshold_is_that_of_choose_threshold_on_the_rows_held_back(digits):
    x, y, new = digits
    clf = SelectiveClassifier(GaussianNB(), "entropy", max_risk=0.1, level=0.9, abstain_label=-1).fit(x, y)
    train, held, y_train, y_held = train_test_split(x, y, test_size=0.3, random_state=0)
    inner = GaussianNB().fit(train, y_train)
    pred = uq.Predictions.from_estimator(inner, held, y_held)
    assert clf.threshold_ == uq.choose_threshold("entropy", predictions=pred, max_risk=0.1, level=0.9)
    inside = uq.scores.entropy(inner.predict_proba(new)) <= clf.threshold_.value
    np.testing.assert_array_equal(clf.accepts(new), inside)
    np.testing.assert_array_equal(clf.predict(new), np.where(inside, inner.predict(new), -1))
    np.testing.assert_allclose(clf.predict_proba(new), inner.predict_proba(new), atol=1e-12)
    assert 0 < inside.sum() < len(new)


def test_a_fitted_estimator_is_kept_and_all_rows_certify(digits):
    x, y, _ = digits
    inner = GaussianNB().fit(x[::2], y[::2])
    clf = SelectiveClassifier(inner, max_risk=0.2, cv="prefit").fit(x[1::2], y[1::2])
    assert clf.estimator_ is inner
    assert clf.threshold_.n == 600
    with pytest.raises(uq.InputError, match="cv"):
        SelectiveClassifier(inner, cv="fitted").fit(x, y)


def test_predict_abstains_in_the_type_of_the_labels(digits):
    x, y, new = digits
    for labels, abstain, kind in ((y, -1, "i"), (y.astype(str), "?", "U"), (y.astype(str), -1, "O"), (y, "ask", "O")):
        clf = SelectiveClassifier(GaussianNB(), max_risk=0.1, abstain_label=abstain).fit(x, labels)
        found = clf.predict(new)
        assert found.dtype.kind == kind
        np.testing.assert_array_equal(found == abstain, ~clf.accepts(new))
        assert set(found.tolist()) <= {*labels.tolist(), abstain}


def test_without_a_label_for_abstaining_every_row_gets_one_and_a_warning_counts_them(digits):
    x, y, new = digits
    clf = SelectiveClassifier(GaussianNB(), max_risk=0.1).fit(x, y)
    count = int((~clf.accepts(new)).sum())
    with pytest.warns(uq.UQWarning, match=f"{count} of 597 rows are not accepted and were given labels all the same"):
        found = clf.predict(new)
    np.testing.assert_array_equal(found, clf.estimator_.predict(new))


def test_where_nothing_can_be_certified_it_says_so_and_accepts_nothing(digits):
    x, y, new = digits
    with pytest.warns(uq.UQWarning, match="accepts nothing. Nothing can be certified.* would be needed"):
        clf = SelectiveClassifier(GaussianNB(), max_risk=0.001, abstain_label=-1).fit(x, y)
    assert not clf.threshold_.feasible
    assert set(clf.predict(new).tolist()) == {-1}


def test_its_sets_hold_one_label_where_it_accepts_and_all_where_it_does_not(digits):
    x, y, new = digits
    clf = SelectiveClassifier(GaussianNB(), max_risk=0.1, abstain_label=-1).fit(x, y)
    sets, inside = clf.predict_set(new), clf.accepts(new)
    np.testing.assert_array_equal(clf.classes_[sets[inside].argmax(axis=1)], clf.predict(new)[inside])
    np.testing.assert_array_equal(sets.sum(axis=1), np.where(inside, 1, 10))


def test_its_threshold_refuses_another_score(digits):
    x, y, _ = digits
    clf = SelectiveClassifier(GaussianNB(), max_risk=0.1).fit(x, y)
    with pytest.raises(uq.InputError, match='The threshold is for the score "gap_to_certain"'):
        clf.threshold_.accept({"entropy": [0.1, 0.2]})


def test_the_uncertainty_may_be_of_members_or_a_function(digits):
    x, y, new = digits
    forest = RandomForestClassifier(20, random_state=0)
    clf = SelectiveClassifier(forest, "mutual_information", max_risk=0.2).fit(x, y)
    members = np.stack([tree.predict_proba(new) for tree in clf.estimator_.estimators_])
    np.testing.assert_allclose(clf.score_samples(new), uq.scores.mutual_information(members), atol=1e-12)

    def ink(estimator, rows):
        return rows.sum(axis=1)

    clf = SelectiveClassifier(forest, ink, max_risk=0.2).fit(x, y)
    np.testing.assert_array_equal(clf.score_samples(new), new.sum(axis=1))
    assert clf.threshold_.score == "ink"


def test_it_is_searched_cloned_and_pickled_like_any_classifier(digits):
    x, y, new = digits
    clf = SelectiveClassifier(GaussianNB(), max_risk=0.1, abstain_label=-1)
    assert clone(clf.set_params(estimator__var_smoothing=1e-3)).estimator.var_smoothing == 1e-3
    fitted = clf.fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(new), fitted.predict(new))
    # An abstention is no right answer.
    assert 0 < cross_val_score(clf, x, y, cv=3).min() < cross_val_score(GaussianNB(), x, y, cv=3).min()


def test_a_single_class_is_a_class(digits):
    x, _, _ = digits
    clf = SelectiveClassifier(DummyClassifier(), max_risk=0.1).fit(x, ["a"] * 1200)
    np.testing.assert_array_equal(clf.predict_proba(x[:2]), [[1.0], [1.0]])
    np.testing.assert_array_equal(clf.predict_set(x[:2]), [[True], [True]])


def test_what_cannot_work_is_refused_in_words(digits):
    x, y, _ = digits
    with pytest.raises(uq.InputError, match="`abstain_label` is 3, which is a class"):
        SelectiveClassifier(GaussianNB(), abstain_label=3).fit(x, y)
    with pytest.raises(uq.InputError, match=r"`max_risk` is \[0.1, 0.2\]. Pass one number"):
        SelectiveClassifier(GaussianNB(), max_risk=[0.1, 0.2]).fit(x, y)
    with pytest.raises(uq.InputError, match="cannot be had from an estimator"):
        SelectiveClassifier(GaussianNB(), "max_logit").fit(x, y)
    with pytest.raises(uq.InputError, match="DummyClassifier has none whose mean its probabilities are"):
        SelectiveClassifier(DummyClassifier(), "vote_entropy").fit(x, y)
    with pytest.raises(uq.InputError, match="LinearRegression has no predict_proba"):
        SelectiveClassifier(LinearRegression()).fit(x, y)


RUNS, RISK, LEVEL = 600, 0.1, 0.9


@pytest.mark.slow
def test_the_accepted_inputs_of_a_known_law_are_wrong_no_more_often_than_promised():
    """x is one of 300 points, y is 1 with probability p(x): the true risk of what is accepted is a sum over points."""
    points = np.linspace(-3, 3, 300)
    p = 1 / (1 + np.exp(-1.5 * points))  # a fifth of all inputs would be wrong
    rng = np.random.default_rng(20)
    held, feasible = [], 0
    for run in range(RUNS):
        at = rng.integers(300, size=400)
        y = (rng.random(400) < p[at]).astype(int)
        clf = SelectiveClassifier(
            GaussianNB(), max_risk=RISK, level=LEVEL, calibration_size=0.5, abstain_label=-1, random_state=run
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", uq.UQWarning)
            labels = clf.fit(points[at, None], y).predict(points[:, None])
        inside = labels != -1
        wrong = np.where(labels == 1, 1 - p, p)[inside]
        held.append(wrong.mean() <= RISK if inside.any() else True)
        feasible += inside.any()
    assert feasible > RUNS / 2
    assert np.mean(held) >= LEVEL - 3 * np.sqrt(LEVEL * (1 - LEVEL) / RUNS)
