"""The paper's experiments, one command each."""

from uqeval.reproduce.study import Study
from uqeval.reproduce.synthetic import synthetic
from uqeval.reproduce.temperature import Temperature, temperature
from uqeval.reproduce.theorems import Theorems, theorems

__all__ = ["Study", "Temperature", "Theorems", "synthetic", "temperature", "theorems"]
