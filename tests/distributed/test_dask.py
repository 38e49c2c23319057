"""The Dask engine on a real cluster of two processes: the integers of the kernels, whatever happens to workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uqeval import kernels
from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Cancelled, Input, ListEngine, Routed
from uqeval.distributed.evaluate import evaluate, run_plan
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.plan.stages import RowsChanged

pytest.importorskip("dask", reason="needs dask")
distributed = pytest.importorskip("distributed", reason="needs distributed")

from uqeval.distributed.engines.dask import engine as dask_engine  # noqa: E402  (after the check that Dask is there)
from uqeval.distributed.engines.dask.engine import DaskEngine  # noqa: E402  (after the check that Dask is there)


@pytest.fixture(scope="session")
def client():
    """Two worker processes, which a nanny starts again when they die."""
    import dask

    with (
        # Several tests kill workers; one that is down 15 seconds after it died before would be given up for good.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address=":0",
            worker_dashboard_address=None,
            silence_logs=50,  # workers are killed on purpose
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


# ---- data -------------------------------------------------------------------------------------------------------


def make(n: int = 4000, seed: int = 0, values: int = 60, heavy: float = 0.0) -> dict[str, Any]:
    """Scores and losses with many ties; a share of the rows has one and the same score."""
    rng = np.random.default_rng(seed)
    s = np.round(rng.normal(size=n) * values / 6) / values
    s[rng.random(n) < heavy] = 0.5
    d = np.round(rng.exponential(size=n) * values / 3 + s) / values
    e = (rng.random(n) < 1 / (1 + np.exp(-2 * s))).astype(np.int64)
    return {"score": s, "error": e, "loss": d, "unit": rng.integers(0, 40, n)}


def write(folder: Path, rows: dict[str, Any], cuts: list[int], group: int = 300) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = []
    for k, (a, b) in enumerate(zip([0, *cuts], [*cuts, len(rows["score"])], strict=True)):
        paths.append(str(folder / f"part-{k:02}.parquet"))
        pq.write_table(pa.table({name: x[a:b] for name, x in rows.items()}), paths[-1], row_group_size=group)
    return paths


def integers(engine: Any, request: Request) -> tuple[Any, ...]:
    """What the plan counts: credits of UQ-AUC and UQ-C-index, comparable pairs, their sums of squares."""
    try:
        sums = Run(engine, request).score(0)
    finally:
        engine.close()
    assert sums.auc is not None
    return sums.n, sums.auc, sums.credit2, sums.comparable, sums.ties2, sorted(sums.sizes.items())


def in_memory(rows: dict[str, Any]) -> tuple[Any, ...]:
    s, d, e = rows["score"].astype(float), rows["loss"].astype(float), rows["error"].astype(np.uint8)
    credit2, comparable = kernels.pair_counts(s[None], d)
    sizes: dict[int, list[int]] = {}
    for size, x in zip((len(s) - comparable).tolist(), credit2[0].tolist(), strict=True):
        one = sizes.setdefault(size, [0, 0, 0])
        one[:] = one[0] + 1, one[1] + x, one[2] + x * x
    ties2 = int((np.unique(s, return_counts=True)[1] ** 2).sum())
    found = sorted(sizes.items())
    return len(s), kernels.auc_counts(s, e)[1], int(credit2.sum()), int(comparable.sum()), ties2, found


def left_on(client: Any) -> int:
    """Tasks of ours that the scheduler still knows, after some time to forget them."""
    deadline = time.monotonic() + 60
    while count := client.run_on_scheduler(
        lambda dask_scheduler: sum("uqeval" in str(k) for k in dask_scheduler.tasks)
    ):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return count


CASES = {
    "ties": (make(), Request(bins=16)),
    "one score holds 90%": (make(heavy=0.9), Request(bins=16)),
    "all scores alike": (make(n=500, heavy=1.0), Request(bins=8)),
    "no ties": (make(values=10**9), Request(bins=16)),
    "absurd edges": (make(n=1500), Request(edges=[[-9.0, 0.5, 0.5], [1e9]])),
    "no edges": (make(n=800), Request(edges=[[], []])),
}


@pytest.mark.parametrize(
    "name", [name if "90%" in name else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_integers_are_those_of_the_kernels_in_memory(client, tmp_path, name):
    rows, request = CASES[name]
    n = len(rows["score"])
    paths = write(tmp_path, rows, sorted(np.random.default_rng(1).integers(0, n, 5).tolist()))
    assert integers(DaskEngine(paths, client=client), request) == in_memory(rows)
    assert left_on(client) == 0


@pytest.mark.slow
# Dask's own threads draw random numbers while Hypothesis does, which takes them for its own.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_integers_do_not_depend_on_partitions_and_edges(client, tmp_path):
    @settings(max_examples=25)
    @given(data=st.data())
    def check(data):
        n = data.draw(st.integers(2, 400))
        rows = make(n, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([2, 8, 10**6])))
        cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
        edges = st.lists(st.sampled_from(rows["score"].tolist() + rows["loss"].tolist()), max_size=12)
        paths = write(tmp_path, rows, cuts, data.draw(st.integers(1, 100)))
        request = Request(edges=[data.draw(edges), data.draw(edges)], metrics=["uq_auc", "uq_c_index"])
        assert integers(DaskEngine(paths, client=client), request) == in_memory(rows)
        for path in paths:
            os.unlink(path)

    check()
    assert left_on(client) == 0


def assert_alike(found: Any, expected: Any) -> None:
    assert [(r.score, r.metric, r.group) for r in found.rows] == [(r.score, r.metric, r.group) for r in expected.rows]
    for one, other in zip(found.rows, expected.rows, strict=True):
        for name in ("value", "low", "high", "se"):
            assert getattr(one.estimate, name) == pytest.approx(getattr(other.estimate, name), rel=1e-10, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"cluster": "unit"}, {"group": "unit"}])
def test_all_metrics_are_those_of_the_plain_engine(client, tmp_path, more):
    rows = make(1500)
    table = pa.table(rows)
    expected = run_plan(ListEngine([table.slice(0, 700), table.slice(700)]), Request(bins=8, **more))
    found = run_plan(DaskEngine(write(tmp_path, rows, [400, 401, 1200]), client=client), Request(bins=8, **more))
    assert_alike(found, expected)
    assert found.run.engine == "dask"
    assert found.run.rows == 1500


@pytest.mark.slow
def test_a_task_holds_a_small_share_of_the_rows_and_few_rows_move(client, tmp_path):
    rows = make(20_000, heavy=0.5)
    found = run_plan(DaskEngine(write(tmp_path, rows, [5000], 2000), client=client), Request(bins=32))
    assert found.run.largest_task <= 3 * 20_000 / 32
    assert found.run.moved_rows <= 2 * 20_000 * 0.6
    assert found.run.shuffles == 2


def test_a_shuffle_of_too_many_tasks_is_refused_before_it_starts(client, tmp_path):
    engine = DaskEngine(write(tmp_path, make(1000), [], group=1), client=client)
    engine.memory = 400  # bytes
    start = Input(lambda table: Routed(table.select(["score"]), np.zeros(len(table), dtype=int)))
    message = r"Stage 'score': moving these rows takes 160 × 167 tasks, .* Give workers more memory"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_engine, "_TASKS", 20_000)
        patch.setattr(client, "get", None)
        with pytest.raises(InputError, match=message):
            engine.shuffle("score", [start], 2050, None)
    engine.threads = 10**6
    assert engine._bundles("score", [start], 2050, 1000) == 200
    engine.close()
    assert left_on(client) == 0


# ---- faults -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deadly:
    """Kills its worker: the first time only, or every time where no marker is given."""

    inner: Any
    marker: str | None

    @property
    def columns(self) -> Any:
        return getattr(self.inner, "columns", None)

    def __call__(self, *args: Any) -> Any:
        table = args[0] if isinstance(args[0], pa.Table) else args[1]
        here = multiprocessing.parent_process() is None  # the process of the tests
        if not here and len(table) and (self.marker is None or first_time(self.marker)):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(*args)


def first_time(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class DeadlyEngine(DaskEngine):
    """Kills a worker in each of the stages that `kills` names."""

    def __init__(self, *args: Any, kills: list[str], folder: Path | None, before: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kills, self.folder, self.before = kills, folder, before

    def armed(self, stage: str, function: Any) -> Any:
        if not any(stage.startswith(kill) for kill in self.kills):
            return function
        return Deadly(function, None if self.folder is None else str(self.folder / stage.replace(" ", "-")))

    def sample(self, function, rows):
        return super().sample(self.armed("sample", function), rows)

    def fold(self, stage, function, merge):
        return super().fold(stage, self.armed(stage, function), merge)

    def shuffle(self, stage, inputs, buckets, finish):
        if self.before is not None:
            self.before(stage)
        inputs = [Input(self.armed(f"route {stage}", one.route), one.rows) for one in inputs]
        return super().shuffle(stage, inputs, buckets, self.armed(f"finish {stage}", finish))


STAGES = ["sample", "count", "route score", "finish score", "route loss", "finish loss"]
CHAINED = ["route units", "finish units", "route clusters", "finish clusters"]


def test_killing_a_worker_in_the_middle_of_a_shuffle_gives_the_same_integers(client, tmp_path):
    rows = make(3000)
    paths = write(tmp_path / "data", rows, [500, 2000])
    engine = DeadlyEngine(paths, client=client, kills=["finish score"], folder=tmp_path)
    assert integers(engine, Request(bins=8)) == in_memory(rows)
    assert (tmp_path / "finish-score-score").exists()


@pytest.mark.slow
def test_killing_a_worker_in_every_stage_of_a_run_gives_the_same_integers(client, tmp_path):
    rows = make(3000)
    paths = write(tmp_path / "data", rows, [500, 2000])
    engine = DeadlyEngine(paths, client=client, kills=STAGES, folder=tmp_path)
    assert integers(engine, Request(bins=8)) == in_memory(rows)
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == len(STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killing_a_worker_in_one_stage_gives_the_same_integers(client, tmp_path, stage):
    rows = make(20_000, heavy=0.2)
    paths = write(tmp_path / "data", rows, [500, 9000], 2000)
    engine = DeadlyEngine(paths, client=client, kills=[stage], folder=tmp_path)
    assert integers(engine, Request(bins=24)) == in_memory(rows)
    assert len(list(tmp_path.iterdir())) > 1


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*CHAINED, "finish score", "finish loss"])
def test_killing_a_worker_in_a_clustered_run_gives_the_same_result(client, tmp_path, stage):
    rows = make(3000)
    paths = write(tmp_path / "data", rows, [500, 2000])
    request = Request(bins=8, cluster="unit")
    found = run_plan(DeadlyEngine(paths, client=client, kills=[stage], folder=tmp_path), request)
    assert_alike(found, run_plan(ListEngine([pa.table(rows)]), request))
    assert len(list(tmp_path.iterdir())) > 1


@pytest.mark.slow
def test_carried_rows_that_die_with_their_worker_are_made_again(client, tmp_path):
    rows = make(3000)
    killed = []

    def kill(stage: str) -> None:
        if stage.startswith("loss"):
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    engine = DeadlyEngine(write(tmp_path, rows, [1000]), client=client, kills=[], folder=tmp_path, before=kill)
    assert integers(engine, Request(bins=8)) == in_memory(rows)
    assert len(killed) == 1


@pytest.mark.slow
def test_workers_that_die_again_and_again_end_in_an_error_that_names_the_stage(client, tmp_path):
    engine = DeadlyEngine(write(tmp_path, make(500), []), client=client, kills=["finish score"], folder=None)
    with pytest.raises(InputError, match=r"Stage 'score score': workers died again and again"):
        integers(engine, Request(bins=4))
    assert left_on(client) == 0
    client.wait_for_workers(2, timeout=120)


def spoil(path: str) -> None:
    """Zeros in the pages; the footer stays whole."""
    data = bytearray(Path(path).read_bytes())
    data[4:2000] = bytes(1996)
    Path(path).write_bytes(bytes(data))


def test_a_file_with_broken_pages_is_named(client, tmp_path):
    paths = write(tmp_path, make(3000), [1000, 2000])
    spoil(paths[1])
    with pytest.raises(InputError, match=r"part-01\.parquet: cannot be read"):
        integers(DaskEngine(paths, client=client), Request(bins=8))
    assert left_on(client) == 0


def test_a_truncated_file_is_named_before_any_work(client, tmp_path):
    paths = write(tmp_path, make(3000), [1000, 2000])
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:-100])
    with pytest.raises(InputError, match=r"part-02\.parquet: cannot be read"):
        DaskEngine(paths, client=client)


def test_files_that_change_between_passes_give_no_result(client, tmp_path):
    paths = write(tmp_path, make(3000), [1000, 2000])
    other = make(3000, seed=5)

    def change(stage: str) -> None:
        write(tmp_path, other, [1000, 2000])

    engine = DeadlyEngine(paths, client=client, kills=[], folder=tmp_path, before=change)
    with pytest.raises(InputError, match="No result is given"):
        integers(engine, Request(bins=8))
    assert left_on(client) == 0


def fickle(n: int) -> pa.Table:
    return pa.table(make(n, seed=int.from_bytes(os.urandom(4), "big")))


@pytest.mark.slow
def test_partitions_that_come_out_differently_each_time_give_no_result(client):
    import dask

    with pytest.raises(RowsChanged, match="No result is given"):
        integers(DaskEngine([dask.delayed(fickle)(n) for n in (500, 700)], client=client), Request(bins=8))
    assert left_on(client) == 0


@dataclass(frozen=True)
class Stuck:
    """Says that it has begun, then waits until it may go on."""

    inner: Any
    folder: Path

    @property
    def columns(self) -> Any:
        return self.inner.columns

    def __call__(self, *args: Any) -> Any:
        (self.folder / "begun").touch()
        wait_for(self.folder / "go")
        return self.inner(*args)


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


class StuckEngine(DaskEngine):
    """Counts no row until the file "go" is there."""

    folder: Path
    patience = 600.0

    def fold(self, stage, function, merge):
        self.timeout = self.patience
        return super().fold(stage, Stuck(function, self.folder), merge)


@pytest.fixture
def stuck(client, tmp_path):
    (tmp_path / "signs").mkdir()
    engine = StuckEngine(write(tmp_path, make(300), [100, 200]), client=client)
    engine.folder = tmp_path / "signs"
    yield engine
    (engine.folder / "go").touch()


def test_work_that_does_not_end_becomes_an_error(client, stuck):
    stuck.patience = 0.3
    with pytest.raises(InputError, match=r"Stage 'count': no task ended in time"):
        integers(stuck, Request(bins=4))
    assert left_on(client) == 0


def test_cancelling_leaves_nothing_on_the_cluster(client, stuck):
    def cancel() -> None:
        wait_for(stuck.folder / "begun")
        stuck.cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(Cancelled):
        integers(stuck, Request(bins=4))
    assert (stuck.folder / "begun").exists()
    assert left_on(client) == 0


def test_an_interrupt_inside_progress_leaves_nothing_on_the_cluster(client, tmp_path):
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage.endswith("moving rows"):
            raise KeyboardInterrupt

    engine = DaskEngine(write(tmp_path, make(3000), [1000, 2000]), client=client, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        integers(engine, Request(bins=4))
    assert left_on(client) == 0


# ---- clusters and sources ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_progress_counts_up_to_all_rows(client, tmp_path):
    told: dict[str, list[tuple[int, int]]] = {}
    engine = DaskEngine(
        write(tmp_path, make(3000), [1000]),
        client=client,
        progress=lambda stage, done, total: told.setdefault(stage, []).append((done, total)),
    )
    run_plan(engine, Request(bins=8))
    assert told["count"][-1] == (3000, 3000)
    assert told["score score: moving rows"][-1] == (3000, 3000)
    assert all(seen == sorted(seen) for seen in told.values())
    assert all(done == total for done, total in (seen[-1] for seen in told.values()))


def test_a_client_that_was_given_stays_open(client, tmp_path):
    found = evaluate(write(tmp_path, make(600), []), engine="dask", client=client, metrics=["uq_auc"])
    assert found.n == 600
    assert client.status == "running"
    assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow
def test_the_address_of_a_scheduler_is_enough(client, tmp_path):
    rows = make(600)
    engine = DaskEngine(write(tmp_path, rows, []), client=client.scheduler.address)
    assert integers(engine, Request(bins=4)) == in_memory(rows)
    assert client.status == "running"


@pytest.mark.slow
def test_an_address_where_nobody_answers_is_an_error_soon(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    with pytest.raises(InputError, match=r"where no Dask scheduler answers"):
        DaskEngine(write(tmp_path, make(100), []), client=address, timeout=1)
    assert time.monotonic() - start < 25  # Dask itself tries for 30 seconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client": 8786}, "`client` is a int. Pass a distributed.Client"),
        ({"memory_limit": "400MB"}, "`memory_limit` is 400MB, but the processes of Dask need 700MB"),
        ({"spill": "/nobody/here"}, "`spill` is '/nobody/here', where no folder can be made"),
        ({"client": "nonsense://here"}, "where no Dask scheduler answers"),
    ],
)
def test_what_cannot_be_started_is_explained(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        DaskEngine(write(tmp_path, make(100), []), **options)


def test_a_cluster_of_our_own_is_ended_and_leaves_no_files(tmp_path):
    rows, spill = make(2000), tmp_path / "spill"
    spill.mkdir()
    engine = DaskEngine(write(tmp_path / "data", rows, [700]), memory_limit="1200MB", workers=2, spill=str(spill))
    pids = engine._client.run(os.getpid).values()
    pools = set(engine._client.run(lambda: pa.default_memory_pool().backend_name).values())
    assert any(spill.iterdir())
    assert integers(engine, Request(bins=8)) == in_memory(rows)
    engine.close()
    assert len(pids) == 2
    assert pools == {"system"}
    assert list(spill.iterdir()) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


ALONE = """
import sys, time
from pathlib import Path
from uqeval.cli.main import main
from uqeval.distributed.engines.dask.engine import DaskEngine

