"""Bad input never gives a number: an InputError names the argument, shows what came, and says where."""

from __future__ import annotations

import math
import warnings
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from cases import each, noted
from optional import optional
from uqeval import metrics
from uqeval._errors import InputError, UQWarning
from uqeval.metrics import REGISTRY
from uqeval.metrics.registry import get_metric

pd = optional("pandas")
pl = optional("polars")

NAN, INF = math.nan, math.inf
GOOD = {
    "score": [0.1, 0.4, 0.2, 0.9],
    "error": [0, 1, 0, 1],
    "loss": [0.1, 0.7, 0.3, 0.8],
    "phi": [0.1, 0.7, 0.3, 0.8],
    "varphi": [0.1, 0.7, 0.3, 0.8],
    "confidence": [0.9, 0.6, 0.8, 0.7],
    "correct": [1, 0, 1, 0],
    "probs": [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]],
    "labels": [0, 1, 1, 0],
    "score_in": [0.1, 0.2, 0.3, 0.3],
    "score_out": [0.2, 0.9, 0.8, 0.3],
}
OOD = {"ood_auroc", "fpr_at_tpr", "ood_aupr"}
ALL = sorted(REGISTRY)
WEIGHTED = sorted(set(ALL) - OOD)
PAIRS = [(name, argument) for name in ALL for argument in REGISTRY[name].needs]
VECTORS = [(name, argument) for name, argument in PAIRS if argument not in ("probs", "labels")]
# Where the function calls it otherwise than the registry's need.
SPELLED = {"phi": "truth", "varphi": "truth"}
ACCEPTS_INF = {"score", "score_in", "score_out", "loss", "phi", "varphi"}
LOSS01 = {name for name, metric in REGISTRY.items() if metric.losses}
OMIT = [
    name for name in ALL if name in LOSS01 | {"uq_auc", "uq_c_index", "top_label_c_index", "e_aurc", "g_auc", "h_auc"}
]
OMIT += ["kendall_phi", "somers_phi"]


def call(name, change=None, **options):
    inputs = {argument: GOOD[argument] for argument in REGISTRY[name].needs}
    inputs.update(change or {})
    return REGISTRY[name].function(*inputs.values(), **options)


def named(argument):
    return f"`{SPELLED.get(argument, argument)}`"


def raises(argument, *words):
    """InputError whose message names the argument and contains the words."""
    return pytest.raises(InputError, match=".*".join([named(argument), *words]))


def replaced(argument, value, at=2):
    array = np.array(GOOD[argument], dtype=np.float64)
    array[at] = value
    return {argument: array}


# ---- values ---------------------------------------------------------------------------------------------------


def test_nan_is_an_error_that_names_argument_and_row():
    for name, argument in PAIRS:
        with noted(name=name, argument=argument), raises(argument, "row 2"):
            call(name, replaced(argument, NAN))

    # Missing entries are NaN.
    for (name, argument), (label, convert) in product(
        VECTORS,
        zip(
            ["none", "pandas", "polars", "arrow", "masked"],
            [
                lambda x: [*x[:3], None],
                lambda x: pd.Series([*x[:3], None], dtype="Float64"),
                lambda x: pl.Series([*map(float, x[:3]), None]),
                lambda x: pa.array([*map(float, x[:3]), None]),
                lambda x: np.ma.masked_array(np.array(x, dtype=float), mask=[False, False, False, True]),
            ],
            strict=True,
        ),
    ):
        with noted(name=name, argument=argument, case=label), raises(argument, "row 3"):
            call(name, {argument: convert(GOOD[argument])})


def test_weights_must_be_finite_not_negative_as_many_as_rows_and_positive_twice():
    # NaN weights are an error.
    for name in WEIGHTED:
        with noted(name=name), raises("weights", "row 1"):
            call(name, weights=[1, NAN, 1, 1])

    # Infinite weights are an error.
    for name in WEIGHTED:
        with noted(name=name), raises("weights", "row 1"):
            call(name, weights=[1, INF, 1, 1])

    # Weights of another length are an error.
    for name in WEIGHTED:
        with noted(name=name), raises("weights", "3"):
            call(name, weights=[1, 2, 3])

    # One row with weight is an error.
    for name in WEIGHTED:
        with noted(name=name), pytest.raises(InputError):
            call(name, weights=[0, 0, 1, 0])

    # Negative weights are an error.
    for name in WEIGHTED:
        with noted(name=name), raises("weights", "row 2"):
            call(name, weights=[1, 2, -0.5, 1])

    # Weights that are all zero are an error.
    for name in WEIGHTED:
        with noted(name=name), raises("weights", "zero"):
            call(name, weights=[0, 0, 0, 0])


