"""Scores × metrics × groups of rows in memory, and the tables that users read."""

from typing import TYPE_CHECKING

from uqeval._lazy import late
from uqeval.evaluation.result import Evaluation

if TYPE_CHECKING:
    from uqeval.evaluation.comparison import Comparison

__all__ = ["Comparison", "Evaluation"]

# Who evaluates need not wait for what compares.
__getattr__ = late(__name__, {"uqeval.evaluation.comparison": "Comparison"})
