"""The step-down walk: its chances equal enumeration, and it never falls far behind "fallback"."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from strategies import seeds
from uqeval import choose_threshold
from uqeval.decide import step_down, walks
from uqeval.decide.calibration import Calibration
from uqeval.decide.walks import largest_certified


def walk_of(sizes, risk, *, smooth=False):
    return step_down._Walk(np.array(sizes, dtype=np.int64), risk, smooth=smooth)


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([0.1, 0.3, 0.6]),
    st.lists(st.floats(1e-3, 0.9), min_size=4, max_size=4),
)
def test_the_chance_that_a_walk_ends_equals_enumeration_of_all_errors(steps, risk, levels):
    sizes = np.cumsum(steps)
    levels = np.array(levels[: len(sizes)])
    expected = 0.0
    for errors in itertools.product((0, 1), repeat=int(sizes[-1])):
        chance = math.prod(risk if e else 1 - risk for e in errors)
        p = [stats.binom.cdf(sum(errors[:size]), size, risk) for size in sizes]
        expected += chance * any(x <= level * (1 + 1e-9) for x, level in zip(p, levels, strict=True))
    walk = walk_of(sizes, risk)
    ends = walk.ends(levels)
    assert walk.crossing(ends) == pytest.approx(expected, abs=1e-12)
    # The same from the other end: not to end at the first size, and not after it.
    low, after = walk.survival(ends)[0]
    counts = np.arange(low, low + len(after))
    first = stats.binom.pmf(counts, sizes[0], risk) * (counts > ends.last[0])
    assert 1 - float((first * after).sum()) == pytest.approx(expected, abs=1e-9)


def test_a_region_of_a_smooth_walk_passes_as_often_as_its_level_says():
    for level in (1e-4, 0.003, 0.05, 0.3):
        for size in (40, 400, 5000):
            walk = walk_of([size], 0.07, smooth=True)
            assert walk.crossing(walk.ends(np.array([level]))) == pytest.approx(level, rel=1e-6)


def test_the_share_from_a_smaller_walk_holds_for_the_real_one():
    for max_risk, delta, n in ((0.05, 0.1, 50_000), (0.2, 0.05, 20_000), (0.01, 0.05, 200_000)):
        sizes = np.arange(1, 101, dtype=np.int64) * n // 100
        share = step_down._common_share(sizes.tobytes(), max_risk, delta, np.zeros(100).tobytes())
        real = walk_of(sizes, max_risk)
        chance = real.crossing(real.ends(np.full(100, share)))
        assert 0.8 * delta < chance <= delta, (max_risk, delta, n)


@settings(max_examples=15)
@given(seeds, st.sampled_from([100, 300, 800]), st.sampled_from([0.05, 0.1, 0.3]), st.sampled_from([0.05, 0.1, 0.3]))
def test_every_region_that_a_start_of_fallback_certifies_is_certified(seed, n, max_risk, delta):
    # Its share is never below that of the start; chains may differ, by the little that all regions share.
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    cal = Calibration(score, (rng.random(n) < max_risk * 4 * score**3).astype(np.uint8))
    at = cal.grid()
    best_p = cal.best_p(at, max_risk)
    at, best_p = at[best_p <= delta], best_p[best_p <= delta]
    if not len(at):
        return
    budget = walks._budget(best_p, cal.accepted(at), cal.n, delta)
    passed = np.flatnonzero(cal.p_values(at, max_risk) <= budget)
    assert not len(passed) or largest_certified("step-down", cal, max_risk, delta) >= at[passed[-1]]


def test_losses_clusters_weights_and_many_candidates_are_walked_as_fallback_does():
    rng = np.random.default_rng(0)
    score = rng.random(2000)
    error = (rng.random(2000) < 0.2 * score**2).astype(int)
    for loss, options in (
        (error * 0.7, {}),
        (error, {"clusters": np.arange(2000) // 2}),
        (error, {"weights": 1 + score}),
        (error, {"thresholds": np.linspace(0, 1, step_down.MOST + 50)}),
    ):
        found = [choose_threshold(score, loss, 0.1, method=m, **options).value for m in ("step-down", "fallback")]
        assert found[0] == found[1] > 0


def test_nothing_is_shared_where_the_starts_use_all_of_delta():
    # No error in five rows has the chance 2⁻⁵ at a risk of ½, which is all of delta.
    delta, floor = 2.0**-5, np.array([2.0**-5, 0.0])
    sizes = np.array([5, 40], dtype=np.int64)
    assert step_down._common_share(sizes.tobytes(), 0.5, delta, floor.tobytes()) == 0.0
    assert step_down._common_share(sizes.tobytes(), 0.5, delta, np.zeros(2).tobytes()) > 0.0


def test_a_fresh_walk_takes_a_fraction_of_a_second():
    rng = np.random.default_rng(1)
    for n, most in ((1000, 0.3), (200_000, 0.5)):
        score = rng.random(n)
        error = (rng.random(n) < 0.2 * score**2).astype(np.uint8)
        step_down._common_share.cache_clear()
        begin = time.process_time()
        largest_certified("step-down", Calibration(score, error), 0.05, 0.05)
        assert time.process_time() - begin < most
