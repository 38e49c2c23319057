"""`python -m benchmarks`: times everything, writes `results.json` and `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import promises, scale, training
from benchmarks.contestants import TASKS
from benchmarks.measure import peak_memory, time_task

ROOT = Path(__file__).parents[1]
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
    """The results as Markdown."""
    rows = results["times"]
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`; do not edit. uqeval computes per-row counts **and** the 95% interval, input checks",
        "included; the peers compute the value alone. One thread, no ties unless said, calls interleaved in one run.",
        "Cells: minimum milliseconds (and how many times `np.argsort` of the same array).",
        "",
        f"{results['machine']['cpu']}, {results['machine']['cores']} cores; {results['date']}; "
        + ", ".join(f"{name} {number}" for name, number in results["versions"].items())
        + ".",
    ]
    for task in TASKS:
        sizes = sorted({row["n"] for row in rows if row["task"] == task})
        lines += [
            "",
            f"## {task}",
            "",
            "| | " + " | ".join(f"{n:,}" for n in sizes) + " |",
            "|---" * (len(sizes) + 1) + "|",
        ]
        best = {(row["tool"], row["n"]): row["min"] for row in rows if row["task"] == task}
        for contestant in TASKS[task]:
            cells = [
                f"{1e3 * best[contestant.name, n]:.3g} ({best[contestant.name, n] / best['np.argsort', n]:.2g}×)"
                if (contestant.name, n) in best
                else "–"
                for n in sizes
            ]
            lines.append(f"| {contestant.name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Memory",
        "",
        "MiB that one call adds at its peak, 10⁶ rows.",
        "",
        "| task | tool | MiB |",
        "|---|---|---|",
    ]
    lines += [f"| {row['task']} | {row['tool']} | {row['mib']:.0f} |" for row in results["memory"]]
    lines += ["", "## Promises", "", "| promise | measured | bound | |", "|---|---|---|---|"]
    for row in results["promises"]:
        lines.append(f"| {row['claim']} | {row['value']:.3g} | {row['bound']:g} | {'✓' if row['holds'] else '✗'} |")
    if big := results.get("huge"):
        lines += [
            "",
            f"UQ-C-index with interval on {big['n']:,} rows: {big['seconds']:.1f} s, "
            f"peak {big['peak_gib']:.1f} GiB for the whole process, data included.",
        ]
    if scale.RESULTS.exists():
        lines += ["", *scale.table(json.loads(scale.RESULTS.read_text()))]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10⁵ rows, nothing written")
    quick = parser.parse_args().quick
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        raise SystemExit(
            'The peers are missing. Install them with: pip install "uqeval[bench]", or run make bench'
        ) from None
    times: list[dict[str, Any]] = []
    for task in TASKS:
        for row in time_task(task, SIZES[:3] if quick else SIZES):
            print(f"{row['task']:<24}{row['tool']:<44}{row['n']:>12,}{1e3 * row['min']:>12.3f} ms")  # type: ignore[str-bytes-safe]
            times.append(row)
    memory = [
        {"task": task, "tool": c.name, "n": n, "mib": peak_memory(task, c.name, n)}
        for task in list(TASKS)[:2]
        for c in TASKS[task][1:]
        for n in [10**5 if quick else 10**6]
        if "survival" not in c.name
    ]
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "kernels": promises.backend(),
        "versions": {name: version(name) for name in PEERS},
        "times": times,
        "memory": memory,
        "promises": promises.ratios(times) + promises.absolute(times),
    }
    if not quick:
        results["promises"] += training.compare()
        results["huge"] = promises.huge()
    text = page(results)
    print(text[text.index("## Memory") :])
    if not quick:
        (ROOT / "benchmarks" / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "benchmarks.md").write_text(text)
    if not all(row["holds"] for row in results["promises"]):
        raise SystemExit("A promise does not hold.")


if __name__ == "__main__":
    main()
