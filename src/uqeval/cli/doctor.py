"""`uqeval doctor`: what is installed, which kernels are in use, and what each extra still needs."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rich.table import Table
from rich.text import Text

import uqeval
from uqeval._files import cache_folder
from uqeval.cli import options as o
from uqeval.cli.output import check_outputs, stdout, write_json

_OPTIONAL = ("pyarrow", "narwhals", "pandas", "polars", "duckdb", "ibis-framework", "scikit-learn", "torch", "triton")
# Engines for rows that do not fit in memory, and the package behind each.
_ENGINES = {"local": None, "dask": "distributed", "spark": "pyspark"}
_EXTRAS = ("torch", "sklearn", "reproduce", "vision", "text", "dask", "spark", "remote", "mlflow", "lightning")
# In a process of its own: torch takes seconds to load, and a broken one takes down whoever loads it.
_ASK_TORCH = """
import torch
names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
print("; ".join(names) or ("Apple MPS" if torch.backends.mps.is_available() else ""))
"""


def doctor(json: o.Json = None) -> None:
    """Versions, kernels, GPU, optional packages, extras, engines and the cache.

    Example:  uqeval doctor
    """
    from uqeval._result import to_json, versions  # NumPy, which --help need not wait for

    check_outputs({"--json": json})
    sections = {
        "": versions() | {"system": platform.platform()},
        "machine": {"cores": str(os.cpu_count()), "threads": str(uqeval.kernels.threads()), "GPU": _gpu()},
        "packages": {name: _version(name) or "not installed" for name in _OPTIONAL},
        "extras": {f"extra {name}": _extra(name) for name in _EXTRAS},
        "engines": {f"engine {name}": _engine(name, package) for name, package in _ENGINES.items()},
        "files": {"cache": _cache(), "installed in": str(Path(uqeval.__file__).parent)},
    }
    if json is not None:
        write_json(to_json({name: fact for facts in sections.values() for name, fact in facts.items()}), json)
    if json == "-":
        return
    out = stdout()
    table = Table(box=None, show_header=False)
    for title, facts in sections.items():
        if title:
            table.add_row()
        for name, fact in facts.items():
            style = "yellow" if fact.startswith(("not ", "needs ")) and title in ("extras", "engines") else ""
            table.add_row(Text(name), Text(fact, style=style))  # "[dask]" is no markup
    out.print(table)
    if uqeval.kernels.backend() == "numpy":
        out.print(f"\nThe NumPy kernels are right but slower{_native_kernels()}.", style="yellow", soft_wrap=True)


def _native_kernels() -> str:
    """How to get them."""
    if os.environ.get("UQEVAL_KERNELS") == "numpy":
        return ": UQEVAL_KERNELS=numpy asks for them"
    return "; for the native ones install uqeval again where there is a C++ compiler"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extra(name: str) -> str:
    """Whether all its packages are there, and new enough."""
    missing = list(dict.fromkeys(_missing(name)))
    return f'needs {", ".join(missing)}: pip install "uqeval[{name}]"' if missing else "ready"


def _missing(extra: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    for line in requires("uqeval") or ():
        need = Requirement(line)
        if need.marker is None or not need.marker.evaluate({"extra": extra}) or need.marker.evaluate({"extra": ""}):
            continue
        if need.name == "uqeval":
            for other in need.extras:
                yield from _missing(other)
            continue
        there = _version(need.name)
        if there is None:
            yield need.name
        elif not need.specifier.contains(there, prereleases=True):
            yield f"{need.name}{need.specifier} (there is {there})"


def _gpu() -> str:
    """As torch sees it: the metrics on tensors and the methods run there."""
    if _version("torch") is None:
        return "not asked: torch is not installed"
    try:
        asked = [sys.executable, "-c", _ASK_TORCH]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        return f"not known: {said.splitlines()[-1] if said else 'torch cannot be loaded'}"
    return done.stdout.strip() or "none that torch sees"


def _engine(name: str, package: str | None) -> str:
    """Whether an engine can run here."""
    if package is None:
        return "ready"
    there = _version(package)
    if there is None:
        return f'not installed: pip install "uqeval[{name}]"'
    if name == "spark" and not _java():
        return f"not ready: no Java ({package} {there})"
    return f"ready ({package} {there})"


def _java() -> bool:
    """Whether Spark would find a Java."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java" if home is None else os.path.join(home, "bin", "java")) is not None


def _cache() -> str:
    """Downloads and what was made once: it may be deleted."""
    folder = cache_folder()
    try:
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    except OSError as error:
        return f"{folder} (cannot be read: {error.strerror})"
    files = f"{len(sizes):,} file{'s' * (len(sizes) != 1)}"
    return f"{folder} ({files}, {sum(sizes) / 2**20:,.1f} MiB)" if sizes else f"{folder} (empty)"
