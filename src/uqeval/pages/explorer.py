"""What the threshold explorer shows, computed beforehand: the risk below every threshold, the threshold for every risk.

Each certified threshold is the one that `choose_threshold` gives for that target alone; the rows are sorted once per
score and not once per target.
"""

import math
from typing import Any

import numpy as np

from uqeval._check import Float
from uqeval._errors import InputError, collected
from uqeval._result import Grid
from uqeval.decide.calibration import Calibration
from uqeval.decide.certification import Certification
from uqeval.decide.risk_map import map_rows
from uqeval.decide.rows import reject_lowest
from uqeval.decide.threshold import shown as printed
from uqeval.decide.walks import DEFAULT, largest_certified
from uqeval.evaluation.result import Evaluation
from uqeval.evaluation.row_data import RowData
from uqeval.pages.words import count, percent, plain
from uqeval.plot.data import calibration

TARGETS = (
    *(k / 1000 for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12.5, 15, 17.5, 20, 25, 30, 35, 40, 45, 50)),
    *(k / 100 for k in (6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 22.5, 25, 30, 35, 40, 45, 50)),
)
_FEW_TARGETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
_MANY_LOSSES = 500_000  # beyond that many bets on losses that are not 0/1, forty targets would take minutes
_GRID = 100
_MAP = ("coverage", "threshold", "accepted", "bad", "risk", "high", "band_high", "band_low")
_PLACES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)  # that a page without scripts shows
_RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)
_START = 0.8  # where the slider of coverage begins if nothing is certified


