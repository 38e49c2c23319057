"""The out-of-distribution study on a small grid: known laws, every number by its definition, resumed as it was."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from scipy.stats import kendalltau, multivariate_normal, pearsonr

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.metrics import average_precision_score, roc_auc_score
from tiny_grid import TINY_OOD

torch = pytest.importorskip("torch", reason="torch is not installed")

from uqeval import InputError, scores  # noqa: E402
from uqeval.methods.batched import Net, train  # noqa: E402
from uqeval.reproduce import ood  # noqa: E402
from uqeval.reproduce.ood.laws import KINDS, foreign, foreign_log_odds  # noqa: E402
from uqeval.reproduce.ood.run import INPUTS, Scene, run_cell  # noqa: E402
from uqeval.reproduce.ood.study import OUTPUTS, PAIRS, OODStudy, verdicts  # noqa: E402
from uqeval.reproduce.synthetic.networks import draw_of, read_grid  # noqa: E402


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("grid") / "tiny.toml"
    place.write_text(TINY_OOD, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def grid(path):
    return read_grid(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def result(path, folder):
    """Of a run that was stopped after one draw and went on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OODStudy, "figures", lambda study, progress: {})
        ood(folder, seeds=1, grid=path, jobs=1)
        return ood(folder, seeds=2, grid=path, jobs=1)


def mixture(law, x):
    return sum(p * multivariate_normal(mean, law.sigma**2).pdf(x) for p, mean in zip(law.prior, law.means, strict=True))


def test_the_odds_of_being_foreign_are_exact(grid):
    data = draw_of(grid, 1)
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    for k, kind in enumerate(KINDS):
        other = foreign(data, kind, grid["foreign"], np.random.default_rng(k))
        assert np.allclose(foreign_log_odds(data, other, x), np.log(mixture(other, x) / mixture(data, x)), rtol=1e-9)
        assert other.x.shape == (len(data.test), 2)
        # Drawn from that law: 5 standard errors of a mean of 120 rows of a law that is at most 9 sigma wide.
        spread = np.sqrt(data.sigma**2 + other.means.var(axis=0))
        assert (np.abs(other.x.mean(axis=0) - other.means.mean(axis=0)) < 5 * spread / math.sqrt(len(other.x))).all()


def test_foreign_inputs_lie_where_their_kind_says(grid):
    data = draw_of(grid, 1)
    middle, along = data.means.mean(axis=0), (data.means[1] - data.means[0]) / data.d
    place = {}
    for kind in KINDS:
        means = foreign(data, kind, grid["foreign"], np.random.default_rng(0)).means - middle
        place[kind] = means @ along, np.linalg.norm(means, axis=1)
    assert np.allclose(place["rotated"], [[0, 0], [data.d / 2] * 2], atol=1e-12)
    assert np.allclose(place["across"][0], [-data.d / 2, data.d / 2])
    assert np.allclose(place["beyond"][0], [-data.d / 2 - 5, data.d / 2 + 5])
    assert np.allclose(place["around"][1], data.d / 2 + 6)


def test_every_number_of_a_cell_equals_its_definition(grid):
    """A network trained here again; AUROC, AUPR, Kendall and distances by other packages or in full."""
    seed, k = 1, 1
    rows = [row for row in run_cell(grid, (seed, k)) if row["model"] == "softmax 6-4 lr=0.05"]
    scene = Scene(grid, seed)
    data, known = scene.data, scene.data.x[scene.data.test]
    training = {name: grid["training"][name] for name in ("epochs", "batch_size")}
    number = 1_000_000 * seed + 10_000 * k + 1 + 3 + 1  # after the first rate's network, members and dropout
    bank = train([Net(number, (6, 4), 0.05)], data.x[data.train], data.labels[data.train], **training)
    n = len(known)
    logits = bank.logits(scene.asked)[0]
    features = bank.features(0, data.x[data.train]), bank.features(0, scene.asked)
    near = scores.knn_distance(features[0], k=grid["features"]["k"], normalize=False).score(features[1])
    expected = {"free_energy": scores.free_energy(logits), "knn_distance": near}
    error = logits[:n].argmax(axis=1) != data.labels[data.test]
    to_train = np.linalg.norm(known[:, None] - data.x[data.train], axis=2).min(axis=1)
    for score, values in expected.items():
        # float32 sums of a network trained beside others differ in their last digits.
        for at, kind in enumerate(KINDS):
            row = next(r for r in rows if (r["score"], r["kind"]) == (score, kind))
            other = values[n * (at + 1) : n * (at + 2)]
            both, is_foreign = np.concatenate([values[:n], other]), np.arange(2 * n) >= n
            odds = foreign_log_odds(data, scene.others[kind], np.concatenate([known, scene.others[kind].x]))
            assert row["auroc"] == pytest.approx(roc_auc_score(is_foreign, both), abs=1e-3)
            assert row["aupr"] == pytest.approx(average_precision_score(is_foreign, both), abs=1e-3)
            cut = np.sort(values[:n])[math.ceil(0.95 * n) - 1]
            assert row["fpr"] == pytest.approx((other <= cut).mean(), abs=2.5 / n)
            assert row["kendall"] == pytest.approx(kendalltau(both, odds).statistic, abs=1e-3)
            assert row["uq_auc"] == pytest.approx(roc_auc_score(error, values[:n]), abs=1e-3)
            further = to_train[:, None] > to_train
            credit = (values[:n, None] > values[:n]) + 0.5 * (values[:n, None] == values[:n])
            assert row["distance_c_index"] == pytest.approx(credit[further].mean(), abs=1e-3)
            for name in ("auroc", "fpr", "aupr", "distance_c_index"):
                assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"], name


