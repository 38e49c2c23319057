"""Laws of one row (score, error, loss, confidence) whose true value of every metric is known.

A row is wrong with probability 1 − accuracy. Given that, its score is a quantile function of a standard normal z, its
loss in (0, 1) is above ½ exactly where it is wrong and follows z with correlation rho, and its confidence is the chance
of being right at that score, tempered. z may be correlated between rows without changing the law of a row: that is how
`designs` makes clusters whose row-weighted population is the law itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    expit,
    gammainc,
    gammaincinv,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
    stdtr,
    stdtrit,
)

from uqeval import metrics

Float = NDArray[np.float64]
Of = Callable[[Any], Any]

NODES = 50_000  # of the quadrature over z, for each part of a class
_LATTICE = 1 << 15  # points (z, e) of each part, for pairs of score and loss
_GOLDEN = (math.sqrt(5) - 1) / 2
BINS = 15  # of ECE
SHARE = 0.9  # of selective accuracy
_EDGE = 1e-6  # confidences stay this far from 0 and 1


class Values(NamedTuple):
    """What a row shows."""

    score: Float
    loss: Float
    confidence: Float


@dataclass(frozen=True)
class Part:
    """Rows of a class whose scores follow one law."""

    share: float  # of the class
    quantile: Of  # standard normal → score, rising or falling
    below: Of  # P(S < s) + ½P(S = s)
    log_density: Of  # or log of the mass
    rho: float  # correlation of the latent loss with z


class Population:
    """What designs draw from, and the truth about it."""

    accuracy: float
    truth: Mapping[str, float]

    def rows(self, wrong: NDArray[np.bool_], z: Float, e: Float, rng: np.random.Generator) -> Values:
        """Rows with these errors from standard normals: z moves the score, e is the loss's own."""
        raise NotImplementedError

    def rank(self, score: Float) -> Float:
        """Share of the population below a score, ties half."""
        raise NotImplementedError

    def share_below(self, wrong: bool, score: Float, *, strictly: bool = False) -> Float:
        """P(S ≤ score), or P(S < score), of the wrong rows or of the right ones."""
        raise NotImplementedError

    def risk(self, threshold: Any, error_rate: float | None = None) -> Float:
        """True risk of {score ≤ threshold}; 0 where nothing is accepted. Another error rate: another mix of the same
        right and wrong rows."""
        rate = 1 - self.accuracy if error_rate is None else error_rate
        at = np.atleast_1d(np.asarray(threshold, dtype=np.float64))
        bad, good = rate * self.share_below(True, at), (1 - rate) * self.share_below(False, at)
        with np.errstate(invalid="ignore"):
            return np.where(bad + good > 0, bad / (bad + good), 0.0)


