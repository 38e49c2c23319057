"""The session behind the workers of Spark, and its errors in plain words.

One of our own is quiet, small, and gone without a trace when it is no longer needed; one that the user has is never
changed and never stopped.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from uqeval import kernels
from uqeval._errors import InputError, a_type, reason_of
from uqeval.distributed.engines.limits import temporary_folder
from uqeval.distributed.engines.protocol import Cancelled

_MIB = 1 << 20
_PATIENCE = 5.0  # seconds for a master to answer
_HINTS = {
    "No module named": "Install uqeval for the Python of every worker.",
    "exited unexpectedly": "A Python worker died, maybe for want of memory: give it more, or lower memory_limit.",
    "OutOfMemory": "Give Spark more memory (spark.driver.memory, spark.executor.memory).",
    "No space left": "Free some space, or name a folder on a larger disk (spill=, or spark.local.dir of a session).",
}


def reason(error: BaseException) -> str:
    """The line of a Spark error that says what happened."""
    text = str(error).split("\n\nDriver stacktrace")[0]
    if "Traceback (most recent call last)" in text:
        said = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)]
        if said:
            return said[-1].strip()[:500]
    lines = [line.strip() for line in text.splitlines() if "Exception: " in line] or text.strip().splitlines() or [""]
    return lines[0].split("Exception: ")[-1].split(". Consider setting")[0].split(" SQLSTATE")[0].strip()[:500]


def failure(stage: str, error: BaseException) -> BaseException:
    """What to raise where a job failed."""
    if re.search(r"\bcancelled\b", str(error)[:2000]):
        return Cancelled()
    hint = next((f" {said}" for sign, said in _HINTS.items() if sign in str(error)), "")
    return InputError(f'Spark gave up in stage "{stage}": {reason(error).rstrip(".")}. No result is given.{hint}')


def running_session(client: Any) -> Any | None:
    """The session to use: the one that is given, else the one that runs; None where there is none."""
    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        active = SparkSession.builder.getOrCreate()
    if isinstance(client, str):
        if active is not None:
            raise InputError(
                f"`client` is {client!r}, but a Spark session on {active.sparkContext.master} runs in this process. "
                f"Pass that session as client=, or stop it first."
            )
        return None
    if client is None:
        return active
    if type(client).__module__.startswith("pyspark.sql.connect"):
        raise InputError("`client` is a Spark Connect session, which cannot be asked for jobs. Pass a SparkSession.")
    if not isinstance(client, SparkSession):
        raise InputError(
            f"`client` is {a_type(client)}. Pass a SparkSession or the address of a master, or leave it out."
        )
    return client


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and not Path(home, "bin", "java").exists()) or (not home and shutil.which("java") is None):
        raise InputError(
            'engine="spark" needs Java 17 or later, and there is none here. Install it or set JAVA_HOME; '
            'engine="local" and engine="dask" work without Java.'
        )


def _check_master(master: str) -> None:
    """Spark itself asks an address where nobody answers for a minute, and then says that it is stopped."""
    kind, _, places = master.partition("://")
    if kind != "spark":
        return
    problem: Exception | None = None
    for place in places.split(","):  # one that stands by is enough
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
            return
        except (OSError, ValueError, OverflowError) as error:
            problem = error
    said = problem.strerror if isinstance(problem, OSError) and problem.strerror else "no host:port or no answer"
    raise _no_master(master, said)


def _no_master(master: str, said: str) -> InputError:
    return InputError(
        f"`client` is {master!r}, where no Spark master answers ({said}). Start one, or pass its address, as "
        f'"spark://host:7077".'
    )


@contextmanager
def _not_for_ever(master: str, gateway: Any, log: Path) -> Iterator[None]:
    """Ends Java, which would go on for a minute, where what answers is no master."""
    kind, _, places = master.partition("://")
    if kind != "spark" or gateway is None:
        yield
        return
    ready, why = threading.Event(), []

    def watch() -> None:
        until = time.monotonic() + 6 * _PATIENCE
        while not ready.wait(0.2):
            text = log.read_text(errors="replace")
            refused = all(f"Failed to connect to master {place}" in text for place in places.split(","))
            if refused or time.monotonic() > until:
                why.append("what answers there is no Spark master" if refused else "no word from it")
                gateway.proc.kill()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        if why:
            raise _no_master(master, why[0]) from None
        raise
    finally:
        ready.set()
        watcher.join()


def start_session(own: ExitStack, master: str | None, memory: int, spill: str | None, light: bool = True) -> Any:
    """A session of our own; `own` ends it with its Java process and its files. `light`: Java reads no rows itself."""
    if master is not None:
        _check_master(master)
    _check_java()
    # The second number is the attempts of a task; "local[2]" alone gives up at the first failure.
    master = master or f"local[{kernels.cores()},4]"
    folder = temporary_folder(own, "uqeval-spark-", spill)
    own.enter_context(_same_handler())
    conf = SparkConf(loadDefaults=False).setAll(list(_settings(master, memory, folder, light).items()))
    python = os.environ.get("PYSPARK_PYTHON")
    gateway: Any = None
    try:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if SparkContext._gateway is None:
            with open(folder / "spark.log", "wb") as log:
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            own.callback(_end, gateway)
        with _not_for_ever(master, gateway, folder / "spark.log"):
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        own.callback(session.stop)
    except InputError:
        own.close()
        raise
    except BaseException as error:
        said = _last_error(folder / "spark.log") or reason_of(error)
        own.close()
        if isinstance(error, Exception):
            raise InputError(f"Spark did not start on {master}: {said}") from error
        raise
    finally:
        if python is None:
            os.environ.pop("PYSPARK_PYTHON", None)
    if gateway is None:  # the Java process of an earlier session, which writes to the terminal
        session.sparkContext.setLogLevel("OFF")
    return session


def _settings(master: str, memory: int, folder: Path, light: bool) -> dict[str, str]:
    java = f'"-Djava.io.tmpdir={folder}" -XX:-UsePerfData'
    settings = {
        "spark.master": master,
        "spark.app.name": "uqeval",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{max(512, memory // 2 // _MIB)}m",
        "spark.driver.maxResultSize": "0",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
    }
    if light:  # Java only moves bytes
        java += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # compiling it well costs 25 instead of 14 CPU-seconds
        settings |= {  # and no plan is large enough to be worth compiling or planning twice (16 instead of 12)
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings | {"spark.driver.extraJavaOptions": java}


def _last_error(log: Path) -> str:
    """What the Java process said last that looks like a reason."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.strip()[:500] for line in reversed(lines) if "Exception" in line or "rror" in line), "")


@contextmanager
def _same_handler() -> Iterator[None]:
    """The handler of Ctrl-C, where Spark puts its own in place."""
    former = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, former)


def _end(gateway: Any) -> None:
    """Ends the Java process, and makes pyspark forget it."""
    with suppress(Exception):
        gateway.shutdown()
    with suppress(OSError):
        gateway.proc.stdin.close()  # the Java process ends with its input
    try:
        gateway.proc.wait(timeout=15)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = SparkContext._jvm = None
