"""`uq.evaluate` on CUDA tensors: counted on the device, with the numbers of arrays. Those of the CPU stand in."""

from __future__ import annotations

import numpy as np
import pytest

import uqeval as uq
from cases import each

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from uqeval.distributed import given, source  # noqa: E402


@pytest.fixture
def on_card(monkeypatch):
    """Any tensor counts as one of a CUDA device; gives the calls that went to the host all the same."""
    host = []
    real = source.from_arrays

    def noting(*arguments):
        host.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(given, "_on_device", lambda value: isinstance(value, torch.Tensor))
    monkeypatch.setattr(source, "from_arrays", noting)
    return host


def columns(n=500, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n).round(1)
    return {"score": score, "error": rng.random(n) < 1 / (1 + np.exp(1.5 - score)), "loss": rng.random(n).round(2)}


def as_tensors(arrays):
    return {name: torch.from_numpy(x) for name, x in arrays.items()}


def same(found, expected):
    assert (found.scores, found.metrics, found.n, found.n_errors, found.accuracy, found.mean_loss) == (
        *(expected.scores, expected.metrics, expected.n, expected.n_errors, expected.accuracy, expected.mean_loss),
    )
    assert (found.tie_rate, found.targets, found.two_targets) == (
        *(expected.tie_rate, expected.targets, expected.two_targets),
    )
    assert found.warnings == expected.warnings
    for one, other in zip(found, expected, strict=True):
        assert (one.score, one.metric, one.estimate.method) == (other.score, other.metric, other.estimate.method)
        numbers = [[getattr(row.estimate, part) for part in ("value", "low", "high", "se")] for row in (one, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-12, abs=1e-12, nan_ok=True)


@each("given", [("score", "error", "loss"), ("score", "error")])
def test_tensors_of_a_device_are_judged_there_with_the_numbers_of_arrays(on_card, given):
    arrays = {name: x for name, x in columns().items() if name in given}
    expected = uq.evaluate(**arrays)
    on_card.clear()
    found = uq.evaluate(**as_tensors(arrays))
    assert on_card == []
    same(found, expected)
    assert found.source is None
    assert found.same_ranking == expected.same_ranking
    assert str(found) == str(expected)


def test_several_scores_some_metrics_and_another_level(on_card):
    arrays = columns()
    other = columns(seed=1)["score"]
    asked = {"metrics": ["aurc", "uq_c_index", "accuracy"], "level": 0.8}
    rest = {name: arrays[name] for name in ("error", "loss")}
    expected = uq.evaluate(score={"a": arrays["score"], "b": other}, **rest, **asked)
    on_card.clear()
    told = []
    scores = as_tensors({"a": arrays["score"], "b": other})
    found = uq.evaluate(score=scores, **as_tensors(rest), **asked, progress=lambda *stage: told.append(stage))
    assert on_card == []
    same(found, expected)
    assert told[-1] == ("evaluating", 5, 5)
    assert found.same_ranking is None, "nobody has compared them"


def test_infinite_scores_are_told_in_the_words_of_arrays(on_card):
    arrays = columns(60)
    arrays["score"][3] = np.inf
    with pytest.warns(uq.UQWarning, match="score: 1 infinite values; they rank first or last and tie"):
        expected = uq.evaluate(**arrays)
    on_card.clear()
    with pytest.warns(uq.UQWarning, match="score: 1 infinite values; they rank first or last and tie"):
        found = uq.evaluate(**as_tensors(arrays))
    assert on_card == []
    same(found, expected)


def test_what_tensors_cannot_do_goes_to_the_host(on_card):
    arrays, tensors = columns(), as_tensors(columns())
    ones, groups = np.arange(500) % 3 + 1.0, np.arange(500) // 250
    for more in (
        {"weights": ones},
        {"clusters": np.arange(500) // 2},
        {"groups": groups},
        {"method": "bootstrap", "resamples": 10},
        {"risk": "loss"},
        {"nan": "omit"},
        {"scores": "score"},
    ):
        on_card.clear()
        found = uq.evaluate(**tensors, **more)
        assert len(on_card) == 1
        same(found, uq.evaluate(**arrays, **more))
    on_card.clear()
    uq.evaluate(score=tensors["score"], loss=tensors["loss"])
    assert len(on_card) == 1
    on_card.clear()
    uq.evaluate(score=tensors["score"], error=arrays["error"])
    assert len(on_card) == 1


def test_odd_rows_are_refused_in_the_words_of_arrays(on_card):
    for name, value, words in (
        ("score", np.nan, r"`scores\['score'\]` has 1 NaN \(first at row 4\)"),
        ("loss", np.nan, r"`loss` has 1 NaN \(first at row 4\)"),
        ("loss", np.inf, "`loss` has 1 infinite value "),
        ("error", 2, r"`error` must be 0 \(right\) or 1 \(wrong\); row 4 holds 2"),
    ):
        arrays = {what: x.astype(np.float64) for what, x in columns(60).items()}
        arrays[name][4] = value
        with pytest.raises(uq.InputError, match=words):
            uq.evaluate(**as_tensors(arrays))
    with pytest.raises(uq.InputError, match="has 60 rows but `error` has 59"):
        uq.evaluate(score=torch.ones(60), error=torch.ones(59))
    with pytest.raises(uq.InputError, match='no metric "auc"'):
        uq.evaluate(**as_tensors(columns(60)), metrics=["auc"])
