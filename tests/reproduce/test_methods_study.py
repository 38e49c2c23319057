"""The synthetic study with methods that the paper did not run, on a grid of a few small networks."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.stats import pearsonr
from tiny_grid import TINY

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("sklearn")

import commands  # noqa: E402
from uqeval import InputError, MissingExtra, metrics, scores, truth  # noqa: E402
from uqeval.methods.batched import Net, train  # noqa: E402
from uqeval.reproduce import synthetic  # noqa: E402
from uqeval.reproduce.names import FOUR, MAIN, TRUTHS  # noqa: E402
from uqeval.reproduce.synthetic import by_method  # noqa: E402
from uqeval.reproduce.synthetic.networks import GRID, OWN, choose, draw_of, fitted, plans_of, read_grid  # noqa: E402
from uqeval.reproduce.synthetic.run import run_cell  # noqa: E402

OTHERS = ["temperature", "tta", "evidential", "bayesian", "sngp", "swag", "meta"]
EVERY = ["softmax", "ensemble", "dropout", *OTHERS]
ONE = TINY.replace("[[8], [6, 4]]", "[[8]]").replace("[0.02, 0.05]", "[0.05]")
HOW = {"seeds": 1, "jobs": 1, "d_range": None}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("grid") / "one.toml"
    found.write_text(ONE, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def study(path):
    return synthetic(grid=path, methods="all", seeds=2, jobs=1, d_range=None)


# ---- which methods, and what each is ---------------------------------------------------------------------------


def test_methods_are_chosen_by_name_the_grids_first():
    def names(methods):
        return [method["name"] for method in choose(GRID, methods)]

    assert names(None) == names("paper") == EVERY[:3]
    assert names("all") == names(["all"]) == EVERY
    assert names("swag, ensemble") == names(["ensemble", "swag"]) == ["ensemble", "swag"]
    assert names("paper,sngp") == [*EVERY[:3], "sngp"]
    assert set(OWN) == set(EVERY)
    for wrong, word in (("swagg", 'Did you mean "swag"'), ("", "''"), ([], "empty"), ([3], "3")):
        with pytest.raises(InputError, match=word):
            choose(GRID, wrong)


def test_every_method_is_given_scores_that_it_has_its_own_among_them(path):
    grid = read_grid(path)
    for method in choose(grid, "all"):
        plans = plans_of(grid, 0, method["name"] if method["name"] in OTHERS else "paper")
        found = next(found for found in fitted(grid, 1, plans) if found.plan["method"] == method["name"])
        assert OWN[method["name"]] in method["scores"]
        for name in method["scores"]:
            score = found.score(name)
            assert score.shape == found.labels.shape
            assert np.isfinite(score).all(), (method["name"], name)


def test_without_scikit_learn_the_meta_classifier_is_refused_before_anything_runs(path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match='The method "meta" needs scikit-learn'):
        synthetic(tmp_path, grid=path, methods="all", **HOW)
    assert not list(tmp_path.iterdir())


def test_a_methods_algorithms_are_all_its_sizes_at_each_learning_rate():
    plans = plans_of(GRID, 1, "bayesian")
    assert len(plans) == 9
    assert {(p["lr"], p["sizes"]["kl_weight"]) for p in plans} == {
        (lr, weight) for lr in GRID["training"]["learning_rates"] for weight in (0.01, 0.1, 1.0)
    }
    softmax = {p["lr"]: p["first"] for p in plans_of(GRID, 1, "paper") if p["method"] == "softmax"}
    assert all(p["first"] == softmax[p["lr"]] for p in plans)  # networks start alike


def test_augmentation_asks_the_softmax_networks_of_the_study(path):
    # Less and less noise: the answers become those of the network itself.
    grid = read_grid(path)
    data = draw_of(grid, 1)
    (plan,) = [p for p in plans_of(grid, 0, "paper") if p["method"] == "softmax"]
    net = Net(1_000_000 + plan["first"], plan["hidden"], plan["lr"])
    own = train([net], data.x[data.train], data.labels[data.train], epochs=8, batch_size=60).logits(data.x[data.test])
    (quiet,) = fitted(grid, 1, [plans_of(grid, 0, "tta")[0] | {"sizes": {"noise": 1e-7, "samples": 2}}])
    np.testing.assert_allclose(quiet.predictions.member_logits, np.repeat(own, 2, axis=0), atol=1e-4)


def test_swag_stays_near_the_end_of_the_softmax_networks_path(path):
    grid = read_grid(path)
    (swag,) = fitted(grid, 1, plans_of(grid, 0, "swag"))
    (softmax,) = [f for f in fitted(grid, 1, plans_of(grid, 0, "paper")) if f.plan["method"] == "softmax"]
    assert np.abs(swag.probs - softmax.probs).max() < 0.1
    assert swag.score("mutual_information").max() > 0


def test_the_meta_classifier_learns_from_rows_that_its_network_did_not_meet(path):
    grid = read_grid(path)
    plain, seeing = fitted(grid, 1, plans_of(grid, 0, "meta"))
    assert (plain.words, seeing.words) == (["held out 0.2", "inputs 0"], ["held out 0.2", "inputs 1"])
    np.testing.assert_array_equal(plain.probs, seeing.probs)
    (scaled,) = fitted(grid, 1, plans_of(grid, 0, "temperature"))  # the same network, of the same rows
    np.testing.assert_array_equal(plain.probs.argmax(axis=1), scaled.probs.argmax(axis=1))
    for found in (plain, seeing):
        score = found.score("learned_error")
        assert 0 <= score.min() < score.max() <= 1
    assert not np.allclose(plain.score("learned_error"), seeing.score("learned_error"))
    faultless = grid | {"data": grid["data"] | {"sigma": 1e-3}}
    for found in fitted(faultless, 1, plans_of(grid, 0, "meta")):
        assert not found.score("learned_error").any(), "nothing to learn: all rows tie"


def test_every_number_of_another_methods_row_follows_its_definition(path):
    grid = read_grid(path)
    data = draw_of(grid, 1)
    x = data.x[data.test]
    for name in ("evidential", "tta"):
        found = next(iter(fitted(grid, 1, plans_of(grid, 0, name))))
        rows = {row["score"]: row for row in run_cell(grid, (1, 0, name)) if row["model"] == found.model}
        probs, error = found.predictions.probs, truth.misclassified(found.predictions.probs, found.labels)
        assert set(rows) == set(found.plan["scores"])
        for score, row in rows.items():
            s = scores.compute(score, found.predictions)
            assert row["accuracy"] == pytest.approx(1 - error.mean())
            assert row["uq_auc"] == metrics.uq_auc(s, error)
            assert row["uq_c_index"] == metrics.uq_c_index(s, truth.rank_loss(probs, found.labels))
            assert row["kendall_phi"] == metrics.kendall_tau(s, data.phi(x, probs))
            assert row["kendall_varphi"] == metrics.kendall_tau(s, data.varphi(x, probs))


# ---- the study -------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_method_do_not_depend_on_the_others(study, path):
    for methods in ("paper", "swag,ensemble", ["bayesian"]):
        alone = synthetic(grid=path, methods=methods, **HOW)
        names = {model["family"] for model in alone.models}
        assert alone.models == [m for m in study.models if m["draw"] == 0 and m["family"] in names]
    assert synthetic(grid=path, **HOW).to_dict() == synthetic(grid=path, methods="paper", **HOW).to_dict()


def test_correlations_by_method_are_pearsons_among_its_scores(study):
    assert [*dict.fromkeys(row["method"] for row in study.by_method)] == EVERY
    for row in study.by_method:
        part = [m for m in study.models if (m["family"], m["draw"]) == (row["method"], row["draw"])]
        pairs = [(m[row["metric"]], m[row["truth"]]) for m in part]
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        assert row["n"] == len(pairs)
        expected = pearsonr(*np.transpose(pairs)).statistic if len(pairs) > 3 else math.nan
        assert row["r"] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert any(row["n"] > 3 for row in study.by_method)
    assert len(study.by_method) == len(EVERY) * 2 * len(FOUR)


def test_medians_by_score_are_over_the_models_of_a_draw(study):
    for row in study.by_score:
        part = [m for m in study.models if all(m[a] == row[b] for a, b in COLUMNS)]
        assert row["models"] == len(part)
        for name in (*TRUTHS, *MAIN):
            values = [m[name] for m in part if m[name] is not None]
            assert row[name] == np.median(values) if values else math.isnan(row[name])


COLUMNS = (("family", "method"), ("score", "score"), ("draw", "draw"))


def test_the_orders_of_methods_are_compared_draw_by_draw(study):
    def line(change):
        rows = [row | {"kendall_phi": change(k, row)} for k, row in enumerate(study.by_score)]
        return by_method.agreement(study, rows)[0]

    assert line(lambda k, row: row["uq_auc"]).endswith(
        "agrees with τ = 1.00 (1.00 to 1.00) over draws; both name the same best one on 2 of 2."
    )
    assert "τ = −1.00" in line(lambda k, row: -row["uq_auc"])
    assert by_method.agreement(synthetic_of(study, EVERY[:2]), study.by_score) == []


def synthetic_of(study, names):
    import dataclasses

    methods = [method for method in study.settings["methods"] if method["name"] in names]
    return dataclasses.replace(study, settings=study.settings | {"methods": methods})


def test_the_tables_name_every_method_and_compare_with_the_paper_only_what_it_ran(study, path):
    correlations, orders = study.method_grids()
    titles = [row[0] for row in correlations.rows]
    assert len(titles) == 3 + len(EVERY)  # the paper's three, here and printed, and all together
    assert titles[0] in correlations.marked
    assert "SNGP: gp variance (its own)" in [row[0] for row in orders.rows]
    assert not any("paper" in row[0] for row in study.grid().rows)
    assert study.paper == []
    paper = synthetic(grid=path, **HOW)
    assert any("paper" in row[0] for row in paper.grid().rows)


def test_the_figure_puts_first_what_orders_best_and_shows_every_method(study):
    panels = by_method.methods_and_truths(study, study.by_score).to_dict()["vconcat"]
    for line in panels:
        for panel in line["hconcat"]:
            order = panel["layer"][1]["encoding"]["y"]["sort"]
            assert len(order) == len(EVERY)
            assert len(set(order)) == len(EVERY)
    first = panels[0]["hconcat"][0]["layer"][1]["encoding"]["y"]["sort"][0]
    medians = {}
    for row in study.by_score:
        if row["score"] == OWN[row["method"]]:
            medians.setdefault(row["method"], []).append(row["kendall_phi"])
    best = max(medians, key=lambda name: np.median(medians[name]))
    assert first.startswith(next(m["title"] for m in study.settings["methods"] if m["name"] == best))


def test_a_finished_method_is_read_back_and_another_added(path, tmp_path, undrawn):
    seen = []
    synthetic(tmp_path, grid=path, methods="swag", **HOW)
    synthetic(tmp_path, grid=path, methods="swag,tta", **HOW, progress=lambda *step: seen.append(step))
    assert seen[0] == ("training and scoring", 1, 2)
    assert len(json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))["by_method"]) == 2 * len(FOUR)


def test_the_command_takes_methods_and_refuses_what_is_none(path, tmp_path, undrawn):
    options = ("reproduce", "synthetic", "--grid", path, "--seeds", 1, "--jobs", 1, "--any-d")
    text = commands.succeed(*options, "--out", tmp_path / "a", "--methods", "temperature,swag")
    assert "SWAG" in text
    assert "Deep ensemble" not in text
    assert "has 'foo', which is none" in commands.fail(*options, "--out", tmp_path / "b", "--methods", "foo")


@pytest.mark.slow
def test_a_killed_run_of_all_methods_goes_on_to_the_same_bytes(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(ONE.replace("epochs = 8", "epochs = 60"), encoding="utf-8")
    code = "from uqeval.reproduce.synthetic.run import synthetic\n"
    code += "from uqeval.reproduce.synthetic.study import SyntheticStudy\n"
    code += "SyntheticStudy.figures = lambda *_: dict()\n"
    code += f"synthetic({{!r}}, grid={str(grid)!r}, d_range=None, seeds=2, jobs=1, methods='all')"

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", code.format(str(folder))], start_new_session=True)

    assert start(tmp_path / "whole").wait() == 0
    victim, store = start(tmp_path / "killed"), tmp_path / "killed" / "store.sqlite"
    while not store.exists() or not 3 <= finished(store) < 14:
        assert victim.poll() is None
        time.sleep(0.02)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    assert finished(store) < 14
    assert start(tmp_path / "killed").wait() == 0
    for name in ("table.json", "table.csv", "by_method.csv", "by_score.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def finished(store):
    with sqlite3.connect(store) as db:
        tables = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'cells'").fetchone()[0]
        return db.execute("SELECT count(*) FROM cells").fetchone()[0] if tables else 0


@pytest.mark.slow
def test_a_draw_of_the_whole_grid_shows_what_is_known_of_each_method():
    """Entropies of trained networks order inputs by misalignment; bounds with room for the spread over draws."""
    models = [row for part in ("paper", *OTHERS) for row in run_cell(GRID, (1, 0, part))]
    order = {(row["method"], row["score"]): row for row in by_method.medians(models, [1])}
    for method in choose(GRID, "all"):
        score = by_method.scores_of(method)["entropy of its probabilities"]
        assert order[method["name"], score]["kendall_varphi"] > 0.85, method["name"]
    # The variance of a Gaussian process tells how far the data are, and far from the data the classes are told apart.
    assert order["sngp", "gp_variance"]["kendall_phi"] < 0
    assert min(model["accuracy"] for model in models) > 0.6
