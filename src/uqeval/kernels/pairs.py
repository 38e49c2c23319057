"""Pair counting in plain NumPy: the definition made fast, readable, and working everywhere.

For scores s and losses d every row gets `credit2` = 2·(concordant + ½ tied in s) over its comparable rows
(d differs), and `comparable`, their number. Metrics, variances, tests and merges all come from those integers.
`native` is the same in C++; both give identical integers.

How: sort rows by (s, d) into slots p and by (d, s) into ranks q. One count per row is enough,
C = #{p' < p, q' < q}; the rest is closed-form from the sizes and places of the tie groups (`_credit2`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval.kernels._types import AucSums, Bit, ConcordanceSums, Float, Int, Order, alike_sums

# Rows compared with each other directly, a byte each: many for long arrays, few where a NumPy call costs more.
_BLOCK, _LEAF_BITS = 64, 6
_SMALL, _SMALL_BLOCK, _SMALL_LEAF_BITS = 1 << 16, 32, 5


# ---- order ----------------------------------------------------------------------------------------------------


def _keys(x: Float) -> NDArray[np.uint64]:
    """Order-preserving bits; adding 0.0 makes -0.0 equal to 0.0."""
    bits = (x + 0.0).view(np.int64)
    return (bits ^ ((bits >> 63) | np.int64(-(2**63)))).view(np.uint64)


def _bounds(new: NDArray[np.bool_]) -> tuple[Int, Int]:
    """First and past-the-end slot of each slot's group, from the flags of group starts."""
    n = len(new)
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=n)
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


def _stable_order(key: NDArray[np.uint32], bits: int) -> Int:
    """Stable argsort of unsigned integers, 16 bits at a time: NumPy sorts those by radix, which beats its quicksort."""
    order = np.argsort(key.astype(np.uint16) if bits > 8 else key.astype(np.uint8), kind="stable")
    if bits > 16:
        high = (key >> 16).astype(np.uint16 if bits > 24 else np.uint8)
        order = order[np.argsort(high[order], kind="stable")]
    return order


def order_by(x: Float) -> Order:
    """Stable order of x with its tie groups, by the top 32 bits that differ; runs that look equal are then mended."""
    n = len(x)
    keys = _keys(x)
    keys -= keys.min(initial=np.uint64(2**64 - 1))
    width = int(keys.max(initial=np.uint64(0))).bit_length()
    cut = max(0, width - 32)
    top = (keys >> np.uint64(cut)).astype(np.uint32)
    row = _stable_order(top, width - cut)
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
    if new.all():
        slots = np.arange(n)
        return Order(row, slots, slots + 1, False)
    return Order(row, *_bounds(new), True)


# ---- UQ-AUC ---------------------------------------------------------------------------------------------------


def auc_counts(score: Float, error: Bit) -> tuple[Int, AucSums]:
    """credit2 of every row when the loss is 0/1, and its exact sums."""
    n = len(score)
    order = order_by(score)
    sorted_error = error[order.row]
    below = np.zeros(n + 1, dtype=np.int64)  # wrong rows before each slot
    np.cumsum(sorted_error, out=below[1:])
    total = int(below[-1])
    if order.ties:
        # Twice the right rows below plus the tied ones, and the same for wrong rows above.
        wrong = below[order.start] + below[order.end]
        credit = np.where(sorted_error, order.start + order.end - wrong, 2 * total - wrong)
    else:
        credit = np.where(sorted_error, order.start - below[:-1], total - below[:-1])
        credit *= 2
    credit2 = np.empty(n, dtype=np.int64)
    credit2[order.row] = credit
    of_wrong = credit[sorted_error.view(np.bool_)]
    squares = _sum_of_squares(of_wrong)
    return credit2, AucSums(total, int(of_wrong.sum()), squares, _sum_of_squares(credit) - squares)


def _sum_of_squares(x: Int) -> int:
    """Exact, beyond 2⁶⁴: halves of 16 bits, dotted as integers (which also keeps BLAS threads out of it)."""
    if len(x) * int(x.max(initial=0)) ** 2 < 2**63:
        return int(x @ x)
    high, low = x >> 16, x & 0xFFFF
    return (int(high @ high) << 32) + (int(high @ low) << 17) + int(low @ low)


# ---- UQ-C-index -----------------------------------------------------------------------------------------------


class _Joint(NamedTuple):
    """Slots in (score, loss) order against ranks in (loss, score) order."""

    slot: Int  # place in the loss order of each p
    q: Int  # rank of each p
    start: Int  # bounds of the group tied in the score
    end: Int
    both_start: Int  # bounds of the run tied in score and loss
    both_end: Int


