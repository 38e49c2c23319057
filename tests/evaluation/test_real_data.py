"""Claims on real predictions and human votes (CIFAR-10H); skipped where `UQEVAL_DATA` does not say where they are."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import kendalltau

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import uqeval as uq
from cases import each, noted

DATA = os.environ.get("UQEVAL_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="UQEVAL_DATA is unset: no real data here")

MODELS = ("resnet18-e10", "vit_tiny-e1", "noise-resnet18-0.5")


def folder():
    return Path(DATA) / "cifar10h"


def softmax(z):
    z = z.astype(np.float64)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def labels():
    with np.load(folder() / "cifar10_test_jpeg.npz") as file:
        return file["y"]


@pytest.fixture(scope="module")
def votes():
    return np.load(folder() / "cifar10h-probs.npy")


@pytest.fixture(scope="module")
def zoo():
    with np.load(folder() / "zoo_logits.npz") as file:
        return {name: file[name] for name in file.files}


def evaluated(*args, **kwargs):
    """The evaluation, and any UQWarning that is not about tied top classes (float16 logits and votes tie)."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", uq.UQWarning)
        ev = uq.evaluate(*args, **kwargs)
    return ev, [str(w.message) for w in raised if "tied top class" not in str(w.message)]


@pytest.fixture(scope="module")
def evaluations(zoo, labels, votes):
    """Logits and evaluation of each model."""
    found = {}
    for name in MODELS:
        ev, notes = evaluated(
            uq.Predictions(labels, logits=zoo[name], soft_labels=votes), scores=["entropy", "max_logit"]
        )
        assert notes == [], name
        found[name] = zoo[name], ev
    return found


def test_metrics_equal_scikit_learn_and_scipy(evaluations, labels, votes):
    # UQ-AUC equals scikit-learn.
    for model in MODELS:
        with noted(model=model):
            z, ev = evaluations[model]
            p = softmax(z)
            error = z.argmax(1) != labels
            assert ev["entropy", "uq_auc"].value == pytest.approx(roc_auc_score(error, uq.scores.entropy(p)), abs=1e-12)
            assert ev["max_logit", "uq_auc"].value == pytest.approx(roc_auc_score(error, -z.max(1)), abs=1e-12)

    # Kendall with human votes equals SciPy.
    for model in MODELS:
        with noted(model=model):
            z, ev = evaluations[model]
            p = softmax(z)
            rows = np.arange(len(p))
            s = uq.scores.entropy(p)
            phi = 1 - votes[rows, p.argmax(1)]
            varphi = 1 - p[rows, votes.argmax(1)]
            assert ev["entropy", "kendall_phi"].value == pytest.approx(kendalltau(s, phi).statistic, abs=1e-12)
            assert ev["entropy", "kendall_varphi"].value == pytest.approx(kendalltau(s, varphi).statistic, abs=1e-12)

    # Brier and log-loss equal scikit-learn.
    for model in MODELS:
        with noted(model=model):
            z, ev = evaluations[model]
            p = softmax(z)
            assert ev["log_loss"].value == pytest.approx(log_loss(labels, p, labels=range(10)), rel=1e-6)
            by_class = [brier_score_loss(labels == k, p[:, k]) for k in range(10)]
            assert ev["brier"].value == pytest.approx(sum(by_class), rel=1e-9)


def test_the_c_index_counts_pairs_as_its_definition_says(zoo, labels):
    z, y = zoo["resnet18-e10"][:1500].astype(np.float64), labels[:1500]
    loss = -log_softmax(z, axis=1)[np.arange(1500), y]
    s = -z.max(1)
    comparable = loss[:, None] < loss[None]
    credit = (s[:, None] < s[None]) + (s[:, None] == s[None]) / 2
    ev, _ = evaluated(uq.Predictions(y, logits=z), scores="max_logit", metrics="uq_c_index")
    expected = credit[comparable].sum() / comparable.sum()
    assert ev["max_logit", "uq_c_index"].value == pytest.approx(expected, abs=1e-6)


def test_accuracies_are_those_of_the_zoo(zoo, labels):
    known = json.loads((folder() / "zoo_models.json").read_text())
    assert set(known) == set(zoo)
    for name, z in zoo.items():
        ev, _ = evaluated(uq.Predictions(labels, logits=z), metrics="accuracy", scores="max_logit")
        top = np.sort(z.astype(np.float64), axis=1)
        tied = np.count_nonzero(top[:, -1] == top[:, -2])  # float16 made ties that the network did not have
        assert abs(ev.accuracy - known[name]["accuracy"]) <= tied / len(z) + 1e-9, name
        assert ev["accuracy"].low < known[name]["accuracy"] < ev["accuracy"].high


