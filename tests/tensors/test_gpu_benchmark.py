"""The benchmark of the GPU runs on any machine, at small sizes."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchmetrics")
pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_benchmark_times_every_job_beside_its_floor_and_compares_integers(capsys):
    from benchmarks import gpu
    from uqeval.torch import counting

    fused = counting.fused
    found = gpu.main(["--sizes", "2000", "--check", "2000", "--repeats", "1", "--device", "cpu"])
    assert json.loads(capsys.readouterr().out) == found
    assert [(row["kind"], row["same"]) for row in found["integers"]] == [
        *(("no ties", True), ("heavy ties", True), ("all tied", True))
    ]
    jobs = {row["job"] for row in found["times"]}
    assert {"torch.sort", "torchmetrics binary_auroc", "uq_auc with interval"} < jobs
    assert all(row["floor_ms"] > 0 and row["ms"] > 0 for row in found["times"])
    assert counting.fused is fused
