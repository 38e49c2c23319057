"""Every score against every metric, overall and by group: can this score be trusted, and which is best?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import kernels, truth
from uqeval import scores as score_functions
from uqeval._check import (
    Float,
    Nan,
    check_choice,
    check_lengths,
    check_level,
    check_seed,
    check_vector,
    check_weights,
    to_array,
)
from uqeval._errors import InputError, UQWarning
from uqeval.evaluation.result import Evaluation, Row
from uqeval.inference import means
from uqeval.inference.estimate import LOSS_TOO, RANKING
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.inputs import Predictions
from uqeval.metrics.proper import brier_rows, log_loss_rows
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

__all__ = ["evaluate"]


def evaluate(
    predictions: Any = None,
    *,
    scores: Sequence[str] | str | None = None,
    metrics: Sequence[str] | str | None = None,
    level: float = 0.95,
    score: ArrayLike | Mapping[str, ArrayLike] | None = None,
    error: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
) -> Evaluation:
    """All metrics, with intervals, of one or more uncertainty scores.

    Parameters
    ----------
    predictions : Predictions, dataframe, or path of a file, optional
        What the model said on the test set. Or pass plain arrays by name instead:
    score : array-like of shape (n,), or dict of name → array
        Uncertainty; higher means less sure.
    error, loss, weights, clusters, groups : array-like of shape (n,), optional
        As in `Predictions`; at least one of `error` and `loss`.
    scores : list of str, optional
        Which scores; all that the predictions allow by default (`uqeval.scores.available`).
    metrics : list of str, optional
        Which metrics; all that the data allow by default (`uqeval.metrics.REGISTRY`).
    level : float
        Confidence level.
    nan : "raise" or "omit"
        What to do with rows of plain arrays that hold NaN.
    seed : int or numpy Generator
        For the intervals that draw random numbers.

    Returns
    -------
    Evaluation
        ``ev["entropy", "uq_auc"].low``; prints as a table.

    Examples
    --------
    >>> from uqeval.datasets import example
    >>> ev = evaluate(example(), scores=["entropy", "mutual_information"], metrics=["uq_auc"])
    >>> print(ev["entropy", "uq_auc"])
    0.907 (0.883–0.926)
    """
    level = check_level(level)
    rng = check_seed(seed)
    # One seed for all: an interval does not depend on what else is asked for.
    draws = int(rng.integers(2**63)) if isinstance(seed, np.random.Generator) else int(seed)
    plain = {"error": error, "loss": loss, "weights": weights, "clusters": clusters, "groups": groups}
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UQWarning)
        pred = _predictions(predictions, score, plain, nan)
        table = _Table(_positive(pred))
        names = _score_names(pred, scores)
        chosen = _metrics(table, metrics)
        _note_infinite(table, names)
        rows = list(_rows(table, names, chosen, level, draws))
        for code, group in enumerate(pred.group_names):
            keep = _members_of(pred, code)
            if keep.sum() < 2:
                what = "a single row" if keep.any() else "no row of positive weight"
                warnings.warn(f"group {group!r} has {what} and is left out", UQWarning, stacklevel=2)
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UQWarning)  # said for all rows already, with their row numbers
                part = list(_rows(_Table(pred.take(keep)), names, chosen, level, draws))
            rows += [replace(row, group=group) for row in part]
    notes = _notes(rows, [str(w.message) for w in raised if issubclass(w.category, UQWarning)])
    for note in notes:
        warnings.warn(note, UQWarning, stacklevel=2)
    return Evaluation(
        n=table.pred.n,
        n_errors=None if table.error is None else int(table.error.sum()),
        accuracy=table.accuracy,
        level=level,
        tie_rate={name: table.tie_rate(name) for name in names},
        rows=tuple(rows),
        warnings=tuple(notes),
    )


# ---- input ----------------------------------------------------------------------------------------------------


def _predictions(given: Any, score: Any, plain: dict[str, Any], nan: str) -> Predictions:
    check_choice("nan", nan, ("raise", "omit"))
    if given is None:
        return _from_arrays(score, plain, nan)
    named = [name for name, value in {"score": score, **plain}.items() if value is not None]
    if named:
        raise InputError(f"Pass `{named[0]}` inside the predictions, or plain arrays only; not both.")
    if isinstance(given, Predictions):
        return given
    if isinstance(given, str | os.PathLike):
        from uqeval.inputs import read_predictions

        return read_predictions(given)
    return Predictions.from_frame(given)


def _from_arrays(score: Any, plain: dict[str, Any], nan: str) -> Predictions:
    if score is None:
        raise InputError("Nothing to evaluate. Pass predictions, or score= and one of error=, loss=.")
    own = dict(score) if isinstance(score, Mapping) else {"score": score}
    if nan == "omit":
        own, plain = _omit(own, plain)
    return Predictions(scores=own, **plain)


def _omit(own: dict[str, Any], plain: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Without the rows in which any number is NaN."""
    numbers = {f"score[{name!r}]": value for name, value in own.items()}
    numbers |= {name: plain[name] for name in ("error", "loss", "weights") if plain[name] is not None}
    clean = {name: check_vector(name, value, finite=False, missing=True) for name, value in numbers.items()}
    names = {name: to_array(name, plain[name]) for name in ("clusters", "groups") if plain[name] is not None}
    check_lengths(**clean, **names)
    keep = ~np.any([np.isnan(array) for array in clean.values()], axis=0)
    if keep.all():
        return own, plain
    warnings.warn(f"{int((~keep).sum())} rows with NaN left out", UQWarning, stacklevel=4)
    plain = {name: None if value is None else np.asarray(value)[keep] for name, value in plain.items()}
    return {name: np.asarray(value)[keep] for name, value in own.items()}, plain


