"""`python -m benchmarks.scale FOLDER`: the same Parquet rows in memory, on each engine, and by Polars and DuckDB alone.

Each run is a process of its own; its CPU seconds and its peak memory are those of the whole tree of processes, start
included. Writes `scale.json`, from which the page of benchmarks takes its table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.make_rows import make_rows

METRICS = ["uq_auc", "uq_c_index", "aurc"]
RESULTS = Path(__file__).with_name("scale.json")


def in_memory(pattern: str) -> dict[str, float]:
    """`uq.evaluate` on arrays, native kernels."""
    import pyarrow.parquet as pq

    import uqeval as uq

    table = pq.read_table(Path(pattern).parent, columns=["score_s", "error", "loss"])
    arrays = {
        name: table.column(f"score_{name}" if name == "s" else name).to_numpy() for name in ("s", "error", "loss")
    }
    start = time.perf_counter()
    found = uq.evaluate(score=arrays["s"], error=arrays["error"], loss=arrays["loss"], metrics=METRICS)
    inner = time.perf_counter() - start
    return {name: found["score", name].value for name in METRICS} | {"evaluate_seconds": inner}


def on_engine(engine: str) -> Callable[[str], dict[str, float]]:
    def run(pattern: str) -> dict[str, float]:
        import uqeval as uq

        start = time.perf_counter()
        found = uq.distributed.evaluate(pattern, score="score_s", metrics=METRICS, engine=engine, memory_limit="2GB")
        assert found.run is not None
        inner = time.perf_counter() - start
        cost = {
            "evaluate_seconds": inner,
            "passes": found.run.passes,
            "shuffles": found.run.shuffles,
            "moved_bytes": found.run.moved_bytes,
            "largest_task": found.run.largest_task,
        }
        return {name: found["s", name].value for name in METRICS} | cost

    return run


def polars_auc(pattern: str) -> dict[str, float]:
    """Value of UQ-AUC alone, no interval: a group-by over the scores."""
    import polars as pl

    rows = pl.scan_parquet(pattern).select("score_s", pl.col("error").cast(pl.Float64))
    tied = rows.group_by("score_s").agg(one=pl.col("error").sum(), all=pl.len().cast(pl.Float64))
    done = tied.sort("score_s").with_columns(zero=pl.col("all") - pl.col("one"))
    below = pl.col("zero").cum_sum() - pl.col("zero") / 2
    found = done.select((pl.col("one") * below).sum() / (pl.col("one").sum() * pl.col("zero").sum()))
    return {"uq_auc": found.collect(engine="streaming").item()}


def duckdb_auc(pattern: str) -> dict[str, float]:
    """The same in SQL, with a limit of 2 GB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '2GB'; SET threads = 2; SET enable_progress_bar = false")
        value = connection.execute(
            "WITH tied AS (SELECT score_s, sum(error)::DOUBLE AS one, count(*)::DOUBLE - sum(error)::DOUBLE AS zero"
            f" FROM read_parquet('{pattern}') GROUP BY score_s),"
            " ranked AS (SELECT one, zero, sum(zero) OVER (ORDER BY score_s) - zero / 2 AS below FROM tied)"
            " SELECT sum(one * below) / (sum(one) * sum(zero)) FROM ranked"
        ).fetchone()
    assert value is not None
    return {"uq_auc": float(value[0])}


CONTESTANTS: dict[str, Callable[[str], dict[str, float]]] = {
    "in memory": in_memory,
    "local": on_engine("local"),
    "dask": on_engine("dask"),
    "spark": on_engine("spark"),
    "Polars, UQ-AUC only": polars_auc,
    "DuckDB, UQ-AUC only": duckdb_auc,
}
MOST = {"in memory": 10**7}  # the promise compares where both fit


def measure(name: str, pattern: str, most_seconds: float) -> dict[str, Any]:
    """Seconds, CPU seconds and the peak memory (PSS) of all processes together, polled ten times a second."""
    start = time.perf_counter()
    process = psutil.Popen(
        [sys.executable, "-m", "benchmarks.scale", "--one", name, pattern], stdout=subprocess.PIPE, text=True
    )
    peak = 0.0
    cpu: dict[int, float] = {}
    while process.poll() is None:
        total = 0.0
        for one in [process, *process.children(recursive=True)]:
            try:
                info = one.memory_full_info()
                total += getattr(info, "pss", info.rss)
                spent = one.cpu_times()
                cpu[one.pid] = spent.user + spent.system
            except psutil.Error:
                continue
        peak = max(peak, total)
        if time.perf_counter() - start > most_seconds:
            for one in process.children(recursive=True):
                one.kill()
            process.kill()
        time.sleep(0.1)
    wall = time.perf_counter() - start
    output = process.stdout.read()
    found = json.loads(output.splitlines()[-1]) if process.returncode == 0 else {}
    return {
        "tool": name,
        "seconds": wall,
        "cpu_seconds": sum(cpu.values()),
        "peak_mib": peak / 2**20,
        "load": os.getloadavg()[0],
        "failed": process.returncode != 0,
        **found,
    }


