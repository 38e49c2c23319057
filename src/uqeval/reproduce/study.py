"""A reproduced experiment: models with their metrics and their true ranks, how the two correlate, and its folder."""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from uqeval import metrics
from uqeval._check import Bit, Float, Progress
from uqeval._errors import InputError, collected
from uqeval._files import write_whole
from uqeval._result import Grid, Result, csv_text, to_json
from uqeval.inference.correlations import compare_correlations, pearson
from uqeval.reproduce import panels
from uqeval.reproduce.names import COLUMNS, FOUR, KIND_OF, MAIN, METRICS, TITLES, TRUTHS, Row
from uqeval.reproduce.page import Makers, Page

FEWEST = 4  # models that Fisher's interval needs
ENOUGH = 10  # models from which anything is concluded: with fewer, an r of .6 cannot be told from 0


@dataclass
class Timing:
    """Seconds of each stage; how many parts there are, and how many of them were there from an earlier run."""

    seconds: dict[str, float] = field(default_factory=dict)
    parts: int = 0
    found: int = 0

    @contextmanager
    def stage(
        self, name: str, progress: Progress | None = None, *, resumes: bool = False
    ) -> Iterator[Callable[[int, int], None]]:
        """Takes the time of a block; yields what is to be told how many of its parts are done.

        Of a stage that `resumes`, the first that is told is how many an earlier run had finished.
        """
        start = time.perf_counter()

        def tell(done: int, total: int) -> None:
            if resumes and not self.parts:
                self.found, self.parts = done, total
            if progress is not None:
                progress(name, done, total)

        yield tell
        self.seconds[name] = time.perf_counter() - start

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.seconds.items())
        return f"{stages}; {sum(self.seconds.values()):.1f} s in all"

    def facts(self) -> list[tuple[str, str]]:
        """The whole time, for the top of a page."""
        return [("time of this run", _in_words(sum(self.seconds.values())))] if self.seconds else []

    def grid(self) -> Grid:
        """The times as a table."""
        rows = [[name, _in_words(spent)] for name, spent in self.seconds.items()]
        return Grid(["stage", "time"], rows, "Time per stage", self.remarks())

    def remarks(self) -> list[str]:
        """What an earlier run had finished."""
        there = f"{self.found} of {self.parts} parts were there from an earlier run and cost no time in this one."
        return [there] if self.found else []

    def to_json(self) -> str:
        """For a file beside the tables, never in them: they must not differ from run to run."""
        stages = {name: round(spent, 3) for name, spent in self.seconds.items()}
        total = round(sum(self.seconds.values()), 3)
        return to_json({"seconds": stages, "total": total, "parts": self.parts, "found": self.found})


def _in_words(spent: float) -> str:
    if spent < 60:
        return f"{spent:.1f} s"
    minutes, seconds = divmod(round(spent), 60)
    return f"{minutes} min {seconds} s"


