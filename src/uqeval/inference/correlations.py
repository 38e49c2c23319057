"""Pearson correlation across models, and whether two metrics correlate differently with the same truth.

Fisher's interval assumes independent, normal units; models come in families and tails are heavy, so the default
uses influence values on the z scale, summed inside `groups`. "Significantly better" is a test of two dependent
correlations; that two Fisher intervals do not overlap is none.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Float, check_choice, check_codes, check_lengths, check_level, check_vector
from uqeval._errors import InputError, UndefinedMetricWarning, notify
from uqeval._result import Result, number
from uqeval.inference.forms import NAN, t_quantile, z_quantile
from uqeval.inference.result import Estimate


def pearson(
    x: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None, method: str = "influence", level: float = 0.95
) -> Estimate:
    """Pearson's r with an interval on Fisher's z scale.

    Parameters
    ----------
    x, y : array-like of shape (n,), n ≥ 4
        One entry per unit, as a model.
    groups : array-like of shape (n,), optional
        Families of units that are not independent (method "influence").
    method : "influence" or "fisher"
        Standard error from influence values, or Fisher's 1/√(n − 3) as most papers print.
    level : float
        Confidence level.

    Examples
    --------
    >>> print(pearson([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 6], method="fisher"))
    0.886 (0.264–0.987)
    """
    level = check_level(level)
    check_choice("method", method, ("influence", "fisher"))
    a, b = _clean(x, y, "x", "y")
    n = len(a)
    r = _r(a, b)
    if math.isnan(r):
        note = "the correlation is undefined: x or y is constant"
        notify(note, UndefinedMetricWarning)
        return Estimate(NAN, NAN, NAN, NAN, level, "undefined", n, degenerate=True, warnings=(note,))
    if groups is not None and method == "fisher":
        raise InputError('`groups` needs method="influence"; Fisher\'s interval takes all units as independent.')
    if abs(r) > 1 - 1e-12:
        r = math.copysign(1.0, r)
        return Estimate(r, NAN, NAN, 0.0, level, "none", n, degenerate=True)
    df, count = math.inf, None
    if method == "fisher":
        se = 1 / math.sqrt(n - 3)
    else:
        za, zb = _standard(a), _standard(b)
        f = za * zb - r / 2 * (za * za + zb * zb)
        if groups is not None:
            codes, names = check_codes("groups", groups)
            check_lengths(x=a, groups=codes)
            f, count = np.bincount(codes, weights=f).astype(np.float64), len(names)
            df = count - 1
            if count == 1:
                note = "a single group: no standard error or interval"
                notify(note)
                return Estimate(r, NAN, NAN, NAN, level, "none", n, n_clusters=1, warnings=(note,))
        se = math.sqrt(float((f * f).sum())) / n / (1 - r * r)
    half = (z_quantile(level) if math.isinf(df) else t_quantile(level, df)) * se
    low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    notes = (f"few groups ({count}): the interval is unreliable",) if count is not None and count < 10 else ()
    how = "Fisher z" if method == "fisher" else "influence on the z scale"
    for note in notes:
        notify(note)
    return Estimate(r, low, high, se * (1 - r * r), level, how, n, n_clusters=count, warnings=notes)


@dataclass(frozen=True)
class CorrelationTest(Result):
    """Two correlations with the same variable on the same units, first minus second."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float  # Williams
    statistic: float
    df: int
    p_steiger: float
    level: float
    n: int

    def __str__(self) -> str:
        return (
            f"{number(self.first)} − {number(self.second)} = {number(self.difference)} "
            f"({number(self.low)} to {number(self.high)}, Zou); Williams t({self.df}) = {self.statistic:.2f}, "
            f"p = {self.p:.4f}; Steiger p = {self.p_steiger:.4f}"
        )


