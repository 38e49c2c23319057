"""Figures of the data, of single models and of temperature scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from uqeval.plot import theme
from uqeval.reproduce.panels import BLUE, FAMILIES, RED, finish, heading
from uqeval.reproduce.study import TITLES
from uqeval.reproduce.synthetic import scenes
from uqeval.reproduce.synthetic.temperature import Temperature

__all__ = ["dataset", "phi_and_varphi", "risk_control", "score_vs_truth", "temperature_chart"]

_ON_MAP = "#222222"
_SHOWN = 130  # rows of a single model
_PALE = ["#F3B98F", "#FFFFFF", "#92C5E8"]  # class 0, undecided, class 1
_DANGER = ["#FFFFFF", "#F4A582", "#B2182B", "#67001F"]


# ---- the data and its truths -----------------------------------------------------------------------------------


def dataset(scene: scenes.Scene) -> theme.Figure:
    """Test rows over the probability of class 1."""
    limits = [0.0, 0.5, 1.0]
    title = "P(class 1 at x)"
    back = _map(scene, "pi", alt.Scale(domain=limits, range=_PALE, interpolate="rgb"), title)
    data = scene.data
    rows = theme.joined({"x1": data.x[data.test, 0], "x2": data.x[data.test, 1], "label": data.labels[data.test]})
    color = alt.Color(
        "label:N",
        scale=alt.Scale(domain=list(range(data.n_classes)), range=[RED, BLUE, "#009E73", "#CC79A7"][: data.n_classes]),
        legend=alt.Legend(
            title="label", symbolOpacity=1, symbolType={"expr": "datum.value == 0 ? 'circle' : 'square'"}
        ),
    )
    shape = alt.Shape("label:N", legend=None)
    dots = alt.Chart(theme.as_data(rows)).mark_point(size=22, strokeWidth=1.2, opacity=0.9, clip=True, aria=False)
    layers = [back, dots.encode(x=_axis(scene, 1), y=_axis(scene, 2), color=color, shape=shape)]
    chart = alt.layer(*layers).resolve_scale(color="independent").properties(width=384, height=384)
    words = [f"draw {scene.seed} (d = {data.d:.2f}), the {len(data.test)} test rows"]
    return finish(chart, "The data and their law", words)


def phi_and_varphi(scene: scenes.Scene) -> theme.Figure:
    """Both truths of the paper's arbitrary predictor, which looks at the second coordinate only."""
    panels = []
    for field, words in (("phi", "φ: the chance of a mistake"), ("varphi", "ϕ: what it denies the Bayes class")):
        colors = alt.Scale(domain=[0.0, 0.33, 0.67, 1.0], range=_DANGER, interpolate="rgb")
        frontier = alt.Chart(theme.as_data([{"at": scene.level}])).mark_rule(
            color=_ON_MAP, strokeDash=[6, 4], strokeWidth=2
        )
        layers = [_map(scene, field, colors, None), frontier.encode(y=alt.Y("at:Q"))]
        panels.append(alt.layer(*layers).properties(width=320, height=320, title=heading(words)))
    chart = alt.vconcat(alt.hconcat(*panels, spacing=30).resolve_scale(color="shared"))
    notes = ["dashed: where the predictor “logit = x2 − mean of x2” changes its mind", scene.words]
    return finish(chart, "What φ and ϕ look like", notes)


def risk_control(scene: scenes.Scene) -> theme.Figure:
    """Risk inside the sub-level sets: exact, and observed on the drawn rows."""
    panels = []
    key = alt.Legend(title=None, symbolType="stroke")
    kinds = ["exact", "observed"]
    color = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[BLUE, RED]), legend=key)
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=kinds, range=[[1, 0], [4, 3]]), legend=key)
    titles = ("mistakes in {φ ≤ β}", "misalignment in {ϕ ≤ β}")
    for curve, title in zip(scenes.risk_curves(scene), titles, strict=True):
        x = alt.X("beta:Q", title="β", scale=alt.Scale(domain=[0, 1]))
        y = alt.Y("risk:Q", title="risk", axis=alt.Axis(format="~%"))
        lines = alt.Chart(theme.as_data(curve)).mark_line(strokeWidth=2)
        encoded = lines.encode(x=x, y=y, color=color, strokeDash=dash)
        panels.append(alt.layer(encoded).properties(width=310, height=230, title=heading(title)))
    chart = alt.vconcat(alt.hconcat(*panels, spacing=30))
    words = [
        f"the arbitrary predictor on draw {scene.seed}; exact: integrated over the law of the data; "
        f"observed: its {len(scene.data.x):,} rows"
    ]
    return finish(chart, "Lowering β lowers the risk (Theorems 2.1 and 2.2)", words)


def _map(scene: scenes.Scene, field: str, colors: alt.Scale, title: str | None) -> alt.Chart:
    legend = alt.Legend(title=title, gradientLength=140, format="~%")
    rows = theme.joined(scene.map(field))
    cells = alt.Chart(theme.as_data(rows)).mark_rect(clip=True, aria=False)
    return cells.encode(
        x=_axis(scene, 1, "left"),
        x2="right:Q",
        y=_axis(scene, 2, "below"),
        y2="above:Q",
        color=alt.Color("value:Q", scale=colors, legend=legend),
    )


