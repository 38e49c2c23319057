"""Lazy frames give the numbers of the same rows in memory, and are never collected."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from distributed_cases import assert_same, make_rows
from hypothesis import given, settings
from hypothesis import strategies as st

import uqeval as uq
from uqeval._errors import InputError, UQWarning
from uqeval.distributed import memory as bigger
from uqeval.distributed.engines import frames
from uqeval.distributed.engines.local import query as kept
from uqeval.distributed.plan.run import SUPPORTED
from uqeval.evaluation import lazy

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
nw = pytest.importorskip("narwhals")

COLLECTING = {
    "polars": ("collect", "collect_async", "profile"),
    "duckdb": ("df", "to_df", "fetchall", "fetchdf", "fetchnumpy", "to_arrow_table", "arrow", "pl"),
    "ibis": ("execute", "to_pandas", "to_pyarrow", "to_polars"),
    "dask": ("compute", "to_records", "__array__"),
    "pyspark": ("toPandas", "toArrow"),
}


@pytest.fixture(autouse=True)
def no_notes():
    """What limits an estimate is compared, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        # Ibis calls DuckDB by names of old.
        warnings.filterwarnings("ignore", r"fetch_\w+\(\) is deprecated", DeprecationWarning)
        yield


def plain_table(n=3000, seed=36):
    rows = make_rows(seed, n)
    names = {"s": "score_s", "t": "score_t"}
    return pa.table({names.get(name, name): column for name, column in rows.items()})


def model_table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(3), n)
    labels = np.array(["cat", "dog", "owl"])[[rng.choice(3, p=p) for p in probs]]
    return pa.table({"label": labels} | {f"prob_{name}": probs[:, k] for k, name in enumerate(("cat", "dog", "owl"))})


def never(*args, **kwargs):
    raise AssertionError("the rows were collected")


def as_polars(table, folder):
    return pl.from_arrow(table).lazy()


def as_duckdb(table, folder):
    pq.write_table(table, folder / "rows.parquet")
    return duckdb.connect().read_parquet(str(folder / "rows.parquet"))


def as_ibis(table, folder):
    ibis = pytest.importorskip("ibis")
    pq.write_table(table, folder / "rows.parquet")
    return ibis.duckdb.connect().read_parquet(str(folder / "rows.parquet"))


def as_ibis_on_polars(table, folder):
    ibis = pytest.importorskip("ibis")
    pq.write_table(table, folder / "rows.parquet")
    return ibis.polars.connect().read_parquet(str(folder / "rows.parquet"))


def as_ibis_on_memory(table, folder):
    ibis = pytest.importorskip("ibis")
    pytest.importorskip("pyarrow_hotfix", reason="Ibis needs it to take rows")
    return ibis.memtable(table)


LOCAL = {
    "polars": as_polars,
    "duckdb": as_duckdb,
    "ibis": as_ibis,
    "ibis on polars": as_ibis_on_polars,
    "ibis on memory": as_ibis_on_memory,
}


def forbid(frame, monkeypatch):
    """Whatever would bring all rows of this frame into memory fails."""
    kind = lazy.kind_of(frame).split(".")[0]
    for cls in (type(frame), nw.LazyFrame):
        for name in COLLECTING[kind] if cls is not nw.LazyFrame else ("collect",):
            if hasattr(cls, name):
                monkeypatch.setattr(cls, name, never)
    if kind == "ibis":
        monkeypatch.setattr(pl.LazyFrame, "collect", never)
        monkeypatch.setattr(type(frame.get_backend()), "to_pyarrow", never)