def table(results: dict[str, Any]) -> list[str]:
    """Lines of Markdown for the page of benchmarks."""
    rows = results["runs"]
    sizes = sorted({row["n"] for row in rows})
    lines = [
        "## Bigger than memory",
        "",
        "Made by `python -m benchmarks.scale FOLDER`. UQ-AUC, UQ-C-index and AURC with intervals from Parquet files,",
        "two cores, `memory_limit` 2 GB; Polars and DuckDB: the value of UQ-AUC alone. Cells: seconds / CPU seconds /",
        "peak MiB of all processes together, start and reading included, one run each",
        f"({results['date']}; {results['machine']}).",
        "",
        "| | " + " | ".join(f"{n:,}" for n in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in CONTESTANTS:
        cells = []
        for n in sizes:
            one = next((row for row in rows if (row["tool"], row["n"]) == (name, n)), None)
            cells.append(
                "–"
                if one is None
                else "failed"
                if one["failed"]
                else f"{one['seconds']:.1f} / {one['cpu_seconds']:.1f} / {one['peak_mib']:,.0f}"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| promise | measured | bound | |", "|---|---|---|---|"]
    for row in results["promises"]:
        lines.append(f"| {row['claim']} | {row['value']:.3g} | {row['bound']:g} | {'✓' if row['holds'] else '✗'} |")
    return lines


def promises(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What issue and docs promise, from these runs; those whose runs are missing are left out."""
    found = {(row["tool"], row["n"]): row for row in runs if not row["failed"]}
    memory, small, large = (found.get(key) for key in (("in memory", 10**7), ("local", 10**7), ("local", 10**8)))
    made: list[tuple[str, float, float]] = []
    if memory and small:
        ratio = small["evaluate_seconds"] / memory["evaluate_seconds"]
        made.append(("local, 10⁷ rows of Parquet: times the seconds of `evaluate` on arrays", ratio, 6))
    if small and large:
        made.append(
            (
                "local, from 10⁷ to 10⁸ rows: times the seconds",
                large["evaluate_seconds"] / small["evaluate_seconds"],
                12,
            )
        )
    if large:
        made.append(
            ("local, 10⁸ rows, memory_limit 2 GB: peak of all processes (GB)", large["peak_mib"] * 2**20 / 1e9, 2.5)
        )
    for n in sorted({row["n"] for row in runs}):
        values = [row["uq_auc"] for row in runs if row["n"] == n and not row["failed"]]
        if len(values) > 1:
            made.append(
                (f"largest difference in UQ-AUC between all tools, {n:,} rows", max(values) - min(values), 1e-10)
            )
    return [{"claim": claim, "value": value, "bound": bound, "holds": value <= bound} for claim, value, bound in made]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="for the rows; 4 GB for 10⁸ of them, made when missing")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--tools", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--most-seconds", type=float, default=1800.0)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        name, pattern = given.one
        print(json.dumps(CONTESTANTS[name](pattern)))
        return
    if given.folder is None:
        parser.error("name a folder for the rows")
    from benchmarks.__main__ import ROOT, machine, page

    stored = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    runs = {(row["tool"], row["n"]): row for row in stored}
    for n in given.rows:
        folder = given.folder / f"rows-{n}"
        if not folder.exists():
            make_rows(folder, n)
        for name in given.tools:
            if n > MOST.get(name, n):
                continue
            row = measure(name, str(folder / "*.parquet"), given.most_seconds) | {"n": n}
            runs[name, n] = row
            print(
                f"{name:<22}{n:>13,} rows{row['seconds']:>9.1f} s{row['cpu_seconds']:>9.1f} CPU s"
                f"{row['peak_mib']:>9,.0f} MiB{'  failed' * row['failed']}",
                flush=True,
            )
    ordered = sorted(runs.values(), key=lambda row: (row["n"], list(CONTESTANTS).index(row["tool"])))
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{machine()['cpu']}, {machine()['cores']} cores",
        "runs": ordered,
        "promises": promises(ordered),
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(found)))
    times = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    (ROOT / "docs" / "benchmarks.md").write_text(page(times))


if __name__ == "__main__":
    main()
