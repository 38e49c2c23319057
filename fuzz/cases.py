"""Many small hostile test sets of one length at once, and what the kernels must find in them, from all pairs of rows.

Nothing here is imported from uqeval: arrays are (cases, rows), pairs (cases, rows, rows), and cleverness is forbidden.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

TINY = 5e-324
_NEAR = 1e-12
SPECIAL = np.array([-np.inf, np.inf, -0.0, 0.0, TINY, -TINY, 1e-310, 2.2e-308, 1.7e308, -1.7e308, 1.0, 1 + 2**-52])
KINDS = ("grid", "normal", "constant", "special", "zeros", "ulps", "bits", "wide", "denormal", "rising", "falling")


def numbers(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    """Any float64 that is a number or infinite, in shapes that sorts and ties find hard."""
    if kind == "mixed":
        first, second = (numbers(rng, shape, str(k)) for k in rng.choice(KINDS, 2))
        return np.where(rng.random(shape) < 0.5, first, second)
    if kind == "grid":
        return rng.integers(0, rng.integers(1, 7), shape) - rng.integers(0, 3) + 0.0
    if kind == "constant":
        return np.repeat(rng.choice(SPECIAL, (shape[0], 1)), shape[1], axis=1)
    if kind == "special":
        return rng.choice(SPECIAL, shape)
    if kind == "zeros":
        return rng.choice([-0.0, 0.0], shape)
    if kind == "ulps":
        return 1.0 + rng.integers(0, 2 * shape[1] + 1, shape) * 2.0**-52
    if kind == "bits":
        x = rng.integers(0, 2**64, shape, dtype=np.uint64).view(np.float64)
        return np.where(np.isnan(x), 0.0, x)
    if kind == "wide":
        return rng.choice([-1.0, 1.0], shape) * np.exp(rng.uniform(-700, 700, shape))
    if kind == "denormal":
        return rng.integers(-9, 10, shape) * TINY
    x = np.sort(rng.normal(size=shape).round(int(rng.integers(1, 9))), axis=1)
    return {"rising": x, "falling": x[:, ::-1].copy()}.get(kind, rng.normal(size=shape))


def errors(rng: np.random.Generator, score: Array) -> NDArray[np.uint8]:
    """0 and 1; sometimes all alike, sometimes just what the score says."""
    share = rng.choice([0.0, 0.05, 0.3, 0.5, 0.9, 1.0], (len(score), 1), p=[0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
    wrong = rng.random(score.shape) < share
    if score.shape[1] and rng.random() < 0.1:
        wrong = score > np.sort(score, axis=1)[:, score.shape[1] // 2, None]
    return wrong.astype(np.uint8)


def weights(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Positive."""
    kind = rng.integers(4)
    if kind == 0:
        return np.ones(shape)
    if kind == 1:
        return rng.integers(1, 5, shape) / 4
    return rng.lognormal(size=shape) if kind == 2 else 10.0 ** rng.uniform(-12, 12, shape)


