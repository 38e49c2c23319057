"""What every result can do: plain values, JSON, a frame, a table in a notebook; and how a number is written."""

import csv
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from uqeval import kernels
from uqeval._check import check_choice
from uqeval._errors import InputError, a_type
from uqeval._files import json_value
from uqeval._signs import in_one_line, visible
from uqeval._version import __version__

SCHEMA_VERSION = 1  # of all JSON that is read back


class Grid(NamedTuple):
    """A table to read; a cell that stands out ends in " *"."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str | None = None
    notes: Sequence[str] = ()  # said below it on a page
    marked: Collection[str] = ()  # first cells of rows that are not ours

    def text(self) -> str:
        """Columns side by side."""
        table = [[in_one_line(cell) for cell in line] for line in (self.head, *self.rows)]
        widths = [max(len(line[k]) for line in table) for k in range(len(self.head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in table]
        lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
        return "\n".join([self.caption, *lines] if self.caption else lines)

    def markdown(self) -> str:
        """Lines of a Markdown file."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        cells = ([in_one_line(cell).replace("|", r"\|") for cell in line] for line in lines)
        return "\n".join("| " + " | ".join(line) + " |" for line in cells)

    def html(self) -> str:
        """An element of a page."""
        caption = f"<caption>{_escaped(self.caption)}</caption>" if self.caption else ""
        head = "".join(f'<th style="{_side(k)}">{_escaped(cell)}</th>' for k, cell in enumerate(self.head))
        body = "".join(f"<tr>{''.join(_cell(k, text) for k, text in enumerate(row))}</tr>" for row in self.rows)
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str) -> str:
    from html import escape  # for pages alone

    return escape(text)


def _side(column: int) -> str:
    """Names to the left, numbers one below the other: a notebook has no style for them."""
    if column == 0:
        return "text-align: left"
    return "text-align: right; padding-left: 1em; white-space: nowrap; font-variant-numeric: tabular-nums"


def _cell(column: int, text: str) -> str:
    best, words = text.endswith(" *"), _escaped(text.removesuffix(" *"))
    return f'<td style="{_side(column)}">{f"<b>{words}</b>" if best else words}</td>'


class Result:
    """A frozen dataclass that users keep, print, store and look at.

    A subclass says what differs: `to_dict` where its fields are not the data, `frame_rows` where it is more than one
    row, and `view`, its text and tables, or `__str__` alone.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    def to_json(self) -> str:
        """`to_dict` as JSON; NaN and infinity become null."""
        return to_json(self.to_dict())

    def frame_rows(self) -> list[dict[str, Any]]:
        """The rows of `to_frame`."""
        return [self.to_dict()]

    def to_frame(self, kind: str | None = None) -> Any:
        """A dataframe: "pandas", "polars" or "pyarrow"; None takes the first that is installed."""
        return to_frame(self.frame_rows(), kind)

    def view(self) -> Iterator[str | Grid]:
        """Lines and tables, from top to bottom."""
        yield str(self)

    def _repr_html_(self) -> str:
        return as_html(self.view())


def as_html(parts: Iterable[str | Grid], strong: Collection[str] = ()) -> str:
    """What `view` gives, for a notebook; the lines that matter most stand out."""
    made = (part.html() if isinstance(part, Grid) else _words(part, part in strong) for part in parts if part)
    return visible("".join(made))


def _words(text: str, strong: bool) -> str:
    text = text.strip("\n")
    words = f"<strong>{_escaped(text)}</strong>" if strong else _escaped(text)
    return f'<pre style="white-space: pre-wrap">{words}</pre>' if "\n" in text else f"<p>{words}</p>"


def as_text(parts: Iterable[str | Grid]) -> str:
    """What `view` gives, for a terminal."""
    return visible("\n".join(part.text() if isinstance(part, Grid) else part for part in parts))


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def strict(value: Any) -> Any:
    """The same data as valid JSON: NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(data: Any) -> str:
    """JSON as all results have it."""
    return json.dumps(strict(data), indent=2, ensure_ascii=False, allow_nan=False)


def to_frame(rows: list[dict[str, Any]], kind: str | None = None) -> Any:
    """Rows as a dataframe: `kind` is "pandas", "polars" or "pyarrow"; None takes the first that is installed."""
    if kind is None:
        kind = next(name for name in ("pandas", "polars", "pyarrow") if find_spec(name))
    if find_spec(check_choice("kind", kind, ("pandas", "polars", "pyarrow"))) is None:
        raise InputError(f'`kind` is "{kind}", which is not installed. Install it with: pip install {kind}')
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    if kind == "polars":
        import polars

        return polars.DataFrame(columns)
    import pyarrow

    return pyarrow.table(columns)


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of one shape as CSV. A spreadsheet would compute a text that begins like a formula: it gets a ' in front."""
    found = list(rows)
    table = [found[0], *(row.values() for row in found)] if found else []
    return "".join(_csv_line(_unformulated(value) for value in line) for line in table)


def _csv_line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)  # it quotes what holds a character of the line end
    return f"{line.getvalue()[:-2]}\n"


_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # wide ones, too, in a Japanese Excel (OWASP, CSV Injection)


