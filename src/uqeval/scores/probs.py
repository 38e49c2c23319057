"""Uncertainty scores from one probability vector per row; higher means less sure."""

from numpy.typing import ArrayLike

from uqeval._check import Float, check_probs
from uqeval.scores._rows import by_sorted, entropy_of, gap_of, margin_of, variance_of


def entropy(probs: ArrayLike) -> Float:
    r"""Entropy of the predicted distribution, in nats.

    .. math:: -\sum_k \hat p_k \log \hat p_k, \qquad 0 \log 0 = 0

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain) to log K (uniform).

    Examples
    --------
    >>> entropy([[1.0, 0.0], [0.5, 0.5]]).round(4)
    array([0.    , 0.6931])
    """
    return by_sorted([entropy_of], check_probs(probs))[0]


def gap_to_certain(probs: ArrayLike) -> Float:
    r"""Distance of the top probability from certainty: :math:`1 - \max_k \hat p_k` (the variation ratio).

    Where the top probability is rounded to 1, the sum of the others is taken, so that almost certain rows
    are still told apart.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain) to 1 − 1/K (uniform).

    Examples
    --------
    >>> gap_to_certain([[1.0, 0.0], [0.25, 0.75], [1.0, 1e-20]])
    array([0.0e+00, 2.5e-01, 1.0e-20])
    """
    return by_sorted([gap_of], check_probs(probs))[0]


def margin(probs: ArrayLike) -> Float:
    r"""Minus the lead of the top class over the second: :math:`-(\hat p_{(1)} - \hat p_{(2)})`.

    Rows more certain than 1 − 1e-16 tie at −1; `gap_to_certain` tells them apart.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From −1 (certain) to 0 (two classes tie at the top).

    Examples
    --------
    >>> margin([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]])
    array([-1. , -0.5,  0. ])
    """
    return by_sorted([margin_of], check_probs(probs))[0]


def bernoulli_variance(probs: ArrayLike) -> Float:
    r"""Variance of being right, taken from the top probability: :math:`\hat p_{\hat y}(1 - \hat p_{\hat y})`.

    For more than two classes it falls again once the top probability is under ½.

    Parameters
    ----------
    probs : array-like of shape (n, K) or (n,)
        Predicted probabilities; (n,) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain) to ¼ (top probability ½).

    Examples
    --------
    >>> bernoulli_variance([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]])
    array([0.    , 0.1875, 0.25  ])
    """
    return by_sorted([variance_of], check_probs(probs))[0]
