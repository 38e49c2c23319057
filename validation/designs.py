"""How rows come to a sample: one by one, with unequal weights, in clusters, or both.

The estimand is always the value of the law itself, row by row. Weights: a row enters with a chance that depends on its
score and has one over that chance as its weight, or it has a weight that is independent of it; either way the weighted
population is the law. Clusters are drawn independently, and the population is the law of a random row of all rows, a
ratio of expectations over clusters: right and wrong patients may differ in size (E[Σ errors]/E[size] is the error
rate), while the latent normals of score and loss are independent of the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from validation.laws import Float, Population

ICC = 0.3  # of the latent normals of error, score and loss inside a cluster


class Rows(NamedTuple):
    """A sample, with the latent normal of its scores, so that others can be drawn beside them."""

    score: Float
    wrong: NDArray[np.bool_]
    loss: Float
    confidence: Float
    z: Float
    weights: Float | None = None
    clusters: NDArray[np.int64] | None = None

    @property
    def error(self) -> NDArray[np.uint8]:
        return self.wrong.view(np.uint8)


Draw = Callable[[Population, int, np.random.Generator], Rows]


@dataclass(frozen=True)
class Design:
    """How n rows (about n, in clusters) are drawn from a population."""

    name: str
    kind: str  # "plain", "weights", "clusters" or "both"; "extreme": clusters that only guarantees must stand
    words: str
    draw: Draw
    largest: int | None = None  # rows of a cluster, never more
    # The error rate of one random row of each cluster, where it is not that of all rows.
    rate_by_cluster: Callable[[float], float] = lambda rate: rate
    alike: bool = True  # clusters that a sample does not hold are like those that it holds


def _plain(population: Population, n: int, rng: np.random.Generator) -> Rows:
    wrong = rng.random(n) >= population.accuracy
    z, e = rng.standard_normal((2, n))
    return Rows(*_order(population.rows(wrong, z, e, rng), wrong), z)


def _order(
    values: tuple[Float, Float, Float], wrong: NDArray[np.bool_]
) -> tuple[Float, NDArray[np.bool_], Float, Float]:
    score, loss, confidence = values
    return score, wrong, loss, confidence


# ---- weights ----------------------------------------------------------------------------------------------------


def _kept(chance: Callable[[Float], Float], mean: float) -> Draw:
    """Rows that enter with a chance of their rank, and weigh one over it (times the smallest chance: from 1 up)."""

    def draw(population: Population, n: int, rng: np.random.Generator) -> Rows:
        parts: list[Rows] = []
        count = 0
        while count < n:
            rows = _plain(population, int((n - count) / mean * 1.1) + 20, rng)
            share = chance(population.rank(rows.score))
            keep = np.flatnonzero(rng.random(len(share)) < share)[: n - count]
            score, loss, confidence, z = (x[keep] for x in (rows.score, rows.loss, rows.confidence, rows.z))
            parts.append(Rows(score, rows.wrong[keep], loss, confidence, z, 1 / share[keep]))
            count += len(keep)
        if len(parts) == 1:
            return parts[0]
        columns = [np.concatenate(column) for column in zip(*(part[:6] for part in parts), strict=True)]
        return Rows(*columns)

    return draw


def _times(weigh: Callable[[int, np.random.Generator], Float], draw: Draw = _plain) -> Draw:
    """Weights that are independent of all else."""

    def weighed(population: Population, n: int, rng: np.random.Generator) -> Rows:
        rows = draw(population, n, rng)
        return rows._replace(weights=weigh(len(rows.z), rng))

    return weighed


def _lognormal(n: int, rng: np.random.Generator) -> Float:
    return rng.lognormal(0.0, 0.5, n)


def _pareto(n: int, rng: np.random.Generator) -> Float:
    """P(W > w) = w^(−1.2), capped at 20."""
    return np.minimum(rng.random(n) ** (-1 / 1.2), 20.0)


def _eightfold(n: int, rng: np.random.Generator) -> Float:
    return np.where(rng.random(n) < 0.1, 8.0, 1.0)


# ---- clusters ---------------------------------------------------------------------------------------------------


def _clustered(sizes: Callable[[int, np.random.Generator], NDArray[np.int64]], icc: float = ICC) -> Draw:
    """Sizes independent of the rest; error, score and loss each have a cluster effect of their own."""

    def draw(population: Population, n: int, rng: np.random.Generator) -> Rows:
        size = sizes(n, rng)
        g = np.repeat(np.arange(len(size)), size)
        noise = [_shared(g, len(size), icc, rng) for _ in range(3)]
        wrong = noise[0] > ndtri(population.accuracy)
        return Rows(*_order(population.rows(wrong, noise[1], noise[2], rng), wrong), noise[1], clusters=g)

    return draw


def _shared(g: NDArray[np.int64], count: int, icc: float, rng: np.random.Generator) -> Float:
    return math.sqrt(icc) * rng.standard_normal(count)[g] + math.sqrt(1 - icc) * rng.standard_normal(len(g))


def _poisson(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.minimum(1 + rng.poisson(5, max(2, round(n / 6))), POISSON_MOST)


def _lognormal_sizes(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Median 4, mean 6.6; a few of a hundred rows."""
    size = np.ceil(rng.lognormal(math.log(3.5), 1.0, max(2, round(n / 6.3))))
    return np.minimum(size, LOGNORMAL_MOST).astype(np.int64)


