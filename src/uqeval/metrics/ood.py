"""Out-of-distribution detection: does the score tell known inputs from foreign ones?

`score_in` belongs to in-distribution rows, `score_out` to the others; higher means less sure.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import MEND, Bit, Float, check_choice, check_vector
from uqeval._errors import InputError, UQWarning, notify
from uqeval.metrics.areas import Ranking, tie_blocks
from uqeval.metrics.ranking import auc_value


def check_in_out(score_in: ArrayLike, score_out: ArrayLike) -> tuple[Float, Float]:
    """Clean scores of both sides."""
    sides = []
    for name, value in (("score_in", score_in), ("score_out", score_out)):
        side = check_vector(name, value, finite=False, hint=MEND)
        if len(side) == 0:
            raise InputError(f"`{name}` is empty. Pass at least one score on each side.")
        sides.append(side)
    infinite = [name for name, side in zip(("score_in", "score_out"), sides, strict=True) if np.isinf(side).any()]
    if infinite:
        names = " and ".join(f"`{name}`" for name in infinite)
        notify(f"{names}: infinite values rank first or last and tie.", UQWarning, stacklevel=3)
    return sides[0], sides[1]


def stack(score_in: Float, score_out: Float) -> tuple[Float, Bit]:
    """One score array and 1 where the row is out of distribution."""
    out = np.zeros(len(score_in) + len(score_out), dtype=np.uint8)
    out[len(score_in) :] = 1
    return np.concatenate([score_in, score_out]), out


def ood_auroc(score_in: ArrayLike, score_out: ArrayLike) -> float:
    """Probability that a foreign input scores higher than a known one, ties counting half.

    Examples
    --------
    >>> ood_auroc(score_in=[0.1, 0.2, 0.5], score_out=[0.5, 0.9])
    0.9166666666666666
    """
    score, out = stack(*check_in_out(score_in, score_out))
    return auc_value(score, out, None)


def rank_needed(n: int, share: float) -> int:
    """The smallest k with k/n ≥ share, for the decimal that was typed: 0.55 of 100 is 55, not 56."""
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"`tpr` must lie in (0, 1], as 0.95; it is {share!r}.")
    from fractions import Fraction

    exact = Fraction(repr(float(share))) * n
    return -(-exact.numerator // exact.denominator)


def fpr_at_tpr(score_in: ArrayLike, score_out: ArrayLike, *, tpr: float = 0.95) -> float:
    """Share of foreign inputs accepted at the smallest threshold that accepts a share `tpr` of the known ones.

    The threshold is an order statistic of `score_in`, without interpolation; rows at the threshold are accepted.

    Examples
    --------
    >>> fpr_at_tpr(score_in=[0.1, 0.2, 0.3, 0.4], score_out=[0.2, 0.6, 0.7, 0.8], tpr=0.75)
    0.25
    """
    inside, outside = check_in_out(score_in, score_out)
    threshold = np.sort(inside)[rank_needed(len(inside), tpr) - 1]
    return float((outside <= threshold).mean())


def ood_aupr(score_in: ArrayLike, score_out: ArrayLike, *, positive: Literal["out", "in"] = "out") -> float:
    """Average precision with the foreign (or the known) inputs as positives; tied scores enter together.

    A useless score gets about the share of positives, so compare with that.

    Examples
    --------
    >>> ood_aupr(score_in=[0.1, 0.2], score_out=[0.8, 0.9])
    1.0
    """
    inside, outside = check_in_out(score_in, score_out)
    score, out = stack(inside, outside)
    if check_choice("positive", positive, ("out", "in")) == "out":
        return average_precision(-score, out)
    return average_precision(score, 1 - out)


def average_precision(order: Float, positive: Bit) -> float:
    """Σ precision · gained recall over thresholds, from the smallest `order` up."""
    blocks = tie_blocks(Ranking(order), positive, None)
    found = np.cumsum(blocks.bad)
    precision = found / np.cumsum(blocks.weight)
    return float((precision * blocks.bad).sum() / found[-1])
