"""`uqeval.evaluate` for rows that do not fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from uqeval._check import Progress, check_level, check_seed
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.plan.by_group import clusters_in, estimate_rows, evaluate_groups
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.result import Summary
from uqeval.evaluation.evaluate import _notes
from uqeval.evaluation.lazy import kind_of
from uqeval.evaluation.result import Evaluation, Mixed
from uqeval.inputs.columns import Columns

__all__ = ["DistributedEvaluation", "column_options", "evaluate", "run_plan"]


@dataclass(frozen=True)
class DistributedEvaluation(Evaluation):
    """An `Evaluation` whose rows never were in one place; `run` says what it cost."""

    run: Summary | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape, and the cost of the run under "run"."""
        return {**super().to_dict(), "run": None if self.run is None else self.run.to_dict()}


def evaluate(
    source: Any,
    *,
    score: str | Sequence[str] | None = None,
    metrics: Sequence[str] | str | None = None,
    engine: str | Engine = "local",
    memory_limit: str | int = "2GB",
    client: Any = None,
    by: str | None = None,
    cluster: str | None = None,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    spill: str | None = None,
    **columns: Any,
) -> DistributedEvaluation:
    """All metrics, with intervals, of rows that do not fit in memory: the same numbers as `uqeval.evaluate`.

    Parameters
    ----------
    source : str, path or list of them; or a lazy frame
        Parquet, Arrow, CSV or JSON-lines files, or a pattern such as "preds/*.parquet". A lazy frame of any kind is
        taken as `uqeval.evaluate` takes it, its columns `group` and `cluster` in use.
    score : str or list of str, optional
        Score columns, or names of scores that are computed from probabilities (`uqeval.scores.available`). All by
        default.
    metrics : list of str, optional
        UQ-AUC, UQ-C-index, AURC and relatives (of 0/1 errors), accuracy, ECE, Brier score, log-loss; all that the
        columns allow by default.
    engine : "local", "dask", "spark" or an Engine
        Threads on this machine, or a cluster.
    memory_limit : str or int
        For "local", how much memory to use, as "2GB".
    client : object, optional
        The Dask client or address, or the Spark session.
    by : str, optional
        Column of groups (up to 10,000) to report separately.
    cluster : str, optional
        Column of independent units, as patients with several rows each.
    level : float
        Confidence level.
    seed : int
        For the test behind the lower end of the interval of ECE.
    progress : callable(stage, done, total), optional
        Called with the rows done in each stage.
    spill : str, optional
        Folder for temporary rows; the system's own by default. Nothing is left there.
    **columns
        Other names of columns, as in `uqeval.read_predictions` (error="wrong", loss="nll", prob="p*", …).

    Returns
    -------
    DistributedEvaluation
        An `Evaluation` with `run`: rows, passes, shuffles, bytes, seconds. It holds no rows, so it cannot be plotted.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> rows = pa.table({"score_s": range(40), "error": [0] * 15 + [1, 0] * 10 + [1] * 5})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parquet.write_table(rows, f"{folder}/part-0.parquet")
    ...     ev = evaluate(f"{folder}/*.parquet", metrics=["uq_auc"])
    >>> print(ev["s", "uq_auc"])
    0.853 (0.695–0.937)
    """
    level = check_level(level)
    check_seed(seed)
    if isinstance(engine, str) and engine == "local" and kind_of(source) is not None:
        from uqeval.distributed.engines.frames import evaluate_frame

        more: dict[str, Any] = {"client": client, "progress": progress, "spill": spill, "level": level, "seed": seed}
        more |= {"score": score, "metrics": metrics, "by": by, "cluster": cluster, **columns}
        return evaluate_frame(source, memory_limit=memory_limit, **more)
    options, texts = column_options(columns, cluster, by)
    names = [metrics] if isinstance(metrics, str) else None if metrics is None else list(metrics)
    scores = score if score is None or isinstance(score, str) else list(score)
    request = Request(scores, names, options, cluster, by)
    opened = open_engine(engine, source, memory_limit, client, progress, spill, texts)
    found = run_plan(opened, request, level, int(seed))
    for note in found.warnings:
        notify(note, UQWarning, stacklevel=2)
    return found


def column_options(columns: dict[str, Any], *keys: str | None) -> tuple[Columns, list[str]]:
    """Names of columns, and which of them hold texts whatever they look like."""
    known = [f.name for f in fields(Columns)]
    for name in columns:
        if name not in known or name in ("score", "cluster", "group"):
            raise InputError(f"`{name}` is no option of distributed.evaluate. Column options: {', '.join(known)}.")
    options = Columns(**columns)
    return options, [name for name in (options.label, options.pred, *keys) if name is not None]


def run_plan(engine: Engine, request: Request, level: float = 0.95, seed: int = 0) -> DistributedEvaluation:
    """Runs the plan and closes the engine, whatever happens."""
    try:
        with collected() as raised:
            return _evaluate(engine, request, level, seed, raised)
    finally:
        engine.close()


def _evaluate(engine: Engine, request: Request, level: float, seed: int, raised: list[str]) -> DistributedEvaluation:
    run = Run(engine, request)
    rows, tie_rate = estimate_rows(run, level, seed)
    mixed: tuple[Mixed, ...] = ()
    if request.group is not None:
        found, mixed = evaluate_groups(run, level, seed, clusters_in(rows))
        rows += found
    wrong = int(run.state["wrong"]) if run.prepare.wants_error else None
    return DistributedEvaluation(
        n=run.n,
        n_errors=wrong,
        accuracy=None if wrong is None else (run.n - wrong) / run.n,
        level=level,
        tie_rate=tie_rate,
        rows=tuple(rows),
        warnings=tuple(_notes(rows, raised)),
        heterogeneity=mixed,
        run=run.summary,
    )