def _unformulated(value: Any) -> Any:
    """Only texts can be formulas: a negative number stays one."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def read_json(text: str | Path, what: str) -> dict[str, Any]:
    """The object in a JSON text, or in the file of that path, of the schema that this version reads."""
    path = text
    try:
        if isinstance(text, Path) or not (len(text) > _LONGEST_NAME or "\n" in text or text.lstrip()[:1] in ("{", "")):
            text = Path(text).read_text(encoding="utf-8")
        data = json_value(text, parse_constant=_not_json, parse_float=_finite)
        schema = data.pop("schema_version")
    except OSError as error:
        raise InputError(f"The {what} file {str(path)!r} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        kind = kind_of_text(text) if isinstance(text, str) else "no text"
        raise InputError(f"This is not the JSON of a {what}: it is {kind}. Pass what to_json wrote.") from None
    if schema != SCHEMA_VERSION:
        raise InputError(f"The {what} has schema_version {short(schema)}; this uqeval reads {SCHEMA_VERSION}.")
    return data


def _not_json(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_json(text)


class Mistyped(Exception):
    """An entry is missing, unknown or not of its field's type; the text says which."""


def typed_fields(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """Stored values as the fields of a dataclass declare them: null is the NaN of a float, lists are tuples again."""
    readers = _readers(kind)
    for name in sorted(readers.keys() ^ data.keys()):
        raise Mistyped(f"it lacks {name!r}" if name in readers else f"{name!r} is not known")
    found = {}
    for name, read in readers.items():
        try:
            found[name] = read(data[name])
        except TypeError:
            raise Mistyped(f"{name!r} is {short(data[name])}") from None
    return found


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    return {name: reader(declared) for name, declared in get_type_hints(kind).items()}


@cache
def reader(declared: Any) -> Callable[[Any], Any]:
    """A function that takes what JSON holds for the declared type, or raises a TypeError."""
    if declared is Any:
        return lambda value: value
    if isinstance(declared, UnionType):
        return _of_any(get_args(declared))
    origin, parts = get_origin(declared) or declared, get_args(declared)
    if declared is float:
        return _float
    if declared is int:
        return _int
    if origin is tuple:
        return _tuple(parts)
    if origin is dict and parts:
        key, item = map(reader, parts)
        return lambda value: {key(k): item(v) for k, v in _of(dict, value).items()}
    if is_dataclass(declared):
        kind: Any = declared
        return lambda value: kind(**typed_fields(kind, _of(dict, value)))
    return lambda value: _of(origin, value)


def _of_any(options: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Of the options, the one that the value is; what JSON cannot hold (classes without fields) is none."""
    empty = NoneType in options
    readers = [reader(option) for option in options if option is not NoneType]

    def read(value: Any) -> Any:
        if value is None and empty:
            return None
        for k, one in enumerate(readers):
            try:
                return one(value)
            except TypeError:
                if k == len(readers) - 1:
                    raise
        raise TypeError

    return read


def _tuple(parts: tuple[Any, ...]) -> Callable[[Any], Any]:
    readers = [reader(part) for part in parts if part is not ...]
    endless = ... in parts

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or (not endless and len(value) != len(readers)):
            raise TypeError
        return tuple((readers[0] if endless else readers[k])(item) for k, item in enumerate(value))

    return read


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _float(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) is float:
        return value
    return _int(value)  # whole numbers stay whole


def _int(value: Any) -> int:
    """True is an int to Python, not to a reader."""
    if type(value) is not int or abs(value) >= 1 << 63:
        raise TypeError
    return value


def kind_of_text(text: str) -> str:
    """What a file that is not what it should be holds, in words: never its content, which may be private or long."""
    if not text.strip():
        return "nothing"
    try:
        data = json_value(text, parse_constant=_not_json, parse_float=_finite)
    except ValueError:
        begins = text.lstrip()[:1] in ("{", "[")
        return "broken JSON (cut off, or changed by hand)" if begins else "no JSON"
    if not isinstance(data, dict):
        return "a list" if isinstance(data, list) else "a single value"
    for key, kind in _KINDS.items():
        if key in data:
            return kind
    return "JSON of something else"


_LONGEST_NAME = 1024  # characters of a path
# By what only they have.
_KINDS = {
    "log_wealth": "a check",
    "thresholds": "thresholds",
    "rows_needed": "a threshold",
    "estimates": "an evaluation",
    "pairs": "a comparison",
}


def short(value: Any) -> str:
    """A value inside a message."""
    return text if len(text := repr(value)) <= 40 else a_type(value)


def number(x: float, digits: int = 3) -> str:
    """A short, readable number: 3 decimals, more for small ones."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x != 0 and abs(x) < 10 ** (1 - digits):
        return f"{x:#.2g}" if abs(x) >= 1e-4 else f"{x:.1e}"
    return f"{x:.{digits}f}"


def p_text(p: float) -> str:
    """A p-value for reading."""
    if math.isnan(p):
        return "–"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}"


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    import platform

    import scipy  # takes long to load, and few ask

    found = {"uqeval": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return found | {"scipy": scipy.__version__, "kernels": kernels.backend()}
