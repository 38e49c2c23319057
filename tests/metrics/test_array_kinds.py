"""Numbers count, not how an array holds them: the same bits from every kind of array, or an error that names it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import uqeval as uq
from cases import noted, on_both_kernels
from strategies import BACKENDS
from uqeval import InputError, kernels, metrics
from uqeval._check import rows

RNG = np.random.default_rng(0)
N = 80
SCORE, LOSS = RNG.random(N).round(2), RNG.random(N).round(2)
ERROR, WEIGHTS = (RNG.random(N) < 0.4).astype(np.float64), RNG.integers(1, 9, N) / 4
PROBS = 0.1 + RNG.random((N, 3))
PROBS /= PROBS.sum(axis=1, keepdims=True)
LABELS = RNG.integers(0, 3, N).astype(np.float64)


class Own(np.ndarray):
    """A subclass that users may have."""


def frozen(x):
    found = x.copy()
    found.flags.writeable = False
    return found


def strided(x):
    room = np.full((*x.shape, 3), np.nan)
    room[..., 1] = x
    return room[..., 1]


def unaligned(x):
    return np.frombuffer(b"?" + x.tobytes(), dtype=x.dtype, offset=1).reshape(x.shape)


def field(x):
    room = np.zeros(x.shape, dtype=[("a", "i1"), ("b", "f8")])
    room["b"] = x
    return room["b"]


def mapped(x, folder):
    file = folder / f"{len(list(folder.iterdir()))}.bin"
    file.write_bytes(x.tobytes())
    return np.memmap(file, dtype=x.dtype, mode="r", shape=x.shape)


def holders(folder):
    """Name → what makes of an array another one with the same numbers."""
    return {
        "read-only": frozen,
        "strided": strided,
        "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
        "by columns": lambda x: np.asfortranarray(np.stack([x, x], axis=-1))[..., 0],
        "big-endian": lambda x: x.astype(">f8"),
        "unaligned": unaligned,
        "field of a structure": field,
        "memory-mapped": functools.partial(mapped, folder=folder),
        "subclass": lambda x: x.view(Own),
        "unmasked": lambda x: np.ma.array(x, mask=np.zeros(x.shape, np.bool_)),
        "long double": lambda x: x.astype(np.longdouble),
        "list": lambda x: x.tolist(),
    }


def answers(hold):
    """What the public functions say of arrays held so."""
    score, error, loss, weights, probs, labels = map(hold, (SCORE, ERROR, LOSS, WEIGHTS, PROBS, LABELS))
    bare = [
        metrics.uq_auc(score, error),
        metrics.uq_auc(score, error, weights=weights),
        metrics.uq_c_index(score, loss),
        metrics.aurc(score, loss),
        metrics.prr(score, error, weights=weights),
        metrics.kendall_tau(score, loss),
        metrics.brier(probs, labels),
        metrics.ood_auroc(score, loss),
        uq.choose_threshold(score, error, max_risk=0.6).value,
    ]
    rows = [*uq.evaluate(score=score, error=error, loss=loss, weights=weights)]
    rows += uq.evaluate(uq.Predictions(labels, probs=probs), scores=["entropy", "margin"])
    rows += uq.compare({"a": score, "b": loss}, error=error).rows
    return [*map(repr, bare), *map(repr, rows)]


@on_both_kernels
def test_however_an_array_holds_its_numbers_the_answers_have_the_same_bits(tmp_path):
    right = answers(np.copy)
    for name, hold in holders(tmp_path).items():
        with noted(held=name):
            assert answers(hold) == right


@pytest.mark.filterwarnings("ignore::uqeval.UQWarning")  # all scores tie
@on_both_kernels
def test_a_number_repeated_without_memory_of_its_own_is_a_constant():
    one = np.broadcast_to(np.float64(0.25), N)
    assert metrics.uq_auc(one, ERROR) == 0.5
    assert metrics.uq_c_index(one, LOSS) == 0.5
    assert metrics.aurc(one, ERROR) == pytest.approx(ERROR.mean(), rel=1e-15)
    row = uq.evaluate(score=one, error=ERROR, weights=one, metrics="uq_auc")["score", "uq_auc"]
    assert (row.value, row.n) == (0.5, N)


def test_the_given_arrays_are_not_changed():
    given = [x.copy() for x in (SCORE, ERROR, LOSS, WEIGHTS, PROBS, LABELS)]
    answers(lambda x: x)
    for before, after in zip(given, (SCORE, ERROR, LOSS, WEIGHTS, PROBS, LABELS), strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_is_no_row_of_numbers_is_an_error_that_says_what_came():
    records = np.zeros(N, dtype=[("b", "f8")])
    masked = np.ma.array(SCORE, mask=np.arange(N) == 3)
    for value, words in (
        (np.array(0.5), r"has shape \(\)"),
        (SCORE.astype(object), "holds Python objects, not numbers"),
        (np.array(["0.1"] * N, dtype=object), "holds text, not numbers"),
        (np.array([None] * N), "holds Python objects, not numbers"),
        (records, r"holds \[\('b', '<f8'\)\], not numbers"),
        (masked, "has 1 NaN .first at row 3"),
        (SCORE.astype(complex), "holds complex128"),
        (SCORE.astype("V8"), "holds .V8"),
        (SCORE.astype("M8[s]"), r"holds datetime64\[s\]"),
        (SCORE.astype("S"), "holds text"),
    ):
        for call in (
            lambda: metrics.uq_auc(value, ERROR),  # noqa: B023  (called at once)
            lambda: metrics.aurc(value, ERROR),  # noqa: B023
            lambda: uq.evaluate(score=value, error=ERROR),  # noqa: B023
            lambda: uq.choose_threshold(value, ERROR, max_risk=0.5),  # noqa: B023
        ):
            with pytest.raises(InputError, match=f"score.*{words}"):
                call()


def test_numbers_that_float64_would_make_equal_are_an_error_and_no_tie():
    long = np.ma.array([2**53, 2**53 + 1, 5], mask=[False, False, True])
    near = np.array([1, 1 + np.finfo(np.longdouble).eps, 2], dtype=np.longdouble)
    cases = [[2**70, 2**70 + 1, 0], [10**400, 1, 2], [None, 2**53 + 1, 0], np.array([2**63, 2**63 + 1, 0], "u8"), long]
    if near[0] != near[1] and np.float64(near[1]) == 1:  # a long double is a double on some systems
        cases.append(near)
    for value in cases:
        with noted(value=value), pytest.raises(InputError, match=r"`score` holds .* float64 cannot tell"):
            metrics.uq_auc(value, [0, 1, 1])


# ---- sizes ----------------------------------------------------------------------------------------------------


def test_more_rows_than_counts_can_hold_are_an_error_at_every_door(monkeypatch):
    assert rows._MOST_ROWS == 2**31 - 1
    n = rows._MOST_ROWS
    assert 2 * n * (n - 1) < 2**63  # all pairs, doubled and counted from both sides
    monkeypatch.setattr(rows, "_MOST_ROWS", N - 1)
    doors = (
        lambda: metrics.uq_auc(SCORE, ERROR),
        lambda: metrics.uq_c_index(SCORE, LOSS),
        lambda: metrics.kendall_tau(SCORE, LOSS),
        lambda: metrics.brier(PROBS, LABELS),
        lambda: uq.estimate("aurc", SCORE, ERROR),
        lambda: uq.evaluate(score=SCORE, error=ERROR),
        lambda: uq.compare({"a": SCORE, "b": LOSS}, error=ERROR),
        lambda: uq.choose_threshold(SCORE, ERROR, max_risk=0.5),
    )
    for door, call in enumerate(doors):
        with (
            noted(door=door),
            pytest.raises(InputError, match=r"has 80 rows\. In memory there may be 79; evaluate\(\) reads files"),
        ):
            call()
    monkeypatch.setattr(rows, "_MOST_ROWS", N)
    assert metrics.uq_auc(SCORE, ERROR) > 0


@pytest.mark.skipif("native" not in BACKENDS, reason="the native kernels are not built")
def test_native_kernels_refuse_more_rows_than_places_have_bits_before_they_touch_one():
    former = kernels.use("native")
    try:
        for call in (kernels.sweep, kernels.credits, lambda marks: kernels.sweep_parts(marks, np.array([0, 2**31]))):
            with pytest.raises(ValueError, match=r"more than 2\^31 - 1 rows"):
                call(np.zeros(2**31, dtype=np.uint8))  # never touched: no memory
    finally:
        kernels.use(former)
