"""What the figures of `reproduce` share: colours, headings, and how a figure becomes SVG, PNG and part of a page."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import vl_convert

from uqeval._files import write_whole
from uqeval.pages.builder import inline
from uqeval.plot import theme
from uqeval.reproduce.names import TITLES, Row
from uqeval.reproduce.page import Makers

BLUE, RED, GREEN, PURPLE, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
FAMILIES = {"softmax": ORANGE, "ensemble": GREEN, "dropout": PURPLE}  # the paper's own colours
# Arial and its twins have no ϕ, and a missing letter would change the font of a whole line.
_LONGEST = 100  # letters of a label
_FONT = "DejaVu Sans, Arial, Liberation Sans, sans-serif"


class Picture(NamedTuple):
    """A figure, drawn, as a page shows it: its title is text, its drawing has none."""

    name: str
    title: str
    notes: list[str]
    svg: str


def save(makers: Makers, out: str | Path, tell: Callable[[int, int], object]) -> list[Picture]:
    """Each as `figures/NAME.svg` and `.png` under `out`; and what a page needs of them."""
    folder = Path(out) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    found = []
    for name, make in makers.items():
        spec = make().to_dict()
        svg = vl_convert.vegalite_to_svg(spec, vl_version=version)
        write_whole(folder / f"{name}.svg", svg)
        write_whole(folder / f"{name}.png", vl_convert.svg_to_png(svg, scale=2.0))
        title = spec.pop("title")
        bare = vl_convert.vegalite_to_svg(spec, vl_version=version)
        found.append(Picture(name, title["text"], list(title.get("subtitle", [])), inline(name, bare)))
        tell(len(found), len(makers))
    return found


def chart(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of these rows, without a mark."""
    return alt.Chart(theme.as_data(rows))


def in_percent(rows: Iterable[Row], truth: str, *keys: str) -> list[Row]:
    """Known correlations with this truth in percent, with what else a chart shows of each.

    One that is exactly ±1 has no interval and is drawn as one of no length.
    """
    return [
        {"metric": TITLES[row["metric"]]}
        | {key: row[key] for key in keys}
        | {key: 100 * (row[key] if known(row[key]) else row["r"]) for key in ("r", "low", "high") if key in row}
        for row in rows
        if row["truth"] == truth and known(row["r"])
    ]


def finish(chart: Any, title: str, subtitle: list[str]) -> theme.Figure:
    """Title, looks and offline saving, in a font that has all letters."""
    figure = theme.finish(chart, title, subtitle)
    config: Any = figure.config  # type: ignore[attr-defined]
    config["font"] = _FONT
    for part in ("axis", "legend"):
        config[part] = {**config[part], "labelLimit": 0}  # cut short, names of models cannot be told apart
    return figure


def label(name: str) -> str:
    """A name; an endless one loses its middle, since names differ at their ends."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}"


def stack(lines: Iterable[Sequence[Any]], across: int = 30, down: int = 24) -> Any:
    """Lines of panels, one below the other."""
    return alt.vconcat(*(alt.hconcat(*panels, spacing=across) for panels in lines), spacing=down)


def panel(*layers: Any, size: tuple[int, int], words: str = "", more: str = "") -> Any:
    """Layers in one frame of this width and height, with a heading."""
    own = {"title": heading(words, more)} if words else {}
    return alt.layer(*layers).properties(width=size[0], height=size[1], **own)


def heading(text: str, more: str = "") -> alt.TitleParams:
    """Of one panel."""
    below = more or alt.Undefined
    return alt.TitleParams(text=text, subtitle=below, fontSize=12, subtitleFontSize=10.5, offset=6, frame="group")


def rule(axis: str, at: float, scale: alt.Scale) -> alt.Chart:
    """A grey line where x or y has this value."""
    line = chart([{"at": at}]).mark_rule(color=theme.GREY, strokeWidth=1, opacity=0.6)
    return line.encode(x=alt.X("at:Q", scale=scale)) if axis == "x" else line.encode(y=alt.Y("at:Q", scale=scale))


def by_name(channel: Any, field: str, looks: Mapping[str, Any], legend: Any = None) -> Any:
    """A channel that gives each name of a field its look."""
    scale = alt.Scale(domain=list(looks), range=list(looks.values()))
    return channel(f"{field}:N", scale=scale, legend=legend)


def airy(values: Iterable[float], share: float = 0.06) -> alt.Scale:
    """From the lowest to the highest value, with some air at both ends."""
    all_of = list(values) or [0.0, 1.0]
    air = share * (max(all_of) - min(all_of) or 1.0)
    return alt.Scale(domain=[min(all_of) - air, max(all_of) + air], nice=False)


def known(*values: float | None) -> bool:
    """Whether all are numbers that can be drawn."""
    return all(value is not None and math.isfinite(value) for value in values)
