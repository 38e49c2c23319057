"""The figures of the synthetic study: all of them by name, and those of its correlations.

The others are in `scene_figures`; how they are saved, in `panels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import numpy as np

from uqeval.plot import theme
from uqeval.reproduce.panels import BLUE, FAMILIES, RED, finish, heading, rule
from uqeval.reproduce.study import TITLES, TRUTHS, Study
from uqeval.reproduce.synthetic import scene_figures, scenes
from uqeval.reproduce.synthetic.temperature import Temperature

__all__ = ["PAPER", "PAPER_ECE", "draw", "shown_draw"]

PAIRS = (("uq_auc", "kendall_phi"), ("uq_c_index", "kendall_varphi"))  # each metric with the truth it belongs to
PAPER = "paper (one draw, d unknown)"
PAPER_ECE = {"kendall_phi": 0.0009, "kendall_varphi": -0.1057}  # the paper's appendix on calibration
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")

Figures = dict[str, theme.Figure]


def draw(study: Study, scaled: Temperature, progress: Callable[[int, int], None] | None = None) -> Figures:
    """All figures of the synthetic study by name, in the order of the page.

    Parameters
    ----------
    study : Study
        From `uqeval.reproduce.synthetic`.
    scaled : Temperature
        From `uqeval.reproduce.temperature`.
    progress : callable(done, total), optional
        Called after every figure.
    """
    grid = study.settings["grid"]
    seed = shown_draw(study)
    scene = scenes.arbitrary(grid, study.settings["draws"], study.settings["d_range"])
    trained: list[list[scenes.Scored]] = []

    def scored() -> list[scenes.Scored]:
        if not trained:
            trained.append(scenes.few_models(grid, seed))
        return trained[0]

    makers: dict[str, Callable[[], theme.Figure]] = {
        "metric_vs_kendall": lambda: metric_vs_kendall(study, seed),
        "metric_vs_kendall_by_method": lambda: by_method(study, seed),
        "correlations_vs_d": lambda: correlations_vs_d(study),
        "correlations_by_metric": lambda: correlations_by_metric(study),
        **({} if scene is None else _of_the_data(scene)),
        "score_vs_phi": lambda: scene_figures.score_vs_truth(scored(), "kendall_phi", seed),
        "score_vs_varphi": lambda: scene_figures.score_vs_truth(scored(), "kendall_varphi", seed),
        "temperature": lambda: scene_figures.temperature_chart(scaled),
    }
    found = {}
    for k, (name, make) in enumerate(makers.items()):
        found[name] = make()
        if progress is not None:
            progress(k + 1, len(makers))
    return found


def _of_the_data(scene: scenes.Scene) -> dict[str, Callable[[], theme.Figure]]:
    return {
        "dataset": lambda: scene_figures.dataset(scene),
        "phi_and_varphi": lambda: scene_figures.phi_and_varphi(scene),
        "risk_control": lambda: scene_figures.risk_control(scene),
    }


def shown_draw(study: Study) -> int:
    """The draw whose d is the median: the one that the scatter plots show."""
    d = {int(seed): value for seed, value in study.settings["d"].items()}
    return sorted(d, key=lambda seed: (d[seed], seed))[(len(d) - 1) // 2]


# ---- scatter plots ---------------------------------------------------------------------------------------------


def metric_vs_kendall(study: Study, seed: int) -> theme.Figure:
    """A dot for each scored model: what a test set tells against what only the law of the data tells."""
    panels = []
    for metric, truth in PAIRS:
        rows = _rows(study, seed, metric, truth)
        panels.append(_scatter(study, rows, metric, truth, 330, 300, _r(study, seed, metric, truth)))
    chart = alt.vconcat(alt.hconcat(*panels, spacing=36)).resolve_scale(color="shared", shape="shared")
    return finish(chart, "Each metric against the rank correlation with its truth", [_which(study, seed)])


def by_method(study: Study, seed: int) -> theme.Figure:
    """The same, a panel for each method."""
    names = _methods(study)
    lines = []
    for metric, truth in PAIRS:
        every = _rows(study, seed, metric, truth)
        panels = []
        for name, title in names.items():
            rows = [row for row in every if row["family"] == name]
            x, y = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("x", "y"))
            spread = len(rows) > 2 and x.std() > 0 and y.std() > 0
            r = f"r = {100 * np.corrcoef(x, y)[0, 1]:.1f}%" if spread else "r undefined"
            limits = _limits(every)
            panels.append(_scatter(study, rows, metric, truth, 215, 170, f"{title}: {r}", limits, legend=False))
        lines.append(alt.hconcat(*panels, spacing=24))
    chart = alt.vconcat(*lines, spacing=24)
    return finish(chart, "The same by method", [_which(study, seed)])


def _scatter(
    study: Study,
    rows: list[dict[str, Any]],
    metric: str,
    truth: str,
    width: int,
    height: int,
    words: str,
    limits: tuple[list[float], list[float]] | None = None,
    legend: bool = True,
) -> Any:
    xs, ys = limits or _limits(rows)
    names = _methods(study)
    palette = _family_colors(names)
    across, up = (alt.Scale(domain=ends, nice=False) for ends in (xs, ys))
    few = alt.Axis(tickCount=max(4, width // 50))
    x = alt.X("x:Q", title=f"{TITLES[truth]}: Kendall's τ of score and truth", scale=across, axis=few)
    y = alt.Y("y:Q", title=TITLES[metric], scale=up, axis=alt.Axis(tickCount=max(4, height // 40)))
    key = alt.Legend(title="method", symbolOpacity=1, symbolFillColor=None) if legend else None
    color = alt.Color("method:N", scale=alt.Scale(domain=list(names.values()), range=palette), legend=key)
    shape = alt.Shape(
        "method:N", scale=alt.Scale(domain=list(names.values()), range=list(_SHAPES[: len(names)])), legend=key
    )
    tips = [alt.Tooltip("model:N"), alt.Tooltip("score:N"), alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q")]
    dots = alt.Chart(theme.as_data(rows)).mark_point(size=26, strokeWidth=1.1, opacity=0.75, clip=True, aria=False)
    lines = [rule("y", 0.5, up)] + ([rule("x", 0.0, across)] if xs[0] < 0 < xs[1] else [])
    layers = [*lines, dots.encode(x=x, y=y, color=color, shape=shape, tooltip=tips)]
    return alt.layer(*layers).properties(width=width, height=height, title=heading(words))


def _rows(study: Study, seed: int, metric: str, truth: str) -> list[dict[str, Any]]:
    names = _methods(study)
    return [
        {"model": row["model"], "score": row["score"], "family": row["family"], "method": names[row["family"]]}
        | {"x": row[truth], "y": row[metric]}
        for row in study.models
        if row["draw"] == seed and _known(row[truth]) and _known(row[metric])
    ]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _limits(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Ends of both axes: the data and the lines 0.5 with some air."""
    found = []
    for key, always in (("x", ()), ("y", (0.5,))):
        values = [*(row[key] for row in rows), *always] or [0.0, 1.0]
        low, high = min(values), max(values)
        air = 0.05 * (high - low or 1.0)
        found.append([low - air, high + air])
    return found[0], found[1]


