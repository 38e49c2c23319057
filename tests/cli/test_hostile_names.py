"""Names that are markup, formulas, commands of a terminal or of a build: every output shows them, none obeys them."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import uqeval as uq
from cases import each, noted
from commands import call
from uqeval._errors import notify
from uqeval._result import Grid, csv_text

EVIL = "=1+1\r\n::error::a ##[error]b\x1b[31m\x1b]0;c\x07\x9b2J\u202e\u2028[red]|`%0A</script><img src=x onerror=d>"
BOO = "::stop-commands::x"
JOB = {"GITHUB_ACTIONS": "true", "COLUMNS": "70"}
# Of a terminal: all but the line break. What turns text around, and other ends of a line.
COMMANDING = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u2028\u2029\u202a\u202b\u202c\u202d\u202e"} - {"\n"}


def write(path, seed=0, n=120):
    """Scores, classes, groups, ids and columns of such names."""
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    wrong = rng.random(n) < 0.5 - np.abs(p - 0.5)
    classes = np.where((p > 0.5) ^ wrong, EVIL, BOO)
    columns = {"label": classes, f"prob_{EVIL}": p, f"prob_{BOO}": 1 - p}
    columns |= {f"score_{EVIL}": rng.random(n) / 4 - np.abs(p - 0.5), f"score_{BOO}": rng.random(n)}
    columns |= {EVIL: [(EVIL, BOO)[k % 2] for k in range(n)], "id": [f"{EVIL}{seed}-{k}" for k in range(n)]}
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files, a policy, a threshold."""
    found = tmp_path_factory.mktemp("names")
    write(found / "new.csv", seed=1)
    rules = [f'[[rule]]\nmetric = "uq_auc"\nscore = {json.dumps(name)}\nat_least = 0.99\n' for name in (EVIL, BOO)]
    (found / "p.toml").write_text("\n".join(rules), encoding="utf-8")
    asked = ("threshold", write(found / "old.csv"), "--score", EVIL, "--max-risk", "0.5", "--json", found / "t.json")
    assert call(*asked, "--quiet").code == 0
    return found


