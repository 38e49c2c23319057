"""Data laws whose true risk below every threshold is known, for the simulations of `test_guarantees_slow`.

A score is uniform on (0, 1) (or rounded up to eighths), so that P(score ≤ t) = t. A law says how probable an error is
at each score, and how much of it lies below t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from uqeval.decide.calibration import Calibration

ICC = 0.5  # of the scores, and of the errors, inside a patient


@dataclass(frozen=True)
class Law:
    """Chance of an error (or mean loss) at a score, and its integral from 0."""

    chance: Callable
    total: Callable

    def risk(self, value):
        """True risk of {score ≤ value}; 0 where nothing is accepted."""
        t = np.clip(value, 0.0, 1.0)
        return np.where(t > 0, self.total(t) / np.where(t > 0, t, 1.0), 0.0)

    def joint(self, value):
        """True P(accepted and wrong)."""
        return self.total(np.clip(value, 0.0, 1.0))


def mono(gamma):
    """The risk rises and crosses gamma at a coverage of 0.8."""
    return Law(lambda u: gamma * 3 * u**2 / 0.64, lambda t: gamma * t**3 / 0.64)


def bump(gamma):
    """A fifth of gamma is confidently wrong (1% of all rows at 0.05), then the risk falls, and crosses gamma at 0.8."""
    edge, steep = 0.04, 0.6 * gamma / 0.76**3
    return Law(
        lambda u: np.where(u <= edge, 5 * gamma, 3 * steep * np.maximum(u - edge, 0) ** 2),
        lambda t: 5 * gamma * np.minimum(t, edge) + steep * np.maximum(t - edge, 0) ** 3,
    )


def flat(gamma):
    """Every region is just too risky: whatever is accepted is a violation."""
    return Law(lambda u: np.full_like(u, 1.002 * gamma), lambda t: 1.002 * gamma * t)


def stairs(*gammas):
    """The risk stays just above each target in turn: all of them are hard at once."""
    starts = np.linspace(0, 1, len(gammas) + 1)[:-1]
    knots, totals = [0.0], [0.0]
    for k, gamma in enumerate(gammas):
        level, end = 1.002 * gamma, starts[k + 1] if k + 1 < len(gammas) else 1.0
        # As steep as an error rate of 0.95 allows, up to the next level.
        begin = (0.95 * knots[-1] - totals[-1]) / (0.95 - level)
        if k:
            knots.append(begin)
            totals.append(level * begin)
        knots.append(end)
        totals.append(level * end)
    x, y = np.array(knots), np.array(totals)
    slopes = np.diff(y) / np.diff(x)
    return Law(lambda u: slopes[np.clip(np.searchsorted(x, u) - 1, 0, len(slopes) - 1)], lambda t: np.interp(t, x, y))


LAWS = {"mono": mono, "bump": bump, "flat": flat}


@dataclass(frozen=True)
class Draw:
    """Uniform scores, uniform luck (below its chance a row is wrong), patients."""

    score: np.ndarray
    where: np.ndarray  # what the score was before rounding
    luck: np.ndarray
    patients: np.ndarray | None

    def errors(self, law):
        return (self.luck < law.chance(self.where)).astype(np.uint8)

    def losses(self, law):
        """Continuous in (0, 1), of mean law.chance: E[U^a] = 1 / (1 + a)."""
        r = law.chance(self.where)
        with np.errstate(divide="ignore"):
            return self.luck ** (1 / r - 1)


def draw(design, n, rng):
    """About n rows: "rows", "ties" (8 scores); patients of about 5 rows ("poisson"), of 10 alike ("tens"), of 1 or 20
    alike ("uneven")."""
    if design in ("rows", "ties"):
        where, luck = rng.random(n), rng.random(n)
        return Draw(np.ceil(8 * where) / 8 if design == "ties" else where, where, luck, None)
    if design == "poisson":
        size = rng.poisson(5, n // 5)
        patients = np.repeat(np.arange(np.count_nonzero(size)), size[size > 0])
        score, luck = (shared(patients, ICC, rng) for _ in range(2))
    elif design == "uneven":
        size = np.where(rng.random(n // 3) < 0.1, 20, 1)
        patients = np.repeat(np.arange(len(size)), size)
        score, luck = (rng.random(len(size))[patients] for _ in range(2))
    else:
        patients = np.repeat(np.arange(n // 10), 10)
        score, luck = shared(patients, ICC, rng), rng.random(n // 10)[patients]
    return Draw(score, score, luck, patients)


def shared(patients, icc, rng):
    """Uniform, with a normal patient effect."""
    effect = rng.normal(size=patients[-1] + 1)[patients]
    return ndtr(np.sqrt(icc) * effect + np.sqrt(1 - icc) * rng.normal(size=len(patients)))


class Remembering(Calibration):
    """A calibration that several walks share: the p-value of each threshold is worked out once."""

    def p_values(self, thresholds, max_risk, *, joint=False, copies=1.0):
        known = self.__dict__.setdefault("_known", {}).setdefault((max_risk, joint, copies), {})
        new = np.array([t for t in thresholds.tolist() if t not in known])
        known.update(zip(new.tolist(), super().p_values(new, max_risk, joint=joint, copies=copies), strict=True))
        return np.array([known[t] for t in thresholds.tolist()])


# ---- clusters whose size tells whether they are wrong -----------------------------------------------------------

TELLING = [  # rows of a wrong patient (a right one has a single row), patients, whether its rows share a score
    (big, patients, whole) for big in (5, 20) for patients in (100, 300, 1000, 3000) for whole in (False, True)
]


def draw_telling(patients, big, whole, risk, rng):
    """Wrong patients have `big` rows, right ones one; at every threshold a share `risk` of the rows is wrong."""
    wrong = rng.random(patients) < risk / (big * (1 - risk) + risk)
    clusters = np.repeat(np.arange(patients), np.where(wrong, big, 1))
    score = rng.random(patients)[clusters] if whole else rng.random(len(clusters))
    return score, wrong[clusters].astype(np.uint8), clusters


def draw_moderate(patients, law, rng):
    """1 + Poisson(5) rows each, whose scores and luck share a patient effect."""
    clusters = np.repeat(np.arange(patients), 1 + rng.poisson(5, patients))
    score, luck = (shared(clusters, ICC, rng) for _ in range(2))
    return score, (luck < law.chance(score)).astype(np.uint8), clusters


# ---- weighted rows ----------------------------------------------------------------------------------------------

LARGEST = 5.0  # of the lognormal weights, which are drawn again above it


def draw_weighted(design, n, rng):
    """Scores, luck, weights, and the largest weight there can be; by weight the scores are uniform on (0, 1).

    "oversampled": the uncertain half comes ten times as often, and weighs a tenth; "lognormal": weights of their own.
    """
    if design == "oversampled":
        score = (rng.random(n) + (rng.random(n) < 10 / 11)) / 2
        return score, rng.random(n), np.where(score > 0.5, 1.0, 10.0), 10.0
    weights = np.exp(rng.normal(0, 0.5, 2 * n + 50))
    return rng.random(n), rng.random(n), weights[weights <= LARGEST][:n], LARGEST


# ---- the step-down walk: rows at which the risk is just too high, or just low enough ----------------------------

STEPS = [  # target, delta, rows
    *((0.05, 0.1, 300), (0.05, 0.05, 1000), (0.2, 0.1, 300), (0.02, 0.1, 300), (0.05, 0.1, 20_000))
]
WAVES = [  # where the risk of a region turns from just above the target to below it and back; how far below
    *(((0.4, 0.42), 0.3), ((0.6, 0.8), 0.1), ((0.76, 0.8), 0.3), ((0.8, 0.9), 0.1), ((0.76, 0.9), 0.6)),
    *(((0.3, 0.35, 0.6, 0.65), 0.1), ((0.1, 0.15, 0.3, 0.35, 0.7, 0.75), 0.2), ((), 0.0)),
]


def wave(gamma, turns, depth):
    """The risk of {score ≤ t} is 1.0005·gamma up to the first turn, (1 − depth)·gamma up to the second, and so on, as
    far as error rates between 0 and 1 allow."""
    x = np.linspace(0, 1, 2001)
    total = np.zeros(len(x))
    for k in range(1, len(x)):
        low = int(np.searchsorted(turns, x[k], side="right")) % 2
        wanted = gamma * (1 - depth if low else 1.0005) * x[k]
        total[k] = np.clip(wanted, total[k - 1], total[k - 1] + x[k] - x[k - 1])
    slopes = np.diff(total) / np.diff(x)
    return Law(lambda u: slopes[np.minimum((u * 2000).astype(int), 1999)], lambda t: np.interp(t, x, total))


def steep(gamma):
    """The risk rises late, and crosses gamma at 0.8."""
    return Law(lambda u: gamma * 5 * u**4 / 0.8**4, lambda t: gamma * t**5 / 0.8**4)


GAINS = [  # law, target, delta, rows; a floor of the gain in mean coverage over "fallback"
    *((mono, 0.05, 0.05, 300), (steep, 0.05, 0.05, 300), (mono, 0.02, 0.05, 1000)),
    *((bump, 0.02, 0.05, 1000), (mono, 0.02, 0.1, 300), (mono, 0.05, 0.05, 5000)),
]
