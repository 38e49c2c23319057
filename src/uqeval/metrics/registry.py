"""All metrics by name: tests, docs, command line and report are driven by this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from uqeval._check import nearest
from uqeval._errors import InputError
from uqeval.metrics.calibration import ece, ece_debiased
from uqeval.metrics.concordance import uq_c_index
from uqeval.metrics.correlation import kendall_tau, somers_d
from uqeval.metrics.ood import fpr_at_tpr, ood_aupr, ood_auroc
from uqeval.metrics.proper import accuracy, brier, log_loss
from uqeval.metrics.ranking import uq_auc
from uqeval.metrics.selective import auarc, augrc, aurc, e_aurc, g_auc, h_auc, naurc, prr

__all__ = ["REGISTRY", "Metric", "get_metric"]

INF = float("inf")


@dataclass(frozen=True)
class Metric:
    """What a metric computes and what it needs."""

    name: str
    title: str
    function: Callable[..., float]
    direction: Literal["higher", "lower"]  # which is better
    range: tuple[float, float]
    needs: tuple[str, ...]  # arguments, in order

    @property
    def uses_score(self) -> bool:
        """Whether it judges the uncertainty score (and not the model alone)."""
        return "score" in self.needs


_ROWS = ("score", "error")
_METRICS = [
    Metric("uq_auc", "UQ-AUC", uq_auc, "higher", (0, 1), _ROWS),
    Metric("uq_c_index", "UQ-C-index", uq_c_index, "higher", (0, 1), ("score", "loss")),
    Metric("aurc", "AURC", aurc, "lower", (0, 1), _ROWS),
    Metric("e_aurc", "E-AURC", e_aurc, "lower", (0, 1), _ROWS),
    Metric("naurc", "nAURC", naurc, "lower", (0, INF), _ROWS),
    Metric("augrc", "AUGRC", augrc, "lower", (0, 0.5), _ROWS),
    Metric("g_auc", "G-AUC", g_auc, "lower", (0, 1), _ROWS),
    Metric("h_auc", "H-AUC", h_auc, "higher", (0, 0.25), _ROWS),
    Metric("auarc", "AUARC", auarc, "higher", (0, 1), _ROWS),
    Metric("prr", "PRR", prr, "higher", (-INF, 1), _ROWS),
    Metric("kendall_phi", "Kendall τ with φ", kendall_tau, "higher", (-1, 1), ("score", "phi")),
    Metric("somers_phi", "Somers' D with φ", somers_d, "higher", (-1, 1), ("score", "phi")),
    Metric("kendall_varphi", "Kendall τ with ϕ", kendall_tau, "higher", (-1, 1), ("score", "varphi")),
    Metric("somers_varphi", "Somers' D with ϕ", somers_d, "higher", (-1, 1), ("score", "varphi")),
    Metric("accuracy", "accuracy", accuracy, "higher", (0, 1), ("error",)),
    Metric("ece", "ECE", ece, "lower", (0, 1), ("confidence", "correct")),
    Metric("ece_debiased", "ECE (debiased)", ece_debiased, "lower", (0, 1), ("confidence", "correct")),
    Metric("brier", "Brier score", brier, "lower", (0, 2), ("probs", "labels")),
    Metric("log_loss", "log-loss", log_loss, "lower", (0, INF), ("probs", "labels")),
    Metric("ood_auroc", "OOD AUROC", ood_auroc, "higher", (0, 1), ("score_in", "score_out")),
    Metric("fpr_at_tpr", "FPR at 95% TPR", fpr_at_tpr, "lower", (0, 1), ("score_in", "score_out")),
    Metric("ood_aupr", "OOD AUPR", ood_aupr, "higher", (0, 1), ("score_in", "score_out")),
]
REGISTRY: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def get_metric(name: str) -> Metric:
    """The metric of that name, or an error that suggests the nearest."""
    if not isinstance(name, str) or name not in REGISTRY:
        raise InputError(f'There is no metric "{name}".{nearest(name, REGISTRY)} Metrics: {", ".join(REGISTRY)}.')
    return REGISTRY[name]
