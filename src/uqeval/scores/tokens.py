"""Uncertainty scores from the log-probabilities of generated tokens; higher means less sure.

Texts have different lengths: one sequence for each answer. A score of the whole text grows with its length, a mean over
its tokens does not.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError
from uqeval._rows import mean_entropy, text_nll

_ROUNDING = 1e-3  # log-probabilities of half precision may lie this much above 0


def sequence_nll(logprobs: Iterable[Sequence[float]]) -> Float:
    r"""Minus the log-probability of each answer: :math:`-\sum_t \log p(y_t \mid y_{<t})`, in nats.

    Parameters
    ----------
    logprobs : sequence of sequences of float
        For each answer the log-probabilities of its tokens.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain); longer answers tend to have more.

    Examples
    --------
    >>> sequence_nll([[-0.5, -1.0], [0.0]])
    array([1.5, 0. ])
    """
    return np.array([text_nll(tokens) for tokens in _checked(logprobs)])


def mean_token_nll(logprobs: Iterable[Sequence[float]]) -> Float:
    r"""Minus the mean log-probability of the tokens of each answer: `sequence_nll` by its length.

    Parameters
    ----------
    logprobs : sequence of sequences of float
        For each answer the log-probabilities of its tokens.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain).

    Examples
    --------
    >>> mean_token_nll([[-0.5, -1.0], [0.0]])
    array([0.75, 0.  ])
    """
    return np.array([text_nll(tokens) / len(tokens) for tokens in _checked(logprobs)])


def perplexity(logprobs: Iterable[Sequence[float]]) -> Float:
    r"""Perplexity of each answer: e to the power of `mean_token_nll`, which orders answers in the same way.

    Parameters
    ----------
    logprobs : sequence of sequences of float
        For each answer the log-probabilities of its tokens.

    Returns
    -------
    ndarray of shape (n,)
        From 1 (certain).

    Examples
    --------
    >>> perplexity([[-0.5, -1.0], [0.0]]).round(3)
    array([2.117, 1.   ])
    """
    with np.errstate(over="ignore"):  # a token of probability 0 in float32 may be written as -9999
        found: Float = np.exp(mean_token_nll(logprobs))
    return found


def mean_token_entropy(top_logprobs: Iterable[Sequence[Sequence[float]]]) -> Float:
    r"""Mean over the tokens of an answer of the entropy of what could have stood there, in nats.

    Servers list the most probable alternatives only. What they leave out counts as one more alternative, so that the
    entropy is a lower bound of the true one.

    Parameters
    ----------
    top_logprobs : sequence of sequences of sequences of float
        For each answer, for each of its tokens, the log-probabilities of the listed alternatives.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (certain).

    Examples
    --------
    >>> from math import log
    >>> mean_token_entropy([[[log(0.5), log(0.5)], [0.0]], [[log(0.9)]]]).round(4)
    array([0.3466, 0.3251])
    """
    answers = [[list(map(float, token)) for token in answer] for answer in top_logprobs]
    for row, answer in enumerate(answers):
        if not answer or not all(answer):
            raise InputError(f"`top_logprobs` has no numbers in answer {row}. Leave answers without tokens out.")
        for token in answer:
            _check_tokens("top_logprobs", row, token)
            if math.fsum(map(math.exp, token)) > 1 + _ROUNDING:
                raise InputError(
                    f"`top_logprobs`: alternatives of one token of answer {row} have probabilities that sum to "
                    f"{math.fsum(map(math.exp, token)):.4g}. Pass natural logarithms, each alternative once."
                )
    return np.array([mean_entropy(answer) for answer in answers])


def _checked(logprobs: Iterable[Any]) -> list[list[float]]:
    """One list for each answer, of numbers that can be log-probabilities."""
    try:
        answers = [list(map(float, tokens)) for tokens in logprobs]
    except (TypeError, ValueError):
        raise InputError(
            "`logprobs` must hold a sequence of numbers for each answer, as [[-0.1, -2.3], [-0.4]]."
        ) from None
    for row, tokens in enumerate(answers):
        if not tokens:
            raise InputError(f"`logprobs` has no numbers in answer {row}. Leave answers without tokens out.")
        _check_tokens("logprobs", row, tokens)
    return answers


def _check_tokens(name: str, row: int, tokens: list[float]) -> None:
    for value in tokens:
        if not value <= _ROUNDING:  # NaN too
            raise InputError(f"`{name}` has {value:g} in answer {row}. Log-probabilities are numbers of at most 0.")
