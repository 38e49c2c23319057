"""Several differences at once: max-t, Holm, and which candidates cannot be told apart."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from uqeval._check import Float
from uqeval.inference.forms import t_quantile
from uqeval.inference.paired import Contrast
from uqeval.inference.tally import JointTally

_DRAWS = 50_000
_CHUNK = 1_000_000  # numbers held at a time


class Adjusted(NamedTuple):
    """Adjusted p-values, and the number of standard errors to each side of a difference."""

    p: list[float]
    width: list[float]


def adjust(
    how: str,
    joint: JointTally,
    pairs: list[tuple[int, int]],
    found: list[Contrast],
    level: float,
    rng: np.random.Generator,
) -> Adjusted:
    """`how` is "max-t", "holm" or "none". Differences without variance have p = 1 and take no part."""
    tested = [k for k, c in enumerate(found) if c.se > 0]
    p = [c.p for c in found]
    width = [t_quantile(level, c.df) if c.se > 0 else 0.0 for c in found]
    if how == "none" or len(tested) < 2:
        return Adjusted(p, width)
    if how == "holm":
        p = holm(p, tested)
        # Bonferroni intervals: simultaneous, and never shorter than what Holm's tests would allow.
        simultaneous = 1 - (1 - level) / len(tested)
        width = [t_quantile(simultaneous, c.df) if c.se > 0 else 0.0 for c in found]
        return Adjusted(p, width)
    df = float(np.median([found[k].df for k in tested]))
    largest = _largest(joint, [pairs[k] for k in tested], [found[k] for k in tested], df, rng)
    bound = float(np.quantile(largest, level))
    for k in tested:
        exceeded = len(largest) - int(np.searchsorted(largest, abs(found[k].t), side="left"))
        p[k] = max(p[k], (1 + exceeded) / (1 + len(largest)))
    return Adjusted(p, [max(bound, w) if found[k].se > 0 else 0.0 for k, w in enumerate(width)])


def holm(p: Sequence[float], tested: Sequence[int]) -> list[float]:
    """Holm's steps over the p-values that are tested; the others stay."""
    found, running = list(p), 0.0
    for place, k in enumerate(sorted(tested, key=lambda k: p[k])):
        running = max(running, min(1.0, p[k] * (len(tested) - place)))
        found[k] = running
    return found


