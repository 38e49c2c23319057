"""Honest error bars: influence values → standard error, interval."""

from uqeval.inference.bootstrap import bootstrap
from uqeval.inference.estimate import estimate
from uqeval.inference.result import Estimate

__all__ = ["Estimate", "bootstrap", "estimate"]
