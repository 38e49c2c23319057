"""The forest plot: what differs from what, by how much, and who cannot be told apart."""

from typing import Any

import altair as alt

from uqeval._errors import InputError, a_type
from uqeval._result import number, p_text
from uqeval.evaluation.comparison import Comparison, Pair
from uqeval.evaluation.result import Evaluation
from uqeval.metrics.registry import REGISTRY
from uqeval.plot import theme
from uqeval.plot.names import shortened
from uqeval.plot.parts import colors_of, small_multiples, tips

_MOST_PAIRS = 100
_MOST_ROWS = 150  # with those of groups
_WIDTH = 330
_CLEAR, _OPEN = "#1A1A1A", "#9E9E9E"
_WORDS = ("interval excludes 0", "interval holds 0")
_WHOLE = "all rows"
_NAME = 21  # characters of each name of a pair


def forest(cmp: Comparison, *, like: Evaluation | None = None) -> theme.Figure:
    """Differences with their intervals, and below them the values and the candidates that cannot be told apart.

    Parameters
    ----------
    cmp : Comparison
        From `uqeval.compare`.
    like : Evaluation, optional
        Whose colours to use, for candidates with names of your own.

    Returns
    -------
    Altair chart
        ``.save("forest.png")``, also .svg, .pdf and .html.

    Examples
    --------
    >>> import uqeval as uq
    >>> cmp = uq.compare(uq.datasets.example(), scores=["entropy", "mutual_information", "vote_entropy"])
    >>> chart = uq.plot.forest(cmp)
    """
    if not isinstance(cmp, Comparison):
        raise InputError(f"`cmp` is {a_type(cmp)}. Pass what uqeval.compare returns.")
    if not cmp.rows:
        raise InputError("`cmp` has no differences: its candidates rank all rows alike. There is nothing to draw.")
    palette = colors_of(like, list(cmp.values))
    rows, left = forest_rows(cmp)
    known = REGISTRY[cmp.metric]
    parts = [_differences(rows, known.title), _values(cmp, palette, known.title)]
    together = cmp.adjust != "none" and sum(pair.group is None for pair in cmp.rows) > 1
    notes = [
        f"{100 * cmp.level:.6g}% intervals"
        + (f" that hold together ({cmp.adjust})" if together else "")
        + (", group by group" if len({pair.group for pair in cmp.rows}) > 1 else ""),
        f"{left:,} more differences are in cmp.to_frame()" if left else None,
        *cmp.copies_notes(),
    ]
    chart = alt.vconcat(*parts, spacing=30).resolve_scale(color="independent", y="independent", x="independent")
    better = f"{known.title} ({known.direction} is better)"
    return theme.finish(chart, f"Differences in {better}: {cmp.n:,} rows", notes)


