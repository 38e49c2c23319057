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

from uqeval._check import check_level
from uqeval._errors import InputError
from uqeval._result import Mistyped, Result, read_json, reader, short, typed_fields
from uqeval.evaluation.table import ESTIMATE, Mixed, Row, Table
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
    """The fields of an `Evaluation`."""
    data = read_json(text, "Evaluation")
    with _refused("Evaluation"):
        head = _head(_EVALUATION, data)
        estimates = _of(list, data, "estimates")
        if len({(e["score"], e["metric"], e["group"]) for e in estimates}) < len(estimates):
            raise Mistyped("'estimates' has one twice")
        return {
            **head,
            **_common(data),
            "rows": Table(_row(e) for e in estimates),
            "heterogeneity": tuple(Mixed(**typed_fields(Mixed, t)) for t in _of(list, data, "heterogeneity")),
            "targets": {str(e["metric"]): str(e["target"]) for e in estimates if e["target"] is not None},
        }


def stored_comparison(text: str | Path, kind: type) -> dict[str, Any]:
    """The fields of a `Comparison`; `kind` is that of its pairs."""
    data = read_json(text, "Comparison")
    with _refused("Comparison"):
        head = _head(_COMPARISON, data)
        tests = [_head(_TEST, test) for test in _of(list, data, "heterogeneity")]
        if len({(test["a"], test["b"]) for test in tests}) < len(tests):
            raise Mistyped("'heterogeneity' has one twice")
        found = {
            **head,
            **_common(data),
            "metric": _metric(head["metric"]),
            "rows": tuple(_pair(kind, pair) for pair in _of(list, data, "pairs")),
            "heterogeneity": {(test["a"], test["b"]): test["p"] for test in tests},
        }
        compared = {name for row in found["rows"] for name in (row.a, row.b)}
        compared |= {name for group in head["same_ranking"] for name in group}
        if not head["values"] or not compared <= head["values"].keys():
            raise Mistyped("'pairs' name others than 'values'")
        return found


_EVALUATION = {
    "n": int,
    "n_errors": int | None,
    "accuracy": float | None,
    "level": float,
    "mean_loss": float | None,
    "two_targets": bool,
    "tie_rate": dict[str, float],
    "same_ranking": tuple[tuple[str, ...], ...] | None,
    "classes": tuple[str, ...],
}
_COMPARISON = {
    "metric": str,
    "adjust": str,
    "level": float,
    "method": str,
    "n": int,
    "baseline": str | None,
    "target": str | None,
    "two_targets": bool,
    "values": dict[str, float],
    "same_ranking": tuple[tuple[str, ...], ...],
}
_TEST = {"a": str, "b": str, "p": float}
_COMMON = {"warnings": tuple[str, ...], "versions": dict[str, str]}


def _head(shape: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of the shape, each as it is declared."""
    found = {name: _typed(declared, data[name], name) for name, declared in shape.items()}
    if "level" in found:
        found["level"] = check_level(found["level"])
    if not all(found.get("same_ranking") or ()):
        raise Mistyped("'same_ranking' has an empty group")
    return found


def _typed(declared: Any, value: Any, name: str) -> Any:
    try:
        return reader(declared)(value)
    except TypeError:
        raise Mistyped(f"{name!r} is {short(value)}") from None


def _of(kind: type, data: Mapping[str, Any], name: str) -> Any:
    return _typed(kind, data[name], name)


def _common(data: dict[str, Any]) -> dict[str, Any]:
    told = _head(_COMMON, data)
    return {
        "warnings": told["warnings"],
        "created_with": told["versions"],
        "provenance": _typed(dict | None, data.get("provenance"), "provenance"),
        "run": StoredRun(_of(dict, data, "run")) if "run" in data else None,
    }


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Whatever is missing or of another kind becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, Mistyped) as problem:
        reason = f"it lacks {problem}" if isinstance(problem, KeyError) else "an entry is of another kind"
        reason = str(problem) if isinstance(problem, Mistyped) else reason
        raise InputError(
            f"This is not the JSON of {'an' if what[0] in 'AE' else 'a'} {what} of this version: {reason}. "
            f"Pass what to_json wrote."
        ) from None


def _metric(name: Any) -> str:
    if not isinstance(name, str) or name not in REGISTRY:
        raise InputError(f"The stored metric {name!r} is not known to this uqeval. Evaluate again.")
    return str(name)


def _row(data: Mapping[str, Any]) -> Row:
    place = _head(_PLACE, data)
    return Row(place["score"], _metric(data["metric"]), place["group"], _estimate(data))


_PLACE = {"score": str | None, "group": str | None, "target": str | None}


def _estimate(data: Mapping[str, Any]) -> Estimate:
    told = typed_fields(Estimate, {name: data[name] for name in (*ESTIMATE, "warnings")})
    if math.isnan(told["value"]) and data["undefined"] is None:
        told["value"] = math.inf  # a log-loss; JSON has no infinity
    return Estimate(**told)


def _pair(kind: type, data: Mapping[str, Any]) -> Any:
    told = typed_fields(kind, data)
    return kind(**told | {"df": math.inf if data["df"] is None else float(data["df"])})
