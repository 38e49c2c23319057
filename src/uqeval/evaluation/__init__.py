"""Scores × metrics × groups of rows in memory, and the tables that users read."""

from uqeval.evaluation.comparison import Comparison
from uqeval.evaluation.result import Evaluation

__all__ = ["Comparison", "Evaluation"]
