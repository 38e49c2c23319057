"""Predictions with what the metrics need from them: error, loss, φ, ϕ, scores; each computed once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels, truth
from uqeval import scores as score_functions
from uqeval._check import Float, check_weights
from uqeval.inference import means
from uqeval.inference.estimate import LOSS_TOO
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.inputs import Predictions
from uqeval.metrics.proper import brier_rows, log_loss_rows, weighted_mean
from uqeval.metrics.registry import Metric

__all__ = ["Table"]


class Table:
    """Predictions with what the metrics need from them, each computed once."""

    def __init__(self, pred: Predictions) -> None:
        self.pred = pred
        self.weights = None if pred.weights is None else check_weights(pred.weights, pred.n)[0]
        self._scores: dict[str, Float] = {}
        self._errors: dict[str, Sample] = {}
        self._ece: dict[str, Estimate] | None = None

    @cached_property
    def error(self) -> NDArray[np.uint8] | None:
        return truth.error_of(self.pred)

    @cached_property
    def loss(self) -> Float | None:
        """The user's loss, else the gap in a form that does not saturate: ranks are all that matters."""
        pred = self.pred
        if pred.loss is not None:
            return pred.loss
        if pred.labels is None or pred.probs is None:
            return None
        if pred.logits is not None and pred.logits_match:
            return truth.gap_from_logits(pred.logits, pred.labels)
        return truth.rank_loss(pred.probs, pred.labels)

    @cached_property
    def share_loss(self) -> NDArray[Any] | None:
        """What the selective metrics take: the errors, or a user's loss in [0, 1] where there are none."""
        if self.error is not None:
            return self.error
        loss = self.pred.loss
        if loss is None or loss.min() < 0 or loss.max() > 1:
            return None
        bits = loss != 0
        return bits.view(np.uint8) if np.array_equal(loss, bits) else loss  # 0/1 are errors, as in `estimate`

    @cached_property
    def phi(self) -> Float | None:
        """φ less 1, −π(prediction): only ranks matter, and 1 − π would round."""
        pred = self.pred
        if pred.soft_labels is None or (pred.probs is None and pred.pred is None):
            return None
        predicted = truth.predicted_labels(pred.probs) if pred.pred is None else pred.pred  # type: ignore[arg-type]
        return -pred.soft_labels[np.arange(pred.n), predicted]

    @cached_property
    def varphi(self) -> Float | None:
        """ϕ less 1, −p̂(Bayes label)."""
        pred = self.pred
        if pred.soft_labels is None or pred.probs is None:
            return None
        return -pred.probs[np.arange(pred.n), truth.bayes_labels(pred.soft_labels)]

    @cached_property
    def confidence(self) -> Float | None:
        pred = self.pred
        if pred.probs is None or self.error is None:
            return None
        if pred.pred is not None:
            return pred.probs[np.arange(pred.n), pred.pred]
        return pred.probs.max(axis=1)

    @cached_property
    def accuracy(self) -> float | None:
        if self.error is None:
            return None
        return weighted_mean(self.model_rows("accuracy"), self.weights)

    def ece(self, level: float, rng: np.random.Generator) -> dict[str, Estimate]:
        """Plug-in and debiased at once: they share a test that draws random numbers."""
        if self._ece is None:
            assert self.error is not None
            assert self.confidence is not None
            correct = 1.0 - self.error.astype(np.float64)
            self._ece = means.estimate_ece(self.confidence, correct, self.weights, self.pred.clusters, level, rng)
        return self._ece

    def model_rows(self, name: str) -> Float:
        """Per-row values whose mean is the metric: "accuracy", "brier" or "log_loss"."""
        pred = self.pred
        if name == "accuracy":
            assert self.error is not None
            return 1.0 - self.error.astype(np.float64)
        assert pred.probs is not None
        assert pred.labels is not None
        if name == "brier":
            return brier_rows(pred.probs, pred.labels)
        if pred.logits is not None and pred.logits_match:
            return truth.gap_from_logits(pred.logits, pred.labels)  # the log-loss itself, without underflow
        return log_loss_rows(pred.probs, pred.labels)

    def missing(self, metric: Metric) -> tuple[str, ...]:
        """What the metric needs and these predictions do not have."""
        have = {
            "score": True,
            "error": (self.share_loss if metric.name in LOSS_TOO else self.error) is not None,
            "loss": self.loss is not None,
            "phi": self.phi is not None,
            "varphi": self.varphi is not None,
            "confidence": self.confidence is not None,
            "correct": self.confidence is not None,
            "probs": self.pred.probs is not None,
            "labels": self.pred.labels is not None,
        }
        names = {"phi": "soft_labels", "varphi": "soft_labels", "confidence": "probs", "correct": "probs"}
        return tuple(dict.fromkeys(names.get(need, need) for need in metric.needs if not have.get(need, False)))

    def score(self, name: str) -> Float:
        if name not in self._scores:
            self._scores[name] = score_functions.compute(name, self.pred)
        return self._scores[name]

    def tie_rate(self, name: str) -> float:
        """Share of the pairs of rows whose scores are equal."""
        order = kernels.order_by(self.score(name))
        n = len(order.row)
        return float((order.end - order.start - 1).sum()) / (n * (n - 1))

    def sample(self, name: str, metric: Metric, counts: tuple[Any, Any] | None = None) -> Sample:
        """Score against the metric's target; metrics of the same 0/1 errors share one sample and its sorting."""
        clusters = self.pred.clusters
        need = metric.needs[1]
        if need != "error":
            return Sample(self.score(name), getattr(self, need), self.weights, clusters, counts)
        target = self.share_loss if metric.name in LOSS_TOO else self.error
        assert target is not None
        if name not in self._errors or self._errors[name].target is not target:
            self._errors[name] = Sample(self.score(name), target, self.weights, clusters)
        return self._errors[name]
