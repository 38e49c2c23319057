"""Tensors → tallies: one sort for all metrics of 0/1 errors, one pass for a loss, and one read of the device for each.

From here on the numbers are those of rows in memory: `inference.intervals` makes the rest.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from uqeval._check import MEND, check_bits, check_rows, check_vector
from uqeval._errors import UQWarning, notify
from uqeval.inference.count import auc_of_sums, count_share, count_swept, pairs_of_sums
from uqeval.inference.intervals import estimate_ranking
from uqeval.inference.means import estimate_mean
from uqeval.inference.result import Estimate
from uqeval.inference.sizes import Sizes
from uqeval.inference.tally import AreaTally, AucTally, MeanTally, PairTally
from uqeval.metrics.areas import AUGRC, H_AUC, Accepted, Formula
from uqeval.metrics.registry import Metric
from uqeval.torch.checks import as_bits, check_tensors, missing, signed
from uqeval.torch.counting import SweptTensor, concordance, credits_of, read, sweep
from uqeval.torch.order import runs_of

Tally = AucTally | PairTally | AreaTally


def counts(metric: Metric) -> bool:
    """Whether tensors are enough for it: errors, a loss or confidences, without a model's probabilities."""
    return metric.tally in ("auc", "area") or metric.name in ("uq_c_index", "top_label_c_index", "accuracy")


def tally_of(metric: Metric, data: Sequence[Any]) -> Tally:
    """Of one metric that ranks rows, from the tensors that it needs."""
    if metric.tally == "pairs":
        return pair_tally(metric, data)
    return error_tally(metric, count_errors(data[0], data[1], [metric.formula]))


def estimate_of(metric: Metric, data: Sequence[Any], level: float) -> Estimate:
    """The interval of one metric, from the tensors that it needs."""
    if metric.tally == "mean":
        return _one(estimate_mean(metric, share_tally(*data), level))
    return _one(estimate_ranking(metric, tally_of(metric, data), level))


def _one(found: Any) -> Estimate:
    assert isinstance(found, Estimate)
    return found


def share_tally(error: Any) -> MeanTally:
    """Of the accuracy."""
    (error,) = check_tensors(error=error)
    bits, odd = as_bits(error)
    (wrong, bad), _ = read([bits.sum(), odd])
    if bad:
        check_bits("error", check_vector("error", error, hint=MEND))  # says what is wrong
    return count_share(len(error), wrong)


# ---- 0/1 errors -------------------------------------------------------------------------------------------------


def count_errors(score: Any, error: Any, formulas: Collection[Formula | Accepted | None]) -> SweptTensor:
    """All that metrics with these formulas (None: UQ-AUC) are made of."""
    score, error = check_tensors(score=score, error=error)
    bits, odd = as_bits(error)
    runs = runs_of(score, bits)
    cuts = [formula.coverage for formula in formulas if isinstance(formula, Accepted)]
    walks = any(isinstance(formula, Formula) and formula not in (AUGRC, H_AUC) for formula in formulas)
    swept, (bad, infinite) = sweep(runs, cuts, walks, [odd | missing(runs.ends), runs.ends.isinf().any()])
    if bad:
        check_rows(score, error, kind="error")  # says what is wrong
    if infinite:
        note_infinite(score)
    return swept


def error_tally(metric: Metric, swept: SweptTensor) -> AucTally | AreaTally:
    """Of a metric of 0/1 errors."""
    sums = swept.sums
    sizes = Sizes.of_rows(swept.right, sums.wrong, binary=True)
    if metric.tally == "auc":
        return auc_of_sums(sums.auc, sizes, sums.blocks <= 1)
    return count_swept(metric, swept, sizes)


# ---- a loss -----------------------------------------------------------------------------------------------------


def pair_tally(metric: Metric, data: Sequence[Any]) -> PairTally:
    """Of a metric of pairs that differ in the loss."""
    given = check_tensors(**dict(zip(metric.needs, data, strict=True)))
    if metric.made is None:
        score, loss = given
        odd = torch.zeros((), dtype=torch.bool, device=score.device)
    else:
        score, (loss, odd) = given[0], signed(*given[1:])
    rows = credits_of(score, loss)
    flags = [odd | missing(rows.ends, rows.loss_ends), rows.ends.isinf().any()]
    sums, constant, (bad, infinite) = concordance(rows, flags)
    if bad:  # says what is wrong
        check_rows(score, loss if metric.made is None else metric.made[1](*given[1:]), kind="loss")
    if infinite:
        note_infinite(score)
    return pairs_of_sums(sums, Sizes.of_rows(len(score), 0, binary=False), constant)


def note_infinite(score: Tensor) -> None:
    """Warns; that there are some is known already."""
    count = int(score.isinf().sum())
    notify(f"`score` has {count} infinite values; they rank first or last and tie.", UQWarning, stacklevel=5)
