"""The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the true φ and ϕ do?

The grid is data (`synthetic.toml`). One cell is one architecture on one draw of the data: its networks are trained
together and all their scores judged; finished cells are stored, so a killed run goes on.
"""

from __future__ import annotations

import math
import signal
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from uqeval import metrics, truth
from uqeval._check import Float, Int, Progress
from uqeval._errors import InputError, MissingExtra, collected
from uqeval._result import Grid
from uqeval.datasets.synthetic import Synthetic
from uqeval.datasets.synthetic import synthetic as draw_data
from uqeval.inputs.predictions import softmax
from uqeval.kernels import cores
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page
from uqeval.reproduce.store import Store, cell_key, run_cells
from uqeval.reproduce.study import (
    MAIN,
    TITLES,
    TRUTHS,
    Study,
    Timing,
    check_natural,
    correlate,
    judge_score,
    percent_cell,
    pick,
    stored,
    summarise,
)
from uqeval.reproduce.synthetic.page import page
from uqeval.scores import compute

__all__ = ["GRID", "PAPER", "Outputs", "SyntheticStudy", "algorithms", "draw_of", "outputs", "read_grid", "synthetic"]

_REVISION = 1  # raise it when a cell's numbers change: stored cells of another revision are computed anew
D_RANGE = (0.75, 2.4)
PAPER = "paper (one draw, d unknown)"
_PAPER_ECE = {"kendall_phi": 0.0009, "kendall_varphi": -0.1057}  # the paper's appendix on calibration

Plan = dict[str, Any]


def read_grid(path: str | Path | None = None) -> dict[str, Any]:
    """The grid that came with the package, or one of your own."""
    if path is None:
        return read_table("synthetic/synthetic.toml")
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"The grid {str(path)!r} cannot be read ({error}).") from None


GRID = read_grid()


def draw_of(grid: dict[str, Any], seed: int) -> Synthetic:
    """The dataset of one seed."""
    return draw_data(**grid["data"], seed=seed)


