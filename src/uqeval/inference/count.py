"""Rows in memory → tallies."""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float
from uqeval.inference.influence import (
    Linear,
    area_influence,
    concordance_influence,
    ece_influence,
    later_shares,
    swept_influence,
)
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
from uqeval.metrics.areas import Formula, Swept
from uqeval.metrics.correlation import pair_rows
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import Metric

_CELLS = 4096  # rows from which on the calibration test pools them …
_FINE = 480  # … into cells of that many confidences; a multiple of the number of bins


def count_sample(metric: Metric, sample: Sample) -> AucTally | PairTally | AreaTally:
    """The tally of a metric that ranks rows; metrics that differ in the last step only (AURC, AUARC) share it."""
    key = metric.formula or metric.tally
    if key not in sample.tallies:
        if metric.tally == "area":
            sample.tallies[key] = _area(metric, sample)
        else:
            sample.tallies[key] = _auc(sample) if metric.tally == "auc" else _paired(metric, sample)
    found: AucTally | PairTally | AreaTally = sample.tallies[key]
    return found


# ---- pairs ------------------------------------------------------------------------------------------------------


def _auc(sample: Sample) -> AucTally:
    sizes = sample.sizes
    if not sizes.wrong.rows or not sizes.right.rows:
        return AucTally(sizes, False, 0, 0)
    if sizes.plain:
        sums = sample.auc
        pairs = sums.wrong * (sample.n - sums.wrong)
        squares = (sums.wrong_squares, sums.right_squares)
        return AucTally(sizes, sample.ranking.constant, sums.credit2, pairs, *squares)
    (credit, total), left = _left_out_of(sample)
    return AucTally(sizes, sample.ranking.constant, credit, total / 2, left=left)


def _paired(metric: Metric, sample: Sample) -> PairTally:
    return _tau(sample) if metric.tally == "tau" else _pairs(sample)


def _pairs(sample: Sample) -> PairTally:
    """UQ-C-index, Somers' D."""
    sample, sizes = sample.as_loss, sample.rows.sizes()
    if sample.rows.plain:
        sums = sample.concordance
        left = Spread(sample.n, sums.shift / sample.n, max(0.0, sums.shift2 - sums.shift**2 / sample.n))
        left = left if sums.shift == sums.shift else Spread(sample.n, NAN, NAN)
        return PairTally(sizes, sample.ranking.constant, sums.credit2, sums.comparable, left)
    (credit, total), left = _left_out_of(sample)
    return PairTally(sizes, sample.ranking.constant, 2 * credit, total, left)


def _tau(sample: Sample) -> PairTally:
    """Kendall's tau-b."""
    sample = sample.as_loss
    (sign, in_score, in_truth), without = _tau_sums(sample)
    left = _tau_left((sign, in_score, in_truth), without)
    return PairTally(sample.rows.sizes(), False, sign + in_truth, in_truth, _spread((left + 1) / 2), in_score)


