"""`MetaClassifier`: it learns where a model is wrong, from rows that the model has not met, and does not flatter."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import uqeval as uq

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from uqeval.methods import MetaClassifier


@pytest.fixture(scope="module")
def strip():
    """Held-out rows and test rows of a model that does not see where its labels are thrown: predictions, inputs."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (2400, 2))
    thrown = (x[:, 1] > 0.4) & (rng.random(2400) < 0.5)
    y = (x[:, 0] + 0.3 * rng.normal(size=2400) > 0) ^ thrown
    model = LogisticRegression().fit(x[:400, :1], y[:400])
    pred = uq.Predictions.from_estimator(model, x[:, :1], y)
    return (pred.take(range(400, 1400)), x[400:1400]), (pred.take(range(1400, 2400)), x[1400:])


def failures(estimator):
    results = check_estimator(estimator, on_fail=None)
    assert sum(result["status"] == "passed" for result in results) > 50
    return {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_passes_the_checks_of_scikit_learn():
    assert failures(MetaClassifier(GaussianNB(), cv=2)) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_passes_the_checks_of_scikit_learn_with_its_defaults_and_with_trees():
    for estimator in (MetaClassifier(), MetaClassifier(RandomForestClassifier(10, random_state=0), cv=2)):
        assert failures(estimator) == {}


def test_its_score_beats_a_random_one_and_the_models_own_on_rows_that_nobody_met(strip):
    train, (pred, x) = strip
    meta = MetaClassifier(RandomForestClassifier(50, min_samples_leaf=10, random_state=0)).fit(train)
    scores = {
        "meta": meta.score_samples((pred, x)),
        "entropy": uq.scores.entropy(pred.probs),
        "random": np.random.default_rng(0).random(pred.n),
    }
    error = uq.truth.error_of(pred)
    ev = uq.evaluate(score=scores, error=error, metrics=["uq_auc"])
    assert ev["meta", "uq_auc"].low > max(ev["random", "uq_auc"].high, 0.55)
    for pair in uq.compare(scores, error=error, metric="uq_auc", baseline="meta"):
        assert pair.high < 0 or pair.low > 0


def test_on_the_output_alone_it_finds_what_the_output_tells(strip):
    (train, _), (pred, _) = strip
    meta = MetaClassifier().fit(train)
    ev = uq.evaluate(score=meta.score_samples(pred), error=uq.truth.error_of(pred), metrics=["uq_auc"])
    assert ev["score", "uq_auc"].low > 0.55


def test_the_cross_fitted_score_is_that_of_classifiers_that_have_not_seen_the_row(strip):
    (pred, x), _ = strip
    tree, error = DecisionTreeClassifier(random_state=0), uq.truth.error_of(pred)
    meta = MetaClassifier(tree, random_state=7).fit(x, error)
    folds = StratifiedKFold(5, shuffle=True, random_state=7)
    by_hand = cross_val_predict(tree, x, error, cv=folds, method="predict_proba")[:, 1]
    np.testing.assert_array_equal(meta.cross_fitted_, by_hand)
    # The tree knows its own rows by heart; how good it is, the cross-fitted score tells.
    assert uq.metrics.uq_auc(meta.score_samples(x), error) == 1
    assert uq.metrics.uq_auc(meta.cross_fitted_, error) < 0.75


def test_clusters_of_the_predictions_stay_together_in_cross_fitting():
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(60), 5)
    x = rng.normal(size=(60, 3))[patient]  # copies: a tree that has met the patient knows the answer
    error = (rng.random(60) < 0.4)[patient]
    apart = uq.Predictions(error=error, probs=np.full(300, 0.2))
    together = uq.Predictions(error=error, probs=np.full(300, 0.2), clusters=patient)
    tree = MetaClassifier(DecisionTreeClassifier(random_state=0))
    assert uq.metrics.uq_auc(tree.fit((apart, x)).cross_fitted_, error) > 0.95
    assert uq.metrics.uq_auc(tree.fit((together, x)).cross_fitted_, error) < 0.75


def test_with_a_single_mistake_nothing_is_cross_fitted():
    x = np.arange(12.0)[:, None]
    meta = MetaClassifier(GaussianNB()).fit(x, [0] * 11 + [1])
    assert np.isnan(meta.cross_fitted_).all()
    assert meta.score_samples(x).argmax() == 11


def test_what_it_cannot_learn_from_is_refused_in_words(strip):
    (pred, x), _ = strip
    with pytest.raises(uq.InputError, match="met only one class: it needs right and wrong predictions"):
        MetaClassifier().fit(x, np.zeros(len(x)))
    with pytest.raises(uq.InputError, match=r"The features have shape \(1000,\). Pass \(1000, d\)"):
        MetaClassifier().fit((pred, x[:, 0]))
    with pytest.raises(uq.InputError, match="`cv`"):
        MetaClassifier(cv=1).fit(pred)
    with pytest.raises(uq.InputError, match="`estimator` is a LinearSVC without predict_proba"):
        MetaClassifier(LinearSVC()).fit(pred)
    with pytest.raises(uq.InputError, match="Only binary classification is supported"):
        MetaClassifier().fit(x, np.arange(1000) % 3)


def test_it_needs_scikit_learn_and_not_torch():
    names = ("methods.MetaClassifier", "sklearn")
    code = "import sys, uqeval\nsys.modules['sklearn'] = None\n"
    code += "".join(f"try: uqeval.{name}\nexcept uqeval.MissingExtra as e: print(e)\n" for name in names)
    code += "del sys.modules['sklearn']\nuqeval.methods.MetaClassifier\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line = 'uqeval.{} needs scikit-learn. Install it with: pip install "uqeval[sklearn]"'
    assert done.stdout.splitlines() == [*(line.format(name) for name in names), "False"]
