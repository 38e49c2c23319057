"""One HTML page for a reproduced study: what does and does not reproduce, the table, the figures, settings and times.

It needs no network and runs no script; drawings are inline, and their inks follow the page from light to dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from uqeval._result import versions
from uqeval.report.words import plural
from uqeval.reproduce.panels import Picture
from uqeval.reproduce.study import TITLES, TRUTHS, Study, write_whole
from uqeval.reproduce.synthetic.figures import PAPER, PAPER_ECE
from uqeval.reproduce.synthetic.temperature import Temperature

__all__ = [
    "Timing",
    "figures_of",
    "render",
    "seconds_text",
    "span",
    "synthetic_page",
    "table_rows",
    "temperature_page",
    "write_page",
]

Timing = Mapping[str, float]
_MAIN = ("uq_auc", "uq_c_index")
_TEXTS = {
    "metric_vs_kendall": "Each mark is one score of one trained model: up, what a test set can tell; across, what only "
    "the known law of the data can tell. The closer to one rising line, the better the metric stands in for the truth.",
    "correlations_vs_d": "Draws of the data move these correlations far more than models and seeds do, so intervals "
    "from one draw say little about another.",
    "correlations_by_metric": "ECE, Brier and NLL judge probabilities, not rankings: they need not follow the truth.",
    "dataset": "A Gaussian for each class; the colour behind is the exact probability of class 1.",
    "phi_and_varphi": "φ is high where the predictor and the law disagree, ϕ where the predictor commits itself "
    "against the more probable class.",
    "risk_control": "The exact curves rise, as the theorems say; misalignment is exactly 0 up to β = ½. The observed "
    "ones are shares of a finite sample and need not rise.",
    "score_vs_phi": "A good score rises with φ; how it is curved does not matter.",
    "score_vs_varphi": "Entropy follows ϕ almost exactly, because ϕ is made of the model's own probabilities.",
    "temperature": "Left: the ranking does not change with T, only calibration does. Right: what does change it: gaps "
    "that round, ensembles scaled before they are averaged, more than two classes.",
}


def write_page(html: str, out: str | Path) -> Path:
    """`index.html` under `out`, written whole."""
    path = Path(out) / "index.html"
    write_whole(path, html)
    return path


# ---- synthetic -------------------------------------------------------------------------------------------------


def synthetic_page(
    study: Study, pictures: Mapping[str, Picture], timing: Timing | None = None, remark: str | None = None
) -> str:
    """The page of the synthetic study.

    Parameters
    ----------
    study : Study
        From `uqeval.reproduce.synthetic`.
    pictures : dict
        From `uqeval.reproduce.synthetic.figures.save`.
    timing : dict of stage → seconds, optional
        Shown at the end.
    remark : str, optional
        On those times.
    """
    grid, d = study.settings["grid"], study.settings["d"]
    draws = study.settings["draws"]
    training = grid["training"]
    settings = [
        ("draws of the data", ", ".join(f"{seed} (d = {d[str(seed)]:.2f})" for seed in draws)),
        ("data", ", ".join(f"{name} = {value}" for name, value in grid["data"].items())),
        ("training", ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in training.items())),
    ]
    for method in grid["methods"]:
        words = [
            f"{key}: {', '.join(map(str, method[key]))}" for key in ("members", "dropout", "samples") if key in method
        ]
        words.append("scores: " + ", ".join(method["scores"]).replace("_", " "))
        settings.append((method.get("title", method["name"]), "; ".join(words)))
    marked = {label for label, _, paper in table_rows(study) if paper}
    table = {
        "caption": "Pearson correlations of each metric with the rank correlation of score and truth",
        "corner": "metric",
        "head": [f"with {TITLES[truth]}" for truth in TRUTHS],
        "rows": [[label, *cells] for label, cells, _ in table_rows(study)],
        "marked": marked,
        "notes": [
            "Ours: median and range over draws. The paper's: one draw, with Fisher's interval, which takes the models "
            "of that draw as independent and says nothing of another draw.",
            "κ(s; φ) and κ(s; ϕ): Kendall's τ of the score with the chance of a mistake, and with what the model "
            "denies the more probable class.",
        ],
    }
    facts = [
        ("draws of the data", str(len(draws))),
        ("scored models", f"{len(study.models):,}"),
        ("d, the distance of the means", span([d[str(seed)] for seed in draws], "{:.2f}")),
        *([("time of this run", seconds_text(sum(timing.values())))] if timing else []),
    ]
    good, bad = verdicts(study)
    return render(
        title="The paper's synthetic study, reproduced",
        lead=_LEAD.format(count=len(study.models) // len(draws)),
        facts=facts,
        short=[("What reproduces", good), ("What does not", bad)],
        table=table,
        tables=[_by_draw(study)],
        figures=figures_of(pictures, {"metric_vs_kendall_by_method": _worse(study)}),
        notes=study.notes,
        settings=settings,
        timing=timing,
        remark=remark,
    )


_LEAD = (
    "The data are drawn from a known law, so each of the {count} scores of trained models can be judged twice: by "
    "UQ-AUC and UQ-C-index, which need a test set only, and by κ, the rank correlation of the score with the true "
    "chance of a mistake (φ) or of being at odds with the best answer (ϕ). The paper says that the first can stand in "
    "for the second."
)


def _worse(study: Study) -> str:
    """Which scores rank worse than chance."""
    negative = [row["score"] for row in study.models if (row["kendall_phi"] or 0) < 0]
    if not negative:
        return "No score ranks inputs worse than chance."
    share = sum(name in ("mutual_information", "predicted_class_variance") for name in negative) / len(negative)
    return (
        f"Of the {len(negative):,} scores of all draws that rank inputs worse than chance, {share:.0%} are mutual "
        f"information or the variance of the predicted class."
    )


def table_rows(study: Study) -> list[tuple[str, list[str], bool]]:
    """(label, a cell for each truth, whether it is the paper's) of each line of the table, the paper's beside ours."""
    printed = {row[0].split(",")[0]: row for row in study.paper_rows()}
    found: list[tuple[str, list[str], bool]] = []
    for metric in dict.fromkeys(row["metric"] for row in study.summary):
        if TITLES[metric] in printed:
            label, *cells = printed[TITLES[metric]]
            found.append((label, cells, True))
        if metric == "ece" and study.paper:
            cells = [f"{100 * PAPER_ECE[truth]:.2f}%".replace("-", "−") for truth in TRUTHS]
            found.append((f"{TITLES[metric]}, {PAPER}", cells, True))
        rows = {row["truth"]: row for row in study.summary if row["metric"] == metric}
        found.append((TITLES[metric], [_ours(rows[truth]) for truth in TRUTHS], False))
    return found


def _ours(row: dict[str, Any]) -> str:
    if math.isnan(row["median"]):
        return "–"
    middle = f"{100 * row['median']:.2f}%"
    if row["draws"] > 1:
        middle += f" ({100 * row['lowest']:.2f} to {100 * row['highest']:.2f})"
    return middle.replace("-", "−")


def verdicts(study: Study) -> tuple[list[str], list[str]]:
    """What of the paper's claims holds on these draws, and what does not, in plain words."""
    r = {(row["metric"], row["truth"], row["draw"]): row["r"] for row in study.correlations}
    draws = study.settings["draws"]
    good: list[str] = []
    bad: list[str] = []
    for metric, truth in zip(_MAIN, TRUTHS, strict=True):
        values = [r[metric, truth, draw] for draw in draws if not math.isnan(r[metric, truth, draw])]
        if values:
            close = min(values) > 0.8
            words = f"{TITLES[metric]} {'follows' if close else 'does not always follow'} {TITLES[truth]}"
            (good if close else bad).append(f"{words}: r = {span([100 * v for v in values], '{:.1f}')}%.")
    better = sum(r["uq_c_index", "kendall_varphi", draw] > r["uq_auc", "kendall_varphi", draw] for draw in draws)
    (good if better == len(draws) else bad).append(
        f"UQ-C-index follows κ(s; ϕ) better than UQ-AUC does on {better} of {plural(len(draws), 'draw')}."
    )
    good += [note for note in study.notes if "have a negative" in note]
    ece = [abs(r["ece", truth, draw]) for truth in TRUTHS for draw in draws if not math.isnan(r["ece", truth, draw])]
    if ece:
        little = max(ece) < 0.5
        (good if little else bad).append(
            f"Calibration {'tells little' if little else 'also tells something'} of the ranking: |r| of ECE is at most "
            f"{100 * max(ece):.0f}%."
        )
    sure = [
        sum(t["truth"] == truth and t["difference"] > 0 and t["p_williams"] < 0.05 for t in study.tests)
        for truth in TRUTHS
    ]
    (good if min(sure) >= 0.9 * len(draws) else bad).append(
        f"UQ-C-index is significantly better than UQ-AUC (Williams' test, 5%: both are judged on the same models) on "
        f"{sure[0]} of {plural(len(draws), 'draw')} for κ(s; φ) and on {sure[1]} for κ(s; ϕ)."
    )
    if study.paper:
        bad += _printed(study, r)
    return good, bad


def _printed(study: Study, r: dict[tuple[str, str, int], float]) -> list[str]:
    """The paper's own numbers against ours."""
    draws = study.settings["draws"]
    inside = {
        (row["metric"], row["truth"]): [
            row["low"] <= r[row["metric"], row["truth"], draw] <= row["high"] for draw in draws
        ]
        for row in study.paper
    }
    parts = [f"{TITLES[m]} with {TITLES[t]} on {sum(found)}" for (m, t), found in inside.items()]
    every = sum(all(found[k] for found in inside.values()) for k in range(len(draws)))
    words = [
        f"The printed correlations. Of {plural(len(draws), 'draw')}, inside the paper's intervals: {', '.join(parts)}; "
        f"all of them together on {every}."
    ]
    outside = "" if study.settings["d_range"] is None else ", far more outside the range used here (--any-d)"
    words.append(
        f"Why: they change from draw to draw by more than the paper's intervals are wide, and with d, the distance of "
        f"the two means{outside}. The paper drew one dataset and does not state its d. Its intervals are also as wide "
        f"as with about 365 models, while its grid has 696."
    )
    return words


def _by_draw(study: Study) -> dict[str, Any]:
    rows = []
    cells = {(row["draw"], row["metric"], row["truth"]): row for row in study.correlations}
    for draw in sorted(study.settings["draws"], key=lambda seed: study.settings["d"][str(seed)]):
        line = [str(draw), f"{study.settings['d'][str(draw)]:.2f}"]
        for metric in _MAIN:
            for truth in TRUTHS:
                row = cells[draw, metric, truth]
                known = not math.isnan(row["r"])
                line.append(f"{100 * row['r']:.2f} ({100 * row['low']:.2f}–{100 * row['high']:.2f})" if known else "–")
        rows.append(line)
    head = [f"{TITLES[metric]}, {TITLES[truth]}" for metric in _MAIN for truth in TRUTHS]
    notes = ["r in % with its 95% Fisher interval; draws by their d. All metrics are in table.csv."]
    return {
        "caption": "Draw by draw",
        "corner": "draw",
        "head": ["d", *head],
        "rows": rows,
        "marked": (),
        "notes": notes,
    }


# ---- temperature -----------------------------------------------------------------------------------------------


def temperature_page(result: Temperature, pictures: Mapping[str, Picture], timing: Timing | None = None) -> str:
    """The page of the temperature experiment; arguments as for `synthetic_page`."""
    s = result.settings
    temperatures = s["temperatures"]
    first, *rest = result.notes
    return render(
        title="Temperature scaling and the ranking by uncertainty",
        lead="Dividing the logits by a temperature T makes probabilities more or less sure. Does it change which "
        "inputs are thought to be less certain than others, and with that UQ-AUC and UQ-C-index?",
        facts=[
            ("temperatures", f"{len(temperatures)}, {min(temperatures):g} to {max(temperatures):g}"),
            ("draw", str(s["seed"])),
        ],
        short=[("What reproduces", rest[:1]), ("What does not", rest[1:])],
        table={
            "caption": "Lowest and highest value over all temperatures",
            "corner": "case",
            "head": ["UQ-AUC", "UQ-C-index", "ECE"],
            "rows": result.lines(),
            "marked": (),
            "notes": [],
        },
        tables=[],
        figures=figures_of(pictures),
        notes=[first],
        settings=[(name.replace("_", " "), str(value)) for name, value in s.items() if name != "temperatures"],
        timing=timing,
    )


# ---- parts -----------------------------------------------------------------------------------------------------


def render(*, timing: Timing | None, remark: str | None = None, **parts: Any) -> str:
    """The page of any study from its parts: see `templates/study.html.j2`."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_text)
    )
    style = files("uqeval.report").joinpath("templates", "report.css").read_text(encoding="utf-8") + _text("study.css")
    stages = {
        "caption": "Time per stage",
        "corner": "stage",
        "head": ["time"],
        "rows": [[name, seconds_text(spent)] for name, spent in (timing or {}).items()],
        "marked": (),
        "notes": [remark] if remark else [],
    }
    page = environment.get_template("study.html.j2").render(**parts, timing=stages, style=style, versions=_versions())
    return page.lstrip()


def _versions() -> dict[str, str]:
    found = versions()
    try:
        import torch
    except ModuleNotFoundError:
        return found
    return found | {"torch": str(torch.__version__)}


def figures_of(pictures: Mapping[str, Picture], more: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Drawings with what is said below each; `more` comes before the texts of the synthetic study."""
    texts = {**_TEXTS, **(more or {})}
    return [
        {"name": name, "title": p.title, "notes": p.notes, "text": texts.get(name, ""), "svg": _inline(name, p.bare)}
        for name, p in pictures.items()
    ]


def _inline(name: str, svg: str) -> str:
    """The drawing so that it can stand beside others in a page: own ids, no white sheet, no words for each mark."""
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>', "", svg, count=1)
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" ', 1)


@lru_cache
def _text(name: str) -> str:
    return files("uqeval.reproduce").joinpath("templates", name).read_text(encoding="utf-8")


def span(values: Sequence[float], form: str) -> str:
    """The range of some numbers, or the one that they share."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def seconds_text(spent: float) -> str:
    """A time in words."""
    if spent < 60:
        return f"{spent:.1f} s"
    minutes, seconds = divmod(round(spent), 60)
    return f"{minutes} min {seconds} s"
