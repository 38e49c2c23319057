"""What a user has, checked once: arrays, frames and files → `Predictions`."""

from uqeval.inputs.files import read_predictions
from uqeval.inputs.predictions import Predictions

__all__ = ["Predictions", "read_predictions"]
