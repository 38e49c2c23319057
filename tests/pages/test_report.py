"""The page: what it says, that it says the same as the functions, and that no user string becomes markup."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow
import pytest

import uqeval as uq
from optional import optional
from uqeval import _files
from uqeval._errors import InputError
from uqeval.decide.threshold import shown as printed
from uqeval.pages import explorer, mistakes, words
from uqeval.pages.payload import _accepts_more, data_hash, evaluation_payload
from uqeval.pages.report import render

pandas = optional("pandas")
polars = optional("polars")

pytestmark = pytest.mark.usefixtures("few_draws")
EVIL = "</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """Elements, their attributes, and the text that a reader sees."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self.scripts, self._open = [], [], [], None
        self.feed(html)
        self.text = " ".join(" ".join(self.texts).split())
        self.data = json.loads(next(s for kind, s in self.scripts if kind == "application/json"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag):
        self._open = None if tag in ("script", "style") else self._open

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open != "style":
            self.texts.append(data)

    def ids(self):
        return {attrs["id"] for _, attrs in self.elements if "id" in attrs}


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def rows(n=900, seed=0, scores=3):
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    error = (rng.random(n) < 0.25 * hard**2).astype(int)
    return {f"s{k}": hard + rng.normal(0, 0.1 + 0.2 * k, n) for k in range(scores)}, error, hard


def evaluated(n=900, scores=3, metrics=("uq_auc", "aurc"), **options):
    found, error, hard = rows(n, scores=scores)
    if "loss" not in options:
        options["error"] = error
    elif options["loss"] == "share":
        options["loss"] = np.round(np.clip(0.2 * hard**2, 0, 1), 3)
    elif options["loss"] == "any":
        options["loss"] = 10 * hard
    options = {key: values(n) if callable(values) else values for key, values in options.items()}
    return quiet(uq.evaluate, score=found, metrics=list(metrics), **options)


def payload_of(ev, **options):
    known = {"max_risk": 0.05, "title": None, "columns": None, "most_mistakes": 20, "compare": True}
    return evaluation_payload(ev, **(known | options))


@pytest.fixture
def chartless(monkeypatch):
    """Pages without charts, which take most of the time: for tests of other parts."""
    monkeypatch.setattr("uqeval.pages.charts.of_evaluation", lambda *_: ([], []))


@pytest.fixture(scope="module")
def example():
    return quiet(uq.evaluate, uq.datasets.example(), metrics=["uq_auc", "uq_c_index", "aurc", "accuracy", "ece"])


@pytest.fixture(scope="module")
def payload(example):
    return payload_of(example, title="Digits")


@pytest.fixture(scope="module")
def page(payload):
    return Page(render(payload))


# ---- what it says ---------------------------------------------------------------------------------------------


def test_the_page_has_every_section(page):
    expected = "verdict table charts explorer mistakes groups comparison limits cite versions"
    assert set(expected.split()) <= page.ids()
    assert "Pignet" in page.text
    assert "AISTATS 2025" in page.text
    assert f"uqeval {uq.__version__}" in page.text
    assert ("title", {}) in page.elements


def test_the_verdict_is_that_of_the_functions(example, page):
    pred = uq.datasets.example()
    best = example.best("uq_auc")[0]
    error = uq.truth.misclassified(pred.probs, pred.labels)
    score = uq.scores.compute(best, pred)
    t = quiet(uq.choose_threshold, score, error, max_risk=0.05, n_scores=len(example.distinct))
    assert f"{best} ranks errors very well: UQ-AUC {example[best, 'uq_auc']}" in page.text
    assert f"acting where it is at most {printed(t.value, 6)} keeps errors under 5%" in page.text
    assert f"for {words.percent(t.coverage)} of inputs with 95% confidence" in page.text
    assert f"{t.n_accepted:,} of {t.n:,} rows lie there, {t.errors_accepted} of them wrong" in page.text
    assert "out of 10 that rank differently" in page.text  # rankings: entropy and total entropy are one


def test_the_table_has_all_scores_and_the_charts_eight(example, page, payload):
    best_first = sorted(example.scores, key=lambda name: -example[name, "uq_auc"].value)
    assert [row[0] for row in payload["table"].rows] == best_first
    assert "Best UQ-AUC first." in page.text
    assert len(payload["shown"]) == 8
    assert "The 8 best of 10 scores that rank differently" in page.text
    for name in example.scores:
        assert str(example[name, "uq_auc"]) in page.text


def test_charts_are_described_and_name_no_address(page):
    drawn = {attrs["data-chart"]: attrs for _, attrs in page.elements if "data-chart" in attrs}
    assert set(drawn) == set(page.data["charts"])
    assert {"roc", "risk", "histogram", "gap", "mce", "psi", "reliability", "groups", "forest"} <= set(drawn)
    for attrs in drawn.values():
        assert attrs["role"] == "img"
    assert "http" not in json.dumps(page.data)


def test_every_chart_is_told_in_words_with_numbers_of_the_run(example, page, payload):
    alts = {attrs["data-chart"]: attrs["aria-label"] for _, attrs in page.elements if "data-chart" in attrs}
    best, worst = payload["table"].rows[0][0], payload["shown"][-1]
    auc, half = example[best, "uq_auc"], payload["explorer"]["scores"][0]["map"]
    rate, told = example.n_errors / example.n, words.percent
    error, score = example.source.error, example.source.score(best)
    t = payload["verdict"]["act"]
    groups = [str(example[best, "uq_auc", group]) for group in example.groups]
    expected = {
        "roc": [str(auc), str(min((example[name, "uq_auc"] for name in payload["shown"]), key=lambda e: e.value))],
        "risk": [told(rate)],
        "histogram": [words.cell(np.median(score[error == k])) for k in (0, 1)],
        "gap": [str(max((example[name, "uq_c_index"] for name in payload["shown"]), key=lambda e: e.value))],
        "mce": [
            words.cell(half["threshold"][half["coverage"].index(min(c for c in half["coverage"] if c >= 0.5 - 1e-9))])
        ],
        "psi": [printed(t.value, 6), told(t.coverage), "5%"],
        "reliability": [str(example["ece"])],
        "groups": [max(groups), min(groups)],
        "forest": [f"of {len(payload['comparison']['pairs'].rows)} differences", "The clearest: "],
    }
    assert set(alts) == set(expected), worst
    for name, numbers in expected.items():
        for text in numbers:
            assert text in alts[name], name
        assert len(alts[name].split(". ")) >= 3, name  # title, what it shows, what it says


def test_without_scripts_every_chart_is_a_drawing_and_the_explorer_a_table(page, payload):
    """All that a page without scripts shows is in its HTML."""
    figures = [*payload["charts"], *payload["comparison"]["charts"]]
    html = render(payload)
    for figure in figures:
        still = figure["still"]
        assert still.startswith("<svg ")
        assert still in html
        assert still.count("<path") + still.count("<rect") >= 3
        assert len(still) < 150_000
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(set(ids)) == len(ids)
    rows = payload["steady"][1].rows
    t = payload["verdict"]["act"]
    assert [printed(t.value, 6), words.percent(t.coverage), f"{t.n_accepted:,}"] == next(
        row[1:4] for row in rows if row[0] == "5%"
    )
    for row in payload["steady"][0].rows:
        assert float(row[5].rstrip("%")) >= float(row[4].rstrip("%"))
    assert html.count("<noscript>") == 1


def test_a_page_whose_drawing_process_fails_draws_by_itself(monkeypatch):
    for name, value in (("frozen", True), ("executable", "/no/such/python")):
        with monkeypatch.context() as changed:
            changed.setattr(sys, name, value, raising=False)
            payload = payload_of(evaluated(n=200, scores=1), compare=False)
            assert all(figure["still"].startswith("<svg ") for figure in payload["charts"])


def test_the_page_names_its_files_date_command_title_and_version(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("uqeval.pages.charts.of_evaluation", lambda *_: ([], []))
    found, error, _ = rows(200, scores=1)
    path = tmp_path / "preds & more.csv"
    pandas.DataFrame({"score_a": found["s0"], "error": error}).to_csv(path, index=False)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    ev = quiet(uq.evaluate, uq.read_predictions(path))
    page = Page(uq.report(ev, title="Heads & tails", command="uqeval evaluate 'preds & more.csv'"))
    for text in (
        str(path),
        f"SHA-256 {digest}",
        "2023-11-14 22:13 UTC",
        "uqeval evaluate 'preds & more.csv'",
        "title Heads & tails",
        uq.__version__,
    ):
        assert text in page.text
    assert "none: the rows came from memory" in Page(uq.report(evaluated(n=200, scores=1))).text
    cmp = quiet(uq.compare, rows(200)[0], error=error)
    assert digest in Page(uq.report(cmp, files=path)).text


def test_tables_of_many_metrics_are_folded_and_lose_nothing(example):
    metrics = [name for name, known in uq.metrics.REGISTRY.items() if known.uses_score and known.tally != "two sets"]
    ev = quiet(uq.evaluate, uq.datasets.example(), scores=["entropy", "margin", "vote_ratio"], metrics=metrics[:10])
    table = payload_of(ev, compare=False)["table"]
    parts = words.folded(table)
    assert len(table.head) == 11
    assert max(len(part.head) for part in parts) <= 5
    assert [cell for part in parts for cell in part.head[1:]] == table.head[1:]
    for k, row in enumerate(table.rows):
        assert [cell for part in parts for cell in part.rows[k][1:]] == row[1:]
        assert {part.rows[k][0] for part in parts} == {row[0]}


def test_no_element_asks_for_anything_outside(page):
    for tag, attrs in page.elements:
        assert tag not in ("iframe", "object", "embed", "base", "img")
        for name in ("src", "href", "action", "srcset"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_confident_mistakes_are_the_wrong_rows_with_the_lowest_score(example):
    best = example.best("uq_auc")[0]
    found = mistakes.find(example, best, {"twice": 2 * np.arange(example.n)}, 7)
    score, error = example.source.score(best), example.source.error
    expected = sorted(np.flatnonzero(error), key=lambda row: score[row])[:7]
    lines = found["table"].rows
    assert [int(line[0]) for line in lines] == expected
    assert [int(line[-1]) for line in lines] == [2 * row for row in expected]
    pred = example.source.pred
    assert [line[1] for line in lines] == [pred.classes[code] for code in pred.labels[expected]]
    assert all(line[1] != line[2] for line in lines)


def test_columns_of_any_frame_stand_beside_the_mistakes(example):
    columns = {"name": [f"row {k}" for k in range(example.n)], "x": np.linspace(0, 1, example.n)}
    reversed_labels = pandas.DataFrame(columns, index=np.arange(example.n)[::-1])
    for given in (columns, reversed_labels, polars.DataFrame(columns), pyarrow.table(columns)):
        found = mistakes.find(example, "entropy", given, 5)["table"]
        assert found.head[-2:] == ["name", "x"]
        for line in found.rows:
            assert line[-2] == f"row {line[0]}"
            assert line[-1] == f"{int(line[0]) / (example.n - 1):.4g}"


def test_ids_and_ties_keep_their_order():
    score = np.array([0.5, 0.1, 0.1, 0.1, 0.9, 0.2])
    pred = uq.Predictions(error=[1, 1, 1, 0, 0, 1], scores={"s": score}, ids=list("abcdef"))
    ev = quiet(uq.evaluate, pred, metrics="uq_auc")
    assert [line[:2] for line in mistakes.find(ev, "s", None, 2)["table"].rows] == [("1", "b"), ("2", "c")]


def test_numbers_are_short(page):
    for number in re.findall(r"\d+\.\d+", page.text):
        assert len(number.replace(".", "").lstrip("0")) <= 6, number


@pytest.mark.usefixtures("chartless")
def test_the_verdict_does_not_praise_chance():
    rng = np.random.default_rng(1)
    ev = quiet(uq.evaluate, score={"noise": rng.random(400)}, error=np.arange(400) % 5 == 0, metrics=["uq_auc"])
    text = Page(uq.report(ev)).text
    assert "noise has the best value, but was not shown to rank errors better than chance: UQ-AUC" in text
    assert "Not shown to rank errors better than chance (interval holds 0.5): noise." in text
    assert "No threshold is certified to keep errors under 5% with 95% confidence" in text
    assert "more rows would not help" in text


@pytest.mark.usefixtures("chartless")
def test_another_score_with_the_same_promise_is_mentioned():
    ev = evaluated()
    payload = payload_of(ev)
    act = quiet(uq.choose_threshold, ev.source.score("s2"), ev.source.error, max_risk=0.05, n_scores=3)
    at = payload["explorer"]["targets"].index(0.05)
    best = max(payload["explorer"]["scores"], key=lambda part: part["certified"][at]["coverage"])
    said = f"{words.percent(best['certified'][at]['coverage'])} of inputs, where it is at most"
    for feasible, start in (
        (True, f"With the same promise, {best['name']} accepts more: "),
        (False, f"With {best['name']} the same promise can be made: for "),
    ):
        less = replace(act, feasible=feasible, coverage=0.01 if feasible else 0.0)
        verdict = payload["verdict"] | {"act": less, "more": _accepts_more(less, payload["explorer"])}
        assert start + said in Page(render(payload | {"verdict": verdict})).text
    assert _accepts_more(replace(act, coverage=1.0), payload["explorer"]) is None


@pytest.mark.usefixtures("chartless")
def test_the_best_score_may_be_one_that_cannot_be_certified():
    found, error, _ = rows(scores=1)
    endless = np.where(np.arange(900) == 3, -np.inf, found["s0"])
    ev = quiet(uq.evaluate, score=endless, error=error, metrics=["uq_auc"])
    text = Page(uq.report(ev)).text
    assert "No threshold is certified: `score` is −inf at row 3" in text
    assert "No score could be put into the explorer" in text


def test_metrics_of_the_model_alone_make_a_page():
    found, error, _ = rows(scores=1)
    ev = quiet(uq.evaluate, score=found, error=error, metrics=["accuracy"])
    text = Page(uq.report(ev)).text
    assert "No metric of a score was computed" in text
    assert "UQ-AUC was not asked for" in text


def test_a_comparison_of_very_many_has_no_chart():
    found, error, _ = rows(200, scores=31)
    cmp = quiet(uq.compare, found, error=error, baseline="s0", adjust="none")
    page = Page(uq.report(cmp))
    assert page.data["charts"] == {}
    assert "its p-values are not adjusted" in page.text


# ---- the explorer ---------------------------------------------------------------------------------------------


KINDS = {
    "errors": {},
    "few errors": {"n": 120},
    "losses": {"n": 250, "loss": "share", "metrics": ("uq_c_index", "aurc")},
    "clusters": {"clusters": lambda n: np.arange(n) // 4},
    "unequal clusters": {"clusters": lambda n: (np.arange(n) ** 0.7).astype(int)},
    "few clusters": {"clusters": lambda n: np.arange(n) % 7},
}


@pytest.mark.usefixtures("chartless")
def test_targets_of_the_explorer_are_what_choose_threshold_gives():
    for kind in KINDS:
        ev = evaluated(**{"n": 500, "scores": 1} | KINDS[kind])
        table, found = ev.source, payload_of(ev, max_risk=0.033, compare=False)["explorer"]
        assert 0.033 in found["targets"]
        assert len(found["targets"]) >= 38
        feasible = set()
        for part in found["scores"]:
            for target, got in list(zip(found["targets"], part["certified"], strict=True))[::3]:
                t = quiet(
                    uq.choose_threshold,
                    table.score(part["name"]),
                    table.share_loss,
                    max_risk=target,
                    level=ev.level,
                    clusters=table.pred.clusters,
                    n_scores=len(ev.scores),
                )
                feasible.add(t.feasible)
                assert (got["value"] is None) != t.feasible
                assert got["value"] in (None, t.value)
                assert (got["accepted"], got["errors"], got["coverage"]) == (
                    t.n_accepted,
                    t.errors_accepted,
                    t.coverage,
                )
                assert got["rows_needed"] == t.rows_needed
                assert got["risk"] is None if math.isnan(t.risk) else got["risk"] == t.risk
                assert part["data_hash"] == t.data_hash
        assert feasible == ({False} if kind == "few clusters" else {True, False})


@pytest.mark.usefixtures("chartless")
def test_the_other_slider_is_the_risk_map():
    ev = evaluated()
    part = payload_of(ev)["explorer"]["scores"][1]
    expected = uq.risk_map(ev.source.score("s1"), ev.source.error, level=ev.level)
    assert len(part["map"]["threshold"]) <= 100
    for key, values in part["map"].items():
        assert values == getattr(expected, key).tolist()


def test_the_page_shows_the_explorer_in_words(page, payload):
    shown = page.data["explorer"]
    for part, drawn in zip(payload["explorer"]["scores"], shown["scores"], strict=True):
        assert drawn["values"] == [found["value"] for found in part["certified"]]
        assert len(drawn["a"]) == len(part["map"]["threshold"])
        for found, cells in zip(part["certified"], drawn["b"], strict=True):
            if found["value"] is None:
                assert cells[0] == "nothing"
                assert "nothing can be certified" in cells[-1]
            else:
                assert cells[:4] == [
                    printed(found["value"], 6),
                    words.percent(found["coverage"]),
                    f"{found['accepted']:,}",
                    f"{found['errors']:,}",
                ]
    assert "Fix the target before you look" in page.text
    assert "right whatever you pick here" in page.text


@pytest.mark.usefixtures("chartless")
def test_many_losses_have_fewer_targets(monkeypatch):
    ev = evaluated(n=200, loss="share", metrics=("aurc",))
    monkeypatch.setattr(explorer, "_MANY_LOSSES", 100)
    assert len(payload_of(ev)["explorer"]["targets"]) == 8


# ---- missing pieces -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("chartless")
def test_weighted_rows_are_not_certified_and_the_page_says_why():
    ev = evaluated(weights=lambda n: 1.0 + np.arange(n) % 3)
    payload = payload_of(ev)
    table = ev.source
    part = payload["explorer"]["scores"][0]
    assert part["certified"] is None
    for threshold, coverage, risk in zip(*(part["map"][k] for k in ("threshold", "coverage", "risk")), strict=True):
        inside = table.score("s0") <= threshold
        assert coverage == pytest.approx(table.weights[inside].sum() / table.weights.sum())
        assert risk == pytest.approx(np.average(table.error[inside], weights=table.weights[inside]))
    page = Page(render(payload))
    assert "so nothing is certified on this page" in page.text
    assert "ex-target" not in page.ids()
    assert "Rows are weighted" in page.text


@pytest.mark.usefixtures("chartless")
def test_clusters_are_named_as_what_is_independent():
    page = Page(uq.report(evaluated(clusters=lambda n: np.arange(n) // 5)))
    assert "the 180 clusters are taken as independent draws" in page.text


def test_a_loss_in_0_1_is_promised_as_a_mean_loss():
    page = Page(uq.report(evaluated(loss="share", metrics=("uq_c_index", "aurc"))))
    assert "keeps the mean loss under 0.05" in page.text
    assert "roc" not in page.data["charts"]
    assert {"risk", "gap"} <= set(page.data["charts"])
    assert "mistakes" not in page.ids()


@pytest.mark.usefixtures("chartless")
def test_a_loss_of_any_size_has_no_threshold():
    page = Page(uq.report(evaluated(loss="any", metrics=("uq_c_index",))))
    assert "needs errors, or a loss between 0 and 1" in page.text
    assert "explorer" not in page.data
    assert "comparison" in page.ids()


@pytest.mark.usefixtures("chartless")
def test_one_score_is_not_compared():
    page = Page(uq.report(evaluated(scores=1)))
    assert "comparison" not in page.ids()
    assert "picked on the same rows" not in page.text


@pytest.mark.usefixtures("chartless")
def test_the_comparison_can_be_left_out():
    assert payload_of(evaluated(), compare=False)["comparison"] is None


def test_estimates_without_rows_make_a_page(example):
    page = Page(uq.report(replace(example, source=None)))
    assert "The rows were not kept" in page.text
    assert "groups" in page.data["charts"]
    assert {"mistakes", "explorer-box"}.isdisjoint(page.ids())
    assert "not known: the rows are not part of this result" in page.text


def test_a_comparison_makes_a_shorter_page():
    found, error, _ = rows()
    cmp = uq.compare(found, error=error)
    page = Page(uq.report(cmp, title="Three scores"))
    assert cmp.verdict()[0] in page.text
    assert set(page.data["charts"]) == {"forest"}
    assert {"comparison", "limits", "cite", "versions"} <= page.ids()
    assert {"explorer", "table", "mistakes"}.isdisjoint(page.ids())


def test_a_comparison_by_group_shows_the_groups():
    found, error, _ = rows()
    cmp = quiet(uq.compare, found, error=error, groups=np.arange(900) % 2)
    assert payload_rows(Page(uq.report(cmp)).text, "s0 − s1") == 3


def payload_rows(text, start):
    return text.split("Pair by pair")[1].split("What was assumed")[0].count(start)


@pytest.mark.usefixtures("chartless")
def test_too_few_errors_are_said_first():
    found, _, _ = rows(60)
    error = np.zeros(60, dtype=int)
    error[:3] = 1
    ev = quiet(uq.evaluate, score=found, error=error, metrics=["uq_auc"])
    assert "Too few errors (3)" in Page(uq.report(ev)).text


def test_all_right_or_all_wrong_still_makes_a_page():
    for wrong in (0, 60):
        found, _, _ = rows(60)
        ev = quiet(uq.evaluate, score=found, error=[1] * wrong + [0] * (60 - wrong))
        page = Page(uq.report(ev))
        assert "explorer" in page.data
        assert ("There is no wrong prediction" in page.text) == (wrong == 0)


def test_a_score_that_no_one_can_certify_is_left_out_and_named():
    found, error, _ = rows()
    found["endless"] = np.where(np.arange(900) == 3, -np.inf, found["s0"])
    ev = quiet(uq.evaluate, score=found, error=error, metrics=["uq_auc"])
    payload = payload_of(ev)
    assert "endless" not in [part["name"] for part in payload["explorer"]["scores"]]
    assert any("endless is not in the explorer" in note for note in payload["warned"])
    render(payload)


def test_soft_labels_add_their_chart():
    rng = np.random.default_rng(0)
    soft = rng.dirichlet([0.5, 0.5, 0.5], 200)
    probs = 0.7 * soft + 0.3 * rng.dirichlet([1, 1, 1], 200)
    labels = (soft.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1).clip(0, 2)
    pred = uq.Predictions(labels, probs=probs, soft_labels=soft)
    ev = quiet(uq.evaluate, pred, scores=["entropy", "margin"], metrics=["uq_auc", "kendall_phi"])
    assert "mbc" in Page(uq.report(ev)).data["charts"]


@pytest.mark.usefixtures("chartless")
def test_many_groups_are_cut_and_counted():
    page = Page(uq.report(evaluated(groups=lambda n: np.arange(n) % 30)))
    assert "and 10 more groups" in page.text


# ---- no user string becomes markup ----------------------------------------------------------------------------


def hostile():
    found, error, hard = rows(400)
    labels = np.arange(400) % 2
    probs = np.where(error == labels, 0.5 - 0.4 * (1 - hard), 0.5 + 0.4 * (1 - hard))
    pred = uq.Predictions(
        labels,
        probs=probs,
        scores={f"{EVIL}{k}": found[f"s{k}"] for k in range(2)},
        classes=[f"{EVIL}no", f"{EVIL}yes"],
        groups=[f"{EVIL}{'ab'[k % 2]}" for k in range(400)],
        ids=[f"{EVIL}{k}" for k in range(400)],
    )
    ev = quiet(uq.evaluate, pred, metrics=["uq_auc", "aurc", "accuracy"])
    return replace(ev, warnings=(*ev.warnings, EVIL)), {f"{EVIL} column": [f"{EVIL} value"] * 400}


def assert_harmless(html):
    assert EVIL not in html
    found = Page(html)
    assert not any(tag == "img" for tag, _ in found.elements)
    assert not any(name.startswith("on") for _, attrs in found.elements for name in attrs)
    assert [kind for kind, _ in found.scripts] == ["application/json", None, None]
    return found


def test_user_strings_stay_text():
    ev, columns = hostile()
    page = assert_harmless(uq.report(ev, title=EVIL, columns=columns))
    whole = {attrs.get("title") for tag, attrs in page.elements if tag == "abbr"}  # of names that are shortened
    for text in (EVIL, f"{EVIL}0", f"{EVIL}no", f"{EVIL}a", f"{EVIL} column", f"{EVIL} value"):
        assert text in page.text or text in whole
    assert EVIL in json.dumps(page.data["charts"])
    assert any(f"{EVIL}{k}" in page.text for k in range(2, 400))  # ids


def test_names_of_a_comparison_stay_text():
    found, error, _ = rows()
    cmp = uq.compare({f"{EVIL}{k}": values for k, values in found.items()}, error=error)
    assert f"{EVIL}s0 − {EVIL}s1" in assert_harmless(uq.report(cmp, title=EVIL)).text


def test_line_separators_and_lone_surrogates_can_be_written(tmp_path):
    found, error, _ = rows(200, scores=1)
    ev = quiet(uq.evaluate, score={"a\u2028b\ud800&<!--": found["s0"]}, error=error, metrics=["uq_auc"])
    html = uq.report(ev, tmp_path / "page.html").read_text(encoding="utf-8")
    text = html.split('id="uq-data">')[1].split("</script>")[0]
    assert not {"\u2028", "<", ">", "&"} & set(text)


@pytest.mark.usefixtures("chartless")
def test_endless_names_are_cut(example):
    found, error, _ = rows(200, scores=1)
    ev = quiet(uq.evaluate, score={"x" * 5000: found["s0"]}, error=error, metrics=["uq_auc"])
    assert payload_of(ev)["table"].rows[0][0] == "x" * 119 + "…"


# ---- size, time, writing ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_of_many_scores_groups_and_columns_is_small():
    n = 4_000
    found, error, _ = rows(n, scores=12)
    groups = np.arange(n) % 40
    ev = quiet(uq.evaluate, score=found, error=error, groups=groups, metrics=["uq_auc", "aurc"])
    html = uq.report(ev, columns={f"c{k}": ["long text " * 50] * n for k in range(12)}, mistakes=50)
    assert len(html.encode()) < 3_000_000


@pytest.mark.slow
@pytest.mark.alone
def test_a_million_rows_and_five_scores_in_15_seconds_and_3_megabytes(tmp_path):
    found, error, _ = rows(1_000_000, scores=5)
    ev = quiet(uq.evaluate, score=found, error=error)
    times = []
    for _ in range(2):  # other tests run beside this one
        start = time.perf_counter()
        path = uq.report(ev, tmp_path / "page.html")
        times.append(time.perf_counter() - start)
    assert min(times) < 15
    assert path.stat().st_size < 3_000_000


def test_the_same_evaluation_gives_the_same_page(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    ev = evaluated(n=200, scores=2)
    assert uq.report(ev) == uq.report(ev)


def test_the_data_hash_is_of_the_rows():
    first, again, other = (data_hash(evaluated(n)) for n in (300, 300, 301))
    assert first == again
    assert first != other
    assert len(first) == 64


@pytest.mark.usefixtures("chartless")
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    ev = evaluated(scores=1)
    path = tmp_path / "page.html"
    assert uq.report(ev, str(path)) == path
    assert path.read_text(encoding="utf-8") == uq.report(ev)
    path.write_text("former")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="cannot be written \\(No space left on device\\)"):
        uq.report(ev, path)
    assert path.read_text() == "former"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.usefixtures("chartless")
def test_a_report_is_as_public_as_other_files(tmp_path):
    (tmp_path / "other").write_text("")
    path = uq.report(evaluated(scores=1), tmp_path / "page.html")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_bad_arguments_are_named():
    ev = evaluated()
    for change, message in (
        ({"result": {"a": 1}}, "`result` is a dict. Pass what uqeval.evaluate or uqeval.compare returns"),
        ({"max_risk": 5}, "`max_risk` must lie strictly between 0 and 1"),
        ({"max_risk": [0.1, 0.2]}, "`max_risk` must be one number"),
        ({"title": 3}, "`title` must be text"),
        ({"mistakes": 51}, "`mistakes` must be an int from 0 to 50; it is 51"),
        ({"mistakes": True}, "`mistakes` must be an int"),
        ({"columns": {"x": [1, 2]}}, r"`columns\['x'\]` has 2 values; 900 rows were evaluated"),
        ({"columns": {"x": "text"}}, r"`columns\['x'\]` is 'text'"),
        ({"columns": 3}, "`columns` is an int. Pass a dict of name → values, or a dataframe"),
        ({"columns": {str(k): np.zeros(900) for k in range(13)}}, "`columns` has 13 columns"),
        ({"path": 7}, "`path` must be a file name"),
        ({"path": "/nowhere/page.html"}, "there is no folder '/nowhere'"),
        ({"path": "/"}, "`path` is the folder '/'"),
        ({"path": os.devnull}, "is no ordinary file"),
    ):
        options = {"result": ev, **change}
        with pytest.raises(InputError, match=message):
            uq.report(options.pop("result"), options.pop("path", None), **options)


def test_a_comparison_has_no_rows_for_columns():
    found, error, _ = rows()
    with pytest.raises(InputError, match="`columns` belong to the rows of an Evaluation"):
        uq.report(uq.compare(found, error=error), columns={"x": [1]})


def test_report_is_the_function_before_and_after_its_parts_are_imported():
    code = """
import inspect, types, uqeval as uq
assert inspect.isfunction(uq.report)
import uqeval.pages, uqeval.pages.report
from uqeval import report
assert report is uq.report is uqeval.report is uqeval.pages.report.report
assert isinstance(uq.pages, types.ModuleType) and type(uq.pages) is types.ModuleType
assert list(inspect.signature(uq.report).parameters)[:3] == ["result", "path", "max_risk"]
"""
    for first in ("", "import uqeval.pages.words"):
        subprocess.run([sys.executable, "-c", f"{first}\n{code}"], check=True, timeout=120)


def test_the_chart_library_is_put_together_once_and_a_broken_copy_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_files.sys, "platform", "linux")
    made = []

    def make():
        made.append(1)
        return "a\r\nscript\n"

    assert [_files.kept_text("x.js", make) for _ in range(3)] == ["a\r\nscript\n"] * 3
    assert len(made) == 1
    (tmp_path / "uqeval" / "x.js").write_text("tampered\nscript\n")
    assert _files.kept_text("x.js", make) == "a\r\nscript\n"
    assert len(made) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "uqeval" / "x.js"))  # no folder can be made there
    assert _files.kept_text("y.js", make) == "a\r\nscript\n"
