"""A payload → one HTML file that needs no network: markup, style, scripts and data, every user string escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from uqeval._result import strict
from uqeval.decide.threshold import shown as printed
from uqeval.report.words import count, percent

__all__ = ["render"]

_BIBTEX = """@inproceedings{{pignet2025legitimate,
  title     = {{Legitimate ground-truth-free metrics for deep uncertainty classification scoring}},
  author    = {{Pignet, Arthur and Regniez, Chiara and Klein, John}},
  booktitle = {{International Conference on Artificial Intelligence and Statistics (AISTATS)}},
  year      = {{2025}},
}}
@software{{uqeval,
  title   = {{uqeval: can you trust your classifier's uncertainty?}},
  version = {{{version}}},
}}"""
_START = 0.8  # where slider A begins if nothing is certified


def render(payload: dict[str, Any]) -> str:
    """The whole page."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    figures = [*payload["charts"], *((payload["comparison"] or {}).get("charts", []))]
    scripts = [_library(_version(figures))] if figures else []
    scripts.append(_text("report.js"))
    data = {"charts": {figure["id"]: figure["spec"] for figure in figures}}
    if payload["explorer"] is not None and payload["explorer"]["scores"]:
        data["explorer"] = _explorer(payload["explorer"])
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_text)
    )
    html = environment.get_template("report.html.j2").render(
        page=payload,
        contents=_contents(payload),
        level=f"{100 * payload['explorer']['level']:.6g}%" if payload["explorer"] else "",
        policy=_policy(scripts),
        style=_text("report.css"),
        scripts=scripts,
        data=_json(data),
        bibtex=_BIBTEX.format(version=payload["versions"]["uqeval"]),
    )
    # A lone surrogate, which a file name can hold, has no bytes in UTF-8.
    return html.lstrip().encode("utf-8", "replace").decode("utf-8")


# ---- parts ----------------------------------------------------------------------------------------------------


@lru_cache
def _text(name: str) -> str:
    return files("uqeval.report").joinpath("templates", name).read_text(encoding="utf-8")


def _version(figures: list[dict[str, Any]]) -> str | None:
    """The version of Vega-Lite that the charts were made for, as "6.1"."""
    found = re.search(r"/v(\d+\.\d+)", figures[0]["schema"])
    return found[1] if found else None


@lru_cache
def _library(version: str | None) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    known = version is not None and any(v.startswith(version) for v in vl_convert.get_vegalite_versions())
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version if known else None)
    # Names of its own; and nothing that ends the element it stands in, or that a browser would read as another line.
    bundle = re.sub(r"<(?=/script|script|!--)", r"\\x3c", bundle.replace("\r\n", "\n").replace("\r", "\n"), flags=re.I)
    return f'(() => {{\n"use strict";\n{bundle}\n}})();'


def _policy(scripts: list[str]) -> str:
    """Only these very scripts run, and nothing is fetched, whatever else gets into the page.

    Vega compiles its expressions, hence 'unsafe-eval'; charts and their tips carry inline styles.
    """
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: Any) -> str:
    """JSON that can stand inside a script element: no string can end it."""
    text = json.dumps(strict(data), allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and such are escaped
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _contents(payload: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    if payload["kind"] == "evaluation":
        placed = {figure["place"] for figure in payload["charts"]}
        found = [("verdict", "Verdict"), ("table", "Table")]
        found += [("charts", "Charts")] if "charts" in placed else []
        found += [("explorer", "Threshold explorer")]
        found += [("mistakes", "Confident mistakes")] if payload["mistakes"] else []
        found += [("groups", "Groups")] if payload["groups"] else []
    found += [("comparison", "Comparison")] if payload["comparison"] else []
    return [*found, ("limits", "Assumptions and warnings"), ("cite", "How to cite"), ("versions", "Versions")]


# ---- the explorer's numbers, as text ---------------------------------------------------------------------------


def _explorer(explorer: dict[str, Any]) -> dict[str, Any]:
    share = percent if explorer["what"] == "error" else _plain
    return {
        "weighted": explorer["weighted"],
        "targets": [share(target) for target in explorer["targets"]],
        "risks": explorer["targets"],
        "axis": "accepted share of the weight" if explorer["weighted"] else "accepted share of inputs",
        "scores": [_explored(part, explorer, share) for part in explorer["scores"]],
    }


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _explored(part: dict[str, Any], explorer: dict[str, Any], share: Any) -> dict[str, Any]:
    found, promised = part["map"], part["certified"]
    columns = [found[key] or [None] * len(found["threshold"]) for key in _MAP]
    lines = [
        [percent(cover), printed(value, 6), count(rows), count(bad), share(risk), share(high), share(band)]
        for cover, value, rows, bad, risk, high, band in zip(*columns, strict=True)
    ]
    curve = {"coverage": found["coverage"], "risk": found["risk"], "low": found["band_low"], "high": found["band_high"]}
    chosen = None if promised is None else promised[explorer["targets"].index(explorer["max_risk"])]
    wanted = chosen["coverage"] if chosen is not None and chosen["value"] is not None else _START
    near = min(range(len(lines)), key=lambda k: abs(found["coverage"][k] - wanted))
    result = {"a": lines, "start": near, "curve": {key: _rounded(values) for key, values in curve.items()}}
    if promised is not None:
        limits = [share(target) for target in explorer["targets"]]
        result["b"] = [_promise(p, limit, share) for p, limit in zip(promised, limits, strict=True)]
        result["values"] = [p["value"] for p in promised]
        result["covers"] = _rounded([p["coverage"] for p in promised])
    return result


_MAP = ("coverage", "threshold", "accepted", "bad", "risk", "high", "band_high")


def _promise(found: dict[str, Any], limit: str, share: Any) -> list[str]:
    """Threshold, coverage, rows, errors, observed risk, promised risk, and a word where there is none."""
    if found["value"] is not None:
        numbers = [printed(found["value"], 6), percent(found["coverage"]), count(found["accepted"])]
        return [*numbers, count(found["errors"]), share(found["risk"]), f"at most {limit}", ""]
    needed = found["rows_needed"]
    more = "more rows like these would not help" if needed is None else f"about {count(needed)} rows needed"
    return ["nothing", "0%", "0", "–", "–", "–", f"nothing can be certified; {more}"]


def _rounded(values: list[float] | None) -> list[float] | None:
    return None if values is None else [float(f"{value:.5g}") for value in values]
