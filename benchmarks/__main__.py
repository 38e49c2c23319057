"""`python -m benchmarks`: times what is installed here, writes `results.json`, the page and README's table."""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import promises, scale, training
from benchmarks.contestants import TASKS
from benchmarks.measure import peak_memory, time_task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PEERS = ("uqeval", "numpy", "scipy", "scikit-learn", "torch", "torchmetrics", "lifelines", "scikit-survival")
SIZES = [10**k for k in range(3, 8)]


def machine() -> dict[str, str]:
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown, machine by machine."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`; do not edit. uqeval computes the value **and** the 95% interval, input checks included;",
        "the peers compute the value alone. One thread unless said, a tenth of the rows wrong, no ties unless said;",
        "calls are interleaved in one run. Cells: minimum milliseconds (and times `np.argsort` of the same array).",
        "A machine runs what it has: peers that are not installed there are left out.",
    ]
    for run in results["runs"].values():
        lines += ["", *_run_lines(run)]
    if scale.RESULTS.exists():
        lines += ["", *scale.table(json.loads(scale.RESULTS.read_text()))]
    return "\n".join(lines) + "\n"


def _run_lines(run: dict[str, Any]) -> list[str]:
    name, rows = run["machine"]["cpu"], run["times"]
    versions = ", ".join(f"{package} {number}" for package, number in run["versions"].items())
    lines = [f"## {name}", "", f"{run['machine']['cores']} cores; {run['date']}; {versions}."]
    for task in TASKS:
        sizes = sorted({row["n"] for row in rows if row["task"] == task})
        lines += ["", f"### {task} ({name})", "", "| | " + " | ".join(f"{n:,}" for n in sizes) + " |"]
        lines.append("|---" * (len(sizes) + 1) + "|")
        best = {(row["tool"], row["n"]): row["min"] for row in rows if row["task"] == task}
        for contestant in TASKS[task]:
            cells = [
                f"{1e3 * best[contestant.name, n]:.3g} ({best[contestant.name, n] / best['np.argsort', n]:.2g}×)"
                if (contestant.name, n) in best
                else "–"
                for n in sizes
            ]
            if set(cells) != {"–"}:
                lines.append(f"| {contestant.name} | " + " | ".join(cells) + " |")
    lines += ["", f"### Memory ({name})", "", "MiB that one call adds at its peak, 10⁶ rows.", ""]
    lines += ["| task | tool | MiB |", "|---|---|---|"]
    lines += [f"| {row['task']} | {row['tool']} | {row['mib']:.0f} |" for row in run["memory"]]
    lines += ["", f"### Promises ({name})", "", "| promise | measured | bound | |", "|---|---|---|---|"]
    for row in run["promises"]:
        lines.append(f"| {row['claim']} | {row['value']:.3g} | {row['bound']:g} | {'✓' if row['holds'] else '✗'} |")
    if big := run.get("huge"):
        lines += [
            "",
            f"UQ-AUC, UQ-C-index and AURC with intervals on {big['n']:,} rows in memory, two threads: "
            f"{big['seconds']:.1f} s, peak {big['peak_gib']:.1f} GiB for the whole process, data included.",
        ]
    return lines


_SHOWN = [
    ("UQ-AUC", "scikit-learn roc_auc_score"),
    ("UQ-AUC", "torchmetrics binary_auroc"),
    ("UQ-C-index", "SciPy kendalltau"),
    ("UQ-C-index", "lifelines concordance_index"),
    ("UQ-C-index, 3 decimals", "SciPy kendalltau"),
]


def readme_table(results: dict[str, Any]) -> str:
    """How many times faster than each peer, machine beside machine."""
    runs, sizes = list(results["runs"].values()), (10**5, 10**6, 10**7)
    shown = ("10⁵", "10⁶", "10⁷")
    heads = [f"{run['machine']['cpu'].split(' @')[0]}, {n}" for run in runs for n in shown]
    lines = ["| metric | times faster than | " + " | ".join(heads) + " |", "|---" * (2 + len(heads)) + "|"]
    for task, peer in _SHOWN:
        cells = []
        for run in runs:
            best = {(row["tool"], row["n"]): row["min"] for row in run["times"] if row["task"] == task}
            for n in sizes:
                there = (peer, n) in best
                cells.append(f"{best[peer, n] / best['uqeval (native)', n]:.1f}×" if there else "–")
        lines.append(f"| {task} | {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def publish(results: dict[str, Any]) -> None:
    """The page of the docs, and the table of the README."""
    (ROOT / "docs" / "benchmarks.md").write_text(page(results), encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = "<!-- bench -->\n", "<!-- /bench -->"
    before, rest = readme.split(begin)
    made = f"{before}{begin}{readme_table(results)}\n{end}{rest.split(end)[1]}"
    (ROOT / "README.md").write_text(made, encoding="utf-8")


def measured(quick: bool) -> dict[str, Any]:
    """All that this machine can run."""
    times: list[dict[str, Any]] = []
    for task in TASKS:
        for row in time_task(task, SIZES[:3] if quick else SIZES):
            print(f"{row['task']:<32}{row['tool']:<44}{row['n']:>12,}{1e3 * row['min']:>12.3f} ms", flush=True)  # type: ignore[str-bytes-safe]
            times.append(row)
    memory = [
        {"task": task, "tool": c.name, "n": n, "mib": peak_memory(task, c.name, n)}
        for task in ("UQ-AUC", "UQ-C-index")
        for c in TASKS[task][1:]
        for n in [10**5 if quick else 10**6]
        if "survival" not in c.name and c.there
    ]
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "kernels": promises.backend(),
        "versions": {name: version(name) for name in PEERS if _installed(name)},
        "times": times,
        "memory": memory,
        "promises": promises.ratios(times) + promises.absolute(times),
    }
    if not quick:
        if find_spec("sklearn") and find_spec("pyarrow") and find_spec("typer") and find_spec("altair"):
            found["promises"] += promises.main_job()
        if find_spec("torch") and find_spec("altair"):
            found["promises"] += training.compare()
        found["huge"] = promises.huge()
        found["promises"].append(
            promises.at_most("10⁸ rows, three metrics, two threads (s)", found["huge"]["seconds"], 12)
        )
    return found


def _installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10⁵ rows, nothing written")
    parser.add_argument("--out", type=Path, help="write this machine's results to a file, and nothing else")
    parser.add_argument("--add", type=Path, help="add the results of another machine, and measure nothing")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"runs": {}}
    if given.add is not None:
        run = json.loads(given.add.read_text(encoding="utf-8"))
    else:
        print(f"{machine()['cpu']}, {machine()['cores']} cores")
        if find_spec("torch"):
            import torch

            torch.set_num_threads(1)
        run = measured(given.quick)
        print("\n".join(_run_lines(run)))
    if given.out is not None:
        given.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    elif not given.quick:
        results["runs"][run["machine"]["cpu"]] = run
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        publish(results)
    if not all(row["holds"] for row in run["promises"]):
        raise SystemExit("A promise does not hold.")


if __name__ == "__main__":
    main()
