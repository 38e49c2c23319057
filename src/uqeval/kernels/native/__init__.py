"""The C++ twin of `kernels.plain`: the same functions, the same integers."""

import numpy as np
from numpy.typing import NDArray

import uqeval.kernels.native._native as _native
from uqeval.kernels._types import AucSums, Bit, ConcordanceSums, Float, Int, Order, Sweep, alike_sums, kind_sums

__all__ = [
    "auc_sums",
    "bootstrap_areas",
    "bootstrap_precision",
    "bootstrap_totals",
    "cell_sums",
    "concordance",
    "concordance_parts",
    "concordance_sums",
    "count_wrong",
    "credits",
    "cut_order",
    "exceeding",
    "hold",
    "mark",
    "mark_ordered",
    "order_by",
    "order_free_sum",
    "ordered_concordance",
    "ordered_counts",
    "pair_counts",
    "running_moments",
    "sweep",
    "sweep_parts",
    "sweep_rows",
    "to_grid",
    "unit_sums",
    "weighted_credit",
    "within_sums",
]


def hold(begin: bool) -> None:
    _native.hold(begin)


def to_grid(x: Float, parts: float, narrow: bool, threads: int = 1) -> None:
    _native.to_grid(x, parts, narrow, threads)


def order_by(x: Float, threads: int = 1) -> Order:
    row, new = np.empty(len(x), dtype=np.uint32), np.empty(len(x), dtype=np.uint8)
    _native.order(np.ascontiguousarray(x), row, new, threads)
    return Order(row, new.view(np.bool_))


def mark(score: Float, error: Bit, threads: int = 1) -> Bit:
    marks = np.empty(len(score), dtype=np.uint8)
    _native.mark(np.ascontiguousarray(score), np.ascontiguousarray(error), marks, threads)
    return marks


def mark_ordered(order: Order, error: Bit, threads: int = 1) -> Bit:
    marks = np.empty(len(error), dtype=np.uint8)
    _native.mark_ordered(*_arrays(order), np.ascontiguousarray(error), marks, threads)
    return marks


def auc_sums(score: Float, error: Bit, threads: int = 1) -> AucSums:
    return AucSums(*_native.auc(np.ascontiguousarray(score), np.ascontiguousarray(error), threads))


def sweep(marks: Bit) -> Sweep:
    return Sweep(*_native.sweep(np.ascontiguousarray(marks)))


def count_wrong(marks: Bit) -> int:
    return int(_native.count_wrong(marks))


def sweep_parts(marks: Bit, start: Int) -> Sweep:
    parts = len(start) - 1
    whole, real = np.empty((parts, 8), dtype=np.int64), np.empty((parts, 10))
    _native.sweep_parts(np.ascontiguousarray(marks), start, whole, real)
    return Sweep(*np.ascontiguousarray(whole.T), *np.ascontiguousarray(real.T))


def sweep_rows(marks: Bit) -> tuple[Float, NDArray[np.uint32]]:
    e, credit2 = np.empty(len(marks)), np.empty(len(marks), dtype=np.uint32)
    _native.sweep_rows(np.ascontiguousarray(marks), e, credit2)
    return e, credit2


def credits(marks: Bit) -> NDArray[np.uint32]:
    credit2 = np.empty(len(marks), dtype=np.uint32)
    _native.credits(np.ascontiguousarray(marks), credit2)
    return credit2


def within_sums(score: Float, loss: Float, clusters: Order, threads: int = 1) -> tuple[Int, Int]:
    credit2, comparable = np.empty((2, len(clusters.first)), dtype=np.int64)
    given = np.ascontiguousarray(score), np.ascontiguousarray(loss), clusters.row, clusters.first
    _native.within(*given, credit2, comparable, threads)
    return credit2, comparable


def unit_sums(
    row: NDArray[np.uint32], marks: Bit, e: Float, credit2: NDArray[np.uint32], clusters: Int, units: int
) -> tuple[Float, Int, Int]:
    sums, (credit, errors) = np.empty(units), np.empty((2, units), dtype=np.int64)
    _native.units(row, marks, e, credit2, np.ascontiguousarray(clusters), sums, credit, errors)
    return sums, credit, errors


