"""The page of the synthetic study: what of the paper's claims holds on these draws, and what does not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from uqeval._result import Grid
from uqeval.pages.words import plural
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Page, span
from uqeval.reproduce.study import MAIN, MEANINGS, SYMBOLS, TITLES, TRUTHS, percent_cell

if TYPE_CHECKING:
    from uqeval.reproduce.synthetic.run import SyntheticStudy

__all__ = ["page", "verdicts"]

_WORDS = read_table("words.toml")


def page(study: SyntheticStudy) -> Page:
    """The page of the synthetic study."""
    grid, d, draws = study.settings["grid"], study.settings["d"], study.settings["draws"]
    settings = [
        ("draws of the data", ", ".join(f"{seed} (d = {d[str(seed)]:.2f})" for seed in draws)),
        ("data", ", ".join(f"{name} = {value}" for name, value in grid["data"].items())),
        ("training", ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in grid["training"].items())),
    ]
    for method in grid["methods"]:
        words = [
            f"{key}: {', '.join(map(str, method[key]))}" for key in ("members", "dropout", "samples") if key in method
        ]
        words.append("scores: " + ", ".join(method["scores"]).replace("_", " "))
        settings.append((method.get("title", method["name"]), "; ".join(words)))
    good, bad = verdicts(study)
    return Page(
        title="The paper's synthetic study, reproduced",
        lead=_WORDS["synthetic"]["lead"].format(count=len(study.models) // len(draws)),
        facts=[
            ("draws of the data", str(len(draws))),
            ("scored models", f"{len(study.models):,}"),
            ("d, the distance of the means", span([d[str(seed)] for seed in draws], "{:.2f}")),
        ],
        short=[("What reproduces", good), ("What does not", bad)],
        tables=[study.grid(), _by_draw(study)],
        notes=study.notes,
        settings=settings,
        texts=_WORDS["synthetic"]["figures"]
        | _WORDS["temperature"]["figures"]
        | {"metric_vs_kendall_by_method": _worse(study)},
    )


def _worse(study: SyntheticStudy) -> str:
    """Which scores rank worse than chance."""
    negative = [row["score"] for row in study.models if (row["kendall_phi"] or 0) < 0]
    if not negative:
        return "No score ranks inputs worse than chance."
    share = sum(name in ("mutual_information", "predicted_class_variance") for name in negative) / len(negative)
    return (
        f"Of the {len(negative):,} scores of all draws that rank inputs worse than chance, {share:.0%} are mutual "
        f"information or the variance of the predicted class."
    )


def verdicts(study: SyntheticStudy) -> tuple[list[str], list[str]]:
    """What of the paper's claims holds on these draws, and what does not, in plain words."""
    r = {(row["metric"], row["truth"], row["draw"]): row["r"] for row in study.correlations}
    draws = study.settings["draws"]
    of_draws = plural(len(draws), "draw")
    good: list[str] = []
    bad: list[str] = []

    def judge(holds: bool, words: str) -> None:
        (good if holds else bad).append(words)

    for metric, truth in zip(MAIN, TRUTHS, strict=True):
        values = [r[metric, truth, draw] for draw in draws if not math.isnan(r[metric, truth, draw])]
        if values:
            close = min(values) > 0.8
            words = f"{TITLES[metric]} {'follows' if close else 'does not always follow'} {TITLES[truth]}"
            judge(close, f"{words}: r = {span([100 * v for v in values], '{:.1f}')}%.")
    better = sum(r["uq_c_index", TRUTHS[1], draw] > r["uq_auc", TRUTHS[1], draw] for draw in draws)
    words = f"UQ-C-index follows {TITLES[TRUTHS[1]]} better than UQ-AUC does on {better} of {of_draws}."
    judge(better == len(draws), words)
    good += [note for note in study.notes if "have a negative" in note]
    ece = [abs(r["ece", truth, draw]) for truth in TRUTHS for draw in draws if not math.isnan(r["ece", truth, draw])]
    if ece:
        little = max(ece) < 0.5
        tells = "tells little" if little else "also tells something"
        judge(little, f"Calibration {tells} of the ranking: |r| of ECE is at most {100 * max(ece):.0f}%.")
    sure = [
        sum(t["truth"] == truth and t["difference"] > 0 and t["p_williams"] < 0.05 for t in study.tests)
        for truth in TRUTHS
    ]
    judge(
        min(sure) >= 0.9 * len(draws),
        f"UQ-C-index is significantly better than UQ-AUC (Williams' test, 5%: both are judged on the same models) on "
        f"{sure[0]} of {of_draws} for {TITLES[TRUTHS[0]]} and on {sure[1]} for {TITLES[TRUTHS[1]]}.",
    )
    return good, bad + (_printed(study, r) if study.paper else [])


def _printed(study: SyntheticStudy, r: dict[tuple[str, str, int], float]) -> list[str]:
    """The paper's own numbers against ours."""
    draws = study.settings["draws"]
    inside = {
        (row["metric"], row["truth"]): [
            row["low"] <= r[row["metric"], row["truth"], draw] <= row["high"] for draw in draws
        ]
        for row in study.paper
    }
    parts = [f"{TITLES[m]} with {SYMBOLS[t]} on {sum(found)}" for (m, t), found in inside.items()]
    every = sum(all(found[k] for found in inside.values()) for k in range(len(draws)))
    outside = "" if study.settings["d_range"] is None else ", far more outside the range used here (--any-d)"
    return [
        f"The printed correlations. Of {plural(len(draws), 'draw')}, inside the paper's intervals: {', '.join(parts)}; "
        f"all of them together on {every}.",
        f"Why: they change from draw to draw by more than the paper's intervals are wide, and with d, the distance of "
        f"the two means{outside}. The paper drew one dataset and does not state its d. Its intervals are also as wide "
        f"as with about 365 models, while its grid has 696.",
    ]


def _by_draw(study: SyntheticStudy) -> Grid:
    cells: dict[Any, str] = {
        (row["draw"], row["metric"], row["truth"]): percent_cell(row) for row in study.correlations
    }
    d = study.settings["d"]
    rows = [
        [str(draw), f"{d[str(draw)]:.2f}", *(cells[draw, metric, truth] for metric in MAIN for truth in TRUTHS)]
        for draw in sorted(study.settings["draws"], key=lambda seed: d[str(seed)])
    ]
    head = ["draw", "d", *(f"{TITLES[metric]}, {MEANINGS[truth]}" for metric in MAIN for truth in TRUTHS)]
    notes = ["r with its 95% Fisher interval; draws by their d. All metrics are in table.csv."]
    return Grid(head, rows, "Draw by draw", notes)
