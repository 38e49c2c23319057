"""Models that cannot be made: an error, or a line in a list and on to the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from uqeval._errors import InputError, MissingExtra, UQWarning, notify

__all__ = ["LeftOut"]


class LeftOut:
    """What `keep_going` and `failures` mean wherever models are run.

    Without `keep_going` the first error is raised. With it, a failure is added to the list that the caller gave, as
    "model", "file" and "reason"; without a list it is a warning.
    """

    def __init__(self, keep_going: bool, failures: list[dict[str, str]] | None = None) -> None:
        self.keep_going, self.failures = keep_going, failures
        self.reasons: list[str] = []

    def out(self, name: str, error: Exception) -> None:
        """The model of this name cannot be used."""
        if not self.keep_going:
            raise error
        reason = str(error) if name in str(error) else f"{name}: {error}"
        self.reasons.append(reason)
        if self.failures is None:
            notify(f"A model was left out. {reason}", UQWarning, stacklevel=4)
        else:
            self.failures.append({"model": name, "file": name, "reason": reason})

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """An error inside the block leaves the model of this name out; RuntimeError is what torch raises."""
        try:
            yield
        except (InputError, MissingExtra, RuntimeError) as error:
            self.out(name, error)

    def check_some(self, done: int) -> None:
        """An error where nothing is left and nobody has the list of failures."""
        if not done and self.reasons and self.failures is None:
            raise InputError("No model could be used. " + " ".join(self.reasons))
