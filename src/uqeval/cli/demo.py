"""`uqeval demo`: the main job on the built-in example."""

from typing import Annotated

from rich.markup import escape

import uqeval
from uqeval._signs import in_one_line
from uqeval.cli import options as o
from uqeval.cli.compare import print_comparison
from uqeval.cli.output import check_outputs, print_evaluation, stdout, write_json
from uqeval.cli.pages import check_pdf, write_pages

_METRICS = ["uq_auc", "uq_c_index", "top_label_c_index", "aurc", "accuracy", "ece", "brier"]
_COMPARED = ["entropy", "gap_to_certain", "mutual_information", "vote_entropy"]


def demo(
    html: Annotated[str, o.option("Where to write the report; '' for none.", metavar="FILE")] = "uqeval-demo.html",
    pdf: o.Pdf = None,
    json: o.Json = None,
    files: Annotated[
        str | None,
        o.option(
            "Write the files that README speaks of to this folder, to try every command on; no demo.", metavar="DIR"
        ),
    ] = None,
    everything: Annotated[bool, o.option("All metrics, not the main ones.", "--all")] = False,
) -> None:
    """The built-in example: eleven scores of one deep ensemble, no file and no network needed.

    Example:  uqeval demo

    Example:  uqeval demo --files try
    """
    if files is not None:
        _write_files(files)
        return
    check_outputs({"--json": json, "--html": html or None, "--pdf": pdf})
    check_pdf(pdf)
    pred = uqeval.datasets.example()
    ev = uqeval.evaluate(pred, metrics=None if everything else _METRICS)
    # Files first: whoever reads the terminal may leave early.
    written = [] if json == "-" else write_pages(ev, html, pdf, title="Digits: can this uncertainty be trusted?")
    if json is not None:
        write_json(ev.to_json(), json)
    if json == "-":
        return
    out = stdout()
    out.print(
        "Five small networks learned to read digits from 250 images. Here is what they say about 1,547 others, and how "
        "well each uncertainty score tells their mistakes. Groups: width of the pen stroke.\n"
    )
    print_evaluation(ev, out)
    out.print("\n[bold]Is the difference real?[/] Four of the scores, pair by pair on the same rows:\n")
    scores = {name: uqeval.scores.compute(name, pred) for name in _COMPARED}
    error = uqeval.truth.misclassified(pred.probs, pred.labels)  # type: ignore[arg-type]
    print_comparison(uqeval.compare(scores, error=error), out)
    for path in written:
        how = "tables, on paper" if path == pdf else "a threshold explorer, to open in a browser"
        out.print(f"\nThe same with charts and {how}: [bold]{escape(in_one_line(path))}[/]")
    out.print("\nNow your own predictions:  [bold]uqeval evaluate preds.csv[/]  and  [bold]uqeval compare preds.csv[/]")
    out.print("(columns: label, prob_<class>, …; or score_<name> and error; see uqeval evaluate --help)", style="dim")
    out.print("Files to try all commands on:  [bold]uqeval demo --files DIR[/]")


def _write_files(folder: str) -> None:
    from uqeval.datasets.files import example_files  # few want them

    written = example_files(folder)
    out = stdout()
    out.print(f"{len(written)} files in {folder}:", markup=False)
    for name in written:
        out.print(f"  {name}", markup=False)
    out.print(
        "Go there (cd), and every command of README does what it says, as  [bold]uqeval evaluate preds.parquet[/]"
    )
    out.print("The digits are real; hospitals, patients and the logs of language models are made up.", style="dim")
