"""The Spark engine on a real session: the integers of the kernels, whatever happens to tasks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed_cases import METRICS, as_table, assert_same, cases, cut, make_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uqeval
from uqeval import distributed, kernels
from uqeval._errors import InputError, UQWarning
from uqeval.distributed.engines.protocol import Cancelled, Input, ListEngine, Routed
from uqeval.distributed.evaluate import run_plan
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.plan.stages import RowsChanged

pytest.importorskip("pyspark", reason="needs pyspark")

from uqeval.distributed.engines.spark.engine import SparkEngine, _failure
from uqeval.distributed.engines.spark.session import OwnSession, running_session
from uqeval.distributed.engines.spark.tasks import _from_blobs, _to_blobs

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Spark needs Java 17, which is not here"
)
# Spark leaves closing some of its sockets to the interpreter.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(scope="module")
def session():
    """Two tasks at a time, four attempts each, 1 GB for Java."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    own = OwnSession("local[2,4]", 2 * 10**9, None)
    yield own.session
    own.stop()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(autouse=True)
def no_notes():
    """What limits an estimate is compared, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        yield


# ---- data -------------------------------------------------------------------------------------------------------


def write(folder: Path, tables: list[Any], group: int = 300) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"part-{k:02}.parquet") for k in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, row_group_size=group)
    return paths


def make(n: int = 4000, seed: int = 0, heavy: float = 0.0) -> dict[str, Any]:
    """Scores and losses with many ties; a share of the rows has one and the same score."""
    rng = np.random.default_rng(seed)
    s = np.where(rng.random(n) < heavy, 0.5, np.round(rng.normal(size=n) * 10) / 60)
    return {
        "s": s,
        "error": (rng.random(n) < 0.3 + 0.2 * np.sign(s)).astype(np.uint8),
        "loss": np.round(rng.exponential(size=n) * 20 + 5 * s) / 7,
        "cluster": rng.integers(0, 40, n),
        "group": rng.choice(["a", "b"], n),
    }


def files(folder: Path, rows: dict[str, Any], seed: int = 1) -> list[str]:
    n = len(rows["s"])
    return write(folder, cut(as_table(rows), np.random.default_rng(seed).integers(0, n, 5).tolist()))


def assert_same_integers(engine: Any, request: Request, rows: dict[str, Any]) -> None:
    try:
        sums = Run(engine, request).score(0)
    finally:
        engine.close()
    credit2, comparable = kernels.pair_counts(rows["s"][None], rows["loss"])
    assert (sums.credit2, sums.comparable) == (int(credit2.sum()), int(comparable.sum()))
    assert sum(two for _, _, two in sums.sizes.values()) == sum(int(x) ** 2 for x in credit2[0])
    assert sums.auc == kernels.auc_counts(rows["s"], rows["error"])[1]


def left_in(session: Any) -> int:
    """Dataframes that Spark still keeps."""
    return session.sparkContext._jsc.getPersistentRDDs().size()


# ---- the same numbers -------------------------------------------------------------------------------------------


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "request_"),
    [
        (make(), Request(bins=16)),
        (make(heavy=0.9), Request(bins=16)),
        (make(500, heavy=1.0), Request(bins=8)),
        (make_rows(3, 3000), Request(bins=16)),
        (make(1500), Request(edges=[[-9.0, 0.5, 0.5], [1e9]])),
        (make(800), Request(edges=[[], []])),
    ],
    ids=["ties", "one score holds 90%", "all scores alike", "two scores", "absurd edges", "no edges"],
)
def test_integers_are_those_of_the_kernels_on_ties_and_any_edges(session, tmp_path, rows, request_):
    assert_same_integers(SparkEngine(files(tmp_path, rows), client=session), request_, rows)
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_integers_do_not_depend_on_partitions_and_edges(session, case):
    rows, tables, edges = case
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), tables, 23)
        assert_same_integers(SparkEngine(paths, client=session), Request(edges=edges), rows)


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"cluster": "patient"}, {"group": "site"}])
def test_values_and_intervals_equal_those_in_memory(session, tmp_path, more):
    rows = make(2000)
    names = {"cluster": "clusters", "group": "groups"}
    memory = uqeval.evaluate(
        score={"s": rows["s"]},
        error=rows["error"],
        loss=rows["loss"],
        metrics=METRICS,
        **{names[name]: rows[name] for name in more},
    )
    found = run_plan(SparkEngine(files(tmp_path, rows), client=session), Request(bins=8, **more))
    assert_same(memory, found)
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
def test_a_dataframe_is_evaluated_without_its_rows_coming_to_the_driver(session, tmp_path, monkeypatch):
    rows = make(3000)
    paths = files(tmp_path, rows)
    frame = session.read.parquet(*paths).repartition(3)
    expected = run_plan(ListEngine([as_table(rows)]), Request(bins=8))
    for name in ("toPandas", "toArrow", "toLocalIterator", "head"):
        monkeypatch.setattr(type(frame), name, None)
    found = distributed.evaluate(frame, engine="spark")
    assert [row.metric for row in found] == [row.metric for row in expected]
    for one, other in zip(found, expected, strict=True):
        for name in ("value", "low", "high", "se"):
            assert getattr(one.estimate, name) == pytest.approx(getattr(other.estimate, name), rel=1e-10)
    assert (found.run.rows, found.run.engine, found.run.parts) == (3000, "spark", 1)
    assert found.run.moved_rows <= 2 * 3000
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
def test_scores_are_made_from_probabilities_and_paths_may_have_a_scheme(session, tmp_path):
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), 900)
    table = pa.table({"label": rng.integers(0, 3, 900)} | {f"prob_{k}": p[:, k] for k in range(3)})
    paths = write(tmp_path, cut(table, [0, 5, 400]))
    expected = distributed.evaluate(paths)
    found = distributed.evaluate([f"file://{path}" for path in paths], engine="spark", client=session)
    assert_same(expected, found)


@needs_java
@pytest.mark.slow
def test_many_parts_are_merged_in_a_tree_and_a_task_holds_few_rows(session, tmp_path):
    rows = make(20_000, heavy=0.5)
    paths = write(tmp_path, cut(as_table(rows), list(range(400, 20_000, 400))), 100)
    frame = session.read.parquet(*paths).repartition(70)
    for source in (paths, frame):
        found = run_plan(SparkEngine(source, client=session), Request(bins=32, metrics=["uq_auc", "uq_c_index"]))
        assert found["s", "uq_auc"].value == pytest.approx(uqeval.metrics.uq_auc(rows["s"], rows["error"]), abs=1e-12)
        assert found.run.largest_task <= 3 * 20_000 / 32
        assert found.run.moved_rows <= 2 * 20_000 * 0.6
        assert (found.run.passes, found.run.shuffles) == (3, 2)


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
    kind, data, of = _to_blobs(pa.table(columns), bucket)
    found = pa.table({"bucket": of, "what": [kind] * len(data), "data": data})
    for code in range(buckets):
        inside = found.filter(pa.compute.equal(found["bucket"], code))
        assert len(inside) == bool((bucket == code).any())
        if len(inside):
            rows = _from_blobs(inside.slice(0))
            for name, column in columns.items():
                assert rows[name].to_numpy().dtype == column.dtype
                assert np.array_equal(rows[name].to_numpy(), column[bucket == code])


# ---- faults -----------------------------------------------------------------------------------------------------


def first_time(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Trouble:
    """Kills its worker or raises, once; or loses or doubles a row, or writes down each call, every time."""

    inner: Any
    kind: str
    marker: str

    @property
    def columns(self) -> Any:
        return getattr(self.inner, "columns", None)

    def __call__(self, *args: Any) -> Any:
        table = next(x for x in args if isinstance(x, pa.Table))
        if len(table) and self.kind in ("kill", "raise") and first_time(self.marker):
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a task fails\nonce")
        found = self.inner(*args)
        if self.kind == "lose":
            return Routed(found.table.slice(1), found.bucket[1:])
        if self.kind == "double":
            twice = pa.concat_tables([found.table, found.table.slice(0, 1)])
            return Routed(twice, np.concatenate([found.bucket, found.bucket[:1]]))
        if self.kind == "note":
            with open(self.marker, "a") as file:
                file.write(f"{args[0]}\n")
        return found


class Troubled(SparkEngine):
    """Trouble in one place: sample, fold, or the route or finish of a shuffle."""

    def into(self, where: str, kind: str, marker: Path) -> Troubled:
        self.where, self.kind, self.marker = where, kind, str(marker)
        self.shuffles = 0
        return self

    def _maybe(self, where: str, function: Any) -> Any:
        return Trouble(function, self.kind, self.marker) if where == self.where else function

    def sample(self, function, rows):
        return super().sample(self._maybe("sample", function), rows)

    def fold(self, stage, function, merge):
        return super().fold(stage, self._maybe("fold", function), merge)

    def shuffle(self, stage, inputs, buckets, finish):
        self.shuffles += 1
        changed = [Input(self._maybe(f"route {self.shuffles}", given.route), given.rows) for given in inputs]
        return super().shuffle(stage, changed, buckets, self._maybe(f"finish {self.shuffles}", finish))


PLACES = ["sample", "fold", "route 1", "finish 1", "route 2", "finish 2"]


@needs_java
@pytest.mark.parametrize(
    ("where", "kind"),
    [
        pytest.param(where, kind, marks=[] if (where, kind) == ("finish 2", "kill") else [pytest.mark.slow])
        for where in PLACES
        for kind in ("kill", "raise")
    ],
)
def test_a_task_that_fails_once_changes_no_integer(session, tmp_path, where, kind):
    rows = make(1500, heavy=0.9)  # ties, and one score that holds 90%
    engine = Troubled(files(tmp_path, rows), client=session).into(where, kind, tmp_path / "marker")
    assert_same_integers(engine, Request(bins=8), rows)
    assert (tmp_path / "marker").exists()
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lose", "double"])
@pytest.mark.parametrize("where", ["route 1", "route 2"])
def test_a_lost_or_doubled_row_is_an_error(session, tmp_path, where, kind):
    rows = make(1500)
    engine = Troubled(files(tmp_path, rows), client=session).into(where, kind, tmp_path / "marker")
    with pytest.raises(RowsChanged, match=r"rows, but|lost"):
        run_plan(engine, Request(bins=8))
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
def test_a_bucket_is_finished_once_although_a_later_shuffle_needs_its_rows(session, tmp_path):
    rows = make(3000)
    engine = Troubled(files(tmp_path, rows), client=session).into("finish 1", "note", tmp_path / "calls")
    run_plan(engine, Request(bins=16, cluster="patient"))
    calls = (tmp_path / "calls").read_text().split()
    assert len(calls) == len(set(calls)) > 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x\n: org.apache.spark.SparkException: Job aborted: java.io.IOException: No space left on device\n\tat x",
            "Free",
        ),
        (
            "Traceback (most recent call last):\n  File\nModuleNotFoundError: No module named 'uqeval'\n",
            "Install uqeval",
        ),
        ("something else", 'in stage "count": something else. No result is given.'),
    ],
)
def test_errors_of_spark_become_a_sentence_that_says_what_to_do(text, said):
    error = _failure("count", RuntimeError(text))
    assert isinstance(error, InputError)
    assert said in str(error)
    assert "\n" not in str(error)


@needs_java
def test_an_unreadable_file_and_bad_rows_are_named(session, tmp_path):
    rows = make(1000)
    paths = files(tmp_path, rows)
    whole = Path(paths[2]).read_bytes()
    Path(paths[2]).write_bytes(whole[:4] + b"\xff" * (len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(InputError, match=r"part-02\.parquet"):
        run_plan(SparkEngine(paths, client=session), Request(bins=8))
    pq.write_table(pa.table({"score_s": [0.1, np.nan, 0.3], "error": [0, 1, 0]}), paths[2])
    with pytest.raises(InputError, match=r"score_s. holds NaN or nothing in 1 row, first in .*part-02\.parquet, row 1"):
        run_plan(SparkEngine(paths[2], client=session), Request(metrics=["uq_auc"]))
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
def test_a_dataframe_that_changes_between_passes_is_an_error(session):
    from pyspark.sql import functions as F  # noqa: N812

    frame = session.range(5000).select(
        F.expr("pmod(hash(reflect('java.lang.System', 'nanoTime')), 1000) / 7").alias("score_s"),
        (F.col("id") % 3 == 0).alias("error"),
    )
    with pytest.raises(RowsChanged, match="The data changed while it was read"):
        run_plan(SparkEngine(frame), Request(bins=16))
    assert left_in(session) == 0


@needs_java
@pytest.mark.slow
def test_progress_is_told_and_cancelling_leaves_nothing(session, tmp_path):
    paths = files(tmp_path, make(3000))
    told: list[tuple[str, int, int]] = []
    run_plan(SparkEngine(paths, client=session, progress=lambda *x: told.append(x)), Request(bins=8))
    assert {stage for stage, _, _ in told} == {"count", "score s", "loss, s"}
    assert all(0 <= done <= total == 3000 for _, done, total in told)
    assert {stage for stage, done, _ in told if done == 3000} == {"count", "score s", "loss, s"}

    def cancel(stage: str, done: int, total: int) -> None:
        if stage == "score s":
            threading.Thread(target=engine.cancel).start()

    engine = SparkEngine(paths, client=session, progress=cancel)
    with pytest.raises(Cancelled):
        run_plan(engine, Request(bins=8))
    assert left_in(session) == 0
    assert session.sparkContext.statusTracker().getActiveJobsIds() == []
    assert session.range(3).count() == 3


# ---- sessions ---------------------------------------------------------------------------------------------------


def test_no_java_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InputError, match="needs Java 17"):
        OwnSession(None, 10**9, str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="needs Java 17"):
        OwnSession(None, 10**9, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_client_of_another_kind_is_refused():
    with pytest.raises(InputError, match="`client` is a int"):
        running_session(3)


@needs_java
@pytest.mark.slow
def test_the_session_of_the_user_is_found_and_stays(session, tmp_path):
    paths = files(tmp_path, make(50))
    engine = SparkEngine(paths)
    assert engine.session is session
    assert len(engine.sample(lambda table: table, 20)) >= 20
    engine.close()
    engine.close()
    assert session.range(3).count() == 3
    with pytest.raises(InputError, match=r"runs in this process"):
        SparkEngine(paths, client="local[2]")


def run_alone(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python in a folder of its own, which is also its folder for temporary files."""
    for name in ("work", "temp"):
        (folder / name).mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "temp"), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
    )


