"""What is compared: scores of one model, plain arrays, or models on the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uqeval import scores as score_functions
from uqeval._check import nearest
from uqeval._errors import InputError
from uqeval.evaluation.evaluate import as_predictions, without_zero_weights
from uqeval.evaluation.table import Table
from uqeval.inputs import Predictions
from uqeval.metrics.registry import Metric

__all__ = ["Candidate", "find_candidates", "find_pairs"]


@dataclass(frozen=True)
class Candidate:
    """A score of a model."""

    name: str
    table: Table
    score: str | None  # None: the metric judges the model itself


def find_candidates(
    given: Any, scores: Sequence[str] | str | None, metric: Metric, plain: dict[str, Any], nan: str
) -> tuple[list[Candidate], bool]:
    """The candidates, and whether they are different models."""
    asked = [scores] if isinstance(scores, str) else None if scores is None else list(dict.fromkeys(scores))
    if asked == []:
        raise InputError("`scores` is empty. Leave it out for all, or name at least two.")
    if isinstance(given, Mapping) and given and all(isinstance(value, Predictions) for value in given.values()):
        named = {str(name): value for name, value in given.items()}
        if len(named) < len(given):
            raise InputError("The models have names that read alike. Rename one.")
        found = _models(named, asked, metric, plain)
        models = True
    else:
        arrays = given if isinstance(given, Mapping) else None
        pred = as_predictions(None if arrays is not None else given, arrays, plain, nan)
        table = Table(without_zero_weights(pred))
        if not metric.uses_score:
            raise InputError(f"{metric.name} is the same for all scores of one model. Compare models instead.")
        found = [Candidate(name, table, name) for name in _names(table.pred, asked)]
        models = False
    if len(found) < 2:
        raise InputError(f"Only one candidate ({found[0].name}). Pass at least two.")
    for candidate in found:
        if missing := candidate.table.missing(metric):
            raise InputError(f"{metric.name} needs {', '.join(missing)}, which {candidate.name} does not give.")
    return found, models


def _names(pred: Predictions, asked: list[str] | None) -> list[str]:
    known = list(score_functions.available(pred))
    for name in asked or []:
        if name not in known:
            score_functions.compute(name, pred)  # raises, and says what is missing
    return known if asked is None else asked


def _models(
    given: dict[str, Predictions], asked: list[str] | None, metric: Metric, plain: dict[str, Any]
) -> list[Candidate]:
    if named := [name for name, value in plain.items() if value is not None]:
        raise InputError(f"Pass `{named[0]}` inside the predictions of the models, not beside them.")
    (first, reference), *rest = given.items()
    for name, pred in rest:
        _same_rows(first, reference, name, pred)
    tables = {name: Table(without_zero_weights(pred)) for name, pred in given.items()}
    if not metric.uses_score:
        return [Candidate(name, table, None) for name, table in tables.items()]
    if asked is None:
        common = [
            s for s in score_functions.available(reference) if all(s in score_functions.available(p) for _, p in rest)
        ]
        if not common:
            raise InputError("The models have no score in common. Name one for all with scores=.")
        asked = common[:1]
    found = []
    for name, table in tables.items():
        for score in _names(table.pred, asked):
            found.append(Candidate(name if len(asked) == 1 else f"{name} / {score}", table, score))
    return found


def _same_rows(first: str, a: Predictions, name: str, b: Predictions) -> None:
    """Models must be compared on the same rows."""
    if a.n != b.n:
        raise InputError(f"{name!r} has {b.n} rows but {first!r} has {a.n}. Compare models on the same rows.")
    for field in ("ids", "labels", "weights", "clusters", "groups"):
        x, y = _by_name(a, field), _by_name(b, field)
        if (x is None) != (y is None) and field in ("weights", "clusters", "groups"):
            raise InputError(f"Only one of {first!r} and {name!r} has `{field}`. Give the same to both.")
        if x is not None and y is not None and not np.array_equal(x, y):
            count = int((x != y).sum())
            raise InputError(
                f"`{field}` of {first!r} and {name!r} differ in {count} rows. Compare them on the same rows."
            )


def _by_name(pred: Predictions, field: str) -> np.ndarray | None:
    """A field as the user wrote it: two models may number the same classes, clusters or groups differently."""
    codes: np.ndarray | None = getattr(pred, field)
    names = {"labels": pred.classes, "clusters": pred.cluster_values, "groups": pred.group_names}.get(field)
    return codes if codes is None or names is None else np.asarray(names).astype(np.str_)[codes]


def find_pairs(names: list[str], baseline: str | None) -> list[tuple[int, int]]:
    if baseline is None:
        return [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    if baseline not in names:
        raise InputError(
            f'There is no candidate "{baseline}".{nearest(baseline, names)} Candidates: {", ".join(names)}.'
        )
    base = names.index(baseline)
    return [(a, base) for a in range(len(names)) if a != base]
