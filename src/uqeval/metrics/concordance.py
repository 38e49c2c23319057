"""Concordance: does a higher uncertainty score go with a larger loss?

UQ-AUC is the special case of a 0/1 loss. Intervals live in `inference`.
"""

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, Nan, check_bits, check_lengths, check_rows, check_vector, omits
from uqeval._errors import UndefinedMetricWarning, notify
from uqeval.metrics.calibration import check_shares

_MADE = "confidence"  # the argument that messages about the signed confidence name


def uq_c_index(score: ArrayLike, loss: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    r"""Probability that of two rows with different losses the one with the larger loss has the higher score.

    .. math:: P(S < S' \mid D < D') + \tfrac12 P(S = S' \mid D < D')

    With the gap Δ = 1 − p̂(label) as loss and two classes it is maximal for scores that order inputs as the misalignment
    φ (what the model gives to all but the most probable class); for more classes no such theorem holds: there is
    `top_label_c_index`. The loss contains the model's own probabilities, so never report it without UQ-AUC, and never
    rank models by it.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    loss : array-like of shape (n,)
        Any per-row loss; only its order matters. Rank −p̂(label) or the log-loss, not 1 − p̂(label), which
        rounds distinct rows to the same number.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0; each pair counts by the product of its weights.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) if all losses are equal.

    Examples
    --------
    >>> uq_c_index(score=[0.1, 0.4, 0.4, 0.9], loss=[0.0, 0.2, 0.3, 0.3])
    0.9
    """
    s, d, w, _ = check_rows(score, loss, weights, kind="loss", nan=nan)
    return c_index_value(s, np.asarray(d, dtype=np.float64), w)


def top_label_c_index(
    score: ArrayLike, confidence: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> float:
    r"""UQ-C-index against the signed confidence: optimal for one order of inputs, with any number of classes.

    .. math:: P(S < S' \mid D < D') + \tfrac12 P(S = S' \mid D < D'), \quad D = (2E - 1)\,c

    D is −c where the prediction is right and c where it is wrong, c the confidence of the predicted class. A score is
    best if it orders inputs as c·sgn(ϕ − ½) does, ϕ the error probability: sure predictions that are mostly right
    first, sure ones that are mostly wrong last. With two classes D orders rows as the gap Δ does, so that it is the
    UQ-C-index (but for rows of confidence ½, which Δ ties). As that it contains the model's own probabilities: read
    it beside UQ-AUC, and do not rank models by it.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    confidence : array-like of shape (n,)
        Probability of the predicted class, in [0, 1]. Where it is rounded to 1 rows tie; `uqeval.evaluate` tells
        them apart by the logits or by what is left to the other classes.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0; each pair counts by the product of its weights.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) if all rows have the same signed confidence.

    Examples
    --------
    >>> top_label_c_index(score=[0.1, 0.4, 0.4, 0.9], confidence=[0.9, 0.6, 0.5, 0.7], error=[0, 0, 1, 1])
    0.9166666666666666
    """
    s, d, w, _ = check_rows(score, signed_confidence(confidence, error, nan), weights, kind="loss", name=_MADE, nan=nan)
    return c_index_value(s, d, w, "top-label C-index", "all rows have the same signed confidence")


def signed_confidence(confidence: ArrayLike, error: ArrayLike, nan: Nan = "raise") -> Float:
    """c where the prediction is wrong, −c where it is right; with ``nan="omit"`` NaN where either is."""
    omit = omits(nan)
    c = check_shares(check_vector("confidence", confidence, missing=omit))
    e = check_vector("error", error, missing=omit)
    check_lengths(0, confidence=c, error=e)
    missing = np.isnan(c) | np.isnan(e)
    wrong = check_bits("error", np.where(missing, 0.0, e)).view(np.bool_)
    d = np.where(wrong, c, 0.0 - c)  # not -c: that would give -0.0
    d[missing] = np.nan
    return d


def c_index_value(
    score: Float, loss: Float, weights: Float | None, title: str = "UQ-C-index", why: str = "all losses are equal"
) -> float:
    """UQ-C-index of clean arrays; what it is called, and why it may have no value."""
    if weights is None:
        sums = kernels.concordance(score, loss)
        value = sums.credit2 / (2 * sums.comparable) if sums.comparable else float("nan")
    else:
        credit, weight = kernels.weighted_pair_counts(kernels.order_by(score), kernels.order_by(loss), weights)
        total = kernels.order_free_sum(weights * weight)
        value = kernels.order_free_sum(weights * credit) / total if total else float("nan")
    if value != value:
        notify(f"{title} is undefined: {why}.", UndefinedMetricWarning, stacklevel=3)
    return value
