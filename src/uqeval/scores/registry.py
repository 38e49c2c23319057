"""Scores by name: which exist, what each needs, and computing one from a set of predictions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from uqeval._check import Float, check_vector, nearest
from uqeval._errors import InputError
from uqeval.inputs import Predictions
from uqeval.scores import dirichlet, logits, members, probs
from uqeval.scores._rows import by_rows, by_sorted, entropy_of, gap_of, margin_of, variance_of

# What each needs, and what computes it from a checked array, block by block; from probabilities: sorted classes.
_KERNELS: dict[str, dict[Callable[..., Float], Callable[[Float], Float]]] = {
    "probs": {
        probs.entropy: entropy_of,
        probs.gap_to_certain: gap_of,
        probs.margin: margin_of,
        probs.bernoulli_variance: variance_of,
    },
    "logits": {logits.free_energy: logits.free_energy_rows, logits.max_logit: logits.max_logit_rows},
    "members": {
        members.total_entropy: members.total_entropy_rows,
        members.aleatoric_entropy: members.aleatoric_entropy_rows,
        members.mutual_information: members.mutual_information_rows,
        members.predicted_class_variance: members.predicted_class_variance_rows,
        members.vote_ratio: members.vote_ratio_rows,
        members.vote_entropy: members.vote_entropy_rows,
    },
    "member_logits": {members.expected_free_energy: members.expected_energy_rows},
    "alpha": {
        dirichlet.dirichlet_entropy: dirichlet.mean_entropy_rows,
        dirichlet.dirichlet_mutual_information: dirichlet.information_rows,
        dirichlet.dirichlet_differential_entropy: dirichlet.differential_rows,
        dirichlet.vacuity: dirichlet.vacuity_rows,
    },
}
_SCORES = {
    function.__name__: (function, kernel, need)
    for need, group in _KERNELS.items()
    for function, kernel in group.items()
}
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
        return {name: (need,) for name, (_, _, need) in _SCORES.items()}
    own = _own_scores(predictions)
    found: dict[str, tuple[str, ...]] = dict.fromkeys(own, ("scores",))
    for name, (_, _, need) in _SCORES.items():
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
    own, checked = _own_scores(predictions), isinstance(predictions, Predictions)
    if name in own:
        values: Float = own[name]
        return values if checked else check_vector(f'scores["{name}"]', values, finite=False)
    if name not in _SCORES:
        names = [*own, *(known for known in _SCORES if known not in own)]
        raise InputError(f'There is no score "{name}".{nearest(name, names)} Scores: {", ".join(names)}.')
    function, kernel, need = _SCORES[name]
    value = getattr(predictions, need, None)
    if value is None:
        rest = ", ".join(available(predictions)) or "none"
        raise InputError(
            f'The score "{name}" needs `{need}`, which is missing. Pass {need}= ({_SHAPES[need]}). '
            f"Scores that need nothing more: {rest}."
        )
    if not checked:
        return function(value)
    return by_sorted([kernel], value)[0] if need == "probs" else by_rows(kernel, value)


def compute_all(names: Iterable[str], predictions: Predictions) -> dict[str, Float]:
    """Several scores; those of the probabilities in one pass, with the classes of a row sorted once."""
    own, names = _own_scores(predictions), list(names)
    together = [name for name in names if name not in own and name in _SCORES and _SCORES[name][2] == "probs"]
    found: dict[str, Float] = {}
    if together and predictions.probs is not None:
        columns = by_sorted([_SCORES[name][1] for name in together], predictions.probs)
        found = dict(zip(together, columns, strict=True))
    return {name: found[name] if name in found else compute(name, predictions) for name in names}


def one_ranking(names: Iterable[str], predictions: Predictions) -> list[str]:
    """Those of the names that are one ranking by definition: of two probabilities, one gives the other.

    In numbers a last bit may tell two rows apart in one of them and not in another.
    """
    classes = 0 if predictions.probs is None else predictions.probs.shape[1]
    return one_of_two_classes((name for name in names if name not in predictions.scores), classes)


def one_of_two_classes(names: Iterable[str], classes: int) -> list[str]:
    """The same of scores that are computed, by the number of classes."""
    return [name for name in names if classes == 2 and name in _SCORES and _SCORES[name][2] == "probs"]


def _own_scores(predictions: Any) -> Mapping[str, Any]:
    return getattr(predictions, "scores", None) or {}
