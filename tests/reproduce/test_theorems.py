"""The paper's theorems on finite populations: each number is checked against its definition or by hand."""

import html
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from uqeval import metrics, truth
from uqeval._errors import InputError
from uqeval.reproduce import theorems
from uqeval.reproduce.theorems import populations as pop
from uqeval.reproduce.theorems.claims import calibrated_pair

PAGE = Path(__file__).parents[2] / "docs" / "theorems.md"
COUNT = 200


@pytest.fixture(scope="module")
def result():
    return theorems()


def numbers(result, name):
    return result[name].numbers


# ---- populations -----------------------------------------------------------------------------------------------


def test_every_weak_ordering_is_listed_once():
    assert [len(pop.orderings(m)) for m in range(1, 6)] == [1, 3, 13, 75, 541]  # Fubini's numbers
    for ranks in (pop.orderings(4), pop.orderings(3)):
        assert len({tuple(row) for row in ranks.tolist()}) == len(ranks)
    assert len(pop.subsets(5)) == 31


def test_population_metrics_equal_the_weighted_metrics_of_the_library():
    for classes, rng in ((k, np.random.default_rng(k)) for k in (2, 3, 5) for _ in range(20)):
        p = pop.draw(rng, 5, classes)
        score = rng.integers(0, 4, size=5)
        twice, error = np.r_[score, score], np.repeat([0, 1], 5)
        weights = np.r_[p.mass * (1 - p.phi), p.mass * p.phi]
        assert pop.auc(p, score) == pytest.approx(metrics.uq_auc(twice, error, weights=weights), abs=1e-12)
        assert pop.g_auc(p, score) == pytest.approx(metrics.g_auc(twice, error, weights=weights), abs=1e-12)
        outcome = (p.mass[:, None] * p.truth).ravel()
        found = metrics.uq_c_index(np.repeat(score, classes), -p.probs.ravel(), weights=outcome)
        assert pop.c_index(p, score) == pytest.approx(found, abs=1e-12)


def test_population_aurc_is_the_limit_of_the_finite_sample_aurc():
    p = pop.Population(
        np.array([0.2, 0.5, 0.3]), np.array([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5]]), np.tile([0.8, 0.2], (3, 1))
    )
    rows = np.repeat([0, 1, 2], [20_000, 50_000, 30_000])
    loss = p.phi[rows]
    for ranks in ([0, 1, 2], [2, 1, 0], [0, 0, 1], [0, 0, 0]):
        score = np.array(ranks)
        assert pop.aurc(p, score) == pytest.approx(metrics.aurc(score[rows], loss), abs=1e-4)


def test_regret_is_what_a_ranking_loses_pair_by_pair():
    rng = np.random.default_rng(3)
    p = pop.draw(rng, 4, 2)
    phi, rate = p.phi, p.error
    for ranks in pop.orderings(4):
        lost = 0.0
        for i, j in itertools.product(range(4), repeat=2):
            order = (phi[i] - phi[j]) * (ranks[i] - ranks[j])
            wrong = 1.0 if order < 0 else 0.5 if ranks[i] == ranks[j] else 0.0
            lost += p.mass[i] * p.mass[j] * abs(phi[i] - phi[j]) * wrong
        expected = lost / (2 * rate * (1 - rate))
        assert pop.regret(p, p.mistakes(), phi, ranks) == pytest.approx(expected, abs=1e-14)


# ---- what holds ------------------------------------------------------------------------------------------------


def test_the_page_of_the_docs_is_what_the_code_writes_now(result):
    assert PAGE.read_text(encoding="utf-8") == result.markdown(), "write it again: uqeval reproduce theorems"


def test_nested_sets_and_maximisers_hold_on_every_population(result):
    assert numbers(result, "nested_phi").items() >= {"rising": COUNT, "equivalent": COUNT}.items()
    assert numbers(result, "equal_sets") == {"same": COUNT}
    for name in ("uq_auc", "uq_c_index"):
        found = numbers(result, name)
        assert (found["best"], found["alone"]) == (COUNT, COUNT)
        assert found["regret_error"] < 1e-12
    two = numbers(result, "nested_varphi")
    assert (two["rising"], two["zero_below_half"]) == (COUNT, COUNT)
    assert numbers(result, "phi_optimal") == {"largest": COUNT}
    assert numbers(result, "aurc")["phi_is_best"] == COUNT


