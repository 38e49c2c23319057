"""What every engine promises: the integers of the kernels, whatever happens; clear errors; nothing left behind."""

from __future__ import annotations

import tempfile
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from distributed_cases import (
    CLUSTER_PLACES,
    METRICS,
    PLACES,
    Carry,
    Everything,
    ToZero,
    Troubled,
    UpperHalf,
    as_table,
    assert_same,
    assert_same_integers,
    cases,
    cut,
    make,
    request,
    rounded_models,
    run_plan,
    spoil,
    wait_for,
    write,
)
from hypothesis import HealthCheck, given, settings

import uqeval
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Cancelled, Input
from uqeval.distributed.plan.edges import RowsChanged
from uqeval.distributed.plan.run import STREAMED

pytestmark = [
    pytest.mark.usefixtures("no_notes"),
    # Spark leaves closing some of its sockets to the interpreter.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # Dask's own threads draw random numbers while Hypothesis does, which takes them for its own.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
]


def files(folder, rows, seed=1):
    """Unequal files, some of them without rows."""
    n = len(rows["s"])
    return write(folder, cut(as_table(rows), [0, n, *np.random.default_rng(seed).integers(0, n, 4).tolist()]))


def without_ties(n):
    rows = make(n)
    return rows | {"s": rows["s"] + np.random.default_rng(1).random(n), "loss": np.random.default_rng(2).random(n)}


CASES = {
    "ties": (make(), request(bins=16)),
    "one score holds 90%": (make(heavy=0.9), request(bins=16)),
    "all scores alike": (make(500, heavy=1.0), request(bins=8)),
    "no ties": (without_ties(900), request(bins=16)),
    "absurd edges": (make(600), request(edges=[[-9.0, 0.5, 0.5], [1e9]])),
    "no edges": (make(400), request(edges=[[], []])),
}


# ---- the same numbers -------------------------------------------------------------------------------------------


def test_integers_are_those_of_the_kernels_on_ties_and_any_edges(every_engine_at_length, tmp_path):
    for name, (rows, asked) in CASES.items():
        assert_same_integers(every_engine_at_length(files(tmp_path / name, rows)), asked, rows)
    assert every_engine_at_length.left() == 0


@pytest.mark.slow  # test_exact has it for the others
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_integers_do_not_depend_on_partitions_and_edges(cluster_engine, case):
    rows, tables, edges = case
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), tables, 23)
        assert_same_integers(cluster_engine(paths), request(edges=edges), rows, ("s", "t"))


def test_values_and_intervals_of_rows_clusters_and_groups_equal_those_in_memory(every_engine_at_length, tmp_path):
    rows = make(1500)
    paths = files(tmp_path, rows)
    plain = {"score": {"s": rows["s"]}, "error": rows["error"], "loss": rows["loss"], "metrics": METRICS}
    for asked, given_ in (({}, {}), ({"cluster": "patient"}, {"clusters": rows["cluster"]})):
        done = run_plan(every_engine_at_length(paths), request(bins=8, **asked))
        assert_same(uqeval.evaluate(**plain, **given_), done)
        assert (done.run.engine, done.run.rows) == (every_engine_at_length.name, 1500)
    done = run_plan(every_engine_at_length(paths), request(bins=8, group="site", metrics=["uq_auc", "uq_c_index"]))
    plain["metrics"] = ["uq_auc", "uq_c_index"]
    assert_same(uqeval.evaluate(**plain, groups=rows["group"]), done)
    assert every_engine_at_length.left() == 0


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=rounded_models())
def test_models_that_saturate_in_float32_and_float16_equal_those_in_memory(every_engine_at_length, case):
    table, tables = case
    memory = uqeval.evaluate(uqeval.Predictions.from_frame(table), scores=["margin", "entropy"])
    names = [metric.name for metric in STREAMED if metric.name in (*memory.metrics, "top_label_c_index")]
    memory = uqeval.evaluate(uqeval.Predictions.from_frame(table), scores=["margin", "entropy"], metrics=names)
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), tables, 23)
        found = run_plan(every_engine_at_length(paths), request(["margin", "entropy"], metrics=names, bins=3))
    assert_same(memory, found)
    for score in ("margin", "entropy"):
        for metric in ("uq_c_index", "top_label_c_index"):  # to the last bit
            assert repr(found[score, metric].value) == repr(memory[score, metric].value)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "dask", "spark"])
