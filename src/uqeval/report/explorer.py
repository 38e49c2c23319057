"""What the threshold explorer shows, computed beforehand: the risk below every threshold, the threshold for every risk.

Each certified threshold is the one that `choose_threshold` gives for that target alone; the rows are sorted once per
score and not once per target.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError, collected
from uqeval.decide.calibration import Calibration
from uqeval.decide.certification import Certification
from uqeval.decide.risk_map import risk_map
from uqeval.decide.walks import largest_certified
from uqeval.evaluation.row_data import RowData

__all__ = ["TARGETS", "explore"]

TARGETS = (
    *(k / 1000 for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12.5, 15, 17.5, 20, 25, 30, 35, 40, 45, 50)),
    *(k / 100 for k in (6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 22.5, 25, 30, 35, 40, 45, 50)),
)
_FEW_TARGETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
_MANY_LOSSES = 500_000  # beyond that many bets on losses that are not 0/1, forty targets would take minutes
_GRID = 100
_MAP = ("threshold", "coverage", "accepted", "bad", "risk", "high", "band_low", "band_high")


def explore(table: RowData, names: list[str], tried: int, max_risk: float, level: float) -> dict[str, Any] | None:
    """Both sliders of the explorer for each score; None where the rows have no error and no loss in [0, 1]."""
    loss = table.share_loss
    if loss is None:
        return None
    binary = loss.dtype == np.uint8
    quick = binary or table.pred.clusters is not None or table.pred.n * len(names) <= _MANY_LOSSES
    found: dict[str, Any] = {
        "what": "error" if binary else "loss",
        "level": level,
        "tried": tried,
        "weighted": table.weights is not None,
        "targets": sorted({*(TARGETS if quick else _FEW_TARGETS), max_risk}),
        "max_risk": max_risk,
        "scores": [],
        "notes": [],
    }
    for name in names:
        try:
            with collected():  # of rows that were checked, and warned about, before
                found["scores"].append({"name": name, **_explore(table, name, tried, found["targets"], level)})
        except InputError as error:
            found["notes"].append(f"{name} is not in the explorer: {error}")
    return found


def _explore(table: RowData, name: str, tried: int, targets: list[float], level: float) -> dict[str, Any]:
    score, loss, clusters = table.score(name), table.share_loss, table.pred.clusters
    assert loss is not None
    if table.weights is not None:
        return {"map": _weighted_map(score, np.asarray(loss, dtype=np.float64), table.weights), "certified": None}
    mapped = risk_map(score, loss, clusters=clusters, level=level)
    cal = Calibration(score, loss, clusters)
    return {
        "map": {key: getattr(mapped, key).tolist() for key in _MAP},
        "certified": [_certified(cal, target, level, tried) for target in targets],
        "data_hash": cal.data_hash(),
    }


def _certified(cal: Calibration, target: float, level: float, tried: int) -> dict[str, Any]:
    """The parts of a `Threshold` that the page shows."""
    delta = (1 - level) / tried
    value = largest_certified("fallback", cal, target, delta)
    if value == -math.inf:
        rule = Certification("fallback", (target,), level, delta, n_scores=tried)
        nothing = {"value": None, "accepted": 0, "errors": 0, "coverage": 0.0, "risk": None}
        return nothing | {"rows_needed": rule.rows_needed(cal, cal, target)}
    at = np.array([value])
    accepted, bad = int(cal.accepted(at)[0]), float(cal.bad(at)[0])
    return {
        "value": value,
        "accepted": accepted,
        "errors": int(bad) if cal.binary else bad,
        "coverage": accepted / cal.n,
        "risk": bad / accepted,
        "rows_needed": None,
    }


def _weighted_map(score: Float, loss: Float, weights: Float) -> dict[str, Any]:
    """Shares of the weight; no bounds, since none is exact for weighted rows."""
    order = np.argsort(score, kind="stable")
    ordered = score[order] + 0.0
    weight, bad = np.cumsum(weights[order]), np.cumsum((weights * loss)[order])
    sizes = np.unique(np.ceil(len(score) * np.arange(1, _GRID + 1) / _GRID - 1e-9).astype(np.int64))
    threshold = np.unique(ordered[sizes - 1])
    last = np.searchsorted(ordered, threshold, side="right") - 1
    counted = np.cumsum(loss[order])
    return {
        "threshold": threshold.tolist(),
        "coverage": (weight[last] / weight[-1]).tolist(),
        "accepted": (last + 1).tolist(),
        "bad": counted[last].tolist(),
        "risk": (bad[last] / weight[last]).tolist(),
        "high": None,
        "band_low": None,
        "band_high": None,
    }