def _methods(study: Study) -> dict[str, str]:
    return {method["name"]: method.get("title", method["name"]) for method in study.settings["grid"]["methods"]}


def _family_colors(names: Mapping[str, str]) -> list[str]:
    others = theme.colors(name for name in names if name not in FAMILIES)
    return [FAMILIES.get(name) or others[name] for name in names]


def _r(study: Study, seed: int, metric: str, truth: str) -> str:
    r = next(
        row["r"] for row in study.correlations if (row["draw"], row["metric"], row["truth"]) == (seed, metric, truth)
    )
    return f"{TITLES[metric]} and {TITLES[truth]}: r = {'–' if math.isnan(r) else f'{100 * r:.1f}%'}"


def _which(study: Study, seed: int) -> str:
    count = sum(row["draw"] == seed for row in study.models)
    of = f", the one with the median d of {len(study.settings['draws'])}" if len(study.settings["draws"]) > 1 else ""
    d = study.settings["d"][str(seed)]
    return f"draw {seed} (d = {d:.2f}){of}; {count} scored models; grey lines: a useless score"


# ---- correlations over draws -----------------------------------------------------------------------------------


def correlations_vs_d(study: Study) -> theme.Figure:
    """Four correlations of every draw against its d, between the paper's lines."""
    d = study.settings["d"]
    panels = []
    for metric in ("uq_auc", "uq_c_index"):
        for truth in TRUTHS:
            rows = [
                {"d": d[str(row["draw"])], "draw": row["draw"]} | {key: 100 * row[key] for key in ("r", "low", "high")}
                for row in study.correlations
                if (row["metric"], row["truth"]) == (metric, truth) and _known(row["r"])
            ]
            printed = [row for row in study.paper if (row["metric"], row["truth"]) == (metric, truth)]
            panels.append(_against_d(rows, printed, f"{TITLES[metric]} with {TITLES[truth]}"))
    chart = alt.vconcat(alt.hconcat(*panels[:2], spacing=30), alt.hconcat(*panels[2:], spacing=30), spacing=24)
    words = f"a dot for each of {len(d)} draws with its Fisher interval; dashed, with its interval: {PAPER}"
    return finish(chart, "How the correlations depend on d, the distance between the two means", [words])


