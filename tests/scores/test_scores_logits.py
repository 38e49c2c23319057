"""Scores of logits against their definitions in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uqeval._errors import InputError
from uqeval.scores import free_energy, max_logit

seeds = st.integers(0, 2**32 - 1)
by_function = pytest.mark.parametrize("score", [free_energy, max_logit], ids=lambda function: function.__name__)


@given(seeds, st.integers(2, 12), st.sampled_from([0.5, 1.0, 3.0, 1000.0]))
def test_free_energy_equals_its_definition(seed, k, temperature):
    logits = np.random.default_rng(seed).normal(size=(8, k)) * 20
    expected = [-temperature * math.log(math.fsum(math.exp(z / temperature) for z in row)) for row in logits]
    np.testing.assert_allclose(free_energy(logits, temperature), expected, rtol=1e-12, atol=1e-12)


@given(seeds)
def test_max_logit_equals_its_definition(seed):
    logits = np.random.default_rng(seed).normal(size=(8, 4))
    assert max_logit(logits).tolist() == [-max(row) for row in logits]


@by_function
def test_a_more_ambiguous_row_scores_higher(score):
    assert (np.diff(score([[9.0, 0.0, 0.0], [5.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.1, 0.0, 0.0]])) > 0).all()


@by_function
def test_logits_of_plus_and_minus_ten_thousand_are_finite(score):
    assert score([[1e4, -1e4], [-1e4, -1e4], [1e4, 1e4]]) == pytest.approx([-1e4, 1e4, -1e4], rel=1e-3)


def test_free_energy_of_extreme_logits_is_finite():
    big = np.finfo(float).max
    for temperature in (1e-300, 1.0, 1e3):
        assert np.isfinite(free_energy([[big, -big], [-big, 0.0], [1e4, -1e4]], temperature)).all()


def test_a_small_temperature_gives_max_logit():
    logits = np.random.default_rng(0).normal(size=(50, 5))
    np.testing.assert_allclose(free_energy(logits, 1e-9), max_logit(logits), atol=1e-8)


@given(seeds, st.integers(2, 20))
def test_the_order_of_the_classes_changes_no_bit(seed, k):
    rng = np.random.default_rng(seed)
    row = rng.normal(size=k) * 5
    logits = np.stack([rng.permutation(row) for _ in range(10)])
    assert len(set(free_energy(logits))) == 1
    assert len(set(max_logit(logits))) == 1


@by_function
def test_a_masked_class_counts_as_absent(score):
    masked = score([[1.0, -np.inf, 2.0]])
    assert masked == pytest.approx(score([[1.0, 2.0]]))


@by_function
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_every_number_type_gives_float64(score, dtype):
    logits = np.array([[3, 1, 0], [0, 0, 0]], dtype=dtype)
    assert score(logits).dtype == np.float64
    np.testing.assert_array_equal(score(logits), score(logits.astype(float).tolist()))


def test_max_logit_of_zero_is_plus_zero():
    assert not np.signbit(max_logit([[0.0, -1.0]])[0])


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_a_temperature_that_is_not_a_positive_number_is_refused(temperature):
    with pytest.raises(InputError, match=r"`temperature` must be a finite number above 0; it is"):
        free_energy([[0.0, 1.0]], temperature)


@by_function
def test_bad_logits_are_refused(score):
    with pytest.raises(InputError, match="`logits` has NaN"):
        score([[0.0, np.nan]])
    with pytest.raises(InputError, match=r"`logits` has shape \(2,\)"):
        score([0.0, 1.0])
    with pytest.raises(InputError, match="`logits` has no finite maximum in row 1"):
        score([[0.0, 1.0], [np.inf, 1.0]])
