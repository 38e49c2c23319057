"""The local engine: files of every kind, bounded memory, a summary, and no file left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from distributed_cases import METRICS, Everything, assert_same, cut, request, run_plan

import uqeval
from uqeval import distributed
from uqeval._errors import InputError
from uqeval.distributed.engines.files import Files
from uqeval.distributed.engines.limits import parse_memory
from uqeval.distributed.engines.local.engine import LocalEngine
from uqeval.distributed.engines.local.moving import Spill

ROOT = Path(__file__).parents[2]


def rows(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    s = np.round(rng.random(n), 3)
    e = (rng.random(n) < 0.1 + 0.3 * s).astype(np.uint8)
    return {
        "score_s": s,
        "error": e,
        "loss": s + rng.random(n),
        "patient": [f"{k:03d}" for k in rng.integers(0, 80, n)],
    }


def in_memory(data, **more):
    return uqeval.evaluate(
        score={"s": data["score_s"]}, error=data["error"], loss=data["loss"], metrics=METRICS, **more
    )


@pytest.fixture
def folder(tmp_path):
    for k, part in enumerate(cut(pa.table(rows()), [10, 1000])):
        pq.write_table(part, tmp_path / f"part-{k}.parquet", row_group_size=300)
    return tmp_path


def write_jsonl(table, path):
    path.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


def write_stream(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


def test_every_kind_of_file_gives_the_same_numbers(tmp_path):
    data = rows(1500)
    memory = in_memory(data, clusters=data["patient"])
    for name, write in (
        ("rows.parquet", pq.write_table),
        ("rows.csv", pc.write_csv),
        ("rows.jsonl", write_jsonl),
        ("rows.arrow", write_arrow),
        ("rows.ipc", write_stream),
    ):
        write(pa.table(data), tmp_path / name)
        assert_same(memory, distributed.evaluate(tmp_path / name, cluster="patient", engine="local"))


def test_a_json_column_of_several_types_is_an_error_only_where_it_is_needed(tmp_path):
    data, path = rows(300), tmp_path / "rows.jsonl"
    records = pa.table(data).to_pylist()
    path.write_text("".join(json.dumps(row | {"more": k if k % 2 else "x"}) + "\n" for k, row in enumerate(records)))
    memory = in_memory(data, clusters=data["patient"])
    assert_same(memory, distributed.evaluate(path, cluster="patient", engine="local"))
    with pytest.raises(InputError, match="more"):
        distributed.evaluate(path, cluster="more", engine="local")


def test_labels_of_listed_columns_mean_the_same_in_every_piece(tmp_path):
    probs, how = "0.5,0.3,0.2\n", {"prob": ["p1", "p2", "p3"], "metrics": ["accuracy"]}
    for first, second in (((0, 1, 2), (1, 2)), ((1, 2, 3), (1, 2))):  # positions, then names; the second could be both
        for name, labels in (("a", first), ("b", second)):
            lines = [f"{label},{probs}" for label in labels for _ in range(label + 1)]
            (tmp_path / f"{name}.csv").write_text("label,p1,p2,p3\n" + "".join(lines))
        found = uqeval.evaluate(tmp_path / "*.csv", scores=["margin"], **how)
        assert distributed.evaluate(tmp_path / "*.csv", engine="local", **how)["accuracy"].value == found.accuracy
    assert found.accuracy == 4 / 14


def test_how_csv_is_written_is_refused_before_an_engine_misreads_it(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("score_s;error\n0,5;1\n0,25;0\n")
    with pytest.raises(InputError, match=r'an engine reads plain CSV only .engine="memory" reads the rest'):
        distributed.evaluate(path, sep=";", decimal=",", engine="local")


def test_whole_numbers_in_csv_may_have_fractions_further_down(tmp_path):
    lines = ["score_s,error,loss"] + [f"{k},{k % 2},{k}" for k in range(400_000)] + ["0.5,1,0.25"]
    path = tmp_path / "late.csv"
    path.write_text("\n".join(lines))
    assert distributed.evaluate(path, metrics=["uq_auc"], engine="local")["s", "uq_auc"].n == 400_001


def test_many_unequal_files_count_as_one(folder):
    found = distributed.evaluate(str(folder / "*.parquet"), engine="local")
    assert_same(in_memory(rows()), found)
    assert found.run.parts == 3
    assert found.source is None


def test_several_scores_share_a_plan(tmp_path):
    data = rows(900)
    data["score_t"] = data["score_s"] + np.random.default_rng(1).random(900)
    pq.write_table(pa.table(data), tmp_path / "a.parquet")
    found = distributed.evaluate(
        tmp_path / "a.parquet", scores=["score_t", "s"], metrics=["uq_auc", "uq_c_index"], engine="local"
    )
    memory = uqeval.evaluate(
        score={"t": data["score_t"], "s": data["score_s"]},
        error=data["error"],
        loss=data["loss"],
        metrics=["uq_auc", "uq_c_index"],
    )
    assert_same(memory, found)


def test_the_summary_tells_rows_passes_bytes_and_seconds(folder):
    found = distributed.evaluate(str(folder / "*.parquet"), engine="local")
    run = found.to_dict()["run"]
    assert (run["engine"], run["rows"], run["parts"], run["shuffles"]) == ("local", 3000, 3, 2)
    assert run["moved_bytes"] > 0 < run["seconds"]["total"]
    assert "3,000 rows in 3 parts" in str(found.run)
    assert json.loads(found.to_json())["run"]["rows"] == 3000


def test_the_number_of_threads_does_not_change_a_bit(folder):
    results = [
        run_plan(LocalEngine(str(folder / "*.parquet"), workers=workers), request(bins=6)).rows for workers in (1, 3)
    ]
    assert results[0] == results[1]


def test_a_chart_of_rows_that_never_were_in_one_place_is_refused_clearly(folder, tmp_path):
    found = distributed.evaluate(str(folder / "*.parquet"), engine="local")
    with pytest.raises(InputError, match="never were in one place"):
        uqeval.plot.roc(found)
    uqeval.report(found, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_memory_limits_are_read_or_refused():
    for given, size in (
        *(("2GB", 2 * 10**9), ("512MiB", 512 * 2**20), (10**9, 10**9), ("0.5 gb", 5 * 10**8)),
        *(("2GiB", 2**31), ("1TiB", 2**40), ("1 tib", 2**40), ("1TB", 10**12)),
        *(("2G", 2 * 10**9), ("512m", 512 * 10**6)),
    ):
        assert parse_memory(given) == size
    for nonsense in ("2 apples", "1MB", "", True, -5):
        with pytest.raises(InputError, match="memory_limit"):
            parse_memory(nonsense)


def test_less_memory_or_more_threads_mean_smaller_tasks(folder):
    small, large = (LocalEngine(str(folder / "*.parquet"), memory_limit=size) for size in ("256MB", "4GB"))
    assert small.task_rows < large.task_rows
    assert small.grid_bytes < large.grid_bytes
    many = LocalEngine(str(folder / "*.parquet"), memory_limit="4GB", workers=8)
    assert many.bucket_rows == large.bucket_rows == 8 * many.task_rows


def test_a_sample_of_text_files_is_even_small_and_passes_over_files_without_rows(tmp_path):
    for k in range(8):  # a few of them would not do
        (tmp_path / f"{k}.csv").write_text("score_s,error\n")
    pc.write_csv(pa.table({"score_s": np.arange(30_000.0), "error": np.arange(30_000) % 2}), tmp_path / "long.csv")
    engine = LocalEngine(str(tmp_path / "*.csv"))
    for wanted, most in ((100, 200), (2000, 30_000)):
        sample = engine.sample(Everything(), wanted).column("score_s").to_numpy()
        assert wanted <= len(sample) <= most
        assert sample.max() > 29_000


def test_spilled_rows_come_back_by_bucket(monkeypatch):
    for lacking in ((), ("pwrite", "preadv")):  # Windows has neither
        for name in lacking:
            monkeypatch.delattr(os, name)
        rng = np.random.default_rng(0)
        with closing(Spill(None, 5)) as spill:
            appended = []
            for _ in range(3):
                x, bucket = rng.random(100), rng.integers(0, 5, 100)
                spill.append(pa.table({"x": x, "b": bucket.astype(np.uint16)}), bucket)
                appended.append((x, bucket))
            for b in range(5):
                rows = spill.bucket(b)
                expected = np.concatenate([x[bucket == b] for x, bucket in appended])
                assert np.array_equal(rows.column("x").to_numpy(), expected)
                assert (rows.column("b").to_numpy() == b).all()
            assert (spill.rows, spill.sizes.sum()) == (300, 300)
            with pytest.raises(InputError, match="different types"):
                spill.append(pa.table({"x": np.arange(3), "b": np.zeros(3, dtype=np.uint16)}), np.zeros(3))


def test_files_must_share_their_columns(tmp_path):
    pq.write_table(pa.table({"score_s": [1.0], "error": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"score_s": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: lacks error, unlike .*a\.parquet"):
        distributed.evaluate(str(tmp_path / "*.parquet"), engine="local")
    np.savez(tmp_path / "c.npz", error=np.ones(3))
    with pytest.raises(InputError, match="read whole"):
        Files(tmp_path / "c.npz")


# ---- time and memory --------------------------------------------------------------------------------------------

MEASURE = """
import sys, time
import numpy as np
import pyarrow as pa, pyarrow.parquet as pq
start = time.process_time()
if sys.argv[1] == "local":
    from uqeval import distributed
    found = distributed.evaluate(sys.argv[2], scores="s", metrics=["uq_auc", "uq_c_index", "aurc"], engine="local")