def test_entropy_ranks_the_errors_of_every_trained_network(zoo, labels):
    for name, z in zoo.items():
        ev, notes = evaluated(uq.Predictions(labels, logits=z), scores="entropy", metrics="uq_auc")
        assert ev["entropy", "uq_auc"].low > 0.5, name
        assert notes == []


@each(("file", "name"), [("ensemble", "vgg11_bn"), ("mc_dropout", "resnet18-0.3")])
def test_every_score_of_an_ensemble_works_without_a_warning(file, name, labels, votes):
    with np.load(folder() / f"{file}_logits.npz") as arrays:
        z = arrays[name][:5]
    ev, notes = evaluated(
        uq.Predictions(labels, member_logits=z, soft_labels=votes), metrics=["uq_auc", "uq_c_index", "aurc"]
    )
    assert notes == []
    wanted = {"total_entropy", "aleatoric_entropy", "mutual_information", "vote_ratio", "expected_free_energy"}
    assert wanted <= set(ev.scores)
    for score in ev.scores:
        assert ev[score, "uq_auc"].low > 0.5, score
    error = softmax(z).mean(0).argmax(1) != labels
    mi = uq.scores.mutual_information(softmax(z))
    assert ev["mutual_information", "uq_auc"].value == pytest.approx(roc_auc_score(error, mi), abs=1e-12)
    assert ev.tie_rate["vote_ratio"] > 0.3 > ev.tie_rate["mutual_information"]


def test_an_ensemble_is_more_accurate_than_its_members(labels):
    with np.load(folder() / "ensemble_logits.npz") as arrays:
        z = arrays["vgg11_bn"]
    whole, _ = evaluated(uq.Predictions(labels, member_logits=z), scores="total_entropy", metrics="accuracy")
    single = [(member.argmax(1) == labels).mean() for member in z]
    assert whole["accuracy"].low > np.mean(single)


def test_a_human_score_ranks_errors_of_the_majority_label(zoo, labels, votes):
    # How far people disagree says where the network errs, though it never saw them.
    s = uq.scores.entropy(votes)
    error = zoo["resnet18-e10"].argmax(1) != labels
    ev, notes = evaluated(score=s, error=error)
    assert notes == []
    assert ev["score", "uq_auc"].low > 0.55
    assert ev.tie_rate["score"] > 0.1  # unanimous images


def test_weights_and_clusters_run_on_real_data(zoo, labels):
    rng = np.random.default_rng(0)
    n = len(labels)
    clusters = rng.integers(0, 500, n)
    w = np.where(labels == 3, 2.0, 1.0)
    z = zoo["resnet18-e10"]
    main = ["uq_auc", "uq_c_index", "aurc", "accuracy"]
    plain, _ = evaluated(uq.Predictions(labels, logits=z), scores="entropy", metrics=main)
    by_cluster, notes = evaluated(uq.Predictions(labels, logits=z, clusters=clusters), scores="entropy", metrics=main)
    weighted, more = evaluated(uq.Predictions(labels, logits=z, weights=w), scores="entropy", metrics=main)
    assert notes == more == []
    for metric in main:
        a, b = plain["entropy", metric], by_cluster["entropy", metric]
        assert a.value == pytest.approx(b.value, abs=1e-12)
        assert 0.8 < b.se / a.se < 1.25, metric  # clusters at random tell nothing
    error = z.argmax(1) != labels
    expected = roc_auc_score(error, uq.scores.entropy(softmax(z)), sample_weight=w)
    assert weighted["entropy", "uq_auc"].value == pytest.approx(expected, abs=1e-10)
    assert weighted.accuracy == pytest.approx(1 - np.average(error, weights=w))


def test_groups_by_true_class_hold_all_rows(zoo, labels):
    ev, _ = evaluated(
        uq.Predictions(labels, logits=zoo["resnet18-e10"], groups=labels), scores="entropy", metrics=["uq_auc"]
    )
    assert ev.groups == tuple("0123456789")
    assert [ev["entropy", "uq_auc", k].n for k in range(10)] == [1000] * 10
