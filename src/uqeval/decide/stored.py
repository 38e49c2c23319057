"""Results as JSON that a service can keep: read back with every value checked."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from uqeval._check import check_level
from uqeval._errors import InputError
from uqeval._result import Result

__all__ = ["SCHEMA_VERSION", "Stored", "check_fields", "read_json"]

SCHEMA_VERSION = 1
_KINDS: dict[str, tuple[type, ...]] = {
    "float": (int, float),
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "None": (type(None),),
    "dict[str, str]": (dict,),
}


class Stored(Result):
    """Equal to what has the same JSON: NaN entries are equal too."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def read_json(text: str | Path, what: str) -> dict[str, Any]:
    """The object in a JSON text, or in the file of that path, of the schema that this version reads."""
    try:
        if isinstance(text, Path) or not text.lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        data = json.loads(text)
        schema = data.pop("schema_version")
    except OSError as error:
        raise InputError(f"The {what} file {str(text)!r} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"This is not the JSON of a {what}: {error!r}. Pass what to_json wrote.") from None
    if schema != SCHEMA_VERSION:
        raise InputError(f"The {what} has schema_version {schema!r}; this uqeval reads {SCHEMA_VERSION}.")
    return data


def check_fields(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    """The same values, floats that were NaN restored; what is missing, unknown or of a wrong type is named."""
    known = {f.name: str(f.type) for f in fields(kind)}
    for name in sorted(known.keys() ^ data.keys()):
        raise _refusal(kind, f"it lacks {name!r}" if name in known else f"{name!r} is not known")
    found = {name: _value(kind, name, known[name], value) for name, value in data.items()}
    if "level" in found:
        found["level"] = check_level(found["level"])
    if "max_risk" in found and not 0 < found["max_risk"] < 1:
        raise _refusal(kind, f"'max_risk' is {found['max_risk']!r}, not between 0 and 1")
    return found


def _refusal(kind: type, reason: str) -> InputError:
    return InputError(f"This is not the JSON of a {kind.__name__}: {reason}. Pass what to_json wrote.")


def _value(kind: type, name: str, declared: str, value: Any) -> Any:
    """One entry as its field declares it; True is an int to Python, not to a reader."""
    parts = declared.split(" | ")
    if declared == "float" and value is None:
        return math.nan
    if declared.startswith("tuple["):
        if not isinstance(value, list | tuple):
            raise _refusal(kind, f"{name!r} is {value!r}")
        inner = declared[len("tuple[") :].split(",")[0].rstrip("]")
        return tuple(_value(kind, name, inner, item) for item in value)
    if all(part in _KINDS for part in parts):
        allowed = tuple(t for part in parts for t in _KINDS[part])
        fits = isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed)
    else:  # a result inside the result, which is checked by itself
        fits = not isinstance(value, bool | int | float | str | list | dict)
    if not fits:
        raise _refusal(kind, f"{name!r} is {value!r}")
    return value
