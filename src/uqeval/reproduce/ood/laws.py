"""Foreign inputs whose law is known, so that the probability of being foreign is exact.

All are mixtures of Gaussians as wide as the classes; they differ in where the means are.
"""

import math
from dataclasses import replace

import numpy as np

from uqeval._check import Float
from uqeval.datasets.synthetic import Synthetic

KINDS = {
    "rotated": "turned by 90°",
    "across": "moved along the frontier",
    "beyond": "far behind the classes",
    "around": "all around",
}
_RING = 16  # means all around
_STREAM = 77  # not that of the data


def all_foreign(data: Synthetic, where: dict[str, float], seed: int) -> dict[str, Synthetic]:
    """Foreign inputs of each kind, each from a random stream of its own."""
    streams = (np.random.default_rng([seed, _STREAM, k]) for k in range(len(KINDS)))
    return {kind: foreign(data, kind, where, rng) for kind, rng in zip(KINDS, streams, strict=True)}


def foreign(data: Synthetic, kind: str, where: dict[str, float], rng: np.random.Generator) -> Synthetic:
    """As many foreign inputs of a kind as there are test rows, with their law."""
    means = _means(data, kind, where)
    labels = rng.integers(len(means), size=len(data.test))
    x = means[labels] + rng.normal(scale=data.sigma, size=(len(labels), means.shape[1]))
    rows = np.arange(len(x))
    return replace(
        data, x=x, labels=labels, train=rows[:0], test=rows, means=means, prior=np.full(len(means), 1 / len(means))
    )


def foreign_log_odds(data: Synthetic, other: Synthetic, x: Float) -> Float:
    """log P(foreign | x) / P(known | x) where half of the inputs are foreign: the best order there is."""
    return _log_density(other, x) - _log_density(data, x)


def _log_density(law: Synthetic, x: Float) -> Float:
    """log p(x) up to a constant that all laws of one width share."""
    found: Float = np.logaddexp.reduce(law.log_joint(x), axis=1)
    return found


def _means(data: Synthetic, kind: str, where: dict[str, float]) -> Float:
    first, second = data.means
    centre, along = (first + second) / 2, (second - first) / data.d
    across = np.array([-along[1], along[0]])
    if kind == "rotated":
        return centre + np.array([[-1.0], [1.0]]) * across * data.d / 2
    if kind == "across":
        return data.means + where[kind] * data.sigma * across
    if kind == "beyond":
        return data.means + np.array([[-1.0], [1.0]]) * where[kind] * data.sigma * along
    angles = np.arange(_RING) * 2 * math.pi / _RING
    radius = data.d / 2 + where[kind] * data.sigma
    return centre + radius * np.column_stack([np.cos(angles), np.sin(angles)])
