"""The contract of every JSON output: a JSON Schema (2020-12) each. A version keeps its keys, and may get more."""

import json
from pathlib import Path
from typing import Any

from uqeval._errors import InputError

__all__ = ["names", "schema"]


def names() -> list[str]:
    """Of the outputs that have a schema.

    Examples
    --------
    >>> "evaluation" in names()
    True
    """
    return sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an output.

    Parameters
    ----------
    name : str
        One of `names()`.

    Examples
    --------
    >>> schema("gate")["$id"]
    'urn:uqeval:gate:1'
    """
    if name not in names():
        raise InputError(f"There is no schema {name!r}. There are: {', '.join(names())}.")
    found: dict[str, Any] = json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    return found
