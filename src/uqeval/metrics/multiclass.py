"""One-versus-rest: the two ranking metrics class by class, then averaged.

The direct multi-class metrics (`uq_auc`, `uq_c_index` on the K-class error and gap) are the default elsewhere.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval import kernels
from uqeval._check import (
    Float,
    Int,
    check_choice,
    check_labels,
    check_lengths,
    check_probs,
    check_vector,
    check_weights,
    to_array,
)
from uqeval._errors import InputError, UndefinedMetricWarning, UQWarning, collected, notify
from uqeval.metrics.concordance import c_index_value, uq_c_index
from uqeval.metrics.ranking import auc_value, uq_auc

Average = Literal["macro", "weighted", "micro"]
_MOST_ITEMS = 50_000_000


class Task(NamedTuple):
    """K binary tasks over the same rows."""

    name: str  # "uq_auc" or "uq_c_index"
    score: Float  # (n, K)
    target: Float  # (n, K): 0/1 error or order-safe gap of each class
    labels: Int
    weights: Float | None


def one_vs_rest(
    metric: str | Callable[..., float],
    score: ArrayLike,
    labels: ArrayLike,
    *,
    probs: ArrayLike | None = None,
    average: Average = "macro",
    decision: Literal["argmax", "half"] = "argmax",
    weights: ArrayLike | None = None,
    force: bool = False,
) -> float:
    """UQ-AUC or UQ-C-index over the K tasks "class k or not".

    Task k has the gap |1{y=k} − p̂_k| as loss, and an error where 1{y=k} differs from the decision for class k.

    Parameters
    ----------
    metric : "uq_auc" or "uq_c_index", or the function itself
        What to compute in each task.
    score : array-like of shape (n,), (n, K), or the probabilities themselves
        A score shared by all classes, or one per class. Without `probs`, an (n, K) array that is the
        probabilities: then the score of class k is min(p̂_k, 1 − p̂_k).
    labels : array-like of shape (n,)
        True classes 0..K-1.
    probs : array-like of shape (n, K), optional
        Predicted probabilities, when `score` is not them.
    average : "macro", "weighted" or "micro"
        Mean over the classes where the metric is defined; the same weighted by prevalence; or all (row, class)
        items pooled, comparing items of different rows only.
    decision : "argmax" or "half"
        Class k is predicted where it has the largest probability (the deployed predictor), or where p̂_k > 1/2
        (the one that the paper's binary theory covers).
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    force : bool
        Pool more than 5·10⁷ items.

    Returns
    -------
    float
        In [0, 1]; NaN (with a warning) if no class is defined.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.45, 0.55]]
    >>> one_vs_rest("uq_auc", probs, labels=[0, 1, 1, 0])
    1.0
    """
    task = check_task(metric, score, labels, probs, decision, weights)
    if check_choice("average", average, ("macro", "weighted", "micro")) == "micro":
        return _micro(task, force)
    return averaged(task, *class_values(task), average)[0]


def averaged(task: Task, values: Float, prevalence: Float, average: Average) -> tuple[float, Float]:
    """The mean of the values of the classes, and the share that each has in it: 0 where the metric is undefined."""
    defined = ~np.isnan(values)
    share = np.where(defined, 1.0 if average == "macro" else prevalence, 0.0)
    if not defined.any():
        notify(f"One-versus-rest {task.name} is undefined in every class.", UndefinedMetricWarning, stacklevel=3)
        return float("nan"), share
    if not defined.all():
        skipped = ", ".join(str(k) for k in np.flatnonzero(~defined))
        notify(f"{task.name} is undefined for classes {skipped}, which are left out.", UQWarning, stacklevel=3)
    if share.sum() == 0:
        notify(f"No row belongs to a class where {task.name} is defined.", UndefinedMetricWarning, stacklevel=3)
        return float("nan"), share
    return float((share[defined] * values[defined]).sum() / share.sum()), share / share.sum()


def check_task(
    metric: str | Callable[..., float],
    score: ArrayLike,
    labels: ArrayLike,
    probs: ArrayLike | None,
    decision: str,
    weights: ArrayLike | None,
) -> Task:
    names = {uq_auc: "uq_auc", uq_c_index: "uq_c_index"}
    name = check_choice("metric", names.get(metric, metric) if callable(metric) else metric, ("uq_auc", "uq_c_index"))
    if probs is None:
        if np.ndim(to_array("score", score)) != 2:
            raise InputError("One-versus-rest with a shared `score` needs the predictions too. Pass probs=…")
        p = check_probs(score, name="score")
        s = np.minimum(p, 1.0 - p) if p.shape[1] > 2 else np.repeat(p.min(axis=1, keepdims=True), 2, axis=1)
    else:
        p = check_probs(probs)
        raw = to_array("score", score)
        if raw.ndim == 2:
            if raw.shape != p.shape:
                raise InputError(
                    f"`score` has shape {raw.shape} but `probs` has {p.shape}. Pass (n,) or the same shape."
                )
            s = np.stack([check_vector(f"score[:, {k}]", raw[:, k], finite=False) for k in range(raw.shape[1])], axis=1)
        else:
            s = np.repeat(check_vector("score", score, finite=False)[:, None], p.shape[1], axis=1)
    y = check_labels(labels, p.shape[1])
    check_lengths(score=s, labels=y, probs=p)
    if np.isinf(s).any():
        notify("`score` has infinite values; they rank first or last and tie.", UQWarning, stacklevel=3)
    w = None
    if weights is not None:
        w, keep = check_weights(weights, len(p))
        if keep is not None:
            s, p, y = s[keep], p[keep], y[keep]
    is_class = y[:, None] == np.arange(p.shape[1])
    target: NDArray[np.float64]
    if name == "uq_c_index" and p.shape[1] == 2:
        target = np.repeat(-p[np.arange(len(y)), y][:, None], 2, axis=1)  # both tasks are the direct one
    elif name == "uq_c_index":
        target = class_gap(p, is_class)
    elif check_choice("decision", decision, ("argmax", "half")) == "argmax":
        target = (is_class != (p.argmax(axis=1)[:, None] == np.arange(p.shape[1]))).astype(np.float64)
    else:
        target = (is_class != (p > 0.5)).astype(np.float64)
    return Task(name, s, target, y, w)


def class_gap(probs: Float, is_class: NDArray[np.bool_]) -> Float:
    """Ranks of |1{y=k} − p̂_k| by class: 1 − p̂_k is kept exact as a sum of two floats, so no row ties by rounding."""
    high = np.where(is_class, 1.0 - probs, probs)
    low = np.where(is_class, (1.0 - high) - probs, 0.0)
    order = np.lexsort((low.reshape(-1), high.reshape(-1)))
    h, r = high.reshape(-1)[order], low.reshape(-1)[order]
    ranks = np.empty(probs.size)
    ranks[order] = np.cumsum(np.concatenate([[0.0], (h[1:] != h[:-1]) | (r[1:] != r[:-1])]))
    return ranks.reshape(probs.shape)


def class_values(task: Task) -> tuple[Float, Float]:
    """The metric in each class (NaN where undefined) and the prevalence of the class."""
    classes = task.score.shape[1]
    values = np.empty(classes)
    with collected():  # reported together by the caller
        for k in range(classes):
            s, t = np.ascontiguousarray(task.score[:, k]), np.ascontiguousarray(task.target[:, k])
            if task.name == "uq_auc":
                values[k] = auc_value(s, t.astype(np.uint8), task.weights)
            else:
                values[k] = c_index_value(s, t, task.weights)
    w = np.ones(len(task.labels)) if task.weights is None else task.weights
    order = np.lexsort((w, task.labels))  # sums that do not depend on the order of rows
    prevalence = np.bincount(task.labels[order], weights=w[order], minlength=classes)
    return values, prevalence / prevalence.sum()


def _micro(task: Task, force: bool) -> float:
    _check_items(task, force)
    n, classes = task.score.shape
    if task.weights is not None:
        credit, weight = pooled_counts(task, force)
        total = kernels.order_free_sum(task.weights * weight)
        value = kernels.order_free_sum(task.weights * credit) / total if total > 0 else float("nan")
    else:
        s, t = task.score.reshape(-1), task.target.reshape(-1)
        sums = kernels.concordance(s, t)
        inside2, inside = kernels.within_sums(s, t, kernels.group(np.repeat(np.arange(n), classes)))
        pairs = sums.comparable - int(inside.sum())
        value = (sums.credit2 - int(inside2.sum())) / (2 * pairs) if pairs else float("nan")
    if value != value:
        notify(f"Micro {task.name} is undefined: no comparable pair.", UndefinedMetricWarning, stacklevel=3)
    return value


def pooled_counts(task: Task, force: bool = False) -> tuple[Float, Float]:
    """Credit and (weight of the) comparable items of each row, over its items and those of the other rows."""
    _check_items(task, force)
    n, classes = task.score.shape
    weights = np.ones(n) if task.weights is None else task.weights
    order = np.lexsort((*task.score.T, *task.target.T, weights))  # float sums run row by row: fix the order of rows
    s, t, w = task.score[order].reshape(-1), task.target[order].reshape(-1), np.repeat(weights[order], classes)
    orders, row = (kernels.order_by(s), kernels.order_by(t)), kernels.group(np.repeat(np.arange(n), classes))
    every, own = kernels.weighted_pair_counts(*orders, w), kernels.weighted_pair_counts(*orders, w, row)
    credit, comparable = np.empty(n), np.empty(n)
    for out, x, y in zip((credit, comparable), every, own, strict=True):
        out[order] = (x - y).reshape(n, classes).sum(axis=1)
    return credit, comparable


def _check_items(task: Task, force: bool) -> None:
    n, classes = task.score.shape
    if n * classes > _MOST_ITEMS and not force:
        raise InputError(
            f"Pooling {n} rows × {classes} classes makes {n * classes:,} items. Pass force=True to do it all the same, "
            f'or average="macro".'
        )
