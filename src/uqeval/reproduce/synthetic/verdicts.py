"""What the synthetic study says in short: which claims hold on its draws, with any d, among scores of one kind."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uqeval.pages.words import plural
from uqeval.reproduce.names import FOUR, KIND_OF, MAIN, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import span
from uqeval.reproduce.study import ENOUGH, Study, pick, summarise

GOOD, BAD, OPEN = "What reproduces", "What does not", "What cannot be told"
_WORDS = read_table("words.toml")["synthetic"]
_CLOSE = 0.8  # r from which one thing is said to follow another


def notes_of(models: list[Row], tests: list[Row], settings: Mapping[str, Any], skipped: list[int]) -> list[str]:
    """What to beware of, and how often the metrics agree with the truth, in numbers."""
    words, d = _WORDS["notes"], settings["d"]
    notes = [words["d"].format(", ".join(f"{seed}: {value:.2f}" for seed, value in d.items())), words["draw"]]
    if skipped:
        notes.append(words["skipped"].format(settings["d_range"], ", ".join(map(str, skipped))))
    for kendall, metric in zip(TRUTHS, MAIN, strict=True):
        negative = [row for row in models if row[kendall] is not None and row[kendall] < 0]
        if negative:
            below = sum(row[metric] is not None and row[metric] < 0.5 for row in negative) / len(negative)
            count = f"{len(negative)} of {len(models)}"
            notes.append(words["negative"].format(count, TITLES[kendall], below, TITLES[metric]))
    for kendall in TRUTHS:
        better = [test for test in tests if test["truth"] == kendall and test["difference"] > 0]
        sure = sum(test["p_williams"] < 0.05 for test in better)
        notes.append(words["better"].format(TITLES[kendall], len(better), len(d), sure))
    return notes


def selection(settings: Mapping[str, Any]) -> str:
    """Which draws were chosen, and what share of the law they leave out."""
    low, high = settings["d_range"]
    every, share = settings["first_seeds"], 1 - _share(settings["grid"]["data"], low, high)
    law = _WORDS["left_out"].format(share) if not math.isnan(share) else ""
    outside = sum(not low <= value <= high for value in every.values())
    return _WORDS["any_d"].format(low, high, law, len(every), outside)


def _share(data: Mapping[str, Any], low: float, high: float) -> float:
    """P(low ≤ d ≤ high) of two classes in the plane, where d²/(4τ) is exponential."""
    if (data.get("classes", 2), data.get("dim", 2)) != (2, 2):
        return math.nan
    first, second = (math.exp(-(end**2) / (4 * data.get("tau", 1.0))) for end in (low, high))
    return first - second


def verdicts(study: Study) -> dict[str, list[str]]:
    """Lines by heading. A claim holds if it does on every draw, the correlation above 0 with its interval."""
    lines: dict[str, list[str]] = {heading: [] for heading in (GOOD, BAD, OPEN)}
    rows = {(row["metric"], row["truth"], row["draw"]): row for row in study.correlations}
    r = {key: row["r"] for key, row in rows.items()}
    draws, words = study.settings["draws"], _WORDS["verdicts"]
    fewest = min(rows[metric, truth, draw]["n"] for metric, truth in FOUR for draw in draws)
    if fewest < ENOUGH:
        lines[OPEN].append(words["too_few"].format(fewest, ENOUGH))
        return lines

    def above(metric: str, truth: str) -> bool:
        """Whether the interval is above 0 on every draw; one of r = 1 has none."""
        return all(rows[metric, truth, draw]["low"] > 0 or r[metric, truth, draw] == 1 for draw in draws)

    of = plural(len(draws), "draw")
    judged: list[tuple[bool, str]] = []
    for metric, truth in zip(MAIN, TRUTHS, strict=True):
        values = [100 * r[metric, truth, draw] for draw in draws if not math.isnan(r[metric, truth, draw])]
        if values:
            close = min(values) > 100 * _CLOSE and above(metric, truth)
            follows = "follows" if close else "does not always follow"
            judged.append((close, f"{TITLES[metric]} {follows} {TITLES[truth]}: r = {span(values, '{:.1f}')}%."))
    better = sum(r["uq_c_index", TRUTHS[1], draw] > r["uq_auc", TRUTHS[1], draw] for draw in draws)
    holds = better == len(draws) and above("uq_c_index", TRUTHS[1])
    judged.append((holds, words["better"].format(TITLES[TRUTHS[1]], better, of)))
    judged += [(True, note) for note in study.notes if "have a negative" in note]
    ece = [abs(r["ece", truth, draw]) for truth in TRUTHS for draw in draws if not math.isnan(r["ece", truth, draw])]
    if ece:
        tells = "tells little" if max(ece) < 0.5 else "also tells something"
        judged.append((max(ece) < 0.5, words["calibration"].format(tells, 100 * max(ece))))
    sure = [
        sum(t["truth"] == truth and t["difference"] > 0 and t["p_williams"] < 0.05 for t in study.tests)
        for truth in TRUTHS
    ]
    told = words["significant"].format(sure[0], of, TITLES[TRUTHS[0]], sure[1], TITLES[TRUTHS[1]])
    judged.append((min(sure) >= 0.9 * len(draws) and all(above("uq_c_index", truth) for truth in TRUTHS), told))
    judged += [(False, line) for line in _printed(study, r, of)]
    for holds, line in judged:
        lines[GOOD if holds else BAD].append(line)
    return lines


def _printed(study: Study, r: Mapping[tuple[str, str, Any], float], of: str) -> list[str]:
    """On how many draws our numbers lie in the paper's intervals, and how far they go from draw to draw."""
    draws, words = study.settings["draws"], _WORDS["verdicts"]
    if not study.paper:
        return []
    inside = {
        (row["metric"], row["truth"]): [
            row["low"] <= r[row["metric"], row["truth"], draw] <= row["high"] for draw in draws
        ]
        for row in study.paper
    }
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} on {sum(found)}" for (m, t), found in inside.items()]
    every = sum(map(all, zip(*inside.values(), strict=True)))
    widths = []
    for row in study.paper:
        values = [r[row["metric"], row["truth"], draw] for draw in draws]
        name = f"{TITLES[row['metric']]} with {SYMBOLS[row['truth']]}"
        widths.append(f"{name} {100 * (max(values) - min(values)):.2f} and {100 * (row['high'] - row['low']):.2f}")
    return [words["printed"].format(of, ", ".join(parts), every), words["why"].format(", ".join(widths))]


