"""The mixture of Gaussians: exact probabilities, stratified split, one seed one dataset."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from uqeval import InputError, truth
from uqeval.datasets import synthetic


def test_pi_is_bayes_rule_on_the_densities():
    for options in [{}, {"prior": 0.2, "sigma": 0.7}, {"classes": 4, "dim": 3, "prior": [0.1, 0.2, 0.3, 0.4]}]:
        data = synthetic(200, seed=2, **options)
        joint = np.stack(
            [
                p * multivariate_normal(mean, data.sigma**2 * np.eye(data.x.shape[1])).pdf(data.x)
                for p, mean in zip(data.prior, data.means, strict=True)
            ],
            axis=1,
        )
        np.testing.assert_allclose(data.pi(data.x), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9)
        np.testing.assert_array_equal(data.bayes_labels(data.x), joint.argmax(axis=1))


def test_phi_and_varphi_are_those_of_the_exact_soft_labels():
    data = synthetic(500, seed=4)
    probs = np.random.default_rng(0).dirichlet([1, 1], 500)
    pi = data.pi(data.x)
    np.testing.assert_allclose(data.phi(data.x, probs), truth.phi(pi, probs), atol=1e-12)
    np.testing.assert_allclose(data.varphi(data.x, probs), truth.varphi(pi, probs), atol=1e-12)
    np.testing.assert_array_equal(data.misaligned(data.x, probs), truth.misaligned(pi, probs))


def test_phi_does_not_round_where_the_label_is_almost_sure():
    data = synthetic(10, tau=400.0, sigma=0.5, seed=0)
    phi = data.phi(data.x, np.eye(2)[data.labels])
    assert (phi > 0).all()
    assert len(np.unique(phi)) == 10


def test_labels_follow_pi():
    data = synthetic(200_000, seed=5)
    p = data.pi(data.x)[:, 1]
    for low in np.arange(0, 1, 0.1):
        inside = (p >= low) & (p < low + 0.1)
        if inside.sum() > 500:
            sd = 0.5 / np.sqrt(inside.sum())
            assert abs(data.labels[inside].mean() - p[inside].mean()) < 4 * sd


def test_the_split_is_stratified_and_holds_every_row_once():
    data = synthetic(1000, prior=0.3, seed=6)
    assert sorted([*data.train, *data.test]) == list(range(1000))
    assert (len(data.train), len(data.test)) == (600, 400)
    share = data.labels.mean()
    assert abs(data.labels[data.train].sum() - 600 * share) <= 1
    assert abs(data.labels[data.test].sum() - 400 * share) <= 1


def test_one_seed_one_dataset():
    a, b, c = synthetic(seed=1), synthetic(seed=np.random.default_rng(1)), synthetic(seed=2)
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.train, b.train)
    assert not np.array_equal(a.x, c.x)


def test_d_is_the_distance_of_the_means():
    data = synthetic(seed=3)
    assert data.d == pytest.approx(np.linalg.norm(data.means[1] - data.means[0]))


def test_options_that_mean_nothing_are_refused():
    for options, named in [
        ({"n": 1}, "n"),
        ({"n": 10.5}, "n"),
        ({"dim": 0}, "dim"),
        ({"classes": 1}, "classes"),
        ({"tau": 0}, "tau"),
        ({"sigma": -1}, "sigma"),
        ({"prior": 1.0}, "prior"),
        ({"prior": [0.5, 0.6]}, "prior"),
        ({"classes": 3, "prior": 0.3}, "prior"),
        ({"train": 1}, "train"),
    ]:
        with pytest.raises(InputError, match=f"`{named}`"):
            synthetic(**({"n": 100} | options))
