"""The paper's preorder between two scores: which one accepts more right predictions at every risk?

Theorem 2.1's sub-level sets compared risk by risk. The paper asks for nested sets; what a user gains is the share of
inputs that are accepted and right, so that is the curve. Its band comes from resampling rows (or clusters) for both
scores together, widened so that it holds at all risks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int, Nan, check_level, check_seed
from uqeval._errors import InputError, collected, notify
from uqeval._result import Result, number
from uqeval.decide.calibration import Calibration
from uqeval.decide.rows import check_targets, clean_rows, find_scores, find_target, note_few_clusters
from uqeval.inference.bootstrap import check_resamples
from uqeval.inputs import Predictions

__all__ = ["Dominance", "dominance"]

_CELLS = 200  # thresholds that each score is looked at
_RISKS = 40
_FEWEST = 20  # resamples
_AT_ONCE = 1 << 22  # numbers drawn at once
_COLUMNS = ("max_risk", "right_a", "right_b", "difference", "low", "high")


@dataclass(frozen=True)
class Dominance(Result):
    """Share of inputs accepted and right under each prescribed risk, for two scores; a row per risk, ascending."""

    a: str
    b: str
    max_risk: Float = field(repr=False)
    right_a: Float = field(repr=False)
    right_b: Float = field(repr=False)
    difference: Float = field(repr=False)  # a − b
    low: Float = field(repr=False)  # a band for all risks at once
    high: Float = field(repr=False)
    n: int
    level: float
    resamples: int
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """ "a" or "b" where one accepts more right predictions at some risks and is nowhere shown to accept fewer."""
        more, fewer = bool((self.low > 0).any()), bool((self.high < 0).any())
        return "a" if more and not fewer else "b" if fewer and not more else "neither"

    def __len__(self) -> int:
        return len(self.max_risk)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the columns as lists."""
        plain = {"a": self.a, "b": self.b, "n": self.n, "level": self.level, "resamples": self.resamples}
        columns = {name: getattr(self, name).tolist() for name in _COLUMNS}
        return plain | {"verdict": self.verdict} | columns | {"warnings": list(self.warnings)}

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per risk."""
        columns = [getattr(self, name).tolist() for name in _COLUMNS]
        return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

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
        return "\n".join((*lines, *(f"! {note}" for note in self.warnings)))


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
    with collected() as raised:
        target = find_target(error, predictions, risk, clusters, tie)
        names, given = [], {}
        for score, label in ((score_a, "a"), (score_b, "b")):
            found = find_scores(score, predictions)
            if len(found) != 1:
                raise InputError(f"`score_{label}` holds {len(found)} scores. Pass one.")
            ((name, given[label]),) = found.items()
            names.append(name or label)
        a, b = clean_rows(given, target, nan).values()  # type: ignore[arg-type]
        note_few_clusters(a)
    for note in raised:
        notify(note, stacklevel=2)
    if not a.binary:
        raise InputError("`error` must be 0 or 1. For a loss, compare the scores with uq.compare.")
    rate = float(a.loss.mean())
    if rate == 0:
        raise InputError("`error` has no 1: without an error every score accepts everything.")
    steps = rate * np.arange(1, _RISKS + 1) / _RISKS
    risks = np.unique(steps[steps < 1] if max_risks is None else check_targets(list(np.ravel(max_risks))))
    curves = _Curves(a, b, risks)
    right = curves.observed()
    difference = right[0] - right[1]
    draws = curves.resampled(count, rng)
    spread = draws.std(axis=0, ddof=1)
    moving = spread > 1e-12
    factor = 0.0
    if moving.any():
        factor = float(np.quantile((np.abs(draws - difference)[:, moving] / spread[moving]).max(axis=1), level))
    half = factor * spread
    if a.cluster_rows is not None and len(a.cluster_rows) == 1:  # a single cluster says nothing
        half = np.ones(len(risks))
    return Dominance(
        a=names[0],
        b=names[1],
        max_risk=risks,
        right_a=right[0],
        right_b=right[1],
        difference=difference,
        low=np.maximum(difference - half, -1.0),
        high=np.minimum(difference + half, 1.0),
        n=a.n,
        level=level,
        resamples=count,
        warnings=tuple(dict.fromkeys(raised)),
    )


class _Curves:
    """Accepted right rows of two scores under each risk, for the rows and for resamples of them."""

    def __init__(self, a: Calibration, b: Calibration, risks: Float) -> None:
        self.n, self.risks, self.clusters = a.n, risks, a.clusters
        bins = [np.searchsorted(cal.grid(min(_CELLS, cal.n)), cal.score + 0.0) for cal in (a, b)]
        self.m = 1 + max(int(x.max()) for x in bins)
        self.bins, self.error = bins, a.loss.astype(np.int64)

    def observed(self) -> Float:
        """(2, risks)."""
        return np.stack([self._right(self._counts(x, None)) for x in self.bins])

    def resampled(self, count: int, rng: np.random.Generator) -> Float:
        """(count, risks) differences."""
        if self.clusters is not None:
            return self._by_cluster(count, rng)
        # Rows that share bins and error are one cell: a resample draws how often each cell comes.
        key = (self.bins[0] * self.m + self.bins[1]) * 2 + self.error
        cells, size = np.unique(key, return_counts=True)
        places = [(cells // 2 // self.m) * 2 + cells % 2, (cells // 2 % self.m) * 2 + cells % 2]
        result, chunk = np.empty((count, len(self.risks))), max(1, _AT_ONCE // len(cells))
        for done in range(0, count, chunk):
            drawn = rng.multinomial(self.n, size / self.n, size=min(chunk, count - done))
            right = [self._right(_pooled(drawn, place, 2 * self.m)) for place in places]
            result[done : done + len(drawn)] = right[0] - right[1]
        return result

    def _by_cluster(self, count: int, rng: np.random.Generator) -> Float:
        assert self.clusters is not None
        total = int(self.clusters.max()) + 1
        result = np.empty((count, len(self.risks)))
        for k in range(count):
            weights = np.bincount(rng.integers(total, size=total), minlength=total)[self.clusters]
            right = [self._right(self._counts(x, weights)) for x in self.bins]
            result[k] = right[0] - right[1]
        return result

    def _counts(self, bins: Int, weights: Int | None) -> NDArray[Any]:
        """(2m,) right and wrong rows of each bin, in turn."""
        return np.bincount(bins * 2 + self.error, weights=weights, minlength=2 * self.m)

    def _right(self, counts: NDArray[Any]) -> Float:
        """Share accepted and right below the largest threshold whose risk is within each prescribed one."""
        pairs = counts.reshape(*counts.shape[:-1], self.m, 2).cumsum(axis=-2)
        right, wrong = pairs[..., 0], pairs[..., 1]
        rows = right + wrong
        total = rows[..., -1:]
        result = np.zeros((*counts.shape[:-1], len(self.risks)))
        for k, gamma in enumerate(self.risks):
            # A risk equal to the target but for rounding is within it.
            within = (wrong <= gamma * rows * (1 + 1e-12)) & (rows > 0)
            last = self.m - 1 - within[..., ::-1].argmax(axis=-1)
            found = np.take_along_axis(right, last[..., None], axis=-1)
            result[..., k] = np.where(within.any(axis=-1), found[..., 0] / total[..., 0], 0.0)
        return result


def _pooled(drawn: Int, place: Int, size: int) -> Int:
    """Sums over the cells of each place, row by row."""
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    result = np.zeros((len(drawn), size), dtype=np.int64)
    result[:, place[order][first]] = np.add.reduceat(drawn[:, order], first, axis=1)
    return result
