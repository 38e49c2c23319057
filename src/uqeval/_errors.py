"""The errors and warnings that users see."""

from __future__ import annotations

__all__ = ["InputError", "MissingExtra", "UQWarning", "UndefinedMetricWarning"]


class InputError(ValueError):
    """The input cannot be used; the message names the argument, shows what came and says what to do."""


class MissingExtra(ImportError):
    """A part of uqeval needs a package that is not installed; the message gives the pip line."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f'{feature} needs {package}. Install it with: pip install "uqeval[{extra}]"')


class UQWarning(UserWarning):
    """The result stands, but something about the input limits what it means."""


class UndefinedMetricWarning(UQWarning):
    """The metric has no value on this input; the result is NaN."""
