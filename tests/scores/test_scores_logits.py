"""Scores of logits against their definitions in plain Python."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each, noted
from uqeval._errors import InputError
from uqeval.scores import free_energy, max_logit

seeds = st.integers(0, 2**32 - 1)
by_function = each("score", [free_energy, max_logit], ids=lambda function: function.__name__)


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


def test_extreme_logits_and_temperatures_give_finite_scores():
    # Logits of plus and minus ten thousand are finite.
    for score in [free_energy, max_logit]:
        with noted(score=score):
            assert score([[1e4, -1e4], [-1e4, -1e4], [1e4, 1e4]]) == pytest.approx([-1e4, 1e4, -1e4], rel=1e-3)

    # Free energy of extreme logits is finite.
    big = np.finfo(float).max
    for temperature in (1e-300, 1.0, 1e3):
        assert np.isfinite(free_energy([[big, -big], [-big, 0.0], [1e4, -1e4]], temperature)).all()

    # A small temperature gives max logit.
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


def test_every_number_type_gives_float64():
    for score, dtype in product([free_energy, max_logit], [np.float16, np.float32, np.float64, np.int32]):
        with noted(score=score, dtype=dtype):
            logits = np.array([[3, 1, 0], [0, 0, 0]], dtype=dtype)
            assert score(logits).dtype == np.float64
            np.testing.assert_array_equal(score(logits), score(logits.astype(float).tolist()))

    # Max logit of zero is plus zero.
    assert not np.signbit(max_logit([[0.0, -1.0]])[0])


def test_bad_logits_and_temperatures_are_refused():
    # A temperature that is not a positive number is refused.
    for temperature in [0, -1.0, math.nan, math.inf, "1", None, True]:
        message = "`temperature` must be a finite number above 0; it is"
        with noted(temperature=temperature), pytest.raises(InputError, match=message):
            free_energy([[0.0, 1.0]], temperature)

    # Bad logits are refused.
    for score in [free_energy, max_logit]:
        with noted(score=score):
            with pytest.raises(InputError, match="`logits` has NaN"):
                score([[0.0, np.nan]])
            with pytest.raises(InputError, match=r"`logits` has shape \(2,\)"):
                score([0.0, 1.0])
            with pytest.raises(InputError, match="`logits` has no finite maximum in row 1"):
                score([[0.0, 1.0], [np.inf, 1.0]])
