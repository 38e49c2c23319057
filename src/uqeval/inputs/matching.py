"""Rows of several models in the same order, by a key."""

from collections.abc import Mapping

from uqeval._errors import InputError
from uqeval.inputs.predictions import Predictions


def in_same_order(models: Mapping[str, Predictions], key: str) -> dict[str, Predictions]:
    """The rows of all models in the order of the first; `key` is what the user calls their ids."""
    (first, reference), *rest = models.items()
    joined = {first: reference}
    places = _places(first, reference, key)
    for path, pred in rest:
        other = _places(path, pred, key)
        missing, extra = places.keys() - other.keys(), other.keys() - places.keys()
        if missing or extra:
            example = sorted(missing or extra)[0]
            raise InputError(
                f"--key {key}: {len(missing)} rows of {first} are not in {path}, and {len(extra)} the other way round "
                f"(first: {example}). Give every model the same rows."
            )
        joined[path] = pred.take([other[name] for name in places])
    return joined


def _places(path: str, pred: Predictions, key: str) -> dict[str, int]:
    if pred.ids is None:
        raise InputError(f"{path}: --key {key}: the file has no such column.")
    places = {str(name): k for k, name in enumerate(pred.ids)}
    if len(places) < pred.n:
        raise InputError(f"{path}: --key {key}: {pred.n - len(places)} rows repeat a key. Keys must be unique.")
    return places
