"""Tables and colours in the terminal."""

from __future__ import annotations

import codecs
import glob
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from uqeval._errors import InputError
from uqeval._files import check_target, identity, write_whole
from uqeval._signs import COMMAND, PICTURES, in_job_of_github, in_one_line, no_commands, visible
from uqeval.cli.interrupt import stop_if_asked

if TYPE_CHECKING:
    from uqeval._result import Grid
    from uqeval.distributed.bounds.files import Certain
    from uqeval.evaluation.result import Evaluation
    from uqeval.evaluation.table import Panel
    from uqeval.inputs import Predictions

_WORD = 16  # characters of a word that a narrow table keeps whole: "(0.1234–0.5678)"
_CELL = 26  # characters of a metric column: "0.0059 (0.0043–0.0082) *"

# What a console without Unicode shows instead.
_WORDS = {"↑": "up", "↓": "down", "→": "to", "–": "-", "−": "-", "—": "-", "≤": "<=", "≥": ">=", "≠": "!=", "±": "+-"}
_WORDS |= {
    "·": "|",
    "…": "...",
    "×": "x",
    "∞": "inf",
    "“": '"',
    "”": '"',
    "’": "'",
    "Δ": "gap",
    "δ": "delta",
    "ϕ": "phi",  # the error probability; the next is the misalignment
    "φ": "varphi",
    "β": "beta",
    "γ": "gamma",
    "κ": "kappa",
    "τ": "tau",
    "ψ": "psi",
    "𝓔": "E",
    "∈": "in",
    "∖": "less",
    "½": "1/2",
}
_WORDS |= {picture: f"\\x{code:02x}" for code, picture in PICTURES.items() if picture != "\ufffd"} | {"\ufffd": "?"}


# The same words as options, where a message speaks of arguments.
_AS_OPTION = {
    "again=True": "--again",
    "`each`": "--each",
    "groups=, one entry per row": "--by COLUMN",
    "normalize=True": "--normalize",
    "largest_cluster=": "--largest-cluster ",
    "largest_cluster = ": "--largest-cluster ",
    "without largest_cluster": "without --largest-cluster",
    "run_length = ": "--run-length ",
    "without run_length": "without --run-length",
    "`run_length`": "--run-length",
    "largest_weight=": "--largest-weight ",
    "memory_limit": "--memory",
    "spill=": "--spill",
    "client=": "--scheduler",
    "`client` is": "--scheduler is",
    "split=0.5": "--split 0.5",
    "correct=, quality=": "--correct, --quality",
    "with label=COLUMN": "with --label COLUMN",
    "pass them as `logits`": "name their columns by --logit",
    "Leave `group` out": "Leave --by out",
    "(group)": "(--by)",
    "(cluster)": "(--cluster)",
    "Leave `cluster` out": "Leave --cluster out",
    "classes=[...]": "--classes NAME,NAME",
    "goes in as `correct` or `quality`": "goes in by --correct COLUMN or --quality COLUMN",
}
_CHOICE = re.compile(r'\b(engine|risk|cluster_method|method|labels_by)="([\w-]+)"')


def in_options(message: str) -> str:
    """A message of the library in the words of the command line."""
    message = _CHOICE.sub(lambda said: f"--{said[1].replace('_', '-')} {said[2]}", message)
    for argument, option in _AS_OPTION.items():
        message = message.replace(argument, option)
    return message


