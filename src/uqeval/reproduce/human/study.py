"""A study on real data: the paper's row beside ours, more tables, figures, and which of the paper's claims hold."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from uqeval._check import Progress
from uqeval._result import Grid, p_text
from uqeval.pages.words import plural
from uqeval.reproduce.human import figures
from uqeval.reproduce.human.tables import FLOORS, four_of, known_rows, main_rows, several_label
from uqeval.reproduce.names import FOUR, HEADS, MAIN, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page, span
from uqeval.reproduce.study import FEWEST, Study, csv_text, percent_cell, pick

WEAK = "In the paper's order, but not significantly"

WORDS = read_table("words.toml")["human"]
_NUMBERS = ("None", "One", "Two", "Three", "Four")
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

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        return figures.makers(self, self.tables)

    def page(self) -> Page:
        """What its page says."""
        s = self.settings
        good, weak, bad = verdicts(self)
        accuracies, grid = s["accuracies"], self.grid()
        return Page(
            title=f"The paper's study on {s['title']}",
            lead=WORDS["lead"],
            facts=[
                ("single models", f"{s['single_models']}"),
                ("models in all", f"{s['models']}"),
                ("rows", f"{s['rated']:,}"),
                ("classes", f"{s['classes']:,}"),
                *([("accuracies", f"{accuracies[0]:.2f} to {accuracies[1]:.2f}")] if accuracies else []),
            ],
            short=[
                ("What reproduces", good),
                (WEAK, weak),
                ("What does not", bad),
                ("What drives the correlations", drivers(self)),
                ("Predictions that could not be used", [failure["reason"] for failure in self.failures]),
            ],
            tables=[grid._replace(notes=[*grid.notes, *_tests(self)]), *_tables(self)],
            notes=self.notes,
            settings=[
                (name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
                for name, value in s.items()
                if name not in _UNSHOWN
            ],
            texts=WORDS["figures"],
        )


# ---- in short ------------------------------------------------------------------------------------------------------


def verdicts(study: RealStudy) -> tuple[list[str], list[str], list[str]]:
    """What of the paper's claims holds on these models, what is in its order by chance perhaps, and what does not."""
    good: list[str] = []
    weak: list[str] = []
    bad: list[str] = []
    r = four_of(study.correlations)
    if r is None:
        return good, weak, [f"The correlations are undefined: {_why_undefined(study)}."]
    if "generated" in study.settings:
        return good, weak, [study.settings["generated"]]
    most = 1 - study.settings["level"] - 1e-12  # 1 − 0.95 rounds to a little more than 0.05
    better = {test["truth"]: test["p_williams"] for test in study.tests}
    closer = {row["metric"]: row["p_williams"] for row in study.tables["preferences"]}
    pairs = list(zip(MAIN, TRUTHS, MAIN[::-1], TRUTHS[::-1], strict=True))
    # Each metric against the other one on its own truth; then each with its own truth and with the other one.
    asked = [("better", (metric, truth), (other, truth), other, better.get(truth)) for metric, truth, other, _ in pairs]
    asked += [
        ("closer", (metric, truth), (metric, other), other, closer.get(metric)) for metric, truth, _, other in pairs
    ]
    for words, mine, others, other, p in asked:
        claim = WORDS[words].format(TITLES[mine[0]], TITLES[mine[1]], TITLES[other])
        shown = " against ".join(percent_cell({"r": r[pair]}) for pair in (mine, others))
        told = f"{claim}: r = {shown}, Williams' test {_p(math.nan if p is None else p)}."
        if r[mine] > r[others]:
            (good if p is not None and p < most else weak).append(told)
        else:
            bad.append(f"It does not hold that {told}")
    inside = [
        f"{TITLES[row['metric']]} with {SYMBOLS[row['truth']]}"
        for row in study.paper
        if row["low"] <= r[row["metric"], row["truth"]] <= row["high"]
    ]
    if study.paper:
        (good if len(inside) == len(study.paper) else bad).append(_inside(inside, len(study.paper)))
    return good, weak, bad


def _inside(inside: list[str], of: int) -> str:
    """How many of our numbers the paper's intervals hold."""
    count, many = _NUMBERS[len(inside)], _NUMBERS[of].lower()
    if len(inside) == of:
        return f"All {many} of our numbers lie inside the paper's intervals."
    if not inside:
        return f"None of our {many} numbers lies inside the paper's interval. The notes say what differs."
    verb, noun = ("lies", "interval") if len(inside) == 1 else ("lie", "intervals")
    which = " and ".join([", ".join(inside[:-1]), inside[-1]] if len(inside) > 1 else inside)
    return f"{count} of our {many} numbers {verb} inside the paper's {noun}: {which}. The notes say what differs."


