"""The uncertainty score of a fitted classifier: by its name, or by a function of its probabilities or of itself."""

import inspect
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from uqeval._check import Float, check_vector, nearest
from uqeval._errors import InputError
from uqeval.inputs.estimator import Outputs
from uqeval.scores.registry import available, compute

Score = str | Callable[..., ArrayLike]


def check_score(score: Score) -> None:
    """Refuses what is no score of an estimator."""
    if callable(score):
        return
    known = {name: needs[0] for name, needs in available().items() if needs[0] in Outputs._fields}
    if not isinstance(score, str) or score not in known:
        raise InputError(
            f"`score` is {score!r}, which cannot be had from an estimator.{nearest(score, known)} Pass a function of "
            f"the probabilities or of (estimator, X), or one of {', '.join(known)}."
        )


def needs_members(score: Score) -> bool:
    """Whether the members of an ensemble must be looked for."""
    return isinstance(score, str) and available().get(score) == ("members",)


def needs_estimator(score: Score) -> bool:
    """Whether it is a function of (estimator, X), rather than of the probabilities."""
    if isinstance(score, str):
        return False
    try:
        parameters = inspect.signature(score).parameters.values()
    except ValueError:  # some that are written in C do not tell
        return False
    asked = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(asked) == 2


def uncertainty_of(score: Score, estimator: Any, x: Any, outputs: Any) -> Float:
    """The score of each row, from what the estimator says of the rows (`probs`, `members`)."""
    if isinstance(score, str):
        if needs_members(score) and outputs.members is None:
            raise InputError(
                f'The score "{score}" needs the members of an ensemble, and {type(estimator).__name__} has none whose '
                f"mean its probabilities are. Use a forest, bagging or soft voting, or a score of the probabilities."
            )
        return compute(score, outputs)
    found = score(estimator, x) if needs_estimator(score) else score(outputs.probs)
    values = check_vector("score", found, finite=False)
    if len(values) != len(outputs.probs):
        raise InputError(f"`score` gave {len(values)} values for {len(outputs.probs)} rows. It must give one per row.")
    return values
