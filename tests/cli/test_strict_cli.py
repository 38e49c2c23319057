"""What has no value is empty, says why, and --strict leaves with "cannot tell"."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import commands
import uqeval as uq
from uqeval.pages.payload import evaluation_payload


@pytest.fixture
def perfect(tmp_path):
    """Without a single error."""
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 120)
    table = {"label": probs.argmax(axis=1), **{f"prob_{k}": probs[:, k] for k in range(3)}, "site": np.arange(120) % 2}
    path = tmp_path / "perfect.csv"
    pa.csv.write_csv(pa.table(table), path)
    return path


@pytest.mark.filterwarnings("ignore::uqeval._errors.UQWarning")
def test_undefined_cells_are_empty_with_the_reason(perfect):
    reason = "the test set has no wrong prediction"
    args = ("evaluate", perfect, "--scores", "margin", "--metrics", "uq_auc,uq_c_index")
    out = commands.succeed(*args)
    assert f"UQ-AUC is undefined: {reason}" in out
    (row,) = [line for line in out.splitlines() if line.startswith("│ margin")]
    assert row.split("│")[2].strip() == ""
    assert "0." in row.split("│")[3]
    assert "–––" not in out
    assert "with two classes" not in commands.succeed("evaluate", perfect)  # there are three
    first, second = [e for e in json.loads(commands.succeed(*args, "--json", "-"))["estimates"] if e["score"]]
    assert (first["value"], first["undefined"]) == (None, reason)
    assert second["value"] > 0.5
    assert second["undefined"] is None
    ev = uq.evaluate(perfect, scores=["margin", "entropy"])
    assert "–––" not in str(ev)
    assert str(ev["margin", "uq_auc"]) == "undefined"


@pytest.mark.filterwarnings("ignore::uqeval._errors.UQWarning")
def test_without_errors_the_verdict_does_not_speak_of_the_c_index(perfect):
    ev = uq.evaluate(perfect, scores=["margin", "entropy"])
    page = evaluation_payload(ev, max_risk=0.05, title=None, columns=None, most_mistakes=0, compare=False)
    assert page["verdict"]["metric"] is None
    assert page["verdict"]["few"] == ev.too_few()
    assert any("UQ-AUC has no value: the test set has no wrong" in note for note in page["table"].notes)
    html = uq.report(ev)
    verdict = html[html.index('<section id="verdict"') :]
    verdict = verdict[: verdict.index("</section>")]
    assert "UQ-C-index" not in verdict
    assert "do not say how well it ranks errors" in verdict


def test_strict_leaves_with_3_where_something_asked_for_has_no_value(perfect, tmp_path):
    whole = tmp_path / "found.json"
    result = commands.call("evaluate", perfect, "--metrics", "uq_auc,aurc", "--strict", "--json", whole)
    assert result.code == 3
    assert result.err == "Cannot tell: UQ-AUC has no value: the test set has no wrong prediction.\n"
    assert json.loads(whole.read_text(encoding="utf-8"))["n_errors"] == 0  # all is written nevertheless
    assert commands.call("evaluate", perfect, "--metrics", "aurc,accuracy", "--strict").code == 0
    assert commands.call("evaluate", perfect, "--metrics", "uq_auc").code == 0
    result = commands.call("compare", perfect, "--scores", "entropy,margin", "--strict")
    assert (result.code, "cannot be tested: entropy − margin" in result.err) == (3, True)
    assert (
        commands.call("compare", perfect, "--scores", "entropy,margin", "--metric", "uq_c_index", "--strict").code == 0
    )
    # A group without errors is asked for too.
    table = pa.csv.read_csv(perfect)
    label, site = table["label"].to_numpy().copy(), table["site"].to_numpy()
    some = np.flatnonzero(site == 0)[:25]
    label[some] = (label[some] + 1) % 3
    pa.csv.write_csv(table.set_column(0, "label", pa.array(label)), perfect)
    args = ("evaluate", perfect, "--metrics", "uq_auc", "--strict")
    assert commands.call(*args).code == 0
    result = commands.call(*args, "--by", "site")
    assert (result.code, "UQ-AUC has no value in some groups: " in result.err) == (3, True)
