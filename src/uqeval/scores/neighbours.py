"""How far a point is from its k-th nearest neighbour: exact, in bounded memory.

A pair has the same distance whatever the rows around it, so copies tie and stay 0 apart. What the distance is used
for is left to `features` and to the distance C-index.
"""

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int

_VALUES = 1 << 22  # distances, or differences, at once: 32 MiB
_FEW_FEATURES = 12  # up to here a tree has little to look at


def neighbour_distances(points: Float, reference: Float, k: int, *, own: bool = False) -> Float:
    """Euclidean distance of each point (n, d) to its k-th nearest of the reference (m, d), which has as many.

    `own`: the points are the reference, and none is its own neighbour (but a copy of it may be).
    """
    # Squares of very large or small numbers leave the range of float64; of a power of two no digit is lost.
    top = max(float(np.abs(points).max(initial=0.0)), float(np.abs(reference).max(initial=0.0)))
    exponent = int(np.frexp(top)[1])
    points, reference = (np.ldexp(np.ascontiguousarray(x), -exponent) for x in (points, reference))
    k += own  # each is the nearest to itself
    found = _by_tree(points, reference, k) if points.shape[1] <= _FEW_FEATURES else _by_blocks(points, reference, k)
    return np.ldexp(found, exponent)


def _by_tree(points: Float, reference: Float, k: int) -> Float:
    from scipy.spatial import cKDTree

    # Equal rows once, with how often they occur: a leaf of copies would be walked through for each of them.
    rows, counts = np.unique(reference, axis=0, return_counts=True)
    near = min(k, len(rows))
    step, found = max(1, _VALUES // near), np.empty(len(points))
    tree = cKDTree(rows)
    for start in range(0, len(points), step):
        distance, which = tree.query(points[start : start + step], k=list(range(1, near + 1)))
        place = (counts[which].cumsum(axis=1) >= k).argmax(axis=1)
        found[start : start + step] = distance[np.arange(len(place)), place]
    return found


def _by_blocks(points: Float, reference: Float, k: int) -> Float:
    """Candidates from ‖x‖² + ‖y‖² − 2xy, whose rounding error is known; their distances from differences."""
    centre = reference.mean(axis=0)  # an offset common to all would only cost digits
    x, y = points - centre, reference - centre
    of_x, of_y = (np.einsum("ij,ij->i", z, z) for z in (x, y))
    # Of a sum of d products (Higham 2002, section 3.1) and of the centring, with room to spare.
    error = 4 * (points.shape[1] + 8) * np.finfo(np.float64).eps * (of_x + of_y.max())
    found, step = np.empty(len(points)), max(1, _VALUES // len(reference))
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        rough = x[rows] @ y.T
        rough *= -2.0
        rough += of_y
        rough += of_x[rows, None]
        bound = np.partition(rough, k - 1, axis=1)[:, k - 1] + 2 * error[rows]
        row, near = np.nonzero(rough <= bound[:, None])
        squared = _squared(points, reference, row + start, near)
        order = np.lexsort((squared, row))
        first = np.searchsorted(row, np.arange(len(rough)))
        found[rows] = np.sqrt(squared[order[first + k - 1]])
    return found


def _squared(points: Float, reference: Float, row: Int, near: NDArray[np.intp]) -> Float:
    """Squared distances of some pairs, a few at a time."""
    found, step = np.empty(len(row)), max(1, _VALUES // points.shape[1])
    for start in range(0, len(row), step):
        part = slice(start, start + step)
        difference = points[row[part]] - reference[near[part]]
        found[part] = np.einsum("ij,ij->i", difference, difference)  # row by row: the same bits in any batch
    return found