def compare_correlations(
    first: ArrayLike, second: ArrayLike, truth: ArrayLike, *, level: float = 0.95
) -> CorrelationTest:
    """Does `first` correlate with `truth` more than `second` does? Williams' t, Steiger's z, Zou's interval.

    Examples
    --------
    >>> truth = [1, 2, 3, 4, 5, 6, 7, 8]
    >>> test = compare_correlations([1, 2, 3, 4, 5, 6, 8, 7], [3, 1, 2, 6, 5, 4, 8, 7], truth)
    >>> round(test.difference, 3)
    0.167
    """
    from scipy.special import ndtr, stdtr

    level = check_level(level)
    a, t = _clean(first, truth, "first", "truth")
    b, _ = _clean(second, truth, "second", "truth")
    n = len(t)
    r1, r2, r12 = _r(a, t), _r(b, t), _r(a, b)
    difference = r1 - r2
    if any(math.isnan(r) for r in (r1, r2, r12)):
        return CorrelationTest(r1, r2, difference, NAN, NAN, NAN, NAN, n - 3, NAN, level, n)
    if r12 <= -1 + 1e-12:  # a variable and its mirror image: the formulas are 0/0
        return CorrelationTest(r1, r2, difference, NAN, NAN, NAN, NAN, n - 3, NAN, level, n)
    if r12 >= 1 - 1e-12:  # the same variable twice
        return CorrelationTest(r1, r2, 0.0, 0.0, 0.0, 1.0, 0.0, n - 3, 1.0, level, n)
    mean = (r1 + r2) / 2
    det = max(0.0, 1 - r1**2 - r2**2 - r12**2 + 2 * r1 * r2 * r12)
    spread = 2 * (n - 1) / (n - 3) * det + mean**2 * (1 - r12) ** 3
    statistic = difference * math.sqrt((n - 1) * (1 + r12) / spread) if spread > 0 else NAN
    p = float(2 * stdtr(n - 3, -abs(statistic)))
    if max(abs(r1), abs(r2)) > 1 - 1e-12:
        return CorrelationTest(r1, r2, difference, NAN, NAN, p, statistic, n - 3, NAN, level, n)
    psi = r12 * (1 - 2 * mean**2) - mean**2 * (1 - 2 * mean**2 - r12**2) / 2
    shared = psi / (1 - mean**2) ** 2
    z = (math.atanh(r1) - math.atanh(r2)) * math.sqrt(n - 3) / math.sqrt(2 - 2 * shared)
    low, high = _zou(r1, r2, r12, n, level)
    return CorrelationTest(r1, r2, difference, low, high, p, statistic, n - 3, float(2 * ndtr(-abs(z))), level, n)


def _zou(r1: float, r2: float, r12: float, n: int, level: float) -> tuple[float, float]:
    """Zou (2007): the two Fisher intervals, joined by the correlation of the two estimates."""
    half = z_quantile(level) / math.sqrt(n - 3)
    l1, u1 = (math.tanh(math.atanh(r1) + sign * half) for sign in (-1, 1))
    l2, u2 = (math.tanh(math.atanh(r2) + sign * half) for sign in (-1, 1))
    c = ((r12 - r1 * r2 / 2) * (1 - r1**2 - r2**2 - r12**2) + r12**3) / ((1 - r1**2) * (1 - r2**2))
    below = (r1 - l1) ** 2 + (u2 - r2) ** 2 - 2 * c * (r1 - l1) * (u2 - r2)
    above = (u1 - r1) ** 2 + (r2 - l2) ** 2 - 2 * c * (u1 - r1) * (r2 - l2)
    return r1 - r2 - math.sqrt(max(0.0, below)), r1 - r2 + math.sqrt(max(0.0, above))


def _clean(x: ArrayLike, y: ArrayLike, first: str, second: str) -> tuple[Float, Float]:
    a, b = check_vector(first, x, hint="Drop those units."), check_vector(second, y, hint="Drop those units.")
    if check_lengths(**{first: a, second: b}) < 4:
        raise InputError(f"`{first}` has {len(a)} entries. A correlation with an interval needs at least 4.")
    return a, b


def _standard(x: Float) -> Float:
    x = x / np.abs(x).max()  # squares of very large or small numbers would leave the range of floats
    return (x - x.mean()) / x.std()


def _r(a: Float, b: Float) -> float:
    if a.min() == a.max() or b.min() == b.max():
        return NAN
    return max(-1.0, min(1.0, float((_standard(a) * _standard(b)).mean())))
