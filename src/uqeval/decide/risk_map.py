"""The map ψ from a prescribed risk to the threshold that keeps it, with a band that holds for all risks at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Int, Nan, check_level
from uqeval._errors import InputError, collected, notify
from uqeval._result import Result, number
from uqeval.decide import bounds
from uqeval.decide.calibration import Calibration
from uqeval.decide.monitor import cluster_interval
from uqeval.decide.rows import (
    check_candidates,
    check_targets,
    clean_rows,
    find_scores,
    find_target,
    note_few_clusters,
)
from uqeval.inference.forms import risk_band
from uqeval.inputs import Predictions

__all__ = ["Psi", "RiskMap", "risk_map"]


class Psi(NamedTuple):
    """Thresholds for one prescribed risk: as observed, and the ends of the simultaneous band (−inf: none)."""

    max_risk: float
    value: float  # the largest threshold whose observed risk is at most max_risk
    low: float  # the largest one whose risk is certainly low enough: safe for all risks at once
    high: float  # the largest one whose risk may be low enough


@dataclass(frozen=True)
class RiskMap(Result):
    """Risk inside the sub-level sets {score ≤ threshold}, with bands; a row per candidate threshold, ascending."""

    threshold: Float = field(repr=False)
    coverage: Float = field(repr=False)
    risk: Float = field(repr=False)
    low: Float = field(repr=False)  # pointwise: right for one threshold fixed beforehand
    high: Float = field(repr=False)
    band_low: Float = field(repr=False)  # simultaneous: right for all thresholds at once
    band_high: Float = field(repr=False)
    accepted: Int = field(repr=False)
    bad: Float = field(repr=False)
    n: int
    level: float
    what: str
    score: str | None = None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.threshold)

    def psi(self, max_risk: float) -> Psi:
        """The threshold for a prescribed risk, with its band.

        Examples
        --------
        >>> found = risk_map([0.1 * k for k in range(100)], [0] * 60 + [0, 1] * 20).psi(0.1)
        >>> round(found.value, 3), found.low <= found.value <= found.high
        (7.4, True)
        """
        if np.ndim(max_risk) != 0:
            raise InputError(f"`max_risk` is {max_risk!r}. Pass one number here; `table` takes several.")
        (gamma,) = check_targets(max_risk)
        return Psi(gamma, *(self._largest(risk <= gamma) for risk in (self.risk, self.band_high, self.band_low)))

    def _largest(self, kept: NDArray[np.bool_]) -> float:
        return float(self.threshold[kept][-1]) if kept.any() else -math.inf

    def table(self, max_risks: ArrayLike | None = None) -> list[Psi]:
        """ψ at several risks; by default at every observed one."""
        risks = np.unique(self.risk) if max_risks is None else np.atleast_1d(np.asarray(max_risks, dtype=np.float64))
        return [self.psi(float(r)) for r in risks if max_risks is not None or 0 < r < 1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the columns as lists."""
        columns = {name: getattr(self, name).tolist() for name in _COLUMNS}
        plain = {"n": self.n, "level": self.level, "what": self.what, "score": self.score}
        return plain | columns | {"warnings": list(self.warnings)}

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per threshold."""
        columns = [getattr(self, name).tolist() for name in _COLUMNS]
        return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

    def __str__(self) -> str:
        lines = [f"{self.n:,} rows, {100 * self.level:.6g}% band for all thresholds at once"]
        lines.append("act below      coverage   risk (band)")
        step = max(1, len(self) // 20)
        for k in sorted({*range(0, len(self), step), len(self) - 1}):
            band = f"{number(self.risk[k])} ({number(self.band_low[k])}–{number(self.band_high[k])})"
            lines.append(f"{self.threshold[k]:<13.6g}  {self.coverage[k]:>7.1%}   {band}")
        return "\n".join((*lines, *(f"! {note}" for note in self.warnings)))


_COLUMNS = ("threshold", "coverage", "risk", "low", "high", "band_low", "band_high", "accepted", "bad")


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
    nan: Nan = "raise",
) -> RiskMap:
    """Risk below every threshold of a grid, with pointwise and simultaneous bands; read ψ from it.

    The curve of `metrics.mce_curve` (or of `mbc_curve`, with ``risk="misaligned"``) at up to 100 equally spaced numbers
    of accepted rows. The simultaneous band is exact for 0/1 errors of independent rows and thresholds fixed beforehand
    (Clopper–Pearson at 1 − (1 − level)/m for each of m thresholds); a loss in [0, 1] gets Hoeffding–Bentkus bounds,
    clusters a t interval on the logit scale.

    Parameters
    ----------
    score, error, predictions, risk, clusters, thresholds, tie, nan
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
    with collected() as raised:
        target = find_target(error, predictions, risk, clusters, tie)
        scores = find_scores(score, predictions)
        if len(scores) != 1:
            raise InputError(f"`score` holds {len(scores)} scores. Pass one; call risk_map once for each.")
        ((name, cal),) = clean_rows(scores, target, nan).items()
        note_few_clusters(cal)
    for note in raised:
        notify(note, stacklevel=2)
    candidates = cal.grid() if thresholds is None else check_candidates(thresholds)
    accepted = cal.accepted(candidates)
    candidates, accepted = candidates[accepted > 0], accepted[accepted > 0]
    if len(candidates) == 0:
        raise InputError("`thresholds` lie below all scores: there is nothing to map.")
    bad = cal.bad(candidates)
    low, high = _band(cal, candidates, level)
    band_low, band_high = _band(cal, candidates, 1 - (1 - level) / len(candidates))
    return RiskMap(
        threshold=candidates,
        coverage=accepted / cal.n,
        risk=bad / accepted,
        low=low,
        high=high,
        band_low=band_low,
        band_high=band_high,
        accepted=accepted,
        bad=bad,
        n=cal.n,
        level=level,
        what=cal.what,
        score=name,
        warnings=tuple(dict.fromkeys(raised)),
    )


def _band(cal: Calibration, thresholds: Float, level: float) -> tuple[Float, Float]:
    """Two-sided bounds of the risk below each threshold."""
    accepted, bad = cal.accepted(thresholds), cal.bad(thresholds)
    if cal.clusters is not None:
        ends = [cluster_interval(total, rows, level) for total, rows in cal.cluster_totals(thresholds)]
        return np.array([end.low for end in ends]), np.array([end.high for end in ends])
    if cal.binary:
        return risk_band(accepted, bad, level)
    alpha = (1 - level) / 2
    return 1 - _upper(accepted - bad, accepted, alpha), _upper(bad, accepted, alpha)


def _upper(total: Float, accepted: Int, alpha: float) -> Float:
    """The largest mean loss that Hoeffding–Bentkus does not rule out, by bisection."""
    low, high = total / accepted, np.ones(len(total))
    for _ in range(50):
        middle = (low + high) / 2
        out = bounds.hoeffding_bentkus_p(total, accepted, np.minimum(middle, 1 - 1e-15)) <= alpha
        low, high = np.where(out, low, middle), np.where(out, middle, high)
    return high
