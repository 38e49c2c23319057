"""Tell whether a classifier's uncertainty can be trusted, from nothing more than a test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval import metrics, scores, truth
from uqeval._errors import InputError, MissingExtra, UndefinedMetricWarning, UQWarning
from uqeval._version import __version__
from uqeval.evaluation import Comparison, Evaluation, compare, evaluate
from uqeval.inference import (
    CorrelationTest,
    Estimate,
    SampleSize,
    bootstrap,
    compare_correlations,
    detectable_difference,
    estimate,
    pearson,
    sample_size,
)
from uqeval.inputs import Predictions

if TYPE_CHECKING:
    from uqeval import datasets
    from uqeval.inputs import read_predictions

__all__ = [
    "Comparison",
    "CorrelationTest",
    "Estimate",
    "Evaluation",
    "InputError",
    "MissingExtra",
    "Predictions",
    "SampleSize",
    "UQWarning",
    "UndefinedMetricWarning",
    "__version__",
    "bootstrap",
    "compare",
    "compare_correlations",
    "datasets",
    "detectable_difference",
    "estimate",
    "evaluate",
    "metrics",
    "pearson",
    "read_predictions",
    "sample_size",
    "scores",
    "truth",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import uqeval` stays fast.
    if name == "datasets":
        import uqeval.datasets

        return uqeval.datasets
    if name == "read_predictions":
        from uqeval.inputs.files import read_predictions

        return read_predictions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
