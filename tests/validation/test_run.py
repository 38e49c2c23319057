"""A run: same numbers for any order and number of jobs, resumes after a kill, and shows what is broken as the worst."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import uqeval as uq
from uqeval.reproduce.store import Store
from validation import grid, laws, page, promises, run
from validation.__main__ import main
from validation.designs import DESIGNS
from validation.grid import AGAIN, CONFIRMING, FOURTH, SEEN, THIRD, TUNING, Cell, cells
from validation.promises import PROMISES, Outcome

ROOT = Path(__file__).parents[2]
FEW = [
    Cell("ranking", "binormal", "plain", 0.8, 0.8, 50, "", 30),
    Cell("ranking", "exponential", "oversampled", 0.9, 0.98, 50, "", 30),
    Cell("ranking", "atoms", "poisson clusters", 0.8, 0.6, 50, "", 30),
    Cell("threshold", "random rows", "informative sizes", 0.8, 0.5, 200, "flat", 10),
]


def without_times(found):
    return {cell: value["outputs"] for cell, value in found.items()}


def test_numbers_are_the_same_in_any_order_with_any_number_of_jobs(tmp_path):
    alone = run.run(FEW, None)
    assert without_times(run.run(FEW[::-1], None)) == without_times(alone)
    beside = run.run(FEW[::-1], tmp_path, jobs=2)
    assert without_times(beside) == without_times(alone)
    assert list(beside) == FEW[::-1]


def test_a_quick_run_sees_the_first_samples_of_a_full_one():
    cell = FEW[0]
    assert run.seed_of(replace(cell, reps=999)) == run.seed_of(cell)
    assert run.seed_of(replace(cell, n=51)) != run.seed_of(cell)
    assert run.store_key(replace(cell, reps=999)) != run.store_key(cell)


def test_a_cell_is_run_again_when_the_code_has_changed(monkeypatch):
    before = run.store_key(FEW[0])
    monkeypatch.setattr(run, "code_version", lambda: {"uqeval": "another", "validation": "same"})
    assert run.store_key(FEW[0]) != before


def test_what_is_finished_is_not_run_again(tmp_path, monkeypatch):
    first = run.run(FEW[:2], tmp_path)
    asked, simulate = [], run.simulate
    monkeypatch.setattr(run, "simulate", lambda cell: asked.append(cell) or simulate(cell))
    found = run.run(FEW[:3], tmp_path)
    assert asked == FEW[2:3]
    assert {cell: found[cell] for cell in FEW[:2]} == first


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    command = [sys.executable, "-m", "validation", "--quick", "--laws", "tuning", "--only", "bands"]
    command += ["--jobs", "1", "--out", str(tmp_path)]
    done = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and count(tmp_path) == 0:
        time.sleep(0.05)
    os.kill(done.pid, signal.SIGKILL)
    done.wait()
    there = count(tmp_path)
    whole = cells("tuning", quick=True, only=["bands"])
    assert 1 <= there < len(whole)
    with Store(tmp_path) as store:
        kept = {cell for cell in whole if run.store_key(cell) in store}
        assert len(kept) == there
        values = [store.get(run.store_key(cell)) for cell in kept]
    assert all(value["outputs"] for value in values)


def count(folder):
    if not (folder / "store.sqlite").exists():
        return 0
    with sqlite3.connect(folder / "store.sqlite", timeout=10) as db:
        try:
            return db.execute("SELECT count(*) FROM cells").fetchone()[0]
        except sqlite3.OperationalError:  # not made yet
            return 0


def test_ctrl_c_leaves_a_store_and_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    simulate, asked = run.simulate, []

    def stopped(cell):
        asked.append(cell)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return simulate(replace(cell, reps=1))

    monkeypatch.setattr(run, "simulate", stopped)
    words = ["validation", "--quick", "--laws", "tuning", "--only", "monitor", "--jobs", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert main() == 130
    said = capsys.readouterr().err
    assert f"{tmp_path / 'store.sqlite'}; go on with: " in said
    assert "-m validation --quick --laws tuning --only monitor" in said
    assert count(tmp_path) == 1


# ---- what is broken is seen ---------------------------------------------------------------------------------------


def test_a_deliberately_broken_interval_is_shown_as_the_worst(monkeypatch, tmp_path):
    """AURC's interval is halved; every other promise of the same samples stays as it is."""
    evaluate = uq.evaluate

    class Halved:
        def __init__(self, found):
            self.found = found

        def __getitem__(self, key):
            one = self.found[key]
            if key[1] != "aurc" or math.isnan(one.low):
                return one
            half = (one.high - one.low) / 4
            return replace(one, low=one.value - half, high=one.value + half)

    monkeypatch.setattr(promises.uq, "evaluate", lambda **given: Halved(evaluate(**given)))
    some = [Cell("ranking", "binormal", "plain", 0.8, auc, 200, "", 150) for auc in (0.6, 0.8)]
    rows = run.as_rows(run.run(some, None))
    order = page.judged(rows)
    assert [one.row["output"] for one in order[:2]] == ["aurc", "aurc"]
    assert all(one.short for one in order[:2])
    assert order[0].share < 0.8
    assert not any(one.short for one in order if one.row["output"] in ("uq_auc", "accuracy"))
    table = page.worst_table(rows, "tuning")
    assert table.rows[0][0] == "AURC"
    assert "Falls short in 2 of 16 cells; most for AURC" in page.verdicts(rows, "tuning")[0]
    made = page.Validation(SETTINGS, [row for row in rows if row["output"] == "aurc"], [])
    made.publish(tmp_path)
    html = (tmp_path / "index.html").read_text()
    assert "Falls short in 2 of 2 cells" in html
    assert "<svg" in html
    assert "Pignet" not in html  # it is no study of the paper
    assert "https://" not in html.split("</style>")[1].replace("http://www.w3.org", "")


