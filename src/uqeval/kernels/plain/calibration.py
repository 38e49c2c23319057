"""How often labels that follow the confidences look less calibrated than those observed, in plain NumPy."""

import numpy as np

from uqeval.kernels._types import Float, Int


def exceeding(uniform: Float, mean: Float, weight: Float, first: Int, share: Float, observed: float, most: int) -> int:
    """Repetitions whose debiased squared calibration error is not below `observed`; counting may stop beyond `most`.

    Each row of `uniform` is a repetition and draws the label of row i as uniform[i] < mean[i]. Bin b starts at row
    first[b] and holds that share of all weight.
    """

    def by_bin(x: Float) -> Float:
        return np.add.reduceat(x, first, axis=-1)

    part = weight * ((uniform < mean) - mean)
    total, total2 = by_bin(weight), by_bin(weight * weight)
    gap = by_bin(part) / total
    spread = np.maximum(by_bin(part * part) - 2 * gap * by_bin(weight * part) + gap * gap * total2, 0.0)
    size = total * total / total2
    factor = np.where(np.diff(first, append=len(mean)) > 1, size / np.maximum(size - 1, 1e-12), 0.0)
    found = ((gap * gap - spread / (total * total) * factor) * share).sum(axis=1)
    return int(np.count_nonzero(found >= observed))
