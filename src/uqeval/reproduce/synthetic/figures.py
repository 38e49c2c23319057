"""The figures of the synthetic study and of temperature scaling; what those of the data show is found in `scenes`."""

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import altair as alt
import numpy as np

from uqeval.metrics import kendall_tau
from uqeval.plot import theme
from uqeval.reproduce import panels as draw
from uqeval.reproduce.names import MAIN, MEANINGS, SIGNS, SYMBOLS, TITLES, TRUTHS, Row
from uqeval.reproduce.page import Makers
from uqeval.reproduce.study import Study, pick
from uqeval.reproduce.synthetic import scenes
from uqeval.reproduce.synthetic.networks import Fitted

PAPER = "paper (one draw, d unknown)"
PAIRS = tuple(zip(MAIN, TRUTHS, strict=True))  # each metric with the truth it belongs to
_SHAPES = [
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-left",
    "triangle-right",
    "wedge",
    "arrow",
]
_ACROSS = 4  # panels side by side
_ON_MAP = "#222222"
_SHOWN = 130  # rows of a single model
_PALE = ["#F3B98F", "#FFFFFF", "#92C5E8"]  # class 0, undecided, class 1
_DANGER = ["#FFFFFF", "#F4A582", "#B2182B", "#67001F"]


def makers(study: Study, seed: int, printed: list[Row], any_d: Sequence[Row] = ()) -> Makers:
    """What draws each figure, by name, in the order of the page; of one draw where it is about models."""
    grid = study.settings["grid"]
    scene = scenes.arbitrary(grid, study.settings["draws"], study.settings["d_range"])
    scored = cache(lambda: scenes.few_models(grid, seed, study.settings["methods"]))
    of_the_data: Makers = {}
    if scene is not None:
        of_the_data = {make.__name__: partial(make, scene) for make in (dataset, phi_and_varphi, risk_control)}
    return {
        "metric_vs_kendall": lambda: metric_vs_kendall(study, seed),
        "metric_vs_kendall_by_method": lambda: by_method(study, seed),
        "correlations_vs_d": lambda: correlations_vs_d(study, any_d),
        "correlations_by_metric": lambda: correlations_by_metric(study, printed),
        **of_the_data,
        "score_vs_phi": lambda: score_vs_truth(scored(), "kendall_phi", seed),
        "score_vs_varphi": lambda: score_vs_truth(scored(), "kendall_varphi", seed),
    }


# ---- scatter plots ---------------------------------------------------------------------------------------------


def metric_vs_kendall(study: Study, seed: int) -> theme.Figure:
    """A dot for each scored model: what a test set tells against what only the law of the data tells."""
    key = alt.Legend(title="method", symbolOpacity=1, symbolFillColor=None)
    panels = []
    for metric, truth in PAIRS:
        row = pick((row for row in study.correlations if row["draw"] == seed), metric, truth)
        r = "–" if row is None or math.isnan(row["r"]) else f"{100 * row['r']:.1f}%"
        rows = _rows(study, seed, metric, truth)
        words = f"{TITLES[metric]} and {SYMBOLS[truth]}: r = {r}"
        panels.append(_scatter(study, rows, rows, (metric, truth), size=(330, 300), words=words, key=key))
    chart = draw.stack([panels], across=36).resolve_scale(color="shared", shape="shared")
    return draw.finish(chart, "Each metric against the rank correlation with its truth", [_which(study, seed)])


def by_method(study: Study, seed: int) -> theme.Figure:
    """The same, a panel for each method."""
    lines: list[list[Any]] = []
    for metric, truth in PAIRS:
        every = _rows(study, seed, metric, truth)
        lines.append([])
        for title in _methods(study).values():
            rows = [row for row in every if row["method"] == title]
            x, y = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("x", "y"))
            spread = len(rows) > 2 and x.std() > 0 and y.std() > 0
            r = f"r = {100 * np.corrcoef(x, y)[0, 1]:.1f}%" if spread else "r undefined"
            words = f"{title}: {r}"
            lines[-1].append(_scatter(study, rows, every, (metric, truth), size=(215, 170), words=words))
    lines = [line[at : at + _ACROSS] for line in lines for at in range(0, len(line), _ACROSS)]
    return draw.finish(draw.stack(lines, across=24), "The same by method", [_which(study, seed)])