SETTINGS = {
    "date": "2026-01-01",
    "grid": "quick",
    "laws": "tuning",
    "only": [],
    "version": uq.__version__,
    "code": {"uqeval": "a", "validation": "b"},
    "core_seconds": 1,
}


def test_a_certified_region_that_is_too_risky_is_a_violation(monkeypatch):
    everything = uq.Threshold.from_value(math.inf, max_risk=0.05)
    monkeypatch.setattr(promises.uq, "choose_threshold", lambda *_, **__: replace(everything, feasible=True))
    found = run.simulate(replace(FEW[3], design="plain", reps=5))["outputs"]
    assert {counts["held"] for counts in found.values()} == {0}


def test_a_method_that_refuses_is_told_with_its_reason():
    cell = Cell("threshold", "binormal", "oversampled", 0.8, 0.5, 200, "flat", 3)

    def refuse(*_, **__):
        raise uq.InputError("not here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promises.uq, "choose_threshold", refuse)
        found = run.run([cell], None)
    assert found[cell]["outputs"]["weights"]["unknown"] == 3
    assert run.refusals(found) == ["threshold, weights (oversampled): not here"]
    assert page.judged(run.as_rows(found)) == []


def test_sides_missing_intervals_and_unknown_values_are_counted_apart():
    tally = run.Tally()
    for outcome in (
        promises._interval(0.5, 0.6, 0.9, 0.7, (0, 1)),
        promises._interval(0.5, 0.1, 0.4, 0.2, (0, 1)),
        promises._interval(0.5, 0.0, 1.0, 0.2, (0, 1)),
        promises._interval(0.5, math.nan, math.nan, 0.2, (0, 1)),
        promises._interval(0.5, math.nan, math.nan, math.nan, (0, 1)),
        Outcome(True, size=0.4),
    ):
        tally.add(outcome)
    found = tally.result()
    assert {name: found[name] for name in run.COUNTS} == {
        "reps": 6, "held": 2, "unknown": 1, "missing": 1, "below": 1, "above": 1, "vacuous": 1
    }  # fmt: skip
    assert found["size"] == pytest.approx(0.35)
    row = dict.fromkeys(run.COLUMNS) | found | {"promise": "ranking", "output": "uq_auc", "law": "binormal"}
    assert page.Judged.of(row).share == pytest.approx(2 / 5)  # an interval that is missing does not hold


# ---- the grid -----------------------------------------------------------------------------------------------------


def test_laws_and_designs_for_confirming_are_none_of_those_for_tuning():
    assert not set(TUNING.laws) & set(CONFIRMING.laws)
    assert set(TUNING.designs) & set(CONFIRMING.designs) == {"plain"}
    assert set(DESIGNS) == {*TUNING.designs, *CONFIRMING.designs, *AGAIN.designs, *THIRD.designs, *FOURTH.designs}
    for which, kept in (("tuning", TUNING), ("confirming", CONFIRMING)):
        assert {cell.law for cell in cells(which) if cell.promise not in SEEN} == set(kept.laws)
        assert {cell.kept for cell in cells(which)} == {which}
    # What was changed after a look at the confirming laws has new ones, each time.
    for promise, rounds in SEEN.items():
        seen = {law for kept in (TUNING, CONFIRMING, *rounds[:-1]) for law in kept.laws}
        assert not seen & set(rounds[-1].laws)
        assert {cell.law for cell in cells("confirming", only=[promise])} == set(rounds[-1].laws)
        assert {cell.law for cell in cells("tuning", only=[promise])} == seen


def test_the_grid_has_every_promise_and_a_quick_run_is_a_part_of_it():
    whole = {tuple(cell.key().values()) for cell in cells("all")}
    quick = cells("all", quick=True)
    assert {cell.promise for cell in quick} == set(PROMISES) == {plan.promise for plan in grid.PLANS}
    assert {tuple(cell.key().values()) for cell in quick} <= whole
    assert len(whole) == len(cells("all"))
    ranking = [cell for cell in quick if cell.promise == "ranking" and cell.auc is not None]
    for design in {cell.design for cell in ranking}:
        own = [cell for cell in ranking if cell.design == design]
        assert {cell.accuracy for cell in own} == set(grid.ACCURACIES)
        assert {cell.auc for cell in own} == set(grid.AUCS)
        assert {cell.n for cell in own} == set(grid.SIZES)


def test_every_promise_gives_an_outcome_on_every_kind_of_design():
    """Three samples of one cell of each promise and kind of design, tuning laws."""
    seen = set()
    for cell in cells("tuning"):
        key = (cell.promise, DESIGNS[cell.design].kind)
        if key in seen or cell.n > 200:
            continue
        seen.add(key)
        outputs = run.simulate(replace(cell, reps=3))["outputs"]
        assert outputs, cell
        assert all(counts["reps"] == 3 for counts in outputs.values())
    assert {promise for promise, _ in seen} == set(PROMISES) - {"monitor"}


def test_every_promise_can_be_tried_on_rows_of_a_file(monkeypatch):
    """A made-up file: the real ones are for confirming."""
    rows = DESIGNS["plain"].draw(laws.population("binormal", 0.8, 0.8), 2000, np.random.default_rng(0))
    file = laws.Finite(rows.score, rows.error, rows.loss, rows.confidence)
    monkeypatch.setattr(grid.files, "read", lambda law: file)
    monkeypatch.setattr(grid.files, "missing", lambda: None)
    some = {cell.promise: cell for cell in cells("all") if cell.auc is None and cell.design == "plain"}
    assert set(some) == set(PROMISES) - {"monitor"}
    found = run.run([replace(cell, reps=2, n=200) for cell in some.values()], None)
    assert all(value["outputs"] for value in found.values())
    made = run.as_rows(found)
    assert {row["accuracy"] for row in made} == {round(1 - float(rows.error.mean()), 4)}
    for row in made:
        assert grid.kept_of(row["promise"], row["law"]) == ("tuning" if row["promise"] in SEEN else "confirming")


def test_without_real_files_their_cells_are_left_out_with_the_reason(monkeypatch):
    monkeypatch.delenv("UQEVAL_DATA", raising=False)
    file = next(cell for cell in cells("all") if cell.auc is None)
    assert run.run([file], None) == {}
    assert grid.skipped("all") == ["UQEVAL_DATA is unset: no real prediction files"]
    assert grid.skipped("tuning") == []


# ---- the results --------------------------------------------------------------------------------------------------


def test_results_read_back_are_the_same_and_have_a_line_for_each_row():
    rows = run.as_rows(run.run(FEW[:1], None))
    results = {"settings": SETTINGS, "notes": ["a note"], "rows": rows}
    text = run.to_text(results)
    assert run.from_text(text) == results
    assert text.count("\n") >= len(rows)
    assert json.loads(text)["columns"] == list(run.COLUMNS)


def test_the_page_of_the_docs_is_made_from_its_results():
    text = (ROOT / "validation" / "results.json").read_text(encoding="utf-8")
    results = run.from_text(text)
    assert run.to_text(results) == text
    assert (ROOT / "docs" / "validation.md").read_text(encoding="utf-8") == page.docs_page(results)
    assert results["settings"]["code"]["uqeval"]


def test_monte_carlo_error_of_a_share_of_one_is_not_zero():
    row = dict.fromkeys(run.COLUMNS) | {
        "promise": "ranking",
        "output": "uq_auc",
        "reps": 100,
        "held": 100,
        "unknown": 0,
    }
    one = page.Judged.of(row)
    assert 0.005 < one.error < 0.02
    assert one.off == pytest.approx(0.05 - 2 * one.error)
    assert np.sign(page.Judged.of(row | {"held": 50}).off) == -1
