"""Temperature scaling: what stays exactly the same, and what does not."""

import csv
import json
import sys

import numpy as np
import pytest

from uqeval._errors import InputError, MissingExtra
from uqeval.inputs.softmax import softmax
from uqeval.reproduce import temperature
from uqeval.reproduce.synthetic.networks import GRID, outputs
from uqeval.reproduce.synthetic.temperature import _PLAN, CASES, ten_classes


@pytest.fixture(scope="module")
def result():
    pytest.importorskip("torch")
    return temperature()


def rows(result, case):
    return [row for row in result.rows if row["case"] == case]


def test_two_classes_and_one_model_rank_exactly_alike_at_every_temperature(result):
    for case in ("softmax", "averaged, then scaled"):
        assert len(rows(result, case)) == 41
        for metric in ("uq_auc", "uq_c_index"):
            assert len({row[metric] for row in rows(result, case)}) == 1
            assert result.span(case, metric) == 0.0


def test_calibration_depends_on_the_temperature(result):
    assert result.span("softmax", "ece") > 0.1


def test_a_gap_that_rounds_makes_the_c_index_drift(result):
    assert 1e-3 < result.span("naive float64", "uq_c_index") < result.span("naive float32", "uq_c_index")
    assert result.span("naive float32", "uq_c_index") > 1e-2
    assert result.span("naive float64", "uq_auc") == 0.0  # errors do not round


def test_members_scaled_and_then_averaged_do_not_rank_alike(result):
    assert result.span("scaled, then averaged", "uq_auc") > 1e-3


def test_ten_classes_do_not_rank_alike(result):
    assert result.span("ten classes", "uq_auc") > 0.05
    assert result.span("ten classes", "uq_c_index") > 0.02


def test_three_classes_turn_their_order(result):
    one, three = result.example
    assert (round(one["first"], 3), round(one["second"], 3)) == (0.787, 0.731)
    assert (round(three["first"], 3), round(three["second"], 3)) == (0.493, 0.578)


def test_values_equal_counting_pairs_of_logit_margins(result):
    (networks,) = outputs(GRID, 1, [_PLAN])
    labels, logits = networks.labels, networks.logits
    margin = logits[:, 1] - logits[:, 0]
    wrong = (margin > 0) != (labels == 1)
    score, gap = -np.abs(margin), np.where(labels == 1, -margin, margin)
    credit = (score[:, None] < score[None, :]) + 0.5 * (score[:, None] == score[None, :])
    right_wrong = ~wrong[:, None] & wrong[None, :]
    below = gap[:, None] < gap[None, :]
    row = rows(result, "softmax")[0]
    assert row["uq_auc"] == pytest.approx(credit[right_wrong].mean(), abs=1e-12)
    assert row["uq_c_index"] == pytest.approx(credit[below].mean(), abs=1e-12)


def test_one_seed_gives_one_result():
    pytest.importorskip("torch")
    few = {"temperatures": [2.0, 0.5], "seed": 3}
    first = temperature(**few)
    assert first.to_dict() == temperature(**few).to_dict()
    assert first.settings["temperatures"] == [0.5, 2.0]
    assert [row["case"] for row in first.rows[::2]] == list(CASES)


def test_written_files_hold_what_was_found(tmp_path, undrawn):
    pytest.importorskip("torch")
    result = temperature(tmp_path, temperatures=[0.2, 1, 5])
    stored = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    assert stored["study"] == "temperature"
    assert stored["rows"] == result.rows
    with open(tmp_path / "table.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["uq_auc"]) for line in lines] == [row["uq_auc"] for row in result.rows]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "constant" in text
    assert "exactly constant" in text
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "exactly constant" in page
    assert "<script" not in page


def test_the_result_prints(result):
    assert str(result) == result.markdown()
    assert "<table>" in result._repr_html_()
    assert len(result.to_frame("pandas")) == len(result.rows)
    with pytest.raises(InputError, match="no 'brier'"):
        result.span("softmax", "brier")


def test_temperatures_must_be_positive_numbers_and_the_seed_a_natural_one():
    for bad in ([1.0], [0.0, 1.0], [-1, 2], [1, np.inf], [[1, 2]], "hot", [1, np.nan]):
        with pytest.raises(InputError, match="`temperatures` must be"):
            temperature(temperatures=bad)
    for bad in (-1, 0.5, True, "a"):
        with pytest.raises(InputError, match="`seed` must be an int"):
            temperature(seed=bad)


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "uqeval.methods.batched", raising=False)  # which is not loaded where torch is not
    with pytest.raises(MissingExtra, match=r'pip install "uqeval\[torch\]"'):
        temperature(temperatures=[1, 2])


def test_softmax_and_the_simulated_classes_are_distributions():
    logits, labels = ten_classes(np.random.default_rng(0), 2000)
    probs = softmax(logits)
    assert probs.sum(axis=1) == pytest.approx(np.ones(2000))
    assert softmax(logits.astype(np.float32)).dtype == np.float32
    assert set(labels.tolist()) == set(range(10))
    assert 0.4 < (probs.argmax(axis=1) == labels).mean() < 0.7
