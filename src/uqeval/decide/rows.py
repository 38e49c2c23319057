"""Which rows a threshold is chosen on: the bad ones, the scores, the clusters, from arrays or from predictions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import scores as score_functions
from uqeval import truth
from uqeval._check import (
    Float,
    Int,
    Nan,
    check_choice,
    check_codes,
    check_largest,
    check_lengths,
    check_rows,
    check_vector,
    omits,
)
from uqeval._errors import InputError, collected, notify, share_hint
from uqeval.decide.bounds import FEW_CLUSTERS
from uqeval.decide.calibration import Calibration
from uqeval.inputs import Predictions

RISKS = ("error", "loss", "misaligned")
CLUSTER_METHODS = ("t", "subsample", "exact")


@contextmanager
def warned() -> Iterator[list[str]]:
    """The notes of the block, each once; at its end warnings for whoever called the function that holds the block."""
    with collected() as notes:
        yield notes
    notes[:] = dict.fromkeys(notes)
    for note in notes:
        notify(note, stacklevel=4)


def check_targets(max_risk: Any) -> list[float]:
    """One or several risks, strictly between 0 and 1."""
    if max_risk is None:
        raise InputError("`max_risk` is missing. Say which risk you accept, as max_risk=0.05.")
    if isinstance(max_risk, np.ndarray):
        max_risk = max_risk.tolist()
    values = [max_risk] if np.ndim(max_risk) == 0 else list(max_risk)
    if not values:
        raise InputError("`max_risk` is empty. Pass one target or more, as [0.01, 0.05].")
    for value in values:
        if isinstance(value, bool | str) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
            hint = share_hint(value)
            raise InputError(f"`max_risk` must lie strictly between 0 and 1, as 0.05; it is {value!r}.{hint}")
    return [float(value) for value in values]


def check_target(max_risk: Any, advice: str = "Pass one number.") -> float:
    """A single risk."""
    if np.ndim(max_risk) != 0:
        raise InputError(f"`max_risk` is {max_risk!r}. {advice}")
    return check_targets(max_risk)[0]


def check_candidates(thresholds: ArrayLike | None) -> Float | None:
    """Thresholds fixed beforehand, ascending, each once; None where none were."""
    if thresholds is None:
        return None
    candidates = np.unique(check_vector("thresholds", thresholds, finite=False) + 0.0)
    if len(candidates) == 0:
        raise InputError("`thresholds` is empty. Pass at least one value, or leave it out.")
    return candidates


@dataclass(frozen=True)
class Target:
    """What is counted as bad, row by row, and which rows belong together."""

    rows: Any
    clusters: Any
    kept: NDArray[np.bool_] | None  # rows of the predictions that are used
    what: str
    kind: Literal["error", "loss01"]
    weights: Any = None


def find_target(
    error: Any, predictions: Predictions | None, risk: str, clusters: Any, tie: str, weights: Any = None
) -> Target:
    """The bad rows, from arrays or from predictions."""
    check_choice("risk", risk, RISKS)
    check_choice("tie", tie, ("drop", "error"))
    if predictions is None:
        if error is None:
            raise InputError("`error` is missing. Pass 0/1 errors (or losses in [0, 1]), or predictions=.")
        return Target(error, clusters, None, risk, "loss01", weights)
    if error is not None:
        raise InputError("Pass `error` or `predictions`, not both.")
    codes = predictions.clusters if clusters is None else clusters
    weights = predictions.weights if weights is None else weights
    if risk == "error":
        if (wrong := truth.error_of(predictions)) is None:
            raise InputError('The predictions have no labels or errors. Pass risk="loss" for their loss.')
        return Target(wrong, codes, None, "error", "error", weights)
    if risk == "loss":
        if predictions.loss is None:
            raise InputError('The predictions have no `loss`. Pass one in [0, 1], or risk="error".')
        return Target(predictions.loss, codes, None, "loss", "loss01", weights)
    if (aligned := truth.misaligned_of(predictions)) is None:
        raise InputError("The predictions have no `soft_labels` (or nothing to predict from). Pass them.")
    apart, tied = aligned
    notify(
        "The promise is for the label that most annotators chose. With few annotators that is not always the most "
        "probable one (with 3, about one in ten is another)."
    )
    if not tied.any():
        return Target(apart, codes, None, "misaligned", "error", weights)
    fate = "count as misaligned" if tie == "error" else "are left out"
    notify(f"{int(tied.sum())} rows have a tied majority and {fate}.")
    if tie == "error":
        return Target(apart | tied, codes, None, "misaligned", "error", weights)
    kept = ~tied
    codes = None if codes is None else check_codes("clusters", codes)[0]
    weights = None if weights is None else check_vector("weights", weights)
    check_lengths(soft_labels=tied, clusters=codes, weights=weights)
    codes, weights = (None if part is None else part[kept] for part in (codes, weights))
    return Target(apart[kept], codes, kept, "misaligned", "error", weights)


def refuse_weights(target: Target) -> None:
    """Where only a threshold is known to hold for weighted rows."""
    if target.weights is not None:
        raise InputError(
            "`weights` cannot be used here: no band for weighted rows is known to hold. Leave them out (the answer is "
            "then for inputs as these rows are drawn); choose_threshold takes them."
        )


def find_scores(score: Any, predictions: Predictions | None) -> dict[str | None, Any]:
    """Scores by name; None is the name of a plain array."""
    if isinstance(score, Mapping):
        if not score:
            raise InputError("`score` is an empty dict. Pass at least one score.")
        return {str(name): values for name, values in score.items()}
    names = [score] if isinstance(score, str) else score
    named = isinstance(names, list | tuple) and len(names) > 0 and all(isinstance(name, str) for name in names)
    if named and predictions is not None:
        return {name: score_functions.compute(name, predictions) for name in names}
    if isinstance(score, str):
        raise InputError(f"`score` is the name {score!r}. Pass predictions= too, or the scores as an array.")
    return {None: score}


def only_score(name: str, score: Any, predictions: Predictions | None, advice: str = "Pass one.") -> tuple[Any, Any]:
    """The name and the values of a single score."""
    scores = find_scores(score, predictions)
    if len(scores) != 1:
        raise InputError(f"`{name}` holds {len(scores)} scores. {advice}")
    return next(iter(scores.items()))


def own_score(score: Any, predictions: Predictions | None, own: str | None) -> Any:
    """The values of the score, which must be the threshold's `own` where both have a name."""
    name, values = only_score("score", score, predictions)
    if None not in (name, own) and name != own:
        raise InputError(
            f'The threshold is for the score "{own}", not for "{name}": another score has another scale. '
            f'Pass "{own}", or choose a threshold for "{name}".'
        )
    return values


def new_rows(
    score: Any, error: Any, predictions: Predictions | None, clusters: Any, own: str | None, what: str
) -> tuple[Any, Any, Any]:
    """Score, what may be bad, and clusters of rows that a threshold is checked on."""
    values = own_score(score, predictions, own)
    target = find_target(error, predictions, what, clusters, "drop")
    if target.weights is not None:
        raise InputError(f"The predictions have `weights`. {UNWEIGHTED}")
    return values if target.kept is None else values[target.kept], target.rows, target.clusters


def clean_rows(
    scores: Mapping[str | None, Any], target: Target, nan: Nan, bound: str = "betting", groups: Int | None = None
) -> dict[str | None, Calibration]:
    """The rows to calibrate on, the same for every score."""
    omit, name, rows = omits(nan), "loss" if target.what == "loss" else "error", target.rows
    given = {
        "score" if key is None else f"score {key}": check_vector("score", values, finite=False, missing=omit)
        for key, values in scores.items()
    }
    if target.kept is not None:
        check_lengths(**given, soft_labels=target.kept)
        given = {label: values[target.kept] for label, values in given.items()}
    if omit:  # a row that one score lacks goes for all of them
        rows = check_vector(name, rows, missing=True)
        check_lengths(**given, **{name: rows})
        rows = np.where(np.isnan(list(given.values())).any(axis=0), np.nan, rows)
    groups = _kept_groups(groups, target, rows if omit else None, len(next(iter(given.values()))))
    cleaned: dict[str | None, Calibration] = {}
    for key, values in zip(scores, given.values(), strict=True):
        s, e, w, g = check_rows(
            values, rows, target.weights, kind=target.kind, name=name, clusters=target.clusters, nan=nan
        )
        reject_lowest(s)
        e = e if e.dtype == np.uint8 else e + 0.0  # −0.0 is 0.0
        what, exponent = (
            target.what if e.dtype == np.uint8 else "loss",
            _exponent(target.weights, rows if omit else None, w),
        )
        cleaned[key] = Calibration(s, e, g, bound, what, weights=w, exponent=exponent, groups=groups)
    return cleaned


def _kept_groups(groups: Int | None, target: Target, rows: Float | None, n: int) -> Int | None:
    """Of the rows that `check_rows` keeps: `rows` are NaN where one is left out; nor do rows of weight 0 count."""
    if groups is None:
        return None
    if target.kept is not None:
        check_lengths(groups=groups, soft_labels=target.kept)
        groups = groups[target.kept]
    if len(groups) != n:
        check_lengths(groups=groups, score=np.empty(n))
    keep = np.ones(n, dtype=np.bool_) if rows is None else ~np.isnan(rows)
    if target.weights is not None:
        weights = check_vector("weights", target.weights, missing=True)
        keep &= ~np.isnan(weights) & (weights != 0)
    return groups[keep]


def _exponent(given: Any, rows: Float | None, clean: Float | None) -> int:
    """By which power of two the checks have divided very large or very small weights; `rows` are NaN where omitted."""
    if clean is None:
        return 0
    weights = check_vector("weights", given, missing=True)
    top = np.nanmax(weights if rows is None else weights[~np.isnan(rows)])
    return int(np.frexp(top)[1]) - int(np.frexp(clean.max())[1])


def reject_lowest(score: Float) -> None:
    """A score of −inf would be below the threshold that accepts nothing."""
    if score.min() == -np.inf:
        row = int(score.argmin())
        raise InputError(f"`score` is −inf at row {row}. Replace it by a number below all others.")


def note_few_clusters(cal: Calibration) -> None:
    """Warns where there are too few independent units."""
    if cal.cluster_rows is not None and len(cal.cluster_rows) < FEW_CLUSTERS:
        notify(f"few clusters ({len(cal.cluster_rows)}): intervals and bands are unreliable")


UNWEIGHTED = (
    "The threshold was chosen with weights, but a check counts every row once. Pass rows drawn as inputs come, not the "
    "weighted sample: there a false alarm is likely."
)


def bounded_rows(given: Any, sizes: Float | None) -> float | None:
    """The most rows that a cluster can have: as declared, or as seen; None where there are no clusters."""
    seen = None if sizes is None else int(sizes.max())
    declared = check_largest(given, seen)
    most = seen if declared is None else declared
    return None if most is None else float(most)


def bounded_weight(given: Any, sizes: Float | None) -> float | None:
    """The most that a row (or a cluster) can weigh: as declared, or as seen; None where there are no weights."""
    if sizes is None:
        if given is not None:
            raise InputError("`largest_weight` needs `weights` that differ. Pass them, or leave it out.")
        return None
    seen = float(sizes.max())
    if given is None:
        return seen
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not seen <= given < np.inf:
        raise InputError(f"`largest_weight` must be a number ≥ {seen:g}, the largest here; it is {given!r}.")
    return float(given)
