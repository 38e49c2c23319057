"""Rows in memory → tallies."""

import math

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.inference.influence import area_influence, concordance_influence, ece_influence, later_shares
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inference.tally import (
    NAN,
    AreaTally,
    AucTally,
    Cells,
    EceTally,
    JointPart,
    JointTally,
    MeanTally,
    PairTally,
    Spread,
)
from uqeval.metrics.areas import Formula
from uqeval.metrics.correlation import pair_rows
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import Metric

_CELLS = 4096  # rows of the calibration test are pooled into that many cells of almost equal confidence


def count_sample(metric: Metric, sample: Sample) -> AucTally | PairTally | AreaTally:
    """The tally of a metric that ranks rows."""
    if metric.tally == "auc":
        return _auc(sample)
    return _area(metric, sample) if metric.tally == "area" else _pairs(metric, sample)


# ---- pairs ------------------------------------------------------------------------------------------------------


def _auc(sample: Sample) -> AucTally:
    sizes = sample.sizes
    if not sizes.wrong.rows or not sizes.right.rows:
        return AucTally(sizes, False, 0, 0)
    if sizes.plain:
        sums = sample.auc[1]
        pairs = sums.wrong * (sample.n - sums.wrong)
        squares = (sums.wrong_squares, sums.right_squares)
        return AucTally(sizes, sample.constant_score, sums.credit2, pairs, *squares)
    (credit, total), left = _left_out_of(sample)
    return AucTally(sizes, sample.constant_score, credit, total / 2, left=left)


def _pairs(metric: Metric, sample: Sample) -> PairTally:
    """UQ-C-index, Somers' D; tau-b."""
    sample, sizes = sample.as_loss, sample.rows.sizes()
    if metric.tally == "tau":
        return _tau(sample)
    if sample.rows.plain:
        sums = kernels.concordance_sums(*sample.pair_counts)
        left = Spread(sample.n, sums.shift / sample.n, max(0.0, sums.shift2 - sums.shift**2 / sample.n))
        left = left if sums.shift == sums.shift else Spread(sample.n, NAN, NAN)
        return PairTally(sizes, sample.constant_score, sums.credit2, sums.comparable, left)
    (credit, total), left = _left_out_of(sample)
    return PairTally(sizes, sample.constant_score, 2 * credit, total, left)


def _tau(sample: Sample) -> PairTally:
    (sign, in_score, in_truth), without = _tau_sums(sample)
    left = _tau_left((sign, in_score, in_truth), without)
    return PairTally(sample.rows.sizes(), False, sign + in_truth, in_truth, _spread((left + 1) / 2), in_score)


def _tau_sums(sample: Sample) -> tuple[list[float], list[Float]]:
    inside = None
    if sample.rows.clusters is not None:
        credit, in_truth = sample.within()
        _, in_score = Sample(sample.loss, sample.score, sample.rows).within()
        inside = [2 * credit - in_truth, in_score, in_truth]
    return _left_out(sample.rows, list(pair_rows(sample.score, sample.loss, sample.rows.weights)), inside)


