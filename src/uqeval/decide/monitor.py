"""Does the promise still hold? A test on new labelled rows that may be repeated as often as one likes.

Each new loss L multiplies a stake by 1 + λ(L − max_risk). While the risk is at most max_risk no strategy can expect
to win, so that wealth reaches 1/δ with probability at most δ, ever (Ville's inequality; betting tests as in
Waudby-Smith & Ramdas 2024). What was staked before a good time is lost in it, so that part of the coin is saved and
staked bit by bit, after each look: a mixture over the times at which the risk may have changed. With an income instead
of savings no look ever comes too late, and false alarms are rare on average (an e-detector: Shin, Ramdas & Rinaldo
2024). Between two looks nothing is staked anew: the order of the rows of a look does not matter.
"""

import functools
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from uqeval._check import Float, check_count, check_level
from uqeval._errors import InputError, a_type
from uqeval._result import Result, number
from uqeval.decide import bounds
from uqeval.decide.outcome import Outcome, interval_of_sums
from uqeval.decide.results import Stored
from uqeval.decide.rows import check_target

# Chosen by simulation: a larger first stake notices what is wrong from the start a little earlier, and all else later.
FIRST = 0.7  # of the coin is at stake from the start
FADING = 0.15  # savings fall with this power of the errors that the promise allows: slowly enough for any lifetime


@dataclass(frozen=True, kw_only=True)
class CheckedRows(Result):
    """What some of the checked rows show, all numbers of the same rows."""

    n: int = 0
    n_accepted: int = 0
    errors_accepted: float = 0.0
    coverage: float = math.nan
    risk: float = math.nan
    risk_interval: tuple[float, float] = (math.nan, math.nan)  # pointwise: for a single look
    # Of a batch: valid for a single look. Of all rows: valid however often one looks; NaN with a `run_length`, where
    # false alarms are rare but will come.
    p_value: float = math.nan