def of_each_command(folder):
    """Every command that shows names, with its files; then the names where nothing is known by them."""
    old, new, promise = folder / "old.csv", folder / "new.csv", folder / "t.json"
    pages = {name: ("--html", folder / f"{name}.html") for name in ("evaluate", "compare", "monitor")}
    by = ("--by", EVIL)
    return {
        "evaluate": ("evaluate", old, *by, *pages["evaluate"], "--csv", folder / "evaluate.csv"),
        "local": ("evaluate", old, *by, "--engine", "local", "--score", EVIL),
        "compare": ("compare", old, *by, *pages["compare"], "--csv", folder / "compare.csv"),
        "threshold": ("threshold", old, *by, "--each", "--score", EVIL, "--max-risk", "0.5"),
        "rows": ("threshold", old, "--score", EVIL, "--max-risk", "0.5", "--csv", folder / "rows.csv"),
        "check": ("check", promise, new, "--state", folder / "state.json"),
        "apply": ("apply", promise, new, "--out", folder / f"{BOO}.csv", "--column", f"{EVIL}2"),
        "monitor": (
            *("monitor", promise, new, *by, "--key", "id", "--state", folder / f"{BOO}\n{BOO}"),
            *(*pages["monitor"], "--prometheus", folder / "m.prom"),
        ),
        "gate": ("gate", folder / "p.toml", old, *by, "--junit", folder / "gate.xml"),
        "power": ("power", old, "--score", EVIL, "--half-width", "0.05"),
        "no score": ("evaluate", old, "--score", f"{EVIL}?"),
        "no column": ("evaluate", old, "--label", f"{EVIL}?"),
        "no file": ("evaluate", f"{EVIL}.csv"),
        "no metric": ("evaluate", old, "--metrics", EVIL),
        "no state": ("check", promise, new, "--state", folder / EVIL / "s.json"),
    }


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_no_command_obeys_a_name_in_a_terminal_a_build_a_page_a_spreadsheet_or_a_monitor(folder):
    summary = folder / "summary.md"
    for name, args in of_each_command(folder).items():
        found = call(*args, env=JOB | {"GITHUB_STEP_SUMMARY": str(summary)})
        with noted(name=name, out=found.out, err=found.err):
            assert found.code == 2 if name.startswith("no ") else found.code in (0, 1, 3)
            if name in ("no score", "no column", "no file", "no metric"):  # it is shown
                assert "␍␊∶:error∶:a ♯#[error]b␛[31m␛]0;c␇" in found.err
            for text in (found.out, found.err):
                told = [line for line in text.split("\n") if line.lstrip().startswith("::")]
                assert all(line.startswith("::error title=uqeval gate%3A ") for line in told)
                assert len(told) == (2 if name == "gate" and text else 0)
                assert not COMMANDING & {*text}, COMMANDING & {*text}
                assert all("##[" not in line for line in text.split("\n") if line not in told)
            assert len(found.err.splitlines()) == name.startswith("no ")
    for path in folder.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        with noted(path=path):
            assert Page(text).tags.count("script") == (0 if path.name == "monitor.html" else 3)
            assert "img" not in Page(text).tags
            assert not (COMMANDING - {"\t"}) & {*text.partition("<script>")[0]}
    for path in (folder / name for name in ("evaluate.csv", "compare.csv", "rows.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            cells = {cell for row in csv.reader(file) for cell in row}
        assert any(EVIL in cell for cell in cells)
        assert not any(cell.startswith(("=", "@", "\r", "\n")) for cell in cells)
    table = [line for line in summary.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in table} == {5}
    assert not COMMANDING & {*summary.read_text(encoding="utf-8")}
    assert len(ET.parse(folder / "gate.xml").findall(".//testcase")) == 2
    lines = (folder / "m.prom").read_bytes().decode().split("\n")
    assert all(line.startswith(("uqeval_", "# HELP uqeval_", "# TYPE uqeval_")) for line in lines if line)


def test_json_for_a_terminal_holds_names_whole_and_gives_the_build_no_command(folder):
    out = call("evaluate", folder / "old.csv", "--json", "-", env=JOB).out
    assert "##[" not in out
    assert not COMMANDING & {*out}
    assert {e["score"] for e in json.loads(out)["estimates"]} >= {EVIL, BOO}


@each("kind", ["svg", "png", "html"])
def test_a_chart_of_names_that_xml_has_no_place_for_is_drawn(tmp_path, kind):
    rng = np.random.default_rng(0)
    names = (EVIL, "\x00", "\ud800", "\ufffe", BOO)
    ev = uq.evaluate(score={name: rng.random(60) for name in names}, error=np.arange(60) % 3 == 0, metrics="uq_auc")
    path = tmp_path / f"chart.{kind}"
    uq.plot.risk_coverage(ev).save(path)
    assert path.stat().st_size > 10_000
    if kind == "svg":
        assert "␛[31m" in path.read_text(encoding="utf-8")


def test_printed_tables_and_markdown_keep_their_shape_whatever_is_in_a_cell():
    grid, plain = (Grid(["name", "value"], [[name, "1"], ["b", "2"]]) for name in (EVIL, "a"))
    assert grid.text().count("\n") == plain.text().count("\n")
    assert grid.markdown().count("\n") == plain.markdown().count("\n")
    assert not COMMANDING & {*grid.text(), *grid.markdown()}
    assert {line.replace(r"\|", "").count("|") for line in grid.markdown().split("\n")} == {3}


def test_what_python_and_a_notebook_show_of_a_result_commands_nothing():
    rng = np.random.default_rng(0)
    score, error = {EVIL: rng.random(90), "b": rng.random(90)}, rng.random(90) < 0.3
    found = uq.evaluate(score=score, error=error, groups=[EVIL, "y"] * 45, metrics="uq_auc")
    chosen = replace(uq.choose_threshold(score[EVIL], error, max_risk=0.9), score=EVIL)
    for result in (found, uq.compare(score, error=error), chosen, chosen.check(score["b"], error)):
        for text in (str(result), getattr(result, "_repr_html_", str)()):
            assert not COMMANDING & {*text}
            assert "<img" not in text or text == str(result)


def test_a_text_that_begins_like_a_formula_gets_an_apostrophe_and_a_number_does_not():
    starts = ["=1", "+1", "-1", "@f", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠f"]
    rows = list(csv.reader(io.StringIO(csv_text({"x": value} for value in (*starts, -1.5)), newline="")))
    assert [row[0] for row in rows] == ["x", *(f"'{start}" for start in starts), "-1.5"]


def test_an_error_and_a_warning_with_such_a_name_are_one_harmless_line():
    with pytest.raises(uq.InputError) as error:
        uq.evaluate(score={EVIL: [0.1, 0.2]}, error=[0, 1], metrics="uq_auc", scores=f"{EVIL}?")
    with pytest.warns(uq.UQWarning) as warned:
        notify(EVIL)
    for text in (str(error.value), *(str(one.message) for one in warned)):
        assert not (COMMANDING | {"\n"}) & {*text}
