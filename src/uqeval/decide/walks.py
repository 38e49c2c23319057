"""Which regions are certified: every method tests sub-level sets {score ≤ t} and returns the largest one it may.

The first five bound the risk among the accepted rows; "rcps" and "crc" bound the share of all rows that are accepted
and wrong. All but "crc" hold with probability 1 − delta, given valid p-values; "crc" holds on average. The tested
thresholds depend on the scores only, never on the labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from uqeval._check import Float
from uqeval.decide.calibration import Calibration

__all__ = ["JOINT", "METHODS", "largest_certified", "shares"]

METHODS = ("fallback", "fst", "sgr", "bonferroni", "holm", "rcps", "crc")
JOINT = ("rcps", "crc")
_STARTS = 5
_SIZES = 50  # candidates of "bonferroni" and "holm"
_ROOM = 1 / 3  # of the rows: the most that the smallest region which a start can certify may take


def largest_certified(
    method: str, cal: Calibration, max_risk: float, delta: float, thresholds: Float | None = None
) -> float:
    """The largest certified threshold, or −inf. `thresholds` (ascending) fixes the candidates beforehand."""
    if method == "sgr":
        return _sgr(cal, max_risk, delta, thresholds)
    if method == "crc":
        return _crc(cal, max_risk, thresholds)
    if method == "rcps":
        return _rcps(cal, max_risk, delta, thresholds)
    if thresholds is None:
        thresholds = cal.grid(_SIZES if method in ("bonferroni", "holm") else None)
        thresholds = thresholds[cal.units(thresholds) >= cal.fewest_units(max_risk, delta)]
    if len(thresholds) == 0:
        return -math.inf
    p = cal.p_values(thresholds, max_risk)
    if method == "fallback":
        best = _walk(p, _budget(cal, thresholds, max_risk, delta))
    else:
        best = _RULES[method](p, delta)
    return float(thresholds[best]) if best >= 0 else -math.inf


def _walk(p: Float, budget: Float) -> int:
    """Wiens' fallback procedure (Wiens 2003; a case of Learn-then-Test, Angelopoulos et al. 2021).

    Each hypothesis brings its own share of delta; what a passed test used is handed to the next one.
    """
    best, alpha = -1, 0.0
    for k, own in enumerate(budget):
        alpha = alpha + own
        if p[k] <= alpha:
            best = k
        else:
            alpha = 0.0
    return best


def _budget(cal: Calibration, thresholds: Float, max_risk: float, delta: float) -> Float:
    """delta in equal parts at equally spaced starts, from the first region that such a part could certify.

    A start before that region is wasted: even without an error the test would fail. So there are five starts where
    the rows allow, and fewer where a fifth of delta would need more than a third of the rows.
    """
    starts = _starts(cal, max_risk, delta)
    first = int(np.searchsorted(cal.units(thresholds), cal.fewest_units(max_risk, delta / starts)))
    budget = np.zeros(len(thresholds))
    if first < len(thresholds):
        np.add.at(budget, first + np.arange(starts) * (len(thresholds) - first) // starts, delta / starts)
    return budget


def _starts(cal: Calibration, max_risk: float, delta: float, copies: float = 1.0) -> int:
    most, starts = _ROOM * copies * cal.units(cal.sorted[-1:])[0], _STARTS
    while starts > 1 and cal.fewest_units(max_risk, delta / starts) > most:
        starts -= 1
    return starts


def shares(
    method: str, cal: Calibration, max_risk: float, delta: float, thresholds: Float | None, copies: float = 1.0
) -> int:
    """In how many parts a method divides delta, for a sample that many times as large as this one."""
    m = None if thresholds is None else len(thresholds)
    if method == "sgr":
        return _tests(m or math.ceil(copies * cal.n))
    if method in ("bonferroni", "holm"):
        return m or _SIZES
    return _starts(cal, max_risk, delta, copies) if method == "fallback" else 1


def _tests(m: int) -> int:
    """The most tests of a binary search among m candidates."""
    return max(1, math.ceil(math.log2(m + 1)))


def _fst(p: Float, delta: float) -> int:
    """Fixed-sequence testing: all of delta from the smallest region upward, until the first failure."""
    failed = np.flatnonzero(p > delta)
    return int(failed[0]) - 1 if len(failed) else len(p) - 1


def _bonferroni(p: Float, delta: float) -> int:
    passed = np.flatnonzero(p * len(p) <= delta)
    return int(passed[-1]) if len(passed) else -1


def _holm(p: Float, delta: float) -> int:
    order = np.argsort(p, kind="stable")
    failed = np.flatnonzero(p[order] * np.arange(len(p), 0, -1) > delta)
    passed = order[: failed[0]] if len(failed) else order
    return int(passed.max()) if len(passed) else -1


_RULES: dict[str, Callable[[Float, float], int]] = {"fst": _fst, "bonferroni": _bonferroni, "holm": _holm}


def _sgr(cal: Calibration, max_risk: float, delta: float, thresholds: Float | None) -> float:
    """Selection with guaranteed risk (Geifman & El-Yaniv 2017): binary search over the number of accepted rows.

    Each of the at most ⌈log₂(m + 1)⌉ tests of m candidates gets its share of delta, and the largest region that
    passed is returned (not the last one looked at).
    """
    values = cal.sorted if thresholds is None else thresholds
    share = delta / _tests(len(values))
    return _last(values, lambda t: bool(cal.p_values(t, max_risk)[0] <= share))


def _crc(cal: Calibration, max_risk: float, thresholds: Float | None) -> float:
    """Conformal risk control (Angelopoulos et al. 2024): the loss of one more unit, all wrong, must still fit in.

    Units are rows, or clusters; a new cluster is taken to be no larger than the largest one seen.
    """
    largest = 1.0 if cal.cluster_rows is None else float(cal.cluster_rows.max())
    room = max_risk * cal.n - (1 - max_risk) * largest
    # Rounding must not cost a row: (errors + 1) / (n + 1) may equal the target exactly.
    room += 1e-9 * max(1.0, abs(room))
    return _last(cal.sorted if thresholds is None else thresholds, lambda t: bool(cal.bad(t)[0] <= room))


def _rcps(cal: Calibration, max_risk: float, delta: float, thresholds: Float | None) -> float:
    """Risk-controlling prediction sets (Bates et al. 2021): the joint risk only rises, so one walk needs no share."""
    if cal.clusters is None:  # the bound rises with the threshold: a binary search finds the same as the walk
        values = cal.sorted if thresholds is None else thresholds
        return _last(values, lambda t: bool(cal.p_values(t, max_risk, joint=True)[0] <= delta))
    values = cal.grid() if thresholds is None else thresholds
    best = _fst(cal.p_values(values, max_risk, joint=True), delta)
    return float(values[best]) if best >= 0 else -math.inf


def _last(values: Float, passes: Callable[[Float], bool]) -> float:
    """The largest of the ascending values that passed, in a binary search; −inf if none did."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if passes(values[middle - 1 : middle]) else (low, middle - 1)
    return float(values[low - 1]) if low else -math.inf
