"""Below which value of a score may one act without a human, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uqeval._check import Float, Nan, check_choice, check_level, check_seed
from uqeval._errors import InputError, UQWarning, collected, notify
from uqeval._result import versions
from uqeval.decide.calibration import Calibration, split_rows
from uqeval.decide.monitor import cluster_interval, cluster_se, risk_interval
from uqeval.decide.rows import NO_WEIGHTS, check_candidates, check_targets, clean_rows, find_scores, find_target
from uqeval.decide.threshold import Holdout, Threshold, Thresholds
from uqeval.decide.walks import JOINT, METHODS, largest_certified, shares
from uqeval.inference.forms import clopper_pearson
from uqeval.inference.result import Estimate
from uqeval.inputs import Predictions

__all__ = ["Plan", "certify", "choose_threshold", "rows_needed"]

_MOST_LOOKED = 1000  # candidates
_MOST_COPIES = 1e9  # the largest sample that `rows_needed` looks for, in samples like this one


def choose_threshold(
    score: ArrayLike | Mapping[str, ArrayLike] | str | Sequence[str],
    error: ArrayLike | None = None,
    max_risk: float | Sequence[float] | None = None,
    level: float = 0.95,
    method: str = "fallback",
    *,
    predictions: Predictions | None = None,
    risk: str = "error",
    clusters: ArrayLike | None = None,
    cluster_method: str = "t",
    thresholds: ArrayLike | None = None,
    split: float | None = None,
    bound: str = "betting",
    tie: str = "drop",
    n_scores: int = 1,
    largest_cluster: int | None = None,
    weights: ArrayLike | None = None,
    nan: Nan = "raise",
    seed: int | np.random.Generator = 0,
) -> Any:
    """The largest region {score ≤ value} whose risk is at most `max_risk`, with confidence `level`.

    Parameters
    ----------
    score : array-like of shape (n,)
        Uncertainty; higher means less sure. Or several, as a dict of name → array: the one that accepts most is
        chosen, each tested at its share of 1 − level. With `predictions`: the name of a score, or a list of names.
    error : array-like of shape (n,)
        1 where the prediction is wrong, else 0; or a loss in [0, 1]; or what `truth.misaligned` gives.
    max_risk : float or list of float
        The risk that you accept among the inputs below the threshold (for "rcps" and "crc": the share of all inputs
        that are accepted and wrong). A list gives `Thresholds` that hold jointly.
    level : float
        Confidence.
    method : str
        "fallback" (default), "fst" (fixed sequence), "sgr", "bonferroni", "holm"; "rcps", "crc" for the joint risk,
        where "crc" holds on average and not with confidence `level`.
    predictions : Predictions, optional
        Where score and error come from instead; see `risk`.
    risk : "error", "loss" or "misaligned"
        With `predictions`: wrong, their own loss in [0, 1], or unlike the majority of the soft labels. With arrays it
        says what `error` holds: pass "loss" for a loss that happens to be 0/1 on these rows.
    clusters : array-like of shape (n,), optional
        Independent units, as a patient id; rows of one cluster may depend on each other.
    cluster_method : "t" or "subsample"
        With clusters: a t-test on their excess loss (asymptotic), or one random row of each (exact, fewer rows). The
        promise of the latter, and of "crc", is for one random input of each cluster.
    thresholds : array-like, optional
        Candidates fixed beforehand, in place of quantiles of these rows.
    split : float, optional
        Share of the rows (or clusters) that choose the threshold; the others give honest estimates (`holdout`).
    bound : "betting" or "hoeffding-bentkus"
        For losses that are not 0/1.
    tie : "drop" or "error"
        With ``risk="misaligned"``: rows whose majority is a tie are left out, or counted as misaligned.
    n_scores : int
        How many scores you tried on these rows, this one included: each then gets its share of 1 − level.
    largest_cluster : int, optional
        The most rows that a cluster can ever have, for `Threshold.check`; the largest one here by default.
    weights : not supported
        There is no exact bound for weighted rows.
    nan : "raise" or "omit"
        What to do with rows that hold NaN.
    seed : int or numpy Generator
        For `split` and ``cluster_method="subsample"``.

    Returns
    -------
    Threshold, or Thresholds for a list of targets
        Where nothing can be certified, it accepts nothing (``value = -inf``, ``feasible = False``) and says how
        many rows would be needed.

    Examples
    --------
    >>> import uqeval as uq
    >>> t = uq.choose_threshold("entropy", predictions=uq.datasets.example(), max_risk=0.05)
    >>> print(t.statement())  # doctest: +NORMALIZE_WHITESPACE
    Act where entropy ≤ 1.150497354: 94.1% of inputs (92.8%–95.2%).
    With 95% confidence, at most 5% of the accepted inputs are wrong.
    """
    if weights is not None:
        raise InputError(NO_WEIGHTS)
    level = check_level(level)
    check_choice("method", method, METHODS)
    check_choice("cluster_method", cluster_method, ("t", "subsample"))
    check_choice("bound", bound, ("betting", "hoeffding-bentkus"))
    targets = check_targets(max_risk)
    rng = check_seed(seed)
    if isinstance(n_scores, bool) or not isinstance(n_scores, int | np.integer) or n_scores < 1:
        raise InputError(f"`n_scores` must be an int ≥ 1; it is {n_scores!r}.")
    if split is not None and not (isinstance(split, int | float | np.floating) and 0 < split < 1):
        raise InputError(f"`split` must lie strictly between 0 and 1, as 0.5; it is {split!r}.")
    fixed = None if thresholds is None else check_candidates(thresholds)
    with collected() as raised:
        target = find_target(error, predictions, risk, clusters, tie)
        rows = clean_rows(find_scores(score, predictions), target, nan, bound)
        tried = max(len(rows), int(n_scores))
        delta = (1 - level) / (len(targets) * tried)
        first = next(iter(rows.values()))
        if method == "rcps" and first.clusters is not None and cluster_method != "subsample":
            raise InputError(
                'method="rcps" with clusters needs cluster_method="subsample": its t-test did not hold in simulations '
                "with clusters of uneven size."
            )
        most = _largest_cluster(first, largest_cluster)
        plan = Plan(method, tuple(targets), level, delta, cluster_method == "subsample", tried, fixed, most)
        chosen = None if split is None else split_rows(list(rows.values()), float(split), rng)
        if chosen is not None and not 2 <= int(chosen.sum()) <= len(chosen) - 2:
            raise InputError(f"`split` = {split:g} leaves fewer than 2 rows on one side. Pass more rows.")
        draws = int(rng.integers(2**63))  # one for all: a score's result does not depend on the others
        found = [certify(cal, plan, name=name, chosen=chosen, seed=draws) for name, cal in rows.items()]
        best = max(found, key=lambda ts: sum(t.coverage for t in ts))  # the first of those that accept most
        if tried > 1 and split is None:
            share = "max_risk" if method == "crc" else "1 − level"
            notify(
                f"The same rows chose among {tried} scores, the threshold, and give its risk. The promise holds (each "
                f"score was tested at its share of {share}), but the observed risk is optimistic: pass split=0.5.",
                UQWarning,
            )
    notes = tuple(dict.fromkeys(raised))
    for note in notes:
        notify(note, stacklevel=2)
    best = Thresholds(replace(t, warnings=notes) for t in best)
    return best[0] if np.ndim(max_risk) == 0 else best  # type: ignore[arg-type]


@dataclass(frozen=True)
class Plan:
    """How thresholds are certified, whatever the rows."""

    method: str
    targets: tuple[float, ...]
    level: float
    delta: float  # of each score and target
    subsample: bool = False
    n_scores: int = 1
    thresholds: Float | None = None
    largest_cluster: int | None = None

    @property
    def by_cluster(self) -> bool:
        """Whether clusters have one vote each: then the promise is for one random input of each."""
        return self.subsample or self.method == "crc"


def _largest_cluster(cal: Calibration, given: int | None) -> int | None:
    if cal.cluster_rows is None:
        if given is not None:
            raise InputError("`largest_cluster` needs `clusters`.")
        return None
    seen = int(cal.cluster_rows.max())
    if given is None:
        return seen
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < seen:
        raise InputError(f"`largest_cluster` must be an int of at least {seen}, the largest here; it is {given!r}.")
    return int(given)


def certify(
    everything: Calibration,
    plan: Plan,
    *,
    name: str | None = None,
    chosen: NDArray[np.bool_] | None = None,
    seed: int = 0,
) -> Thresholds:
    """All targets of a plan for one score; `chosen` rows choose, the others give the held-out estimates."""
    cal, rest = everything, None
    if chosen is not None:
        cal, rest = everything.take(np.flatnonzero(chosen)), everything.take(np.flatnonzero(~chosen))
    tested = cal
    if plan.subsample and cal.clusters is not None:
        tested = cal.one_row_per_cluster(np.random.default_rng(seed))
    # What holds on average has no delta to share among scores: each gets its share of the risk.
    shared = plan.n_scores if plan.method == "crc" else 1
    values = [
        largest_certified(plan.method, tested, gamma / shared, plan.delta, plan.thresholds) for gamma in plan.targets
    ]
    # A region that is good enough for a smaller risk is good enough for a larger one.
    values = [max(v for v, other in zip(values, plan.targets, strict=True) if other <= gamma) for gamma in plan.targets]
    common = {"score": name, "data_hash": everything.data_hash(), "created_with": versions()}
    return Thresholds(
        _threshold(plan, cal, tested, rest, gamma, value, common)
        for gamma, value in zip(plan.targets, values, strict=True)
    )


def _threshold(
    plan: Plan,
    cal: Calibration,
    tested: Calibration,
    rest: Calibration | None,
    max_risk: float,
    value: float,
    common: dict[str, Any],
) -> Threshold:
    feasible = value > -math.inf
    at = np.array([value])
    accepted, bad = (int(cal.accepted(at)[0]), float(cal.bad(at)[0])) if feasible else (0, 0.0)
    coverage = _coverage(cal, value, plan.level)
    sizes = cal.cluster_rows
    return Threshold(
        value=value,
        max_risk=max_risk,
        level=plan.level,
        method=plan.method,
        feasible=feasible,
        coverage=accepted / cal.n,
        coverage_interval=(coverage.low, coverage.high),
        # A candidate fixed beforehand may lie below all rows: it accepts none, and nothing was observed.
        risk=_observed(cal, value, plan).value if feasible else math.nan,
        risk_bound=max_risk if feasible else math.nan,
        n=cal.n,
        n_accepted=accepted,
        errors_accepted=int(bad) if cal.binary else bad,
        what=cal.what,
        n_clusters=None if sizes is None else len(sizes),
        largest_cluster=plan.largest_cluster,
        cluster_method=None if sizes is None else "subsample" if plan.by_cluster else "t",
        n_scores=plan.n_scores,
        n_targets=len(plan.targets),
        rows_needed=None if feasible else rows_needed(plan, cal, tested, max_risk),
        hopeful=feasible or bool(_hopeful(plan, tested, max_risk)[1].any()),
        holdout=None if rest is None else _holdout(rest, value, plan),
        **common,
    )


def _coverage(cal: Calibration, value: float, level: float) -> Estimate:
    """Share of inputs below the threshold."""
    inside = int(cal.accepted(np.array([value]))[0])
    share, count = inside / cal.n, None
    if cal.clusters is None or cal.cluster_rows is None:
        low, high = clopper_pearson(inside, cal.n, level)
        se, how = math.sqrt(share * (1 - share) / max(1, cal.n - 1)), "Clopper–Pearson"
    else:
        count, how = len(cal.cluster_rows), "logit cluster t"
        total = np.bincount(cal.clusters, weights=cal.score <= value, minlength=count).astype(np.float64)
        low, high = cluster_interval(total, cal.cluster_rows, level)
        se = cluster_se(total, cal.cluster_rows)
    return Estimate(share, low, high, se, level, how, cal.n, n_clusters=count)


def _observed(cal: Calibration, value: float, plan: Plan) -> Estimate:
    """The risk that these rows show; every cluster has one vote where the promise is for clusters."""
    inside = cal.score <= value
    counted = np.ones(cal.n, dtype=np.bool_) if plan.method in JOINT else inside
    losses = np.where(inside, cal.loss, 0).astype(np.float64)[counted]
    if len(losses) == 0:
        return Estimate(math.nan, math.nan, math.nan, math.nan, plan.level, "none", 0)
    if cal.clusters is None or cal.cluster_rows is None:
        ordered = np.sort(losses)
        low, high = risk_interval(ordered, plan.level)
        se = float(ordered.std(ddof=1)) / math.sqrt(len(ordered)) if len(ordered) > 1 else math.nan
        how = "Clopper–Pearson" if cal.binary else "logit t"
        share = float(cal.bad(np.array([value]))[0]) / len(ordered)
        return Estimate(share, low, high, se, plan.level, how, len(ordered))
    votes = 1 / cal.cluster_rows if plan.by_cluster else np.ones(len(cal.cluster_rows))
    codes, count = cal.clusters[counted], len(votes)
    order = np.lexsort((losses, codes))
    total = votes * np.bincount(codes[order], weights=losses[order], minlength=count)
    rows = votes * np.bincount(codes, minlength=count)
    low, high = cluster_interval(total, rows, plan.level)
    share = float(total.sum()) / float(rows.sum())
    return Estimate(
        share, low, high, cluster_se(total, rows), plan.level, "logit cluster t", len(losses), n_clusters=count
    )


def _holdout(rest: Calibration, value: float, plan: Plan) -> Holdout:
    inside = rest.score <= value
    total = float(np.sort(rest.loss[inside]).sum())
    return Holdout(
        n=rest.n,
        n_accepted=int(inside.sum()),
        errors_accepted=int(total) if rest.binary else total,
        coverage=_coverage(rest, value, plan.level),
        risk=_observed(rest, value, plan),
    )


def _hopeful(plan: Plan, tested: Calibration, max_risk: float) -> tuple[Float, NDArray[np.bool_]]:
    """Candidates, and whether the observed risk below each is under the target."""
    candidates = plan.thresholds
    if candidates is None:
        candidates = tested.grid()
        if plan.method == "crc":
            candidates = np.unique(tested.sorted)
        elif plan.method == "sgr":  # the search halves until a test passes: these are the sizes that it looks at
            candidates = tested.at_size(-(-tested.n // 2 ** np.arange(1, 1 + tested.n.bit_length())))
    accepted, bad = tested.accepted(candidates), tested.bad(candidates)
    return candidates, (accepted > 0) & (bad < max_risk * (tested.n if plan.method in JOINT else accepted))


def rows_needed(plan: Plan, cal: Calibration, tested: Calibration, max_risk: float) -> int | None:
    """About how many rows like these would certify something, at least; None where none is known."""
    candidates, hopeful = _hopeful(plan, tested, max_risk)
    if not hopeful.any():
        return None
    if plan.method != "fst":  # which stops at the first region that fails, hopeful or not
        candidates = candidates[hopeful]
    if plan.method == "crc":
        votes = min(tested.votes(float(t)) for t in candidates[:_MOST_LOOKED])
        copies = (1 - max_risk) / (max_risk * tested.n_units - votes) if votes < max_risk * tested.n_units else math.inf
        return max(cal.n + 1, math.ceil(cal.n * copies - 1e-9)) if copies < _MOST_COPIES else None

    def enough(copies: float) -> bool:
        if plan.method == "fst":
            start = candidates[tested.best_p(candidates, max_risk, copies=copies) <= plan.delta][:1]
            return bool((tested.p_values(start, max_risk, copies=copies) <= plan.delta).any())
        share = plan.delta / shares(plan.method, tested, max_risk, plan.delta, plan.thresholds, copies)
        return bool((tested.p_values(candidates, max_risk, joint=plan.method in JOINT, copies=copies) <= share).any())

    low, high = 1.0, 2.0
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_COPIES:
            return None
    while high - low > 0.01 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(cal.n + 1, math.ceil(high * cal.n))
