"""Does the promise still hold? A test on new labelled rows that may be repeated as often as one likes.

Each new loss L multiplies a stake by 1 + λ(L − max_risk). While the risk is at most max_risk no strategy can expect
to win, so that wealth reaches 1/δ with probability at most δ, ever (Ville's inequality; betting tests as in
Waudby-Smith & Ramdas 2024). A fixed mixture of stakes makes the wealth independent of the order of rows and of how
they are cut into batches.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float
from uqeval._errors import InputError
from uqeval._result import number
from uqeval.decide import bounds
from uqeval.decide.outcome import Outcome
from uqeval.decide.results import Stored


@dataclass(frozen=True, eq=False, kw_only=True)
class Check(Stored):
    """What new labelled rows say about a promised risk; pass it on as `previous` to the next call."""

    holds: bool = True  # False once the evidence against the promise was enough, at this look or an earlier one
    e_value: float = 1.0  # evidence that the risk is above the promise, over all looks; an alarm at 1 / (1 − level)
    p_value: float = 1.0  # of this batch alone, valid for a single look
    max_risk: float
    level: float
    looks: int = 0
    n: int = 0  # rows seen over all looks
    n_accepted: int = 0
    errors_accepted: float = 0.0
    coverage: float = math.nan
    risk: float = math.nan
    risk_interval: tuple[float, float] = (math.nan, math.nan)  # pointwise, for this batch alone
    alarm_after: int | None = None  # rows seen when the alarm came
    threshold_hash: str
    largest_cluster: int | None  # what a cluster's loss is measured against; None for independent rows
    votes: tuple[float, float] = (0.0, 0.0)  # what counts over all looks, and its loss: rows, or votes of clusters
    log_wealth: tuple[float, ...] = (0.0,) * len(bounds.EXCESSES)

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        stored = super()._from_dict(data)
        if len(stored.log_wealth) != len(bounds.EXCESSES) or any(map(math.isnan, stored.log_wealth)):
            raise InputError("This Check holds no wealth that this uqeval can go on with. Start a new one.")
        return stored

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


def look(start: Check, previous: Any, inside: NDArray[np.bool_], seen: Outcome, *, one_vote: bool) -> Check:
    """One more look, at rows that no earlier look has seen.

    `start` is the check of no rows, which says what is promised; `inside` are the accepted rows, `seen` those that
    count; with `one_vote` each cluster has one.
    """
    before = start if previous is None else _continued(previous, start)
    wealth = np.asarray(before.log_wealth) + _bets(start, seen, one_vote)
    log_e = float(bounds.log_mean_exp(wealth))
    n, accepted = before.n + len(inside), before.n_accepted + int(inside.sum())
    alarm_now = n if log_e >= -math.log1p(-start.level) else None
    alarm_after = alarm_now if before.holds else before.alarm_after
    low, high = seen.interval(start.level)
    votes, lost = before.votes[0] + seen.votes, before.votes[1] + seen.lost
    return replace(
        before,
        holds=alarm_after is None,
        e_value=float(np.exp(min(log_e, 700.0))),
        p_value=seen.rise_p(start.max_risk),
        looks=before.looks + 1,
        n=n,
        n_accepted=accepted,
        errors_accepted=before.errors_accepted + float(seen.losses.sum()),
        coverage=accepted / n if n else math.nan,
        risk=lost / votes if votes else math.nan,
        risk_interval=(low, high),
        alarm_after=alarm_after,
        votes=(votes, lost),
        log_wealth=tuple(wealth.tolist()),
    )


def _continued(previous: Any, start: Check) -> Check:
    """The last look, if it was at the same promise."""
    if not isinstance(previous, Check):
        kind = type(previous).__name__
        raise InputError(f"`previous` is a {kind}. Pass the Check of the last look (Check.from_json).")
    if previous.threshold_hash != start.threshold_hash:
        raise InputError("`previous` is the check of another threshold. Pass the one that this threshold returned.")
    if previous.level != start.level:
        raise InputError(f"`previous` was made with level {previous.level:g}. Keep one level for all looks.")
    if previous.largest_cluster != start.largest_cluster:
        raise InputError(
            f"`previous` was made with largest_cluster = {previous.largest_cluster}, this look with "
            f"{start.largest_cluster}. Keep one for all looks."
        )
    return previous


def _bets(start: Check, seen: Outcome, one_vote: bool) -> Float:
    if seen.clusters is None or len(seen.clusters[1]) == 0:
        return bounds.rise_log_e(seen.losses, start.max_risk)
    total, rows = seen.clusters
    largest = 1 if one_vote else start.largest_cluster or 1
    if rows.max() > largest * (1 + 1e-9):
        raise InputError(
            f"A cluster has {int(rows.max())} rows that count, more than the {largest} that the threshold allows for. "
            f"Pass largest_cluster={int(rows.max())} or more from the first look on, or to choose_threshold."
        )
    # One bet per cluster, on its excess loss as a share of what the largest cluster could lose.
    return bounds.rise_log_e((total - start.max_risk * rows) / largest + start.max_risk, start.max_risk)
