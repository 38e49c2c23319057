"""The 54 networks of the data folder: what the study says of each equals a computation that shares no code with it.

Needs UQEVAL_DATA; scipy and scikit-learn are the independent side.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, xlogy
from scipy.stats import kendalltau

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.metrics import roc_auc_score

from uqeval.reproduce.human.cifar10h import cifar10h
from uqeval.reproduce.human.tables import four_of
from uqeval.reproduce.human.verdicts import BAD, GOOD, WEAK
from uqeval.reproduce.study import percent_cell

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
FOLDER = os.environ.get("UQEVAL_DATA")
ZOO = None if FOLDER is None else Path(FOLDER) / "cifar10h"
absent = ZOO is None or not (ZOO / "zoo_logits.npz").is_file()
pytestmark = [
    pytest.mark.skipif(absent, reason="UQEVAL_DATA with cifar10h/zoo_logits.npz is not set"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def study():
    return cifar10h([ZOO / "zoo_logits.npz", ZOO / "ensemble_logits.npz", ZOO / "mc_dropout_logits.npz"], data=FOLDER)


@pytest.fixture(scope="module")
def votes():
    counts = np.load(ZOO / "cifar10h-counts.npy", allow_pickle=False)
    with np.load(ZOO / "cifar10_test_jpeg.npz", allow_pickle=False) as images:
        labels = images["y"].astype(np.int64)
    return counts / counts.sum(axis=1, keepdims=True), counts.argmax(axis=1), labels


@pytest.fixture(scope="module")
def zoo():
    with np.load(ZOO / "zoo_logits.npz", allow_pickle=False) as arrays:
        return {name: arrays[name].astype(np.float64) for name in arrays.files}


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def concordance(score, loss):
    """Pairs that differ in the loss and are ordered alike by the score, ties half: counted over all pairs in blocks."""
    credit, pairs = 0.0, 0
    for start in range(0, len(score), 500):
        part = slice(start, start + 500)
        above = loss[part, None] > loss[None, :]
        pairs += int(above.sum())
        difference = np.sign(score[part, None] - score[None, :])
        credit += float((above * (difference + 1) / 2).sum())
    return credit / pairs


def untied(values):
    """Pairs that differ."""
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return len(values) * (len(values) - 1) / 2 - (counts * (counts - 1) / 2).sum()


def test_every_model_equals_an_independent_computation(study, votes, zoo):
    soft, majority, labels = votes
    rows = {row["model"]: row for row in study.models if row["score"] == "entropy"}
    assert sorted(rows) == sorted(zoo)
    assert len(rows) == 54
    at = np.arange(len(labels))
    for name, logits in zoo.items():
        p = softmax(logits)
        entropy = -np.sort(xlogy(p, p), axis=1).sum(axis=1)
        predicted = p.argmax(axis=1)
        wrong = predicted != labels
        row = rows[name]
        assert row["accuracy"] == pytest.approx(1 - wrong.mean(), abs=1e-12)
        assert row["log_loss"] == pytest.approx(-log_softmax(logits, axis=1)[at, labels].mean(), abs=1e-9)
        assert row["uq_auc"] == pytest.approx(roc_auc_score(wrong, entropy), abs=1e-9), name
        ours = [row["kendall_phi"], row["kendall_varphi"]]
        truths = (1 - soft[at, predicted], -p[at, majority])
        assert ours == pytest.approx([kendalltau(entropy, t).statistic for t in truths], abs=1e-9), name
        # The gap rises with log Σ_{k≠y} e^{z_k} − z_y; concordant less discordant pairs are τ_b times its denominator.
        others = np.where(np.arange(10) == labels[:, None], -np.inf, logits)
        gap = logsumexp(others, axis=1) - logits[at, labels]
        excess = kendalltau(entropy, gap).statistic * np.sqrt(untied(entropy) * untied(gap))
        assert row["uq_c_index"] == pytest.approx((1 + excess / untied(gap)) / 2, abs=1e-9), name


def test_c_index_equals_the_count_of_all_pairs(study, votes, zoo):
    labels = votes[2]
    rows = {row["model"]: row for row in study.models if row["score"] == "entropy"}
    for name in ("resnet18-e10", "efficientnet_b1-e4", "vit_small-e12"):
        p = softmax(zoo[name])
        entropy = -np.sort(p * np.log(p), axis=1).sum(axis=1)
        expected = concordance(entropy, -p[np.arange(len(labels)), labels])
        assert rows[name]["uq_c_index"] == pytest.approx(expected, abs=1e-9)


def test_papers_pattern_holds_and_the_page_says_what_drives_it(study):
    assert study.settings["single_models"] == 54
    (auc_phi, auc_varphi), (c_phi, c_varphi) = np.reshape(list(four_of(study.correlations).values()), (2, 2))
    assert auc_phi > max(c_phi, auc_varphi)
    assert c_varphi > max(auc_varphi, c_phi)
    good, weak, bad = (study.verdicts()[heading] for heading in (GOOD, WEAK, BAD))
    assert len(weak) == 1
    assert weak[0].startswith("UQ-AUC correlates more with κ(s; ϕ) (error probability) than with κ(s; φ)")
    assert weak[0].endswith("Williams' test p = 0.4207.")
    assert any("None of our four numbers lies inside the paper's interval" in line for line in bad)
    assert sum("better than" in line and not line.startswith("One versus") for line in good) == 2
    assert all(line.startswith("One versus rest") for line in bad[:-1])
    assert len(bad) == 3  # two of the four answers turn with one versus rest
    words = study.drivers()
    assert "Over all of them" in words[0]
    assert "more than 70%" in words[2]
    assert words[-1].endswith("17 points from the four numbers that the paper prints, nearer than the 42 without.")
    fixed = [row["r"] for row in study.tables["accuracy_fixed"]]
    assert fixed == pytest.approx([0.4225, 0.5001, -0.3511, 0.9976], abs=1e-4)
    counts = {row["accuracy"]: row["n"] for row in study.tables["floors"]}
    accuracies = np.array([row["accuracy"] for row in study.models if row["score"] == "entropy"])
    assert counts[0.5] == (accuracies > 0.5).sum()
    assert counts[0.7] == (accuracies > 0.7).sum()
    r = {
        row["accuracy"]: row["r"]
        for row in study.tables["floors"]
        if (row["metric"], row["truth"]) == ("uq_auc", "kendall_phi")
    }
    assert r[0.7] < r[0.5] < r[0.0]  # the narrower the range of accuracies, the less is left to correlate


def test_ensembles_and_passes_have_second_order_scores_and_those_of_their_mean(study):
    several = {row["model"]: row for row in study.models if row["kind"] != "single"}
    assert {name: (row["kind"], row["members"]) for name, row in several.items()} == {
        "resnet18": ("members", 10),
        "vgg11_bn": ("members", 5),
        "resnet18-0.3": ("passes", 20),
    }
    assert sum(row["kind"] != "single" for row in study.models) == 3 * 10


def test_the_page_of_the_docs_has_the_numbers_of_this_run(study):
    text = PAGE.read_text(encoding="utf-8").split("## CIFAR10-H")[1].split("### ")[0]
    text = " ".join(text.split())
    tables = [study.correlations, *(study.tables[name] for name in ("accuracy_fixed", "top_label"))]
    floors = [row for row in study.tables["floors"] if row["accuracy"] in (0.0, 0.5, 0.7)]
    kept = {("uq_auc", "kendall_phi"), ("uq_auc", "kendall_varphi"), ("uq_c_index", "kendall_phi")}
    for row in tables[0] + tables[1]:
        if row["metric"] in ("uq_auc", "uq_c_index"):
            assert percent_cell(row).replace("%", "") in text, row
    for row in (
        tables[2] + [row for row in floors if (row["metric"], row["truth"]) in kept] + study.tables["one_vs_rest"]
    ):
        assert f"{100 * row['r']:.2f}".removesuffix("00").rstrip(".") in text, row
    low, high = (100 * study.tables["families"][0][end] for end in ("low", "high"))
    assert f"{low:.2f} to {high:.2f} for UQ-AUC with κ(s; ϕ)" in text
    scores = study.tables["by_score"]
    for metric in ("uq_auc", "uq_c_index"):
        r = [100 * row["r"] for row in scores if (row["metric"], row["truth"]) == (metric, "kendall_phi")]
        assert f"{min(r):.1f} to {max(r):.1f}" in text
    member = {row["score"]: row for row in study.models if row["model"] == "vgg11_bn" and row["kind"] == "members"}
    mutual, total = (member[name] for name in ("mutual_information", "total_entropy"))
    assert f"UQ-AUC of {mutual['uq_auc']:.3f} and κ(s; ϕ) of {mutual['kendall_phi']:.3f}" in text
    assert f"against {total['uq_auc']:.3f} and {total['kendall_phi']:.3f} of the total entropy" in text