def _against_d(rows: list[dict[str, Any]], printed: list[dict[str, Any]], words: str) -> Any:
    y = alt.Y("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=36))
    x = alt.X("d:Q", title="d = ‖μ1 − μ0‖", scale=alt.Scale(zero=False, padding=12))
    tips = [alt.Tooltip("draw:N"), alt.Tooltip("d:Q", format=".2f"), alt.Tooltip("r:Q", format=".2f")]
    base = alt.Chart(theme.as_data(rows))
    layers: list[Any] = []
    for row in printed:
        ends = theme.as_data([{"low": 100 * row["low"], "high": 100 * row["high"], "r": 100 * row["r"]}])
        band = alt.Chart(ends).mark_rect(color=theme.GREY, opacity=0.18).encode(y=alt.Y("low:Q"), y2="high:Q")
        line = alt.Chart(ends).mark_rule(color=theme.GREY, strokeDash=[5, 4], strokeWidth=1.5).encode(y="r:Q")
        label = alt.Chart(ends).mark_text(align="left", dx=4, dy=-7, fontSize=10.5, color=theme.GREY)
        layers += [band, line, label.encode(x=alt.value(0), y="r:Q", text=alt.value(f"paper: {100 * row['r']:.2f}"))]
    bars = base.mark_rule(color=BLUE, opacity=0.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    layers += [bars, base.mark_circle(color=BLUE, size=42, opacity=1).encode(x=x, y=y, tooltip=tips)]
    return alt.layer(*layers).properties(width=330, height=210, title=heading(words))


def correlations_by_metric(study: Study) -> theme.Figure:
    """Every metric beside UQ-AUC and UQ-C-index: a tick for each draw."""
    metrics = list(dict.fromkeys(row["metric"] for row in study.summary))
    order = [TITLES[metric] for metric in metrics]
    panels = []
    for truth in TRUTHS:
        rows = [
            {"metric": TITLES[row["metric"]], "r": 100 * row["r"], "draw": row["draw"]}
            for row in study.correlations
            if row["truth"] == truth and _known(row["r"])
        ]
        middle = [
            {"metric": TITLES[row["metric"]], "r": 100 * row["median"]}
            for row in study.summary
            if row["truth"] == truth and _known(row["median"])
        ]
        printed = [{"metric": TITLES[r["metric"]], "r": 100 * r["r"]} for r in study.paper if r["truth"] == truth]
        printed += [{"metric": TITLES["ece"], "r": 100 * PAPER_ECE[truth]}] if printed else []
        across = alt.Scale(domain=[-100, 100])
        x = alt.X("r:Q", title="Pearson's r (%)", scale=across, axis=alt.Axis(tickCount=5))
        y = alt.Y("metric:N", title=None, sort=order)
        ticks = alt.Chart(theme.as_data(rows)).mark_tick(color=BLUE, opacity=0.5, thickness=1.5, height=16)
        dots = alt.Chart(theme.as_data(middle)).mark_circle(color=BLUE, size=60, opacity=1).encode(x=x, y=y)
        paper = alt.Chart(theme.as_data(printed)).mark_point(
            shape="diamond", color=RED, filled=False, size=110, strokeWidth=2, opacity=1
        )
        layers = [rule("x", 0.0, across), ticks.encode(x=x, y=y), dots, paper.encode(x=x, y=y)]
        panels.append(alt.layer(*layers).properties(width=320, height=200, title=heading(f"with {TITLES[truth]}")))
    chart = alt.vconcat(alt.hconcat(*panels, spacing=30))
    words = f"ticks: draws; dots: their median; diamonds: {PAPER}"
    more = "AURC, AUGRC, ECE, Brier and NLL are better when lower: a useful one lies at −100%"
    return finish(chart, "Which metrics follow the truth, over all draws", [words, more])
