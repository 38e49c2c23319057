"""What several charts share: the axes, panels, colours and words of an evaluation."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from uqeval.evaluation.result import Evaluation
from uqeval.plot import data, theme

WIDTH, HEIGHT = 440, 330
PANEL = (215, 160)  # of small multiples
PERCENT = alt.Axis(format="~%")


def tips(*shown: str) -> list[alt.Tooltip]:
    """What the pointer finds: "field", "field|format" or "field|format|title"; without a format it is text."""
    entries = ((*entry.split("|"), "", "")[:3] for entry in shown)
    return [
        alt.Tooltip(f"{name}:{'Q' if form else 'N'}", format=form or alt.Undefined, title=title or alt.Undefined)
        for name, form, title in entries
    ]


def small_multiples(panel: Any, by: str = "score", columns: int = 3, own_x: bool = False) -> alt.FacetChart:
    """A panel per value of the field, in the order of `place`; a sort by names would put them into an expression.

    With `own_x` every panel has its own axis.
    """
    facet = alt.Facet(f"{by}:N", title=None, sort=alt.EncodingSortField(field="place", op="min"))
    chart: alt.FacetChart = panel.facet(facet, columns=columns)
    chart = chart.properties(spacing={"row": 18, "column": 32})
    return chart.resolve_scale(x="independent").resolve_axis(x="independent") if own_x else chart


def wrapped(title: str) -> list[str]:
    """A title of an axis that is no longer than the side of a small panel."""
    return textwrap.wrap(title, 27)


def bands_and_lines(
    ev: Evaluation,
    names: list[str],
    rows: list[dict[str, Any]],
    x: alt.X,
    y: alt.Y,
    tooltip: list[alt.Tooltip],
    legend: bool = True,
) -> list[Any]:
    """Bands under lines, a colour per score; a click on the legend leaves one score in full colour."""
    palette = colors_of(ev)
    color = theme.score_color(names, palette, legend)
    dash = theme.score_dash(names, palette, legend)
    base = alt.Chart(theme.as_data(rows)) if legend else alt.Chart()
    band = base.mark_area(clip=True).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    line = base.mark_line(clip=True, strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash)
    faint = 0.18 if len(names) < 3 or not legend else 0.08
    if legend and len(names) > 1:
        pick = alt.selection_point(name="pick", fields=["score"], bind="legend")
        band = band.encode(opacity=alt.when(pick).then(alt.value(faint)).otherwise(alt.value(0.0)))
        line = line.encode(opacity=alt.when(pick).then(alt.value(1.0)).otherwise(alt.value(0.12))).add_params(pick)
    else:
        band = band.encode(opacity=alt.value(faint))
    bands = [] if all(math.isnan(row["low"]) for row in rows) else [band]
    return [*bands, line, touched(base, x, y, tooltip)]


def touched(base: alt.Chart, x: alt.X, y: alt.Y, tooltip: list[alt.Tooltip]) -> alt.Chart:
    """Invisible points that carry the tooltip: a line has one only, that of its first point."""
    return base.mark_circle(opacity=0, size=90, clip=True).encode(x=x, y=y, tooltip=tooltip)


def colors_of(ev: Any, names: Sequence[str] = ()) -> dict[str, str]:
    """Colours of an evaluation's scores (those that it brought along first), and of more names; None has none."""
    if ev is None:
        return theme.colors(names)
    ev = data.check_evaluation(ev)
    own = () if ev.source is None else ev.source.pred.scores
    return theme.colors([*own, *ev.scores, *names])


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def size(ev: Evaluation) -> str:
    return f"{ev.n:,} rows" + ("" if ev.n_errors is None else f", {counted(ev.n_errors, 'error')}")


def more(ev: Evaluation, names: list[str], asked: Any) -> str | None:
    """Which scores these are, where some are left out by default."""
    if asked is not None or len(names) == len(ev.scores):
        return None
    which = "best by UQ-AUC" if "uq_auc" in ev.metrics else "first"
    return f"the {len(names)} {which} of {len(ev.scores)} scores"
