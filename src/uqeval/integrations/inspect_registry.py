"""What Inspect registers through the entry point `inspect_ai` of this package: the metric `uqeval/uncertainty`."""

from collections.abc import Sequence
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, metric

from uqeval.integrations.inspect import uncertainty_metrics


def _uncertainty(
    confidence: str | None = None,
    uncertainty: str | None = None,
    metrics: Sequence[str] | str = ("uq_auc", "aurc"),
    level: float = 0.95,
) -> Metric:
    how: dict[str, Any] = {"confidence": confidence, "uncertainty": uncertainty, "metrics": metrics, "level": level}

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        return uncertainty_metrics(scores, **how)

    return compute


# Every epoch is an answer of its own: the mean over epochs has no confidence.
uncertainty = metric("uncertainty", scores="unreduced")(_uncertainty)