def _largest(
    joint: JointTally, pairs: list[tuple[int, int]], found: list[Contrast], df: float, rng: np.random.Generator
) -> Float:
    """Sorted draws of the largest |t| over all pairs when no difference is there (multivariate t).

    Pairs that are all but identical are drawn on their own: their covariance with the others is lost to rounding, and
    independence is the cautious choice.
    """
    covariance = joint.covariance()
    root = _root(np.where(np.isnan(covariance), 0.0, covariance))
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    variance = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
    alone = np.array([c.close for c in found]) | ~(variance > 0)
    contrasts = (root[a] - root[b]) / np.sqrt(np.where(alone, 1.0, variance))[:, None]
    result = np.empty(_DRAWS)
    chunk = max(1, _CHUNK // len(pairs))
    for at in range(0, _DRAWS, chunk):
        size = min(chunk, _DRAWS - at)
        t = contrasts @ rng.standard_normal((root.shape[1], size))
        t[alone] = rng.standard_normal((int(alone.sum()), size))
        spread = np.sqrt(rng.chisquare(df, size) / df) if 0 < df < 1e9 else np.ones(size)
        with np.errstate(divide="ignore"):
            result[at : at + size] = np.abs(t, out=t).max(axis=0) / spread
    result.sort()
    return result


def _root(covariance: Float) -> Float:
    """A matrix R with R Rᵀ = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def bootstrap_contrasts(
    values: Float, drawn: Float, pairs: list[tuple[int, int]], how: str, level: float
) -> tuple[list[Contrast], list[tuple[float, float, float]]]:
    """Differences, and their low, high and adjusted p, from (K, resamples) bootstrap values.

    One by one: percentile interval and its p-value. Max-t: the largest |resampled − observed|/se over all pairs.
    """
    count = drawn.shape[1]
    gaps = np.stack([drawn[a] - drawn[b] for a, b in pairs])
    observed = np.array([values[a] - values[b] for a, b in pairs])
    se = gaps.std(axis=1, ddof=1) if count > 1 else np.full(len(pairs), math.nan)
    se = np.where(se < 1e-15, 0.0, se)
    tested = se > 0
    beyond = np.minimum((gaps <= 0).sum(axis=1), (gaps >= 0).sum(axis=1))
    p = np.where(tested, np.minimum(1.0, 2 * (1 + beyond) / (1 + count)), np.where(se == 0, 1.0, math.nan))
    adjusted = p.copy()
    shares = np.full(len(pairs), level)
    order = [int(k) for k in np.argsort(p, kind="stable") if tested[k]]
    low, high = observed.copy(), observed.copy()
    if how == "max-t" and len(order) > 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.abs(gaps - observed[:, None])[tested] / se[tested][:, None]
        largest = np.sort(apart.max(axis=0))
        bound = float(np.quantile(largest, level))
        for k in order:
            exceeded = count - int(np.searchsorted(largest, abs(observed[k]) / se[k], side="left"))
            adjusted[k] = max(p[k], (1 + exceeded) / (1 + count))
            low[k], high[k] = observed[k] - bound * se[k], observed[k] + bound * se[k]
    else:
        if how == "holm":
            adjusted[:] = holm(p.tolist(), order)
            shares[:] = 1 - (1 - level) / max(1, len(order))
        for k in order:
            low[k], high[k] = np.quantile(gaps[k], [(1 - shares[k]) / 2, (1 + shares[k]) / 2])
    unknown = np.isnan(se) | ((se == 0) & (observed != 0))  # no variance, yet a difference: cannot be tested
    low, high = (np.where(unknown, math.nan, x) for x in (low, high))
    t = np.divide(observed, se, out=np.zeros(len(pairs)), where=se > 0)
    columns = (observed.tolist(), se.tolist(), t.tolist(), p.tolist())
    contrasts = [
        Contrast(gap, spread, math.inf, ratio, chance) for gap, spread, ratio, chance in zip(*columns, strict=True)
    ]
    return contrasts, [(float(low[k]), float(high[k]), float(adjusted[k])) for k in range(len(pairs))]


def cliques(names: list[str], values: Float, higher: bool, differ: set[frozenset[str]]) -> list[list[str]]:
    """Maximal runs of the ranking, best first, in which no pair was shown to differ."""
    order = [names[k] for k in np.argsort(-values if higher else values, kind="stable") if not math.isnan(values[k])]
    found: list[list[str]] = []
    covered = -1
    for start in range(len(order)):
        end = start
        while end + 1 < len(order) and all(
            frozenset((order[k], order[end + 1])) not in differ for k in range(start, end + 1)
        ):
            end += 1
        if end > covered:
            found.append(order[start : end + 1])
            covered = end
    return found


class Heterogeneity(NamedTuple):
    """Are the groups' true values equal? F test with (df, df2) degrees of freedom; groups that took no part."""

    statistic: float
    df: int
    df2: float
    p: float
    left_out: int = 0


def heterogeneity(
    values: Sequence[float] | Float, se: Sequence[float] | Float, df: Sequence[float] | Float
) -> Heterogeneity:
    """Welch's test (1951) that the values of independent groups are equal; each has degrees of freedom of its own.

    Groups without a finite value, a positive standard error and a positive df take no part; NaN where fewer than two
    are left.
    """
    from scipy.special import fdtrc

    x, variance, own = (np.array(given, dtype=np.float64) for given in (values, np.square(se), df))
    usable = np.isfinite(x) & (variance > 0) & np.isfinite(variance) & (own > 0)
    left_out, count = int((~usable).sum()), int(usable.sum())
    if count < 2:
        return Heterogeneity(math.nan, max(count - 1, 0), math.nan, math.nan, left_out)
    x, weight, own = x[usable], 1 / variance[usable], own[usable]
    share = weight / weight.sum()
    between = float((weight * (x - (share * x).sum()) ** 2).sum()) / (count - 1)
    lost = float(((1 - share) ** 2 / own).sum()) / (count**2 - 1)
    statistic = between / (1 + 2 * (count - 2) * lost)
    df2 = min(1 / (3 * lost), 1e9) if lost > 0 else 1e9
    return Heterogeneity(statistic, count - 1, df2, float(fdtrc(count - 1, df2, statistic)), left_out)
