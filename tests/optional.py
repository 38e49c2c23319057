"""Packages that tests may do without: a test that uses one that is not there is skipped, the others of its file run."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


class _Missing:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # pytest and doctest look at whatever a module holds
            raise AttributeError(attribute)
        pytest.skip(f"{self._name} is not installed", allow_module_level=True)


def optional(name: str) -> Any:
    """The module, or what skips the test that first uses it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is there, but broken
            raise
        return _Missing(name)
