"""A classifier that says "I do not know": the label inside the region, all labels outside.

The paper states the coverage of its sets as γ; it is 1 − γ·P(score ≤ β), between the accuracy and 1.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import truth
from uqeval._check import check_codes, check_labels, check_lengths, check_level, check_probs
from uqeval._errors import InputError, a_type
from uqeval._result import Result
from uqeval.decide.threshold import Threshold
from uqeval.decide.walks import METHODS
from uqeval.inference.measure import estimate_share
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Rows


@dataclass(frozen=True)
class SetReport(Result):
    """How often the set holds the true label, and how large it is."""

    coverage: Estimate  # P(label in set)
    size: Estimate  # labels per set
    single: Estimate  # share of inputs that get a single label
    n: int
    n_classes: int

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per number."""
        named = {"coverage": self.coverage, "size": self.size, "single": self.single}
        return [{"quantity": q, "value": e.value, "low": e.low, "high": e.high, "n": e.n} for q, e in named.items()]

    def __str__(self) -> str:
        return (
            f"the set holds the label: {self.coverage}; labels per set: {self.size} of {self.n_classes}; "
            f"a single label: {self.single}; {self.n:,} rows"
        )


class SetValuedClassifier:
    """The predicted label where score ≤ threshold, all labels elsewhere.

    Parameters
    ----------
    threshold : Threshold
        From `choose_threshold`. Methods "rcps" and "crc" promise P(label in set) ≥ 1 − max_risk directly; the others
        promise a risk of at most max_risk among the single labels, hence P(label in set) ≥ 1 − max_risk·P(single).

    Examples
    --------
    >>> from uqeval.decide import Threshold
    >>> sets = SetValuedClassifier(Threshold.from_value(0.5, max_risk=0.05))
    >>> sets.predict(probs=[[0.9, 0.1], [0.4, 0.6]], score=[0.2, 0.7])
    array([[ True, False],
           [ True,  True]])
    """

    def __init__(self, threshold: Threshold) -> None:
        given: Any = threshold
        if not isinstance(given, Threshold):
            raise InputError(f"`threshold` is {a_type(given)}. Pass what choose_threshold returned (one target).")
        self.threshold = threshold

    @property
    def coverage_bound(self) -> float:
        """P(label in set) is at least that, with the threshold's confidence (on average for "crc").

        NaN where the threshold promises nothing about the labels themselves: for a loss, for misalignment with the
        majority label, or for a threshold fixed by hand. With ``cluster_method="subsample"`` it is for one input per
        cluster.
        """
        return 1.0 - self.threshold.max_risk * self._known() if self.threshold.feasible else 1.0

    @property
    def expected_coverage(self) -> float:
        """1 − max_risk·P(score ≤ value), or 1 − max_risk for a joint risk: the bound at the observed coverage."""
        t = self.threshold
        return 1.0 - t.max_risk * self._known() * (1.0 if t.joint else t.coverage) if t.feasible else 1.0

    def _known(self) -> float:
        """1 where the promise is about wrong labels, else NaN."""
        return 1.0 if self.threshold.what == "error" and self.threshold.method in METHODS else math.nan

    def predict(self, probs: ArrayLike, score: ArrayLike, *, pred: ArrayLike | None = None) -> NDArray[np.bool_]:
        """(n, K) booleans: which labels are in each row's set. `pred` replaces the most probable class."""
        p = check_probs(probs)
        inside = self.threshold.accept(score)
        chosen = truth.predicted_labels(p) if pred is None else check_labels(pred, p.shape[1], name="pred")
        check_lengths(0, probs=p, score=inside, pred=chosen)
        sets = np.ones(p.shape, dtype=np.bool_)
        sets[inside] = False
        sets[inside, chosen[inside]] = True
        return sets

    def evaluate(
        self,
        probs: ArrayLike,
        score: ArrayLike,
        labels: ArrayLike,
        *,
        pred: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        level: float | None = None,
    ) -> SetReport:
        """How often the set holds the label, with interval, and how large it is. Use rows that chose nothing.

        Parameters
        ----------
        probs, score, pred
            As for `predict`.
        labels : array-like of shape (n,)
            True classes 0..K-1.
        clusters : array-like of shape (n,), optional
            Independent units.
        level : float, optional
            Of the intervals; that of the threshold by default.
        """
        sets = self.predict(probs, score, pred=pred)
        y = check_labels(labels, sets.shape[1])
        codes = None if clusters is None else check_codes("clusters", clusters)[0]
        n = check_lengths(probs=sets, labels=y, clusters=codes)
        level = self.threshold.level if level is None else check_level(level)
        k, rows = sets.shape[1], Rows(n, None, codes)
        coverage = estimate_share(sets[np.arange(n), y], rows, level)
        single = estimate_share(sets.sum(axis=1) <= 1, rows, level)
        # The size is K less (K − 1) for each single label: an exact line.
        value, high, low = (k - (k - 1) * share for share in (single.value, single.low, single.high))
        size = replace(single, value=value, low=low, high=high, se=(k - 1) * single.se, n_eff=None)
        return SetReport(coverage=coverage, size=size, single=single, n=n, n_classes=k)