def test_another_order_than_phi_does_not_attain_the_maximum():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = pop.draw(rng, 5, 2)
        assert pop.auc(p, -p.phi) < pop.auc(p, p.phi)
        assert pop.c_index(p, -p.varphi) < pop.c_index(p, p.varphi)


def test_lemma_is_twice_augrc_and_not_aurc(result):
    found = numbers(result, "lemma")
    assert found["formula_error"] < 1e-12
    assert (found["rankings"], found["augrc"], found["h_auc"], found["aurc"]) == (1004, 1004, 1004, 16)


# ---- what fails ------------------------------------------------------------------------------------------------


def test_ties_of_phi_may_be_broken_without_loss(result):
    found = numbers(result, "uq_auc")
    assert found["tied_refinements"] == COUNT
    assert found["example"] == 1.0


def test_literal_inequalities_reward_a_constant_score(result):
    found = numbers(result, "literal")
    assert found["constant_gets_one"] == COUNT
    assert round(found["perfect"], 3) == 0.549
    # The same by drawing pairs of a perfect score without ties at an accuracy of 0.9.
    score = np.arange(1000)
    wrong = score >= 900
    pairs = wrong[:, None] <= wrong[None, :]
    assert (pairs & (score[:, None] <= score[None, :])).sum() / pairs.sum() == pytest.approx(0.5 / 0.91, abs=1e-3)


def test_coverage_of_the_set_valued_classifier(result):
    found = numbers(result, "coverage")
    assert found["largest_error"] < 1e-12
    assert round(found["example"], 4) == 0.9915


def test_misalignment_falls_with_three_classes(result):
    found = numbers(result, "nested_many")
    assert np.round(found["example"], 3).tolist() == [0.0, 0.286, 0.2]
    assert found["falls"] > 0
    two = numbers(result, "varphi_optimal")
    assert (two["largest"], two["separating_scores"]) == (COUNT, COUNT)
    assert numbers(result, "varphi_optimal_many")["not_largest"] > 0


def test_what_lies_outside_the_papers_scope_is_told_apart(result):
    outside = {check.name for check in result.within("outside")}
    assert outside == {"nested_many", "many_classes", "varphi_optimal_many", "h_auc", "temperature_many"}
    assert result["temperature"].verdict == "holds"
    assert {check.verdict for check in result.within("outside")} == {"fails"}
    assert "Outside the paper's scope" in dict(result.page().short)


def test_with_atoms_an_equivalent_score_jumps_over_a_risk_that_phi_attains(result):
    # ϕ ~ U[0, 0.3) with chance ½, else 0.6; s is ϕ, but 0.3 on the atom. Masses of equal cells.
    u = (np.arange(30_000) + 0.5) / 100_000
    phi, mass = np.r_[u, 0.6], np.r_[np.full(30_000, 0.5 / 30_000), 0.5]
    s = np.r_[u, 0.3]
    assert (np.argsort(s, kind="stable") == np.argsort(phi, kind="stable")).all()

    def risk(inside):
        return (mass * phi)[inside].sum() / mass[inside].sum()

    attained, jump = (numbers(result, "nested_phi")[key] for key in ("attained", "next"))
    assert risk(phi <= 0.3) == pytest.approx(attained, abs=1e-12)
    assert risk(s <= 0.3) == pytest.approx(jump, abs=1e-12)
    # Of the continuous law every t < 0.3 leaves out some of its mass: the risk is t / 2, below 0.15.
    for threshold in np.linspace(0.01, 0.2999, 50):
        assert risk(s <= threshold) == pytest.approx(threshold / 2, abs=1e-5)
    assert risk(s < 0.3) == pytest.approx(attained, abs=1e-12)
    assert (attained, jump) == (0.15, 0.375)
    for name in ("nested_phi", "equal_sets", "nested_varphi"):
        assert result[name].verdict == "holds in part"


def test_where_both_classes_are_equally_likely_every_score_maximises_the_c_index(result):
    assert numbers(result, "uq_c_index")["even"] == [0.5, 0.5, 0.5]
    assert result["uq_c_index"].verdict == "holds in part"


