"""What a gate tells other programs: JUnit XML, a summary of a GitHub job, lines that GitHub shows beside a commit.

Texts of users go through the escapes of each format: a name cannot add a test case, a table cell or a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from uqeval._signs import NOT_XML, visible
from uqeval.gate.result import CODES, FAIL, PASS, UNCLEAR, GateResult, Verdict

# Without xml.sax, which loads what talks to servers: 20 ms.
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)
_MARKS = {PASS: "✅", FAIL: "❌", UNCLEAR: "❔"}
_ELEMENT = {FAIL: "failure", UNCLEAR: "error"}  # of JUnit: what cannot be told is no pass, and no skip either


def junit(result: GateResult) -> str:
    """A test case per rule; what cannot be told is an error, since readers take a skipped test for a good one."""
    counts = [sum(v.status == status for v in result.verdicts) for status in CODES]
    head = f'tests="{len(result.verdicts)}" failures="{counts[1]}" errors="{counts[2]}" skipped="0"'
    cases = "\n".join(_case(verdict) for verdict in result.verdicts)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {head}>\n<testsuite name="uqeval gate" {head}>\n'
        f"{cases}\n</testsuite>\n</testsuites>\n"
    )


def _case(verdict: Verdict) -> str:
    name = f'<testcase classname="uqeval.gate" name={_attribute(verdict.rule)}'
    if (element := _ELEMENT.get(verdict.status)) is None:
        return f"{name}/>"
    message = _attribute(f"{verdict.cell}: {verdict.why}")
    text = _escaped(f"{verdict.rule}: {verdict.status}. {verdict.why}")
    kind = _attribute(verdict.status)
    return f"{name}>\n<{element} type={kind} message={message}>{text}</{element}>\n</testcase>"


def _attribute(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return NOT_XML.sub("\ufffd", text).translate(_ESCAPES)


def summary(result: GateResult) -> str:
    """Markdown for the page of a GitHub job."""
    lines = [f"### {_MARKS[result.status]} uqeval gate: {_cell(result.headline())}", ""]
    lines += ["| | rule | value (interval) | why |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {_MARKS[v.status]} {v.status} | {_cell(v.rule)} | {v.cell} | {_cell(v.why)} |" for v in result.verdicts
    ]
    lines += ["", *(f"- {_cell(note)}" for note in result.warnings)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text in a cell of a Markdown table, with nothing in it that Markdown or HTML would obey."""
    return re.sub(r"([\\`*_{}\[\]<>|#!~&@])", r"\\\1", visible(" ".join(text.split())))


def workflow_commands(result: GateResult) -> Iterable[str]:
    """Workflow commands: an error for each rule that does not pass."""
    for verdict in result.verdicts:
        if verdict.status != PASS:
            title = _data(f"uqeval gate: {verdict.status}").replace(":", "%3A").replace(",", "%2C")
            yield f"::error title={title}::{_data(f'{verdict.rule}: {verdict.cell}; {verdict.why}')}"


def _data(text: str) -> str:
    """The escapes of GitHub's workflow commands, without which a line break would begin another one."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