begun, plain = Path(sys.argv.pop(1)), DaskEngine.fold

def stuck(table, place):
    begun.touch()
    time.sleep(600)

def fold(self, stage, function, merge):
    stuck.columns = function.columns
    return plain(self, stage, stuck, merge)

DaskEngine.fold = fold
main()
"""


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


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_of_a_terminal_ends_them_quietly_and_leaves_no_files(tmp_path, sent, code):
    paths = write(tmp_path / "data", make(500), [200])
    temp, begun = tmp_path / "temp", tmp_path / "begun"
    temp.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, begun, "evaluate", *paths, "--engine", "dask"],
        env={**os.environ, "TMPDIR": str(temp)},
        cwd=temp,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(begun)
        assert any(temp.iterdir())
        os.killpg(process.pid, sent)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert begun.exists()
    assert process.returncode == code
    assert errors.strip() in ("", "Aborted.")
    assert list(temp.iterdir()) == []
    assert alive(temp) == []


@pytest.mark.slow
def test_a_dask_dataframe_is_read_where_it_is(client, tmp_path):
    frames = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    rows = make(1500)
    frame = frames.read_parquet(write(tmp_path, rows, [500, 501]))
    frame = frame[frame["unit"] < 30]
    expected = in_memory({name: x[rows["unit"] < 30] for name, x in rows.items()})
    assert integers(DaskEngine(frame, client=client), Request(bins=8)) == expected


@pytest.mark.slow
def test_a_list_of_delayed_tables_is_read_where_it_is(client):
    import dask

    rows = make(1500)
    whole = pa.table(rows)
    tables = [dask.delayed(whole.slice)(at, 600) for at in (0, 600, 1200)]
    frames = [*tables[:2], dask.delayed(whole.slice(1200).to_pandas)()]
    for source in (tables, frames):
        assert integers(DaskEngine(source, client=client), Request(bins=8)) == in_memory(rows)


@pytest.mark.slow
def test_files_of_text_and_empty_parts_are_read_too(client, tmp_path):
    from pyarrow import csv

    rows = make(900)
    table = pa.table(rows)
    csv.write_csv(table.slice(0, 400), tmp_path / "a.csv")
    csv.write_csv(table.slice(400), tmp_path / "b.csv")
    assert integers(DaskEngine(str(tmp_path / "*.csv"), client=client), Request(bins=8)) == in_memory(rows)
    paths = write(tmp_path, rows, [0, 300, 300, 900])
    assert integers(DaskEngine(paths, client=client), Request(bins=8)) == in_memory(rows)
