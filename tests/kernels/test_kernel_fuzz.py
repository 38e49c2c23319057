"""The fuzzer of the kernels finds what is wrong, and says how to see it again."""

from __future__ import annotations

import os

import numpy as np
import pytest

from cases import noted
from fuzz import __main__ as fuzz
from fuzz import loop
from strategies import BACKENDS
from uqeval import kernels

fuzz_kernels = pytest.importorskip("fuzz.kernels", reason="the native kernels are not built")
pytestmark = pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")


def slightly_wrong(answer, rng):
    """Another answer of the same kind: a number of it is 1 more, or off in the sixth digit."""
    if isinstance(answer, kernels.Order):
        return kernels.Order(slightly_wrong(answer.row, rng), answer.new)
    if isinstance(answer, tuple):
        at = rng.integers(len(answer))
        changed = [slightly_wrong(x, rng) if k == at else x for k, x in enumerate(answer)]
        return type(answer)(*changed) if hasattr(answer, "_fields") else tuple(changed)
    if isinstance(answer, np.ndarray):
        if answer.size:
            at = tuple(rng.integers(size) for size in answer.shape)
            answer[at] = slightly_wrong(answer[at], rng)
        return answer
    return answer * (1 + 1e-6) + 1e-6 if isinstance(answer, float) else answer + 1


def run_batches(seed, number):
    tally = loop.Tally()
    for batch in range(number):
        fuzz_kernels.one(np.random.default_rng([seed, batch]), tally)
    return tally


def test_a_kernel_that_is_wrong_one_time_in_a_hundred_is_found(monkeypatch):
    former = kernels.backend()
    for name in sorted(set(fuzz_kernels.native.__all__) - {"hold"}):
        right, rng = getattr(fuzz_kernels.native, name), np.random.default_rng(0)

        def wrong(*given, right=right, rng=rng, name=name):
            answer = right(*given)
            if rng.random() > 0.01:
                return answer
            return given[0].__iadd__(2.0**-40) if name == "to_grid" else slightly_wrong(answer, rng)

        with noted(kernel=name), monkeypatch.context() as patch:
            patch.setattr(fuzz_kernels.native, name, wrong)
            with pytest.raises(loop.Wrong):  # no other error: it is the answer that is seen
                run_batches(1, 300)
    kernels.use(former)


def test_all_kernels_are_right_in_the_first_batches_of_a_seed():
    former = kernels.backend()
    tally = run_batches(0, 60)
    kernels.use(former)
    assert set(tally.executions) == {*fuzz_kernels.native.__all__, "draw_units", "refused"} - {"hold"}


def crashing(rng, tally):
    if rng.random() > 0.5:
        os.abort()
    tally.equal("fine", np.zeros(5), np.zeros(5))


def hanging(rng, tally):
    while True:
        pass


def test_a_crash_and_a_hang_name_the_batch_that_shows_them_again(monkeypatch, capfd):
    monkeypatch.setattr(loop, "_SAY", 0.1)
    first = next(b for b in range(99) if np.random.default_rng([3, b]).random() > 0.5)
    assert loop.run("kernels", crashing, 60.0, 3) == 1
    assert f"python -m fuzz kernels --seed 3 --batch {first}\n" in capfd.readouterr().out
    monkeypatch.setattr(loop, "_HANGS", 1.0)
    assert loop.run("kernels", hanging, 60.0, 3) == 1
    assert "hangs for 1 s. Reproduce: python -m fuzz kernels --seed 3 --batch 0\n" in capfd.readouterr().out


def test_one_batch_runs_from_the_command_line(capsys):
    assert fuzz.run(["kernels", "--seed", "0", "--batch", "3"]) == 0
    assert capsys.readouterr().out == "batch 3 of seed 0: right\n"
