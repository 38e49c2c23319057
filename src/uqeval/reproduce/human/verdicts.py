"""What a study on real data says in short: which of the paper's claims hold on its models, and what accuracy does."""

import math
from collections.abc import Mapping, Sequence

from uqeval._result import p_text
from uqeval.reproduce.human.tables import FLOORS, four_of, known_rows, main_rows
from uqeval.reproduce.names import FOUR, MAIN, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import span
from uqeval.reproduce.study import ENOUGH, FEWEST, Study, percent_cell, pick

WORDS = read_table("words.toml")["human"]
GOOD, WEAK = "What reproduces", "In the paper's order, but not shown"
BAD, OPEN = "What does not", "What cannot be told"
_NUMBERS = ("None", "One", "Two", "Three", "Four")
Tables = Mapping[str, Sequence[Row]]


def verdicts(study: Study, tables: Tables) -> dict[str, list[str]]:
    """Lines by heading. A claim holds if its correlation is larger by Williams' test and above 0 with its interval."""
    lines: dict[str, list[str]] = {heading: [] for heading in (GOOD, WEAK, BAD, OPEN)}
    r, known = four_of(study.correlations), study.settings["single_models"]
    if r is None:
        lines[OPEN].append(f"The correlations are undefined: {_why_undefined(study)}.")
    elif "generated" in study.settings:
        lines[OPEN].append(study.settings["generated"])
    elif known < ENOUGH:
        lines[OPEN].append(WORDS["too_few"].format(known, ENOUGH))
    else:
        for row in tables["questions"]:
            heading, line = _answer(row, study.settings["level"])
            lines[heading].append(line)
        if study.paper:
            inside = [
                f"{TITLES[row['metric']]} with {SYMBOLS[row['truth']]}"
                for row in study.paper
                if row["low"] <= r[row["metric"], row["truth"]] <= row["high"]
            ]
            lines[GOOD if len(inside) == len(study.paper) else BAD].append(inside_words(inside, len(study.paper)))
    return lines


def _answer(row: Row, level: float) -> tuple[str, str]:
    claim = WORDS[row["asked"]].format(TITLES[row["metric"]], TITLES[row["truth"]], TITLES[row["other"]])
    told = f"{claim}: r = {percent_cell(row)} against {percent_cell({'r': row['r_other']})}"
    told += f", Williams' test {shown_p(row['p_williams'])}."
    holds = row["r"] > row["r_other"]
    if row["one_vs_rest"]:
        told = f"One versus rest{':' if holds else ', it does not hold that'} {told}"
    if not holds:
        return BAD, told if row["one_vs_rest"] else f"It does not hold that {told}"
    if not row["r"] > 0:
        return BAD, f"{told} But the larger of the two is not above 0."
    if not row["low"] > 0 and row["r"] < 1:
        return WEAK, f"{told} But the interval of the larger holds 0."
    # 1 − 0.95 rounds to a little more than 0.05
    return (GOOD if row["p_williams"] < 1 - level - 1e-12 else WEAK), told


def shown_p(p: float) -> str:
    """A p-value in a sentence."""
    text = p_text(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"


def inside_words(inside: list[str], of: int) -> str:
    """How many of our numbers the paper's intervals hold."""
    count, many = _NUMBERS[len(inside)], _NUMBERS[of].lower()
    if len(inside) == of:
        return f"All {many} of our numbers lie inside the paper's intervals."
    if not inside:
        return f"None of our {many} numbers lies inside the paper's interval. The notes say what differs."
    verb, noun = ("lies", "interval") if len(inside) == 1 else ("lie", "intervals")
    which = " and ".join([", ".join(inside[:-1]), inside[-1]] if len(inside) > 1 else inside)
    return f"{count} of our {many} numbers {verb} inside the paper's {noun}: {which}. The notes say what differs."


def _why_undefined(study: Study) -> str:
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


def drivers(study: Study, tables: Tables) -> list[str]:
    """How the range of accuracies moves the correlations, with numbers."""
    steps = {row["accuracy"]: row["n"] for row in tables["floors"]}
    if not steps:
        return []
    accuracies = [row["accuracy"] for row in known_rows(main_rows(study.models, study.settings["min_accuracy"]))]
    start = f"Accuracies of the {len(accuracies)} models run from {span(accuracies, '{:.2f}')}. Over all of them"
    starts = {min(steps): start}
    for floor in FLOORS:
        if floor in steps and floor > min(steps):
            starts[floor] = f"Over the {steps[floor]} that are right on more than {floor:.0%}"
    found = []
    for floor, words in starts.items():
        rows = [row for row in tables["floors"] if row["accuracy"] == floor]
        found.append(f"{words}: {_sentence(study, rows)}")
    if four_of(tables["accuracy_fixed"]) is not None:
        found.append(
            f"With accuracy held fixed: {_sentence(study, tables['accuracy_fixed'])}{_distances(study, tables)}"
        )
    return found


def _sentence(study: Study, rows: Sequence[Row]) -> str:
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} {percent_cell(pick(rows, m, t)).split(' ')[0]}" for m, t in FOUR]
    r, kept = four_of(rows), ""
    if r is not None and "generated" not in study.settings and rows[0]["n"] >= ENOUGH:
        (auc, c_index), (phi, varphi) = MAIN, TRUTHS
        holds = r[auc, phi] > r[c_index, phi] and r[c_index, varphi] > r[auc, varphi]
        kept = f" The paper's order of the two metrics {'holds' if holds else 'does not hold'} for both truths."
    return f"{', '.join(parts)}.{kept}"


def _distances(study: Study, tables: Tables) -> str:
    """How far the partial and the plain correlations are from the paper's."""
    plain, fixed = four_of(study.correlations), four_of(tables["accuracy_fixed"])
    if plain is None or fixed is None or study.settings["single_models"] < ENOUGH:
        return ""
    if not study.paper or "generated" in study.settings:
        return ""
    printed = {(row["metric"], row["truth"]): row["r"] for row in study.paper}
    far = [100 * math.fsum(abs(r[pair] - printed[pair]) for pair in FOUR) / len(FOUR) for r in (fixed, plain)]
    return " " + WORDS["distances"].format(*far, "nearer" if far[0] < far[1] else "no nearer")


def captions(study: Study, tables: Tables) -> dict[str, str]:
    """What is said below the figures that only the run can tell."""
    steps = sorted({row["accuracy"] for row in tables["floors"]})
    first, last = (
        four_of([row for row in tables["floors"] if row["accuracy"] in end]) for end in (steps[:1], steps[-1:])
    )
    if first is None or last is None or len(steps) < 2:
        return {}
    cells = {pair: " and ".join(f"{100 * r[pair]:.1f}".replace("-", "−") for r in (first, last)) for pair in FOUR}
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} {cells[m, t]}" for m, t in FOUR]
    return {"accuracy_floor": f"At the left and at the right end: {', '.join(parts)}."}
