"""The test of drift: places are uniform and independent while scores come as before, and pile up where they do not."""

from __future__ import annotations

import numpy as np
from scipy import stats

from uqeval.monitor.drift import MOST, Drift, reference


def places(kept, scores, seed=0):
    return Drift(kept, 0.95)._places(np.asarray(scores, dtype=float), np.random.default_rng(seed))[1]


def test_a_place_is_the_smoothed_rank_among_reference_and_all_scores_before():
    """By definition, gap by gap: continuous scores, one after the other."""
    rng = np.random.default_rng(1)
    kept, new = reference(rng.random(30)), rng.random(250)
    found = places(kept, new)
    gaps = np.searchsorted(kept, new)
    for k in range(len(new)):
        before = np.concatenate([np.arange(31), gaps[:k]])
        low, high = ((before < gaps[k]).sum() / len(before), (before <= gaps[k]).sum() / len(before))
        assert low <= found[k] <= high


def test_places_are_uniform_and_independent_while_nothing_changes_ties_included():
    """400 runs of 40 new scores beside 15: a Kolmogorov test of all, and no correlation of neighbours (4 errors)."""
    rng, all_places = np.random.default_rng(2), []
    for run in range(400):
        draw = (lambda n: rng.random(n)) if run % 2 else (lambda n: rng.integers(0, 4, n).astype(float))
        all_places.append(places(reference(draw(15)), draw(40), seed=run))
    found = np.array(all_places)
    assert stats.kstest(found.ravel(), "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(found[:, :-1].ravel(), found[:, 1:].ravel())[0, 1]) < 4 / np.sqrt(found[:, 1:].size)


def test_ties_are_as_uneven_as_random_marks_make_them():
    """One value, 3 reference scores and 200 new ones: the share of the first gap is Beta(1, 3), not always 1/4."""
    share = []
    for run in range(300):
        drift = Drift([float(run)] * 3, 0.95)
        drift._keys = np.sort(np.random.default_rng(run).random(3))  # marks, which depend on the number of scores alone
        gaps, _ = drift._places(np.full(200, float(run)), np.random.default_rng(1000 + run))
        share.append((gaps == 0).mean())
    assert stats.kstest(share, stats.beta(1, 3).cdf).pvalue > 1e-3


def test_looks_one_by_one_are_one_chain_and_depend_on_nothing_else():
    rng = np.random.default_rng(3)
    kept, parts = reference(rng.random(200)), [rng.random(37) for _ in range(4)]
    one, other = Drift(kept, 0.95), Drift(kept, 0.95)
    for part in parts:
        one.apply(one.look(part))
        assert other.look(part) == other.look(part)  # a look that was not written leaves nothing
        other.apply(other.look(part))
    assert (one.n, one.e_value, one.direction) == (148, other.e_value, other.direction)


def test_a_shift_of_the_scores_is_noticed_and_its_direction_told():
    rng = np.random.default_rng(4)
    kept = reference(rng.normal(0, 1, 500))
    for direction, new in (
        ("higher", rng.normal(1, 1, 500)),
        ("lower", rng.normal(-1, 1, 500)),
        ("wider", rng.normal(0, 3, 500)),
    ):
        drift = Drift(kept, 0.95)
        drift.apply(drift.look(rng.normal(0, 1, 1000)))
        assert drift.alarm_after is None
        drift.apply(drift.look(new))
        assert (drift.alarm_after is not None, drift.direction) == (True, direction)


def test_a_long_reference_is_thinned_and_small_ones_are_kept():
    scores = np.random.default_rng(5).random(5000)
    kept = reference(scores)
    assert (len(kept), set(kept) <= set(scores.tolist())) == (MOST, True)
    assert kept == sorted(kept)
    assert reference(np.array([2.0, 1.0])) == [1.0, 2.0]
    assert kept == reference(scores[::-1].copy())
