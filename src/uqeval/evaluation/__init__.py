"""Scores × metrics × groups in one call."""

from uqeval.evaluation.evaluate import evaluate
from uqeval.evaluation.result import Evaluation

__all__ = ["Evaluation", "evaluate"]
