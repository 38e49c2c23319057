"""What the metrics need of each row (scores, error, loss, …), computed once, when asked for; groups are slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels, truth
from uqeval import scores as score_functions
from uqeval._check import Float, Int, check_weight_values
from uqeval._rows import logit_loss_rows, pick, top_class
from uqeval.inference.count import count_sample
from uqeval.inference.measure import Measurement
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inputs import Predictions
from uqeval.metrics.areas import Ranking, Swept
from uqeval.metrics.proper import brier_rows, log_loss_rows, right_rows, weighted_mean
from uqeval.metrics.registry import Metric
from uqeval.scores.registry import compute_all

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
        ranked: Callable[[str], Ranking] | None = None,
    ) -> None:
        self.rows = Rows(n, None if weights is None else check_weight_values(weights), clusters)
        self._pred = pred
        self._find, self.given_weights = find, weights
        self._ranked = ranked or self._column_ranked
        self._columns: dict[str, Column] = {}
        self._samples: dict[tuple[str, str], Sample] = {}
        self._rankings: dict[str, Ranking] = {}
        self._confidences: Confidences | None = None
        self.kept: dict[Any, Any] = {}  # what charts and pages make of the rows, once

    @classmethod
    def of(cls, pred: Predictions) -> RowData:
        """Of predictions."""
        return cls(pred.n, partial(_found, pred), pred.weights, pred.clusters, pred)

    def __getstate__(self) -> dict[str, Any]:
        """Without orders and counts, which can be made again."""
        return self.__dict__ | {"_samples": {}, "_rankings": {}, "_confidences": None, "kept": {}}

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
        if (error := self["error"]) is None:
            return None
        if self.rows.weights is None:
            return (self.n - int(np.count_nonzero(error))) / self.n
        return weighted_mean(right_rows(error), self.rows.weights)

    def missing(self, metric: Metric) -> tuple[str, ...]:
        """What the metric needs and these rows do not have."""
        lacking = [what for what in metric.quantities if self[what] is None]
        given = [name for what in lacking for name in _GIVEN.get(what, (what,))]
        absent = [name for name in given if getattr(self._pred, name, None) is None]
        return tuple(dict.fromkeys(absent or given))

    def find_columns(self) -> None:
        """What the metrics of the model itself need: columns of many rows share the cores."""
        if self._pred is not None and self._pred.probs is not None:
            wanted = ("loss", "confidence", "brier", "log_loss")
            kernels.side_by_side([partial(self.__getitem__, what) for what in wanted], self.n)

    def compute_scores(self, names: Iterable[str]) -> None:
        """All scores in one pass over the probabilities."""
        found = compute_all(names, self.pred)
        self._columns |= {f"score {name}": values for name, values in found.items()}

    def ranking(self, what: str) -> Ranking:
        """A column as a ranking: sorted once, whoever asks."""
        if what not in self._rankings:
            self._rankings[what] = self._ranked(what)
        return self._rankings[what]

    def _column_ranked(self, what: str) -> Ranking:
        return Ranking(self._column(what).astype(np.float64, copy=False))

    def tie_rate(self, name: str) -> float:
        """Share of the pairs of rows whose scores are equal."""
        sample = self._samples.get((name, "error"))
        swept = None if sample is None else sample.ranked
        pairs = swept.sums.tied_pairs if isinstance(swept, Swept) else self.ranking(f"score {name}").order.tied_pairs
        return pairs / (self.n * (self.n - 1))

    def count(self, names: Iterable[str], metrics: Iterable[Metric], *, by_row: bool = False) -> None:
        """All tallies of the scores, which share the cores; whatever is asked, a score is sorted once.

        Where 0/1 errors of plain rows are all there is, their order is enough, without the rows: unless `by_row`.
        """
        with kernels.held():
            self._count(list(names), list(metrics), by_row or not self.rows.plain)

    def _count(self, names: list[str], metrics: list[Metric], by_row: bool) -> None:
        for what in {metric.target for metric in metrics}:
            if self._column(what).dtype != np.uint8:
                by_row = True
                self.ranking(what).order  # noqa: B018  here, before scores share the cores
        jobs = []
        for name in names:
            samples = [(metric, self._sample(name, metric.target)) for metric in metrics]
            jobs.append(partial(_count, self.ranking(f"score {name}"), samples, by_row))
        kernels.side_by_side(jobs, self.n)

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

    def same_target(self, what: str) -> str:
        """Errors in place of a loss in [0, 1] where that is what they are: one sample for the metrics of both."""
        return "error" if what == "loss in [0, 1]" and self[what] is self["error"] else what

    def _sample(self, name: str, what: str) -> Sample:
        target, what = self._column(what), self.same_target(what)
        if (name, what) not in self._samples:
            losses = None if target.dtype == np.uint8 else self.ranking(what)
            self._samples[name, what] = Sample(self.ranking(f"score {name}"), target, self.rows, losses)
        return self._samples[name, what]


def _count(ranking: Ranking, samples: list[tuple[Metric, Sample]], by_row: bool) -> None:
    """All tallies of a score."""
    if by_row:
        ranking.order  # noqa: B018  first of all: marks and counts are made from it
    for metric, sample in samples:
        if metric.tally == "auc" and sample.rows.weights is None:
            sample.ranked  # noqa: B018  one sweep for all, the share of ties too
        count_sample(metric, sample)


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
