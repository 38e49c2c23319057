"""Have these rows come before? Marks of rows that do not depend on their order, and what two batches share.

A batch has a digest, the sum of the hashes of its rows (score and loss, to the last bit): equal digests are equal rows,
whatever their order. Of the rows that chose a threshold, and of all rows checked so far, a few are marked besides:
those that come again say how many of the others do, at the cost of a few bytes. A log that grows and is checked as a
whole is no earlier batch, but holds them all.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float
from uqeval._errors import InputError, notify

MOST_BATCHES = 1000  # that a check remembers: a state must not grow for ever
_AT_ONCE = 1 << 16
_MARKS = 32  # rows of a calibration, or of a batch, that are marked
_MOST_MARKS = 64  # that a check remembers: those with the smallest hashes of all looks
_ENOUGH = 4  # of them that come again are told: one may by chance
_BY_CHANCE = 1e-3  # how likely a repeat by chance may be, over all looks, before it is no proof

Hashes = NDArray[np.uint64]


def row_hashes(score: ArrayLike, loss: ArrayLike) -> Hashes:
    """A number of 64 bits for each row."""
    scores, losses = np.asarray(score), np.asarray(loss)
    found = np.empty(len(scores), dtype=np.uint64)
    for start in range(0, len(found), _AT_ONCE):  # parts that the cache holds: three times as fast
        part = slice(start, start + _AT_ONCE)
        found[part] = _mixed(_bits(losses[part]) * np.uint64(0x9E3779B97F4A7C15) + _bits(scores[part]))
    return found


def _bits(values: NDArray[Any]) -> Hashes:
    return (values.astype(np.float64) + 0.0).view(np.uint64)  # −0.0 is 0.0


def _mixed(x: Hashes) -> Hashes:
    """Each bit depends on all: the finalizer of splitmix64 (Steele, Lea & Flood 2014). Writes over x."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def digest(rows: Hashes) -> str:
    """Of a batch, whatever the order of its rows: their number and the sum of their hashes."""
    return f"{len(rows)}-{int(rows.sum(dtype=np.uint64)):016x}"


def marks(score: Float, rows: Hashes, ordered: Float) -> tuple[str, ...]:
    """Some rows to know again: of a score that no other row has, with more digits than a person writes.

    None where such scores are rare: a row that comes again may then be another one. `ordered` are the scores in order.
    """
    limit = min((1 << 64) - 1, (16 * _MARKS << 64) // len(rows))  # of far more than are needed
    some = np.flatnonzero(rows < np.uint64(limit))
    first = some[np.argsort(rows[some])][: 4 * _MARKS]
    value = score[first] + 0.0
    alone = np.searchsorted(ordered, value, "right") - np.searchsorted(ordered, value, "left") == 1
    exact = np.array([float(f"{x:.7g}") != x for x in value.tolist()], dtype=np.bool_)
    found = [f"{rows[k]:016x}" for k in first[alone & exact].tolist()][:_MARKS]
    return tuple(found) if len(found) >= _MARKS // 2 else ()


def chance(rows: Hashes) -> float:
    """The most likely that another batch has just these rows.

    However rows are drawn, so many of these kinds come in these numbers with at most the probability that the best
    law for them gives: n! ∏ (cₖ/n)^cₖ / cₖ!.
    """
    count = np.unique(rows, return_counts=True)[1].astype(np.float64)
    n = len(rows)
    return math.exp(math.lgamma(n + 1) + float((count * np.log(count / n)).sum()) - sum(map(math.lgamma, count + 1)))


class Remembered(NamedTuple):
    """Of rows that came before: digests of their batches, marks of some of them."""

    batches: tuple[str, ...]
    marks: tuple[str, ...]


def refuse_repeats(
    score: Float, loss: NDArray[Any], chose: Remembered, before: Remembered, *, again: bool
) -> Remembered:
    """What to remember of the looks after one at these rows, which must be new ones unless the user insists.

    `chose` are the rows that the threshold was chosen on, `before` those of earlier looks.
    """
    rows = row_hashes(score, loss)
    name = digest(rows)
    for known, what, advice, instead in (
        (chose, "that the threshold was chosen on", "Pass rows that came later", _NOT_NEW),
        (before, "that were checked before", "Each row counts once: pass the next rows", _NOT_TWICE),
    ):
        if again:
            break
        # Each look is compared with all before: half as many pairs as the square of the looks.
        if name not in known.batches:
            _note_marks(rows, known.marks, what, instead)
        elif chance(rows) < _BY_CHANCE / len(known.batches) ** 2:
            same = f"These are the rows {what} (the same {len(rows):,} scores and errors)"
            raise InputError(f"{same}. {advice}, or again=True to insist.")
    if len(rows) < 2:  # a single row comes again by chance
        return before
    marked = sorted({*before.marks, *marks(score, rows, np.sort(score))})[:_MOST_MARKS]
    return Remembered((*before.batches, name)[-MOST_BATCHES:], tuple(marked))


_NOT_NEW = "Leave them out, since they speak for the threshold"
_NOT_TWICE = "Each row counts once: leave them out"


def _note_marks(rows: Hashes, marked: tuple[str, ...], what: str, advice: str) -> None:
    come = int(np.isin(np.array([int(mark, 16) for mark in marked], dtype=np.uint64), rows).sum())
    if come >= _ENOUGH:
        notify(
            f"Rows {what} are among these: {come} of {len(marked)} that were marked then came again. {advice}; unless "
            f"inputs do come repeatedly."
        )
