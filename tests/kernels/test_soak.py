"""`make soak` sees a wrong number and what grows."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from cases import noted
from fuzz import soak
from uqeval import kernels

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read where Linux shows it")
pytestmark = pytest.mark.filterwarnings("ignore::uqeval.UQWarning")  # small sets, degenerate intervals
MB = 2**20


def test_a_pair_more_or_less_is_seen_by_all_that_counts_pairs(monkeypatch, tmp_path):
    data = soak.rows(np.random.default_rng(1))
    works = soak.evaluated, soak.compared, soak.chosen, soak.distributed
    for work in works:
        work(data, np.random.default_rng(0), tmp_path)
    for name in ("auc_sums", "sweep"):
        right = getattr(kernels, name)
        more = lambda *given, right=right: right(*given)._replace(credit2=right(*given).credit2 + 1)  # noqa: E731
        monkeypatch.setattr(kernels, name, more)
    credits = kernels.credits
    monkeypatch.setattr(kernels, "credits", lambda marks: credits(marks) + np.uint32(1))
    for work in (soak.evaluated, soak.compared):
        with noted(work=work), pytest.raises(AssertionError, match="UQ-AUC of a is"):
            work(data, np.random.default_rng(0), tmp_path)


def test_growth_is_told_from_noise():
    noise = random.Random(0)
    level = [(200 * MB + noise.randrange(20 * MB), 9 + noise.randrange(3)) for _ in range(300)]
    assert soak.grown(level) == []
    assert soak.grown([(size + k * MB // 4, files) for k, (size, files) in enumerate(level)])[0].startswith(
        "memory grew"
    )
    leak = [(size, files + k // 20) for k, (size, files) in enumerate(level)]
    assert soak.grown(leak)[0].startswith("open files grew from")
    assert "too short" in soak.grown(level[:2])[0]


@pytest.mark.slow
@needs_proc
def test_a_short_soak_is_clean(monkeypatch, capsys):
    monkeypatch.setattr(soak, "_SAMPLE", 0.05)
    monkeypatch.setattr(
        soak, "grown", lambda samples: [] if samples else ["no samples"]
    )  # modules are still being loaded
    assert soak.main(1.0, 0) == 0
    assert "rounds" in capsys.readouterr().out
