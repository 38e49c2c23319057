"""Scorers for `cross_val_score`, `GridSearchCV` and the like: a metric of an estimator's uncertainty."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from uqeval import truth
from uqeval._check import to_array
from uqeval._errors import InputError
from uqeval._rows import pick
from uqeval.inputs import Predictions
from uqeval.inputs.estimator import known_classes
from uqeval.metrics.registry import Metric, get_metric
from uqeval.sklearn.uncertainty import Score, check_score, needs_members, uncertainty_of

# What a metric is given, from predictions; all metrics that need other things need what no scorer sees.
_COLUMNS: dict[str, Callable[[Predictions], Any]] = {
    "error": truth.error_of,
    "loss": truth.loss_of,
    "correct": lambda pred: truth.predicted_of(pred) == pred.labels,
    "confidence": lambda pred: pick(np.asarray(pred.probs), truth.predicted_of(pred)),
    "probs": attrgetter("probs"),
    "labels": attrgetter("labels"),
}
_OWN = ("weights", "nan")  # which the scorer gives


def make_uq_scorer(metric: str = "uq_auc", score: Score = "entropy", **options: Any) -> UQScorer:
    """A scorer that judges an estimator's uncertainty, for `cross_val_score`, `GridSearchCV`, `cross_validate`.

    Parameters
    ----------
    metric : str
        A name of `uqeval.metrics.REGISTRY`. As everywhere in scikit-learn a scorer's higher value is better: a metric
        of which lower is better is negated, as scikit-learn's ``neg_log_loss`` is.
    score : str or callable
        The uncertainty: a name of `uqeval.scores.available` that needs probabilities or members; a function of the
        (n, K) probabilities; or a function of (estimator, X) that returns n values, high where it is less sure.
    **options
        Of the metric, as ``coverage=0.7`` of "selective_accuracy_80" or ``bins=10`` of "ece".

    Returns
    -------
    UQScorer
        ``scorer(estimator, X, y, sample_weight=None)`` → float; NaN, with a warning, where the fold has no wrong (or no
        right) row and the metric needs both.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> x, y = load_iris(return_X_y=True)
    >>> scorer = make_uq_scorer("aurc", score="margin")
    >>> scorer
    UQScorer(metric='aurc', score='margin')
    >>> cross_val_score(LogisticRegression(C=0.01), x, y, scoring=scorer, cv=3).round(2)
    array([-0.05, -0.02, -0.02])
    """
    scorer = UQScorer(metric, score, options or None)
    scorer.check()
    return scorer


class UQScorer(BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """What `make_uq_scorer` returns: a scorer that can be pickled, cloned and routed.

    Weights come in as `sample_weight`: with metadata routing after ``set_score_request(sample_weight=True)``; without
    routing `GridSearchCV.fit(…, sample_weight=)` hands them on by itself, and `cross_val_score` does not.

    Parameters
    ----------
    metric, score
        As in `make_uq_scorer`.
    options : dict, optional
        Of the metric.
    """

    def __init__(self, metric: str = "uq_auc", score: Score = "entropy", options: dict[str, Any] | None = None) -> None:
        self.metric = metric
        self.score = score
        self.options = options

    @property
    def name(self) -> str:
        """The metric's name, with ``neg_`` where its value is negated."""
        return ("neg_" if get_metric(self.metric).direction == "lower" else "") + self.metric

    def check(self) -> Metric:
        """The metric; refuses names, scores and options that cannot work."""
        metric = get_metric(self.metric)
        if absent := [need for need in metric.needs if need != "score" and need not in _COLUMNS]:
            raise InputError(f'"{self.metric}" needs {", ".join(absent)}, which a scorer never sees. Use uq.evaluate.')
        check_score(self.score)
        known = [p.name for p in inspect.signature(metric.function).parameters.values() if p.kind == p.KEYWORD_ONLY]
        known = [name for name in known if name not in _OWN]
        if wrong := [name for name in self.options or () if name not in known]:
            raise InputError(f'"{self.metric}" has no option {wrong[0]!r}. Options: {", ".join(known) or "none"}.')
        return metric

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The metric of a fitted estimator on these rows."""
        metric = self.check()
        if y is None:
            raise InputError("`y` is None. A scorer of uncertainty needs the true labels.")
        known = known_classes(estimator)
        own = set(known)
        # A fold may have met fewer classes than it is judged on.
        classes = [*known, *(label for label in np.unique(to_array("y", y)).tolist() if label not in own)]
        pred = Predictions.from_estimator(
            estimator, X, y, members=needs_members(self.score), classes=classes, weights=sample_weight
        )
        columns = {name: find(pred) for name, find in _COLUMNS.items() if name in metric.needs}
        if metric.uses_score:
            columns["score"] = uncertainty_of(self.score, estimator, X, pred)
        given = (columns[name] for name in metric.needs)
        value = metric.function(*given, weights=pred.weights, **(self.options or {}))
        return 0.0 - value if metric.direction == "lower" else value

    # Written out, since scikit-learn gives these two to what has a method `score`, which is a parameter here. It copies
    # `_metadata_request` where it clones.

    def set_score_request(self, *, sample_weight: bool | str | None = None) -> UQScorer:
        """Whether (or under which name) metadata routing hands weights to the scorer; None: weights are an error."""
        self._metadata_request = _request(sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """What it asks for, for scikit-learn's metadata routing."""
        return get_routing_for_object(getattr(self, "_metadata_request", None) or _request(None))

    def _accept_sample_weight(self) -> bool:
        """Asked by scikit-learn where several scorers share a search."""
        return True


def _request(sample_weight: bool | str | None) -> MetadataRequest:
    request = MetadataRequest(owner="UQScorer")
    request.score.add_request(param="sample_weight", alias=sample_weight)
    return request
