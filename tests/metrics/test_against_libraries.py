"""The same numbers as scikit-learn and SciPy where they define the same thing, ties included."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest

from cases import each, noted, on_both_kernels
from uqeval import metrics

sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")
SEEDS = range(20)


def sample(seed, n=80):
    """A tied score (odd seeds) or a continuous one, errors, weights."""
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 6, n) / 5 if seed % 2 else rng.normal(size=n)
    error = (rng.random(n) < 0.3).astype(int)
    error[:2] = 0, 1
    return rng, score, error, rng.lognormal(size=n)


@on_both_kernels
def test_uq_auc_is_scikit_learns_roc_auc_and_scipys_mann_whitney():
    # UQ-AUC is scikit-learn's roc auc.
    for seed in SEEDS:
        with noted(seed=seed):
            _, s, e, w = sample(seed)
            assert metrics.uq_auc(s, e) == pytest.approx(sklearn.roc_auc_score(e, s), abs=1e-13)
            assert metrics.uq_auc(s, e, weights=w) == pytest.approx(
                sklearn.roc_auc_score(e, s, sample_weight=w), abs=1e-13
            )

    # UQ-AUC is SciPy's Mann–Whitney.
    for seed in SEEDS:
        with noted(seed=seed):
            _, s, e, _ = sample(seed)
            u = stats.mannwhitneyu(s[e == 1], s[e == 0]).statistic
            assert metrics.uq_auc(s, e) == pytest.approx(u / (e.sum() * (1 - e).sum()), abs=1e-14)


@each("seed", SEEDS)
def test_ood_aupr_is_scikit_learns_average_precision(seed):
    _, s, e, _ = sample(seed)
    inside, outside = s[e == 0], s[e == 1]
    assert metrics.ood_aupr(inside, outside) == pytest.approx(sklearn.average_precision_score(e, s), abs=1e-13)
    assert metrics.ood_aupr(inside, outside, positive="in") == pytest.approx(
        sklearn.average_precision_score(1 - e, -s), abs=1e-13
    )
    assert metrics.ood_auroc(inside, outside) == pytest.approx(sklearn.roc_auc_score(e, s), abs=1e-13)


def test_accuracy_brier_and_log_loss_are_scikit_learns():
    # Accuracy is scikit-learn's.
    for seed in SEEDS:
        with noted(seed=seed):
            _, _, e, w = sample(seed)
            zero = np.zeros(len(e), dtype=int)
            assert metrics.accuracy(e) == pytest.approx(sklearn.accuracy_score(e, zero), abs=1e-15)
            assert metrics.accuracy(e, weights=w) == pytest.approx(
                sklearn.accuracy_score(e, zero, sample_weight=w), abs=1e-14
            )

    # Binary Brier is twice scikit-learn's.
    for seed in SEEDS:
        with noted(seed=seed):
            rng, _, e, w = sample(seed)
            p = rng.random(len(e))
            assert metrics.brier(p, e) == pytest.approx(2 * sklearn.brier_score_loss(e, p), abs=1e-13)
            assert metrics.brier(p, e, weights=w) == pytest.approx(
                2 * sklearn.brier_score_loss(e, p, sample_weight=w), abs=1e-13
            )

    # Log-loss is scikit-learn's.
    for seed, classes in product(SEEDS, [2, 3, 10]):
        with noted(seed=seed, classes=classes):
            rng, _, _, w = sample(seed)
            probs, labels = rng.dirichlet(np.ones(classes), 80), rng.integers(0, classes, 80)
            expected = sklearn.log_loss(labels, probs, labels=np.arange(classes))
            assert metrics.log_loss(probs, labels) == pytest.approx(expected, abs=1e-12)
            expected = sklearn.log_loss(labels, probs, labels=np.arange(classes), sample_weight=w)
            assert metrics.log_loss(probs, labels, weights=w) == pytest.approx(expected, abs=1e-12)


@on_both_kernels
def test_kendall_tau_and_somers_d_are_scipys():
    # Kendall's tau is SciPy's tau-b.
    for seed in SEEDS:
        with noted(seed=seed):
            rng, s, _, _ = sample(seed, n=200)
            for truth in (rng.integers(0, 4, 200), rng.random(200), s + rng.normal(size=200)):
                assert metrics.kendall_tau(s, truth) == pytest.approx(stats.kendalltau(s, truth).statistic, abs=1e-13)

    # Somers' D is SciPy's with the truth as the independent variable.
    for seed in SEEDS:
        with noted(seed=seed):
            rng, s, _, _ = sample(seed, n=25)
            truth = rng.integers(0, 4, 25)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = stats.somersd(truth, s).statistic
            assert metrics.somers_d(s, truth) == pytest.approx(expected, abs=1e-13)