@pytest.mark.parametrize("kind", LOCAL)
def test_a_frame_that_cannot_be_collected_gives_the_numbers_of_its_rows(kind, tmp_path, monkeypatch):
    table = plain_table()
    memory = uq.evaluate(table, metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"])
    frame = LOCAL[kind](table, tmp_path)
    forbid(frame, monkeypatch)
    with pytest.raises(AssertionError, match="collected"):
        nw.from_native(frame).collect()
    found = uq.evaluate(frame, metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"])
    assert_same(memory, found)
    assert found.groups == ("a", "b", "c", "dd")  # the columns `group` and `cluster` count, as in memory
    assert found["s", "uq_auc"].n_clusters == memory["s", "uq_auc"].n_clusters
    assert found.run.rows == 3000


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.integers(1, 50))
def test_any_rows_in_batches_of_any_size_give_the_numbers_in_memory(seed, n, size):
    table = plain_table(n, seed).drop_columns(["group"])
    memory = uq.evaluate(table, metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"])
    batches = [table.slice(at, size) for at in range(0, n, size)]
    order = np.random.default_rng(seed).permutation(len(batches))
    engine = kept.FrameEngine([batches[k] for k in order])
    found = uq.distributed.evaluate(None, engine=engine, cluster="cluster", metrics=list(memory.metrics))
    assert_same(memory, found)


@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_scores_and_metrics_of_probabilities_are_those_in_memory(kind, tmp_path, monkeypatch):
    table = model_table()
    frame = LOCAL[kind](table, tmp_path)
    forbid(frame, monkeypatch)
    metrics = [name for name in SUPPORTED if name in uq.evaluate(table).metrics]
    assert_same(uq.evaluate(table, metrics=metrics), uq.evaluate(frame, metrics=metrics))


def test_a_query_of_several_steps_is_computed_by_its_engine():
    rows = pl.LazyFrame({"x": range(1000)})
    query = rows.filter(pl.col("x") % 2 == 0).select(
        score=pl.col("x") * 7919 % 101, error=pl.col("x") % 7 == 0, kind=pl.lit("a").cast(pl.Categorical)
    )
    relation = duckdb.sql("SELECT x * 7919 % 101 AS score, x % 7 = 0 AS error FROM range(0, 1000, 2) t(x)")
    values = [uq.evaluate(frame)["score", "uq_auc"].value for frame in (query, relation, nw.from_native(query))]
    assert values == [uq.evaluate(query.collect())["score", "uq_auc"].value] * 3


def test_texts_and_categories_that_differ_from_batch_to_batch_are_read():
    one = pa.table(
        {"score": [0.1, 0.4, 0.2], "error": [0, 1, 1], "group": pa.array(["a", "b", "a"]).dictionary_encode()}
    )
    two = pa.table(
        {"score": [0.3, 0.9, 0.5], "error": [1, 1, 0], "group": pa.array(["c", "a", "c"]).dictionary_encode()}
    )
    engine = kept.FrameEngine(iter([one, two]))
    found = uq.distributed.evaluate(None, engine=engine, by="group", metrics="accuracy")
    assert {row.group: row.estimate.n for row in found} == {None: 6, "a": 3, "c": 2}


def test_columns_of_other_names_can_be_given():
    table = plain_table().drop_columns(["group", "cluster"])
    renamed = table.rename_columns(["score_s", "unc", "wrong", "nll"])
    memory = uq.evaluate(table, scores="t", metrics=["uq_auc", "uq_c_index"])
    frame = pl.from_arrow(renamed).lazy()
    found = frames.evaluate_frame(frame, score="unc", metrics=["uq_auc", "uq_c_index"], error="wrong", loss="nll")
    for metric in ("uq_auc", "uq_c_index"):
        assert found["unc", metric].value == memory["t", metric].value


def test_compare_is_that_of_the_rows_in_memory(monkeypatch):
    table = plain_table().drop_columns(["group"])
    frame = as_polars(table, None)
    memory = uq.compare(table, scores=["s", "t"], metric="uq_c_index")
    forbid(frame, monkeypatch)
    found = uq.compare(frame, scores=["s", "t"], metric="uq_c_index")
    assert found.values == pytest.approx(memory.values, rel=1e-12)
    assert found["s", "t"].se == pytest.approx(memory["s", "t"].se, rel=1e-9)


@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_compare_uses_the_group_column_as_in_memory(kind, tmp_path):
    table = plain_table()
    memory = uq.compare(table, metric="uq_auc")
    found = uq.compare(LOCAL[kind](table, tmp_path), metric="uq_auc")
    assert [row.group for row in found] == [None, "a", "b", "c", "dd"]
    for a, b in zip(memory, found, strict=True):
        assert (b.group, b.difference, b.se) == (a.group, pytest.approx(a.difference), pytest.approx(a.se, rel=1e-9))
    assert found.warnings == memory.warnings
    assert found.run.rows == 3000


@pytest.mark.parametrize("kind", LOCAL)
def test_the_functions_for_files_take_a_lazy_frame_as_well(kind, tmp_path, monkeypatch):
    table = plain_table()
    frame = LOCAL[kind](table, tmp_path)
    forbid(frame, monkeypatch)
    metrics = ["uq_auc", "accuracy"]
    assert_same(uq.evaluate(table, metrics=metrics), uq.distributed.evaluate(frame, metrics=metrics))
    found = uq.distributed.compare(frame, by="cluster", metric="aurc", memory_limit="300MB")
    assert found["s", "t"].se == pytest.approx(uq.compare(frame, metric="aurc")["s", "t"].se)
    assert found.run.engine == "local"


@pytest.mark.parametrize("kind", ["dask", "spark"])
def test_folders_and_columns_of_texts_reach_the_engines_of_clusters(kind, monkeypatch):
    seen = {}

    def made(source, **options):
        seen.update(options, source=source)
        raise InputError("seen")

    module = pytest.importorskip(f"uqeval.distributed.{kind}")
    monkeypatch.setattr(module, f"{kind.title()}Engine", made)
    with pytest.raises(InputError, match="seen"):
        uq.distributed.evaluate("x.csv", engine=kind, spill="here", by="site", cluster="patient", label="truth")
    assert (seen["spill"], seen["texts"]) == ("here", ["truth", "pred", "patient", "site"])
    with pytest.raises(InputError, match="seen"):
        frames._cluster_engine({"spark": "pyspark"}.get(kind, kind), "frame", "1GB", "client", None, "there")
    assert (seen["spill"], seen["source"], seen["memory_limit"]) == ("there", "frame", 10**9)


def test_importing_needs_no_engine_and_no_dataframes():
    code = (
        "import sys, uqeval.distributed; from uqeval.distributed import *; "
        "print([name for name in ('dask', 'distributed', 'pyspark', 'polars', 'pandas', 'pyarrow') "
        "if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_memory_limit_that_means_nothing_is_refused_before_the_query_runs():
    with pytest.raises(InputError, match="memory_limit"):
        kept.FrameEngine(iter(never, None), memory_limit="lots")


def test_only_the_columns_that_are_needed_are_asked_for():
    names = ["score_a", "score_b", "error", "loss", "label", "prob_x", "prob_y", "note", "site"]
    options = uq.inputs._columns.Columns()
    some = frames.needed_columns(names, options, "a", ["uq_auc"], ("site",))
    assert set(some) == {"score_a", "error", "loss", "site"}
    everything = set(names) - {"note", "site"}
    assert set(frames.needed_columns(names, options, None, None, ())) == everything
    assert set(frames.needed_columns(names, options, ["a", "entropy"], ["uq_auc"], ())) == everything
    assert set(frames.needed_columns(names, options, "a", ["uq_auc", "brier"], ())) == everything
    with pytest.raises(InputError, match=r"no column `sight`.*site"):
        frames.needed_columns(names, options, None, None, ("sight",))


# ---- what can go wrong ------------------------------------------------------------------------------------------


def test_a_query_that_fails_is_one_message_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    query = pl.LazyFrame({"score": ["1", "2", "x"], "error": [0, 1, 0]}).with_columns(pl.col("score").cast(pl.Int8))
    with pytest.raises(InputError, match=r"The query of `frame` failed .*conversion"):
        uq.evaluate(query)
    with pytest.raises(InputError, match=r"The query of `frame` failed"):
        uq.evaluate(duckdb.sql("SELECT CAST(x AS INT) AS score, 1 AS error FROM (VALUES ('1'), ('no')) t(x)"))
    with pytest.raises(InputError, match="gives no rows"):
        uq.evaluate(pl.LazyFrame({"score": [0.5, 0.1], "error": [0, 1]}).filter(pl.col("score") > 2))
    assert os.listdir(tmp_path) == []


def test_missing_values_are_named_with_their_row():
    query = pl.LazyFrame({"score": [0.5, None, 0.1, 0.2], "error": [0, 1, 0, 1]})
    with pytest.raises(InputError, match=r"`score` holds NaN or nothing in 1 row, first in the polars query, row 1"):
        uq.evaluate(query)


def test_what_needs_all_rows_in_memory_is_refused():
    frame = pl.LazyFrame({"score": [0.5, 0.1, 0.3], "error": [0, 1, 0]})
    with pytest.raises(InputError, match=r"bootstrap.*polars.LazyFrame is not collected"):
        uq.evaluate(frame, method="bootstrap")
    with pytest.raises(InputError, match="not both"):
        uq.evaluate(frame, error=[0, 1, 0])
    with pytest.raises(InputError, match="weights"):
        uq.evaluate(frame.with_columns(weight=1.0))
    with pytest.raises(InputError, match="in memory"):
        frames.evaluate_frame(pl.DataFrame({"score": [0.5]}))
    with pytest.raises(InputError, match="no lazy frame"):
        frames.evaluate_frame([1, 2])


def test_a_full_disk_is_one_message():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    engine = kept.Kept.__new__(kept.Kept)
    engine.chunks, engine._folder = [], "the folder"
    with open("/dev/full", "wb", buffering=0) as engine._file, pytest.raises(InputError, match=r"the folder.*spill="):
        engine._write(iter([plain_table()]), None)
    gc.collect()


def test_a_folder_for_temporary_rows_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*spill="):
        frames.evaluate_frame(pl.LazyFrame({"score": [1, 2], "error": [0, 1]}), spill=str(tmp_path / "nowhere"))


def test_an_interrupted_query_leaves_no_file(tmp_path):
    def interrupted():
        yield plain_table(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.FrameEngine(interrupted(), spill=str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_progress_tells_rows_done():
    seen = []
    uq.evaluate(
        as_polars(plain_table(), None), metrics="uq_auc", progress=lambda stage, done, total: seen.append((done, total))
    )
    assert seen
    assert max(done for done, _ in seen) >= 3000


# ---- files ------------------------------------------------------------------------------------------------------


def test_files_that_would_not_fit_are_read_piece_by_piece(tmp_path, monkeypatch):
    table = plain_table()
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=500)
    metrics = ["uq_auc", "uq_c_index", "accuracy"]
    memory = uq.evaluate(str(path), metrics=metrics)
    assert memory.source is not None
    monkeypatch.setattr(bigger, "memory_available", lambda: 400_000)
    with pytest.warns(UQWarning, match=r"read piece by piece: the rows would need about 2 MB .* 0 MB are free"):
        found = uq.evaluate(path, metrics=metrics)
    assert found.source is None
    assert_same(memory, found)
    assert "read piece by piece" in found.warnings[-1]
    assert uq.compare(path, scores=["s", "t"]).values == {n: found[n, "uq_auc"].value for n in ("s", "t")}
    with pytest.raises(InputError, match=r"bootstrap.*would need about"):
        uq.evaluate(path, method="bootstrap")
    with pytest.raises(InputError, match=r"no score .*read_predictions reads them whole"):
        uq.evaluate(path, scores="absent")


def test_the_need_for_memory_grows_with_rows_columns_and_scores(tmp_path):
    small, large, wide = (str(tmp_path / f"{name}.parquet") for name in ("small", "large", "wide"))
    pq.write_table(plain_table(1000), small)
    pq.write_table(plain_table(3000), large)
    pq.write_table(model_table(1000), wide)
    needed = [bigger.memory_needed([path]) for path in (small, large, wide)]
    assert needed[1] == 3 * needed[0]
    assert needed[0] < needed[1]
    assert bigger.memory_needed([small], "s") < needed[0]
    assert bigger.memory_needed([small, large]) == needed[0] + needed[1]
    np.savez(tmp_path / "x.npz", score=[1.0])
    assert bigger.memory_needed([str(tmp_path / "x.npz")]) == 0
    assert bigger.memory_available() > 10**7


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.feather"])
def test_files_of_other_kinds_need_about_as_much_as_parquet(name, tmp_path):
    table = plain_table(5000).drop_columns(["group"])
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = table.to_pandas()
    if name.endswith(".jsonl"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    elif name.endswith(".feather"):
        pa.feather.write_feather(table, tmp_path / name, compression="uncompressed")
    else:
        frame.to_csv(tmp_path / name, index=False)
    exact, guess = (bigger.memory_needed([str(tmp_path / file)]) for file in ("rows.parquet", name))
    assert exact / 3 < guess < exact * 3


# ---- clusters of workers ----------------------------------------------------------------------------------------


def test_a_dask_frame_goes_to_dask(monkeypatch):
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    cluster = pytest.importorskip("distributed")
    table = plain_table().drop_columns(["group"])
    frame = dd.from_pandas(table.to_pandas(), npartitions=3)
    local = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with cluster.LocalCluster(**local) as workers, cluster.Client(workers):
        forbid(frame, monkeypatch)
        found = uq.evaluate(frame, metrics=["uq_auc", "uq_c_index"])
    assert found.run.engine == "dask"
    assert_same(uq.evaluate(table, metrics=["uq_auc", "uq_c_index"]), found)


@pytest.mark.slow
def test_a_spark_frame_goes_to_spark(monkeypatch, tmp_path):
    import shutil

    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    table = plain_table().drop_columns(["group"])
    pq.write_table(table, tmp_path / "rows.parquet")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.pyspark.python", sys.executable).config("spark.driver.memory", "1g")
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path / "warehouse")).getOrCreate()
    try:
        frame = session.read.parquet(str(tmp_path / "rows.parquet"))
        forbid(frame, monkeypatch)
        found = uq.evaluate(frame, metrics=["uq_auc", "uq_c_index"])
    finally:
        session.stop()
    assert found.run.engine == "spark"
    assert_same(uq.evaluate(table, metrics=["uq_auc", "uq_c_index"]), found)


def test_every_route_can_be_found():
    for module in set(lazy.ROUTES.values()):
        home = __import__(module, fromlist=["evaluate_frame"])
        assert callable(home.evaluate_frame)
        assert callable(home.compare_frame)
    assert lazy.kind_of(pl.DataFrame({"a": [1]})) is None
    assert lazy.kind_of(pa.table({"a": [1]})) is None


def test_another_package_can_add_a_kind_of_frame(monkeypatch):
    class Frame:
        __module__ = "mypackage.core"

    route = type(sys)("mypackage_routes")
    route.evaluate_frame = lambda frame, **options: ("seen", options["score"], options["metrics"])
    monkeypatch.setitem(sys.modules, "mypackage_routes", route)
    monkeypatch.setitem(lazy.ROUTES, "mypackage.Frame", "mypackage_routes")
    assert uq.evaluate(Frame(), scores="a", metrics="uq_auc") == ("seen", "a", "uq_auc")


# ---- memory -----------------------------------------------------------------------------------------------------

PEAK = """
import json, sys
import polars as pl, duckdb
import uqeval as uq
from uqeval.distributed.engines import frames
path, kind, times, extra = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if kind == "polars":
    frame = pl.concat([pl.scan_parquet(path)] * times).with_columns(
        **{f"more_{k}": pl.col("loss") * k for k in range(extra)}
    )
else:
    more = "".join(f", loss * {k} AS more_{k}" for k in range(extra))
    connection = duckdb.connect(config={"memory_limit": "300MB", "threads": 1})
    connection.execute("SET enable_progress_bar = false")  # it would go to stdout
    frame = connection.sql(
        f"SELECT a.*{more} FROM read_parquet('{path}') a, range({times})"
    )
found = frames.evaluate_frame(frame, score="s", metrics=["uq_auc", "uq_c_index"], memory_limit="300MB")
# Not ru_maxrss: a child inherits the peak of the process that started it.
peak = 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"n": found.n, "peak": peak, "auc": found["s", "uq_auc"].value}))
"""


def peak(path, kind, times, extra):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    command = [sys.executable, "-W", "ignore", "-c", PEAK, str(path), kind, str(times), str(extra)]
    # One thread: each of Polars' threads has buffers of its own.
    done = subprocess.run(command, capture_output=True, env=env | {"POLARS_MAX_THREADS": "1"}, timeout=600, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_a_frame_far_too_large_for_memory_is_evaluated(kind, tmp_path):
    rng = np.random.default_rng(0)
    n, extra = 300_000, 3000
    table = pa.table({"score_s": rng.random(n), "error": rng.random(n) < 0.2, "loss": rng.random(n)})
    pq.write_table(table, tmp_path / "rows.parquet")
    found = peak(tmp_path / "rows.parquet", kind, 1, extra)
    assert n * extra * 8 > 7 * 10**9  # what collecting would take
    assert found["n"] == n
    assert found["peak"] < 10**9
    assert found["auc"] == uq.metrics.uq_auc(table["score_s"], table["error"])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_memory_does_not_grow_with_the_rows_of_a_frame(kind, tmp_path):
    rng = np.random.default_rng(0)
    n = 10**6
    table = pa.table({"score_s": rng.random(n), "error": rng.random(n) < 0.2, "loss": rng.random(n)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100_000)
    small, large = (peak(tmp_path / "rows.parquet", kind, times, 0) for times in (4, 24))
    assert large["n"] == 24 * n
    assert large["auc"] == pytest.approx(small["auc"], abs=1e-12)
    # 20 million rows more, of 17 bytes each, would be 340 MB.
    assert large["peak"] - small["peak"] < 170 * 10**6
    assert large["peak"] < 700 * 10**6
