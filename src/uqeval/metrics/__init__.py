"""Metrics: one number from arrays, a plain float each; intervals come from `uqeval.estimate` and `uqeval.evaluate`."""

from uqeval.metrics.calibration import ece, ece_debiased
from uqeval.metrics.concordance import top_label_c_index, uq_c_index
from uqeval.metrics.correlation import kendall_tau, somers_d
from uqeval.metrics.multiclass import one_vs_rest
from uqeval.metrics.ood import distance_c_index, fpr_at_tpr, ood_aupr, ood_auroc
from uqeval.metrics.proper import accuracy, brier, log_loss
from uqeval.metrics.ranking import uq_auc
from uqeval.metrics.registry import REGISTRY, Metric
from uqeval.metrics.selective import (
    RiskCurve,
    auarc,
    augrc,
    aurc,
    e_aurc,
    g_auc,
    h_auc,
    mbc_curve,
    mce_curve,
    naurc,
    prr,
    risk_coverage_curve,
    selective_accuracy,
)

__all__ = [
    "REGISTRY",
    "Metric",
    "RiskCurve",
    "accuracy",
    "auarc",
    "augrc",
    "aurc",
    "brier",
    "distance_c_index",
    "e_aurc",
    "ece",
    "ece_debiased",
    "fpr_at_tpr",
    "g_auc",
    "h_auc",
    "kendall_tau",
    "log_loss",
    "mbc_curve",
    "mce_curve",
    "naurc",
    "one_vs_rest",
    "ood_aupr",
    "ood_auroc",
    "prr",
    "risk_coverage_curve",
    "selective_accuracy",
    "somers_d",
    "top_label_c_index",
    "uq_auc",
    "uq_c_index",
]
