"""Tell whether a classifier's uncertainty can be trusted, from nothing more than a test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval import metrics, scores, truth
from uqeval._errors import InputError, MissingExtra, UndefinedMetricWarning, UQWarning
from uqeval._version import __version__
from uqeval.evaluation import Evaluation, evaluate
from uqeval.inference import Estimate, bootstrap, estimate
from uqeval.inputs import Predictions

if TYPE_CHECKING:
    from uqeval import datasets
    from uqeval.inputs import read_predictions

__all__ = [
    "Estimate",
    "Evaluation",
    "InputError",
    "MissingExtra",
    "Predictions",
    "UQWarning",
    "UndefinedMetricWarning",
    "__version__",
    "bootstrap",
    "datasets",
    "estimate",
    "evaluate",
    "metrics",
    "read_predictions",
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
