"""Logits → probabilities, the same to the last bit whatever the order of the classes."""

import numpy as np

from uqeval._check import Float

_TOLERANCE = 1e-3  # probabilities stored as float16 or with three decimals still match their logits
_AT_ONCE = 1 << 16  # numbers of a block that the cache holds


def softmax(logits: Float) -> Float:
    """Over the last axis, in the precision that it is given."""
    out: Float = logits - logits.max(axis=-1, keepdims=True)  # exp(z - max) never overflows
    np.exp(out, out=out)
    out /= row_sums(out)
    return out


def row_sums(parts: Float) -> Float:
    """Σ over the last axis of numbers in [0, 1], as whole parts of 2⁻⁵²: these add up to the same in any order.

    A sum of floats depends on the order of the classes in its last bit, which would break ties that are ties in truth.
    """
    classes = parts.shape[-1]
    flat = parts.reshape(-1, classes)
    scale, rows = 2.0 ** min(52, 62 - classes.bit_length()), max(1, _AT_ONCE // classes)
    total = np.empty((len(flat), 1), dtype=parts.dtype)
    for start in range(0, len(flat), rows):
        whole = np.rint(flat[start : start + rows].astype(np.float64) * scale).astype(np.int64)
        total[start : start + rows] = whole.sum(axis=1, keepdims=True) / scale
    return total.reshape(*parts.shape[:-1], 1)


def agrees(logits: Float, probs: Float) -> bool:
    """Whether probabilities are those of the logits."""
    difference = softmax(logits)
    difference -= probs
    return bool(np.abs(difference, out=difference).max(initial=0.0) <= _TOLERANCE)
