"""`uqeval doctor`: what is installed, and which kernels are in use."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, version

from rich.table import Table
from rich.text import Text

import uqeval
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, stdout, write_json

_OPTIONAL = ("pyarrow", "narwhals", "pandas", "polars", "duckdb", "ibis-framework", "scikit-learn", "torch")
# Engines for rows that do not fit in memory, and the package behind each.
_ENGINES = {"local": None, "dask": "distributed", "spark": "pyspark"}


def doctor(json: o.Json = None) -> None:
    """Versions, kernels, optional packages and engines.

    Example:  uqeval doctor
    """
    from uqeval._result import to_json, versions  # NumPy, which --help need not wait for

    check_outputs({"--json": json})
    facts = versions() | {"cores": str(os.cpu_count())}
    for name in _OPTIONAL:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    facts |= {f"engine {name}": _engine(name, package) for name, package in _ENGINES.items()}
    if json is not None:
        write_json(to_json(facts), json)
    if json == "-":
        return
    table = Table(box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(Text(name), Text(value))  # "[dask]" is no markup
    out = stdout()
    out.print(table)
    if uqeval.kernels.backend() == "numpy":
        out.print(
            "The NumPy kernels are right but slower: reinstall with a C++ compiler for the native ones.", style="yellow"
        )


def _engine(name: str, package: str | None) -> str:
    """Whether an engine can run here."""
    if package is None:
        return "ready"
    try:
        found = f"ready ({package} {version(package)})"
    except PackageNotFoundError:
        return f'not installed: pip install "uqeval[{name}]"'
    if name == "spark" and not _java():
        return f"not ready: no Java ({package} {version(package)})"
    return found


def _java() -> bool:
    """Whether Spark would find a Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java" if home is None else os.path.join(home, "bin", "java")) is not None
