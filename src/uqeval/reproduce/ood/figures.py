"""The figures of the out-of-distribution study: where foreign inputs are, and which numbers follow which."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from uqeval.plot import theme
from uqeval.reproduce import panels as draw
from uqeval.reproduce.names import Row
from uqeval.reproduce.ood.laws import KINDS, all_foreign
from uqeval.reproduce.page import Makers
from uqeval.reproduce.synthetic.networks import draw_of

ALL = "all scores"  # where correlations are told apart by the kind of scores
_COLOURS = {**draw.FAMILIES, "features": draw.BLUE, "inputs": "#56B4E9", "truth": "#222222"}
_NAMES = {
    "softmax": "Softmax",
    "ensemble": "Deep ensemble",
    "dropout": "MC dropout",
    "features": "Last hidden layer",
    "inputs": "Inputs",
    "truth": "P(foreign at x), the best there is",
}
_SHAPES = dict(zip(_NAMES, ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down"), strict=True))
_KIND_COLOURS = dict(zip(KINDS.values(), (draw.PURPLE, draw.GREEN, draw.RED, draw.ORANGE), strict=True))
_ROWS = 150  # inputs of each kind that are drawn
_MOST = {"distance_c_index": "distance C-index (no foreign row)", "kendall": "κ of the score with P(foreign at x)"}


def title(family: str, score: str) -> str:
    """A score's name in tables and figures."""
    if family == "truth":
        return _NAMES[family]
    words = score.replace("knn_distance", "nearest neighbours").replace("_", " ")
    words = words.replace("mahal", "Mahal").replace("bernoulli", "Bernoulli")
    return f"{_NAMES[family]}: {words}"


def makers(models: Sequence[Row], correlations: Sequence[Row], settings: dict[str, Any], seed: int) -> Makers:
    """What draws each figure, by name, in the order of the page."""
    own = [row for row in models if row["draw"] == seed]
    d = settings["d"][str(seed)]
    return {
        "foreign_inputs": lambda: foreign_inputs(settings["grid"], seed, d),
        "auroc_by_score": lambda: auroc_by_score(models),
        "distance_vs_auroc": lambda: scatter(own, "distance_c_index", _which(seed, d)),
        "kendall_vs_auroc": lambda: scatter(own, "kendall", _which(seed, d)),
        "correlations_by_draw": lambda: by_draw(correlations, settings),
    }


def _which(seed: int, d: float) -> str:
    return f"draw {seed} (d = {d:.2f}), the one with the median d; a mark for each score of each network"


def foreign_inputs(grid: dict[str, Any], seed: int, d: float) -> theme.Figure:
    """Known and foreign rows of a draw, a panel for each kind."""
    data = draw_of(grid, seed)
    known = data.x[data.test][:_ROWS]
    others = {kind: law.x[:_ROWS] for kind, law in all_foreign(data, grid["foreign"], seed).items()}
    every = np.concatenate([known, *others.values()])
    centre, half = (every.max(axis=0) + every.min(axis=0)) / 2, np.ptp(every, axis=0).max() / 2 + 0.3
    scales = [alt.Scale(domain=[at - half, at + half], nice=False) for at in centre.tolist()]
    x, y = (
        make(f"x{k}:Q", title=f"x{k}", scale=scale, axis=alt.Axis(grid=False, tickCount=5))
        for k, make, scale in zip((1, 2), (alt.X, alt.Y), scales, strict=True)
    )
    looks = {"known": theme.GREY} | _KIND_COLOURS
    panels = []
    for kind, words in KINDS.items():
        rows = theme.joined(
            {
                "x1": np.concatenate([known[:, 0], others[kind][:, 0]]),
                "x2": np.concatenate([known[:, 1], others[kind][:, 1]]),
                "kind": np.array(["known"] * len(known) + [words] * len(others[kind])),
            }
        )
        dots = draw.chart(rows).mark_point(size=16, strokeWidth=1.1, opacity=0.8, clip=True, aria=False)
        encoded = dots.encode(x=x, y=y, color=draw.by_name(alt.Color, "kind", looks))
        panels.append(draw.panel(encoded, size=(250, 250), words=words))
    words = f"draw {seed} (d = {d:.2f}); grey: known rows, {len(known)} of them; coloured: as many foreign ones"
    return draw.finish(draw.stack([panels[:2], panels[2:]]), "Where the foreign inputs are", [words])


