"""What comes in: files that change, that have many row groups, odd columns; the same errors and names as in memory."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from distributed_cases import Everything, assert_same, request
from list_engine import ListEngine

import uqeval
from uqeval import distributed
from uqeval._errors import InputError, UQWarning
from uqeval.distributed.engines import files as files_module
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.plan.all_scores import cluster_sizes
from uqeval.distributed.plan.run import Run
from uqeval.inputs import Predictions


def make(n=400, seed=0, **more):
    rng = np.random.default_rng(seed)
    s = rng.random(n)
    return pa.table({"score_s": s, "error": (rng.random(n) < 0.3 * s + 0.1).astype(np.uint8), **more})


def written(table, path, **options):
    pq.write_table(table, path, **options)
    return str(path)


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        return function(*args, **options)


# ---- files ------------------------------------------------------------------------------------------------------


def test_other_values_in_a_file_of_the_same_size_are_an_error(tmp_path):
    for stage in ("count", "score s"):
        assert_a_change_is_noticed_in(stage, tmp_path)


def assert_a_change_is_noticed_in(stage, tmp_path):
    def write(seed):
        table = make(10_000).set_column(0, "score_s", pa.array(np.random.default_rng(seed).random(10_000)))
        return written(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)

    done = []

    def progress(name, *_):
        if name == stage and not done:
            done.append(name)
            write(9)

    path = write(1)
    second = pa.table({"score_t": make(10_000).column("score_s")}).column(0)
    pq.write_table(pq.read_table(path).append_column("score_t", second), path, compression="none", use_dictionary=False)
    with pytest.raises(InputError, match=r"a\.parquet: changed while it was read"):
        distributed.evaluate(path, metrics=["uq_auc"], progress=progress, engine="local")


def test_a_file_put_in_place_of_another_is_noticed_inside_a_chunk(tmp_path):
    path = written(make(5000), tmp_path / "a.parquet")
    files = Files(path)
    pieces = files.read(files.chunks[0], ["score_s"], 1000)
    assert len(next(pieces)[1]) == 1000
    written(make(5000, seed=1), tmp_path / "b.parquet")
    (tmp_path / "b.parquet").replace(path)
    with pytest.raises(InputError, match="changed while it was read"):
        list(pieces)


def test_the_footer_is_read_once_however_many_row_groups_there_are(tmp_path, monkeypatch):
    path = written(make(400), tmp_path / "a.parquet", row_group_size=4)
    given = []
    real = pq.ParquetFile

    def counted(name, **options):
        given.append(options.get("metadata"))
        return real(name, **options)

    files_module._footer.cache_clear()
    monkeypatch.setattr(pq, "ParquetFile", counted)
    files = Files(path)
    assert sum(len(piece) for chunk in files.chunks for _, piece in files.read(chunk, ["error"], 1000)) == 400
    assert len(given) == 100
    assert all(footer is not None for footer in given)
    assert files_module._footer.cache_info().misses == 1


def write_arrow(table, path, batch, stream=False):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        for piece in table.to_batches(max_chunksize=batch):
            writer.write_batch(piece)
    return str(path)


def test_arrow_files_are_cut_by_their_batches_and_small_ones_are_joined(tmp_path, monkeypatch):
    table = make(1000, text=[f"t{k}" for k in range(1000)])
    monkeypatch.setattr(files_module, "_TOGETHER", 150)
    files = Files(write_arrow(table, tmp_path / "a.arrow", 100))
    assert [(chunk.group, chunk.stop, chunk.row, chunk.rows) for chunk in files.chunks] == [
        (2 * k, 2 * k + 2, 200 * k, 200) for k in range(5)
    ]
    back = [piece for chunk in files.chunks for _, piece in files.read(chunk, ["text", "error"], 70)]
    assert pa.concat_tables(back).equals(table.select(["text", "error"]))
    stream = Files(write_arrow(table, tmp_path / "b.arrow", 100, stream=True))
    assert stream.rows is None
    assert pa.concat_tables([piece for _, piece in stream.read(stream.chunks[0], None, 300)]).equals(table)


def test_a_bounds_run_samples_a_part_of_an_arrow_file_and_says_what_it_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_TOGETHER", 100)
    path = write_arrow(make(20_000), tmp_path / "a.arrow", 100)
    found = distributed.approx_scores(path, approx=0.01)
    assert found.passes == 1
    assert 0 < found.sampled_rows < 10_000
    assert found.to_dict()["run"]["sampled_rows"] == found.sampled_rows


def test_the_first_look_at_a_text_file_does_not_read_it_whole(tmp_path):
    path = tmp_path / "a.csv"
    pc.write_csv(make(200_000), path)
    engine = LocalEngine(str(path), workers=1)
    assert len(engine.sample(Everything(), 1000)) >= 1000
    assert engine.sampled_rows < 200_000
    found = distributed.evaluate(str(path), metrics=["uq_auc"], engine="local")
    assert 200_000 < found.run.sampled_rows < 400_000
    assert "rows sampled" in str(found.run)


def test_a_column_that_is_not_needed_may_be_in_some_files_only(tmp_path):
    written(make(100, note=["x"] * 100), tmp_path / "a.parquet")
    written(make(100, seed=1, other=[1] * 100), tmp_path / "b.parquet")
    found = distributed.evaluate(str(tmp_path / "*.parquet"), metrics=["uq_auc"], engine="local")
    assert_same(uqeval.evaluate(str(tmp_path / "*.parquet"), metrics=["uq_auc"]), found)


def test_a_score_that_is_in_some_files_only_is_an_error_as_in_memory(tmp_path):
    written(make(100), tmp_path / "a.parquet")
    written(make(100, seed=1, score_t=range(100)), tmp_path / "b.parquet")
    for evaluate in (uqeval.evaluate, distributed.evaluate):
        with pytest.raises(InputError, match="score_t"):
            evaluate(str(tmp_path / "*.parquet"))


def test_a_score_is_asked_for_by_its_name_or_its_column_wherever_the_rows_are(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"score_s": rng.random(50), "score_t": rng.random(50), "error": np.arange(50) % 2})
    pq.write_table(table, tmp_path / "rows.parquet")
    path = str(tmp_path / "rows.parquet")
    ways = [(path, {"engine": "memory"}), (path, {"engine": "local"}), (path, {}), (table, {})]
    for source, where in ways:
        for asked in ("t", "score_t"):
            found = uqeval.evaluate(source, scores=asked, metrics=["uq_auc"], **where)
            assert [row.score for row in found.rows] == ["t"], (where, asked)
        assert uqeval.compare(source, scores=["score_t", "s"], **where).values.keys() == {"t", "s"}, where


def test_a_text_file_without_rows_has_no_types(tmp_path):
    (tmp_path / "a.csv").write_text("score_s,error\n")
    pc.write_csv(make(100), tmp_path / "b.csv")
    assert distributed.evaluate(str(tmp_path / "*.csv"), metrics=["uq_auc"], engine="local").n == 100


# ---- columns ----------------------------------------------------------------------------------------------------


def test_a_boolean_score_is_ranked(tmp_path):
    table = make().set_column(0, "score_s", pa.array(np.arange(400) % 3 == 0))
    path = written(table, tmp_path / "a.parquet")
    assert_same(
        uqeval.evaluate(path, metrics=["uq_auc"]), distributed.evaluate(path, metrics=["uq_auc"], engine="local")
    )


def test_integers_that_float64_cannot_tell_apart_are_refused(tmp_path):
    for value in (-(2**63), 2**63 - 1):
        table = make().set_column(0, "score_s", pa.array([value, *range(399)], pa.int64()))
        with pytest.raises(InputError, match="above 2⁵³"):
            distributed.evaluate(written(table, tmp_path / "a.parquet"), engine="local")


def test_missing_groups_and_clusters_are_counted_and_the_first_is_named(tmp_path):
    for values in (
        pa.array(["", *"abc"] * 100),
        pa.array([None, *"abc"] * 100),
        pa.array([float("nan"), 1.0, 2.0, 3.0] * 100),
        pa.array([None, 1, 2, 3] * 100),
        pa.array([None, *"abc"] * 100).dictionary_encode(),
    ):
        good = values.drop_null().take(pa.array([1] * 100))
        written(make(100, key=good), tmp_path / "a.parquet")
        written(make(400, key=values), tmp_path / "b.parquet", row_group_size=90)
        for role in ("by", "cluster"):
            with pytest.raises(
                InputError, match=r"`key` has missing values in 100 rows, first in .*b.parquet, row 0\."
            ):
                distributed.evaluate(str(tmp_path / "*.parquet"), **{role: "key"}, engine="local")


def test_a_bad_probability_is_placed_in_its_file(tmp_path):
    rng = np.random.default_rng(0)
    for value in (float("nan"), 1.5):
        for k in range(2):
            p = rng.random(3000)
            p[1234] = value if k else 0.4
            table = pa.table({"label": (rng.random(3000) < p).astype(np.int64), "prob_1": p})
            written(table, tmp_path / f"{k}.parquet", row_group_size=500)
        for run, options in ((distributed.approx_scores, {"approx": 0.01}), (distributed.evaluate, {})):
            with pytest.raises(InputError, match=r"1\.parquet: .*row 1234\b"):
                run(str(tmp_path / "*.parquet"), **options)


MOMENTS = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2, 3)]


def test_groups_have_the_names_and_the_order_that_they_have_in_memory(tmp_path):
    for values in (
        pa.array(MOMENTS, pa.timestamp("ns")),
        pa.array(MOMENTS, pa.timestamp("us")),
        pa.array([0.1, 2.0], pa.float32()),
        pa.array([3.0, 1e20]),
        pa.array([b"a", b"b"]),
        pa.array([True, False]),
        pa.array(["a", "b\0"]),
        pa.array([10, 9]),
    ):
        table = make(400, group=values.take(pa.array(np.arange(400) % 2)))
        found = quiet(distributed.evaluate, written(table, tmp_path / "a.parquet"), metrics=["uq_auc"], by="group")
        assert_same(quiet(uqeval.evaluate, Predictions.from_frame(table), metrics=["uq_auc"]), found)


def test_lists_are_no_groups_and_no_clusters(tmp_path):
    path = written(make(400, key=[[1], [2]] * 200), tmp_path / "a.parquet")
    for role in ("by", "cluster"):
        with pytest.raises(InputError, match="`key` holds list"):
            distributed.evaluate(path, **{role: "key"}, engine="local")


def test_duplicated_columns_are_named(tmp_path):
    table = make().append_column("error", pa.array([0] * 400))
    with pytest.raises(InputError, match=r"a\.parquet: duplicated columns: 'error'"):
        distributed.evaluate(written(table, tmp_path / "a.parquet"), engine="local")


def test_a_seed_is_a_whole_number(tmp_path):
    path = written(make(), tmp_path / "a.parquet")
    for seed in ("x", -1, 1.5):
        for run in (distributed.evaluate, distributed.compare):
            with pytest.raises(InputError, match="`seed`"):
                run(path, seed=seed)


def test_no_source_is_an_error():
    with pytest.raises(InputError, match=r"engine='local' is for files and lazy frames"):
        distributed.evaluate(None, engine="local")


def test_a_loss_alone_gives_a_note_on_what_is_left_out(tmp_path):
    table = make(400, loss=np.random.default_rng(1).random(400)).drop(["error"])
    with pytest.warns(UQWarning, match="AURC and its relatives are left out"):
        found = distributed.evaluate(written(table, tmp_path / "a.parquet"), engine="local")
    assert [row.metric for row in found] == ["uq_c_index"]


# ---- clusters ---------------------------------------------------------------------------------------------------


def test_groups_are_tested_against_each_other_where_clusters_lie_inside_them(tmp_path):
    index = np.arange(600)
    cluster = index % 60
    for nested in (True, False):
        group = np.array(["a", "b", "c"])[cluster % 3 if nested else index // 200]
        table = make(600, cluster=cluster, group=group)
        path = written(table, tmp_path / "a.parquet")
        asked = {"metrics": ["uq_auc", "accuracy"]}
        found = quiet(distributed.evaluate, path, by="group", cluster="cluster", **asked)
        memory = quiet(uqeval.evaluate, Predictions.from_frame(table), **asked)
        assert len(found.heterogeneity) == (2 if nested else 0)
        assert [mixed.p for mixed in found.heterogeneity] == pytest.approx([mixed.p for mixed in memory.heterogeneity])
        spanning = [note for note in found.warnings if "clusters span several groups" in note]
        assert len(spanning) == (not nested)


def clustered(tmp_path):
    n = 9000
    cluster = np.where(np.arange(n) < 3500, 0, np.arange(n) // 10)  # one large, many small
    table = make(n, cluster=cluster, loss=np.random.default_rng(2).random(n))
    return table, written(table, tmp_path / "a.parquet", row_group_size=2000)


def test_a_cluster_larger_than_a_share_of_the_memory_gets_all_of_it(tmp_path):
    table, path = clustered(tmp_path)
    engine = LocalEngine(path, workers=8)
    engine.task_rows, engine.bucket_rows = 1000, 4000
    metrics = ["uq_auc", "uq_c_index", "aurc", "augrc", "accuracy"]
    found = quiet(distributed.evaluate, None, engine=engine, cluster="cluster", metrics=metrics)
    assert_same(quiet(uqeval.evaluate, Predictions.from_frame(table), metrics=metrics), found)


def test_a_cluster_larger_than_the_memory_is_an_error_that_says_how_much_is_needed(tmp_path):
    _, path = clustered(tmp_path)
    engine = LocalEngine(path)
    engine.bucket_rows = 2500
    with pytest.raises(InputError, match=r"hold 3,5\d+ rows, but a task holds 2,500. Raise memory_limit to 1\.5 times"):
        distributed.evaluate(None, engine=engine, cluster="cluster", metrics=["uq_auc"])


def test_there_are_as_many_buckets_of_clusters_as_the_rows_need():
    n = 40_000
    for task_rows, buckets in ((10**6, 1024), (30, 2048), (12, 4096)):
        engine = ListEngine([make(n, cluster=np.arange(n))], task_rows=task_rows)
        run = Run(engine, request(metrics=["uq_auc"], cluster="cluster", bins=1, edges=[[0.5]]))
        assert len(cluster_sizes(run)) == buckets
        assert cluster_sizes(run).sum() == n


def test_rows_of_a_list_of_tables_need_no_file():
    engine = ListEngine([make(200), make(200, seed=1)])
    assert distributed.evaluate(None, engine=engine, metrics=["uq_auc"]).n == 400
