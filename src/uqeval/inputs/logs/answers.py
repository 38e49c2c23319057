"""What a log says of each judged answer, in the directions of its schema: qualities, scores, and numbers of neither.

Every format fills the same table; which quality and which scores are taken is settled in `chosen`.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeVar

from uqeval._errors import InputError, reason_of
from uqeval.inputs.paths import named

Numbers = list[float]
Row = TypeVar("Row")
_HEAD = 1 << 16  # bytes that tell a format
_NAN = float("nan")


@dataclass(frozen=True)
class Wanted:
    """What a caller says of a log: names of numbers in it, and the direction by the word that holds them."""

    quality: str | None = None  # higher is better
    score: tuple[str, ...] = ()  # higher is less sure
    confidence: tuple[str, ...] = ()  # higher is more sure
    filter: str | None = None  # which of several judgements of one answer


@dataclass
class Answers:
    """One run of one model on one task, a row for each answer; NaN where the log says nothing."""

    task: str  # named alike in every run of it
    keys: list[str]  # the rows, named alike in every run of the task
    questions: list[str]  # answers to one question are a cluster
    qualities: dict[str, Numbers]  # higher is better; the usual one first
    scores: dict[str, Numbers]  # higher is less sure
    turned: frozenset[str] = frozenset()  # of those, what the log holds as a confidence
    fields: dict[str, Numbers] = field(default_factory=dict)  # numbers whose direction the schema does not tell
    choices: dict[str, list[Numbers]] = field(default_factory=dict)  # of each quality: a log-probability per choice
    labels: list[int] | None = None  # the right choice
    model: str = ""
    when: str = ""  # later runs of the same task have a larger one
    notes: list[str] = field(default_factory=list)


class Format(Protocol):
    """What the module of a log format must have."""

    NAME: str
    KEYED_BY_CONTENT: bool  # whether its keys tell the question itself, and not its number in the task

    def sniff(self, path: str) -> bool:
        """Whether a file is such a log; by its name and its beginning."""

    def read(self, path: str, wanted: Wanted) -> list[Answers]:
        """The answers in it, by task."""


def number(value: Any) -> float:
    """A number, however it is written; NaN for everything else."""
    if not isinstance(value, str | bool | int | float):
        return _NAN
    try:
        return float(value)
    except ValueError:
        return _NAN
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def stated(name: str) -> int:
    """The direction that a name states itself: 1 for an uncertainty, −1 for a confidence, 0 for all else.

    The whole name, less where it stands: "low_confidence" and "confidence_interval" state neither.
    """
    own = name.lower().rpartition(".")[2]
    return (own == "uncertainty") - (own == "confidence")


def sorted_out(found: Mapping[str, Numbers]) -> tuple[dict[str, Numbers], frozenset[str], dict[str, Numbers]]:
    """Numbers by name as scores, where the name states a direction; which of them it turned round; and as fields."""
    told = {name: values for name, values in found.items() if any(map(math.isfinite, values))}
    scores = {name: [stated(name) * value for value in values] for name, values in told.items() if stated(name)}
    turned = frozenset(name for name in scores if stated(name) < 0)
    return scores, turned, {name: values for name, values in told.items() if not stated(name)}


def by_name(rows: Iterable[Mapping[str, Any]], least: Iterable[str] = ()) -> dict[str, Numbers]:
    """The numbers of each name, row by row, from records that need not have the same names."""
    rows = list(rows)
    names = dict.fromkeys([*least, *(name for row in rows for name in row)])
    return {name: [number(row.get(name)) for row in rows] for name in names}


def latest(rows: Iterable[Row], key: Callable[[Row], Any]) -> tuple[list[Row], list[str]]:
    """Each row once, the last of those with the same key; and a note where there were several."""
    rows = list(rows)
    found = {key(row): row for row in rows}
    twice = len(rows) - len(found)
    return list(found.values()), [f"records that come again count once ({twice:,} left out)"] * (twice > 0)


def numbered(keys: Iterable[str]) -> list[str]:
    """The same keys, counted where they repeat."""
    times: Counter[str] = Counter()
    found = []
    for key in keys:
        times[key] += 1
        found.append(key if times[key] == 1 else f"{key}#{times[key]}")
    return found


def beginning(path: str) -> str:
    """The first characters of a text file; nothing where it cannot be read."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            return file.read(_HEAD).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error):
        return ""


def json_of(path: str) -> Any:
    """The content of a JSON file."""
    with open(path, encoding="utf-8-sig") as file:
        return parsed(file, path)


def parsed(file: IO[Any], name: str) -> Any:
    """JSON from an open file."""
    with named(name):
        try:
            return json.load(file)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"is not complete JSON ({reason_of(error)}). Did the run end?") from None
        except RecursionError:
            raise InputError("is nested too deeply to be a log.") from None
