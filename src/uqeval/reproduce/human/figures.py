"""The figures of the studies on real data, with the paper's families, colours and marks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from uqeval.pages.words import plural
from uqeval.plot import theme
from uqeval.reproduce import panels as draw
from uqeval.reproduce.human.tables import known_rows, main_rows, several_label
from uqeval.reproduce.logits.families import TEXT, VISION, look_of
from uqeval.reproduce.names import MAIN, MEANINGS, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.page import Makers, span
from uqeval.reproduce.study import Study, percent_cell, pick

# An × as a filled shape, so that it and the dot are coloured alike.
_SHAPES = {
    "circle": "circle",
    "cross": "M-1,-0.62L-0.62,-1L0,-0.38L0.62,-1L1,-0.62L0.38,0L1,0.62L0.62,1L0,0.38L-0.62,1L-1,0.62L-0.38,0Z",
}
_METRIC_COLORS = {TITLES["uq_auc"]: draw.BLUE, TITLES["uq_c_index"]: draw.RED}
_PALETTE = (draw.BLUE, draw.RED, draw.GREEN, draw.PURPLE, draw.ORANGE, theme.GREY)
_KEY = alt.Legend(title="metric", symbolOpacity=1)
_MOST_COMPARED = 8  # questions in the figure; the table has all


def makers(study: Study, tables: Mapping[str, list[Row]]) -> Makers:
    """What draws each figure that there are data for, by name, in the order of the page."""
    level = f"{100 * study.settings['level']:g}%"
    main = known_rows(main_rows(study.models, study.settings["min_accuracy"]))
    several = [row for row in study.models if row["kind"] != "single"]
    steps = tables["floors"] if len({row["accuracy"] for row in tables["floors"]}) > 1 else []  # else none is left out
    found: dict[str, tuple[Sequence[Row], Callable[[], theme.Figure]]] = {
        "metric_vs_kendall": (main, lambda: metric_vs_kendall(study, main)),
        "accuracy_floor": (steps, lambda: accuracy_floor(steps, level)),
        "by_score": (tables["by_score"], lambda: by_score(tables["by_score"], level)),
        "second_order": (several, lambda: second_order(several)),
        "comparisons": (tables["comparisons"], lambda: comparisons(tables["comparisons"], level)),
    }
    return {name: make for name, (rows, make) in found.items() if rows}


def metric_vs_kendall(study: Study, main: Sequence[Row]) -> theme.Figure:
    """A mark for each model: both metrics against both truths."""
    order = list(TEXT if study.settings["text"] else VISION)
    there = {row["family"] for row in main}
    names = [name for name in order if name in there] + sorted(there - set(order))
    looks = {name: look_of(name, text=study.settings["text"]) for name in names}
    key = alt.Legend(title="family", symbolOpacity=1, symbolSize=90, symbolStrokeWidth=0.4)
    color = draw.by_name(alt.Color, "family", {name: look.colour for name, look in looks.items()}, key)
    shape = draw.by_name(alt.Shape, "family", {name: _SHAPES[look.shape] for name, look in looks.items()}, key)
    tips = [alt.Tooltip("model:N"), alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".3f")]

    def scatter(metric: str, truth: str) -> Any:
        rows = [{"model": row["model"], "family": row["family"], "x": row[truth], "y": row[metric]} for row in main]
        title = [f"{SYMBOLS[truth]}: Kendall's τ with the human", MEANINGS[truth]]
        x = alt.X("x:Q", title=title, scale=draw.airy(row["x"] for row in rows))
        y = alt.Y("y:Q", title=TITLES[metric], scale=draw.airy(row["y"] for row in rows))
        dots = draw.chart(rows).mark_point(
            filled=True, size=62, opacity=0.9, stroke=theme.INK, strokeWidth=0.4, aria=False
        )
        words = f"r = {percent_cell(pick(study.correlations, metric, truth))}"
        return draw.panel(dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tips), size=(300, 230), words=words)

    chart = draw.stack([[scatter(metric, truth) for truth in TRUTHS] for metric in MAIN])
    accuracies = span([row["accuracy"] for row in main], "{:.2f}")
    words = f"{study.settings['title']}: {plural(len(main), 'single model')} of accuracy {accuracies}; score: entropy"
    chart = chart.resolve_scale(color="shared", shape="shared")
    return draw.finish(chart, "Both metrics against both human truths, model by model", [words])


def accuracy_floor(floors: Sequence[Row], level: str) -> theme.Figure:
    """How the correlations change when the less accurate models are left out."""
    color = draw.by_name(alt.Color, "metric", _METRIC_COLORS, _KEY)
    marks = dict(zip(_METRIC_COLORS, ("circle", "square"), strict=True))
    shape = alt.Shape("metric:N", scale=alt.Scale(domain=list(marks), range=list(marks.values())))
    y = alt.Y("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False))
    panels = []
    for truth in TRUTHS:
        rows = draw.in_percent(floors, truth, "accuracy", "n")
        places = [row["accuracy"] for row in rows] or [0.0]
        air = max(0.02, (0.1 - max(places) + min(places)) / 2)  # places that are near would have hardly an axis
        ends = alt.Scale(domain=[min(places) - air, max(places) + air], nice=False)
        x = alt.X("accuracy:Q", title="only models more accurate than", scale=ends)
        base = draw.chart(rows).encode(x=x, color=color)
        layers = [
            base.mark_area(opacity=0.14, interpolate="step-after").encode(y=alt.Y("low:Q"), y2="high:Q"),
            base.mark_line(strokeWidth=1.6, interpolate="step-after").encode(y=y),
            base.mark_point(filled=True, size=46, opacity=1).encode(y=y, shape=shape),
        ]
        panels.append(draw.panel(*layers, size=(320, 220), words=f"with {SYMBOLS[truth]}", more=MEANINGS[truth]))
    counts = list({row["accuracy"]: row["n"] for row in floors}.values())
    words = f"{counts[0]} models at the left, {counts[-1]} at the right; bands: {level} Fisher intervals"
    chart = draw.stack([panels]).resolve_scale(color="shared", shape="shared")
    return draw.finish(chart, "The correlations among the more accurate models", [words])


def by_score(correlations: Sequence[Row], level: str) -> theme.Figure:
    """The same four correlations for every score."""
    correlations = [row | {"score": draw.label(row["score"].replace("_", " "))} for row in correlations]
    color = draw.by_name(alt.Color, "metric", _METRIC_COLORS, _KEY)
    y = alt.Y("score:N", title=None, sort=list(dict.fromkeys(row["score"] for row in correlations)))
    offset = alt.YOffset("metric:N", sort=list(_METRIC_COLORS))
    x = alt.X("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False))
    panels = []
    for truth in TRUTHS:
        rows = draw.in_percent(correlations, truth, "score")
        base = draw.chart(rows).encode(y=y, yOffset=offset, color=color)
        bars = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q")
        dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=x)
        height = 34 * max(2, len({row["score"] for row in rows}))
        panels.append(draw.panel(bars, dots, size=(270, height), words=f"with {SYMBOLS[truth]}", more=MEANINGS[truth]))
    chart = draw.stack([panels], across=24).resolve_scale(color="shared")
    words = f"{level} Fisher intervals; scores of at least four models"
    return draw.finish(chart, "The correlations by score", [words])


def second_order(several: Sequence[Row]) -> theme.Figure:
    """Scores of ensembles and of stochastic passes: what each metric says, and what the human truth says."""
    labels = {row["model"]: draw.label(several_label(row)) for row in several}
    order = [draw.label(name.replace("_", " ")) for name in dict.fromkeys(row["score"] for row in several)]
    looks = {label: _PALETTE[k % len(_PALETTE)] for k, label in enumerate(labels.values())}
    color = draw.by_name(alt.Color, "model", looks, alt.Legend(title="model", symbolOpacity=1))

    def dots(key: str) -> Any:
        rows = [
            {"score": draw.label(row["score"].replace("_", " ")), "model": labels[row["model"]], "value": row[key]}
            for row in several
            if draw.known(row[key])
        ]
        title = ["κ with the", MEANINGS[key]] if key in MEANINGS else TITLES[key]
        x = alt.X("value:Q", title=title, scale=alt.Scale(zero=False, padding=10))
        marks = draw.chart(rows).mark_point(filled=True, size=60, opacity=0.9)
        encoded = marks.encode(x=x, y=alt.Y("score:N", title=None, sort=order), color=color)
        return encoded.properties(width=240, height=26 * max(3, len(order)))

    chart = draw.stack([[dots(key) for key in pair] for pair in (MAIN, TRUTHS)], across=24)
    words = "above: the metrics; below: the human truth"
    return draw.finish(chart.resolve_scale(color="shared"), "Scores of ensembles and of stochastic passes", [words])


def comparisons(differences: Sequence[Row], level: str) -> theme.Figure:
    """Differences with intervals that hold together within each panel; a line of panels for each question."""
    questions: dict[str, dict[str, list[Row]]] = {}
    for row in differences:
        if draw.known(row["low"]):
            questions.setdefault(row["of"], {}).setdefault(row["metric"], []).append(row)
    lines = [
        [_differences(of, metric, rows) for metric, rows in by_metric.items()]
        for of, by_metric in list(questions.items())[:_MOST_COMPARED]
    ]
    chart = draw.stack(lines, across=24, down=26).resolve_scale(color="independent", x="independent", y="independent")
    words = f"{level} intervals that hold together within a panel (max-t); grey: they hold 0"
    return draw.finish(chart, "Comparisons on the same rows", [words])


def _differences(of: str, metric: str, found: Sequence[Row]) -> Any:
    base = {row["b"] for row in found}
    against = next(iter(base)) if len(base) == 1 and len(found) > 1 else None
    rows: list[Row] = [
        {
            "pair": draw.label(row["a"].replace("_", " "))
            if against
            else f"{draw.label(row['a'])} − {draw.label(row['b'])}"
        }
        | {"clear": bool(row["low"] > 0 or row["high"] < 0)}
        | {key: row[key] for key in ("difference", "low", "high")}
        for row in found
    ]
    scale = draw.airy([0.0, *(row[end] for row in rows for end in ("low", "high"))])
    ink = draw.by_name(alt.Color, "clear", {True: theme.INK, False: "#9E9E9E"})  # type: ignore[dict-item]
    y = alt.Y("pair:N", title=None, sort=[row["pair"] for row in rows])
    base_chart = draw.chart(rows).encode(y=y, color=ink)
    bars = base_chart.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    x = alt.X("difference:Q", title=f"difference in {TITLES[metric]}", scale=scale, axis=alt.Axis(tickCount=5))
    dots = base_chart.mark_point(filled=True, size=48, opacity=1).encode(x=x)
    more = f"less {draw.label(against.replace('_', ' '))}" if against else ""
    size = (250, 24 * max(2, len(rows)))
    return draw.panel(draw.rule("x", 0.0, scale), bars, dots, size=size, words=of, more=more)
