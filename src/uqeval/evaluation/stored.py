"""JSON of an evaluation or a comparison → the arguments that make it again.

The numbers come back as they were, the rows do not: what needs them says so. `decide` reads thresholds and checks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uqeval._errors import InputError
from uqeval._result import Result, read_json
from uqeval.evaluation.table import ESTIMATE, Row, Table
from uqeval.inference.result import Estimate
from uqeval.metrics.registry import REGISTRY


@dataclass(frozen=True)
class StoredRun(Result):
    """What a run on an engine cost, as it was stored."""

    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As it was."""
        return dict(self.data)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.data.items() if not isinstance(value, dict))


def stored_evaluation(text: str | Path) -> dict[str, Any]:
    """The fields of an `Evaluation`, of which `heterogeneity` are still dictionaries."""
    data = read_json(text, "Evaluation")
    with _refused("Evaluation"):
        same = data["same_ranking"]
        return {
            **{name: data[name] for name in ("n", "n_errors", "accuracy", "level", "mean_loss", "two_targets")},
            **_common(data),
            "tie_rate": dict(data["tie_rate"]),
            "rows": Table(Row(e["score"], _metric(e["metric"]), e["group"], _estimate(e)) for e in data["estimates"]),
            "heterogeneity": [
                {k: math.nan if v is None and k != "score" else v for k, v in test.items()}
                for test in data["heterogeneity"]
            ],
            "same_ranking": None if same is None else tuple(map(tuple, same)),
            "targets": {e["metric"]: e["target"] for e in data["estimates"] if e["target"] is not None},
            "classes": tuple(data["classes"]),
        }


def stored_comparison(text: str | Path) -> dict[str, Any]:
    """The fields of a `Comparison`, of which `rows` are still dictionaries."""
    data = read_json(text, "Comparison")
    with _refused("Comparison"):
        numbers = ("difference", "low", "high", "se", "p", "p_adjusted")
        return {
            **{name: data[name] for name in ("adjust", "level", "method", "n", "baseline", "target", "two_targets")},
            **_common(data),
            "metric": _metric(data["metric"]),
            "values": {name: _number(value) for name, value in data["values"].items()},
            "same_ranking": tuple(map(tuple, data["same_ranking"])),
            "rows": [
                {**pair, **{name: _number(pair[name]) for name in numbers}}
                | {"df": math.inf if pair["df"] is None else float(pair["df"])}
                for pair in data["pairs"]
            ],
            "heterogeneity": {(test["a"], test["b"]): _number(test["p"]) for test in data["heterogeneity"]},
        }


def _common(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "warnings": tuple(data["warnings"]),
        "created_with": dict(data["versions"]),
        "provenance": data.get("provenance"),
        "run": StoredRun(data["run"]) if "run" in data else None,
    }


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Whatever is missing or of another kind becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        reason = f"it lacks {problem}" if isinstance(problem, KeyError) else "an entry is of another kind"
        raise InputError(
            f"This is not the JSON of {'an' if what[0] in 'AE' else 'a'} {what} of this version: {reason}. "
            f"Pass what to_json wrote."
        ) from None


def _metric(name: Any) -> str:
    if name not in REGISTRY:
        raise InputError(f"The stored metric {name!r} is not known to this uqeval. Evaluate again.")
    return str(name)


def _estimate(data: dict[str, Any]) -> Estimate:
    numbers: dict[str, Any] = {name: _number(data[name]) for name in ("value", "low", "high", "se")}
    if math.isnan(numbers["value"]) and data["undefined"] is None:
        numbers["value"] = math.inf  # a log-loss; JSON has no infinity
    rest = {name: data[name] for name in ESTIMATE if name not in numbers}
    return Estimate(**numbers, **rest | {"warnings": tuple(data["warnings"])})


def _number(value: Any) -> float:
    return math.nan if value is None else value  # whole numbers stay whole
