"""Rows in memory → tallies."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from uqeval import kernels
from uqeval._check import Float
from uqeval._lanes import Number, choose, has_lanes
from uqeval.inference.influence import Linear, area_influence, ece_influence, later_shares, swept_influence
from uqeval.inference.sample import Confidences, Rows, Sample
from uqeval.inference.sizes import Sizes
from uqeval.inference.tally import NAN, AreaTally, AucTally, BinClusters, Cells, EceTally, MeanTally, PairTally, Spread
from uqeval.inference.unseen import adds
from uqeval.kernels import AucSums, ConcordanceSums
from uqeval.metrics.areas import Formula, Ranked
from uqeval.metrics.correlation import pair_rows
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import Metric
from uqeval.metrics.swept import Swept, SweptSums

_CELLS = 4096  # rows from which on the calibration test pools them …
_CLUSTERS_AT_ONCE = 1 << 17
_FINE = 480  # … into cells of that many confidences; a multiple of the number of bins


def count_sample(metric: Metric, sample: Sample) -> AucTally | PairTally | AreaTally:
    """The tally of a metric that ranks rows; metrics that differ in the last step only (AURC, AUARC) share it."""
    key = metric.formula or metric.tally
    if key not in sample.tallies:
        if metric.tally in ("area", "late area"):
            sample.tallies[key] = _area(metric, sample)
        else:
            sample.tallies[key] = count_auc(sample) if metric.tally == "auc" else count_pairs(metric, sample)
    found: AucTally | PairTally | AreaTally = sample.tallies[key]
    return found


# ---- pairs ------------------------------------------------------------------------------------------------------


def count_auc(sample: Sample) -> AucTally:
    sizes = sample.sizes
    if sizes.plain:
        return auc_of_sums(sample.auc, sizes, sample.ranking.constant)
    if not sizes.wrong.rows or not sizes.right.rows:
        return AucTally(sizes, False, 0, 0)
    (credit, total), left = _left_out_of(sample)
    return AucTally(sizes, sample.ranking.constant, credit, total / 2, left=left, places=places(sample))


def auc_of_sums(sums: AucSums, sizes: Sizes, constant: Number) -> AucTally:
    """Of plain rows, wherever they are."""
    squares = (sums.wrong_squares, sums.right_squares)
    return AucTally(sizes, constant, sums.credit2, sums.wrong * (sizes.rows - sums.wrong), *squares)


def places(sample: Sample) -> tuple[float, float]:
    """Where an error that was not seen may rank: among the lowest and the highest quarter of the rows.

    Where heavy rows are the sure ones, so are the errors that weigh: the quarters that hold a quarter of the squared
    weights, where those reach further.
    """
    if sample.rows.weights is None:
        return 0.25, 0.75
    if "places" not in sample.tallies:
        order = sample.ranking.order
        w = sample.rows.weights[order.row]
        weight, squares = (kernels.block_sums(x, order.first) for x in (w, w * w))
        rank, running = (np.cumsum(weight) - weight / 2) / sample.rows.total_weight, np.cumsum(squares)
        low, high = (rank[min(np.searchsorted(running, q * running[-1]), len(rank) - 1)] for q in (0.25, 0.75))
        sample.tallies["places"] = min(0.25, float(low)), max(0.75, float(high))
    found: tuple[float, float] = sample.tallies["places"]
    return found


def count_pairs(metric: Metric, sample: Sample) -> PairTally:
    return _tau(sample) if metric.tally == "tau" else _pairs(sample)


def _pairs(sample: Sample) -> PairTally:
    """UQ-C-index, Somers' D."""
    sample, sizes = sample.as_loss, sample.rows.sizes()
    if sample.rows.plain:
        return pairs_of_sums(sample.concordance, sizes, sample.ranking.constant)
    (credit, total), left = _left_out_of(sample)
    return PairTally(sizes, sample.ranking.constant, 2 * credit, total, left)