def _why_undefined(study: RealStudy) -> str:
    """Why there are no correlations over the entropy of single models."""
    if all(row["kind"] != "single" for row in study.models):
        return "there are no single models, and the paper's table is of them"
    if not main_rows(study.models):
        return "the paper's table is of the entropy, which is not among the scores asked for"
    known = study.settings["single_models"]
    if known >= FEWEST:
        return "a metric or a truth is the same for all models"
    left, floor = len(study.settings["undefined"]), study.settings["min_accuracy"]
    more = f"; {left} more had an undefined metric" if left else ""
    above = f" of accuracy {floor:g} or more" if floor else ""
    return f"too few single models{above} ({known}{more}; at least {FEWEST} are needed)"


def drivers(study: RealStudy) -> list[str]:
    """How the range of accuracies moves the correlations, with numbers."""
    steps = {row["accuracy"]: row["n"] for row in study.tables["floors"]}
    if not steps:
        return []
    accuracies = [row["accuracy"] for row in known_rows(main_rows(study.models, study.settings["min_accuracy"]))]
    start = f"Accuracies of the {len(accuracies)} models run from {span(accuracies, '{:.2f}')}. Over all of them"
    starts = {min(steps): start}
    for floor in FLOORS:
        if floor in steps and floor > min(steps):
            starts[floor] = f"Over the {steps[floor]} that are right on more than {floor:.0%}"
    return [f"{words}: {_sentence(study, floor)}" for floor, words in starts.items()]


def _sentence(study: RealStudy, floor: float) -> str:
    rows = [row for row in study.tables["floors"] if row["accuracy"] == floor]
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} {percent_cell(pick(rows, m, t)).split(' ')[0]}" for m, t in FOUR]
    r, kept = four_of(rows), ""
    if r is not None and "generated" not in study.settings:
        (auc, c_index), (phi, varphi) = MAIN, TRUTHS
        holds = r[auc, phi] > r[c_index, phi] and r[c_index, varphi] > r[auc, varphi]
        kept = f" The paper's order of the two metrics {'holds' if holds else 'does not hold'} for both truths."
    return f"{', '.join(parts)}.{kept}"


def _tests(study: RealStudy) -> list[str]:
    lines = []
    for test in study.tests:
        if not math.isnan(test["p_williams"]):
            found, low, high = (f"{100 * test[key]:+.2f}".replace("-", "−") for key in ("difference", "low", "high"))
            interval = "no interval" if math.isnan(test["low"]) else f"{low} to {high}, Zou"
            p = _p(test["p_williams"]), _p(test["p_steiger"])
            lines.append(WORDS["test"].format(TITLES[test["truth"]], found, interval, *p))
    return lines


def _p(p: float) -> str:
    text = p_text(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"


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
        "By accuracy of the models": (
            "models",
            [row for row in more["floors"] if row["accuracy"] in (0.0, *FLOORS)],
            lambda row: f"more accurate than {row['accuracy']:.0%}",
        ),
        "By score": ("score", more["by_score"], _text("score")),
        WORDS["families"]: ("models", more["families"], lambda row: f"{row['families']} families"),
        WORDS["one_vs_rest"]: ("models", more["one_vs_rest"], lambda _: "entropy, shared by all classes"),
    }
    return [
        *(_wide(caption, *table) for caption, table in wide.items()),
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


def _models(study: RealStudy) -> list[Grid]:
    """Every ensemble and passes with their scores, and every single model by its entropy."""
    several = [row for row in study.models if row["kind"] != "single"]
    second = {"model": several_label, "score": _text("score"), "accuracy": _digits("accuracy", ".3f")}
    second |= {TITLES[key]: _digits(key) for key in (*MAIN, *TRUTHS, "aurc", "augrc")}
    single = sorted(main_rows(study.models), key=lambda row: -row["accuracy"])
    first: dict[str, Any] = {key: lambda row, key=key: row[key] for key in ("model", "family")}
    first |= {"rows": _digits("n", ","), "accuracy": _digits("accuracy")}
    first |= {TITLES[key]: _digits(key) for key in (*MAIN, *TRUTHS, "ece")}
    first |= {f"{TITLES[key]}, one vs rest": _digits(f"{key}_ovr") for key in MAIN}
    return [
        _grid("Scores of ensembles and of stochastic passes", several, second),
        _grid("Every single model, by entropy", single, first, "All scores and metrics are in models.csv."),
    ]