def test_infinity_is_an_error_where_it_makes_no_sense_and_else_one_warning():
    # Infinity is an error where it makes no sense.
    for name, argument in [pair for pair in PAIRS if pair[1] not in ACCEPTS_INF]:
        with noted(name=name, argument=argument), raises(argument, "row 2"):
            call(name, replaced(argument, INF))

    # Infinite score is accepted with one warning.
    for name, value in product([name for name in ALL if "score" in REGISTRY[name].needs], [INF, -INF]):
        with noted(name=name, value=value):
            with pytest.warns(UQWarning, match="`score` has 1 infinite") as caught:
                assert math.isfinite(call(name, replaced("score", value)))
            assert len(caught) == 1

    # Infinite scores on both sides give one warning.
    for name in sorted(OOD):
        with noted(name=name):
            with pytest.warns(UQWarning, match="infinite") as caught:
                call(name, {**replaced("score_in", INF), **replaced("score_out", INF)})
            assert len(caught) == 1


def test_values_outside_their_range_are_an_error_that_names_the_row():
    # Error other than 0 and 1 is an error.
    for name, value in product(
        [name for name in ALL if "error" in REGISTRY[name].needs and name not in LOSS01], [0.5, 2, -1]
    ):
        with noted(name=name, value=value), raises("error", "row 2"):
            call(name, replaced("error", value))

    # Loss outside [0, 1] is an error.
    for name, value in product(sorted(LOSS01), [1.5, -0.1, 2]):
        with noted(name=name, value=value), raises("error", "row 2"):
            call(name, replaced("error", value))

    # Confidence outside [0, 1] is an error.
    for name, value in product(["ece", "ece_debiased", "top_label_c_index"], [-0.01, 1.01, 17]):
        with noted(name=name, value=value), raises("confidence", "row 2"):
            call(name, replaced("confidence", value))

    # Correct other than 0 and 1 is an error.
    for value in [0.5, 2, -1]:
        with noted(value=value), raises("correct", "row 2"):
            call("ece", replaced("correct", value))


@each("curve", [metrics.mce_curve, metrics.mbc_curve, metrics.risk_coverage_curve])
def test_curves_reject_what_their_metrics_reject(curve):
    name = "misaligned" if curve is metrics.mbc_curve else "error"
    with raises("score"):
        curve([0.1, NAN], [0, 1])
    with raises(name):
        curve([0.1, 0.2], [0, NAN])
    with raises(name):
        curve([0.1, 0.2], [0, 2])
    with raises(name):
        curve([0.1, 0.2], [0, 1, 1])
    with raises("weights"):
        curve([0.1, 0.2], [0, 1], weights=[1, -1])
    if curve is not metrics.risk_coverage_curve:
        with raises(name):
            curve([0.1, 0.2], [0, 0.5])


def test_options_outside_their_range_are_an_error_that_names_the_option():
    # Number of bins must be a whole number.
    for bins in [0, -1, 2.5, "15", None]:
        with noted(bins=bins), raises("bins"):
            call("ece", bins=bins)

    # Number of bins may be a NumPy integer.
    assert call("ece", bins=np.int64(15)) == call("ece", bins=15)

    # Unknown choice is an error that lists the choices.
    for option in ["scheme", "norm"]:
        with noted(option=option), raises(option, '"'):
            call("ece", **{option: "best"})

    # `tpr` must lie in (0, 1].
    for tpr in [0, -0.1, 1.1, 95, NAN, "0.95", None]:
        with noted(tpr=tpr), raises("tpr"):
            call("fpr_at_tpr", tpr=tpr)

    # `eps` must lie inside (0, 1).
    for eps in [0, 1, -1e-3, NAN]:
        with noted(eps=eps), raises("eps"):
            call("log_loss", eps=eps)

    # Positive side must be in or out.
    with raises("positive"):
        call("ood_aupr", positive="ood")

    # NaN policy is one of two.
    with raises("nan"):
        metrics.uq_auc([0.1, 0.2], [0, 1], nan="ignore")


