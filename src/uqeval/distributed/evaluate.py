"""The one door: every score against every metric, from arrays, frames, files or a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Nan, Progress, check_choice, check_level, check_seed_kind
from uqeval._errors import UQWarning, collected, notify
from uqeval.distributed.given import Arrays, Where, check_risk, refuse_risk
from uqeval.distributed.source import Source
from uqeval.evaluation.evaluate import How, evaluate_rows
from uqeval.evaluation.result import Evaluation
from uqeval.inference.bootstrap import check_resamples, refuse_largest

if TYPE_CHECKING:
    from uqeval.distributed.engines.protocol import Engine


def evaluate(
    source: Any = None,
    *,
    scores: Sequence[str] | str | None = None,
    metrics: Sequence[str] | str | None = None,
    level: float = 0.95,
    method: str = "default",
    resamples: int = 2000,
    score: ArrayLike | Mapping[str, ArrayLike] | str | None = None,
    error: ArrayLike | str | None = None,
    loss: ArrayLike | str | None = None,
    correct: ArrayLike | str | None = None,
    quality: ArrayLike | str | None = None,
    risk: str | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    by: str | None = None,
    cluster: str | None = None,
    largest_cluster: int | None = None,
    engine: str | Engine | None = None,
    memory_limit: str | int | None = None,
    client: Any = None,
    spill: str | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
    progress: Progress | None = None,
    **columns: Any,
) -> Evaluation:
    """All metrics, with intervals, of one or more uncertainty scores.

    Parameters
    ----------
    source : Predictions, frame, lazy frame, or path of a file, pattern or list of them; optional
        What the model said on the test set. A lazy frame (Polars, DuckDB, Ibis, Dask, PySpark) is not collected, and
        files that would not fit in memory are read piece by piece. Or pass plain arrays by name instead. Tensors of a
        CUDA device are counted there (scores, errors and a loss: with weights, clusters, groups, another `risk` or the
        bootstrap, they are copied to the host), and leave no rows to plot.
    score : array-like of shape (n,), or dict of name → array
        Uncertainty; higher means less sure. With a file or frame: the columns of your own scores, as "unc_*".
    error, loss, weights, clusters, groups : array-like of shape (n,), optional
        As in `Predictions`; at least one of `error` and `loss`. With a file or frame: names of columns.
    correct, quality : array-like of shape (n,), or the name of a column; optional
        In place of `error` and `loss`, where high is good: the error is 1 − correct, the loss 1 − quality.
    risk : "error" or "loss", optional
        What AURC and its relatives, the charts and the report's thresholds take where both are known: the errors by
        default. `Evaluation.targets` says what each metric used.
    scores : list of str, optional
        Which scores to judge, by name; all that the predictions allow by default (`uqeval.scores.available`).
    metrics : list of str, optional
        Which metrics; all that the data allow by default (`uqeval.metrics.REGISTRY`; engines know those that stream).
    level : float
        Confidence level.
    method : "default" or "bootstrap"
        The intervals chosen by simulation, or percentiles of `resamples` bootstrap values (in memory only).
    by, cluster : str, optional
        Columns of groups to report apart and of independent units, as patients with several rows each; `group` and
        `cluster` by default, where they exist.
    largest_cluster : int, optional
        The most rows that any cluster can have, seen or not: intervals leave room for one so large that was not seen.
        Without it they take clusters that were not seen for much like those that were.
    engine : "memory", "local", "dask", "spark" or an Engine, optional
        Who counts: all rows in memory, threads of this machine that read piece by piece, or a cluster. By default
        memory where the rows fit, else local.
    memory_limit : str or int, optional
        How much memory an engine may use, as "2GB" (the default, or half of what is free where that is less).
    client : object, optional
        The Dask client or address, or the Spark session.
    spill : str, optional
        Folder for temporary rows of an engine; the system's own by default. Nothing is left there.
    nan : "raise" or "omit"
        What to do with rows of plain arrays that hold NaN.
    seed : int or numpy Generator
        For the intervals that draw random numbers.
    progress : callable(stage, done, total), optional
        Called after each estimate, with the rows done in each stage of an engine, or with the resamples.
    **columns
        Other names of columns, as in `uqeval.read_predictions` (label="y", prob="p_*", …).

    Returns
    -------
    Evaluation
        ``ev["entropy", "uq_auc"].low``; prints as a table. From an engine it has `run` (rows, passes, shuffles, bytes,
        seconds) and no rows, so that it cannot be plotted.

    Examples
    --------
    >>> from uqeval.datasets import example
    >>> ev = evaluate(example(), scores=["entropy", "mutual_information"], metrics=["uq_auc"])
    >>> print(ev["entropy", "uq_auc"])
    0.907 (0.880–0.926)
    >>> ev = evaluate("preds/*.parquet", by="hospital", engine="local", memory_limit="1GB")  # doctest: +SKIP
    """
    level = check_level(level)
    seed = check_seed_kind(seed)
    count = check_resamples(resamples) if check_choice("method", method, ("default", "bootstrap")) == "bootstrap" else 0
    # One seed for all: an interval does not depend on what else is asked for.
    draws = int(seed.integers(2**63)) if isinstance(seed, np.random.Generator) else seed
    refuse_largest(largest_cluster, method)
    how = How(level, count, draws, progress, check_risk(risk), largest_cluster)
    named = [metrics] if isinstance(metrics, str) else None if metrics is None else list(metrics)
    arrays = Arrays(score, error, loss, correct, quality, weights, clusters, groups)
    where = Where(engine, memory_limit, client, spill, by, cluster, largest_cluster)
    with collected() as raised:
        notes: tuple[str, ...] = ()
        plain = source is None and scores is None and nan == "raise" and where == Where() and not columns
        found = _on_device(arrays, named, how) if plain else None
        if found is None:
            opened = Source.open(source, arrays, where, scores, named, columns, nan, progress)
            with opened.explained():
                if opened.pred is not None:
                    found = evaluate_rows(opened.pred, opened.scores, named, how)
                else:
                    refuse_risk(risk)
                    from uqeval.distributed.plan.estimates import evaluate_engine

                    found = evaluate_engine(*opened.on_engine(named, "bootstrap" if count else None), how)
            notes = opened.notes()
    found = replace(found, warnings=tuple(dict.fromkeys((*raised, *found.warnings, *notes))))
    for note in found.warnings:
        notify(note, UQWarning, stacklevel=2)
    return found


def _on_device(arrays: Arrays, metrics: list[str] | None, how: How) -> Evaluation | None:
    """None where rows must come to the host, or are there."""
    if not arrays.on_device() or how.resamples or how.risk == "loss":
        return None
    from uqeval.torch.evaluation import evaluate_tensors

    return evaluate_tensors(arrays.named(), arrays.error, arrays.loss, metrics, how)