def _join(score: Float, losses: Order) -> _Joint:
    n = len(score)
    order = order_by(score[losses.row])  # stable: ties in the score stay in loss order
    slot = order.row
    if not losses.ties:
        return _Joint(slot, slot, order.start, order.end, np.arange(n), np.arange(1, n + 1))
    group = losses.start[slot]
    q = np.empty(n, dtype=np.int64)
    # Rows tied in the loss take their ranks in score order.
    q[_stable_order(group.astype(np.uint32), n.bit_length())] = np.arange(n)
    new = np.ones(n, dtype=bool)
    new[1:] = (group[1:] != group[:-1]) | (order.start[1:] == np.arange(1, n))
    return _Joint(slot, q, order.start, order.end, *_bounds(new))


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


def pair_counts(scores: Float, loss: Float, threads: int = 1) -> tuple[Int, Int]:
    """(K, n) credit2 of K scores against one loss, and (n,) comparable. `threads` is for the native twin."""
    n = len(loss)
    losses = order_by(loss)
    comparable = np.empty(n, dtype=np.int64)
    comparable[losses.row] = n - (losses.end - losses.start)
    credit2 = np.empty(scores.shape, dtype=np.int64)
    for k, score in enumerate(scores):
        joint = _join(score, losses)
        credit2[k, losses.row[joint.slot]] = _credit2(joint, losses, count_below(joint.q))
    return credit2, comparable


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
    return _stable_order((q >> shift).astype(np.uint32), int(len(q) - 1 >> shift).bit_length())


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


# ---- sums -----------------------------------------------------------------------------------------------------


def order_free_sum(x: Float) -> float:
    """A sum whose last bit does not depend on the order of x: two folds of fixed point, summed as integers."""
    bound = float(np.abs(x).max(initial=0.0))
    if bound == 0.0 or not np.isfinite(bound):
        return float(x.sum())
    bits = min(51, 62 - len(x).bit_length())
    shift = bits - int(np.frexp(bound)[1])
    scaled = np.ldexp(x, shift)
    whole = np.rint(scaled)
    rest = np.rint((scaled - whole) * float(1 << bits))
    total = float(whole.astype(np.int64).sum()) + float(np.ldexp(float(rest.astype(np.int64).sum()), -bits))
    return float(np.ldexp(total, -shift))


def concordance_sums(credit2: Int, comparable: Int) -> ConcordanceSums:
    """Totals, and the first two moments of d_i = C without row i − C = −(credit2_i − 2C·m_i)/(M − 2m_i)."""
    total2, total = int(credit2.sum()), int(comparable.sum())
    if total == 0 or total <= 2 * int(comparable.max()):
        return ConcordanceSums(total2, total, float("nan"), float("nan"))
    same, n = int(comparable[0]), len(comparable)
    if total == same * n and comparable.min() == same:
        return alike_sums(n, total2, total, _sum_of_squares(credit2))
    m = comparable.astype(np.float64)
    shift = ((total2 / total) * m - credit2.astype(np.float64)) / (total - 2.0 * m)
    return ConcordanceSums(total2, total, order_free_sum(shift), order_free_sum(shift * shift))


# ---- weights --------------------------------------------------------------------------------------------------


def weighted_credit(rank: Int, group: Int, weight: Float, first: Int) -> tuple[Float, Float]:
    """Weight of the comparable rows that agree with each slot and of those that do not, tied scores half in both.

    Slots come in parts that start at `first`, inside a part by loss; `group` numbers the losses of a part and `rank`
    its scores, both from 0. Pairs are counted inside parts only.
    Bit by bit of the group: rows that share part and higher bits and differ in this bit are the pairs met here.
    """
    n = len(rank)
    credit, against = np.zeros((2, n))
    part = np.zeros(n, dtype=np.int64)
    part[first[1:]] = 1
    np.cumsum(part, out=part)
    bits = int(group.max(initial=0)).bit_length()
    for bit in range(bits):
        segment = (part << (bits - bit)) + (group >> (bit + 1))
        order = np.lexsort((rank, segment))
        segment, r = segment[order], rank[order]
        edge = np.ones(n, dtype=bool)
        edge[1:] = segment[1:] != segment[:-1]
        begin, end = _bounds(edge)
        edge[1:] |= r[1:] != r[:-1]
        tie_begin, tie_end = _bounds(edge)
        high = (group[order] >> bit & 1).astype(bool)
        w = weight[order]
        for rows, pairs in ((high, np.where(high, 0.0, w)), (~high, np.where(high, w, 0.0))):
            up = np.concatenate([[0.0], np.cumsum(pairs)])
            down = np.concatenate([np.cumsum(pairs[::-1])[::-1], [0.0]])
            below = (up[tie_begin] + up[tie_end]) / 2 - up[begin]
            above = (down[tie_begin] + down[tie_end]) / 2 - down[end]
            agree, differ = (below, above) if rows is high else (above, below)
            credit[order[rows]] += agree[rows]
            against[order[rows]] += differ[rows]
    return credit, against


# ---- bootstrap ------------------------------------------------------------------------------------------------


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
    joint = _join(score, losses)
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
    first = np.flatnonzero(order.start == np.arange(len(score)))
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