class Terminal(Console):
    """A console whose texts, which hold names from anywhere, cannot command the terminal or add a line to it."""

    def print(self, *objects: Any, **how: Any) -> None:
        """A text with names is one line, but for where the console folds it; what has markup is ours."""
        ours = how.get("markup") is not False
        super().print(*(one if ours and isinstance(one, str) else _in_one_line(one) for one in objects), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Every text goes through here."""
        in_a_job = in_job_of_github()
        for segment in super().render(renderable, options):
            if segment.control is not None:
                yield segment
            else:
                text = visible(segment.text)
                yield Segment(no_commands(text) if in_a_job else text, segment.style)

    def on_broken_pipe(self) -> None:
        """Whoever read has left; `main` knows what to do."""
        raise BrokenPipeError


def _in_one_line(one: Any) -> Any:
    if isinstance(one, str):
        return in_one_line(one)
    if isinstance(one, Text) and "\n" in one.plain:
        one = one.copy()
        one.plain = in_one_line(one.plain)
    return one


def stdout() -> Console:
    stop_if_asked()
    return Terminal(highlight=False, emoji=False)  # a file may be named ":key:"


def stderr() -> Console:
    return Terminal(stderr=True, highlight=False, emoji=False)


def use_words() -> None:
    """A console that cannot show a character gets a word for it; one in the C locale can show ASCII only."""
    codecs.register_error("uqeval", _in_words)
    chosen = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    # Python takes the C locale for UTF-8, which what reads the output does not.
    plain = chosen in ("C", "POSIX") and not any(os.environ.get(name) for name in ("PYTHONUTF8", "PYTHONIOENCODING"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="ascii" if plain else None, errors="uqeval")


def _in_words(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    words = (_WORDS.get(one) or one.encode("ascii", "backslashreplace").decode() for one in lost)
    return "".join(words), error.end


def _spelled(text: str, out: Console) -> str:
    """With words for arrows where the console has none, before columns are made as wide as their texts."""
    return (
        text if out.encoding.startswith("utf") else text.translate({ord(sign): word for sign, word in _WORDS.items()})
    )


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str] = ()) -> None:
    """Refuses what would destroy a file or cannot be written, before any work: `outputs` by option, "-" is stdout."""
    given = [os.path.expanduser(path) for path in inputs]
    taken = {identity(name): name for path in given for name in [path, *glob.glob(path, recursive=True)]}
    for option, path in outputs.items():
        if path is None or (path == "-" and option == "--json"):
            continue
        if option == "--html" and path.lower().endswith(".pdf"):
            raise InputError(
                f"--html {path} is named as a PDF. {'That is --pdf.' if '--pdf' in outputs else 'Name it .html.'}"
            )
        check_target(path, option)
        if (other := taken.get(real := identity(path))) is not None:
            raise InputError(f"{option} {path} would overwrite {other}. Name another file.")
        taken[real] = f"what {option} writes"


def write_json(text: str, target: str) -> None:
    """To a file, or to stdout for "-"."""
    stop_if_asked()
    if target == "-":
        # JSON escapes what is below a blank; the rest of what commands a terminal too.
        text = COMMAND.sub(
            lambda found: f"\\u{ord(found[0]):04x}" if ord(found[0]) > 31 else found[0], _encodable(text)
        )
        print(text.replace("##[", "##\\u005b") if in_job_of_github() else text)
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
    if classes := ev.classes_line():
        out.print(Text(classes, style="dim"))
    if few := ev.too_few():
        out.print(Text(f"! {few}", style="bold yellow"))
    for line in ev.verdict():
        out.print(Text(in_options(line), style="cyan"))
    names = max(len(name) for name in ev.scores)
    for panel in ev.panels(width=max(1, (out.width - names - 4) // _CELL)):
        out.print(_table(ev, panel, out))
    if (counts := ev.group_counts()) is not None:
        out.print(grid_table(counts))
        out.print("all metrics of all groups: --json", style="dim")
    model = ev.model_lines()
    if model:
        table = Table(title="the model itself", title_justify="left", title_style="bold", box=None, show_header=False)
        for title, estimate in model:
            table.add_row(Text(title), str(estimate))
        out.print(table)
    if len(ev.distinct) > 1:
        arrows = _spelled("↑ higher is better   ↓ lower is better", out)
        out.print(f"[green bold]*[/] best score of the column   {arrows}", style="dim")
    for remark in (ev.detectable_line(), *ev.same_numbers()):
        if remark:
            out.print(Text(remark, style="dim"))  # names of users are no markup
    for note in (*ev.mixed_lines(), *ev.tie_notes(), *ev.warnings):
        out.print(Text(f"! {in_options(note)}", style="yellow"))


def print_read_as(pred: Predictions, json: str | None) -> None:
    """What of a log was taken for what; beside JSON on stdout it goes to stderr."""
    if pred.read_as:
        (stderr() if json == "-" else stdout()).print(Text(pred.read_as, style="dim"), soft_wrap=True)


def refuse_undefined(lines: list[str]) -> None:
    """Leaves with 3, "cannot tell", where something that was asked for has no value; after all else was written."""
    if lines:
        stderr().print(Text.assemble(("Cannot tell:", "bold red"), " ", "; ".join(lines), "."), soft_wrap=True)
        raise typer.Exit(3)


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


def grid_table(grid: Grid) -> Table:
    """A table of plain texts that folds between words where the terminal is narrow: numbers and ends stay whole."""
    title = None if grid.caption is None else Text(grid.caption)
    table = Table(title=title, title_justify="left", title_style="", header_style="bold", padding=(0, 1))
    for heading, *cells in zip(grid.head, *grid.rows, strict=True):
        longest = max(len(word) for cell in (heading, *cells) for word in cell.split() or [""])
        table.add_column(Text(heading), overflow="fold", min_width=min(longest, _WORD))
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table


def _table(ev: Evaluation, panel: Panel, out: Console) -> Table:
    title = None if panel.title is None else Text(panel.title)
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", padding=(0, 1))
    # Long names fold; numbers stay whole.
    table.add_column("score", overflow="fold")
    for heading, _, _ in panel.columns:
        lines = wrap(_spelled(heading, out), _CELL - 3, replace_whitespace=False, drop_whitespace=False)
        table.add_column(Text("\n".join(lines)), no_wrap=True)
    for name, cells in ev.cells(panel):
        table.add_row(Text(name), *(f"[bold green]{text} *[/]" if top else text for text, top in cells))
    return table
