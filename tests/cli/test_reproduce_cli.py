"""`uqeval reproduce`: runs, goes on after a stop, says where things are, and one line when something is wrong."""

import json
import os
from pathlib import Path

import pytest

import commands
from uqeval.cli import reproduce as command
from uqeval.cli.reproduce_parts import Clock

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


def test_synthetic_writes_everything_and_goes_on_by_itself(tmp_path, grid):
    out = tmp_path / "study"
    options = ("synthetic", "--out", out, "--seeds", 2, "--jobs", 1, "--grid", grid)
    text = " ".join(run(*options).split())
    assert "with κ(s; φ)" in text
    assert "What reproduces" in text
    assert "training and scoring" in text
    assert "page:" in text
    assert "from an earlier run" not in text
    tables = {name: (out / name).read_bytes() for name in ("table.json", "table.csv", "table.md")}
    assert (out / "index.html").is_file()
    assert len(list((out / "figures").iterdir())) == 20
    timing = json.loads((out / "timing.json").read_text(encoding="utf-8"))
    assert list(timing["seconds"]) == ["training and scoring", "temperature", "figures", "page"]
    assert (timing["parts"], timing["found"]) == (2, 0)
    assert not any(b"seconds" in content for content in tables.values())

    found = json.loads(run(*options, "--json", "-"))
    assert found["study"] == "synthetic"
    assert found["settings"]["d_range"] == [0.75, 2.4]
    assert {name: (out / name).read_bytes() for name in tables} == tables
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["found"] == 2
    assert "from an earlier run" in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_any_d_takes_draws_as_they_come_and_quiet_prints_nothing(tmp_path, grid):
    out, file = tmp_path / "study", tmp_path / "found.json"
    options = ("synthetic", "--out", out, "--seeds", 1, "--jobs", 1, "--grid", grid, "--any-d", "--quiet")
    assert run(*options, "--json", file) == ""
    settings = json.loads(file.read_text(encoding="utf-8"))["settings"]
    assert settings["draws"] == [0]
    assert settings["d_range"] is None


def test_temperature_prints_its_table_and_writes_a_page(tmp_path):
    out = tmp_path / "t"
    text = " ".join(run("temperature", "--out", out).split())
    assert "constant" in text
    assert "Two classes, one network" in text
    assert (out / "index.html").is_file()
    assert (out / "figures" / "temperature.svg").is_file()
    assert json.loads((out / "table.json").read_text(encoding="utf-8"))["study"] == "temperature"
    assert json.loads((out / "timing.json").read_text(encoding="utf-8"))["total"] > 0


def test_theorems_prints_its_verdicts(tmp_path):
    out = tmp_path / "t"
    text = run("theorems", "--out", out, "--populations", 5)
    assert "holds in part" in text
    assert "theorems.md" in text
    assert (out / "theorems.md").is_file()
    found = json.loads(run("theorems", "--out", out, "--populations", 5, "--json", "-"))
    assert found == json.loads((out / "theorems.json").read_text(encoding="utf-8"))
    assert run("theorems", "--out", out, "--populations", 2, "-q") == ""


def test_a_folder_of_the_commands_own_name_is_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("theorems", "--populations", 1, "-q")
    assert os.listdir(tmp_path) == ["uqeval-theorems"]


@pytest.mark.parametrize("name", ["synthetic", "temperature", "theorems"])
def test_help_has_an_example(name):
    assert f"uqeval reproduce {name}" in run(name, "--help")


def test_without_a_study_the_studies_are_listed():
    result = commands.call("reproduce")
    assert "synthetic" in result.out + result.err
    assert "theorems" in result.out + result.err


@pytest.mark.parametrize("text", ["1", "a,b", "2,1", "1,2,3", "-1,2", ""])
def test_a_bad_range_of_d_is_refused(tmp_path, text):
    message = commands.fail("reproduce", "synthetic", "--out", tmp_path / "x", f"--d-range={text}")
    assert "--d-range" in message
    assert not (tmp_path / "x").exists()


def test_a_missing_grid_is_refused(tmp_path):
    options = ("--out", tmp_path / "x", "--grid", tmp_path / "none.toml")
    assert "cannot be read" in commands.fail("reproduce", "synthetic", *options)


@pytest.mark.parametrize("name", ["synthetic", "temperature", "theorems"])
def test_a_file_in_place_of_the_folder_is_refused(tmp_path, name):
    (tmp_path / "x").write_text("mine")
    assert "that is a file" in commands.fail("reproduce", name, "--out", tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


@pytest.mark.parametrize("name", ["synthetic", "theorems"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path, name):
    (tmp_path / "x").write_text("mine")
    assert "cannot be made" in commands.fail("reproduce", name, "--out", tmp_path / "x" / "y")


@pytest.mark.parametrize("options", [("--seeds", 0), ("--seeds", "many"), ("--jobs", 0)])
def test_bad_numbers_are_misuse(tmp_path, options):
    assert "Invalid value" in commands.misuse("reproduce", "synthetic", "--out", tmp_path / "x", *options)


@pytest.mark.parametrize("name", ["synthetic", "temperature"])
def test_without_torch_one_line_says_what_to_install(tmp_path, monkeypatch, name):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    message = commands.fail("reproduce", name, "--out", tmp_path / "x")
    assert 'pip install "uqeval[torch]"' in message
    assert not (tmp_path / "x").exists()


def test_ctrl_c_says_in_one_line_how_to_go_on(tmp_path, monkeypatch):
    from uqeval import reproduce as library

    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "synthetic", stopped)
    result = commands.call("reproduce", "synthetic", "--out", tmp_path / "x")
    assert result.code == 130
    assert result.out == ""
    assert result.err.strip().splitlines() == [
        "Stopped. What is finished is kept: run the same command again to go on."
    ]


def test_a_bar_shows_on_a_terminal_only(monkeypatch):
    clock = Clock(quiet=False)
    assert clock.console.quiet  # the tests' stderr is none
    with clock.stage("work") as progress:
        progress(1, 2)
    assert list(clock.spent) == ["work"]
    assert clock.remark() is None
    assert Path(command.__file__).name == "reproduce.py"
