"""A study on real data: the paper's row beside ours, more tables, figures, and which of the paper's claims hold."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uqeval._check import Progress
from uqeval._result import Grid, csv_text, p_text
from uqeval.pages.words import plural
from uqeval.reproduce.human import figures
from uqeval.reproduce.human.tables import FLOORS, main_rows, several_label
from uqeval.reproduce.human.verdicts import WORDS, captions, drivers, shown_p, verdicts
from uqeval.reproduce.names import COLUMNS, FOUR, HEADS, MAIN, MEANINGS, TITLES, TOP_LABEL, TRUTHS, Row
from uqeval.reproduce.page import Makers, Page, setting, span
from uqeval.reproduce.study import Study, percent_cell, pick

_UNSHOWN = ("title", "tied_majorities", "majority_is_label", "text", "accuracies", "undefined")
Column = Callable[[Row], str]


@dataclass(frozen=True)
class RealStudy(Study):
    """A study on real data: with tables beyond the main one, and the files that could not be used."""

    tables: dict[str, list[Row]] = field(default_factory=dict, repr=False)
    failures: list[dict[str, str]] = field(default_factory=list, repr=False)
    ignored: list[dict[str, str]] = field(default_factory=list, repr=False)

    def grid(self) -> Grid:
        """The correlations over the entropy of single models, the paper's above ours."""
        s, several = self.settings, plural(self.settings["single_models"], "single model")
        label = f"paper ({s['paper_models']} models)"
        found = self.table_rows(label, lambda m, t: percent_cell(pick(self.correlations, m, t)), self.paper)
        return found._replace(
            caption=f"Pearson correlations over {several}, by entropy: each metric with each human truth",
            notes=[WORDS["below"].format(100 * s["level"])],
        )

    def markdown(self) -> str:
        """The table, the paper's row beside ours, what to beware of, and what could not be used."""
        failed = ["", "Not used:", "", *(f"- {failure['reason']}" for failure in self.failures), ""]
        return super().markdown() + ("\n".join(failed) if self.failures else "")

    def files(self) -> dict[str, str]:
        """What its files are called, and what is in them; `models.csv` has a row per model and score."""
        return super().files() | {"models.csv": csv_text(self.models)}

    def verdicts(self) -> dict[str, list[str]]:
        """What of the paper's claims holds on these models, what does not, and what cannot be told."""
        return verdicts(self, self.tables)

    def drivers(self) -> list[str]:
        """What the range of accuracies among the models does to the correlations."""
        return drivers(self, self.tables)

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        return figures.makers(self, self.tables)

    def page(self) -> Page:
        """What its page says."""
        s = self.settings
        accuracies, grid = s["accuracies"], self.grid()
        return Page(
            title=f"The paper's study on {s['title']}",
            lead=WORDS["lead"],
            facts=[
                ("single models", f"{s['single_models']}"),
                ("models in all", f"{s['models']}"),
                ("rows", f"{s['rated']:,}"),
                ("classes", f"{s['classes']:,}"),
                *([("accuracies", span(accuracies, "{:.2f}"))] if accuracies else []),
            ],
            short=[
                *self.verdicts().items(),
                ("The range of accuracies", self.drivers()),
                ("Predictions that could not be used", [failure["reason"] for failure in self.failures]),
            ],
            tables=[grid._replace(notes=[*grid.notes, *_tests(self)]), *_tables(self)],
            notes=self.notes,
            settings=[(name.replace("_", " "), setting(value)) for name, value in s.items() if name not in _UNSHOWN],
            texts=WORDS["figures"] | captions(self, self.tables),
            shown=4,
        )


# ---- more tables ---------------------------------------------------------------------------------------------------


def _grid(caption: str, rows: Iterable[Row], columns: Mapping[str, Column], *notes: str) -> Grid:
    """A line per row, a cell per column."""
    return Grid(list(columns), [[cell(row) for cell in columns.values()] for row in rows], caption, notes)


def _text(key: str) -> Column:
    return lambda row: str(row[key]).replace("_", " ")


def _digits(key: str, form: str = ".4f") -> Column:
    return lambda row: "–" if row[key] is None or math.isnan(row[key]) else f"{row[key]:{form}}".replace("-", "−")


