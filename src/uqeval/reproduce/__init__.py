"""The paper's experiments, one command each."""

from uqeval.reproduce.human.cifar10h import cifar10h
from uqeval.reproduce.human.imagenet_real import imagenet_real
from uqeval.reproduce.human.oasst2 import oasst2
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.logits.folder import find_predictions
from uqeval.reproduce.logits.writer import save_logits
from uqeval.reproduce.ood.run import ood
from uqeval.reproduce.ood.study import OODStudy
from uqeval.reproduce.study import Study
from uqeval.reproduce.synthetic.run import synthetic
from uqeval.reproduce.synthetic.temperature import Temperature, temperature
from uqeval.reproduce.theorems.run import Theorems, theorems

__all__ = [
    "OODStudy",
    "RealStudy",
    "Study",
    "Temperature",
    "Theorems",
    "cifar10h",
    "find_predictions",
    "imagenet_real",
    "oasst2",
    "ood",
    "save_logits",
    "synthetic",
    "temperature",
    "theorems",
]
