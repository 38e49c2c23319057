"""Does temperature scaling change how uncertainty ranks? Not for two classes and one model; otherwise it does.

The paper's appendix shows UQ-AUC and UQ-C-index constant in T while ECE moves. Here with what breaks it: gaps that
round, ensembles whose members are scaled and then averaged, and more than two classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uqeval import metrics, scores, truth
from uqeval._check import Float, Int, Progress
from uqeval._errors import InputError, collected
from uqeval._result import Grid, number
from uqeval.inputs.softmax import softmax
from uqeval.reproduce.names import MAIN, TITLES, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page, setting
from uqeval.reproduce.study import Publishable, Timing, check_natural
from uqeval.reproduce.synthetic.figures import temperature_chart
from uqeval.reproduce.synthetic.networks import GRID, Outputs, Plan, outputs

_PLAN: Plan = {"hidden": (64, 32), "lr": 0.05, "members": 10, "dropout": 0.0, "samples": 0}
_PLAN |= {"architecture": 90, "first": 0}  # seeds of its own
_SIMULATED = 10_000
DEFAULT = np.logspace(-1, 1, 41)
_METRICS = ("uq_auc", "uq_c_index", "ece")
_WORDS = read_table("words.toml")["temperature"]
CASES = {
    "softmax": "one network, Δ from the logits",
    "naive float64": "the same, Δ = 1 − p̂ in float64",
    "naive float32": "the same, Δ = 1 − p̂ in float32",
    "averaged, then scaled": "10 networks, logits averaged, then scaled",
    "scaled, then averaged": "10 networks, each scaled, probabilities averaged",
    "ten classes": "ten classes, simulated",
}


@dataclass(frozen=True)
class Temperature(Publishable):
    """UQ-AUC, UQ-C-index and ECE at each temperature, case by case; `publish` leaves it in a folder."""

    study: str = field(default="temperature", kw_only=True)
    settings: dict[str, Any]
    rows: list[Row] = field(repr=False)  # case × temperature
    summary: list[Row] = field(repr=False)  # case × metric: lowest, highest, span
    example: list[Row] = field(repr=False)  # two inputs of three classes whose order turns
    notes: list[str] = field(repr=False)
    timing: Timing = field(default_factory=Timing, repr=False, compare=False)

    def span(self, case: str, metric: str) -> float:
        """Highest minus lowest value over all temperatures."""
        spans = {(row["case"], row["metric"]): float(row["span"]) for row in self.summary}
        if (case, metric) not in spans:
            raise InputError(f"There is no {metric!r} of {case!r}. Cases: {', '.join(CASES)}.")
        return spans[case, metric]

    def frame_rows(self) -> list[Row]:
        """A row per case and temperature."""
        return self.rows

    def grid(self) -> Grid:
        """A line per case, lowest to highest value of each metric."""
        cells = {(row["case"], row["metric"]): _range(row) for row in self.summary}
        rows = [[title, *(cells[case, metric] for metric in _METRICS)] for case, title in CASES.items()]
        head = ["over all T", *(TITLES[metric] for metric in _METRICS)]
        return Grid(head, rows, "Lowest and highest value over all temperatures")

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws its figure."""
        return {"temperature": lambda: temperature_chart(self.rows, self.settings)}

    def page(self) -> Page:
        """What its page says."""
        temperatures, (first, *rest) = self.settings["temperatures"], self.notes
        # The layers of the networks as one item: 64-32.
        shown = {k: v for k, v in self.settings.items() if k != "temperatures"} | {"hidden": [self.settings["hidden"]]}
        constant = all(self.span("softmax", metric) == 0 for metric in MAIN)
        return Page(
            title="Temperature scaling and the ranking by uncertainty",
            lead=_WORDS["lead"],
            facts=[
                ("temperatures", f"{len(temperatures)}, {min(temperatures):g} to {max(temperatures):g}"),
                ("draw", str(self.settings["seed"])),
            ],
            short=[
                ("What reproduces" if constant else "What does not", rest[:1]),
                ("What rounding does", rest[1:2]),
                ("Outside the paper's scope, which is one network and two classes", rest[2:]),
            ],
            tables=[self.grid()],
            notes=[first],
            settings=[(k.replace("_", " "), setting(v)) for k, v in shown.items()],
            texts=_WORDS["figures"],
        )


