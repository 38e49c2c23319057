"""What an Inspect task reports of its uncertainty. Told by attributes: inspect_ai is not imported here.

`inspect_registry` hands it to Inspect as a metric, which finds it through the entry point of the package.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uqeval._errors import InputError, collected, notify
from uqeval.distributed.evaluate import evaluate
from uqeval.inputs import Predictions
from uqeval.inputs.logs.answers import number
from uqeval.inputs.logs.inspect import value_of
from uqeval.metrics.registry import get_metric


def uncertainty_metrics(
    scores: Iterable[Any],
    *,
    confidence: str | None = None,
    uncertainty: str | None = None,
    metrics: Sequence[str] | str = ("uq_auc", "aurc"),
    level: float = 0.95,
) -> dict[str, float]:
    """Metrics of a number in the scorer's metadata (or the sample's), with intervals; epochs of a sample are a cluster.

    Parameters
    ----------
    scores : iterable of SampleScore
        What Inspect passes to a metric: `score.value`, `score.metadata`, `sample_id`, `sample_metadata`.
    confidence, uncertainty : str
        One of the two: the key of a number that is high where the model is sure, or unsure.
    metrics, level
        As in `uqeval.evaluate`.

    Returns
    -------
    dict of str → float
        ``{"uq_auc": …, "uq_auc_low": …, "uq_auc_high": …, "answers": …}``; NaN where a metric has no value, as of a
        single answer.

    Examples
    --------
    >>> from types import SimpleNamespace as Some
    >>> def answered(k):
    ...     score = Some(value="I" if k % 4 == 0 else "C", metadata={"confidence": 1 / (1 + (3 * k) % 5)})
    ...     return Some(score=score, sample_id=k, sample_metadata=None)
    >>> found = uncertainty_metrics(map(answered, range(40)), confidence="confidence", metrics="uq_auc")
    >>> {name: round(value, 3) for name, value in found.items()}
    {'uq_auc': 0.5, 'uq_auc_low': 0.285, 'uq_auc_high': 0.715, 'answers': 40.0}
    """
    _check_one(confidence, uncertainty)
    key, sign = (confidence, -1.0) if uncertainty is None else (uncertainty, 1.0)
    rows = [(value_of(one.score.value), sign * _told(one, str(key)), str(one.sample_id)) for one in scores]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    judged = [row for row in rows if row[0] == row[0]]  # NaN is Inspect's mark of what was not scored
    complete = [row for row in judged if row[1] == row[1]]
    if len(judged) < 2:
        return _without_value(names) | {"answers": float(len(complete))}
    if len(complete) < 2:
        raise InputError(
            f"{len(complete)} of {len(judged)} scored answers have a number `{key}` in their metadata. Let the scorer "
            f'write it: Score(value=..., metadata={{"{key}": ...}}).'
        )
    quality, score, samples = (np.array(column) for column in zip(*complete, strict=True))
    target = "error" if np.isin(quality, (0.0, 1.0)).all() else "loss"
    clusters = samples if len(set(samples)) < len(samples) else None
    given: dict[str, Any] = {target: 1.0 - quality, "clusters": clusters}
    pred = Predictions(scores={str(key): score}, **given)
    ev = evaluate(pred, metrics=metrics, level=level)
    found: dict[str, float] = {}
    for name in names:
        estimate = ev[str(key), name]
        found |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return found | {"answers": float(len(complete))}


def as_it_runs(
    *, confidence: str | None, uncertainty: str | None, metrics: Sequence[str] | str, level: float
) -> Callable[[Iterable[Any]], dict[str, float]]:
    """`uncertainty_metrics` for Inspect, which asks from the first answer on: an error would end the run."""
    _check_one(confidence, uncertainty)
    names = [get_metric(name).name for name in ([metrics] if isinstance(metrics, str) else metrics)]
    said: set[str] = set()

    def compute(scores: Iterable[Any]) -> dict[str, float]:
        rows, found = list(scores), dict[str, float]()
        for name in names:
            try:
                with collected():  # what limits an interval would be said with each answer anew
                    found |= uncertainty_metrics(
                        rows, confidence=confidence, uncertainty=uncertainty, metrics=name, level=level
                    )
            except InputError as error:
                found |= _without_value([name])
                if name not in said:
                    said.add(name)
                    notify(f"uqeval/uncertainty gives no {name}: {error}")
        answers = found.pop("answers", 0.0)
        return found | {"answers": answers}

    return compute


def _check_one(confidence: str | None, uncertainty: str | None) -> None:
    if (confidence is None) == (uncertainty is None):
        raise InputError('Pass one of confidence= and uncertainty=: a key of the metadata, as confidence="p_correct".')


def _without_value(metrics: Iterable[str]) -> dict[str, float]:
    """The names of what is reported, and NaN."""
    return {f"{name}{end}": float("nan") for name in metrics for end in ("", "_low", "_high")}


def _told(one: Any, key: str) -> float:
    """The number under a key of what the scorer, or the dataset, wrote beside the answer."""
    for held in (one.score.metadata, one.sample_metadata):
        if held and key in held:
            return number(held[key])
    return float("nan")
