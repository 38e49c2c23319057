"""The out-of-distribution study over draws of its data: its tables and its page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from uqeval._check import Progress
from uqeval._result import Grid, csv_text
from uqeval.reproduce.names import KIND_OF, Row
from uqeval.reproduce.ood import figures
from uqeval.reproduce.ood.figures import ALL
from uqeval.reproduce.ood.laws import KINDS
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page, setting, span
from uqeval.reproduce.study import Publishable, Timing, columns, fisher

_WORDS = read_table("words.toml")["ood"]
FAMILIES = ("softmax", "ensemble", "dropout", "features", "inputs", "truth")
OUTPUTS = FAMILIES[:3]  # scores of what networks put out, without those that are distances themselves
PAIRS = (("auroc", "kendall"), ("distance_c_index", "auroc"), ("own_c_index", "auroc"), ("uq_auc", "auroc"))
_METRICS = {"auroc": "AUROC", "fpr": "FPR at 95% TPR", "aupr": "AUPR"}
_FOLLOWS = 0.7  # r from which half of the variance is shared
_UNSEEN = ("distance_c_index", "own_c_index", "uq_auc")  # need no foreign row
_HEADS = {
    "distance_c_index": "distance C-index",
    "own_c_index": "distance C-index to other test rows",
    "uq_auc": "UQ-AUC",
}


@dataclass(frozen=True)
class OODStudy(Publishable):
    """Scores judged on known and foreign inputs; `publish` leaves it in a folder."""

    study: str = field(default="ood", kw_only=True)
    settings: dict[str, Any]
    models: list[Row] = field(repr=False)  # scored model × kind of foreign inputs × draw
    correlations: list[Row] = field(repr=False)  # pair × kind × draw, over scores of networks' outputs
    notes: Sequence[str] = field(default_factory=lambda: list(_WORDS["notes"]), repr=False)
    timing: Timing = field(default_factory=Timing, repr=False, compare=False)

    @cached_property
    def summary(self) -> list[Row]:
        """Each score, kind and metric over draws: of the median over the networks of a draw."""
        return summarise(self.models)

    @property
    def shown_draw(self) -> int:
        """The draw whose d is the median."""
        d = {int(seed): value for seed, value in self.settings["d"].items()}
        return sorted(d, key=lambda seed: (d[seed], seed))[(len(d) - 1) // 2]

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return super().to_dict() | {"summary": self.summary}

    def frame_rows(self) -> list[Row]:
        """The summary."""
        return self.summary

    def files(self) -> dict[str, str]:
        """What its files are called, and what is in them: also every scored model, and the correlations."""
        more = {"models.csv": csv_text(self.models), "correlations.csv": csv_text(self.correlations)}
        return super().files() | more

    def grid(self) -> Grid:
        """A line for each score: its AUROC by kind, and what needs no foreign row; medians over draws."""
        return self._lines(lambda row: f"{row['median']:.3f}", _WORDS["caption"], _WORDS["below"])

    def _lines(self, cell: Callable[[Row], str], caption: str, below: list[str]) -> Grid:
        """A line for each score, a cell for each number."""
        cells = {(row["family"], row["score"], row["metric"], row["kind"]): cell(row) for row in self.summary}
        first, rows = next(iter(KINDS)), []
        for family, score in dict.fromkeys((row["family"], row["score"]) for row in self.summary):
            shown = [cells[family, score, "auroc", kind] for kind in KINDS]
            # The best order is another one for each kind, and so is what it has without foreign rows.
            unseen = [cells.get((family, score, metric, first), "–") for metric in _UNSEEN]
            shown += ["–"] * len(_UNSEEN) if family == "truth" else unseen
            rows.append([figures.title(family, score), *shown])
        return Grid(["score", *(f"AUROC, {title}" for title in KINDS.values()), *_HEADS.values()], rows, caption, below)

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        return figures.makers(self.models, self.correlations, self.settings, self.shown_draw)

    def page(self) -> Page:
        """What its page says."""
        grid, d, draws = self.settings["grid"], self.settings["d"], self.settings["draws"]
        known = [("draws of the data", ", ".join(f"{seed} (d = {d[str(seed)]:.2f})" for seed in draws))]
        for name in ("data", "training", "features", "foreign"):
            known.append((name, "; ".join(f"{key.replace('_', ' ')}: {setting(v)}" for key, v in grid[name].items())))
        return Page(
            title="Out-of-distribution inputs: the paper's appendix, run",
            lead=_WORDS["lead"],
            facts=[
                ("draws of the data", str(len(draws))),
                ("scored models", f"{len({(r['draw'], r['model'], r['family'], r['score']) for r in self.models}):,}"),
                ("d, the distance of the means", span([d[str(seed)] for seed in draws], "{:.2f}")),
            ],
            short=verdicts(self.summary, self.correlations, self.models),
            tables=[
                self.grid(),
                _correlated(self.correlations),
                _within(self.correlations),
                self._lines(_cell, _WORDS["ranges"], []),
                *_with_intervals(self.models, self.shown_draw, grid),
            ],
            notes=self.notes,
            settings=known,
            texts=_WORDS["figures"],
            shown=3,
        )


def correlate(models: Sequence[Row], draws: Sequence[int]) -> list[Row]:
    """Pearson's r over the scores of networks' outputs, draw by draw and kind by kind: all, and those of one kind."""
    found = []
    for draw in draws:
        for kind in KINDS:
            every = [r for r in models if (r["draw"], r["kind"]) == (draw, kind) and r["family"] in OUTPUTS]
            groups = {ALL: every}
            for row in every:
                score = str(row["score"])
                groups.setdefault(KIND_OF.get(score, score), []).append(row)
            for (name, part), (first, second) in product(groups.items(), PAIRS):
                x, y = columns(part, first, second)
                names = {"scores": name, "first": first, "second": second, "kind": kind}
                found.append(names | fisher(x, y) | {"draw": draw})
    return found


def summarise(models: Sequence[Row]) -> list[Row]:
    """Median and range over draws of the median over networks."""
    values: dict[tuple[str, str, str, str], dict[int, list[float]]] = {}
    for row in models:
        for metric in (*_METRICS, *_UNSEEN, "kendall"):
            if row[metric] is not None:
                key = (row["family"], row["score"], metric, row["kind"])
                values.setdefault(key, {}).setdefault(row["draw"], []).append(row[metric])
    found = []
    for (family, score, metric, kind), by_draw in values.items():
        each = [float(np.median(part)) for part in by_draw.values()]
        row = {"family": family, "score": score, "metric": metric, "kind": kind, "median": float(np.median(each))}
        found.append(row | {"lowest": min(each), "highest": max(each), "draws": len(each)})
    return sorted(found, key=lambda row: FAMILIES.index(row["family"]))


def verdicts(summary: list[Row], correlations: list[Row], models: list[Row]) -> list[tuple[str, list[str]]]:
    """What was found, in words that follow from the numbers."""
    words = _WORDS["verdicts"]
    median = {pair: {KINDS[kind]: _range(correlations, pair, kind)[0] for kind in KINDS} for pair in PAIRS}

    def said(name: str, pair: tuple[str, str]) -> str:
        every = "; ".join(f"{_percent(value)}% {kind}" for kind, value in median[pair].items())
        return str(words[name]).format(every)

    def where(name: str, pair: tuple[str, str], holds: Callable[[float], bool]) -> str:
        kinds = [kind for kind, value in median[pair].items() if holds(value)]
        return str(words[name]).format("; ".join(kinds) or "nowhere", 100 * _FOLLOWS)

    best = {(row["draw"], row["kind"]): row["auroc"] for row in models if row["family"] == "truth"}
    above = [row["auroc"] - best[row["draw"], row["kind"]] for row in models if row["family"] != "truth"]
    counted = words["best"].format(sum(x > 0 for x in above), len(above), max(above))
    _, distance, own, uq_auc = PAIRS
    return [
        ("The AUROC of known against foreign rows", [said("follows", PAIRS[0]), counted]),
        (
            "A C-index of distances, without foreign rows",
            [
                said("distance", distance),
                said("own", own),
                where("stands_in", distance, lambda x: x > _FOLLOWS),
                where("misleads", distance, lambda x: x < 0),
                _of_one_kind(correlations),
                _of_the_best(summary),
            ],
        ),
        ("UQ-AUC is for another question", [said("uq_auc", uq_auc), where("opposite", uq_auc, lambda x: x < 0)]),
        ("Which scores find what", [_extremes(summary, kind) for kind in KINDS]),
    ]


def _of_one_kind(correlations: list[Row]) -> str:
    """In how many cases the distance C-index follows the AUROC less among scores of one kind than among all."""
    alone = [scores for scores in dict.fromkeys(row["scores"] for row in correlations) if scores != ALL]
    cases = [
        _range(correlations, PAIRS[1], kind, scores)[0] < whole
        for kind in KINDS
        if (whole := _range(correlations, PAIRS[1], kind)[0]) > 0
        for scores in alone
    ]
    return str(_WORDS["verdicts"]["of_one_kind"]).format(sum(cases), len(cases))


def _of_the_best(summary: list[Row]) -> str:
    """The distance C-index of the best order of each kind."""
    found = [row for row in summary if (row["family"], row["metric"]) == ("truth", "distance_c_index")]
    every = "; ".join(f"{row['median']:.2f} {KINDS[row['kind']]}" for row in found)
    return str(_WORDS["verdicts"]["of_the_best"]).format(every)


def _extremes(summary: list[Row], kind: str) -> str:
    """The scores with the highest and the lowest median AUROC of a kind."""
    found = sorted(
        (row["median"], figures.title(row["family"], row["score"]))
        for row in summary
        if (row["metric"], row["kind"]) == ("auroc", kind) and row["family"] != "truth"
    )
    (low, worst), (high, best) = found[0], found[-1]
    return str(_WORDS["verdicts"]["scores"]).format(KINDS[kind], best, high, worst, low)


def _range(correlations: Sequence[Row], pair: tuple[str, str], kind: str, scores: str = ALL) -> tuple[float, ...]:
    """Median, lowest and highest r over draws; NaN where none is known."""
    asked = (*pair, kind, scores)
    part = [row["r"] for row in correlations if (row["first"], row["second"], row["kind"], row["scores"]) == asked]
    known = [r for r in part if math.isfinite(r)] or [math.nan]
    return float(np.median(known)), min(known), max(known)


def _percent(r: float) -> str:
    return "–" if math.isnan(r) else f"{100 * r:.0f}".replace("-", "−")


def _range_cell(found: tuple[float, ...]) -> str:
    middle, low, high = map(_percent, found)
    return middle if middle == "–" else f"{middle}% ({low} to {high})"


def _cell(row: Row) -> str:
    return f"{row['median']:.3f} ({row['lowest']:.3f} to {row['highest']:.3f})"


def _correlated(correlations: Sequence[Row]) -> Grid:
    rows = [
        [f"{_name(pair[0])} with {_name(pair[1])}", *(_range_cell(_range(correlations, pair, kind)) for kind in KINDS)]
        for pair in PAIRS
    ]
    return Grid(["Pearson's r over scores", *KINDS.values()], rows, _WORDS["correlated"], [_WORDS["correlated_below"]])


def _within(correlations: Sequence[Row]) -> Grid:
    """The distance C-index and the AUROC among scores of one kind."""
    rows = [
        [scores, *(_range_cell(_range(correlations, PAIRS[1], kind, scores)) for kind in KINDS)]
        for scores in dict.fromkeys(row["scores"] for row in correlations)
    ]
    return Grid(["scores", *KINDS.values()], rows, _WORDS["within"], [_WORDS["within_below"]])


def _name(column: str) -> str:
    return str((_METRICS | _HEADS | {"kendall": _WORDS["kendall"]})[column])


def _with_intervals(models: Sequence[Row], draw: int, grid: dict[str, Any]) -> list[Grid]:
    """A table for each kind of foreign inputs: one network of each method on one draw, with intervals."""
    layers = "-".join(map(str, grid["training"]["hidden"][0]))
    rates = grid["training"]["learning_rates"]
    own = f" {layers} lr={rates[len(rates) // 2]:g} "
    chosen = [row for row in models if row["draw"] == draw and (own in f"{row['model']} " or row["model"] == "none")]
    found = []
    for kind, title in KINDS.items():
        rows = [
            [figures.title(row["family"], row["score"]), *(_interval(row, name) for name in _METRICS)]
            for family in FAMILIES
            for row in chosen
            if (row["family"], row["kind"]) == (family, kind)
        ]
        words = _WORDS["intervals"].format(title, draw, own.strip())
        found.append(Grid(["score", *_METRICS.values()], rows, words, [_WORDS["intervals_below"]]))
    return found


def _interval(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    known = low is not None and high is not None
    return f"{row[name]:.3f}" + (f" ({low:.3f} to {high:.3f})" if known else "")