def _positive(pred: Predictions) -> Predictions:
    """Without the rows of weight 0."""
    if pred.weights is None or (keep := pred.weights > 0).all():
        return pred
    if keep.sum() < 2:
        raise InputError("`weights` is positive in 1 row only. Ranking needs at least 2.")
    return pred.take(keep)


def _members_of(pred: Predictions, code: int) -> NDArray[np.bool_]:
    """Which rows belong to a group and count."""
    assert pred.groups is not None
    keep: NDArray[np.bool_] = pred.groups == code
    return keep if pred.weights is None else keep & (pred.weights > 0)


def _note_infinite(table: _Table, names: list[str]) -> None:
    for name in names:
        if count := int(np.isinf(table.score(name)).sum()):
            warnings.warn(f"{name}: {count} infinite values; they rank first or last and tie", UQWarning, stacklevel=3)


def _score_names(pred: Predictions, scores: Sequence[str] | str | None) -> list[str]:
    known = score_functions.available(pred)
    names = list(known) if scores is None else [scores] if isinstance(scores, str) else list(dict.fromkeys(scores))
    for name in names:
        if name not in known:
            score_functions.compute(name, pred)  # raises, and says what is missing
    if not names:
        raise InputError("No score to evaluate. Pass probabilities, logits, members, or scores of your own.")
    return names


def _metrics(table: _Table, metrics: Sequence[str] | str | None) -> list[Metric]:
    if metrics is None:
        found = [metric for metric in REGISTRY.values() if table.missing(metric) == ()]
        if not any(metric.uses_score for metric in found):
            raise InputError("No metric can rank a score here. Pass `error`, `loss`, or labels and probabilities.")
        return found
    chosen = [get_metric(name) for name in ([metrics] if isinstance(metrics, str) else metrics)]
    for metric in chosen:
        if missing := table.missing(metric):
            raise InputError(f"{metric.name} needs {', '.join(missing)}, which these predictions do not give.")
    if not chosen:
        raise InputError(f"`metrics` is empty. Leave it out for all, or pick from {', '.join(REGISTRY)}.")
    return list(dict.fromkeys(chosen))


# ---- rows of predictions → estimates ---------------------------------------------------------------------------