@dataclass(frozen=True, eq=False, kw_only=True)
class Check(Stored):
    """What new labelled rows say about a promised risk; pass it on as `previous` to the next call."""

    holds: bool = True  # False once the evidence against the promise was enough, at this look or an earlier one
    # Evidence that the risk is above the promise, over all looks: an alarm at 1 / (1 − level). It is an e-value, and at
    # most 1 on average while the promise holds; with a `run_length` it is an e-detector, which grows by its income.
    e_value: float = 1.0
    max_risk: float
    level: float
    run_length: int | None  # units between false alarms, on average; None: hardly one in a lifetime
    looks: int = 0
    units: int = 0  # independent ones that counted, over all looks: rows, or clusters
    batch: CheckedRows = CheckedRows()  # the rows of the last look
    all: CheckedRows = CheckedRows()  # the rows of all looks
    alarm_after: int | None = None  # rows seen when the alarm came
    threshold_hash: str
    largest_cluster: int | None  # what a cluster's loss is measured against; None for independent rows
    moments: tuple[float, ...] = (
        0.0,
    ) * 6  # `bounds.Moments` of what counts over all looks: rows, or votes of clusters
    log_wealth: tuple[float, ...] = ()  # of each stake; none before the first look
    batches: tuple[str, ...] = ()  # digests of the last looks, of two rows or more: none counts twice
    marks: tuple[str, ...] = ()  # of some rows of all looks, to know them again

    @property
    def n(self) -> int:
        """Rows seen over all looks."""
        return self.all.n

    @property
    def n_accepted(self) -> int:
        """Rows accepted over all looks."""
        return self.all.n_accepted

    @property
    def errors_accepted(self) -> float:
        """Their errors, or loss."""
        return self.all.errors_accepted

    @property
    def coverage(self) -> float:
        """Share of all rows that was accepted."""
        return self.all.coverage

    @property
    def risk(self) -> float:
        """Over all looks."""
        return self.all.risk

    @property
    def risk_interval(self) -> tuple[float, float]:
        """Of the last batch alone."""
        return self.batch.risk_interval

    @property
    def p_value(self) -> float:
        """Of the last batch alone, valid for a single look."""
        return self.batch.p_value

    @property
    def mode(self) -> str:
        """What is promised of false alarms: "lifetime" (hardly one over all looks) or "run-length" (few on average)."""
        return "lifetime" if self.run_length is None else "run-length"

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        if "log_wealth" in data and not data.keys() & {"run_length", "units"}:
            raise InputError(
                "This Check was made by an earlier uqeval, whose monitor saved nothing for later: it cannot go on. "
                "Start a new one; an alarm that the old one raised stands."
            )
        if isinstance(data.get("votes"), list) and len(data["votes"]) == 2:
            data = _of_mixed_rows(data)
        stored = super()._from_dict({"marks": []} | data)  # states of before have none
        if len(stored.log_wealth) != len(bounds.RISES) or any(map(math.isnan, stored.log_wealth)):
            raise InputError("This Check holds no wealth that this uqeval can go on with. Start a new one.")
        if len(stored.moments) != len(bounds.Moments._fields):
            raise InputError("This Check holds no sums that this uqeval can go on with. Start a new one.")
        if stored.units < 0 or (stored.run_length is not None and stored.run_length < 1):
            raise InputError("This Check counts fewer than no units. Start a new one.")
        if stored.e_value < 0:
            raise InputError(
                f"This Check has an e-value of {stored.e_value:g}, which evidence cannot be. Start a new one."
            )
        return stored

    def frame_rows(self) -> list[dict[str, Any]]:
        """One row."""
        skipped = ("schema_version", "log_wealth", "moments", "batches", "marks", "batch", "all")
        row = {k: v for k, v in self.to_dict().items() if k not in skipped}
        for name, rows in (("batch", self.batch), ("all", self.all)):
            low, high = rows.risk_interval
            told = rows.to_dict() | {"risk_low": low, "risk_high": high}
            row |= {f"{name}_{k}": v for k, v in told.items() if k != "risk_interval"}
        return [row]

    def __str__(self) -> str:
        seen = (
            f"{self.n_accepted:,} of {self.n:,} rows accepted, risk {number(self.risk)} "
            f"(promised ≤ {self.max_risk:g}), {'e-value' if self.run_length is None else 'evidence'} {self.e_value:.3g}"
        )
        if not self.units:
            accepted = f"{self.n_accepted:,} of {self.n:,} rows accepted"
            return f"Nothing to tell yet: {accepted} (promised ≤ {self.max_risk:g})."
        if self.holds:
            return f"Nothing speaks against the promise: {seen} (alarm at {1 / (1 - self.level):.4g})."
        sure = f"{100 * self.level:.6g}% confidence"
        if self.run_length is not None:
            unit = "rows" if self.largest_cluster is None else "clusters"
            sure = f"one false alarm in {self.run_length:,} {unit}"
        return f"The promise no longer holds ({sure}): {seen}."


class Purse(NamedTuple):
    """What is staked when, of a coin or of an income: all that the two promises about false alarms differ in.

    An income of (1/δ − 1) / run_length per unit: what is owned less what came in is a supermartingale that starts at 1,
    so that 1/δ is reached after `run_length` units on average, or later.
    """

    max_risk: float
    level: float
    run_length: int | None

    @property
    def shares(self) -> Float:
        """Of each stake: those that are best for a risk of two to six times the promise get most."""
        x = bounds.rise_excesses(self.max_risk)
        share = 1 / (1 + np.log(x / min(2.0, x[-1] / 2)) ** 2)
        return share / share.sum()

    @property
    def first(self) -> Float:
        """What each stake has at the start."""
        return self.shares * (FIRST if self.run_length is None else 1.0)

    def saved(self, units: int | Float) -> Any:
        """What is not staked yet after so many units."""
        return 0.0 if self.run_length is not None else (1 - FIRST) * (1 + self.max_risk * units) ** -FADING

    def added(self, units: int | Float, more: int | Float) -> Any:
        """What is staked for the next `more` units, after so many."""
        if self.run_length is not None:
            return more * ((1 / (1 - self.level) - 1) / self.run_length)
        # Not as a difference of savings, which would lose all digits where they fall slowly.
        passed = 1 + self.max_risk * units
        return -(1 - FIRST) * passed**-FADING * np.expm1(-FADING * np.log1p(self.max_risk * more / passed))


