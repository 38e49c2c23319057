"""Tell whether a classifier's uncertainty can be trusted, from nothing more than a test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval._errors import InputError, MissingExtra, UndefinedMetricWarning, UQWarning
from uqeval._lazy import late
from uqeval._version import __version__

if TYPE_CHECKING:
    from uqeval import datasets, decide, distributed, inference, kernels, metrics, plot, scores, truth
    from uqeval.decide.choose import choose_threshold
    from uqeval.decide.dominance import Dominance, dominance
    from uqeval.decide.label_noise import LabelNoise, label_noise
    from uqeval.decide.monitor import Check
    from uqeval.decide.risk_map import RiskMap, risk_map
    from uqeval.decide.set_valued import SetValuedClassifier
    from uqeval.decide.threshold import Threshold
    from uqeval.decide.thresholds import Thresholds
    from uqeval.distributed.compare import compare
    from uqeval.distributed.evaluate import evaluate
    from uqeval.evaluation.comparison import Comparison
    from uqeval.evaluation.result import Evaluation
    from uqeval.inference.correlations import CorrelationTest, compare_correlations, pearson
    from uqeval.inference.estimate import bootstrap, estimate
    from uqeval.inference.power import SampleSize, detectable_difference, sample_size
    from uqeval.inference.result import Estimate
    from uqeval.inputs import Predictions, read_predictions
    from uqeval.pages.report import report

__all__ = [
    "Check",
    "Comparison",
    "CorrelationTest",
    "Dominance",
    "Estimate",
    "Evaluation",
    "InputError",
    "LabelNoise",
    "MissingExtra",
    "Predictions",
    "RiskMap",
    "SampleSize",
    "SetValuedClassifier",
    "Threshold",
    "Thresholds",
    "UQWarning",
    "UndefinedMetricWarning",
    "__version__",
    "bootstrap",
    "choose_threshold",
    "compare",
    "compare_correlations",
    "datasets",
    "decide",
    "detectable_difference",
    "distributed",
    "dominance",
    "estimate",
    "evaluate",
    "inference",
    "kernels",
    "label_noise",
    "metrics",
    "pearson",
    "plot",
    "read_predictions",
    "report",
    "risk_map",
    "sample_size",
    "scores",
    "truth",
]

# Where each name lives; loaded when first used, so that `import uqeval` costs next to nothing.
_find = late(
    __name__,
    {
        "uqeval.decide": "decide Check Dominance LabelNoise RiskMap SetValuedClassifier Threshold Thresholds "
        "choose_threshold dominance label_noise risk_map",
        "uqeval.distributed": "distributed compare evaluate",
        "uqeval.evaluation": "Comparison Evaluation",
        "uqeval.inference": "inference CorrelationTest Estimate SampleSize bootstrap compare_correlations "
        "detectable_difference estimate pearson sample_size",
        "uqeval.inputs": "Predictions read_predictions",
        "uqeval.pages.report": "report",
        **{f"uqeval.{name}": name for name in ("datasets", "kernels", "methods", "metrics", "pages", "plot")},
        **{f"uqeval.{name}": name for name in ("reproduce", "scores", "truth")},
    },
)


def __getattr__(name: str) -> Any:
    return globals().setdefault(name, _find(name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
