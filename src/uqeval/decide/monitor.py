"""Does the promise still hold? A test on new labelled rows that may be repeated as often as one likes.

Each new loss L multiplies a stake by 1 + λ(L − max_risk). While the risk is at most max_risk no strategy can expect
to win, so that wealth reaches 1/δ with probability at most δ, ever (Ville's inequality; betting tests as in
Waudby-Smith & Ramdas 2024). A fixed mixture of stakes makes the wealth independent of the order of rows and of how
they are cut into batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, Int
from uqeval._errors import InputError
from uqeval._result import number
from uqeval.decide import bounds
from uqeval.decide.stored import SCHEMA_VERSION, Stored, check_fields, read_json
from uqeval.inference.forms import Interval, clopper_pearson, logit_t, settled

__all__ = ["Check", "cluster_interval", "cluster_se", "look", "risk_interval"]


@dataclass(frozen=True, eq=False)
class Check(Stored):
    """What new labelled rows say about a promised risk; pass it on as `previous` to the next call."""

    holds: bool  # False once the evidence against the promise was enough, at this look or an earlier one
    e_value: float  # evidence that the risk is above the promise, over all looks; an alarm at 1 / (1 − level)
    p_value: float  # of this batch alone, valid for a single look
    max_risk: float
    level: float
    looks: int
    n: int  # rows seen over all looks
    n_accepted: int
    errors_accepted: float
    coverage: float
    risk: float
    risk_interval: tuple[float, float]  # pointwise, for this batch alone
    alarm_after: int | None  # rows seen when the alarm came
    threshold_hash: str
    largest_cluster: int | None  # what a cluster's loss is measured against; None for independent rows
    votes: tuple[float, float]  # what counts over all looks, and its loss: rows, or one vote for each cluster
    log_wealth: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name."""
        return {"schema_version": SCHEMA_VERSION} | super().to_dict()

    @classmethod
    def from_json(cls, text: str | Path) -> Check:
        """The check that `to_json` wrote: its text, or a path."""
        found = cls(**check_fields(cls, read_json(text, "Check")))
        if len(found.log_wealth) != len(bounds.EXCESSES) or any(map(math.isnan, found.log_wealth)):
            raise InputError("This Check holds no wealth that this uqeval can go on with. Start a new one.")
        return found

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row."""
        skipped = ("schema_version", "log_wealth", "risk_interval", "votes")
        row = {k: v for k, v in self.to_dict().items() if k not in skipped}
        return [row | {"risk_low": self.risk_interval[0], "risk_high": self.risk_interval[1]}]

    def __str__(self) -> str:
        seen = (
            f"{self.n_accepted:,} of {self.n:,} rows accepted, risk {number(self.risk)} "
            f"(promised ≤ {self.max_risk:g}), e-value {self.e_value:.3g}"
        )
        if self.holds:
            return f"Nothing speaks against the promise: {seen} (alarm at {1 / (1 - self.level):.4g})."
        return f"The promise no longer holds ({100 * self.level:.6g}% confidence): {seen}."


@dataclass(frozen=True)
class Promise:
    """What is checked: the risk, for whom, how surely, and how the rows come."""

    max_risk: float
    level: float
    joint: bool
    hash: str
    largest_cluster: int | None
    by_cluster: bool = False  # clusters have one vote each


def look(
    promise: Promise,
    inside: NDArray[np.bool_],
    loss: NDArray[Any],
    clusters: Int | None,
    previous: Check | None,
) -> Check:
    """One more look, at rows that no earlier look has seen."""
    given: Any = previous
    if given is not None and not isinstance(given, Check):
        raise InputError(f"`previous` is a {type(given).__name__}. Pass the Check of the last look (Check.from_json).")
    if previous is not None and previous.threshold_hash != promise.hash:
        raise InputError("`previous` is the check of another threshold. Pass the one that this threshold returned.")
    if previous is not None and previous.level != promise.level:
        raise InputError(f"`previous` was made with level {previous.level:g}. Keep one level for all looks.")
    if previous is not None and previous.largest_cluster != promise.largest_cluster:
        raise InputError(
            f"`previous` was made with largest_cluster = {previous.largest_cluster}, this look with "
            f"{promise.largest_cluster}. Keep one for all looks."
        )
    counted = np.ones(len(loss), dtype=np.bool_) if promise.joint else inside
    losses = np.where(inside, loss, 0).astype(np.float64)[counted]
    units = None if clusters is None else _by_unit(promise, losses, clusters[counted], clusters)
    wealth = _bets(promise, losses, units)
    before = np.zeros(len(wealth)) if previous is None else np.asarray(previous.log_wealth)
    wealth = before + wealth
    log_e = float(bounds.log_mean_exp(wealth))
    n = len(loss) + (previous.n if previous else 0)
    accepted = int(inside.sum()) + (previous.n_accepted if previous else 0)
    bad = float(np.sort(losses).sum()) + (previous.errors_accepted if previous else 0.0)
    alarmed = previous is not None and not previous.holds
    alarm_after = previous.alarm_after if alarmed and previous else n if log_e >= -math.log1p(-promise.level) else None
    counted_votes, lost = (float(len(losses)), float(np.sort(losses).sum())) if units is None else _sums(units)
    if previous is not None:
        counted_votes, lost = counted_votes + previous.votes[0], lost + previous.votes[1]
    if units is None:
        interval = risk_interval(losses, promise.level)
    else:
        interval = cluster_interval(*units, promise.level)
    return Check(
        holds=alarm_after is None,
        e_value=float(np.exp(min(log_e, 700.0))),
        p_value=_batch_p(losses, units, promise.max_risk),
        max_risk=promise.max_risk,
        level=promise.level,
        looks=1 + (previous.looks if previous else 0),
        n=n,
        n_accepted=accepted,
        errors_accepted=bad,
        coverage=accepted / n if n else math.nan,
        risk=lost / counted_votes if counted_votes else math.nan,
        risk_interval=(interval.low, interval.high),
        alarm_after=alarm_after,
        threshold_hash=promise.hash,
        largest_cluster=promise.largest_cluster,
        votes=(counted_votes, lost),
        log_wealth=tuple(float(x) for x in wealth),
    )


def _by_unit(promise: Promise, losses: Float, counted: Int, clusters: Int) -> tuple[Float, Float]:
    """Loss and rows of each cluster; as shares of all its rows where clusters have one vote each."""
    count = int(clusters.max(initial=-1)) + 1
    order = np.lexsort((losses, counted))  # sums of floats must not depend on the order of rows
    total = np.bincount(counted[order], weights=losses[order], minlength=count).astype(np.float64)
    rows = np.bincount(counted, minlength=count).astype(np.float64)
    if promise.by_cluster:
        votes = 1 / np.bincount(clusters, minlength=count)
        total, rows = votes * total, votes * rows
    return total, rows


def _sums(units: tuple[Float, Float]) -> tuple[float, float]:
    return float(units[1].sum()), float(units[0].sum())


def _bets(promise: Promise, losses: Float, units: tuple[Float, Float] | None) -> Float:
    if units is None or len(units[1]) == 0:
        return bounds.rise_log_e(losses, promise.max_risk)
    total, rows = units
    largest = 1 if promise.by_cluster else promise.largest_cluster or 1
    if rows.max() > largest * (1 + 1e-9):
        raise InputError(
            f"A cluster has {int(rows.max())} rows that count, more than the {largest} that the threshold allows for. "
            f"Pass largest_cluster={int(rows.max())} or more from the first look on, or to choose_threshold."
        )
    # One bet per cluster, on its excess loss as a share of what the largest cluster could lose.
    return bounds.rise_log_e((total - promise.max_risk * rows) / largest + promise.max_risk, promise.max_risk)


def _batch_p(losses: Float, units: tuple[Float, Float] | None, max_risk: float) -> float:
    """P-value of "the risk is at most max_risk" for one batch: exact for 0/1 losses of independent rows."""
    if len(losses) == 0:
        return 1.0
    if units is not None:
        total, rows = units
        return float(bounds.cluster_p(bounds.moments(rows - total, rows), 1 - max_risk)[0])
    right = len(losses) - float(np.sort(losses).sum())
    p = bounds.binomial_p if ((losses == 0) | (losses == 1)).all() else bounds.hoeffding_bentkus_p
    return float(p(np.array([right]), np.array([len(losses)]), 1 - max_risk)[0])


def risk_interval(losses: Float, level: float) -> Interval:
    """Interval of the mean loss of independent rows: exact for 0/1 losses."""
    if len(losses) == 0:
        return Interval(math.nan, math.nan)
    if ((losses == 0) | (losses == 1)).all():
        return clopper_pearson(losses.sum(), len(losses), level)
    return cluster_interval(np.sort(losses), np.ones(len(losses)), level)


def cluster_interval(total: Float, rows: Float, level: float) -> Interval:
    """Interval of Σ total / Σ rows over clusters: t on the logit scale, joined with Clopper–Pearson at the effective
    number of rows, which holds where errors are few or losses skewed."""
    se = cluster_se(total, rows)
    if math.isnan(se):  # a single cluster says nothing
        return Interval(0.0, 1.0) if rows.any() else Interval(math.nan, math.nan)
    some = rows > 0
    count, share = int(some.sum()), float(total.sum()) / float(rows.sum())
    size = float(bounds.effective_rows(bounds.moments(total[some], rows[some]))[0])
    exact = clopper_pearson(size * share, size, level)
    if se == 0 or not 0 < share < 1:
        return exact
    t = logit_t(share, se, level, count - 1)
    return Interval(min(t.low, exact.low), max(t.high, exact.high))


def cluster_se(total: Float, rows: Float) -> float:
    """Standard error of Σ total / Σ rows over clusters; NaN for fewer than two."""
    some = rows > 0
    count, size = int(some.sum()), float(rows.sum())
    if count < 2:
        return math.nan
    excess = (total - float(total.sum()) / size * rows)[some] / size
    return settled(math.sqrt(count / (count - 1) * float((excess * excess).sum())))
