"""Predictions of any torch model, with the members that uncertainty scores are made of (extra ``torch``)."""

from uqeval._errors import MissingExtra

try:
    from uqeval.methods.dropout import MCDropout
    from uqeval.methods.ensemble import DeepEnsemble
    from uqeval.methods.softmax import Softmax
    from uqeval.methods.temperature import TemperatureScaling
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtra("uqeval.methods", "torch", "torch") from None

__all__ = ["DeepEnsemble", "MCDropout", "Softmax", "TemperatureScaling"]
