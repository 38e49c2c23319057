"""Tensors → tallies: one sort for all metrics of 0/1 errors, one pass for a loss, and one read of the device for each.

From here on the numbers are those of rows in memory: `inference.intervals` makes the rest.
"""

from collections.abc import Collection, Sequence
from typing import Any

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
from uqeval.torch.checks import as_bits, check_tensors, signed
from uqeval.torch.counting import Odd, SweptTensor, concordance, ranked, sweep
from uqeval.torch.reading import read

Tally = AucTally | PairTally | AreaTally


def counts(metric: Metric) -> bool:
    """Whether tensors are enough for it: errors, a loss or confidences, without a model's probabilities."""
    return metric.tally in ("auc", "area") or metric.name in ("uq_c_index", "top_label_c_index", "accuracy")


def estimate_of(metric: Metric, data: Sequence[Any], level: float) -> Estimate:
    """The interval of one metric, from the tensors that it needs."""
    if metric.tally == "mean":
        return one(estimate_mean(metric, share_tally(*data), level))
    return one(estimate_ranking(metric, tally_of(metric, data), level))


def one(found: Any) -> Estimate:
    """Of one group of rows."""
    assert isinstance(found, Estimate)
    return found


def tally_of(metric: Metric, data: Sequence[Any], stacklevel: int = 4) -> Tally:
    """Of one metric that ranks rows, from the tensors that it needs."""
    given = check_tensors(**dict(zip(metric.needs, data, strict=True)))
    score = given[0]
    tally: Tally
    if metric.tally == "pairs":
        odd: Tensor | None = None
        loss = given[1]
        if metric.made is not None:
            loss, odd = signed(*given[1:])
        tally, found = count_pairs(score, loss, odd)
    else:
        swept, found = count_errors(score, given[1], [metric.formula])
        tally = error_tally(metric, swept)
    if found.refused:  # the checks of arrays say why
        target = given[1] if metric.made is None else metric.made[1](*given[1:])
        check_rows(score, target, kind="loss" if metric.tally == "pairs" else "error")
    if found.infinite:
        count = int(score.isinf().sum())
        notify(f"`score` has {count} infinite values; they rank first or last and tie.", UQWarning, stacklevel)
    return tally


def share_tally(error: Any) -> MeanTally:
    """Of the accuracy."""
    (error,) = check_tensors(error=error)
    bits, odd = as_bits(error)
    (wrong, refused), _ = read([bits.sum(), odd])
    if refused:
        check_bits("error", check_vector("error", error, hint=MEND))
    return count_share(len(error), wrong)


# ---- 0/1 errors -------------------------------------------------------------------------------------------------


def count_errors(
    score: Tensor, error: Tensor, formulas: Collection[Formula | Accepted | None]
) -> tuple[SweptTensor, Odd]:
    """All that metrics with these formulas (None: UQ-AUC) are made of."""
    cuts = [formula.coverage for formula in formulas if isinstance(formula, Accepted)]
    walks = any(isinstance(formula, Formula) and formula not in (AUGRC, H_AUC) for formula in formulas)
    return sweep(ranked(score, error), cuts, walks)


def error_tally(metric: Metric, swept: SweptTensor) -> AucTally | AreaTally:
    """Of a metric of 0/1 errors."""
    sums = swept.sums
    sizes = Sizes.of_rows(swept.right, sums.wrong, binary=True)
    if metric.tally == "auc":
        return auc_of_sums(sums.auc, sizes, sums.blocks <= 1)
    return count_swept(metric, swept, sizes)


# ---- a loss -----------------------------------------------------------------------------------------------------


def count_pairs(score: Tensor, loss: Tensor, odd: Tensor | None = None) -> tuple[PairTally, Odd]:
    """Of rows that differ in the loss; `odd` is another flag."""
    sums, constant, found = concordance(score, loss, odd)
    return pairs_of_sums(sums, Sizes.of_rows(len(score), 0, binary=False), constant), found
