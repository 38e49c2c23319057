"""One-versus-rest metrics with standard error and interval: influence values of the classes, averaged as they are."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, check_choice, check_codes, check_lengths, check_level, check_weights, recode
from uqeval._errors import UndefinedMetricWarning, UQWarning, collected, notify
from uqeval.inference.forms import NAN, UNKNOWN, logit_t, settled, wilson
from uqeval.inference.influence import concordance_influence
from uqeval.inference.result import Estimate
from uqeval.inference.sample import Rows, Sample, kish
from uqeval.metrics.multiclass import Average, Task, averaged, check_task, class_values, pooled_counts
from uqeval.metrics.registry import REGISTRY

_FEW = 10


def estimate_one_vs_rest(
    metric: str | Callable[..., float],
    score: ArrayLike,
    labels: ArrayLike,
    *,
    probs: ArrayLike | None = None,
    average: Average = "macro",
    decision: Literal["argmax", "half"] = "argmax",
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    force: bool = False,
) -> Estimate:
    """`uqeval.metrics.one_vs_rest` with its standard error and confidence interval.

    Rows (or clusters) are the units, whatever the number of classes: a row moves the metric of every class, and with
    "weighted" also the prevalence of its own. Logit scale, t with one less than the rows that are wrong in any class
    (UQ-AUC), than all rows (UQ-C-index), or than the clusters.

    Parameters
    ----------
    clusters : array-like of shape (n,), optional
        Independent units, as patients with several rows each.
    level : float
        Confidence level.
    metric, score, labels, probs, average, decision, weights, force
        As in `uqeval.metrics.one_vs_rest`.

    Returns
    -------
    Estimate
        With `value`, `low`, `high`, `se`, `method`, `warnings`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet([1, 1, 1], size=300)
    >>> labels = [rng.choice(3, p=p) for p in probs]
    >>> print(estimate_one_vs_rest("uq_auc", probs, labels))
    0.722 (0.682–0.759)
    """
    level = check_level(level)
    check_choice("average", average, ("macro", "weighted", "micro"))
    with collected() as raised:
        task = check_task(metric, score, labels, probs, decision, weights)
        codes = None
        if clusters is not None:
            codes = check_codes("clusters", clusters)[0]
            check_lengths(labels=np.empty(np.shape(labels)[0]), clusters=codes)
            keep = None if weights is None else check_weights(weights, len(codes))[1]
            codes = codes if keep is None else recode(codes[keep])
        rows = Rows(len(task.labels), task.weights, codes)
        if average == "micro":
            value, influence = _pooled(task, rows, force)
        else:
            value, influence = _by_class(task, rows, average)
    result = _estimate(task, rows, value, influence, level, tuple(dict.fromkeys(raised)))
    for note in result.warnings:
        notify(note, UndefinedMetricWarning if math.isnan(result.value) else UQWarning, stacklevel=2)
    return result


def _by_class(task: Task, rows: Rows, average: Average) -> tuple[float, Float]:
    """Mean of the influences on the classes; weighted by prevalence, which moves with the rows too."""
    values, prevalence = class_values(task)
    value, share = averaged(task, values, prevalence, average)
    influence = np.zeros(rows.n)
    for k in np.flatnonzero(share > 0):
        own, target = (np.ascontiguousarray(x[:, k]) for x in (task.score, task.target))
        sample = Sample.of(own, target.astype(np.uint8) if task.name == "uq_auc" else target, task.weights)
        influence += share[k] * concordance_influence(sample)
    if average == "weighted" and not math.isnan(value):
        defined = ~np.isnan(values)
        moved = np.where(defined, np.nan_to_num(values) - value, 0.0) / prevalence[defined].sum()
        influence += moved[task.labels]
    return value, influence


def _pooled(task: Task, rows: Rows, force: bool) -> tuple[float, Float]:
    """2W(C_i − θM_i)/M, with the credit and the comparable items of a row against those of other rows."""
    credit, comparable = pooled_counts(task, force)
    total = kernels.order_free_sum(rows.w * comparable)
    if not total > 0:
        return NAN, np.zeros(rows.n)
    value = kernels.order_free_sum(rows.w * credit) / total
    return value, 2.0 * rows.total_weight * (credit - value * comparable) / total


def _estimate(task: Task, rows: Rows, value: float, influence: Float, level: float, notes: tuple[str, ...]) -> Estimate:
    wrong = (task.target > 0).any(axis=1) if task.name == "uq_auc" else None
    sizes = rows.sizes()
    units, errors = float(sizes.units), None if wrong is None else int(wrong.sum())
    n_eff, few = units / 2, units
    if wrong is not None:
        few, right = (kish(rows.w[side]) for side in (wrong, ~wrong))
        n_eff = few * right / (few + right)
    given: dict[str, Any] = {"n": rows.n, "n_errors": errors, "level": level, "n_eff": n_eff}
    given["n_clusters"] = None if sizes.clusters is None else sizes.clusters.all
    if math.isnan(value):
        title = REGISTRY[task.name].title
        notes = notes or (f"one-versus-rest {title} is undefined: no comparable pair",)
        return Estimate(NAN, NAN, NAN, NAN, method="undefined", degenerate=True, warnings=notes, **given)
    if errors is not None and errors < _FEW:
        notes += (f"few errors ({errors}): the interval is wide and conservative",)
    part = influence * (rows.w / rows.total_weight)
    if rows.clusters is not None:
        part = kernels.cell_sums(part, rows.clusters, len(rows.held))
        few = units
        notes += (f"few clusters ({len(part)}): the interval is unreliable",) if len(part) < _FEW else ()
    count, method, interval = len(part), "logit one-versus-rest influence t", UNKNOWN
    se = float(settled(math.sqrt(kernels.order_free_sum(part * part) * count / (count - 1)))) if count > 1 else NAN
    if count > 1 and (se == 0 or few <= 1 or not 0 < value < 1):
        interval, method = wilson(value, max(n_eff, 1.0), level), "Wilson"
    elif count > 1:
        interval = logit_t(value, se, level, few - 1)
    return Estimate(value, float(interval.low), float(interval.high), se, method=method, warnings=notes, **given)
