"""The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the true ϕ and φ do?

One cell is one architecture on one draw of the data: its networks are trained together and all their scores judged;
finished cells are stored, so a killed run goes on.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from uqeval import metrics, truth
from uqeval._check import Progress
from uqeval._errors import InputError, collected
from uqeval.kernels import cores
from uqeval.reproduce.store import Store, cell_key, processes, run_cells
from uqeval.reproduce.study import Timing, check_natural, correlate, judge_score, stored, summarise, within_kinds
from uqeval.reproduce.synthetic.networks import Outputs, algorithms, draw_of, outputs, read_grid
from uqeval.reproduce.synthetic.study import SyntheticStudy
from uqeval.reproduce.synthetic.verdicts import notes_of

_REVISION = 1  # raise it when a cell's numbers change: stored cells of another revision are computed anew
D_RANGE = (0.75, 2.4)


def synthetic(
    out: str | Path | None = None,
    *,
    seeds: int = 20,
    d_range: tuple[float, float] | None = D_RANGE,
    grid: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> SyntheticStudy:
    """Runs the whole grid on several draws of the data.

    Parameters
    ----------
    out : path, optional
        Folder for tables, figures and page, and for the store that lets a killed run go on; nothing is written without
        it.
    seeds : int
        How many draws. Which: the first seeds 0, 1, 2, … whose d lies in `d_range`; and the first ones whatever their
        d, for `any_d`.
    d_range : (low, high) or None
        Range of d, the distance between the two means, which drives all correlations; None takes every draw.
    grid : path, optional
        Another grid (see synthetic.toml of this package).
    jobs : int, optional
        Processes; all cores by default. The numbers do not depend on it.
    progress : callable(stage, done, total), optional
        Called after every cell, one architecture on one draw, and after every figure.

    Returns
    -------
    Study
        `correlations` per draw, `summary` over draws, the paper's row in `paper`; `any_d`, the correlations of the
        first seeds with no draw left out; `within`, those among scores of one kind alone.
    """
    count = check_natural("seeds", seeds, 1)
    table, timing = read_grid(grid), Timing()
    draws, skipped = _draws(table, count, d_range)
    same = {"study": "synthetic", "revision": _REVISION, "grid": {k: v for k, v in table.items() if k != "paper"}}
    first = list(range(count)) if skipped else []  # as the paper's law gives them
    cells = [(seed, k) for seed in sorted({*draws, *first}) for k in range(len(table["training"]["hidden"]))]
    keys = {cell: cell_key(same | {"cell": cell}) for cell in cells}
    with timing.stage("training and scoring", progress, resumes=True) as tell, Store(out) as store:
        work = partial(run_cell, table)
        found = dict(run_cells(store, keys, work, processes, cores() if jobs is None else jobs, tell))
    every = [row for cell in cells for row in found[cell]]
    models = [row for row in every if row["draw"] in draws]
    correlations, tests = correlate(models, draws)
    d, unselected = ({str(seed): draw_of(table, seed).d for seed in seeds} for seeds in (draws, first))
    settings = {"grid": table, "draws": draws, "d": d, "d_range": d_range, "first_seeds": unselected}
    return SyntheticStudy(
        study="synthetic",
        settings=settings,
        correlations=correlations,
        summary=summarise(correlations),
        tests=tests,
        models=models,
        paper=list(table.get("paper", [])),
        notes=notes_of(models, tests, settings, skipped),
        timing=timing,
        any_d=correlate(every, first)[0],
        within=within_kinds(models, draws),
    ).published(out, progress)


def _draws(grid: dict[str, Any], count: int, d_range: tuple[float, float] | None) -> tuple[list[int], list[int]]:
    """The first seeds whose d is in range, and those that were passed over."""
    chosen: list[int] = []
    skipped: list[int] = []
    seed = 0
    while len(chosen) < count:
        fits = d_range is None or d_range[0] <= draw_of(grid, seed).d <= d_range[1]
        (chosen if fits else skipped).append(seed)
        seed += 1
        if len(skipped) > 1000 * count:
            raise InputError(f"Hardly any draw has d in {d_range!r}. Widen `d_range`.")
    return chosen, skipped


def run_cell(grid: dict[str, Any], cell: tuple[int, int]) -> list[dict[str, Any]]:
    """Trains all networks of one architecture on one draw and judges every score: a row per scored model."""
    seed, architecture = cell
    with collected():  # tied top classes of saturated members
        return [row for found in outputs(grid, seed, algorithms(grid, architecture)) for row in _judge(found, seed)]


def _judge(found: Outputs, seed: int) -> Iterator[dict[str, Any]]:
    """All scores of one algorithm."""
    y, probs, logits = found.labels, found.probs, found.member_logits
    error = truth.misclassified(probs, y)
    gap = truth.gap_from_logits(logits[0], y) if len(logits) == 1 else truth.rank_loss(probs, y)
    right = 1 - error
    shared = {
        "accuracy": float(right.mean()),
        "ece": metrics.ece(probs.max(axis=1), right),
        "brier": metrics.brier(probs, y),
        "log_loss": metrics.log_loss(probs, y),
    }
    for name in found.plan["scores"]:
        row = {"model": found.model, "family": found.plan["method"], "draw": seed, "score": name}
        yield stored(row | judge_score(found.score(name), error, gap, *found.truths.values()) | shared)
