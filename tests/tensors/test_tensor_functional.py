"""Metrics on tensors: the definition, the integers of the kernels, and the intervals of arrays."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import oracle
from cases import each, noted
from uqeval import estimate, kernels, metrics
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning
from uqeval.metrics.areas import Ranking
from uqeval.metrics.registry import REGISTRY
from uqeval.metrics.swept import Swept

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import tensor  # noqa: E402

from uqeval.torch import functional as fn  # noqa: E402
from uqeval.torch.counting import concordance, ranked, sweep  # noqa: E402
from uqeval.torch.plain.pairs import credits_of  # noqa: E402
from uqeval.torch.tallies import counts  # noqa: E402

ON_TENSORS = [name for name, metric in REGISTRY.items() if counts(metric)]
BY_ERROR = [name for name in fn.__all__ if name not in ("uq_c_index", "top_label_c_index", "accuracy", "estimate")]
SIZES = (2, 3, 7, 63, 64, 65, 127, 129, 255, 257, 1000, 4095, 4097)
TIES = (None, 3, 1, 0)  # decimals


def rows(n, decimals, rate=0.3, seed=0):
    """Score, error, loss and confidence; rounded numbers tie."""
    rng = np.random.default_rng([n, seed])
    score, loss = rng.normal(size=n), rng.normal(size=n)
    if decimals is not None:
        score, loss = score.round(decimals), loss.round(decimals)
    return (
        score,
        (rng.random(n) < rate).astype(np.uint8),
        loss,
        rng.random(n).round(3 if decimals is None else decimals),
    )


def on_tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


def data_of(name, score, error, loss, confidence):
    given = {"score": score, "error": error, "loss": loss, "confidence": confidence}
    return [given[what] for what in REGISTRY[name].needs]


def same(found, expected):
    return found == expected or (found != found and expected != expected)


# ---- counts -----------------------------------------------------------------------------------------------------


def test_every_integer_of_a_sweep_is_that_of_the_kernels_and_floats_agree_to_1e_12():
    for n in SIZES:
        for decimals in TIES:
            for rate in (0.0, 0.02, 0.4, 1.0):
                with noted(n=n, decimals=decimals, rate=rate):
                    score, error, *_ = rows(n, decimals, rate)
                    expected = Swept(Ranking(score), error)
                    found, _ = sweep(ranked(*on_tensors(score, error)), (0.8, 0.9, 0.95), True)
                    for name, one, other in zip(expected.sums._fields, found.sums, expected.sums, strict=True):
                        if isinstance(other, int):
                            assert (one, name) == (other, name)
                        else:
                            # 1e-10 as in the kernels' own tests where terms cancel: every row wrong has Σ e = 0.
                            assert one == pytest.approx(other, rel=1e-12, abs=1e-10), name
                    for share in (0.8, 0.9, 0.95):
                        assert found.accepted(share) == expected.accepted(share)


def test_credits_of_rows_and_their_sums_are_those_of_the_kernels():
    for n in SIZES:
        for decimals in TIES:
            with noted(n=n, decimals=decimals):
                score, _, loss, _ = rows(n, decimals)
                found = credits_of(*on_tensors(score, loss))
                expected, comparable = kernels.pair_counts(score[None], loss)
                order = np.lexsort((score, loss))
                np.testing.assert_array_equal(found.credit2, expected[0][order])
                np.testing.assert_array_equal(n - found.tied, comparable[order])
                sums, constant, _ = concordance(*on_tensors(score, loss))
                known = kernels.concordance(score, loss)
                assert sums[:2] == known[:2]
                assert constant == (np.ptp(score) == 0)
                assert sums[2:] == pytest.approx(known[2:], rel=1e-12, abs=1e-15, nan_ok=True)


@each("decimals", [None, 0])
def test_values_are_those_of_the_definition(decimals):
    score, error, loss, confidence = rows(60, decimals)
    s, e, d, c = on_tensors(score, error, loss, confidence)
    assert float(fn.uq_auc(s, e)) == pytest.approx(oracle.uq_auc(score, error), rel=1e-14)
    assert float(fn.uq_c_index(s, d)) == pytest.approx(oracle.uq_c_index(score, loss), rel=1e-14)
    expected = oracle.top_label_c_index(score, confidence, error)
    assert float(fn.top_label_c_index(s, c, e)) == pytest.approx(expected, rel=1e-14)
    assert float(fn.aurc(s, e)) == pytest.approx(oracle.aurc(score, error), rel=1e-12)
    assert float(fn.augrc(s, e)) == pytest.approx(oracle.augrc(score, error), rel=1e-12)
    expected = oracle.selective_accuracy(score, error, coverage=0.83)
    assert float(fn.selective_accuracy(s, e, 0.83)) == pytest.approx(expected, rel=1e-12)


def test_values_made_of_integers_have_the_bits_of_arrays():
    exact = [name for name in BY_ERROR if "aurc" not in name and name != "prr"]
    for n, decimals in ((2, None), (64, 1), (1000, None), (4097, 2)):
        score, error, loss, confidence = rows(n, decimals, seed=3)
        error[:2] = 0, 1
        given = on_tensors(score, error, loss, confidence)
        assert float(fn.accuracy(given[1])) == estimate("accuracy", error).value
        for name in (*exact, "uq_c_index", "top_label_c_index"):
            with noted(n=n, decimals=decimals, metric=name):
                record = REGISTRY.get(name, REGISTRY["selective_accuracy_90"])
                needs = [{"score": 0, "error": 1, "loss": 2, "confidence": 3}[what] for what in record.needs]
                arrays = [(score, error, loss, confidence)[k] for k in needs]
                assert float(getattr(fn, name)(*(given[k] for k in needs))) == getattr(metrics, name)(*arrays)


def test_every_dtype_is_compared_as_it_is():
    rng = np.random.default_rng(1)
    error = rng.random(500) < 0.3
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int64, torch.uint8):
        score = torch.from_numpy(rng.normal(size=500) * 20 + 100).to(dtype)
        wide = score.to(torch.float64).numpy()
        loss = torch.from_numpy(rng.random(500)).to(dtype if dtype.is_floating_point else torch.float32)
        with noted(dtype=dtype):
            for kind in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32):
                assert float(fn.uq_auc(score, torch.from_numpy(error).to(kind))) == metrics.uq_auc(wide, error)
            assert float(fn.uq_c_index(score, loss)) == metrics.uq_c_index(wide, loss.to(torch.float64).numpy())


def test_infinities_rank_first_and_last_and_minus_zero_is_zero():
    score = tensor([0.0, -0.0, torch.inf, -torch.inf, torch.inf, -1.0])
    error = tensor([1, 0, 1, 0, 0, 1])
    with pytest.warns(UQWarning, match="`score` has 3 infinite values; they rank first or last and tie"):
        found = float(fn.uq_auc(score, error))
    assert found == oracle.uq_auc(score.numpy(), error.numpy())
    with pytest.warns(UQWarning, match="3 infinite"):
        assert float(fn.uq_c_index(score, -score)) == 0.0
    zeros = tensor([0.0, -0.0, 0.0, -0.0])
    assert float(fn.uq_auc(zeros, tensor([1, 0, 0, 1]))) == 0.5
    assert float(fn.uq_c_index(tensor([1.0, 2.0, 3.0]), tensor([0.0, -0.0, 1.0]))) == 1.0


def test_the_order_of_rows_changes_no_bit():
    score, error, loss, _ = on_tensors(*rows(3000, 2))
    there = [fn.estimate(name, score, error) for name in BY_ERROR if name in REGISTRY]
    there.append(fn.estimate("uq_c_index", score, loss))
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    again = [fn.estimate(name, score[order], error[order]) for name in BY_ERROR if name in REGISTRY]
    again.append(fn.estimate("uq_c_index", score[order], loss[order]))
    assert there[:-1] == again[:-1]
    assert there[-1].value == again[-1].value
    assert there[-1].se == pytest.approx(again[-1].se, rel=1e-12)


def test_nothing_but_the_result_is_read_from_the_device(monkeypatch):
    reads = []

    def counted(name):
        real = getattr(torch.Tensor, name)

        def method(self, *given):
            reads.append(name)
            return real(self, *given)

        monkeypatch.setattr(torch.Tensor, name, method)

    for name in ("cpu", "item", "tolist", "__bool__", "__int__", "__float__", "nonzero", "numpy"):
        counted(name)
    score, error, loss, _ = on_tensors(*rows(500, 1))
    for name, target in (("uq_auc", error), ("aurc", error), ("selective_accuracy", error), ("uq_c_index", loss)):
        reads.clear()
        getattr(fn, name)(score, target)
        assert set(reads) <= {"cpu", "tolist"}, name
        assert reads.count("cpu") <= 1
        assert reads.count("tolist") <= 2, "the whole numbers and the others, of one copy"


def test_results_stay_on_the_device_as_float64_without_dimensions():
    score, error, *_ = on_tensors(*rows(50, None))
    found = fn.aurc(score.to(torch.float16).requires_grad_(), error)
    assert (found.dtype, found.ndim, found.device, found.requires_grad) == (torch.float64, 0, score.device, False)


# ---- estimates --------------------------------------------------------------------------------------------------


def test_estimates_are_those_of_arrays_for_every_metric():
    for n, decimals, rate in ((12, 1, 0.3), (60, None, 0.1), (300, None, 0.03), (1000, 2, 0.3), (65, 0, 0.5)):
        given = rows(n, decimals, rate, seed=5)
        for name in ON_TENSORS:
            with noted(n=n, decimals=decimals, rate=rate, metric=name), warnings.catch_warnings():
                warnings.simplefilter("ignore", UQWarning)
                expected = estimate(name, *data_of(name, *given))
                found = fn.estimate(name, *on_tensors(*data_of(name, *given)))
                assert (found.method, found.n, found.n_errors, found.warnings) == (
                    *(expected.method, expected.n, expected.n_errors, expected.warnings),
                )
                for part in ("value", "se", "low", "high", "n_eff"):
                    one, other = getattr(found, part), getattr(expected, part)
                    assert one == pytest.approx(other, rel=1e-12, abs=1e-12, nan_ok=True), part


def test_level_and_names_of_arguments_are_those_of_arrays():
    score, error, loss, _ = rows(200, None)
    found = fn.estimate("uq_c_index", loss=torch.from_numpy(loss), score=torch.from_numpy(score), level=0.8)
    expected = estimate("uq_c_index", score, loss, level=0.8)
    assert (found.low, found.high, found.level) == pytest.approx((expected.low, expected.high, 0.8), rel=1e-12)
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        fn.estimate("uq_auc", *on_tensors(score, error), level=95)
    with pytest.raises(InputError, match="uq_auc needs score, error; pass error"):
        fn.estimate("uq_auc", torch.from_numpy(score))


# ---- degenerate and bad input -----------------------------------------------------------------------------------


def test_one_class_one_value_and_a_perfect_ranking():
    score = tensor([0.1, 0.2, 0.3, 0.4])
    for error, missing in ((torch.zeros(4), "wrong"), (torch.ones(4), "right")):
        with pytest.warns(
            UndefinedMetricWarning, match=f"UQ-AUC is undefined: the test set has no {missing} prediction"
        ):
            assert fn.uq_auc(score, error).isnan()
        with pytest.warns(UndefinedMetricWarning, match="nAURC is undefined: all losses are equal"):
            assert fn.naurc(score, error).isnan()
        assert float(fn.aurc(score, error)) == float(error[0])
    with pytest.warns(UndefinedMetricWarning, match="UQ-C-index is undefined: all losses are equal"):
        assert fn.uq_c_index(score, torch.ones(4)).isnan()
    constant, error = torch.ones(4), tensor([0, 1, 0, 1])
    assert [float(f(constant, error)) for f in (fn.uq_auc, fn.aurc, fn.naurc, fn.uq_c_index)] == [0.5, 0.5, 1.0, 0.5]
    assert float(fn.e_aurc(score, tensor([0, 0, 1, 1]))) == 0.0


def test_bad_input_is_refused_in_the_words_of_arrays():
    good, bits = tensor([0.1, 0.2, 0.3]), tensor([0, 1, 0])
    nan = tensor([0.1, torch.nan, torch.nan])
    for call, words in (
        (lambda: fn.uq_auc(nan, bits), "`score` has 2 NaN (first at row 1)"),
        (lambda: fn.uq_auc(good, nan), "`error` has 2 NaN (first at row 1)"),
        (lambda: fn.aurc(good, tensor([0, 1, 2])), "`error` must be 0 (right) or 1 (wrong); row 2 holds 2"),
        (lambda: fn.aurc(good, tensor([0, 0.5, 1])), "`error` must be 0 (right) or 1 (wrong); row 1 holds 0.5"),
        (lambda: fn.uq_c_index(good, nan), "`loss` has 2 NaN (first at row 1)"),
        (lambda: fn.uq_c_index(nan, good), "`score` has 2 NaN (first at row 1)"),
        (lambda: fn.top_label_c_index(good, 2 * good + 0.5, bits), "confidence"),
        (lambda: fn.top_label_c_index(good, nan, bits), "`confidence` has 2 NaN"),
        (lambda: fn.top_label_c_index(good, good, 2 * bits), "`error` must be 0 (right) or 1 (wrong); row 1 holds 2"),
        (lambda: fn.accuracy(3 * bits), "`error` must be 0 (right) or 1 (wrong); row 1 holds 3"),
        (lambda: fn.uq_auc(good, bits[:2]), "`error` has 2 rows but `score` has 3"),
        (lambda: fn.uq_auc(good[:1], bits[:1]), "`score` has 1 row. Ranking needs at least 2."),
        (lambda: fn.uq_auc(good[:, None], bits), "`score` has shape (3, 1). Pass it with shape (3,): score.ravel()."),
        (lambda: fn.uq_auc(tensor(1.0), bits), "`score` has shape (). Pass one number per row"),
        (lambda: fn.uq_auc([0.1, 0.2, 0.3], bits), "`score` is no tensor (list)"),
        (lambda: fn.uq_auc(good.to(torch.complex64), bits), "`score` holds torch.complex64, not numbers"),
        (lambda: fn.uq_auc(good.to(torch.float8_e5m2), bits), "`score` holds torch.float8_e5m2, which torch cannot"),
        (lambda: fn.uq_c_index(good, good.to_sparse()), "`loss` is a sparse or nested tensor. Pass a dense one"),
        (lambda: fn.uq_auc(good, bits.to("meta")), "`error` is on meta but `score` on cpu"),
        (lambda: fn.selective_accuracy(good, bits, 1.5), "`coverage` must lie in (0, 1]"),
        (lambda: fn.estimate("brier", good, bits), "brier is not computed on tensors; uqeval.estimate takes arrays"),
        (lambda: fn.estimate("auc", good, bits), 'There is no metric "auc"'),
    ):
        with pytest.raises(InputError) as raised:
            call()
        assert words in str(raised.value)


def test_import_uqeval_loads_no_torch_and_functions_need_no_torchmetrics():
    code = "import sys, uqeval; uqeval.evaluate; print('torch' in sys.modules); uqeval.torch.functional; "
    code += "print('torch' in sys.modules, 'torchmetrics' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_missing_package_is_told_with_the_line_that_brings_it(monkeypatch):
    import uqeval.torch
    from uqeval._errors import MissingExtra

    for name in ("uqeval.torch.metrics", "uqeval.torch.states"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delitem(vars(uqeval.torch), "UQAUC", raising=False)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(MissingExtra, match=r'uqeval.torch.UQAUC needs torchmetrics. .*pip install "uqeval\[torch\]"'):
        uqeval.torch.UQAUC  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'UQ'"):
        uqeval.torch.UQ  # noqa: B018


def test_many_runs_are_summed_some_at_a_time(monkeypatch):
    score, error, *_ = on_tensors(*rows(1000, 3))
    whole = sweep(ranked(score, error), (0.9,), True)[0].sums
    monkeypatch.setattr("uqeval.torch.plain.runs._AT_ONCE", 17)
    pieces = sweep(ranked(score, error), (0.9,), True)[0].sums
    for one, other in zip(whole, pieces, strict=True):
        assert one == other if isinstance(one, int) else one == pytest.approx(other, rel=1e-12)
