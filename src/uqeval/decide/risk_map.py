"""The map ψ from a prescribed risk to the threshold that keeps it, with a band that holds for all risks at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int, Nan, check_level
from uqeval._errors import InputError
from uqeval._result import number
from uqeval.decide import bounds
from uqeval.decide.calibration import Calibration
from uqeval.decide.outcome import cluster_intervals
from uqeval.decide.results import Curve, with_notes
from uqeval.decide.rows import (
    bounded_rows,
    check_candidates,
    check_target,
    clean_rows,
    find_target,
    note_few_clusters,
    only_score,
    refuse_weights,
    warned,
)
from uqeval.inference.forms import risk_band
from uqeval.inputs import Predictions


class Psi(NamedTuple):
    """Thresholds for one prescribed risk: as observed, and the ends of the simultaneous band (−inf: none)."""

    max_risk: float
    value: float  # the largest threshold whose observed risk is at most max_risk
    low: float  # the largest one whose risk is certainly low enough: safe for all risks at once
    high: float  # the largest one whose risk may be low enough


@dataclass(frozen=True)
class RiskMap(Curve):
    """Risk inside the sub-level sets {score ≤ threshold}, with bands; a row per candidate threshold, ascending."""

    n: int
    level: float
    what: str
    score: str | None
    threshold: Float = field(repr=False)
    coverage: Float = field(repr=False)
    risk: Float = field(repr=False)
    low: Float = field(repr=False)  # pointwise: right for one threshold fixed beforehand
    high: Float = field(repr=False)
    band_low: Float = field(repr=False)  # simultaneous: right for all thresholds at once
    band_high: Float = field(repr=False)
    accepted: Int = field(repr=False)
    bad: Float = field(repr=False)
    warnings: tuple[str, ...] = ()

    def psi(self, max_risk: float) -> Psi:
        """The threshold for a prescribed risk, with its band.

        Examples
        --------
        >>> found = risk_map([0.1 * k for k in range(100)], [0] * 60 + [0, 1] * 20).psi(0.1)
        >>> round(found.value, 3), found.low <= found.value <= found.high
        (7.4, True)
        """
        gamma = check_target(max_risk, "Pass one number here; `table` takes several.")
        return Psi(gamma, *(self._largest(risk <= gamma) for risk in (self.risk, self.band_high, self.band_low)))

    def _largest(self, kept: NDArray[np.bool_]) -> float:
        return float(self.threshold[kept][-1]) if kept.any() else -math.inf

    def table(self, max_risks: ArrayLike | None = None) -> list[Psi]:
        """ψ at several risks; by default at every observed one."""
        risks = np.unique(self.risk) if max_risks is None else np.atleast_1d(np.asarray(max_risks, dtype=np.float64))
        return [self.psi(float(r)) for r in risks if max_risks is not None or 0 < r < 1]

    def __str__(self) -> str:
        lines = [f"{self.n:,} rows, {100 * self.level:.6g}% band for all thresholds at once"]
        lines.append("act below      coverage   risk (band)")
        step = max(1, len(self) // 20)
        for k in sorted({*range(0, len(self), step), len(self) - 1}):
            band = f"{number(self.risk[k])} ({number(self.band_low[k])}–{number(self.band_high[k])})"
            lines.append(f"{self.threshold[k]:<13.6g}  {self.coverage[k]:>7.1%}   {band}")
        return with_notes(lines, self.warnings)


def risk_map(
    score: ArrayLike | str,
    error: ArrayLike | None = None,
    *,
    predictions: Predictions | None = None,
    risk: str = "error",
    level: float = 0.95,
    clusters: ArrayLike | None = None,
    thresholds: ArrayLike | None = None,
    tie: str = "drop",
    largest_cluster: int | None = None,
    nan: Nan = "raise",
) -> RiskMap:
    """Risk below every threshold of a grid, with pointwise and simultaneous bands; read ψ from it.

    The curve of `metrics.mce_curve` (or of `mbc_curve`, with ``risk="misaligned"``) at up to 100 equally spaced numbers
    of accepted rows. The simultaneous band is exact for 0/1 errors of independent rows and thresholds fixed beforehand
    (Clopper–Pearson at 1 − (1 − level)/m for each of m thresholds); a loss in [0, 1] gets Hoeffding–Bentkus bounds,
    clusters a t interval on the logit scale, joined with the risks that the test of `choose_threshold` lets be.

    Parameters
    ----------
    score, error, predictions, risk, clusters, thresholds, tie, largest_cluster, nan
        As for `choose_threshold`, one score.
    level : float
        Confidence of each of the two bands.

    Returns
    -------
    RiskMap
        ``map.psi(0.05)`` is the threshold for a risk of 5%, with a band that holds for all risks at once.

    Examples
    --------
    >>> import uqeval as uq
    >>> found = uq.risk_map("entropy", predictions=uq.datasets.example())
    >>> found.psi(0.05).low < found.psi(0.05).value < found.psi(0.05).high
    True
    """
    level = check_level(level)
    with warned() as notes:
        target = find_target(error, predictions, risk, clusters, tie)
        refuse_weights(target)
        name, values = only_score("score", score, predictions, "Pass one; call risk_map once for each.")
        cal = clean_rows({name: values}, target, nan)[name]
        note_few_clusters(cal)
        cal = replace(cal, largest=bounded_rows(largest_cluster, cal.cluster_rows))
    return map_rows(cal, name, level, check_candidates(thresholds), tuple(notes))


def map_rows(
    cal: Calibration, name: str | None, level: float, fixed: Float | None = None, notes: tuple[str, ...] = ()
) -> RiskMap:
    """The map of clean rows, at fixed thresholds or at those of the grid."""
    candidates = cal.grid() if fixed is None else fixed
    accepted = cal.accepted(candidates)
    candidates, accepted = candidates[accepted > 0], accepted[accepted > 0]
    if len(candidates) == 0:
        raise InputError("`thresholds` lie below all scores: there is nothing to map.")
    bad = cal.bad(candidates)
    bands = (band(cal, accepted, bad, sure) for sure in (level, 1 - (1 - level) / len(candidates)))
    pointwise, simultaneous = bands
    curve = (candidates, accepted / cal.n, bad / accepted, *pointwise, *simultaneous, accepted, bad)
    return RiskMap(cal.n, level, cal.what, name, *curve, warnings=notes)


def band(cal: Calibration, accepted: Int, bad: Float, level: float) -> tuple[Float, Float]:
    """Two-sided bounds of the risk of so many accepted rows with such a loss."""
    if cal.clusters is not None:
        return _cluster_band(cal.moments_at(accepted), level, cal.largest_unit)
    if cal.binary:
        return risk_band(accepted, bad, level)
    alpha = (1 - level) / 2
    return 1 - _upper(accepted - bad, accepted, alpha), _upper(bad, accepted, alpha)


def _upper(total: Float, accepted: Int, alpha: float) -> Float:
    """The largest mean loss that Hoeffding–Bentkus does not rule out."""
    return _largest_risk(total / accepted, lambda risk: bounds.hoeffding_bentkus_p(total, accepted, risk) > alpha)


def _cluster_band(of: bounds.Moments, level: float, largest: float) -> tuple[Float, Float]:
    """The intervals of each region, widened to the risks that the test of `choose_threshold` does not rule out: a wrong
    (or a right) cluster of the largest size may be missing by luck."""
    right = of._replace(loss=of.rows - of.loss, loss2=of.rows2 - 2 * of.both + of.loss2, both=of.rows2 - of.both)
    wrong_end, right_end = (_cluster_upper(part, (1 - level) / 2, largest) for part in (of, right))
    low, high = cluster_intervals(of, level)
    return np.minimum(low, 1 - right_end), np.maximum(high, wrong_end)


def _cluster_upper(of: bounds.Moments, alpha: float, largest: float) -> Float:
    return _largest_risk(of.loss / of.rows, lambda risk: bounds.cluster_p(of, risk, largest=largest) > alpha)


def _largest_risk(observed: Float, possible: Callable[[Float], NDArray[np.bool_]]) -> Float:
    """The largest risk that is possible, by bisection from the observed ones upward."""
    low, high = observed, np.ones(len(observed))
    for _ in range(50):
        middle = (low + high) / 2
        kept = possible(np.minimum(middle, 1 - 1e-15))
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return high
