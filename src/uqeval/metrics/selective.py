"""Selective prediction: how many errors are accepted when the most uncertain rows are sent to a human?

One tie rule: a block of tied scores is accepted in random order, and every number is the expectation over it.
Two different areas live here and must not be mixed up: Geifman's AURC averages the risk over coverages, while
AUGRC (Traub et al. 2024) averages the accepted errors; the G-AUC of the paper is 2·AUGRC and not AURC.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Float, Int, Nan, check_rows
from uqeval._errors import InputError, UndefinedMetricWarning, notify
from uqeval.metrics.areas import RATIO, Ranked, Ranking, tie_blocks
from uqeval.metrics.swept import Swept, ranked_by

Kind = Literal["error", "loss01"]


def _ranked(
    score: ArrayLike, error: ArrayLike, weights: ArrayLike | None, nan: Nan, kind: Kind = "loss01"
) -> Swept | Ranked:
    s, e, w, _ = check_rows(score, error, weights, kind=kind, nan=nan)
    found: Swept | Ranked = ranked_by(Ranking(s), e, w)
    return found


def aurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Area under the risk–coverage curve (Geifman & El-Yaniv 2018): the mean risk over coverages 1/n, 2/n, …, 1.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    weights : array-like of shape (n,), optional
        Row weights ≥ 0. A weight of 2 is not the same as two copies: AURC counts coverages row by row.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1], lower is better; a constant score gets the error rate.

    Examples
    --------
    >>> aurc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0625
    """
    return _ranked(score, error, weights, nan).aurc


def e_aurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """AURC minus the AURC of the oracle on the same rows: 0 for a perfect ranking, never below 0 without weights.

    Examples
    --------
    >>> e_aurc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0
    """
    return _ranked(score, error, weights, nan, "error").excess


def naurc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """AURC between the oracle (0) and a useless score (1); above 1 is worse than useless.

    `error` may be a loss in [0, 1]. NaN (with a warning) where all rows have the same loss.

    Examples
    --------
    >>> naurc(score=[0, 0, 0, 0], error=[0, 1, 0, 0])
    1.0
    """
    return _defined(_ranked(score, error, weights, nan))


def _defined(ranked: Swept | Ranked) -> float:
    if ranked.span == 0:
        notify("nAURC is undefined: all losses are equal.", UndefinedMetricWarning, stacklevel=3)
    return float(RATIO.value(ranked))


def prr(
    score: ArrayLike,
    error: ArrayLike,
    *,
    max_rejection: float = 1.0,
    weights: ArrayLike | None = None,
    nan: Nan = "raise",
) -> float:
    """Prediction–rejection ratio, 1 − nAURC over the full range: 1 for the oracle, 0 for a useless score.

    With a smaller `max_rejection` only the risks while at most that share of the rows is rejected count, as
    lm-polygraph reports it at 0.5. Where no scores are tied it is theirs, but for the noise of the random orders that
    they draw; tied rows are taken in expectation, not as they come, and NaN is refused, not taken for most certain.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1], as 1 − quality of a generated text.
    max_rejection : float
        In (0, 1]: the mean is over the last ⌊max_rejection·n⌋ of the n coverages; with weights over those of the last
        of the weight, as large a share of it.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        At most 1; NaN (with a warning) where the oracle is no better than a useless score.

    Examples
    --------
    >>> prr(score=[1, 2, 3, 4], error=[0, 0, 0.5, 1])
    1.0
    >>> round(prr(score=[1, 3, 2, 4], error=[0, 0, 0.5, 1], max_rejection=0.5), 4)
    1.0
    """
    if max_rejection == 1.0:
        return 1.0 - _defined(_ranked(score, error, weights, nan))
    if not isinstance(max_rejection, int | float) or not 0 < max_rejection < 1:
        raise InputError(f"`max_rejection` must lie in (0, 1], as 0.5; it is {max_rejection!r}.")
    s, e, w, _ = check_rows(score, error, weights, kind="loss01", nan=nan)
    rows = Ranked(Ranking(s), e, w, rejected=max_rejection)
    if rows.span == 0:
        notify("PRR is undefined: no order of the rows is better than any other.", UndefinedMetricWarning, stacklevel=2)
    return 1.0 - float(RATIO.value(rows))


def auarc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """Area under the accuracy–rejection curve (AURAC), 1 − AURC. `error` may be a loss in [0, 1].

    The mean over all n coverages: a model that is always right gets 1. A sum of 20 rectangles, as some code has it,
    gives it 0.947.

    Examples
    --------
    >>> auarc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.9375
    """
    return 1.0 - _ranked(score, error, weights, nan).aurc