def _tables(study: RealStudy) -> list[Grid]:
    more, level = study.tables, 100 * study.settings["level"]
    ends = [_digits(end, "+.4f") for end in ("low", "high")]
    compared: dict[str, Column] = {
        "of": lambda row: row["of"],
        "metric": lambda row: TITLES[row["metric"]],
        "a": lambda row: row["a"],
        "b": lambda row: row["b"],
        "a − b": _digits("difference", "+.4f"),
        f"{level:g}% interval": lambda row: "–" if math.isnan(row["low"]) else " to ".join(end(row) for end in ends),
        "adjusted": lambda row: p_text(row["p_adjusted"]),
    }
    wide: dict[str, tuple[str, list[Row], Column]] = {
        "With accuracy held fixed": ("models", more["accuracy_fixed"], lambda _: "as if equally accurate"),
        WORDS["one_vs_rest"]: ("models", more["one_vs_rest"], lambda _: "by entropy"),
        "By score": ("score", more["by_score"], _text("score")),
        "By accuracy of the models": (
            "models",
            [row for row in more["floors"] if row["accuracy"] in (0.0, *FLOORS)],
            lambda row: f"more accurate than {row['accuracy']:.0%}",
        ),
        WORDS["families"]: ("models", more["families"], lambda row: f"{row['families']} families"),
    }
    return [
        *(_wide(caption, *table) for caption, table in wide.items()),
        _top_label(more["top_label"]),
        _grid("Comparisons on the same rows", more["comparisons"], compared, WORDS["together"]),
        *_models(study),
    ]


def _wide(caption: str, corner: str, rows: list[Row], label: Column) -> Grid:
    """The four correlations side by side, a line for each label."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(label(row), []).append(row)
    lines = [
        [name, str(part[0]["n"]), *(percent_cell(pick(part, *pair)) for pair in FOUR)] for name, part in parts.items()
    ]
    return Grid([corner, "n", *HEADS], lines, caption)


def _top_label(rows: list[Row]) -> Grid:
    """A line for each metric, a column for each order that a score may follow."""
    metric, truth = TOP_LABEL
    names = TITLES | TOP_LABEL
    lines = [
        [names[m], str(rows[0]["n"]), *(percent_cell(pick(rows, m, t)) for t in (*TRUTHS, truth))]
        for m in ((*MAIN, metric) if rows else ())
    ]
    caption, notes = WORDS["top_label"]
    return Grid(["metric", "n", *(MEANINGS[t] for t in TRUTHS), names[truth]], lines, caption, notes)


def _models(study: RealStudy) -> list[Grid]:
    """Every ensemble and passes with their scores, and every single model by its entropy."""
    several = [row for row in study.models if row["kind"] != "single"]
    second = {"model": several_label, "score": _text("score"), "accuracy": _digits("accuracy", ".3f")}
    second |= {(TITLES | COLUMNS)[key]: _digits(key) for key in (*MAIN, *TRUTHS, "aurc", "augrc")}
    single = sorted(main_rows(study.models), key=lambda row: -row["accuracy"])
    first: dict[str, Any] = {key: lambda row, key=key: row[key] for key in ("model", "family")}
    first |= {"rows": _digits("n", ","), "accuracy": _digits("accuracy")}
    first |= {(TITLES | COLUMNS)[key]: _digits(key) for key in (*MAIN, *TRUTHS, "ece")}
    first |= {f"{TITLES[key]}, one vs rest": _digits(f"{key}_ovr") for key in MAIN}
    return [
        _grid("Scores of ensembles and of stochastic passes", several, second),
        _grid("Every single model, by entropy", single, first, "All scores and metrics are in models.csv."),
    ]


def _tests(study: RealStudy) -> list[str]:
    lines = []
    for test in study.tests:
        if not math.isnan(test["p_williams"]):
            found, low, high = (f"{100 * test[key]:+.2f}".replace("-", "−") for key in ("difference", "low", "high"))
            interval = "no interval" if math.isnan(test["low"]) else f"{low} to {high}, Zou"
            p = shown_p(test["p_williams"]), shown_p(test["p_steiger"])
            lines.append(WORDS["test"].format(TITLES[test["truth"]], found, interval, *p))
    return lines
