"""Names that are loaded when somebody first uses them, so that an import costs next to nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module: home after home, the names that live there (or are that module)."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = import_module(home_of[name])
        return home if home.__name__ == f"{module}.{name}" else getattr(home, name)

    return find
