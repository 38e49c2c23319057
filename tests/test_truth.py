"""The ranked quantities against their definitions in plain Python."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each, noted
from uqeval import truth
from uqeval._errors import InputError, UQWarning
from uqeval.truth import (
    bayes_labels,
    gap,
    gap_from_logits,
    misaligned,
    misclassified,
    phi,
    predicted_labels,
    rank_loss,
    varphi,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*tied top class:uqeval._errors.UQWarning")


@st.composite
def tables(draw, count=1):
    """(n, K) probabilities: continuous, one-hot, and on a grid of twentieths with many ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(2, 12)), draw(st.integers(2, 6))
    out = []
    for _ in range(count):
        p = rng.dirichlet(np.full(k, draw(st.sampled_from([0.05, 1.0, 20.0]))), size=n)
        p[rng.random(n) < 0.3] = rng.multinomial(20, np.full(k, 1 / k)) / 20
        p[rng.random(n) < 0.1] = np.eye(k)[rng.integers(k)]
        out.append(p)
    return (*out, rng.integers(0, k, n))


def first_argmax(row):
    return list(row).index(max(row))


@given(tables())
def test_predicted_label_is_the_first_of_the_largest(case):
    probs, _ = case
    assert predicted_labels(probs).tolist() == [first_argmax(row) for row in probs]


@given(tables())
def test_error_gap_and_rank_loss_equal_their_definitions(case):
    probs, labels = case
    assert misclassified(probs, labels).tolist() == [
        int(first_argmax(row) != y) for row, y in zip(probs, labels, strict=True)
    ]
    assert gap(probs, labels).tolist() == [1 - row[y] for row, y in zip(probs, labels, strict=True)]
    loss = rank_loss(probs, labels)
    picked = np.array([row[y] for row, y in zip(probs, labels, strict=True)])
    assert loss[picked < 1].tolist() == (-picked[picked < 1]).tolist()
    # Where the label's probability rounded to 1, the others decide: below every other loss, and in their order.
    others = np.array([np.delete(row, y).sum() for row, y in zip(probs, labels, strict=True)])[picked == 1]
    full = loss[picked == 1]
    assert (full <= -1).all()
    np.testing.assert_array_equal(full[:, None] < full, others[:, None] < others)


@given(tables(count=2))
def test_phi_varphi_and_misaligned_equal_their_definitions(case):
    pi, probs, _ = case
    rows = list(zip(pi, probs, strict=True))
    assert phi(pi, probs).tolist() == [1 - q[first_argmax(p)] for q, p in rows]
    assert varphi(pi, probs).tolist() == [1 - p[first_argmax(q)] for q, p in rows]
    assert misaligned(pi, probs).tolist() == [int(first_argmax(q) != first_argmax(p)) for q, p in rows]
    assert bayes_labels(pi).tolist() == [first_argmax(q) for q in pi]


def test_one_column_is_the_probability_of_class_1():
    probs, labels = [0.75, 0.25, 0.125], [1, 1, 0]
    both = [[1 - p, p] for p in probs]
    assert predicted_labels(probs).tolist() == [1, 0, 0]
    for function in (misclassified, gap, rank_loss):
        assert function(probs, labels).tolist() == function(both, labels).tolist()
    for function in (phi, varphi, misaligned):
        assert function(probs, both).tolist() == function(both, probs).tolist() == function(both, both).tolist()


def test_a_worse_prediction_has_a_larger_value_of_every_loss():
    probs, labels = [[0.1, 0.9], [0.4, 0.6], [0.9, 0.1]], [1, 1, 1]
    for loss in (gap(probs, labels), rank_loss(probs, labels), gap_from_logits(np.log(probs), labels)):
        assert (np.diff(loss) > 0).all()
    pi = [[0.1, 0.9], [0.3, 0.7], [0.4, 0.6]]
    assert (np.diff(phi(pi, [[0.1, 0.9]] * 3)) > 0).all()
    assert (np.diff(varphi(pi, probs)) > 0).all()


