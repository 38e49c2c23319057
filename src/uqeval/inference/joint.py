"""Several candidates on the same rows → their values and covariance: numbers per unit whose products sum to it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.count import concordance_left, count_auc, count_pairs, tau_left, tau_sums
from uqeval.inference.influence import area_influence, concordance_influence
from uqeval.inference.sample import Rows, Sample
from uqeval.inference.tally import NAN, JointPart, JointTally
from uqeval.inference.unseen import room_beside
from uqeval.metrics.areas import Formula
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import Swept


def joint_of_samples(metric: Metric, samples: list[Sample]) -> JointTally:
    """Scores (or models) ranked against their targets: numbers per unit whose products sum to covariances.

    DeLong placements, delete-one shifts or influence values, whichever the interval of the metric itself uses.
    """
    if metric.tally not in ("auc", "area", "late area"):
        samples = [sample.as_loss for sample in samples]
    for sample in samples:
        if not sample.binary:
            sample.truth.order  # noqa: B018  several samples may share it
    if metric.tally == "auc" and samples[0].rows.plain and _alike(samples):
        return _with_room(metric, samples, _placed(samples))
    kernels.side_by_side([partial(_sort, metric, sample) for sample in samples])
    if metric.tally == "auc":
        found = _joint_auc(samples)
    elif metric.formula is not None:
        found = _joint_areas(metric, samples)
    else:
        found = _joint_pairs(metric, samples)
    return _with_room(metric, samples, found)


def _with_room(metric: Metric, samples: list[Sample], found: JointTally) -> JointTally:
    pers = [metric.formula.per(one.areas(metric)) for one in samples] if isinstance(metric.formula, Formula) else []
    paired = metric.tally in ("pairs", "tau")  # whose loss has no right and wrong rows, nor sums that would be finite
    room = room_beside(metric, [sample.rows.sizes() if paired else sample.sizes for sample in samples], pers)
    return replace(found, room=room).mapped(metric.affine)


def _sort(metric: Metric, sample: Sample) -> None:
    """What takes time for each score, so that scores can share the cores."""
    sample.ranking.order  # noqa: B018
    if metric.tally == "area":
        if isinstance(sample.ranked, Swept):
            sample.ranked.by_place  # noqa: B018
    elif metric.tally != "late area" and sample.rows.weights is None:
        sample.counts  # noqa: B018


def joint_of_rows(values: list[float], influence: list[Float], rows: Rows) -> JointTally:
    """Means (accuracy, Brier score, log-loss, ECE): influence values of the rows."""
    return JointTally(np.array(values), (_influence_part(rows, np.stack(influence), rows.sizes().units - 1),))


def _influence_part(rows: Rows, influence: Float, df: float, inflate: Float | None = None) -> JointPart:
    units = influence * (rows.w / rows.total_weight)
    if rows.clusters is not None:
        units = np.stack([rows.by_unit(row) for row in units])
        count = units.shape[1]
        return JointPart.of_units(units * math.sqrt(count / (count - 1)) if count > 1 else units * NAN, df)
    return JointPart.of_units(units * (math.sqrt(rows.n / (rows.n - 1)) if inflate is None else np.sqrt(inflate)), df)


def _jackknife_part(left: Float, df: float) -> JointPart:
    """From the (K, units) values without each unit."""
    count = left.shape[1]
    if count < 2:
        return JointPart.of_units(np.full(left.shape, NAN), df)
    return JointPart.of_units((left - left.mean(axis=1, keepdims=True)) * math.sqrt((count - 1) / count), df)


def _joint_auc(samples: list[Sample]) -> JointTally:
    rows = samples[0].rows
    tallies = [count_auc(sample) for sample in samples]
    values = np.array([tally.value for tally in tallies])
    smallest = min(min(tally.sizes.right.size, tally.sizes.wrong.size) for tally in tallies)
    if smallest == 0:
        return JointTally(values, (JointPart.of_units(np.full((len(samples), 2), NAN), 1.0),))
    if not rows.plain:
        # Clusters count by how their errors lie on them: with units − 1 the level was up to .069 in place of .05.
        df = min(min(tally.sizes.numbers) for tally in tallies) - 1
        left = [concordance_left(sample)[1] for sample in samples]
        return JointTally(values, (_jackknife_part(np.stack(left), df),))
    # Two models: each its own errors, so DeLong's common-label formula does not apply.
    influence = np.stack([concordance_influence(sample) for sample in samples])
    return JointTally(values, (_influence_part(rows, influence, smallest - 1),))


def _alike(samples: list[Sample]) -> bool:
    """Whether all have the same errors, of both kinds."""
    first = samples[0].target
    same = all(sample.target is first or np.array_equal(sample.target, first) for sample in samples)
    return same and 0 < int(np.count_nonzero(first)) < len(first)


def _placed(samples: list[Sample]) -> JointTally:
    """DeLong placements of scores against the same errors, in one pass over each score."""
    wrong = samples[0].target.view(np.bool_)
    sides = [np.flatnonzero(~wrong), np.flatnonzero(wrong)]
    values, units = np.empty(len(samples)), [np.empty((len(samples), len(side))) for side in sides]
    others = [len(side) for side in sides[::-1]]

    def place(k: int) -> None:
        credit2 = samples[k].credit2_of_rows()
        for side, other, out in zip(sides, others, units, strict=True):
            own = credit2[side]
            values[k] = int(own.sum(dtype=np.int64)) / (2 * len(side) * other)  # the same of both
            np.divide(own, 2.0 * other, out=out[k])
            out[k] -= values[k]
            out[k] *= 1 / math.sqrt(len(side) * (len(side) - 1)) if len(side) > 1 else NAN

    kernels.side_by_side([partial(place, k) for k in range(len(samples))])
    return JointTally(values, tuple(JointPart.of_units(own, own.shape[1] - 1) for own in units))


def _joint_pairs(metric: Metric, samples: list[Sample]) -> JointTally:
    """Delete-one (row or cluster) jackknife of the differences."""
    rows = samples[0].rows
    df = rows.sizes().units - 1
    if rows.plain and metric.tally == "pairs":
        return _plain_pairs(samples)
    tallies = [count_pairs(metric, sample) for sample in samples]
    if metric.tally == "tau":
        left = [(tau_left(*tau_sums(sample)) + 1) / 2 for sample in samples]
    else:
        left = [concordance_left(sample)[1] for sample in samples]
    return JointTally(np.array([tally.value for tally in tallies]), (_jackknife_part(np.stack(left), df),))


def _plain_pairs(samples: list[Sample]) -> JointTally:
    """The same from integer counts, in one pass over each score: d_i = −(credit2_i − 2C·m_i)/(M − 2m_i)."""
    n = samples[0].n
    values, units = np.full(len(samples), NAN), np.empty((len(samples), n))
    for k, sample in enumerate(samples):
        credit2, comparable = sample.counts
        total = int(comparable.sum())
        if total == 0 or total <= 2 * int(comparable.max()):
            values[k] = int(credit2.sum()) / (2 * total) if total else NAN
            units[k] = NAN
            continue
        twice = int(credit2.sum()) / total
        values[k] = twice / 2
        if comparable[0] * n == total and comparable.min() == comparable[0]:  # no ties: m_i is the same for all
            m = int(comparable[0])
            np.subtract(twice * m, credit2, out=units[k])
            units[k] *= math.sqrt((n - 1) / n) / (total - 2 * m)
        else:
            shift = (twice * comparable - credit2) / (total - 2.0 * comparable)
            units[k] = (shift - shift.mean()) * math.sqrt((n - 1) / n)
    return JointTally(values, (JointPart.of_units(units, n - 1),))


def _joint_areas(metric: Metric, samples: list[Sample]) -> JointTally:
    """t with (fewest errors − 1), rows where any candidate errs inflated by m/(m − 1)."""
    assert metric.formula is not None
    rows = samples[0].rows
    values = np.array([float(metric.formula.value(sample.areas(metric))) for sample in samples])
    influence = np.stack(
        [
            np.full(rows.n, NAN) if math.isnan(value) else area_influence(sample, metric)
            for value, sample in zip(values, samples, strict=True)
        ]
    )
    if rows.clusters is not None:
        return JointTally(values, (_influence_part(rows, influence, min(x.sizes.numbers[1] for x in samples) - 1),))
    worst = _worst(samples)
    size = rows.sizes(worst).loss.size
    df = min(sample.sizes.errors for sample in samples) - 1
    inflate = np.where(worst > 0, size / (size - 1) if size > 1 else NAN, rows.n / (rows.n - 1))
    return JointTally(values, (_influence_part(rows, influence, df, inflate),))


def _worst(samples: list[Sample]) -> NDArray[np.float64]:
    return np.max([sample.loss for sample in samples], axis=0)
