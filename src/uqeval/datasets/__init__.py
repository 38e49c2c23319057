"""Data to try things on, and the paper's datasets with human labels."""

from uqeval.datasets.cifar10_images import cifar10_images
from uqeval.datasets.cifar10h import CIFAR10H, cifar10h
from uqeval.datasets.dawid_skene import DawidSkene, dawid_skene
from uqeval.datasets.example import example
from uqeval.datasets.imagenet_real import ImageNetReal, imagenet_real
from uqeval.datasets.oasst2 import OASST2, oasst2, oasst2_sample
from uqeval.datasets.synthetic import Synthetic, synthetic

__all__ = [
    "CIFAR10H",
    "OASST2",
    "DawidSkene",
    "ImageNetReal",
    "Synthetic",
    "cifar10_images",
    "cifar10h",
    "dawid_skene",
    "example",
    "imagenet_real",
    "oasst2",
    "oasst2_sample",
    "synthetic",
]
