"""Data to try things on."""

from uqeval.datasets.example import example
from uqeval.datasets.synthetic import Synthetic, synthetic

__all__ = ["Synthetic", "example", "synthetic"]
