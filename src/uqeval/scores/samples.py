"""Uncertainty scores from several sampled answers to each question; higher means less sure.

What counts as the same answer is yours to say: equal texts, or the clusters that `semantic_clusters` finds with any
function that compares two answers.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError, a_type
from uqeval._rows import cluster_entropy_of, disagreement


def answer_disagreement(samples: Iterable[Sequence[Hashable]]) -> Float:
    """Share of the sampled answers to a question that are not the most frequent one.

    Parameters
    ----------
    samples : sequence of sequences
        For each question its sampled answers (texts, numbers), or ids of their clusters.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (all agree) to 1 − 1/m (m samples that all differ).

    Examples
    --------
    >>> answer_disagreement([["4", "4", "4"], ["4", "5", "4"]]).round(3)
    array([0.   , 0.333])
    """
    return np.array([disagreement(answers) for answers in _checked("samples", samples)])


def cluster_entropy(cluster_ids: Iterable[Sequence[Hashable]]) -> Float:
    """Entropy of how the sampled answers to a question spread over clusters of one meaning, in nats.

    Known as discrete semantic entropy (Farquhar et al. 2024): each sample counts as one, whatever its probability.

    Parameters
    ----------
    cluster_ids : sequence of sequences
        For each question the cluster of each sampled answer, as of `semantic_clusters`.

    Returns
    -------
    ndarray of shape (n,)
        From 0 (one meaning) to log m (m samples that all differ).

    Examples
    --------
    >>> cluster_entropy([[0, 0, 0], [0, 0, 1]]).round(4)
    array([0.    , 0.6365])
    """
    return np.array([cluster_entropy_of(clusters) for clusters in _checked("cluster_ids", cluster_ids)])


def semantic_clusters(answers: Iterable[Sequence[Any]], same: Callable[[Any, Any], bool]) -> list[list[int]]:
    """Clusters of answers of one meaning, found with any function that compares two answers.

    An answer joins the first cluster whose first answer means the same in both directions (``same(a, b)`` and
    ``same(b, a)``), as with entailment; equal answers are not compared.

    Parameters
    ----------
    answers : sequence of sequences
        For each question its sampled answers.
    same : callable
        Whether the first answer says what the second says: an entailment model, a judge, a rule.

    Returns
    -------
    list of lists of int
        For each question the cluster of each answer, 0, 1, … in order of appearance; for `cluster_entropy`.

    Examples
    --------
    >>> semantic_clusters([["Paris", "paris.", "Rome"]], same=lambda a, b: a.lower().strip(".") == b.lower().strip("."))
    [[0, 0, 1]]
    """
    if not callable(same):
        raise InputError(f"`same` is {a_type(same)}. Pass a function of two answers that gives True or False.")
    return [_clustered(question, same) for question in _checked("answers", answers)]


def _clustered(answers: Sequence[Any], same: Callable[[Any, Any], bool]) -> list[int]:
    firsts: list[Any] = []
    found = []
    for answer in answers:
        place = next(
            (k for k, first in enumerate(firsts) if first == answer or (same(first, answer) and same(answer, first))),
            len(firsts),
        )
        if place == len(firsts):
            firsts.append(answer)
        found.append(place)
    return found


def _checked(name: str, samples: Iterable[Sequence[Any]]) -> list[list[Any]]:
    rows = list(samples)
    for row, answers in enumerate(rows):
        if isinstance(answers, str) or not hasattr(answers, "__len__"):
            raise InputError(f"`{name}` has {answers!r} for question {row}. Pass a list of answers for each question.")
        if len(answers) < 2:
            raise InputError(f"`{name}` has {len(answers)} for question {row}. Agreement needs at least 2.")
    return [list(row) for row in rows]
