"""The number that a user reads: value, interval, and what limits them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Estimate", "number", "strict", "to_frame", "versions"]


def number(x: float, digits: int = 3) -> str:
    """A short, readable number: 3 decimals, more for small ones."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x != 0 and abs(x) < 10 ** (1 - digits):
        return f"{x:#.2g}" if abs(x) >= 1e-4 else f"{x:.1e}"
    return f"{x:.{digits}f}"


def to_frame(rows: list[dict[str, Any]], kind: str | None = None) -> Any:
    """Rows as a dataframe: `kind` is "pandas", "polars" or "pyarrow"; None takes the first that is installed."""
    from importlib.util import find_spec

    from uqeval._check import check_choice

    if kind is None:
        kind = next(name for name in ("pandas", "polars", "pyarrow") if find_spec(name))
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
    if check_choice("kind", kind, ("pandas", "polars", "pyarrow")) == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    if kind == "polars":
        import polars

        return polars.DataFrame(columns)
    import pyarrow

    return pyarrow.table(columns)


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    import platform

    import numpy
    import scipy

    from uqeval import kernels
    from uqeval._version import __version__

    return {
        "uqeval": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "kernels": kernels.backend(),
    }


def strict(value: Any) -> Any:
    """The same data as valid JSON: NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Estimate:
    """One metric on one test set."""

    value: float
    low: float
    high: float
    se: float
    level: float
    method: str
    n: int
    n_errors: int | None = None
    n_clusters: int | None = None
    n_eff: float | None = None
    degenerate: bool = False
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name."""
        result = {f.name: getattr(self, f.name) for f in fields(self)}
        result["warnings"] = list(self.warnings)
        return result

    def to_frame(self, kind: str | None = None) -> Any:
        """One row: see `uqeval.inference.result.to_frame` for `kind`."""
        return to_frame([{**self.to_dict(), "warnings": "; ".join(self.warnings)}], kind)

    def __str__(self) -> str:
        return f"{number(self.value)} ({number(self.low)}–{number(self.high)})"

    def _repr_html_(self) -> str:
        import html

        return f"<span title='{html.escape(self.method)}, n = {self.n}'>{html.escape(str(self))}</span>"
