"""Finite populations whose law is known, and every ranking of them: metrics without sampling, maxima by enumeration.

A population is a few inputs with their masses, true label distributions and predicted probabilities. Nothing here
uses the library's metrics, so that the theorems are checked by something else than what they are about.
"""

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int

MANY = 8  # inputs of a population whose 255 sets are all tried


class Population(NamedTuple):
    """m inputs with K classes."""

    mass: Float  # (m,), sums to 1
    truth: Float  # (m, K), P(Y = k | x)
    probs: Float  # (m, K), what the model says

    @property
    def phi(self) -> Float:
        """ϕ: the chance that the predicted class is wrong."""
        others = self.truth.copy()
        others[np.arange(len(others)), self.probs.argmax(axis=1)] = 0.0
        return others.sum(axis=1)

    @property
    def varphi(self) -> Float:
        """φ: what the model gives to all but the Bayes class."""
        others = self.probs.copy()
        others[np.arange(len(others)), self.truth.argmax(axis=1)] = 0.0
        return others.sum(axis=1)

    @property
    def misaligned(self) -> NDArray[np.bool_]:
        """Where the predicted class is not the Bayes class."""
        return self.probs.argmax(axis=1) != self.truth.argmax(axis=1)

    @property
    def error(self) -> float:
        """1 − ACC."""
        return float(self.mass @ self.phi)

    def mistakes(self) -> Float:
        """(m, m): the chance that i is predicted right and j wrong."""
        return np.outer(1 - self.phi, self.phi)

    def gaps(self) -> Float:
        """(m, m): the chance that Δ of i lies below Δ of j."""
        below = -self.probs[:, None, :, None] < -self.probs[None, :, None, :]
        return np.einsum("iy,jz,ijyz->ij", self.truth, self.truth, below)


def draw(rng: np.random.Generator, points: int, classes: int, noise: float | None = None) -> Population:
    """A random population; the model knows nothing of the truth, or with `noise` something."""
    mass = rng.dirichlet(np.full(points, 3.0))
    truth = rng.dirichlet(np.ones(classes), size=points)
    probs = rng.dirichlet(np.ones(classes), size=points)
    if noise is not None:
        top = rng.uniform(0.5, 1.0, size=points)  # a Bayes class with more than half everywhere
        rest = rng.dirichlet(np.ones(classes - 1), size=points) * (1 - top)[:, None]
        truth = rng.permuted(np.column_stack([top, rest]), axis=1)
        probs = truth * np.exp(noise * rng.normal(size=truth.shape))
        probs /= probs.sum(axis=1, keepdims=True)
    return Population(mass, truth, probs)


def two_classes(mass: list[float], phi: list[float]) -> Population:
    """A population with these chances of a mistake; the prediction is class 0 throughout."""
    wrong = np.array(phi)
    truth = np.column_stack([1 - wrong, wrong])
    return Population(np.array(mass), truth, np.tile([0.9, 0.1], (len(phi), 1)))


def drawn(rng: np.random.Generator, count: int, *how: Any) -> list[Population]:
    """So many random populations, as `draw` makes them."""
    return [draw(rng, *how) for _ in range(count)]


def mixed(rng: np.random.Generator, count: int, classes: int) -> list[Population]:
    """Populations with aligned and misaligned inputs: the others have one value of misalignment and nothing to show."""
    found: list[Population] = []
    while len(found) < count:
        p = draw(rng, MANY, classes)
        if 0 < p.misaligned.sum() < MANY:
            found.append(p)
    return found


@lru_cache
def orderings(points: int) -> Int:
    """Every ranking of so many inputs, ties allowed: a row of ranks 0, 1, … for each (541 of five inputs).

    Examples
    --------
    >>> orderings(2).tolist(), len(orderings(5))
    ([[0, 0], [0, 1], [1, 0]], 541)
    """
    every = itertools.product(range(points), repeat=points)
    return np.array([ranks for ranks in every if set(ranks) == set(range(max(ranks) + 1))], dtype=np.int64)


@lru_cache
def subsets(points: int) -> NDArray[np.bool_]:
    """Every non-empty set of inputs, (2^m − 1, m)."""
    return np.array(list(itertools.product((False, True), repeat=points))[1:])


def credits(scores: NDArray[Any]) -> Float:
    """(…, m) scores → (…, m, m): 1 where i is ranked below j, ½ where they tie."""
    first, second = scores[..., :, None], scores[..., None, :]
    return (first < second) + 0.5 * (first == second)


def auc(population: Population, scores: NDArray[Any]) -> Float:
    """UQ-AUC of each row of scores."""
    return _concordance(population.mass, population.mistakes(), scores)


def c_index(population: Population, scores: NDArray[Any]) -> Float:
    """UQ-C-index of each row of scores."""
    return _concordance(population.mass, population.gaps(), scores)


def _concordance(mass: Float, below: Float, scores: NDArray[Any]) -> Float:
    pairs = np.outer(mass, mass) * below
    return np.einsum("ij,...ij->...", pairs, credits(scores)) / pairs.sum()


def regret(population: Population, below: Float, best: Float, scores: NDArray[Any]) -> Float:
    """What the scores lose against `best`: E|ρ⁺ − ρ⁻|(discordant + tied/2) / (2·P(comparable))."""
    pairs = np.outer(population.mass, population.mass)
    decided = best[:, None] < best[None, :]
    lost = np.where(decided, np.abs(below - below.T), 0.0)  # |ϕ − ϕ'| where `below` is `mistakes`
    # Each unordered pair once; the expectation over ordered pairs has it twice, which cancels the 2 below the line.
    return np.einsum("ij,...ij->...", pairs * lost, 1 - credits(scores)) / (pairs * below).sum()


def coverages(population: Population, score: NDArray[Any], bad: Float) -> tuple[Float, Float]:
    """Mass and risk of the sub-level sets, one for each distinct score."""
    inside = score[None, :] <= np.unique(score)[:, None]
    mass = inside @ population.mass
    return mass, inside @ (population.mass * bad) / mass


def g_auc(population: Population, scores: NDArray[Any]) -> Float:
    """The paper's P(V = 1 | S ≤ S') of independent S, S', a tie counted as half: twice AUGRC."""
    loss = population.mass * population.phi
    return 2 * np.einsum("i,j,...ij->...", loss, population.mass, credits(scores))


def aurc(population: Population, scores: NDArray[Any]) -> Float:
    """Geifman's AURC, E[V·(−ln U)] with U the share of inputs ranked at or below (tied ones in random order)."""
    mass, loss = population.mass, population.mass * population.phi
    first, second = scores[..., :, None], scores[..., None, :]
    start = ((second < first) * mass).sum(axis=-1)
    end = ((second <= first) * mass).sum(axis=-1)
    # The mean of −ln u over the places (start, end) that a tied block takes.
    safe = np.where(start > 0, start, 1.0)
    mean = 1 - (end * np.log(end) - np.where(start > 0, start * np.log(safe), 0.0)) / (end - start)
    return (loss * mean).sum(axis=-1)