def alive(folder: Path) -> list[str]:
    """Processes whose folder for temporary files is this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}".encode() in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
        except OSError:  # gone, or not ours
            continue
    return found


@needs_java
@pytest.mark.slow
def test_a_session_of_our_own_is_quiet_and_leaves_nothing_behind(tmp_path):
    rows = make(1000)
    (tmp_path / "data").mkdir()
    paths = files(tmp_path / "data", rows)
    code = f"""
    import signal
    from uqeval import distributed
    found = distributed.evaluate({paths}, engine="spark", metrics=["uq_auc"])
    print(found["s", "uq_auc"].value)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    from pyspark import SparkContext
    assert SparkContext._gateway is None and SparkContext._active_spark_context is None
    """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == pytest.approx(uqeval.metrics.uq_auc(rows["s"], rows["error"]), abs=1e-12)
    assert list((tmp_path / "work").iterdir()) == list((tmp_path / "temp").iterdir()) == []
    assert alive(tmp_path / "temp") == []


@needs_java
@pytest.mark.slow
def test_with_one_attempt_a_dead_worker_ends_in_a_clear_error_and_ctrl_c_in_none_at_all(tmp_path):
    (tmp_path / "data").mkdir()
    paths = files(tmp_path / "data", make(1000))
    code = f"""
    import os, signal, threading, time
    from uqeval.distributed.evaluate import run_plan
    from uqeval.distributed.plan.run import Request
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
            threading.Timer(3, os.killpg, (os.getpid(), signal.SIGINT)).start()
            return super().fold(stage, stuck, merge)

    for kind, error in ((Killed, ValueError), (Stuck, KeyboardInterrupt)):
        try:
            run_plan(kind({paths}, client="local[2]"), Request(bins=8))
        except error as found:
            print(type(found).__name__, found)
    """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith('InputError Spark gave up in stage "score s": Python worker exited unexpectedly (crashed).')
    assert "No result is given. A Python worker died" in first
    assert second.strip() == "KeyboardInterrupt"
    assert list((tmp_path / "work").iterdir()) == list((tmp_path / "temp").iterdir()) == []
    assert alive(tmp_path / "temp") == []
