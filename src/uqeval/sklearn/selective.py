"""A classifier that abstains: it wraps any other, and what it accepts is wrong no more often than it was told to be.

The statistics are those of `decide`; this module holds rows back for them, and speaks scikit-learn.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from uqeval._check import Float, check_choice
from uqeval._errors import InputError, notify
from uqeval.decide import SetValuedClassifier, Threshold, choose_threshold
from uqeval.decide.rows import check_target
from uqeval.inputs.estimator import Outputs, at_least_two, class_codes, known_classes, outputs_of
from uqeval.sklearn.uncertainty import Score, check_score, needs_members, uncertainty_of


class SelectiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """Wraps a classifier; accepts the rows below a certified threshold of an uncertainty score, abstains elsewhere.

    `fit` trains the classifier on one part of the rows and certifies the threshold on the others: with confidence
    `level`, at most `max_risk` of the accepted inputs are wrong (`threshold_.promise` says it in words). Where nothing
    can be certified it warns, says how many rows would be needed, and accepts nothing.

    `predict` abstains once you declare how: by `abstain_label`. Without one every row gets a label, as scikit-learn's
    tools expect of a classifier, with a warning that counts those that are not accepted; act on `accepts` then.
    `score`, the accuracy of `predict`, counts an abstention as a mistake.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`; it is cloned, unless ``cv="prefit"``.
    uncertainty : str or callable
        What `make_uq_scorer` calls the score; here that is the name of a method that every classifier has.
    max_risk, level, method
        As in `uqeval.choose_threshold`.
    calibration_size : float or int
        Share or number of the rows that certify the threshold. Drawn at random and not by class, which the promise
        rests on.
    cv : "prefit", optional
        The estimator is fitted already, on other rows: all rows of `fit` certify.
    abstain_label : object, optional
        What `predict` gives for the rows that are not accepted, as -1 or "ask"; no class may have that name.
    random_state : int, RandomState or None
        Chooses the rows that are held back.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on the other rows.
    threshold_ : Threshold
        With `value`, `coverage`, `risk_bound`, `promise`, `check` for rows to come, `to_json`.
    classes_ : ndarray of shape (K,)
        All classes of `y`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> x, y = load_digits(return_X_y=True)
    >>> clf = SelectiveClassifier(GaussianNB(), max_risk=0.1, abstain_label=-1).fit(x[:1200], y[:1200])
    >>> print(clf.threshold_.promise)  # doctest: +NORMALIZE_WHITESPACE
    With 95% confidence, at most 10% of the accepted inputs are wrong.
    This holds if inputs to come are drawn as these rows were, each independently of the others.
    >>> clf.predict(x[1200:1206])
    array([ 7, -1,  5,  5,  1,  0])
    """

    def __init__(
        self,
        estimator: Any,
        uncertainty: Score = "gap_to_certain",
        *,
        max_risk: float = 0.05,
        level: float = 0.95,
        method: str = "step-down",
        calibration_size: float = 0.3,
        cv: str | None = None,
        abstain_label: Any = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.uncertainty = uncertainty
        self.max_risk = max_risk
        self.level = level
        self.method = method
        self.calibration_size = calibration_size
        self.cv = cv
        self.abstain_label = abstain_label
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Trains on one part of the rows, and certifies the threshold on the others."""
        check_score(self.uncertainty)
        labels = _check_labels(y)
        self.classes_ = np.unique(labels)
        if self.abstain_label is not None and self.abstain_label in self.classes_.tolist():
            raise InputError(f"`abstain_label` is {self.abstain_label!r}, which is a class. Choose another.")
        if self.cv is None:
            train, held, y_train, y_held = train_test_split(
                X, labels, test_size=self.calibration_size, random_state=self.random_state
            )
            self.estimator_ = clone(self.estimator).fit(train, y_train)
        else:
            check_choice("cv", self.cv, ("prefit",))
            self.estimator_, held, y_held = self.estimator, X, labels
            self.classes_ = np.union1d(self.classes_, known_classes(self.estimator_))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        wrong = np.asarray(self.estimator_.predict(held)) != y_held
        self.threshold_: Threshold = choose_threshold(
            self._named_score(held), wrong, max_risk=check_target(self.max_risk), level=self.level, method=self.method
        )
        if not self.threshold_.feasible:
            notify(f"SelectiveClassifier accepts nothing. {self.threshold_.statement()}")
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The classifier's labels; `abstain_label`, if there is one, for rows that are not accepted."""
        check_is_fitted(self)
        labels = np.asarray(self.estimator_.predict(X))
        inside = self.accepts(X)
        if self.abstain_label is None:
            if (count := int((~inside).sum())) > 0:
                notify(
                    f"{count} of {len(inside)} rows are not accepted and were given labels all the same. Declare an "
                    f"abstain_label, or act on those of accepts(X) alone."
                )
            return labels
        other = np.asarray(self.abstain_label)
        alike = {labels.dtype.kind, other.dtype.kind}
        if not (alike <= set("biuf") or alike == {"U"}):  # np.where would write numbers as text
            labels = labels.astype(object)
        return np.where(inside, labels, other)

    def accepts(self, X: Any) -> NDArray[np.bool_]:
        """True for the rows that one may act on: uncertainty ≤ threshold."""
        return self.threshold_.accept(self._named_score(X))

    def predict_proba(self, X: Any) -> Float:
        """(n, K) probabilities of the classifier, also of the rows that are not accepted."""
        return self._outputs(X).probs[:, : len(self.classes_)]

    def predict_set(self, X: Any) -> NDArray[np.bool_]:
        """(n, K) booleans: the classifier's label for rows that are accepted, all labels for the others."""
        known = self.classes_.tolist()
        chosen = class_codes("predict(X)", self.estimator_.predict(X), known, known)
        sets = SetValuedClassifier(self.threshold_)
        return sets.predict(self._outputs(X).probs, self.score_samples(X), pred=chosen)[:, : len(known)]

    def score_samples(self, X: Any) -> Float:
        """The uncertainty of each row: higher means less sure."""
        return uncertainty_of(self.uncertainty, self.estimator_, X, self._outputs(X))

    def _named_score(self, X: Any) -> dict[str, Float]:
        """By name, so that the threshold is never used with another score."""
        own = self.uncertainty
        name = own if isinstance(own, str) else getattr(own, "__name__", "score")
        return {name: self.score_samples(X)}

    def _outputs(self, X: Any) -> Outputs:
        check_is_fitted(self)
        names = at_least_two(self.classes_.tolist())
        return outputs_of(self.estimator_, X, names, members=needs_members(self.uncertainty))

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:  # of a regressor, which `fit` refuses
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
            tags.classifier_tags.poor_score = inner.classifier_tags.poor_score
        return tags


def _check_labels(y: ArrayLike) -> NDArray[Any]:
    """One label per row, as scikit-learn asks for it."""
    if y is None:
        raise InputError("SelectiveClassifier requires y to be passed, but the target y is None.")
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels
