"""What a fitted classifier in scikit-learn's style says on rows: classes, probabilities, members of its ensemble.

Told by methods and attributes alone: whatever behaves like scikit-learn will do, and scikit-learn is not needed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int, check_probs, to_array
from uqeval._errors import InputError
from uqeval.inputs.classes import Indices
from uqeval.inputs.columns import listed

# Probabilities may be float32, and a weighted sum is further off: then the members are not what was averaged.
_SAME = 1e-6


class Outputs(NamedTuple):
    """Probabilities (n, K) and members (m, n, K), if any were found or asked for."""

    probs: Float
    members: Float | None


def estimator_arguments(
    estimator: Any, x: Any, y: ArrayLike, classes: Sequence[Any] | None, members: bool
) -> dict[str, Any]:
    """Arguments of `Predictions`: classes and labels by value, probabilities, members where they are its mean."""
    known = known_classes(estimator)
    names = at_least_two(known if classes is None else _all_classes(known, classes))
    labels = class_codes("y", y, names, known)
    if len(labels) != (rows := _count(x)):
        raise InputError(f"`y` has {len(labels)} entries but `x` has {rows} rows. Pass one label per row.")
    probs, parts = outputs_of(estimator, x, names, members=members)
    arguments = {"labels": Indices(labels), "probs": probs, "classes": [str(name) for name in names]}
    # Not always the likeliest class: a tuned threshold, a support vector machine.
    predicted = class_codes("predict(x)", estimator.predict(x), names, known)
    if (predicted != probs.argmax(axis=1)).any():
        arguments["pred"] = Indices(predicted)
    return arguments if parts is None else arguments | {"members": parts}


def outputs_of(estimator: Any, x: Any, names: Sequence[Any], *, members: bool) -> Outputs:
    """What it says of these classes, in their order; those that it never met get probability 0."""
    known = known_classes(estimator)
    places = class_codes("classes_", known, names, known)
    found = _class_probs(estimator, x, known)
    parts = _member_probs(estimator, x, found) if members else None
    wide = None if parts is None else _placed(parts, places, len(names))
    return Outputs(check_probs(_placed(found, places, len(names))), wide)


def at_least_two(names: Sequence[Any]) -> list[Any]:
    """A row of probabilities has two classes or more: beside a single one stands what it is not."""
    return [*names, f"not {names[0]}"] if len(names) == 1 else list(names)


def known_classes(estimator: Any) -> list[Any]:
    """The classes that it was fitted on, in the order of its probabilities."""
    kind = type(estimator).__name__
    if not hasattr(estimator, "predict_proba"):
        raise InputError(
            f"{kind} has no predict_proba, which all scores are made of. Calibrate it (CalibratedClassifierCV), or ask "
            f'for probabilities (probability=True, voting="soft", loss="log_loss").'
        )
    if not hasattr(estimator, "classes_"):
        raise InputError(f"{kind} has no classes_. Fit it first; it must be a classifier.")
    if np.ndim(estimator.classes_) != 1 or isinstance(estimator.classes_[0], np.ndarray):
        raise InputError(f"{kind} was fitted on several labels per row. Pass a classifier of one label.")
    return np.asarray(estimator.classes_).tolist()


def _class_probs(estimator: Any, x: Any, known: Sequence[Any]) -> Float:
    """What predict_proba gives, one column per class."""
    probs = np.asarray(estimator.predict_proba(x), dtype=np.float64)
    if probs.ndim != 2 or probs.shape[1] != len(known):
        raise InputError(
            f"{type(estimator).__name__}.predict_proba gave shape {probs.shape} for {len(known)} classes "
            f"({listed(known)}). It must give (n, {len(known)})."
        )
    return probs


def _member_probs(estimator: Any, x: Any, probs: Float) -> Float | None:
    """(m, n, K) of the estimators whose plain mean the probabilities are; None where there are none."""
    if (inner := getattr(estimator, "best_estimator_", None)) is not None:  # of a search
        return _member_probs(inner, x, probs)
    if steps := getattr(estimator, "steps", None):  # of a pipeline
        return _member_probs(steps[-1][1], estimator[:-1].transform(x) if len(steps) > 1 else x, probs)
    found = []
    for member, rows in _members(estimator, x):
        if not hasattr(member, "predict_proba"):
            return None
        given = np.asarray(member.predict_proba(rows), dtype=np.float64)
        if given.ndim != 2 or len(given) != len(probs):
            return None
        if given.shape[1] != probs.shape[1]:
            # Forests and bagging number the classes for their members, some of which may have met only a few.
            codes = np.asarray(getattr(member, "classes_", ()))
            inside = codes.dtype.kind in "iuf" and len(codes) == given.shape[1] and (codes < probs.shape[1]).all()
            if not inside or (codes != codes.astype(np.int64)).any():
                return None
            given = _placed(given, codes.astype(np.int64), probs.shape[1])
        found.append(given)
    # Boosting, stacking or weighted votes have estimators too, but their mean is not what the classifier says.
    if len(found) < 2 or np.abs(np.mean(found, axis=0) - probs).max(initial=0.0) > _SAME:
        return None
    return np.stack(found)


def _members(estimator: Any, x: Any) -> Iterator[tuple[Any, Any]]:
    """Fitted estimators inside, each with the rows as it takes them."""
    if hasattr(estimator, "calibrated_classifiers_"):
        yield from ((member, x) for member in estimator.calibrated_classifiers_)
        return
    inside = getattr(estimator, "estimators_", ())
    if not isinstance(inside, list):
        return
    if hasattr(estimator, "estimator_"):  # copies of one estimator were fitted on arrays, whatever came
        x = x.to_numpy() if hasattr(x, "to_numpy") else x if hasattr(x, "shape") else np.asarray(x)
    features = getattr(estimator, "estimators_features_", None)
    for k, member in enumerate(inside):
        yield member, x if features is None else x[:, features[k]]


def _all_classes(known: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
    """The classes asked for; those of the estimator must be among them."""
    names = to_array("classes", classes).tolist()
    if absent := [name for name in known if name not in set(names)]:
        raise InputError(f"`classes` lacks {listed(absent)}, which the estimator was fitted on. Name all classes.")
    return names


def class_codes(name: str, values: Any, names: Sequence[Any], known: Sequence[Any]) -> Int:
    """The class index of each value."""
    array = to_array(name, values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"`{name}` has shape {array.shape}. Pass one label per row: shape (n,).")
    position = {value: k for k, value in enumerate(names)}
    codes = np.array([position.get(value, -1) for value in array.tolist()], dtype=np.int64)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise InputError(
            f"`{name}` holds {array.tolist()[row]!r} in row {row}; the estimator was fitted on {listed(known)}. If it "
            f"never met that class, pass all of them: classes=[...]."
        )
    return codes


def _placed(given: NDArray[Any], places: Int, width: int) -> Float:
    """Each class in its column, and 0 for those that are not there."""
    if width == len(places) and (places == np.arange(width)).all():
        return given
    found = np.zeros((*given.shape[:-1], width))
    found[..., places] = given
    return found


def _count(x: Any) -> int:
    """Rows of an array, a frame, a sparse matrix or a list."""
    return int(x.shape[0]) if hasattr(x, "shape") else len(x)
