"""`Predictions.from_estimator`: what a scikit-learn classifier says is what the predictions hold, class by class."""

from __future__ import annotations

import numpy as np
import pytest

import uqeval as uq
from uqeval import truth

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn import ensemble
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

pytestmark = pytest.mark.filterwarnings("ignore:`probs` has a tied top class")  # of few trees
SPECIES = np.array(["setosa", "versicolor", "virginica"])
TWO = [("nb", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=2, random_state=0))]


def rows(as_frame=False):
    x, y = load_iris(return_X_y=True, as_frame=as_frame)
    return x, SPECIES[np.asarray(y)]


def forest(trees=4, **options):
    return ensemble.RandomForestClassifier(trees, max_depth=3, random_state=0, **options)


WITH_MEMBERS = [
    (forest(), 4),
    (ensemble.ExtraTreesClassifier(3, random_state=0), 3),
    (ensemble.BaggingClassifier(GaussianNB(), 5, max_features=0.5, random_state=0), 5),
    (ensemble.BaggingClassifier(KNeighborsClassifier(1), 12, max_samples=4, random_state=0), 12),
    (ensemble.VotingClassifier(TWO, voting="soft"), 2),
    (CalibratedClassifierCV(GaussianNB(), cv=3), 3),
    (make_pipeline(StandardScaler(), forest()), 4),
    (make_pipeline(forest()), 4),
    (GridSearchCV(make_pipeline(StandardScaler(), forest()), {"randomforestclassifier__max_depth": [2]}, cv=2), 4),
]
WITHOUT_MEMBERS = [
    ensemble.VotingClassifier(TWO, voting="soft", weights=[1, 3]),
    CalibratedClassifierCV(forest(), ensemble=False, cv=2),
    ensemble.AdaBoostClassifier(n_estimators=3, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=2, random_state=0),
    ensemble.StackingClassifier(TWO, final_estimator=GaussianNB(), cv=2),
    GaussianNB(),
]


def test_members_average_to_what_the_classifier_says_wherever_they_are_wrapped():
    for as_frame in (False, True):
        x, y = rows(as_frame)
        for estimator, count in [*WITH_MEMBERS, (FrozenEstimator(forest().fit(x, y)), 4)]:
            pred = uq.Predictions.from_estimator(estimator.fit(x, y), x, y)
            assert len(pred.members) == count
            np.testing.assert_allclose(pred.members.mean(axis=0), estimator.predict_proba(x), atol=1e-6)


def test_estimators_whose_mean_is_not_what_the_classifier_says_are_no_members():
    x, y = rows()
    for estimator in WITHOUT_MEMBERS:
        pred = uq.Predictions.from_estimator(estimator.fit(x, y), x, y)
        assert pred.members is None
        np.testing.assert_allclose(pred.probs, estimator.predict_proba(x), atol=1e-6)
    assert uq.Predictions.from_estimator(forest().fit(x, y), x, y, members=False).members is None


def test_the_members_of_a_forest_are_its_trees():
    x, y = rows()
    estimator = forest().fit(x, y)
    trees = np.stack([tree.predict_proba(x) for tree in estimator.estimators_])
    np.testing.assert_allclose(uq.Predictions.from_estimator(estimator, x, y).members, trees, atol=1e-12)


def test_a_member_that_lacks_a_class_gives_it_no_probability():
    x, y = rows()
    estimator = WITH_MEMBERS[3][0].fit(x, y)
    lacking = [k for k, member in enumerate(estimator.estimators_) if len(member.classes_) == 2]
    pred = uq.Predictions.from_estimator(estimator, x, y)
    for k in lacking:
        absent = sorted(set(range(3)) - set(estimator.estimators_[k].classes_.tolist()))
        assert pred.members[k][:, absent].max() == 0
    assert lacking


