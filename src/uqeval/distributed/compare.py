"""`uqeval.compare` for rows that do not fit in memory: K scores of one source in one chain of shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uqeval._check import Progress, check_choice, check_level, check_seed
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval.distributed.engines.open import open_engine
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.evaluate import column_options
from uqeval.distributed.plan.group_pairs import pairs_by_group, same_everywhere
from uqeval.distributed.plan.paired import Found, pairs_of_run
from uqeval.distributed.plan.run import RANKED, Request, Run
from uqeval.distributed.result import Summary
from uqeval.evaluation.candidates import find_pairs
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.evaluation.lazy import kind_of
from uqeval.inference.multiplicity import adjust as adjust_contrasts
from uqeval.metrics.registry import get_metric

__all__ = ["DistributedComparison", "compare"]

NAN = float("nan")


@dataclass(frozen=True)
class DistributedComparison(Comparison):
    """A `Comparison` whose rows never were in one place; `run` says what it cost."""

    run: Summary | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape, and the cost of the run under "run"."""
        return {**super().to_dict(), "run": None if self.run is None else self.run.to_dict()}


def compare(
    source: Any,
    *,
    score: Sequence[str] | None = None,
    metric: str = "uq_auc",
    baseline: str | None = None,
    adjust: str = "max-t",
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
) -> DistributedComparison:
    """Paired differences of a metric between scores of the same rows: the same numbers as `uqeval.compare`.

    Parameters
    ----------
    source, engine, memory_limit, client, by, cluster, progress, spill, **columns
        As in `uqeval.distributed.evaluate`.
    score : list of str, optional
        Which scores; all by default.
    metric : str
        One that ranks scores: UQ-AUC, UQ-C-index, AURC and relatives.
    baseline, adjust, level, seed
        As in `uqeval.compare`.

    Returns
    -------
    DistributedComparison
        A `Comparison` with `run`: rows, passes, shuffles, bytes and seconds. With `by`, the pairs inside each group
        too; max-t then draws for every group in turn, some 10 ms each, where there are three scores or more.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> error = [0] * 15 + [1, 0] * 10 + [1] * 5
    >>> rows = pa.table({"score_a": range(40), "score_b": [k % 7 for k in range(40)], "error": error})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parquet.write_table(rows, f"{folder}/part-0.parquet")
    ...     cmp = compare(f"{folder}/*.parquet")
    >>> cmp.groups()
    [['a'], ['b']]
    """
    level = check_level(level)
    check_seed(seed)
    check_choice("adjust", adjust, ("max-t", "holm", "none"))
    chosen = get_metric(metric)
    if metric not in RANKED:
        raise InputError(f"{metric} does not compare scores of one model here. Choose from {', '.join(RANKED)}.")
    if isinstance(score, str):
        raise InputError(f"Only one candidate ({score}). Pass at least two.")
    if isinstance(engine, str) and engine == "local" and kind_of(source) is not None:
        from uqeval.distributed.engines.frames import compare_frame

        more: dict[str, Any] = {"client": client, "progress": progress, "spill": spill, "level": level, "seed": seed}
        more |= {"score": score, "metric": metric, "baseline": baseline, "adjust": adjust, "by": by, **columns}
        return compare_frame(source, memory_limit=memory_limit, cluster=cluster, **more)
    options, texts = column_options(columns, cluster, by)
    request = Request(None if score is None else list(score), [metric], options, cluster, by)
    opened = open_engine(engine, source, memory_limit, client, progress, spill, texts)
    rng = check_seed(seed)
    try:
        with collected() as raised:
            run = Run(opened, request)
            if len(run.names) < 2:
                raise InputError(f"Only one candidate ({run.names[0]}). Pass at least two.")
            pairs = find_pairs(run.names, baseline)
            whole = pairs_of_run(run, metric, pairs)
            groups, tested = ({}, False) if by is None else pairs_by_group(run, metric, pairs, whole.clusters)
    finally:
        opened.close()
    rows = _rows(run.names, pairs, None, whole, adjust, level, rng)
    mixed = {}
    for group, found in groups.items():  # one after the other: they share the draws behind max-t
        rows += _rows(run.names, pairs, group, found, adjust, level, rng)
    for k, (a, b) in enumerate(pairs if tested else []):
        if (p := same_everywhere(list(groups.values()), k)) is not None:
            mixed[run.names[a], run.names[b]] = p
    notes = [*dict.fromkeys(raised), *_cautions(run, "error" in chosen.needs, whole.clusters)]
    for note in notes:
        notify(note, UQWarning, stacklevel=2)
    return DistributedComparison(
        metric=metric,
        adjust=adjust,
        level=level,
        method="influence",
        n=run.n,
        baseline=baseline,
        values=dict(zip(run.names, map(float, whole.joint.values), strict=True)),
        rows=tuple(rows),
        heterogeneity=mixed,
        warnings=tuple(notes),
        run=run.summary,
    )


def _rows(
    names: list[str],
    pairs: list[tuple[int, int]],
    group: str | None,
    found: Found,
    adjust: str,
    level: float,
    rng: np.random.Generator,
) -> list[Pair]:
    """Differences of all rows or of a group, with intervals and adjusted p-values."""
    adjusted = adjust_contrasts(adjust, found.joint, pairs, found.contrasts, level, rng)
    rows = []
    for (a, b), c, p, width in zip(pairs, found.contrasts, adjusted.p, adjusted.width, strict=True):
        half = width * c.se if c.se > 0 else 0.0 if c.se == 0 and c.difference == 0 else NAN
        spread = (c.difference, c.difference - half, c.difference + half, c.se, c.df, c.p, p)
        rows.append(Pair(names[a], names[b], group, *spread))
    return rows


def _cautions(run: Run, errors: bool, clusters: int) -> list[str]:
    notes = []
    wrong = int(run.state["wrong"])
    if errors:
        for what, count in (("errors", wrong), ("right rows", run.n - wrong)):
            if count < 10:
                notes.append(f"few {what} ({count}): the tests have little power")
    if run.prepare.cluster is not None and clusters < 10:
        notes.append("a single cluster: no intervals and no tests" if clusters == 1 else f"few clusters ({clusters})")
    for name, count in zip(run.names, run.state["infinite"].tolist(), strict=True):
        if count:
            notes.append(f"{name}: {count} infinite values; they rank first or last and tie")
    return notes
