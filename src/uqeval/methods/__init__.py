"""Predictions of any torch model, with the members that uncertainty scores are made of; and a classifier of mistakes.

Each name loads when it is first used: the networks need the extra ``torch``, the classifier of mistakes ``sklearn``.
"""

from typing import TYPE_CHECKING, Any

from uqeval._errors import MissingExtra
from uqeval._lazy import late

if TYPE_CHECKING:
    from uqeval.methods.dropout import MCDropout
    from uqeval.methods.ensemble import DeepEnsemble
    from uqeval.methods.meta import MetaClassifier
    from uqeval.methods.softmax import Softmax
    from uqeval.methods.temperature import TemperatureScaling

__all__ = ["DeepEnsemble", "MCDropout", "MetaClassifier", "Softmax", "TemperatureScaling"]

_EXTRAS = {"torch": ("torch", "torch"), "sklearn": ("scikit-learn", "sklearn")}
_find = late(
    __name__,
    {
        "uqeval.methods.dropout": "MCDropout",
        "uqeval.methods.ensemble": "DeepEnsemble",
        "uqeval.methods.meta": "MetaClassifier",
        "uqeval.methods.softmax": "Softmax",
        "uqeval.methods.temperature": "TemperatureScaling",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return globals().setdefault(name, _find(name))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise MissingExtra(f"uqeval.methods.{name}", *_EXTRAS[package]) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
