"""Charts of decisions: which threshold keeps a risk, and which score accepts more right predictions there?"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from uqeval._errors import InputError, a_type
from uqeval.decide.dominance import Dominance
from uqeval.decide.label_noise import LabelNoise
from uqeval.decide.risk_map import RiskMap, map_rows
from uqeval.decide.rows import reject_lowest
from uqeval.decide.threshold import Threshold
from uqeval.evaluation.result import Evaluation
from uqeval.plot import data, theme
from uqeval.plot.parts import HEIGHT, NUMBER, PERCENT, WIDTH, colors_of, tips, touched

_RISK_TIP = "max_risk|.2%|prescribed risk"


def psi(
    source: RiskMap | Evaluation,
    score: str | None = None,
    threshold: Threshold | Sequence[Threshold] | None = None,
    *,
    like: Evaluation | None = None,
) -> theme.Figure:
    """The map ψ from a prescribed risk to the largest threshold that keeps it, with a band for all risks at once.

    Parameters
    ----------
    source : RiskMap or Evaluation
        From `uqeval.risk_map`, or from `uqeval.evaluate`.
    score : str, optional
        Of an Evaluation: which score; the best by UQ-AUC by default.
    threshold : Threshold or Thresholds, optional
        From `uqeval.choose_threshold`: marked where it lies.
    like : Evaluation, optional
        Whose colours to use, for a RiskMap of a score with a name of your own.

    Returns
    -------
    Altair chart
        ``.save("psi.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> pred = uq.datasets.example()
    >>> chosen = uq.choose_threshold("entropy", predictions=pred, max_risk=0.05)
    >>> chart = uq.plot.psi(uq.risk_map("entropy", predictions=pred), threshold=chosen)
    """
    found, palette = _risk_map_of(source, score, like)
    marks = _marks(threshold, found)
    name = found.score or "score"
    points = data.psi_points(found)
    finite = found.threshold[np.isfinite(found.threshold)]
    marked = [mark.value for mark in marks if mark.feasible and np.isfinite(mark.value)]
    low, high = min([*finite, *marked], default=0.0), max([*finite, *marked], default=1.0)
    drawn = {f"{key}_drawn": points[key].clip(low, high) for key in ("low", "high")}
    drawn["value_drawn"] = np.where(np.isneginf(points["value"]), np.nan, points["value"].clip(low, high))
    rows = theme.as_data(theme.joined({**points, **drawn}, score=name))
    right = min(1.0, max([points["max_risk"][-1], *(1.05 * mark.max_risk for mark in marks)]))
    axis = NUMBER if found.what == "loss" else PERCENT
    x = alt.X("max_risk:Q", axis=axis, scale=alt.Scale(domain=[0, right], nice=False), title=_prescribed(found.what))
    pad = 0.03 * (high - low) or 0.5
    scale = alt.Scale(domain=[low - pad, high + pad], nice=False)
    y = alt.Y("value_drawn:Q", scale=scale, title="threshold ψ (accept score ≤ ψ)")
    band_tips = "low|.4~g|safe for all risks at once", "high|.4~g|may keep the risk"
    prescribed = _RISK_TIP.replace(".2%", ".4~g") if found.what == "loss" else _RISK_TIP
    tooltip = tips(prescribed, "value|.4~g|threshold, as observed", *band_tips)
    color = theme.score_color([name], palette)
    base = alt.Chart(rows)
    band = base.mark_area(opacity=0.18, interpolate="step-after").encode(
        x=x, y=alt.Y("low_drawn:Q", scale=scale), y2="high_drawn:Q", color=color
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=2).encode(x=x, y=y, color=color)
    layers: list[Any] = [band, line, touched(base, x, y, tooltip), *_chosen(marks, y, right)]
    sure = f"band: {100 * found.level:.6g}% for all risks at once; below its lower edge every risk is kept"
    failed = [mark.max_risk for mark in marks if not mark.feasible]
    notes = [f"nothing could be certified at a risk of {_written(risk, found.what)}" for risk in failed]
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return theme.finish(chart, f"Threshold for a prescribed risk: {found.n:,} rows", [sure, *notes])


def _risk_map_of(source: Any, score: str | None, like: Evaluation | None) -> tuple[RiskMap, dict[str, str]]:
    if isinstance(source, RiskMap):
        if score is not None and score != source.score:
            raise InputError(f"`score` is {score!r}, but the map is of {source.score!r}. Leave `score` out.")
        return source, colors_of(like, [source.score or "score"])
    if not isinstance(source, Evaluation):
        raise InputError(f"`source` is {a_type(source)}. Pass a RiskMap (uqeval.risk_map) or an Evaluation.")
    table = data.rows_of(source)
    if table.weights is not None:
        raise InputError("psi has no band for weighted rows. Evaluate without `weights`.")
    if table.share_loss is None:
        raise InputError("psi needs errors or a loss in [0, 1]. Rescale the loss, or evaluate with error=.")
    (name,) = data.shown(source, None if score is None else [score], most=1)
    reject_lowest(table.score(name))
    return map_rows(data.calibration(table, name, table.share_loss), name, source.level), colors_of(source)


def _marks(threshold: Any, found: RiskMap) -> list[Threshold]:
    """The thresholds to mark, if they belong onto this map."""
    marks = [] if threshold is None else [threshold] if isinstance(threshold, Threshold) else list(threshold)
    for mark in marks:
        if not isinstance(mark, Threshold):
            raise InputError(f"`threshold` holds {a_type(mark)}. Pass what uqeval.choose_threshold returns.")
        if mark.joint:
            raise InputError(
                f'`threshold` was chosen by "{mark.method}", whose promise is about all inputs; ψ is about the '
                f"accepted ones. Choose it by another method, or leave it out."
            )
        if None not in (mark.score, found.score) and mark.score != found.score:
            raise InputError(f"`threshold` is of the score {mark.score!r}, the map of {found.score!r}. Pass one of it.")
    return marks


def _chosen(marks: list[Threshold], y: alt.Y, top: float) -> list[Any]:
    """Diamonds with their words, which stand on the side where there is room; `top` is the end of the x axis."""
    rows = []
    for mark in (mark for mark in marks if mark.feasible and np.isfinite(mark.value)):
        place = {"max_risk": mark.max_risk, "value": mark.value, "value_drawn": mark.value, "coverage": mark.coverage}
        rows.append(place | {"text": f"chosen: {mark.value:.4g} for {_written(mark.max_risk, mark.what)}"})
    if not rows:
        return []
    base = alt.Chart(theme.as_data(rows)).encode(x="max_risk:Q", y="value_drawn:Q")
    form = ".4~g" if any(mark.what == "loss" for mark in marks) else ".2%"
    tooltip = tips(f"max_risk|{form}|promised risk", "value|.4~g|chosen threshold", "coverage|.1%")
    point = base.mark_point(shape="diamond", size=110, filled=True, color=theme.INK, opacity=1).encode(tooltip=tooltip)
    words: list[Any] = []
    sides: tuple[tuple[float, float, Literal["left", "center", "right"], int, int], ...] = (
        (0.0, 0.35, "left", 9, 13),
        (0.35, 0.65, "center", 0, 20),
        (0.65, math.inf, "right", -9, 13),
    )
    for low, high, align, dx, dy in sides:
        own = [row for row in rows if low <= float(row["max_risk"]) / top < high]
        if own:
            beside = alt.Chart(theme.as_data(own)).encode(x="max_risk:Q", y="value_drawn:Q", text="text:N")
            words.append(beside.mark_text(align=align, dx=dx, dy=dy, color=theme.INK, fontSize=11.5))
    return [point, *words]


def dominance(d: Dominance, *, like: Evaluation | None = None) -> theme.Figure:
    """Which of two scores accepts more right predictions at each risk: both curves, and their difference with a band.

    Parameters
    ----------
    d : Dominance
        From `uqeval.dominance`.
    like : Evaluation, optional
        Whose colours to use, for scores with names of your own.

    Returns
    -------
    Altair chart
        ``.save("dominance.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> found = uq.dominance("entropy", "vote_entropy", predictions=uq.datasets.example(), resamples=200)
    >>> chart = uq.plot.dominance(found)
    """
    if not isinstance(d, Dominance):
        raise InputError(f"`d` is {a_type(d)}. Pass what uqeval.dominance returns.")
    keep = data.thin(d.max_risk, data.MOST)
    names = [d.a, d.b] if d.a != d.b else [d.a]
    palette = colors_of(like, names)
    x = alt.X("max_risk:Q", axis=PERCENT, title="prescribed risk", scale=alt.Scale(zero=False, nice=False))
    rows = [
        row
        for name, right in ((d.a, d.right_a), (d.b, d.right_b))
        for row in theme.joined({"max_risk": d.max_risk[keep], "right": right[keep]}, score=name)
    ]
    right = alt.Y("right:Q", axis=PERCENT, title="accepted and right", scale=alt.Scale(zero=False))
    upper = alt.Chart(theme.as_data(rows))
    lines = upper.mark_line(strokeWidth=2).encode(
        x=x, y=right, color=theme.score_color(names, palette), strokeDash=theme.score_dash(names, palette)
    )
    hints = touched(upper, x, right, tips("score", _RISK_TIP, "right|.1%|accepted and right"))
    both = alt.layer(lines, hints).properties(width=WIDTH, height=170)
    columns = {key: getattr(d, key)[keep] for key in ("max_risk", "difference", "low", "high")}
    base = alt.Chart(theme.as_data(theme.joined(columns)))
    tooltip = tips(_RISK_TIP, "difference|.2%", "low|.2%", "high|.2%")
    ends = [max(-1.0, float(d.low.min())), min(1.0, float(d.high.max()))]  # the band may leave what is possible
    scale = alt.Scale(domain=ends if ends[0] < ends[1] else [-1, 1])
    gap = alt.Y("difference:Q", axis=PERCENT, title="difference (share of all inputs)", scale=scale)
    band = base.mark_area(opacity=0.18, color=theme.INK, clip=True).encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    line = base.mark_line(color=theme.INK, strokeWidth=2, point={"size": 18, "color": theme.INK}).encode(x=x, y=gap)
    hint = touched(base, x, gap, tooltip)
    zero = alt.Chart(theme.as_data([{"to": 0.0}])).mark_rule(color=theme.GREY, strokeDash=[4, 4]).encode(y="to:Q")
    words = (
        alt.Chart(theme.as_data([{"text": f"above 0: {d.a} accepts more; below 0: {d.b} accepts more"}]))
        .mark_text(align="left", color=theme.GREY, fontSize=11, limit=WIDTH)
        .encode(text="text:N", x=alt.value(0), y=alt.value(-9))
    )
    below = alt.layer(zero, band, line, hint, words).properties(width=WIDTH, height=200)
    shown = {"a": "the first score accepts more", "b": "the second score accepts more"}
    verdict = shown.get(d.verdict, "neither accepts more at all risks")
    sure = f"band: {100 * d.level:.6g}% for all risks at once, {d.resamples:,} resamples; {verdict}"
    return theme.finish(
        alt.vconcat(both, below, spacing=24), f"Right predictions accepted at the same risk: {d.n:,} rows", [sure]
    )


def _written(risk: float, what: str) -> str:
    """A mean loss is no share."""
    return f"{risk:.4g}" if what == "loss" else f"{100 * risk:.3g}%"


def label_noise(found: LabelNoise, *, like: Evaluation | None = None) -> theme.Figure:
    """UQ-AUC as it would be without labels that are wrong at random, at each rate.

    Parameters
    ----------
    found : LabelNoise
        From `uqeval.label_noise`.
    like : Evaluation, optional
        Whose colours to use, for scores with names of your own.

    Returns
    -------
    Altair chart
        ``.save("noise.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> found = uq.label_noise(["entropy", "margin"], predictions=uq.datasets.example())
    >>> chart = uq.plot.label_noise(found)
    """
    if not isinstance(found, LabelNoise):
        raise InputError(f"`found` is {a_type(found)}. Pass what uqeval.label_noise returns.")
    names = list(found.scores)
    palette = colors_of(like, names)
    base = alt.Chart(theme.as_data(found.frame_rows()))
    x = alt.X("rate:Q", axis=PERCENT, title="labels that are wrong, at one rate for all inputs")
    y = alt.Y("value:Q", title="UQ-AUC without them", scale=alt.Scale(zero=False))
    color = theme.score_color(names, palette)
    band = base.mark_area(opacity=0.12).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=theme.score_dash(names, palette))
    hint = touched(base, x, y, tips("score", "rate|.2%|wrong labels", "error_rate|.2%", "value|.4~f|UQ-AUC"))
    chart = alt.layer(band, line, hint).properties(width=WIDTH, height=HEIGHT)
    note = f"bands: {100 * found.level:.6g}% intervals; the order of the scores is the same at every rate"
    return theme.finish(chart, f"What wrong labels hide: {found.n:,} rows", [note])


def _prescribed(what: str) -> str:
    kinds = {"error": "share of the accepted that are wrong", "loss": "mean loss of the accepted"}
    return f"prescribed risk ({kinds.get(what, 'share of the accepted unlike the majority label')})"
