"""The paper's study on CIFAR10-H: ten classes, about 50 human votes for each of the 10,000 test images."""

from typing import Any, Unpack

import numpy as np

from uqeval import datasets
from uqeval._check import Float
from uqeval.reproduce.human.judging import Reference
from uqeval.reproduce.human.run import Options, Paths, required, run_study
from uqeval.reproduce.human.study import RealStudy
from uqeval.reproduce.packaged import read_table

PAPER = read_table("human/paper.toml")["cifar10h"]


def reference(data: Any = None) -> Reference:
    """Labels and human votes of the 10,000 test images."""
    found = data if hasattr(data, "counts") else datasets.cifar10h(data)
    probs: Float = np.asarray(found.probs, dtype=np.float64)
    votes = np.asarray(found.counts).sum(axis=1)
    return Reference(
        study="cifar10h",
        title="CIFAR10-H",
        labels=np.asarray(found.labels, dtype=np.int64),
        classes=probs.shape[1],
        soft=probs.__getitem__,
        rated=np.ones(len(probs), dtype=bool),
        paper=PAPER,
        notes=PAPER["notes"],
        facts={"votes per image": f"{votes.min()} to {votes.max()}, {votes.mean():.1f} on average"},
    )


def cifar10h(predictions: Paths | None = None, *, data: Any = None, **options: Unpack[Options]) -> RealStudy:
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
        Folder for tables, figures and page, and for the store that lets a killed run go on; nothing is written without
        it.
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
    progress : callable(stage, done, total), optional
        Called after every model and every figure.
    failures : list of dict, optional
        "model", "file" and "reason" of models that could not be made; listed with those that cannot be used.
    before : dict of stage → seconds, optional
        How long it took to make the predictions; shown on the page with the other times.

    Returns
    -------
    RealStudy
        `correlations` over the entropy of single models, as in the paper, with its row in `paper`; `tables` holds the
        other tables, `models` a row per model and score.

    Examples
    --------
    >>> study = cifar10h("predictions", data="data", out="study")  # doctest: +SKIP
    >>> print(study)  # doctest: +SKIP
    """
    wanted = required(predictions)
    return run_study(reference(data), wanted, **options)