class _Table:
    """Predictions with what the metrics need from them, each computed once."""

    def __init__(self, pred: Predictions) -> None:
        self.pred = pred
        self.weights = None if pred.weights is None else check_weights(pred.weights, pred.n)[0]
        self._scores: dict[str, Float] = {}
        self._errors: dict[str, Sample] = {}
        self._ece: dict[str, Estimate] | None = None

    @cached_property
    def error(self) -> NDArray[np.uint8] | None:
        pred = self.pred
        if pred.error is not None:
            return pred.error.astype(np.uint8)
        if pred.labels is None:
            return None
        if pred.pred is not None:
            return (pred.pred != pred.labels).astype(np.uint8)
        return None if pred.probs is None else truth.misclassified(pred.probs, pred.labels)

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
        return 1.0 - float(np.average(self.error, weights=self.weights))

    def ece(self, level: float, rng: np.random.Generator) -> dict[str, Estimate]:
        """Plug-in and debiased at once: they share a test that draws random numbers."""
        if self._ece is None:
            assert self.error is not None
            assert self.confidence is not None
            correct = 1.0 - self.error.astype(np.float64)
            self._ece = means.estimate_ece(self.confidence, correct, self.weights, self.pred.clusters, level, rng)
        return self._ece

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


def _rows(table: _Table, names: list[str], metrics: list[Metric], level: float, seed: int) -> Iterator[Row]:
    ranking = [metric for metric in metrics if metric.name in RANKING]
    counts = _pair_counts(table, names) if any(metric.needs == ("score", "loss") for metric in ranking) else {}
    for name in names:
        for metric in ranking:
            known = counts.get(name) if metric.needs == ("score", "loss") else None
            yield Row(name, metric.name, None, RANKING[metric.name](table.sample(name, metric, known), level))
    for metric in metrics:
        if metric.name not in RANKING:
            yield Row(None, metric.name, None, _of_model(table, metric, level, seed))


def _pair_counts(table: _Table, names: list[str]) -> dict[str, tuple[Any, Any]]:
    """Counts against the loss for all scores at once: the loss is sorted once, scores share the cores."""
    if table.weights is not None or table.pred.clusters is not None:
        return {}
    assert table.loss is not None
    stacked = np.stack([table.score(name) for name in names])
    credit2, comparable = kernels.pair_counts(stacked, table.loss, threads=os.cpu_count() or 1)
    return {name: (credit2[k], comparable) for k, name in enumerate(names)}


def _of_model(table: _Table, metric: Metric, level: float, seed: int) -> Estimate:
    pred, weights, clusters = table.pred, table.weights, table.pred.clusters
    if metric.name == "accuracy":
        assert table.error is not None
        return means.estimate_accuracy(table.error.astype(np.float64), weights, clusters, level)
    if metric.needs == ("confidence", "correct"):
        return table.ece(level, check_seed(seed))[metric.name]
    assert pred.probs is not None
    assert pred.labels is not None
    if metric.name == "brier":
        rows = brier_rows(pred.probs, pred.labels)
    elif pred.logits is not None and pred.logits_match:
        rows = truth.gap_from_logits(pred.logits, pred.labels)  # the log-loss itself, without underflow
    else:
        rows = log_loss_rows(pred.probs, pred.labels)
    return means.estimate_mean(rows, weights, clusters, level, metric.range)


def _notes(rows: list[Row], raised: list[str]) -> list[str]:
    """What limits the estimates, each thing once, with the scores and metrics that it concerns."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        for note in row.estimate.warnings:
            found.setdefault((note, row.group), []).append(row.score or REGISTRY[row.metric].title)
    notes = list(dict.fromkeys(raised))
    every = {row.score for row in rows if row.score is not None}
    for (note, group), who in found.items():
        names = list(dict.fromkeys(who))
        where = "" if group is None else f" in group {group!r}"
        subject = "" if every <= set(names) else f"{', '.join(names)}: "
        notes.append(f"{subject}{note}{where}")
    return notes
