"""Orders, sweeps and pair counts for the metrics: native C++ where it was built, else NumPy.

`UQEVAL_KERNELS=numpy|native` forces one, `backend()` says which twin is in use. `UQEVAL_THREADS` is the number of
threads (all cores by default); results have the same bits for any number. Inputs are clean arrays (`_check`).
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._errors import InputError
from uqeval.kernels import plain as _numpy
from uqeval.kernels._types import AucSums, Bit, ConcordanceSums, Float, Int, Order, Sweep, alike_sums
from uqeval.kernels.plain import sums as _sums

__all__ = [
    "AucSums",
    "ConcordanceSums",
    "Order",
    "Sweep",
    "alike_sums",
    "auc_sums",
    "available",
    "backend",
    "block_sums",
    "bootstrap_areas",
    "bootstrap_precision",
    "bootstrap_totals",
    "cell_sums",
    "concordance",
    "concordance_parts",
    "concordance_sums",
    "cores",
    "count_wrong",
    "credits",
    "cut_order",
    "draw_units",
    "exceeding",
    "group",
    "held",
    "mark",
    "mark_ordered",
    "order_by",
    "order_free_sum",
    "ordered_concordance",
    "ordered_counts",
    "pair_counts",
    "running_moments",
    "side_by_side",
    "sweep",
    "sweep_parts",
    "sweep_rows",
    "threads",
    "to_grid",
    "unit_sums",
    "use",
    "weighted_auc_counts",
    "weighted_pair_counts",
    "within_sums",
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


_MOST_THREADS = 256  # each has tables of its own
_FEW_ROWS = 1 << 16
_WORTH = 20_000  # rows from which on calls share the threads
_MANY_ROWS = 1 << 18  # from which on two calls at once are enough: each has memory of its own
_inside = threading.local()


def side_by_side(calls: Sequence[Callable[[], object]], rows: int = _WORTH) -> None:
    """Makes the calls at once, which share the threads; the first error is raised when all have ended.

    Calls that go over few rows are made one by one: a thread would cost more than it saves.
    """
    at_once = min(threads(), len(calls), 2 if rows >= _MANY_ROWS else _MOST_THREADS)
    if rows < _WORTH or at_once <= 1:
        for call in calls:
            call()
        return
    share = threads() // at_once

    def one(call: Callable[[], object]) -> None:
        _inside.threads = share
        call()

    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(one, call) for call in calls]:
            done.result()


def _threads_for(rows: int) -> int:
    """Few rows are done before a second thread has started; a bad setting is refused all the same."""
    if rows >= _FEW_ROWS:
        return threads()
    return min(1, threads()) if "UQEVAL_THREADS" in os.environ else 1


def threads() -> int:
    """Threads that the kernels may use: UQEVAL_THREADS, or all cores; a share of them inside `side_by_side`."""
    if share := getattr(_inside, "threads", 0):
        return int(share)
    given = os.environ.get("UQEVAL_THREADS", "").strip()
    if not given:
        return cores()
    if not given.isdecimal() or int(given) < 1:
        raise InputError(f"UQEVAL_THREADS must be a whole number from 1 on; it is {given!r}.")
    return min(int(given), _MOST_THREADS)


@contextmanager
def held() -> Iterator[None]:
    """Inside, kernels keep their memory from call to call; it goes back at the end."""
    native = _kernels() if backend() == "native" else None
    if native is not None:
        native.hold(True)
    try:
        yield
    finally:
        if native is not None:
            native.hold(False)


draw_units = _numpy.draw_units
block_sums = _sums.block_sums


def order_by(x: Float) -> Order:
    """Rows in stable order of x, with its tie groups."""
    return _kernels().order_by(x, _threads_for(len(x)))


def to_grid(x: Float, parts: int, narrow: bool) -> None:
    """Moves what is a multiple of 1/parts but for float noise there, in place (contiguous): see `plain.grid`."""
    _kernels().to_grid(x, float(parts), narrow, _threads_for(len(x)))


def mark(score: Float, error: Bit) -> Bit:
    """In order of the score: 1 if wrong, plus 2 where a new value starts. The order itself is not kept."""
    return _kernels().mark(score, error, _threads_for(len(score)))


def mark_ordered(order: Order, error: Bit) -> Bit:
    """The same from an order that is there already, whose tied rows stay as they are."""
    return _kernels().mark_ordered(order, error, _threads_for(len(error)))


def auc_sums(score: Float, error: Bit) -> AucSums:
    """Exact sums of UQ-AUC and of its variance."""
    return _kernels().auc_sums(score, error, _threads_for(len(score)))


def sweep(marks: Bit) -> Sweep:
    """What all metrics of 0/1 errors are made of, from marks in order of a score."""
    return _kernels().sweep(marks)


def count_wrong(marks: Bit) -> int:
    """Wrong rows among those with these marks."""
    return _kernels().count_wrong(marks)


def sweep_parts(marks: Bit, start: Int) -> Sweep:
    """`sweep` of many parts of at most 32,767 rows, as arrays: part k from start[k] to start[k + 1]."""
    return _kernels().sweep_parts(marks, start)


def credits(marks: Bit) -> NDArray[np.uint32]:
    """credit2 of every row, in order of the score."""
    return _kernels().credits(marks)


def sweep_rows(marks: Bit) -> tuple[Float, NDArray[np.uint32]]:
    """e of `Sweep` and credit2 of every row, in order of the score."""
    return _kernels().sweep_rows(marks)


def pair_counts(scores: Float, loss: Float) -> tuple[Int, Int]:
    """(K, n) credit2 of K scores, and (n,) comparable: see `plain.pairs`."""
    return _kernels().pair_counts(scores, loss, _threads_for(scores.size))


def ordered_counts(order: Order, losses: Order) -> Int:
    """credit2 of every row, from the orders of score and loss: nothing is sorted."""
    return _kernels().ordered_counts(order, losses, _threads_for(len(order.row)))


def running_moments(cluster: Int, loss: Float) -> Float:
    """Of the clusters of the first 0, 1, …, n rows: their number, Σ loss, Σ rows, Σ loss², Σ loss·rows, Σ rows²."""
    return _kernels().running_moments(cluster, loss)


def concordance(score: Float, loss: Float) -> ConcordanceSums:
    """Totals and delete-one moments of all pairs, without a count for each row."""
    return _kernels().concordance(score, loss, _threads_for(len(score)))


def ordered_concordance(order: Order, losses: Order) -> ConcordanceSums:
    """The same from the orders of score and loss: nothing is sorted."""
    return _kernels().ordered_concordance(order, losses, _threads_for(len(order.row)))


def cut_order(order: Order, part: NDArray[np.uint32], start: Int) -> Order:
    """Part after part, each in the order that it has; part[i] is that of row i, and start[k] where part k starts."""
    return _kernels().cut_order(order, part, start)


def concordance_parts(order: Order, losses: Order, start: Int) -> ConcordanceSums:
    """`ordered_concordance` of each part, as arrays, from orders that are cut; parts as in `sweep_parts`."""
    return _kernels().concordance_parts(order, losses, start)


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    """Totals and delete-one moments of the per-row counts."""
    return _kernels().concordance_sums(credit2, comparable)


def exceeding(uniform: Float, mean: Float, weight: Float, first: Int, share: Float, observed: float, most: int) -> int:
    """How many rows of `uniform` draw labels that look less calibrated than those observed: see `plain.calibration`."""
    return int(_kernels().exceeding(uniform, mean, weight, first, share, observed, most))


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


def bootstrap_precision(marks: Bit, seeds: NDArray[np.uint64]) -> Float:
    """Average precision of resamples, known and foreign rows drawn apart: see `plain.bootstrap`."""
    return _kernels().bootstrap_precision(marks, seeds, threads())


def weighted_pair_counts(
    order: Order, losses: Order, weights: Float, clusters: Order | None = None
) -> tuple[Float, Float]:
    """Credit and comparable weight of every row (not doubled), inside clusters if given, from orders that are there.

    m_i is summed as agreeing + disagreeing weight, so that c_i/m_i is exactly 1 where nothing disagrees.
    """
    by_score, by_loss = order.ranks, losses.ranks
    rows = order.row[group(by_loss[order.row]).row]  # by loss, then score
    # By weight where both tie, so that sums do not depend on the order of rows.
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = (np.diff(by_loss[rows]) != 0) | (np.diff(by_score[rows]) != 0)
    sizes = np.diff(np.flatnonzero(new), append=len(rows))
    if len(sizes) < len(rows):
        tied = np.flatnonzero(np.repeat(sizes > 1, sizes))
        inside = rows[tied]
        rows[tied] = inside[np.lexsort((weights[inside], np.cumsum(new)[tied]))]
    first = np.zeros(min(1, len(rows)), dtype=np.int64)
    if clusters is None:
        rank, level = by_score[rows], by_loss[rows]
    else:
        part = clusters.ranks
        rows, first = rows[group(part[rows]).row], clusters.first
        rank, level = (
            _local_ranks(part, ranks, rows, ranked) for ranks, ranked in ((by_score, order), (by_loss, losses))
        )
    found, against = _kernels().weighted_credit(rank, level, weights[rows], first)
    credit, comparable = np.empty((2, len(rows)))
    credit[rows], comparable[rows] = found, found + against
    return credit, comparable


def _local_ranks(part: Int, ranks: Int, rows: NDArray[Any], order: Order) -> Int:
    """Dense ranks inside each part, from 0, of the rows asked for."""
    sorted_rows = order.row[group(part[order.row]).row]  # part after part, each in its own order
    p, r = part[sorted_rows], ranks[sorted_rows]
    starts = np.ones(len(p), dtype=np.bool_)
    starts[1:] = p[1:] != p[:-1]
    new = starts.copy()
    new[1:] |= r[1:] != r[:-1]
    level = np.cumsum(new) - 1
    first = level[starts]
    local = np.empty(len(p), dtype=np.int64)
    local[sorted_rows] = level - np.repeat(first, np.diff(np.flatnonzero(starts), append=len(p)))
    return local[rows]


def weighted_auc_counts(order: Order, error: Bit, weights: Float) -> tuple[Float, Float]:
    """`weighted_pair_counts` for a 0/1 loss, from the order of the score: running sums."""
    row, sizes = order.row, order.size
    e, w = error[row].view(np.bool_), weights[row]
    wrong, right = (block_sums(np.where(side, w, 0.0), order.first) for side in (e, ~e))

    def beside(x: Float) -> tuple[Float, Float]:
        """Weight below and above each row, half of its tie block in both."""
        below = np.concatenate([[0.0], np.cumsum(x)[:-1]]) + x / 2
        above = np.concatenate([np.cumsum(x[::-1])[::-1][1:], [0.0]]) + x / 2
        return np.repeat(below, sizes), np.repeat(above, sizes)

    (right_below, right_above), (wrong_below, wrong_above) = beside(right), beside(wrong)
    credit, comparable = np.empty((2, len(w)))
    credit[row] = np.where(e, right_below, wrong_above)
    comparable[row] = np.where(e, right_below + right_above, wrong_above + wrong_below)
    return credit, comparable


def within_sums(score: Float, loss: Float, clusters: Order) -> tuple[Int, Int]:
    """Σ credit2 and Σ comparable over pairs inside each cluster (rows by `group`)."""
    return _kernels().within_sums(score, loss, clusters, _threads_for(len(score)))


def unit_sums(
    row: NDArray[np.uint32], marks: Bit, e: Float, credit2: NDArray[np.uint32], clusters: Int, units: int
) -> tuple[Float, Int, Int]:
    """Of each cluster after a sweep: Σ e, Σ credit2 and the wrong rows."""
    return _kernels().unit_sums(row, marks, e, credit2, clusters, units)


def group(codes: NDArray[Any]) -> Order:
    """Rows by code, in the order they have."""
    return order_by(codes.astype(np.float64))


def cell_sums(x: Float, cell: Int, cells: int) -> Float:
    """Sums of the x of each cell (0, 1, …), whose last bit does not depend on the order of x."""
    return _kernels().cell_sums(x, cell, cells)