def _tau_left(totals: tuple[float, ...] | list[float], without: list[Float]) -> Float:
    """tau-b without each unit; NaN where no pair is left that differs in score, or in truth (but for rounding)."""
    some = (without[1] > 1e-12 * totals[1]) & (without[2] > 1e-12 * totals[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(some, without[0] / np.sqrt(without[1] * without[2]), NAN)


def _left_out_of(sample: Sample) -> tuple[list[float], Spread]:
    """Credit and comparable pairs (each twice), and the concordance without each unit."""
    totals, left = _concordance_left(sample)
    return totals, _spread(left)


def _concordance_left(sample: Sample) -> tuple[list[float], Float]:
    inside = None if sample.rows.clusters is None else list(sample.within())
    totals, (credit, total) = _left_out(sample.rows, list(sample.pairs), inside)
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals, np.where(total > 1e-12 * totals[1], credit / total, NAN)


def _left_out(rows: Rows, sums: list[Float], inside: list[Float] | None) -> tuple[list[float], list[Float]]:
    """Totals of pair sums (each pair twice), and the same without each row or cluster.

    `sums[k][i]` is the sum over the other rows j of something symmetric in (i, j), weighted by w_j; `inside[k][i]` the
    same over the rows of i's own cluster.
    """
    totals, without = [], []
    for k, part in enumerate(sums):
        own = part if rows.weights is None else part * rows.weights
        total = kernels.order_free_sum(own)
        totals.append(total)
        if rows.clusters is None or inside is None:
            without.append(total - 2.0 * own)
            continue
        within = inside[k] if rows.weights is None else inside[k] * rows.weights
        without.append(total - 2.0 * _by_cluster(own, rows.clusters) + _by_cluster(within, rows.clusters))
    return totals, without


def _by_cluster(x: Float, clusters: Int) -> Float:
    return np.bincount(clusters, weights=x).astype(np.float64)


def _spread(x: Float) -> Spread:
    """NaN where a value is undefined."""
    return Spread(len(x), NAN, NAN) if len(x) < 2 or np.isnan(x).any() else Spread.of(x)


# ---- areas and means --------------------------------------------------------------------------------------------


def _area(metric: Metric, sample: Sample) -> AreaTally:
    assert metric.formula is not None
    sizes, rows = sample.sizes, sample.rows
    value = float(metric.formula.value(sample.ranked))
    if math.isnan(value) or not sizes.wrong.rows:
        tally = AreaTally(sizes, value, 0.0, 0.0, None if rows.clusters is None else 0.0)
    else:
        part = rows.w * area_influence(sample, metric) / rows.total_weight
        bad = sample.target > 0
        right2, wrong2 = (kernels.order_free_sum(part[side] ** 2) for side in (~bad, bad))
        tally = AreaTally(sizes, value, right2, wrong2, _clusters2(part, rows))
    return _with_contributions(tally, metric, sample) if metric.interval == "gamma" else tally


def _with_contributions(tally: AreaTally, metric: Metric, sample: Sample) -> AreaTally:
    """The area as Σ contributions of wrong rows, and the most that one more wrong unit could add."""
    ranked, total = sample.ranked, sample.rows.total_weight
    if isinstance(metric.formula, Formula) and metric.formula.slopes(ranked).aurc:
        steps = ranked.steps
        by_row, largest = later_shares(ranked), float((steps.step / steps.weight).sum()) / total
    else:
        blocks = ranked.blocks
        by_row, largest = np.empty(sample.n), 1.0 / total
        by_row[blocks.row] = np.repeat((total - np.cumsum(blocks.weight) + blocks.weight / 2) / total, blocks.size)
    parts = sample.rows.w * sample.loss * by_row / total
    few = {"contributions2": kernels.order_free_sum(parts * parts), "largest": largest * tally.sizes.largest}
    return AreaTally(tally.sizes, tally.value, tally.right2, tally.wrong2, tally.clusters2, **few)


def _clusters2(part: Float, rows: Rows) -> float | None:
    if rows.clusters is None:
        return None
    groups = np.bincount(rows.clusters, weights=part)
    return float((groups * groups).sum())


def count_mean(values: Float, rows: Rows) -> MeanTally:
    """The mean of some numbers of the rows."""
    mean, sizes = weighted_mean(values, rows.weights), rows.sizes()
    if not math.isfinite(mean):
        return MeanTally(sizes, mean, NAN, None if rows.clusters is None else NAN, int(np.isinf(values).sum()))
    part = rows.w * (values - mean) / rows.total_weight
    return MeanTally(sizes, mean, kernels.order_free_sum(part * part), _clusters2(part, rows))


def count_ece(given: Confidences) -> EceTally:
    """Bins of confidence."""
    rows, bins = given.rows, given.bins
    part = rows.w * ece_influence(bins, given.confidence, given.correct) / rows.total_weight
    return EceTally(rows.sizes(), bins, kernels.order_free_sum(part * part), _clusters2(part, rows))


def calibration_cells(given: Confidences) -> Cells:
    """The spread of confidences inside a pooled cell is far below the noise of a draw. Does not depend on row order."""
    rows, row_bin = given.rows, given.bins.row_bin
    order = np.lexsort((rows.w, given.confidence, row_bin))
    c, b = given.confidence[order], row_bin[order]
    if rows.weights is not None or len(c) <= _CELLS:
        return Cells(np.ones(len(c), dtype=np.int64), c, rows.w[order], b)
    cut = np.arange(len(c)) * _CELLS // len(c)
    first = np.flatnonzero(np.concatenate([[True], (cut[1:] != cut[:-1]) | (b[1:] != b[:-1])]))
    size = np.diff(first, append=len(c))
    return Cells(size, np.add.reduceat(c, first) / size, np.ones(len(first)), b[first])


# ---- K candidates -----------------------------------------------------------------------------------------------


def joint_of_samples(metric: Metric, samples: list[Sample]) -> JointTally:
    """Scores (or models) ranked against their targets: numbers per unit whose products sum to covariances.

    DeLong placements, delete-one shifts or influence values, whichever the interval of the metric itself uses.
    """
    if metric.tally == "auc":
        found = _joint_auc(samples)
    elif metric.tally == "area":
        found = _joint_areas(metric, samples)
    else:
        found = _joint_pairs(metric, [sample.as_loss for sample in samples])
    return found.mapped(metric.affine)


def joint_of_rows(values: list[float], influence: list[Float], rows: Rows) -> JointTally:
    """Means (accuracy, Brier score, log-loss, ECE): influence values of the rows."""
    return JointTally(np.array(values), (_influence_part(rows, np.stack(influence), rows.sizes().units - 1),))


def _influence_part(rows: Rows, influence: Float, df: float, inflate: Float | None = None) -> JointPart:
    units = influence * (rows.w / rows.total_weight)
    if rows.clusters is not None:
        units = np.stack([np.bincount(rows.clusters, weights=row) for row in units])
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
    first, rows = samples[0], samples[0].rows
    tallies = [_auc(sample) for sample in samples]
    values = np.array([tally.value for tally in tallies])
    smallest = min(min(tally.sizes.right.size, tally.sizes.wrong.size) for tally in tallies)
    if smallest == 0:
        return JointTally(values, (JointPart.of_units(np.full((len(samples), 2), NAN), 1.0),))
    if not rows.plain:
        df = rows.sizes().units - 1 if rows.clusters is not None else smallest - 1
        left = [_concordance_left(sample)[1] for sample in samples]
        return JointTally(values, (_jackknife_part(np.stack(left), df),))
    if not all(s.target is first.target or np.array_equal(s.target, first.target) for s in samples):
        # Two models: each its own errors, so DeLong's common-label formula does not apply.
        influence = np.stack([concordance_influence(sample) for sample in samples])
        return JointTally(values, (_influence_part(rows, influence, smallest - 1),))
    credit, wrong = np.stack([sample.auc[0] for sample in samples]), first.target.astype(bool)
    parts = []
    for side in (~wrong, wrong):
        count = int(side.sum())
        placement = credit[:, side] / (2.0 * (first.n - count)) - values[:, None]
        scale = 1 / math.sqrt(count * (count - 1)) if count > 1 else NAN
        parts.append(JointPart.of_units(placement * scale, count - 1))
    return JointTally(values, tuple(parts))


def _joint_pairs(metric: Metric, samples: list[Sample]) -> JointTally:
    """Delete-one (row or cluster) jackknife of the differences."""
    rows = samples[0].rows
    df = rows.sizes().units - 1
    if rows.plain and metric.tally == "pairs":
        return _plain_pairs(samples)
    tallies = [_pairs(metric, sample) for sample in samples]
    if metric.tally == "tau":
        left = [(_tau_left(*_tau_sums(sample)) + 1) / 2 for sample in samples]
    else:
        left = [_concordance_left(sample)[1] for sample in samples]
    return JointTally(np.array([tally.value for tally in tallies]), (_jackknife_part(np.stack(left), df),))


def _plain_pairs(samples: list[Sample]) -> JointTally:
    """The same from integer counts, in one pass over each score: d_i = −(credit2_i − 2C·m_i)/(M − 2m_i)."""
    n = samples[0].n
    values, units = np.full(len(samples), NAN), np.empty((len(samples), n))
    for k, sample in enumerate(samples):
        credit2, comparable = sample.pair_counts
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
    values = np.array([float(metric.formula.value(sample.ranked)) for sample in samples])
    influence = np.stack(
        [
            np.full(rows.n, NAN) if math.isnan(value) else area_influence(sample, metric)
            for value, sample in zip(values, samples, strict=True)
        ]
    )
    if rows.clusters is not None:
        return JointTally(values, (_influence_part(rows, influence, rows.sizes().units - 1),))
    worst = _worst(samples)
    size = rows.sizes(worst).loss.size
    df = min(sample.sizes.errors for sample in samples) - 1
    inflate = np.where(worst > 0, size / (size - 1) if size > 1 else NAN, rows.n / (rows.n - 1))
    return JointTally(values, (_influence_part(rows, influence, df, inflate),))


def _worst(samples: list[Sample]) -> NDArray[np.float64]:
    return np.max([sample.loss for sample in samples], axis=0)
