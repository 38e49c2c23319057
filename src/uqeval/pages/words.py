"""Numbers and names as a reader wants them: few digits, thousands apart, nothing endless."""

import math
from typing import Any

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
