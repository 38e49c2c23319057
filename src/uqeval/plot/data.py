"""What the charts show, as plain columns: never more than about 200 points per curve, whatever the number of rows.

Numbers only: Altair stays in `theme`, `curves` and `panels`.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels, truth
from uqeval._check import Float, Int, nearest, recode
from uqeval._errors import InputError, a_type, collected
from uqeval.decide.calibration import Calibration
from uqeval.decide.risk_map import RiskMap, band
from uqeval.evaluation.result import Evaluation
from uqeval.evaluation.row_data import RowData
from uqeval.inference.forms import clopper_pearson, risk_band
from uqeval.inference.means import estimate_mean
from uqeval.inference.measure import estimate_share
from uqeval.inference.sample import Rows
from uqeval.inference.sizes import Loads, Powers
from uqeval.inference.tally import MeanTally
from uqeval.metrics.areas import Blocks, Ranking, tie_blocks, walk
from uqeval.metrics.calibration import bin_rows
from uqeval.metrics.proper import weighted_mean
from uqeval.metrics.registry import REGISTRY

Columns = dict[str, NDArray[Any]]
MOST = 200  # points of a curve
MOST_CLUSTERED = 60  # where every point is a pass over the clusters
MOST_SCORES = 6
MOST_BINS = 50
BINS = 15  # of the reliability diagram, as for the ECE


# ---- what to show ----------------------------------------------------------------------------------------------


def check_evaluation(ev: Any) -> Evaluation:
    """An Evaluation, or an error that says what to pass."""
    if not isinstance(ev, Evaluation):
        raise InputError(f"`ev` is {a_type(ev)}. Pass what uqeval.evaluate returns.")
    return ev


def rows_of(ev: Any) -> RowData:
    """The rows behind an evaluation."""
    table = check_evaluation(ev).source
    if table is None:
        raise InputError(
            "`ev` holds estimates only: its rows never were in one place. Evaluate rows in memory to draw this chart."
        )
    return table


def shown(ev: Evaluation, scores: Sequence[str] | str | None, most: int = MOST_SCORES) -> list[str]:
    """The scores to draw: those asked for, or the best few by UQ-AUC (the first few where it was not computed), one of
    each ranking."""
    if scores is None:
        known = {row.score: row.estimate.value for row in ev.rows.whole if row.metric == "uq_auc"}

        def rank(name: str) -> tuple[bool, float]:
            value = known.get(name, math.nan)
            return (True, 0.0) if math.isnan(value) else (False, -value)

        return sorted(ev.distinct, key=rank)[:most]
    names = [scores] if isinstance(scores, str) else list(dict.fromkeys(scores))
    if not names:
        raise InputError(f"`scores` is empty. Leave it out, or pick from {', '.join(ev.scores)}.")
    for name in names:
        if name not in ev.scores:
            known_names = ", ".join(ev.scores)
            raise InputError(f'`scores`: there is no "{name}".{nearest(name, ev.scores)} Scores: {known_names}.')
    return names


def is_share(table: RowData) -> bool:
    """Whether the risk is a share of rows, those that are wrong: a mean loss is never shown in %."""
    return table.share_loss is not None and table.share_loss.dtype == np.uint8 and table.risk != "loss"


def errors_of(ev: Any, chart: str) -> NDArray[np.uint8]:
    """The 0/1 errors, with at least one of each kind."""
    table = rows_of(ev)
    error = table.error if table.error is not None else table.share_loss
    if error is None or error.dtype != np.uint8:
        raise InputError(f"{chart} needs 0/1 errors, and `ev` has a loss only. Evaluate with error= or with labels.")
    wrong = int(error.sum())
    if wrong in (0, len(error)):
        raise InputError(f"{chart} needs right and wrong predictions; of the {len(error)} rows, {wrong} are wrong.")
    return error


def misaligned_rows(ev: Any) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Whether the prediction is another than the majority label; and which rows have a majority."""
    with collected():  # said by `evaluate` already
        found = truth.misaligned_of(rows_of(ev).pred)
    if found is None:
        raise InputError("mbc needs `soft_labels` and predictions. Pass soft_labels= to Predictions, or draw mce.")
    apart, tied = found
    if tied.all():
        raise InputError("mbc needs rows with a majority label; in `soft_labels` all rows are tied.")
    return apart, ~tied


def gap_of(ev: Any) -> tuple[Float, str]:
    """The user's loss, or else the gap; and its name for the axis."""
    pred = rows_of(ev).pred
    if pred.loss is not None:
        return pred.loss, "loss"
    if pred.labels is None or pred.probs is None:
        raise InputError("score_vs_gap needs a `loss`, or labels and probabilities. Evaluate with one of them.")
    return 1.0 - pred.probs[np.arange(pred.n), pred.labels], "gap (1 − probability of the true label)"


