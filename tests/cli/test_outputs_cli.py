"""Outputs of all commands: nothing is overwritten by mistake, half written, swallowed, or misread by a terminal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import metadata
from importlib.util import find_spec

import numpy as np
import pytest

import uqeval as uq
from cases import each
from commands import call, fail, spawn, succeed
from uqeval.cli import doctor, output

START = "import sys; sys.argv[0] = 'uqeval'; from uqeval.cli.start import main; main()"
# Python's own start is not ours, and takes long on a busy machine: from here on Ctrl-C is.
BEGUN = START.replace("main()", "open(sys.argv.pop(1), 'w').close(); main()")
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and pipes")


def write(path, n=200, name="mine", seed=0):
    rng = np.random.default_rng(seed)
    s = rng.random(n)
    error = (rng.random(n) < 0.3 * s**2).astype(int)
    lines = [f"{e},{x!r}" for e, x in zip(error.tolist(), s.tolist(), strict=True)]
    path.write_text("\n".join([f"error,score_{name}", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "preds.csv")


def start(*args, **kwargs):
    """The command as the system calls it."""
    command = [sys.executable, "-c", START, *map(str, args)]
    return subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs)


# ---- what is there already ---------------------------------------------------------------------------------------


def test_an_output_that_is_an_input_by_any_name_is_refused_and_left_as_it_was(file, tmp_path, monkeypatch):
    other, promise, state = write(tmp_path / "other.csv", seed=1), tmp_path / "t.json", tmp_path / "s.json"
    succeed("threshold", file, "--max-risk", "0.2", "--json", promise)
    succeed("check", promise, other, "--state", state)
    link, hard = tmp_path / "link.csv", tmp_path / "hard.csv"
    link.symlink_to(file)
    os.link(file, hard)
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in (file, other, promise, state)}
    for target in (file, link, hard, "preds.csv", "./preds.csv"):
        for args in (
            ("evaluate", file, "--json", target),
            ("evaluate", file, "--html", target),
            ("evaluate", "pr*.csv", "--html", target),
            ("compare", other, file, "--json", target),
            ("compare", file, "--html", target),
            ("threshold", file, "--max-risk", "0.2", "--json", target),
            ("check", promise, file, "--state", target),
            ("check", promise, file, "--json", target),
            ("power", file, "--json", target),
        ):
            message = fail(*args)
            assert "would overwrite" in message
            assert f"{args[-2]} {target}" in message
    with file.open("rb") as stdin, start("evaluate", "-", "--json", file, stdin=stdin) as process:
        err = process.stderr.read().decode()
        assert (process.wait(timeout=60), err.split(". ")[0]) == (2, f"Error: --json {file} would overwrite -")
    assert "--json t.json would overwrite" in fail("check", "t.json", other, "--json", "t.json")
    assert "--state t.json would overwrite" in fail("check", "t.json", other, "--state", "t.json")
    assert "would overwrite what --json writes" in fail("check", "t.json", file, "--state", state, "--json", state)
    assert "would overwrite what --json writes" in fail("evaluate", file, "--json", "new", "--html", "new")
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "new").exists()


@each(
    "command",
    [
        ("evaluate", "--json"),
        ("evaluate", "--html"),
        ("compare", "--html"),
        ("threshold", "--json"),
        ("check", "--state"),
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_written_is_said_by_its_option_before_any_work(file, tmp_path, monkeypatch, command):
    def work(*args, **kwargs):
        raise AssertionError("work was done")

    for name in ("evaluate", "compare", "choose_threshold", "read_predictions"):
        monkeypatch.setattr(uq, name, work)
    name, option = command
    more = ("--max-risk", "0.1") if name == "threshold" else ()
    first = (tmp_path / "t.json",) if name == "check" else ()
    for target in (tmp_path / "none" / "x", tmp_path, os.devnull):
        message = fail(name, *first, file, *more, option, target)
        assert message.startswith(f"Error: {option}")
        assert "`path`" not in message


def test_a_folder_that_nothing_can_be_written_to_is_said_before_any_work(file, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(uq, "evaluate", None)
    for option in ("--html", "--json"):
        message = fail("evaluate", file, option, tmp_path / "out")
        assert f"{option}: nothing can be written to the folder '{tmp_path}'" in message


def test_a_report_that_cannot_be_written_names_the_option(file, tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    for option in ("--html", "--json"):
        message = fail("evaluate", file, option, tmp_path / "out")
        assert option in message
        assert "No space left" in message
    assert [path.name for path in tmp_path.iterdir()] == ["preds.csv"]


# ---- a reader that leaves ----------------------------------------------------------------------------------------


@posix
def test_files_are_written_before_the_terminal_and_a_closed_pipe_is_never_an_answer(file, tmp_path):
    page, data, promise = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "t.json"
    succeed("threshold", file, "--max-risk", "0.2", "--json", promise)
    for args in (
        ("evaluate", file, "--html", page, "--json", data),
        ("check", promise, write(tmp_path / "new.csv", seed=1), "--state", tmp_path / "s.json", "--json", "-"),
        ("threshold", file, "--max-risk", "0.0001"),
    ):
        with start(*args) as process:
            process.stdout.close()
            err = process.stderr.read()
            assert (process.wait(timeout=60), err) == (141, b"")
    assert page.stat().st_size > 10_000
    assert json.loads(data.read_text(encoding="utf-8"))["n"] == 200
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["looks"] == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_where_nothing_can_be_written_the_code_is_2_and_never_an_answer(file):
    with open("/dev/full", "wb") as full:
        for args, full_ones in (
            (("evaluate", file), ("stdout",)),
            (("evaluate", file, "--json", "-"), ("stdout",)),
            (("evaluate", "nowhere.csv"), ("stderr",)),
            (("evaluate", file), ("stdout", "stderr")),
        ):
            with start(*args, **dict.fromkeys(full_ones, full)) as process:
                err = process.stderr.read() if process.stderr else b""
                assert process.wait(timeout=60) == 2, (args, full_ones)
                assert b"Traceback" not in err


# ---- Ctrl-C ------------------------------------------------------------------------------------------------------


@posix
def test_ctrl_c_at_any_time_is_130_without_a_word_or_a_part_of_a_file(file, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    work = ["evaluate", file, "--html", folder / "r.html", "--method", "bootstrap", "--resamples", "100000"]
    for wait in (0.05, 0.3, 0.8):
        begun = tmp_path / f"begun{wait}"
        command = [sys.executable, "-c", BEGUN, *map(str, (begun, *work))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            while not begun.exists():
                time.sleep(0.01)
            time.sleep(wait)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=30)
        assert (p.returncode, out, err) == (130, b"", b"")
        assert list(folder.iterdir()) == []


@posix
def test_ctrl_c_inside_a_late_import_that_would_swallow_it_ends_the_command(file, tmp_path):
    (tmp_path / "greedy.py").write_text(
        "import time\nprint('started', flush=True)\ntry:\n    time.sleep(0.5)\nexcept BaseException:\n    pass\n",
        encoding="utf-8",
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport uqeval\n"
        "def evaluate(*a, **k):\n    import greedy\n    return real(*a, **k)\n"
        "real, uqeval.evaluate = uqeval.evaluate, evaluate\n"
        f"from uqeval.cli.main import main\nsys.argv = ['uqeval', 'evaluate', {str(file)!r}]\nmain()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


# ---- what reaches a terminal -------------------------------------------------------------------------------------


def test_control_characters_in_names_never_reach_a_terminal(tmp_path):
    name = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e\x7f"
    path = write(tmp_path / "p\x1b[2J.csv", name=name)
    texts = [
        succeed("evaluate", path),
        succeed("evaluate", path, "--json", "-"),
        succeed("threshold", path, "--max-risk", "0.2", "--json", tmp_path / "t.json"),
        call("evaluate", path, "--score", f"no{name}").err,
        call("evaluate", path, "--score-columns", f"no{name}").err,
        call("evaluate", tmp_path / f"none{name}.csv").err,
    ]
    for text in texts:
        assert text
        assert not {c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)}
        assert "\u202e" not in text
    assert "␛[31mred" in texts[0]
    assert json.loads(texts[1])["estimates"][0]["score"] == name


@each("env", [{"LC_ALL": "C", "PYTHONUTF8": ""}, {"PYTHONIOENCODING": "ascii"}], ids=["locale", "encoding"])
def test_a_console_without_unicode_gets_words_for_arrows_in_straight_columns(file, env):
    done = spawn("evaluate", file, "--metrics", "uq_auc,aurc", env=env | {"LANG": ""})
    out = done.stdout.decode("ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "UQ-AUC up" in out
    assert "AURC down" in out
    assert "up higher is better" in out or len(out) > 0
    assert "?" not in out
    table = [line for line in out.splitlines() if line.startswith(("+", "|"))]
    assert len({len(line) for line in table}) == 1


def test_doctor_shows_what_to_install_and_that_spark_needs_java(monkeypatch):
    def version(name):
        if name in ("distributed", "torch"):
            raise doctor.PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    for home in (None, "/no/such/java"):
        out = call("doctor", env={} if home is None else {"JAVA_HOME": home}).out
        assert 'not installed: pip install "uqeval[dask]"' in out
        assert "not ready: no Java" in out


def test_doctor_tells_what_each_extra_of_users_needs(monkeypatch):
    of_developers = {"all", "bench", "dev", "docs", "test"}
    assert {*doctor._EXTRAS} == {*metadata("uqeval").get_all("Provides-Extra")} - of_developers
    there = {"torch": "2.0.1", "pillow": "11.0"}

    def version(name):
        if name not in there:
            raise doctor.PackageNotFoundError
        return there[name]

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "_gpu", lambda: "none")
    facts = json.loads(succeed("doctor", "--json", "-"))
    assert facts["extra torch"] == 'needs torch>=2.1 (there is 2.0.1), torchmetrics: pip install "uqeval[torch]"'
    assert facts["extra vision"].startswith(
        "needs torch>=2.1 (there is 2.0.1), pooch, scikit-learn, torchvision, timm: pip"
    )
    there |= {"torch": "2.9.0+cpu", "torchmetrics": "1.8"}
    assert json.loads(succeed("doctor", "--json", "-"))["extra torch"] == "ready"


def test_doctor_survives_a_torch_that_does_not_load_and_says_why(monkeypatch):
    monkeypatch.setattr(doctor, "_ASK_TORCH", "raise OSError('libcudart.so.12: no such file')")
    if find_spec("torch") is not None:
        assert (
            json.loads(succeed("doctor", "--json", "-"))["GPU"] == "not known: OSError: libcudart.so.12: no such file"
        )
    monkeypatch.setattr(doctor, "_ASK_TORCH", "print('NVIDIA H200; NVIDIA H200')")
    if find_spec("torch") is not None:
        assert json.loads(succeed("doctor", "--json", "-"))["GPU"] == "NVIDIA H200; NVIDIA H200"


def test_doctor_counts_the_cache_and_says_how_to_get_native_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_gpu", lambda: "none")
    monkeypatch.setattr(doctor, "cache_folder", lambda: tmp_path / "uqeval")
    assert json.loads(succeed("doctor", "--json", "-"))["cache"].endswith("uqeval (empty)")
    (tmp_path / "uqeval").mkdir()
    (tmp_path / "uqeval" / "chart.js").write_bytes(bytes(3 << 20))
    assert json.loads(succeed("doctor", "--json", "-"))["cache"].endswith("uqeval (1 file, 3.0 MiB)")
    monkeypatch.setattr("uqeval.kernels.backend", lambda: "numpy")
    assert "install uqeval again where there is a C++ compiler" in call("doctor").out
    assert "UQEVAL_KERNELS=numpy asks for them" in call("doctor", env={"UQEVAL_KERNELS": "numpy"}).out


# ---- files that are something else -------------------------------------------------------------------------------


def test_a_wrong_state_is_described_and_never_printed(file, tmp_path):
    promise, state = tmp_path / "t.json", tmp_path / "state.json"
    succeed("threshold", file, "--max-risk", "0.2", "--json", promise)
    new = write(tmp_path / "new.csv", seed=1)
    ev = succeed("evaluate", file, "--json", "-")
    for text, words in (
        ("", "nothing"),
        ("patient,secret\n1,2\n" * 500, "no JSON"),
        ("secret", "no JSON"),
        ('{"secret": ', "broken JSON"),
        ('["secret"]', "a list"),
        ('{"secret": 1}', "JSON of something else"),
        (promise.read_text(encoding="utf-8"), "a threshold"),
        (ev, "an evaluation"),
    ):
        state.write_text(text, encoding="utf-8")
        message = fail("check", promise, new, "--state", state)
        assert f"--state {state}: holds {words}" in message
        assert "secret" not in message
        assert len(message) < 400
        with pytest.raises(uq.InputError) as refused:
            uq.Check.from_json(text)
        assert len(text) < 10 or (len(str(refused.value)) < 300 and "secret," not in str(refused.value))


def test_what_is_no_threshold_is_described_and_never_printed(file, tmp_path):
    promise, state, wrong = tmp_path / "t.json", tmp_path / "state.json", tmp_path / "wrong.json"
    succeed("threshold", file, "--max-risk", "0.2", "--json", promise)
    new = write(tmp_path / "new.csv", seed=1)
    succeed("check", promise, new, "--state", state)
    for content, words in (
        (state.read_bytes(), "a check"),
        (succeed("evaluate", file, "--json", "-").encode(), "an evaluation"),
        (new.read_bytes(), "no JSON"),
        (b"\xff\xfe\x00secret", "no text"),
        (b'{"secret": 1}', "JSON of something else"),
    ):
        wrong.write_bytes(content)
        message = fail("check", wrong, new)
        assert f"{wrong}: holds {words}, not a threshold" in message
        assert "secret" not in message
    state.write_bytes(b"\xff\xfe\x00secret")
    assert "holds no text, not a state" in fail("check", promise, new, "--state", state)


def test_notes_of_the_terminal_speak_of_options(tmp_path):
    lines = (f"{k % 7 / 7},{k},{int(k % 40 == 0)},{k / 100}" for k in range(100))
    path = tmp_path / "few.csv"
    path.write_text("\n".join(["score_a,score_b,error,loss", *lines]) + "\n")
    assert "(3): the tests have little power; --method permutation" in succeed("compare", path)
    path.write_text("\n".join(["score_a,loss", *(f"{k},{(99 - k) / 100}" for k in range(100))]) + "\n")
    told = " ".join(succeed("evaluate", path, "--metrics", "prr").split())
    assert "a looks the wrong way round: PRR" in told
    assert "--quality COLUMN" in told


def test_the_words_of_a_console_are_ascii():
    for words in output._WORDS.values():
        assert words.isascii()


# ---- engines that are not there ----------------------------------------------------------------------------------


def test_a_spark_master_that_cannot_be_reached_is_one_sentence_in_seconds(file):
    pytest.importorskip("pyspark", reason="needs pyspark")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"spark://127.0.0.1:{free.getsockname()[1]}"
    begin = time.monotonic()
    for address in (nobody, f"{nobody},127.0.0.1:1", "spark://nohost"):
        message = fail("evaluate", file, "--engine", "spark", "--scheduler", address)
        assert f"--scheduler is '{address}', where no Spark master answers" in message
    assert time.monotonic() - begin < 20
