"""The errors and warnings that users see."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from uqeval._signs import in_one_line


class InputError(ValueError):
    """The input cannot be used; the message names the argument, shows what came and says what to do."""

    def __init__(self, message: str = "") -> None:
        text = _LONG.sub(lambda found: f"{found[0][:80]}…", in_one_line(message))
        # Names can be texts of many words: what it is about stands first, what to do last.
        super().__init__(text if len(text) <= _MOST else f"{text[:1800]} … {text[-600:]}")


_MOST = 2500
_LONG = re.compile(r"\S{1000,}")  # no path is as long: a cell, of which the beginning tells enough


class MissingExtra(ImportError):
    """A part of uqeval needs a package that is not installed; the message gives the pip line."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f'{feature} needs {package}. Install it with: pip install "uqeval[{extra}]"')
        self._of = (feature, package, extra)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return MissingExtra, self._of  # so that a worker process can report it


class UQWarning(UserWarning):
    """The result stands, but something about the input limits what it means."""


class UndefinedMetricWarning(UQWarning):
    """The metric has no value on this input; the result is NaN."""


def reason_of(error: BaseException) -> str:
    """One line for whatever another package raised, to stand inside a sentence of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].removesuffix(".")


def a_type(value: object) -> str:
    """What came, for a message: 'an int', 'a list', 'None'."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def share_hint(value: object) -> str:
    """' Did you mean 0.05?' of a 5, where a share was asked for and percent came."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < 100:
        return f" Did you mean {value / 100:g}?"
    return ""


def nearest(name: object, names: Iterable[str]) -> str:
    """' Did you mean "…"?', or nothing where no name comes near."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), list(names), n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


_collector: ContextVar[list[str] | None] = ContextVar("uqeval_notes", default=None)


def notify(message: str, kind: type[UQWarning] = UQWarning, stacklevel: int = 2) -> None:
    """Warns, or adds to the notes that `collected` gathers in this thread."""
    message, notes = in_one_line(message), _collector.get()
    if notes is None:
        warnings.warn(message, kind, stacklevel=stacklevel + 1)
    else:
        notes.append(message)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Gathers what `notify` says inside the block; unlike `warnings.catch_warnings` it is safe between threads."""
    notes: list[str] = []
    token = _collector.set(notes)
    try:
        yield notes
    finally:
        _collector.reset(token)
