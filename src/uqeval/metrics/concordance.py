"""Concordance: does a higher uncertainty score go with a larger loss?

UQ-AUC is the special case of a 0/1 loss. Intervals live in `inference`.
"""

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, Nan, check_rows
from uqeval._errors import UndefinedMetricWarning, notify


def uq_c_index(score: ArrayLike, loss: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    r"""Probability that of two rows with different losses the one with the larger loss has the higher score.

    .. math:: P(S < S' \mid D < D') + \tfrac12 P(S = S' \mid D < D')

    With the gap Δ = 1 − p̂(label) as loss and two classes it is maximal for scores that order inputs as ϕ, the
    model's commitment against the Bayes label; for more classes no such theorem holds. The loss contains the
    model's own probabilities, so never report it without UQ-AUC, and never rank models by it.

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


def c_index_value(score: Float, loss: Float, weights: Float | None) -> float:
    """UQ-C-index of clean arrays."""
    if weights is None:
        sums = kernels.concordance(score, loss)
        value = sums.credit2 / (2 * sums.comparable) if sums.comparable else float("nan")
    else:
        credit, weight = kernels.weighted_pair_counts(kernels.order_by(score), kernels.order_by(loss), weights)
        total = kernels.order_free_sum(weights * weight)
        value = kernels.order_free_sum(weights * credit) / total if total else float("nan")
    if value != value:
        notify("UQ-C-index is undefined: all losses are equal.", UndefinedMetricWarning, stacklevel=3)
    return value
