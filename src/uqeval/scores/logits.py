"""Uncertainty scores from the logits of one network; higher means less sure."""

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, check_logits
from uqeval._errors import InputError
from uqeval.scores._rows import by_rows


def free_energy(logits: ArrayLike, temperature: float = 1.0) -> Float:
    r"""Free energy of the logits.

    .. math:: -T \log \sum_k e^{z_k / T}

    Unlike a score of the probabilities, it moves when the same number is added to all logits of a row.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Pre-softmax outputs.
    temperature : float
        T > 0; a small one gives `max_logit`.

    Returns
    -------
    ndarray of shape (n,)
        Any real number.

    Examples
    --------
    >>> free_energy([[5.0, 0.0], [0.0, 0.0]]).round(4)
    array([-5.0067, -0.6931])
    """
    t = check_temperature(temperature)
    return by_rows(lambda z: free_energy_rows(z, t), check_logits(logits))


def max_logit(logits: ArrayLike) -> Float:
    r"""Minus the largest logit: :math:`-\max_k z_k`.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Pre-softmax outputs.

    Returns
    -------
    ndarray of shape (n,)
        Any real number.

    Examples
    --------
    >>> max_logit([[5.0, 0.0], [1.0, 2.0]])
    array([-5., -2.])
    """
    return by_rows(max_logit_rows, check_logits(logits))


def check_temperature(temperature: float) -> float:
    """A finite number above 0."""
    number = isinstance(temperature, int | float | np.integer | np.floating) and not isinstance(temperature, bool)
    if not number or not 0 < temperature < np.inf:
        raise InputError(f"`temperature` must be a finite number above 0; it is {temperature!r}.")
    return float(temperature)


def max_logit_rows(logits: Float) -> Float:
    top: Float = logits.max(axis=-1)
    return 0.0 - top


def free_energy_rows(logits: Float, temperature: float = 1.0) -> Float:
    """−T logsumexp(z / T) of (..., K), with the largest logit taken out first."""
    ordered = np.sort(logits, axis=-1)  # the sum then has one order, whatever that of the classes
    top: Float = ordered[..., -1].copy()
    with np.errstate(over="ignore"):  # a logit far below the top may overflow to -inf, and counts as 0
        ordered -= top[..., None]
        ordered /= temperature
    total: Float = np.exp(ordered, out=ordered).sum(axis=-1)
    return 0.0 - (top + temperature * np.log(total))
