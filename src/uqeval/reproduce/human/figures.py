"""The figures of the studies on real data, with the paper's families, colours and marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from uqeval.plot import theme
from uqeval.reproduce.human.run import RealStudy
from uqeval.reproduce.human.tables import MAIN, cell, known_rows, main_rows, pick
from uqeval.reproduce.logits.families import TEXT, VISION, look_of
from uqeval.reproduce.page import span
from uqeval.reproduce.panels import BLUE, RED, finish, heading, rule
from uqeval.reproduce.study import TITLES, TRUTHS

__all__ = ["draw"]

# An × as a filled shape, so that it and the dot are coloured alike.
_SHAPES = {
    "circle": "circle",
    "cross": "M-1,-0.62L-0.62,-1L0,-0.38L0.62,-1L1,-0.62L0.38,0L1,0.62L0.62,1L0,0.38L-0.62,1L-1,0.62L-0.38,0Z",
}
_METRIC_COLORS = {TITLES["uq_auc"]: BLUE, TITLES["uq_c_index"]: RED}
_MOST_COMPARED = 8  # questions in the figure; the table has all
_GREEN, _PURPLE, _ORANGE = "#009E73", "#CC79A7", "#E69F00"


def draw(study: RealStudy) -> dict[str, theme.Figure]:
    """All figures that the study has data for, by name, in the order of the page."""
    found: dict[str, theme.Figure] = {}
    main = known_rows(main_rows(study.models, study.settings["min_accuracy"]))
    if main:
        found["metric_vs_kendall"] = metric_vs_kendall(study, main)
    if study.more["floors"]:
        found["accuracy_floor"] = accuracy_floor(study)
    if study.more["by_score"]:
        found["by_score"] = by_score(study)
    if any(row["kind"] != "single" for row in study.models):
        found["second_order"] = second_order(study)
    if study.more["comparisons"]:
        found["comparisons"] = comparisons(study)
    return found


def metric_vs_kendall(study: RealStudy, main: Sequence[dict[str, Any]]) -> theme.Figure:
    """A mark for each model: both metrics against both truths."""
    known = list(TEXT if study.settings["text"] else VISION)
    there = {row["family"] for row in main}
    names = [name for name in known if name in there] + sorted(there - set(known))
    looks = [look_of(name, text=study.settings["text"]) for name in names]
    key = alt.Legend(title="family", symbolOpacity=1, symbolSize=90, symbolStrokeWidth=0.4)
    color = alt.Color("family:N", scale=alt.Scale(domain=names, range=[look.colour for look in looks]), legend=key)
    shapes = [_SHAPES[look.shape] for look in looks]
    shape = alt.Shape("family:N", scale=alt.Scale(domain=names, range=shapes), legend=key)
    lines = []
    for metric in MAIN:
        panels = []
        for truth in TRUTHS:
            rows = [{"model": row["model"], "family": row["family"], "x": row[truth], "y": row[metric]} for row in main]
            across, up = (_scale(rows, name) for name in ("x", "y"))
            x = alt.X("x:Q", title=f"{TITLES[truth]}: Kendall's τ with the human truth", scale=across)
            y = alt.Y("y:Q", title=TITLES[metric], scale=up)
            dots = alt.Chart(theme.as_data(rows)).mark_point(
                filled=True, size=62, opacity=0.9, stroke=theme.INK, strokeWidth=0.4, aria=False
            )
            tips = [alt.Tooltip("model:N"), alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q", format=".3f")]
            words = f"r = {cell(pick(study.correlations, metric, truth))}"
            chart = dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tips)
            panels.append(chart.properties(width=300, height=230, title=heading(words)))
        lines.append(alt.hconcat(*panels, spacing=30))
    chart = alt.vconcat(*lines, spacing=24).resolve_scale(color="shared", shape="shared")
    accuracies = span([row["accuracy"] for row in main], "{:.2f}")
    words = f"{study.settings['title']}: {len(main)} single models of accuracy {accuracies}; score: entropy"
    return finish(chart, "Both metrics against both human truths, model by model", [words])


def accuracy_floor(study: RealStudy) -> theme.Figure:
    """How the correlations change when the less accurate models are left out."""
    color = alt.Color(
        "metric:N",
        scale=alt.Scale(domain=list(_METRIC_COLORS), range=list(_METRIC_COLORS.values())),
        legend=alt.Legend(title="metric", symbolOpacity=1),
    )
    shape = alt.Shape("metric:N", scale=alt.Scale(domain=list(_METRIC_COLORS), range=["circle", "square"]))
    panels = []
    for truth in TRUTHS:
        rows = [
            {"metric": TITLES[row["metric"]], "accuracy": row["accuracy"], "n": row["n"]}
            | {key: 100 * row[key] for key in ("r", "low", "high")}
            for row in study.more["floors"]
            if row["truth"] == truth and _known(row["r"]) and _known(row["low"])
        ]
        base = alt.Chart(theme.as_data(rows))
        places = [row["accuracy"] for row in rows] or [0.0]
        ends = alt.Scale(domain=[min(places) - 0.02, max(places) + 0.02], nice=False)
        x = alt.X("accuracy:Q", title="only models more accurate than", scale=ends)
        y = alt.Y("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False))
        band = base.mark_area(opacity=0.14, interpolate="step-after").encode(
            x=x, y=alt.Y("low:Q"), y2="high:Q", color=color
        )
        line = base.mark_line(strokeWidth=1.6, interpolate="step-after").encode(x=x, y=y, color=color)
        dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=x, y=y, color=color, shape=shape)
        panels.append(
            alt.layer(band, line, dots).properties(width=320, height=220, title=heading(f"with {TITLES[truth]}"))
        )
    counts = {row["accuracy"]: row["n"] for row in study.more["floors"]}
    first, *_, last = *counts.values(), *counts.values()
    bands = f"bands: {100 * study.settings['level']:g}% Fisher intervals"
    words = f"{first} models at the left, {last} at the right; {bands}"
    chart = alt.vconcat(alt.hconcat(*panels, spacing=30)).resolve_scale(color="shared", shape="shared")
    return finish(chart, "The range of accuracies drives the correlations", [words])


def by_score(study: RealStudy) -> theme.Figure:
    """The same four correlations for every score."""
    names = list(dict.fromkeys(row["score"] for row in study.more["by_score"]))
    color = alt.Color(
        "metric:N",
        scale=alt.Scale(domain=list(_METRIC_COLORS), range=list(_METRIC_COLORS.values())),
        legend=alt.Legend(title="metric", symbolOpacity=1),
    )
    panels = []
    for truth in TRUTHS:
        rows = [
            {"score": row["score"].replace("_", " "), "metric": TITLES[row["metric"]]}
            | {key: 100 * row[key] for key in ("r", "low", "high")}
            for row in study.more["by_score"]
            if row["truth"] == truth and _known(row["r"]) and _known(row["low"])
        ]
        base = alt.Chart(theme.as_data(rows))
        y = alt.Y("score:N", title=None, sort=[name.replace("_", " ") for name in names])
        offset = alt.YOffset("metric:N", sort=list(_METRIC_COLORS))
        x = alt.X("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False))
        bars = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", y=y, yOffset=offset, color=color)
        dots = base.mark_point(filled=True, size=46, opacity=1).encode(x=x, y=y, yOffset=offset, color=color)
        height = 34 * max(2, len({row["score"] for row in rows}))
        panels.append(
            alt.layer(bars, dots).properties(width=270, height=height, title=heading(f"with {TITLES[truth]}"))
        )
    chart = alt.vconcat(alt.hconcat(*panels, spacing=24)).resolve_scale(color="shared")
    words = f"{100 * study.settings['level']:g}% Fisher intervals; scores of at least four models"
    return finish(chart, "The correlations by score", [words])


def second_order(study: RealStudy) -> theme.Figure:
    """Scores of ensembles and of stochastic passes: what each metric says, and what the human truth says."""
    several = [row for row in study.models if row["kind"] != "single"]
    labels = {row["model"]: f"{row['model']} ({row['members']} {row['kind']})" for row in several}
    order = [name.replace("_", " ") for name in dict.fromkeys(row["score"] for row in several)]
    palette = [BLUE, RED, _GREEN, _PURPLE, _ORANGE, theme.GREY]
    domain = list(labels.values())
    color = alt.Color(
        "model:N",
        scale=alt.Scale(domain=domain, range=[palette[k % len(palette)] for k in range(len(domain))]),
        legend=alt.Legend(title="model", symbolOpacity=1),
    )
    lines = []
    for pair in (MAIN, TRUTHS):
        panels = []
        for key in pair:
            rows = [
                {"score": row["score"].replace("_", " "), "model": labels[row["model"]], "value": row[key]}
                for row in several
                if _known(row[key])
            ]
            y = alt.Y("score:N", title=None, sort=order)
            scale = alt.Scale(zero=False, padding=10)
            x = alt.X("value:Q", title=TITLES[key], scale=scale)
            dots = alt.Chart(theme.as_data(rows)).mark_point(filled=True, size=60, opacity=0.9)
            panels.append(dots.encode(x=x, y=y, color=color).properties(width=240, height=26 * max(3, len(order))))
        lines.append(alt.hconcat(*panels, spacing=24))
    chart = alt.vconcat(*lines, spacing=24).resolve_scale(color="shared")
    return finish(chart, "Scores of ensembles and of stochastic passes", ["above: the metrics; below: the human truth"])


def comparisons(study: RealStudy) -> theme.Figure:
    """Differences with intervals that hold together within each panel; a line of panels for each question."""
    found = [row for row in study.more["comparisons"] if _known(row["low"])]
    lines = []
    for of in list(dict.fromkeys(row["of"] for row in found))[:_MOST_COMPARED]:
        own = [row for row in found if row["of"] == of]
        metrics = list(dict.fromkeys(row["metric"] for row in own))
        panels = [_differences(of, metric, [row for row in own if row["metric"] == metric]) for metric in metrics]
        lines.append(alt.hconcat(*panels, spacing=24))
    chart = alt.vconcat(*lines, spacing=26).resolve_scale(color="independent", x="independent", y="independent")
    words = f"{100 * study.settings['level']:g}% intervals that hold together within a panel (max-t); grey: they hold 0"
    return finish(chart, "Comparisons on the same rows", [words])


def _differences(of: str, metric: str, found: Sequence[dict[str, Any]]) -> Any:
    base = {row["b"] for row in found}
    against = next(iter(base)) if len(base) == 1 and len(found) > 1 else None
    rows: list[dict[str, Any]] = [
        {"pair": row["a"].replace("_", " ") if against else f"{row['a']} − {row['b']}"}
        | {"clear": bool(row["low"] > 0 or row["high"] < 0)}
        | {key: row[key] for key in ("difference", "low", "high")}
        for row in found
    ]
    ends = [min(0.0, *(row["low"] for row in rows)), max(0.0, *(row["high"] for row in rows))]
    air = 0.06 * (ends[1] - ends[0] or 1.0)
    scale = alt.Scale(domain=[ends[0] - air, ends[1] + air], nice=False)
    base_chart = alt.Chart(theme.as_data(rows))
    y = alt.Y("pair:N", title=None, sort=[row["pair"] for row in rows])
    ink = alt.Color("clear:N", scale=alt.Scale(domain=[True, False], range=[theme.INK, "#9E9E9E"]), legend=None)
    bars = base_chart.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, color=ink)
    x = alt.X("difference:Q", title=f"difference in {TITLES[metric]}", scale=scale, axis=alt.Axis(tickCount=5))
    dots = base_chart.mark_point(filled=True, size=48, opacity=1).encode(x=x, y=y, color=ink)
    words = heading(of, f"less {against.replace('_', ' ')}" if against else "")
    chart = alt.layer(rule("x", 0.0, scale), bars, dots)
    return chart.properties(width=250, height=24 * max(2, len(rows)), title=words)


def _scale(rows: Sequence[dict[str, Any]], key: str) -> alt.Scale:
    values = [row[key] for row in rows] or [0.0, 1.0]
    air = 0.06 * (max(values) - min(values) or 1.0)
    return alt.Scale(domain=[min(values) - air, max(values) + air], nice=False)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
