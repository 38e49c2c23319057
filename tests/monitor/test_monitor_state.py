"""A monitor's folder: what was acknowledged is there after any crash and counts once; late labels join their scores."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from uqeval import InputError
from uqeval.decide import Threshold
from uqeval.monitor import Batch, Options, e_bh, opened
from uqeval.monitor.drift import reference
from uqeval.monitor.journal import Journal
from uqeval.monitor.state import HISTORY
from uqeval.monitor.words import status_lines

PROMISE = Threshold.from_value(0.5, max_risk=0.1)


def options(**changes):
    return Options(**({"level": 0.95, "key": "id", "by": "site"} | changes))


def batch(k, n=40, risk=0.1, **changes):
    rng = np.random.default_rng(k)
    given = {
        "ids": tuple(f"{k}-{i}" for i in range(n)),
        "score": rng.random(n),
        "error": (rng.random(n) < risk) * 1.0,
        "groups": tuple(rng.choice(["a", "b"], n).tolist()),
    }
    return Batch(f"{k}.csv", **(given | changes))


def run(folder, batches, kept=None, **changes):
    with opened(folder, PROMISE, options(**changes), kept) as monitor:
        notes = [monitor.add(one) for one in batches]
        return monitor.status, notes


# ---- the same as checks in Python -------------------------------------------------------------------------------


def test_each_chain_is_that_of_threshold_check(tmp_path):
    batches = [batch(k) for k in range(4)]
    status, _ = run(tmp_path / "s", batches)
    for name in (None, "a", "b"):
        check = None
        for one in batches:
            own = np.array([name in (None, group) for group in one.groups])
            check = PROMISE.check(one.score[own], one.error[own], previous=check)
        found = status.check if name is None else status.groups[name]
        assert found == check


def test_a_folder_that_is_opened_for_each_look_ends_as_one_that_stays_open(tmp_path):
    batches, kept = [batch(k) for k in range(5)], reference(np.random.default_rng(9).random(300))
    whole, _ = run(tmp_path / "whole", batches, kept)
    for one in batches:
        parts, _ = run(tmp_path / "parts", [one], kept)
    assert parts.to_json() == whole.to_json()
    assert whole.drift["n"] == 200


# ---- once -------------------------------------------------------------------------------------------------------


def test_the_same_rows_again_change_nothing(tmp_path):
    for key, by in (("id", "site"), (None, None)):
        folder = tmp_path / str(key)
        rows = [batch(k, **({} if key else {"ids": None})) for k in range(3)]
        first, _ = run(folder, rows, key=key, by=by)
        size = (folder / HISTORY).stat().st_size
        again, notes = run(folder, rows, key=key, by=by)
        assert again.to_json() == first.to_json()
        assert (folder / HISTORY).stat().st_size == size
        assert all(note is None or "40 rows came before" in note[0] for note in notes)


def test_only_new_ids_of_an_overlapping_file_count(tmp_path):
    first, more = batch(0), batch(1)
    both = Batch(
        "both.csv",
        first.ids + more.ids,
        np.append(first.score, more.score),
        np.append(first.error, more.error),
        first.groups + more.groups,
    )
    expected, _ = run(tmp_path / "one", [first, more])
    found, notes = run(tmp_path / "two", [first, both])
    assert found.to_json() == expected.to_json()
    assert "40 rows came before" in notes[1][0]


def test_an_id_twice_in_a_file_is_refused_and_nothing_is_written(tmp_path):
    run(tmp_path / "s", [batch(0)])
    before = (tmp_path / "s" / HISTORY).read_bytes()
    with pytest.raises(InputError, match="the id 'x' comes twice"):
        run(tmp_path / "s", [batch(1, 2, ids=("x", "x"))])
    assert (tmp_path / "s" / HISTORY).read_bytes() == before


# ---- late labels ------------------------------------------------------------------------------------------------


def test_labels_that_come_late_give_what_labels_at_once_give(tmp_path):
    rows = [batch(k) for k in range(3)]
    expected, _ = run(tmp_path / "once", rows)
    scored = [batch(k, error=None) for k in range(3)]
    waits, _ = run(tmp_path / "late", scored)
    assert (waits.waiting, waits.units, waits.holds) == (120, 0, True)
    labels = [Batch(f"l{k}.csv", rows[k].ids, error=rows[k].error) for k in range(3)]
    found, _ = run(tmp_path / "late", labels)
    assert (found.waiting, found.check.units) == (0, expected.check.units)
    assert (found.check, found.groups) == (expected.check, expected.groups)
    assert run(tmp_path / "late", labels)[0].check == expected.check  # not twice


def test_the_score_of_then_counts_though_the_row_comes_again_with_another(tmp_path):
    run(tmp_path / "s", [batch(0, error=None, score=np.zeros(40))])  # all accepted
    found, _ = run(tmp_path / "s", [batch(0, score=np.ones(40))])  # none would be
    assert (found.check.n_accepted, found.waiting) == (40, 0)


def test_a_class_that_comes_late_is_compared_with_the_one_predicted_then(tmp_path):
    scored = Batch("s.csv", ("1", "2", "3"), np.zeros(3), predicted=("cat", "cat", "dog"))
    run(tmp_path / "s", [scored], by=None)
    found, notes = run(tmp_path / "s", [Batch("l.csv", ("3", "1", "9"), labels=("dog", "dog", "cat"))], by=None)
    assert (found.check.n_accepted, found.check.errors_accepted, found.waiting) == (2, 1, 1)
    assert "1 labels are of no row that waits" in notes[0][0]
    with pytest.raises(InputError, match="whose predicted class is not known"):
        run(tmp_path / "t", [batch(0, error=None), Batch("l.csv", ("0-1",), labels=("cat",))])


def test_rows_without_labels_need_a_key(tmp_path):
    with pytest.raises(InputError, match="Pass --key"):
        run(tmp_path / "s", [batch(0, ids=None, error=None)], key=None)


# ---- crashes ----------------------------------------------------------------------------------------------------


def test_a_line_that_was_cut_anywhere_is_the_state_before_it(tmp_path):
    batches = [batch(k, 10) for k in range(3)]
    expected, _ = run(tmp_path / "whole", batches)
    run(tmp_path / "s", batches[:2])
    before = (tmp_path / "s" / HISTORY).read_bytes()
    status, _ = run(tmp_path / "s", batches)
    after = (tmp_path / "s" / HISTORY).read_bytes()
    assert status.to_json() == expected.to_json()
    for end in np.linspace(len(before), len(after) - 1, 12).astype(int):
        (tmp_path / "s" / HISTORY).write_bytes(after[:end])
        assert run(tmp_path / "s", [])[0].check.looks == 2
        assert run(tmp_path / "s", batches)[0].to_json() == expected.to_json()


def test_a_first_line_that_was_cut_is_no_state_at_all(tmp_path):
    run(tmp_path / "s", [batch(0)])
    path = tmp_path / "s" / HISTORY
    path.write_bytes(path.read_bytes()[:50])
    assert run(tmp_path / "s", [batch(0)])[0].looks == 1


def test_a_changed_line_is_refused_with_its_number(tmp_path):
    run(tmp_path / "s", [batch(0), batch(1)])
    path = tmp_path / "s" / HISTORY
    path.write_bytes(path.read_bytes().replace(b'"source": "0.csv"', b'"source": "9.csv"'))
    with pytest.raises(InputError, match=r"line 2 of .* is not as it was written"):
        run(tmp_path / "s", [])


_CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_monitor_state import PROMISE, batch, opened, options
for k in range({n}):
    with opened(Path({folder!r}), PROMISE, options(), None) as monitor:
        monitor.add(batch(k, 10))
        print(k, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_kill_9_at_random_points_loses_nothing_acknowledged_and_counts_nothing_twice(tmp_path):
    """A process adds batch after batch, says so, and is killed at a random time; the next begins anew."""
    n, folder = 60, tmp_path / "s"
    code = _CHILD.format(tests=os.path.dirname(__file__), n=n, folder=str(folder))
    rng, said = np.random.default_rng(0), set()
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
            for _ in range(int(rng.integers(1, 15))):
                said.add(int(child.stdout.readline()))
            os.kill(child.pid, signal.SIGKILL)
            said |= {int(line) for line in child.stdout if line.endswith(b"\n")}
        looks = Journal(folder / HISTORY, "x").entries[1:]
        sources = [entry["source"] for entry in looks]
        assert len(set(sources)) == len(sources)
        assert {f"{k}.csv" for k in said} <= set(sources)
    found, _ = run(folder, [batch(k, 10) for k in range(n)])
    expected, _ = run(tmp_path / "whole", [batch(k, 10) for k in range(n)])
    assert found.to_json() == expected.to_json()


# ---- the promise stays the same ---------------------------------------------------------------------------------


def test_another_threshold_option_or_reference_is_refused(tmp_path):
    run(tmp_path / "s", [batch(0)], reference(np.arange(5.0)))
    for changes, words in (
        ({"level": 0.9}, r"begun with level = 0\.95, and this look has level = 0\.9"),
        ({"by": None}, "begun with by = 'site', and this look has no by"),
    ):
        with pytest.raises(InputError, match=words):
            run(tmp_path / "s", [], **changes)
    with pytest.raises(InputError, match="other reference scores"):
        run(tmp_path / "s", [], reference(np.arange(6.0)))
    with (
        pytest.raises(InputError, match="watches another threshold"),
        opened(tmp_path / "s", Threshold.from_value(0.4, max_risk=0.1), options(), None),
    ):
        pass


# ---- groups -----------------------------------------------------------------------------------------------------


def test_e_bh_is_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(200):
        e = {f"g{k}": float(x) for k, x in enumerate(np.exp(rng.normal(2, 2, rng.integers(1, 12))))}
        order = sorted(e.values(), reverse=True)
        most = max((k for k in range(1, len(e) + 1) if order[k - 1] >= len(e) / (k * 0.05)), default=0)
        assert not e_bh(e, 0.95) or np.mean(order) >= 20 * (1 - 1e-9)  # a bet against all of them has won
        assert sorted(e_bh(e, 0.95)) == sorted(name for name in e if most and e[name] >= order[most - 1])
    assert e_bh({}, 0.95) == ()


def test_a_group_that_breaks_the_promise_is_named_and_stays_named(tmp_path):
    bad = [batch(k, 100, risk=0.05) for k in range(8)]
    for one in bad:
        one.error[np.array(one.groups) == "b"] = 1.0
    status, _ = run(tmp_path / "s", bad)
    assert (list(status.named), status.holds) == (["b"], False)
    good, _ = run(tmp_path / "s", [batch(k, 100, risk=0.0) for k in range(20, 60)])
    assert good.named == status.named
    looks = Journal(tmp_path / "s" / HISTORY, "x").entries[1:]
    assert [entry["named"] for entry in looks if entry["named"]] == [status.named]


def test_a_group_that_is_broken_comes_before_all_rows_together_that_are_not(tmp_path):
    good = [batch(k, 400, risk=0.0) for k in range(4)]
    mixed = [batch(k, 400, risk=0.0, groups=("c",) * 12 + ("a", "b") * 194) for k in range(10, 14)]
    for one in mixed:
        one.error[:12] = 1.0
    status, _ = run(tmp_path / "s", mixed)
    assert status.check.holds
    assert list(status.named) == ["c"]
    first, second, *_ = status_lines(PROMISE, status)
    assert first.startswith("The promise no longer holds in 1 of 3 groups: c ")
    assert second.startswith("All rows together: nothing speaks against the promise")
    assert status_lines(PROMISE, run(tmp_path / "t", good)[0])[0].startswith("Nothing speaks against the promise")


def test_the_state_as_json_has_no_nan(tmp_path):
    status, _ = run(tmp_path / "s", [batch(0)], reference(np.arange(9.0)))
    data = json.loads(status.to_json(), parse_constant=pytest.fail)
    assert set(data) >= {"schema_version", "holds", "check", "groups", "named", "waiting", "drift"}