@dataclass(frozen=True, eq=False)
class Smooth(Population):
    """A population by formula."""

    accuracy: float
    right: tuple[Part, ...]
    wrong: tuple[Part, ...]
    temper: float = 1.0  # above 1: overconfident
    atomic: bool = False  # scores are whole numbers

    def rows(self, wrong: NDArray[np.bool_], z: Float, e: Float, rng: np.random.Generator) -> Values:
        score, latent = np.empty(len(z)), np.empty(len(z))
        luck = rng.random(len(z)) if len(self.right) + len(self.wrong) > 2 else np.zeros(len(z))
        for parts, side in ((self.right, ~wrong), (self.wrong, wrong)):
            start = 0.0
            for part in parts:
                own = side & (luck >= start) & (luck < start + part.share) if len(parts) > 1 else side
                score[own] = part.quantile(z[own])
                latent[own] = part.rho * z[own] + math.sqrt(1 - part.rho**2) * e[own]
                start += part.share
        return Values(score, 0.5 * wrong + 0.5 * ndtr(latent), self.confidence(score))

    def confidence(self, score: Float) -> Float:
        with np.errstate(divide="ignore", invalid="ignore"):
            good, bad = (_log_mix(parts, score) for parts in (self.right, self.wrong))
            odds = good - bad + math.log(self.accuracy / (1 - self.accuracy))
        return np.clip(expit(self.temper * np.nan_to_num(odds)), _EDGE, 1 - _EDGE)

    def rank(self, score: Float) -> Float:
        return self.accuracy * _mix(self.right, score) + (1 - self.accuracy) * _mix(self.wrong, score)

    def share_below(self, wrong: bool, score: Float, *, strictly: bool = False) -> Float:
        parts = self.wrong if wrong else self.right
        if not self.atomic:
            return _mix(parts, score)
        return _mix(parts, np.ceil(score) - 0.5 if strictly else np.floor(score) + 0.5)  # between two atoms

    @cached_property
    def truth(self) -> Mapping[str, float]:  # type: ignore[override]
        z = ndtri((np.arange(NODES) + 0.5) / NODES)
        parts = [(wrong, part) for wrong, own in ((0.0, self.right), (1.0, self.wrong)) for part in own]
        of_class = (self.accuracy, 1 - self.accuracy)
        score = np.concatenate([part.quantile(z) for _, part in parts])
        wrong = np.repeat([wrong for wrong, _ in parts], NODES)
        mass = np.repeat([of_class[int(wrong)] * part.share / NODES for wrong, part in parts], NODES)
        found = areas(score, wrong, mass) | calibration(self.confidence(score), wrong, mass)
        return found | {"uq_c_index": self._concordance(parts, of_class)}

    def _concordance(self, parts: list[tuple[float, Part]], of_class: tuple[float, float]) -> float:
        k = np.arange(_LATTICE)  # a rank-1 lattice in (z, e)
        z, e = ndtri((k + 0.5) / _LATTICE), ndtri(((k + 0.5) * _GOLDEN) % 1.0)
        score, loss, mass = [], [], []
        for wrong, part in parts:
            score.append(part.quantile(z))
            loss.append(wrong + ndtr(part.rho * z + math.sqrt(1 - part.rho**2) * e))
            mass.append(np.full(_LATTICE, of_class[int(wrong)] * part.share))
        return metrics.uq_c_index(np.concatenate(score), np.concatenate(loss), weights=np.concatenate(mass))


def _mix(parts: tuple[Part, ...], score: Float) -> Float:
    return sum((part.share * part.below(score) for part in parts), np.zeros(np.shape(score)))


def _log_mix(parts: tuple[Part, ...], score: Float) -> Float:
    first, *others = (math.log(part.share) + part.log_density(score) for part in parts)
    for other in others:
        first = np.logaddexp(first, other)
    return first


@dataclass(frozen=True, eq=False)
class Finite(Population):
    """Rows of a file, drawn with replacement: the file's own values are the truth."""

    score: Float
    error: NDArray[np.uint8]
    loss: Float
    own_confidence: Float

    @property
    def accuracy(self) -> float:  # type: ignore[override]
        return 1 - float(self.error.mean())

    @cached_property
    def _sorted(self) -> dict[bool, NDArray[np.int64]]:
        order = np.argsort(self.score, kind="stable")
        return {wrong: order[self.error[order] == wrong] for wrong in (False, True)}

    def rows(self, wrong: NDArray[np.bool_], z: Float, e: Float, rng: np.random.Generator) -> Values:
        row = np.empty(len(z), dtype=np.int64)
        for side, own in self._sorted.items():
            at = wrong == side
            row[at] = own[np.minimum((ndtr(z[at]) * len(own)).astype(np.int64), len(own) - 1)]
        return Values(self.score[row], self.loss[row], self.own_confidence[row])

    def rank(self, score: Float) -> Float:
        every = np.sort(self.score)
        return (np.searchsorted(every, score) + np.searchsorted(every, score, side="right")) / (2 * len(every))

    def share_below(self, wrong: bool, score: Float, *, strictly: bool = False) -> Float:
        own = self.score[self._sorted[wrong]]
        return np.searchsorted(own, score, side="left" if strictly else "right") / len(own)

    @cached_property
    def truth(self) -> Mapping[str, float]:  # type: ignore[override]
        wrong, mass = self.error.astype(np.float64), np.full(len(self.error), 1 / len(self.error))
        found = areas(self.score, wrong, mass) | calibration(self.own_confidence, wrong, mass)
        return found | {"uq_c_index": metrics.uq_c_index(self.score, self.loss)}


# ---- metrics of a population ------------------------------------------------------------------------------------


