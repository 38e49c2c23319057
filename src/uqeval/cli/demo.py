"""`uqeval demo`: the main job on the built-in example."""

from __future__ import annotations

from typing import Annotated

import typer

import uqeval
from uqeval.cli.output import print_evaluation, stdout, write_json

__all__ = ["demo"]

_METRICS = ["uq_auc", "uq_c_index", "aurc", "accuracy", "ece", "brier"]


def demo(
    json: Annotated[
        str | None, typer.Option(help="Write JSON to this file, or '-' for stdout.", metavar="FILE|-")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All metrics, not the main ones.")] = False,
) -> None:
    """The built-in example: eleven scores of one deep ensemble, no file and no network needed.

    Example:  uqeval demo
    """
    pred = uqeval.datasets.example()
    ev = uqeval.evaluate(pred, metrics=None if everything else _METRICS)
    if json is not None:
        write_json(ev.to_json(), json)
    if json == "-":
        return
    out = stdout()
    out.print("Five small networks learned to read digits from 250 images. Here is what they say about 1,547 others,")
    out.print("and how well each uncertainty score tells their mistakes. Groups: width of the pen stroke.\n")
    print_evaluation(ev, out)
    out.print("\nNow your own predictions:  [bold]uqeval evaluate preds.csv[/]")
    out.print(
        "(columns: label, prob_<class>, …; or score_<name> and error; see uqeval evaluate --help)",
        style="dim",
    )
