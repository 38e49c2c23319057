"""Intervals for out-of-distribution detection: known and foreign rows are two samples."""

import math
from dataclasses import replace

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.count import count_sample
from uqeval.inference.forms import Interval, hull
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Sample
from uqeval.inference.unseen import precision_ends
from uqeval.metrics.areas import Ranking
from uqeval.metrics.ood import average_precision, rank_needed, stack
from uqeval.metrics.registry import REGISTRY


def estimate_auroc(score_in: Float, score_out: Float, level: float) -> Estimate:
    """The interval of UQ-AUC, with foreign rows in the place of errors."""
    score, out = stack(score_in, score_out)
    metric = REGISTRY["uq_auc"]
    found = estimate_ranking(metric, count_sample(metric, Sample.of(score, out)), level)
    notes = (
        note.replace("few errors", "few foreign rows").replace("right rows", "known rows") for note in found.warnings
    )
    return replace(found, n_errors=None, warnings=tuple(notes))


def estimate_fpr(
    score_in: Float, score_out: Float, level: float, rng: np.random.Generator, resamples: int = 2000, tpr: float = 0.95
) -> Estimate:
    """FPR at a TPR: where the true cut lies among the known rows, and what share of all foreign rows lies below it.

    Of n known rows B lie below the true cut, binomial with the TPR: it is between the rows B and B + 1, of which each
    draw takes either. The share below a row that has j foreign rows below it is between Beta(j, m − j + 1) and
    Beta(j + 1, m − j), as for Clopper and Pearson. The interval goes from the lower quantile of the lower draws to the
    upper one of the upper draws.
    """
    inside, outside = np.sort(score_in), np.sort(score_out)
    n, m, tail = len(inside), len(outside), (1 - level) / 2
    below = np.concatenate([[0], np.searchsorted(outside, inside, side="right"), [m]])
    found = below[rng.binomial(n, tpr, size=resamples) + rng.integers(2, size=resamples)]
    lower = np.where(found > 0, rng.beta(np.maximum(found, 1), m - found + 1), 0.0)
    upper = np.where(found < m, rng.beta(found + 1, np.maximum(m - found, 1)), 1.0)
    few = tpr**n > tail
    return Estimate(
        value=float(below[rank_needed(n, tpr)]) / m,
        low=float(np.quantile(lower, tail)),
        high=1.0 if few else float(np.quantile(upper, 1 - tail)),
        se=float(((lower + upper) / 2).std(ddof=1)),
        level=level,
        method=f"known rows below the cut and foreign ones below those, {resamples} draws",
        n=n + m,
        warnings=_too_few(n, tpr, tail) if few else (),
    )


def _too_few(n: int, tpr: float, tail: float) -> tuple[str, ...]:
    needed = "" if tpr == 1 else f"; from {math.ceil(math.log(tail) / math.log(tpr))} on they can"
    return (f"{n} known rows cannot say where {100 * tpr:g}% of them lie: no upper bound{needed}",)


def estimate_aupr(
    score_in: Float, score_out: Float, level: float, rng: np.random.Generator, resamples: int = 2000
) -> Estimate:
    """Average precision with foreign rows as positives: stratified percentile bootstrap, with room for a row that was
    not seen. Resampling changes multiplicities of sorted rows only."""
    score, out = stack(score_in, score_out)
    seeds = rng.integers(0, 2**64, size=(resamples, 2), dtype=np.uint64)
    values = kernels.bootstrap_precision(Ranking(-score).marks(out), seeds)
    value, se = average_precision(-score, out), float(values.std(ddof=1))
    low, high = (float(x) for x in np.quantile(values, [(1 - level) / 2, (1 + level) / 2]))
    interval = hull(Interval(low, high), precision_ends(value, se, len(score_in), len(score_out), level))
    return Estimate(
        value=value,
        low=float(interval.low),
        high=float(interval.high),
        se=se,
        level=level,
        method=f"stratified percentile bootstrap, {resamples} resamples; an unseen row",
        n=len(score),
    )
