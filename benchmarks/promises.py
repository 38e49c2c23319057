"""What the project promises about speed, each measured in the run at hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import uqeval
from benchmarks.contestants import make_data
from uqeval import kernels

NATIVE, NUMPY = "uqeval (native)", "uqeval (NumPy)"
SKLEARN, TORCH = "scikit-learn roc_auc_score", "torchmetrics binary_auroc"
SCIPY, LIFELINES = "SciPy kendalltau", "lifelines concordance_index"
TIES = "UQ-C-index, 3 decimals"
HALF, ALL = "UQ-AUC, half of the rows wrong", "All metrics of 0/1 errors"
PAIR = "uqeval (native, two threads)"
# task, uqeval, peer, sizes, at least that many times faster
RATIOS = [
    ("UQ-AUC", NATIVE, SKLEARN, (10**3,), 6.0),
    ("UQ-AUC", NATIVE, SKLEARN, (10**6,), 25.0),
    ("UQ-AUC", NATIVE, SKLEARN, (10**7,), 35.0),
    ("UQ-AUC", NATIVE, TORCH, (10**6,), 8.0),
    ("UQ-AUC", NUMPY, SKLEARN, (10**5, 10**6), 2.5),
    (HALF, NATIVE, SKLEARN, (10**6,), 18.0),
    ("UQ-C-index", NATIVE, SCIPY, (10**6,), 6.5),
    ("UQ-C-index", NATIVE, SCIPY, (10**7,), 10.0),
    ("UQ-C-index", PAIR, SCIPY, (10**6,), 10.0),
    ("UQ-C-index", NATIVE, LIFELINES, (10**5, 10**6), 200.0),
    (TIES, NATIVE, SCIPY, (10**6, 10**7), 4.0),
    ("UQ-C-index", NUMPY, SCIPY, (10**5, 10**6), 1.0),
    ("Certified threshold, risk 5%", "uqeval", "np.argsort", (10**7,), 0.5),
]


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Peer's minimum over ours, from the timed rows."""
    best = {(row["task"], row["tool"], row["n"]): row["min"] for row in rows}
    found = []
    for task, ours, peer, sizes, least in RATIOS:
        for n in sizes:
            if (task, peer, n) in best and (task, ours, n) in best:
                value = best[task, peer, n] / best[task, ours, n]
                claim = f"{task}, {ours}: times faster than {peer}, n = {n:,}"
                found.append({"claim": claim, "value": value, "bound": least, "holds": value >= least})
    for n in (10**6, 10**7):
        if (ALL, NATIVE, n) in best:
            value = best[ALL, NATIVE, n] / best["UQ-AUC", NATIVE, n]
            found.append(at_most(f"{ALL}, {NATIVE}: times the time of UQ-AUC alone, n = {n:,}", value, 1.6))
    return found


