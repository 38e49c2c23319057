"""What the card counts is what the CPU counts. Skipped where there is no CUDA device: CI has none.

The kernels themselves are compared by Triton's interpreter everywhere (`test_triton`).
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import pytest

import uqeval as uq
from cases import noted
from uqeval._errors import UQWarning

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton") is None, reason="no CUDA device, or no Triton"
)

SIZES = (2, 3, 31, 4095, 4096, 4097, 8193, 70_001, 5_000_003)
KINDS = ("float32", "float64", "bfloat16", "float16", "int64", "uint8")


def rows(n, decimals, rate=0.3, kind="float32"):
    """Score, error and loss on the card; rounded numbers tie."""
    draw = torch.Generator("cuda").manual_seed(n)
    score, loss = (10 * torch.randn(n, device="cuda", generator=draw) + 20 for _ in range(2))
    if decimals is not None:
        score, loss = score.round(decimals=decimals), loss.round(decimals=decimals)
    wrong = torch.rand(n, device="cuda", generator=draw) < rate
    return score.to(getattr(torch, kind)), wrong, loss


def test_kernels_of_runs_count_what_plain_torch_counts():
    from uqeval.torch import counting
    from uqeval.torch.plain.runs import Runs as Plain
    from uqeval.torch.triton.runs import Runs

    for n in SIZES:
        kinds = (
            [(0.3, "float32")] if n > 10**6 else [(0.0, "float64"), (1.0, "int64"), *((0.3, kind) for kind in KINDS)]
        )
        for decimals in (None, 3, 1, 0, -2):
            for rate, kind in kinds:
                score, wrong, _ = rows(n, decimals, rate, kind)
                cuts = counting.cut_places(n, (0.8, 0.9, 0.95))
                with noted(n=n, decimals=decimals, rate=rate, kind=kind):
                    one, other = (runs(score, wrong.view(torch.uint8)) for runs in (Runs, Plain))
                    (totals, areas), (expected, plain_areas) = one.sums(True), other.sums(True)
                    assert torch.equal(totals, expected)
                    assert torch.equal(one.sums(False)[0], expected)
                    assert torch.equal(one.ends, other.ends)
                    torch.testing.assert_close(areas, plain_areas, rtol=1e-12, atol=1e-14 * n)
                    around = [torch.cat([x.long() for x in runs.around(cuts)]) for runs in (one, other)]
                    assert torch.equal(*around)


def test_kernels_of_pairs_count_what_plain_torch_counts():
    from uqeval.torch.plain.pairs import pair_sums as plain
    from uqeval.torch.triton.pairs import pair_sums

    for n in SIZES:
        for decimals in (None, 3, 1, 0, -2):
            for kind in KINDS if n < 10**6 else ("float32", "float64"):
                score, _, loss = rows(n, decimals, kind=kind)
                with noted(n=n, decimals=decimals, kind=kind):
                    found, expected = pair_sums(score, loss), plain(score, loss)
                    assert torch.equal(found.ints, expected.ints)
                    assert torch.equal(found.ends, expected.ends)
                    assert bool(found.constant) == bool(expected.constant)
                    torch.testing.assert_close(found.floats, expected.floats, rtol=1e-10, atol=1e-13, equal_nan=True)


def test_an_evaluation_on_the_card_has_the_numbers_and_notes_of_arrays():
    for n, decimals, rate in ((1_000, None, 0.1), (3_000, 1, 0.4), (50_000, 3, 0.02), (500, 0, 0.0)):
        score, wrong, loss = rows(n, decimals, rate)
        with noted(n=n, decimals=decimals, rate=rate), warnings.catch_warnings():
            warnings.simplefilter("ignore", UQWarning)
            found = uq.evaluate(score=score, error=wrong, loss=loss)
            expected = uq.evaluate(score=score.cpu().numpy(), error=wrong.cpu().numpy(), loss=loss.cpu().numpy())
            assert found.warnings == expected.warnings
            for one, other in zip(found, expected, strict=True):
                assert (one.score, one.metric) == (other.score, other.metric)
                numbers = [[getattr(x.estimate, part) for part in ("value", "low", "high", "se")] for x in (one, other)]
                assert numbers[0] == pytest.approx(numbers[1], rel=1e-9, abs=1e-12, nan_ok=True)


def test_classes_on_the_card_hold_the_numbers_of_all_rows():
    from torchmetrics import MetricCollection

    from uqeval.torch import AURC, UQAUC, UQCIndex, functional

    score, wrong, loss = rows(10_000, 2)
    both = MetricCollection([UQAUC(), AURC()]).to("cuda")
    index = UQCIndex().to("cuda")
    for some in torch.arange(len(score), device="cuda").split(777):
        both.update(score=score[some], error=wrong[some])
        index.update(score[some], loss[some])
    values = both.compute()
    assert values["UQAUC"].is_cuda
    assert float(values["UQAUC"]) == float(functional.uq_auc(score, wrong))
    assert float(values["AURC"]) == float(functional.aurc(score, wrong))
    assert float(index.compute()) == float(functional.uq_c_index(score, loss))
    assert index.compute_estimate() == functional.estimate("uq_c_index", score, loss)


def test_the_host_waits_for_the_card_once_and_results_are_the_same_bits_each_time():
    from uqeval.torch import functional

    score, wrong, loss = rows(100_000, 3)
    for name, target in (("uq_auc", wrong), ("aurc", wrong), ("selective_accuracy_90", wrong), ("uq_c_index", loss)):
        first = functional.estimate(name, score, target)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always")
                again = functional.estimate(name, score, target)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits = [str(one.message) for one in raised if "synchroniz" in str(one.message)]
        assert len(waits) == 1, (name, waits)
        assert again == first


def test_the_peak_is_at_most_70_bytes_a_row_with_the_inputs():
    from uqeval.torch import functional

    n = 10**7
    for kind in (None, 3):
        score, wrong, loss = rows(n, kind)
        for name, target in (("uq_auc", wrong), ("aurc", wrong), ("uq_c_index", loss)):
            functional.estimate(name, score, target)
            torch.cuda.reset_peak_memory_stats()
            others = torch.cuda.memory_allocated() - score.nbytes - target.nbytes
            functional.estimate(name, score, target)
            assert (torch.cuda.max_memory_allocated() - others) / n <= 70, name


def test_odd_rows_on_the_card_are_refused_in_the_words_of_arrays():
    from uqeval._errors import InputError
    from uqeval.torch import functional

    score, wrong, _ = rows(5_000_000, None)
    nan, two = score.clone(), wrong.to(torch.uint8)
    nan[17], two[4_999_999] = torch.nan, 2
    for call, words in (
        (lambda: functional.uq_auc(nan, wrong), "`score` has 1 NaN (first at row 17)"),
        (lambda: functional.aurc(score, two), "`error` must be 0 (right) or 1 (wrong); row 4999999 holds 2"),
        (lambda: functional.uq_c_index(score, nan), "`loss` has 1 NaN (first at row 17)"),
        (lambda: functional.uq_auc(score, wrong.cpu()), "`error` is on cpu but `score` on cuda:0"),
    ):
        with pytest.raises(InputError) as raised:
            call()
        assert words in str(raised.value)
