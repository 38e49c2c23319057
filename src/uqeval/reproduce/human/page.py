"""The page of a study on real data: what reproduces, the paper's row beside ours, tables, figures, failures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from uqeval._result import p_text
from uqeval.report.words import plural
from uqeval.reproduce.human.run import RealStudy
from uqeval.reproduce.human.tables import FLOORS, MAIN, cell, known_rows, main_rows, pattern, pick
from uqeval.reproduce.page import Timing, figures_of, render, seconds_text, span
from uqeval.reproduce.panels import Picture
from uqeval.reproduce.study import TITLES, TRUTHS

__all__ = ["WEAK", "real_page", "verdicts"]

WEAK = "In the paper's order, but not significantly"

_LEAD = (
    "People's votes say how uncertain each row really is. So a score can be judged twice: by UQ-AUC and UQ-C-index, "
    "which need labels only, and by κ, its rank correlation with the chance that a person disagrees with the "
    "prediction (φ) or with what the model denies the answer of most people (ϕ). If models that are better by the "
    "first are better by the second too, the metrics can stand in for the truth. The paper finds that UQ-AUC follows φ "
    "and UQ-C-index ϕ."
)
_TEXTS = {
    "metric_vs_kendall": "Upper left and lower right are the pairs that belong together. Colours and marks are "
    "the paper's.",
    "accuracy_floor": "Models differ above all in how accurate they are, and both sides of a correlation move with "
    "that: among models that are alike in accuracy, less is left to correlate.",
    "by_score": "The paper used the entropy alone.",
    "second_order": "Higher is better in all four panels.",
    "comparisons": "Models are compared by UQ-AUC, since UQ-C-index contains the model's own probabilities; scores of "
    "one model by both.",
}
_NUMBERS = ("None", "One", "Two", "Three", "Four")
_FOUR = [(metric, truth) for metric in MAIN for truth in TRUTHS]
_HEAD = [f"{TITLES[metric]}, {TITLES[truth]}" for metric, truth in _FOUR]


def real_page(
    study: RealStudy, pictures: Mapping[str, Picture], timing: Timing | None = None, remark: str | None = None
) -> str:
    """The page; arguments as for `uqeval.reproduce.page.synthetic_page`."""
    s = study.settings
    good, weak, bad = verdicts(study)
    rows = study.table_rows()
    accuracies = s["accuracies"]
    facts = [
        ("single models", f"{s['single_models']}"),
        ("models in all", f"{s['models']}"),
        ("rows", f"{s['rated']:,}"),
        ("classes", f"{s['classes']:,}"),
        *([("accuracies", f"{accuracies[0]:.2f} to {accuracies[1]:.2f}")] if accuracies else []),
        *([("time of this run", seconds_text(sum(timing.values())))] if timing else []),
    ]
    short = [("What reproduces", good), (WEAK, weak), ("What does not", bad)]
    short.append(("What drives the correlations", drivers(study)))
    if study.failures:
        short.append(("Predictions that could not be used", [failure["reason"] for failure in study.failures]))
    shown = ("title", "tied_majorities", "majority_is_label", "text", "accuracies", "undefined")
    return render(
        title=f"The paper's study on {s['title']}",
        lead=_LEAD,
        facts=facts,
        short=[(title, lines) for title, lines in short if lines],
        table={
            "caption": "Pearson correlations over models: each metric with each human truth",
            "corner": "metric",
            "head": [f"with {TITLES[truth]}" for truth in TRUTHS],
            "rows": [[label, *cells] for label, cells, _ in rows],
            "marked": {label for label, _, paper in rows if paper},
            "notes": [
                f"Entropy of {plural(s['single_models'], 'single model')}, r with its {100 * s['level']:g}% Fisher "
                f"interval, which takes models as independent. Low AURC, AUGRC, ECE, Brier and NLL are better, so a "
                f"useful one lies near −100%.",
                *_tests(study),
            ],
        },
        tables=[table for table in _tables(study) if table["rows"]],
        figures=figures_of(pictures, _TEXTS),
        notes=study.notes,
        settings=[
            (name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value))
            for name, value in s.items()
            if name not in shown
        ],
        timing=timing,
        remark=remark,
    )


def verdicts(study: RealStudy) -> tuple[list[str], list[str], list[str]]:
    """What of the paper's claims holds on these models, what is in its order by chance perhaps, and what does not."""
    good: list[str] = []
    weak: list[str] = []
    bad: list[str] = []
    found = pattern(study.correlations)
    if found is None:
        return good, weak, [f"The correlations are undefined: {_why_undefined(study)}."]
    if "generated" in study.settings:
        return good, weak, [study.settings["generated"]]
    most = 1 - study.settings["level"] - 1e-12  # 1 − 0.95 rounds to a little more than 0.05

    def judge(holds: bool, words: str, numbers: str, p: float) -> None:
        told = f"{words}: {numbers}, Williams' test {_p(p)}."
        if not holds:
            bad.append(f"It does not hold that {told}")
        else:
            (good if p < most else weak).append(told)

    r = {pair: cell(pick(study.correlations, *pair)).split(" ")[0] for pair in _FOUR}
    p = {test["truth"]: test["p_williams"] for test in study.tests}
    names = {
        "auc_follows_phi_better": ("uq_auc", "kendall_phi"),
        "c_index_follows_varphi_better": ("uq_c_index", TRUTHS[1]),
    }
    for key, (metric, truth) in names.items():
        other = MAIN[1 - MAIN.index(metric)]
        words = f"{TITLES[metric]} follows {TITLES[truth]} better than {TITLES[other]} does"
        judge(found[key], words, f"r = {r[metric, truth]} against {r[other, truth]}", p.get(truth, math.nan))
    p = {row["metric"]: row["p_williams"] for row in study.more["preferences"]}
    for key, metric, truth in (("auc_prefers_phi", *_FOUR[0]), ("c_index_prefers_varphi", *_FOUR[3])):
        other = TRUTHS[1 - TRUTHS.index(truth)]
        words = f"{TITLES[metric]} correlates more with {TITLES[truth]} than with {TITLES[other]}"
        judge(found[key], words, f"r = {r[metric, truth]} against {r[metric, other]}", p.get(metric, math.nan))
    inside = [
        f"{TITLES[row['metric']]} with {TITLES[row['truth']]}"
        for row in study.paper
        if row["low"] <= pick(study.correlations, row["metric"], row["truth"])["r"] <= row["high"]  # type: ignore[index]
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
    steps = {row["accuracy"]: row["n"] for row in study.more["floors"]}
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
    rows = [row for row in study.more["floors"] if row["accuracy"] == floor]
    parts = [f"{TITLES[m]} with {TITLES[t]} {cell(pick(rows, m, t)).split(' ')[0]}" for m, t in _FOUR]
    found = pattern(rows)
    kept = (
        ""
        if found is None or "generated" in study.settings
        else " The paper's order of the two metrics holds for both truths."
        if found["auc_follows_phi_better"] and found["c_index_follows_varphi_better"]
        else " The paper's order of the two metrics does not hold for both truths."
    )
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


def _tables(study: RealStudy) -> list[dict[str, Any]]:
    more = study.more
    floors = [row for row in more["floors"] if row["accuracy"] in (0.0, *FLOORS)]
    wide = [
        _wide("By accuracy of the models", "models", floors, "accuracy", lambda a: f"more accurate than {a:.0%}", True),
        _wide("By score", "score", more["by_score"], "score", lambda name: str(name).replace("_", " "), True),
        _wide(
            "Intervals that take families as independent, not models",
            "models",
            [row | {"all": "all"} for row in more["families"]],
            "all",
            lambda _: f"{more['families'][0]['families']} families",
            True,
        ),
        _wide(
            "One versus rest (mean over classes)",
            "models",
            [row | {"all": "all"} for row in more["one_vs_rest"]],
            "all",
            lambda _: "entropy, shared by all classes",
            True,
        ),
    ]
    return [*wide, _second(study), _compared(study), _models(study)]


def _wide(caption: str, corner: str, rows: list[dict[str, Any]], key: str, label: Any, count: bool) -> dict[str, Any]:
    lines = []
    for value in dict.fromkeys(row[key] for row in rows):
        part = [row for row in rows if row[key] == value]
        counts = [str(part[0]["n"])] if count else []
        lines.append([label(value), *counts, *(cell(pick(part, m, t)) for m, t in _FOUR)])
    head = [*(["n"] if count else []), *_HEAD]
    return {"caption": caption, "corner": corner, "head": head, "rows": lines, "marked": (), "notes": []}


def _second(study: RealStudy) -> dict[str, Any]:
    keys = (*MAIN, *TRUTHS, "aurc", "augrc")
    rows = [
        [f"{row['model']} ({row['members']} {row['kind']})", row["score"].replace("_", " "), f"{row['accuracy']:.3f}"]
        + [_number(row[key]) for key in keys]
        for row in study.models
        if row["kind"] != "single"
    ]
    return {
        "caption": "Scores of ensembles and of stochastic passes",
        "corner": "model",
        "head": ["score", "accuracy", *(TITLES[key] for key in keys)],
        "rows": rows,
        "marked": (),
        "notes": [],
    }


def _compared(study: RealStudy) -> dict[str, Any]:
    rows = [
        [
            row["of"],
            TITLES[row["metric"]],
            row["a"],
            row["b"],
            _signed(row["difference"]),
            "–" if math.isnan(row["low"]) else f"{_signed(row['low'])} to {_signed(row['high'])}",
            p_text(row["p_adjusted"]),
        ]
        for row in study.more["comparisons"]
    ]
    return {
        "caption": "Comparisons on the same rows",
        "corner": "of",
        "head": ["metric", "a", "b", "a − b", f"{100 * study.settings['level']:g}% interval", "adjusted"],
        "rows": rows,
        "marked": (),
        "notes": ["Intervals and p-values of one question and metric hold together (max-t)."],
    }


def _models(study: RealStudy) -> dict[str, Any]:
    keys = (*MAIN, *TRUTHS, "ece", "uq_auc_ovr", "uq_c_index_ovr")
    titles = {**TITLES, "uq_auc_ovr": "UQ-AUC, one vs rest", "uq_c_index_ovr": "UQ-C-index, one vs rest"}
    main = sorted(main_rows(study.models), key=lambda row: -row["accuracy"])
    rows = [
        [row["model"], row["family"], f"{row['n']:,}", f"{row['accuracy']:.4f}", *(_number(row[key]) for key in keys)]
        for row in main
    ]
    return {
        "caption": "Every single model, by entropy",
        "corner": "model",
        "head": ["family", "rows", "accuracy", *(titles[key] for key in keys)],
        "rows": rows,
        "marked": (),
        "notes": ["All scores and metrics are in models.csv."],
    }


def _p(p: float) -> str:
    text = p_text(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.4f}".replace("-", "−")


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.4f}".replace("-", "−")