@pytest.mark.filterwarnings("error")
def test_tied_top_classes_warn_once_with_their_number_and_the_callers_line():
    probs = [[0.2, 0.8], [0.5, 0.5], [0.5, 0.5]]
    with pytest.warns(UQWarning, match=r"`probs` has a tied top class in 2 rows \(first at row 1\)") as caught:
        assert predicted_labels(probs).tolist() == [1, 0, 0]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UQWarning, match=r"`soft_labels` has a tied top class in 1 row \(first at row 0\)"):
        assert bayes_labels([[3, 3, 1], [0, 1, 0]], normalize=True).tolist() == [0, 1]

    # No warning without ties at the top.
    assert predicted_labels([[0.1, 0.1, 0.8], [0.6, 0.2, 0.2]]).tolist() == [2, 0]


def test_vote_counts_are_normalised_on_request_only():
    votes, probs = [[1, 3], [4, 0]], [[0.1, 0.9], [0.2, 0.8]]
    assert phi(votes, probs, normalize=True).tolist() == [0.25, 1.0]
    assert varphi(votes, probs, normalize=True) == pytest.approx([0.1, 0.8])
    assert misaligned(votes, probs, normalize=True).tolist() == [0, 1]
    with pytest.raises(InputError, match="`soft_labels` holds"):
        phi(votes, probs)


def exact_log_loss(row, y):
    """log1p of a sum of exponentials, each a Fraction: rounded only by exp and log."""
    total = sum((Fraction(math.exp(float(z) - float(row[y]))) for k, z in enumerate(row) if k != y), Fraction(0))
    return math.log1p(float(total)) if total < 2**60 else math.log(float(total))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 3.0, 30.0, 100.0]))
def test_gap_from_logits_equals_the_log_loss(seed, scale):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(8, 5)) * scale
    labels = rng.integers(0, 5, 8)
    expected = [exact_log_loss(row, y) for row, y in zip(logits, labels, strict=True)]
    np.testing.assert_allclose(gap_from_logits(logits, labels), expected, rtol=1e-13, atol=0)


