"""Every chart is valid, small, safe, offline, and shows the numbers of its result in the colours of its scores."""

from __future__ import annotations

import json
import re
import time
import warnings
from dataclasses import replace

import altair as alt
import numpy as np
import pytest
import vl_convert
from scipy.integrate import trapezoid

import uqeval as uq
from uqeval import InputError, UQWarning, metrics, plot, scores
from uqeval.plot import data, theme
from uqeval.plot.differences import forest_rows, run_rows
from uqeval.plot.names import shortened

NASTY = "</script><img src=x onerror=alert(1)>"
ODD = "a.b[c]\\'d"
OF_EVALUATION = ("roc", "risk_coverage", "mce", "mbc", "score_histogram", "score_vs_gap", "by_group")


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **kwargs)


def make(n=400, seed=0, **more):
    """Predictions with members, soft labels, groups, and two scores whose names are an attack and a trap."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, 3))
    soft = np.exp(logits + rng.normal(size=(n, 3)))
    soft /= soft.sum(axis=1, keepdims=True)
    labels = (soft.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    fields = {
        "labels": labels,
        "member_logits": logits + rng.normal(size=(4, n, 3)),
        "soft_labels": soft,
        "scores": {NASTY: rng.random(n).round(1), ODD: rng.normal(size=n)},
        "groups": np.array(["left", NASTY, "right"])[rng.integers(0, 3, n)],
    }
    return uq.Predictions(**{**fields, **more})


def evaluate(pred, **options):
    return quiet(uq.evaluate, pred, **{"metrics": ["uq_auc", "ece", "accuracy"], **options})


@pytest.fixture(scope="module")
def pred():
    return make()


@pytest.fixture(scope="module")
def ev(pred):
    return evaluate(pred, scores=["entropy", "mutual_information", NASTY, ODD])


@pytest.fixture(scope="module")
def cmp(pred):
    return quiet(uq.compare, pred, scores=["entropy", "mutual_information", NASTY, ODD])


@pytest.fixture(scope="module")
def charts(ev, cmp, pred):
    """A chart of each kind."""
    found = {name: getattr(plot, name)(ev) for name in OF_EVALUATION}
    found["psi"] = plot.psi(ev, NASTY)
    found["mce_coverage"] = plot.mce(ev, x="coverage")
    found["reliability"] = plot.reliability(ev)
    found["forest"] = plot.forest(cmp)
    found["dominance"] = plot.dominance(uq.dominance("entropy", NASTY, predictions=pred, resamples=200))
    found["label_noise"] = plot.label_noise(uq.label_noise([NASTY, ODD], predictions=pred), like=ev)
    found["psi_map"] = plot.psi(
        uq.risk_map("entropy", predictions=pred),
        threshold=uq.choose_threshold("entropy", predictions=pred, max_risk=[0.3, 1e-4]),
    )
    return found


_DRAWN = {}


def spec_of(chart):
    """`to_dict`, once for each chart: it checks the schema, which takes long."""
    if id(chart) not in _DRAWN:
        _DRAWN[id(chart)] = chart, chart.to_dict()
    return _DRAWN[id(chart)][1]


def records(chart, *fields):
    """The rows of all data sets of a chart that have the fields, with the names that the tips say."""
    tables = spec_of(chart)["datasets"]
    whole = {row["short"]: row["name"] for row in tables.get("names in full", ())}
    found = [row for name, rows in tables.items() if name != "names in full" for row in rows]
    names = ("score", "candidate", "group")
    return [row | {k: whole.get(row[k], row[k]) for k in names if k in row} for row in found if set(fields) <= set(row)]


def walk(value, path=()):
    """All strings of a specification, keys among them, with the path that leads there."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, (*path, "a key")
            yield from walk(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from walk(item, path)
    elif isinstance(value, str):
        yield value, path


def palette_of(chart):
    """Colours by name of all colour scales over scores or candidates."""

    def scales(value):
        if isinstance(value, dict):
            field = value.get("color", {})
            if isinstance(field, dict) and field.get("field") in ("score", "candidate"):
                yield dict(zip(field["scale"]["domain"], field["scale"]["range"], strict=True))
            for item in value.values():
                yield from scales(item)
        elif isinstance(value, list):
            for item in value:
                yield from scales(item)

    whole = {text: name for name, text in shortened([NASTY]).items()}
    return {whole.get(name, name): color for scale in scales(spec_of(chart)) for name, color in scale.items()}


# ---- all charts ------------------------------------------------------------------------------------------------


def test_every_chart_is_valid_titled_and_plain_json(charts):
    for name, chart in charts.items():
        spec = spec_of(chart)
        assert isinstance(chart, theme.Figure)
        assert isinstance(chart, alt.TopLevelMixin)
        assert "400 rows" in spec["title"]["text"], name
        assert json.loads(json.dumps(spec, allow_nan=False)) == spec
        assert len(json.dumps(spec)) < 300_000


def test_every_public_name_is_drawn_and_documented(charts):
    assert {name.split("_coverage")[0] if name == "mce_coverage" else name for name in charts} >= set(plot.__all__)
    assert all("Examples" in getattr(plot, name).__doc__ for name in plot.__all__)


def test_axes_have_words_and_units(charts):
    spec = json.dumps(spec_of(charts["risk_coverage"]))
    assert "coverage (share of inputs accepted)" in spec
    assert "risk (share of the accepted that are wrong)" in spec
    for name, chart in charts.items():
        titles = [
            text for text, path in walk(spec_of(chart)) if path[-1] == "title" and path[-2:-1] in (("x",), ("y",))
        ]
        assert titles, name


def test_names_of_users_are_data_and_nothing_else(charts):
    """In the Vega-Lite text and in the Vega program that it becomes."""
    for name in [*OF_EVALUATION, "psi", "forest", "dominance", "label_noise"]:
        spec = spec_of(charts[name])
        hits = [path for text, path in walk(spec) if "alert(1)" in text or "a.b[c]" in text]
        assert hits
        assert all(path[0] == "datasets" or path[-1] == "domain" for path in hits)
        program = vl_convert.vegalite_to_vega(spec)
        inside = {path for text, path in walk(program) if "alert(1)" in text or "a.b[c]" in text}
        assert inside
        assert all(path[:2] == ("data", "values") or path[-1] == "domain" for path in inside), inside


def test_charts_are_saved_without_browser_or_network(charts, tmp_path):
    charts["risk_coverage"].save(tmp_path / "x.png")
    charts["forest"].save(str(tmp_path / "x.svg"))
    charts["score_histogram"].save(tmp_path / "x.html")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    svg = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert "<img" not in svg
    assert "&lt;/script" in svg
    html = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "vegaEmbed" in html
    assert not re.search(r"<script[^>]*\ssrc=|<link", html)
    assert "<img src=x" not in html
    assert html.count("</script>") == 2
    assert json.dumps(NASTY).replace("<", "\\u003c") in html


def test_html_for_notebooks_and_pages_cannot_be_left_by_a_string(charts):
    chart = charts["by_group"]
    bundle = chart._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "<img src=x" not in bundle.get("text/html", "")
    assert "\\u003cimg src=x" in bundle.get("text/html", "\\u003cimg src=x")
    assert "<img src=x" not in chart.to_html(inline=False)


def test_a_notebook_shows_svg_that_needs_no_network_and_is_told_in_words(charts):
    for chart in (charts["roc"], charts["forest"], charts["score_histogram"]):
        bundle = chart._repr_mimebundle_()
        assert set(bundle) == {"image/svg+xml", "text/plain"}
        svg = bundle["image/svg+xml"]
        assert svg.startswith('<svg role="img" aria-label="')
        assert bundle["text/plain"] in svg
        assert not re.search(r'<script|<image|<foreignObject|(?:href|src)="http', svg)
        assert "<img" not in svg
    with alt.renderers.enable("mimetype"):  # what a user chose goes before
        assert any("vegalite" in key for key in charts["roc"]._repr_mimebundle_()[0])


def test_changed_charts_still_save_offline(charts, tmp_path):
    charts["roc"].properties(width=200).save(tmp_path / "x.html")
    assert not re.search(r"<script[^>]*\ssrc=", (tmp_path / "x.html").read_text(encoding="utf-8"))


# ---- colours ---------------------------------------------------------------------------------------------------


def test_built_in_scores_have_distinct_fixed_colours():
    names = list(scores.available())
    fixed = theme.colors(names)
    assert len(set(fixed.values())) == len(names)
    assert theme.colors(reversed(names)) == fixed
    assert all(theme.colors([name]) == {name: fixed[name]} for name in names)
    assert theme.colors(["own", "entropy", "mine"])["entropy"] == fixed["entropy"]
    assert len(set(theme.colors(["own", "entropy", "mine"]).values())) == 3
    assert len(theme.colors(f"own {k}" for k in range(40))) == 40


def test_a_score_has_one_colour_in_all_charts(charts, ev):
    expected = theme.colors([NASTY, ODD, "entropy", "mutual_information"])
    for name, chart in charts.items():
        for score, color in palette_of(chart).items():
            assert color == expected[score], name
    assert set(palette_of(charts["forest"])) == set(palette_of(charts["roc"])) == set(expected)


def test_the_colours_of_an_evaluation_can_be_kept(ev, pred):
    last = quiet(uq.compare, pred, scores=["entropy", ODD])
    assert palette_of(plot.forest(last))[ODD] != palette_of(plot.roc(ev))[ODD]
    assert palette_of(plot.forest(last, like=ev))[ODD] == palette_of(plot.roc(ev))[ODD]
    found = uq.risk_map(ODD, predictions=pred)
    assert palette_of(plot.psi(found, like=ev))[ODD] == palette_of(plot.psi(ev, ODD))[ODD]


# ---- what the charts show --------------------------------------------------------------------------------------


def test_roc_and_risk_show_the_curves(charts, ev):
    rows = [row for row in records(charts["roc"], "x", "y") if row["score"] == NASTY]
    error = ev.source.error
    area = trapezoid([row["y"] for row in rows], [row["x"] for row in rows])
    assert area == pytest.approx(metrics.uq_auc(ev.source.score(NASTY), error), abs=1e-5)
    found = [row for row in records(charts["risk_coverage"], "risk") if row["score"] == NASTY]
    curve = metrics.risk_coverage_curve(ev.source.score(NASTY), error)
    assert [row["risk"] for row in found] == pytest.approx(curve.risk.tolist(), abs=1e-5)
    rate = {row["to"] for row in records(charts["risk_coverage"], "text") if row["text"] == "random score"}
    assert [*rate] == pytest.approx([error.mean()], abs=1e-5)


def test_mbc_is_the_curve_of_misaligned_rows(charts, pred, ev):
    apart = uq.truth.misaligned(pred.soft_labels, pred.probs)
    curve = metrics.mbc_curve(ev.source.score(NASTY), apart)
    found = [row for row in records(charts["mbc"], "risk") if row["score"] == NASTY]
    assert [row["risk"] for row in found] == pytest.approx(curve.risk.tolist(), abs=1e-5)
    assert [row["threshold"] for row in found] == pytest.approx(curve.threshold.tolist(), abs=1e-5)


def test_mbc_leaves_rows_without_a_majority_out():
    soft = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    pred = uq.Predictions([0, 0, 1, 0], probs=[0.1, 0.2, 0.4, 0.3], soft_labels=soft)
    chart = plot.mbc(evaluate(pred, scores="entropy", metrics="aurc"), x="coverage")
    assert max(row["accepted"] for row in records(chart, "accepted")) == 3
    assert "1 rows without a majority label are left out" in spec_of(chart)["title"]["subtitle"]


def test_histograms_and_densities_hold_every_row(charts, ev):
    for score in ev.scores:
        assert sum(row["count"] for row in records(charts["score_histogram"], "share") if row["score"] == score) == 400
        assert sum(row["count"] for row in records(charts["score_vs_gap"], "y2") if row["score"] == score) == 400


def test_reliability_shows_the_rows_behind_each_bin(charts):
    assert sum(row["count"] for row in records(charts["reliability"], "accuracy")) == 400


def test_the_forest_shows_all_differences_and_who_cannot_be_told_apart(charts, cmp):
    rows = records(charts["forest"], "difference")
    assert len(rows) == len(cmp.rows)
    names = shortened(cmp.values, 21)
    for row, pair in zip(rows, cmp.rows, strict=True):
        assert row["label"] == f"{names[pair.a]} − {names[pair.b]}"
        assert row["panel"] == ("all rows" if pair.group is None else f"group {pair.group}")
        found = (row["difference"], row["low"], row["high"])
        assert found == pytest.approx((pair.difference, pair.low, pair.high), rel=1e-5)
        assert (row["shown"] == "interval excludes 0") == (pair.low > 0 or pair.high < 0)
    values = {row["candidate"]: row["value"] for row in records(charts["forest"], "candidate", "value")}
    assert list(values) == cmp.ranking()
    assert values == pytest.approx(cmp.values, rel=1e-5)
    runs = {}
    for row in records(charts["forest"], "run"):
        runs.setdefault(row["run"], []).append(row["candidate"])
    assert list(runs.values()) == cmp.groups()
    assert run_rows(cmp) == records(charts["forest"], "run")


def test_a_forest_of_many_candidates_shows_the_clearest():
    rng = np.random.default_rng(0)
    error = (rng.random(200) < 0.3).astype(float)
    many = {f"s{k}": k / 5 * error + rng.normal(size=200) for k in range(16)}
    cmp = quiet(uq.compare, many, error=error, adjust="holm")
    rows, left = forest_rows(cmp)
    assert (len(rows), left) == (100, 20)
    kept = {row["label"] for row in rows}
    last = [pair.p for pair in cmp.rows if f"{pair.a} − {pair.b}" not in kept]
    assert min(last) >= max(pair.p for pair in cmp.rows if f"{pair.a} − {pair.b}" in kept)
    assert "20 more differences" in json.dumps(spec_of(plot.forest(cmp))["title"])


def test_a_forest_against_a_baseline_of_models_works():
    pair = {
        "one": make(seed=1, groups=None),
        "two": make(seed=1, groups=None, member_logits=make(seed=2).member_logits),
    }
    cmp = quiet(uq.compare, pair, metric="brier", baseline="one")
    chart = plot.forest(cmp)
    assert [row["label"] for row in records(chart, "difference")] == ["two − one"]
    assert "lower is better" in spec_of(chart)["title"]["text"]


def test_psi_marks_the_chosen_thresholds(charts, pred):
    chosen = uq.choose_threshold("entropy", predictions=pred, max_risk=[0.3, 1e-4])
    (mark,) = records(charts["psi_map"], "coverage")
    assert (mark["max_risk"], mark["value"]) == pytest.approx((0.3, chosen[0].value), rel=1e-5)
    assert not chosen[1].feasible
    assert "nothing could be certified at a risk of 0.01%" in spec_of(charts["psi_map"])["title"]["subtitle"]
    of_map = records(plot.psi(uq.risk_map("entropy", predictions=pred)), "low_drawn")
    assert of_map == records(plot.psi(evaluate(pred, scores="entropy")), "low_drawn")


def test_groups_are_shown_with_their_intervals(charts, ev):
    rows = records(charts["by_group"], "whole")
    assert {row["group"].rsplit(" (", 1)[0] for row in rows} == set(ev.groups)
    assert {row["value"] for row in rows if row["score"] == ODD} == {
        float(f"{ev[ODD, 'uq_auc', group].value:.6g}") for group in ev.groups
    }
    assert len(records(plot.by_group(ev, "accuracy"), "whole")) == len(ev.groups)


def test_dominance_shows_curve_and_band(pred):
    found = uq.dominance("entropy", ODD, predictions=pred, resamples=200)
    rows = records(plot.dominance(found), "difference")
    assert [row["difference"] for row in rows] == pytest.approx(found.difference.tolist(), abs=1e-5)
    assert [row["high"] for row in rows] == pytest.approx(found.high.tolist(), abs=1e-5)


def test_what_the_band_is_stands_below_the_title():
    for kind in ["weights", "clusters"]:
        rng = np.random.default_rng(0)
        ev = evaluate(
            make(**{kind: rng.random(400) + 0.1 if kind == "weights" else np.arange(400) // 4}), scores="entropy"
        )
        for name in ("roc", "risk_coverage", "mce", "mbc"):
            chart = getattr(plot, name)(ev)
            said = " ".join(spec_of(chart)["title"]["subtitle"])
            assert ("no band" if kind == "weights" else "100 clusters as the independent units") in said
            assert any(row["low"] is None for row in records(chart, "low")) == (kind == "weights")
            assert ('"area"' in json.dumps(spec_of(chart))) == (kind == "clusters")
        assert spec_of(plot.reliability(ev))
        assert spec_of(plot.score_histogram(ev))


def test_a_loss_in_place_of_errors_is_drawn():
    rng = np.random.default_rng(0)
    ev = quiet(uq.evaluate, score=rng.random(300), loss=rng.random(300))
    chart = plot.risk_coverage(ev)
    assert "risk (mean loss of the accepted)" in json.dumps(spec_of(chart))
    assert "(Hoeffding–Bentkus)" in spec_of(chart)["title"]["subtitle"][0]
    assert spec_of(plot.psi(ev))["title"]["text"].endswith("300 rows")
    assert sum(row["count"] for row in records(plot.score_vs_gap(ev), "y2")) == 300


def test_infinite_scores_are_drawn():
    score = np.concatenate([[-np.inf, -np.inf, np.inf], np.linspace(0, 1, 47)])
    ev = quiet(uq.evaluate, score=score, error=np.arange(50) % 5 == 0, loss=np.arange(50.0))
    for name in ("roc", "risk_coverage", "mce", "score_histogram", "score_vs_gap"):
        assert json.dumps(spec_of(getattr(plot, name)(ev)), allow_nan=False)
    assert "3 infinite values" in json.dumps(spec_of(plot.score_histogram(ev)))
    up = quiet(uq.risk_map, np.where(np.isneginf(score), -1, score), np.arange(50) % 5 == 0)
    assert json.dumps(spec_of(plot.psi(up)), allow_nan=False)


def test_the_order_of_rows_does_not_change_a_chart():
    pred = make(groups=None)
    turned = pred.take(np.random.default_rng(1).permutation(400))
    names = ["entropy", NASTY]
    for name in ("roc", "risk_coverage", "mce", "mbc", "score_histogram", "score_vs_gap"):
        one, two = (getattr(plot, name)(evaluate(p, scores=names), names).to_dict() for p in (pred, turned))
        assert one == two, name


def test_a_large_evaluation_makes_a_small_chart_quickly():
    n = 50_000
    rng = np.random.default_rng(0)
    error = rng.random(n) < 0.2
    many = {f"a rather long name of a score {k}": 0.3 * k * error + rng.normal(size=n) for k in range(7)}
    ev = uq.evaluate(score=many, error=error, loss=error + rng.random(n), metrics=["uq_auc"])
    start = time.perf_counter()
    for name in ("roc", "risk_coverage", "mce", "score_histogram", "score_vs_gap", "psi"):
        chart = getattr(plot, name)(ev)
        assert len(json.dumps(spec_of(chart))) < 300_000, name
        drawn = [row.get("score") for row in records(chart)]
        per_score = [drawn.count(score) for score in ev.scores]
        assert max(per_score) <= (1600 if name == "score_vs_gap" else data.MOST), name
    assert time.perf_counter() - start < 18  # 6 charts of 6 scores at half a second each; under 2 s on an idle core


# ---- what cannot be drawn --------------------------------------------------------------------------------------


def test_what_cannot_be_drawn_says_why(ev, cmp, pred):
    plain = quiet(uq.evaluate, score=np.arange(20.0), loss=np.arange(20.0), metrics=["uq_c_index"])
    calm = quiet(uq.evaluate, score=np.arange(20.0), error=np.zeros(20), metrics=["aurc"])
    far = quiet(uq.evaluate, score=np.full(20, np.inf), error=np.arange(20) % 2, metrics=["aurc"])
    weighted = evaluate(make(weights=np.arange(400) + 1.0), scores="entropy")
    joint = uq.choose_threshold("entropy", predictions=pred, max_risk=0.3, method="rcps")
    other = uq.choose_threshold(ODD, predictions=pred, max_risk=0.3)
    found = uq.risk_map("entropy", predictions=pred)
    cases = [
        ("roc needs 0/1 errors", lambda: plot.roc(plain)),
        ("roc needs right and wrong", lambda: plot.roc(calm)),
        ("needs errors or a loss in", lambda: plot.risk_coverage(plain)),
        ("needs errors or a loss in", lambda: plot.psi(plain)),
        ("mbc needs `soft_labels`", lambda: plot.mbc(calm)),
        ("infinite in all rows", lambda: plot.mce(far)),
        ("`x` must be one of", lambda: plot.mce(ev, x="risk")),
        ("score_vs_gap needs a `loss`", lambda: plot.score_vs_gap(calm)),
        ("reliability needs probabilities", lambda: plot.reliability(plain)),
        ('Did you mean "entropy"', lambda: plot.roc(ev, ["entrpy"])),
        ('Did you mean "uq_auc"', lambda: plot.by_group(ev, "uq_auk")),
        ("`ev` has no groups", lambda: plot.by_group(plain)),
        ("holds estimates only", lambda: plot.roc(replace(ev, source=None))),
        ("`cmp` is an Evaluation", lambda: plot.forest(ev)),
        ("`d` is a Comparison", lambda: plot.dominance(cmp)),
        ("`source` is a Comparison", lambda: plot.psi(cmp)),
        ("Evaluate without `weights`", lambda: plot.psi(weighted)),
        ("Leave `score` out", lambda: plot.psi(found, "margin")),
        ("promise is about all inputs", lambda: plot.psi(found, threshold=joint)),
        ("`threshold` is of the score", lambda: plot.psi(found, threshold=other)),
        ("`threshold` holds a float", lambda: plot.psi(found, threshold=[0.3])),
    ]
    for words, draw in cases:
        with pytest.raises(InputError, match=re.escape(words)):
            draw()
    assert spec_of(plot.by_group(replace(ev, source=None)))


# ---- many scores, long names -----------------------------------------------------------------------------------


def test_long_names_are_shortened_in_the_middle_and_stay_apart():
    names = [
        "entropy",
        *(f"model-{'ab'[k % 2]}/layer{k:02d}_temperature-scaled_seed={k % 3}_entropy" for k in range(40)),
    ]
    names += [f"{'same' * 20}{k}{'same' * 20}" for k in range(12)]
    short = shortened(names)
    assert short["entropy"] == "entropy"
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= 28
    for name, text in short.items():
        assert name.startswith(text[:5])
        assert name.endswith(text[-5:])


def test_labels_of_a_chart_are_short_and_its_tips_say_the_whole_name():
    rng = np.random.default_rng(0)
    error = (rng.random(200) < 0.3).astype(int)
    long = [f"model-{k}/last-layer_temperature-scaled_entropy" for k in range(2)]
    ev = quiet(uq.evaluate, score={name: rng.normal(size=200) + error for name in long}, error=error)
    cmp = quiet(uq.compare, {name: ev.source.score(name) for name in long}, error=error)
    for chart in (plot.roc(ev), plot.score_histogram(ev), plot.mce(ev), plot.forest(cmp)):
        spec = spec_of(chart)
        labels = {
            row[key]
            for rows in spec["datasets"].values()
            for row in rows
            for key in ("score", "candidate") & row.keys()
        }
        assert labels == set(shortened(long).values())
        assert max(map(len, labels)) <= 28
        scales = [text for text, path in walk(spec) if "domain" in path and text.startswith("model")]
        assert set(scales) <= labels
        fields = {text for text, path in walk(spec) if path[-2:] == ("tooltip", "field")}
        assert fields & {"score in full", "candidate in full"}
        assert not fields & {"score", "candidate"}
        vl_convert.vegalite_to_svg(spec)


def test_bands_of_many_scores_are_faint_until_pointed_at_and_none_is_a_wall():
    rng = np.random.default_rng(0)
    error = (rng.random(2000) < 0.1).astype(int)
    for count in (3, 4):
        ev = quiet(uq.evaluate, score={f"s{k}": rng.normal(size=2000) + error for k in range(count)}, error=error)
        for chart in (plot.roc(ev), plot.risk_coverage(ev), plot.mce(ev, x="coverage")):
            spec = spec_of(chart)
            band = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "area")
            opacity = band["encoding"]["opacity"]
            if count == 3:
                assert [(part["param"], part["value"] >= 0.08) for part in opacity["condition"]] == [("pick", True)]
                assert {param["name"] for param in spec["params"]} == {"pick"}
            else:
                assert opacity["value"] <= 0.03
                assert [part["param"] for part in opacity["condition"]] == ["hover", "pick"]
                assert not any(part["empty"] for part in opacity["condition"])
                assert "where you point" in json.dumps(spec["title"])
            if any("coverage" in row for rows in spec["datasets"].values() for row in rows):
                assert band["transform"] == [{"filter": "datum.coverage >= 0.01"}]
