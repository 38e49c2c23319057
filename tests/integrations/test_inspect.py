"""The metric that Inspect finds through our entry point, on scores with its attributes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import llm_logs as logs
import uqeval as uq
from uqeval._errors import InputError
from uqeval.integrations.inspect import as_it_runs, uncertainty_metrics

ROOT = Path(__file__).parents[2]


def sample_scores(right, confidence, epochs=1, beside=False):
    return [
        SimpleNamespace(
            score=SimpleNamespace(value="C" if hit else "I", metadata=None if beside else {"sure": float(sure)}),
            sample_id=k // epochs,
            sample_metadata={"sure": str(sure)} if beside else None,
        )
        for k, (hit, sure) in enumerate(zip(right, confidence, strict=True))
    ]


def test_the_metric_is_what_evaluate_gives_clustered_by_sample():
    right, confidence = logs.answers(120)
    for epochs in (1, 3):
        clusters = np.arange(120) // epochs if epochs > 1 else None
        ev = uq.evaluate(score={"sure": -confidence}, error=1 - right, clusters=clusters, metrics=["uq_auc", "aurc"])
        for beside in (False, True):
            found = uncertainty_metrics(sample_scores(right, confidence, epochs, beside), confidence="sure")
            for name in ("uq_auc", "aurc"):
                one = ev["sure", name]
                assert [found[name], found[f"{name}_low"], found[f"{name}_high"]] == [one.value, one.low, one.high]
            assert found["answers"] == 120
    scores = sample_scores(right, confidence)
    sure, unsure = (uncertainty_metrics(scores, **{way: "sure"})["uq_auc"] for way in ("confidence", "uncertainty"))
    assert unsure == pytest.approx(1 - sure)


def test_answers_that_were_not_scored_or_have_no_number_are_left_out_and_counted():
    right, confidence = logs.answers(50)
    scores = sample_scores(right, confidence)
    scores[0].score.value = float("nan")
    scores[1].score.metadata = None
    assert uncertainty_metrics(scores, confidence="sure")["answers"] == 48
    with pytest.raises(InputError, match="0 of 49 scored answers have a number `unsure`"):
        uncertainty_metrics(scores, confidence="unsure")
    for both in ({}, {"confidence": "sure", "uncertainty": "sure"}):
        with pytest.raises(InputError, match="Pass one of confidence= and uncertainty="):
            uncertainty_metrics(scores, **both)


def test_a_run_never_ends_for_what_has_no_value_yet():
    right, confidence = logs.answers(50)
    scores = sample_scores(right, confidence)
    metric = as_it_runs(confidence="sure", uncertainty=None, metrics=["uq_auc", "aurc"], level=0.95)
    found = [metric(scores[:n]) for n in range(51)]  # Inspect asks after each answer
    assert [list(one) for one in found] == [list(uncertainty_metrics(scores, confidence="sure"))] * 51
    assert [one["answers"] for one in found] == list(range(51))
    assert np.isnan([found[1][name] for name in ("uq_auc", "uq_auc_low", "aurc", "aurc_high")]).all()
    assert found[50] == uncertainty_metrics(scores, confidence="sure")
    scores[7].score.value = "P"  # half right: a loss, which UQ-AUC does not take
    with pytest.warns(uq.UQWarning, match="uqeval/uncertainty gives no uq_auc: uq_auc needs error") as warned:
        partly = [metric(scores[:n]) for n in (20, 50)]
    assert len(warned) == 1
    assert np.isnan(partly[1]["uq_auc"])
    assert partly[1]["aurc"] == uncertainty_metrics(scores, confidence="sure", metrics="aurc")["aurc"]
    misspelt = as_it_runs(confidence="shure", uncertainty=None, metrics="aurc", level=0.95)
    with pytest.warns(uq.UQWarning, match="0 of 50 scored answers have a number `shure`"):
        assert misspelt(scores)["answers"] == 0
    for wrong in ({"confidence": "a", "uncertainty": "b"}, {"confidence": None, "uncertainty": None}):
        with pytest.raises(InputError, match="Pass one of confidence= and uncertainty="):
            as_it_runs(**wrong, metrics="aurc", level=0.95)
    with pytest.raises(InputError, match="There is no metric"):
        as_it_runs(confidence="sure", uncertainty=None, metrics="auroc", level=0.95)


def test_the_entry_point_names_a_module_that_registers_the_metric():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    home = project["entry-points"]["inspect_ai"]["uqeval"]
    source = (ROOT / "src" / Path(*home.split("."))).with_suffix(".py").read_text()
    assert 'metric("uncertainty", scores="unreduced")' in source


def test_inspect_itself_finds_and_runs_the_metric():
    scorer = pytest.importorskip("inspect_ai.scorer")
    from uqeval.integrations.inspect_registry import uncertainty

    right, confidence = logs.answers(40)
    scores = [
        scorer.SampleScore(score=scorer.Score(value="C" if hit else "I", metadata={"sure": sure}), sample_id=k)
        for k, (hit, sure) in enumerate(zip(right, confidence, strict=True))
    ]
    assert uncertainty(confidence="sure")(scores)["uq_auc"] == uq.metrics.uq_auc(-confidence, 1 - right)
