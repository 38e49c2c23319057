"""The synthetic study on a small grid: every number by its definition, whatever the cores, whoever kills it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr

pytest.importorskip("sklearn.base")  # "sklearn" alone could be the folder of our tests

from sklearn.metrics import roc_auc_score

torch = pytest.importorskip("torch", reason="torch is not installed")

from uqeval import InputError, scores  # noqa: E402
from uqeval.methods.batched import Net, train  # noqa: E402
from uqeval.reproduce import synthetic  # noqa: E402
from uqeval.reproduce.names import METRICS, TRUTHS  # noqa: E402
from uqeval.reproduce.store import Store, cell_key  # noqa: E402
from uqeval.reproduce.synthetic.networks import GRID, algorithms, draw_of, read_grid  # noqa: E402
from uqeval.reproduce.synthetic.run import SyntheticStudy, run_cell  # noqa: E402

TINY = """
[data]
n = 200
train = 0.5
[training]
epochs = 4
batch_size = 40
learning_rates = [0.02]
hidden = [[8], [6, 4]]
[[methods]]
name = "softmax"
scores = ["entropy", "free_energy", "bernoulli_variance"]
[[methods]]
name = "ensemble"
members = [3]
scores = ["total_entropy", "mutual_information"]
[[methods]]
name = "dropout"
dropout = [0.3]
samples = [5]
scores = ["expected_free_energy", "predicted_class_variance"]
"""
HOW = {"seeds": 2, "jobs": 1}


@pytest.fixture
def undrawn(monkeypatch):
    """Without figures, which train networks of their own."""
    monkeypatch.setattr(SyntheticStudy, "figures", lambda study, progress: {})


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TINY)
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("table.*"))}


def test_the_grid_of_the_paper_has_300_networks_and_696_scores():
    plans = [plan for k in range(4) for plan in algorithms(GRID, k)]
    assert len(plans) == 144
    assert sum(plan["members"] for plan in plans) == 300
    assert sum(len(plan["scores"]) for plan in plans) == 696


def test_every_number_of_a_softmax_row_follows_its_definition(grid):
    table = read_grid(grid)
    data = draw_of(table, 1)
    rows = run_cell(table, (1, 0, "paper"))
    net = Net(1_000_000, (8,), 0.02)
    fitted = train([net], data.x[data.train], data.labels[data.train], epochs=4, batch_size=40)
    logits = fitted.logits(data.x[data.test])[0]
    x, y = data.x[data.test], data.labels[data.test]
    margin = logits[:, 1] - logits[:, 0]
    p = 1 / (1 + np.exp(-margin))
    wrong = (p > 0.5) != y
    pi = data.pi(x)[:, 1]
    phi = np.where(p > 0.5, 1 - pi, pi)
    varphi = np.where(pi > 0.5, 1 - p, p)
    s = -np.logaddexp(logits[:, 0], logits[:, 1])
    row = next(row for row in rows if row["score"] == "free_energy")
    assert row["family"] == "softmax"
    assert row["accuracy"] == pytest.approx(1 - wrong.mean())
    assert row["uq_auc"] == pytest.approx(roc_auc_score(wrong, s), abs=1e-12)
    assert row["kendall_phi"] == pytest.approx(kendalltau(s, phi).statistic, abs=1e-9)
    assert row["kendall_varphi"] == pytest.approx(kendalltau(s, varphi).statistic, abs=1e-9)
    gap = np.where(y == 1, -margin, margin)
    comparable = gap[:, None] < gap[None]
    credit = (s[:, None] < s[None]) + 0.5 * (s[:, None] == s[None])
    assert row["uq_c_index"] == pytest.approx(credit[comparable].mean(), abs=1e-12)


def test_free_energy_has_the_sign_of_uncertainty():
    # A wrong sign raises all four correlations of the study, so they cannot show it.
    sure, unsure = np.array([[6.0, 0.0]]), np.array([[0.1, 0.0]])
    both = np.concatenate([unsure, sure])
    assert scores.free_energy(both)[0] > scores.free_energy(both)[1]
    members = np.stack([both, both])
    assert np.diff(scores.expected_free_energy(members))[0] < 0


def test_correlations_are_pearsons_over_the_scores_of_a_draw(grid):
    study = synthetic(grid=grid, d_range=None, **HOW)
    assert len(study.models) == 2 * 2 * 7
    for row in study.correlations:
        part = [m for m in study.models if m["draw"] == row["draw"]]
        pairs = [(m[row["metric"]], m[row["truth"]]) for m in part]
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        assert row["n"] == len(pairs)
        assert row["r"] == pytest.approx(pearsonr(*np.transpose(pairs)).statistic, abs=1e-9)
        assert row["low"] <= row["r"] <= row["high"]
    assert {(row["metric"], row["truth"]) for row in study.summary} == {(m, t) for m in METRICS for t in TRUTHS}
    for row in study.summary:
        values = [c["r"] for c in study.correlations if (c["metric"], c["truth"]) == (row["metric"], row["truth"])]
        assert (row["median"], row["lowest"], row["highest"]) == (np.median(values), min(values), max(values))


def test_tables_hold_the_paper_beside_ours_and_are_valid(grid, tmp_path, undrawn):
    study = synthetic(tmp_path / "out", grid=grid, d_range=None, **HOW)
    text = (tmp_path / "out" / "table.json").read_text()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert set(data) >= {"study", "settings", "correlations", "summary", "models", "paper", "notes"}
    assert data["settings"]["d"] == {str(k): draw_of(data["settings"]["grid"], k).d for k in (0, 1)}
    assert len((tmp_path / "out" / "table.csv").read_text().splitlines()) == 1 + len(study.correlations)
    assert any("d = ‖μ₁ − μ₀‖" in note for note in study.notes)


def test_draws_are_the_first_seeds_whose_d_is_in_range(grid):
    study = synthetic(grid=grid, d_range=(1.0, 2.5), **HOW)
    d = {seed: draw_of(study.settings["grid"], seed).d for seed in range(max(study.settings["draws"]) + 1)}
    assert study.settings["draws"] == [seed for seed, value in d.items() if 1.0 <= value <= 2.5]


@pytest.mark.slow
def test_jobs_do_not_change_a_byte(grid, tmp_path, undrawn):
    synthetic(tmp_path / "one", grid=grid, d_range=None, **HOW)
    synthetic(tmp_path / "two", grid=grid, d_range=None, seeds=2, jobs=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_finished_run_is_read_back(grid, tmp_path, monkeypatch, undrawn):
    synthetic(tmp_path / "one", grid=grid, d_range=None, **HOW)
    before, seen = contents(tmp_path / "one"), []
    runner = sys.modules["uqeval.reproduce.synthetic.run"]
    monkeypatch.setattr(runner, "run_cell", lambda *_: pytest.fail("a finished cell was computed again"))
    synthetic(tmp_path / "one", grid=grid, d_range=None, **HOW, progress=lambda *step: seen.append(step))
    assert [step for step in seen if step[0] == "training and scoring"] == [("training and scoring", 4, 4)]
    assert contents(tmp_path / "one") == before


def test_more_draws_reuse_the_finished_ones(grid, tmp_path, undrawn):
    synthetic(tmp_path / "out", grid=grid, d_range=None, seeds=1, jobs=1)
    seen = []
    synthetic(tmp_path / "out", grid=grid, d_range=None, **HOW, progress=lambda *step: seen.append(step))
    assert seen[0] == ("training and scoring", 2, 4)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(TINY.replace("epochs = 4", "epochs = 150"))
    code = "from uqeval.reproduce.synthetic.run import synthetic\n"
    code += "from uqeval.reproduce.synthetic.study import SyntheticStudy\n"
    code += "SyntheticStudy.figures = lambda *_: dict()\n"  # the figures are not what is killed
    code += f"synthetic({{!r}}, grid={str(grid)!r}, d_range=None, seeds=4, jobs=1)"

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", code.format(str(folder))], start_new_session=True)

    begun = time.perf_counter()
    assert start(tmp_path / "whole").wait() == 0
    whole = time.perf_counter() - begun
    for k, share in enumerate((0.4, 0.8)):
        victim = start(tmp_path / f"killed{k}")
        time.sleep(share * whole)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        assert start(tmp_path / f"killed{k}").wait() == 0
        assert contents(tmp_path / f"killed{k}") == contents(tmp_path / "whole")


def test_a_store_keeps_floats_to_the_last_bit_and_knows_its_keys(tmp_path):
    key = cell_key({"b": 1, "a": [0.1, 2]})
    assert key == cell_key({"a": [0.1, 2], "b": 1})
    assert key != cell_key({"a": [0.1, 3], "b": 1})
    with Store(tmp_path / "deep") as store:
        assert key not in store
        store.put(key, {"x": 0.1 + 0.2, "y": None})
    with Store(tmp_path / "deep") as store:
        assert key in store
        assert store.get(key) == {"x": 0.30000000000000004, "y": None}
        with pytest.raises(KeyError):
            store.get("other")


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "store.sqlite").write_text("not a database " * 100)
    with pytest.raises(InputError, match="not a store"):
        Store(tmp_path)


def test_bad_options_are_refused():
    for options, named in (({"seeds": 0}, "seeds"), ({"seeds": 1, "grid": "no.toml"}, "grid")):
        with pytest.raises(InputError, match=named):
            synthetic(**options)


@pytest.mark.slow
def test_eight_draws_reproduce_what_independent_prototypes_found():
    """The acceptance of the study: medians, floors on every draw, and the sign of negative correlations."""
    study = synthetic(seeds=8)
    names = [("uq_auc", "kendall_phi"), ("uq_auc", "kendall_varphi"), ("uq_c_index", "kendall_phi")]
    names.append(("uq_c_index", "kendall_varphi"))
    median = {(row["metric"], row["truth"]): row["median"] for row in study.summary}
    ranges = [(0.9767, 0.9909), (0.9654, 0.9852), (0.9905, 0.9955), (0.9967, 0.9985)]
    for name, (low, high) in zip(names, ranges, strict=True):
        assert low <= median[name] <= high, (name, median[name])
    floors = dict(zip(names, (0.90, 0.88, 0.95, 0.99), strict=True))
    r = {(row["metric"], row["truth"], row["draw"]): row["r"] for row in study.correlations}
    for (metric, truth, draw), value in r.items():
        if (metric, truth) in floors:
            assert value >= floors[metric, truth], (metric, truth, draw, value)
    for draw in study.settings["draws"]:
        assert r["uq_c_index", "kendall_varphi", draw] > r["uq_auc", "kendall_varphi", draw]
    negative = [m for m in study.models if m["kendall_phi"] is not None and m["kendall_phi"] < 0]
    assert len(negative) > 100
    assert np.mean([m["uq_auc"] < 0.5 for m in negative]) >= 0.85
    assert not any(math.isnan(row["median"]) for row in study.summary)
