"""Scores of generated texts: from token log-probabilities, and from several sampled answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import entropy

from uqeval import scores
from uqeval._errors import InputError

RNG = np.random.default_rng(5)
LOGPROBS = [np.log(RNG.uniform(0.01, 1, size)).tolist() for size in (1, 2, 7, 40)]


def test_nll_and_perplexity_equal_products_of_probabilities():
    products = [math.prod(map(math.exp, tokens)) for tokens in LOGPROBS]
    sizes = [len(tokens) for tokens in LOGPROBS]
    assert np.exp(-scores.sequence_nll(LOGPROBS)) == pytest.approx(products, rel=1e-12)
    geometric = [product ** (1 / size) for product, size in zip(products, sizes, strict=True)]
    assert np.exp(-scores.mean_token_nll(LOGPROBS)) == pytest.approx(geometric, rel=1e-12)
    assert scores.perplexity(LOGPROBS) == pytest.approx(1 / np.array(geometric), rel=1e-12)


def test_token_entropy_is_that_of_the_listed_alternatives_and_one_more_for_the_rest():
    dirichlet = RNG.dirichlet(np.ones(6), size=(3, 4))
    whole = scores.mean_token_entropy(np.log(dirichlet))
    assert whole == pytest.approx(entropy(dirichlet, axis=-1).mean(axis=-1), rel=1e-12)
    top = np.sort(dirichlet)[..., :1:-1]  # the four most probable
    merged = np.concatenate([top, 1 - top.sum(axis=-1, keepdims=True)], axis=-1)
    found = scores.mean_token_entropy(np.log(top))
    assert found == pytest.approx(entropy(merged, axis=-1).mean(axis=-1), rel=1e-12)
    assert (found < whole).all()


def test_a_certain_text_scores_zero_and_an_impossible_token_infinity():
    for score in (scores.sequence_nll, scores.mean_token_nll):
        assert not np.signbit(score([[0.0, 0.0]])).any()
        assert score([[0.0, 0.0], [-1.0, -math.inf]]).tolist() == [0.0, math.inf]
    assert scores.mean_token_entropy([[[0.0]], [[0.0, -math.inf]]]).tolist() == [0.0, 0.0]
    assert scores.perplexity([[-9999.0]]).tolist() == [math.inf]


def test_sampled_answers_score_by_how_far_they_spread():
    samples = [["a"] * 4, ["a", "a", "a", "b"], ["a", "a", "b", "b"], ["a", "b", "c", "d"]]
    assert scores.answer_disagreement(samples).tolist() == [0.0, 0.25, 0.5, 0.75]
    shares = [[1], [0.75, 0.25], [0.5, 0.5], [0.25] * 4]
    assert scores.cluster_entropy(samples) == pytest.approx([entropy(share) for share in shares], abs=1e-12)
    assert scores.cluster_entropy(np.array([[0, 0], [0, 1]])).tolist() == [0.0, math.log(2)]


def test_semantic_clusters_need_both_directions_and_do_not_compare_equal_answers():
    asked = []

    def entails(a, b):
        asked.append((a, b))
        return set(b) <= set(a)

    assert scores.semantic_clusters([["ab", "ba", "a", "ab", "aa"]], entails) == [[0, 0, 1, 0, 1]]
    assert all(a != b for a, b in asked)
    assert ("ab", "a") in asked
    assert ("a", "ab") in asked


def test_what_cannot_be_scored_is_refused_with_its_place():
    for function, value, message in [
        (scores.sequence_nll, [[-1.0], []], "no numbers in answer 1"),
        (scores.mean_token_nll, [[-1.0], [0.5]], "has 0.5 in answer 1"),
        (scores.perplexity, [[math.nan]], "has nan in answer 0"),
        (scores.sequence_nll, [-1.0, -2.0], "a sequence of numbers for each answer"),
        (scores.mean_token_entropy, [[[-0.1, -0.1]]], "sum to 1.81"),
        (scores.mean_token_entropy, [[[]]], "no numbers in answer 0"),
        (scores.answer_disagreement, [["a", "b"], ["a"]], "has 1 for question 1"),
        (scores.cluster_entropy, ["ab"], "a list of answers for each question"),
        (lambda value: scores.semantic_clusters(value, "exact"), [["a", "b"]], "`same` is a str"),
    ]:
        with pytest.raises(InputError, match=message):
            function(value)
