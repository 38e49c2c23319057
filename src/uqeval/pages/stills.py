"""A chart as a drawing that stands still: for paper, and for a browser that runs no script.

Vega draws them without a browser, in a process of its own: its engine takes half a second to wake up and holds Python's
lock while it draws, and the page has other work to do meanwhile.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import Any

from uqeval.pages.builder import inline

_COLUMNS, _PANEL = 4, (150, 112)  # of small multiples: four in a line of paper can still be read
_LONG = 24  # letters of a name, from which two do not stand side by side
_WORK = """
import json, sys, vl_convert
for line in sys.stdin:
    print(json.dumps(vl_convert.vegalite_to_svg(line)), flush=True)
"""
_FIRST = '{"data":{"values":[]},"mark":"point"}'  # wakes the engine


class Pen:
    """Draws the charts of one page; `draw` begins, and each chart has its drawing at the end of the block."""

    def __init__(self) -> None:
        self._line = ThreadPoolExecutor(1, "uqeval-stills")
        self._open: list[tuple[dict[str, Any], Future[str]]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Pen":
        # What calls itself Python is asked to work; a program that has Python inside would start once more.
        if not getattr(sys, "frozen", False) and Path(sys.executable or "").name.lower().startswith("python"):
            pipe, none = subprocess.PIPE, subprocess.DEVNULL
            command = [sys.executable, "-I", "-X", "utf8", "-c", _WORK]
            with suppress(OSError):
                self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=none, encoding="utf-8")
            self._line.submit(self._asked, _FIRST)
        return self

    def draw(self, figures: Iterable[dict[str, Any]]) -> None:
        """Gives each chart its `still`."""
        for figure in figures:
            # A lone surrogate, which a name can hold, has no bytes in UTF-8.
            text = json.dumps(arranged(figure["spec"]), ensure_ascii=False)
            spec = text.encode("utf-8", "replace").decode("utf-8")
            self._open.append((figure, self._line.submit(self._drawn, figure["id"], spec)))

    def __exit__(self, kind: object, *_: object) -> None:
        self._line.shutdown(cancel_futures=kind is not None)
        if self._process is not None:
            if kind is not None:
                self._process.kill()
            self._process.communicate()
        if kind is None:
            for figure, drawn in self._open:
                figure["still"] = drawn.result()

    def _drawn(self, name: str, spec: str) -> str:
        svg = self._asked(spec)
        if svg is None:
            import vl_convert  # a large library, for a page whose process could not draw

            svg = str(vl_convert.vegalite_to_svg(spec))
        svg = re.sub(r'<path class="(?:background|foreground)"[^>]*?/>', "", inline(f"still-{name}", svg))
        svg = svg.replace(' pointer-events="none"', "")
        # Tenths of a pixel; words keep their digits.
        return re.sub(r'(?<= d=")[^"]*', lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), svg)

    def _asked(self, spec: str) -> str | None:
        """What the process draws; None where it cannot."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return None
        try:
            self._process.stdin.write(f"{spec}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:  # it has ended
            return None
        return str(json.loads(line)) if line.endswith("\n") else None


def arranged(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart for a drawing: nothing that only a pointer finds, legends below, small multiples close together."""
    found: dict[str, Any] = _without_hints(spec)
    config = dict(found.get("config", {}))
    config["background"] = None
    # Words were measured in one font and may be shown in a wider one: room between labels, and left of them.
    config["axis"] = config.get("axis", {}) | {"labelSeparation": 14}
    found["padding"] = {
        "left": 36 if "vconcat" in found or "facet" in found else 10,
        "right": 14,
        "top": 5,
        "bottom": 5,
    }
    rows = [row for rows in found.get("datasets", {}).values() for row in rows]
    if "facet" in found:
        config["axisX"] = config.get("axisX", {}) | {"tickCount": 4}
        inner = found["spec"]
        if isinstance(inner.get("width"), int):
            field = found["facet"]["field"]
            letters = 10 if _longest(rows, field) <= _LONG else 8.5
            height = _PANEL[1] if isinstance(inner.get("height"), int) else inner["height"]  # or so much for each row
            found["spec"] = _broken(inner | {"width": _PANEL[0], "height": height})
            found |= {"columns": _COLUMNS, "spacing": {"row": 12, "column": 24}}
            config["header"] = config.get("header", {}) | {"labelFontSize": letters, "labelLimit": _PANEL[0] + 24}
    elif "vconcat" in found:
        config["axisX"] = config.get("axisX", {}) | {"tickCount": 6}
    elif "width" in found:
        columns = 2 if _longest(rows, "score") <= _LONG else 1
        config["legend"] = config.get("legend", {}) | {"orient": "bottom", "columns": columns, "columnPadding": 30}
    return found | {"config": config}


def _longest(rows: list[dict[str, Any]], field: str) -> int:
    return max((len(str(row.get(field, ""))) for row in rows), default=0)


def _broken(part: Any) -> Any:
    """Titles of axes in lines that a small panel has room for."""
    if isinstance(part, list):
        return [_broken(item) for item in part]
    if not isinstance(part, dict):
        return part
    found = {key: _broken(value) for key, value in part.items()}
    if "field" in found and isinstance(found.get("title"), str):
        found["title"] = wrap(found["title"], _PANEL[0] // 8)
    return found


def _without_hints(part: Any) -> Any:
    """Without the invisible marks that carry tips, which would be half of the drawing."""
    if isinstance(part, list):
        return [_without_hints(item) for item in part if not _is_hint(item)]
    if not isinstance(part, dict):
        return part
    return {
        key: value if key == "datasets" else _without_hints(value) for key, value in part.items() if key != "tooltip"
    }


def _is_hint(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(mark := part.get("mark"), dict) and mark.get("opacity") == 0
