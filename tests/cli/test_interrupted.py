"""Ctrl-C at any moment of any command that writes: the old file or the new one, never a part of one, and no litter."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import uqeval as uq
from cases import noted
from commands import Result, call

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
SRC = str(Path(uq.__file__).parent)
# Where files are written: Ctrl-C comes at their calls, at the calls that they make, and at the calls of those.
WRITERS = ("_files.py", "marking.py", "splicing.py", "journal.py", "state.py", "store.py", "told.py", "check.py")
OLD = b"what was there before"


class CtrlC:
    """Counts the calls and returns of a run, and sends SIGINT to this process at one of them."""

    def __init__(self, at=None):
        self.at, self.count, self.writing, self.open = at, 0, [], []

    def __call__(self, frame, event, arg):
        if event not in ("call", "return"):
            return
        stack, at_file = [], frame.f_code.co_name in ("open", "write_bytes", "replace")
        while frame is not None and len(stack) < 3:
            stack.append(frame.f_code.co_filename)
            frame = frame.f_back
        if not any(name.startswith(SRC) for name in stack):
            return
        self.count += 1
        if any(name.startswith(SRC) and name.endswith(WRITERS) for name in stack):
            self.writing.append(self.count)
            if at_file:  # a file is open, and empty
                self.open.append(self.count)
        if self.count == self.at:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)


class Outside(BaseException):
    """Before the command listens to signals, and after: there `uqeval.cli.start` ends the process at once."""


def run(args, at=None):
    def outside(*_):
        raise Outside

    watch = CtrlC(at)
    former = signal.signal(signal.SIGINT, outside)
    sys.setprofile(watch)
    try:
        found = call(*args)
    except Outside:
        found = Result(130, "", "")
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, former)
    return found, watch


def some(moments, most):
    return sorted({moments[k] for k in np.linspace(0, len(moments) - 1, most).astype(int)}) if moments else []


def rows(path, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, 150))
    error = rng.random(150) < 0.3 * a
    lines = [f"r{seed}-{k},{int(error[k])},{a[k]},{b[k]}" for k in range(150)]
    path.write_text("\n".join(["id,error,score_a,score_b", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    old, new = rows(folder / "old.csv", 0), rows(folder / "new.csv", 1)
    (folder / "p.toml").write_text('[[rule]]\nmetric = "uq_auc"\nscore = "a"\nat_least = 0.5\n', encoding="utf-8")
    made = call("threshold", old, "--score", "a", "--max-risk", "0.5", "--json", folder / "t.json", "--quiet")
    assert made.code == 0, made
    return {"old": old, "new": new, "policy": folder / "p.toml", "promise": folder / "t.json"}


COMMANDS = {
    "evaluate": ("evaluate {old} --metrics uq_auc --json out.json --csv out.csv", "out.json out.csv"),
    "evaluate pages": ("evaluate {old} --metrics uq_auc --html out.html", "out.html"),
    "compare": ("compare {old} --json out.json --csv out.csv", "out.json out.csv"),
    "threshold": ("threshold {old} --score a --max-risk 0.5 --json out.json --csv out.csv", "out.json out.csv"),
    "check": ("check {promise} {new} --json out.json --state state.json", "out.json"),
    "apply": ("apply {promise} {new} --out out.csv --json out.json", "out.json out.csv"),
    "monitor": ("monitor {promise} {new} --key id --state . --prometheus m.prom --json out.json", "out.json m.prom"),
    "monitor pages": (
        "monitor {promise} {new} --key id --state . --html out.html --json out.json",
        "out.html out.json",
    ),
    "gate": ("gate {policy} {old} --junit out.xml --json out.json", "out.xml out.json"),
    "power": ("power {old} --score a --half-width 0.05 --json out.json", "out.json"),
    "demo": ("demo --html out.html --json out.json", "out.html out.json"),
    "theorems": ("reproduce theorems --populations 2 --out . --json out.json", "out.json"),
}


def shape(content):
    """What dates and times do not change."""
    return content.count(b"\n"), content.rstrip()[-1:].isdigit(), content[-1:], content[:1]


def interrupted(name, inputs, tmp_path, monkeypatch, most):
    """Runs the command once, then as often with Ctrl-C at a moment; how often that ended it."""
    line, outputs = COMMANDS[name]
    args, outputs = line.format(**inputs).split(), outputs.split()

    def fresh(folder):
        folder.mkdir()
        monkeypatch.chdir(folder)
        for output in outputs:
            (folder / output).write_bytes(OLD)

    fresh(tmp_path / "whole")
    done, watch = run(args)
    assert done.code in (0, 1), done
    whole = tmp_path / "whole"
    right = {output: (whole / output).read_bytes() for output in outputs}
    known = {path.relative_to(whole) for path in whole.rglob("*")}
    ended = 0
    for at in {*some(watch.open, most), *some(watch.writing, most), *some(range(1, watch.count), 3)}:
        folder = tmp_path / str(at)
        fresh(folder)
        found, _ = run(args, at)
        with noted(name=name, at=at, of=watch.count, found=found):
            assert found.code in (130, done.code)
            assert "Traceback" not in found.err
            assert found.err == "" or found.err.startswith("Stopped. What is finished is kept")
            there = {path.relative_to(folder) for path in folder.rglob("*")}
            assert there <= known  # nothing that a whole run does not leave
            for output in outputs:
                content = (folder / output).read_bytes()
                assert content == OLD or shape(content) == shape(right[output])
            ended += found.code == 130
            if name == "check":  # what it knows is whole: each row counts once
                counted = (folder / "state.json").exists()
                assert ("checked before" in run(args)[0].err) == counted
            if name.startswith("monitor"):
                assert json.loads(run([*args[:-1], "-"])[0].out)["looks"] == 1
        assert threading.active_count() < 50
    return ended


SLOW = ("evaluate pages", "monitor pages", "theorems", "demo")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMMANDS]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # at a generator's end
@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_leaves_the_old_file_or_the_new_one_and_no_litter(name, inputs, tmp_path, monkeypatch):
    assert interrupted(name, inputs, tmp_path, monkeypatch, 10) >= 6