def test_errors_are_those_of_predict_for_classes_of_any_kind():
    x, y = load_iris(return_X_y=True)
    for labels in (y, SPECIES[y], y + 5, y - 1.0, SPECIES[y].astype(object), y == 2):
        estimator = GaussianNB().fit(x[::2], labels[::2])
        pred = uq.Predictions.from_estimator(estimator, x, labels)
        np.testing.assert_array_equal(truth.error_of(pred), estimator.predict(x) != labels)
        assert pred.classes == tuple(str(value) for value in estimator.classes_.tolist())


def test_a_tuned_threshold_counts_by_what_it_predicts():
    x, y = rows()
    estimator = FixedThresholdClassifier(GaussianNB(), threshold=0.01, pos_label=True).fit(x, y == "virginica")
    pred = uq.Predictions.from_estimator(estimator, x, y == "virginica")
    wrong = estimator.predict(x) != (y == "virginica")
    assert wrong.sum() > (pred.probs.argmax(axis=1) != (y == "virginica")).sum()
    np.testing.assert_array_equal(truth.error_of(pred), wrong)


def test_a_class_that_the_estimator_never_met_has_probability_0_if_it_is_named():
    x, y = rows()
    known = y != "versicolor"
    estimator = forest().fit(x[known], y[known])
    with pytest.raises(uq.InputError, match=r"`y` holds 'versicolor' in row 50; .*classes=\[\.\.\.\]"):
        uq.Predictions.from_estimator(estimator, x, y)
    pred = uq.Predictions.from_estimator(estimator, x, y, classes=SPECIES)
    assert pred.classes == tuple(SPECIES)
    assert pred.probs[:, 1].max() == pred.members[:, :, 1].max() == 0
    assert truth.error_of(pred)[50:100].all()
    with pytest.raises(uq.InputError, match="`classes` lacks setosa"):
        uq.Predictions.from_estimator(estimator, x, y, classes=SPECIES[1:])


def test_the_order_of_the_classes_changes_their_names_and_nothing_else():
    x, y = rows()
    estimator = WITH_MEMBERS[3][0].fit(x, y)
    pred = uq.Predictions.from_estimator(estimator, x, y)
    turned = uq.Predictions.from_estimator(estimator, x, y, classes=SPECIES[[2, 0, 1]])
    assert turned.classes == tuple(SPECIES[[2, 0, 1]])
    np.testing.assert_array_equal(turned.probs, pred.probs[:, [2, 0, 1]])
    np.testing.assert_array_equal(turned.members, pred.members[:, :, [2, 0, 1]])
    np.testing.assert_array_equal(truth.error_of(turned), estimator.predict(x) != y)


def test_a_classifier_of_one_class_has_a_second_one_that_never_comes():
    x = np.zeros((3, 1))
    pred = uq.Predictions.from_estimator(DummyClassifier().fit(x, ["a"] * 3), x, ["a"] * 3)
    assert pred.classes == ("a", "not a")
    np.testing.assert_array_equal(pred.probs, [[1, 0]] * 3)


def test_weights_and_the_like_go_to_the_predictions():
    x, y = rows()
    pred = uq.Predictions.from_estimator(GaussianNB().fit(x, y), x, y, weights=np.arange(150.0), groups=y)
    assert pred.weights[7] == 7
    assert pred.group_names == tuple(SPECIES)


def test_what_cannot_be_read_is_refused_in_words():
    x, y = rows()
    cases = [
        (LinearSVC(dual=False).fit(x, y), y, "LinearSVC has no predict_proba.*CalibratedClassifierCV"),
        (GaussianNB(), y, "GaussianNB has no classes_. Fit it first"),
        (GaussianNB().fit(x, y), y[:-1], "`y` has 149 entries but `x` has 150 rows"),
        (GaussianNB().fit(x, y), np.stack([y, y], axis=1), r"`y` has shape \(150, 2\)"),
        (forest().fit(x, np.stack([y, y], axis=1)), y, "several labels per row"),
    ]
    for estimator, labels, message in cases:
        with pytest.raises(uq.InputError, match=message):
            uq.Predictions.from_estimator(estimator, x, labels)