else:
    import glob, uqeval
    t = pa.concat_tables([pq.read_table(f) for f in sorted(glob.glob(sys.argv[2]))])
    s, e, d = (t.column(name).to_numpy() for name in ("score_s", "error", "loss"))
    start = time.process_time()
    found = uqeval.evaluate(score={"s": s}, error=e, loss=d, metrics=["uq_auc", "uq_c_index", "aurc"])
spent = time.process_time() - start
values = [found["s", m].value for m in ("uq_auc", "uq_c_index")]
# Not ru_maxrss: a child inherits the peak of the process that started it.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(spent, peak / 1e6, *values)
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_ten_million_rows_take_little_memory_and_at_most_six_times_the_time_in_memory(tmp_path):
    sys.path.insert(0, str(ROOT))
    from benchmarks.make_rows import make_rows

    make_rows(tmp_path, 10**7)
    script = tmp_path / "measure.py"
    script.write_text(textwrap.dedent(MEASURE))
    found = {}
    for route in ("local", "memory"):
        command = [sys.executable, str(script), route, str(tmp_path / "*.parquet")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[route] = [float(x) for x in done.stdout.split()]
    assert found["local"][2:] == found["memory"][2:]
    assert found["local"][1] < 1.0  # GB; 0.36 when measured
    assert found["local"][0] < 6 * found["memory"][0]  # processor seconds, which other programs do not stretch


@pytest.mark.parametrize("end", ["kill", pytest.param("terminate", marks=pytest.mark.slow)])
def test_a_killed_run_leaves_no_temporary_file(folder, tmp_path, end):
    spill = tmp_path / "spill"
    spill.mkdir()
    script = f"""
import sys, time
from uqeval import distributed
def slow(stage, done, total):
    if stage.startswith("score"):
        print("here", flush=True)
        time.sleep(60)
distributed.evaluate({str(folder / "*.parquet")!r}, spill={str(spill)!r}, progress=slow, engine="local")
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "here"
    getattr(process, end)()
    process.wait(timeout=20)
    process.stdout.close()
    assert os.listdir(spill) == []


def test_a_name_that_a_column_and_a_score_share_means_the_score_on_an_engine_as_in_memory(folder):
    rng = np.random.default_rng(0)
    probs = rng.random(300)
    table = {"label": rng.integers(0, 2, 300), "prob_0": probs, "prob_1": 1 - probs, "score_mine": rng.random(300)}
    table |= {"mine": rng.random(300), "entropy": rng.random(300)}  # not what is asked for
    pq.write_table(pa.table(table), folder / "f.parquet")
    for name in ("mine", "entropy"):
        found = [
            uqeval.evaluate(folder / "f.parquet", scores=name, metrics="uq_auc", engine=engine)[name, "uq_auc"].value
            for engine in ("memory", "local")
        ]
        assert found[0] == found[1]
    pq.write_table(pa.table({"error": table["label"], "entropy": table["entropy"]}), folder / "own.parquet")
    alone = uqeval.evaluate(folder / "own.parquet", scores="entropy", metrics="uq_auc", engine="local")
    assert alone["entropy", "uq_auc"].value == uqeval.metrics.uq_auc(table["entropy"], table["label"])
