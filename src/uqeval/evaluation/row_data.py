"""What the metrics need of each row (scores, error, loss, …), computed once, when asked for; groups are slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels, truth
from uqeval import scores as score_functions
from uqeval._check import Float, Int, check_weight_values, recode
from uqeval._rows import logit_loss_rows, pick, top_class
from uqeval.inference.measure import Measurement
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inputs import Predictions
from uqeval.metrics.proper import brier_rows, log_loss_rows, right_rows, weighted_mean
from uqeval.metrics.registry import Metric

Column = NDArray[Any] | None
# What a user must give for each quantity.
_GIVEN: dict[str, tuple[str, ...]] = {
    "phi": ("soft_labels",),
    "varphi": ("soft_labels",),
    "confidence": ("probs",),
    "accuracy": ("error",),
}
_GIVEN |= {"brier": ("probs", "labels"), "log_loss": ("probs", "labels"), "loss in [0, 1]": ("error",)}


class RowData:
    """Columns by name, from wherever they come; `find` gives one, or None where it cannot be had."""

    def __init__(
        self,
        n: int,
        find: Callable[[str], Column],
        weights: Float | None = None,
        clusters: Int | None = None,
        pred: Predictions | None = None,
    ) -> None:
        self.rows = Rows(n, None if weights is None else check_weight_values(weights), clusters)
        self._pred = pred
        self._find, self._weights = find, weights
        self._columns: dict[str, Column] = {}
        self._samples: dict[tuple[str, str], Sample] = {}
        self._counts: dict[str, tuple[Int, Int]] = {}
        self._confidences: Confidences | None = None

    @classmethod
    def of(cls, pred: Predictions) -> RowData:
        """Of predictions."""
        return cls(pred.n, partial(_found, pred), pred.weights, pred.clusters, pred)

    def take(self, rows: Int) -> RowData:
        """Some of the rows, with what is computed already."""
        clusters = None if self.rows.clusters is None else recode(self.rows.clusters[rows])
        return RowData(
            len(rows), partial(_taken, self, rows), None if self._weights is None else self._weights[rows], clusters
        )

    @property
    def n(self) -> int:
        return self.rows.n

    def __getitem__(self, what: str) -> Column:
        """A quantity of `Metric.quantities`, "error", or "score " and a name."""
        if what not in self._columns:
            self._columns[what] = self._derived(what)
        return self._columns[what]

    def _derived(self, what: str) -> Column:
        error = self["error"] if what in ("loss in [0, 1]", "accuracy") else None
        if what == "accuracy":
            return None if error is None else right_rows(error)
        return self._find(what) if error is None else error

    @property
    def pred(self) -> Predictions:
        """The predictions behind all rows."""
        assert self._pred is not None
        return self._pred

    @property
    def weights(self) -> Float | None:
        return self.rows.weights

    @property
    def error(self) -> NDArray[np.uint8] | None:
        return self["error"]

    @property
    def share_loss(self) -> Column:
        """What the selective metrics take: the errors, or a user's loss in [0, 1] where there are none."""
        return self["loss in [0, 1]"]

    def score(self, name: str) -> Float:
        column = self[f"score {name}"]
        assert column is not None
        return column

    @property
    def accuracy(self) -> float | None:
        right = self["accuracy"]
        return None if right is None else weighted_mean(right, self.rows.weights)

    def missing(self, metric: Metric) -> tuple[str, ...]:
        """What the metric needs and these rows do not have."""
        lacking = [what for what in metric.quantities if self[what] is None]
        given = [name for what in lacking for name in _GIVEN.get(what, (what,))]
        absent = [name for name in given if getattr(self._pred, name, None) is None]
        return tuple(dict.fromkeys(absent or given))

    def tie_rate(self, name: str) -> float:
        """Share of the pairs of rows whose scores are equal."""
        order = kernels.order_by(self.score(name))
        return float((order.end - order.start - 1).sum()) / (self.n * (self.n - 1))

    def count_pairs(self, names: Iterable[str]) -> None:
        """Pair counts against the loss of all scores at once: the loss is sorted once, scores share the cores."""
        loss, names = self["loss"], list(names)
        if self.rows.plain and loss is not None:
            stacked = np.stack([self.score(name) for name in names])
            credit2, comparable = kernels.pair_counts(stacked, loss, threads=kernels.cores())
            self._counts |= {name: (credit2[k], comparable) for k, name in enumerate(names)}

    def measured(self, metric: Metric, score: str | None = None) -> Measurement:
        """The metric on these rows; what ranks one score against one target shares its sorting."""
        if metric.uses_score:
            return Measurement(metric, self._sample(str(score), metric.target), self.rows)
        if metric.tally == "ece":
            if self._confidences is None:
                self._confidences = Confidences(self._column("confidence"), self._column("accuracy"), self.rows)
            return Measurement(metric, self._confidences, self.rows)
        return Measurement(metric, self._column(metric.name), self.rows)

    def _column(self, what: str) -> NDArray[Any]:
        column = self[what]
        assert column is not None
        return column

    def _sample(self, name: str, what: str) -> Sample:
        target = self._column(what)
        if what == "loss in [0, 1]" and target is self["error"]:
            what = "error"  # the same sample as for the metrics that take nothing else
        if (name, what) not in self._samples:
            counts = self._counts.get(name) if what == "loss" else None
            self._samples[name, what] = Sample(self.score(name), target, self.rows, counts)
        return self._samples[name, what]


def _taken(data: RowData, rows: Int, what: str) -> Column:
    """Some rows of a column."""
    column = data[what]
    return None if column is None else column[rows]


def _found(pred: Predictions, what: str) -> Column:
    """A column of predictions."""
    if what.startswith("score "):
        return score_functions.compute(what.removeprefix("score "), pred)
    return _FINDERS[what](pred)


def _share_loss(pred: Predictions) -> Column:
    """What the selective metrics take where there are no errors."""
    loss = pred.loss
    if loss is None or loss.min() < 0 or loss.max() > 1:
        return None
    bits = loss != 0
    return bits.view(np.uint8) if np.array_equal(loss, bits) else loss  # 0/1 are errors, as in `estimate`


def _phi(pred: Predictions) -> Column:
    """Less 1, −π(prediction): only ranks matter, and 1 − π would round."""
    if pred.soft_labels is None or (pred.probs is None and pred.pred is None):
        return None
    return -pick(pred.soft_labels, truth.predicted_of(pred))


def _varphi(pred: Predictions) -> Column:
    """Less 1, −p̂(Bayes label)."""
    if pred.soft_labels is None or pred.probs is None:
        return None
    return -pick(pred.probs, top_class("soft_labels", pred.soft_labels))


def _confidence(pred: Predictions) -> Column:
    if pred.probs is None or (pred.error is None and pred.labels is None):
        return None
    return pred.probs.max(axis=1) if pred.pred is None else pick(pred.probs, pred.pred)


def _brier(pred: Predictions) -> Column:
    return None if pred.probs is None or pred.labels is None else brier_rows(pred.probs, pred.labels)


def _log_loss(pred: Predictions) -> Column:
    if pred.probs is None or pred.labels is None:
        return None
    if pred.logits is not None and pred.logits_match:
        return logit_loss_rows(pred.logits, pred.labels)  # without underflow
    return log_loss_rows(pred.probs, pred.labels)


_FINDERS: dict[str, Callable[[Predictions], Column]] = {
    "error": truth.error_of,
    "loss": truth.loss_of,
    "loss in [0, 1]": _share_loss,
    "phi": _phi,
    "varphi": _varphi,
    "confidence": _confidence,
    "brier": _brier,
    "log_loss": _log_loss,
}
