"""What a notebook shows of a result: its page, in which every name of a user is text."""

from __future__ import annotations

import sys

import pytest

import uqeval as uq
from uqeval.gate import judge

BAD = "<script>alert('1')</script>\" onload=x &amp;"


@pytest.fixture(scope="module")
def results():
    """One of each kind that is looked at, of rows whose every name is markup."""
    pred = uq.datasets.example()
    rows = uq.Predictions(
        pred.labels,
        probs=pred.probs,
        scores={BAD: uq.scores.entropy(pred.probs)},
        groups=[f"{BAD}{k}" for k in pred.groups],
        classes=[f"{BAD}{k}" for k in range(10)],
    )
    metrics = ["uq_auc", "accuracy", "ece"]
    ev = uq.evaluate(rows, scores=[BAD, "margin"], metrics=metrics)
    rule = {"metric": "uq_auc", "score": BAD, "at_least": 0.99, "group": "worst", "name": BAD}
    at_once = {"score": BAD, "predictions": rows, "max_risk": 0.03}
    return {
        "evaluation": ev,
        "comparison": uq.compare(rows, scores=[BAD, "margin"]),
        "threshold": uq.choose_threshold(**at_once, groups=rows.groups),
        "thresholds": uq.choose_threshold(**at_once | {"max_risk": [0.03, 0.04]}),
        "check": uq.choose_threshold(**at_once).check(BAD, predictions=rows, again=True),
        "gate": judge(ev, {"rule": [rule]}),
    }


def test_no_name_of_a_user_becomes_markup(results):
    for kind, result in results.items():
        page = result._repr_html_()
        assert "<script" not in page, kind
        assert ("&lt;script&gt;" in page) == ("<script" in str(result)), kind
    assert sum("<script" in str(result) for result in results.values()) >= 4


def test_marimo_shows_the_page_and_charts_draw_themselves(results, monkeypatch):
    chart = uq.plot.risk_coverage(results["evaluation"])
    assert "image/svg+xml" in chart._repr_mimebundle_()
    formatting = pytest.importorskip("marimo._output.formatting")
    # marimo looks for PySpark's frames where that is loaded; PySpark ends a process whose main module has no file.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    for result in results.values():
        assert formatting.try_format(result).data == result._repr_html_()
