"""What the page of every study has: what does and does not reproduce, tables, figures, settings and times.

It runs no script; drawings are inline, and their inks follow the page from light to dark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from uqeval._result import Grid, versions
from uqeval.pages.builder import build

Makers = Mapping[str, Callable[[], Any]]  # figures by name, each drawn when it is called for


@dataclass(frozen=True)
class Page:
    """What the page of a study says: see `templates/study.html.j2` of `uqeval.pages`."""

    title: str
    lead: str
    facts: list[tuple[str, str]]
    short: list[tuple[str, list[str]]]  # headings with their lines
    tables: list[Grid]  # the first `shown` are, the others can be unfolded
    notes: Sequence[str]
    settings: list[tuple[str, str]]
    texts: Mapping[str, str]  # what is said below each figure
    claims: Sequence[Any] = ()  # each with a section of its own
    shown: int = 1
    of_paper: bool = True  # whether it reproduces the paper, which is then named

    def html(self, figures: Sequence[Any], timing: Grid, spent: list[tuple[str, str]]) -> str:
        """The whole page, with drawings (`panels.Picture`), times, and the whole time spent."""
        more = {"facts": self.facts + spent, "timing": timing, "versions": _versions()}
        return build("study.html.j2", page=vars(self) | more, figures=figures)


def _versions() -> dict[str, str]:
    try:
        return versions() | {"torch": version("torch")}
    except PackageNotFoundError:
        return versions()


def setting(value: Any) -> str:
    """A setting as a reader wants it: few digits and no brackets; a list inside a list, as layers, by dashes."""
    if isinstance(value, list | tuple):
        return ", ".join("-".join(map(setting, v)) if isinstance(v, list | tuple) else setting(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def span(values: Sequence[float], form: str) -> str:
    """The range of some numbers, or the one that they share."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
