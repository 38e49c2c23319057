"""Long names, shortened in the middle so that they stay apart: for labels of charts and cells of tables."""

from collections.abc import Iterable
from typing import Any

LONGEST = 28
# Fields of a chart's rows that hold a user's name and are drawn as a label.
_FIELDS = ("score", "candidate", "group")
_IN_FULL = "names in full"  # the table in which tips look them up: once there, and not in each row


def shortened(names: Iterable[str], most: int = LONGEST) -> dict[str, str]:
    """Each name with at most `most` characters: no two look the same, even where they differ in one character.

    Examples
    --------
    >>> list(shortened(["entropy", "resnet50-seed1-temperature-scaled-entropy"], most=20).values())
    ['entropy', 'resnet50-s…d-entropy']
    >>> list(shortened(["a-very-long-name-seed1-of-a-model", "a-very-long-name-seed2-of-a-model"], most=20).values())
    ['a-very-…1-of-a-model', 'a-very-…2-of-a-model']
    """
    found = {name: _cut(name, most, most // 2) for name in dict.fromkeys(names)}
    for alike in _alike(found):
        found |= _apart(alike, most)
    for alike in _alike(found):
        found |= {name: name for name in alike}
    return found


def _cut(name: str, most: int, start: int) -> str:
    return name if len(name) <= most else f"{name[:start]}…{name[len(name) - (most - 1 - start) :]}"


def _apart(names: list[str], most: int) -> dict[str, str]:
    """Cut where they still differ, as near the middle as can be; else around the first difference."""
    for start in sorted(range(4, most - 4), key=lambda start: abs(start - most // 2)):
        found = {name: _cut(name, most, start) for name in names}
        if not _alike(found):
            return found
    same = next(k for k in range(len(names[0])) if len({name[k : k + 1] for name in names}) > 1)
    side = most // 4
    middle = most - 2 * side - 2
    return {name: f"{name[:side]}…{name[same : same + middle]}…{name[len(name) - side :]}" for name in names}


def _alike(found: dict[str, str]) -> list[list[str]]:
    by_text: dict[str, list[str]] = {}
    for name, text in found.items():
        by_text.setdefault(text, []).append(name)
    return [names for names in by_text.values() if len(names) > 1]


def with_short_names(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart whose labels are short; its tips still say the whole name."""
    tables: dict[str, list[dict[str, Any]]] = spec.get("datasets", {})
    values = (row[key] for rows in tables.values() for row in rows for key in _FIELDS if key in row)
    short = shortened(value for value in values if isinstance(value, str))
    long = {name: text for name, text in short.items() if name != text}
    if not long:
        return spec
    # The names of the drawing are those of the data: a label made by an expression would be code with a user's words.
    renamed: dict[str, Any] = _renamed({key: part for key, part in spec.items() if key != "datasets"}, long)
    found = {name: [_row(row, long) for row in rows] for name, rows in tables.items()}
    return renamed | {"datasets": found | {_IN_FULL: [{"short": text, "name": name} for name, text in short.items()]}}


def _row(row: dict[str, Any], long: dict[str, str]) -> dict[str, Any]:
    return row | {key: long[row[key]] for key in _FIELDS if row.get(key) in long}


def _renamed(part: Any, long: dict[str, str]) -> Any:
    if isinstance(part, list):
        return [_renamed(item, long) for item in part]
    if not isinstance(part, dict):
        return long.get(part, part) if isinstance(part, str) else part
    found = {key: _renamed(value, long) for key, value in part.items()}
    tips = found.get("tooltip")
    if isinstance(tips, list):
        found["tooltip"] = [_whole(tip) for tip in tips]
    if "data" in found:  # looked up where the rows come in: Vega-Lite forgets a table that is named inside of a facet
        names = {"data": {"name": _IN_FULL}, "key": "short", "fields": ["name"]}
        more = [
            {"lookup": k, "from": names, "as": [f"{k} in full"]} for k in _FIELDS if _has_tip(found, f"{k} in full")
        ]
        if more:
            found["transform"] = [*more, *found.get("transform", [])]
    return found


def _whole(tip: dict[str, Any]) -> dict[str, Any]:
    field = tip.get("field")
    return {"title": field} | tip | {"field": f"{field} in full"} if field in _FIELDS else tip


def _has_tip(part: Any, field: str) -> bool:
    if isinstance(part, list):
        return any(_has_tip(item, field) for item in part)
    return isinstance(part, dict) and (
        part.get("field") == field or any(_has_tip(item, field) for item in part.values())
    )