def with_any_d(any_d: Sequence[Row], settings: Mapping[str, Any]) -> list[str]:
    """How far the correlations go when no draw is left out."""
    if not any_d:
        return []
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} {_range(any_d, m, t)}" for m, t in FOUR]
    return [f"{selection(settings)} On these: {', '.join(parts)}."]


def _range(rows: Sequence[Row], metric: str, truth: str) -> str:
    """Lowest to highest and the median, in percent."""
    row = pick(summarise(rows), metric, truth)
    assert row is not None
    low, high, middle = (_digit(row[key]) for key in ("lowest", "highest", "median"))
    return f"{low} to {high} (median {middle})"


def _digit(r: float) -> str:
    return f"{100 * r:.1f}".replace("-", "−")


def among_one_kind(within: Sequence[Row]) -> list[str]:
    """How much of the correlations is left among scores that are alike."""
    found = []
    for kind in dict.fromkeys(row["scores"] for row in within):
        part = [row for row in within if row["scores"] == kind]
        summary = summarise(part)
        middle = {(row["metric"], row["truth"]): _digit(row["median"]) for row in summary}
        cells = [f"{TITLES[m]} with {SYMBOLS[t]} {middle[m, t]}" for m, t in FOUR]
        found.append(f"{kind}, {max(row['n'] for row in part)} scores a draw, medians: {', '.join(cells)}%.")
    return found


# ---- below the figures ---------------------------------------------------------------------------------------------


def captions(study: Study, any_d: Sequence[Row], shown: int) -> dict[str, str]:
    """What is said below the figures that only the run can tell."""
    words, found = _WORDS["captions"], {}
    (metric, truth), *_ = FOUR
    rows = [row for row in study.correlations if (row["metric"], row["truth"]) == (metric, truth)]
    widths = [100 * (row["high"] - row["low"]) for row in rows if not math.isnan(row["low"])]
    if widths:
        width = f"{np.median(widths):.1f}"
        wider = f"; with any d, {_range(any_d, metric, truth)}" if any_d else ""
        name = f"{TITLES[metric]} with {SYMBOLS[truth]}"
        found["correlations_vs_d"] = words["d"].format(name, _range(rows, metric, truth), wider, width)
    found["metric_vs_kendall_by_method"] = f"{words['by_method']} {_worse(study)}"
    alike = [row for row in study.models if row["draw"] == shown and KIND_OF.get(row["score"]) == "entropy"]
    for name, kendall in zip(("score_vs_phi", "score_vs_varphi"), TRUTHS, strict=True):
        values = [row[kendall] for row in alike if row[kendall] is not None]
        if values:
            found[name] = f"{words[name]} {words['entropy'].format(shown, SYMBOLS[kendall], np.median(values))}"
    return found


def _worse(study: Study) -> str:
    """Which scores rank worse than chance."""
    negative = [row["score"] for row in study.models if (row["kendall_phi"] or 0) < 0]
    if not negative:
        return "No score ranks inputs worse than chance."
    share = sum(name in ("mutual_information", "predicted_class_variance") for name in negative) / len(negative)
    return _WORDS["worse"].format(len(negative), share)
