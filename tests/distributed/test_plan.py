"""The plan's parts: bins that never split a value, exact sums of any size, balance under skew, clear refusals."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from distributed_cases import as_table, assert_same, cut, make_rows, request, run_plan
from hypothesis import assume, given
from hypothesis import strategies as st
from list_engine import ListEngine

from strategies import SCORES, make_scores
from uqeval import distributed, kernels
from uqeval._errors import InputError, UQWarning
from uqeval.distributed.plan import wire
from uqeval.distributed.plan.by_score import RouteScore, _area_of_rows, area_of_point
from uqeval.distributed.plan.columns import keys_of
from uqeval.distributed.plan.edges import Axis, Grid, RowsChanged, check_buckets, choose_edges, shares_sizes
from uqeval.distributed.plan.run import Run
from uqeval.distributed.plan.tallies import ScoreSums, add_point_pairs, ranking_tally, sum_score
from uqeval.inference.intervals import estimate_ranking
from uqeval.metrics import REGISTRY
from uqeval.metrics.harmonic import harmonic


def estimate_score(name, sums):
    return estimate_ranking(REGISTRY[name], ranking_tally(REGISTRY[name], sums, None), 0.95)


values = st.lists(st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 1.0 + 2**-52, 3.0, np.inf]), max_size=30)


# ---- bins -------------------------------------------------------------------------------------------------------


@given(values, values)
def test_codes_keep_the_order_and_never_split_a_value(xs, edges):
    x = np.array(xs, dtype=np.float64)
    codes = Axis(np.unique(np.array(edges, dtype=np.float64) + 0.0)).codes(x).astype(int)
    for a, b in zip(range(len(x)), range(1, len(x)), strict=False):
        assert (codes[a] < codes[b]) <= (x[a] < x[b])
        assert (x[a] == x[b]) <= (codes[a] == codes[b])
    assert all((code % 2 == 1) == bool(np.isin(value, edges)) for value, code in zip(x, codes, strict=True))


@given(st.integers(0, 2**32 - 1), st.sampled_from(SCORES), st.sampled_from(SCORES), st.booleans())
def test_codes_are_what_a_search_among_the_edges_gives(seed, kind, other, narrow):
    rng = np.random.default_rng(seed)
    x = make_scores(rng, 200, kind)
    edges = np.unique(np.concatenate([rng.choice(x, 40), make_scores(rng, rng.integers(0, 40), other)]) + 0.0)
    if narrow:  # float32 is widened before it is compared
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    place = np.searchsorted(edges, x.astype(np.float64), side="left")
    on_edge = np.isin(x.astype(np.float64), edges)
    assert np.array_equal(Axis(edges).codes(x), 2 * place + on_edge)


def test_a_value_that_holds_more_than_a_bin_is_an_edge():
    x = np.concatenate([np.full(900, 0.3), np.random.default_rng(0).random(100)])
    assert 0.3 in choose_edges(x, 8).edges


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_sums_by_tie_size_are_exact_integers(seed, n):
    rng = np.random.default_rng(seed)
    x, sizes = rng.integers(0, 2 * 10**11, n), rng.integers(1, 4, n)
    found = {size: (rows, one, two) for size, rows, one, two in shares_sizes(x, sizes)}
    for size in np.unique(sizes):
        part = [int(v) for v in x[sizes == size]]
        assert found[int(size)] == (len(part), sum(part), sum(v * v for v in part))


# ---- AURC in pieces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 70), (3, 9000), (100, 6000), (10**6, 10**6 + 5000)])
@pytest.mark.parametrize("power", [1, 2])
def test_harmonic_sums_are_right_to_the_last_digits(start, stop, power):
    exact = float(sum(Fraction(1, k**power) for k in range(start + 1, stop + 1)))
    assert harmonic(start, stop, power) == pytest.approx(exact, rel=1e-13)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60), st.floats(0, 1), st.integers(0, 50))
def test_a_block_of_tied_rows_needs_no_rows(right, wrong, before, share, after):
    assume(right + wrong > 0)
    bad, total = int(share * before), before + right + wrong + after
    error = np.array([0] * right + [1] * wrong, dtype=np.uint8)
    by_rows, _ = _area_of_rows(kernels.order_by(np.zeros(right + wrong)), error, before, bad, total)
    by_count = area_of_point(right, wrong, before, bad, total)
    assert by_count.risk == pytest.approx(by_rows.risk, rel=1e-12, abs=1e-12)
    assert by_count.risk_per_row == pytest.approx(by_rows.risk_per_row, rel=1e-12, abs=1e-12)
    assert by_count.later2 == pytest.approx(by_rows.later2, rel=1e-12, abs=1e-12)
    for a, b in ((by_count.right, by_rows.right), (by_count.wrong, by_rows.wrong)):
        assert a.units == b.units
        assert a.units == 0 or a.mean == pytest.approx(b.mean, rel=1e-12, abs=1e-12)


# ---- sizes that no memory holds ---------------------------------------------------------------------------------


def test_a_hundred_billion_tied_rows_are_counted_exactly():
    scale = 10**10
    cells = np.zeros((5, 5, 2), dtype=np.int64)
    cells[1, 1], cells[1, 3], cells[3, 1], cells[3, 3] = (3, 0), (2, 1), (1, 1), (1, 1)
    axis = Axis(np.array([0.2, 0.8]))
    grid, small = Grid(axis, axis, cells * scale), Grid(axis, axis, cells)
    found, few = sum_score(grid, [], False, True), sum_score(small, [], False, True)
    for sums, table in ((found, grid), (few, small)):
        add_point_pairs(sums, table)
    assert found.n == 10**11
    assert found.credit2 == scale**2 * few.credit2
    assert found.comparable == scale**2 * few.comparable
    assert found.credit2 == scale**2 * few.credit2
    assert found.wrong_squares == scale**3 * few.wrong_squares
    c_index = estimate_score("uq_c_index", found)
    assert c_index.value == estimate_score("uq_c_index", few).value
    assert 0 < c_index.se < 1e-5
    assert 0 < estimate_score("aurc", found).se < 1e-5


# ---- balance ----------------------------------------------------------------------------------------------------


def data(kind, n=60_000, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.random(n)
    if kind == "one value holds 90%":
        s[rng.random(n) < 0.9] = 0.5
    elif kind == "sorted":
        s.sort()
    elif kind == "few values":
        s = np.round(s, 1)
    return pa.table({"score_s": s, "error": (rng.random(n) < 0.2).astype(np.uint8), "loss": s + rng.random(n)})


@pytest.mark.parametrize("kind", ["even", "one value holds 90%", "sorted", "few values"])
def test_no_task_is_large_and_few_rows_move_whatever_the_skew(kind):
    table, bins = data(kind), 32
    found = run_plan(ListEngine(cut(table, [5, 9000, 44_000])), request(bins=bins))
    assert found.run.largest_task <= 4 * len(table) / bins
    assert found.run.moved_rows <= 2 * len(table)
    if kind == "one value holds 90%":
        assert found.run.moved_rows <= 1.25 * len(table)  # tied rows stay where they are in the first shuffle
    if kind == "few values":
        assert found.run.moved_rows <= 1.05 * len(table)


def test_a_bin_that_no_task_can_hold_is_cut_and_counted_again():
    table = data("sorted")
    engine = HeadEngine(cut(table, [20_000]))
    engine.task_rows = 6000
    found = run_plan(engine, request(bins=16))
    assert found.run.largest_task <= 6000
    assert "refine" in found.run.seconds
    assert_same(run_plan(ListEngine([table]), request(bins=16)), found)


@pytest.mark.slow
def test_rows_that_no_cut_brings_into_a_task_are_refused_with_advice():
    engine = HeadEngine([data("sorted")])
    engine.task_rows = 2
    with pytest.raises(InputError, match=r"fall between two neighbouring edges.*Raise memory_limit"):
        run_plan(engine, request(bins=16))
    assert engine.closed


def test_a_cluster_that_no_task_can_hold_is_refused_with_advice():
    table = data("even", 5000).append_column("patient", pa.array(np.zeros(5000, dtype=np.int64)))
    engine = ListEngine([table], task_rows=2000, bucket_rows=2000)
    with pytest.raises(InputError, match=r"A cluster.* hold 5,000 rows.*Raise memory_limit"):
        run_plan(engine, request(cluster="patient", bins=16))


@pytest.mark.parametrize("places", [[], [6000]])
def test_more_groups_than_anyone_reads_are_refused(places):
    table = data("even", 11_000).append_column("site", pa.array(np.arange(11_000)))
    with pytest.raises(InputError, match=r"more than 10,000 groups"):
        run_plan(ListEngine(cut(table, places)), request(group="site"))


@pytest.mark.parametrize("asked", [{"cluster": "key"}, {"group": "key"}])
def test_missing_clusters_and_groups_are_refused(asked):
    table = data("even", 50).append_column("key", pa.array([None, *range(49)]))
    with pytest.raises(InputError, match="has missing values"):
        run_plan(ListEngine([table]), request(**asked))


class HeadEngine(ListEngine):
    """Its sample is the beginning of the source: the worst there is for sorted rows."""

    task_rows = 1 << 20

    def sample(self, function, rows):
        return function(self.tables[0].slice(0, 2000))


# ---- what comes back is checked ---------------------------------------------------------------------------------


COUNTS = np.array([5, 2, 0, 1, 7])


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([(0, 5)], "Bin 2 came back with 0 rows, but 7"),
        ([(0, 5), (2, 7), (2, 7)], "came back twice"),
        ([(0, 5), (2, 6)], "with 6 rows, but 7"),
        ([(0, 5), (1, 1), (2, 7)], "Bin 1 came back with 1 rows, but 0"),
    ],
)
def test_a_lost_doubled_or_changed_bin_is_an_error(states, words):
    with pytest.raises(RowsChanged, match=words):
        check_buckets("Bin", [{"bucket": b, "rows": n} for b, n in states], COUNTS)


def test_bins_that_came_back_once_and_whole_pass():
    assert check_buckets("Bin", [{"bucket": 2, "rows": 7, "riders": 3}, {"bucket": 0, "rows": 5}], COUNTS, 3) is None


class Tampering(ListEngine):
    """Does one thing wrong in one shuffle."""

    def __init__(self, tables, what, at):
        super().__init__(tables)
        self.what, self.at, self.count = what, at, 0

    def shuffle(self, stage, inputs, buckets, finish):
        self.count += 1
        if self.count != self.at:
            return super().shuffle(stage, inputs, buckets, finish)
        if self.what == "lose rows":
            whole, self.tables = self.tables, [self.tables[0].slice(1), *self.tables[1:]]
            carried = [type(i)(i.route, None if i.rows is None else [i.rows[0].slice(1), *i.rows[1:]]) for i in inputs]
            try:
                return super().shuffle(stage, carried, buckets, finish)
            finally:
                self.tables = whole
        done = super().shuffle(stage, inputs, buckets, finish)
        if self.what == "lose a bucket":
            done.states.pop()
        elif self.what == "double a bucket":
            done.states.append(done.states[0])
        return done


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("what", ["lose rows", "lose a bucket", "double a bucket"])
def test_an_engine_that_loses_or_doubles_rows_gives_no_number(what, at):
    engine = Tampering([data("even", 5000)], what, at)
    with pytest.raises(RowsChanged, match=r"(N|n)o result is given"):
        run_plan(engine, request(bins=8))
    assert engine.closed


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("what", ["lose rows", "lose a bucket", "double a bucket"])
def test_the_chain_of_clusters_is_checked_too(what, at):
    rows = make_rows(3, 4000)
    engine = Tampering([as_table(rows)], what, at)
    with pytest.raises(RowsChanged):
        run_plan(engine, request(scores="score_t", metrics=["uq_auc", "uq_c_index"], bins=8, cluster="patient"))
    assert engine.closed


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("what", ["lose rows", "lose a bucket", "double a bucket"])
@pytest.mark.parametrize("last", ["groups", "ranks"])
def test_a_comparison_is_checked_too(last, what, at):
    rows = make_rows(5, 400)
    if last == "ranks":  # a single error, and scores that rank alike
        rows |= {"t": np.exp(rows["s"] / 1e6), "error": np.arange(400) == 7}
    engine = Tampering(cut(as_table(rows), [100]), what, at)
    with pytest.raises(RowsChanged):
        distributed.compare(None, engine=engine, by="site" if last == "groups" else None)
    assert engine.count == at
    assert engine.closed


# ---- functions travel -------------------------------------------------------------------------------------------


def test_what_an_engine_gets_can_be_pickled_and_gives_the_same_again():
    table = data("even", 500)
    run = Run(ListEngine([table]), request(bins=4))
    grid, loss = run.grids[0], (wire.LOSS, wire.LOSS_BIN)
    route = RouteScore(run.prepare, 0, grid.score, grid.loss, grid.small, (wire.score(0), wire.ERROR, *loss))
    finish = run.finish_score(0, (wire.score(0), *loss, wire.pairs(0)))
    moved, bucket = pickle.loads(pickle.dumps(route))(table)
    rows = moved.take(np.flatnonzero(bucket == 1))
    here, there = finish(1, rows), pickle.loads(pickle.dumps(finish))(1, rows)
    np.testing.assert_equal(here.state, there.state)
    assert here.carried.equals(there.carried)


class Travelling(ListEngine):
    """Everything that an engine of several machines would send is sent as bytes."""

    def shuffle(self, stage, inputs, buckets, finish):
        sent = [type(i)(pickle.loads(pickle.dumps(i.route)), i.rows) for i in inputs]
        done = super().shuffle(stage, sent, buckets, pickle.loads(pickle.dumps(finish)))
        return replace(done, states=[pickle.loads(pickle.dumps(state)) for state in done.states])


@pytest.mark.parametrize("error", ["some", "one"])
def test_comparisons_of_groups_and_of_ranks_travel_as_bytes(error):
    rows = make_rows(5, 400)
    if error == "one":
        rows |= {"t": np.exp(rows["s"] / 1e6), "error": np.arange(400) == 7}
    tables = cut(as_table(rows), [100])
    with pytest.warns(UQWarning) if error == "one" else nullcontext():
        here = distributed.compare(None, engine=ListEngine(tables), by="site")
        there = distributed.compare(None, engine=Travelling(tables), by="site")
    assert repr(here.rows) == repr(there.rows)  # NaN is not equal to itself
    assert (here["s", "t"].se == 0) == (error == "one")


def test_clusters_are_told_apart_by_value_not_by_type():
    small, large = (keys_of(pa.chunked_array([pa.array([3, 4, 3], kind)])) for kind in (pa.int32(), pa.int64()))
    assert np.array_equal(small, large)
    texts = keys_of(pa.chunked_array([["007", "7"], ["007"]]))
    assert texts[0][0] == texts[0][2] != texts[0][1]


# ---- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "asked", "words"),
    [
        ({}, {"metrics": ["kendall_phi"]}, "cannot be computed piece by piece"),
        ({}, {"metrics": []}, "`metrics` is empty"),
        ({}, {"metrics": ["brier"]}, "brier needs probs, labels"),
        ({}, {"scores": "score_x"}, 'no score "score_x"'),
        ({}, {"cluster": "patiant"}, "no column `patiant`"),
        ({"weight": np.ones(10)}, {}, "column of weights"),
        ({"error": None}, {"metrics": ["uq_auc"]}, "uq_auc needs score, error"),
        ({"score_s": ["a"] * 10}, {}, "holds text, not numbers"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(columns, asked, words):
    given_columns = {
        "score_s": np.arange(10.0),
        "error": np.arange(10) % 2,
        "loss": np.arange(10.0),
        "patient": range(10),
    }
    given_columns = {name: x for name, x in (given_columns | columns).items() if x is not None}
    with pytest.raises(InputError, match=words):
        distributed.evaluate(None, engine=ListEngine([pa.table(given_columns)]), **asked)


def test_fewer_than_two_rows_and_one_candidate_are_refused():
    one = pa.table({"score_s": [1.0], "error": [1]})
    with pytest.raises(InputError, match="fewer than 2 rows"):
        distributed.evaluate(None, engine=ListEngine([one]))
    with pytest.raises(InputError, match="Only one candidate"):
        distributed.compare(None, engine=ListEngine([data("even", 50)]))
    with pytest.raises(InputError, match="Compare models instead"):
        distributed.compare(None, engine=ListEngine([data("even", 50)]), metric="accuracy")
    with pytest.raises(InputError, match="no option"):
        distributed.evaluate(None, engine=ListEngine([one]), labell="y")
    with pytest.raises(InputError, match="Choose"):
        distributed.evaluate("x.parquet", engine="ray")


def test_a_weight_column_can_be_left_aside():
    table = data("even", 200).append_column("weight", pa.array(np.ones(200)))
    found = distributed.evaluate(None, engine=ListEngine([table]), weight=None, metrics="uq_auc")
    assert found["s", "uq_auc"].n == 200


def test_the_sums_of_no_pairs_are_undefined_not_wrong():
    sums = ScoreSums(4, 2, False, sizes={4: [4, 0, 0]})
    assert estimate_score("uq_c_index", sums).method == "undefined"
