"""Regions of the input space that one may act in, with a guaranteed risk."""

from uqeval.decide.apply import Applied, apply_file
from uqeval.decide.choose import choose_threshold
from uqeval.decide.dominance import Dominance, dominance
from uqeval.decide.label_noise import LabelNoise, Overturn, corrected_auc, label_noise
from uqeval.decide.monitor import Check, CheckedRows, expected_delay
from uqeval.decide.results import GroupRisk, Holdout
from uqeval.decide.risk_map import Psi, RiskMap, risk_map
from uqeval.decide.set_valued import SetReport, SetValuedClassifier
from uqeval.decide.threshold import Threshold
from uqeval.decide.thresholds import Thresholds

__all__ = [
    "Applied",
    "Check",
    "CheckedRows",
    "Dominance",
    "GroupRisk",
    "Holdout",
    "LabelNoise",
    "Overturn",
    "Psi",
    "RiskMap",
    "SetReport",
    "SetValuedClassifier",
    "Threshold",
    "Thresholds",
    "apply_file",
    "choose_threshold",
    "corrected_auc",
    "dominance",
    "expected_delay",
    "label_noise",
    "risk_map",
]
