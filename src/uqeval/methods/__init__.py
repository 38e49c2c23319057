"""Predictions of any torch model, with the members that uncertainty scores are made of (extra ``torch``)."""

from uqeval._errors import MissingExtra

try:
    from uqeval.methods.adapters import HuggingFaceModel, LaplaceModel
    from uqeval.methods.augmentation import TestTimeAugmentation
    from uqeval.methods.bayesian import BayesianNetwork
    from uqeval.methods.dropout import MCDropout
    from uqeval.methods.ensemble import DeepEnsemble
    from uqeval.methods.evidential import EvidentialNetwork
    from uqeval.methods.sngp import SNGP, RandomFeatureGP, spectral_bound
    from uqeval.methods.softmax import Softmax
    from uqeval.methods.swag import SWAG
    from uqeval.methods.temperature import TemperatureScaling
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("uqeval.methods", "torch", "torch") from None

__all__ = [
    "SNGP",
    "SWAG",
    "BayesianNetwork",
    "DeepEnsemble",
    "EvidentialNetwork",
    "HuggingFaceModel",
    "LaplaceModel",
    "MCDropout",
    "RandomFeatureGP",
    "Softmax",
    "TemperatureScaling",
    "TestTimeAugmentation",
    "spectral_bound",
]
