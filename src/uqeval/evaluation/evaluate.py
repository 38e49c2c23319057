"""Every score against every metric, overall and by group: can this score be trusted, and which is best?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import kernels
from uqeval import scores as score_functions
from uqeval._check import (
    Nan,
    Progress,
    check_choice,
    check_lengths,
    check_level,
    check_seed,
    check_vector,
    to_array,
)
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval.evaluation.lazy import hand_over
from uqeval.evaluation.result import Evaluation, Mixed, Row
from uqeval.evaluation.table import Table
from uqeval.inference import means
from uqeval.inference.bootstrap import (
    check_resamples,
    resample_ece,
    resample_means,
    resample_samples,
)
from uqeval.inference.estimate import RANKING, bootstrapped
from uqeval.inference.multiplicity import heterogeneity
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.inputs import Predictions
from uqeval.metrics.registry import REGISTRY, Metric, get_metric

__all__ = ["as_predictions", "evaluate", "without_zero_weights"]

_MOST_NOTES = 5  # of one kind, group by group


def evaluate(
    predictions: Any = None,
    *,
    scores: Sequence[str] | str | None = None,
    metrics: Sequence[str] | str | None = None,
    level: float = 0.95,
    method: str = "default",
    resamples: int = 2000,
    score: ArrayLike | Mapping[str, ArrayLike] | None = None,
    error: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """All metrics, with intervals, of one or more uncertainty scores.

    Parameters
    ----------
    predictions : Predictions, dataframe, or path of a file, optional
        What the model said on the test set. A lazy frame (Polars, DuckDB, Ibis, Dask, PySpark) is not collected, and
        files that would not fit in memory are read piece by piece: see `uqeval.distributed.evaluate` for the metrics
        that this allows. Or pass plain arrays by name instead:
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
    method : "default" or "bootstrap"
        The intervals chosen by simulation, or percentiles of `resamples` bootstrap values.
    nan : "raise" or "omit"
        What to do with rows of plain arrays that hold NaN.
    seed : int or numpy Generator
        For the intervals that draw random numbers.
    progress : callable(stage, done, total), optional
        Called after each estimate; while the bootstrap runs, from 0 to the total for each score and metric.

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
    count = check_resamples(resamples) if check_choice("method", method, ("default", "bootstrap")) == "bootstrap" else 0
    how = _How(level, count, progress)
    # One seed for all: an interval does not depend on what else is asked for.
    draws = int(rng.integers(2**63)) if isinstance(seed, np.random.Generator) else int(seed)
    plain = {"error": error, "loss": loss, "weights": weights, "clusters": clusters, "groups": groups}
    given = plain | {"score": score}
    how_else: dict[str, Any] = {"plain": given, "method": method, "seed": seed, "progress": progress, "level": level}
    if (found := hand_over("evaluate", predictions, scores=scores, metrics=metrics, **how_else)) is not None:
        return found
    with collected() as raised:
        pred = as_predictions(predictions, score, plain, nan)
        table = Table(without_zero_weights(pred))
        names = _score_names(pred, scores)
        chosen = _metrics(table, metrics)
        _note_infinite(table, names)
        parts = list(_members(pred))
        step = _counter(None if count else progress, len(names), chosen, 1 + len(parts))
        rows = list(step(_rows(table, names, chosen, how, draws)))
        small = []
        for group, members in parts:
            if len(members) < 2:
                small.append(group)
                continue
            with collected():  # said for all rows already, with their row numbers
                part = list(step(_rows(Table(pred.take(members)), names, chosen, how, draws)))
            rows += [replace(row, group=group) for row in part]
        if small:
            named = ", ".join(map(repr, small[:_MOST_NOTES])) + (", …" if len(small) > _MOST_NOTES else "")
            notify(f"{len(small)} groups have fewer than 2 rows of positive weight and are left out: {named}")
        mixed = _heterogeneity(pred, rows) if pred.groups is not None else ()
    notes = _notes(rows, raised)
    for note in notes:
        notify(note, UQWarning, stacklevel=2)
    return Evaluation(
        n=table.pred.n,
        n_errors=None if table.error is None else int(table.error.sum()),
        accuracy=table.accuracy,
        level=level,
        tie_rate={name: table.tie_rate(name) for name in names},
        rows=tuple(rows),
        warnings=tuple(notes),
        heterogeneity=mixed,
        source=table,
    )


