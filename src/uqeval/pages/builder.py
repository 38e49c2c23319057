"""One HTML file that needs no network: template, style, scripts and drawings in one place, every user string escaped.

What a page says is for `report` and for the studies of `uqeval.reproduce`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import version as installed
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from uqeval._files import kept_text
from uqeval._result import number, strict
from uqeval._signs import drawable, visible
from uqeval.decide.threshold import shown as printed
from uqeval.pages.words import clip, count, folded, percent
from uqeval.plot.names import shortened

if TYPE_CHECKING:
    from jinja2 import Environment


def build(template: str, *, scripts: tuple[str, ...] = (), data: Any = None, **parts: Any) -> str:
    """The whole page of a template from its parts; `data` is what the scripts read."""
    html = _environment().get_template(template)
    page = html.render(policy=_policy(scripts), scripts=scripts, data=_json(data), **parts)
    # A lone surrogate, which a file name can hold, has no bytes in UTF-8.
    return page.lstrip().encode("utf-8", "replace").decode("utf-8")


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # takes long to load, and few make a page

    found = Environment(
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # what is markup already is ours
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(template_text),
    )
    found.globals["style"] = template_text("page.css")
    found.filters |= {"clip": clip, "count": count, "number": number, "percent": percent}
    found.filters |= {"folded": folded, "shortened": shortened, "basename": os.path.basename}
    found.filters["shown"] = lambda value: printed(value, 6)
    return found


@lru_cache
def template_text(name: str) -> str:
    """A file of `templates`."""
    return files("uqeval.pages").joinpath("templates", name).read_text(encoding="utf-8")


def vega_script(schema: str) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, for charts of this schema."""
    return begin_script(schema).result()


@lru_cache
def begin_script(schema: str) -> Future[str]:
    """Bundling takes two seconds: begun beside other work, and done once on a machine."""
    pool = ThreadPoolExecutor(1)
    found = pool.submit(_script, schema)
    pool.shutdown(wait=False)
    return found


def _script(schema: str) -> str:
    version = found[1] if (found := re.search(r"/v(\d+\.\d+)", schema)) else ""
    script = kept_text(f"vega-{version}-vl-convert-{installed('vl-convert-python')}.js", lambda: _bundle(version))
    # Names of its own; and nothing that ends the element it stands in, or that a browser would read as another line.
    script = re.sub(r"<(?=/script|script|!--)", r"\\x3c", script.replace("\r\n", "\n").replace("\r", "\n"), flags=re.I)
    return f'(() => {{\n"use strict";\n{script}\n}})();'


def _bundle(version: str) -> str:
    import vl_convert  # a large library, for pages with charts that move

    known = version and any(found.startswith(version) for found in vl_convert.get_vegalite_versions())
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version if known else None))


def inline(name: str, svg: str) -> str:
    """A drawing so that it can stand beside others in a page: own ids, no white sheet, no words for each mark."""
    svg = re.sub(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>', "", svg, count=1)
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' (?:aria-[a-z]+|role)="[^"]*"', "", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" ', 1)


def _policy(scripts: tuple[str, ...]) -> str:
    """Only these very scripts run, and nothing is fetched, whatever else gets into the page.

    Vega compiles its expressions, hence 'unsafe-eval'; charts and their tips carry inline styles.
    """
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    running = f"script-src {allowed} 'unsafe-eval'; " if scripts else ""
    return f"default-src 'none'; {running}style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def _json(data: Any) -> str:
    """JSON that can stand inside a script element: no string can end it."""
    # ASCII: U+2028 and such are escaped.
    text = json.dumps(drawable(strict(data)), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
