"""`uqeval doctor`: what is installed, and which kernels are in use."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.table import Table

from uqeval import kernels
from uqeval.cli.output import stdout, write_json
from uqeval.inference.result import versions

__all__ = ["doctor"]

_OPTIONAL = ("pyarrow", "narwhals", "pandas", "polars", "scikit-learn", "torch")


def doctor(
    json: Annotated[
        str | None, typer.Option(help="Write JSON to this file, or '-' for stdout.", metavar="FILE|-")
    ] = None,
) -> None:
    """Versions, kernels and optional packages.

    Example:  uqeval doctor
    """
    facts = versions() | {"cores": str(os.cpu_count())}
    for name in _OPTIONAL:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    if json is not None:
        import json as codec

        write_json(codec.dumps(facts, indent=2), json)
    if json == "-":
        return
    table = Table(box=None, show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    out = stdout()
    out.print(table)
    if kernels.backend() == "numpy":
        out.print(
            "The NumPy kernels are right but slower: reinstall with a C++ compiler for the native ones.",
            style="yellow",
        )
