"""Formulas of one number, or of one for each of many groups: the same lines do both.

A Python number takes one branch of a choice, and only that one is computed. An array has a lane for each group: both
branches are computed where some lane takes each, and what a branch makes of the other's lanes is never seen.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Number = Any  # a Python number, or an array with a lane for each group


def has_lanes(x: Number) -> bool:
    return isinstance(x, np.ndarray)


def choose(test: Number, yes: Callable[[], T], no: Callable[[], T]) -> T:
    """What `yes` gives where the test holds, else what `no` gives."""
    if not isinstance(test, np.ndarray):
        return yes() if test else no()
    if test.all():
        return _in_lanes(yes(), test.shape)
    return merged(test, yes(), no()) if test.any() else _in_lanes(no(), test.shape)


def merged(test: Any, first: Any, second: Any) -> Any:
    """Lane by lane: numbers, tuples of them, or records that know how."""
    if hasattr(first, "merged"):
        return first.merged(test, second)
    if isinstance(first, tuple):
        return type(first)(*(merged(test, a, b) for a, b in zip(first, second, strict=True)))
    return np.where(test, first, second)


def _in_lanes(x: Any, shape: tuple[int, ...]) -> Any:
    """A number that is the same for all has a lane for each, too."""
    if isinstance(x, tuple):
        return type(x)(*(_in_lanes(part, shape) for part in x))
    return np.full(shape, x) if isinstance(x, int | float) else x


def sqrt(x: Number) -> Number:
    return np.sqrt(x) if isinstance(x, np.ndarray) else math.sqrt(x)


def log(x: Number) -> Number:
    return np.log(x) if isinstance(x, np.ndarray) else math.log(x)


def exp(x: Number) -> Number:
    return np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def isnan(x: Number) -> Number:
    return np.isnan(x) if isinstance(x, np.ndarray) else math.isnan(x)


def larger(x: Number, y: Number) -> Number:
    return np.maximum(x, y) if isinstance(x, np.ndarray) or isinstance(y, np.ndarray) else max(x, y)


def smaller(x: Number, y: Number) -> Number:
    return np.minimum(x, y) if isinstance(x, np.ndarray) or isinstance(y, np.ndarray) else min(x, y)


def nearest_whole(x: Number) -> Number:
    return np.rint(x) if isinstance(x, np.ndarray) else round(x)
