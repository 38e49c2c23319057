"""Charts of counts and estimates: how scores, gaps and confidences are spread, and what differs from what."""

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from uqeval._check import nearest
from uqeval._errors import InputError
from uqeval._result import number
from uqeval.evaluation.result import Evaluation
from uqeval.metrics.registry import REGISTRY
from uqeval.plot import data, theme
from uqeval.plot.parts import PANEL, PERCENT, WIDTH, colors_of, more, size, small_multiples, tips, wrapped

_BYTES, _CELL_BYTES = 240_000, 80  # of all cells together, and of one without its score's name
_LEAST_SIDE, _MOST_SIDE = 10, 40
_MOST_GROUPS = 30
_MODEL = "the model itself"


def score_histogram(ev: Evaluation, scores: Sequence[str] | str | None = None) -> theme.Figure:
    """How the scores of right and of wrong predictions are spread: the further apart, the better.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with 0/1 errors.
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.

    Returns
    -------
    Altair chart
        A panel per score; ``.save("scores.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> chart = uq.plot.score_histogram(uq.evaluate(uq.datasets.example(), metrics="uq_auc"), scores="entropy")
    """
    error = data.errors_of(ev, "score_histogram")
    table, names = data.rows_of(ev), data.shown(ev, scores)
    rows, infinite = [], 0
    for place, name in enumerate(names):
        found = data.histogram(table.score(name), error)
        infinite += int(np.isinf(table.score(name)).sum())
        for kind in ("right", "wrong"):
            columns = {"start": found["start"], "end": found["end"]}
            columns |= {"count": found[f"{kind}_count"], "share": found[f"{kind}_share"]}
            rows += theme.joined(columns, score=name, place=place, prediction=kind)
    width, height = PANEL if len(names) > 1 else (WIDTH, 260)
    color = alt.Color(
        "prediction:N",
        scale=alt.Scale(domain=["right", "wrong"], range=[theme.RIGHT, theme.WRONG]),
        legend=alt.Legend(title="prediction", orient="top"),
    )
    bin_tips = "start|.4~g|score from", "end|.4~g|to"
    tooltip = tips("score", "prediction", *bin_tips, "count|,|rows", "share|.1%|share of its kind")
    x = alt.X("start:Q", bin="binned", title="score (higher: less sure)", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y("share:Q", stack=None, axis=PERCENT, title="share of rows of the kind")
    bars = alt.Chart().mark_bar(opacity=0.62, binSpacing=0).encode(x=x, x2="end:Q", y=y, color=color, tooltip=tooltip)
    panel = alt.layer(bars, data=theme.as_data(rows)).properties(width=width, height=height)
    chart = small_multiples(panel, own_x=True)
    notes = [
        "each colour adds up to 100% in a panel",
        f"{infinite:,} infinite values stand in the outermost bins" if infinite else None,
        more(ev, names, scores),
    ]
    return theme.finish(chart, f"Scores of right and wrong predictions: {size(ev)}", notes)


def score_vs_gap(ev: Evaluation, scores: Sequence[str] | str | None = None) -> theme.Figure:
    """Score against gap (or the user's loss) as a density: does a higher score go with a worse prediction?

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with labels and probabilities, or with a loss.
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.

    Returns
    -------
    Altair chart
        A panel per score, at most 40 × 40 cells each whatever the number of rows.

    Examples
    --------
    >>> import uqeval as uq
    >>> chart = uq.plot.score_vs_gap(uq.evaluate(uq.datasets.example(), metrics="uq_auc"), scores="entropy")
    """
    names = data.shown(data.check_evaluation(ev), scores)
    loss, axis = data.gap_of(ev)
    table = data.rows_of(ev)
    cells = _BYTES / sum(_CELL_BYTES + len(json.dumps(name)) for name in names)
    side = int(np.clip(np.sqrt(cells), _LEAST_SIDE, _MOST_SIDE))
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        rows += theme.joined(data.density(table.score(name), loss, side), score=name, place=place)
    width, height = PANEL if len(names) > 1 else (WIDTH, 330)
    most = max(row["count"] for row in rows)
    color = alt.Color(
        "count:Q",
        scale=alt.Scale(type="log", scheme="viridis", domain=[1, max(2, most)]),
        legend=alt.Legend(title="rows (log)", format=".2~s", gradientLength=160),
    )
    cell_tips = "x|.4~g|score from", "x2|.4~g|to", f"y|.4~g|{axis.split()[0]} from", "y2|.4~g|to "
    tooltip = tips("score", *cell_tips, "count|,|rows")
    x = alt.X("x:Q", title="score (higher: less sure)", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y("y:Q", title=wrapped(axis) if len(names) > 1 else axis, scale=alt.Scale(zero=False, nice=False))
    tiles = alt.Chart().mark_rect(strokeWidth=0).encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=color, tooltip=tooltip)
    panel = alt.layer(tiles, data=theme.as_data(rows)).properties(width=width, height=height)
    chart = small_multiples(panel, own_x=True)
    return theme.finish(chart, f"Score against {axis.split()[0]}: {ev.n:,} rows", [more(ev, names, scores)])


def reliability(ev: Evaluation) -> theme.Figure:
    """Reliability diagram: is a confidence of 80% right four times in five? With the rows behind each bin.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, with probabilities.

    Returns
    -------
    Altair chart
        15 bins of equal width, as for the ECE; ``.save("reliability.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> chart = uq.plot.reliability(uq.evaluate(uq.datasets.example(), scores="entropy", metrics="ece"))
    """
    table = data.rows_of(ev)
    bins = data.reliability_bins(table, ev.level)
    rows = theme.as_data(theme.joined(bins))
    start = max(0.0, float(bins["start"].min()))
    x_scale = alt.Scale(domain=[start, 1], nice=False)
    low = float(np.nanmin([*bins["accuracy"], *bins["low"], *bins["confidence"]]))
    y_scale = alt.Scale(domain=[0 if low < 0.5 else 0.5, 1], nice=False)
    bin_tips = "start|.0%|confidence above", "end|.0%|up to", "confidence|.1%|mean confidence"
    interval_tips = "low|.1%|accuracy, low", "high|.1%|accuracy, high"
    tooltip = tips(*bin_tips, "accuracy|.1%", *interval_tips, "count|,|rows")
    base = alt.Chart(rows)
    x = alt.X("confidence:Q", scale=x_scale, axis=alt.Axis(format="~%", title=None))
    y = alt.Y("accuracy:Q", scale=y_scale, axis=PERCENT, title="accuracy (share that is right)")
    ends = [{"at": max(start, y_scale.domain[0]), "to": max(start, y_scale.domain[0])}, {"at": 1.0, "to": 1.0}]
    diagonal = (
        alt.Chart(theme.as_data(ends))
        .mark_line(color=theme.GREY, strokeDash=[4, 4], strokeWidth=1.5)
        .encode(x="at:Q", y="to:Q")
    )
    colour = theme.INK
    whisker = base.mark_rule(color=colour, strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", tooltip=tooltip)
    point = base.mark_point(color=colour, filled=True, size=55, opacity=1).encode(x=x, y=y, tooltip=tooltip)
    upper = alt.layer(diagonal, whisker, point).properties(width=WIDTH, height=300)
    wide = alt.X(
        "start:Q",
        bin="binned",
        scale=x_scale,
        axis=alt.Axis(format="~%", title="confidence (probability of the predicted class)", grid=False),
    )
    count = alt.Y("count:Q", title="rows", axis=alt.Axis(format="~s", tickCount=3))
    bars = base.mark_bar(color=theme.RIGHT, binSpacing=1).encode(x=wide, x2="end:Q", y=count, tooltip=tooltip)
    tops = theme.joined({"at": (bins["start"] + bins["end"]) / 2, "count": bins["count"]})
    middle = alt.Chart(theme.as_data(tops))
    numbers = middle.mark_text(dy=-6, fontSize=10, color=theme.INK).encode(
        x=alt.X("at:Q", scale=x_scale), y="count:Q", text=alt.Text("count:Q", format=".3~s")
    )
    lower = alt.layer(bars, numbers).properties(width=WIDTH, height=80)
    chart = alt.vconcat(upper, lower, spacing=8)
    value = float((bins["share"] * np.abs(bins["gap"])).sum())
    sure = f"ECE {number(value)}; bars: {100 * ev.level:.6g}% interval of the accuracy in each bin"
    return theme.finish(
        chart,
        f"Reliability of the confidence: {size(ev)}",
        [sure, "dashed: confidence is right as often as it says; points below it are overconfident"],
    )


def by_group(ev: Evaluation, metric: str = "uq_auc", scores: Sequence[str] | str | None = None) -> theme.Figure:
    """A metric in each group with its interval, a panel per score; the line is the value of all rows.

    Parameters
    ----------
    ev : Evaluation
        From `uqeval.evaluate`, of predictions with groups.
    metric : str
        One of ``ev.metrics``.
    scores : list of str, optional
        Which scores; the best six by UQ-AUC by default.

    Returns
    -------
    Altair chart
        ``.save("groups.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> chart = uq.plot.by_group(uq.evaluate(uq.datasets.example(), scores="entropy", metrics="uq_auc"))
    """
    if not data.check_evaluation(ev).groups:
        raise InputError("`ev` has no groups. Evaluate predictions with groups=, or files with --by.")
    if metric not in ev.metrics:
        raise InputError(
            f'`metric`: there is no "{metric}" here.{nearest(metric, ev.metrics)} Metrics: {", ".join(ev.metrics)}.'
        )
    known = REGISTRY[metric]
    names: list[Any] = data.shown(ev, scores) if known.uses_score else [None]
    rows, left = data.group_rows(ev, metric, names, _MOST_GROUPS, _MODEL)
    labels = [_MODEL if name is None else name for name in names]
    palette = colors_of(ev) | {_MODEL: theme.INK} if names == [None] else colors_of(ev)
    color = theme.score_color(labels, palette, legend=False)
    tooltip = tips("score", "group", "n|,|rows", "value|.3f", "low|.3f", "high|.3f")
    y = alt.Y("group:N", sort=None, title=None, axis=alt.Axis(labelLimit=220))
    x = alt.X("value:Q", title=f"{known.title} ({known.direction} is better)", scale=alt.Scale(zero=False))
    base = alt.Chart()
    line = base.mark_rule(color=theme.GREY, strokeDash=[4, 4]).encode(x=alt.X("mean(whole):Q"))
    whisker = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=color, tooltip=tooltip)
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=color, tooltip=tooltip)
    panel = alt.layer(line, whisker, point, data=theme.as_data(rows)).properties(width=220, height=alt.Step(20))
    chart = small_multiples(panel)
    notes = [
        f"bars: {100 * ev.level:.6g}% interval of each group; dashed: all rows",
        f"{left:,} smaller groups are left out" if left else None,
        more(ev, names, scores) if known.uses_score else None,
    ]
    return theme.finish(chart, f"Group by group, {known.title}: {size(ev)}", notes)
