"""Probabilities that are fractions in truth (votes of trees, rounded numbers) are those fractions to the last bit.

1 − 0.71 is 0.29000000000000004: as it came, it would break a tie with 0.29 that the ranking metrics must see.
"""

import numpy as np

from uqeval import kernels
from uqeval._check.rows import Float

# Denominators up to 10, 10⁵, 1024, 3125 and what divides the product: of such grids all points are found. Few of the
# rest are: 6e-6 of all numbers lie so near to a point that they move, by less than 1.5e-14.
_PARTS = 2**10 * 3**2 * 5**5 * 7
_NARROW_PARTS = 2**4 * 3**2 * 5**2 * 7  # float32 has fewer digits: hundredths, and up to 10


def on_grid(x: Float, narrow: bool = False) -> Float:
    """Moves numbers of [0, 1] in place (a copy where memory is not in one piece); `narrow` ones came as float32."""
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = np.ascontiguousarray(x)
    kernels.to_grid(x.ravel(order="K"), _NARROW_PARTS if narrow else _PARTS, narrow)
    return x
