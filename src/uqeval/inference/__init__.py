"""Honest error bars: influence values → standard error, interval."""

from uqeval.inference.correlations import CorrelationTest, compare_correlations, pearson
from uqeval.inference.estimate import bootstrap, estimate
from uqeval.inference.forms import risk_band
from uqeval.inference.power import SampleSize, detectable_difference, sample_size
from uqeval.inference.result import Estimate

__all__ = [
    "CorrelationTest",
    "Estimate",
    "SampleSize",
    "bootstrap",
    "compare_correlations",
    "detectable_difference",
    "estimate",
    "pearson",
    "risk_band",
    "sample_size",
]