def _tau_sums(sample: Sample) -> tuple[list[float], list[Float]]:
    """Totals of sign, pairs that differ in score and in truth (each pair twice), and the same without each unit."""
    rows = sample.rows
    inside: list[Float] | None = None
    if rows.clusters is not None:
        credit, in_truth = sample.within
        _, in_score = Sample(sample.truth, sample.score, rows, sample.ranking).within
        inside = [2 * credit - in_truth, in_score, in_truth]
    totals, without = [], []
    for k, part in enumerate(pair_rows(sample.ranking, sample.truth, rows.weights)):
        own = part if rows.weights is None else part * rows.weights
        totals.append(kernels.order_free_sum(own))
        if inside is None:
            without.append(totals[k] - 2.0 * own)
        else:
            without.append(totals[k] - 2.0 * rows.by_unit(own) + inside[k])
    return totals, without


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
    rows = sample.rows
    if rows.clusters is None:
        own = [x if rows.weights is None else x * rows.weights for x in sample.pairs]
        totals = [kernels.order_free_sum(x) for x in own]
        credit, total = (whole - 2.0 * x for whole, x in zip(totals, own, strict=True))
    else:
        of_units, inside = sample.pairs_of_units, sample.within
        if rows.weights is None:
            totals = [float(x.sum()) for x in of_units]  # multiples of ½
        else:
            totals = [kernels.order_free_sum(x * rows.weights) for x in sample.pairs]
        credit, total = (whole - 2.0 * x + within for whole, x, within in zip(totals, of_units, inside, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals, np.where(total > 1e-12 * totals[1], credit / total, NAN)


def _spread(x: Float) -> Spread:
    """NaN where a value is undefined."""
    return Spread(len(x), NAN, NAN) if len(x) < 2 or np.isnan(x).any() else Spread.of(x)


# ---- areas and means --------------------------------------------------------------------------------------------


def _area(metric: Metric, sample: Sample) -> AreaTally:
    assert metric.formula is not None
    sizes, rows, ranked = sample.sizes, sample.rows, sample.ranked
    value = float(metric.formula.value(ranked))
    few = _contributions(metric, sample) if metric.interval == "gamma" else {}
    if math.isnan(value) or not sizes.wrong.rows:
        return AreaTally(sizes, value, 0.0, 0.0, None if rows.clusters is None else 0.0, **few)
    if isinstance(ranked, Swept):
        right2, wrong2 = (x / sample.n**2 for x in swept_influence(ranked, metric).squares(ranked))
        return AreaTally(sizes, value, right2, wrong2, _swept_clusters2(metric, sample), **few)
    part = rows.w * area_influence(sample, metric) / rows.total_weight
    bad = sample.target > 0
    right2, wrong2 = (kernels.order_free_sum(part[side] ** 2) for side in (~bad, bad))
    return AreaTally(sizes, value, right2, wrong2, _clusters2(part, rows), **few)


def _contributions(metric: Metric, sample: Sample) -> dict[str, float]:
    """The area as Σ contributions of wrong rows, squared, and the most that one more wrong unit could add."""
    ranked, total, sizes = sample.ranked, sample.rows.total_weight, sample.sizes
    walked = isinstance(metric.formula, Formula) and metric.formula.slopes(ranked).aurc
    if isinstance(ranked, Swept):
        sums = ranked.sums
        squares = sums.shares2 / total**2 if walked else sums.later2 / (4 * sums.rows**4)
        return {"contributions2": squares, "largest": (sums.harmonic if walked else 1.0) / total * sizes.largest}
    if walked:
        steps = ranked.steps
        by_row, largest = later_shares(ranked), float((steps.step / steps.weight).sum()) / total
    else:
        blocks = ranked.blocks
        by_row, largest = np.empty(sample.n), 1.0 / total
        by_row[blocks.row] = np.repeat((total - np.cumsum(blocks.weight) + blocks.weight / 2) / total, blocks.size)
    parts = sample.rows.w * sample.loss * by_row / total
    return {"contributions2": kernels.order_free_sum(parts * parts), "largest": largest * sizes.largest}


def _swept_clusters2(metric: Metric, sample: Sample) -> float | None:
    """Squared influences of clusters, from sums over each that all metrics share."""
    rows, ranked = sample.rows, sample.ranked
    if rows.clusters is None:
        return None
    assert isinstance(ranked, Swept)
    found = swept_influence(ranked, metric)
    if isinstance(found, Linear):
        e, credit2, right, wrong = sample.swept_units
        units = (float(found.slope) * (credit2 if found.of_credit else e)) / found.per
        units += (float(found.right) / found.per) * right + (float(found.wrong) / found.per) * wrong
    else:
        start, end = found.cut
        order, wrong_rows = sample.ranking.order.row, (ranked.row_marks & 1).view(np.bool_)
        units = np.zeros(len(rows.held)) - (found.risk - found.near) * rows.held
        for part, share in ((slice(0, start), 1.0), (slice(start, end), found.share)):
            code, bad = rows.clusters[order[part]], wrong_rows[part]
            taken, errors = (np.bincount(x, minlength=len(units)) for x in (code, code[bad]))
            units += share * (errors - found.near * taken) / found.coverage
    units /= sample.n
    return float((units * units).sum())


def _clusters2(part: Float, rows: Rows) -> float | None:
    if rows.clusters is None:
        return None
    groups = kernels.cell_sums(part, rows.clusters, len(rows.held))
    return float((groups * groups).sum())


def count_mean(values: Float, rows: Rows) -> MeanTally:
    """The mean of some numbers of the rows."""
    mean, sizes = weighted_mean(values, rows.weights), rows.sizes()
    if not math.isfinite(mean):
        return MeanTally(sizes, mean, NAN, None if rows.clusters is None else NAN, int(np.isinf(values).sum()))
    return MeanTally(sizes, mean, *_squared(values - mean, rows))


def count_ece(given: Confidences) -> EceTally:
    """Bins of confidence."""
    rows, bins = given.rows, given.bins
    return EceTally(rows.sizes(), bins, *_squared(ece_influence(bins, given.confidence, given.correct), rows))


def _squared(part: Float, rows: Rows) -> tuple[float, float | None]:
    """Σ of squares over rows, and over clusters, of numbers times weight over Σ weight; works in place."""
    if rows.weights is not None:
        part *= rows.weights
    part /= rows.total_weight
    clusters2 = _clusters2(part, rows)
    return kernels.order_free_sum(np.square(part, out=part)), clusters2


def calibration_cells(given: Confidences) -> Cells:
    """Rows to draw labels for: one by one, or many of them pooled with their neighbours of almost equal confidence.

    The confidences inside a pooled cell differ by up to 0.002, which changes the variance of a draw by less than 1%.
    """
    rows, row_bin, c = given.rows, given.bins.row_bin, given.confidence
    if rows.n <= _CELLS:
        order = np.lexsort((rows.w, c, row_bin))
        return Cells(np.ones(rows.n, dtype=np.int64), c[order], rows.w[order], row_bin[order])
    key = row_bin * _FINE + np.clip(np.ceil(c * _FINE).astype(np.int64) - 1, 0, _FINE - 1)
    size = np.bincount(key)
    filled = np.flatnonzero(size)
    size, cell = size[filled], (np.cumsum(size > 0) - 1)[key]

    def by_cell(x: Float) -> Float:
        return kernels.cell_sums(x, cell, len(size))

    mean = by_cell(c) / size
    if rows.weights is None:
        return Cells(size, mean, np.ones(len(size)), filled // _FINE)
    weight, *powers = (by_cell(rows.weights**k) for k in range(1, 5))
    return Cells(size, mean, weight / size, filled // _FINE, np.stack(powers))


# ---- K candidates -----------------------------------------------------------------------------------------------


def joint_of_samples(metric: Metric, samples: list[Sample]) -> JointTally:
    """Scores (or models) ranked against their targets: numbers per unit whose products sum to covariances.

    DeLong placements, delete-one shifts or influence values, whichever the interval of the metric itself uses.
    """
    if metric.tally != "auc" and metric.tally != "area":
        samples = [sample.as_loss for sample in samples]
    for sample in samples:
        if not sample.binary:
            sample.truth.order  # noqa: B018  several samples may share it
    if metric.tally == "auc" and samples[0].rows.plain and _alike(samples):
        return _placed(samples).mapped(metric.affine)
    kernels.side_by_side([partial(_sort, metric, sample) for sample in samples])
    if metric.tally == "auc":
        found = _joint_auc(samples)
    elif metric.tally == "area":
        found = _joint_areas(metric, samples)
    else:
        found = _joint_pairs(metric, samples)
    return found.mapped(metric.affine)


def _sort(metric: Metric, sample: Sample) -> None:
    """What takes time for each score, so that scores can share the cores."""
    sample.ranking.order  # noqa: B018
    if metric.tally == "area":
        if isinstance(sample.ranked, Swept):
            sample.ranked.by_place  # noqa: B018
    elif sample.rows.weights is None:
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
    tallies = [_auc(sample) for sample in samples]
    values = np.array([tally.value for tally in tallies])
    smallest = min(min(tally.sizes.right.size, tally.sizes.wrong.size) for tally in tallies)
    if smallest == 0:
        return JointTally(values, (JointPart.of_units(np.full((len(samples), 2), NAN), 1.0),))
    if not rows.plain:
        df = rows.sizes().units - 1 if rows.clusters is not None else smallest - 1
        left = [_concordance_left(sample)[1] for sample in samples]
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
    tallies = [_paired(metric, sample) for sample in samples]
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
