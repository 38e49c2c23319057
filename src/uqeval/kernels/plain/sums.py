"""Sums that do not depend on the order of rows, or are exact."""

from typing import Any, NamedTuple

import numpy as np

from uqeval.kernels._types import ConcordanceSums, Float, Int, alike_sums
from uqeval.kernels.plain.order import order_by


class _Folds(NamedTuple):
    """Two folds of fixed point: x = (whole + rest·2^−bits)·2^−shift. Integers can be added in any order."""

    whole: Int
    rest: Int
    bits: int
    shift: int

    def value(self, whole: Any, rest: Any) -> Any:
        return np.ldexp(whole + np.ldexp(np.asarray(rest, dtype=np.float64), -self.bits), -self.shift)


def _folded(x: Float) -> _Folds | None:
    """None where there is nothing to fold: only zeros, or something infinite."""
    bound = float(np.abs(x).max(initial=0.0))
    if bound == 0.0 or not np.isfinite(bound):
        return None
    bits = min(51, 62 - len(x).bit_length())
    shift = bits - int(np.frexp(bound)[1])
    scaled = np.ldexp(x, shift)
    whole = np.rint(scaled)
    rest = np.rint((scaled - whole) * float(1 << bits))
    return _Folds(whole.astype(np.int64), rest.astype(np.int64), bits, shift)


def order_free_sum(x: Float) -> float:
    """A sum whose last bit does not depend on the order of x."""
    parts = _folded(x)
    return float(x.sum()) if parts is None else float(parts.value(float(parts.whole.sum()), float(parts.rest.sum())))


def block_sums(x: Float, first: Int) -> Float:
    """Sums of x between the starts of blocks, whose last bit does not depend on the order inside a block."""
    if len(first) == len(x):
        return x
    parts = _folded(x)
    if parts is None:
        return np.add.reduceat(x, first)
    found: Float = parts.value(*(np.add.reduceat(part, first) for part in (parts.whole, parts.rest)))
    return found


def cell_sums(x: Float, cell: Int, cells: int) -> Float:
    """Sums of the x of each cell, whose last bit does not depend on the order of x."""
    sums, order = np.zeros(cells), np.argsort(cell, kind="stable")
    if len(x):
        first = np.flatnonzero(np.diff(cell[order], prepend=-1))
        # The scale is that of all x, so that it does not depend on the cells.
        sums[cell[order[first]]] = block_sums(x[order], first) if len(first) < len(x) else x[order]
    return sums


def fixed_sum(x: Float, n: int) -> float:
    """Sum of up to n numbers of [0, 1], each rounded to a multiple of 2^−51 or as fine as n allows: order-free."""
    scale = 2.0 ** min(51, 62 - n.bit_length())
    return int(np.rint(x * scale).astype(np.int64).sum()) / scale


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    """Totals, and the first two moments of d_i = C without row i − C = −(credit2_i − 2C·m_i)/(M − 2m_i)."""
    total2, total = int(credit2.sum()), int(comparable.sum())
    if total == 0 or total <= 2 * int(comparable.max()):
        return ConcordanceSums(total2, total, float("nan"), float("nan"))
    same, n = int(comparable[0]), len(comparable)
    if total == same * n and comparable.min() == same:
        return alike_sums(n, total2, total, sum_of_squares(credit2))
    m = comparable.astype(np.float64)
    shift = ((total2 / total) * m - credit2.astype(np.float64)) / (total - 2.0 * m)
    return ConcordanceSums(total2, total, order_free_sum(shift), order_free_sum(shift * shift))


def sum_of_squares(x: Int) -> int:
    """Exact, beyond 2⁶⁴: halves of 16 bits, dotted as integers (which also keeps BLAS threads out of it)."""
    if len(x) * int(x.max(initial=0)) ** 2 < 2**63:
        return int(x @ x)
    high, low = x >> 16, x & 0xFFFF
    return (int(high @ high) << 32) + (int(high @ low) << 17) + int(low @ low)


def running_moments(cluster: Int, loss: Float) -> Float:
    """Of the clusters of the first 0, 1, …, n rows: their number, Σ loss, Σ rows, Σ loss², Σ loss·rows, Σ rows²."""
    order = order_by(cluster.astype(np.float64))
    rows, lost = np.empty((2, len(cluster)))  # of the same cluster, before each row
    sums = np.cumsum(loss[order.row]) - loss[order.row]
    rows[order.row] = np.arange(len(cluster)) - np.repeat(order.first, order.size)
    lost[order.row] = sums - np.repeat(sums[order.first], order.size)
    added = (rows == 0, loss, np.ones(len(loss)), loss * (2 * lost + loss), lost + loss * (rows + 1), 2 * rows + 1)
    found = np.zeros((6, len(loss) + 1))
    for own, x in zip(found, added, strict=True):
        np.cumsum(x, out=own[1:])
    return found
