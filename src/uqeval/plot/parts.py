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
NUMBER = alt.Axis(format="~g")  # of a mean loss, which is no share
MOST_BANDS = 3  # that can be told apart at once
LEAST_COVERAGE = 0.01  # of a band


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
    """Bands under lines, a colour per score; a click on the legend leaves one score in full colour.

    Bands of more than `MOST_BANDS` scores would be one grey cloud: each shows once it is pointed at, or picked.
    """
    palette = colors_of(ev)
    color = theme.score_color(names, palette, legend)
    dash = theme.score_dash(names, palette, legend)
    base = alt.Chart(theme.as_data(rows)) if legend else alt.Chart()
    band = base.mark_area(clip=True).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=color)
    if "coverage" in rows[0]:  # of the first few rows anything may be true, and the band would be a wall
        band = band.transform_filter(f"datum.coverage >= {LEAST_COVERAGE}")
    line = base.mark_line(clip=True, strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash)
    faint = 0.18 if len(names) < 3 or not legend else 0.08
    if legend and len(names) > 1:
        pick = alt.selection_point(name="pick", fields=["score"], bind="legend")
        line = line.encode(opacity=alt.when(pick).then(alt.value(1.0)).otherwise(alt.value(0.12))).add_params(pick)
        shown = alt.when(pick).then(alt.value(faint))
        if len(names) > MOST_BANDS:
            hover = alt.selection_point(name="hover", fields=["score"], on="pointerover", clear="pointerout")
            line = line.add_params(hover)
            shown = alt.when(hover, empty=False).then(alt.value(0.25)).when(pick, empty=False).then(alt.value(0.25))
        band = band.encode(opacity=shown.otherwise(alt.value(0.0 if len(names) <= MOST_BANDS else 0.01)))
    else:
        band = band.encode(opacity=alt.value(faint))
    bands = [] if all(math.isnan(row["low"]) for row in rows) else [band]
    return [*bands, line, touched(base, x, y, tooltip)]


def band_words(note: str, names: list[str]) -> str:
    """What the bands are, and how to see them where they are faint."""
    hidden = len(names) > MOST_BANDS and note.startswith("band")
    return f"{note}, seen where you point at a curve or click its name" if hidden else note


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
    """Which scores these are, where some are left out by default, and for which others they stand."""
    if asked is not None:
        return None
    which = "best by UQ-AUC" if "uq_auc" in ev.metrics else "first"
    some = [f"the {len(names)} {which} of {len(ev.distinct)} scores"] if len(names) < len(ev.distinct) else []
    alike = [group for group in ev.same_ranking or () if group[0] in names]
    return "; ".join([*some, *(f"{own} stands for {', '.join(rest)} too" for own, *rest in alike)]) or None
