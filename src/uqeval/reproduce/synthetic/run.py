"""The paper's synthetic study: do UQ-AUC and UQ-C-index rank scores as the true φ and ϕ do?

The grid is data (`synthetic.toml`). One cell is one architecture on one draw of the data: its networks are trained
together and all their scores judged; finished cells are stored, so a killed run goes on.
"""

from __future__ import annotations

import math
import signal
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from uqeval import metrics, truth
from uqeval import scores as score_functions
from uqeval._check import Float
from uqeval._errors import InputError, MissingExtra, collected
from uqeval.datasets.synthetic import Synthetic
from uqeval.datasets.synthetic import synthetic as draw_data
from uqeval.kernels import cores
from uqeval.reproduce.store import Store, cell_key
from uqeval.reproduce.study import Study, correlate, summarise

__all__ = ["GRID", "SCORES", "algorithms", "draw_of", "read_grid", "run_cell", "softmax", "synthetic"]

Progress = Callable[[int, int], None]
_REVISION = 1  # raise it when a cell's numbers change: stored cells of another revision are computed anew
D_RANGE = (0.75, 2.4)


def read_grid(path: str | Path | None = None) -> dict[str, Any]:
    """The grid that came with the package, or one of your own."""
    if path is None:
        return tomllib.loads((files("uqeval.reproduce.synthetic") / "synthetic.toml").read_text(encoding="utf-8"))
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"The grid {str(path)!r} cannot be read ({error}).") from None


GRID = read_grid()


def draw_of(grid: dict[str, Any], seed: int) -> Synthetic:
    """The dataset of one seed."""
    return draw_data(**grid["data"], seed=seed)


