"""The synthetic study over draws of its data: its table, its figures, and which of the paper's claims hold on them."""

import math
from dataclasses import dataclass
from typing import Any

from uqeval._check import Progress
from uqeval._result import Grid
from uqeval.pages.words import plural
from uqeval.reproduce.names import FOUR, HEADS, MAIN, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.packaged import read_table
from uqeval.reproduce.page import Makers, Page, span
from uqeval.reproduce.study import Study, percent_cell, pick
from uqeval.reproduce.synthetic import figures
from uqeval.reproduce.synthetic.temperature import temperature

_TABLE = read_table("words.toml")
_WORDS = _TABLE["synthetic"]
_PAPER_ECE = {"kendall_phi": 0.0009, "kendall_varphi": -0.1057}  # the paper's appendix on calibration
_SIZES = ("members", "dropout", "samples")


@dataclass(frozen=True)
class SyntheticStudy(Study):
    """The synthetic study over draws of its data."""

    @property
    def shown_draw(self) -> int:
        """The draw whose d is the median: the one that the scatter plots show."""
        d = {int(seed): value for seed, value in self.settings["d"].items()}
        return sorted(d, key=lambda seed: (d[seed], seed))[(len(d) - 1) // 2]

    @property
    def printed(self) -> list[Row]:
        """What the paper prints: its table, and ECE from its appendix."""
        ece = [{"metric": "ece", "truth": truth, "r": r} for truth, r in _PAPER_ECE.items()]
        return [*self.paper, *(ece if self.paper else ())]

    def grid(self) -> Grid:
        """Median and range over draws of each correlation, the paper's number above ours."""

        def ours(metric: str, truth: str) -> str:
            row = pick(self.summary, metric, truth)
            assert row is not None
            low, high = (row["lowest"], row["highest"]) if row["draws"] > 1 else (math.nan, math.nan)
            return percent_cell({"r": row["median"], "low": low, "high": high})

        found = self.table_rows(figures.PAPER, ours, self.printed)
        return found._replace(caption=_WORDS["caption"], notes=_WORDS["below"])

    def figures(self, progress: Progress | None = None) -> Makers:
        """What draws each figure, by name."""
        with self.timing.stage("temperature", progress):
            scaled = temperature()
        return {**figures.makers(self, self.shown_draw, self.printed), **scaled.figures()}

    def page(self) -> Page:
        """What its page says."""
        grid, d, draws = self.settings["grid"], self.settings["d"], self.settings["draws"]
        settings = [
            ("draws of the data", ", ".join(f"{seed} (d = {d[str(seed)]:.2f})" for seed in draws)),
            ("data", ", ".join(f"{name} = {value}" for name, value in grid["data"].items())),
            ("training", ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in grid["training"].items())),
        ]
        for method in grid["methods"]:
            words = [f"{key}: {', '.join(map(str, method[key]))}" for key in _SIZES if key in method]
            words.append("scores: " + ", ".join(method["scores"]).replace("_", " "))
            settings.append((method.get("title", method["name"]), "; ".join(words)))
        good, bad = verdicts(self)
        return Page(
            title="The paper's synthetic study, reproduced",
            lead=_WORDS["lead"].format(count=len(self.models) // len(draws)),
            facts=[
                ("draws of the data", str(len(draws))),
                ("scored models", f"{len(self.models):,}"),
                ("d, the distance of the means", span([d[str(seed)] for seed in draws], "{:.2f}")),
            ],
            short=[("What reproduces", good), ("What does not", bad)],
            tables=[self.grid(), _by_draw(self)],
            notes=self.notes,
            settings=settings,
            texts=_WORDS["figures"] | _TABLE["temperature"]["figures"] | {"metric_vs_kendall_by_method": _worse(self)},
        )


def notes_of(models: list[Row], tests: list[Row], d: dict[int, float], skipped: list[int], ends: Any) -> list[str]:
    """What to beware of, and how often the metrics agree with the truth, in numbers."""
    words = _WORDS["notes"]
    notes = [words["d"].format(", ".join(f"{seed}: {value:.2f}" for seed, value in d.items())), words["draw"]]
    if skipped:
        notes.append(words["skipped"].format(ends, ", ".join(map(str, skipped))))
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


def _worse(study: Study) -> str:
    """Which scores rank worse than chance."""
    negative = [row["score"] for row in study.models if (row["kendall_phi"] or 0) < 0]
    if not negative:
        return "No score ranks inputs worse than chance."
    share = sum(name in ("mutual_information", "predicted_class_variance") for name in negative) / len(negative)
    return _WORDS["worse"].format(len(negative), share)


def verdicts(study: Study) -> tuple[list[str], list[str]]:
    """What of the paper's claims holds on these draws, and what does not, in plain words."""
    r = {(row["metric"], row["truth"], row["draw"]): row["r"] for row in study.correlations}
    draws, words = study.settings["draws"], _WORDS["verdicts"]
    of = plural(len(draws), "draw")
    judged: list[tuple[bool, str]] = []
    for metric, truth in zip(MAIN, TRUTHS, strict=True):
        values = [100 * r[metric, truth, draw] for draw in draws if not math.isnan(r[metric, truth, draw])]
        if values:
            close = min(values) > 80
            follows = "follows" if close else "does not always follow"
            judged.append((close, f"{TITLES[metric]} {follows} {TITLES[truth]}: r = {span(values, '{:.1f}')}%."))
    better = sum(r["uq_c_index", TRUTHS[1], draw] > r["uq_auc", TRUTHS[1], draw] for draw in draws)
    judged.append((better == len(draws), words["better"].format(TITLES[TRUTHS[1]], better, of)))
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
    judged.append((min(sure) >= 0.9 * len(draws), told))
    if study.paper:
        inside = {
            (row["metric"], row["truth"]): [
                row["low"] <= r[row["metric"], row["truth"], draw] <= row["high"] for draw in draws
            ]
            for row in study.paper
        }
        parts = [f"{TITLES[m]} with {SYMBOLS[t]} on {sum(found)}" for (m, t), found in inside.items()]
        every = sum(map(all, zip(*inside.values(), strict=True)))
        outside = "" if study.settings["d_range"] is None else words["outside"]
        printed = words["printed"].format(of, ", ".join(parts), every), words["why"].format(outside)
        judged += [(False, line) for line in printed]
    good, bad = ([words for holds, words in judged if holds is wanted] for wanted in (True, False))
    return good, bad


def _by_draw(study: Study) -> Grid:
    cells = {(row["draw"], row["metric"], row["truth"]): percent_cell(row) for row in study.correlations}
    d = study.settings["d"]
    rows = [
        [str(draw), f"{d[str(draw)]:.2f}", *(cells[draw, metric, truth] for metric, truth in FOUR)]
        for draw in sorted(study.settings["draws"], key=lambda seed: d[str(seed)])
    ]
    return Grid(["draw", "d", *HEADS], rows, "Draw by draw", [_WORDS["by_draw"]])
