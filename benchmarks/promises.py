"""What the project promises about speed, each measured in the run at hand."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
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
# task, uqeval, peer, sizes, at least that many times faster
RATIOS = [
    ("UQ-AUC", NATIVE, SKLEARN, (10**5, 10**6), 8.0),
    ("UQ-AUC", NATIVE, TORCH, (10**5, 10**6), 4.0),
    ("UQ-AUC", NATIVE, SKLEARN, (10**3,), 6.0),
    ("UQ-AUC", NUMPY, SKLEARN, (10**5, 10**6), 2.5),
    ("UQ-C-index", NATIVE, SCIPY, (10**5, 10**6), 5.0),
    ("UQ-C-index", NATIVE, LIFELINES, (10**5, 10**6), 200.0),
    (TIES, NATIVE, SCIPY, (10**5, 10**6), 2.0),
    ("UQ-C-index", NUMPY, SCIPY, (10**5, 10**6), 1.0),
    ("Certified threshold, risk 5%", "uqeval", "np.argsort", (10**7,), 0.5),
]


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Peer's minimum over ours, from the timed rows."""
    best = {(row["task"], row["tool"], row["n"]): row["min"] for row in rows}
    found = []
    for task, ours, peer, sizes, least in RATIOS:
        for n in sizes:
            if (task, peer, n) in best:
                value = best[task, peer, n] / best[task, ours, n]
                claim = f"{task}, {ours}: times faster than {peer}, n = {n:,}"
                found.append({"claim": claim, "value": value, "bound": least, "holds": value >= least})
    return found


def absolute(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The few promises in seconds."""
    small = next(r["min"] for r in rows if (r["task"], r["tool"], r["n"]) == ("UQ-AUC", NATIVE, 10**3))
    found = [_at_most("UQ-AUC with interval, n = 1,000 (ms)", 1e3 * small, 0.25)]
    data = make_data(10**4)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        uqeval.bootstrap("uq_c_index", data["score"], data["loss"], resamples=1000)
        times.append(time.perf_counter() - start)
    found.append(_at_most("1000 bootstrap resamples of UQ-C-index, n = 10,000, all cores (ms)", 1e3 * min(times), 150))
    found.append(_at_most("import uqeval (ms)", 1e3 * (_python("import uqeval") - _python("pass")), 150))
    found.append(_at_most("uqeval evaluate, Parquet of 10⁶ rows × 10 classes, 3 scores, all metrics (s)", _cli(), 10))
    return found


def _at_most(claim: str, value: float, bound: float) -> dict[str, Any]:
    return {"claim": claim, "value": value, "bound": bound, "holds": value <= bound}


def _python(code: str) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def _cli() -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    n, classes = 10**6, 10
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 2.0
    probs = np.exp(logits)
    probs /= probs.sum(axis=1, keepdims=True)
    columns = {"label": labels} | {f"prob_{k}": probs[:, k] for k in range(classes)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "preds.parquet"
        pq.write_table(pa.table(columns), path)
        start = time.perf_counter()
        command = [sys.executable, "-m", "uqeval.cli.main", "evaluate", str(path)]
        subprocess.run([*command, "--scores", "entropy,gap_to_certain,margin", "--quiet"], check=True)
        return time.perf_counter() - start


def huge(n: int = 10**8) -> dict[str, Any]:
    """UQ-C-index with interval on 10⁸ rows: seconds and peak memory of the process."""
    code = (
        "import resource, time, numpy as np, uqeval\n"
        f"rng = np.random.default_rng(0); s = rng.random({n}); d = rng.random({n}); d *= 0.7; d += 0.3 * s\n"
        "t = time.perf_counter(); e = uqeval.estimate('uq_c_index', s, d); t = time.perf_counter() - t\n"
        "print(t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, e.value, e.low, e.high)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, gib, value, low, high = map(float, done.stdout.split())
    return {"n": n, "seconds": seconds, "peak_gib": gib, "value": value, "low": low, "high": high}


def backend() -> str:
    """Which kernels this run had."""
    return kernels.backend()
