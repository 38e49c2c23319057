"""Uncertainty scores from a Dirichlet distribution over the class probabilities; higher means less sure.

For evidential and prior networks. `alpha` is (n, K), above 0, and `alpha0` its row sum.
"""

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, check_alpha
from uqeval.scores._rows import by_rows, entropy_rows


def dirichlet_entropy(alpha: ArrayLike) -> Float:
    r"""Entropy of the expected class distribution, in nats: the total uncertainty.

    .. math:: H(\alpha / \alpha_0), \qquad \alpha_0 = \sum_k \alpha_k

    It depends on the shares only; `vacuity` and `dirichlet_mutual_information` see the amount of evidence.
    `dirichlet_differential_entropy` is the entropy of the Dirichlet density itself.

    Parameters
    ----------
    alpha : array-like of shape (n, K)
        Dirichlet parameters, above 0.

    Returns
    -------
    ndarray of shape (n,)
        From 0 to log K.

    Examples
    --------
    >>> dirichlet_entropy([[9.0, 1.0], [1.0, 1.0], [50.0, 50.0]]).round(4)
    array([0.3251, 0.6931, 0.6931])
    """
    return by_rows(mean_entropy_rows, check_alpha(alpha))


def dirichlet_mutual_information(alpha: ArrayLike) -> Float:
    r"""Information that the class would give about the class distribution, in nats: the epistemic part.

    .. math:: H(\alpha / \alpha_0) - \psi(\alpha_0 + 1) + \sum_k \tfrac{\alpha_k}{\alpha_0} \psi(\alpha_k + 1)

    The total uncertainty minus the entropy expected under the Dirichlet.

    Parameters
    ----------
    alpha : array-like of shape (n, K)
        Dirichlet parameters, above 0.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (unlimited evidence) to log K.

    Examples
    --------
    >>> dirichlet_mutual_information([[50.0, 50.0], [1.0, 1.0]]).round(4)
    array([0.005 , 0.1931])
    """
    return by_rows(information_rows, check_alpha(alpha))


def dirichlet_differential_entropy(alpha: ArrayLike) -> Float:
    r"""Differential entropy of the Dirichlet density, in nats.

    .. math:: \log B(\alpha) + (\alpha_0 - K)\,\psi(\alpha_0) - \sum_k (\alpha_k - 1)\,\psi(\alpha_k)

    Parameters
    ----------
    alpha : array-like of shape (n, K)
        Dirichlet parameters, above 0.

    Returns
    -------
    ndarray of shape (n,)
        At most −log (K−1)!, the value of the uniform density; very negative for a narrow one.

    Examples
    --------
    >>> dirichlet_differential_entropy([[50.0, 50.0, 1.0], [1.0, 1.0, 1.0]]).round(4)
    array([-5.207 , -0.6931])
    """
    return by_rows(differential_rows, check_alpha(alpha))


def vacuity(alpha: ArrayLike) -> Float:
    r"""Lack of evidence: :math:`K / \alpha_0`.

    Parameters
    ----------
    alpha : array-like of shape (n, K)
        Dirichlet parameters, above 0.

    Returns
    -------
    ndarray of shape (n,)
        Above 0; 1 where every parameter is 1 (no evidence).

    Examples
    --------
    >>> vacuity([[1.0, 1.0], [9.0, 1.0]])
    array([1. , 0.2])
    """
    return by_rows(vacuity_rows, check_alpha(alpha))


def _sorted(alpha: Float) -> Float:
    """Sorted, so that sums do not depend on the order of the classes; clipped, so that none overflows."""
    return np.sort(np.clip(alpha, 1e-300, 1e300), axis=-1)


def mean_entropy_rows(alpha: Float) -> Float:
    a = _sorted(alpha)
    return entropy_rows(a / a.sum(axis=-1, keepdims=True))


def vacuity_rows(alpha: Float) -> Float:
    return alpha.shape[-1] / _sorted(alpha).sum(axis=-1)


def information_rows(alpha: Float) -> Float:
    # The logarithms of the two entropies cancel on paper, which leaves small differences only.
    a = _sorted(alpha)
    total = a.sum(axis=-1)
    information: Float = (a * _digamma_excess(a)).sum(axis=-1) / total - _digamma_excess(total)
    return np.maximum(information, 0.0)


def differential_rows(alpha: Float) -> Float:
    # The terms of size alpha0 cancel on paper; what is left grows like log alpha.
    from scipy.special import digamma

    a = _sorted(alpha)
    total, k = a.sum(axis=-1), a.shape[-1]
    parts = (_gamma_excess(a) + digamma(a)).sum(axis=-1)
    return parts - _gamma_excess(total) - k * digamma(total)


def _digamma_excess(a: Float) -> Float:
    """ψ(a + 1) − log a; by its asymptotic series where the two terms would cancel."""
    from scipy.special import digamma

    small = np.minimum(a, 50.0)
    r = 1.0 / np.maximum(a, 50.0)
    series = r * (1 / 2 - r * (1 / 12 - r**2 * (1 / 120 - r**2 / 252)))
    return np.where(a < 50.0, digamma(small + 1.0) - np.log(small), series)


def _gamma_excess(a: Float) -> Float:
    """log Γ(a) − a ψ(a) + a; by its asymptotic series where the terms would cancel."""
    from scipy.special import digamma, gammaln

    small, large = np.minimum(a, 100.0), np.maximum(a, 100.0)
    r = 1.0 / large
    series = 0.5 * (1.0 + np.log(2.0 * np.pi * r)) + r * (1 / 6 - r**2 * (1 / 90 - r**2 / 210))
    return np.where(a < 100.0, gammaln(small) - small * digamma(small) + small, series)
