"""What the figures of `reproduce` share: colours, headings, and how a figure becomes SVG, PNG and part of a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt

from uqeval.plot import theme

__all__ = ["BLUE", "FAMILIES", "RED", "Picture", "finish", "heading", "rule", "save"]

FAMILIES = {"softmax": "#E69F00", "ensemble": "#009E73", "dropout": "#CC79A7"}  # the paper's own colours
BLUE, RED = "#0072B2", "#D55E00"
# Arial and its twins have no ϕ, and a missing letter would change the font of a whole line.
_FONT = "DejaVu Sans, Arial, Liberation Sans, sans-serif"


class Picture(NamedTuple):
    """A figure, drawn."""

    title: str
    notes: list[str]
    svg: str
    bare: str  # without its title, for a page that shows it as text


def save(figures: Mapping[str, theme.Figure], out: str | Path) -> dict[str, Picture]:
    """Each as `figures/NAME.svg` and `.png` under `out`; and what a page needs of them."""
    import vl_convert

    folder = Path(out) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    found = {}
    for name, figure in figures.items():
        spec = figure.to_dict()
        svg = vl_convert.vegalite_to_svg(spec, vl_version=version)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=2.0))
        title = spec.pop("title")
        bare = vl_convert.vegalite_to_svg(spec, vl_version=version)
        found[name] = Picture(title["text"], list(title.get("subtitle", [])), svg, bare)
    return found


def finish(chart: Any, title: str, subtitle: list[str]) -> theme.Figure:
    """Title, looks and offline saving, in a font that has all letters."""
    figure = theme.finish(chart, title, subtitle)
    figure.config["font"] = _FONT  # type: ignore[attr-defined]
    return figure


def heading(text: str, more: str = "") -> alt.TitleParams:
    """Of one panel."""
    below = more or alt.Undefined
    return alt.TitleParams(text=text, subtitle=below, fontSize=12, subtitleFontSize=10.5, offset=6, frame="group")


def rule(axis: str, at: float, scale: alt.Scale) -> alt.Chart:
    """A grey line where x or y has this value."""
    line = alt.Chart(theme.as_data([{"at": at}])).mark_rule(color=theme.GREY, strokeWidth=1, opacity=0.6)
    return line.encode(x=alt.X("at:Q", scale=scale)) if axis == "x" else line.encode(y=alt.Y("at:Q", scale=scale))
