"""Proper scoring rules and accuracy: how good are the probabilities themselves?"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import kernels
from uqeval._check import Float, check_bits_and_weights, check_labels, check_lengths, check_probs, check_weights
from uqeval._errors import InputError, UQWarning, notify
from uqeval._rows import pick, square_rows


def accuracy(error: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Share of right predictions.

    Examples
    --------
    >>> accuracy([0, 0, 1, 0])
    0.75
    """
    e, w, _ = check_bits_and_weights("error", error, weights)
    return 1.0 - weighted_mean(e.astype(np.float64), w)


def brier(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Mean squared distance of the probabilities to the one-hot label, in [0, 2] (scikit-learn's binary value is half).

    Examples
    --------
    >>> round(brier([[0.8, 0.2], [0.4, 0.6]], [0, 1]), 12)
    0.2
    """
    p, y, w = _clean(probs, labels, weights)
    return weighted_mean(brier_rows(p, y), w)


def log_loss(
    probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, eps: float | None = None
) -> float:
    """Mean of −log p̂(label) in nats; infinite (with a warning) where a label had probability 0.

    `eps` clips p̂(label) from below, on request only.

    Examples
    --------
    >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 6)
    0.490415
    """
    p, y, w = _clean(probs, labels, weights)
    if eps is not None and not 0 < eps < 1:
        raise InputError(f"`eps` must lie strictly between 0 and 1; it is {eps!r}.")
    rows = log_loss_rows(p, y, eps or 0.0)
    if count := int(np.isinf(rows).sum()):
        notify(f"{count} labels have probability 0: the log-loss is infinite.", UQWarning, stacklevel=2)
    return weighted_mean(rows, w)


def right_rows(error: NDArray[Any]) -> Float:
    """1 where the prediction is right."""
    right: Float = np.subtract(1.0, error)
    return right


def brier_rows(probs: Float, labels: np.ndarray) -> Float:
    at_label = pick(probs, labels)
    # Σ_k (p_k − 1{y=k})² without the one-hot matrix; the label's own square is replaced, not cancelled.
    squares = square_rows(probs) - at_label * at_label
    return np.maximum(squares, 0.0) + (1.0 - at_label) ** 2


def log_loss_rows(probs: Float, labels: np.ndarray, eps: float = 0.0) -> Float:
    with np.errstate(divide="ignore"):
        result: Float = -np.log(np.maximum(pick(probs, labels), eps)) + 0.0
    return result


def weighted_mean(rows: Float, weights: Float | None) -> float:
    if weights is None:
        return kernels.order_free_sum(rows) / len(rows)
    return kernels.order_free_sum(rows * weights) / kernels.order_free_sum(weights)


def _clean(probs: ArrayLike, labels: ArrayLike, weights: ArrayLike | None) -> tuple[Float, np.ndarray, Float | None]:
    p = check_probs(probs)
    y = check_labels(labels, p.shape[1])
    check_lengths(probs=p, labels=y)
    if weights is None:
        return p, y, None
    w, keep = check_weights(weights, len(p))
    if keep is not None:
        p, y = p[keep], y[keep]
    return p, y, w
