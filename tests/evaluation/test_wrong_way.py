"""Quality in the place of a loss, right answers in that of errors: every metric says so, and options turn them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import commands
import uqeval as uq
from cases import noted
from uqeval.metrics.registry import REGISTRY

RANKING = [name for name, m in REGISTRY.items() if m.uses_score and m.usual and m.tally != "two sets"]


def rows(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    quality = rng.beta(4, 2, n)
    score = 1 - quality + rng.normal(0, 0.15, n)
    correct = (rng.random(n) < 0.2 + 0.75 * quality).astype(int)
    return score, quality, correct


def plain(text):
    return " ".join(text.split())


def test_a_useless_score_has_the_value_that_its_metric_calls_useless():
    rng = np.random.default_rng(1)
    n = 20_000
    labels, probs = rng.integers(0, 3, n), rng.dirichlet(np.ones(3), n)
    soft = rng.dirichlet(np.ones(3), n)
    pred = uq.Predictions(labels, probs=probs, soft_labels=soft, error=rng.random(n) < 0.3, scores={"s": rng.random(n)})
    ev = uq.evaluate(pred, scores="s")
    assert set(RANKING) <= set(ev.metrics)
    for name in RANKING:
        with noted(metric=name):
            assert abs(ev["s", name].value - REGISTRY[name].useless(ev.mean_loss)) < 5 * ev["s", name].se
    assert ev.wrong_way() == {}
    # And of a loss, weighted too.
    loss, weights = rng.random(n) ** 3, rng.random(n)
    ev = uq.evaluate(score=rng.random(n), loss=loss, weights=weights)
    assert ev.mean_loss == pytest.approx(np.average(loss, weights=weights), rel=1e-12)
    for row in ev:
        assert abs(row.estimate.value - REGISTRY[row.metric].useless(ev.mean_loss)) < 5 * row.estimate.se


def test_every_metric_of_a_turned_target_is_said_to_look_the_wrong_way_round(tmp_path):
    score, quality, correct = rows()
    for given in ({"loss": quality}, {"error": correct}, {"error": correct, "loss": quality}):
        ev = uq.evaluate(score=score, **given)
        with noted(given=list(given)):
            ranking = [name for name in ev.metrics if REGISTRY[name].uses_score]
            assert len(ranking) > 5
            sure = [name for name in ranking if not name.startswith("selective")]  # of 95% hardly differs from all
            assert list(ev.wrong_way()) == ["score"]
            assert set(sure) <= set(ev.wrong_way()["score"])
            ranking = ev.wrong_way()["score"]
            (line,) = [line for line in ev.verdict() if "wrong way round" in line]
            assert line.startswith("score looks the wrong way round: ")
            assert all(REGISTRY[name].title in line for name in ranking)
            assert line in str(ev)
            assert ev.to_dict()["wrong_way_round"] == [{"score": "score", "metrics": ranking}]
            # Each alone says it too, and none where the target is as it should be.
            for name in ranking:
                assert uq.evaluate(score=score, metrics=name, **given).wrong_way() == {"score": [name]}
            assert uq.evaluate(score=score, **{name: 1.0 - x for name, x in given.items()}).wrong_way() == {}
    path, page = tmp_path / "judged.csv", tmp_path / "page.html"
    pa.csv.write_csv(pa.table({"score_s": score, "loss": quality}), path)
    words = "s looks the wrong way round: UQ-C-index, AURC, nAURC, AUGRC, AUARC, PRR"
    assert words in plain(commands.succeed("evaluate", path, "--html", page))
    assert words in page.read_text(encoding="utf-8")
    assert json.loads(commands.succeed("evaluate", path, "--json", "-"))["wrong_way_round"]


@pytest.mark.filterwarnings("ignore:1 rows with NaN")
def test_quality_and_correct_turn_loss_and_error(tmp_path):
    score, quality, correct = rows()
    wanted = uq.evaluate(score={"s": score}, error=1 - correct, loss=1 - quality)
    table = pa.table({"score_s": score, "good": quality, "right": correct.astype(bool)})
    path = tmp_path / "judged.parquet"
    pq.write_table(table, path)
    named = {"quality": "good", "correct": "right"}
    found = {
        "arrays": uq.evaluate(score={"s": score}, quality=quality, correct=correct),
        "frame": uq.evaluate(table, **named),
        "file": uq.evaluate(path, **named),
        "predictions": uq.evaluate(uq.read_predictions(path, **named)),
        "omit": uq.evaluate(
            score={"s": np.append(score, 0.5)},
            quality=np.append(quality, np.nan),
            correct=np.append(correct, 1),
            nan="omit",
        ),
    }
    for door, ev in found.items():
        with noted(door=door):
            assert ev.wrong_way() == {}
            assert [vars(row.estimate) for row in ev] == [vars(row.estimate) for row in wanted]
    local = uq.evaluate(path, engine="local", **named)
    for row in local:
        assert row.estimate.value == pytest.approx(wanted[row.score, row.metric].value, rel=1e-9)
    assert local.n_errors == wanted.n_errors
    # The command line has the same words.
    options = ("--quality", "good", "--correct", "right")
    assert json.loads(commands.succeed("evaluate", path, *options, "--json", "-"))["n_errors"] == wanted.n_errors
    assert "UQ-C-index" in commands.succeed("evaluate", path, *options, "--approx", "1e-2")
    again = uq.choose_threshold("s", predictions=uq.read_predictions(path, **named), max_risk=0.3)
    chosen = json.loads(commands.succeed("threshold", path, *options, "--score", "s", "--max-risk", 0.3, "--json", "-"))
    assert chosen["value"] == again.value
    compared = uq.compare({"s": score, "t": score**2}, quality=quality, metric="uq_c_index")
    assert compared.values["s"] == wanted["s", "uq_c_index"].value
    # A named column takes the place of the default one, and is refused beside another named one.
    both = table.append_column("error", pa.array(correct))
    assert uq.evaluate(both, metrics="uq_auc", **named)["s", "uq_auc"] == wanted["s", "uq_auc"]
    for call in (
        lambda: uq.evaluate(both.append_column("wrong", pa.array(correct)), error="wrong", correct="right"),
        lambda: uq.evaluate(score=score, error=correct, correct=correct),
    ):
        with pytest.raises(uq.InputError, match="`error` or `correct`, not both"):
            call()
    assert "`nothing` (quality)" in commands.fail("evaluate", path, "--quality", "nothing")
    with pytest.raises(uq.InputError, match="`good`"):
        uq.evaluate(table, correct="good")
    with pytest.raises(uq.InputError, match=r"`correct` must be 1 \(right\) or 0 \(wrong\).*by degrees is a quality"):
        uq.evaluate(score=score, correct=quality)
