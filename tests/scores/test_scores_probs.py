"""Scores of one probability vector against their definitions in plain Python."""

from __future__ import annotations

import math
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, noted
from uqeval._errors import InputError
from uqeval.scores import bernoulli_variance, entropy, gap_to_certain, margin

ALL = [entropy, gap_to_certain, margin, bernoulli_variance]
by_function = each("score", ALL, ids=lambda function: function.__name__)


@st.composite
def tables(draw):
    """(n, K) probabilities: continuous, one-hot, and on a grid of twentieths with many ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(1, 12)), draw(st.integers(2, 12))
    p = rng.dirichlet(np.full(k, draw(st.sampled_from([0.05, 1.0, 20.0]))), size=n)
    p[rng.random(n) < 0.3] = rng.multinomial(20, np.full(k, 1 / k)) / 20
    p[rng.random(n) < 0.2] = np.eye(k)[rng.integers(k)]
    return p


def brute(name, row):
    row = [float(p) for p in row]
    first, second = sorted(row, reverse=True)[:2]
    return {
        "entropy": -math.fsum(p * math.log(p) for p in row if p > 0),
        "gap_to_certain": 1 - first,
        "margin": -(first - second),
        "bernoulli_variance": first * (1 - first),
    }[name]


@by_function
@settings(max_examples=25)
@given(probs=tables())
def test_score_equals_its_definition(score, probs):
    expected = [brute(score.__name__, row) for row in probs]
    np.testing.assert_allclose(score(probs), expected, rtol=1e-13, atol=1e-15)


@by_function
def test_a_more_ambiguous_row_scores_higher(score):
    sure_to_unsure = [[0.97, 0.02, 0.01], [0.85, 0.1, 0.05], [0.7, 0.2, 0.1], [0.52, 0.4, 0.08]]
    assert (np.diff(score(sure_to_unsure)) > 0).all()
    assert (np.diff(score([0.01, 0.1, 0.3, 0.5])) > 0).all()
    assert (np.diff(score([0.99, 0.9, 0.7, 0.5])) > 0).all()


@by_function
@settings(max_examples=25)
@given(probs=tables(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_classes_changes_no_bit(score, probs, seed):
    shuffled = np.random.default_rng(seed).permuted(probs, axis=1)
    np.testing.assert_array_equal(score(shuffled), score(probs))
    np.testing.assert_array_equal(score(np.asfortranarray(probs)), score(probs))


@by_function
@settings(max_examples=20)
@given(probs=tables())
def test_a_row_scores_the_same_alone_and_in_a_batch(score, probs):
    many = np.concatenate([probs] * 3 + [np.full((20_000, probs.shape[1]), 1 / probs.shape[1]), probs])
    alone = np.concatenate([score(row[None]) for row in probs])
    np.testing.assert_array_equal(score(many)[: len(probs)], alone)
    np.testing.assert_array_equal(score(many)[-len(probs) :], alone)


def test_certain_uniform_and_tied_rows_have_exact_values():
    # A certain row gets the lowest value without a minus zero.
    for score in ALL:
        with noted(score=score):
            value = score(np.eye(4))
            assert value.tolist() == [-1.0 if score is margin else 0.0] * 4
            if score is not margin:
                assert not np.signbit(value).any()

    # Uniform entropy is log k.
    assert entropy([[0.25] * 4])[0] == math.log(4)

    # Margin is plus zero when two classes tie.
    value = margin([[0.5, 0.5]])
    assert value.tolist() == [0.0]
    assert not np.signbit(value).any()


def test_every_form_of_probabilities_gives_float64():
    # One column is the probability of class 1.
    for score in ALL:
        with noted(score=score):
            p = np.array([0.0, 1e-20, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
            np.testing.assert_array_equal(score(p), score(np.stack([1 - p, p], axis=1)))

    # Every float type gives float64 computed from the exact values.
    for score, dtype in product(ALL, [np.float16, np.float32, np.float64]):
        with noted(score=score, dtype=dtype):
            probs = np.array([[0.5, 0.25, 0.25], [0.125, 0.875, 0.0], [0.0, 1.0, 0.0]], dtype=dtype)
            value = score(probs)
            assert value.dtype == np.float64
            np.testing.assert_array_equal(value, score(probs.astype(float).tolist()))

    # No rows give no scores.
    for score in ALL:
        with noted(score=score):
            assert score(np.zeros((0, 3))).shape == (0,)

    # The input is left alone.
    probs = np.array([[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]])
    before = probs.copy()
    for score in ALL:
        score(probs)
        np.testing.assert_array_equal(probs, before)


@by_function
def test_bad_probabilities_are_refused(score):
    with pytest.raises(InputError, match="`probs` does not sum to 1: worst row 1"):
        score([[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(InputError, match="`probs` has NaN"):
        score([[0.5, 0.5], [np.nan, 0.4]])
    with pytest.raises(InputError, match="look like logits"):
        score([[3.0, -1.0], [1.0, 4.0]])


def test_rows_rounded_to_certainty_are_still_ranked():
    for score, dtype in product([entropy, gap_to_certain, bernoulli_variance], [np.float32, np.float64]):
        with noted(score=score, dtype=dtype):
            rest = np.array([0, 1e-35, 1e-30, 1e-20, 1e-17], dtype=dtype)
            probs = np.stack([np.ones(5, dtype), rest / 2, rest / 2], axis=1)
            assert (np.diff(score(probs)) > 0).all()

    # Gap to certain is exact where the top is rounded to 1.
    assert gap_to_certain([[1.0, 1e-20], [1e-30, 1.0]]).tolist() == [1e-20, 1e-30]
    assert gap_to_certain([1e-20, 1e-30]).tolist() == [1e-20, 1e-30]


@given(st.floats(0.5, 1.0, exclude_max=True), st.integers(0, 2**32 - 1))
def test_equal_top_probabilities_stay_tied(top, seed):
    rng = np.random.default_rng(seed)
    rest = rng.dirichlet(np.ones(4), size=6) * (1 - top)
    probs = np.concatenate([np.full((6, 1), top), rest], axis=1)
    assert len(set(gap_to_certain(probs))) == 1
    assert len(set(bernoulli_variance(probs))) == 1


@pytest.mark.slow
def test_entropy_of_a_million_rows_takes_under_a_second():
    probs = np.random.default_rng(0).dirichlet(np.ones(10), size=10**6)
    start = time.perf_counter()
    assert entropy(probs).shape == (10**6,)
    assert time.perf_counter() - start < 1
