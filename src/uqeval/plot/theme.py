"""How every chart looks and is saved: colours by score, sizes, HTML that needs no network and runs no user string.

What is drawn comes from `data`; which marks show it, from `curves` and `panels`.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import IO, Any

import altair as alt
import numpy as np
from altair.utils.schemapi import debug_mode
from numpy.typing import NDArray

from uqeval import scores as score_functions
from uqeval._signs import drawable
from uqeval.plot.names import with_short_names

# Okabe & Ito (2008) without yellow, which does not show on white; then Tol's "muted", the least alike first.
_FIRST = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MORE = ("#332288", "#882255", "#999933", "#117733", "#CC6677", "#AA4499", "#44AA99", "#88CCEE", "#DDCC77", "#EE3377")
PALETTE = _FIRST + _MORE
INK, GREY = "#333333", "#767676"
RIGHT, WRONG = "#9AA7B4", "#B2182B"  # of no score, and unlike in lightness

SCHEMA: str = alt.SCHEMA_URL  # of all charts
_CONFIG = json.loads((files("uqeval.plot") / "looks.json").read_text(encoding="utf-8"))  # of Vega-Lite


# ---- colours ---------------------------------------------------------------------------------------------------


def colors(names: Iterable[str]) -> dict[str, str]:
    """A colour for each score: built-in ones always have the same, others take what is left in their order.

    Examples
    --------
    >>> colors(["mine", "entropy"])
    {'mine': '#D55E00', 'entropy': '#0072B2'}
    """
    known = list(score_functions.available())
    asked = list(dict.fromkeys(names))
    fixed = {name: PALETTE[known.index(name) % len(PALETTE)] for name in asked if name in known}
    left = [color for color in PALETTE if color not in fixed.values()] or list(PALETTE)
    own = (name for name in asked if name not in fixed)
    return {**dict.fromkeys(asked, ""), **fixed, **{name: left[k % len(left)] for k, name in enumerate(own)}}


def score_color(names: Sequence[str], palette: Mapping[str, str], legend: bool = True) -> alt.Color:
    """The colour channel of the field `score`; names are data of the scale, best first."""
    scale = alt.Scale(domain=list(names), range=[palette[name] for name in names])
    return alt.Color("score:N", scale=scale, legend=_legend() if legend else None)


def score_dash(names: Sequence[str], palette: Mapping[str, str], legend: bool = True) -> alt.StrokeDash:
    """Dashes for the second half of the palette: its colours alone are too close to those of the first."""
    dashes = [[1, 0] if palette[name] in _FIRST else [7, 2] for name in names]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash("score:N", scale=scale, legend=_legend() if legend else None)


def _legend() -> alt.Legend:
    return alt.Legend(title="score", symbolType="stroke", symbolOpacity=1)


# ---- data of a chart -------------------------------------------------------------------------------------------


def as_data(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows for a chart: six digits of each number; what is not finite becomes null."""
    # A dict and no alt.InlineData, which would check every row against the schema; a tuple and no list, which Altair
    # would copy row by row wherever a chart becomes part of another.
    return {"values": tuple({key: _short(value) for key, value in row.items()} for row in rows)}


def joined(columns: Mapping[str, NDArray[Any]], **same: Any) -> list[dict[str, Any]]:
    """Columns of equal length → rows, each with the values of `same` before its own."""
    lists = [column.tolist() for column in columns.values()]
    return [{**same, **dict(zip(columns, row, strict=True))} for row in zip(*lists, strict=True)]


def _short(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


# ---- the finished chart ----------------------------------------------------------------------------------------


class _Escaped(json.JSONEncoder):
    """JSON that can stand inside a <script>: no string can end it."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


_EMBED = {"actions": {"export": True, "source": False, "compiled": False, "editor": False}}
_OFFLINE: dict[str, Any] = {"inline": True, "json_kwds": {"cls": _Escaped}, "embed_options": _EMBED}


class Figure(alt.TopLevelMixin):
    """An Altair chart whose HTML needs no network; PNG, SVG and PDF need no browser."""

    def save(self, fp: str | Path | IO[Any], format: Any = None, *args: Any, **options: Any) -> None:
        """Write to a file: .png, .svg, .pdf, .html or .json by its name, or `format`; options as in Altair.

        HTML holds all that it needs (``inline=False`` loads the chart library from a CDN); PNG has twice the size.
        """
        kind: Any = format or (Path(fp).suffix.lstrip(".").lower() if isinstance(fp, str | os.PathLike) else None)
        if kind == "html":
            options = _OFFLINE | options
        elif kind == "png":
            options = {"scale_factor": 2.0, **options}
        super().save(fp, kind, *args, **options)

    def to_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """The specification; options as in Altair."""
        spec: dict[str, Any] = super().to_dict(*args, **options)
        if "datasets" in spec:
            spec["datasets"] = {name: list(rows) for name, rows in spec["datasets"].items()}  # of `as_data`
        found: dict[str, Any] = drawable(with_short_names(spec))  # or the drawing ends this process
        return found

    def to_html(self, *args: Any, **options: Any) -> str:
        """The HTML that `save` writes; options as in Altair."""
        return super().to_html(*args, **_OFFLINE | options)

    def _repr_mimebundle_(self, *args: Any, **kwds: Any) -> Any:
        """A notebook shows SVG, which needs no network; what `altair.renderers.enable` was told goes before."""
        if alt.renderers.active == "default":  # Altair's own, which loads a library from a CDN
            text = StringIO()
            self.save(text, "svg")
            said = str(self.to_dict(validate=False).get("description", "chart"))
            label = f'<svg role="img" aria-label="{escape(said)}" '
            return {"image/svg+xml": text.getvalue().replace("<svg ", label, 1), "text/plain": said}
        bundle = super()._repr_mimebundle_(*args, **kwds)
        if isinstance(bundle, dict) and isinstance(html := bundle.get("text/html"), str):
            spec = self.to_dict(context={"pre_transform": False})
            bundle = {**bundle, "text/html": html.replace(json.dumps(spec), json.dumps(spec, cls=_Escaped))}
        return bundle


def drawn(draw: Callable[[], alt.TopLevelMixin]) -> dict[str, Any]:
    """The specification of a chart; its parts are not checked against the schema, which takes as long as drawing it."""
    with debug_mode(False):
        spec: dict[str, Any] = draw().to_dict(validate=False)
    return spec


_KINDS = {kind: type(kind.__name__, (Figure, kind), {}) for kind in (alt.LayerChart, alt.FacetChart, alt.VConcatChart)}


def finish(
    chart: alt.LayerChart | alt.FacetChart | alt.VConcatChart, title: str, subtitle: Sequence[str | None] = ()
) -> Figure:
    """Title, looks and offline saving."""
    lines = [line for line in subtitle if line]
    text = alt.TitleParams(text=title, subtitle=lines) if lines else alt.TitleParams(text=title)
    done = chart.properties(title=text, description=title).configure(**_CONFIG)
    object.__setattr__(done, "__class__", _KINDS[type(done)])  # Altair's own __setattr__ would make it a property
    assert isinstance(done, Figure)
    return done
