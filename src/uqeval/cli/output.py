"""Tables and colours in the terminal."""

from __future__ import annotations

import json
import sys
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uqeval._files import write_whole

if TYPE_CHECKING:
    from uqeval.distributed.bounds.files import Certain
    from uqeval.evaluation.result import Evaluation, Panel

_CELL = 26  # characters of a metric column: "0.0059 (0.0043–0.0082) *"


def stdout() -> Console:
    return Console(highlight=False, emoji=False)  # a file may be named ":key:"


def stderr() -> Console:
    return Console(stderr=True, highlight=False, emoji=False)


def write_json(text: str, target: str) -> None:
    """To a file, or to stdout for "-"."""
    if target == "-":
        print(_encodable(text))
        return
    write_whole(target, text + "\n", "--json")


def _encodable(text: str) -> str:
    """JSON that stdout can write: escapes where it is not UTF-8."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=2)
    return text


def print_evaluation(ev: Evaluation, console: Console | None = None) -> None:
    """Headline, verdict, tables, the model itself, what to beware of."""
    # Names are `Text`: the user's brackets, colons and backslashes are printed as they are.
    out = console or stdout()
    out.print(Text(ev.headline(), style="bold"))
    if few := ev.too_few():
        out.print(Text(f"! {few}", style="bold yellow"))
    for line in ev.verdict():
        out.print(Text(line, style="cyan"))
    names = max(len(name) for name in ev.scores)
    for panel in ev.panels(width=max(1, (out.width - names - 4) // _CELL)):
        out.print(_table(ev, panel))
    if ev.groups:
        out.print("all metrics of all groups: --json", style="dim")
    model = ev.model_lines()
    if model:
        table = Table(title="the model itself", title_justify="left", title_style="bold", box=None, show_header=False)
        for title, estimate in model:
            table.add_row(Text(title), str(estimate))
        out.print(table)
    if len(ev.scores) > 1:
        out.print("[green bold]*[/] best score of the column   ↑ higher is better   ↓ lower is better", style="dim")
    if detectable := ev.detectable_line():
        out.print(detectable, style="dim")
    for note in (*ev.mixed_lines(), *ev.tie_notes(), *ev.warnings):
        out.print(Text(f"! {note}", style="yellow"))


def print_bounds(found: Certain, console: Console | None = None) -> None:
    """Bounds of each score, and what they are not."""
    out = console or stdout()
    first = next(iter(found.scores.values()))
    head = f"{first.n:,} rows"
    if first.n_errors is not None:
        head += f", {first.n_errors:,} errors, accuracy {first.accuracy:.5f} (exact)"
    out.print(Text(head, style="bold"))
    out.print(Text("Certain for exactly these rows; not a confidence interval.", style="cyan"))
    table = Table(header_style="bold", padding=(0, 1))
    table.add_column("score", overflow="fold")
    for heading in ("metric", "value"):
        table.add_column(heading, no_wrap=True)
    titles = {"uq_auc": "UQ-AUC", "uq_c_index": "UQ-C-index", "aurc": "AURC", "augrc": "AUGRC"}
    for name, one in found.scores.items():
        for metric, title in titles.items():
            if (bounds := getattr(one, metric)) is not None:
                table.add_row(Text(name), title, str(bounds))
    out.print(table)
    for name, one in found.scores.items():
        if not one.reached:
            wide = max(b.width for b in (one.uq_auc, one.uq_c_index) if b is not None)
            out.print(
                Text(f"! {name}: the width asked for, {one.approx:g}, was not reached ({wide:.2g})", style="yellow")
            )
    out.print(Text(found.summary(), style="dim"))


def _table(ev: Evaluation, panel: Panel) -> Table:
    title = None if panel.title is None else Text(panel.title)
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", padding=(0, 1))
    # Long names fold; numbers stay whole.
    table.add_column("score", overflow="fold")
    for heading, _, _ in panel.columns:
        lines = wrap(heading, _CELL - 3, replace_whitespace=False, drop_whitespace=False)
        table.add_column(Text("\n".join(lines)), no_wrap=True)
    for name, cells in ev.cells(panel):
        table.add_row(Text(name), *(f"[bold green]{text} *[/]" if top else text for text, top in cells))
    return table
