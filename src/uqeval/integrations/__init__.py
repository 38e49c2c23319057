"""Where people already log and evaluate: Inspect. Each loads when it is used."""

from typing import TYPE_CHECKING, Any

from uqeval._lazy import late

if TYPE_CHECKING:
    from uqeval.integrations import inspect

__all__ = ["inspect"]

_find = late(__name__, {f"{__name__}.{name}": name for name in __all__})


def __getattr__(name: str) -> Any:
    return globals().setdefault(name, _find(name))