# ---- probabilities and labels ---------------------------------------------------------------------------------


each_table = each("name", ["brier", "log_loss"])


def test_probabilities_are_refused_where_they_cannot_be_meant():
    # Row sum off by more than a thousandth is an error with the worst row.
    for name in ["brier", "log_loss"]:
        with noted(name=name), raises("probs", "row 1", "0.98"):
            call(name, {"probs": [[0.9, 0.1], [0.6, 0.38], [0.2, 0.7995], [0.3, 0.7]]})

    # Single column is an error.
    for name in ["brier", "log_loss"]:
        with noted(name=name), raises("probs"):
            call(name, {"probs": [[0.9], [0.6], [0.2], [0.3]]})

    # Three axes are an error.
    for name in ["brier", "log_loss"]:
        with noted(name=name), raises("probs"):
            call(name, {"probs": np.full((2, 4, 2), 0.5)})

    # Probability outside [0, 1] is an error.
    for name, value in product(["brier", "log_loss"], [-0.1, 1.1, -2e-6, 1 + 2e-6]):
        with noted(name=name, value=value), raises("probs", "row 2"):
            call(name, {"probs": [0.1, 0.2, value, 0.3]})

    # Logits are recognised.
    for name in ["brier", "log_loss"]:
        with noted(name=name), raises("probs", "logits"):
            call(name, {"probs": [[3.0, -2.5], [0.1, 4.0], [1.0, 1.0], [-1.0, 2.2]]})


def test_probabilities_within_rounding_are_accepted():
    # Rounded rows are accepted.
    for name in ["brier", "log_loss"]:
        with noted(name=name):
            rounded = call(name, {"probs": [[0.9, 0.10002], [0.6, 0.4], [0.2, 0.79998], [0.3, 0.7]]})
            exact = call(name, {"probs": [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]]})
            assert rounded == pytest.approx(exact, abs=1e-4)

    # Probability within rounding is clipped.
    for name, value in product(["brier", "log_loss"], [-5e-7, 1 + 5e-7]):
        with noted(name=name, value=value):
            assert call(name, {"probs": [0.1, 0.2, value, 0.3], "labels": [0, 0, round(value), 0]}) == call(
                name, {"probs": [0.1, 0.2, round(value), 0.3], "labels": [0, 0, round(value), 0]}
            )

    # Float32 has a wider tolerance.
    for name in ["brier", "log_loss"]:
        with noted(name=name):
            probs = np.array([0.1, 0.2, 1 + 5e-4, 0.3], dtype=np.float32)
            call(name, {"probs": probs, "labels": [0, 1, 1, 0]})
            with raises("probs"):
                call(name, {"probs": probs.astype(np.float64), "labels": [0, 1, 1, 0]})


def test_labels_must_be_class_indices():
    # Label outside the classes is an error.
    for name, label in product(["brier", "log_loss"], [-1, 2, 1.5, NAN]):
        with noted(name=name, label=label), raises("labels", "row 2"):
            call(name, {"labels": [0, 1, label, 0]})

    # Labels that are words are an error.
    for name in ["brier", "log_loss"]:
        with noted(name=name), raises("labels"):
            call(name, {"labels": ["cat", "dog", "cat", "dog"]})


# ---- shapes ---------------------------------------------------------------------------------------------------


def test_lengths_must_agree_and_two_rows_are_the_least():
    # Different lengths are an error that names both arguments.
    for name, argument in [pair for pair in PAIRS if pair[0] not in OOD and pair[0] != "accuracy"]:
        with noted(name=name, argument=argument):
            with pytest.raises(InputError) as caught:
                call(name, {argument: GOOD[argument][:3]})
            assert named(argument) in str(caught.value)
            assert sum(named(needed) in str(caught.value) for needed in REGISTRY[name].needs) >= 2

    # Fewer than two rows are an error.
    for name, rows in product(ALL, [0, 1]):
        with noted(name=name, rows=rows):
            if name in OOD and rows == 1:
                continue  # one row on each side can be ranked
            with pytest.raises(InputError, match=named(REGISTRY[name].needs[0])):
                call(name, {argument: np.array(GOOD[argument])[:rows] for argument in REGISTRY[name].needs})


