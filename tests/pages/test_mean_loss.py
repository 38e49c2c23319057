"""A mean loss is no share of rows: it is never shown in %."""

import json
import re

import numpy as np
import pytest

import uqeval as uq
from cases import noted
from uqeval.pages.explorer import in_words
from uqeval.pages.payload import evaluation_payload


def rows(n=900, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    return score, np.clip(0.3 * score + rng.normal(0, 0.02, n), 0, 1)


@pytest.fixture(scope="module")
def judged():
    score, loss = rows()
    error = np.arange(900) % 9 == 0
    return {
        "a loss alone": uq.evaluate(score=score, loss=loss),
        "chosen": uq.evaluate(score=score, loss=loss, error=error, risk="loss"),
        "0/1, chosen": uq.evaluate(score=score, loss=(loss > 0.2).astype(float), error=error, risk="loss"),
    }


def formats(chart, field):
    """How the axes and the tooltips of a chart write a field."""
    found = []

    def walk(node):
        if isinstance(node, dict):
            if node.get("field") == field:
                axis = node.get("axis")
                found.append(axis["format"] if isinstance(axis, dict) and "format" in axis else node.get("format"))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(chart)
    return [form for form in found if form is not None]


def test_charts_write_a_mean_loss_as_a_number(judged):
    for name, ev in judged.items():
        with noted(case=name):
            drawn = uq.plot.risk_coverage(ev).to_dict()
            assert "mean loss of the accepted" in json.dumps(drawn)
            assert formats(drawn, "risk")
            assert not any("%" in form for form in formats(drawn, "risk"))
            score, loss = ev.source.score("score"), np.asarray(ev.source.share_loss, dtype=float)
            chosen = uq.choose_threshold({"score": score}, loss, max_risk=[1e-6, 0.25], risk="loss")
            drawn = uq.plot.psi(ev, threshold=chosen).to_dict()
            assert not any("%" in form for form in formats(drawn, "max_risk"))
            assert "at a risk of 1e-06" in str(drawn["title"])
            assert re.search(r"chosen: [\d.]+ for 0\.25\b", json.dumps(drawn))
    # Shares of wrong rows stay shares.
    wrong = uq.evaluate(score=rows()[0], error=rows()[1] > 0.2)
    assert "~%" in formats(uq.plot.risk_coverage(wrong).to_dict(), "risk")


def test_the_page_writes_a_mean_loss_as_a_number(judged):
    for name, ev in judged.items():
        with noted(case=name):
            page = evaluation_payload(ev, max_risk=0.2, title=None, columns=None, most_mistakes=0, compare=False)
            charts = {figure["id"]: figure for figure in page["charts"]}
            assert "mean loss of" in charts["risk"]["text"]
            assert "%" not in charts["risk"]["text"]
            assert not any("%" in cell for row in charts["risk"]["table"].rows for cell in row)
            assert not any("%" in row[0] for row in charts["psi"]["table"].rows)
            words = in_words(page["explorer"])
            assert words["loss"] is True
            assert not any("%" in target for target in words["targets"])
            for line in words["scores"][0]["a"]:
                assert not any("%" in cell for cell in line[4:])
            assert page["verdict"]["act"].what == "loss"
            html = uq.report(ev, max_risk=0.2, compare=False)
            assert "x.loss ?" in html  # the axis of the explorer
            lead = html[html.index('<p class="lead">') :]
            assert "keeps the mean loss under 0.2" in lead[: lead.index("</p>")]
