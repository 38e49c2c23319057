"""The figure of the theorems: how often the score of Theorem 2.5 is not the best beyond two classes."""

from typing import Any

import altair as alt

from uqeval.plot import theme
from uqeval.reproduce import panels as draw

_KINDS = {"unrelated": "predictions unrelated to the truth", "noisy": "predictions near the truth"}


def not_optimal(numbers: dict[str, Any], best_of_two: int, populations: int) -> theme.Figure:
    """Share of random populations in which another ranking than that of the misalignment has the highest UQ-C-index."""
    rows = []
    for name, share in numbers["not_optimal"].items():
        kind, _, classes = name.partition("_")
        rows.append({"kind": _KINDS[kind], "classes": int(classes), "share": share, "text": f"{share:.1%}"})
    looks = dict(zip(_KINDS.values(), (draw.RED, draw.BLUE), strict=True))
    base = draw.chart(rows).encode(
        x=alt.X("classes:O", title="classes", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("kind:N", sort=list(looks)),
        y=alt.Y("share:Q", title="populations where it is not best", axis=alt.Axis(format="~%")),
        color=draw.by_name(alt.Color, "kind", looks, alt.Legend(title=None)),
    )
    text = base.mark_text(dy=-7, fontSize=10.5).encode(text="text:N")
    chart = draw.stack([[draw.panel(base.mark_bar(opacity=0.85), text, size=(380, 220))]])
    words = f"{populations} random populations of four inputs each; two classes: in {populations - best_of_two}"
    return draw.finish(chart, "How often the misalignment is not the best score by UQ-C-index", [words])
