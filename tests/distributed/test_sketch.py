"""Streams: the bounds are certain, states merge to the same integers, memory is bounded."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from distributed_cases import some
from hypothesis import given
from hypothesis import strategies as st

from strategies import FINITE_SCORES, rows, seeds
from uqeval import metrics
from uqeval._errors import InputError, collected
from uqeval.distributed.bounds import cells
from uqeval.distributed.bounds.batches import approx_evaluate
from uqeval.distributed.bounds.bounds import Bounds, StreamResult, dot
from uqeval.distributed.bounds.cells import CellAxis, CellCounts, Ruler
from uqeval.distributed.bounds.files import approx_scores
from uqeval.distributed.bounds.state import StreamState, _exact_sum

FEWEST = 8  # cells that hold all doubles at the coarsest level


def tight(rulers=(None, None), most=FEWEST):
    """A state with so few cells that 60 rows do not fit: what a billion rows do to a large one."""
    state = StreamState(approx=0.5, rulers=rulers)
    score, loss = (CellAxis(most, axis.level) for axis in state._pairs.axes)
    state._errors, state._pairs = CellCounts(CellAxis(most, score.level), CellAxis(2)), CellCounts(score, loss)
    return state


@st.composite
def makers(draw):
    """A function that makes empty states: plain or with rulers of any sample, tight or tighter."""
    most = draw(st.sampled_from([8, 9, 16, 30]))
    kind = draw(st.sampled_from(["plain", "plain", "normal", "lattice", "narrow", "heavy"]))
    rng = np.random.default_rng(draw(seeds))
    if kind == "plain":
        return lambda: tight(most=most)
    sample = {
        "normal": lambda: rng.normal(size=300),
        "lattice": lambda: rng.integers(-60, 60, 500) / 8,
        "narrow": lambda: 0.3 + 1e-9 * rng.random(200),
        "heavy": lambda: np.where(rng.random(400) < 0.5, rng.choice([0.0, 1.0, 0.3]), rng.random(400)),
    }
    rulers = tuple(Ruler.from_sample(sample[kind](), draw(st.sampled_from([4, 16, 100]))) for _ in range(2))
    return lambda: tight(rulers, most)


def cut(draw, n):
    """Slices that cover 0..n-1, some of them empty."""
    at = sorted(draw(st.lists(st.integers(0, n), max_size=6)))
    return [slice(a, b) for a, b in zip([0, *at], [*at, n], strict=True)]


def quiet(metric, *arrays):
    with collected():
        return metric(*arrays)


def holds(bounds, value, slack=0.0):
    return math.isnan(value) or bounds.lower - slack <= value <= bounds.upper + slack


def fill(state, score, error=None, loss=None, parts=(slice(None),)):
    for part in parts:
        state.update(score[part], *(None if x is None else x[part] for x in (error, loss)))
    return state


# ---- certain --------------------------------------------------------------------------------------------------


@some(0.8)
@given(rows(weighted=False, most=120), makers(), st.data())
def test_bounds_hold_the_metrics_of_all_rows_with_errors(case, make, data):
    s, e, _ = case
    found = fill(make(), s, error=e, parts=cut(data.draw, len(s))).compute()
    assert holds(found.uq_auc, quiet(metrics.uq_auc, s, e))
    assert math.isnan(found.uq_auc.lower) == math.isnan(quiet(metrics.uq_auc, s, e))
    assert holds(found.aurc, quiet(metrics.aurc, s, e), 1e-12)
    assert holds(found.augrc, quiet(metrics.augrc, s, e), 1e-12)
    assert (found.n, found.n_errors) == (len(s), e.sum())
    assert found.accuracy == (len(s) - int(e.sum())) / len(s)


@some(0.8)
@given(rows(target="loss", weighted=False, most=120, kinds=FINITE_SCORES), makers(), st.data())
def test_bounds_hold_the_c_index_of_all_rows_with_losses(case, make, data):
    s, d, _ = case
    found = fill(make(), s, loss=d, parts=cut(data.draw, len(s))).compute()
    truth = quiet(metrics.uq_c_index, s, d)
    assert holds(found.uq_c_index, truth)
    assert 0 <= found.uq_c_index.lower <= found.uq_c_index.upper <= 1 or math.isnan(truth)


@some(0.6)
@given(rows(target="loss", weighted=False, most=120, kinds=FINITE_SCORES))
def test_bounds_are_the_exact_values_where_values_are_few(case):
    s, d, _ = case
    e = (d > np.median(d)).astype(float)
    found = StreamState(approx=0.01, joint_cells=128).update(s, e, d).compute()
    for bounds, metric, target in ((found.uq_auc, metrics.uq_auc, e), (found.uq_c_index, metrics.uq_c_index, d)):
        truth = quiet(metric, s, target)
        assert (math.isnan(truth) and math.isnan(bounds.lower)) or bounds == Bounds(truth, truth)
    assert found.aurc.exact
    assert found.aurc.value == pytest.approx(metrics.aurc(s, e), rel=1e-12)
    assert found.augrc.exact
    assert found.augrc.value == pytest.approx(metrics.augrc(s, e), rel=1e-12)


def big(kind, n=150_000, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        s, d = rng.random(n), rng.random(n)
    elif kind == "gap":  # loss and score of a binary model: equal where it is right
        p = 1 / (1 + np.exp(-np.abs(4 * rng.normal(size=n))))
        wrong = rng.random(n) > p
        return 1 - p, wrong, np.where(wrong, p, 1 - p)
    elif kind == "saturated":
        s, d = (np.where(rng.random(n) < 0.5, x, rng.random(n)) for x in (0.0, 1.0))
    elif kind == "odd value":
        s, d = (np.where(rng.random(n) < 0.6, x, rng.normal(size=n)) for x in (0.3, math.log(10)))
    elif kind == "magnitudes":
        s, d = rng.choice([-1.0, 1.0], n) * np.exp(rng.uniform(-300, 300, n)), np.exp(rng.uniform(-300, 0, n))
    else:  # float32 that was widened, and few losses
        s, d = rng.random(n).astype(np.float32).astype(float), rng.integers(0, 5, n) / 4
    return s, rng.random(n) < 0.3, d


KINDS = ("uniform", "gap", "saturated", "odd value", "magnitudes", "float32")


def test_bounds_hold_on_many_rows_in_any_order_and_a_ruler_reaches_the_width():
    for kind in KINDS:
        s, e, d = big(kind, 20_000)
        names = {"uq_auc": e, "uq_c_index": d, "aurc": e, "augrc": e}
        truth = {name: getattr(metrics, name)(s, target) for name, target in names.items()}
        states = [StreamState(approx=0.01), StreamState.from_sample(s[:4000], d[:4000], approx=0.01)]
        for order in (np.arange(len(s)), np.argsort(s), np.argsort(s)[::-1]):
            parts = [order[a : a + 3001] for a in range(0, len(s), 3001)]
            for state in states:
                found = fill(state.empty(), s, e, d, parts).compute()
                assert all(holds(getattr(found, name), value, 1e-12) for name, value in truth.items()), kind
                assert abs(found.mean_loss - math.fsum(d) / len(d)) <= math.ulp(found.mean_loss)  # fsum rounds twice
        found = StreamState.from_sample(s[:20_000], d[:20_000], approx=1e-3).update(s, e, d).compute()
        assert found.uq_auc.width <= 1e-3, kind
        assert found.uq_c_index.width <= 4e-3, kind


def test_a_heavy_value_is_exact_with_a_ruler_and_wide_without():
    s, e, d = big("odd value")
    plain = StreamState(approx=1e-3).update(s, e, d).compute()
    ruled = StreamState.from_sample(s[:20_000], d[:20_000], approx=1e-3).update(s, e, d).compute()
    assert plain.uq_auc.width > 0.2
    assert not plain.reached
    assert ruled.uq_auc.width < 1e-3
    assert "was not reached: UQ-AUC is 0.36 wide" in str(plain)
    assert "not a confidence interval" in str(plain)


def test_round_values_are_exact_without_a_ruler():
    """Saturated probabilities, zero, halves: multiples at any level."""
    rng = np.random.default_rng(1)
    heavy = rng.choice([0.0, 0.5, 1.0, -2.0, math.inf], 100_000)
    s = np.where(rng.random(100_000) < 0.9, heavy, rng.random(100_000))
    e = rng.random(100_000) < 0.3
    found = StreamState(approx=0.01).update(s, e).compute()
    assert found.uq_auc.width < 1e-5
    assert holds(found.uq_auc, quiet(metrics.uq_auc, s, e))


def test_more_rows_from_elsewhere_widen_the_bounds_but_never_break_them():
    """A sample that looks like nothing that follows."""
    s, e, d = big("uniform")
    state = StreamState.from_sample(s[:20_000] * 1e-3 + 5, d[:20_000] - 7, approx=1e-3)
    found = state.update(s, e, d).compute()
    assert holds(found.uq_auc, metrics.uq_auc(s, e))
    assert holds(found.uq_c_index, metrics.uq_c_index(s, d))
    assert found.reached == (max(found.uq_auc.width, found.uq_c_index.width) <= 1e-3)


# ---- merging --------------------------------------------------------------------------------------------------


@some(0.5)
@given(rows(target="loss", weighted=False, most=120, kinds=FINITE_SCORES), makers(), st.data())
def test_merging_parts_gives_the_whole_in_any_order(case, make, data):
    s, d, _ = case
    e = (d > np.median(d)).astype(float)
    whole = fill(make(), s, e, d)
    states = [fill(make(), s, e, d, [part]) for part in cut(data.draw, len(s))]
    while len(states) > 1:  # any tree of merges
        k = data.draw(st.integers(0, len(states) - 2))
        a, b = states.pop(k), states.pop(k)
        states.insert(k, a.merge(b) if data.draw(st.booleans()) else b.merge(a))
    assert states[0].to_bytes() == whole.to_bytes()
    again = data.draw(st.permutations(range(len(s))))
    assert fill(make(), s[again], e[again], d[again]) == whole


def test_merging_large_states_gives_the_whole():
    s, e, d = big("gap", 60_000)
    for blank in (StreamState(approx=0.01), StreamState.from_sample(s[:4000], d[:4000], approx=0.01)):
        parts = [fill(blank.empty(), s, e, d, [slice(a, b)]) for a, b in ((0, 7), (7, 20_000), (20_000, None))]
        merged = parts[2].merge(parts[0]).merge(blank).merge(parts[1])
        assert merged == fill(blank.empty(), s, e, d)
        assert blank.n == 0


def test_merging_leaves_the_other_state_as_it_was():
    a, b = (StreamState().update([0.1, 0.2 + k], [0, 1], [0.3, 0.4]) for k in (0, 1))
    before = b.to_bytes()
    a.merge(b)
    assert (b.to_bytes(), a.n) == (before, 4)


def test_pairs_beyond_64_bits_are_counted_exactly():
    rng = np.random.default_rng(2)
    s, e, d = rng.integers(0, 6, 50), rng.integers(0, 2, 50), rng.integers(0, 4, 50)
    state = StreamState(approx=0.1).update(s, e, d)
    first = state.compute()
    for _ in range(36):
        state.merge(copy.deepcopy(state))
    found = state.compute()
    assert found.n == 50 << 36
    assert (found.uq_auc, found.uq_c_index, found.accuracy) == (first.uq_auc, first.uq_c_index, first.accuracy)
    assert found.mean_loss == first.mean_loss


@some(0.5)
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=8))
def test_dot_is_exact(values):
    x = np.array(values, dtype=np.int64) // len(values)
    assert dot(x, x[::-1]) == sum(int(a) * int(b) for a, b in zip(x, x[::-1], strict=True))


def test_states_that_do_not_fit_are_refused():
    state = StreamState(approx=0.01).update([1.0], error=[1])
    for other, words in (
        (StreamState(approx=0.02), "approx = 0.01 and 0.02"),
        (StreamState(approx=0.01, joint_cells=100), "joint_cells"),
        (StreamState.from_sample(np.arange(500.0), approx=0.01), "different rulers"),
        (StreamState(approx=0.01).update([1.0], loss=[1.0]), "One state has errors, the other losses"),
        (3, "`other` is an int"),
    ):
        with pytest.raises(InputError, match=words):
            state.merge(other)
    assert state.n == 1


# ---- memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [200_000, pytest.param(500_000, marks=pytest.mark.slow)])
def test_memory_is_bounded_on_many_distinct_values_in_any_order(n):
    rng = np.random.default_rng(3)
    values = np.unique(rng.normal(size=n))
    for x in (values, rng.permutation(values)):
        state = StreamState()
        sizes = []
        for k in range(0, len(x), n // 5):
            part = x[k : k + n // 5]
            state.update(part, part > 1, -part)
            sizes.append(state._errors.nbytes + state._pairs.nbytes)
        assert max(sizes) < 60e6
        assert sizes[-1] <= 1.5 * sizes[1]
        found = state.compute()
        assert (found.bytes, found.cells <= (1 << 18, 2048, 2048)) == (sizes[-1], True)
        assert len(state.to_bytes()) < 10e6


@some(0.5)
@given(st.data())
def test_cells_are_nested_intervals_and_the_coarsest_hold_all_doubles(data):
    bits = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=40))
    x = np.array(bits, dtype=np.int64).view(np.float64)
    keys = np.sort(cells.keys_of(x[~np.isnan(x)]))
    level = data.draw(st.integers(0, 61))
    fine, coarse = cells.cell_of(keys, level), cells.cell_of(keys, level + 1)
    assert (np.diff(fine.astype(object)) >= 0).all()
    assert np.array_equal(cells.cell_of(fine, level + 1), coarse)
    assert np.array_equal(cells.cell_of(fine, level), fine)
    single = cells.is_single(fine, level)
    assert all(len(set(keys[fine == cell].tolist())) == 1 for cell in fine[single])
    assert len(np.unique(cells.cell_of(keys, 62))) <= FEWEST


@some(0.5)
@given(rows(weighted=False, most=300, least=150), rows(weighted=False, most=100), st.integers(2, 200))
def test_a_ruler_keeps_the_order_and_gives_edges_places_of_their_own(sample, others, size):
    ruler = Ruler.from_sample(sample.score, size)
    if ruler is None:
        assert len(np.unique(sample.score)) < 64 or np.ptp(cells.keys_of(sample.score).astype(object)) < 2**20
        return
    assert ruler.sound
    keys = np.unique(np.concatenate([cells.keys_of(x) for x in (sample.score, others.score)] + [ruler.edges]))
    at = ruler.coordinates(keys)
    assert (at[1:] >= at[:-1]).all()
    single = cells.is_single(at, ruler.level)
    inside = (keys >= ruler.edges[0]) & (keys <= ruler.edges[-1])
    assert np.array_equal(single[inside], np.isin(keys[inside], ruler.edges))
    assert len(np.unique(at[single])) == single.sum()


# ---- storing --------------------------------------------------------------------------------------------------


@some(0.4)
@given(rows(target="loss", weighted=False, most=80, kinds=FINITE_SCORES), makers(), st.sampled_from(["e", "d", "ed"]))
def test_a_stored_state_comes_back_and_goes_on(case, make, columns):
    s, d, _ = case
    e = (d > np.median(d)).astype(float) if "e" in columns else None
    d = d if "d" in columns else None
    state = fill(make(), s, e, d)
    back = StreamState.from_bytes(state.to_bytes())
    assert back.to_bytes() == state.to_bytes()
    mine, theirs = state.compute().to_dict(), back.compute().to_dict()
    assert json.dumps(mine | {"bytes": 0}) == json.dumps(theirs | {"bytes": 0})


def test_a_stored_empty_state_is_a_start_for_workers():
    s, e, d = big("gap", 20_000)
    blank = StreamState.from_sample(s[:2000], d[:2000], approx=0.01)
    sent = blank.to_bytes()
    parts = [StreamState.from_bytes(sent).update(s[k::3], e[k::3], d[k::3]) for k in range(3)]
    assert parts[0].merge(parts[1]).merge(parts[2]) == blank.update(s, e, d)


def test_bytes_that_were_cut_or_changed_are_refused():
    data = StreamState(approx=0.1).update([0.1, 0.2], [0, 1], [0.5, 0.25]).to_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(InputError):
            StreamState.from_bytes(data[:size])
    for k in range(0, len(data), 5):
        with pytest.raises(InputError):
            StreamState.from_bytes(data[:k] + bytes([data[k] ^ 1]) + data[k + 1 :])


def forged(change):
    """A state with another header and a right checksum."""
    body = StreamState(approx=0.1).update([0.1, 0.2], [0, 1], [0.5, 0.25]).to_bytes()[40:]
    (size,) = struct.unpack("<I", body[:4])
    head = json.loads(body[4 : 4 + size])
    change(head)
    text = json.dumps(head).encode()
    body = struct.pack("<I", len(text)) + text + body[4 + size :]
    return b"UQSTREAM" + hashlib.sha256(body).digest() + body


def test_states_that_contradict_themselves_are_refused():
    for change, words in (
        (lambda head: head.update(version=2), "version 2; this uqeval reads 1"),
        (lambda head: head.update(n=7), "do not add up"),
        (lambda head: head.update(n=-1), "do not add up"),
        (lambda head: head.update(levels=[5, 0, 0, 0]), "not of its level"),
        (lambda head: head.update(levels=[99, 0, 0, 0]), "levels do not exist"),
        (lambda head: head.pop("sum"), "sum"),
        (lambda head: head.update(approx=7), "approx"),
        (lambda head: head["arrays"].update(errors_0=1), "too few or too many"),
        (lambda head: head.update(wrong=9), "do not add up"),
    ):
        with pytest.raises(InputError, match=words):
            StreamState.from_bytes(forged(change))
    state = StreamState().update([0.1, 0.2, 0.3], error=[0, 1, 0])
    first, second, counts = state._errors.in_order()
    state._errors.in_order = lambda: (first, second + 4, counts)
    with pytest.raises(InputError, match="errors other than 0 and 1"):
        StreamState.from_bytes(state.to_bytes())


# ---- input ----------------------------------------------------------------------------------------------------


def test_bad_rows_are_counted_named_and_leave_the_state_alone():
    state = StreamState().update([0.1, 0.2], [0, 1], [0.3, 0.4])
    before = state.to_bytes()
    for bad, words in (
        (([0.1, np.nan, np.nan], [0, 1, 1], [1, 2, 3]), "`score` has 2 NaN .first at row 1"),
        (([0.1, 0.2], [0, np.nan], [1, 2]), "`error` has 1 NaN"),
        (([0.1, 0.2], [0, 2], [1, 2]), "`error` must be 0"),
        (([0.1, 0.2], [0, 1], [1, np.inf]), "`loss` has 1 infinite"),
        (([0.1, 0.2], [0, 1], [1, None]), "`loss` has 1 NaN"),
        (([0.1, 0.2], [0], [1, 2]), "`error` has 1 rows but `score` has 2"),
        (([0.1, 0.2], [0, 1], None), "This batch has errors, the rows before had errors and losses"),
        (([0.1, 0.2], None, None), "Neither `error` nor `loss`"),
    ):
        with pytest.raises(InputError, match=words):
            state.update(*bad)
    assert state.to_bytes() == before


def test_zeros_of_both_signs_tie_and_infinite_scores_rank_first_or_last():
    found = StreamState().update([0.0, -0.0, np.inf, -np.inf], [1, 0, 1, 0]).compute()
    assert found.uq_auc == Bounds(0.875, 0.875)


def test_options_out_of_range_are_refused():
    for options in ({"approx": 0}, {"approx": 1e-9}, {"approx": "x"}, {"joint_cells": 3}):
        with pytest.raises(InputError, match=next(iter(options))):
            StreamState(**options)


def test_a_state_without_rows_has_no_bounds():
    with pytest.raises(InputError, match="no rows"):
        StreamState().update([], error=[]).compute()


def test_metrics_that_are_undefined_are_nan():
    found = StreamState().update([1.0, 2.0], [0, 0], [3.0, 3.0]).compute()
    assert math.isnan(found.uq_auc.value)
    assert math.isnan(found.uq_c_index.value)
    assert found.reached
    assert json.loads(found.to_json())["uq_auc"]["lower"] is None
    assert "UQ-AUC      –" in str(found)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
def test_the_sum_of_losses_is_exact(values):
    x = np.array(values)
    total = _exact_sum(x)
    halves = _exact_sum(x[: len(x) // 2]) + _exact_sum(x[len(x) // 2 :])
    assert total == halves
    assert total / (1 << 1126) == math.fsum(values)


def test_printed_bounds_are_rounded_outward():
    text = str(Bounds(0.123456, 0.123511))
    low, high = (float(word.strip(",")) for word in text.split()[:3:2])
    assert low <= 0.123456
    assert high >= 0.123511
    assert "for certain" in text


def test_a_result_tells_what_it_is():
    pytest.importorskip("polars")
    s, e, d = big("uniform", 20_000)
    found = StreamState(approx=0.1).update(s, e, d).compute()
    plain = found.to_dict()
    assert "not a confidence interval" in plain["kind"]
    assert plain["uq_auc"]["width"] == found.uq_auc.upper - found.uq_auc.lower
    assert list(found.to_frame("polars")["metric"]) == ["uq_auc", "uq_c_index", "aurc", "augrc"]
    assert isinstance(found, StreamResult)
    assert "<pre " in found._repr_html_()


# ---- one pass -------------------------------------------------------------------------------------------------


def table_of(s, e, d):
    return pa.table({"score": s, "error": e, "loss": d, "other": np.zeros(len(s))})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Unequal files of several row groups, sorted across files."""
    folder = tmp_path_factory.mktemp("files")
    s, e, d = (x[np.argsort(x0)] for x0, x in [(big("gap", 20_000)[0], x) for x in big("gap", 20_000)])
    for k, (a, b) in enumerate(((0, 10), (10, 8000), (8000, 20_000))):
        pq.write_table(table_of(s[a:b], e[a:b], d[a:b]), folder / f"{k}.parquet", row_group_size=2000)
    return folder, s, e, d