def thin(at: Float, most: int) -> Int:
    """Which of the ascending points to keep: those next to `most` equally spaced places, both ends among them."""
    if len(at) <= most:
        return np.arange(len(at))
    return np.unique(np.searchsorted(at, np.linspace(at[0], at[-1], most)).clip(0, len(at) - 1))


# ---- curves ----------------------------------------------------------------------------------------------------


def calibration(table: RowData, name: str, loss: NDArray[Any]) -> Calibration:
    """A score against errors or losses; charts and pages share its sorting."""
    key = "calibration", name, id(loss)
    if key not in table.kept:
        own = loss if loss.dtype == np.uint8 else loss + 0.0  # −0.0 is 0.0
        bits = loss.dtype == np.uint8 and not (table.risk == "loss" and loss is table.share_loss)
        what = "error" if bits else "loss"
        ranking = table.ranking(f"score {name}")
        # The loss stays with it, so that no other array can have its id.
        table.kept[key] = Calibration(ranking.values, own, table.pred.clusters, what=what, ranking=ranking), loss
    found: Calibration = table.kept[key][0]
    return found


def prepare(table: RowData, names: Sequence[str], level: float) -> None:
    """What charts and pages need of each score; scores of many rows share the cores."""
    loss = table.share_loss
    if loss is None:
        return
    error = loss if loss.dtype == np.uint8 and 0 < np.count_nonzero(loss) < len(loss) else None
    with collected():  # the rows were warned about before
        kernels.side_by_side([partial(_prepare, table, name, loss, error, level) for name in names], table.n)


def _prepare(table: RowData, name: str, loss: NDArray[Any], error: NDArray[np.uint8] | None, level: float) -> None:
    with suppress(InputError):  # the chart says it
        risk_of(table, name, loss, level)
        if error is not None:
            roc_of(table, name, error, level)


def roc_of(table: RowData, name: str, error: NDArray[np.uint8], level: float) -> Columns:
    """`roc_points` of a score of the rows."""
    key = "roc", name, id(error), level
    if key not in table.kept:
        ranking = table.ranking(f"score {name}")
        found = roc_points(ranking.values, error, table.weights, table.pred.clusters, level, ranking)
        table.kept[key] = found, error  # which stays with it, so that no other array can have its id
    points: Columns = table.kept[key][0]
    return points


def risk_of(table: RowData, name: str, loss: NDArray[Any], level: float) -> Columns:
    """`risk_points` of a score of the rows: two charts show it."""
    key = "risk", name, id(loss), level
    if key not in table.kept:
        table.kept[key] = _risk_points(calibration(table, name, loss), table.weights, level)
    found: Columns = table.kept[key]
    return found


def roc_points(
    score: Float,
    error: NDArray[np.uint8],
    weights: Float | None,
    clusters: Int | None,
    level: float,
    ranking: Ranking | None = None,
) -> Columns:
    """Shares of the right (x) and of the wrong (y) rows whose score is above each threshold, with a band of y."""
    blocks = tie_blocks(ranking or Ranking(score), error, weights)
    wrong = np.concatenate([[0.0], np.cumsum(blocks.bad[::-1])])
    right = np.concatenate([[0.0], np.cumsum(np.maximum(blocks.weight - blocks.bad, 0.0)[::-1])])
    threshold = np.concatenate([score[blocks.row[blocks.first]][::-1] + 0.0, [-np.inf]])
    x, y = right / right[-1], wrong / wrong[-1]
    keep = thin(x + y, MOST if clusters is None or weights is not None else MOST_CLUSTERED)
    if weights is not None:
        low = high = np.full(len(keep), np.nan)
    elif clusters is None:
        low, high = risk_band(np.full(len(keep), int(wrong[-1])), wrong[keep], level)
    else:
        low, high = _share_bands(
            _ranks(blocks)[error == 1], recode(clusters[error == 1]), len(blocks.size) - keep, level
        )
    return {"x": x[keep], "y": y[keep], "low": low, "high": high, "threshold": threshold[keep]}


