"""Numbers and names as a reader wants them: few digits, thousands apart, nothing endless."""

import math
from typing import Any

from uqeval._result import Grid

_LONGEST = 120


def percent(share: float | None) -> str:
    """A share with three digits.

    Examples
    --------
    >>> percent(0.05), percent(0.62134), percent(0.99999), percent(1.0)
    ('5%', '62.1%', '>99.9%', '100%')
    """
    if share is None or math.isnan(share):
        return "–"
    if 0.9995 <= share < 1:
        return ">99.9%"
    if 0 < share < 1e-6:
        return "<0.0001%"
    return f"{100 * share:.3g}%"


def plain(value: float | None) -> str:
    """A mean loss, which is no share."""
    return "–" if value is None or math.isnan(value) else f"{value:.4g}"


def count(number: float) -> str:
    """A number of rows, or a total of losses, with thousands apart.

    Examples
    --------
    >>> count(1234567), count(12.3456)
    ('1,234,567', '12.35')
    """
    return f"{int(number):,}" if float(number).is_integer() else f"{number:,.4g}"


def plural(number: int, what: str) -> str:
    """The number and what it counts.

    Examples
    --------
    >>> plural(1, "score"), plural(3, "score")
    ('1 score', '3 scores')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(bytes_: float) -> str:
    """Bytes with the unit that fits.

    Examples
    --------
    >>> size(512), size(1234567), size(3e9)
    ('512 bytes', '1.23 MB', '3 GB')
    """
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= least:
            return f"{bytes_ / least:.3g} {unit}"
    return f"{bytes_:.0f} bytes"


def folded(table: Grid, most: int = 4) -> list[Grid]:
    """A table of many columns as several of about equal width, each with the first column.

    Examples
    --------
    >>> [part.head for part in folded(Grid(["score", "a", "b", "c"], []), most=2)]
    [['score', 'a', 'b'], ['score', 'c']]
    """
    parts = math.ceil((len(table.head) - 1) / most)
    if parts <= 1:
        return [table]
    width = math.ceil((len(table.head) - 1) / parts)
    found: list[Grid] = []
    for k in range(parts):
        at = slice(1 + k * width, 1 + (k + 1) * width)
        head, rows = [table.head[0], *table.head[at]], [[row[0], *row[at]] for row in table.rows]
        notes = () if k else table.notes
        found.append(Grid(head, rows, f"{table.caption}, part {k + 1} of {parts}", notes, table.marked))
    return found


def clip(text: Any) -> str:
    """A name, cut where it is endless."""
    text = str(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def cell(value: Any) -> str:
    """A value of a user's column: four digits of a float, anything else as it is."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float):
        return "–" if math.isnan(value) else signed(f"{value:.4g}")
    return "–" if value is None else clip(value)


def signed(text: str) -> str:
    """A number's text with a minus as long as a plus.

    Examples
    --------
    >>> signed("-0.012 (-0.03 to 0.006)")
    '−0.012 (−0.03 to 0.006)'
    """
    return text.replace("-", "−")
