"""The metrics of `uqeval.metrics` that rank rows, on tensors: where the tensors are, and with the same integers.

CPU or CUDA; scores of float16, bfloat16, float32 or float64 (or integers) are compared as they are. Each function
counts, waits for the device once, for a handful of numbers, and gives a float64 tensor without dimensions, there. Input
checks and their messages are those of arrays. `estimate` gives the intervals. Weights, clusters and losses in [0, 1] in
place of 0/1 errors are for `uqeval.metrics` and `uqeval.estimate`, which take arrays.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from uqeval._check import check_level
from uqeval._errors import InputError, UndefinedMetricWarning, notify
from uqeval.inference.estimate import announce, arguments
from uqeval.inference.result import Estimate
from uqeval.inference.tally import AucTally
from uqeval.metrics.areas import Accepted
from uqeval.metrics.registry import REGISTRY, Metric, get_metric
from uqeval.metrics.selective import check_coverage
from uqeval.torch.tallies import counts, estimate_of, share_tally, tally_of

__all__ = [
    "accuracy",
    "auarc",
    "augrc",
    "aurc",
    "e_aurc",
    "estimate",
    "g_auc",
    "h_auc",
    "naurc",
    "prr",
    "selective_accuracy",
    "top_label_c_index",
    "uq_auc",
    "uq_c_index",
]


def uq_auc(score: Tensor, error: Tensor) -> Tensor:
    """Probability that a wrong prediction gets a higher score than a right one: `uqeval.metrics.uq_auc`.

    Parameters
    ----------
    score : Tensor of shape (n,)
        Uncertainty; higher means less sure.
    error : Tensor of shape (n,)
        1 where the prediction is wrong, else 0; bool or any number type.

    Returns
    -------
    Tensor
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) without a wrong or without a right row.

    Examples
    --------
    >>> from torch import tensor
    >>> uq_auc(tensor([0.9, 0.8, 0.3, 0.8]), tensor([1, 1, 0, 0]))
    tensor(0.8750, dtype=torch.float64)
    """
    return _value("uq_auc", score, error)


def uq_c_index(score: Tensor, loss: Tensor) -> Tensor:
    """Probability that of two rows with different losses the one with the larger loss has the higher score.

    As `uqeval.metrics.uq_c_index`. Counted by a wavelet tree over the ranks, in Triton on a CUDA tensor if it is there.

    Parameters
    ----------
    score : Tensor of shape (n,)
        Uncertainty; higher means less sure.
    loss : Tensor of shape (n,)
        Any per-row loss; only its order matters.

    Returns
    -------
    Tensor
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) if all losses are equal.

    Examples
    --------
    >>> from torch import tensor
    >>> uq_c_index(tensor([0.1, 0.4, 0.4, 0.9]), tensor([0.0, 0.2, 0.3, 0.3]))
    tensor(0.9000, dtype=torch.float64)
    """
    return _value("uq_c_index", score, loss)


def top_label_c_index(score: Tensor, confidence: Tensor, error: Tensor) -> Tensor:
    """UQ-C-index against the signed confidence, −c of right and c of wrong rows: `uqeval.metrics.top_label_c_index`.

    Parameters
    ----------
    score : Tensor of shape (n,)
        Uncertainty; higher means less sure.
    confidence : Tensor of shape (n,)
        Probability of the predicted class, in [0, 1].
    error : Tensor of shape (n,)
        1 where the prediction is wrong, else 0.

    Returns
    -------
    Tensor
        In [0, 1]; 0.5 is a useless score.

    Examples
    --------
    >>> from torch import tensor
    >>> top_label_c_index(tensor([0.1, 0.4, 0.4, 0.9]), tensor([0.9, 0.6, 0.5, 0.7]), tensor([0, 0, 1, 1]))
    tensor(0.9167, dtype=torch.float64)
    """
    return _value("top_label_c_index", score, confidence, error)


def aurc(score: Tensor, error: Tensor) -> Tensor:
    """Area under the risk–coverage curve (Geifman & El-Yaniv 2018): `uqeval.metrics.aurc`. Lower is better.

    Parameters
    ----------
    score : Tensor of shape (n,)
        Uncertainty; higher means less sure.
    error : Tensor of shape (n,)
        1 where the prediction is wrong, else 0.

    Examples
    --------
    >>> from torch import tensor
    >>> aurc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0.0625, dtype=torch.float64)
    """
    return _value("aurc", score, error)


def e_aurc(score: Tensor, error: Tensor) -> Tensor:
    """AURC less that of the oracle on the same rows: `uqeval.metrics.e_aurc`. 0 for a perfect ranking.

    Examples
    --------
    >>> from torch import tensor
    >>> e_aurc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0., dtype=torch.float64)
    """
    return _value("e_aurc", score, error)


def naurc(score: Tensor, error: Tensor) -> Tensor:
    """AURC between the oracle (0) and a useless score (1): `uqeval.metrics.naurc`.

    Examples
    --------
    >>> from torch import tensor
    >>> naurc(tensor([0.0, 0.0, 0.0, 0.0]), tensor([0, 1, 0, 0]))
    tensor(1., dtype=torch.float64)
    """
    return _value("naurc", score, error)


def augrc(score: Tensor, error: Tensor) -> Tensor:
    """Area under the generalised risk–coverage curve (Traub et al. 2024): `uqeval.metrics.augrc`. Lower is better.

    Examples
    --------
    >>> from torch import tensor
    >>> augrc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0.0312, dtype=torch.float64)
    """
    return _value("augrc", score, error)


def g_auc(score: Tensor, error: Tensor) -> Tensor:
    """The paper's G-AUC, 2·AUGRC: `uqeval.metrics.g_auc`. Lower is better.

    Examples
    --------
    >>> from torch import tensor
    >>> g_auc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0.0625, dtype=torch.float64)
    """
    return _value("g_auc", score, error)


def h_auc(score: Tensor, error: Tensor) -> Tensor:
    """The paper's H-AUC, UQ-AUC·(1 − ACC)·ACC, in [0, 1/4]: `uqeval.metrics.h_auc`.

    Examples
    --------
    >>> from torch import tensor
    >>> h_auc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0.1875, dtype=torch.float64)
    """
    return _value("h_auc", score, error)


def auarc(score: Tensor, error: Tensor) -> Tensor:
    """Area under the accuracy–rejection curve, 1 − AURC: `uqeval.metrics.auarc`.

    Examples
    --------
    >>> from torch import tensor
    >>> auarc(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(0.9375, dtype=torch.float64)
    """
    return _value("auarc", score, error)


def prr(score: Tensor, error: Tensor) -> Tensor:
    """Prediction–rejection ratio, 1 − nAURC: `uqeval.metrics.prr`. 1 for the oracle, 0 for a useless score.

    Examples
    --------
    >>> from torch import tensor
    >>> prr(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 0, 1]))
    tensor(1., dtype=torch.float64)
    """
    return _value("prr", score, error)


def selective_accuracy(score: Tensor, error: Tensor, coverage: float = 0.9) -> Tensor:
    """Accuracy of the surest share of the rows: `uqeval.metrics.selective_accuracy`.

    Parameters
    ----------
    score : Tensor of shape (n,)
        Uncertainty; higher means less sure.
    error : Tensor of shape (n,)
        1 where the prediction is wrong, else 0.
    coverage : float
        Share of the rows that is accepted, above 0 and at most 1.

    Examples
    --------
    >>> from torch import tensor
    >>> selective_accuracy(tensor([1.0, 2.0, 3.0, 4.0, 5.0]), tensor([0, 0, 0, 1, 1]), coverage=0.8)
    tensor(0.7500, dtype=torch.float64)
    """
    return value_of(selective_record(coverage), (score, error))


def accuracy(error: Tensor) -> Tensor:
    """Share of right predictions: `uqeval.metrics.accuracy`.

    Examples
    --------
    >>> from torch import tensor
    >>> accuracy(tensor([0, 0, 0, 1]))
    tensor(0.7500, dtype=torch.float64)
    """
    return _as_tensor(share_tally(error).value, error)


def estimate(metric: str, *data: Tensor, level: float = 0.95, **named: Tensor) -> Estimate:
    """One metric with its standard error and confidence interval: what `uqeval.estimate` gives for independent rows.

    Parameters
    ----------
    metric : str
        A name of `uqeval.metrics.REGISTRY` that has its namesake here (or "selective_accuracy_80", "…_90", "…_95").
    *data, **named : Tensor
        What the metric needs, in order or by name.
    level : float
        Confidence level.

    Returns
    -------
    Estimate
        With `value`, `low`, `high`, `se`, `method`, `warnings`.

    Examples
    --------
    >>> from torch import tensor
    >>> result = estimate("uq_c_index", tensor([3, 1, 2, 5, 4, 6, 2, 7]), loss=tensor([1, 0, 2, 4, 5, 3, 6, 7]))
    >>> print(result, result.method)
    0.696 (0.223–0.958) logit jackknife t; an unseen row
    """
    chosen, level = get_metric(metric), check_level(level)
    if not counts(chosen):
        known = ", ".join(name for name, one in REGISTRY.items() if counts(one))
        raise InputError(f"{metric} is not computed on tensors; uqeval.estimate takes arrays. On tensors: {known}.")
    found = estimate_of(chosen, arguments(chosen, data, named), level)
    announce(found, stacklevel=3)
    return found


def selective_record(coverage: float) -> Metric:
    """The accuracy of any share of the rows, as those of the registry."""
    rule, known = Accepted(check_coverage(coverage)), REGISTRY["selective_accuracy_90"]
    title = f"accuracy of the surest {100 * coverage:g}%"
    return replace(known, title=title, function=partial(known.function, coverage=coverage), formula=rule)


def _value(name: str, *data: Any) -> Tensor:
    return value_of(REGISTRY[name], data, stacklevel=4)


def value_of(metric: Metric, data: Sequence[Any], stacklevel: int = 3) -> Tensor:
    """Of a metric that ranks rows, where the tensors are."""
    tally = tally_of(metric, data, stacklevel + 1)
    value = float(tally.mapped(metric.affine))
    if value != value:
        notify(f"{metric.title} is undefined: {_reason(metric, tally)}.", UndefinedMetricWarning, stacklevel)
    return _as_tensor(value, data[0])


def _reason(metric: Metric, tally: Any) -> str:
    if not isinstance(tally, AucTally):
        return metric.undefined
    return f"the test set has no {'right' if tally.sizes.wrong.rows else 'wrong'} prediction"


def _as_tensor(value: float, like: Tensor) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=like.device)