def look(start: Check, previous: Any, inside: NDArray[np.bool_], seen: Outcome, *, one_vote: bool) -> Check:
    """One more look, at rows that no earlier look has seen.

    `start` is the check of no rows, which says what is promised; `inside` are the accepted rows, `seen` those that
    count; with `one_vote` each cluster has one.
    """
    before = start if previous is None else _continued(previous, start)
    purse = Purse(start.max_risk, start.level, start.run_length)
    wealth = np.asarray(before.log_wealth or np.log(purse.first)) + _bets(start, seen, one_vote)
    with np.errstate(divide="ignore"):
        log_e = float(np.logaddexp(np.logaddexp.reduce(wealth), np.log(purse.saved(before.units))))
        # Staked after the look, so that it may depend on how many units that had: only the past was seen. Not more than
        # at the start: a coin for each of many rows that came in one look would be an alarm by itself.
        staked = min(1.0, purse.added(before.units, seen.units))
        wealth = np.logaddexp(wealth, np.log(staked * purse.shares))
    e_value = float(np.exp(min(log_e, 700.0))) if seen.units else before.e_value
    alarm_now = before.n + len(inside) if seen.units and log_e >= -math.log1p(-start.level) else None
    alarm_after = alarm_now if before.holds else before.alarm_after
    sums = bounds.Moments(*(np.array([a]) + b for a, b in zip(before.moments, seen.moments, strict=True)))
    batch = _rows(CheckedRows(), inside, seen, seen.votes, seen.lost)
    everything = _rows(before.all, inside, seen, sums.rows[0], sums.loss[0])
    p_so_far = math.nan if start.run_length is not None else min(_known(before.all.p_value, 1.0), 1 / max(e_value, 1.0))
    return replace(
        before,
        holds=alarm_after is None,
        e_value=e_value,
        looks=before.looks + 1,
        units=before.units + seen.units,
        batch=replace(batch, risk_interval=tuple(seen.interval(start.level)), p_value=seen.rise_p(start.max_risk)),
        all=replace(
            everything,
            risk_interval=tuple(interval_of_sums(sums, seen.clusters is None, start.level)),
            p_value=p_so_far,
        ),
        alarm_after=alarm_after,
        moments=tuple(float(part[0]) for part in sums),
        log_wealth=tuple(wealth.tolist()),
    )


def _rows(before: CheckedRows, inside: NDArray[np.bool_], seen: Outcome, votes: float, lost: float) -> CheckedRows:
    n, accepted = before.n + len(inside), before.n_accepted + int(inside.sum())
    return CheckedRows(
        n=n,
        n_accepted=accepted,
        errors_accepted=before.errors_accepted + float(seen.losses.sum()),
        coverage=accepted / n if n else math.nan,
        risk=float(lost / votes) if votes else math.nan,
    )


