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
from uqeval._errors import InputError
from uqeval._rows import logit_loss_rows, mirrored, pick, rank_loss_rows, top_class
from uqeval.inference.count import count_sample
from uqeval.inference.measure import Measurement
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inputs import Predictions
from uqeval.metrics.areas import Ranking
from uqeval.metrics.copies import Copies, find_copies
from uqeval.metrics.proper import brier_rows, log_loss_rows, right_rows, weighted_mean
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import Swept
from uqeval.scores.registry import compute_all, one_ranking

Column = NDArray[Any] | None
_NEAR_ONE = 0.99  # confidences above it are ordered by the logits; below it 14 digits of 1 − confidence are left
# What a user must give for each quantity.
_GIVEN: dict[str, tuple[str, ...]] = {
    "signed confidence": ("probs", "labels"),
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
        largest_cluster: int | None = None,
    ) -> None:
        w = None if weights is None else check_weight_values(weights)
        self.rows = Rows.checked(n, w, clusters, largest_cluster)
        self._pred = pred
        self._find, self.given_weights = find, weights
        self._ranked = ranked or self._column_ranked
        self._columns: dict[str, Column] = {}
        self._samples: dict[tuple[str, str], Sample] = {}
        self._rankings: dict[str, Ranking] = {}
        self._confidences: Confidences | None = None
        self.copies = Copies()  # scores that rank as others do, of those that were looked at
        self.risk: str | None = None  # "error" or "loss": what the selective metrics take where both are known
        self.kept: dict[Any, Any] = {}  # what charts and pages make of the rows, once

    @classmethod
    def of(cls, pred: Predictions, risk: str | None = None, largest_cluster: int | None = None) -> RowData:
        """Of predictions."""
        data = cls(pred.n, partial(_found, pred), pred.weights, pred.clusters, pred, None, largest_cluster)
        if risk == "error" and data.error is None:
            raise InputError('risk="error" needs `error`, or labels and probabilities. Leave it out.')
        if risk == "loss" and _share_loss(pred) is None:
            there = "there is none" if pred.loss is None else f"it goes from {pred.loss.min():g} to {pred.loss.max():g}"
            raise InputError(f'risk="loss" needs a `loss` in [0, 1]; {there}. Rescale it, or leave risk= out.')
        data.risk = risk
        return data

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
        if what == "signed confidence" and self._pred is not None:
            return self._signed(self._pred)
        error = self["error"] if what == "accuracy" or (what == "loss in [0, 1]" and self.risk != "loss") else None
        if what == "accuracy":
            return None if error is None else right_rows(error)
        return self._find(what) if error is None else error

    def _signed(self, pred: Predictions) -> Column:
        """Of the top label, as `metrics.top_label_c_index` has it; of two classes the gap, which orders rows alike."""
        error = self.error
        if pred.probs is None or error is None:
            return None
        gap = truth.gap_rank_of(pred) if pred.loss is not None else self["loss"]
        own = pred.pred is not None or pred.error is not None  # the prediction need not be the likeliest class
        if pred.n_classes == 2 and not own and gap is not None:
            return gap
        # A confidence near 1 ties rows that the logits, or what is left to the other classes, tell apart.
        confidence, of_logits = self._column("confidence"), pred.logits is not None and pred.logits_match
        deep = np.flatnonzero(confidence > _NEAR_ONE if of_logits else confidence == 1.0)
        known = np.zeros(len(deep), dtype=np.bool_) if own or gap is None else error[deep] == 0
        loss, rest = np.empty(len(deep)), deep[~known]  # that the predicted class would have as a label
        if gap is not None:
            loss[known] = gap[deep[known]]
        chosen = pred.probs[rest].argmax(axis=1) if pred.pred is None else pred.pred[rest]
        if pred.logits is not None and of_logits:
            loss[~known] = logit_loss_rows(pred.logits[rest], chosen)
        else:
            loss[~known] = rank_loss_rows(pred.probs[rest], chosen)
        sure: Float = confidence.astype(np.float64)
        sure[deep] = mirrored(loss) if of_logits else 0.0 - loss
        return np.where(error.view(np.bool_), sure, 0.0 - sure)  # not -sure: that would give -0.0

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

    @property
    def mean_loss(self) -> float | None:
        """Of what the selective metrics take."""
        loss = self.share_loss
        if loss is None or loss.dtype != np.uint8 or self.weights is not None:
            return None if loss is None else weighted_mean(loss.astype(float), self.weights)
        return int(np.count_nonzero(loss)) / len(loss)

    @property
    def two_targets(self) -> bool:
        """Whether there are errors and a loss of the user's own."""
        return self.pred.loss is not None and self.error is not None

    def target_of(self, metric: Metric) -> str:
        """What the metric ranks the score against, in the user's words."""
        what = "loss" if metric.losses and (self.error is None or self.risk == "loss") else metric.needs[1]
        return "gap" if what == "loss" and self.pred.loss is None else what

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
            self.error  # noqa: B018  two of the columns need it
            wanted = ("loss", "confidence", "brier", "log_loss")
            kernels.side_by_side([partial(self.__getitem__, what) for what in wanted], self.n)
            self["signed confidence"]  # made of the loss

    def compute_scores(self, names: Iterable[str]) -> None:
        """All scores in one pass over the probabilities."""
        found = compute_all(names, self.pred)
        self._columns |= {f"score {name}": values for name, values in found.items()}

    def find_copies(self, names: Iterable[str]) -> None:
        """Which of the scores are one ranking: an exact copy is never sorted, nor counted."""
        names = list(names)
        rankings = {name: self.ranking(f"score {name}") for name in names}
        self.copies = find_copies(rankings, one_ranking(names, self.pred))

    def ranking(self, what: str) -> Ranking:
        """A column as a ranking: sorted once, whoever asks."""
        if what not in self._rankings:
            self._rankings[what] = self._ranked(what)
        return self._rankings[what]

    def _column_ranked(self, what: str) -> Ranking:
        return Ranking(self._column(what).astype(np.float64, copy=False))

    def tie_rate(self, name: str) -> float:
        """Share of the pairs of rows whose scores are equal."""
        name = self.copies.exact.get(name, name)
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
        for what in {self.same_target(metric.target) for metric in metrics}:
            if self._column(what).dtype != np.uint8:
                by_row = True
                self.ranking(what).order  # noqa: B018  here, before scores share the cores
        jobs = []
        for name in dict.fromkeys(self.copies.exact.get(name, name) for name in names):
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
        """A target of the same numbers, for one sample of the metrics of both: errors that are a loss in [0, 1], and
        the gap in place of the signed confidence of two classes."""
        other = {"loss in [0, 1]": "error", "signed confidence": "loss"}.get(what, what)
        return other if other != what and self[what] is not None and self[what] is self[other] else what

    def repeats(self, metric: Metric) -> bool:
        """Whether another metric gives the same number: the top-label C-index of two classes is the UQ-C-index."""
        return metric.made is not None and self.same_target(metric.target) != metric.target

    def _sample(self, name: str, what: str) -> Sample:
        target, what = self._column(what), self.same_target(what)
        name = self.copies.exact.get(name, name)  # every metric is the same
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