def test_a_million_rows_of_which_many_saturate_give_the_same_c_index_to_the_last_bit(engine, request, tmp_path):
    options = {"dask": "client", "spark": "session"}
    rng, n = np.random.default_rng(0), 10**6
    logits = 12 * rng.normal(size=(n, 10)).astype(np.float32)
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    assert (probs.max(axis=1) == 1).mean() > 0.05
    labels = np.where(rng.random(n) < 0.8, probs.argmax(axis=1), rng.integers(0, 10, n))
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"label": labels} | {f"prob_{k}": probs[:, k] for k in range(10)}), path)
    more = {"client": request.getfixturevalue(options[engine])} if engine in options else {}
    asked = {"scores": "entropy", "metrics": ["uq_c_index"]}
    found, memory = uqeval.evaluate(path, engine=engine, **asked, **more), uqeval.evaluate(path, **asked)
    assert found["entropy", "uq_c_index"].value == memory["entropy", "uq_c_index"].value
    assert (found.run.engine, found.n, memory.run) == (engine, n, None)


def test_files_of_text_and_parts_without_rows_are_read(file_engine_at_length, tmp_path):
    rows = make(600)
    table = as_table(rows)
    for name, part in (("a", table.slice(0, 400)), ("b", table.slice(0, 0)), ("c", table.slice(400))):
        pa.csv.write_csv(part, tmp_path / f"{name}.csv")
    engine = file_engine_at_length(str(tmp_path / "*.csv"))
    assert_same_integers(engine, request(bins=8), rows)
    assert engine.sampled_rows > 0


def test_a_sample_comes_from_all_over_the_source_and_says_what_it_read(every_engine, tmp_path):
    tables = [pa.table({"score_s": np.arange(50.0) + 50 * k, "error": np.arange(50) % 2}) for k in range(40)]
    engine = every_engine(write(tmp_path, tables))
    few = engine.sample(Everything(), 500).column("score_s").to_numpy()
    assert 200 <= len(few) <= 1000
    assert few.min() < 400
    assert few.max() > 1600
    assert len(few) <= engine.sampled_rows <= 2000
    engine.close()


def test_a_task_holds_few_rows_few_rows_move_and_many_parts_are_merged(every_engine_at_length, tmp_path):
    rows = make(8000, heavy=0.5)
    paths = write(tmp_path, cut(as_table(rows), list(range(400, 8000, 400))), 100)
    found = run_plan(every_engine_at_length(paths), request(bins=32, metrics=["uq_auc", "uq_c_index"]))
    assert found["s", "uq_auc"].value == pytest.approx(uqeval.metrics.uq_auc(rows["s"], rows["error"]), abs=1e-12)
    assert found.run.largest_task <= 3 * 8000 / 32
    assert found.run.moved_rows <= 2 * 8000 * 0.6
    assert (found.run.passes, found.run.shuffles) == (3, 2)


def test_a_shuffle_brings_buckets_together_and_carries_rows_to_the_next(every_engine, tmp_path):
    """The verbs themselves, without a plan."""
    x = np.random.default_rng(0).permutation(100)
    table = pa.table({"x": x, "other": x.astype(str)})
    with closing(every_engine(write(tmp_path, cut(table, [0, 30, 31]), 10))) as engine:
        assert sum(part.rows for part in engine.parts()) == 100
        assert min(engine.task_rows, engine.bucket_rows, engine.grid_bytes) >= 1000
        first = engine.shuffle("first", [Input(UpperHalf())], 9, Carry())
        assert sorted(state["sum"] for state in first.states) == [sum(range(50, 100, 2)), sum(range(51, 100, 2))]
        assert (sum(first.rows), first.moved_rows, first.largest) == (100, 50, 25)
        second = engine.shuffle("second", [Input(ToZero(), first.carried), Input(UpperHalf())], 9, Carry())
        engine.release(first.carried)
        assert {state["bucket"]: state["sum"] for state in second.states} == {
            0: sum(range(50, 100)) + sum(range(50, 100, 2)),
            7: sum(range(51, 100, 2)),
        }
        assert sum(second.rows) == 100
        third = engine.shuffle("third", [Input(ToZero(), second.carried)], 9, Carry())
        assert third.rows is None
        engine.close()  # and once more below
    assert every_engine.left() == 0


# ---- trouble ----------------------------------------------------------------------------------------------------


def test_a_lost_or_a_doubled_row_is_an_error(every_engine_at_length, tmp_path):
    paths = files(tmp_path / "data", make(600))
    for kind in ("lose", "double"):
        for place in ("route score", "route loss"):
            with pytest.raises(RowsChanged, match=r"rows, but|lost"):
                run_plan(Troubled(every_engine_at_length(paths), kind, tmp_path / "x", place), request(bins=4))
    assert every_engine_at_length.left() == 0


