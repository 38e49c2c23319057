"""Rows in order of a number, in plain NumPy."""

import numpy as np
from numpy.typing import NDArray

from uqeval.kernels._types import Bit, Float, Int, Order


def _keys(x: Float) -> NDArray[np.uint64]:
    """Order-preserving bits; adding 0.0 makes -0.0 equal to 0.0."""
    bits = (x + 0.0).view(np.int64)
    return (bits ^ ((bits >> 63) | np.int64(-(2**63)))).view(np.uint64)


def stable_order(key: NDArray[np.uint32], bits: int) -> Int:
    """Stable argsort of unsigned integers, 16 bits at a time: NumPy sorts those by radix, which beats its quicksort."""
    order = np.argsort(key.astype(np.uint16) if bits > 8 else key.astype(np.uint8), kind="stable")
    if bits > 16:
        high = (key >> 16).astype(np.uint16 if bits > 24 else np.uint8)
        order = order[np.argsort(high[order], kind="stable")]
    return order


def order_by(x: Float, threads: int = 1) -> Order:
    """Stable order of x with its tie groups, by the top 32 bits that differ; runs that look equal are then mended."""
    n = len(x)
    keys = _keys(x)
    keys -= keys.min(initial=np.uint64(2**64 - 1))
    width = int(keys.max(initial=np.uint64(0))).bit_length()
    cut = max(0, width - 32)
    top = (keys >> np.uint64(cut)).astype(np.uint32)
    row = stable_order(top, width - cut)
    top = top[row]
    new = np.ones(n, dtype=bool)
    np.not_equal(top[1:], top[:-1], out=new[1:])
    if cut and not new.all():
        run = ~new
        run[:-1] |= run[1:].copy()
        slots = np.flatnonzero(run)
        full = keys[row[slots]]
        if (full[1:] < full[:-1]).any():
            inside = np.argsort(full, kind="stable")
            row[slots], full = row[slots[inside]], full[inside]
        new[slots[1:]] |= full[1:] != full[:-1]
    return Order(row.astype(np.uint32), new)


def cut_order(order: Order, part: NDArray[np.uint32], start: Int) -> Order:
    """Part after part, each in the order that it has; part[i] is that of row i, and start[k] where part k starts."""
    slots = np.argsort(part[order.row], kind="stable")
    value = np.cumsum(order.new)[slots]
    new = np.ones(len(slots), dtype=np.bool_)
    new[1:] = value[1:] != value[:-1]
    new[start[start < len(new)]] = True
    return Order(order.row[slots], new)


def mark_ordered(order: Order, error: Bit, threads: int = 1) -> Bit:
    marks: Bit = error[order.row]
    marks |= order.new.view(np.uint8) << np.uint8(1)
    return marks


def mark(score: Float, error: Bit, threads: int = 1) -> Bit:
    """In order of the score: 1 if wrong, plus 2 where a new value starts."""
    return mark_ordered(order_by(score), error)
