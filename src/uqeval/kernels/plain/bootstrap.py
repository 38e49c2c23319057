"""Pair totals and areas of resamples: rows keep their place, only their multiplicities change."""

import numpy as np
from numpy.typing import NDArray

from uqeval.kernels._types import Bit, Float, Int
from uqeval.kernels.plain.order import order_by
from uqeval.kernels.plain.pairs import count_below, join


def draw_units(seed: np.uint64, units: int) -> Int:
    """How often each unit is drawn in `units` draws with replacement: a counter hashed by splitmix64.

    Counter-based, so that both kernels and any number of threads draw the same (Steele et al. 2014).
    """
    z = np.uint64(seed) + np.arange(1, units + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    drawn = ((z >> np.uint64(11)).astype(np.float64) * 2.0**-53 * float(units)).astype(np.int64)
    return np.bincount(drawn, minlength=units)


def bootstrap_totals(
    score: Float, loss: Float, unit: Int, units: int, seeds: NDArray[np.uint64], threads: int = 1
) -> Int:
    """(resamples, 4): credit2, pairs that differ in the loss, pairs that differ in the score, rows.

    Each unordered pair counts once. The order is found once; a resample only repeats slots. Copies of a row tie in
    both, as they should.
    """
    losses = order_by(loss)
    joint = join(score, losses)
    row_of_slot = losses.row[joint.slot]
    rank_slot = np.empty_like(joint.q)
    rank_slot[joint.q] = np.arange(len(joint.q))
    totals = np.empty((len(seeds), 4), dtype=np.int64)

    def tied(times: Int, start: Int) -> int:
        sizes = np.bincount(start, weights=times).astype(np.int64)
        return int((sizes * (sizes - 1) // 2).sum())

    for b, seed in enumerate(seeds):
        times = draw_units(seed, units)[unit][row_of_slot]  # at each slot p
        by_rank = times[rank_slot]
        first = np.concatenate([[0], np.cumsum(by_rank)[:-1]])[joint.q]
        m = int(times.sum())
        q = np.repeat(first, times)
        q += np.arange(m) - np.repeat(np.cumsum(times) - times, times)
        tied_loss, tied_score = tied(by_rank, losses.start), tied(times, joint.start)
        credit2 = 2 * int(count_below(q).sum()) - 2 * tied_loss - tied_score + tied(times, joint.both_start)
        pairs = m * (m - 1) // 2
        totals[b] = credit2, pairs - tied_loss, pairs - tied_score, m
    return totals


def bootstrap_areas(
    score: Float,
    loss: Float,
    unit: Int,
    units: int,
    seeds: NDArray[np.uint64],
    with_aurc: bool = True,
    threads: int = 1,
) -> Float:
    """(resamples, 5): rows, loss, 2·UQ-AUC·bad·good, 2·AUGRC·rows², AURC (0 if not wanted).

    Tied scores are accepted in random order.
    """
    order = order_by(score)
    first = order.first
    sorted_loss, sorted_unit = loss[order.row], unit[order.row]
    sums = np.zeros((len(seeds), 5))
    for b, seed in enumerate(seeds):
        times = draw_units(seed, units)[sorted_unit]
        rows = np.add.reduceat(times, first)
        bad = np.add.reduceat(times * sorted_loss, first)[rows > 0]
        rows = rows[rows > 0]
        before = np.cumsum(rows) - rows
        bad_before = np.cumsum(bad) - bad
        good = rows - bad
        m = int(rows.sum())
        aurc = 0.0
        if with_aurc:
            harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, m + 1))])
            steps = bad + (bad_before - bad * before / rows) * (harmonic[before + rows] - harmonic[before])
            aurc = steps.sum() / m
        sums[b] = (
            m,
            bad.sum(),
            (bad * (2 * (before - bad_before) + good)).sum(),
            (rows * (2 * bad_before + bad)).sum(),
            aurc,
        )
    return sums


def bootstrap_precision(marks: Bit, seeds: NDArray[np.uint64], threads: int = 1) -> Float:
    """Average precision of resamples, known and foreign (wrong) rows drawn apart, with two seeds each.

    `marks` come from the highest score down.
    """
    first, foreign = np.flatnonzero(marks > 1), (marks & 1).view(np.bool_)
    positives = int(np.count_nonzero(foreign))
    values, times = np.empty(len(seeds)), np.empty(len(marks), dtype=np.int64)
    for b, (of_known, of_foreign) in enumerate(seeds):
        times[~foreign] = draw_units(of_known, len(marks) - positives)
        times[foreign] = draw_units(of_foreign, positives)
        new = np.add.reduceat(np.where(foreign, times, 0), first)
        found, seen = np.cumsum(new), np.cumsum(np.add.reduceat(times, first))
        values[b] = (new * found / np.maximum(seen, 1)).sum() / positives
    return values