@dataclass(frozen=True)
class SyntheticStudy(Study):
    """The synthetic study over draws of its data."""

    @property
    def shown_draw(self) -> int:
        """The draw whose d is the median: the one that the scatter plots show."""
        d = {int(seed): value for seed, value in self.settings["d"].items()}
        return sorted(d, key=lambda seed: (d[seed], seed))[(len(d) - 1) // 2]

    @property
    def printed(self) -> list[dict[str, Any]]:
        """What the paper prints: its table, and ECE from its appendix."""
        ece = [{"metric": "ece", "truth": truth, "r": _PAPER_ECE[truth]} for truth in TRUTHS]
        return [*self.paper, *(ece if self.paper else ())]

    def grid(self) -> Grid:
        """Median and range over draws of each correlation, the paper's number above ours."""

        def ours(metric: str, truth: str) -> str:
            row = pick(self.summary, metric, truth)
            assert row is not None
            low, high = (row["lowest"], row["highest"]) if row["draws"] > 1 else (math.nan, math.nan)
            return percent_cell({"r": row["median"], "low": low, "high": high})

        return self.table_rows(PAPER, ours, self.printed)._replace(
            caption="Pearson correlations of each metric with the rank correlation of score and truth",
            notes=[
                "Ours: median and range over draws. The paper's: one draw, with Fisher's interval, which takes the "
                "models of that draw as independent and says nothing of another draw.",
                "κ(s; φ) and κ(s; ϕ): Kendall's τ of the score with the chance of error φ, and with the commitment "
                "against the Bayes label ϕ, which is what the model denies the more probable class.",
            ],
        )

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        # Altair takes a second to load, and not every study is drawn.
        from uqeval.reproduce.synthetic import figures
        from uqeval.reproduce.synthetic.temperature import temperature

        with self.timing.stage("temperature", progress):
            scaled = temperature()
        return figures.makers(self, scaled)

    def page(self) -> Page:
        """What its page says."""
        return page(self)


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
        How many draws. Which: the first seeds 0, 1, 2, … whose d lies in `d_range`.
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
        `correlations` per draw, `summary` over draws, the paper's row in `paper`.
    """
    count = check_natural("seeds", seeds, 1)
    table, timing = read_grid(grid), Timing()
    draws, skipped = _draws(table, count, d_range)
    same = {"study": "synthetic", "revision": _REVISION, "grid": {k: v for k, v in table.items() if k != "paper"}}
    cells = [(seed, k) for seed in draws for k in range(len(table["training"]["hidden"]))]
    keys = {cell: cell_key(same | {"cell": cell}) for cell in cells}
    with timing.stage("training and scoring", progress, resumes=True) as tell, Store(out) as store:
        work = partial(run_cell, table)
        found = dict(run_cells(store, keys, work, _processes, cores() if jobs is None else jobs, tell))
    models = [row for cell in cells for row in found[cell]]
    study = _study(table, draws, skipped, d_range, models, timing)
    if out is not None:
        study.publish(out, progress=progress)
    return study


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


def _processes(jobs: int) -> Executor:
    # Ctrl-C is for the parent, which then lets its workers finish.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=signal.signal, initargs=ignore)


# ---- one cell ------------------------------------------------------------------------------------------------------


def algorithms(grid: dict[str, Any], architecture: int) -> list[Plan]:
    """Every UQ algorithm of one architecture: method, learning rate, sizes, and which networks are its own."""
    found: list[Plan] = []
    first = 0
    hidden = tuple(grid["training"]["hidden"][architecture])
    for lr in grid["training"]["learning_rates"]:
        for method in grid["methods"]:
            common = {
                "method": method["name"],
                "title": method.get("title", method["name"]),
                "hidden": hidden,
                "lr": lr,
            }
            common |= {"scores": tuple(method["scores"]), "architecture": architecture}
            for members in method.get("members", [1]):
                for rate in method.get("dropout", [0.0]):
                    for samples in method.get("samples", [0]):
                        found.append(common | {"members": members, "dropout": rate, "samples": samples, "first": first})
                        first += members
    return found


@dataclass(frozen=True)
class Outputs:
    """What the networks of one algorithm say of the test rows of a draw, and what is true there."""

    plan: Plan
    member_logits: Float  # (members, n, K)
    data: Synthetic

    @cached_property
    def labels(self) -> Int:
        return self.data.labels[self.data.test]

    @cached_property
    def members(self) -> Float:
        return softmax(self.member_logits)

    @cached_property
    def probs(self) -> Float:
        return self.members.mean(axis=0)

    @property
    def logits(self) -> Float:
        return self.member_logits[0]

    @cached_property
    def truths(self) -> dict[str, Float]:
        """φ and ϕ, by the name of the correlation with them."""
        x = self.data.x[self.data.test]
        return {"kendall_phi": self.data.phi(x, self.probs), "kendall_varphi": self.data.varphi(x, self.probs)}

    @property
    def model(self) -> str:
        """Its name in the table."""
        plan = self.plan
        size = f" m={plan['members']}" * (plan["members"] > 1)
        size += f" p={plan['dropout']:g} T={plan['samples']}" * (plan["samples"] > 0)
        return f"{plan['method']} {'-'.join(map(str, plan['hidden']))} lr={plan['lr']:g}{size}"

    def score(self, name: str) -> Float:
        """An uncertainty score of the test rows."""
        return compute(name, self)


def outputs(grid: dict[str, Any], seed: int, plans: Sequence[Plan]) -> Iterator[Outputs]:
    """Trains all networks of these algorithms on one draw, together."""
    try:
        import torch  # an extra

        from uqeval.methods.batched import Net, train
    except ModuleNotFoundError:
        raise MissingExtra("uqeval reproduce", "torch", "torch") from None
    data = draw_of(grid, seed)
    nets = [
        Net(
            1_000_000 * seed + 10_000 * plan["architecture"] + plan["first"] + k,
            plan["hidden"],
            plan["lr"],
            plan["dropout"],
        )
        for plan in plans
        for k in range(plan["members"])
    ]
    x, y, training = data.x[data.train], data.labels[data.train], grid["training"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the numbers must not depend on the machine's cores
    try:
        settings = {"epochs": training["epochs"], "batch_size": training["batch_size"]}
        bank = train(nets, x, y, classes=data.n_classes, **settings)
        logits = bank.logits(data.x[data.test])
        at = 0
        for plan in plans:
            own = logits[at : at + plan["members"]]
            yield Outputs(plan, bank.passes(at, data.x[data.test], plan["samples"]) if plan["samples"] else own, data)
            at += plan["members"]
    finally:
        torch.set_num_threads(threads)


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


# ---- the whole -----------------------------------------------------------------------------------------------------


def _study(
    grid: dict[str, Any],
    draws: list[int],
    skipped: list[int],
    d_range: tuple[float, float] | None,
    models: list[dict[str, Any]],
    timing: Timing,
) -> SyntheticStudy:
    correlations, tests = correlate(models, draws)
    d = {seed: draw_of(grid, seed).d for seed in draws}
    notes = [
        "d = ‖μ₁ − μ₀‖ per draw: " + ", ".join(f"{seed}: {value:.2f}" for seed, value in d.items()) + ".",
        "The paper's correlations depend on the one dataset it drew, above all on its d, which it does not state; ours "
        "are a distribution over draws. Fisher's intervals (table.csv) hold for one draw and say nothing of another.",
    ]
    if skipped:
        notes.append(f"Seeds passed over because their d is outside {d_range}: {', '.join(map(str, skipped))}.")
    for kendall, metric in zip(TRUTHS, MAIN, strict=True):
        negative = [row for row in models if row[kendall] is not None and row[kendall] < 0]
        if negative:
            below = sum(row[metric] is not None and row[metric] < 0.5 for row in negative) / len(negative)
            notes.append(
                f"{len(negative)} of {len(models)} scores have a negative {TITLES[kendall]}; {below:.0%} of them have "
                f"{TITLES[metric]} below 0.5."
            )
    for kendall in TRUTHS:
        better = [test for test in tests if test["truth"] == kendall and test["difference"] > 0]
        sure = [test for test in better if test["p_williams"] < 0.05]
        notes.append(
            f"UQ-C-index correlates better than UQ-AUC with {TITLES[kendall]} on {len(better)} of {len(draws)} draws, "
            f"significantly (Williams, 5%) on {len(sure)}."
        )
    settings = {"grid": grid, "draws": draws, "d": {str(k): v for k, v in d.items()}, "d_range": d_range}
    return SyntheticStudy(
        "synthetic",
        settings,
        correlations,
        summarise(correlations),
        tests,
        models,
        list(grid.get("paper", [])),
        notes,
        timing=timing,
    )
