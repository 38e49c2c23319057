"""Data to try things on."""

from uqeval.datasets.example import example

__all__ = ["example"]
