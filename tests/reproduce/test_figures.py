"""Figures and page of the synthetic study, on a grid of a few small networks."""

import dataclasses
import math
import re
from html import unescape

import numpy as np
import pytest
from tiny_grid import TINY

from uqeval.datasets import synthetic as draw_data
from uqeval.metrics import kendall_tau
from uqeval.reproduce import panels, synthetic
from uqeval.reproduce.synthetic import figures, scenes
from uqeval.reproduce.synthetic.networks import GRID, read_grid
from uqeval.reproduce.synthetic.verdicts import BAD, GOOD, OPEN, verdicts

NAMES = [
    "methods_and_truths",
    "metric_vs_kendall",
    "metric_vs_kendall_by_method",
    "correlations_vs_d",
    "correlations_by_metric",
    "dataset",
    "phi_and_varphi",
    "risk_control",
    "score_vs_phi",
    "score_vs_varphi",
    "temperature",
]


@pytest.fixture(scope="module")
def grid_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("grid") / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def study(grid_file):
    pytest.importorskip("torch")
    return synthetic(seeds=3, grid=grid_file, jobs=1)


@pytest.fixture(scope="module")
def out(study, tmp_path_factory):
    return study.publish(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def drawn(out):
    """The drawings by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in (out / "figures").glob("*.svg")}


@pytest.fixture(scope="module")
def scene():
    found = scenes.arbitrary(GRID, [1, 2, 5], (0.75, 2.4))
    assert found is not None
    return found


# ---- figures ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_figure_is_drawn_as_svg_and_png_with_marks_that_a_reader_can_use(out, drawn):
    assert set(drawn) == set(NAMES)
    for name, svg in drawn.items():
        assert svg.startswith("<svg")
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert svg.count("<path") < 2500, name
        assert len(svg) < 400_000, name


def test_the_scatter_shows_the_draw_with_the_median_d(study):
    d = study.settings["d"]
    assert d[str(study.shown_draw)] == np.median(list(d.values()))


def test_a_draw_without_a_defined_correlation_is_still_drawn(study):
    rows = [{**row, "r": math.nan, "low": math.nan, "high": math.nan} for row in study.correlations]
    models = [{**row, "kendall_phi": None} for row in study.models]
    empty = dataclasses.replace(study, correlations=rows, models=models)
    chart = figures.metric_vs_kendall(empty, empty.shown_draw).to_dict()
    assert "r = –" in chart["vconcat"][0]["hconcat"][0]["title"]["text"]
    assert figures.correlations_vs_d(empty).to_dict()["title"]["text"].startswith("How the correlations")


# ---- the data --------------------------------------------------------------------------------------------------


def test_the_arbitrary_predictor_is_better_than_chance_and_the_draw_is_named(scene):
    right = (scene.predict(scene.data.x).argmax(axis=1) == scene.data.labels).mean()
    assert right >= 0.6
    assert f"Draw {scene.seed}" in scene.words
    assert "passed over" in scene.words
    assert scenes.arbitrary({"data": {"classes": 3}}, [0], None) is None


def test_a_draw_outside_the_study_is_said_to_be_one(scene):
    other = scenes.arbitrary(GRID, [1], (0.75, 2.4))
    assert other.seed not in (1,)
    assert "not one of the study" in other.words
    assert "not one of the study" not in scene.words


def test_the_rectangles_of_a_map_tile_it_with_the_right_shades(scene):
    (left, right), (below, above) = scene.limits
    exact = {
        "pi": lambda x, probs: scene.data.pi(x)[:, 1],
        "kendall_phi": scene.data.phi,
        "kendall_varphi": scene.data.varphi,
    }
    for name, truth in exact.items():
        cells = scene.map(name)
        areas = (cells["right"] - cells["left"]) * (cells["above"] - cells["below"])
        assert areas.sum() == pytest.approx((right - left) * (above - below))
        side = (right - left) / 64
        x = np.column_stack([cells["left"] + side / 2, (cells["below"] + cells["above"]) / 2])
        assert np.abs(cells["value"] - truth(x, scene.predict(x))).max() <= 0.5 / 40 + 1e-9


def test_exact_risk_curves_rise_and_end_at_the_exact_risk(scene):
    mce, mbc = ([row for row in rows if row["kind"] == "exact"] for rows in scenes.risk_curves(scene))
    for curve in (mce, mbc):
        assert (np.diff([row["risk"] for row in curve]) > -1e-9).all()
    assert all(row["risk"] == 0 for row in mbc if row["beta"] <= 0.5)
    # The chance of a mistake in closed form: the predictor cuts the second coordinate, which is normal in each class.
    away = (scene.level - scene.data.means[:, 1]) / (scene.data.sigma * math.sqrt(2))
    below = [(1 + math.erf(z)) / 2 for z in away]
    error = scene.data.prior[0] * (1 - below[0]) + scene.data.prior[1] * below[1]
    assert mce[-1]["risk"] == pytest.approx(error, abs=2e-3)


def test_observed_risk_curves_end_at_the_observed_risk(scene):
    data = scene.data
    probs = scene.predict(data.x)
    ends = [rows[-1] for rows in scenes.risk_curves(scene)]
    assert [row["kind"] for row in ends] == ["observed", "observed"]
    assert ends[0]["risk"] == pytest.approx((probs.argmax(axis=1) != data.labels).mean())
    assert ends[1]["risk"] == pytest.approx(data.misaligned(data.x, probs).mean())


def test_models_trained_again_are_those_of_the_study(study, grid_file):
    seed = study.shown_draw
    known = {(row["model"], row["score"]): row for row in study.models if row["draw"] == seed}
    again = scenes.few_models(read_grid(grid_file), seed, study.settings["methods"])
    assert {model.plan["method"] for model, _ in again} == {"softmax", "ensemble", "dropout"}
    for model, score in again:
        row = known[model.model, score]
        for truth, values in model.truths.items():
            assert kendall_tau(model.score(score), values) == pytest.approx(row[truth], abs=0.01)


# ---- the page --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html(study, tmp_path_factory, empty_sheets):
    study.timing.seconds["training and scoring"] = 61.4
    study.timing.found = study.timing.parts
    with pytest.MonkeyPatch.context() as patch:
        empty_sheets(patch)
        return (study.publish(tmp_path_factory.mktemp("page")) / "index.html").read_text(encoding="utf-8")


def test_the_page_needs_nothing_from_elsewhere_and_runs_no_script(html):
    assert "<script" not in html
    assert "default-src 'none'; style-src" in unescape(html)
    addresses = {found for found in re.findall(r'(?:href|src)="([^"]*)"', html) if not found.startswith("#")}
    assert all(found.startswith(("figures/", "data:")) for found in addresses)
    assert "url(http" not in html


def test_the_page_ties_everything_together(html, study):
    assert "paper (one draw, d unknown)" in html
    assert "1 min 1 s" in html
    assert f"{study.timing.parts} of {study.timing.parts} parts were there" in html
    assert "What reproduces" in html
    assert "What does not" in html
    for name in NAMES:
        assert f'id="{name}"' in html
    for note in study.notes:
        assert note in unescape(html)


def test_phi_and_varphi_are_never_bare_where_a_reader_meets_them(study, html):
    head = study.grid().head
    assert head[1:] == ["with error probability, κ(s; ϕ)", "with misalignment, κ(s; φ)"]
    by_draw = study.page().tables[1].head
    assert by_draw[2:4] == ["UQ-AUC, error probability", "UQ-AUC, misalignment"]
    for line in (*study.notes, *(line for _, lines in study.page().short[:1] for line in lines)):
        assert ("κ(s; ϕ)" in line) <= ("error probability" in line)
        assert ("κ(s; φ)" in line) <= ("misalignment" in line)


@pytest.mark.slow
def test_ids_of_inline_drawings_do_not_clash(out):
    html = (out / "index.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    for used in re.findall(r"url\(#([^)]*)\)", html):
        assert used in ids


@pytest.mark.slow
def test_titles_of_drawings_are_text_of_the_page_and_not_drawn_twice(study, tmp_path):
    (picture,) = panels.save({"x": lambda: figures.correlations_vs_d(study)}, tmp_path, lambda done, total: None)
    assert picture.title in (tmp_path / "figures" / "x.svg").read_text(encoding="utf-8")
    assert picture.title not in picture.svg


def test_hostile_names_are_escaped(study, tmp_path):
    bad = "<script>alert(1)</script>"
    methods = [{**method, "title": bad} for method in study.settings["methods"]]
    hostile = dataclasses.replace(study, settings={**study.settings, "methods": methods}, notes=[bad])
    chart = {"metric_vs_kendall": lambda: figures.metric_vs_kendall(hostile, hostile.shown_draw)}
    pictures = panels.save(chart, tmp_path, lambda done, total: None)
    text = hostile.page().html(pictures, hostile.timing.grid(), [])
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in (tmp_path / "figures" / "metric_vs_kendall.svg").read_text(encoding="utf-8")


def test_verdicts_follow_the_numbers(study):
    def with_r(r, low=0.1, n=36):
        rows = [{**row, "r": r[row["metric"]], "low": low, "n": n} for row in study.correlations if row["metric"] in r]
        tests = [{**test, "difference": 0.1, "p_williams": 0.001} for test in study.tests]
        found = verdicts(dataclasses.replace(study, correlations=rows, tests=tests))
        return [found[heading] for heading in (GOOD, BAD, OPEN)]

    well = {"uq_auc": 0.95, "uq_c_index": 0.99, "ece": 0.1}
    good, bad, _ = with_r(well)
    assert any("UQ-AUC follows" in words for words in good)
    assert any("better than UQ-AUC does on 3 of 3 draws" in words for words in good)
    assert any("significantly better" in words for words in good)
    assert any("inside the paper's intervals: UQ-AUC with κ(s; ϕ) on 3" in words for words in bad)
    # An interval that holds 0, or few scores, show nothing.
    good, bad, _ = with_r(well, low=-0.1)
    assert not any("follows" in words or "significantly better" in words for words in good)
    assert with_r(well, n=6) == [[], [], ["Nothing is concluded from 6 scores a draw: at least 10 are needed."]]
    good, bad, _ = with_r({"uq_auc": 0.5, "uq_c_index": 0.4, "ece": 0.9})
    assert any("does not always follow" in words for words in bad)
    assert any("better than UQ-AUC does on 0 of 3 draws" in words for words in bad)
    assert any("Calibration" in words for words in bad)
    assert not any("follows" in words for words in good)


def test_draws_of_any_d_stand_beside_the_selected_ones(study):
    first = [int(seed) for seed in study.settings["first_seeds"]]
    assert first == [0, 1, 2]
    assert {row["draw"] for row in study.any_d} == set(first)
    assert 0 not in study.settings["draws"]
    alone = next(row for row in study.any_d if row["draw"] == 1)
    assert alone in study.correlations  # a draw is one draw, whichever sample it is counted in
    rows = {row[0]: row for row in study.grid().rows}
    values = [100 * r["r"] for r in study.any_d if (r["metric"], r["truth"]) == ("uq_auc", "kendall_phi")]
    assert rows["UQ-AUC, any d"][1] == f"{np.median(values):.2f}% ({min(values):.2f} to {max(values):.2f})".replace(
        "-", "−"
    )
    (words,) = dict(study.page().short)["With any d"]
    # d is Rayleigh with scale √2: 1 − exp(−d²/4) of the draws lie below d.
    share = 1 - math.exp(-(0.75**2) / 4) + math.exp(-(2.4**2) / 4)
    assert f"leaves out {share:.0%} of the paper's own law" in words
    assert {row["draw"] for row in study.models} == set(study.settings["draws"])


def test_correlations_within_one_kind_of_scores_are_those_of_its_scores(study):
    kinds = {"entropy", "free energy", "mutual information", "variance"}
    assert {row["scores"] for row in study.within} == kinds
    draw = study.settings["draws"][0]
    mine = [m for m in study.models if m["draw"] == draw and "entropy" in m["score"]]
    row = next(r for r in study.within if (r["scores"], r["metric"], r["draw"]) == ("entropy", "uq_auc", draw))
    assert row["n"] == len(mine)
    assert row["r"] == pytest.approx(np.corrcoef([[m["uq_auc"], m["kendall_phi"]] for m in mine], rowvar=False)[0, 1])
    assert set(study.page().tables[1].rows[0][0:1]) <= kinds
    assert len(dict(study.page().short)["Among scores of one kind"]) == 4


def test_the_table_has_the_papers_row_before_ours(study):
    grid = study.grid()
    labels = [row[0] for row in grid.rows]
    assert labels[:2] == ["UQ-AUC, paper (one draw, d unknown)", "UQ-AUC"]
    assert labels[0] in grid.marked
    assert labels[1] not in grid.marked
    assert grid.rows[0][1] == "94.56% (93.36 to 95.55)"
    assert grid.rows[labels.index("ECE, paper (one draw, d unknown)")][1:] == ["0.09%", "−10.57%"]


def test_more_than_two_classes_have_no_map(study, monkeypatch, empty_sheets):
    empty_sheets(monkeypatch)
    grid = {**study.settings["grid"], "data": {"n": 240, "train": 0.5, "classes": 3}}
    assert draw_data(**grid["data"], seed=0).n_classes == 3
    three = dataclasses.replace(study, settings={**study.settings, "grid": grid})
    assert list(study.figures()) == NAMES
    assert set(NAMES) - set(three.figures()) == {"dataset", "phi_and_varphi", "risk_control"}