@given(st.integers(0, 2**32 - 1))
def test_gap_from_logits_orders_rows_as_the_gap(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(20, 4)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = rng.integers(0, 4, 20)
    np.testing.assert_array_equal(
        np.argsort(gap_from_logits(logits, labels)), np.argsort(gap(probs, labels), kind="stable")
    )
    np.testing.assert_allclose(-np.expm1(-gap_from_logits(logits, labels)), gap(probs, labels), rtol=1e-12, atol=1e-15)


def test_gap_from_logits_is_exact_for_tiny_huge_and_masked_logits():
    # Gap from logits increases across its change of formula.
    for edge in [29.9, 30.0, 30.1, 700.0, 1e4]:
        with noted(edge=edge):
            step = np.linspace(-1e-3, 1e-3, 41) + edge
            loss = gap_from_logits(np.stack([np.zeros(41), step, step - 1], axis=1), np.zeros(41, int))
            assert (np.diff(loss) > 0).all()
            np.testing.assert_allclose(loss, step + math.log1p(math.exp(-1)), rtol=1e-12)

    # Gap from logits tells tiny losses apart.
    margins = np.log([1e-16, 1e-30, 1e-40, 1e-300])
    loss = gap_from_logits(np.stack([np.zeros(4), margins], axis=1), [0] * 4)
    np.testing.assert_allclose(loss, [1e-16, 1e-30, 1e-40, 1e-300], rtol=1e-12)

    # Gap from logits is finite for any finite logits.
    big = np.finfo(float).max
    logits = [[1e4, -1e4, 0], [-1e4, 1e4, 0], [-big, big, 0], [0, big, -big], [big, -big, 0], [big, big, big]]
    loss = gap_from_logits(logits, [0] * 6)
    assert np.isfinite(loss).all()
    assert loss[:2].tolist() == [0.0, 2e4]
    assert loss[2] == loss[3] == big
    assert loss[4] == 0.0
    assert loss[5] == pytest.approx(math.log(3))

    # Gap from logits of a masked class.
    inf = np.inf
    logits = [[-inf, 0, 0], [0, -inf, 0], [0, -inf, -inf], [-inf, -inf, 0]]
    assert gap_from_logits(logits, [0, 0, 0, 0]) == pytest.approx([inf, math.log(2), 0.0, inf])


@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_gap_from_logits_does_not_see_the_order_of_the_other_classes(seed, k):
    rng = np.random.default_rng(seed)
    row = rng.normal(size=k) * 10
    logits = np.stack([np.append(rng.permutation(row), 0.5) for _ in range(10)])
    assert len(set(gap_from_logits(logits, np.full(10, k)))) == 1


def test_rank_loss_tells_apart_what_the_gap_ties():
    probs = [[1e-17, 1.0], [1e-30, 1.0]]
    assert len(set(gap(probs, [0, 0]))) == 1
    assert np.diff(rank_loss(probs, [0, 0])) > 0
    assert not np.signbit(rank_loss([[0.0, 1.0], [1.0, 0.0]], [0, 1])).any()


def test_every_float_type_is_accepted_and_left_alone():
    # Every float type is accepted.
    for dtype in [np.float16, np.float32, np.float64]:
        with noted(dtype=dtype):
            probs = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=dtype)
            assert gap(probs, np.array([0, 1], dtype=np.uint8)).tolist() == [0.75, 0.5]
            assert gap_from_logits(probs, [0, 1]) == pytest.approx([math.log1p(math.exp(0.5)), math.log(2)])

    # Gap from logits leaves the input alone.
    logits = np.array([[2.0, 1.0, 3.0], [1.0, 5.0, 0.0]])
    before = logits.copy()
    gap_from_logits(logits, [0, 1])
    np.testing.assert_array_equal(logits, before)

    # Results have the documented types.
    probs, labels = np.array([[0.2, 0.8], [0.6, 0.4]], dtype=np.float32), [1, 1]
    assert predicted_labels(probs).dtype == np.int64
    assert misclassified(probs, labels).dtype == np.uint8
    assert misaligned(probs, probs).dtype == np.uint8
    for value in (
        gap(probs, labels),
        rank_loss(probs, labels),
        phi(probs, probs),
        varphi(probs, probs),
        gap_from_logits(probs, labels),
    ):
        assert value.dtype == np.float64


@each(
    ("call", "message"),
    [
        (lambda: misclassified([[0.2, 0.8], [0.3, 0.7]], [0, 2]), r"`labels` must be class indices 0\.\.1"),
        (lambda: gap([[0.2, 0.8], [0.3, 0.7]], [0, 1, 1]), "`labels` has 3 rows but `probs` has 2"),
        (lambda: gap([[0.2, 0.7], [0.3, 0.7]], [0, 1]), "`probs` does not sum to 1"),
        (lambda: gap([[3.0, -1.0], [0.5, 2.0]], [0, 1]), "look like logits"),
        (lambda: gap_from_logits([[0.0, np.nan], [0, 0]], [0, 1]), "`logits` has NaN"),
        (lambda: gap_from_logits([0.0, 1.0], [0, 1]), r"`logits` has shape \(2,\)"),
        (lambda: gap_from_logits([[0.0, 1.0]] * 3, [0, 1]), "`labels` has 2 rows but `logits` has 3"),
        (lambda: bayes_labels([[0, 0], [1, 2]], normalize=True), "`soft_labels` sums to 0 in row 0"),
        (lambda: phi([[0.2, 0.8]] * 2, [[0.2, 0.8]] * 3), "`probs` has 3 rows but `soft_labels` has 2"),
        (lambda: varphi([[0.2, 0.3, 0.5]] * 2, [[0.2, 0.8]] * 2), "`soft_labels` has 3 classes but `probs` has 2"),
        (lambda: misaligned(None, [[0.2, 0.8]] * 2), "`soft_labels` is missing"),
    ],
)
def test_bad_input_is_refused_with_the_name_of_the_argument(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_all_lists_every_public_function():
    public = {name for name, value in vars(truth).items() if getattr(value, "__module__", "") == truth.__name__}
    assert sorted(name for name in public if not name.startswith("_")) == sorted(truth.__all__)
