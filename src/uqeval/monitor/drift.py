"""Do the scores still come as they did? A test without labels, which says nothing of the risk.

Calibration scores cut the line into gaps. If old and new scores are exchangeable, the next one falls into each gap with
a chance of (1 + how many new ones did before) out of all: its place, drawn at random inside its gap, is uniform and
independent of the places before it (a smoothed conformal p-value: Vovk, Gammerman & Shafer 2005). That places are high,
low, or far from the middle is bet on as losses are (`decide.monitor`), with its restarts: their mean is an e-value.
"""

import hashlib
import json
import math
from typing import Any

import numpy as np

from uqeval._check import Float, Int
from uqeval._errors import collected
from uqeval.decide.monitor import Check
from uqeval.decide.threshold import Threshold

MOST = 1000  # calibration scores that are kept: a random part of exchangeable rows is exchangeable too
_AT_ONCE = 100  # rows between two restarts
_DIRECTIONS = ("higher", "lower", "wider")


def reference(scores: Float) -> list[float]:
    """The calibration scores to keep, ascending."""
    rng = np.random.default_rng(len(scores))
    kept = scores if len(scores) <= MOST else rng.choice(np.sort(scores), MOST, replace=False)
    return np.sort(kept + 0.0).tolist()  # −0.0 is 0.0


class Drift:
    """What the scores so far say; `entry` of one look is all that the next needs."""

    def __init__(self, kept: list[float], level: float) -> None:
        self._kept, self.level = np.array(kept), level
        self._gaps = np.ones(len(kept) + 1, dtype=np.int64)
        self._stored: list[dict[str, Any] | None] = [None] * len(_DIRECTIONS)
        self._promise = Threshold.from_value(math.inf, max_risk=0.5, level=level, what="loss")
        # Equal scores have an order too: each gets a random mark, once for ever.
        starts = np.searchsorted(self._kept, self._kept)
        self._keys = np.sort(starts + np.random.default_rng(len(kept)).random(len(kept)))
        self._seed = int(hashlib.sha256(self._kept.tobytes()).hexdigest()[:16], 16)
        self.n, self.alarm_after = 0, None

    @property
    def e_value(self) -> float:
        """Evidence that the scores have changed; at most 1 on average while they have not."""
        return float(np.mean(self._evidence))

    @property
    def direction(self) -> str:
        """Where the places went that speak loudest."""
        return _DIRECTIONS[int(np.argmax(self._evidence))]

    @property
    def _evidence(self) -> list[float]:
        return [1.0 if data is None else float(data["e_value"]) for data in self._stored]

    alarm_after: int | None

    def look(self, scores: Float) -> dict[str, Any]:
        """What to write of new scores; the object itself is as before."""
        rng = np.random.default_rng([self._seed, self.n])  # the same places, however often a look is begun anew
        gaps, places = self._places(scores + 0.0, rng)
        checks = [None if data is None else Check.from_json(json.dumps(data)) for data in self._stored]
        alarm_after = self.alarm_after
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            with collected():
                checks = [
                    self._promise.check(np.zeros(len(part)), loss, previous=before, again=True)
                    for loss, before in zip((part, 1 - part, np.abs(2 * part - 1)), checks, strict=True)
                ]
            e_value = np.mean([check.e_value for check in checks if check is not None])
            if alarm_after is None and e_value >= 1 / (1 - self.level):
                alarm_after = self.n + start + len(part)
        cells, many = np.unique(gaps, return_counts=True)
        return {
            "n": self.n + len(scores),
            "cells": [cells.tolist(), many.tolist()],
            "checks": [None if check is None else check.to_dict() | {"batches": []} for check in checks],
            "alarm_after": alarm_after,
        }

    def apply(self, entry: dict[str, Any]) -> None:
        """Goes on to what `look` returned."""
        cells, many = entry["cells"]
        np.add.at(self._gaps, np.array(cells, dtype=np.int64), np.array(many, dtype=np.int64))
        self._stored = entry["checks"]
        self.n, self.alarm_after = entry["n"], entry["alarm_after"]

    def _places(self, scores: Float, rng: np.random.Generator) -> tuple[Int, Float]:
        """The gap of each score, and its place in (0, 1); among equal calibration scores by a random mark."""
        low, high = (np.searchsorted(self._kept, scores, side=side) for side in ("left", "right"))
        gaps = np.where(high > low, np.searchsorted(self._keys, low + rng.random(len(scores))), low)
        places, counts = np.empty(len(scores)), self._gaps.copy()
        for start in range(0, len(scores), _AT_ONCE):
            part = gaps[start : start + _AT_ONCE]
            below = np.concatenate([[0], np.cumsum(counts)])[part]
            earlier = np.tri(len(part), k=-1, dtype=np.bool_)
            below = below + (earlier & (part[None, :] < part[:, None])).sum(axis=1)
            inside = counts[part] + (earlier & (part[None, :] == part[:, None])).sum(axis=1)
            total = counts.sum() + np.arange(len(part))
            places[start : start + _AT_ONCE] = (below + rng.random(len(part)) * inside) / total
            np.add.at(counts, part, 1)
        return gaps, places