def _giant(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A fifth of all rows in one cluster."""
    return np.append(_poisson(round(0.8 * n), rng), max(1, n // 5))


def _geometric(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Most often one row."""
    return np.minimum(rng.geometric(1 / 5, max(2, round(n / 5))), GEOMETRIC_MOST)


def _two_large(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """An eighth of all rows in each of two clusters."""
    return np.append(_poisson(round(0.75 * n), rng), 2 * [max(1, n // 8)])


GEOMETRIC_MOST = 60
POISSON_MOST, LOGNORMAL_MOST, INFORMATIVE_MOST = 20, 150, 60
_TIMES = 5  # as many rows has a patient that is mostly wrong
_SICK = 0.9  # of its rows are wrong


def _mixture(rate: float) -> tuple[float, float, float]:
    """Share of sick patients, error rate of the others' rows, error rate of one random row of each patient.

    Sick patients hold half of all errors; r of the rows are theirs, r·0.9 = rate/2.
    """
    rows = rate / 2 / _SICK
    patients = rows / (_TIMES - (_TIMES - 1) * rows)
    other = rate / 2 / (1 - rows)
    return patients, other, patients * _SICK + (1 - patients) * other


def _informative(population: Population, n: int, rng: np.random.Generator) -> Rows:
    """Three rows of a patient on average; a mostly wrong one has five times as many."""
    patients, other, _ = _mixture(1 - population.accuracy)
    count = max(2, round(n / (3 * (1 + (_TIMES - 1) * patients))))
    sick = rng.random(count) < patients
    size = np.minimum(1 + rng.poisson(2, count), INFORMATIVE_MOST // _TIMES) * np.where(sick, _TIMES, 1)
    g = np.repeat(np.arange(count), size)
    wrong = rng.random(len(g)) < np.where(sick, _SICK, other)[g]
    z, e = (_shared(g, count, ICC, rng) for _ in range(2))
    return Rows(*_order(population.rows(wrong, z, e, rng), wrong), z, clusters=g)


_TWENTY = 20


def _all_wrong(population: Population, n: int, rng: np.random.Generator) -> Rows:
    """A patient is right, with one row, or wrong, with twenty: where few are wrong, it is likely that none is seen."""
    patients = _all_wrong_share(1 - population.accuracy)
    count = max(2, round(n / (1 + (_TWENTY - 1) * patients)))
    sick = rng.random(count) < patients
    g = np.repeat(np.arange(count), np.where(sick, _TWENTY, 1))
    z, e = (_shared(g, count, ICC, rng) for _ in range(2))
    wrong = sick[g]
    return Rows(*_order(population.rows(wrong, z, e, rng), wrong), z, clusters=g)


def _all_wrong_share(rate: float) -> float:
    return rate / (_TWENTY - (_TWENTY - 1) * rate)


DESIGNS = {
    design.name: design
    for design in (
        Design("plain", "plain", "independent rows of equal weight", _plain),
        # tuning
        Design(
            "oversampled",
            "weights",
            "the least certain 30% always enter and weigh 1, the others enter one in ten and weigh 10",
            _kept(lambda u: np.where(u > 0.7, 1.0, 0.1), 0.37),
        ),
        Design("lognormal weights", "weights", "independent weights, lognormal(0, ½)", _times(_lognormal)),
        Design(
            "poisson clusters",
            "clusters",
            f"1 + Poisson(5) rows, at most {POISSON_MOST}; effects in error, score and loss, ICC {ICC}",
            _clustered(_poisson),
            POISSON_MOST,
        ),
        Design(
            "informative sizes",
            "clusters",
            f"1 + Poisson(2) rows, {_TIMES} times as many of patients who are wrong in {_SICK:.0%} of their rows and "
            f"hold half of all errors; at most {INFORMATIVE_MOST}",
            _informative,
            INFORMATIVE_MOST,
            lambda rate: _mixture(rate)[2],
            alike=False,
        ),
        Design(
            "weighted clusters",
            "both",
            "poisson clusters with lognormal weights",
            _times(_lognormal, _clustered(_poisson)),
            POISSON_MOST,
        ),
        Design(
            "wrong patients of 20",
            "extreme",
            f"right patients have one row, wrong ones {_TWENTY}, all wrong",
            _all_wrong,
            _TWENTY,
            _all_wrong_share,
            alike=False,
        ),
        # confirming
        Design(
            "falling weights",
            "weights",
            "a row enters with chance 33^(U − 1), U its rank, and weighs 33^(1 − U)",
            _kept(lambda u: 33.0 ** (u - 1), 0.28),
        ),
        Design("pareto weights", "weights", "independent weights, P(W > w) = w^−1.2, capped at 20", _times(_pareto)),
        Design(
            "lognormal clusters",
            "clusters",
            f"lognormal sizes (median 4, at most {LOGNORMAL_MOST}) with random intercepts, ICC {ICC}",
            _clustered(_lognormal_sizes),
            LOGNORMAL_MOST,
        ),
        Design(
            "giant cluster", "clusters", "poisson clusters, and one that holds a fifth of all rows", _clustered(_giant)
        ),
        Design(
            "weighted uneven clusters",
            "both",
            "lognormal clusters with pareto weights",
            _times(_pareto, _clustered(_lognormal_sizes)),
            LOGNORMAL_MOST,
        ),
        # confirming, where the ones above were looked at
        Design(
            "geometric clusters",
            "clusters",
            f"geometric sizes (mean 5, at most {GEOMETRIC_MOST}), ICC {ICC}",
            _clustered(_geometric),
            GEOMETRIC_MOST,
        ),
        Design(
            "two large clusters",
            "clusters",
            "poisson clusters, and two that hold an eighth of all rows each",
            _clustered(_two_large),
        ),
        Design("two weights", "weights", "one row in ten weighs 8, the others 1", _times(_eightfold)),
    )
}