def areas(score: Float, wrong: Float, mass: Float) -> dict[str, float]:
    """The ranking metrics of a law with these masses, a block of tied scores accepted in random order.

    With U the share accepted: AURC = E[V·(−ln U)], AUGRC = E[V·(1 − U)], each averaged over the stretch of a block.
    """
    order = np.argsort(score, kind="stable")
    first = np.flatnonzero(np.diff(score[order], prepend=np.nan) != 0)
    block, bad = (np.add.reduceat(x[order], first) for x in (mass, mass * wrong))
    stop = np.cumsum(block)
    start = np.concatenate([[0.0], stop[:-1]])
    err = float(bad.sum())
    acc = 1 - err

    def integral(u: Float) -> Float:  # of −ln
        return u - np.where(u > 0, u * np.log(np.maximum(u, 1e-300)), 0.0)

    aurc = float((bad / block * (integral(stop) - integral(start))).sum())
    good = block - bad
    below = np.cumsum(good) - good / 2
    auc = float((bad * below).sum()) / (err * acc)
    kept = np.clip((SHARE - start) / block, 0.0, 1.0)
    return {
        "accuracy": acc,
        "uq_auc": auc,
        "aurc": aurc,
        "e_aurc": aurc - (err + acc * math.log(acc)),
        "augrc": float((bad * (1 - (start + stop) / 2)).sum()),
        "h_auc": auc * acc * err,
        "selective_accuracy_90": 1 - float((bad * kept).sum()) / SHARE,
    }


def calibration(confidence: Float, wrong: Float, mass: Float) -> dict[str, float]:
    """ECE in 15 bins of equal width; Brier score and log-loss of (1 − c, c) for the label "right"."""
    right = 1 - wrong
    place = np.searchsorted(np.arange(1, BINS) / BINS, confidence, side="left")
    gaps = np.bincount(place, weights=mass * (right - confidence), minlength=BINS)
    chance = np.where(right > 0, confidence, 1 - confidence)
    return {
        "ece_debiased": float(np.abs(gaps).sum()),
        "brier": float((mass * 2 * (1 - chance) ** 2).sum()),
        "log_loss": float((mass * -np.log(chance)).sum()),
    }


# ---- the laws ---------------------------------------------------------------------------------------------------


def _rho(auc: float) -> float:
    """Inside a class the loss is as concordant with the score as classes are with each other: ½ + asin(ρ)/π."""
    return math.sin(math.pi * (auc - 0.5))


def _normal(shift: float, rho: float, share: float = 1.0, sign: float = 1.0) -> Part:
    return Part(share, lambda z: shift + sign * z, lambda s: ndtr(s - shift), lambda s: -0.5 * (s - shift) ** 2, rho)


def _shift(auc: float) -> float:
    return math.sqrt(2) * float(ndtri(auc))


def _binormal(acc: float, auc: float, temper: float) -> Smooth:
    rho = _rho(auc)
    return Smooth(acc, (_normal(0.0, rho),), (_normal(_shift(auc), rho),), temper)


def _exponential(acc: float, auc: float, temper: float) -> Smooth:
    """Means 1 and auc/(1 − auc)."""

    def part(mean: float) -> Part:
        return Part(
            1.0,
            lambda z: -mean * np.log(ndtr(-z)),
            lambda s: -np.expm1(-np.maximum(s, 0.0) / mean),
            lambda s: -s / mean - math.log(mean),
            _rho(auc),
        )

    return Smooth(acc, (part(1.0),), (part(auc / (1 - auc)),), temper)


def _atoms(acc: float, auc: float, temper: float) -> Smooth:
    """Binormal, rounded to whole numbers: six to nine values. `auc` is that before rounding."""

    def part(shift: float) -> Part:
        def log_mass(s: Float) -> Float:
            x = np.abs(s - shift)  # the same mass, in the tail that does not round to 1
            return np.log(np.maximum(ndtr(0.5 - x) - ndtr(-0.5 - x), 1e-300))

        return Part(1.0, lambda z: np.round(z + shift), lambda s: _between(s, shift), log_mass, _rho(auc))

    return Smooth(acc, (part(0.0),), (part(_shift(auc)),), temper, atomic=True)


def _between(s: Float, shift: float) -> Float:
    """At an atom ties count half; between two atoms all below do."""
    whole = s == np.round(s)
    low, high = np.where(whole, s - 0.5, np.floor(s) + 0.5), np.where(whole, s + 0.5, np.floor(s) + 0.5)
    return (ndtr(low - shift) + ndtr(high - shift)) / 2


RANDOM = 0.03  # share of random rows: with more, an AUC of .98 cannot be had


