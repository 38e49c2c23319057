"""Out-of-distribution detection: does the score tell known inputs from foreign ones?

`score_in` belongs to in-distribution rows, `score_out` to the others; higher means less sure. Without foreign rows:
does it rise with the distance to what is known?
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uqeval._check import MEND, Bit, Float, check_choice, check_features, check_lengths, check_rows, check_vector
from uqeval._errors import InputError, UQWarning, notify
from uqeval.metrics.areas import Ranking, tie_blocks
from uqeval.metrics.concordance import c_index_value
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


def distance_c_index(
    score: ArrayLike, features: ArrayLike, *, reference: ArrayLike | None = None, weights: ArrayLike | None = None
) -> float:
    r"""Probability that of two rows the one further from what is known has the higher score, ties counting half.

    .. math:: P(S < S' \mid D < D') + \tfrac12 P(S = S' \mid D < D'), \quad D = \min_{r \ne x} \lVert x - r \rVert

    For when there are no foreign rows to judge a score by (the paper's appendix on out-of-distribution inputs). No
    theorem says that a good score has a high one: being near says nothing of which class is right, and the distance
    must mean something where the features live. Its interval: `uqeval.inference.estimate_distance_c_index`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    features : array-like of shape (n, d)
        Of the same rows; their Euclidean distance is taken as it is, so scale them as they should count.
    reference : array-like of shape (m, d), optional
        What is known, usually the training rows. Without it the nearest *other* row of `features` is taken, as in the
        paper; copies then have the distance 0.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0; each pair counts by the product of its weights. Distances are those of all rows.

    Returns
    -------
    float
        In [0, 1]; 0.5 is a useless score; NaN (with a warning) if all rows are equally far.

    Examples
    --------
    >>> train = [[0.0, 0.0], [1.0, 0.0]]
    >>> distance_c_index([0.1, 0.2, 0.2, 0.9], [[0.0, 0.1], [1.0, 0.5], [1.0, 2.0], [9.0, 9.0]], reference=train)
    0.9166666666666666
    """
    distance = nearest_distances(score, features, reference)
    s, d, w, _ = check_rows(score, distance, weights, kind="loss")
    return c_index_value(s, d, w, "distance C-index", "all rows are equally far")


def nearest_distances(score: ArrayLike, features: ArrayLike, reference: ArrayLike | None) -> Float:
    """Of each row to the nearest of the reference, or to the nearest other row."""
    from uqeval.scores.neighbours import neighbour_distances  # of features, which no other metric has

    x = check_features(features)
    check_lengths(2, score=check_vector("score", score, finite=False, hint=MEND), features=x)
    if reference is None:
        return neighbour_distances(x, x, 1, own=True)
    return neighbour_distances(x, check_features(reference, name="reference", columns=x.shape[1]), 1)
