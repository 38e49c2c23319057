"""Scores of ensembles against their definitions in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, noted
from uqeval._errors import InputError
from uqeval.scores import (
    aleatoric_entropy,
    entropy,
    expected_free_energy,
    free_energy,
    mutual_information,
    predicted_class_variance,
    total_entropy,
    vote_entropy,
    vote_ratio,
)

ALL = [total_entropy, aleatoric_entropy, mutual_information, predicted_class_variance, vote_ratio, vote_entropy]
DISAGREEMENT = [mutual_information, predicted_class_variance, vote_ratio, vote_entropy]
by_function = each("score", ALL, ids=lambda function: function.__name__)


@st.composite
def ensembles(draw):
    """(m, n, K): continuous rows, one-hot members, and rows on a grid of twentieths."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n, k = draw(st.integers(1, 12)), draw(st.integers(1, 8)), draw(st.integers(2, 6))
    p = rng.dirichlet(np.full(k, draw(st.sampled_from([0.05, 1.0, 20.0]))), size=(m, n))
    p[rng.random((m, n)) < 0.2] = rng.multinomial(20, np.full(k, 1 / k)) / 20
    p[rng.random((m, n)) < 0.2] = np.eye(k)[rng.integers(k)]
    return p


def h(row):
    return -math.fsum(p * math.log(p) for p in row if p > 0)


def brute(name, rows):
    rows = [[float(p) for p in row] for row in rows]
    m, k = len(rows), len(rows[0])
    mean = [math.fsum(row[c] for row in rows) / m for c in range(k)]
    votes = Counter(row.index(max(row)) for row in rows)
    total, inside = h(mean), math.fsum(h(row) for row in rows) / m
    top = mean.index(max(mean))
    return {
        "total_entropy": total,
        "aleatoric_entropy": inside,
        "mutual_information": total - inside,
        "predicted_class_variance": math.fsum((row[top] - mean[top]) ** 2 for row in rows) / m,
        "vote_ratio": 1 - max(votes.values()) / m,
        "vote_entropy": h([count / m for count in votes.values()]),
    }[name]


@by_function
@settings(max_examples=25)
@given(members=ensembles())
def test_score_equals_its_definition(score, members):
    means = np.sort(members.mean(axis=0), axis=-1)
    # Within rounding of a tie the predicted class, hence its variance, is a toss-up.
    clear = means[:, -1] - means[:, -2] > 1e-12
    expected = np.array([brute(score.__name__, members[:, i]) for i in range(members.shape[1])])
    keep = clear if score is predicted_class_variance else slice(None)
    np.testing.assert_allclose(score(members)[keep], expected[keep], rtol=1e-11, atol=1e-14)


def test_members_that_disagree_more_or_are_less_sure_score_higher():
    # Members that disagree more score higher.
    for score in DISAGREEMENT:
        with noted(score=score):
            agree = [[0.9, 0.1]] * 4
            mild = [[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]
            split = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.15, 0.85]]
            assert (np.diff(score(np.array([agree, mild, split]).transpose(1, 0, 2))) > 0).all()

    # Members closer to uniform score higher.
    for score in [total_entropy, aleatoric_entropy]:
        with noted(score=score):
            rows = [[0.95, 0.05], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]]
            assert (np.diff(score([rows, rows, rows])) > 0).all()

    # Expected free energy rises with ambiguity.
    rows = [[9.0, 0.0], [4.0, 0.0], [0.5, 0.0]]
    assert (np.diff(expected_free_energy([rows, rows])) > 0).all()


@given(ensembles(), st.sampled_from([1, 2, 3, 5, 7, 10, 50]))
def test_identical_members_disagree_by_exactly_zero(members, m):
    copies = np.stack([members[0]] * m)
    for score in DISAGREEMENT:
        assert score(copies).tolist() == [0.0] * copies.shape[1]
    np.testing.assert_array_equal(total_entropy(copies), entropy(members[0]))
    np.testing.assert_array_equal(aleatoric_entropy(copies), entropy(members[0]))


@given(ensembles())
def test_scores_stay_in_their_range(members):
    k = members.shape[-1]
    assert (mutual_information(members) >= 0).all()
    assert (mutual_information(members) <= math.log(k) + 1e-12).all()
    assert (predicted_class_variance(members) <= 0.25).all()
    assert (vote_ratio(members) <= 1 - 1 / k + 1e-15).all()
    total = aleatoric_entropy(members) + mutual_information(members)
    np.testing.assert_allclose(total, total_entropy(members), atol=1e-14)


