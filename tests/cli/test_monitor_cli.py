"""`uqeval monitor`: what it prints and writes, how it leaves, twice at once, and a folder that it watches."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import commands
import uqeval as uq

call, succeed, fail = (partial(f, "monitor") for f in (commands.call, commands.succeed, commands.fail))
SITES = np.array(["north", "south"])


def table(k, n=200, rate=0.05):
    rng = np.random.default_rng(k)
    score = rng.random(n)
    return {
        "id": [f"{k}-{i}" for i in range(n)],
        "score_mine": score,
        "error": (rng.random(n) < rate * score).astype(int),
        "site": SITES[rng.integers(0, 2, n)],
    }


def write(path, data, *left_out):
    pa.csv.write_csv(pa.table({name: list(column) for name, column in data.items() if name not in left_out}), path)
    return path


@pytest.fixture
def promise(tmp_path):
    path = tmp_path / "threshold.json"
    chosen = uq.Threshold.from_value(0.8, max_risk=0.05)
    path.write_text(chosen.to_json().replace('"score": null', '"score": "mine"'), encoding="utf-8")
    return path


def status(*args):
    result = call(*args, "--json", "-")
    return result.code, json.loads(result.out, parse_constant=pytest.fail)


def words(text):
    return " ".join(text.split())


def test_codes_are_holds_alarm_bad_input_and_cannot_tell(promise, tmp_path):
    good, bad = write(tmp_path / "good.csv", table(1)), write(tmp_path / "bad.csv", table(2, rate=0.9))
    late = write(tmp_path / "late.csv", table(3), "error")
    assert call(promise, good, "--state", tmp_path / "a").code == 0
    assert call(promise, bad, "--state", tmp_path / "a").code == 1
    assert call(promise, good, "--state", tmp_path / "a").code == 1  # an alarm stays
    result = call(promise, late, "--state", tmp_path / "b", "--key", "id")
    assert result.code == 3
    assert "200 rows wait for their labels" in words(result.out)
    assert "There is nothing to look at" in fail(promise, "--state", tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert "late.csv: There is no `error` or `loss` column" in fail(promise, late, "--state", tmp_path / "c")
    assert "--run-length and --by" in fail(
        promise, good, "--state", tmp_path / "c", "--by", "site", "--run-length", "99"
    )


def test_late_labels_by_key_end_as_labels_at_once(promise, tmp_path):
    both = [write(tmp_path / f"{k}.csv", table(k)) for k in range(3)]
    expected = status(promise, *both, "--state", tmp_path / "a", "--key", "id", "--by", "site")
    for k in range(3):
        late = write(tmp_path / f"late{k}.csv", table(k), "error")
        assert call(promise, late, "--state", tmp_path / "b", "--key", "id", "--by", "site").code in (0, 3)
        labels = write(tmp_path / f"labels{k}.csv", table(k), "score_mine", "site")
        found = status(promise, labels, "--state", tmp_path / "b", "--key", "id", "--by", "site")
    assert found[0] == expected[0] == 0
    for name in ("check", "groups", "named", "waiting", "units"):
        assert found[1][name] == expected[1][name]
    assert set(found[1]["groups"]) == set(SITES)


def test_classes_that_come_late_are_compared_with_what_was_predicted(tmp_path):
    pred = uq.datasets.example()
    n, names = 300, {f"prob_{k}": uq.datasets.example().probs[:300, k] for k in range(10)}
    path = tmp_path / "t.json"
    path.write_text(uq.choose_threshold("entropy", predictions=pred, max_risk=0.05).to_json(), encoding="utf-8")
    rows = {"id": list(range(n))} | names
    at_once = tmp_path / "once.parquet"
    pa.parquet.write_table(pa.table(rows | {"label": pred.labels[:n]}), at_once)
    expected = status(path, at_once, "--state", tmp_path / "a", "--key", "id", "--again")
    late, labels = tmp_path / "late.parquet", write(tmp_path / "l.csv", {"id": range(n), "label": pred.labels[:n]})
    pa.parquet.write_table(pa.table(rows), late)
    assert call(path, late, "--state", tmp_path / "b", "--key", "id").code == 3
    found = status(path, labels, "--state", tmp_path / "b", "--key", "id", "--again")
    assert found[1]["check"] == expected[1]["check"]
    assert found[1]["check"]["all"]["n"] == n


def test_a_rerun_after_the_end_is_said_and_counts_nothing(promise, tmp_path):
    files = [write(tmp_path / f"{k}.csv", table(k)) for k in range(2)]
    for options in ((), ("--key", "id")):
        state = tmp_path / f"s{len(options)}"
        first = status(promise, *files, "--state", state, *options)
        assert status(promise, *files, "--state", state, *options) == first
        assert "came before" in succeed(promise, *files, "--state", state, *options)


def test_two_at_once_count_each_file_once(promise, tmp_path):
    files = [write(tmp_path / f"{k}.csv", table(k)) for k in range(3)]
    args = [sys.executable, "-m", "uqeval.cli.main", "monitor", promise, *files, "--state", tmp_path / "s", "-q"]
    running = [subprocess.Popen(list(map(str, args)), stderr=subprocess.PIPE) for _ in range(2)]
    ends = [(process.communicate(timeout=60)[1], process.returncode) for process in running]
    assert ends == [(b"", 0)] * 2
    assert status(promise, files[0], "--state", tmp_path / "s")[1]["looks"] == 3
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["history.jsonl"]


def test_rows_that_cannot_count_are_refused_with_their_file_and_change_nothing(promise, tmp_path):
    state = ("--state", tmp_path / "s", "--key", "id")
    before = status(promise, write(tmp_path / "good.csv", table(1)), *state)
    assert call(promise, write(tmp_path / "late.csv", table(2), "error"), *state).code == 0
    waiting = status(promise, tmp_path / "late.csv", *state)
    assert waiting[1]["waiting"] == 200
    score = write(tmp_path / "gaps.csv", table(3) | {"score_mine": [None] + [0.5] * 199})
    for path, text in (
        (write(tmp_path / "two.csv", {"id": ["2-0", "2-1"], "error": [0, 2]}), "is 2 at row 1; it must be 0 or 1"),
        (write(tmp_path / "part.csv", {"id": ["2-0"], "error": [0.5]}), "is 0.5 at row 0; it must be 0 or 1"),
        (write(tmp_path / "half.csv", {"id": ["2-0"], "loss": [0.5]}), "chosen for 0/1 errors"),
        (write(tmp_path / "twice.csv", {"id": ["2-0", "2-0"], "error": [0, 1]}), "the id '2-0' comes twice"),
        (write(tmp_path / "none.csv", {"id": ["2-0"], "error": [None]}), "is empty at row 0"),
        (
            write(tmp_path / "one.csv", {name: column[:1] for name, column in table(3).items()}),
            "A look needs at least 2",
        ),
        (score, "1 missing value"),
    ):
        message = fail(promise, path, *state)
        assert path.name in message, message
        assert text in message, message
    assert status(promise, tmp_path / "late.csv", *state) == waiting
    turned = {"id": table(1)["id"], "error": 1 - table(1)["error"]}  # labels of rows that were counted
    assert "came before and are not counted again" in words(
        succeed(promise, write(tmp_path / "turned.csv", turned), *state)
    )
    assert status(promise, tmp_path / "late.csv", *state)[1]["check"] == before[1]["check"]
    (tmp_path / "nothing.csv").write_text("id,error\n")
    assert "nothing.csv holds no rows" in words(succeed(promise, tmp_path / "nothing.csv", *state))


def test_prometheus_text_is_whole_escaped_and_keeps_drift_apart(promise, tmp_path):
    data = table(1) | {"site": ['a"b\\c' if k % 2 else "plain" for k in range(200)]}
    rows, cal, out = write(tmp_path / "r.csv", data), write(tmp_path / "c.csv", table(9)), tmp_path / "uq.prom"
    args = (promise, rows, "--state", tmp_path / "s", "--by", "site", "--reference", cal, "--prometheus", out, "-q")
    succeed(*args)
    lines = out.read_text(encoding="utf-8").splitlines()
    sample = re.compile(r'uqeval_[a-z_]+(\{group="([^"\\\n]|\\["\\n])*"\})? (NaN|[0-9.e+-]+)')
    assert all(line.startswith(("# HELP uqeval_", "# TYPE uqeval_")) or sample.fullmatch(line) for line in lines)
    assert r'uqeval_alarm{group="a\"b\\c"} 0.0' in lines
    assert "uqeval_rows_total 200.0" in lines
    assert "uqeval_score_drift_alarm 0.0" in lines


def test_drift_of_the_scores_is_told_and_is_no_alarm(promise, tmp_path):
    cal, moved = write(tmp_path / "cal.csv", table(9)), table(1, n=400, rate=0.01)
    moved["score_mine"] = moved["score_mine"] ** 3
    rows = write(tmp_path / "rows.csv", moved)
    text = words(succeed(promise, rows, "--state", tmp_path / "s", "--reference", cal))
    assert "Scores have changed (lower)" in text
    assert "says nothing of the risk" in text
    assert status(promise, rows, "--state", tmp_path / "s")[1]["holds"] is True


def test_the_page_shows_each_group_its_alarm_and_no_markup_of_users(promise, tmp_path):
    data = table(1, n=400, rate=0.9) | {"site": ["<b>x</b>"] * 200 + ["calm"] * 200}
    data["error"][200:] = 0
    rows, page = write(tmp_path / "rows.csv", data), tmp_path / "m.html"
    assert call(promise, rows, "--state", tmp_path / "s", "--by", "site", "--html", page, "-q").code == 1
    assert "<circle" in page.read_text(encoding="utf-8")  # after one look a line has one point, which is drawn
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>x</b>" not in text
    assert text.count("<figure") == 3
    assert "Noticed after 200 rows" in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_pattern_is_a_look_for_each_file_in_order(promise, tmp_path):
    for k in range(3):
        write(tmp_path / f"day{k}.csv", table(k))
    found = status(promise, tmp_path / "day*.csv", "--state", tmp_path / "s")[1]
    assert (found["looks"], found["check"]["looks"], found["check"]["all"]["n"]) == (3, 3, 600)


def test_labels_may_come_one_by_one(promise, tmp_path):
    data = table(1, n=5)
    assert (
        call(promise, write(tmp_path / "late.csv", data, "error"), "--state", tmp_path / "s", "--key", "id").code == 3
    )
    for k in range(5):
        one = write(tmp_path / f"{k}.csv", {"id": data["id"][k : k + 1], "error": data["error"][k : k + 1]})
        found = status(promise, one, "--state", tmp_path / "s", "--key", "id")[1]
        assert (found["waiting"], found["check"]["all"]["n"]) == (4 - k, k + 1)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_watched_folder_is_followed_until_ctrl_c_and_a_bad_file_stops_nothing(promise, tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    write(folder / "0.csv", table(0))
    (folder / "bad.csv").write_text("x\n1\n", encoding="utf-8")
    (folder / "notes.txt").write_text("no table", encoding="utf-8")
    argv = ["uqeval", "monitor", str(promise), "--state", str(tmp_path / "s"), "--watch", str(folder)]
    code = "import sys, uqeval.cli.monitor as m\nm._PAUSE = 0.05\nfrom uqeval.cli.main import main\n"
    code += f"sys.argv = {argv}\nmain()"
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **out) as process:
        wait_for(tmp_path / "s" / "history.jsonl", 2)
        write(folder / "1.csv", table(1))
        wait_for(tmp_path / "s" / "history.jsonl", 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert err.count(b"bad.csv") >= 1
    assert status(promise, folder / "0.csv", "--state", tmp_path / "s")[1]["looks"] == 2
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["history.jsonl"]


def wait_for(path, lines):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.05)
    pytest.fail(f"{path} has no {lines} lines")
