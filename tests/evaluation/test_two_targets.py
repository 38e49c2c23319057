"""With errors and a loss in one file, each number says which it used, and the user chooses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import commands
import uqeval as uq
from cases import noted
from uqeval.metrics.registry import REGISTRY
from uqeval.pages.payload import evaluation_payload


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    return {"s": score, "t": score + rng.random(n)}, rng.random(n) < score / 2, rng.random(n) * score


def test_each_number_says_which_it_used_and_risk_chooses():
    scores, error, loss = rows()
    alone = {"error": uq.evaluate(score=scores, error=error), "loss": uq.evaluate(score=scores, loss=loss)}
    for risk in (None, "error", "loss"):
        for more in ({}, {"groups": np.arange(600) % 2}):
            ev = uq.evaluate(score=scores, error=error, loss=loss, risk=risk, **more)
            for row in ev.rows.whole:
                if row.score is None:
                    continue
                with noted(risk=risk, metric=row.metric):
                    target = ev.targets[row.metric]
                    wanted = risk or "error" if REGISTRY[row.metric].losses else REGISTRY[row.metric].needs[1]
                    assert target == wanted
                    assert row.estimate.value == alone[target][row.score, row.metric].value
                    assert f"{REGISTRY[row.metric].title} " in str(ev)
                    assert ev.heading(row.metric).endswith(f" ({target})")
            assert {(e["metric"], e["target"]) for e in ev.to_dict()["estimates"] if e["score"]} == set(
                ev.targets.items()
            )
            if more:
                continue
            page = evaluation_payload(ev, max_risk=0.2, title=None, columns=None, most_mistakes=0, compare=False)
            assert page["explorer"]["what"] == (risk or "error")
            assert page["verdict"]["act"].what == (risk or "error")
            assert all(title.endswith((" (error)", " (loss)")) for title in page["table"].head[1:])
        found = uq.compare(scores, error=error, loss=loss, metric="aurc", risk=risk)
        assert found.headline().startswith(f"AURC of the {risk or 'error'} ")
        assert found.to_dict()["target"] == (risk or "error")
        assert found.values["s"] == alone[risk or "error"]["s", "aurc"].value
    # Where there is one, nothing needs to be said.
    assert alone["error"].heading("aurc") == alone["loss"].heading("aurc") == "AURC ↓"
    assert (alone["error"].targets["aurc"], alone["loss"].targets["aurc"]) == ("error", "loss")
    labels = uq.evaluate(uq.datasets.example(), scores="entropy", metrics=["uq_c_index", "aurc"])
    assert labels.targets == {"uq_c_index": "gap", "aurc": "error"}


def test_a_file_with_both_says_so_at_every_door(tmp_path):
    scores, error, loss = rows()
    path = tmp_path / "both.csv"
    columns = {f"score_{name}": values for name, values in scores.items()}
    pa.csv.write_csv(pa.table({**columns, "error": error.astype(int), "loss": loss}), path)
    out = commands.succeed("evaluate", path, "--metrics", "aurc")
    assert "AURC ↓ (error)" in out
    out = commands.succeed("evaluate", path, "--metrics", "aurc,uq_c_index", "--risk", "loss")
    assert "AURC ↓ (loss)" in out
    assert "UQ-C-index ↑ (loss)" in out
    assert "AURC of the loss" in commands.succeed("compare", path, "--metric", "aurc", "--risk", "loss")
    local = json.loads(
        commands.succeed("evaluate", path, "--engine", "local", "--metrics", "aurc,uq_c_index", "--json", "-")
    )
    assert {(e["metric"], e["target"]) for e in local["estimates"]} == {("aurc", "error"), ("uq_c_index", "loss")}
    assert "AURC of the error" in commands.succeed("compare", path, "--metric", "aurc", "--engine", "local")
    assert "--risk loss needs all rows in memory" in commands.fail(
        "evaluate", path, "--engine", "local", "--risk", "loss"
    )
    for given, match in (
        ({"error": error, "risk": "loss"}, "there is none"),
        ({"error": error, "loss": 3 * loss + 1, "risk": "loss"}, "it goes from 1"),
        ({"loss": loss, "risk": "error"}, "needs `error`"),
        ({"loss": loss, "risk": "both"}, "`risk`"),
    ):
        with pytest.raises(uq.InputError, match=match):
            uq.evaluate(score=scores, **given)
