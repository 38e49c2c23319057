"""`uqeval reproduce`: runs, goes on after a stop, says where things are, and one line when something is wrong."""

import io
import json
import os

import numpy as np
import pytest
from rich.console import Console

import commands
import uqeval
from uqeval.cli import output
from uqeval.cli import reproduce as command

TINY = """
[data]
n = 160
train = 0.5

[training]
epochs = 3
batch_size = 80
learning_rates = [0.05]
hidden = [[6]]

[[methods]]
name = "softmax"
scores = ["entropy", "free_energy", "bernoulli_variance"]

[[methods]]
name = "ensemble"
members = [2]
scores = ["total_entropy", "aleatoric_entropy", "mutual_information"]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


def run(*args):
    return commands.succeed("reproduce", *args)


def test_synthetic_prints_what_reproduces_and_goes_on_by_itself(tmp_path, grid, undrawn):
    pytest.importorskip("torch")
    out = tmp_path / "study"
    options = ("synthetic", "--out", out, "--seeds", 2, "--jobs", 1, "--grid", grid)
    text = " ".join(run(*options).split())
    for words in ("κ(s; ϕ)", "What cannot be told", "Among scores of one kind", "training and scoring", "page:"):
        assert words in text
    assert "from an earlier run" not in text
    tables = {name: (out / name).read_bytes() for name in ("table.json", "table.csv", "table.md")}
    timing = json.loads((out / "timing.json").read_text(encoding="utf-8"))
    assert list(timing["seconds"]) == ["training and scoring", "temperature", "figures", "page"]
    assert (timing["parts"], timing["found"]) == (3, 0)  # two draws, and one of any d
    assert not any(b"seconds" in content for content in tables.values())

    found = json.loads(run(*options, "--json", "-"))
    assert found["study"] == "synthetic"
    assert found["settings"]["d_range"] == [0.75, 2.4]
    assert {name: (out / name).read_bytes() for name in tables} == tables
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["found"] == 3
    assert "from an earlier run" in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_any_d_takes_draws_as_they_come_and_quiet_prints_nothing(tmp_path, grid, undrawn):
    out, file = tmp_path / "study", tmp_path / "found.json"
    options = ("synthetic", "--out", out, "--seeds", 1, "--jobs", 1, "--grid", grid, "--any-d", "--quiet")
    assert run(*options, "--json", file) == ""
    settings = json.loads(file.read_text(encoding="utf-8"))["settings"]
    assert settings["draws"] == [0]
    assert settings["d_range"] is None


def test_temperature_prints_its_table_and_writes_a_page(tmp_path, undrawn):
    pytest.importorskip("torch")
    out = tmp_path / "t"
    text = " ".join(run("temperature", "--out", out).split())
    assert "constant" in text
    assert "Two classes, one network" in text
    assert (out / "index.html").is_file()
    assert json.loads((out / "table.json").read_text(encoding="utf-8"))["study"] == "temperature"
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["total"] > 0


def test_theorems_prints_its_verdicts(tmp_path, undrawn):
    out = tmp_path / "t"
    text = run("theorems", "--out", out, "--populations", 5)
    assert "holds in part" in text
    assert "index.html" in text
    found = json.loads(run("theorems", "--out", out, "--populations", 5, "--json", "-"))
    assert found == json.loads((out / "table.json").read_text(encoding="utf-8"))
    assert run("theorems", "--out", out, "--populations", 2, "-q") == ""


def test_a_console_without_unicode_spells_the_papers_symbols():
    output.use_words()
    printed = str(uqeval.reproduce.theorems(populations=1))
    spelled = printed.encode("ascii", "uqeval").decode("ascii")
    assert "\\u" not in spelled.lower()
    assert "Scores in E(phi) have" in spelled.replace("\n", " ")
    assert [output._WORDS[sign] for sign in ("ϕ", "φ")] == ["phi", "varphi"]


def test_a_folder_of_the_commands_own_name_is_the_default(tmp_path, monkeypatch, undrawn):
    monkeypatch.chdir(tmp_path)
    run("theorems", "--populations", 1, "-q")
    assert os.listdir(tmp_path) == ["uqeval-theorems"]


STUDIES = ("synthetic", "temperature", "theorems", "ood", "cifar10h", "imagenet-real", "oasst2")


def test_every_study_is_listed_and_its_help_has_an_example():
    result = commands.call("reproduce")
    for name in STUDIES:
        assert name in result.out + result.err
        assert f"uqeval reproduce {name}" in " ".join(run(name, "--help").split())


def test_a_bad_range_of_d_is_refused(tmp_path):
    for text in ("1", "a,b", "2,1", "1,2,3", "-1,2", ""):
        message = commands.fail("reproduce", "synthetic", "--out", tmp_path / "x", f"--d-range={text}")
        assert "--d-range" in message
        assert not (tmp_path / "x").exists()


def test_a_missing_grid_is_refused(tmp_path):
    pytest.importorskip("torch")
    options = ("--out", tmp_path / "x", "--grid", tmp_path / "none.toml")
    assert "cannot be read" in commands.fail("reproduce", "synthetic", *options)


def test_a_folder_that_cannot_be_made_is_refused_and_a_file_in_its_place_left_alone(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "x").write_text("mine")
    for name in STUDIES:
        given = () if name in STUDIES[:4] else ("--predictions", tmp_path)
        assert "that is a file" in commands.fail("reproduce", name, "--out", tmp_path / "x", *given)
        assert "cannot be made" in commands.fail("reproduce", name, "--out", tmp_path / "x" / "y", *given)
    assert (tmp_path / "x").read_text() == "mine"


def test_bad_numbers_are_misuse(tmp_path):
    for options in (("--seeds", 0), ("--seeds", "many"), ("--jobs", 0)):
        assert "Invalid value" in commands.misuse("reproduce", "synthetic", "--out", tmp_path / "x", *options)


def test_without_its_package_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    for options, extra in (
        (("synthetic",), "torch"),
        (("temperature",), "torch"),
        (("ood",), "torch"),
        (("cifar10h", "--train"), "reproduce"),
        (("cifar10h", "--backbones", "resnet18"), "reproduce"),
        (("imagenet-real", "--models", "resnet18", "--images", "."), "reproduce"),
        (("oasst2", "--models", "bart"), "text"),
    ):
        message = commands.fail("reproduce", *options, "--out", tmp_path / "x")
        assert f'pip install "uqeval[{extra}]"' in message
        assert not (tmp_path / "x").exists()


def test_ctrl_c_says_in_one_line_how_to_go_on(tmp_path, monkeypatch):
    pytest.importorskip("torch")

    def stopped(*args, **options):
        raise KeyboardInterrupt

    messages = ("--sample", 20, "--predictions", tmp_path)
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(20, 2)))
    for name, given in (("synthetic", ()), ("oasst2", messages)):
        monkeypatch.setattr(uqeval.reproduce, name, stopped)
        result = commands.call("reproduce", name, *given, "--out", tmp_path / "x")
        assert result.code == 130
        assert result.out == ""
        assert result.err.strip().splitlines() == [
            "Stopped. What is finished is kept: run the same command again to go on."
        ]


def test_a_bar_names_the_stage_and_shows_on_a_terminal_only(tmp_path, monkeypatch):
    shown = []
    console = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr("uqeval.cli.progress.stderr", lambda: console)
    with command.running(tmp_path, quiet=False) as progress:
        progress("training and scoring", 1, 2)
        shown.append(console.quiet)
    assert shown == [False]
    assert "Training and scoring" in console.file.getvalue()
    plain = Console(file=io.StringIO())
    monkeypatch.setattr("uqeval.cli.progress.stderr", lambda: plain)
    with command.running(tmp_path, quiet=False) as progress:
        progress("training and scoring", 1, 2)
    assert plain.file.getvalue() == ""
