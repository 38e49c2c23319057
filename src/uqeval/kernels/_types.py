"""What the kernels take and give."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bit = NDArray[np.uint8]


class Order(NamedTuple):
    """Rows sorted by value (stable), and where each slot's group of equal values starts and ends."""

    row: Int
    start: Int
    end: Int
    ties: bool


class AucSums(NamedTuple):
    """Exact sums over the rows of a 0/1 loss."""

    wrong: int  # rows with error = 1
    credit2: int  # over the wrong rows; the right rows have the same total
    wrong_squares: int  # Σ credit2² over the wrong rows
    right_squares: int


class ConcordanceSums(NamedTuple):
    """Totals over rows (each pair twice), and moments of the delete-one shifts of C."""

    credit2: int
    comparable: int
    shift: float  # Σ d_i, d_i = C without row i − C; NaN where a row holds all comparable pairs
    shift2: float  # Σ d_i²


def alike_sums(n: int, credit2: int, comparable: int, squares: int) -> ConcordanceSums:
    """Where all rows have m comparable rows (no ties), d_i is linear in credit2_i and integers do, exactly."""
    left = comparable - 2 * (comparable // n)
    return ConcordanceSums(credit2, comparable, 0.0, (n * squares - credit2**2) / (n * left**2))
