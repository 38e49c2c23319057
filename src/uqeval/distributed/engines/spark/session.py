"""A Spark session of our own: quiet, small, and gone without a trace when it is no longer needed.

A session that the user has is never changed and never stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from uqeval import kernels
from uqeval._errors import InputError, MissingExtra

__all__ = ["OwnSession", "running_session"]

_MIB = 1 << 20


def running_session(client: Any) -> Any | None:
    """The session to use: the one that is given, else the one that runs; None where there is none."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtra('engine="spark"', "pyspark", "spark") from None
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
            f"`client` is a {type(client).__name__}. Pass a SparkSession or the address of a master, or leave it out."
        )
    return client


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if (home and not Path(home, "bin", "java").exists()) or (not home and shutil.which("java") is None):
        raise InputError(
            'engine="spark" needs Java 17 or later, and there is none here. Install it or set JAVA_HOME; '
            'engine="local" and engine="dask" work without Java.'
        )


class OwnSession:
    """Starts a session; `stop` ends it with its Java process and its files. `light`: Java reads no rows itself."""

    def __init__(self, master: str | None, memory: int, spill: str | None, light: bool = True) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        _check_java()
        # The second number is the attempts of a task; "local[2]" alone gives up at the first failure.
        self.master = master or f"local[{kernels.cores()},4]"
        self.folder = Path(tempfile.mkdtemp(prefix="uqeval-spark-", dir=spill))
        self._gateway: Any = None
        self.session: Any = None
        self._handler = signal.getsignal(signal.SIGINT) if _in_main_thread() else None
        conf = SparkConf(loadDefaults=False)
        for name, value in self._settings(memory, light).items():
            conf.set(name, value)
        python = os.environ.get("PYSPARK_PYTHON")
        try:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            if SparkContext._gateway is None:
                with open(self.folder / "spark.log", "wb") as log:
                    self._gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            self.session = SparkSession(SparkContext(conf=conf, gateway=self._gateway))
        except BaseException as error:
            reason = self._log_tail() or str(error).strip().splitlines()[0]
            self.stop()
            if isinstance(error, Exception):
                raise InputError(f"Spark did not start on {self.master}: {reason}") from error
            raise
        finally:
            if python is None:
                os.environ.pop("PYSPARK_PYTHON", None)
        if self._gateway is None:  # the Java process of an earlier session, which writes to the terminal
            self.session.sparkContext.setLogLevel("OFF")

    def _settings(self, memory: int, light: bool) -> dict[str, str]:
        folder = self.folder
        java = f'"-Djava.io.tmpdir={folder}" -XX:-UsePerfData'
        if light:  # Java only moves bytes: compiling it well costs more than it gains (14 instead of 25 CPU-seconds)
            java += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        settings = {
            "spark.master": self.master,
            "spark.app.name": "uqeval",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": f"{max(512, memory // 2 // _MIB)}m",
            "spark.driver.maxResultSize": "0",
            "spark.driver.extraJavaOptions": java,
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
        }
        if light:  # no plan is large enough to be worth compiling or planning twice (12 instead of 16 CPU-seconds)
            settings |= {
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            }
        if self.master.startswith("local"):
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return settings

    def _log_tail(self) -> str:
        """What the Java process said last that looks like a reason."""
        with suppress(OSError):
            lines = (self.folder / "spark.log").read_text(errors="replace").splitlines()
            said = [line.strip() for line in lines if "Exception" in line or "rror" in line]
            return said[-1][:500] if said else ""
        return ""

    def stop(self) -> None:
        """Ends the session, its Java process where we started it, and removes the folder."""
        from pyspark import SparkContext

        session, self.session = self.session, None
        gateway, self._gateway = self._gateway, None
        try:
            if session is not None:
                session.stop()
        finally:
            if gateway is not None:
                _end(gateway)
                if SparkContext._gateway is gateway:
                    SparkContext._gateway = SparkContext._jvm = None
            if self._handler is not None and _in_main_thread():
                signal.signal(signal.SIGINT, self._handler)  # Spark puts its own in place
                self._handler = None
            shutil.rmtree(self.folder, ignore_errors=True)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end(gateway: Any) -> None:
    with suppress(Exception):
        gateway.shutdown()
    process = gateway.proc
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()  # the Java process ends with its input
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
