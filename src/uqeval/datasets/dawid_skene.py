"""What is true when raters disagree: the estimate of Dawid & Skene (1979), by expectation maximisation.

NumPy only, on votes in long form; nothing of size raters × questions is ever made.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int
from uqeval._errors import InputError, notify

_TINY = 1e-300  # a probability of 0 in a logarithm


@dataclass(frozen=True)
class DawidSkene:
    """What `dawid_skene` found.

    `objective` has a value for each iteration and never falls: the log-likelihood, plus smoothing times the sum of
    the log confusions. `log_likelihood` is that of the result, without the second part.
    """

    posterior: Float  # (questions, K)
    confusion: Float  # (raters, K, answers)
    prior: Float  # (K,), or (groups, K)
    log_likelihood: float
    iterations: int
    converged: bool
    objective: Float = field(repr=False)

    def __repr__(self) -> str:
        (questions, classes), (raters, _, answers) = self.posterior.shape, self.confusion.shape
        state = "converged" if self.converged else "stopped"
        return (
            f"DawidSkene({questions} questions, {raters} raters, {answers} answers, {classes} classes: {state} after "
            f"{self.iterations} iterations, log-likelihood {self.log_likelihood:.1f})"
        )


def dawid_skene(
    votes: ArrayLike,
    *,
    raters: int | None = None,
    questions: int | None = None,
    answers: int | None = None,
    meaning: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    smoothing: float = 0.01,
    max_iter: int = 500,
    tol: float = 1e-6,
) -> DawidSkene:
    r"""Probability of each class for each question, and how often each rater gives which answer.

    The model of Dawid & Skene (1979): a question has a true class, with probabilities that are the same for all
    questions (of a group); given the class, a rater answers by the rater's own confusion matrix, independently of
    the others. Expectation maximisation from the shares of votes:

    .. math:: p_{qk} \propto \pi_k \prod_{r, a} C_{rka}^{n_{rqa}},\quad
       C_{rka} \propto \lambda + \sum_q p_{qk} n_{rqa},\quad \pi_k \propto \sum_q p_{qk}

    Parameters
    ----------
    votes : array-like of shape (votes, 3) or (raters, questions, answers)
        Rows of (rater, question, answer), each counted from 0; a row may come more than once. Or a table of counts
        (one-hot, when nobody votes twice).
    raters, questions, answers : int, optional
        How many there are, where the long form does not show it (those without a vote).
    meaning : array-like of shape (answers, K), optional
        What an answer says about the class at the start. By default an answer is a class. For no/maybe/yes and two
        classes: ``[[1, 0], [0.5, 0.5], [0, 1]]``. It also names the classes: EM would fit as well with the classes
        exchanged, and stays near its start unless most raters are worse than chance.
    groups : array-like of shape (questions,), optional
        A number from 0 for each question: every group gets its own prior, the raters stay the same.
    smoothing : float
        λ: votes added to each cell of each confusion matrix, so that a rater with few answers is never certain.
        0 gives maximum likelihood.
    max_iter, tol : int, float
        Stops when no probability moves by more than `tol`.

    Returns
    -------
    DawidSkene
        A question without a vote gets the prior. With a tie the start is undecided and the raters' quality decides.

    Examples
    --------
    Three raters agree on most questions; the fourth says the opposite, and is found out:

    >>> answers = [[0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0]]
    >>> votes = [(r, q, a) for r, row in enumerate(answers) for q, a in enumerate(row)]
    >>> found = dawid_skene(votes)
    >>> found.posterior[:, 1].round(2).tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    >>> found.confusion[3].round(2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    cast = _cast(votes, {"raters": raters, "questions": questions, "answers": answers})
    start, group = _meaning(meaning, cast.answers), _groups(groups, cast.questions)
    if not smoothing >= 0:
        raise InputError(f"`smoothing` must be 0 or more; it is {smoothing!r}.")
    if not (max_iter >= 1 and tol > 0):
        raise InputError(f"`max_iter` must be at least 1 and `tol` positive; they are {max_iter!r} and {tol!r}.")
    found = _em(cast, start, group, float(smoothing), int(max_iter), float(tol))
    if groups is None:
        found = replace(found, prior=found.prior[0])
    if not found.converged:
        notify(f"Dawid-Skene did not converge in {max_iter} iterations; raise `max_iter` or `tol`.", stacklevel=3)
    return found


class _Votes(NamedTuple):
    """Rater, question and answer of each vote, how often it was given (None: once), and how many there are of each."""

    rater: Int
    question: Int
    answer: Int
    times: Float | None
    raters: int
    questions: int
    answers: int


def _em(cast: _Votes, start: Float, group: Int, smoothing: float, max_iter: int, tol: float) -> DawidSkene:
    rater, question, answer, times, n_raters, n, n_answers = cast
    n_classes, n_groups = start.shape[1], int(group.max()) + 1
    cell = rater * n_answers + answer

    # The start: the share of votes, read by `meaning`.
    p = np.stack([_sum(question, start[answer, k], times, n) for k in range(n_classes)], axis=1)
    total = p.sum(axis=1)
    voted = total > 0
    p[voted] /= total[voted, None]
    p[~voted] = 1 / n_classes
    objective: list[float] = []
    for _ in range(max_iter):
        # M-step. Questions without a vote tell nothing about the prior.
        shares = np.stack([_sum(group[voted], p[voted, k], None, n_groups) for k in range(n_classes)], axis=1)
        prior = _normalised(shares, shares.sum(axis=0))
        counts = [_sum(cell, p[question, k], times, n_raters * n_answers) for k in range(n_classes)]
        confusion = np.stack(counts, axis=1).reshape(n_raters, n_answers, n_classes).transpose(0, 2, 1) + smoothing
        confusion = _normalised(confusion, np.ones(n_answers))
        # E-step.
        log_confusion = np.log(np.maximum(confusion, _TINY))
        joint = np.log(np.maximum(prior, _TINY))[group]
        for k in range(n_classes):
            joint[:, k] += _sum(question, log_confusion[rater, k, answer], times, n)
        top = joint.max(axis=1)
        new = np.exp(joint - top[:, None])
        mass = new.sum(axis=1)
        new /= mass[:, None]
        likelihood = float((top + np.log(mass))[voted].sum())
        objective.append(likelihood + (smoothing * float(log_confusion.sum()) if smoothing else 0.0))
        moved = float(np.abs(new - p)[voted].max(initial=0.0))
        p = new
        if moved <= tol:
            break
    return DawidSkene(p, confusion, prior, likelihood, len(objective), moved <= tol, np.array(objective))


def _sum(index: Int, values: Float, times: Float | None, size: int) -> Float:
    return np.bincount(index, values if times is None else values * times, minlength=size).astype(np.float64)


def _normalised(weights: Float, otherwise: Float) -> Float:
    """Sums to 1 along the last axis; where there is no weight at all, the shares of `otherwise`."""
    total = weights.sum(axis=-1, keepdims=True)
    shares = np.broadcast_to(otherwise / otherwise.sum(), weights.shape)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), shares)


