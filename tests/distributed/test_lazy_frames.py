"""Lazy frames give the numbers of the same rows in memory, and are never collected."""

from __future__ import annotations

import errno
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
from distributed_cases import assert_same, make_rows, some
from hypothesis import given
from hypothesis import strategies as st

import uqeval as uq
from uqeval._errors import InputError, MissingExtra, UQWarning
from uqeval.distributed import memory, source
from uqeval.distributed.engines import frames, open
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.local.source import KeptBatches
from uqeval.distributed.plan.columns import Wanted
from uqeval.distributed.plan.run import STREAMED
from uqeval.inputs.columns import Columns
from uqeval.inputs.files import PredictionFiles
from uqeval.metrics import REGISTRY

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


def as_ibis(table, folder, backend="duckdb"):
    ibis = pytest.importorskip("ibis")
    pq.write_table(table, folder / "rows.parquet")
    return getattr(ibis, backend).connect().read_parquet(str(folder / "rows.parquet"))


def as_ibis_on_polars(table, folder):
    return as_ibis(table, folder, "polars")


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
    kind = source.kind_of(frame).split(".")[0]
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
    paired = uq.compare(table, metric="aurc")
    frame = LOCAL[kind](table, tmp_path)
    forbid(frame, monkeypatch)
    with pytest.raises(AssertionError, match="collected"):
        nw.from_native(frame).collect()
    for evaluate in (uq.evaluate, uq.distributed.evaluate):  # that for files takes a frame as well
        found = evaluate(frame, metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"])
        assert_same(memory, found)
        assert found.groups == ("a", "b", "c", "dd")  # the columns `group` and `cluster` count, as in memory
        assert found["s", "uq_auc"].n_clusters == memory["s", "uq_auc"].n_clusters
        assert (found.run.rows, found.run.engine) == (3000, "local")
    for found in (uq.compare(frame, metric="aurc"), uq.distributed.compare(frame, metric="aurc", memory_limit="300MB")):
        assert [row.group for row in found] == [None, "a", "b", "c", "dd"]
        for a, b in zip(paired, found, strict=True):
            assert (b.group, b.difference) == (a.group, pytest.approx(a.difference))
            assert b.se == pytest.approx(a.se, rel=1e-9)
        assert found.warnings == paired.warnings


@some(0.08)
@given(st.integers(0, 2**32 - 1), st.integers(2, 300), st.integers(1, 50))
def test_any_rows_in_batches_of_any_size_give_the_numbers_in_memory(seed, n, size):
    table = plain_table(n, seed).drop_columns(["group"])
    memory = uq.evaluate(table, metrics=["uq_auc", "uq_c_index", "aurc", "accuracy"])
    batches = [table.slice(at, size) for at in range(0, n, size)]
    order = np.random.default_rng(seed).permutation(len(batches))
    engine = LocalEngine(KeptBatches([batches[k] for k in order]))
    found = uq.distributed.evaluate(None, engine=engine, cluster="cluster", metrics=list(memory.metrics))
    assert_same(memory, found)


def test_scores_and_metrics_of_probabilities_are_those_in_memory(tmp_path, monkeypatch):
    table = model_table()
    metrics = [metric.name for metric in STREAMED if metric.name in uq.evaluate(table).metrics]
    memory = uq.evaluate(table, metrics=metrics)
    for kind in ("polars", "duckdb"):
        frame = LOCAL[kind](table, tmp_path)
        with monkeypatch.context() as patch:
            forbid(frame, patch)
            assert_same(memory, uq.evaluate(frame, metrics=metrics))


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
    engine = LocalEngine(KeptBatches(iter([one, two])))
    found = uq.distributed.evaluate(None, engine=engine, by="group", metrics="accuracy")
    assert {row.group: row.estimate.n for row in found} == {None: 6, "a": 3, "c": 2}


def test_columns_of_other_names_can_be_given():
    table = plain_table().drop_columns(["group", "cluster"])
    renamed = table.rename_columns(["score_s", "unc", "wrong", "nll"])
    memory = uq.evaluate(table, scores="t", metrics=["uq_auc", "uq_c_index"])
    frame = pl.from_arrow(renamed).lazy()
    found = uq.evaluate(frame, scores="unc", metrics=["uq_auc", "uq_c_index"], error="wrong", loss="nll")
    for metric in ("uq_auc", "uq_c_index"):
        assert found["unc", metric].value == memory["t", metric].value


def test_every_engine_is_in_the_list_and_gets_its_options(monkeypatch):
    assert list(open.ENGINES) == ["local", "dask", "spark"]
    for engine, kind in (("dask", "dask"), ("spark", "pyspark")):
        seen = {}

        def made(source, seen=seen, **options):
            seen.update(options, source=source)
            raise InputError("seen")

        monkeypatch.setitem(open.ENGINES, engine, open.Known(made, kind, engine))
        with pytest.raises(InputError, match="seen"):
            uq.distributed.evaluate("x.csv", engine=engine, spill="here", by="site", cluster="patient", label="truth")
        assert (seen["source"], seen["spill"], seen["texts"]) == ("x.csv", "here", ["truth", "pred", "patient", "site"])
        assert seen["memory_limit"] == 2 * 10**9
    with pytest.raises(InputError, match=r"`engine` is 'ray'\. Choose \"memory\", \"local\", \"dask\" or \"spark\""):
        uq.distributed.evaluate("x.csv", engine="ray")


def test_an_engine_without_its_extra_says_what_to_install(monkeypatch):
    def missing(source, **options):
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setitem(open.ENGINES, "spark", open.ENGINES["spark"]._replace(open=missing))
    with pytest.raises(MissingExtra, match=r'engine="spark" needs pyspark.*pip install "uqeval\[spark\]"'):
        uq.distributed.evaluate("x.csv", engine="spark")


def test_importing_needs_no_engine_and_no_dataframes():
    code = (
        "import sys, uqeval.distributed; from uqeval.distributed import *; "
        "print([name for name in ('dask', 'distributed', 'pyspark', 'polars', 'pandas', 'pyarrow') "
        "if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_memory_limit_that_means_nothing_is_refused_before_the_query_runs():
    query = pl.LazyFrame({"score": [1, 2], "error": [0, 1]}).map_batches(never)
    with pytest.raises(InputError, match="memory_limit"):
        frames.open_frame(query, memory_limit="lots")


def test_only_the_columns_that_are_needed_are_asked_for():
    names = ["score_a", "score_b", "error", "loss", "label", "prob_x", "prob_y", "note", "site"]
    auc, brier = REGISTRY["uq_auc"], REGISTRY["brier"]
    assert set(Wanted(("a",), group="site").columns(names, [auc])) == {"score_a", "error", "site"}
    everything = set(names) - {"note", "site"}
    for scores, metrics in ((None, None), (("a", "entropy"), [auc]), (("a",), [auc, brier])):
        assert set(Wanted(scores).columns(names, metrics)) == everything
    with pytest.raises(InputError, match=r"no column `sight`.*site"):
        Wanted(group="sight").columns(names)


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
    with pytest.raises(InputError, match=r"bootstrap.*Leave it out, collect the frame"):
        uq.evaluate(frame, method="bootstrap")
    with pytest.raises(InputError, match="not both"):
        uq.evaluate(frame, error=[0, 1, 0])
    with pytest.raises(InputError, match="weights"):
        uq.evaluate(frame.with_columns(weight=1.0))
    with pytest.raises(InputError, match="in memory"):
        frames.open_frame(pl.DataFrame({"score": [0.5]}))
    with pytest.raises(InputError, match="no lazy frame"):
        frames.open_frame([1, 2])


def test_a_full_disk_is_one_message(tmp_path, monkeypatch):
    def full(file, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match=r"could not be written to .*No space left on device.*spill="):
        KeptBatches(iter([plain_table()]), spill=str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_folder_for_temporary_rows_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*spill="):
        uq.evaluate(pl.LazyFrame({"score": [1, 2], "error": [0, 1]}), spill=str(tmp_path / "nowhere"))


def test_an_interrupted_query_leaves_no_file(tmp_path):
    def interrupted():
        yield plain_table(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        KeptBatches(interrupted(), spill=str(tmp_path))
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
    whole = uq.evaluate(str(path), metrics=metrics)
    assert whole.source is not None
    monkeypatch.setattr(memory, "memory_available", lambda: 400_000)
    with pytest.warns(UQWarning, match=r"read piece by piece: the rows would need about 2 MB .* 0 MB are free"):
        found = uq.evaluate(path, metrics=metrics)
    assert found.source is None
    assert_same(whole, found)
    assert "read piece by piece" in found.warnings[-1]
    assert uq.compare(path, scores=["s", "t"]).values == {n: found[n, "uq_auc"].value for n in ("s", "t")}
    with pytest.raises(InputError, match=r"bootstrap.*would need about"):
        uq.evaluate(path, method="bootstrap")
    with pytest.raises(InputError, match=r"no score .*read_predictions reads them whole"):
        uq.evaluate(path, scores="absent")


def memory_needed(paths, scores=None):
    return memory.memory_needed(PredictionFiles(paths, Columns()), scores)


def test_the_need_for_memory_grows_with_rows_columns_and_scores(tmp_path):
    small, large, wide = (str(tmp_path / f"{name}.parquet") for name in ("small", "large", "wide"))
    pq.write_table(plain_table(1000), small)
    pq.write_table(plain_table(3000), large)
    pq.write_table(model_table(1000), wide)
    needed = [memory_needed([path]) for path in (small, large, wide)]
    assert needed[1] == 3 * needed[0]
    assert needed[0] < needed[1]
    assert memory_needed([small], "s") < needed[0]
    assert memory_needed([small, large]) == needed[0] + needed[1]
    np.savez(tmp_path / "x.npz", score=[1.0])
    assert memory_needed([str(tmp_path / "x.npz")]) == 0
    assert memory.memory_available() > 10**7


def test_files_of_other_kinds_need_about_as_much_as_parquet(tmp_path):
    table = plain_table(5000).drop_columns(["group"])
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = table.to_pandas()
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    pa.feather.write_feather(table, tmp_path / "rows.feather", compression="uncompressed")
    for name in ("rows.csv", "rows.csv.gz"):
        frame.to_csv(tmp_path / name, index=False)
    exact = memory_needed([str(tmp_path / "rows.parquet")])
    for name in ("rows.csv", "rows.csv.gz", "rows.jsonl", "rows.feather"):
        assert exact / 3 < memory_needed([str(tmp_path / name)]) < exact * 3, name


# ---- clusters of workers ----------------------------------------------------------------------------------------


def test_a_dask_frame_goes_to_the_client_that_is_active(client, monkeypatch):
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    table = plain_table().drop_columns(["group"])
    frame = dd.from_pandas(table.to_pandas(), npartitions=3)
    with client.as_current():
        forbid(frame, monkeypatch)
        found = uq.evaluate(frame, metrics=["uq_auc", "uq_c_index"])
    assert found.run.engine == "dask"
    assert_same(uq.evaluate(table, metrics=["uq_auc", "uq_c_index"]), found)


@pytest.mark.slow
def test_a_spark_frame_goes_to_spark(session, monkeypatch, tmp_path):
    table = plain_table().drop_columns(["group"])
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet"))
    forbid(frame, monkeypatch)
    found = uq.evaluate(frame, metrics=["uq_auc", "uq_c_index"])
    assert found.run.engine == "spark"
    assert_same(uq.evaluate(table, metrics=["uq_auc", "uq_c_index"]), found)


def test_only_lazy_frames_have_a_kind():
    assert source.kind_of(pl.LazyFrame({"a": [1]})) == "polars.LazyFrame"
    assert source.kind_of(nw.from_native(pl.LazyFrame({"a": [1]}))) == "narwhals.LazyFrame"
    for other in (pl.DataFrame({"a": [1]}), pa.table({"a": [1]}), "rows.parquet", None):
        assert source.kind_of(other) is None


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
found = uq.evaluate(frame, scores="s", metrics=["uq_auc", "uq_c_index"], memory_limit="300MB")
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
def test_memory_is_that_of_the_needed_columns_and_does_not_grow_with_the_rows(kind, tmp_path):
    rng = np.random.default_rng(0)
    n, extra = 300_000, 3000
    table = pa.table({"score_s": rng.random(n), "error": rng.random(n) < 0.2, "loss": rng.random(n)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100_000)
    wide = peak(tmp_path / "rows.parquet", kind, 1, extra)
    assert n * extra * 8 > 7 * 10**9  # what collecting would take
    assert (wide["n"], wide["auc"]) == (n, uq.metrics.uq_auc(table["score_s"], table["error"]))
    assert wide["peak"] < 10**9
    small, large = (peak(tmp_path / "rows.parquet", kind, times, 0) for times in (7, 47))
    assert large["n"] == 47 * n
    assert large["auc"] == pytest.approx(small["auc"], abs=1e-12)
    # 12 million rows more, of 17 bytes each, would be 204 MB.
    assert large["peak"] - small["peak"] < 100 * 10**6
    assert large["peak"] < 700 * 10**6
