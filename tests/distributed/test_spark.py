"""What is Spark's own: sessions of ours and of others, dataframes, rows as blobs, and how trouble is told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from distributed_cases import (
    PLACES,
    Everything,
    Troubled,
    alive,
    as_table,
    assert_same,
    assert_same_integers,
    cut,
    make,
    request,
    run_plan,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from list_engine import ListEngine

import uqeval
from uqeval import distributed
from uqeval._errors import InputError
from uqeval.distributed.plan.edges import RowsChanged

pytest.importorskip("pyspark", reason="needs pyspark")

from uqeval.distributed.engines.spark.engine import SparkEngine
from uqeval.distributed.engines.spark.moving import from_blobs, to_blobs
from uqeval.distributed.engines.spark.workers import failure, running_session, start_session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("no_notes"),
    # Spark leaves closing some of its sockets to the interpreter.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def parquet(folder, n=1000):
    rows = make(n)
    return rows, write(folder, cut(as_table(rows), [n // 7, n // 2, n // 2]))


@settings(max_examples=50)
@given(st.integers(1, 500), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_rows_come_out_of_blobs_as_they_went_in(n, buckets, seed):
    rng = np.random.default_rng(seed)
    columns = {
        "s": rng.normal(size=n),
        "e": rng.integers(0, 2, n).astype(np.uint8),
        "cd": rng.integers(0, 9, n).astype(np.uint16),
        "f": rng.random(n).astype(np.float32),
        "x": rng.integers(-(2**60), 2**60, n),
    }
    bucket = rng.integers(0, buckets, n)
    records = pa.table(to_blobs(pa.table(columns), bucket))
    for code in range(buckets):
        inside = records.filter(pa.compute.equal(records["bucket"], code))
        assert len(inside) == bool((bucket == code).any())
        if len(inside):
            rows = from_blobs(inside.slice(0))
            for name, column in columns.items():
                assert rows[name].to_numpy().dtype == column.dtype
                assert np.array_equal(rows[name].to_numpy(), column[bucket == code])


# ---- frames -----------------------------------------------------------------------------------------------------


def test_a_dataframe_is_evaluated_without_its_rows_coming_to_the_driver(session, tmp_path, monkeypatch):
    rows, paths = parquet(tmp_path, 3000)
    frame = session.read.parquet(*paths).repartition(9)  # more than are merged at a time
    expected = run_plan(ListEngine([as_table(rows)]), request(bins=8))
    for name in ("toPandas", "toArrow", "toLocalIterator", "head"):
        monkeypatch.setattr(type(frame), name, None)
    found = distributed.evaluate(frame, engine="spark")
    assert_same(expected, found)
    assert (found.run.rows, found.run.engine, found.run.parts) == (3000, "spark", 1)
    assert found.run.moved_rows <= 2 * 3000
    assert session.sparkContext._jsc.getPersistentRDDs().size() == 0


def test_scores_are_made_from_probabilities_and_paths_may_have_a_scheme(session, tmp_path):
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), 900)
    table = pa.table({"label": rng.integers(0, 3, 900)} | {f"prob_{k}": p[:, k] for k in range(3)})
    paths = write(tmp_path, cut(table, [0, 5, 400]))
    asked = {"scores": "entropy", "metrics": ["uq_auc", "accuracy", "brier"]}
    found = distributed.evaluate([f"file://{path}" for path in paths], engine="spark", client=session, **asked)
    assert_same(distributed.evaluate(paths, **asked), found)


def test_a_dataframe_that_changes_between_passes_is_an_error(session):
    from pyspark.sql import functions as F  # noqa: N812

    frame = session.range(5000).select(
        F.expr("pmod(hash(reflect('java.lang.System', 'nanoTime')), 1000) / 7").alias("score_s"),
        (F.col("id") % 3 == 0).alias("error"),
    )
    with pytest.raises(RowsChanged, match="The data changed while it was read"):
        run_plan(SparkEngine(frame), request(bins=16))
    assert session.sparkContext._jsc.getPersistentRDDs().size() == 0


# ---- trouble ----------------------------------------------------------------------------------------------------


def test_tasks_that_raise_once_in_every_stage_change_no_integer(session, tmp_path):
    rows, paths = parquet(tmp_path / "data")
    engine = Troubled(SparkEngine(paths, client=session), "raise", tmp_path / "once", *PLACES)
    assert_same_integers(engine, request(bins=8), rows)
    assert len(list(tmp_path.glob("once-*"))) == len(PLACES)


def test_errors_of_spark_become_a_sentence_that_says_what_to_do():
    gone = "x\n: org.apache.spark.SparkException: Job aborted: java.io.IOException: No space left on device\n\tat x"
    lacking = "Traceback (most recent call last):\n  File\nModuleNotFoundError: No module named 'uqeval'\n"
    other = 'in stage "count": something else. No result is given.'
    for text, said in ((gone, "Free"), (lacking, "Install uqeval"), ("something else", other)):
        error = failure("count", RuntimeError(text))
        assert isinstance(error, InputError)
        assert said in str(error)
        assert "\n" not in str(error)


# ---- sessions ---------------------------------------------------------------------------------------------------


def test_no_java_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for home in (None, str(tmp_path / "nothing")):
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("JAVA_HOME", home)
        with ExitStack() as own, pytest.raises(InputError, match="needs Java 17"):
            start_session(own, None, 10**9, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_answers_and_is_no_master_is_said_in_seconds(tmp_path):
    _, paths = parquet(tmp_path / "data")
    code = f"""
    import socket, threading, time
    from uqeval import InputError, distributed
    server = socket.create_server(("127.0.0.1", 0))
    def answer():
        while True:
            with server.accept()[0] as found:
                found.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
    threading.Thread(target=answer, daemon=True).start()
    start = time.monotonic()
    address = "spark://127.0.0.1:%d" % server.getsockname()[1]
    try:
        distributed.evaluate({paths}, engine="spark", client=address)
    except InputError as error:
        print(error)
    assert time.monotonic() - start < 45  # Spark itself tries for a minute
    """
    said = run_alone(code, tmp_path)
    assert "where no Spark master answers" in said
    assert len(said.splitlines()) == 1


def test_a_client_of_another_kind_is_refused():
    with pytest.raises(InputError, match="`client` is an int"):
        running_session(3)


def test_the_session_of_the_user_is_found_and_stays(session, tmp_path):
    _, paths = parquet(tmp_path, 50)
    engine = SparkEngine(paths)
    assert engine.session is session
    assert len(engine.sample(Everything(), 20)) >= 20
    engine.close()
    engine.close()
    assert session.range(3).count() == 3
    for _ in range(600):  # the tracker hears of the end of a job after the job's caller does
        if not (running := session.sparkContext.statusTracker().getActiveJobsIds()):
            break
        time.sleep(0.1)
    assert running == []
    with pytest.raises(InputError, match=r"runs in this process"):
        SparkEngine(paths, client="local[2]")


def run_alone(code, folder):
    """Python in a folder of its own, which is also its folder for temporary files; nothing may be left there."""
    for name in ("work", "temp"):
        (folder / name).mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "temp"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list((folder / "work").iterdir()) == list((folder / "temp").iterdir()) == []
    assert alive(folder / "temp") == []
    return done.stdout


def test_a_session_of_our_own_is_quiet_and_leaves_nothing_behind(tmp_path):
    rows, paths = parquet(tmp_path / "data")
    code = f"""
    import signal
    from uqeval import distributed
    found = distributed.evaluate({paths}, engine="spark", metrics=["uq_auc"])
    print(found["s", "uq_auc"].value)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    from pyspark import SparkContext
    assert SparkContext._gateway is None and SparkContext._active_spark_context is None
    """
    value = float(run_alone(code, tmp_path))
    assert value == pytest.approx(uqeval.metrics.uq_auc(rows["s"], rows["error"]), abs=1e-12)


def test_with_one_attempt_a_dead_worker_ends_in_a_clear_error_and_ctrl_c_in_none_at_all(tmp_path):
    _, paths = parquet(tmp_path / "data")
    code = f"""
    import os, signal, sys, threading, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from distributed_cases import request, run_plan
    from uqeval.distributed.engines.spark.engine import SparkEngine

    class Killed(SparkEngine):
        def shuffle(self, stage, inputs, buckets, finish):
            def dead(bucket, table):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().shuffle(stage, inputs, buckets, dead)

    class Stuck(SparkEngine):
        def fold(self, stage, function, merge):
            def stuck(table, place):
                time.sleep(600)
            stuck.columns = function.columns
            threading.Timer(3, os.killpg, (os.getpid(), signal.SIGINT)).start()
            return super().fold(stage, stuck, merge)

    for kind, error in ((Killed, ValueError), (Stuck, KeyboardInterrupt)):
        try:
            run_plan(kind({paths}, client="local[2]"), request(bins=8))
        except error as found:
            print(type(found).__name__, found)
    """
    first, second = run_alone(code, tmp_path).splitlines()
    assert first.startswith('InputError Spark gave up in stage "score s": Python worker exited unexpectedly (crashed).')
    assert "No result is given. A Python worker died" in first
    assert second.strip() == "KeyboardInterrupt"
