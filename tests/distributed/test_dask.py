"""What is Dask's own: clusters of ours and of others, dataframes, and how trouble of the cluster is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from distributed_cases import (
    Everything,
    Trouble,
    Troubled,
    alive,
    as_table,
    assert_same_integers,
    cut,
    make,
    request,
    wait_for,
    write,
)

from uqeval._errors import InputError
from uqeval.distributed.engines.protocol import Input, Routed
from uqeval.distributed.evaluate import evaluate
from uqeval.distributed.plan.edges import RowsChanged

pytestmark = pytest.mark.usefixtures("no_notes")

dask = pytest.importorskip("dask", reason="needs dask")
pytest.importorskip("distributed", reason="needs distributed")

from uqeval.distributed.engines.dask import engine as dask_engine  # noqa: E402  (after the check that Dask is there)
from uqeval.distributed.engines.dask.engine import DaskEngine  # noqa: E402


def parquet(folder, n=1500, places=(500, 501)):
    rows = make(n)
    return rows, write(folder, cut(as_table(rows), list(places)))


class Route(Everything):
    def __call__(self, table):
        return Routed(table.select(["score_s"]), np.zeros(len(table), dtype=int))


def test_a_shuffle_of_too_many_tasks_is_refused_before_it_starts(client, tmp_path, monkeypatch):
    engine = DaskEngine(write(tmp_path, [as_table(make(1000))], group=1), client=client)
    engine._lot_bytes = 50
    start = Input(Route())
    monkeypatch.setattr(dask_engine, "_TASKS", 20_000)
    with monkeypatch.context() as patch:
        patch.setattr(client, "get", None)
        message = r"Stage 'score': moving these rows takes 160 × 167 tasks, .* Give workers more memory"
        with pytest.raises(InputError, match=message):
            engine.shuffle("score", [start], 2050, None)
    engine.threads, engine._lot_bytes = 10**6, 10**6
    assert engine._bundles("score", [start], 2050, 1000) == 20
    engine.close()


# ---- trouble ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_carried_rows_that_die_with_their_worker_are_made_again(client, tmp_path):
    rows, paths = parquet(tmp_path)
    killed = []

    def kill(stage):
        if stage.startswith("loss"):
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    assert_same_integers(Troubled(DaskEngine(paths, client=client), "", "", before=kill), request(bins=8), rows)
    assert len(killed) == 1


@pytest.mark.slow
def test_workers_that_die_again_and_again_end_in_an_error_that_names_the_stage(client, tmp_path):
    rows, paths = parquet(tmp_path, 400)
    engine = Troubled(DaskEngine(paths, client=client), "kill always", "", "finish score")
    with pytest.raises(InputError, match=r"Stage 'score s': workers died again and again"):
        assert_same_integers(engine, request(bins=4), rows)
    client.wait_for_workers(2, timeout=120)


def fickle(n):
    return as_table(make(n, seed=int.from_bytes(os.urandom(4), "big")))


@pytest.mark.slow
def test_partitions_that_come_out_differently_each_time_give_no_result(client):
    source = [dask.delayed(fickle)(n) for n in (500, 700)]
    with pytest.raises(RowsChanged, match="No result is given"):
        assert_same_integers(DaskEngine(source, client=client), request(bins=8), {})


def test_work_that_does_not_end_becomes_an_error(client, tmp_path):
    _, paths = parquet(tmp_path / "data", 300)
    begun = str(tmp_path / "begun")
    with closing(DaskEngine(paths, client=client)) as engine:
        engine.timeout = 0.5
        with pytest.raises(InputError, match=r"Stage 'count': no task ended in time"):
            engine.fold("count", Trouble(Everything(), "wait", begun), max)
    Path(f"{begun} go").touch()


# ---- clusters ---------------------------------------------------------------------------------------------------


def test_a_client_that_was_given_stays_open_and_its_address_is_enough(client, tmp_path):
    rows, paths = parquet(tmp_path, 600)
    assert evaluate(paths, engine="dask", client=client, metrics=["uq_auc"]).n == 600
    assert client.status == "running"
    assert_same_integers(DaskEngine(paths, client=client.scheduler.address), request(bins=4), rows)
    assert client.submit(sum, [1, 2]).result() == 3


def test_what_cannot_be_started_is_explained_soon(tmp_path):
    _, paths = parquet(tmp_path, 100)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    for options, message in (
        ({"client": 8786}, "`client` is an int. Pass a distributed.Client"),
        ({"memory_limit": "400MB"}, "`memory_limit` is 400MB, but the processes of Dask need 700MB"),
        ({"spill": "/nobody/here"}, "`spill` is '/nobody/here', where no folder can be made"),
        ({"client": "nonsense://here"}, "where no Dask scheduler answers"),
        ({"client": nobody, "timeout": 1}, "where no Dask scheduler answers"),
    ):
        with pytest.raises(InputError, match=message):
            DaskEngine(paths, **options)
    assert time.monotonic() - start < 25  # Dask itself tries for 30 seconds


SCRIPT = """
import uqeval as uq
from uqeval.distributed.engines.dask import workers

print("from the top")
def run():
    try:
        uq.evaluate({path!r}, engine="dask")
    except uq.InputError as error:
        print(error)

run()
print(workers.guarded())
if True:
    print(workers.guarded())
if __name__ == "__main__":
    print(workers.guarded())
"""


def test_a_script_without_a_guard_is_told_so_in_one_line_and_starts_no_process(tmp_path):
    _, paths = parquet(tmp_path, 100)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=paths[0]), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    top, message, *answers = done.stdout.splitlines()
    assert (done.stderr, top, answers) == ("", "from the top", ["False", "False", "True"])
    assert 'put its calls under `if __name__ == "__main__":`' in message


@pytest.mark.slow
def test_a_cluster_of_our_own_is_ended_and_leaves_no_files(tmp_path):
    rows, paths = parquet(tmp_path / "data")
    spill = tmp_path / "spill"
    spill.mkdir()
    engine = DaskEngine(paths, memory_limit="1200MB", workers=2, spill=str(spill))
    pids = engine._client.run(os.getpid).values()
    pools = set(engine._client.run(lambda: pa.default_memory_pool().backend_name).values())
    assert any(spill.iterdir())
    assert_same_integers(engine, request(bins=8), rows)
    engine.close()
    assert len(pids) == 2
    assert pools == {"system"}
    assert list(spill.iterdir()) == []
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


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


@pytest.mark.slow
def test_a_signal_to_all_processes_of_a_terminal_ends_them_quietly_and_leaves_no_files(tmp_path):
    _, paths = parquet(tmp_path / "data", 500)
    for sent, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        temp, begun = tmp_path / sent.name, tmp_path / f"{sent.name} begun"
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
        assert process.returncode == code
        assert errors.strip() in ("", "Aborted.")
        assert list(temp.iterdir()) == []
        assert alive(temp) == []


# ---- frames -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dataframes_and_lists_of_delayed_tables_are_read_where_they_are(client, tmp_path):
    frames = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
    rows, paths = parquet(tmp_path)
    frame = frames.read_parquet(paths)
    frame = frame[frame["patient"] < 30]
    some = {name: column[rows["cluster"] < 30] for name, column in rows.items()}
    assert_same_integers(DaskEngine(frame, client=client), request(bins=8), some)
    whole = as_table(rows)
    tables = [dask.delayed(whole.slice)(at, 600) for at in (0, 600, 1200)]
    mixed = [*tables[:2], dask.delayed(whole.slice(1200).to_pandas)()]
    for source in (tables, mixed):
        assert_same_integers(DaskEngine(source, client=client), request(bins=8), rows)
