"""Pairs of rows that weigh."""

import numpy as np

from uqeval.kernels._types import Float, Int, bounds_of


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
        begin, end = bounds_of(edge)
        edge[1:] |= r[1:] != r[:-1]
        tie_begin, tie_end = bounds_of(edge)
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
