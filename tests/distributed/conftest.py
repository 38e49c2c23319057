"""Two worker processes of Dask and a Spark session, for all tests of this folder; and every engine by name."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import distributed_cases
import pyarrow.parquet as pq
import pytest
from list_engine import ListEngine

from uqeval._errors import UQWarning
from uqeval.distributed.engines.local.engine import LocalEngine


@pytest.fixture
def no_notes():
    """What limits an estimate is compared, not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQWarning)
        yield


@pytest.fixture(scope="session")
def client():
    """Two worker processes, which a nanny starts again when they die."""
    dask = pytest.importorskip("dask", reason="needs dask")
    distributed = pytest.importorskip("distributed", reason="needs distributed")
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


@pytest.fixture(scope="session")
def session():
    """Two tasks at a time, four attempts each, 1 GB for Java."""
    pytest.importorskip("pyspark", reason="needs pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, which is not here")
    from pyspark import cloudpickle

    from uqeval.distributed.engines.spark.workers import start_session

    cloudpickle.register_pickle_by_value(distributed_cases)  # workers cannot import it
    with ExitStack() as own:
        yield start_session(own, "local[2,4]", 2 * 10**9, None)
    cloudpickle.unregister_pickle_by_value(distributed_cases)


@dataclass(frozen=True)
class Opener:
    """Opens an engine on Parquet files; `left` counts what it left behind."""

    name: str
    open: Callable[..., Any]
    left: Callable[[], int]

    def __call__(self, paths, **options):
        return self.open(paths, **options)


def _listed(paths, **options):
    return ListEngine([pq.read_table(path) for path in paths], piece=170, **options)


def _tasks(client):
    """Tasks of ours that the scheduler still knows, after some time to forget them."""
    deadline = time.monotonic() + 60
    while count := client.run_on_scheduler(
        lambda dask_scheduler: sum("uqeval" in str(key) for key in dask_scheduler.tasks)
    ):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return count


def _opener(request, name):
    if name == "dask":
        client = request.getfixturevalue("client")
        from uqeval.distributed.engines.dask.engine import DaskEngine

        return Opener(name, partial(DaskEngine, client=client), partial(_tasks, client))
    if name == "spark":
        session = request.getfixturevalue("session")
        from uqeval.distributed.engines.spark.engine import SparkEngine

        kept = session.sparkContext._jsc.getPersistentRDDs
        return Opener(name, partial(SparkEngine, client=session), lambda: kept().size())
    if name == "local":
        spill = request.getfixturevalue("tmp_path_factory").mktemp("spill")
        return Opener(name, partial(LocalEngine, spill=str(spill)), lambda: len(os.listdir(spill)))
    return Opener(name, _listed, int)


DASK, SPARK = (pytest.param(name, marks=pytest.mark.slow) for name in ("dask", "spark"))


@pytest.fixture(params=["list", "local", "dask", SPARK])
def every_engine(request):
    return _opener(request, request.param)


@pytest.fixture(params=["list", "local", DASK, SPARK])
def every_engine_at_length(request):
    """For claims that take a cluster long."""
    return _opener(request, request.param)


@pytest.fixture(params=["local", "dask", SPARK])
def file_engine(request):
    """Those that read files themselves."""
    return _opener(request, request.param)


@pytest.fixture(params=["local", DASK, SPARK])
def file_engine_at_length(request):
    return _opener(request, request.param)


@pytest.fixture(params=["dask", SPARK])
def cluster_engine(request):
    """Those whose workers are processes, which may die."""
    return _opener(request, request.param)
