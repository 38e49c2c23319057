"""Does temperature scaling change how uncertainty ranks? Not for two classes and one model; otherwise it does.

The paper's appendix shows UQ-AUC and UQ-C-index constant in T while ECE moves. Here with what breaks it: gaps that
round, ensembles whose members are scaled and then averaged, and more than two classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval import metrics, scores, truth
from uqeval._check import Float, Int
from uqeval._errors import InputError, MissingExtra, collected
from uqeval._result import number, to_frame
from uqeval.reproduce.study import TITLES, write_tables
from uqeval.reproduce.synthetic.run import draw_of, read_grid, softmax

__all__ = ["CASES", "Temperature", "softmax", "temperature", "ten_classes"]

_HIDDEN, _LR, _MEMBERS = (64, 32), 0.05, 10
_SIMULATED = 10_000
_METRICS = ("uq_auc", "uq_c_index", "ece")
CASES = {
    "softmax": "one network, Δ from the logits",
    "naive float64": "the same, Δ = 1 − p̂ in float64",
    "naive float32": "the same, Δ = 1 − p̂ in float32",
    "averaged, then scaled": "10 networks, logits averaged, then scaled",
    "scaled, then averaged": "10 networks, each scaled, probabilities averaged",
    "ten classes": "ten classes, simulated",
}


@dataclass(frozen=True)
class Temperature:
    """UQ-AUC, UQ-C-index and ECE at each temperature, case by case; `write` puts the tables into a folder."""

    settings: dict[str, Any]
    rows: list[dict[str, Any]] = field(repr=False)  # case × temperature
    summary: list[dict[str, Any]] = field(repr=False)  # case × metric: lowest, highest, span
    example: list[dict[str, Any]] = field(repr=False)  # two inputs of three classes whose order turns
    notes: list[str] = field(repr=False)
    study: str = "temperature"

    def span(self, case: str, metric: str) -> float:
        """Highest minus lowest value over all temperatures."""
        for row in self.summary:
            if (row["case"], row["metric"]) == (case, metric):
                return float(row["span"])
        raise InputError(f"There is no {metric!r} of {case!r}. Cases: {', '.join(CASES)}.")

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        names = ("study", "settings", "rows", "summary", "example", "notes")
        return {name: getattr(self, name) for name in names}

    def to_frame(self, kind: str | None = None) -> Any:
        """A row per case and temperature: see `Result.to_frame` for `kind`."""
        return to_frame(self.rows, kind)

    def lines(self) -> list[list[str]]:
        """The table: a line per case, lowest to highest value of each metric."""
        found = []
        for case, title in CASES.items():
            cells = [
                row for metric in _METRICS for row in self.summary if (row["case"], row["metric"]) == (case, metric)
            ]
            found.append([title, *(_range(row) for row in cells)])
        return found

    def markdown(self) -> str:
        """The table and what it means."""
        head = ["over all T", *(TITLES[metric] for metric in _METRICS)]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in self.lines()]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def write(self, folder: str | Path) -> Path:
        """`table.json`, `table.csv` and `table.md`, each written whole."""
        return write_tables(folder, self.to_dict(), self.rows, self.markdown())

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.markdown())}</pre>"


def _range(row: dict[str, Any]) -> str:
    if row["span"] == 0:
        return f"{row['lowest']:.4f}, constant"
    return f"{row['lowest']:.4f} to {row['highest']:.4f}"


def temperature(out: str | Path | None = None, *, seed: int = 1, temperatures: ArrayLike | None = None) -> Temperature:
    """UQ-AUC, UQ-C-index and ECE against the temperature that the logits are divided by.

    Parameters
    ----------
    out : path, optional
        Folder for ``table.json/csv/md`` and ``figures/temperature.svg`` and ``.png``; nothing is written without it.
    seed : int
        Of the drawn data, the networks and the simulated ten classes.
    temperatures : array-like, optional
        Positive numbers; 41 from 0.1 to 10 by default, evenly on the log scale.

    Returns
    -------
    Temperature
        ``result.span("softmax", "uq_auc")`` is exactly 0: the ranking does not depend on T.

    Examples
    --------
    >>> result = temperature(temperatures=[0.5, 1, 2])
    >>> result.span("softmax", "uq_c_index"), result.span("ten classes", "uq_auc") > 0.01
    (0.0, True)
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"`seed` must be an int ≥ 0; it is {seed!r}.")
    grid = _temperatures(temperatures)
    members, labels, d = _networks(int(seed))
    simulated = ten_classes(np.random.default_rng([int(seed), 10]), _SIMULATED)
    rows = []
    with collected():  # tied top classes where members saturate
        for t in grid.tolist():
            rows += _at(t, members, labels, *simulated)
    rows.sort(key=lambda row: (list(CASES).index(row["case"]), row["temperature"]))
    summary = _summary(rows)
    settings = {
        "seed": int(seed),
        "d": d,
        "hidden": list(_HIDDEN),
        "lr": _LR,
        "members": _MEMBERS,
        "rows": len(labels),
        "simulated_rows": _SIMULATED,
        "temperatures": grid.tolist(),
    }
    example = _example()
    result = Temperature(settings, rows, summary, example, _notes(summary, rows, example, settings))
    if out is not None:
        from uqeval.reproduce.panels import save
        from uqeval.reproduce.synthetic.scene_figures import temperature_chart

        save({"temperature": temperature_chart(result)}, result.write(out))
    return result


def _temperatures(given: ArrayLike | None) -> Float:
    if given is None:
        return np.logspace(-1, 1, 41)
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`temperatures` must be positive numbers; it is {given!r}.") from None
    if found.ndim != 1 or len(found) < 2 or not (np.isfinite(found).all() and (found > 0).all()):
        raise InputError(f"`temperatures` must be two or more positive numbers; it is {given!r}.")
    return np.unique(found)


