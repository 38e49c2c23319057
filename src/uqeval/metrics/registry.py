"""All metrics, a record each, from which intervals, engines, command line, report, docs and tests read what differs.

A new metric is its definition in this folder, a record here, and its twin by brute force in `tests/oracle.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from uqeval._check import Float, nearest
from uqeval._errors import InputError
from uqeval.metrics.areas import AUGRC, AURC, EXCESS, H_AUC, RATIO, RATIO_50, Accepted, Formula
from uqeval.metrics.calibration import Bins, debiased_l1, ece, ece_debiased, l1
from uqeval.metrics.concordance import signed_confidence, top_label_c_index, uq_c_index
from uqeval.metrics.correlation import kendall_tau, somers_d
from uqeval.metrics.ood import fpr_at_tpr, ood_aupr, ood_auroc
from uqeval.metrics.proper import accuracy, brier, brier_rows, log_loss, log_loss_rows, right_rows
from uqeval.metrics.ranking import uq_auc
from uqeval.metrics.selective import auarc, augrc, aurc, e_aurc, g_auc, h_auc, naurc, prr, selective_accuracy

INF = float("inf")
Kind = Literal["auc", "pairs", "tau", "area", "late area", "mean", "ece", "two sets"]
Interval = Literal["logit", "atanh", "gamma", "log", "t", "binomial", "tested", "bootstrap"]


@dataclass(frozen=True)
class Metric:
    """What a metric computes, what it needs, and how it is estimated."""

    name: str
    title: str
    function: Callable[..., float]
    direction: Literal["higher", "lower"]  # which is better
    range: tuple[float, float]
    needs: tuple[str, ...]  # arguments, in order
    tally: Kind  # the sums that value and interval are made of: `inference.tally`
    interval: Interval  # the form of the interval: `inference.intervals`
    affine: tuple[float, float] = (0.0, 1.0)  # (a, b): the metric is a + b times what its tally gives
    formula: Formula | Accepted | None = None  # of the areas, where the tally is of areas
    by_row: Callable[..., Float] | None = None  # numbers of the rows whose mean it is
    by_bin: Callable[[Bins], float] | None = None  # its value from bins of confidence
    made: tuple[str, Callable[..., Float]] | None = None  # its target, where several arguments make it: name, how
    losses: bool = False  # takes a loss in [0, 1] in place of 0/1 errors
    streams: bool = True  # can be counted piece by piece
    usual: bool = True  # is in a table that names no metrics
    undefined: str = "all losses are equal"  # why it may have no value
    across_models: str | None = None  # what to beware of where models are compared

    @property
    def uses_score(self) -> bool:
        """Whether it judges the uncertainty score (and not the model alone)."""
        return "score" in self.needs

    def useless(self, mean_loss: float | None) -> float | None:
        """The value of a score that knows nothing; None where that depends on a mean loss that is not known."""
        if self.formula is not None and mean_loss is None:
            return None
        plain = 0.5 if self.formula is None or mean_loss is None else self.formula.useless(mean_loss)
        return self.affine[0] + self.affine[1] * plain

    @property
    def span(self) -> float:
        """No two values are further apart."""
        return self.range[1] - self.range[0]

    @property
    def target(self) -> str:
        """What of each row a score is ranked against."""
        if self.made is not None:
            return self.made[0]
        return "loss in [0, 1]" if self.losses else self.needs[1]

    @property
    def quantities(self) -> tuple[str, ...]:
        """What it needs of each row beside the score: a target, numbers whose mean it is, or confidences."""
        if self.uses_score:
            return (self.target,)
        return ("confidence", "error") if self.tally == "ece" else (self.name,)

    @property
    def target_kind(self) -> Literal["error", "loss01", "loss"]:
        """What its second argument may hold: see `check_rows`."""
        return "loss" if self.needs[1] != "error" else "loss01" if self.losses else "error"


_ERR, _CAL, _OUT, _TWO = ("score", "error"), ("confidence", "correct"), ("probs", "labels"), ("score_in", "score_out")
_TOP = ("score", "confidence", "error")
_LOSS, _PHI, _VARPHI = ("score", "loss"), ("score", "phi"), ("score", "varphi")
_ONE, _TWICE, _REST, _SIGNED = (0.0, 1.0), (0.0, 2.0), (1.0, -1.0), (-1.0, 2.0)
_CHANCE, _COMMITTED = "with error probability", "with misalignment"
_TAU: dict[str, Any] = {"affine": _SIGNED, "undefined": "score or truth is constant", "streams": False}
_SOMERS: dict[str, Any] = {"affine": _SIGNED, "undefined": "the truth is constant", "streams": False}
_OWN = "UQ-C-index contains the model's own probabilities: do not rank models by it"
_OWN_TOP = "the top-label C-index contains the model's own confidence: do not rank models by it"
_RATE = "H-AUC depends on the accuracy: across models a less accurate one can look better"
_METRICS = [
    Metric("uq_auc", "UQ-AUC", uq_auc, "higher", (0, 1), _ERR, "auc", "logit"),
    Metric(
        *("top_label_c_index", "top-label C-index", top_label_c_index, "higher", (0, 1), _TOP, "pairs", "logit"),
        made=("signed confidence", signed_confidence),
        undefined="all rows have the same signed confidence",
        across_models=_OWN_TOP,
    ),
    Metric("uq_c_index", "UQ-C-index", uq_c_index, "higher", (0, 1), _LOSS, "pairs", "logit", across_models=_OWN),
    Metric("aurc", "AURC", aurc, "lower", (0, 1), _ERR, "area", "gamma", _ONE, AURC, losses=True),
    Metric("e_aurc", "E-AURC", e_aurc, "lower", (0, 1), _ERR, "area", "log", _ONE, EXCESS),
    Metric("naurc", "nAURC", naurc, "lower", (0, INF), _ERR, "area", "log", _ONE, RATIO, losses=True),
    Metric("augrc", "AUGRC", augrc, "lower", (0, 0.5), _ERR, "area", "gamma", _ONE, AUGRC, losses=True),
    Metric("g_auc", "G-AUC", g_auc, "lower", (0, 1), _ERR, "area", "gamma", _TWICE, AUGRC),
    Metric("h_auc", "H-AUC", h_auc, "higher", (0, 0.25), _ERR, "area", "log", _ONE, H_AUC, across_models=_RATE),
    Metric("auarc", "AUARC", auarc, "higher", (0, 1), _ERR, "area", "gamma", _REST, AURC, losses=True),
    Metric("prr", "PRR", prr, "higher", (-INF, 1), _ERR, "area", "log", _REST, RATIO, losses=True),
    Metric(
        *("prr_50", "PRR at 50%", partial(prr, max_rejection=0.5), "higher", (-INF, 1), _ERR, "late area", "log"),
        *(_REST, RATIO_50),
        losses=True,
        usual=False,
        undefined="no order of the rows is better than any other",
    ),
    *(
        Metric(
            f"selective_accuracy_{share}",
            f"accuracy of the surest {share}%",
            partial(selective_accuracy, coverage=share / 100),
            *("higher", (0, 1), _ERR, "area", "binomial", _REST, Accepted(share / 100)),
            losses=True,
        )
        for share in (80, 90, 95)
    ),
    Metric("kendall_phi", f"Kendall τ {_CHANCE}", kendall_tau, "higher", (-1, 1), _PHI, "tau", "atanh", **_TAU),
    Metric("somers_phi", f"Somers' D {_CHANCE}", somers_d, "higher", (-1, 1), _PHI, "pairs", "logit", **_SOMERS),
    Metric(
        "kendall_varphi", f"Kendall τ {_COMMITTED}", kendall_tau, "higher", (-1, 1), _VARPHI, "tau", "atanh", **_TAU
    ),
    Metric(
        "somers_varphi", f"Somers' D {_COMMITTED}", somers_d, "higher", (-1, 1), _VARPHI, "pairs", "logit", **_SOMERS
    ),
    Metric("accuracy", "accuracy", accuracy, "higher", (0, 1), ("error",), "mean", "binomial", by_row=right_rows),
    Metric("ece", "ECE", ece, "lower", (0, 1), _CAL, "ece", "tested", by_bin=l1),
    Metric("ece_debiased", "ECE (debiased)", ece_debiased, "lower", (0, 1), _CAL, "ece", "tested", by_bin=debiased_l1),
    Metric("brier", "Brier score", brier, "lower", (0, 2), _OUT, "mean", "t", by_row=brier_rows),
    Metric("log_loss", "log-loss", log_loss, "lower", (0, INF), _OUT, "mean", "t", by_row=log_loss_rows),
    Metric("ood_auroc", "OOD AUROC", ood_auroc, "higher", (0, 1), _TWO, "two sets", "logit", streams=False),
    Metric("fpr_at_tpr", "FPR at 95% TPR", fpr_at_tpr, "lower", (0, 1), _TWO, "two sets", "bootstrap", streams=False),
    Metric("ood_aupr", "OOD AUPR", ood_aupr, "higher", (0, 1), _TWO, "two sets", "bootstrap", streams=False),
]
REGISTRY: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


# Of classes, of features: more than a number or two for each row.
_APART = {"one_vs_rest": "estimate_one_vs_rest", "distance_c_index": "estimate_distance_c_index"}


_AUCS = ("auc", "auroc", "roc", "roc_auc", "roc_auc_score", "uqauc")  # nearer to "aurc" in letters


def get_metric(name: str) -> Metric:
    """The metric of that name, or an error that suggests the nearest."""
    if isinstance(name, str) and name in _APART:
        raise InputError(f"{name} takes other arguments than the metrics here: use uqeval.inference.{_APART[name]}.")
    if not isinstance(name, str) or name not in REGISTRY:
        meant = ' Did you mean "uq_auc"?' if str(name).lower() in _AUCS else nearest(name, REGISTRY)
        raise InputError(f'There is no metric "{name}".{meant} Metrics: {", ".join(REGISTRY)}.')
    return REGISTRY[name]