def absolute(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The few promises in seconds."""
    small = next(r["min"] for r in rows if (r["task"], r["tool"], r["n"]) == ("UQ-AUC", NATIVE, 10**3))
    found = [at_most("UQ-AUC with interval, n = 1,000 (ms)", 1e3 * small, 0.25)]
    data = make_data(10**4)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        uqeval.bootstrap("uq_c_index", data["score"], data["loss"], resamples=1000)
        times.append(time.perf_counter() - start)
    found.append(at_most("1000 bootstrap resamples of UQ-C-index, n = 10,000, all cores (ms)", 1e3 * min(times), 150))
    found.append(at_most("import uqeval (ms)", 1e3 * (_python("import uqeval") - _python("pass")), 150))
    return found


def at_most(claim: str, value: float, bound: float) -> dict[str, Any]:
    return {"claim": claim, "value": value, "bound": bound, "holds": value <= bound}


def _python(code: str) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main_job() -> list[dict[str, Any]]:
    """`uqeval evaluate` as a user starts it, start of Python included, against one `roc_auc_score` of the same rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    n, classes = 10**6, 10
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 2.0
    probs = np.exp(logits)
    probs /= probs.sum(axis=1, keepdims=True)
    rows = pa.table({"label": labels} | {f"prob_{k}": probs[:, k] for k in range(classes)})
    few = rows.slice(0, 200_000)
    files = {
        "tiny": rows.slice(0, 1000),
        "plain": rows,
        "clusters": rows.append_column("cluster", pa.array(rng.integers(0, 200_000, n))),
        "groups": rows.append_column("group", pa.array(rng.integers(0, 8, n))),
        "one group": few.append_column("group", pa.array(np.zeros(200_000, dtype=np.int64))),
        "many groups": few.append_column("group", pa.array(np.arange(200_000) // 20)),
    }
    score, error = uqeval.scores.entropy(probs), probs.argmax(axis=1) != labels
    peers, runs = [], {name: [] for name in (*files, "report")}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name.replace(' ', '-')}.parquet" for name in files}
        for name, table in files.items():
            pq.write_table(table, paths[name])
        for _ in range(5):  # all in turn: other work on the machine meets everybody
            peers.append(_timed(lambda: roc_auc_score(error, score)))
            for name, path in paths.items():
                by = ["--by", "group"] if "group" in name else []
                runs[name].append(_command("evaluate", str(path), *by))
            page = ["--html", str(Path(folder) / "report.html")]
            runs["report"].append(_command("evaluate", str(paths["clusters"]), *page))
    peer, report = min(peers), min(run[0] for run in runs["report"])
    seconds, gib = ({name: min(run[k] for run in made) for name, made in runs.items()} for k in (0, 1))
    what = "uqeval evaluate, Parquet of 10⁶ rows × 10 classes, 4 scores, all metrics"
    arrays = (probs.nbytes + labels.nbytes) / 2**30
    return [
        at_most(f"{what}: times one roc_auc_score of those rows", seconds["plain"] / peer, 4),
        at_most("the same with 200,000 clusters: times that", seconds["clusters"] / seconds["plain"], 1.6),
        at_most("the same with 8 groups: times that", seconds["groups"] / seconds["plain"], 1.6),
        at_most("10⁴ groups of 20 rows: times one group of all", seconds["many groups"] / seconds["one group"], 3),
        at_most(
            "its report with clusters: times roc_auc_score, beyond evaluate", (report - seconds["clusters"]) / peer, 15
        ),
        at_most(
            "its peak memory beyond that of the same command on 1,000 rows: times the arrays of the file",
            (gib["plain"] - gib["tiny"]) / arrays,
            3,
        ),
    ]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _command(*arguments: str) -> tuple[float, float]:
    """Seconds and peak GiB of a command."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = {['uqeval', *arguments]!r}\n"
        "try: runpy.run_module('uqeval', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(int(peak) / 2**20, file=sys.stderr)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, float(done.stderr.split()[-1])


def huge(n: int = 10**8) -> dict[str, Any]:
    """UQ-AUC, UQ-C-index and AURC with intervals on 10⁸ rows in memory, two threads: seconds, and peak memory."""
    code = (
        "import resource, time, numpy as np, uqeval\n"
        f"rng = np.random.default_rng(0); s = rng.random({n}); d = rng.random({n}); d *= 0.7; d += 0.3 * s\n"
        f"e = rng.random({n}) < 0.2 * s; uqeval.evaluate(score=s[:1000], error=e[:1000], loss=d[:1000])\n"
        "t = time.perf_counter()\n"
        "found = uqeval.evaluate(score=s, error=e, loss=d, metrics=['uq_auc', 'uq_c_index', 'aurc'])\n"
        "print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    environment = {**os.environ, "UQEVAL_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    seconds, gib = map(float, done.stdout.split())
    return {"n": n, "seconds": seconds, "peak_gib": gib}


def backend() -> str:
    """Which kernels this run had."""
    return kernels.backend()