def _networks(seed: int) -> tuple[Float, Int, float]:
    """(members, n, 2) logits of test rows from networks of the study's grid, their labels, and d of the data."""
    try:
        import torch

        from uqeval.methods.batched import Net, train
    except ModuleNotFoundError:
        raise MissingExtra("uqeval.reproduce.temperature", "torch", "torch") from None
    grid = read_grid()
    data = draw_of(grid, seed)
    nets = [Net(1_000_000 * seed + 900_000 + k, _HIDDEN, _LR) for k in range(_MEMBERS)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the numbers must not depend on the machine's cores
    try:
        training = grid["training"]
        x, y = data.x[data.train], data.labels[data.train]
        bank = train(nets, x, y, epochs=training["epochs"], batch_size=training["batch_size"])
        return bank.logits(data.x[data.test]), data.labels[data.test], data.d
    finally:
        torch.set_num_threads(threads)


def ten_classes(rng: np.random.Generator, n: int) -> tuple[Float, Int]:
    """Logits and labels of a model that knows the ten classes up to noise.

    Examples
    --------
    >>> logits, labels = ten_classes(np.random.default_rng(0), 5)
    >>> logits.shape, labels.shape
    ((5, 10), (5,))
    """
    true = 3 * rng.normal(size=(n, 10))
    labels = (softmax(true).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1).astype(np.int64)
    return true + 1.5 * rng.normal(size=(n, 10)), labels


def _at(t: float, members: Float, labels: Int, ten: Float, ten_labels: Int) -> list[dict[str, Any]]:
    """All cases at one temperature; the score is the entropy throughout."""
    z = members[0] / t
    probs = softmax(z)
    own = np.arange(len(labels)), labels
    # float32 has 24 bits: what a network's own output loses when the gap is taken there.
    small = np.float32(1) - softmax(z.astype(np.float32))[own]
    mean_logits = members.mean(axis=0) / t
    mean_probs = softmax(members / t).mean(axis=0)
    judged = (
        ("softmax", probs, labels, truth.gap_from_logits(z, labels)),
        ("naive float64", probs, labels, truth.gap(probs, labels)),
        ("naive float32", probs, labels, small.astype(np.float64)),
        ("averaged, then scaled", softmax(mean_logits), labels, truth.gap_from_logits(mean_logits, labels)),
        ("scaled, then averaged", mean_probs, labels, truth.rank_loss(mean_probs, labels)),
        ("ten classes", softmax(ten / t), ten_labels, truth.gap_from_logits(ten / t, ten_labels)),
    )
    return [{"case": case, "temperature": t} | _judge(p, y, gap) for case, p, y, gap in judged]


def _judge(probs: Float, labels: Int, gap: Float) -> dict[str, float]:
    error = truth.misclassified(probs, labels)
    score = scores.entropy(probs)
    return {
        "uq_auc": metrics.uq_auc(score, error),
        "uq_c_index": metrics.uq_c_index(score, gap),
        "ece": metrics.ece(probs.max(axis=1), 1 - error),
    }


def _summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for case in CASES:
        for metric in _METRICS:
            values = [row[metric] for row in rows if row["case"] == case]
            low, high = min(values), max(values)
            found.append({"case": case, "metric": metric, "lowest": low, "highest": high, "span": high - low})
    return found


def _example() -> list[dict[str, Any]]:
    """Two inputs of three classes: the surer one at T = 1 is the less sure one at T = 3."""
    logits = np.array([[2.0, 0.0, 0.0], [3.0, 2.0, -10.0]])
    found = []
    for t in (1.0, 3.0):
        first, second = softmax(logits / t).max(axis=1).tolist()
        found.append({"temperature": t, "first": first, "second": second})
    return found


def _notes(
    summary: list[dict[str, Any]], rows: list[dict[str, Any]], example: list[dict[str, Any]], settings: dict[str, Any]
) -> list[str]:
    span = {(row["case"], row["metric"]): row["span"] for row in summary}
    ece = {row["temperature"]: row["ece"] for row in rows if row["case"] == "softmax"}
    best = min(ece, key=lambda t: ece[t])
    constant = span["softmax", "uq_auc"] == span["softmax", "uq_c_index"] == 0
    one, three = example
    return [
        f"The score is the entropy; the data are draw {settings['seed']} of the synthetic study (d = "
        f"{settings['d']:.2f}, {settings['rows']} test rows), the networks {'-'.join(map(str, settings['hidden']))} "
        f"with learning rate {settings['lr']:g}.",
        f"Two classes, one network: UQ-AUC and UQ-C-index are {'exactly constant' if constant else 'not constant'} in "
        f"T, as the paper says, while ECE goes from {ece[best]:.3f} (T = {best:.2g}) to {max(ece.values()):.3f}.",
        f"The paper's Δ = 1 − p̂ of the label rounds: UQ-C-index then drifts by "
        f"{number(span['naive float64', 'uq_c_index'])} in float64 and {number(span['naive float32', 'uq_c_index'])} "
        "in float32. Rank the logit margin or the log-loss.",
        f"An ensemble is invariant if its logits are averaged before scaling, not if its members are scaled before "
        f"averaging: UQ-AUC then moves by {number(span['scaled, then averaged', 'uq_auc'])}.",
        f"With more classes the ranking does change. Logits (2, 0, 0) and (3, 2, −10) have largest probabilities "
        f"{one['first']:.3f} and {one['second']:.3f} at T = 1, {three['first']:.3f} and {three['second']:.3f} at T = "
        f"3. Ten simulated classes ({settings['simulated_rows']:,} rows): UQ-AUC moves by "
        f"{number(span['ten classes', 'uq_auc'])}.",
    ]
