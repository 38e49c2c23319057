"""What an uncertainty score should rank: the error, the gap, and the two true uncertainties.

Per-row quantities only; how well a score ranks them is the job of `metrics`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Bit, Float, Int, check_labels, check_lengths, check_logits, check_probs
from uqeval._errors import InputError
from uqeval._rows import logit_loss_rows, pick, rank_loss_rows, top_class
from uqeval.inputs import Predictions

__all__ = [
    "bayes_labels",
    "error_of",
    "gap",
    "gap_from_logits",
    "gap_rank_of",
    "loss_of",
    "misaligned",
    "misaligned_of",
    "misclassified",
    "phi",
    "predicted_labels",
    "predicted_of",
    "rank_loss",
    "varphi",
]


def predicted_labels(probs: ArrayLike) -> Int:
    """The most probable class of each row; a tie goes to the lowest index, with a warning.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        Class indices 0..K-1.

    Examples
    --------
    >>> predicted_labels([[0.2, 0.8], [0.6, 0.4]])
    array([1, 0])
    """
    return top_class("probs", check_probs(probs))


def misclassified(probs: ArrayLike, labels: ArrayLike) -> Bit:
    """1 where the most probable class is not the label, else 0.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    labels : array-like of shape (n,)
        True classes 0..K-1.

    Returns
    -------
    ndarray of shape (n,)
        The `error` that the metrics take.

    Examples
    --------
    >>> misclassified([[0.2, 0.8], [0.6, 0.4]], labels=[1, 1])
    array([0, 1], dtype=uint8)
    """
    p, y = _with_labels(probs, labels)
    return (top_class("probs", p) != y).view(np.uint8)


def gap(probs: ArrayLike, labels: ArrayLike) -> Float:
    r"""The gap :math:`\Delta = 1 - \hat p(\text{label})` between the prediction and a certain, right one.

    It saturates: labels of probability 1e-17 and 1e-30 both give 1.0. To rank rows use
    `gap_from_logits`, or `rank_loss` where there are no logits.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    labels : array-like of shape (n,)
        True classes 0..K-1.

    Returns
    -------
    ndarray of shape (n,)
        In [0, 1]; 0 is a certain, right prediction.

    Examples
    --------
    >>> gap([[0.25, 0.75], [0.5, 0.5]], labels=[1, 0])
    array([0.25, 0.5 ])
    """
    p, y = _with_labels(probs, labels)
    return 1.0 - pick(p, y)


def rank_loss(probs: ArrayLike, labels: ArrayLike) -> Float:
    r"""Minus the probability of the label: orders rows as the gap does, without its saturation at either end.

    Where that probability was rounded to 1, the other classes still tell rows apart: such a row gets about minus one
    over what is left to them.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    labels : array-like of shape (n,)
        True classes 0..K-1.

    Returns
    -------
    ndarray of shape (n,)
        At most 0, and finite; meant for ranking only.

    Examples
    --------
    >>> rank_loss([[1e-17, 1.0], [1e-30, 1.0]], labels=[0, 0])
    array([-1.e-17, -1.e-30])
    >>> rank_loss([[1.0, 2.0**-60], [0.75, 0.25]], labels=[0, 0])
    array([-1.1529215e+18, -7.5000000e-01])
    """
    return rank_loss_rows(*_with_labels(probs, labels))


def gap_from_logits(logits: ArrayLike, labels: ArrayLike) -> Float:
    r"""Log-loss of each row: an increasing transform of the gap that does not saturate.

    .. math:: -\log(1 - \Delta) = \log\Bigl(1 + \sum_{k \ne y} e^{z_k - z_y}\Bigr)

    Losses down to 1e-308 stay distinct, where the gap from probabilities stops at 1e-16.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Pre-softmax outputs.
    labels : array-like of shape (n,)
        True classes 0..K-1.

    Returns
    -------
    ndarray of shape (n,)
        At least 0; finite unless the label's own logit is -inf (a masked class).

    Examples
    --------
    >>> gap_from_logits([[0.0, 0.0], [1e4, -1e4]], labels=[0, 1])
    array([6.93147181e-01, 2.00000000e+04])
    """
    z = check_logits(logits)
    y = check_labels(labels, z.shape[1])
    check_lengths(logits=z, labels=y)
    return logit_loss_rows(z, y)


def bayes_labels(soft_labels: ArrayLike, *, normalize: bool = False) -> Int:
    """The most probable class under the label distribution; a tie goes to the lowest index, with a warning.

    Parameters
    ----------
    soft_labels : array-like of shape (n, K) or (n,)
        True label distribution, or human votes as shares.
    normalize : bool
        Divide each row by its sum, for vote counts.

    Returns
    -------
    ndarray of shape (n,)
        Class indices 0..K-1.

    Examples
    --------
    >>> bayes_labels([[1, 9], [8, 2]], normalize=True)
    array([1, 0])
    """
    return top_class("soft_labels", check_probs(soft_labels, name="soft_labels", normalize=normalize))


def phi(soft_labels: ArrayLike, probs: ArrayLike, *, normalize: bool = False) -> Float:
    r"""Error probability, the true chance of a wrong prediction: :math:`\phi = 1 - \pi_{\hat y}`.

    Parameters
    ----------
    soft_labels : array-like of shape (n, K) or (n,)
        True label distribution, or human votes as shares.
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    normalize : bool
        Divide each row of `soft_labels` by its sum, for vote counts.

    Returns
    -------
    ndarray of shape (n,)
        In [0, 1]; the best possible score for UQ-AUC.

    Examples
    --------
    >>> phi([[0.25, 0.75], [0.5, 0.5]], probs=[[0.1, 0.9], [0.9, 0.1]])
    array([0.25, 0.5 ])
    """
    pi, p = _with_soft_labels(soft_labels, probs, normalize)
    return 1.0 - pick(pi, top_class("probs", p))


def varphi(soft_labels: ArrayLike, probs: ArrayLike, *, normalize: bool = False) -> Float:
    r"""Misalignment, how little the prediction trusts the best answer: :math:`\varphi = 1 - \hat p_{\arg\max \pi}`.

    Parameters
    ----------
    soft_labels : array-like of shape (n, K) or (n,)
        True label distribution, or human votes as shares.
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    normalize : bool
        Divide each row of `soft_labels` by its sum, for vote counts.

    Returns
    -------
    ndarray of shape (n,)
        In [0, 1]; for two classes, the best possible score for the UQ-C-index.

    Examples
    --------
    >>> varphi([[0.25, 0.75], [0.6, 0.4]], probs=[[0.5, 0.5], [0.25, 0.75]])
    array([0.5 , 0.75])
    """
    pi, p = _with_soft_labels(soft_labels, probs, normalize)
    return 1.0 - pick(p, top_class("soft_labels", pi))


def misaligned(soft_labels: ArrayLike, probs: ArrayLike, *, normalize: bool = False) -> Bit:
    """1 where the prediction is not the most probable class of the label distribution, else 0.

    Parameters
    ----------
    soft_labels : array-like of shape (n, K) or (n,)
        True label distribution, or human votes as shares.
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.
    normalize : bool
        Divide each row of `soft_labels` by its sum, for vote counts.

    Returns
    -------
    ndarray of shape (n,)
        0 or 1.

    Examples
    --------
    >>> misaligned([[0.25, 0.75], [0.6, 0.4]], probs=[[0.1, 0.9], [0.25, 0.75]])
    array([0, 1], dtype=uint8)
    """
    pi, p = _with_soft_labels(soft_labels, probs, normalize)
    return (top_class("soft_labels", pi) != top_class("probs", p)).view(np.uint8)


def error_of(predictions: Predictions) -> Bit | None:
    """1 where the prediction is wrong: the predictions' own `error` or `pred` first; None where nothing tells."""
    if predictions.error is not None:
        return predictions.error
    if predictions.labels is None:
        return None
    if predictions.pred is not None:
        return (predictions.pred != predictions.labels).astype(np.uint8)
    if predictions.probs is None:
        return None
    return (top_class("probs", predictions.probs) != predictions.labels).astype(np.uint8)