def test_two_different_confidences_can_both_be_perfectly_calibrated(result):
    for steps in (10, 257):
        assert np.abs(calibrated_pair(steps)).max() < 1e-12
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 200_000))
    correct = (a + b > 1).astype(int)
    for confidence in (a, b):
        assert metrics.ece(confidence, correct, bins=20) < 0.01
    assert np.abs(a - b).mean() == pytest.approx(numbers(result, "calibration")["mean_difference"], abs=0.01)
    assert result["calibration"].verdict == "fails"


def test_auroc_is_maximised_by_the_probability_of_being_from_elsewhere(result):
    assert numbers(result, "ood") == {"best": COUNT}
    rng = np.random.default_rng(1)
    mass, outside = rng.dirichlet(np.ones(5)), rng.random(5)
    weights = np.r_[mass * (1 - outside), mass * outside]
    best = metrics.uq_auc(np.r_[outside, outside], np.repeat([0, 1], 5), weights=weights)
    for ranks in pop.orderings(5):
        assert metrics.uq_auc(np.r_[ranks, ranks], np.repeat([0, 1], 5), weights=weights) <= best + 1e-12


def test_four_intervals_of_cifar10h_are_of_111_models(result):
    rows = [row for row in numbers(result, "table")["mended"] if row["dataset"] == "CIFAR10-H"]
    assert [round(row["n"]) for row in rows] == [111] * 4
    printed = numbers(result, "table")["rows"]
    assert round(next(row["n"] for row in printed if row["r"] == 0.6518)) == 119


def test_the_page_of_corrections_has_the_numbers_of_the_theorems(result):
    text = " ".join((PAGE.parent / "theory" / "corrections.md").read_text(encoding="utf-8").split())
    share = numbers(result, "many_classes")["not_optimal"]
    for kind in ("unrelated_3", "unrelated_5", "unrelated_10", "noisy_3", "noisy_10"):
        assert f"{share[kind]:.1%}" in text, kind
    aucs = numbers(result, "temperature_many")["ten_classes"].values()
    assert ", ".join(f"{auc:.3f}" for auc in list(aucs)[:3]) in text
    for square in ("[2, 7, 6], [4, 3, 8], [9, 5, 1]", "beta(1, 9", "52.98", "better than the error probability"):
        assert square in text, square
    assert "better than the truth" not in text


def test_c_index_theorem_fails_with_more_classes(result):
    found = numbers(result, "many_classes")
    assert (round(found["varphi"], 3), round(found["reversed"], 3)) == (0.368, 0.632)
    assert found["circle"] == pytest.approx([5 / 9] * 3, abs=1e-15)
    share = found["not_optimal"]
    assert share["unrelated_3"] < share["unrelated_5"] < share["unrelated_10"]
    assert share["unrelated_3"] > 0.15
    assert share["noisy_3"] < 0.15
    assert share["noisy_10"] < 0.02


def test_c_index_repeats_the_models_own_confidence(result):
    found = numbers(result, "self_reference")
    exact = {key: round(value, 3) for key, value in found["exact"].items()}
    assert exact == {"auc": 0.5, "c_index": 0.9, "phi_auc": 0.763, "phi_c_index": 0.547}
    for key, value in found["exact"].items():
        assert found["seen"][key] == pytest.approx(value, abs=0.02)


def test_aurc_can_order_two_scores_the_other_way(result):
    found = numbers(result, "aurc")
    assert found["rankings"]["4: 1, 4"] == pytest.approx((1 / 2, 7 / 12))
    assert found["rankings"]["4: 2, 3"] == pytest.approx((1 / 2, 5 / 12))
    assert found["rankings"]["5: 1, 5"] == pytest.approx((1 / 2, 149 / 300))
    assert found["rankings"]["5: 2, 3"] == pytest.approx((1 / 3, 31 / 75))
    (auc_a, area_a), (auc_b, area_b) = found["populations"]
    assert (round(auc_a, 3), round(auc_b, 3)) == (0.771, 0.661)
    assert (round(area_a, 4), round(area_b, 4)) == (0.0628, 0.0339)
    assert 0 < found["inverted"] < found["pairs"]