def _axis(scene: scenes.Scene, which: int, field: str | None = None) -> Any:
    kind = alt.X if which == 1 else alt.Y
    ends = scene.limits[which - 1]
    scale = alt.Scale(domain=list(ends), nice=False)
    return kind(f"{field or f'x{which}'}:Q", title=f"x{which}", scale=scale, axis=alt.Axis(grid=False, tickCount=7))


# ---- scores of single models -----------------------------------------------------------------------------------


def score_vs_truth(models: list[scenes.Scored], truth: str, seed: int) -> theme.Figure:
    """A panel for each of a few models, a dot for each of some test rows."""
    lines: dict[str, list[Any]] = {}
    for model in models:
        values = model.phi if truth == "kendall_phi" else model.varphi
        kept = np.linspace(0, len(values) - 1, min(len(values), _SHOWN)).astype(int)
        rows = theme.joined({"score": model.score[kept], "truth": values[kept]})
        few = alt.Axis(tickCount=4)
        x = alt.X("score:Q", title=model.name.replace("_", " "), scale=alt.Scale(zero=False), axis=few)
        y = alt.Y("truth:Q", title=TITLES[truth][5:-1], scale=alt.Scale(domain=[0, 1]))
        color = FAMILIES.get(model.family, BLUE)
        dots = alt.Chart(theme.as_data(rows)).mark_circle(size=16, color=color, opacity=0.7, aria=False)
        tau = model.kendall[truth]
        named = heading(f"{model.title}: κ = {tau:.2f}", model.plan)
        panel = alt.layer(dots.encode(x=x, y=y)).properties(width=215, height=150, title=named)
        lines.setdefault(model.family, []).append(panel)
    chart = alt.vconcat(*(alt.hconcat(*panels, spacing=24) for panels in lines.values()), spacing=22)
    words = [
        f"models picked at random and trained again on draw {seed}; a dot for each of {_SHOWN} test rows at most",
        "κ: Kendall's τ on all test rows",
    ]
    return finish(chart, f"Scores of single models against {TITLES[truth][5:-1]}", words)


# ---- temperature -----------------------------------------------------------------------------------------------

_LINES = {
    "ECE": ("#000000", [1, 0]),
    "UQ-AUC": (BLUE, [1, 0]),
    "UQ-C-index": (RED, [1, 0]),
}
_DRIFTS = {
    ("softmax", "uq_auc"): ("both, one network, Δ from logits", "#009E73", [1, 0]),
    ("naive float64", "uq_c_index"): ("UQ-C-index, Δ = 1 − p, float64", "#D55E00", [6, 3]),
    ("naive float32", "uq_c_index"): ("UQ-C-index, Δ = 1 − p, float32", "#CC79A7", [6, 3]),
    ("scaled, then averaged", "uq_auc"): ("UQ-AUC, 10 networks scaled, then averaged", "#0072B2", [2, 2]),
    ("ten classes", "uq_auc"): ("UQ-AUC, ten classes", "#E69F00", [1, 0]),
}


def temperature_chart(result: Temperature) -> theme.Figure:
    """ECE, UQ-AUC and UQ-C-index against T where they are invariant, and by how much they move where they are not."""
    plain = [
        {"t": row["temperature"], "line": title, "value": row[metric]}
        for row in result.rows
        if row["case"] == "softmax"
        for metric, title in (("ece", "ECE"), ("uq_auc", "UQ-AUC"), ("uq_c_index", "UQ-C-index"))
    ]
    moved = []
    for (case, metric), (title, _, _) in _DRIFTS.items():
        rows = [row for row in result.rows if row["case"] == case]
        start = min(rows, key=lambda row: abs(math.log(row["temperature"])))[metric]
        moved += [{"t": row["temperature"], "line": title, "value": row[metric] - start} for row in rows]
    looks = {title: (color, dash) for title, color, dash in _DRIFTS.values()}
    left = _lines(plain, _LINES, "value", alt.Scale(domain=[0, 1]), "two classes, one network")
    right = _lines(moved, looks, "value minus value at T = 1", alt.Scale(), "what moves it")
    both = alt.hconcat(left, right, spacing=30).resolve_scale(color="independent", strokeDash="independent")
    chart = alt.vconcat(both)
    words = [f"draw {result.settings['seed']} of the synthetic study (d = {result.settings['d']:.2f}); score: entropy"]
    return finish(chart, "Metrics against the temperature that divides the logits", words)


def _lines(
    rows: list[dict[str, Any]], looks: Mapping[str, tuple[str, list[int]]], axis: str, ends: alt.Scale, words: str
) -> Any:
    names = list(looks)
    columns = 1 if len(names) > 3 else 3
    key = alt.Legend(title=None, orient="bottom", columns=columns, symbolType="stroke", labelLimit=320)
    color = alt.Color("line:N", scale=alt.Scale(domain=names, range=[looks[n][0] for n in names]), legend=key)
    dash = alt.StrokeDash("line:N", scale=alt.Scale(domain=names, range=[looks[n][1] for n in names]), legend=key)
    few = alt.Axis(values=[0.1, 0.3, 1, 3, 10], format="~g")
    x = alt.X("t:Q", title="temperature T", scale=alt.Scale(type="log"), axis=few)
    y = alt.Y("value:Q", title=axis, scale=ends)
    line = alt.Chart(theme.as_data(rows)).mark_line(strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash)
    return alt.layer(line).properties(width=330, height=240, title=heading(words))