def augrc(
    score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, unbiased: bool = False, nan: Nan = "raise"
) -> float:
    """Area under the generalised risk–coverage curve (Traub et al. 2024): mean share of accepted errors.

    For 0/1 errors it equals (1 − UQ-AUC)·err·(1 − err) + err²/2 exactly. It is not AURC, which averages
    the risk among accepted rows instead and can order two scores the other way round.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    unbiased : bool
        Leave out the pairs of a row with itself.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1/2], lower is better; the optimum is err²/2.

    Examples
    --------
    >>> augrc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.03125
    """
    ranked = _ranked(score, error, weights, nan)
    if not unbiased:
        return ranked.augrc
    if isinstance(ranked, Swept):
        n = ranked.sums.rows
        return (ranked.accepted2 - ranked.sums.wrong) / (2 * n * (n - 1))
    w = np.ones(len(ranked.loss)) if ranked.weights is None else ranked.weights
    total, own = kernels.order_free_sum(w), kernels.order_free_sum(w * w)
    return (ranked.augrc * total * total - kernels.order_free_sum(w * w * ranked.loss) / 2) / (total * total - own)


def g_auc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """The paper's G-AUC, (1 − ACC)² + 2·(1 − UQ-AUC)·(1 − ACC)·ACC, which is 2·AUGRC.

    The paper calls it AURC, but its proof takes a ratio of averages where Geifman's AURC is an average of
    ratios; the two can order scores differently. Lower is better.

    Examples
    --------
    >>> g_auc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.0625
    """
    return 2.0 * _ranked(score, error, weights, nan, "error").augrc


def h_auc(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> float:
    """The paper's H-AUC, UQ-AUC·(1 − ACC)·ACC, in [0, 1/4], higher is better.

    Only for scores of one and the same predictor: across models a less accurate one can look better.

    Examples
    --------
    >>> h_auc(score=[1, 2, 3, 4], error=[0, 0, 0, 1])
    0.1875
    """
    return _ranked(score, error, weights, nan, "error").h_auc


def selective_accuracy(
    score: ArrayLike, error: ArrayLike, coverage: float = 0.9, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> float:
    """Accuracy of the surest predictions: of the share `coverage` of the rows with the lowest scores.

    Tied rows at the cut are accepted in random order, and so is a fraction of a row: the value is the expectation.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1].
    coverage : float
        Share of the rows (by weight) that is accepted, above 0 and at most 1.
    weights : array-like of shape (n,), optional
        Row weights ≥ 0.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.

    Returns
    -------
    float
        In [0, 1]; 1 less the risk at that coverage. At coverage 1 it is the accuracy.

    Examples
    --------
    >>> selective_accuracy(score=[1, 2, 3, 4, 5], error=[0, 0, 0, 1, 1], coverage=0.8)
    0.75
    """
    return 1.0 - _ranked(score, error, weights, nan).accepted(check_coverage(coverage))[0]


def check_coverage(coverage: float) -> float:
    """A share of the rows."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.number) or not 0 < coverage <= 1:
        raise InputError(f"`coverage` must lie in (0, 1], as 0.9; it is {coverage!r}.")
    return float(coverage)


# ---- curves ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RiskCurve:
    """Risk inside the sub-level sets {score ≤ threshold}, one entry per distinct score, most certain first."""

    threshold: Float
    coverage: Float
    risk: Float
    accepted: Int
    bad: Float  # loss (or number of errors) accepted, by weight

    def __len__(self) -> int:
        return len(self.threshold)


def _curve(score: ArrayLike, error: ArrayLike, weights: ArrayLike | None, nan: Nan, name: str, kind: Kind) -> RiskCurve:
    s, e, w, _ = check_rows(score, error, weights, kind=kind, name=name, nan=nan)
    blocks = tie_blocks(Ranking(s), e, w)
    weight, bad = np.cumsum(blocks.weight), np.cumsum(blocks.bad)
    return RiskCurve(
        threshold=s[blocks.row[blocks.first]] + 0.0,
        coverage=weight / weight[-1],
        risk=bad / weight,
        accepted=np.cumsum(blocks.size),
        bad=bad,
    )


def risk_coverage_curve(
    score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> RiskCurve:
    """Risk among the accepted rows against the share accepted; `error` may be a loss in [0, 1].

    A block of tied scores is one vertex: it is accepted whole or not at all.

    Examples
    --------
    >>> curve = risk_coverage_curve(score=[0.1, 0.2, 0.2, 0.9], error=[0, 0, 1, 1])
    >>> curve.coverage.tolist(), curve.risk.round(3).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.333, 0.5])
    """
    return _curve(score, error, weights, nan, "error", "loss01")


def mce_curve(score: ArrayLike, error: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise") -> RiskCurve:
    """Misclassification error inside sub-level sets, MCE_s(β) = P(wrong | score ≤ β), at every distinct β.

    It need not rise with β in a finite sample and is not smoothed.

    Examples
    --------
    >>> mce_curve(score=[0.1, 0.2, 0.3], error=[1, 0, 0]).risk.round(3).tolist()
    [1.0, 0.5, 0.333]
    """
    return _curve(score, error, weights, nan, "error", "error")


def mbc_curve(
    score: ArrayLike, misaligned: ArrayLike, *, weights: ArrayLike | None = None, nan: Nan = "raise"
) -> RiskCurve:
    """Misalignment with the Bayes label inside sub-level sets, MBC_s(β); `misaligned` from `truth.misaligned`.

    Examples
    --------
    >>> mbc_curve(score=[0.1, 0.2], misaligned=[0, 1]).risk.tolist()
    [0.0, 0.5]
    """
    return _curve(score, misaligned, weights, nan, "misaligned", "error")
