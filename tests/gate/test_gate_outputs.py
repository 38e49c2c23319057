"""What other programs read of a gate: JUnit XML, a Markdown summary, workflow commands. No name can break out."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from uqeval.gate.outputs import junit, summary, workflow_commands
from uqeval.gate.result import GateResult, Verdict

EVIL = 'a|b\n::error::x <img src=x onerror="y"> `code` \x1b[31m ]]> %0A [l](http://x) @all'


def result(*statuses, rule="entropy: uq_auc ≥ 0.8"):
    verdicts = [
        Verdict(rule, status, "uq_auc", "entropy", None, 0.7, 0.6, math.nan, 0.8, "low", 90, "so it is")
        for status in statuses
    ]
    return GateResult(tuple(verdicts), 0.95, len(verdicts), 90)


def test_junit_counts_what_cannot_be_told_as_an_error_and_never_as_a_pass():
    root = ET.fromstring(junit(result("pass", "fail", "too few rows to tell")))
    suite = root.find("testsuite")
    assert {**suite.attrib} == {"name": "uqeval gate", "tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]
    assert suite[1][0].attrib["type"] == "fail"
    assert "so it is" in suite[1][0].text


def test_junit_of_any_name_is_xml_that_gives_the_name_back_but_for_control_characters():
    for name in (EVIL, "two\r\nlines\tand 'both' \"quotes\" & <all>"):
        case = ET.fromstring(junit(result("fail", rule=name))).find("testsuite")[0]
        assert case.attrib["name"] == name.replace("\x1b", "\ufffd")
        assert case[0].text.startswith(name.replace("\x1b", "\ufffd"))


def test_a_name_adds_no_cell_no_line_and_no_markup_to_the_summary():
    plain, evil = (summary(result("fail", "pass", rule=rule)) for rule in ("x", EVIL))
    assert plain.count("\n") == evil.count("\n")
    cells = [[re.sub(r"\\.", "", line).count("|") for line in text.splitlines()] for text in (plain, evil)]
    assert cells[0] == cells[1]
    assert not re.search(r"(?<!\\)[<`\[@]", evil)


def test_each_rule_that_does_not_pass_is_one_workflow_command():
    lines = list(workflow_commands(result("pass", "fail", "too few rows to tell", rule=EVIL)))
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("::error title=uqeval gate%3A ")
        assert "\n" not in line
        assert "%250A" in line


def test_the_result_shows_every_rule():
    pytest.importorskip("pandas")
    found = result("pass", "too few rows to tell")
    for text in (str(found), found._repr_html_()):
        assert "too few rows to tell: 2 rules on 90 rows: 1 passed, 0 failed, 1 cannot be told" in text
    assert found.to_frame("pandas")["status"].tolist() == ["pass", "too few rows to tell"]