def test_files_give_certain_bounds_of_one_score_or_of_all(files):
    folder, s, e, d = files
    truth = {"uq_auc": metrics.uq_auc(s, e), "uq_c_index": metrics.uq_c_index(s, d), "aurc": metrics.aurc(s, e)}
    source = f"{folder}/*.parquet"
    results = [approx_evaluate(source, approx=5e-3, sample=sample) for sample in (None, 0)]
    results.append(approx_scores(source, scores="score", approx=5e-3)["score"])
    for one in results:
        assert one.n == len(s)
        assert all(holds(getattr(one, name), value) for name, value in truth.items())
        assert one.uq_auc.width < 5e-3
    assert {**results[0].to_dict(), "bytes": 0} == {**results[2].to_dict(), "bytes": 0}  # they share rows and sample


def test_files_and_batches_of_every_kind_give_the_same(files, tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    import pandas as pd
    import polars as pl

    _, s, e, d = files
    s, e, d = s[::7], e[::7], d[::7]
    pq.write_table(table_of(s, e, d), tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table_of(s, e, d).schema) as out:
        out.write_table(table_of(s, e, d), max_chunksize=700)
    pa.csv.write_csv(table_of(s, e.astype(int), d), tmp_path / "a.csv")
    parts = [slice(a, a + 999) for a in range(0, len(s), 999)]
    sources = [str(tmp_path / name) for name in ("a.parquet", "a.arrow", "a.csv")]
    sources += [
        ((s[p], e[p], d[p]) for p in parts),
        [{"score": s[p].tolist(), "error": e[p], "loss": d[p]} for p in parts],
        (pd.DataFrame({"score": s[p], "error": e[p], "loss": d[p]}) for p in parts),
        (pl.DataFrame({"score": s[p], "error": e[p], "loss": d[p]}) for p in parts),
        table_of(s, e, d).to_batches(max_chunksize=500),
    ]
    found = [approx_evaluate(source, approx=0.05, sample=0) for source in sources]
    assert all({**one.to_dict(), "bytes": 0} == {**found[0].to_dict(), "bytes": 0} for one in found)
    assert found[0].mean_loss == float(sum(map(Fraction, d.tolist())) / len(d))


def test_batches_are_asked_for_once():
    asked = []

    def batches():
        for k in range(30):
            asked.append(k)
            rng = np.random.default_rng(k)
            yield rng.random(1000), rng.random(1000) < 0.3

    found = approx_evaluate(batches(), approx=0.01)
    assert asked == list(range(30))
    assert found.n == 30_000
    assert found.mean_loss is None


def test_columns_and_bad_rows_are_named(tmp_path):
    table = pa.table({"score_a": [0.1, None, 0.3], "error": [0, 1, 0]})
    path = tmp_path / "x.parquet"
    pq.write_table(table, path)
    with pytest.raises(InputError, match=r"x.parquet.*no column `score`"):
        approx_evaluate(path)
    with pytest.raises(InputError, match=r"x.parquet: `score_a` holds NaN or nothing .first at row 1"):
        approx_evaluate(path, score="score_a")
    with pytest.raises(InputError, match="no column `wrong` for error="):
        approx_evaluate(path, score="score_a", error="wrong")
    with pytest.raises(InputError, match="neither a column for error= nor one for loss="):
        approx_evaluate(path, score="score_a", error=None)
    with pytest.raises(InputError, match=r"batch 1 .*`error` must be 0"):
        approx_evaluate([([0.1], [0]), ([0.1], [3])], sample=0)
    for source, words in (
        (3, "`source` is an int"),
        ([5], "A batch is an int"),
        ([(1,)], "a tuple of 1"),
        ([], "no rows"),
    ):
        with pytest.raises(InputError, match=words):
            approx_evaluate(source)
    with pytest.raises(InputError, match="`sample` is -1"):
        approx_evaluate(path, sample=-1)