def synthetic(
    out: str | Path | None = None,
    *,
    seeds: int = 20,
    d_range: tuple[float, float] | None = D_RANGE,
    grid: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Study:
    """Runs the whole grid on several draws of the data.

    Parameters
    ----------
    out : path, optional
        Folder for the tables and for the store that lets a killed run go on; nothing is written without it.
    seeds : int
        How many draws. Which: the first seeds 0, 1, 2, … whose d lies in `d_range`.
    d_range : (low, high) or None
        Range of d, the distance between the two means, which drives all correlations; None takes every draw.
    grid : path, optional
        Another grid (see synthetic.toml of this package).
    jobs : int, optional
        Processes; all cores by default. The numbers do not depend on it.
    progress : callable(done, total), optional
        Called after every cell, one architecture on one draw.

    Returns
    -------
    Study
        `correlations` per draw, `summary` over draws, the paper's row in `paper`.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int | np.integer) or seeds < 1:
        raise InputError(f"`seeds` must be an int ≥ 1; it is {seeds!r}.")
    table = read_grid(grid)
    draws, skipped = _draws(table, int(seeds), d_range)
    cells = [(seed, k) for seed in draws for k in range(len(table["training"]["hidden"]))]
    same = {"study": "synthetic", "revision": _REVISION, "grid": {k: v for k, v in table.items() if k != "paper"}}
    keys = {cell: cell_key(same | {"cell": cell}) for cell in cells}
    folder = None if out is None else Path(out)
    with Store(":memory:" if folder is None else folder / "store.sqlite") as store:
        open_cells = [cell for cell in cells if store.missing([keys[cell]])]
        done = len(cells) - len(open_cells)
        if progress is not None:
            progress(done, len(cells))
        for cell, value in _run(table, open_cells, cores() if jobs is None else jobs):
            store.put(keys[cell], value)
            done += 1
            if progress is not None:
                progress(done, len(cells))
        models = [row for cell in cells for row in store.get(keys[cell])]
    study = _study(table, draws, skipped, d_range, models)
    if folder is not None:
        study.write(folder)
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


def _run(
    grid: dict[str, Any], cells: list[tuple[int, int]], jobs: int
) -> Iterator[tuple[tuple[int, int], list[dict[str, Any]]]]:
    """Cells as they finish, on several processes."""
    if jobs <= 1 or len(cells) <= 1:
        for cell in cells:
            yield cell, run_cell(grid, *cell)
        return
    from multiprocessing import get_context

    context = get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(cells)), mp_context=context, initializer=_leave_interrupts) as pool:
        waiting: dict[Future[list[dict[str, Any]]], tuple[int, int]] = {
            pool.submit(run_cell, grid, *cell): cell for cell in cells
        }
        try:
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield waiting.pop(future), future.result()
        finally:  # Ctrl-C: what runs is finished, what waits is not begun
            pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts() -> None:
    """Ctrl-C is for the parent, which then lets its workers finish."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# ---- one cell ------------------------------------------------------------------------------------------------------


def algorithms(grid: dict[str, Any], architecture: int) -> list[dict[str, Any]]:
    """Every UQ algorithm of one architecture: method, learning rate, sizes, and how many networks it needs."""
    hidden = tuple(grid["training"]["hidden"][architecture])
    found = []
    for lr in grid["training"]["learning_rates"]:
        for method in grid["methods"]:
            common = {"method": method["name"], "hidden": hidden, "lr": lr, "scores": tuple(method["scores"])}
            for members in method.get("members", [1]):
                for rate in method.get("dropout", [0.0]):
                    for samples in method.get("samples", [0]):
                        found.append(common | {"members": members, "dropout": rate, "samples": samples})
    return found


def run_cell(grid: dict[str, Any], seed: int, architecture: int) -> list[dict[str, Any]]:
    """Trains all networks of one architecture on one draw and judges every score: a row per scored model."""
    try:
        import torch

        from uqeval.methods.batched import Net, train
    except ModuleNotFoundError:
        raise MissingExtra("uqeval.reproduce.synthetic", "torch", "torch") from None
    data = draw_of(grid, seed)
    plans = algorithms(grid, architecture)
    nets: list[Any] = []
    places = []
    for plan in plans:
        places.append(range(len(nets), len(nets) + plan["members"]))
        for _ in range(plan["members"]):
            own = 1_000_000 * seed + 10_000 * architecture + len(nets)
            nets.append(Net(own, plan["hidden"], plan["lr"], plan["dropout"]))
    x, y = data.x[data.test], data.labels[data.test]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the numbers must not depend on the machine's cores
    try:
        training = grid["training"]
        bank = train(
            nets,
            data.x[data.train],
            data.labels[data.train],
            classes=data.n_classes,
            epochs=training["epochs"],
            batch_size=training["batch_size"],
        )
        logits = bank.logits(x)
        rows = []
        for plan, place in zip(plans, places, strict=True):
            sampled = plan["samples"] > 0
            outputs = bank.passes(place[0], x, plan["samples"]) if sampled else logits[place.start : place.stop]
            rows += _judge(plan, outputs, data, x, y, seed)
    finally:
        torch.set_num_threads(threads)
    return rows


def _judge(plan: dict[str, Any], logits: Float, data: Synthetic, x: Float, y: Any, seed: int) -> list[dict[str, Any]]:
    """All scores of one algorithm from its (members, n, K) logits."""
    members = softmax(logits)
    probs = members.mean(axis=0)
    with collected():  # tied top classes of saturated members
        error = truth.misclassified(probs, y)
        phi, varphi = data.phi(x, probs), data.varphi(x, probs)
        gap = truth.gap_from_logits(logits[0], y) if len(logits) == 1 else truth.rank_loss(probs, y)
        confidence, right = probs.max(axis=1), 1 - error
        shared = {
            "accuracy": float(right.mean()),
            "ece": metrics.ece(confidence, right),
            "brier": metrics.brier(probs, y),
            "log_loss": metrics.log_loss(probs, y),
        }
        rows = []
        size = f" m={plan['members']}" * (plan["members"] > 1)
        size += f" p={plan['dropout']:g} T={plan['samples']}" * (plan["samples"] > 0)
        name = f"{plan['method']} {'-'.join(map(str, plan['hidden']))} lr={plan['lr']:g}{size}"
        for score in plan["scores"]:
            s = SCORES[score](members, probs, logits)
            rows.append(
                {"model": name, "family": plan["method"], "draw": seed, "score": score}
                | {"uq_auc": metrics.uq_auc(s, error), "uq_c_index": metrics.uq_c_index(s, gap)}
                | {"aurc": metrics.aurc(s, error), "augrc": metrics.augrc(s, error)}
                | {"kendall_phi": metrics.kendall_tau(s, phi), "kendall_varphi": metrics.kendall_tau(s, varphi)}
                | shared
            )
    return [{key: None if isinstance(v, float) and math.isnan(v) else v for key, v in row.items()} for row in rows]


def softmax(logits: Float) -> Float:
    """Over the last axis, in the precision that it is given."""
    z = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


SCORES: dict[str, Callable[[Float, Float, Float], Float]] = {
    "entropy": lambda members, probs, logits: score_functions.entropy(probs),
    "free_energy": lambda members, probs, logits: score_functions.free_energy(logits[0]),
    "bernoulli_variance": lambda members, probs, logits: score_functions.bernoulli_variance(probs),
    "total_entropy": lambda members, probs, logits: score_functions.total_entropy(members),
    "aleatoric_entropy": lambda members, probs, logits: score_functions.aleatoric_entropy(members),
    "expected_free_energy": lambda members, probs, logits: score_functions.expected_free_energy(logits),
    "mutual_information": lambda members, probs, logits: score_functions.mutual_information(members),
    "predicted_class_variance": lambda members, probs, logits: score_functions.predicted_class_variance(members),
}


# ---- the whole -----------------------------------------------------------------------------------------------------


def _study(
    grid: dict[str, Any],
    draws: list[int],
    skipped: list[int],
    d_range: tuple[float, float] | None,
    models: list[dict[str, Any]],
) -> Study:
    rows = [{k: math.nan if v is None else v for k, v in row.items()} for row in models]
    correlations, tests = correlate(rows, draws)
    d = {seed: draw_of(grid, seed).d for seed in draws}
    summary = summarise(correlations)
    notes = [
        "d = ‖μ₁ − μ₀‖ per draw: " + ", ".join(f"{seed}: {value:.2f}" for seed, value in d.items()) + ".",
        "The paper's correlations depend on the one dataset it drew, above all on its d, which it does not state; ours "
        "are a distribution over draws. Fisher's intervals (table.csv) hold for one draw and say nothing of another.",
    ]
    if skipped:
        notes.append(f"Seeds passed over because their d is outside {d_range}: {', '.join(map(str, skipped))}.")
    notes += _words(rows, tests, draws)
    settings = {"grid": grid, "draws": draws, "d": {str(k): v for k, v in d.items()}, "d_range": d_range}
    return Study("synthetic", settings, models, correlations, summary, tests, list(grid.get("paper", [])), notes)


def _words(rows: list[dict[str, Any]], tests: list[dict[str, Any]], draws: list[int]) -> list[str]:
    """What does and does not reproduce, in words."""
    words = []
    for kendall, metric, names in (
        ("kendall_phi", "uq_auc", "κ(s; φ) and UQ-AUC"),
        ("kendall_varphi", "uq_c_index", "κ(s; ϕ) and UQ-C-index"),
    ):
        negative = [row for row in rows if row[kendall] < 0]
        if negative:
            below = sum(row[metric] < 0.5 for row in negative) / len(negative)
            words.append(
                f"{len(negative)} of {len(rows)} scores have a negative {names.split(' and ')[0]}; "
                f"{below:.0%} of them have {names.split(' and ')[1]} below 0.5."
            )
    for truth_name, title in (("kendall_phi", "κ(s; φ)"), ("kendall_varphi", "κ(s; ϕ)")):
        better = [t for t in tests if t["truth"] == truth_name and t["difference"] > 0]
        sure = [t for t in better if t["p_williams"] < 0.05]
        words.append(
            f"UQ-C-index correlates better than UQ-AUC with {title} on {len(better)} of {len(draws)} draws, "
            f"significantly (Williams, 5%) on {len(sure)}."
        )
    return words