def test_what_is_not_a_vector_of_numbers_is_an_error_that_names_the_argument():
    for (name, argument), value in product(
        VECTORS,
        [
            None,
            3.0,
            "abc",
            ["a", "b", "c", "d"],
            [[0.1], [0.2], [0.3], [0.4]],
            [[0.1, 0.2], [0.3]],
            {"a": 1},
            [1j, 2, 3, 4],
        ],
    ):
        with noted(name=name, argument=argument, value=value), raises(argument):
            call(name, {argument: value})

    # Integers that float64 cannot tell apart are an error.
    for name in [name for name in ALL if "score" in REGISTRY[name].needs]:
        with noted(name=name), raises("score"):
            call(name, {"score": np.array([2**60, 2**60 + 1, 2, 3])})


# ---- weights --------------------------------------------------------------------------------------------------


# ---- the message ----------------------------------------------------------------------------------------------


def test_messages_speak_of_what_was_asked_for_and_say_what_to_do():
    # Messages do not speak of a score that was not asked for.
    for name in [name for name in WEIGHTED if "score" not in REGISTRY[name].needs]:
        with noted(name=name):
            first = REGISTRY[name].needs[0]
            bad = [
                ({first: GOOD[first][:3]} if len(REGISTRY[name].needs) > 1 else {first: [[0, 1]]}, {}),
                ({}, {"weights": [1, 2, 3]}),
                ({}, {"weights": [0, 0, 1, 0]}),
                ({argument: np.array(GOOD[argument])[:1] for argument in REGISTRY[name].needs}, {}),
                ({first: None}, {}),
            ]
            for change, options in bad:
                with pytest.raises(InputError) as caught:
                    call(name, change, **options)
                assert "`score`" not in str(caught.value)

    # Messages offer NaN omit only where it exists.
    for name in ALL:
        with noted(name=name):
            first = REGISTRY[name].needs[0]
            with pytest.raises(InputError) as caught:
                call(name, replaced(first, NAN))
            if "omit" in str(caught.value):
                with pytest.warns(UQWarning):
                    call(name, replaced(first, NAN), nan="omit")

    # Message counts and says what to do.
    with pytest.raises(
        InputError, match=r"`score` has 3 NaN \(first at row 1\)\. Drop those rows or pass nan=\"omit\""
    ):
        metrics.uq_auc([0.1, NAN, NAN, NAN], [0, 1, 0, 1])

    # Unknown metric suggests the nearest.
    with pytest.raises(InputError, match="uq_auc"):
        get_metric("uqauc")
    with pytest.raises(ValueError):
        get_metric("?")


# ---- nan="omit" -----------------------------------------------------------------------------------------------


def test_omit_drops_whole_rows_and_says_how_many():
    for name in OMIT:
        with noted(name=name):
            *middle, second = REGISTRY[name].needs[1:]
            more = [np.full(12, 0.7)] * len(middle)
            n, rng = 12, np.random.default_rng(0)
            x, y, w = rng.random(n), np.array([0, 1] * 6, dtype=float), rng.integers(1, 4, n).astype(float)
            x[3] = y[5] = y[3] = w[7] = NAN
            keep = ~(np.isnan(x) | np.isnan(y))
            function = REGISTRY[name].function
            with pytest.warns(UQWarning, match="2 rows") as caught:
                assert function(x, *more, y, nan="omit") == function(x[keep], *(z[keep] for z in more), y[keep])
            assert len(caught) == 1
            keep &= ~np.isnan(w)
            with pytest.warns(UQWarning, match="3 rows"):
                found = function(x, *more, y, weights=w, nan="omit")
            assert found == function(x[keep], *(z[keep] for z in more), y[keep], weights=w[keep])
            assert {"score", *middle, second} == set(REGISTRY[name].needs)

    # Omit without NaN changes nothing and does not warn.
    for name in OMIT:
        with noted(name=name), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call(name, nan="omit") == call(name)

    # Omit must leave two rows.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        with pytest.raises(InputError):
            metrics.uq_auc([NAN, NAN, 0.3], [0, 1, 0], nan="omit")
