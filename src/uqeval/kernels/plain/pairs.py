"""Pair counting in plain NumPy: the definition made fast, readable, and working everywhere.

For scores s and losses d every row gets `credit2` = 2·(concordant + ½ tied in s) over its comparable rows
(d differs), and `comparable`, their number. Metrics, variances, tests and merges all come from those integers.
`native` is the same in C++; both give identical integers.

How: sort rows by (s, d) into slots p and by (d, s) into ranks q. One count per row is enough,
C = #{p' < p, q' < q}; the rest is closed-form from the sizes and places of the tie groups (`_credit2`).
"""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval.kernels._types import ConcordanceSums, Float, Int, Order, bounds_of
from uqeval.kernels.plain.order import order_by, stable_order
from uqeval.kernels.plain.sums import concordance_sums

# Rows compared with each other directly, a byte each: many for long arrays, few where a NumPy call costs more.
_BLOCK, _LEAF_BITS = 64, 6
_SMALL, _SMALL_BLOCK, _SMALL_LEAF_BITS = 1 << 16, 32, 5


class _Joint(NamedTuple):
    """Slots in (score, loss) order against ranks in (loss, score) order."""

    slot: Int  # place in the loss order of each p
    q: Int  # rank of each p
    start: Int  # bounds of the group tied in the score
    end: Int
    both_start: Int  # bounds of the run tied in score and loss
    both_end: Int


def _join(slot: Int, order: Order, losses: Order) -> _Joint:
    """`slot` are the places in the loss order, in order of the score; ties in the score stay in loss order."""
    n = len(slot)
    if not losses.ties:
        return _Joint(slot, slot, order.start, order.end, np.arange(n), np.arange(1, n + 1))
    group = losses.start[slot]
    q = np.empty(n, dtype=np.int64)
    # Rows tied in the loss take their ranks in score order.
    q[stable_order(group.astype(np.uint32), n.bit_length())] = np.arange(n)
    new = np.ones(n, dtype=bool)
    new[1:] = (group[1:] != group[:-1]) | order.new[1:]
    return _Joint(slot, q, order.start, order.end, *bounds_of(new))


def join(score: Float, losses: Order) -> _Joint:
    order = order_by(score[losses.row])
    return _join(order.row.astype(np.int64), order, losses)


def _rejoin(order: Order, losses: Order) -> _Joint:
    """The same from an order of rows that is there already: no sort of the score."""
    place = np.empty(len(order.row), dtype=np.int64)
    place[losses.row] = np.arange(len(place))
    slot = place[order.row]
    if order.ties:  # inside a group of tied scores in order of the loss
        group = np.empty(len(slot), dtype=np.uint32)
        group[slot] = np.cumsum(order.new)
        slot = stable_order(group, len(slot).bit_length())
    return _join(slot, order, losses)


def _credit2(joint: _Joint, losses: Order, count: Int) -> Int:
    """credit2 at each slot p from C: 2·(pairs below) + 2·(pairs above) + ties in s, written with C alone."""
    n = len(count)
    p = np.arange(n)
    if not losses.ties and (joint.start == p).all():
        return 4 * count + 2 * (n - 1 - p - joint.q)
    start, end = losses.start[joint.q], losses.end[joint.q]
    both = joint.both_end - joint.both_start
    score_part = joint.end - joint.start - 2 * joint.end - 2 * (joint.both_start - joint.start)
    score_part += both - 2 * (p - joint.both_start)
    return 4 * count + score_part + 2 * (n - end) - 2 * (joint.q - start)


def _counted(joint: _Joint, losses: Order) -> Int:
    """credit2 at each place of the loss order."""
    by_slot = np.empty(len(joint.slot), dtype=np.int64)
    by_slot[joint.slot] = _credit2(joint, losses, count_below(joint.q))
    return by_slot


def _comparable(losses: Order) -> Int:
    """At each place of the loss order."""
    return len(losses.row) - (losses.end - losses.start)


def pair_counts(scores: Float, loss: Float, threads: int = 1) -> tuple[Int, Int]:
    """(K, n) credit2 of K scores against one loss, and (n,) comparable. `threads` is for the native twin."""
    losses = order_by(loss)
    comparable = np.empty(len(loss), dtype=np.int64)
    comparable[losses.row] = _comparable(losses)
    credit2 = np.empty(scores.shape, dtype=np.int64)
    for k, score in enumerate(scores):
        credit2[k, losses.row] = _counted(join(score, losses), losses)
    return credit2, comparable


def ordered_counts(order: Order, losses: Order, threads: int = 1) -> Int:
    """credit2 of every row, from the orders of score and loss."""
    credit2 = np.empty(len(order.row), dtype=np.int64)
    credit2[losses.row] = _counted(_rejoin(order, losses), losses)
    return credit2


def concordance(score: Float, loss: Float, threads: int = 1) -> ConcordanceSums:
    """Sums over all rows, without a count for each."""
    losses = order_by(loss)
    return concordance_sums(_counted(join(score, losses), losses), _comparable(losses))


