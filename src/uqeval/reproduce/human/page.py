"""The page of a study on real data: what reproduces, the paper's row beside ours, tables, figures, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from uqeval._result import Grid, p_text
from uqeval.reproduce.human.tables import FLOORS, four_of, known_rows, main_rows, several_label
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Page, span
from uqeval.reproduce.study import MAIN, MEANINGS, SYMBOLS, TITLES, TRUTHS, Row, percent_cell, pick

if TYPE_CHECKING:
    from uqeval.reproduce.human.run import RealStudy

__all__ = ["WEAK", "drivers", "page", "verdicts"]

WEAK = "In the paper's order, but not significantly"

_WORDS = read_table("words.toml")["human"]
_NUMBERS = ("None", "One", "Two", "Three", "Four")
_FOUR = [(metric, truth) for metric in MAIN for truth in TRUTHS]
_UNSHOWN = ("title", "tied_majorities", "majority_is_label", "text", "accuracies", "undefined")


def page(study: RealStudy) -> Page:
    """The page of a study on real data."""
    s = study.settings
    good, weak, bad = verdicts(study)
    accuracies, grid = s["accuracies"], study.grid()
    return Page(
        title=f"The paper's study on {s['title']}",
        lead=_WORDS["lead"],
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
            ("What drives the correlations", drivers(study)),
            ("Predictions that could not be used", [failure["reason"] for failure in study.failures]),
        ],
        tables=[grid._replace(notes=[*grid.notes, *_tests(study)]), *_tables(study)],
        notes=study.notes,
        settings=[
            (name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
            for name, value in s.items()
            if name not in _UNSHOWN
        ],
        texts=_WORDS["figures"],
    )


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

    shown = {pair: percent_cell({"r": value}) for pair, value in r.items()}

    def judge(mine: tuple[str, str], other: tuple[str, str], words: str, p: float) -> None:
        told = f"{words}: r = {shown[mine]} against {shown[other]}, Williams' test {_p(p)}."
        if r[mine] > r[other]:
            (good if p < most else weak).append(told)
        else:
            bad.append(f"It does not hold that {told}")

    p = {test["truth"]: test["p_williams"] for test in study.tests}
    for metric, other, truth in zip(MAIN, MAIN[::-1], TRUTHS, strict=True):
        words = f"{TITLES[metric]} follows {TITLES[truth]} better than {TITLES[other]} does"
        judge((metric, truth), (other, truth), words, p.get(truth, math.nan))
    p = {row["metric"]: row["p_williams"] for row in study.tables["preferences"]}
    for metric, truth, other in zip(MAIN, TRUTHS, TRUTHS[::-1], strict=True):
        words = f"{TITLES[metric]} correlates more with {TITLES[truth]} than with {TITLES[other]}"
        judge((metric, truth), (metric, other), words, p.get(metric, math.nan))
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
    single = [row for row in study.models if row["kind"] == "single"]
    if not single:
        return "there are no single models, and the paper's table is of them"
    if not main_rows(study.models):
        return "the paper's table is of the entropy, which is not among the scores asked for"
    known = study.settings["single_models"]
    if known >= 4:
        return "a metric or a truth is the same for all models"
    left = len(study.settings["undefined"])
    more = f"; {left} more had an undefined metric" if left else ""
    floor = study.settings["min_accuracy"]
    above = f" of accuracy {floor:g} or more" if floor else ""
    return f"too few single models{above} ({known}{more}; at least 4 are needed)"


def drivers(study: RealStudy) -> list[str]:
    """How the range of accuracies moves the correlations, with numbers."""
    words: list[str] = []
    steps = {row["accuracy"]: row["n"] for row in study.tables["floors"]}
    whole = min(steps, default=None)
    if whole is None:
        return words
    accuracies = [row["accuracy"] for row in known_rows(main_rows(study.models, study.settings["min_accuracy"]))]
    words.append(
        f"Accuracies of the {len(accuracies)} models run from {span(accuracies, '{:.2f}')}. "
        + _sentence(study, whole, "Over all of them")
    )
    for floor in FLOORS:
        if floor in steps and floor > whole:
            words.append(_sentence(study, floor, f"Over the {steps[floor]} that are right on more than {floor:.0%}"))
    return words


def _sentence(study: RealStudy, floor: float, start: str) -> str:
    rows = [row for row in study.tables["floors"] if row["accuracy"] == floor]
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} {percent_cell(pick(rows, m, t)).split(' ')[0]}" for m, t in _FOUR]
    r, kept = four_of(rows), ""
    if r is not None and "generated" not in study.settings:
        (auc, c_index), (phi, varphi) = MAIN, TRUTHS
        holds = r[auc, phi] > r[c_index, phi] and r[c_index, varphi] > r[auc, varphi]
        kept = f" The paper's order of the two metrics {'holds' if holds else 'does not hold'} for both truths."
    return f"{start}: {', '.join(parts)}.{kept}"


def _tests(study: RealStudy) -> list[str]:
    lines = []
    for test in study.tests:
        if math.isnan(test["p_williams"]):
            continue
        found, low, high = (f"{100 * test[key]:+.2f}".replace("-", "−") for key in ("difference", "low", "high"))
        interval = "no interval" if math.isnan(test["low"]) else f"{low} to {high}, Zou"
        lines.append(
            f"UQ-C-index against UQ-AUC with {TITLES[test['truth']]}: difference of r {found} points ({interval}); "
            f"Williams {_p(test['p_williams'])}, Steiger {_p(test['p_steiger'])}."
        )
    return lines


# ---- more tables -----------------------------------------------------------------------------------------------

Column = Callable[[Row], str]


def _grid(caption: str, rows: Iterable[Row], columns: Mapping[str, Column], *notes: str) -> Grid:
    """A line per row, a cell per column."""
    return Grid(list(columns), [[cell(row) for cell in columns.values()] for row in rows], caption, notes)


def _text(key: str) -> Column:
    return lambda row: str(row[key]).replace("_", " ")


def _digits(key: str, form: str = ".4f") -> Column:
    return lambda row: "–" if row[key] is None or math.isnan(row[key]) else f"{row[key]:{form}}".replace("-", "−")


def _tables(study: RealStudy) -> list[Grid]:
    more = study.tables
    floors = [row for row in more["floors"] if row["accuracy"] in (0.0, *FLOORS)]
    compared: dict[str, Column] = {
        "of": lambda row: row["of"],
        "metric": lambda row: TITLES[row["metric"]],
        "a": lambda row: row["a"],
        "b": lambda row: row["b"],
        "a − b": _digits("difference", "+.4f"),
        f"{100 * study.settings['level']:g}% interval": lambda row: (
            "–" if math.isnan(row["low"]) else " to ".join(_digits(end, "+.4f")(row) for end in ("low", "high"))
        ),
        "adjusted": lambda row: p_text(row["p_adjusted"]),
    }
    together = "Intervals and p-values of one question and metric hold together (max-t)."
    shared = "entropy, shared by all classes"
    return [
        _wide("By accuracy of the models", "models", floors, lambda row: f"more accurate than {row['accuracy']:.0%}"),
        _wide("By score", "score", more["by_score"], _text("score")),
        _wide(
            "Intervals that take families as independent, not models",
            "models",
            more["families"],
            lambda row: f"{row['families']} families",
        ),
        _wide("One versus rest (mean over classes)", "models", more["one_vs_rest"], lambda _: shared),
        _grid("Comparisons on the same rows", more["comparisons"], compared, together),
        *_models(study),
    ]


def _wide(caption: str, corner: str, rows: list[Row], label: Column) -> Grid:
    """The four correlations side by side, a line for each label."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(label(row), []).append(row)
    lines = [
        [name, str(part[0]["n"]), *(percent_cell(pick(part, *pair)) for pair in _FOUR)] for name, part in parts.items()
    ]
    head = [corner, "n", *(f"{TITLES[metric]}, {MEANINGS[truth]}" for metric, truth in _FOUR)]
    return Grid(head, lines, caption)


def _models(study: RealStudy) -> list[Grid]:
    """Every ensemble and passes with their scores, and every single model by its entropy."""
    several = [row for row in study.models if row["kind"] != "single"]
    second = {"model": several_label, "score": _text("score"), "accuracy": _digits("accuracy", ".3f")}
    second |= {TITLES[key]: _digits(key) for key in (*MAIN, *TRUTHS, "aurc", "augrc")}
    single = sorted(main_rows(study.models), key=lambda row: -row["accuracy"])
    first = {"model": lambda row: row["model"], "family": lambda row: row["family"], "rows": _digits("n", ",")}
    first |= {"accuracy": _digits("accuracy"), **{TITLES[key]: _digits(key) for key in (*MAIN, *TRUTHS, "ece")}}
    first |= {f"{TITLES[key]}, one vs rest": _digits(f"{key}_ovr") for key in MAIN}
    return [
        _grid("Scores of ensembles and of stochastic passes", several, second),
        _grid("Every single model, by entropy", single, first, "All scores and metrics are in models.csv."),
    ]


def _p(p: float) -> str:
    text = p_text(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"
