"""Metrics on tensors, where they are: functions with intervals, and classes for `torchmetrics` (extra ``torch``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqeval._errors import MissingExtra
from uqeval._lazy import late

if TYPE_CHECKING:
    from uqeval.torch import functional
    from uqeval.torch.metrics import (
        AUARC,
        AUGRC,
        AURC,
        EAURC,
        GAUC,
        HAUC,
        NAURC,
        PRR,
        UQAUC,
        SelectiveAccuracy,
        TopLabelCIndex,
        UQCIndex,
    )

__all__ = [
    "AUARC",
    "AUGRC",
    "AURC",
    "EAURC",
    "GAUC",
    "HAUC",
    "NAURC",
    "PRR",
    "UQAUC",
    "SelectiveAccuracy",
    "TopLabelCIndex",
    "UQCIndex",
    "functional",
]

_find = late(
    __name__,
    {
        "uqeval.torch.functional": "functional",
        "uqeval.torch.metrics": "AUARC AUGRC AURC EAURC GAUC HAUC NAURC PRR UQAUC SelectiveAccuracy TopLabelCIndex "
        "UQCIndex",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return globals().setdefault(name, _find(name))
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torchmetrics"):
            raise
        raise MissingExtra(f"uqeval.torch.{name}", error.name, "torch") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