def ordered_concordance(order: Order, losses: Order, threads: int = 1) -> ConcordanceSums:
    """The same from the orders of score and loss."""
    return concordance_sums(_counted(_rejoin(order, losses), losses), _comparable(losses))


def concordance_parts(order: Order, losses: Order, start: Int) -> ConcordanceSums:
    """The same part by part, as arrays, from orders that are cut."""
    slot = np.empty(len(losses.row), dtype=np.uint32)
    slot[losses.row] = np.arange(len(slot), dtype=np.uint32)
    slot = slot[order.row]
    found = []
    for a, b in itertools.pairwise(start.tolist()):
        own, of_loss = Order(slot[a:b] - np.uint32(a), order.new[a:b]), np.arange(b - a, dtype=np.uint32)
        found.append(ordered_concordance(own, Order(of_loss, losses.new[a:b])))
    return ConcordanceSums(*(np.array(column) for column in zip(*found, strict=True)))


def within_sums(score: Float, loss: Float, clusters: Order, threads: int = 1) -> tuple[Int, Int]:
    """Σ credit2 and Σ comparable over the rows of each cluster.

    One count does all clusters: ranked with the cluster in front, every pair across clusters is concordant and known.
    """
    first, size = clusters.first, clusters.size
    code = np.repeat(np.arange(len(first)), size)
    s, d = (dense_by(code, x[clusters.row]).astype(np.float64) for x in (score, loss))
    credit2, comparable = pair_counts(s[None], d)
    across = len(score) - size[code]
    return np.add.reduceat(credit2[0] - 2 * across, first), np.add.reduceat(comparable - across, first)


def dense_by(part: Int, x: Float) -> Int:
    """Dense ranks of (part, x)."""
    order = np.lexsort((x + 0.0, part))
    new = np.zeros(len(x), dtype=np.int64)
    a, b = part[order], x[order]
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    ranks = np.empty(len(x), dtype=np.int64)
    ranks[order] = np.cumsum(new)
    return ranks


def count_below(q: Int) -> Int:
    """C[p] = #{p' < p: q[p'] < q[p]} for a permutation q, digit by digit from the most significant.

    Rows that agree on all higher digits form a segment (q is a permutation, so segment k is a fixed range).
    A level counts pairs of a segment that differ in its digit; rows that share it meet again one level down.
    """
    n = len(q)
    count = np.zeros(n, dtype=np.int64)
    block, leaf = (_SMALL_BLOCK, _SMALL_LEAF_BITS) if n < _SMALL else (_BLOCK, _LEAF_BITS)
    shift = max(n - 1, 0).bit_length()
    levels = -(-max(0, shift - leaf) // 7)
    order: Int | None = None
    for level in range(levels):
        width = -(-(shift - leaf) // (levels - level))
        shift -= width
        found = _level(q if order is None else q[order], shift, width, block)
        order = _gather(count, order, found, q, shift)
    inside = q if order is None else q[order]
    found = _earlier_and_less((inside & ((1 << leaf) - 1)).astype(np.uint8), 1 << leaf)
    if order is None:
        return count + found
    count[order] += found
    return count


def _gather(count: Int, order: Int | None, found: Int, q: Int, shift: int) -> Int:
    """Adds what a level found and returns the order of the next one: by (q >> shift, p)."""
    if order is None:
        count += found
    else:
        count[order] += found
    return stable_order((q >> shift).astype(np.uint32), int(len(q) - 1 >> shift).bit_length())


def _level(q: Int, shift: int, width: int, size: int) -> Int:
    """Earlier rows of the same segment with a smaller digit: whole blocks by table, the own block directly."""
    n, digits = len(q), 1 << width
    digit = ((q >> shift) & (digits - 1)).astype(np.uint8)
    blocks = -(-n // size)
    per_segment = min(blocks, max(1, (1 << (shift + width)) // size))
    segments = -(-blocks // per_segment)
    block = np.arange(n) // size
    cell = block * digits + digit
    table = np.bincount(cell, minlength=segments * per_segment * digits).astype(np.int32)
    table = table.reshape(segments, per_segment, digits)
    before = np.zeros_like(table)
    np.cumsum(table[:, :-1], axis=1, out=before[:, 1:])
    np.cumsum(before[:, :, :-1], axis=2, out=table[:, :, 1:])
    table[:, :, 0] = 0
    return table.reshape(-1)[cell] + _earlier_and_less(digit, size)


def _earlier_and_less(digit: NDArray[np.uint8], block: int) -> Int:
    """For each row the earlier rows of its block with a smaller digit; rows across, so that NumPy runs along blocks."""
    n = len(digit)
    blocks = -(-n // block)
    padded = np.full(blocks * block, 255, dtype=np.uint8)
    padded[:n] = digit
    columns = np.ascontiguousarray(padded.reshape(blocks, block).T)
    found = np.zeros_like(columns)
    for k in range(min(block, n) - 1):
        found[k + 1 :] += (columns[k] < columns[k + 1 :]).view(np.uint8)
    return np.ascontiguousarray(found.T).reshape(-1)[:n].astype(np.int64)
