"""Scores × metrics × groups in one call."""

from uqeval.evaluation.compare import compare
from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.evaluate import evaluate
from uqeval.evaluation.result import Evaluation

__all__ = ["Comparison", "Evaluation", "compare", "evaluate"]
