"""Bad input never gives a number: an InputError names the argument, shows what came, and says where."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from uqeval import metrics
from uqeval._errors import InputError, UQWarning
from uqeval.metrics import REGISTRY
from uqeval.metrics.registry import get_metric

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
OMIT = [name for name in ALL if name in LOSS01 | {"uq_auc", "uq_c_index", "e_aurc", "g_auc", "h_auc"}]
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


@pytest.mark.parametrize(("name", "argument"), PAIRS)
def test_nan_is_an_error_that_names_argument_and_row(name, argument):
    with raises(argument, "row 2"):
        call(name, replaced(argument, NAN))


@pytest.mark.parametrize("name", WEIGHTED)
def test_nan_weights_are_an_error(name):
    with raises("weights", "row 1"):
        call(name, weights=[1, NAN, 1, 1])


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[1] not in ACCEPTS_INF])
def test_infinity_is_an_error_where_it_makes_no_sense(name, argument):
    with raises(argument, "row 2"):
        call(name, replaced(argument, INF))


@pytest.mark.parametrize("name", WEIGHTED)
def test_infinite_weights_are_an_error(name):
    with raises("weights", "row 1"):
        call(name, weights=[1, INF, 1, 1])


@pytest.mark.parametrize("name", [name for name in ALL if "score" in REGISTRY[name].needs])
@pytest.mark.parametrize("value", [INF, -INF])
def test_infinite_score_is_accepted_with_one_warning(name, value):
    with pytest.warns(UQWarning, match="`score` has 1 infinite") as caught:
        assert math.isfinite(call(name, replaced("score", value)))
    assert len(caught) == 1


@pytest.mark.parametrize("name", sorted(OOD))
def test_infinite_scores_on_both_sides_give_one_warning(name):
    with pytest.warns(UQWarning, match="infinite") as caught:
        call(name, {**replaced("score_in", INF), **replaced("score_out", INF)})
    assert len(caught) == 1


@pytest.mark.parametrize("name", [name for name in ALL if "error" in REGISTRY[name].needs and name not in LOSS01])
@pytest.mark.parametrize("value", [0.5, 2, -1])
def test_error_other_than_0_and_1_is_an_error(name, value):
    with raises("error", "row 2"):
        call(name, replaced("error", value))


@pytest.mark.parametrize("name", sorted(LOSS01))
@pytest.mark.parametrize("value", [1.5, -0.1, 2])
def test_loss_outside_0_1_is_an_error(name, value):
    with raises("error", "row 2"):
        call(name, replaced("error", value))


@pytest.mark.parametrize("curve", [metrics.mce_curve, metrics.mbc_curve, metrics.risk_coverage_curve])
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


@pytest.mark.parametrize("name", ["ece", "ece_debiased"])
@pytest.mark.parametrize("value", [-0.01, 1.01, 17])
def test_confidence_outside_0_1_is_an_error(name, value):
    with raises("confidence", "row 2"):
        call(name, replaced("confidence", value))


@pytest.mark.parametrize("value", [0.5, 2, -1])
def test_correct_other_than_0_and_1_is_an_error(value):
    with raises("correct", "row 2"):
        call("ece", replaced("correct", value))


@pytest.mark.parametrize("bins", [0, -1, 2.5, "15", None])
def test_number_of_bins_must_be_a_whole_number(bins):
    with raises("bins"):
        call("ece", bins=bins)


def test_number_of_bins_may_be_a_numpy_integer():
    assert call("ece", bins=np.int64(15)) == call("ece", bins=15)


@pytest.mark.parametrize("option", ["scheme", "norm"])
def test_unknown_choice_is_an_error_that_lists_the_choices(option):
    with raises(option, '"'):
        call("ece", **{option: "best"})


@pytest.mark.parametrize("tpr", [0, -0.1, 1.1, 95, NAN, "0.95", None])
def test_tpr_must_lie_in_0_1(tpr):
    with raises("tpr"):
        call("fpr_at_tpr", tpr=tpr)


@pytest.mark.parametrize("eps", [0, 1, -1e-3, NAN])
def test_eps_must_lie_in_0_1(eps):
    with raises("eps"):
        call("log_loss", eps=eps)


def test_positive_side_must_be_in_or_out():
    with raises("positive"):
        call("ood_aupr", positive="ood")


# ---- probabilities and labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["brier", "log_loss"])
class TestProbabilities:
    def test_row_sum_off_by_more_than_a_thousandth_is_an_error_with_the_worst_row(self, name):
        with raises("probs", "row 1", "0.98"):
            call(name, {"probs": [[0.9, 0.1], [0.6, 0.38], [0.2, 0.7995], [0.3, 0.7]]})

    def test_rounded_rows_are_accepted(self, name):
        rounded = call(name, {"probs": [[0.9, 0.10002], [0.6, 0.4], [0.2, 0.79998], [0.3, 0.7]]})
        exact = call(name, {"probs": [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]]})
        assert rounded == pytest.approx(exact, abs=1e-4)

    def test_single_column_is_an_error(self, name):
        with raises("probs"):
            call(name, {"probs": [[0.9], [0.6], [0.2], [0.3]]})

    def test_three_axes_are_an_error(self, name):
        with raises("probs"):
            call(name, {"probs": np.full((2, 4, 2), 0.5)})

    @pytest.mark.parametrize("value", [-0.1, 1.1, -2e-6, 1 + 2e-6])
    def test_probability_outside_0_1_is_an_error(self, name, value):
        with raises("probs", "row 2"):
            call(name, {"probs": [0.1, 0.2, value, 0.3]})

    @pytest.mark.parametrize("value", [-5e-7, 1 + 5e-7])
    def test_probability_within_rounding_is_clipped(self, name, value):
        assert call(name, {"probs": [0.1, 0.2, value, 0.3], "labels": [0, 0, round(value), 0]}) == call(
            name, {"probs": [0.1, 0.2, round(value), 0.3], "labels": [0, 0, round(value), 0]}
        )

    def test_float32_has_a_wider_tolerance(self, name):
        probs = np.array([0.1, 0.2, 1 + 5e-4, 0.3], dtype=np.float32)
        call(name, {"probs": probs, "labels": [0, 1, 1, 0]})
        with raises("probs"):
            call(name, {"probs": probs.astype(np.float64), "labels": [0, 1, 1, 0]})

    def test_logits_are_recognised(self, name):
        with raises("probs", "logits"):
            call(name, {"probs": [[3.0, -2.5], [0.1, 4.0], [1.0, 1.0], [-1.0, 2.2]]})

    @pytest.mark.parametrize("label", [-1, 2, 1.5, NAN])
    def test_label_outside_the_classes_is_an_error(self, name, label):
        with raises("labels", "row 2"):
            call(name, {"labels": [0, 1, label, 0]})

    def test_labels_that_are_words_are_an_error(self, name):
        with raises("labels"):
            call(name, {"labels": ["cat", "dog", "cat", "dog"]})


# ---- shapes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[0] not in OOD and pair[0] != "accuracy"])
def test_different_lengths_are_an_error_that_names_both_arguments(name, argument):
    with pytest.raises(InputError) as caught:
        call(name, {argument: GOOD[argument][:3]})
    for needed in REGISTRY[name].needs:
        assert named(needed) in str(caught.value)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_another_length_are_an_error(name):
    with raises("weights", "3"):
        call(name, weights=[1, 2, 3])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rows", [0, 1])
def test_fewer_than_two_rows_are_an_error(name, rows):
    if name in OOD and rows == 1:
        return  # one row on each side can be ranked
    with pytest.raises(InputError, match=named(REGISTRY[name].needs[0])):
        call(name, {argument: np.array(GOOD[argument])[:rows] for argument in REGISTRY[name].needs})


@pytest.mark.parametrize("name", WEIGHTED)
def test_one_row_with_weight_is_an_error(name):
    with pytest.raises(InputError):
        call(name, weights=[0, 0, 1, 0])


@pytest.mark.parametrize(("name", "argument"), VECTORS)
@pytest.mark.parametrize(
    "value",
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
    ids=["none", "number", "word", "words", "column", "ragged", "dict", "complex"],
)
def test_what_is_not_a_vector_of_numbers_is_an_error_that_names_the_argument(name, argument, value):
    with raises(argument):
        call(name, {argument: value})


@pytest.mark.parametrize(("name", "argument"), VECTORS)
@pytest.mark.parametrize(
    "convert",
    [
        lambda x: [*x[:3], None],
        lambda x: pd.Series([*x[:3], None], dtype="Float64"),
        lambda x: pl.Series([*map(float, x[:3]), None]),
        lambda x: pa.array([*map(float, x[:3]), None]),
        lambda x: np.ma.masked_array(np.array(x, dtype=float), mask=[False, False, False, True]),
    ],
    ids=["none", "pandas", "polars", "arrow", "masked"],
)
def test_missing_entries_are_nan(name, argument, convert):
    with raises(argument, "row 3"):
        call(name, {argument: convert(GOOD[argument])})


@pytest.mark.parametrize("name", [name for name in ALL if "score" in REGISTRY[name].needs])
def test_integers_that_float64_cannot_tell_apart_are_an_error(name):
    with raises("score"):
        call(name, {"score": np.array([2**60, 2**60 + 1, 2, 3])})


# ---- weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WEIGHTED)
def test_negative_weights_are_an_error(name):
    with raises("weights", "row 2"):
        call(name, weights=[1, 2, -0.5, 1])


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_that_are_all_zero_are_an_error(name):
    with raises("weights", "zero"):
        call(name, weights=[0, 0, 0, 0])


# ---- the message ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in WEIGHTED if "score" not in REGISTRY[name].needs])
def test_messages_do_not_speak_of_a_score_that_was_not_asked_for(name):
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


@pytest.mark.parametrize("name", ALL)
def test_messages_offer_nan_omit_only_where_it_exists(name):
    first = REGISTRY[name].needs[0]
    with pytest.raises(InputError) as caught:
        call(name, replaced(first, NAN))
    if "omit" in str(caught.value):
        with pytest.warns(UQWarning):
            call(name, replaced(first, NAN), nan="omit")


def test_message_counts_and_says_what_to_do():
    with pytest.raises(
        InputError, match=r"`score` has 3 NaN \(first at row 1\)\. Drop those rows or pass nan=\"omit\""
    ):
        metrics.uq_auc([0.1, NAN, NAN, NAN], [0, 1, 0, 1])


def test_unknown_metric_suggests_the_nearest():
    with pytest.raises(InputError, match="uq_auc"):
        get_metric("uqauc")
    with pytest.raises(ValueError):
        get_metric("?")


# ---- nan="omit" -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OMIT)
def test_omit_drops_whole_rows_and_says_how_many(name):
    first, second = REGISTRY[name].needs
    n, rng = 12, np.random.default_rng(0)
    x, y, w = rng.random(n), np.array([0, 1] * 6, dtype=float), rng.integers(1, 4, n).astype(float)
    x[3] = y[5] = y[3] = w[7] = NAN
    keep = ~(np.isnan(x) | np.isnan(y))
    function = REGISTRY[name].function
    with pytest.warns(UQWarning, match="2 rows") as caught:
        assert function(x, y, nan="omit") == function(x[keep], y[keep])
    assert len(caught) == 1
    keep &= ~np.isnan(w)
    with pytest.warns(UQWarning, match="3 rows"):
        assert function(x, y, weights=w, nan="omit") == function(x[keep], y[keep], weights=w[keep])
    assert {first, second} == set(REGISTRY[name].needs)


@pytest.mark.parametrize("name", OMIT)
def test_omit_without_nan_changes_nothing_and_does_not_warn(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(name, nan="omit") == call(name)


def test_omit_must_leave_two_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        with pytest.raises(InputError):
            metrics.uq_auc([NAN, NAN, 0.3], [0, 1, 0], nan="omit")


def test_nan_policy_is_one_of_two():
    with raises("nan"):
        metrics.uq_auc([0.1, 0.2], [0, 1], nan="ignore")
