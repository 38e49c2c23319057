"""Honest error bars: influence values → standard error, interval."""

from typing import TYPE_CHECKING

from uqeval._lazy import late
from uqeval.inference.estimate import bootstrap, estimate, estimate_distance_c_index
from uqeval.inference.forms import risk_band
from uqeval.inference.power import SampleSize, detectable_difference, sample_size
from uqeval.inference.result import Estimate

if TYPE_CHECKING:
    from uqeval.inference.correlations import CorrelationTest, compare_correlations, pearson
    from uqeval.inference.one_vs_rest import estimate_one_vs_rest
    from uqeval.inference.reference import reference_confidence

__all__ = [
    "CorrelationTest",
    "Estimate",
    "SampleSize",
    "bootstrap",
    "compare_correlations",
    "detectable_difference",
    "estimate",
    "estimate_distance_c_index",
    "estimate_one_vs_rest",
    "pearson",
    "reference_confidence",
    "risk_band",
    "sample_size",
]

# Of studies, and of one class against the others: no other interval needs them.
__getattr__ = late(
    __name__,
    {
        "uqeval.inference.correlations": "CorrelationTest compare_correlations pearson",
        "uqeval.inference.one_vs_rest": "estimate_one_vs_rest",
        "uqeval.inference.reference": "reference_confidence",
    },
)
