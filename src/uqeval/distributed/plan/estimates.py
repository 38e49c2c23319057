"""All estimates of the rows of an engine."""

from dataclasses import replace
from functools import partial

import numpy as np

from uqeval._check import check_seed
from uqeval._errors import collected, notify
from uqeval.distributed.engines.protocol import Engine
from uqeval.distributed.plan.all_scores import model_clusters, score_clusters
from uqeval.distributed.plan.by_group import by_group, estimates_of_group
from uqeval.distributed.plan.run import Request, Run
from uqeval.distributed.plan.tallies import calibration_cells, model_tally, ranking_tally
from uqeval.evaluation.across import same_in_groups
from uqeval.evaluation.evaluate import How, note_small
from uqeval.evaluation.notes import notes_of
from uqeval.evaluation.result import Evaluation
from uqeval.evaluation.table import Mixed, Row, Table
from uqeval.inference.calibrated import miscalibrated
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.means import estimate_ece, estimate_mean
from uqeval.inference.tally import Cells, EceTally


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
                    mixed = same_in_groups(Table(grouped))
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
        rows=(table := Table(rows)),
        warnings=tuple(notes_of(table, raised)),
        heterogeneity=mixed,
        same_ranking=None,
        targets={m.name: run.prepare.target_of(m) for m in run.metrics if m.uses_score},
        two_targets=run.prepare.two_targets,
        mean_loss=None if wrong is None else wrong / run.n,
        run=run.summary,
        classes=run.prepare.classes,
    )


def _rows(run: Run, how: How, tie_rate: dict[str, float]) -> list[Row]:
    """Every estimate of all rows of a run; notes the tie rates of its scores."""
    signed = [metric for metric in run.metrics if metric.made is not None]
    ranked = [metric for metric in run.metrics if metric.uses_score and metric not in signed]
    model = [metric for metric in run.metrics if not metric.uses_score]
    clustered = run.prepare.cluster is not None
    parts = [(part, some) for part, some in ((run, ranked), (run.against(signed) if signed else run, signed)) if some]
    by_column = {}
    for k, name in enumerate(run.names):
        for part, some in parts:
            sums, clusters = score_clusters(part, k, some) if clustered else (part.score(k), None)
            tie_rate[name] = sums.tie_rate
            for metric in some:
                found = estimate_ranking(metric, ranking_tally(metric, sums, clusters), how.level)
                by_column[name, metric] = Row(name, metric.name, None, found)
    rows = [by_column[name, metric] for name in run.names for metric in run.metrics if metric.uses_score]
    of_model = model_clusters(run, model) if clustered and model else None
    for metric in model:
        tally = model_tally(metric, run.state, of_model)
        if isinstance(tally, EceTally):
            drawn = (tally, calibration_cells(run.state), 1 - how.level, check_seed(how.seed))
            found = estimate_ece(metric, tally, how.level, partial(_rejected, *drawn))
        else:
            found = estimate_mean(metric, tally, how.level)
        rows.append(Row(None, metric.name, None, found))
    return rows


def _rejected(tally: EceTally, cells: Cells, alpha: float, rng: np.random.Generator, _: bool) -> bool:
    return miscalibrated(tally, cells, alpha, rng)


def _clusters(rows: list[Row]) -> int:
    """Clusters of all rows, or of the groups, each counted by itself."""
    return sum({row.group: row.estimate.n_clusters or 0 for row in rows}.values())
