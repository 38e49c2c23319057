"""The one door: every score against every metric, from arrays, frames, files or a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import Nan, Progress, check_choice, check_level, check_seed
from uqeval._errors import UQWarning, collected, notify
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.plan.all_scores import model_clusters, score_clusters
from uqeval.distributed.plan.by_group import by_group, estimates_of_group
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.plan.tallies import calibration_cells, model_tally, ranking_tally
from uqeval.distributed.source import Arrays, Source, Where
from uqeval.evaluation.evaluate import How, evaluate_rows, note_small, notes_of, same_in_groups
from uqeval.evaluation.result import Evaluation, Mixed, Row
from uqeval.inference.bootstrap import check_resamples
from uqeval.inference.intervals import estimate_ece, estimate_mean, estimate_ranking, miscalibrated
from uqeval.inference.tally import EceTally


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
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    by: str | None = None,
    cluster: str | None = None,
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
        files that would not fit in memory are read piece by piece. Or pass plain arrays by name instead:
    score : array-like of shape (n,), or dict of name → array
        Uncertainty; higher means less sure. With a file or frame: the columns of your own scores, as "unc_*".
    error, loss, weights, clusters, groups : array-like of shape (n,), optional
        As in `Predictions`; at least one of `error` and `loss`. With a file or frame: names of columns.
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
    0.907 (0.883–0.926)
    >>> ev = evaluate("preds/*.parquet", by="hospital", engine="local", memory_limit="1GB")  # doctest: +SKIP
    """
    level = check_level(level)
    rng = check_seed(seed)
    count = check_resamples(resamples) if check_choice("method", method, ("default", "bootstrap")) == "bootstrap" else 0
    # One seed for all: an interval does not depend on what else is asked for.
    draws = int(rng.integers(2**63)) if isinstance(seed, np.random.Generator) else int(seed)
    how = How(level, count, draws, progress)
    named = [metrics] if isinstance(metrics, str) else None if metrics is None else list(metrics)
    arrays = Arrays(score, error, loss, weights, clusters, groups)
    where = Where(engine, memory_limit, client, spill, by, cluster)
    with collected() as raised:
        opened = Source.open(source, arrays, where, scores, named, columns, nan, progress)
        with opened.explained():
            if opened.pred is not None:
                found = evaluate_rows(opened.pred, opened.scores, named, how)
            else:
                found = evaluate_engine(*opened.on_engine(named, count), how)
    found = replace(found, warnings=tuple(dict.fromkeys((*raised, *found.warnings, *opened.notes()))))
    for note in found.warnings:
        notify(note, UQWarning, stacklevel=2)
    return found


# ---- on an engine -----------------------------------------------------------------------------------------------


def evaluate_engine(engine: Engine, request: Request, how: How) -> Evaluation:
    """All estimates of the rows of an engine; closes it, whatever happens."""
    try:
        with collected() as raised:
            run = Run(engine, request)
            for name, count in zip(run.names, run.state["infinite"].tolist(), strict=True):
                if count:
                    notify(f"{name}: {count} infinite values; they rank first or last and tie")
            tie_rate: dict[str, float] = {}
            rows = _rows(run, how, tie_rate)
            mixed: tuple[Mixed, ...] = ()
            if request.wanted.group is not None:
                plain = How(how.level, seed=how.seed)  # progress does not travel
                work = partial(estimates_of_group, run.names, [metric.name for metric in run.metrics], plain)
                found = by_group(run, work, lambda part: _rows(part, how, {}))
                small = [name for name, part in found.items() if part is None]
                grouped = [replace(row, group=name) for name, part in found.items() for row in part or ()]
                note_small(small)
                # Clusters counted group by group are more than in all where some span several.
                if run.prepare.cluster is not None and _clusters(grouped) + len(small) > _clusters(rows):
                    notify("clusters span several groups: no test across groups")
                else:
                    mixed = same_in_groups(grouped)
                rows += grouped
    finally:
        engine.close()
    wrong = int(run.state["wrong"]) if run.prepare.wants_error else None
    return Evaluation(
        n=run.n,
        n_errors=wrong,
        accuracy=None if wrong is None else (run.n - wrong) / run.n,
        level=how.level,
        tie_rate=tie_rate,
        rows=tuple(rows),
        warnings=tuple(notes_of(rows, raised)),
        heterogeneity=mixed,
        run=run.summary,
    )


def _rows(run: Run, how: How, tie_rate: dict[str, float]) -> list[Row]:
    """Every estimate of all rows of a run; notes the tie rates of its scores."""
    ranked = [metric for metric in run.metrics if metric.uses_score]
    model = [metric for metric in run.metrics if not metric.uses_score]
    clustered = run.prepare.cluster is not None
    rows = []
    for k, name in enumerate(run.names):
        sums, clusters = score_clusters(run, k, ranked) if clustered else (run.score(k), None)
        tie_rate[name] = sums.tie_rate
        for metric in ranked:
            found = estimate_ranking(metric, ranking_tally(metric, sums, clusters), how.level)
            rows.append(Row(name, metric.name, None, found))
    of_model = model_clusters(run, model) if clustered and model else None
    for metric in model:
        tally = model_tally(metric, run.state, of_model)
        if isinstance(tally, EceTally):
            drawn = (calibration_cells(run.state), 1 - how.level, check_seed(how.seed))
            found = estimate_ece(metric, tally, how.level, partial(miscalibrated, tally, *drawn))
        else:
            found = estimate_mean(metric, tally, how.level)
        rows.append(Row(None, metric.name, None, found))
    return rows


def _clusters(rows: list[Row]) -> int:
    """Clusters of all rows, or of the groups, each counted by itself."""
    return sum({row.group: row.estimate.n_clusters or 0 for row in rows}.values())
