"""Scores by name: which exist, what each needs, and computing one from a set of predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uqeval._check import Float, check_vector, nearest
from uqeval._errors import InputError
from uqeval.scores import dirichlet, logits, members, probs

__all__ = ["available", "compute"]

_BY_NEED: dict[str, tuple[Callable[..., Float], ...]] = {
    "probs": (probs.entropy, probs.gap_to_certain, probs.margin, probs.bernoulli_variance),
    "logits": (logits.free_energy, logits.max_logit),
    "members": (
        members.total_entropy,
        members.aleatoric_entropy,
        members.mutual_information,
        members.predicted_class_variance,
        members.vote_ratio,
        members.vote_entropy,
    ),
    "member_logits": (members.expected_free_energy,),
    "alpha": (
        dirichlet.dirichlet_entropy,
        dirichlet.dirichlet_mutual_information,
        dirichlet.dirichlet_differential_entropy,
        dirichlet.vacuity,
    ),
}
_SCORES = {function.__name__: (function, need) for need, group in _BY_NEED.items() for function in group}
_SHAPES = {
    "probs": "(n, K) probabilities",
    "logits": "(n, K) pre-softmax outputs",
    "members": "(m, n, K) probabilities of m ensemble members or stochastic passes",
    "member_logits": "(m, n, K) pre-softmax outputs of m ensemble members or stochastic passes",
    "alpha": "(n, K) Dirichlet parameters",
}


def available(predictions: Any = None) -> dict[str, tuple[str, ...]]:
    """Names of the scores and what each needs.

    Parameters
    ----------
    predictions : object, optional
        Anything with (some of) the attributes probs, logits, members, member_logits, alpha, scores.
        If given, only the scores that it allows are listed, its own `scores` first.

    Returns
    -------
    dict
        Name → names of the inputs needed; ("scores",) for a score that the predictions bring along.

    Examples
    --------
    >>> available()["mutual_information"]
    ('members',)
    >>> from types import SimpleNamespace
    >>> list(available(SimpleNamespace(logits=[[0.0, 1.0]], scores={"mine": [0.3]})))
    ['mine', 'free_energy', 'max_logit']
    """
    if predictions is None:
        return {name: (need,) for name, (_, need) in _SCORES.items()}
    own = _own_scores(predictions)
    found: dict[str, tuple[str, ...]] = dict.fromkeys(own, ("scores",))
    for name, (_, need) in _SCORES.items():
        if name not in own and getattr(predictions, need, None) is not None:
            found[name] = (need,)
    return found


def compute(name: str, predictions: Any) -> Float:
    """The score of that name for each row; the predictions' own score of that name comes first.

    Parameters
    ----------
    name : str
        One of `available(predictions)`.
    predictions : object
        Anything with (some of) the attributes probs, logits, members, member_logits, alpha, scores.

    Returns
    -------
    ndarray of shape (n,)
        Uncertainty; higher means less sure.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> compute("margin", SimpleNamespace(probs=[[1.0, 0.0], [0.25, 0.75]]))
    array([-1. , -0.5])
    """
    own = _own_scores(predictions)
    if name in own:
        return check_vector(f'scores["{name}"]', own[name], finite=False)
    if name not in _SCORES:
        names = [*own, *(known for known in _SCORES if known not in own)]
        raise InputError(f'There is no score "{name}".{nearest(name, names)} Scores: {", ".join(names)}.')
    function, need = _SCORES[name]
    value = getattr(predictions, need, None)
    if value is None:
        rest = ", ".join(available(predictions)) or "none"
        raise InputError(
            f'The score "{name}" needs `{need}`, which is missing. Pass {need}= ({_SHAPES[need]}). '
            f"Scores that need nothing more: {rest}."
        )
    return function(value)


def _own_scores(predictions: Any) -> Mapping[str, Any]:
    return getattr(predictions, "scores", None) or {}
