"""Metrics whose rows lie in two processes: the value of all rows, however they were dealt out."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torchmetrics import MetricCollection  # noqa: E402

import uqeval.torch as ut  # noqa: E402
from uqeval.torch import functional  # noqa: E402

PROCESSES = 2


def make_rows():
    rng = torch.Generator().manual_seed(0)
    score = torch.rand(300, generator=rng, dtype=torch.float64).round(decimals=2)
    return score, torch.rand(300, generator=rng) < 0.3, torch.rand(300, generator=rng).round(decimals=1)


def check_rank(rank, folder):
    """What each process does; an assertion that fails ends the test."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=PROCESSES)
    score, error, loss = make_rows()
    # Batches of this rank: different numbers of them, of different lengths and dtypes, or none at all.
    for dealt in (
        ([(0, 50), (50, 51), (51, 120)], [(120, 300)]),
        ([(0, 300)], []),
        ([], [(0, 10), (10, 10), (10, 300)]),
    ):
        auc, pairs, bounds = ut.UQAUC(), ut.UQCIndex(), ut.AURC(bins=1 << 20)
        together = MetricCollection([ut.AURC(), ut.AUGRC(), ut.SelectiveAccuracy()])
        for start, stop in dealt[rank]:
            part = slice(start, stop)
            bits = error[part] if stop < 120 else error[part].to(torch.int64)
            auc.update(score[part], bits)
            pairs.update(score[part], loss[part])
            bounds.update(score[part], bits)
            together.update(score=score[part], error=bits)
        assert torch.equal(auc.compute(), functional.uq_auc(score, error))
        assert auc.compute_estimate() == functional.estimate("uq_auc", score, error)
        assert pairs.compute_estimate() == functional.estimate("uq_c_index", score, loss)
        assert pairs.compute() == functional.uq_c_index(score, loss)
        assert float(bounds.compute()) == pytest.approx(float(functional.aurc(score, error)), rel=1e-12)
        for name, value in together.compute().items():
            stem = {"AURC": "aurc", "AUGRC": "augrc", "SelectiveAccuracy": "selective_accuracy"}[name]
            assert torch.equal(value, getattr(functional, stem)(score, error))
        own = sum(stop - start for start, stop in dealt[rank])
        assert sum(map(len, auc.score)) == own, "a rank goes on with its own rows"
    dist.destroy_process_group()


def check_quietly(rank, folder):
    with warnings.catch_warnings():
        # A rank without rows computes before it has updated: torchmetrics says so.
        warnings.simplefilter("ignore", UserWarning)
        check_rank(rank, folder)


@pytest.mark.slow  # 8 s: each process loads torch
def test_processes_with_uneven_batches_or_none_get_the_value_of_all_rows(tmp_path):
    mp.spawn(check_quietly, (str(tmp_path),), nprocs=PROCESSES)
