"""The paper's study on CIFAR10-H: ten classes, about 50 human votes for each of the 10,000 test images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqeval import datasets
from uqeval._check import Float, Int
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.human.run import Failures, Paths, RealStudy, required, run_study

__all__ = ["PAPER", "PAPER_MODELS", "cifar10h", "reference"]

PAPER_MODELS = 116  # as its text says; its list names 77
PAPER: list[dict[str, Any]] = [
    {"metric": "uq_auc", "truth": "kendall_phi", "r": 0.6518, "low": 0.5399, "high": 0.7475},
    {"metric": "uq_auc", "truth": "kendall_varphi", "r": 0.5401, "low": 0.3933, "high": 0.6600},
    {"metric": "uq_c_index", "truth": "kendall_phi", "r": -0.0004, "low": -0.2241, "high": 0.1483},
    {"metric": "uq_c_index", "truth": "kendall_varphi", "r": 0.9561, "low": 0.9367, "high": 0.9697},
]
_NOTES = [
    "The paper's models are ImageNet backbones of torchvision with a linear probe, judged on validation folds; models "
    "given as predictions may be trained otherwise and judged on the whole test set. Correlations over models depend "
    "on which models there are, above all on the range of their accuracies, so the two rows need not agree.",
    "The paper prints −0.04% (−22.41 to 14.83) for UQ-C-index with κ(s; φ). That interval is centred at −3.9%, so "
    "one of the numbers is likely misprinted.",
]


def reference(data: Any = None) -> Reference:
    """Labels and human votes of the 10,000 test images."""
    found = data if hasattr(data, "counts") else datasets.cifar10h(data)
    probs: Float = np.asarray(found.probs, dtype=np.float64)

    def soft(rows: Int) -> Float:
        return probs[rows]

    votes = np.asarray(found.counts).sum(axis=1)
    return Reference(
        study="cifar10h",
        title="CIFAR10-H",
        labels=np.asarray(found.labels, dtype=np.int64),
        classes=probs.shape[1],
        soft=soft,
        rated=np.ones(len(probs), dtype=bool),
        facts={"votes per image": f"{votes.min()} to {votes.max()}, {votes.mean():.1f} on average"},
        notes=list(_NOTES),
    )


def cifar10h(
    predictions: Paths | None = None,
    *,
    data: Any = None,
    out: str | Path | None = None,
    scores: Sequence[str] | None = None,
    level: float = 0.95,
    min_accuracy: float = 0.0,
    keep_going: bool = False,
    allow_chance: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    failures: Failures = (),
) -> RealStudy:
    """Do UQ-AUC and UQ-C-index rank models as the human votes of CIFAR10-H do?

    Parameters
    ----------
    predictions : path or list of paths
        Folders and files of logits for the 10,000 test images in their standard order: see
        `uqeval.reproduce.logits.writer`.
    data : path or CIFAR10H, optional
        Folder that holds the dataset, or what `uqeval.datasets.cifar10h` gives; UQEVAL_DATA, or a download, by
        default.
    out : path, optional
        Folder for the tables and for the store that lets a killed run go on; nothing is written without it.
    scores : list of str, optional
        Which scores; by default all that the predictions allow: first-order ones for single models; second-order
        ones, and those of the mean probabilities, for members and passes.
    level : float
        Confidence level of all intervals.
    min_accuracy : float
        Leave less accurate models out of the correlations; tables above 0.5 and 0.7 are made in any case.
    keep_going : bool
        Go on without the predictions that cannot be used; they are in `failures` with their reasons.
    allow_chance : bool
        Take models without a stated accuracy that are right no more often than shuffled rows would be.
    jobs : int, optional
        Models judged at once. By default up to 4 where the largest file has at most 32 MiB, fewer where it is larger,
        and one at a time above 64 MiB. The numbers do not depend on it.
    progress : callable(done, total), optional
        Called after every model.
    failures : list of dict, optional
        "model", "file" and "reason" of models that could not be made; listed with those that cannot be used.

    Returns
    -------
    RealStudy
        `correlations` over the entropy of single models, as in the paper, with its row in `paper`; `more` holds the
        other tables, `models` a row per model and score.

    Examples
    --------
    >>> study = cifar10h("predictions", data="data", out="study")  # doctest: +SKIP
    >>> print(study)  # doctest: +SKIP
    """
    predictions = required(predictions)
    return run_study(
        reference(data),
        predictions,
        paper=PAPER,
        paper_models=PAPER_MODELS,
        out=out,
        scores=scores,
        level=level,
        min_accuracy=min_accuracy,
        keep_going=keep_going,
        allow_chance=allow_chance,
        jobs=jobs,
        progress=progress,
        failures=failures,
    )
