"""The documentation site: `make docs`. Warnings are errors, and the pages ask nothing of the network."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
import tokenize
from io import StringIO
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util import logging

import uqeval

sys.path.insert(0, str(Path(__file__).parent))
import made  # the figures, the example report and the help texts

project = "uqeval"
author = "The uqeval authors"
copyright = "The uqeval authors, Apache-2.0"
version = release = uqeval.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "_made"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "uqeval"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_made/pages"]
html_math_renderer = "mathml"  # of the browser: no script, no font from elsewhere
smartquotes = False  # options have two dashes
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "monokai"
copybutton_selector = "div.highlight-python pre, div.highlight-sh pre"

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "none"  # the docstrings say it in words
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_preprocess_types = False

log = logging.getLogger("uqeval.docs")

for field in PyObject.doc_field_types:
    if field.name == "variable":
        field.label = "Attributes"

# ---- formulas --------------------------------------------------------------------------------------------------

_MACROS = {r"\arg\max": r"\text{arg max}"}


def _mathml(translator: Any, node: Any, display: str) -> None:
    text = node.astext()
    for macro, meaning in _MACROS.items():
        text = re.sub(re.escape(macro) + r"(?![a-zA-Z])", meaning.replace("\\", r"\\"), text)
    made_of = convert(text, display=display)
    # A prime is raised by its font already.
    made_of = re.sub(r"<msup>(<mi>[^<]*</mi>)<mi>&#x02032;</mi></msup>", r'\1<mo lspace="0" rspace="0">′</mo>', made_of)
    if "\\" in made_of:
        log.warning("no MathML for %s", text, location=node)
    translator.body.append(f'<div class="math">{made_of}</div>' if display == "block" else made_of)
    raise nodes.SkipNode


# ---- docstrings ------------------------------------------------------------------------------------------------

# `name` in a docstring is code, and a link where it is a public name with its module.
_CODE = re.compile(r":[\w:]+:`[^`]*`|``.*?``|`([^`\n]+)`")
_LITERAL = re.compile(r"(?<=/)\*|\|(?=\S[^|`]*\S\|)|(?<=\S)\|(?=\s)")  # "preds/*.csv", "|a − b|"
_ROOMS = ("datasets", "decide", "gate", "inference", "integrations", "methods", "metrics", "plot", "schemas", "scores")
_ROOMS += ("sklearn", "truth")
_TOP = {name for name in uqeval.__all__ if name not in (*_ROOMS, "kernels", "__version__")}


def _reference(match: re.Match[str]) -> str:
    if match[1] is None:  # a role, or code already
        return match[0]
    name = match[1].removeprefix("uqeval.")
    first, _, rest = name.partition(".")
    if (rest and first in _ROOMS) or name in _TOP:
        return f":py:obj:`{match[1]} <uqeval.{name}>`"
    return f"``{match[1]}``"


def _fields_of(cls: type) -> list[str]:
    """An "Attributes" section from the fields of a dataclass and the comments behind them."""
    source = textwrap.dedent(inspect.getsource(cls))
    notes = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    rows = source.splitlines()
    result = ["Attributes", "----------"]
    for field in dataclasses.fields(cls):
        at = next((k for k, row in enumerate(rows, 1) if re.match(rf"    {field.name}\s*:", row)), None)
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        result += [f"{field.name} : {kind}", *([f"    {notes[at]}"] if at in notes else [])]
    return [*result, ""]


def _docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "class" and dataclasses.is_dataclass(obj) and "Attributes" not in lines:
        at = next((k for k, line in enumerate(lines) if line in ("Examples", "Notes")), len(lines))
        lines[at:at] = ["", *_fields_of(obj)]
    if name == "uqeval.__version__":
        lines[:] = ["The version of the package.", ""]
    if name == "uqeval.metrics.REGISTRY":
        lines[:] = _registry()
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", ".. math::")):
            lines[k] = _CODE.sub(_reference, _LITERAL.sub(r"\\\g<0>", line))


def _registry() -> list[str]:
    """All metrics as a table."""
    rows = ["Name → :py:obj:`Metric <uqeval.metrics.Metric>`; what `evaluate` can compute.", "", ".. list-table::"]
    rows += ["   :header-rows: 1", "", "   * - name", "     - metric", "     - better", "     - range", "     - needs"]
    for metric in uqeval.metrics.REGISTRY.values():
        low, high = (f"{end:g}".replace("inf", "∞").replace("-", "−") for end in metric.range)
        rows += [f"   * - ``{metric.name}``", f"     - {metric.title}", f"     - {metric.direction}"]
        rows += [f"     - {low} to {high}", f"     - {', '.join(metric.needs)}"]
    return [*rows, ""]


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: Any, back: Any) -> Any:
    """Results are made by the library: how to construct one is nobody's concern."""
    if what == "class" and name != "uqeval.Predictions" and (dataclasses.is_dataclass(obj) or issubclass(obj, tuple)):
        return "", None
    return None


def setup(app: Sphinx) -> None:
    def inline(translator: Any, node: Any) -> None:
        _mathml(translator, node, "inline")

    def block(translator: Any, node: Any) -> None:
        _mathml(translator, node, "block")

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("config-inited", lambda app, config: made.everything(), priority=1)
    app.connect("autodoc-process-docstring", _docstring, priority=1)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
