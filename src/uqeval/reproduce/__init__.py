"""The paper's experiments, one command each."""

from uqeval.reproduce.cifar10h import cifar10h
from uqeval.reproduce.imagenet_real import imagenet_real
from uqeval.reproduce.oasst2 import oasst2
from uqeval.reproduce.real.predictions import find_predictions, save_logits
from uqeval.reproduce.real.run import RealStudy
from uqeval.reproduce.study import Study
from uqeval.reproduce.synthetic import synthetic
from uqeval.reproduce.temperature import Temperature, temperature
from uqeval.reproduce.theorems import Theorems, theorems

__all__ = [
    "RealStudy",
    "Study",
    "Temperature",
    "Theorems",
    "cifar10h",
    "find_predictions",
    "imagenet_real",
    "oasst2",
    "save_logits",
    "synthetic",
    "temperature",
    "theorems",
]
