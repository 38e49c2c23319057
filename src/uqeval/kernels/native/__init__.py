"""The C++ twin of `kernels.pairs`: the same functions, the same integers."""

import numpy as np
from numpy.typing import NDArray

import uqeval.kernels.native._native as _native
from uqeval.kernels._types import AucSums, Bit, ConcordanceSums, Float, Int, Order, alike_sums

__all__ = [
    "auc_counts",
    "bootstrap_areas",
    "bootstrap_totals",
    "concordance_sums",
    "order_by",
    "order_free_sum",
    "pair_counts",
    "weighted_credit",
]


def order_by(x: Float) -> Order:
    row, start, end = np.empty((3, len(x)), dtype=np.int64)
    ties = _native.order(np.ascontiguousarray(x), row, start, end)
    return Order(row, start, end, ties)


def auc_counts(score: Float, error: Bit) -> tuple[Int, AucSums]:
    credit2 = np.empty(len(score), dtype=np.int64)
    wrong, total, high1, low1, high0, low0 = _native.auc(
        np.ascontiguousarray(score), np.ascontiguousarray(error), credit2
    )
    return credit2, AucSums(wrong, total, (high1 << 64) | low1, (high0 << 64) | low0)


def pair_counts(scores: Float, loss: Float, threads: int = 1) -> tuple[Int, Int]:
    credit2 = np.empty(scores.shape, dtype=np.int64)
    comparable = np.empty(len(loss), dtype=np.int64)
    _native.pairs(np.ascontiguousarray(scores), np.ascontiguousarray(loss), credit2, comparable, threads)
    return credit2, comparable


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    total2, total, alike, high, low, shift, shift2 = _native.concordance(
        np.ascontiguousarray(credit2), np.ascontiguousarray(comparable)
    )
    if alike:
        return alike_sums(len(credit2), total2, total, (high << 64) | low)
    return ConcordanceSums(total2, total, shift, shift2)


def order_free_sum(x: Float) -> float:
    return float(_native.order_free_sum(np.ascontiguousarray(x)))


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