def test_a_bucket_is_finished_once_although_a_later_shuffle_needs_its_rows(every_engine_at_length, tmp_path):
    engine = Troubled(
        every_engine_at_length(files(tmp_path / "data", make(900))), "note", tmp_path / "calls", "finish score"
    )
    run_plan(engine, request(bins=16, cluster="patient"))
    calls = (tmp_path / "calls-finish-score-s").read_text().split()
    assert len(calls) == len(set(calls)) > 8


def test_a_worker_killed_in_the_middle_of_a_shuffle_changes_no_integer(cluster_engine, tmp_path):
    rows = make(900, heavy=0.9)  # ties, and one score that holds 90%
    engine = cluster_engine(files(tmp_path / "data", rows))
    assert_same_integers(Troubled(engine, "kill", tmp_path / "once", "finish score"), request(bins=8), rows)
    assert (tmp_path / "once-finish-score-s").exists()
    assert cluster_engine.left() == 0


@pytest.mark.slow
def test_a_worker_killed_in_any_stage_of_a_clustered_run_changes_no_digit(cluster_engine, tmp_path):
    rows = make(900, heavy=0.3)
    paths = files(tmp_path / "data", rows)
    memory = {"score": {"s": rows["s"]}, "error": rows["error"], "loss": rows["loss"], "metrics": METRICS}
    memory = uqeval.evaluate(**memory, clusters=rows["cluster"])
    for k, places in enumerate([PLACES, CLUSTER_PLACES]):
        engine = Troubled(cluster_engine(paths), "kill", tmp_path / f"run{k}", *places)
        assert_same(memory, run_plan(engine, request(bins=8, cluster="patient")))
        assert len(list(tmp_path.glob(f"run{k}-*"))) == len(places)
    assert cluster_engine.left() == 0


def test_a_file_with_broken_pages_and_a_bad_row_are_named(file_engine, tmp_path):
    paths = files(tmp_path, make(1000))
    spoil(paths[2])
    with pytest.raises(InputError, match=r"part-02\.parquet: cannot be read"):
        run_plan(file_engine(paths), request(bins=8))
    pq.write_table(pa.table({"score_s": [0.1, np.nan, 0.3], "error": [0, 1, 0]}), paths[2])
    with pytest.raises(InputError, match=r"score_s. holds NaN or nothing in 1 row, first in .*part-02\.parquet, row 1"):
        run_plan(file_engine(paths[2]), request(metrics=["uq_auc"]))
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:-100])
    with pytest.raises(InputError, match=r"part-02\.parquet: cannot be read"):
        file_engine(paths)
    assert file_engine.left() == 0


def test_files_that_change_between_passes_give_no_result(file_engine_at_length, tmp_path):
    paths = files(tmp_path, make(1000))
    engine = Troubled(file_engine_at_length(paths), "", "", before=lambda stage: files(tmp_path, make(1000, seed=5)))
    with pytest.raises(InputError, match=r"changed while it was read. No result is given"):
        run_plan(engine, request(bins=8))
    assert file_engine_at_length.left() == 0


def test_progress_counts_up_to_all_rows_of_every_stage(file_engine_at_length, tmp_path):
    seen: dict[str, list[tuple[int, int]]] = {}
    engine = file_engine_at_length(
        files(tmp_path, make(1000)),
        progress=lambda stage, done, total: seen.setdefault(stage, []).append((done, total)),
    )
    run_plan(engine, request(bins=8))
    assert seen.keys() >= {"count", "score s", "loss, s"}
    assert seen["count"][-1] == (1000, 1000)
    assert all(steps == sorted(steps) for steps in seen.values())
    assert all(done == total for done, total in (steps[-1] for steps in seen.values()))


def test_cancelling_from_another_thread_and_an_interrupt_inside_progress_leave_nothing(file_engine, tmp_path):
    paths = files(tmp_path / "data", make(600))
    engine = file_engine(paths)
    stuck = Troubled(engine, "wait", tmp_path / "begun", "fold")

    def cancel():
        wait_for(tmp_path / "begun-fold")
        engine.cancel()
        Path(f"{tmp_path / 'begun-fold'} go").touch()

    threading.Thread(target=cancel).start()
    with pytest.raises(Cancelled):
        run_plan(stuck, request(bins=4))

    def interrupt(stage, done, total):
        if stage.startswith("score"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(file_engine(paths, progress=interrupt), request(bins=4))
    assert file_engine.left() == 0
    rows = make(600)
    assert_same_integers(file_engine(paths), request(bins=4), rows)  # the cluster is as good as before