def _cast(votes: ArrayLike, numbers: dict[str, int | None]) -> _Votes:
    """The votes in long form; `numbers` says how many there are of each, where that is known."""
    table = np.asarray(votes)
    if table.size == 0 or not (table.ndim == 3 or (table.ndim == 2 and table.shape[1] == 3)):
        raise InputError(
            "`votes` must have the shape (votes, 3), rows of (rater, question, answer), or (raters, questions, "
            f"answers); it is {table.shape}."
        )
    if table.dtype.kind not in "iufb":
        raise InputError(f"`votes` must be numbers; its dtype is {table.dtype}.")
    times: Float | None = None
    if table.ndim == 3:
        rows, counts = long_form(table)
        if not len(counts):
            raise InputError("`votes` has no vote: all counts are 0.")
        if not (np.isfinite(counts).all() and (counts > 0).all()):
            raise InputError("`votes` as a table must hold counts: finite, 0 or more.")
        times = None if (counts == 1).all() else counts
        least = table.shape
    else:
        if not (table >= 0).all() or (table.dtype.kind == "f" and (table != np.floor(table)).any()):
            raise InputError("`votes` must hold whole numbers from 0: rater, question, answer.")
        rows = table.astype(np.int64)
        least = tuple(int(k) + 1 for k in rows.max(axis=0))
    sizes = []
    for (name, given), seen in zip(numbers.items(), least, strict=True):
        if given is not None and (given < seen or (table.ndim == 3 and given != seen)):
            raise InputError(f"`{name}` is {given!r}, but `votes` has {seen}. Pass that, or leave it out.")
        sizes.append(int(seen if given is None else given))
    rater, question, answer = np.ascontiguousarray(rows.T)
    return _Votes(rater, question, answer, times, *sizes)


def long_form(table: Iterable[NDArray[Any]]) -> tuple[Int, Float]:
    """Rows of (rater, question, answer) for the cells with votes, and their counts.

    Rater by rater: a large table may be memory-mapped, or be read part by part.
    """
    rows, counts = [], []
    for r, part in enumerate(table):
        q, a = np.nonzero(part)
        rows.append(np.stack([np.full(len(q), r), q, a], axis=1))
        counts.append(np.asarray(part[q, a], dtype=np.float64))
    return np.concatenate(rows).astype(np.int64, copy=False), np.concatenate(counts)


def _meaning(meaning: ArrayLike | None, answers: int) -> Float:
    if meaning is None:
        return np.eye(answers)
    start = np.asarray(meaning, dtype=np.float64)
    if start.ndim != 2 or len(start) != answers or start.shape[1] < 2:
        raise InputError(f"`meaning` must have a row for each of the {answers} answers; its shape is {start.shape}.")
    if not ((start >= 0).all() and np.allclose(start.sum(axis=1), 1)):
        raise InputError("`meaning` must hold probabilities: each row sums to 1.")
    return start


def _groups(groups: ArrayLike | None, questions: int) -> Int:
    if groups is None:
        return np.zeros(questions, dtype=np.int64)
    group = np.asarray(groups)
    if group.shape != (questions,) or group.dtype.kind not in "iub" or group.min() < 0:
        raise InputError(
            f"`groups` must be a whole number from 0 for each of the {questions} questions; it has shape "
            f"{group.shape} and dtype {group.dtype}."
        )
    return group.astype(np.int64)