# ---- input ----------------------------------------------------------------------------------------------------


def as_predictions(given: Any, score: Any, plain: dict[str, Any], nan: str) -> Predictions:
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
    notify(f"{int((~keep).sum())} rows with NaN left out", UQWarning, stacklevel=4)
    plain = {name: None if value is None else np.asarray(value)[keep] for name, value in plain.items()}
    return {name: np.asarray(value)[keep] for name, value in own.items()}, plain


def without_zero_weights(pred: Predictions) -> Predictions:
    """Without the rows of weight 0."""
    if pred.weights is None or (keep := pred.weights > 0).all():
        return pred
    if keep.sum() < 2:
        raise InputError("`weights` is positive in 1 row only. Ranking needs at least 2.")
    return pred.take(keep)


def _members(pred: Predictions) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Rows of positive weight of each group."""
    if pred.groups is None:
        return
    rows = np.arange(pred.n) if pred.weights is None else np.flatnonzero(pred.weights > 0)
    codes = pred.groups[rows]
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(pred.group_names) + 1))
    for code, group in enumerate(pred.group_names):
        yield group, rows[order[bounds[code] : bounds[code + 1]]]


def _note_infinite(table: Table, names: list[str]) -> None:
    for name in names:
        if count := int(np.isinf(table.score(name)).sum()):
            notify(f"{name}: {count} infinite values; they rank first or last and tie", UQWarning, stacklevel=3)


def _score_names(pred: Predictions, scores: Sequence[str] | str | None) -> list[str]:
    known = score_functions.available(pred)
    names = list(known) if scores is None else [scores] if isinstance(scores, str) else list(dict.fromkeys(scores))
    for name in names:
        if name not in known:
            score_functions.compute(name, pred)  # raises, and says what is missing
    if not names:
        raise InputError("No score to evaluate. Pass probabilities, logits, members, or scores of your own.")
    return names


def _metrics(table: Table, metrics: Sequence[str] | str | None) -> list[Metric]:
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


@dataclass(frozen=True)
class _How:
    """Confidence level, and how many resamples (0: the default intervals)."""

    level: float
    resamples: int
    progress: Progress | None


def _counter(
    progress: Progress | None, scores: int, metrics: list[Metric], parts: int
) -> Callable[[Iterator[Row]], Iterator[Row]]:
    """Passes rows on and tells how many there were, over all rows and all groups."""
    total = parts * sum(scores if metric.name in RANKING else 1 for metric in metrics)
    done = 0

    def counted(rows: Iterator[Row]) -> Iterator[Row]:
        nonlocal done
        for row in rows:
            yield row
            done += 1
            if progress is not None:
                progress("evaluating", done, total)

    return counted


def _rows(table: Table, names: list[str], metrics: list[Metric], how: _How, seed: int) -> Iterator[Row]:
    ranking = [metric for metric in metrics if metric.name in RANKING]
    counts = _pair_counts(table, names) if any(metric.needs == ("score", "loss") for metric in ranking) else {}
    for name in names:
        for metric in ranking:
            known = counts.get(name) if metric.needs == ("score", "loss") else None
            sample = table.sample(name, metric, known)
            found = RANKING[metric.name](sample, how.level)
            if how.resamples:
                drawn = resample_samples(metric.name, [sample], how.resamples, check_seed(seed), how.progress)
                found = bootstrapped(found, drawn[0])
            yield Row(name, metric.name, None, found)
    for metric in metrics:
        if metric.name not in RANKING:
            yield Row(None, metric.name, None, _of_model(table, metric, how, seed))


def _pair_counts(table: Table, names: list[str]) -> dict[str, tuple[Any, Any]]:
    """Counts against the loss for all scores at once: the loss is sorted once, scores share the cores."""
    if table.weights is not None or table.pred.clusters is not None:
        return {}
    assert table.loss is not None
    stacked = np.stack([table.score(name) for name in names])
    credit2, comparable = kernels.pair_counts(stacked, table.loss, threads=kernels.cores())
    return {name: (credit2[k], comparable) for k, name in enumerate(names)}


def _of_model(table: Table, metric: Metric, how: _How, seed: int) -> Estimate:
    weights, clusters = table.weights, table.pred.clusters
    none = Sample(np.zeros(table.pred.n), np.zeros(table.pred.n), weights, clusters)
    draw = (how.resamples, check_seed(seed), how.progress)
    if metric.needs == ("confidence", "correct"):
        found = table.ece(how.level, check_seed(seed))[metric.name]
        if not how.resamples:
            return found
        assert table.confidence is not None
        correct = table.model_rows("accuracy")
        return bootstrapped(found, resample_ece(metric.name, [table.confidence], [correct], none, *draw)[0])
    rows = table.model_rows(metric.name)
    if metric.name == "accuracy":
        found = means.estimate_accuracy(1.0 - rows, weights, clusters, how.level)
    else:
        found = means.estimate_mean(rows, weights, clusters, how.level, metric.range)
    return bootstrapped(found, resample_means(rows[None], none, *draw)[0]) if how.resamples else found


def _heterogeneity(pred: Predictions, rows: list[Row]) -> tuple[Mixed, ...]:
    """For each score and metric: are the groups' true values equal? Groups must not share clusters."""
    if pred.clusters is not None:
        pairs = np.unique(np.stack([pred.clusters, pred.groups]), axis=1)  # type: ignore[list-item]
        if pairs.shape[1] > len(np.unique(pred.clusters)):
            notify("clusters span several groups: no test across groups", UQWarning, stacklevel=2)
            return ()
    by_key: dict[tuple[str | None, str], list[Estimate]] = {}
    for row in rows:
        if row.group is not None:
            by_key.setdefault((row.score, row.metric), []).append(row.estimate)
    found = []
    for (score, metric), estimates in by_key.items():
        if len(estimates) < 2 or any(not e.se > 0 or np.isnan(e.value) for e in estimates):
            continue
        sizes = [e.n_clusters or (e.n_errors if e.n_errors is not None else e.n) for e in estimates]
        values, spread = np.array([e.value for e in estimates]), np.diag([e.se**2 for e in estimates])
        test = heterogeneity(values, spread, min(sizes) - 1)
        found.append(Mixed(score, metric, test.statistic, test.df, test.df2, test.p))
    return tuple(found)


def _notes(rows: list[Row], raised: list[str]) -> list[str]:
    """What limits the estimates, each thing once, with the scores and metrics that it concerns; groups are folded."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for row in rows:
        for note in row.estimate.warnings:
            found.setdefault((note, row.group), []).append(row.score or REGISTRY[row.metric].title)
    notes = list(dict.fromkeys(raised))
    every = {row.score for row in rows if row.score is not None}
    kinds: dict[str, list[str]] = {}
    for (note, group), who in found.items():
        names = list(dict.fromkeys(who))
        subject = "" if every <= set(names) else f"{', '.join(names)}: "
        if group is None:
            notes.append(f"{subject}{note}")
        else:
            kinds.setdefault(re.sub(r" ?\([\d,]+\)", "", note), []).append(f"{subject}{note} in group {group!r}")
    for kind, lines in kinds.items():
        notes += lines if len(lines) <= _MOST_NOTES else [f"{kind}: {len(lines)} times in groups"]
    return notes
