"""The benchmark of the GPU runs on any machine, at small sizes; its page says what its last run on a card found."""

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
    gpu.main(["--sizes", "2000", "--check", "2000", "--repeats", "1", "--device", "cpu"])
    found = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["same"]) for row in found["integers"]] == [
        *(("no ties", True), ("heavy ties", True), ("all tied", True))
    ]
    jobs = {row["job"] for row in found["times"]}
    assert {"torch.sort", gpu.PEER, gpu.AUC, gpu.ALL, gpu.PLAIN} == jobs
    assert all(row["floor_ms"] > 0 and row["ms"] > 0 for row in found["times"])
    assert counting.fused is fused


def test_the_page_is_that_of_the_committed_run_in_which_every_promise_held():
    from benchmarks import gpu

    found = json.loads(gpu.PAGE.parents[1].joinpath("benchmarks", "gpu.json").read_text(encoding="utf-8"))
    assert gpu.PAGE.read_text(encoding="utf-8") == gpu.page(found)
    assert all(one["same"] for one in found["integers"])
    assert [claim for claim, value, most in gpu.promises(found) if value > most] == []
