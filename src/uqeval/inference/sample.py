"""Rows that a metric is estimated from, with what several metrics share computed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval import kernels
from uqeval._check import Float, Int
from uqeval.kernels import AucSums
from uqeval.metrics.selective import Blocks, Steps, aurc_best, mean_risk, tie_blocks, walk

__all__ = ["Sample", "cluster_sums", "kish"]


def kish(weights: Float) -> float:
    """Effective number of rows of unequal weight, (Σw)²/Σw²; 0 for none."""
    squares = kernels.order_free_sum(weights * weights)
    return kernels.order_free_sum(weights) ** 2 / squares if squares > 0 else 0.0


def cluster_sums(rows: NDArray[Any], clusters: Int) -> Float:
    """Sum over the rows of each cluster."""
    return np.bincount(clusters, weights=rows.astype(np.float64)).astype(np.float64)


@dataclass
class Sample:
    """A score against a target (0/1 errors as uint8, or a loss), with weights and clusters; all clean."""

    score: Float
    target: NDArray[Any]
    weights: Float | None = None
    clusters: Int | None = None
    counts: tuple[Int, Int] | None = field(default=None, repr=False)  # credit2, comparable, where known already

    @cached_property
    def n(self) -> int:
        return len(self.target)

    @cached_property
    def binary(self) -> bool:
        return self.target.dtype == np.uint8

    @cached_property
    def w(self) -> Float:
        return np.ones(self.n) if self.weights is None else self.weights

    @cached_property
    def total_weight(self) -> float:
        return float(self.n) if self.weights is None else kernels.order_free_sum(self.weights)

    @cached_property
    def plain(self) -> bool:
        """Independent rows of equal weight."""
        return self.weights is None and self.clusters is None

    @cached_property
    def n_clusters(self) -> int | None:
        return None if self.clusters is None else int(self.clusters.max()) + 1

    @cached_property
    def n_errors(self) -> int:
        """Rows with a positive loss (the errors, when the target is 0/1)."""
        return int(np.count_nonzero(self.target))

    @cached_property
    def constant_score(self) -> bool:
        return bool((self.score == self.score[0]).all())

    @cached_property
    def loss(self) -> Float:
        return self.target.astype(np.float64)

    @cached_property
    def blocks(self) -> Blocks:
        return tie_blocks(self.score, self.target, self.weights)

    @cached_property
    def steps(self) -> Steps:
        return walk(self.blocks)

    @cached_property
    def aurc(self) -> float:
        return mean_risk(self.steps)

    @cached_property
    def aurc_best(self) -> float:
        return aurc_best(self.target, self.weights)

    @cached_property
    def error_rate(self) -> float:
        return float(self.blocks.bad.sum() / self.blocks.weight.sum())

    @cached_property
    def auc(self) -> tuple[Int, AucSums]:
        """Per-row counts of a 0/1 target, rows of equal weight."""
        return kernels.auc_counts(self.score, self.target)

    @cached_property
    def pairs(self) -> tuple[Float, Float]:
        """c_i and m_i of the SPEC: credit and weight of the comparable rows (weights included, not doubled)."""
        if self.weights is not None:
            if self.binary:
                return kernels.weighted_auc_counts(self.score, self.target, self.weights)
            return kernels.weighted_pair_counts(self.score, self.loss, self.weights)
        if self.binary:
            credit2, sums = self.auc
            wrong = self.target.astype(bool)
            comparable = np.where(wrong, self.n - sums.wrong, sums.wrong)
        else:
            credit2, comparable = self.pair_counts
        return credit2 / 2.0, comparable.astype(np.float64)

    @cached_property
    def pair_counts(self) -> tuple[Int, Int]:
        """Integer counts of a loss, rows of equal weight."""
        if self.counts is not None:
            return self.counts
        credit2, comparable = kernels.pair_counts(self.score[None], self.loss)
        return credit2[0], comparable

    def within(self) -> tuple[Float, Float]:
        """c_i and m_i over pairs inside the row's own cluster."""
        assert self.clusters is not None
        credit, comparable = kernels.within_counts(self.score, self.loss, self.clusters, self.weights)
        if self.weights is None:
            credit = credit / 2.0
        return credit.astype(np.float64), comparable.astype(np.float64)
