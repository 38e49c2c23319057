"""`uqeval apply`: which rows of a file does a threshold accept?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from uqeval.cli import options as o
from uqeval.cli.check import load_threshold
from uqeval.cli.output import check_outputs, stdout, write_json
from uqeval.cli.progress import status_console
from uqeval.cli.told import provenance, with_provenance


@o.with_columns
def apply(
    threshold: Annotated[str, typer.Argument(help="What `uqeval threshold --json FILE` wrote.")],
    predictions: Annotated[
        str, typer.Argument(help="New rows: CSV, Parquet, Arrow/Feather or JSON lines; no labels needed.")
    ],
    out: Annotated[str, o.option("The file to write, in the same format.", metavar="FILE")],
    column: Annotated[str, o.option("Name of the new column: true where one may act.")] = "accept",
    score: Annotated[
        str | None, o.option("Score to use, where the threshold does not know its name.", "--score", metavar="NAME")
    ] = None,
    max_risk: Annotated[float | None, o.option("Which threshold, where the file holds several.")] = None,
    json: o.Json = None,
    quiet: o.Quiet = False,
    *,
    columns: dict[str, Any],
) -> None:
    """Mark the rows of a file: accept, or defer to somebody.

    It streams, so that any size does, and writes the file whole or not at all.

    Example:  uqeval apply threshold.json new.parquet --out marked.parquet
    """
    from uqeval.decide.apply import apply_file  # NumPy, which --help need not wait for

    check_outputs({"--json": json, "--out": out}, [threshold, predictions])
    promise = load_threshold(threshold, max_risk)
    with status_console(quiet).status("Marking rows…"):
        done = apply_file(promise, predictions, out, score=score, column=column, **columns)
    if json is not None:
        beside = provenance([threshold, predictions], columns=columns)
        write_json(with_provenance(done.to_json(), beside), json)
    if json != "-" and not quiet:
        stdout().print(Text(str(done)), soft_wrap=True)
        if not promise.feasible:
            stdout().print(Text("! The threshold accepts nothing.", style="yellow"))