def _share_bands(rank: Float, clusters: Int | None, least: Int, level: float) -> tuple[Float, Float]:
    """Intervals of the shares of rows with such a rank or a higher one, for each of the ranks: those of the accuracy.

    Σ over clusters of (hits − share · rows)² comes from running sums over rows from the highest rank down.
    """
    order = np.argsort(-rank, kind="stable")
    assert clusters is not None
    codes = clusters[order]
    sizes, of = Rows(len(rank), None, codes).sizes(), np.bincount(codes)
    hits2, both = kernels.running_moments(codes, np.zeros(len(codes)))[-1], np.zeros(len(codes) + 1)
    np.cumsum(of[codes], out=both[1:])
    ends = []
    for hits in np.searchsorted(-rank[order], -least, side="right"):
        share, n = hits / len(rank), len(rank)
        apart2 = max(0.0, hits2[hits] - 2 * share * both[hits] + share**2 * float((of * of).sum()))
        squares = (hits * (1 - share) ** 2 + (n - hits) * share**2) / n**2
        loads = _share_loads(n, of, float(hits), float(hits2[hits]), float(both[hits]))
        held = replace(sizes, loads=loads)
        ends.append(estimate_mean(REGISTRY["accuracy"], MeanTally(held, share, squares, apart2 / n**2), level))
    return np.array([e.low for e in ends]), np.array([e.high for e in ends])


def _share_loads(n: int, of: Int, hits: float, hits2: float, both: float) -> Loads:
    """How unevenly rows and hits lie on clusters of so many rows; cubes are not needed for a share."""
    total2 = float((of * of).sum())
    missed = Powers(n - hits, total2 - 2 * both + hits2, 0.0)
    return Loads(Powers(n, n, n), Powers(n, total2, 0.0), Powers(hits, hits2, 0.0), missed)


def risk_points(score: Float, loss: NDArray[Any], weights: Float | None, clusters: Int | None, level: float) -> Columns:
    """Risk inside {score ≤ threshold} at every distinct score, thinned by coverage, with a pointwise band."""
    return _risk_points(Calibration(score, loss, recode(clusters), ranking=Ranking(score)), weights, level)


def _risk_points(cal: Calibration, weights: Float | None, level: float) -> Columns:
    assert cal.ranking is not None
    blocks = tie_blocks(cal.ranking, cal.loss, weights)
    weight, bad = np.cumsum(blocks.weight), np.cumsum(blocks.bad)
    coverage, accepted = weight / weight[-1], np.cumsum(blocks.size)
    keep = thin(coverage, MOST if cal.clusters is None or weights is not None else MOST_CLUSTERED)
    keep = keep if len(keep) == len(coverage) else keep[1:]  # a risk of one row is noise, and would be a spike
    if weights is not None:
        low = high = np.full(len(keep), np.nan)
    else:
        low, high = band(cal, accepted[keep], bad[keep], level)
    points = {"threshold": cal.score[blocks.row[blocks.first]] + 0.0, "coverage": coverage, "risk": bad / weight}
    points = {key: column[keep] for key, column in points.items()}
    return points | {"low": low, "high": high, "accepted": accepted[keep]}


def _ranks(blocks: Blocks) -> Float:
    """0 for the rows with the lowest score, 1 for the next, …"""
    rank = np.empty(len(blocks.row))
    rank[blocks.row] = np.repeat(np.arange(len(blocks.size), dtype=np.float64), blocks.size)
    return rank


def oracle(loss: NDArray[Any], weights: Float | None) -> Columns:
    """Risk against coverage of the best possible score, which orders rows by their loss."""
    steps = walk(tie_blocks(Ranking(loss.astype(np.float64)), loss, weights))
    coverage = steps.weight / steps.weight[-1]
    keep = thin(coverage, MOST - 1)
    free = int(np.count_nonzero(steps.risk == 0))
    if free:  # the bend where the losses begin: a chord across it would lie above the curve
        keep = np.union1d(keep, [free - 1])
    return {"coverage": coverage[keep], "risk": steps.risk[keep]}


def band_note(table: RowData, loss: NDArray[Any], level: float) -> str:
    """What the band of a curve is, in words."""
    if table.weights is not None:
        return "no band: there is none for weighted rows"
    sure = f"band: {100 * level:.6g}% at each point"
    if table.pred.clusters is not None:
        return f"{sure}, {len(table.rows.held):,} clusters as the independent units"
    return sure if loss.dtype == np.uint8 else f"{sure} (Hoeffding–Bentkus)"


def psi_points(found: RiskMap) -> Columns:
    """Threshold (value) and its band (low, high) for prescribed risks up to where everything is accepted."""
    top = min(1.0 - 1e-9, 1.02 * float(max(found.band_high[-1], found.risk[-1])))
    max_risk = top * np.arange(1, MOST + 1) / MOST
    table = np.array([found.psi(float(risk)) for risk in max_risk])
    return {"max_risk": max_risk, "value": table[:, 1], "low": table[:, 2], "high": table[:, 3]}


