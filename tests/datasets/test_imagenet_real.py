"""ReaL-ImageNet: soft labels from the published scores, and Dawid-Skene on the real votes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from uqeval import InputError
from uqeval.datasets import dawid_skene, imagenet_real
from uqeval.datasets.imagenet_real import _assemble

ANSWERS = [[1, 0], [0.5, 0.5], [0, 1]]  # no, maybe, yes


@pytest.fixture(scope="module")
def real():
    folder = os.environ.get("UQEVAL_DATA")
    if not folder or not (Path(folder) / "imagenet_real").exists():
        pytest.skip("UQEVAL_DATA names no folder with imagenet_real/")
    return imagenet_real(folder)


@pytest.fixture(scope="module")
def votes(real):
    return real.votes()


@pytest.fixture
def small():
    """Image 0 rated with two labels; 1 rated, none valid; 2 not rated; 3 rated with a tie."""
    pairs = np.array([[3, 9], [0, 7], [0, 4], [1, 5], [3, 8]])
    return _assemble(((4,), (), (6,), (8, 9)), pairs, np.array([0.9, 0.2, 0.8, 0.3, 0.9]))


def test_scores_are_normalised_for_each_image_and_unrated_images_are_certain(small):
    assert small.kept.tolist() == [0, 2, 3]
    assert small.excluded.tolist() == [1]
    assert small.labels.tolist() == [4, -1, 6, 8]
    dense = small.soft_labels([3, 0, 2])
    np.testing.assert_allclose(dense[1, [4, 7]], [0.8, 0.2])
    np.testing.assert_allclose(dense[0, [8, 9]], [0.5, 0.5])
    assert dense[2, 6] == 1
    np.testing.assert_allclose(dense.sum(axis=1), 1)
    assert small.rated.tolist() == [True, True, False, True]
    assert "1 left out" in repr(small)


def test_prob_of_is_the_entry_of_the_soft_labels(small):
    rows, classes = np.array([0, 0, 0, 3, 2, 3]), np.array([4, 7, 999, 9, 6, 0])
    np.testing.assert_allclose(small.prob_of(rows, classes), small.soft_labels(rows)[np.arange(6), classes])


def test_rows_without_a_soft_label_are_refused(small):
    for rows, reason in [([1], "kept"), ([4], "0..3"), ([-1], "0..3"), ([0.5], "image numbers")]:
        with pytest.raises(InputError, match=reason):
            small.soft_labels(rows)
        with pytest.raises(InputError, match="`classes`"):
            small.prob_of([0, 2], [1])


def test_real_counts_are_those_of_the_documentation(real):
    assert len(real.kept) == 46_837
    assert len(real.excluded) == 3_163
    assert real.rated.sum() == 24_889
    assert real.rated[real.kept].sum() == 21_726
    assert real.pairs.shape == (184_962, 2)
    assert {len(real.valid[k]) for k in np.flatnonzero(~real.rated)} == {1}
    assert real.images[0] == "ILSVRC2012_val_00000001.JPEG"
    assert all(not real.valid[k] for k in real.excluded)
    assert all(real.labels[k] in real.valid[k] for k in real.kept)


def test_real_soft_labels_sum_to_one_and_follow_the_scores(real):
    rows = real.kept[::50]
    dense = real.soft_labels(rows)
    np.testing.assert_allclose(dense.sum(axis=1), 1)
    np.testing.assert_array_equal(dense.argmax(axis=1), real.labels[rows])
    at = np.flatnonzero(real.pairs[:, 0] == rows[real.rated[rows]][0])
    scores = real.scores[at]
    row = dense[real.rated[rows]][0]
    np.testing.assert_allclose(row[real.pairs[at, 1]], scores / scores.sum())


def test_published_labels_are_the_scores_above_four_fifths(real):
    accepted = np.array([label in real.valid[image] for image, label in real.pairs.tolist()])
    np.testing.assert_array_equal(accepted, real.scores > 0.8)


def test_every_question_has_five_votes(votes):
    assert votes.shape == (924_810, 3)
    assert (np.bincount(votes[:, 1]) == 5).all()
    assert np.bincount(votes[:, 2]).tolist() == [729_424, 78_942, 116_444]
    assert votes[:, 0].max() == 84


@pytest.mark.slow
def test_dawid_skene_on_the_votes_agrees_with_the_published_scores(real, votes):
    found = dawid_skene(votes, meaning=ANSWERS)
    mine = found.posterior[:, 1]
    assert found.converged
    assert np.corrcoef(mine, real.scores)[0, 1] > 0.984
    assert ((mine > 0.5) == (real.scores > 0.5)).mean() > 0.983
    assert np.abs(mine - real.scores).mean() < 0.0185
    again = _assemble(real.valid, real.pairs, mine)
    rows = real.kept[real.rated[real.kept]]
    assert (again.labels[rows] == real.labels[rows]).mean() > 0.95


@pytest.mark.slow
def test_published_scores_are_one_e_step_with_weights_from_elsewhere(real, votes):
    """Their log-odds are a sum of a weight for each vote and one of three intercepts, without any rest.

    So they are Dawid and Skene's posterior, with one prior for objects (label ≥ 398), one for animals and one for
    one marked animal label of an image; but a rater with 6 votes has a finite, moderate weight: the confusion
    matrices were not estimated on these votes.
    """
    odds = np.log(real.scores) - np.log1p(-real.scores)
    n = len(odds)
    by_vote = sparse.csr_matrix((np.ones(len(votes)), (votes[:, 1], votes[:, 0] * 3 + votes[:, 2])), shape=(n, 255))
    animal = (real.pairs[:, 1] < 398).astype(float)
    marked = np.zeros(n)
    for _ in range(2):
        design = sparse.hstack([by_vote, animal[:, None], marked[:, None]]).tocsr()
        weights = sparse.linalg.lsqr(design, odds, atol=1e-14, btol=1e-14, iter_lim=4000)[0]
        rest = odds - design @ weights
        top = np.full(len(real.valid), -np.inf)
        np.maximum.at(top, real.pairs[:, 0], rest)
        if not marked.any():
            marked = ((rest == top[real.pairs[:, 0]]) & (rest > 1)).astype(float)
    assert np.abs(rest).max() < 1e-6
    assert marked.sum() == 8_447
    assert animal[marked == 1].all()
    few = np.flatnonzero(np.bincount(votes[:, 0]) == 6)[0]
    assert np.ptp(weights[3 * few : 3 * few + 3]) < 3
