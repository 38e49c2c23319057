"""A confidence learnt on held-out rows: what it takes away, what it brings in."""

import math

import numpy as np
import pytest

import uqeval as uq
from cases import noted
from uqeval import InputError, metrics
from uqeval.inference import reference_confidence


def law(n, seed):
    """Error probabilities, errors, and the log-odds of an error."""
    rng = np.random.default_rng(seed)
    phi = 0.4 * rng.beta(0.5, 1.5, n)
    return phi, (rng.random(n) < phi).astype(int), np.log(phi / (1 - phi) + 1e-12), rng


def test_a_confidence_of_noise_is_rewarded_for_itself_but_not_with_a_reference():
    phi, e, odds, rng = law(4000, 0)
    confidence = rng.uniform(0.5, 1, 4000)
    reference = reference_confidence(odds + rng.normal(size=4000), e)
    own = [metrics.top_label_c_index(s, confidence, e) for s in (1 - confidence, phi)]
    found = [metrics.top_label_c_index(s, reference, e) for s in (1 - confidence, phi)]
    assert own[0] > 0.85 > 0.6 > own[1]
    assert abs(found[0] - 0.5) < 0.03
    assert found[1] > 0.8


def test_no_row_has_a_part_in_its_own_reference_nor_a_cluster_in_that_of_its_rows():
    _, e, odds, rng = law(300, 1)
    x = np.stack([odds + rng.normal(size=300), rng.normal(size=300)], axis=1)
    clusters = np.arange(300) // 3
    for g in (None, clusters):
        before = reference_confidence(x, e, clusters=g, seed=3)
        for i in (0, 17, 140):
            flipped = e.copy()
            flipped[i] ^= 1
            after = reference_confidence(x, flipped, clusters=g, seed=3)
            same = after == before
            with noted(row=i, clustered=g is not None):
                assert same[clusters == i // 3].all() if g is not None else same[i]
                assert 40 < same.sum() < 80  # its fold of five
    assert ((before >= 0) & (before <= 1)).all()


def test_it_is_near_what_the_law_says_and_does_not_depend_on_the_scale_of_features():
    phi, e, odds, rng = law(20_000, 2)
    found = reference_confidence({"odds": odds, "noise": rng.normal(size=20_000)}, e)
    assert np.abs(found - np.abs(1 - 2 * phi)).mean() < 0.03
    other = reference_confidence(np.exp(3 * odds), e)
    np.testing.assert_array_equal(other, reference_confidence(odds, e))
    apart = reference_confidence(np.arange(60.0), (np.arange(60) > 40).astype(int))  # separable: slopes stay finite
    assert np.isfinite(apart).all()


def test_bad_features_folds_and_errors_are_refused():
    e = np.arange(20) % 4 == 0
    with pytest.raises(InputError, match="`features` is an empty dict"):
        reference_confidence({}, e)
    with pytest.raises(InputError, match="`features` has shape"):
        reference_confidence(np.zeros((2, 2, 2)), e)
    with pytest.raises(InputError, match=r"`features\['x'\]` has 1 NaN"):
        reference_confidence({"x": [math.nan, *range(19)]}, e)
    with pytest.raises(InputError, match="`error` has 20 rows but `features` has 3"):
        reference_confidence([1, 2, 3], e)
    with pytest.raises(InputError, match="`folds` is 30, but there are 20 rows"):
        reference_confidence(np.arange(20), e, folds=30)
    with pytest.raises(InputError, match="`error` is 0 in all rows outside fold"):
        reference_confidence(np.arange(20), np.arange(20) == 3, folds=2)


@pytest.mark.slow
def test_features_of_which_no_score_is_made_keep_the_level_and_find_more_than_uq_auc_but_the_scores_themselves_do_not():
    told = {"uq_auc": [], "scores": [], "feature": []}
    found = {"uq_auc": [], "feature": []}
    for seed in range(120):
        _, e, odds, rng = law(500, seed)
        equal = {"a": odds + rng.normal(size=500), "b": odds + rng.normal(size=500)}
        better = {"a": odds + 0.7 * rng.normal(size=500), "b": odds + 1.2 * rng.normal(size=500)}
        feature = reference_confidence(odds + rng.normal(size=500), e, seed=seed)
        own = reference_confidence(equal, e, seed=seed)
        for scores, into, references in (
            (equal, told, {"feature": feature, "scores": own}),
            (better, found, {"feature": feature}),
        ):
            row = uq.compare(scores, error=e, metric="uq_auc").rows[0]
            into["uq_auc"].append(row.p < 0.05 and (into is told or row.difference > 0))
            for name, c in references.items():
                row = uq.compare(scores, loss=(2 * e - 1) * c, metric="uq_c_index").rows[0]
                into[name].append(row.p < 0.05 and (into is told or row.difference > 0))
    assert np.mean(told["feature"]) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 120)
    assert np.mean(told["scores"]) > 0.6
    assert np.mean(found["feature"]) > 0.85 > 0.4 > np.mean(found["uq_auc"])