def predicted_of(predictions: Predictions) -> Int:
    """The predicted classes: the predictions' own `pred` first."""
    if predictions.pred is not None:
        return predictions.pred
    assert predictions.probs is not None
    return top_class("probs", predictions.probs)


def loss_of(predictions: Predictions) -> Float | None:
    """The predictions' own loss, else the gap in a form that does not saturate (only ranks matter); None without."""
    return predictions.loss if predictions.loss is not None else gap_rank_of(predictions)


def gap_rank_of(predictions: Predictions) -> Float | None:
    """The gap in a form that does not saturate (only ranks matter), whatever loss the predictions have."""
    if predictions.labels is None or predictions.probs is None:
        return None
    if predictions.logits is not None and predictions.logits_match:
        return logit_loss_rows(predictions.logits, predictions.labels)
    return rank_loss_rows(predictions.probs, predictions.labels)


def misaligned_of(predictions: Predictions) -> tuple[Bit, NDArray[np.bool_]] | None:
    """1 where the prediction is not the majority label, and where the majority is a tie; None without soft labels."""
    soft = predictions.soft_labels
    if soft is None or (predictions.pred is None and predictions.probs is None):
        return None
    predicted = predicted_of(predictions)
    tied = np.count_nonzero(soft == soft.max(axis=1, keepdims=True), axis=1) > 1
    apart: Bit = (soft.argmax(axis=1) != predicted).view(np.uint8)
    return apart, tied


def _with_labels(probs: ArrayLike, labels: ArrayLike) -> tuple[Float, Int]:
    p = check_probs(probs)
    y = check_labels(labels, p.shape[1])
    check_lengths(probs=p, labels=y)
    return p, y


def _with_soft_labels(soft_labels: ArrayLike, probs: ArrayLike, normalize: bool) -> tuple[Float, Float]:
    pi = check_probs(soft_labels, name="soft_labels", normalize=normalize)
    p = check_probs(probs)
    check_lengths(soft_labels=pi, probs=p)
    if pi.shape != p.shape:
        raise InputError(
            f"`soft_labels` has {pi.shape[1]} classes but `probs` has {p.shape[1]}. "
            f"Pass the same classes in the same order in both."
        )
    return pi, p
