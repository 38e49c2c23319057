"""The one door: is the difference real? Scores of one source, or models on the same rows, compared pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Nan, Progress, check_choice, check_level, check_seed
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval.distributed.given import Arrays, Where, check_risk, refuse_risk
from uqeval.distributed.source import Source
from uqeval.evaluation.result import Evaluation
from uqeval.inference.bootstrap import check_resamples, refuse_largest
from uqeval.inputs import Predictions
from uqeval.metrics.registry import get_metric

if TYPE_CHECKING:
    from uqeval.distributed.engines.protocol import Engine
    from uqeval.evaluation.compare import Question
    from uqeval.evaluation.comparison import Comparison


def compare(
    candidates: Any,
    *,
    scores: Sequence[str] | str | None = None,
    metric: str = "uq_auc",
    baseline: str | None = None,
    adjust: str = "max-t",
    level: float = 0.95,
    method: str = "influence",
    resamples: int = 2000,
    score: str | Sequence[str] | None = None,
    error: ArrayLike | str | None = None,
    loss: ArrayLike | str | None = None,
    correct: ArrayLike | str | None = None,
    quality: ArrayLike | str | None = None,
    risk: str | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    by: str | None = None,
    cluster: str | None = None,
    largest_cluster: int | None = None,
    engine: str | Engine | None = None,
    memory_limit: str | int | None = None,
    client: Any = None,
    spill: str | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
    **columns: Any,
) -> Comparison:
    """Paired differences of a metric with interval, p-value and adjusted p-value.

    Parameters
    ----------
    candidates : Predictions, frame, lazy frame, path or list of paths; dict of name → array, Predictions or Evaluation
        Scores of one source; scores as plain arrays (with `error` or `loss`); models on the same rows; or evaluations
        of other rows each (`Evaluation.from_json`), which are independent samples: that is unpaired, and finds less.
    scores : list of str, optional
        Which scores of the source; of several models one score (the first that all allow) by default.
    metric : str
        A name of `uqeval.metrics.REGISTRY` (not the out-of-distribution ones).
    baseline : str, optional
        Compare all others with this one only; all pairs by default.
    adjust : "max-t", "holm" or "none"
        For several differences at once: the joint distribution of the largest, Holm's steps (with Bonferroni
        intervals), or one by one.
    level : float
        Confidence level, simultaneous over the pairs unless adjust="none".
    method : "influence", "bootstrap" or "permutation"
        Variance from influence values (simulated, the default), or from `resamples` joint resamples of the rows or
        clusters (in memory only). "permutation": p-values from `resamples` random swaps of the two candidates within
        rows (or clusters), (1 + swaps with as large a difference)/(1 + resamples), adjusted by Holm; the intervals stay
        those of the influence values. It tests the sharp null that the two are exchangeable within each row (scores
        without common values once they are replaced by their ranks), not only that the metric is equal; with fewer
        than 20 errors it has more power. In memory only.
    seed : int or numpy Generator
        For the draws behind max-t, the bootstrap and the swaps.
    score, error, loss, correct, quality, risk, weights, clusters, groups, nan
        As in `uqeval.evaluate`.
    by, cluster, largest_cluster, engine, memory_limit, client, spill, progress
        As in `uqeval.evaluate`.

    Returns
    -------
    Comparison
        ``cmp.to_frame()``; ``cmp.groups()`` says who cannot be told from whom.

    Examples
    --------
    >>> from uqeval.datasets import example
    >>> cmp = compare(example(), scores=["entropy", "mutual_information", "vote_entropy"])
    >>> cmp.groups()
    [['entropy'], ['mutual_information'], ['vote_entropy']]
    """
    from uqeval.evaluation.compare import Question, compare_rows  # `evaluate` need not wait for it

    if not isinstance(metric, str):
        raise InputError(f'`metric` must be one name, as "uq_auc"; it is {metric!r}. Compare once per metric.')
    chosen = get_metric(metric)
    if chosen.tally == "two sets":
        raise InputError(f"{metric} compares two sets of rows; compare() needs candidates on the same rows.")
    level, rng = check_level(level), check_seed(seed)
    check_choice("adjust", adjust, ("max-t", "holm", "none"))
    count = check_resamples(resamples)
    check_choice("method", method, ("influence", "bootstrap", "permutation"))
    drawn, swaps = (count if method == name else 0 for name in ("bootstrap", "permutation"))
    adjust = "holm" if swaps and adjust == "max-t" else adjust
    baseline = None if baseline is None else str(baseline)  # as the names, which may come as numbers
    refuse_largest(largest_cluster, method)
    question = Question(chosen, baseline, adjust, level, rng, drawn, progress, swaps, check_risk(risk), largest_cluster)
    arrays = Arrays(score, error, loss, correct, quality, weights, clusters, groups)
    where = Where(engine, memory_limit, client, spill, by, cluster, largest_cluster)
    if isinstance(candidates, Mapping):
        if candidates and all(isinstance(value, Predictions) for value in candidates.values()):
            found = compare_rows(_models(candidates, arrays), scores, question)
            return _told(found, ())
        if candidates and all(isinstance(value, Evaluation) for value in candidates.values()):
            return _told(_unpaired(_models(candidates, arrays), scores, question), ())
        candidates, arrays = None, replace(arrays, score=candidates)
    with collected() as raised:
        opened = Source.open(candidates, arrays, where, scores, [metric], columns, nan, progress)
        with opened.explained():
            if opened.pred is not None:
                found = compare_rows(opened.pred, opened.scores, question)
            else:
                refuse_risk(risk)
                from uqeval.distributed.plan.differences import compare_engine

                found = compare_engine(*opened.on_engine([metric], None if method == "influence" else method), question)
    return _told(found, (*raised, *opened.notes()))


def _told(found: Comparison, raised: tuple[str, ...]) -> Comparison:
    """The comparison with all notes, which are warnings at the line of the call."""
    found = replace(found, warnings=tuple(dict.fromkeys((*raised, *found.warnings))))
    for note in found.warnings:
        notify(note, UQWarning, stacklevel=3)
    return found


def _unpaired(given: dict[str, Any], scores: Sequence[str] | str | None, asked: Question) -> Comparison:
    """Evaluations: of other rows each, known by their estimates."""
    from uqeval.evaluation.unpaired import compare_evaluations  # few compare what was stored

    if asked.method != "influence" or asked.largest_cluster is not None or asked.risk is not None:
        raise InputError(
            "Evaluations hold estimates and no rows: leave method=, risk= and largest_cluster= out, or compare "
            "predictions."
        )
    adjust = "holm" if asked.adjust == "max-t" else asked.adjust
    return compare_evaluations(given, scores, asked.metric, baseline=asked.baseline, adjust=adjust, level=asked.level)


def _models(given: Mapping[Any, Any], arrays: Arrays) -> dict[str, Any]:
    if named := [*arrays.given()]:
        raise InputError(f"Pass `{named[0]}` inside the predictions of the models, not beside them.")
    models = {str(name): value for name, value in given.items()}
    if len(models) < len(given):
        raise InputError("The models have names that read alike. Rename one.")
    return models
