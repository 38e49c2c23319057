"""What the site shows and nobody writes by hand: charts, the example report, the help texts, the methods compared, heat
maps of the last `make validate`. Into `docs/_made`.

Made again when the package is newer than they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MADE = HERE / "_made"
METHODS = HERE / "howto" / "methods.md"
RESULTS = HERE.parent / "benchmarks" / "results.json"
VALIDATED = HERE.parent / "validation" / "results.json"
FEW = ("gap_to_certain", "mutual_information", "vote_entropy")


def everything() -> None:
    import uqeval

    stamp = MADE / "stamp"
    source = Path(uqeval.__file__).parent
    newest = max(
        path.stat().st_mtime
        for path in (*source.rglob("*.*"), Path(__file__), METHODS, RESULTS, *VALIDATED.parent.glob("*.*"))
        if path.suffix != ".pyc"
    )
    if stamp.exists() and stamp.stat().st_mtime > newest:
        return
    for folder in ("charts", "pages", "help", "validation"):
        (MADE / folder).mkdir(parents=True, exist_ok=True)
    charts_and_report()
    helps()
    schemas()
    speed()
    methods()
    heat_maps()
    stamp.touch()


def schemas() -> None:
    """The contract of each JSON output, as a file of the site."""
    import uqeval

    folder = MADE / "pages" / "schemas"
    folder.mkdir(exist_ok=True)
    for path in (Path(uqeval.__file__).parent / "schemas").glob("*.json"):
        shutil.copy(path, folder)


def charts_and_report() -> None:
    import uqeval as uq

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uq.UQWarning)
        pred = uq.datasets.example()
        ev = uq.evaluate(pred)
        scores = {name: uq.scores.compute(name, pred) for name in ("entropy", *FEW)}
        chosen = uq.choose_threshold("entropy", predictions=pred, max_risk=0.03)
        charts = {
            "roc": uq.plot.roc(ev, FEW),
            "risk_coverage": uq.plot.risk_coverage(ev, FEW),
            "mce": uq.plot.mce(ev, FEW, x="coverage"),
            "score_histogram": uq.plot.score_histogram(ev, FEW),
            "score_vs_gap": uq.plot.score_vs_gap(ev, FEW),
            "reliability": uq.plot.reliability(ev),
            "by_group": uq.plot.by_group(ev, scores=FEW),
            "forest": uq.plot.forest(uq.compare(scores, error=uq.truth.error_of(pred)), like=ev),
            "psi": uq.plot.psi(ev, "entropy", chosen),
            "label_noise": uq.plot.label_noise(uq.label_noise(["entropy", "mutual_information"], predictions=pred)),
            "dominance": uq.plot.dominance(uq.dominance("entropy", "mutual_information", predictions=pred)),
        }
        for name, chart in charts.items():
            chart.save(str(MADE / "charts" / f"{name}.svg"))
        uq.report(ev, MADE / "pages" / "example-report.html")
    for name in os.listdir(MADE / "charts"):
        if Path(name).stem not in charts:
            (MADE / "charts" / name).unlink()


def helps() -> None:
    """The options of every command, as Markdown tables."""
    import typer.main

    from uqeval.cli.main import make_app

    tables: dict[str, list[str]] = {"columns": []}
    for name, command in typer.main.get_command(make_app()).commands.items():  # type: ignore[attr-defined]
        tables[name] = []
        parts = getattr(command, "commands", {})  # a command of commands: what they share once, then the rest
        options = list({p.name: p for part in (command, *parts.values()) for p in part.params}.values())
        for option in options:
            if getattr(option, "rich_help_panel", None) == "Columns":  # the same for all: a table of their own
                if name == "evaluate":
                    tables["columns"].append(_row(option))
            elif option.name != "help":
                tables[name].append(_row(option))
    for name, rows in tables.items():
        text = "\n".join(["| | |", "|---|---|", *rows]) if rows else "No options."
        (MADE / "help" / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def speed() -> None:
    """What `make bench` measured, for the page on many rows."""
    lines = []
    for run in json.loads(RESULTS.read_text(encoding="utf-8"))["runs"].values():
        lines += [*_speed_of(run), ""]
    (MADE / "speed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def methods() -> None:
    """What the examples on the page of the methods find, run one after the other."""
    import uqeval as uq

    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uq.UQWarning)
        for code in re.findall(r"^```python\n(.*?)^```", METHODS.read_text(encoding="utf-8"), re.M | re.S):
            exec(code, names)
    lines = [
        "| method | accuracy | its score | UQ-AUC above a random score's | AURC of the entropy above Softmax's |",
        "|---|---|---|---|---|",
    ]
    by_entropy = {pair["a"]: pair for pair in names["against_softmax"].to_dict()["pairs"]}
    for name, pred in names["found"].items():
        (chance,) = names["against_chance"][name].to_dict()["pairs"]
        other = _difference(by_entropy[name], 4) if name in by_entropy else ""
        accuracy = 1 - uq.truth.error_of(pred).mean()
        lines.append(f"| {name} | {accuracy:.3f} | `{chance['a']}` | {_difference(chance, 2)} | {other} |")
    (MADE / "methods.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _difference(pair: dict[str, Any], digits: int) -> str:
    value, low, high = (f"{pair[key]:+.{digits}f}" for key in ("difference", "low", "high"))
    return f"{value} ({low} to {high})"


def heat_maps() -> None:
    """What `make validate` found, for its page."""
    sys.path.insert(0, str(VALIDATED.parents[1]))  # a folder beside the package, which is not installed
    from validation.page import figure_name, heat_map, shown
    from validation.run import from_text

    rows = from_text(VALIDATED.read_text(encoding="utf-8"))["rows"]
    for output, kept in shown(rows):
        heat_map(rows, output, kept).save(str(MADE / "validation" / f"{figure_name(output, kept)}.svg"))


def _speed_of(run: dict[str, Any]) -> list[str]:
    best = {(row["task"], row["n"]): row["min"] for row in run["times"] if row["tool"] == "uqeval (native)"}
    extra = {row["task"]: row["mib"] for row in run["memory"] if row["tool"] == "uqeval (native)"}
    tasks = ("UQ-AUC", "All metrics of 0/1 errors", "UQ-C-index")
    lines = [f"| rows ({run['machine']['cpu']}) | {' | '.join(tasks)} |", "|---|---|---|---|"]
    for power in (5, 6, 7):
        times = [best[task, 10**power] for task in tasks]
        cells = [f"{t:.2g} s" if t > 0.1 else f"{1000 * t:.2g} ms" for t in times]
        lines.append(f"| {10**power:,} | {' | '.join(cells)} |")
    lines += [
        "",
        f"One call on a million rows adds {extra['UQ-AUC']:.0f} MiB (UQ-AUC) or {extra['UQ-C-index']:.0f} MiB "
        f"(UQ-C-index) at its peak.",
    ]
    if big := run.get("huge"):
        lines[-1] += (
            f" UQ-AUC, UQ-C-index and AURC of {big['n']:,} rows, two threads: {big['seconds']:.0f} s, "
            f"{big['peak_gib']:.1f} GiB for the process, data included."
        )
    return lines


def _row(option: Any) -> str:
    words = (option.help or "").replace("|", "\\|").rstrip(".")
    if option.param_type_name == "argument":
        return f"| `{option.name.upper()}` | {words} |"
    given = option.default
    plain = given is None or isinstance(given, bool) or words.startswith(f"{given} (default)")
    names = ", ".join(f"`{text}`" for text in option.opts)
    return f"| {names} | {words}{'' if plain else f'; default `{given}`'} |"