def _range(row: Row) -> str:
    if row["span"] == 0:
        return f"{row['lowest']:.4f}, constant"
    return f"{row['lowest']:.4f} to {row['highest']:.4f}"


def temperature(
    out: str | Path | None = None,
    *,
    seed: int = 1,
    temperatures: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Temperature:
    """UQ-AUC, UQ-C-index and ECE against the temperature that the logits are divided by.

    Parameters
    ----------
    out : path, optional
        Folder for tables, figure and page; nothing is written without it.
    seed : int
        Of the drawn data, the networks and the simulated ten classes.
    temperatures : array-like, optional
        Positive numbers; 41 from 0.1 to 10 by default, evenly on the log scale.
    progress : callable(stage, done, total), optional
        Called after every temperature.

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
    own, grid, timing = (
        check_natural("seed", seed, 0),
        _temperatures(DEFAULT if temperatures is None else temperatures),
        Timing(),
    )
    with timing.stage("training and scaling", progress) as tell, collected():  # tied top classes of saturated members
        (found,) = outputs(GRID, own, [_PLAN])
        simulated = ten_classes(np.random.default_rng([own, 10]), _SIMULATED)
        rows = []
        for k, t in enumerate(grid.tolist()):
            rows += _at(t, found, *simulated)
            tell(k + 1, len(grid))
    rows.sort(key=lambda row: (list(CASES).index(row["case"]), row["temperature"]))
    summary, example = _summary(rows), _example()
    settings = {"seed": own, "d": found.data.d, "hidden": list(_PLAN["hidden"])}
    settings |= {"lr": _PLAN["lr"], "members": _PLAN["members"], "rows": len(found.labels)}
    settings |= {"simulated_rows": _SIMULATED, "temperatures": grid.tolist()}
    notes = _notes(summary, rows, example, settings)
    return Temperature(settings, rows, summary, example, notes, timing).published(out, progress)


def _temperatures(given: ArrayLike) -> Float:
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`temperatures` must be positive numbers; it is {given!r}.") from None
    if found.ndim != 1 or len(found) < 2 or not (np.isfinite(found).all() and (found > 0).all()):
        raise InputError(f"`temperatures` must be two or more positive numbers; it is {given!r}.")
    return np.unique(found)


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


def _at(t: float, found: Outputs, ten: Float, ten_labels: Int) -> list[Row]:
    """All cases at one temperature; the score is the entropy throughout."""
    members, labels = found.member_logits, found.labels
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


def _summary(rows: Sequence[Row]) -> list[Row]:
    found = []
    for case, metric in product(CASES, _METRICS):
        values = [row[metric] for row in rows if row["case"] == case]
        low, high = min(values), max(values)
        found.append({"case": case, "metric": metric, "lowest": low, "highest": high, "span": high - low})
    return found


def _example() -> list[Row]:
    """Two inputs of three classes: the surer one at T = 1 is the less sure one at T = 3."""
    logits = np.array([[2.0, 0.0, 0.0], [3.0, 2.0, -10.0]])
    tops = {t: softmax(logits / t).max(axis=1).tolist() for t in (1.0, 3.0)}
    return [{"temperature": t, "first": first, "second": second} for t, (first, second) in tops.items()]


def _notes(summary: list[Row], rows: list[Row], example: list[Row], settings: dict[str, Any]) -> list[str]:
    span = {(row["case"], row["metric"]): row["span"] for row in summary}
    ece = {row["temperature"]: row["ece"] for row in rows if row["case"] == "softmax"}
    best = min(ece, key=lambda t: ece[t])
    constant = span["softmax", "uq_auc"] == span["softmax", "uq_c_index"] == 0
    shown = {
        "layers": "-".join(map(str, settings["hidden"])),
        "constant": "exactly constant" if constant else "not constant",
        "lowest": ece[best],
        "best": best,
        "highest": max(ece.values()),
        "float64": number(span["naive float64", "uq_c_index"]),
        "float32": number(span["naive float32", "uq_c_index"]),
        "averaged": number(span["scaled, then averaged", "uq_auc"]),
        "ten": number(span["ten classes", "uq_auc"]),
        "tops": [row[key] for row in example for key in ("first", "second")],
    }
    return [note.format(**settings, **shown) for note in _WORDS["notes"]]
