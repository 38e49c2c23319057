"""The paper's study on OASST2: messages of conversations, found positive or negative by people, in many languages."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from uqeval import datasets
from uqeval._check import Float
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.human.run import Options, Paths, required, run_study
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.packaged import read_table

PAPER = read_table("human/paper.toml")["oasst2"]


def reference(data: Any = None, languages: Sequence[str] | None = None) -> Reference:
    """Votes on the messages; `data` may also be messages that are loaded already."""
    found = data if hasattr(data, "soft_labels") else datasets.oasst2(data, languages=languages)
    soft_labels: Float = np.asarray(found.soft_labels, dtype=np.float64)
    rated = np.isfinite(soft_labels).all(axis=1) & (np.asarray(found.votes) > 0)
    many = sorted(set(map(str, found.languages)))
    facts = {"languages": f"{len(many)}: {', '.join(many)}", "messages": f"{len(soft_labels):,}"}
    if getattr(found, "generated", False):
        facts["generated"] = "The messages and their votes are generated: a dry run that says nothing about OASST2."
    return Reference(
        study="oasst2",
        title="OASST2, a dry run on generated messages" if "generated" in facts else "OASST2",
        labels=np.asarray(found.labels, dtype=np.int64),
        classes=2,
        soft=soft_labels.__getitem__,
        rated=rated,
        paper=PAPER,
        facts=facts,
        notes=[*([facts["generated"]] if "generated" in facts else []), *PAPER["notes"]],
        text=True,
    )


def oasst2(
    predictions: Paths | None = None,
    *,
    data: Any = None,
    languages: Sequence[str] | None = None,
    **options: Unpack[Options],
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
    out, scores, level, min_accuracy, keep_going, allow_chance, jobs, progress, failures, before
        As in `uqeval.reproduce.cifar10h`.

    Returns
    -------
    RealStudy
        As in `uqeval.reproduce.cifar10h`.

    Examples
    --------
    >>> study = oasst2("predictions", data="data", out="study")  # doctest: +SKIP
    """
    wanted = required(predictions)
    return run_study(reference(data, languages), wanted, **options)