class Publishable(Result):
    """A study that leaves itself in a folder; a subclass says what its table, figures and page are."""

    timing: Timing
    notes: Sequence[str]

    @abstractmethod
    def grid(self) -> Grid:
        """The main table."""

    @abstractmethod
    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""

    @abstractmethod
    def page(self) -> Page:
        """What its page says."""

    def to_dict(self) -> dict[str, Any]:
        """The stable JSON shape."""
        return {name: value for name, value in super().to_dict().items() if name != "timing"}

    def markdown(self) -> str:
        """The table, the paper's row beside ours, and what to beware of."""
        return "\n".join([self.grid().markdown(), "", *(f"- {note}" for note in self.notes)]) + "\n"

    def files(self) -> dict[str, str]:
        """What its files are called, and what is in them."""
        return {
            "table.json": self.to_json() + "\n",
            "table.csv": csv_text(self.frame_rows()),
            "table.md": self.markdown(),
        }

    def publish(self, folder: str | Path, *, progress: Progress | None = None) -> Path:
        """Writes tables, `figures/NAME.svg` and `.png`, `index.html` and `timing.json`, each whole or not at all.

        Parameters
        ----------
        folder : path
            Made where it is missing.
        progress : callable(stage, done, total), optional
            Called after every figure.

        Returns
        -------
        Path
            The folder.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self.files().items():
            write_whole(target / name, text)
        makers = self.figures(progress)
        with self.timing.stage("figures", progress) as tell:
            pictures = panels.save(makers, target, tell)
        with self.timing.stage("page", progress):
            html = self.page().html(pictures, self.timing.grid(), self.timing.facts())
            write_whole(target / "index.html", html)
        write_whole(target / "timing.json", self.timing.to_json() + "\n")
        return target

    def published(self, out: str | Path | None, progress: Progress | None = None) -> Self:
        """Itself, after `publish` where there is a folder."""
        if out is not None:
            self.publish(out, progress=progress)
        return self

    def __str__(self) -> str:
        return self.markdown()

    def view(self) -> Iterator[str | Grid]:
        """The table and the notes."""
        yield self.grid()
        yield from self.notes


@dataclass(frozen=True)
class Study(Publishable):
    """Everything that a study of metrics over models found; `publish` leaves it in a folder."""

    study: str
    settings: dict[str, Any]
    correlations: list[Row] = field(repr=False)  # metric × truth × draw
    summary: list[Row] = field(repr=False)  # metric × truth over draws
    tests: list[Row] = field(repr=False)  # is UQ-C-index better than UQ-AUC, draw by draw?
    models: list[Row] = field(repr=False)  # one row per scored model
    paper: list[Row] = field(repr=False)
    notes: list[str] = field(repr=False)
    timing: Timing = field(default_factory=Timing, repr=False, compare=False, kw_only=True)

    def frame_rows(self) -> list[Row]:
        """The correlations."""
        return self.correlations

    def table_rows(self, label: str, ours: Callable[[str, str], str], paper: Sequence[Row]) -> Grid:
        """A row for each metric, the paper's (called `label`) above ours, a cell for each truth."""
        rows: list[list[str]] = []
        marked: set[str] = set()
        for metric in dict.fromkeys(row["metric"] for row in self.correlations):
            printed = [percent_cell(row) for truth in TRUTHS if (row := pick(paper, metric, truth))]
            if printed:
                marked.add(f"{TITLES[metric]}, {label}")
                rows.append([f"{TITLES[metric]}, {label}", *printed, *["–"] * (len(TRUTHS) - len(printed))])
            rows.append([TITLES[metric], *(ours(metric, truth) for truth in TRUTHS)])
        return Grid(["metric", *(f"with {COLUMNS[truth]}" for truth in TRUTHS)], rows, marked=marked)


def pick(rows: Iterable[Row], metric: str, truth: str) -> Row | None:
    """The row of this metric and truth."""
    return next((row for row in rows if (row["metric"], row["truth"]) == (metric, truth)), None)


def percent_cell(row: Row | None) -> str:
    """r and its interval, where there is one, in percent."""
    if row is None or row["r"] is None or math.isnan(row["r"]):
        return "–"
    text = f"{_percent(row['r'])}%"
    if not math.isnan(row.get("low", math.nan)):
        text += f" ({_percent(row['low'])} to {_percent(row['high'])})"
    return text


def median_cell(summary: Sequence[Row], metric: str, truth: str) -> str:
    """Median and range over draws."""
    row = pick(summary, metric, truth)
    assert row is not None
    low, high = (row["lowest"], row["highest"]) if row["draws"] > 1 else (math.nan, math.nan)
    return percent_cell({"r": row["median"], "low": low, "high": high})


def _percent(r: float) -> str:
    """Two digits; more where they would round to ±100."""
    text = f"{100 * r:.2f}"
    if text.lstrip("-") == "100.00" and abs(r) < 1:
        text = f"{100 * r:.4f}"
    return text.replace("-", "−")


def fisher(x: Float, y: Float, *, level: float = 0.95, **how: Any) -> Row:
    """Pearson's r with its interval (Fisher's unless said otherwise), over the models that have both."""
    keep = np.isfinite(x) & np.isfinite(y)
    r = low = high = math.nan
    if keep.sum() >= FEWEST:
        with collected():
            found = pearson(x[keep], y[keep], level=level, **(how or {"method": "fisher"}))
        r, low, high = found.value, found.low, found.high
    return {"r": r, "low": low, "high": high, "n": int(keep.sum())}


def partial(x: Float, y: Float, held: Float, *, level: float = 0.95) -> Row:
    """Pearson's r of what is left of x and y when their straight lines in `held` are taken away; Fisher's interval."""
    keep = np.isfinite(x) & np.isfinite(y) & np.isfinite(held)
    n, r, low, high = int(keep.sum()), math.nan, math.nan, math.nan
    if n > FEWEST:
        line = np.column_stack([np.ones(n), held[keep]])
        left = [v[keep] - line @ np.linalg.lstsq(line, v[keep], rcond=None)[0] for v in (x, y)]
        with collected():
            found = pearson(*left, level=level, method="fisher")
        r = found.value
        if abs(r) < 1 and not math.isnan(r):
            # Holding one variable fixed costs one row (Fisher 1924).
            half = (math.atanh(found.high) - math.atanh(r)) * math.sqrt((n - 3) / (n - 4))
            low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    return {"r": r, "low": low, "high": high, "n": n}