def explore(ev: Evaluation, names: list[str], max_risk: float) -> dict[str, Any] | None:
    """Both sliders of the explorer for each score; None where the rows have no error and no loss in [0, 1]."""
    table, level, tried = ev.source, ev.level, len(ev.distinct)
    if table is None or (loss := table.share_loss) is None:
        return None
    binary = loss.dtype == np.uint8
    quick = binary or table.pred.clusters is not None or table.pred.n * len(names) <= _MANY_LOSSES
    found: dict[str, Any] = {
        "what": "error" if binary and table.risk != "loss" else "loss",
        "level": level,
        "confidence": f"{100 * level:.6g}%",
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
    score, loss = table.score(name), table.share_loss
    assert loss is not None
    if table.weights is not None:
        return {"map": _weighted_map(score, np.asarray(loss, dtype=np.float64), table.weights), "certified": None}
    reject_lowest(score)
    cal = calibration(table, name, loss)
    mapped = map_rows(cal, name, level)
    return {
        "map": {key: getattr(mapped, key).tolist() for key in _MAP},
        "certified": [_certified(cal, target, level, tried) for target in targets],
        "data_hash": cal.data_hash(),
    }


def _certified(cal: Calibration, target: float, level: float, tried: int) -> dict[str, Any]:
    """The parts of a `Threshold` that the page shows."""
    delta = (1 - level) / tried
    value = largest_certified(DEFAULT, cal, target, delta)
    if value == -math.inf:
        rule = Certification(DEFAULT, (target,), level, delta, n_scores=tried)
        nothing = {"value": None, "accepted": 0, "errors": 0, "coverage": 0.0, "risk": None}
        return nothing | {"rows_needed": rule.rows_needed(cal, cal, target)}
    at = np.array([value])
    accepted, bad = int(cal.accepted(at)[0]), float(cal.bad(at)[0])
    # Losses are added up as `Threshold` does, to the last bit.
    total = bad if cal.binary else float(np.sort(cal.loss[cal.score <= value]).sum())
    return {
        "value": value,
        "accepted": accepted,
        "errors": int(bad) if cal.binary else bad,
        "coverage": accepted / cal.n,
        "risk": total / accepted,
        "rows_needed": None,
    }


def _weighted_map(score: Float, loss: Float, weights: Float) -> dict[str, Any]:
    """Shares of the weight; no band, since none is known to hold for weighted rows."""
    order = np.argsort(score, kind="stable")
    ordered = score[order] + 0.0
    weight, bad = np.cumsum(weights[order]), np.cumsum((weights * loss)[order])
    sizes = np.unique(np.ceil(len(score) * np.arange(1, _GRID + 1) / _GRID - 1e-9).astype(np.int64))
    threshold = np.unique(ordered[sizes - 1])
    last = np.searchsorted(ordered, threshold, side="right") - 1
    counted = np.cumsum(loss[order])
    found = {"threshold": threshold, "coverage": weight[last] / weight[-1], "accepted": last + 1}
    found |= {"bad": counted[last], "risk": bad[last] / weight[last]}
    return dict.fromkeys(_MAP) | {key: values.tolist() for key, values in found.items()}


# ---- the same as text, for the script of the page ---------------------------------------------------------------


def in_words(explorer: dict[str, Any]) -> dict[str, Any]:
    """What the sliders show at each of their places."""
    share = percent if explorer["what"] == "error" else plain
    return {
        "weighted": explorer["weighted"],
        "loss": explorer["what"] == "loss",
        "targets": [share(target) for target in explorer["targets"]],
        "risks": explorer["targets"],
        "axis": "accepted share of the weight" if explorer["weighted"] else "accepted share of inputs",
        "scores": [_explored(part, explorer, share) for part in explorer["scores"]],
    }


def steady(explorer: dict[str, Any], lead: str) -> list[Grid]:
    """Some places of both sliders for the leading score, where no script can move them."""
    part = next((part for part in explorer["scores"] if part["name"] == lead), None)
    if part is None:
        return []
    share = percent if explorer["what"] == "error" else plain
    words, coverage = _explored(part, explorer, share), part["map"]["coverage"]
    near = sorted({min(range(len(coverage)), key=lambda k: abs(coverage[k] - at)) for at in _PLACES})
    bad = "errors" if explorer["what"] == "error" else "total loss"
    head = ["accepted", "act at or below", "rows", bad, "observed", "bound, this one", "bound, all at once"]
    wide = 5 if explorer["weighted"] else 7
    tables = [Grid(head[:wide], [words["a"][k][:wide] for k in near], f"How much to accept, by {lead}")]
    if "b" in words:
        rows = [
            [share(target), *words["b"][k][:5]]
            for k, target in enumerate(explorer["targets"])
            if target in _RISKS or target == explorer["max_risk"]
        ]
        head = ["target", "act at or below", "accepted", "rows", bad, "observed"]
        tables.append(Grid(head, rows, f"Which risk to accept, certified, by {lead}"))
    return tables


def _explored(part: dict[str, Any], explorer: dict[str, Any], share: Any) -> dict[str, Any]:
    found, promised = part["map"], part["certified"]
    columns = [found[key] or [None] * len(found["threshold"]) for key in _MAP[:-1]]
    lines = [
        [percent(cover), printed(value, 6), count(rows), count(bad), share(risk), share(high), share(band)]
        for cover, value, rows, bad, risk, high, band in zip(*columns, strict=True)
    ]
    curve = {"coverage": found["coverage"], "risk": found["risk"], "low": found["band_low"], "high": found["band_high"]}
    chosen = None if promised is None else promised[explorer["targets"].index(explorer["max_risk"])]
    wanted = chosen["coverage"] if chosen is not None and chosen["value"] is not None else _START
    near = min(range(len(lines)), key=lambda k: abs(found["coverage"][k] - wanted))
    result = {"a": lines, "start": near, "curve": {key: _rounded(values) for key, values in curve.items()}}
    if promised is not None:
        limits = [share(target) for target in explorer["targets"]]
        result["b"] = [_promise(p, limit, share) for p, limit in zip(promised, limits, strict=True)]
        result["values"] = [p["value"] for p in promised]
        result["covers"] = _rounded([p["coverage"] for p in promised])
    return result


def _promise(found: dict[str, Any], limit: str, share: Any) -> list[str]:
    """Threshold, coverage, rows, errors, observed risk, promised risk, and a word where there is none."""
    if found["value"] is not None:
        numbers = [printed(found["value"], 6), percent(found["coverage"]), count(found["accepted"])]
        return [*numbers, count(found["errors"]), share(found["risk"]), f"at most {limit}", ""]
    needed = found["rows_needed"]
    more = "more rows like these would not help" if needed is None else f"about {count(needed)} rows needed"
    return ["nothing", "0%", "0", "–", "–", "–", f"nothing can be certified; {more}"]


def _rounded(values: list[float] | None) -> list[float] | None:
    return None if values is None else [float(f"{value:.5g}") for value in values]
