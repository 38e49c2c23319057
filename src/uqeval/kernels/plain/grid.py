"""Numbers that are fractions with a small denominator, but for the noise of floats."""

import numpy as np

from uqeval.kernels._types import Float

_NOISE = 2.0**-46  # 64 units in the last place of 1: what sums of some hundred fractions are off by
_BLOCK = 1 << 15  # so that what is made on the way stays in cache


def to_grid(x: Float, parts: float, narrow: bool, threads: int = 1) -> None:
    """Moves what lies that near to a multiple of 1/parts there, in place; 0, 1 and what is left to them stay.

    `narrow` numbers come from float32: one moves if it is what float32 makes of the multiple, so that none meet.
    """
    for start in range(0, len(x), _BLOCK):
        part = x[start : start + _BLOCK]
        at = part * parts
        whole = np.rint(at)
        fraction = whole / parts
        near = fraction.astype(np.float32) == part if narrow else np.abs(at - whole) <= parts * _NOISE
        np.copyto(part, fraction, where=near & (whole >= 1) & (whole < parts))