def williams(first: Float, second: Float, shared: Float, *, level: float = 0.95) -> Row | None:
    """Whether `first` correlates more with `shared` than `second` does; None for too few models."""
    keep = np.isfinite(first) & np.isfinite(second) & np.isfinite(shared)
    if keep.sum() < FEWEST:
        return None
    with collected():
        test = compare_correlations(first[keep], second[keep], shared[keep], level=level)
    found = {"difference": test.difference, "low": test.low, "high": test.high}
    return found | {"p_williams": test.p, "p_steiger": test.p_steiger}


def judge_score(score: Float, error: Bit, gap: Float, phi: Float, varphi: Float) -> Row:
    """Every metric of a score, and its rank correlation (Kendall's tau-b) with both truths."""
    return {
        "uq_auc": metrics.uq_auc(score, error),
        "uq_c_index": metrics.uq_c_index(score, gap),
        "aurc": metrics.aurc(score, error),
        "augrc": metrics.augrc(score, error),
        "kendall_phi": metrics.kendall_tau(score, phi),
        "kendall_varphi": metrics.kendall_tau(score, varphi),
    }


def stored(row: Row) -> Row:
    """A row as JSON can hold it: None for what is not finite."""
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}


def columns(models: Sequence[Row], *names: str) -> Any:
    """Columns of some rows as arrays."""
    return [np.array([model[name] for model in models], dtype=np.float64) for name in names]


def correlate(models: Sequence[Row], draws: Sequence[Any], level: float = 0.95) -> tuple[list[Row], list[Row]]:
    """Pearson's r of every metric with both truths, draw by draw, Fisher's interval; and UQ-C-index against UQ-AUC.

    Fisher's interval takes the models of a draw as independent, as the paper does; it says nothing of other draws.
    """
    rows: list[Row] = []
    tests: list[Row] = []
    for draw in draws:
        part = [model for model in models if model["draw"] == draw]
        for truth in TRUTHS:
            for metric in METRICS:
                found = fisher(*columns(part, metric, truth), level=level)
                rows.append({"metric": metric, "truth": truth} | found | {"draw": draw})
            if (test := williams(*columns(part, *MAIN[::-1], truth), level=level)) is not None:
                tests.append({"draw": draw, "truth": truth} | test)
    return rows, tests


def within_kinds(models: Sequence[Row], draws: Sequence[Any], level: float = 0.95) -> list[Row]:
    """The four correlations among the scores of one kind alone, draw by draw."""
    return _within(
        models, draws, "scores", lambda model: KIND_OF.get(model["score"], model["score"].replace("_", " ")), level
    )


def within_methods(models: Sequence[Row], draws: Sequence[Any], level: float = 0.95) -> list[Row]:
    """The four correlations among the scores of one method alone, draw by draw."""
    return _within(models, draws, "method", lambda model: model["family"], level)


def _within(
    models: Sequence[Row], draws: Sequence[Any], column: str, name: Callable[[Row], str], level: float
) -> list[Row]:
    """The four correlations among the models of one name, which is then in that column."""
    found = []
    for own in dict.fromkeys(map(name, models)):
        alike = [model for model in models if name(model) == own]
        for draw in draws:
            part = [model for model in alike if model["draw"] == draw]
            for metric, truth in FOUR:
                r = fisher(*columns(part, metric, truth), level=level)
                found.append({column: own, "metric": metric, "truth": truth} | r | {"draw": draw})
    return found


def summarise(correlations: Sequence[Row]) -> list[Row]:
    """Median and range over draws."""
    found = []
    for metric in dict.fromkeys(row["metric"] for row in correlations):
        for truth in TRUTHS:
            values = [row["r"] for row in correlations if (row["metric"], row["truth"]) == (metric, truth)]
            ends = [r for r in values if not math.isnan(r)] or [math.nan]
            row = {"median": float(np.median(ends)), "lowest": min(ends), "highest": max(ends), "draws": len(values)}
            found.append({"metric": metric, "truth": truth} | row)
    return found


def check_natural(name: str, value: Any, least: int) -> int:
    """An int of at least so much."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"`{name}` must be an int ≥ {least}; it is {value!r}.")
    return int(value)
