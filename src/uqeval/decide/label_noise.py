"""What wrong labels may do to a verdict: UQ-AUC as it would be without them, and how many would overturn it.

Labels wrong at random, at one rate for all rows, are undone by a formula. Labels wrong where it hurts most are counted:
both sums of ranks behind the verdicts are linear in the errors, so that the least number is exact. So is that of a
certificate of independent rows; of clusters it is enough, but fewer may do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from uqeval import kernels
from uqeval._check import Bit, Float, Int, check_count, check_level, check_rows, check_vector
from uqeval._errors import InputError, collected
from uqeval._result import Grid, Result, as_text, number
from uqeval.decide.choose import choose_threshold
from uqeval.decide.rows import check_target, find_scores, find_target, refuse_weights, warned
from uqeval.inference.estimate import estimate
from uqeval.inference.sample import Sample
from uqeval.inputs import Predictions

_RATES = 20
_SHOWN = 6  # rates in the printed table


@dataclass(frozen=True)
class Overturn(Result):
    """A verdict, and the fewest wrong labels that would overturn it, were they the worst ones."""

    verdict: str
    holds: bool  # on the labels as they are
    labels: int | None  # None where it does not hold, or no number of wrong labels overturns it
    share: float | None  # of all rows

    def __str__(self) -> str:
        if not self.holds:
            return f"{self.verdict}: not so with the labels as they are"
        if self.labels is None or self.share is None:
            return f"{self.verdict}: no wrong labels would overturn it"
        return f"{self.verdict}: {self.labels:,} wrong labels ({self.share:.2%} of the rows) could overturn it"


class NoisePoint(NamedTuple):
    """UQ-AUC and error rate as they would be without labels that are wrong at this rate."""

    score: str
    rate: float
    error_rate: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class LabelNoise(Result):
    """How the verdict depends on wrong labels: a row per score and rate, and what would overturn it."""

    n: int
    n_errors: int
    classes: int
    level: float
    limit: float  # no larger rate is possible: the error rate would fall to 0, or the best UQ-AUC rise above 1
    points: tuple[NoisePoint, ...] = field(repr=False)
    overturns: tuple[Overturn, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return tuple(dict.fromkeys(point.score for point in self.points))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the points as rows."""
        rest = ("n", "n_errors", "classes", "level", "limit")
        found: dict[str, Any] = {name: getattr(self, name) for name in rest}
        found |= {"points": self.frame_rows(), "overturns": [one.to_dict() for one in self.overturns]}
        return found | {"warnings": list(self.warnings)}

    def frame_rows(self) -> list[dict[str, Any]]:
        """A row per score and rate."""
        return [point._asdict() for point in self.points]

    def view(self) -> Iterator[str | Grid]:
        """What would overturn the verdict, then the curve."""
        yield f"{self.n:,} rows, {self.n_errors:,} errors; {100 * self.level:.6g}% intervals"
        yield from map(str, self.overturns)
        by_rate: dict[float, dict[str, NoisePoint]] = {}
        for point in self.points:
            by_rate.setdefault(point.rate, {})[point.score] = point
        rates = list(by_rate)[:: max(1, (len(by_rate) - 1) // _SHOWN)]
        rows = [
            [
                f"{rate:.2%}",
                f"{next(iter(by_rate[rate].values())).error_rate:.2%}",
                *(f"{number(p.value)} ({number(p.low)}–{number(p.high)})" for p in by_rate[rate].values()),
            ]
            for rate in rates
        ]
        yield Grid(("wrong labels", "error rate", *self.scores), rows, "UQ-AUC if labels are wrong at random")
        yield (
            f"Labels wrong at one rate for all inputs leave the order of the scores as it is. With the numbers as "
            f"observed, a rate above {self.limit:.2%} cannot be."
        )
        yield from (f"! {note}" for note in self.warnings)

    def __str__(self) -> str:
        return as_text(self.view())


def corrected_auc(auc: float, error_rate: float, rate: float, *, classes: int = 2) -> float:
    """UQ-AUC without wrong labels, from the one that is observed where labels are wrong at one rate for all inputs.

    A wrong label is any of the other classes, each as likely. NaN where the rate is impossible: the error rate or the
    UQ-AUC would lie outside [0, 1].

    Parameters
    ----------
    auc, error_rate : float
        As observed.
    rate : float
        Share of wrong labels, below (K − 1)/K.
    classes : int
        K.

    Examples
    --------
    >>> round(corrected_auc(0.8, 0.15, rate=0.05), 3)
    0.93
    """
    true_rate, factor = _undone(error_rate, rate, classes)
    value = 0.5 + (auc - 0.5) * factor
    return value if 0 < true_rate < 1 and 0 <= value <= 1 else math.nan


def label_noise(
    score: Any,
    error: ArrayLike | None = None,
    *,
    predictions: Predictions | None = None,
    rates: ArrayLike | None = None,
    classes: int | None = None,
    max_risk: float | None = None,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> LabelNoise:
    """How much label noise would overturn the verdict?

    The curve undoes labels that are wrong at random, at one rate for all inputs: UQ-AUC as it would be with the right
    ones. The counts are for the worst case: the fewest labels that, were they the wrong ones, would leave another score
    as good as the best, UQ-AUC at ½, or (with `max_risk`) no threshold certified. With `clusters` the last number is
    enough, but fewer may do.

    Parameters
    ----------
    score : array-like of shape (n,), dict of those, or names of scores of `predictions`
        Uncertainty; higher means less sure.
    error : array-like of shape (n,)
        1 where the prediction is not the label, else 0.
    predictions : Predictions, optional
        In place of `error`.
    rates : array-like, optional
        Shares of wrong labels; 20 from 0 to what is possible by default.
    classes : int, optional
        The number of classes; a wrong label is any of the others. That of the predictions, else 2.
    max_risk : float, optional
        Also ask for the certificate of `choose_threshold` at this risk, for the best score.
    level : float
        Confidence of intervals and certificate.
    clusters : array-like of shape (n,), optional
        Independent units.

    Returns
    -------
    LabelNoise
        ``.overturns`` and a row per score and rate (``.to_frame()``).

    Examples
    --------
    >>> import uqeval as uq
    >>> found = uq.label_noise(["entropy", "mutual_information"], predictions=uq.datasets.example())
    >>> print(found.overturns[0])
    UQ-AUC of entropy is above ½: 72 wrong labels (4.65% of the rows) could overturn it
    """
    level = check_level(level)
    risk = None if max_risk is None else check_target(max_risk)
    with warned() as notes:
        target = find_target(error, predictions, "error", clusters, "drop")
        refuse_weights(target)
        known = 0 if predictions is None else predictions.n_classes
        k = check_count("classes", classes if classes is not None else known or 2, 2)
        columns: dict[str, Float] = {}
        e: Bit = np.empty(0, dtype=np.uint8)
        g: Int | None = None
        for name, values in find_scores(score, predictions).items():
            columns[name or "score"], e, _, g = check_rows(values, target.rows, kind="error", clusters=target.clusters)
    n, wrong = len(e), int(np.count_nonzero(e))
    if not 0 < wrong < n:
        raise InputError(f"`error` has {wrong} ones in {n} rows. UQ-AUC needs right and wrong rows.")
    curves = {name: _Curve.of(s, e, g, k, level) for name, s in columns.items()}
    best = max(curves, key=lambda name: curves[name].auc)
    limit = _limit(max(0.5 + abs(one.auc - 0.5) for one in curves.values()), wrong / n, k)
    asked = np.linspace(0.0, 0.95 * limit, _RATES) if rates is None else _check_rates(rates, limit)
    points = [NoisePoint(name, float(rate), *one.at(float(rate))) for name, one in curves.items() for rate in asked]
    overturns = _overturns(columns, e, best)
    if risk is not None:
        overturns.append(_certificate(best, columns[best], e, g, risk, level))
    return LabelNoise(n, wrong, k, level, limit, tuple(points), tuple(overturns), tuple(notes))


# ---- at random --------------------------------------------------------------------------------------------------


def _undone(error_rate: float, rate: float, classes: int) -> tuple[float, float]:
    """The error rate without wrong labels, and what UQ-AUC − ½ is to be multiplied by."""
    turn = 1 - rate * classes / (classes - 1)
    if not turn > 0 or not 0 < (true_rate := (error_rate - rate) / turn) < 1:
        return math.nan, math.nan
    return true_rate, error_rate * (1 - error_rate) / (turn * true_rate * (1 - true_rate))


def _limit(auc: float, error_rate: float, classes: int) -> float:
    """The largest rate that is possible."""
    low, high = 0.0, min(error_rate, (classes - 1) / classes)
    for _ in range(60):
        middle = (low + high) / 2
        possible = not math.isnan(corrected_auc(auc, error_rate, middle, classes=classes))
        low, high = (middle, high) if possible else (low, middle)
    return low


def _check_rates(rates: ArrayLike, limit: float) -> Float:
    found = np.unique(check_vector("rates", np.atleast_1d(np.asarray(rates, dtype=np.float64))))
    if len(found) == 0 or found[0] < 0 or found[-1] > limit:
        raise InputError(
            f"`rates` must lie between 0 and {limit:.6g}, beyond which the error rate would fall to 0 or UQ-AUC rise "
            f"above 1; they are {found.tolist()[:5]}. Pass smaller ones."
        )
    return found


class _Curve(NamedTuple):
    """UQ-AUC of a score as observed, its interval, and the influence of each unit on it and on the error rate."""

    auc: float
    low: float
    high: float
    error_rate: float
    classes: int
    on_auc: Float
    on_rate: Float

    @classmethod
    def of(cls, score: Float, error: Bit, clusters: Int | None, classes: int, level: float) -> "_Curve":
        """Of clean rows."""
        with collected():
            found = estimate("uq_auc", score, error, clusters=clusters, level=level)
        n, wrong = len(error), int(np.count_nonzero(error))
        share = wrong / n
        credit = Sample.of(score, error).credit2_of_rows() / 2
        bad = error.view(np.bool_)
        placement = np.where(bad, credit / (n - wrong) / share, credit / wrong / (1 - share))
        on_auc: Float = placement - found.value / np.where(bad, share, 1 - share)
        on_rate: Float = error.astype(np.float64) - share
        if clusters is not None:
            on_auc, on_rate = (np.bincount(clusters, weights=x).astype(np.float64) for x in (on_auc, on_rate))
        return cls(found.value, found.low, found.high, share, classes, on_auc, on_rate)

    def at(self, rate: float) -> tuple[float, float, float, float]:
        """Error rate, UQ-AUC and interval without labels wrong at this rate, whose factor has an error of its own."""
        true_rate, factor = _undone(self.error_rate, rate, self.classes)
        turn = 1 - rate * self.classes / (self.classes - 1)
        steep = [(1 - 2 * x) / (x * (1 - x)) for x in (self.error_rate, true_rate)]
        with_factor = self.on_auc + (self.auc - 0.5) * (steep[0] - steep[1] / turn) * self.on_rate
        alone = float((self.on_auc**2).sum())
        wider = math.sqrt(max(1.0, float((with_factor**2).sum()) / alone)) if alone > 0 else 1.0
        value = 0.5 + (self.auc - 0.5) * factor
        low, high = (value + (end - self.auc) * factor * wider for end in (self.low, self.high))
        return true_rate, value, max(0.0, low), min(1.0, high)


# ---- in the worst case ------------------------------------------------------------------------------------------


def _double_ranks(score: Float) -> Int:
    """Twice the mid-rank of each row."""
    order = kernels.order_by(score)
    ranks = np.empty(len(score), dtype=np.int64)
    ranks[order.row] = order.start.astype(np.int64) + order.end + 1
    return ranks


def fewest_flips(gain: Int, error: Bit) -> int | None:
    """The fewest errors to flip until their sum of `gain` is 0 or less; None where it is so already."""
    bad = error.view(np.bool_)
    total = int(gain[bad].sum())
    if total <= 0:
        return None
    taken = np.sort(np.where(bad, gain, -gain))[::-1]
    return int(np.searchsorted(np.cumsum(np.maximum(taken, 0)), total)) + 1


def _overturns(columns: dict[str, Float], error: Bit, best: str) -> list[Overturn]:
    """Of the best score: above ½, and better than each other. Sums of ranks of wrong rows, less what ½ would give."""
    n = len(error)
    ranks = {name: _double_ranks(score) for name, score in columns.items()}
    found = [_overturn(f"UQ-AUC of {best} is above ½", fewest_flips(ranks[best] - (n + 1), error), n)]
    for name, other in ranks.items():
        if name != best:
            found.append(
                _overturn(f"{best} has a larger UQ-AUC than {name}", fewest_flips(ranks[best] - other, error), n)
            )
    return found


def _overturn(verdict: str, labels: int | None, n: int) -> Overturn:
    return Overturn(verdict, labels is not None, labels, None if labels is None else labels / n)


def _certificate(name: str, score: Float, error: Bit, clusters: Int | None, risk: float, level: float) -> Overturn:
    """How many right rows, the surest first, must be wrong until nothing is certified."""
    surest = np.argsort(np.where(error == 1, np.inf, score), kind="stable")

    def certified(hidden: int) -> bool:
        worse = error.copy()
        worse[surest[:hidden]] = 1
        with collected():
            return choose_threshold(score, worse, max_risk=risk, level=level, clusters=clusters).feasible

    verdict, right = f"a threshold of {name} is certified at {100 * risk:.3g}%", int((error == 0).sum())
    if not certified(0):
        return Overturn(verdict, False, None, None)
    low, high = 0, right  # certified at low, not at high: every row is wrong
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if certified(middle) else (low, middle)
    return _overturn(verdict, high, len(error))
