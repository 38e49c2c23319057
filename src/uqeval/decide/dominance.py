"""The paper's preorder between two scores: which one accepts more right predictions at every risk?

Theorem 2.1's sub-level sets compared risk by risk. The paper asks for nested sets; what a user gains is the share of
inputs that are accepted and right, so that is the curve. Its band comes from resampling rows (or clusters) for both
scores together, widened so that it holds at all risks at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Nan, check_level, check_seed
from uqeval._errors import InputError
from uqeval._result import number
from uqeval.decide.calibration import Calibration
from uqeval.decide.results import Curve, with_notes
from uqeval.decide.rows import (
    check_targets,
    clean_rows,
    find_target,
    note_few_clusters,
    only_score,
    refuse_weights,
    warned,
)
from uqeval.inference.bootstrap import check_resamples
from uqeval.inputs import Predictions

_CELLS = 200  # thresholds that each score is looked at
_RISKS = 40
_FEWEST = 20  # resamples


@dataclass(frozen=True)
class Dominance(Curve):
    """Share of inputs accepted and right under each prescribed risk, for two scores; a row per risk, ascending."""

    a: str
    b: str
    n: int
    level: float
    resamples: int
    max_risk: Float = field(repr=False)
    right_a: Float = field(repr=False)
    right_b: Float = field(repr=False)
    difference: Float = field(repr=False)  # a − b
    low: Float = field(repr=False)  # a band for all risks at once
    high: Float = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """ "a" or "b" where one accepts more right predictions at some risks and is nowhere shown to accept fewer."""
        more, fewer = bool((self.low > 0).any()), bool((self.high < 0).any())
        return "a" if more and not fewer else "b" if fewer and not more else "neither"

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the columns as lists, and the verdict."""
        return super().to_dict() | {"verdict": self.verdict}

    def statement(self) -> str:
        """The verdict in words."""
        if self.verdict == "neither":
            if (self.low > 0).any():
                return f"Each of {self.a} and {self.b} accepts more right predictions at some risks: they cross."
            return f"Neither {self.a} nor {self.b} is shown to accept more right predictions at any risk."
        better, worse = (self.a, self.b) if self.verdict == "a" else (self.b, self.a)
        where = self.max_risk[(self.low > 0) | (self.high < 0)]
        return (
            f"{better} accepts more right predictions than {worse} at risks from {number(where.min())} to "
            f"{number(where.max())} and is nowhere shown to accept fewer."
        )

    def __str__(self) -> str:
        lines = [self.statement(), f"max risk   {self.a:<12} {self.b:<12} difference ({100 * self.level:.6g}% band)"]
        step = max(1, len(self) // 20)
        for k in range(0, len(self), step):
            band = f"{number(self.difference[k])} ({number(self.low[k])}–{number(self.high[k])})"
            lines.append(f"{self.max_risk[k]:<9.3g}  {self.right_a[k]:<12.1%} {self.right_b[k]:<12.1%} {band}")
        return with_notes(lines, self.warnings)


def dominance(
    score_a: ArrayLike | str,
    score_b: ArrayLike | str,
    error: ArrayLike | None = None,
    *,
    predictions: Predictions | None = None,
    risk: str = "error",
    max_risks: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    clusters: ArrayLike | None = None,
    tie: str = "drop",
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
) -> Dominance:
    """Which of two scores accepts more right predictions at every risk?

    Each score is looked at through at most 200 thresholds, at equally spaced numbers of accepted rows.

    Parameters
    ----------
    score_a, score_b : array-like of shape (n,), or names of scores of `predictions`
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0.
    predictions, risk, clusters, tie, nan
        As for `choose_threshold`; `risk` is "error" or "misaligned".
    max_risks : array-like, optional
        The risks to compare at; 40 from a 40th of the error rate up to it by default.
    level : float
        Confidence of the band, for all risks together.
    resamples : int
        Bootstrap resamples of rows (or clusters).
    seed : int or numpy Generator
        For the bootstrap.

    Returns
    -------
    Dominance
        A curve with its band; ``.verdict`` is "a", "b" or "neither".

    Examples
    --------
    >>> import uqeval as uq
    >>> found = uq.dominance("entropy", "mutual_information", predictions=uq.datasets.example(), resamples=200)
    >>> found.verdict in ("a", "b", "neither")
    True
    """
    level, rng, count = check_level(level), check_seed(seed), check_resamples(resamples)
    if count < _FEWEST:
        raise InputError(f"`resamples` must be at least {_FEWEST}; it is {count}. A band needs a distribution.")
    with warned() as notes:
        target = find_target(error, predictions, risk, clusters, tie)
        refuse_weights(target)
        given = {x: only_score(f"score_{x}", s, predictions) for x, s in (("a", score_a), ("b", score_b))}
        a, b = clean_rows({x: values for x, (_, values) in given.items()}, target, nan).values()
        note_few_clusters(a)
    if not a.binary:
        raise InputError("`error` must be 0 or 1. For a loss, compare the scores with uq.compare.")
    rate = float(a.loss.mean())
    if rate == 0:
        raise InputError("`error` has no 1: without an error every score accepts everything.")
    steps = rate * np.arange(1, _RISKS + 1) / _RISKS
    risks = np.unique(steps[steps < 1] if max_risks is None else check_targets(list(np.ravel(max_risks))))
    curves = _Curves(a, b, risks)
    right_a, right_b = curves.right()
    difference = right_a - right_b
    draws = np.array([np.subtract(*curves.right(times)) for times in curves.resamples(count, rng)])
    spread = draws.std(axis=0, ddof=1)
    moving = spread > 1e-12
    factor = 0.0
    if moving.any():
        factor = float(np.quantile((np.abs(draws - difference)[:, moving] / spread[moving]).max(axis=1), level))
    # A single cluster says nothing.
    half = factor * spread if a.clusters is None or a.n_units > 1 else np.ones(len(risks))
    low, high = np.maximum(difference - half, -1.0), np.minimum(difference + half, 1.0)
    name_a, name_b = (name or label for label, (name, _) in given.items())
    return Dominance(name_a, name_b, a.n, level, count, risks, right_a, right_b, difference, low, high, tuple(notes))


class _Curves:
    """Accepted right rows of two scores under each risk, for the rows and for resamples of them."""

    def __init__(self, a: Calibration, b: Calibration, risks: Float) -> None:
        self.risks, self.clusters, self.n_units = risks[:, None], a.clusters, a.n_units
        one, two = (np.searchsorted(cal.grid(min(_CELLS, cal.n)), cal.score + 0.0) for cal in (a, b))
        self.m, error, self.times = 1 + int(max(one.max(), two.max())), a.loss.astype(np.int64), np.ones(a.n)
        if a.clusters is None:  # rows that share bins and error are one cell
            cells, self.times = np.unique((one * self.m + two) * 2 + error, return_counts=True)
            one, two, error = cells // 2 // self.m, cells // 2 % self.m, cells % 2
        self.places = (one * 2 + error, two * 2 + error)

    def right(self, times: NDArray[Any] | None = None) -> list[Float]:
        """For each score the share accepted and right below the largest threshold whose risk is within each prescribed
        one, where each cell comes so many `times`."""
        times = self.times if times is None else times
        counts = (np.bincount(place, weights=times, minlength=2 * self.m) for place in self.places)
        return [self._right(count.astype(np.float64)) for count in counts]

    def resamples(self, count: int, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
        """How often each cell comes where rows (or clusters) are drawn with replacement."""
        for _ in range(count):
            if self.clusters is None:
                yield rng.multinomial(int(self.times.sum()), self.times / self.times.sum())
            else:
                drawn = rng.integers(self.n_units, size=self.n_units)
                yield np.bincount(drawn, minlength=self.n_units)[self.clusters]

    def _right(self, counts: Float) -> Float:
        right, wrong = counts.reshape(self.m, 2).cumsum(axis=0).T
        rows = right + wrong
        # A risk equal to the target but for rounding is within it.
        within = (wrong <= self.risks * rows * (1 + 1e-12)) & (rows > 0)
        last = self.m - 1 - within[:, ::-1].argmax(axis=1)
        return np.where(within.any(axis=1), right[last] / rows[-1], 0.0)
