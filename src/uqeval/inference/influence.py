"""Influence values: how much each row moves a metric, as n numbers of (weighted) mean 0.

Their mean square gives the variance, their sums over clusters the cluster-robust one, their differences that of a
difference. One mechanism for every metric.
"""

import math

import numpy as np

from uqeval._check import Float
from uqeval.inference.sample import Sample
from uqeval.metrics.areas import Accepted, Blocks, Ranked
from uqeval.metrics.calibration import Bins, l1
from uqeval.metrics.registry import Metric


def concordance_influence(sample: Sample) -> Float:
    """UQ-AUC and UQ-C-index: 2W(c_i − C·m_i)/M."""
    credit, comparable = sample.pairs
    total = float((sample.rows.w * comparable).sum())
    value = float((sample.rows.w * credit).sum()) / total
    return 2.0 * sample.rows.total_weight * (credit - value * comparable) / total


def area_influence(sample: Sample, metric: Metric) -> Float:
    """What the metric's formula makes of the influences on the areas (before its affine map)."""
    assert metric.formula is not None
    ranked = sample.ranked
    if isinstance(metric.formula, Accepted):
        return _accepted_influence(ranked, sample.loss, metric.formula)
    slopes = metric.formula.slopes(ranked)
    total = np.zeros(sample.n)
    aurc = aurc_influence(ranked, sample.loss) if slopes.aurc or slopes.excess else total
    best = _best_influence(sample) if slopes.excess or slopes.span else total
    if slopes.aurc:
        total = total + slopes.aurc * aurc
    if slopes.excess:
        total = total + slopes.excess * (aurc - best)
    if slopes.span:
        total = total + slopes.span * (sample.loss - ranked.rate - best)
    if slopes.augrc:
        total = total + slopes.augrc * _augrc_influence(ranked, sample.loss)
    if slopes.h_auc:
        total = total + slopes.h_auc * _h_auc_influence(ranked, sample.loss)
    return total / metric.formula.per(ranked)


def _by_row(blocks: Blocks, per_block: Float) -> Float:
    result = np.empty(len(blocks.row))
    result[blocks.row] = per_block if len(per_block) == len(result) else np.repeat(per_block, blocks.size)
    return result


def later_shares(ranked: Ranked) -> Float:
    """Σ step/weight over the coverages that accept a row: what a wrong row adds to W·AURC; by row."""
    per_weight = ranked.steps.step / ranked.steps.weight
    later = np.cumsum(per_weight[::-1])[::-1]
    blocks = ranked.blocks
    return _by_row(blocks, np.add.reduceat(later, blocks.first) / blocks.size)


def aurc_influence(ranked: Ranked, loss: Float) -> Float:
    """R_i − T + Σ_{k ≥ r_i} step_k (v_i − R_k)/W_k, averaged over the places of the row's tie block."""
    blocks, steps = ranked.blocks, ranked.steps
    per_weight = steps.step / steps.weight
    later = np.cumsum(per_weight[::-1])[::-1]
    later_risk = np.cumsum((per_weight * steps.risk)[::-1])[::-1]
    rest = steps.risk - later_risk - ranked.aurc
    if len(blocks.size) < len(blocks.row):
        later, rest = (np.add.reduceat(x, blocks.first) / blocks.size for x in (later, rest))
    return loss * _by_row(blocks, later) + _by_row(blocks, rest)


def best_slope(rate: float) -> float:
    """How the oracle's AURC of 0/1 errors moves with their rate: −ln(1 − rate)."""
    return -math.log1p(-rate) if rate < 1 else 0.0


def _best_influence(sample: Sample) -> Float:
    """On the oracle's AURC: in closed form for 0/1 errors, else as AURC of the loss itself."""
    if sample.binary:
        rate = sample.ranked.rate
        return best_slope(rate) * (sample.loss - rate)
    return aurc_influence(sample.ranked.oracle, sample.loss)


def _augrc_influence(ranked: Ranked, loss: Float) -> Float:
    """v_i P(S > s_i) + E[V; S < s_i] − 2T, half of the ties."""
    blocks = ranked.blocks
    total = blocks.weight.sum()
    above = total - np.cumsum(blocks.weight) + blocks.weight / 2
    bad_below = np.cumsum(blocks.bad) - blocks.bad / 2
    return (loss * _by_row(blocks, above) + _by_row(blocks, bad_below)) / total - 2 * ranked.augrc


def _h_auc_influence(ranked: Ranked, loss: Float) -> Float:
    """(1 − v_i) P(V=1, S > s_i) + v_i P(V=0, S < s_i) − 2T, half of the ties."""
    blocks = ranked.blocks
    total = blocks.weight.sum()
    right = blocks.weight - blocks.bad
    bad_above = blocks.bad.sum() - np.cumsum(blocks.bad) + blocks.bad / 2
    right_below = np.cumsum(right) - right / 2
    return ((1 - loss) * _by_row(blocks, bad_above) + loss * _by_row(blocks, right_below)) / total - 2 * ranked.h_auc


def _accepted_influence(ranked: Ranked, loss: Float, rule: Accepted) -> Float:
    """(a_i (v_i − m) − c (R − m))/c: a row moves the risk R of the share c, and the cut, where the risk is m."""
    blocks = ranked.blocks
    stop = np.cumsum(blocks.weight)
    share = rule.share(stop - blocks.weight, stop, float(stop[-1]))
    risk, near = ranked.accepted(rule.coverage)
    return _by_row(blocks, share) * (loss - near) / rule.coverage - (risk - near)


def ece_influence(bins: Bins, confidence: Float, correct: Float) -> Float:
    """On the plug-in ECE with its bins held fixed."""
    return np.sign(bins.gap)[bins.row_bin] * (correct - confidence) - l1(bins)
