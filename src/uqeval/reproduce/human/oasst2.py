"""The paper's study on OASST2: messages of conversations, found positive or negative by people, in many languages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uqeval import datasets
from uqeval._check import Float, Int
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.human.run import Failures, Paths, RealStudy, required, run_study

__all__ = ["PAPER", "PAPER_MODELS", "oasst2", "reference"]

PAPER_MODELS = 70
PAPER: list[dict[str, Any]] = [
    {"metric": "uq_auc", "truth": "kendall_phi", "r": 0.8250, "low": 0.7310, "high": 0.8882},
    {"metric": "uq_auc", "truth": "kendall_varphi", "r": 0.7169, "low": 0.5784, "high": 0.8153},
    {"metric": "uq_c_index", "truth": "kendall_phi", "r": 0.7401, "low": 0.6104, "high": 0.8312},
    {"metric": "uq_c_index", "truth": "kendall_varphi", "r": 0.9888, "low": 0.9819, "high": 0.9931},
]
_NOTES = [
    "The paper runs 70 zero-shot classifiers of the Hugging Face hub; it states neither its sentences nor how 15 "
    "categories become two probabilities, so its row need not be met even with the same models.",
    "A model is judged on the messages in languages that it supports, so models are not all judged on the same rows.",
    "Two classes: one versus rest is the direct metric. The label is the side that most votes are on.",
]


def reference(data: Any = None, languages: Sequence[str] | None = None) -> Reference:
    """Votes on the messages; `data` may also be messages that are loaded already."""
    found = data if hasattr(data, "soft_labels") else datasets.oasst2(data, languages=languages)
    soft_labels: Float = np.asarray(found.soft_labels, dtype=np.float64)
    rated = np.isfinite(soft_labels).all(axis=1) & (np.asarray(found.votes) > 0)

    def soft(rows: Int) -> Float:
        return soft_labels[rows]

    many = sorted(set(map(str, found.languages)))
    notes = list(_NOTES)
    facts = {"languages": f"{len(many)}: {', '.join(many)}", "messages": f"{len(soft_labels):,}"}
    if getattr(found, "generated", False):
        facts["generated"] = "The messages and their votes are generated: a dry run that says nothing about OASST2."
        notes.insert(0, facts["generated"])
    return Reference(
        study="oasst2",
        title="OASST2, a dry run on generated messages" if "generated" in facts else "OASST2",
        labels=np.asarray(found.labels, dtype=np.int64),
        classes=2,
        soft=soft,
        rated=rated,
        facts=facts,
        notes=notes,
        text=True,
    )


def oasst2(
    predictions: Paths | None = None,
    *,
    data: Any = None,
    languages: Sequence[str] | None = None,
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
    """Do UQ-AUC and UQ-C-index rank zero-shot text classifiers as people's votes do?

    Parameters
    ----------
    predictions : path or list of paths
        Folders and files of two logits (negative, positive) for each message; a manifest may name the rows that a
        model covers.
    data : path or OASST2, optional
        The dataset's folder or file, or messages from `uqeval.datasets.oasst2`.
    languages : list of str, optional
        Take messages in these languages only; predictions must be of the same messages.
    out, scores, level, min_accuracy, keep_going, allow_chance, jobs, progress, failures
        As in `uqeval.reproduce.cifar10h`.

    Returns
    -------
    RealStudy
        As in `uqeval.reproduce.cifar10h`.

    Examples
    --------
    >>> study = oasst2("predictions", data="data", out="study")  # doctest: +SKIP
    """
    predictions = required(predictions)
    return run_study(
        reference(data, languages),
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
