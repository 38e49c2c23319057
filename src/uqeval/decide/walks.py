"""Which regions are certified: every method tests sub-level sets {score ≤ t} and returns the largest one it may.

The first six bound the risk among the accepted rows; "rcps" and "crc" bound the share of all rows that are accepted
and wrong. All but "crc" hold with probability 1 − delta, given valid p-values; "crc" holds on average. The tested
thresholds depend on the scores only, never on the labels.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval.decide import step_down
from uqeval.decide.calibration import Calibration

METHODS = ("step-down", "fallback", "fst", "sgr", "bonferroni", "holm", "rcps", "crc")
DEFAULT = "step-down"
JOINT = ("rcps", "crc")
_STARTS = 5
_SIZES = 50  # candidates of "bonferroni" and "holm"
_KEPT = 0.2  # of delta, for half of the rows, where there is only one start
_ROOM = 1 / 3  # of the rows: the most that the smallest region which a start can certify may take


def largest_certified(
    method: str, cal: Calibration, max_risk: float, delta: float, thresholds: Float | None = None
) -> float:
    """The largest certified threshold, or −inf. `thresholds` (ascending) fixes the candidates beforehand."""
    if method in _SEARCHES:
        values = cal.sorted if thresholds is None else thresholds
        return _last(values, _SEARCHES[method](cal, max_risk, delta, len(values)))
    if thresholds is None:
        thresholds = cal.grid(_SIZES if method in ("bonferroni", "holm") else None)
    best_p = cal.best_p(thresholds, max_risk)
    thresholds, best_p = thresholds[best_p <= delta], best_p[best_p <= delta]  # the others have no hope
    if len(thresholds) == 0:
        return -math.inf
    p = cal.p_values(thresholds, max_risk)
    if method in ("step-down", "fallback"):
        budget = _budget(best_p, cal.accepted(thresholds), cal.n, delta)
        if method == "step-down" and cal.counts and len(p) <= step_down.MOST:
            best = step_down.largest(p, cal.accepted(thresholds), max_risk, delta, budget)
        else:
            best = _walk(p, budget)
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


def _budget(best_p: Float, rows: Int, total: float, delta: float) -> Float:
    """delta in equal parts at equally spaced starts, from the first region that such a part could certify.

    A start before that region is wasted: even without an error the test would fail. So there are five starts where
    the rows allow, and fewer where a fifth of delta would need more than a third of the rows. A single start would
    lose everything to one confident error: then a fifth of delta waits at half of the rows. `best_p` and `rows` say
    nothing of the losses.
    """
    budget, starts = np.zeros(len(best_p)), _starts(best_p, rows, total, delta)
    if starts > 1:
        first = _first(best_p <= delta / starts)
        np.add.at(budget, first + np.arange(starts) * (len(best_p) - first) // starts, delta / starts)
        return budget
    first, half = _first(best_p <= (1 - _KEPT) * delta), _first(rows >= total / 2)
    if first < half < len(best_p):
        budget[[first, half]] = (1 - _KEPT) * delta, _KEPT * delta
    else:
        budget[0] = delta
    return budget


def _starts(best_p: Float, rows: Int, total: float, delta: float) -> int:
    """As many starts as can pass within a third of the rows, five at most."""
    near = best_p[rows <= _ROOM * total].min(initial=1.0)
    return next((j for j in range(_STARTS, 1, -1) if near <= delta / j), 1)


def _first(passes: NDArray[np.bool_]) -> int:
    """Where it first holds; the length where it never does."""
    return int(passes.argmax()) if passes.any() else len(passes)


def shares(
    method: str, cal: Calibration, max_risk: float, delta: float, thresholds: Float | None, copies: float = 1.0
) -> float:
    """In how many parts a method divides delta, for a sample that many times as large as this one."""
    m = None if thresholds is None else len(thresholds)
    if method == "sgr":
        return _tests(m or math.ceil(copies * cal.n))
    if method in ("bonferroni", "holm"):
        return m or _SIZES
    if method not in ("step-down", "fallback"):
        return 1
    grid = cal.grid() if thresholds is None else thresholds
    starts = _starts(cal.best_p(grid, max_risk, copies=copies), cal.accepted(grid), cal.n, delta)
    return starts if starts > 1 else 1 / (1 - _KEPT)


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


Passes = Callable[[Float], bool]  # whether the region below a value, given as an array of one, is certified


def _sgr(cal: Calibration, max_risk: float, delta: float, m: int) -> Passes:
    """Selection with guaranteed risk (Geifman & El-Yaniv 2017): binary search over the number of accepted rows.

    Each of the at most ⌈log₂(m + 1)⌉ tests of m candidates gets its share of delta, and the largest region that
    passed is returned (not the last one looked at).
    """
    share = delta / _tests(m)
    return lambda t: bool(cal.p_values(t, max_risk)[0] <= share)


def _crc(cal: Calibration, max_risk: float, delta: float, m: int) -> Passes:
    """Conformal risk control (Angelopoulos et al. 2024): the loss of one more unit, all wrong, must still fit in.

    Units are rows; or clusters, whose rows then share one vote. With weights w it is applied to w·(loss − max_risk),
    which grows with the threshold as the loss does: one more row of the largest weight, all wrong, must fit in.
    """
    votes, most = cal.ballots
    room = max_risk * (votes + most) - most
    # Rounding must not cost a row: (errors + 1) / (n + 1) may equal the target exactly.
    room += 1e-9 * max(1.0, abs(room))
    return lambda t: cal.votes(float(t[0])) <= room


def _rcps(cal: Calibration, max_risk: float, delta: float, m: int) -> Passes:
    """Risk-controlling prediction sets (Bates et al. 2021): the joint risk only rises, so one walk needs no share.

    For independent rows: there the bound rises with the threshold, and a binary search finds what the walk would.
    """
    return lambda t: bool(cal.p_values(t, max_risk, joint=True)[0] <= delta)


_SEARCHES = {"sgr": _sgr, "crc": _crc, "rcps": _rcps}


def _last(values: Float, passes: Passes) -> float:
    """The largest of the ascending values that passed, in a binary search; −inf if none did."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if passes(values[middle - 1 : middle]) else (low, middle - 1)
    return float(values[low - 1]) if low else -math.inf
