"""Is the difference real? Scores of one model, or models on the same rows, compared pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Nan, Progress, check_choice, check_level, check_seed
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval.evaluation.candidates import Candidate, find_candidates, find_pairs
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.evaluation.lazy import hand_over
from uqeval.evaluation.table import Table
from uqeval.inference.bootstrap import (
    check_resamples,
    resample_ece,
    resample_means,
    resample_samples,
)
from uqeval.inference.estimate import RANKING
from uqeval.inference.means import ece_influence
from uqeval.inference.multiplicity import adjust as adjust_contrasts
from uqeval.inference.multiplicity import bootstrap_contrasts, heterogeneity
from uqeval.inference.paired import Contrast, Joint, contrast, joint_of_rows, joint_of_samples, rank_alike
from uqeval.inference.sample import Sample, kish
from uqeval.metrics.calibration import bin_rows, debiased_l1, l1
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import Metric, get_metric

__all__ = ["compare"]


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
    error: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Paired differences of a metric with interval, p-value and adjusted p-value.

    Parameters
    ----------
    candidates : Predictions, dataframe or path; dict of name → array; or dict of name → Predictions
        Scores of one model; scores as plain arrays (with `error` or `loss`); or models on the same rows. A lazy frame
        is not collected, as in `evaluate`.
    scores : list of str, optional
        Which scores of the predictions; of several models one score (the first that all allow) by default.
    metric : str
        A name of `uqeval.metrics.REGISTRY` (not the out-of-distribution ones).
    baseline : str, optional
        Compare all others with this one only; all pairs by default.
    adjust : "max-t", "holm" or "none"
        For several differences at once: the joint distribution of the largest, Holm's steps (with Bonferroni
        intervals), or one by one.
    level : float
        Confidence level, simultaneous over the pairs unless adjust="none".
    method : "influence" or "bootstrap"
        Variance from influence values (simulated, the default), or from `resamples` joint resamples of the rows or
        clusters.
    seed : int or numpy Generator
        For the draws behind max-t and the bootstrap.
    progress : callable(stage, done, total), optional
        Called while the bootstrap runs.
    error, loss, weights, clusters, groups, nan
        As in `evaluate`, with plain arrays.

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
    if not isinstance(metric, str):
        raise InputError(f'`metric` must be one name, as "uq_auc"; it is {metric!r}. Compare once per metric.')
    chosen = get_metric(metric)
    if "score_in" in chosen.needs:
        raise InputError(f"{metric} compares two sets of rows; compare() needs candidates on the same rows.")
    level, rng = check_level(level), check_seed(seed)
    check_choice("adjust", adjust, ("max-t", "holm", "none"))
    check_choice("method", method, ("influence", "bootstrap"))
    plain = {"error": error, "loss": loss, "weights": weights, "clusters": clusters, "groups": groups}
    how_else: dict[str, Any] = {"plain": plain, "method": method, "seed": seed, "progress": progress, "level": level}
    how_else |= {"metric": metric, "baseline": baseline, "adjust": adjust}
    if (handed := hand_over("compare", candidates, scores=scores, **how_else)) is not None:
        return handed
    with collected() as raised:
        found, models = find_candidates(candidates, scores, chosen, plain, nan)
        names = [candidate.name for candidate in found]
        baseline = None if baseline is None else str(baseline)  # as the names, which may come as numbers
        pairs = find_pairs(names, baseline)
        ways = _Ways(chosen, pairs, adjust, level, method, check_resamples(resamples), rng, progress)
        whole = _compare(found, ways)
        rows = [Pair(names[a], names[b], None, *row) for (a, b), row in zip(pairs, whole.rows, strict=True)]
        mixed: dict[tuple[str, str], float] = {}
        if found[0].table.pred.groups is not None:
            more, mixed = _by_group(found, names, pairs, ways)
            rows += more
    notes = list(dict.fromkeys(raised))
    notes += _cautions(chosen, models, found)
    for note in notes:
        notify(note, UQWarning, stacklevel=2)
    return Comparison(
        metric=metric,
        adjust=adjust,
        level=level,
        method=method,
        n=found[0].table.pred.n,
        baseline=baseline,
        values=dict(zip(names, map(float, whole.values), strict=True)),
        rows=tuple(rows),
        heterogeneity=mixed,
        warnings=tuple(notes),
    )


# ---- differences ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ways:
    """How to compare."""

    metric: Metric
    pairs: list[tuple[int, int]]
    adjust: str
    level: float
    method: str
    resamples: int
    rng: np.random.Generator
    progress: Progress | None


@dataclass(frozen=True)
class _Found:
    values: np.ndarray
    rows: list[tuple[float, float, float, float, float, float, float]]
    contrasts: list[Contrast]


def _compare(found: list[Candidate], ways: _Ways) -> _Found:
    """Difference, low, high, se, df, p, adjusted p of every pair."""
    if ways.method == "bootstrap":
        with np.errstate(invalid="ignore"):  # an infinite log-loss that a resample leaves out is 0·∞
            return _bootstrapped(found, ways)
    joint = _joint(found, ways.metric)
    covariances = [part.units @ part.units.T for part in joint.parts]
    models = any(c.table is not found[0].table for c in found)
    contrasts = []
    for a, b in ways.pairs:
        if models:  # errors, factors and degrees of freedom are those of the pair, whoever else takes part
            pair = _joint([found[a], found[b]], ways.metric)
            c = contrast(pair, [part.units @ part.units.T for part in pair.parts], 0, 1)
        else:
            c = contrast(joint, covariances, a, b)
        if np.isnan(c.se) and c.difference == 0 and ways.metric.name in RANKING:
            first, second = _samples([found[a], found[b]], ways.metric)
            if rank_alike(first, second):
                c = Contrast(0.0, 0.0, float("inf"), 0.0, 1.0)
        contrasts.append(c)
    adjusted = adjust_contrasts(ways.adjust, joint, ways.pairs, contrasts, ways.level, ways.rng)
    rows = []
    for c, p, width in zip(contrasts, adjusted.p, adjusted.width, strict=True):
        # A difference without variance cannot be tested: an interval of no width would say the opposite.
        half = width * c.se if c.se > 0 else 0.0 if c.se == 0 and c.difference == 0 else float("nan")
        rows.append((c.difference, c.difference - half, c.difference + half, c.se, c.df, c.p, p))
    return _Found(joint.values, rows, contrasts)


def _samples(found: list[Candidate], metric: Metric) -> list[Sample]:
    """One sample per candidate; the pair counts of scores that share a loss are found together."""
    first = found[0].table
    alone = all(c.table is first for c in found) and first.weights is None and first.pred.clusters is None
    if metric.needs == ("score", "loss") and alone and first.loss is not None:
        stacked = np.stack([first.score(str(c.score)) for c in found])
        credit2, comparable = kernels.pair_counts(stacked, first.loss, threads=kernels.cores())
        return [c.table.sample(str(c.score), metric, (credit2[k], comparable)) for k, c in enumerate(found)]
    return [c.table.sample(str(c.score), metric) for c in found]


def _joint(found: list[Candidate], metric: Metric) -> Joint:
    if metric.name in RANKING:
        return joint_of_samples(metric.name, _samples(found, metric))
    first = found[0].table
    rows = Sample(np.zeros(first.pred.n), np.zeros(first.pred.n), first.weights, first.pred.clusters)
    values, influence = [], []
    for candidate in found:
        table = candidate.table
        if metric.needs == ("confidence", "correct"):
            confidence, correct = table.confidence, table.model_rows("accuracy")
            assert confidence is not None
            bins = bin_rows(confidence, correct, table.weights)
            values.append(l1(bins) if metric.name == "ece" else debiased_l1(bins))
            influence.append(ece_influence(bins, confidence, correct))
        else:
            losses = table.model_rows(metric.name)
            values.append(weighted_mean(losses, table.weights))
            influence.append(losses - values[-1] if np.isfinite(values[-1]) else np.full(len(losses), np.nan))
    return joint_of_rows(np.array(values), np.stack(influence), rows)


def _bootstrapped(found: list[Candidate], ways: _Ways) -> _Found:
    metric, first = ways.metric, found[0].table
    rows = Sample(np.zeros(first.pred.n), np.zeros(first.pred.n), first.weights, first.pred.clusters)
    how = (ways.resamples, ways.rng, ways.progress)
    if metric.name in RANKING:
        drawn = resample_samples(metric.name, _samples(found, metric), *how)
    elif metric.needs == ("confidence", "correct"):
        confidence = [c.table.confidence for c in found if c.table.confidence is not None]
        drawn = resample_ece(metric.name, confidence, [c.table.model_rows("accuracy") for c in found], rows, *how)
    else:
        drawn = resample_means(np.stack([c.table.model_rows(metric.name) for c in found]), rows, *how)
    values = _joint(found, metric).values
    defined = ~np.isnan(drawn).any(axis=0)
    if dropped := int((~defined).sum()):
        notify(f"{dropped} of {ways.resamples} resamples left the metric undefined", UQWarning, stacklevel=2)
    rows_found = bootstrap_contrasts(values, drawn[:, defined], ways.pairs, ways.adjust, ways.level)
    contrasts = [Contrast(r[0], r[3], r[4], r[0] / r[3] if r[3] > 0 else 0.0, r[5]) for r in rows_found]
    return _Found(values, rows_found, contrasts)


def _by_group(
    found: list[Candidate], names: list[str], pairs: list[tuple[int, int]], ways: _Ways
) -> tuple[list[Pair], dict[tuple[str, str], float]]:
    """The same pairs inside each group, and a test whether the difference is the same in all."""
    pred = found[0].table.pred
    assert pred.groups is not None
    rows: list[Pair] = []
    by_pair: dict[int, list[Contrast]] = {}
    for code, group in enumerate(pred.group_names):
        keep = pred.groups == code
        if keep.sum() < 2:
            notify(f"group {group!r} has a single row and is left out", UQWarning, stacklevel=2)
            continue
        parts = {id(c.table): Table(c.table.pred.take(keep)) for c in found}
        inside = _compare([Candidate(c.name, parts[id(c.table)], c.score) for c in found], ways)
        rows += [Pair(names[a], names[b], group, *row) for (a, b), row in zip(pairs, inside.rows, strict=True)]
        for k, c in enumerate(inside.contrasts):
            by_pair.setdefault(k, []).append(c)
    mixed = {}
    spans = pred.clusters is not None and len(np.unique(np.stack([pred.clusters, pred.groups]), axis=1).T) > len(
        np.unique(pred.clusters)
    )
    for k, (a, b) in enumerate(pairs):
        contrasts = [c for c in by_pair.get(k, []) if c.se > 0]
        if spans or len(contrasts) < 2:
            continue
        test = heterogeneity(
            np.array([c.difference for c in contrasts]),
            np.diag([c.se**2 for c in contrasts]),
            min(1e9, *(c.df for c in contrasts)),  # the bootstrap has no limit
        )
        mixed[names[a], names[b]] = test.p
    if spans:
        notify("clusters span several groups: no test across groups", UQWarning, stacklevel=2)
    return rows, mixed


def _cautions(metric: Metric, models: bool, found: list[Candidate]) -> list[str]:
    notes = []
    if models and metric.name == "h_auc":
        notes.append("H-AUC depends on the accuracy: across models a less accurate one can look better")
    if models and metric.name == "uq_c_index":
        notes.append("UQ-C-index contains the model's own probabilities: do not rank models by it")
    table = found[0].table
    if "error" in metric.needs and table.error is not None:
        tables = {id(c.table): c.table for c in found}.values()
        wrong = [int(t.error.sum()) for t in tables if t.error is not None]
        for what, count in (("errors", min(wrong)), ("right rows", table.pred.n - max(wrong))):
            if count < 10:
                notes.append(f"few {what} ({count}): the tests have little power")
        weighted = [kish(t.weights[t.error > 0]) for t in tables if t.weights is not None and t.error is not None]
        if min(wrong) >= 10 and weighted and min(weighted) < 20:
            notes.append(f"the errors weigh as few as {min(weighted):.0f} rows: the tests may be too bold")
    if metric.name == "log_loss":
        for candidate in found:
            if count := int(np.isinf(candidate.table.model_rows("log_loss")).sum()):
                notes.append(f"{candidate.name}: {count} labels have probability 0: the log-loss is infinite")
    if table.pred.clusters is not None and (count := int(table.pred.clusters.max()) + 1) < 10:
        notes.append("a single cluster: no intervals and no tests" if count == 1 else f"few clusters ({count})")
    for candidate in found:
        if candidate.score is not None and (count := int(np.isinf(candidate.table.score(candidate.score)).sum())):
            notes.append(f"{candidate.name}: {count} infinite values; they rank first or last and tie")
    return notes
