"""A promise for every group holds as often as it claims: simulation, true risks known, tolerances written beforehand.

The hardest case has one group that is just too risky everywhere and others that are easy: then the largest p-value is
that of the first, and the promise is broken as often as it may be, 1 − level. Shares of the groups: 75%, 20%, 5%.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from guarantee_laws import bump, flat, mono

import uqeval as uq
from uqeval.decide.by_group import in_each_group
from uqeval.decide.calibration import Calibration
from uqeval.decide.walks import largest_certified

pytestmark = pytest.mark.slow
GAMMA, DELTA, SHARES = 0.1, 0.1, (0.75, 0.2, 0.05)
EASY = mono(0.02)
CASES = {
    "small group flat": (EASY, EASY, flat(GAMMA)),
    "large group flat": (flat(GAMMA), EASY, EASY),
    "all flat": (flat(GAMMA),) * 3,
    "bumps": (bump(GAMMA), mono(GAMMA), bump(GAMMA)),
    "bump in the small": (EASY, EASY, bump(GAMMA)),
}


def broken(laws, value):
    """Whether some group has a higher risk than promised."""
    return value > 0 and max(float(law.risk(min(value, 1.0))) for law in laws) > GAMMA


def draw(laws, n, rng, size=1):
    """Units of `size` rows, alike inside, each unit in one group."""
    unit = rng.choice(3, n // size, p=SHARES)
    score, luck = rng.random(n // size), rng.random(n // size)
    chance = np.choose(unit, [law.chance(score) for law in laws])
    return tuple(np.repeat(x, size) for x in (score, (luck < chance).astype(np.uint8), unit, np.arange(n // size)))


def test_in_no_more_than_delta_of_the_runs_is_any_group_above_the_promise():
    runs = 600
    most = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / runs)
    fixed = np.linspace(0.05, 1, 20)
    for name, laws in CASES.items():
        rng = np.random.default_rng([5, len(name)])
        for method in ("fallback", "fst", "holm"):
            bad = 0
            for _ in range(runs):
                score, error, group, _ = draw(laws, 2000, rng)
                cal = in_each_group(Calibration(score, error, groups=group), 3, None)
                candidates = fixed if method == "fallback" else None
                bad += broken(laws, largest_certified(method, cal, GAMMA, DELTA, candidates))
            print(name, method, bad / runs)
            assert bad / runs <= most, (name, method)


def test_with_clusters_too():
    runs = 60
    most = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / runs)
    for name in ("small group flat", "bumps"):
        for method in ("t", "exact", "subsample"):
            rng, bad = np.random.default_rng([6, len(name), len(method)]), 0
            for _ in range(runs):
                score, error, group, patient = draw(CASES[name], 4000, rng, size=4)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", uq.UQWarning)
                    t = uq.choose_threshold(
                        score, error, GAMMA, 1 - DELTA, clusters=patient, cluster_method=method, groups=group, each=True
                    )
                bad += broken(CASES[name], t.value)
            print(name, method, bad / runs)
            assert bad / runs <= most, (name, method)
