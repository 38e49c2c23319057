"""Names of files that shells, globs and encodings find hard: read and written as they are, or one sentence."""

from __future__ import annotations

import os
import sys

import pytest

import uqeval as uq
from cases import each
from commands import fail, succeed

ROWS = "error,score_a\n" + "".join(f"{int(k % 3 == 0)},{k / 30}\n" for k in range(30))
ODD = ("a b.csv", "ä 🔥.csv", "-l.csv", "a[1].csv", "[!x].csv", "~x.csv", "$HOME.csv", "#%41.csv", "a,b;c.csv")
ODD += ("{a,b}.csv", "..csv", "A.CSV", "a'.csv")
ODD += () if sys.platform == "win32" else ("a*?.csv", 'a"b.csv', "a\nb.csv", "a:b.csv")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each("name", ODD)
def test_a_file_of_any_name_is_read_by_it_and_outputs_of_any_name_are_written(here, name):
    (here / name).write_text(ROWS, encoding="utf-8")
    right = uq.read_predictions(here / name)
    assert right.n == 30
    for engine in ("memory", "local"):
        args = ("evaluate", "--metrics", "uq_auc", "--engine", engine, "--json", f"out {name}", "--csv", f"{name}.out")
        succeed(*args, "--", name)
        assert {one.name for one in here.iterdir()} == {name, f"out {name}", f"{name}.out"}
    for one in here.iterdir():
        one.unlink()


def test_what_is_no_file_is_said_as_what_it_is(here):
    (here / "e.csv").write_text(ROWS, encoding="utf-8")
    (here / "broken.csv").symlink_to("nowhere")
    (here / "loop.csv").symlink_to("loop.csv")
    (here / "dir.csv").mkdir()
    for asked, said in (
        ("broken.csv", "broken.csv: is a link to nowhere, where there is no file."),
        ("loop.csv", "loop.csv: is a link to loop.csv, where there is no file."),
        ("no[.csv", "no[.csv: no file matches this pattern."),
        ("**/no*.csv", r"**/no*.csv: no file matches this pattern."),
        ("e.csv/x.csv", "e.csv/x.csv: there is no such file."),
        ("dir.csv", "dir.csv: is a folder."),
        ("x" * 300 + ".csv", ": there is no such file."),
        ("a\0b.csv", "a␀b.csv: there is no such file."),
    ):
        with pytest.raises(uq.InputError) as refused:
            uq.read_predictions(asked)
        assert said in str(refused.value)
    assert "--json: 'xxx" in fail("evaluate", "e.csv", "--json", "x" * 300)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes, names of any bytes")
def test_a_pipe_by_name_and_a_name_in_no_encoding_are_refused_with_the_way_out(here):
    os.mkfifo("pipe.csv")
    assert "pipe.csv: is no file but a pipe or a device. Save what it gives, or pipe it to `uqeval … -`." in fail(
        "evaluate", "pipe.csv"
    )
    if sys.platform == "linux":  # others refuse such names themselves
        (here / "\udcff.csv").write_text(ROWS, encoding="utf-8")
        with pytest.raises(uq.InputError, match=r"the file's name is not UTF-8, which Arrow needs\. Rename it\."):
            uq.read_predictions("\udcff.csv")


def test_a_folder_that_may_not_be_looked_into_hides_nothing_of_the_message(here, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(uq.InputError, match=r"^no\.csv: there is no such file\.$"):
        uq.read_predictions("no.csv")


def test_a_file_that_may_not_be_read_is_one_sentence(here, monkeypatch):
    (here / "mine.csv").write_text(ROWS, encoding="utf-8")
    (here / "mine.csv").chmod(0)
    if os.access("mine.csv", os.R_OK):
        pytest.skip("this user may read every file")
    assert "mine.csv: cannot be read" in fail("evaluate", "mine.csv")
