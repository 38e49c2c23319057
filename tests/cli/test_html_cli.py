"""`--html` of the commands: the report beside the table."""

from __future__ import annotations

import hashlib
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import uqeval
from commands import call, fail, succeed
from uqeval.inputs.columns import Columns
from uqeval.inputs.files import PredictionFiles
from uqeval.pages import paper

N = 300


@pytest.fixture
def preds(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(N).round(6)
    label = (rng.random(N) < p).astype(int)
    lines = ["label,prob_0,prob_1,image,group"]
    for k, (y, a) in enumerate(zip(label, p, strict=True)):
        lines.append(f"{y},{1 - a:.6f},{a:.6f},img{k}</script>.png,{'ab'[k % 2]}")
    path = tmp_path / "preds.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_evaluate_writes_the_report_and_says_where(preds, tmp_path):
    target = tmp_path / "report.html"
    out = succeed("evaluate", preds, "--scores", "entropy,margin", "--html", target, "--columns", "image")
    assert f"report: {target}" in out.replace("\n", "")
    text = target.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "&lt;/script&gt;.png" in text
    assert "img1</script>" not in text


def test_quiet_and_json_stay_quiet_beside_a_report(preds, tmp_path):
    assert succeed("evaluate", preds, "--scores", "entropy", "--html", tmp_path / "a.html", "--quiet") == ""
    out = succeed("evaluate", preds, "--scores", "entropy", "--html", tmp_path / "b.html", "--json", "-")
    assert out.lstrip().startswith("{")
    assert out.rstrip().endswith("}")
    assert (tmp_path / "b.html").exists()


def test_compare_writes_the_report_of_one_metric(preds, tmp_path):
    target = tmp_path / "compare.html"
    out = succeed("compare", preds, "--scores", "entropy,margin", "--html", target)
    assert "report:" in out
    assert "entropy" in target.read_text()
    result = call("compare", preds, "--scores", "entropy,margin", "--metric", "uq_auc,aurc", "--html", target)
    assert result.code == 2
    assert "--html shows one metric" in result.err


def test_demo_leaves_its_report_in_the_folder():
    succeed("demo")
    assert "Digits" in Path("uqeval-demo.html").read_text()
    Path("uqeval-demo.html").unlink()
    succeed("demo", "--html", "")
    assert not Path("uqeval-demo.html").exists()


def test_columns_without_a_report_or_without_a_column_are_refused(preds, tmp_path):
    assert "--html" in call("evaluate", preds, "--scores", "entropy", "--columns", "image").err
    result = call("evaluate", preds, "--scores", "entropy", "--html", tmp_path / "x.html", "--columns", "imaeg")
    assert result.code == 2
    assert 'Did you mean "image"' in result.err.replace("\n", " ")


def test_a_report_that_cannot_be_written_is_one_message(preds, tmp_path):
    result = call("evaluate", preds, "--scores", "entropy", "--quiet", "--html", tmp_path / "no" / "x.html")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "no folder" in result.err


def test_further_columns_follow_the_rows_of_several_files(preds, tmp_path):
    head, *rows = preds.read_text().splitlines()
    for name, part in (("a", rows[:100]), ("b", rows[100:])):
        (tmp_path / f"part_{name}.csv").write_text("\n".join([head, *part]) + "\n")
    pattern = str(tmp_path / "part_*.csv")
    found = PredictionFiles(pattern, Columns()).further(["image", "label"])
    assert found["image"] == [row.split(",")[3] for row in rows]
    assert found["label"] == uqeval.read_predictions(pattern).labels.tolist()


def test_an_npz_file_has_no_further_columns(tmp_path):
    np.savez(tmp_path / "x.npz", labels=[0, 1, 1], probs=[[0.5, 0.5], [0.1, 0.9], [0.6, 0.4]])
    assert "NPZ" in fail("evaluate", tmp_path / "x.npz", "--quiet", "--html", tmp_path / "x.html", "--columns", "a")


# ---- paper -----------------------------------------------------------------------------------------------------


@pytest.fixture
def chromium(tmp_path, monkeypatch):
    """A program that prints what it was asked for, as a Chromium would; `behave` changes what it does."""
    program = tmp_path / "chromium"

    def behave(lines):
        program.write_text("#!/bin/sh\n" + lines)
        program.chmod(0o755)

    behave(
        'for a in "$@"; do case $a in --print-to-pdf=*) out=${a#*=};; file://*) page=${a#file://};; esac; done\n'
        f'tail -1 "$page" > {tmp_path}/seen; echo "$@" >> {tmp_path}/seen; printf "%%PDF-1.4 %s" x > "$out"\n'
    )
    monkeypatch.setenv("UQEVAL_CHROMIUM", str(program))
    return behave


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_pdf_is_printed_by_a_chromium_beside_the_page_and_leaves_nothing_else(preds, tmp_path, chromium):
    html, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    before = set(tmp_path.iterdir())
    out = succeed("evaluate", preds, "--scores", "entropy", "--html", html, "--pdf", pdf)
    assert f"report: {pdf}" in out.replace("\n", "")
    assert pdf.read_bytes() == b"%PDF-1.4 x"
    assert set(tmp_path.iterdir()) - before == {html, pdf, tmp_path / "seen"}
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("</html>")
    assert "--headless" in seen
    assert "--user-data-dir=" in seen
    succeed("compare", preds, "--scores", "entropy,margin", "--pdf", tmp_path / "cmp.pdf")
    assert (tmp_path / "cmp.pdf").exists()
    uqeval.report(uqeval.evaluate(str(preds), scores="entropy"), tmp_path / "direct.PDF")
    assert (tmp_path / "direct.PDF").read_bytes().startswith(b"%PDF-")


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
def test_a_pdf_that_cannot_be_printed_says_why_and_leaves_the_old_one(preds, tmp_path, chromium, monkeypatch):
    pdf = tmp_path / "report.pdf"
    pdf.write_text("old")
    asked = ("evaluate", preds, "--scores", "entropy", "--pdf", pdf)
    chromium('echo "no usable sandbox" >&2; exit 3\n')
    printed = call(*asked)
    err = printed.err
    assert printed.code == 2
    assert "--pdf: " in err
    assert "no usable sandbox" in err
    assert "exit 3" in err
    monkeypatch.setattr("uqeval.evaluate", lambda *_, **__: pytest.fail("the work began"))
    monkeypatch.setenv("UQEVAL_CHROMIUM", "no-such-program")
    assert "UQEVAL_CHROMIUM is 'no-such-program'" in fail(*asked)
    monkeypatch.delenv("UQEVAL_CHROMIUM")
    monkeypatch.setattr("uqeval.pages.paper.shutil.which", lambda _: None)
    err = fail(*asked)
    assert "--pdf: a PDF is printed by Chromium" in err
    assert "apt-get install chromium" in err
    assert pdf.read_text() == "old"
    with pytest.raises(uqeval.InputError, match="printed by Chromium"):
        paper.check_pdf(pdf)


def test_the_page_names_the_command_and_the_files(preds, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    monkeypatch.setattr("sys.argv", ["uqeval", "evaluate", "preds & co.csv", "--html", "r.html"])
    succeed("evaluate", preds, "--scores", "entropy", "--html", target)
    text = unescape(target.read_text())
    assert "uqeval evaluate" in text
    assert hashlib.sha256(preds.read_bytes()).hexdigest() in text
    assert str(preds) in text
