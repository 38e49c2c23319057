"""Predictions of any torch model, with the members that uncertainty scores are made of; and a classifier of mistakes.

Each name loads when it is first used: the networks need the extra ``torch``, the classifier of mistakes ``sklearn``.
"""

from typing import TYPE_CHECKING, Any

from uqeval._errors import MissingExtra
from uqeval._lazy import late

if TYPE_CHECKING:
    from uqeval.methods.adapters import HuggingFaceModel, LaplaceModel
    from uqeval.methods.augmentation import TestTimeAugmentation
    from uqeval.methods.bayesian import BayesianNetwork
    from uqeval.methods.dropout import MCDropout
    from uqeval.methods.ensemble import DeepEnsemble
    from uqeval.methods.evidential import EvidentialNetwork
    from uqeval.methods.meta import MetaClassifier
    from uqeval.methods.sngp import SNGP, RandomFeatureGP, spectral_bound
    from uqeval.methods.softmax import Softmax
    from uqeval.methods.swag import SWAG
    from uqeval.methods.temperature import TemperatureScaling

__all__ = [
    "SNGP",
    "SWAG",
    "BayesianNetwork",
    "DeepEnsemble",
    "EvidentialNetwork",
    "HuggingFaceModel",
    "LaplaceModel",
    "MCDropout",
    "MetaClassifier",
    "RandomFeatureGP",
    "Softmax",
    "TemperatureScaling",
    "TestTimeAugmentation",
    "spectral_bound",
]

_EXTRAS = {"torch": ("torch", "torch"), "sklearn": ("scikit-learn", "sklearn")}
_find = late(
    __name__,
    {
        "uqeval.methods.adapters": "HuggingFaceModel LaplaceModel",
        "uqeval.methods.augmentation": "TestTimeAugmentation",
        "uqeval.methods.bayesian": "BayesianNetwork",
        "uqeval.methods.dropout": "MCDropout",
        "uqeval.methods.ensemble": "DeepEnsemble",
        "uqeval.methods.evidential": "EvidentialNetwork",
        "uqeval.methods.meta": "MetaClassifier",
        "uqeval.methods.sngp": "SNGP RandomFeatureGP spectral_bound",
        "uqeval.methods.softmax": "Softmax",
        "uqeval.methods.swag": "SWAG",
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