# ---- counts ----------------------------------------------------------------------------------------------------


def _edges(values: Float, bins: int) -> Float:
    """Edges of equal bins over the finite values."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    if low == high:
        half = max(abs(low), 1.0) / 2
        return np.array([low - half, low + half])
    part = np.arange(bins + 1) / bins
    return np.unique(low * (1 - part) + high * part)  # high − low could overflow


def _cell(values: Float, edges: Float) -> Int:
    """The bin of each value; infinite ones go into the outermost."""
    return np.searchsorted(edges[1:-1], values, side="right")


def histogram(score: Float, error: NDArray[np.uint8]) -> Columns:
    """Right and wrong rows in equal bins of the score: numbers, and shares of their kind."""
    edges = _edges(score, int(np.clip(2 * len(score) ** (1 / 3), 5, MOST_BINS)))
    cell, bins = _cell(score, edges), len(edges) - 1
    columns: Columns = {"start": edges[:-1], "end": edges[1:]}
    for kind, rows in (("right", error == 0), ("wrong", error == 1)):
        count = np.bincount(cell[rows], minlength=bins)
        columns[f"{kind}_count"] = count
        columns[f"{kind}_share"] = count / max(1, count.sum())
    return columns


def density(score: Float, loss: Float, side: int) -> Columns:
    """Rows in the cells of a grid with `side` bins each way; empty cells are left out."""
    across, up = _edges(score, side), _edges(loss, side)
    width = len(across) - 1
    count = np.bincount(_cell(loss, up) * width + _cell(score, across), minlength=width * (len(up) - 1))
    filled = np.flatnonzero(count)
    row, column = np.divmod(filled, width)
    corners = {"x": across[column], "x2": across[column + 1], "y": up[row], "y2": up[row + 1]}
    return corners | {"count": count[filled]}


def reliability_bins(table: RowData, level: float) -> Columns:
    """Confidence, accuracy with its interval, and rows of each of 15 bins; empty ones are left out."""
    confidence, error = table["confidence"], table.error
    if confidence is None or error is None:
        raise InputError("reliability needs probabilities and labels (or errors). Pass probs= to Predictions.")
    right, weights, clusters = 1.0 - error.astype(np.float64), table.weights, table.pred.clusters
    bins = bin_rows(confidence, right, weights, bins=BINS)
    by_bin, inner, rows = kernels.group(bins.row_bin), np.arange(1, BINS) / BINS, []
    for first, size, share, gap in zip(by_bin.first, by_bin.size, bins.share, bins.gap, strict=True):
        part = by_bin.row[first : first + size]
        w = None if weights is None else weights[part]
        centre, accuracy = (weighted_mean(x[part], w) for x in (confidence, right))
        low, high = _interval(right[part], w, None if clusters is None else recode(clusters[part]), level)
        place = int(np.searchsorted(inner, confidence[part[0]]))
        rows.append((place / BINS, (place + 1) / BINS, centre, accuracy, low, high, len(part), share, gap))
    names = ("start", "end", "confidence", "accuracy", "low", "high", "count", "share", "gap")
    return dict(zip(names, np.array(rows).T, strict=True))


def _interval(right: Float, weights: Float | None, clusters: Int | None, level: float) -> tuple[float, float]:
    if weights is None and clusters is None:
        return clopper_pearson(float(right.sum()), len(right), level)
    if len(right) < 2 or (clusters is not None and clusters.max() == 0):
        return math.nan, math.nan  # a single unit says nothing
    found = estimate_share(right, Rows(len(right), weights, clusters), level)
    return found.low, found.high


# ---- estimates -------------------------------------------------------------------------------------------------


def group_rows(
    ev: Evaluation, metric: str, names: Sequence[str | None], most: int, model: str
) -> tuple[list[dict[str, Any]], int]:
    """An estimate per score and group, the largest groups; and how many were left out."""
    found = {(row.score, row.group): row.estimate for row in ev.rows if row.metric == metric}
    sizes = {group: max(found[name, group].n for name in names) for group in ev.groups}
    largest = set(sorted(sizes, key=lambda group: -sizes[group])[:most])
    rows = []
    for place, name in enumerate(names):
        for group, e in ((group, found[name, group]) for group in ev.groups if group in largest):
            row = {"score": model if name is None else name, "place": place, "group": f"{group} (n = {e.n:,})"}
            row |= {"n": e.n, "value": e.value, "low": e.low, "high": e.high, "whole": found[name, None].value}
            rows.append(row)
    return rows, len(ev.groups) - len(largest)