def forest_rows(cmp: Comparison) -> tuple[list[dict[str, Any]], int]:
    """A row per difference, those of all rows first, then group by group; and how many were left out."""
    whole = [pair for pair in cmp.rows if pair.group is None]
    kept = whole
    if len(whole) > _MOST_PAIRS:  # the clearest, in their order
        clearest = set(sorted(range(len(whole)), key=lambda k: (whole[k].p != whole[k].p, whole[k].p))[:_MOST_PAIRS])
        kept = [pair for k, pair in enumerate(whole) if k in clearest]
    groups = list(dict.fromkeys(pair.group for pair in cmp.rows if pair.group is not None))
    fits = max(0, (_MOST_ROWS - len(kept)) // max(1, len(kept)))
    pairs = kept + [pair for pair in cmp.rows if pair.group in groups[:fits] and pair.group is not None]
    names = shortened(cmp.values, _NAME)
    return [_row(pair, groups, names) for pair in pairs], len(cmp.rows) - len(pairs)


def _row(pair: Pair, groups: list[str], names: dict[str, str]) -> dict[str, Any]:
    panel, place = (_WHOLE, 0) if pair.group is None else (f"group {pair.group}", 1 + groups.index(pair.group))
    row = {"label": f"{names[pair.a]} − {names[pair.b]}", "place": place, "panel": panel}
    row |= {"a": pair.a, "b": pair.b}
    row |= {"difference": pair.difference, "low": pair.low, "high": pair.high}
    row["shown"] = _WORDS[0] if pair.low > 0 or pair.high < 0 else _WORDS[1]
    row["text"] = f"{number(pair.difference)} ({number(pair.low)} to {number(pair.high)})".replace("-", "−")
    return row | {"p": p_text(pair.p), "p_adjusted": p_text(pair.p_adjusted)}


def _differences(rows: list[dict[str, Any]], title: str) -> Any:
    color = alt.Color(
        "shown:N",
        scale=alt.Scale(domain=list(_WORDS), range=[_CLEAR, _OPEN]),
        legend=alt.Legend(title=None, orient="top", direction="horizontal"),
    )
    numbers = "difference|.4~f", "low|.4~f", "high|.4~f"
    tooltip = tips("a||of", "b||minus", *numbers, "p", "p_adjusted||adjusted p")
    y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=320))
    x = alt.X("difference:Q", title=f"difference in {title} (first − second)", scale=alt.Scale(zero=True))
    base = alt.Chart()
    zero = base.mark_rule(color=theme.GREY, strokeDash=[4, 4]).encode(x=alt.datum(0))
    whisker = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=color, tooltip=tooltip)
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=color, tooltip=tooltip)
    words = _beside(base, y)
    chart = alt.layer(zero, whisker, point, words, data=theme.as_data(rows)).properties(
        width=_WIDTH, height=alt.Step(20)
    )
    if len({row["panel"] for row in rows}) == 1:
        return chart
    return small_multiples(chart, "panel", columns=1)


def _beside(base: alt.Chart, y: alt.Y) -> alt.Chart:
    """The numbers as text, right of the panel."""
    mark = base.mark_text(align="left", fontSize=11, color=theme.INK)
    return mark.encode(x=alt.value(_WIDTH + 12), y=y, text="text:N")


def run_rows(cmp: Comparison) -> list[dict[str, Any]]:
    """A row per candidate and run of candidates that cannot be told apart."""
    return [
        {"candidate": name, "run": k} for k, run in enumerate(cmp.groups(), 1) for name in run if name in cmp.distinct
    ]


def _values(cmp: Comparison, palette: dict[str, str], title: str) -> Any:
    order = [name for name in cmp.ranking() if name in cmp.distinct]
    rows = theme.as_data(
        [{"candidate": name, "value": cmp.values[name], "text": number(cmp.values[name])} for name in order]
    )
    runs = cmp.groups()
    y = alt.Y("candidate:N", scale=alt.Scale(domain=order), sort=None, title=None, axis=alt.Axis(labelLimit=320))
    color = alt.Color(
        "candidate:N", scale=alt.Scale(domain=order, range=[palette[name] for name in order]), legend=None
    )
    tooltip = tips("candidate", f"value|.4~f|{title}")
    base = alt.Chart(rows)
    point = base.mark_point(filled=True, size=75, opacity=1).encode(
        x=alt.X("value:Q", title=title, scale=alt.Scale(zero=False)), y=y, color=color, tooltip=tooltip
    )
    words = _beside(base, y)
    left = alt.layer(point, words).properties(width=_WIDTH, height=alt.Step(20))
    together = alt.Chart(theme.as_data(run_rows(cmp)))
    across = alt.X("run:O", title=None, axis=None)
    bare = alt.Y("candidate:N", scale=alt.Scale(domain=order), sort=None, title=None, axis=None)
    line = together.mark_line(strokeWidth=3, color=theme.GREY).encode(x=across, y=bare, detail="run:O")
    dot = together.mark_point(filled=True, size=55, color=theme.GREY, opacity=1).encode(x=across, y=bare)
    right = alt.layer(line, dot).properties(
        width=alt.Step(18),
        height=alt.Step(20),
        title=alt.TitleParams(text="joined: not shown to differ", fontSize=11, fontWeight="normal", anchor="start"),
    )
    return alt.hconcat(left, right, spacing=60) if runs else left
