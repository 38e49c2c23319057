"""Dirichlet scores against SciPy, sampling and exact limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma

from cases import each, noted
from uqeval._errors import InputError
from uqeval.scores import (
    dirichlet_differential_entropy,
    dirichlet_entropy,
    dirichlet_mutual_information,
    entropy,
    vacuity,
)

ALL = [dirichlet_entropy, dirichlet_mutual_information, dirichlet_differential_entropy, vacuity]
EVIDENCE = [dirichlet_mutual_information, dirichlet_differential_entropy, vacuity]
by_function = each("score", ALL, ids=lambda function: function.__name__)


@st.composite
def parameters(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(1, 8)), draw(st.integers(2, 10))
    return np.exp(rng.normal(size=(n, k)) * draw(st.sampled_from([0.3, 2.0])) + draw(st.sampled_from([0.0, 4.0])))


def brute(name, row):
    row = [float(a) for a in row]
    total = math.fsum(row)
    h = -math.fsum(a / total * math.log(a / total) for a in row)
    inside = float(digamma(total + 1)) - math.fsum(a / total * float(digamma(a + 1)) for a in row)
    return {
        "dirichlet_entropy": h,
        "dirichlet_mutual_information": h - inside,
        "dirichlet_differential_entropy": float(stats.dirichlet.entropy(row)),
        "vacuity": len(row) / total,
    }[name]


@by_function
@settings(max_examples=25)
@given(alpha=parameters())
def test_score_equals_its_definition(score, alpha):
    expected = [brute(score.__name__, row) for row in alpha]
    np.testing.assert_allclose(score(alpha), expected, rtol=1e-10, atol=1e-11)


def test_more_evidence_and_less_ambiguity_score_lower():
    # Less evidence scores higher.
    for score in EVIDENCE:
        with noted(score=score):
            assert (np.diff(score([[400.0, 80.0, 20.0], [40.0, 8.0, 2.0], [4.0, 2.0, 1.5], [1.0, 1.0, 1.0]])) > 0).all()

    # Entropy rises with ambiguity and ignores the amount of evidence.
    assert (np.diff(dirichlet_entropy([[9.0, 1.0], [7.0, 3.0], [5.0, 5.0]])) > 0).all()
    np.testing.assert_allclose(np.diff(dirichlet_entropy([[9.0, 1.0], [900.0, 100.0]])), 0, atol=1e-15)
    np.testing.assert_allclose(dirichlet_entropy([[9.0, 1.0]]), entropy([[0.9, 0.1]]), rtol=1e-14)

    # Uniform density has the largest differential entropy.
    assert dirichlet_differential_entropy([[1.0] * 4])[0] == pytest.approx(-math.log(6))
    assert dirichlet_differential_entropy([[1.1, 1.0, 1.0, 1.0]])[0] < -math.log(6)
    assert dirichlet_differential_entropy([[0.9, 1.0, 1.0, 1.0]])[0] < -math.log(6)

    # Vacuity without evidence is 1.
    assert vacuity([[1, 1, 1]]).tolist() == [1.0]


def test_mutual_information_matches_sampled_distributions():
    rng = np.random.default_rng(3)
    alpha = np.array([2.0, 0.7, 1.2])
    draws = rng.dirichlet(alpha, size=200_000)
    sampled = entropy(alpha[None] / alpha.sum())[0] - entropy(draws).mean()
    assert dirichlet_mutual_information(alpha[None])[0] == pytest.approx(sampled, abs=3e-3)


@given(parameters(), st.sampled_from([1e-300, 1e-8, 1.0, 1e8, 1e100]))
def test_mutual_information_is_never_negative(alpha, scale):
    information = dirichlet_mutual_information(alpha * scale)
    assert (information >= 0).all()
    assert (information <= math.log(alpha.shape[1]) + 1e-12).all()


def test_precision_is_kept_under_much_evidence_and_across_formulas():
    # Mutual information keeps its precision under much evidence.
    # (K − 1) / (2 alpha0) to first order, far under the rounding error of either entropy.
    alpha = np.array([[1e12, 3e12], [1e18, 3e18], [1e25, 3e25]])
    np.testing.assert_allclose(dirichlet_mutual_information(alpha), 0.5 / alpha.sum(axis=1), rtol=1e-9)

    # Differential entropy keeps its precision under much evidence.
    # A narrow Beta(a, a) is normal with variance 1 / (4 (2a + 1)).
    a = np.array([1e8, 1e12, 1e18])
    expected = 0.5 * np.log(2 * np.pi * math.e / (4 * (2 * a + 1)))
    np.testing.assert_allclose(dirichlet_differential_entropy(np.stack([a, a], axis=1)), expected, rtol=1e-8)

    # The change of formula leaves no step.
    for edge in [50.0, 100.0]:
        with noted(edge=edge):
            a = edge + np.array([-1e-9, 0.0, 1e-9])
            alpha = np.stack([a, np.full(3, 2.0)], axis=1)
            for score in (dirichlet_mutual_information, dirichlet_differential_entropy):
                np.testing.assert_allclose(score(alpha), [brute(score.__name__, row) for row in alpha], rtol=1e-11)

    # Extreme parameters give numbers.
    for score in ALL:
        with noted(score=score):
            alpha = [[1e-310, 1e-310], [1e-300, 1e300], [1e308, 1e308], [1e-20, 1.0]]
            assert np.isfinite(score(alpha)).all()


@by_function
@settings(max_examples=25)
@given(alpha=parameters(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_classes_changes_no_bit(score, alpha, seed):
    shuffled = np.random.default_rng(seed).permuted(alpha, axis=1)
    np.testing.assert_array_equal(score(shuffled), score(alpha))


@by_function
@each("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_every_number_type_gives_float64_and_is_left_alone(score, dtype):
    alpha = np.array([[3, 1, 2], [5, 5, 1]], dtype=dtype)
    before = alpha.copy()
    assert score(alpha).dtype == np.float64
    np.testing.assert_array_equal(score(alpha), score(alpha.astype(float).tolist()))
    np.testing.assert_array_equal(alpha, before)


@by_function
def test_bad_parameters_are_refused(score):
    with pytest.raises(InputError, match=r"`alpha` must be above 0; row 1 holds 0 \(1 such row\).*alpha = e \+ 1"):
        score([[1.0, 2.0], [0.0, 2.0]])
    with pytest.raises(InputError, match="`alpha` has NaN or infinity"):
        score([[-np.inf, 2.0]])
    with pytest.raises(InputError, match="`alpha` has NaN"):
        score([[np.nan, 2.0]])
    with pytest.raises(InputError, match=r"`alpha` has shape \(2,\)"):
        score([1.0, 2.0])