def _random_rows(acc: float, auc: float, temper: float) -> Smooth:
    """Binormal, but three rows in a hundred rank at random: the score of a right row, unrelated to the loss."""
    inner = (auc - RANDOM / 2) / (1 - RANDOM)
    rho, noise = _rho(auc), _normal(0.0, 0.0, RANDOM)
    return Smooth(acc, (_normal(0.0, rho, 1 - RANDOM), noise), (_normal(_shift(inner), rho, 1 - RANDOM), noise), temper)


def _student(acc: float, auc: float, temper: float) -> Smooth:
    """t with 3 degrees of freedom, shifted."""

    def part(shift: float) -> Part:
        return Part(
            1.0,
            _tabulated(lambda z: shift + stdtrit(3, ndtr(z))),
            lambda s: stdtr(3, s - shift),
            lambda s: -2 * np.log1p((s - shift) ** 2 / 3),
            _rho(auc),
        )

    return Smooth(acc, (part(0.0),), (part(_solved(lambda d: (part(0.0), part(d)), auc, 0.0, 60.0)),), temper)


def _gamma(acc: float, auc: float, temper: float) -> Smooth:
    """Shapes 2 and, but for an AUC of ½, more."""

    def part(shape: float) -> Part:
        return Part(
            1.0,
            _tabulated(lambda z: gammaincinv(shape, ndtr(z))),
            lambda s: gammainc(shape, np.maximum(s, 0.0)),
            lambda s: (shape - 1) * np.log(s) - s - gammaln(shape),
            _rho(auc),
        )

    return Smooth(acc, (part(2.0),), (part(_solved(lambda k: (part(2.0), part(k)), auc, 1.5, 60.0)),), temper)


def _beta(acc: float, auc: float, temper: float) -> Smooth:
    """Beta(1, 4), dense at the certain end, and Beta(a, 2)."""

    def part(a: float, b: float) -> Part:
        return Part(
            1.0,
            _tabulated(lambda z: betaincinv(a, b, ndtr(z))),
            lambda s: betainc(a, b, np.clip(s, 0.0, 1.0)),
            lambda s: (a - 1) * np.log(s) + (b - 1) * np.log1p(-s) - betaln(a, b),
            _rho(auc),
        )

    a = _solved(lambda x: (part(1.0, 4.0), part(x, 2.0)), auc, 0.05, 80.0)
    return Smooth(acc, (part(1.0, 4.0),), (part(a, 2.0),), temper)


def _inverted(acc: float, auc: float, temper: float) -> Smooth:
    """Binormal, but in a subgroup sure and unsure are swapped: (1 − AUC)/2 of the rows, at most 15%."""
    g = min(0.15, (1 - auc) / 2)
    shift = _shift((auc - g * g - g * (1 - g)) / ((1 - g) ** 2 - g * g))
    rho = _rho(auc)
    return Smooth(
        acc,
        (_normal(0.0, rho, 1 - g), _normal(shift, rho, g, -1.0)),
        (_normal(shift, rho, 1 - g), _normal(0.0, rho, g, -1.0)),
        temper,
    )


def _laplace(acc: float, auc: float, temper: float) -> Smooth:
    """Double exponential, shifted."""

    def part(shift: float) -> Part:
        return Part(
            1.0,
            lambda z: shift - np.sign(z) * np.log(2 * ndtr(-np.abs(z))),
            lambda s: 0.5 + 0.5 * np.sign(s - shift) * -np.expm1(-np.abs(s - shift)),
            lambda s: -np.abs(s - shift),
            _rho(auc),
        )

    return Smooth(acc, (part(0.0),), (part(_solved(lambda d: (part(0.0), part(d)), auc, 0.0, 60.0)),), temper)


def _unequal(acc: float, auc: float, temper: float) -> Smooth:
    """Normal with deviations 1 and 2: some wrong rows are surer than all right ones."""
    shift, wide = math.sqrt(5) * float(ndtri(auc)), 2.0
    wrong = Part(
        1.0,
        lambda z: shift + wide * z,
        lambda s: ndtr((s - shift) / wide),
        lambda s: -0.5 * ((s - shift) / wide) ** 2 - math.log(wide),
        _rho(auc),
    )
    return Smooth(acc, (_normal(0.0, _rho(auc)),), (wrong,), temper)


