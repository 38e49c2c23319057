"""Ranking metrics: does a higher uncertainty score go with a wrong prediction?

Maths only. Inputs are clean arrays (`_check`); intervals live in `inference`.
"""

from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Bit, Float, Nan, check_rows
from uqeval._errors import UndefinedMetricWarning, notify


def uq_auc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    r"""Probability that a wrong prediction gets a higher score than a right one.

    .. math:: P(S > S' \mid E=1, E'=0) + \tfrac12 P(S = S' \mid E=1, E'=0)

    Maximal for any score that orders inputs as the error probability ϕ does.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0; each pair counts by the product of its weights.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) without a wrong or without a right row.

    Examples
    --------
    >>> uq_auc(score=[0.9, 0.8, 0.3, 0.8], error=[1, 1, 0, 0])
    0.875
    """
    s, e, w, _ = check_rows(score, error, weights, kind="error", nan=nan)
    return auc_value(s, e, w)


def auc_value(score: Float, error: Bit, weights: Float | None) -> float:
    """UQ-AUC of clean arrays."""
    if weights is None:
        sums = kernels.auc_sums(score, error)
        pairs = sums.wrong * (len(error) - sums.wrong)
        value = sums.credit2 / (2 * pairs) if pairs else float("nan")
    else:
        credit, comparable = kernels.weighted_auc_counts(kernels.order_by(score), error, weights)
        total = kernels.order_free_sum(weights * comparable)
        value = kernels.order_free_sum(weights * credit) / total if total else float("nan")
    if value != value:
        right = "right" if error.any() else "wrong"
        notify(f"UQ-AUC is undefined: the test set has no {right} prediction.", UndefinedMetricWarning, stacklevel=3)
    return value
