"""The torchmetrics classes: batches make the whole, states travel, and bounds hold."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest

from cases import each, noted
from uqeval import estimate
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning
from uqeval.distributed import StreamState
from uqeval.metrics.registry import REGISTRY

torch = pytest.importorskip("torch")
torchmetrics = pytest.importorskip("torchmetrics")
pytestmark = pytest.mark.usefixtures("one_thread")

from torch import tensor  # noqa: E402
from torchmetrics import MetricCollection  # noqa: E402

import uqeval.torch as ut  # noqa: E402
from uqeval.torch import functional as fn  # noqa: E402

STEMS = {
    "UQAUC": "uq_auc",
    "UQCIndex": "uq_c_index",
    "TopLabelCIndex": "top_label_c_index",
    "AURC": "aurc",
    "EAURC": "e_aurc",
    "NAURC": "naurc",
    "AUGRC": "augrc",
    "GAUC": "g_auc",
    "HAUC": "h_auc",
    "AUARC": "auarc",
    "PRR": "prr",
    "SelectiveAccuracy": "selective_accuracy",
}
BOUNDED = {"UQAUC": "uq_auc", "AURC": "aurc", "AUGRC": "augrc"}


def columns(n=400, decimals=2, seed=0):
    rng = np.random.default_rng(seed)
    confidence = rng.random(n).round(decimals)
    score = (1 - confidence + 0.2 * rng.normal(size=n)).round(decimals)
    error = (rng.random(n) < 0.3).astype(np.uint8)
    found = {"score": score, "error": error, "loss": rng.random(n).round(decimals), "confidence": confidence}
    return {name: torch.from_numpy(x) for name, x in found.items()}


def needs(name):
    return REGISTRY.get(STEMS[name], REGISTRY["selective_accuracy_90"]).needs


def batches(given, names, cuts=(0, 1, 64, 64, 200, 400)):
    for start, stop in itertools.pairwise(cuts):
        yield [given[what][start:stop] for what in names]


def test_every_function_has_its_class_and_batches_make_the_whole():
    assert {*ut.__all__} == {*STEMS, "functional"}
    assert {*STEMS.values()} == {*fn.__all__} - {"accuracy", "estimate"}
    given = columns()
    for name, stem in STEMS.items():
        with noted(metric=name):
            metric, whole = getattr(ut, name)(), [given[what] for what in needs(name)]
            for batch in batches(given, needs(name)):
                metric.update(*batch)
            assert torch.equal(metric.compute(), getattr(fn, stem)(*whole))
            record = stem if stem in REGISTRY else "selective_accuracy_90"
            assert metric.compute_estimate(0.9) == fn.estimate(record, *whole, level=0.9)
            assert metric.higher_is_better is (REGISTRY[record].direction == "higher")
            assert metric.full_state_update is False
            metric.reset()
            metric.update(*batch)
            assert torch.equal(metric.compute(), getattr(fn, stem)(*batch))


def test_forward_gives_the_batch_and_keeps_all():
    given = columns()
    metric = ut.AURC()
    for score, error in batches(given, needs("AURC"), (0, 100, 400)):
        assert torch.equal(metric(score, error), fn.aurc(score, error))
    assert torch.equal(metric.compute(), fn.aurc(given["score"], given["error"]))


def test_a_batch_of_one_row_is_undefined_and_no_row_is_an_error():
    metric = ut.UQAUC()
    with pytest.warns(UndefinedMetricWarning, match="UQ-AUC is undefined: there is one row"):
        assert metric(tensor([0.5]), tensor([1])).isnan()
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(InputError, match="has 0 rows"):
        ut.UQAUC().compute()
    with pytest.raises(InputError, match="`error` has 1 rows but `score` has 2"):
        metric.update(tensor([0.5, 0.6]), tensor([1]))
    metric.update(tensor([0.5, 0.6]), tensor([1, 3]))
    with pytest.raises(InputError, match=r"`error` must be 0 \(right\) or 1 \(wrong\); row 2 holds 3"):
        metric.compute()


def test_states_are_pickled_copied_merged_and_saved():
    given = columns()
    for name in STEMS:
        with noted(metric=name):
            parts = list(batches(given, needs(name), (0, 150, 400)))
            one, other, whole = (getattr(ut, name)() for _ in range(3))
            for metric, some in ((one, parts[:1]), (other, parts[1:]), (whole, parts)):
                for part in some:
                    metric.update(*part)
            expected = whole.compute()
            assert torch.equal(pickle.loads(pickle.dumps(whole)).compute(), expected)
            assert torch.equal(copy.deepcopy(whole).compute(), expected)
            assert torch.equal(whole.clone().compute(), expected)
            one.merge_state(other)
            assert torch.equal(one.compute(), expected)
            whole.persistent(True)
            fresh = getattr(ut, name)()
            fresh.persistent(True)
            fresh.load_state_dict(whole.state_dict())
            fresh._update_count = 1
            assert torch.equal(fresh.compute(), expected)


def test_batches_of_different_dtypes_are_compared_exactly():
    metric = ut.UQAUC()
    metric.update(tensor([2**24 + 1, 2**24]), tensor([True, False]))
    metric.update(tensor([1.5, 2.5], dtype=torch.bfloat16), tensor([0.0, 1.0]))
    assert float(metric.compute()) == float(
        fn.uq_auc(tensor([2**24 + 1, 2**24, 1.5, 2.5], dtype=torch.float64), tensor([1, 0, 0, 1]))
    )


@each("options", [{}, {"bins": 1 << 10}])
def test_integers_that_would_tie_as_floats_are_refused(options):
    score, error = tensor([2**60, 2**60 + 1]), tensor([0, 1])
    assert fn.uq_auc(score, error) == 1.0
    with pytest.raises(InputError, match="`score` holds the integer 1152921504606846976, which float64 cannot tell"):
        ut.UQAUC(**options).update(score, error)
    metric = ut.UQAUC(**options)
    metric.update(score - 2**60 + 2**53 - 1, error)
    assert metric.compute() == 1.0 if not options else metric.compute_bounds().upper == 1.0


@each("convert", [lambda m: m.to(torch.bfloat16), lambda m: m.set_dtype(torch.float16), lambda m: m.double().half()])
@each("options", [{}, {"bins": 1 << 20}])
def test_rows_stay_as_exact_as_they_came_when_a_model_takes_another_dtype(convert, options):
    given = columns()
    score, error = given["score"].to(torch.float64) + 1e-3 * torch.rand(400, dtype=torch.float64), given["error"]
    metric, expected = ut.UQAUC(**options), ut.UQAUC(**options)
    for start, stop in ((0, 250), (250, 400)):
        for one in (metric, expected):
            one.update(score[start:stop], error[start:stop])
        convert(metric)
    assert torch.equal(metric.compute(), expected.compute())
    metric.reset()
    metric.update(score, error)
    assert torch.equal(metric.compute(), expected.compute())
    assert str(metric.to("meta").device) == "meta"


def test_a_collection_shares_the_rows_and_passes_each_metric_what_it_takes():
    given = columns()
    collection = MetricCollection([getattr(ut, name)() for name in STEMS])
    for start, stop in ((0, 100), (100, 400)):
        collection.update(**{name: x[start:stop] for name, x in given.items()})
    found = collection.compute()
    assert {name: float(x) for name, x in found.items()} == {
        name: float(getattr(fn, stem)(*(given[what] for what in needs(name)))) for name, stem in STEMS.items()
    }
    groups = [set(group) for group in collection.compute_groups.values()]
    assert {*STEMS} - {"UQCIndex", "TopLabelCIndex"} in groups
    assert collection["AUGRC"].compute_estimate() == fn.estimate("augrc", given["score"], given["error"])


def test_the_surest_share_may_be_any():
    given = columns()
    metric = ut.SelectiveAccuracy(coverage=0.55)
    metric.update(given["score"], given["error"])
    found = metric.compute_estimate()
    assert found.value == float(fn.selective_accuracy(given["score"], given["error"], 0.55)) == float(metric.compute())
    assert found.low < found.value < found.high
    with pytest.raises(InputError, match=r"`coverage` must lie in \(0, 1\]"):
        ut.SelectiveAccuracy(coverage=0)


# ---- a state of fixed size --------------------------------------------------------------------------------------


def test_bounds_hold_the_value_whatever_the_rows():
    rng = np.random.default_rng(0)
    tight = {1 << 10: 0.1, 1 << 16: 0.01, 1 << 20: 1e-3}
    for bins, width in tight.items():
        for make in (
            lambda n: rng.normal(size=n),
            lambda n: rng.random(n) ** 9,
            lambda n: np.append(rng.normal(size=n - 2), [np.inf, -np.inf]),
            lambda n: rng.normal(size=n) * 1e60,
            lambda n: rng.normal(size=n).astype(np.float16),
        ):
            score = torch.from_numpy(make(2000))
            error = torch.from_numpy(rng.random(2000) < 0.3)
            for name, stem in BOUNDED.items():
                metric = getattr(ut, name)(bins=bins)
                for part in (slice(0, 700), slice(700, 700), slice(700, 2000)):
                    metric.update(score[part], error[part])
                found = metric.compute_bounds()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UQWarning)
                    value = float(getattr(fn, stem)(score, error))
                with noted(bins=bins, metric=name):
                    # AURC is a sum of risks, which the two ways round differently.
                    assert found.lower - 1e-15 <= value <= found.upper + 1e-15
                    assert float(metric.compute()) == found.value
                    assert found.width <= width or float(score.abs().max()) > 1e38


def test_bounds_of_few_values_are_the_exact_value_as_those_of_a_stream():
    given = columns(decimals=1)
    for name, stem in BOUNDED.items():
        metric = getattr(ut, name)(bins=1 << 20)
        metric.update(given["score"], given["error"])
        found = metric.compute_bounds()
        stream = StreamState().update(given["score"], given["error"]).compute()
        assert (found.lower, found.upper) == (getattr(stream, stem).lower, getattr(stream, stem).upper)
        exact = getattr(ut, name)()
        exact.update(given["score"], given["error"])
        assert exact.compute_bounds().exact
        assert float(exact.compute()) == pytest.approx(found.value, rel=1e-12)


def test_counts_merge_to_the_same_integers_and_share_a_group():
    given = columns(1000, decimals=9)
    collection = MetricCollection([getattr(ut, name)(bins=1 << 12) for name in BOUNDED])
    collection.update(score=given["score"], error=given["error"])
    collection.compute()
    assert len(collection.compute_groups) == 1
    one, other = ut.AURC(bins=1 << 12), ut.AURC(bins=1 << 12)
    one.update(given["score"][:300], given["error"][:300])
    other.update(given["score"][300:], given["error"][300:])
    one.merge_state(other)
    assert torch.equal(one.compute(), collection["AURC"].compute())
    for name in ("right", "wrong", "least", "most"):
        assert torch.equal(getattr(one, name), getattr(collection["AURC"], name))


def test_what_bins_cannot_do_is_said():
    for bins in (1000, 1 << 9, 1 << 25, 2.0**20):
        with pytest.raises(InputError, match="`bins` must be"):
            ut.UQAUC(bins=bins)
    metric = ut.UQAUC(bins=1 << 10)
    with pytest.raises(InputError, match="No rows were seen"):
        metric.compute_bounds()
    with pytest.raises(InputError, match="With `bins` no rows are kept for an interval"):
        metric.compute_estimate()
    for score, error in ((tensor([torch.nan, 1.0]), tensor([0, 1])), (tensor([1.0, 2.0]), tensor([0, 2]))):
        metric = ut.UQAUC(bins=1 << 10)
        metric.update(score, error)
        with pytest.raises(InputError, match="`score` has NaN or `error` something else than 0 and 1"):
            metric.compute()


def test_estimates_of_a_class_are_those_of_arrays():
    given = columns()
    metric = ut.UQCIndex()
    metric.update(given["score"], given["loss"])
    found, expected = metric.compute_estimate(), estimate("uq_c_index", given["score"], given["loss"])
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.value, expected.low, expected.high), rel=1e-12
    )