def auroc_by_score(models: Sequence[Row]) -> theme.Figure:
    """The median of each draw as a tick, that of all draws as a dot, a panel for each kind."""
    across = draw.airy([0.0, 1.0], 0.02)
    names = list(dict.fromkeys((f, r["score"]) for f in _NAMES for r in models if r["family"] == f))
    panels = []
    for k, (kind, words) in enumerate(KINDS.items()):
        ticks, dots = [], []
        for family, score in names:
            values: dict[int, list[float]] = {}
            for row in models:
                if (row["family"], row["score"], row["kind"]) == (family, score, kind):
                    values.setdefault(row["draw"], []).append(row["auroc"])
            medians = [float(np.median(part)) for part in values.values()]
            base = {"line": title(family, score), "family": _NAMES[family]}
            ticks += [base | {"auroc": value} for value in medians]
            dots.append(base | {"auroc": float(np.median(medians))})
        x = alt.X("auroc:Q", title="AUROC", scale=across, axis=alt.Axis(tickCount=5))
        axis = alt.Axis() if k % 2 == 0 else alt.Axis(labels=False, ticks=False)
        y = alt.Y("line:N", title=None, sort=[title(*name) for name in names], axis=axis)
        color = draw.by_name(alt.Color, "family", {_NAMES[f]: c for f, c in _COLOURS.items()})
        layers = [
            draw.rule("x", 0.5, across),
            draw.chart(ticks).mark_tick(opacity=0.45, thickness=1.3, height=9).encode(x=x, y=y, color=color),
            draw.chart(dots).mark_circle(size=50, opacity=1).encode(x=x, y=y, color=color),
        ]
        panels.append(draw.panel(*layers, size=(250, 15 * len(names)), words=words))
    notes = ["ticks: draws, the median over networks; dots: the median over draws; grey line: a useless score"]
    return draw.finish(draw.stack([panels[:2], panels[2:]]), "How well each score tells foreign inputs", notes)


def scatter(models: Sequence[Row], measured: str, which: str) -> theme.Figure:
    """AUROC against another number of each score, a panel for each kind."""
    families = [f for f in _NAMES if f not in ("inputs", "truth")]
    looks = {_NAMES[f]: _COLOURS[f] for f in families}
    shapes = {_NAMES[f]: _SHAPES[f] for f in families}
    key = alt.Legend(title=None, symbolOpacity=1, symbolFillColor=None)
    shown = [row for row in models if row["family"] in families and draw.known(row[measured], row["auroc"])]
    across, up = draw.airy((row[measured] for row in shown), 0.05), draw.airy([0.0, 1.0], 0.03)
    panels = []
    for kind, words in KINDS.items():
        rows = [
            {"x": row[measured], "y": row["auroc"], "family": _NAMES[row["family"]], "model": row["model"]}
            | {"line": title(row["family"], row["score"])}
            for row in shown
            if row["kind"] == kind
        ]
        dots = draw.chart(rows).mark_point(size=26, strokeWidth=1.1, opacity=0.75, clip=True, aria=False)
        encoded = dots.encode(
            x=alt.X("x:Q", title=_MOST[measured], scale=across, axis=alt.Axis(tickCount=5)),
            y=alt.Y("y:Q", title="AUROC", scale=up, axis=alt.Axis(tickCount=5)),
            color=draw.by_name(alt.Color, "family", looks, key),
            shape=draw.by_name(alt.Shape, "family", shapes, key),
            tooltip=[
                alt.Tooltip("model:N"),
                alt.Tooltip("line:N", title="score"),
                alt.Tooltip("x:Q"),
                alt.Tooltip("y:Q"),
            ],
        )
        panels.append(draw.panel(draw.rule("y", 0.5, up), encoded, size=(270, 210), words=words))
    chart = draw.stack([panels[:2], panels[2:]]).resolve_scale(color="shared", shape="shared")
    heads = {"distance_c_index": "The distance C-index against the AUROC", "kendall": "The truth against the AUROC"}
    return draw.finish(chart, f"{heads[measured]} of each score", [which, "grey line: a useless score"])


def by_draw(correlations: Sequence[Row], settings: dict[str, Any]) -> theme.Figure:
    """r with the AUROC of every draw against its d, a panel for each kind."""
    looks = {"distance C-index": draw.BLUE, "UQ-AUC": draw.RED}
    names = dict(zip(("distance_c_index", "uq_auc"), looks, strict=True))
    key, up = alt.Legend(title=None, symbolOpacity=1), alt.Scale(domain=[-100, 100])
    panels = []
    for kind, words in KINDS.items():
        rows = [
            {"d": settings["d"][str(row["draw"])], "metric": names[row["first"]], "draw": row["draw"]}
            | {end: 100 * row[end] for end in ("r", "low", "high")}
            for row in correlations
            if (row["kind"], row["scores"]) == (kind, ALL)
            and row["first"] in names
            and draw.known(row["r"], row["low"], row["high"])
        ]
        base = draw.chart(rows).encode(
            x=alt.X("d:Q", title="d = ‖μ1 − μ0‖", scale=alt.Scale(zero=False, padding=12)),
            color=draw.by_name(alt.Color, "metric", looks, key),
        )
        bars = base.mark_rule(opacity=0.4).encode(y=alt.Y("low:Q", title="Pearson's r (%)", scale=up), y2="high:Q")
        tips = [alt.Tooltip("draw:N"), alt.Tooltip("d:Q", format=".2f"), alt.Tooltip("r:Q", format=".1f")]
        dots = base.mark_circle(size=36, opacity=1).encode(y=alt.Y("r:Q", scale=up), tooltip=tips)
        panels.append(draw.panel(draw.rule("y", 0.0, up), bars, dots, size=(270, 190), words=words))
    chart = draw.stack([panels[:2], panels[2:]]).resolve_scale(color="shared")
    notes = ["a dot for each draw with its Fisher interval, over the scores of networks' outputs"]
    return draw.finish(chart, "What follows the AUROC of known against foreign inputs, draw by draw", notes)