def test_no_score_beats_the_probability_of_being_foreign_by_more_than_chance(result):
    for kind in KINDS:
        part = [row for row in result.models if (row["draw"], row["kind"]) == (0, kind)]
        (best,) = (row for row in part if row["family"] == "truth")
        assert best["kendall"] == 1.0
        assert all(row["auroc_low"] <= best["auroc_high"] for row in part)
        if kind != "rotated":
            assert best["auroc"] > 0.95


def test_correlations_are_pearsons_over_the_scores_of_outputs(result):
    kinds = {"entropy": "entropy", "free energy": "energy", "mutual information": "mutual", "variance": "variance"}
    sizes = {"all scores": 36}
    for row in result.correlations:
        word = kinds.get(row["scores"], "")
        part = [m for m in result.models if (m["draw"], m["kind"]) == (row["draw"], row["kind"])]
        every = [(m[row["first"]], m[row["second"]]) for m in part if m["family"] in OUTPUTS and word in m["score"]]
        pairs = [pair for pair in every if None not in pair]  # a network without a live unit has a constant score
        assert sizes.setdefault(row["scores"], len(every)) == len(every)
        assert row["n"] == len(pairs) > len(every) / 2
        if row["n"] < 4:  # too few for Fisher's interval
            assert math.isnan(row["r"])
        else:
            assert row["r"] == pytest.approx(pearsonr(*np.array(pairs).T).statistic, rel=1e-9)
    assert len(result.correlations) == 2 * len(KINDS) * len(PAIRS) * len(sizes)
    assert sum(sizes.values()) == 2 * 36


def test_the_summary_is_the_median_over_draws_of_medians_over_networks(result):
    keys = ("family", "score", "kind")
    for row in result.summary:
        alike = [m for m in result.models if all(m[key] == row[key] for key in keys) and m[row["metric"]] is not None]
        values = [np.median([m[row["metric"]] for m in alike if m["draw"] == draw]) for draw in (0, 1)]
        assert row["median"] == pytest.approx(np.mean(values))
        assert (row["lowest"], row["highest"], row["draws"]) == (min(values), max(values), 2)
    assert len(result.grid().rows) == len({(m["family"], m["score"]) for m in result.models}) == 16


def test_the_words_follow_the_numbers(result):
    def short(change):
        rows = [row | {"r": change(row)} for row in result.correlations]
        return str(verdicts(result.summary, rows, result.models))

    everywhere, nowhere = short(lambda row: 0.99), short(lambda row: -0.5)
    for words in ("median r above 70%", "median r below 0"):
        for text, holds in ((everywhere, "above" in words), (nowhere, "below" in words)):
            said = text.split(words)[1].split("'")[0]
            assert (said == "): nowhere.") != holds
            assert all((title in said) == holds for title in KINDS.values())


def test_a_stopped_run_goes_on_and_has_what_its_cells_give(result, grid, folder):
    assert (result.timing.found, result.timing.parts) == (3, 6)
    for cell in ((0, INPUTS), (1, INPUTS)):
        again = run_cell(grid, cell)
        assert again == [m for m in result.models if m["draw"] == cell[0] and m["model"] == "none"]
    with open(folder / "models.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(result.models)
    kept = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    assert len(kept["models"]) == len(result.models)
    assert kept["summary"] == json.loads(result.to_json())["summary"]
    assert "Out-of-distribution" in (folder / "index.html").read_text(encoding="utf-8")


def test_a_grid_that_does_not_fit_is_refused(tmp_path):
    for old, new, words in (
        ("[data]", "[data]\nclasses = 3", "two classes and two coordinates"),
        ('name = "dropout"', 'name = "dropped"', 'the method "dropped"'),
        ("[foreign]", "[strange]", r"no \[foreign\]"),
    ):
        other = tmp_path / "other.toml"
        other.write_text(TINY_OOD.replace(old, new), encoding="utf-8")
        with pytest.raises(InputError, match=words):
            ood(grid=other, seeds=1)


@pytest.mark.slow
def test_its_figures_can_be_drawn(path, tmp_path):
    ood(tmp_path, seeds=2, grid=path, jobs=1)
    figures = list((tmp_path / "figures").glob("*.svg"))
    assert len(figures) == 5
    assert all("<path" in figure.read_text(encoding="utf-8") for figure in figures)