def _known(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


def _of_mixed_rows(data: dict[str, Any]) -> dict[str, Any]:
    """The same state as it is written now: it had some numbers of the last batch, some of all rows, and no digests."""
    every = {name: data.pop(name, None) for name in ("n", "n_accepted", "errors_accepted", "coverage", "risk")}
    interval, p_value, (votes, lost) = data.pop("risk_interval", None), data.pop("p_value", None), data.pop("votes")
    last = CheckedRows().to_dict() | {"risk_interval": interval, "p_value": p_value}
    return data | {
        "batch": last,
        "all": every | {"risk_interval": [None, None], "p_value": None},
        "moments": [None, lost, votes, None, None, None],  # the interval of all rows will not be known
        "batches": [],
    }


def _continued(previous: Any, start: Check) -> Check:
    """The last look, if it was at the same promise."""
    if not isinstance(previous, Check):
        raise InputError(f"`previous` is {a_type(previous)}. Pass the Check of the last look (Check.from_json).")
    if previous.threshold_hash != start.threshold_hash:
        raise InputError("`previous` is the check of another threshold. Pass the one that this threshold returned.")
    if previous.level != start.level:
        raise InputError(f"`previous` was made with level {previous.level:g}. Keep one level for all looks.")
    for name in ("run_length", "largest_cluster"):
        if getattr(previous, name) != getattr(start, name):
            said = [
                f"without {name}" if value is None else f"with {name} = {value}"
                for value in (getattr(previous, name), getattr(start, name))
            ]
            raise InputError(f"`previous` was made {said[0]}, this look {said[1]}. Keep one for all looks.")
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


def expected_delay(
    max_risk: float, level: float = 0.95, *, factor: float = 2.0, after: int = 10_000, run_length: int | None = None
) -> float:
    """Labelled rows that count until `Threshold.check` notices that the risk has become `factor` times the promise.

    On average, for 0/1 errors of independent rows and a look after each, where all rows before were right: after any
    other past, and for most losses, it takes fewer. Simulated (256 stratified runs with a fixed seed: good to 5%); NaN
    for a promise below 1e-14.

    Parameters
    ----------
    max_risk, level
        What was promised.
    factor : float
        The risk becomes ``factor * max_risk``.
    after : int
        Rows before that, all of them right; 0 where the promise was wrong from the start.
    run_length : int, optional
        As for `Threshold.check`.

    Examples
    --------
    >>> round(expected_delay(0.05), -1)
    620.0
    >>> round(expected_delay(0.05, after=0), -1)
    200.0
    """
    max_risk, level = check_target(max_risk), check_level(level)
    # A smaller rise than the smallest stake is made for may never be noticed.
    least, most = 1 + float(bounds.rise_excesses(max_risk)[0]), 1 / max_risk
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not least <= factor <= most:
        raise InputError(f"`factor` is {factor!r}. Pass a number from {least:.4g} to {most:.4g}, where all is wrong.")
    if run_length is not None:
        run_length = check_count("run_length", run_length)
    after = check_count("after", after, 0)
    if max_risk < _LEAST_RISK:
        return math.nan
    return _delay(Purse(max_risk, level, run_length), float(factor), after)


_LEAST_RISK = 1e-14  # below it a share of right rows rounds to 1, and the simulation would not end


@functools.lru_cache(maxsize=256)
def _delay(purse: Purse, factor: float, after: int) -> float:
    shares, risk = purse.shares, factor * purse.max_risk
    up, down = (np.exp(bounds.rise_log_e(np.full(1, loss), purse.max_risk)) for loss in (1.0, 0.0))

    def right(wealth: Float, units: Float, rows: Float) -> Float:
        """After so many right rows in a row; what comes in meanwhile is spread evenly over them."""
        each = np.minimum(1.0, purse.added(units, rows) / np.maximum(rows, 1))
        return wealth * down**rows + each * shares * (1 - down**rows) / (1 - down)

    wealth = purse.first[None]
    # In steps over which savings hardly fall.
    edges = np.unique(np.concatenate([[0], np.geomspace(1, after, 200).round(), [after]]) if after else [0.0])
    for start, end in pairwise(edges):
        wealth = right(wealth, start, np.array([[end - start]]))
    runs, rng = 256, np.random.default_rng(0)
    wealth, units = np.repeat(wealth, runs, axis=0), np.full(runs, float(after))
    waited, alarms = 0.0, 0
    while alarms < runs:
        # Only an error can raise the alarm: from one to the next. Stratified: the mean gap is hardly left to chance.
        left = len(wealth)
        chance = (rng.permutation(left) + rng.random(left)) / left
        gap = np.floor(np.log1p(-chance) / math.log1p(-risk)) if risk < 1 else np.zeros(left)
        wealth = right(wealth, units[:, None], gap[:, None])
        units += gap
        wealth *= up
        alarm = wealth.sum(axis=1) + purse.saved(units) >= 1 / (1 - purse.level)
        units += 1
        waited, alarms = waited + float((units[alarm] - after).sum()), alarms + int(alarm.sum())
        wealth = (wealth + np.reshape(purse.added(units - 1, 1), (-1, 1)) * shares)[~alarm]
        units = units[~alarm]
    return waited / runs