def pairs_of_sums(sums: ConcordanceSums, sizes: Sizes, constant: Number) -> PairTally:
    """Of plain rows, wherever they are."""
    n = sizes.rows
    squares = sums.shift2 - sums.shift**2 / n  # NaN where a value is undefined
    left = Spread(n, sums.shift / n, choose(squares < 0, lambda: 0.0, lambda: squares))
    return PairTally(sizes, constant, sums.credit2, sums.comparable, left)


def _tau(sample: Sample) -> PairTally:
    """Kendall's tau-b."""
    sample = sample.as_loss
    (sign, in_score, in_truth), without = tau_sums(sample)
    left = tau_left((sign, in_score, in_truth), without)
    return PairTally(sample.rows.sizes(), False, sign + in_truth, in_truth, _spread((left + 1) / 2), in_score)


def tau_sums(sample: Sample) -> tuple[list[float], list[Float]]:
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


def tau_left(totals: tuple[float, ...] | list[float], without: list[Float]) -> Float:
    """tau-b without each unit; NaN where no pair is left that differs in score, or in truth (but for rounding)."""
    some = (without[1] > 1e-12 * totals[1]) & (without[2] > 1e-12 * totals[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(some, without[0] / np.sqrt(without[1] * without[2]), NAN)


def _left_out_of(sample: Sample) -> tuple[list[float], Spread]:
    """Credit and comparable pairs (each twice), and the concordance without each unit."""
    totals, left = concordance_left(sample)
    return totals, _spread(left)


def concordance_left(sample: Sample) -> tuple[list[float], Float]:
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
    sizes, rows, ranked = sample.sizes, sample.rows, sample.areas(metric)
    if isinstance(ranked, Swept):
        return count_swept(metric, ranked, sizes, lambda: _swept_clusters2(metric, sample))
    value = float(metric.formula.value(ranked))
    few = _contributions(metric, sample) if metric.interval == "gamma" else {}
    if isinstance(metric.formula, Formula):
        few["adds"] = adds(ranked, metric.formula, rows.total_weight, places(sample)[0])
    if math.isnan(value) or not sizes.wrong.rows:
        return AreaTally(sizes, value, 0.0, 0.0, None if rows.clusters is None else 0.0, **few)
    part = rows.w * area_influence(sample, metric) / rows.total_weight
    bad = sample.target > 0
    right2, wrong2 = (kernels.order_free_sum(part[side] ** 2) for side in (~bad, bad))
    return AreaTally(sizes, value, right2, wrong2, _clusters2(part, rows), **few)


def _contributions(metric: Metric, sample: Sample) -> dict[str, Number]:
    """The area as Σ contributions of wrong rows, squared, and the most that one more wrong unit could add."""
    ranked, total, sizes = sample.ranked, sample.rows.total_weight, sample.sizes
    assert isinstance(ranked, Ranked)
    if isinstance(metric.formula, Formula) and metric.formula.slopes(ranked).aurc:
        steps = ranked.steps
        by_row, largest = later_shares(ranked), float((steps.step / steps.weight).sum()) / total
    else:
        blocks = ranked.blocks
        by_row, largest = np.empty(sample.n), 1.0 / total
        by_row[blocks.row] = np.repeat((total - np.cumsum(blocks.weight) + blocks.weight / 2) / total, blocks.size)
    parts = sample.rows.w * sample.loss * by_row / total
    return {"contributions2": kernels.order_free_sum(parts * parts), "largest": largest * sizes.largest}


def count_swept(
    metric: Metric, swept: SweptSums, sizes: Sizes, clusters2: Callable[[], float | None] = lambda: None
) -> AreaTally:
    """An area of 0/1 errors, rows of equal weight: from the sums of a sweep, wherever the rows are."""
    assert metric.formula is not None
    sums, value = swept.sums, metric.formula.value(swept)
    few: dict[str, Number] = {}
    if metric.interval == "gamma":  # as `_contributions`
        walked = isinstance(metric.formula, Formula) and metric.formula.slopes(swept).aurc
        squares = sums.shares2 / sums.rows**2 if walked else sums.later2 / (4 * sums.rows**4)
        few = {
            "contributions2": squares,
            "largest": (sums.harmonic if walked else 1.0) / (1.0 * sums.rows) * sizes.largest,
        }
    if isinstance(metric.formula, Formula):
        few["adds"] = adds(swept, metric.formula, 1.0 * sums.rows)
    if not has_lanes(value):
        value = float(value)
        if math.isnan(value) or not sizes.wrong.rows:
            return AreaTally(sizes, value, 0.0, 0.0, None if sizes.clusters is None else 0.0, **few)
    right2, wrong2 = (x / sums.rows**2 for x in swept_influence(swept, metric).squares(swept))
    return AreaTally(sizes, value, right2, wrong2, clusters2(), **few)


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


def count_mean(values: Float, rows: Rows, share: bool = False) -> MeanTally:
    """The mean of some numbers of the rows; `share`: they are 1 where a row is right, else 0."""
    mean, sizes = weighted_mean(values, rows.weights), rows.sizes()
    if share and not rows.plain:
        sizes = replace(sizes, loads=rows.loads(values == 0, 1 - values))
    if not math.isfinite(mean):
        return MeanTally(sizes, mean, NAN, None if rows.clusters is None else NAN, int(np.isinf(values).sum()))
    return MeanTally(sizes, mean, *_squared(values - mean, rows))


def count_share(n: int, wrong: int) -> MeanTally:
    """The accuracy of plain rows, wherever they are."""
    return MeanTally(Sizes.of_rows(n, 0, binary=False), (n - wrong) / n, wrong * (n - wrong) / n**3)


def count_ece(given: Confidences) -> EceTally:
    """Bins of confidence; plug-in and debiased ECE share it."""
    if "ece" not in given.tallies:
        rows, bins = given.rows, given.bins
        squares = _squared(ece_influence(bins, given.confidence, given.correct), rows)
        by_cluster = None if rows.clusters is None else _bin_clusters(given)
        given.tallies["ece"] = EceTally(rows.sizes(), bins, *squares, by_cluster)
    found: EceTally = given.tallies["ece"]
    return found


def _bin_clusters(given: Confidences) -> BinClusters:
    """Some clusters at a time: (clusters, bins) sums of all may be larger than the rows."""
    rows, bins, order = given.rows, given.bins, given.rows.by_cluster.row
    assert rows.clusters is not None
    count, share = len(bins.share), rows.w / rows.total_weight
    part, per = given.correct - given.confidence - bins.gap[bins.row_bin], 1.0
    if rows.weights is None:  # in whole steps so fine that a cluster adds up exactly, in any order
        per = 2.0 ** (50 - int(rows.held.max()).bit_length())
        np.rint(np.multiply(part, per, out=part), out=part)
        per *= rows.n
    else:
        part *= share
    products, shares2 = np.zeros((count, count)), np.zeros(count)
    code = rows.clusters[order]
    for first in range(0, len(rows.held), _CLUSTERS_AT_ONCE):
        last = min(first + _CLUSTERS_AT_ONCE, len(rows.held))
        inside = slice(*np.searchsorted(code, (first, last)))
        some, cells = order[inside], (last - first) * count
        cell = (code[inside] - first) * count + bins.row_bin[some]
        if rows.weights is None:
            of_gap, of_share = np.bincount(cell, part[some], cells) / per, np.bincount(cell, minlength=cells) / rows.n
        else:
            of_gap, of_share = (kernels.cell_sums(x[some], cell, cells) for x in (part, share))
        table = of_gap.reshape(-1, count)
        products += np.einsum("gb,gc->bc", table, table)  # no BLAS: its threads would change the last digits
        shares2 += np.square(of_share).reshape(-1, count).sum(axis=0)
    confidence = kernels.cell_sums(share * given.confidence, bins.row_bin, count) / bins.share
    return BinClusters(products, shares2, confidence)


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
