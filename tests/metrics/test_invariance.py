"""One suite over REGISTRY: what must not change a metric, what must mirror it, and where it must stay."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, noted, on_both_kernels
from optional import optional
from strategies import BACKENDS, each_backend, make_errors, make_losses01, make_probs, make_scores, seeds
from uqeval import kernels, metrics
from uqeval.metrics import REGISTRY

pd = optional("pandas")
pl = optional("polars")

pytestmark = [
    pytest.mark.filterwarnings("ignore::uqeval._errors.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning"),
    pytest.mark.filterwarnings("ignore:.*log-loss is infinite:uqeval._errors.UQWarning"),
]
ALL = sorted(REGISTRY)
SCORE_ARGUMENTS = ("score", "score_in", "score_out")
OOD = {"ood_auroc", "fpr_at_tpr", "ood_aupr"}  # two samples: no row weights
WEIGHTED = sorted(set(ALL) - OOD)
SCORED = [name for name in ALL if any(argument in SCORE_ARGUMENTS for argument in REGISTRY[name].needs)]
LOSS_METRICS = {name for name, metric in REGISTRY.items() if metric.losses}
# A weight equals copies except for the AURC family, whose coverages are counted row by row, and
# for the debiased ECE, whose correction depends on the number of rows.
COPIES = sorted(set(WEIGHTED) - {"aurc", "e_aurc", "naurc", "auarc", "prr", "prr_50", "ece_debiased"})
MIRRORED_AT_HALF = ("uq_auc", "uq_c_index", "top_label_c_index", "ood_auroc")  # value → 1 − value
MIRRORED_AT_ZERO = ("kendall_phi", "somers_phi", "kendall_varphi", "somers_varphi")  # value → −value


def make_inputs(name, rng, *, n=None, ties=True, loss=False):
    """Arguments of a metric by its `needs`: {argument: array}, one row each (score_out has its own rows)."""
    n = n or int(rng.integers(2, 61))
    kind = rng.choice(["grid", "mixture"] if ties else ["continuous"])
    made = {}
    for argument in REGISTRY[name].needs:
        if argument in SCORE_ARGUMENTS:
            size = n if argument != "score_out" else int(rng.integers(1, 61))
            made[argument] = make_scores(rng, size, kind)
        elif argument in ("error", "correct"):
            use_loss = loss and name in LOSS_METRICS
            made[argument] = (
                make_losses01(rng, n, rng.choice(["grid", "continuous"])) if use_loss else make_errors(rng, n)
            )
        elif argument in ("loss", "phi", "varphi"):
            made[argument] = make_losses01(rng, n, rng.choice(["grid", "continuous", "mixture"]))
        elif argument == "confidence":
            made[argument] = rng.choice([rng.random(n), rng.integers(0, 16, n) / 15])
        elif argument == "probs":
            made[argument] = make_probs(rng, n, int(rng.integers(2, 6)))
        elif argument == "labels":
            made[argument] = rng.integers(0, made["probs"].shape[1], n)
        else:
            raise AssertionError(f"{name} needs {argument}: add it here")
    return made


def evaluate(name, inputs, **options):
    return REGISTRY[name].function(*inputs.values(), **options)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def permute(inputs, rng):
    """All rows in a new order; both samples of an OOD metric in their own."""
    if "score_in" in inputs:
        return {key: rng.permutation(x) for key, x in inputs.items()}, None
    order = rng.permutation(len(next(iter(inputs.values()))))
    return {key: x[order] for key, x in inputs.items()}, order


# ---- the table itself -----------------------------------------------------------------------------------------


def test_metrics_and_kernels_are_chosen_by_name():
    # Every metric of the API is registered under its own name.
    assert all(REGISTRY[name].name == name for name in REGISTRY)
    api = "uq_auc uq_c_index aurc e_aurc augrc g_auc h_auc auarc prr ece brier log_loss ood_auroc fpr_at_tpr ood_aupr"
    assert set(api.split()) <= set(REGISTRY)
    assert all(metric.direction in ("higher", "lower") for metric in REGISTRY.values())

    # Switching kernels returns the former choice.
    former = kernels.backend()
    assert kernels.use("numpy") == former
    assert kernels.backend() == "numpy"
    assert kernels.use(former) == "numpy"


# ---- what must not change anything ----------------------------------------------------------------------------


@each("name", ALL)
@settings(max_examples=12)
@given(seed=seeds, loss=st.booleans())
def test_row_order_does_not_change_a_bit(name, seed, loss):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng, loss=loss)
    moved, _ = permute(inputs, rng)
    for backend in each_backend():
        assert same(evaluate(name, inputs), evaluate(name, moved)), backend


@each("name", WEIGHTED)
@settings(max_examples=12)
@given(seed=seeds, loss=st.booleans())
def test_row_order_does_not_change_a_bit_with_weights(name, seed, loss):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng, loss=loss)
    moved, order = permute(inputs, rng)
    w = rng.lognormal(size=len(order))
    for backend in each_backend():
        assert same(evaluate(name, inputs, weights=w), evaluate(name, moved, weights=w[order])), backend


@on_both_kernels
@each("name", ALL)
def test_row_order_does_not_change_a_bit_on_many_rows(name):
    rng = np.random.default_rng(0)
    inputs = make_inputs(name, rng, n=9_000)
    inputs.update({key: (rng.random(9_000) < 0.3).astype(float) for key in inputs if key in ("error", "correct")})
    values = {evaluate(name, inputs)} | {evaluate(name, permute(inputs, rng)[0]) for _ in range(2)}
    assert len(values) == 1
    if name in WEIGHTED:
        w = rng.lognormal(size=9_000)
        values = {evaluate(name, inputs, weights=w)}
        for _ in range(2):
            moved, order = permute(inputs, rng)
            values.add(evaluate(name, moved, weights=w[order]))
        assert len(values) == 1


@each("name", SCORED)
@settings(max_examples=12)
@given(seed=seeds, loss=st.booleans(), weighted=st.booleans())
def test_strictly_increasing_transform_of_the_score_does_not_change_a_bit(name, seed, loss, weighted):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng, loss=loss)
    options = {"weights": rng.lognormal(size=len(inputs["score"]))} if weighted and name in WEIGHTED else {}
    pooled = np.concatenate([x for key, x in inputs.items() if key in SCORE_ARGUMENTS])
    values = np.unique(pooled)  # any other strictly increasing values do: here from 1e-300 to infinity
    images = [
        np.sort(rng.choice(10**6, len(values), replace=False)) * 1e-6 - 0.3,
        np.sort(np.exp(rng.uniform(-600, 600, len(values)))),
        np.arange(len(values)) * 5e-324,
        1 + np.arange(len(values)) * 2.0**-52,
        np.append(np.arange(len(values) - 1), np.inf),
    ]
    for _ in each_backend():
        expected = evaluate(name, inputs, **options)
        for image in images:
            if len(np.unique(image)) < len(values):
                continue
            moved = {k: image[np.searchsorted(values, x)] if k in SCORE_ARGUMENTS else x for k, x in inputs.items()}
            assert same(evaluate(name, moved, **options), expected)


@settings(max_examples=12)
@given(seeds)
def test_increasing_transform_of_the_loss_does_not_change_rank_metrics(seed):
    rng = np.random.default_rng(seed)
    s, d = make_scores(rng, 30, "grid"), make_scores(rng, 30, "grid")
    w = rng.lognormal(size=30)
    for function in (metrics.uq_c_index, metrics.kendall_tau, metrics.somers_d):
        for options in ({}, {"weights": w}):
            assert same(function(s, np.exp(d), **options), function(s, d, **options))


@each("name", WEIGHTED)
@settings(max_examples=8)
@given(seed=seeds, exponent=st.sampled_from([-200, -30, 1, 40, 200]))
def test_weights_count_up_to_a_factor(name, seed, exponent):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng)
    w = rng.lognormal(size=len(next(iter(inputs.values()))))
    for _ in each_backend():
        assert same(evaluate(name, inputs, weights=w), evaluate(name, inputs, weights=w * 2.0**exponent))


@each("name", WEIGHTED)
@settings(max_examples=8)
@given(seed=seeds)
def test_equal_weights_are_no_weights_and_rows_of_weight_zero_do_not_exist(name, seed):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng)
    n = len(next(iter(inputs.values())))
    keep = rng.random(n) < 0.7
    keep[:2] = True
    kept = {key: x[keep] for key, x in inputs.items()}
    w = rng.lognormal(size=n)
    for _ in each_backend():
        assert same(evaluate(name, inputs), evaluate(name, inputs, weights=np.full(n, 0.3)))
        assert same(evaluate(name, kept), evaluate(name, inputs, weights=np.where(keep, 0.3, 0)))
        assert same(evaluate(name, kept, weights=w[keep]), evaluate(name, inputs, weights=np.where(keep, w, 0)))


@each("name", COPIES)
@settings(max_examples=12)
@given(seed=seeds, loss=st.booleans())
def test_whole_weights_are_copies_of_rows(name, seed, loss):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng, loss=loss)
    w = rng.integers(1, 4, len(next(iter(inputs.values()))))
    copies = {key: np.repeat(x, w, axis=0) for key, x in inputs.items()}
    doubled = {key: np.repeat(x, 2, axis=0) for key, x in inputs.items()}
    for _ in each_backend():
        assert evaluate(name, inputs, weights=w) == pytest.approx(
            evaluate(name, copies), rel=1e-12, abs=1e-12, nan_ok=True
        )
        assert evaluate(name, inputs) == pytest.approx(evaluate(name, doubled), rel=1e-12, abs=1e-12, nan_ok=True)


def test_a_weight_of_two_is_not_a_copy_for_aurc():
    """The exception, one coverage per row: (1·0 + 2·⅔)/3 with the weight, (0 + ½ + ⅔)/3 with the copy."""
    assert metrics.aurc([1, 2], [0, 1], weights=[1, 2]) == pytest.approx(4 / 9, abs=1e-15)
    assert metrics.aurc([1, 2, 2], [0, 1, 1]) == pytest.approx(7 / 18, abs=1e-15)


def test_types_and_containers_do_not_change_the_value():
    # Float32 and float64 agree where no ties arise.
    for name, ties in product(ALL, [True, False]):
        with noted(name=name, ties=ties):
            rng = np.random.default_rng(1)
            inputs = make_inputs(name, rng, n=50, ties=ties)
            inputs = {key: x.astype(np.float32) if x.dtype == np.float64 else x for key, x in inputs.items()}
            assert evaluate(name, inputs) == evaluate(
                name, {k: x.astype(np.float64) if k != "labels" else x for k, x in inputs.items()}
            )

    # Whole scores give the same in every dtype.
    for name, dtype in product(SCORED, [np.float16, np.float32, np.int8, np.int64, np.uint8]):
        with noted(name=name, dtype=dtype):
            rng = np.random.default_rng(2)
            inputs = make_inputs(name, rng, n=50)
            inputs = {
                k: rng.integers(0, 9, len(x)).astype(np.float64) if k in SCORE_ARGUMENTS else x
                for k, x in inputs.items()
            }
            cast = {k: x.astype(dtype) if k in SCORE_ARGUMENTS else x for k, x in inputs.items()}
            assert evaluate(name, cast) == evaluate(name, inputs)

    # Any container gives the same.
    for name, (label, convert) in product(
        ALL,
        zip(
            ["list", "tuple", "pandas", "polars", "arrow", "arrow-chunks", "strided", "view"],
            [
                lambda x: x.tolist(),
                lambda x: tuple(x.tolist()),
                lambda x: pd.Series(x, index=np.arange(len(x))[::-1]) if x.ndim == 1 else pd.DataFrame(x),
                lambda x: pl.Series(x) if x.ndim == 1 else pl.DataFrame(x),
                lambda x: pa.array(x) if x.ndim == 1 else x,
                lambda x: pa.chunked_array([x[:3], x[3:]]) if x.ndim == 1 else x,
                lambda x: np.asfortranarray(np.repeat(x, 2, axis=0))[::2],
                lambda x: x[::-1][::-1],
            ],
            strict=True,
        ),
    ):
        with noted(name=name, case=label):
            rng = np.random.default_rng(3)
            inputs = make_inputs(name, rng, n=30)
            frozen = {key: x.copy() for key, x in inputs.items()}
            for x in inputs.values():
                x.setflags(write=False)
            assert evaluate(name, {key: convert(x) for key, x in inputs.items()}) == evaluate(name, inputs)
            if name in WEIGHTED:
                w = rng.lognormal(size=30)
                converted = {key: convert(x) for key, x in inputs.items()}
                assert evaluate(name, converted, weights=convert(w)) == evaluate(name, inputs, weights=w)
            for key, x in inputs.items():
                np.testing.assert_array_equal(x, frozen[key])

    # Errors may be of any dtype.
    for name, dtype in product(
        [name for name in ALL if {"error", "correct"} & set(REGISTRY[name].needs)],
        [bool, np.uint8, np.int64, np.float32],
    ):
        with noted(name=name, dtype=dtype):
            inputs = make_inputs(name, np.random.default_rng(4), n=40)
            cast = {k: x.astype(dtype) if k in ("error", "correct") else x for k, x in inputs.items()}
            assert evaluate(name, cast) == evaluate(name, inputs)


@each("name", ALL)
@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native kernels are not built")
@settings(max_examples=8)
@given(seed=seeds, loss=st.booleans())
def test_both_kernels_give_the_same_bits_without_weights(name, seed, loss):
    inputs = make_inputs(name, np.random.default_rng(seed), loss=loss)
    values = [evaluate(name, inputs) for _ in each_backend()]
    assert same(*values)


# ---- mirrors --------------------------------------------------------------------------------------------------


@each("name", [*MIRRORED_AT_HALF, *MIRRORED_AT_ZERO])
@settings(max_examples=12)
@given(seed=seeds, weighted=st.booleans())
def test_negating_the_score_mirrors_the_value(name, seed, weighted):
    rng = np.random.default_rng(seed)
    inputs = make_inputs(name, rng)
    options = {"weights": rng.lognormal(size=len(inputs["score"]))} if weighted and name in WEIGHTED else {}
    mirrored = {key: -x if key in SCORE_ARGUMENTS else x for key, x in inputs.items()}
    for _ in each_backend():
        value, other = evaluate(name, inputs, **options), evaluate(name, mirrored, **options)
        total = 1 if name in MIRRORED_AT_HALF else 0
        assert math.isnan(value) == math.isnan(other)
        assert math.isnan(value) or value + other == pytest.approx(total, abs=1e-15 if not options else 1e-12)


@settings(max_examples=12)
@given(seeds)
def test_swapping_the_samples_mirrors_ood_auroc(seed):
    inside, outside = make_inputs("ood_auroc", np.random.default_rng(seed)).values()
    assert metrics.ood_auroc(inside, outside) + metrics.ood_auroc(outside, inside) == pytest.approx(1, abs=1e-15)


# ---- values ---------------------------------------------------------------------------------------------------


@each("name", ALL)
@settings(max_examples=12)
@given(seed=seeds, ties=st.booleans(), weighted=st.booleans(), best=st.booleans())
def test_value_lies_inside_the_registered_range(name, seed, ties, weighted, best):
    rng = np.random.default_rng(seed)
    metric = REGISTRY[name]
    inputs = make_inputs(name, rng, ties=ties)
    if best and name in WEIGHTED and metric.uses_score:  # the ends of the range: perfect and worst scores
        target = next(x for key, x in inputs.items() if key != "score")
        inputs["score"] = rng.choice([-1.0, 1.0]) * (target + (0 if ties else rng.random(len(target)) * 1e-6))
    # Weighted E-AURC may pass its optimum: the oracle is averaged over the rows of equal loss, exact for w = 1.
    weighted = weighted and name in WEIGHTED and name not in ("e_aurc", "naurc", "prr")
    options = {"weights": rng.lognormal(size=len(next(iter(inputs.values()))))} if weighted else {}
    low, high = metric.range
    for _ in each_backend():
        value = evaluate(name, inputs, **options)
        assert isinstance(value, float)
        assert math.isnan(value) or low <= value <= high


def test_a_score_that_knows_the_target_is_at_least_as_good_as_any_other():
    for name, seed in product([name for name in SCORED if name not in OOD], range(10)):
        with noted(name=name, seed=seed):
            rng = np.random.default_rng(seed)
            metric = REGISTRY[name]
            inputs = make_inputs(name, rng, n=40)
            target = next(x for key, x in inputs.items() if key != "score")
            target[:2] = 0, 1
            if metric.made is not None:
                target = metric.made[1](inputs["confidence"], inputs["error"])
            knows = evaluate(name, {**inputs, "score": target})
            for other in (rng.normal(size=40), -target, np.zeros(40), np.round(target + rng.normal(size=40))):
                value = evaluate(name, {**inputs, "score": other})
                if not math.isnan(value):
                    assert (knows >= value - 1e-15) if metric.direction == "higher" else (knows <= value + 1e-15)

    # A score that separates the samples is best.
    for name in sorted(OOD):
        with noted(name=name):
            best = REGISTRY[name].function([0.0, 0.1, 0.2], [0.3, 0.4])
            assert best == (1 if REGISTRY[name].direction == "higher" else 0)