class Pairs:
    """What each row gets from the rows with another target."""

    def __init__(self, score: Array, target: Array) -> None:
        below, tied = score[:, :, None] < score[:, None, :], score[:, :, None] == score[:, None, :]
        self.ordered = target[:, :, None] < target[:, None, :]  # i has the smaller target
        self.gain = self.ordered * (2 * below + tied)  # 2 if i has the smaller score, too; 1 if they tie
        self.differ = self.ordered | self.ordered.swapaxes(1, 2)

    @cached_property
    def credit2(self) -> Array:
        return self.gain.sum(axis=1) + self.gain.sum(axis=2)

    @cached_property
    def comparable(self) -> Array:
        return self.differ.sum(axis=2)

    @cached_property
    def totals(self) -> Array:
        return np.stack([self.credit2.sum(axis=1), self.comparable.sum(axis=1)], axis=1)

    @cached_property
    def shifts(self) -> tuple[Array, Array]:
        """Σ d and Σ d², d = C without a row less C, NaN where a row holds all pairs; and what they may be off."""
        credit, pairs = (total[:, None] for total in self.totals.astype(np.longdouble).T)
        left = pairs - 2 * self.comparable
        undefined = (pairs == 0) | (left <= 0).any(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            d = np.where(undefined, 0, (credit - 2 * self.credit2) / (2 * left) - credit / (2 * pairs))
        sums, size = (np.stack([x.sum(axis=1), (d * d).sum(axis=1)], axis=1).astype(np.float64) for x in (d, np.abs(d)))
        return np.where(undefined, np.nan, sums), 1e-13 + _NEAR * size

    def weighted(self, weight: Array) -> Array:
        """(cases, 2, rows): weight of the rows that agree, half where scores tie, and of the comparable ones."""
        agree = self.gain + self.gain.swapaxes(1, 2)
        return np.stack(
            [(agree * weight[:, None, :]).sum(axis=2) / 2, (self.differ * weight[:, None, :]).sum(axis=2)], 1
        )

    def resampled(self, times: Array) -> Array:
        """(cases, 3): credit2, pairs that differ in the target, rows, each unordered pair once."""
        credit2 = np.einsum("bi,bij,bj->b", times, self.gain, times)
        return np.stack([credit2, np.einsum("bi,bij,bj->b", times, self.ordered, times), times.sum(axis=1)], axis=1)


class Swept(NamedTuple):
    """`Sweep` of each case, and `e` of its rows."""

    whole: Array  # (cases, 8)
    real: Array  # (cases, 10)
    e: Array


class Cases:
    """`count` test sets of n rows."""

    def __init__(self, rng: np.random.Generator, count: int, n: int) -> None:
        self.count, self.n = count, n
        shape = (count, n)
        kinds = rng.choice([*KINDS, "mixed", "mixed"], 3)
        self.score, self.loss, self.other = (numbers(rng, shape, str(kind)) for kind in kinds)
        if rng.random() < 0.2:  # what is sure is right
            self.loss = np.where(rng.random(shape) < 0.9, self.score, self.loss)
        self.error = errors(rng, self.score)
        self.weight = weights(rng, shape)
        self.units = int(rng.integers(1, max(n, 1) + 1))
        self.cluster = rng.integers(0, self.units, shape)

    @cached_property
    def row(self) -> Array:
        """Rows in stable order of the score."""
        return stable(self.score)

    @cached_property
    def new(self) -> Array:
        return starts(self.score, self.row)

    @cached_property
    def marks(self) -> NDArray[np.uint8]:
        return np.take_along_axis(self.error, self.row, 1) | (self.new.astype(np.uint8) << 1)

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs(self.score, self.loss)

    @cached_property
    def other_pairs(self) -> Pairs:
        return Pairs(self.other, self.loss)

    @cached_property
    def of_error(self) -> Pairs:
        return Pairs(self.score, self.error)

    @cached_property
    def auc(self) -> Array:
        """(cases, 4): wrong rows, Σ credit2 over them, Σ credit2² over them and over the right ones."""
        credit2, wrong = self.of_error.credit2, self.error == 1
        squares = credit2 * credit2
        return np.stack([x.sum(axis=1) for x in (wrong, credit2 * wrong, squares * wrong, squares * ~wrong)], axis=1)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """Rows before the ties of each row, and up to their end."""
        s = self.score
        return (s[:, None, :] < s[:, :, None]).sum(axis=2), (s[:, None, :] <= s[:, :, None]).sum(axis=2)

    @cached_property
    def swept(self) -> Swept:
        """Each row lies at each place of its ties with the same chance."""
        n, v = self.n, self.error.astype(np.float64)
        start, end = self.places
        k = np.arange(1.0, n + 1)
        tied = end - start
        at = ((start[:, None] < k[:, None]) & (k[:, None] <= end[:, None])) / np.maximum(tied, 1)[
            :, None
        ]  # [place, row]
        until = np.clip((k[:, None] - start[:, None]) / np.maximum(tied, 1)[:, None], 0, 1)
        risk = np.einsum("bki,bi->bk", until, v) / k
        later = np.broadcast_to(1 / k, risk.shape)
        share, later_risk = (np.cumsum(x[:, ::-1], axis=1)[:, ::-1] for x in (later, risk / k))
        g_share = np.einsum("bk,bki->bi", share, at)
        g = v * g_share + np.einsum("bk,bki->bi", risk - later_risk, at)
        bad = self.error.sum(axis=1, dtype=np.int64)
        rate = bad / max(n, 1)
        best = (np.maximum(k - (n - bad)[:, None], 0) / k).sum(axis=1) / max(n, 1)
        slope = -np.log1p(-np.where(rate < 1, rate, 0.0))
        e = g - best[:, None] - slope[:, None] * (v - rate[:, None])
        wrong = self.error == 1
        blocks = self.new.sum(axis=1)
        later2 = ((2 * (n - end) + tied) ** 2 * wrong).sum(axis=1)
        rows = np.full(self.count, n)
        whole = np.stack([rows, *self.auc.T, later2, (tied - 1).sum(axis=1), blocks], axis=1)
        sums = [(e**p * side).sum(axis=1) for side in (wrong, ~wrong) for p in (1, 2)]
        real = [risk.sum(axis=1) / max(n, 1), best, slope, rate, *sums, (g_share**2 * wrong).sum(axis=1)]
        return Swept(whole, np.stack([*real, np.full(self.count, (1 / k).sum())], axis=1), e)

    @cached_property
    def moments(self) -> Array:
        """(cases, 6, n + 1) of the clusters of first rows: number, Σ loss, Σ rows, Σ loss², Σ loss·rows, Σ rows²."""
        same, x = self.cluster[:, :, None] == self.cluster[:, None, :], self.weight
        fresh = ~(same & np.tri(self.n, k=-1, dtype=np.bool_)).any(axis=2)
        found = np.zeros((self.count, 6, self.n + 1))
        found[:, :3, 1:] = np.cumsum([fresh, x, np.ones_like(x)], axis=2).swapaxes(0, 1)
        for k, product in enumerate((same * x[:, :, None] * x[:, None, :], same * x[:, :, None], same + 0.0)):
            within = product.cumsum(axis=1).cumsum(axis=2)
            found[:, 3 + k, 1:] = np.diagonal(within, axis1=1, axis2=2)
        return found

    def by_cluster(self, x: Array) -> Array:
        """(cases, units): Σ x of each."""
        cell = self.cluster + self.units * np.arange(self.count)[:, None]
        return np.bincount(cell.ravel(), x.ravel(), self.count * self.units).reshape(self.count, self.units)


def stable(x: Array) -> Array:
    """The rows of each case by x, ties as they come: place = how many are smaller, or equal and earlier."""
    earlier = np.tri(x.shape[1], k=-1, dtype=np.bool_)
    place = ((x[:, None, :] < x[:, :, None]) | ((x[:, None, :] == x[:, :, None]) & earlier)).sum(axis=2)
    row = np.empty_like(place)
    np.put_along_axis(row, place, np.broadcast_to(np.arange(x.shape[1]), place.shape), 1)
    return row


def starts(x: Array, row: Array) -> NDArray[np.bool_]:
    """Where a new value starts, in order."""
    ordered = np.take_along_axis(x, row, 1)
    return np.concatenate([np.ones((len(x), min(1, x.shape[1])), np.bool_), ordered[:, 1:] != ordered[:, :-1]], axis=1)


def drawn(seed: NDArray[np.uint64], units: int) -> Array:
    """(seeds, units): how often each is drawn; splitmix64 on a counter, as Python integers would do it."""
    mask = (1 << 64) - 1
    times = np.zeros((len(seed), units), dtype=np.int64)
    for own, start in zip(times, seed.tolist(), strict=True):
        for i in range(1, units + 1):
            z = (start + i * 0x9E3779B97F4A7C15) & mask
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            own[int(((z ^ (z >> 31)) >> 11) * 2.0**-53 * units)] += 1
    return times
