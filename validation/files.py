"""Real predictions as laws: CIFAR-10 test-set logits of networks, under the folder that UQEVAL_DATA names."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

import uqeval as uq
from validation.laws import Finite

# Of 54 networks: the most accurate, two middling ones, transformers, one trained on noisy labels. Chosen by name.
NETWORKS = (
    "resnet18-e10",
    "vgg13_bn-e12",
    "densenet121-e12",
    "noise-resnet18-0.3",
    "vit_small-e12",
    "convnext_tiny-e12",
)
PREFIX = "file "


def missing() -> str | None:
    """Why there are no real predictions here; None where there are."""
    folder = os.environ.get("UQEVAL_DATA")
    if not folder:
        return "UQEVAL_DATA is unset: no real prediction files"
    absent = [path for path in _paths() if not path.is_file()]
    return f"there is no {absent[0].name} in the folder cifar10h of UQEVAL_DATA" if absent else None


def _paths() -> tuple[Path, Path]:
    folder = Path(os.environ["UQEVAL_DATA"]) / "cifar10h"
    return folder / "zoo_logits.npz", folder / "cifar10_test_jpeg.npz"


@cache
def read(law: str) -> Finite:
    """The rows of a network: entropy as the score, the gap 1 − p(label) as the loss."""
    zoo, images = _paths()
    with np.load(zoo, allow_pickle=False) as file:
        logits = file[law.removeprefix(PREFIX)].astype(np.float64)
    with np.load(images, allow_pickle=False) as file:
        labels = file["y"].astype(np.int64)
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs = e / e.sum(axis=1, keepdims=True)
    error = uq.truth.misclassified(probs, labels).astype(np.uint8)
    confidence = np.clip(probs.max(axis=1), 1e-6, 1 - 1e-6)
    return Finite(uq.scores.entropy(probs), error, uq.truth.gap(probs, labels), confidence)