def _scatter(study: Study, rows: list[Row], every: list[Row], pair: tuple[str, str], **look: Any) -> Any:
    """Some rows in a frame that holds every one, and the grey lines of a useless score."""
    (metric, truth), (width, height), key = pair, look["size"], look.pop("key", None)
    names = _methods(study)
    free = [color for color in theme.PALETTE if color not in draw.FAMILIES.values()]
    others = dict(zip((name for name in names if name not in draw.FAMILIES), free, strict=False))
    colours = {title: draw.FAMILIES.get(name) or others[name] for name, title in names.items()}
    across, up = draw.airy((row["x"] for row in every), 0.05), draw.airy([*(row["y"] for row in every), 0.5], 0.05)
    title = ["κ: Kendall's τ of the score with the", MEANINGS[truth]]
    dots = draw.chart(rows).mark_point(size=26, strokeWidth=1.1, opacity=0.75, clip=True, aria=False)
    encoded = dots.encode(
        x=alt.X("x:Q", title=title, scale=across, axis=alt.Axis(tickCount=max(4, width // 50))),
        y=alt.Y("y:Q", title=TITLES[metric], scale=up, axis=alt.Axis(tickCount=max(4, height // 40))),
        color=draw.by_name(alt.Color, "method", colours, key),
        shape=draw.by_name(alt.Shape, "method", dict(zip(colours, _SHAPES, strict=False)), key),
        tooltip=[alt.Tooltip("model:N"), alt.Tooltip("score:N"), alt.Tooltip("x:Q", format=".3f"), alt.Tooltip("y:Q")],
    )
    upright = [draw.rule("x", 0.0, across)] if across.domain[0] < 0 < across.domain[1] else []
    return draw.panel(draw.rule("y", 0.5, up), *upright, encoded, **look)


def _rows(study: Study, seed: int, metric: str, truth: str) -> list[Row]:
    names = _methods(study)
    return [
        {"model": row["model"], "score": row["score"], "method": names[row["family"]]}
        | {"x": row[truth], "y": row[metric]}
        for row in study.models
        if row["draw"] == seed and draw.known(row[truth], row[metric])
    ]


def _methods(study: Study) -> dict[str, str]:
    return {method["name"]: method.get("title", method["name"]) for method in study.settings["methods"]}


def _which(study: Study, seed: int) -> str:
    count = sum(row["draw"] == seed for row in study.models)
    of = f", the one with the median d of {len(study.settings['draws'])}" if len(study.settings["draws"]) > 1 else ""
    d = study.settings["d"][str(seed)]
    return f"draw {seed} (d = {d:.2f}){of}; {count} scored models; grey lines: a useless score"


# ---- correlations over draws -----------------------------------------------------------------------------------


def correlations_vs_d(study: Study, any_d: Sequence[Row] = ()) -> theme.Figure:
    """Four correlations of every draw against its d, between the paper's lines."""
    d = study.settings["d"] | study.settings.get("first_seeds", {})
    outside = [row for row in any_d if str(row["draw"]) not in study.settings["d"]]
    lines = [[_against_d(study, outside, d, metric, truth) for truth in TRUTHS] for metric in MAIN]
    count, more = len(study.settings["d"]), len({row["draw"] for row in outside})
    words = f"a dot for each of {count} draws with its Fisher interval; dashed, with its interval: {PAPER}"
    notes = [words]
    if more:
        low, high = study.settings["d_range"]
        notes.append(
            f"rings: {more} of the first {count} seeds, not counted above: their d is outside {low:g} to {high:g}"
        )
    title = "How the correlations depend on d, the distance between the two means"
    return draw.finish(draw.stack(lines), title, notes)


def _against_d(study: Study, outside: list[Row], d: dict[str, float], metric: str, truth: str) -> Any:
    rows, others = (
        [
            row | {"d": d[str(row["draw"])]}
            for row in draw.in_percent((r for r in part if r["metric"] == metric), truth, "draw")
        ]
        for part in (study.correlations, outside)
    )
    y = alt.Y("r:Q", title="Pearson's r (%)", scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=36))
    x = alt.X("d:Q", title="d = ‖μ1 − μ0‖", scale=alt.Scale(zero=False, padding=12))
    tips = [alt.Tooltip("draw:N"), alt.Tooltip("d:Q", format=".2f"), alt.Tooltip("r:Q", format=".2f")]
    layers: list[Any] = []
    if (printed := pick(study.paper, metric, truth)) is not None:
        ends = draw.chart(draw.in_percent([printed], truth))
        label = ends.mark_text(align="left", dx=4, dy=-7, fontSize=10.5, color=theme.GREY)
        layers = [
            ends.mark_rect(color=theme.GREY, opacity=0.18).encode(y=alt.Y("low:Q"), y2="high:Q"),
            ends.mark_rule(color=theme.GREY, strokeDash=[5, 4], strokeWidth=1.5).encode(y="r:Q"),
            label.encode(x=alt.value(0), y="r:Q", text=alt.value(f"paper: {100 * printed['r']:.2f}")),
        ]
    base = draw.chart(rows).encode(x=x)
    layers.append(base.mark_rule(color=draw.BLUE, opacity=0.5).encode(y=alt.Y("low:Q"), y2="high:Q"))
    layers.append(base.mark_circle(color=draw.BLUE, size=42, opacity=1).encode(y=y, tooltip=tips))
    if others:
        rings = draw.chart(others).mark_point(color=draw.RED, size=42, strokeWidth=1.5, opacity=1)
        layers.append(rings.encode(x=x, y=y, tooltip=tips))
    return draw.panel(*layers, size=(330, 210), words=f"{TITLES[metric]} with {SYMBOLS[truth]}", more=MEANINGS[truth])


def correlations_by_metric(study: Study, printed: list[Row]) -> theme.Figure:
    """Every metric beside UQ-AUC and UQ-C-index: a tick for each draw."""
    across = alt.Scale(domain=[-100, 100])
    x = alt.X("r:Q", title="Pearson's r (%)", scale=across, axis=alt.Axis(tickCount=5))
    y = alt.Y("metric:N", title=None, sort=[TITLES[name] for name in dict.fromkeys(r["metric"] for r in study.summary)])
    medians = [row | {"r": row["median"]} for row in study.summary]
    hollow: dict[str, Any] = {"shape": "diamond", "filled": False, "size": 110, "strokeWidth": 2, "opacity": 1}
    panels = []
    for truth in TRUTHS:
        ticks, dots, paper = (
            draw.chart(draw.in_percent(rows, truth)).encode(x=x, y=y) for rows in (study.correlations, medians, printed)
        )
        layers = [
            draw.rule("x", 0.0, across),
            ticks.mark_tick(color=draw.BLUE, opacity=0.5, thickness=1.5, height=16),
            dots.mark_circle(color=draw.BLUE, size=60, opacity=1),
            paper.mark_point(color=draw.RED, **hollow),
        ]
        panels.append(draw.panel(*layers, size=(320, 200), words=f"with {SYMBOLS[truth]}", more=MEANINGS[truth]))
    words = f"ticks: draws; dots: their median; diamonds: {PAPER}"
    more = "AURC, AUGRC, ECE, Brier and NLL are better when lower: a useful one lies at −100%"
    return draw.finish(draw.stack([panels]), "Which metrics follow the truth, over all draws", [words, more])


# ---- the data and its truths -----------------------------------------------------------------------------------


def dataset(scene: scenes.Scene) -> theme.Figure:
    """Test rows over the probability of class 1."""
    scale = alt.Scale(domain=[0.0, 0.5, 1.0], range=_PALE, interpolate="rgb")
    data = scene.data
    rows = theme.joined({"x1": data.x[data.test, 0], "x2": data.x[data.test, 1], "label": data.labels[data.test]})
    marks = {"expr": "datum.value == 0 ? 'circle' : 'square'"}
    key = alt.Legend(title="label", symbolOpacity=1, symbolType=marks)
    color = draw.by_name(alt.Color, "label", {0: draw.RED, 1: draw.BLUE}, key)  # type: ignore[dict-item]
    dots = draw.chart(rows).mark_point(size=22, strokeWidth=1.2, opacity=0.9, clip=True, aria=False)
    encoded = dots.encode(x=_axis(scene, 1), y=_axis(scene, 2), color=color, shape=alt.Shape("label:N", legend=None))
    layers = draw.panel(_map(scene, "pi", scale, "P(class 1 at x)"), encoded, size=(384, 384))
    words = [f"draw {scene.seed} (d = {data.d:.2f}), the {len(data.test)} test rows"]
    return draw.finish(layers.resolve_scale(color="independent"), "The data and their law", words)


def phi_and_varphi(scene: scenes.Scene) -> theme.Figure:
    """Both truths of the paper's arbitrary predictor, which looks at the second coordinate only."""
    colors = alt.Scale(domain=[0.0, 0.33, 0.67, 1.0], range=_DANGER, interpolate="rgb")
    look: dict[str, Any] = {"color": _ON_MAP, "strokeDash": [6, 4], "strokeWidth": 2}
    frontier = draw.chart([{"at": scene.level}]).mark_rule(**look).encode(y=alt.Y("at:Q"))
    maps = {truth: _map(scene, truth, colors, None) for truth in TRUTHS}
    panels = [
        draw.panel(found, frontier, size=(320, 320), words=f"{MEANINGS[truth]} {SIGNS[truth]}(x)")
        for truth, found in maps.items()
    ]
    chart = alt.vconcat(alt.hconcat(*panels, spacing=30).resolve_scale(color="shared"))
    notes = ["dashed: where the predictor “logit = x2 − mean of x2” changes its mind", scene.words]
    return draw.finish(chart, "What the error probability ϕ(x) and the misalignment φ(x) look like", notes)


def risk_control(scene: scenes.Scene) -> theme.Figure:
    """Risk inside the sub-level sets: exact, and observed on the drawn rows."""
    key = alt.Legend(title=None, symbolType="stroke")
    color = draw.by_name(alt.Color, "kind", {"exact": draw.BLUE, "observed": draw.RED}, key)
    dash = draw.by_name(alt.StrokeDash, "kind", {"exact": [1, 0], "observed": [4, 3]}, key)
    x = alt.X("beta:Q", title="β", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("risk:Q", title="risk", axis=alt.Axis(format="~%"))
    titles = ("error rate where the error probability ϕ ≤ β", "misaligned share where the misalignment φ ≤ β")
    panels = []
    curves = scenes.risk_curves(scene)
    for curve, title in zip(curves, titles, strict=True):
        lines = draw.chart(curve).mark_line(strokeWidth=2)
        panels.append(draw.panel(lines.encode(x=x, y=y, color=color, strokeDash=dash), size=(310, 230), words=title))
    exact = f"the arbitrary predictor on draw {scene.seed}; exact: integrated over the law of the data"
    words = f"{exact}; observed: its {len(scene.data.x):,} rows"
    mce, mbc = ([row for row in curve if row["kind"] == "exact"] for curve in curves)
    rise = all((np.diff([row["risk"] for row in curve]) > -1e-9).all() for curve in (mce, mbc))
    zero = max((row["risk"] for row in mbc if row["beta"] <= 0.5), default=0.0)
    found = f"the exact curves {'rise' if rise else 'do not rise'}; misaligned share up to β = ½: at most {zero:.3g}"
    return draw.finish(draw.stack([panels]), "Risk inside the sub-level sets (Theorems 2.1 and 2.2)", [words, found])


def _map(scene: scenes.Scene, field: str, colors: alt.Scale, title: str | None) -> alt.Chart:
    legend = alt.Legend(title=title, gradientLength=140, format="~%")
    cells = draw.chart(theme.joined(scene.map(field))).mark_rect(clip=True, aria=False)
    places = {"x": _axis(scene, 1, "left"), "x2": "right:Q", "y": _axis(scene, 2, "below"), "y2": "above:Q"}
    return cells.encode(**places, color=alt.Color("value:Q", scale=colors, legend=legend))


def _axis(scene: scenes.Scene, which: int, field: str | None = None) -> Any:
    kind = alt.X if which == 1 else alt.Y
    scale = alt.Scale(domain=list(scene.limits[which - 1]), nice=False)
    return kind(f"{field or f'x{which}'}:Q", title=f"x{which}", scale=scale, axis=alt.Axis(grid=False, tickCount=7))


# ---- scores of single models -----------------------------------------------------------------------------------


def score_vs_truth(models: list[tuple[Fitted, str]], truth: str, seed: int) -> theme.Figure:
    """A panel for each of a few models, a dot for each of some test rows."""
    lines: dict[str, list[Any]] = {}
    symbol = f"{MEANINGS[truth]} {SIGNS[truth]}(x)"
    for model, name in models:
        plan, values, score = model.plan, model.truths[truth], model.score(name)
        kept = np.linspace(0, len(values) - 1, min(len(values), _SHOWN)).astype(int)
        rows = theme.joined({"score": score[kept], "truth": values[kept]})
        x = alt.X("score:Q", title=name.replace("_", " "), scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4))
        y = alt.Y("truth:Q", title=symbol, scale=alt.Scale(domain=[0, 1]))
        color = draw.FAMILIES.get(plan["method"], draw.BLUE)
        dots = draw.chart(rows).mark_circle(size=16, color=color, opacity=0.7, aria=False)
        more = ", ".join(["-".join(map(str, plan["hidden"])), f"lr {plan['lr']:g}", *model.words])
        words = f"{plan['title']}: κ = {kendall_tau(score, values):.2f}"
        panel = draw.panel(dots.encode(x=x, y=y), size=(215, 150), words=words, more=more)
        lines.setdefault(plan["method"], []).append(panel)
    notes = [
        f"models picked at random and trained again on draw {seed}; a dot for each of {_SHOWN} test rows at most",
        "κ: Kendall's τ on all test rows",
    ]
    chart = draw.stack(lines.values(), across=24, down=22)
    return draw.finish(chart, f"Scores of single models against the {MEANINGS[truth]}", notes)


# ---- temperature -----------------------------------------------------------------------------------------------

_LINES = {
    "ece": ("ECE", "#000000", [1, 0]),
    "uq_auc": ("UQ-AUC", draw.BLUE, [1, 0]),
    "uq_c_index": ("UQ-C-index", draw.RED, [1, 0]),
}
_DRIFTS = {
    ("softmax", "uq_auc"): ("both, one network, Δ from logits", draw.GREEN, [1, 0]),
    ("naive float64", "uq_c_index"): ("UQ-C-index, Δ = 1 − p, float64", draw.RED, [6, 3]),
    ("naive float32", "uq_c_index"): ("UQ-C-index, Δ = 1 − p, float32", draw.PURPLE, [6, 3]),
    ("scaled, then averaged", "uq_auc"): ("UQ-AUC, 10 networks scaled, then averaged", draw.BLUE, [2, 2]),
    ("ten classes", "uq_auc"): ("UQ-AUC, ten classes", draw.ORANGE, [1, 0]),
}


def temperature_chart(found: list[Row], settings: dict[str, Any]) -> theme.Figure:
    """ECE, UQ-AUC and UQ-C-index against T where they are invariant, and by how much they move where they are not."""
    plain = [
        {"t": row["temperature"], "line": title, "value": row[metric]}
        for row in found
        if row["case"] == "softmax"
        for metric, (title, _, _) in _LINES.items()
    ]
    moved = []
    for (case, metric), (title, _, _) in _DRIFTS.items():
        rows = [row for row in found if row["case"] == case]
        start = min(rows, key=lambda row: abs(math.log(row["temperature"])))[metric]
        moved += [{"t": row["temperature"], "line": title, "value": row[metric] - start} for row in rows]
    left = _lines(plain, list(_LINES.values()), "value", alt.Scale(domain=[0, 1]), "two classes, one network")
    right = _lines(moved, list(_DRIFTS.values()), "value minus value at T = 1", alt.Scale(), "what moves it")
    both = alt.hconcat(left, right, spacing=30).resolve_scale(color="independent", strokeDash="independent")
    words = [f"draw {settings['seed']} of the synthetic study (d = {settings['d']:.2f}); score: entropy"]
    return draw.finish(alt.vconcat(both), "Metrics against the temperature that divides the logits", words)


def _lines(rows: list[Row], looks: list[tuple[str, str, list[int]]], axis: str, ends: alt.Scale, words: str) -> Any:
    columns = 1 if len(looks) > 3 else 3
    key = alt.Legend(title=None, orient="bottom", columns=columns, symbolType="stroke", labelLimit=320)
    few = alt.Axis(values=[0.1, 0.3, 1, 3, 10], format="~g")
    line = draw.chart(rows).mark_line(strokeWidth=2)
    encoded = line.encode(
        x=alt.X("t:Q", title="temperature T", scale=alt.Scale(type="log"), axis=few),
        y=alt.Y("value:Q", title=axis, scale=ends),
        color=draw.by_name(alt.Color, "line", {name: colour for name, colour, _ in looks}, key),
        strokeDash=draw.by_name(alt.StrokeDash, "line", {name: dash for name, _, dash in looks}, key),
    )
    return draw.panel(encoded, size=(330, 240), words=words)
