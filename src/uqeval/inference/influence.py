"""Influence values: how much each row moves a metric, as n numbers of (weighted) mean 0.

Their mean square gives the variance, their sums over clusters the cluster-robust one, their differences that of a
difference. One mechanism for every metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from uqeval._check import Float
from uqeval.inference.sample import Sample
from uqeval.metrics.selective import Blocks, Steps, augrc_value, h_auc_value, mean_risk, tie_blocks, walk

__all__ = ["INFLUENCE", "aurc_influence", "influence_variance"]


def concordance_influence(sample: Sample) -> Float:
    """UQ-AUC and UQ-C-index: 2W(c_i − C·m_i)/M."""
    credit, comparable = sample.pairs
    total = float((sample.w * comparable).sum())
    value = float((sample.w * credit).sum()) / total
    return 2.0 * sample.total_weight * (credit - value * comparable) / total


def _by_row(blocks: Blocks, per_block: Float) -> Float:
    result = np.empty(len(blocks.row))
    result[blocks.row] = per_block if len(per_block) == len(result) else np.repeat(per_block, blocks.size)
    return result


def aurc_influence(blocks: Blocks, steps: Steps, loss: Float) -> Float:
    """R_i − T + Σ_{k ≥ r_i} step_k (v_i − R_k)/W_k, averaged over the places of the row's tie block."""
    per_weight = steps.step / steps.weight
    later = np.cumsum(per_weight[::-1])[::-1]
    later_risk = np.cumsum((per_weight * steps.risk)[::-1])[::-1]
    rest = steps.risk - later_risk - mean_risk(steps)
    if len(blocks.size) < len(blocks.row):
        later, rest = (np.add.reduceat(x, blocks.first) / blocks.size for x in (later, rest))
    return loss * _by_row(blocks, later) + _by_row(blocks, rest)


def _aurc(sample: Sample) -> Float:
    return aurc_influence(sample.blocks, sample.steps, sample.loss)


def _best(sample: Sample) -> Float:
    """Influence on the oracle's AURC: in closed form for 0/1 errors, else as AURC of the loss itself."""
    if sample.binary:
        rate = sample.error_rate
        slope = -math.log1p(-rate) if rate < 1 else 0.0
        return slope * (sample.loss - rate)
    blocks = tie_blocks(sample.loss, sample.target, sample.weights)
    return aurc_influence(blocks, walk(blocks), sample.loss)


def _e_aurc(sample: Sample) -> Float:
    return _aurc(sample) - _best(sample)


def _naurc(sample: Sample) -> Float:
    best, rate = sample.aurc_best, sample.error_rate
    ratio = (sample.aurc - best) / (rate - best)
    of_best = _best(sample)
    return (_aurc(sample) - of_best - ratio * (sample.loss - rate - of_best)) / (rate - best)


def _augrc(sample: Sample) -> Float:
    """v_i P(S > s_i) + E[V; S < s_i] − 2T, half of the ties."""
    blocks = sample.blocks
    total = blocks.weight.sum()
    above = total - np.cumsum(blocks.weight) + blocks.weight / 2
    bad_below = np.cumsum(blocks.bad) - blocks.bad / 2
    value = augrc_value(blocks)
    return (sample.loss * _by_row(blocks, above) + _by_row(blocks, bad_below)) / total - 2 * value


def _h_auc(sample: Sample) -> Float:
    """(1 − v_i) P(V=1, S > s_i) + v_i P(V=0, S < s_i) − 2T, half of the ties."""
    blocks = sample.blocks
    total = blocks.weight.sum()
    right = blocks.weight - blocks.bad
    bad_above = blocks.bad.sum() - np.cumsum(blocks.bad) + blocks.bad / 2
    right_below = np.cumsum(right) - right / 2
    v = sample.loss
    return ((1 - v) * _by_row(blocks, bad_above) + v * _by_row(blocks, right_below)) / total - 2 * h_auc_value(blocks)


INFLUENCE: dict[str, Callable[[Sample], Float]] = {
    "uq_auc": concordance_influence,
    "uq_c_index": concordance_influence,
    "aurc": _aurc,
    "e_aurc": _e_aurc,
    "naurc": _naurc,
    "augrc": _augrc,
    "g_auc": lambda sample: 2.0 * _augrc(sample),
    "h_auc": _h_auc,
    "auarc": lambda sample: -_aurc(sample),
    "prr": lambda sample: -_naurc(sample),
}


def influence_variance(sample: Sample, influence: Float, inflate: Float | None = None) -> float:
    """Var = Σ(w_i IF_i/W)²·n/(n − 1), or summed inside clusters with G/(G − 1).

    `inflate` replaces n/(n − 1) by a factor for each row.
    """
    from uqeval import kernels

    part = sample.w * influence / sample.total_weight
    if sample.clusters is not None:
        groups = np.bincount(sample.clusters, weights=part)
        count = len(groups)
        return float((groups * groups).sum()) * count / (count - 1) if count > 1 else float("nan")
    if inflate is None:
        return kernels.order_free_sum(part * part) * sample.n / (sample.n - 1)
    return kernels.order_free_sum(part * part * inflate)
