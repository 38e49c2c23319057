"""One-versus-rest: equal to its definition; with two classes it is the direct metric."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from cases import each, noted, on_both_kernels
from strategies import each_backend, make_scores, tables
from uqeval import metrics, truth
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::uqeval._errors.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:.*which are left out:uqeval._errors.UQWarning"),
    pytest.mark.filterwarnings("ignore:.*infinite values:uqeval._errors.UQWarning"),
]
METRICS = ("uq_auc", "uq_c_index")
AVERAGES = ("macro", "weighted", "micro")
KINDS = ["grid", "continuous", "constant", "mixture", "neighbours"]


def assert_close(value, expected, what=""):
    if math.isnan(expected):
        assert math.isnan(value), what
    else:
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12), what


@settings(max_examples=200)
@given(
    tables(most=16, dyadic=True),
    st.sampled_from(METRICS),
    st.sampled_from(["argmax", "half"]),
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_one_vs_rest_equals_its_definition(case, metric, decision, kind, per_class):
    probs, labels, w, rng = case
    score = make_scores(rng, probs.size, kind).reshape(probs.shape)
    score = score if per_class else score[:, 0]
    for average in AVERAGES:
        expected = oracle.one_vs_rest(metric, score, labels, probs, average, decision, w)
        for backend in each_backend():
            value = metrics.one_vs_rest(
                metric, score, labels, probs=probs, average=average, decision=decision, weights=w
            )
            assert_close(value, expected, f"{metric} {average} {decision} on {backend}")


@settings(max_examples=80)
@given(tables(most=30, most_classes=2), st.sampled_from(KINDS))
def test_two_classes_give_the_direct_metric_for_every_average(case, kind):
    probs, labels, w, rng = case
    probs = probs[probs[:, 0] != probs[:, 1]]
    labels, w = labels[: len(probs)], w if w is None else w[: len(probs)]
    if len(probs) < 2:
        return
    score = make_scores(rng, len(probs), kind)
    error, loss = truth.misclassified(probs, labels), -probs[np.arange(len(labels)), labels]
    direct = {
        "uq_auc": metrics.uq_auc(score, error, weights=w),
        "uq_c_index": metrics.uq_c_index(score, loss, weights=w),
    }
    for metric, expected in direct.items():
        for average in AVERAGES:
            for decision in ("argmax", "half"):
                value = metrics.one_vs_rest(
                    metric, score, labels, probs=probs, average=average, decision=decision, weights=w
                )
                assert_close(value, expected, f"{metric} {average} {decision}")


@each("average", AVERAGES)
@each("seed", range(5))
def test_two_classes_without_weights_give_the_direct_metric_to_the_last_bit(average, seed):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([1, 1], 300)
    labels = rng.integers(0, 2, 300)
    score = np.round(rng.random(300), 1)
    loss, error = -probs[np.arange(300), labels], truth.misclassified(probs, labels)
    direct = {"uq_c_index": metrics.uq_c_index(score, loss), "uq_auc": metrics.uq_auc(score, error)}
    for metric, expected in direct.items():
        value = metrics.one_vs_rest(metric, score, labels, probs=probs, average=average)
        # Prevalences p and 1 − p cost a last bit; counts do not.
        assert value == (expected if average != "weighted" else pytest.approx(expected, rel=4e-16))


def test_probabilities_scores_and_metric_may_be_given_in_other_forms():
    # Binary probabilities may be a vector.
    p, labels, score = np.array([0.1, 0.7, 0.6, 0.2]), [0, 1, 0, 1], [0.1, 0.2, 0.9, 0.8]
    table = np.stack([1 - p, p], axis=1)
    for metric in METRICS:
        assert metrics.one_vs_rest(metric, score, labels, probs=p) == metrics.one_vs_rest(
            metric, score, labels, probs=table
        )

    # Scores may be the probabilities themselves.
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55]])
    labels = [0, 1, 1, 0]
    own = np.minimum(probs, 1 - probs)
    for metric in METRICS:
        assert metrics.one_vs_rest(metric, probs, labels) == metrics.one_vs_rest(metric, own, labels, probs=probs)

    # Metric may be the function itself.
    probs, labels, score = [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]], [0, 1, 1], [0.1, 0.5, 0.2]
    for name in METRICS:
        by_name = metrics.one_vs_rest(name, score, labels, probs=probs)
        assert metrics.one_vs_rest(getattr(metrics, name), score, labels, probs=probs) == by_name


def test_gaps_of_a_class_are_ranked_by_its_probability_alone():
    # Rows with the same probability of a class tie in its gap.
    # Delta_k = |1{y=k} − p_k|. The other classes add to 0.9 and 0.9000000000000001: no reason to rank.
    probs = np.array([[0.1, 0.2, 0.7], [0.1, 0.3, 0.6], [0.1, 0.45, 0.45]])
    labels = [1, 1, 2]
    # Class 0: every gap is 0.1, so the class is undefined and left out.
    score = np.array([[3.0, 0, 0], [1.0, 1, 1], [2.0, 2, 2]])
    expected = oracle.one_vs_rest("uq_c_index", score, labels, probs)
    assert_close(metrics.one_vs_rest("uq_c_index", score, labels, probs=probs), expected)

    # Rows rounded to a few decimals are ranked by the probability of the class.
    # Row sums of 1.0001 and 0.9999 are accepted, so they must not decide the order of the gaps.
    probs = np.array([[0.1000, 0.4000, 0.4999], [0.10005, 0.4000, 0.5000], [0.3, 0.3, 0.4]])
    labels, score = [2, 2, 2], np.array([1.0, 2.0, 3.0])
    # Class 0 has gaps 0.1 < 0.10005 < 0.3 and class 1 has 0.4 = 0.4 > 0.3.
    expected = oracle.one_vs_rest("uq_c_index", score, labels, probs)
    assert_close(metrics.one_vs_rest("uq_c_index", score, labels, probs=probs), expected)

    # Gap of a class does not saturate next to certainty.
    # 1 − 1e-17 and 1 − 1e-30 are one float64: the gaps near 1 must still be told apart.
    tiny = np.array([1e-17, 1e-30, 1e-25])
    probs = np.stack([tiny, np.full(3, 0.5), np.full(3, 0.5)], axis=1)
    labels = [0, 0, 0]
    score = np.array([1.0, 3.0, 2.0])  # orders the gaps 1 − p_0 perfectly
    assert metrics.one_vs_rest("uq_c_index", score, labels, probs=probs) == 1


@settings(max_examples=80)
@given(tables(most=16, least_classes=3), st.integers(1, 5))
def test_one_vs_rest_c_index_of_rounded_rows_equals_its_definition(case, decimals):
    """All labels are one class that is left out, so that every gap is p_k itself and no 1 − p_k rounds."""
    probs, _, w, rng = case
    probs = np.round(probs, decimals + 3)
    labels = np.zeros(len(probs), dtype=int)
    probs, labels = np.column_stack([np.zeros(len(probs)), probs]), labels  # class 0: the label, gap 1 for all rows
    score = make_scores(rng, len(probs), "grid")
    for average in ("macro", "micro"):
        expected = oracle.one_vs_rest("uq_c_index", score, labels, probs, average, weights=w)
        for _ in each_backend():
            assert_close(
                metrics.one_vs_rest("uq_c_index", score, labels, probs=probs, average=average, weights=w), expected
            )


@on_both_kernels
def test_classes_without_anything_to_rank_are_left_out_and_nan_if_all_are():
    # A class without an error is left out and named.
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.3, 0.6, 0.1]])
    labels, score = [0, 1, 1, 0], np.array([1.0, 2, 3, 4])  # class 2 is never the label and never predicted
    with pytest.warns(UQWarning, match="2"):
        value = metrics.one_vs_rest("uq_auc", score, labels, probs=probs)
    assert value == pytest.approx(oracle.one_vs_rest("uq_auc", score, labels, probs))

    # Nothing to rank is NaN with a warning.
    for average, weights, metric in product(
        AVERAGES, [None, [0.1, 0.2, 0.3], [0.58527739, 1.43561748, 0.3], [1e-3, 7.7, 1e5]], METRICS
    ):
        with noted(average=average, weights=weights, metric=metric):
            probs = np.eye(3)  # every prediction right and certain: all errors 0, all gaps 0
            with pytest.warns(UndefinedMetricWarning):
                assert math.isnan(
                    metrics.one_vs_rest(
                        metric, [1.0, 2.0, 3.0], [0, 1, 2], probs=probs, average=average, weights=weights
                    )
                )


@on_both_kernels
def test_row_order_changes_no_bit_and_whole_weights_are_copies():
    # Row order does not change a bit.
    for average, metric, weighted in product(AVERAGES, METRICS, [False, True]):
        with noted(average=average, metric=metric, weighted=weighted):
            rng = np.random.default_rng(4)
            n = 400
            probs, labels = rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n)
            score, w = np.round(rng.random(n), 2), rng.lognormal(size=n) if weighted else None
            first = metrics.one_vs_rest(metric, score, labels, probs=probs, average=average, weights=w)
            for _ in range(5):
                order = rng.permutation(n)
                moved = metrics.one_vs_rest(
                    metric,
                    score[order],
                    labels[order],
                    probs=probs[order],
                    average=average,
                    weights=w[order] if weighted else None,
                )
                assert moved == first

    # Whole weights are copies.
    # Macro and weighted. Micro compares the classes of two copies, which are rows of their own, but not of one row.
    for average, metric in product(["macro", "weighted"], METRICS):
        with noted(average=average, metric=metric):
            rng = np.random.default_rng(5)
            n = 60
            probs, labels = rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n)
            score, w = np.round(rng.random(n), 1), rng.integers(1, 4, n)
            copies = np.repeat(np.arange(n), w)
            weighted = metrics.one_vs_rest(metric, score, labels, probs=probs, average=average, weights=w)
            copied = metrics.one_vs_rest(metric, score[copies], labels[copies], probs=probs[copies], average=average)
            assert weighted == pytest.approx(copied, rel=1e-12)


def test_bad_input_is_named():
    for change, name in [
        ({"metric": "aurc"}, "metric"),
        ({"average": "mean"}, "average"),
        ({"decision": "most"}, "decision"),
        ({"labels": [0, 1, 3]}, "labels"),
        ({"labels": [0, 1]}, "labels"),
        ({"labels": [0.5, 1, 1]}, "labels"),
        ({"score": [0.1, math.nan, 0.2]}, "score"),
        ({"score": np.ones((3, 2))}, "score"),
        ({"score": [0.1, 0.2]}, "score"),
        ({"probs": None}, "probs"),
        ({"probs": [[0.5, 0.5, 0.5]] * 3}, "probs"),
        ({"probs": [[0.5, 0.5, math.nan]] * 3}, "probs"),
        ({"weights": [1, 2]}, "weights"),
        ({"weights": [1, 2, -1]}, "weights"),
        ({"weights": [0, 0, 0]}, "weights"),
        ({"weights": [1, math.nan, 1]}, "weights"),
        ({"weights": [1, math.inf, 1]}, "weights"),
    ]:
        with noted(change=change, name=name):
            good = {
                "metric": "uq_auc",
                "score": [0.1, 0.2, 0.3],
                "labels": [0, 1, 2],
                "probs": [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]],
            }
            with pytest.raises(InputError, match=f"`?{name}"):
                metrics.one_vs_rest(**{**good, **change})

    # Infinite scores give one warning.
    probs = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]]
    with pytest.warns(UQWarning, match="infinite") as caught:
        metrics.one_vs_rest("uq_c_index", [0.1, math.inf, 0.3], [0, 1, 2], probs=probs)
    assert len(caught) == 1

    # A single row with weight is an error.
    with pytest.raises(InputError):
        metrics.one_vs_rest("uq_c_index", [1.0, 2.0], [0, 1], probs=[[0.9, 0.1], [0.4, 0.6]], weights=[1, 0])
