"""What a command says of a gate, and where a stored result comes from: the terminal, GitHub, provenance, CSV."""

from __future__ import annotations

import json as codec
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._files import write_whole
from uqeval._signs import in_job_of_github, visible
from uqeval.cli.interrupt import stop_if_asked
from uqeval.cli.output import stderr, stdout

if TYPE_CHECKING:
    from uqeval.gate.result import GateResult

_STYLES = {"pass": "green", "fail": "bold red", "too few rows to tell": "bold yellow"}


def command_line() -> str:
    """As it was called."""
    import shlex  # most commands store nothing

    return shlex.join(["uqeval", *sys.argv[1:]])


def provenance(
    paths: Sequence[str], predictions: uqeval.Predictions | None = None, *, columns: Mapping[str, Any], **how: Any
) -> dict[str, Any]:
    """Files with hashes, columns, clusters, command, seed."""
    from uqeval.inputs.elsewhere import is_elsewhere
    from uqeval.inputs.origin import provenance_of  # NumPy, which --help need not wait for
    from uqeval.inputs.paths import expand

    known = () if predictions is None else predictions.files
    here = [path for path in paths if path == "-" or not is_elsewhere(path)]  # an address would be fetched once more
    files = known or (expand(here) if here else ())
    return provenance_of(files, predictions, columns=columns, command=command_line(), **how)


def with_provenance(text: str, beside: Mapping[str, Any]) -> str:
    """JSON of a result that has no place for it itself."""
    from uqeval._result import to_json  # NumPy, which --help need not wait for

    return to_json({**codec.loads(text), "provenance": beside})


def write_csv(rows: Iterable[Mapping[str, Any]], target: str) -> None:
    """A table for a spreadsheet."""
    from uqeval._result import csv_text  # NumPy, which --help need not wait for

    stop_if_asked()
    write_whole(target, csv_text(rows), "--csv")


def print_gate(result: GateResult) -> None:
    """The answer, a row per rule, what to beware of."""
    out = stdout()
    out.print(Text(result.headline(), style=_STYLES[result.status]))
    table = Table(header_style="bold", padding=(0, 1))
    for name, fold in (("rule", "fold"), ("value (interval)", "fold"), ("verdict", "fold"), ("why", "fold")):
        table.add_column(name, overflow=fold)  # type: ignore[arg-type]
    for verdict in result.verdicts:
        cells = (verdict.rule, verdict.cell, verdict.status, verdict.why)
        table.add_row(*(Text(cell, style=_STYLES[verdict.status] if k == 2 else "") for k, cell in enumerate(cells)))
    out.print(table)


def tell_github(result: GateResult, json: str | None) -> None:
    """Inside a job of GitHub Actions: lines beside the commit, and a table on the page of the job."""
    from uqeval.gate.outputs import summary, workflow_commands  # few commands have a gate

    if in_job_of_github():
        stop_if_asked()
        for line in workflow_commands(result):
            print(visible(line), file=sys.stderr if json == "-" else sys.stdout)  # it reads both
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(path).open("a", encoding="utf-8", newline="\n") as file:
                file.write(summary(result))
        except OSError as error:  # the verdict stands without it
            note = f"! GITHUB_STEP_SUMMARY: {path!r} cannot be written ({error.strerror})."
            stderr().print(Text(note, style="yellow"), soft_wrap=True)