@by_function
@settings(max_examples=25)
@given(members=ensembles(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_the_classes_changes_no_bit(score, members, seed):
    # Ties at the top go to the lowest index by definition, so only rows without any are comparable.
    ordered = np.sort(np.concatenate([members, members.mean(axis=0, keepdims=True)]), axis=-1)
    clear = (ordered[..., -1] - ordered[..., -2] > 1e-12).all(axis=0)
    order = np.random.default_rng(seed).permutation(members.shape[-1])
    np.testing.assert_array_equal(score(members[..., order])[clear], score(members)[clear])


@by_function
@settings(max_examples=20)
@given(members=ensembles())
def test_a_row_scores_the_same_alone_and_in_a_batch(score, members):
    filler = np.full((len(members), 8_000, members.shape[-1]), 1 / members.shape[-1])
    many = score(np.concatenate([members, filler, members], axis=1))
    n = members.shape[1]
    alone = np.concatenate([score(members[:, i : i + 1]) for i in range(n)])
    np.testing.assert_array_equal(many[:n], alone)
    np.testing.assert_array_equal(many[-n:], alone)


def test_votes_tie_exactly_and_a_tied_member_votes_for_the_lowest_index():
    # Equal vote splits tie exactly.
    for m in [3, 5, 6, 7]:
        with noted(m=m):
            rng = np.random.default_rng(m)
            votes = np.arange(m) % 3
            members = np.eye(4)[np.stack([rng.permutation(4)[rng.permutation(votes)] for _ in range(200)], axis=1)]
            for score in (vote_entropy, vote_ratio, total_entropy, mutual_information):
                assert len(set(score(members))) == 1

    # A member whose top is tied votes for the lowest index.
    members = [[[0.5, 0.5]], [[0.1, 0.9]], [[0.8, 0.2]]]
    assert vote_ratio(members) == pytest.approx([1 / 3])


@given(ensembles())
def test_one_member_is_unanimous(members):
    one = members[:1]
    assert not any(score(one).any() for score in DISAGREEMENT)


@each("dtype", [np.float32, np.float64])
def test_variance_ranks_rows_rounded_to_certainty(dtype):
    rest = np.array([0, 1e-18, 1e-12, 1e-9], dtype=dtype)
    certain = np.stack([np.ones(4, dtype), np.zeros(4, dtype)], axis=1)
    less = np.stack([np.ones(4, dtype), rest], axis=1)
    np.testing.assert_allclose(
        predicted_class_variance(np.stack([certain, less])), rest.astype(float) ** 2 / 4, rtol=1e-6
    )


def test_every_form_of_members_gives_float64():
    # Two axes are the probability of class 1.
    for score in ALL:
        with noted(score=score):
            p = np.array([[0.125, 0.5, 0.75], [0.25, 0.75, 0.875]])
            np.testing.assert_array_equal(score(p), score(np.stack([1 - p, p], axis=-1)))

    # Lists and every float type give float64.
    for score, dtype in product(ALL, [np.float16, np.float32, np.float64]):
        with noted(score=score, dtype=dtype):
            members = np.array(
                [[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], [[0.125, 0.75, 0.125], [0.0, 1.0, 0.0]]], dtype=dtype
            )
            assert score(members).dtype == np.float64
            np.testing.assert_array_equal(score(list(members)), score(members.astype(float).tolist()))

    # No rows give no scores.
    for score in ALL:
        with noted(score=score):
            assert score(np.zeros((3, 0, 2))).shape == (0,)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([0.5, 1.0, 4.0]))
def test_expected_free_energy_is_the_mean_over_members(seed, m, temperature):
    logits = np.random.default_rng(seed).normal(size=(m, 6, 4)) * 10
    expected = np.mean([free_energy(member, temperature) for member in logits], axis=0)
    np.testing.assert_allclose(expected_free_energy(logits, temperature), expected, rtol=1e-12, atol=1e-13)
    copies = [logits[0]] * m
    np.testing.assert_array_equal(expected_free_energy(copies, temperature), free_energy(logits[0], temperature))


def test_expected_free_energy_of_huge_logits_is_finite():
    assert expected_free_energy([[[1e4, -1e4]], [[-1e4, -1e4]]]) == pytest.approx([0.0], abs=1)


def test_bad_members_are_refused():
    for score in ALL:
        with noted(score=score):
            with pytest.raises(InputError, match="`members` does not sum to 1: worst row 1"):
                score([[[0.5, 0.5], [0.5, 0.4]]])
            with pytest.raises(InputError, match=r"`members\[1\]` has shape \(1, 3\)"):
                score([[[0.5, 0.5]], [[0.2, 0.3, 0.5]]])
            with pytest.raises(InputError, match="`members` has no member"):
                score(np.zeros((0, 4, 2)))
            with pytest.raises(InputError, match="`members` is missing"):
                score(None)

    # Bad member logits are refused.
    with pytest.raises(InputError, match="`member_logits` has NaN"):
        expected_free_energy([[[0.0, np.nan]]])
    with pytest.raises(InputError, match="`temperature` must be a finite number above 0; it is 0"):
        expected_free_energy([[[0.0, 1.0]]], temperature=0)
    with pytest.raises(InputError, match="`member_logits` has no member"):
        expected_free_energy(np.zeros((0, 4, 2)))
