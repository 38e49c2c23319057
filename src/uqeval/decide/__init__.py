"""Regions of the input space that one may act in, with a guaranteed risk."""

from uqeval.decide.choose import choose_threshold
from uqeval.decide.dominance import Dominance, dominance
from uqeval.decide.monitor import Check, expected_delay
from uqeval.decide.risk_map import Psi, RiskMap, risk_map
from uqeval.decide.set_valued import SetReport, SetValuedClassifier
from uqeval.decide.threshold import Holdout, Threshold, Thresholds

__all__ = [
    "Check",
    "Dominance",
    "Holdout",
    "Psi",
    "RiskMap",
    "SetReport",
    "SetValuedClassifier",
    "Threshold",
    "Thresholds",
    "choose_threshold",
    "dominance",
    "expected_delay",
    "risk_map",
]
