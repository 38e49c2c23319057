"""The true values that promises are judged by: closed forms, and one large sample counted by definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from uqeval import metrics
from validation import files
from validation.designs import DESIGNS
from validation.grid import AGAIN, CONFIRMING, FOURTH, THIRD, TUNING
from validation.laws import NODES, SMOOTH, Finite, population
from validation.promises import fixed_thresholds, ood_truth

N = 60_000
LAWS = [*TUNING.laws, *(law for law in CONFIRMING.laws if law in SMOOTH), *AGAIN.laws, *THIRD.laws, *FOURTH.laws]


def by_definition(rows):
    """Values of a sample, apart from the package: cumulative sums over sorted rows, random order inside ties.

    And the standard error of AURC, a mean of V·(−ln U): at a high AUC a hundred times smaller than at a low one.
    """
    rng = np.random.default_rng(9)
    order = np.lexsort((rng.random(len(rows.score)), rows.score))
    v, n = rows.wrong[order].astype(float), len(order)
    accepted, errors = np.arange(1, n + 1), np.cumsum(v)
    err = v.mean()
    aurc = (errors / accepted).mean()
    half = rng.permutation(n)[: 2 * (n // 2)].reshape(2, -1)  # disjoint pairs: an unbiased C-index
    ds, dl = (np.sign(x[half[0]] - x[half[1]]) for x in (rows.score, rows.loss))
    right, c = 1.0 - rows.wrong, rows.confidence
    gaps = [(right - c)[np.ceil(c * 15) == k].sum() for k in range(1, 16)]
    chance = np.where(right == 1, c, 1 - c)
    return {
        "accuracy": 1 - err,
        "uq_auc": (np.cumsum(1 - v) * v).sum() / (v.sum() * (n - v.sum())),
        "uq_c_index": ((1 + ds * dl) / 2).mean(),
        "aurc": aurc,
        "e_aurc": aurc - (err + (1 - err) * math.log(1 - err)),
        "augrc": errors.sum() / n / n,
        "h_auc": (np.cumsum(1 - v) * v).sum() / n / n,
        "selective_accuracy_90": 1 - errors[round(0.9 * n) - 1] / (0.9 * n),
        "ece_debiased": np.abs(gaps).sum() / n,
        "brier": (2 * (1 - chance) ** 2).mean(),
        "log_loss": -np.log(chance).mean(),
    }, (v * -np.log(accepted / n)).std() / math.sqrt(n)


def spread(name, err, of_aurc):
    """About one standard error of a value on N rows; few errors make those of the ranking metrics larger."""
    few = math.sqrt(err * N)
    return {
        "aurc": 1.2 * of_aurc,  # the order is estimated too
        "e_aurc": 1.2 * of_aurc,
        "augrc": 1.2 * of_aurc,  # 1 − U ≤ −ln U
        "uq_auc": 0.5 / few,
        "uq_c_index": 0.5 / math.sqrt(N / 2),
        "brier": 1.0 / math.sqrt(N),
        "log_loss": 2.0 / math.sqrt(N),
        "ece_debiased": 1.5 / math.sqrt(N),  # its noise adds up over bins
    }.get(name, 0.5 * math.sqrt(err / N) + 1e-4)


@pytest.mark.parametrize("law", LAWS)
def test_true_values_are_those_of_a_large_sample(law):
    for accuracy, auc in ((0.6, 0.8), (0.9, 0.98), (0.97, 0.6)):
        pop = population(law, accuracy, auc)
        rows = DESIGNS["plain"].draw(pop, N, np.random.default_rng(1))
        found, of_aurc = by_definition(rows)
        off = {
            name: (found[name], value)
            for name, value in pop.truth.items()
            if abs(found[name] - value) > 4.5 * spread(name, 1 - accuracy, of_aurc)
        }
        assert off == {}, (accuracy, auc)


def test_true_values_have_their_closed_forms():
    pop = population("binormal", 0.9, 0.8)
    for name, value in {
        "uq_auc": 0.8,
        "uq_c_index": 0.8,  # inside a class as concordant as between classes
        "augrc": 0.2 * 0.1 * 0.9 + 0.1**2 / 2,
        "h_auc": 0.8 * 0.1 * 0.9,
    }.items():
        assert pop.truth[name] == pytest.approx(value, abs=1 / NODES)
    calibrated = population("exponential", 0.9, 0.9)
    assert calibrated.truth["ece_debiased"] == pytest.approx(0, abs=15 / NODES)  # a node at each edge of a bin
    assert population("exponential", 0.9, 0.98).truth["ece_debiased"] > 0.005


@pytest.mark.parametrize("law", LAWS)
def test_every_law_has_the_auc_that_it_is_asked_for(law):
    for auc in (0.6, 0.8, 0.9, 0.98):
        rounding = 0.02 if law == "atoms" else 1e-4
        assert population(law, 0.8, auc).truth["uq_auc"] == pytest.approx(auc, abs=rounding)


@pytest.mark.parametrize("name", [name for name in (*TUNING.designs, *CONFIRMING.designs) if name != "plain"])
def test_weighted_rows_of_every_design_are_those_of_the_law(name):
    """Row-weighted means over many clusters: error rate, loss, and the share of wrong rows below a score."""
    pop, design, rng = population("exponential", 0.9, 0.9), DESIGNS[name], np.random.default_rng(3)
    cut = 3.0
    sums = np.zeros(5)
    batches = []
    for _ in range(60):
        rows = design.draw(pop, 2000, rng)
        w = np.ones(len(rows.z)) if rows.weights is None else rows.weights
        part = np.array(
            [w.sum(), w @ rows.wrong, w @ rows.loss, w @ (rows.wrong & (rows.score <= cut)), w @ (rows.score <= cut)]
        )
        batches.append(part)
        sums += part
        if rows.clusters is not None and design.largest is not None:
            assert np.bincount(rows.clusters).max() <= design.largest
    err, below = 0.1, [float(pop.share_below(side, np.array([cut]))[0]) for side in (True, False)]
    expected = [err, 0.5 * err + 0.25, err * below[0], err * below[0] + 0.9 * below[1]]
    batches = np.array(batches)
    for k, value in enumerate(expected, 1):
        ratios = batches[:, k] / batches[:, 0]
        assert sums[k] / sums[0] == pytest.approx(
            value, abs=4.5 * ratios.std() / math.sqrt(len(ratios)) + 2e-3 * (k == 2)
        )


def test_one_row_of_each_patient_is_wrong_as_often_as_the_design_says():
    pop, design, rng = population("binormal", 0.8, 0.9), DESIGNS["informative sizes"], np.random.default_rng(4)
    votes = []
    for _ in range(20):
        rows = design.draw(pop, 3000, rng)
        votes.append((np.bincount(rows.clusters, weights=rows.wrong) / np.bincount(rows.clusters)).mean())
    rate = design.rate_by_cluster(0.2)
    assert rate < 0.17
    assert np.mean(votes) == pytest.approx(rate, abs=4 * np.std(votes) / math.sqrt(20))


@pytest.mark.parametrize("law", LAWS)
def test_true_risk_below_a_threshold_is_that_of_a_large_sample(law):
    pop = population(law, 0.8, 0.8)
    rows = DESIGNS["plain"].draw(pop, N, np.random.default_rng(5))
    for at in fixed_thresholds(pop)[::4]:
        inside = rows.score <= at
        assert float(pop.risk(at)[0]) == pytest.approx(rows.wrong[inside].mean(), abs=4.5 / math.sqrt(4 * inside.sum()))


@pytest.mark.parametrize("law", ["binormal", "atoms", "gamma"])
def test_truth_of_out_of_distribution_metrics_is_that_of_large_sets(law):
    pop, rng = population(law, 0.9, 0.9), np.random.default_rng(6)
    sides = [pop.rows(np.full(40_000, wrong), *rng.standard_normal((2, 40_000)), rng).score for wrong in (False, True)]
    found = {name: getattr(metrics, name)(*sides) for name in ("ood_auroc", "fpr_at_tpr", "ood_aupr")}
    assert found == pytest.approx(ood_truth(pop), abs=0.015)
    if law == "binormal":
        shift = math.sqrt(2) * ndtri(0.9)
        assert ood_truth(pop)["fpr_at_tpr"] == pytest.approx(float(ndtr(ndtri(0.95) - shift)), abs=1e-4)


def test_rows_of_a_file_are_drawn_so_that_its_own_values_are_the_truth():
    rng = np.random.default_rng(7)
    n = 300
    error = (rng.random(n) < 0.3).astype(np.uint8)
    score = np.round(rng.normal(size=n) + error, 1)
    pop = Finite(score, error, 0.5 * error + 0.5 * rng.random(n), np.clip(rng.random(n), 0.01, 0.99))
    truth = pop.truth
    assert truth["uq_auc"] == pytest.approx(metrics.uq_auc(score, error))
    assert truth["accuracy"] == pytest.approx(1 - error.mean())
    assert truth["uq_c_index"] == pytest.approx(metrics.uq_c_index(score, pop.loss))
    found, _ = by_definition(DESIGNS["poisson clusters"].draw(pop, N, rng))
    for name in ("uq_auc", "aurc", "augrc", "accuracy", "selective_accuracy_90", "brier"):
        assert found[name] == pytest.approx(truth[name], abs=0.015), name


@pytest.mark.skipif(files.missing() is not None, reason=str(files.missing()))
def test_real_prediction_files_are_read():
    pop = files.read(files.PREFIX + files.NETWORKS[0])
    assert len(pop.score) == 10_000
    assert pop.accuracy == pytest.approx(0.8552, abs=0.01)
    assert 0.7 < pop.truth["uq_auc"] < 1
