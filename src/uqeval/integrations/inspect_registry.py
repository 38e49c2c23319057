"""What Inspect registers through the entry point `inspect_ai` of this package: the metric `uqeval/uncertainty`."""

from collections.abc import Sequence

from inspect_ai.scorer import Metric, metric

from uqeval.integrations.inspect import as_it_runs


def _uncertainty(
    confidence: str | None = None,
    uncertainty: str | None = None,
    metrics: Sequence[str] | str = ("uq_auc", "aurc"),
    level: float = 0.95,
) -> Metric:
    return as_it_runs(confidence=confidence, uncertainty=uncertainty, metrics=metrics, level=level)


# Every epoch is an answer of its own: the mean over epochs has no confidence.
uncertainty = metric("uncertainty", scores="unreduced")(_uncertainty)
