"""A second classifier that learns, on rows held out from the first, which of its predictions will be wrong.

It learns from the output of the first, features of the inputs, or both. How good its score is, is left to `evaluate`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from uqeval import truth
from uqeval._check import Float, check_count
from uqeval._errors import InputError, a_type
from uqeval.inputs import Predictions
from uqeval.scores.registry import available, compute_all


class MetaClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """Learns which predictions of another model will be wrong, by any scikit-learn classifier.

    Train it on rows that the other model was not trained on: where a model knows the labels by heart it is never wrong,
    and there is nothing to learn. The idea of a second model that predicts the mistakes of the first is that of
    confidence networks (Corbière et al. 2019, "Addressing failure prediction by learning model confidence") and of
    detectors of misclassification (Qiu & Miikkulainen 2022).

    `fit`, `predict`, `predict_proba` and `score_samples` take, as their first argument, `Predictions` (the features are
    then logits or probabilities, and all scores that they allow), an array of features of shape (n, d), or a pair of
    both. Weights of the predictions are not used; their clusters stay together in cross-fitting.

    Parameters
    ----------
    estimator : classifier, optional
        With `predict_proba`. Default: logistic regression on standardised features.
    cv : int
        Folds of the cross-fitting (fewer, where there are fewer mistakes).
    random_state : int, RandomState or None
        Shuffles the folds.

    Attributes
    ----------
    cross_fitted_ : ndarray of shape (n,)
        The score of each row of `fit`, by a classifier that has not seen it: as good as it will be on new rows, where
        `score_samples` of the same rows would flatter. NaN with less than two mistakes, or two right rows.
    classes_ : ndarray of shape (2,)
        The two values of the error; the second is "wrong".
    estimator_ : classifier
        Fitted on all rows.

    Examples
    --------
    >>> import uqeval as uq
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (2000, 2))
    >>> coin = (x[:, 1] > 0.5) & (rng.random(2000) < 0.5)  # labels up there are thrown, which the model does not know
    >>> y, model = (x[:, 0] > 0) ^ coin, LogisticRegression().fit(x[:, :1], x[:, 0] > 0)
    >>> pred = uq.Predictions.from_estimator(model, x[:, :1], y)
    >>> held_out, test = pred.take(range(1000)), pred.take(range(1000, 2000))
    >>> meta = MetaClassifier(DecisionTreeClassifier(max_depth=2)).fit((held_out, x[:1000]))
    >>> scores = {"meta": meta.score_samples((test, x[1000:])), "entropy": uq.scores.entropy(test.probs)}
    >>> ev = uq.evaluate(score=scores, error=uq.truth.error_of(test), metrics=["uq_auc"])
    >>> print(ev["meta", "uq_auc"], ev["entropy", "uq_auc"])
    0.928 (0.908–0.942) 0.444 (0.389–0.499)
    """

    def __init__(
        self, estimator: Any = None, *, cv: int = 5, random_state: int | np.random.RandomState | None = 0
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learns from held-out rows.

        Parameters
        ----------
        X : Predictions, array of shape (n, d), or a pair of both
            Held-out rows.
        y : array-like of shape (n,), optional
            1 where the prediction is wrong; with predictions, their own error by default.
        """
        if y is None and (pred := _predictions_in(X)) is not None:
            y = truth.error_of(pred)
        features, error = validate_data(self, _features(X), y)
        check_classification_targets(error)
        if (kind := type_of_target(error)) != "binary":
            raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, wrong = np.unique(error, return_inverse=True)
        if len(self.classes_) != 2:
            raise InputError("MetaClassifier met only one class: it needs right and wrong predictions to learn from.")
        default = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model = default if self.estimator is None else self.estimator
        fitted = clone(model).fit(features, wrong)
        if not hasattr(fitted, "predict_proba"):  # of some it is not known before
            raise InputError(f"`estimator` is {a_type(model)} without predict_proba. Pass one that has it.")
        self.cross_fitted_ = self._cross_fitted(model, features, wrong, _predictions_in(X))
        self.estimator_ = fitted
        return self

    def predict_proba(self, X: Any) -> Float:
        """(n, 2) probabilities that the prediction is right, and that it is wrong."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(validate_data(self, _features(X), reset=False)))

    def score_samples(self, X: Any) -> Float:
        """The uncertainty of each row: the probability that the prediction is wrong."""
        return self.predict_proba(X)[:, 1]

    def predict(self, X: Any) -> NDArray[Any]:
        """Which of `classes_` each error is expected to be."""
        probs = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[probs.argmax(axis=1)]
        return found

    def _cross_fitted(self, model: Any, features: Float, wrong: NDArray[Any], pred: Predictions | None) -> Float:
        clusters = None if pred is None else pred.clusters
        folds = min(check_count("cv", self.cv, 2), int(np.bincount(wrong).min()))
        if folds < 2:
            return np.full(len(wrong), np.nan)
        kind = StratifiedKFold if clusters is None else StratifiedGroupKFold
        splits = kind(folds, shuffle=True, random_state=self.random_state)
        found = cross_val_predict(model, features, wrong, groups=clusters, cv=splits, method="predict_proba")
        return np.asarray(found)[:, 1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _predictions_in(X: Any) -> Predictions | None:
    """Those among what was given."""
    first = X[0] if isinstance(X, tuple) and X else X
    return first if isinstance(first, Predictions) else None


def _features(X: Any) -> Any:
    """A column per logit (or probability) and score of the predictions, beside what else was given."""
    if isinstance(X, Predictions):
        output = X.probs if X.logits is None else X.logits
        columns = [] if output is None else [output]
        return np.column_stack([*columns, *compute_all(available(X), X).values()])
    if isinstance(X, tuple) and len(X) == 2 and isinstance(X[0], Predictions):
        own, more = _features(X[0]), np.asarray(X[1])
        if more.ndim != 2 or len(more) != len(own):
            raise InputError(f"The features have shape {more.shape}. Pass ({len(own)}, d), a row per prediction.")
        return np.column_stack([own, more])
    return X
