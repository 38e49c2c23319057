"""Pair counts for the metrics: native C++ where it was built, else NumPy; `UQEVAL_KERNELS=numpy|native` forces one.

Inputs are clean arrays (`_check`). `backend()` says which twin is in use.
"""

import os
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.kernels import pairs as _numpy
from uqeval.kernels._types import AucSums, Bit, ConcordanceSums, Float, Int, Order, alike_sums

__all__ = [
    "AucSums",
    "ConcordanceSums",
    "Order",
    "alike_sums",
    "auc_counts",
    "available",
    "backend",
    "bootstrap_areas",
    "bootstrap_totals",
    "concordance_sums",
    "cores",
    "draw_units",
    "order_by",
    "order_free_sum",
    "pair_counts",
    "use",
    "weighted_auc_counts",
    "weighted_pair_counts",
    "within_counts",
]


def _load(name: str) -> ModuleType:
    if name == "numpy":
        return _numpy
    if name not in ("native", ""):
        raise InputError(f'UQEVAL_KERNELS must be "numpy" or "native"; it is {name!r}.')
    try:
        from uqeval.kernels import native
    except ImportError as error:
        if name == "native":
            raise InputError(
                f"The native kernels are not built ({error}). Reinstall uqeval with a C++ compiler, "
                f"or unset UQEVAL_KERNELS to use the NumPy kernels."
            ) from None
        return _numpy
    return native


_active: ModuleType | None = None  # chosen at the first use, so that a bad choice is an error like any other


def _kernels() -> ModuleType:
    global _active
    if _active is None:
        _active = _load(os.environ.get("UQEVAL_KERNELS", "").strip().lower())
    return _active


def backend() -> str:
    """The kernels in use: "native" or "numpy"."""
    return "numpy" if _kernels() is _numpy else "native"


def available() -> tuple[str, ...]:
    """The kernels there are: "numpy", and "native" where it was built."""
    return ("numpy",) if _load("") is _numpy else ("numpy", "native")


def use(name: str) -> str:
    """Switches to "native" or "numpy" and returns the former choice."""
    global _active
    former, _active = backend(), _load(name)
    return former


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


draw_units = _numpy.draw_units


def order_by(x: Float) -> Order:
    """Rows in stable order of x, with its tie groups."""
    return _kernels().order_by(x)


def auc_counts(score: Float, error: Bit) -> tuple[Int, AucSums]:
    """credit2 of every row when the loss is 0/1, and its exact sums."""
    return _kernels().auc_counts(score, error)


def pair_counts(scores: Float, loss: Float, threads: int = 1) -> tuple[Int, Int]:
    """(K, n) credit2 of K scores, and (n,) comparable: see `pairs`."""
    return _kernels().pair_counts(scores, loss, threads)


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    """Totals and delete-one moments of the per-row counts."""
    return _kernels().concordance_sums(credit2, comparable)


def order_free_sum(x: Float) -> float:
    """A sum whose last bit does not depend on the order of x."""
    return float(_kernels().order_free_sum(x))


def bootstrap_totals(
    score: Float, loss: Float, unit: Int, units: int, seeds: NDArray[np.uint64], threads: int = 1
) -> Int:
    """Pair totals of resamples; resample b draws units from the stream seeds[b]: see `pairs`."""
    return _kernels().bootstrap_totals(score, loss, unit, units, seeds, threads)


def bootstrap_areas(
    score: Float,
    loss: Float,
    unit: Int,
    units: int,
    seeds: NDArray[np.uint64],
    with_aurc: bool = True,
    threads: int = 1,
) -> Float:
    """Sums behind the selective-prediction areas of resamples: see `pairs`."""
    return _kernels().bootstrap_areas(score, loss, unit, units, seeds, with_aurc, threads)


def weighted_pair_counts(score: Float, loss: Float, weights: Float, clusters: Int | None = None) -> tuple[Float, Float]:
    """Credit and comparable weight of every row (not doubled), inside clusters if given.

    m_i is summed as agreeing + disagreeing weight, so that c_i/m_i is exactly 1 where nothing disagrees.
    """
    part = np.zeros(len(score), dtype=np.int64) if clusters is None else clusters
    # The order ends in the weight, so that sums do not depend on the order of rows.
    order = np.lexsort((weights, score + 0.0, loss + 0.0, part))
    part = part[order]
    first = np.flatnonzero(np.diff(part, prepend=-1))
    rank, group = _local_ranks(part, first, score[order]), _local_ranks(part, first, loss[order])
    found, against = _kernels().weighted_credit(rank, group, weights[order], first)
    credit, comparable = np.empty((2, len(score)))
    credit[order], comparable[order] = found, found + against
    return credit, comparable


def weighted_auc_counts(score: Float, error: Bit, weights: Float) -> tuple[Float, Float]:
    """`weighted_pair_counts` for a 0/1 loss: one sort and running sums."""
    order = np.lexsort((weights, error, score + 0.0))
    e, w = error[order].astype(bool), weights[order]
    s = score[order]
    starts = np.flatnonzero(np.concatenate([[True], s[1:] != s[:-1]]))
    sizes = np.diff(starts, append=len(s))
    wrong, right = np.add.reduceat(np.where(e, w, 0.0), starts), np.add.reduceat(np.where(e, 0.0, w), starts)

    def beside(x: Float) -> tuple[Float, Float]:
        """Weight below and above each row, half of its tie block in both."""
        below = np.concatenate([[0.0], np.cumsum(x)[:-1]]) + x / 2
        above = np.concatenate([np.cumsum(x[::-1])[::-1][1:], [0.0]]) + x / 2
        return np.repeat(below, sizes), np.repeat(above, sizes)

    (right_below, right_above), (wrong_below, wrong_above) = beside(right), beside(wrong)
    credit, comparable = np.empty((2, len(s)))
    credit[order] = np.where(e, right_below, wrong_above)
    comparable[order] = np.where(e, right_below + right_above, wrong_above + wrong_below)
    return credit, comparable


def within_counts(
    score: Float, loss: Float, clusters: Int, weights: Float | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Per-row counts over pairs inside the row's cluster: (credit2, comparable), or weighted (credit, comparable)."""
    if weights is not None:
        return weighted_pair_counts(score, loss, weights, clusters)
    # One call of the kernel does all clusters: rank score and loss with the cluster in front, so that every
    # pair across clusters is concordant and known.
    s, d = (_dense_by(clusters, x).astype(np.float64) for x in (score, loss))
    credit2, comparable = pair_counts(s[None], d)
    across = len(score) - np.bincount(clusters)[clusters]
    return credit2[0] - 2 * across, comparable - across


def _local_ranks(part: Int, first: Int, x: Float) -> Int:
    """Dense ranks of x inside each part, from 0."""
    ranks = _dense_by(part, x)
    lowest = np.minimum.reduceat(ranks, first) if len(first) else first
    return ranks - np.repeat(lowest, np.diff(first, append=len(x)))


def _dense_by(clusters: Int, x: Float) -> Int:
    """Dense ranks of (cluster, x)."""
    order = np.lexsort((x + 0.0, clusters))
    new = np.zeros(len(x), dtype=np.int64)
    a, b = clusters[order], x[order]
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    ranks = np.empty(len(x), dtype=np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