def test_without_noise_the_best_of_the_c_index_are_among_the_best_of_uq_auc_and_not_the_other_way_round(result):
    found = numbers(result, "no_noise")
    assert (found["same"], found["both"], found["alone"]) == (COUNT, COUNT, COUNT)
    # One wrong of five inputs leaves the 75 rankings of the four right ones; two of five leave 3 times 13.
    assert (found["fewest"], found["most"]) == (3 * 13, 75)
    assert result["no_noise"].verdict == "holds in part"
    probs, labels = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]]), np.array([0, 0, 0, 1])
    error, gap = truth.misclassified(probs, labels), truth.gap(probs, labels)
    assert truth.phi(np.eye(2)[labels], probs).tolist() == error.tolist()
    assert metrics.uq_auc(error, error) == metrics.uq_auc(gap, error) == metrics.uq_c_index(gap, gap) == 1
    assert metrics.uq_c_index(error, gap) == 0.75  # the three right ones tie: half of 3 of 6 pairs is lost


def test_h_auc_prefers_the_worse_model(result):
    found = numbers(result, "h_auc")
    assert (round(found["good"], 3), round(found["bad"], 3)) == (0.045, 0.144)


def test_temperature_turns_the_order_of_three_classes(result):
    found = numbers(result, "temperature_many")
    assert np.round(found["top"]["1"], 3).tolist() == [0.787, 0.731]
    assert np.round(found["top"]["3"], 3).tolist() == [0.493, 0.578]
    aucs = list(found["ten_classes"].values())
    assert max(aucs) - min(aucs) > 0.03


def test_printed_intervals_are_centred_elsewhere(result):
    found = numbers(result, "table")
    odd = next(row for row in found["rows"] if row["r"] == -0.0004)
    assert round(odd["centre"], 3) == -0.039
    assert any(round(row["centre"], 4) == row["r"] == 0.9344 for row in found["mended"])
    assert all(350 < row["n"] < 370 for row in found["rows"] if row["dataset"] == "Synth." and row["r"] != 0.9344)


# ---- the result ------------------------------------------------------------------------------------------------


def test_written_files_hold_what_was_found(result, tmp_path, undrawn):
    few = theorems(tmp_path / "out", populations=3, seed=5)
    assert (tmp_path / "out" / "table.md").read_text(encoding="utf-8") == few.markdown()
    stored = json.loads((tmp_path / "out" / "table.json").read_text(encoding="utf-8"))
    assert stored["settings"] == {"seed": 5, "populations": 3}
    assert [row["name"] for row in stored["checks"]] == [check.name for check in result.checks]
    assert all(row["verdict"] in ("holds", "holds in part", "fails") for row in stored["checks"])


def test_the_page_has_claim_verdict_numbers_and_corrected_statement_of_each(result, tmp_path, undrawn):
    page = html.unescape((result.publish(tmp_path) / "index.html").read_text(encoding="utf-8"))
    assert result.headline() in page
    for check in result.checks:
        for text in (f"{check.where}: {check.verdict}", check.claim, check.truth, *check.found):
            assert text in page
        for number in check.numbers:
            assert f'"{number}": ' in page


def test_one_seed_gives_one_result_and_every_seed_the_same_verdicts(result):
    again = theorems(populations=20, seed=1)
    assert again.to_dict() == theorems(populations=20, seed=1).to_dict()
    assert [check.verdict for check in again.checks] == [check.verdict for check in result.checks]


def test_the_result_prints_and_says_what_it_does_not_know(result):
    pytest.importorskip("pandas")
    assert str(result).startswith("Of 17 claims of the paper, 1 holds, 12 hold in part and 4 fail. Outside its scope")
    assert "<table>" in result._repr_html_()
    assert len(result.to_frame("pandas")) == 22
    with pytest.raises(InputError, match="no check 'nothing'"):
        result["nothing"]


def test_bad_options_are_refused():
    for options in ({"seed": -1}, {"seed": 1.5}, {"populations": 0}, {"populations": True}):
        with pytest.raises(InputError, match="must be an int"):
            theorems(**options)


def test_progress_counts_the_checks():
    seen = []
    result = theorems(populations=1, progress=lambda *step: seen.append(step))
    assert seen == [("checks", k + 1, len(result.checks)) for k in range(len(result.checks))]