def _weibull(acc: float, auc: float, temper: float) -> Smooth:
    """Shapes 1.5 and 1, the second with a scale that gives the AUC."""

    def part(shape: float, scale: float) -> Part:
        return Part(
            1.0,
            lambda z: scale * (-np.log(ndtr(-z))) ** (1 / shape),
            lambda s: -np.expm1(-((np.maximum(s, 0.0) / scale) ** shape)),
            lambda s: math.log(shape / scale) + (shape - 1) * np.log(s / scale) - (s / scale) ** shape,
            _rho(auc),
        )

    scale = _solved(lambda x: (part(1.5, 1.0), part(1.0, x)), auc, 0.1, 500.0)
    return Smooth(acc, (part(1.5, 1.0),), (part(1.0, scale),), temper)


def _contaminated(acc: float, auc: float, temper: float) -> Smooth:
    """Binormal, but one row in ten, right or wrong, has a deviation of 3."""
    rho = _rho(auc)

    def wide(shift: float) -> Part:
        return Part(
            0.1,
            lambda z: shift + 3 * z,
            lambda s: ndtr((s - shift) / 3),
            lambda s: -0.5 * ((s - shift) / 3) ** 2 - math.log(3),
            rho,
        )

    def excess(shift: float) -> float:
        parts = ((0.81, 2.0), (0.18, 10.0), (0.01, 18.0))  # share of pairs, variance of their difference
        return sum(share * float(ndtr(shift / math.sqrt(variance))) for share, variance in parts) - auc

    shift = float(optimize.brentq(excess, 0.0, 60.0, xtol=1e-12))
    return Smooth(acc, (_normal(0.0, rho, 0.9), wide(0.0)), (_normal(shift, rho, 0.9), wide(shift)), temper)


def _gumbel(acc: float, auc: float, temper: float) -> Smooth:
    """Largest of many, shifted: the difference of two is logistic."""
    shift = math.log(auc / (1 - auc))

    def part(shift: float) -> Part:
        def log_density(s: Float) -> Float:
            return shift - s - np.exp(np.minimum(shift - s, 700.0))

        def below(s: Float) -> Float:
            return np.exp(-np.exp(np.minimum(shift - s, 700.0)))

        return Part(1.0, lambda z: shift - np.log(-log_ndtr(z)), below, log_density, _rho(auc))

    return Smooth(acc, (part(0.0),), (part(shift),), temper)


def _confident_errors(acc: float, auc: float, temper: float) -> Smooth:
    """Binormal, but a part of the wrong rows, 15% at most, is as sure as right ones."""
    g, rho = min(0.15, 1 - auc), _rho(auc)
    shift = _shift((auc - g / 2) / (1 - g))
    return Smooth(acc, (_normal(0.0, rho),), (_normal(shift, rho, 1 - g), _normal(0.0, rho, g)), temper)


def _tabulated(quantile: Of) -> Of:
    """A slow quantile function, linear between places a thousandth of a normal's deviation apart: costs about 10⁻⁷."""
    places = np.linspace(-8.0, 8.0, 16_001)
    table: list[Float] = []

    def looked_up(z: Float) -> Float:
        if not table:
            table.append(quantile(places))
        return np.interp(z, places, table[0])

    return looked_up


def _solved(parts: Callable[[float], tuple[Part, Part]], auc: float, low: float, high: float) -> float:
    """The parameter that gives the AUC."""
    z = ndtri((np.arange(2000) + 0.5) / 2000)

    def excess(x: float) -> float:
        right, wrong = parts(x)
        return float(right.below(wrong.quantile(z)).mean()) - auc

    return float(optimize.brentq(excess, low, high, xtol=1e-10))


SMOOTH: dict[str, Callable[[float, float, float], Smooth]] = {
    "binormal": _binormal,
    "exponential": _exponential,
    "atoms": _atoms,
    "random rows": _random_rows,
    "t3": _student,
    "gamma": _gamma,
    "beta": _beta,
    "inverted subgroup": _inverted,
    "laplace": _laplace,
    "unequal normal": _unequal,
    "weibull": _weibull,
    "contaminated normal": _contaminated,
    "gumbel": _gumbel,
    "confident errors": _confident_errors,
}
# Confidences are calibrated at every second AUC of the grid, and overconfident at the others.
OVERCONFIDENT = 1.25


@cache
def population(law: str, accuracy: float, auc: float) -> Smooth:
    """The population of a law by formula; AUC .5 is a useless score."""
    calibrated = round(100 * auc) in (50, 60, 90)
    return SMOOTH[law](accuracy, auc, 1.0 if calibrated else OVERCONFIDENT)