def running_moments(cluster: Int, loss: Float) -> Float:
    sums = np.empty((6, len(cluster) + 1))
    clusters = int(cluster.max(initial=-1)) + 1
    _native.moments(np.ascontiguousarray(cluster), np.ascontiguousarray(loss), clusters, sums)
    return sums


def pair_counts(scores: Float, loss: Float, threads: int = 1) -> tuple[Int, Int]:
    credit2 = np.empty(scores.shape, dtype=np.int64)
    comparable = np.empty(len(loss), dtype=np.int64)
    _native.pairs(np.ascontiguousarray(scores), np.ascontiguousarray(loss), credit2, comparable, threads)
    return credit2, comparable


def ordered_counts(order: Order, losses: Order, threads: int = 1) -> Int:
    credit2 = np.empty(len(order.row), dtype=np.int64)
    _native.pairs_ordered(*_arrays(order), *_arrays(losses), credit2, threads)
    return credit2


def concordance(score: Float, loss: Float, threads: int = 1) -> ConcordanceSums:
    return kind_sums(_native.concord(np.ascontiguousarray(score), np.ascontiguousarray(loss), threads))


def ordered_concordance(order: Order, losses: Order, threads: int = 1) -> ConcordanceSums:
    return kind_sums(_native.concord_ordered(*_arrays(order), *_arrays(losses), threads))


def cut_order(order: Order, part: NDArray[np.uint32], start: Int) -> Order:
    row, new = np.empty(len(part), dtype=np.uint32), np.empty(len(part), dtype=np.uint8)
    _native.cut(*_arrays(order), part, start, row, new)
    return Order(row, new.view(np.bool_))


def concordance_parts(order: Order, losses: Order, start: Int) -> ConcordanceSums:
    parts = len(start) - 1
    whole, shifts = np.empty((parts, 2), dtype=np.int64), np.empty((parts, 2))
    _native.concord_parts(*_arrays(order), *_arrays(losses), start, whole, shifts)
    return ConcordanceSums(*np.ascontiguousarray(whole.T), *np.ascontiguousarray(shifts.T))


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    found = _native.concord_counts(np.ascontiguousarray(credit2), np.ascontiguousarray(comparable))
    total, pairs, alike, squares, shift, shift2 = found
    return alike_sums(len(credit2), total, pairs, squares) if alike else ConcordanceSums(total, pairs, shift, shift2)


def _arrays(order: Order) -> tuple[NDArray[np.uint32], Bit]:
    return order.row, order.new.view(np.uint8)


def exceeding(uniform: Float, mean: Float, weight: Float, first: Int, share: Float, observed: float, most: int) -> int:
    return int(_native.exceeding(np.ascontiguousarray(uniform), mean, weight, first, share, observed, most))


def order_free_sum(x: Float) -> float:
    return float(_native.order_free_sum(np.ascontiguousarray(x)))


def cell_sums(x: Float, cell: Int, cells: int) -> Float:
    sums = np.empty(cells)
    _native.cell_sums(np.ascontiguousarray(x), np.ascontiguousarray(cell), sums)
    return sums


def weighted_credit(rank: Int, group: Int, weight: Float, first: Int) -> tuple[Float, Float]:
    credit, against = np.zeros((2, len(rank)))
    _native.weighted(rank, group, weight, first, credit, against)
    return credit, against


def bootstrap_totals(
    score: Float, loss: Float, unit: Int, units: int, seeds: NDArray[np.uint64], threads: int = 1
) -> Int:
    totals = np.empty((len(seeds), 4), dtype=np.int64)
    _native.bootstrap(np.ascontiguousarray(score), np.ascontiguousarray(loss), unit, units, seeds, totals, threads)
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
    sums = np.empty((len(seeds), 5))
    _native.areas(np.ascontiguousarray(score), np.ascontiguousarray(loss), unit, units, seeds, with_aurc, sums, threads)
    return sums


def bootstrap_precision(marks: Bit, seeds: NDArray[np.uint64], threads: int = 1) -> Float:
    values = np.empty(len(seeds))
    _native.precisions(np.ascontiguousarray(marks), np.ascontiguousarray(seeds), values, threads)
    return values
