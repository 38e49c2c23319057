"""Uncertainty scores from several predictions per row: an ensemble, dropout passes, augmentations.

Higher means less sure. Turning models into members is the job of `methods`.
"""

from typing import Any

import numpy as np

from uqeval._check import Float, check_members, on_grid
from uqeval._rows import others
from uqeval.scores._rows import by_rows, entropy_rows, mean_members, vote_counts
from uqeval.scores.logits import check_temperature, free_energy_rows


def total_entropy(members: Any) -> Float:
    r"""Entropy of the mean prediction, in nats: :math:`H(\bar p)`, :math:`\bar p = \frac1m \sum_i p_i`.

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 to log K; the sum of `aleatoric_entropy` and `mutual_information`.

    Examples
    --------
    >>> total_entropy([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]).round(4)
    array([0.    , 0.6931])
    """
    return by_rows(total_entropy_rows, check_members(members))


def aleatoric_entropy(members: Any) -> Float:
    r"""Mean entropy of the members, in nats: :math:`\frac1m \sum_i H(p_i)`.

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 to log K.

    Examples
    --------
    >>> aleatoric_entropy([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]]).round(4)
    array([0.6931, 0.    ])
    """
    return by_rows(aleatoric_entropy_rows, check_members(members))


def mutual_information(members: Any) -> Float:
    r"""Disagreement of the members, in nats: :math:`H(\bar p) - \frac1m \sum_i H(p_i)`.

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (the members agree) to log K.

    Examples
    --------
    >>> mutual_information([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]]).round(4)
    array([0.    , 0.6931])
    """
    return by_rows(mutual_information_rows, check_members(members))


def predicted_class_variance(members: Any) -> Float:
    r"""Variance over the members of the probability that they give to the predicted class.

    .. math:: \frac1m \sum_i (p_{i\hat y} - \bar p_{\hat y})^2, \qquad \hat y = \arg\max_k \bar p_k

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (the members agree) to ¼.

    Examples
    --------
    >>> predicted_class_variance([[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])
    array([0.    , 0.0625])
    """
    return by_rows(predicted_class_variance_rows, check_members(members))


def vote_ratio(members: Any) -> Float:
    """Share of the members that do not vote for the most voted class.

    Each member votes for its most probable class; a tie votes for the lowest index.

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (unanimous) to 1 − 1/K.

    Examples
    --------
    >>> vote_ratio([[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.2, 0.8]]])
    array([0. , 0.5])
    """
    return by_rows(vote_ratio_rows, check_members(members))


def vote_entropy(members: Any) -> Float:
    """Entropy of the vote shares, in nats: the usual score under test-time augmentation.

    Each member votes for its most probable class; a tie votes for the lowest index.

    Parameters
    ----------
    members : array-like of shape (m, n, K) or (m, n), or list of m arrays
        Probabilities of m members; (m, n) is the probability of class 1.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (unanimous) to log K.

    Examples
    --------
    >>> vote_entropy([[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.2, 0.8]]]).round(4)
    array([0.    , 0.6931])
    """
    return by_rows(vote_entropy_rows, check_members(members))


def expected_free_energy(member_logits: Any, temperature: float = 1.0) -> Float:
    r"""Mean free energy of the members: :math:`-\frac{T}{m} \sum_i \log \sum_k e^{z_{ik} / T}`.

    Parameters
    ----------
    member_logits : array-like of shape (m, n, K), or list of m arrays of shape (n, K)
        Pre-softmax outputs of m members.
    temperature : float
        T > 0.

    Returns
    -------
    ndarray of shape (n,)
        Any real number.

    Examples
    --------
    >>> expected_free_energy([[[5.0, 0.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 0.0]]]).round(4)
    array([-4.0277, -0.6931])
    """
    t = check_temperature(temperature)
    logits = check_members(member_logits, name="member_logits", logits=True)
    return by_rows(lambda z: expected_energy_rows(z, t), logits)


def expected_energy_rows(member_logits: Float, temperature: float = 1.0) -> Float:
    return mean_members(free_energy_rows(member_logits, temperature))


def total_entropy_rows(members: Float) -> Float:
    return entropy_rows(on_grid(mean_members(members)))


def aleatoric_entropy_rows(members: Float) -> Float:
    return mean_members(np.sort(entropy_rows(members), axis=0))  # the order of the members breaks no tie


def mutual_information_rows(members: Float) -> Float:
    # ≥ 0 by concavity; only rounding can make it negative.
    return np.maximum(total_entropy_rows(members) - aleatoric_entropy_rows(members), 0.0)


def predicted_class_variance_rows(members: Float) -> Float:
    predicted = on_grid(mean_members(members)).argmax(axis=-1)
    p: Float = members[:, np.arange(members.shape[1]), predicted]
    # Where every member is fairly sure, the variance of 1 − p is the same number and does not saturate.
    sure = (p >= 0.5).all(axis=0)
    full = sure & (p == 1)
    p = np.where(sure, 1.0 - p, p)
    p[full] = others(members[full])
    p = np.sort(p, axis=0)
    return mean_members((p - mean_members(p)) ** 2)


def vote_ratio_rows(members: Float) -> Float:
    m = len(members)
    return (m - vote_counts(members).max(axis=-1)) / m


def vote_entropy_rows(members: Float) -> Float:
    return entropy_rows(vote_counts(members) / len(members))
