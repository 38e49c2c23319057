"""The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the true ϕ and φ do?

One cell is one architecture on one draw of the data: its networks are trained together and all their scores judged. A
method that the grid does not have has cells of its own, so that no number depends on which others are asked for.
Finished cells are stored, so a killed run goes on.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from uqeval import metrics, truth
from uqeval._check import Progress
from uqeval._errors import InputError, MissingExtra, collected
from uqeval.kernels import cores
from uqeval.reproduce.store import Store, cell_key, processes, run_cells
from uqeval.reproduce.study import (
    Timing,
    check_natural,
    correlate,
    judge_score,
    stored,
    summarise,
    within_kinds,
    within_methods,
)
from uqeval.reproduce.synthetic.by_method import medians
from uqeval.reproduce.synthetic.networks import Fitted, choose, draw_of, fitted, plans_of, read_grid
from uqeval.reproduce.synthetic.study import SyntheticStudy
from uqeval.reproduce.synthetic.verdicts import notes_of

_REVISION = 1  # raise it when a cell's numbers change: stored cells of another revision are computed anew
D_RANGE = (0.75, 2.4)


def synthetic(
    out: str | Path | None = None,
    *,
    seeds: int = 20,
    d_range: tuple[float, float] | None = D_RANGE,
    methods: str | Sequence[str] | None = None,
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
    methods : str or list of str, optional
        Names, in a list or separated by commas: softmax, ensemble, dropout, temperature, tta, evidential, bayesian,
        sngp, swag, meta; "paper" for those of the grid (the default), "all" for all of these. The numbers of a method
        do not depend on the others.
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
        first seeds with no draw left out; `within`, those among scores of one kind alone; `by_method`, those among the
        scores of one method; `by_score`, medians over the models of each method with each score.
    """
    count = check_natural("seeds", seeds, 1)
    table, timing = read_grid(grid), Timing()
    chosen = choose(table, methods)
    if any(method["name"] == "meta" for method in chosen) and find_spec("sklearn") is None:
        raise MissingExtra('The method "meta"', "scikit-learn", "sklearn")  # now, not after the other methods' minutes
    draws, skipped = _draws(table, count, d_range)
    same = {"study": "synthetic", "revision": _REVISION, "grid": {k: v for k, v in table.items() if k != "paper"}}
    first = list(range(count)) if skipped else []  # as the paper's law gives them
    # The grid's are trained together, all of them whichever are asked for: a last bit of their numbers depends on that.
    own = [method for method in chosen if method in table["methods"]]
    parts: dict[str, dict[str, Any]] = {"paper": {}} if own else {}
    parts |= {method["name"]: {"method": method} for method in chosen if method not in own}
    cells = list(product(sorted({*draws, *first}), range(len(table["training"]["hidden"])), parts))
    keys = {cell: cell_key(same | {"cell": cell[:2]} | parts[cell[2]]) for cell in cells}
    with timing.stage("training and scoring", progress, resumes=True) as tell, Store(out) as store:
        work = partial(run_cell, table)
        found = dict(run_cells(store, keys, work, processes, cores() if jobs is None else jobs, tell))
    names = [method["name"] for method in chosen]
    every = [row for cell in cells for row in found[cell] if row["family"] in names]
    models = [row for row in every if row["draw"] in draws]
    correlations, tests = correlate(models, draws)
    d, unselected = ({str(seed): draw_of(table, seed).d for seed in seeds} for seeds in (draws, first))
    settings = {"grid": table, "methods": chosen, "draws": draws, "d": d, "d_range": d_range, "first_seeds": unselected}
    return SyntheticStudy(
        study="synthetic",
        settings=settings,
        correlations=correlations,
        summary=summarise(correlations),
        tests=tests,
        models=models,
        paper=list(table.get("paper", [])) if chosen == table["methods"] else [],
        notes=notes_of(models, tests, settings, skipped),
        timing=timing,
        any_d=correlate(every, first)[0],
        within=within_kinds(models, draws),
        by_method=within_methods(models, draws),
        by_score=medians(models, draws),
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


def run_cell(grid: dict[str, Any], cell: tuple[int, int, str]) -> list[dict[str, Any]]:
    """Trains one architecture on one draw, by the grid ("paper") or another method, and judges every score.

    A row per scored model.
    """
    seed, architecture, part = cell
    with collected():  # tied top classes of saturated members
        plans = plans_of(grid, architecture, part)
        return [row for found in fitted(grid, seed, plans) for row in _judge(found, seed)]


def _judge(found: Fitted, seed: int) -> Iterator[dict[str, Any]]:
    """All scores of one algorithm."""
    y, probs = found.labels, found.probs
    error = truth.misclassified(probs, y)
    right = 1 - error
    shared = {
        "accuracy": float(right.mean()),
        "ece": metrics.ece(probs.max(axis=1), right),
        "brier": metrics.brier(probs, y),
        "log_loss": metrics.log_loss(probs, y),
    }
    for name in found.plan["scores"]:
        row = {"model": found.model, "family": found.plan["method"], "draw": seed, "score": name}
        yield stored(row | judge_score(found.score(name), error, found.gap, *found.truths.values()) | shared)
